"""Positions, velocities and accelerations of a record without delay, by a low-pass filter or a Kalman smoother.

The Kalman filter of encoders, gyroscopes and accelerometers assumes white-noise jerk.
"""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
import scipy
from jaxtyping import Float, Int
from scipy.linalg import solve_banded

from jaxmb.io.validation import error_location, finite_number
from jaxmb.measurement.motion.record import ALIAS, Cutoff, MotionRecord, edge, low_pass, rates


class MotionEstimate(NamedTuple):
    """Motion of the recorded coordinates at all samples."""

    position: Float[np.ndarray, "k c"]
    velocity: Float[np.ndarray, "k c"]
    acceleration: Float[np.ndarray, "k c"]
    first: int
    """Number of samples at the start within the filter's transient."""
    last: int
    """Number of such samples at the end."""


def low_passed_motion(record: MotionRecord, cutoff_hz: Cutoff) -> MotionEstimate:
    """Motion by a zero-phase low-pass filter: filtered positions, and their differences or filtered measured rates.

    Raises:
        ValueError: the record is too short for the cut-off, or the cut-off is not below half the sampling rate.
    """
    rate = record.rate_hz
    with error_location("cutoff_hz"):
        position = low_pass(record.position, rate, cutoff_hz)
    velocity, acceleration = rates(position, rate)
    for found, given in ((velocity, record.velocity), (acceleration, record.acceleration)):
        if given is not None:
            there = ~np.isnan(given).any(axis=0)
            found[:, there] = low_pass(given[:, there], rate, cutoff_hz)
    ends = edge(rate, cutoff_hz)
    return MotionEstimate(position, velocity, acceleration, ends, ends)


def decimated(record: MotionRecord, motion: MotionEstimate, step: int) -> tuple[MotionRecord, MotionEstimate]:
    """Every `step`-th sample of a record and of its motion.

    Torques, signals and temperatures pass a zero-phase low-pass filter at `ALIAS` of the new rate before. Equations
    that are filtered far below it are the same up to the time of a sign change of friction, within a sample.

    Raises:
        ValueError: no sample is left between the transients of the motion.
    """
    if step == 1:
        return record, motion

    def some(part: np.ndarray) -> np.ndarray:
        return low_pass(part, record.rate_hz, ALIAS * record.rate_hz / step)[::step]

    drives = None if record.drives is None else record.drives._replace(signal=some(record.drives.signal))
    parts = {field: getattr(record, field) for field in ("time_s", "position", "velocity", "acceleration")}
    there = dataclasses.replace(
        record,
        effort=some(record.effort) if drives is None else drives.effort,
        temperature=None if record.temperature is None else some(record.temperature),
        drives=drives,
        **{field: None if part is None else part[::step] for field, part in parts.items()},
    )
    used = np.arange(0, len(record.time_s), step)
    within = np.flatnonzero((used >= motion.first) & (used < len(record.time_s) - motion.last))
    if not within.size:
        raise ValueError(
            f"there are {len(record.time_s)} samples, too few for filtered torques: none of every {step} is outside the"
            f" transients of {motion.first} at the start and {motion.last} at the end, expected a longer record"
        )
    position, velocity, acceleration = (part[::step] for part in motion[:3])
    return there, MotionEstimate(position, velocity, acceleration, int(within[0]), used.size - 1 - int(within[-1]))


def delayed(motion: MotionEstimate, rate_hz: float, delay_s: float) -> MotionEstimate:
    """The motion at `delay_s` before each sample, by cubic splines; samples at the ends without it are excluded."""
    if delay_s == 0.0:
        return motion
    from scipy.interpolate import CubicSpline

    samples = np.arange(len(motion.position))
    parts = (
        CubicSpline(samples, part, axis=0)(samples - delay_s * rate_hz)
        for part in (motion.position, motion.velocity, motion.acceleration)
    )
    ends = int(np.ceil(abs(delay_s) * rate_hz))
    return MotionEstimate(*parts, first=motion.first + ends, last=motion.last + ends)


