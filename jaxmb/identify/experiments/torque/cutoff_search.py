"""The cut-off of the filter of recorded angles, found from what torques tell."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.torque.prepared import equations_at, least_squares, moving, states_at
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.estimate import low_passed_motion
from jaxmb.measurement.motion.record import MotionRecord
from jaxmb.measurement.motion.signals import edge
from jaxmb.mechanics.loops import independent_coordinates

CUTOFFS = 12
"""That are tried."""
LOWEST = 20.0
"""Lowest cut-off that is tried, in periods of the whole record."""
HIGHEST = 0.2
"""Highest one, of the sampling rate."""
SEARCH_SAMPLES = 3000
"""On which cut-offs are compared."""
BLOCKS = 20
"""Parts of the record by which a difference of errors is compared with chance."""
STATED = 1e-12
"""Of the efforts' size: so small a deviation that robust weights take theirs from the median residual."""


def best_cutoff(
    model: Model,
    record: MotionRecord,
    path: Float[np.ndarray, "k n"],
    least_speed: Float[np.ndarray, "m"] | float = 0.0,
    from_s: float = 0.0,
    to_s: float = np.inf,
    robust: bool = False,
    absent: Sequence[int] = (),
) -> float:
    """The highest cut-off with which the efforts, as they were recorded, are predicted no worse than with the best.

    Angles are filtered, efforts are not. With too low a cut-off accelerations lack what moved the machine fast, with
    too high a one they are full of noise, which makes inertias seem smaller than they are. All cut-offs are compared on
    the same samples, those that a fit would use. One is no worse where its sum of squares is larger by less than the
    standard error of the difference, from the scatter of the difference between `BLOCKS` parts of the record, which
    holds for noise of any colour.

    Between such cut-offs the highest is right. What a low one takes of the motion depends on the motion, and another
    one may lose more of it; the noise of a high one is the same in all. And a growth of chi^2 by L from lost motion is
    an error of parameters of up to sqrt(L) standard deviations, the same growth from noise one of about L over the
    ratio of a parameter to its deviation.

    Args:
        model: the machine.
        record: of its motion.
        path: from `recorded_path`.
        least_speed: as of `prepared`.
        from_s: as of `prepared`.
        to_s: as of `prepared`.
        robust: outliers of the efforts do not count.
        absent: columns of the regressor without effect in this record.

    Raises:
        ValueError: the record is too short to compare cut-offs.

    Source: Pyrhonen et al. 2024, section 4: the pass band was widened until the variance of the error grew.
    """
    rate, count = record.rate_hz, len(record.time_s)
    least = int(np.ceil(LOWEST / HIGHEST))
    if count <= least:
        raise ValueError(
            f"there are {count} samples, too few to search a cut-off: expected more than {least}, or cutoff_hz"
        )
    tried = np.geomspace(LOWEST * rate / count, HIGHEST * rate, CUTOFFS).tolist()
    ends, time = edge(rate, tried[0]), record.time_s - record.time_s[0]
    inside = np.arange(ends, count - ends)
    within = inside[(time[inside] >= from_s) & (time[inside] <= to_s)]
    within = within if within.size > BLOCKS else inside
    chosen = within[np.unique(np.linspace(0, within.size - 1, SEARCH_SAMPLES).astype(int))]
    tries = {cutoff: _equations(model, record, cutoff, path, chosen, least_speed) for cutoff in tried}
    found = {cutoff: each for cutoff, each in tries.items() if each is not None}
    if not found:
        raise ValueError("loops do not close along the motion behind any cut-off, expected cutoff_hz")
    # behind the lowest cut-offs hardly anything moves, behind the highest all does
    used = np.mean([fast for _, _, fast in found.values()], axis=0) > 0.5
    used = used if used.any() else np.ones_like(used)
    block = np.broadcast_to((np.arange(chosen.size) * BLOCKS // chosen.size)[:, None], used.shape)[used]
    rows = [_over_size(regressor, effort, used, absent) for regressor, effort, _ in found.values()]
    left = np.stack([_residual(*each) for each in rows])
    if robust:
        best = rows[int(np.argmin(np.median(left**2, axis=1)))]
        root = np.sqrt(linear_fit(*best, np.full(block.size, STATED), robust=True).weights)
        left = np.stack([_residual(matrix * root[:, None], right * root) for matrix, right in rows])
    squares = np.stack([np.bincount(block, part**2, minlength=BLOCKS) for part in left])
    best = int(np.argmin(squares.sum(axis=1)))
    more = squares - squares[best]
    worse = more.sum(axis=1) > np.sqrt(BLOCKS) * np.std(more, axis=1, ddof=1)
    highest = best
    while highest + 1 < len(found) and not worse[highest + 1]:
        highest += 1
    return list(found)[highest]


def _equations(
    model: Model,
    record: MotionRecord,
    cutoff_hz: float,
    path: np.ndarray,
    chosen: np.ndarray,
    least_speed: np.ndarray | float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Regressor [s, c, p], efforts [s, c] and which are of coordinates that move [s, c], at some samples.

    None where so little of the motion is left that loops do not close along it.
    """
    try:
        states = states_at(model, record, low_passed_motion(record, cutoff_hz), path, chosen)
        regressor, effort, measured = equations_at(model, record, *states, chosen)
    except ValueError:
        return None
    names = independent_coordinates(model)
    fast = moving(model, states[1], least_speed, 0)
    return regressor, effort, fast[:, [names.index(name) for name in measured]]


def _over_size(
    regressor: np.ndarray, effort: np.ndarray, used: np.ndarray, absent: Sequence[int]
) -> tuple[Float[np.ndarray, "r p"], Float[np.ndarray, "r"]]:
    """Rows that are used, each over the size of its coordinate's efforts."""
    size = np.std(effort, axis=0)
    size = np.where(size > 0.0, size, size.max() or 1.0)
    matrix = (regressor / size[:, None])[used]
    matrix[:, list(absent)] = 0.0
    return matrix, (effort / size)[used]


def _residual(matrix: np.ndarray, right: np.ndarray) -> Float[np.ndarray, "r"]:
    """What least squares over all parameters leaves."""
    return right - matrix @ least_squares(matrix, right)[0]
