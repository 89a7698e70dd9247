"""Errors of the numbers of a machine that its tolerances allow."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping

import jax
import numpy as np

from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.parameters.model_parameters import assigned, parameter_table, parameters
from jaxmb.machine.build import Model
from jaxmb.machine.changed import central_inertia
from jaxmb.machine.families import FAMILIES


def machine_errors(model: Model, free: FreeParameters, frames: Collection[str]) -> Iterator[StatedError]:
    """Errors of all numbers of a machine that have a tolerance and are not free.

    Args:
        model: the machine.
        free: the free parameters.
        frames: names of the frames that tests use.
    """
    own, named = parameters(model), {name for names in free.tied for name in names}
    for name, place in parameter_table(model).items():
        kind = next(
            (row.tolerance for row in FAMILIES if row.name == name.split(".")[0] and row.leaf == place.leaf), ""
        )
        if kind and own[name] != 0.0 and name not in named:
            yield StatedError(name, kind, 0.01 * own[name])
    free_of = {tuple(name.split(".")[:2]) for name in named}
    for i in np.flatnonzero(np.asarray(model.mass) > 0.0).tolist():
        body, (_, about_centre) = model.masses[i], central_inertia(*_inertial(model, i))
        if ("mass", body) not in free_of:
            yield StatedError(f"mass of {body}", "mass_percent", 0.01)
        if ("first_moment", body) not in free_of:
            yield from (StatedError(key, "center_of_mass_mm", 1e-3) for key in _keys("centre of mass", body))
        if ("inertia", body) not in free_of:
            sizes = zip(_keys("moment of inertia", body), 0.01 * np.diag(about_centre), strict=True)
            yield from (StatedError(key, "inertia_percent", float(size)) for key, size in sizes if size > 0.0)
    for frame in dict.fromkeys(frames):
        if model.frame_node[model.frames.index(frame)] >= 0:
            yield from (StatedError(f"position of {frame} along {axis}", "frame_mm", 1e-3) for axis in "xyz")
    if np.any(np.asarray(model.gravity)):
        yield from (StatedError(f"tilt about {axis}", "tilt_deg", np.pi / 180.0) for axis in "XY")


def _keys(what: str, body: str) -> list[str]:
    return [f"{what} of {body} {axis}" for axis in "xyz"]


def _inertial(model: Model, i: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, first moment and inertia of a body about its origin."""
    return float(model.mass[i]), np.asarray(model.first_moment)[i], np.asarray(model.inertia)[i]


def with_machine_errors(model: Model, errors: Mapping[str, float]) -> Model:
    """The model with errors of `machine_errors` by key, SI; other keys have no effect.

    An error of the centre of mass leaves the inertia about it, one of the mass changes it in proportion.
    """
    if not errors:
        return model
    table = parameter_table(model)
    names = [name for name in errors if name in table]
    own = parameters(model) if names else {}
    model = assigned(model, [table[name] for name in names], [own[name] + errors[name] for name in names])
    mass, moment, inertia, offset = map(np.array, (model.mass, model.first_moment, model.inertia, model.frame_offset))
    for i, body in enumerate(model.masses):
        factor = 1.0 + errors.get(f"mass of {body}", 0.0)
        shift, more = (
            np.array([errors.get(key, 0.0) for key in _keys(what, body)])
            for what in ("centre of mass", "moment of inertia")
        )
        if factor != 1.0 or shift.any() or more.any():
            centre, about_centre = central_inertia(*_inertial(model, i))
            there, mass[i] = centre + shift, factor * mass[i]
            moment[i] = mass[i] * there
            steiner = there @ there * np.eye(3) - np.outer(there, there)
            inertia[i] = factor * (about_centre + np.diag(more)) + mass[i] * steiner
    for i, frame in enumerate(model.frames):
        by = np.array([errors.get(f"position of {frame} along {axis}", 0.0) for axis in "xyz"])
        offset[i, :3, 3] += offset[i, :3, :3] @ by
    turn = np.array([errors.get(f"tilt about {axis}", 0.0) for axis in "XYZ"])
    gravity = np.asarray(model.gravity)
    leaves = {
        "mass": mass,
        "first_moment": moment,
        "inertia": inertia,
        "frame_offset": offset,
        "gravity": gravity + np.cross(turn, gravity),
    }
    changed = {name: new for name, new in leaves.items() if not np.array_equal(new, np.asarray(getattr(model, name)))}
    return dataclasses.replace(model, **jax.device_put(changed))
