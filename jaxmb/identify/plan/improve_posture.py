"""Gradient-based refinement of the postures of chosen tests for the design criterion."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.probe import Probe
from jaxmb.identify.plan.candidates import Candidate, Motion, Place, motion_of, observation, observed
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf_kind import Point

MOST_STEPS = 40
NO_VALUE = 1e30
"""Criterion of postures with a singular information matrix: large but finite."""


def improved(
    place: Place,
    chosen: Sequence[Candidate],
    made: Float[np.ndarray, "m d"],
    basis: Float[np.ndarray, "d r"],
    criterion: str,
    where: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> tuple[Candidate, ...]:
    """The chosen tests at postures within their ranges with a smaller criterion, if possible at a minimum.

    With M the information of all tests, the criterion changes by -tr(G dM), G = M^-2 / tr M^-1 for log tr M^-1 ("A")
    and M^-1 for -log det M ("D"); tr(G J^T J) is differentiated through the derivative J of the frequency responses.
    All coordinates of all tests are optimised together by L-BFGS-B with at most `MOST_STEPS` steps. Without an
    improvement the initial tests are returned.

    Args:
        place: machine, free parameters and their values.
        chosen: tests at their initial postures.
        made: observation rows of the planned tests.
        basis: orthonormal basis of the identifiable directions of the parameters, in columns.
        criterion: "A" or "D".
        where: indices of the varying coordinates.
        ends: lower and upper ends of their ranges, rad or m.
    """
    from scipy.optimize import minimize

    low, high = ends
    value = objective(place, chosen, made, basis, criterion, where, ends)
    first = np.stack([(c.q[where] - low) / (high - low) for c in chosen]).ravel()
    best = minimize(value, first, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * first.size,
                    options={"maxiter": MOST_STEPS})  # fmt: skip
    if best.fun >= value(first)[0]:
        return tuple(chosen)
    return tuple(_at_posture(c, where, point) for c, point in zip(chosen, _postures(best.x, ends), strict=True))


def objective(
    place: Place,
    chosen: Sequence[Candidate],
    made: Float[np.ndarray, "m d"],
    basis: Float[np.ndarray, "d r"],
    criterion: str,
    where: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """Objective of `improved` with its gradient: log tr M^-1 or -log det M up to a constant.

    Its argument is the relative position of each coordinate in its range, 0 to 1, test by test.
    """
    # Coordinates of the parameters in which the information of all initial tests is the identity.
    all_rows = np.concatenate([made, *(observation(place, c) for c in chosen)]) @ basis
    length = np.linalg.norm(all_rows, axis=0)
    whitening = np.linalg.inv(np.linalg.qr(all_rows / length, mode="r")) / length[:, None]
    transform = basis @ whitening
    before = (made @ transform).T @ (made @ transform)
    weight = whitening.T @ whitening

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        tests = [_at_posture(c, where, point) for c, point in zip(chosen, _postures(x, ends), strict=True)]
        rows = [observation(place, test) @ transform for test in tests]
        matrix = before + sum(r.T @ r for r in rows)
        if not np.isfinite(matrix).all() or np.linalg.matrix_rank(matrix, hermitian=True) < len(matrix):
            return NO_VALUE, np.zeros(x.size)
        inverse = np.linalg.inv(matrix)
        if criterion == "D":
            criterion_value, gain = -float(np.linalg.slogdet(matrix)[1]), inverse
        else:
            covariance = inverse @ weight
            trace = np.trace(covariance)
            criterion_value, gain = float(np.log(trace)), covariance @ inverse / trace
        gain = transform @ gain @ transform.T
        slopes = [_slope(place, test, gain, where) for test in tests]
        return criterion_value, -(np.stack(slopes) * (ends[1] - ends[0])).ravel()

    return value


def _postures(x: np.ndarray, ends: tuple[np.ndarray, np.ndarray]) -> list[list[float]]:
    """Values of the varying coordinates of each test, rad or m."""
    low, high = ends
    return (low + (high - low) * x.reshape(-1, low.size)).tolist()


def _at_posture(candidate: Candidate, where: np.ndarray, values: list[float]) -> Candidate:
    q = np.array(candidate.q)
    q[where] = values
    return Candidate(candidate.probe, q)


def _slope(
    place: Place, candidate: Candidate, gain: Float[np.ndarray, "d d"], where: np.ndarray
) -> Float[np.ndarray, "k"]:
    """d tr(G J^T J) / dq by the varying coordinates.

    Reverse mode through the frequency responses and forward mode through the tangent matrices, on which J depends, in
    two programs that compile faster than a single one.
    """
    q, probe = jnp.asarray(candidate.q), candidate.probe
    motion, slope = _motion_slope(place, q, probe.at, probe.points, jnp.asarray(where))
    weight = _information_slope(probe, motion, jnp.asarray(gain))
    pairs = zip(jax.tree.leaves(weight), jax.tree.leaves(slope), strict=True)
    return sum((np.tensordot(w, m, np.ndim(w)) for w, m in pairs), np.zeros(where.size))


@compiled
def _motion_slope(
    place: Place, q: Float[Array, "n"], at: LinearizeAt, points: tuple[Point, ...], where: Int[Array, "k"]
) -> tuple[Motion, Motion]:
    """Tangent matrices at a posture, and their derivatives by the varying coordinates along the last axis."""

    def motion(values: Array) -> Motion:
        return motion_of(place, q.at[where].set(values), at, points)

    return motion(q[where]), jax.jacfwd(motion)(q[where])


@compiled
def _information_slope(probe: Probe, motion: Motion, gain: Float[Array, "d d"]) -> Motion:
    """Derivative of tr(G J^T J) by the tangent matrices."""

    def information(at: Motion) -> Array:
        rows = observed(probe, at)
        return jnp.sum(rows * (rows @ gain))

    return jax.grad(information)(motion)
