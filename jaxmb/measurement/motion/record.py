"""Recorded motion of a machine with the torques of its drives; filtering, differentiation and resampling."""

import dataclasses
import types
from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.measurement.records.spectra import check_finite

Cutoff = float | tuple[float, float]
"""Cut-off of a low-pass filter, Hz: frequency of gain 1/2, or end of the pass band and start of the stop band."""
ORDER = 4
"""Default order of the Butterworth filter, applied forwards and backwards."""
PASS_DB, STOP_DB = 1.0, 60.0
"""Attenuation of both passes: largest in the pass band, least in the stop band."""
MOST_ORDER = 60
"""Largest order of the filter."""
EDGE = 3.0
"""Periods of the cut-off excluded at either end of a record filtered with `ORDER`: the transient has decayed to a
thousandth there. It is scaled with the slowest pole for higher orders."""
LEAST_RATE_HZ = 20.0
"""Usual lowest sampling rate of controllers, below which the unit of time is in doubt."""
SPACING = 1.1
"""Spacing of decimated samples in half periods of the cut-off: filtered noise then correlates by a few per cent."""


def low_pass(signal: Float[np.ndarray, "k ..."], rate_hz: float, cutoff_hz: Cutoff) -> Float[np.ndarray, "k ..."]:
    """The signal after a zero-phase low-pass filter: a Butterworth filter applied forwards and backwards.

    Args:
        signal: samples along the first axis.
        rate_hz: samples per second.
        cutoff_hz: frequency of gain 1/2; or pass and stop band, which determine the order.

    Raises:
        ValueError: the cut-off is not below half the sampling rate, or the record is too short for it.

    Source: Gustafsson 1996, "Determining the initial states in forward-backward filtering".
    """
    least = 2 * edge(rate_hz, cutoff_hz) + 10
    if len(signal) < least:
        raise ValueError(
            f"there are {len(signal)} samples, too few for a cut-off at {butterworth(cutoff_hz, rate_hz)[1]:g} Hz:"
            f" expected at least {least}, or a higher cut-off"
        )
    from scipy.signal import butter, sosfiltfilt  # imported here: it takes half a second

    order, corner_hz = butterworth(cutoff_hz, rate_hz)
    sections = butter(order, corner_hz, fs=rate_hz, output="sos")
    return np.asarray(sosfiltfilt(sections, signal, axis=0))


def butterworth(cutoff_hz: Cutoff, rate_hz: float) -> tuple[int, float]:
    """Order of a Butterworth filter and its corner frequency, of gain 1 / sqrt(2) and one half after both passes.

    It is the least order with at most `PASS_DB` in the pass band and at least `STOP_DB` in the stop band, both passes.

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
            f" further apart, for an order of at most {MOST_ORDER}"
        )
    return int(order), float(corner_hz)


def edge(rate_hz: float, cutoff_hz: Cutoff) -> int:
    """Number of samples at either end excluded for the filter's transient."""
    order, corner_hz = butterworth(cutoff_hz, rate_hz)
    slower = np.sin(0.5 * np.pi / ORDER) / np.sin(0.5 * np.pi / order)
    return int(np.ceil(EDGE * slower * rate_hz / corner_hz))


def decimation(rate_hz: float, cutoff_hz: Cutoff) -> int:
    """Decimation factor at which a filtered signal retains its information."""
    return max(1, int(SPACING * rate_hz / (2.0 * butterworth(cutoff_hz, rate_hz)[1])))


