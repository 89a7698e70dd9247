"""Torques that the identified machine does not explain, whatever their noise: gross errors of a record or its machine.

The noise of torques is usually estimated from the residual, so that a chi-square of about 1 says nothing. Here the
residual at each joint is compared with the torque itself, with the recorded torque above the band of the motion, which
bounds the noise, and with what other parts of the record predict of it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.torque.torque_test import TorqueTest

MOTION = 0.99
"""Part of the variance of each velocity within the band of the motion."""
HARMONICS = 4.0
"""Above so many times the band torques hold little of the motion: rigid bodies double frequencies, friction is odd."""
OF_TORQUE, OF_VARIATION, LEAST = 0.2, 1.0 / 3.0, 0.05
"""Residual over the root mean square, over the standard deviation of a torque, from which on it is a large part; below
the last it is a small part of any torque. Recorded robots with friction that is not modelled have 0.03 to 0.11."""
OF_CHECK = 0.5, 1.0
"""The first two for a torque that is predicted and was not fitted."""
RISE = 6.0
"""Widths of the band below that from which noise is taken, by which there may be more of it: a spectrum that rises as
1 / f^2 over two octaves, as that of first order with a correlation of 0.95 between neighbours."""
OF_NOISE, FAR = 1.5, 4.0
"""Residual over the bound of the noise, beyond which a large one, and one of `LEAST`, is no noise; the second over the
noise as stated or as a fit of all parameters leaves it, beyond which a large one is none."""
PREDICTED = 0.25
"""Part of the residual's variance that the rest of the record predicts, from which on it is no noise."""
BLOCKS = 6
RIDGE = 0.3
"""Of standardised columns."""
DELAYS = (1, 2, 5, 10, 20)
"""Delays that are tried, in steps of the rows: torques jump with the sign of a velocity, so one slope is not enough."""
EXPLAINS, CHANCE = 0.5, 20.0
"""Part of a residual, and the square of Student's t, from which on a single number explains it."""
SMALL_FACTOR, SMALL_CHANGE = 0.15, 0.03
"""Logarithm of a factor on a torque, and change of a torque over its standard deviation, that is no gross error."""


class Unexplained(NamedTuple):
    """A gross error of a torque test."""

    joints: tuple[str, ...]
    """Whose torque is not explained; those with the largest residual first."""
    percent: tuple[float, ...]
    """Residual of each over the standard deviation of its torque."""
    cause: str
    """The single number that explains the residual, in words; empty where there is none."""


def noise_bound(
    effort: Float[np.ndarray, "k c"], velocity: Float[np.ndarray, "k m"], rate_hz: float, bandwidth_hz: float
) -> Float[np.ndarray, "c"]:
    """Upper bound of the standard deviation of the noise of efforts behind a filter, Nm or N [c].

    The largest mean power spectral density of any octave of the recorded efforts above the band of the motion, over the
    whole bandwidth, and as much more below as `RISE` says. A record that was filtered before it was written is judged
    by the octave next to the motion.

    Args:
        effort: as recorded, at the samples that are used.
        velocity: of all recorded coordinates, there.
        rate_hz: samples per second.
        bandwidth_hz: of the filter of the efforts.
    """
    window = np.hanning(len(effort) + 2)[1:-1, None]
    frequency = np.fft.rfftfreq(len(effort), 1.0 / rate_hz)
    speeds, efforts = (
        np.abs(np.fft.rfft(window * (part - part.mean(axis=0)), axis=0)) ** 2 for part in (velocity, effort)
    )
    share = np.cumsum(np.sum(speeds, axis=1))
    within = float(frequency[int(np.searchsorted(share, MOTION * share[-1]))])
    first, density = np.clip(HARMONICS * within, frequency[1], rate_hz / 4.0), np.zeros(effort.shape[1])
    low = first
    while low < rate_hz / 2.0:
        octave = (frequency >= low) & (frequency < 2.0 * low)
        if octave.any():
            density = np.maximum(density, efforts[octave].mean(axis=0))
        low *= 2.0
    width = min(bandwidth_hz, rate_hz / 2.0)
    return np.sqrt(2.0 * density * (width + RISE * min(first, width)) / (rate_hz * np.sum(window**2)))


def unexplained(
    test: TorqueTest,
    predicted: Float[np.ndarray, "r"],
    time_s: Float[np.ndarray, "r"],
    bound: Float[np.ndarray, "c"],
    names: Sequence[str],
    jacobian: Float[np.ndarray, "r d"] | None,
) -> Unexplained | None:
    """What of a torque test the prediction does not explain and no noise does; None where there is nothing.

    Args:
        test: measured efforts.
        predicted: by the identified machine.
        time_s: of each row.
        bound: from `noise_bound`.
        names: of the coordinates whose effort was measured.
        jacobian: of the residual by the free parameters; None of a test that was not fitted.
    """
    effort, coordinate = np.asarray(test.effort), np.asarray(test.coordinate)
    left = effort - predicted
    found = dict[int, float]()
    for i in range(len(names)):
        own = coordinate == i
        part, spread, size = left[own], float(np.std(effort[own])), float(np.sqrt(np.mean(effort[own] ** 2)))
        if test.is_robust:
            usual = 3.0 * 1.4826 * float(np.median(np.abs(part)))
            part = np.clip(part, -usual, usual)
        missed = float(np.sqrt(np.mean(part**2)))
        if not (spread > 0.0 and missed > LEAST * spread):
            continue
        of_size, of_spread = (OF_TORQUE, OF_VARIATION) if jacobian is not None else OF_CHECK
        large = missed > of_size * size or (missed > of_spread * spread and missed > LEAST * size)
        own_std = float(np.sqrt(np.mean(np.asarray(test.std)[own] ** 2)))
        noise = missed <= OF_NOISE * bound[i] and missed <= FAR * own_std
        if (jacobian is not None and missed > FAR * bound[i]) or (
            large and not (noise and _predicted_share(part, np.asarray(test.regressor)[own], time_s[own]) < PREDICTED)
        ):
            found[i] = missed / spread
    cause, joint = _single_number(test, predicted, time_s, names, jacobian)
    if cause and joint is not None and joint not in found:
        own = coordinate == joint
        found[joint] = float(np.sqrt(np.mean(left[own] ** 2))) / float(np.std(effort[own]))
    if not (found or cause):
        return None
    order = sorted(found, key=lambda i: -found[i])
    return Unexplained(tuple(names[i] for i in order), tuple(100.0 * found[i] for i in order), cause)


