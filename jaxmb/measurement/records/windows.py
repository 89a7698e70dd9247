"""Windows over time records, how many independent averages they leave, and the damping that one of them adds."""

import math
from typing import TypeVar

import numpy as np

from jaxmb.measurement.records.signals import real_number

WINDOWS = ("hann", "boxcar", "hamming", "blackman", "blackmanharris", "nuttall", "flattop", "cosine", "bartlett")
"""Names of the windows over a segment, as scipy.signal.get_window knows them."""

Number = TypeVar("Number", complex, np.ndarray)


def segment_window(name: str, samples: int) -> np.ndarray:
    """Window [samples] over a segment, in its periodic form.

    Raises:
        ValueError: no window of that name.
    """
    from scipy.signal import get_window

    if name not in WINDOWS:
        raise ValueError(f"window is {name!r}, expected one of {', '.join(WINDOWS)}")
    return np.asarray(get_window(name, samples))


def effective_averages(window: np.ndarray, step: int, segments: int) -> float:
    """Number of independent segments whose mean varies as much as that of overlapping ones.

    n = K / (1 + 2 sum_m (1 - m / K) rho_m^2), rho_m = sum_k w_k w_(k + m step) / sum_k w_k^2, for noise that is white
    over the width of the window.

    Args:
        window: over a segment [samples].
        step: samples from the start of one segment to that of the next.
        segments: K, how many were averaged.

    Source: Welch, IEEE Trans. Audio Electroacoustics 15, 1967, p. 71; Harris, Proc. IEEE 66, 1978, eq. 17-18.
    """
    correlated = 0.0
    for m in range(1, min(segments, math.ceil(window.size / step))):
        rho = float(window[: -m * step] @ window[m * step :]) / float(window @ window)
        correlated += (1.0 - m / segments) * rho**2
    return segments / (1.0 + 2.0 * correlated)


def exponential_window(time_s: np.ndarray, decay_1_s: float) -> np.ndarray:
    """exp(-sigma t) at times [n] from the start of a hit, s; it has to be over force and response alike.

    Source: Fladung, Rost, Mech. Systems and Signal Processing 11(1), 1997, 23-36.
    """
    return np.exp(-decay_1_s * time_s)


def decay_of_end_level(end_level: float, length_s: float) -> float:
    """Rate sigma of the exponential window that has fallen to a level, 0.01 say, a time after the hit, 1/s.

    The window begins at the hit. With the length of a record for the time, the level is that a record after the hit;
    where the record ends, the pre-trigger time earlier, the window still is a little above it.

    Raises:
        ValueError: the level is not between 0 and 1, or the time not above 0.
    """
    if not 0.0 < real_number("end_level", end_level) <= 1.0:
        raise ValueError(f"end_level is {end_level!r}, expected above 0 and at most 1")
    if not real_number("length_s", length_s) > 0.0:
        raise ValueError(f"length_s is {length_s!r}, expected a number above 0")
    return math.log(1.0 / end_level) / length_s


def without_window_damping(eigenvalue: Number, decay_1_s: float) -> Number:
    """Eigenvalues of the machine from those found in responses behind an exponential window; exact.

    The transforms of f exp(-sigma t) and y exp(-sigma t) are those of f and y at s = j omega + sigma, so the estimate
    is H(j omega + sigma), and a pole lambda of H stands in it at lambda - sigma: lambda = found + sigma. In terms of
    modes: the damped frequency stays, the decay rate zeta omega_n loses sigma.

    Args:
        eigenvalue: found on the axis j omega, rad/s.
        decay_1_s: the window's sigma, `FrfSet.decay_1_s`.

    Source: Fladung, Rost, Mech. Systems and Signal Processing 11(1), 1997, 23-36.
    """
    return eigenvalue + decay_1_s


def force_window(samples: int, start: int, stop: int, taper: int) -> np.ndarray:
    """1 from start to stop, a half cosine down to 0 over the taper behind it, 0 elsewhere [samples]."""
    window = np.zeros(samples)
    window[start:stop] = 1.0
    fall = 0.5 * (1.0 + np.cos(np.pi * np.arange(1, taper + 1) / (taper + 1)))
    behind = min(taper, samples - stop)
    window[stop : stop + behind] = fall[:behind]
    return window
