"""Estimate of a linear study by one linear step: its equations, diagnosis and status, and the search for the error, or
the two errors, that explain the misfit of deflections or torques."""

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Bool, Float
from scipy.special import chdtri, fdtri

from jaxmb.identify.assess.budget import Budget, finite, machine_errors_in_tests, wide_prior
from jaxmb.identify.assess.corrected import rotated
from jaxmb.identify.assess.estimate import (
    Diagnosis,
    Estimate,
    LinearSystem,
    Solution,
    SolverRun,
    goodness_of_fit,
    noise_variances,
    with_jackknife,
)
from jaxmb.identify.assess.hypotheses import (
    Drops,
    FittedHypothesis,
    Hypothesis,
    PairStart,
    Whitening,
    drops,
    refits_of_pairs,
    single_and_common,
)
from jaxmb.identify.assess.kinds import with_systematic_errors
from jaxmb.identify.assess.model_errors import (
    EXPLAINS,
    HALF,
    Explanations,
    ModelError,
    best_above_half,
    explain_all,
    further_springs,
    group_rows,
    is_of_tests,
    model_errors_text,
    named_hypotheses,
    outlying_groups,
    with_hypotheses,
)
from jaxmb.identify.assess.remarks import INFLATED, body_remarks, outlier_remarks, tests_text, value_remarks
from jaxmb.identify.assess.result import Outcome
from jaxmb.identify.assess.tests.torque import EXACT, beyond_noise
from jaxmb.identify.assess.uncertainty.nonlinear import beyond_bounds
from jaxmb.identify.estimation.identifiability import (
    RANK_TOLERANCE,
    identifiability,
    scaled_svd,
    triangular_factor,
)
from jaxmb.identify.estimation.least_squares import host_minimum
from jaxmb.identify.estimation.linear import MOST_ROUNDS, LinearFit, linear_fit
from jaxmb.identify.experiments.components import Equations, is_robust
from jaxmb.identify.experiments.machine_errors import (
    MachineErrors,
    all_elastic,
    payload_carriers,
    with_further_springs,
    with_machine_errors,
)
from jaxmb.identify.experiments.test import Entry, Test
from jaxmb.identify.experiments.tolerances import NEAR, StatedError, usual
from jaxmb.identify.experiments.torque.torque_test import torque_entries
from jaxmb.identify.fit.linear import (
    LinearStep,
    Unknowns,
    inertias_without_effect,
    linear_equations,
    linear_step,
    reported_identifiability,
    stacked,
    unknowns,
    with_prior,
    without_effect,
)
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.fit.physical_consistency import bodies
from jaxmb.identify.fit.problem import Prior, is_large, linearized
from jaxmb.identify.parameters.model_parameters import parameters, with_numbers
from jaxmb.identify.study.reading.parameters import fixed_values
from jaxmb.identify.study.study import Solver, Study, known_values, linear_in
from jaxmb.io.validation import display_name, error_location
from jaxmb.machine.build import Model
from jaxmb.mechanics.postures import OutOfReachError

WEIGHTS_NOT_CONVERGED = f"{Outcome.NOT_CONVERGED}: the robust weights still move after {MOST_ROUNDS} rounds"
NO_ACTIVE_SET = f"{Outcome.NOT_CONVERGED}: the active set of bounds was not identified"
RESTRICTED = 2.0
"""Squared residual over that of a fit of all parameters above which half of it is systematic: standard deviations are
at least those of a jackknife unless they include the cause."""
PARALLEL = 1e-6
"""Sine of the angle between two wrenches below which they are parallel, and 1 - cosine of the effects of two errors."""