def smoothed_motions(
    record: MotionRecord,
    position_std: Float[np.ndarray, "c"] | float,
    velocity_std: Float[np.ndarray, "c"] | float | None,
    acceleration_std: Float[np.ndarray, "c"] | float | None,
    jerk_density: Float[np.ndarray, "c"] | float | None,
    draws: int,
) -> list[MotionEstimate]:
    """Motion by `kalman_motion` from all measurements, followed by motions with simulated sensor errors added.

    Each draw is used with both signs; the draws propagate errors of the motion to parameters identified from it.

    Raises:
        ValueError: a standard deviation is missing, or the record is too short.
    """
    random = np.random.default_rng(0)
    measured = (record.position, record.velocity, record.acceleration)
    std = (position_std, velocity_std, acceleration_std)

    def smoothed(errors: list[np.ndarray | float], density: Any) -> tuple[MotionEstimate, np.ndarray]:
        position, velocity, acceleration = (
            None if part is None else part + error for part, error in zip(measured, errors, strict=True)
        )
        motion = kalman_motion(
            np.asarray(position),
            record.rate_hz,
            position_std,
            velocity=velocity,
            velocity_std=velocity_std,
            acceleration=acceleration,
            acceleration_std=acceleration_std,
            jerk_density=density,
        )
        ends, count = int(motion.settled.max()), len(record.time_s)
        if 2 * ends >= count:
            raise ValueError(
                f"there are {count} samples, too few for transients of {ends} samples at either end: expected a longer"
                " record, or a filter (cutoff_hz)"
            )
        return MotionEstimate(motion.position, motion.velocity, motion.acceleration, ends, ends), motion.jerk_density

    first, density = smoothed([0.0, 0.0, 0.0], jerk_density)
    found = [first]
    for _ in range(draws):
        errors = [
            0.0 if part is None or size is None else size * random.normal(size=part.shape)
            for part, size in zip(measured, std, strict=True)
        ]
        found += [smoothed([sign * error for error in errors], density)[0] for sign in (1.0, -1.0)]
    return found


START_STD = (10.0, 1000.0)
"""Prior standard deviations of velocity and acceleration at the first sample, rad/s or m/s, and per second."""
STEADY = 1e-12
"""Relative change of a covariance between samples below which it is constant."""
SETTLED = 1.1
"""Ratio to the standard deviations at the end below which those at a sample have converged."""
LEAST, MOST = -15.0, 3.0
"""Range of the decimal logarithm of the jerk density, times the fifth power of the time step over the variance of a
position: from a filter with a response time of some hundred steps to one that follows every position."""
GRID = 13
SEARCHED = 20_000
"""Largest number of samples used to estimate the density."""
CLOSE = 0.01
"""Tolerance of the decimal logarithm of the density."""

TRANSITION = np.array([[1.0, 1.0, 0.5], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]])
"""Transition matrix of position, velocity and acceleration, in units of the time step."""
NOISE = np.array([[1 / 20, 1 / 8, 1 / 6], [1 / 8, 1 / 3, 1 / 2], [1 / 6, 1 / 2, 1.0]])
"""Process noise covariance of white jerk of density 1 within one step."""


