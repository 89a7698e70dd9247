"""Motion from encoders, gyroscopes and accelerometers: a Kalman filter whose jerk is white noise, and its smoother."""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_banded
from scipy.optimize import minimize_scalar

START_STD = (10.0, 1000.0)
"""Of velocity and acceleration at the first sample, rad/s or m/s and per second, about 0."""
STEADY = 1e-12
"""Relative change of a covariance from sample to sample below which it stays as it is."""
SETTLED = 1.1
"""Of the standard deviations at the end, below which those at a sample are settled."""
LEAST, MOST = -15.0, 3.0
"""Decimal logarithms of the jerk's density that are tried, times the fifth power of the time step over the variance of
a position: a filter that follows in some hundred steps, and one that believes each position."""
GRID = 13
SEARCHED = 20_000
"""Samples from which the density is found."""
CLOSE = 0.01
"""Of the decimal logarithm of the density."""

TRANSITION = np.array([[1.0, 1.0, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
"""Of position, velocity and acceleration, in units of one time step."""
NOISE = np.array([[1 / 20, 1 / 8, 1 / 6], [1 / 8, 1 / 3, 1 / 2], [1 / 6, 1 / 2, 1.0]])
"""What white jerk of density 1 adds to their covariance within one step."""


class KalmanMotion(NamedTuple):
    """Motion of c coordinates at k samples, from all measurements, or causal: from those up to each sample."""

    position: Float[np.ndarray, "k c"]
    velocity: Float[np.ndarray, "k c"]
    acceleration: Float[np.ndarray, "k c"]
    covariance: Float[np.ndarray, "c 3 3"]
    """Of position, velocity and acceleration at the last sample."""
    jerk_density: Float[np.ndarray, "c"]
    """q, (rad/s^3)^2 s or (m/s^3)^2 s."""
    log_likelihood: Float[np.ndarray, "c"]
    """Of all that was measured, given the first position."""
    innovations: Float[np.ndarray, "k c 3"]
    """What the prediction misses of position, velocity and acceleration, made white with variance 1; NaN where not
    measured, and at the first position."""
    settled: Int[np.ndarray, "c"]
    """Sample from which on standard deviations of the causal motion are at most a tenth above those at the end; a
    smoother needs about as many at either end."""


def kalman_motion(
    position: Float[np.ndarray, "k c"],
    rate_hz: float,
    position_std: float | Float[np.ndarray, "c"],
    *,
    velocity: Float[np.ndarray, "k c"] | None = None,
    velocity_std: float | Float[np.ndarray, "c"] | None = None,
    acceleration: Float[np.ndarray, "k c"] | None = None,
    acceleration_std: float | Float[np.ndarray, "c"] | None = None,
    jerk_density: float | Float[np.ndarray, "c"] | None = None,
    causal: bool = False,
) -> KalmanMotion:
    """Position, velocity and acceleration of coordinates, from all sensors together.

    Accelerations are Wiener processes, E x'''(t) x'''(s) = q delta(t - s), for which x_{k+1} = F x_k + w_k is exact.
    Each coordinate has a filter of its own. At the first sample the position is as measured, velocity and acceleration
    are 0 with the wide deviations of `START_STD`.

    Args:
        position: measured [k, c], rad or m, at even steps of time.
        rate_hz: samples per second.
        position_std: standard deviation of each sample, of all or each coordinate.
        velocity: measured [k, c], by gyroscopes or tachometers; NaN in columns of coordinates without.
        velocity_std: of each sample, where velocities were measured.
        acceleration: measured [k, c], less gravity.
        acceleration_std: of each sample, where accelerations were measured.
        jerk_density: q of all or each coordinate; of the largest likelihood of the innovations where not given.
        causal: each sample from the measurements up to it, as they come in real time: accelerations lag. Otherwise from
            all measurements, by the smoother of Rauch, Tung and Striebel behind the filter.

    Raises:
        ValueError: sizes differ, a number is not finite, or a deviation is missing or not positive.

    Source: Bar-Shalom, Li and Kirubarajan 2001, "Estimation with applications to tracking and navigation", sections
    5.2, 6.2.3 and 8.6; Schweppe 1965, "Evaluation of likelihood functions for Gaussian signals"; Rauch, Tung and
    Striebel 1965, "Maximum likelihood estimates of linear dynamic systems".
    """
    if not (np.isfinite(rate_hz) and rate_hz > 0.0):
        raise ValueError(f"rate_hz is {rate_hz:g}, expected a positive number of samples per second")
    given = (("position", position, position_std), ("velocity", velocity, velocity_std),
             ("acceleration", acceleration, acceleration_std))  # fmt: skip
    shape = np.shape(position)
    if len(shape) != 2 or shape[0] < 2 or shape[1] < 1:
        raise ValueError(f"position has shape {shape}, expected at least 2 samples, a column for each coordinate")
    step = 1.0 / rate_hz
    measured, std = np.full((*shape, 3), np.nan), np.ones((shape[1], 3))
    for order, (name, values, deviation) in enumerate(given):
        if values is not None:
            measured[..., order] = step**order * _checked(name, values, shape)
            std[:, order] = step**order * _positive(f"{name}_std", deviation, shape[1])
    if np.isnan(measured[..., 0]).any():
        raise ValueError("position holds nan, expected finite numbers")
    density = None if jerk_density is None else _positive("jerk_density", jerk_density, shape[1]) * step**5
    found = [_of_coordinate(measured[:, i], std[i], None if density is None else density[i], step)
             for i in range(shape[1])]  # fmt: skip
    units = step ** -np.arange(3.0)
    state = np.stack([run.state if causal else _smoothed(run, q) for run, q in found], axis=1) * units
    return KalmanMotion(
        position=state[..., 0],
        velocity=state[..., 1],
        acceleration=state[..., 2],
        covariance=np.stack([run.covariances[-1] for run, _ in found]) * np.outer(units, units),
        jerk_density=np.array([q for _, q in found]) / step**5,
        log_likelihood=np.array([run.log_likelihood for run, _ in found])
        - np.log(step) * (np.sum(~np.isnan(measured), axis=0) @ -np.arange(3.0)),
        innovations=np.stack([run.innovations for run, _ in found], axis=1),
        settled=np.array([run.settled for run, _ in found]),
    )


class _Run(NamedTuple):
    """One filter over one record, in units of the time step."""

    state: np.ndarray
    covariances: list[np.ndarray]
    """Of the first samples; the last of these is that of all further ones."""
    log_likelihood: float
    innovations: np.ndarray
    settled: int


def _of_coordinate(measured: np.ndarray, std: np.ndarray, density: float | None, step: float) -> tuple[_Run, float]:
    """The filter of one coordinate, and its density."""
    if density is not None:
        return _filtered(measured, std, density, step), density
    part, unit = measured[:SEARCHED], std[0] ** 2

    def cost(logarithm: float) -> float:
        return -_filtered(part, std, unit * 10.0**logarithm, step).log_likelihood

    tried = np.linspace(LEAST, MOST, GRID)
    best = int(np.argmin([cost(one) for one in tried]))
    bounds = tried[max(best - 1, 0)], tried[min(best + 1, GRID - 1)]
    searched: Any = minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": CLOSE})
    likeliest = unit * 10.0 ** float(searched.x)
    return _filtered(measured, std, likeliest, step), likeliest


def _filtered(measured: np.ndarray, std: np.ndarray, density: float, step: float) -> _Run:
    """Kalman filter of measured [k, 3], columns of NaN absent; constant gain once its covariance is steady."""
    sensors = np.flatnonzero(~np.isnan(measured[0]))
    z, H, noise = measured[:, sensors], np.eye(3)[sensors], np.diag(std[sensors] ** 2)
    ahead = np.diag([std[0] ** 2, (START_STD[0] * step) ** 2, (START_STD[1] * step**2) ** 2])
    predicted = np.array([z[0, 0], 0.0, 0.0])
    states, white, covariances = np.empty((len(z), 3)), np.full(z.shape, np.nan), []
    likelihood, k = 0.0, 0
    while True:
        used = slice(int(k == 0), None)  # the first position stands in the start already
        h, r = H[used], noise[used, used]
        spread = h @ ahead @ h.T + r
        gain, root = np.linalg.solve(spread, h @ ahead).T, np.linalg.cholesky(spread)
        keep = np.eye(3) - gain @ h
        covariance = keep @ ahead @ keep.T + gain @ r @ gain.T
        following = TRANSITION @ covariance @ TRANSITION.T + density * NOISE
        if k > 0 and np.all(np.abs(following - ahead) <= STEADY * np.abs(ahead)):
            break
        missed = z[k, used] - h @ predicted
        states[k] = predicted + gain @ missed
        white[k, used], score = _scores(missed[None], root)
        likelihood += score
        covariances.append(covariance)
        ahead, predicted, k = following, TRANSITION @ states[k], k + 1
        if k == len(z):
            break
    if k < len(z):
        states[k:] = _constant(z[k:] @ gain.T, keep @ TRANSITION, states[k - 1])
        white[k:], score = _scores(z[k:] - states[k - 1 : -1] @ (H @ TRANSITION).T, root)
        likelihood += score
    innovations = np.full((len(z), 3), np.nan)
    innovations[:, sensors] = white
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    wide = np.flatnonzero((variances > SETTLED**2 * variances[-1]).any(axis=1))
    return _Run(states, covariances, likelihood, innovations, int(wide[-1]) + 1 if wide.size else 0)


def _smoothed(run: _Run, density: float) -> np.ndarray:
    """States from all measurements: x_k + G_k (x_{k+1} - F x_k), with the x_{k+1} of the step before, from the end."""
    states, first = run.state.copy(), len(run.covariances) - 1
    predicted = states @ TRANSITION.T
    gains = []
    for covariance in run.covariances:
        ahead = TRANSITION @ covariance @ TRANSITION.T + density * NOISE
        gains.append(np.linalg.solve(ahead, TRANSITION @ covariance).T)
    if first < len(states) - 1:
        driven = states[first:-1] - predicted[first:-1] @ gains[-1].T
        states[first:-1] = _constant(driven[::-1], gains[-1], states[-1])[::-1]
    for k in range(first - 1, -1, -1):
        states[k] += gains[k] @ (states[k + 1] - predicted[k])
    return states


def _scores(missed: np.ndarray, root: np.ndarray) -> tuple[np.ndarray, float]:
    """Innovations made white by the Cholesky factor of their covariance, and their log-likelihood."""
    white = np.linalg.solve(root, missed.T).T
    constant = len(missed) * (np.sum(np.log(np.diag(root))) + 0.5 * len(root) * np.log(2.0 * np.pi))
    return white, float(-0.5 * np.sum(white**2) - constant)


def _constant(driven: np.ndarray, A: np.ndarray, before: np.ndarray) -> np.ndarray:
    """States x_k = A x_{k-1} + driven_k as one banded system, from the state before the first."""
    right = driven.copy()
    right[0] += A @ before
    bands = np.zeros((6, right.size))
    bands[0] = 1.0
    for i in range(3):
        for j in range(3):
            bands[3 + i - j, j : right.size - 3 : 3] = -A[i, j]
    return solve_banded((5, 0), bands, right.ravel()).reshape(-1, 3)


def _checked(name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    found = np.asarray(values, dtype=float)
    if found.shape != shape:
        raise ValueError(f"{name} has shape {found.shape}, expected {shape} as position has")
    bad = ~np.isfinite(found) & ~np.isnan(found).all(axis=0)
    if bad.any():
        raise ValueError(f"{name} holds {found[bad][0]}, expected finite numbers")
    return found


def _positive(name: str, value: float | np.ndarray | None, count: int) -> np.ndarray:
    if value is None:
        raise ValueError(f"{name} is not given, expected the standard deviation of what was measured")
    found = np.asarray(value, dtype=float)
    if found.shape not in ((), (count,)):
        raise ValueError(f"{name} has shape {found.shape}, expected one number or one for each of {count} coordinates")
    if not (np.isfinite(found) & (found > 0.0)).all():
        raise ValueError(f"{name} is {value}, expected positive numbers")
    return np.broadcast_to(found, (count,))
