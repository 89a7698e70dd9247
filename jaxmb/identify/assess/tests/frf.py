"""Metrics and remarks of FRF tests and modal tests."""

import dataclasses
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.modal_agreement import ModePair, UnpairedMode, agreement_metrics, unmatched_metrics
from jaxmb.identify.assess.remarks import grouped, tests_text, undamped
from jaxmb.identify.experiments.frf.frf_test import FrfEntry, FrfTest
from jaxmb.identify.experiments.frf.noise import IMPROBABLE_ERROR
from jaxmb.identify.experiments.modes_test import ModesEntry, predict_modes
from jaxmb.identify.experiments.vibration_view import VibrationView
from jaxmb.identify.study.reading.vibration import frfs_text
from jaxmb.response.frf_kind import DERIVATIVES, dof_names


@dataclasses.dataclass(frozen=True, eq=False)
class FrfMetrics(KindMetrics):
    """Additional metrics of FRF tests."""

    log_error: dict[str, float] | None = None
    """Root mean square error of log H of each fitted test, by name."""
    jq_percent: dict[str, float] | None = None
    """J_Q of each fitted and held-out test by name, %: sum of |H - Hs|^2 over that of |H|^2 (Rognant et al. 2010, eq.
    34)."""
    jq_held_out_percent: dict[str, float] | None = None
    """J_Q of the lines held out of fitted tests by `check_every`, by name, %."""
    noise_log_std: dict[str, float] | None = None
    """Estimated standard deviation of log H of each test without stated noise."""
    measured_modes: tuple[ModePair, ...] | None = None
    """Modes from modal analysis of the FRFs, paired with those of the identified machine."""
    unmatched_modes: tuple[UnpairedMode, ...] | None = None
    """Unpaired measured and fitted modes."""

    @classmethod
    def of_fit(cls, estimate: Estimate, entries: Sequence[FrfEntry]) -> "FrfMetrics":
        """Metrics of a fit; see `KindMetrics`."""
        errors, by_name, held_out = {}, {}, {}
        for entry, view, rows in estimate.fitted_of(entries):
            by_name[entry.name] = _jq_percent(entry.test, view)
            errors[entry.name] = entry.test.log_error(estimate.residual[rows])
        for entry in entries:
            if entry.role == "check":
                into = held_out if entry.name in errors else by_name  # lines held out share the name of their test
                into[entry.name] = _jq_percent(entry.test, entry.test.view(estimate.model))
        compared = estimate.agreements.items()
        return cls(
            log_error=errors or None,
            jq_percent=by_name or None,
            jq_held_out_percent=held_out or None,
            noise_log_std={name: std for name, std in estimate.noise_levels.items() if name in errors} or None,
            measured_modes=tuple(m for c in compared for m in agreement_metrics(*c)) if compared else None,
            unmatched_modes=tuple(m for c in compared for m in unmatched_metrics(*c)) if compared else None,
        )


def _jq_percent(test: FrfTest, view: VibrationView) -> float:
    used, measured = np.asarray(test.weight) > 0.0, np.asarray(test.measured)
    missed = np.abs(np.asarray(test.predict(view)) - measured)[used]
    return 100.0 * float(np.sum(missed**2) / np.sum(np.abs(measured[used]) ** 2))


def frf_remarks(estimate: Estimate, entries: Sequence[FrfEntry], metrics: FrfMetrics) -> tuple[list[str], list[str]]:
    """Likely causes of FRFs that the machine does not reproduce, and doubts on FRFs that the machine lacks."""
    found = dict[str, list[tuple[str, FrfMisfit]]]()
    for entry, view, _ in estimate.fitted_of(entries):
        poor = entry.name in estimate.goodness.not_reproduced
        off = frf_misfit(entry.test, np.asarray(entry.test.predict(view)), poor, undamped(estimate))
        if off is not None:
            found.setdefault(off.cause, []).append((entry.name, off))
    sentences = []
    for cause, tests in found.items():
        factors, degrees = (sorted(getattr(off, name) for _, off in tests) for name in ("factor", "degrees"))
        sentences.append(
            f"{tests_text([name for name, _ in tests])}: the fit is off by a factor of {_span(factors, '.3g')} and"
            f" {_span(degrees, '.0f')} degrees on average; {cause}"
        )
    absent = [
        (entry.name, text) for entry, view, _ in estimate.fitted_of(entries) for text in _absent_texts(entry.test, view)
    ]
    return sentences, grouped(absent)


