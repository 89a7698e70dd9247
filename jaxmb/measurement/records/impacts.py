"""Frequency responses from records of hammer hits."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Unpack

import numpy as np
from jaxtyping import Float

from jaxmb.io.validation import error_location, finite_number, whole_number
from jaxmb.measurement.frf_set import FrfLabels, FrfSet, labelled
from jaxmb.measurement.records.spectra import (
    Estimator,
    check_estimator,
    checked_record,
    estimate,
    exponential_window,
    force_window,
    one_force,
    products,
    signal_columns,
)
from jaxmb.measurement.records.time_records import inner_lines, line_frequencies

DOUBLE = "a double hit"
"""Beginning of the reason of rejection of a double hit."""
LEAST_BEFORE = 8
"""Least number of samples before a hit from which offsets are estimated."""
PULSE_FLOOR = 0.1
"""Share of its peak at which a pulse begins and ends."""
PRECURSOR = 4
"""Samples before and after a pulse within which the converter's filter may ring; closer peaks are no second hits."""
AT_REST = 0.1
"""Share of a channel's largest value below which a flat signal is rest rather than clipping."""
FLAT_TOP = 3
"""Consecutive samples at a channel's extreme that indicate clipping."""
QUIET_PARTS = 16
"""Parts of a record, the quietest of which shows the noise."""


@dataclasses.dataclass(frozen=True)
class Pulse:
    """Position of the force pulse of a hit in its record, in samples."""

    start: int
    """The record is at rest before it, the filter's precursor excluded."""
    peak: int
    stop: int
    """First sample after the pulse, ringing excluded."""


def pulse_of(force: np.ndarray) -> Pulse | str:
    """The first pulse of a force record [n] above a tenth of its largest value, or the reason of rejection."""
    above = _above(force, PULSE_FLOOR)
    crossed = int(np.argmax(above))
    stop = crossed + int(np.argmin(np.append(above[crossed:], False)))
    peak = crossed + int(np.argmax(np.abs(force[crossed:stop] - np.median(force))))
    start = crossed - (peak - crossed) - PRECURSOR
    if start < LEAST_BEFORE:
        return f"it begins {crossed} samples into the record, expected at least {LEAST_BEFORE + crossed - start}"
    if stop >= force.size:
        return "the force has not ended at the end of the record"
    return Pulse(start, peak, stop)


def double_hit(force: np.ndarray, level: float) -> int | None:
    """Sample at which a force record rises above a share of its peak again; None where it does not."""
    above = _above(force, level)
    samples = np.flatnonzero(above)
    again = samples[1:][np.diff(samples) > PRECURSOR]
    return int(again[0]) if again.size else None


def is_overloaded(signal: np.ndarray, full_scale: float | None = None) -> bool:
    """Whether a channel [n] was clipped.

    With a given full scale, a value reaches it. Otherwise at least `FLAT_TOP` consecutive samples equal the record's
    largest or smallest value, with a steeper slope beside them than that of a smooth curve that is flat by the
    converter's resolution and, unless many samples are equal or several places are flat, by its noise. The rest value
    is excluded. Clipping before a filter leaves no flat top and is not detected.
    """
    if full_scale is not None:
        return bool(np.max(np.abs(signal)) >= full_scale * (1.0 - 1e-6))
    values = np.unique(signal)
    if values.size < 3:
        return False
    resolution = np.min(np.diff(values))
    reach = np.max(np.abs(signal - np.median(signal)))
    sides = (side for side in (signal, -signal) if side.max() - np.median(side) > AT_REST * reach)
    return any(_flat_top(side, resolution) for side in sides)


def no_usable_hit(rejected: Mapping[int, str]) -> str:
    """Error message where no hit can be used, from the reasons by number of hit."""
    number, reason = next(iter(rejected.items()))
    if len(rejected) == 1:
        return f"the only hit cannot be used: hit {number}: {reason}"
    text = f"none of the {len(rejected)} hits can be used: hit {number}: {reason}"
    if all(other.startswith(DOUBLE) for other in rejected.values()):
        text += "; all look like double hits, as responses do: is the force in another channel?"
    return text


def _noise(signal: np.ndarray) -> float:
    """Standard deviation of the noise in the quietest part of a record, from its fourth differences."""
    parts = np.array_split(np.abs(np.diff(signal, 4)), QUIET_PARTS)
    return min(float(np.median(part)) for part in parts if part.size) / (0.6745 * np.sqrt(70.0))


