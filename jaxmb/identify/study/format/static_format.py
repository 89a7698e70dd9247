"""Schema of static tests, deflection and pose tests, in a study file."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from jaxmb.identify.experiments.tolerances import Instruments
from jaxmb.identify.study.format.test_format import NoiseLevel, RecordedTestPart, Simulation
from jaxmb.machine.values import (
    FEW,
    NOT_FALLING,
    SOME,
    CoordinateValue,
    Name,
    NonNegative,
    Number,
    Part,
    Positive,
    Vector,
)

MOST_SIMULATED = 5000
Ranges = Annotated[dict[Name, Annotated[tuple[CoordinateValue, CoordinateValue], NOT_FALLING]], FEW, SOME]
"""Range of each named coordinate, rad or m."""
REDUCTION_STEPS = ("original", "M1", "M2", "M3", "G1", "G2", "G3", "final")


class DesignPart(Part):
    """Optimal design: selection of load cases from drawn candidates for the precision of the stiffness model."""

    candidates: Annotated[int, Field(ge=1, le=MOST_SIMULATED, strict=True)]
    """Number of drawn tests from which `tests` are selected."""
    criterion: Literal["D", "A", "test-pose"] = "D"
    """Smallest confidence region (D), least sum of variances (A), or least error of the compensated tool at
    `test_postures`."""
    test_postures: tuple[dict[Name, CoordinateValue], ...] | None = Field(None, min_length=1)
    """Postures at which the loaded tool is to be accurate after compensation, for `test-pose` alone; the load is the
    force of the first candidate [rad, m]."""

    @model_validator(mode="after")
    def _purpose(self) -> Self:
        if (self.test_postures is None) == (self.criterion == "test-pose"):
            raise ValueError("test_postures is for the criterion 'test-pose', and needed there")
        return self


class CompletePart(Part):
    """A complete stiffness model of joints and links, reduced to its identifiable parameters, with its variants."""

    compensated: str | None = None
    """Joint with a gravity compensator: its compliance is fitted separately at each tested angle."""
    published_reduction: dict[str, Annotated[int, Field(ge=0, strict=True)]] | None = None
    """Published numbers of parameters after each step of the reduction, shown beside those of the study."""

    @model_validator(mode="after")
    def _all_steps(self) -> Self:
        if self.published_reduction is not None and set(self.published_reduction) != set(REDUCTION_STEPS):
            raise ValueError(
                f"published_reduction has {', '.join(self.published_reduction)}, expected {', '.join(REDUCTION_STEPS)}"
            )
        return self


class SimulateDeflections(Simulation):
    """Simulated deflections: postures drawn uniformly in zones, forces along given directions; zones and directions
    are taken in turn."""

    tests: Annotated[int, Field(ge=1, le=MOST_SIMULATED, strict=True)]
    """Number of tests."""
    zones: dict[str, Ranges] = Field(min_length=1)
    """Ranges of coordinates by name of the zone. Tests are drawn uniformly in them, the zones in turn; other
    coordinates are as in the test's posture [rad, m]."""
    force_n: Annotated[tuple[NonNegative, Positive], NOT_FALLING]
    """Smallest and largest force, drawn uniformly."""
    directions: tuple[Vector, ...] = Field(((0.0, 0.0, -1.0),), min_length=1)
    """Directions of the force on the machine in ground axes, in turn [1]."""
    offset_m: Vector = (0.0, 0.0, 0.0)
    """Point of application of the force in the axes of the loaded frame; beside its origin it causes a moment."""
    measured: Literal["pose", "position"] = "pose"
    """Translations and rotations, or translations only."""
    floor_m: Number | None = None
    """Smallest height of the origins of all frames; by default none."""
    design: DesignPart | None = None
    """Optimal selection from more drawn tests; by default all drawn tests are used."""
    nonlinear: Annotated[bool, Field(strict=True)] = False
    """`true`: the load acts on the displaced machine, as always with `linearize_at = "equilibrium"`; `false`: to first
    order."""
    plan_seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Seed of postures and forces."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.design is not None and self.design.candidates < self.tests:
            raise ValueError(f"{self.tests} tests out of {self.design.candidates} candidates")
        for direction in self.directions:
            if not any(direction):
                raise ValueError("directions holds [0, 0, 0], expected where the force points to")
        return self


