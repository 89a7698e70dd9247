"""The description of a machine: validated data, without JAX.

A machine is a tree of bodies. Each body is attached to its parent through an `origin` (pose of the joint in the
parent's frame) followed by a `joint`: no coordinate (fixed), one (revolute, prismatic), or several in series (the z, x,
y of a virtual elastic joint). The body's own frame is the one behind its last coordinate, and has the body's name.
"""

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import model_validator

from jaxmb.io.validation import check_distinct, check_known, listed
from jaxmb.machine.beam import FlexibleBeam, VirtualSpring, expand_beams
from jaxmb.machine.elements import Coupling, Fractional, FurtherFriction, Loop, Rayleigh, Transmission
from jaxmb.machine.values import (
    FEW,
    GROUND,
    RISING,
    CoordinateValue,
    Name,
    NonNegative,
    NonZero,
    Number,
    Origin,
    Part,
    Position,
    Positive,
    Row6,
    Tensor,
    UnitVector,
    Vector,
    check_no_angle,
    check_travel,
    check_turns,
    in_order_of_need,
    name_of,
)

MOST_COORDINATES = 200
"""Limit for machines that are read: above it, compiling the equations takes minutes."""
LARGEST_GRAVITY = 1000.0
"""Largest component of gravity, m/s^2; a larger number is probably in mm/s^2."""
EXACT = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""No deviation of a pose."""
MOST_SHOWN = 9
"""Names in the representation of a machine."""
LOCKED_BOTH = "expected the motor locked alone (brake on), or both"


class Motor(Part):
    """A motor behind the gear of a coordinate: its shaft angle theta [rad] is a coordinate of the machine too.

    The gear's spring and damper act on q - theta / ratio. The rotor rotates about `axis` relative to its carrier, which
    adds the energy J theta'^2 / 2 + J theta' (axis . omega), omega the angular velocity of the frame before the
    coordinate. Mass and inertia of the rotor as a part of its carrier belong to that body's data.
    """

    name: Name | None = None
    """Name of the shaft as a coordinate; by default that of the coordinate and `_motor`."""
    inertia: Positive
    """J of the rotor about its axis at the motor's shaft, not multiplied by the square of the ratio [kg m^2]."""
    ratio: NonZero
    """Motor turns per turn of the joint; negative where they rotate in opposite senses [1, rad/m]."""
    axis: UnitVector | None = None
    """Unit vector about which the rotor spins, in the joint's frame; by default the coordinate's [1]."""
    stiffness: NonNegative = 0.0
    """Stiffness of the position controller, at the shaft [N m/rad]."""
    damping: NonNegative = 0.0
    """Viscous damping of bearings and controller, at the shaft [N m s/rad]."""
    friction: NonNegative = 0.0
    """Coulomb friction at the shaft; omitted in the linearized equations [N m]."""
    offset: Number = 0.0
    """Constant part of the torque at the shaft; omitted in the linearized equations [N m]."""
    locked: bool = False
    """Whether the brake is on: the gear is then a spring between the joint and its carrier."""


class Drive(Part):
    """Spring, damper, motor, friction and limits of a coordinate."""

    name: Name
    """Name of the coordinate, from which the names of its parameters are formed."""
    type: Literal["revolute", "prismatic"] = "revolute"
    """Rotation about the axis, or displacement along it."""
    stiffness: NonNegative = 0.0
    """Stiffness about the rest position (the posture of the test), parallel to the drive; with a `motor` that of the
    gear [N m/rad, N/m]."""
    damping: NonNegative = 0.0
    """Viscous damping; with a `motor` that of the gear [N m s/rad, N s/m]."""
    rotor_inertia: NonNegative = 0.0
    """Inertia of the motor reflected to the joint, gear ratio squared included; not beside `motor` [kg m^2, kg]."""
    friction: NonNegative = 0.0
    """Coulomb friction; omitted in the linearized equations [N m, N]."""
    offset: Number = 0.0
    """Constant part of the effort, such as a sensor offset; omitted in the linearized equations [N m, N]."""
    further_friction: FurtherFriction | None = None
    """Friction beyond viscous and Coulomb friction."""
    motor: Motor | None = None
    """Motor behind a gear, whose spring and damper are those of the coordinate."""
    range: Annotated[tuple[CoordinateValue, CoordinateValue], RISING] | None = None
    """Lowest and highest value; without it there is no limit. Planned motions and postures respect it, recorded ones
    are checked against it [rad, m]."""
    speed_limit: Positive | None = None
    """Largest speed of planned motions [rad/s, m/s]."""
    acceleration_limit: Positive | None = None
    """Largest acceleration of planned motions [rad/s^2, m/s^2]."""
    effort_limit: Positive | None = None
    """Largest effort of its drive; read and written, not used [N m, N]."""


