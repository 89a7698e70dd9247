"""Modes of a linearized machine: natural frequencies, damping ratios and shapes, also with structural and fractional
damping; MAC, strain energy of springs, modal damping, and pairing of modes."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Array, Bool, Complex, Float, Inexact, Int
from scipy.linalg import eigh, lstsq

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import typed_arguments
from jaxmb.linalg.responses import FEW, damped_modes, eigenpairs, symmetric_pencil
from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import beam_effort, own_springs, spring_stretch
from jaxmb.mechanics.kinematics import check_coordinates, whole
from jaxmb.mechanics.loops import motion_basis
from jaxmb.mechanics.tangent import Tangent, with_loaded_stiffness

MOST_STEPS = 40
"""Largest number of Newton steps."""
CONTINUATION = 20
"""Continuation steps in which damping is increased where Newton's method does not converge directly."""
CONVERGED = 1e-12
"""Last relative change of s."""
UNPAIRABLE = 1e6
"""Cost of an inadmissible pair of modes, compared with costs of about 1."""
NEAR = 1e-5
"""Relative distance of undamped frequencies below which shapes do not change within their common subspace."""


def fractional_modes(
    mass: Float[np.ndarray, "n n"],
    damping: Float[np.ndarray, "n n"],
    stiffness: Complex[np.ndarray, "n n"],
    fractional: Float[np.ndarray, "n n"],
    order: float,
) -> tuple[Complex[np.ndarray, "m"], Complex[np.ndarray, "n m"]]:
    """Eigenvalues with Im > 0 by ascending size, and shapes, of (s^2 M + s C + K + s^a E) v = 0.

    Each starts from an undamped mode: first s is solved for that fixed shape, then s and v together by Newton's method,
    with a fixed scale along the start. Rigid-body and non-oscillating modes are omitted.

    Args:
        mass: M.
        damping: C.
        stiffness: K + j D.
        fractional: E, the factor of s^a.
        order: a.

    Raises:
        RuntimeError: a mode was not found.

    Source: Ruhe, "Algorithms for the nonlinear eigenvalue problem", SIAM J. Numer. Anal. 10, 1973.
    """
    parts = mass, damping, stiffness, fractional
    omega, starts = _undamped(mass, np.real(stiffness))
    roots, shapes = list[complex](), list[np.ndarray]()
    for r, start in enumerate(starts.T):
        repeated = bool(np.any(np.abs(np.delete(omega, r) - omega[r]) <= NEAR * omega[r]))
        for steps in (1, CONTINUATION):
            mode = _from_start(parts, order, 1j * omega[r], start.astype(complex), repeated, steps)
            if mode is not None and not _is_duplicate(mode, roots, shapes):
                break
        else:
            raise RuntimeError(
                f"fractional damping: the mode with the undamped frequency {omega[r] / (2.0 * np.pi):.4g} Hz was not"
                " found; its damping is too large"
            )
        roots.append(mode[0])
        shapes.append(mode[1])
    root, shape = np.array(roots, dtype=complex), np.array(shapes, dtype=complex).reshape(-1, mass.shape[0]).T
    by_size = np.argsort(np.abs(root), kind="stable")
    by_size = by_size[np.imag(root)[by_size] > 0.0]
    return root[by_size], shape[:, by_size]


