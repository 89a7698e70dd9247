"""The few dense operations that several rooms share."""

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Complex, Float


@jax.custom_jvp
def receptance(
    mass: Float[Array, "n n"],
    damping: Float[Array, "n n"],
    stiffness: Float[Array, "n n"],
    omega: Float[Array, "f"],
    outputs: Float[Array, "o n"],
    inputs: Float[Array, "i n"],
) -> Complex[Array, "f o i"]:
    """Displacement at the outputs for a unit force at the inputs: H = O (K + j w C - w^2 M)^-1 I^T.

    M, C and K are symmetric, as those of any machine at rest. The derivative is taken in closed form,
    dH = -X_o^T dZ X_i with X = Z^-1 O^T or Z^-1 I^T, which for all parameters together costs about as much as H itself,
    where differentiating the solve costs a solve for each.
    """
    _, responses = _responses(mass, damping, stiffness, omega, (inputs,))
    return jnp.einsum("on,fni->foi", outputs, responses[0])


def _responses(
    mass: Array, damping: Array, stiffness: Array, omega: Array, rows: tuple[Array, ...]
) -> tuple[Array, list[Array]]:
    """X = Z^-1 B^T [f, n, k] for each B in rows, by one factorization a frequency."""
    w = omega[:, None, None]
    dynamic_stiffness = jax.lax.complex(stiffness - w**2 * mass, w * damping)
    joined = jnp.concatenate(rows).T.astype(dynamic_stiffness.dtype)
    solved = jnp.linalg.solve(dynamic_stiffness, jnp.broadcast_to(joined, (omega.size, *joined.shape)))
    ends = [sum(r.shape[0] for r in rows[: k + 1]) for k in range(len(rows))]
    return dynamic_stiffness, jnp.split(solved, ends[:-1], axis=2)


def _receptance_jvp(primals: tuple[Array, ...], tangents: tuple[Any, ...]) -> tuple[Array, Array]:
    mass, damping, stiffness, omega, outputs, inputs = primals
    if outputs is inputs:
        _, (to_inputs,) = _responses(mass, damping, stiffness, omega, (inputs,))
        to_outputs = to_inputs
    else:
        _, (to_inputs, to_outputs) = _responses(mass, damping, stiffness, omega, (inputs, outputs))
    value = jnp.einsum("on,fni->foi", outputs, to_inputs)
    d_mass, d_damping, d_stiffness, d_omega, d_outputs, d_inputs = tangents
    w = omega[:, None, None]
    change = jnp.zeros_like(value)

    def through(matrix: Array) -> Array:
        # One product for all frequencies; the contraction with the outputs follows.
        return jnp.einsum("fno,fni->foi", to_outputs, jnp.einsum("nm,fmi->fni", matrix, to_inputs))

    if not isinstance(d_stiffness, SymbolicZero):
        change = change - through(d_stiffness)
    if not isinstance(d_damping, SymbolicZero):
        change = change - 1j * w * through(d_damping)
    if not isinstance(d_mass, SymbolicZero):
        change = change + w**2 * through(d_mass)
    if not isinstance(d_omega, SymbolicZero):
        by_omega = 1j * through(damping) - 2.0 * w * through(mass)
        change = change - d_omega[:, None, None] * by_omega
    if not isinstance(d_outputs, SymbolicZero):
        change = change + jnp.einsum("on,fni->foi", d_outputs, to_inputs)
    if not isinstance(d_inputs, SymbolicZero):
        change = change + jnp.einsum("fno,in->foi", to_outputs, d_inputs)
    return value, change


receptance.defjvp(_receptance_jvp, symbolic_zeros=True)


@jax.custom_jvp
def eigenpairs(matrix: Float[Array, "m m"]) -> tuple[Complex[Array, "m"], Complex[Array, "m m"]]:
    """Eigenvalues and right eigenvectors (columns) of a real matrix, differentiable.

    dA in the eigenvectors' basis, P = V^-1 dA V, gives d lambda = diag P and dV = V (P / (lambda_j - lambda_i)). Only
    what does not depend on the scale of a vector has a derivative; a repeated eigenvalue's vectors are left unmoved.
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
    return values, jax.scipy.linalg.solve_triangular(lower.T, vectors, lower=False)