class Coordinate(Drive):
    """One coordinate of a joint: a rotation about or a displacement along `axis` [unit vector, joint frame]."""

    axis: UnitVector = (0.0, 0.0, 1.0)
    """Unit vector in the joint's frame [1]."""
    stiffness_slope: NonNegative | None = None
    """c in k (1 + c |effort|), effort the static load of the coordinate; without it k is constant [1/(N m), 1/N]."""
    loss_factor: NonNegative = 0.0
    """eta of structural damping: the stiffness in harmonic motion is k (1 + j eta) [1]."""
    locked: bool = False
    """Whether it is fixed at its value in the posture: no vibration, and no deflection under a load."""
    origin_deviation: Row6 = EXACT
    """Deviation of its origin from the stated one, in the axes of the origin: translation, then rotation vector. Axis
    and motion of the coordinate, and all that it carries, are displaced by it [m, rad]."""
    zero: CoordinateValue = 0.0
    """Actual value where the reading is 0 [rad, m]."""
    reading_scale: NonZero = 1.0
    """Change of the actual value over that of the reading: an error of the gear ratio [1]."""

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
        if self.type == "prismatic":
            check_travel("zero", self.zero)
            for end in self.range or ():
                check_no_angle("range", end)
        else:
            for label, angle in (("zero", self.zero), *(("range", end) for end in self.range or ())):
                check_turns(label, angle)
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
    """Moment of inertia about the x axis through the centre of mass [kg m^2]."""
    yy: Number
    """Moment of inertia about the y axis through the centre of mass [kg m^2]."""
    zz: Number
    """Moment of inertia about the z axis through the centre of mass [kg m^2]."""
    xy: Number = 0.0
    """Product of inertia; the tensor has its negative [kg m^2]."""
    xz: Number = 0.0
    """Product of inertia; the tensor has its negative [kg m^2]."""
    yz: Number = 0.0
    """Product of inertia; the tensor has its negative [kg m^2]."""


class RigidMass(Part):
    """Mass [kg], centre of mass [m] and inertia about it [kg m^2], in the axes of the frame it belongs to.

    The inertia is given by one of two keys: `inertia_products` (off-diagonal elements are minus the listed products, as
    in Huynh et al. 2020) or `inertia_tensor` (the matrix itself).
    """

    name: Name
    """Name of the body or payload."""
    mass: NonNegative = 0.0
    """Mass [kg]."""
    center_of_mass: Position = (0.0, 0.0, 0.0)
    """Centre of mass in the frame of the body or payload [m]."""
    inertia_products: InertiaProducts | None = None
    """Central inertia by moments and products, off-diagonal elements of the tensor being minus the products."""
    inertia_tensor: Tensor | None = None
    """Central inertia as a symmetric 3 x 3 matrix, in place of `inertia_products` [kg m^2]."""

    @property
    def central_inertia(self) -> np.ndarray:
        """Inertia tensor about the centre of mass [3, 3], kg m^2."""
        if self.inertia_products is not None:
            p = self.inertia_products
            return np.array([[p.xx, -p.xy, -p.xz], [-p.xy, p.yy, -p.yz], [-p.xz, -p.yz, p.zz]])
        return np.zeros((3, 3)) if self.inertia_tensor is None else np.array(self.inertia_tensor)

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
    """Body that carries this one; the bodies form a tree."""
    origin: Origin = Origin()
    """Pose of the joint in the parent's frame."""
    joint: Annotated[tuple[Coordinate, ...], FEW] = ()
    """Coordinates in series, each of which moves with those before it; by default a rigid connection."""
    frame_deviation: Row6 = EXACT
    """Deviation of the frame that has the body's name, see `[[frame]]`; parts on the body are not displaced by it
    [m, rad]."""


class Frame(Part):
    """A named frame on a body: sensor, tool, load point."""

    name: Name
    """Name of the frame."""
    body: Name
    """Body that carries it, or `ground`."""
    origin: Origin = Origin()
    """Pose in the body's frame."""
    deviation: Row6 = EXACT
    """Deviation from the origin, in its axes: translation, then rotation vector; payloads are not displaced by it
    [m, rad]."""


class Payload(RigidMass):
    """A mass (tool, load, accelerometer) attached to a frame; its data are in that frame's axes."""

    frame: Name
    """Frame to which the mass is fixed, and in whose axes its data are given."""


