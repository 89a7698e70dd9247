"""What an identification is judged by, as numbers by name."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from jaxmb.identify.assess.deflections.prediction_errors import deflection_metrics
from jaxmb.identify.assess.holdout import verdicts_on_tests
from jaxmb.identify.assess.modal_agreement import ModalAgreement, agreement_metrics, unmatched_metrics
from jaxmb.identify.estimation.identifiability import Knowledge
from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.experiments.modes_test import ModesTest, predict_modes
from jaxmb.identify.experiments.motion import Scene
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.noise import log_error, noise_factor
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model
from jaxmb.response.modal import Modes, modes


def band_end_hz(test: Test) -> float:
    """Highest frequency that a test knows of; a modal test is given a quarter beyond its last mode."""
    if isinstance(test, FrfTest):
        return float(test.omega[-1]) / (2 * np.pi)
    return 1.25 * float(np.max(np.asarray(test.frequency_hz)))


def _against_true_modes(test: Test, seen: Scene, true: Modes) -> list[dict[str, Any]]:
    """The identified machine's modes beside those of the simulated one, paired by the smallest error in frequency."""
    found = modes(seen.tangent)
    below = np.flatnonzero(np.asarray(true.frequency_hz) <= band_end_hz(test))
    distance = np.abs(np.log(np.asarray(true.frequency_hz)[below, None] / np.asarray(found.frequency_hz)))
    return [
        {
            "posture": test.name,
            "true_frequency_hz": float(true.damped_frequency_hz[below[i]]),
            "frequency_hz": float(found.damped_frequency_hz[j]),
            "true_damping_percent": 100.0 * float(true.damping_ratio[below[i]]),
            "damping_percent": 100.0 * float(found.damping_ratio[j]),
        }
        for i, j in zip(*linear_sum_assignment(distance), strict=True)
    ]


def fit_metrics(
    study: Study, u: np.ndarray, model: Model, scenes: Sequence[Scene], agreements: Sequence[ModalAgreement | None],
    residual: np.ndarray, row_weights: np.ndarray, known: Knowledge,
) -> dict[str, Any]:  # fmt: skip
    """Errors against the truth, against measured modes and FRFs, on what was fitted and on what was held out.

    Args:
        study: what was fitted to what.
        u: the fit [d].
        model: the identified machine's.
        scenes: it as each test sees it.
        agreements: of each test, with its modal analysis.
        residual: of the fit, in units of the noise.
        row_weights: variance of each residual.
        known: of u.
    """
    metrics: dict[str, Any] = {}
    named = study.free.named(np.clip(study.free.values(u), study.free.lower_value, study.free.upper_value))
    errors = {name: named[name] / true - 1.0 for name, true in study.truth.items() if true != 0.0}
    if errors:
        metrics["parameter_error"] = errors
        metrics["largest_parameter_error"] = max(abs(e) for e in errors.values())
    true_modes = [
        pair
        for test, seen, true in zip(study.tests, scenes, study.true_modes, strict=True)
        if true is not None
        for pair in _against_true_modes(test, seen, true)
    ]
    if true_modes:
        metrics["true_modes"] = true_modes
        metrics["largest_frequency_error_hz"] = max(abs(p["frequency_hz"] - p["true_frequency_hz"]) for p in true_modes)
        metrics["largest_damping_error_percent"] = max(
            abs(p["damping_percent"] - p["true_damping_percent"]) for p in true_modes
        )
    first_row = 0
    for test, seen, agreement in zip(study.tests, scenes, agreements, strict=True):
        rows = slice(first_row, first_row + test.rows)
        first_row += test.rows
        if isinstance(test, ModesTest):
            frequency, damping, share, likeness, _ = (np.asarray(x) for x in predict_modes(test, seen))
            metrics.setdefault("measured_modes", []).extend(
                {
                    "posture": test.name,
                    "measured_frequency_hz": float(test.frequency_hz[m]),
                    "frequency_hz": float(frequency[m]),
                    "measured_damping_percent": 100.0 * float(test.damping_ratio[m]),
                    "damping_percent": 100.0 * float(damping[m]),
                    "content": [c for c, on in zip(study.model.coordinates, test.content[m], strict=True) if on],
                    "energy_share": float(share[m]),
                    "mac": float(likeness[m]) if test.outputs else None,
                }
                for m in range(frequency.size)
            )
        else:
            metrics.setdefault("log_error", {})[test.name] = log_error(test, residual[rows], row_weights[rows])
            if not test.noise_known:
                factor = noise_factor(residual[rows], row_weights[rows], study.free.size)
                metrics.setdefault("noise_log_std", {})[test.name] = factor * float(test.nominal_std)
        if agreement is not None:
            metrics.setdefault("measured_modes", []).extend(agreement_metrics(test.name, agreement))
            metrics.setdefault("unmatched_modes", []).extend(unmatched_metrics(test.name, agreement))
    metrics |= verdicts_on_tests(study, model)
    if study.deflections:
        metrics |= deflection_metrics(study, u, known)
    if study.problem.prior is not None:
        metrics["prior_log_std"] = {
            name: float(s)
            for name, s in zip(study.free.names, np.asarray(study.problem.prior.std), strict=True)
            if np.isfinite(s)
        }
    return metrics
