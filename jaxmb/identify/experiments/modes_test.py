"""A modal test: natural frequencies, damping ratios, what moves in each mode, and shapes at sensors."""

import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float, Int
from optax.assignment import hungarian_algorithm

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.components import Noise
from jaxmb.identify.experiments.entry import Entry, Source
from jaxmb.identify.experiments.motion import MotionVibration, PostureTest
from jaxmb.identify.experiments.motion_view import MotionView
from jaxmb.identify.experiments.test import Score
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf_kind import Point
from jaxmb.response.modal import energy_shares, oscillating_modes

UNPAIRABLE = 1e12
"""Squared error of a pair that cannot be: larger than that of any other, and still finite."""
SMALLEST = 1e-300
REPEATED = 1e-4
"""Distance of two eigenvalues, beside their size, below which they are one."""
MOST_REPEATED = 4
ROUNDING = 1e-13
"""Of a shape: two shapes that differ by less at the sensors are one."""


class PairedModes(NamedTuple):
    """Of the predicted mode paired with each measured one, what a modal test compares."""

    frequency_hz: Float[Array, "m"]
    """Damped."""
    damping_ratio: Float[Array, "m"]
    share: Float[Array, "m"]
    """Of the coordinates that the measurement names, in its strain energy."""
    mac: Float[Array, "m"]
    """Of its shape at the sensors with the measured one."""
    errors: Float[Array, "m r"]
    """Of all that was measured, in units of the noise."""


class _Found(NamedTuple):
    """Modes of the machine as a modal test sees them."""

    eigenvalue: Complex[Array, "n"]
    seen: Complex[Array, "o n"]
    """Shapes at the sensors."""
    shares: Float[Array, "m n"]


