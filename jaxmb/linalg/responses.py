"""Frequency responses of a linearized machine, and their derivatives in closed form."""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Complex, Float

from jaxmb.linalg.modal_form import UNCOUPLED, modal_form, off_diagonal, with_dampers
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


def _receptance_jvp(
    support: Support | None, same: bool, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    z, outputs, inputs = primals
    d_z, d_outputs, d_inputs = tangents
    value, x_i, x_o = _solved(same, z, outputs, inputs)
    w = z.omega
    by_matrix = [(d_z.stiffness, -1.0), (d_z.damping, -1j * w), (d_z.mass, w**2), (d_z.structural, -1j)]
    if z.power is not None:
        by_matrix.append((d_z.fractional, -z.power))
    by_matrix = [(part, factor) for part, factor in by_matrix if _is_nonzero(part)]
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


_receptance.defjvp(_receptance_jvp, symbolic_zeros=True)


def _solved(same: bool, z: DynamicStiffness, outputs: Array, inputs: Array) -> Any:
    """H, X_i and X_o."""
    if z.mass.shape[0] <= FEW:
        return solutions(same, z, outputs, inputs)
    return _of_many(z, outputs, inputs, same, keep=True)


def _is_nonzero(tangent: Any) -> bool:
    return tangent is not None and not isinstance(tangent, SymbolicZero)


def _through(matrices: Sequence[tuple[Any, Any]], x_o: Parts, x_i: Parts) -> Complex[Array, "f o i"]:
    """Sum over real matrices A and their factors at the lines of factor X_o^T A X_i."""
    re, im = jnp.zeros_like(x_i.re), jnp.zeros_like(x_i.im)
    for matrix, factor in matrices:
        term = Parts(*(jnp.einsum("nm,mif->nif", matrix, part) for part in x_i)).times(factor)
        re, im = re + term.re, im + term.im
    product = Parts(x_o.re[:, :, None], x_o.im[:, :, None]).times(Parts(re[:, None], im[:, None]))
    return Parts(jnp.sum(product.re, axis=0), jnp.sum(product.im, axis=0)).as_complex().transpose(2, 0, 1)


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
