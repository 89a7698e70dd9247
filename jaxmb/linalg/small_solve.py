"""H = O Z^-1 I^T, X_i = Z^-1 I^T and X_o = Z^-T O^T by the fastest solver available for the size and platform."""

import functools
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.custom_batching import sequential_vmap
from jaxtyping import Array, Bool, Complex, Float

from jaxmb import native


class DynamicStiffness(NamedTuple):
    """Z = K + j D + p E + j w C - w^2 M at every frequency line."""

    mass: Float[Array, "n n"]
    damping: Float[Array, "n n"]
    stiffness: Float[Array, "n n"]
    omega: Float[Array, "f"]
    structural: Float[Array, "n n"] | None = None
    """D."""
    fractional: Float[Array, "n n"] | None = None
    """E."""
    power: Complex[Array, "f"] | None = None
    """p at every line; None without E."""

    def at_lines(self) -> tuple[Float[Array, "n n f"], Float[Array, "n n f"]]:
        """Real and imaginary part of Z, lines last."""
        w = self.omega
        real = self.stiffness[..., None] - w**2 * self.mass[..., None]
        imaginary = w * self.damping[..., None]
        if self.structural is not None:
            imaginary = imaginary + self.structural[..., None]
        if self.fractional is not None and self.power is not None:
            real = real + self.power.real * self.fractional[..., None]
            imaginary = imaginary + self.power.imag * self.fractional[..., None]
        return real, imaginary

    def matrices(self) -> Complex[Array, "f n n"]:
        """Z of each line."""
        return jax.lax.complex(*self.at_lines()).transpose(2, 0, 1)


class Parts(NamedTuple):
    """Complex numbers as real and imaginary parts, frequency lines last, for vectorized arithmetic."""

    re: Float[Array, "... f"]
    im: Float[Array, "... f"]

    def as_complex(self) -> Complex[Array, "... f"]:
        """Complex array of the parts."""
        return jax.lax.complex(self.re, self.im)

    def times(self, factor: Any) -> "Parts":
        """Product with other parts, or with real or complex numbers."""
        if isinstance(factor, Parts):
            return Parts(self.re * factor.re - self.im * factor.im, self.re * factor.im + self.im * factor.re)
        if jnp.iscomplexobj(factor):
            return self.times(Parts(jnp.real(factor), jnp.imag(factor)))
        return Parts(self.re * factor, self.im * factor)


Solved = tuple[Complex[Array, "f o i"], Any, Any]
"""H, and X_i = Z^-1 I^T [n, i, f] and X_o = Z^-T O^T [n, o, f] as `Parts`, or None where not requested."""

GROWTH = 1e3
"""Largest sum of the updates of a diagonal entry, relative to the magnitudes it is composed of, without pivoting: a
loss of three of sixteen digits."""
ASYMMETRY = 1e-12
"""Difference of two symmetric entries, relative to the diagonal, that is attributed to rounding."""
GROUPS = 3
"""Groups of pivots: more of them save arithmetic, and take longer to compile."""
VECTOR = 4
"""Numbers in a vector register, for which XLA compiles."""


def pivoted(
    z: DynamicStiffness, outputs: Float[Array, "o n"], inputs: Float[Array, "i n"], same: bool, keep: bool
) -> Solved:
    """Solution by LU with partial pivoting, for any Z.

    Args:
        z: dynamic stiffness.
        outputs: O.
        inputs: I.
        same: whether outputs and inputs are the same, so that X_o is X_i.
        keep: whether X_i and X_o are requested.
    """
    matrices = z.matrices()
    lines, size = z.omega.size, inputs.shape[-1]
    factors = jax.scipy.linalg.lu_factor(matrices)

    def solve(rows: Array, transposed: int) -> Array:
        right = jnp.broadcast_to(rows.T.astype(matrices.dtype), (lines, size, rows.shape[0]))
        each = jax.vmap(lambda lu, order, b: jax.scipy.linalg.lu_solve((lu, order), b, transposed))
        return each(factors[0], factors[1], right)

    to_inputs = solve(inputs, 0)
    h = jnp.einsum("on,fni->foi", outputs, to_inputs)
    if not keep:
        return h, None, None
    solution = in_parts(to_inputs)
    return h, solution, solution if same else in_parts(solve(outputs, 1))


