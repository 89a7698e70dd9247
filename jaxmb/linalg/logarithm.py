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
_SERIES = (
    1.479819860511658591e-1, 1.531383769920937332e-1, 1.818357216161805012e-1, 2.222219843214978396e-1,
    2.857142874366239149e-1, 3.999999999940941908e-1, 6.666666666666735130e-1,
)  # fmt: skip
"""Of the polynomial in s^2 that is (log((1 + s) / (1 - s)) / s - 2) / s^2, |s| <= 3 - sqrt(8)."""
_LOG_2 = 6.93147180369123816490e-1, 1.90821492927058770002e-10
"""log 2 in two parts: multiples of the first, by exponents, are exact."""


@jax.custom_jvp
def log_ratio(a: Complex[Array, "..."], b: Complex[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Real and imaginary part of log(a / b), the imaginary one within half a turn.

    JAX's own logarithm of a complex number is safe against squares that overflow, which ratios of responses are far
    from, and neither its real logarithm nor its arc tangent is vectorized on CPUs: together they take several times
    longer. The derivative, da / a - db / b, divides once for all changes of a.
    """
    over = 1.0 / (b.real**2 + b.imag**2)
    re, im = (a.real * b.real + a.imag * b.imag) * over, (a.imag * b.real - a.real * b.imag) * over
    return 0.5 * log_of_positive(re**2 + im**2), angle(re, im)


def log_of_positive(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(x) for x >= 0 to a relative 3e-16; of subnormal numbers it is that of 0. It is not to be differentiated.

    x = 2^k m with sqrt(1/2) <= m < sqrt(2), and log m from s = (m - 1) / (m + 1), f = m - 1. Numbers that are not of
    double precision are left to `jnp.log`.

    Source: the polynomial is that of Sun Microsystems' fdlibm, e_log.c.
    """
    if x.dtype != jnp.float64:
        return jnp.log(x)
    bits = jax.lax.bitcast_convert_type(x, jnp.int64)
    k = (bits - 0x3FE6A09E667F3BCD) >> 52  # sqrt(1/2)
    m = jax.lax.bitcast_convert_type(bits - (k << 52), jnp.float64)
    exponent, f = k.astype(x.dtype), m - 1.0
    s, half = f / (2.0 + f), 0.5 * f * f
    series = s * s * jnp.polyval(jnp.array(_SERIES), s * s)
    found = exponent * _LOG_2[0] - (half - (s * (half + series) + exponent * _LOG_2[1]) - f)
    found = jnp.where(x < jnp.finfo(x.dtype).tiny, -jnp.inf, found)
    return jnp.where(x < jnp.inf, found, x)


def angle(re: Float[Array, "..."], im: Float[Array, "..."]) -> Float[Array, "..."]:
    """Angle of complex numbers, -pi to pi, rad, to 1e-15; 0 of 0. It has no derivative where one part vanishes.

    Source: the rational function is that of S. L. Moshier's Cephes library, atan.c.
    """
    long, short = jnp.maximum(jnp.abs(re), jnp.abs(im)), jnp.minimum(jnp.abs(re), jnp.abs(im))
    beyond = short > 0.41421356237309505 * long  # an eighth of a turn is taken off
    above, below = jnp.where(beyond, short - long, short), jnp.where(beyond, short + long, long)
    t = above / jnp.where(long > 0.0, below, 1.0)
    square = t * t
    numerator, denominator = jnp.array(_NUMERATOR, t.dtype), jnp.array(_DENOMINATOR, t.dtype)
    part = t * square * jnp.polyval(numerator, square) / jnp.polyval(denominator, square) + t
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
