"""Families of parameters: a row for each, with its entry in a `Model` and in a machine file, and its properties."""

from typing import Literal, NamedTuple

Owner = Literal[
    "coordinate", "joint", "frame", "spring", "transmission", "beam", "body", "virtual spring", "machine", "channel",
    "drive", "station",
]  # fmt: skip

OUTSIDE = ("channel", "drive", "station")
"""Owners that are not part of the machine."""
Matrix = Literal["", "mass", "damping", "stiffness"]


class Family(NamedTuple):
    """Parameters NAME.OWNER (and axes) of one kind."""

    name: str
    owner: Owner
    """Kind of element with such a parameter: its key in a machine file, and without
    the plural s that of its names in a `Model`, apart from coordinates, frames and masses of bodies."""
    leaf: str = ""
    """Array of `Model` that holds them."""
    units: tuple[str, ...] = ("1",)
    """SI unit; of translation and of rotation where there are two."""
    not_negative: bool = False
    logarithmic: bool = False
    """Whether the logarithm is fitted where a study does not say."""
    matrix: Matrix = ""
    """Matrix of the linearized equations that it determines, apart from the gravity stiffness; empty for none."""
    affine: bool = False
    """Whether the tangent at a fixed posture is affine in it, all others as they are. One that multiplies another in
    the tangent is listed in `PRODUCTS` of `jaxmb.identify.experiments.vibration_view`."""
    loss: bool = False
    """Whether it multiplies the stiffness of its owner to structural damping."""
    torque: bool = False
    """Whether the torque of a rigid machine is linear in it, so that the torque regressor has its columns; torque tests
    omit the effect of all others. Those without a matrix are friction (`OF_FRICTION`)."""
    key: str = ""
    """Key of the owner in a machine file; empty where the value is not written back unchanged."""
    tolerance: str = ""
    """Key of a study's `[tolerances]` with its relative standard deviation where it is not free; empty for none.
    Bodies have their own."""


_STIFFNESS, _DAMPING = ("N/m", "N m/rad"), ("N s/m", "N m s/rad")
_POSE = ("m", "rad")
_INERTIA, _FORCE = ("kg", "kg m^2"), ("N", "N m")


def _size(
    name: str, owner: Owner, leaf: str, units: tuple[str, ...], matrix: Matrix = "", torque: bool = True, key: str = "",
    tolerance: str = "",
) -> Family:  # fmt: skip
    return Family(name, owner, leaf, units, True, False, matrix, True, False, torque, key, tolerance)


def _coefficient(
    name: str, owner: Owner, leaf: str, units: tuple[str, ...], matrix: Matrix, torque: bool = True, key: str = "",
    tolerance: str = "",
) -> Family:  # fmt: skip
    return _size(name, owner, leaf, units, matrix, torque, key, tolerance)._replace(logarithmic=True)


def _loss_factor(owner: Owner, leaf: str) -> Family:
    return Family("loss_factor", owner, leaf, not_negative=True, logarithmic=True, matrix="damping", loss=True,
                  key="loss_factor", tolerance="damping_percent")  # fmt: skip


