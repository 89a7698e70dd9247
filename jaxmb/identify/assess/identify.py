"""Identification of a study: estimate by search or by a linear step, then its assessment as a result; standard
deviations, diagnosis and status of a search."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from jaxmb.identify.assess.budget import parameter_budgets, tolerance_checks
from jaxmb.identify.assess.estimate import Diagnosis, Estimate, Solution, SolverHistory, goodness_of_fit, jackknife_std
from jaxmb.identify.assess.kinds import fit_metrics, kind_remarks, with_systematic_errors
from jaxmb.identify.assess.laws.law_choice import chosen_laws, law_remarks, unsettled_laws
from jaxmb.identify.assess.laws.one_model import one_model, one_model_text
from jaxmb.identify.assess.linear_estimate import diagnosed_linear, linear_estimate, linear_status
from jaxmb.identify.assess.metrics import Metrics
from jaxmb.identify.assess.model_errors import model_errors, model_errors_text, with_hypotheses
from jaxmb.identify.assess.remarks import (
    UNKNOWN,
    bound_remarks,
    data_remarks,
    exceeded_remarks,
    excess_remarks,
    gross_remarks,
    machine_remarks,
    on_bound,
    prior_remarks,
    search_remarks,
    tolerance_remarks,
    unmatched_remarks,
)
from jaxmb.identify.assess.result import Mode, Outcome, Result, ended_text, found_parameters
from jaxmb.identify.assess.stiffness_model import assess_stiffness, stiffness_estimate
from jaxmb.identify.assess.uncertainty.nonlinear import ambiguity, mode_deviations, not_bound_limited, with_curvature
from jaxmb.identify.estimation.identifiability import (
    correlation,
    groups,
    groups_by_name,
    identifiability,
    information_rows,
)
from jaxmb.identify.experiments.motion import PostureTest
from jaxmb.identify.fit.loop import COMPILATION, Report, run_fit
from jaxmb.identify.fit.noise import refitted_ends, row_variances, weights_tests, with_estimated_noise
from jaxmb.identify.fit.problem import compressed, is_large, linearized, objective_at, residual_at, with_tests
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.fit.two_steps import two_step_fit
from jaxmb.identify.study.study import Solver, Study
from jaxmb.io.validation import display_name, warnings_as_remarks
from jaxmb.machine.build import Model
from jaxmb.response.modal import modes, select_modes

MOST_PASSES = 10
"""Largest number of linearizations of tests about the fitted machine."""
SETTLED = 0.05
"""Change of the values in the last of them, in standard deviations, at convergence."""
UNSETTLED = (
    f"values still move after {MOST_PASSES} linearizations about the fitted machine: the deflection of gears (torque"
    " tests) or the effect of errors of loads and postures (deflection tests) is not consistent with them"
)
RIGID = "the deflection of gears, or the effect of errors of loads and postures, is not that of the values found"


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
        state_file: file in which the state of the fit is saved every few seconds; not used for linear studies.
        resume: continue from the saved state, with the same result as without interruption.
        report: called with the progress; for linear studies once, at the end.

    Returns:
        Values with standard deviations, modes, history, and the identified machine. Its status reports whether the fit
        converged.

    Raises:
        InputError: the saved state does not belong to this study and seed.
    """
    # The matrices are small: on a busy machine several LAPACK threads take up to a hundred times longer than one.
    with threadpool_limits(1, user_api="blas"), warnings_as_remarks() as warned:
        if study.solver.is_linear:
            result = _by_linear_step(study, seed)
        else:
            result = _by_search(study, seed, state_file, resume, report)
    if report is not None and study.solver.is_linear:
        report(Report(1, 1, "linear step", 1, result.cost))
    read = study.read_seconds
    seconds = result.seconds | {"total": read + result.seconds["total"], "read": read}
    remarks = dict.fromkeys([*([study.note] if study.note else []), *result.remarks, *warned])
    return dataclasses.replace(result, seconds=seconds, remarks=tuple(remarks))


