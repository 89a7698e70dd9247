"""Estimate of a study by search and refinement: its standard deviations, diagnosis and status."""

import numpy as np

from jaxmb.identify.assess.estimate import Diagnosis, Estimate, Solution, SolverRun, goodness_of_fit, jackknife_std
from jaxmb.identify.assess.kinds import with_systematic_errors
from jaxmb.identify.assess.laws.law_choice import chosen_laws, unsettled_laws
from jaxmb.identify.assess.laws.one_model import one_model, one_model_text
from jaxmb.identify.assess.model_errors import model_errors, model_errors_text, with_hypotheses
from jaxmb.identify.assess.remarks import (
    bound_remarks,
    on_bound,
    search_remarks,
    unmatched_remarks,
)
from jaxmb.identify.assess.result import Outcome
from jaxmb.identify.assess.uncertainty.nonlinear import ambiguity, not_bound_limited, with_curvature
from jaxmb.identify.estimation.identifiability import (
    identifiability,
)
from jaxmb.identify.fit.noise import row_variances
from jaxmb.identify.fit.problem import is_large, linearized, residual_at
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import display_name

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
        raise ValueError(f"study '{study.name}': no start has a finite cost{_undefined_text(study)}")
    study = study.at_values(study.free.values(fit.best_u))
    problem, free = study.problem, study.free
    residual, jacobian, row_weights = linearized(problem, fit.best_u)
    # exp(log(bound)) may differ from the bound in the last digit.
    values, initial = (np.clip(free.values(u), free.lower_value, free.upper_value) for u in (fit.best_u, fit.initial_u))
    model = free.apply(study.model, values)
    point = residual, jacobian, row_weights
    solution = Solution(study, seed, fit.best_u, model, tuple(test.view(model) for test in study.tests), *point)
    goodness, unit = goodness_of_fit(solution), float(problem.noise_unit) ** 2
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
    )


def _undefined_text(study: Study) -> str:
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
    run, goodness, ambiguous = estimate.run, estimate.goodness, list[str]()
    if run.information is None:
        estimate, ambiguous = ambiguity(with_curvature(estimate), fit, run.variances)
    estimate, bounded = not_bound_limited(estimate)
    estimate, systematic = with_systematic_errors(estimate)
    common = one_model(estimate)
    contradiction = 0.0 if common is None or goodness.misfit_tolerated else common.contradiction
    hypotheses, springs = model_errors(estimate, contradiction)
    # errors of the description of single tests, or of all, are no disagreement on a parameter
    if goodness.misfit_tolerated or (goodness.not_reproduced and contradiction == 0.0):
        common = None
    wrong = bool(
        goodness.not_reproduced or goodness.is_inconsistent or goodness.systematic or hypotheses or contradiction
    )
    if wrong and not (goodness.all_by_errors or is_large(estimate.study.problem)):
        estimate = estimate.with_std(np.maximum(estimate.std, jackknife_std(estimate)))
    estimate = with_hypotheses(estimate, hypotheses)
    excess = goodness.excess is not None and not goodness.excess.explained
    laws = chosen_laws(estimate.without_std if goodness.not_reproduced else estimate)
    return Diagnosis(
        estimate=estimate,
        wrong=wrong,
        doubts=(
            *run.doubts,
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
        causes=[text for text in (one_model_text(common),) if text],
        hypothesis=model_errors_text(hypotheses),
        metrics={
            "one_model": common,
            "model_errors": hypotheses or None,
            "further_springs": springs or None,
            "laws": laws,
        },
    )


def search_status(estimate: Estimate, fit: Fit, ended: str) -> str:
    """Status of a fit: `ended` if it converged."""
    if estimate.run.cost <= estimate.study.settings.tolerance:
        return ended
    if estimate.run.information is not None and fit.converged:
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
