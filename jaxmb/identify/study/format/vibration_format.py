"""Schema of FRF tests and modal tests in a study file."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, WrapValidator, model_validator

from jaxmb.identify.fit.settings import Count
from jaxmb.identify.study.format.test_format import (
    Band,
    NoiseLevel,
    OneOrEach,
    Points,
    PostureTestPart,
    RecordedTestPart,
    Simulation,
)
from jaxmb.machine.values import NOT_FALLING, NonNegative, Number, Part, Positive

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
    """Relative loss of stiffness at large deflection: the effort of a spring is
    k q (1 - `softening` |q| / (|q| + `softening_half`)) [1]."""
    softening_half: Positive = 2e-4
    """Deflection at which half of `softening` is lost [rad, m]."""
    tilt_deg: Annotated[NonNegative, Field(le=45.0)] = 0.0
    """Standard deviation of the hammer's direction, about each of two axes, one draw for each input."""
    offset_m: NonNegative = 0.0
    """Standard deviation of the hit's position beside the sensor, in each direction, one draw for each input."""
    noise: NonNegative = 0.0
    """Standard deviation of the noise of every accelerometer [m/s^2]."""


class Simulate(Simulation):
    """Simulated FRFs of a machine at known parameters: computed, with noise if stated, or estimated from hits."""

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
    """Simulated modes of a machine at known parameters, with noise of the standard deviations of the test."""

    below_hz: Positive
    """Largest frequency of the measured modes."""
    noise: Annotated[bool, Field(strict=True)] = True
    """Whether noise of the stated standard deviations is added."""


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
    """Inputs or outputs that are references; by default all inputs, or all outputs if they are fewer."""
    chosen_hz: tuple[Positive | PickedPole | tuple[PickedPole, ...], ...] | None = None
    """Poles selected by hand: the stable pole nearest to a frequency, or to a frequency at an order, `[24, 9.91]`. A
    list of such pairs is one mode. `jaxmb modal --pick` writes them."""


class PolesFile(Part):
    """The file `poles.toml` of `jaxmb modal --pick`."""

    modal: ModalPart
    """Options of the modal analysis, with the chosen poles."""


class BandWeight(Part):
    """Weight of the lines in a band, for all FRFs or for those between the named points."""

    band_hz: Annotated[Band, NOT_FALLING]
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
    """Weights by band, in place of `peaks`."""
    elsewhere: NonNegative = 1.0
    """Weight of all other lines; 0 excludes them [1]."""

    @model_validator(mode="after")
    def _peaks_or_bands(self) -> Self:
        if self.peaks is not None and self.bands:
            raise ValueError("gives both peaks and bands, expected one of them")
        return self


class SensorPart(Part):
    """Deviations of the sensors from ideal ones: gravity and high-pass."""

    kind: Literal["accelerometer"] = "accelerometer"
    """Kind of the sensors."""
    gravity: Annotated[bool, Field(strict=True)] = False
    """Whether they respond to gravity when tilted."""
    high_pass_hz: NonNegative = 0.0
    """Corner frequency of a first-order high-pass behind the sensors; 0 without one."""


