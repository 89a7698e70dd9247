"""Components of FRF tests: noise, lines, channels, description, vibration, evaluation."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int
from scipy.special import chdtri

from jaxmb.identify.estimation.least_squares import NormalEquations
from jaxmb.identify.experiments.components import (
    BLOCKS,
    Correlation,
    Description,
    Lines,
    Noise,
    OwnParameters,
    Probe,
)
from jaxmb.identify.experiments.frf.channels import (
    channel_names,
    channels_of,
    equations_by_entries,
    known_channels,
    moving,
    predict_frf,
)
from jaxmb.identify.experiments.frf.noise import (
    SMALLEST,
    leak_factor,
    most_likely_factor,
    noise_at_fit,
    resonances,
    window_factor,
)
from jaxmb.identify.experiments.motion import (
    AffineMotion,
    MotionEvaluation,
    MotionVibration,
    Placement,
    as_placed,
    displaced_view,
    placement_errors,
    point_errors,
    posture_alternatives,
    test_joints,
)
from jaxmb.identify.experiments.motion_view import MotionView
from jaxmb.identify.experiments.tolerances import MOST_GAIN, TIME_BASE, StatedError, usual
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.measurement.noise import correlation_length, lines_of_window, outlier_lines, systematic
from jaxmb.response.frf import laplace, sensor_factor
from jaxmb.response.frf_kind import dof_names

if TYPE_CHECKING:
    from jaxmb.identify.experiments.frf.frf_test import FrfTest

AGREE = 0.5
"""Length of the mean of unit vectors above which phases agree; on average 0 for random phases."""


class FrfCorrelation(Correlation["FrfTest"]):
    """Correlation of lines by an exponential window, and of responses by leakage of a large response into the
    others."""

    @property
    def between_responses(self) -> bool:
        """Whether a response leaks into others at one ratio for all lines."""
        return bool(np.any(np.asarray(self.test.leak)))

    def variance_factor(self, basis: Float[np.ndarray, "m r"], row_weights: np.ndarray) -> float:
        """Factor by which an exponential window or leakage increases the variance of the errors projected onto some
        directions.

        Args:
            basis: directions, as columns.
            row_weights: variance of each row.
        """
        decay, scaled, factor = float(self.test.decay), basis * np.sqrt(row_weights)[:, None], 1.0
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

    def length(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Correlation length of the residual along frequency, in lines (see `correlation_length`)."""
        return correlation_length(*line_errors(self.test, residual, row_weights))

    @property
    def groups(self) -> Int[np.ndarray, "g m"]:
        """Rows of one FRF in a band, of one output, of one input."""
        lines, outputs, inputs = self.test.measured.shape
        band, output, into = np.indices((lines, outputs, inputs))
        band = band * BLOCKS // lines
        each = [(band * outputs + output) * inputs + into, output, into]
        return np.stack([np.tile(own.ravel(), 2) for own in each])


