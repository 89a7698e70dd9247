"""A modal test: natural frequencies, damping ratios, dominant coordinates of each mode, and shapes at sensors."""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int

from jaxmb.compiled import compiled, on_host
from jaxmb.identify.experiments.components import Attached, Noise, Vibration, column_alternatives, exchanged
from jaxmb.identify.experiments.posture_test import (
    PostureDescription,
    PostureErrors,
    PostureTest,
    displaced_view,
    posture_alternatives,
)
from jaxmb.identify.experiments.test import Entry, Score, Source
from jaxmb.identify.experiments.tolerances import StatedError, error_with_text, factor_text
from jaxmb.identify.experiments.vibration_view import VibrationView
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf_kind import Point, dof_names
from jaxmb.response.modal import energy_shares, oscillating_modes, selected_modes, unit_shapes

UNPAIRABLE = 1e12
"""Squared error of an inadmissible pair: larger than that of any other, and finite."""
SMALLEST = 1e-300
REPEATED = 1e-4
"""Relative distance of two eigenvalues below which they count as repeated."""
MOST_REPEATED = 4
ROUNDING = 1e-13
"""Relative difference of two shapes at the sensors below which they count as equal."""


class PairedModes(NamedTuple):
    """Quantities of the predicted mode paired with each measured mode."""

    frequency_hz: Float[Array, "m"]
    """Damped natural frequencies."""
    damping_ratio: Float[Array, "m"]
    share: Float[Array, "m"]
    """Share of the measured mode's dominant coordinates in the strain energy of the predicted mode."""
    mac: Float[Array, "m"]
    """MAC of its shape at the sensors with the measured shape."""
    shape: Complex[Array, "m o"]
    """Its shape at the sensors, the largest component 1."""
    errors: Float[Array, "m r"]
    """Errors of all measured quantities, in units of the noise."""


class ModesNoise(Noise["ModesTest"]):
    """Noise of modes; scale and phase of each shape are nuisance parameters."""

    def noiseless(self, view: VibrationView) -> "ModesTest":
        """The test with noise-free data of a machine: the residual is not linear in measured shapes."""
        found = predict_modes(self.test, view)
        return dataclasses.replace(
            self.test, frequency_hz=found.frequency_hz, damping_ratio=found.damping_ratio, shape=found.shape
        )

    @property
    def nuisance_rows(self) -> int:
        """Scale and phase of each shape."""
        return 2 * self.test.frequency_hz.size if self.test.outputs else 0


class ModesVibration(Vibration["ModesTest"]):
    """Linearized motion at the posture of a modal test."""

    highest_text = "the highest measured mode at"

    @property
    def band_end_hz(self) -> float:
        """1.25 times the highest measured natural frequency, Hz."""
        return 1.25 * self.highest_hz

    @property
    def highest_hz(self) -> float:
        """Highest measured natural frequency, Hz."""
        return float(np.max(np.asarray(self.test.frequency_hz)))

    @property
    def first_frequency_hz(self) -> float:
        """Lowest measured natural frequency, Hz."""
        return float(np.min(np.asarray(self.test.frequency_hz)))


class ModesDescription(PostureDescription["ModesTest"]):
    """Errors of frequencies, damping ratios, sensors and posture of a modal test."""

    def residual(self, model: Model, errors: PostureErrors) -> Float[Array, "r"]:
        """Residual with the description corrected."""
        test = self.test
        own = test.content.shape[1] - len(model.springs) - len(model.beams)
        further = jnp.zeros((test.content.shape[0], len(model.coordinates) - own), bool)  # follow its coordinates
        factor = jnp.exp(errors.log_frequency)
        damping = jnp.exp(-errors.log_damping)
        true = dataclasses.replace(
            test,
            frequency_hz=test.frequency_hz * factor,
            frequency_std=test.frequency_std * factor,
            damping_ratio=test.damping_ratio * damping,
            damping_std=test.damping_std * damping,
            content=jnp.concatenate([test.content[:, :own], further, test.content[:, own:]], axis=1),
        )
        view = displaced_view(true, model, errors)
        rows = view.output_rows * jnp.exp(errors.log_gain)[:, None]  # on measured shapes it would scale their noise
        return true.residual(dataclasses.replace(view, output_rows=rows))

    def of_kind(self) -> Iterator[tuple[StatedError, str]]:
        """Damping ratios of this test and of all modal tests."""
        name = self.test.name
        for key, where in ((name, display_name(name)), ("modes", "all modal tests")):
            text = f"the damping ratios of {where}"
            yield error_with_text(f"damping of {key}", factor_text, text, size=0.1), "log_damping"

    def alternatives(self, model: Model) -> Iterator[tuple[str, str, "ModesTest"]]:
        """Reversed and exchanged sensors, exchanged numbers of two neighbouring modes, degrees for radians."""
        test, shape = self.test, np.asarray(self.test.shape)
        lists: dict[str, tuple[str, ...]] = {
            "frequencies": ("frequency_hz", "frequency_std"),
            "damping ratios": ("damping_ratio", "damping_std"),
        }
        if test.outputs:
            lists["shapes"] = ("shape",)
        frequency_hz = np.asarray(test.frequency_hz)
        for i, k in itertools.pairwise(np.argsort(frequency_hz).tolist()):
            order = exchanged(frequency_hz.size, i, k)
            for what, names in lists.items():
                text = f"exchanged {what} of the modes at {frequency_hz[i]:.4g} and {frequency_hz[k]:.4g} Hz"
                fields = {name: jax.device_put(np.asarray(getattr(test, name))[order]) for name in names}
                yield text, text, dataclasses.replace(test, **fields)
        for text, order, sign in column_alternatives(dof_names(test.outputs), "output ", "outputs "):
            yield (
                text.removeprefix("the "),
                text,
                dataclasses.replace(test, shape=jax.device_put(shape[:, order] * sign)),
            )
        yield from posture_alternatives(test, model)


