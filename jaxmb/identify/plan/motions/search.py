"""Gradient-based optimization of motions."""

from typing import NamedTuple

import jax
import numpy as np
import scipy.optimize

from jaxmb.identify.plan.motions.criterion import (
    Aim,
    closed,
    criterion_of,
    positions,
    rows_along,
    states,
    value_and_slope,
)
from jaxmb.identify.plan.motions.series import Series, at_limits, within

REFUSED = 1e6
"""Criterion of an infeasible motion."""


class Found(NamedTuple):
    """An optimized motion scaled to its limits."""

    coefficients: np.ndarray
    start: np.ndarray
    criterion: float


def improved(aim: Aim, series: Series, fine: Series, choice: np.ndarray, steps: int) -> Found:
    """The motion of an optimization vector after quasi-Newton steps, scaled to its limits.

    Raises:
        ValueError: a loop cannot be closed along the initial motion.

    Source: Byrd et al. 1995, L-BFGS-B.
    """
    shape = choice.shape
    value(aim, series, choice.ravel(), shape, refuse=False)
    if steps:
        choice = scipy.optimize.minimize(
            lambda x: value(aim, series, x, shape), choice.ravel(), jac=True, method="L-BFGS-B",
            options={"maxiter": steps, "maxcor": 20},
        ).x.reshape(shape)  # fmt: skip
    c, _ = (np.asarray(part) for part in within(series, jax.device_put(choice)))
    c, start = at_limits(fine, c, choice[:, -1])
    return Found(c, start, judged(aim, fine, c, start))


def judged(aim: Aim, fine: Series, c: np.ndarray, start: np.ndarray) -> float:
    """Criterion of a motion on fine samples, with the exact sign of Coulomb friction."""
    Y = rows_along(aim, states(aim, fine, c, start))
    rows = np.concatenate([(Y @ part).reshape(-1, part.shape[1]) for part in aim.columns])
    return criterion_of(aim, np.asarray(np.linalg.qr(rows, mode="r")))


def value(
    aim: Aim, series: Series, flat: np.ndarray, shape: tuple[int, ...], refuse: bool = True
) -> tuple[float, np.ndarray]:
    """Criterion and gradient; `REFUSED` for a motion along which a loop cannot be closed."""
    choice = jax.device_put(flat.reshape(shape))
    z = np.asarray(positions(aim, series, choice))
    try:
        q = closed(aim, z)
    except ValueError:
        if not refuse:
            raise
        return REFUSED, np.zeros(flat.size)
    found, slope = value_and_slope(aim, series, choice, jax.device_put(q), jax.device_put(z))
    if not np.isfinite(found):
        return REFUSED, np.zeros(flat.size)
    return float(found), np.asarray(slope).ravel()
