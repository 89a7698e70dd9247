"""Metrics and remarks of FRF tests and modal tests."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.modal_agreement import ModePair, UnpairedMode, agreement_metrics, unmatched_metrics
from jaxmb.identify.assess.remarks import tests_text, undamped
from jaxmb.identify.experiments.frf.frf_test import FrfEntry, FrfTest
from jaxmb.identify.experiments.frf.misfit import FrfMisfit, frf_misfit
from jaxmb.identify.experiments.modes_test import ModesEntry, predict_modes
from jaxmb.identify.experiments.motion_view import MotionView


@dataclasses.dataclass(frozen=True, eq=False)
class FrfMetrics(KindMetrics):
    """Additional metrics of FRF tests."""

    log_error: dict[str, float] | None = None
    """Root mean square error of log H of each fitted test, by name."""
    jq_percent: dict[str, float] | None = None
    """J_Q of each fitted and held-out test by name, %: sum of |H - Hs|^2 over that of |H|^2 (Rognant et al. 2010, eq.
    34)."""
    noise_log_std: dict[str, float] | None = None
    """Estimated standard deviation of log H of each test without stated noise."""
    measured_modes: tuple[ModePair, ...] | None = None
    """Modes from modal analysis of the FRFs, paired with those of the identified machine."""
    unmatched_modes: tuple[UnpairedMode, ...] | None = None
    """Unpaired measured and fitted modes."""

    @property
    def noise_text(self) -> str:
        """Text on the estimated standard deviations of log H."""
        levels = (self.noise_log_std or {}).items()
        return f"of log H {', '.join(f'{level:.2g} ({name})' for name, level in levels)}" if levels else ""

    @classmethod
    def found(cls, estimate: Estimate, entries: Sequence[FrfEntry]) -> "FrfMetrics":
        """Metrics of a fit; see `KindMetrics`."""
        errors, by_name, noise = {}, {}, {}
        misfits = dict(zip((test.name for test in estimate.study.tests), estimate.misfits, strict=True))
        for entry, view, rows in estimate.of(entries):
            test = entry.test
            by_name[entry.name] = _jq_percent(test, view)
            errors[entry.name] = test.log_error(estimate.residual[rows])
            if not test.noise.is_known:
                own = estimate.residual[rows]
                expected = float(np.sum(own**2)) / misfits[entry.name].square
                noise[entry.name] = test.noise.estimated(own, expected)
        for entry in entries:
            if entry.role == "check":
                by_name.setdefault(entry.name, _jq_percent(entry.test, entry.test.view(estimate.model)))
        compared = [
            (entry.name, agreement)
            for entry, agreement in zip(estimate.study.fitted, estimate.agreements, strict=True)
            if agreement is not None
        ]
        return cls(
            log_error=errors or None,
            jq_percent=by_name or None,
            noise_log_std=noise or None,
            measured_modes=tuple(m for c in compared for m in agreement_metrics(*c)) if compared else None,
            unmatched_modes=tuple(m for c in compared for m in unmatched_metrics(*c)) if compared else None,
        )


def _jq_percent(test: FrfTest, view: MotionView) -> float:
    used, measured = np.asarray(test.weight) > 0.0, np.asarray(test.measured)
    missed = np.abs(np.asarray(test.predict(view)) - measured)[used]
    return 100.0 * float(np.sum(missed**2) / np.sum(np.abs(measured[used]) ** 2))


def frf_remarks(estimate: Estimate, entries: Sequence[FrfEntry], metrics: FrfMetrics) -> tuple[list[str], list[str]]:
    """Likely causes of FRFs that the machine does not reproduce, and no other doubts."""
    found = dict[str, list[tuple[str, FrfMisfit]]]()
    for entry, view, _ in estimate.of(entries):
        test = entry.test
        poor = test.name in estimate.not_reproduced
        off = frf_misfit(test, np.asarray(test.predict(view)), poor, undamped(estimate))
        if off is not None:
            found.setdefault(off.cause, []).append((entry.name, off))
    sentences = []
    for cause, tests in found.items():
        factors, degrees = (sorted(getattr(off, name) for _, off in tests) for name in ("factor", "degrees"))
        sentences.append(
            f"{tests_text([name for name, _ in tests])}: the fit is off by a factor of {_span(factors, '.3g')} and"
            f" {_span(degrees, '.0f')} degrees on average; {cause}"
        )
    return sentences, []


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
    def found(cls, estimate: Estimate, entries: Sequence[ModesEntry]) -> "ModesMetrics | None":
        """Metrics of a fit; see `KindMetrics`."""
        model, lines = estimate.model, []
        names = (*model.coordinates, *model.springs, *model.beams)
        for entry, view, _ in estimate.of(entries):
            test = entry.test
            frequency, damping, share, likeness, _ = (np.asarray(x) for x in predict_modes(test, view))
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
