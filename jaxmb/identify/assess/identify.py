"""Identification of a study: fit, uncertainties, diagnosis and result."""

import dataclasses
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import jax
import numpy as np
from threadpoolctl import threadpool_limits

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.kinds import fit_metrics, kind_remarks
from jaxmb.identify.assess.laws.law_choice import chosen_laws, law_remarks, unsettled_laws
from jaxmb.identify.assess.laws.one_model import OneModel, one_model, one_model_text
from jaxmb.identify.assess.linear_outcome import identify_linear, linear_finding
from jaxmb.identify.assess.mistakes import mistake_text, mistakes
from jaxmb.identify.assess.remarks import (
    CAPPED,
    bound_remarks,
    data_remarks,
    excess_remarks,
    gross_remarks,
    machine_remarks,
    on_bound,
    prior_remarks,
    search_remarks,
    unmatched_remarks,
)
from jaxmb.identify.assess.result import (
    Mode,
    Outcome,
    Result,
    ended_text,
    evaluations,
    found_parameters,
)
from jaxmb.identify.assess.stiffness_model import identify_complete
from jaxmb.identify.assess.uncertainty.ambiguity import ambiguity, mode_deviations, not_bound_limited, with_curvature
from jaxmb.identify.estimation.identifiability import (
    correlation,
    groups,
    groups_by_name,
    information_rows,
    knowledge,
)
from jaxmb.identify.estimation.least_squares import Box
from jaxmb.identify.experiments.motion import PostureTest
from jaxmb.identify.experiments.names import display_name
from jaxmb.identify.fit.loop import COMPILATION, Report, run_fit
from jaxmb.identify.fit.noise import row_variances, with_estimated_noise
from jaxmb.identify.fit.problem import compressed, is_large, linearized, objective_at
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.fit.two_steps import two_step_fit
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import warnings_as_remarks
from jaxmb.machine.build import Model
from jaxmb.response.modal import modes, select_modes

CONVERGED_SLOPE = 1e-6
"""Cosine between the residual and a column of the Jacobian, of a parameter not limited by a bound, below which the fit
has converged."""
CONVERGED_CHI2 = 1e-2
"""Largest predicted decrease of chi-square, over its mean for a row, at convergence with noisy data: a tenth of a
standard deviation."""
MOST_PASSES = 10
"""Largest number of linearizations of tests about the fitted machine."""
SETTLED = 0.05
"""Change of the values in the last of them, in standard deviations, at convergence."""
UNSETTLED = (
    f"values still move after {MOST_PASSES} linearizations about the fitted machine: the deflection of gears (torque"
    " tests) or the effect of errors of loads and postures (deflection tests) is not consistent with them"
)
RIGID = "the deflection of gears, or the effect of errors of loads and postures, is not that of the values found"
NOT_SEARCHED = "errors in the description were not searched for: the Jacobian is too large for the memory"
NOISY = 0.1
"""Mean square of the residual, in units of the stated noise, above which data count as noisy."""


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
        if study.complete is not None or study.is_linear:
            result = _identify_linear(study, seed)
        else:
            result = _identify_by_search(study, seed, state_file, resume, report)
    if report is not None and (study.complete is not None or study.is_linear):
        report(Report(1, 1, "linear step", 1, result.cost))
    read = study.read_seconds
    seconds = result.seconds | {"total": read + result.seconds["total"], "read": read}
    remarks = dict.fromkeys([*([study.note] if study.note else []), *result.remarks, *warned])
    return dataclasses.replace(result, seconds=seconds, remarks=tuple(remarks))


def _identify_by_search(
    study: Study, seed: int, state_file: Path | None, resume: bool, report: Callable[[Report], None] | None
) -> Result:
    began = time.monotonic()
    run = study.problem, study.settings, study.start, seed, state_file, resume, report
    if study.two_steps:
        (fit, information), problem, sentences = two_step_fit(*run), study.problem, []
        fitted = COMPILATION.seconds
    else:
        fit, information = run_fit(*run), None
        fitted = COMPILATION.seconds
        study, fit, doubts = _relinearized(study, fit) if study.relinearized else (study, fit, [])
        problem, fit, sentences = with_estimated_noise(study.problem, fit)
        sentences = [*doubts, *sentences]
    result = _result(study.with_problem(problem), fit, seed, sentences, information)
    # The parts, and so the total, include the time of a run before it was interrupted.
    parts = {
        "compile": fit.compile_seconds + COMPILATION.seconds - fitted,
        "search": fit.search_seconds,
        "refine": fit.refine_seconds,
    }
    total = max(time.monotonic() - began, sum(parts.values()))
    return dataclasses.replace(result, seconds={"total": total, **parts})


def _identify_linear(study: Study, seed: int) -> Result:
    """One linear step; repeated until convergence where tests are linearized about the identified machine."""
    doubts = list[str]()
    if study.relinearized:
        study, doubts = _about_fit(study, seed)
    result = identify_linear(study, seed) if study.complete is None else identify_complete(study, seed)
    return dataclasses.replace(result, remarks=(*doubts, *result.remarks), doubts=(*doubts, *result.doubts))


