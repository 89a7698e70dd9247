"""Schema of the keys common to all kinds of tests in a study file."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field, WrapValidator, model_validator

from jaxmb.machine.values import CoordinateValue, Name, NonNegative, Number, Part, Positive

Band = tuple[NonNegative, NonNegative]
SEVERAL = ("xyz", "xy", "xz", "yz", "XYZ", "XY", "XZ", "YZ")
"""Directions of several points at one frame."""


def _each(points: Any) -> Any:
    """A list of points with the directions "xyz" or two of them of a frame expanded."""
    if not isinstance(points, list | tuple):
        return points
    written: list[Any] = []
    for point in points:
        if isinstance(point, list | tuple) and len(point) == 2 and point[1] in SEVERAL:
            written += [(point[0], direction) for direction in point[1]]
        else:
            written.append(point)
    return written


def or_word(word: str, beside: str) -> WrapValidator:
    """Validator that admits one word besides another type, with one error message instead of the two of a union.

    Args:
        word: the word.
        beside: the other type, for messages.
    """

    def validate(value: Any, other: Callable[[Any], Any]) -> Any:
        if isinstance(value, str) and value != word:
            raise ValueError(f'expected {beside} or "{word}"')
        return value if value == word else other(value)

    return WrapValidator(validate)


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


OneOrEach = Annotated[tuple[Positive, ...], BeforeValidator(_listed)]
"""One number for all, or one for each."""
NoiseLevel = Annotated[Positive | Literal["estimate"], or_word("estimate", "a number")]
"""A standard deviation, or "estimate"."""
Points = Annotated[tuple[tuple[str, str], ...], BeforeValidator(_each)]


class Simulation(Part):
    """The machine of a simulated test, and the seed of its noise."""

    machine: str | None = None
    """Name or path of the simulated machine; by default the study's own without locks."""
    parameters: dict[str, Number] = {}
    """True parameters that differ from those of the machine [SI]."""
    noise_seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Seed of the simulated noise; `--noise-seed` overrides it. Tests that do not state it have different noise."""


class TestPart(Part):
    """Keys of all tests."""

    __test__: ClassVar[bool] = False
    static: ClassVar[bool] = False
    """Whether such tests are static: a loaded machine at rest."""
    releases_brakes: ClassVar[bool] = False
    """Whether brakes of motors are released in such tests."""
    frees_own: ClassVar[bool] = False
    """Whether parameters of such tests may be free without being named (`OwnParameters.bounds`)."""
    one_start: ClassVar[bool] = False
    """Whether one start suffices, since the prediction is nearly linear about the stated machine."""
    as_published: ClassVar[dict[str, str]] = {}
    """Keys that differ in the method of Huynh et al. 2020."""

    kind: str
    """Kind of the test."""
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    """Name in messages, tables and file names; by default that of the file without ending, or `test 1` and so on."""
    posture: dict[Name, CoordinateValue] = {}
    """Value of each coordinate; those not named are as in the reference posture [rad, m]."""
    role: Literal["fit", "check"] = "fit"
    """`"check"`: the test is predicted and compared, not fitted."""
    simulate: Simulation | None = None
    """Simulated data instead of measured ones."""

    @property
    def source_file(self) -> str | None:
        """The file that holds its measurements; None where it is simulated or part of the study file itself."""
        return getattr(self, "file", None)


class PostureTestPart(TestPart):
    """Keys of tests at one posture."""

    amplitude: Positive | None = None
    """Amplitude of the force or motion, in the same unit in all tests; a covariate of laws [any]."""


class RecordedTestPart(TestPart):
    """Keys of tests whose measurements are in a file or simulated."""

    file: str | None = None
    """File of the measurements."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.simulate is None):
            raise ValueError("expected either file or simulate")
        return self
