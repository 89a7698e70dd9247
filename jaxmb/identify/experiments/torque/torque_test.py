"""A torque test: efforts of drives along a motion, linear in inertial and friction parameters."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.identify.experiments.components import (
    Correlation,
    Equations,
    LinearForm,
    Noise,
    OwnParameters,
    Sums,
)
from jaxmb.identify.experiments.names import display_name
from jaxmb.identify.experiments.test import Score, Test
from jaxmb.identify.parameters.free_parameters import FreeParameters, affine_numbers
from jaxmb.identify.parameters.model_parameters import ParameterSpec
from jaxmb.identify.regression.base_parameters import base_parameters, relevant_names
from jaxmb.identify.regression.torque_regressor import regressor_names
from jaxmb.machine.build import Model


class TorqueTest(Test[Float[Array, "p"]]):
    """Efforts at coordinates along a motion: effort = Y p + c, p the inertial and friction parameters of the machine.

    The motion is given and geometry is not free, so that Y is a matrix of numbers.
    """

    name: str = eqx.field(static=True)
    parameters: tuple[str, ...] = eqx.field(static=True)
    """Names of p (`regressor_names`, and Stribeck speeds)."""
    targets: tuple[ParameterSpec, ...] = eqx.field(static=True)
    """Where each stands in the model."""
    regressor: Float[Array, "r p"]
    """Y, filtered as the efforts are."""
    effort: Float[Array, "r"]
    """Measured, Nm or N."""
    std: Float[Array, "r"]
    coordinate: Int[Array, "r"]
    """Number, among those measured, of the coordinate of each row."""
    is_robust: bool = eqx.field(static=True, default=False)
    """Whether outliers are given less weight."""
    alike: Float[Array, "r"] | None = None
    """By what the square of the deviation of each row is larger than that of its noise, so that neighbouring samples
    that are alike count as if they were independent; 1 for all where there is none."""
    constant: Float[Array, "r"] | float = 0.0
    """Beside the columns of what is not linear, taken so about a value that is known."""
    own_names: tuple[str, ...] = eqx.field(static=True, default=())
    """Of numbers of its own that may be free: gains of drives, and the delay of the torques."""
    own_values: Float[Array, "g"] | None = None
    """Values of these."""
    of_own: Float[Array, "r g"] | None = None
    """Columns of these."""

    def view(self, model: Model) -> Float[Array, "p"]:
        """The inertial and friction parameters of a machine."""
        return jnp.stack([getattr(model, place.leaf)[place.entries[0]] for place in self.targets])

    def predict(self, view: Float[Array, "p"]) -> Float[Array, "r"]:
        """Efforts of all rows, Nm or N."""
        predicted = self.regressor @ view + self.constant
        if self.of_own is None or self.own_values is None:
            return predicted
        return predicted + self.of_own @ self.own_values

    def residual(self, view: Float[Array, "p"]) -> Float[Array, "r"]:
        """(predicted - measured) / standard deviation."""
        return (self.predict(view) - self.effort) / self.std

    @property
    def rows(self) -> int:
        """Number of efforts."""
        return self.effort.size

    def row_weights(self) -> Float[Array, "r"] | Float[np.ndarray, "r"]:
        """1 for every row."""
        return np.ones(self.effort.shape)

    def score(self, view: Any, reference_hz: np.ndarray | None) -> Score:
        """How much of the measured efforts is explained, each coordinate's over its own size."""
        measured, missed = self.sizes(view)
        loaded = measured > 0.0
        if not loaded.any():
            return Score()
        errors = missed[loaded] / measured[loaded]
        return Score(explained_percent=100.0 * (1.0 - float(np.sqrt(np.mean(errors**2)))))

    def sizes(self, view: Any) -> tuple[Float[np.ndarray, "c"], Float[np.ndarray, "c"]]:
        """Root mean square of the effort at each measured coordinate, and of what the prediction misses, Nm or N."""
        number, measured = np.asarray(self.coordinate), np.asarray(self.effort)
        squares = np.stack([measured, measured - np.asarray(self.predict(view))]) ** 2
        sums = [np.bincount(number, weights=part) / np.bincount(number) for part in squares]
        return np.sqrt(sums[0]), np.sqrt(sums[1])

    def with_own(
        self, names: Sequence[str], values: Float[np.ndarray, "k"], columns: Float[np.ndarray, "r k"]
    ) -> "TorqueTest":
        """The test with further numbers of its own.

        Args:
            names: of these.
            values: about which their columns are taken: there the prediction is as before.
            columns: derivatives of the prediction.
        """
        before = np.zeros((self.rows, 0)) if self.of_own is None else np.asarray(self.of_own)
        return dataclasses.replace(
            self,
            constant=jax.device_put(np.asarray(self.constant) - columns @ values),
            own_names=(*self.own_names, *names),
            own_values=jax.device_put(values if self.own_values is None else np.concatenate([self.own_values, values])),
            of_own=jax.device_put(np.concatenate([before, columns], axis=1)),
        )

    @property
    def noise(self) -> "TorqueNoise":
        """Of efforts."""
        return TorqueNoise(self)

    @property
    def linear(self) -> "TorqueEquations":
        """Efforts as linear equations."""
        return TorqueEquations(self)

    @property
    def own(self) -> "TorqueGains | None":
        """Gains of its drives, and its delay."""
        return TorqueGains(self) if self.own_names else None


