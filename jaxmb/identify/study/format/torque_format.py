"""Schema of torque tests in a study file."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from jaxmb.identify.study.format.test_format import RecordedTestPart, Simulation
from jaxmb.io.validation import check_distinct
from jaxmb.machine.elements import FrictionKind
from jaxmb.machine.values import Name, NonNegative, Number, Part, Positive
from jaxmb.measurement.motion.record import MOST_SAMPLES, Side


class MotionPart(Part):
    """Motion of a coordinate from its posture: speed t + sum of a_k sin(2 pi k f t) + b_k (cos(2 pi k f t) - 1)."""

    speed: Number = 0.0
    """Constant part of the velocity [rad/s, m/s]."""
    sine: tuple[Number, ...] = ()
    """Coefficients a_k of sin(2 pi k f t) [rad, m]."""
    cosine: tuple[Number, ...] = ()
    """Coefficients b_k of cos(2 pi k f t) - 1 [rad, m]."""


class Kalman(Part):
    """Kalman smoother of the motion from all recorded sensors; see `kalman_motion`."""

    position_std: Positive | dict[Name, Positive]
    """Standard deviation of each sample of a position, one for all recorded coordinates or by coordinate [rad, m]."""
    velocity_std: Positive | dict[Name, Positive] | None = None
    """Standard deviation of each sample of a velocity, where it was measured [rad/s, m/s]."""
    acceleration_std: Positive | dict[Name, Positive] | None = None
    """Standard deviation of each sample of an acceleration, where it was measured [rad/s^2, m/s^2]."""
    jerk_density: Positive | dict[Name, Positive] | None = None
    """Spectral density of the jerk; by default its maximum-likelihood estimate [(rad/s^3)^2 s, (m/s^3)^2 s]."""


class SimulateTorques(Simulation):
    """A simulated motion with the efforts of its drives."""

    duration_s: Positive
    """Length of the record."""
    rate_hz: Positive
    """Samples per second."""
    base_hz: Positive = 0.1
    """Base frequency f of the motion."""
    motion: dict[Name, MotionPart] = Field(min_length=1)
    """Motion of each named coordinate about its value in the posture, with a motor that of the link; the others are at
    rest."""
    angle_std: NonNegative = 0.0
    """Standard deviation of each sample of the coordinates [rad, m]."""
    velocity_std: NonNegative | None = None
    """Standard deviation of each sample of a velocity; without it velocities are not measured [rad/s, m/s]."""
    acceleration_std: NonNegative | None = None
    """Standard deviation of each sample of an acceleration; without it accelerations are not measured [rad/s^2,
    m/s^2]."""
    torque_std: NonNegative | dict[Name, NonNegative] = 0.0
    """Standard deviation of each sample of the efforts, one for all coordinates or by coordinate [N m, N]."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.duration_s * self.rate_hz > MOST_SAMPLES:
            raise ValueError(f"{self.duration_s * self.rate_hz:.0f} samples, expected at most {MOST_SAMPLES}")
        return self


class TorqueTestPart(RecordedTestPart):
    """A motion with the efforts of its drives, from a table or simulated."""

    releases_brakes: ClassVar[bool] = True

    kind: Literal["torque"]
    """Kind of the test."""
    simulate: SimulateTorques | None = None
    """A simulated motion instead of a file."""
    resample_hz: Positive | None = None
    """Sampling rate to which the record is resampled; the time steps of the record may then be uneven. Angles follow by
    a cubic spline, other columns by monotone cubics. A zero-phase low-pass filter at 0.4 of a lower rate precedes. By
    default the record's own rate."""
    cutoff_hz: Positive | tuple[Positive, Positive] | Literal["search"] = "search"
    """Cut-off of the filter of the angles before differentiation, or its pass and stop band. `"search"` selects it, for
    records of more than 100 samples. Held-out tests use the cut-off of the fit."""
    kalman: Kalman | None = None
    """Kalman smoother of all sensors, in place of that filter."""
    effort_cutoff_hz: Positive | tuple[Positive, Positive] | None = None
    """Cut-off, or pass and stop band, of a filter of both sides of the equations; the filtered samples are
    decimated."""
    torque_std: Positive | dict[Name, Positive] | Literal["estimate"] = "estimate"
    """Standard deviation of the filtered efforts, one for all coordinates or by coordinate. `"estimate"`: from the
    residual of a fit of all parameters [N m, N]."""
    least_speed: NonNegative | dict[Name, NonNegative] = 0.0
    """Speed below which samples of a coordinate are excluded (stiction), one for all coordinates or by coordinate
    [rad/s, m/s]."""
    friction_terms: tuple[FrictionKind, ...] = ()
    """Further friction terms, selected by cross-validation on parts of the motion; those that improve the prediction
    become free parameters of the machine in all tests."""
    angles_at: Side | dict[Name, Side] = "motor"
    """Side of the gear on which the angles of joints with a motor were recorded, one for all joints or by joint."""
    gears: Literal["dynamic", "quasi-static"] = "dynamic"
    """`"dynamic"`: links vibrate on the gears of their motors; `"quasi-static"`: the deflection of a gear follows from
    the load at each instant."""
    from_s: NonNegative = 0.0
    """Start of the part of the record that is used, after its first sample."""
    to_s: Positive | None = None
    """End of that part; by default that of the record."""
    without: tuple[Name, ...] = ()
    """Payloads of the machine that were not mounted in this test."""
    robust: Annotated[bool, Field(strict=True)] = False
    """Whether outliers get less weight. One such test is sufficient; only for studies of torque tests alone, without a
    prior."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kalman is not None and self.cutoff_hz != "search":
            raise ValueError("kalman and cutoff_hz are given, expected one of them")
        check_distinct(self.friction_terms, "friction_terms has '{}' twice, expected each kind once")
        if self.friction_terms and self.role == "check":
            raise ValueError(
                "friction_terms are selected from fitted tests, expected none in a test with the role 'check'"
            )
        if self.to_s is not None and self.to_s <= self.from_s:
            raise ValueError(f"from_s is {self.from_s:g} and to_s {self.to_s:g}, expected the first before the last")
        return self
