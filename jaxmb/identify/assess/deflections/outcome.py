"""Identification of a study of deflection tests, from the linear fit to what a user wants to know of it."""

import time
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from pydantic import ValidationError

from jaxmb.identify.assess.deflections.known import knowledge_of, start_of, value_remarks
from jaxmb.identify.assess.deflections.misfit import misfit_remarks
from jaxmb.identify.assess.deflections.monte_carlo import Convergence, MonteCarlo, convergence, monte_carlo
from jaxmb.identify.assess.deflections.prediction_errors import deflection_metrics
from jaxmb.identify.assess.deflections.remarks import assumed_remarks, clipped_remarks, size_remarks, spring_remarks
from jaxmb.identify.assess.deflections.solve import (
    DeflectionFit,
    Equations,
    Unknowns,
    check_equations,
    check_postures,
    equations,
    fit_deflections,
    unknowns,
)
from jaxmb.identify.assess.deflections.wrong_units import bound_remarks, factor_remarks, unexplained
from jaxmb.identify.assess.result import Parameter, Result
from jaxmb.identify.estimation.identifiability import Knowledge, correlation
from jaxmb.identify.experiments.load_cases import check_tests
from jaxmb.identify.parameters.model_parameters import unit as unit_of
from jaxmb.identify.study.reading.deflections import DeflectionSet, sets_told
from jaxmb.identify.study.reading.frf import called
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import place, sentence
from jaxmb.machine.build import machine_of
from jaxmb.machine.schema import Machine


def identify_deflections(study: Study, seed: int = 0) -> Result:
    """Identify stiffnesses and compliances from the deflection tests of a study, in one linear step.

    Args:
        study: from `load_study`, its tests of kind "deflection".
        seed: of the random orders of tests in `metrics.convergence`, and of the Monte-Carlo draws.

    Raises:
        ValueError: the tests cannot tell what is to be found.
        NotImplementedError: see `unknowns`.
    """
    began = time.monotonic()
    fitted_sets = [group for group in study.deflections if group.role == "fit"]
    with place(f"study '{study.name}'"):
        found, rows = _plan(study, fitted_sets)
    robust = any(group.robust for group in fitted_sets)
    start = start_of(study)
    fit = fit_deflections(found, rows, start, robust)
    known = knowledge_of(fit, rows)
    # 1 / (1 / k) is not always k
    values = np.where(fit.unloaded, start, found.values(fit.compliance))
    model = study.free.apply(study.model, jnp.asarray(values))
    solved = time.monotonic()
    settled = convergence(found, rows, start, seed, robust)
    draws = max((g.instruments.draws for g in fitted_sets if g.instruments is not None), default=0)
    drawn = monte_carlo(model, found, fitted_sets, start, draws, seed) if draws > 1 else None
    machine = machine_of(study.machine, model)
    return Result(
        study=study,
        status="converged",
        seed=seed,
        cost=fit.cost,
        initial_cost=_cost(rows, found.compliance(start), fit),
        parameters=_parameters(study, known, values, start),
        modes=(),
        metrics=_metrics(study, fit, known, values, settled, drawn),
        remarks=(
            # what is grossly wrong first: nothing else is worth reading then
            *factor_remarks(fitted_sets, unexplained(study.model, found, start)),
            *bound_remarks(found, values, np.isfinite(fit.known.std)),
            *size_remarks(fitted_sets),
            *misfit_remarks(fit.cost, rows.weight, fit.robust_weight, int(np.isfinite(fit.known.std).sum())),
            *_impossible(machine),
            *value_remarks(study, start, found, fit, known),
            *spring_remarks(machine),
            *clipped_remarks(study.free.names, drawn),
            *assumed_remarks(fitted_sets),
        ),
        correlation=correlation(fit.known.covariance),
        singular_values=fit.known.singular_values,
        model=model,
        machine=machine,
        evaluations={"search": 0, "refine": 1, "non_finite": 0},
        seconds={
            "total": time.monotonic() - began,
            "compile": 0.0,
            "search": time.monotonic() - solved,
            "refine": solved - began,
        },
        history=[(1, fit.cost)],
    )


