"""Values and covariance of an earlier result as the prior of a study."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Literal, Self

import numpy as np
import scipy
from jaxtyping import Float
from pydantic import BaseModel, model_validator

from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.io.records import read_strict
from jaxmb.io.validation import validated
from jaxmb.machine.build import Model

ROUNDING = 1e-9
"""Relative difference of values that are equal to the digits of a machine file."""


class EarlierValue(BaseModel):
    """A parameter in result.json."""

    value: float
    lower: float
    upper: float


class EarlierCovariance(BaseModel):
    """Covariance in result.json: of natural logarithms ("log") or of values in SI units ("linear")."""

    names: tuple[str, ...]
    tied: tuple[tuple[str, ...], ...]
    scale: tuple[Literal["log", "linear"], ...]
    matrix: tuple[tuple[float | None, ...], ...]

    @model_validator(mode="after")
    def _same_size(self) -> Self:
        size = len(self.names)
        if not {len(self.tied), len(self.scale), len(self.matrix), *map(len, self.matrix)} == {size}:
            raise ValueError(f"covariance: has {size} names, expected as many scales, tied names, rows and columns")
        return self


class EarlierResult(BaseModel):
    """The part of result.json that describes an identified machine."""

    parameters: dict[str, EarlierValue]
    covariance: EarlierCovariance

    @property
    def matrix(self) -> Float[np.ndarray, "k k"]:
        """The covariance; NaN where unknown."""
        return np.array(self.covariance.matrix, dtype=float)

    def bounds(self, model: Model, others: Sequence[Bound], fixed: Collection[str]) -> list[Bound]:
        """Bounds of the machine's parameters with a standard deviation, without those that a study names itself.

        Args:
            model: the identified machine.
            others: bounds of the study.
            fixed: names of held parameters.

        Raises:
            ValueError: no parameter has a standard deviation, or the machine is not the identified one.
        """
        known, own = np.isfinite(np.diag(self.matrix)), parameters(model)
        named = {name for bound in others for name in bound.names} | set(fixed)
        found = []
        for tied, scale, is_known in zip(self.covariance.tied, self.covariance.scale, known.tolist(), strict=True):
            first = self.parameters[tied[0]]
            if tied[0] not in own:  # a station, a gain
                continue
            if not np.isclose(own[tied[0]], first.value, rtol=ROUNDING, atol=ROUNDING * (first.upper - first.lower)):
                raise ValueError(
                    f"'{tied[0]}' is {own[tied[0]]:g} in the machine and {first.value:g} in the earlier result,"
                    " expected the identified machine (machine.toml beside it)"
                )
            if is_known and not named & set(tied):
                found.append(Bound(tied, first.lower, first.upper, first.value, logarithmic=scale == "log"))
        if not known.any():
            raise ValueError("no parameter of the earlier result has a standard deviation, expected some")
        return found

    def covariance_of(
        self, free: FreeParameters, others: Collection[str]
    ) -> tuple[list[int], Float[np.ndarray, "k"], Float[np.ndarray, "k k"]]:
        """Entries of u with a prior from the result, its mean, and its covariance in u.

        Args:
            free: the free parameters of a study.
            others: names of those with a prior of their own.

        Raises:
            ValueError: a parameter was fitted on another scale, or is tied to others.
        """
        known = np.isfinite(np.diag(self.matrix)).tolist()
        of = {name: k for k, name in enumerate(self.covariance.names) if known[k] and name not in others}
        entries = [i for i, name in enumerate(free.names) if name in of]
        rows = [of[free.names[i]] for i in entries]
        for i, row in zip(entries, rows, strict=True):
            scale = "log" if free.logarithmic[i] else "linear"
            if (scale, free.tied[i]) != (self.covariance.scale[row], self.covariance.tied[row]):
                raise ValueError(
                    f"'{free.names[i]}' has another scale or is tied to others than in the earlier result, expected the"
                    " same, or a standard deviation in [prior]"
                )
        width = np.where(free.logarithmic, 1.0, free.width)[entries]
        values = free.lower_value.copy()
        values[entries] = [self.parameters[free.names[i]].value for i in entries]
        return entries, free.encode(values)[entries], self.matrix[np.ix_(rows, rows)] / np.outer(width, width)


def earlier_result(path: Path) -> EarlierResult:
    """The identified machine of a result.json.

    Raises:
        InputError: the file cannot be read, or is no result of `jaxmb identify`.
    """
    return validated(EarlierResult, read_strict(path, "a result of an identification"), str(path))


def whitening(
    std: Float[np.ndarray, "d"], entries: Sequence[int], covariance: Float[np.ndarray, "k k"]
) -> Float[np.ndarray, "d d"]:
    """W [d, d] with covariance (W^T W)^-1 of independent parameters and of correlated ones.

    Args:
        std: standard deviations, inf without prior.
        entries: correlated parameters.
        covariance: of these.
    """
    found, size = np.diag(1.0 / std), np.sqrt(np.diag(covariance))
    lower = np.linalg.cholesky(covariance / np.outer(size, size))
    block = scipy.linalg.solve_triangular(lower, np.eye(len(size)), lower=True) / size
    found[np.ix_(entries, entries)] = block
    return found
