"""From the description of a machine to the Model that the equations work on."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmb.machine.beam import FlexibleBeam
from jaxmb.machine.damping import Fractional
from jaxmb.machine.friction import TERMS, FurtherFriction
from jaxmb.machine.geometry import origin_matrix
from jaxmb.machine.loop import LoopType
from jaxmb.machine.schema import Body, Machine, RigidMass
from jaxmb.machine.values import GROUND


class Model(eqx.Module):
    """A machine as arrays: what is a physical number is a leaf, what is topology or a name is static.

    Every coordinate moves one node; a node's pose is its parent node's pose, times `origin`, times the motion of the
    coordinate. Bodies, payloads and frames are fixed to a node (-1 is the ground) by an offset. Inertia is stored in
    the form in which the equations of motion are linear: mass, first moment and inertia about the body's own origin.
    """

    name: str = eqx.field(static=True)
    coordinates: tuple[str, ...] = eqx.field(static=True)
    """Those of the joints, then the shafts of motors, which carry nothing."""
    revolute: tuple[bool, ...] = eqx.field(static=True)
    locked: tuple[bool, ...] = eqx.field(static=True)
    """Coordinates that a posture places and that do not move from there."""
    parent: tuple[int, ...] = eqx.field(static=True)
    """Parent node of each node, coordinates before virtual springs before elements of beams; -1 for the ground."""
    order: tuple[int, ...] = eqx.field(static=True)
    """Nodes, every parent before its children."""
    origin: Float[Array, "n 4 4"]
    axis: Float[Array, "n 3"]
    stiffness: Float[Array, "n"]
    damping: Float[Array, "n"]
    rotor_inertia: Float[Array, "n"]
    """Of a shaft the rotor's own."""
    friction: Float[Array, "n"]
    """Coulomb friction, Nm or N."""
    offset: Float[Array, "n"]
    """Constant part of the effort, Nm or N."""
    friction_terms: Float[Array, "n 4"]
    """Coefficients of further friction (`jaxmb.machine.friction.TERMS`), 0 where it is not there."""
    further_friction: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    """Which of these terms each coordinate has."""
    stribeck_speed: Float[Array, "n"]
    """v_s of Stribeck friction, rad/s or m/s; 1 where there is none."""
    friction_temperature: Float[Array, "n"]
    """At which the damping is that of the coordinate; 0 where it does not depend on temperature."""
    loss_factor: Float[Array, "n"]
    """eta of structural damping."""
    stiffness_slope: Float[Array, "n"]
    """Of the stiffness over the load, 1/(Nm) or 1/N; 0 where it is constant."""
    load_dependent: tuple[bool, ...] = eqx.field(static=True)
    """Whether the stiffness of each coordinate depends on its load."""
    motors: tuple[tuple[int, int], ...] = eqx.field(static=True)
    """Each coordinate with a motor behind its gear, and the coordinate that is the motor's shaft."""
    gear_ratio: Float[Array, "g"]
    """Of each motor, its turns for one of the joint, or rad/m."""
    transmissions: tuple[str, ...] = eqx.field(static=True)
    """Names of the drives that turn with several coordinates at once."""
    transmission_rate: Float[Array, "t n"]
    """c of each: s' = sum_i c_i q_i'."""
    transmission_inertia: Float[Array, "t"]
    transmission_damping: Float[Array, "t"]
    transmission_friction: Float[Array, "t"]

    masses: tuple[str, ...] = eqx.field(static=True)
    """Names of what has mass: bodies, then payloads."""
    mass_node: tuple[int, ...] = eqx.field(static=True)
    mass_offset: Float[Array, "b 4 4"]
    mass: Float[Array, "b"]
    first_moment: Float[Array, "b 3"]
    inertia: Float[Array, "b 3 3"]

    frames: tuple[str, ...] = eqx.field(static=True)
    frame_node: tuple[int, ...] = eqx.field(static=True)
    frame_offset: Float[Array, "f 4 4"]
    end_frames: tuple[str, ...] = eqx.field(static=True)
    """Frames at the ends of the chains of bodies, where a tool may be: the named frames of each last body that some
    coordinate moves, or the body's own frame where it has none."""

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
    """Whether any loss factor is not 0, or may be."""

    virtual_springs: tuple[str, ...] = eqx.field(static=True)
    """Names of the massless springs of six degrees of freedom; each moves a node behind those of the coordinates."""
    virtual_spring_origin: Float[Array, "k 4 4"]
    """In the parent node."""
    compliance: Float[Array, "k 6 6"]
    """Symmetric, of each virtual spring in its own axes, translations before rotations: m/N, rad/N, rad/Nm."""

    beams: tuple[str, ...] = eqx.field(static=True)
    beam_elements: tuple[int, ...] = eqx.field(static=True)
    """Number of elements of each beam; each moves a node, behind those of virtual springs."""
    beam_theory: tuple[str, ...] = eqx.field(static=True)
    beam_start: Float[Array, "w 4 4"]
    """Where each element begins in its parent node; it lies along x."""
    beam_length: Float[Array, "c"]
    """Of an element, m."""
    young_modulus: Float[Array, "c"]
    shear_modulus: Float[Array, "c"]
    density: Float[Array, "c"]
    beam_area: Float[Array, "c"]
    beam_second_moment: Float[Array, "c 2"]
    """Of the section about y and z, m^4."""
    torsion_constant: Float[Array, "c"]
    shear_flexibility: Float[Array, "c 2"]
    """1 over the part of the area that carries shear along y and z; 0 in Euler-Bernoulli's beam."""
    beam_loss_factor: Float[Array, "c"]

    loops: tuple[str, ...] = eqx.field(static=True)
    loop_frames: tuple[tuple[int, int], ...] = eqx.field(static=True)
    loop_type: tuple[LoopType, ...] = eqx.field(static=True)
    loop_rigid: tuple[bool, ...] = eqx.field(static=True)
    loop_axis: Float[Array, "l 3"]
    dependent: tuple[int, ...] = eqx.field(static=True)
    """Coordinates that follow from the others in a posture whose loops are closed."""
    following: tuple[int, ...] = eqx.field(static=True)
    """Coordinates, with the elastic ones behind them, that follow from the others in small motions."""
    bent_loops: bool = eqx.field(static=True)
    """Whether elastic coordinates of beams open and close loops."""

    rayleigh_mass: Float[Array, ""]
    """alpha of Rayleigh damping, 1/s."""
    rayleigh_stiffness: Float[Array, ""]
    """beta of Rayleigh damping, s."""
    fractional: bool = eqx.field(static=True)
    """Whether the machine has fractional damping."""
    fractional_order: Float[Array, ""]
    """a in (j omega tau)^a."""
    fractional_time: Float[Array, ""]
    """tau in it, s."""

    gravity: Float[Array, "3"]
    reference: Float[Array, "n"]
    """Reference posture, rad or m."""
    as_built: "Model | None" = None
    """The machine before parameters were set, by whose stiffness beams in loops share loads; None where none do."""
    brakes_release: bool = eqx.field(static=True, default=False)
    """Whether some tests release the brakes of locked motors, whose shafts have parameters then."""

    @property
    def joints(self) -> tuple[str, ...]:
        """Names of the coordinates of joints; behind them in q are the shafts of motors, whose angles move no frame."""
        return self.coordinates[: len(self.coordinates) - len(self.motors)]

    @property
    def elements(self) -> tuple[str, ...]:
        """Names of the elements of beams, those of their ends."""
        counts = zip(self.beams, self.beam_elements, strict=True)
        return tuple(f"{beam}/{k}" if k < count else beam for beam, count in counts for k in range(1, count + 1))

    @property
    def element_beam(self) -> np.ndarray:
        """Number of the beam of each element [w]."""
        return np.repeat(np.arange(len(self.beams)), self.beam_elements)

    @property
    def elastic_nodes(self) -> tuple[str, ...]:
        """Names of the k nodes that give way in six directions: virtual springs, then elements of beams."""
        return (*self.virtual_springs, *self.elements)


