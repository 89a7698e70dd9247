"""What an identification gives back, and how it is written."""

import dataclasses
import json
import math
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmb.identify.assess.metrics import Metrics
from jaxmb.identify.estimation.identifiability import Knowledge
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.parameters.model_parameters import NOT_NEGATIVE, unit
from jaxmb.identify.study.study import Study
from jaxmb.io.strict_json import strict, versions
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine

SCHEMA = 1
INTERVAL = 1.96
"""Standard deviations to either side that hold 95 % of a normal distribution."""
LARGEST_LOG = 300.0
"""A factor beyond e^300 is no number any more, and off every axis."""


class Parameter(NamedTuple):
    """One identified parameter, SI units."""

    value: float
    std: float
    """Standard deviation; that of the logarithm times the value where the scale is logarithmic. inf where unknown."""
    std_log: float
    """Standard deviation of the natural logarithm."""
    unit: str
    lower: float
    upper: float
    initial: float
    identifiable: str
    """"yes", "weak" or "no" (see `identifiability`)."""


def interval(p: Parameter, logarithmic: bool) -> tuple[float, float]:
    """95 % interval of a parameter: value / f to value f with f = exp(1.96 std_log) where its logarithm is fitted."""
    if logarithmic:
        reach = math.exp(min(INTERVAL * p.std_log, LARGEST_LOG))
        return p.value / reach, p.value * reach
    reach = min(INTERVAL * p.std, math.exp(LARGEST_LOG))
    return p.value - reach, p.value + reach


class Mode(NamedTuple):
    """A mode of the identified machine at the posture of a test."""

    posture: str
    frequency_hz: float
    damped_frequency_hz: float
    damping_ratio: float


@dataclasses.dataclass(frozen=True)
class Result:
    """An identification: what was found, how sure it is, and how it was found."""

    study: Study
    status: str
    """"converged", or a sentence that says why not."""
    seed: int
    cost: float
    """Eq. 22 of Huynh et al. 2020, the prior left out."""
    initial_cost: float
    parameters: dict[str, Parameter]
    modes: tuple[Mode, ...]
    """All modes below the end of each test's band."""
    metrics: Metrics
    remarks: tuple[str, ...]
    """What a user should know: parameters on a bound or without effect, lines that were not used."""
    correlation: np.ndarray
    """Of the entries of u [d, d]."""
    singular_values: np.ndarray
    model: Model
    """The identified machine's."""
    machine: Machine
    evaluations: dict[str, int]
    seconds: dict[str, float]
    history: list[tuple[int, float]]
    """(evaluations, best objective so far)."""

    @property
    def covariance(self) -> np.ndarray | None:
        """Covariance of the entries of u [d, d], NaN beside what is not known; None where these were not fitted.

        It has the standard deviations of `parameters` and the correlation of the fit.
        """
        free = self.study.free
        if len(self.correlation) != free.size or not set(free.names) <= set(self.parameters):
            return None
        std = np.array([
            self.parameters[name].std_log if log else self.parameters[name].std / width
            for name, log, width in zip(free.names, free.logarithmic, free.width, strict=True)
        ])  # fmt: skip
        std = np.where(np.isfinite(std), std, np.nan)
        return self.correlation * np.outer(std, std)

    @property
    def linearize_at(self) -> str:
        """Where the tests see small motions of the machine: at the "posture" or at the "equilibrium" under gravity."""
        return next((test.linearized_at for test in self.study.tests if test.posture is not None), "posture")

    @property
    def converged(self) -> bool:
        """Whether the fit ended at a minimum."""
        return self.status == "converged"

    def as_json(self) -> dict[str, Any]:
        """The result in the layout of `result.json`: strict JSON, null where a number is not known."""
        return strict(
            {
                "schema": SCHEMA,
                "study": self.study.name,
                "description": self.study.description,
                "status": self.status,
                "seed": self.seed,
                "cost": self.cost,
                "initial_cost": self.initial_cost,
                "parameters": {name: p._asdict() | self._interval(name, p) for name, p in self.parameters.items()},
                "covariance": _covariance(self),
                "linearize_at": self.linearize_at,
                "modes": [m._asdict() for m in self.modes],
                "metrics": dict(self.metrics),
                "remarks": list(self.remarks),
                "evaluations": self.evaluations,
                "seconds": self.seconds,
                "versions": versions(),
                "history": [cost for _, cost in self.history],
                "history_evaluations": [n for n, _ in self.history],
            }
        )

    def _interval(self, name: str, p: Parameter) -> dict[str, Any]:
        """What result.json adds to a parameter: its 95 % interval, null where its standard deviation is."""
        if not math.isfinite(p.std_log if self.is_logarithmic(name) else p.std):
            return {"interval_95": [None, None]}
        low, high = interval(p, self.is_logarithmic(name))
        return {"interval_95": [max(low, 0.0) if name.split(".")[0] in NOT_NEGATIVE else low, high]}

    def is_logarithmic(self, name: str) -> bool:
        """Whether a parameter was fitted on a logarithmic scale."""
        free = self.study.free
        return any(log and name in names for log, names in zip(free.logarithmic, free.tied, strict=True))

    def json_text(self) -> str:
        """`as_json` as text."""
        return json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n"


def _covariance(result: Result) -> dict[str, Any] | None:
    """Covariance by name, of natural logarithms ("log") or of values in SI units ("linear")."""
    free, matrix = result.study.free, result.covariance
    if matrix is None:
        return None
    scale = np.where(free.logarithmic, 1.0, free.width)
    return {
        "names": free.names,
        "tied": free.tied,
        "scale": ["log" if log else "linear" for log in free.logarithmic],
        "matrix": matrix * np.outer(scale, scale),
    }


def found_parameters(study: Study, values: np.ndarray, initial: np.ndarray, known: Knowledge) -> dict[str, Parameter]:
    """What was found of every free parameter, those that are tied each by its own name.

    Args:
        study: what was free.
        values: identified physical values [d].
        initial: where they started [d].
        known: of u.
    """
    free, found = study.free, {}
    for i, names in enumerate(free.tied):
        value = float(values[i])
        if free.logarithmic[i]:
            std_log, std = float(known.std[i]), float(known.std[i]) * value
        else:
            std = float(known.std[i]) * float(free.width[i])
            std_log = std / abs(value) if value != 0.0 else math.inf
        for name in names:
            found[name] = Parameter(
                value, std, std_log, unit(study.model, name), float(free.lower_value[i]), float(free.upper_value[i]),
                float(initial[i]), known.verdict[i],
            )  # fmt: skip
    return found


def initial_model(result: "Result") -> Model:
    """The machine at the initial values of the free parameters."""
    study = result.study
    values = [result.parameters[name].initial for name in study.free.names]
    return study.free.apply(study.model, jnp.asarray(values))


def evaluations(fit: Fit) -> dict[str, int]:
    """Evaluations of the cost by part of the fit."""
    return {"search": fit.search_evaluations, "refine": fit.refine_evaluations, "non_finite": fit.non_finite}
