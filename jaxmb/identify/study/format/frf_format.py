"""Entries of a study file on an FRF test."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from jaxmb.identify.study.format.test_format import (
    Band,
    NoiseLevel,
    Points,
    PostureTestPart,
    RecordedTestPart,
    Simulate,
)
from jaxmb.machine.values import NonNegative, Part, Positive

PickedPole = tuple[Annotated[int, Field(ge=1, strict=True)], Positive]


class ModalPart(Part):
    """Modal analysis of the measured FRFs."""

    band_hz: Band | None = None
    """First and last frequency of the analysed lines; by default all."""
    max_order: Annotated[int, Field(ge=2, le=200, strict=True)] = 60
    """Highest order of the estimator."""
    method: Literal["polyreference", "lsce"] = "polyreference"
    """Estimator of the poles."""
    references: tuple[str, ...] | None = None
    """Inputs to use, or outputs; by default all inputs, or all outputs if they are fewer."""
    chosen_hz: tuple[Positive | PickedPole | tuple[PickedPole, ...], ...] | None = None
    """Poles chosen by hand instead of automatically: the one nearest to a frequency, or to a frequency at an order, as
    `[24, 9.91]`; a list of such pairs is one mode. `jaxmb modal --pick` writes them."""


class PolesFile(Part):
    """The file `poles.toml` of `jaxmb modal --pick`."""

    modal: ModalPart
    """Options of the modal analysis, with the chosen poles."""


class BandWeight(Part):
    """Weight of the lines in a band, for all FRFs or for those between the named points."""

    band_hz: Band
    """First and last frequency of the band."""
    weight: NonNegative
    """Weight of its lines [1]."""
    outputs: Points | None = None
    """Outputs to which it applies; by default all."""
    inputs: Points | None = None
    """Inputs to which it applies; by default all."""


class Weights(Part):
    """Weights of an FRF test: peaks picked, or bands by hand, and the rest."""

    peaks: NonNegative | None = None
    """Weight of the peaks of each FRF [1]."""
    half_width_lines: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 2
    """Number of lines beside a peak with the same weight."""
    prominence: Positive = 0.1
    """Prominence above which a peak counts as a mode, in decades of magnitude [1]."""
    bands: tuple[BandWeight, ...] = ()
    """Weights by band, instead of `peaks`."""
    elsewhere: NonNegative = 1.0
    """Weight of all other lines; 0 excludes them [1]."""

    @model_validator(mode="after")
    def _peaks_or_bands(self) -> Self:
        if self.peaks is not None and self.bands:
            raise ValueError("gives both peaks and bands, expected one of them")
        return self


class SensorPart(Part):
    """What the sensors measure beside the motion of their points."""

    kind: Literal["accelerometer"] = "accelerometer"
    """Kind of the sensors."""
    gravity: Annotated[bool, Field(strict=True)] = False
    """Whether they feel gravity as they tilt."""
    high_pass_hz: NonNegative = 0.0
    """Corner frequency of a first-order high-pass behind the sensors; 0 without one."""


class FrfTestPart(PostureTestPart, RecordedTestPart):
    """Frequency responses, from a file or simulated."""

    kind: Literal["frf"]
    """Kind of the test."""
    simulate: Simulate | None = None
    """Pseudo-measured FRFs instead of a file."""
    frame: str = "tool"
    """Frame whose x, y, z are outputs and inputs where neither is given."""
    outputs: Points | None = None
    """Sensors, as points; by default the inputs."""
    inputs: Points | None = None
    """Forces, as points; by default the outputs."""
    shape_frames: tuple[str, ...] = ()
    """Further frames at which mode shapes were measured, in x, y and z; not fitted."""
    nodes: dict[str, str] = {}
    """Frame of the machine for each node of the file with another name: `{ "1" = "tool" }`."""
    unit: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Unit of the responses if the file states none, `"m/s^2/N"`, `"g/lbf"`; a file that states another one is
    refused."""
    symmetrize: Literal["upper", "lower", "mean"] | tuple[str, ...] | None = None
    """Treatment of a pair of cross FRFs, which then counts as one: `"upper"` mirrors the one above the diagonal,
    `"lower"` the one below, `"mean"` takes the mean of both; a list names the response that is kept of some pairs,
    `["tool x / tool y"]` (output / input), the others are averaged. A remark reports pairs of opposite sign."""
    modal: ModalPart | None = None
    """Modal analysis of all measured FRFs, whose modes are compared with the fitted ones."""
    fit: Literal["measured", "synthesized"] = "measured"
    """Whether measured FRFs are fitted, or those of the modal model in the band of `modal`."""
    band_hz: Band | None = None
    """First and last frequency of the fitted lines; by default all."""
    noise_log_std: NoiseLevel = 0.01
    """Standard deviation of log H, real and imaginary part each, in addition to `coherence` and `cross_axis`;
    `"estimate"`: from the residual beyond these, allowing for correlation along frequency."""
    coherence: Annotated[bool, Field(strict=True)] = True
    """Whether noise is derived from the coherence of the file, if it has one; values that do not exceed it are
    excluded."""
    cross_axis: Annotated[NonNegative, Field(lt=1.0)] | None = None
    """Ratio of the largest FRF at a line that leaks into all others (transverse sensitivity of sensors, oblique hits),
    a noise of weak FRFs: 0.03 to 0.05 for common sensors. Without it, in a study with tolerances, FRFs leak into those
    across them at the same point by `sensor_direction_deg` [1]."""
    weights: Weights | None = None
    """Weights of the lines; by default 1."""
    phase: Literal["safe", "principal"] = "safe"
    """Logarithm of the ratio, or difference of principal branches as printed in eq. 22 of Huynh et al. 2020."""
    sensor: SensorPart = SensorPart()
    """Deviation of the sensors from ideal ones."""
    robust: Annotated[bool, Field(strict=True)] = False
    """Whether outlier lines, at most 5 % of all, are excluded from the fit and listed."""
    check_every: Annotated[int, Field(ge=2, le=10_000, strict=True)] | None = None
    """Every n-th line is held out, predicted and compared like a test of the role `"check"`."""
    frequency_unit: Annotated[str, Field(min_length=1, max_length=40)] = "Hz"
    """Unit of frequency in figures: `"cycles per sample"` where the sample rate was not published."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.fit == "synthesized" and self.modal is None:
            raise ValueError("fit is 'synthesized', expected a modal analysis to synthesize from: modal = {...}")
        if self.unit is not None and self.file is None:
            raise ValueError("unit is for a file, simulated responses are in SI")
        if self.nodes and self.file is None:
            raise ValueError("nodes is for a file, simulated responses are at frames of the machine")
        if self.check_every is not None and self.role == "check":
            raise ValueError(
                'check_every holds out lines of a test that is fitted, expected no role = "check" beside it'
            )
        return self

    def as_published(self) -> Self:
        """With the printed phase of eq. 22 of Huynh et al. 2020."""
        return self.model_copy(update={"phase": "principal"})
