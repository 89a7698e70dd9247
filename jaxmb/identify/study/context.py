"""Context in which the tests of a study are read: machine, study file, preliminary fits; true machines and random
postures of simulated tests."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.test import Entry, Truth
from jaxmb.identify.experiments.torque.preliminary_fits import FrictionChoice, GainChoice
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters, set_parameters
from jaxmb.identify.study.format.study_format import StudyFile, machine_named
from jaxmb.identify.study.format.test_format import Simulation
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import frame_poses
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import motion_coordinates


class ReadingContext(NamedTuple):
    """Context in which the tests of a study are read: the machine, the study file and preliminary fits."""

    file: StudyFile
    """The whole study."""
    folder: Path
    """Paths are relative to it."""
    unlocked_machine: Machine
    """The study's machine without the locks of the study."""
    model: Model
    """The machine that is fitted."""
    noise_seed: int | None
    """Seed of simulated noise instead of the study's own."""
    fitted: tuple[Entry, ...] = ()
    """The fitted tests, while held-out tests are read; empty before."""
    gains: GainChoice | None = None
    """Gains of drives from a preliminary fit."""
    friction: FrictionChoice | None = None
    """Friction terms chosen in a preliminary fit; `unlocked_machine` has them."""


def study_model(machine: Machine, file: StudyFile) -> Model:
    """Model of a machine in a study, whose brakes are released in tests that require it."""
    released = any(test.releases_brakes for test in file.test)
    model = build_model(machine)
    return dataclasses.replace(model, brakes_release=True) if released and model.motors else model


def simulated_machine(how: Simulation, context: ReadingContext) -> tuple[Model, int, Truth]:
    """The true machine of a simulated test (the stated one, else the study's own without its locks), the seed of its
    noise, and its true parameters.

    Args:
        how: entry of the study file; a full name of a parameter overrules a pattern.
        context: of the tests.

    Raises:
        ValueError: a name or pattern selects no parameter.
    """
    machine = context.unlocked_machine if how.machine is None else machine_named(how.machine, context.folder)
    model = study_model(machine, context.file)
    names = list(parameter_table(model))
    given: dict[str, float] = {}
    for pattern, value in how.parameters.items():
        if pattern not in names:
            given |= dict.fromkeys(matching(names, pattern) or [pattern], value)
    model = set_parameters(model, given | {name: value for name, value in how.parameters.items() if name in names})
    seed = how.noise_seed if context.noise_seed is None else context.noise_seed
    return model, seed, Truth(motion_coordinates(model), parameters(model))


MOST_TRIES = 200
"""Largest number of draws, each of as many postures as requested, before the search is given up."""


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
        count: number of postures.
        seed: of the draws.
        floor: height [m] above which the origins of all moving frames must be.
        load: frame and wrench of the tests.
        largest_effort: of drives under the load, Nm or N by coordinate.

    Raises:
        ValueError: a name is not a coordinate, a range is reversed, a load or a count is invalid, or too few of the
            drawn postures are admissible.
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
