"""Errors that the displacements of one load case have in common."""

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.identify.experiments.deflections.load_cases import ElasticRows, turning
from jaxmb.machine.build import Model


class Decorrelation(eqx.Module):
    """Combinations of the rows of each load case whose errors are independent, as large as the rows' own deviations.

    With S the covariance of the errors of a case and D their independent part, diagonal, row i becomes sum_k W_ik x_k,
    W = D^(1/2) L^-1, S = L L^T. Least squares of these rows is generalized least squares of the measured ones.
    """

    factor: Float[Array, "m k"] | Float[np.ndarray, "m k"]
    row: Int[Array, "m k"] | Int[np.ndarray, "m k"]

    def of(self, x: np.ndarray | Array) -> np.ndarray | Array:
        """The combinations of some rows [m] or [m, d]."""
        xp = x.__array_namespace__()
        factor, row = (xp.asarray(part) for part in (self.factor, self.row))
        return xp.einsum("mk,mk...->m...", factor, x[row])


def decorrelation(
    model: Model, q: Float[np.ndarray, "t n"], rows: ElasticRows, std: Float[np.ndarray, "m"], turn_std: float
) -> Decorrelation:
    """What makes the errors of load cases independent in which all revolute coordinates turn between two readings.

    S = diag(std^2) + turn_std^2 J J^T, with J the rows' Jacobian by the revolute coordinates, those that follow
    from loops going with the others.

    Args:
        model: the machine.
        q: posture of each case.
        rows: of all cases, those of one case one after the other.
        std: of their independent errors, m and rad.
        turn_std: of each coordinate's turn, rad.
    """
    n = len(model.coordinates)
    each = np.flatnonzero(np.diff(rows.case, prepend=-1))
    sizes = np.diff(each, append=len(rows.case))
    factor, row = np.zeros((len(rows.case), sizes.max())), np.zeros((len(rows.case), sizes.max()), dtype=int)
    for there, first, size in zip(q, each, sizes, strict=True):
        own = slice(first, first + size)
        jacobian = rows.at_point[own][:, :n] @ turning(model, there)
        covariance = np.diag(std[own] ** 2) + turn_std**2 * jacobian @ jacobian.T
        factor[own, :size] = np.linalg.solve(np.linalg.cholesky(covariance), np.eye(size)) * std[own, None]
        row[own, :size] = np.arange(first, first + size)
    return Decorrelation(factor, row)
