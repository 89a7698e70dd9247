"""Gains of drives that are free in a study: a first fit, and the columns of the study's own step about it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.identifiability import knowledge
from jaxmb.identify.estimation.linear import tukey
from jaxmb.identify.experiments.torque.effort_noise import NORMAL_MEDIAN
from jaxmb.identify.experiments.torque.prepared import Prepared, Samples, least_squares
from jaxmb.measurement.motion.record import Drives, rates

FAMILY = "drive_gain"
"""Of the names of free gains: "drive_gain.motor5"."""
ROUNDS = 50
SETTLED = 1e-9
"""Largest relative change of a gain at which the first fit ends."""
ROUGH = 1e-3
"""One that is too large for the study's own step to be taken about it."""
TOLD = 1e-6
"""Part of the known efforts that free parameters leave, below which nothing tells how large gains are."""
LEAST_WEIGHT = 1e-8
"""Of an outlier."""
LONGEST = 2.0
"""Factor by which one step may change a gain."""


class Recorded(NamedTuple):
    """Equations of a test and the recordings of its drives, at all samples that are used."""

    rows: Prepared
    signal: Float[np.ndarray, "k d"]
    drives: Drives
    robust: bool = False
    """Whether outliers do not count."""


class GainChoice(NamedTuple):
    """Gains of a first fit, about which the study's own step is taken."""

    gains: dict[str, float]
    """Of the drives whose gains are free."""
    values: dict[str, float]
    """Numbers of the regressor."""


def first_gains(
    tests: Sequence[Recorded],
    names: Sequence[str],
    wanted: Sequence[str],
    share: Float[np.ndarray, "p d"],
    known: Float[np.ndarray, "p"],
) -> GainChoice:
    """Gains of drives, with the free parameters, that explain what the drives recorded.

    i = G^-1 N^-T Y p, N the ratios and G the gains, is fitted by steps of Gauss and Newton. The noise is that of i, on
    the left: efforts N^T G i in the place of known ones would have it among the columns, which makes gains too small.
    From such a fit the steps begin. With robust tests each effort has Tukey's weight by the median size of what is left
    at its coordinate, so that the study's own step, which has such weights too, is taken about the same values.

    Args:
        tests: that are fitted.
        names: of the p columns of their regressors.
        wanted: drives whose gains are free.
        share: numbers of the regressor by what is free of them.
        known: the others, with 0 where something is free.

    Raises:
        ValueError: nothing tells a gain, or the steps do not come to rest.

    Source: Gautier and Briot 2014, "Global identification of joint drive gains and dynamic parameters of robots".
    """
    regressor = np.concatenate([test.rows.regressor @ share for test in tests])
    rest = np.concatenate([test.rows.regressor @ known + test.rows.constant for test in tests])
    each = [_efforts(test, wanted) for test in tests]
    effort, given = np.concatenate([a for a, _ in each]), np.concatenate([b for _, b in each])
    rest = rest - given
    coordinates = [name for test in tests for name in np.array(test.rows.measured)[test.rows.coordinate]]
    place = np.unique(coordinates, return_inverse=True)[1]
    std = _by_place(effort, place)
    _check_known(regressor, rest, std, wanted)
    found, _ = least_squares(np.concatenate([regressor, -effort], axis=1) / std[:, None], -rest / std)
    p, gains = np.split(found, [share.shape[1]])
    gains = np.where(gains == 0.0, 1.0, gains)
    robust = any(test.robust for test in tests)
    for _ in range(ROUNDS):
        slope = np.concatenate([
            gain_columns(test.rows.samples, test.drives, wanted, gains, share @ p + known) for test in tests
        ])  # fmt: skip
        matrix = np.concatenate([regressor, slope], axis=1)
        found, _ = least_squares(matrix / std[:, None], (effort @ gains - rest) / std)
        left = effort @ gains - rest - matrix @ found
        p, steps = np.split(found, [share.shape[1]])
        std = _robust_std(left, place) if robust else _by_place(left[:, None], place)
        # a gain keeps its sign and order of size in one step
        factor = np.clip(1.0 + steps / gains, 1.0 / LONGEST, LONGEST)
        gains = gains * factor
        if np.abs(factor - 1.0).max() < SETTLED:
            break
    else:
        if np.abs(factor - 1.0).max() > ROUGH:
            raise ValueError(f"{', '.join(f'{FAMILY}.{name}' for name in wanted)}: still move after {ROUNDS} steps")
    unknown = ~np.isfinite(knowledge(matrix / std[:, None], np.ones(len(matrix))).std[share.shape[1] :])
    if unknown.any():
        raise ValueError(_not_told([name for name, lost in zip(wanted, unknown, strict=True) if lost]))
    by_name = dict(zip(names, (share @ p + known).tolist(), strict=True))
    return GainChoice(dict(zip(wanted, gains.tolist(), strict=True)), by_name)


