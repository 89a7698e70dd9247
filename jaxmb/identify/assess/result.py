"""Result of an identification, and its layout in result.json."""

import dataclasses
import enum
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmb.identify.assess.estimate import CovarianceWithErrors
from jaxmb.identify.assess.metrics import Metrics
from jaxmb.identify.estimation.identifiability import Identifiability
from jaxmb.identify.experiments.test import Entry, Role
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.parameters.model_parameters import unit
from jaxmb.identify.study.study import Study
from jaxmb.io.files import strict, versions
from jaxmb.io.validation import Named, Table, check_known, display_name, known_name, listed, percentage
from jaxmb.machine.build import Model
from jaxmb.machine.families import NOT_NEGATIVE
from jaxmb.machine.file import machine_toml
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.kinematics import ELASTIC_AXES
from jaxmb.mechanics.tangent import LinearizeAt

SCHEMA = 1
INTERVAL = 1.96
"""Half width of the central 95 % interval of a normal distribution, in standard deviations."""
LARGEST_LOG = 300.0
"""Largest logarithm of a factor in an interval; beyond it overflows."""
LONGEST_STATUS = 80
"""Characters of a status in the representation of a result."""


class Outcome(enum.StrEnum):
    """Outcome of an identification. A status is one of these, or a sentence that begins with it and gives the
    reason."""

    CONVERGED = "converged"
    NOT_CONVERGED = "not converged"
    NOT_REPRODUCED = "data not followed"
    """The fit converged, but the machine does not reproduce the measurement."""
    NOT_IDENTIFIED = "no parameter identified"
    """The fit converged, but its doubts leave no parameter identifiable ("yes")."""


def converged_status(
    not_reproduced: Sequence[str],
    has_model_error: bool,
    before: Sequence[str],
    now: Sequence[str],
    doubts: Sequence[str],
) -> str:
    """Status of a converged fit.

    Args:
        not_reproduced: tests that the machine does not reproduce.
        has_model_error: whether the model does not reproduce the data.
        before: verdicts without the doubts.
        now: verdicts with the doubts.
        doubts: the most important first.
    """
    if not_reproduced:
        return (
            f"{Outcome.NOT_REPRODUCED}: the best fit does not reproduce {listed([*map(display_name, not_reproduced)])}"
        )
    if doubts and "yes" not in now and (has_model_error or "yes" in before):
        return f"{Outcome.NOT_IDENTIFIED}: {doubts[0]}"
    return Outcome.CONVERGED.value


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
    interval_95: tuple[float, float] | None = None
    """None where the standard deviation is unknown."""


def with_interval(name: str, p: Parameter, logarithmic: bool) -> Parameter:
    """The parameter with its 95 % interval.

    value / f to value f, f = exp(1.96 std_log), where its logarithm was fitted, else value - 1.96 std
    to value + 1.96 std, limited to non-negative values for families that cannot be negative.
    """
    if not math.isfinite(p.std_log if logarithmic else p.std):
        return p._replace(interval_95=None)
    if logarithmic:
        reach = math.exp(min(INTERVAL * p.std_log, LARGEST_LOG))
        low, high = p.value / reach, p.value * reach
    else:
        reach = min(INTERVAL * p.std, math.exp(LARGEST_LOG))
        low, high = p.value - reach, p.value + reach
    return p._replace(interval_95=(max(low, 0.0) if name.split(".")[0] in NOT_NEGATIVE else low, high))


