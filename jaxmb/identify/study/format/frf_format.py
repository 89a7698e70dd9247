"""Entries of a study file on an FRF test."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import Field, WrapValidator, model_validator

from jaxmb.identify.study.format.test_format import Band, Points, PostureTestPart, RecordedTestPart, Simulate
from jaxmb.machine.values import NonNegative, Part, Positive


def _or_estimate(value: Any, number: Callable[[Any], Any]) -> Any:
    """A text that is allowed beside a number, without the two messages that a union gives."""
    return value if value == "estimate" else number(value)


NoiseLevel = Annotated[Positive, WrapValidator(_or_estimate)]
"""A standard deviation, or "estimate"."""


class ModalPart(Part):
    """Modal analysis of the measured FRFs."""

    band_hz: Band
    max_order: Annotated[int, Field(ge=2, le=200, strict=True)] = 60
    chosen_hz: tuple[Positive, ...] | None = None
    """Poles chosen by hand, the one nearest to each of these frequencies, instead of automatically."""


class BandWeight(Part):
    """Weight of the lines in a band, for all FRFs or for those between the named points."""

    band_hz: Band
    weight: NonNegative
    outputs: Points | None = None
    inputs: Points | None = None


class Weights(Part):
    """Weights of an FRF test: peaks picked, or bands by hand, and the rest."""

    peaks: NonNegative | None = None
    half_width_lines: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 2
    prominence: Positive = 0.1
    """How far a peak stands out of the lines around it to count, in decades of magnitude."""
    bands: tuple[BandWeight, ...] = ()
    elsewhere: NonNegative = 1.0

    @model_validator(mode="after")
    def _peaks_or_bands(self) -> Self:
        if self.peaks is not None and self.bands:
            raise ValueError("gives both peaks and bands, expected one of them")
        return self


class SensorPart(Part):
    """What the sensors measure beside the motion of their points."""

    kind: Literal["accelerometer"] = "accelerometer"
    gravity: Annotated[bool, Field(strict=True)] = False
    """Whether they feel gravity as they tilt."""
    high_pass_hz: NonNegative = 0.0


class FrfTestPart(PostureTestPart, RecordedTestPart):
    """Frequency responses, from a file or simulated."""

    kind: Literal["frf"]
    simulate: Simulate | None = None
    frame: str = "tool"
    outputs: Points | None = None
    inputs: Points | None = None
    shape_frames: tuple[str, ...] = ()
    """Frames at which mode shapes were measured beside the outputs, in x, y and z; the fit does not see them."""
    nodes: dict[str, str] = {}
    """Frame of the machine at each node of the file, where the file calls it otherwise."""
    unit: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Unit of the responses in the file, where it does not say."""
    symmetrize: Literal["upper", "lower", "mean"] | tuple[str, ...] | None = None
    """What becomes of a pair of cross FRFs: both the one above the diagonal, both the one below, both their mean."""
    modal: ModalPart | None = None
    fit: Literal["measured", "synthesized"] = "measured"
    """Whether the fit sees the FRFs as they were measured, or as the modal model gives them."""
    band_hz: Band | None = None
    noise_log_std: NoiseLevel = 0.01
    """Standard deviation of log H beside that of the coherence; "estimate": from the residual of the fit."""
    coherence: Annotated[bool, Field(strict=True)] = True
    """Whether lines of low coherence count for less, where there is a coherence."""
    cross_axis: Annotated[NonNegative, Field(lt=1.0)] | None = None
    """Ratio of the largest response at a line that leaks into the others: transverse sensitivity, misaligned hits. By
    default responses leak into those across them at the same point, by the tolerance of directions."""
    weights: Weights | None = None
    phase: Literal["safe", "principal"] = "safe"
    sensor: SensorPart = SensorPart()
    robust: Annotated[bool, Field(strict=True)] = False
    """Whether outlier lines are left out of the fit, and listed."""
    check_every: Annotated[int, Field(ge=2, le=10_000, strict=True)] | None = None
    """Every so many lines one is held out: it is predicted and compared, and the fit does not see it."""
    frequency_unit: Annotated[str, Field(min_length=1, max_length=40)] = "Hz"
    """What figures call the unit of frequency, which the fit takes for hertz."""

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
