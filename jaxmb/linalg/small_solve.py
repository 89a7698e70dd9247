"""H = O Z^-1 I^T, X_i = Z^-1 I^T and X_o = Z^-T O^T by the fastest solver available for the size and platform."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Complex, Float

from jaxmb import native
from jaxmb.linalg.dynamic_stiffness import DynamicStiffness, Parts
from jaxmb.linalg.elimination import Solved, eliminated, in_parts, pivoted

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


def _solutions_jvp(same: bool, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Solved, Solved]:
    """dX_i = G (dI^T - dZ X_i), G = Z^-1 by the same solve, so that derivatives of any order exist."""
    z, outputs, inputs = primals
    d_z, d_outputs, d_inputs = (jax.tree.map(_dense, part, is_leaf=_is_zero) for part in tangents)
    h, to_inputs, to_outputs = solutions(same, z, outputs, inputs)
    identity = jnp.eye(inputs.shape[-1], dtype=inputs.dtype)
    inverse = solutions(True, z, identity, identity)[0]
    x_i, x_o = (part.joined().transpose(2, 0, 1) for part in (to_inputs, to_outputs))
    change = change_of(z, d_z)

    def solution_change(side: str, d_rows: Array, x: Array) -> Array:
        right = d_rows.T - jnp.einsum("fnm,fmk->fnk" if side == "direct" else "fmn,fmk->fnk", change, x)
        return jnp.einsum("fnm,fmk->fnk" if side == "direct" else "fmn,fmk->fnk", inverse, right)

    d_x_i = solution_change("direct", d_inputs, x_i)
    d_x_o = d_x_i if same else solution_change("transposed", d_outputs, x_o)
    d_h = jnp.einsum("on,fni->foi", d_outputs, x_i) + jnp.einsum("on,fni->foi", outputs, d_x_i)
    return (h, to_inputs, to_outputs), (d_h, in_parts(d_x_i), in_parts(d_x_o))


solutions.defjvp(_solutions_jvp, symbolic_zeros=True)


def change_of(z: DynamicStiffness, d_z: DynamicStiffness) -> Complex[Array, "f n n"]:
    """dZ [f, n, n] of each line."""
    w = z.omega
    tangent = DynamicStiffness(d_z.mass, d_z.damping, d_z.stiffness, w, d_z.structural, d_z.fractional, z.power)
    by_omega = 1j * z.damping - 2.0 * w[:, None, None] * z.mass
    change = tangent.matrices() + d_z.omega[:, None, None] * by_omega
    if z.fractional is not None and d_z.power is not None:
        change = change + d_z.power[:, None, None] * z.fractional
    return change


def _is_zero(tangent: Any) -> bool:
    return isinstance(tangent, SymbolicZero)


def _dense(tangent: Any) -> Any:
    return jnp.zeros(tangent.shape, tangent.dtype) if _is_zero(tangent) else tangent


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
