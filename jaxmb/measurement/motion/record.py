"""A motion of a machine with the torques of its drives, as it was recorded."""

import dataclasses
from typing import Literal, NamedTuple

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


Side = Literal["motor", "link"]
"""Side of a gear on which an angle was recorded."""
LEAST_SAMPLES = 20
LARGEST_ANGLE = 1e3
"""rad: more turns than any recording has."""
MOST_SAMPLES = 2_000_000
ALIAS = 0.4
"""Cut-off of the filter against aliasing, of the new sampling rate."""
BLURRED = 3
"""Samples beside a jump behind that filter, farther from which less than 3 % of the jump is missing."""
NEARLY = 0.1
"""By how much less a new sampling rate may be, of itself, for no samples to be left out."""
UNEVEN = 0.01
"""Of the time step, by which samples may lie beside an even grid."""


class Drives(NamedTuple):
    """Recordings at the motors of a machine, tau = N^T (gain x)."""

    names: tuple[str, ...]
    ratio: Float[np.ndarray, "d c"]
    """N: turns of each drive for one of each coordinate."""
    gain: Float[np.ndarray, "d"]
    """Nm for one unit of what was recorded."""
    signal: Float[np.ndarray, "k d"]
    """x."""

    @property
    def effort(self) -> Float[np.ndarray, "k c"]:
        """At the coordinates, Nm or N."""
        return (self.gain * self.signal) @ self.ratio


@dataclasses.dataclass(frozen=True, eq=False)
class MotionRecord:
    """Coordinates and efforts at even steps of time."""

    time_s: Float[np.ndarray, "k"]
    names: tuple[str, ...]
    """Of the coordinates."""
    position: Float[np.ndarray, "k c"]
    """rad or m."""
    effort: Float[np.ndarray, "k c"]
    """Nm or N at the coordinates; NaN in the column of one whose effort was not measured."""
    velocity: Float[np.ndarray, "k c"] | None = None
    """rad/s or m/s, where they were measured; NaN in columns that were not."""
    acceleration: Float[np.ndarray, "k c"] | None = None
    temperature: Float[np.ndarray, "k"] | None = None
    """Of the drives, where it was measured."""
    drives: Drives | None = None
    """Whose efforts these are, where they were recorded at motors."""
    blurred: int = 0
    """Samples beside a jump of an effort that resampling has smoothed."""

    @property
    def rate_hz(self) -> float:
        """Samples per second."""
        return (len(self.time_s) - 1) / float(self.time_s[-1] - self.time_s[0])


def resampled(record: MotionRecord, rate_hz: float) -> MotionRecord:
    """The record at even steps of time: angles by a cubic spline through their samples, all else by monotone cubics
    (PCHIP), which do not overshoot where friction changes its sign.

    Where that leaves out samples, all signals pass a zero-phase low-pass filter at `ALIAS` of the new rate before.

    Args:
        record: its time ascends, evenly or not.
        rate_hz: samples per second of the new record.

    Raises:
        ValueError: the record is too short for the new rate, or that makes too many samples.

    Source: Fritsch and Carlson 1980, "Monotone piecewise cubic interpolation".
    """
    finer = max(1, int(np.ceil(record.rate_hz / rate_hz - NEARLY)))
    span = float(record.time_s[-1] - record.time_s[0])
    count = int(np.floor(span * rate_hz * (1.0 + 1e-9))) + 1
    if not LEAST_SAMPLES <= count <= MOST_SAMPLES:
        raise ValueError(f"{rate_hz:g} Hz makes {count} samples, expected {LEAST_SAMPLES} to {MOST_SAMPLES}")
    from scipy.interpolate import CubicSpline, PchipInterpolator

    grid = np.minimum(np.arange((count - 1) * finer + 1) / (finer * rate_hz), span)

    def even(part: np.ndarray, spline: type = PchipInterpolator) -> np.ndarray:
        found = np.full((grid.size, *part.shape[1:]), np.nan)
        there = ~np.isnan(part).any(axis=0)
        found[..., there] = spline(record.time_s - record.time_s[0], part[..., there], axis=0)(grid)
        if finer > 1:
            found[..., there] = low_pass(found[..., there], finer * rate_hz, ALIAS * rate_hz)
        return found[::finer]

    drives = None if record.drives is None else record.drives._replace(signal=even(record.drives.signal))
    return MotionRecord(
        time_s=record.time_s[0] + grid[::finer],
        names=record.names,
        position=even(record.position, CubicSpline),
        effort=even(record.effort) if drives is None else drives.effort,
        velocity=None if record.velocity is None else even(record.velocity),
        acceleration=None if record.acceleration is None else even(record.acceleration),
        temperature=None if record.temperature is None else even(record.temperature[:, None])[:, 0],
        drives=drives,
        blurred=BLURRED if finer > 1 else 1,
    )


def check_record(record: MotionRecord, even: bool = True) -> None:
    """Raise ValueError where a record cannot be one: time that does not ascend, NaN, angles in degrees.

    Args:
        record: a motion.
        even: whether its steps of time have to be even.
    """
    time, count = record.time_s, len(record.time_s)
    if count < LEAST_SAMPLES:
        raise ValueError(f"there are {count} samples, expected at least {LEAST_SAMPLES}")
    _check_finite("time_s", time)
    steps = np.diff(time)
    if np.any(steps <= 0.0):
        first = int(np.argmax(steps <= 0.0))
        raise ValueError(f"time_s goes from {time[first]:g} to {time[first + 1]:g} s at sample {first + 2}")
    step = 1.0 / record.rate_hz
    beside = np.abs(time - time[0] - step * np.arange(count))
    if even and beside.max() > UNEVEN * step * max(1.0, 1e-3 * count):
        worst = int(np.argmax(beside))
        raise ValueError(
            f"time_s is not even: sample {worst + 1} lies {beside[worst]:.3g} s beside steps of {step:.6g} s, expected"
            f" even steps, or resample_hz = {record.rate_hz:.3g} of the test"
        )
    for name, column in zip(record.names, record.position.T, strict=True):
        _check_finite(name, column)
        largest = float(np.abs(column).max())
        if largest > LARGEST_ANGLE:
            raise ValueError(f"{name} goes to {largest:g}, expected rad or m: is it in degrees, or counts?")
    for what, columns in (("velocity", record.velocity), ("acceleration", record.acceleration)):
        for name, column in zip(record.names, () if columns is None else columns.T, strict=columns is not None):
            if not np.isnan(column).all():
                _check_finite(f"{name}.{what}", column)
    if record.temperature is not None:
        _check_finite("temperature", record.temperature)
    measured = ~np.isnan(record.effort).all(axis=0)
    if not measured.any():
        raise ValueError("no torque was measured, expected a column such as " + f"'{record.names[0]}.torque'")
    for name, column in zip(np.array(record.names)[measured], record.effort.T[measured], strict=True):
        _check_finite(f"{name}.torque", column)


def _check_finite(name: str, values: np.ndarray) -> None:
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(f"{name} is {values[wrong[0]]} at sample {wrong[0] + 1}, expected finite numbers")
