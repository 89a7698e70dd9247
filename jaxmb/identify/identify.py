"""Identification of a study's parameters, from the fit to what a user wants to know of it."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import linear_sum_assignment
from threadpoolctl import threadpool_limits

from jaxmb.identify.ambiguity import ambiguity
from jaxmb.identify.experiments import FrfTest, ModesTest, Scene, Test, predict_modes, scene
from jaxmb.identify.fit import COMPILATION, Fit, Report, final_state, run_fit
from jaxmb.identify.identifiability import Knowledge, correlation, knowledge
from jaxmb.identify.misfit import misfit_remarks
from jaxmb.identify.modal_agreement import (
    ModalAgreement,
    agreement_metrics,
    modal_agreements,
    unmatched_metrics,
    unmatched_remark,
)
from jaxmb.identify.parameters import unit
from jaxmb.identify.remarks import on_bound, prior_size, remarks, undamped
from jaxmb.identify.residual_noise import log_error, noise_factor, row_variances
from jaxmb.identify.result import Mode, Parameter, Result, evaluations
from jaxmb.identify.stage import objective
from jaxmb.identify.study import Study
from jaxmb.machine.build import Model, machine_of
from jaxmb.response.modal import Modes, modes

CONVERGED_SLOPE = 1e-6
"""Cosine between the residual and a movable column of the Jacobian below which the fit is at a minimum."""


def identify(
    study: Study,
    seed: int = 0,
    state_file: Path | None = None,
    resume: bool = False,
    report: Callable[[Report], None] | None = None,
) -> Result:
    """Identify the free parameters of a study.

    Args:
        study: from `load_study`.
        seed: seed of search and starts; the same seed gives the same result.
        state_file: where the state of the fit is saved every few seconds.
        resume: take up the saved state, to the same answer as if it had never stopped.
        report: called with the progress while it runs.

    Returns:
        Values with standard deviations, modes, history, and the identified machine. Its status says whether the fit
        came to a minimum.

    Raises:
        InputError: the saved state does not belong to this study and seed.
    """
    result = _identify(study, seed, state_file, resume, report)
    return dataclasses.replace(result, remarks=(study.note, *result.remarks)) if study.note else result


def _identify(
    study: Study, seed: int, state_file: Path | None, resume: bool, report: Callable[[Report], None] | None
) -> Result:
    if study.deflections:
        from jaxmb.identify.elastostatic.complete_outcome import identify_complete
        from jaxmb.identify.elastostatic.outcome import identify_deflections  # which imports what is beside this

        with threadpool_limits(1, user_api="blas"):
            return identify_deflections(study, seed) if study.complete is None else identify_complete(study, seed)
    # The matrices are small: more threads in LAPACK only wait for each other, a hundred times longer on a busy machine.
    with threadpool_limits(1, user_api="blas"):
        began = time.monotonic()
        fit = run_fit(study, seed, state_file, resume, report)
        fitted = COMPILATION.seconds
        result = _result(study, seed, fit)
        # What a resumed run did before it was interrupted is in the parts, and so in the total.
        parts = {
            "compile": fit.compile_seconds + COMPILATION.seconds - fitted,
            "search": fit.search_seconds,
            "refine": fit.refine_seconds,
        }
        total = max(time.monotonic() - began, sum(parts.values()))
        return dataclasses.replace(result, seconds={"total": total, **parts})


def _result(study: Study, seed: int, fit: Fit) -> Result:
    problem = study.problem
    if fit.best_u is None or fit.initial_u is None:
        raise ValueError(f"study '{study.name}': no start has a finite cost")
    u = jnp.asarray(fit.best_u)
    residual, jacobian, row_weights = (np.asarray(x) for x in final_state(problem, u))
    variances = row_variances(study, residual, row_weights)
    known = knowledge(jacobian, variances, _prior_std(study))
    # exp(log(bound)) may differ from the bound in the last digit.
    values = np.clip(study.free.values(fit.best_u), study.free.lower_value, study.free.upper_value)
    initial = np.clip(study.free.values(fit.initial_u), study.free.lower_value, study.free.upper_value)
    bound = on_bound(study, np.asarray(u))
    model = study.free.apply(study.model, jnp.asarray(values))
    scenes = [scene(test, model) for test in study.tests]
    agreements = modal_agreements(study, scenes, model)
    known, doubts = ambiguity(study, fit, known, residual, variances, agreements)
    metrics = _metrics(study, values, scenes, agreements, residual, row_weights)
    noise = float(problem.noise_unit)
    cost = noise**2 * float(np.sum(residual[: residual.size - prior_size(study)] ** 2))
    machine = machine_of(study.machine, model)
    return Result(
        study=study,
        status=_status(study, fit, residual, jacobian, bound, cost),
        seed=seed,
        cost=cost,
        initial_cost=float(objective(problem, jnp.asarray(fit.initial_u))) - _prior_part(study, fit.initial_u),
        parameters=_parameters(study, values, initial, known),
        modes=tuple(m for test, seen in zip(study.tests, scenes, strict=True) for m in _below_band(test, seen)),
        metrics=metrics,
        remarks=(
            *misfit_remarks(study, scenes, metrics.get("log_error", {}), undamped(study, bound)),
            *remarks(study, machine, fit, known, bound, jacobian),
            *(unmatched_remark(line) for line in metrics.get("unmatched_modes", ())),
            *doubts,
        ),
        correlation=correlation(known.covariance),
        singular_values=known.singular_values,
        model=model,
        machine=machine,
        evaluations=evaluations(fit),
        seconds={},
        history=fit.history,
    )


def _status(study: Study, fit: Fit, residual: np.ndarray, jacobian: np.ndarray, bound: np.ndarray, cost: float) -> str:
    if cost <= study.tolerance:
        return "converged"
    gradient = jacobian.T @ residual
    size = np.linalg.norm(jacobian, axis=0) * np.linalg.norm(residual)
    outwards = np.where(bound < 0, gradient > 0.0, np.where(bound > 0, gradient < 0.0, False))
    slope = np.where(outwards | (size == 0.0), 0.0, np.abs(gradient) / np.where(size == 0.0, 1.0, size))
    worst = int(np.argmax(slope))
    if slope[worst] <= CONVERGED_SLOPE:
        return "converged"
    return (
        f"not converged after {fit.round} rounds: the cost still falls along {study.free.names[worst]}"
        f" (slope cosine {slope[worst]:.1e}, expected at most {CONVERGED_SLOPE:.0e})"
    )


def _parameters(study: Study, values: np.ndarray, initial: np.ndarray, known: Knowledge) -> dict[str, Parameter]:
    found: dict[str, Parameter] = {}
    lower, upper = study.free.lower_value, study.free.upper_value
    for i, names in enumerate(study.free.tied):
        if study.free.logarithmic[i]:
            std_log, std = known.std[i], known.std[i] * values[i]
        else:
            std = known.std[i] * float(study.free.width[i])
            std_log = std / abs(values[i]) if values[i] != 0.0 else np.inf
        for name in names:
            found[name] = Parameter(
                float(values[i]), float(std), float(std_log), unit(study.model, name), float(lower[i]),
                float(upper[i]), float(initial[i]), known.verdict[i],
            )  # fmt: skip
    return found


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


def _below_band(test: Test, seen: Scene) -> list[Mode]:
    found, end = modes(seen.tangent), band_end_hz(test)
    columns = zip(found.frequency_hz, found.damped_frequency_hz, found.damping_ratio, strict=True)
    return [Mode(test.name, *(float(x) for x in row)) for row in columns if float(row[0]) <= end]


def _metrics(
    study: Study, values: np.ndarray, scenes: list[Scene], agreements: list[ModalAgreement | None],
    residual: np.ndarray, row_weights: np.ndarray,
) -> dict[str, Any]:  # fmt: skip
    metrics: dict[str, Any] = {}
    named = study.free.named(values)
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
            frequency, damping, share = (np.asarray(x) for x in predict_modes(test, seen))
            metrics.setdefault("measured_modes", []).extend(
                {
                    "posture": test.name,
                    "measured_frequency_hz": float(test.frequency_hz[m]),
                    "frequency_hz": float(frequency[m]),
                    "measured_damping_percent": 100.0 * float(test.damping_ratio[m]),
                    "damping_percent": 100.0 * float(damping[m]),
                    "content": [c for c, on in zip(study.model.coordinates, test.content[m], strict=True) if on],
                    "energy_share": float(share[m]),
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
    if study.problem.prior is not None:
        metrics["prior_log_std"] = {
            name: float(s) for name, s in zip(study.free.names, np.asarray(study.problem.prior.std), strict=True)
        }
    return metrics


def _prior_std(study: Study) -> np.ndarray | None:
    return None if study.problem.prior is None else np.asarray(study.problem.prior.std)


def _prior_part(study: Study, u: np.ndarray) -> float:
    """The prior's share of the objective at u."""
    prior = study.problem.prior
    if prior is None:
        return 0.0
    errors = (u - np.asarray(prior.mean)) / np.asarray(prior.std) * float(study.problem.noise_unit)
    return float(errors @ errors)


def initial_model(result: Result) -> Model:
    """The machine at the initial values of the free parameters."""
    study = result.study
    values = [result.parameters[name].initial for name in study.free.names]
    return study.free.apply(study.model, jnp.asarray(values))
