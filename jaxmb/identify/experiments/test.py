"""Interface common to all kinds of tests, and a test of a study with its metadata: kind, source, role, remarks."""

import abc
import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.components import (
    Attached,
    Description,
    Evaluation,
    LinearForm,
    Noise,
    OwnParameters,
    Vibration,
)
from jaxmb.identify.experiments.machine_errors import total_error
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.io.validation import percentage
from jaxmb.machine.build import Model
from jaxmb.measurement.modal.analysis import ModalAnalysis
from jaxmb.response.modal import Modes

if TYPE_CHECKING:
    from jaxmb.identify.experiments.frf.noise import FrfLines

View = TypeVar("View")
"""The quantities of a machine that a kind of test depends on: a pytree of arrays."""


LEAST_PERCENT = 50.0
"""Explained part of data on a linear scale below which a prediction does not reproduce them, %."""


class Score(NamedTuple):
    """Prediction score of one test. Fields that do not apply to its kind are empty or None."""

    frac: tuple[float, ...] = ()
    """Frequency response assurance criterion of each FRF, 1 for proportional FRFs."""
    log_error: float | None = None
    """Root mean square error of log H."""
    frequency_errors_hz: tuple[float, ...] = ()
    """Absolute errors of natural frequencies, Hz."""
    explained_percent: float | None = None
    """100 (1 - RMS of the residual / RMS of the data), for data on a linear scale."""
    least_percent: float = LEAST_PERCENT
    """Least `explained_percent` of a prediction that reproduces the measurement."""
    frequency_error: float | None = None
    """Root mean square relative error of the natural frequencies of a modal test."""

    @property
    def poor(self) -> bool:
        """Whether the prediction does not reproduce the measurement.

        Good fits have a log error below 0.3 (35 % in magnitude or 17 degrees of phase), antiresonances included: 0.20
        for `daisy-arm`, 0.07 with 5 % of noise. A reversed sensor, a wrong unit or order of points, or the opposite
        sign of time gave 0.5 to 3. A frequency 10 % off is that of a stiffness 20 % off.
        """
        error, explained, frequency = self.log_error, self.explained_percent, self.frequency_error
        return bool(
            (error is not None and error > 0.3)
            or (explained is not None and explained < self.least_percent)
            or (frequency is not None and frequency > 0.1)
        )

    @property
    def text(self) -> str:
        """The error by which `poor` judges."""
        if self.log_error is not None:
            return f"error of log H {self.log_error:.2g}"
        if self.frequency_error is not None:
            return f"RMS error of the natural frequencies {percentage(100.0 * self.frequency_error)} %"
        share = self.explained_percent
        return "" if share is None else f"{percentage(share, '.3g')} % explained"