def gain_columns(
    samples: Samples | None,
    drives: Drives,
    wanted: Sequence[str],
    gains: Float[np.ndarray, "g"],
    values: Float[np.ndarray, "p"],
) -> Float[np.ndarray, "r g"]:
    """Derivative by gains of what drives would record, as efforts by the gains about which it is taken.

    d(N^T G_0 i) / dg_m = -N_m i_m with i = G_0^-1 N^-T Y p, as it is predicted: without noise.

    Args:
        samples: of the test.
        drives: of its record.
        wanted: drives whose gains are free.
        gains: of these.
        values: p.
    """
    if samples is None:
        raise ValueError("a test has no samples, expected those of `prepared` with keep_samples")
    torque = np.linalg.solve(drives.ratio.T, (samples.regressor @ values).T).T
    columns = []
    for name, gain in zip(wanted, gains, strict=True):
        m = drives.names.index(name)
        columns.append(-samples.kept(torque[:, [m]] / gain * drives.ratio[m]))
    return np.stack(columns, axis=1)


def _efforts(test: Recorded, wanted: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the efforts of each wanted drive for a gain of 1, and of all others together."""
    samples, drives = test.rows.samples, test.drives
    if samples is None:
        raise ValueError("a test has no samples, expected those of `prepared` with keep_samples")
    each = [samples.kept(test.signal[:, [m]] * drives.ratio[m]) for m in range(len(drives.names))]
    own = [each[drives.names.index(name)] for name in wanted]
    others = [drives.gain[m] * each[m] for m, name in enumerate(drives.names) if name not in wanted]
    return np.stack(own, axis=1), np.sum([np.zeros(len(each[0])), *others], axis=0)


def _by_place(parts: Float[np.ndarray, "r k"], place: np.ndarray) -> Float[np.ndarray, "r"]:
    """Root mean square of all columns together at the coordinate of each row."""
    size = np.sqrt(np.bincount(place, np.sum(parts**2, axis=1)) / np.bincount(place))
    return np.maximum(size, 1e-12 * size.max())[place]


def _robust_std(left: Float[np.ndarray, "r"], place: np.ndarray) -> Float[np.ndarray, "r"]:
    """The size of errors at the coordinate of each row by their median, divided by the root of Tukey's weight."""
    size = np.array([np.median(np.abs(left[place == i])) for i in range(place.max() + 1)]) / NORMAL_MEDIAN
    size = np.maximum(size, 1e-12 * max(float(size.max()), float(np.abs(left).max())))[place]
    return size / np.sqrt(np.maximum(tukey(left / size), LEAST_WEIGHT))


def _check_known(regressor: np.ndarray, rest: np.ndarray, std: np.ndarray, wanted: Sequence[str]) -> None:
    """Raise ValueError where no effort is known that free parameters cannot make."""
    right = rest / std
    left = right - regressor / std[:, None] @ least_squares(regressor / std[:, None], right)[0]
    if not np.linalg.norm(left) > TOLD * np.linalg.norm(right):
        raise ValueError(_not_told(wanted))


def _not_told(drives: Sequence[str]) -> str:
    return (
        f"nothing tells {', '.join(f'{FAMILY}.{name}' for name in drives)}: efforts that are known have to be such that"
        " no free parameter makes them, expected a run with a payload whose numbers are not free, and one without it"
    )


DELAY = "delay"
"""Of the names of free delays: "delay.TEST"."""
SLOPE_REACH = 2
"""Samples beside a jump on which the slope depends."""
DELAY_ROUNDS = 20
DELAY_TOLERANCE = 1e-4
"""Of a sample: a step of the delay at which the first fit ends."""
LARGEST_LAST_DELAY_STEP = 0.1
"""The same where steps do not get smaller: with noise, samples that pass `least_speed` differ from delay to delay."""
LONGEST_DELAY_STEP = 5.0
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
    for _ in range(DELAY_ROUNDS):
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
        if step <= (LARGEST_LAST_DELAY_STEP if step > 0.5 * before else DELAY_TOLERANCE):
            return delay_s, rows
        before = step
        delay_s += float(np.clip(found[-1], -LONGEST_DELAY_STEP / rate_hz, LONGEST_DELAY_STEP / rate_hz))
    raise ValueError(f"{name} still changes after {DELAY_ROUNDS} steps, from {delay_s:.3g} s by {found[-1]:.3g} s")


def delay_column(rows: Prepared, rate_hz: float) -> Float[np.ndarray, "r"]:
    """Derivative of the predicted efforts by their delay, -d(Y p)/dt, p those of a fit of all parameters."""
    samples = rows.samples
    if samples is None:
        raise ValueError("rows have no samples, expected those of `prepared` with keep_samples")
    values, _ = least_squares(rows.regressor, rows.effort - rows.constant)
    return -samples.kept(rates(samples.columns @ values + samples.constant, rate_hz)[0])
