"""Tolerances of the stated numbers of machines and tests, and standard deviations of instruments, without JAX."""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Float
from pydantic import Field

from jaxmb.machine.values import NonNegative, Part, Positive


class Tolerances(Part):
    """Standard deviations of the stated numbers of a machine and its tests, normally distributed and independent of
    each other.

    The defaults are usual in the field: calibration sheets of sensors, mastering of joints, CAD masses. 0: exact.
    """

    mass_percent: NonNegative = 3.0
    """Mass of each body and payload, with its first moment and inertia in proportion; density of beams."""
    center_of_mass_mm: NonNegative = 5.0
    """Each component of the centre of mass of each body and payload."""
    inertia_percent: NonNegative = 10.0
    """Each moment of inertia."""
    rotor_inertia_percent: NonNegative = 5.0
    """Rotor inertia of each coordinate, inertia of each transmission."""
    stiffness_percent: NonNegative = 10.0
    """Each stiffness that is stated and not free, of coordinates and springs between frames."""
    damping_percent: NonNegative = 30.0
    """Each damping and loss factor that is stated and not free."""
    modulus_percent: NonNegative = 3.0
    """Each modulus of a beam that is not free."""
    frame_mm: NonNegative = 1.0
    """Each component of the position of a frame that tests use, such as the tool point, common to all tests."""
    frame_deg: NonNegative = 0.1
    """Rotation of a frame whose rotation or inclination pose tests measure, about each of its axes."""
    origin_mm: NonNegative = 0.2
    """Position of the axis of each coordinate relative to the one before, along two directions across it, of machined
    links; position of each frame that closes a loop; in open chains length of each beam. Not in torque tests."""
    origin_deg: NonNegative = 0.02
    """Direction of the axis of each coordinate relative to the one before, about two directions across it. Not in
    torque tests."""
    tilt_deg: NonNegative = 0.2
    """Direction of gravity, about each of two axes across it."""
    foundation_um_per_kn: NonNegative = 0.0
    """Compliance of the machine's base along each axis of the ground [um/kN]."""
    foundation_urad_per_knm: NonNegative = 0.0
    """Rotational compliance of the machine's base about each axis of the ground [urad/(kN m)]."""
    joint_zero_deg: NonNegative = 0.05
    """Zero of each revolute coordinate, common to all tests."""
    joint_zero_mm: NonNegative = 0.2
    """Zero of each prismatic coordinate, common to all tests."""
    gear_ratio_percent: NonNegative = 0.01
    """Change of the actual value of each coordinate over that of its reading, in pose and torque tests: a gear ratio,
    the pitch of a screw, an encoder."""
    posture_deg: NonNegative = 0.02
    """Each revolute coordinate in the posture of each FRF or modal test."""
    posture_mm: NonNegative = 0.1
    """Each prismatic coordinate in the posture of each FRF or modal test."""
    sensor_direction_deg: NonNegative = 1.0
    """Direction of each sensor of FRFs and mode shapes, and of each input force, about each axis across it."""
    sensor_position_mm: NonNegative = 2.0
    """Position of each sensor of FRFs and mode shapes, and of each input force, along each axis across it."""
    gain_percent: NonNegative = 1.0
    """Sensitivity of each sensor of FRFs and mode shapes, and of each force transducer, common to all tests."""
    delay_us: NonNegative = 10.0
    """Delay of the responses relative to the forces."""
    time_base_ppm: NonNegative = 20.0
    """Frequency axis of FRFs and modes."""
    load_percent: NonNegative = 0.5
    """Size of the loads of a deflection test, common to its load cases."""
    load_direction_deg: NonNegative = 0.3
    """Direction of the loads of a deflection test, about each axis of the ground, common to its load cases."""
    load_lever_mm: NonNegative = 2.0
    """Point of application of the loads of a deflection test, along each axis of the loaded frame, common to its load
    cases."""
    device_scale_ppm: NonNegative = 5.0
    """Scale of the positions and distances of a pose test, of the distance meter of a laser tracker; cameras and draw
    wires have 50 and more."""
    distance_offset_mm: NonNegative = 0.02
    """Offset of the distances of a pose test, such as the prism constant or the length of a draw wire at its zero."""
    torque_percent: NonNegative = 2.0
    """Torque constant of each drive, common to all torque tests."""
    torque_delay_ms: NonNegative = 0.1
    """Delay of the torques relative to the angles."""


