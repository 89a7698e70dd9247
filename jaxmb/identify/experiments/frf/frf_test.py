"""An FRF test: frequency responses measured at one posture."""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float

from jaxmb.compiled import on_host
from jaxmb.identify.experiments.entry import Entry, Source, Truth
from jaxmb.identify.experiments.frf.channels import Channels, predict_frf
from jaxmb.identify.experiments.frf.components import (
    FrfChannels,
    FrfDescription,
    FrfEvaluation,
    FrfLines,
    FrfNoise,
    FrfVibration,
    arrays_at,
    total_level,
)
from jaxmb.identify.experiments.frf.noise import peaks_hz
from jaxmb.identify.experiments.motion import PostureTest
from jaxmb.identify.experiments.motion_view import MotionView
from jaxmb.identify.experiments.test import Score
from jaxmb.linalg.responses import log_ratio
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.modal.data import frac
from jaxmb.mechanics.tangent import LinearizeAt
from jaxmb.response.frf import IDEAL
from jaxmb.response.frf_kind import Point
from jaxmb.response.hits import Sensor
from jaxmb.response.modal import modes, paired_modes

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
    level: Float[Array, "f o i"]
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
    symmetrized: bool = eqx.field(static=True, default=False)
    """Whether each FRF represents a reciprocal pair, so that it contains the channels of both."""
    channels: Channels | None = None
    """Gains and delay of its channels; None for ideal channels."""

    def predict(self, view: MotionView) -> Complex[Array, "f o i"]:
        """Predicted FRFs [f, o, i], of the measured kind."""
        return predict_frf(view, self.omega, self.derivatives, self.decay, self.sensor, self.channels)

    @property
    def feels_gravity(self) -> bool:
        """Whether its sensors feel gravity as they tilt."""
        return self.sensor.gravity

    def residual(self, view: MotionView) -> Float[Array, "m"]:
        """sqrt(W) (log Hs - log H) / noise, real parts then imaginary parts, of eq. 22 of Huynh et al. 2020.

        "safe" takes the logarithm of the ratio Hs / H, whose phase lies within half a turn. "principal" subtracts the
        principal branches as printed: where the branch cut separates the two phases, a small error becomes 2 pi.
        """
        return self.compared(on_host(self.predict(view)))

    def compared(self, predicted: Complex[Array, "f o i"] | Complex[np.ndarray, "f o i"]) -> Any:
        """The residual of predicted FRFs; NumPy in, NumPy out."""
        xp = predicted.__array_namespace__()
        weight, measured, noise_std = (
            (self.weight, self.measured, self.noise_std)
            if xp is jnp
            else (np.asarray(x) for x in (self.weight, self.measured, self.noise_std))
        )
        # flattened: XLA vectorizes only the innermost axis, here that of a few inputs
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

    @property
    def rows(self) -> int:
        """Number of rows of the residual."""
        return 2 * self.measured.size

    def row_weights(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """W of every residual, which is also its variance under the stated noise."""
        weight = on_host(self.weight)
        return weight.__array_namespace__().tile(weight.ravel(), 2)

    def log_error(self, residual: np.ndarray) -> float:
        """Root mean square error of log H, lines weighted by their noise and not by W."""
        noise, weight = (np.tile(np.asarray(x).ravel(), 2) for x in (self.noise_std, self.weight))
        used = weight > 0.0
        squares = residual[used] ** 2 / weight[used]  # in units of each line's noise
        return float(np.sqrt(2.0 * np.sum(squares) / np.sum(noise[used] ** -2.0)))

    def score(self, view: MotionView, reference_hz: np.ndarray | None) -> Score:
        """FRAC of each FRF, error of log H, and errors of natural frequencies, or of peak frequencies where none are
        known."""
        used = np.asarray(self.weight) > 0.0
        measured, predicted = np.asarray(self.measured), np.asarray(self.predict(view))
        criterion = frac(np.where(used, measured, np.nan), np.where(used, predicted, np.nan))
        if reference_hz is None:
            lines_hz = np.asarray(self.omega) / (2.0 * np.pi)
            reference_hz, found_hz = (peaks_hz(total_level(self, frf), lines_hz) for frf in (measured, predicted))
        else:
            found_hz = np.asarray(modes(view.tangent).damped_frequency_hz)
        reference_hz = reference_hz[reference_hz <= self.vibration.band_end_hz]
        return Score(
            frac=tuple(criterion[np.isfinite(criterion)].tolist()),
            log_error=self.log_error(self.compared(predicted)),
            frequency_errors_hz=tuple(
                float(abs(found_hz[j] - reference_hz[i])) for i, j in paired_modes(reference_hz, found_hz)
            ),
        )

    @property
    def noise(self) -> FrfNoise:
        """Noise of log H."""
        return FrfNoise(self)

    @property
    def evaluation(self) -> FrfEvaluation:
        """Evaluation of its residual in a fit."""
        return FrfEvaluation(self)

    @property
    def lines(self) -> FrfLines:
        """Frequency lines."""
        return FrfLines(self)

    @property
    def own(self) -> FrfChannels:
        """Gains of its channels and its delay, as parameters of the test."""
        return FrfChannels(self)

    @property
    def description(self) -> FrfDescription:
        """Possible errors of its description."""
        return FrfDescription(self)

    @property
    def vibration(self) -> FrfVibration:
        """Linearized motion at its posture, in its band."""
        return FrfVibration(self)

    def at_lines(self, chosen: np.ndarray) -> "FrfTest":
        """The test at some of its lines."""
        return dataclasses.replace(self, **jax.device_put(arrays_at(self, chosen)))


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class FrfSource(Source):
    """Raw data and metadata behind an FRF test."""

    fitted: FrfSet
    """The fitted FRFs: at the points of the test, in SI, within the band."""
    everything: FrfSet
    """All measured FRFs, unprocessed, including points used only for mode shapes."""
    treatment: str
    """Processing before the fit, e.g. "synthesized and mirrored"; empty for none."""
    frequency_unit: str
    """Unit of frequency in figures."""
    truth: Truth | None
    """The simulated machine behind a simulated measurement."""
    remarks: tuple[str, ...]
    """Sentences on the origin of the FRFs."""


FrfEntry = Entry[FrfTest, FrfSource]
"""An FRF test of a study."""
