"""Accelerometer models: sensitivity to gravity by tilt, and a high-pass filter."""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Complex, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.tangent import motion_coordinates, motion_jacobian
from jaxmb.response.frf_kind import DIRECTIONS, GROUND_DIRECTIONS, Point


class Sensor(NamedTuple):
    """Properties of the sensors of a test."""

    gravity: bool = False
    """Whether they measure gravity as they tilt, as accelerometers with DC response do."""
    high_pass_hz: float = 0.0
    """Corner frequency of a first-order high-pass, Hz; 0 for none."""


def tilt_rows(model: Model, q: Float[Array, "n"], points: Sequence[Point]) -> Float[Array, "p m"]:
    """Derivative of the gravity signal at each point by `motion_coordinates`, m/s^2 per m or rad.

    An accelerometer measures d . (a - g) along its axis d, which rotates with its frame: a small rotation theta adds
    -(theta x d) . g = -(d x g) . theta. Rows of rotations and coordinates are 0.
    """
    rows = []
    for name, signed in points:
        axis = signed.removeprefix("-")
        if axis.lower() not in DIRECTIONS[:3]:
            rows.append(jnp.zeros(len(motion_coordinates(model))))
            continue
        direction = jnp.eye(3)[DIRECTIONS.index(axis.lower())]
        if axis not in GROUND_DIRECTIONS:
            direction = frame_pose(model, q, name)[:3, :3] @ direction
        row = -jnp.cross(direction, model.gravity) @ motion_jacobian(model, q, name)[3:]
        rows.append(-row if signed != axis else row)
    return jnp.stack(rows) if rows else jnp.zeros((0, len(motion_coordinates(model))))


def high_pass(s: Complex[Array, "f"], sensor: Sensor) -> Complex[Array, "f"]:
    """s / (s + 2 pi f) of the sensor's high-pass at f."""
    return s / (s + 2.0 * jnp.pi * sensor.high_pass_hz) if sensor.high_pass_hz > 0.0 else jnp.ones_like(s)
