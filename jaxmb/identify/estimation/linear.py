"""Weighted linear least squares: bounded, robust, of any rank; and recursive, where samples are not stored."""

import dataclasses
import functools
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, ScaledSvd, scaled_svd, without_rounding

HUBER = 1.345
BISQUARE = 4.685
"""Tuning constants, standard deviations: both have 95 % of the efficiency of least squares for normal errors."""
MOST_ROUNDS = 100
RIDGE = 1e-3
"""Regularization weight of directions without effect, over the smallest singular value with an effect."""


@dataclasses.dataclass(frozen=True, eq=False)
class LinearFit:
    """Parameters of a linear model; their covariance is computed when it is asked for."""

    values: Float[np.ndarray, "d"]
    residual: Float[np.ndarray, "m"]
    """Measured minus fitted, in the measurement's units."""
    weights: Float[np.ndarray, "m"]
    """Robust weights, 0 to 1; all 1 without a robust fit."""
    rows: Float[np.ndarray, "m d"]
    """The matrix in units of the stated standard deviations, without robust weights."""
    on_bound: Bool[np.ndarray, "d"]
    """Mask of the parameters limited by their bound."""
    weights_converged: bool = True
    """Whether the robust weights converged within `MOST_ROUNDS` rounds."""
    active_set_found: bool = True
    """Whether the active set of the bounds was identified, in up to 100 exchanges per parameter."""

    @property
    def _weighted(self) -> Float[np.ndarray, "m d"]:
        return self.rows * np.sqrt(self.weights)[:, None]

    @functools.cached_property
    def _svd(self) -> ScaledSvd:
        return scaled_svd(self._weighted, RANK_TOLERANCE)

    @property
    def rank(self) -> int:
        """Number of identifiable combinations, whether limited by bounds or not."""
        return self._svd.rank

    @property
    def singular_values(self) -> Float[np.ndarray, "d"]:
        """Of the weighted matrix, columns scaled to length 1, descending."""
        return self._svd.values

    @functools.cached_property
    def covariance(self) -> Float[np.ndarray, "d d"]:
        """By the stated standard deviations, in the identifiable directions; zero for bound-limited parameters."""
        gain = self._inside.gain @ self._inside.range(self.weights.size).T
        covariance = np.zeros((self.values.size, self.values.size))
        covariance[np.ix_(~self.on_bound, ~self.on_bound)] = (gain * self.weights) @ gain.T
        return covariance

    @property
    def std(self) -> Float[np.ndarray, "d"]:
        """inf for parameters that are not identifiable, 0 for bound-limited ones."""
        std = np.sqrt(np.diagonal(self.covariance))
        std[~self.on_bound] = np.where(self._inside.unknown, np.inf, std[~self.on_bound])
        return std

    @functools.cached_property
    def _inside(self) -> ScaledSvd:
        """Of the parameters that no bound limits."""
        return scaled_svd(self._weighted[:, ~self.on_bound], RANK_TOLERANCE)


def linear_fit(
    matrix: Float[np.ndarray, "m d"],
    measured: Float[np.ndarray, "m"],
    std: Float[np.ndarray, "m"],
    lower: Float[np.ndarray, "d"] | None = None,
    upper: Float[np.ndarray, "d"] | None = None,
    robust: bool = False,
    names: tuple[str, ...] | None = None,
) -> LinearFit:
    """Parameters pi that minimize the sum of w ((measured - A pi) / std)^2 within bounds.

    If the minimum is not unique, the one of smallest scaled norm; if the bounds exclude 0, of smallest scaled distance
    from the point within them closest to 0.

    Columns of A / std are first scaled to length 1, so that rank, values and standard deviations do not depend on the
    parameters' units. Columns shorter than `SMALLEST_COLUMN` (1e-14) of the longest are treated as zeros: their
    parameters become 0 and are not identifiable. Singular values of the scaled matrix up to `RANK_TOLERANCE` (1e-10) of
    the largest are treated as zeros.

    Args:
        matrix: observation matrix A [m, d].
        measured: measured values [m].
        std: their standard deviations [m].
        lower: lower bounds [d]; default: -inf.
        upper: upper bounds [d]; default: inf.
        robust: weight each measurement by its residual: Huber's weights first, then Tukey's bisquare, which rejects
            gross outliers. Their scale is the stated standard deviation or, if larger, that of the median residual.
        names: of the parameters, for errors.

    Returns:
        The fit, with the covariance of a weighted estimate with errors of the stated standard deviations.

    Raises:
        ValueError: sizes differ, a number is not finite, a standard deviation is not positive, a lower bound is not
            below its upper one, or there are fewer equations than parameters.

    Source: Klimchik et al. 2014, eq. 7-9; Dumas et al. 2011, eq. 18; Huber and Ronchetti, Robust Statistics (2009).
    """
    matrix, measured, std = (np.asarray(x, float) for x in (matrix, measured, std))
    lower = np.full(matrix.shape[-1:], -np.inf) if lower is None else np.asarray(lower, float)
    upper = np.full(matrix.shape[-1:], np.inf) if upper is None else np.asarray(upper, float)
    _check(matrix, measured, std, lower, upper, names)
    centre = np.clip(0.0, lower, upper)
    rows, right = without_rounding(matrix / std[:, None]), (measured - matrix @ centre) / std
    box = lower - centre, upper - centre
    values, limited, solved = _solve(rows, right, *box)
    weights = np.ones(measured.size)
    converged = True
    if robust:
        values, limited, weights, converged, solved = _reweight(rows, right, box, values)
    # the centre plus the distance to a bound may differ from the bound by rounding
    values = np.where(values <= box[0], lower, np.where(values >= box[1], upper, centre + values))
    return LinearFit(
        values=values,
        residual=measured - matrix @ values,
        weights=weights,
        rows=rows,
        on_bound=limited,
        weights_converged=converged,
        active_set_found=solved,
    )


