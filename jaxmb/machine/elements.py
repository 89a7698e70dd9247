"""Rotations and poses of origins, and parts of a machine beside its bodies: loops, couplings, transmissions, damping,
further friction."""

from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from jaxmb.io.validation import Table
from jaxmb.machine.values import FEW, SOME, Name, NonNegative, NonZero, Number, Origin, Part, Positive, Row6, UnitVector


def rotation_matrix(rpy: Any) -> np.ndarray:
    """Rotation matrix of fixed-axis roll, pitch, yaw [rad]: Rz(yaw) Ry(pitch) Rx(roll)."""
    rx, ry, rz = (rotation_about(axis, angle) for axis, angle in zip(np.eye(3), rpy, strict=True))
    return rz @ ry @ rx


def roll_pitch_yaw(rotation: np.ndarray) -> tuple[float, float, float]:
    """Fixed-axis roll, pitch, yaw [rad] of a rotation matrix: the inverse of `rotation_matrix`."""
    r = rotation
    # In gimbal lock only roll - yaw or roll + yaw is determined: yaw is set to 0.
    yaw = np.arctan2(r[1, 0], r[0, 0]) if np.hypot(r[0, 0], r[1, 0]) > 1e-12 else 0.0
    c, s = np.cos(yaw), np.sin(yaw)
    pitch = np.arctan2(-r[2, 0], c * r[0, 0] + s * r[1, 0])
    roll = np.arctan2(s * r[0, 2] - c * r[1, 2], c * r[1, 1] - s * r[0, 1])
    return float(roll), float(pitch), float(yaw)


def rotation_about(axis: np.ndarray, angle: float) -> np.ndarray:
    """Rotation matrix about a unit vector by an angle [rad], Rodrigues' formula."""
    x, y, z = axis
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    return np.eye(3) + np.sin(angle) * cross + (1.0 - np.cos(angle)) * cross @ cross


def pose_matrix(xyz: Any = (0.0, 0.0, 0.0), rpy: Any = (0.0, 0.0, 0.0)) -> np.ndarray:
    """Homogeneous transform [4, 4] of a translation [m] and fixed-axis roll, pitch, yaw [rad]."""
    matrix = np.eye(4)
    matrix[:3, :3], matrix[:3, 3] = rotation_matrix(rpy), xyz
    return matrix


def motion_matrix(kind: str, axis: Any, value: float) -> np.ndarray:
    """Homogeneous transform [4, 4] of a "prismatic" coordinate along a unit vector, or of another one about it."""
    axis = np.asarray(axis, dtype=float)
    if kind == "prismatic":
        return pose_matrix(value * axis)
    motion = np.eye(4)
    motion[:3, :3] = rotation_about(axis, value)
    return motion


def deviation_matrix(row: Row6) -> np.ndarray:
    """Homogeneous transform [4, 4] of a translation [m] and a rotation vector [rad]."""
    matrix, angle = pose_matrix(row[:3]), float(np.linalg.norm(row[3:]))
    matrix[:3, :3] = rotation_about(np.array(row[3:]) / (angle or 1.0), angle)
    return matrix


def origin_matrix(origin: Origin | Table) -> np.ndarray:
    """Homogeneous transform [4, 4] of an origin, or of an origin's table in a machine file.

    Raises:
        ValidationError: the table is no valid origin.
    """
    valid = origin if isinstance(origin, Origin) else Origin.model_validate(origin)
    return pose_matrix(valid.xyz, valid.rpy)


def origin_table(matrix: np.ndarray) -> dict[str, list[float]]:
    """Table of a machine file for an origin with this homogeneous transform: the inverse of `origin_matrix`."""
    return {"xyz": matrix[:3, 3].tolist(), "rpy": list(roll_pitch_yaw(matrix[:3, :3]))}


LoopType = Literal["revolute", "prismatic", "cylindrical", "spherical", "fixed"]


class Loop(Part):
    """A joint between two frames of the tree, which closes a loop.

    revolute: the origins coincide and the axes are parallel. prismatic: frame_b translates along the axis and does not
    rotate. cylindrical: it translates along the axis and rotates about it. spherical: the origins coincide. fixed: the
    frames coincide.
    """

    name: Name
    """Name of the loop."""
    frame_a: Name
    """First frame."""
    frame_b: Name
    """Second frame."""
    type: LoopType = "revolute"
    """Joint that closes the loop."""
    axis: UnitVector = (0.0, 0.0, 1.0)
    """Unit vector, with these components in both frames [1]."""
    rigid: bool = True
    """`true`: the loop is closed rigidly. `false`: it is closed in postures only; in the linearized equations springs
    connect its frames."""


