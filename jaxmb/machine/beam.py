"""Beams with their sections, flexible links, and virtual springs, lumped elasticities of links and guides."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, model_validator

from jaxmb.io.validation import Table, check_known, error_location, sentence
from jaxmb.machine.elements import (
    Coupling,
    deviation_matrix,
    motion_matrix,
    origin_matrix,
    origin_table,
    pose_matrix,
)
from jaxmb.machine.values import (
    GROUND,
    ROWS,
    Name,
    NonNegative,
    Number,
    Origin,
    Part,
    Positive,
    Row6,
    angle,
    check_turns,
)

EXPECTED = "expected { tube = [outer, inner] } or { box = [width, height] or [width, height, wall] }, in m"


def section_properties(section: Any, young_modulus: Any, shear_modulus: Any) -> dict[str, float]:
    """Section properties by the keys of a beam: area, second moments, torsion constant, shear factors if known.

    Args:
        section: {"tube": [outer, inner]}, diameters, or {"box": [width, height, wall]}, outer sides along y and z, full
            without a wall; m.
        young_modulus: of the beam, Pa, for the shear factors, which are omitted where it is no number.
        shear_modulus: likewise.

    Raises:
        ValueError: the section has another form.

    Source: torsion of a rectangle Timoshenko and Goodier, section 109, of a box Bredt's formula with the torsion of its
    walls added; shear factors Cowper 1966.
    """
    kind, sides = next(iter(section.items())) if isinstance(section, dict) and len(section) == 1 else ("", [])
    numbers = isinstance(sides, list | tuple) and all(
        isinstance(side, int | float) and not isinstance(side, bool) and 0.0 <= side < math.inf for side in sides
    )
    if not numbers or len(sides) not in {"tube": (2,), "box": (2, 3)}.get(kind, ()):
        raise ValueError(f"section is {section!r}, {EXPECTED}")
    try:
        poisson = young_modulus / (2.0 * shear_modulus) - 1.0
    except (TypeError, ZeroDivisionError):
        poisson = math.nan
    outer, inner = (sides[0], sides[1]) if kind == "tube" else (min(sides[:2]), 2.0 * sides[2] if sides[2:] else 0.0)
    if not inner < outer or not all(sides if kind == "box" else sides[:1]):
        raise ValueError(f"section {kind} = {list(sides)} has no area; {EXPECTED}")
    values, shear = _tube(outer, inner, poisson) if kind == "tube" else _box(*sides, poisson=poisson)
    names = ("area", "second_moment_y", "second_moment_z", "torsion_constant")
    properties: dict[str, float] = dict(zip(names, values, strict=True))
    if all(0.0 < factor <= 1.0 for factor in shear):  # the formulas do not hold for every Poisson's ratio
        properties |= {"shear_factor_y": shear[0], "shear_factor_z": shear[1]}
    return properties


Numbers = tuple[tuple[float, float, float, float], tuple[float, float]]


def _tube(outer: float, inner: float, poisson: float) -> Numbers:
    moment = math.pi / 64.0 * (outer**4 - inner**4)
    m, v = (inner / outer) ** 2, poisson
    shear = 6.0 * (1.0 + v) * (1.0 + m) ** 2 / ((7.0 + 6.0 * v) * (1.0 + m) ** 2 + (20.0 + 12.0 * v) * m)
    return (math.pi / 4.0 * (outer**2 - inner**2), moment, moment, 2.0 * moment), (shear, shear)


def _box(width: float, height: float, wall: float = 0.0, *, poisson: float) -> Numbers:
    def moment(b: float, h: float) -> float:
        return b * h**3 / 12.0

    if not wall:
        long, short = max(width, height), min(width, height)
        series = sum(math.tanh(n * math.pi * long / (2.0 * short)) / n**5 for n in range(1, 20, 2))
        torsion = long * short**3 * (1.0 / 3.0 - 64.0 / math.pi**5 * short / long * series)
        numbers = (width * height, moment(width, height), moment(height, width), torsion)
        shear = 10.0 * (1.0 + poisson) / (12.0 + 11.0 * poisson)
        return numbers, (shear, shear)
    b, h, perimeter = width - wall, height - wall, 2.0 * (width + height - 2.0 * wall)
    inner_b, inner_h = width - 2.0 * wall, height - 2.0 * wall
    numbers = (
        width * height - inner_b * inner_h,
        moment(width, height) - moment(inner_b, inner_h),
        moment(height, width) - moment(inner_h, inner_b),
        4.0 * (b * h) ** 2 * wall / perimeter + perimeter * wall**3 / 3.0,
    )
    return numbers, (_shear_of_box(h / b, poisson), _shear_of_box(b / h, poisson))


def _shear_of_box(m: float, v: float) -> float:
    """Shear factor of a thin-walled box, m its side across the force over that along it, v Poisson's ratio."""
    walls = 12.0 + 72.0 * m + 150.0 * m**2 + 90.0 * m**3
    poisson = 11.0 + 66.0 * m + 135.0 * m**2 + 90.0 * m**3
    return 10.0 * (1.0 + v) * (1.0 + 3.0 * m) ** 2 / (walls + v * poisson + 10.0 * m**2 * ((3.0 + v) * m + 3.0 * m**2))


