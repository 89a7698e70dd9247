"""A motion of a machine with the torques of its drives, as it was recorded."""

import dataclasses
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.measurement.motion.signals import low_pass

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