class ModesTest(PostureTest):
    """Modes measured at one posture: frequencies, damping ratios, what moves in each, and shapes at sensors."""

    name: str = eqx.field(static=True)
    q: Float[Array, "n"]
    at: LinearizeAt = eqx.field(static=True)
    frequency_hz: Float[Array, "m"]
    """Damped frequencies, as modal analysis gives them (eq. 20)."""
    damping_ratio: Float[Array, "m"]
    content: Bool[Array, "m n"]
    """Coordinates of the machine that dominate each mode; all False where that is not known."""
    shape: Complex[Array, "m o"]
    """What each output moves in each mode, the largest component 1."""
    frequency_std: Float[Array, "m"]
    damping_std: Float[Array, "m"]
    shape_std: Float[Array, ""]
    """Of each component, real and imaginary part."""
    content_share: Float[Array, ""]
    """Share of a mode's strain energy that its named coordinates hold at least."""
    content_std: Float[Array, ""]

    outputs: tuple[Point, ...] = eqx.field(static=True, default=())
    """Sensors of the shapes."""
    inputs: tuple[Point, ...] = eqx.field(static=True, default=())
    """The same: no force is needed."""
    has_content: bool = eqx.field(static=True, default=True)
    """Whether `content` names anything."""

    def predict(self, view: MotionView) -> PairedModes:
        """The predicted mode that stands for each measured one.

        Of all one-to-one pairings the one with the smallest sum of squared errors counts, of frequencies, damping,
        content and shapes together, so that the cost stays continuous where two predicted modes change places.
        """
        eigenvalue, shape, oscillates = oscillating_modes(view.tangent)
        found = _Found(eigenvalue, view.output_rows @ shape, self._shares(view, shape))
        # which belongs to which has no derivative: it is only asked for where modes are compared that stay together
        fixed = jax.lax.stop_gradient(found)
        every = jnp.arange(eigenvalue.size)
        errors = jax.vmap(lambda mode: self._compared(fixed, jnp.broadcast_to(mode, self.frequency_hz.shape))[1])(every)
        squares = jnp.where(oscillates, jnp.sum(errors**2, axis=-1).T, UNPAIRABLE)
        rows, columns = hungarian_algorithm(jnp.minimum(squares, UNPAIRABLE))
        pairs = jnp.zeros(self.frequency_hz.size, dtype=columns.dtype).at[rows].set(columns)
        (frequency, damping, shares, mac), errors = self._compared(found, pairs)
        return PairedModes(frequency, damping, shares, mac, errors)

    def _shares(self, view: MotionView, shape: Complex[Array, "x n"]) -> Float[Array, "m n"]:
        """Share of what the measurement names of each mode in the strain energy of each predicted one; 0 where it
        names nothing."""
        if view.stiffness is None:
            return jnp.zeros((self.frequency_hz.size, shape.shape[1]))
        return self.content[:, np.array(view.is_unlocked)].astype(float) @ energy_shares(shape, view.stiffness)

    def _compared(self, found: "_Found", pairs: Int[Array, "m"]) -> tuple[tuple[Array, ...], Float[Array, "m r"]]:
        """Frequency, damping ratio, share and MAC of one predicted mode for each measured one, and all errors."""
        value = found.eigenvalue[pairs]
        frequency, damping = value.imag / (2 * jnp.pi), -value.real / jnp.abs(value)
        shares = jnp.take_along_axis(found.shares, pairs[:, None], axis=1)[:, 0]
        mac, apart = self._compared_shapes(found, pairs)
        missing = jnp.where(jnp.any(self.content, axis=1), jnp.maximum(self.content_share - shares, 0.0), 0.0)
        errors = jnp.concatenate([
            ((frequency - self.frequency_hz) / self.frequency_std)[:, None],
            ((damping - self.damping_ratio) / self.damping_std)[:, None],
            (missing / self.content_std)[:, None],
            apart / self.shape_std,
        ], axis=-1)  # fmt: skip
        return (frequency, damping, shares, mac), errors

    def _compared_shapes(
        self, found: "_Found", pairs: Int[Array, "m"]
    ) -> tuple[Float[Array, "m"], Float[Array, "m r"]]:
        """MAC of each measured with its predicted shape, and what the measured one keeps beside the predicted one.

        a - B (B^H B)^-1 B^H a, real then imaginary parts: its square is |a|^2 (1 - MAC), whatever the scale of the
        columns of B. These are the predicted shape, and where a machine has several modes of one frequency the shapes
        of all of them: only what they span is known.
        """
        if not self.outputs:
            return jnp.ones(pairs.shape), jnp.zeros((*pairs.shape, 0))
        value, count = found.eigenvalue, min(MOST_REPEATED, found.eigenvalue.size)
        distance = jax.lax.stop_gradient(jnp.abs(value[pairs][:, None] - value[None, :]))
        nearest = jnp.argsort(distance, axis=1)[:, :count]
        same = jnp.take_along_axis(distance, nearest, axis=1) <= REPEATED * jnp.abs(value[pairs])[:, None]
        spanned = jnp.where(same[:, None, :], found.seen.T[nearest].swapaxes(1, 2), 0.0)
        size = jnp.maximum(jnp.sum(jnp.abs(spanned) ** 2, axis=1), SMALLEST)
        spanned = spanned / jnp.sqrt(size)[:, None, :]
        gram = jnp.einsum("moa,mob->mab", jnp.conj(spanned), spanned)
        gram = gram + jnp.eye(count) * jnp.where(same, ROUNDING, 1.0)[:, None, :]
        along = jnp.einsum("moa,mo->ma", jnp.conj(spanned), self.shape)
        parts = jnp.linalg.solve(gram, along[..., None])[..., 0]
        apart = self.shape - jnp.einsum("moa,ma->mo", spanned, parts)
        whole = jnp.sum(jnp.abs(self.shape) ** 2, axis=1)
        mac = jnp.real(jnp.sum(jnp.conj(along) * parts, axis=-1)) / whole
        return mac, jnp.concatenate([apart.real, apart.imag], axis=-1)

    def residual(self, view: MotionView) -> Float[Array, "r"]:
        """Errors of all frequencies, then of all damping ratios, content, and shapes, in units of their noise."""
        return self.predict(view).errors.T.ravel()

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return (3 + 2 * len(self.outputs)) * self.frequency_hz.size

    @property
    def shares_energy(self) -> bool:
        """Whether it names what dominates modes."""
        return self.has_content

    def row_weights(self) -> Float[np.ndarray, "r"]:
        """Variance of every residual under the test's own noise: 1."""
        return np.ones(self.rows)

    def score(self, view: MotionView, reference_hz: np.ndarray | None) -> Score:
        """Errors of the natural frequencies."""
        found = np.asarray(predict_modes(self, view).frequency_hz)
        return Score(frequency_errors_hz=tuple(np.abs(found - np.asarray(self.frequency_hz)).tolist()))

    @property
    def noise(self) -> "ModesNoise":
        """Of frequencies, damping ratios and shapes."""
        return ModesNoise(self)

    @property
    def vibration(self) -> "ModesVibration":
        """Small motions at its posture."""
        return ModesVibration(self)


class ModesNoise(Noise[ModesTest]):
    """Noise of modes; scale and phase of each shape are free."""

    @property
    def nuisance_rows(self) -> int:
        """Scale and phase of each shape are free."""
        return 2 * self.test.frequency_hz.size if self.test.outputs else 0


class ModesVibration(MotionVibration[ModesTest]):
    """Small motions at the posture of a modal test."""

    @property
    def band_end_hz(self) -> float:
        """A quarter beyond the last measured mode."""
        return 1.25 * self.highest_hz

    @property
    def highest_hz(self) -> float:
        """Frequency of the last measured mode."""
        return float(np.max(np.asarray(self.test.frequency_hz)))

    @property
    def highest_text(self) -> str:
        """What `highest_hz` is, in a sentence."""
        return "the highest measured mode at"

    @property
    def first_frequency_hz(self) -> float:
        """Frequency of the first measured mode."""
        return float(np.min(np.asarray(self.test.frequency_hz)))


def predict_modes(test: ModesTest, view: MotionView) -> PairedModes:
    """`ModesTest.predict`, compiled once for tests that differ in their names alone."""
    return _predict_modes(dataclasses.replace(test, name=""), view)


_predict_modes = compiled(ModesTest.predict)


ModesEntry = Entry[ModesTest, Source]
"""A modal test of a study."""