class Coupling(Part):
    """A coordinate that follows another one: q = ratio q_follows + offset, as a sliding stage on a common belt."""

    coordinate: Name
    """Dependent coordinate."""
    follows: Name
    """Coordinate that it follows, which must not follow another one itself."""
    ratio: Number = 1.0
    """Its rate over that of the followed coordinate [1, m/rad, rad/m]."""
    offset: Number = 0.0
    """Its value if the followed coordinate is 0 [rad, m]."""


class Transmission(Part):
    """A drive with the rate s' = sum_i c_i q_i' of several coordinates, as in a coupled wrist.

    Its effort I s'' + d s' + f sign(s'), times c_i, is added to the effort of each coordinate.
    """

    name: Name
    """Name of the drive."""
    coordinates: Annotated[dict[Name, NonZero], FEW, SOME]
    """Factor c_i by coordinate [1, m/rad, rad/m]."""
    inertia: NonNegative = 0.0
    """I, referred to s [kg m^2, kg]."""
    damping: NonNegative = 0.0
    """d [N m s/rad, N s/m]."""
    friction: NonNegative = 0.0
    """f of Coulomb friction; omitted in the linearized equations [N m, N]."""


class Rayleigh(Part):
    """Rayleigh damping of the linearized equations: C = alpha M + beta K_e is added to the viscous damping matrix."""

    mass: NonNegative = 0.0
    """alpha [1/s]."""
    stiffness: NonNegative = 0.0
    """beta [s]."""


class Fractional(Part):
    """Fractional Kelvin-Voigt damping: the stiffness K_e of springs and beams becomes K_e (1 + (j omega tau)^a)."""

    order: Annotated[Positive, Field(le=1.0)]
    """a; 1 is viscous damping [1]."""
    time: Positive
    """tau [s]."""


FrictionKind = Literal["stribeck", "cubic", "load", "temperature"]
FRICTION_KINDS: dict[str, str] = {
    "stribeck": "stribeck",
    "cubic": "cubic_damping",
    "load": "load_friction",
    "temperature": "damping_slope",
}
"""Family of the coefficient of each kind of friction term; efforts are linear in these coefficients."""
TERMS = tuple(FRICTION_KINDS.values())
"""Those families, in the order of `Model.friction_terms`."""


class FurtherFriction(Part):
    """Friction terms of the effort at speed v, which the linearized equations omit.

    c_s exp(-(v / v_s)^2) sign v + c_3 v^3 + c_l |tau| sign v + c_T (T - T_0) v, tau the effort without friction and T
    the temperature of the drive. A term that is not given has no parameter, unlike one with the coefficient 0.
    """

    stribeck: Number | None = None
    """c_s [N m, N]."""
    stribeck_speed: Positive | None = None
    """v_s, with `stribeck` [rad/s, m/s]."""
    cubic_damping: Number | None = None
    """c_3 [N m s^3/rad^3, N s^3/m^3]."""
    load_friction: Number | None = None
    """c_l [1]."""
    damping_slope: Number | None = None
    """c_T, slope of the viscous damping over temperature, with `temperature` [N m s/(rad K), N s/(m K)]."""
    temperature: Number | None = None
    """T_0, reference temperature of `damping`, which predictions use where no temperature was recorded [of the
    records]."""

    @model_validator(mode="after")
    def _pairs(self) -> Self:
        for term, partner in (("stribeck", "stribeck_speed"), ("damping_slope", "temperature")):
            given = getattr(self, term) is not None, getattr(self, partner) is not None
            if given[0] != given[1]:
                present, missing = (term, partner) if given[0] else (partner, term)
                raise ValueError(f"further_friction has a {present} and no {missing}, expected both or none")
        return self

    @property
    def terms(self) -> tuple[str, ...]:
        """The given terms, in the order of `TERMS`."""
        return tuple(term for term in TERMS if getattr(self, term) is not None)
