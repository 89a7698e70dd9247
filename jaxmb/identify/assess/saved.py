"""Results in folders: written, and read back without another fit."""

import contextlib
import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import jax.numpy as jnp
import numpy as np
import tomli_w
from pydantic import BaseModel, ConfigDict, Field, Strict, model_validator

from jaxmb.identify.assess.estimate import CovarianceWithErrors
from jaxmb.identify.assess.kinds import read_metrics
from jaxmb.identify.assess.metrics import Metrics
from jaxmb.identify.assess.result import (
    SCHEMA,
    Mode,
    Outcome,
    Parameter,
    Result,
    scale_of_values,
    with_interval,
)
from jaxmb.identify.assess.stiffness_model import completed_machine
from jaxmb.identify.estimation.identifiability import Verdict
from jaxmb.identify.fit.problem import with_tests
from jaxmb.identify.parameters.model_parameters import with_numbers
from jaxmb.identify.study.format.study_format import StudyFile, plain_study
from jaxmb.identify.study.study import Solver, Study, StudyOrigin, make_study
from jaxmb.io.files import read_strict, read_toml, write_atomically
from jaxmb.io.validation import InputError, Table, validated
from jaxmb.machine.build import Model
from jaxmb.machine.file import MACHINE_FILE as MACHINE, RESULT_FILE as RESULT, check_machine, machine_toml
from jaxmb.machine.schema import Machine
from jaxmb.machine.urdf import beyond_urdf, urdf_text
from jaxmb.mechanics.mjcf import exported_mjcf

ROUNDING = 1e-6
"""Tolerance of the checks of correlations and intervals."""
Finite = Annotated[float, Strict(), Field(allow_inf_nan=False)]
NotNegative = Annotated[Finite, Field(ge=0.0)]
Whole = Annotated[int, Strict()]


class Strictly(BaseModel):
    """A part of the file; unknown keys are rejected."""

    model_config = ConfigDict(extra="forbid")


class SavedParameter(Strictly):
    """A `Parameter` in result.json."""

    value: Finite
    std: NotNegative | None
    std_log: NotNegative | None
    unit: str
    lower: Finite | None
    upper: Finite | None
    initial: Finite
    identifiable: Verdict
    interval_95: tuple[Finite | None, Finite | None]


class SavedErrors(Strictly):
    """`CovarianceWithErrors` in result.json."""

    errors: tuple[str, ...]
    std: tuple[NotNegative, ...]
    matrix: tuple[tuple[Finite | None, ...], ...]


class SavedResult(Strictly):
    """A result in the layout of `Result.as_json`."""

    schema_: Whole = Field(alias="schema")
    study: str
    study_digest: str | None = None
    description: str = ""
    status: Annotated[str, Field(pattern=f"^({'|'.join(Outcome)})")]
    seed: Whole
    noise_seed: Whole | None
    cost: Finite | None
    initial_cost: Finite | None
    parameters: dict[str, SavedParameter]
    covariance: Table
    covariance_with_errors: SavedErrors | None = None
    correlation: tuple[tuple[Finite | None, ...], ...]
    singular_values: tuple[NotNegative | None, ...]
    estimated_noise: dict[str, NotNegative]
    lines_left_out: dict[str, tuple[Whole, ...]] = {}
    machine_digest: str | None = None
    linearize_at: str = "posture"
    modes: tuple[dict[str, str | Finite | None], ...]
    metrics: Table
    remarks: tuple[str, ...]
    doubts: tuple[str, ...]
    evaluations: dict[str, Whole]
    seconds: dict[str, Finite | None]
    versions: dict[str, str]
    history: tuple[Finite | None, ...]
    history_evaluations: tuple[Whole, ...]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for name, saved in self.parameters.items():
            if not _is_consistent(name, saved):
                raise ValueError(f"parameters, {name}: value, std, std_log and interval_95 contradict each other")
        return self


