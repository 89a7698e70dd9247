"""What a record tells of positions, rates and accelerations: without delay from the whole, or causal."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.io.validation import place
from jaxmb.measurement.motion.kalman import kalman_motion
from jaxmb.measurement.motion.record import MotionRecord
from jaxmb.measurement.motion.signals import Cutoff, check_cutoff, edge, low_pass, rates


class MotionEstimate(NamedTuple):
    """Motion of the recorded coordinates at all samples."""

    position: Float[np.ndarray, "k c"]
    velocity: Float[np.ndarray, "k c"]
    acceleration: Float[np.ndarray, "k c"]
    first: int
    """Samples at the start in which a filter settles."""
    last: int
    """Samples at the end, as well."""


def low_passed_motion(record: MotionRecord, cutoff_hz: Cutoff) -> MotionEstimate:
    """Positions behind a zero-phase low-pass filter and their differences; rates that were measured behind the filter.

    Raises:
        ValueError: the record is too short for the cut-off, or that is not below half the sampling rate.
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
    """The motion as it was so much before each sample, by cubic splines; samples of which it is not known are left out
    at the ends."""
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


def causal_motion(
    record: MotionRecord,
    position_std: Float[np.ndarray, "c"],
    velocity_std: Float[np.ndarray, "c"] | None,
    acceleration_std: Float[np.ndarray, "c"] | None,
    jerk_density: Float[np.ndarray, "c"] | None,
) -> MotionEstimate:
    """Motion by `kalman_motion` of all that was measured.

    Raises:
        ValueError: a deviation is missing.
    """
    found = kalman_motion(
        record.position,
        record.rate_hz,
        position_std,
        velocity=record.velocity,
        velocity_std=velocity_std,
        acceleration=record.acceleration,
        acceleration_std=acceleration_std,
        jerk_density=jerk_density,
    )
    return MotionEstimate(found.position, found.velocity, found.acceleration, int(found.settled.max()), 0)
