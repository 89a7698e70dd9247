"""Entries of a study file on pose tests: plain validated data, in the terms of the user."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from jaxmb.identify.study.format.test_format import NoiseLevel, RecordedTestPart, Simulation
from jaxmb.machine.values import SOME, Angle, Name, Number, Positive

MOST_ROWS = 20_000
MOST_STATIONS = 200
STD_MM = 0.05
"""Standard deviation of a component of a position where none is stated."""


class SimulatePoses(Simulation):
    """Pseudo-measured poses: postures drawn evenly in ranges, seen from stations in turn."""

    rows: Annotated[int, Field(ge=1, le=MOST_ROWS, strict=True)]
    """Number of fitted rows."""
    check_rows: Annotated[int, Field(ge=0, le=MOST_ROWS, strict=True)] = 0
    """Number of further rows of the same stations, which are held out."""
    stations: Annotated[int, Field(ge=0, le=MOST_STATIONS, strict=True)] = 1
    """Number of unknown poses of the measuring device; 0: its frame is the ground frame."""
    ranges: Annotated[dict[Name, tuple[Angle, Angle]], SOME]
    """Range of each coordinate in which postures are drawn evenly; the others are as in the test's posture [rad, m]."""
    points: tuple[Name, ...] = ("tool",)
    """Measured frames; empty for inclinations alone."""
    measured: Literal["position", "pose"] = "position"
    """Positions alone, or positions and rotations."""
    inclinations: tuple[Name, ...] = ()
    """Frames of accelerometers at rest, whose inclinations are measured."""
    floor_m: Number | None = None
    """Height that the origin of every frame stays above; any by default."""
    plan_seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Seed of postures and stations."""

    @model_validator(mode="after")
    def _measured(self) -> Self:
        if not (self.points or self.inclinations):
            raise ValueError("points and inclinations are empty, expected the name of a frame")
        if not self.points and self.stations:
            raise ValueError("points is empty, expected stations = 0: inclinations need no measuring device")
        return self

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        for name, (first, last) in self.ranges.items():
            if last < first:
                raise ValueError(f"ranges: {name} from {first:g} to {last:g} is reversed")
        return self


class PoseTestPart(RecordedTestPart):
    """Poses of points of the machine at recorded joint values, from a CSV file or simulated."""

    static: ClassVar[bool] = True

    kind: Literal["pose"]
    """Kind of the test."""
    simulate: SimulatePoses | None = None
    """Pseudo-measured poses instead of a file."""
    std_mm: NoiseLevel = STD_MM
    """Standard deviation of each component of a position; `"estimate"`: from the residual of the fit, by one factor on
    0.05 mm, `std_mrad` and `inclination_std_mrad`."""
    std_mrad: Positive = 0.1
    """Standard deviation of a rotation about each axis."""
    inclination_std_mrad: Positive = 0.1
    """Standard deviation of an inclination about each of two horizontal axes."""
    levelled: bool = False
    """Whether the device's z axis is vertical at every station, as of a total station. The machine's weight then acts
    along it, whatever the tilt of the machine's base."""

    @property
    def nominal_std(self) -> tuple[float, float, float]:
        """Standard deviation of a position [m], of a rotation and of an inclination [rad]; nominal ones where they are
        estimated."""
        position = STD_MM if self.std_mm == "estimate" else self.std_mm
        return 1e-3 * position, 1e-3 * self.std_mrad, 1e-3 * self.inclination_std_mrad

    @model_validator(mode="after")
    def _estimated_by_a_fit(self) -> Self:
        if self.std_mm == "estimate" and self.role == "check":
            raise ValueError('std_mm is "estimate" of a test that is not fitted, expected a number')
        return self
