"""What a study file may say of a torque test: plain validated data, in the terms of the user."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from jaxmb.identify.study.format.test_format import RecordedTestPart, Simulation
from jaxmb.machine.elements import FrictionKind
from jaxmb.machine.values import Name, NonNegative, Number, Part, Positive
from jaxmb.measurement.motion.record import MOST_SAMPLES, Side


class Motion(Part):
    """One coordinate over time: its value in the posture + speed t + sum of a_k sin(k w t) + b_k (cos(k w t) - 1)."""

    speed: Number = 0.0
    """rad/s or m/s."""
    sine: tuple[Number, ...] = ()
    """a_k, rad or m."""
    cosine: tuple[Number, ...] = ()
    """b_k."""


class Kalman(Part):
    """A Kalman smoother of the motion, from all sensors that there are; see `kalman_motion`."""

    position_std: Positive | dict[Name, Positive]
    """Standard deviation of each sample, rad or m, of all or each recorded coordinate."""
    velocity_std: Positive | dict[Name, Positive] | None = None
    """rad/s or m/s, where velocities were measured."""
    acceleration_std: Positive | dict[Name, Positive] | None = None
    jerk_density: Positive | dict[Name, Positive] | None = None
    """(rad/s^3)^2 s or (m/s^3)^2 s; of the largest likelihood where not given."""


class SimulateTorques(Simulation):
    """A pseudo-measured motion with the efforts of its drives."""

    duration_s: Positive
    rate_hz: Positive
    """Samples per second."""
    base_hz: Positive = 0.1
    """w / (2 pi)."""
    motion: dict[Name, Motion] = Field(min_length=1)
    """Of coordinates that a posture gives; the others rest."""
    angle_std: NonNegative = 0.0
    """Standard deviation of each sample of the coordinates, rad or m."""
    velocity_std: NonNegative | None = None
    """Of each sample of rates, rad/s or m/s; they are not measured where not given."""
    acceleration_std: NonNegative | None = None
    torque_std: NonNegative | dict[Name, NonNegative] = 0.0
    """Of each sample of the efforts, Nm or N, of all or each coordinate."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.duration_s * self.rate_hz > MOST_SAMPLES:
            raise ValueError(f"{self.duration_s * self.rate_hz:.0f} samples, expected at most {MOST_SAMPLES}")
        return self


class TorqueTestPart(RecordedTestPart):
    """A motion with the efforts of its drives, from a table or simulated."""

    releases_brakes: ClassVar[bool] = True

    kind: Literal["torque"]
    simulate: SimulateTorques | None = None
    resample_hz: Positive | None = None
    """Even samples per second that are made of those of the record; its own where not given."""
    cutoff_hz: Positive | tuple[Positive, Positive] | Literal["search"] = "search"
    """Of the low-pass filter of the angles, before differentiation: a frequency, or ends of its pass and stop band."""
    kalman: Kalman | None = None
    """In place of that filter."""
    effort_cutoff_hz: Positive | tuple[Positive, Positive] | None = None
    """Of a filter of both sides of the equations, behind which fewer samples are kept; none where not given."""
    torque_std: Positive | dict[Name, Positive] | Literal["estimate"] = "estimate"
    """Of the efforts behind the filter, Nm or N, of all or each coordinate; from what a plain fit leaves of each."""
    least_speed: NonNegative | dict[Name, NonNegative] = 0.0
    """rad/s or m/s, of all or each coordinate: efforts at slower samples are left out, where friction sticks."""
    friction_terms: tuple[FrictionKind, ...] = ()
    """Further terms of friction that are tried on motion held out; the machine gets those that predict it better."""
    angles_at: Side | dict[Name, Side] = "motor"
    """Side of the gear on which angles in columns of joints were recorded, of joints with a motor."""
    gears: Literal["dynamic", "quasi-static"] = "dynamic"
    """Whether links vibrate on the gears of their motors, or follow their load at each moment."""
    from_s: NonNegative = 0.0
    """Part of the record that is used, from its first sample."""
    to_s: Positive | None = None
    without: tuple[Name, ...] = ()
    """Payloads that the machine did not carry in this test."""
    robust: Annotated[bool, Field(strict=True)] = False
    """Whether outliers are given less weight."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kalman is not None and self.cutoff_hz != "search":
            raise ValueError("kalman and cutoff_hz are given, expected one of them")
        if len(set(self.friction_terms)) < len(self.friction_terms):
            raise ValueError(f"friction_terms are {', '.join(self.friction_terms)}, expected each kind once")
        if self.friction_terms and self.role == "check":
            raise ValueError(
                "friction_terms are chosen by what is fitted, expected none in a test with the role 'check'"
            )
        if self.to_s is not None and self.to_s <= self.from_s:
            raise ValueError(f"from_s is {self.from_s:g} and to_s {self.to_s:g}, expected the first before the last")
        return self