def _undamped(mass: np.ndarray, stiffness: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Angular frequencies, ascending, and shapes of undamped modes, without unstable and rigid-body ones."""
    try:
        if not all(np.abs(part - part.T).max() <= NEAR * np.abs(part).max() for part in (mass, stiffness)):
            raise np.linalg.LinAlgError
        inverse, vectors = eigh(mass, stiffness)  # most accurate for the lowest modes
        values = 1.0 / inverse
        if inverse.min(initial=np.inf) <= LEAST_STIFFNESS * inverse.max(initial=0.0):
            raise np.linalg.LinAlgError
    except np.linalg.LinAlgError:  # rigid-body modes, or a machine in motion
        solution = np.linalg.eig(np.linalg.solve(mass, stiffness))
        values, vectors = np.real(solution.eigenvalues), np.real(solution.eigenvectors)
    chosen = np.argsort(values, kind="stable")
    chosen = chosen[values[chosen] > LEAST_STIFFNESS * values.max(initial=0.0)]
    return np.sqrt(values[chosen]), vectors[:, chosen]


Parts = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _from_start(
    parts: Parts, order: float, s: complex, v: np.ndarray, repeated: bool, steps: int
) -> tuple[complex, np.ndarray] | None:
    """A mode by increasing the damping in steps; None where it was not found."""
    mass, damping, stiffness, fractional = parts
    elastic, structural = np.real(stiffness), 1j * np.imag(stiffness)
    mode = s, v
    for fraction in np.linspace(0.0, 1.0, steps + 1)[1:]:
        part = mass, fraction * damping, elastic + fraction * structural, fraction * fractional
        mode = _newton(part, order, _scalar(part, order, *mode), mode[1], repeated)
        if mode is None:
            break
    return mode


def _scalar(parts: Parts, order: float, s: complex, v: np.ndarray) -> complex:
    """s for a fixed shape, by fixed-point iteration of s^2 = -(k + s c + s^a e)."""
    m, c, k, e = (np.vdot(v, part @ v) for part in parts)
    for _ in range(MOST_STEPS):
        update = 1j * np.sqrt((k + s * c + s**order * e) / m)
        if not np.isfinite(update) or abs(update - s) <= CONVERGED * abs(s):
            break
        s = update
    return s


def _newton(parts: Parts, order: float, s: complex, v: np.ndarray, repeated: bool) -> tuple[complex, np.ndarray] | None:
    """A mode near s and v, of which `repeated` states whether others have its frequency; None where there is none."""
    mass, damping, stiffness, fractional = parts
    n, v = v.size, v / np.linalg.norm(v)
    scale = v.conj()
    bordered = np.zeros((n + 1, n + 1), dtype=complex)
    for _ in range(MOST_STEPS):
        power = s**order
        dynamic = s**2 * mass + s * damping + stiffness + power * fractional
        bordered[:n, :n] = dynamic
        bordered[:n, n] = (2.0 * s * mass + damping + order * power / s * fractional) @ v
        bordered[n, :n] = scale * abs(s) ** 2 * np.abs(mass).max()
        residual = -np.append(dynamic @ v, 0.0)
        # of modes of one frequency, the step of least size
        rank = 1e-10 if repeated else np.finfo(float).eps
        found: Any = lstsq(bordered, residual, cond=rank, lapack_driver="gelsy", check_finite=False)
        step = found[0]
        v, s = v + step[:n], s + step[n]
        if not np.isfinite(s) or s == 0.0:
            break
        if abs(step[n]) <= CONVERGED * abs(s) and np.linalg.norm(step[:n]) <= 1e-6 * np.linalg.norm(v):
            return complex(s), v
    return None


def _is_duplicate(mode: tuple[complex, np.ndarray], roots: list[complex], shapes: list[np.ndarray]) -> bool:
    """Whether a mode is among those found previously."""
    s, v = mode
    near = [shape for root, shape in zip(roots, shapes, strict=True) if abs(s - root) <= 1e-8 * abs(s)]
    return any(abs(np.vdot(shape, v)) ** 2 > (1.0 - 1e-6) * np.linalg.norm(shape) ** 2 * np.linalg.norm(v) ** 2
               for shape in near)  # fmt: skip


REAL = 1e-8
"""Ratio of the imaginary part of an eigenvalue to its size up to which it is rounding: rounding splits a double root by
its square root."""
LEAST_MASS = 1e-13
"""Ratio of the smallest to the largest eigenvalue of a scaled mass matrix, at and below which it is singular."""


class Modes(eqx.Module):
    """Modes of a machine, one per conjugate pair, by ascending |eigenvalue|."""

    frequency_hz: Float[Array, "mode"]
    """|lambda| / 2 pi."""
    damped_frequency_hz: Float[Array, "mode"]
    """Im(lambda) / 2 pi, eq. 20 of Huynh et al. 2020."""
    damping_ratio: Float[Array, "mode"]
    """-Re(lambda) / |lambda|."""
    eigenvalue: Complex[Array, "mode"]
    shape: Complex[Array, "n mode"]
    """Mode shapes in columns, the largest component 1."""
    overdamped: Float[Array, "root"]
    """Real eigenvalues, 1/s: of overdamped modes, of rigid-body ones (0 up to rounding), and of unstable motions, where
    they are positive."""


@typed_arguments
def modes(tangent: Tangent) -> Modes:
    """Complex modes of M dq'' + C dq' + K dq = 0.

    (lambda^2 M + lambda C + K) phi = 0, by the first-order form of eq. 18-19; frequency and damping by eq. 20. With
    structural damping K becomes K + j D, which is valid for positive frequencies: the modes are those with
    Im(lambda) > 0, and without viscous damping lambda^2 = -omega^2 (1 + j eta), eta the mode's loss factor, with
    |lambda| = omega (1 + eta^2)^(1/4) and a damping ratio of nearly eta / 2. Fractional damping adds
    lambda^a tau^a K_e to K; overdamped modes are then not found.

    Args:
        tangent: from `linearize`.

    Raises:
        ValueError: the mass matrix is singular, or a matrix is not finite.
        RuntimeError: a mode of a machine with fractional damping was not found.

    Returns:
        The modes with Im(lambda) > 0, without rigid-body ones, and separately the real eigenvalues. For use inside
        `jit`, where the number of modes must be known beforehand, see `oscillating_modes`.

    Source: Huynh et al. 2020, eq. 18-20.
    """
    # The number of modes depends on the values, so this runs on the host, outside of any `jit`.
    M, C, K = (np.asarray(part) for part in (tangent.mass, tangent.damping, tangent.stiffness))
    K = K if tangent.structural is None else K + 1j * np.asarray(tangent.structural)
    check_mass_matrix(M)
    for label, part in (("stiffness", K), ("damping", C)):
        if not np.isfinite(part).all():
            raise ValueError(
                f"the {label} matrix is not finite, as where the ends of a spring of type 'length' coincide"
            )
    if tangent.fractional is not None:
        E, order = np.asarray(tangent.fractional.matrix), float(tangent.fractional.order)
        return modes_of(*fractional_modes(M, C, K.astype(complex), E, order), np.zeros(0))
    values, shapes = first_order_modes(M, C, K)
    order = np.argsort(np.abs(values), kind="stable")
    size = REAL * np.abs(values)
    stiffest = np.abs(np.linalg.eigvals(np.linalg.solve(M, np.real(K)))).max(initial=0.0)
    elastic = np.abs(values) ** 2 > LEAST_STIFFNESS * stiffest  # of a rigid-body mode, rounding makes any number
    pairs = order[((np.imag(values) > size) & elastic)[order]]
    real = np.sort(np.real(values[np.abs(np.imag(values)) <= size]))
    return modes_of(values[pairs], shapes[:, pairs], real)


def possible_modes(tangent: Tangent) -> Modes:
    """Modes; none where the mass matrix is not positive definite, as with fitted inertias that no body has."""
    if not singular_mass_matrices(np.asarray(tangent.mass)):
        return modes(tangent)
    return modes_of(np.zeros(0, complex), np.zeros((len(tangent.mass), 0), complex), np.zeros(0))


def first_order_modes(
    M: Float[np.ndarray, "*p n n"], C: Float[np.ndarray, "*p n n"], K: Inexact[np.ndarray, "*p n n"]
) -> tuple[Complex[np.ndarray, "*p 2n"], Complex[np.ndarray, "*p n 2n"]]:
    """All 2n eigenvalues of lambda^2 M + lambda C + K and their shapes, in no particular order, on the host."""
    found = np.linalg.eig(state_matrix(M, C, K, np))
    return found.eigenvalues.astype(complex), found.eigenvectors[..., : M.shape[-1], :].astype(complex)


def check_mass_matrix(mass: np.ndarray, coordinates: Sequence[str] | None = None) -> None:
    """Raise ValueError where a mass matrix [n, n] is singular, naming the main coordinate of its null space."""
    if bool(singular_mass_matrices(mass)):
        if not np.isfinite(mass).all():
            raise ValueError("the mass matrix is not finite")
        main = int(np.argmax(np.abs(np.linalg.eigh(unit_diagonal(mass))[1][:, 0])))
        name = f"number {main + 1}" if coordinates is None else f"'{coordinates[main]}'"
        raise ValueError(
            f"the mass matrix is singular: a motion of mainly coordinate {name} moves no mass; if it is a drive in"
            " series with an elastic coordinate, write both as one joint with stiffness and motor = { inertia, ratio }"
        )


def singular_mass_matrices(masses: Float[np.ndarray, "*p n n"]) -> Bool[np.ndarray, "*p"]:
    """Whether each mass matrix is not finite, or singular to working precision after scaling to a unit diagonal."""
    if not masses.shape[-1]:  # all coordinates are locked
        return np.zeros(masses.shape[:-2], dtype=bool)
    finite = np.isfinite(masses).all(axis=(-2, -1), keepdims=True)
    values = np.linalg.eigvalsh(unit_diagonal(np.where(finite, masses, 0.0)))
    return (values[..., 0] <= LEAST_MASS * values[..., -1]) | (values[..., -1] <= 0.0)


def unit_diagonal(matrices: Float[np.ndarray, "*p n n"]) -> Float[np.ndarray, "*p n n"]:
    """Symmetric matrices scaled to a unit diagonal; rows without a positive entry there are unchanged."""
    diagonal = np.diagonal(matrices, axis1=-2, axis2=-1)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    return matrices * scale[..., :, None] * scale[..., None, :]


@compiled
def oscillating_modes(
    tangent: Tangent,
) -> tuple[Complex[Array, "n"], Complex[Array, "n n"], Bool[Array, "n"]]:
    """Eigenvalues [n] with Im > 0 and shapes [n, n] by ascending |eigenvalue|, and whether each is a mode [n].

    Always n of them, so that it can be compiled and differentiated: for overdamped pairs the last entries are other
    eigenvalues, real ones or conjugates, marked False.

    Raises:
        NotImplementedError: the machine has fractional damping.
    """
    if tangent.fractional is not None:
        raise NotImplementedError("fractional damping: modes cannot be compiled or fitted, expected FRFs only")
    if tangent.mass.shape[0] <= FEW:
        return _by_first_order(tangent)
    found, shapes, proportional = damped_modes(tangent.mass, tangent.damping, tangent.stiffness, tangent.structural)
    return jax.lax.cond(proportional, lambda: _in_order(found, shapes), lambda: _coupled(tangent))


@jax.custom_jvp
def selected_modes(
    tangent: Tangent, eigenvalue: Complex[Array, "n"], shape: Complex[Array, "n n"], selected: Int[Array, "k"]
) -> tuple[Complex[Array, "k"], Complex[Array, "n k"]]:
    """Eigenvalues [k] and shapes [n, k] of selected modes, with derivatives that cost less than those of all modes.

    The derivatives are valid for quantities independent of the shapes' scale; shapes of a repeated eigenvalue have
    none.

    Args:
        tangent: the machine.
        eigenvalue: of all modes, from `oscillating_modes`.
        shape: of all modes.
        selected: numbers of the modes.
    """
    return eigenvalue[selected], shape[:, selected]


@selected_modes.defjvp
def _selected_modes_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:
    """Without dampers lambda = s^2 are the eigenvalues of A = -M^-1 (K + j D) with eigenvectors V, and with
    P = V^-1 dA v_i d lambda_i = P_ii and dv_i = sum_j v_j P_ji / (lambda_i - lambda_j)."""
    (tangent, root, shape, selected), change = primals, tangents[0]

    def without_dampers() -> tuple[Array, Array]:
        s, v, square = root[selected], shape[:, selected], root**2
        effort = (change.mass @ v) * s**2 + (change.damping @ v) * s + change.stiffness @ v
        effort = effort if change.structural is None else effort + 1j * (change.structural @ v)
        projected = jnp.linalg.solve(tangent.mass @ shape, -effort)
        gap = square[selected][None, :] - square[:, None]
        same = jnp.abs(gap) <= 1e-10 * (jnp.abs(square)[:, None] + jnp.abs(square[selected])[None, :])
        coupling = jnp.where(same, 0.0, projected / jnp.where(same, 1.0, gap))
        return projected[selected, jnp.arange(s.size)] / (2.0 * s), shape @ coupling

    def with_dampers() -> tuple[Array, Array]:
        d_root, d_shape = jax.jvp(lambda t: oscillating_modes(t)[:2], (tangent,), (change,))[1]
        return d_root[selected], d_shape[:, selected]

    changed = jax.lax.cond(jnp.any(tangent.damping != 0.0), with_dampers, without_dampers)
    return selected_modes(tangent, root, shape, selected), changed


def _coupled(tangent: Tangent) -> tuple[Complex[Array, "n"], Complex[Array, "n n"], Bool[Array, "n"]]:
    """Modes with non-proportional damping; without dampers those of s^2 M + K + j D, a problem of half the size."""
    if tangent.structural is None:
        return _by_first_order(tangent)

    def structural() -> tuple[Array, Array, Array]:
        stiffness = jax.lax.complex(tangent.stiffness, jnp.asarray(tangent.structural))
        squares, shapes = eigenpairs(-jnp.linalg.solve(tangent.mass.astype(stiffness.dtype), stiffness))
        root = jnp.sqrt(squares)
        return _in_order(jnp.where(root.imag < 0.0, -root, root), shapes)

    return jax.lax.cond(jnp.any(tangent.damping != 0.0), lambda: _by_first_order(tangent), structural)


def _by_first_order(tangent: Tangent) -> tuple[Complex[Array, "n"], Complex[Array, "n n"], Bool[Array, "n"]]:
    values, vectors = eigenpairs(first_order(tangent))
    return _in_order(values, vectors[: tangent.mass.shape[0]])


def _in_order(
    values: Complex[Array, "m"], shapes: Complex[Array, "n m"]
) -> tuple[Complex[Array, "n"], Complex[Array, "n n"], Bool[Array, "n"]]:
    """The first n eigenvalues and shapes, oscillating ones first, and whether each oscillates."""
    above = values.imag > REAL * jnp.abs(values)
    order = jnp.argsort(jnp.where(above, jnp.abs(values), jnp.inf))[: shapes.shape[0]]
    return values[order], unit_shapes(shapes[:, order]), above[order]


@typed_arguments
def undamped_modes(tangent: Tangent) -> Modes:
    """Modes of M dq'' + K dq = 0: real shapes, no damping.

    Args:
        tangent: from `linearize`; its damping is not used.

    Returns:
        The modes, without unstable (negative stiffness) and rigid-body ones.
    """
    values, vectors = symmetric_pencil(tangent.stiffness, tangent.mass)
    keep = np.asarray(values) > LEAST_STIFFNESS * np.abs(values).max(initial=0.0)
    eigenvalue = 1j * np.sqrt(np.asarray(values)[keep])
    return modes_of(eigenvalue, np.asarray(vectors)[:, keep].astype(complex), np.zeros(0))


def select_modes(found: Modes, keep: Bool[np.ndarray, "mode"]) -> Modes:
    """The modes selected by a mask."""
    found = jax.tree.map(np.asarray, found)  # indexing JAX's arrays compiles a program for every shape
    return Modes(
        frequency_hz=found.frequency_hz[keep],
        damped_frequency_hz=found.damped_frequency_hz[keep],
        damping_ratio=found.damping_ratio[keep],
        eigenvalue=found.eigenvalue[keep],
        shape=found.shape[:, keep],
        overdamped=found.overdamped,
    )


def mac(
    shapes_a: Complex[Array, "n a"] | Complex[np.ndarray, "n a"],
    shapes_b: Complex[Array, "n b"] | Complex[np.ndarray, "n b"],
) -> Float[Array, "a b"]:
    """Modal assurance criterion [a, b] of two sets of shapes (columns): 1 collinear, 0 orthogonal. NumPy in, NumPy out.

    MAC_ij = |a_i^H b_j|^2 / ((a_i^H a_i) (b_j^H b_j))

    Raises:
        ValueError: the shapes do not have the same number of components.

    Source: Allemang, "The modal assurance criterion", Sound and Vibration 37(8), 2003.
    """
    shapes_a, shapes_b = (x if isinstance(x, jax.Array) else np.asarray(x) for x in (shapes_a, shapes_b))
    if shapes_a.ndim != 2 or shapes_b.ndim != 2 or shapes_a.shape[0] != shapes_b.shape[0]:
        raise ValueError(
            f"shapes are {shapes_a.shape} and {shapes_b.shape}, expected [n, modes] with the same n, shapes as columns"
        )
    xp: Any = np if isinstance(shapes_a, np.ndarray) and isinstance(shapes_b, np.ndarray) else jnp
    cross = xp.abs(xp.conj(shapes_a).T @ shapes_b) ** 2
    norm_a = xp.sum(xp.abs(shapes_a) ** 2, axis=0)
    norm_b = xp.sum(xp.abs(shapes_b) ** 2, axis=0)
    return cross / (norm_a[:, None] * norm_b[None, :])


def energy_shares(
    shapes: Complex[Array, "n mode"], stiffness: Float[Array, "n"] | Float[Array, "s n n"]
) -> Float[Array, "s mode"]:
    """Share of each spring in the strain energy of each mode; columns sum to 1.

    share_ir = phi_r^H K_i phi_r / sum_j phi_r^H K_j phi_r

    Args:
        shapes: columns, by the degrees of freedom of `linearize`.
        stiffness: of the own spring of each of these [n], for a machine without other springs, gears, beams and loops;
            or `spring_matrices`.

    Raises:
        ValueError: the stiffness does not match the components of the shapes.
    """
    n = shapes.shape[0]
    if stiffness.shape != (n,) and stiffness.shape[1:] != (n, n):
        raise ValueError(
            f"stiffness has shape {stiffness.shape}, expected ({n},) or (springs, {n}, {n}) for the shapes"
        )
    if stiffness.ndim == 1:
        energy = stiffness[:, None] * jnp.abs(shapes) ** 2
    else:
        energy = jnp.real(jnp.einsum("ir,sij,jr->sr", jnp.conj(shapes), stiffness, shapes))
    return energy / jnp.sum(energy, axis=0)


def spring_names(model: Model) -> tuple[str, ...]:
    """Names of the elastic parts in the order of `spring_matrices`: coordinates, springs between frames, beams."""
    free = (name for name, locked in zip(model.coordinates, model.locked, strict=True) if not locked)
    return (*free, *model.springs, *model.beams)


def is_unlocked(model: Model) -> tuple[bool, ...]:
    """Whether each coordinate, spring between frames and beam is in `spring_names`, which omits locked coordinates."""
    return (*(not locked for locked in model.locked), *(True for _ in (*model.springs, *model.beams)))


@numeric_arguments("q", "point")
@compiled
def spring_matrices(
    model: Model, q: Float[Array, "n"], point: Float[Array, "n"] | None = None
) -> Float[Array, "s m m"]:
    """Contribution of each spring, in the order of `spring_names`, to the stiffness matrix of `linearize` [s, m, m].

    It is the second derivative of the spring's energy. The geometric stiffness of loaded springs between frames may
    make it negative. Gravity stores no strain energy and is omitted.

    Args:
        model: the machine.
        q: posture at which the springs are unloaded [n], rad or m.
        point: configuration of the linearization [n]; by default q.

    Raises:
        ValueError: q or point does not have the machine's n coordinates, or a number is not finite.
    """
    check_coordinates(model, q=q, point=q if point is None else point)
    model = with_loaded_stiffness(model, q)
    n, rest = len(model.coordinates), whole(model, q)
    point = rest if point is None else whole(model, point)

    free, columns = ~np.array(model.locked, dtype=bool), motion_basis(model, point)
    stretch = (jnp.pad(own_springs(model), ((0, 0), (0, point.size - n))) @ columns)[free]
    each = [model.stiffness[free][:, None, None] * stretch[:, :, None] * stretch[:, None, :]]
    if model.springs:
        energies = jax.hessian(lambda x: 0.5 * model.spring_stiffness * spring_stretch(model, x, rest) ** 2)
        each.append(columns.T @ energies(point) @ columns)
    if model.beams:

        def of_beam(factor: Array) -> Array:
            return columns.T @ jax.jacfwd(lambda x: beam_effort(model, x - rest, factor))(point) @ columns

        each.append(jax.vmap(of_beam)(jnp.eye(len(model.beams))))
    return jnp.concatenate(each)


def first_order(tangent: Tangent) -> Float[Array, "2n 2n"]:
    """State matrix of a linearized machine: d/dt (q, q') = A (q, q')."""
    K, D = tangent.stiffness, tangent.structural
    return state_matrix(tangent.mass, tangent.damping, K if D is None else jax.lax.complex(K, D), jnp)


def state_matrix(M: Any, C: Any, K: Any, xp: Any) -> Any:
    """State matrix [*p, 2n, 2n] of M q'' + C q' + K q = 0 by NumPy or `jax.numpy`; K may be complex."""
    n = M.shape[-1]
    solved = xp.linalg.solve(M, xp.concatenate([K, C.astype(K.dtype)], axis=-1))
    upper = xp.concatenate([xp.zeros((n, n)), xp.eye(n)], axis=-1)
    return xp.concatenate([xp.broadcast_to(upper, solved.shape), -solved], axis=-2)


def unit_shapes(shapes: Any) -> Any:
    """Columns scaled so that the largest component of each is 1, columns of zeros unchanged; NumPy in, NumPy out."""
    if not shapes.size:
        return shapes
    xp: Any = np if isinstance(shapes, np.ndarray) else jnp
    largest = xp.take_along_axis(shapes, xp.argmax(xp.abs(shapes), axis=0)[None, :], axis=0)
    return shapes / xp.where(largest == 0.0, 1.0, largest)


def modes_of(eigenvalue: np.ndarray, shape: np.ndarray, overdamped: np.ndarray) -> Modes:
    """`Modes` of eigenvalues with Im > 0, shapes of any scale and overdamped roots."""
    size = np.abs(eigenvalue)
    hertz, damped_hertz = size / (2 * np.pi), np.imag(eigenvalue) / (2 * np.pi)
    columns = (hertz, damped_hertz, -np.real(eigenvalue) / size, eigenvalue, unit_shapes(shape), overdamped)
    return Modes(*(jax.device_put(c) for c in columns))


UNSYMMETRIC = 1e-9
"""Difference to the transpose, relative to the largest entry, up to which a matrix is symmetric."""
LEAST_STIFFNESS = 1e-12
"""Ratio of the smallest to the largest omega^2 at and below which a mode is a rigid-body mode."""


@typed_arguments
@numeric_arguments("damping_ratio", least=0.0)
def with_modal_damping(tangent: Tangent, damping_ratio: float | Sequence[float] | np.ndarray) -> Tangent:
    """The tangent with a damping ratio for each undamped mode instead of all its damping, of any kind.

    C = M Phi diag(2 zeta omega) Phi^T M, with K Phi = M Phi diag(omega^2) and Phi^T M Phi = I: the modes keep their
    undamped frequencies and shapes, and `modes` returns zeta where it is below 1.

    Args:
        tangent: from `linearize`, or of a `ReducedMotion`.
        damping_ratio: zeta of all modes, or of the lowest ones by ascending frequency, the last one applying to the
            others as well.

    Raises:
        ValueError: a damping ratio is negative or not finite, there are none or more than modes, the matrices are not
            symmetric, the mass matrix is singular, or the stiffness matrix is not positive definite.

    Source: Caughey, "Classical normal modes in damped linear dynamic systems", J. Appl. Mech. 27, 1960; Géradin and
    Rixen, Mechanical Vibrations, 2015.
    """
    M, K = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    n = M.shape[0]
    zeta = np.asarray(damping_ratio, dtype=float)
    if zeta.ndim > 1 or not 0 < zeta.size <= n:
        raise ValueError(
            f"damping_ratio has shape {zeta.shape}, expected one number, or one for each of at most {n} modes"
        )
    zeta = np.atleast_1d(zeta)
    check_mass_matrix(M)
    if any(not np.abs(part - part.T).max() <= UNSYMMETRIC * np.abs(part).max() for part in (M, K)):
        raise ValueError("the mass or stiffness matrix is not symmetric, expected a machine at rest for modal damping")
    values, modes = eigh(0.5 * (K + K.T), 0.5 * (M + M.T))
    if not values[0] > LEAST_STIFFNESS * values[-1]:
        raise ValueError(
            f"the stiffness matrix is not positive definite: a mode has omega^2 = {values[0]:.3g} (rad/s)^2, expected"
            " no rigid-body or unstable modes for modal damping"
        )
    zeta = np.concatenate([zeta, np.full(n - zeta.size, zeta[-1])])
    mass_shapes = M @ modes
    damping = (mass_shapes * (2.0 * zeta * np.sqrt(values))) @ mass_shapes.T
    return Tangent(tangent.mass, jax.device_put(damping), tangent.stiffness)


def paired_modes(
    first_hz: Float[np.ndarray, "a"],
    second_hz: Float[np.ndarray, "b"],
    likeness: Float[np.ndarray, "a b"] | None = None,
    farthest: float = np.inf,
) -> list[tuple[int, int]]:
    """One-to-one pairs (first, second) of modes with the least sum of 1 - MAC, or of |log| of the ratios of their
    frequencies.

    Args:
        first_hz: natural frequencies, Hz.
        second_hz: those of the other machine or measurement, Hz.
        likeness: MAC; None to pair by frequency.
        farthest: largest ratio of the frequencies of a pair.
    """
    if not (np.size(first_hz) and np.size(second_hz)):
        return []
    distance = np.abs(np.log(np.asarray(first_hz)[:, None] / np.asarray(second_hz)))
    is_pair = distance <= np.log(farthest)
    cost = np.where(is_pair, distance if likeness is None else 1.0 - likeness, UNPAIRABLE)
    # as scipy.optimize.linear_sum_assignment, whose import takes 60 ms; an entry of 0 would be no edge
    pairs = scipy.sparse.csgraph.min_weight_full_bipartite_matching(scipy.sparse.csr_array(1.0 + cost))
    return [(int(i), int(j)) for i, j in zip(*pairs, strict=True) if is_pair[i, j]]