def _about_fit(study: Study, seed: int) -> tuple[Study, list[str]]:
    """A linear study with its tests linearized about the identified machine, and a sentence where that did not
    converge."""

    def fitted() -> tuple[Model, np.ndarray, np.ndarray]:
        if study.complete is None:
            found = linear_finding(study, seed)
            return found.model, found.u, found.known.std
        result = identify_complete(study, seed)
        values = result.parameters.values()
        return result.model, np.array([p.value for p in values]), np.array([p.std for p in values])

    model, before, _ = fitted()
    for _ in range(MOST_PASSES):
        try:
            study = study.about(model)
        except ValueError as error:
            return study, [f"{RIGID}: {error}"]
        model, values, std = fitted()
        if np.all(np.abs(values - before) <= SETTLED * std):
            return study, []
        before = values
    return study, [UNSETTLED]


def _relinearized(study: Study, fit: Fit) -> tuple[Study, Fit, list[str]]:
    """The fit with tests linearized about the identified machine, starting from a fit with rigid gears."""
    free, u = study.free, fit.best_u
    if u is None:
        return study, fit, []
    box, doubts = Box(free.lower, free.upper, jax.device_put(np.array(free.logarithmic))), [UNSETTLED]
    for _ in range(MOST_PASSES):
        try:
            study = study.about(free.apply(study.model, free.values(u)))
        except ValueError as error:
            doubts = [f"{RIGID}: {error}"]
            break
        state = least_squares_from(study.problem, box, jax.device_put(u))
        found = np.asarray(state.u)
        change, u = float(np.linalg.norm(compressed(study.problem, found)[1] @ (found - u))), found
        fit = dataclasses.replace(fit, refine_evaluations=fit.refine_evaluations + int(state.evaluations))
        if change <= SETTLED:
            doubts = []
            break
    # other minima are refitted to the same equations, so that they can be compared with this one
    others = [least_squares_from(study.problem, box, jax.device_put(end[1:])) for end in fit.ends]
    ends = [np.append(float(other.objective), np.asarray(other.u)) for other in others]
    return study, dataclasses.replace(fit, best=objective_at(study.problem, u), best_u=u, ends=ends), doubts


def _impossible(study: Study) -> str:
    """Text on responses of the initial machine with which no data can be compared; empty where there are none."""
    found = [
        f"{display_name(test.name)}: {what}"
        for test in study.tests
        if test.lines is not None
        for what in test.lines.undefined(test.view(study.model))
    ]
    return ": in the initial model " + "; ".join(found) + ", exclude it from the test" if found else ""


def _finding(
    study: Study, u: np.ndarray, seed: int, information: np.ndarray | None, prior_std: np.ndarray | None
) -> tuple[Finding, np.ndarray]:
    """Finding at u, known by the information where it is given, else by the Jacobian; variances of the rows."""
    free, problem = study.free, study.problem
    residual, jacobian, row_weights = linearized(problem, u)
    variances = row_variances(problem, residual, jacobian, row_weights)
    known = (jacobian, variances) if information is None else (information, np.ones(len(information)))
    # exp(log(bound)) may differ from the bound in the last digit.
    values = np.clip(free.values(u), free.lower_value, free.upper_value)
    model = free.apply(study.model, values)
    finding = Finding(
        study=study,
        seed=seed,
        u=u,
        values=values,
        model=model,
        views=tuple(test.view(model) for test in study.tests),
        residual=residual,
        jacobian=jacobian,
        row_weights=row_weights,
        known=knowledge(*known, prior_std),
    )
    return finding, variances


