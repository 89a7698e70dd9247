"""Schema of a description of time records: validated data without computation."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from jaxmb.io.validation import check_distinct
from jaxmb.machine.values import CoordinateValue, Name, NonNegative, NonZero, Part, Positive, Vector

Count = Annotated[int, Field(ge=1, le=1_000_000_000, strict=True)]
Text = Annotated[str, Field(min_length=1, max_length=200)]
MOST_CHANNELS = 10_000


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int | float | str) and not isinstance(value, bool) else value


class Columns(Part):
    """Columns first to last of a file, ends included."""

    first: Count
    """First column, counted from 1."""
    last: Count
    """Last column."""

    @model_validator(mode="after")
    def _forwards(self) -> Self:
        if not self.first <= self.last < self.first + MOST_CHANNELS:
            raise ValueError(f"columns go from {self.first} to {self.last}, expected the first one first")
        return self


class Channels(Part):
    """Columns of the files with forces, or responses, and their calibration."""

    columns: Columns | Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_CHANNELS)]
    """Column of each channel, counted from 1."""
    variable: Text | None = None
    """Variable of a .mat or .npz file, if forces and responses are in different ones."""
    dofs: tuple[Text, ...] = ()
    """Degree of freedom of each channel, "12 x"; numbered by default."""
    factors: Annotated[tuple[NonZero, ...], BeforeValidator(_listed)] = (1.0,)
    """Factors from the numbers in the file to `unit`: one for all, or one for each channel [of unit]."""
    unit: Text | None = None
    """Unit of the channels, "N", "m/s^2", "g" or "unknown"; by default SI."""
    full_scale: Positive | None = None
    """Value at which the channels clip; a hit that reaches it is rejected, other records have a remark [of unit]."""

    @model_validator(mode="after")
    def _as_many(self) -> Self:
        count = len(self.numbers)
        if len(set(self.numbers)) != count:
            raise ValueError("names a column twice")
        if self.dofs and len(self.dofs) != count:
            raise ValueError(f"has {len(self.dofs)} dofs for {count} columns")
        check_distinct(self.dofs, "names the degree of freedom '{}' twice")
        if len(self.factors) not in (1, count):
            raise ValueError(f"has {len(self.factors)} factors for {count} columns")
        return self

    @property
    def numbers(self) -> tuple[int, ...]:
        """The columns, from 1."""
        if isinstance(self.columns, Columns):
            return tuple(range(self.columns.first, self.columns.last + 1))
        return self.columns


class DataFile(Part):
    """A file of recorded numbers."""

    file: Text | None = None
    """Path relative to the description."""
    public: Text | None = None
    """Path of published data below the folder named by the environment variable JAXMB_DATA."""
    variable: Text | None = None
    """Variable of a .mat or .npz file; not needed if it has only one."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.public is None):
            raise ValueError("expected either file or public")
        return self


class Record(DataFile):
    """One file of time records."""

    input: Text | None = None
    """Degree of freedom of the hits in this record, "3 z", for a roving hammer."""


class PublicData(Part):
    """Source of published data."""

    repository: Text
    """Address of the repository."""
    commit: Text
    """Commit of the files."""
    file: Text
    """Path of the file in the repository."""


class Noise(Part):
    """Continuous or burst noise of shakers, averaged over segments."""

    kind: Literal["noise"]
    """Noise of shakers."""
    segment: Annotated[int, Field(ge=4, le=1_000_000_000, strict=True)]
    """Samples of a segment."""
    overlap: Annotated[NonNegative, Field(lt=1.0)] = 0.5
    """Overlap of segments as a share of their length [1]."""
    window: Text = "hann"
    """Window of a segment."""
    estimator: Literal["H1", "H2", "Hv"] = "H1"
    """Estimator of the FRFs."""