class KalmanMotion(NamedTuple):
    """Motion of c coordinates at k samples: smoothed, or causal from the measurements up to each sample."""

    position: Float[np.ndarray, "k c"]
    velocity: Float[np.ndarray, "k c"]
    acceleration: Float[np.ndarray, "k c"]
    covariance: Float[np.ndarray, "c 3 3"]
    """Covariance of position, velocity and acceleration at the last sample."""
    jerk_density: Float[np.ndarray, "c"]
    """Spectral density q of the jerk, (rad/s^3)^2 s or (m/s^3)^2 s."""
    log_likelihood: Float[np.ndarray, "c"]
    """Log-likelihood of all measurements given the first position."""
    innovations: Float[np.ndarray, "k c 3"]
    """Whitened innovations of position, velocity and acceleration, variance 1; NaN where not measured, and at the first
    position."""
    settled: Int[np.ndarray, "c"]
    """Sample from which standard deviations of the causal motion exceed those at the end by at most a tenth; a smoother
    has a transient of about this length at either end."""


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
    """Position, velocity and acceleration of coordinates from all sensors.

    Accelerations are Wiener processes, E x'''(t) x'''(s) = q delta(t - s), for which x_{k+1} = F x_k + w_k is exact.
    Each coordinate has its own filter. The initial state is the measured position, and velocity and acceleration of 0
    with the large standard deviations of `START_STD`.

    Args:
        position: measured [k, c], rad or m, at even steps of time.
        rate_hz: samples per second.
        position_std: standard deviation of each sample, common or by coordinate.
        velocity: measured [k, c], by gyroscopes or tachometers; NaN in columns of coordinates without.
        velocity_std: standard deviation of each sample, where velocities were measured.
        acceleration: measured [k, c], with gravity removed.
        acceleration_std: standard deviation of each sample, where accelerations were measured.
        jerk_density: q, common or by coordinate; the maximum-likelihood estimate where not given.
        causal: whether to use only the measurements up to each sample, as in real time: accelerations lag. Otherwise
            all measurements are used, by the Rauch-Tung-Striebel smoother.

    Raises:
        ValueError: sizes differ, a number is not finite, or a standard deviation is missing or not positive.

    Source: Bar-Shalom, Li and Kirubarajan 2001, "Estimation with applications to tracking and navigation", sections
    5.2, 6.2.3 and 8.6; Schweppe 1965, "Evaluation of likelihood functions for Gaussian signals"; Rauch, Tung and
    Striebel 1965, "Maximum likelihood estimates of linear dynamic systems".
    """
    finite_number("rate_hz", rate_hz, above=0.0)
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
    """Result of the filter for one coordinate, in units of the time step."""

    state: np.ndarray
    covariances: list[np.ndarray]
    """Covariances of the first samples; the last one applies to all further samples."""
    log_likelihood: float
    innovations: np.ndarray
    settled: int


def _of_coordinate(measured: np.ndarray, std: np.ndarray, density: float | None, step: float) -> tuple[_Run, float]:
    """Filter result of one coordinate, and its jerk density."""
    if density is None:
        part, unit = measured[:SEARCHED], std[0] ** 2

        def cost(logarithm: float) -> float:
            return -_filtered(part, std, unit * 10.0**logarithm, step).log_likelihood

        tried = np.linspace(LEAST, MOST, GRID)
        best = int(np.argmin([cost(one) for one in tried]))
        bounds = tried[max(best - 1, 0)], tried[min(best + 1, GRID - 1)]
        found: Any = scipy.optimize.minimize_scalar(cost, bounds=bounds, method="bounded", options={"xatol": CLOSE})
        density = float(unit * 10.0**found.x)
    return _filtered(measured, std, density, step), density


