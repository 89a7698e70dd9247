"""First-order propagation of the covariance of a machine's parameters."""

import math
from collections.abc import Sequence

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, free_parameters, matching
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model

NO_EFFECT = 1e-9
"""Relative change of a quantity per unit of an entry of u below which the entry has no effect; rounding is 1e-14."""
LARGE_STD = 1.0
"""Standard deviation of an entry of u, mostly a logarithm, above which first-order propagation is inaccurate."""


class FreeModel(eqx.Module):
    """A machine as a function of the entries u of its free parameters."""

    model: Model
    free: FreeParameters

    def __call__(self, u: Float[Array, "d"]) -> Model:
        return self.free.apply(self.model, self.free.values(u))


def logarithmic(model: Model, patterns: Sequence[str]) -> FreeParameters:
    """Free parameters by names or patterns such as "stiffness.*", on a logarithmic scale about the model's values.

    Raises:
        ValueError: a name or pattern matches no parameter, or a value is not positive.
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
        _check_positive(name, values[name])
    return free_parameters(model, [Bound((name,), 0.5 * values[name], 2.0 * values[name]) for name in names])


def free_values(model: Model, free: FreeParameters) -> np.ndarray:
    """Values of the free parameters in the model [d].

    Raises:
        ValueError: a value on a logarithmic scale is not positive.
    """
    values = parameters(model)
    for name, log in zip(free.names, free.logarithmic, strict=True):
        if log:
            _check_positive(name, values[name])
    return np.array([values[name] for name in free.names])


def _check_positive(name: str, value: float) -> None:
    if not value > 0.0:
        raise ValueError(f"free parameter '{name}' is {value:g}, expected a positive value on a logarithmic scale")


def checked_covariance(
    free: FreeParameters, covariance: Sequence[Sequence[float | None]] | np.ndarray
) -> Float[np.ndarray, "d d"]:
    """Covariance of the entries of u [d, d], with NaN in the rows and columns of entries without finite variance.

    Raises:
        ValueError: the size is wrong, or the finite part is not symmetric with non-negative variances.
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
        raise ValueError("covariance: found infinite or undefined covariances, or negative variances")
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
    """Standard deviations sqrt(g^T P g) of values, and the parameters of unknown variance that affect them.

    Args:
        values: of a quantity [*p]; NaN where undefined.
        gradients: g, of each value by the entries of u [*p, d].
        covariance: P [d, d], NaN in the rows and columns of unidentified entries.
        names: names of the entries of u.

    Returns:
        Standard deviations [*p], NaN where an entry of unknown variance has an effect; by the name of each such entry
        the share of the values that it affects.
    """
    known = np.isfinite(np.diagonal(covariance))
    inner = gradients[..., known]
    variance = np.einsum("...i,ij,...j->...", inner, covariance[np.ix_(known, known)], inner, optimize=True)
    effective = np.abs(gradients[..., ~known]) > NO_EFFECT * np.abs(values)[..., None]
    std = np.where(np.any(effective, axis=-1) | np.isnan(values), math.nan, np.sqrt(np.maximum(variance, 0.0)))
    count = max(int(np.sum(~np.isnan(values))), 1)
    shares = effective.sum(axis=tuple(range(effective.ndim - 1))) / count
    unknown = [name for name, is_known in zip(names, known, strict=True) if not is_known]
    return std, {name: float(share) for name, share in zip(unknown, shares, strict=True) if share > 0.0}