class Spring(Part):
    """Spring and damper between two frames.

    translation: acts on the displacement of frame_b's origin seen from frame_a, projected on `direction`.
    rotation: acts on the rotation vector of frame_b seen from frame_a, projected on `direction`.
    Both are unloaded in the rest posture, and their `direction` is fixed in frame_a.
    length: acts on the distance of the two origins, along the line between them, and is unloaded at `free_length`, such
    as a gravity compensator.
    """

    name: Name
    """Name of the spring."""
    frame_a: Name
    """First frame, in which `direction` is fixed."""
    frame_b: Name
    """Second frame."""
    type: Literal["translation", "rotation", "length"]
    """The spring acts on the displacement along `direction`, on the rotation about it, or on the distance of the two
    origins."""
    direction: UnitVector | None = None
    """Unit vector in the axes of `frame_a`, of springs of type `translation` and `rotation` [1]."""
    free_length: NonNegative | None = None
    """Length at which a spring of type `length` is unloaded [m]."""
    stiffness: NonNegative = 0.0
    """Stiffness [N m/rad, N/m]."""
    damping: NonNegative = 0.0
    """Viscous damping [N m s/rad, N s/m]."""
    loss_factor: NonNegative = 0.0
    """eta of structural damping [1]."""

    @model_validator(mode="after")
    def _check_type(self) -> Self:
        needed, other = ("free_length", "direction") if self.type == "length" else ("direction", "free_length")
        if getattr(self, needed) is None or getattr(self, other) is not None:
            raise ValueError(f"type is '{self.type}', expected {needed} and no {other}")
        return self


