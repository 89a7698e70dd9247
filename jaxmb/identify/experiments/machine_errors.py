"""Possible errors in the description of a machine: stated numbers, missing springs and payloads; their correction."""

import dataclasses
import itertools
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.experiments.tolerances import StatedError, error_with_text, factor_number, usual
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.parameters.model_parameters import (
    TENSOR,
    ParameterSpec,
    assigned,
    parameter_table,
    parameters,
    unit,
)
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.machine.changed import central_inertia
from jaxmb.machine.families import FAMILIES, STATION
from jaxmb.mechanics.kinematics import ELASTIC_AXES, ancestor_nodes

RIGID = 1e6
"""Stiffness of locked coordinates over the largest of all others."""
FREQUENCY = 20.0 * np.pi
"""rad/s, natural frequency of the inertia of all bodies on the largest of the other stiffnesses, where there are none.
"""
MOST_GRAVITY = 9.9
"""m/s^2, largest gravity on Earth."""
TILTS = (0.5 * np.pi, -0.5 * np.pi, 0.3)
"""rad, starts of tilts: of a base that is mounted at a wall, and across a plane of motion, where torques change with
the square of a tilt."""
MOST_TILT = 1.75
"""rad, largest tilt: a machine that hangs has a gravity of -1 times the stated one."""
LEAST_MASS = 0.95
"""Largest part of the mass of a body that may be missing at a frame."""
ABSENT = "absent payload "
"""Start of the key of a payload that was not mounted."""
MOST_FACTOR = 7.0
"""Logarithm of the largest factor on all masses, and on the damping of a missing elasticity."""
OWN_INERTIA = 1e-4
"""Inertia of a further coordinate over that of all bodies and beams."""
T = TypeVar("T")


class MachineErrors(NamedTuple):
    """Errors of a machine, 0 where it is as described."""

    log_mass: Float[np.ndarray, "b"] | Array
    """Logarithm of true over stated mass of each body; its first moment and inertia are in proportion."""
    centre: Float[np.ndarray, "b 3"] | Array
    """True minus stated centre of mass, m; the inertia about it is unchanged."""
    inertia: Float[np.ndarray, "b 3"] | Array
    """True minus stated moments of inertia about the centre of mass, kg m^2."""
    payload: Float[np.ndarray, "f"] | Array
    """Point mass at each frame, kg."""
    absent: Float[np.ndarray, "b"] | Array
    """Absent part of each stated payload; 0 of bodies."""
    frame: Float[np.ndarray, "f 6"] | Array
    """True minus stated position of each frame and rotation to its true axes, in its own axes, m and rad."""
    origin: Float[np.ndarray, "n 6"] | Array
    """The same of the origin of each coordinate."""
    tilt: Float[np.ndarray, "3"] | Array
    """Rotation of gravity about the axes of the ground, rad."""
    gravity: Float[np.ndarray, "3"] | Array
    """True minus stated gravity beside its tilt, m/s^2."""
    compliance: Float[np.ndarray, "n"] | Array
    """Compliance of each coordinate in series with its spring, at the same loss factor, rad/(N m) or m/N."""
    stiffness: Float[np.ndarray, "n"] | Array
    """Stiffness of each coordinate beside its spring, N m/rad or N/m."""
    log_damping: Float[np.ndarray, "n"] | Array
    rotor_inertia: Float[np.ndarray, "n"] | Array
    """kg m^2 or kg."""
    log_length: Float[np.ndarray, "c"] | Array
    """Logarithm of true over stated length of each beam."""
    log_stated: Float[np.ndarray, "p"] | Array
    """Logarithm of true over stated value of `parameters_with_tolerance`."""


def no_machine_errors(model: Model) -> MachineErrors:
    """Zero errors."""
    bodies, frames, n = len(model.masses), len(model.frames), len(model.coordinates)
    return MachineErrors(
        log_mass=np.zeros(bodies),
        centre=np.zeros((bodies, 3)),
        inertia=np.zeros((bodies, 3)),
        payload=np.zeros(frames),
        absent=np.zeros(bodies),
        frame=np.zeros((frames, 6)),
        origin=np.zeros((n, 6)),
        tilt=np.zeros(3),
        gravity=np.zeros(3),
        compliance=np.zeros(n),
        stiffness=np.zeros(n),
        log_damping=np.zeros(n),
        rotor_inertia=np.zeros(n),
        log_length=np.zeros(len(model.beams)),
        log_stated=np.zeros(len(parameters_with_tolerance(model))),
    )


