"""What a study file may hold: plain validated data, in the terms of the user."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, WrapValidator, model_validator

from jaxmb.identify.study.format.deflection_format import CompletePart, DeflectionTestPart
from jaxmb.identify.study.format.law_format import LawsPart
from jaxmb.identify.study.format.next_format import NextPart
from jaxmb.identify.study.format.simulation_format import Count, Simulate, SimulateModes
from jaxmb.machine.values import Angle, Name, NonNegative, Number, Part, Positive, Vector

Band = tuple[NonNegative, NonNegative]
PointName = tuple[str, str]
MOST_TESTS = 200


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else value


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
    outputs: tuple[PointName, ...] | None = None
    inputs: tuple[PointName, ...] | None = None


class Weights(Part):
    """Weights of an FRF test: peaks picked, or bands by hand, and the rest."""

    peaks: NonNegative | None = None
    half_width_lines: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 2
    prominence: Positive = 0.1
    """How far a peak stands out of the lines around it to count, in decades of magnitude."""
    bands: tuple[BandWeight, ...] = ()
    elsewhere: NonNegative = 1.0

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.peaks is not None and self.bands:
            raise ValueError("gives both peaks and bands, expected one of them")
        return self


def _component(value: Any, number: Callable[[Any], Any]) -> Any:
    """A pair for a complex number beside a plain one, without the two messages that a union gives."""
    if isinstance(value, list | tuple) and len(value) == 2:
        return complex(number(value[0]), number(value[1]))
    return number(value)


Component = Annotated[Number, WrapValidator(_component)]
"""Component of a mode shape."""


class TestPart(Part):
    """What all tests have."""

    __test__ = False

    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    posture: dict[Name, Angle] = {}
    role: Literal["fit", "check"] = "fit"
    """"check": it is predicted and compared, and the fit does not see it."""
    amplitude: Positive | None = None
    """Level of the force or motion, in a unit that all tests share; for laws of it."""


class FrfTestPart(TestPart):
    """Frequency responses, from a file or simulated."""

    kind: Literal["frf"]
    file: str | None = None
    simulate: Simulate | None = None
    frame: str = "tool"
    outputs: tuple[PointName, ...] | None = None
    inputs: tuple[PointName, ...] | None = None
    shape_frames: tuple[str, ...] = ()
    """Frames at which mode shapes were measured beside the outputs, in x, y and z; the fit does not see them."""
    nodes: dict[str, str] = {}
    """Frame of the machine at each node of the file, where the file calls it otherwise."""
    unit: Annotated[str, Field(min_length=1, max_length=40)] | None = None
    """Unit of the responses in the file, where it does not say."""
    symmetrize: Literal["upper", "lower", "mean"] | None = None
    """What becomes of a pair of cross FRFs: both the one above the diagonal, both the one below, both their mean."""
    modal: ModalPart | None = None
    fit: Literal["measured", "synthesized"] = "measured"
    """Whether the fit sees the FRFs as they were measured, or as the modal model gives them."""
    band_hz: Band | None = None
    noise_log_std: NoiseLevel = 0.01
    """Standard deviation of log H beside what the coherence tells; "estimate": from what the fit leaves."""
    coherence: Annotated[bool, Field(strict=True)] = True
    """Whether lines of low coherence count for less, where there is a coherence."""
    cross_axis: Annotated[NonNegative, Field(lt=1.0)] = 0.0
    """Share of the largest response at a line that is taken to leak into the others: sensors that feel motion across
    their axis, hits that are askew."""
    weights: Weights | None = None
    phase: Literal["safe", "principal"] = "safe"
    check_every: Annotated[int, Field(ge=2, le=10_000, strict=True)] | None = None
    """Every so many lines one is held out: it is predicted and compared, and the fit does not see it."""
    frequency_unit: Annotated[str, Field(min_length=1, max_length=40)] = "Hz"
    """What figures call the unit of frequency, which the fit takes for hertz."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.file is None) == (self.simulate is None):
            raise ValueError("expected either file or simulate")
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


class ModesTestPart(TestPart):
    """Natural frequencies and damping ratios, which coordinates dominate each mode, and shapes at sensors."""

    kind: Literal["modes"]
    simulate: SimulateModes | None = None
    """Instead of the measured values."""
    frequency_hz: tuple[Positive, ...] | None = Field(None, min_length=1)
    damping_percent: tuple[Annotated[Positive, Field(lt=100.0)], ...] | None = None
    content: tuple[tuple[str, ...], ...] | None = None
    outputs: tuple[PointName, ...] = ()
    """Sensors of the shapes."""
    shapes: tuple[tuple[Component, ...], ...] | None = None
    """One list for each mode: what each sensor moves, of any common scale; a number, or [real, imaginary]."""
    frequency_std_hz: Annotated[tuple[Positive, ...], BeforeValidator(_listed)]
    damping_std_percent: Annotated[tuple[Positive, ...], BeforeValidator(_listed)]
    shape_std: Positive = 0.05
    """Standard deviation of each component of a shape, real and imaginary part, whose largest is 1."""
    content_share: Annotated[Number, Field(gt=0.0, le=1.0)] = 0.5
    content_std: Positive = 0.1

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
        if self.shapes is not None:
            for mode, shape in enumerate(self.shapes, 1):
                if len(shape) != len(self.outputs):
                    raise ValueError(f"shape {mode} has {len(shape)} entries for {len(self.outputs)} outputs")
        count = len(self.frequency_hz)
        for name in ("damping_percent", "content", "shapes", "frequency_std_hz", "damping_std_percent"):
            given = getattr(self, name)
            allowed = (1, count) if name.endswith(("std_hz", "std_percent")) else (count,)
            if given is not None and len(given) not in allowed:
                raise ValueError(f"{name} has {len(given)} entries for {count} frequencies")
        return self


