"""The logarithm of a ratio of FRFs."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Complex, Float

_NUMERATOR = (
    -8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
    -1.228866684490136173410e2, -6.485021904942025371773e1,
)  # fmt: skip
_DENOMINATOR = (
    1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2, 4.853903996359136964868e2,
    1.945506571482613964425e2,
)  # fmt: skip
"""Of the rational function of t^2 that is (atan(t) / t - 1) / t^2, |t| <= tan(pi / 8)."""


@jax.custom_jvp
def log_ratio(a: Complex[Array, "..."], b: Complex[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Real and imaginary part of log(a / b), the imaginary one within half a turn.

    JAX's own logarithm of a complex number is safe against squares that overflow, which ratios of responses are far
    from, and its arc tangent is not vectorized on CPUs: together they take several times longer. The derivative,
    da / a - db / b, divides once for all changes of a.
    """
    over = 1.0 / (b.real**2 + b.imag**2)
    re, im = (a.real * b.real + a.imag * b.imag) * over, (a.imag * b.real - a.real * b.imag) * over
    return 0.5 * jnp.log(re**2 + im**2), angle(re, im)


def angle(re: Float[Array, "..."], im: Float[Array, "..."]) -> Float[Array, "..."]:
    """Angle of complex numbers, -pi to pi, rad, to 1e-15; 0 of 0. It has no derivative where one part vanishes.

    Source: the rational function is that of S. L. Moshier's Cephes library, atan.c.
    """
    long, short = jnp.maximum(jnp.abs(re), jnp.abs(im)), jnp.minimum(jnp.abs(re), jnp.abs(im))
    beyond = short > 0.41421356237309505 * long  # an eighth of a turn is taken off
    above, below = jnp.where(beyond, short - long, short), jnp.where(beyond, short + long, long)
    t = above / jnp.where(long > 0.0, below, 1.0)
    square = t * t
    part = t * square * jnp.polyval(jnp.array(_NUMERATOR), square) / jnp.polyval(jnp.array(_DENOMINATOR), square) + t
    part = jnp.where(beyond, part + 0.25 * jnp.pi, part)
    part = jnp.where(jnp.abs(im) > jnp.abs(re), 0.5 * jnp.pi - part, part)
    part = jnp.where(re < 0.0, jnp.pi - part, part)
    return jnp.where(im < 0.0, -part, part)


def _log_ratio_jvp(
    primals: tuple[Array, Array], tangents: tuple[Any, Any]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    a, b = primals
    re, im = log_ratio(a, b)
    d_re, d_im = jnp.zeros_like(re), jnp.zeros_like(im)
    for number, moved, sign in ((a, tangents[0], 1.0), (b, tangents[1], -1.0)):
        if not isinstance(moved, SymbolicZero):
            over = sign / (number.real**2 + number.imag**2)
            by_re, by_im = number.real * over, number.imag * over
            d_re = d_re + moved.real * by_re + moved.imag * by_im
            d_im = d_im + moved.imag * by_re - moved.real * by_im
    return (re, im), (d_re, d_im)


log_ratio.defjvp(_log_ratio_jvp, symbolic_zeros=True)
