"""What a study file may say of a test of any kind."""

from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field

from jaxmb.machine.values import Angle, Name, NonNegative, Part, Positive

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


Points = Annotated[tuple[PointName, ...], BeforeValidator(_each)]


class TestPart(Part):
    """What all tests have."""

    __test__: ClassVar[bool] = False
    static: ClassVar[bool] = False
    """Whether such tests load the machine at rest, and see no motion of it."""

    kind: str
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    posture: dict[Name, Angle] = {}
    role: Literal["fit", "check"] = "fit"
    """"check": it is predicted and compared, and the fit does not see it."""

    @property
    def source_file(self) -> str | None:
        """The file that holds its measurements; None where it is simulated or stands in the study itself."""
        return None

    def as_published(self) -> Self:
        """The test as a published method takes it, where that differs from ours."""
        return self


class PostureTestPart(TestPart):
    """What tests at one posture have."""

    amplitude: Positive | None = None
    """Level of the force or motion, in a unit that all tests share; for laws of it."""