def _absent_texts(test: FrfTest, view: VibrationView) -> list[str]:
    """A sentence on FRFs that vanish in the machine although more than leakage was measured, if any."""
    leak, measured = (np.abs(np.asarray(x)) for x in (test.leak, test.measured))
    most = np.broadcast_to(leak.max(axis=(1, 2), keepdims=True), leak.shape)  # a weak FRF may be noise
    squares, expected = (np.sum(size**2, axis=0, where=leak > 0.0) for size in (measured, most))
    beyond = test.lines.absent(view) & (squares > IMPROBABLE_ERROR**2 * expected)
    if not beyond.any():
        return []
    times = np.sqrt(np.max(squares[beyond] / expected[beyond]))
    return [
        f"{frfs_text(beyond, test.outputs, test.inputs)}: the machine has no response there, but up to {times:.2g}"
        " times the leakage was measured: a sensor, a force or an axis has another direction, or an elasticity is"
        " missing"
    ]


def _span(sizes: Sequence[float], form: str) -> str:
    """Text of one number, or of the range of several in ascending order."""
    least, most = (format(size, form) for size in (sizes[0], sizes[-1]))
    return least if least == most else f"{least} to {most}"


@dataclasses.dataclass(frozen=True, eq=False)
class ModesMetrics(KindMetrics):
    """Additional metrics of modal tests."""

    measured_modes: tuple[ModePair, ...] | None = None
    """Measured modes, paired with predicted ones."""

    @classmethod
    def of_fit(cls, estimate: Estimate, entries: Sequence[ModesEntry]) -> "ModesMetrics | None":
        """Metrics of a fit; see `KindMetrics`."""
        model, lines = estimate.model, []
        names = (*model.coordinates, *model.springs, *model.beams)
        for entry, view, _ in estimate.fitted_of(entries):
            test = entry.test
            frequency, damping, share, likeness = (np.asarray(x) for x in predict_modes(test, view)[:4])
            lines += [
                ModePair(
                    posture=entry.name,
                    measured_frequency_hz=float(test.frequency_hz[m]),
                    frequency_hz=float(frequency[m]),
                    measured_damping_percent=100.0 * float(test.damping_ratio[m]),
                    damping_percent=100.0 * float(damping[m]),
                    content=tuple(c for c, on in zip(names, test.content[m], strict=True) if on),
                    energy_share=float(share[m]),
                    mac=float(likeness[m]) if test.outputs else None,
                )
                for m in range(frequency.size)
            ]
        return cls(tuple(lines)) if lines else None


FACTOR = 0.3
"""Absolute logarithm of a factor on all lines above which it is reported."""
CONSTANT = 1.0 / 3.0
"""Errors of log-magnitude count as one common factor where their interquartile range is below this share of their
median."""
MOST = 0.8
"""Share of lines that counts as nearly all."""


class FrfMisfit(NamedTuple):
    """Size of the misfit of an FRF test and its likely cause."""

    cause: str
    factor: float
    """Root mean square error of magnitudes, as a factor; 1 for errors of phase only."""
    degrees: float
    """Root mean square error of phases, degrees."""


def frf_misfit(test: FrfTest, fitted: np.ndarray, poor: bool, undamped: bool) -> FrfMisfit | None:
    """ReducedChiSquare of an FRF test; None where the fit reproduces it.

    Args:
        test: measured FRFs.
        fitted: FRFs [f, o, i] of the identified machine.
        poor: whether the fit does not reproduce the test.
        undamped: whether every free damping converged to its lower bound.
    """
    measured = np.asarray(test.measured)
    used = (np.asarray(test.weight) > 0.0) & np.isfinite(fitted) & (fitted != 0.0)
    is_judged = used.any() and (poor or undamped)
    reversed_time = is_judged and _other_sign_of_time(test, measured, fitted, used)
    if not (reversed_time or (is_judged and poor)):
        return None
    of_sign = "its phases have the opposite sign: are the FRFs for exp(-j omega t)?"
    cause = of_sign if reversed_time else _cause(test, measured, fitted, used)
    cause = cause if poor else f"every damping is on its lower bound and {cause}"
    # lines are weighted by their noise
    error, counts = np.log(measured[used] / fitted[used]), np.asarray(test.noise_std)[used] ** -2.0
    factor, angle = (np.sqrt(np.average(part(error) ** 2, weights=counts)) for part in (np.real, np.imag))
    return FrfMisfit(cause, math.exp(min(factor, 100.0)), math.degrees(angle))


