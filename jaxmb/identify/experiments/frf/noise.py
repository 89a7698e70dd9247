"""Noise of the logarithms of FRFs: additive noise, noise estimated from the residual, exponential windows."""

import dataclasses
from typing import TYPE_CHECKING

import jax
import numpy as np
import scipy
from jaxtyping import Bool, Complex, Float, Int

from jaxmb.identify.experiments.components import BLOCKS, Component, Noise
from jaxmb.identify.experiments.test import Score
from jaxmb.identify.experiments.vibration_view import VibrationView
from jaxmb.measurement.noise import (
    correlation_length,
    lines_of_window,
    outlier_lines,
    smooth_share,
    systematic,
    window_correlation,
    window_correlation_of,
)
from jaxmb.response.frf_kind import dof_names

if TYPE_CHECKING:
    from jaxmb.identify.experiments.frf.frf_test import FrfTest

IMPROBABLE_ERROR = 5.0
"""Error of H, in standard deviations of additive noise, that noise alone exceeds once in 3e5."""
CHUNK = 512
"""Batch size of lines for their correlation with all others."""
LARGEST_NOISE = 0.2
"""Relative noise up to which the noise of log H is linear in that of H."""
LEAST_OVER_LEAK = 1e-6
"""Response over leakage below which a response carries no information."""
NEGLIGIBLE = 0.05
"""Ratio of two independent noises at which the smaller adds 0.2 % to the total."""

LineArray = Float[np.ndarray, "f o i"]


def most_likely_factor(
    squares: Float[np.ndarray, "n"],
    known: Float[np.ndarray, "n"],
    rest: Float[np.ndarray, "n"],
    weight: Float[np.ndarray, "n"],
) -> float:
    """Maximum-likelihood factor f of weighted squares whose variance is weight (known + f^2 rest).

    Where the known variance explains all squares, f makes the rest `NEGLIGIBLE` relative to it.
    """
    most = float(np.sqrt(np.max(squares / (weight * rest), initial=0.0)))
    least = float(np.finfo(float).eps)
    if known.size and np.all(known > 0.0):
        least = NEGLIGIBLE / float(np.sqrt(np.mean(rest / known)))

    def slope(factor: float) -> float:
        """Derivative of the log-likelihood by the variance, scaled."""
        variance = known + factor**2 * rest
        return float(np.sum((squares - weight * variance) * rest / variance**2)) * factor**4

    if most <= least or slope(least) <= 0.0:
        return least
    return scipy.optimize.root_scalar(slope, bracket=(least, most), xtol=1e-9 * least).root


def leak_std(leak: Complex[np.ndarray, "f o i"], frf: Complex[np.ndarray, "f o i"]) -> LineArray:
    """Standard deviation of log H, real and imaginary part each, due to leakage into H."""
    size = np.maximum(np.abs(np.where(np.isfinite(frf), frf, 0.0)), LEAST_OVER_LEAK * np.abs(leak))
    return np.where(leak != 0.0, np.abs(leak) / np.where(size > 0.0, size, 1.0) / np.sqrt(2.0), 0.0)


def leak_factor(scaled: Float[np.ndarray, "m r"], leak: Complex[np.ndarray, "f o i"]) -> float:
    """Factor by which a leakage ratio common to all lines increases the variance of the errors projected onto some
    directions.

    Args:
        scaled: directions as columns, in units of the noise; real parts of all lines, then imaginary parts.
        leak: contribution of one standard deviation of the leakage ratio to log H, in units of the noise.
    """
    real, imaginary = scaled.reshape(2, len(leak), -1, scaled.shape[1])
    each: np.ndarray = leak.reshape(len(leak), -1, 1)
    squares = real**2 + imaginary**2
    independent = float(np.sum(squares))
    common = float(np.sum(np.sum(np.real(each) * real + np.imag(each) * imaginary, axis=0) ** 2))
    separate = float(np.sum(squares * np.abs(each) ** 2)) / 2.0
    return max(1.0 + (common - separate) / independent, 1.0) if independent > 0.0 else 1.0


