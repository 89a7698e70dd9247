"""The description of a machine: validated data, without JAX.

A machine is a tree of bodies. Each body is attached to its parent through an `origin` (pose of the joint in the
parent's frame) followed by a `joint`: no coordinate (fixed), one (revolute, prismatic), or several in series (the z, x,
y of a virtual elastic joint). The body's own frame is the one behind its last coordinate, and has the body's name.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import model_validator

from jaxmb.io.validation import known_name
from jaxmb.machine.beam import FlexibleBeam, VirtualSpring, expand_beams
from jaxmb.machine.elements import Fractional, FurtherFriction, Loop, Rayleigh, Transmission
from jaxmb.machine.values import (
    FEW,
    GROUND,
    Angle,
    Name,
    NonNegative,
    Number,
    Origin,
    Part,
    Positive,
    Row6,
    Tensor,
    Vector,
    check_unit,
    first_cycle,
)

MOST_COORDINATES = 200
"""Limit for machines that are read: above it, compiling the equations takes minutes."""
EXACT = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""No deviation of a pose."""
LOCKED_BOTH = "expected the motor locked alone (brake on), or both"


class Motor(Part):
    """A motor behind the gear of a coordinate: its shaft angle theta [rad] is a coordinate of the machine too.

    The gear's spring and damper act on q - theta / ratio. The rotor rotates about `axis` relative to its carrier, which
    adds the energy J theta'^2 / 2 + J theta' (axis . omega), omega the angular velocity of the frame before the
    coordinate. Mass and inertia of the rotor as a part of its carrier belong to that body's data.
    """

    name: Name | None = None
    inertia: Positive
    """J of the rotor about its axis, at the motor's shaft: kg m^2."""
    ratio: Number
    """Motor turns per turn of the joint, or rad/m; negative where they rotate in opposite senses."""
    axis: Vector | None = None
    """Unit vector in the joint's frame; by default the coordinate's."""
    stiffness: NonNegative = 0.0
    """Stiffness of the position controller, Nm/rad at the shaft."""
    damping: NonNegative = 0.0
    """Viscous, of bearings and controller, Nm s/rad at the shaft."""
    friction: NonNegative = 0.0
    """Coulomb friction, Nm at the shaft; omitted in the linearized equations."""
    offset: Number = 0.0
    """Constant part of the effort, Nm at the shaft; omitted in the linearized equations."""
    locked: bool = False
    """The brake is on."""

    @model_validator(mode="after")
    def _check_ratio(self) -> Self:
        if self.ratio == 0.0:
            raise ValueError("ratio is 0, expected the turns of the motor for one of the joint")
        check_unit("axis", self.axis or (1.0, 0.0, 0.0))
        return self