class TorqueCorrelation(Correlation[TorqueTest]):
    """Neighbouring samples that are alike."""

    @property
    def lengths(self) -> Float[np.ndarray, "r"]:
        """How many neighbouring rows tell as much as one; their deviations are so much larger."""
        return np.ones(self.test.rows) if self.test.alike is None else np.asarray(self.test.alike)


class TorqueNoise(Noise[TorqueTest]):
    """Noise of efforts."""

    @property
    def correlation(self) -> TorqueCorrelation:
        """Between samples."""
        return TorqueCorrelation(self.test)


class TorqueEquations(LinearForm[TorqueTest]):
    """Efforts as linear equations in inertial and friction parameters, gains and a delay."""

    @property
    def robust(self) -> bool:
        """Whether outliers are given less weight."""
        return self.test.is_robust

    @property
    def accepts_prior(self) -> bool:
        """A prior is some more equations."""
        return True

    def reciprocal(self, model: Model, free: FreeParameters) -> Float[np.ndarray, "d"] | None:
        """Efforts are linear in each value that acts on them.

        Raises:
            NotImplementedError: the length of a spring is free, which its stiffness multiplies.
        """
        lengths = [name for names in free.tied for name in names if name.startswith("free_length.")]
        if lengths:
            raise NotImplementedError(
                f"{display_name(self.test.name)}: efforts are not linear in '{lengths[0]}', it cannot be free"
            )
        mine = {*self.test.parameters, *self.test.own_names}
        acts = [any(name in mine for name in names) for names in free.tied]
        return np.where(acts, 0.0, np.nan)

    def equations(self, model: Model, free: FreeParameters) -> Equations:
        """Efforts as linear equations in the free values."""
        regressor = np.asarray(self.test.regressor)
        share, constant = affine_numbers(model, free, self.test.parameters)
        matrix, rest = regressor @ share, regressor @ constant + np.asarray(self.test.constant)
        if self.test.of_own is not None:
            columns, own = np.asarray(self.test.of_own), np.array(self.test.own_values)
            entries = free.entries_of(self.test.own_names)
            for k, entry in enumerate([] if entries is None else entries.tolist()):
                if entry >= 0:
                    matrix[:, entry] += columns[:, k]
                    own[k] = 0.0
            rest = rest + columns @ own
        return Equations(
            matrix=matrix,
            measured=np.asarray(self.test.effort) - rest,
            std=np.asarray(self.test.std),
            weight=np.ones(self.test.rows),
            case=np.arange(self.test.rows),
        )

    def sums(self, model: Model, free: FreeParameters) -> Sums:
        """Base parameters."""
        found = base_parameters(model, relevant_names(model, {name for names in free.tied for name in names}))
        return Sums(found.names, found.formulas, regressor_names(model), found.matrix)


class TorqueGains(OwnParameters[TorqueTest]):
    """Gains of drives and a delay."""

    @property
    def names(self) -> tuple[str, ...]:
        """Gains of its drives, and its delay."""
        return self.test.own_names

    @property
    def values(self) -> Float[Array, "g"] | Float[np.ndarray, "g"]:
        """Values of these."""
        return np.zeros(0) if self.test.own_values is None else self.test.own_values

    def with_values(self, values: Float[Array, "g"] | Float[np.ndarray, "g"]) -> "TorqueTest":
        """The test with other such numbers."""
        return dataclasses.replace(self.test, own_values=values)
