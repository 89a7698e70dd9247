"""A machine with single mistakes in its description mended: masses, a payload, a joint that is not so rigid."""

import dataclasses
import functools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.experiments.test import Hypothesis
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model

RIGID = 1e5
"""Stiffness of what is locked, over the largest of all."""


class Stated(NamedTuple):
    """Numbers of coordinates whose elasticity is stated, and not free."""

    stiffness: tuple[int, ...]
    """Those that are locked among them."""
    damping: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.stiffness) + len(self.damping)


def stated_joints(model: Model, free: FreeParameters) -> Stated:
    """What a study states of the elasticity of coordinates."""
    locked, found = np.array(model.locked), []
    for leaf, known in (("stiffness", locked), ("damping", np.zeros_like(locked))):
        of_free = [row for target in free.targets if target.leaf == leaf for (row,) in target.entries]
        held = known | (~locked & (np.asarray(getattr(model, leaf)) > 0.0))
        held[of_free] = False
        found.append(tuple(np.flatnonzero(held).tolist()))
    return Stated(*found)


def machine_changes(model: Model, stated: Stated) -> Iterator[Hypothesis]:
    """What may be wrong: all masses by one factor, a payload at each end frame, compliance and damping that are stated
    of joints."""
    yield Hypothesis("masses", 0.1, lambda x: f"all masses {np.exp(x):.3g} times as large")
    total = float(np.sum(np.asarray(model.mass)))
    for frame in model.end_frames:
        yield Hypothesis(f"payload {frame}", 0.01 * total, functools.partial(_payload_text, frame))
    stiffness = np.asarray(model.stiffness)
    joints = stiffness[: len(model.joints)]
    usual = float(np.median(joints[joints > 0.0])) if np.any(joints > 0.0) else 1.0
    seen = _seen_at_joints(model)
    for i in stated.stiffness:
        name, own = model.coordinates[i], 0.0 if model.locked[i] else 1.0 / float(stiffness[i])
        unit = "N m/rad" if model.revolute[i] else "N/m"
        text = functools.partial(_joint_text, name, unit, own)
        usual_here = usual / float(seen[i])
        starts = (0.3 / usual_here, 1.0 / usual_here, 3.0 / usual_here)
        yield Hypothesis(f"compliance {name}", 0.1 / usual_here, text, -own, starts)
    for i in stated.damping:
        unit = "N m s/rad" if model.revolute[i] else "N s/m"
        text = functools.partial(_damping_text, model.coordinates[i], unit, float(model.damping[i]))
        yield Hypothesis(f"damping {model.coordinates[i]}", 0.1, text)


def changeable(model: Model) -> Model:
    """The model in the form in which `changed_machine` takes it."""
    return _all_elastic(_with_places(model, model.end_frames))


def changed_machine(model: Model, stated: Stated, numbers: Float[Array, "c"]) -> Model:
    """A changeable model with its description changed, by numbers in the order of `machine_changes`."""
    frames, joints = len(model.end_frames), len(stated.stiffness)
    masses, payloads, compliances, dampings = jnp.split(numbers, np.cumsum([1, frames, joints]))
    changed = _softer(_heavier(model, masses[0], payloads), stated.stiffness, compliances)
    factor = jnp.ones_like(model.damping).at[jnp.array(stated.damping, dtype=int)].set(jnp.exp(dampings))
    return dataclasses.replace(changed, damping=changed.damping * factor)


def _heavier(model: Model, masses: Array, payloads: Float[Array, "f"]) -> Model:
    """The model with all masses multiplied by exp(masses), and with payloads at its last places."""
    factor, own = jnp.exp(masses), model.mass.size - payloads.size
    return dataclasses.replace(
        model,
        mass=jnp.concatenate([model.mass[:own] * factor, payloads]),
        first_moment=model.first_moment * factor,
        inertia=model.inertia * factor,
    )


def _softer(model: Model, joints: tuple[int, ...], compliances: Float[Array, "k"]) -> Model:
    """The model with more compliance in some joints, in series with their springs, of the same loss."""
    more = jnp.zeros_like(model.stiffness).at[jnp.array(joints, dtype=int)].set(compliances)
    factor = 1.0 / (1.0 + model.stiffness * more)
    return dataclasses.replace(model, stiffness=model.stiffness * factor, damping=model.damping * factor)


def _all_elastic(model: Model) -> Model:
    """The model with springs in place of locks, so stiff that they are rigid, and with the usual damping."""
    locked, stiffness, damping = np.array(model.locked), np.asarray(model.stiffness), np.asarray(model.damping)
    if not locked.any():
        return model
    elastic = ~locked & (stiffness > 0.0)
    seen = _seen_at_joints(model)
    rigid = RIGID * float(np.max(stiffness * seen, where=elastic, initial=1.0)) / seen
    loss = float(np.median(damping[elastic] / stiffness[elastic])) if elastic.any() else 0.0
    return dataclasses.replace(
        model,
        locked=(False,) * locked.size,
        stiffness=jnp.asarray(np.where(locked, rigid, stiffness)),
        damping=jnp.asarray(np.where(locked, rigid * loss, damping)),
    )


def _seen_at_joints(model: Model) -> Float[np.ndarray, "n"]:
    """What a stiffness of each coordinate is at its joint: 1, and the square of the ratio at a motor's shaft."""
    seen = np.ones(len(model.coordinates))
    seen[len(model.joints) :] = np.asarray(model.gear_ratio) ** 2
    return seen


def _with_places(model: Model, frames: Sequence[str]) -> Model:
    """The model with a payload of no mass at each of some frames."""
    places = [model.frames.index(frame) for frame in frames]
    count = len(places)
    return dataclasses.replace(
        model,
        masses=(*model.masses, *(f"at {frame}" for frame in frames)),
        mass_node=(*model.mass_node, *(model.frame_node[k] for k in places)),
        mass_offset=jnp.concatenate([model.mass_offset, model.frame_offset[jnp.array(places, dtype=int)]]),
        mass=jnp.concatenate([model.mass, jnp.zeros(count)]),
        first_moment=jnp.concatenate([model.first_moment, jnp.zeros((count, 3))]),
        inertia=jnp.concatenate([model.inertia, jnp.zeros((count, 3, 3))]),
    )


def _damping_text(name: str, unit: str, own: float, value: float) -> str:
    return f"a damping of {own * np.exp(value):.3g} {unit} of {name} instead of {own:.3g}"


def _joint_text(name: str, unit: str, own: float, value: float) -> str:
    instead = f" instead of {1.0 / own:.3g}" if own else ", which is locked,"
    return f"a stiffness of {1.0 / (own + value):.3g} {unit} of {name}{instead}"


def _payload_text(frame: str, value: float) -> str:
    return f"a payload of {value:.3g} kg at {frame}" if value > 0.0 else f"{-value:.3g} kg less at {frame}"
