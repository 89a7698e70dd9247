"""The `Model` of a machine: its description as arrays."""

from collections.abc import Mapping, Sequence
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmb.io.validation import listed
from jaxmb.machine.beam import FlexibleBeam
from jaxmb.machine.elements import TERMS, Fractional, FurtherFriction, Loop, LoopType, origin_matrix
from jaxmb.machine.schema import EXACT, Body, Machine, RigidMass, Spring
from jaxmb.machine.values import GROUND, by_level


class Model(eqx.Module):
    """A machine as arrays: physical numbers are leaves, topology and names are static fields.

    Each coordinate moves one node; a node's pose is its parent node's pose, times `origin`, times the coordinate's
    motion. Bodies, payloads and frames are fixed to a node (-1 is the ground) by an offset. Inertia is stored in the
    form in which the equations of motion are linear: mass, first moment and inertia about the body's own origin.
    """

    name: str = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    """Joint coordinates, then motor shafts, which carry no body."""
    revolute: tuple[bool, ...] = eqx.field(static=True)
    locked: tuple[bool, ...] = eqx.field(static=True)
    """Coordinates fixed at their value in the posture."""
    parent: tuple[int, ...] = eqx.field(static=True)
    """Parent node of each node, coordinates before virtual springs before elements of beams; -1 for the ground."""
    order: tuple[int, ...] = eqx.field(static=True)
    """Nodes, every parent before its children."""
    origin: Float[Array, "n 4 4"]
    """As stated; the actual one deviates by `origin_deviation` (`kinematics.joint_origins`)."""
    axis: Float[Array, "n 3"]
    origin_deviation: Float[Array, "n 6"]
    """Translation [m] and rotation vector [rad] in the axes of the origin."""
    zero: Float[Array, "n"]
    """Actual value where the reading is 0, rad or m."""
    reading_scale: Float[Array, "n"]
    """Change of the actual value over that of the reading. The coordinates q are readings."""
    stiffness: Float[Array, "n"]
    damping: Float[Array, "n"]
    rotor_inertia: Float[Array, "n"]
    """kg m^2 or kg at the joint; for a motor shaft, the rotor's own inertia."""
    friction: Float[Array, "n"]
    """Coulomb friction, Nm or N."""
    offset: Float[Array, "n"]
    """Constant part of the effort, Nm or N."""
    friction_terms: Float[Array, "n 4"]
    """Coefficients of further friction (`jaxmb.machine.elements.TERMS`), 0 where absent."""
    further_friction: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    """Names of the terms that each coordinate has."""
    stribeck_speed: Float[Array, "n"]
    """v_s of Stribeck friction, rad/s or m/s; 1 where there is none."""
    friction_temperature: Float[Array, "n"]
    """Reference temperature of `damping`; 0 where damping does not depend on temperature."""
    loss_factor: Float[Array, "n"]
    """eta of structural damping."""
    stiffness_slope: Float[Array, "n"]
    """Relative slope of the stiffness over the load, 1/(Nm) or 1/N; 0 where it is constant."""
    load_dependent: tuple[bool, ...] = eqx.field(static=True)
    """Whether the stiffness of each coordinate depends on its load."""
    motors: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """Coordinate of the joint and coordinate of the shaft, for each motor."""
    gear_ratio: Float[Array, "g"]
    """Turns of each motor per turn of the joint, or rad/m."""
    transmissions: tuple[str, ...] = eqx.field(static=True)
    """Names of the drives coupled to several coordinates."""
    transmission_rate: Float[Array, "t n"]
    """c of each: s' = sum_i c_i q_i'."""
    transmission_inertia: Float[Array, "t"]
    transmission_damping: Float[Array, "t"]
    transmission_friction: Float[Array, "t"]

    masses: tuple[str, ...] = eqx.field(static=True)
    """Names of the rigid masses: bodies, then payloads."""
    payloads: tuple[str, ...] = eqx.field(static=True)
    mass_node: tuple[int, ...] = eqx.field(static=True)
    mass_offset: Float[Array, "b 4 4"]
    mass: Float[Array, "b"]
    first_moment: Float[Array, "b 3"]
    inertia: Float[Array, "b 3 3"]

    frames: tuple[str, ...] = eqx.field(static=True)
    frame_node: tuple[int, ...] = eqx.field(static=True)
    frame_offset: Float[Array, "f 4 4"]
    """As stated; the actual one deviates by `frame_deviation` (`kinematics.frame_offsets`)."""
    frame_deviation: Float[Array, "f 6"]
    """Translation [m] and rotation vector [rad] in the axes of the frame."""
    deviates: bool = eqx.field(static=True)
    """Whether any deviation, zero or scale of a reading differs, or may come to differ, from the stated geometry."""
    end_frames: tuple[str, ...] = eqx.field(static=True)
    """Candidates for the tool frame: the named frames of each moving terminal body, or the body's own frame where it
    has none."""

    springs: tuple[str, ...] = eqx.field(static=True)
    spring_frames: tuple[tuple[int, int], ...] = eqx.field(static=True)
    spring_type: tuple[str, ...] = eqx.field(static=True)
    spring_direction: Float[Array, "s 3"]
    spring_free_length: Float[Array, "s"]
    """m, of springs that act on a length; 0 for the others."""
    spring_stiffness: Float[Array, "s"]
    spring_damping: Float[Array, "s"]
    spring_loss_factor: Float[Array, "s"]
    structural: bool = eqx.field(static=True)
    """Whether any loss factor is, or may become, non-zero."""

    virtual_springs: tuple[str, ...] = eqx.field(static=True)
    """Names of the massless springs of six degrees of freedom; each moves a node behind those of the coordinates."""
    virtual_spring_origin: Float[Array, "k 4 4"]
    """Pose in the parent node."""
    compliance: Float[Array, "k 6 6"]
    """Symmetric compliance of each virtual spring in its own axes, translations first: m/N, rad/N, rad/Nm."""
    guides: tuple[int, ...] = eqx.field(static=True)
    """Coordinate that extends the sliding stages of each virtual spring; -1 for a spring without a guide."""
    guide_overlap: Float[Array, "k 2"]
    """Overlap where the coordinate is 0 [m], and its change over that of the coordinate; 1 and 0 without a guide."""
    guide_exponent: Float[Array, "k"]
    """p in C (overlap at 0 / overlap)^p."""
    has_play: tuple[bool, ...] = eqx.field(static=True)
    """Whether each virtual spring has play."""
    play: Float[Array, "k 6"]
    """Displacement to either side within the clearance, m and rad."""
    play_load: Float[Array, "k 6"]
    """Load that takes up the play, N and Nm; 1 without play."""

    beams: tuple[str, ...] = eqx.field(static=True)
    beam_elements: tuple[int, ...] = eqx.field(static=True)
    """Number of elements of each beam; each moves a node, behind those of virtual springs."""
    beam_theory: tuple[str, ...] = eqx.field(static=True)
    beam_start: Float[Array, "w 4 4"]
    """Start of each element in its parent node; the element lies along x."""
    beam_length: Float[Array, "c"]
    """Length of an element, m."""
    young_modulus: Float[Array, "c"]
    shear_modulus: Float[Array, "c"]
    density: Float[Array, "c"]
    beam_area: Float[Array, "c"]
    beam_second_moment: Float[Array, "c 2"]
    """Of the section about y and z, m^4."""
    torsion_constant: Float[Array, "c"]
    shear_flexibility: Float[Array, "c 2"]
    """1 over the shear factors along y and z; 0 in Euler-Bernoulli's theory."""
    beam_loss_factor: Float[Array, "c"]

    loops: tuple[str, ...] = eqx.field(static=True)
    loop_frames: tuple[tuple[int, int], ...] = eqx.field(static=True)
    loop_type: tuple[LoopType, ...] = eqx.field(static=True)
    loop_rigid: tuple[bool, ...] = eqx.field(static=True)
    loop_axis: Float[Array, "l 3"]
    couplings: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """Each coordinate that follows another one, and that one."""
    coupling_ratio: Float[Array, "c"]
    coupling_offset: Float[Array, "c"]
    dependent: tuple[int, ...] = eqx.field(static=True)
    """Dependent coordinates of a posture with closed loops."""
    following: tuple[int, ...] = eqx.field(static=True)
    """Dependent coordinates of the linearized equations, numbered with the elastic coordinates last."""
    bent_loops: bool = eqx.field(static=True)
    """Whether loop closure depends on elastic coordinates of beams."""

    rayleigh_mass: Float[Array, ""]
    """alpha of Rayleigh damping, 1/s."""
    rayleigh_stiffness: Float[Array, ""]
    """beta of Rayleigh damping, s."""
    fractional: bool = eqx.field(static=True)
    """Whether the machine has fractional damping."""
    fractional_order: Float[Array, ""]
    """a in (j omega tau)^a."""
    fractional_time: Float[Array, ""]
    """tau in (j omega tau)^a, s."""

    gravity: Float[Array, "3"]
    reference: Float[Array, "n"]
    """Reference posture, rad or m."""
    as_built: "Model | None" = None
    """The model before parameters were set, whose stiffness distributes loads among beams in loops; None without
    beams in loops."""
    brakes_release: bool = eqx.field(static=True, default=False)
    """Whether some tests release the brakes of locked motors, so that their shafts have parameters."""

    def __repr__(self) -> str:
        """Name, and the names of coordinates and frames."""
        return f"<Model {self.name}: coordinates {listed(self.coordinates, 9)}; frames {listed(self.frames, 9)}>"

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the joint coordinates, which come first in q; the motor shafts behind them move no frame."""
        return self.coordinates[: min((shaft for _, shaft in self.motors), default=len(self.coordinates))]

    @property
    def elements(self) -> tuple[str, ...]:
        """Names of the beam elements, each the name of its end."""
        counts = zip(self.beams, self.beam_elements, strict=True)
        return tuple(f"{beam}/{k}" if k < count else beam for beam, count in counts for k in range(1, count + 1))

    @property
    def element_beam(self) -> np.ndarray:
        """Index of the beam of each element [w]."""
        return np.repeat(np.arange(len(self.beams)), self.beam_elements)

    @property
    def elastic_nodes(self) -> tuple[str, ...]:
        """Names of the k nodes with six elastic degrees of freedom: virtual springs, then beam elements."""
        return (*self.virtual_springs, *self.elements)


Attachment = tuple[int, np.ndarray]
"""Number of a node, and a pose in it [4, 4]."""


def tree_model(machine: Machine) -> Model:
    """Model of a machine's tree, without dependent coordinates for its loops.

    Args:
        machine: a validated machine, from `load_machine` or built in Python.

    Returns:
        The model; its coordinates and masses keep the order of the machine.
    """
    own, behind, nodes = _attach_bodies(machine)
    frame_attachment = {name: own[name] for name in machine.frames if name in own}
    for frame in machine.frame:
        node, offset = own[GROUND] if frame.body == GROUND else behind[frame.body]
        frame_attachment[frame.name] = (node, offset @ origin_matrix(frame.origin))
    names, frames = machine.coordinates, machine.frames
    keys = [*(("joint", name) for name in names), *(("spring", s.name) for s in machine.virtual_spring)]
    rigid_nodes = len(keys)
    keys += [("element", end) for end in machine.ends]
    parts = [nodes[key] for key in keys]
    carriers = {b.parent for b in machine.body} | {beam.body for beam in machine.beam}
    last = ({b.name for b in machine.body} | {beam.name for beam in machine.beam}) - carriers
    ends = {f.name for f in machine.frame if f.body in last} | (last - {f.body for f in machine.frame})
    law = machine.fractional or Fractional(order=1.0, time=1.0)
    damped = (*machine.moving_parts, *machine.spring, *machine.beam)
    return Model(
        name=machine.name,
        parent=tuple(node for node, _ in parts),
        order=tuple(keys.index(key) for key in nodes),
        origin=_array([offset for _, offset in parts[: len(names)]], (4, 4)),
        frames=frames,
        frame_node=tuple(frame_attachment[f][0] for f in frames),
        frame_offset=_array([frame_attachment[f][1] for f in frames], (4, 4)),
        **_deviations(machine),
        end_frames=tuple(f for f in frames if f in ends and frame_attachment[f][0] >= 0),
        structural=any(part.loss_factor > 0.0 for part in damped),
        virtual_springs=tuple(s.name for s in machine.virtual_spring),
        virtual_spring_origin=_array([offset for _, offset in parts[len(names) : rigid_nodes]], (4, 4)),
        compliance=_array([s.matrix for s in machine.virtual_spring], (6, 6)),
        **_guides(machine),
        beam_start=_array([offset for _, offset in parts[rigid_nodes:]], (4, 4)),
        dependent=(),
        following=(),
        bent_loops=False,
        rayleigh_mass=jax.device_put(np.array(machine.rayleigh.mass, dtype=float)),
        rayleigh_stiffness=jax.device_put(np.array(machine.rayleigh.stiffness, dtype=float)),
        fractional=machine.fractional is not None,
        fractional_order=jax.device_put(np.array(law.order, dtype=float)),
        fractional_time=jax.device_put(np.array(law.time, dtype=float)),
        gravity=_array(machine.gravity),
        reference=_array([machine.posture.get(name, 0.0) for name in names]),
        **_coordinates(machine),
        **_masses(machine, frame_attachment),
        **_springs_and_loops(machine),
        **_beams(machine),
    )


Fields = dict[str, Any]
"""Fields of a `Model` by name."""


def _columns(parts: Sequence[object], *attributes: str, prefix: str = "") -> Fields:
    """Fields that hold a number of each part, named as its attribute behind a prefix."""
    return {f"{prefix}{name}": _array([getattr(part, name) for part in parts]) for name in attributes}


def _coordinates(machine: Machine) -> Fields:
    names, moving = machine.coordinates, machine.moving_parts
    further = [c.further_friction or FurtherFriction() for c in moving]
    rates = [[t.coordinates.get(name, 0.0) for name in names] for t in machine.transmission]
    return {
        "coordinates": names,
        "revolute": tuple(c.type == "revolute" for c in moving),
        "locked": tuple(c.locked for c in moving),
        "axis": _array([c.axis for c in moving], (3,)),
        **_columns(moving, "stiffness", "damping", "rotor_inertia", "friction", "offset", "loss_factor"),
        "friction_terms": _array([[getattr(f, term) or 0.0 for term in TERMS] for f in further], (len(TERMS),)),
        "further_friction": tuple(f.terms for f in further),
        "stribeck_speed": _array([f.stribeck_speed or 1.0 for f in further]),
        "friction_temperature": _array([f.temperature or 0.0 for f in further]),
        "stiffness_slope": _array([c.stiffness_slope or 0.0 for c in moving]),
        "load_dependent": tuple(c.stiffness_slope is not None for c in moving),
        "motors": tuple((names.index(joint.name), names.index(shaft.name)) for joint, _, shaft in machine.drives),
        "gear_ratio": _array([motor.ratio for _, motor, _ in machine.drives]),
        "transmissions": tuple(t.name for t in machine.transmission),
        "transmission_rate": jax.device_put(np.array(rates, dtype=float).reshape(len(rates), len(names))),
        **_columns(machine.transmission, "inertia", "damping", "friction", prefix="transmission_"),
    }


def _deviations(machine: Machine) -> Fields:
    moving = machine.moving_parts
    of_frame = {b.name: b.frame_deviation for b in machine.body} | {f.name: f.deviation for f in machine.frame}
    fields = {
        "origin_deviation": _array([c.origin_deviation for c in moving], (6,)),
        **_columns(moving, "zero", "reading_scale"),
        "frame_deviation": _array([of_frame.get(name, EXACT) for name in machine.frames], (6,)),
    }
    exact = {"reading_scale": 1.0}
    return fields | {
        "deviates": any(np.any(np.asarray(x) != exact.get(name, 0.0)) for name, x in fields.items()),
    }


def _masses(machine: Machine, attachment: Mapping[str, Attachment]) -> Fields:
    carriers = [*((b, b.name) for b in machine.body), *((p, p.frame) for p in machine.payload)]
    standard = [standard_inertia(rigid) for rigid, _ in carriers]
    return {
        "masses": tuple(rigid.name for rigid, _ in carriers),
        "payloads": tuple(p.name for p in machine.payload),
        "mass_node": tuple(attachment[frame][0] for _, frame in carriers),
        "mass_offset": _array([attachment[frame][1] for _, frame in carriers], (4, 4)),
        "mass": _array([m for m, _, _ in standard]),
        "first_moment": _array([h for _, h, _ in standard], (3,)),
        "inertia": _array([i for _, _, i in standard], (3, 3)),
    }


def _springs_and_loops(machine: Machine) -> Fields:
    def frame_pairs(parts: Sequence[Spring] | Sequence[Loop]) -> tuple[tuple[int, int], ...]:
        return tuple((machine.frames.index(part.frame_a), machine.frames.index(part.frame_b)) for part in parts)

    return {
        "springs": tuple(s.name for s in machine.spring),
        "spring_frames": frame_pairs(machine.spring),
        "spring_type": tuple(s.type for s in machine.spring),
        "spring_direction": _array([s.direction or (0.0, 0.0, 0.0) for s in machine.spring], (3,)),
        "spring_free_length": _array([s.free_length or 0.0 for s in machine.spring]),
        **_columns(machine.spring, "stiffness", "damping", "loss_factor", prefix="spring_"),
        "loops": (*(loop.name for loop in machine.loop), *(f"coupling of {c.coordinate}" for c in machine.coupling)),
        "loop_frames": frame_pairs(machine.loop),
        "loop_type": tuple(loop.type for loop in machine.loop),
        "loop_rigid": tuple(loop.rigid for loop in machine.loop),
        "loop_axis": _array([loop.axis for loop in machine.loop], (3,)),
        "couplings": tuple(
            (machine.coordinates.index(c.coordinate), machine.coordinates.index(c.follows)) for c in machine.coupling
        ),
        **_columns(machine.coupling, "ratio", "offset", prefix="coupling_"),
    }


def _guides(machine: Machine) -> Fields:
    springs, names = machine.virtual_spring, machine.coordinates
    guides = [s.guide for s in springs]
    return {
        "guides": tuple(-1 if g is None else names.index(g.coordinate) for g in guides),
        "guide_overlap": _array([(1.0, 0.0) if g is None else (g.overlap_m, g.rate) for g in guides], (2,)),
        "guide_exponent": _array([0.0 if g is None else g.exponent for g in guides]),
        "has_play": tuple(s.play is not None for s in springs),
        "play": _array([s.play or EXACT for s in springs], (6,)),
        "play_load": _array([s.play_load or (1.0,) * 6 for s in springs], (6,)),
    }


def _beams(machine: Machine) -> Fields:
    beams = machine.beam
    return {
        "beams": tuple(b.name for b in beams),
        "beam_elements": tuple(b.elements for b in beams),
        "beam_theory": tuple(b.theory for b in beams),
        "beam_length": _array([b.length / b.elements for b in beams]),
        **_columns(beams, "young_modulus", "shear_modulus", "density", "torsion_constant"),
        **_columns(beams, "area", "loss_factor", prefix="beam_"),
        "beam_second_moment": _array([(b.second_moment_y, b.second_moment_z) for b in beams], (2,)),
        "shear_flexibility": _array([b.shear_flexibility for b in beams], (2,)),
    }


def standard_inertia(rigid: RigidMass) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, first moment and inertia about the origin of the frame the data are given in (Steiner's theorem)."""
    c = np.array(rigid.center_of_mass)
    return rigid.mass, rigid.mass * c, rigid.central_inertia + rigid.mass * (c @ c * np.eye(3) - np.outer(c, c))


