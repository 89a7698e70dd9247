"""Frequency responses of a linearized machine, and their derivatives in closed form."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Complex, Float

from jaxmb.linalg.small_solve import DynamicStiffness, Parts, in_parts, response, solutions

Support = tuple[tuple[int, int], ...]
"""Entries (row, column) of the matrices that may change."""

FEW = 40
"""Coordinates up to which a solve at each frequency is faster than the modal form."""
MOST_DIRECTIONS = 80
"""Damper directions in modal coordinates above which, or above a fourth of all, each frequency is factorized."""
EXACT = 1e6
"""Square of a frequency relative to the lowest mode up to which the modal form is exact to 1e-10; beyond it, rounding
of the flexibility of nearly unconstrained modes dominates."""


def receptance(
    mass: Float[Array, "n n"],
    damping: Float[Array, "n n"],
    stiffness: Float[Array, "n n"],
    omega: Float[Array, "f"],
    outputs: Float[Array, "o n"],
    inputs: Float[Array, "i n"],
    support: Support | None = None,
    structural: Float[Array, "n n"] | None = None,
    fractional: tuple[Float[Array, "n n"], Complex[Array, "f"]] | None = None,
) -> Complex[Array, "f o i"]:
    """Displacement at the outputs for a unit force at the inputs: H = O (K + j D + p E + j w C - w^2 M)^-1 I^T.

    The derivative assumes symmetric M, C, K, D and E, as of any machine at rest. Its closed form,
    dH = -X_o^T dZ X_i with X = Z^-1 O^T or Z^-1 I^T, costs for all parameters about as much as H itself, where
    differentiating the solve costs a solve for each.

    Args:
        mass: M [n, n].
        damping: C [n, n].
        stiffness: K [n, n].
        omega: angular frequencies [f], rad/s.
        outputs: O [o, n].
        inputs: I [i, n]; pass the outputs' array for the same points, which saves their solve.
        structural: D [n, n] of structural damping; None without.
        fractional: E [n, n] of fractional damping and its factor p at each frequency; None without.
        support: entries of M, C, K, D and E that have derivatives, if known; springs and dampers on coordinates affect
            the diagonal only, which makes their derivatives n times cheaper.

    Returns:
        H [f, o, i], m/N where inputs are forces and outputs are translations.
    """
    matrix, power = (None, None) if fractional is None else fractional
    z = DynamicStiffness(mass, damping, stiffness, omega, structural, matrix, power)
    return _receptance(support, outputs is inputs, z, outputs, inputs)


def receptance_by_entries(
    z: DynamicStiffness, outputs: Float[Array, "o n"], inputs: Float[Array, "i n"], support: Support
) -> tuple[Complex[Array, "f o i"], Parts]:
    """`receptance`, and -dH / dZ_e [e, o, i, f] for each entry e of the dynamic stiffness."""
    value, x_i, x_o = _solved(outputs is inputs, z, outputs, inputs)
    return value, _by_entries(support, x_o, x_i)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _receptance(support: Support | None, same: bool, z: DynamicStiffness, outputs: Array, inputs: Array) -> Array:
    if z.mass.shape[0] <= FEW:
        return response(z, outputs, inputs, same)
    return _of_many(z, outputs, inputs, same, keep=False)[0]


@functools.partial(_receptance.defjvp, symbolic_zeros=True)
def _receptance_jvp(
    support: Support | None, same: bool, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    z, outputs, inputs = primals
    d_z, d_outputs, d_inputs = tangents
    value, x_i, x_o = _solved(same, z, outputs, inputs)
    w = z.omega
    power = 0.0 if z.power is None else -z.power
    by_matrix = [
        (part, factor)
        for part, factor in (
            (d_z.stiffness, -1.0), (d_z.damping, -1j * w), (d_z.mass, w**2), (d_z.structural, -1j),
            (d_z.fractional, power),
        )
        if _is_nonzero(part)
    ]  # fmt: skip
    by_line = []
    if _is_nonzero(d_z.omega):
        by_line += [(z.damping, -1j * d_z.omega), (z.mass, 2.0 * w * d_z.omega)]
    if z.fractional is not None and _is_nonzero(d_z.power):
        by_line.append((z.fractional, -d_z.power))
    change = jnp.zeros_like(value)
    if support is not None and by_matrix:
        change = change + _through_entries(support, by_matrix, x_o, x_i)
    if all_terms := by_line + (by_matrix if support is None else []):
        change = change + _through(all_terms, x_o, x_i)
    if _is_nonzero(d_outputs):
        change = change + jnp.einsum("on,nif->foi", d_outputs, x_i.as_complex())
    if _is_nonzero(d_inputs):
        change = change + jnp.einsum("nof,in->foi", x_o.as_complex(), d_inputs)
    return value, change


def _solved(same: bool, z: DynamicStiffness, outputs: Array, inputs: Array) -> Any:
    """H, X_i and X_o."""
    if z.mass.shape[0] <= FEW:
        return solutions(same, z, outputs, inputs)
    return _of_many(z, outputs, inputs, same, keep=True)


def _is_nonzero(tangent: Any) -> bool:
    return tangent is not None and not isinstance(tangent, SymbolicZero)


def _through(matrices: Sequence[tuple[Any, Any]], x_o: Parts, x_i: Parts) -> Complex[Array, "f o i"]:
    """Sum over real matrices A and their factors at the lines of factor X_o^T A X_i."""
    changed = sum(
        jax.lax.complex(*(jnp.einsum("nm,mif->nif", matrix, part) for part in x_i)) * factor
        for matrix, factor in matrices
    )
    return jnp.einsum("nof,nif->foi", x_o.as_complex(), changed)


def _through_entries(
    support: Support, matrices: Sequence[tuple[Any, Any]], x_o: Parts, x_i: Parts
) -> Complex[Array, "f o i"]:
    """`_through` for matrices that are zero outside `support`.

    For many tangents at once it is a matrix product, without a transposition of its result.
    """
    row, column = _rows_and_columns(support)
    entries = _by_entries(support, x_o, x_i)
    scaled = [entries.times(factor) for _, factor in matrices]
    tangents = jnp.concatenate([matrix[row, column] for matrix, _ in matrices])
    parts = (jnp.concatenate(part).transpose(3, 1, 2, 0) for part in zip(*scaled, strict=True))
    return jax.lax.complex(*(part @ tangents for part in parts))


def _by_entries(support: Support, x_o: Parts, x_i: Parts) -> Parts:
    """X_o[row] X_i[column] of each entry."""
    row, column = _rows_and_columns(support)
    from_o = Parts(x_o.re[row][:, :, None], x_o.im[row][:, :, None])
    return from_o.times(Parts(x_i.re[column][:, None], x_i.im[column][:, None]))


def _rows_and_columns(support: Support) -> np.ndarray:
    return np.array(support, dtype=int).reshape(-1, 2).T


def _of_many(z: DynamicStiffness, outputs: Array, inputs: Array, same: bool, keep: bool) -> Any:
    """H, and X_i and X_o if `keep`, of a machine with many coordinates: by uncoupled modes, by modes coupled by few
    dampers, or by a solve at each line, chosen at run time."""
    count = inputs.shape[0]
    rows = inputs if same or not keep else jnp.concatenate([inputs, outputs])
    mu, shapes, viscous, lossy = modal_form(z.mass, z.damping, z.stiffness, z.structural)
    fractional_modal = None if z.fractional is None else shapes.T @ z.fractional @ shapes

    def factors(viscous_part: Array) -> Array:
        w = z.omega[:, None]
        diagonal = jax.lax.complex(1.0 - w**2 * mu, w * viscous_part + jnp.diagonal(lossy))
        if fractional_modal is None or z.power is None:
            return diagonal
        return diagonal + z.power[:, None] * jnp.diagonal(fractional_modal)

    def solved(x: Array) -> Any:
        h = jnp.einsum("on,fni->foi", outputs, x[..., :count])
        if not keep:
            return (h,)
        to_inputs = in_parts(x[..., :count])
        return h, to_inputs, to_inputs if same else in_parts(x[..., count:])

    def by_modes() -> Any:
        # V F^-1 V^T B^T for diagonal F [f, n]
        modal_load, diagonal = shapes.T @ rows.T, factors(jnp.diagonal(viscous))
        return solved(jnp.einsum("nm,fmk->fnk", shapes, modal_load / diagonal[:, :, None]))

    def by_dampers() -> Any:
        size, directions = jnp.linalg.eigh(viscous)
        order = jnp.argsort(-jnp.abs(size))
        size, limit = size[order], min(MOST_DIRECTIONS, z.mass.shape[0] // 4)
        zero = jnp.zeros_like(mu)
        return jax.lax.cond(
            highest * jnp.abs(size[limit]) <= UNCOUPLED,
            lambda: solved(
                with_dampers(shapes, rows, factors(zero), z.omega, size[:limit], directions[:, order[:limit]])
            ),
            at_lines,
        )

    def at_lines() -> Any:
        return solutions(same, z, outputs, inputs) if keep else (response(z, outputs, inputs, same),)

    highest = jnp.max(jnp.abs(z.omega))
    coupling = off_diagonal(lossy)
    if fractional_modal is not None and z.power is not None:
        coupling = coupling + jnp.max(jnp.abs(z.power)) * off_diagonal(fractional_modal)
    viscous_coupling = highest * off_diagonal(viscous)
    # with rigid-body modes K has no Cholesky factor, or one of rounding errors
    coupling = jnp.where(highest**2 * mu[0] <= EXACT, coupling, jnp.inf)
    branch = jnp.where(coupling + viscous_coupling <= UNCOUPLED, 0, jnp.where(coupling <= UNCOUPLED, 1, 2))
    return jax.lax.switch(branch, [by_modes, by_dampers, at_lines])


@jax.custom_jvp
def eigenpairs(matrix: Float[Array, "m m"]) -> tuple[Complex[Array, "m"], Complex[Array, "m m"]]:
    """Eigenvalues and right eigenvectors (columns) of a real matrix, differentiable.

    dA in the eigenvectors' basis, P = V^-1 dA V, gives d lambda = diag P and dV = V (P / (lambda_j - lambda_i)). The
    derivatives are valid for quantities independent of the vectors' scale; vectors of a repeated eigenvalue have none.
    """
    values, vectors = jnp.linalg.eig(matrix)
    return values, vectors


@eigenpairs.defjvp
def _eigenpairs_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[tuple[Array, Array], tuple[Array, Array]]:
    (matrix,), (d_matrix,) = primals, tangents
    values, vectors = eigenpairs(matrix)
    projected = jnp.linalg.solve(vectors, d_matrix.astype(vectors.dtype) @ vectors)
    gap = values[None, :] - values[:, None]
    size = jnp.abs(values)
    same = jnp.abs(gap) <= 1e-10 * (size[None, :] + size[:, None])
    coupling = jnp.where(same, 0.0, projected / jnp.where(same, 1.0, gap))
    return (values, vectors), (jnp.diagonal(projected), vectors @ coupling)


def symmetric_pencil(
    stiffness: Float[Array, "n n"], mass: Float[Array, "n n"]
) -> tuple[Float[Array, "n"], Float[Array, "n n"]]:
    """Eigenvalues, ascending, and mass-normalized eigenvectors of K v = lambda M v, M positive definite."""
    lower = jnp.linalg.cholesky(mass)
    half = jax.scipy.linalg.solve_triangular(lower, stiffness, lower=True)
    reduced = jax.scipy.linalg.solve_triangular(lower, half.T, lower=True)
    values, vectors = jnp.linalg.eigh(0.5 * (reduced + reduced.T))
    return values, jax.scipy.linalg.solve_triangular(lower, vectors, lower=True, trans=1)


UNCOUPLED = 1e-10
"""Damping between two modes, relative to their stiffness, attributed to rounding: damping is then proportional."""
UNCONSTRAINED = 1e8
"""Ratio of squares of neighbouring frequencies of the lowest modes above which the lower ones are rigid-body modes."""
NEAREST = 12
"""Modes nearest to resonance that are not eliminated where dampers couple modes."""


def with_dampers(shapes: Array, rows: Array, factors: Array, omega: Array, size: Array, directions: Array) -> Array:
    """V Z^-1 V^T B^T with Z = F + j w U S U^T, F and S diagonal, with few damper directions U [n, r].

    With y = j w S U^T x it is F x + U y = b. The unknowns are y and the modes nearest to resonance, where F is small;
    the other modes are eliminated.
    """
    count, near = size.shape[0], min(NEAREST, shapes.shape[0])
    damper = 1j * omega[:, None] * size
    line, closest = jnp.arange(omega.size)[:, None], jax.lax.top_k(-jnp.abs(factors), near)[1]
    inverse = (1.0 / factors).at[line, closest].set(0.0)
    products = (directions[:, :, None] * directions[:, None, :]).reshape(-1, count**2)
    modal_flexibility = jax.lax.complex(inverse.real @ products, inverse.imag @ products).reshape(-1, count, count)
    of_near = directions[closest].astype(factors.dtype)
    load = shapes.T @ rows.T
    free = inverse[:, :, None] * load
    upper = jnp.concatenate([jax.vmap(jnp.diag)(factors[line, closest]), of_near], axis=2)
    lower = jnp.concatenate(
        [-damper[:, :, None] * jnp.swapaxes(of_near, 1, 2), jnp.eye(count) + damper[:, :, None] * modal_flexibility],
        axis=2,
    )
    right = jnp.concatenate([load[closest], damper[:, :, None] * jnp.einsum("nr,fnk->frk", directions, free)], axis=1)
    solution = jnp.linalg.solve(jnp.concatenate([upper, lower], axis=1), right)
    modal_solution = free - inverse[:, :, None] * jnp.einsum("nr,frk->fnk", directions, solution[:, near:])
    return jnp.einsum("nm,fmk->fnk", shapes, modal_solution.at[line, closest].set(solution[:, :near]))


def modal_form(
    mass: Array, damping: Array, stiffness: Array, structural: Array | None
) -> tuple[Array, Array, Array, Array]:
    """1 / omega^2 of undamped modes, descending, their shapes V, V^T C V and V^T D V; V^T K V = I.

    This form is most accurate for the lowest modes.
    """
    mu, shapes = symmetric_pencil(mass, stiffness)
    mu, shapes = mu[::-1], shapes[:, ::-1]
    viscous = shapes.T @ damping @ shapes
    lossy = jnp.zeros_like(mass) if structural is None else shapes.T @ structural @ shapes
    return mu, shapes, viscous, lossy


def off_diagonal(matrix: Array) -> Array:
    """Largest magnitude off the diagonal."""
    return jnp.max(jnp.abs(matrix - jnp.diag(jnp.diagonal(matrix))))


def damped_modes(
    mass: Float[Array, "n n"], damping: Float[Array, "n n"], stiffness: Float[Array, "n n"],
    structural: Float[Array, "n n"] | None,
) -> tuple[Complex[Array, "n"], Complex[Array, "n n"], Bool[Array, ""]]:  # fmt: skip
    """Eigenvalues with Im >= 0 by ascending frequency and shapes (columns) of (s^2 M + s C + K + j D) v = 0, and
    whether damping is proportional; if not, they are invalid.

    M, C, K and D are symmetric, K positive definite. The derivative of a repeated eigenvalue's shape within its
    subspace, which does not exist, is set to 0.
    """
    return _damped_modes(mass, damping, stiffness, jnp.zeros_like(mass) if structural is None else structural)


@jax.custom_jvp
def _damped_modes(mass: Array, damping: Array, stiffness: Array, structural: Array) -> tuple[Array, Array, Array]:
    mu, shapes, viscous, lossy = modal_form(mass, damping, stiffness, structural)
    c, eta = jnp.diagonal(viscous), jnp.diagonal(lossy)
    radicand = jnp.sqrt(c**2 - 4.0 * mu * jax.lax.complex(jnp.ones_like(eta), eta))
    root = (-c + jnp.where(radicand.imag < 0.0, -radicand, radicand)) / (2.0 * mu)
    coupling = off_diagonal(lossy) + jnp.sqrt(1.0 / jnp.abs(mu[-1])) * off_diagonal(viscous)
    lowest = mu[: NEAREST + 1]
    is_constrained = jnp.max(lowest[:-1] / lowest[1:]) <= UNCONSTRAINED
    return root, shapes.astype(root.dtype), (coupling <= UNCOUPLED) & is_constrained


@_damped_modes.defjvp
def _damped_modes_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Any, Any]:
    """dZ = s^2 dM + s dC + dK + j dD in modal coordinates: ds_i = -dZ_ii / (2 s_i mu_i + c_i), and the component j of
    the change of shape i is -dZ_ji / Z_jj(s_i)."""
    mass, damping, _, structural = primals
    root, shapes, proportional = _damped_modes(*primals)
    real = shapes.real
    mu, c, eta = (jnp.einsum("ni,nm,mi->i", real, part, real) for part in (mass, damping, structural))
    d_mass, d_damping, d_stiffness, d_structural = (real.T @ part @ real for part in tangents)
    s = root[None, :]
    change = s**2 * d_mass + s * d_damping + jax.lax.complex(d_stiffness, d_structural)
    pole_distance = s**2 * mu[:, None] + s * c[:, None] + 1.0 + 1j * eta[:, None]
    same = jnp.abs(root[:, None] - s) <= 1e-10 * (jnp.abs(root[:, None]) + jnp.abs(s))
    coupling = jnp.where(same, 0.0, -change / jnp.where(same, 1.0, pole_distance))
    d_root = -jnp.diagonal(change) / (2.0 * root * mu + c)
    return (root, shapes, proportional), (d_root, shapes @ coupling, np.zeros((), jax.dtypes.float0))


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


@functools.partial(log_ratio.defjvp, symbolic_zeros=True)
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
