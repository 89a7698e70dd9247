"""Identification of a study: estimate by search or by a linear step, then its assessment as a result; standard
deviations, diagnosis and status of a search."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path

import jax
import numpy as np
from jaxtyping import Float
from scipy.special import chdtri
from threadpoolctl import threadpool_limits

from jaxmb.identify.assess.budget import DescribedTests, error_columns, parameter_budgets, tolerance_checks
from jaxmb.identify.assess.estimate import (
    CovarianceWithErrors,
    Diagnosis,
    Estimate,
    LinearSystem,
    Solution,
    SolverRun,
    goodness_of_fit,
    with_jackknife,
)
from jaxmb.identify.assess.hypotheses import Whitening
from jaxmb.identify.assess.kinds import fit_metrics, kind_remarks, with_systematic_errors
from jaxmb.identify.assess.laws.law_choice import chosen_laws, law_remarks, unconverged_laws
from jaxmb.identify.assess.laws.one_model import one_model, one_model_text
from jaxmb.identify.assess.linear_estimate import (
    diagnosed_linear,
    errors_of_linear_tests,
    linear_estimate,
    linear_solution,
    linear_status,
)
from jaxmb.identify.assess.metrics import Metrics
from jaxmb.identify.assess.model_errors import (
    Explanations,
    explain_all,
    is_of_tests,
    model_errors,
    model_errors_text,
    most_likely_errors,
    with_hypotheses,
)
from jaxmb.identify.assess.remarks import (
    IN_TWO_STEPS,
    INFLATED,
    NO_STD,
    NOT_LINEARIZED,
    NOT_PROPAGATED,
    bound_remarks,
    data_remarks,
    exceeded_remarks,
    grouped,
    machine_remarks,
    misfit_remarks,
    prior_remarks,
    search_remarks,
    tolerance_remarks,
    unmatched_remarks,
)
from jaxmb.identify.assess.result import Mode, Outcome, Result, converged_status, identified_parameters
from jaxmb.identify.assess.stiffness_model import assess_stiffness, stiffness_estimate
from jaxmb.identify.assess.uncertainty.nonlinear import (
    mode_std,
    with_ambiguity,
    with_bound_limits,
    with_curvature,
)
from jaxmb.identify.estimation.identifiability import (
    correlation,
    groups,
    groups_by_name,
    identifiability,
    information_rows,
    without_rounding,
)
from jaxmb.identify.experiments.machine_errors import with_machine_errors
from jaxmb.identify.experiments.test import Entry, Test, residual_of_test
from jaxmb.identify.fit.loop import COMPILATION, Report, run_fit
from jaxmb.identify.fit.noise import (
    FALSE_ALARM,
    noise_correlation_length,
    refitted_ends,
    row_variances,
    weights_tests,
    with_estimated_noise,
)
from jaxmb.identify.fit.problem import (
    compressed,
    is_large,
    linearized,
    objective_at,
    residual_at,
    state_of_test,
    with_tests,
)
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.fit.two_steps import two_step_fit
from jaxmb.identify.study.study import Solver, Study
from jaxmb.io.validation import display_name, error_location, typed_arguments, warnings_as_remarks
from jaxmb.linalg.responses import FEW
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.tangent import Tangent
from jaxmb.response.modal import possible_modes, select_modes

MOST_PASSES = 10
"""Largest number of linearizations of tests about the fitted machine."""
LARGEST_LAST_STEP = 0.05
"""Largest change of the values in the last linearization, in standard deviations, at convergence."""
ERROR_STEP = 1e-3
"""Step of derivatives by an error of the machine, in its likely sizes."""


@typed_arguments
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
        ValueError: the tests of a linear study do not determine its parameters, no start of a search has a finite cost,
            or [laws] does not suit the tests (`law_terms`).
        NotImplementedError: as of `law_terms`.
    """
    # The matrices are small: on a busy machine several LAPACK threads take up to a hundred times longer than one.
    with threadpool_limits(1, user_api="blas"), warnings_as_remarks() as warned:
        result = (
            _fit_by_linear_step(study, seed)
            if study.solver.is_linear
            else _fit_by_search(study, seed, state_file, resume, report)
        )
    if report is not None and study.solver.is_linear:
        report(Report(1, 1, "linear step", 1, result.cost))
    timed = {"total": study.read_seconds + result.seconds["total"], "read": study.read_seconds}
    remarks = dict.fromkeys([*([study.note] if study.note else []), *result.remarks, *warned])
    return dataclasses.replace(result, seconds=result.seconds | timed, remarks=tuple(remarks))


