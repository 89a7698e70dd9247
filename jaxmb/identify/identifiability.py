"""What can be known of the free parameters from the tests: one SVD of the weighted Jacobian answers."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Verdict = Literal["yes", "weak", "no"]

RANK_TOLERANCE = 1e-10
"""Singular value, of the largest, below which a direction of a linear model does not act on the data: rounding leaves
1e-16 of what is dependent, and what is weaker than 1e-10 no instrument could tell."""
SMALLEST_COLUMN = 1e-14
"""Length of a column of a linear model, of the longest, below which it is the rounding of zeros."""
COUPLED = 1e-6
"""Part of a scaled parameter in a direction of length 1, from which on it has one."""


class Knowledge(NamedTuple):
    """How well the tests fix each entry of u, at one point."""

    std: Float[np.ndarray, "d"]
    """Standard deviation of each entry; inf where nothing acts on the data."""
    covariance: Float[np.ndarray, "d d"]
    singular_values: Float[np.ndarray, "d"]
    """Of the Jacobian in units of the noise, descending: 1 over the standard deviation along each direction."""
    directions: Float[np.ndarray, "d d"]
    """Those directions in u, as columns."""
    prior_std: Float[np.ndarray, "d"] | None
    verdict: tuple[Verdict, ...]


class ScaledSvd(NamedTuple):
    """A = left diag(values) right diag(scale); with fewer rows than columns A is filled up with rows of zeros."""

    scale: Float[np.ndarray, "d"]
    """Length of each column; 1 for a column of zeros."""
    left: Float[np.ndarray, "m d"]
    values: Float[np.ndarray, "d"]
    right: Float[np.ndarray, "d d"]
    rank: int
    """Directions that act on the data."""

    @property
    def unknown(self) -> np.ndarray:
        """Which parameters have a part in a direction that does not act on the data [d]."""
        return np.linalg.norm(self.right[self.rank :], axis=0) > COUPLED


def scaled_svd(matrix: Float[np.ndarray, "m d"], tolerance: float | None = None) -> ScaledSvd:
    """Singular value decomposition with the columns scaled to length 1: what is weak by its units alone is resolved.

    Args:
        matrix: of any sizes; with fewer rows than columns, rows of zeros are added, so that all d directions come back.
        tolerance: singular value, of the largest, below which a direction does not act; of the size of rounding where
            not given. Where it is given, columns that are the rounding of zeros count as zeros.
    """
    matrix = np.pad(matrix, ((0, max(matrix.shape[1] - matrix.shape[0], 0)), (0, 0)))
    size = np.linalg.norm(matrix, axis=0)
    smallest = 0.0 if tolerance is None else SMALLEST_COLUMN * size.max(initial=0.0)
    scale = np.where(size > smallest, size, 1.0)
    matrix = np.where(size > smallest, matrix, 0.0)
    left, values, right = np.linalg.svd(matrix / scale, full_matrices=False)
    least = (max(matrix.shape) * np.finfo(float).eps if tolerance is None else tolerance) * values.max(initial=0.0)
    return ScaledSvd(scale, left, values, right, int(np.sum(values > least)))


def knowledge(
    jacobian: Float[np.ndarray, "m d"],
    row_weights: Float[np.ndarray, "m"],
    prior_std: Float[np.ndarray, "d"] | None = None,
) -> Knowledge:
    """Standard deviations of a weighted least-squares estimate, and the directions that the data fix well or badly.

    With J = U S V^T the estimate moves by G e, G = V S^-1 U^T, under residual errors e; the errors of an FRF scaled by
    sqrt(W) have the variance W, so the covariance is G diag(W) G^T. It is (J^T J)^-1 where all weights are 1.

    Args:
        jacobian: of the residuals in units of the noise, rows scaled by sqrt(W), the prior's rows among them.
        row_weights: W of each row.
        prior_std: the prior's standard deviations, where there is one.

    Returns:
        What is known. A parameter is identifiable ("yes") where its standard deviation is below 0.1, "weak" below 1,
        "no" above; with a prior where the standard deviation falls below half, or 0.95, of the prior's.
    """
    svd = scaled_svd(jacobian)
    missing = svd.left.shape[0] - jacobian.shape[0]
    jacobian = np.pad(jacobian, ((0, missing), (0, 0)))
    row_weights = np.pad(row_weights, (0, missing))
    gain = (svd.right[: svd.rank].T / svd.values[: svd.rank]) @ svd.left[:, : svd.rank].T
    spread = (gain * row_weights) @ gain.T / np.outer(svd.scale, svd.scale)
    std = np.where(svd.unknown, np.inf, np.sqrt(np.maximum(np.diag(spread), 0.0)))
    _, singular_values, directions = np.linalg.svd(jacobian, full_matrices=False)
    return Knowledge(std, spread, singular_values, directions.T, prior_std, verdicts(std, prior_std))


def correlation(covariance: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """Correlation matrix of a covariance; 0 beside what has no variance."""
    size = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.where(size > 0.0, size, 1.0)
    return covariance / np.outer(scale, scale)


def verdicts(std: Float[np.ndarray, "d"], prior_std: Float[np.ndarray, "d"] | None) -> tuple[Verdict, ...]:
    """What standard deviations say: "yes", "weak" or "no", see `knowledge`."""
    yes, weak = limits(prior_std)
    return tuple("yes" if s < a else "weak" if s < b else "no" for s, a, b in np.broadcast(std, yes, weak))


def limits(prior_std: Float[np.ndarray, "d"] | None) -> tuple[Float[np.ndarray, "*d"], Float[np.ndarray, "*d"]]:
    """Standard deviations from which an entry of u is known weakly only, and from which it is not known."""
    if prior_std is None:
        return np.array(0.1), np.array(1.0)
    return 0.5 * prior_std, 0.95 * prior_std
