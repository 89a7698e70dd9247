"""What result.json may hold: checked when a result is read back."""

import math
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator

from jaxmb.identify.assess.result import SCHEMA, Outcome, Parameter, with_interval
from jaxmb.identify.estimation.identifiability import Verdict
from jaxmb.io.strict_json import read_strict
from jaxmb.io.validation import InputError, validated

ROUNDING = 1e-6
"""By which what is a correlation may miss one."""
Finite = Annotated[float, Strict(), Field(allow_inf_nan=False)]
NotNegative = Annotated[Finite, Field(ge=0.0)]
Whole = Annotated[int, Strict()]


def _correlation(rows: tuple[tuple[float | None, ...], ...]) -> tuple[tuple[float | None, ...], ...]:
    if any(len(row) != len(rows) for row in rows):
        raise ValueError("expected as many rows as columns")
    matrix = np.array(rows, dtype=float).reshape(len(rows), len(rows))  # null becomes NaN
    if not np.allclose(matrix, matrix.T, rtol=0.0, atol=ROUNDING, equal_nan=True):
        raise ValueError("expected a symmetric matrix")
    if np.any(np.abs(matrix) > 1.0 + ROUNDING):
        raise ValueError("expected numbers from -1 to 1")
    return rows


class Strictly(BaseModel):
    """A part of the file, with no key but its own."""

    model_config = ConfigDict(extra="forbid")


class SavedParameter(Strictly):
    """A `Parameter`."""

    value: Finite
    std: NotNegative | None
    std_log: NotNegative | None
    unit: str
    lower: Finite | None
    upper: Finite | None
    initial: Finite
    identifiable: Verdict
    interval_95: tuple[Finite | None, Finite | None]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.interval_95
        if (low is None) != (high is None) or (low is not None and high is not None and low > high):
            raise ValueError("expected an interval_95 with its lower end first, or null twice")
        return self


class SavedMode(Strictly):
    """A `Mode`."""

    posture: str
    frequency_hz: Finite | None
    damped_frequency_hz: Finite | None
    damping_ratio: Finite | None
    frequency_std_hz: NotNegative | None = None
    damping_ratio_std: NotNegative | None = None


class SavedResult(Strictly):
    """A result as `Result.as_json` gives it."""

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
    covariance: dict[str, Any] | None = None
    correlation: Annotated[tuple[tuple[Finite | None, ...], ...], AfterValidator(_correlation)]
    singular_values: tuple[NotNegative | None, ...]
    estimated_noise: dict[str, NotNegative]
    lines_left_out: dict[str, tuple[Whole, ...]] = {}
    machine_digest: str | None = None
    linearize_at: str = "posture"
    modes: tuple[SavedMode, ...]
    metrics: dict[str, Any]
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
    """Whether deviations and interval belong to the value, on one of the two scales."""
    data: dict[str, Any] = saved.model_dump() | {
        key: math.inf for key in ("std", "std_log") if getattr(saved, key) is None
    }
    found = Parameter(**data)
    if math.isfinite(found.std_log) and not math.isclose(found.std, found.std_log * abs(found.value), rel_tol=ROUNDING):
        return False
    expected = (with_interval(name, found, logarithmic).interval_95 or (None, None) for logarithmic in (True, False))
    rounding = ROUNDING * abs(found.value)
    return any(
        np.allclose(*(np.array(ends, dtype=float) for ends in (saved.interval_95, each)), rtol=ROUNDING, atol=rounding,
                    equal_nan=True)
        for each in expected
    )  # fmt: skip


def read_saved(path: Path, others: bool = False) -> Any:
    """Contents of a result.json, checked.

    Args:
        path: of the file.
        others: whether a file without `schema`, which jaxmb did not write, is returned as it is.

    Raises:
        InputError: it cannot be read, was not written by this version of jaxmb, or was changed so that its numbers
            contradict each other.
    """
    saved = read_strict(path, "a result of an identification")
    if others and not (isinstance(saved, dict) and "schema" in saved):
        return saved
    if not isinstance(saved, dict) or saved.get("schema") != SCHEMA or "noise_seed" not in saved:
        raise InputError(f"{path}: was not written by this version of jaxmb, expected a result of its `jaxmb identify`")
    validated(SavedResult, saved, str(path))
    return saved
