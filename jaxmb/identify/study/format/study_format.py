"""A study file as plain validated data, in the terms of the user, and presets of it: published methods as settings."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BaseModel, Field, WrapValidator, field_validator, model_validator

from jaxmb.identify.experiments.tolerances import Tolerances
from jaxmb.identify.fit.settings import Count, RefinePart, SearchPart
from jaxmb.identify.study.format.deflection_format import CompletePart, DeflectionTestPart
from jaxmb.identify.study.format.frf_format import FrfTestPart
from jaxmb.identify.study.format.modes_format import ModesTestPart
from jaxmb.identify.study.format.next_format import Next
from jaxmb.identify.study.format.pose_format import PoseTestPart
from jaxmb.identify.study.format.torque_format import TorqueTestPart
from jaxmb.machine.families import OF_GEOMETRY
from jaxmb.machine.values import Name, NonNegative, Number, Part, Positive, Vector

AMPLITUDE, LOAD = "amplitude", "load"


class LawsPart(Part):
    """`[laws]`: parameters that may follow a smooth law of posture, load or amplitude, if what is held out says so."""

    parameters: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]
    """Names or patterns of free parameters."""
    by: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
    """Coordinates, "amplitude" (of each test) and "load" (gravity on the parameter's own joint)."""
    most: Annotated[int, Field(ge=1, le=10, strict=True)] = 3
    """Most coefficients of all laws together."""

    @field_validator("parameters", "by")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for name in value:
            if value.count(name) > 1:
                raise ValueError(f"names '{name}' twice")
        return value


MOST_TESTS = 200
AnyTestPart = FrfTestPart | ModesTestPart | DeflectionTestPart | TorqueTestPart | PoseTestPart


class FreePart(Part):
    """Bounds of the parameters that a name or pattern selects."""

    lower: Number
    upper: Number
    initial: Number | None = None
    scale: Literal["logarithmic", "linear"] | None = None
    """Logarithmic for stiffness and damping, linear for all else, where not given."""
    tied: Annotated[bool, Field(strict=True)] = False
    """One value for all that the pattern selects."""
    needed: Positive | None = None
    """Standard deviation that is sufficient, in the measure of `identifiable`; 0.1 where not given."""


def _or_exact(value: Any, table: Callable[[Any], Any]) -> Any:
    """The word beside a table, without the two messages of a union."""
    return value if value == "exact" else table(value)


StatedTolerances = Annotated[Tolerances | None, WrapValidator(_or_exact)]
"""Tolerances; or "exact", for none."""


class StudyFile(Part):
    """A study: a machine, its tests, the free parameters and the settings of the fit."""

    machine: str
    description: str = ""
    source: str = ""
    note: str = ""
    """What a reader of the results has to know; their first remark."""
    preset: Literal["default", "huynh2020", "rognant2010"] = Field(
        "default", validation_alias=AliasChoices("preset", "method")
    )
    """A published method; `method` is another name of the key."""
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
    test: tuple[Annotated[AnyTestPart, Field(discriminator="kind")], ...] = Field(  # pyright: ignore[reportInvalidTypeForm]
        min_length=1, max_length=MOST_TESTS
    )
    free: dict[str, FreePart] = {}
    complete: CompletePart | None = None
    """Instead of `free`, for deflection tests: a complete stiffness model of joints and links."""
    hold: dict[str, Number] = {}
    """Parameters, by name or pattern, that keep a given value and are not free."""
    prior: dict[str, Positive] = {}
    """Standard deviation of the natural logarithm of a parameter about its initial value, by name or pattern."""
    tolerances: StatedTolerances = None
    """Standard deviations of the stated numbers of machine and tests, or "exact" for none; by default those usual in
    the field where a test is measured, none in studies of simulated tests."""
    next: Next | None = None
    """Out of which candidates the next tests are to be chosen."""
    laws: LawsPart | None = None
    """Which parameters may follow a law of posture, load or amplitude."""
    search: SearchPart = SearchPart()
    refine: RefinePart = RefinePart()

    @property
    def frees_geometry(self) -> bool:
        """Whether deviations from the stated geometry of the machine are free."""
        return any(pattern.split(".")[0] in OF_GEOMETRY for pattern in self.free)

    @model_validator(mode="after")
    def _something_to_find(self) -> Self:
        has_stations = any(part.kind == "pose" for part in self.test)
        if self.complete is None and not self.free and not has_stations:
            raise ValueError("nothing is free, expected at least one parameter in [free]")
        if self.complete is not None and (self.free or self.hold):
            raise ValueError("[complete] says what is to be found, expected no [free] and no [hold] beside it")
        return self


def stated_tolerances(file: StudyFile) -> Tolerances | None:
    """Tolerances of a study: those stated, else those of the field where a fitted test is measured; None where all is
    as described, as in studies of simulated tests."""
    if isinstance(file.tolerances, Tolerances):
        return file.tolerances
    measured = any(part.role == "fit" and part.simulate is None for part in file.test)
    return Tolerances() if measured and file.tolerances is None else None


PRESETS = ("default", "huynh2020", "rognant2010")
SMALL = 3
"""Coordinates up to which the settings are those of section 4 of Huynh et al. 2020, of section 5 above."""


def with_preset(file: StudyFile, coordinates: int) -> StudyFile:
    """The study with the settings of its preset.

    "huynh2020" is the method of Huynh et al. 2020, section 3: a genetic algorithm and then Nelder-Mead, again from
    there until the cost is below the tolerance or after three rounds (as many as the paper needed), on the parameters
    themselves and with the printed phase of eq. 22. Population, generations, iterations and tolerance are those printed
    in section 4 (three coordinates) or section 5 (more), where the study does not give its own.

    "rognant2010" changes no setting: the study is fitted in two steps (`jaxmb.identify.fit.two_steps`).

    Args:
        file: the study.
        coordinates: how many coordinates its machine has.
    """
    if file.preset != "huynh2020":
        return file
    small = coordinates <= SMALL
    search = {"algorithm": "SimpleGA"} | _where_not_given(
        file.search, population=80 if small else 100, generations=15 if small else 20
    )
    refine = {"method": "nelder-mead", "coarse_lines": 0, "starts": 1, "keep": 1} | _where_not_given(
        file.refine, most_steps=5000 if small else 10_000
    )
    free = {name: part.model_copy(update={"scale": "linear"}) for name, part in file.free.items()}
    test = tuple(part.as_published() for part in file.test)
    whole = _where_not_given(file, tolerance=1e-12 if small else 300.0, rounds=3)
    parts = {
        "search": file.search.model_copy(update=search),
        "refine": file.refine.model_copy(update=refine),
        "free": free,
        "test": test,
    }
    return file.model_copy(update=whole | parts)


def with_one_start(file: StudyFile) -> StudyFile:
    """The study, one start of which is refined where all of its tests are poses and it does not say otherwise.

    Poses are nearly linear in deviations from the stated geometry, about which such a fit starts.
    """
    if any(part.kind != "pose" for part in file.test):
        return file
    refine = file.refine.model_copy(update=_where_not_given(file.refine, starts=1, keep=1))
    whole = _where_not_given(file, rounds=1, least_rounds=1, agreement=1)
    return file.model_copy(update=whole | {"refine": refine})


def _where_not_given(part: BaseModel, **settings: object) -> dict[str, object]:
    return {name: value for name, value in settings.items() if name not in part.model_fields_set}
