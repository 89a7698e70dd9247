"""What result.json may hold: checked when a result is read back."""

from typing import Annotated, Any, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, Strict, model_validator

from jaxmb.identify.assess.result import Outcome
from jaxmb.identify.estimation.identifiability import Verdict

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


class SavedParameter(BaseModel):
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


class SavedMode(BaseModel):
    """A `Mode`."""

    posture: str
    frequency_hz: Finite | None
    damped_frequency_hz: Finite | None
    damping_ratio: Finite | None
    frequency_std_hz: NotNegative | None = None
    damping_ratio_std: NotNegative | None = None


class SavedResult(BaseModel):
    """A result as `Result.as_json` gives it."""

    study: str
    study_digest: str | None = None
    status: Annotated[str, Field(pattern=f"^({'|'.join(Outcome)})")]
    seed: Whole
    noise_seed: Whole | None
    cost: Finite | None
    initial_cost: Finite | None
    parameters: dict[str, SavedParameter]
    correlation: Annotated[tuple[tuple[Finite | None, ...], ...], AfterValidator(_correlation)]
    singular_values: tuple[NotNegative | None, ...]
    estimated_noise: dict[str, NotNegative]
    lines_left_out: dict[str, tuple[Whole, ...]] = {}
    modes: tuple[SavedMode, ...]
    metrics: dict[str, Any]
    remarks: tuple[str, ...]
    doubts: tuple[str, ...]
    evaluations: dict[str, Whole]
    seconds: dict[str, Finite | None]
    versions: dict[str, str]
    history: tuple[Finite | None, ...]
    history_evaluations: tuple[Whole, ...]
