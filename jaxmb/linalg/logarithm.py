"""Logarithm of a ratio of FRFs."""

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
"""Coefficients of the rational function of t^2 for (atan(t) / t - 1) / t^2, |t| <= tan(pi / 8)."""
_SERIES = (
    1.479819860511658591e-1, 1.531383769920937332e-1, 1.818357216161805012e-1, 2.222219843214978396e-1,
    2.857142874366239149e-1, 3.999999999940941908e-1, 6.666666666666735130e-1,
)  # fmt: skip
"""Coefficients of the polynomial in s^2 for (log((1 + s) / (1 - s)) / s - 2) / s^2, |s| <= 3 - sqrt(8)."""
_LOG_2 = 6.93147180369123816490e-1, 1.90821492927058770002e-10
"""log 2 as a sum of two numbers; products of the first with exponents are exact."""


@jax.custom_jvp
def log_ratio(a: Complex[Array, "..."], b: Complex[Array, "..."]) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Real and imaginary part of log(a / b), the imaginary part between -pi and pi.

    Several times faster on CPUs than JAX's complex logarithm, which guards against overflow of squares and whose real
    logarithm and arc tangent are not vectorized. The derivative is da / a - db / b, with one division for all da.
    """
    reciprocal = 1.0 / (b.real**2 + b.imag**2)
    re, im = (a.real * b.real + a.imag * b.imag) * reciprocal, (a.imag * b.real - a.real * b.imag) * reciprocal
    return 0.5 * log_of_positive(re**2 + im**2), angle(re, im)


def log_of_positive(x: Float[Array, "..."]) -> Float[Array, "..."]:
    """log(x) for x >= 0 with relative error 3e-16; -inf for subnormal numbers. Not differentiable.

    x = 2^k m with sqrt(1/2) <= m < sqrt(2), and log m from s = (m - 1) / (m + 1), f = m - 1. `jnp.log` is used for
    other precisions than double.

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
    value = exponent * _LOG_2[0] - (half - (s * (half + series) + exponent * _LOG_2[1]) - f)
    value = jnp.where(x < jnp.finfo(x.dtype).tiny, -jnp.inf, value)
    return jnp.where(x < jnp.inf, value, x)


def angle(re: Float[Array, "..."], im: Float[Array, "..."]) -> Float[Array, "..."]:
    """Angle of complex numbers, -pi to pi, rad, with error 1e-15; 0 for 0. Not differentiable where a part is 0.

    Source: the rational function is that of S. L. Moshier's Cephes library, atan.c.
    """
    long, short = jnp.maximum(jnp.abs(re), jnp.abs(im)), jnp.minimum(jnp.abs(re), jnp.abs(im))
    reduced = short > 0.41421356237309505 * long  # reduced by pi / 4
    numerator_part, denominator_part = jnp.where(reduced, short - long, short), jnp.where(reduced, short + long, long)
    t = numerator_part / jnp.where(long > 0.0, denominator_part, 1.0)
    square = t * t
    numerator, denominator = jnp.array(_NUMERATOR, t.dtype), jnp.array(_DENOMINATOR, t.dtype)
    result = t * square * jnp.polyval(numerator, square) / jnp.polyval(denominator, square) + t
    result = jnp.where(reduced, result + 0.25 * jnp.pi, result)
    result = jnp.where(jnp.abs(im) > jnp.abs(re), 0.5 * jnp.pi - result, result)
    result = jnp.where(re < 0.0, jnp.pi - result, result)
    return jnp.where(im < 0.0, -result, result)


def _log_ratio_jvp(
    primals: tuple[Array, Array], tangents: tuple[Any, Any]
) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    a, b = primals
    re, im = log_ratio(a, b)
    d_re, d_im = jnp.zeros_like(re), jnp.zeros_like(im)
    for number, tangent, sign in ((a, tangents[0], 1.0), (b, tangents[1], -1.0)):
        if not isinstance(tangent, SymbolicZero):
            reciprocal = sign / (number.real**2 + number.imag**2)
            da_factor, db_factor = number.real * reciprocal, number.imag * reciprocal
            d_re = d_re + tangent.real * da_factor + tangent.imag * db_factor
            d_im = d_im + tangent.imag * da_factor - tangent.real * db_factor
    return (re, im), (d_re, d_im)


log_ratio.defjvp(_log_ratio_jvp, symbolic_zeros=True)
