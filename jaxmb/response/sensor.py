"""What an accelerometer measures beside the acceleration of its point: gravity as it tilts, through a high-pass."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.tangent import motion_coordinates, motion_jacobian
from jaxmb.response.frf_kind import DIRECTIONS, GROUND_DIRECTIONS, Point


class Sensor(NamedTuple):
    """The sensors of a test."""

    gravity: bool = False
    """Whether they feel gravity as they tilt, as accelerometers do that respond to a constant acceleration."""
    high_pass_hz: float = 0.0
    """Corner of a first-order high-pass behind them; 0 where there is none."""


def tilt_rows(model: Model, q: Float[Array, "n"], points: Sequence[Point]) -> Float[Array, "p m"]:
    """What gravity adds to the acceleration that is measured at each point, m/s^2 per unit of small motion.

    An accelerometer measures d . (a - g) along its axis d, which turns with its frame: a small rotation theta adds
    -(theta x d) . g = -(d x g) . theta. Points that are rotations, or coordinates, feel none.
    """
    rows = []
    for name, signed in points:
        axis = signed.removeprefix("-")
        if axis.lower() not in DIRECTIONS[:3]:
            rows.append(jnp.zeros(len(motion_coordinates(model))))
            continue
        along = jnp.eye(3)[DIRECTIONS.index(axis.lower())]
        if axis not in GROUND_DIRECTIONS:
            along = frame_pose(model, q, name)[:3, :3] @ along
        row = -jnp.cross(along, model.gravity) @ motion_jacobian(model, q, name)[3:]
        rows.append(-row if signed != axis else row)
    return jnp.stack(rows) if rows else jnp.zeros((0, len(motion_coordinates(model))))


def high_pass(s: Complex[Array, "f"], sensor: Sensor) -> Complex[Array, "f"]:
    """s / (s + 2 pi f) of the sensor's high-pass at f."""
    return s / (s + 2.0 * jnp.pi * sensor.high_pass_hz) if sensor.high_pass_hz > 0.0 else jnp.ones_like(s)
