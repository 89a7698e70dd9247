"""A motion of a machine with the torques of its drives, as it was recorded."""

import dataclasses
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

LEAST_SAMPLES = 20
LARGEST_ANGLE = 1e3
"""rad: more turns than any recording has."""
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

    @property
    def rate_hz(self) -> float:
        """Samples per second."""
        return (len(self.time_s) - 1) / float(self.time_s[-1] - self.time_s[0])


def check_record(record: MotionRecord) -> None:
    """Raise ValueError where a record cannot be one: time that does not ascend evenly, NaN, angles in degrees."""
    time, count = record.time_s, len(record.time_s)
    if count < LEAST_SAMPLES:
        raise ValueError(f"there are {count} samples, expected at least {LEAST_SAMPLES}")
    _check_finite("time_s", time)
    steps = np.diff(time)
    if np.any(steps <= 0.0):
        first = int(np.argmax(steps <= 0.0))
        raise ValueError(f"time_s goes from {time[first]:g} to {time[first + 1]:g} s at sample {first + 2}")
    even = (time[-1] - time[0]) / (count - 1)
    beside = np.abs(time - time[0] - even * np.arange(count))
    if beside.max() > UNEVEN * even * max(1.0, 1e-3 * count):
        worst = int(np.argmax(beside))
        raise ValueError(
            f"time_s is not even: sample {worst + 1} lies {beside[worst]:.3g} s beside steps of {even:.6g} s"
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