def tree_model(machine: Machine) -> Model:
    """Model of a machine as it is written, its loops not looked at.

    Args:
        machine: a validated machine, from `load_machine` or built in Python.

    Returns:
        The model; its coordinates and masses keep the order of the machine.
    """
    own, behind, nodes = _place_bodies(machine)
    frame_place = {name: own[name] for name in machine.frames if name in own}
    for frame in machine.frame:
        node, offset = own[GROUND] if frame.body == GROUND else behind[frame.body]
        frame_place[frame.name] = (node, offset @ origin_matrix(frame.origin))
    carriers: list[tuple[RigidMass, str]] = [(b, b.name) for b in machine.body]
    carriers += [(p, p.frame) for p in machine.payload]
    standard = [standard_inertia(rigid) for rigid, _ in carriers]
    names = machine.coordinates
    frames = machine.frames
    last = {b.name for b in machine.body} | {beam.name for beam in machine.beam}
    last -= {b.parent for b in machine.body} | {beam.body for beam in machine.beam}
    ends = {f.name for f in machine.frame if f.body in last} | (last - {f.body for f in machine.frame})
    coordinates = machine.moving_parts
    further = [c.further_friction or FurtherFriction() for c in coordinates]
    places = [nodes["joint", name] for name in names] + [nodes["spring", s.name] for s in machine.virtual_spring]
    rigid_nodes = len(places)
    law = machine.fractional or Fractional(order=1.0, time=1.0)
    places += [nodes["element", end] for end in machine.ends]
    return Model(
        name=machine.name,
        coordinates=names,
        revolute=tuple(c.type == "revolute" for c in coordinates),
        locked=tuple(c.locked for c in coordinates),
        parent=tuple(node for node, _ in places),
        order=tuple(_node_number(machine, key) for key in nodes),
        origin=_array([offset for _, offset in places[: len(names)]], (4, 4)),
        axis=_array([c.axis for c in coordinates], (3,)),
        stiffness=_array([c.stiffness for c in coordinates]),
        damping=_array([c.damping for c in coordinates]),
        rotor_inertia=_array([c.rotor_inertia for c in coordinates]),
        friction=_array([c.friction for c in coordinates]),
        offset=_array([c.offset for c in coordinates]),
        friction_terms=_array([[getattr(f, term) or 0.0 for term in TERMS] for f in further], (len(TERMS),)),
        further_friction=tuple(f.terms for f in further),
        stribeck_speed=_array([f.stribeck_speed or 1.0 for f in further]),
        friction_temperature=_array([f.temperature or 0.0 for f in further]),
        loss_factor=_array([c.loss_factor for c in coordinates]),
        stiffness_slope=_array([c.stiffness_slope or 0.0 for c in coordinates]),
        load_dependent=tuple(c.stiffness_slope is not None for c in coordinates),
        motors=tuple((names.index(joint.name), names.index(shaft.name)) for joint, _, shaft in machine.drives),
        gear_ratio=_array([motor.ratio for _, motor, _ in machine.drives]),
        transmissions=tuple(t.name for t in machine.transmission),
        transmission_rate=jax.device_put(
            np.array(
                [[t.coordinates.get(name, 0.0) for name in names] for t in machine.transmission], dtype=float
            ).reshape(len(machine.transmission), len(names))
        ),
        transmission_inertia=_array([t.inertia for t in machine.transmission]),
        transmission_damping=_array([t.damping for t in machine.transmission]),
        transmission_friction=_array([t.friction for t in machine.transmission]),
        masses=tuple(rigid.name for rigid, _ in carriers),
        mass_node=tuple(frame_place[frame][0] for _, frame in carriers),
        mass_offset=_array([frame_place[frame][1] for _, frame in carriers], (4, 4)),
        mass=_array([m for m, _, _ in standard]),
        first_moment=_array([h for _, h, _ in standard], (3,)),
        inertia=_array([i for _, _, i in standard], (3, 3)),
        frames=frames,
        frame_node=tuple(frame_place[f][0] for f in frames),
        frame_offset=_array([frame_place[f][1] for f in frames], (4, 4)),
        end_frames=tuple(f for f in frames if f in ends and frame_place[f][0] >= 0),
        springs=tuple(s.name for s in machine.spring),
        spring_frames=tuple((frames.index(s.frame_a), frames.index(s.frame_b)) for s in machine.spring),
        spring_type=tuple(s.type for s in machine.spring),
        spring_direction=_array([s.direction or (0.0, 0.0, 0.0) for s in machine.spring], (3,)),
        spring_free_length=_array([s.free_length or 0.0 for s in machine.spring]),
        spring_stiffness=_array([s.stiffness for s in machine.spring]),
        spring_damping=_array([s.damping for s in machine.spring]),
        spring_loss_factor=_array([s.loss_factor for s in machine.spring]),
        structural=any(part.loss_factor > 0.0 for part in (*coordinates, *machine.spring, *machine.beam)),
        virtual_springs=tuple(s.name for s in machine.virtual_spring),
        virtual_spring_origin=_array([offset for _, offset in places[len(names) : rigid_nodes]], (4, 4)),
        compliance=_array([s.matrix for s in machine.virtual_spring], (6, 6)),
        beams=tuple(b.name for b in machine.beam),
        beam_elements=tuple(b.elements for b in machine.beam),
        beam_theory=tuple(b.theory for b in machine.beam),
        beam_start=_array([offset for _, offset in places[rigid_nodes:]], (4, 4)),
        beam_length=_array([b.length / b.elements for b in machine.beam]),
        young_modulus=_array([b.young_modulus for b in machine.beam]),
        shear_modulus=_array([b.shear_modulus for b in machine.beam]),
        density=_array([b.density for b in machine.beam]),
        beam_area=_array([b.area for b in machine.beam]),
        beam_second_moment=_array([(b.second_moment_y, b.second_moment_z) for b in machine.beam], (2,)),
        torsion_constant=_array([b.torsion_constant for b in machine.beam]),
        shear_flexibility=_array([b.shear_flexibility for b in machine.beam], (2,)),
        beam_loss_factor=_array([b.loss_factor for b in machine.beam]),
        loops=tuple(loop.name for loop in machine.loop),
        loop_frames=tuple((frames.index(loop.frame_a), frames.index(loop.frame_b)) for loop in machine.loop),
        loop_type=tuple(loop.type for loop in machine.loop),
        loop_rigid=tuple(loop.rigid for loop in machine.loop),
        loop_axis=_array([loop.axis for loop in machine.loop], (3,)),
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
    )