def _cause(test: FrfTest, measured: np.ndarray, fitted: np.ndarray, used: np.ndarray) -> str:
    error = np.log(np.where(used, measured, 1.0) / np.where(used, fitted, 1.0))
    size = np.real(error)[used]
    middle = float(np.median(size))
    spread = float(np.subtract(*np.percentile(size, [75.0, 25.0])))
    if abs(middle) > FACTOR and spread <= CONSTANT * abs(middle):
        return f"measured over fitted is {math.exp(middle):.3g} throughout: is it the unit?"
    opposite = _opposite_side(test, np.abs(np.imag(error)) > 0.5 * np.pi, used)
    if opposite:
        return f"measured and fitted are opposite at {opposite}: is a sensor or hammer reversed?"
    kind = _passive_kind(test, measured, used)
    if kind:
        return f"at points that are both output and input its FRFs absorb power only as {kind}: is the kind right?"
    return (
        "check posture, unit, frame, sign and order of points, or whether weak FRFs are noise (coherence, cross_axis)"
    )


ACTIVE = -0.5
"""Cosine of the phase of mobility at a driven point below which a line supplies power."""
FEW, SOME = 0.01, 0.1
"""Share of such lines up to which noise causes them, and above which it does not. Above 1 - `SOME` a sensor may be
reversed."""


def _passive_kind(test: FrfTest, measured: np.ndarray, used: np.ndarray) -> str:
    """The only kind of FRF as which all driven points absorb power, where they do not as that of the test; empty where
    there is none, or no driven point."""
    driven = used & np.array([[o == i for i in test.inputs] for o in test.outputs])
    if not driven.any():
        return ""
    phase = (measured / np.abs(np.where(used, measured, 1.0)))[driven]
    active = {kind: float(np.mean(np.real(phase / 1j ** (d - 1)) < ACTIVE)) for kind, d in DERIVATIVES.items()}
    own = next(share for kind, share in active.items() if DERIVATIVES[kind] == test.derivatives)
    passive = [kind for kind, share in active.items() if share < FEW]
    return passive[0] if SOME < own < 1.0 - SOME and len(passive) == 1 else ""


def _opposite_side(test: FrfTest, opposite: np.ndarray, used: np.ndarray) -> str:
    """The outputs or inputs whose FRFs, and no others, have the opposite sign at nearly all lines; empty where there
    are none."""
    share = np.sum(opposite & used, axis=0) / np.maximum(np.sum(used, axis=0), 1)
    known, reversed_frf = used.any(axis=0), share > MOST
    for what, points, on, in_use in (
        ("output", test.outputs, reversed_frf, known),
        ("input", test.inputs, reversed_frf.T, known.T),
    ):
        whole = np.all(on | ~in_use, axis=1) & np.any(in_use, axis=1)
        if whole.any() and not whole.all() and np.array_equal(whole[:, None] & in_use, on & in_use):
            return f"{what} {', '.join(name for name, is_on in zip(dof_names(points), whole, strict=True) if is_on)}"
    return ""


def _other_sign_of_time(test: FrfTest, measured: np.ndarray, fitted: np.ndarray, used: np.ndarray) -> bool:
    """Whether the complex conjugate of the data is closer to an FRF of the machine.

    A passive machine absorbs power at a driven point: Re(H / (j omega)^(d-1)) >= 0, d = 0 for receptance, 1 mobility,
    2 accelerance. For receptance and accelerance that is the sign of the imaginary part. Without driving-point FRFs,
    the signs of real and imaginary parts are compared with the fitted ones.
    """
    driving_point = used & np.array([[o == i for i in test.inputs] for o in test.outputs])
    if driving_point.any() and test.derivatives != 1:
        absorbed = np.real(measured / 1j ** (test.derivatives - 1))[driving_point]
        as_is, conjugate, opposite = (
            float(np.median(np.abs(np.log(h / fitted[used]))))
            for h in (measured[used], np.conj(measured[used]), -measured[used])
        )
        return float(np.mean(absorbed < 0.0)) > MOST and conjugate < min(as_is, opposite, 1.0)
    off_axis = used & (np.abs(np.imag(measured)) > 0.2 * np.abs(measured))  # sign not determined by noise
    same = [part(measured) * part(fitted) > 0.0 for part in (np.real, np.imag)]
    if not off_axis.any() or not (used & ~off_axis).any():
        return False
    return float(np.mean(same[0][used & ~off_axis])) > MOST and float(np.mean(same[1][off_axis])) < 1.0 - MOST
