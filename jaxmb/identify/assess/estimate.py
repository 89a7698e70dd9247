"""A finished fit: solution, goodness of fit, standard deviations, and views of the identified machine by its tests."""

import dataclasses
import functools
import operator
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtri

from jaxmb.identify.assess.budget import (
    Budget,
    DescribedTests,
    budget,
    error_columns,
    explained_tests,
    joint_residual,
    linear_refit,
    machine_errors_in_tests,
    nonlinear_refit,
    wide_prior,
    with_excess,
)
from jaxmb.identify.assess.corrected import CorrectedResidual, JointFit, joint_fit
from jaxmb.identify.assess.modal_agreement import ModalAgreement, modal_agreement
from jaxmb.identify.estimation.identifiability import (
    COUPLED,
    RANK_TOLERANCE,
    Identifiability,
    Jacobian,
    identifiability,
    inverse_std,
    jacobian_svd,
    row_blocks,
    scaled_svd,
    triangular_factor,
)
from jaxmb.identify.experiments.components import Equations
from jaxmb.identify.experiments.machine_errors import MachineErrors
from jaxmb.identify.experiments.test import Entry, residual_of_test
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.fit.linear import LinearStep, Unknowns
from jaxmb.identify.fit.noise import (
    FALSE_ALARM,
    ReducedChiSquare,
    noise_correlation_length,
    reduced_chi_squares,
    reduced_chi_squares_of_tests,
    uninflated_variances,
)
from jaxmb.identify.fit.problem import is_large, state_of_test, with_tests
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import Table
from jaxmb.machine.build import Model
from jaxmb.response.modal import singular_mass_matrices

INCONSISTENT = 2.0
"""Root mean square residual, in units of stated noise, above which no standard deviation covers the effect of model
error on parameters."""
LARGER_NOISE = 2.0
"""Line-to-line scatter, as a variance over that of the stated noise, above which it may be most of a misfit."""
SYSTEMATIC = 0.05
"""Systematic fraction of the variance of the residual above which the fit does not reproduce its data."""
LEAST_LOG_RESIDUAL, LEAST_RESIDUAL = 1e-4, 0.1
"""Residual of log H, and residual over stated noise, below which a systematic fraction is ignored."""


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """Result of a solver: free parameters, the machine with them, and the residual and its derivative there."""

    study: Study
    """The study at these values, with its noise as estimated where it is not known."""
    seed: int
    u: Float[np.ndarray, "d"]
    model: Model
    """Model of the identified machine."""
    views: tuple[Any, ...]
    """Views of the identified machine by each fitted test; not recomputed for other standard deviations."""
    residual: Float[np.ndarray, "m"]
    """Residual in units of the noise, scaled by the roots of the weights; rows of the prior last."""
    jacobian: Jacobian
    """Derivative of the residual by u."""
    stated_variances: Float[np.ndarray, "m"]
    """Variance of each residual under the stated noise: its weight in the fit, 0 for unused rows; in a linear step
    robust weights included."""

    @functools.cached_property
    def compressed(self) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k d"]]:
        """Residual and Jacobian rotated into at most d + 1 rows (see `triangular_factor`)."""
        blocks = (np.column_stack([self.jacobian[rows], self.residual[rows]]) for rows in row_blocks(self.jacobian))
        factor = triangular_factor(blocks)
        return factor[:, -1], factor[:, :-1]