class Coordinate(Part):
    """One coordinate of a joint: a rotation about or a displacement along `axis` [unit vector, joint frame]."""

    name: Name
    type: Literal["revolute", "prismatic"] = "revolute"
    axis: Vector = (0.0, 0.0, 1.0)
    stiffness: NonNegative = 0.0
    """Nm/rad or N/m, about the rest position (the posture of the test)."""
    stiffness_slope: NonNegative | None = None
    """c in k (1 + c |effort|), effort the static load of the coordinate: 1/(Nm) or 1/N. None: k is constant."""
    damping: NonNegative = 0.0
    """Nm s/rad or N s/m."""
    loss_factor: NonNegative = 0.0
    """eta of structural damping: the stiffness in harmonic motion is k (1 + j eta)."""
    rotor_inertia: NonNegative = 0.0
    """Inertia of the motor reflected to the joint, gear ratio squared included: kg m^2 or kg."""
    friction: NonNegative = 0.0
    """Coulomb friction, Nm or N; omitted in the linearized equations."""
    offset: Number = 0.0
    """Constant part of the effort, Nm or N, such as a sensor offset; omitted in the linearized equations."""
    further_friction: FurtherFriction | None = None
    """Friction beyond viscous and Coulomb friction."""
    locked: bool = False
    """Fixed at its value in the posture: no vibration, and no deflection under a load."""
    motor: Motor | None = None
    """Motor behind a gear, whose spring and damper are those of the coordinate."""
    range: tuple[Angle, Angle] | None = None
    """Lowest and highest value, rad or m; None: no limit. Planned motions respect it, recorded ones are checked against
    it."""
    speed_limit: Positive | None = None
    """rad/s or m/s, likewise."""
    acceleration_limit: Positive | None = None
    """rad/s^2 or m/s^2, likewise."""
    effort_limit: Positive | None = None
    """Largest effort of its drive, Nm or N; read and written, not used."""
    origin_deviation: Row6 = EXACT
    """Deviation of its origin from the stated one, in the axes of the origin: translation [m], rotation vector [rad].
    Axis and motion of the coordinate, and all that it carries, are displaced by it."""
    zero: Angle = 0.0
    """Actual value, rad or m, where the reading is 0."""
    reading_scale: Number = 1.0
    """Change of the actual value over that of the reading: an error of the gear ratio."""

    @property
    def shaft(self) -> "Coordinate | None":
        """The motor's shaft angle as a coordinate; None without a motor."""
        m = self.motor
        if m is None:
            return None
        return Coordinate(
            name=m.name or f"{self.name}_motor",
            axis=m.axis or self.axis,
            stiffness=m.stiffness,
            damping=m.damping,
            rotor_inertia=m.inertia,
            friction=m.friction,
            offset=m.offset,
            locked=m.locked,
        )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        check_unit("axis", self.axis)
        if self.reading_scale == 0.0:
            raise ValueError("reading_scale is 0, expected the change of the actual value over that of the reading")
        if self.range is not None and not self.range[0] < self.range[1]:
            raise ValueError(f"range is {self.range[0]:g} to {self.range[1]:g}, expected ascending values")
        if self.stiffness_slope is not None and self.stiffness == 0.0:
            raise ValueError(f"'{self.name}' has a stiffness_slope and no stiffness, expected the stiffness at no load")
        if self.motor is None:
            return self
        if self.rotor_inertia > 0.0:
            raise ValueError(f"'{self.name}' has a rotor_inertia and a motor, expected one of them")
        if self.stiffness == 0.0:
            raise ValueError(f"'{self.name}' has a motor and no stiffness, expected the stiffness of its gear")
        if self.locked and not self.motor.locked:
            raise ValueError(f"'{self.name}' is locked and its motor is not, {LOCKED_BOTH}")
        return self


class InertiaProducts(Part):
    """Central inertia by moments and products: the tensor's off-diagonal elements are MINUS the products."""

    xx: Number
    yy: Number
    zz: Number
    xy: Number = 0.0
    xz: Number = 0.0
    yz: Number = 0.0


class RigidMass(Part):
    """Mass [kg], centre of mass [m] and inertia about it [kg m^2], in the axes of the frame it belongs to.

    The inertia is given by one of two keys: `inertia_products` (off-diagonal elements are minus the listed products, as
    in Huynh et al. 2020) or `inertia_tensor` (the matrix itself).
    """

    name: Name
    mass: NonNegative = 0.0
    center_of_mass: Vector = (0.0, 0.0, 0.0)
    inertia_products: InertiaProducts | None = None
    inertia_tensor: Tensor | None = None

    @property
    def central_inertia(self) -> np.ndarray:
        """Inertia tensor about the centre of mass [3, 3], kg m^2."""
        if self.inertia_products is not None:
            p = self.inertia_products
            return np.array([[p.xx, -p.xy, -p.xz], [-p.xy, p.yy, -p.yz], [-p.xz, -p.yz, p.zz]])
        if self.inertia_tensor is not None:
            return np.array(self.inertia_tensor)
        return np.zeros((3, 3))

    @model_validator(mode="after")
    def _physical_inertia(self) -> Self:
        if self.inertia_products is not None and self.inertia_tensor is not None:
            raise ValueError("gives both inertia_products and inertia_tensor, expected one of them")
        tensor = self.central_inertia
        # Relative to the largest element: rounding errors of zero elements are not symmetric.
        if np.abs(tensor - tensor.T).max() > 1e-9 * np.abs(tensor).max():
            raise ValueError(f"inertia_tensor {tensor.tolist()} is not symmetric")
        a, b, c = np.linalg.eigvalsh(tensor)
        slack = 1e-4 * max(c, 0.0)  # thin plates and rods lie on the limit, and tabulated values are rounded
        if a < -slack:
            raise ValueError(f"has the principal moment of inertia {a:.6g} kg m^2, expected none below 0")
        if a + b < c - slack:
            raise ValueError(
                f"has principal moments of inertia {a:.6g}, {b:.6g}, {c:.6g} kg m^2, which are not physically"
                " consistent: the largest exceeds the sum of the other two"
            )
        if self.mass == 0.0 and c > 0.0:
            raise ValueError("has an inertia but no mass")
        return self


