"""Refits of single errors in the description of a machine or its tests."""

import dataclasses
import functools
import types
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import chdtri

from jaxmb.identify.assess.corrected import Corrected
from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.identify.estimation.least_squares import MOST_EVALUATIONS, host_minimum
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.fit.problem import test_at

EXPLAINS = 0.9
"""Part of the misfit beyond noise that an error explains where its correction does not leave noise alone."""
SCREENED = 8
"""Evaluations of a refit from each start."""


class Metric(NamedTuple):
    """Inverse root of the covariance of the residual: of the noise, and of errors within their tolerances."""

    scale: Float[np.ndarray, "m"]
    """1 over the standard deviation of the noise; 0 for unused rows."""
    basis: Float[np.ndarray, "m k"]
    """Orthonormal directions of these errors, in units of the noise."""
    less: Float[np.ndarray, "k"]
    """1 - 1 / (standard deviation along each)."""

    def __call__(self, columns: Float[np.ndarray, "m *c"]) -> Float[np.ndarray, "m *c"]:
        """Columns in units of the covariance."""
        scaled = (columns.T * self.scale).T
        return scaled - self.basis @ ((self.basis.T @ scaled).T * self.less).T

    def without(self, kept: Float[np.ndarray, "m"]) -> "Metric":
        """The metric of the rows that are kept."""
        return self._replace(scale=self.scale * kept, basis=self.basis * kept[:, None])

    def squares(self, columns: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "c"]:
        """Sums of squares in units of the noise alone, of columns in units of the covariance."""
        along = self.basis.T @ columns
        return np.sum(columns**2, axis=0) + np.sum(along**2 * (1.0 / (1.0 - self.less[:, None]) ** 2 - 1.0), axis=0)


def metric(variances: Float[np.ndarray, "m"], effects: Float[np.ndarray, "m e"]) -> Metric:
    """The metric of noise with some variances and errors with some effects of one standard deviation each."""
    scale = np.where(variances > 0.0, 1.0 / np.sqrt(np.where(variances > 0.0, variances, 1.0)), 0.0)
    left, values, _ = np.linalg.svd(effects * scale[:, None], full_matrices=False)
    return Metric(scale, left, 1.0 - 1.0 / np.hypot(1.0, values))


def drops(
    residual: Float[np.ndarray, "m"], jacobian: Float[np.ndarray, "m d"], columns: Float[np.ndarray, "m c"]
) -> tuple[float, Float[np.ndarray, "c"]]:
    """Sum of squares of the residual beside the free parameters, and its decrease in a fit with each error, to first
    order; all in units of the covariance.

    Args:
        residual: of the fit.
        jacobian: by the free parameters.
        columns: by the errors.
    """
    svd = scaled_svd(jacobian, RANK_TOLERANCE)
    beside, rest = svd.beside(columns), svd.beside(residual)
    own = np.sum(beside**2, axis=0)
    has_effect = own > 1e-12 * np.sum(columns**2, axis=0)
    return float(rest @ rest), np.where(has_effect, (beside.T @ rest) ** 2 / np.where(has_effect, own, 1.0), 0.0)


class Hypothesis(NamedTuple):
    """An error of one number, or alternatives to some tests."""

    error: StatedError | None = None
    tests: Mapping[int, Test] = types.MappingProxyType({})
    """Alternatives, by index of the test."""
    text: str = ""
    """Of alternatives."""


NONE = Hypothesis()


def prior(size: float) -> float:
    """-2 times the logarithm of a Cauchy distribution of the size of an error over its typical one."""
    return float(2.0 * np.log1p(size**2))


class FittedHypothesis(NamedTuple):
    """A refitted hypothesis."""

    hypothesis: Hypothesis
    x: np.ndarray
    """Fitted unknowns, and the size of an error over the typical one."""
    chi_square: float
    squares: float = np.nan
    """Sum of squares of the residual in units of the noise alone; not known in searches."""

    @property
    def size(self) -> float:
        """Size of an error over the typical one; 0 for alternatives."""
        return 0.0 if self.hypothesis.error is None else float(self.x[-1])

    @property
    def surprise(self) -> float:
        """Size for comparisons of likelihood; 0 for alternatives."""
        error = self.hypothesis.error
        return 0.0 if error is None else error.surprise(self.size * error.typical)

    @property
    def score(self) -> float:
        """Sum of squares with the size of the error as a prior."""
        return self.chi_square + prior(self.surprise)

    @property
    def is_convention(self) -> bool:
        """Whether an error of this size, not 0, is one of another convention, such as 90 deg."""
        return self.size != 0.0 and self.surprise < 1e-9

    @property
    def is_plausible(self) -> bool:
        """Whether an error of this size is plausible."""
        error = self.hypothesis.error
        return error is None or error.is_plausible(self.size * error.typical)

    @property
    def text(self) -> str:
        """The hypothesis with its size."""
        error = self.hypothesis.error
        return self.hypothesis.text if error is None else error.described(self.size * error.typical)


