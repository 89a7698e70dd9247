"""What a study file may say of a test of any kind."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WrapValidator, model_validator

from jaxmb.identify.fit.settings import Count
from jaxmb.machine.values import Angle, Name, NonNegative, Number, Part, Positive

Band = tuple[NonNegative, NonNegative]
PointName = tuple[str, str]
SEVERAL = ("xyz", "XYZ")
"""Directions of three points at one frame."""


def _each(points: Any) -> Any:
    """A list of points with "xyz" of a frame written out."""
    if not isinstance(points, list | tuple):
        return points
    written: list[Any] = []
    for point in points:
        if isinstance(point, list | tuple) and len(point) == 2 and point[1] in SEVERAL:
            written += [(point[0], direction) for direction in point[1]]
        else:
            written.append(point)
    return written


def _or_estimate(value: Any, number: Callable[[Any], Any]) -> Any:
    """A text that is allowed beside a number, without the two messages that a union gives."""
    return value if value == "estimate" else number(value)


NoiseLevel = Annotated[Positive | Literal["estimate"], WrapValidator(_or_estimate)]
"""A standard deviation, or "estimate"."""
Points = Annotated[tuple[PointName, ...], BeforeValidator(_each)]


class TestPart(Part):
    """What all tests have."""

    __test__: ClassVar[bool] = False
    static: ClassVar[bool] = False
    """Whether such tests load the machine at rest, and see no motion of it."""
    releases_brakes: ClassVar[bool] = False
    """Whether brakes of motors are released in such tests."""

    kind: str
    """Kind of the test."""
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Name in messages, tables and file names; by default that of the file without ending, or `test 1` and so on."""
    posture: dict[Name, Angle] = {}
    """Value of each coordinate; those not named are as in the reference posture [rad, m]."""
    role: Literal["fit", "check"] = "fit"
    """"check": the test is predicted and compared, not fitted."""

    @property
    def source_file(self) -> str | None:
        """The file that holds its measurements; None where it is simulated or part of the study file itself."""
        return None

    def as_published(self) -> Self:
        """The test as a published method takes it, where that differs from ours."""
        return self


class PostureTestPart(TestPart):
    """What tests at one posture have."""

    amplitude: Positive | None = None
    """Level of the force or motion, in a unit that all tests share, for laws of it [any]."""


MOST_LINES = 20_000


class Lines(Part):
    """Frequency lines of a simulated test: first, first + step, ... up to last, Hz."""

    first_hz: NonNegative
    """First line."""
    last_hz: NonNegative
    """Last line."""
    step_hz: Positive
    """Step between lines."""

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.last_hz < self.first_hz:
            raise ValueError(f"last_hz {self.last_hz:g} is below first_hz {self.first_hz:g}")
        if (self.last_hz - self.first_hz) / self.step_hz > MOST_LINES:
            raise ValueError(f"more than {MOST_LINES} lines from first_hz, last_hz and step_hz")
        return self


class Hits(Part):
    """A hammer test: hits along each input, accelerations recorded with noise, FRFs estimated from the records."""

    hits: Annotated[Count, Field(le=100)] = 5
    """Number of hits at each input."""
    impulse_ns: Positive = 5.0
    """Mean impulse of a hit."""
    impulse_log_std: Annotated[NonNegative, Field(le=2.0)] = 0.3
    """Standard deviation of the logarithm of the impulse."""
    contact_ms: Positive = 15.0
    """Contact time of the hammer."""
    sample_rate_hz: Positive = 1024.0
    """Sample rate of the records."""
    record_s: Positive = 4.0
    """Length of a record."""
    decay_1_s: NonNegative = 1.5
    """Decay rate of the exponential window."""
    softening: Annotated[NonNegative, Field(lt=1.0)] = 0.0
    """Share of its stiffness that a spring loses at large deflection: effort k q (1 - softening |q| / (|q| + half))
    [1]."""
    softening_half: Positive = 2e-4
    """Deflection at which half of that is lost, half in that formula [rad, m]."""
    tilt_deg: Annotated[NonNegative, Field(le=45.0)] = 0.0
    """Standard deviation of the hammer's direction, about each of two axes, one draw for each input."""
    offset_m: NonNegative = 0.0
    """Standard deviation of the hit's position beside the sensor, in each direction, one draw for each input."""
    noise: NonNegative = 0.0
    """Standard deviation of the noise of every accelerometer [m/s^2]."""


class Simulation(Part):
    """The machine of a simulated test, and the seed of its noise."""

    machine: str | None = None
    """Name or path of the machine that is measured; by default the study's own, nothing locked."""
    parameters: dict[str, Number] = {}
    """True parameters that differ from those of the machine [SI]."""
    noise_seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Seed of the errors of the instruments; `--noise-seed` overrides it."""


class RecordedTestPart(TestPart):
    """What tests have whose measurements are in a file or simulated."""

    file: str | None = None
    """File of the measurements."""
    simulate: Simulation | None = None
    """Pseudo-measured data instead of a file."""

    @property
    def source_file(self) -> str | None:
        """The file that holds its measurements; None where it is simulated."""
        return self.file

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.simulate is None):
            raise ValueError("expected either file or simulate")
        return self


class Simulate(Simulation):
    """Pseudo-measured FRFs of a machine at known parameters: computed, with noise where asked for, or from hits."""

    lines: Lines | None = None
    """Frequency lines of computed FRFs."""
    hits: Hits | None = None
    """A simulated hammer test instead of computed FRFs."""
    response: Literal["receptance", "mobility", "accelerance"] = "accelerance"
    """Kind of the responses."""
    noise_log_std: Annotated[NonNegative, Field(le=10.0)] = 0.0
    """Standard deviation of the noise in log H of computed FRFs, real and imaginary part each."""

    @model_validator(mode="after")
    def _lines_or_hits(self) -> Self:
        if (self.lines is None) == (self.hits is None):
            raise ValueError("expected either lines or hits")
        if self.hits is not None and (self.noise_log_std or self.response != "accelerance"):
            raise ValueError("hits give accelerances with their own noise, expected no noise_log_std and no response")
        return self


class SimulateModes(Simulation):
    """Pseudo-measured modes of a machine at known parameters, with errors of the standard deviations of the test."""

    below_hz: Positive
    """All modes up to here are measured."""
    noise: Annotated[bool, Field(strict=True)] = True
    """Whether errors of the stated standard deviations are drawn."""
