"""Estimate of a linear study by one linear step: its equations, diagnosis and status."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from scipy.special import chdtri, fdtri

from jaxmb.identify.assess.estimate import (
    Diagnosis,
    Estimate,
    Linear,
    Solution,
    SolverHistory,
    goodness_of_fit,
    jackknife_std,
)
from jaxmb.identify.assess.kinds import with_systematic_errors
from jaxmb.identify.assess.linear_errors import linear_model_errors
from jaxmb.identify.assess.model_errors import model_errors_text, with_hypotheses
from jaxmb.identify.assess.remarks import tests_text, value_remarks
from jaxmb.identify.assess.result import Outcome
from jaxmb.identify.estimation.identifiability import (
    RANK_TOLERANCE,
    identifiability,
    scaled_svd,
)
from jaxmb.identify.estimation.linear import MOST_ROUNDS, LinearFit
from jaxmb.identify.experiments.components import Equations, is_robust
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.fit.linear import (
    LinearStep,
    Unknowns,
    idle_numbers,
    linear_equations,
    linear_step,
    reported_identifiability,
    unknowns,
    with_prior,
    without_effect,
)
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.fit.physical_consistency import bodies
from jaxmb.identify.parameters.model_parameters import parameters, with_numbers
from jaxmb.identify.study.reading.parameters import fixed_values
from jaxmb.identify.study.study import Study, known_values, linear_in
from jaxmb.io.validation import display_name, error_location, listed

UNSETTLED = f"{Outcome.NOT_CONVERGED}: the robust weights still move after {MOST_ROUNDS} rounds"
UNSOLVED = f"{Outcome.NOT_CONVERGED}: the active set of bounds was not identified"
OUTLIER = 0.5
"""Robust weight below which a measurement counts as an outlier."""
EXACT = 1e-4
"""Ratio of root mean squares of residual and torque below which the residual is rounding and differentiation error."""
SMALL_RISE = 0.01
"""Increase of chi^2 that is not reported."""
RESTRICTED = 2.0
"""Squared residual over that of a fit of all parameters above which half of it is systematic: confidence is capped at
"weak" unless standard deviations include the cause."""
PARALLEL = 1e-6
"""Sine of the angle between two wrenches below which they are parallel."""


def diagnosed_linear(estimate: Estimate) -> Diagnosis:
    """Diagnosis of a linear step: systematic errors of its tests, a restricted fit, outliers, bodies, bounds.

    Args:
        estimate: from `linear_estimate`.

    Raises:
        ValueError: the study is not linear.
    """
    linear = estimate.linear
    if linear is None:
        raise ValueError(f"study '{estimate.study.name}': is not linear, expected one with a linear step")
    step, systematic = linear.step, list[str]()
    wrong = bool(estimate.goodness.not_reproduced) or estimate.goodness.is_inconsistent
    if not (wrong or estimate.goodness.misfit_tolerated):
        estimate, systematic = with_systematic_errors(estimate)
    restricted = _restricted_remarks(estimate)
    hypotheses, springs = linear_model_errors(estimate)
    wrong = wrong or bool(hypotheses or (restricted and not systematic and step.misfit.square > RESTRICTED))
    if wrong:
        estimate = estimate.with_std(np.maximum(estimate.std, jackknife_std(estimate)))
    estimate = with_hypotheses(estimate, hypotheses)
    if any(entry.source.std_unknown for entry in estimate.study.fitted):
        estimate = estimate.unknown
    stated = estimate.goodness.budget
    known = estimate.known if stated is None else estimate.with_added(stated.covariance).known
    # gross errors invalidate everything else
    on_bodies, of_noise = ([], []) if estimate.goodness.gross_errors else body_remarks(estimate, step)
    on_bounds, of_values = value_remarks(estimate.study, linear, known)
    return Diagnosis(
        estimate=estimate,
        wrong=wrong,
        doubts=(*outlier_remarks(step.robust_weight), *systematic, *on_bodies, *on_bounds),
        remarks=(*of_noise, *of_values),
        causes=restricted,
        hypothesis=model_errors_text(hypotheses),
        metrics={
            "adjusted_parameters": adjusted_parameters(estimate.study, estimate.values, step) or None,
            "model_errors": hypotheses or None,
            "further_springs": springs or None,
        },
    )


def linear_estimate(study: Study, seed: int = 0) -> Estimate:
    """Estimate of a linear study in one linear step, with the views of the identified machine.

    Args:
        study: from `load_study`, its predictions linear in the free values or their reciprocals.
        seed: of later random orders and draws.

    Raises:
        ValueError: the free parameters are not identifiable from the tests.
    """
    with error_location(f"study '{study.name}'"):
        found, rows = _checked_equations(study)
    stacked = with_prior(found, rows, study.problem.prior)
    start = kept_values(study)
    fixed = () if study.origin is None else fixed_values(study.model, study.origin.file)
    touched = bodies(study.model, study.free, idle_numbers(study.model, study.free, study.tests, rows, fixed))
    robust, lengths = any(map(is_robust, study.tests)), [test.noise.correlation.lengths for test in study.tests]
    step = linear_step(found, stacked, start, robust, touched, study.problem.prior_std, np.concatenate(lengths))
    # 1 / (1 / k) may differ from k by rounding
    values = np.where(step.x == found.encode(start), start, found.decode(step.x))
    model = with_numbers(study.free.apply(study.model, jnp.asarray(values)), adjusted_parameters(study, values, step))
    study = study.at_values(values)
    solution = Solution(
        study=study,
        seed=seed,
        u=study.free.encode(values),
        model=model,
        views=tuple(test.view(model) for test in study.tests),
        residual=-np.sqrt(step.row_weights) * step.residual / stacked.std,
        jacobian=step.jacobian,
        row_weights=step.row_weights,
    )
    goodness = goodness_of_fit(solution, step)
    return Estimate(
        **vars(solution),
        values=values,
        known=reported_identifiability(
            step, 1.0 if goodness.all_tolerated else step.misfit.widening, study.free.needed
        ),
        goodness=goodness,
        linear=Linear(found, rows, step, start),
        solver=SolverHistory(
            initial=start,
            cost=step.cost,
            initial_cost=_cost(rows, step.row_weights, found.encode(start)),
            variances=step.row_weights,
            evaluations={"search": 0, "refine": 1, "non_finite": 0},
            history=[(1, step.cost)],
        ),
    )


def adjusted_parameters(study: Study, values: np.ndarray, step: LinearStep) -> dict[str, float]:
    """Fixed inertial parameters that were changed for physical consistency, by name."""
    if step.consistent is None or not step.consistent.added:
        return {}
    before = parameters(study.free.apply(study.model, jnp.asarray(values)))
    return {name: before[name] + change for name, change in step.consistent.added.items()}


def linear_status(fits: Sequence[LinearFit | LinearStep], ended: str) -> str:
    """Status of linear fits: `ended` if all converged, otherwise the reason."""
    if not all(fit.active_set_found for fit in fits):
        return UNSOLVED
    if ended.startswith(Outcome.NOT_REPRODUCED):
        return ended
    return ended if all(fit.weights_converged for fit in fits) else UNSETTLED


def _restricted_remarks(estimate: Estimate) -> list[str]:
    """A sentence where a fit of all inertial and friction parameters has a significantly smaller residual than the
    fit."""
    linear, goodness = estimate.linear, estimate.goodness
    if linear is None or linear.step.misfit.explained:
        return []
    if goodness.missed or goodness.misfit is not None or goodness.all_tolerated:
        return []
    rows = linear.equations
    weights = estimate.row_weights[: rows.measured.size]
    total = float(np.sum(weights * (rows.measured / rows.std) ** 2))
    if linear.step.cost <= EXACT**2 * total:
        return []
    misfit = linear.step.misfit
    # the noise is estimated from the effective number of independent samples
    tests = [entry.test for entry in estimate.study.fitted if entry.source.noise_estimated]
    ranks = (scaled_svd(np.asarray(test.regressor), RANK_TOLERANCE).rank for test in tests)
    degrees = sum(
        float(np.sum(1.0 / test.noise.correlation.lengths)) - rank for test, rank in zip(tests, ranks, strict=True)
    )
    if tests and misfit.square <= float(fdtri(misfit.degrees, max(1.0, degrees), 1.0 - FALSE_ALARM)):
        return []
    return [
        f"the residual is {misfit.factor:.3g} times that of a fit of all inertial and friction parameters: fixed"
        " values, bounds or a prior limit the fit, friction differs between tests, or the zero of an angle, a length or"
        " the direction of gravity is wrong; standard deviations were inflated accordingly"
    ]


def kept_values(study: Study) -> np.ndarray:
    """Physical values kept by parameters that no test determines.

    The study's `initial`; by default the machine's own value if inside the bounds, else their middle, so that the
    machine file does not change in parameters without information.
    """
    return known_values(study.model, study.free, study.start.values, study.start.given)


def _cost(rows: Equations, row_weights: np.ndarray, x: np.ndarray) -> float:
    weights = row_weights[: rows.measured.size]
    return float(np.sum(weights * ((rows.measured - rows.matrix @ x) / rows.std) ** 2))


def _checked_equations(study: Study) -> tuple[Unknowns, Equations]:
    """Unknowns and equations of a linear study, checked for identifiability."""
    reciprocal = linear_in(study.problem)
    if reciprocal is None:
        raise ValueError("the predictions of its tests are not linear in the same parameters")
    found = unknowns(study.free, reciprocal)
    for entry in study.fitted:
        with error_location(display_name(entry.name)):
            entry.source.check_linear(study.model)
    with error_location("[free]"):
        _check_effect(study)
    rows = linear_equations(study.model, study.free, study.tests)
    with error_location(tests_text([entry.name for entry in study.fitted])):
        check_equations(with_prior(found, rows, study.problem.prior), study.free.names, study.fitted)
    return found, rows


def _check_effect(study: Study) -> None:
    """Raise ValueError where no test depends on a free parameter, for any data."""
    forms = [test.linear for test in study.tests if test.linear is not None]
    known = [form.reciprocal(study.model, study.free) for form in forms]
    for i, names in enumerate(study.free.tied):
        if all(r is None or np.isnan(r[i]) for r in known):
            raise ValueError(
                f"free parameter '{names[0]}' has no effect on any of the tests, expected parameters with an effect"
            )


def check_equations(rows: Equations, names: tuple[str, ...], entries: tuple[Entry, ...]) -> None:
    """Raise ValueError where there are fewer equations than parameters, or parallel loads leave a parameter
    undetermined."""
    count, needed = rows.measured.size, len(names)
    if count < needed:
        raise ValueError(f"{count} measured values give fewer equations than there are free parameters ({needed})")
    if parallel_loads(entries):
        matrix = np.where(without_effect(rows), 0.0, rows.matrix) / rows.std[:, None]
        known = identifiability(matrix, np.ones(count))
        undetermined = [name for name, std in zip(names, known.std, strict=True) if not np.isfinite(std)]
        if undetermined:
            raise ValueError(
                f"all loads are parallel and do not determine {', '.join(undetermined)}, expected loads in several"
                " directions or these parameters not free"
            )


def parallel_loads(entries: tuple[Entry, ...]) -> bool:
    """Whether there are several wrenches (force and moment), all multiples of one."""
    wrenches = np.concatenate([entry.source.loads for entry in entries])
    if len(wrenches) < 2:
        return False
    wrenches = wrenches / np.linalg.norm(wrenches, axis=1)[:, None]
    across = wrenches - np.outer(wrenches @ wrenches[0], wrenches[0])
    return bool(np.linalg.norm(across, axis=1).max() < PARALLEL)


def outlier_remarks(robust_weight: np.ndarray) -> list[str]:
    """A sentence on measurements down-weighted by a robust fit."""
    outliers = int(np.sum(robust_weight < OUTLIER))
    if not outliers:
        return []
    return [f"{outliers} of {robust_weight.size} measured values are outliers, with little or no weight"]


def body_remarks(estimate: Estimate, step: LinearStep) -> tuple[list[str], list[str]]:
    """Doubts on bodies that could not be made physically consistent, or only with a larger residual, and a remark on
    bodies that are physically inconsistent due to noise or tolerances only."""
    found = step.consistent
    if found is None:
        return [], []
    named, adjusted = listed(found.active), adjustment_remarks(estimate)
    if found.excluding:
        bounds = listed([estimate.study.free.names[i] for i in found.excluding])
        doubt = (
            f"no physically consistent body is within the bounds of {bounds}: masses, first moments and inertias are"
            " those of the best fit within them, expected wider bounds"
        )
        return [doubt, *adjusted], []
    if not found.exists:
        doubt = (
            f"no physically consistent body has the fixed values of {named}: its mass, first moments and inertias are"
            " those of the best fit, expected more free or other fixed parameters"
        )
        return [doubt, *adjusted], []
    noise = 1.0 if step.misfit.explained else step.misfit.square
    by_noise = found.rise <= noise * float(chdtri(found.determined, FALSE_ALARM))
    text = f"the data alone give physically inconsistent bodies ({named}): physical consistency raises chi^2"
    if not (by_noise or estimate.goodness.misfit_tolerated):
        doubt = (
            f"{text} from {step.cost - found.rise:.4g} to {step.cost:.4g}, more than noise explains; a fixed value of"
            " these bodies, or another part of the description, is wrong"
        )
        return [doubt, *adjusted], []
    why = "noise explains" if by_noise else "errors within their tolerances explain"
    return adjusted, [f"{text} by {found.rise:.3g}, which {why}"] if found.rise >= SMALL_RISE else []


def adjustment_remarks(estimate: Estimate) -> list[str]:
    """A sentence on fixed masses that were changed."""
    before, now = parameters(estimate.study.model), parameters(estimate.model)
    free = {name for names in estimate.study.free.tied for name in names}
    changed = [
        f"{name} from {before[name]:.4g} to {now[name]:.4g} kg"
        for name in before
        if name.startswith("mass.") and name not in free and abs(now[name] - before[name]) > 1e-3 * before[name]
    ]
    if not changed:
        return []
    return [
        "no measurement depends on some masses, which were changed to make their bodies physically consistent:"
        f" {listed(changed)}"
    ]
