"""Machines written as MJCF, the format of MuJoCo."""

import importlib.util
import math
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import jax
import numpy as np

from jaxmb.io.files import one_line, write_atomically
from jaxmb.io.validation import typed_arguments
from jaxmb.machine.build import Model
from jaxmb.machine.elements import (
    Coupling,
    Loop,
    Transmission,
    deviation_matrix,
    motion_matrix,
    origin_matrix,
    pose_matrix,
)
from jaxmb.machine.mjcf import mujoco_module, without_log
from jaxmb.machine.schema import EXACT, Body, Coordinate, Frame, Machine, Motor, Payload, RigidMass, Spring
from jaxmb.machine.values import GROUND, Part, by_level, name_of, numbers_text, omitted
from jaxmb.mechanics.beam_chains import natural_frequencies, with_chains
from jaxmb.mechanics.kinematics import frame_poses
from jaxmb.mechanics.postures import build_model, posture as posture_of

LEAST_INERTIA = 1e-12
"""Least principal moment that is written, kg m^2, since MuJoCo requires positive ones."""
ROTOR_MASS = 1e-9
"""Mass of rotors, kg, whose actual mass belongs to the body that carries them."""
SECOND_POINT = 0.1
"""Distance of the two points on the axis of a revolute loop that are connected, m."""
SOFT = "equalities are soft constraints in MuJoCo: loops and couplings open by a small amount under load"
Element = ElementTree.Element


@typed_arguments
def write_mjcf(
    machine: Machine, path: str | os.PathLike[str], posture: Mapping[str, float | str] | None = None
) -> tuple[str, ...]:
    """Write a machine as MJCF, which MuJoCo simulates and `load_machine` reads back.

    Each coordinate becomes a hinge or slide with its stiffness, damping, rotor inertia (armature), friction and range;
    the springs of a body with several coordinates act on joints in series. A motor behind a gear is a rotor on a hinge
    of its own, coupled by a fixed tendon with the stiffness and damping of the gear. Frames are sites, payloads
    bodies, springs of type "length" and transmissions tendons, loops equalities. Shafts and joints without stiffness
    have an actuator of type motor. The keyframe "reference" is the posture: an open chain is at rest there, springs
    carry the weight by their `springref` and actuators by their `ctrl`. MuJoCo's linearization there has the tangent of
    `linearize`. Springs of machines with loops are unloaded there instead. Beams become chains of rigid bodies, whose
    error in the natural frequencies is stated.

    Args:
        machine: rigid bodies, with viscous damping.
        path: of the file.
        posture: coordinates with their values; by default the reference posture.

    Returns:
        Omitted or changed properties, which a comment in the file lists too; empty where the file is complete.

    Raises:
        NotImplementedError: MJCF cannot describe the machine: it has virtual springs, structural, Rayleigh or
            fractional damping, stiffness under load, friction beyond Coulomb's, springs along or about a fixed
            direction, prismatic or cylindrical loops, loops closed by springs, scaled readings, a motor that another
            coordinate of the same body carries, or a body called world. The message names all of them.
        ModuleNotFoundError: MuJoCo is not installed.
        ValueError: the posture is wrong, or MuJoCo rejects the machine, such as a moving body without mass.
        OSError: the file cannot be written; no partial file remains.
    """
    text, notes = _mjcf_text(mujoco_module(), machine, posture or {})
    write_atomically(path, text.encode())
    return notes


def exported_mjcf(machine: Machine, posture: Mapping[str, float | str] | None = None) -> str | None:
    """The file of `write_mjcf` as text; None where MuJoCo is not installed or cannot describe the machine exactly."""
    if importlib.util.find_spec("mujoco") is None or beyond_mjcf(machine) or machine.beam:
        return None
    try:
        return _mjcf_text(mujoco_module(), machine, posture or {})[0]
    except (NotImplementedError, ValueError):
        return None