FAMILIES = (
    _coefficient("stiffness", "coordinate", "stiffness", _STIFFNESS, "stiffness", key="stiffness",
                 tolerance="stiffness_percent"),
    _coefficient("stiffness", "spring", "spring_stiffness", _STIFFNESS, "stiffness", key="stiffness",
                 tolerance="stiffness_percent"),
    _coefficient("damping", "coordinate", "damping", _DAMPING, "damping", key="damping", tolerance="damping_percent"),
    _coefficient("damping", "spring", "spring_damping", _DAMPING, "damping", key="damping",
                 tolerance="damping_percent"),
    _loss_factor("coordinate", "loss_factor"),
    _loss_factor("spring", "spring_loss_factor"),
    _size("stiffness_slope", "coordinate", "stiffness_slope", ("1/N", "1/(N m)"), torque=False),
    _size("rotor_inertia", "coordinate", "rotor_inertia", _INERTIA, "mass", key="rotor_inertia",
          tolerance="rotor_inertia_percent"),
    _size("friction", "coordinate", "friction", _FORCE, key="friction"),
    Family("offset", "coordinate", "offset", _FORCE, affine=True, torque=True, key="offset"),
    Family("stribeck", "coordinate", "friction_terms", _FORCE, affine=True, torque=True),
    Family("cubic_damping", "coordinate", "friction_terms", ("N s^3/m^3", "N m s^3/rad^3"), affine=True, torque=True),
    Family("load_friction", "coordinate", "friction_terms", affine=True, torque=True),
    Family("damping_slope", "coordinate", "friction_terms", ("N s/(m K)", "N m s/(rad K)"), affine=True, torque=True),
    _size("stribeck_speed", "coordinate", "stribeck_speed", ("m/s", "rad/s"), torque=False),
    _size("rotor_inertia", "transmission", "transmission_inertia", _INERTIA, "mass", key="inertia",
          tolerance="rotor_inertia_percent"),
    _coefficient("damping", "transmission", "transmission_damping", _DAMPING, "damping", key="damping",
                 tolerance="damping_percent"),
    _size("friction", "transmission", "transmission_friction", _FORCE, key="friction"),
    Family("free_length", "spring", "spring_free_length", ("m",), not_negative=True),
    _coefficient("young_modulus", "beam", "young_modulus", ("Pa",), "stiffness", False, "young_modulus",
                 "modulus_percent"),
    _coefficient("shear_modulus", "beam", "shear_modulus", ("Pa",), "stiffness", False, "shear_modulus",
                 "modulus_percent"),
    _size("density", "beam", "density", ("kg/m^3",), "mass", key="density", tolerance="mass_percent"),
    _loss_factor("beam", "beam_loss_factor"),
    _size("mass", "body", "mass", ("kg",), "mass"),
    Family("first_moment", "body", "first_moment", ("kg m",), matrix="mass", affine=True, torque=True),
    Family("inertia", "body", "inertia", ("kg m^2",), matrix="mass", affine=True, torque=True),
    Family("origin", "joint", "origin_deviation", _POSE, key="origin_deviation"),
    Family("zero", "joint", "zero", _POSE, key="zero"),
    Family("reading_scale", "joint", "reading_scale", key="reading_scale"),
    Family("frame", "frame", "frame_deviation", _POSE, key="deviation"),
    Family("compliance", "virtual spring", "compliance", ("m/N", "rad/N", "rad/(N m)")),
    Family("guide_exponent", "virtual spring", "guide_exponent", not_negative=True),
    Family("play", "virtual spring", "play", _POSE, not_negative=True),
    Family("play_load", "virtual spring", "play_load", _FORCE, not_negative=True, logarithmic=True),
    _coefficient("rayleigh", "machine", "rayleigh", ("1/s", "s"), "damping", torque=False),
    Family("fractional", "machine", "fractional", ("1", "s"), not_negative=True, logarithmic=True, matrix="damping"),
    Family("gain", "channel", not_negative=True, logarithmic=True),
    Family("force_gain", "channel", not_negative=True, logarithmic=True),
    Family("delay", "channel", units=("s",)),
    Family("drive_gain", "drive", units=("N m",)),
    Family("station", "station", units=_POSE),
    Family("distance_offset", "station", units=("m",)),
)  # fmt: skip
"""All families; a parameter of a machine has the first row of its name and owner."""

NOT_NEGATIVE = frozenset(family.name for family in FAMILIES if family.not_negative)
LOGARITHMIC = frozenset(family.name for family in FAMILIES if family.logarithmic)
OF_BODIES = tuple(family.name for family in FAMILIES if family.owner == "body" and family.matrix == "mass")
"""Mass, first moment and inertia."""
OF_TORQUE = frozenset(family.name for family in FAMILIES if family.torque)
OF_FRICTION = frozenset(family.name for family in FAMILIES if family.torque and family.matrix in ("", "damping"))
"""Families of friction and damping, which do not load a gear."""
OF_GEOMETRY = ("origin", "zero", "reading_scale", "frame")
"""Deviations from the stated geometry. The others are effects at that geometry."""
STATION = "station"
"""Family of the poses of measuring devices."""
DISTANCE_OFFSET = "distance_offset"
"""Family of the offsets of their distances."""
OF_DAMPING = tuple(dict.fromkeys(family.name for family in FAMILIES if family.matrix == "damping"))
"""Families that dissipate energy of small vibrations."""
OF_CHANNELS = frozenset(family.name for family in FAMILIES if family.owner == "channel")
OF_TESTS = frozenset(family.name for family in FAMILIES if family.owner in ("channel", "station"))
"""Families whose parameters are named by a test and hold for it alone; a gain of a drive holds for all."""


def keys_of(owner: str) -> dict[str, str]:
    """Array of the model by key of the machine file, for values that are written back unchanged."""
    return {family.key: family.leaf for family in FAMILIES if family.owner == owner and family.key}


def leaves_of(family: Family) -> tuple[str, ...]:
    """Arrays of `Model` that hold a family; Rayleigh and fractional damping have one for each of their numbers."""
    numbers = {"rayleigh": ("mass", "stiffness"), "fractional": ("order", "time")}.get(family.name, ())
    return tuple(f"{family.name}_{number}" for number in numbers) or (family.leaf,)