def standard_inertia(rigid: RigidMass) -> tuple[float, np.ndarray, np.ndarray]:
    """Mass, first moment and inertia about the origin of the frame the data are given in (Steiner's theorem)."""
    c = np.array(rigid.center_of_mass)
    about_origin = rigid.central_inertia + rigid.mass * (c @ c * np.eye(3) - np.outer(c, c))
    return rigid.mass, rigid.mass * c, about_origin


Place = tuple[int, np.ndarray]
"""A node and the offset from it."""


def _place_bodies(machine: Machine) -> tuple[dict[str, Place], dict[str, Place], dict[tuple[str, str], Place]]:
    """Of each body and end of an element the place of its own frame, and of that frame as seen by what hangs on it,
    behind a body's virtual spring; and the parent node and origin of each coordinate ("joint", name), virtual spring
    ("spring", name) and element ("element", end), parents first."""
    names = machine.coordinates
    springs = {(s.body, s.at): (number, s) for number, s in enumerate(machine.virtual_spring, len(names))}
    own: dict[str, Place] = {GROUND: (-1, np.eye(4))}
    behind: dict[str, Place] = {}
    nodes: dict[tuple[str, str], Place] = {}

    def through(body: str, at: str, place: Place) -> Place:
        """A place of a body as seen behind the virtual spring there, where there is one."""
        if (body, at) not in springs:
            return place
        number, spring = springs[body, at]
        offset = origin_matrix(spring.origin)
        nodes["spring", spring.name] = (place[0], place[1] @ offset)
        return number, np.linalg.inv(offset)

    behind[GROUND] = through(GROUND, "end", own[GROUND])
    first_element = len(names) + len(springs)

    def place_beam(beam: FlexibleBeam) -> None:
        node, offset = behind[beam.body]
        start = offset @ origin_matrix(beam.origin)
        for end in beam.ends:
            nodes["element", end] = node, start
            node, start = first_element + machine.ends.index(end), np.eye(4)
            own[end] = behind[end] = node, start

    waiting: list[Body | FlexibleBeam] = [*machine.body, *machine.beam]
    while waiting:
        placed = [part for part in waiting if _carrier(part) in behind]
        waiting = [part for part in waiting if _carrier(part) not in behind]
        for body in placed:
            if isinstance(body, FlexibleBeam):
                place_beam(body)
                continue
            node, offset = behind[body.parent]
            place = node, offset @ origin_matrix(body.origin)
            for coordinate in body.joint:
                nodes["joint", coordinate.name] = place
                if (shaft := coordinate.shaft) is not None:
                    nodes["joint", shaft.name] = place
                place = names.index(coordinate.name), np.eye(4)
            own[body.name] = through(body.name, "joint", place)
            behind[body.name] = through(body.name, "end", own[body.name])
    return own, behind, nodes


def _carrier(part: Body | FlexibleBeam) -> str:
    return part.body if isinstance(part, FlexibleBeam) else part.parent


def _node_number(machine: Machine, key: tuple[str, str]) -> int:
    what, name = key
    if what == "joint":
        return machine.coordinates.index(name)
    springs = [s.name for s in machine.virtual_spring]
    if what == "spring":
        return len(machine.coordinates) + springs.index(name)
    return len(machine.coordinates) + len(springs) + machine.ends.index(name)


def _array(rows: Any, shape: tuple[int, ...] = ()) -> Array:
    # An empty list has no shape of its own; axes that are unit vectors only to 1e-6 are left as they were written.
    return jax.device_put(np.array(rows, dtype=float).reshape((-1, *shape)))
