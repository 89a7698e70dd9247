"""The small solve in JAX: without pivoting, at all lines at once, and with it by LAPACK or its like."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Complex, Float

from jaxmb.linalg.dynamic_stiffness import DynamicStiffness, Parts

Solved = tuple[Complex[Array, "f o i"], Any, Any]
"""H, and X_i = Z^-1 I^T [n, i, f] and X_o = Z^-T O^T [n, o, f] as `Parts`, or None where they are not asked for."""

GROWTH = 1e3
"""Sum of what is taken off and put on an entry of the diagonal, over what it is made of, up to which no digits are
missed: it costs three of sixteen."""
ASYMMETRY = 1e-12
"""Difference of two entries that should be one, over the diagonal, that is rounding."""
GROUPS = 3
"""Of pivots: more of them save arithmetic, and take longer to compile."""
VECTOR = 4
"""Numbers in a vector of the processor, for which XLA compiles."""


def pivoted(
    z: DynamicStiffness, outputs: Float[Array, "o n"], inputs: Float[Array, "i n"], same: bool, keep: bool
) -> Solved:
    """With partial pivoting, any Z.

    Args:
        z: dynamic stiffness.
        outputs: O.
        inputs: I.
        same: whether the outputs are the inputs, and X_o need not be told apart from X_i.
        keep: whether X_i and X_o are asked for.
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
    found = in_parts(to_inputs)
    return h, found, found if same else in_parts(solve(outputs, 1))


def in_parts(solution: Complex[Array, "f n k"]) -> Parts:
    """Lines last, real and imaginary parts apart."""
    return Parts(solution.real.transpose(1, 2, 0), solution.imag.transpose(1, 2, 0))


def eliminated(z: DynamicStiffness, outputs: Array, inputs: Array, same: bool, keep: bool) -> Solved:
    """Without pivoting, in a loop over the pivots that is vectorized over lines; with it where digits would be lost.

    Several machines are taken one after the other: so each is checked for itself, and its matrices stay in the cache of
    the processor. Arguments as those of `pivoted`.
    """

    @custom_vmap
    def one(z: DynamicStiffness, outputs: Array, inputs: Array) -> Solved:
        found, exact = _without_pivoting(z, outputs, inputs, same, keep)
        return jax.lax.cond(exact, lambda: found, lambda: pivoted(z, outputs, inputs, same, keep))

    @one.def_vmap
    def several(_: int, batched: tuple[Any, ...], *args: Any) -> tuple[Any, Any]:
        leaves, structure = jax.tree.flatten(args)
        moving = jax.tree.leaves(batched)

        def each(own: list[Array]) -> Any:
            left = iter(own)
            merged = [next(left) if moves else leaf for leaf, moves in zip(leaves, moving, strict=True)]
            again: Any = one
            return again(*jax.tree.unflatten(structure, merged))

        found = jax.lax.map(each, [leaf for leaf, moves in zip(leaves, moving, strict=True) if moves])
        return found, jax.tree.map(lambda _: True, found)

    return one(z, outputs, inputs)