class Test(eqx.Module, Generic[View]):
    """One test of a machine: data, view of the machine, prediction and residual.

    Each kind of test is a final class. Further capabilities are components (see
    `jaxmb.identify.experiments.components`); an attribute is None where the kind lacks that component.
    """

    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def view(self, model: Model) -> View:
        """The quantities of a machine that the test depends on."""

    @abc.abstractmethod
    def predict(self, view: View) -> Any:
        """Predicted measurement."""

    @abc.abstractmethod
    def residual(self, view: View) -> Float[Array, "m"]:
        """sqrt(weight) (predicted - measured) / standard deviation of each row."""

    def stated_variances(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """Weight of each row, which is also the variance of its residual under the stated noise; 0 where not used. This
        default: 1.

        NumPy where it is not traced.
        """
        return np.ones(self.rows)

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """Number of rows of the residual."""

    @abc.abstractmethod
    def score(self, view: View, reference_hz: np.ndarray | None) -> Score:
        """Prediction score of a machine.

        Args:
            view: of the machine.
            reference_hz: independently known natural frequencies of the measured machine, Hz; None where unknown.
        """

    noise = Attached[Noise[Any]](Noise)
    """Noise of the rows."""
    evaluation = Attached[Evaluation[Any]](Evaluation)
    """Evaluation of the residual in a fit."""
    lines: ClassVar["Attached[FrfLines | None]"] = Attached(lambda test: None)
    """Frequency lines; None for tests without spectra."""
    linear = Attached[LinearForm[Any] | None](lambda test: None)
    """Linear equations; None where the prediction is never linear."""
    description = Attached[Description[Any] | None](lambda test: None)
    """Possible errors of the test description; None where they are not differentiable."""
    own = Attached[OwnParameters[Any] | None](lambda test: None)
    """Parameters of the test itself (gains, delays); None where there are none."""
    vibration = Attached[Vibration[Any] | None](lambda test: None)
    """Linearized motion at the test's posture; None for tests without one."""


def without_name(test: Test[Any]) -> Test[Any]:
    """The test without its name and without arrays that its residual ignores: tests of equal form share a program."""
    return dataclasses.replace(test.evaluation.stripped(), name="")


def residual_of_test(test: Test, view: Any) -> Float[np.ndarray, "m"]:
    """Residual of a test for a view of a machine; tests of equal form share a program."""
    return np.asarray(_residual_of_view(without_name(test), view))


@compiled
def _residual_of_view(test: Test, view: Any) -> Float[Array, "m"]:
    return test.residual(view)


@dataclasses.dataclass(frozen=True)
class Truth:
    """The simulated machine behind a simulated measurement."""

    coordinates: tuple[str, ...]
    """Names of the coordinates of its linearized motion."""
    parameters: dict[str, float]
    modes: Modes | None = None
    """Modes at the posture of the test, where it has one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """Metadata of the measurement of a test, functions that make the test again from it, and its possible errors.
    Kinds of tests derive classes of their own."""

    modal: ModalAnalysis | None = None
    """Modal analysis of the measured FRFs."""
    frequency_unit: str = "Hz"
    """Unit of frequency in figures and tables."""
    linearized_about: "Callable[[Model], Entry] | None" = None
    """Returns the test linearized about a fitted machine; None where the prediction is linear."""

    after_preliminary_fits: "Callable[[Any], Entry] | None" = None
    """Returns the test as determined by preliminary fits, which its reader defines; None where these have no effect."""

    @property
    def loads(self) -> np.ndarray:
        """Static wrenches [case, 6] on the machine, N and N m, under which its foundation may yield; empty for tests
        without static loads."""
        return np.zeros((0, 6))

    noise_estimated: ClassVar[bool] = False
    """Whether the noise is estimated from the residual of a fit, so that chi-square is uninformative."""
    std_unknown: ClassVar[bool] = False
    """Whether standard deviations cannot be derived from its errors."""
    follows_geometry: ClassVar[bool] = True
    """Whether the prediction follows free parameters of the geometry, which then have no tolerance."""

    def frames(self, test: Any) -> Mapping[str, bool]:
        """Frames whose positions have an effect on the test, and whether their axes have one, sensor axes apart; this
        default: those of its vibration, without effect of their axes."""
        return {} if test.vibration is None else dict.fromkeys(test.vibration.frames, False)

    def variance_bound(self, test: Any) -> Float[np.ndarray, "m"]:
        """Upper bound of the variance of each row of the residual, in units of its standard deviation, where the data
        have one that is independent of the fit; infinite where there is none."""
        return np.full(test.rows, np.inf)

    def gross_errors(self, test: Any, model: Model, jacobian: np.ndarray | None = None) -> str:
        """A sentence on data that the prediction does not reproduce, independent of the stated noise; empty where there
        are none.

        Args:
            test: the test.
            model: of the identified machine.
            jacobian: of its residual; None for a test that was not fitted.
        """
        return ""

    def errors(self, test: Any, model: Model) -> "Iterable[StatedError]":
        """Possible errors of the description of the test; this default: of its component.

        Args:
            test: the test.
            model: the machine, for its coordinates.
        """
        return () if test.description is None else (error for error, _ in test.description.errors(model))

    def residual_with(self, test: Any, model: Model, errors: Mapping[str, float]) -> np.ndarray:
        """Residual of the test with its description corrected.

        Args:
            test: the test.
            model: the machine, also with other geometry or gravity than the test was read with.
            errors: sizes of `errors` by key, SI; others are 0.
        """
        there = self.corrected(test, model, errors)
        if test.description is None:
            return np.asarray(_residual_of_model(without_name(there), model, None))
        total = total_error(test.description.errors(model), errors) if errors and there is test else None
        total = test.description.none(model) if total is None else total
        return np.asarray(_residual_of_model(without_name(there), model, jax.device_put(total)))

    def corrected(self, test: Any, model: Model, errors: Mapping[str, float]) -> Any:
        """The test with all errors of its description corrected, for kinds with linear equations; the test itself for
        the others. See `residual_with`."""
        return test

    def alternatives(self, test: Any, model: Model) -> "Iterable[tuple[str, str, Any]]":
        """Errors that are no number; see `Description.alternatives`."""
        return () if test.description is None else test.description.alternatives(model)

    def refined(self, test: Any, model: Model) -> "Iterable[tuple[str, str, Any]]":
        """The test without an approximation that it makes, in the form of `alternatives`; this default: none."""
        return ()

    def groups(self, test: Any) -> "tuple[np.ndarray, tuple[str, ...]]":
        """Group of each row of the residual, of which single ones may be wrong, and their names; this default: no
        groups, as in tests with frequency lines.

        Args:
            test: the test.
        """
        return np.zeros(test.rows, dtype=int), ()

    def readings(self, test: Any) -> "Iterable[tuple[str, tuple[Any, ...]]]":
        """Name of each row of a table with three readings or more, and its posture, load and readings, by which rows
        that were entered twice are found; this default: none."""
        return ()

    def check_linear(self, model: Model) -> None:
        """Raise ValueError, naming the location, where the data do not permit a linear step."""


@compiled
def _residual_of_model(test: Test[Any], model: Model, errors: Any) -> Array:
    """Residual of a test, with errors of its description corrected where its kind has any."""
    description = test.description
    return test.residual(test.view(model)) if description is None else description.residual(model, errors)


Role = Literal["fit", "check"]
"""Role of a test in a study: fitted, or held out of the fit, predicted and compared."""
ROLES = {"fit": "fitted", "check": "held out"}
"""Text for each role of a test."""

T = TypeVar("T", bound=Test[Any])
S = TypeVar("S", bound=Source)


@dataclasses.dataclass(frozen=True, eq=False)
class Entry(Generic[T, S]):
    """A test of a study with its metadata: kind, source, role, remarks."""

    kind: str
    """Name of the kind in study files."""
    test: T
    source: S = Source()  # pyright: ignore[reportAssignmentType]
    truth: Truth | None = None
    amplitude: float | None = None
    """Level of force or motion, for amplitude-dependent parameter laws."""
    role: Role = "fit"
    remarks: tuple[str, ...] = ()
    """Sentences on the data, e.g. on unused lines or on standard deviations that were not specified."""

    @property
    def name(self) -> str:
        """Name of the test."""
        return self.test.name

    @property
    def reference_hz(self) -> np.ndarray | None:
        """Damped natural frequencies known independently of the fit, Hz: from modal analysis of the data, or of the
        simulated machine; None where unknown."""
        if self.source.modal is not None:
            return np.asarray(self.source.modal.model.damped_frequency_hz)
        if self.truth is not None and self.truth.modes is not None:
            return np.asarray(self.truth.modes.damped_frequency_hz)
        return None


def by_kind(entries: Sequence[Entry], kinds: Iterable[str]) -> list[tuple[str, list[Entry]]]:
    """Entries grouped by kind of test, in the order of the kinds; kinds without entries are omitted."""
    found = [(kind, [entry for entry in entries if entry.kind == kind]) for kind in kinds]
    return [(kind, group) for kind, group in found if group]