def _predicted_share(left: np.ndarray, columns: np.ndarray, time_s: np.ndarray) -> float:
    """Part of the variance of a residual that a ridge regression on the torque's own columns predicts of each block of
    the record from the others. Noise has no part in it, however neighbouring samples are correlated."""
    columns = columns[:, np.ptp(columns, axis=0) > 0.0]
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    block = np.minimum(BLOCKS * (time_s - time_s[0]) / max(np.ptp(time_s), 1e-300), BLOCKS - 1).astype(int)
    predicted = np.zeros(left.size)
    for k in range(BLOCKS):
        rest, mine = block != k, block == k
        a, mean = columns[rest], float(left[rest].mean())
        normal = a.T @ a + RIDGE * rest.sum() * np.eye(a.shape[1])
        predicted[mine] = mean + columns[mine] @ np.linalg.solve(normal, a.T @ (left[rest] - mean))
    return 1.0 - float(np.sum((left - predicted) ** 2) / np.sum(left**2))


def _single_number(
    test: TorqueTest,
    predicted: np.ndarray,
    time_s: np.ndarray,
    names: Sequence[str],
    jacobian: np.ndarray | None,
) -> tuple[str, int | None]:
    """The delay of all efforts, or the factor on the effort of one joint, that explains most of the residual, with the
    joint; empty where none explains `EXPLAINS` of it beside the free parameters."""
    effort, coordinate, std = (np.asarray(x) for x in (test.effort, test.coordinate, test.std))
    alike, left = test.noise.correlation.lengths, (effort - predicted) / std
    if test.is_robust:
        return "", None  # outliers may be anything
    basis = np.zeros((left.size, 0))
    if jacobian is not None:
        scale = np.linalg.norm(jacobian, axis=0)
        u, s, _ = np.linalg.svd(jacobian / np.where(scale > 0.0, scale, 1.0), full_matrices=False)
        basis = u[:, s > 1e-10 * max(float(s[0]), np.finfo(float).tiny)]
    left = left - basis @ (basis.T @ left)
    free = (1.0 - np.sum(basis**2, axis=1)) / alike
    best, text, joint = EXPLAINS, "", None
    variation = np.ones(effort.size)
    joints = [np.flatnonzero(coordinate == i) for i in range(len(names))]
    for own in joints:
        variation[own] = np.std(effort[own]) or np.inf
    columns: list[tuple[int | None, float, np.ndarray]] = [
        (i, 0.0, np.where(coordinate == i, predicted, 0.0)) for i in range(len(names))
    ]
    step = float(np.median(np.diff(np.unique(time_s)))) if np.ptp(time_s) > 0.0 else 0.0
    for delay in [sign * k * step for k in DELAYS for sign in (1, -1)]:
        later = np.empty(effort.size)
        for own in joints:
            later[own] = np.interp(time_s[own] - delay, time_s[own], predicted[own])
        columns.append((None, delay, later - predicted))
    for of, delay, column in columns:
        beside = column / std - basis @ (basis.T @ (column / std))
        size = float(beside @ beside)
        if not size > 1e-12 * float(np.sum((column / std) ** 2)):
            continue
        value = float(beside @ left) / size
        after = left - value * beside
        for i, own in enumerate(joints):
            before = float(left[own] @ left[own])
            share = 1.0 - float(after[own] @ after[own]) / before if before > 0.0 and of in (None, i) else 0.0
            if share <= best or share * float(np.sum(free[own])) < CHANCE * (1.0 - share):
                continue
            change = float(np.sqrt(np.mean((value * column[own] / variation[own]) ** 2)))
            if any(np.sqrt(np.mean((after * std / variation)[each] ** 2)) > OF_VARIATION for each in joints):
                continue
            if of is None and change > SMALL_CHANGE:
                best, joint, late = share, i, value * delay
                text = f"torques that are {1e3 * abs(late):.2g} ms {'late' if late > 0.0 else 'early'}"
                text += f' ("delay.{test.name}" in [free])'
            if of is not None and abs(np.log(max(1.0 + value, 1e-9))) > SMALL_FACTOR and change > SMALL_CHANGE:
                best, joint, text = share, i, f"a factor of {1.0 + value:.3g} on the torque of {names[i]}"
    return (f"{text} would explain {100.0 * best:.0f} % of the residual at {names[joint or 0]}" if text else ""), joint