def window_factor(
    scaled: Float[np.ndarray, "m r"],
    measured: Complex[np.ndarray, "f o i"],
    omega: Float[np.ndarray, "f"],
    decay: float,
) -> float:
    """Factor by which an exponential window increases the variance of the errors projected onto some directions.

    The window correlates the noise of H between lines (see `window_correlation`); in log H it is rotated by the phase
    of the response.

    Args:
        scaled: directions as columns, in units of the noise; real parts of all lines, then imaginary parts.
        measured: FRFs.
        omega: lines, rad/s.
        decay: of the window, 1/s.
    """
    real, imaginary = scaled.reshape(2, omega.size, -1, scaled.shape[1])
    h = measured.reshape(omega.size, -1, 1)
    columns, both = ((real + 1j * imaginary) * h / np.abs(h)).reshape(omega.size, -1), 0.0
    for k in range(0, omega.size, CHUNK):
        rows = slice(k, k + CHUNK)
        both += float(np.sum((columns[rows].conj() * (window_correlation(omega, decay, rows) @ columns)).real))
    independent = float(np.sum(np.abs(columns) ** 2))
    return both / independent if independent > 0.0 else 1.0


ALIGNED_PHASES = 0.5
"""Length of the mean of unit vectors above which phases agree; on average 0 for random phases."""