class ModesTest(PostureTest):
    """Modes measured at one posture: frequencies, damping ratios, dominant coordinates, and shapes at sensors."""

    name: str = eqx.field(static=True)
    q: Float[Array, "n"]
    at: LinearizeAt = eqx.field(static=True)
    frequency_hz: Float[Array, "m"]
    """Damped natural frequencies, as from modal analysis (eq. 20)."""
    damping_ratio: Float[Array, "m"]
    content: Bool[Array, "m n"]
    """Coordinates, springs between frames and beams that dominate each mode; all False where unknown."""
    shape: Complex[Array, "m o"]
    """Mode shape at the outputs, the largest component 1."""
    frequency_std: Float[Array, "m"]
    damping_std: Float[Array, "m"]
    shape_std: Float[Array, ""]
    """Standard deviation of each component, real and imaginary part each."""
    content_share: Float[Array, ""]
    """Lower bound of the share of the dominant coordinates in a mode's strain energy."""
    content_std: Float[Array, ""]

    outputs: tuple[Point, ...] = eqx.field(static=True, default=())
    """Sensors of the mode shapes."""
    inputs: tuple[Point, ...] = eqx.field(static=True, default=())
    """Those of the machine's view of the test, which needs no force: none, or the outputs."""
    has_content: bool = eqx.field(static=True, default=True)
    """Whether dominant coordinates are given for any mode."""

    def predict(self, view: VibrationView) -> PairedModes:
        """The predicted mode paired with each measured mode.

        The one-to-one pairing minimizes the sum of squared errors of frequencies, damping, content and shapes together,
        so that the cost is continuous where two predicted modes swap order.
        """
        from optax.assignment import hungarian_algorithm  # imported here: it takes 0.06 s

        eigenvalue, shape, oscillates = oscillating_modes(view.tangent)
        # the pairing has no derivative: derivatives are those of the errors at a fixed pairing
        value, fixed = jax.lax.stop_gradient((eigenvalue, shape))
        seen, shares = view.output_rows @ fixed, self._shares(view, fixed)
        count, measured = min(MOST_REPEATED, value.size), jnp.arange(self.frequency_hz.size)
        # the mode itself is first, also if its eigenvalue is repeated
        distance = jnp.abs(value[:, None] - value[None, :]).at[jnp.diag_indices(value.size)].set(-1.0)
        nearest = jnp.argsort(distance, axis=1)[:, :count]

        def of_mode(mode: Int[Array, ""]) -> Float[Array, "m r"]:
            near = jnp.broadcast_to(nearest[mode], (measured.size, count))
            return self._compared(value[near], seen.T[near].swapaxes(1, 2), shares[:, mode])[1]

        squares = jnp.sum(jax.vmap(of_mode)(jnp.arange(value.size)) ** 2, axis=-1).T
        squares = jnp.where(oscillates, squares, UNPAIRABLE)
        rows, columns = hungarian_algorithm(jnp.minimum(squares, UNPAIRABLE))
        pairs = jnp.zeros(measured.size, dtype=columns.dtype).at[rows].set(columns)
        near = nearest[pairs]
        value, shape = selected_modes(view.tangent, eigenvalue, shape, near.ravel())
        seen = (view.output_rows @ shape).T.reshape(*near.shape, -1).swapaxes(1, 2)
        share = jnp.diagonal(self._shares(view, shape[:, ::count]))
        (frequency, damping, mac), errors = self._compared(value.reshape(near.shape), seen, share)
        return PairedModes(frequency, damping, share, mac, unit_shapes(seen[..., 0].T).T, errors)

    def _shares(self, view: VibrationView, shape: Complex[Array, "x n"]) -> Float[Array, "m n"]:
        """Share of the dominant coordinates of each measured mode in the strain energy of each predicted mode; 0 where
        none are given."""
        if view.stiffness is None:
            return jnp.zeros((self.frequency_hz.size, shape.shape[1]))
        return self.content[:, np.array(view.is_unlocked)].astype(float) @ energy_shares(shape, view.stiffness)

    def _compared(
        self, eigenvalue: Complex[Array, "m c"], seen: Complex[Array, "m o c"], share: Float[Array, "m"]
    ) -> tuple[tuple[Array, ...], Float[Array, "m r"]]:
        """Frequency, damping ratio and MAC of the predicted mode compared with each measured one, and all errors.

        Args:
            eigenvalue: of the compared mode, first, and of the modes with the nearest eigenvalues.
            seen: their shapes at the sensors.
            share: of the measured mode's dominant coordinates in the strain energy of the first.
        """
        value = eigenvalue[:, 0]
        frequency, damping = value.imag / (2 * jnp.pi), -value.real / jnp.abs(value)
        mac, orthogonal = self._compared_shapes(eigenvalue, seen)
        missing = jnp.where(jnp.any(self.content, axis=1), jnp.maximum(self.content_share - share, 0.0), 0.0)
        errors = jnp.concatenate([
            ((frequency - self.frequency_hz) / self.frequency_std)[:, None],
            ((damping - self.damping_ratio) / self.damping_std)[:, None],
            (missing / self.content_std)[:, None],
            orthogonal / self.shape_std,
        ], axis=-1)  # fmt: skip
        return (frequency, damping, mac), errors

    def _compared_shapes(
        self, value: Complex[Array, "m c"], seen: Complex[Array, "m o c"]
    ) -> tuple[Float[Array, "m"], Float[Array, "m r"]]:
        """MAC of each measured with its predicted shape, and the part of the measured shape orthogonal to the predicted
        one.

        a - B (B^H B)^-1 B^H a, real then imaginary parts: its square is |a|^2 (1 - MAC), whatever the scale of the
        columns of B. These are the predicted shape, and for repeated eigenvalues the shapes of all of them: only their
        span is determined.
        """
        if not self.outputs:
            return jnp.ones(value.shape[0]), jnp.zeros((value.shape[0], 0))
        distance = jax.lax.stop_gradient(jnp.abs(value - value[:, :1]))
        same = distance <= REPEATED * jnp.abs(value[:, :1])
        spanned = jnp.where(same[:, None, :], seen, 0.0)
        size = jnp.maximum(jnp.sum(jnp.abs(spanned) ** 2, axis=1), SMALLEST)
        spanned = spanned / jnp.sqrt(size)[:, None, :]
        gram = jnp.einsum("moa,mob->mab", jnp.conj(spanned), spanned)
        gram = gram + jnp.eye(value.shape[1]) * jnp.where(same, ROUNDING, 1.0)[:, None, :]
        projections = jnp.einsum("moa,mo->ma", jnp.conj(spanned), self.shape)
        coefficients = jnp.linalg.solve(gram, projections[..., None])[..., 0]
        orthogonal = self.shape - jnp.einsum("moa,ma->mo", spanned, coefficients)
        whole = jnp.sum(jnp.abs(self.shape) ** 2, axis=1)
        mac = jnp.real(jnp.sum(jnp.conj(projections) * coefficients, axis=-1)) / whole
        return mac, jnp.concatenate([orthogonal.real, orthogonal.imag], axis=-1)

    def residual(self, view: VibrationView) -> Float[Array, "r"]:
        """Errors of all frequencies, then of all damping ratios, content, and shapes, in units of their noise."""
        return self.predict(view).errors.T.ravel()

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return (3 + 2 * len(self.outputs)) * self.frequency_hz.size

    def stated_variances(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """1; 0 for damping ratios that were not measured, and where no dominant coordinates are given."""
        damping_std, content = on_host(self.damping_std), on_host(self.content)
        xp = damping_std.__array_namespace__()
        given = xp.stack([xp.ones(damping_std.shape, bool), xp.isfinite(damping_std), content.any(axis=1)])
        return xp.concatenate([given.ravel().astype(float), xp.ones(self.rows - given.size)])

    @property
    def shares_energy(self) -> bool:
        """Whether dominant coordinates are given for any mode."""
        return self.has_content

    def score(self, view: VibrationView, reference_hz: np.ndarray | None) -> Score:
        """Errors of the natural frequencies."""
        measured = np.asarray(self.frequency_hz)
        error = np.abs(np.asarray(predict_modes(self, view).frequency_hz) - measured)
        relative = float(np.sqrt(np.mean((error / measured) ** 2)))
        return Score(frequency_errors_hz=tuple(error.tolist()), frequency_error=relative)

    noise = Attached(ModesNoise)
    """Noise of frequencies, damping ratios and shapes."""
    description = Attached(ModesDescription)
    """Possible errors of its description."""
    vibration = Attached(ModesVibration)
    """Linearized motion at its posture."""


def predict_modes(test: ModesTest, view: VibrationView) -> PairedModes:
    """`ModesTest.predict`, compiled once for tests that differ only in their names."""
    return _predict_modes(dataclasses.replace(test, name=""), view)


_predict_modes = compiled(ModesTest.predict)


ModesEntry = Entry[ModesTest, Source]
"""A modal test of a study."""