def diagnosed_linear(estimate: Estimate, linear: LinearSystem) -> Diagnosis:
    """Diagnosis of a linear step: systematic errors of its tests, a restricted fit, model-error hypotheses, jackknife,
    a common factor, outliers, bodies, bounds.

    Args:
        estimate: from `linear_estimate`.
        linear: its equations.
    """
    step, systematic = linear.step, list[str]()
    has_model_error = bool(estimate.goodness.not_reproduced) or estimate.goodness.is_inconsistent
    if not (has_model_error or estimate.goodness.misfit_tolerated):
        estimate, systematic = with_systematic_errors(estimate)
    restricted = _restricted_remarks(estimate, linear)
    explanations = linear_model_errors(estimate, linear)
    hypotheses = explanations.errors
    has_model_error = has_model_error or bool(
        hypotheses or (restricted and not systematic and step.misfit.square > RESTRICTED)
    )
    if has_model_error:
        estimate = with_jackknife(estimate)
    common = [] if has_model_error else _common_factor(estimate, linear)
    estimate = with_hypotheses(estimate, explanations)
    if common or estimate.std_unknown:
        estimate = estimate.without_std
    stated = estimate.goodness.budget
    known = (
        estimate.identifiability
        if stated is None
        else estimate.with_added_covariance(stated.covariance).identifiability
    )
    # gross errors invalidate everything else
    on_bodies, of_noise = ([], []) if estimate.goodness.gross_errors else body_remarks(estimate, step)
    # consequences of the error
    systematic = [] if explain_all(hypotheses) else systematic
    on_bodies = [] if is_of_tests(hypotheses) else on_bodies
    beyond = beyond_bounds(estimate, step.identifiability.std)[1]
    on_bounds, of_values = value_remarks(estimate.study, linear, known, beyond)
    return Diagnosis(
        estimate=estimate,
        has_model_error=has_model_error,
        doubts=(
            *(error.text for error in common),
            *outlier_remarks(step.robust_weight),
            *systematic,
            *on_bodies,
            *on_bounds,
        ),
        remarks=(*of_noise, *of_values),
        causes=restricted,
        hypothesis=model_errors_text(hypotheses, {entry.kind for entry in estimate.study.fitted}),
        metrics={
            "adjusted_parameters": adjusted_parameters(estimate.study, estimate.values, step) or None,
            "model_errors": (*hypotheses, *common) or None,
            "further_springs": explanations.further_springs or None,
        },
    )


AS_STATED, LEAST_FACTOR, MOST_OFF = 0.99, 3.0, 0.03
"""Part of the squares of the data that the stated machine explains up to a common factor, least such factor, and
largest relative difference from a usual one, for a doubt."""


def _common_factor(estimate: Estimate, linear: LinearSystem) -> list[ModelError]:
    """A usual factor between the data and their prediction by the machine as stated, which free parameters absorb."""
    study, rows = estimate.study, linear.equations
    own = parameters(study.model)
    values = np.array([own.get(names[0], 0.0) for names in study.free.tied])
    with np.errstate(divide="ignore"):
        stated = linear.unknowns.encode(values)
    if not np.isfinite(stated).all():
        return []
    scale = np.sqrt(estimate.stated_variances[: rows.measured.size]) / rows.std
    predicted, measured = rows.matrix @ stated * scale, rows.measured * scale
    size, both = float(predicted @ predicted), float(predicted @ measured)
    if size <= 0.0 or both <= 0.0:
        return []
    factor, share = both / size, min(both**2 / (size * float(measured @ measured)), 1.0)
    near = float(np.clip(3.0 * np.sqrt((1.0 - share) / values.size), NEAR, MOST_OFF))
    if share < AS_STATED or abs(np.log(factor)) < np.log(LEAST_FACTOR) or not usual(factor, near):
        return []
    text = (
        f"the data are {factor:.3g} times the prediction of the machine as stated, which explains {100.0 * share:.3g} %"
        f" of them with this factor{usual(factor, near)}: the free parameters absorb a wrong unit of all loads,"
        " displacements or torques"
    )
    return [ModelError(text, share, study.free.named(linear.unknowns.decode(linear.step.x / factor)))]


def linear_estimate(study: Study, seed: int = 0) -> Estimate:
    """Estimate of a linear study in one linear step, with the views of the identified machine.

    Args:
        study: from `load_study`, its predictions linear in the free values or their reciprocals.
        seed: of later random orders and draws.

    Raises:
        ValueError: the predictions are not linear in the parameters, or the tests do not determine these.
    """
    return _estimate_of_solution(*linear_solution(study, seed))


def linear_solution(study: Study, seed: int = 0) -> tuple[Solution, LinearSystem, Float[np.ndarray, "d"]]:
    """Solution of a linear study without its goodness of fit, its equations and physical values; see
    `linear_estimate`."""
    return _solution_of_equations(study, *_checked_equations(study), seed)


def _solution_of_equations(
    study: Study, found: Unknowns, rows: Equations, seed: int
) -> tuple[Solution, LinearSystem, Float[np.ndarray, "d"]]:
    """Solution of a linear study by its equations."""
    stacked = with_prior(found, rows, study.problem.prior)
    start = known_values(study.model, study.free, study.start)
    fixed = fixed_values(study.model, study.origin.file)
    free_bodies = bodies(
        study.model, study.free, inertias_without_effect(study.model, study.free, study.tests, rows, fixed)
    )
    robust, lengths = any(map(is_robust, study.tests)), [test.noise.correlation_lengths for test in study.tests]
    step = linear_step(found, stacked, start, robust, free_bodies, study.problem.prior_std, np.concatenate(lengths))
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
        residual=-np.sqrt(step.stated_variances) * step.residual / stacked.std,
        jacobian=step.jacobian,
        stated_variances=step.stated_variances,
    )
    return solution, LinearSystem(found, rows, step, start), values