class FrfTestPart(PostureTestPart, RecordedTestPart):
    """Frequency responses, from a file or simulated."""

    as_published: ClassVar[dict[str, str]] = {"phase": "principal"}

    kind: Literal["frf"]
    """Kind of the test."""
    simulate: Simulate | None = None
    """Simulated FRFs instead of a file."""
    frame: str = "tool"
    """Frame whose x, y, z are outputs and inputs if neither is given."""
    outputs: Points | None = None
    """Sensors, as points; by default the inputs."""
    inputs: Points | None = None
    """Forces, as points; by default the outputs."""
    shape_frames: tuple[str, ...] = ()
    """Further frames at which mode shapes were measured, in x, y and z; not fitted."""
    nodes: dict[str, str] = {}
    """Frame of the machine for each node of the file whose name differs: `{ "1" = "tool" }`."""
    unit: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Unit of the responses if the file states none, `"m/s^2/N"`, `"g/lbf"`; another one that a
    file states is refused, or, if it is the SI unit that its format implies, reported by a remark."""
    symmetrize: Literal["upper", "lower", "mean"] | tuple[str, ...] | None = None
    """Symmetrization of pairs of cross FRFs, each of which then counts as one. `"upper"` mirrors the one above the
    diagonal, `"lower"` the one below, `"mean"` is the mean of both. A list names the response that is kept of some
    pairs, `["tool x / tool y"]` (output / input); the others are averaged. A remark reports pairs of opposite sign."""
    modal: ModalPart | None = None
    """Modal analysis of the FRFs between the points of the test, `shape_frames` included, whose modes are compared with
    the fitted ones."""
    fit: Literal["measured", "synthesized"] = "measured"
    """FRFs to fit: the measured ones, or those of the modal model in the band of `modal`."""
    band_hz: Band | None = None
    """First and last frequency of the fitted lines; by default all."""
    noise_log_std: NoiseLevel = 0.01
    """Standard deviation of log H, real and imaginary part each, in addition to those from `coherence` and
    `cross_axis`. `"estimate"`: from the remaining residual, with its correlation along frequency; refused where there
    are no more measured values than free parameters."""
    coherence: Annotated[bool, Field(strict=True)] = True
    """Whether noise is derived from the coherence of the file, if it has one. Values below twice this noise are
    excluded if the number of averages is known."""
    cross_axis: Annotated[NonNegative, Field(lt=1.0)] | None = None
    """Leakage between axes (transverse sensitivity of sensors, oblique hits): noise that is added to every FRF at a
    line, as a fraction of the largest FRF at that line; 0.03 to 0.05 for common sensors. By default, in a
    study with tolerances, `sensor_direction_deg` determines the leakage between directions at the same point [1]."""
    weights: Weights | None = None
    """Weights of the lines; by default 1."""
    phase: Literal["safe", "principal"] = "safe"
    """`"safe"`: phase of the ratio of predicted and measured FRF; `"principal"`: difference of principal values, as
    printed in eq. 22 of Huynh et al. 2020."""
    sensor: SensorPart = SensorPart()
    """Deviation of the sensors from ideal ones."""
    robust: Annotated[bool, Field(strict=True)] = False
    """Whether outlier lines, at most 5 % of all, are excluded from the fit and listed."""
    check_every: Annotated[int, Field(ge=2, le=10_000, strict=True)] | None = None
    """Every n-th line is held out; it is predicted and compared, as in a test with the role `"check"`."""
    frequency_unit: Annotated[str, Field(min_length=1, max_length=40)] = "Hz"
    """Unit of frequency in figures, tables and sentences: `"cycles per sample"` if the sample rate is unknown."""

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


def _component(value: Any, number: Callable[[Any], Any]) -> Any:
    """A real number, or a complex one from a pair, with one error message instead of the two of a union."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return complex(number(value[0]), number(value[1]))
    return number(value)


Component = Annotated[Number, WrapValidator(_component)]
"""Component of a mode shape."""


class ModesTestPart(PostureTestPart):
    """Natural frequencies, damping ratios, dominant coordinates of each mode, and shapes at sensors."""

    kind: Literal["modes"]
    """Kind of the test."""
    simulate: SimulateModes | None = None
    """Simulated modes instead of measured ones."""
    frequency_hz: tuple[Positive, ...] | None = Field(None, min_length=1)
    """Damped natural frequency of each mode; not beside `simulate`."""
    damping_percent: tuple[Annotated[Positive, Field(lt=100.0)], ...] | None = None
    """Damping ratio of each mode; not beside `simulate`. A remark asks whether they are fractions if all are below
    0.1."""
    content: tuple[tuple[str, ...], ...] | None = None
    """For each mode the coordinates, springs between frames or beams that have most of its strain energy."""
    outputs: Points = ()
    """Sensors of the shapes, as points."""
    shapes: tuple[tuple[Component, ...], ...] | None = None
    """For each mode the component at each sensor, in any scale: a number, or a pair of real and imaginary part [1]."""
    frequency_std_hz: OneOrEach
    """Standard deviation of the frequency, one for all or one for each mode."""
    damping_std_percent: OneOrEach
    """Standard deviation of the damping ratio, one for all or one for each mode."""
    shape_std: Positive = 0.05
    """Standard deviation of each component of a shape, real and imaginary part, relative to the largest [1]."""
    content_share: Annotated[Number, Field(gt=0.0, le=1.0)] = 0.5
    """Smallest share of the strain energy of `content` [1]."""
    content_std: Positive = 0.1
    """Standard deviation of that share [1]."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.simulate is not None:
            for name in ("frequency_hz", "damping_percent", "content", "shapes"):
                if getattr(self, name) is not None:
                    raise ValueError(f"{name} is measured, expected none beside simulate")
            return self
        if self.frequency_hz is None or self.damping_percent is None:
            raise ValueError("expected frequency_hz and damping_percent, or simulate")
        if (self.shapes is None) != (not self.outputs):
            raise ValueError("shapes and outputs belong together, expected both or neither")
        for mode, shape in enumerate(self.shapes or (), 1):
            if len(shape) != len(self.outputs):
                raise ValueError(f"shape {mode} has {len(shape)} entries for {len(self.outputs)} outputs")
        count = len(self.frequency_hz)
        for name in ("damping_percent", "content", "shapes"):
            given = getattr(self, name)
            if given is not None and len(given) != count:
                raise ValueError(f"{name} has {len(given)} entries for {count} frequencies")
        return self
