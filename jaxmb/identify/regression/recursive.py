"""Recursive least squares: samples of a motion are added one by one and not stored."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE

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
    """Standard deviations by the noise estimated from the residual; infinite if not identifiable."""
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
        ValueError: sizes differ.

    Source: Bierman 1977, "Factorization methods for discrete sequential estimation", section IV.
    """
    given = (state.triangle, regressor, effort, std)
    xp: Any = jnp if any(isinstance(x, jax.Array) for x in given) else np
    Y, tau, count = xp.asarray(regressor), xp.asarray(effort), state.triangle.shape[0] - 1
    if tau.ndim not in (1, 2) or Y.shape != (*tau.shape, count):
        raise ValueError(f"regressor has shape {Y.shape}, expected {(*tau.shape, count)} as effort has {tau.shape}")
    if np.ndim(std) and np.shape(std) != tau.shape[-1:]:
        raise ValueError(f"std has shape {np.shape(std)}, expected one number or {tau.shape[-1:]}")
    if isinstance(std, int | float | np.ndarray) and not np.all(np.asarray(std) > 0.0):
        raise ValueError(f"std holds {np.asarray(std)[~(np.asarray(std) > 0.0)].ravel()[0]}, expected numbers above 0")
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

    Columns are scaled to length 1, as in identification: x = R^+ z, covariance s^2 (R^T R)^+, s^2 = rho^2 / (sum of
    weights - rank). Forgotten samples count as noisier ones. Before the first sample all values are 0.

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
    degrees = state.weight - rank
    variance = xp.where(degrees > 0.0, rho**2 / xp.where(degrees > 0.0, degrees, 1.0), xp.inf)
    cofactor = xp.sum((right * inverse[:, None]) ** 2, axis=0)
    unknown = xp.sum(xp.where(regular[:, None], 0.0, right) ** 2, axis=0) > SHARE**2
    std = xp.where(unknown, xp.inf, xp.sqrt(variance * xp.where(unknown, 1.0, cofactor)) / scale)
    return RecursiveEstimate(right.T @ (inverse * (left.T @ z)) / scale, std, rank)
