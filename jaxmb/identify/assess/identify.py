"""Identification of a study's parameters, from the fit to what a user wants to know of it."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from threadpoolctl import threadpool_limits

from jaxmb.identify.assess.ambiguity import ambiguity, not_held_back
from jaxmb.identify.assess.deflections.outcome import identify_deflections
from jaxmb.identify.assess.deflections.remarks import assumed_remarks
from jaxmb.identify.assess.frf_misfit import misfit_remarks
from jaxmb.identify.assess.laws.law_choice import law_metrics
from jaxmb.identify.assess.laws.law_outcome import law_remarks
from jaxmb.identify.assess.metrics import band_end_hz, fit_metrics
from jaxmb.identify.assess.modal_agreement import modal_agreements, unmatched_remark
from jaxmb.identify.assess.one_model import one_model_metrics, one_model_remarks
from jaxmb.identify.assess.remarks import on_bound, prior_size, remarks, undamped
from jaxmb.identify.assess.result import Mode, Parameter, Result, evaluations
from jaxmb.identify.assess.stiffness_model.outcome import identify_complete
from jaxmb.identify.estimation.identifiability import (
    Knowledge,
    correlation,
    groups,
    groups_by_name,
    information_rows,
    knowledge,
)
from jaxmb.identify.experiments.motion import Scene, scene
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.loop import COMPILATION, Fit, Report, final_state, run_fit
from jaxmb.identify.fit.noise import row_variances
from jaxmb.identify.fit.noise_estimation import with_estimated_noise
from jaxmb.identify.fit.stage import objective
from jaxmb.identify.parameters.model_parameters import unit
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model, machine_of
from jaxmb.response.modal import modes

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
    if study.complete is not None or study.is_linear:
        with threadpool_limits(1, user_api="blas"):
            return identify_deflections(study, seed) if study.complete is None else identify_complete(study, seed)
    # The matrices are small: more threads in LAPACK only wait for each other, a hundred times longer on a busy machine.
    with threadpool_limits(1, user_api="blas"):
        began = time.monotonic()
        fit = run_fit(study, seed, state_file, resume, report)
        fitted = COMPILATION.seconds
        result = _result(*with_estimated_noise(study, fit), seed)
        # What a resumed run did before it was interrupted is in the parts, and so in the total.
        parts = {
            "compile": fit.compile_seconds + COMPILATION.seconds - fitted,
            "search": fit.search_seconds,
            "refine": fit.refine_seconds,
        }
        total = max(time.monotonic() - began, sum(parts.values()))
        return dataclasses.replace(result, seconds={"total": total, **parts})


def _result(study: Study, fit: Fit, seed: int) -> Result:
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
    known, pushed = not_held_back(study, known, bound, residual, jacobian)
    metrics = fit_metrics(study, np.asarray(u), model, scenes, agreements, residual, row_weights, known)
    metrics |= one_model_metrics(study, np.asarray(u), residual, jacobian, row_weights)
    found = groups(information_rows(jacobian, variances), _prior_std(study))
    metrics["known_together"] = groups_by_name(found, study.free.names)
    metrics |= law_metrics(study, np.asarray(u))
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
            *pushed,
            *assumed_remarks([group for group in study.deflections if group.role == "fit"]),
            *one_model_remarks(metrics),
            *law_remarks(metrics),
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


def _below_band(test: Test, seen: Scene) -> list[Mode]:
    found, end = modes(seen.tangent), band_end_hz(test)
    columns = zip(found.frequency_hz, found.damped_frequency_hz, found.damping_ratio, strict=True)
    return [Mode(test.name, *(float(x) for x in row)) for row in columns if float(row[0]) <= end]


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
