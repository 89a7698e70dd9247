"""Small convex problems over positive semi-definite matrices, by Newton's method along the central path."""

import dataclasses

import numpy as np
from jaxtyping import Float

MOST_STEPS = 500


@dataclasses.dataclass(frozen=True, eq=False)
class Cone:
    """Where matrices affine in w [k] are positive semi-definite, and a part of w lies in a ball."""

    base: Float[np.ndarray, "b n n"]
    """At w = 0; a smaller matrix is filled up with ones on its diagonal."""
    slope: Float[np.ndarray, "k b n n"]
    """Of each entry of w."""
    ball: Float[np.ndarray, "k"]
    """Which entries of w lie in the ball, 1 or 0."""
    radius: float = np.inf

    def matrices(self, w: Float[np.ndarray, "k"]) -> Float[np.ndarray, "b n n"]:
        """The matrices at w."""
        return self.base + np.tensordot(w, self.slope, 1)

    @property
    def size(self) -> float:
        """Of the barrier: how far from the minimum its minimum lies at weight 1."""
        return self.base.shape[0] * self.base.shape[1] + float(np.isfinite(self.radius))


def minimise_over(
    cone: Cone,
    hessian: Float[np.ndarray, "k k"],
    gradient: Float[np.ndarray, "k"],
    start: Float[np.ndarray, "k"],
    gap: float = 1e-12,
) -> tuple[Float[np.ndarray, "k"], float]:
    """w that minimises w^T H w / 2 + g^T w over the inside of a cone, and how near that is to the least value.

    Args:
        cone: the matrices and the ball.
        hessian: H, positive semi-definite.
        gradient: g.
        start: a point inside.
        gap: of the objective, at which the search ends.

    Returns:
        w, and about how far its objective may be above the least: more than `gap` where `MOST_STEPS` or rounding ended
        the search before.

    Raises:
        ValueError: the start is not inside.

    Source: Boyd and Vandenberghe, Convex Optimization (2004), section 11.3.
    """
    if not np.isfinite(_barrier(cone, start)):
        raise ValueError("the start is not inside: a matrix is not positive definite there, or the ball is left")
    w = np.array(start, float)
    weight = max(1.0, abs(float(0.5 * w @ hessian @ w + gradient @ w)))
    steps = 0
    while True:
        last = weight * cone.size <= gap
        for _ in range(MOST_STEPS):
            change, decrement = _newton(cone, hessian, gradient, w, weight)
            # The decrement tells how far below the value here the minimum on the path lies, in units of the weight.
            if decrement <= (1e-9 if last else 1e-2):
                break
            moved = _search(cone, hessian, gradient, w, change, weight)
            steps += 1
            if moved is None or steps > MOST_STEPS:
                return w, weight * (cone.size + decrement)
            w = moved
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
        inside, left = cone.ball * w, cone.radius**2 - np.sum((cone.ball * w) ** 2)
        slope = slope + 2.0 * inside / left
        curvature = curvature + np.diag(2.0 * cone.ball / left) + 4.0 * np.outer(inside, inside) / left**2
    first = (hessian @ w + gradient) / weight + slope
    second = hessian / weight + curvature
    scale = 1.0 / np.sqrt(np.diagonal(second))
    try:
        change = -scale * np.linalg.solve(second * np.outer(scale, scale), scale * first)
    except np.linalg.LinAlgError:  # a direction in which nothing changes
        change = -scale * np.linalg.lstsq(second * np.outer(scale, scale), scale * first, rcond=None)[0]
    return change, float(-first @ change)


def _search(
    cone: Cone, hessian: np.ndarray, gradient: np.ndarray, w: np.ndarray, change: np.ndarray, weight: float
) -> np.ndarray | None:
    """A step that lowers objective plus barrier; None where rounding leaves none."""
    before = _barrier(cone, w)
    # The change of the objective itself: the difference of its values would be lost in rounding.
    slope, bend = float((hessian @ w + gradient) @ change), float(change @ hessian @ change)
    size = 1.0
    while size > 1e-10:
        after = _barrier(cone, w + size * change)
        if np.isfinite(after) and (size * slope + 0.5 * size**2 * bend) / weight + after - before < 0.0:
            return w + size * change
        size *= 0.5
    return None


def _barrier(cone: Cone, w: np.ndarray) -> float:
    left = cone.radius**2 - float(np.sum((cone.ball * w) ** 2)) if np.isfinite(cone.radius) else 1.0
    if left <= 0.0:
        return np.inf
    try:
        factor = np.linalg.cholesky(cone.matrices(w))
    except np.linalg.LinAlgError:
        return np.inf
    return float(-2.0 * np.sum(np.log(np.diagonal(factor, axis1=1, axis2=2))) - np.log(left))