def _is_consistent(name: str, saved: SavedParameter) -> bool:
    """Whether standard deviations and interval are consistent with the value, on one of the two scales."""
    found = _parameter(saved.model_dump())
    if math.isfinite(found.std_log) and not math.isclose(found.std, found.std_log * abs(found.value), rel_tol=ROUNDING):
        return False
    expected = (with_interval(name, found, logarithmic).interval_95 or (None, None) for logarithmic in (True, False))
    return any(
        np.allclose(*(np.array(ends, dtype=float) for ends in (saved.interval_95, each)), rtol=ROUNDING,
                    atol=ROUNDING * abs(found.value), equal_nan=True)
        for each in expected
    )  # fmt: skip


def read_saved(path: Path, others: bool = False) -> Any:
    """Contents of a result.json, checked.

    Args:
        path: of the file.
        others: whether a file without `schema`, not written by jaxmb, is returned unchecked.

    Raises:
        InputError: it cannot be read, was not written by this version of jaxmb, or has inconsistent values.
    """
    saved = read_strict(path, "a result of an identification")
    if others and not (isinstance(saved, dict) and "schema" in saved):
        return saved
    if not isinstance(saved, dict) or saved.get("schema") != SCHEMA or "noise_seed" not in saved:
        raise InputError(f"{path}: was not written by this version of jaxmb, expected a result of its `jaxmb identify`")
    validated(SavedResult, saved, str(path))
    return saved


STUDY, URDF, MJCF = "study.toml", "machine.urdf", "machine.xml"
PARAMETERS, POSES = "parameters.csv", "poses.csv"


