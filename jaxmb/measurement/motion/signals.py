"""From recorded angles to rates and accelerations: a zero-phase low-pass filter and central differences."""

import numpy as np
from jaxtyping import Float

ORDER = 4
"""Of the Butterworth filter, which runs forwards and backwards."""
EDGE = 3.0
"""Periods of the cut-off at either end of a record that are left out: after them a thousandth of what the filter does
not know of the signal before is left."""
SPACING = 1.1
"""Of samples that are kept, in half periods of the cut-off: filtered noise then correlates by a few per cent."""


def low_pass(signal: Float[np.ndarray, "k ..."], rate_hz: float, cutoff_hz: float) -> Float[np.ndarray, "k ..."]:
    """The signal without what is faster than a cut-off, without delay: a Butterworth filter forwards and backwards.

    Args:
        signal: samples along the first axis.
        rate_hz: samples per second.
        cutoff_hz: where the gain is a half.

    Raises:
        ValueError: the cut-off is not below half the sampling rate, or the record is too short for it.

    Source: Gustafsson 1996, "Determining the initial states in forward-backward filtering".
    """
    check_cutoff(cutoff_hz, rate_hz, len(signal))
    from scipy.signal import butter, sosfiltfilt  # takes half a second to import, in every command

    sections = butter(ORDER, cutoff_hz, fs=rate_hz, output="sos")
    return np.asarray(sosfiltfilt(sections, signal, axis=0))


def check_cutoff(cutoff_hz: float, rate_hz: float, count: int) -> None:
    """Raise ValueError where a record of so many samples cannot be filtered with a cut-off."""
    if not 0.0 < cutoff_hz < 0.5 * rate_hz:
        raise ValueError(f"the cut-off is {cutoff_hz:g} Hz, expected below half the sampling rate of {rate_hz:g} Hz")
    least = 2 * edge(rate_hz, cutoff_hz) + 10
    if count < least:
        raise ValueError(
            f"there are {count} samples, too few for a cut-off at {cutoff_hz:g} Hz: expected at least {least}, or a"
            " higher cut-off"
        )


def edge(rate_hz: float, cutoff_hz: float) -> int:
    """Samples at either end that are left out behind the filter."""
    return int(np.ceil(EDGE * rate_hz / cutoff_hz))


def decimation(rate_hz: float, cutoff_hz: float) -> int:
    """Every how manieth sample of a filtered signal tells all that passed."""
    return max(1, int(SPACING * rate_hz / (2.0 * cutoff_hz)))


def rates(position: Float[np.ndarray, "k ..."], rate_hz: float) -> tuple[np.ndarray, np.ndarray]:
    """Velocity and acceleration of a position by central differences of five samples; the first two samples and the
    last two repeat their neighbours'.

    Those of three samples make a rate of 1 Hz at 100 samples a second too small by 7e-4, and an acceleration by 3e-4,
    which a gain or an inertia takes for its own; of five samples it is 5e-7 and 2e-7.
    """
    velocity, acceleration = np.empty_like(position), np.empty_like(position)
    far, near, here = (position[4:], position[:-4]), (position[3:-1], position[1:-3]), position[2:-2]
    velocity[2:-2] = rate_hz / 12.0 * (8.0 * (near[0] - near[1]) - (far[0] - far[1]))
    acceleration[2:-2] = rate_hz**2 / 12.0 * (16.0 * (near[0] + near[1]) - (far[0] + far[1]) - 30.0 * here)
    for part in (velocity, acceleration):
        part[:2], part[-2:] = part[2], part[-3]
    return velocity, acceleration
