"""An FRF test: frequency responses measured at one posture through channels, possible errors of its description, and
its source."""

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from jaxmb.compiled import compiled, on_host
from jaxmb.identify.estimation.least_squares import NormalEquations
from jaxmb.identify.experiments.components import Attached, OwnParameters, Probe, Vibration, column_alternatives
from jaxmb.identify.experiments.frf.noise import FrfLines, FrfNoise, arrays_at
from jaxmb.identify.experiments.frf.weights import peaks_hz, resonances
from jaxmb.identify.experiments.posture_test import (
    PostureDescription,
    PostureErrors,
    PostureTest,
    VibrationEvaluation,
    displaced_view,
    posture_alternatives,
)
from jaxmb.identify.experiments.test import Entry, Score, Source
from jaxmb.identify.experiments.tolerances import StatedError, error_with_text, factor_text
from jaxmb.identify.experiments.vibration_view import AffineVibration, VibrationView
from jaxmb.io.validation import display_name
from jaxmb.linalg.responses import log_ratio, receptance_by_entries
from jaxmb.linalg.small_solve import DynamicStiffness, Parts
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.modal.data import frac
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf import IDEAL, Sensor, laplace, sensed_receptance, sensor_factor, with_decay
from jaxmb.response.frf_kind import Point, dof_names
from jaxmb.response.modal import paired_modes, possible_modes


class Channels(eqx.Module):
    """Measurement channels of an FRF: measured H gain[o] / force_gain[i] exp(-s delay), s = j omega + decay.

    A sensor and a force transducer at one point are two channels, each with a gain of its own.
    """

    gain: Float[Array, "o"] | Float[np.ndarray, "o"]
    """Measured over true response."""
    force_gain: Float[Array, "i"] | Float[np.ndarray, "i"]
    """Measured over true force: it divides the FRF."""
    delay: Float[Array, ""] | Float[np.ndarray, ""]
    """Delay of the responses relative to the forces, s."""

    def applied_to(
        self, frf: Complex[Array, "f o i"], omega: Float[Array, "f"], decay: Float[Array, ""] | float
    ) -> Complex[Array, "f o i"]:
        """FRFs as measured through the channels.

        Args:
            frf: of the machine.
            omega: angular frequencies of the lines, rad/s.
            decay: rate of the exponential window behind the responses, 1/s.
        """
        factor = jnp.asarray(self.gain)[:, None] / jnp.asarray(self.force_gain)
        return frf * factor * jnp.exp(-(decay + 1j * omega) * self.delay)[:, None, None]


def known_channels(test: "FrfTest") -> Channels:
    """Channels of a test; unit gains and no delay where it has none."""
    ideal = Channels(np.ones(len(test.outputs)), np.ones(len(test.inputs)), np.zeros(()))
    return ideal if test.channels is None else test.channels


MOST_ENTRIES_PER_PARAMETER = 2
"""Varying entries of the tangent over free parameters, up to which derivatives by entries are cheaper than by
parameters."""
_MATRICES = ("stiffness", "damping", "mass", "structural")


def varying_matrices(view: AffineVibration, parameters: int) -> tuple[str, ...]:
    """Matrices of the tangent that depend on the free parameters, where normal equations by their entries are cheaper;
    empty otherwise."""
    slope, support = view.slope.tangent, view.base.support
    depends = {name: getattr(slope, name) is not None for name in _MATRICES}
    depends["structural"] |= view.products is not None
    found = tuple(name for name in _MATRICES if depends[name])
    if support is None or slope.fractional is not None or view.base.tilt_rows is not None:
        return ()
    return found if len(found) * len(support) <= MOST_ENTRIES_PER_PARAMETER * parameters else ()


@compiled
def predict_frf(
    view: VibrationView,
    omega: Float[Array, "f"],
    derivatives: int,
    decay: Float[Array, ""] | float = 0.0,
    sensor: Sensor = IDEAL,
    channels: Channels | None = None,
) -> Complex[Array, "f o i"]:
    """Frequency responses [f, o, i] at s = j omega + decay; 0 derivatives for receptance, 2 for accelerance.

    M s^2 + C s + K at s equals the dynamic stiffness at j omega with C + 2 decay M for C and K + decay C + decay^2 M
    for K. Channels are applied last; None: ideal channels.
    """
    outputs, inputs = view.output_rows, view.output_rows if view.input_rows is None else view.input_rows
    frf = sensed_receptance(
        view.tangent, omega, decay, derivatives, outputs, inputs, view.tilt_rows, sensor, view.support
    )
    return frf if channels is None else channels.applied_to(frf, omega, decay)


