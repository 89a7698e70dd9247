"""Small convex problems over positive semi-definite matrices, by an interior-point method."""

import dataclasses

import numpy as np
from jaxtyping import Float

MOST_STEPS = 500


@dataclasses.dataclass(frozen=True, eq=False)
class Cone:
    """Feasible set of w [k]: matrices affine in w are positive semi-definite, selected entries are within a ball."""

    base: Float[np.ndarray, "b n n"]
    """Matrices at w = 0; smaller ones are padded by ones on the diagonal."""
    slope: Float[np.ndarray, "k b n n"]
    """Derivatives by each entry of w."""
    ball: Float[np.ndarray, "k"]
    """Mask of the entries of w within the ball, 1 or 0."""
    radius: float = np.inf

    def matrices(self, w: Float[np.ndarray, "k"]) -> Float[np.ndarray, "b n n"]:
        """The matrices at w."""
        return self.base + np.tensordot(w, self.slope, 1)

    @property
    def size(self) -> float:
        """Barrier parameter: bound of the duality gap at weight 1."""
        return self.base.shape[0] * self.base.shape[1] + float(np.isfinite(self.radius))


def minimize_over(
    cone: Cone,
    hessian: Float[np.ndarray, "k k"],
    gradient: Float[np.ndarray, "k"],
    start: Float[np.ndarray, "k"],
    gap: float = 1e-12,
) -> tuple[Float[np.ndarray, "k"], float]:
    """w that minimizes w^T H w / 2 + g^T w over the interior of a cone, and the gap of its objective to the minimum.

    Args:
        cone: the matrices and the ball.
        hessian: H [k, k], positive semi-definite.
        gradient: g [k].
        start: an interior point [k].
        gap: of the objective at convergence.

    Returns:
        w, and an estimate of the gap: larger than `gap` if `MOST_STEPS` or rounding ended the search.

    Raises:
        ValueError: the start is not an interior point.

    Source: Boyd and Vandenberghe, Convex Optimization (2004), section 11.3.
    """
    if not np.isfinite(_barrier(cone, start)):
        raise ValueError("the start is not an interior point: a matrix is not positive definite, or the ball is left")
    w = np.array(start, float)
    weight = max(1.0, abs(float(0.5 * w @ hessian @ w + gradient @ w)))
    steps = 0
    while True:
        last = weight * cone.size <= gap
        for _ in range(MOST_STEPS):
            change, decrement = _newton(cone, hessian, gradient, w, weight)
            # The Newton decrement estimates the distance to the minimum on the central path, in units of the weight.
            if decrement <= (1e-9 if last else 1e-2):
                break
            new = _line_search(cone, hessian, gradient, w, change, weight)
            steps += 1
            if new is None or steps > MOST_STEPS:
                return w, weight * (cone.size + decrement)
            w = new
        if last:
            return w, weight * cone.size
        weight *= 0.1


def _newton(
    cone: Cone, hessian: np.ndarray, gradient: np.ndarray, w: np.ndarray, weight: float
) -> tuple[np.ndarray, float]:
    factor = np.linalg.inv(np.linalg.cholesky(cone.matrices(w)))
    scaled = factor @ cone.slope @ np.swapaxes(factor, 1, 2)
    slope = -np.trace(scaled, axis1=2, axis2=3).sum(axis=1)
    flat = scaled.reshape(w.size, -1)
    curvature = flat @ flat.T
    if np.isfinite(cone.radius):
        inside, slack = cone.ball * w, cone.radius**2 - np.sum((cone.ball * w) ** 2)
        slope = slope + 2.0 * inside / slack
        curvature = curvature + np.diag(2.0 * cone.ball / slack) + 4.0 * np.outer(inside, inside) / slack**2
    first = (hessian @ w + gradient) / weight + slope
    second = hessian / weight + curvature
    scale = 1.0 / np.sqrt(np.diagonal(second))
    try:
        change = -scale * np.linalg.solve(second * np.outer(scale, scale), scale * first)
    except np.linalg.LinAlgError:  # singular: a direction without effect
        change = -scale * np.linalg.lstsq(second * np.outer(scale, scale), scale * first, rcond=None)[0]
    return change, float(-first @ change)


def _line_search(
    cone: Cone, hessian: np.ndarray, gradient: np.ndarray, w: np.ndarray, change: np.ndarray, weight: float
) -> np.ndarray | None:
    """Point with a smaller sum of objective and barrier; None if rounding prevents a decrease."""
    before = _barrier(cone, w)
    # The change of the objective is computed directly: the difference of its values suffers from cancellation.
    slope, curvature = float((hessian @ w + gradient) @ change), float(change @ hessian @ change)
    size = 1.0
    while size > 1e-10:
        after = _barrier(cone, w + size * change)
        if np.isfinite(after) and (size * slope + 0.5 * size**2 * curvature) / weight + after - before < 0.0:
            return w + size * change
        size *= 0.5
    return None


def _barrier(cone: Cone, w: np.ndarray) -> float:
    slack = cone.radius**2 - float(np.sum((cone.ball * w) ** 2)) if np.isfinite(cone.radius) else 1.0
    if slack <= 0.0:
        return np.inf
    try:
        factor = np.linalg.cholesky(cone.matrices(w))
    except np.linalg.LinAlgError:
        return np.inf
    return float(-2.0 * np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2))) - np.log(slack))
