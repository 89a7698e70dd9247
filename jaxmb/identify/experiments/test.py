"""What all kinds of tests have in common: what they see of a machine, and how a prediction compares with the data."""

import abc
from typing import Any, Generic, NamedTuple, TypeVar

import equinox as eqx
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.experiments.components import (
    Evaluation,
    Hypotheses,
    LinearForm,
    Lines,
    Noise,
    OwnParameters,
    Vibration,
)
from jaxmb.machine.build import Model

View = TypeVar("View")
"""What a kind of test sees of a machine: a pytree of arrays."""


class Score(NamedTuple):
    """How well a machine predicts one test, by what the test can tell; empty or None what it cannot."""

    frac: tuple[float, ...] = ()
    """FRAC of each FRF, 1 alike."""
    log_error: float | None = None
    """Root mean square error of log H."""
    frequency_errors_hz: tuple[float, ...] = ()
    """Absolute errors of natural frequencies."""
    explained_percent: float | None = None
    """100 (1 - RMS of what is left / RMS of what was measured), of data on a linear scale."""

    @property
    def poor(self) -> bool:
        """Whether the machine predicts something else than was measured.

        Fits that follow what was measured stay below a log error of 0.3, 35 % in magnitude or 17 degrees of phase,
        antiresonances included (0.20 for `daisy-arm`, 0.07 with 5 % of noise); a reversed sensor, the wrong unit or
        order of points, or the other sign of time left 0.5 to 3.
        """
        error, explained = self.log_error, self.explained_percent
        return (error is not None and error > 0.3) or (explained is not None and explained < 50.0)


class Test(eqx.Module, Generic[View]):
    """One test of a machine: its data, what it sees of the machine, and how a prediction compares with the data.

    Each kind of test is a final class of its own. What else it can tell are components (see
    `jaxmb.identify.experiments.components`); None is one that it lacks.
    """

    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def view(self, model: Model) -> View:
        """What the test sees of a machine."""

    @abc.abstractmethod
    def predict(self, view: View) -> Any:
        """What would be measured."""

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
        """Number of residuals."""

    @abc.abstractmethod
    def score(self, view: View, reference_hz: np.ndarray | None) -> Score:
        """How well a machine predicts the test.

        Args:
            view: of the machine.
            reference_hz: natural frequencies that are known of the machine that was measured; None where none are.
        """

    @property
    def noise(self) -> Noise[Any]:
        """Of its rows."""
        return Noise(self)

    @property
    def evaluation(self) -> Evaluation[Any]:
        """How a fit evaluates its residual."""
        return Evaluation(self)

    @property
    def lines(self) -> Lines[Any] | None:
        """Of its spectra."""
        return None

    @property
    def linear(self) -> LinearForm[Any] | None:
        """Its linear equations."""
        return None

    @property
    def hypotheses(self) -> Hypotheses[Any] | None:
        """Mistakes in its description."""
        return None

    @property
    def own(self) -> OwnParameters[Any] | None:
        """Numbers of its own."""
        return None

    @property
    def vibration(self) -> Vibration[Any] | None:
        """Small motions of the machine at its posture."""
        return None