def _by_search(
    study: Study, seed: int, state_file: Path | None, resume: bool, report: Callable[[Report], None] | None
) -> Result:
    began = time.monotonic()
    run = study.problem, study.settings, study.start, seed, state_file, resume, report
    if study.solver is Solver.TWO_STEPS:
        (fit, information), sentences = two_step_fit(*run), []
        fitted = COMPILATION.seconds
    else:
        fit, information = run_fit(*run), None
        fitted = COMPILATION.seconds
        study, fit, doubts = _refined_about(study, fit) if study.relinearized else (study, fit, [])
        problem, fit, sentences = with_estimated_noise(study.problem, fit)
        study, sentences = study.with_problem(problem), [*doubts, *sentences]
    result = assess(search_estimate(study, fit, seed, tuple(sentences), information))
    # The parts, and so the total, include the time of a run before it was interrupted.
    parts = {
        "compile": fit.compile_seconds + COMPILATION.seconds - fitted,
        "search": fit.search_seconds,
        "refine": fit.refine_seconds,
    }
    total = max(time.monotonic() - began, sum(parts.values()))
    return dataclasses.replace(result, seconds={"total": total, **parts})


def _by_linear_step(study: Study, seed: int) -> Result:
    """Result of a linear step, repeated until convergence where tests are linearized about the identified machine."""
    began, doubts = time.monotonic(), list[str]()
    solve = stiffness_estimate if study.solver is Solver.STIFFNESS_MODEL else linear_estimate
    estimate = solve(study, seed)
    if study.relinearized:

        def refit(about: Study) -> tuple[Model, bool]:
            nonlocal estimate
            before, estimate = estimate, solve(about, seed)
            return estimate.model, bool(np.all(np.abs(estimate.u - before.u) <= SETTLED * estimate.std))

        _, doubts = _relinearized(study, estimate.model, refit)
    solved = time.monotonic()
    result = assess(estimate) if isinstance(estimate, Estimate) else assess_stiffness(estimate)
    now = time.monotonic()
    seconds = {"total": now - began, "compile": 0.0, "search": now - solved, "refine": solved - began}
    return dataclasses.replace(
        result, seconds=seconds, remarks=(*doubts, *result.remarks), doubts=(*doubts, *result.doubts)
    )


def _relinearized(study: Study, model: Model, refit: Callable[[Study], tuple[Model, bool]]) -> tuple[Study, list[str]]:
    """The study with its tests linearized about the identified machine, and a sentence where that did not converge.

    Args:
        study: with tests linearized about another machine.
        model: of the machine identified with them.
        refit: identified model of a study, and whether it agrees with the one before.
    """
    for _ in range(MOST_PASSES):
        try:
            study = study.about(model)
        except ValueError as error:
            return study, [f"{RIGID}: {error}"]
        model, converged = refit(study)
        if converged:
            return study, []
    return study, [UNSETTLED]


def _refined_about(study: Study, fit: Fit) -> tuple[Study, Fit, list[str]]:
    """The fit with tests linearized about the identified machine, starting from a fit with rigid gears."""
    free, u = study.free, fit.best_u
    if u is None:
        return study, fit, []

    def refit(about: Study) -> tuple[Model, bool]:
        nonlocal u, fit
        state = least_squares_from(about.problem, about.problem.box, jax.device_put(u))
        found = np.asarray(state.u)
        change, u = float(np.linalg.norm(compressed(about.problem, found)[1] @ (found - u))), found
        fit = dataclasses.replace(fit, refine_evaluations=fit.refine_evaluations + int(state.evaluations))
        return free.apply(study.model, free.values(u)), change <= SETTLED

    study, doubts = _relinearized(study, free.apply(study.model, free.values(u)), refit)
    # other minima are refitted to the same equations, so that they can be compared with this one
    ends, _ = refitted_ends(study.problem, fit)
    return study, dataclasses.replace(fit, best=objective_at(study.problem, u), best_u=u, ends=ends), doubts