def _mjcf_text(mujoco: Any, machine: Machine, posture: Mapping[str, float | str]) -> tuple[str, tuple[str, ...]]:
    """A machine as the text of an MJCF file, and its omitted or changed properties."""
    unsupported = beyond_mjcf(machine)
    if unsupported:
        raise NotImplementedError(f"machine '{machine.name}': MJCF cannot describe {', '.join(unsupported)}")
    machine, approximated = _without_beams(machine, posture)
    model = build_model(machine)
    values = np.asarray(posture_of(model, posture))
    q = dict(zip(model.coordinates, values.tolist(), strict=True))
    writer = _Writer(machine, q, dict.fromkeys(q, 0.0), approximated, _opposite_axes(model, values))
    text = writer.text()
    if not (machine.loop or machine.coupling):
        writer = _Writer(machine, q, _holding_efforts(mujoco, machine, text), approximated)
        text = writer.text()
    _compiled(mujoco, machine.name, text)
    return text, writer.notes


def _opposite_axes(model: Model, q: np.ndarray) -> frozenset[str]:
    """Names of the loops whose axes in their two frames have opposite directions."""
    if not model.loop_frames:
        return frozenset()
    a, b = np.asarray(frame_poses(model, jax.device_put(q)))[np.array(model.loop_frames).T, :3, :3]
    along = np.einsum("lij,lj,lik,lk->l", a, model.loop_axis, b, model.loop_axis)
    return frozenset(name for name, cosine in zip(model.loops, along, strict=False) if cosine < 0.0)


COMPARED = 6
"""Number of natural frequencies by which the error of chains is stated."""


def _without_beams(machine: Machine, posture: Mapping[str, float | str]) -> tuple[Machine, tuple[str, ...]]:
    """The machine with beams as chains of bodies, and a sentence on the error."""
    if not machine.beam:
        return machine, ()
    model = build_model(machine)
    exact = natural_frequencies(model, posture_of(model, posture))
    chains = with_chains(machine, float(exact[0]))
    model = build_model(chains)
    found = natural_frequencies(model, posture_of(model, posture))
    count = min(COMPARED, exact.size, found.size)
    error = np.max(np.abs(found[:count] / exact[:count] - 1.0))
    hertz = exact[0] / (2.0 * np.pi)
    damping = (
        f"; structural damping is viscous, equal at {hertz:.3g} Hz" if any(b.loss_factor for b in machine.beam) else ""
    )
    return chains, (
        f"beams as chains of bodies without tension and shear: the first {count} natural frequencies differ by"
        f" {100.0 * error:.2g} % at most; explicit integrators need time steps below {2.0 / found[-1]:.1g} s{damping}",
    )


def beyond_mjcf(machine: Machine) -> tuple[str, ...]:
    """Properties of a machine that MJCF cannot describe; empty where it can be written."""
    joints = [c for body in machine.body for c in body.joint]
    found = [
        f"{label} ({', '.join([*(each.name for each in parts[:5]), *(['...'] if len(parts) > 5 else [])])})"
        for label, parts in (
            *(
                (f"{name_of(key)}s", parts)
                for key, parts in machine.elements.items()
                if key not in (*CARRIED[Machine], "beam")
            ),
            ("structural damping", [part for part in [*joints, *machine.spring] if part.loss_factor]),
            ("stiffness under load", [c for c in joints if c.stiffness_slope is not None]),
            ("friction beyond Coulomb's", [c for c in joints if c.further_friction is not None]),
            ("scaled readings", [c for c in joints if c.reading_scale != 1.0]),
            (
                "motors on another coordinate of their body",
                [c for b in machine.body for c in b.joint[1:] if _rotates(c)],
            ),
            ("springs in a fixed direction", [s for s in machine.spring if s.type != "length"]),
            ("prismatic and cylindrical loops", [x for x in machine.loop if x.type in ("prismatic", "cylindrical")]),
            ("loops without constraint", [loop for loop in machine.loop if not loop.rigid]),
            ("a body called world", [b for b in (*machine.body, *machine.payload) if b.name == "world"]),
        )
        if parts
    ]
    rayleigh = "Rayleigh damping" if machine.rayleigh.mass or machine.rayleigh.stiffness else ""
    fractional = "fractional damping" if machine.fractional is not None else ""
    return tuple(filter(None, (*found, rayleigh, fractional)))


