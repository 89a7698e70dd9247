"""Schema of `[next]`: candidates from which the next tests are selected."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from jaxmb.identify.study.format.test_format import Band, OneOrEach, Points
from jaxmb.identify.study.format.vibration_format import MOST_LINES
from jaxmb.machine.values import RISING, CoordinateValue, Name, Part, Positive

MOST_CANDIDATES = 20_000
"""Postures times points times bands."""


class PointsPart(Part):
    """Outputs and inputs of a test; inputs that are not stated are the outputs."""

    outputs: Annotated[Points, Field(min_length=1, max_length=100)]
    """Sensors, as points."""
    inputs: Annotated[Points, Field(min_length=1, max_length=100)] | None = None
    """Forces, as points; by default the outputs."""

    @property
    def ends(self) -> tuple[Points, Points]:
        """Outputs and inputs."""
        return self.outputs, self.outputs if self.inputs is None else self.inputs


def _as_table(value: Any) -> Any:
    return {"outputs": value} if isinstance(value, list | tuple) else value


Ranges = Annotated[dict[Name, Annotated[tuple[CoordinateValue, CoordinateValue], RISING]], Field(min_length=1)]
Listed = Annotated[tuple[dict[Name, CoordinateValue], ...], Field(min_length=1, max_length=MOST_CANDIDATES)]


class PosturesPart(Part):
    """Postures from which the next ones are selected."""

    takes_minutes: ClassVar[bool] = False
    """Whether the selection takes minutes, so that reports of results leave it out."""

    postures: Ranges | Listed
    """Ranges of coordinates, in which postures are drawn uniformly (those selected for FRF tests are then improved), or
    a list of postures [rad, m]."""
    candidates: Annotated[int, Field(ge=1, le=MOST_CANDIDATES, strict=True)] = 200
    """Number of postures drawn from ranges."""
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Seed of the draw."""


class NextPart(PosturesPart):
    """`[next]`: number of FRF tests to select, candidates, and criterion."""

    kind: Literal["frf"] = "frf"
    """FRF tests."""
    count: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    """Number of tests to select."""
    criterion: Literal["A", "D"] = "A"
    """Least sum of the variances of the parameters (A), or smallest volume of their confidence region (D)."""
    points: tuple[Annotated[PointsPart, BeforeValidator(_as_table)], ...] = ()
    """Alternatives of outputs and inputs; by default those of the test `like`."""
    bands_hz: tuple[Band, ...] = ()
    """Alternative bands (first and last frequency); by default the lines of the test `like`."""
    step_hz: OneOrEach | None = None
    """Step between the lines of the bands: one for all, or one for each."""
    like: str | None = None
    """FRF test from which the candidates take kind of response, noise, window and further settings; by default the
    first."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if (self.step_hz is None) != (not self.bands_hz):
            raise ValueError("expected bands_hz and step_hz together or none of them")
        if self.step_hz is not None and len(self.step_hz) not in (1, len(self.bands_hz)):
            raise ValueError(f"step_hz has {len(self.step_hz)} entries for {len(self.bands_hz)} bands")
        for (first, last), step in zip(self.bands_hz, self.steps, strict=True):
            if not 0.0 < first <= last:
                raise ValueError(f"bands_hz: {first:g} to {last:g} Hz, expected it above 0 and ascending")
            if (last - first) / step > MOST_LINES:
                raise ValueError(f"bands_hz: more than {MOST_LINES} lines from {first:g} to {last:g} Hz")
        drawn = self.candidates if isinstance(self.postures, dict) else len(self.postures)
        if drawn * max(len(self.points), 1) * max(len(self.bands_hz), 1) > MOST_CANDIDATES:
            raise ValueError(f"postures times points times bands are more than {MOST_CANDIDATES} candidates")
        return self

    @property
    def steps(self) -> tuple[float, ...]:
        """Step of each band."""
        steps = self.step_hz or ()
        return steps * len(self.bands_hz) if len(steps) == 1 else steps


class LimitsPart(Part):
    """Limits of a drive that differ from those of the machine."""

    range: Annotated[tuple[CoordinateValue, CoordinateValue], RISING] | None = None
    """Lowest and highest value [rad, m]."""
    speed: Positive | None = None
    """Largest speed [rad/s, m/s]."""
    acceleration: Positive | None = None
    """Largest acceleration [rad/s^2, m/s^2]."""


class NextMotionPart(Part):
    """`[next]` of kind "torque": the exciting motion to measure next."""

    takes_minutes: ClassVar[bool] = True

    kind: Literal["torque"]
    """An exciting motion instead of FRF tests."""
    base_hz: Positive = 0.1
    """Base frequency of the motion, the inverse of its period."""
    harmonics: Annotated[int, Field(ge=2, le=50, strict=True)] = 5
    """Number of harmonics of the base frequency."""
    periods: Annotated[int, Field(ge=1, le=1000, strict=True)] = 1
    """Number of measured periods."""
    limits: dict[Name, LimitsPart] = {}
    """Limits by coordinate that replace those of the machine; a speed limit is required."""
    criterion: Literal["D", "condition"] = "D"
    """Smallest volume of the confidence region (D), or smallest condition number of the regressor."""
    wanted: dict[str, Positive] = {}
    """Sufficient standard deviation by name or pattern: the sum of (std / wanted)^2 is minimized instead of the
    criterion [SI]."""
    without: tuple[tuple[Name, ...], ...] = ((),)
    """For each run of the motion the payloads that are not mounted in it; by default one run with all payloads."""
    starts: Annotated[int, Field(ge=1, le=1000, strict=True)] = 4
    """Number of random initial motions; the best result is used."""
    steps: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 200
    """Largest number of optimization steps from each."""
    seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Seed of the draw."""
    like: str | None = None
    """Torque test from which the motion takes sampling, noise and measured coordinates; by default the first."""

    @model_validator(mode="after")
    def _one_aim(self) -> Self:
        if self.wanted and self.criterion == "condition":
            raise ValueError("found both wanted and the criterion 'condition', expected one of them")
        if not self.without:
            raise ValueError("without has no run, expected [[]] for one with all payloads")
        return self


class NextPosePart(PosturesPart):
    """`[next]` of kind "pose": the postures to measure next."""

    kind: Literal["pose"]
    """Postures of a pose test instead of FRF tests."""
    count: Annotated[int, Field(ge=1, le=1000, strict=True)] = 10
    """Number of postures to select."""
    criterion: Literal["A", "D"] = "D"
    """Least sum of the variances of the parameters (A), or smallest volume of their confidence region (D)."""
    station: str | None = None
    """Label of the station from which they are measured; by default the first."""
    like: str | None = None
    """Pose test from which they take points, noise and device; by default the first."""


def _kind(value: Any) -> str | None:
    return value.get("kind", "frf") if isinstance(value, dict) else getattr(value, "kind", None)


AnyNextPart = NextPart | NextMotionPart | NextPosePart
Next = Annotated[
    Annotated[NextPart, Tag("frf")] | Annotated[NextMotionPart, Tag("torque")] | Annotated[NextPosePart, Tag("pose")],
    Discriminator(_kind),
]
"""`[next]` of any kind of test."""
