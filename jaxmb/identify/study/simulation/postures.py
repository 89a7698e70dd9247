"""Postures in which a deflection test could be made."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmb.compiled import compiled
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import frame_poses

MOST_TRIES = 200
"""How many times as many postures are drawn as are wanted before the search is given up."""


def candidate_postures(
    model: Model,
    ranges: Mapping[str, tuple[float, float] | Sequence[float]],
    count: int,
    seed: int = 0,
    floor: float = 0.0,
    load: tuple[str, np.ndarray] | None = None,
    largest_effort: Mapping[str, float] | None = None,
) -> np.ndarray:
    """Random postures [count, n] within joint limits, with every frame above the floor and no drive overloaded.

    Args:
        model: the machine.
        ranges: lower and upper limit of a coordinate [rad or m], or a list of three or more values it may take; the
            others stay as in the reference posture.
        count: how many.
        seed: of the draws.
        floor: height [m] that the origin of every frame but the ground's stays above: links do not cross it.
        load: frame and wrench of the tests.
        largest_effort: of drives under the load, Nm or N by coordinate.

    Raises:
        ValueError: a name is not a coordinate, a range is reversed, a load or a count cannot be, or too few postures
            are possible.
    """
    if count < 1:
        raise ValueError(f"count is {count}, expected at least one posture")
    load = None if load is None else _checked_load(model, load)
    check_known("largest_effort: coordinate", largest_effort or {}, model.coordinates)
    if largest_effort and load is None:
        raise ValueError("largest_effort is given without a load, expected the frame and wrench of the tests as load")
    for name, limits in ranges.items():
        check_known("range: coordinate", [name], model.coordinates)
        if len(limits) < 2 or (len(limits) == 2 and not limits[0] <= limits[1]):
            raise ValueError(
                f"range of '{name}' is {tuple(limits)}, expected lower and upper limit, or a list of values"
            )
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for _ in range(MOST_TRIES):
        q = np.tile(np.asarray(model.reference), (count, 1))
        for name, limits in ranges.items():
            drawn = (
                rng.uniform(limits[0], limits[1], count) if len(limits) == 2 else rng.choice(np.asarray(limits), count)
            )
            q[:, model.coordinates.index(name)] = drawn
        heights, efforts = (np.asarray(x) for x in _seen(model, jnp.asarray(q), load))
        good = np.all(heights[:, _movable(model)] > floor, axis=1)
        for name, most in (largest_effort or {}).items():
            good &= np.abs(efforts[:, model.coordinates.index(name)]) <= most
        found.extend(q[good])
        if len(found) >= count:
            return np.stack(found[:count])
    raise ValueError(
        f"{len(found)} of {MOST_TRIES * count} postures drawn are possible, expected {count}: widen ranges or limits"
    )


def lowest_frame(model: Model, q: np.ndarray) -> float:
    """Height [m] of the lowest origin of a frame that moves."""
    heights, _ = _seen(model, jnp.asarray(q)[None], None)
    return float(np.asarray(heights)[0, _movable(model)].min())


@compiled
def _seen(model: Model, q: jax.Array, load: tuple[str, np.ndarray] | None) -> tuple[jax.Array, jax.Array]:
    """Heights of all frames [c, f] and efforts of the load [c, n]."""

    def one(at: jax.Array) -> tuple[jax.Array, jax.Array]:
        height = frame_poses(model, at)[:, 2, 3]
        if load is None:
            return height, jnp.zeros_like(at)
        return height, (elastic_jacobian(model, at, load[0]).T @ load[1])[: at.size]

    return jax.vmap(one)(q)


def _checked_load(model: Model, load: tuple[str, np.ndarray]) -> tuple[str, np.ndarray]:
    if len(load) != 2 or not isinstance(load[0], str):
        raise ValueError(f"load is {load}, expected the name of a frame and a wrench")
    check_known("load: frame", [load[0]], model.frames)
    wrench = np.asarray(load[1], float)
    if wrench.shape != (6,) or not np.all(np.isfinite(wrench)):
        raise ValueError(f"load: wrench is {wrench.tolist()}, expected six finite numbers, force then moment")
    return load[0], wrench


def _movable(model: Model) -> list[int]:
    return [i for i, node in enumerate(model.frame_node) if node >= 0]