def _cost(rows: Equations, compliance: np.ndarray, fit: DeflectionFit) -> float:
    residual = (rows.displacement - rows.matrix @ compliance) / rows.std
    return float(np.sum(rows.weight * fit.robust_weight * residual**2))


def _plan(study: Study, sets: Sequence[DeflectionSet]) -> tuple[Unknowns, Equations]:
    """What is to be found, and the equations of the tests, checked."""
    with place("[free]"):
        found = unknowns(study.model, study.free)
    for group in sets:
        with place(called(group.name)):
            check_tests(study.model, group.tests)
            check_postures(study.model, group.tests)
    rows = equations(study.model, found, sets)
    with place(sets_told(sets)):
        check_equations(found, [test for group in sets for test in group.tests], rows)
    return found, rows


def _parameters(study: Study, known: Knowledge, values: np.ndarray, start: np.ndarray) -> dict[str, Parameter]:
    free, found = study.free, {}
    for i, names in enumerate(free.tied):
        value, std_u = float(values[i]), float(known.std[i])
        if free.logarithmic[i]:
            std, std_log = std_u * value, std_u
        else:
            std = std_u * free.width[i]
            std_log = std / abs(value) if value != 0.0 else np.inf
        for name in names:
            found[name] = Parameter(
                value, std, std_log, unit_of(study.model, name), free.lower_value[i], free.upper_value[i],
                float(start[i]), known.verdict[i],
            )  # fmt: skip
    return found


def _impossible(machine: Machine) -> list[str]:
    try:
        Machine.model_validate(machine.model_dump())
    except ValidationError as error:
        return [f"no such machine can exist, and its file cannot be read back: {sentence(error, {}, Machine)}"]
    return []


def _metrics(
    study: Study,
    fit: DeflectionFit,
    known: Knowledge,
    values: np.ndarray,
    settled: Convergence,
    drawn: MonteCarlo | None,
) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    named = study.free.named(values)
    untold = {n for names, lost in zip(study.free.tied, fit.unloaded, strict=True) if lost for n in names}
    errors = {n: named[n] / true - 1.0 for n, true in study.truth.items() if true != 0.0 and n not in untold}
    if errors:
        metrics["parameter_error"] = errors
        metrics["largest_parameter_error"] = max(abs(e) for e in errors.values())
    metrics |= deflection_metrics(study, study.free.encode(values), known)
    metrics["table2"] = _table2(study, fit, values, drawn)
    metrics["convergence"] = _convergence(study, settled)
    return metrics


def _table2(study: Study, fit: DeflectionFit, values: np.ndarray, drawn: MonteCarlo | None) -> list[dict[str, Any]]:
    rows = []
    for i, (name, value) in enumerate(zip(study.free.names, values, strict=True)):
        known = bool(np.isfinite(fit.known.std[i]))
        scale = value if study.free.logarithmic[i] else study.free.width[i]
        # of the instruments alone, as the draws are: not widened for a misfit
        linear = float("inf") if fit.on_bound[i] else float(fit.known.std[i] * scale)
        error = float(drawn.std[i]) if drawn is not None else np.nan
        rows.append({
            "parameter": name,
            "value": float(value) if known else None,
            "error": error,
            "percent": 100.0 * error / abs(value) if value != 0.0 else np.nan,
            "linear_error": linear,
            "linear_percent": 100.0 * linear / abs(value) if value != 0.0 else np.nan,
            "draws": 0 if drawn is None else len(drawn.values),
            "clipped": 0 if drawn is None else int(drawn.clipped[i]),
        })  # fmt: skip
    return rows


def _convergence(study: Study, settled: Convergence) -> dict[str, Any]:
    """Median and central 90 % of each value, by number of tests, over the orders that determine it."""
    told: dict[str, Any] = {"tests": settled.counts, "orders": len(settled.values)}
    for i, name in enumerate(study.free.names):
        by_count = settled.values[:, :, i].T
        # All orders must tell a value, or the spread would be that of the lucky ones.
        whole = np.isfinite(by_count).all(axis=1)
        bands = np.full((3, len(settled.counts)), np.nan)
        bands[:, whole] = np.quantile(by_count[whole], (0.05, 0.5, 0.95), axis=1)
        told[name] = {"lower": bands[0], "median": bands[1], "upper": bands[2]}
    return told
