"""Goodness of fit: the residual of a solution compared with its noise and with the tolerances of machine and tests."""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.budget import Budget, DescribedTests, budget, explained
from jaxmb.identify.estimation.identifiability import Jacobian, knowledge, row_blocks, triangular_factor
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.linear import LinearStep
from jaxmb.identify.fit.noise import Misfit, effective_length, misfits, misfits_of_tests, row_variances, sampled_weights
from jaxmb.identify.fit.problem import is_large
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model

INCONSISTENT = 2.0
"""Root mean square residual, in units of stated noise, above which no standard deviation covers the effect of model
error on parameters."""
SYSTEMATIC = 0.05
"""Systematic fraction of the variance of the residual above which the fit does not reproduce its data."""
LEAST_LEFT = 1e-4, 0.1
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
    row_weights: Float[np.ndarray, "m"]
    """Variance of each residual under the stated noise."""

    @functools.cached_property
    def compressed(self) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k d"]]:
        """Residual and Jacobian rotated into at most d + 1 rows (see `triangular_factor`)."""
        blocks = (np.column_stack([self.jacobian[rows], self.residual[rows]]) for rows in row_blocks(self.jacobian))
        factor = triangular_factor(blocks)
        return factor[:, -1], factor[:, :-1]


@dataclasses.dataclass(frozen=True, eq=False)
class GoodnessOfFit:
    """Residual of a solution compared with its noise and with the tolerances of machine and tests."""

    misfits: Sequence[Misfit]
    """Reduced chi-square of each fitted test."""
    misfit: Misfit | None
    """Reduced chi-square of all data; None where noise is estimated from the residual."""
    budget: Budget | None
    """Effect of the errors of machine and tests; None where all is exact."""
    tolerated: tuple[bool, ...]
    """Whether such errors, within their tolerances, explain the misfit of each test."""
    misfit_tolerated: bool | None
    """Whether they explain the misfit of all data; None without such a misfit, and where all is exact."""
    systematic: dict[str, float]
    """Systematic fraction of the residual variance, by name of the fitted tests in which it is significant."""
    gross_errors: dict[str, str]
    """Sentences on gross errors that no tolerance explains, by name of a fitted test; see `Source.gross_errors`."""
    held_out_errors: dict[str, str]
    """Sentences on gross errors, by name of a held-out test."""
    not_reproduced: tuple[str, ...]
    """Names of the fitted tests that the machine does not reproduce within their noise and the tolerances."""
    is_inconsistent: bool
    """Whether the residual of a test is at least `INCONSISTENT` times its stated noise and not tolerated."""

    @property
    def all_tolerated(self) -> bool:
        """Whether errors within their tolerances explain the misfits of all tests."""
        return bool(self.tolerated) and all(self.tolerated)

    @property
    def excess(self) -> Misfit | None:
        """`misfit`, at most 1 where errors within the stated tolerances explain it."""
        return self.misfit and _excess(self.misfit, bool(self.misfit_tolerated))

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of all tests that the machine does not reproduce, held-out tests included."""
        return tuple(dict.fromkeys([*self.not_reproduced, *self.held_out_errors]))


def goodness_of_fit(solution: Solution, step: LinearStep | None = None) -> GoodnessOfFit:
    """Goodness of fit of a solution.

    Args:
        solution: of a search or a linear step.
        step: the linear step, whose chi-square excludes outliers of robust tests; None for a search.
    """
    study, problem, model = solution.study, solution.study.problem, solution.model
    each = misfits_of_tests(problem, solution.residual, solution.jacobian, solution.row_weights)
    whole, (stated, tolerated) = _misfit(solution, step), _tolerances(solution, each, step)
    misfit_tolerated = None
    if stated is not None and whole is not None and not whole.explained:
        by_test = step is None
        misfit_tolerated = all(t or (by_test and own.explained) for t, own in zip(tolerated, each, strict=True))
    systematic, gross = _systematic(solution, each, tolerated), dict[str, str]()
    for entry, rows, allowed in zip(study.fitted, problem.rows, tolerated, strict=True):
        text = entry.source.gross_errors(entry.test, model, solution.jacobian[rows], study.free)
        if text and not (allowed and misfit_tolerated):
            gross[entry.name] = text
    held_out = {entry.name: entry.source.gross_errors(entry.test, model) for entry in study.checks}
    excesses = [_excess(own, allowed) for own, allowed in zip(each, tolerated, strict=True)]
    if step is not None:  # without the outliers of robust tests
        judged = [] if whole is None else [_excess(whole, bool(misfit_tolerated))]
    else:
        judged = [own for test, own in zip(study.tests, excesses, strict=True) if test.noise.is_known]
    not_reproduced = list[str]()
    for test, view, own in zip(study.tests, solution.views, excesses, strict=True):
        is_noise = own.explained
        if not test.noise.is_known:
            is_noise = not (test.noise.correlation.between_responses or test.name in systematic)
        if test.name in gross or (not is_noise and test.score(view, None).poor):
            not_reproduced.append(test.name)
    return GoodnessOfFit(
        misfits=each,
        misfit=whole,
        budget=stated,
        tolerated=tolerated,
        misfit_tolerated=misfit_tolerated,
        systematic=systematic,
        gross_errors=gross,
        held_out_errors={name: text for name, text in held_out.items() if text},
        not_reproduced=tuple(not_reproduced),
        is_inconsistent=any(not own.explained and own.square > INCONSISTENT**2 for own in judged),
    )


def _excess(misfit: Misfit, tolerated: bool) -> Misfit:
    """A misfit, at most 1 where it is tolerated."""
    return dataclasses.replace(misfit, square=min(misfit.square, 1.0)) if tolerated else misfit


def _misfit(solution: Solution, step: LinearStep | None) -> Misfit | None:
    """Reduced chi-square of all data; None where noise is estimated from the residual."""
    study, problem = solution.study, solution.study.problem
    if step is not None:
        return None if all(entry.source.noise_estimated for entry in study.fitted) else step.misfit
    if not all(test.noise.is_known for test in study.tests):
        return None
    data, own = slice(0, problem.data_rows), sum(test.noise.nuisance_rows for test in study.tests)
    length = np.average([effective_length(t) for t in study.tests], weights=[t.rows for t in study.tests])
    weights = sampled_weights(problem, solution.row_weights)
    return misfits(solution.residual, solution.jacobian, weights, [data], [own], [float(length)])[0]


def _tolerances(
    solution: Solution, each: Sequence[Misfit], step: LinearStep | None
) -> tuple[Budget | None, tuple[bool, ...]]:
    """Effect of the errors of machine and tests, None where all is exact, and whether it explains each misfit."""
    study, problem = solution.study, solution.study.problem
    not_linearized = study.two_steps or problem.one_by_one or is_large(problem)
    if study.tolerances is None or (step is None and not_linearized):
        return None, (False,) * len(each)
    tests = DescribedTests(study.fitted, solution.model, study.exact)
    point = solution.residual, solution.jacobian, solution.row_weights
    if step is not None:
        factor, whole = np.sqrt(step.robust_weight[: problem.data_rows]), (slice(0, problem.data_rows),)
        std = step.known.std
        found = budget(tests, problem, solution.u, step.jacobian, std, study.tolerances, seed=None, factor=factor)
        return found, explained(found, whole, *point) * len(each)
    std = knowledge(solution.jacobian, row_variances(problem, *point), problem.prior_std).std
    misfit = not all(t.noise.is_known and own.explained for t, own in zip(study.tests, each, strict=True))
    found = budget(tests, problem, solution.u, solution.jacobian, std, study.tolerances, solution.seed, misfit=misfit)
    parts = zip(study.tests, problem.rows, strict=True)
    expected = [_by_noise(test, solution.residual[rows], solution.row_weights[rows]) for test, rows in parts]
    return found, explained(found, problem.rows, *point, expected)


def _by_noise(test: Test, residual: np.ndarray, row_weights: np.ndarray) -> float:
    """Sum of squares of a residual by noise alone; by the line-to-line scatter where the noise is not known."""
    whole = float(np.sum(row_weights))
    if test.noise.is_known or test.lines is None:
        return whole
    return whole * test.lines.scatter(residual, row_weights)


def _systematic(solution: Solution, each: Sequence[Misfit], tolerated: Sequence[bool]) -> dict[str, float]:
    """Systematic fraction of the residual variance, by name of the fitted tests in which it is significant."""
    problem, found = solution.study.problem, {}
    for rows, test, misfit, allowed in zip(problem.rows, problem.tests, each, tolerated, strict=True):
        if test.lines is None or allowed:
            continue
        share = test.lines.systematic(solution.residual[rows], solution.row_weights[rows])
        size = misfit.factor * (test.noise.nominal or 0.0)
        is_significant = size > LEAST_LEFT[0] and (not test.noise.is_known or misfit.factor > LEAST_LEFT[1])
        if is_significant and share >= SYSTEMATIC:
            found[test.name] = share
    return found
