"""What can be wrong with one hit of a hammer: overload, a double hit, no quiet stretch before it."""

import dataclasses
from collections.abc import Mapping

import numpy as np

DOUBLE = "a double hit"
"""How that reason begins."""
LEAST_BEFORE = 8
"""Samples of quiet before a hit from which offsets are taken, at least."""
PULSE_FLOOR = 0.1
"""Share of its peak at which a pulse is taken to begin and end."""
PRECURSOR = 4
"""Samples before and behind a pulse that a converter's filter may ring; closer second peaks are such ringing."""
AT_REST = 0.1
"""Share of a channel's largest value below which it is not clipped, but quiet: a force without noise is exactly 0."""
FLAT_TOP = 3
"""Samples in a row at a channel's extreme that make it look clipped."""


@dataclasses.dataclass(frozen=True)
class Pulse:
    """Where the force of a hit stands in its record, in samples."""

    start: int
    """What lies before is quiet, the filter's precursor left out."""
    peak: int
    stop: int
    """First sample behind the pulse, its ringing not counted."""


def pulse_of(force: np.ndarray) -> Pulse | str:
    """The first pulse of a force record [n] that exceeds a tenth of the largest, or why none can be used."""
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
    """Sample at which a force record rises above a share of its peak for the second time; None where it does not."""
    above = _above(force, level)
    places = np.flatnonzero(above)
    again = places[1:][np.diff(places) > PRECURSOR]
    return int(again[0]) if again.size else None


def is_overloaded(signal: np.ndarray, full_scale: float | None = None) -> bool:
    """Whether a channel [n] was clipped.

    With the full scale given: a value that reaches it. Without: at least `FLAT_TOP` samples in a row exactly at the
    record's largest or smallest value, and a steeper fall beside them than a smooth curve has that is flat only by the
    converter's resolution. The value at rest is none of them, whatever its record. What was clipped before a filter has
    no flat top and is not seen.
    """
    if full_scale is not None:
        return bool(np.max(np.abs(signal)) >= full_scale * (1.0 - 1e-6))
    values = np.unique(signal)
    if values.size < 3:
        return False
    resolution = np.min(np.diff(values))
    rest = np.median(signal)
    reach = np.max(np.abs(signal - rest))
    sides = (side for side in (signal, -signal) if side.max() - np.median(side) > AT_REST * reach)
    return any(_flat_top(side, resolution) for side in sides)


def no_usable_hit(rejected: Mapping[int, str]) -> str:
    """A sentence where no hit can be used, from the reasons by number of hit."""
    number, reason = next(iter(rejected.items()))
    if len(rejected) == 1:
        return f"the only hit cannot be used: hit {number}: {reason}"
    text = f"none of the {len(rejected)} hits can be used: hit {number}: {reason}"
    if all(other.startswith(DOUBLE) for other in rejected.values()):
        text += "; each of them seems a double one, as a response does: is the force in another channel?"
    return text


def _flat_top(signal: np.ndarray, resolution: float) -> bool:
    top = np.concatenate([[False], signal == signal.max(), [False]])
    edges = np.flatnonzero(top[1:] != top[:-1])
    for begin, end in edges.reshape(-1, 2):
        length = end - begin
        falls = [signal[begin] - signal[i] for i in (begin - 2, end + 1) if 0 <= i < signal.size]
        # A parabola that falls by one step of resolution over half the top has fallen by this two samples beside it.
        smooth = ((1.0 + 4.0 / length) ** 2 + 1.0) * resolution
        if length >= FLAT_TOP and falls and max(falls) > smooth:
            return True
    return False


def _above(force: np.ndarray, level: float) -> np.ndarray:
    centred = force - np.median(force)
    largest = centred[np.argmax(np.abs(centred))]
    return centred * np.sign(largest) > level * abs(largest)