class DeflectionTestPart(RecordedTestPart):
    """A set of deflection tests, from a table or simulated."""

    static: ClassVar[bool] = True

    kind: Literal["deflection"]
    """Kind of the test."""
    simulate: SimulateDeflections | None = None
    """Simulated tests instead of a file."""
    frame: str = "tool"
    """Loaded and measured frame, unless the table says otherwise."""
    points: tuple[str, ...] | None = Field(None, min_length=1)
    """Frames whose motion is measured in simulated tests; by default `frame`."""
    std_mm: Positive = 0.03
    """Standard deviation of translations for which the table has none."""
    std_deg: Positive = 0.01
    """Standard deviation of rotations for which the table has none."""
    rotation_weight: Positive = 1.0
    """Weight of the squared error of a rotation relative to that of a translation, each over its variance [1]."""
    robust: Annotated[bool, Field(strict=True)] = False
    """Whether outliers get less weight. One such test is sufficient; only for studies of deflection tests alone that
    are fitted in one linear step, without a prior."""
    instruments: Instruments | None = None
    """Errors of the instruments, from which weights, standard deviations and correlations follow."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.points is not None and self.file is not None:
            raise ValueError("points is for simulated tests, a table has a column for them")
        return self


MOST_ROWS = 20_000
MOST_STATIONS = 200
STD_MM = 0.05
"""Standard deviation of a component of a position where none is stated."""


class SimulatePoses(Simulation):
    """Simulated poses: postures drawn uniformly in ranges, measured from the stations in turn."""

    rows: Annotated[int, Field(ge=1, le=MOST_ROWS, strict=True)]
    """Number of fitted rows."""
    check_rows: Annotated[int, Field(ge=0, le=MOST_ROWS, strict=True)] = 0
    """Number of further rows of the same stations that are held out."""
    stations: Annotated[int, Field(ge=0, le=MOST_STATIONS, strict=True)] = 1
    """Number of unknown poses of the measuring device; 0: its frame is the ground frame."""
    ranges: Ranges
    """Range of each coordinate, in which postures are drawn uniformly; the others are as in the test's posture [rad,
    m]."""
    points: tuple[Name, ...] = ("tool",)
    """Frames whose positions are measured; may be empty if inclinations or distances are measured."""
    measured: Literal["position", "pose"] = "position"
    """Positions alone, or positions and rotations."""
    inclinations: tuple[Name, ...] = ()
    """Frames of accelerometers at rest, whose inclinations are measured."""
    distances: tuple[Name, ...] = ()
    """Frames whose distances from the device are measured."""
    floor_m: Number | None = None
    """Smallest height of the origins of all frames; by default none."""
    plan_seed: Annotated[int, Field(ge=0, lt=2**63, strict=True)] = 0
    """Seed of postures and stations."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not (self.points or self.inclinations or self.distances):
            raise ValueError("points, inclinations and distances are empty, expected the name of a frame")
        if not (self.points or self.distances) and self.stations:
            raise ValueError("points is empty, expected stations = 0: inclinations need no measuring device")
        return self


class PoseTestPart(RecordedTestPart):
    """Poses, inclinations and distances of points at recorded joint values, from a CSV file or simulated."""

    static: ClassVar[bool] = True
    frees_own: ClassVar[bool] = True
    one_start: ClassVar[bool] = True

    kind: Literal["pose"]
    """Kind of the test."""
    simulate: SimulatePoses | None = None
    """Simulated poses instead of a file."""
    std_mm: NoiseLevel = STD_MM
    """Standard deviation of each component of a position. `"estimate"`: the residual of the fit determines one factor
    on 0.05 mm, `std_mrad`, `inclination_std_mrad` and `distance_std_mm`; refused as `noise_log_std` is."""
    std_mrad: Positive = 0.1
    """Standard deviation of a rotation about each axis."""
    inclination_std_mrad: Positive = 0.1
    """Standard deviation of an inclination about each of two horizontal axes."""
    distance_std_mm: Positive = 0.02
    """Standard deviation of a distance."""
    scatter_mrad: dict[str, Positive] = {}
    """Standard deviation of random rotations of virtual springs in each row, by spring and axis, such as `"guide.rx"`,
    in addition to those due to their compliance and play. They are common to the components of a row. Scaled as
    `std_mrad` where `std_mm` is `"estimate"`."""
    levelled: bool = False
    """Whether the device's z axis is vertical at every station, as of a total station. The machine's weight then acts
    along it, independent of the tilt of the machine's base."""

    @property
    def nominal_std(self) -> tuple[float, float, float, float]:
        """Standard deviation of a position [m], of a rotation, of an inclination [rad] and of a distance [m]; nominal
        ones where they are estimated."""
        position = STD_MM if self.std_mm == "estimate" else self.std_mm
        return 1e-3 * position, 1e-3 * self.std_mrad, 1e-3 * self.inclination_std_mrad, 1e-3 * self.distance_std_mm

    @property
    def scatter(self) -> dict[str, float]:
        """`scatter_mrad` in rad."""
        return {name: 1e-3 * std for name, std in self.scatter_mrad.items()}

    @model_validator(mode="after")
    def _estimated_by_a_fit(self) -> Self:
        if self.std_mm == "estimate" and self.role == "check":
            raise ValueError('std_mm is "estimate" of a test that is not fitted, expected a number')
        return self