def in_parts(solution: Complex[Array, "f n k"]) -> Parts:
    """A complex solution as `Parts` [n, k, f]."""
    return Parts(solution.real.transpose(1, 2, 0), solution.imag.transpose(1, 2, 0))


def eliminated(z: DynamicStiffness, outputs: Array, inputs: Array, same: bool, keep: bool) -> Solved:
    """Solution without pivoting, in a loop over the pivots vectorized over lines; with pivoting where digits are lost.

    A batch of machines is solved sequentially, so that each is checked separately and its matrices stay in the
    processor's cache. Arguments as those of `pivoted`.
    """

    @sequential_vmap
    def one(z: DynamicStiffness, outputs: Array, inputs: Array) -> Solved:
        solution, exact = _without_pivoting(z, outputs, inputs, same, keep)
        return jax.lax.cond(exact, lambda: solution, lambda: pivoted(z, outputs, inputs, same, keep))

    return one(z, outputs, inputs)


def _without_pivoting(
    z: DynamicStiffness, outputs: Array, inputs: Array, same: bool, keep: bool
) -> tuple[Solved, Bool[Array, ""]]:
    """Solution for a symmetric Z, and whether Z was symmetric and no digits were lost.

    In [[Z, I^T], [O, 0]] the rows below each pivot are reduced, which replaces the 0 by -H, and, if X is requested,
    those above as well. Pivots are processed in a few groups: the columns of a finished group are dropped, and its rows
    where they are not needed.
    """
    size, count, output_count, line_count = inputs.shape[-1], inputs.shape[0], outputs.shape[0], z.omega.size
    rows = inputs if same or not keep else jnp.concatenate([inputs, outputs])
    z = _padded_to_vectors(z)
    lines = z.omega.size
    below = jnp.concatenate([outputs, jnp.zeros((output_count, rows.shape[0]), rows.dtype)], axis=1)
    re, im = z.at_lines()
    re = jnp.concatenate([re, jnp.broadcast_to(rows.T[..., None], (size, rows.shape[0], lines))], axis=1)
    re = jnp.concatenate([re, jnp.broadcast_to(below[..., None], (*below.shape, lines))])
    im = jnp.pad(im, ((0, output_count), (0, rows.shape[0]), (0, 0)))
    removed, diagonal = jnp.zeros((size, lines), re.dtype), []
    for first, last in itertools.pairwise(sorted({size * k // GROUPS for k in range(GROUPS + 1)})):
        re, im, own, removed_here = _reduced(re, im, first if keep else 0, last - first, size - first)
        removed = removed.at[first:].add(removed_here)
        diagonal.append(own)
        begin = 0 if keep else last - first
        re, im = re[begin:, last - first :], im[begin:, last - first :]
    d_re, d_im = jnp.concatenate(diagonal, axis=1)
    exact = jnp.all(removed + jnp.abs(d_re) + jnp.abs(d_im) <= GROWTH * _diagonal_magnitude(z)) & _symmetric(z)
    re, im = re[..., :line_count], im[..., :line_count]
    h = jax.lax.complex(-re[-output_count:, :count], -im[-output_count:, :count]).transpose(2, 0, 1)
    if not keep:
        return (h, None, None), exact
    d_re, d_im = d_re[:, None, :line_count], d_im[:, None, :line_count]
    inverse_square = 1.0 / (d_re**2 + d_im**2)
    re, im = re[:size], im[:size]
    x_re, x_im = (re * d_re + im * d_im) * inverse_square, (im * d_re - re * d_im) * inverse_square
    to_inputs = Parts(x_re[:, :count], x_im[:, :count])
    return (h, to_inputs, to_inputs if same else Parts(x_re[:, count:], x_im[:, count:])), exact


def _reduced(re: Array, im: Array, offset: int, count: int, rest: int) -> tuple[Array, Array, Array, Array]:
    """A matrix reduced by `count` pivots from row `offset` and column 0, the pivots, and the sum of the updates of
    `rest` diagonal entries.

    The loop also carries the pivot's row and factors, so that each step updates the matrix in place.
    """
    number = jnp.arange(re.shape[0])[:, None]

    def at_pivot(k: Array | int, re: Array, im: Array) -> tuple[Array, Array, Array, Array]:
        u_re, u_im = re[offset + k], im[offset + k]
        d_re, d_im, c_re, c_im = u_re[k], u_im[k], re[:, k], im[:, k]
        inverse_square, not_pivot = 1.0 / (d_re**2 + d_im**2), number != offset + k
        s_re = jnp.where(not_pivot, (c_re * d_re + c_im * d_im) * inverse_square, 0.0)
        return u_re, u_im, s_re, jnp.where(not_pivot, (c_im * d_re - c_re * d_im) * inverse_square, 0.0)

    def step(k: Array, carried: tuple[Array, ...]) -> tuple[Array, ...]:
        re, im, u_re, u_im, s_re, s_im, diagonal, removed = carried
        diagonal = diagonal.at[:, k].set(jnp.stack([u_re[k], u_im[k]]))
        factor = jnp.where(number > offset + k, jnp.abs(s_re) + jnp.abs(s_im), 0.0)[offset : offset + rest]
        removed = removed + factor * (jnp.abs(u_re[:rest]) + jnp.abs(u_im[:rest]))
        new_re = re - s_re[:, None] * u_re + s_im[:, None] * u_im
        new_im = im - s_re[:, None] * u_im - s_im[:, None] * u_re
        return new_re, new_im, *at_pivot(k + 1, new_re, new_im), diagonal, removed

    empty = jnp.zeros((2, count, re.shape[-1]), re.dtype), jnp.zeros((rest, re.shape[-1]), re.dtype)
    re, im, *_, diagonal, removed = jax.lax.fori_loop(0, count, step, (re, im, *at_pivot(0, re, im), *empty))
    return re, im, diagonal, removed


def _padded_to_vectors(z: DynamicStiffness) -> DynamicStiffness:
    """Dynamic stiffness with the last line repeated to a multiple of the vector length."""
    removed_here = (0, -z.omega.size % VECTOR)
    power = None if z.power is None else jnp.pad(z.power, removed_here, mode="edge")
    return z._replace(omega=jnp.pad(z.omega, removed_here, mode="edge"), power=power)


def _diagonal_magnitude(z: DynamicStiffness) -> Float[Array, "n f"]:
    """Sum of the magnitudes of the terms of Z's diagonal."""

    def of(matrix: Array | None) -> Array:
        return jnp.zeros(()) if matrix is None else jnp.abs(jnp.diagonal(matrix))[:, None]

    w = jnp.abs(z.omega)
    whole = of(z.stiffness) + w**2 * of(z.mass) + w * of(z.damping) + of(z.structural)
    return whole if z.power is None else whole + (jnp.abs(z.power.real) + jnp.abs(z.power.imag)) * of(z.fractional)


def _symmetric(z: DynamicStiffness) -> Bool[Array, ""]:
    """Whether all parts are symmetric up to rounding."""

    def symmetric(matrix: Array) -> Array:
        size = jnp.sqrt(jnp.abs(jnp.diagonal(matrix)))
        least = ASYMMETRY * size[:, None] * size + 1e-3 * ASYMMETRY * jnp.max(jnp.abs(matrix))
        return jnp.all(jnp.abs(matrix - matrix.T) <= least)

    parts = z.mass, z.damping, z.stiffness, z.structural, z.fractional
    return jnp.all(jnp.array([symmetric(part) for part in parts if part is not None]))


MOST_NATIVE = 200
"""Coordinates up to which the kernel is faster than LAPACK."""
MOST_ELIMINATED = 40
"""Coordinates up to which the elimination in JAX is faster than LAPACK."""


def response(
    z: DynamicStiffness, outputs: Float[Array, "o n"], inputs: Float[Array, "i n"], same: bool
) -> Complex[Array, "f o i"]:
    """H [f, o, i] alone, faster than `solutions`; not differentiable.

    Args:
        z: dynamic stiffness.
        outputs: O.
        inputs: I.
        same: whether outputs and inputs are the same.
    """
    return _solve(same, False, z, outputs, inputs)[0]


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def solutions(same: bool, z: DynamicStiffness, outputs: Array, inputs: Array) -> Solved:
    """H, X_i [n, i, f] and X_o [n, o, f]; with `same`, Z is assumed to be symmetric and X_o is X_i."""
    return _solve(same, True, z, outputs, inputs)


@solutions.defjvp
def _solutions_jvp(same: bool, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Solved, Solved]:
    """dX_i = G (dI^T - dZ X_i), G = Z^-1 by the same solve, so that derivatives of any order exist."""
    z, outputs, inputs = primals
    d_z, d_outputs, d_inputs = tangents
    h, to_inputs, to_outputs = solutions(same, z, outputs, inputs)
    identity = jnp.eye(inputs.shape[-1], dtype=inputs.dtype)
    inverse = solutions(True, z, identity, identity)[0]
    x_i, x_o = (part.as_complex().transpose(2, 0, 1) for part in (to_inputs, to_outputs))
    change = change_of(z, d_z)

    def solution_change(side: str, d_rows: Array, x: Array) -> Array:
        right = d_rows.T - jnp.einsum("fnm,fmk->fnk" if side == "direct" else "fmn,fmk->fnk", change, x)
        return jnp.einsum("fnm,fmk->fnk" if side == "direct" else "fmn,fmk->fnk", inverse, right)

    d_x_i = solution_change("direct", d_inputs, x_i)
    d_x_o = d_x_i if same else solution_change("transposed", d_outputs, x_o)
    d_h = jnp.einsum("on,fni->foi", d_outputs, x_i) + jnp.einsum("on,fni->foi", outputs, d_x_i)
    return (h, to_inputs, to_outputs), (d_h, in_parts(d_x_i), in_parts(d_x_o))


def change_of(z: DynamicStiffness, d_z: DynamicStiffness) -> Complex[Array, "f n n"]:
    """dZ [f, n, n] of each line."""
    w = z.omega
    tangent = DynamicStiffness(d_z.mass, d_z.damping, d_z.stiffness, w, d_z.structural, d_z.fractional, z.power)
    by_omega = 1j * z.damping - 2.0 * w[:, None, None] * z.mass
    change = tangent.matrices() + d_z.omega[:, None, None] * by_omega
    if z.fractional is not None and d_z.power is not None:
        change = change + d_z.power[:, None, None] * z.fractional
    return change


def _solve(same: bool, keep: bool, z: DynamicStiffness, outputs: Array, inputs: Array) -> Solved:
    size, count = inputs.shape[-1], min(inputs.shape[0], outputs.shape[0], z.omega.size)
    double = all(part.dtype in (jnp.float64, jnp.complex128) for part in jax.tree.leaves((z, outputs, inputs)))
    by_pivoting = functools.partial(pivoted, same=same, keep=keep)
    if size == 0 or count == 0:
        return by_pivoting(z, outputs, inputs)
    if double and size <= MOST_NATIVE and native.in_use():
        on_cpu = functools.partial(_native, same, keep)
    elif size <= MOST_ELIMINATED:
        on_cpu = functools.partial(eliminated, same=same, keep=keep)
    else:
        on_cpu = by_pivoting
    return jax.lax.platform_dependent(z, outputs, inputs, cpu=on_cpu, default=by_pivoting)


def _native(same: bool, keep: bool, z: DynamicStiffness, outputs: Array, inputs: Array) -> Solved:
    """Solution by the kernel, arguments and results as in `receptance.cpp`."""
    size, lines, nothing = inputs.shape[-1], z.omega.size, jnp.zeros((0, 0))
    power = (jnp.zeros(0), jnp.zeros(0)) if z.power is None else (z.power.real, z.power.imag)
    shapes = [jax.ShapeDtypeStruct((lines, outputs.shape[0], inputs.shape[0]), jnp.complex128)]
    if keep:
        shapes += [jax.ShapeDtypeStruct((size, inputs.shape[0], lines), float)] * 2
    if keep and not same:
        shapes += [jax.ShapeDtypeStruct((size, outputs.shape[0], lines), float)] * 2
    arrays = jax.ffi.ffi_call(native.TARGET, shapes, vmap_method="broadcast_all")(
        z.mass, z.damping, z.stiffness,
        nothing if z.structural is None else z.structural, nothing if z.fractional is None else z.fractional,
        *power, z.omega, jnp.zeros((0, size)) if same else outputs, inputs,
    )  # fmt: skip
    if not keep:
        return arrays[0], None, None
    to_inputs = Parts(arrays[1], arrays[2])
    return arrays[0], to_inputs, to_inputs if same else Parts(arrays[3], arrays[4])