def _flat_top(signal: np.ndarray, resolution: float) -> bool:
    found, noise = 0, _noise(signal) if signal.size > 4 else 0.0
    top = np.concatenate([[False], signal == signal.max(), [False]])
    edges = np.flatnonzero(top[1:] != top[:-1])
    for begin, end in edges.reshape(-1, 2):
        length = end - begin
        falls = [signal[begin] - signal[i] for i in (begin - 2, end + 1) if 0 <= i < signal.size]
        # drop two samples beside the top of a parabola that drops by one step of resolution over half the top
        smooth = ((1.0 + 4.0 / length) ** 2 + 1.0) * np.array([resolution, resolution + 4.0 * noise])
        if length >= FLAT_TOP and falls and max(falls) > smooth[0]:
            found += 1  # few samples at a smooth top with noise are equal by chance, once
            if max(falls) > smooth[1] or length >= 2 * FLAT_TOP or found >= FLAT_TOP:
                return True
    return False


def _above(force: np.ndarray, level: float) -> np.ndarray:
    centred = force - np.median(force)
    largest = centred[np.argmax(np.abs(centred))]
    return centred * np.sign(largest) > level * abs(largest)


STILL_MOVING = 0.05
"""Motion before a hit, relative to the following peak, above which a remark says that the machine was not at rest."""
NOT_DIED = 0.02
"""Motion at the end of the record after the exponential window, relative to the peak, above which there is a remark."""


@dataclasses.dataclass(frozen=True, eq=False)
class HitTest:
    """Frequency responses from hits, with the hits used and rejected."""

    frf_set: FrfSet
    accepted: tuple[int, ...]
    """Numbers of the averaged hits, from 1."""
    peak_force: tuple[float, ...]
    """Largest force of each of them, in the unit of the records."""
    rejected: Mapping[int, str]
    """Reason of rejection by number of hit."""
    remarks: tuple[str, ...]
    """Warnings that do not prevent the estimate."""
    hits: tuple[FrfSet, ...]
    """Responses to each accepted hit alone, where there are two or more."""


