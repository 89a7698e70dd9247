"""The last digits of a minimum, and the parameters that it does not depend on."""

import numpy as np
from jaxtyping import Float

from jaxmb.identify.fit.problem import Problem, compressed

MOST_PASSES = 3
INSENSITIVE = 1e-12
"""Length of a column of the Jacobian, relative to the longest, up to which its parameter has no effect."""
LARGEST = 1e-6
"""Change of any u by which the last step may still move it: beyond, the point is no minimum, or not a known one."""


def polished(problem: Problem, u: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
    """A minimum, as exact as the residual is computed.

    A search ends where the objective's rounding hides what is left to gain, sqrt(1e-16) from the minimum: there two
    computers, or one with two devices, are apart. Gauss-Newton steps go on by the gradient, which still tells.

    Args:
        problem: what is minimized.
        u: where a search ended; what lies on a bound stays there.
    """
    lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
    free = (u > lower) & (u < upper)
    best, slope = u, np.inf
    for _ in range(MOST_PASSES + 1):
        residual, jacobian = compressed(problem, u)
        jacobian = jacobian[:, free]
        left = float(np.linalg.norm(jacobian.T @ residual))
        if not left < slope:
            return best
        best, slope = u, left
        step = np.zeros(u.size)
        step[free] = np.linalg.lstsq(jacobian, -residual)[0]
        u = np.clip(u + step, lower, upper)
        if not np.max(np.abs(step), initial=0.0) <= LARGEST:
            return best
    return best


def insensitive_restored(
    problem: Problem, u: Float[np.ndarray, "d"], initial: Float[np.ndarray, "d"]
) -> Float[np.ndarray, "d"]:
    """The minimum u with the initial values of all parameters that have no effect on the data or the prior.

    The start that led to the minimum may have drawn any values of them.
    """
    size = np.linalg.norm(compressed(problem, u)[1], axis=0)
    return np.where(size <= INSENSITIVE * size.max(initial=0.0), initial, u)
