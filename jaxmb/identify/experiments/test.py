"""Interface common to all kinds of tests: view of a machine, prediction, residual, score and optional components."""

import abc
import dataclasses
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.components import (
    Description,
    Evaluation,
    LinearForm,
    Lines,
    Noise,
    OwnParameters,
    Vibration,
)
from jaxmb.machine.build import Model

View = TypeVar("View")
"""The quantities of a machine that a kind of test depends on: a pytree of arrays."""


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

    @property
    def poor(self) -> bool:
        """Whether the prediction does not reproduce the measurement.

        Good fits have a log error below 0.3 (35 % in magnitude or 17 degrees of phase), antiresonances included: 0.20
        for `daisy-arm`, 0.07 with 5 % of noise. A reversed sensor, a wrong unit or order of points, or the opposite
        sign of time gave 0.5 to 3.
        """
        error, explained = self.log_error, self.explained_percent
        return (error is not None and error > 0.3) or (explained is not None and explained < 50.0)


class Test(eqx.Module, Generic[View]):
    """One test of a machine: data, view of the machine, prediction and residual.

    Each kind of test is a final class. Further capabilities are components (see
    `jaxmb.identify.experiments.components`); a property is None where the kind lacks that component.
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

    @abc.abstractmethod
    def row_weights(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """Weight of each row, which is also the variance of its residual under the stated noise; 0 where not used.

        NumPy where it is not traced.
        """

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

    @property
    def noise(self) -> Noise[Any]:
        """Noise of the rows."""
        return Noise(self)

    @property
    def evaluation(self) -> Evaluation[Any]:
        """Evaluation of the residual in a fit."""
        return Evaluation(self)

    @property
    def lines(self) -> Lines[Any] | None:
        """Frequency lines; None for tests without spectra."""
        return None

    @property
    def linear(self) -> LinearForm[Any] | None:
        """Linear equations; None where the prediction is never linear."""
        return None

    @property
    def description(self) -> Description[Any] | None:
        """Possible errors of the test description; None where they are not differentiable."""
        return None

    @property
    def own(self) -> OwnParameters[Any] | None:
        """Parameters of the test itself (gains, delays); None where there are none."""
        return None

    @property
    def vibration(self) -> Vibration[Any] | None:
        """Linearized motion of the machine at the test's posture; None for tests without one."""
        return None


def without_name(test: Test[Any]) -> Test[Any]:
    """The test without its name and without arrays that its residual ignores: tests of equal form share a program."""
    return dataclasses.replace(test.evaluation.stripped(), name="")


def residual_at(test: Test, view: Any) -> Float[np.ndarray, "m"]:
    """Residual of a test for a view of a machine; tests of equal form share a program."""
    return np.asarray(_residual_at(without_name(test), view))


@compiled
def _residual_at(test: Test, view: Any) -> Float[Array, "m"]:
    return test.residual(view)
