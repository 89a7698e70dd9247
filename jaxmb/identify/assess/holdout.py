"""A verdict on what was not used: tests and lines that are predicted beside those that were fitted."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.experiments.frf_weights import resonances
from jaxmb.identify.experiments.modes_test import ModesTest, predict_modes
from jaxmb.identify.experiments.motion import scene
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.noise import log_error
from jaxmb.identify.study.reading.frf_source import Measured
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model
from jaxmb.measurement.modal.indicators import frac
from jaxmb.response.modal import modes


def verdicts_on_tests(study: Study, model: Model) -> dict[str, Any]:
    """`metrics.fit` and, where something was held out, `metrics.holdout`: how well the machine predicts each.

    Args:
        study: what was fitted and what was held out.
        model: the identified machine's.
    """
    kinds = {
        "fit": list(zip(study.tests, study.measured, strict=True)),
        "holdout": [(check.test, check.measured) for check in study.checks],
    }
    return {kind: verdict(model, tests) for kind, tests in kinds.items() if tests}


def verdict(model: Model, tests: Sequence[tuple[Test, Measured | None]]) -> dict[str, Any]:
    """How well a machine predicts tests: FRAC, error of log H, error of natural frequencies, and each test's own.

    Args:
        model: the machine's.
        tests: each with what is known of its measurement.

    Returns:
        "frac": mean over all FRFs of all tests, 1 alike; "log_error": root mean square error of log H;
        "frequency_error_hz": mean absolute error of the natural frequencies; each None where no test has it. "tests":
        the same of each test by name, with the number of its modes.
    """
    each = {test.name: _of_test(model, test, data) for test, data in tests}
    frequency_errors = [e for one in each.values() for e in one["errors_hz"]]
    fracs = [x for one in each.values() for x in one["fracs"]]
    logs = [one["log_error"] for one in each.values() if one["log_error"] is not None]
    return {
        "frac": float(np.mean(fracs)) if fracs else None,
        "log_error": float(np.sqrt(np.mean(np.square(logs)))) if logs else None,
        "frequency_error_hz": float(np.mean(frequency_errors)) if frequency_errors else None,
        "tests": {
            name: {
                "frac": float(np.mean(one["fracs"])) if one["fracs"] else None,
                "log_error": one["log_error"],
                "frequency_error_hz": float(np.mean(one["errors_hz"])) if one["errors_hz"] else None,
                "modes": len(one["errors_hz"]),
            }
            for name, one in each.items()
        },
    }


def _of_test(model: Model, test: Test, data: Measured | None) -> dict[str, Any]:
    seen = scene(test, model)
    if isinstance(test, ModesTest):
        found = np.asarray(predict_modes(test, seen).frequency_hz)
        return {"fracs": [], "log_error": None, "errors_hz": np.abs(found - np.asarray(test.frequency_hz)).tolist()}
    used = np.asarray(test.weight) > 0.0
    measured, predicted = np.asarray(test.measured), np.asarray(test.predict(seen))
    alike = frac(np.where(used, measured, np.nan), np.where(used, predicted, np.nan))
    residual, weights = np.asarray(test.residual(seen)), np.asarray(test.row_weights())
    found = np.asarray(modes(seen.tangent).damped_frequency_hz)
    end_hz = float(test.omega[-1]) / (2.0 * np.pi)
    if data is not None and data.modal is not None:
        reference = np.asarray(data.modal.model.damped_frequency_hz)
    elif data is not None and data.truth is not None:
        reference = np.asarray(data.truth.modes.damped_frequency_hz)
    else:
        reference, found = _peaks(test, measured), _peaks(test, predicted)
    errors = paired_errors_hz(reference[reference <= end_hz], found)
    return {
        "fracs": alike[np.isfinite(alike)].tolist(),
        "log_error": log_error(test, residual, weights),
        "errors_hz": errors,
    }


def paired_errors_hz(reference: np.ndarray, found: np.ndarray) -> list[float]:
    """Absolute differences of frequencies that belong together, by the smallest sum of ratios, however far they are."""
    if not (reference.size and found.size):
        return []
    distance = np.abs(np.log(reference[:, None] / found))
    return [float(abs(found[j] - reference[i])) for i, j in zip(*linear_sum_assignment(distance), strict=True)]


def _peaks(test: FrfTest, frf: np.ndarray) -> np.ndarray:
    """Frequencies of the peaks of all FRFs together, Hz: of the parabola through the logarithms of three lines."""
    used = np.asarray(test.weight) > 0.0
    level = np.log10(np.sqrt(np.sum(np.where(used, np.abs(frf), 0.0) ** 2, axis=(1, 2))) + 1e-300)
    frequency_hz = np.asarray(test.omega) / (2.0 * np.pi)
    peaks = resonances(level, frequency_hz, prominence=0.1)
    inner = peaks[(peaks > 0) & (peaks < level.size - 1)]
    before, top, after = (level[inner + k] for k in (-1, 0, 1))
    bend = before - 2.0 * top + after
    shift = np.where(bend < 0.0, 0.5 * (before - after) / np.where(bend < 0.0, bend, -1.0), 0.0)
    return np.interp(inner + np.clip(shift, -0.5, 0.5), np.arange(level.size), frequency_hz)