CARRIED: dict[type[Part], tuple[str, ...]] = {
    Machine: (
        "name", "description", "source", "gravity", "body", "frame", "payload", "spring", "loop", "coupling",
        "transmission", "posture",
    ),
    Body: (*RigidMass.model_fields, "parent", "origin", "joint", "frame_deviation"),
    Coordinate: (
        "name", "type", "axis", "stiffness", "damping", "rotor_inertia", "friction", "locked", "motor", "range",
        "effort_limit", "origin_deviation", "zero",
    ),
    Motor: ("name", "inertia", "ratio", "axis", "stiffness", "damping", "friction", "locked"),
    Frame: ("name", "body", "origin", "deviation"),
    Payload: (*RigidMass.model_fields, "frame"),
    Spring: ("name", "frame_a", "frame_b", "type", "free_length", "stiffness", "damping"),
    Loop: ("name", "frame_a", "frame_b", "type", "axis", "rigid"),
    Coupling: ("coordinate", "follows", "ratio", "offset"),
    Transmission: ("name", "coordinates", "inertia", "damping", "friction"),
}  # fmt: skip
"""Keys that MJCF carries, by class; all others are listed as omitted where they are stated."""


def _rotates(coordinate: Coordinate) -> bool:
    return coordinate.motor is not None and not coordinate.motor.locked


def _compiled(mujoco: Any, name: str, text: str) -> Any:
    try:
        with without_log(mujoco):
            return mujoco.MjSpec.from_string(text).compile()
    except (ValueError, RuntimeError) as error:
        raise ValueError(f"machine '{name}': MuJoCo rejects it: {one_line(error)}") from None


def _holding_efforts(mujoco: Any, machine: Machine, text: str) -> dict[str, float]:
    """Effort on each joint, or of each shaft, that holds an open machine at rest in its keyframe."""
    m = _compiled(mujoco, machine.name, text)
    data = mujoco.MjData(m)
    with without_log(mujoco):
        mujoco.mj_resetDataKeyframe(m, data, 0)
        mujoco.mj_forward(m, data)
    effort = data.qfrc_bias - data.qfrc_passive
    hold = {m.joint(j).name: float(effort[m.jnt_dofadr[j]]) for j in range(m.njnt)}
    for c, motor, shaft in machine.drives:
        if not motor.locked:
            hold[shaft.name] += hold[c.name] / motor.ratio
    return hold