def write_result(result: Result, folder: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write a result: result.json, parameters.csv, machine.toml (the identified machine), study.toml (the study with
    absolute paths), poses.csv of pose tests (predictions with standard deviations), machine.urdf for open chains of
    joints without stiffness (`write_urdf`), and machine.xml where MuJoCo is installed and can describe the machine
    (`write_mjcf`).

    Args:
        result: the identification.
        folder: created where there is none.

    Returns:
        Names of the files.

    Raises:
        OSError: a file cannot be written; none is left half-written.
    """
    folder, machine, poses = Path(folder), result.machine, result.table("poses")
    folder.mkdir(parents=True, exist_ok=True)
    is_elastic = any(joint.stiffness for body in machine.body for joint in body.joint)
    texts = {
        RESULT: result.json_text(),
        PARAMETERS: csv_text(result.table("parameters")),
        MACHINE: machine_toml(machine),
        POSES: csv_text(poses) if poses["row"] else None,
        URDF: None if is_elastic or beyond_urdf(machine) else urdf_text(machine),
        MJCF: exported_mjcf(machine),
        STUDY: study_toml(result.study.origin),
    }
    for name, text in texts.items():
        if text is None:
            (folder / name).unlink(missing_ok=True)  # of an earlier result
        else:
            write_atomically(folder / name, text.encode())
    return tuple(name for name, text in texts.items() if text is not None)


def csv_text(columns: Mapping[str, Sequence[object]]) -> str:
    """Columns as CSV text with a line of their names; unknown numbers are empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow("" if isinstance(x, float) and not math.isfinite(x) else x for x in row)
    return buffer.getvalue()


def study_toml(origin: StudyOrigin) -> str:
    """The description of a study as TOML text, with absolute paths."""
    return tomli_w.dumps(plain_study(origin.file, origin.folder, lambda path: str(path.resolve())))


def load_result(folder: str | os.PathLike[str]) -> Result:
    """The result of `identify`, from a folder written by `jaxmb identify` or `write_result`.

    The study is read again, with its data; all numbers are those of result.json.

    Args:
        folder: with result.json and study.toml.

    Raises:
        InputError: a file is missing or invalid, the data of the study have been moved, or the study or its data have
            changed since the result was written.
    """
    folder = Path(folder)
    saved = read_saved(folder / RESULT)
    check_machine(folder)
    try:
        file = validated(StudyFile, read_toml(folder / STUDY), str(folder / STUDY))
        study = make_study(file, saved["study"], folder, str(folder / STUDY), saved["noise_seed"])
    except ValueError as error:
        raise InputError(f"{folder}: the study of the result cannot be read again: {error}") from None
    if saved.get("study_digest", study.origin.digest) != study.origin.digest:
        raise InputError(
            f"{folder}: {STUDY} is not the one the result was found from, or a file that it names has changed since"
        )
    try:
        expected = [name for names in study.free.tied for name in names]
        # those of a stiffness model have other names
        if study.solver is not Solver.STIFFNESS_MODEL and set(saved["parameters"]) != set(expected):
            raise ValueError(f"parameters: found {', '.join(saved['parameters'])}, expected {', '.join(expected)}")
        metrics = read_metrics(saved["metrics"], study)
        parameters = {name: _parameter(data) for name, data in saved["parameters"].items()}
        model, machine = _machine(study, metrics, parameters)
        if study.relinearized:
            with contextlib.suppress(ValueError):  # as in the fit, which goes on without it
                study = study.linearized_about(model)
        study = study.at_values(np.array([parameters[name].value for name in study.free.names]))
        study = _with_saved_noise(study, model, saved["estimated_noise"], saved.get("lines_left_out", {}))
        result = Result(
            study=study,
            status=saved["status"],
            seed=saved["seed"],
            cost=_number(saved["cost"]),
            initial_cost=_number(saved["initial_cost"]),
            parameters=parameters,
            modes=tuple(Mode(**_known(line)) for line in saved["modes"]),
            metrics=metrics,
            remarks=tuple(saved["remarks"]),
            doubts=tuple(saved["doubts"]),
            correlation=np.array(saved["correlation"], dtype=float),
            singular_values=np.array(saved["singular_values"], dtype=float),
            model=model,
            machine=machine,
            evaluations=saved["evaluations"],
            seconds=saved["seconds"],
            history=[(n, _number(c)) for n, c in zip(saved["history_evaluations"], saved["history"], strict=True)],
            versions=saved["versions"],
            covariance_with_errors=CovarianceWithErrors.read(
                saved.get("covariance_with_errors"), scale_of_values(study.free)
            ),
        )
        _check_covariance(saved["covariance"], result)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        text = error if isinstance(error, ValueError) else repr(error)
        raise InputError(f"{folder / RESULT}: does not belong to the study beside it: {text}") from None
    return result


def _known(data: Table) -> Table:
    """Numbers of a record, inf in place of null."""
    return {name: math.inf if x is None else x for name, x in data.items()}


def _check_covariance(saved: Table, result: Result) -> None:
    """Raise ValueError where the covariance is inconsistent with parameters and correlation."""
    expected = result.as_json()["covariance"]
    if {**saved, "matrix": 0} != {**expected, "matrix": 0}:
        raise ValueError("covariance: is not that of the parameters")
    matrix, known = (np.array(each["matrix"], dtype=float) for each in (saved, expected))
    if matrix.shape != known.shape or not np.allclose(matrix, known, rtol=1e-6, atol=0.0, equal_nan=True):
        raise ValueError("covariance: does not have the standard deviations and the correlation of the parameters")


def _parameter(data: Table) -> Parameter:
    low, high = data["interval_95"]
    ends = {"lower": _number(data["lower"], -math.inf), "interval_95": None if low is None else (low, high)}
    return Parameter(**{**_known(data), **ends})


def _number(value: float | None, unknown: float = math.nan) -> float:
    return unknown if value is None else value


def _with_saved_noise(
    study: Study, model: Model, levels: Mapping[str, float], left_out: Mapping[str, Sequence[int]]
) -> Study:
    """The study with the noise estimated in its fit, and without the excluded lines."""
    tests = []
    for test in study.tests:
        level, own = levels.get(test.name), test.noise.at_fit(test.view(model)) if test.noise.follows_fit else test
        own = own if level is None else own.noise.with_level(level)
        lines = np.array(left_out.get(test.name, ()), dtype=int)
        tests.append(own.lines.without(lines) if own.lines is not None and lines.size else own)
    return study.with_problem(with_tests(study.problem, tests))


def _machine(study: Study, metrics: Metrics, parameters: Mapping[str, Parameter]) -> tuple[Model, Machine]:
    """The identified machine."""
    if metrics.stiffness_model is not None:
        return completed_machine(study, metrics.stiffness_model.completion)
    values = [parameters[name].value for name in study.free.names]
    model = with_numbers(study.free.apply(study.model, jnp.asarray(values)), metrics.adjusted_parameters or {})
    return model, study.machine_with(model)