def _without_pivoting(
    z: DynamicStiffness, outputs: Array, inputs: Array, same: bool, keep: bool
) -> tuple[Solved, Bool[Array, ""]]:
    """Of a symmetric Z, and whether it was symmetric and no digits were lost.

    In [[Z, I^T], [O, 0]] the rows below each pivot are reduced, which leaves -H in place of the 0, and where X is asked
    for those above as well. Pivots are taken in a few groups: the columns of a group that is done are left out, and its
    rows where they are not needed.
    """
    size, count, seen, asked = inputs.shape[-1], inputs.shape[0], outputs.shape[0], z.omega.size
    rows = inputs if same or not keep else jnp.concatenate([inputs, outputs])
    z = _whole_vectors(z)
    lines = z.omega.size
    below = jnp.concatenate([outputs, jnp.zeros((seen, rows.shape[0]), rows.dtype)], axis=1)
    re, im = z.at_lines()
    re = jnp.concatenate([re, jnp.broadcast_to(rows.T[..., None], (size, rows.shape[0], lines))], axis=1)
    re = jnp.concatenate([re, jnp.broadcast_to(below[..., None], (*below.shape, lines))])
    im = jnp.pad(im, ((0, seen), (0, rows.shape[0]), (0, 0)))
    taken, diagonal = jnp.zeros((size, lines), re.dtype), []
    for first, last in itertools.pairwise(sorted({size * k // GROUPS for k in range(GROUPS + 1)})):
        re, im, own, more = _reduced(re, im, first if keep else 0, last - first, size - first)
        taken = taken.at[first:].add(more)
        diagonal.append(own)
        begin = 0 if keep else last - first
        re, im = re[begin:, last - first :], im[begin:, last - first :]
    d_re, d_im = jnp.concatenate(diagonal, axis=1)
    exact = jnp.all(taken + jnp.abs(d_re) + jnp.abs(d_im) <= GROWTH * _weight(z)) & _symmetric(z)
    re, im = re[..., :asked], im[..., :asked]
    h = jax.lax.complex(-re[-seen:, :count], -im[-seen:, :count]).transpose(2, 0, 1)
    if not keep:
        return (h, None, None), exact
    d_re, d_im = d_re[:, None, :asked], d_im[:, None, :asked]
    over = 1.0 / (d_re**2 + d_im**2)
    re, im = re[:size], im[:size]
    x_re, x_im = (re * d_re + im * d_im) * over, (im * d_re - re * d_im) * over
    to_inputs = Parts(x_re[:, :count], x_im[:, :count])
    return (h, to_inputs, to_inputs if same else Parts(x_re[:, count:], x_im[:, count:])), exact


def _reduced(re: Array, im: Array, above: int, count: int, left: int) -> tuple[Array, Array, Array, Array]:
    """A matrix reduced by some pivots, from row `above` and column 0 on, then the pivots and what was taken off `left`
    entries of the diagonal.

    The loop carries the pivot's row and factors beside the matrix: so each step changes it in place.
    """
    number = jnp.arange(re.shape[0])[:, None]

    def at_pivot(k: Array | int, re: Array, im: Array) -> tuple[Array, Array, Array, Array]:
        u_re, u_im = re[above + k], im[above + k]
        d_re, d_im, c_re, c_im = u_re[k], u_im[k], re[:, k], im[:, k]
        over, other = 1.0 / (d_re**2 + d_im**2), number != above + k
        s_re = jnp.where(other, (c_re * d_re + c_im * d_im) * over, 0.0)
        return u_re, u_im, s_re, jnp.where(other, (c_im * d_re - c_re * d_im) * over, 0.0)

    def step(k: Array, carried: tuple[Array, ...]) -> tuple[Array, ...]:
        re, im, u_re, u_im, s_re, s_im, diagonal, taken = carried
        diagonal = diagonal.at[:, k].set(jnp.stack([u_re[k], u_im[k]]))
        factor = jnp.where(number > above + k, jnp.abs(s_re) + jnp.abs(s_im), 0.0)[above : above + left]
        taken = taken + factor * (jnp.abs(u_re[:left]) + jnp.abs(u_im[:left]))
        new_re = re - s_re[:, None] * u_re + s_im[:, None] * u_im
        new_im = im - s_re[:, None] * u_im - s_im[:, None] * u_re
        return new_re, new_im, *at_pivot(k + 1, new_re, new_im), diagonal, taken

    empty = jnp.zeros((2, count, re.shape[-1]), re.dtype), jnp.zeros((left, re.shape[-1]), re.dtype)
    re, im, *_, diagonal, taken = jax.lax.fori_loop(0, count, step, (re, im, *at_pivot(0, re, im), *empty))
    return re, im, diagonal, taken


def _whole_vectors(z: DynamicStiffness) -> DynamicStiffness:
    """With the last line repeated, until there are as many as fill vectors of the processor."""
    more = (0, -z.omega.size % VECTOR)
    power = None if z.power is None else jnp.pad(z.power, more, mode="edge")
    return z._replace(omega=jnp.pad(z.omega, more, mode="edge"), power=power)


def _weight(z: DynamicStiffness) -> Float[Array, "n f"]:
    """What the diagonal of Z is made of, without the signs."""

    def of(matrix: Array | None) -> Array:
        return jnp.zeros(()) if matrix is None else jnp.abs(jnp.diagonal(matrix))[:, None]

    w = jnp.abs(z.omega)
    whole = of(z.stiffness) + w**2 * of(z.mass) + w * of(z.damping) + of(z.structural)
    return whole if z.power is None else whole + (jnp.abs(z.power.real) + jnp.abs(z.power.imag)) * of(z.fractional)


def _symmetric(z: DynamicStiffness) -> Bool[Array, ""]:
    """Whether all parts are symmetric but for rounding."""

    def symmetric(matrix: Array) -> Array:
        size = jnp.sqrt(jnp.abs(jnp.diagonal(matrix)))
        least = ASYMMETRY * size[:, None] * size + 1e-3 * ASYMMETRY * jnp.max(jnp.abs(matrix))
        return jnp.all(jnp.abs(matrix - matrix.T) <= least)

    parts = z.mass, z.damping, z.stiffness, z.structural, z.fractional
    return jnp.all(jnp.array([symmetric(part) for part in parts if part is not None]))
