"""The few dense operations that several rooms share."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Bool, Complex, Float

Support = tuple[tuple[int, int], ...]
"""Entries (row, column) of M, C and K that may change."""


FEW = 40
"""Coordinates up to which a factorization at each frequency is faster than modes, which need not be uncoupled then."""
UNCOUPLED = 1e-10
"""Damping between two modes, beside the stiffness of each, that is rounding: damping is then proportional."""
MOST_DIRECTIONS = 80
"""In which dampers couple the modes: with more, or with more than a fourth of all, each frequency is factorized."""
EXACT = 1e6
"""Square of a frequency over that of the lowest mode up to which the form by modes is exact to 1e-10: the flexibility
of a machine that is hardly held is so large that rounding of it hides the others."""
HARDLY_HELD = 1e8
"""Ratio of squares of neighbouring frequencies, of the lowest modes, at which the lower ones are those of a machine
that nothing holds."""
NEAREST = 12
"""Modes nearest to resonance that are not eliminated where dampers couple modes."""


def on_host(array: Array | np.ndarray) -> Any:
    """The array as a NumPy array, or itself where it is traced.

    JAX compiles a program for every operation on every shape that it meets outside of a compiled function, which for a
    few numbers takes a thousand times longer than the operation in NumPy.
    """
    return array if isinstance(array, Tracer) else np.asarray(array)


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

    M, C, K, D and E are symmetric, as those of any machine at rest. The derivative is taken in closed form,
    dH = -X_o^T dZ X_i with X = Z^-1 O^T or Z^-1 I^T, which for all parameters together costs about as much as H itself,
    where differentiating the solve costs a solve for each.

    Args:
        mass: M [n, n].
        damping: C [n, n].
        stiffness: K [n, n].
        omega: angular frequencies [f], rad/s.
        outputs: O [o, n].
        inputs: I [i, n]; the same array as the outputs where they are the same points, which saves their solve.
        structural: D [n, n] of structural damping; none where not given.
        fractional: E [n, n] of fractional damping and its factor p at each frequency; none where not given.
        support: entries of M, C, K, D and E outside of which they have no derivative, where the caller knows that;
            springs and dampers on coordinates touch only the diagonal, which makes their derivatives n times cheaper.
    """
    matrices = mass, damping, stiffness, structural, fractional
    return _receptance(support, outputs is inputs, *matrices, omega, outputs, inputs)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1))
def _receptance(
    support: Support | None, same: bool, mass: Array, damping: Array, stiffness: Array, structural: Array | None,
    fractional: tuple[Array, Array] | None, omega: Array, outputs: Array, inputs: Array,
) -> Array:  # fmt: skip
    solved = _responses(mass, damping, stiffness, structural, fractional, omega, inputs)
    return jnp.einsum("on,fni->foi", outputs, solved)