class StatedError(NamedTuple):
    """A possible error of a description: a number, 0 if it is correct.

    Those with a tolerance are propagated to the standard deviations; all of them are hypotheses where the model does
    not reproduce the data.
    """

    key: str
    """Errors of equal keys are one error, which several tests share."""
    tolerance: str = ""
    """Field of `Tolerances`; empty for an error without tolerance."""
    unit: float = 1.0
    """Size of the error for a tolerance of 1, SI."""
    size: float = 0.0
    """Typical size, SI, of an error without tolerance, or far larger than it; 0: that of the default tolerance."""
    text: Callable[[float], str] | None = None
    """Text of an error of a size, SI; None for `key` with its size in the unit of the tolerance."""
    least: float = -math.inf
    """Lower bound, SI; at least minus the upper one, or minus half a turn, 1 m, or four times the stated number."""
    most: float | None = None
    """Upper bound, SI; None for half a turn, 1 m, or four times the stated number."""
    starts: tuple[float, ...] = ()
    """Further starting values of a fit, for errors outside the convergence region around 0, and for those that have the
    effect of another error while they are small."""
    parameter: str = ""
    """Parameter that a study may free in its place; empty for none."""
    of_factor: bool = False
    """Whether it is the change of a factor of 1."""
    period: float = 0.0
    """Size, SI, whose multiples are no large errors, such as a reversed sign; 0 for none."""
    step: float = 0.0
    """Step of its derivatives, SI, where its effect has kinks; 0 for a small one."""

    def std(self, tolerances: Tolerances | None) -> float:
        """Standard deviation, SI; 0 without tolerance."""
        return (
            self.unit * float(getattr(tolerances, self.tolerance)) if self.tolerance and tolerances is not None else 0.0
        )

    @property
    def typical(self) -> float:
        """Typical size, SI."""
        return self.size or self.unit * float(getattr(Tolerances(), self.tolerance))

    @property
    def bounds(self) -> tuple[float, float]:
        """Sizes between which an error is plausible, SI."""
        unit = self.tolerance.split("_")[-1]
        default = {"deg": math.pi, "mm": 1.0, "percent": 300.0 * self.unit}.get(unit, 0.0)
        most = (default or math.inf) if self.most is None else self.most
        least = -max(most, default) if default or math.isinf(self.least) else self.least
        return max(self.least, least), most

    def is_plausible(self, value: float) -> bool:
        """Whether an error of a size, SI, is plausible: it is no bound, and a zero or axis of the machine is off by at
        most 45 deg, or by multiples of 90 deg where its convention differs."""
        if any(abs(value - bound) <= 1e-6 * abs(bound) for bound in self.bounds if math.isfinite(bound)):
            return False
        rest = self.beside_convention(value)
        return rest == value or abs(rest) < math.radians(2.0)

    def surprise(self, value: float) -> float:
        """An error of a size, SI, over the typical one; of a factor by its logarithm, so that a factor and its inverse
        are equally likely, and a reversed sign is no large error; of a zero or axis less multiples of 90 deg."""
        if self.of_factor:
            value = math.log(max(abs(1.0 + value), 1e-300))
        return abs(self.beside_convention(value)) / self.typical

    def beside_convention(self, value: float) -> float:
        """A size, SI, less multiples of 90 deg of a zero or axis, or of its period, where its convention may differ."""
        turns = self.tolerance in ("joint_zero_deg", "origin_deg", "frame_deg", "tilt_deg")
        period = 0.5 * math.pi if turns else self.period
        return math.remainder(value, period) if period else value

    def described(self, value: float) -> str:
        """Text of an error of a size, SI, true minus stated."""
        if self.text is not None:
            return self.text(value)
        unit = self.tolerance.split("_")[-1]
        return f"{self.key} {value / self.unit:+.3g} {'%' if unit == 'percent' else unit} from the stated one"


def error_with_text(key: str, text: Callable[..., str], *what: Any, **fields: Any) -> StatedError:
    """An error whose text is a function of some names or numbers, then of its size, SI.

    Args:
        key: of the error.
        text: the function.
        what: its first arguments.
        fields: further fields of the error.
    """
    return StatedError(key, text=functools.partial(text, *what), **fields)


def posture_text(coordinate: str, test: str, revolute: bool, value: float) -> str:
    """Text of an error of a coordinate in the posture of a test."""
    amount = f"{math.degrees(value):+.3g} deg" if revolute else f"{1e3 * value:+.3g} mm"
    return f"{amount} of {coordinate} in the posture of {test}"


USUAL_FACTORS = {
    9.80665: "9.81: kilograms and newtons, or g and m/s^2",
    1000.0: "1000: millimetres and metres, or another prefix",
    25.4: "25.4: inches and millimetres",
    2.0 * math.pi: "2 pi: Hz and rad/s",
    180.0 / math.pi: "180 / pi: degrees and radians",
    4.4482216: "4.448: pounds and newtons",
    100.0: "100: percent",
    2.0: "2: half and whole range",
    math.sqrt(2.0): "sqrt 2: amplitude and root mean square",
}
"""Usual wrong factors; also their reciprocals."""
NEAR = 0.01
"""Relative difference from a usual factor up to which it is named."""


def usual(factor: float, near: float = NEAR) -> str:
    """Meaning of a factor in brackets, with a leading space; empty where it has none.

    Args:
        factor: the factor.
        near: relative difference from a usual one up to which it has its meaning.
    """
    size = max(abs(factor), 1.0 / max(abs(factor), 1e-300))
    found = ["sign reversed"] if factor < 0.0 else []
    found += [text for value, text in USUAL_FACTORS.items() if abs(size / value - 1.0) < near][:1]
    return f" ({', '.join(found)})" if found else ""