def _solve(
    rows: np.ndarray, right: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Least-squares parameters of smallest scaled norm in a box about 0 [d], mask of the bound-limited ones [d], and
    whether the active set was identified."""
    svd = scaled_svd(rows, RANK_TOLERANCE)
    values = svd.solve(right)
    if np.all((lower <= values) & (values <= upper)):
        return values, np.zeros(values.size, bool), True
    from scipy.optimize import lsq_linear

    # Projection on the left singular vectors makes the problem small, and a right-hand side of length 1 gives the
    # solver's tolerances a scale. Directions without effect are weakly regularized to 0.
    length, r = np.linalg.norm(right) or 1.0, svd.rank
    small, target = svd.values[:r, None] * svd.right[:r], svd.left[:, :r].T @ right / length
    ridge = max(RIDGE * float(svd.values[:r].min(initial=1.0)), 1e-7) * svd.right[r:]
    low, high = (bound * svd.scale / length for bound in (lower, upper))
    found = lsq_linear(
        np.concatenate([small, ridge]), np.concatenate([target, np.zeros(len(ridge))]), (low, high), method="bvls",
        tol=1e-14, max_iter=100 * values.size,
    )  # fmt: skip
    # active values may differ from their bound by rounding
    below = (found.x <= low) | (found.active_mask < 0)
    above = (found.x >= high) | (found.active_mask > 0)
    values = np.where(below, lower, np.where(above, upper, found.x * length / svd.scale))
    # With the active set fixed, the others are solved exactly and without ridge.
    free = ~(below | above)
    polished = values.copy()
    polished[free] = scaled_svd(rows[:, free], RANK_TOLERANCE).solve(right - rows[:, ~free] @ values[~free])
    values = polished if np.all((lower <= polished) & (polished <= upper)) else values
    # Bound-limited means that the gradient points beyond the bound; others on a bound count as free.
    slope = small.T @ (small @ (values * svd.scale / length) - target)
    limited = below & (slope > 1e-12) | above & (slope < -1e-12)
    return values, limited, bool(found.success)


def _reweight(
    rows: np.ndarray, right: np.ndarray, box: tuple[np.ndarray, np.ndarray], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool, bool]:
    """Iteratively reweighted least squares, first with the convex loss, then with the redescending one."""
    limited, weights, converged, solved = np.zeros(values.size, bool), np.ones(right.size), False, False
    for weights_of in (lambda size: HUBER / np.maximum(size, HUBER), tukey):
        for _ in range(MOST_ROUNDS):
            residual = right - rows @ values
            # A median residual above the stated standard deviation indicates that the latter is too small.
            weights = weights_of(np.abs(residual) / max(1.0, 1.4826 * float(np.median(np.abs(residual)))))
            root, before = np.sqrt(weights), values
            values, limited, solved = _solve(rows * root[:, None], right * root, *box)
            change = np.abs(rows @ (values - before)).max(initial=0.0)
            converged = change <= 1e-9 * max(1.0, float(np.abs(rows @ values).max(initial=0.0)))
            if converged:
                break
    return values, limited, weights, converged, solved


def tukey(size: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Tukey's bisquare weights of residuals in standard deviations: 0 from `BISQUARE`."""
    return np.where(np.abs(size) < BISQUARE, (1.0 - (size / BISQUARE) ** 2) ** 2, 0.0)


def tukey_square(variance: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Mean square of normal errors by Tukey's weights over that without weights, E[w z^2] / (E[w] E[z^2]).

    Args:
        variance: of the errors, in units of the stated one; the scale is that of a robust `linear_fit`.
    """
    size, row = np.unique(np.sqrt(variance / max(1.0, float(np.median(variance)))), return_inverse=True)
    z = np.linspace(-8.0, 8.0, 801)
    weights = tukey(size[:, None] * z) * np.exp(-0.5 * z**2)
    return (weights @ z**2 / weights.sum(axis=1))[row]


def _check(
    matrix: np.ndarray, measured: np.ndarray, std: np.ndarray, lower: np.ndarray, upper: np.ndarray,
    names: tuple[str, ...] | None,
) -> None:  # fmt: skip
    if matrix.ndim != 2:
        raise ValueError(f"matrix has shape {matrix.shape}, expected (measurements, parameters)")
    m, d = matrix.shape
    for argument, shape, expected in (
        ("measured", measured.shape, (m,)),
        ("std", std.shape, (m,)),
        ("lower", lower.shape, (d,)),
        ("upper", upper.shape, (d,)),
        ("names", (d,) if names is None else (len(names),), (d,)),
    ):
        if shape != expected:
            raise ValueError(f"{argument} has shape {shape}, expected {expected} for a matrix of shape {matrix.shape}")
    labels = tuple(map(str, range(d))) if names is None else names
    if not np.all(np.isfinite(matrix)):
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise ValueError(f"matrix has {matrix[row, column]} in row {row} of parameter '{labels[column]}'")
    for argument, numbers, good, expected in (
        ("measured", measured, np.isfinite(measured), "a finite number"),
        ("std", std, np.isfinite(std), "a finite number"),
        ("std", std, std > 0.0, "a number above 0"),
    ):
        if not good.all():
            row = int(np.argmin(good))
            raise ValueError(f"{argument} has {numbers[row]:g} in row {row}, expected {expected}")
    if not np.all(lower < upper):
        i = np.flatnonzero(~(lower < upper))[0]
        raise ValueError(
            f"parameter '{labels[i]}' has the bounds {lower[i]:g} and {upper[i]:g}, expected lower < upper"
        )
    if m < d:
        raise ValueError(f"there are {m} equations for {d} parameters, expected at least as many equations")


SHARE = 1e-6
"""Component of a parameter in the null space above which it is not identifiable separately."""


BLOCK = 256
"""Samples per QR decomposition in NumPy, which fit the cache."""


class RecursiveLeastSquares(eqx.Module):
    """Information of all samples so far on p parameters, in square-root form."""

    triangle: Float[Array, "p+1 p+1"]
    """[R, z; 0, rho], upper triangular: the residual sum of squares at parameters x is |R x - z|^2 + rho^2."""
    weight: Float[Array, ""]
    """Sum of the weights of all rows."""
    forgetting: Float[Array, ""]
    """Weight of a sample over that of the next one."""


class RecursiveEstimate(NamedTuple):
    """Parameters from the samples so far."""

    values: Float[Array, "p"]
    """Minimum scaled norm solution if some parameters are identifiable only in combination."""
    std: Float[Array, "p"]
    """Standard deviations by the noise estimated from the residual; infinite if not identifiable, or with no more rows
    than identifiable combinations."""
    rank: Any
    """Number of identifiable combinations."""


def recursive_least_squares(count: int, forgetting: float = 1.0) -> RecursiveLeastSquares:
    """State without information, before the first sample.

    Args:
        count: number p of parameters.
        forgetting: forgetting factor in (0, 1], the weight of a sample over that of the next one: the memory is about
            1 / (1 - forgetting) samples, infinite for 1.

    Raises:
        ValueError: there is no parameter, or the forgetting factor is outside (0, 1].
    """
    if count < 1:
        raise ValueError(f"count is {count}, expected at least one parameter")
    if not 0.0 < forgetting <= 1.0:
        raise ValueError(f"forgetting is {forgetting:g}, expected above 0 and at most 1")
    numbers: Any = np.zeros((count + 1, count + 1)), np.zeros(()), np.asarray(forgetting, dtype=float)
    return RecursiveLeastSquares(*numbers)


def update_least_squares(
    state: RecursiveLeastSquares,
    regressor: Float[Array, "k m p"] | Float[Array, "m p"] | np.ndarray,
    effort: Float[Array, "k m"] | Float[Array, "m"] | np.ndarray,
    std: float | Float[Array, "m"] | np.ndarray = 1.0,
) -> RecursiveLeastSquares:
    """State with a further sample, or a block of samples.

    The new triangle is the R factor of the old one, times the square root of the forgetting factor, stacked on the new
    rows [Y, tau] / std. After all samples, in blocks of any size, it equals that of weighted least squares of all rows
    with weights forgetting^(number of later samples) / std^2. NumPy arrays are computed by NumPy, JAX arrays by JAX,
    for use in `jax.jit` and `jax.lax.scan`.

    Args:
        state: before the update.
        regressor: rows Y [m, p] of a sample, or of k successive samples [k, m, p].
        effort: tau [m] or [k, m], Nm or N. A prior is a sample as well: Y the identity, tau its values, std their
            standard deviations.
        std: standard deviation of tau, common or for each of the m rows.

    Raises:
        ValueError: sizes differ, a standard deviation is not above 0, or a NumPy array holds a number that is not
            finite, which would remain in the state.

    Source: Bierman 1977, "Factorization methods for discrete sequential estimation", section IV.
    """
    xp: Any = jnp if any(isinstance(x, jax.Array) for x in (state.triangle, regressor, effort, std)) else np
    Y, tau, count = xp.asarray(regressor), xp.asarray(effort), state.triangle.shape[0] - 1
    if tau.ndim not in (1, 2) or Y.shape != (*tau.shape, count):
        raise ValueError(f"regressor has shape {Y.shape}, expected {(*tau.shape, count)} as effort has {tau.shape}")
    if np.ndim(std) and np.shape(std) != tau.shape[-1:]:
        raise ValueError(f"std has shape {np.shape(std)}, expected one number or {tau.shape[-1:]}")
    if isinstance(std, int | float | np.ndarray) and not np.all(np.asarray(std) > 0.0):
        raise ValueError(f"std holds {np.asarray(std)[~(np.asarray(std) > 0.0)].ravel()[0]}, expected numbers above 0")
    for name, array in (("regressor", Y), ("effort", tau)):
        if isinstance(array, np.ndarray) and not np.isfinite(array).all():
            raise ValueError(f"{name} holds {array[~np.isfinite(array)][0]}, expected finite numbers")
    if xp is np and tau.ndim == 2 and len(tau) > BLOCK:
        for first in range(0, len(tau), BLOCK):
            state = update_least_squares(state, Y[first : first + BLOCK], tau[first : first + BLOCK], std)
        return state
    rows = xp.concatenate([Y, tau[..., None]], axis=-1) / (xp.asarray(std)[..., None] * xp.ones((tau.shape[-1], 1)))
    rows = rows.reshape(-1, tau.shape[-1], count + 1)
    samples = len(rows)
    weights = state.forgetting ** xp.arange(samples - 1, -1, -1)
    before = state.forgetting**samples
    stacked = [xp.sqrt(before) * state.triangle, (rows * xp.sqrt(weights)[:, None, None]).reshape(-1, count + 1)]
    return RecursiveLeastSquares(
        triangle=xp.linalg.qr(xp.concatenate(stacked), mode="r"),
        weight=before * state.weight + tau.shape[-1] * xp.sum(weights),
        forgetting=state.forgetting,
    )


def least_squares_estimate(state: RecursiveLeastSquares) -> RecursiveEstimate:
    """Parameters from the samples so far, with standard deviations and rank.

    Columns are scaled to length 1, as in identification: x = R^+ z, covariance s^2 (R^T R)^+, s^2 = (|R x - z|^2 +
    rho^2) / (sum of weights - rank). Forgotten samples count as noisier ones. Before the first sample all values are 0.

    Args:
        state: from `update_least_squares`.
    """
    xp: Any = jnp if isinstance(state.triangle, jax.Array) else np
    R, z, rho = state.triangle[:-1, :-1], state.triangle[:-1, -1], state.triangle[-1, -1]
    length = xp.linalg.norm(R, axis=0)
    scale = xp.where(length > 0.0, length, 1.0)
    left, singular, right = xp.linalg.svd(R / scale)
    regular = singular > RANK_TOLERANCE * xp.maximum(singular[0], 1e-300)
    inverse = xp.where(regular, 1.0 / xp.where(regular, singular, 1.0), 0.0)
    rank = xp.sum(regular)
    degrees, along = state.weight - rank, left.T @ z
    square = rho**2 + xp.sum(xp.where(regular, 0.0, along) ** 2)
    variance = xp.where(degrees > 0.0, square / xp.where(degrees > 0.0, degrees, 1.0), xp.inf)
    cofactor = xp.sum((right * inverse[:, None]) ** 2, axis=0)
    unknown = xp.sum(xp.where(regular[:, None], 0.0, right) ** 2, axis=0) > SHARE**2
    std = xp.where(unknown, xp.inf, xp.sqrt(variance * xp.where(unknown, 1.0, cofactor)) / scale)
    return RecursiveEstimate(right.T @ (inverse * along) / scale, std, rank)
