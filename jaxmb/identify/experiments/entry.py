"""A test of a study with its metadata: kind, source, role, remarks."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import jax
import numpy as np
from jaxtyping import Array

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.machine_errors import combined
from jaxmb.identify.experiments.test import Test, without_name
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.machine.build import Model
from jaxmb.measurement.modal.analysis import ModalAnalysis
from jaxmb.response.modal import Modes


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
    """Raw data and metadata behind a test. Kinds of tests with further data derive their own class."""

    modal: ModalAnalysis | None = None
    """Modal analysis of all measured data."""
    about: "Callable[[Model], Entry] | None" = None
    """Returns the test linearized about a fitted machine; None where the prediction is linear."""

    after_preliminary_fits: "Callable[[Any], Entry] | None" = None
    """Returns the test as determined by preliminary fits, which its reader defines; None where these have no effect."""

    @property
    def loads(self) -> np.ndarray:
        """Static wrenches [case, 6] applied to the machine, N and Nm; empty for other excitation."""
        return np.zeros((0, 6))

    noise_estimated: ClassVar[bool] = False
    """Whether the noise is estimated from the residual of a fit, so that chi-square is uninformative."""
    std_unknown: ClassVar[bool] = False
    """Whether standard deviations cannot be derived from its errors."""

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
            return np.asarray(_residual(without_name(there), model, None))
        some = {} if there is not test else errors
        found = [(some[error.key], at) for error, at in test.description.errors(model) if some.get(error.key)]
        numbers = np.array([x for x, _ in found])
        total = combined([at for _, at in found], numbers, test.description.none(model))
        return np.asarray(_residual(without_name(there), model, jax.device_put(total)))

    def corrected(self, test: Any, model: Model, errors: Mapping[str, float]) -> Any:
        """The test with all errors of its description corrected, for kinds with linear equations; the test itself for
        the others. See `residual_with`."""
        return test

    def alternatives(self, test: Any, model: Model) -> "Iterable[tuple[str, str, Any]]":
        """Errors that are no number; see `Description.alternatives`."""
        return () if test.description is None else test.description.alternatives(model)

    def check_linear(self, model: Model) -> None:
        """Raise ValueError, naming the location, where the data do not permit a linear step."""


@compiled
def _residual(test: Test[Any], model: Model, errors: Any) -> Array:
    """Residual of a test, with errors of its description corrected where its kind has any."""
    if test.description is None:
        return test.residual(test.view(model))
    return test.description.residual(model, errors)


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
    role: Literal["fit", "check"] = "fit"
    """"check": held out of the fit, predicted and compared."""
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