class FrfNoise(Noise["FrfTest"]):
    """Noise of log H: known noise of each line, such as from coherence, plus one nominal standard deviation. Lines are
    correlated by an exponential window, responses by leakage of a large response into the others."""

    @property
    def exact_cost(self) -> float:
        """Cost, in units of the noise, of a mean error of log H of 1e-8."""
        return 2e-16 * float(np.sum(np.asarray(self.test.weight))) / float(self.test.nominal_std) ** 2

    @property
    def nominal(self) -> float:
        """Standard deviation of log H stated in the study."""
        return float(self.test.nominal_std)

    @property
    def follows_fit(self) -> bool:
        """Whether the noise depends on the fitted machine, so that `at_fit` returns a different test."""
        return bool(np.any(np.asarray(self.test.additive_std)) or np.any(np.asarray(self.test.leak)))

    def at_fit(self, view: VibrationView) -> "FrfTest":
        """The test with additive noise evaluated at the FRFs of the fitted machine.

        Noise of log H evaluated at the measured FRFs biases a fit: lines that noise made large would get more weight.
        Lines whose relative noise at the fit exceeds `LARGEST_NOISE` get zero weight. Lines that differ from the fit
        by more than `IMPROBABLE_ERROR` keep their noise: the machine does not reproduce them.
        """
        test, predicted = self.test, np.asarray(self.test.predict(view))
        additive_std, before = np.asarray(test.additive_std), np.asarray(test.magnitude)
        beyond = np.abs(predicted - np.asarray(test.measured)) > IMPROBABLE_ERROR * additive_std
        magnitude = np.where(beyond, before, np.abs(predicted))
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(additive_std > 0.0, additive_std / magnitude, 0.0)
            change = np.where(additive_std > 0.0, relative**2 - (additive_std / before) ** 2, 0.0)
        is_valid = beyond | (relative <= LARGEST_NOISE)
        known, noise = (
            np.sqrt(np.maximum(np.asarray(std) ** 2 + np.where(is_valid, change, 0.0), 0.0))
            for std in (test.known_std, test.noise_std)
        )
        parts = {
            "known_std": known,
            "noise_std": noise,
            "magnitude": np.where(is_valid, magnitude, before),
            "weight": np.where(is_valid, test.weight, 0.0),
        }
        return dataclasses.replace(test, **jax.device_put(parts))

    def change_from(self, other: "FrfTest") -> float:
        """Largest |log| of the ratio of a line's noise to that in another version of the test; infinite where the
        excluded lines differ."""
        if not np.array_equal(self.test.excluded, other.excluded):
            return np.inf
        both = (np.asarray(self.test.weight) > 0.0) & (np.asarray(other.weight) > 0.0)
        ratio = np.asarray(self.test.noise_std)[both] / np.asarray(other.noise_std)[both]
        return float(np.max(np.abs(np.log(ratio)), initial=0.0))

    @property
    def is_one_factor(self) -> bool:
        """Whether no noise is known by line, so that the noise to be estimated is one common factor."""
        return not np.any(np.asarray(self.test.known_std))

    def with_level(self, std: float) -> "FrfTest":
        """The test with another nominal standard deviation of log H; the known noise of each line stays."""
        known, rest = np.asarray(self.test.known_std) ** 2, self._rest * (std / float(self.test.nominal_std)) ** 2
        return dataclasses.replace(
            self.test, noise_std=jax.device_put(np.sqrt(known + rest)), nominal_std=jax.device_put(np.asarray(std))
        )

    @property
    def _rest(self) -> Float[np.ndarray, "f o i"]:
        """Variance of log H in addition to the known noise of each line."""
        return np.asarray(self.test.noise_std) ** 2 - np.asarray(self.test.known_std) ** 2

    def estimated_level(self, residual: np.ndarray, expected: float) -> float:
        """Maximum-likelihood nominal standard deviation of log H, in addition to the known noise of each line.

        Where the known noise explains the whole residual, it is `NEGLIGIBLE` times the known noise.

        Args:
            residual: in units of the noise, scaled by the roots of the weights.
            expected: expected sum of squares of the residual under the present noise.
        """
        noise_std, known_std = np.asarray(self.test.noise_std), np.asarray(self.test.known_std)
        squares = np.sum(residual.reshape(2, *noise_std.shape) ** 2, axis=0) * noise_std**2
        used = squares > 0.0
        known, rest, weight = (np.asarray(x)[used] for x in (known_std**2, self._rest, self.test.weight))
        # degrees of freedom used by the fit and lost to correlation are restored uniformly over the lines
        squares = squares[used] * np.sum(weight) / expected
        return float(self.test.nominal_std) * most_likely_factor(squares, known, rest, weight)

    def noiseless(self, view: VibrationView) -> "FrfTest":
        """The test with noise-free data of a machine."""
        return dataclasses.replace(self.test, measured=self.test.predict(view))

    def resample(self, residual: np.ndarray, stated_variances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Block bootstrap sample of a residual. Blocks are neighbouring lines with all their responses, one correlation
        length long; lines with the same used responses are exchangeable."""
        errors, used = line_errors(self.test, residual, stated_variances)
        length = max(1, round(self.correlation_length(residual, stated_variances)))
        drawn = np.zeros(errors.shape)
        patterns, pattern = np.unique(used.reshape(2, used.shape[1], -1).swapaxes(0, 1), axis=0, return_inverse=True)
        for k in range(len(patterns)):
            lines = np.flatnonzero(pattern == k)
            begin = rng.integers(lines.size, size=-(-lines.size // length))
            picked = (begin[:, None] + np.arange(length)).ravel()[: lines.size] % lines.size
            drawn[:, lines] = errors[:, lines[picked]]
        return drawn.ravel() * np.sqrt(stated_variances)

    @property
    def between_responses(self) -> bool:
        """Whether a response leaks into others at one stated ratio for all lines."""
        return self.test.has_leak_ratio and bool(np.any(np.asarray(self.test.leak)))

    def variance_factor(self, basis: Float[np.ndarray, "m r"], stated_variances: np.ndarray) -> float:
        """Factor by which an exponential window or leakage increases the variance of the errors projected onto some
        directions.

        Args:
            basis: directions, as columns.
            stated_variances: variance of each row.
        """
        decay, scaled, factor = float(self.test.decay), basis * np.sqrt(stated_variances)[:, None], 1.0
        if decay > 0.0:
            factor = window_factor(scaled, np.asarray(self.test.measured), np.asarray(self.test.omega), decay)
        if not self.between_responses:
            return factor
        leak = np.asarray(self.test.leak) / np.asarray(self.test.measured)
        return max(factor, leak_factor(scaled, leak / np.asarray(self.test.noise_std)))

    @property
    def degrees_factor(self) -> float:
        """Divisor of the degrees of freedom of a sum of squares, due to the exponential window."""
        return lines_of_window(np.asarray(self.test.omega) / (2.0 * np.pi), float(self.test.decay))

    def correlation_length(self, residual: np.ndarray, stated_variances: np.ndarray) -> float:
        """Correlation length of the residual along frequency, in lines (see `correlation_length`)."""
        return correlation_length(*line_errors(self.test, residual, stated_variances))

    def known_factor(
        self, basis: Float[np.ndarray, "m r"], residual: np.ndarray, stated_variances: np.ndarray
    ) -> float:
        """Factor by which the window of the spectra increases the variance of known noise projected onto some
        directions (see `window_correlation_of`); 1 with an exponential one, which `variance_factor` contains."""
        if not self.test.noise_is_known or float(self.test.decay) > 0.0:
            return 1.0
        rho = window_correlation_of(*line_errors(self.test, residual, stated_variances))
        by_line = (basis * np.sqrt(stated_variances)[:, None]).reshape(2, len(self.test.measured), -1)
        products = [float(np.sum(by_line[:, k:] * by_line[:, :-k])) for k in range(1, rho.size + 1)]
        square = float(np.sum(by_line**2))
        return max(1.0 + 2.0 * float(rho @ products) / square, 1.0) if square > 0.0 else 1.0

    @property
    def groups(self) -> Int[np.ndarray, "g m"]:
        """Rows of one FRF in a band, of one output, of one input."""
        lines, outputs, inputs = self.test.measured.shape
        band, output, into = np.indices((lines, outputs, inputs))
        band = band * BLOCKS // lines
        each = [(band * outputs + output) * inputs + into, output, into]
        return np.stack([np.tile(own.ravel(), 2) for own in each])


class FrfLines(Component["FrfTest"]):
    """Frequency lines of a test, some of which may be outliers."""

    @property
    def robust(self) -> bool:
        """Whether outlier lines are excluded."""
        return self.test.robust

    def decimate(self, most: int) -> "FrfTest":
        """The test on at most so many of its used lines, evenly spaced, all with the same weight, for a global search.

        Weighted peaks give a cost with narrow valleys. With even weights most random starts reach the right one, and a
        few lines suffice.
        """
        parts = arrays_at(self.test, self._picked(most))
        return dataclasses.replace(self.test, **parts | {"weight": (parts["weight"] > 0.0).astype(float)})

    def sample(self, share: float) -> "tuple[FrfTest, Int[np.ndarray, 'k']]":
        """The test on a share of its used lines, evenly spaced, and the rows of its residual that it keeps."""
        lines, outputs, inputs = self.test.measured.shape
        picked = self._picked(int(np.ceil(share * lines)))
        rows = np.arange(self.test.rows).reshape(2, lines, outputs * inputs)[:, picked]
        return self.test.at_lines(picked), rows.ravel()

    def _picked(self, most: int) -> Int[np.ndarray, "k"]:
        counts = (np.asarray(self.test.weight) > 0.0).any(axis=(1, 2))
        order = np.argsort(~counts, kind="stable")  # padded with unused lines, so that the shapes of equal tests agree
        count = max(np.count_nonzero(counts), min(most, counts.size))
        return np.sort(order[np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))])

    def outliers(self, residual: np.ndarray, stated_variances: np.ndarray) -> np.ndarray:
        """Indices of outlier lines."""
        return outlier_lines(*line_errors(self.test, residual, stated_variances))

    @property
    def excluded(self) -> np.ndarray:
        """Indices of the lines excluded as outliers."""
        return np.flatnonzero(np.asarray(self.test.excluded))

    def without(self, lines: np.ndarray) -> "FrfTest":
        """The test without some lines."""
        weight, excluded = np.array(self.test.weight), np.array(self.test.excluded)
        weight[lines], excluded[lines] = 0.0, True
        return dataclasses.replace(self.test, weight=jax.device_put(weight), excluded=jax.device_put(excluded))

    def lines_text(self, lines: np.ndarray) -> str:
        """Frequencies of some lines as text, for messages."""
        return ", ".join(f"{f:.4g}" for f in np.asarray(self.test.omega)[lines] / (2.0 * np.pi)) + " Hz"

    def scatter(self, residual: np.ndarray, stated_variances: np.ndarray) -> np.ndarray:
        """Variance of the noise of each row by the line-to-line scatter of the residual, over that in the fit. No
        smooth model reproduces the scatter.

        The scatter determines the part of the noise that is not known, from the median squared second difference where
        this part is the larger one. Known noise remains: leakage of another response is smooth, so that the scatter
        does not show it.
        """
        errors, present = line_errors(self.test, residual, stated_variances)
        noise = np.asarray(self.test.noise_std) ** 2
        known = np.where(noise > 0.0, np.asarray(self.test.known_std) ** 2 / np.where(noise > 0.0, noise, 1.0), 1.0)
        shown = present & (known <= 0.5)
        three = shown[:, :-2] & shown[:, 1:-1] & shown[:, 2:]
        second_difference = errors[:, :-2] - 2.0 * errors[:, 1:-1] + errors[:, 2:]
        rest = np.median(second_difference[three] ** 2) / (6.0 * scipy.special.chdtri(1, 0.5)) if three.any() else 1.0
        return np.tile((known + (1.0 - known) * rest).ravel(), 2)

    def systematic(self, residual: np.ndarray, stated_variances: np.ndarray) -> float:
        """Systematic fraction of the variance of the residual; 0 where it cannot be distinguished from noise. Gross
        errors count also where lines are too few for a correlation."""
        if self.test.noise.between_responses:
            return 0.0
        errors = line_errors(self.test, residual, stated_variances)
        share = systematic(*errors, self.test.noise.degrees_factor)
        gross = Score(log_error=self.test.log_error(residual)).poor
        return share or (smooth_share(*errors) if gross else 0.0)

    def absent(self, view: VibrationView) -> Bool[np.ndarray, "o i"]:
        """Mask of the FRFs that vanish in a machine by its symmetry, except for rounding: the measured ones are
        leakage."""
        leak = np.abs(np.asarray(self.test.leak))
        negligible = np.abs(np.asarray(self.test.predict(view))) <= LEAST_OVER_LEAK * leak
        return np.all(negligible, axis=0, where=(leak > 0.0) | (np.asarray(self.test.weight) > 0.0))

    def without_frfs(self, which: Bool[np.ndarray, "o i"]) -> "FrfTest":
        """The test without some FRFs.

        Raises:
            ValueError: no other FRF has a weight.
        """
        weight = np.where(which, 0.0, np.asarray(self.test.weight))
        if not weight.any():
            raise ValueError(
                f"the machine has no response from {', '.join(dof_names(self.test.inputs))} to"
                f" {', '.join(dof_names(self.test.outputs))}, expected points and directions in which it moves"
            )
        return dataclasses.replace(self.test, weight=jax.device_put(weight))


def line_errors(test: "FrfTest", residual: np.ndarray, stated_variances: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors in units of the noise, 0 where unused, and a mask of the used ones [real and imaginary part, f, o, i].

    Phase errors of an FRF that mostly agree are unwrapped around their mean: for a reversed sensor they are half a
    turn, where noise would decide the sign.
    """
    used = (stated_variances > 0.0).reshape(2, *test.measured.shape)
    weights = np.where(used, stated_variances.reshape(used.shape), 1.0)
    plain = np.where(used, residual.reshape(used.shape) / np.sqrt(weights), 0.0)
    if test.phase == "safe":
        scale = np.asarray(test.noise_std)
        turn = np.exp(1j * plain[1] * scale)
        mean = np.sum(used[1] * turn, axis=0) / np.maximum(np.sum(used[1], axis=0), 1)
        around = np.where(np.abs(mean) > ALIGNED_PHASES, mean / np.where(mean == 0.0, 1.0, np.abs(mean)), 1.0)
        plain[1] = np.where(used[1], (np.angle(around) + np.angle(turn * around.conj())) / scale, 0.0)
    return plain, used


def arrays_at(test: "FrfTest", chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of a test at some of its lines."""
    names = (
        "omega", "measured", "weight", "noise_std", "known_std", "additive_std", "magnitude", "leak", "excluded",
    )  # fmt: skip
    return {name: np.asarray(getattr(test, name))[chosen] for name in names}
