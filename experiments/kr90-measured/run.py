"""Tables 5 and 6 and Figure 11 of Huynh et al. 2020 on a stand-in for its FRFs, and what changes the verdict.

python experiments/kr90-measured/run.py [--draws 10] [--out results/kr90-measured-tables]
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

import jaxmb
from jaxmb.report import ModePairs, drawing, mac_panels, measured_pairs, write_figure
from jaxmb.studies import Study, study_data

PLAIN: dict[str, Any] = {"coherence": False, "cross_axis": 0.0}
SYNTHESIZED: dict[str, Any] = {"fit": "synthesized", "symmetrize": "upper", "noise_log_std": 0.01}  # as in the study
VARIANTS: dict[str, dict[str, Any]] = {
    "measured, as in the paper": PLAIN,
    "measured, cross axis": {"coherence": False, "cross_axis": 0.05},
    "synthesized and mirrored, as in the paper": PLAIN | SYNTHESIZED,
    "synthesized and mirrored, cross axis": SYNTHESIZED | {"cross_axis": 0.05},
    "measured, coherence": PLAIN | {"coherence": True},
    "measured, mirrored": PLAIN | {"symmetrize": "upper"},
    "measured, coherence and cross axis": {"coherence": True, "cross_axis": 0.05},
}
"""The first four answer whether the synthesis or `cross_axis` makes the difference."""
WITHIN_HZ, WITHIN_PERCENT, LEAST_MAC = 0.125, 0.175, 0.9
"""The paper's mean errors of its fit on synthesized FRFs (Table 6), and a MAC that a mode should have."""


def compared(study: Study, model: jaxmb.Model) -> ModePairs:
    """A model's modes beside those that were measured in a study's first test."""
    pairs = measured_pairs(study.fitted[0], model)
    if pairs is None:
        raise ValueError(f"study '{study.name}': no mode was measured")
    return pairs


def variant(changes: dict[str, Any], draw: int) -> Study:
    """The study on the stand-in with other settings of its test."""
    data = study_data("kr90-measured")
    test = data["test"][0] | changes
    if test.get("fit") == "synthesized":
        test.pop("band_hz", None)  # the modal model holds in its own band
    data["test"] = [test]
    return jaxmb.make_study(data, "kr90-measured", noise_seed=draw)


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


def table(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table whose first column is aligned left."""
    made = Table(title=title, title_justify="left")
    for k, heading in enumerate(headings):
        made.add_column(heading, justify="right" if k else "left")
    for row in rows:
        made.add_row(*row)
    return made


def modes_table(name: str, columns: Mapping[str, ModePairs]) -> Table:
    """Table 6: frequencies, damping ratios, the mean errors of both, and MACs; "/" marks cells without a pair."""

    def cells(values: Iterable[float], digits: int) -> list[str]:
        return [f"{value:.{digits}f}" if np.isfinite(value) else "/" for value in values]

    reference, ordered = next(iter(columns.values())).reference, [in_order(pairs) for pairs in columns.values()]
    rows: list[Sequence[str]] = []
    for label, unit, values, fitted in (
        ("f", "Hz", np.asarray(reference.damped_frequency_hz), [b.frequency_hz for b in ordered]),
        ("damping ", "%", 100.0 * np.asarray(reference.damping_ratio), [b.damping_percent for b in ordered]),
    ):
        rows += [
            (f"{label}{m + 1} [{unit}]", f"{value:.2f}", *cells([own[m] for own in fitted], 2))
            for m, value in enumerate(values)
        ]
        rows.append((f"mean error [{unit}]", "/", *cells([mean_error(values, own) for own in fitted], 3)))
    rows += [(f"MAC {m + 1}", "/", *cells([b.mac[m] for b in ordered], 3)) for m in range(ordered[0].mac.size)]
    for k in range(max(len(b.alone) for b in ordered)):
        rows.append(("not measured [Hz]", "/", *(b.alone[k] if k < len(b.alone) else "/" for b in ordered)))
    return table(f"Modes, {name} (layout of Huynh et al. 2020, Table 6)", ("", "measured", *columns), rows)


def paper_tables(out: Path, console: Console) -> None:
    """Tables 5 and 6 and Figure 11 in the paper's layout, ours in place of theirs."""
    results = {
        name: jaxmb.identify(jaxmb.load_study(f"kr90-{name}")) for name in ("modelled", "measured", "synthesized")
    }
    study = results["measured"].study
    reference = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    models = {"reference": reference} | {f"fit on {name}": result.model for name, result in results.items()}
    values = {name: jaxmb.parameters(model) for name, model in models.items()}
    rows = [(p, *(f"{values[name][p]:.3g}" for name in models)) for p in study.free.names]
    console.print(table("Parameters in SI units (layout of Huynh et al. 2020, Table 5)", ("", *models), rows))
    columns = {name: compared(study, model) for name, model in models.items()}
    console.print(modes_table(study.tests[0].name, columns))
    pairs = {name: columns[name] for name in models if name != "reference"}
    panels = [
        (f"{name} (Hz)", p.likeness, np.asarray(p.fitted.damped_frequency_hz), p.unmeasured)
        for name, p in pairs.items()
    ]
    measured = np.asarray(columns["reference"].reference.damped_frequency_hz)
    with drawing():
        write_figure(mac_panels("MAC, as Fig. 11", panels, ("measured: modes (Hz)", measured)), out / "mac.png")


def verdict(draws: int, console: Console) -> None:
    """Every way to fit, on other hits and other noise each time."""
    headings = ("fit", "frequency [Hz]", "damping [%]", "least MAC", f"within {WITHIN_HZ}, {WITHIN_PERCENT}, 0.9")
    rows = []
    for name, changes in VARIANTS.items():
        fits = []
        for draw in range(1, draws + 1):
            study = variant(changes, draw)
            pairs = compared(study, jaxmb.identify(study).model)
            modes = in_order(pairs)
            fits.append((
                mean_error(np.asarray(pairs.reference.damped_frequency_hz), modes.frequency_hz),
                mean_error(100.0 * np.asarray(pairs.reference.damping_ratio), modes.damping_percent),
                float(np.nan_to_num(modes.mac).min()),  # a mode that is missing is like nothing
            ))  # fmt: skip
            console.print(f"{name}, draw {draw}: {fits[-1][0]:.3f} Hz, {fits[-1][1]:.3f} %, MAC {fits[-1][2]:.3f}")
        frequency, damping, mac = np.array(fits).T
        good = (frequency <= WITHIN_HZ) & (damping <= WITHIN_PERCENT) & (mac >= LEAST_MAC)
        means = [
            f"{x.mean():.3f} ({end:.3f})"
            for x, end in ((frequency, frequency.max()), (damping, damping.max()), (mac, mac.min()))
        ]
        rows.append((name, *means, f"{good.sum()} of {draws}"))
    console.print(table(f"{draws} draws of hits and noise: mean (largest) error of the four modes", headings, rows))


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/kr90-measured-tables"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console(width=110, highlight=False)
    paper_tables(arguments.out, console)
    if arguments.draws > 0:
        verdict(arguments.draws, console)


if __name__ == "__main__":
    main()
