"""Schema of a study file, its presets (published methods as settings), and its validated reading.

Errors in the file are reported before JAX is imported.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AliasChoices, BaseModel, Field, field_validator, model_validator

from jaxmb.identify.experiments.tolerances import Tolerances
from jaxmb.identify.fit.settings import Count, RefinePart, SearchPart
from jaxmb.identify.study.format.next_format import Next
from jaxmb.identify.study.format.static_format import CompletePart, DeflectionTestPart, PoseTestPart
from jaxmb.identify.study.format.test_format import or_word
from jaxmb.identify.study.format.torque_format import TorqueTestPart
from jaxmb.identify.study.format.vibration_format import FrfTestPart, ModesTestPart
from jaxmb.io.files import find_description, library_names, read_toml
from jaxmb.io.validation import InputError, Table, check_distinct, error_location, validated
from jaxmb.machine.file import ENDINGS, load_machine
from jaxmb.machine.schema import Machine
from jaxmb.machine.values import Name, NonNegative, Number, Part, Positive, Vector

AMPLITUDE, LOAD = "amplitude", "load"


class LawsPart(Part):
    """`[laws]`: parameters that may follow a smooth law of posture, load or amplitude, selected by cross-validation."""

    parameters: Annotated[tuple[str, ...], Field(min_length=1, max_length=1000)]
    """Names or patterns of free parameters that may follow a law."""
    by: Annotated[tuple[Name, ...], Field(min_length=1, max_length=100)]
    """Covariates of the laws: coordinates, `"amplitude"`, and `"load"`, the static effort of gravity on the parameter's
    own joint."""
    most: Annotated[int, Field(ge=1, le=10, strict=True)] = 3
    """Largest number of coefficients of all laws together."""

    @field_validator("parameters", "by")
    @classmethod
    def _once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        check_distinct(value, "names '{}' twice")
        return value


MOST_TESTS = 200
AnyTestPart = FrfTestPart | ModesTestPart | DeflectionTestPart | TorqueTestPart | PoseTestPart


class FreePart(Part):
    """Bounds of the parameters that a name or pattern selects."""

    lower: Number
    """Lower bound, above 0 on a logarithmic scale [SI]."""
    upper: Number
    """Upper bound [SI]."""
    initial: Number | None = None
    """Initial value inside the bounds; see `start` of the study [SI]."""
    scale: Literal["logarithmic", "linear"] | None = None
    """Logarithmic by default for stiffness, moduli, damping, loss factors, `rayleigh.*`, `fractional.*`,
    `play_load.*`, `gain.*` and `force_gain.*`, else linear."""
    tied: Annotated[bool, Field(strict=True)] = False
    """Whether all parameters that the pattern selects have one common value."""
    needed: Positive | None = None
    """Sufficient standard deviation: of the natural logarithm, or over the width of the bounds on a linear scale.
    `identifiable` is "yes" below it and "weak" below ten times it; by default 0.1, or the limits with a prior [1]."""


class StudyFile(Part):
    """A study: a machine, its tests, the free parameters and the settings of the fit."""

    machine: str
    """Built-in machine, or path of a `.toml`, `.urdf` or `.xml` (MJCF) file."""
    description: str = ""
    """Free text."""
    source: str = ""
    """Free text."""
    note: str = ""
    """Text that becomes the first remark of the result."""
    preset: Literal["default", "huynh2020", "rognant2010"] = Field(
        "default", validation_alias=AliasChoices("preset", "method")
    )
    """A published method as settings; `method` is another name of this key."""
    lock: tuple[str, ...] = ()
    """Coordinates that are rigid in all tests, in addition to those locked in the machine. Postures still state their
    values."""
    gravity: Vector | None = None
    """Acceleration of gravity in the ground's axes; by default the machine's [m/s^2]."""
    linearize_at: Literal["posture", "equilibrium"] = "posture"
    """Point of the linearization: the posture, or the static equilibrium under gravity, with springs unloaded at the
    posture. Deflections are then those from the equilibrium under the weight to that under weight and load."""
    start: Literal["estimate", "random"] = "estimate"
    """Initial values of parameters without `initial`. `"estimate"`: the middle of their bounds (of
    bodies the machine's values, if the mass matrix is singular there), all stiffnesses scaled
    by one factor to the first measured frequency; `"random"`: drawn within the bounds."""
    tolerance: NonNegative | None = None
    """Cost at which the fit stops; by default the cost of a mean error of log H of 1e-8 in FRF tests, or of residuals
    of 1e-6 standard deviations in others [1]."""
    rounds: Annotated[Count, Field(le=10_000)] = 40
    """Largest number of rounds of search and refinement."""
    least_rounds: Count = 8
    """Smallest number of rounds, unless the tolerance is reached."""
    agreement: Count = 3
    """Number of starts that must reach the same best minimum, with a cost that the noise explains."""
    test: tuple[Annotated[AnyTestPart, Field(discriminator="kind")], ...] = Field(  # pyright: ignore[reportInvalidTypeForm]
        min_length=1, max_length=MOST_TESTS
    )
    """Tests, `[[test]]`, of any kinds."""
    free: dict[str, FreePart] = {}
    """Free parameters by name or pattern, `[free]`; a full name overrules a pattern."""
    complete: CompletePart | None = None
    """Instead of `free`, for deflection tests: a complete stiffness model of joints and links."""
    hold: dict[str, Number] = {}
    """Fixed values of parameters, by name or pattern [SI]."""
    prior: dict[str, Positive] = {}
    """Standard deviation of free parameters, by name or pattern, about their initial value: of the natural logarithm,
    or of the value on a linear scale [1, SI]."""
    prior_from: str | None = None
    """Path of the result.json of an earlier fit; `machine` is its machine.toml. Parameters of the machine that were
    free there are free within their bounds, and their prior has the identified values and covariance. `[free]`,
    `[hold]` and `[prior]` overrule it by name. Parameters without a standard deviation there keep their value."""
    tolerances: Annotated[Tolerances | None, or_word("exact", "a table")] = None
    """Standard deviations of the stated numbers of machine and tests, or `"exact"`. By default those usual in the field
    if a test is measured, none in studies of simulated tests."""
    next: Next | None = None
    """Candidates from which `jaxmb inspect` selects the next tests; a fit ignores it."""
    laws: LawsPart | None = None
    """Parameters that may follow a law of posture, load or amplitude."""
    search: SearchPart = SearchPart()
    """Population search that proposes starts."""
    refine: RefinePart = RefinePart()
    """Refinement of the starts."""

    @model_validator(mode="after")
    def _something_to_find(self) -> Self:
        if self.complete is None and not (self.free or any(part.frees_own for part in self.test) or self.prior_from):
            raise ValueError("nothing is free, expected at least one parameter in [free]")
        if self.prior_from and self.preset == "rognant2010":
            raise ValueError("prior_from is given, expected none beside the preset rognant2010")
        others = [key for key in ("free", "hold", "prior", "prior_from", "lock") if getattr(self, key)]
        others += [f"test of kind '{part.kind}'" for part in self.test if part.kind != "deflection"]
        if self.complete is not None and others:
            raise ValueError(f"[complete] is for deflection tests alone, expected no {others[0]} beside it")
        if self.complete is not None and self.linearize_at != "posture":
            raise ValueError(
                f"linearize_at is '{self.linearize_at}', expected 'posture' beside [complete], which is linear in the"
                " compliances"
            )
        return self


def stated_tolerances(file: StudyFile) -> Tolerances | None:
    """Tolerances of a study: the stated ones, else the defaults where a fitted test is measured; None where the
    description is exact, as in studies of simulated tests."""
    if isinstance(file.tolerances, Tolerances):
        return file.tolerances
    measured = any(part.role == "fit" and part.simulate is None for part in file.test)
    return Tolerances() if measured and file.tolerances is None else None


PRESETS = ("default", "huynh2020", "rognant2010")
SMALL = 3
"""Coordinates up to which the settings are those of section 4 of Huynh et al. 2020, of section 5 above."""


def with_preset(file: StudyFile, coordinates: int) -> StudyFile:
    """The study with the settings of its preset.

    "huynh2020" is the method of Huynh et al. 2020, section 3: a genetic algorithm, then Nelder-Mead, repeated from its
    minimum until the cost is below the tolerance or for three rounds (as many as the paper needed), on a linear scale
    of the parameters and with the printed phase of eq. 22. Population, generations, iterations and tolerance are those
    printed in section 4 (three coordinates) or section 5 (more), unless the study states its own.

    "rognant2010" changes no setting: the study is fitted in two steps (`jaxmb.identify.fit.two_steps`).

    Args:
        file: the study.
        coordinates: number of coordinates of its machine.
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
    parts = {
        "search": file.search.model_copy(update=search),
        "refine": file.refine.model_copy(update=refine),
        "free": {name: part.model_copy(update={"scale": "linear"}) for name, part in file.free.items()},
        "test": tuple(part.model_copy(update=part.as_published) for part in file.test),
    }
    return file.model_copy(update=parts | _where_not_given(file, tolerance=1e-12 if small else 300.0, rounds=3))


def with_one_start(file: StudyFile) -> StudyFile:
    """The study with a single refined start where one suffices for all of its tests and it states no other number."""
    if not all(part.one_start for part in file.test):
        return file
    refine = file.refine.model_copy(update=_where_not_given(file.refine, starts=1, keep=1))
    return file.model_copy(update=_where_not_given(file, rounds=1, least_rounds=1, agreement=1) | {"refine": refine})


def _where_not_given(part: BaseModel, **settings: object) -> dict[str, object]:
    return {name: value for name, value in settings.items() if name not in part.model_fields_set}


PATHS = ("file", "machine", "prior_from")
"""Keys of a study file whose values may be paths."""


def study_names() -> tuple[str, ...]:
    """Names of the studies that come with jaxmb."""
    return library_names("studies")


def study_data(name_or_path: str | os.PathLike[str]) -> Table:
    """Contents of a study file as plain data, to be changed and passed to `make_study`.

    Raises:
        InputError: the file does not exist, or is not valid TOML.
    """
    return read_toml(find_description(name_or_path, "studies", "study", (".toml",)))


def read_study_file(
    name_or_path: str | os.PathLike[str], preset: str | None = None, search: str | None = None
) -> tuple[StudyFile, Path]:
    """Description of a study, and the path of its file.

    Args:
        name_or_path: "kr90-modelled", "studies/mine.toml".
        preset: method instead of the study's own: "default", "huynh2020" or "rognant2010".
        search: algorithm of the population search instead of the study's own.

    Raises:
        InputError: the file does not exist, or it or its machine file is invalid; one sentence names the location.
    """
    path = find_description(name_or_path, "studies", "study", (".toml",))
    data = read_toml(path)
    if {"body", "dh", "khalil"} & set(data) and "test" not in data:
        raise InputError(f"{path}: is a machine, expected a study, which names its machine and tests")
    if preset is not None:
        data = {key: value for key, value in data.items() if key != "method"} | {"preset": preset}
    if search is not None:
        own = data.get("search")
        data["search"] = (own if isinstance(own, dict) else {}) | {"algorithm": search}
    file = validated(StudyFile, data, str(path))
    with error_location(str(path)):
        machine_named(file.machine, path.parent)
    return file, path


def machine_named(name: str, folder: Path) -> Machine:
    """Built-in machine, or one in a file; a path is relative to the study's folder."""
    path = folder / name
    return load_machine(path if path.suffix.lower() in ENDINGS else name)


def plain_study(file: StudyFile, folder: Path, path_as: Callable[[Path], Any]) -> Table:
    """A description as the plain data of a study file.

    Args:
        file: the description.
        folder: paths in it are relative to this one.
        path_as: replaces the path of a file.
    """
    return _with_paths(
        file.model_dump(mode="json", exclude_unset=True, exclude_none=True, warnings=False), folder, path_as
    )


def study_digest(file: StudyFile, folder: Path) -> str:
    """SHA-256 of a description and of the contents of the files that it names, independent of their folders."""
    return hashlib.sha256(
        json.dumps(plain_study(file, folder, _contents), sort_keys=True, default=str).encode()
    ).hexdigest()


def _contents(path: Path) -> list[Any]:
    """Name and contents of a file; of a description, its plain data."""
    if path.suffix == ".toml":
        return [path.name, _with_paths(read_toml(path), path.parent, _contents)]
    with path.open("rb") as file:
        return [path.name, hashlib.file_digest(file, "sha256").hexdigest()]


def _with_paths(value: Any, folder: Path, path_as: Callable[[Path], Any]) -> Any:
    if isinstance(value, list):
        return [_with_paths(entry, folder, path_as) for entry in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _with_paths(entry, folder, path_as) for key, entry in value.items()}
    for key in PATHS:
        # any other text names a built-in machine, measurement or motion
        if isinstance(changed.get(key), str) and (folder / changed[key]).is_file():
            changed[key] = path_as(folder / changed[key])
    return changed
