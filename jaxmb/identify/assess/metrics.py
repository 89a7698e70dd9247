"""What an identification is judged by, as numbers by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.holdout import verdicts_on_tests
from jaxmb.identify.assess.modal_agreement import agreement_metrics, unmatched_metrics
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.study.kinds import KINDS, by_kind
from jaxmb.response.modal import Modes, modes


def fit_metrics(finding: Finding) -> dict[str, Any]:
    """Errors against the truth, against measured modes, on what was fitted and on what was held out, and what each kind
    of test tells beside that."""
    study = finding.study
    metrics = truth_metrics(finding)
    metrics |= verdicts_on_tests(study, finding.model)
    for kind, entries in by_kind(study.entries):
        for name, value in kind_metrics(kind, finding, entries).items():
            both = metrics.get(name)
            metrics[name] = [*both, *value] if isinstance(both, list) else value
    for entry, agreement in zip(study.fitted, finding.agreements, strict=True):
        if agreement is not None:
            metrics.setdefault("measured_modes", []).extend(agreement_metrics(entry.name, agreement))
            metrics.setdefault("unmatched_modes", []).extend(unmatched_metrics(entry.name, agreement))
    if study.problem.prior is not None:
        metrics["prior_log_std"] = {
            name: float(s)
            for name, s in zip(study.free.names, np.asarray(study.problem.prior.std), strict=True)
            if np.isfinite(s)
        }
    return metrics


def kind_metrics(kind: str, finding: Finding, entries: Sequence[Entry]) -> dict[str, Any]:
    """What a result tells of the tests of one kind beside what it tells of all."""
    metrics = KINDS[kind].metrics
    return metrics(finding, entries) if metrics is not None else {}


def truth_metrics(finding: Finding) -> dict[str, Any]:
    """Errors of parameters and modes where the machine that was measured is known."""
    study, metrics = finding.study, {}
    named = study.free.named(finding.values)
    lost = set() if finding.linear is None else {
        n for names, out in zip(study.free.tied, finding.linear.step.without_effect, strict=True) if out for n in names
    }  # fmt: skip
    errors = {n: named[n] / true - 1.0 for n, true in study.truth.items() if true != 0.0 and n not in lost}
    if errors:
        metrics["parameter_error"] = errors
        metrics["largest_parameter_error"] = max(abs(e) for e in errors.values())
    pairs = [
        pair
        for entry, view, _ in finding.of(study.fitted)
        if (tangent := entry.test.tangent(view)) is not None
        if entry.truth is not None and entry.truth.modes is not None
        for pair in _against_true_modes(entry, modes(tangent), entry.truth.modes)
    ]
    if pairs:
        metrics["true_modes"] = pairs
        metrics["largest_frequency_error_hz"] = max(abs(p["frequency_hz"] - p["true_frequency_hz"]) for p in pairs)
        metrics["largest_damping_error_percent"] = max(
            abs(p["damping_percent"] - p["true_damping_percent"]) for p in pairs
        )
    return metrics


def _against_true_modes(entry: Entry, found: Modes, true: Modes) -> list[dict[str, Any]]:
    """The identified machine's modes beside those of the simulated one, paired by the smallest error in frequency."""
    below = np.flatnonzero(np.asarray(true.frequency_hz) <= entry.test.band_end_hz)
    distance = np.abs(np.log(np.asarray(true.frequency_hz)[below, None] / np.asarray(found.frequency_hz)))
    return [
        {
            "posture": entry.name,
            "true_frequency_hz": float(true.damped_frequency_hz[below[i]]),
            "frequency_hz": float(found.damped_frequency_hz[j]),
            "true_damping_percent": 100.0 * float(true.damping_ratio[below[i]]),
            "damping_percent": 100.0 * float(found.damping_ratio[j]),
        }
        for i, j in zip(*linear_sum_assignment(distance), strict=True)
    ]
