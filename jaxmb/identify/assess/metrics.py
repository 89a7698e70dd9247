"""Metrics of an identification, as records whose fields have the names of result.json unless they state another
`key`."""

import dataclasses
import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from jaxmb.identify.assess.budget import ParameterBudget, ToleranceCheck
from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.assess.laws.law_problem import Laws
from jaxmb.identify.assess.laws.one_model import OneModel
from jaxmb.identify.assess.model_errors import FurtherSpring, ModelError
from jaxmb.identify.estimation.identifiability import KnownTogether
from jaxmb.identify.experiments.test import Entry, Score
from jaxmb.identify.fit.noise import ReducedChiSquare
from jaxmb.identify.stiffness_model.completion import CompletionOutcome
from jaxmb.identify.study.study import Study
from jaxmb.io.files import plain, restored
from jaxmb.io.validation import known_name
from jaxmb.response.modal import Modes, paired_modes, possible_modes


@dataclasses.dataclass(frozen=True, eq=False)
class KindMetrics:
    """Additional metrics of one kind of test: none, unless a kind derives its own class."""

    @property
    def noise_text(self) -> str:
        """Text on the residual of tests that have no stated noise, beside `Noise.level_text`; empty for none."""
        return ""

    @property
    def known_text(self) -> str:
        """Text on quantities determined in addition to the free parameters; empty where there are none."""
        return ""

    @classmethod
    def of_fit(cls, estimate: Estimate, entries: Sequence[Entry]) -> Self | None:
        """Metrics of a fit; None without additional metrics.

        Args:
            estimate: the fit.
            entries: all tests of the kind.
        """
        return None

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Self | None:
        """Metrics from `metrics` of result.json; None where it has none of the kind."""
        return restored(cls, data) if any(field.name in data for field in dataclasses.fields(cls)) else None


K = TypeVar("K", bound=KindMetrics)


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """Prediction score; None for quantities that do not apply."""

    frac: float | None
    """Mean frequency response assurance criterion of all FRFs, 1 for proportional FRFs."""
    log_error: float | None
    """Root mean square error of log H."""
    frequency_error_hz: float | None
    """Mean absolute error of the natural frequencies."""
    explained_percent: float | None
    """Explained part of data on a linear scale, mean over the tests."""


@dataclasses.dataclass(frozen=True, eq=False)
class TestPrediction(Prediction):
    """Prediction score of one test."""

    __test__ = False

    modes: int
    """Number of compared natural frequencies."""


@dataclasses.dataclass(frozen=True, eq=False)
class PredictionScores(Prediction):
    """Prediction scores of several tests, overall and by name."""

    tests: dict[str, TestPrediction]


@dataclasses.dataclass(frozen=True, eq=False)
class TrueMode:
    """A mode of the identified machine paired with that of the simulated one."""

    posture: str
    true_frequency_hz: float
    frequency_hz: float
    true_damping_percent: float
    damping_percent: float


@dataclasses.dataclass(frozen=True, eq=False)
class Profile:
    """Profile of the cost: its minimum over all other parameters, at values of one parameter."""

    name: str
    values: np.ndarray
    """Values of the parameter, SI, ascending [p], the fitted one included."""
    rise: np.ndarray
    """Increase of the cost above that of the fit [p], scaled to 3.84 at the ends of a 95 % interval."""
    expected: np.ndarray
    """Increase expected from the standard deviation: (u - u_fit)^2 / std^2."""
    interval: tuple[float | None, float | None]
    """95 % interval from the profile; None where the cost does not rise far enough on that side."""
    linear_interval: tuple[float | None, float | None]
    """95 % interval from the standard deviation; None where that is unknown."""
    lowest: float
    """Smallest increase: below 0 where the fit was not at the minimum."""
    unsettled: int | None = None
    """Number of values at which the fit of the others did not converge, so that the increase is too large; None for
    none."""


@dataclasses.dataclass(frozen=True, eq=False)
class Errors:
    """Errors over many points, mm."""

    max: float
    rms: float


@dataclasses.dataclass(frozen=True, eq=False)
class CompensationRow:
    """Residual deflections after compensation by one variant: a row of Table 2 of Klimchik et al. 2014."""

    model: str
    """Name of the variant; "none" for uncompensated deflections."""
    parameters: int
    x: Errors
    y: Errors
    z: Errors
    position: Errors
    compensated_percent: float


@dataclasses.dataclass(frozen=True, eq=False)
class SpringOutcome:
    """Spring of the machine that reproduces the compliance of the compensated joint."""

    joint_stiffness: float
    stiffness: float
    free_length: float
    std: dict[str, float]
    fitted_compliance: np.ndarray
    """Compliance at each angle, rad/Nm."""
    chi_square: float
    unsettled: bool | None = None
    """True where the fit did not converge."""