def _fit_by_search(
    study: Study, seed: int, state_file: Path | None, resume: bool, report: Callable[[Report], None] | None
) -> Result:
    began = time.monotonic()
    arguments = study.problem, study.settings, study.start, seed, state_file, resume, report
    fit, information = two_step_fit(*arguments) if study.solver is Solver.TWO_STEPS else (run_fit(*arguments), None)
    compiled_before, sentences = COMPILATION.seconds, list[str]()
    if information is None:
        study, fit, doubts = _refit_linearized(study, fit) if study.relinearized else (study, fit, [])
        problem, fit, sentences = with_estimated_noise(study.problem, fit)
        study, sentences = study.with_problem(problem), [*doubts, *sentences]
    if report is not None:
        evaluations = fit.search_evaluations + fit.refine_evaluations
        report(Report(fit.round, study.settings.rounds, "assessment", evaluations, fit.best))
    result = assess(search_estimate(study, fit, seed, tuple(sentences), information))
    # The parts, and so the total, include the time of a run before it was interrupted.
    parts = {
        "compile": fit.compile_seconds + COMPILATION.seconds - compiled_before,
        "search": fit.search_seconds,
        "refine": fit.refine_seconds,
    }
    total = max(time.monotonic() - began, sum(parts.values()))
    return dataclasses.replace(result, seconds={"total": total, **parts})


def _fit_by_linear_step(study: Study, seed: int) -> Result:
    """Result of a linear step, repeated until convergence where tests are linearized about the identified machine."""
    began, doubts = time.monotonic(), list[str]()
    is_stiffness_model = study.solver is Solver.STIFFNESS_MODEL

    def solution(about: Study) -> tuple[np.ndarray, np.ndarray, Model]:
        if is_stiffness_model:
            found = stiffness_estimate(about, seed)
            return found.u, found.std, found.model
        found, system, _ = linear_solution(about, seed)
        return found.u, system.step.identifiability.std, found.model

    with error_location(f"study '{study.name}'"):
        if study.relinearized:
            u, _, model = solution(study)

            def refit(about: Study) -> tuple[Model, float]:
                nonlocal u
                before, (u, std, model) = u, solution(about)
                change = np.abs(u - before)
                unknown = np.where(change > 0.0, np.inf, 0.0)
                return model, float(np.max(np.divide(change, std, out=unknown, where=std > 0.0), initial=0.0))

            study, doubts = _iterate_linearization(study, model, refit)
        estimate = stiffness_estimate(study, seed) if is_stiffness_model else linear_estimate(study, seed)
    solved = time.monotonic()
    result = assess(estimate) if isinstance(estimate, Estimate) else assess_stiffness(estimate)
    seconds = {"total": time.monotonic() - began, "compile": 0.0, "search": 0.0, "refine": solved - began}
    return dataclasses.replace(
        result, seconds=seconds, remarks=(*doubts, *result.remarks), doubts=(*doubts, *result.doubts)
    )


def _iterate_linearization(
    study: Study, model: Model, refit: Callable[[Study], tuple[Model, float]]
) -> tuple[Study, list[str]]:
    """The study with its tests linearized about the identified machine, and a sentence where that did not converge.

    Args:
        study: with tests linearized about another machine.
        model: of the machine identified with them.
        refit: identified model of a study, and the change of its values from those before over the standard deviation.
    """
    change = 0.0
    for _ in range(MOST_PASSES):
        try:
            study = study.linearized_about(model)
        except ValueError as error:
            return study, [f"{NOT_LINEARIZED} the identified values: {error}"]
        model, change = refit(study)
        if change <= LARGEST_LAST_STEP:
            return study, []
    return study, [
        f"values still change by {change:.2g} standard deviations after {MOST_PASSES} linearizations about the fitted"
        " machine: the deflection of gears (torque tests; friction behind an elastic gear needs least_speed) or the"
        " effect of errors of loads and postures (deflection tests) is not consistent with them"
    ]