class Body(RigidMass):
    """A rigid body and the joint that carries it; an empty joint is a rigid connection."""

    parent: Name = GROUND
    origin: Origin = Origin()
    joint: Annotated[tuple[Coordinate, ...], FEW] = ()
    frame_deviation: Row6 = EXACT
    """Deviation of the frame of the body's name, as of a named frame; parts on the body are not displaced by it."""


class Frame(Part):
    """A named frame on a body: sensor, tool, load point."""

    name: Name
    body: Name
    origin: Origin = Origin()
    deviation: Row6 = EXACT
    """Deviation from the origin, in its axes: translation [m], rotation vector [rad]."""


class Payload(RigidMass):
    """A mass (tool, load, accelerometer) attached to a frame; its data are in that frame's axes."""

    frame: Name


class Spring(Part):
    """Spring and damper between two frames.

    translation: acts on the displacement of frame_b's origin seen from frame_a, projected on `direction`.
    rotation: acts on the rotation vector of frame_b seen from frame_a, projected on `direction`.
    Both are unloaded in the rest posture, and their `direction` is fixed in frame_a.
    length: acts on the distance of the two origins, along the line between them, and is unloaded at `free_length`, such
    as a gravity compensator.
    """

    name: Name
    frame_a: Name
    frame_b: Name
    type: Literal["translation", "rotation", "length"]
    direction: Vector | None = None
    free_length: NonNegative | None = None
    """m, of a spring of type "length"."""
    stiffness: NonNegative = 0.0
    damping: NonNegative = 0.0
    loss_factor: NonNegative = 0.0

    @model_validator(mode="after")
    def _check_type(self) -> Self:
        needed, other = ("free_length", "direction") if self.type == "length" else ("direction", "free_length")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ValueError(f"type is '{self.type}', expected {needed} and no {other}")
        check_unit("direction", self.direction or (1.0, 0.0, 0.0))
        if self.frame_a == self.frame_b:
            raise ValueError(f"joins frame '{self.frame_a}' to itself")
        return self