def rates(position: Float[np.ndarray, "k ..."], rate_hz: float) -> tuple[np.ndarray, np.ndarray]:
    """Velocity and acceleration of a position by five-point central differences, constant over the two end samples.

    Three-point differences underestimate velocity at 1 Hz and 100 samples per second by 7e-4 and acceleration by 3e-4,
    which biases gains and inertias; the errors of five points are 5e-7 and 2e-7.
    """
    velocity, acceleration = np.empty_like(position), np.empty_like(position)
    far, near, here = (position[4:], position[:-4]), (position[3:-1], position[1:-3]), position[2:-2]
    velocity[2:-2] = rate_hz / 12.0 * (8.0 * (near[0] - near[1]) - (far[0] - far[1]))
    acceleration[2:-2] = rate_hz**2 / 12.0 * (16.0 * (near[0] + near[1]) - (far[0] + far[1]) - 30.0 * here)
    for part in (velocity, acceleration):
        part[:2], part[-2:] = part[2], part[-3]
    return velocity, acceleration


Side = Literal["motor", "link"]
"""Side of a gear at which an angle was recorded."""
LEAST_SAMPLES = 20
LARGEST_ANGLE = 1e3
"""Largest plausible angle of a joint, rad."""
MOST_SAMPLES = 2_000_000
ALIAS = 0.4
"""Cut-off of the anti-aliasing filter relative to the new sampling rate."""
BLURRED = 3
"""Samples on either side of a step affected by that filter: beyond them the error is less than 3 % of the step."""
NEARLY = 0.1
"""Relative reduction of the sampling rate up to which no decimation takes place."""
UNEVEN = 0.01
"""Largest deviation of samples from an even grid, relative to the time step; times as large per 1000 samples."""
GAP = 1.5
"""Largest time step over the mean one: a missing sample among many hardly leaves that grid."""


PARTS = ("velocity", "acceleration", "torque")
"""Endings of the column names of signals beside positions."""
TEMPERATURE = "temperature"
"""Column name of the temperature, common to the machine."""


class Drives(NamedTuple):
    """Recordings at the motors of a machine, tau = N^T (gain x)."""

    names: tuple[str, ...]
    ratio: Float[np.ndarray, "d c"]
    """N: rotation of each drive per unit of each coordinate."""
    gain: Float[np.ndarray, "d"]
    """Nm per unit of the recorded signal."""
    signal: Float[np.ndarray, "k d"]
    """x."""

    @property
    def effort(self) -> Float[np.ndarray, "k c"]:
        """Joint torques or forces, Nm or N."""
        return (self.gain * self.signal) @ self.ratio


@dataclasses.dataclass(frozen=True, eq=False)
class MotionRecord:
    """Coordinates and joint torques over time."""

    time_s: Float[np.ndarray, "k"]
    names: tuple[str, ...]
    """Names of the coordinates."""
    position: Float[np.ndarray, "k c"]
    """rad or m."""
    effort: Float[np.ndarray, "k c"]
    """Joint torques or forces, Nm or N; NaN in columns that were not measured."""
    velocity: Float[np.ndarray, "k c"] | None = None
    """rad/s or m/s, where measured; NaN in other columns."""
    acceleration: Float[np.ndarray, "k c"] | None = None
    temperature: Float[np.ndarray, "k"] | None = None
    """Temperature of the drives, where measured."""
    drives: Drives | None = None
    """Drives from whose signals the torques were computed, where recorded at motors."""
    blurred: int = 0
    """Samples on either side of a torque step smoothed by resampling."""

    @property
    def rate_hz(self) -> float:
        """Samples per second."""
        return (len(self.time_s) - 1) / float(self.time_s[-1] - self.time_s[0])

    @property
    def columns(self) -> dict[str, np.ndarray]:
        """The measured signals by the column names of `read_motion`."""
        columns = {"time_s": self.time_s} | dict(zip(self.names, self.position.T, strict=True))
        for what, values in zip(PARTS, (self.velocity, self.acceleration, self.effort), strict=True):
            for name, column in zip(self.names, () if values is None else values.T, strict=values is not None):
                if not np.isnan(column).all():
                    columns[f"{name}.{what}"] = column
        return columns | ({} if self.temperature is None else {TEMPERATURE: self.temperature})

    @property
    def doubtful_rate(self) -> str:
        """Doubt about the unit of time at a sampling rate at which controllers do not record; empty for others."""
        span = float(self.time_s[-1] - self.time_s[0])
        doubt = f"{self.rate_hz:.3g} samples per second over {span:.3g} s: is time_s in ms?"
        return doubt if self.rate_hz < LEAST_RATE_HZ else ""