def _result(study: Study, fit: Fit, seed: int, sentences: list[str], information: np.ndarray | None = None) -> Result:
    """What a fit found; `information` of one that is not at the minimum of the cost, else that of the Jacobian."""
    if fit.best_u is None or fit.initial_u is None:
        raise ValueError(f"study '{study.name}': no start has a finite cost{_impossible(study)}")
    study = study.at_values(study.free.values(fit.best_u))
    problem, free, initial_u = study.problem, study.free, fit.initial_u
    prior_std = None if problem.prior is None else np.asarray(problem.prior.std)
    finding, variances = _finding(study, fit.best_u, seed, information, prior_std)
    plain, doubts = finding.known.verdict, []
    if information is None:
        finding, doubts = ambiguity(finding, fit, variances)
        finding = with_curvature(finding)
    finding, pushed = not_bound_limited(finding)
    found_mistakes = mistakes(finding)
    agreed = _one_model(finding)
    apart = agreed is not None and not agreed.does
    wrong = bool(finding.not_followed or finding.far_off or finding.systematic or found_mistakes or apart)
    finding = finding.cap_confidence(not wrong)
    rows = information_rows(finding.jacobian, variances) if information is None else information
    metrics = dataclasses.replace(
        fit_metrics(finding),
        one_model=agreed,
        mistakes=found_mistakes or None,
        known_together=groups_by_name(groups(rows, prior_std), free.names),
        laws=chosen_laws(finding),
    )
    cost = float(problem.noise_unit) ** 2 * float(np.sum(finding.residual[: problem.data_rows] ** 2))
    initial = np.clip(free.values(initial_u), free.lower_value, free.upper_value)
    machine = study.machine_with(finding.model)
    causes, others = kind_remarks(finding, metrics)
    misfit = _misfit_remarks(finding, mistake_text(found_mistakes), causes, agreed)
    all_doubts = (
        *misfit,
        *others,
        *([CAPPED] if wrong else []),
        *sentences,
        *machine_remarks(machine),
        *pushed,
        *([] if finding.not_followed else (*doubts, *unmatched_remarks(finding))),
        *unsettled_laws(metrics.laws),
    )
    ended = ended_text(finding.missed, wrong, plain, finding.known.verdict, all_doubts)
    return Result(
        study=study,
        status=ended if information is not None and fit.settled else _status(finding, fit, cost, ended),
        seed=seed,
        cost=cost,
        initial_cost=objective_at(problem, initial_u) - _prior_part(study, initial_u),
        parameters=found_parameters(study, finding.values, initial, finding.known),
        modes=_modes(finding, rows),
        metrics=metrics,
        remarks=(
            *all_doubts,
            *data_remarks(study),
            *search_remarks(study, fit),
            *([NOT_SEARCHED] if misfit and is_large(problem) else []),
            *prior_remarks(finding),
            *bound_remarks(finding, initial_u),
            *law_remarks(metrics.laws),
        ),
        doubts=all_doubts,
        correlation=correlation(finding.known.covariance),
        singular_values=finding.known.singular_values,
        model=finding.model,
        machine=machine,
        evaluations=evaluations(fit),
        seconds={},
        history=fit.history,
    )


def _misfit_remarks(finding: Finding, named: str, causes: Sequence[str], agreed: OneModel | None) -> list[str]:
    """One sentence on the misfit; a hypothesis that explains it also explains disagreement of tests."""
    likely = [named] if named else [*gross_remarks(finding), *causes, one_model_text(agreed)]
    return excess_remarks(finding.misfit, finding.systematic, [text for text in likely if text])


def _one_model(finding: Finding) -> OneModel | None:
    """Test of one model for all tests; None where it is consistent, but some tests are not reproduced."""
    found = one_model(finding)
    return None if found is not None and found.does and finding.not_followed else found


def _status(finding: Finding, fit: Fit, cost: float, ended: str) -> str:
    """Status of a fit: `ended` if it converged."""
    if cost <= finding.study.settings.tolerance:
        return ended
    (residual, jacobian), bound = finding.compressed, on_bound(finding.study, finding.u)
    gradient = jacobian.T @ residual
    size = np.linalg.norm(jacobian, axis=0) * np.linalg.norm(residual)
    outwards = np.where(bound < 0, gradient > 0.0, np.where(bound > 0, gradient < 0.0, False))
    slope = np.where(outwards | (size == 0.0), 0.0, np.abs(gradient) / np.where(size == 0.0, 1.0, size))
    # Without noise the rounding of the parameters determines the slope.
    of_digits = np.abs(jacobian.T @ jacobian) @ (2.0 * np.finfo(float).eps * np.maximum(np.abs(finding.u), 1.0))
    slope = np.where(np.abs(gradient) <= of_digits, 0.0, slope)
    worst = int(np.argmax(slope))
    noisy = float(residual @ residual) >= NOISY * finding.residual.size
    if slope[worst] <= CONVERGED_SLOPE or (noisy and slope[worst] ** 2 * finding.residual.size <= CONVERGED_CHI2):
        return ended
    return (
        f"{Outcome.NOT_CONVERGED} after {fit.round} rounds: the cost still falls along"
        f" {finding.study.free.names[worst]} (slope cosine {slope[worst]:.1e}, expected at most {CONVERGED_SLOPE:.0e})"
    )


def _modes(finding: Finding, rows: np.ndarray) -> tuple[Mode, ...]:
    """Modes of the identified machine below the end of each test's band; `rows` is the information about u."""
    study, lines = finding.study, []
    for entry, view, _ in finding.of(study.fitted):
        test = entry.test
        if isinstance(test, PostureTest):
            tangent = test.vibration.tangent(view)
            found = jax.tree.map(np.asarray, modes(tangent))
            found = select_modes(found, found.frequency_hz <= test.vibration.band_end_hz)
            std = mode_deviations(test, study.model, study.free, finding.u, tangent, found, rows)
            columns = (found.frequency_hz, found.damped_frequency_hz, found.damping_ratio, *std.T)
            lines += [Mode(entry.name, *row) for row in np.array(columns).T.tolist()]
    return tuple(lines)


def _prior_part(study: Study, u: np.ndarray) -> float:
    """Contribution of the prior to the objective at u."""
    if study.problem.prior is None:
        return 0.0
    errors = np.asarray(study.problem.prior_residual(jax.device_put(u))) * float(study.problem.noise_unit)
    return float(errors @ errors)