def parameters_with_tolerance(model: Model) -> dict[str, ParameterSpec]:
    """Parameters with a tolerance, except stiffness, damping and rotor inertia of coordinates: those of locked
    coordinates too, so that their order is that of the machine with springs in place of locks."""
    table = parameter_table(dataclasses.replace(model, locked=(False,) * len(model.coordinates)))
    rows = {(row.name, row.leaf) for row in FAMILIES if row.tolerance}
    own = {"stiffness", "damping", "rotor_inertia"}
    return {n: p for n, p in table.items() if (n.split(".")[0], p.leaf) in rows and p.leaf not in own}


def machine_errors(
    model: Model, free: FreeParameters, frames: Mapping[str, bool]
) -> Iterator[tuple[StatedError, MachineErrors]]:
    """Single errors of a machine, each for a size of 1 in SI units, except those of free parameters alone: an error of
    a centre of mass whose first moment is free remains in the moments of inertia.

    Args:
        model: the machine.
        free: the free parameters.
        frames: the frames that tests use, beside those of loops, and whether their axes have an effect beside those of
            sensors.
    """
    none, named = no_machine_errors(model), {name for names in free.tied for name in names}
    yield from _body_errors(model, none, named)
    yield from _joint_errors(model, none, named)
    own = parameters(model)
    for k, name in enumerate(parameters_with_tolerance(model)):
        tolerance = next(row.tolerance for row in FAMILIES if row.name == name.split(".")[0] and row.tolerance)
        if own.get(name, 0.0) != 0.0 and name not in named:
            error = error_with_text(
                name, _stated_text, name, unit(model, name), own[name], tolerance=tolerance, unit=0.01
            )
            yield error, none._replace(log_stated=_at(none.log_stated, k))
    of_loops = (model.frames[i] for ends in model.loop_frames for i in ends)
    used = {**dict.fromkeys((frame for frame in of_loops if frame not in model.beams), False), **frames}
    for frame, turns in used.items():
        i, length = model.frames.index(frame), "frame_mm" if frame in frames else "origin_mm"
        axes = ELASTIC_AXES[: 6 if turns else 3] if model.frame_node[i] >= 0 else ()
        for k, axis in enumerate(axes):
            position, rotation = f"position of {frame} along {axis}", f"rotation of {frame} about {axis[-1]}"
            of = (position, length, 1e-3) if k < 3 else (rotation, "frame_deg", np.pi / 180.0)
            if (parameter := f"frame.{frame}.{axis}") not in named:
                yield StatedError(*of, parameter=parameter), none._replace(frame=_at(none.frame, i, k))
    size = float(np.linalg.norm(np.asarray(model.gravity)))
    if size:
        for axis in _across(np.asarray(model.gravity) / size):
            key = f"tilt about {_axis_text(axis).upper()}"
            error = StatedError(key, "tilt_deg", np.pi / 180.0, least=-MOST_TILT, most=MOST_TILT, starts=TILTS)
            yield error, none._replace(tilt=axis)
        most = MOST_GRAVITY / size
        error = StatedError(
            "gravity", size=1e-3, text=lambda x: f"a gravity of {1.0 + x:.3g} times the stated one", least=-most - 1.0,
            most=most - 1.0, starts=(-1.0, -2.0), period=1.0,
        )  # fmt: skip
        yield error, none._replace(gravity=np.asarray(model.gravity))
    else:
        for axis, along in zip("XYZ", np.eye(3), strict=True):
            error = error_with_text(
                f"gravity along {axis}", _gravity_text, axis, size=1.0, least=-MOST_GRAVITY, most=MOST_GRAVITY,
                starts=(-9.81, 9.81),
            )  # fmt: skip
            yield error, none._replace(gravity=along)
    yield from _axis_errors(model, none, named)