class Mode(NamedTuple):
    """A mode of the identified machine at the posture of a test."""

    posture: str
    frequency_hz: float
    damped_frequency_hz: float
    damping_ratio: float
    frequency_std_hz: float = math.nan
    """Standard deviation by noise and by errors of the machine within their tolerances, to first order; inf where the
    mode depends on a direction of u without effect on the data, and where the fit does not reproduce the data."""
    damping_ratio_std: float = math.nan


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Result of an identification: parameters with uncertainties, modes, metrics, remarks, identified machine."""

    study: Study
    status: str
    """"converged", or a sentence with the reason why not; it begins with an `Outcome`."""
    seed: int
    cost: float
    """Eq. 22 of Huynh et al. 2020, without the prior."""
    initial_cost: float
    parameters: dict[str, Parameter]
    modes: tuple[Mode, ...]
    """All modes below the end of each test's band."""
    metrics: Metrics
    remarks: tuple[str, ...]
    """Sentences for the user, e.g. on parameters on a bound or without effect, or on unused lines."""
    doubts: tuple[str, ...]
    """The remarks that cast doubt on the fit or some of its values."""
    correlation: np.ndarray
    """Correlation of the entries of u [d, d]."""
    singular_values: np.ndarray
    model: Model
    """Model of the identified machine."""
    machine: Machine
    evaluations: dict[str, int]
    seconds: dict[str, float]
    history: list[tuple[int, float]]
    """(evaluations, best objective so far)."""
    covariance_with_errors: CovarianceWithErrors | None = None
    """Covariance for predictions; None where the machine is exact."""
    versions: dict[str, str] = dataclasses.field(default_factory=versions)
    """Versions of the software used."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", Named(self.parameters))

    def _repr_html_(self) -> str:
        """Verdict, tables and charts, which notebooks show."""
        import jaxmb  # reports are above this package: imported when asked for

        return jaxmb.report.result_html(self)

    def __repr__(self) -> str:
        """Study, status, number of parameters by verdict, and the parameter with the largest uncertainty."""
        verdicts = [p.identifiable for p in self.parameters.values()]
        counts = ", ".join(f"{verdicts.count(each)} {each}" for each in ("yes", "weak", "no") if each in verdicts)
        least = max(self.parameters, key=lambda name: self.parameters[name].std_log, default=None)
        std = math.nan if least is None else float(f"{100.0 * self.parameters[least].std_log:.2g}")
        size = f"{percentage(std, 'g')} %" if math.isfinite(std) else "unknown"
        worst = "" if least is None else f", least known {least} (std {size})"
        status = self.status if len(self.status) <= LONGEST_STATUS else f"{self.status[:LONGEST_STATUS]}..."
        return f"<Result of {self.study.name}: {status}; {len(verdicts)} parameters: {counts}{worst}>"

    def table(self, name: str) -> dict[str, list[Any]]:
        """A table of the result as columns, which `pandas.DataFrame` and `polars.DataFrame` accept.

        Args:
            name: "parameters", "modes" (with the posture of each), "correlation" (of the entries of u), "history"
                (best objective by number of evaluations) or "poses" (predicted position and rotation vector of each row
                of pose tests in the device's frame, upward direction in the point's axes and distance from the device
                where they are measured, standard deviation and error, m and rad). Unknown numbers are NaN, except
                standard deviations of parameters and modes: inf.

        Raises:
            ValueError: there is no such table.
        """
        check_known("table", [name], TABLES)
        return TABLES[name](self)

    @property
    def covariance(self) -> np.ndarray | None:
        """Covariance of the entries of u [d, d], NaN for unknown ones; None where u was not fitted.

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
    def linearize_at(self) -> LinearizeAt:
        """Point of linearization of the tests: the "posture" itself, or the "equilibrium" under gravity."""
        stated: list[LinearizeAt] = [v.test.at for test in self.study.tests if (v := test.vibration) is not None]
        return stated[0] if stated else "posture"

    @property
    def outcome(self) -> Outcome:
        """Outcome of the fit."""
        return next(each for each in Outcome if self.status.startswith(each))

    @property
    def converged(self) -> bool:
        """Whether the fit converged, reproduces the data, and identifies a parameter in spite of its doubts."""
        return self.outcome is Outcome.CONVERGED

    def predicted(self, test: str, role: Role | None = None) -> Any:
        """Prediction of a test by the identified machine (`Test.predict`), such as FRFs [f, o, i] or displacements.

        Args:
            test: name of the test.
            role: "fit" or "check", where some lines of the test were fitted and others held out; "fit" by default.

        Raises:
            ValueError: the study has no such test.
        """
        entry = self._entry(test, role)
        return jax.tree.map(np.asarray, entry.test.predict(entry.test.view(self.model)))

    def residual(self, test: str, role: Role | None = None) -> np.ndarray:
        """sqrt(weight) (predicted - measured) / standard deviation of each row of a test; see `predicted`."""
        entry = self._entry(test, role)
        return np.asarray(entry.test.residual(entry.test.view(self.model)))

    def _entry(self, name: str, role: Role | None) -> Entry:
        entries = [entry for entry in self.study.entries if role is None or entry.role == role]
        for entry in entries:
            if entry.name == name:
                return entry
        raise ValueError(known_name("test", name, [entry.name for entry in entries]))

    def as_json(self) -> Table:
        """The result in the layout of `result.json`: strict JSON, null for unknown numbers."""
        return strict(
            {
                "schema": SCHEMA,
                "study": self.study.name,
                "study_digest": self.study.origin.digest,
                "description": self.study.description,
                "status": self.status,
                "seed": self.seed,
                "noise_seed": self.study.origin.noise_seed,
                "cost": self.cost,
                "initial_cost": self.initial_cost,
                "parameters": {
                    name: p._asdict() | {"interval_95": p.interval_95 or (None, None)}
                    for name, p in self.parameters.items()
                },
                "covariance": _covariance(self),
                "covariance_with_errors": self.covariance_with_errors
                and self.covariance_with_errors.scaled(scale_of_values(self.study.free))._asdict(),
                "correlation": self.correlation,
                "singular_values": self.singular_values,
                "estimated_noise": {
                    test.name: test.noise.level
                    for test in self.study.tests
                    if not test.noise.is_known and test.noise.level is not None
                },
                "lines_left_out": {
                    test.name: test.lines.excluded
                    for test in self.study.tests
                    if test.lines is not None and test.lines.excluded.size
                },
                "machine_digest": hashlib.sha256(machine_toml(self.machine).encode()).hexdigest(),
                "linearize_at": self.linearize_at,
                "modes": [m._asdict() for m in self.modes],
                "metrics": dict(self.metrics),
                "remarks": list(self.remarks),
                "doubts": list(self.doubts),
                "evaluations": self.evaluations,
                "seconds": self.seconds,
                "versions": self.versions,
                "history": [cost for _, cost in self.history],
                "history_evaluations": [n for n, _ in self.history],
            }
        )

    def is_logarithmic(self, name: str) -> bool:
        """Whether a parameter was fitted on a logarithmic scale."""
        free = self.study.free
        return any(log and name in names for log, names in zip(free.logarithmic, free.tied, strict=True))

    def json_text(self) -> str:
        """`as_json` as text."""
        return json.dumps(self.as_json(), indent=1, allow_nan=False) + "\n"