def _filtered(measured: np.ndarray, std: np.ndarray, density: float, step: float) -> _Run:
    """Kalman filter of measured [k, 3], columns of NaN ignored; constant gain once the covariance has converged."""
    sensors = np.flatnonzero(~np.isnan(measured[0]))
    z, H, noise = measured[:, sensors], np.eye(3)[sensors], np.diag(std[sensors] ** 2)
    ahead = np.diag([std[0] ** 2, (START_STD[0] * step) ** 2, (START_STD[1] * step**2) ** 2])
    h = np.vstack([np.zeros(3), H[1:]])  # the initial state contains the first position
    gains, roots, transitions, covariances = [], [], [], []
    steady = False
    while not steady and len(gains) < len(z):
        innovation = h @ ahead @ h.T + noise
        gain = np.linalg.solve(innovation, h @ ahead).T
        keep = np.eye(3) - gain @ h
        gains.append(gain)
        roots.append(np.linalg.cholesky(innovation))
        transitions.append(keep @ TRANSITION if covariances else keep)
        covariances.append(keep @ ahead @ keep.T + gain @ noise @ gain.T)
        following = TRANSITION @ covariances[-1] @ TRANSITION.T + density * NOISE
        steady = len(gains) > 1 and bool(np.all(np.abs(following - ahead) <= STEADY * np.abs(ahead)))
        ahead, h = following, H
    # the last gain applies to all further samples
    gain, root, transition = (
        np.array(part)[np.minimum(np.arange(len(z)), len(gains) - 1)] for part in (gains, roots, transitions)
    )
    start = np.array([z[0, 0], 0.0, 0.0])
    states = _recursion((gain @ z[:, :, None])[:, :, 0], transition, start)
    errors = z - np.vstack([start, states[:-1] @ TRANSITION.T]) @ H.T
    innovations = np.full((len(z), 3), np.nan)
    innovations[:, sensors] = np.linalg.solve(root, errors[:, :, None])[:, :, 0]
    innovations[0, 0] = np.nan
    scale = 0.5 * np.log(2.0 * np.pi) + np.log(np.diagonal(root, axis1=1, axis2=2))
    likelihood = -np.nansum(0.5 * innovations[:, sensors] ** 2 + scale)
    variances = np.diagonal(covariances, axis1=1, axis2=2)
    wide = np.flatnonzero((variances > SETTLED**2 * variances[-1]).any(axis=1))
    return _Run(states, covariances, float(likelihood), innovations, int(wide[-1]) + 1 if wide.size else 0)


def _smoothed(run: _Run, density: float) -> np.ndarray:
    """Smoothed states x_k + G_k (x_{k+1} - F x_k), computed backwards from the last sample."""
    covariances, last = np.array(run.covariances), run.state[-1:]
    ahead = TRANSITION @ covariances @ TRANSITION.T + density * NOISE
    gains = np.swapaxes(np.linalg.solve(ahead, TRANSITION @ covariances), 1, 2)
    gains = gains[np.minimum(np.arange(len(run.state) - 1), len(gains) - 1)]
    predicted = run.state[:-1] @ TRANSITION.T
    driven = run.state[:-1] - (gains @ predicted[:, :, None])[:, :, 0]
    return np.concatenate([_recursion(driven[::-1], gains[::-1], last[0])[::-1], last])


def _recursion(driven: np.ndarray, A: np.ndarray, before: np.ndarray) -> np.ndarray:
    """States x_k = A_k x_{k-1} + driven_k [k, 3] from an initial state, solved as one banded system."""
    right = driven.copy()
    right[0] += A[0] @ before
    bands = np.zeros((6, right.size))
    bands[0] = 1.0
    for i, j in np.ndindex(3, 3):
        bands[3 + i - j, j : right.size - 3 : 3] = -A[1:, i, j]
    return solve_banded((5, 0), bands, right.ravel()).reshape(-1, 3)


def _checked(name: str, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    found = np.asarray(values, dtype=float)
    if found.shape != shape:
        raise ValueError(f"{name} has shape {found.shape}, expected {shape} as position")
    bad = ~np.isfinite(found) & ~np.isnan(found).all(axis=0)
    if bad.any():
        raise ValueError(f"{name} holds {found[bad][0]}, expected finite numbers")
    return found


def _positive(name: str, value: float | np.ndarray | None, count: int) -> np.ndarray:
    if value is None:
        raise ValueError(f"{name} is not given, expected the standard deviation of the measurement")
    found = np.asarray(value, dtype=float)
    if found.shape not in ((), (count,)):
        raise ValueError(f"{name} has shape {found.shape}, expected one number or one for each of {count} coordinates")
    if not (np.isfinite(found) & (found > 0.0)).all():
        raise ValueError(f"{name} is {value}, expected positive numbers")
    return np.broadcast_to(found, (count,))
