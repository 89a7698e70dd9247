"""Fourier series of periodic motions from rest to rest, and their scaling to limits."""

from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import scipy.linalg
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.plan.motions.limits import Limits

Vector = TypeVar("Vector", np.ndarray, Array)

SAMPLES = 16
"""Samples per period and harmonic during the optimization."""
FINE = 64
"""Samples per period and harmonic for the scaling to limits and the final criterion."""
SHARP = 40.0
"""Exponent of the p-norm that approximates the largest of many ratios, 2 to 10 % above it."""
SHARP_RANGE = 100.0
"""Sharpness of the log-sum-exp that approximates the largest of many positions."""


class Series(NamedTuple):
    """Values of the series at K samples of a period: for each coordinate z = start + position c, and its derivatives.

    Their coefficients c span those amplitudes a_k of sines and b_k of cosines with sum k a_k = 0 and sum k^2 b_k = 0,
    so that rate and acceleration are 0 at either end of a period.
    """

    position: Float[np.ndarray, "K v"]
    """0 at the start."""
    velocity: Float[np.ndarray, "K v"]
    acceleration: Float[np.ndarray, "K v"]
    amplitudes: Float[np.ndarray, "2h v"]
    """Null-space basis of the amplitudes, sines then cosines."""
    limits: Limits
    around: Float[np.ndarray, "m"]
    """Reference start of coordinates without a range."""
    margin: float
    """Bound of a series between the samples if it is at most 1 at the samples."""


def series_of(harmonics: int, base_hz: float, limits: Limits, around: Float[np.ndarray, "m"], density: int) -> Series:
    """Series of `harmonics` harmonics.

    Args:
        harmonics: number of harmonics, 2 or more: with one only the zero motion starts and ends at rest.
        base_hz: frequency of the first.
        limits: of the coordinates.
        around: reference start of coordinates without a range.
        density: samples per period and harmonic.

    Source: Swevers et al. 1997, "Optimal robot excitation and identification"; for the bound between samples, Ehlich
    and Zeller 1964, "Schwankung von Polynomen zwischen Gitterpunkten".
    """
    k = np.arange(1, harmonics + 1)
    phase = 2.0 * np.pi * np.outer(np.arange(density * harmonics) / (density * harmonics), k)
    w = 2.0 * np.pi * base_hz * k
    null_spaces = [np.asarray(scipy.linalg.null_space(row[None])) for row in (1.0 * k, k**2.0)]
    rest = np.asarray(scipy.linalg.block_diag(*null_spaces))
    sine, cosine = np.sin(phase), np.cos(phase)
    return Series(
        position=np.hstack([sine, cosine - 1.0]) @ rest,
        velocity=np.hstack([w * cosine, -w * sine]) @ rest,
        acceleration=np.hstack([-(w**2) * sine, -(w**2) * cosine]) @ rest,
        amplitudes=rest,
        limits=limits,
        around=around,
        margin=1.0 / float(np.cos(np.pi / density)),
    )


def random_choice(series: Series, draw: np.random.Generator) -> Float[np.ndarray, "m v+1"]:
    """Random optimization vector: coefficients of amplitudes that decrease with the harmonic, and a start."""
    count, harmonics = len(series.around), len(series.amplitudes) // 2
    drawn = draw.normal(size=(count, 2 * harmonics)) / np.tile(np.arange(1, harmonics + 1), 2)
    return np.hstack([drawn @ series.amplitudes, draw.normal(size=(count, 1))])


@compiled
def within(series: Series, choice: Float[Array, "m v+1"]) -> tuple[Float[Array, "m v"], Float[Array, "m"]]:
    """Coefficients and starts [m] of a motion within all limits, a smooth function of any optimization vector.

    A series is scaled by (1 + sum r^p)^(-1/p), r the ratios of its values to their limits, which is below 1 / max r.
    """
    c, limits = choice[:, :-1], series.limits
    width = jnp.asarray(limits.upper - limits.lower)
    low, high = _ends(c @ series.position.T)
    ratios = jnp.concatenate(
        [
            jnp.abs(c @ series.velocity.T) / jnp.asarray(limits.speed)[:, None],
            jnp.abs(c @ series.acceleration.T) / jnp.asarray(limits.acceleration)[:, None],
            ((high - low) / width)[:, None],
        ],
        axis=1,
    )
    ratios = jnp.maximum(series.margin * ratios, 1e-9)
    largest = jnp.max(ratios, axis=1)
    above = jax.lax.stop_gradient(jnp.maximum(largest, 1.0))
    norm = above * (above**-SHARP + jnp.sum((ratios / above[:, None]) ** SHARP, axis=1)) ** (1.0 / SHARP)
    c = c / norm[:, None]
    return c, _start(series, choice[:, -1], low / norm, high / norm)


def at_limits(series: Series, c: np.ndarray, where: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The motion scaled to its limits, and its starts [m].

    Args:
        series: at fine samples.
        c: coefficients [m, v].
        where: start variable [m], -inf to inf over the range; for coordinates without a range the distance from
            `around`.
    """
    limits = series.limits
    position = c @ series.position.T
    span = np.ptp(position, axis=1)
    ratios = np.stack(
        [
            np.abs(c @ series.velocity.T).max(axis=1) / limits.speed,
            np.abs(c @ series.acceleration.T).max(axis=1) / limits.acceleration,
            span / (limits.upper - limits.lower),
        ]
    )
    scale = 1.0 / np.maximum(np.max(ratios, axis=0) * series.margin, 1e-12)
    beyond = 0.5 * (series.margin - 1.0) * scale * span
    low, high = scale * position.min(axis=1) - beyond, scale * position.max(axis=1) + beyond
    return c * scale[:, None], _start(series, where, low, high)


def _ends(position: Array) -> tuple[Array, Array]:
    """Smooth lower and upper bound of the values of each row."""
    size = jax.lax.stop_gradient(jnp.ptp(position, axis=1, keepdims=True)) / SHARP_RANGE + 1e-12
    high = size * jax.nn.logsumexp(position / size, axis=1, keepdims=True)
    low = -size * jax.nn.logsumexp(-position / size, axis=1, keepdims=True)
    return low[:, 0], high[:, 0]


def _start(series: Series, where: Vector, low: Vector, high: Vector) -> Vector:
    """Start of the motion within the part of its range that contains the whole motion."""
    xp = where.__array_namespace__()
    bounded = xp.isfinite(xp.asarray(series.limits.lower))
    lower, upper = (xp.where(bounded, xp.asarray(limit), 0.0) for limit in series.limits[:2])
    room = (upper - lower) - (high - low)
    part = 0.5 * (1.0 + xp.tanh(0.5 * where))
    return xp.where(bounded, lower - low + part * room, series.around + where)
