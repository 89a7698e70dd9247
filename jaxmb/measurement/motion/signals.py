"""From recorded angles to rates and accelerations: a zero-phase low-pass filter and central differences."""

import numpy as np
from jaxtyping import Float

Cutoff = float | tuple[float, float]
"""Of a low-pass filter, Hz: where its gain is a half, or the ends of its pass band and the start of its stop band."""
ORDER = 4
"""Of the Butterworth filter, which runs forwards and backwards, where bands do not give it."""
PASS_DB, STOP_DB = 1.0, 60.0
"""Attenuation of both runs together: at most up to the end of the pass band, at least from the stop band on."""
MOST_ORDER = 60
"""Of bands close to each other."""
EDGE = 3.0
"""Periods of the cut-off at either end of a record that are left out behind a filter of `ORDER`: after them a
thousandth of what the filter does not know of the signal before is left. Higher orders settle later, as their slowest
pole does."""
SPACING = 1.1
"""Of samples that are kept, in half periods of the cut-off: filtered noise then correlates by a few per cent."""


def low_pass(signal: Float[np.ndarray, "k ..."], rate_hz: float, cutoff_hz: Cutoff) -> Float[np.ndarray, "k ..."]:
    """The signal without what is faster than a cut-off, without delay: a Butterworth filter forwards and backwards.

    Args:
        signal: samples along the first axis.
        rate_hz: samples per second.
        cutoff_hz: where the gain is a half; or pass and stop band, from which the order follows.

    Raises:
        ValueError: the cut-off is not below half the sampling rate, or the record is too short for it.

    Source: Gustafsson 1996, "Determining the initial states in forward-backward filtering".
    """
    check_cutoff(cutoff_hz, rate_hz, len(signal))
    from scipy.signal import butter, sosfiltfilt  # takes half a second to import, in every command

    order, corner_hz = butterworth(cutoff_hz, rate_hz)
    sections = butter(order, corner_hz, fs=rate_hz, output="sos")
    return np.asarray(sosfiltfilt(sections, signal, axis=0))


def butterworth(cutoff_hz: Cutoff, rate_hz: float) -> tuple[int, float]:
    """Order of a Butterworth filter and the frequency at which its gain is 1 / sqrt(2), one half after both runs.

    The least order whose both runs lose `PASS_DB` at most in the pass band and `STOP_DB` at least in the stop band.

    Raises:
        ValueError: the frequencies are not positive, ascending and below half the sampling rate, or too close together.
    """
    if not isinstance(cutoff_hz, tuple):
        if not 0.0 < cutoff_hz < 0.5 * rate_hz:
            raise ValueError(
                f"the cut-off is {cutoff_hz:g} Hz, expected below half the sampling rate of {rate_hz:g} Hz"
            )
        return ORDER, cutoff_hz
    passed, stopped = cutoff_hz
    if not 0.0 < passed < stopped < 0.5 * rate_hz:
        raise ValueError(
            f"pass and stop band are {passed:g} and {stopped:g} Hz, expected ascending frequencies below half the"
            f" sampling rate of {rate_hz:g} Hz"
        )
    from scipy.signal import buttord

    order, corner_hz = buttord(passed, stopped, 0.5 * PASS_DB, 0.5 * STOP_DB, fs=rate_hz)
    if order > MOST_ORDER:
        raise ValueError(
            f"pass and stop band of {passed:g} and {stopped:g} Hz need a filter of order {order}, expected bands"
            f" further apart, for which {MOST_ORDER} is enough"
        )
    return int(order), float(corner_hz)


def check_cutoff(cutoff_hz: Cutoff, rate_hz: float, count: int) -> None:
    """Raise ValueError where a record of so many samples cannot be filtered with a cut-off."""
    least = 2 * edge(rate_hz, cutoff_hz) + 10
    if count < least:
        raise ValueError(
            f"there are {count} samples, too few for a cut-off at {butterworth(cutoff_hz, rate_hz)[1]:g} Hz: expected"
            f" at least {least}, or a higher cut-off"
        )


def edge(rate_hz: float, cutoff_hz: Cutoff) -> int:
    """Samples at either end that are left out behind the filter."""
    order, corner_hz = butterworth(cutoff_hz, rate_hz)
    slower = np.sin(0.5 * np.pi / ORDER) / np.sin(0.5 * np.pi / order)
    return int(np.ceil(EDGE * slower * rate_hz / corner_hz))


def decimation(rate_hz: float, cutoff_hz: Cutoff) -> int:
    """Every how manieth sample of a filtered signal tells all that passed."""
    return max(1, int(SPACING * rate_hz / (2.0 * butterworth(cutoff_hz, rate_hz)[1])))


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
