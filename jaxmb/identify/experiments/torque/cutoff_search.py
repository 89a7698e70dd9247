"""The cut-off of the filter of recorded angles, found from what torques tell."""

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.torque.prepared import equations_at, least_squares, states_at
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.estimate import low_passed_motion
from jaxmb.measurement.motion.record import MotionRecord
from jaxmb.measurement.motion.signals import ORDER, edge

CUTOFFS = 10
"""That are tried."""
LOWEST = 20.0
"""Lowest cut-off that is tried, in periods of the whole record."""
HIGHEST = 0.2
"""Highest one, of the sampling rate."""
SEARCH_SAMPLES = 3000
"""On which cut-offs are compared."""
SIGNIFICANT = 10.0
"""Growth of a sum of squares, over its mean square, that is more than chance."""
ALLOWED = 0.1
"""Growth of it, over all samples, that a cut-off may cost: far below what one parameter takes."""
STATED = 1e-12
"""Of the efforts' size: so small a deviation that robust weights take theirs from the median residual."""


def best_cutoff(model: Model, record: MotionRecord, path: Float[np.ndarray, "k n"], robust: bool = False) -> float:
    """The lowest cut-off from which on the efforts, as they were recorded, are predicted no better.

    Angles are filtered, efforts are not. With too low a cut-off accelerations lack what moved the machine fast, with
    too high a one they are full of noise, which makes inertias seem smaller than they are.

    Cut-offs are compared on some samples, where a growth of the sum of squares below `SIGNIFICANT` is not told from
    chance. What the filter takes of a frequency f below the cut-off fc is (f / fc)^8 of it, so the sum of squares over
    all samples grows by fc^-16: the lowest cut-off that is not told from the best is raised until `ALLOWED` is left.

    Args:
        model: the machine.
        record: of its motion.
        path: from `recorded_path`.
        robust: outliers of the efforts do not count.

    Raises:
        ValueError: the record is too short to compare cut-offs.

    Source: Pyrhonen et al. 2024, section 3.2.
    """
    rate, count = record.rate_hz, len(record.time_s)
    least = int(np.ceil(LOWEST / HIGHEST))
    if count <= least:
        raise ValueError(
            f"there are {count} samples, too few to search a cut-off: expected more than {least}, or cutoff_hz"
        )
    tried = np.geomspace(LOWEST * rate / count, HIGHEST * rate, CUTOFFS).tolist()
    ends = edge(rate, tried[0])
    chosen = np.unique(np.linspace(ends, count - ends - 1, SEARCH_SAMPLES).astype(int))
    rows = [_rows_or_none(model, record, cutoff, path, chosen) for cutoff in tried]
    variances = [_error_variance(each) for each in rows]
    if robust and (best := rows[int(np.argmin(variances))]) is not None:
        weight = linear_fit(*best, np.full(best[1].size, STATED), robust=True).weights
        variances = [_error_variance(each, np.sqrt(weight)) for each in rows]
    most = (1.0 + SIGNIFICANT / len(chosen)) * min(variances)
    lowest = next(c for c, v in zip(tried, variances, strict=True) if v <= most)
    margin = (SIGNIFICANT / ALLOWED * count / len(chosen)) ** (1.0 / (4 * ORDER))
    return min(margin * lowest, HIGHEST * rate)


def _rows_or_none(
    model: Model, record: MotionRecord, cutoff_hz: float, path: np.ndarray, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Regressor [r, p] and efforts [r] at some samples, each effort over its coordinate's own size.

    None where so little of the motion is left that loops do not close along it.
    """
    try:
        motion = low_passed_motion(record, cutoff_hz)
        regressor, effort, _ = equations_at(model, record, *states_at(model, record, motion, path, chosen), chosen)
    except ValueError:
        return None
    size = np.std(effort, axis=0)
    size = np.where(size > 0.0, size, size.max() or 1.0)
    return (regressor / size[:, None]).reshape(-1, regressor.shape[2]), (effort / size).ravel()


def _error_variance(rows: tuple[np.ndarray, np.ndarray] | None, root: np.ndarray | float = 1.0) -> float:
    """Mean square of what is not explained of the efforts, by the squared roots of weights; infinite without rows."""
    if rows is None:
        return np.inf
    matrix, right = (rows[0].T * root).T, rows[1] * root
    return float(np.mean((right - matrix @ least_squares(matrix, right)[0]) ** 2))