def _refit_linearized(study: Study, fit: Fit) -> tuple[Study, Fit, list[str]]:
    """The fit with tests linearized about the identified machine, starting from a fit with rigid gears."""
    free, u = study.free, fit.best_u
    if u is None:
        return study, fit, []

    def refit(about: Study) -> tuple[Model, float]:
        nonlocal u, fit
        state = least_squares_from(about.problem, about.problem.box, jax.device_put(u))
        found = np.asarray(state.u)
        change, u = float(np.linalg.norm(compressed(about.problem, found)[1] @ (found - u))), found
        fit = dataclasses.replace(fit, refine_evaluations=fit.refine_evaluations + int(state.evaluations))
        return free.apply(study.model, free.values(u)), change

    study, doubts = _iterate_linearization(study, free.apply(study.model, free.values(u)), refit)
    # other minima are refitted to the same equations, so that they can be compared with this one
    ends, _ = refitted_ends(study.problem, fit)
    return study, dataclasses.replace(fit, best=objective_at(study.problem, u), best_u=u, ends=ends), doubts


def assess(estimate: Estimate) -> Result:
    """Result of an estimate: uncertainties, diagnosis, metrics and remarks, the same way for every solver.

    Args:
        estimate: from `search_estimate` or `linear_estimate`.
    """
    verdict, study, run, solved = estimate.identifiability.verdict, estimate.study, estimate.run, estimate.solved
    diagnosis = (
        diagnosed_linear(estimate, solved) if isinstance(solved, LinearSystem) else diagnosed_search(estimate, solved)
    )
    goodness = estimate.goodness
    estimate = diagnosis.estimate.without_std if estimate.std_unknown else diagnosis.estimate
    budgets, joint_covariance = None, _covariance_with_errors(estimate)
    if goodness.budget is not None:
        budgets = (
            parameter_budgets(goodness.budget, study.free, estimate.std, study.free.slope(estimate.values)) or None
        )
        estimate = estimate.with_added_covariance(goodness.budget.covariance)
    rows = information_rows(estimate.jacobian, run.variances) if run.information is None else run.information
    combinations = groups(rows, estimate.identifiability.prior_std)
    if not estimate.has_std:
        combinations = tuple(group for group in combinations if np.isinf(group.std))
    metrics = dataclasses.replace(
        fit_metrics(estimate),
        known_together=groups_by_name(combinations, study.free.names),
        uncertainty=budgets,
        tolerance_checks=None if goodness.budget is None else tolerance_checks(goodness.budget),
        tolerated=None if goodness.budget is None else goodness.misfit_tolerated,
        most_likely_errors=most_likely_errors(estimate),
        **diagnosis.metrics,
    )
    machine = study.machine_with(estimate.model)
    doubts = _doubts(estimate, diagnosis, metrics, machine)
    ended = converged_status(
        goodness.missed, diagnosis.has_model_error, verdict, estimate.identifiability.verdict, doubts
    )
    return Result(
        study=_with_estimated_noise(estimate),
        status=linear_status([solved.step], ended)
        if isinstance(solved, LinearSystem)
        else search_status(estimate, solved, ended),
        seed=estimate.seed,
        cost=run.cost,
        initial_cost=run.initial_cost,
        parameters=identified_parameters(study, estimate.values, run.initial, estimate.identifiability),
        modes=_modes(estimate, rows),
        metrics=metrics,
        remarks=(
            *doubts,
            *tolerance_remarks(estimate, metrics.most_likely_errors),
            *data_remarks(study),
            *diagnosis.remarks,
            *prior_remarks(estimate),
            *law_remarks(metrics.laws),
        ),
        doubts=doubts,
        correlation=correlation(estimate.identifiability.covariance),
        singular_values=estimate.identifiability.singular_values,
        model=estimate.model,
        machine=machine,
        evaluations=run.evaluations,
        seconds={},
        history=run.history,
        covariance_with_errors=joint_covariance,
    )


def _covariance_with_errors(estimate: Estimate) -> CovarianceWithErrors | None:
    """Covariance of u and of the errors of the machine given the data; None where the machine is exact.

    Args:
        estimate: with standard deviations by noise alone.
    """
    by_errors = estimate.covariance_by_errors
    if by_errors is None:
        return None
    std = np.where(np.isfinite(estimate.std), estimate.std, np.nan)
    by_noise = correlation(estimate.identifiability.covariance) * np.outer(std, std)
    return by_errors._replace(matrix=by_errors.matrix + np.pad(by_noise, (0, len(by_errors.errors))))


