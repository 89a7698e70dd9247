"""Windows of time records, their effective number of averages, added damping and leakage."""

import math
from typing import TypeVar

import numpy as np

from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.records.spectra import real_number

WINDOWS = ("hann", "boxcar", "hamming", "blackman", "blackmanharris", "nuttall", "flattop", "cosine", "bartlett")
"""Names of the windows of a segment, as in scipy.signal.get_window."""

Number = TypeVar("Number", complex, np.ndarray)


def segment_window(name: str, samples: int) -> np.ndarray:
    """Window [samples] of a segment, in its periodic form.

    Raises:
        ValueError: no window of that name.
    """
    from scipy.signal import get_window

    if name not in WINDOWS:
        raise ValueError(f"window is {name!r}, expected one of {', '.join(WINDOWS)}")
    return np.asarray(get_window(name, samples))


def effective_averages(window: np.ndarray, step: int, segments: int) -> float:
    """Number of independent segments whose mean has the same variance as that of overlapping ones.

    n = K / (1 + 2 sum_m (1 - m / K) rho_m^2), rho_m = sum_k w_k w_(k + m step) / sum_k w_k^2, for noise that is white
    over the width of the window.

    Args:
        window: of a segment [samples].
        step: samples between the starts of consecutive segments.
        segments: K, number of segments averaged.

    Source: Welch, IEEE Trans. Audio Electroacoustics 15, 1967, p. 71; Harris, Proc. IEEE 66, 1978, eq. 17-18.
    """
    correlated = 0.0
    for m in range(1, min(segments, math.ceil(window.size / step))):
        rho = float(window[: -m * step] @ window[m * step :]) / float(window @ window)
        correlated += (1.0 - m / segments) * rho**2
    return segments / (1.0 + 2.0 * correlated)


def exponential_window(time_s: np.ndarray, decay_1_s: float) -> np.ndarray:
    """exp(-sigma t) at times [n] from the start of a hit, s; to be applied to force and response.

    Source: Fladung, Rost, Mech. Systems and Signal Processing 11(1), 1997, 23-36.
    """
    return np.exp(-decay_1_s * time_s)


def decay_of_end_level(end_level: float, length_s: float) -> float:
    """Decay rate sigma of the exponential window that reaches a level, such as 0.01, `length_s` after the hit, 1/s.

    The window begins at the hit. With the length of a record, the level is reached one record length after the hit; at
    the end of the record, earlier by the pre-trigger time, the window is slightly above it.

    Raises:
        ValueError: the level is not between 0 and 1, or the length is not above 0.
    """
    if not 0.0 < real_number("end_level", end_level) <= 1.0:
        raise ValueError(f"end_level is {end_level!r}, expected above 0 and at most 1")
    if not real_number("length_s", length_s) > 0.0:
        raise ValueError(f"length_s is {length_s!r}, expected a number above 0")
    return math.log(1.0 / end_level) / length_s


def without_window_damping(eigenvalue: Number, decay_1_s: float) -> Number:
    """Eigenvalues of the machine from those of responses with an exponential window; exact.

    The transforms of f exp(-sigma t) and y exp(-sigma t) are those of f and y at s = j omega + sigma, so the estimate
    is H(j omega + sigma), and a pole lambda of H appears at lambda - sigma. The correction keeps the damped frequency
    and reduces the decay rate zeta omega_n by sigma.

    Args:
        eigenvalue: identified on the axis j omega, rad/s.
        decay_1_s: sigma of the window, `FrfSet.decay_1_s`.

    Source: Fladung, Rost, Mech. Systems and Signal Processing 11(1), 1997, 23-36.
    """
    return eigenvalue + decay_1_s


def force_window(samples: int, start: int, stop: int, taper: int) -> np.ndarray:
    """Window [samples] of 1 from start to stop, followed by a half-cosine taper to 0, and 0 elsewhere."""
    window = np.zeros(samples)
    window[start:stop] = 1.0
    fall = 0.5 * (1.0 + np.cos(np.pi * np.arange(1, taper + 1) / (taper + 1)))
    length = min(taper, samples - stop)
    window[stop : stop + length] = fall[:length]
    return window


TOLERABLE = 0.01
"""Relative loss of a peak by leakage above which there is a remark."""
STANDS_OUT = 0.5
"""Least prominence of a peak to be assessed, in decades of amplitude."""
LEAST_COHERENCE = 0.5


