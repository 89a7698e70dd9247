"""Positions, velocities and accelerations of a record without delay, by a low-pass filter or a Kalman smoother."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.io.validation import place
from jaxmb.measurement.motion.kalman import kalman_motion
from jaxmb.measurement.motion.record import Cutoff, MotionRecord, check_cutoff, edge, low_pass, rates


class MotionEstimate(NamedTuple):
    """Motion of the recorded coordinates at all samples."""

    position: Float[np.ndarray, "k c"]
    velocity: Float[np.ndarray, "k c"]
    acceleration: Float[np.ndarray, "k c"]
    first: int
    """Number of samples at the start within the filter's transient."""
    last: int
    """Number of such samples at the end."""


def low_passed_motion(record: MotionRecord, cutoff_hz: Cutoff) -> MotionEstimate:
    """Motion by a zero-phase low-pass filter: filtered positions, and their differences or filtered measured rates.

    Raises:
        ValueError: the record is too short for the cut-off, or the cut-off is not below half the sampling rate.
    """
    rate = record.rate_hz
    with place("cutoff_hz"):
        check_cutoff(cutoff_hz, rate, len(record.time_s))
    position = low_pass(record.position, rate, cutoff_hz)
    velocity, acceleration = rates(position, rate)
    for found, given in ((velocity, record.velocity), (acceleration, record.acceleration)):
        if given is not None:
            there = ~np.isnan(given).any(axis=0)
            found[:, there] = low_pass(given[:, there], rate, cutoff_hz)
    ends = edge(rate, cutoff_hz)
    return MotionEstimate(position, velocity, acceleration, ends, ends)


def delayed(motion: MotionEstimate, rate_hz: float, delay_s: float) -> MotionEstimate:
    """The motion at `delay_s` before each sample, by cubic splines; samples at the ends without it are excluded."""
    if delay_s == 0.0:
        return motion
    from scipy.interpolate import CubicSpline

    samples = np.arange(len(motion.position))
    parts = (
        CubicSpline(samples, part, axis=0)(samples - delay_s * rate_hz)
        for part in (motion.position, motion.velocity, motion.acceleration)
    )
    ends = int(np.ceil(abs(delay_s) * rate_hz))
    return MotionEstimate(*parts, first=motion.first + ends, last=motion.last + ends)


def smoothed_motions(
    record: MotionRecord,
    position_std: Float[np.ndarray, "c"] | float,
    velocity_std: Float[np.ndarray, "c"] | float | None,
    acceleration_std: Float[np.ndarray, "c"] | float | None,
    jerk_density: Float[np.ndarray, "c"] | float | None,
    draws: int,
) -> list[MotionEstimate]:
    """Motion by `kalman_motion` from all measurements, followed by motions with simulated sensor errors added.

    Each draw is used with both signs; the draws propagate errors of the motion to parameters identified from it.

    Raises:
        ValueError: a standard deviation is missing.
    """
    random = np.random.default_rng(0)
    measured = (record.position, record.velocity, record.acceleration)
    std = (position_std, velocity_std, acceleration_std)

    def smoothed(errors: list[np.ndarray | float], density: Any) -> tuple[MotionEstimate, np.ndarray]:
        position, velocity, acceleration = (
            None if part is None else part + error for part, error in zip(measured, errors, strict=True)
        )
        motion = kalman_motion(
            np.asarray(position),
            record.rate_hz,
            position_std,
            velocity=velocity,
            velocity_std=velocity_std,
            acceleration=acceleration,
            acceleration_std=acceleration_std,
            jerk_density=density,
        )
        ends = int(motion.settled.max())
        return MotionEstimate(motion.position, motion.velocity, motion.acceleration, ends, ends), motion.jerk_density

    first, density = smoothed([0.0, 0.0, 0.0], jerk_density)
    found = [first]
    for _ in range(draws):
        errors = [
            0.0 if part is None or size is None else size * random.normal(size=part.shape)
            for part, size in zip(measured, std, strict=True)
        ]
        found += [smoothed([sign * error for error in errors], density)[0] for sign in (1.0, -1.0)]
    return found