def assess(estimate: Estimate) -> Result:
    """Result of an estimate: uncertainties, diagnosis, metrics and remarks, the same way for every solver.

    Args:
        estimate: from `search_estimate` or `linear_estimate`.
    """
    plain, study, solver = estimate.known.verdict, estimate.study, estimate.solver
    found = diagnosed_linear(estimate) if solver.fit is None else diagnosed_search(estimate, solver.fit)
    goodness = estimate.goodness
    estimate = found.estimate.unknown if goodness.not_reproduced else found.estimate
    budgets = None
    if goodness.budget is not None:
        slope = study.free.slope(estimate.values)
        budgets = parameter_budgets(goodness.budget, study.free, estimate.std, slope) or None
        estimate = estimate.with_added(goodness.budget.covariance)
    rows = solver.information
    if rows is None:
        rows = information_rows(estimate.jacobian, solver.variances)
    known_together = groups_by_name(groups(rows, estimate.known.prior_std), study.free.names)
    metrics = dataclasses.replace(
        fit_metrics(estimate),
        known_together=known_together,
        uncertainty=budgets,
        tolerance_checks=None if goodness.budget is None else tolerance_checks(goodness.budget),
        tolerated=goodness.misfit_tolerated,
        **found.metrics,
    )
    machine = study.machine_with(estimate.model)
    causes, others = kind_remarks(estimate, metrics)
    # An error that linear equations explain may be one of many; the usual causes stay beside it.
    gross = gross_remarks(estimate)
    if found.hypothesis:
        likely = [found.hypothesis, *(gross if solver.fit is None else [])]
    else:
        likely = [*gross, *causes, *found.causes]
    misfit = excess_remarks(goodness.excess, goodness.systematic, likely)
    unknown = [UNKNOWN] if goodness.not_reproduced else []
    # What does not reproduce the data is no small error: its attribution to a tolerance would mislead.
    exceeded = [] if goodness.not_reproduced else exceeded_remarks(goodness.budget, study.tolerances)
    doubts = (*misfit, *others, *unknown, *found.doubts, *exceeded, *machine_remarks(machine))
    ended = ended_text(goodness.missed, found.wrong, plain, estimate.known.verdict, doubts)
    if solver.fit is not None:
        status = search_status(estimate, solver.fit, ended)
    else:
        status = linear_status([] if estimate.linear is None else [estimate.linear.step], ended)
    return Result(
        study=_with_noise(study, metrics),
        status=status,
        seed=estimate.seed,
        cost=solver.cost,
        initial_cost=solver.initial_cost,
        parameters=found_parameters(study, estimate.values, solver.initial, estimate.known),
        modes=_modes(estimate, rows),
        metrics=metrics,
        remarks=(
            *doubts,
            *tolerance_remarks(estimate),
            *data_remarks(study),
            *found.remarks,
            *prior_remarks(estimate),
            *law_remarks(metrics.laws),
        ),
        doubts=doubts,
        correlation=correlation(estimate.known.covariance),
        singular_values=estimate.known.singular_values,
        model=estimate.model,
        machine=machine,
        evaluations=solver.evaluations,
        seconds={},
        history=solver.history,
    )


def _with_noise(study: Study, metrics: Metrics) -> Study:
    """The study with its noise as estimated, also where that has no effect on the fit."""
    levels = {name: level for own in metrics.tests.values() for name, level in own.noise_levels.items()}
    tests = [
        test.noise.with_nominal(level) if level > 0.0 and not weights_tests(study.problem, test) else test
        for test in study.tests
        for level in [levels.get(test.name, 0.0)]
    ]
    return study.with_problem(with_tests(study.problem, tests))


