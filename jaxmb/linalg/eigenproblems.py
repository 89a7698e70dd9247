"""Eigenproblems with their derivatives."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float


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
    return values, jax.scipy.linalg.solve_triangular(lower.T, vectors, lower=False)