def _axis_errors(
    model: Model, none: MachineErrors, named: Collection[str]
) -> Iterator[tuple[StatedError, MachineErrors]]:
    """Errors of the lengths of beams and of the axes of coordinates, four numbers of each: along and about its own axis
    it has none but its zero.

    Not of the first axes beside free stations, which such errors displace alone, nor of beams in machines with loops.
    Coordinates in one point of one body, such as its elastic ones, have those of the first; a node with a frame is the
    last of its body.
    """
    lengths = np.asarray(model.beam_length) * np.array(model.beam_elements, dtype=int)
    for k, (name, length) in enumerate(zip(model.beams, lengths.tolist(), strict=True) if not model.loops else ()):
        what = f"a length of {name}", "m", length
        error = error_with_text(
            f"length of {name}", _stated_text, *what, tolerance="origin_mm", unit=1e-3 / length, size=0.05
        )
        yield error, none._replace(log_length=_at(none.log_length, k))
    seen_from_stations = any(name.startswith(f"{STATION}.") for name in named)
    further = [name.startswith(FURTHER) for name in model.coordinates]
    for i, name in enumerate(model.joints):
        above, node, origin = ancestor_nodes(model, model.parent[i]), model.parent[i], np.asarray(model.origin)[i]
        is_first = all(further[k] for k in above if k < len(further))
        while 0 <= node < len(further) and further[node]:
            origin, node = np.asarray(model.origin)[node] @ origin, model.parent[node]
        in_one_body = node < len(further) and node not in model.frame_node
        in_one_point = not is_first and in_one_body and np.array_equal(origin, np.eye(4))
        if further[i] or in_one_point or (is_first and seen_from_stations):
            continue
        for across in _across(np.asarray(model.axis)[i]):
            for first, what, tolerance, size in (
                (0, "along", "origin_mm", 1e-3),
                (3, "about", "origin_deg", np.pi / 180.0),
            ):
                axes = [axis for axis, x in zip(ELASTIC_AXES[first : first + 3], across, strict=True) if abs(x) > 1e-9]
                parameters = [f"origin.{name}.{axis}" for axis in axes]
                if all(parameter in named for parameter in parameters):
                    continue
                by = np.zeros_like(none.origin)
                by[i, first : first + 3] = across
                error = StatedError(f"axis of {name} {what} {_axis_text(across)}", tolerance, size)
                yield error._replace(parameter="" if parameters[1:] else parameters[0]), none._replace(origin=by)


def _body_errors(
    model: Model, none: MachineErrors, named: Collection[str]
) -> Iterator[tuple[StatedError, MachineErrors]]:
    """Errors of masses, and payloads."""
    mass, moment, inertia = (np.asarray(part) for part in (model.mass, model.first_moment, model.inertia))
    heavy = np.flatnonzero(mass > 0.0).tolist()
    if not heavy:
        return
    masses = StatedError(
        "masses", text=lambda x: f"all masses {factor_number(math.exp(x))} times as large{usual(math.exp(x))}",
        size=0.1, least=-MOST_FACTOR, most=MOST_FACTOR,
    )  # fmt: skip
    yield masses, none._replace(log_mass=np.ones(none.log_mass.size))
    for i in heavy:
        body, (_, about_centre) = model.masses[i], central_inertia(float(mass[i]), moment[i], inertia[i])
        if f"mass.{body}" not in named:
            error = error_with_text(
                f"mass of {body}", lambda of, x: f"{of} {100.0 * np.expm1(x):+.3g} % from the stated one",
                f"mass of {body}", tolerance="mass_percent", unit=0.01,
            )  # fmt: skip
            yield error, none._replace(log_mass=_at(none.log_mass, i))
            if body in model.payloads:
                sizes = {"size": 1.0, "least": -0.5, "most": 1.5, "starts": (1.0,)}
                error = error_with_text(f"{ABSENT}{body}", _absent_text, body, **sizes)
                yield error, none._replace(absent=_at(none.absent, i))
        inertia_free = all(f"inertia.{body}.{entry}" in named for entry in TENSOR)
        for k, axis in enumerate("xyz"):
            if not (inertia_free and f"first_moment.{body}.{axis}" in named):
                error = StatedError(f"centre of mass of {body} {axis}", "center_of_mass_mm", 1e-3)
                yield error, none._replace(centre=_at(none.centre, i, k))
            size = float(about_centre[k, k])
            if f"inertia.{body}.{axis}{axis}" not in named and size > 0.0:
                error = StatedError(f"moment of inertia of {body} {axis}", "inertia_percent", 0.01 * size)
                yield error._replace(least=-0.95 * size), none._replace(inertia=_at(none.inertia, i, k))
    for error, payload in payload_errors(model):
        yield error, none._replace(payload=payload)


def payload_errors(model: Model, test: str = "") -> Iterator[tuple[StatedError, Float[np.ndarray, "f"]]]:
    """Payloads at each frame, of 1 kg.

    Args:
        model: the machine.
        test: name of the test whose machine carries it; empty for all tests.
    """
    mass, of = np.asarray(model.mass), f" of {test}" if test else ""
    size = 0.01 * float(np.sum(mass))
    for i, carrier in zip(*(part.tolist() for part in payload_carriers(model)), strict=True):
        what = model.frames[i], f" in {display_name(test)}" if test else ""
        starts = (size, 3.0 * size, 10.0 * size)
        error = error_with_text(f"payload {model.frames[i]}{of}", _payload_text, *what, size=size, starts=starts)
        if size > 0.0:
            yield error._replace(least=-LEAST_MASS * float(mass[carrier])), np.eye(len(model.frames))[i]