MOST_ELEMENTS = 200
LEAST_MODULUS = 1e6
"""Pa, least plausible Young's modulus (rubber); below it the unit is probably GPa or MPa. A third for shear moduli."""
COMMON_MODULI = 5e8, 1.3e12
"""Pa, Young's moduli of soft plastics and of diamond; beyond these the unit is probably wrong."""
PRINTED = 0.02
"""Relative rounding error of tabulated section properties."""


class Beam(Part):
    """A straight uniform beam along x, SI units. In a file, `section` may replace the section properties."""

    length: Positive
    """Length of the whole beam [m]."""
    young_modulus: Positive
    """Young's modulus [Pa]."""
    shear_modulus: Positive
    """Shear modulus [Pa]."""
    area: Positive
    """Area of the cross-section [m^2]."""
    second_moment_y: Positive
    """Second moment of the cross-section about y: resists deflection along z [m^4]."""
    second_moment_z: Positive
    """Second moment of the cross-section about z: resists deflection along y [m^4]."""
    torsion_constant: Positive
    """Torsion constant of the cross-section [m^4]."""

    @model_validator(mode="before")
    @classmethod
    def _of_section(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "section" not in data:
            return data
        numbers = section_properties(data["section"], data.get("young_modulus"), data.get("shear_modulus"))
        duplicate = [key for key in numbers if key in data and not key.startswith("shear")]
        if duplicate:
            raise ValueError(f"gives section and {duplicate[0]}, expected one of them")
        known = {key: value for key, value in numbers.items() if key in cls.model_fields}
        return known | {key: value for key, value in data.items() if key != "section"}

    @model_validator(mode="after")
    def _check_plausible(self) -> Self:
        messages, (low, high) = list[str](), COMMON_MODULI
        for name, modulus, part in (
            ("young_modulus", self.young_modulus, 1.0),
            ("shear_modulus", self.shear_modulus, 1.0 / 3.0),
        ):
            least = LEAST_MODULUS * part
            if modulus < least:
                raise ValueError(f"{name} is {modulus:g} Pa, expected at least {least:.2g}; is it in GPa or MPa?")
            if not low * part <= modulus <= high * part:
                messages.append(
                    f"{name} is {modulus:.3g} Pa, materials have {low * part:.2g} (soft plastics) to {high * part:.2g}"
                    " Pa (diamond): is it in Pa, and the power of ten right?"
                )
        for message in (*messages, *self._section_warnings()):
            warnings.warn(f"beam '{getattr(self, 'name', 'beam')}': {message}", stacklevel=2)
        return self

    def _section_warnings(self) -> list[str]:
        """Warnings about implausible section properties; a beam of given stiffness and any modulus may have them."""
        moments, least = math.sqrt(self.second_moment_y * self.second_moment_z), self.area**2 / (4.0 * math.pi)
        radius = math.sqrt(max(self.second_moment_y, self.second_moment_z) / self.area)
        polar = self.second_moment_y + self.second_moment_z
        signs = (
            (
                moments < (1.0 - PRINTED) * least,
                f"sqrt(second_moment_y * second_moment_z) is {moments:.3g} m^4, expected at least {least:.3g} m^4,"
                f" the value of a solid ellipse of area {self.area:g} m^2; are all lengths in m?",
            ),
            (
                radius > self.length,
                f"the radius of gyration of its section, sqrt(second moment / area), is {radius:.3g} m,"
                f" expected less than its length of {self.length:g} m; are all lengths in m?",
            ),
            (
                self.torsion_constant > (1.0 + PRINTED) * polar,
                f"torsion_constant is {self.torsion_constant:.3g} m^4, expected at most the sum of the second moments,"
                f" {polar:.3g} m^4, the value of round sections",
            ),
        )
        return [message for is_wrong, message in signs if is_wrong]


class FlexibleBeam(Beam):
    """A flexible link: a beam with mass, clamped to its body at one end, to whose nodes other parts may be attached.

    It is divided into elements of equal length. The frame behind the last element has the beam's name, that at the end
    of element k the name with "/k"; bodies, frames and other beams may name any of them as parent. Undeformed, the beam
    lies along the x axis of `origin`; displacements are small.
    """

    FILE_KEYS: ClassVar[tuple[str, ...]] = ("section", "from", "to", "roll")
    """Keys of a file in place of others."""

    name: Name
    """Name of the beam and of the frame at its end; the ends of earlier elements are `name/1`, `name/2`, ..."""
    body: Name = GROUND
    """Body, or end of a beam or element, at which it begins."""
    origin: Origin = Origin()
    """Start of the beam in the body's frame; it lies along the x axis."""
    elements: Annotated[int, Field(strict=True, ge=1, le=MOST_ELEMENTS)] = 4
    """Number of elements of equal length."""
    density: NonNegative
    """Density [kg/m^3]."""
    theory: Literal["euler-bernoulli", "timoshenko"] = "euler-bernoulli"
    """Timoshenko's theory includes shear deformation and rotary inertia."""
    shear_factor_y: Positive = 5.0 / 6.0
    """Effective shear area over the area for a shear force along y; Timoshenko's theory only [1]."""
    shear_factor_z: Positive = 5.0 / 6.0
    """The same for a shear force along z [1]."""
    loss_factor: NonNegative = 0.0
    """eta of structural damping [1]."""

    @property
    def shear_flexibility(self) -> tuple[float, float]:
        """1 over the shear factors along y and z; 0 in Euler-Bernoulli's theory."""
        if self.theory == "euler-bernoulli":
            return 0.0, 0.0
        return 1.0 / self.shear_factor_y, 1.0 / self.shear_factor_z

    @property
    def ends(self) -> tuple[str, ...]:
        """Names of the element ends; the last one is the beam's name."""
        return (*(f"{self.name}/{k}" for k in range(1, self.elements)), self.name)


def beam_compliance(beam: Beam) -> np.ndarray:
    """Compliance matrix of a cantilever's end [6, 6] (m/N, rad/N, rad/Nm), in the beam's axes.

    Source: Timoshenko and Goodier, Theory of Elasticity; the template of Klimchik et al. 2014, eq. 13.
    """
    length, young = beam.length, beam.young_modulus
    by, bz = young * beam.second_moment_y, young * beam.second_moment_z
    twist = beam.shear_modulus * beam.torsion_constant
    diagonal = (length / (young * beam.area), length**3 / (3 * bz), length**3 / (3 * by))
    matrix = np.diag([*diagonal, length / twist, length / by, length / bz])
    matrix[1, 5] = matrix[5, 1] = length**2 / (2 * bz)
    matrix[2, 4] = matrix[4, 2] = -(length**2) / (2 * by)
    return matrix


ROUNDING = 1e-6
"""Magnitude up to which a negative eigenvalue of a scaled compliance is attributed to rounding."""


class Guide(Part):
    """A guide of sliding stages, whose overlap changes with the extension.

    A moment on two bearings at the distance o, the overlap, is a pair of forces moment / o; their displacements over o
    are the tilt. So the compliance grows as o^-2 and the tilt from a clearance as o^-1.
    """

    coordinate: Name
    """Prismatic coordinate that extends the stages."""
    overlap_m: Positive
    """Overlap where the coordinate is 0, at which compliance and play are stated [m]."""
    rate: Number = -1.0
    """Change of the overlap over that of the coordinate; negative if extension reduces the overlap [1]."""
    exponent: NonNegative = 2.0
    """p in C (`overlap_m` / overlap)^p; the play grows with p / 2 [1]."""


class VirtualSpring(Part):
    """Elasticity of a link or joint, lumped into a massless spring of six degrees of freedom.

    At the "end" of a body it carries all bodies and frames attached to the body, at its "joint" the body itself.
    Its compliance is given as a matrix, or as the sum of a beam and a diagonal (a link, and the bearing behind it), or
    is 0 until it is identified: in the axes of `origin`, translations (m/N) before rotations (rad/Nm).
    """

    name: Name
    """Name of the spring."""
    body: Name
    """Elastic body; `ground` for an elastic base."""
    at: Literal["end", "joint"] = "end"
    """`"end"`: the spring carries all bodies and frames attached to the body; `"joint"`: the body itself."""
    origin: Origin = Origin()
    """Pose in the body's frame; its axes are those of the compliance, and a beam lies along x."""
    compliance: Annotated[tuple[Row6, Row6, Row6, Row6, Row6, Row6] | None, ROWS] = None
    """Symmetric 6 x 6 matrix, translations x, y, z before rotations; by default 0 [m/N, rad/N, rad/(N m)]."""
    diagonal: Row6 | None = None
    """In place of `compliance`: its diagonal. It adds to a `beam`, as a bearing to a link [m/N, rad/(N m)]."""
    beam: Beam | None = None
    """In place of `compliance`: that of a straight beam clamped at its root."""
    guide: Guide | None = None
    """Sliding stages whose overlap scales compliance and play."""
    play: Annotated[
        tuple[NonNegative, NonNegative, NonNegative, NonNegative, NonNegative, NonNegative] | None, ROWS
    ] = None
    """Displacement to either side within a clearance, in addition to the elastic one: `play` tanh(load / `play_load`)
    [m, rad]."""
    play_load: Annotated[tuple[Positive, Positive, Positive, Positive, Positive, Positive] | None, ROWS] = None
    """Load at which 76 % of each play is taken up [N, N m]."""

    @property
    def matrix(self) -> np.ndarray:
        """Compliance [6, 6]."""
        if self.compliance is not None:
            return np.array(self.compliance)
        beam = np.zeros((6, 6)) if self.beam is None else beam_compliance(self.beam)
        return beam + np.diag(self.diagonal or (0.0,) * 6)

    @model_validator(mode="after")
    def _physical(self) -> Self:
        parts = [key for key in ("diagonal", "beam") if getattr(self, key) is not None]
        if self.compliance is not None and parts:
            raise ValueError(f"gives both compliance and {parts[0]}, expected one of them")
        matrix = self.matrix
        if np.abs(matrix - matrix.T).max() > 1e-9 * np.abs(matrix).max():
            raise ValueError("compliance is not symmetric")
        if np.diagonal(matrix).min() < 0.0:
            raise ValueError(f"compliance has {np.diagonal(matrix).min():g} on its diagonal, expected none below 0")
        if least_scaled_eigenvalue(matrix) < -ROUNDING:
            raise ValueError("compliance is not positive semi-definite: some load would deflect against its direction")
        if self.at == "joint" and self.body == GROUND:
            raise ValueError("at is 'joint', but the ground has none: expected 'end'")
        if (self.play is None) is not (self.play_load is None):
            raise ValueError("gives one of play and play_load, expected both or none")
        return self


def least_scaled_eigenvalue(matrix: np.ndarray) -> float:
    """Least eigenvalue of a symmetric matrix scaled to a unit diagonal.

    The scaling makes it independent of units and does not change its sign. A row with a zero on the diagonal is scaled
    by its largest coupling, since any coupling makes the matrix indefinite.
    """
    size = np.sqrt(np.abs(np.diagonal(matrix)))
    size = np.where(size > 0.0, size, np.sqrt(np.abs(matrix).max(axis=1)))
    size = np.where(size > 0.0, size, 1.0)
    return float(np.linalg.eigvalsh(matrix / np.outer(size, size))[0])


PARALLEL = 1e-6
"""Sine of the angle between a beam and the z axis of its frame, below which the x axis is the reference direction."""


BETWEEN = {"from", "to", "roll"}
"""Keys of a beam between two frames."""


def expand_beams(data: Table, classes: Mapping[str, type[Part]]) -> Table:
    """Contents of a machine file with `from` and `to` of beams replaced by body, origin and length.

    A beam begins at the frame `from` and ends at the frame `to` in the reference posture, clamped to both, or at the
    point `to = [x, y, z]` in the axes of `from`, free. Its z axis lies in the plane of the beam and the z axis of
    `from`, turned by `roll` about the beam.

    Args:
        data: contents of the file.
        classes: of its bodies and frames, by key.

    Raises:
        ValueError: a beam has one of the two keys only, or also body, origin or length; a frame does not exist, or
            depends on the beam itself; both ends coincide; a body or frame is invalid.
    """
    beams = data.get("beam", ())
    if not isinstance(beams, list | tuple) or not any(isinstance(b, dict) and BETWEEN & b.keys() for b in beams):
        return data
    try:
        return data | _expanded(data, beams, classes)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(
            f"the ends of beams with from and to cannot be computed, an entry has another form than expected: {error}"
        ) from None


def _expanded(data: Table, beams: Sequence[Any], classes: Mapping[str, type[Part]]) -> Table:
    reference = _ReferencePoses(data, classes)
    written, frames, loops = [], [], []
    for beam in beams:
        if not (isinstance(beam, dict) and BETWEEN & beam.keys()):
            written.append(beam)
            continue
        name, to = beam.get("name"), beam.get("to")
        carrier, start, length = reference.beam(beam)
        kept = {key: value for key, value in beam.items() if key not in BETWEEN}
        written.append(kept | {"body": carrier, "origin": origin_table(start), "length": length})
        if isinstance(to, str):
            carrier, _ = reference.on_carrier(to, f"beam '{name}': to")
            end = np.linalg.inv(reference.pose(carrier)) @ reference.pose(str(name))
            frames.append({"name": f"{name}/to", "body": carrier, "origin": origin_table(end)})
            loops.append({"name": name, "frame_a": f"{name}/to", "frame_b": name, "type": "fixed"})
    return {
        "beam": written,
        "frame": [*data.get("frame", ()), *frames],
        "loop": [*data.get("loop", ()), *loops],
    }


def _valid(label: str, part: Any, cls: type[Part]) -> Any:
    """A part of the file, validated."""
    try:
        return cls.model_validate(part)
    except ValidationError as error:
        separator = ", " if error.errors()[0]["loc"] else ": "
        raise ValueError(f"{label}{separator}{sentence(error, part, cls)}") from None


class _ReferencePoses:
    """Poses of the frames of a machine file in its reference posture; loops are not closed."""

    def __init__(self, data: Table, classes: Mapping[str, type[Part]]) -> None:
        self.parts: dict[str, tuple[str, Any]] = {GROUND: (GROUND, None)}
        for kind, cls in classes.items():
            for part in data.get(kind, ()):
                valid = _valid(f"{kind} '{part.get('name')}'" if isinstance(part, dict) else kind, part, cls)
                self.parts[valid.name] = (kind, valid)
        for part in data["beam"]:
            part = part if isinstance(part, dict) else part.model_dump()
            name = str(part.get("name"))
            self.parts[name] = ("beam", part)
            self.parts |= {f"{name}/{k}": ("end", (part, k)) for k in range(1, part.get("elements", 4))}
        self.posture = dict(data.get("posture", {}))
        for part in data.get("coupling", ()):
            one = _valid("coupling", part, Coupling)
            self.posture.setdefault(one.coordinate, one.ratio * self._reading(one.follows) + one.offset)
        self.poses: dict[str, np.ndarray] = {GROUND: np.eye(4)}
        self.in_progress: set[str] = set()

    def pose(self, name: str) -> np.ndarray:
        """Pose of a frame in the ground frame [4, 4]."""
        check_known("frame", [name], self.parts)
        if name in self.in_progress:
            raise ValueError(f"the pose of '{name}' depends on itself, through beams from or to it")
        if name not in self.poses:
            self.in_progress.add(name)
            self.poses[name] = self._pose(*self.parts[name])
            self.in_progress.remove(name)
        return self.poses[name]

    def _pose(self, kind: str, part: Any) -> np.ndarray:
        if kind in ("beam", "end"):
            beam, number = part if kind == "end" else (part, part.get("elements", 4))
            carrier, start, length = self.beam(beam)
            return self.pose(carrier) @ start @ pose_matrix([length * number / beam.get("elements", 4), 0.0, 0.0])
        pose = self.pose(part.parent if kind == "body" else part.body) @ origin_matrix(part.origin)
        for joint in part.joint if kind == "body" else ():
            value = joint.zero + joint.reading_scale * self._reading(joint.name)
            pose = pose @ deviation_matrix(joint.origin_deviation) @ motion_matrix(joint.type, joint.axis, value)
        return pose

    def _reading(self, coordinate: str) -> float:
        with error_location(f"posture: {coordinate}"):
            return angle(self.posture.get(coordinate, 0.0))

    def on_carrier(self, name: str, label: str) -> tuple[str, np.ndarray]:
        """Body, ground or element end that carries a frame, and the frame's pose relative to it [4, 4]."""
        check_known(f"{label}: frame", [name], self.parts)
        kind, part = self.parts[name]
        return (part.body, origin_matrix(part.origin)) if kind == "frame" else (name, np.eye(4))

    def beam(self, beam: Table) -> tuple[str, np.ndarray, float]:
        """Carrier of a beam, the pose of the beam's start relative to it [4, 4], and the beam's length [m]."""
        name, to = f"beam '{beam.get('name')}'", beam.get("to")
        if not BETWEEN & beam.keys():
            origin = _valid(f"{name}, origin", beam.get("origin", {}), Origin)
            return beam.get("body", GROUND), origin_matrix(origin), beam["length"]
        if not {"from", "to"} & beam.keys():
            raise ValueError(
                f"{name}: roll turns a beam that has from and to, expected both beside it, or rpy in origin instead"
            )
        extra = {"body", "origin", "length"} & beam.keys()
        if extra or not {"from", "to"} <= beam.keys():
            raise ValueError(f"{name}: has {', '.join(sorted(extra)) or 'from or to alone'}, expected both from and to"
                             " in place of body, origin and length")  # fmt: skip
        carrier, pose = self.on_carrier(beam["from"], f"{name}: from")
        if isinstance(to, str):
            self.on_carrier(to, f"{name}: to")
            start = self.pose(carrier) @ pose
            span = start[:3, :3].T @ (self.pose(to)[:3, 3] - start[:3, 3])
        else:
            if not (isinstance(to, list | tuple) and len(to) == 3 and all(isinstance(x, int | float) for x in to)):
                raise ValueError(f"{name}: to: found {to!r}, expected the name of a frame or a point [x, y, z] in m")
            span = np.array(to, float)
        length = float(np.linalg.norm(span))
        if not length > 0.0:
            raise ValueError(f"{name}: from and to coincide, expected a length above 0")
        x, up = span / length, np.array([0.0, 0.0, 1.0])
        if np.linalg.norm(np.cross(x, up)) < PARALLEL:
            up = np.array([1.0, 0.0, 0.0])
        y = np.cross(up, x) / np.linalg.norm(np.cross(up, x))
        rotation = np.eye(4)
        with error_location(f"{name}: roll"):
            roll = angle(beam.get("roll", 0.0))
        check_turns(f"{name}: roll", roll)
        rotation[:3, :3] = np.stack([x, y, np.cross(x, y)], axis=1)
        return carrier, pose @ rotation @ motion_matrix("revolute", (1.0, 0.0, 0.0), roll), length
