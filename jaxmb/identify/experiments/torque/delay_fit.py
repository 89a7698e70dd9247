"""Delay of the torques of a test against its angles: a first fit, and the column of the study's own step about it."""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.torque.prepared import Prepared, least_squares
from jaxmb.measurement.motion.signals import rates

DELAY = "delay"
"""Of the names of free delays: "delay.TEST"."""
SLOPE_REACH = 2
"""Samples beside a jump on which the slope depends."""
ROUNDS = 20
SETTLED = 1e-4
"""Of a sample: a step of the delay at which the first fit ends."""
ROUGH = 0.1
"""The same where steps do not get smaller: with noise, samples that pass `least_speed` differ from delay to delay."""
LONGEST = 5.0
"""Samples by which one step may change a delay."""


def first_delay(equations: Callable[[float], Prepared], rate_hz: float, name: str) -> tuple[float, Prepared]:
    """Delay, s, with which a fit of all parameters explains the efforts best, and the equations at it.

    effort(t) = (Y p)(t - d) is fitted by steps of Gauss and Newton: the motion is delayed, which leaves the noise of
    the efforts as it is.

    Args:
        equations: of the motion as it was so many seconds before, with its samples.
        rate_hz: samples per second.
        name: of the delay, for messages.

    Raises:
        ValueError: the steps do not converge.
    """
    delay_s, before = 0.0, np.inf
    for _ in range(ROUNDS):
        rows = equations(delay_s)
        matrix = np.concatenate([rows.regressor, delay_column(rows, rate_hz)[:, None]], axis=1)
        right = rows.effort - rows.constant
        weight = np.ones(right.size)
        for _ in range(2):  # by what the fit before misses at each coordinate
            found, _ = least_squares(matrix * weight[:, None], right * weight)
            left = right - matrix @ found
            size = np.sqrt(np.bincount(rows.coordinate, left**2) / np.bincount(rows.coordinate))
            weight = 1.0 / np.maximum(size, 1e-9 * np.abs(right).max())[rows.coordinate]
        step = abs(found[-1]) * rate_hz
        if step <= (ROUGH if step > 0.5 * before else SETTLED):
            return delay_s, rows
        before = step
        delay_s += float(np.clip(found[-1], -LONGEST / rate_hz, LONGEST / rate_hz))
    raise ValueError(f"{name} still changes after {ROUNDS} steps, from {delay_s:.3g} s by {found[-1]:.3g} s")


def delay_column(rows: Prepared, rate_hz: float) -> Float[np.ndarray, "r"]:
    """Derivative of the predicted efforts by their delay, -d(Y p)/dt, p those of a fit of all parameters."""
    samples = rows.samples
    if samples is None:
        raise ValueError("rows have no samples, expected those of `prepared` with keep_samples")
    values, _ = least_squares(rows.regressor, rows.effort - rows.constant)
    return -samples.kept(rates(samples.columns @ values + samples.constant, rate_hz)[0])