class FrfNoise(Noise["FrfTest"]):
    """Noise of log H: known noise of each line, such as from coherence, plus one nominal standard deviation."""

    @property
    def correlation(self) -> FrfCorrelation:
        """Correlation between lines and between responses."""
        return FrfCorrelation(self.test)

    @property
    def exact_cost(self) -> float:
        """Cost, in units of the noise, of a mean error of log H of 1e-8."""
        return 2e-16 * float(np.sum(np.asarray(self.test.weight))) / float(self.test.nominal_std) ** 2

    @property
    def is_known(self) -> bool:
        """Whether the noise is as stated; otherwise it is estimated from the residual of the fit."""
        return self.test.noise_is_known

    @property
    def nominal(self) -> float:
        """Standard deviation of log H stated in the study."""
        return float(self.test.nominal_std)

    @property
    def follows_fit(self) -> bool:
        """Whether the noise depends on the fitted machine, so that `at_fit` returns a different test."""
        return bool(np.any(np.asarray(self.test.additive_std))) or self.correlation.between_responses

    def at_fit(self, view: MotionView) -> "FrfTest":
        """The test with additive noise evaluated at the FRFs of the fitted machine (see `noise_at_fit`)."""
        predicted = np.asarray(self.test.predict(view))
        names = ("measured", "additive_std", "level", "known_std", "noise_std", "weight")
        parts = noise_at_fit(predicted, *(np.asarray(getattr(self.test, name)) for name in names))
        # a response that vanishes to rounding in the model is pure leakage
        parts["weight"] = np.where(np.abs(predicted) >= SMALLEST * np.abs(self.test.leak), parts["weight"], 0.0)
        return dataclasses.replace(self.test, **{name: jax.device_put(part) for name, part in parts.items()})

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

    def with_nominal(self, std: float) -> "FrfTest":
        """The test with another nominal standard deviation of log H, beside the known noise of each line."""
        known, rest = np.asarray(self.test.known_std) ** 2, self._rest * (std / float(self.test.nominal_std)) ** 2
        return dataclasses.replace(
            self.test, noise_std=jax.device_put(np.sqrt(known + rest)), nominal_std=jax.device_put(np.asarray(std))
        )

    @property
    def _rest(self) -> Float[np.ndarray, "f o i"]:
        """Variance of log H in addition to the known noise of each line."""
        return np.asarray(self.test.noise_std) ** 2 - np.asarray(self.test.known_std) ** 2

    def estimated(self, residual: np.ndarray, expected: float) -> float:
        """Maximum-likelihood nominal standard deviation of log H, beside the known noise of each line.

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

    def noiseless(self, view: MotionView) -> "FrfTest":
        """The test with noise-free data of a machine."""
        return dataclasses.replace(self.test, measured=self.test.predict(view))

    def resample(self, residual: np.ndarray, row_weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Block bootstrap sample of a residual. Blocks are neighbouring lines with all their responses, one correlation
        length long; lines with the same used responses are exchangeable."""
        errors, used = line_errors(self.test, residual, row_weights)
        length = max(1, round(self.correlation.length(residual, row_weights)))
        drawn = np.zeros(errors.shape)
        patterns, pattern = np.unique(used.reshape(2, used.shape[1], -1).swapaxes(0, 1), axis=0, return_inverse=True)
        for k in range(len(patterns)):
            lines = np.flatnonzero(pattern == k)
            begin = rng.integers(lines.size, size=-(-lines.size // length))
            picked = (begin[:, None] + np.arange(length)).ravel()[: lines.size] % lines.size
            drawn[:, lines] = errors[:, lines[picked]]
        return drawn.ravel() * np.sqrt(row_weights)


class FrfLines(Lines["FrfTest"]):
    """Frequency lines."""

    @property
    def robust(self) -> bool:
        """Whether outlier lines are excluded."""
        return self.test.robust

    def decimate(self, most: int) -> "FrfTest":
        """The test on at most so many of its used lines, evenly spaced, all with the same weight.

        Weighted peaks give a cost with narrow valleys. With even weights most random starts reach the right one, and a
        few lines suffice.
        """
        counts = (np.asarray(self.test.weight) > 0.0).any(axis=(1, 2))
        order = np.argsort(~counts, kind="stable")  # padded with unused lines, so that the shapes of equal tests agree
        count = max(np.count_nonzero(counts), min(most, counts.size))
        picked = np.sort(order[np.unique(np.linspace(0, count - 1, min(most, count)).round().astype(int))])
        parts = arrays_at(self.test, picked)
        return dataclasses.replace(self.test, **parts | {"weight": (parts["weight"] > 0.0).astype(float)})

    def outliers(self, residual: np.ndarray, row_weights: np.ndarray) -> np.ndarray:
        """Indices of outlier lines."""
        return outlier_lines(*line_errors(self.test, residual, row_weights))

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
        """Frequencies of some lines as text."""
        return ", ".join(f"{f:.4g}" for f in np.asarray(self.test.omega)[lines] / (2.0 * np.pi)) + " Hz"

    def scatter(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Variance of the line-to-line scatter of the residual over that of the noise, from the median squared second
        difference."""
        errors, present = line_errors(self.test, residual, row_weights)
        three = present[:, :-2] & present[:, 1:-1] & present[:, 2:]
        second_difference = errors[:, :-2] - 2.0 * errors[:, 1:-1] + errors[:, 2:]
        return float(np.median(second_difference[three] ** 2) / (6.0 * chdtri(1, 0.5))) if three.any() else 1.0

    def systematic(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Systematic fraction of the variance of the residual; 0 where it cannot be distinguished from noise."""
        if self.test.noise.correlation.between_responses:
            return 0.0
        return systematic(*line_errors(self.test, residual, row_weights), self.test.noise.correlation.degrees_factor)

    def undefined(self, view: MotionView) -> tuple[str, ...]:
        """Texts on measured FRFs whose prediction is 0, so that its logarithm does not exist."""
        used, predicted = np.asarray(self.test.weight) > 0.0, np.asarray(self.test.predict(view))
        zero = np.argwhere(((predicted == 0.0) & used).any(axis=0))
        outputs, inputs = dof_names(self.test.outputs), dof_names(self.test.inputs)
        return tuple(f"the FRF {outputs[o]} / {inputs[i]} is 0" for o, i in zero)


class FrfChannels(OwnParameters["FrfTest"]):
    """Gains of the channels of an FRF test and its delay; only the delay where the FRFs are symmetrized."""

    @property
    def names(self) -> tuple[str, ...]:
        """gain.TEST.POINT, force_gain.TEST.POINT, delay.TEST."""
        names = channel_names(self.test.name, self.test.outputs, self.test.inputs)
        return names[-1:] if self.test.symmetrized else names

    @property
    def values(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """Gains of its channels and its delay, in the order of `names`."""
        values = known_channels(self.test).numbers
        return values[-1:] if self.test.symmetrized else values

    def with_values(self, values: Float[Array, "k"] | Float[np.ndarray, "k"]) -> "FrfTest":
        """The test with other gains and delay."""
        if self.test.symmetrized:
            channels = dataclasses.replace(known_channels(self.test), delay=values[-1])
        else:
            channels = channels_of(values, len(self.test.outputs))
        return dataclasses.replace(self.test, channels=channels)


class FrfVibration(MotionVibration["FrfTest"]):
    """Linearized motion at the posture of an FRF test, in the band of its lines."""

    @property
    def band_end_hz(self) -> float:
        """Frequency of the last line, Hz."""
        return float(np.asarray(self.test.omega)[-1]) / (2 * np.pi)

    @property
    def highest_hz(self) -> float:
        """Frequency of the last used line, Hz."""
        used = (np.asarray(self.test.weight) > 0.0).any(axis=(1, 2))
        return float(np.asarray(self.test.omega)[used].max()) / (2 * np.pi)

    @property
    def highest_text(self) -> str:
        """Description of `highest_hz`, for messages."""
        return "the band's end of"

    @property
    def first_frequency_hz(self) -> float | None:
        """Frequency of the first clear peak of the total magnitude of all FRFs, Hz."""
        frequency_hz = np.asarray(self.test.omega) / (2.0 * np.pi)
        peaks = resonances(total_level(self.test, self.test.measured), frequency_hz)
        return float(frequency_hz[peaks[0]]) if peaks.size else None

    def probe(self) -> Probe:
        """The test as a candidate for any posture, with the median of its noise over the lines."""
        test, used = self.test, np.asarray(self.test.weight) > 0.0
        known = tuple(dict.fromkeys([*test.outputs, *test.inputs]))
        outputs, inputs = ([known.index(p) for p in points] for points in (test.outputs, test.inputs))
        return Probe(
            points=known,
            outputs=jax.device_put(np.array(outputs)),
            inputs=None if inputs == outputs else jax.device_put(np.array(inputs)),
            derivatives=test.derivatives,
            at=test.at,
            omega=jax.device_put(np.asarray(test.omega)[used.any(axis=(1, 2))]),
            decay=test.decay,
            noise_std=jax.device_put(np.median(np.asarray(test.noise_std)[used])),
        )


class FrfEvaluation(MotionEvaluation["FrfTest"]):
    """Derivatives of an FRF by the varying entries of the tangent."""

    def stripped(self) -> "FrfTest":
        """The test without the components of its noise, more than half of its data."""
        nothing = np.zeros(())
        return dataclasses.replace(
            self.test, known_std=nothing, additive_std=nothing, level=nothing, leak=nothing, excluded=nothing
        )

    def normal_equations(
        self, view: AffineMotion, values: Callable[[Float[Array, "d"]], Float[Array, "d"]], u: Float[Array, "d"]
    ) -> NormalEquations:
        """Normal equations of the residual at u; see `Evaluation.normal_equations`."""
        test, names = self.test, moving(view, u.size) if self.test.phase == "safe" else ()
        if not names:
            return super().normal_equations(view, values, u)

        def compared(h: Array) -> Array:
            seen = h * sensor_factor(laplace(test.omega, test.decay), test.derivatives, test.sensor)
            return test.compared(
                seen if test.channels is None else test.channels.applied_to(seen, test.omega, test.decay)
            )

        scale = jnp.sqrt(test.weight) / test.noise_std
        return equations_by_entries(view, names, values, u, test.omega, test.decay, compared, scale)


def line_errors(test: "FrfTest", residual: np.ndarray, row_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors in units of the noise, 0 where unused, and a mask of the used ones [real and imaginary part, f, o, i].

    Phase errors of an FRF that mostly agree are unwrapped around their mean: for a reversed sensor they are half a
    turn, where noise would decide the sign.
    """
    used = (row_weights > 0.0).reshape(2, *test.measured.shape)
    weights = np.where(used, row_weights.reshape(used.shape), 1.0)
    plain = np.where(used, residual.reshape(used.shape) / np.sqrt(weights), 0.0)
    if test.phase == "safe":
        scale = np.asarray(test.noise_std)
        turn = np.exp(1j * plain[1] * scale)
        mean = np.sum(used[1] * turn, axis=0) / np.maximum(np.sum(used[1], axis=0), 1)
        around = np.where(np.abs(mean) > AGREE, mean / np.where(mean == 0.0, 1.0, np.abs(mean)), 1.0)
        plain[1] = np.where(used[1], (np.angle(around) + np.angle(turn * around.conj())) / scale, 0.0)
    return plain, used


def arrays_at(test: "FrfTest", chosen: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays of a test at some of its lines."""
    names = (
        "omega", "measured", "weight", "noise_std", "known_std", "additive_std", "level", "leak", "excluded",
    )  # fmt: skip
    return {name: np.asarray(getattr(test, name))[chosen] for name in names}


def total_level(test: "FrfTest", frf: Array | np.ndarray) -> np.ndarray:
    """log10 of the root sum of squares of all used FRFs [f]."""
    size = np.where(np.asarray(test.weight) > 0.0, np.abs(np.asarray(frf)), 0.0)
    return np.log10(np.sqrt(np.sum(size**2, axis=(1, 2))) + 1e-300)


class FrfErrors(NamedTuple):
    """Errors in the description of an FRF test, 0 for a correct description."""

    log_frequency: Float[np.ndarray, ""] | Array
    """Logarithm of true over stated frequencies."""
    log_gain: Float[np.ndarray, "o"] | Array
    """Logarithm of true over stated gain of each output."""
    log_force_gain: Float[np.ndarray, "i"] | Array
    """Logarithm of true over stated gain of each input."""
    delay: Float[np.ndarray, "o"] | Array
    """Delay of each output beyond the stated one, s."""
    decay: Float[np.ndarray, ""] | Array
    """True minus stated decay rate of the exponential window, 1/s."""
    corner: Float[np.ndarray, "o"] | Array
    """Corner of a first-order high-pass in each output, rad/s."""
    place: Placement
    """Of posture and points."""


class FrfDescription(Description["FrfTest"]):
    """Errors of frequencies, channels, points and posture of an FRF test."""

    def none(self, model: Model) -> FrfErrors:
        """Zero errors."""
        outputs, zero, test = np.zeros(len(self.test.outputs)), np.zeros(()), self.test
        place = as_placed(test, test_joints(test, model))
        return FrfErrors(zero, outputs, np.zeros(len(test.inputs)), outputs, zero, outputs, place)

    def residual(self, model: Model, errors: FrfErrors) -> Float[Array, "m"]:
        """Residual with the description corrected."""
        test, view = self.test, displaced_view(self.test, model, errors.place)
        omega, decay = test.omega * jnp.exp(errors.log_frequency), test.decay + errors.decay
        predicted = predict_frf(view, omega, test.derivatives, decay, test.sensor)
        channels = known_channels(test).changed(errors.log_gain, errors.log_force_gain, np.zeros(()))
        s = (test.decay + 1j * test.omega)[:, None]
        passed = jnp.exp(-s * errors.delay) * s / (s + errors.corner)
        return test.compared(channels.applied_to(predicted * passed[:, :, None], test.omega, test.decay))

    def errors(self, model: Model) -> Iterator[tuple[StatedError, FrfErrors]]:
        """Single errors, those common to all tests first."""
        test, right = self.test, self.none(model)
        name, where, outputs = test.name, display_name(test.name), len(test.outputs)
        latest, every = 0.1 / float(np.asarray(test.omega).max()), np.ones(outputs)
        yield TIME_BASE, right._replace(log_frequency=np.ones(()))
        own = functools.partial(_of_test_text, where)
        yield (
            TIME_BASE._replace(key=f"frequencies of {name}", kind="", size=0.01, text=own),
            right._replace(log_frequency=np.ones(())),
        )
        text = functools.partial(_late_text, f"responses of {where} that are")
        yield StatedError(f"delay of {name}", size=latest, text=text), right._replace(delay=every)
        text = functools.partial(_late_text, "responses of all FRF tests that are")
        yield StatedError("delay", "delay_us", 1e-6, text=text), right._replace(delay=every)
        text = functools.partial(factor_text, f"the FRFs of {where}")
        yield StatedError(f"gain of {name}", size=0.1, text=text), right._replace(log_gain=every)
        decay, first = float(test.decay), float(np.asarray(test.omega).min())
        text = functools.partial(_window_text, where, decay)
        window = StatedError(f"window of {name}", size=0.01 * first, text=text, least=-decay)
        yield window, right._replace(decay=np.ones(()))
        for what, points, gain, sign in (
            ("output", test.outputs, "log_gain", 1.0), ("input", test.inputs, "log_force_gain", -1.0),
        ):  # fmt: skip
            for k, point in enumerate(dof_names(points)):
                of_point = np.eye(len(points))[k]
                for key, at, kind in (("", "", "gain_percent"), (f" of {name}", f" of {where}", "")):
                    # positive where the true value is larger than measured
                    text = functools.partial(factor_text, f"{what} {point}{at}")
                    error = StatedError(f"gain of {what} {point}{key}", kind, 0.01, 0.1, text, most=MOST_GAIN)
                    yield error, right._replace(**{gain: sign * of_point})
                    if what == "output":
                        text = functools.partial(_late_text, f"{what} {point}{at}, which is")
                        error = StatedError(f"delay of {what} {point}{key}", size=latest, text=text)
                        yield error, right._replace(delay=of_point)
                        text = functools.partial(_corner_text, f"{what} {point}{at}")
                        error = StatedError(
                            f"high-pass of {what} {point}{key}", size=0.01 * first, text=text, least=0.0
                        )
                        yield error, right._replace(corner=of_point)
        for error, place in placement_errors(test, model):
            yield error, right._replace(place=place)
        for which, points in (("output", test.outputs), ("input", test.inputs)):
            for error, place in point_errors(test, len(right.place.posture), which, points):
                yield error, right._replace(place=place)

    @property
    def channels(self) -> dict[str, Bool[np.ndarray, "m"]]:
        """Mask of the rows of each output and input."""
        _, output, into = np.indices(self.test.measured.shape)
        ends = (("output", output, self.test.outputs), ("input", into, self.test.inputs))
        return {
            f"{what} {point}": np.tile((index == k).ravel(), 2)
            for what, index, points in ends
            for k, point in enumerate(dof_names(points))
        }

    def alternatives(self, model: Model) -> Iterator[tuple[str, str, "FrfTest"]]:
        """Reversed and exchanged channels, other kinds of FRFs, a reversed sign of the phase, degrees for radians."""
        test = self.test
        measured, omega = np.asarray(test.measured), np.asarray(test.omega)[:, None, None]
        for what, axis, points in (("output", 1, test.outputs), ("input", 2, test.inputs)):
            names = dof_names(points)
            for k, point in enumerate(names):
                sign = np.where(np.arange(len(points)) == k, -1.0, 1.0)
                yield (
                    f"sign of {what} {point}",
                    f"the sign of {what} {point}",
                    _measuring(test, measured * (sign[:, None] if axis == 1 else sign)),
                )
            for i, k in itertools.combinations(range(len(names)), 2):
                order = np.arange(len(names))
                order[[i, k]] = k, i
                text = f"exchanged {what}s {names[i]} and {names[k]}"
                yield text, text, _measuring(test, np.take(measured, order, axis=axis))
        kinds = ("receptance", "mobility", "accelerance")
        for own, kind in enumerate(kinds):
            if own != test.derivatives:
                change = (1j * omega) ** (test.derivatives - own)
                text = f"{kind} stated as {kinds[test.derivatives]}"
                yield text, text, _measuring(test, measured * change)
        yield "sign of the phase", "the sign of the phase (exp(-j omega t))", _measuring(test, measured.conj())
        yield from posture_alternatives(test, model)


def _measuring(test: "FrfTest", measured: np.ndarray) -> "FrfTest":
    return dataclasses.replace(test, measured=jax.device_put(measured))


def factor_text(what: str, value: float) -> str:
    """Text of a factor with which a quantity is to be multiplied, from the logarithm of measured over true value."""
    return f"a factor of {np.exp(-value):.3g} on {what}{usual(float(np.exp(-value)))}"


def _of_test_text(where: str, value: float) -> str:
    return f"frequencies of {where} {np.exp(value):.4g} times as high{usual(float(np.exp(value)))}"


def _late_text(what: str, value: float) -> str:
    return f"{what} {1e3 * abs(value):.3g} ms {'late' if value > 0.0 else 'early'}"


def _corner_text(what: str, value: float) -> str:
    return f"a high-pass of {value / (2.0 * np.pi):.3g} Hz in {what}"


def _window_text(where: str, own: float, value: float) -> str:
    return f"an exponential window of {own + value:.3g} 1/s on the responses of {where} instead of {own:.3g}"
