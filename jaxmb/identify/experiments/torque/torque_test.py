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
    IdentifiableCombinations,
    LinearForm,
    Noise,
    OwnParameters,
)
from jaxmb.identify.experiments.test import Score, Test
from jaxmb.identify.parameters.free_parameters import FreeParameters, affine_numbers
from jaxmb.identify.parameters.model_parameters import ParameterSpec
from jaxmb.identify.regression.base_parameters import base_parameters, relevant_names
from jaxmb.identify.regression.torque_regressor import regressor_names
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model


class TorqueTest(Test[Float[Array, "p"]]):
    """Efforts at coordinates along a motion: effort = Y p + c, p the inertial and friction parameters of the machine.

    The motion is given and geometry is fixed, so that Y is constant.
    """

    name: str = eqx.field(static=True)
    parameters: tuple[str, ...] = eqx.field(static=True)
    """Names of p (`regressor_names`, and Stribeck speeds)."""
    targets: tuple[ParameterSpec, ...] = eqx.field(static=True)
    """Entry of each in the model."""
    regressor: Float[Array, "r p"]
    """Y, filtered as the efforts are."""
    effort: Float[Array, "r"]
    """Measured efforts, Nm or N."""
    std: Float[Array, "r"]
    coordinate: Int[Array, "r"]
    """Index of the coordinate of each row among those measured."""
    is_robust: bool = eqx.field(static=True, default=False)
    """Whether outliers are down-weighted."""
    correlation_length: Float[Array, "r"] | None = None
    """Correlation length of each row in samples, by which the variance `std`^2 is inflated so that correlated samples
    enter as if independent; None for 1."""
    constant: Float[Array, "r"] | float = 0.0
    """Constant term c, from linearized columns."""
    own_names: tuple[str, ...] = eqx.field(static=True, default=())
    """Names of the test's own parameters: gains of drives, and the delay of the torques."""
    own_values: Float[Array, "g"] | None = None
    """Values of the own parameters."""
    own_columns: Float[Array, "r g"] | None = None
    """Columns of the own parameters."""

    def view(self, model: Model) -> Float[Array, "p"]:
        """The inertial and friction parameters of a machine."""
        return jnp.stack([getattr(model, place.leaf)[place.entries[0]] for place in self.targets])

    def predict(self, view: Float[Array, "p"]) -> Float[Array, "r"]:
        """Efforts of all rows, Nm or N."""
        predicted = self.regressor @ view + self.constant
        if self.own_columns is None or self.own_values is None:
            return predicted
        return predicted + self.own_columns @ self.own_values

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
        """Explained part of the measured efforts, each coordinate relative to its own size."""
        measured, missed = self.sizes(view)
        loaded = measured > 0.0
        if not loaded.any():
            return Score()
        errors = missed[loaded] / measured[loaded]
        return Score(explained_percent=100.0 * (1.0 - float(np.sqrt(np.mean(errors**2)))))

    def sizes(self, view: Any) -> tuple[Float[np.ndarray, "c"], Float[np.ndarray, "c"]]:
        """Root mean square of the effort and of the residual at each measured coordinate, Nm or N."""
        number, measured = np.asarray(self.coordinate), np.asarray(self.effort)
        squares = np.stack([measured, measured - np.asarray(self.predict(view))]) ** 2
        sums = [np.bincount(number, weights=part) / np.bincount(number) for part in squares]
        return np.sqrt(sums[0]), np.sqrt(sums[1])

    def with_own(
        self, names: Sequence[str], values: Float[np.ndarray, "k"], columns: Float[np.ndarray, "r k"]
    ) -> "TorqueTest":
        """The test with further own parameters.

        Args:
            names: of these.
            values: of linearization, at which the prediction is unchanged.
            columns: derivatives of the prediction.
        """
        before = np.zeros((self.rows, 0)) if self.own_columns is None else np.asarray(self.own_columns)
        return dataclasses.replace(
            self,
            constant=jax.device_put(np.asarray(self.constant) - columns @ values),
            own_names=(*self.own_names, *names),
            own_values=jax.device_put(values if self.own_values is None else np.concatenate([self.own_values, values])),
            own_columns=jax.device_put(np.concatenate([before, columns], axis=1)),
        )

    @property
    def noise(self) -> "TorqueNoise":
        """Noise of efforts."""
        return TorqueNoise(self)

    @property
    def linear(self) -> "TorqueEquations":
        """Efforts as linear equations."""
        return TorqueEquations(self)

    @property
    def own(self) -> "TorqueGains | None":
        """Gains of its drives and its delay, as parameters of the test; None where none are free."""
        return TorqueGains(self) if self.own_names else None


class TorqueCorrelation(Correlation[TorqueTest]):
    """Autocorrelation of the efforts."""

    @property
    def lengths(self) -> Float[np.ndarray, "r"]:
        """Correlation length of each row, by which its variance is inflated."""
        lengths = self.test.correlation_length
        return np.ones(self.test.rows) if lengths is None else np.asarray(lengths)


class TorqueNoise(Noise[TorqueTest]):
    """Noise of efforts."""

    @property
    def correlation(self) -> TorqueCorrelation:
        """Correlation between samples."""
        return TorqueCorrelation(self.test)


class TorqueEquations(LinearForm[TorqueTest]):
    """Efforts as linear equations in inertial and friction parameters, gains and a delay."""

    @property
    def robust(self) -> bool:
        """Whether outliers are down-weighted."""
        return self.test.is_robust

    @property
    def accepts_prior(self) -> bool:
        """True: a prior is appended as further equations."""
        return True

    def reciprocal(self, model: Model, free: FreeParameters) -> Float[np.ndarray, "d"] | None:
        """Zeros: efforts are linear in each value; NaN for values without effect on them.

        Raises:
            NotImplementedError: the free length of a spring is to be identified; its product with the stiffness is not
                linear.
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
        if self.test.own_columns is not None:
            columns, own = np.asarray(self.test.own_columns), np.array(self.test.own_values)
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

    def combinations(self, model: Model, free: FreeParameters) -> IdentifiableCombinations:
        """Base parameters."""
        found = base_parameters(model, relevant_names(model, {name for names in free.tied for name in names}))
        return IdentifiableCombinations(found.names, found.formulas, regressor_names(model), found.matrix)


class TorqueGains(OwnParameters[TorqueTest]):
    """Gains of drives and a delay."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the gains of its drives, and of its delay."""
        return self.test.own_names

    @property
    def values(self) -> Float[Array, "g"] | Float[np.ndarray, "g"]:
        """Their values, in the order of `names`."""
        return np.zeros(0) if self.test.own_values is None else self.test.own_values

    def with_values(self, values: Float[Array, "g"] | Float[np.ndarray, "g"]) -> "TorqueTest":
        """The test with other values of its own parameters."""
        return dataclasses.replace(self.test, own_values=values)