class PlannedTestPart(TestPart):
    """A kind of test that the format names and this version cannot run."""

    kind: Literal["torque"]

    @model_validator(mode="before")
    @classmethod
    def _not_yet(cls, data: Any) -> Any:
        raise NotImplementedError(f"tests of kind '{data['kind']}' cannot be run by this version")


class FreePart(Part):
    """Bounds of the parameters that a name or pattern selects."""

    lower: Number
    upper: Number
    initial: Number | None = None
    scale: Literal["logarithmic", "linear"] | None = None
    """Logarithmic for stiffness and damping, linear for all else, where not given."""
    tied: Annotated[bool, Field(strict=True)] = False
    """One value for all that the pattern selects."""


class SearchPart(Part):
    """Population search that proposes starts; "random" draws them evenly over the bounds."""

    algorithm: Name = "random"
    population: Count = 32
    generations: Count = 10


class RefinePart(Part):
    """Refinement from the best candidates."""

    method: Literal["least-squares", "nelder-mead", "adam", "l-bfgs"] = "least-squares"
    starts: Annotated[Count, Field(le=10_000)] = 2
    """Candidates of each round."""
    coarse_lines: Annotated[int, Field(ge=0, le=10_000, strict=True)] = 32
    """Lines of each FRF that all starts are first fitted to, evenly weighted; 0 leaves that out."""
    coarse_steps: Count = 150
    keep: Annotated[Count, Field(le=1000)] = 2
    """How many of the starts go on to all lines and the study's own weights."""
    most_steps: Count = 200
    """Most steps of least squares, or evaluations of another method."""
    gradient_tolerance: NonNegative = 1e-9


class StudyFile(Part):
    """A study: a machine, the tests made of it, what is free, and how to fit."""

    machine: str
    description: str = ""
    source: str = ""
    note: str = ""
    """What a reader of the results has to know; their first remark."""
    preset: Literal["default", "huynh2020"] = "default"
    lock: tuple[str, ...] = ()
    """Coordinates of the machine that are locked."""
    gravity: Vector | None = None
    linearize_at: Literal["posture", "equilibrium"] = "posture"
    start: Literal["estimate", "random"] = "estimate"
    """Where parameters without an initial value start: in the middle of their bounds, stiffnesses scaled together to
    the first measured frequency; or at random."""
    tolerance: NonNegative | None = None
    """Cost below which the fit is good enough to stop; by default a mean error of log H of 1e-8, or, without any FRF,
    of a millionth of the standard deviations."""
    rounds: Annotated[Count, Field(le=10_000)] = 40
    least_rounds: Count = 8
    """Rounds before the fit may stop for another reason than its tolerance."""
    agreement: Count = 3
    """Stop where this many starts came to the same best minimum, and the noise explains its cost."""
    test: tuple[
        Annotated[FrfTestPart | ModesTestPart | DeflectionTestPart | PlannedTestPart, Field(discriminator="kind")], ...
    ] = Field(min_length=1, max_length=MOST_TESTS)  # fmt: skip
    free: dict[str, FreePart] = {}
    complete: CompletePart | None = None
    """Instead of `free`, for deflection tests: a complete stiffness model of joints and links."""
    hold: dict[str, Number] = {}
    """Parameters, by name or pattern, that keep a given value and are not free."""
    prior: dict[str, Positive] = {}
    """Standard deviation of the natural logarithm of a parameter about its initial value, by name or pattern."""
    next: NextPart | None = None
    """Out of which candidates the next tests are to be chosen."""
    laws: LawsPart | None = None
    """Which parameters may follow a law of posture, load or amplitude."""
    search: SearchPart = SearchPart()
    refine: RefinePart = RefinePart()

    @model_validator(mode="after")
    def _something_to_find(self) -> Self:
        if self.complete is None and not self.free:
            raise ValueError("nothing is free, expected at least one parameter in [free]")
        if self.complete is not None and (self.free or self.hold):
            raise ValueError("[complete] says what is to be found, expected no [free] and no [hold] beside it")
        return self
