"""Studies whose predictions are linear in the free values, or in their reciprocals: one linear step."""

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Bool, Float

from jaxmb.identify.estimation.identifiability import Identifiability, identifiability, jacobian_svd
from jaxmb.identify.estimation.linear import linear_fit, tukey_square
from jaxmb.identify.experiments.components import Equations
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.noise import ReducedChiSquare, reduced_chi_square
from jaxmb.identify.fit.physical_consistency import (
    Bodies,
    ConsistentSolution,
    bodies_with_free_inertia,
    consistent_solution,
    inertial_parameters,
)
from jaxmb.identify.fit.problem import Prior
from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, free_parameters
from jaxmb.machine.build import Model
from jaxmb.machine.families import NOT_NEGATIVE

NO_EFFECT = 1e-12
"""Norm of a column of the equations, over the largest one, below which the parameter has no effect."""


@dataclasses.dataclass(frozen=True, eq=False)
class Unknowns:
    """Unknowns x of linear equations: the free values, or their reciprocals."""

    free: FreeParameters
    reciprocal: Bool[np.ndarray, "d"]
    lower: Float[np.ndarray, "d"]
    """Lower bounds of x: 1 over the upper bound for reciprocals, else the lower bound, at least 0 for non-negative
    families."""
    upper: Float[np.ndarray, "d"]
    """Upper bounds of x: 1 over the lower bound for reciprocals, else the upper bound."""

    def encode(self, values: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """Unknowns x of physical values; it is its own inverse."""
        return np.where(self.reciprocal, 1.0 / np.where(self.reciprocal, values, 1.0), values)

    decode = encode

    def slope(self, x: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """dx / du, with u the entries of `FreeParameters`."""
        of_reciprocal = -x * np.where(self.free.logarithmic, 1.0, x * self.free.width)
        return np.where(self.reciprocal, of_reciprocal, self.free.slope(x))


@dataclasses.dataclass(frozen=True, eq=False)
class LinearStep:
    """Least squares solution of linear equations, with uncertainties."""

    x: Float[np.ndarray, "d"]
    jacobian: Float[np.ndarray, "m d"]
    """Derivative of the residuals by u, scaled by the roots of the weights, robust weights included."""
    identifiability: Identifiability
    """Standard deviations and verdicts of the entries u of the free parameters."""
    without_effect: Bool[np.ndarray, "d"]
    """Mask of parameters without effect on any measurement."""
    on_bound: Bool[np.ndarray, "d"]
    residual: Float[np.ndarray, "m"]
    """Measured minus fitted."""
    robust_weight: Float[np.ndarray, "m"]
    weights_converged: bool
    """Whether the robust weights converged."""
    active_set_found: bool
    """Whether the active set of bounds was identified."""
    cost: float
    """Sum of weight (residual / std)^2, robust weights included."""
    misfit: ReducedChiSquare
    """Reduced chi-square of the rows of the tests."""
    stated_variances: Float[np.ndarray, "m"]
    """Weight of the squared error of each row, in addition to its inverse variance; robust weights included."""
    variances: Float[np.ndarray, "m"]
    """Variance of each residual under the stated noise, scaled by the root of its weight: less than the weight in a
    robust fit, as Tukey's weights reduce the mean square of normal errors."""
    prior_std: Float[np.ndarray, "d"] | None = None
    """Standard deviation of the prior of u, whose rows are the last ones; None without a prior."""
    consistent: ConsistentSolution | None = None
    """Physically consistent solution where inertial parameters are free; it determines `x`."""


def unknowns(free: FreeParameters, reciprocal: Bool[np.ndarray, "d"]) -> Unknowns:
    """Unknowns of a linear step, with their bounds.

    Args:
        free: the free parameters.
        reciprocal: from `linear_in`.
    """
    floored = np.array([all(_is_not_negative(name) for name in names) for names in free.tied], dtype=bool)
    low, high = np.array(free.lower_value), np.array(free.upper_value)
    low = np.where(floored, np.maximum(low, 0.0), low)
    with np.errstate(divide="ignore"):
        lower, upper = np.where(reciprocal, 1.0 / high, low), np.where(reciprocal, 1.0 / low, high)
    return Unknowns(free, reciprocal, lower, upper)


def _is_not_negative(name: str) -> bool:
    family, _, *axes = name.split(".")
    return family in NOT_NEGATIVE or (family == "compliance" and axes[0] == axes[1])


def linear_equations(model: Model, free: FreeParameters, tests: Sequence[Test]) -> Equations:
    """Linear equations of several tests, stacked and with consecutive case numbers; tests without are left out."""
    return stacked([test.linear.equations(model, free) for test in tests if test.linear is not None])


def stacked(parts: Sequence[Equations]) -> Equations:
    """Equations of several tests as one, with consecutive case numbers."""
    first = np.cumsum([0, *(int(part.case.max(initial=-1)) + 1 for part in parts)])
    cases = [part.case + start for part, start in zip(parts, first, strict=False)]
    columns = (np.concatenate(column) for column in zip(*(part[:4] for part in parts), strict=True))
    return Equations(*columns, case=np.concatenate(cases))


def with_prior(unknown: Unknowns, rows: Equations, prior: Prior | None) -> Equations:
    """The equations, with a row appended for each parameter with a prior.

    Args:
        unknown: the unknowns.
        rows: of the tests.
        prior: of the free parameters, in u = value / width.
    """
    if prior is None:
        return rows
    of, mean = np.flatnonzero(np.isfinite(np.asarray(prior.std))), np.asarray(prior.mean)
    by_u = np.asarray(prior.rows)[of]
    return Equations(
        matrix=np.concatenate([rows.matrix, by_u / np.array(unknown.free.width)]),
        measured=np.concatenate([rows.measured, by_u @ mean]),
        std=np.concatenate([rows.std, np.ones(of.size)]),
        weight=np.concatenate([rows.weight, np.ones(of.size)]),
        case=np.concatenate([rows.case, int(rows.case.max(initial=-1)) + 1 + np.arange(of.size)]),
    )


def without_effect(rows: Equations) -> Bool[np.ndarray, "d"]:
    """Mask of unknowns without effect on any measurement."""
    effect = np.linalg.norm(rows.matrix / rows.std[:, None], axis=0)
    return effect <= NO_EFFECT * effect.max(initial=0.0)


def inertias_without_effect(
    model: Model, free: FreeParameters, tests: Sequence[Test], rows: Equations, fixed: Collection[str]
) -> tuple[str, ...]:
    """Fixed inertial parameters of bodies with free ones, without effect on any measurement.

    Args:
        model: the machine's.
        free: the free parameters.
        tests: fitted tests.
        rows: their equations.
        fixed: names that keep their values in any case.
    """
    excluded = {name for names in free.tied for name in names} | set(fixed)
    names = [name for body in bodies_with_free_inertia(free) for name in inertial_parameters(body)]
    if not set(names) - excluded:
        return ()
    each = free_parameters(model, [Bound((name,), 0.0, 1.0, logarithmic=False) for name in names])
    linear = ((test, None if test.linear is None else test.linear.reciprocal(model, each)) for test in tests)
    acting = [test for test, found in linear if found is None or not np.isnan(found).all()]
    effect, largest = np.zeros(len(names)), np.linalg.norm(rows.matrix / rows.std[:, None], axis=0).max(initial=0.0)
    if acting:
        more = linear_equations(model, each, acting)
        effect = np.linalg.norm(more.matrix / more.std[:, None], axis=0)
        largest = max(largest, effect.max(initial=0.0))
    return tuple(
        name for name, size in zip(names, effect, strict=True) if name not in excluded and size <= NO_EFFECT * largest
    )


def linear_step(
    unknown: Unknowns,
    rows: Equations,
    start: Float[np.ndarray, "d"],
    robust: bool = False,
    bodies: Bodies | None = None,
    prior_std: Float[np.ndarray, "d"] | None = None,
    lengths: Float[np.ndarray, "r"] | None = None,
) -> LinearStep:
    """Weighted least squares solution within bounds.

    Standard deviations ignore the constraint of physically consistent bodies.

    Args:
        unknown: the unknowns.
        rows: equations of the tests.
        start: physical values of parameters without effect on any measurement.
        robust: whether outliers are down-weighted.
        bodies: bodies to be made physically consistent, where inertial parameters are unknowns.
        prior_std: of the prior of u whose equations are the last rows (`with_prior`); None without a prior.
        lengths: `Noise.correlation_lengths` of the rows of tests.

    Source: Dumas et al. 2011, eq. 16-18; Klimchik et al. 2014, eq. 7-9.
    """
    insensitive = without_effect(rows)
    matrix = np.where(insensitive, 0.0, rows.matrix)
    fitted = linear_fit(
        matrix, rows.measured, rows.std / np.sqrt(rows.weight), unknown.lower, unknown.upper, robust, unknown.free.names
    )
    x = best = np.where(insensitive, unknown.encode(start), fitted.values)
    weight = rows.weight * fitted.weights
    root = np.sqrt(weight) / rows.std
    consistent = None
    if bodies is not None:
        consistent = consistent_solution(
            bodies, matrix * root[:, None], rows.measured * root, best, fitted.on_bound & ~insensitive,
            unknown.encode(start), unknown.lower, unknown.upper,
        )  # fmt: skip
        x = consistent.x
    residual = rows.measured - matrix @ x
    jacobian = matrix * unknown.slope(x) * root[:, None]
    known = identifiability(jacobian, weight, prior_std)
    # Physical consistency moves values away from bounds, or to them.
    stopped = np.asarray(fitted.on_bound) | ((x != best) & np.isfinite(known.std))
    data = slice(0, residual.size - (0 if prior_std is None else int(np.isfinite(prior_std).sum())))
    errors = np.sqrt(weight) * residual / rows.std
    variances = rows.weight
    if robust:
        variances = variances * tukey_square(variances if lengths is None else variances / lengths)
    return LinearStep(
        x=x,
        jacobian=jacobian,
        identifiability=known,
        without_effect=insensitive,
        on_bound=stopped & ~insensitive & ((x <= unknown.lower) | (x >= unknown.upper)),
        residual=residual,
        robust_weight=np.asarray(fitted.weights),
        weights_converged=fitted.weights_converged,
        active_set_found=fitted.active_set_found,
        cost=float(np.sum(errors[data] ** 2)),
        misfit=reduced_chi_square(
            errors[data],
            variances[data],
            float(np.sum(jacobian_svd(jacobian).basis(jacobian[data]) ** 2)),  # degrees of freedom of the parameters
            np.asarray(fitted.weights)[data],
            lengths,
        ),
        stated_variances=weight,
        variances=variances * fitted.weights,
        prior_std=prior_std,
        consistent=consistent,
    )


def reported_identifiability(step: LinearStep, factor: float, needed: Float[np.ndarray, "d"]) -> Identifiability:
    """Reported standard deviations and verdicts of a linear step, infinite for values on a bound, where the
    linearization is not valid for the unbounded minimum.

    Args:
        step: the linear step.
        factor: by which standard deviations are inflated where the model does not reproduce the data.
        needed: standard deviation that is sufficient, NaN where none is stated.
    """
    known = step.identifiability
    known = known._replace(needed=needed, std=factor * known.std, covariance=factor**2 * known.covariance)
    if step.prior_std is not None and factor > 1.0:  # only the information from the tests is inflated, not the prior
        priors = int(np.isfinite(step.prior_std).sum())
        wider = np.where(np.arange(step.stated_variances.size) < step.stated_variances.size - priors, factor**2, 1.0)
        known = identifiability(step.jacobian, wider * step.stated_variances, step.prior_std, needed)
    return known.with_std(np.where(step.on_bound, np.inf, known.std))