def _attach_bodies(
    machine: Machine,
) -> tuple[dict[str, Attachment], dict[str, Attachment], dict[tuple[str, str], Attachment]]:
    """Attachment of each body's and element end's own frame; of the same frame for the parts it carries, which is
    behind its virtual spring; and of each coordinate ("joint", name), virtual spring ("spring", name) and element
    ("element", end), parents first."""
    names = machine.coordinates
    springs = {(s.body, s.at): (number, s) for number, s in enumerate(machine.virtual_spring, len(names))}
    own: dict[str, Attachment] = {GROUND: (-1, np.eye(4))}
    behind: dict[str, Attachment] = {}
    nodes: dict[tuple[str, str], Attachment] = {}

    def through(body: str, at: str, attachment: Attachment) -> Attachment:
        """The attachment behind the virtual spring at this end of the body, unchanged where there is none."""
        if (body, at) not in springs:
            return attachment
        number, spring = springs[body, at]
        offset = origin_matrix(spring.origin)
        nodes["spring", spring.name] = (attachment[0], attachment[1] @ offset)
        return number, np.linalg.inv(offset)

    behind[GROUND] = through(GROUND, "end", own[GROUND])
    first_element = len(names) + len(springs)

    parts: list[Body | FlexibleBeam] = [*machine.body, *machine.beam]
    for body in by_level(parts, _carrier, behind):
        node, offset = behind[_carrier(body)]
        attachment = node, offset @ origin_matrix(body.origin)
        if isinstance(body, FlexibleBeam):
            for end in body.ends:
                nodes["element", end] = attachment
                attachment = own[end] = behind[end] = first_element + machine.ends.index(end), np.eye(4)
        else:
            for coordinate in body.joint:
                nodes["joint", coordinate.name] = attachment
                if (shaft := coordinate.shaft) is not None:
                    nodes["joint", shaft.name] = attachment
                attachment = names.index(coordinate.name), np.eye(4)
            own[body.name] = through(body.name, "joint", attachment)
            behind[body.name] = through(body.name, "end", own[body.name])
    return own, behind, nodes


def _carrier(part: Body | FlexibleBeam) -> str:
    return part.body if isinstance(part, FlexibleBeam) else part.parent


def _array(rows: Any, shape: tuple[int, ...] = ()) -> Array:
    # An empty list has no shape of its own; axes that are unit vectors only to 1e-6 are not normalized.
    return jax.device_put(np.array(rows, dtype=float).reshape((-1, *shape)))