@dataclasses.dataclass(frozen=True, eq=False)
class CompensatorOutcome:
    """Compliance of the compensated joint at each of its angles, NaN without load."""

    joint: str
    angle_deg: np.ndarray
    compliance: np.ndarray
    """rad/Nm."""
    std: np.ndarray
    spring: SpringOutcome | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class CompensationScatter:
    """Standard deviations over draws of the instruments' errors, by variant; without variants that are not
    evaluated."""

    draws: int
    compensated_percent_std: dict[str, float]
    predicted_std_mm: dict[str, float]
    """Root mean square, over the evaluated points, of the standard deviation of their predicted translation."""

    @property
    def remark(self) -> str:
        """A sentence on the scatter."""
        each = ", ".join(
            f"{name} {percent:.2g} % and {self.predicted_std_mm[name]:.2g} mm"
            for name, percent in self.compensated_percent_std.items()
        )
        return (
            f"in {self.draws} draws of the instruments' errors in the fitted tests, the standard deviations of the"
            f" compensated percentage and of the predictions are: {each}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Compensation:
    """Residual deflections after compensation, for fitted and check tests: Table 2 of Klimchik et al. 2014.

    A variant that cannot predict all tests of a role is omitted from that role's table and errors, with None as its
    percentage, since values on a subset of tests are not comparable.
    """

    table2_fit: tuple[CompensationRow, ...] | None = None
    table2_check: tuple[CompensationRow, ...] | None = None
    errors_mm_fit: dict[str, np.ndarray] | None = None
    """Errors of every point [point, 3], by variant."""
    errors_mm_check: dict[str, np.ndarray] | None = None
    compensated_percent: dict[str, float | None] = dataclasses.field(default_factory=dict)
    """Compensated percentage in the evaluated tests, by variant."""

    def rows(self, role: str) -> tuple[CompensationRow, ...] | None:
        """Table 2 for the tests of a role."""
        return self.table2_fit if role == "fit" else self.table2_check

    def errors_mm(self, role: str) -> dict[str, np.ndarray] | None:
        """Errors in the tests of a role, mm."""
        return self.errors_mm_fit if role == "fit" else self.errors_mm_check

    @property
    def evaluated_role(self) -> str:
        """Role of the tests in which compensation is evaluated."""
        return "fit" if self.table2_check is None else "check"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class StiffnessModelMetrics(Compensation):
    """Metrics of a complete stiffness model."""

    reduction: dict[str, int]
    """Number of parameters after each reduction step."""
    published_reduction: dict[str, int] | None = None
    """The same as published, as stated in the study."""
    groups: tuple[tuple[str, ...], ...]
    """Groups of parameters of the model before the last reduction step."""
    group_ranks: tuple[int, ...]
    parameters: dict[str, int]
    """Number of parameters of each variant."""
    completion: CompletionOutcome
    compensator: CompensatorOutcome | None = None
    budget: dict[str, dict[str, float]] | None = None
    """Share of each joint and link in the deflections along the loads of each test, %."""
    monte_carlo: CompensationScatter | None = None


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Metrics(Mapping[str, Any]):
    """Metrics of an identification; None for metrics that do not apply to the study.

    It is also a mapping to plain data by name, in the layout that `metrics` has in result.json:
    `metrics.one_model.is_consistent` is `metrics["one_model"]["does"]`.
    """

    parameter_error: dict[str, float] | None = None
    """Relative errors, where the truth is known."""
    largest_parameter_error: float | None = None
    true_modes: tuple[TrueMode, ...] | None = None
    largest_frequency_error_hz: float | None = None
    largest_damping_error_percent: float | None = None
    misfit: ReducedChiSquare | None = None
    """Reduced chi-square of all data; None where noise is estimated from the residual."""
    model_errors: tuple[ModelError, ...] | None = dataclasses.field(default=None, metadata={"key": "mistakes"})
    """Model-error hypotheses on the machine or its tests, each of which explains the misfit."""
    further_springs: tuple[FurtherSpring, ...] | None = None
    """Springs that the model lacks, each of which would lower the residual, the best first."""
    fit: PredictionScores | None = None
    """Prediction scores of the fitted tests."""
    holdout: PredictionScores | None = None
    """Prediction scores of the held-out tests."""
    tests: dict[str, KindMetrics] = dataclasses.field(default_factory=dict)
    """Additional metrics by kind of test. In result.json their fields are on the same level as the others."""
    prior_log_std: dict[str, float] | None = None
    """Standard deviation of the prior on natural logarithms of parameters."""
    prior_std: dict[str, float] | None = None
    """Standard deviation of the prior on values on a linear scale, SI."""
    one_model: OneModel | None = None
    known_together: tuple[KnownTogether, ...] | None = None
    laws: Laws | None = None
    adjusted_parameters: dict[str, float] | None = dataclasses.field(default=None, metadata={"key": "moved_numbers"})
    """Values of fixed inertial parameters without effect on any measurement that were changed for physical
    consistency."""
    profiles: dict[str, Profile] | None = None
    tolerated: bool | None = None
    """Whether errors within the stated tolerances explain the misfit; None where noise
    explains it, or all is exact."""
    most_likely_errors: ModelError | None = None
    """The most likely errors within their tolerances, with the values of a joint fit, where they explain the misfit and
    their effect is not linear."""
    uncertainty: dict[str, ParameterBudget] | None = None
    """Parts of each parameter's standard deviation: noise, and tolerances; None where all is exact."""
    tolerance_checks: dict[str, ToleranceCheck] | None = None
    """Comparison of the residual with each tolerance, by key of `[tolerances]`; None where all is exact."""
    stiffness_model: StiffnessModelMetrics | None = None
    """Metrics of a complete stiffness model, on the top level of result.json; all others are None then."""

    def of(self, record: type[K]) -> K | None:
        """Metrics of one kind of test, by their class; None where there are none."""
        return next((found for found in self.tests.values() if isinstance(found, record)), None)

    def __getitem__(self, name: str) -> Any:
        if name not in self._by_name:
            raise KeyError(known_name("metric", str(name), self._by_name))
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def __repr__(self) -> str:
        """The metrics that apply, numbers with their values."""
        shown = [f"{key}={value:.4g}" for key, value in self.items() if isinstance(value, float)]
        others = [key for key, value in self.items() if value is not None and not isinstance(value, float)]
        return f"<Metrics: {', '.join([*shown, *others]) or 'none'}>"

    @functools.cached_property
    def _by_name(self) -> dict[str, Any]:
        by_name = plain(self)
        for record in (*by_name.pop("tests").values(), by_name.pop("stiffness_model", {})):
            for name, value in record.items():
                by_name[name] = [*by_name[name], *value] if isinstance(by_name.get(name), list) else value
        return by_name


def prediction_scores(entries: Sequence[Entry], views: Iterable[Any]) -> PredictionScores:
    """Prediction scores of some tests, overall and by name.

    Args:
        entries: the tests.
        views: of the machine, one for each test.
    """
    each = {e.name: e.test.score(view, e.reference_hz) for e, view in zip(entries, views, strict=True)}
    return PredictionScores(
        *_means(list(each.values())),
        tests={
            name: TestPrediction(*_means([score]), modes=len(score.frequency_errors_hz)) for name, score in each.items()
        },
    )


def _means(scores: Sequence[Score]) -> tuple[float | None, float | None, float | None, float | None]:
    """Mean FRAC, error of log H, error of frequencies (Hz) and explained part (percent) of some scores."""
    fracs = [x for score in scores for x in score.frac]
    logs = [score.log_error for score in scores if score.log_error is not None]
    errors = [e for score in scores for e in score.frequency_errors_hz]
    explained = [score.explained_percent for score in scores if score.explained_percent is not None]
    return (
        float(np.mean(fracs)) if fracs else None,
        float(np.sqrt(np.mean(np.square(logs)))) if logs else None,
        float(np.mean(errors)) if errors else None,
        float(np.mean(explained)) if explained else None,
    )


def prior_std_by_name(study: Study, of: np.ndarray, factor: np.ndarray | float) -> dict[str, float] | None:
    """Standard deviations of the prior of some free parameters; None where it applies to none of them."""
    if study.problem.prior is None:
        return None
    std = np.asarray(study.problem.prior.std) * factor
    return {study.free.names[i]: float(std[i]) for i in np.flatnonzero(of & np.isfinite(std))} or None


def truth_metrics(estimate: Estimate) -> Metrics:
    """Errors of parameters and modes against a simulated machine."""
    study, named = estimate.study, estimate.study.free.named(estimate.values)
    lost = set() if estimate.linear is None else {
        n for names, out in zip(study.free.tied, estimate.linear.step.without_effect, strict=True) if out for n in names
    }  # fmt: skip
    errors = {n: named[n] / true - 1.0 for n, true in study.truth.items() if true != 0.0 and n not in lost}
    pairs = tuple(
        pair
        for entry, view, _ in estimate.fitted_of(study.fitted)
        if (vibration := entry.test.vibration) is not None
        if entry.truth is not None and entry.truth.modes is not None
        for pair in _against_true_modes(entry, vibration.band_end_hz, possible_modes(view.tangent), entry.truth.modes)
    )
    return Metrics(
        parameter_error=errors or None,
        largest_parameter_error=max((abs(e) for e in errors.values()), default=None),
        true_modes=pairs or None,
        largest_frequency_error_hz=max((abs(p.frequency_hz - p.true_frequency_hz) for p in pairs), default=None),
        largest_damping_error_percent=max(
            (abs(p.damping_percent - p.true_damping_percent) for p in pairs), default=None
        ),
    )


def _against_true_modes(entry: Entry, band_end_hz: float, found: Modes, true: Modes) -> list[TrueMode]:
    """Modes of the identified machine paired with those of the simulated one, by the smallest errors of frequency."""
    below = np.flatnonzero(np.asarray(true.frequency_hz) <= band_end_hz)
    return [
        TrueMode(
            posture=entry.name,
            true_frequency_hz=float(true.damped_frequency_hz[below[i]]),
            frequency_hz=float(found.damped_frequency_hz[j]),
            true_damping_percent=100.0 * float(true.damping_ratio[below[i]]),
            damping_percent=100.0 * float(found.damping_ratio[j]),
        )
        for i, j in paired_modes(np.asarray(true.frequency_hz)[below], np.asarray(found.frequency_hz))
    ]