def _estimate_of_solution(solution: Solution, system: LinearSystem, values: Float[np.ndarray, "d"]) -> Estimate:
    """The solution with its goodness of fit."""
    study, step = solution.study, system.step
    goodness = goodness_of_fit(solution, step)
    return Estimate(
        **vars(solution),
        values=values,
        identifiability=reported_identifiability(
            step, 1.0 if goodness.all_by_errors else step.misfit.widening, study.free.needed
        ),
        goodness=goodness,
        solved=system,
        systematic_covariance=np.zeros((values.size, values.size)),
        run=SolverRun(
            initial=system.start,
            cost=step.cost,
            initial_cost=_cost(system.equations, step.stated_variances, system.unknowns.encode(system.start)),
            variances=step.stated_variances,
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
        return NO_ACTIVE_SET
    converged = ended.startswith(Outcome.NOT_REPRODUCED) or all(fit.weights_converged for fit in fits)
    return ended if converged else WEIGHTS_NOT_CONVERGED


def _restricted_remarks(estimate: Estimate, linear: LinearSystem) -> list[str]:
    """A sentence where a fit of all inertial and friction parameters has a significantly smaller residual than the
    fit."""
    goodness, misfit = estimate.goodness, linear.step.misfit
    rows = linear.equations
    is_exact = linear.step.cost <= EXACT**2 * _cost(rows, estimate.stated_variances, np.zeros(rows.matrix.shape[1]))
    is_good = misfit.explained or goodness.not_reproduced or goodness.misfit is not None or goodness.all_by_errors
    if is_good or is_exact:
        return []
    # the noise is estimated from the effective number of independent samples
    tests = [entry.test for entry in estimate.study.fitted if entry.source.noise_estimated]
    ranks = (scaled_svd(np.asarray(test.regressor), RANK_TOLERANCE).rank for test in tests)
    degrees = sum(
        float(np.sum(1.0 / test.noise.correlation_lengths)) - rank for test, rank in zip(tests, ranks, strict=True)
    )
    if tests and misfit.square <= float(fdtri(misfit.degrees, max(1.0, degrees), 1.0 - FALSE_ALARM)):
        return []
    return [
        f"the residual is {misfit.factor:.3g} times that of a fit of all inertial and friction parameters: fixed"
        " values, bounds or a prior limit the fit, friction differs between tests, or the zero of an angle, a length or"
        f" the direction of gravity is wrong{INFLATED}"
    ]


def _cost(rows: Equations, stated_variances: np.ndarray, x: np.ndarray) -> float:
    weights = stated_variances[: rows.measured.size]
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
        known = [test.linear.reciprocal(study.model, study.free) for test in study.tests if test.linear is not None]
        for i, names in enumerate(study.free.tied):
            if all(r is None or np.isnan(r[i]) for r in known):
                raise ValueError(
                    f"free parameter '{names[0]}' has no effect on any of the tests, expected parameters with an effect"
                )
    rows = linear_equations(study.model, study.free, study.tests)
    with error_location(tests_text([entry.name for entry in study.fitted])):
        check_equations(with_prior(found, rows, study.problem.prior), study.free.names, study.fitted)
    return found, rows


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


TRIED = 8
"""Errors that are refitted: those that explain most to first order."""
LINEAR = 0.1
"""Least decrease to first order, over the largest one, of an error that may explain most of a misfit."""
SAME = 1e-3
"""Relative difference of sums of squares up to which starts fit alike."""
STEP = 1e-3
"""Step of derivatives, in typical sizes."""
MOST_STEPS = 30


@dataclasses.dataclass(frozen=True, eq=False)
class LinearHypothesisSearch:
    """Fits of hypotheses on a linear study."""

    estimate: Estimate
    linear: LinearSystem
    model: Model
    """With further springs for deflections, and springs instead of locks."""
    machine: tuple[tuple[StatedError, MachineErrors], ...]
    whiten: Whitening

    @functools.cached_property
    def errors(self) -> list[StatedError]:
        """Possible errors of machine and tests, equal keys once."""
        of_machine = (error for error, _ in self.machine)
        of_tests = (entry.source.errors(entry.test, self.estimate.model) for entry in self.estimate.study.fitted)
        return list({error.key: error for error in itertools.chain(of_machine, *of_tests)}.values())

    @functools.cached_property
    def _as_stated(self) -> list[Equations]:
        """Equations of each test."""
        return [linear_equations(self.model, self.estimate.study.free, [test]) for test in self.estimate.study.tests]

    def equations(self, tests: Mapping[int, Test], errors: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Matrix and measured values in units of the covariance; see `scaled_equations`."""
        both = self.whiten(np.column_stack(self.scaled_equations(tests, errors)))
        return both[:, :-1], both[:, -1]

    def scaled_equations(self, tests: Mapping[int, Test], errors: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Matrix and measured values over the standard deviations of the rows.

        Args:
            tests: alternatives, by index.
            errors: sizes by key, SI.
        """
        study = self.estimate.study
        model, own = self._described(tests, errors)
        each = [
            self._as_stated[k]
            if model is self.model and own[k] is test
            else linear_equations(model, study.free, own[k:][:1])
            for k, test in enumerate(study.tests)
        ]
        rows = with_prior(self.linear.unknowns, stacked(each), study.problem.prior)
        scale = np.sqrt(self.linear.step.stated_variances) / rows.std
        return np.nan_to_num(rows.matrix * scale[:, None]), np.nan_to_num(rows.measured * scale)

    def _described(self, tests: Mapping[int, Test], errors: Mapping[str, float]) -> tuple[Model, list[Test]]:
        """Machine and tests with some of these as alternatives, and with some errors corrected."""
        study = self.estimate.study
        model = with_machine_errors(self.model, study.free, self.machine, errors)
        return model, [
            tests[k] if k in tests else entry.source.corrected(entry.test, model, errors)
            for k, entry in enumerate(study.fitted)
        ]

    def remaining_share(self, end: FittedHypothesis, residual: Float[np.ndarray, "m"]) -> float:
        """Part of the sum of squares, in units of the noise alone, that a hypothesis leaves of a residual in the tests
        that it changes: those that are as described dilute it."""
        sizes = {error.key: size for error, size in end.errors}
        model, own = self._described(end.hypothesis.alternatives, sizes)
        rows, study = np.zeros(residual.size, bool), self.estimate.study
        for part, test, there in zip(study.problem.row_slices, study.tests, own, strict=True):
            rows[part] = model is not self.model or there is not test or not end.hypothesis.is_one_number
        before = self.whiten.over_noise(residual) ** 2
        return 1.0 - (float(before.sum()) - end.noise_squares) / max(float(before[rows].sum()), 1e-300)

    def solved(self, tests: Mapping[int, Test], errors: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Fitted unknowns and the residual in units of the covariance."""
        matrix, measured = self.equations(tests, errors)
        bounds = self.linear.unknowns.lower, self.linear.unknowns.upper
        factor = triangular_factor([np.column_stack([matrix, measured])])  # the same fit, of as many rows as columns
        x = linear_fit(factor[:, :-1], factor[:, -1], np.ones(len(factor)), *bounds).values
        return x, matrix @ x - measured

    def lowered_at_starts(self, error: StatedError, chi_square: float) -> bool:
        """Whether the sum of squares is lower at a start of an error than `chi_square`, that without it."""
        try:
            far = [self.solved({}, {error.key: size})[1] for size in error.starts]
        except OutOfReachError:
            return True  # its fit keeps to sizes within reach
        return any(float(there @ there) < (1.0 - SAME) * chi_square for there in far)

    def fitted(self, hypothesis: Hypothesis, starts: Sequence[Float[np.ndarray, "k"]] = ()) -> FittedHypothesis:
        """Fit of a hypothesis.

        Args:
            hypothesis: the hypothesis.
            starts: of the sizes of its errors over the typical ones; none for 0 and the starts of its error.
        """
        error, errors = hypothesis.error, hypothesis.fitted
        if error is None:
            x, residual = self.solved(hypothesis.alternatives, {})
            return FittedHypothesis(hypothesis, x, float(residual @ residual), self.noise_squares(residual))
        typical = np.array([each.typical for each in errors])

        def of_sizes(sizes: np.ndarray) -> dict[str, float]:
            return {each.key: float(size) for each, size in zip(errors, sizes * typical, strict=True)}

        def residual_at(sizes: np.ndarray) -> np.ndarray:
            try:
                return np.nan_to_num(self.solved({}, of_sizes(sizes))[1], nan=1e6)
            except OutOfReachError:
                return np.full(self.whiten.scale.size, 1e6)

        def secant(sizes: np.ndarray) -> np.ndarray:
            half = 0.5 * (error.step / error.typical or STEP * np.maximum(1.0, np.abs(sizes)))
            before, behind = np.maximum(sizes - half, low), np.minimum(sizes + half, high)
            changes = [
                residual_at(np.where(k, behind, sizes)) - residual_at(np.where(k, before, sizes))
                for k in np.eye(sizes.size, dtype=bool)
            ]
            return np.transpose(changes) / (behind - before)

        low, high = np.array([each.bounds for each in errors]).T / typical
        starts = starts or [*np.divide([[0.0, *error.starts]], error.typical).T]
        starts = [start for start in starts if np.all((low <= start) & (start <= high))]
        residuals = [residual_at(start) for start in starts]
        costs = [float(of_start @ of_start) for of_start in residuals]
        # where free parameters share a scale, all starts fit alike and have no minimum: the first is kept
        best = next(k for k, cost in enumerate(costs) if cost <= (1.0 + SAME) * min(costs))
        # the first step is as large as the start: of a compliance from its bound it would end the fit
        margin = 1e-2 * np.maximum(np.where(np.isfinite(low), np.abs(low), 0.0), 1.0)
        inside = np.clip(starts[best], low + margin, high)
        found = scipy.optimize.least_squares(
            residual_at, inside, secant, bounds=(low, high), x_scale=np.maximum(np.abs(inside), 1.0),
            ftol=1e-4 if error.step else 1e-6, max_nfev=MOST_STEPS,
        )  # fmt: skip
        sizes, residual = found.x, found.fun
        if residual @ residual > (1.0 - SAME) * costs[best]:
            sizes, residual = starts[best], residuals[best]
        x, _ = self.solved({}, of_sizes(sizes))
        return FittedHypothesis(
            hypothesis, np.append(x, sizes), float(residual @ residual), self.noise_squares(residual)
        )

    def noise_squares(self, residual: np.ndarray) -> float:
        """Sum of squares, in units of the noise alone, of a residual in units of the covariance."""
        return float(np.sum(self.whiten.over_noise(residual) ** 2))


def linear_model_errors(estimate: Estimate, linear: LinearSystem) -> Explanations:
    """Model-error hypotheses that each explain most of the misfit of a linear step, and further springs; see
    `model_errors`.

    Where the noise is estimated from the residual, a smaller one that the best hypothesis leaves takes its place.
    """
    study, goodness = estimate.study, estimate.goodness
    is_explained = linear.step.misfit.explained or goodness.misfit_tolerated
    is_doubtful = bool(not is_explained or goodness.beyond_tolerance or goodness.not_reproduced)
    # a large residual whose noise is estimated from it: another description may leave less
    if not (is_doubtful or beyond_noise(estimate, torque_entries(study.fitted))):
        return Explanations()
    search, degrees = _search(estimate, linear)
    residual = search.solved({}, {})[1]
    chi_square, estimated = float(residual @ residual), all(entry.source.noise_estimated for entry in study.fitted)
    first_order, noise_limit = _columns(search, {}), float(chdtri(degrees, FALSE_ALARM))
    likely, others = _likely(search, *first_order)
    exact = ((entry.name, entry.source.refined(entry.test, search.model)) for entry in study.fitted)
    known = ((entry.name, entry.source.alternatives(entry.test, search.model)) for entry in study.fitted)
    refined, alternatives = ([Hypothesis(None, *each) for each in single_and_common(some)] for some in (exact, known))
    found = list[FittedHypothesis]()
    lowered = (Hypothesis(error) for error in others if search.lowered_at_starts(error, chi_square))
    for some in ((*refined, *likely), alternatives, lowered):
        if not estimated and found and min(end.chi_square for end in found) <= noise_limit:
            break  # another one leaves noise alone
        found += (end for end in map(search.fitted, some) if end.is_plausible)
    lowest = min((end.chi_square for end in found), default=chi_square)
    if lowest - degrees > (1.0 - EXPLAINS) * (chi_square - degrees):
        found += _composite(search, *first_order)
    if not found:
        return Explanations()
    if not estimated:
        found += _pairs(search, found, noise_limit)
    least = min(end.chi_square for end in found)
    most = MOST_LEFT if is_doubtful or least <= noise_limit else 1.0 - EXPLAINS
    best = min(found, key=lambda end: end.noise_squares)
    share = best.noise_squares / search.noise_squares(residual)
    # noise that is estimated is bounded by the recorded spectrum, and by the residual of a fit of all parameters
    is_noise = chi_square > noise_limit and chi_square - least >= EXPLAINS * (chi_square - degrees)
    before = linear.step.misfit
    after = dataclasses.replace(before, square=before.square * share)
    is_as_all = not before.explained and after.explained and after.square - 1.0 <= HALF * (before.square - 1.0)
    is_bounded = not any(entry.source.std_unknown for entry in torque_entries(study.fitted))  # no saturated torques
    if estimated and not (search.remaining_share(best, residual) <= most or (is_bounded and (is_noise or is_as_all))):
        return Explanations()
    # an error may have increased the estimate of the noise
    noise = float(np.clip(least / degrees, 1e-300, 1.0)) if estimated else 1.0
    tried = len(search.errors) + len(found)
    found = [end._replace(chi_square=end.chi_square / noise) for end in found]
    springs = further_springs(search.model, found, chi_square / noise, degrees, tried)
    chi_squares, sizes = [end.chi_square for end in found], [end.surprise for end in found]
    named, explains = named_hypotheses(chi_squares, sizes, chi_square / noise, degrees, noise_limit, tried)

    def values_of(end: FittedHypothesis) -> dict[str, float]:
        return study.free.named(linear.unknowns.decode(end.x[: study.free.size]))

    if not (named or estimated):
        groups, best = _without_groups(search, chi_square, degrees), best_above_half(found, chi_square, degrees, tried)
        return Explanations(groups, springs, None if groups or best is None else values_of(best))
    machine = [error for error, _ in search.machine]
    errors = tuple(
        ModelError(
            end.text, min(explains, 1.0), values_of(end),
            of_machine=end.is_among(machine) or not end.hypothesis.is_one_number,
        )
        for end in (found[k] for k in named)
    )  # fmt: skip
    return Explanations(errors, springs)


def errors_of_linear_tests(estimate: Estimate) -> Explanations:
    """Model-error hypotheses of tests without a description of their own, such as torque tests, in a search: as of a
    linear study of these alone, whose prior is the fit of the other tests to first order.

    None where noise and tolerances explain their residual, or where the other tests have a misfit of their own.
    """
    study, problem, goodness = estimate.study, estimate.study.problem, estimate.goodness
    own = [k for k, test in enumerate(problem.tests) if test.description is None and test.linear is not None]
    missed = [name for name, misfit in goodness.untolerated_misfits.items() if not misfit.explained]
    doubtful = {*missed, *goodness.not_reproduced} & {problem.tests[k].name for k in own}
    if goodness.misfit_tolerated or not doubtful or problem.one_by_one or is_large(problem):
        return Explanations()
    rows, columns = np.zeros(estimate.residual.size, bool), np.zeros((estimate.residual.size, 0))
    for k in own:
        rows[problem.row_slices[k]] = True
    if goodness.budget is not None:
        columns = _tolerated_columns(goodness.budget, rows.size)
    free, width = study.free, np.asarray(study.free.width)
    by_value = dataclasses.replace(
        free, logarithmic=(False,) * free.size, lower=jax.device_put(free.lower_value / width),
        upper=jax.device_put(free.upper_value / width),
    )  # fmt: skip
    prior = _prior_by_values(estimate, ~rows, columns[~rows])
    if prior is None:
        return Explanations()
    part = dataclasses.replace(
        problem, free=by_value, tests=tuple(problem.tests[k] for k in own), views=(None,) * len(own), prior=prior
    )
    entries = tuple(study.fitted[k] for k in own)
    alone = dataclasses.replace(study, problem=part, entries=entries, tolerances=None, solver=Solver.LINEAR_STEP)
    unknown = unknowns(by_value, np.zeros(free.size, bool))
    equations = linear_equations(study.model, by_value, part.tests)
    found = _estimate_of_solution(*_solution_of_equations(alone, unknown, equations, estimate.seed))
    if goodness.budget is not None:
        data = rows[: problem.data_rows]
        parts = {name: getattr(goodness.budget, name)[data] for name in ("columns", "curvature")}
        of_own = goodness.budget._replace(**parts, draws=None, excess=None)
        found = dataclasses.replace(found, goodness=dataclasses.replace(found.goodness, budget=of_own))
    return Explanations() if found.linear is None else linear_model_errors(found, found.linear)


def _prior_by_values(
    estimate: Estimate, rows: Bool[np.ndarray, "m"], columns: Float[np.ndarray, "k e"]
) -> Prior | None:
    """Prior of the free values over their widths, that of a fit of some rows of a search to first order; None where
    noise and tolerances do not explain their residual.

    Args:
        estimate: of the search.
        rows: mask of those that are fitted.
        columns: change of their residual by one standard deviation of each error.
    """
    problem, free, wide = estimate.study.problem, estimate.study.free, wide_prior(estimate.study.free)
    whiten = Whitening(noise_variances(estimate)[rows], columns)

    def state(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        residual, jacobian, _ = linearized(problem, u)
        both = whiten(np.column_stack([np.asarray(jacobian), residual])[rows])
        return np.append(both[:, -1], wide @ (u - estimate.u)), np.concatenate([both[:, :-1], wide])

    u, _ = host_minimum(functools.partial(rotated, state), estimate.u, np.asarray(free.lower), np.asarray(free.upper))
    residual, jacobian = state(u)
    degrees = np.count_nonzero(whiten.scale) - scaled_svd(jacobian[: -free.size], RANK_TOLERANCE).rank
    if residual @ residual > chdtri(max(degrees, 1), FALSE_ALARM):
        return None
    values, width = free.values(u), np.asarray(free.width)
    by_value = triangular_factor([jacobian * (width / free.slope(values))])
    return Prior(*map(jax.device_put, (values / width, np.ones(free.size), by_value)))


def _pairs(
    search: LinearHypothesisSearch, found: Sequence[FittedHypothesis], noise_limit: float
) -> list[FittedHypothesis]:
    """Refits of two errors; see `refits_of_pairs`."""

    def beside(end: FittedHypothesis) -> Drops:
        fitted = end.hypothesis.fitted
        at = {error.key: size * error.typical for error, size in zip(fitted, end.sizes.tolist(), strict=True)}
        matrix, residual, columns = _columns(search, at)
        known = np.column_stack([matrix, *(columns[:, search.errors.index(error)] for error in fitted)])
        return drops(residual, known, columns)

    def fitted(both: Hypothesis, starts: Sequence[PairStart]) -> FittedHypothesis:
        return search.fitted(both, [sizes for _, sizes in starts])

    return refits_of_pairs(found, search.errors, search.model, beside, fitted, noise_limit)


def _without_groups(search: LinearHypothesisSearch, chi_square: float, degrees: float) -> tuple[ModelError, ...]:
    """Load cases without which the residual is noise, with the values of a fit without them."""
    size, x = search.estimate.residual.size, np.zeros(0)

    def fitted(kept: np.ndarray) -> tuple[Whitening, np.ndarray, np.ndarray]:
        nonlocal x
        own = dataclasses.replace(search, whiten=search.whiten.of_rows(kept))
        x, residual = own.solved({}, {})
        return own.whiten, residual, own.equations({}, {})[0]

    kept, names = outlying_groups(group_rows(search.estimate), np.ones(size), degrees, fitted)
    if not names:
        return ()
    residual, free = fitted(kept)[1], search.estimate.study.free
    explains = min(1.0 - (float(residual @ residual) - degrees) / max(chi_square - degrees, 1e-300), 1.0)
    values = search.linear.unknowns.decode(x[: free.size])
    return (ModelError(f"excluding {' and '.join(names)}", explains, free.named(values)),)


MOST_LEFT = 0.5
"""Part of the sum of squares of the residual, in units of the noise alone, that an error leaves at most where the noise
is not known."""


def _search(estimate: Estimate, linear: LinearSystem) -> tuple[LinearHypothesisSearch, float]:
    """The search, and the degrees of freedom."""
    study, model = estimate.study, estimate.model
    has_loads = all(len(entry.source.loads) for entry in study.fitted)
    model = with_further_springs(model) if has_loads else model
    # further springs are locked here, so that their errors are compliances
    known = tuple(machine_errors_in_tests(model, study.free, study.fitted))
    model = all_elastic(model) if has_loads else model
    lengths, variances = np.ones(estimate.residual.size), estimate.stated_variances.copy()
    for rows, entry in zip(study.problem.row_slices, study.fitted, strict=True):
        # an error increases the estimated noise of all joints
        own, bound = entry.test.noise.correlation_lengths, entry.source.variance_bound(entry.test)
        bounded = bound < own
        lengths[rows] = np.where(bounded, 1.0, own)
        variances[rows] *= np.where(bounded, bound, own)
    budget = estimate.goodness.budget
    effects = np.zeros((estimate.residual.size, 0)) if budget is None else _tolerated_columns(budget, variances.size)
    used = variances > 0.0
    degrees = float(np.sum(1.0 / lengths[used])) - scaled_svd(np.asarray(estimate.jacobian), RANK_TOLERANCE).rank
    return LinearHypothesisSearch(estimate, linear, model, known, Whitening(variances, effects)), max(degrees, 1.0)


def _tolerated_columns(budget: Budget, count: int) -> Float[np.ndarray, "m c"]:
    """Columns of the covariance of the residual by errors within their tolerances; zeros in rows of a prior."""
    found = np.concatenate([budget.columns, budget.curvature], axis=1)
    return np.pad(found, ((0, count - len(found)), (0, 0)))


def _columns(search: LinearHypothesisSearch, sizes: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrix, residual and its change by each error over the typical one, where some errors (by key) have sizes, SI."""
    matrix, _ = search.equations({}, sizes)
    x, residual = search.solved({}, sizes)

    def missed(errors: Mapping[str, float]) -> np.ndarray:
        try:
            there, measured = search.scaled_equations({}, errors)
        except OutOfReachError:
            return np.full(residual.size, np.nan)
        return there @ x - measured

    columns, none = list[np.ndarray](), missed(sizes)
    for error in search.errors:
        step, own = 0.5 * error.step or STEP * error.typical, sizes.get(error.key, 0.0)
        before = missed({**sizes, error.key: own - step}) if error.step else none
        change = missed({**sizes, error.key: own + step}) - before
        columns.append(finite(change) * error.typical / (2.0 * step if error.step else step))
    return matrix, residual, search.whiten(np.reshape(columns, (-1, residual.size)).T)


FARTHEST = 1.0
"""Largest plausible distance of the centre of a payload from its frame, m."""
EVERY_JOINT = "Coulomb friction", "viscous friction", "offset of the torque"
"""Kinds of friction that a machine without friction lacks."""


def _composite(
    search: LinearHypothesisSearch, matrix: np.ndarray, residual: np.ndarray, columns: np.ndarray
) -> list[FittedHypothesis]:
    """Errors of several numbers, fitted to first order: friction of all joints, and payloads whose centre is not known.

    Their sums of squares are increased to be as significant as those of single numbers.

    Args:
        search: of a linear study.
        matrix: of its equations.
        residual: of its fit.
        columns: change of the residual by each error over the typical one.
    """
    errors, model = search.errors, search.model
    number = {error.key: k for k, error in enumerate(errors)}
    free = [k for key, k in number.items() if key.startswith("friction of ") and key.endswith(EVERY_JOINT)]
    groups = [(free, -1, "")] if len(free) > len(EVERY_JOINT) else []
    for frame, carrier in zip(*(part.tolist() for part in payload_carriers(model)), strict=True):
        parts = itertools.product(("centre of mass", "moment of inertia"), "xyz")
        keys = [
            f"payload {model.frames[frame]}",
            *(f"{part} of {model.masses[carrier]} {axis}" for part, axis in parts),
        ]
        if all(key in number for key in keys):
            groups.append(([number[key] for key in keys], carrier, model.frames[frame]))
    found, decoded = dict[int, tuple[float, FittedHypothesis]](), search.solved({}, {})[0]
    lower, upper = search.linear.unknowns.lower - decoded, search.linear.unknowns.upper - decoded
    for group, carrier, frame in groups:
        if not columns[:, group].any():
            continue
        both, wide = np.column_stack([matrix, columns[:, group]]), np.full(len(group), np.inf)
        factor = triangular_factor([np.column_stack([both, -residual])])
        ends = np.append(lower, -wide), np.append(upper, wide)
        x = linear_fit(factor[:, :-1], factor[:, -1], np.ones(len(factor)), *ends).values
        sizes = x[decoded.size :] * [errors[k].typical for k in group]
        away, text = 0.0, "missing friction and offsets of the torques of all joints"
        if frame:
            away = float(model.mass[carrier]) * float(np.linalg.norm(sizes[1:4])) / max(float(sizes[0]), 1e-300)
            text = f"a payload of {sizes[0]:.3g} kg, its centre {1e3 * away:.3g} mm from {frame},"
        rest = residual + both @ x
        as_one = float(chdtri(len(group), FALSE_ALARM) - chdtri(1, FALSE_ALARM))
        end = decoded + x[: decoded.size], float(rest @ rest) + as_one, search.noise_squares(rest)
        if away < found.get(carrier, (FARTHEST, None))[0]:  # frames of a body are one hypothesis
            found[carrier] = away, FittedHypothesis(Hypothesis(text=text, is_one_number=False), *end)
    return [end for _, end in found.values()]


def _likely(
    search: LinearHypothesisSearch, matrix: np.ndarray, residual: np.ndarray, columns: np.ndarray
) -> tuple[list[Hypothesis], list[StatedError]]:
    """The errors that explain most to first order, and others that may be wrong by a large factor; see `_composite`."""
    errors = search.errors
    # not those of a test with the effect, beside the free parameters, of the error that is common to all tests
    beside = scaled_svd(matrix, RANK_TOLERANCE).beside(columns)
    unit = beside / np.maximum(np.linalg.norm(beside, axis=0), np.finfo(float).tiny)
    alike = np.abs(unit.T @ unit) > 1.0 - PARALLEL
    own = [
        [k != i and error.key.startswith(f"{e.key} ") for i, e in enumerate(errors)] for k, error in enumerate(errors)
    ]
    same = ~columns.any(axis=0) | np.any(alike & own, axis=1)
    less = np.where(same, 0.0, drops(residual, matrix, columns)[1])
    order = [k for k in np.argsort(-less).tolist() if less[k] > LINEAR * less.max()][:TRIED]
    far = [k for k, error in enumerate(errors) if error.starts and not error.step and not same[k]]
    return [Hypothesis(errors[k]) for k in order], [errors[k] for k in far if k not in order]