def _doubts(estimate: Estimate, diagnosis: Diagnosis, metrics: Metrics, machine: Machine) -> tuple[str, ...]:
    """Doubts on an estimate, the misfit with its likely causes first.

    Args:
        estimate: with its final standard deviations.
        diagnosis: of the estimate.
        metrics: of the estimate.
        machine: the identified machine.
    """
    goodness, (causes, others) = estimate.goodness, kind_remarks(estimate, metrics)
    gross, errors = grouped(goodness.gross_errors.items()), metrics.model_errors or ()
    if diagnosis.hypothesis:
        # an error that linear equations explain in part may be one of many; the usual causes are reported too
        likely = [diagnosis.hypothesis, *(gross if estimate.linear is not None and not is_of_tests(errors) else [])]
    else:
        likely = [*gross, *causes, *diagnosis.causes]
    is_judged = not (goodness.not_reproduced or any(not error.is_hidden for error in errors))
    known = [e.name for e in estimate.study.fitted if e.test.noise.is_known and not e.source.noise_estimated]
    stated = {name: goodness.untolerated_misfits[name] for name in known}
    doubts = (
        *misfit_remarks(
            goodness.untolerated_misfit,
            goodness.systematic_fractions,
            likely,
            stated if goodness.untolerated_misfit is None else None,
        ),
        *others,
        *(f"{display_name(name)}: {NO_MODES}" for name in goodness.without_modes),
        *([NO_STD] if goodness.not_reproduced else []),
        *diagnosis.doubts,
        *(exceeded_remarks(goodness.budget, estimate.study) if is_judged else []),
        *(f"{display_name(name)}, held out: {text}" for name, text in goodness.held_out_errors.items()),
        *_prediction_doubts(estimate),
        *machine_remarks(machine),
    )
    return doubts if estimate.has_std else tuple(text.replace(INFLATED, "") for text in doubts)


WIDE = 10.0
"""Standard deviation of u in place of an unknown one: everything that the parameter explains is possible."""


def _prediction_doubts(estimate: Estimate) -> list[str]:
    """A sentence on each held-out test with known noise whose prediction is off by more than noise, parameters and
    tolerances explain, to first order."""
    study, tolerances, doubts = estimate.study, estimate.study.tolerances, list[str]()
    is_known = np.isfinite(estimate.std)
    std = np.where(is_known, estimate.std, WIDE)
    related = np.where(np.outer(is_known, is_known), correlation(estimate.identifiability.covariance), np.eye(std.size))
    values, vectors = np.linalg.eigh(related)
    by_parameters = std[:, None] * vectors * np.sqrt(np.maximum(values, 0.0))
    for entry in study.checks:
        if entry.name in estimate.goodness.missed or entry.source.noise_estimated or not entry.test.noise.is_known:
            continue
        residual = residual_of_test(entry.test, entry.test.view(estimate.model))
        size = _size_over_noise(entry.test, residual, np.zeros((residual.size, 1)))
        if size == 0.0 or study.problem.one_by_one:
            continue  # noise alone explains it, or each derivative would take minutes
        affine = entry.test.evaluation.affine_view(study.problem.model, study.free)
        effects = state_of_test(study.problem, entry.test, estimate.u, affine)[1] @ by_parameters
        size = _size_over_noise(entry.test, residual, effects)
        if size > 0.0 and tolerances is not None:
            described = DescribedTests([entry], estimate.model, study.free, tolerances, study.exact_tests)
            errors = [error for error in described.errors if error.std(tolerances) > 0.0]
            size = _size_over_noise(entry.test, residual, np.hstack([effects, error_columns(described, errors)]))
        if size > 0.0:
            doubts.append(
                f"{display_name(entry.name)}, held out: errors of the prediction are {size:.2g} times what noise,"
                " parameters and tolerances explain"
            )
    return doubts


def _size_over_noise(test: Test, residual: Float[np.ndarray, "m"], effects: Float[np.ndarray, "m e"]) -> float:
    """Root mean square of a residual in units of a covariance, that of the noise and of effects of one standard
    deviation each; 0 where it is not significantly above 1."""
    variances, length = np.asarray(test.stated_variances()), noise_correlation_length(test)
    square, degrees = float(np.sum(Whitening(variances, effects)(residual) ** 2)), np.count_nonzero(variances)
    return float(np.sqrt(square / degrees)) if square / length > chdtri(degrees / length, FALSE_ALARM) else 0.0


def _with_estimated_noise(estimate: Estimate) -> Study:
    """The study with its noise as estimated, also where that has no effect on the fit."""
    study, levels = estimate.study, estimate.noise_levels
    tests = [
        test.noise.with_level(level) if level > 0.0 and not weights_tests(study.problem, test) else test
        for test in study.tests
        for level in [levels.get(test.name, 0.0)]
    ]
    return study.with_problem(with_tests(study.problem, tests))