def _parameter_columns(result: Result) -> dict[str, list[Any]]:
    fields = [field for field in Parameter._fields if field != "interval_95"]
    columns = {field: [getattr(p, field) for p in result.parameters.values()] for field in fields}
    intervals = [p.interval_95 or (math.nan, math.nan) for p in result.parameters.values()]
    ends = {f"interval_95_{end}": [pair[i] for pair in intervals] for i, end in enumerate(("lower", "upper"))}
    return {"name": list(result.parameters)} | columns | ends


def _correlation_columns(result: Result) -> dict[str, list[Any]]:
    free = result.study.free.names
    names = free if len(free) == len(result.correlation) else tuple(result.parameters)  # of a stiffness model
    return {"name": list(names)} | dict(zip(names, np.asarray(result.correlation).T.tolist(), strict=True))


def _pose_columns(result: Result) -> dict[str, list[Any]]:
    rows = result.metrics.get("pose_rows") or []
    columns = {key: [row[key] for row in rows] for key in ("test", "role", "row", "station", "point")}
    values = {
        what: [[math.nan if x is None else x for x in row[what]] for row in rows]
        for what in ("predicted", "std", "error")
    }
    columns |= {
        f"{prefix}{axis}": [row[i] for row in values[what]]
        for what, prefix in (("predicted", ""), ("std", "std_"), ("error", "error_"))
        for i, axis in enumerate(ELASTIC_AXES)
    }
    if any(math.isfinite(x) for row in values["predicted"] for x in row[6:9]):
        columns |= {f"a{axis}": [row[6 + i] for row in values["predicted"]] for i, axis in enumerate("xyz")}
        columns["std_inclination"] = [math.hypot(*row[6:8]) / math.sqrt(2.0) for row in values["std"]]
        columns["error_inclination"] = [math.hypot(*row[6:8]) for row in values["error"]]
    if any(math.isfinite(x) for row in values["predicted"] for x in row[9:]):
        at = {"predicted": ("distance", 9), "std": ("std_distance", 8), "error": ("error_distance", 8)}
        columns |= {column: [row[i] for row in values[what]] for what, (column, i) in at.items()}
    return columns


TABLES: dict[str, Callable[[Result], dict[str, list[Any]]]] = {
    "parameters": _parameter_columns,
    "modes": lambda result: {field: [getattr(mode, field) for mode in result.modes] for field in Mode._fields},
    "correlation": _correlation_columns,
    "history": lambda result: {
        "evaluations": [n for n, _ in result.history],
        "objective": [cost for _, cost in result.history],
    },
    "poses": _pose_columns,
}
"""Tables of `Result.table`."""


def _covariance(result: Result) -> Table:
    """Covariance with names, of natural logarithms ("log") or of values in SI units ("linear")."""
    free, matrix = result.study.free, result.covariance
    if matrix is None:  # a stiffness model, with other parameters than the study
        names = tuple(result.parameters)
        std = np.array([p.std if math.isfinite(p.std) else np.nan for p in result.parameters.values()])
        return {
            "names": names,
            "tied": tuple((name,) for name in names),
            "scale": ["linear"] * len(names),
            "matrix": result.correlation * np.outer(std, std),
        }
    scale = scale_of_values(free)
    return {
        "names": free.names,
        "tied": free.tied,
        "scale": ["log" if log else "linear" for log in free.logarithmic],
        "matrix": matrix * np.outer(scale, scale),
    }


def scale_of_values(free: FreeParameters) -> np.ndarray:
    """Logarithms ("log") and values ("linear") of `result.json` over the entries of u [d]."""
    return np.where(free.logarithmic, 1.0, free.width)


def identified_parameters(
    study: Study, values: np.ndarray, initial: np.ndarray, known: Identifiability
) -> dict[str, Parameter]:
    """Identified parameters by name, tied ones each by its own name.

    Args:
        study: the identified study.
        values: identified physical values [d].
        initial: initial physical values [d].
        known: standard deviations and verdicts of u.
    """
    free, stds, found = study.free, known.std * study.free.slope(values), {}
    for i, names in enumerate(free.tied):
        value, std = float(values[i]), float(stds[i])
        relative = std / abs(value) if value != 0.0 else math.inf
        std_log = float(known.std[i]) if free.logarithmic[i] else relative
        for name in names:
            p = Parameter(
                value, std, std_log, unit(study.model, name), float(free.lower_value[i]), float(free.upper_value[i]),
                float(initial[i]), known.verdict[i],
            )  # fmt: skip
            found[name] = with_interval(name, p, free.logarithmic[i])
    return found