class _Writer:
    """Writes a machine at a posture whose weight is carried by efforts of its springs and actuators."""

    def __init__(
        self, machine: Machine, q: Mapping[str, float], hold: Mapping[str, float], changed: Iterable[str],
        opposite: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.machine, self.q, self.hold, self.opposite = machine, q, hold, opposite
        self.root = Element("mujoco", model=machine.name)
        ElementTree.SubElement(self.root, "compiler", angle="radian", autolimits="true")
        ElementTree.SubElement(self.root, "option", gravity=numbers_text(machine.gravity))
        self.body: dict[str, Element] = {GROUND: ElementTree.SubElement(self.root, "worldbody")}
        self.frames = {frame.name: frame for frame in machine.frame}
        self.changed = list(changed)
        self.controls: dict[str, float] = {}
        self.joints: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Omitted or changed properties."""
        locked = ", ".join(c.name for c in self.machine.moving_parts if c.locked)
        fixed = f"{locked} fixed, as locked" if locked else ""
        soft = SOFT if self.machine.loop or self.machine.coupling else ""
        return tuple(filter(None, (*omitted(self.machine, CARRIED), fixed, *self.changed, soft)))

    def text(self) -> str:
        """The file."""
        carried = self._carried_rotors()
        for body in by_level(self.machine.body, lambda body: body.parent, self.body):
            self._add_body(body, carried.get(body.name, np.zeros((3, 3))))
        for frame in self.machine.frame:
            pose = origin_matrix(frame.origin) @ deviation_matrix(frame.deviation)
            _add_rod(self.body[frame.body], pose)
            ElementTree.SubElement(self.body[frame.body], "site", {"name": frame.name} | _placed(pose))
        for payload in self.machine.payload:
            carrier, pose = self._carrier(payload.frame, actual=False)
            element = ElementTree.SubElement(self.body[carrier], "body", {"name": payload.name} | _placed(pose))
            self._add_inertia(element, payload, np.zeros((3, 3)))
        self._add_tendons()
        self._add_equalities()
        self._add_actuators()
        for empty in [part for part in self.root if not len(part) and not part.attrib and part.tag != "worldbody"]:
            self.root.remove(empty)
        keyframe = ElementTree.SubElement(self.root, "keyframe")
        # depth first, as MuJoCo numbers them
        order = [joint.attrib["name"] for joint in self.body[GROUND].iter("joint")]
        controls = {"ctrl": numbers_text(self.controls.values())} if self.controls else {}
        qpos = numbers_text(self.q[name] for name in order)
        ElementTree.SubElement(keyframe, "key", {"name": "reference", "qpos": qpos} | controls)
        ElementTree.indent(self.root)
        notes = "; ".join(self.notes).replace("--", "- -")
        comment = f"<!-- {notes} -->\n" if notes else ""
        return comment + ElementTree.tostring(self.root, encoding="unicode") + "\n"

    def _carried_rotors(self) -> dict[str, np.ndarray]:
        """Inertia of the rotors that each body carries, in its own axes; the body's data contain it."""
        found: dict[str, np.ndarray] = {}
        for body in self.machine.body:
            shaft = body.joint[0].shaft if body.joint and _rotates(body.joint[0]) else None
            if shaft is not None and body.parent != GROUND:
                turn = origin_matrix(body.origin)[:3, :3]
                found[body.parent] = found.get(body.parent, np.zeros((3, 3))) + turn @ _disc(shaft) @ turn.T
        return found

    def _add_body(self, body: Body, rotors: np.ndarray) -> None:
        pose = origin_matrix(body.origin)
        if body.joint:
            if _rotates(body.joint[0]) and (shaft := body.joint[0].shaft) is not None:
                self._add_rotor(body, shaft, pose)
            pose = pose @ deviation_matrix(body.joint[0].origin_deviation)
        offset, joints = np.eye(4), list[tuple[Coordinate, np.ndarray]]()
        for k, c in enumerate(body.joint):
            offset = offset @ deviation_matrix(c.origin_deviation) if k else offset
            if c.locked:
                offset = offset @ motion_matrix(c.type, c.axis, self.q[c.name] + c.zero)
            else:
                joints.append((c, offset))
        pose = pose @ offset
        _add_rod(self.body[body.parent], pose)
        element = ElementTree.SubElement(self.body[body.parent], "body", {"name": body.name} | _placed(pose))
        element.extend(self._joint(c, np.linalg.inv(offset) @ before) for c, before in joints)
        self.body[body.name] = element
        self._add_inertia(element, body, rotors)
        if body.frame_deviation != EXACT:
            site = {"name": body.name} | _placed(deviation_matrix(body.frame_deviation))
            ElementTree.SubElement(element, "site", site)

    def _add_rotor(self, body: Body, shaft: Coordinate, pose: np.ndarray) -> None:
        element = ElementTree.SubElement(
            self.body[body.parent], "body", {"name": f"{shaft.name}/rotor"} | _placed(pose)
        )
        tensor = numbers_text(_disc(shaft)[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
        ElementTree.SubElement(element, "inertial", pos="0 0 0", mass=repr(ROTOR_MASS), fullinertia=tensor)
        element.append(self._joint(shaft.model_copy(update={"rotor_inertia": 0.0}), np.eye(4)))

    def _joint(self, c: Coordinate, offset: np.ndarray) -> Element:
        """A hinge or slide at a pose in its body."""
        values: dict[str, float] = {"frictionloss": c.friction, "armature": c.rotor_inertia, "ref": 0.0 - c.zero}
        limits = () if c.effort_limit is None else (-c.effort_limit, c.effort_limit)
        if c.range is not None and not c.range[0] <= self.q[c.name] <= c.range[1]:
            self.changed.append(f"no rest at the keyframe, which is outside the range of {c.name}")
        if not _rotates(c):  # otherwise the tendon of the gear has them
            rest = self.q[c.name] + self.hold[c.name] / c.stiffness if c.stiffness else 0.0
            values |= {"stiffness": c.stiffness, "damping": c.damping, "springref": rest}
        axis = offset[:3, :3] @ np.array(c.axis)
        attributes = {
            "name": c.name,
            "type": {"revolute": "hinge", "prismatic": "slide"}[c.type],
            "axis": numbers_text(axis / np.linalg.norm(axis)),
            "pos": numbers_text(offset[:3, 3]) if np.any(offset[:3, 3]) else "",
            **_attributes(values),
            "range": numbers_text(c.range or ()),
            "actuatorfrcrange": "" if _rotates(c) else numbers_text(limits),
        }
        return Element("joint", {key: value for key, value in attributes.items() if value})

    def _add_inertia(self, element: Element, rigid: RigidMass, rotors: np.ndarray) -> None:
        own = rigid.central_inertia - rotors
        moments, axes = np.linalg.eigh(own)
        beyond = rigid.mass == 0.0 or moments[0] < 0.0 or moments[0] + moments[1] < moments[2] * (1.0 - 1e-9)
        if np.any(rotors) and beyond:
            raise NotImplementedError(
                f"machine '{self.machine.name}': MJCF cannot describe a motor on body '{rigid.name}', whose inertia"
                " does not contain that of the rotor"
            )
        if rigid.mass == 0.0:
            return
        raised = np.maximum(moments, LEAST_INERTIA)
        raised[:2] += max(0.0, 0.5 * (raised[2] - raised[0] - raised[1]))
        if np.any(np.abs(raised - moments) > max(LEAST_INERTIA, 1e-9 * moments[2])):
            self.changed.append(
                f"inertia of {rigid.name} raised by {np.max(raised - moments):.2g} kg m^2 for MuJoCo's triangle"
                " inequality"
            )
        tensor = own if np.array_equal(raised, moments) else axes @ np.diag(raised * (1.0 + 1e-14)) @ axes.T
        full = 0.5 * (tensor + tensor.T)[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]]
        center, mass = numbers_text(rigid.center_of_mass), repr(float(rigid.mass))
        ElementTree.SubElement(element, "inertial", pos=center, mass=mass, fullinertia=numbers_text(full))

    def _carrier(self, frame: str, actual: bool = True) -> tuple[str, np.ndarray]:
        """Body of a frame, and the frame's stated or actual pose in MuJoCo's frame of that body."""
        if frame in self.frames:
            part = self.frames[frame]
            pose = origin_matrix(part.origin)
            return part.body, pose @ deviation_matrix(part.deviation) if actual else pose
        deviation = {b.name: b.frame_deviation for b in self.machine.body}.get(frame, EXACT) if actual else EXACT
        return frame, deviation_matrix(deviation)

    def _site(self, name: str, frame: str, shift: Sequence[float] = (0.0, 0.0, 0.0)) -> str:
        """Name of a further site in a frame."""
        carrier, pose = self._carrier(frame)
        ElementTree.SubElement(self.body[carrier], "site", {"name": name} | _placed(pose @ pose_matrix(shift)))
        return name

    def _add_tendons(self) -> None:
        tendons = ElementTree.SubElement(self.root, "tendon")
        for c, motor, shaft in self.machine.drives:
            if not motor.locked:
                rest = self.q[c.name] - self.q[shaft.name] / motor.ratio + self.hold[c.name] / c.stiffness
                sign = math.copysign(1.0, rest)  # of a positive length, since MuJoCo takes -1 as none
                values = {"stiffness": c.stiffness, "damping": c.damping, "springlength": abs(rest)}
                _add_fixed(tendons, f"{c.name}/gear", {c.name: sign, shaft.name: -sign / motor.ratio}, values)
        below = {
            joint.attrib["name"]: {further.attrib["name"] for further in body.iter("joint")}
            for body in self.body[GROUND].iter("body")
            for joint in body.findall("joint")
        }
        for t in self.machine.transmission:
            values = {"armature": t.inertia, "damping": t.damping, "frictionloss": t.friction}
            rates = {name: rate for name, rate in t.coordinates.items() if name in below}
            if t.inertia and not all(a in below[b] or b in below[a] for a, b in combinations(rates, 2)):
                self.changed.append(f"no inertial coupling by {t.name}, which MuJoCo has along a chain only")
            if rates:
                _add_fixed(tendons, t.name, rates, values)
        for s in self.machine.spring:
            values = {"stiffness": s.stiffness, "damping": s.damping, "springlength": s.free_length or 0.0}
            spatial = ElementTree.SubElement(tendons, "spatial", {"name": s.name} | _attributes(values))
            for end, frame in (("a", s.frame_a), ("b", s.frame_b)):
                ElementTree.SubElement(spatial, "site", site=self._site(f"{s.name}/{end}", frame))

    def _add_equalities(self) -> None:
        equality = ElementTree.SubElement(self.root, "equality")
        for loop in self.machine.loop:
            kind = "weld" if loop.type == "fixed" else "connect"
            points = {loop.name: (0.0, 0.0, 0.0)}
            if loop.type == "revolute":
                x, y, z = loop.axis
                points[f"{loop.name}/axis"] = (SECOND_POINT * x, SECOND_POINT * y, SECOND_POINT * z)
            sign = -1.0 if loop.name in self.opposite else 1.0
            for name, shift in points.items():
                a = self._site(f"{name}/a", loop.frame_a, shift)
                b = self._site(f"{name}/b", loop.frame_b, [sign * part for part in shift])
                ElementTree.SubElement(equality, kind, name=name, site1=a, site2=b)
        zero = {c.name: c.zero for c in self.machine.moving_parts}  # minus MuJoCo's reference
        for c in self.machine.coupling:
            constant = c.offset + zero[c.coordinate] - c.ratio * zero[c.follows]
            ends = {"joint1": c.coordinate, "joint2": c.follows}
            coefficients = numbers_text((constant, c.ratio, 0.0, 0.0, 0.0))
            ElementTree.SubElement(equality, "joint", ends | {"polycoef": coefficients})

    def _add_actuators(self) -> None:
        """Motors of shafts and of joints that no spring holds; their controls carry what springs do not."""
        actuators = ElementTree.SubElement(self.root, "actuator")
        geared = {c.name: (c, motor) for c, motor, _ in self.machine.drives if not motor.locked}
        of_shaft = {shaft.name: geared[c.name] for c, _, shaft in self.machine.drives if c.name in geared}
        for c in self.machine.moving_parts:
            if not (c.locked or c.name in geared) and (c.name in of_shaft or not c.stiffness):
                element = ElementTree.SubElement(actuators, "motor", name=c.name, joint=c.name)
                self.controls[c.name] = 0.0 if c.stiffness else self.hold[c.name]
                limit = c.effort_limit
                if c.name in of_shaft:
                    joint, motor = of_shaft[c.name]
                    limit = None if joint.effort_limit is None else joint.effort_limit / abs(motor.ratio)
                if limit is not None:
                    if abs(self.controls[c.name]) > limit:
                        self.changed.append(f"the weight exceeds the effort limit of {c.name}")
                    element.set("forcerange", numbers_text((-limit, limit)))


def _add_fixed(tendons: Element, name: str, rates: Mapping[str, float], values: Mapping[str, float]) -> None:
    fixed = ElementTree.SubElement(tendons, "fixed", {"name": name} | _attributes(values))
    for joint, rate in rates.items():
        ElementTree.SubElement(fixed, "joint", joint=joint, coef=repr(float(rate)))


def _add_rod(element: Element, pose: np.ndarray) -> None:
    """Show the link from a body's origin to a part of it, by a rod without mass that touches nothing."""
    length = float(np.linalg.norm(pose[:3, 3]))
    if element.tag != "worldbody" and length > 1e-6:
        ends = numbers_text([0.0, 0.0, 0.0, *pose[:3, 3]])
        look = {"contype": "0", "conaffinity": "0", "group": "1", "mass": "0"}
        ElementTree.SubElement(element, "geom", {"type": "capsule", "fromto": ends, "size": repr(0.03 * length)} | look)


def _disc(shaft: Coordinate) -> np.ndarray:
    """Inertia of a thin disc with that of a rotor about its axis, in the axes of the joint.

    It is thicker than none by 1e-9, since MuJoCo rejects rounding errors of the triangle inequality.
    """
    axis = np.array(shaft.axis) / np.linalg.norm(shaft.axis)
    across = 0.5 * (1.0 + 1e-9)
    return shaft.rotor_inertia * (across * np.eye(3) + (1.0 - across) * np.outer(axis, axis))


def _placed(pose: np.ndarray) -> dict[str, str]:
    return {"pos": numbers_text(pose[:3, 3]), "xyaxes": numbers_text(pose[:3, :2].T.ravel())}


def _attributes(values: Mapping[str, float]) -> dict[str, str]:
    """Attributes other than 0, and the length of springs."""
    return {key: repr(float(value)) for key, value in values.items() if value or key == "springlength"}