@dataclasses.dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """Residual of a solution compared with its noise and with the tolerances of machine and tests."""

    misfits: dict[str, ReducedChiSquare]
    """Reduced chi-square of each fitted test, by name."""
    misfit: ReducedChiSquare | None
    """Reduced chi-square of all data; None where noise is estimated from the residual."""
    budget: Budget | None
    """Effect of the errors of machine and tests; None where all is exact."""
    explained_by_errors: tuple[bool, ...]
    """Whether errors of machine and tests of their most likely sizes, or those of a fit in two steps, explain the
    misfit of each fitted test."""
    joint: JointFit | None
    """Joint fit of parameters and errors, where the effect of errors is not linear and explains all misfits."""
    misfit_tolerated: bool | None
    """Whether errors within their tolerances, or those of a fit in two steps, explain the misfit of all data; None
    where noise explains it, and where all is exact."""
    untolerated_misfits: dict[str, ReducedChiSquare]
    """`misfits`, at most 1 where errors within their tolerances explain them."""
    untolerated_misfit: ReducedChiSquare | None
    """`misfit`, at most 1 where such errors explain it."""
    systematic_fractions: dict[str, float]
    """Systematic fraction of the residual variance, by name of the fitted tests in which it is significant."""
    gross_errors: dict[str, str]
    """Sentences on gross errors that no tolerance explains, by name of a fitted test; see `Source.gross_errors`."""
    held_out_errors: dict[str, str]
    """Texts on data that the prediction does not reproduce beyond its noise, by name of a held-out test."""
    not_reproduced: tuple[str, ...]
    """Names of the fitted tests that the machine does not reproduce within their noise and the tolerances."""
    without_modes: tuple[str, ...]
    """Names of the fitted tests at whose posture its mass matrix is not positive definite."""
    is_inconsistent: bool
    """Whether the residual of a test is more than `INCONSISTENT` times its stated noise and not tolerated."""

    @property
    def all_by_errors(self) -> bool:
        """Whether errors of machine and tests of their most likely sizes explain the misfits of all tests."""
        return bool(self.explained_by_errors) and all(self.explained_by_errors)

    @property
    def beyond_tolerance(self) -> tuple[str, ...]:
        """Keys of errors of machine or tests that exceed their tolerance beyond chance, of each kind the largest."""
        if self.budget is None or self.budget.excess is None:
            return ()
        largest = (each.members[np.argmax(np.abs(each.sizes))] for each in self.budget.excess.exceeded)
        return tuple(self.budget.errors[k].key for k in largest)

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of all tests that the machine does not reproduce, held-out tests included."""
        return tuple(dict.fromkeys([*self.not_reproduced, *self.held_out_errors]))


def goodness_of_fit(
    solution: Solution, step: LinearStep | None = None, information: Float[np.ndarray, "k d"] | None = None
) -> GoodnessOfFit:
    """Goodness of fit of a solution.

    Args:
        solution: of a search or a linear step.
        step: the linear step, whose chi-square excludes outliers of robust tests; None for a search.
        information: as of `SolverRun`; the part of the residual that errors of u explain is tolerated then.
    """
    study, problem, model = solution.study, solution.study.problem, solution.model
    variances = solution.stated_variances if step is None else step.variances
    each = reduced_chi_squares_of_tests(problem, solution.residual, solution.jacobian, variances)
    total = _misfit(solution, step)
    if information is None:
        stated, by_errors, tolerated, joint = _effect_of_errors(solution, each, step)
    else:
        stated, joint, by_errors = None, None, _explained_by_values(solution, information)
        tolerated = by_errors
    may_be_errors = [not (_is_noise(solution, k, own) or _is_gross(solution, k)) for k, own in enumerate(each)]
    by_errors, tolerated = (tuple(map(operator.and_, part, may_be_errors)) for part in (by_errors, tolerated))
    misfit_tolerated = None
    if not (stated is None and information is None) and total is not None and not total.explained:
        by_test = step is None
        misfit_tolerated = all(t or (by_test and own.explained) for t, own in zip(tolerated, each, strict=True))
    untolerated = [_untolerated(own, allowed) for own, allowed in zip(each, tolerated, strict=True)]
    of_all = total and _untolerated(total, bool(misfit_tolerated))
    systematic, gross, not_reproduced = dict[str, float](), dict[str, str](), list[str]()
    without_modes = list[str]()
    parts = zip(study.fitted, problem.row_slices, solution.views, untolerated, tolerated, strict=True)
    for entry, rows, view, own, allowed in parts:
        test, text = entry.test, entry.source.gross_errors(entry.test, model, solution.jacobian[rows])
        if text and not (allowed and misfit_tolerated):
            gross[test.name] = text
        if test.vibration is not None and singular_mass_matrices(np.asarray(view.tangent.mass)):
            without_modes.append(test.name)
        lines = None if allowed else test.lines
        share = 0.0 if lines is None else lines.systematic(solution.residual[rows], solution.stated_variances[rows])
        is_visible = own.factor * (test.noise.nominal or 0.0) > LEAST_LOG_RESIDUAL
        if share >= SYSTEMATIC and is_visible and (not test.noise.is_known or own.factor > LEAST_RESIDUAL):
            systematic[test.name] = share
        is_systematic = test.noise.between_responses or test.name in systematic
        is_noise = own.explained if test.noise.is_known else not is_systematic
        if test.name in (*gross, *without_modes) or (not is_noise and test.score(view, None).poor):
            not_reproduced.append(test.name)
    held_out = ((entry.name, _held_out_error(solution, entry)) for entry in study.checks)
    # that of a linear step is without the outliers of robust tests
    of_known = (own for test, own in zip(study.tests, untolerated, strict=True) if test.noise.is_known)
    judged = of_known if step is None else [of_all]
    return GoodnessOfFit(
        misfits=dict(zip((test.name for test in study.tests), each, strict=True)),
        misfit=total,
        budget=stated,
        explained_by_errors=by_errors,
        joint=joint,
        misfit_tolerated=misfit_tolerated,
        untolerated_misfits=dict(zip((test.name for test in study.tests), untolerated, strict=True)),
        untolerated_misfit=of_all,
        systematic_fractions=systematic,
        gross_errors=gross,
        held_out_errors={name: text for name, text in held_out if text},
        not_reproduced=tuple(not_reproduced),
        without_modes=tuple(without_modes),
        is_inconsistent=any(own is not None and not own.explained and own.square > INCONSISTENT**2 for own in judged),
    )


def _held_out_error(solution: Solution, entry: Entry) -> str:
    """Text on a held-out test that the identified machine does not reproduce, where neither its noise nor parameters
    that the fitted tests leave uncertain explain that; empty otherwise."""
    test, view = entry.test, entry.test.view(solution.model)
    score, text = test.score(view, None), entry.source.gross_errors(test, solution.model)
    if not (text or score.poor):
        return ""
    # errors of the test increase a noise that is estimated from its residual
    variances = np.asarray(test.stated_variances()) * np.minimum(entry.source.variance_bound(test), 1.0)
    used = variances > 0.0
    scale = 1.0 / np.sqrt(variances[used])
    residual = residual_of_test(test, view)[used] * scale
    slope = state_of_test(solution.study.problem, test, solution.u)[1][used] * scale[:, None]
    known = triangular_factor(solution.jacobian[rows] for rows in row_blocks(solution.jacobian))
    rows = np.concatenate([slope, known])
    remaining = scaled_svd(rows, RANK_TOLERANCE).beside(np.pad(residual, (0, len(rows) - residual.size)))
    if remaining @ remaining <= INCONSISTENT**2 * residual.size:
        return ""
    return text or f"not reproduced by the identified machine ({score.text})"


def _is_noise(solution: Solution, test: int, misfit: ReducedChiSquare) -> bool:
    """Whether most of a misfit is line-to-line scatter, as of noise that is larger than stated: errors of machine and
    tests have smooth effects."""
    problem = solution.study.problem
    rows, lines = problem.row_slices[test], problem.tests[test].lines
    if lines is None or not problem.tests[test].noise.is_known:
        return False
    weights = solution.stated_variances[rows]
    scatter = float(np.mean(lines.scatter(solution.residual[rows], weights)[weights > 0.0]))
    return scatter > LARGER_NOISE and scatter - 1.0 > 0.5 * (misfit.square - 1.0)


def _is_gross(solution: Solution, test: int) -> bool:
    """Whether the prediction of a test on a linear scale misses so much of the measurement that no tolerance allows it,
    although effects of errors, to first order, may explain it. FRFs near resonances are no such test."""
    score = solution.study.tests[test].score(solution.views[test], None)
    return score.explained_percent is not None and score.poor


def _untolerated(misfit: ReducedChiSquare, tolerated: bool) -> ReducedChiSquare:
    """A misfit, at most 1 where it is tolerated."""
    return dataclasses.replace(misfit, square=min(misfit.square, 1.0)) if tolerated else misfit


def _misfit(solution: Solution, step: LinearStep | None) -> ReducedChiSquare | None:
    """Reduced chi-square of all data; None where noise is estimated from the residual."""
    study, problem = solution.study, solution.study.problem
    if step is not None:
        return None if all(entry.source.noise_estimated for entry in study.fitted) else step.misfit
    if not all(test.noise.is_known for test in study.tests):
        return None
    data, own = slice(0, problem.data_rows), sum(test.noise.nuisance_rows for test in study.tests)
    length = np.average([noise_correlation_length(t) for t in study.tests], weights=[t.rows for t in study.tests])
    weights = uninflated_variances(problem, solution.stated_variances)
    return reduced_chi_squares(solution.residual, solution.jacobian, weights, [data], [own], [float(length)])[0]


def _effect_of_errors(
    solution: Solution, each: Sequence[ReducedChiSquare], step: LinearStep | None
) -> tuple[Budget | None, tuple[bool, ...], tuple[bool, ...], JointFit | None]:
    """Effect of the errors of machine and tests, and the misfits that they explain: `budget` and
    `explained_by_errors` of `GoodnessOfFit`, whether errors within their tolerances explain the misfit of each fitted
    test, and `joint`."""
    study, problem = solution.study, solution.study.problem
    if study.tolerances is None or (step is None and (problem.one_by_one or is_large(problem))):
        none = (False,) * len(each)
        return None, none, none, None
    simulated = [test.noise.noiseless(view) for test, view in zip(problem.tests, solution.views, strict=True)]
    entries = [dataclasses.replace(entry, test=test) for entry, test in zip(study.fitted, simulated, strict=True)]
    tests = DescribedTests(entries, solution.model, study.free, study.tolerances, study.exact_tests)
    residual, jacobian = solution.residual, np.asarray(solution.jacobian)
    if step is None:
        rows, noise, factor = problem.row_slices, noise_variances(solution), 1.0
        std = identifiability(solution.jacobian, noise, problem.prior_std).std
        refit = nonlinear_refit(with_tests(problem, simulated), solution.u)
    else:  # the chi-square is that of all tests
        rows, noise = (slice(0, problem.data_rows),), np.pad(step.variances, (0, solution.u.size), constant_values=1.0)
        factor, std = np.sqrt(step.robust_weight[: problem.data_rows]), step.identifiability.std
        residual = np.pad(residual, (0, solution.u.size))
        jacobian = np.concatenate([jacobian, wide_prior(study.free)])
        refit = linear_refit(jacobian)
    point = residual, _without_bound_limited(study.free, solution.u, residual, jacobian)
    found = budget(tests, refit, jacobian, std, solution.seed, factor)
    tried: list[tuple[Budget, tuple[np.ndarray, np.ndarray], JointFit | None]] = [(found, point, None)]
    if found.draws is not None and step is not None:
        tried.insert(0, (_near_joint_fit(solution, point[1], tests, found, factor), point, None))
    elif found.draws is not None:
        plain = CorrectedResidual.of(study, solution.model)
        corrected = plain.with_effects(found.errors, found.columns, study.tolerances, solution.u)
        joint = joint_fit(corrected, study, solution.u, found.errors, noise)
        if joint is not None:
            there = joint.residual, _without_bound_limited(study.free, joint.u, joint.fitted, joint.jacobian)
            tried.insert(0, (found.linearized(joint.columns), there, joint))
    by_errors, joint = (False,) * len(rows), None
    for stated, at, fitted in tried:
        found, joint = with_excess(stated, rows, *at, noise), fitted
        by_errors = explained_tests(found, rows, *at, noise)
        if all(by_errors):
            break
    if joint is not None:  # a fit without errors may be far from it
        beyond = np.diag(_error_moments(solution, found, joint, noise))[: solution.u.size] - np.diag(found.covariance)
        found = found._replace(covariance=found.covariance + np.diag(np.maximum(beyond, 0.0)))
    exceeding = [found.columns[own][:, found.exceeding].any() for own in rows]
    tolerated = tuple(yes and not beyond for yes, beyond in zip(by_errors, exceeding, strict=True))
    times = 1 if step is None else len(each)
    return found, by_errors * times, tolerated * times, joint


def _explained_by_values(solution: Solution, information: Float[np.ndarray, "k d"]) -> tuple[bool, ...]:
    """Whether errors of u within their standard deviations explain the residual of each test beyond its noise, to first
    order."""
    problem, jacobian, scale = (
        solution.study.problem,
        np.asarray(solution.jacobian),
        inverse_std(solution.stated_variances),
    )
    rows = np.concatenate([jacobian * scale[:, None], information])
    change = scaled_svd(rows, RANK_TOLERANCE).solve(np.pad(solution.residual * scale, (0, len(information))))
    is_likely = float(np.sum((information @ change) ** 2)) <= float(chdtri(solution.u.size, FALSE_ALARM))
    rest = solution.residual - jacobian @ change
    left = reduced_chi_squares_of_tests(problem, rest, jacobian, solution.stated_variances)
    return tuple(is_likely and own.explained for own in left)


def _near_joint_fit(
    solution: Solution,
    jacobian: np.ndarray,
    tests: DescribedTests,
    found: Budget,
    factor: Float[np.ndarray, "m"] | float,
) -> Budget:
    """The budget of a linear step with the effect of errors at the parameters of the joint fit to first order: those of
    the step may be far off, as where all torques have errors beyond their noise."""
    free, u = solution.study.free, solution.u
    linear, data = found.linearized(found.columns), slice(0, len(found.columns))
    residual = np.pad(solution.residual, (0, u.size))[:, None]
    weights = np.pad(solution.stated_variances, (0, u.size), constant_values=1.0)
    _, _, change = joint_residual(linear, [data], residual, jacobian, weights)
    there = np.clip(u + change, np.minimum(free.lower, u), np.maximum(free.upper, u))
    model = free.apply(solution.model, free.values(jnp.asarray(there)))
    return found.linearized(error_columns(dataclasses.replace(tests, model=model), found.errors, factor))


def _without_bound_limited(
    free: FreeParameters, u: np.ndarray, residual: np.ndarray, jacobian: np.ndarray
) -> Float[np.ndarray, "m d"]:
    """The Jacobian with columns of zeros for parameters that a bound limits, which explain no residual."""
    return np.where(free.bound_side(u) * (jacobian.T @ residual) < 0.0, 0.0, jacobian)


def noise_variances(solution: Solution) -> Float[np.ndarray, "m"]:
    """Variance of each residual by noise alone: by the line-to-line scatter where the noise is not known."""
    problem, jacobian = solution.study.problem, solution.jacobian
    found, svd = uninflated_variances(problem, solution.stated_variances), jacobian_svd(jacobian)
    for rows, test in zip(problem.row_slices, problem.tests, strict=True):
        weights = solution.stated_variances[rows]
        if not (test.noise.is_known or test.lines is None):
            found[rows] *= test.lines.scatter(solution.residual[rows], weights)
        basis = svd.basis(jacobian[rows])
        found[rows] *= test.noise.variance_factor(basis, weights)
        found[rows] *= test.noise.known_factor(basis, solution.residual[rows], weights)
    return found


class LinearSystem(NamedTuple):
    """Linear step of a linear study, with its equations."""

    unknowns: Unknowns
    equations: Equations
    step: LinearStep
    start: Float[np.ndarray, "d"]
    """Physical values kept by parameters without effect on any measurement."""


class SolverRun(NamedTuple):
    """Run of the solver that made an estimate."""

    initial: Float[np.ndarray, "d"]
    """Initial physical values."""
    cost: float
    """Cost of the data, without that of the prior."""
    initial_cost: float
    variances: Float[np.ndarray, "m"]
    """Variance of each residual, in units of the noise."""
    evaluations: dict[str, int]
    history: list[tuple[int, float]]
    """(evaluations, best objective so far)."""
    doubts: tuple[str, ...] = ()
    """Sentences on noise and convergence."""
    information: Float[np.ndarray, "k d"] | None = None
    """Information about u, where the estimate is not at the minimum of the cost; else that of the Jacobian."""


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate(Solution):
    """A finished fit: a solution with its goodness of fit, standard deviations, and the history of its solver."""

    values: Float[np.ndarray, "d"]
    """Physical values of the free parameters."""
    identifiability: Identifiability
    """Standard deviations and verdicts of u, from the Jacobian; in a diagnosis with its corrections so far."""
    goodness: GoodnessOfFit
    run: SolverRun
    solved: Fit | LinearSystem
    """Starts and minima of a search, or the linear step."""
    systematic_covariance: Float[np.ndarray, "d d"]
    """Covariance of u due to systematic errors."""
    has_std: bool = True
    """Whether standard deviations of u, or of any combination, are reported."""

    @property
    def linear(self) -> LinearSystem | None:
        """Linear step; None for a search."""
        return self.solved if isinstance(self.solved, LinearSystem) else None

    @property
    def std(self) -> Float[np.ndarray, "d"]:
        """Standard deviations of u."""
        return self.identifiability.std

    @property
    def std_unknown(self) -> bool:
        """Whether the machine does not reproduce a fitted test, or its errors allow no standard deviations."""
        return bool(self.goodness.not_reproduced) or any(entry.source.std_unknown for entry in self.study.fitted)

    @property
    def without_std(self) -> "Estimate":
        """The estimate without standard deviations, as of a machine that does not reproduce its data."""
        return dataclasses.replace(self.with_std(np.full(self.u.size, np.inf)), has_std=False)

    def with_std(self, std: Float[np.ndarray, "d"]) -> "Estimate":
        """The estimate with other standard deviations and the verdicts that follow."""
        return dataclasses.replace(self, identifiability=self.identifiability.with_std(std))

    def with_added_covariance(self, covariance: Float[np.ndarray, "d d"]) -> "Estimate":
        """The estimate with a covariance of systematic errors of u added to that of noise."""
        known = self.identifiability._replace(covariance=self.identifiability.covariance + covariance)
        systematic = self.systematic_covariance + covariance
        added = dataclasses.replace(self, identifiability=known, systematic_covariance=systematic)
        return added.with_std(np.sqrt(self.identifiability.std**2 + np.diag(covariance)))

    @functools.cached_property
    def error_moments(self) -> Float[np.ndarray, "k k"] | None:
        """Expected products of the corrections of u and of the errors of machine and tests, over their likely sizes,
        given the data [d + e, d + e]; None where all is exact.

        An error that the residual would show is smaller than its tolerance, and a correction of u compensates a part of
        the others. Of the joint fit where the effect of errors is not linear; without one to first order.
        """
        found = self.goodness.budget
        return None if found is None else _error_moments(self, found, self.goodness.joint, self.run.variances)

    @functools.cached_property
    def machine_errors(self) -> dict[str, tuple[StatedError, MachineErrors]]:
        """Possible errors of the identified machine and their directions, by key."""
        return {each[0].key: each for each in machine_errors_in_tests(self.model, self.study.free, self.study.fitted)}

    @functools.cached_property
    def covariance_by_errors(self) -> "CovarianceWithErrors | None":
        """Covariance of u and of errors of the machine by tolerances alone; None where the machine is exact."""
        found, moments, d = self.goodness.budget, self.error_moments, self.u.size
        if found is None or moments is None:
            return None
        index = [k for k, error in enumerate(found.errors) if error.key in self.machine_errors]
        kept = np.append(np.arange(d), d + np.array(index, dtype=int))
        sizes = found.factors * [error.std(self.study.tolerances) for error in found.errors]
        keys = tuple(found.errors[k].key for k in index)
        return CovarianceWithErrors(keys, sizes[index], moments[np.ix_(kept, kept)]) if keys else None

    @functools.cached_property
    def agreements(self) -> dict[str, ModalAgreement]:
        """Fitted modes paired with the modes of a modal analysis, by name of the fitted tests that have one."""
        pairs = zip(self.study.fitted, self.views, strict=True)
        found = ((entry.name, modal_agreement(entry, view, self.model)) for entry, view in pairs)
        return {name: agreement for name, agreement in found if agreement is not None}

    @functools.cached_property
    def noise_levels(self) -> dict[str, float]:
        """Noise estimated from the residual (`Noise.level`), by name of each fitted test without a stated one."""
        problem, found = self.study.problem, dict[str, float]()
        for rows, test in zip(problem.row_slices, problem.tests, strict=True):
            if not test.noise.is_known:
                residual, square = self.residual[rows], self.goodness.misfits[test.name].square
                expected = float(np.sum(residual**2)) / square if square > 0.0 else 1.0
                found[test.name] = test.noise.estimated_level(residual, expected)
        return found

    def fitted_of(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, Any, slice]]:
        """The fitted ones of some entries, each with its view and its rows."""
        each = zip(self.study.fitted, self.views, self.study.problem.row_slices, strict=True)
        known = {entry.name: (view, rows) for entry, view, rows in each}
        return ((entry, *known[entry.name]) for entry in entries if entry.role == "fit")


class CovarianceWithErrors(NamedTuple):
    """Covariance of the free parameters and of errors of the machine within their tolerances, given the data."""

    errors: tuple[str, ...]
    """Keys of the errors."""
    std: Float[np.ndarray, "e"]
    """Their likely standard deviations, SI."""
    matrix: Float[np.ndarray, "k k"]
    """Of the entries of u and of the errors over `std` [d + e, d + e]; NaN for unknown entries of u."""

    def scaled(self, scale: Float[np.ndarray, "d"]) -> "CovarianceWithErrors":
        """The same of the entries of u times some numbers."""
        both = np.append(scale, np.ones(len(self.errors)))
        return self._replace(matrix=self.matrix * np.outer(both, both))

    @classmethod
    def read(cls, saved: Table | None, scale: Float[np.ndarray, "d"]) -> "CovarianceWithErrors | None":
        """That of `result.json`, whose parameters are entries of u times some numbers; None without errors."""
        if saved is None:
            return None
        numbers = (np.array(saved[name], dtype=float) for name in ("std", "matrix"))
        return cls(tuple(saved["errors"]), *numbers).scaled(1.0 / scale)


def _error_moments(
    solution: Solution, found: Budget, joint: JointFit | None, variances: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "k k"]:
    """See `Estimate.error_moments`; `variances` are those of the residual."""
    count, columns, scale = len(found.errors), found.columns * found.factors, inverse_std(variances)[:, None]
    residual, jacobian = (solution.residual, solution.jacobian) if joint is None else (joint.residual, joint.jacobian)
    jacobian, columns = np.asarray(jacobian), np.pad(columns, ((0, len(scale) - len(columns)), (0, 0)))
    weighted, plain = scaled_svd(jacobian * scale, RANK_TOLERANCE), jacobian_svd(jacobian)
    effect, beside = -plain.gain @ (plain.basis(jacobian).T @ columns), weighted.beside(columns * scale)
    covariance = np.linalg.inv(np.eye(count) + beside.T @ beside)
    if joint is None:
        errors = -covariance @ beside.T @ weighted.beside(residual * scale[:, 0])
        mean = np.append(effect @ errors, errors)
    else:
        mean = np.append(joint.u - solution.u, joint.sizes / found.factors)
    both = np.concatenate([effect, np.eye(count)])
    return both @ covariance @ both.T + np.outer(mean, mean)


class Diagnosis(NamedTuple):
    """Errors of model or data found in an estimate beyond its noise."""

    estimate: Estimate
    """The estimate, its standard deviations with the effect of these errors."""
    has_model_error: bool
    """Whether the model does not reproduce the data within its noise and the stated tolerances."""
    doubts: Sequence[str]
    remarks: Sequence[str]
    causes: Sequence[str] = ()
    """Sentences on likely causes of a residual larger than its noise."""
    hypothesis: str = ""
    """Sentence on the model-error hypotheses that explain the residual; empty for none."""
    metrics: Mapping[str, object] = types.MappingProxyType({})
    """Fields of `Metrics` by name."""


LEAST_GROUPS = 2
"""Smallest number of groups of a jackknife: of two tests one may be as described and the other not."""


def with_jackknife(estimate: Estimate) -> Estimate:
    """The estimate with standard deviations of u at least those from fits without each group of rows: the largest of
    all ways of grouping (`Noise.groups`).

    Args:
        estimate: of a problem whose Jacobian is in memory.
    """
    found = [jackknife_covariance(estimate, labels) for labels in _labels(estimate)]
    beyond = np.max([np.diag(each) for each in found], axis=0) - estimate.std**2
    return estimate.with_added_covariance(with_variances(np.sum(found, axis=0), np.maximum(beyond, 0.0)))


def with_variances(covariance: Float[np.ndarray, "d d"], variances: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d d"]:
    """Covariance of the same correlation with other variances; 0 where it has none."""
    stated = np.diag(covariance)
    scale = np.sqrt(variances / np.where(stated > 0.0, stated, np.inf))
    return covariance * np.outer(scale, scale)


def jackknife_covariance(estimate: Estimate, labels: Int[np.ndarray, "m"]) -> Float[np.ndarray, "d d"]:
    """Covariance of u from fits without each group of rows, to first order; 0 for parameters that a group alone
    determines, and with fewer than `LEAST_GROUPS`.

    Args:
        estimate: of a problem whose Jacobian is in memory.
        labels: group of each row of the data; rows of a negative one are always fitted.

    Source: Wu, "Jackknife, bootstrap and other resampling methods in regression analysis", Ann. Statist. 14, 1261
    (1986); MacKinnon and White, J. Econometrics 29, 305 (1985), HC3.
    """
    jacobian, residual = np.asarray(estimate.jacobian), estimate.residual
    size = np.linalg.norm(jacobian, axis=0)
    scale = np.where(size > 0.0, size, 1.0)
    scaled, steps = jacobian / scale, []
    whole = scaled.T @ scaled
    for group in np.unique(labels[labels >= 0]):
        own = np.flatnonzero(labels == group)
        values, vectors = np.linalg.eigh(whole - scaled[own].T @ scaled[own])
        known = values > COUPLED * values[-1]
        step = vectors[:, known] / values[known] @ (vectors[:, known].T @ (scaled[own].T @ residual[own]))
        steps.append(np.where(np.linalg.norm(vectors[:, ~known], axis=1) > COUPLED, 0.0, step) / scale)
    count, change = len(steps), np.array(steps)
    if count < LEAST_GROUPS:
        return np.zeros((size.size, size.size))
    return (count - 1.0) / count * change.T @ change


def _labels(estimate: Estimate) -> list[np.ndarray]:
    """Group of each row of the data in several groupings; groups of different tests differ. The last is by test."""
    problem = estimate.study.problem
    each = [test.noise.groups for test in problem.tests]
    groupings, first = max(map(len, each)), 0
    found = [np.zeros(problem.data_rows, dtype=int) for _ in range(groupings + 1)]
    for rows, groups in zip(problem.row_slices, each, strict=True):
        for k in range(groupings):
            found[k][rows] = first + groups[min(k, len(groups) - 1)]
        found[groupings][rows] = first
        first += int(groups.max(initial=0)) + 1
    return found