def _joint_errors(
    model: Model, none: MachineErrors, named: Collection[str]
) -> Iterator[tuple[StatedError, MachineErrors]]:
    """Errors of stated stiffnesses, dampings and rotor inertias; stiffnesses of locked and further coordinates."""
    stiffness, damping, seen = np.asarray(model.stiffness), np.asarray(model.damping), seen_at_joints(model)
    joints = stiffness[(stiffness > 0.0) & ~np.array(model.locked, bool)]
    typical, driven = float(np.median(joints)) if joints.size else 1.0, {joint for joint, _ in model.motors}
    inertia, carried = np.asarray(model.rotor_inertia), carried_inertia(model)
    for i, name in enumerate(model.coordinates):
        of = ("N m/rad", "N m s/rad", "kg m^2") if model.revolute[i] else ("N/m", "N s/m", "kg")
        is_locked, own = model.locked[i], float(stiffness[i])
        if is_locked:
            of_foundation = "foundation_urad_per_knm" if model.revolute[i] else "foundation_um_per_kn"
            tolerance = of_foundation if name.startswith(FURTHER[0]) else ""
            yield from _missing_spring(none, name, of[0], typical / float(seen[i]), _at(none.compliance, i), tolerance)
        elif own > 0.0 and f"stiffness.{name}" not in named:
            error = error_with_text(
                f"stiffness.{name}", _stiffness_text, name, of[0], 1.0 / own, tolerance="stiffness_percent",
                unit=0.01 / own, least=-0.99 / own, most=np.inf, starts=tuple(x / own for x in (2.0, 9.0, 99.0, 999.0)),
            )  # fmt: skip
            yield error, none._replace(compliance=_at(none.compliance, i))
        elif model.loops and own == 0.0 and f"stiffness.{name}" not in named:
            scale = typical / float(seen[i])
            error = error_with_text(
                f"{SPRING}{name}", _spring_text, name, of[0], size=0.1 * scale, least=0.0, most=np.inf,
                starts=(0.01 * scale, 0.1 * scale, scale),
            )  # fmt: skip
            yield error, none._replace(stiffness=_at(none.stiffness, i))
        if damping[i] > 0.0 and not is_locked and f"damping.{name}" not in named:
            what = "a damping", f"{of[1]} of {name}", float(damping[i])
            error = error_with_text(f"damping.{name}", _stated_text, *what, tolerance="damping_percent", unit=0.01)
            yield error, none._replace(log_damping=_at(none.log_damping, i))
        if i not in driven and not is_locked and f"rotor_inertia.{name}" not in named:
            own, scale = float(inertia[i]), float(carried[i]) or 1.0
            sizes = {"tolerance": "rotor_inertia_percent", "unit": 0.01 * own} if own > 0.0 else {"size": 0.05 * scale}
            error = error_with_text(f"rotor inertia of {name}", _rotor_text, name, of[2], own, least=-own, **sizes)
            yield (
                error._replace(most=np.inf, starts=(0.1 * scale, 0.5 * scale)),
                none._replace(rotor_inertia=_at(none.rotor_inertia, i)),
            )
    # last: where one of a pair has no effect, as in a plane, the other one is named
    for name, pair in rocking_pairs(model).items():
        both = np.isin(np.arange(none.compliance.size), pair).astype(float)
        yield from _missing_spring(none, name, "N m/rad", typical, both)


def _missing_spring(
    none: MachineErrors, name: str, of: str, typical: float, which: Float[np.ndarray, "n"], tolerance: str = ""
) -> Iterator[tuple[StatedError, MachineErrors]]:
    """Compliance of coordinates that are locked, and the damping beside it.

    Args:
        none: no errors.
        name: of the coordinate, or of a pair.
        of: unit of its stiffness.
        typical: stiffness, SI.
        which: 1 for these coordinates.
        tolerance: its name in `Tolerances`; empty for none.
    """
    starts = tuple(size / typical for size in (0.1, 0.3, 1.0, 3.0))
    error = error_with_text(
        compliance_key(name), _stiffness_text, name, of, 0.0, tolerance=tolerance,
        unit=1e-9, size=0.1 / typical, least=0.0, starts=starts,
    )  # fmt: skip
    yield error, none._replace(compliance=which)
    factor = StatedError(damping_key(error.key), size=1.0, least=-MOST_FACTOR, most=MOST_FACTOR)
    yield factor, none._replace(log_damping=which)