def find_hits(
    force: object,
    sample_rate_hz: float,
    *,
    block: int,
    pre_trigger_s: float = 0.05,
    trigger: float | None = None,
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """First samples of the blocks around the hits of a long record, and remarks on hits without a complete block.

    A hit begins where the deviation of the force from its median first exceeds the trigger. The block begins the
    pre-trigger time earlier, and the next hit is searched after the block. A second hit within a block is rejected by
    `estimate_frf_from_hits`.

    Args:
        force: record of the hammer [n] or [n, 1].
        sample_rate_hz: samples per second.
        block: samples of a block.
        pre_trigger_s: time before the trigger included in the block, s.
        trigger: level in the unit of the force; a tenth of the largest where not given.

    Raises:
        ValueError: the record or the settings are invalid, or there is no hit.
    """
    f = one_force(signal_columns("force", force), "a hammer")
    rate = finite_number("sample_rate_hz", sample_rate_hz, above=0.0)
    before = round(finite_number("pre_trigger_s", pre_trigger_s, least=0.0) * rate)
    if whole_number("block", block, 16) <= before:
        raise ValueError(f"pre_trigger_s is {pre_trigger_s:g} s, expected less than the {block / rate:g} s of a block")
    size = np.abs(f - np.median(f))
    level = 0.1 * size.max() if trigger is None else finite_number("trigger", trigger)
    if not 0.0 < level < size.max():
        raise ValueError(f"trigger is {level:g}, expected above 0 and below the force's largest, {size.max():g}")
    above = np.flatnonzero(size > level)
    starts, rejected = [], []
    at = 0
    while at < above.size:
        begin = int(above[at]) - before
        if begin < 0:
            rejected.append(f"the hit at {above[at] / rate:g} s has less than {pre_trigger_s:g} s before it")
        elif begin + block > f.size:
            rejected.append(f"the hit at {above[at] / rate:g} s has less than a block after it")
        else:
            starts.append(begin)
        at = int(np.searchsorted(above, begin + block))
    if not starts:
        raise ValueError(f"no hit has a complete block of {block} samples: {rejected[0]}")
    return tuple(starts), tuple(rejected)


def cut_hits(
    force: object, response: object, starts: Sequence[int], block: int
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Records (force [block, 1], response [block, output]) of single hits from a long one, see `find_hits`.

    Raises:
        ValueError: the record is invalid, or a block is not within it.
    """
    f, y = checked_record(force, response)
    for start in starts:
        if not 0 <= start <= len(f) - block:
            raise ValueError(f"starts holds {start}, expected 0 to {len(f) - block}: a block of {block} samples each")
    return tuple((f[start : start + block], y[start : start + block]) for start in starts)


def estimate_frf_from_hits(
    records: Sequence[tuple[object, object]],
    sample_rate_hz: float,
    *,
    decay_1_s: float = 0.0,
    force_window_s: float | None = None,
    double_hit_level: float = 0.1,
    force_full_scale: float | None = None,
    response_full_scale: float | None = None,
    estimator: Estimator = "H1",
    **labels: Unpack[FrfLabels],
) -> HitTest:
    """Frequency responses to hammer hits at one point, averaged over the valid hits.

    The mean before the hit is subtracted from each channel and the samples before the hit are set to zero. The force
    window keeps the pulse and removes the noise after it; the exponential window exp(-sigma t), t from the start of the
    hit, is applied to force and response. The estimate is then exactly H(j omega + sigma): the set carries sigma as
    `decay_1_s`, and `without_window_damping` removes it from poles.

    A hit is rejected if a channel was overloaded, if the force rises again above a share of its peak, or if it is
    preceded by less than the rise time of the pulse and a few samples at rest.

    Args:
        records: force [n] or [n, 1] and response [n] or [n, output] of each hit, all of one length.
        sample_rate_hz: samples per second.
        decay_1_s: sigma, 1/s; see `decay_of_end_level`.
        force_window_s: length of the force window from the start of the hit; by default it ends twice the length of the
            pulse and 16 samples, for the ringing of the converter's filter, after the pulse.
        double_hit_level: largest share of the peak of a second pulse.
        force_full_scale: value at which the force channel clips; detected by flat tops where not given.
        response_full_scale: the same of the response channels.
        estimator: "H1", "H2" or "Hv".
        labels: kind, degrees of freedom, unit and others, see `FrfLabels`.

    Returns:
        The set, with coherence over the accepted hits where there are two or more, and the rejected hits.

    Raises:
        ValueError: records or settings are invalid, or no hit is valid.

    Source: Halvorsen, Brown, Sound and Vibration 11(11), 1977, 8-21; Fladung, Rost, Mech. Systems and Signal
    Processing 11(1), 1997, 23-36.
    """
    from scipy.fft import rfft

    rate = finite_number("sample_rate_hz", sample_rate_hz, above=0.0)
    finite_number("decay_1_s", decay_1_s, least=0.0)
    finite_number("double_hit_level", double_hit_level, least=0.0, below=1.0)
    for what, value in (
        ("force_window_s", force_window_s),
        ("force_full_scale", force_full_scale),
        ("response_full_scale", response_full_scale),
    ):
        if value is not None:
            finite_number(what, value, above=0.0)
    hits = _checked_hits(records)
    check_estimator(estimator, hits[0][1].shape[1], 1)
    transforms, accepted, peaks, rejected, remarks = [], [], [], {}, []
    for number, (force, response) in enumerate(hits, 1):
        pulse = _pulse_or_reason(force, response, double_hit_level, (force_full_scale, response_full_scale))
        if isinstance(pulse, str):
            rejected[number] = pulse
            continue
        f, y = _windowed(force, response, pulse, rate, decay_1_s, force_window_s)
        remarks += [f"hit {number}: {remark}" for remark in _remarks(response, y, pulse)]
        transforms.append(np.asarray(rfft(np.column_stack([f, y]), axis=0))[inner_lines(f.size)])
        accepted.append(number)
        peaks.append(abs(float(force[pulse.peak] - force[: pulse.start].mean())))
    if not accepted:
        raise ValueError(no_usable_hit(rejected))
    f, y = np.split(np.stack(transforms), [1], axis=2)
    frequency_hz, several = line_frequencies(hits[0][0].size, rate), len(accepted) > 1
    h, coherence = estimate(products(frequency_hz, f, y), estimator)
    frf_set = FrfSet(
        frequency_hz, h, "accelerance", coherence=coherence if several else None, averages=len(accepted),
        decay_1_s=float(decay_1_s), source="hits",
    )  # fmt: skip
    frf_set = labelled(frf_set, labels)
    alone = (estimate(products(frequency_hz, f[k : k + 1], y[k : k + 1]))[0] for k in range(len(accepted)) if several)
    single = tuple(dataclasses.replace(frf_set, frf=each, coherence=None, averages=1) for each in alone)
    return HitTest(frf_set, tuple(accepted), tuple(peaks), MappingProxyType(rejected), tuple(remarks), single)


def _checked_hits(records: Sequence[tuple[object, object]]) -> list[tuple[np.ndarray, np.ndarray]]:
    if len(records) == 0:
        raise ValueError("there are no records, expected one per hit")
    hits = []
    for number, record in enumerate(records, 1):
        try:
            force, response = record
        except (TypeError, ValueError):
            raise ValueError(f"hit {number} is no pair, expected (force, response)") from None
        with error_location(f"hit {number}"):
            f, y = checked_record(force, response)
            hits.append((one_force(f, "a hammer"), y))
        if hits[-1][1].shape != hits[0][1].shape:
            n, m = hits[0][1].shape
            raise ValueError(
                f"hit {number} has {y.shape[0]} samples of {y.shape[1]} responses, expected {n} of {m} as hit 1"
            )
    if hits[0][0].size < 16:
        raise ValueError(f"the records have {hits[0][0].size} samples, expected at least 16")
    return hits


def _pulse_or_reason(
    force: np.ndarray, response: np.ndarray, level: float, scales: tuple[float | None, float | None]
) -> Pulse | str:
    """Pulse of the hit, or the reason of rejection."""
    if is_overloaded(force, scales[0]):
        return "the force was overloaded"
    for o in range(response.shape[1]):
        if is_overloaded(response[:, o], scales[1]):
            return f"response {o + 1} was overloaded"
    again = double_hit(force, level)
    if again is not None:
        return f"{DOUBLE}: the force rises again above {level:.0%} of its peak at sample {again + 1}"
    return pulse_of(force)


def _windowed(
    force: np.ndarray, response: np.ndarray, pulse: Pulse, rate: float, decay_1_s: float, keep_s: float | None
) -> tuple[np.ndarray, np.ndarray]:
    """Force [n] and response [n, output] of a hit with offsets removed and windows applied."""
    n = force.size
    length = pulse.stop - pulse.start
    margin = 2 * length + 4 * PRECURSOR
    stop = pulse.stop + margin if keep_s is None else pulse.start + round(keep_s * rate)
    if stop <= pulse.peak:
        raise ValueError(
            f"force_window_s is {keep_s} s, expected to extend past the peak {(pulse.peak - pulse.start) / rate:g} s"
            " from the start of the hit"
        )
    decay = exponential_window((np.arange(n) - pulse.start) / rate, decay_1_s)
    f = (force - force[: pulse.start].mean()) * force_window(n, pulse.start, min(stop, n), length) * decay
    after = np.where(np.arange(n) >= pulse.start, decay, 0.0)
    return f, (response - response[: pulse.start].mean(axis=0)) * after[:, None]


def _motion(samples: Float[np.ndarray, "k o"]) -> Float[np.ndarray, "o"]:
    """Root mean square of some samples, 0 where white noise is most of it: motion below a sixth of the sampling rate
    changes by less than that between samples."""
    size = np.sqrt(np.mean(samples**2, axis=0))
    return np.where(np.diff(samples, axis=0).std(axis=0) < size, size, 0.0)


def _remarks(response: np.ndarray, windowed: np.ndarray, pulse: Pulse) -> list[str]:
    found, rest = [], response[: pulse.start]
    before = _motion(rest - rest.mean(axis=0))
    peak = np.abs(windowed).max(axis=0)
    after = _motion(windowed[-max(8, windowed.shape[0] // 20) :])
    for o in range(peak.size):
        if before[o] > STILL_MOVING * peak[o]:
            found.append(f"response {o + 1} moves by {before[o] / peak[o]:.0%} of its peak before the hit")
        if after[o] > NOT_DIED * peak[o]:
            found.append(
                f"response {o + 1} is still at {after[o] / peak[o]:.0%} of its peak at the end:"
                " expected a longer record or a faster exponential window"
            )
    return found
