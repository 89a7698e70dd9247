"""From chosen postures to better ones beside them, by the gradient of what the tests are chosen for."""

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
"""Of postures at which the tests tell nothing of a parameter: larger than any other, and still finite."""


def improved(
    place: Place,
    chosen: Sequence[Candidate],
    made: Float[np.ndarray, "m d"],
    basis: Float[np.ndarray, "d r"],
    criterion: str,
    where: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> tuple[Candidate, ...]:
    """The chosen tests at postures within ranges where the criterion is less, if possible at a minimum of it.

    With M the information of all tests, it falls by -tr(G dM), G = M^-2 for the logarithm of tr M^-1 ("A", over that
    trace) and M^-1 for -log det M ("D"); tr(G J^T J) is differentiated through the derivative J of the frequency
    responses. Bounded quasi-Newton steps (L-BFGS-B) of all coordinates of all tests together, `MOST_STEPS` at most:
    where these end before a minimum, or the search fails, the best postures it came to are given, or else the first
    ones. What the tests promise is said of the postures that are given.

    Args:
        place: machine, free parameters and their values.
        chosen: tests at their first postures.
        made: rows of tests that are made anyway.
        basis: directions of the parameters that can be known, of length 1, in columns.
        criterion: "A" or "D".
        where: coordinates that may move.
        ends: lower and upper ends of their ranges.
    """
    from scipy.optimize import minimize

    low, high = ends
    value = objective(place, chosen, made, basis, criterion, where, ends)
    first = np.stack([(c.q[where] - low) / (high - low) for c in chosen]).ravel()
    best = minimize(value, first, jac=True, method="L-BFGS-B", bounds=[(0.0, 1.0)] * first.size,
                    options={"maxiter": MOST_STEPS})  # fmt: skip
    if best.fun >= value(first)[0]:
        return tuple(chosen)
    return tuple(_moved(c, where, point) for c, point in zip(chosen, _postures(best.x, ends), strict=True))


def objective(
    place: Place,
    chosen: Sequence[Candidate],
    made: Float[np.ndarray, "m d"],
    basis: Float[np.ndarray, "d r"],
    criterion: str,
    where: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
    """What `improved` minimises, log tr M^-1 or -log det M but for a constant, with its gradient.

    Its argument is, test after test, where each coordinate is in its range, 0 to 1.
    """
    # Parameters in which all tests together are the identity at the start.
    everything = np.concatenate([made, *(observation(place, c) for c in chosen)]) @ basis
    length = np.linalg.norm(everything, axis=0)
    regular = np.linalg.inv(np.linalg.qr(everything / length, mode="r")) / length[:, None]
    turn = basis @ regular
    before = (made @ turn).T @ (made @ turn)
    weight = regular.T @ regular

    def value(x: np.ndarray) -> tuple[float, np.ndarray]:
        tests = [_moved(c, where, point) for c, point in zip(chosen, _postures(x, ends), strict=True)]
        rows = [observation(place, test) @ turn for test in tests]
        matrix = before + sum(r.T @ r for r in rows)
        if not np.isfinite(matrix).all() or np.linalg.matrix_rank(matrix, hermitian=True) < len(matrix):
            return NO_VALUE, np.zeros(x.size)
        inverse = np.linalg.inv(matrix)
        if criterion == "D":
            found, gain = -float(np.linalg.slogdet(matrix)[1]), inverse
        else:
            spread = inverse @ weight
            found, gain = float(np.log(np.trace(spread))), spread @ inverse / np.trace(spread)
        gain = turn @ gain @ turn.T
        slopes = [_slope(place, test, gain, where) for test in tests]
        return found, -(np.stack(slopes) * (ends[1] - ends[0])).ravel()

    return value


def _postures(x: np.ndarray, ends: tuple[np.ndarray, np.ndarray]) -> list[list[float]]:
    """Values of the coordinates of each test."""
    low, high = ends
    return (low + (high - low) * x.reshape(-1, low.size)).tolist()


def _moved(candidate: Candidate, where: np.ndarray, values: list[float]) -> Candidate:
    q = np.array(candidate.q)
    q[where] = values
    return Candidate(candidate.probe, q)


def _slope(
    place: Place, candidate: Candidate, gain: Float[np.ndarray, "d d"], where: np.ndarray
) -> Float[np.ndarray, "k"]:
    """d tr(G J^T J) / dq by the coordinates that may move.

    By way of the small motions, which are all that J needs of the posture: backwards through the frequency responses,
    forwards through the kinematics, in two programs that are each compiled in a fraction of the time of one.
    """
    q, probe = jnp.asarray(candidate.q), candidate.probe
    motion, moved = _motion_slope(place, q, probe.at, probe.points, jnp.asarray(where))
    weight = _told_slope(probe, motion, jnp.asarray(gain))
    pairs = zip(jax.tree.leaves(weight), jax.tree.leaves(moved), strict=True)
    return sum((np.tensordot(w, m, np.ndim(w)) for w, m in pairs), np.zeros(where.size))


@compiled
def _motion_slope(
    place: Place, q: Float[Array, "n"], at: LinearizeAt, points: tuple[Point, ...], where: Int[Array, "k"]
) -> tuple[Motion, Motion]:
    """Small motions at a posture, and their derivatives by the coordinates that may move, as last axis."""

    def motion(values: Array) -> Motion:
        return motion_of(place, q.at[where].set(values), at, points)

    return motion(q[where]), jax.jacfwd(motion)(q[where])


@compiled
def _told_slope(probe: Probe, motion: Motion, gain: Float[Array, "d d"]) -> Motion:
    """d tr(G J^T J) by the small motions."""

    def information(at: Motion) -> Array:
        rows = observed(probe, at)
        return jnp.sum(rows * (rows @ gain))

    return jax.grad(information)(motion)
