"""Frequency responses from time records of shaker tests: noise and periodic excitation; leakage of segments."""

import functools
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from jaxmb.io.validation import finite_number, whole_number
from jaxmb.measurement.frf_set import FrfLabels, FrfSet, labelled
from jaxmb.measurement.records.spectra import (
    SILENT,
    Estimator,
    Spectra,
    check_estimator,
    checked_record,
    effective_averages,
    estimate,
    one_force,
    products,
    segment_window,
    summed,
)

SOURCE = "time records"
"""Source of a set in messages."""
CHUNK = 4_000_000
"""Largest number of values transformed at once, which limits memory."""


def estimate_frf(
    force: object,
    response: object,
    sample_rate_hz: float,
    *,
    segment: int | None = None,
    overlap: float = 0.5,
    window: str = "hann",
    estimator: Estimator = "H1",
    **labels: Unpack[FrfLabels],
) -> FrfSet:
    """Frequency responses from a record of noise with all forces acting simultaneously, averaged over segments.

    Each segment is detrended by its mean and windowed, and the spectral products are averaged (Welch); see `estimate`
    for the estimators and the coherence. The lines are k sample_rate / segment, without 0 Hz and half the sample rate.
    The window broadens lightly damped peaks: `leakage_remark` reports segments too short for them.

    Args:
        force: record of the forces [n] or [n, input]; integers are converted.
        response: record of the responses [n] or [n, output].
        sample_rate_hz: samples per second of both.
        segment: samples of a segment; a power of two, about an eighth of the record, where not given.
        overlap: overlap of consecutive segments relative to their length, 0 to below 1.
        window: of a segment, one of `WINDOWS`.
        estimator: "H1", "H2" or "Hv".
        labels: kind, degrees of freedom, unit and others, see `FrfLabels`.

    Returns:
        The set with multiple coherence [freq, output] and the number of independent averages (see
        `effective_averages`, rounded down). With no more averages than forces the coherence would always be 1 and is
        omitted. Lines at which a force has no power are nan.

    Raises:
        ValueError: records or settings are invalid, or forces are linearly dependent; the message names the frequency.

    Source: Welch, IEEE Trans. Audio Electroacoustics 15, 1967; Bendat, Piersol, Random Data, 4th ed., 11.5-11.6.
    """
    from scipy.fft import rfft

    f, y = checked_record(force, response)
    rate = finite_number("sample_rate_hz", sample_rate_hz, above=0.0)
    check_estimator(estimator, y.shape[1], f.shape[1])
    n = f.shape[0]
    if segment is None:
        segment = min(n, max(16, 2 ** int(np.log2(max(n / 8, 1)))))
    segment = whole_number("segment", segment, 4)
    step = segment - round(finite_number("overlap", overlap, least=0.0, below=1.0) * segment)
    if step == 0:
        raise ValueError(f"overlap is {overlap!r} of {segment} samples, expected segments that differ")
    if segment > n:
        raise ValueError(f"segment is {segment} samples, expected at most the {n} of the record")
    weights, channels, inputs = segment_window(window, segment), np.hstack([f, y]), f.shape[1]
    frames = np.lib.stride_tricks.sliding_window_view(channels, segment, axis=0)[::step]
    frequency_hz, at_once = line_frequencies(segment, rate), max(1, CHUNK // (segment * channels.shape[1]))
    whole = estimator == "H2" and inputs > 1  # it requires all of G_yy

    def transformed(part: np.ndarray) -> Spectra:
        pieces = (part - part.mean(axis=-1, keepdims=True)) * weights
        transforms = np.swapaxes(np.asarray(rfft(pieces, axis=-1))[:, :, inner_lines(segment)], 1, 2)
        return products(frequency_hz, transforms[..., :inputs], transforms[..., inputs:], whole)

    parts = (frames[first : first + at_once] for first in range(0, len(frames), at_once))
    spectra = functools.reduce(summed, map(transformed, parts))
    count = spectra.segments
    if count < inputs:
        raise ValueError(
            f"{inputs} forces require at least as many segments, found {count}: expected a longer record or shorter"
            " segments"
        )
    h, coherence = estimate(spectra, estimator)
    averages = max(1, int(effective_averages(weights, step, count) + 1e-9))
    coherence = coherence if averages > inputs else None
    return labelled(
        FrfSet(frequency_hz, h, "accelerance", coherence=coherence, averages=averages, source=SOURCE), labels
    )


def estimate_periodic_frf(
    force: object,
    response: object,
    sample_rate_hz: float,
    period: int,
    harmonics: Sequence[int],
    **labels: Unpack[FrfLabels],
) -> FrfSet:
    """Frequency responses to one periodic force: ratio of the transforms over whole periods, without window or leakage.

    H(f_k) = mean Y(f_k) / mean F(f_k) over the periods, f_k = k sample_rate / period for the excited harmonics k. The
    coherence is estimated over the periods if there are at least two.

    Args:
        force: record of the force [n] or [n, 1] in steady state; samples beyond whole periods are not used.
        response: record of the responses [n] or [n, output].
        sample_rate_hz: samples per second of both.
        period: samples of a period.
        harmonics: the excited lines k, 1 to below period / 2, increasing.
        labels: kind, degrees of freedom, unit and others, see `FrfLabels`.

    Raises:
        ValueError: records or settings are invalid, or a harmonic has no force.

    Source: Pintelon, Schoukens, System Identification: A Frequency Domain Approach, 2nd ed., 2.4-2.5.
    """
    from scipy.fft import rfft

    f, y = checked_record(force, response)
    rate = finite_number("sample_rate_hz", sample_rate_hz, above=0.0)
    one_force(f, "a periodic test")
    period = whole_number("period", period, 4)
    if period > f.shape[0]:
        raise ValueError(f"period is {period} samples, expected at most the {f.shape[0]} of the record")
    lines = _harmonics(harmonics, period)
    count = f.shape[0] // period
    pieces = np.hstack([f, y])[: count * period].reshape(count, period, -1)
    transforms = np.asarray(rfft(pieces, axis=1))[:, lines]
    mean = transforms.mean(axis=0)
    size = np.abs(mean[:, 0])
    if size.min() <= np.sqrt(SILENT) * size.max():
        raise ValueError(f"the force has no harmonic {lines[np.argmin(size)]}, expected those that were excited")
    frequency_hz, h = lines * rate / period, mean[:, 1:, None] / mean[:, 0, None, None]
    spectra = products(frequency_hz, transforms[..., :1], transforms[..., 1:])
    coherence = estimate(spectra)[1] if count > 1 else None
    return labelled(FrfSet(frequency_hz, h, "accelerance", coherence=coherence, averages=count, source=SOURCE), labels)


def line_frequencies(samples: int, sample_rate_hz: float) -> np.ndarray:
    """Frequencies of the lines of a segment between 0 Hz and half the sample rate, both excluded, Hz."""
    return np.arange(1, (samples + 1) // 2) * (sample_rate_hz / samples)


def inner_lines(samples: int) -> slice:
    """Slice of a real transform with the lines of `line_frequencies`."""
    return slice(1, (samples + 1) // 2)


def _harmonics(harmonics: Sequence[int], period: int) -> np.ndarray:
    if len(harmonics) > period / 2:
        raise ValueError(
            f"there are {len(harmonics)} harmonics, expected at most half the {period} samples of a period"
        )
    lines = np.asarray(harmonics)
    if lines.ndim != 1 or lines.size == 0 or lines.dtype.kind not in "iu":
        raise ValueError("harmonics are no list of whole numbers, expected the excited lines")
    if lines[0] < 1 or lines[-1] >= period / 2 or np.any(np.diff(lines) <= 0):
        raise ValueError(
            f"harmonics go from {lines[0]} to {lines[-1]}, expected increasing ones from 1 to below {period / 2:g}"
        )
    return lines


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
    decays = np.atleast_1d(decays)
    # decay int rho exp(-decay t) dt, rho linear between its samples: weights of both ends of a step
    x = np.maximum(decays / samples, 1e-12)
    both = -np.expm1(-x) / x
    ahead = np.where(x > 1e-4, (1.0 - np.exp(-x) * (1.0 + x)) / np.maximum(x, 1e-4) ** 2, 0.5 - x / 3.0)
    decayed = np.exp(-np.outer(x, np.arange(samples)))
    return 1.0 - x * ((both - ahead) * (decayed @ rho) + ahead * (decayed @ np.append(rho[1:], 0.0)))


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
    factor = segment_for(window, decay, step_hz)  # a segment is 1 / line spacing: samples at that rate count segments
    return (
        f"the peak at {frf_set.frequency_hz[peaks[worst]]:g} Hz is {2 * half_width_hz[worst] / step_hz:.1f} lines wide:"
        f" leakage lowers it by {loss:.0%} or more, expected segments at least {max(factor, 2)} times as long"
    )
