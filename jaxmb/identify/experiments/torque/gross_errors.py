"""Gross errors of torque tests: residuals that are no noise.

The noise of torques is usually estimated from the residual, so that chi-square is about 1 in any case. Gross errors are
therefore found by comparing the residual at each joint with the torque itself, with the recorded torque above the band
of the motion, which bounds the noise (`noise_bound`), and with its prediction from other parts of the record.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.io.validation import percentage

if TYPE_CHECKING:
    from jaxmb.identify.experiments.torque.torque_test import TorqueTest

OF_TORQUE, OF_VARIATION, LEAST = 0.2, 1.0 / 3.0, 0.05
"""Residual over the root mean square and over the standard deviation of a torque above which it is large; below the
last it is small for any torque. Recorded robots with unmodelled friction have 0.03 to 0.11."""
OF_CHECK = 0.5, 1.0
"""The first two for a predicted torque that was not fitted."""
OF_NOISE, FAR = 1.5, 4.0
"""Residual over the noise bound above which a large residual, or one above `LEAST`, is not noise; the second also over
the noise stated or estimated."""
PREDICTED = 0.25
"""Part of the residual's variance predicted by the rest of the record above which it is not noise."""
BLOCKS = 6
RIDGE = 0.3
"""Ridge parameter for standardised columns."""
DELAYS = (1, 2, 5, 10, 20)
"""Candidate delays, in steps of the rows: torques jump with the sign of a velocity, so a linearization is
insufficient."""
EXPLAINS, CHANCE = 0.5, 20.0
"""Part of a residual, and square of Student's t, above which a single number explains it."""
SMALL_FACTOR, SMALL_CHANGE = 0.15, 0.03
"""Largest logarithm of a factor on a torque, and largest change of a torque over its standard deviation, that are not
gross errors."""


def unexplained_efforts(
    test: "TorqueTest",
    predicted: Float[np.ndarray, "r"],
    time_s: Float[np.ndarray, "r"],
    bound: Float[np.ndarray, "c"],
    names: Sequence[str],
    jacobian: Float[np.ndarray, "r d"] | None,
) -> tuple[list[str], str]:
    """Texts on joints with a gross error, a residual too large or too predictable for noise, by decreasing residual;
    and on the single number that explains it, empty where there is none.

    Args:
        test: measured efforts.
        predicted: by the identified machine.
        time_s: of each row.
        bound: from `noise_bound`.
        names: of the coordinates whose effort was measured.
        jacobian: of the residual by the free parameters; None for a test that was not fitted.
    """
    effort, coordinate = np.asarray(test.effort), np.asarray(test.coordinate)
    residual = effort - predicted
    found = dict[int, float]()
    for i in range(len(names)):
        own = coordinate == i
        part, std, size = residual[own], float(np.std(effort[own])), float(np.sqrt(np.mean(effort[own] ** 2)))
        if test.is_robust:
            usual = 3.0 * 1.4826 * float(np.median(np.abs(part)))
            part = np.clip(part, -usual, usual)
        missed = float(np.sqrt(np.mean(part**2)))
        if not (std > 0.0 and missed > LEAST * std):
            continue
        of_size, of_spread = (OF_TORQUE, OF_VARIATION) if jacobian is not None else OF_CHECK
        large = missed > of_size * size or (missed > of_spread * std and missed > LEAST * size)
        own_std = float(np.sqrt(np.mean(np.asarray(test.std)[own] ** 2)))
        noise = missed <= OF_NOISE * bound[i] and missed <= FAR * own_std
        if (jacobian is not None and missed > FAR * bound[i]) or (
            large and not (noise and _predicted_share(part, np.asarray(test.regressor)[own], time_s[own]) < PREDICTED)
        ):
            found[i] = missed / std
    cause, joint = _single_number(test, predicted, time_s, names, jacobian)
    if cause and joint is not None and joint not in found:
        own = coordinate == joint
        found[joint] = float(np.sqrt(np.mean(residual[own] ** 2))) / float(np.std(effort[own]))
    order = sorted(found, key=lambda i: -found[i])
    return [f"{names[i]} (residual {percentage(100.0 * found[i])} % of its standard deviation)" for i in order], cause