def factor_number(factor: float) -> str:
    """A factor with three digits, near 1 with as many as show its difference from 1, at most six."""
    difference = abs(factor - 1.0)
    digits = 3 if difference == 0.0 else min(max(3, 1 - math.floor(math.log10(difference))), 6)
    return f"{factor:.{digits}g}"


def times_text(what: str, value: float) -> str:
    """Text of a factor on frequencies, from the logarithm of true over stated ones."""
    return f"{what} {math.exp(value):.4g} times as high{usual(math.exp(value))}"


def factor_text(what: str, value: float) -> str:
    """Text of a factor with which a quantity is to be multiplied, from the logarithm of measured over true value."""
    return f"a factor of {factor_number(math.exp(-value))} on {what}{usual(math.exp(-value))}"


_CIRCLE = math.log(2.0 * math.pi)
TIME_BASE = error_with_text(
    "time base", times_text, "frequencies", tolerance="time_base_ppm", unit=1e-6, starts=(_CIRCLE, -_CIRCLE)
)
"""Error of the time base, common to all tests with frequencies."""


LEAST_SCALE = 0.1
"""Least plausible true over stated gear ratio; a reversed one is an alternative."""
MOST_GAIN = 10.0
"""Logarithm of the largest plausible factor on a channel: units may differ by thousands."""


def joint_tolerance(what: str, revolute: bool) -> tuple[str, float]:
    """Tolerance of a coordinate, such as `posture_deg` or `posture_mm`, and its unit, rad or m."""
    return (f"{what}_deg", math.pi / 180.0) if revolute else (f"{what}_mm", 1e-3)


def zero_error(coordinate: str, revolute: bool) -> StatedError:
    """Error of the zero of a coordinate, common to all tests."""
    return StatedError(
        f"zero of {coordinate}", *joint_tolerance("joint_zero", revolute), parameter=f"zero.{coordinate}"
    )


def scale_error(coordinate: str) -> StatedError:
    """Relative error of the change of a coordinate over that of its reading, common to all tests."""
    return StatedError(
        f"gear ratio of {coordinate}", "gear_ratio_percent", 0.01, parameter=f"reading_scale.{coordinate}",
        least=LEAST_SCALE - 1.0,
    )  # fmt: skip


MOST_DRAWS = 100_000


class Instruments(Part):
    """Standard deviations of the normally distributed errors of the instruments."""

    tracker_mm: Positive
    """Standard deviation of each component of a measured position, of a tracker or a dial gauge; a displacement is the
    difference of two."""
    reflectors_m: Positive = 0.2
    """Distance of the reflectors from the point. The error of a rotation is that of a translation over this
    distance."""
    balance_kg: NonNegative = 0.0
    """Standard deviation of the size of the load."""
    direction_deg: NonNegative = 0.0
    """Standard deviation of the direction of the force, about each axis; the moment turns with it."""
    lever_mm: NonNegative = 0.0
    """Standard deviation of each component of the point of application of the force."""
    encoder_deg: NonNegative = 0.0
    """Standard deviation of each revolute coordinate; the same error without and with the load."""
    repeat_deg: NonNegative = 0.0
    """Standard deviation of each revolute coordinate at each reading, with independent errors without and with the
    load: the drives approach the posture again, and the points move."""
    draws: Annotated[int, Field(ge=0, le=MOST_DRAWS, strict=True)] = 0
    """Number of Monte-Carlo draws of all these errors (`metrics.table2`, with `[complete]` `metrics.monte_carlo`)."""

    def with_scatter(self, kind: int, factor: float) -> "Instruments":
        """The instruments with the errors of measured translations (0) or rotations (1) scaled."""
        both = {"tracker_mm": factor * self.tracker_mm, "reflectors_m": factor * self.reflectors_m}
        return self.model_copy(update={"reflectors_m": self.reflectors_m / factor} if kind == 1 else both)

    @property
    def translation_std(self) -> float:
        """Standard deviation of each component of a displacement, m."""
        return math.sqrt(2.0) * 1e-3 * self.tracker_mm

    @property
    def rotation_std(self) -> float:
        """Standard deviation of each component of a rotation, rad."""
        return self.translation_std / self.reflectors_m

    def case_std(self, revolute: Sequence[bool]) -> Float[np.ndarray, "k"]:
        """Standard deviations of load and posture [7 + n]: of the size of the force, N, its direction about each ground
        axis, rad, its point of application along each, m, and of each coordinate, rad; prismatic ones have no error."""
        direction, lever = math.radians(self.direction_deg), 1e-3 * self.lever_mm
        coordinates = math.radians(self.encoder_deg) * np.array(revolute)
        return np.array([9.80665 * self.balance_kg, *[direction] * 3, *[lever] * 3, *coordinates])

    @property
    def changes_cases(self) -> bool:
        """Whether loads or postures have errors, so that the true ones differ from those stated."""
        return self.balance_kg + self.direction_deg + self.lever_mm + self.encoder_deg > 0.0

    @property
    def repeat_std(self) -> float:
        """Standard deviation of the change of a coordinate between two readings, rad."""
        return math.sqrt(2.0) * math.radians(self.repeat_deg)
