"""Motions improved along the gradient of what they tell."""

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
"""Criterion of a motion that a machine cannot make."""


class Found(NamedTuple):
    """A motion at its limits."""

    coefficients: np.ndarray
    start: np.ndarray
    criterion: float


def improved(aim: Aim, series: Series, fine: Series, choice: np.ndarray, steps: int) -> Found:
    """The motion of a choice, brought to its limits, after some quasi-Newton steps.

    Raises:
        ValueError: a loop opens along the motion to begin with.

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
    """Criterion of a motion on fine samples, Coulomb friction by its exact sign."""
    Y = rows_along(aim, states(aim, fine, c, start))
    rows = np.concatenate([(Y @ part).reshape(-1, part.shape[1]) for part in aim.columns])
    return criterion_of(aim, np.asarray(np.linalg.qr(rows, mode="r")))


def value(
    aim: Aim, series: Series, flat: np.ndarray, shape: tuple[int, ...], refuse: bool = True
) -> tuple[float, np.ndarray]:
    """Criterion and gradient; a motion that opens a loop is refused."""
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
