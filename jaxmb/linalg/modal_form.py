"""Modal form of machines with many coordinates, and their damped modes with proportional damping."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Complex, Float


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