def resampled(record: MotionRecord, rate_hz: float) -> MotionRecord:
    """The record at even time steps: angles by cubic splines, other signals by monotone cubics (PCHIP).

    Monotone cubics do not overshoot at sign changes of friction. For decimation, all signals first pass a zero-phase
    low-pass filter at `ALIAS` of the new rate.

    Args:
        record: with ascending time, evenly sampled or not.
        rate_hz: samples per second of the new record.

    Raises:
        ValueError: the new rate gives too few or too many samples.

    Source: Fritsch and Carlson 1980, "Monotone piecewise cubic interpolation".
    """
    finer = max(1, int(np.ceil(record.rate_hz / rate_hz - NEARLY)))
    span = float(record.time_s[-1] - record.time_s[0])
    count = int(np.floor(span * rate_hz * (1.0 + 1e-9))) + 1
    if not LEAST_SAMPLES <= count <= MOST_SAMPLES:
        raise ValueError(f"{rate_hz:g} Hz gives {count} samples, expected {LEAST_SAMPLES} to {MOST_SAMPLES}")
    from scipy.interpolate import CubicSpline, PchipInterpolator

    grid = np.minimum(np.arange((count - 1) * finer + 1) / (finer * rate_hz), span)

    def even(part: np.ndarray, spline: type = PchipInterpolator) -> np.ndarray:
        found = np.full((grid.size, *part.shape[1:]), np.nan)
        given = ~np.isnan(part).any(axis=0)
        found[..., given] = spline(record.time_s - record.time_s[0], part[..., given], axis=0)(grid)
        if finer > 1:
            found[..., given] = low_pass(found[..., given], finer * rate_hz, ALIAS * rate_hz)
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


def check_record(
    record: MotionRecord, even: bool = True, gear_ratios: Mapping[str, float] = types.MappingProxyType({})
) -> None:
    """Raise ValueError where a record is invalid: time that does not ascend, NaN, angles in degrees.

    Args:
        record: motion to check.
        even: whether the time steps have to be even.
        gear_ratios: of motor shafts by name, whose angles are larger than those of joints by the ratio.
    """
    time, count = record.time_s, len(record.time_s)
    if count < LEAST_SAMPLES:
        raise ValueError(f"there are {count} samples, expected at least {LEAST_SAMPLES}")
    for name, column in record.columns.items():
        check_finite(name, column)
    steps = np.diff(time)
    if np.any(steps <= 0.0):
        first = int(np.argmax(steps <= 0.0))
        raise ValueError(
            f"time_s goes from {time[first]:g} to {time[first + 1]:g} s at sample {first + 2}, expected increasing"
            " times"
        )
    step = 1.0 / record.rate_hz
    deviation = np.abs(time - time[0] - step * np.arange(count))
    if even and (deviation.max() > UNEVEN * step * max(1.0, 1e-3 * count) or steps.max() > GAP * step):
        worst = int(np.argmax(deviation))
        raise ValueError(
            f"time_s is not even: sample {worst + 1} is {deviation[worst]:.3g} s off steps of {step:.6g} s, expected"
            f" even steps, or resample_hz = {record.rate_hz:.3g} of the test"
        )
    for name, column in zip(record.names, record.position.T, strict=True):
        largest = float(np.abs(column).max())
        if largest > LARGEST_ANGLE * max(1.0, abs(gear_ratios.get(name, 1.0))):
            raise ValueError(f"{name} goes to {largest:g}, expected rad or m: is it in degrees, or counts?")
    if np.isnan(record.effort).all():
        raise ValueError(f"no torque was measured, expected a column such as '{record.names[0]}.torque'")
