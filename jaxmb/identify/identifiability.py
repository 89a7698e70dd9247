"""What can be known of the free parameters from the tests: one SVD of the weighted Jacobian answers."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

Verdict = Literal["yes", "weak", "no"]


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
    # Fewer rows than entries leave directions that no row touches: rows of zeros make the SVD give them too.
    missing = max(jacobian.shape[1] - jacobian.shape[0], 0)
    jacobian = np.pad(jacobian, ((0, missing), (0, 0)))
    row_weights = np.pad(row_weights, (0, missing))
    # Columns are scaled to length 1 first: the SVD then resolves what is weak by its units alone.
    size = np.linalg.norm(jacobian, axis=0)
    scale = np.where(size > 0.0, size, 1.0)
    left, values, right = np.linalg.svd(jacobian / scale, full_matrices=False)
    known = values > max(jacobian.shape) * np.finfo(float).eps * values[0] if values[0] > 0.0 else values > 0.0
    gain = (right[known].T / values[known]) @ left[:, known].T
    spread = (gain * row_weights) @ gain.T / np.outer(scale, scale)
    # What touches a direction that does not act on the data is not known at all.
    unknown = (np.abs(right[~known]) > 1e-6).any(axis=0) | (size == 0.0)
    std = np.where(unknown, np.inf, np.sqrt(np.maximum(np.diag(spread), 0.0)))
    _, singular_values, directions = np.linalg.svd(jacobian, full_matrices=False)
    return Knowledge(std, spread, singular_values, directions.T, prior_std, verdicts(std, prior_std))


def verdicts(std: Float[np.ndarray, "d"], prior_std: Float[np.ndarray, "d"] | None) -> tuple[Verdict, ...]:
    """What standard deviations say: "yes", "weak" or "no", see `knowledge`."""
    yes, weak = limits(prior_std)
    return tuple("yes" if s < a else "weak" if s < b else "no" for s, a, b in np.broadcast(std, yes, weak))


def limits(prior_std: Float[np.ndarray, "d"] | None) -> tuple[Float[np.ndarray, "*d"], Float[np.ndarray, "*d"]]:
    """Standard deviations from which an entry of u is known weakly only, and from which it is not known."""
    if prior_std is None:
        return np.array(0.1), np.array(1.0)
    return 0.5 * prior_std, 0.95 * prior_std