def compliance_key(name: str) -> str:
    """Key of the compliance of a locked coordinate."""
    return f"compliance of {name}"


def damping_key(compliance: str) -> str:
    """Key of the logarithm of the damping beside a compliance (key) over that of its loss factor."""
    return f"damping beside {compliance}"


def _at(zeros: Any, *index: int) -> np.ndarray:
    """Zeros with a 1."""
    found = np.zeros_like(zeros)
    found[index] = 1.0
    return found


def seen_at_joints(model: Model) -> Float[np.ndarray, "n"]:
    """Factor that converts a stiffness of each coordinate to its joint: 1, and the squared gear ratio for motor
    shafts."""
    seen = np.ones(len(model.coordinates))
    seen[[shaft for _, shaft in model.motors]] = np.asarray(model.gear_ratio) ** 2
    return seen


def carried_inertia(model: Model) -> Float[np.ndarray, "n"]:
    """Mass that each prismatic coordinate carries, kg, and moment of inertia about each revolute one, kg m^2, of a
    stretched chain; where it carries no body, of all bodies and beams. Lengths and masses of beams are left out."""
    n, found = len(model.coordinates), np.zeros(len(model.coordinates))
    steps, moments = (np.linalg.norm(np.asarray(x), axis=1) for x in (model.origin[:, :3, 3], model.first_moment))
    halves = 0.5 * np.trace(np.asarray(model.inertia), axis1=1, axis2=2)
    for node, mass, moment, own in zip(model.mass_node, np.asarray(model.mass), moments, halves, strict=True):
        distance = 0.0
        while node >= 0:
            if node < n:
                about = own + 2.0 * distance * moment + mass * distance**2
                found[node] += about if model.revolute[node] else mass
                distance += steps[node]
            node = model.parent[node]
    return np.where(found > 0.0, found, np.where(model.revolute, *_mass_and_inertia(model)[::-1]))


def total_error(known: Iterable[tuple[StatedError, T]], sizes: Mapping[str, float]) -> T | None:
    """Sum of the directions of errors times their sizes by key, SI; None where no known error has a size."""
    found = [(sizes[error.key], at) for error, at in known if sizes.get(error.key)]
    numbers = np.array([size for size, _ in found])
    directions = [at for _, at in found]
    return jax.tree.map(lambda *parts: np.tensordot(numbers, np.stack(parts), 1), *directions) if found else None


def corrected_machine(model: Model, errors: MachineErrors) -> Model:
    """The model with its errors corrected; NumPy in, NumPy out.

    An error of the centre of mass leaves the inertia about it, one of the mass changes it in proportion. Payloads are
    added to the mass at their node.
    """
    xp: Any = errors.log_mass.__array_namespace__()
    mass, moment, inertia = (xp.asarray(x) for x in (model.mass, model.first_moment, model.inertia))
    factor, heavy = xp.exp(errors.log_mass) * (1.0 - errors.absent), mass > 0.0
    centre = moment / xp.where(heavy, mass, 1.0)[:, None]
    there, new_mass = centre + errors.centre, mass * factor
    new_moment = xp.where(heavy[:, None], new_mass[:, None] * there, moment * factor[:, None])
    about = factor[:, None, None] * xp.tensordot(errors.inertia, xp.asarray([np.diag(row) for row in np.eye(3)]), 1)
    moved = new_mass[:, None, None] * (_steiner(xp, there) - _steiner(xp, centre))
    gravity, softer = xp.asarray(model.gravity), 1.0 / (1.0 + xp.asarray(model.stiffness) * errors.compliance)
    changed = dataclasses.replace(
        model,
        mass=new_mass,
        first_moment=new_moment,
        inertia=inertia * factor[:, None, None] + about + moved,
        origin=_displaced(xp, xp.asarray(model.origin), errors.origin),
        frame_offset=_displaced(xp, xp.asarray(model.frame_offset), errors.frame),
        gravity=turned(xp, errors.tilt, gravity) + errors.gravity,
        stiffness=xp.asarray(model.stiffness) * softer + errors.stiffness,
        damping=xp.asarray(model.damping) * softer * xp.exp(errors.log_damping),
        rotor_inertia=xp.asarray(model.rotor_inertia) + errors.rotor_inertia,
        beam_length=xp.asarray(model.beam_length) * xp.exp(errors.log_length),
    )
    if not isinstance(errors.log_stated, np.ndarray) or errors.log_stated.any():
        specs = list(parameters_with_tolerance(model).values())
        values = [xp.asarray(getattr(model, spec.leaf))[spec.entries[0]] for spec in specs]
        changed = assigned(changed, specs, [value * xp.exp(errors.log_stated[k]) for k, value in enumerate(values)])
    return loaded(changed, errors.payload)