@dataclasses.dataclass(frozen=True, eq=False)
class HypothesisSearch:
    """Refits of hypotheses."""

    corrected: Corrected
    metric: Metric
    noise: float
    """Expected sum of squares of the residual: degrees of freedom."""
    masked: slice | Bool[np.ndarray, "m"] | None = None
    """Rows that are left out."""
    allowance: float | None = None
    """Sum of squares above `noise` that counts as noise; None for that of its chi-square distribution."""

    def of_hidden(self, chi_square: float, hidden: float) -> "HypothesisSearch":
        """Refits that explain a part of a sum of squares that is normal as a whole."""
        return dataclasses.replace(self, noise=max(chi_square - hidden, 1.0), allowance=(1.0 - EXPLAINS) * hidden)

    @property
    def enough(self) -> float:
        """Largest sum of squares of noise alone."""
        return float(chdtri(self.noise, FALSE_ALARM)) if self.allowance is None else self.noise + self.allowance

    @property
    def size(self) -> int:
        """Number of free parameters."""
        return self.corrected.problem.free.size

    def state(self, hypothesis: Hypothesis, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residual in units of its covariance, and its Jacobian by u and, for an error, its size over the typical
        one."""
        errors, error = self.corrected.errors, hypothesis.error
        x, columns = np.zeros(len(errors)), np.arange(self.size)
        if error is not None:
            k = errors.index(error)
            x[k], columns = y[-1] * error.typical, np.append(columns, self.size + k)
        residual, jacobian = self.corrected.state(y[: self.size], x, columns, hypothesis.tests)
        if error is not None:
            jacobian[:, -1] *= error.typical
        if self.masked is not None:
            residual[self.masked], jacobian[self.masked] = 0.0, 0.0
        return self.metric(residual), self.metric(jacobian)

    def cost(self, u: np.ndarray) -> float:
        """Sum of squares of the residual in units of the noise alone, which tolerances do not lower."""
        residual, _ = self.corrected.state(u, np.zeros(len(self.corrected.errors)), np.zeros(0, dtype=int))
        return float(np.sum((residual * self.metric.scale) ** 2))

    def fitted(
        self, hypothesis: Hypothesis, first: np.ndarray, evaluations: int = MOST_EVALUATIONS
    ) -> FittedHypothesis:
        """Fit of a hypothesis, from a start, with at most so many evaluations."""
        free, error = self.corrected.problem.free, hypothesis.error
        lower, upper = np.asarray(free.lower), np.asarray(free.upper)
        if error is not None:
            low, high = error.bounds
            lower, upper = np.append(lower, low / error.typical), np.append(upper, high / error.typical)
        x, residual = host_minimum(functools.partial(self.state, hypothesis), first, lower, upper, evaluations)
        return FittedHypothesis(hypothesis, x, float(residual @ residual))

    def at_size(self, hypothesis: Hypothesis, first: np.ndarray) -> FittedHypothesis:
        """Fit of the free parameters at the size of an error in a start: one of 90 deg displaces them."""

        def state(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            residual, jacobian = self.state(hypothesis, np.append(u, first[-1]))
            return residual, jacobian[:, :-1]

        free = self.corrected.problem.free
        lower, upper = np.asarray(free.lower), np.asarray(free.upper)
        u, residual = host_minimum(state, first[:-1], lower, upper, SCREENED)
        return FittedHypothesis(hypothesis, np.append(u, first[-1]), float(residual @ residual))

    def reproduces(self, end: FittedHypothesis) -> bool:
        """Whether a refit reproduces its alternatives to tests: smaller lengths have smaller residuals in any case."""
        if end.chi_square <= self.enough:
            return True
        problem, values = self.corrected.problem, self.corrected.problem.free.values(end.x[: self.size])
        model = problem.free.apply(problem.model, values)
        tests = (test_at(test, problem.free, values) for test in end.hypothesis.tests.values())
        return not any(test.score(test.view(model), None).poor for test in tests)
