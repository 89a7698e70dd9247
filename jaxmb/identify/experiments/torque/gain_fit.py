"""Free drive gains and delays of torque tests: a first fit, and the columns of the linear step about it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.identifiability import identifiability
from jaxmb.identify.estimation.linear import tukey
from jaxmb.identify.experiments.torque.effort_noise import NORMAL_MEDIAN
from jaxmb.identify.experiments.torque.prepared import Prepared, Samples, least_squares
from jaxmb.measurement.motion.record import Drives, rates

FAMILY = "drive_gain"
"""Prefix of the names of free gains: "drive_gain.motor5"."""
ROUNDS = 50
SETTLED = 1e-9
"""Largest relative change of a gain at convergence of the first fit."""
ROUGH = 1e-3
"""Relative change of a gain above which the first fit counts as not converged."""
SMALLEST_RESIDUAL = 1e-6
"""Residual of the known efforts after a fit of the free parameters, over their size, below which gains are not
identifiable."""
LEAST_WEIGHT = 1e-8
"""Smallest weight of an outlier."""
LONGEST = 2.0
"""Largest factor on a gain in one step."""


class Recorded(NamedTuple):
    """Equations of a test and the recorded drive signals, at all used samples."""

    rows: Prepared
    signal: Float[np.ndarray, "k d"]
    drives: Drives
    robust: bool = False
    """Whether outliers are down-weighted."""


class GainChoice(NamedTuple):
    """Gains of a first fit, about which the equations are linearized."""

    gains: dict[str, float]
    """Free gains by drive."""
    values: dict[str, float]
    """Values of the regressor's parameters."""


def first_gains(
    tests: Sequence[Recorded],
    names: Sequence[str],
    wanted: Sequence[str],
    share: Float[np.ndarray, "p d"],
    known: Float[np.ndarray, "p"],
) -> GainChoice:
    """Drive gains fitted jointly with the free parameters to the recorded drive signals.

    Gauss-Newton fit of i = G^-1 N^-T Y p, N the ratios and G the gains. The noise is that of i, on the left: with
    efforts N^T G i among the columns, it would bias gains towards zero. Such a biased linear fit gives the initial
    values. For robust tests each effort has Tukey's weight by the median absolute residual of its coordinate, as in the
    linear step of the study.

    Args:
        tests: fitted tests.
        names: of the p columns of their regressors.
        wanted: drives whose gains are free.
        share: derivative of the regressor's parameters by the free ones.
        known: fixed part of the regressor's parameters, 0 for free ones.

    Raises:
        ValueError: a drive gain is not identifiable, or the iteration did not converge.

    Source: Gautier and Briot 2014, "Global identification of joint drive gains and dynamic parameters of robots".
    """
    regressor = np.concatenate([test.rows.regressor @ share for test in tests])
    rest = np.concatenate([test.rows.regressor @ known + test.rows.constant for test in tests])
    each = [_efforts(test, wanted) for test in tests]
    effort, given = np.concatenate([a for a, _ in each]), np.concatenate([b for _, b in each])
    rest = rest - given
    coordinates = [name for test in tests for name in np.array(test.rows.measured)[test.rows.coordinate]]
    group = np.unique(coordinates, return_inverse=True)[1]
    std = _rms_by_group(effort, group)
    _check_known(regressor, rest, std, wanted)
    found, _ = least_squares(np.concatenate([regressor, -effort], axis=1) / std[:, None], -rest / std)
    p, gains = np.split(found, [share.shape[1]])
    gains = np.where(gains == 0.0, 1.0, gains)
    robust = any(test.robust for test in tests)
    for _ in range(ROUNDS):
        slope = np.concatenate([
            gain_columns(test.rows.all_samples, test.drives, wanted, gains, share @ p + known) for test in tests
        ])  # fmt: skip
        matrix = np.concatenate([regressor, slope], axis=1)
        found, _ = least_squares(matrix / std[:, None], (effort @ gains - rest) / std)
        residual = effort @ gains - rest - matrix @ found
        p, steps = np.split(found, [share.shape[1]])
        std = _robust_std(residual, group) if robust else _rms_by_group(residual[:, None], group)
        # a gain keeps its sign and order of size in one step
        factor = np.clip(1.0 + steps / gains, 1.0 / LONGEST, LONGEST)
        gains = gains * factor
        if np.abs(factor - 1.0).max() < SETTLED:
            break
    else:
        if np.abs(factor - 1.0).max() > ROUGH:
            raise ValueError(f"{', '.join(f'{FAMILY}.{name}' for name in wanted)}: not converged after {ROUNDS} steps")
    unknown = ~np.isfinite(identifiability(matrix / std[:, None], np.ones(len(matrix))).std[share.shape[1] :])
    if unknown.any():
        raise ValueError(_not_identifiable_text([name for name, lost in zip(wanted, unknown, strict=True) if lost]))
    by_name = dict(zip(names, (share @ p + known).tolist(), strict=True))
    return GainChoice(dict(zip(wanted, gains.tolist(), strict=True)), by_name)


def gain_columns(
    samples: Samples,
    drives: Drives,
    wanted: Sequence[str],
    gains: Float[np.ndarray, "g"],
    values: Float[np.ndarray, "p"],
) -> Float[np.ndarray, "r g"]:
    """Derivative of the predicted drive signals by gains, converted to efforts by the gains of linearization.

    d(N^T G_0 i) / dg_m = -N_m i_m with i = G_0^-1 N^-T Y p, the noise-free prediction.

    Args:
        samples: of the test.
        drives: of its record.
        wanted: drives whose gains are free.
        gains: of these.
        values: p.
    """
    torque = np.linalg.solve(drives.ratio.T, (samples.regressor @ values).T).T
    columns = []
    for name, gain in zip(wanted, gains, strict=True):
        m = drives.names.index(name)
        columns.append(-samples.kept(torque[:, [m]] / gain * drives.ratio[m]))
    return np.stack(columns, axis=1)