def loaded(model: Model, payload: Float[np.ndarray, "f"] | Array) -> Model:
    """The model with a point mass at each frame, kg; NumPy in, NumPy out."""
    xp: Any = payload.__array_namespace__()
    at, carrier = payload_carriers(model)
    poses = xp.linalg.inv(xp.asarray(model.mass_offset)[carrier]) @ xp.asarray(model.frame_offset)[at]
    load, where = payload[at], poses[:, :3, 3]
    of_body = xp.asarray(np.eye(len(model.mass_node))[carrier].T)
    return dataclasses.replace(
        model,
        mass=xp.asarray(model.mass) + of_body @ load,
        first_moment=xp.asarray(model.first_moment) + of_body @ (load[:, None] * where),
        inertia=xp.asarray(model.inertia) + xp.tensordot(of_body, load[:, None, None] * _steiner(xp, where), 1),
    )


def turned(xp: Any, tilt: Any, vector: Any) -> Any:
    """A vector after a rotation, by its rotation vector; differentiable at 0."""
    square, across = tilt @ tilt, xp.cross(tilt, vector)
    is_turned = square > 0.0
    angle = xp.sqrt(xp.where(is_turned, square, 1.0))
    sine, cosine = xp.sin(angle) / angle, (1.0 - xp.cos(angle)) / angle**2
    return vector + xp.where(is_turned, sine, 1.0) * across + xp.where(is_turned, cosine, 0.5) * xp.cross(tilt, across)


def _displaced(xp: Any, pose: Any, by: Any) -> Any:
    """Poses [k, 4, 4] after displacements [k, 6] in their own axes; see `turned`."""
    turn = xp.tensordot(by[:, 3:], _SKEW, 1)
    turn = (turn + 0.5 * turn @ turn) / (1.0 + 0.25 * xp.sum(by[:, 3:] ** 2, axis=1))[:, None, None]
    rotation = pose[:, :3, :3] @ (np.eye(3) + turn)
    position = pose[:, :3, 3:] + pose[:, :3, :3] @ by[:, :3, None]
    return xp.concatenate([xp.concatenate([rotation, position], axis=2), pose[:, 3:]], axis=1)


_SKEW = np.swapaxes(np.cross(np.eye(3)[:, None], np.eye(3)[None]), 1, 2)
"""Matrix of the cross product with each axis."""