class Machine(Part):
    """A multibody system: bodies and beams in a tree, frames, payloads, springs, gravity and a reference posture."""

    name: Name
    description: str = ""
    source: str = ""
    gravity: Vector = (0.0, 0.0, -9.81)
    body: Annotated[tuple[Body, ...], FEW] = ()
    beam: Annotated[tuple[FlexibleBeam, ...], FEW] = ()
    frame: Annotated[tuple[Frame, ...], FEW] = ()
    payload: Annotated[tuple[Payload, ...], FEW] = ()
    spring: Annotated[tuple[Spring, ...], FEW] = ()
    loop: Annotated[tuple[Loop, ...], FEW] = ()
    independent: Annotated[tuple[Name, ...], FEW] = ()
    """Coordinates given by a posture, from which loop closure determines the others; chosen where none is named."""
    virtual_spring: Annotated[tuple[VirtualSpring, ...], FEW] = ()
    transmission: Annotated[tuple[Transmission, ...], FEW] = ()
    rayleigh: Rayleigh = Rayleigh()
    fractional: Fractional | None = None
    posture: Annotated[dict[Name, Angle], FEW] = {}
    """Reference posture: value of each coordinate, rad or m; 0 where not given."""

    @model_validator(mode="before")
    @classmethod
    def _beams_between_frames(cls, data: Any) -> Any:
        return expand_beams(data) if isinstance(data, dict) else data

    @property
    def drives(self) -> tuple[tuple[Coordinate, Motor, Coordinate], ...]:
        """Each coordinate that has a motor, the motor, and its shaft as a coordinate."""
        joints = (c for body in self.body for c in body.joint)
        return tuple((c, m, shaft) for c in joints if (m := c.motor) is not None and (shaft := c.shaft) is not None)

    @property
    def moving_parts(self) -> tuple[Coordinate, ...]:
        """The coordinates in the order of q: those of the joints, then the shafts of their motors."""
        return (*(c for body in self.body for c in body.joint), *(shaft for _, _, shaft in self.drives))

    @property
    def coordinates(self) -> tuple[str, ...]:
        """Names of the coordinates, in the order of q."""
        return tuple(c.name for c in self.moving_parts)

    @property
    def ends(self) -> tuple[str, ...]:
        """Names of the ends of all elements of beams."""
        return tuple(end for beam in self.beam for end in beam.ends)

    @property
    def frames(self) -> tuple[str, ...]:
        """Names of all frames: the ground, the bodies' own, the ends of the beams' elements, then the named ones."""
        return (GROUND, *(b.name for b in self.body), *self.ends, *(f.name for f in self.frame))

    @model_validator(mode="after")
    def _connected(self) -> Self:
        bodies = [b.name for b in self.body]
        carriers = [GROUND, *bodies, *self.ends]
        if len(carriers) == 1:
            raise ValueError("the machine has neither a body nor a beam")
        _unique("body or frame", list(self.frames))
        names = [*self.coordinates, *(s.name for s in self.spring), *(b.name for b in self.beam)]
        _unique("coordinate or spring", names)
        _unique("coordinate, spring or transmission", [*names, *(t.name for t in self.transmission)])
        for transmission in self.transmission:
            _known(f"transmission '{transmission.name}': coordinate", transmission.coordinates, self.coordinates)
        _unique("body or payload", [*bodies, *(p.name for p in self.payload)])
        self._check_tree()
        for kind, key, parts, allowed in (
            ("frame", "body", self.frame, carriers),
            ("payload", "frame", self.payload, self.frames),
            ("spring", "frame_a", self.spring, self.frames),
            ("spring", "frame_b", self.spring, self.frames),
            ("loop", "frame_a", self.loop, self.frames),
            ("loop", "frame_b", self.loop, self.frames),
            ("virtual spring", "body", self.virtual_spring, [GROUND, *bodies]),
        ):
            for part in parts:
                _known(f"{kind} '{part.name}': {key}", [getattr(part, key)], allowed)
        _unique("loop", [loop.name for loop in self.loop])
        _known("independent: coordinate", self.independent, self.coordinates)
        if self.loop and self.virtual_spring:
            raise ValueError("the machine has loops and virtual springs, expected one of them: write links as [[beam]]")
        _unique("virtual spring", [s.name for s in self.virtual_spring])
        _unique("location of a virtual spring", [f"{s.at} of {s.body}" for s in self.virtual_spring])
        _known("posture: coordinate", self.posture, self.coordinates)
        if not self.coordinates and not self.beam:
            raise ValueError("the machine has no coordinate: every joint is fixed")
        if len(self.coordinates) > MOST_COORDINATES:
            raise ValueError(
                f"the machine has {len(self.coordinates)} coordinates, expected at most {MOST_COORDINATES}"
            )
        return self

    def _check_tree(self) -> None:
        carriers = [GROUND, *(b.name for b in self.body), *self.ends]
        parent = {beam_end: beam.body for beam in self.beam for beam_end in beam.ends}
        parent |= {b.name: b.parent for b in self.body}
        for body in self.body:
            _known(f"body '{body.name}': parent", [body.parent], carriers)
        for beam in self.beam:
            _known(f"beam '{beam.name}': body", [beam.body], carriers)
        if cycle := first_cycle(parent, [GROUND]):
            raise ValueError(f"the parents of bodies form a cycle: {cycle}; expected a tree")


def _known(label: str, used: Iterable[str], names: Sequence[str]) -> None:
    for name in used:
        if name not in names:
            raise ValueError(known_name(label, name, names))


def _unique(label: str, names: list[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise ValueError(f"the {label} name '{name}' is used twice, expected each once")
        seen.add(name)