class Machine(Part):
    """A multibody system: bodies and beams in a tree, frames, payloads, springs, gravity and a reference posture."""

    name: Name
    """Name of the machine."""
    description: str = ""
    """Free text."""
    source: str = ""
    """Free text: origin of the numbers."""
    gravity: Vector = (0.0, 0.0, -9.81)
    """Acceleration of gravity in the ground's axes [m/s^2]."""
    body: Annotated[tuple[Body, ...], FEW] = ()
    """Rigid bodies with their joints, `[[body]]`; their order is that of the coordinates."""
    beam: Annotated[tuple[FlexibleBeam, ...], FEW] = ()
    """Flexible links, `[[beam]]`."""
    frame: Annotated[tuple[Frame, ...], FEW] = ()
    """Named frames, `[[frame]]`."""
    payload: Annotated[tuple[Payload, ...], FEW] = ()
    """Masses fixed to frames, `[[payload]]`."""
    spring: Annotated[tuple[Spring, ...], FEW] = ()
    """Springs and dampers between frames, `[[spring]]`."""
    loop: Annotated[tuple[Loop, ...], FEW] = ()
    """Joints that close loops, `[[loop]]`."""
    coupling: Annotated[tuple[Coupling, ...], FEW] = ()
    """Coordinates that follow others, `[[coupling]]`."""
    independent: Annotated[tuple[Name, ...], FEW] = ()
    """Coordinates given by a posture, from which loop closure determines the others; selected automatically by
    default."""
    virtual_spring: Annotated[tuple[VirtualSpring, ...], FEW] = ()
    """Massless elasticity of links and joints, `[[virtual_spring]]`."""
    transmission: Annotated[tuple[Transmission, ...], FEW] = ()
    """Drives that act on several coordinates, `[[transmission]]`."""
    rayleigh: Rayleigh = Rayleigh()
    """Rayleigh damping of the linearized equations."""
    fractional: Fractional | None = None
    """Fractional damping of the linearized equations."""
    posture: Annotated[dict[Name, CoordinateValue], FEW] = {}
    """Reference posture: value of each coordinate, by default 0 [rad, m]."""

    @model_validator(mode="before")
    @classmethod
    def _beams_between_frames(cls, data: Any) -> Any:
        return expand_beams(data, {"body": Body, "frame": Frame}) if isinstance(data, dict) else data

    def __repr__(self) -> str:
        """Numbers of its parts, and the names of its coordinates."""
        counts = {name_of(key): len(parts) for key, parts in self.elements.items() if key != "frame"}
        parts = [f"{n} {name if n == 1 else 'bodies' if name == 'body' else f'{name}s'}" for name, n in counts.items()]
        names = f"{len(self.coordinates)} coordinates: {listed(self.coordinates, MOST_SHOWN)}"
        frames = f"; frames {listed([f.name for f in self.frame], MOST_SHOWN)}" if self.frame else ""
        return f"<Machine {self.name}: {', '.join(parts)}; {names}{frames}>"

    __str__ = __repr__

    @property
    def elements(self) -> dict[str, tuple[Any, ...]]:
        """Its bodies, beams, frames and all other parts by key; kinds that it lacks are omitted."""
        found = {key: getattr(self, key) for key in type(self).model_fields}
        return {key: x for key, x in found.items() if isinstance(x, tuple) and x and isinstance(x[0], Part)}

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
        names = [*self.coordinates, *(s.name for s in self.spring), *(b.name for b in self.beam)]
        for label, distinct in (
            ("body or frame", self.frames),
            ("coordinate or spring", names),
            ("coordinate, spring or transmission", [*names, *(t.name for t in self.transmission)]),
            ("body or payload", [*bodies, *(p.name for p in self.payload)]),
            *(
                (name_of(key), [part.name for part in parts])
                for key, parts in self.elements.items()
                if key != "coupling"
            ),
            ("coupling: coordinate", [coupling.coordinate for coupling in self.coupling]),
            ("independent: coordinate", self.independent),
            ("location of a virtual spring", [f"{s.at} of {s.body}" for s in self.virtual_spring]),
        ):
            check_distinct(distinct, f"the {label} name '{{}}' is used twice, expected each once")
        joined = [(f"{name_of(key)} '{part.name}'", part)
                  for key, parts in self.elements.items() for part in parts if hasattr(part, "frame_a")]  # fmt: skip
        prismatic = [c.name for c in self.moving_parts if c.type == "prismatic"]
        references = [
            *((f"transmission '{t.name}': coordinate", t.coordinates, self.coordinates) for t in self.transmission),
            *((f"body '{b.name}': parent", [b.parent], carriers) for b in self.body),
            *((f"beam '{b.name}': body", [b.body], carriers) for b in self.beam),
            *((f"frame '{f.name}': body", [f.body], carriers) for f in self.frame),
            *((f"payload '{p.name}': frame", [p.frame], self.frames) for p in self.payload),
            *((f"{label}: {key}", [getattr(part, key)], self.frames)
              for label, part in joined for key in ("frame_a", "frame_b")),
            *((f"virtual spring '{s.name}': body", [s.body], [GROUND, *bodies]) for s in self.virtual_spring),
            *((f"virtual spring '{s.name}': guide: prismatic coordinate", [s.guide.coordinate], prismatic)
              for s in self.virtual_spring if s.guide is not None),
            *(("coupling: coordinate", [c.coordinate, c.follows], self.coordinates) for c in self.coupling),
            ("independent: coordinate", self.independent, self.coordinates),
            ("posture: coordinate", self.posture, self.coordinates),
        ]  # fmt: skip
        for label, given, known in references:
            check_known(label, given, known)
        for label, part in joined:
            if part.frame_a == part.frame_b:
                raise ValueError(f"{label}: joins frame '{part.frame_a}' to itself, expected another one")
        parent = {end: [beam.body] for beam in self.beam for end in beam.ends}
        in_order_of_need(parent | {b.name: [b.parent] for b in self.body}, "the parents of bodies")
        self._check_couplings()
        if (self.loop or self.coupling) and self.virtual_spring:
            raise ValueError(
                "the machine has loops or couplings and virtual springs, expected one of them: write links as [[beam]]"
            )
        for coordinate in (c for body in self.body for c in body.joint):
            check = check_travel if coordinate.type == "prismatic" else check_turns
            check(f"posture: {coordinate.name}", self.posture.get(coordinate.name, 0.0))
        if max(map(abs, self.gravity)) > LARGEST_GRAVITY:
            raise ValueError(
                f"gravity is {list(self.gravity)}, expected at most {LARGEST_GRAVITY:g} m/s^2, is it in mm/s^2?"
            )
        if not self.coordinates and not self.beam:
            raise ValueError("the machine has no coordinate: every joint is fixed")
        if len(self.coordinates) > MOST_COORDINATES:
            raise ValueError(
                f"the machine has {len(self.coordinates)} coordinates, expected at most {MOST_COORDINATES}"
            )
        return self

    def _check_couplings(self) -> None:
        followers = {coupling.coordinate for coupling in self.coupling}
        locked = {c.name for c in self.moving_parts if c.locked}
        for coupling in self.coupling:
            label = f"coupling of '{coupling.coordinate}'"
            if coupling.follows in followers:
                raise ValueError(f"{label}: follows '{coupling.follows}', a dependent one, expected an independent one")
            if found := locked & {coupling.coordinate, coupling.follows}:
                raise ValueError(f"{label}: '{min(found)}' is locked, expected coordinates that move")
            if coupling.coordinate in self.independent:
                raise ValueError(f"independent: '{coupling.coordinate}' follows '{coupling.follows}' by a coupling")