def _predicted_share(residual: np.ndarray, columns: np.ndarray, time_s: np.ndarray) -> float:
    """Part of the variance of a residual that ridge regression on the torque's columns predicts for each block of the
    record from the others. It is 0 for noise, even for autocorrelated noise."""
    columns = columns[:, np.ptp(columns, axis=0) > 0.0]
    columns = (columns - columns.mean(axis=0)) / columns.std(axis=0)
    block = np.minimum(BLOCKS * (time_s - time_s[0]) / max(np.ptp(time_s), 1e-300), BLOCKS - 1).astype(int)
    predicted = np.zeros(residual.size)
    for k in range(BLOCKS):
        rest, mine = block != k, block == k
        a, mean = columns[rest], float(residual[rest].mean())
        normal = a.T @ a + RIDGE * rest.sum() * np.eye(a.shape[1])
        predicted[mine] = mean + columns[mine] @ np.linalg.solve(normal, a.T @ (residual[rest] - mean))
    return 1.0 - float(np.sum((residual - predicted) ** 2) / np.sum(residual**2))


def _single_number(
    test: "TorqueTest",
    predicted: np.ndarray,
    time_s: np.ndarray,
    names: Sequence[str],
    jacobian: np.ndarray | None,
) -> tuple[str, int | None]:
    """Text on the delay of all efforts, or the factor on the effort of one joint, that explains most of the residual,
    and the joint; empty where none explains `EXPLAINS` of it beside the free parameters."""
    effort, coordinate, std = (np.asarray(x) for x in (test.effort, test.coordinate, test.std))
    lengths, residual = test.noise.correlation_lengths, (effort - predicted) / std
    if test.is_robust:
        return "", None  # outliers could mimic any of these
    svd = scaled_svd(np.zeros((residual.size, 0)) if jacobian is None else jacobian, RANK_TOLERANCE)
    residual = svd.beside(residual)
    free = (1.0 - np.sum(svd.range(residual.size) ** 2, axis=1)) / lengths
    best, text, joint = EXPLAINS, "", None
    joints = [np.flatnonzero(coordinate == i) for i in range(len(names))]
    variation = np.array([np.std(effort[own]) or np.inf for own in joints])[coordinate]
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
        beside = svd.beside(column / std)
        size = float(beside @ beside)
        if not size > 1e-12 * float(np.sum((column / std) ** 2)):
            continue
        value = float(beside @ residual) / size
        after = residual - value * beside
        for i, own in enumerate(joints):
            before = float(residual[own] @ residual[own])
            share = 1.0 - float(after[own] @ after[own]) / before if before > 0.0 and of in (None, i) else 0.0
            if share <= best or share * float(np.sum(free[own])) < CHANCE * (1.0 - share):
                continue
            change = float(np.sqrt(np.mean((value * column[own] / variation[own]) ** 2)))
            if any(np.sqrt(np.mean((after * std / variation)[each] ** 2)) > OF_VARIATION for each in joints):
                continue
            if of is None and change > SMALL_CHANGE:
                best, joint, delay_s = share, i, value * delay
                text = f"torques that are {1e3 * abs(delay_s):.2g} ms {'late' if delay_s > 0.0 else 'early'}"
                text += f' ("delay.{test.name}" in [free])'
            if of is not None and abs(np.log(max(1.0 + value, 1e-9))) > SMALL_FACTOR and change > SMALL_CHANGE:
                best, joint, text = share, i, f"a factor of {1.0 / (1.0 + value):.3g} on the torque of {names[i]}"
    return (f"{text} would explain {100.0 * best:.0f} % of the residual at {names[joint or 0]}" if text else ""), joint