def payload_carriers(model: Model) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the frames that can carry a payload, and of the mass at the node of each."""
    at = [i for i, node in enumerate(model.frame_node) if node in model.mass_node and node >= 0]
    carriers = [model.mass_node.index(model.frame_node[i]) for i in at]
    return np.array(at, dtype=int), np.array(carriers, dtype=int)


def with_machine_errors(
    model: Model,
    free: FreeParameters,
    known: Iterable[tuple[StatedError, MachineErrors]],
    errors: Mapping[str, float],
) -> Model:
    """The model with errors of `machine_errors` corrected by key, SI, and free parameters unchanged; other keys have no
    effect."""
    total = total_error(known, errors)
    if total is None:
        return model
    values = [np.asarray(getattr(model, target.leaf))[target.entries[0]] for target in free.targets]
    return jax.device_put(assigned(corrected_machine(model, total), list(free.targets), values))


def _steiner(xp: Any, c: Any) -> Any:
    """|c|^2 I - c c^T of each row."""
    return xp.sum(c * c, axis=1)[:, None, None] * np.eye(3) - c[:, :, None] * c[:, None, :]


def all_elastic(model: Model) -> Model:
    """The model with springs in place of locks, nearly rigid, their damping over stiffness as the machine states it or,
    where it does not, the median of the other joints."""
    locked, stiffness, damping = np.array(model.locked, bool), np.asarray(model.stiffness), np.asarray(model.damping)
    if not locked.any():
        return model
    elastic, seen = ~locked & (stiffness > 0.0), seen_at_joints(model)
    rigid = RIGID * _stiffest(model, (stiffness * seen)[elastic]) / seen
    own = damping / np.where(stiffness > 0.0, stiffness, np.inf)
    joints = elastic & (np.arange(locked.size) < len(model.joints))
    ratio = np.where(own > 0.0, own, float(np.median(own[joints])) if joints.any() else 0.0)
    return dataclasses.replace(
        model,
        locked=(False,) * locked.size,
        stiffness=jax.device_put(np.where(locked, rigid, stiffness)),
        damping=jax.device_put(np.where(locked, rigid * ratio, damping)),
    )


def _stiffest(model: Model, joints: Float[np.ndarray, "j"]) -> float:
    """The largest stiffness of joints, virtual springs and beams; see also `FREQUENCY`."""
    own = np.diagonal(np.asarray(model.compliance), axis1=-2, axis2=-1)
    bending = np.asarray(model.young_modulus)[:, None] * np.asarray(model.beam_second_moment)
    of_beams = bending / (np.asarray(model.beam_length) * np.array(model.beam_elements))[:, None]
    found = np.concatenate([joints, 1.0 / own[own > 0.0], np.ravel(of_beams)])
    return float(np.max(found)) if found.size else FREQUENCY**2 * max(_mass_and_inertia(model)) or 1.0


def _mass_and_inertia(model: Model) -> tuple[float, float]:
    """Of all bodies and beams: mass and trace of the inertia about their own origins, beams as rods."""
    length = np.asarray(model.beam_length) * np.array(model.beam_elements)
    beams = np.asarray(model.density) * np.asarray(model.beam_area) * length
    own = np.trace(np.sum(np.asarray(model.inertia), axis=0))
    return float(np.sum(np.asarray(model.mass)) + np.sum(beams)), float(own + np.sum(beams * length**2) / 1.5)


def _stiffness_text(name: str, of: str, own: float, value: float) -> str:
    instead = f" instead of {1.0 / own:.3g}" if own else ", which is locked,"
    if name.startswith(FURTHER):
        return f"{name}, of a stiffness of {1.0 / value:.3g} {of}" if value > 0.0 else name
    return f"a stiffness of {1.0 / (own + value):.3g} {of} of {name}{instead}"


def _spring_text(name: str, of: str, value: float) -> str:
    return f"a stiffness of {value:.3g} {of} of {name}, which has none,"


def _gravity_text(axis: str, value: float) -> str:
    """Beside free stiffnesses its size is not known."""
    is_known = abs(abs(value) / 9.81 - 1.0) < 0.2
    what = f"a gravity of {value:.3g} m/s^2 along {axis}" if is_known else f"gravity along {'-' * (value < 0.0)}{axis}"
    return f"{what}, where none is stated,"


def _rotor_text(name: str, of: str, own: float, value: float) -> str:
    return f"a rotor inertia of {name} of {own + value:.3g} {of} instead of {own:.3g}"


def _stated_text(name: str, of: str, own: float, value: float) -> str:
    return f"{name} of {own * np.exp(value):.3g} {of} instead of {own:.3g}"


def _absent_text(payload: str, value: float) -> str:
    text = f"payload {payload}"
    return f"{text}, which was not mounted," if value > 0.5 else f"{text} {100.0 * value:.0f} % lighter"


def _payload_text(frame: str, where: str, value: float) -> str:
    return f"{f'a payload of {value:.3g} kg' if value > 0.0 else f'{-value:.3g} kg less'} at {frame}{where}"


SPRING = "spring at "
"""Beginning of the keys of springs of coordinates without stiffness."""
FURTHER = ("an elastic foundation", "a further elastic coordinate")
"""Beginnings of the names of coordinates that `with_further_springs` adds."""


def rocking_pairs(model: Model) -> dict[str, tuple[int, int]]:
    """Pairs of further springs that yield alike, by name: a foundation about X and Y, and a bearing of a joint on the
    ground about two directions across its axis. Neither spring explains such a compliance alone."""
    names, (about_x, about_y, about_z) = model.coordinates, (f"{FURTHER[0]} about {axis}" for axis in "XYZ")
    if about_z not in names:
        return {}
    pairs, base = [(names.index(about_x), names.index(about_y))], names.index(about_z)
    for i, (name, following) in enumerate(itertools.pairwise(names)):
        joint = name.rsplit(" about ", 1)[0]
        if joint.startswith(FURTHER[1]) and following.startswith(f"{joint} about ") and model.parent[i] == base:
            pairs.append((i, i + 1))
    return {f"{names[i]} and {names[k].rsplit(' about ', 1)[1]}": (i, k) for i, k in pairs}


def with_further_springs(model: Model) -> Model:
    """The model with further locked coordinates: of a foundation, translations along and rotations about the axes of
    the ground, and at each revolute joint, rotations across its axis, like the bending of a link; at joints on the
    ground those that differ from a rotation of the foundation.

    They precede the joint of their name and follow all coordinates of the model in q. Some move the machine like its
    joints do, such as the foundation about the axis of a first joint: each has a small inertia of its own, without
    which the mass matrix would be singular. None in machines with loops.

    Source: Huynh et al. 2020, steps 2 and 3: elastic coordinates that the measured shapes ask for.
    """
    n = len(model.coordinates)
    if model.loops:
        return model
    # a parent of -2 - i is the new coordinate i
    parent, origins, rigid = list(model.parent), np.array(model.origin), np.eye(4)
    kinds = itertools.product(enumerate("XYZ"), (("along", False), ("about", True)))
    new: list[tuple[str, int, np.ndarray, np.ndarray, bool]] = [
        (f"{FURTHER[0]} {how} {axis}", -1 - i, rigid, np.eye(3)[k], turns)
        for i, ((k, axis), (how, turns)) in enumerate(kinds)
    ]
    base = len(new)
    for joint in range(len(model.joints)):
        if not model.revolute[joint]:
            continue
        turn, at = np.split(np.asarray(model.origin)[joint, :3], [3], axis=1)
        for axis in _across(np.asarray(model.axis)[joint]):
            if model.parent[joint] < 0 and not np.linalg.norm(np.cross(turn @ axis, at[:, 0])) > 0.0:
                continue  # about a line through the ground's origin
            text = f"{FURTHER[1]} at {model.coordinates[joint]} about {_axis_text(axis)}"
            new.append((text, parent[joint], origins[joint].copy(), axis, True))
            parent[joint], origins[joint] = -len(new) - 1, rigid
    count = len(new)

    def shifted(node: int) -> int:
        return node if node < n else node + count

    names, above, origin_rows, axes, turns = (list(x) for x in zip(*new, strict=True))
    nodes = (*parent[:n], *above, *parent[n:])
    last = n + base - 1  # of the foundation, which carries the machine
    parents = [last if node == -1 else n - 2 - node if node < 0 else shifted(node) for node in nodes]
    parents[n] = -1
    order = list[int]()
    while len(order) < len(parents):
        order += [i for i, p in enumerate(parents) if i not in order and (p < 0 or p in order)]
    padded = {"reading_scale": np.ones(count), "stribeck_speed": np.ones(count), "origin": np.array(origin_rows),
              "axis": np.array(axes)}  # fmt: skip
    mass, inertia = _mass_and_inertia(model)
    # shafts on the ground, whose rotors no body contains
    grounded = [shaft for _, shaft in model.motors if model.parent[shaft] < 0]
    on_ground = np.where(
        (np.arange(count) < base) & np.array(turns), np.asarray(model.rotor_inertia)[grounded].sum(), 0.0
    )
    padded["rotor_inertia"] = OWN_INERTIA * np.where(turns, inertia, mass) + on_ground
    leaves = {"origin": origins}
    for name in _OF_COORDINATES:
        own = leaves.get(name, np.asarray(getattr(model, name)))
        leaves[name] = np.concatenate([own, padded.get(name, np.zeros((count, *own.shape[1:])))])
    leaves["transmission_rate"] = np.pad(np.asarray(model.transmission_rate), ((0, 0), (0, count)))
    return dataclasses.replace(
        model,
        coordinates=(*model.coordinates, *names),
        revolute=(*model.revolute, *turns),
        locked=(*model.locked, *(True,) * count),
        parent=tuple(parents),
        order=tuple(order),
        further_friction=(*model.further_friction, *((),) * count),
        load_dependent=(*model.load_dependent, *(False,) * count),
        mass_node=tuple(shifted(node) for node in model.mass_node),
        frame_node=tuple(shifted(node) for node in model.frame_node),
        **jax.device_put(leaves),
    )


_OF_COORDINATES = (
    "origin", "axis", "friction_temperature", "reference",
    *dict.fromkeys(family.leaf for family in FAMILIES if family.owner in ("coordinate", "joint")),
)  # fmt: skip


def _across(axis: np.ndarray) -> list[np.ndarray]:
    """Two unit vectors across an axis, along axes of its frame where possible."""
    candidates = [own for own in np.eye(3) if abs(own @ axis) < 1e-9]
    if len(candidates) >= 2:
        return candidates[:2]
    first = candidates[0] if candidates else np.cross(axis, np.eye(3)[int(np.argmin(np.abs(axis)))])
    first = first / np.linalg.norm(first)
    return [first, np.cross(axis, first)]


def _axis_text(axis: np.ndarray) -> str:
    """Name of an axis, or its components."""
    k = int(np.argmax(np.abs(axis)))
    if abs(axis[k]) > 1.0 - 1e-9:
        return "xyz"[k]
    return "(" + ", ".join(f"{x:.2g}" for x in axis) + ")"