class Hits(Part):
    """Hammer hits: one per record, or several to be extracted from each record."""

    kind: Literal["hits"]
    """Hammer hits."""
    block: Annotated[int, Field(ge=16, le=1_000_000_000, strict=True)] | None = None
    """Samples of each hit that is extracted from a longer record; by default a record is one hit."""
    pre_trigger_s: NonNegative = 0.05
    """Time before the trigger that belongs to a hit, with `block`."""
    trigger: Positive | None = None
    """Trigger level, with `block`; by default a tenth of the largest force [of unit]."""
    decay_1_s: NonNegative | None = None
    """Decay rate of the exponential window."""
    end_level: Annotated[Positive, Field(le=1.0)] | None = None
    """In place of `decay_1_s`: level of the exponential window one record length after the hit [1]."""
    force_window_s: Positive | None = None
    """Length of the force window from the start of the hit; by default three lengths of the pulse and 16 samples."""
    double_hit_level: Annotated[Positive, Field(lt=1.0)] = 0.1
    """Share of the peak force above which a second rise counts as a double hit [1]."""
    estimator: Literal["H1", "H2", "Hv"] = "H1"
    """Estimator of the FRFs."""

    @model_validator(mode="after")
    def _one_window(self) -> Self:
        if self.decay_1_s is not None and self.end_level is not None:
            raise ValueError("gives both decay_1_s and end_level, expected one of them")
        return self


class Periodic(Part):
    """A periodic force, transformed over whole periods."""

    kind: Literal["periodic"]
    """A periodic force."""
    period: Annotated[int, Field(ge=4, le=1_000_000_000, strict=True)]
    """Samples of a period."""
    first_harmonic: Count = 1
    """First excited harmonic."""
    last_harmonic: Count
    """Last excited harmonic."""
    step: Count = 1
    """Step of the excited harmonics: 2 if only odd ones were excited."""

    @model_validator(mode="after")
    def _below_half(self) -> Self:
        if self.last_harmonic < self.first_harmonic:
            raise ValueError(
                f"harmonics go from {self.first_harmonic} to {self.last_harmonic}, expected the first one first"
            )
        if self.last_harmonic >= self.period / 2:
            raise ValueError(
                f"last_harmonic is {self.last_harmonic}, expected below half the {self.period} samples of a period"
            )
        return self


class RecordsFile(Part):
    """Time records, their channels, and the method of estimating frequency responses."""

    description: str = ""
    """Free text."""
    source: str = ""
    """Free text."""
    sample_rate_hz: Positive
    """Sample rate of all channels; 1 where it is unknown, and frequencies are in cycles per sample."""
    kind: Literal["receptance", "mobility", "accelerance"] = "accelerance"
    """Kind of the FRFs: accelerations, velocities (mobility) or displacements (receptance)."""
    posture: dict[Name, CoordinateValue] = {}
    """Coordinates of the machine during the test [rad, m]."""
    nodes: dict[Text, Vector] = {}
    """Position of each node [m]."""
    trace_lines: tuple[tuple[Text, ...], ...] = ()
    """Lines through nodes by which the structure is drawn, as `[["1", "2", "3"], ["2", "4"]]`."""
    public: PublicData | None = None
    """Source of published data."""
    record: tuple[Record, ...] = Field(min_length=1, max_length=MOST_CHANNELS)
    """Files of time records, `[[record]]`."""
    forces: Channels
    """Channels of forces."""
    responses: Channels
    """Channels of responses."""
    method: Annotated[Noise | Hits | Periodic, Field(discriminator="kind")]
    """Method of estimating the FRFs."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.method.kind != "hits" and len(self.record) > 1:
            raise ValueError(f"has {len(self.record)} records, expected one for a method of kind '{self.method.kind}'")
        if self.method.kind != "noise" and len(self.forces.numbers) > 1:
            raise ValueError(
                f"has {len(self.forces.numbers)} forces, expected one for a method of kind '{self.method.kind}'"
            )
        if any(record.public for record in self.record) and self.public is None:
            raise ValueError("names public data, expected a table [public] with their repository")
        given = [record.input is not None for record in self.record]
        if any(given) and (self.method.kind != "hits" or not all(given) or self.forces.dofs):
            raise ValueError("gives input, expected it for all records of hits, and then no dofs of the force")
        shared = set(self.forces.numbers) & set(self.responses.numbers)
        if shared and self.forces.variable == self.responses.variable:
            raise ValueError(f"uses column {min(shared)} as a force and as a response, expected one of them")
        return self