class FrfChannels(OwnParameters["FrfTest"]):
    """Gains of the channels of an FRF test and its delay; only the delay where the FRFs are symmetrized."""

    @property
    def names(self) -> tuple[str, ...]:
        """gain.TEST.POINT, force_gain.TEST.POINT, delay.TEST."""
        test = self.test
        ends = (("gain", test.outputs), ("force_gain", test.inputs))
        gains = [f"{family}.{test.name}.{point}" for family, points in ends for point in dof_names(points)]
        return (*([] if test.symmetrized else gains), f"delay.{test.name}")

    @property
    def values(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """Gains of its channels and its delay, in the order of `names`."""
        known = known_channels(self.test)
        xp = known.gain.__array_namespace__()
        values = xp.concatenate([known.gain, known.force_gain, xp.reshape(known.delay, 1)])
        return values[-1:] if self.test.symmetrized else values

    def with_values(self, values: Float[Array, "k"] | Float[np.ndarray, "k"]) -> "FrfTest":
        """The test with other gains and delay."""
        if self.test.symmetrized:
            channels = dataclasses.replace(known_channels(self.test), delay=values[-1])
        else:
            outputs = len(self.test.outputs)
            channels = Channels(values[:outputs], values[outputs:-1], values[-1])
        return dataclasses.replace(self.test, channels=channels)


class FrfEvaluation(VibrationEvaluation["FrfTest"]):
    """Derivatives of an FRF by the varying entries of the tangent."""

    def stripped(self) -> "FrfTest":
        """The test without the components of its noise, more than half of its data."""
        nothing = np.zeros(())
        return dataclasses.replace(
            self.test, known_std=nothing, additive_std=nothing, magnitude=nothing, leak=nothing, excluded=nothing
        )

    def normal_equations(
        self, view: AffineVibration, values: Callable[[Float[Array, "d"]], Float[Array, "d"]], u: Float[Array, "d"]
    ) -> NormalEquations:
        """Normal equations of the residual at u; see `Evaluation.normal_equations`.

        Where few entries p of the tangent vary, from dH = -X_o^T dZ X_i and dZ = dK + s dC + s^2 dM + j dD: with E =
        dr / dp and S = dp / du they are S^T E^T r and S^T E^T E S. No derivative by a parameter, nor one of the
        logarithm, is formed at any line.
        """
        test, names = self.test, varying_matrices(view, u.size) if self.test.phase == "safe" else ()
        if not names:
            return super().normal_equations(view, values, u)
        scale = jnp.sqrt(test.weight) / test.noise_std
        used = scale > 0.0
        # At an unused line the response may be NaN, and 0 times NaN is not 0.
        of_use = jnp.any(used, axis=(1, 2))
        omega = jnp.where(of_use, test.omega, test.omega[jnp.argmax(of_use)])
        support = view.base.support or ()
        row, column = np.array(support, dtype=int).reshape(-1, 2).T

        def entries(u: Array) -> Array:
            tangent = view(values(u)).tangent
            return jnp.concatenate([getattr(tangent, name)[row, column] for name in names])

        view_there, s = view(values(u)), laplace(omega, test.decay)
        t = with_decay(view_there.tangent, test.decay)
        fractional, power = (None, None) if t.fractional is None else (t.fractional.matrix, t.fractional.power(s))
        z = DynamicStiffness(t.mass, t.damping, t.stiffness, omega, t.structural, fractional, power)
        outputs = view_there.output_rows
        inputs = outputs if view_there.input_rows is None else view_there.input_rows
        h, sensitivity = receptance_by_entries(z, outputs, inputs, support)
        seen = h * sensor_factor(laplace(test.omega, test.decay), test.derivatives, test.sensor)
        seen = seen if test.channels is None else test.channels.applied_to(seen, test.omega, test.decay)
        residual = test.residual_of(seen)
        size = h.real**2 + h.imag**2
        part = jnp.where(used, -scale / jnp.where(used, size, 1.0), 0.0)
        over = Parts((part * h.real).transpose(1, 2, 0), (-part * h.imag).transpose(1, 2, 0))
        relative = sensitivity.times(jax.lax.optimization_barrier(over))
        factors = {"stiffness": 1.0, "damping": s, "mass": s**2, "structural": 1j}
        by_entry = [relative.times(factors[name]) for name in names]
        rows = jnp.concatenate([jnp.stack(part, axis=1) for part in by_entry]).reshape(len(names) * len(support), -1)
        right = residual.reshape(2, *h.shape).transpose(0, 2, 3, 1).ravel()
        slope = jax.jacfwd(entries)(u)
        return NormalEquations(residual @ residual, slope.T @ (rows @ right), slope.T @ (rows @ rows.T) @ slope)


class FrfVibration(Vibration["FrfTest"]):
    """Linearized motion at the posture of an FRF test, in the band of its lines."""

    highest_text = "the band's end of"

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


def total_level(test: "FrfTest", frf: Array | np.ndarray) -> np.ndarray:
    """log10 of the root sum of squares of all used FRFs [f]."""
    size = np.where(np.asarray(test.weight) > 0.0, np.abs(np.asarray(frf)), 0.0)
    return np.log10(np.sqrt(np.sum(size**2, axis=(1, 2))) + 1e-300)


ResponseError = tuple[StatedError, Callable[..., Array]]
"""An error, and a function of s [f, 1] and its size at each output [o]: the factor on their responses [f, o]."""


def _delay(where: str, first: float, last: float) -> ResponseError:
    """A delay; typically by 0.1 rad at the last line."""
    return error_with_text("", _delay_text, f"{where}, which is", size=0.1 / last), lambda s, delay: jnp.exp(-s * delay)


def _high_pass(where: str, first: float, last: float) -> ResponseError:
    """A first-order high-pass; a line at 0 Hz that has a response is behind none."""
    error = error_with_text("", _corner_text, where, size=0.01 * first, least=0.0)
    return error, lambda s, corner: jnp.where(s == 0.0, 1.0, s / (jnp.where(s == 0.0, 1.0, s) + corner))


RESPONSE_ERRORS = {"delay": _delay, "high-pass": _high_pass}
"""Errors in the response of an output by the beginning of their key: functions of the text of the output and of the
first and last lines [rad/s]."""


class FrfDescription(PostureDescription["FrfTest"]):
    """Errors of frequencies, channels, points and posture of an FRF test."""

    responses = RESPONSE_ERRORS

    def residual(self, model: Model, errors: PostureErrors) -> Float[Array, "m"]:
        """Residual with the description corrected."""
        test, view = self.test, displaced_view(self.test, model, errors)
        tangent = view.tangent
        stated = 0.0 if tangent.structural is None else tangent.structural
        structural = stated + errors.loss * tangent.stiffness  # that of gravity is small beside that of springs
        view = dataclasses.replace(view, tangent=dataclasses.replace(tangent, structural=structural))
        omega, decay = test.omega * jnp.exp(errors.log_frequency) + errors.shift, test.decay + errors.decay
        predicted = predict_frf(view, omega, test.derivatives, decay, test.sensor)
        known, s = known_channels(test), (test.decay + 1j * test.omega)[:, None]
        gain, force_gain = known.gain * jnp.exp(errors.log_gain), known.force_gain * jnp.exp(errors.log_force_gain)
        channels = Channels(gain, force_gain, known.delay)
        for name, error_of in RESPONSE_ERRORS.items():
            predicted = predicted * error_of("", 1.0, 1.0)[1](s, errors.response[name])[:, :, None]
        return test.residual_of(channels.applied_to(predicted, test.omega, test.decay))

    def of_kind(self) -> Iterator[tuple[StatedError, str]]:
        """Delays and gains of all outputs, the exponential window, structural damping, and a shift of frequencies."""
        name, where, decay = self.test.name, display_name(self.test.name), float(self.test.decay)
        own, common = {"size": 0.1 / self._ends[1]}, {"tolerance": "delay_us", "unit": 1e-6}
        for key, on, sizes in (f"delay of {name}", where, own), ("delay", "all FRF tests", common):
            yield error_with_text(key, _delay_text, f"responses of {on} that are", **sizes), "delay"
        for key, on in (f"gain of {name}", f"the FRFs of {where}"), ("gain", "all FRFs"):
            yield error_with_text(key, factor_text, on, size=0.1), "log_gain"
        for key, on in (f"window of {decay:.6g} 1/s", "all FRF tests"), (f"window of {name}", where):
            yield error_with_text(key, _window_text, on, decay, size=0.01 * self._ends[0], least=-decay), "decay"
        yield error_with_text("loss factor", _loss_text, size=0.01, least=0.0, most=1.0), "loss"
        first, last = (float(f(self.test.omega)) for f in (np.min, np.max))
        for key, on in ("shift", "all FRF tests"), (f"shift of {name}", where):
            yield error_with_text(key, _shift_text, on, size=0.01 * last, least=-0.5 * first), "shift"

    def of_output(self, key: str, text: str) -> Iterator[tuple[StatedError, str]]:
        """Errors of its response, with their kinds."""
        for name, error_of in RESPONSE_ERRORS.items():
            yield error_of(f"output {text}", *self._ends)[0]._replace(key=f"{name} of output {key}"), name

    @property
    def _ends(self) -> tuple[float, float]:
        """First line above 0 and last line, rad/s."""
        omega = np.asarray(self.test.omega)
        return float(np.min(omega, where=omega > 0.0, initial=np.inf)), float(omega.max())

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

    def additive(
        self, residual: Float[np.ndarray, "m"], jacobian: Float[np.ndarray, "m d"], factor: Float[np.ndarray, "m"]
    ) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m d"]]:
        """Residual and Jacobian with Hs / H - 1 in place of log(Hs / H), of which the phase jumps where Hs passes
        zero."""
        scale = np.tile((np.sqrt(np.asarray(self.test.weight)) / np.asarray(self.test.noise_std)).ravel(), 2) * factor
        both = np.column_stack([residual, jacobian]) / np.where(scale > 0.0, scale, np.inf)[:, None]
        log = both[: len(both) // 2] + 1j * both[len(both) // 2 :]
        ratio = np.exp(np.minimum(log[:, 0].real, MOST_LOG) + 1j * log[:, 0].imag)
        found = np.column_stack([ratio - 1.0, ratio[:, None] * log[:, 1:]])
        found = np.concatenate([found.real, found.imag]) * scale[:, None]
        return found[:, 0], found[:, 1:]

    def alternatives(self, model: Model) -> Iterator[tuple[str, str, "FrfTest"]]:
        """Reversed and exchanged channels, other kinds of FRFs, their reciprocal, a reversed sign of the phase, degrees
        for radians."""
        test = self.test
        measured, s = np.asarray(test.measured), (np.asarray(test.decay) + 1j * np.asarray(test.omega))[:, None, None]
        weight = np.asarray(test.weight)
        used = weight > 0.0
        for what, axis, points in (("output", 1, test.outputs), ("input", 2, test.inputs)):
            for text, order, sign in column_alternatives(dof_names(points), f"{what} ", f"{what}s "):
                known = np.take(used, order, axis=axis)
                if np.mean(known[used]) < LEAST_COMPARED:
                    continue
                # with its noise: leakage is most of a weak FRF
                fields = {
                    name: jax.device_put(np.take(np.asarray(getattr(test, name)), order, axis=axis))
                    for name in NOISE_FIELDS
                }
                fields["weight"] = jax.device_put(np.where(known, weight, 0.0))
                ordered = np.take(measured, order, axis=axis) * (sign[:, None] if axis == 1 else sign)
                yield text.removeprefix("the "), text, dataclasses.replace(_with_measured(test, ordered), **fields)
        kinds = ("receptance", "mobility", "accelerance")
        for own, kind in enumerate(kinds):
            if own != test.derivatives:
                change = np.where(s == 0.0, 1.0, s) ** (test.derivatives - own)  # at 0 Hz others than receptances are 0
                text = f"{kind} stated as {kinds[test.derivatives]}"
                yield text, text, _with_measured(test, measured * change)
        text = "force over response stated as response over force"
        yield text, text, _with_measured(test, 1.0 / np.where(used & (measured != 0.0), measured, np.inf))
        yield "sign of the phase", "the sign of the phase (exp(-j omega t))", _with_measured(test, measured.conj())
        yield from posture_alternatives(test, model)


MOST_LOG = 7.0
"""Largest log of a ratio of FRFs in a residual on a linear scale."""
LEAST_COMPARED = 0.9
"""Least share of the used values that remain used after an exchange of channels. Exchanges that leave fewer are not
compared: values that are not used have no residual, which would let a wrong exchange seem right."""
NOISE_FIELDS = ("noise_std", "known_std", "additive_std", "magnitude", "leak")
"""Fields of the noise of each FRF."""


def _with_measured(test: "FrfTest", measured: np.ndarray) -> "FrfTest":
    return dataclasses.replace(test, measured=jax.device_put(measured))


def _delay_text(what: str, value: float) -> str:
    return f"{what} {1e3 * abs(value):.3g} ms {'late' if value > 0.0 else 'early'}"


def _corner_text(what: str, value: float) -> str:
    return f"a high-pass of {value / (2.0 * np.pi):.3g} Hz in {what}"


def _window_text(where: str, own: float, value: float) -> str:
    return f"an exponential window of {own + value:.3g} 1/s on the responses of {where} instead of {own:.3g}"


def _loss_text(value: float) -> str:
    return f"further structural damping of all springs and beams, of a loss factor of {value:.3g}"


def _shift_text(where: str, value: float) -> str:
    return f"frequencies of {where} {abs(value) / (2.0 * np.pi):.3g} Hz {'higher' if value > 0.0 else 'lower'}"


Phase = Literal["safe", "principal"]


class FrfTest(PostureTest):
    """Frequency responses measured at one posture."""

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
    """The part of `noise_std` that is known for each line, such as from coherence."""
    additive_std: Float[Array, "f o i"]
    """Standard deviation of the additive noise of H included in `known_std`, real and imaginary part each."""
    magnitude: Float[Array, "f o i"]
    """Magnitude of H at which `additive_std` was converted to noise of log H."""
    leak: Complex[Array, "f o i"]
    """Leakage of the largest response of a line into H, by one standard deviation of the leakage ratio."""
    nominal_std: Float[Array, ""]
    """Standard deviation of log H stated in the study: the unit of the cost."""
    excluded: Bool[Array, "f"]
    """Lines excluded from the fit as outliers."""
    decay: Float[Array, ""]
    """Decay rate sigma of the exponential window on the responses, 1/s: FRFs are H(j omega + sigma)."""
    noise_is_known: bool = eqx.field(static=True, default=True)
    """Whether the noise is as stated; otherwise it is estimated from the residual of the fit."""
    sensor: Sensor = eqx.field(static=True, default=IDEAL)
    """Sensor at all outputs."""
    robust: bool = eqx.field(static=True, default=False)
    """Whether outlier lines are excluded."""
    has_leak_ratio: bool = eqx.field(static=True, default=False)
    """Whether leakage has a stated ratio for all lines; otherwise it is that of directions within their tolerance, the
    errors of which are columns of their own."""
    symmetrized: bool = eqx.field(static=True, default=False)
    """Whether each FRF represents a reciprocal pair, so that it contains the channels of both."""
    channels: Channels | None = None
    """Gains and delay of its channels; None for ideal channels."""

    def predict(self, view: VibrationView) -> Complex[Array, "f o i"]:
        """Predicted FRFs [f, o, i], of the measured kind."""
        return predict_frf(view, self.omega, self.derivatives, self.decay, self.sensor, self.channels)

    @property
    def feels_gravity(self) -> bool:
        """Whether its sensors feel gravity as they tilt."""
        return self.sensor.gravity

    def residual(self, view: VibrationView) -> Float[Array, "m"]:
        """sqrt(W) (log Hs - log H) / noise, real parts then imaginary parts, of eq. 22 of Huynh et al. 2020.

        "safe" takes the logarithm of the ratio Hs / H, whose phase lies within half a turn. "principal" subtracts the
        principal branches as printed: where the branch cut separates the two phases, a small error becomes 2 pi.
        """
        return self.residual_of(on_host(self.predict(view)))

    def residual_of(self, predicted: Complex[Array, "f o i"] | Complex[np.ndarray, "f o i"]) -> Any:
        """The residual of predicted FRFs; NumPy in, NumPy out."""
        xp = predicted.__array_namespace__()
        # flattened: XLA vectorizes only the innermost axis, here that of a few inputs
        predicted, weight, measured, noise_std = (
            xp.asarray(x).ravel() for x in (predicted, self.weight, self.measured, self.noise_std)
        )
        used = weight > 0.0
        predicted, measured = xp.where(used, predicted, 1.0), xp.where(used, measured, 1.0)
        scale = xp.sqrt(weight) / noise_std
        if self.phase == "safe" and xp is jnp:
            parts = log_ratio(predicted, measured)
        else:
            difference = xp.log(predicted / measured) if self.phase == "safe" else xp.log(predicted) - xp.log(measured)
            parts = difference.real, difference.imag
        return xp.concatenate([part * scale for part in parts])

    @property
    def rows(self) -> int:
        """Number of rows of the residual."""
        return 2 * self.measured.size

    def stated_variances(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """W of every residual, which is also its variance under the stated noise."""
        weight = on_host(self.weight)
        return weight.__array_namespace__().tile(weight.ravel(), 2)

    def log_error(self, residual: np.ndarray) -> float:
        """Root mean square error of log H, lines weighted by their noise and not by W."""
        noise, weight = (np.tile(np.asarray(x).ravel(), 2) for x in (self.noise_std, self.weight))
        used = weight > 0.0
        squares = residual[used] ** 2 / weight[used]  # in units of each line's noise
        return float(np.sqrt(2.0 * np.sum(squares) / np.sum(noise[used] ** -2.0)))

    def score(self, view: VibrationView, reference_hz: np.ndarray | None) -> Score:
        """FRAC of each FRF, error of log H, and errors of natural frequencies, or of peak frequencies where none are
        known."""
        used = np.asarray(self.weight) > 0.0
        measured, predicted = np.asarray(self.measured), np.asarray(self.predict(view))
        criterion = frac(np.where(used, measured, np.nan), np.where(used, predicted, np.nan))
        if reference_hz is None:
            lines_hz = np.asarray(self.omega) / (2.0 * np.pi)
            reference_hz, found_hz = (peaks_hz(total_level(self, frf), lines_hz) for frf in (measured, predicted))
        else:
            found_hz = np.asarray(possible_modes(view.tangent).damped_frequency_hz)
        reference_hz = reference_hz[reference_hz <= self.vibration.band_end_hz]
        return Score(
            frac=tuple(criterion[np.isfinite(criterion)].tolist()),
            log_error=self.log_error(self.residual_of(predicted)),
            frequency_errors_hz=tuple(
                float(abs(found_hz[j] - reference_hz[i])) for i, j in paired_modes(reference_hz, found_hz)
            ),
        )

    noise = Attached(FrfNoise)
    """Noise of log H."""
    evaluation = Attached(FrfEvaluation)
    """Evaluation of its residual in a fit."""
    lines: ClassVar[Attached[FrfLines]] = Attached(FrfLines)
    """Frequency lines."""
    own = Attached(FrfChannels)
    """Gains of its channels and its delay, as parameters of the test."""
    description = Attached(FrfDescription)
    """Possible errors of its description."""
    vibration = Attached(FrfVibration)
    """Linearized motion at its posture, in its band."""

    def at_lines(self, chosen: np.ndarray) -> "FrfTest":
        """The test at some of its lines."""
        return dataclasses.replace(self, **jax.device_put(arrays_at(self, chosen)))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FrfSource(Source):
    """Raw data and metadata behind an FRF test."""

    fitted: FrfSet
    """The fitted FRFs: at the points of the test, in SI, within the band."""
    measured: FrfSet
    """All measured FRFs in SI at the points of the test and those of mode shapes alone, not synthesized or mirrored."""
    treatment: str
    """Processing before the fit, e.g. "synthesized and mirrored"; empty for none."""


FrfEntry = Entry[FrfTest, FrfSource]
"""An FRF test of a study."""
