"""Periodic motions that start and end at rest, as Fourier series, and how they are kept within limits."""

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
"""Of a period, for each harmonic: on which motions are improved."""
FINE = 64
"""Likewise, on which they are brought to their limits and judged."""
SHARP = 40.0
"""Exponent of the norm that stands for the largest of many ratios: 2 to 10 % above it."""
SHARP_RANGE = 100.0
"""Factor in the exponent that stands for the largest of many positions."""


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
    """Sines, then cosines."""
    limits: Limits
    around: Float[np.ndarray, "m"]
    """Where coordinates without a range start, but for what is chosen."""
    margin: float
    """A series that is at most 1 at the samples is at most this between them."""


def series_of(harmonics: int, base_hz: float, limits: Limits, around: Float[np.ndarray, "m"], density: int) -> Series:
    """The series of some harmonics.

    Args:
        harmonics: how many, 2 or more: with one the conditions of rest leave nothing.
        base_hz: of the first of them.
        limits: of the coordinates.
        around: where coordinates without a range start.
        density: samples of a period for each harmonic.

    Source: Swevers et al. 1997, "Optimal robot excitation and identification"; of the largest value between samples,
    Ehlich and Zeller 1964, "Schwankung von Polynomen zwischen Gitterpunkten".
    """
    k = np.arange(1, harmonics + 1)
    phase = 2.0 * np.pi * np.outer(np.arange(density * harmonics) / (density * harmonics), k)
    w = 2.0 * np.pi * base_hz * k
    still = [np.asarray(scipy.linalg.null_space(row[None])) for row in (1.0 * k, k**2.0)]
    rest = np.asarray(scipy.linalg.block_diag(*still))
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
    """What is to be chosen, drawn: amplitudes that fall with the harmonic, and a start."""
    count, harmonics = len(series.around), len(series.amplitudes) // 2
    drawn = draw.normal(size=(count, 2 * harmonics)) / np.tile(np.arange(1, harmonics + 1), 2)
    return np.hstack([drawn @ series.amplitudes, draw.normal(size=(count, 1))])


@compiled
def within(series: Series, choice: Float[Array, "m v+1"]) -> tuple[Float[Array, "m v"], Float[Array, "m"]]:
    """Coefficients and starts [m] of a motion within all limits, for any choice, as a smooth function of it.

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
    """The same motion as large as its limits allow, and its starts.

    Args:
        series: at its finest.
        c: coefficients [m, v].
        where: of a range the start takes [m], -inf to inf; or the distance from `around` where there is no range.
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
    """Smooth lowest and highest value of each row, a little beyond them."""
    size = jax.lax.stop_gradient(jnp.ptp(position, axis=1, keepdims=True)) / SHARP_RANGE + 1e-12
    high = size * jax.nn.logsumexp(position / size, axis=1, keepdims=True)
    low = -size * jax.nn.logsumexp(-position / size, axis=1, keepdims=True)
    return low[:, 0], high[:, 0]


def _start(series: Series, where: Vector, low: Vector, high: Vector) -> Vector:
    """Where the motion starts: anywhere in its range that leaves room for it."""
    xp = where.__array_namespace__()
    bounded = xp.isfinite(xp.asarray(series.limits.lower))
    lower, upper = (xp.where(bounded, xp.asarray(limit), 0.0) for limit in series.limits[:2])
    room = (upper - lower) - (high - low)
    part = 0.5 * (1.0 + xp.tanh(0.5 * where))
    return xp.where(bounded, lower - low + part * room, series.around + where)