def _modes(estimate: Estimate, rows: np.ndarray) -> tuple[Mode, ...]:
    """Modes of the identified machine below the end of each test's band; `rows` is the information about u."""
    study, lines = estimate.study, []
    for (entry, view, _), affine in zip(estimate.fitted_of(study.fitted), study.problem.views, strict=True):
        vibration = entry.test.vibration
        if vibration is not None:
            found = jax.tree.map(np.asarray, possible_modes(view.tangent))
            found = select_modes(found, found.frequency_hz <= vibration.band_end_hz)
            std = mode_std(
                vibration.test, study.model, study.free, estimate.u, view.tangent, found, rows, affine,
                _tangents_by_errors(estimate, entry),
            )  # fmt: skip
            std = np.where(estimate.std_unknown, np.inf, std)
            columns = np.column_stack([found.frequency_hz, found.damped_frequency_hz, found.damping_ratio, std])
            lines += [Mode(entry.name, *row) for row in columns.tolist()]
    return tuple(lines)


def _tangents_by_errors(estimate: Estimate, entry: Entry) -> tuple[Tangent, np.ndarray] | None:
    """Derivatives of the tangent matrices of a test by the errors of the machine over their likely sizes [n, n, e], and
    `Estimate.covariance_by_errors`; None without such errors."""
    by_errors = estimate.covariance_by_errors
    if by_errors is None:
        return None

    def tangent(key: str, size: float) -> Tangent:
        model, possible = estimate.model, estimate.machine_errors.values()
        found = entry.test.view(with_machine_errors(model, estimate.study.free, possible, {key: size})).tangent
        none = np.zeros_like(np.asarray(found.stiffness))  # as of a loss factor of 0 with an error
        return dataclasses.replace(found, structural=none) if found.structural is None else found

    columns = []
    for key, size in zip(by_errors.errors, by_errors.std, strict=True):
        both = (tangent(key, by) for by in (ERROR_STEP * size, -ERROR_STEP * size))
        columns.append(jax.tree.map(lambda a, b: np.subtract(a, b) / (2.0 * ERROR_STEP), *both))
    return jax.tree.map(lambda *parts: np.stack(parts, axis=-1), *columns), by_errors.matrix


NO_MODES = (
    "the identified machine has no modes at this posture, as its mass matrix is not positive definite: the best fit"
    " has inertias that no body has"
)
CONVERGED_SLOPE = 1e-6
"""Cosine between the residual and a column of the Jacobian, of a parameter not limited by a bound, below which the fit
has converged."""
CONVERGED_CHI2 = 1e-2
"""Largest predicted decrease of chi-square, over its mean for a row, at convergence with noisy data: a tenth of a
standard deviation."""
NOT_SEARCHED = (
    "errors in the description were not searched for: the machine has more than"
    f" {FEW} degrees of freedom, or the Jacobian is too large for the memory"
)
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
        raise ValueError(f"study '{study.name}': no start has a finite cost")
    study = study.at_values(study.free.values(fit.best_u))
    problem, free = study.problem, study.free
    residual, jacobian, stated_variances = linearized(problem, fit.best_u)
    # exp(log(bound)) may differ from the bound in the last digit.
    values, initial = (np.clip(free.values(u), free.lower_value, free.upper_value) for u in (fit.best_u, fit.initial_u))
    model = free.apply(study.model, values)
    point = residual, jacobian, stated_variances
    solution = Solution(study, seed, fit.best_u, model, tuple(test.view(model) for test in study.tests), *point)
    goodness, unit = goodness_of_fit(solution, None, information), float(problem.noise_unit) ** 2
    variances = row_variances(problem, *point, goodness.explained_by_errors)
    rows = (jacobian, variances) if information is None else (information, np.ones(len(information)))
    return Estimate(
        **vars(solution),
        values=values,
        identifiability=identifiability(*rows, problem.prior_std, study.free.needed),
        goodness=goodness,
        run=SolverRun(
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
            information=information,
        ),
        solved=fit,
        systematic_covariance=np.zeros((free.size, free.size)),
    )


