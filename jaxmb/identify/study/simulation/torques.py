"""Pseudo-measured motions of a machine with the efforts of its drives."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.torque.gears import (
    Gears,
    brakes_released,
    drives_of,
    elastic_rows,
    rigid_gears,
)
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import regressor_names
from jaxmb.identify.study.format.torque_format import Motion, SimulateTorques
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.record import MotionRecord, Side
from jaxmb.mechanics.forward import actuator_effort
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import closed_along


def simulated_motion(
    how: SimulateTorques,
    model: Model,
    start: np.ndarray,
    noise_seed: int,
    angles_at: Side | Mapping[str, Side] = "motor",
) -> MotionRecord:
    """A motion about a posture as it would be recorded on a machine, with errors.

    Args:
        how: the motion and its measurement.
        model: the machine that is measured.
        start: posture at the first sample [n].
        noise_seed: of the errors.
        angles_at: side of the gear on which angles of joints with motors are recorded; the motion is that of the links.

    Raises:
        ValueError: a coordinate is not one that a posture gives, or a loop opens on the way.
    """
    model = brakes_released(model)
    shafts = [model.coordinates[shaft] for _, shaft in model.motors]
    names = [name for name in independent_coordinates(model) if name not in shafts]
    check_known("motion: coordinate", how.motion, names)
    time = np.arange(round(how.duration_s * how.rate_hz) + 1) / how.rate_hz
    z, zd, zdd = states_along(how.motion, how.base_hz, time, names)
    z += start[[model.coordinates.index(name) for name in names]]
    std = how.torque_std if isinstance(how.torque_std, dict) else dict.fromkeys(names, how.torque_std)
    check_known("torque_std: coordinate", std, names)
    if model.motors:
        z, effort = _behind_gears(model, names, z, zd, zdd, how.rate_hz, angles_at)
    else:
        effort = np.asarray(_efforts(model, *map(jnp.asarray, (closed_along(model, z, start), zd, zdd))))
    draw = np.random.default_rng(noise_seed)
    return MotionRecord(
        time_s=time,
        names=tuple(names),
        position=z + how.angle_std * draw.normal(size=z.shape),
        effort=effort + np.array([std.get(name, 0.0) for name in names]) * draw.normal(size=z.shape),
        velocity=None if how.velocity_std is None else zd + how.velocity_std * draw.normal(size=z.shape),
        acceleration=None if how.acceleration_std is None else zdd + how.acceleration_std * draw.normal(size=z.shape),
    )


def states_along(
    motion: Mapping[str, Motion], base_hz: float, time_s: Float[np.ndarray, "k"], names: Sequence[str]
) -> tuple[Float[np.ndarray, "k m"], Float[np.ndarray, "k m"], Float[np.ndarray, "k m"]]:
    """Coordinates from their start, rates and accelerations along a motion, in the order of some names."""
    z, zd, zdd = (np.zeros((len(time_s), len(names))) for _ in range(3))
    for name, series in motion.items():
        i = names.index(name)
        z[:, i] += series.speed * time_s
        zd[:, i] += series.speed
        for amplitudes, phase in ((series.sine, 0.0), (series.cosine, np.pi / 2)):
            for k, amplitude in enumerate(amplitudes, 1):
                w = 2.0 * np.pi * k * base_hz
                z[:, i] += amplitude * (np.sin(w * time_s + phase) - np.sin(phase))
                zd[:, i] += amplitude * w * np.cos(w * time_s + phase)
                zdd[:, i] -= amplitude * w**2 * np.sin(w * time_s + phase)
    return z, zd, zdd


def _behind_gears(
    model: Model,
    names: Sequence[str],
    z: np.ndarray,
    zd: np.ndarray,
    zdd: np.ndarray,
    rate_hz: float,
    angles_at: Side | Mapping[str, Side],
) -> tuple[Float[np.ndarray, "k c"], Float[np.ndarray, "k c"]]:
    """Recorded angles and efforts of the drives for a motion of the links, gears deflecting."""
    if model.dependent:
        raise NotImplementedError("motions of machines with loops and motors cannot be simulated")
    every, driven = independent_coordinates(model), drives_of(model)
    own = [every.index(name) for name in names]

    def whole(part: np.ndarray) -> np.ndarray:
        found = np.zeros((len(part), len(every)))
        found[:, own] = part
        return rigid_gears(model, (), found)

    gears = Gears({every[joint]: "link" for joint, _, _ in driven}, fitted=model)
    matrix, constant, moved = elastic_rows(model, gears, (), whole(z), whole(zd), whole(zdd), rate_hz)
    known = parameters(model)
    effort = matrix @ np.array([known[name] for name in regressor_names(model)]) + constant
    for joint, shaft, ratio in driven:
        if (angles_at if isinstance(angles_at, str) else angles_at.get(every[joint], "motor")) == "motor":
            moved[:, joint] = moved[:, shaft] / ratio
    return moved[:, own], effort[:, own]


@compiled
def _efforts(
    model: Model, q: Float[Array, "k n"], qd: Float[Array, "k m"], qdd: Float[Array, "k m"]
) -> Float[Array, "k m"]:
    return jax.vmap(lambda *at: actuator_effort(model, *at))(q, qd, qdd)