def _modes(estimate: Estimate, rows: np.ndarray) -> tuple[Mode, ...]:
    """Modes of the identified machine below the end of each test's band; `rows` is the information about u."""
    study, lines = estimate.study, []
    for entry, view, _ in estimate.of(study.fitted):
        test = entry.test
        if isinstance(test, PostureTest):
            tangent = test.vibration.tangent(view)
            found = jax.tree.map(np.asarray, modes(tangent))
            found = select_modes(found, found.frequency_hz <= test.vibration.band_end_hz)
            std = mode_deviations(test, study.model, study.free, estimate.u, tangent, found, rows)
            columns = (found.frequency_hz, found.damped_frequency_hz, found.damping_ratio, *std.T)
            lines += [Mode(entry.name, *row) for row in np.array(columns).T.tolist()]
    return tuple(lines)


CONVERGED_SLOPE = 1e-6
"""Cosine between the residual and a column of the Jacobian, of a parameter not limited by a bound, below which the fit
has converged."""
CONVERGED_CHI2 = 1e-2
"""Largest predicted decrease of chi-square, over its mean for a row, at convergence with noisy data: a tenth of a
standard deviation."""
NOT_SEARCHED = "errors in the description were not searched for: the Jacobian is too large for the memory"
NOISY = 0.1
"""Mean square of the residual, in units of the stated noise, above which data count as noisy."""


def search_estimate(
    study: Study, fit: Fit, seed: int, doubts: tuple[str, ...] = (), information: np.ndarray | None = None
) -> Estimate:
    """Estimate of a finished fit, with the standard deviations of its Jacobian.

    Args:
        study: with the noise as estimated in the fit.
        fit: the finished fit.
        seed: of the fit.
        doubts: sentences on noise and convergence.
        information: about u, for a fit that is not at the minimum of the cost.

    Raises:
        ValueError: no start has a finite cost.
    """
    if fit.best_u is None or fit.initial_u is None:
        raise ValueError(f"study '{study.name}': no start has a finite cost{_impossible(study)}")
    study = study.at_values(study.free.values(fit.best_u))
    problem, free = study.problem, study.free
    residual, jacobian, row_weights = linearized(problem, fit.best_u)
    # exp(log(bound)) may differ from the bound in the last digit.
    values, initial = (np.clip(free.values(u), free.lower_value, free.upper_value) for u in (fit.best_u, fit.initial_u))
    model = free.apply(study.model, values)
    point = residual, jacobian, row_weights
    solution = Solution(study, seed, fit.best_u, model, tuple(test.view(model) for test in study.tests), *point)
    goodness, unit = goodness_of_fit(solution), float(problem.noise_unit) ** 2
    variances = row_variances(problem, *point, goodness.tolerated)
    rows = (jacobian, variances) if information is None else (information, np.ones(len(information)))
    return Estimate(
        **vars(solution),
        values=values,
        known=identifiability(*rows, problem.prior_std, study.free.needed),
        goodness=goodness,
        solver=SolverHistory(
            initial=initial,
            cost=unit * float(np.sum(residual[: problem.data_rows] ** 2)),
            initial_cost=unit * float(np.sum(residual_at(problem, fit.initial_u)[: problem.data_rows] ** 2)),
            variances=variances,
            evaluations={
                "search": fit.search_evaluations,
                "population": fit.population_evaluations,
                "refine": fit.refine_evaluations,
                "non_finite": fit.non_finite,
            },
            history=fit.history,
            doubts=doubts,
            fit=fit,
            information=information,
        ),
    )


def _impossible(study: Study) -> str:
    """Text on responses of the initial machine with which no data can be compared; empty where there are none."""
    found = [
        f"{display_name(test.name)}: {what}"
        for test in study.tests
        if test.lines is not None
        for what in test.lines.undefined(test.view(study.model))
    ]
    return ": in the initial model " + "; ".join(found) + ", exclude it from the test" if found else ""