def diagnosed_search(estimate: Estimate, fit: Fit) -> Diagnosis:
    """Diagnosis of a fit: curvature, other minima, bounds, systematic errors of its tests, one model for all tests,
    laws, model-error hypotheses where these do not explain the misfit, jackknife.

    Args:
        estimate: from `search_estimate`.
        fit: the finished fit.
    """
    run, goodness, ambiguous = estimate.run, estimate.goodness, list[str]()
    problem, is_stated = estimate.study.problem, estimate.study.tolerances is not None
    is_exact = len(estimate.study.exact_tests) == len(problem.tests)
    is_costly = problem.one_by_one or is_large(problem)
    if run.information is None:
        estimate, ambiguous = with_ambiguity(with_curvature(estimate), fit, run.variances)
    estimate, bounded = with_bound_limits(estimate)
    estimate, systematic = with_systematic_errors(estimate)
    common = one_model(estimate)
    contradiction = 0.0 if common is None or goodness.misfit_tolerated else common.contradiction
    laws, is_explained = chosen_laws(estimate), run.information is not None and goodness.misfit_tolerated
    if laws is not None and laws.chosen and goodness.misfit is not None:
        is_explained = dataclasses.replace(goodness.misfit, square=laws.one_model.residual_over_noise**2).explained
    explanations = Explanations() if is_explained else errors_of_linear_tests(estimate)
    if not (is_explained or explanations.errors):
        explanations = model_errors(estimate, contradiction)
    hypotheses = explanations.errors
    # errors of the description of single tests, or of all, are no disagreement on a parameter
    if goodness.misfit_tolerated or (goodness.not_reproduced and contradiction == 0.0):
        common = None
    has_model_error = bool(
        goodness.not_reproduced
        or goodness.is_inconsistent
        or goodness.systematic_fractions
        or hypotheses
        or contradiction
    )
    if has_model_error and run.information is None and not (goodness.all_by_errors or is_large(problem)):
        estimate = with_jackknife(estimate)
    estimate = with_hypotheses(estimate, explanations)
    excess = goodness.untolerated_misfit is not None and not goodness.untolerated_misfit.explained
    cause = one_model_text(common, estimate.study, estimate.study.free.named(estimate.values))
    return Diagnosis(
        estimate=estimate,
        has_model_error=has_model_error,
        doubts=(
            *run.doubts,
            *bounded,
            *(() if explain_all(hypotheses) else systematic),
            *([] if goodness.not_reproduced else (*ambiguous, *unmatched_remarks(estimate))),
            *unconverged_laws(laws),
        ),
        remarks=(
            *search_remarks(estimate.study, fit),
            *([NOT_SEARCHED] if (has_model_error or excess) and is_costly else []),
            *([NOT_PROPAGATED] if is_stated and is_costly and not goodness.not_reproduced else []),
            *([IN_TWO_STEPS] if is_stated and run.information is not None and not is_exact else []),
            *(bound_remarks(estimate, fit.initial_u) if fit.initial_u is not None else ()),
        ),
        causes=[cause] if cause else [],
        hypothesis=model_errors_text(hypotheses, {entry.kind for entry in estimate.study.fitted}),
        metrics={
            "one_model": common,
            "model_errors": hypotheses or None,
            "further_springs": explanations.further_springs or None,
            "laws": laws,
        },
    )


def search_status(estimate: Estimate, fit: Fit, ended: str) -> str:
    """Status of a fit: `ended` if it converged."""
    run = estimate.run
    if run.cost <= estimate.study.settings.tolerance or (run.information is not None and fit.converged):
        return ended
    (residual, jacobian), bound = estimate.compressed, estimate.study.free.bound_side(estimate.u)
    gradient = jacobian.T @ residual
    size = np.linalg.norm(without_rounding(jacobian), axis=0) * np.linalg.norm(residual)
    # Without noise the rounding of the parameters determines the slope.
    of_digits = np.abs(jacobian.T @ jacobian) @ (2.0 * np.finfo(float).eps * np.maximum(np.abs(estimate.u), 1.0))
    is_flat = (bound * gradient < 0.0) | (np.abs(gradient) <= of_digits)
    slope = np.where(is_flat, 0.0, np.abs(gradient) / np.where(size == 0.0, 1.0, size))
    worst = int(np.argmax(slope))
    noisy = float(residual @ residual) >= NOISY * estimate.residual.size
    if slope[worst] <= CONVERGED_SLOPE or (noisy and slope[worst] ** 2 * estimate.residual.size <= CONVERGED_CHI2):
        return ended
    return (
        f"{Outcome.NOT_CONVERGED} after {fit.round} rounds: the cost still falls along"
        f" {estimate.study.free.names[worst]} (slope cosine {slope[worst]:.1e}, expected at most {CONVERGED_SLOPE:.0e})"
    )
