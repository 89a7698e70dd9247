"""An FRF test: frequency responses measured at one posture."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float
from scipy.special import chdtri

from jaxmb.identify.estimation.least_squares import NormalEquations
from jaxmb.identify.experiments.frf.channels import (
    Channels,
    channel_names,
    channels_of,
    equations_by_entries,
    frf_changes,
    ideal_channels,
    moving,
)
from jaxmb.identify.experiments.frf.noise import (
    SMALLEST,
    leak_factor,
    most_likely_factor,
    noise_at_fit,
    paired_errors_hz,
    peaks_hz,
    resonances,
    window_factor,
)
from jaxmb.identify.experiments.frf.prediction import predict_frf
from jaxmb.identify.experiments.motion import AffineMotion, PostureTest
from jaxmb.identify.experiments.motion_view import MotionView, motion_view
from jaxmb.identify.experiments.test import Hypothesis, Probe, Score
from jaxmb.linalg import log_ratio, on_host
from jaxmb.machine.build import Model
from jaxmb.measurement.line_noise import correlated_lines, lines_of_window, outlier_lines, systematic
from jaxmb.measurement.modal.data import frac
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf import IDEAL, laplace, sensor_factor
from jaxmb.response.frf_kind import Point, dof_names
from jaxmb.response.hits import Sensor
from jaxmb.response.modal import modes

Phase = Literal["safe", "principal"]

AGREE = 0.5
"""Length of the mean of unit vectors from which on phases agree; 0 on average of phases that are noise."""


class FrfTest(PostureTest):
    """Frequency responses measured at one posture."""

    has_lines: ClassVar[bool] = True
    name: str = eqx.field(static=True)
    q: Float[Array, "n"]
    outputs: tuple[Point, ...] = eqx.field(static=True)
    inputs: tuple[Point, ...] = eqx.field(static=True)
    derivatives: int = eqx.field(static=True)
    """0 receptance, 1 mobility, 2 accelerance."""
    at: LinearizeAt = eqx.field(static=True)
    phase: Phase = eqx.field(static=True)
    omega: Float[Array, "f"]
    measured: Complex[Array, "f o i"]
    weight: Float[Array, "f o i"]
    """W of eq. 22; 0 for lines that are not used."""
    noise_std: Float[Array, "f o i"]
    """Standard deviation of log H, real and imaginary part each."""
    known_std: Float[Array, "f o i"]
    """The part of it that is known of each line, such as by a coherence."""
    additive_std: Float[Array, "f o i"]
    """Standard deviation of the additive noise of H behind `known_std`, real and imaginary part each."""
    level: Float[Array, "f o i"]
    """Magnitude of H of which the additive noise was taken."""
    leak: Complex[Array, "f o i"]
    """What the largest response of a line adds to H where one standard deviation of it leaks."""
    nominal_std: Float[Array, ""]
    """Standard deviation of log H that the study states: the unit of its cost."""
    left_out: Bool[Array, "f"]
    """Lines that were left out of the fit because they do not belong to their neighbours."""
    decay: Float[Array, ""]
    """Decay rate sigma of an exponential window behind the responses, 1/s: they are H(j omega + sigma)."""
    noise_is_known: bool = eqx.field(static=True, default=True)
    """Whether the noise is as stated, and not to be estimated from what the fit leaves."""
    sensor: Sensor = eqx.field(static=True, default=IDEAL)
    """Of all outputs."""
    robust: bool = eqx.field(static=True, default=False)
    """Whether outlier lines are left out."""
    symmetrized: bool = eqx.field(static=True, default=False)
    """Whether one response stands for two between the same points, with the channels of both in it."""
    channels: Channels | None = None
    """What is known of its channels; None where they read what is there."""

    def predict(self, view: MotionView) -> Complex[Array, "f o i"]:
        """Frequency responses [f, o, i] of the machine, of the kind that was measured."""
        return predict_frf(view, self.omega, self.derivatives, self.decay, self.sensor, self.channels)

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of the gains of its channels and of its delay; the latter alone where it is symmetrized."""
        names = channel_names(self.name, self.outputs, self.inputs)
        return names[-1:] if self.symmetrized else names

    @property
    def numbers(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """Gains of its channels and its delay, in the order of `number_names`."""
        numbers = self._channels.numbers
        return numbers[-1:] if self.symmetrized else numbers

    def with_numbers(self, numbers: Float[Array, "k"] | Float[np.ndarray, "k"]) -> "FrfTest":
        """The test with other gains and another delay."""
        if self.symmetrized:
            channels = dataclasses.replace(self._channels, delay=numbers[-1])
        else:
            channels = channels_of(numbers, len(self.outputs))
        return dataclasses.replace(self, channels=channels)

    @property
    def _channels(self) -> Channels:
        return ideal_channels(len(self.outputs), len(self.inputs)) if self.channels is None else self.channels

    @property
    def feels_gravity(self) -> bool:
        """Whether its sensors feel gravity as they tilt."""
        return self.sensor.gravity

    def residual(self, view: MotionView) -> Float[Array, "m"]:
        """sqrt(W) (log Hs - log H) / noise, real parts then imaginary parts, of eq. 22 of Huynh et al. 2020.

        "safe" takes the logarithm of the ratio Hs / H, whose phase lies within half a turn. "principal" subtracts the
        principal branches as printed: where the two phases lie on either side of the cut, a small error becomes 2 pi.
        """
        return self.compared(on_host(self.predict(view)))

    def impossible(self, view: MotionView) -> tuple[str, ...]:
        """FRFs that were measured and that the machine predicts as 0, of which there is no logarithm."""
        used, predicted = np.asarray(self.weight) > 0.0, np.asarray(self.predict(view))
        zero = np.argwhere(((predicted == 0.0) & used).any(axis=0))
        outputs, inputs = dof_names(self.outputs), dof_names(self.inputs)
        return tuple(f"the FRF {outputs[o]} / {inputs[i]} is 0" for o, i in zero)

    def compared(self, predicted: Complex[Array, "f o i"] | Complex[np.ndarray, "f o i"]) -> Any:
        """The residual of predicted FRFs; NumPy in, NumPy out."""
        xp = predicted.__array_namespace__()
        weight, measured, noise_std = (
            (self.weight, self.measured, self.noise_std)
            if xp is jnp
            else (np.asarray(x) for x in (self.weight, self.measured, self.noise_std))
        )
        # in one row: XLA vectorizes the innermost axis alone, which would be that of a few inputs
        predicted, weight, measured, noise_std = (x.ravel() for x in (predicted, weight, measured, noise_std))
        used = weight > 0.0
        predicted, measured = xp.where(used, predicted, 1.0), xp.where(used, measured, 1.0)
        scale = xp.sqrt(weight) / noise_std
        if self.phase == "safe" and xp is jnp:
            parts = log_ratio(predicted, measured)
        else:
            safe = self.phase == "safe"
            difference = xp.log(predicted / measured) if safe else xp.log(predicted) - xp.log(measured)
            parts = difference.real, difference.imag
        return xp.concatenate([part * scale for part in parts])

    def normal_equations(
        self, view: AffineMotion, values: Callable[[Float[Array, "d"]], Float[Array, "d"]], u: Float[Array, "d"]
    ) -> NormalEquations:
        """Those of the residual at u; see `Test.normal_equations`."""
        names = moving(view, u.size) if self.phase == "safe" else ()
        if not names:
            return super().normal_equations(view, values, u)

        def compared(h: Array) -> Array:
            seen = h * sensor_factor(laplace(self.omega, self.decay), self.derivatives, self.sensor)
            return self.compared(seen if self.channels is None else self.channels.seen(seen, self.omega, self.decay))

        scale = jnp.sqrt(self.weight) / self.noise_std
        return equations_by_entries(view, names, values, u, self.omega, self.decay, compared, scale)

    def for_residual(self) -> "FrfTest":
        """The test without the parts of which its noise is made, more than half of its numbers."""
        nothing = np.zeros(())
        return dataclasses.replace(
            self, known_std=nothing, additive_std=nothing, level=nothing, leak=nothing, left_out=nothing
        )

    def changes(self, model: Model) -> tuple[Hypothesis, ...]:
        """Factors on frequencies, on FRFs of the test, an output or an input, a delay, coordinates of the posture."""
        highest = float(np.asarray(self.omega).max())
        return frf_changes(self.name, self.outputs, self.inputs, highest, model)

    def residual_with(self, model: Model, changes: Float[Array, "c"]) -> Float[Array, "m"]:
        """The residual with the description changed, by numbers in the order of `changes`."""
        outputs, inputs = len(self.outputs), len(self.inputs)
        parts = jnp.split(changes, np.cumsum([1, 1, 2, outputs, inputs, outputs, inputs]))
        (frequency,), (gain,), delay, of_output, of_input, own_output, own_input, posture = parts
        there = jnp.asarray(self.q).at[: posture.size].add(posture)
        view = motion_view(model, there, self.at, self.outputs, self.inputs, self.sensor.gravity)
        predicted = predict_frf(view, self.omega * jnp.exp(frequency), self.derivatives, self.decay, self.sensor)
        channels = self._channels.changed(gain + of_output + own_output, -of_input - own_input, jnp.sum(delay))
        return self.compared(channels.seen(predicted, self.omega, self.decay))

    def scatter(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Variance, over that of the noise, of what differs from line to line, by the median second
        difference."""
        errors, present = self._errors(residual, row_weights)
        three = present[:, :-2] & present[:, 1:-1] & present[:, 2:]
        bend = errors[:, :-2] - 2.0 * errors[:, 1:-1] + errors[:, 2:]
        return float(np.median(bend[three] ** 2) / (6.0 * chdtri(1, 0.5))) if three.any() else 1.0

    @property
    def noise_is_correlated(self) -> bool:
        """Whether responses leak into each other, at one ratio for all lines."""
        return bool(np.any(np.asarray(self.leak)))

    def systematic(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Part of the variance of what is left that is no noise; 0 where that cannot be told."""
        if self.noise_is_correlated:
            return 0.0
        return systematic(*self._errors(residual, row_weights), self.degrees_factor)

    def outlier_lines(self, residual: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
        """Numbers of outlier lines."""
        return outlier_lines(*self._errors(residual, row_weights))

    @property
    def lines_left_out(self) -> np.ndarray:
        """Numbers of the lines that were left out for that."""
        return np.flatnonzero(np.asarray(self.left_out))

    def without_lines(self, lines: np.ndarray) -> "FrfTest":
        """The test with some lines left out."""
        weight, left_out = np.array(self.weight), np.array(self.left_out)
        weight[lines], left_out[lines] = 0.0, True
        return dataclasses.replace(self, weight=jax.device_put(weight), left_out=jax.device_put(left_out))

    def lines_text(self, lines: np.ndarray) -> str:
        """Frequencies of some lines."""
        return ", ".join(f"{f:.4g}" for f in np.asarray(self.omega)[lines] / (2.0 * np.pi)) + " Hz"

    def _errors(self, residual: np.ndarray, row_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Errors in units of the noise, 0 where none is used, and where one is [real and imaginary part, f, o, i].

        Phases of an FRF that mostly agree are taken on the branch around their mean: those of a reversed sensor are
        half a turn off, where noise would decide the sign.
        """
        used = (row_weights > 0.0).reshape(2, *self.measured.shape)
        weights = np.where(used, row_weights.reshape(used.shape), 1.0)
        plain = np.where(used, residual.reshape(used.shape) / np.sqrt(weights), 0.0)
        if self.phase == "safe":
            scale = np.asarray(self.noise_std)
            turn = np.exp(1j * plain[1] * scale)
            mean = np.sum(used[1] * turn, axis=0) / np.maximum(np.sum(used[1], axis=0), 1)
            around = np.where(np.abs(mean) > AGREE, mean / np.where(mean == 0.0, 1.0, np.abs(mean)), 1.0)
            plain[1] = np.where(used[1], (np.angle(around) + np.angle(turn * around.conj())) / scale, 0.0)
        return plain, used

    @property
    def rows(self) -> int:
        """Number of residuals."""
        return 2 * self.measured.size

    def row_weights(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """W of every residual, which is also the variance of the residual under the test's own noise."""
        weight = on_host(self.weight)
        return weight.__array_namespace__().tile(weight.ravel(), 2)

    def decimate(self, lines: int) -> "FrfTest":
        """The test on at most so many lines, spread evenly over those that count, all with the same weight.

        Peaks that are weighted up make a landscape of narrow valleys; on evenly weighted lines most random starts find
        the right one, and a few lines show it as well as all.
        """
        counts = (np.asarray(self.weight) > 0.0).any(axis=(1, 2))
        order = np.argsort(~counts, kind="stable")  # others make up where there are fewer: tests of one form stay alike
        most = max(np.count_nonzero(counts), min(lines, counts.size))
        picked = np.sort(order[np.unique(np.linspace(0, most - 1, min(lines, most)).round().astype(int))])
        parts = self._at_lines(picked)
        return dataclasses.replace(self, **parts | {"weight": (parts["weight"] > 0.0).astype(float)})

    def at_lines(self, chosen: np.ndarray) -> "FrfTest":
        """The test at some of its lines."""
        return dataclasses.replace(self, **jax.device_put(self._at_lines(chosen)))

    def _at_lines(self, chosen: np.ndarray) -> dict[str, np.ndarray]:
        names = (
            "omega", "measured", "weight", "noise_std", "known_std", "additive_std", "level", "leak", "left_out",
        )  # fmt: skip
        return {name: np.asarray(getattr(self, name))[chosen] for name in names}

    @property
    def can_decimate(self) -> bool:
        """Whether `decimate` leaves fewer rows."""
        return True

    @property
    def exact_cost(self) -> float:
        """Cost, in units of the noise, of a mean error of log H of 1e-8."""
        return 2e-16 * float(np.sum(np.asarray(self.weight))) / float(self.nominal_std) ** 2

    @property
    def noise_known(self) -> bool:
        """Whether the noise is as stated, and not to be estimated from what the fit leaves."""
        return self.noise_is_known

    @property
    def nominal_noise(self) -> float:
        """Standard deviation of log H that the study states."""
        return float(self.nominal_std)

    @property
    def noise_follows_fit(self) -> bool:
        """Whether `at_fit` gives another test."""
        return bool(np.any(np.asarray(self.additive_std))) or self.noise_is_correlated

    def at_fit(self, view: MotionView) -> "FrfTest":
        """The test with additive noise taken of the FRFs of the machine that fits (see `noise_at_fit`)."""
        predicted = np.asarray(self.predict(view))
        names = ("measured", "additive_std", "level", "known_std", "noise_std", "weight")
        parts = noise_at_fit(predicted, *(np.asarray(getattr(self, name)) for name in names))
        # a response that the machine does not have, but for rounding, is nothing but leak
        parts["weight"] = np.where(np.abs(predicted) >= SMALLEST * np.abs(self.leak), parts["weight"], 0.0)
        return dataclasses.replace(self, **{name: jax.device_put(part) for name, part in parts.items()})

    def noise_change(self, other: "FrfTest") -> float:
        """Largest logarithm of the ratio of the noise of any line to that of another version of the test; infinite
        where that has other lines left out."""
        if not np.array_equal(self.left_out, other.left_out):
            return np.inf
        both = (np.asarray(self.weight) > 0.0) & (np.asarray(other.weight) > 0.0)
        ratio = np.asarray(self.noise_std)[both] / np.asarray(other.noise_std)[both]
        return float(np.max(np.abs(np.log(ratio)), initial=0.0))

    @property
    def noise_is_one_factor(self) -> bool:
        """Whether the noise that is to be estimated is the only one."""
        return not np.any(np.asarray(self.known_std))

    def with_noise(self, std: float) -> "FrfTest":
        """The test with another standard deviation of log H beside what is known of each line."""
        known, rest = np.asarray(self.known_std) ** 2, self._rest * (std / float(self.nominal_std)) ** 2
        return dataclasses.replace(
            self, noise_std=jax.device_put(np.sqrt(known + rest)), nominal_std=jax.device_put(np.asarray(std))
        )

    @property
    def _rest(self) -> Float[np.ndarray, "f o i"]:
        """Variance of log H beside what is known of each line."""
        return np.asarray(self.noise_std) ** 2 - np.asarray(self.known_std) ** 2

    def estimated_noise(self, residual: np.ndarray, expected: float) -> float:
        """The most likely standard deviation of log H beside what is known of each line.

        Where what is known explains all that is left, it is `NEGLIGIBLE` of that.

        Args:
            residual: in units of the noise, scaled by the roots of the weights.
            expected: sum of squares of the residual under noise that is as taken.
        """
        squares = np.sum(residual.reshape(2, *self.measured.shape) ** 2, axis=0) * np.asarray(self.noise_std) ** 2
        used = squares > 0.0
        known, rest, weight = (np.asarray(x)[used] for x in (np.asarray(self.known_std) ** 2, self._rest, self.weight))
        # what the fit took from the squares, and what lines that err alike lack, is given back to all lines alike
        squares = squares[used] * np.sum(weight) / expected
        return float(self.nominal_std) * most_likely_factor(squares, known, rest, weight)

    def variance_factor(self, basis: Float[np.ndarray, "m r"], row_weights: np.ndarray) -> float:
        """How many times larger an exponential window or a leak makes the variance of errors along some directions.

        Args:
            basis: directions, as columns.
            row_weights: variance of each row.
        """
        decay, scaled, factor = float(self.decay), basis * np.sqrt(row_weights)[:, None], 1.0
        if decay > 0.0:
            factor = window_factor(scaled, np.asarray(self.measured), np.asarray(self.omega), decay)
        if not self.noise_is_correlated:
            return factor
        leak = np.asarray(self.leak) / np.asarray(self.measured)
        return max(factor, leak_factor(scaled, leak / np.asarray(self.noise_std)))

    @property
    def degrees_factor(self) -> float:
        """By what the exponential window divides the degrees of freedom of a sum of squares."""
        return lines_of_window(np.asarray(self.omega) / (2.0 * np.pi), float(self.decay))

    def correlation_length(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Number of neighbouring lines whose residuals tell no more than one (see `correlated_lines`)."""
        return correlated_lines(*self._errors(residual, row_weights))

    def measured_on(self, view: MotionView) -> "FrfTest":
        """The test as it would be measured on a machine without noise."""
        return dataclasses.replace(self, measured=self.predict(view))

    def resample(self, residual: np.ndarray, row_weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A residual drawn from what a fit left: blocks of neighbouring lines, all responses of a line together, as
        long as neighbours err alike. Lines with the same responses stand for each other."""
        errors, used = self._errors(residual, row_weights)
        length = max(1, round(self.correlation_length(residual, row_weights)))
        drawn = np.zeros(errors.shape)
        forms, form = np.unique(used.reshape(2, used.shape[1], -1).swapaxes(0, 1), axis=0, return_inverse=True)
        for k in range(len(forms)):
            lines = np.flatnonzero(form == k)
            begin = rng.integers(lines.size, size=-(-lines.size // length))
            picked = (begin[:, None] + np.arange(length)).ravel()[: lines.size] % lines.size
            drawn[:, lines] = errors[:, lines[picked]]
        return drawn.ravel() * np.sqrt(row_weights)

    def log_error(self, residual: np.ndarray) -> float:
        """Root mean square error of log H, each line counting by its noise and not by its weight."""
        noise, weight = (np.tile(np.asarray(x).ravel(), 2) for x in (self.noise_std, self.weight))
        used = weight > 0.0
        squares = residual[used] ** 2 / weight[used]  # in units of each line's noise
        return float(np.sqrt(2.0 * np.sum(squares) / np.sum(noise[used] ** -2.0)))

    @property
    def band_end_hz(self) -> float:
        """Last line."""
        return float(np.asarray(self.omega)[-1]) / (2 * np.pi)

    @property
    def highest_hz(self) -> float:
        """Last line that is used."""
        used = (np.asarray(self.weight) > 0.0).any(axis=(1, 2))
        return float(np.asarray(self.omega)[used].max()) / (2 * np.pi)

    @property
    def highest_text(self) -> str:
        """What `highest_hz` is, in a sentence."""
        return "the band's end of"

    @property
    def first_frequency_hz(self) -> float | None:
        """First clear peak of all FRFs together."""
        frequency_hz = np.asarray(self.omega) / (2.0 * np.pi)
        peaks = resonances(self._level(self.measured), frequency_hz)
        return float(frequency_hz[peaks[0]]) if peaks.size else None

    def _peaks_hz(self, frf: Complex[np.ndarray, "f o i"]) -> np.ndarray:
        """Frequencies of the peaks of all FRFs together."""
        return peaks_hz(self._level(frf), np.asarray(self.omega) / (2.0 * np.pi))

    def _level(self, frf: Array | np.ndarray) -> np.ndarray:
        """log10 of the magnitude of all FRFs together [f]."""
        size = np.where(np.asarray(self.weight) > 0.0, np.abs(np.asarray(frf)), 0.0)
        return np.log10(np.sqrt(np.sum(size**2, axis=(1, 2))) + 1e-300)

    def score(self, view: MotionView, reference_hz: np.ndarray | None) -> Score:
        """FRAC of each FRF, error of log H, and errors of natural frequencies: of the peaks where none are known."""
        used = np.asarray(self.weight) > 0.0
        measured, predicted = np.asarray(self.measured), np.asarray(self.predict(view))
        alike = frac(np.where(used, measured, np.nan), np.where(used, predicted, np.nan))
        if reference_hz is None:
            reference_hz, found_hz = self._peaks_hz(measured), self._peaks_hz(predicted)
        else:
            found_hz = np.asarray(modes(view.tangent).damped_frequency_hz)
        return Score(
            frac=tuple(alike[np.isfinite(alike)].tolist()),
            log_error=self.log_error(self.compared(predicted)),
            frequency_errors_hz=paired_errors_hz(reference_hz[reference_hz <= self.band_end_hz], found_hz),
        )

    def probe(self) -> Probe:
        """The test at any posture, with the median of its noise, which differs by line where coherence or leakage are
        taken into account."""
        used = np.asarray(self.weight) > 0.0
        known = tuple(dict.fromkeys([*self.outputs, *self.inputs]))
        return Probe(
            points=known,
            outputs=jax.device_put(np.array([known.index(p) for p in self.outputs])),
            inputs=(
                None if self.inputs == self.outputs else jax.device_put(np.array([known.index(p) for p in self.inputs]))
            ),
            derivatives=self.derivatives,
            at=self.at,
            omega=jax.device_put(np.asarray(self.omega)[used.any(axis=(1, 2))]),
            decay=self.decay,
            noise_std=jax.device_put(np.median(np.asarray(self.noise_std)[used])),
        )