def diagnosed_search(estimate: Estimate, fit: Fit) -> Diagnosis:
    """Diagnosis of a fit: other minima, curvature, bounds, model-error hypotheses, one model for all tests.

    Args:
        estimate: from `search_estimate`.
        fit: the finished fit.
    """
    solver, goodness, ambiguous = estimate.solver, estimate.goodness, list[str]()
    if solver.information is None:
        estimate, ambiguous = ambiguity(estimate, fit, solver.variances)
        estimate = with_curvature(estimate)
    estimate, bounded = not_bound_limited(estimate)
    estimate, systematic = with_systematic_errors(estimate)
    (hypotheses, springs), agreed = model_errors(estimate), one_model(estimate)
    if agreed is not None and agreed.is_consistent and goodness.not_reproduced:
        agreed = None
    if goodness.misfit_tolerated:  # errors of the description of single tests are no disagreement on a parameter
        agreed = None
    apart = agreed is not None and not agreed.is_consistent
    wrong = bool(goodness.not_reproduced or goodness.is_inconsistent or goodness.systematic or hypotheses or apart)
    if wrong and not is_large(estimate.study.problem):
        estimate = estimate.with_std(np.maximum(estimate.std, jackknife_std(estimate)))
    estimate = with_hypotheses(estimate, hypotheses)
    excess = goodness.excess is not None and not goodness.excess.explained
    laws = chosen_laws(estimate.unknown if goodness.not_reproduced else estimate)
    return Diagnosis(
        estimate=estimate,
        wrong=wrong,
        doubts=(
            *solver.doubts,
            *bounded,
            *([] if goodness.not_reproduced else (*ambiguous, *unmatched_remarks(estimate))),
            *unsettled_laws(laws),
        ),
        remarks=(
            *search_remarks(estimate.study, fit),
            *([NOT_SEARCHED] if (wrong or excess) and is_large(estimate.study.problem) else []),
            *(bound_remarks(estimate, fit.initial_u) if fit.initial_u is not None else ()),
            *systematic,
        ),
        causes=[text for text in (one_model_text(agreed),) if text],
        hypothesis=model_errors_text(hypotheses),
        metrics={
            "one_model": agreed,
            "model_errors": hypotheses or None,
            "further_springs": springs or None,
            "laws": laws,
        },
    )


def search_status(estimate: Estimate, fit: Fit, ended: str) -> str:
    """Status of a fit: `ended` if it converged."""
    if estimate.solver.cost <= estimate.study.settings.tolerance:
        return ended
    if estimate.solver.information is not None and fit.converged:
        return ended
    (residual, jacobian), bound = estimate.compressed, on_bound(estimate.study, estimate.u)
    gradient = jacobian.T @ residual
    size = np.linalg.norm(jacobian, axis=0) * np.linalg.norm(residual)
    outwards = np.where(bound < 0, gradient > 0.0, np.where(bound > 0, gradient < 0.0, False))
    slope = np.where(outwards | (size == 0.0), 0.0, np.abs(gradient) / np.where(size == 0.0, 1.0, size))
    # Without noise the rounding of the parameters determines the slope.
    of_digits = np.abs(jacobian.T @ jacobian) @ (2.0 * np.finfo(float).eps * np.maximum(np.abs(estimate.u), 1.0))
    slope = np.where(np.abs(gradient) <= of_digits, 0.0, slope)
    worst = int(np.argmax(slope))
    noisy = float(residual @ residual) >= NOISY * estimate.residual.size
    if slope[worst] <= CONVERGED_SLOPE or (noisy and slope[worst] ** 2 * estimate.residual.size <= CONVERGED_CHI2):
        return ended
    return (
        f"{Outcome.NOT_CONVERGED} after {fit.round} rounds: the cost still falls along"
        f" {estimate.study.free.names[worst]} (slope cosine {slope[worst]:.1e}, expected at most {CONVERGED_SLOPE:.0e})"
    )