def _responses(
    mass: Array, damping: Array, stiffness: Array, structural: Array | None, fractional: tuple[Array, Array] | None,
    omega: Array, rows: Array,
) -> Array:  # fmt: skip
    """X = Z^-1 B^T [f, n, k] for rows B [k, n]."""
    if mass.shape[0] <= FEW:
        return _by_factorization(mass, damping, stiffness, structural, fractional, omega, rows)
    mu, shapes, viscous, lossy = _modal_form(mass, damping, stiffness, structural)
    remembered = None if fractional is None else (shapes.T @ fractional[0] @ shapes, fractional[1])

    def factors(viscous_part: Array) -> Array:
        w = omega[:, None]
        found = jax.lax.complex(1.0 - w**2 * mu, w * viscous_part + jnp.diagonal(lossy))
        return found if remembered is None else found + remembered[1][:, None] * jnp.diagonal(remembered[0])

    def by_modes() -> Array:
        return _in_modes(shapes, rows, factors(jnp.diagonal(viscous)))

    def by_dampers() -> Array:
        size, directions = jnp.linalg.eigh(viscous)
        order = jnp.argsort(-jnp.abs(size))
        size, few = size[order], min(MOST_DIRECTIONS, mass.shape[0] // 4)
        none = jnp.zeros_like(mu)
        return jax.lax.cond(
            highest * jnp.abs(size[few]) <= UNCOUPLED,
            lambda: _with_dampers(shapes, rows, factors(none), omega, size[:few], directions[:, order[:few]]),
            by_factorization,
        )

    def by_factorization() -> Array:
        return _by_factorization(mass, damping, stiffness, structural, fractional, omega, rows)

    highest = jnp.max(jnp.abs(omega))
    coupling = _off_diagonal(lossy)
    if remembered is not None:
        coupling = coupling + jnp.max(jnp.abs(remembered[1])) * _off_diagonal(remembered[0])
    by_viscous = highest * _off_diagonal(viscous)
    # where nothing holds the machine K has no factors, or such as rounding makes
    coupling = jnp.where(highest**2 * mu[0] <= EXACT, coupling, jnp.inf)
    way = jnp.where(coupling + by_viscous <= UNCOUPLED, 0, jnp.where(coupling <= UNCOUPLED, 1, 2))
    return jax.lax.switch(way, [by_modes, by_dampers, by_factorization])


def _in_modes(shapes: Array, rows: Array, factors: Array) -> Array:
    """V F^-1 V^T B^T for diagonal F [f, n]."""
    return jnp.einsum("nm,fmk->fnk", shapes, (shapes.T @ rows.T) / factors[:, :, None])


def _with_dampers(shapes: Array, rows: Array, factors: Array, omega: Array, size: Array, directions: Array) -> Array:
    """V Z^-1 V^T B^T with Z = F + j w U S U^T, F and S diagonal, in the few directions U [n, r].

    With y = j w S U^T x it is F x + U y = b. The modes that are nearest to resonance, where F is small, stay unknown
    beside y; the others are eliminated.
    """
    count, near = size.shape[0], min(NEAREST, shapes.shape[0])
    damper = 1j * omega[:, None] * size
    line, closest = jnp.arange(omega.size)[:, None], jax.lax.top_k(-jnp.abs(factors), near)[1]
    inverse = (1.0 / factors).at[line, closest].set(0.0)
    products = (directions[:, :, None] * directions[:, None, :]).reshape(-1, count**2)
    through = jax.lax.complex(inverse.real @ products, inverse.imag @ products).reshape(-1, count, count)
    of_near = directions[closest].astype(factors.dtype)
    load = shapes.T @ rows.T
    free = inverse[:, :, None] * load
    upper = jnp.concatenate([jax.vmap(jnp.diag)(factors[line, closest]), of_near], axis=2)
    lower = jnp.concatenate(
        [-damper[:, :, None] * jnp.swapaxes(of_near, 1, 2), jnp.eye(count) + damper[:, :, None] * through], axis=2
    )
    right = jnp.concatenate([load[closest], damper[:, :, None] * jnp.einsum("nr,fnk->frk", directions, free)], axis=1)
    found = jnp.linalg.solve(jnp.concatenate([upper, lower], axis=1), right)
    moved = free - inverse[:, :, None] * jnp.einsum("nr,frk->fnk", directions, found[:, near:])
    return jnp.einsum("nm,fmk->fnk", shapes, moved.at[line, closest].set(found[:, :near]))


def _modal_form(
    mass: Array, damping: Array, stiffness: Array, structural: Array | None
) -> tuple[Array, Array, Array, Array]:
    """1 / omega^2 of undamped modes, descending, their shapes V, V^T C V and V^T D V; V^T K V = I.

    The lowest modes are the most exact in this form.
    """
    lower = jnp.linalg.cholesky(stiffness)
    half = jax.scipy.linalg.solve_triangular(lower, mass, lower=True)
    whole = jax.scipy.linalg.solve_triangular(lower, half.T, lower=True)
    mu, vectors = jnp.linalg.eigh(0.5 * (whole + whole.T))
    shapes = jax.scipy.linalg.solve_triangular(lower, vectors[:, ::-1], lower=True, trans=1)
    viscous = shapes.T @ damping @ shapes
    lossy = jnp.zeros_like(mass) if structural is None else shapes.T @ structural @ shapes
    return mu[::-1], shapes, viscous, lossy


def _off_diagonal(matrix: Array) -> Array:
    return jnp.max(jnp.abs(matrix - jnp.diag(jnp.diagonal(matrix))))


def damped_modes(
    mass: Float[Array, "n n"], damping: Float[Array, "n n"], stiffness: Float[Array, "n n"],
    structural: Float[Array, "n n"] | None,
) -> tuple[Complex[Array, "n"], Complex[Array, "n n"], Bool[Array, ""]]:  # fmt: skip
    """Eigenvalues with Im >= 0 by ascending frequency and shapes (columns) of (s^2 M + s C + K + j D) v = 0, and
    whether damping is proportional, without which they are wrong.

    M, C, K and D are symmetric, K positive definite. A shape of a repeated eigenvalue has no derivative within its
    subspace, and none is taken.
    """
    return _damped_modes(mass, damping, stiffness, jnp.zeros_like(mass) if structural is None else structural)


@jax.custom_jvp
def _damped_modes(mass: Array, damping: Array, stiffness: Array, structural: Array) -> tuple[Array, Array, Array]:
    mu, shapes, viscous, lossy = _modal_form(mass, damping, stiffness, structural)
    c, eta = jnp.diagonal(viscous), jnp.diagonal(lossy)
    inside = jnp.sqrt(c**2 - 4.0 * mu * jax.lax.complex(jnp.ones_like(eta), eta))
    root = (-c + jnp.where(inside.imag < 0.0, -inside, inside)) / (2.0 * mu)
    coupling = _off_diagonal(lossy) + jnp.sqrt(1.0 / jnp.abs(mu[-1])) * _off_diagonal(viscous)
    lowest = mu[: NEAREST + 1]
    held = jnp.max(lowest[:-1] / lowest[1:]) <= HARDLY_HELD
    return root, shapes.astype(root.dtype), (coupling <= UNCOUPLED) & held


@_damped_modes.defjvp
def _damped_modes_jvp(primals: tuple[Array, ...], tangents: tuple[Array, ...]) -> tuple[Any, Any]:
    """dZ = s^2 dM + s dC + dK + j dD in the modes' own basis: ds_i = -dZ_ii / (2 s_i mu_i + c_i), and shape i takes
    -dZ_ji / Z_jj(s_i) of shape j."""
    mass, damping, _, structural = primals
    root, shapes, proportional = _damped_modes(*primals)
    real = shapes.real
    mu, c, eta = (jnp.einsum("ni,nm,mi->i", real, part, real) for part in (mass, damping, structural))
    d_mass, d_damping, d_stiffness, d_structural = (real.T @ part @ real for part in tangents)
    s = root[None, :]
    change = s**2 * d_mass + s * d_damping + jax.lax.complex(d_stiffness, d_structural)
    away = s**2 * mu[:, None] + s * c[:, None] + 1.0 + 1j * eta[:, None]
    same = jnp.abs(root[:, None] - s) <= 1e-10 * (jnp.abs(root[:, None]) + jnp.abs(s))
    coupling = jnp.where(same, 0.0, -change / jnp.where(same, 1.0, away))
    d_root = -jnp.diagonal(change) / (2.0 * root * mu + c)
    return (root, shapes, proportional), (d_root, shapes @ coupling, np.zeros((), jax.dtypes.float0))


def _by_factorization(
    mass: Array, damping: Array, stiffness: Array, structural: Array | None, fractional: tuple[Array, Array] | None,
    omega: Array, rows: Array,
) -> Array:  # fmt: skip
    w = omega[:, None, None]
    lost = w * damping if structural is None else w * damping + structural
    dynamic_stiffness = jax.lax.complex(stiffness - w**2 * mass, lost)
    if fractional is not None:
        dynamic_stiffness = dynamic_stiffness + fractional[1][:, None, None] * fractional[0]
    right = rows.T.astype(dynamic_stiffness.dtype)
    return jnp.linalg.solve(dynamic_stiffness, jnp.broadcast_to(right, (omega.size, *right.shape)))


def _receptance_jvp(
    support: Support | None, same: bool, primals: tuple[Any, ...], tangents: tuple[Any, ...]
) -> tuple[Array, Array]:
    mass, damping, stiffness, structural, fractional, omega, outputs, inputs = primals
    d_mass, d_damping, d_stiffness, d_structural, d_fractional, d_omega, d_outputs, d_inputs = tangents
    rows = inputs if same else jnp.concatenate([inputs, outputs])
    solved = _responses(mass, damping, stiffness, structural, fractional, omega, rows)
    to_inputs = solved[..., : inputs.shape[0]]
    to_outputs = to_inputs if same else solved[..., inputs.shape[0] :]
    value = jnp.einsum("on,fni->foi", outputs, to_inputs)
    w = omega[:, None, None]
    change = jnp.zeros_like(value)
    if support is None:

        def through(matrix: Array) -> Array:
            return jnp.einsum("fno,fni->foi", to_outputs, jnp.einsum("nm,fmi->fni", matrix, to_inputs))

    else:
        row, column = jnp.array(support, dtype=int).reshape(-1, 2).T
        entries = to_outputs[:, row, :, None] * to_inputs[:, column, None, :]

        def through(matrix: Array) -> Array:
            # Real times complex by parts: a product of matrices over all lines, half the work of a complex one.
            moved = matrix[row, column]
            parts = (jnp.einsum("e,feoi->foi", moved, part) for part in (entries.real, entries.imag))
            return jax.lax.complex(*parts)

    if not isinstance(d_stiffness, SymbolicZero):
        change = change - through(d_stiffness)
    if not isinstance(d_damping, SymbolicZero):
        change = change - 1j * w * through(d_damping)
    if d_structural is not None and not isinstance(d_structural, SymbolicZero):
        change = change - 1j * through(d_structural)
    if fractional is not None:
        d_matrix, d_power = d_fractional
        if not isinstance(d_matrix, SymbolicZero):
            change = change - fractional[1][:, None, None] * through(d_matrix)
        if not isinstance(d_power, SymbolicZero):
            by_power = jnp.einsum("fno,fni->foi", to_outputs, fractional[0] @ to_inputs)
            change = change - d_power[:, None, None] * by_power
    if not isinstance(d_mass, SymbolicZero):
        change = change + w**2 * through(d_mass)
    if not isinstance(d_omega, SymbolicZero):
        by_omega = jnp.einsum("fno,fni->foi", to_outputs, 1j * damping @ to_inputs - 2.0 * w * (mass @ to_inputs))
        change = change - d_omega[:, None, None] * by_omega
    if not isinstance(d_outputs, SymbolicZero):
        change = change + jnp.einsum("on,fni->foi", d_outputs, to_inputs)
    if not isinstance(d_inputs, SymbolicZero):
        change = change + jnp.einsum("fno,in->foi", to_outputs, d_inputs)
    return value, change


_receptance.defjvp(_receptance_jvp, symbolic_zeros=True)


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