def peak_loss(window: str, decays: np.ndarray, samples: int = 1024) -> np.ndarray:
    """Relative bias of H1 of white noise at the peak of a mode, as a function of its decay over a segment.

    The averaged products of windowed segments have the expectation E H1(f) = sum_k h_k rho_k exp(-j 2 pi f t_k) / ...,
    the impulse response h weighted with the autocorrelation rho of the window. At the peak of a mode that decays as
    exp(-sigma t) the loss is 1 - sigma int rho(t) exp(-sigma t) dt. For a Hann window and a long segment it is
    (2 pi / (sigma T))^2 / 3 = (line spacing / (zeta f_n))^2 / 3.

    Args:
        window: of the segment.
        decays: sigma T [n], T the length of the segment; sigma = zeta omega_n.
        samples: of the segment, for the quadrature.

    Source: expectation of Welch's estimate, as Bendat, Piersol, Random Data, 4th ed., 8.5.1 and 9.3.
    """
    w = segment_window(window, samples)
    spectrum = np.abs(np.fft.rfft(w, 2 * samples)) ** 2
    rho = np.fft.irfft(spectrum)[:samples] / (w @ w)
    time = np.arange(samples) / samples
    kept = np.array([_integral(rho, time, decay) for decay in np.atleast_1d(decays)])
    return 1.0 - kept


def segment_for(window: str, decay_1_s: float, sample_rate_hz: float, loss: float = TOLERABLE) -> int:
    """Samples of a segment for which the relative loss of a mode's peak does not exceed `loss`.

    Args:
        window: of the segment.
        decay_1_s: sigma = zeta omega_n of the mode, 1/s.
        sample_rate_hz: samples per second.
        loss: largest relative loss.
    """
    decays = np.geomspace(1.0, 1000.0, 200)
    enough = peak_loss(window, decays) <= loss
    needed = decays[np.argmax(enough)] if enough.any() else decays[-1] * peak_loss(window, decays[-1:])[0] / loss
    return int(np.ceil(needed / decay_1_s * sample_rate_hz))


def leakage_remark(frf_set: FrfSet, window: str = "hann") -> str | None:
    """Remark where the segments of an estimate from noise were too short for its sharpest peak, or None.

    The decay of the mode at a peak follows from the curvature of H: for H ~ 1 / (j (f - f0) + b), b = zeta f0, it is
    H'' / H = -2 / b^2. The finite line spacing and a short segment both broaden the peak, so that the reported loss is
    a lower bound. Only prominent, coherent peaks of the summed power are assessed.

    Args:
        frf_set: from `estimate_frf`, all its lines.
        window: of its segments.
    """
    from scipy.signal import find_peaks

    h = np.where(frf_set.finite, frf_set.frf, 0.0).reshape(frf_set.frequency_hz.size, -1)
    power = np.sum(np.abs(h) ** 2, axis=1)
    if h.shape[0] < 3 or not power.any():
        return None
    decades = np.log10(np.maximum(power, power.max() * 1e-12))
    peaks = find_peaks(decades, prominence=2 * STANDS_OUT)[0]
    if frf_set.coherence is not None and peaks.size:
        share = np.nanmean(frf_set.coherence.reshape(h.shape[0], -1)[peaks], axis=1)
        peaks = peaks[share >= LEAST_COHERENCE]
    if peaks.size == 0:
        return None
    step_hz = float(frf_set.frequency_hz[1] - frf_set.frequency_hz[0])
    bend = h[peaks + 1] - 2 * h[peaks] + h[peaks - 1]
    curvature = -np.real(np.sum(np.conj(h[peaks]) * bend, axis=1)) / power[peaks]
    half_width_hz = step_hz * np.sqrt(2.0 / np.maximum(curvature, 1e-12))
    worst = int(np.argmin(half_width_hz))
    decay = 2 * np.pi * half_width_hz[worst]
    loss = float(peak_loss(window, np.array([decay / step_hz]))[0])
    if loss <= TOLERABLE:
        return None
    rate = step_hz  # a segment has the length 1 / line spacing: samples at that rate count segments
    factor = segment_for(window, decay, rate)
    return (
        f"the peak at {frf_set.frequency_hz[peaks[worst]]:g} Hz is {2 * half_width_hz[worst] / step_hz:.1f} lines wide:"
        f" leakage lowers it by {loss:.0%} or more, expected segments at least {max(factor, 2)} times as long"
    )


def _integral(rho: np.ndarray, time: np.ndarray, decay: float) -> float:
    """decay * int_0^1 rho exp(-decay t) dt, rho linear between its samples, exactly."""
    step = time[1] - time[0]
    x = decay * step
    # weights of a and b in int_0^step ((1 - s) a + s b) exp(-x s) ds
    e = np.exp(-x)
    weight_b = (1.0 - e * (1.0 + x)) / x**2 if x > 1e-4 else 0.5 - x / 3
    weight_a = (1.0 - e) / x - weight_b if x > 1e-9 else 0.5
    ahead = np.append(rho[1:], 0.0)
    return float(decay * step * np.sum(np.exp(-decay * time) * (weight_a * rho + weight_b * ahead)))
