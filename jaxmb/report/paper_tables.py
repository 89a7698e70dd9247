"""Tables 5 and 6 of Huynh et al. 2020 in the paper's layout, one column per machine."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from jaxmb.report.modes.mode_pairs import ModePairs
from jaxmb.report.section import Table, left, right

PAPER = "Huynh et al. 2020"


def parameters_table(columns: Mapping[str, Mapping[str, float]]) -> Table:
    """Table 5: one row per parameter of the last column, one column per machine; SI units.

    Args:
        columns: heading -> parameters by name.
    """
    names = list(columns.values())[-1]
    rows = tuple((name, *(f"{values[name]:.3g}" for values in columns.values())) for name in names)
    return Table(f"Parameters in SI units (layout of {PAPER}, Table 5)", (*left(""), *right(*columns)), rows)


def modes_table(name: str, columns: Mapping[str, ModePairs]) -> Table:
    """Table 6: frequencies, damping ratios, the mean errors of both, and MACs; one column per machine.

    "/" marks cells without a pair. Modes in the band without a measured partner follow at the end.

    Args:
        name: of the test.
        columns: heading -> the machine's modes paired with the same reference.
    """
    reference = next(iter(columns.values())).reference
    ordered, rows = [in_order(pairs) for pairs in columns.values()], []
    shown = np.asarray(reference.damped_frequency_hz), 100.0 * np.asarray(reference.damping_ratio)
    for label, unit, values, of_fitted in (
        ("f", "Hz", shown[0], [b.frequency_hz for b in ordered]),
        ("damping ", "%", shown[1], [b.damping_percent for b in ordered]),
    ):
        for m, value in enumerate(values):
            rows.append((f"{label}{m + 1} [{unit}]", f"{value:.2f}", *(_cell(fitted[m], 2) for fitted in of_fitted)))
        rows.append((f"mean error [{unit}]", "/", *(_cell(mean_error(values, fitted), 3) for fitted in of_fitted)))
    if reference.shape.shape[0] > 1:
        rows += [(f"MAC {m + 1}", "/", *(_cell(b.mac[m], 3) for b in ordered)) for m in range(shown[0].size)]
    for k in range(max(len(b.alone) for b in ordered)):
        rows.append(("not measured [Hz]", "/", *(b.alone[k] if k < len(b.alone) else "/" for b in ordered)))
    return Table(f"Modes, {name} (layout of {PAPER}, Table 6)", (*left(""), *right("measured", *columns)), tuple(rows))


class InOrder(NamedTuple):
    """A machine's modes in the order of the reference [mode], NaN for unpaired modes of the reference."""

    frequency_hz: np.ndarray
    damping_percent: np.ndarray
    mac: np.ndarray
    alone: list[str]
    """Damped frequencies of the machine's unpaired modes, Hz."""


def in_order(pairs: ModePairs) -> InOrder:
    """A machine's modes in the order of the reference."""
    fitted, count = pairs.fitted, pairs.reference.frequency_hz.size
    frequency_hz, damping_percent, mac = (np.full(count, np.nan) for _ in range(3))
    for f, m in enumerate(pairs.partner):
        if m is not None:
            frequency_hz[m] = fitted.damped_frequency_hz[f]
            damping_percent[m] = 100.0 * fitted.damping_ratio[f]
            mac[m] = pairs.likeness[f, m]
    alone = [f"{float(fitted.damped_frequency_hz[f]):.2f}" for f, m in enumerate(pairs.partner) if m is None]
    return InOrder(frequency_hz, damping_percent, mac, alone)


def mean_error(reference: np.ndarray, fitted: np.ndarray) -> float:
    """Mean absolute difference over the paired modes; NaN without pairs."""
    both = np.isfinite(fitted)
    return float(np.mean(np.abs(fitted - reference)[both])) if both.any() else float("nan")


def _cell(value: float, digits: int) -> str:
    return f"{value:.{digits}f}" if np.isfinite(value) else "/"
