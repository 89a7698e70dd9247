"""Standard deviations of what follows from a machine's parameters, by their covariance and to first order."""

import math
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, free_parameters, matching
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model

NO_PART = 1e-9
"""Relative change of a quantity for a unit change of an entry of u, below which the entry has no effect on it: rounding
leaves 1e-14 of an effect that is zero."""
HARDLY_KNOWN = 1.0
"""Standard deviation of an entry of u, mostly a logarithm, from which on the first order is called rough."""


class FreeModel(eqx.Module):
    """A machine as a function of the entries u of its free parameters."""

    model: Model
    free: FreeParameters

    def __call__(self, u: Float[Array, "d"]) -> Model:
        return self.free.apply(self.model, self.free.values(u))


def logarithmic(model: Model, patterns: Sequence[str]) -> FreeParameters:
    """Parameters by names or patterns such as "stiffness.*", on a logarithmic scale about the model's values.

    Raises:
        ValueError: nothing has such a name, or a value is not above 0.
    """
    if isinstance(patterns, str):
        raise ValueError(f"free: found '{patterns}', expected a list of names or patterns")
    values = parameters(model)
    names: dict[str, None] = {}
    for pattern in patterns:
        found = matching(list(values), pattern)
        if not found:
            raise ValueError(known_name("free parameter or pattern", pattern, values))
        names |= dict.fromkeys(found)
    for name in names:
        _check_above_zero(name, values[name])
    return free_parameters(model, [Bound((name,), 0.5 * values[name], 2.0 * values[name]) for name in names])


def free_values(model: Model, free: FreeParameters) -> np.ndarray:
    """Values of the free parameters in the model [d].

    Raises:
        ValueError: a value on a logarithmic scale is not above 0.
    """
    values = parameters(model)
    for name, log in zip(free.names, free.logarithmic, strict=True):
        if log:
            _check_above_zero(name, values[name])
    return np.array([values[name] for name in free.names])


def _check_above_zero(name: str, value: float) -> None:
    if not value > 0.0:
        raise ValueError(f"free parameter '{name}' is {value:g}, expected above 0 on a logarithmic scale")


def checked_covariance(
    free: FreeParameters, covariance: Sequence[Sequence[float | None]] | np.ndarray
) -> Float[np.ndarray, "d d"]:
    """A covariance of the entries of u [d, d], with NaN in the rows and columns of what has no finite variance.

    Raises:
        ValueError: the size is wrong, or the known part is not finite, symmetric and of variances of 0 or more.
    """
    matrix = np.array(covariance, dtype=float)
    if matrix.shape != (free.size, free.size):
        raise ValueError(
            f"covariance has shape {matrix.shape}, expected ({free.size}, {free.size}): {', '.join(free.names)}"
        )
    known = np.isfinite(np.diagonal(matrix))
    inner = matrix[np.ix_(known, known)]
    size = np.sqrt(np.abs(np.diagonal(inner)))
    if not np.all(np.isfinite(inner)) or np.any(np.diagonal(inner) < 0.0):
        raise ValueError("covariance: found numbers that are not finite, or variances below 0, beside known parameters")
    if np.any(np.abs(inner - inner.T) > 1e-6 * np.outer(size, size)):
        raise ValueError("covariance: not symmetric")
    matrix[~known] = math.nan
    matrix[:, ~known] = math.nan
    return matrix


def propagated(
    values: Float[np.ndarray, "*p"],
    gradients: Float[np.ndarray, "*p d"],
    covariance: Float[np.ndarray, "d d"],
    names: Sequence[str],
) -> tuple[Float[np.ndarray, "*p"], dict[str, float]]:
    """Standard deviations sqrt(g^T P g) of values, and which parameters of unknown variance act on them.

    Args:
        values: of a quantity [*p]; NaN where it does not exist.
        gradients: g, of each value by the entries of u [*p, d].
        covariance: P [d, d], NaN in the rows and columns of what is not known.
        names: names of the entries of u.

    Returns:
        Standard deviations [*p], NaN where an entry of unknown variance acts; by the name of each such entry the share
        of the values on which it acts.
    """
    known = np.isfinite(np.diagonal(covariance))
    inner = gradients[..., known]
    variance = np.einsum("...i,ij,...j->...", inner, covariance[np.ix_(known, known)], inner, optimize=True)
    acts = np.abs(gradients[..., ~known]) > NO_PART * np.abs(values)[..., None]
    std = np.where(np.any(acts, axis=-1) | np.isnan(values), math.nan, np.sqrt(np.maximum(variance, 0.0)))
    count = max(int(np.sum(~np.isnan(values))), 1)
    shares = acts.sum(axis=tuple(range(acts.ndim - 1))) / count
    lost = [name for name, is_known in zip(names, known, strict=True) if not is_known]
    return std, {name: float(share) for name, share in zip(lost, shares, strict=True) if share > 0.0}