def _efforts(test: Recorded, wanted: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the efforts of each drive with a free gain, for a gain of 1, and the sum of all others."""
    samples, drives = test.rows.all_samples, test.drives
    each = [samples.kept(test.signal[:, [m]] * drives.ratio[m]) for m in range(len(drives.names))]
    own = [each[drives.names.index(name)] for name in wanted]
    others = [drives.gain[m] * each[m] for m, name in enumerate(drives.names) if name not in wanted]
    return np.stack(own, axis=1), np.sum([np.zeros(len(each[0])), *others], axis=0)


def _rms_by_group(parts: Float[np.ndarray, "r k"], group: np.ndarray) -> Float[np.ndarray, "r"]:
    """Root mean square over all columns and the rows of the same coordinate, for each row."""
    size = np.sqrt(np.bincount(group, np.sum(parts**2, axis=1)) / np.bincount(group))
    return np.maximum(size, 1e-12 * size.max())[group]


def _robust_std(residual: Float[np.ndarray, "r"], group: np.ndarray) -> Float[np.ndarray, "r"]:
    """Robust standard deviation at the coordinate of each row, divided by the root of Tukey's weight."""
    size = np.array([np.median(np.abs(residual[group == i])) for i in range(group.max() + 1)]) / NORMAL_MEDIAN
    size = np.maximum(size, 1e-12 * max(float(size.max()), float(np.abs(residual).max())))[group]
    return size / np.sqrt(np.maximum(tukey(residual / size), LEAST_WEIGHT))


def _check_known(regressor: np.ndarray, rest: np.ndarray, std: np.ndarray, wanted: Sequence[str]) -> None:
    """Raise ValueError where the free parameters reproduce all known efforts, so that gains are not identifiable."""
    right = rest / std
    residual = right - regressor / std[:, None] @ least_squares(regressor / std[:, None], right)[0]
    if not np.linalg.norm(residual) > SMALLEST_RESIDUAL * np.linalg.norm(right):
        raise ValueError(_not_identifiable_text(wanted))


def _not_identifiable_text(drives: Sequence[str]) -> str:
    return (
        f"{', '.join(f'{FAMILY}.{name}' for name in drives)} not identifiable: the free parameters reproduce all known"
        " efforts, expected one run with a payload whose parameters are fixed, and one without it"
    )


DELAY = "delay"
"""Prefix of the names of free delays: "delay.TEST"."""
SLOPE_REACH = 2
"""Samples on either side of a jump on which the slope depends."""
DELAY_ROUNDS = 20
DELAY_TOLERANCE = 1e-4
"""Step of the delay at convergence, in samples."""
LARGEST_LAST_DELAY_STEP = 0.1
"""The same where steps do not decrease: with noise, the samples that pass `least_speed` vary with the delay."""
LONGEST_DELAY_STEP = 5.0
"""Largest step of a delay, in samples."""


def first_delay(equations: Callable[[float], Prepared], rate_hz: float, name: str) -> tuple[float, Prepared]:
    """Delay, s, of the best fit of all parameters to the efforts, and the equations at that delay.

    Gauss-Newton fit of effort(t) = (Y p)(t - d). The motion is delayed, which leaves the noise of the efforts
    unchanged.

    Args:
        equations: returns the equations, with samples, of the motion delayed by so many seconds.
        rate_hz: samples per second.
        name: of the delay, for messages.

    Raises:
        ValueError: the iteration did not converge.
    """
    delay_s, before = 0.0, np.inf
    for _ in range(DELAY_ROUNDS):
        rows = equations(delay_s)
        matrix = np.concatenate([rows.regressor, delay_column(rows, rate_hz)[:, None]], axis=1)
        right = rows.effort - rows.constant
        weight = np.ones(right.size)
        for _ in range(2):  # by the residual of the previous fit at each coordinate
            found, _ = least_squares(matrix * weight[:, None], right * weight)
            residual = right - matrix @ found
            size = np.sqrt(np.bincount(rows.coordinate, residual**2) / np.bincount(rows.coordinate))
            weight = 1.0 / np.maximum(size, 1e-9 * np.abs(right).max())[rows.coordinate]
        step = abs(found[-1]) * rate_hz
        if step <= (LARGEST_LAST_DELAY_STEP if step > 0.5 * before else DELAY_TOLERANCE):
            return delay_s, rows
        before = step
        delay_s += float(np.clip(found[-1], -LONGEST_DELAY_STEP / rate_hz, LONGEST_DELAY_STEP / rate_hz))
    raise ValueError(
        f"[free]: {name} still changes after {DELAY_ROUNDS} steps, from {delay_s:.3g} s by {found[-1]:.3g} s"
    )


def delay_column(rows: Prepared, rate_hz: float) -> Float[np.ndarray, "r"]:
    """Derivative of the predicted efforts by their delay, -d(Y p)/dt, with p from a fit of all parameters."""
    samples = rows.all_samples
    values, _ = least_squares(rows.regressor, rows.effort - rows.constant)
    return -samples.kept(rates(samples.columns @ values + samples.constant, rate_hz)[0])
