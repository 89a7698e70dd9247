"""Linear least squares over physically consistent machines: the pseudo-inertia of every body is positive definite."""

import dataclasses
from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from pydantic import ValidationError

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.identify.estimation.semidefinite import Cone, minimize_over
from jaxmb.identify.parameters.free_parameters import FreeParameters, affine_map
from jaxmb.identify.parameters.model_parameters import TENSOR
from jaxmb.machine.build import Model
from jaxmb.machine.changed import central_inertia
from jaxmb.machine.families import OF_BODIES
from jaxmb.machine.schema import RigidMass

SMALLEST_PART = 0.1
"""Mass and length assumed for a body without its own, over the largest ones of the machine."""
INERTIAL_NUMBERS = ("mass", *(f"first_moment.{axis}" for axis in "xyz"), *(f"inertia.{axes}" for axes in TENSOR))
"""The ten inertial parameters of a body."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bodies:
    """Pseudo-inertias of the bodies with free inertial parameters, affine in y: free values, then added parameters."""

    names: tuple[str, ...]
    base: Float[np.ndarray, "b 4 4"]
    """Pseudo-inertias at y = 0."""
    slope: Float[np.ndarray, "k b 4 4"]
    """Derivatives by each entry of y."""
    size: Float[np.ndarray, "b 4"]
    """Typical diagonal of each body's pseudo-inertia, by its mass m and length l: m l^2, three times, and m."""
    scale: Float[np.ndarray, "k"]
    """Typical size of each entry of y: m, m l or m l^2; 0 for parameters that are not inertial."""
    added: tuple[str, ...]
    """Fixed parameters without effect on any measurement, which may change for physical consistency."""


def pseudo_inertia(numbers: Float[np.ndarray, "... 10"]) -> Float[np.ndarray, "... 4 4"]:
    """[[tr(I) / 2 E - I, h], [h^T, m]] for mass m, first moment h and inertia I about the frame's origin.

    It is positive definite if and only if some distribution of mass in space has these ten parameters.

    Args:
        numbers: in the order of `INERTIAL_NUMBERS`.

    Source: Wensing, Kim and Slotine, "Linear matrix inequalities for physically consistent inertial parameter
        identification", IEEE Robotics and Automation Letters 3 (2018), eq. 12.
    """
    m, hx, hy, hz, xx, yy, zz, xy, xz, yz = np.moveaxis(np.asarray(numbers, float), -1, 0)
    rows = [
        [0.5 * (yy + zz - xx), -xy, -xz, hx],
        [-xy, 0.5 * (xx + zz - yy), -yz, hy],
        [-xz, -yz, 0.5 * (xx + yy - zz), hz],
        [hx, hy, hz, m],
    ]
    return np.moveaxis(np.array(rows), (0, 1), (-2, -1))


def bodies_with_free_inertia(free: FreeParameters) -> tuple[str, ...]:
    """Bodies and payloads with a free inertial parameter."""
    named = (name.split(".") for names in free.tied for name in names)
    return tuple(dict.fromkeys(item for family, item, *_ in named if family in OF_BODIES))


def inertial_parameters(body: str) -> tuple[str, ...]:
    """Names of the ten inertial parameters of a body."""
    return tuple(
        f"{family}.{body}{dot}{axes}" for family, dot, axes in (name.partition(".") for name in INERTIAL_NUMBERS)
    )


def bodies(model: Model, free: FreeParameters, may_change: Collection[str]) -> Bodies | None:
    """Pseudo-inertias of the bodies with free inertial parameters; None where there are none.

    Args:
        model: of the machine, whose bodies determine the typical sizes.
        free: the free parameters.
        may_change: fixed parameters that may change as well.
    """
    names = bodies_with_free_inertia(free)
    if not names:
        return None
    ten = [inertial_parameters(name) for name in names]
    added = tuple(number for numbers in ten for number in numbers if number in may_change)
    masses, inertias = np.asarray(model.mass), np.asarray(model.inertia)
    second_moments = 0.5 * np.trace(inertias, axis1=1, axis2=2)
    lengths = np.sqrt(np.maximum(second_moments, 0.0) / np.where(masses > 0.0, masses, np.inf))
    heaviest, longest = float(masses.max(initial=0.0)) or 1.0, float(lengths.max(initial=0.0)) or 1.0
    rows = [model.masses.index(name) for name in names]
    mass = np.array([masses[i] or SMALLEST_PART * heaviest for i in rows])
    length = np.array([lengths[i] or SMALLEST_PART * longest for i in rows])
    entries = (*free.tied, *((name,) for name in added))
    base, slope = np.zeros((len(names), 4, 4)), np.zeros((len(entries), len(names), 4, 4))
    scale = np.zeros(len(entries))
    for b, numbers in enumerate(ten):
        matrix, constant = affine_map(model, free, numbers)
        is_own = np.array([[number in each for each in entries] for number in numbers])
        base[b] = pseudo_inertia(constant)
        slope[:, b] = pseudo_inertia(np.hstack([matrix, is_own[:, free.size :]]).T)
        powers = np.array([mass[b], *[mass[b] * length[b]] * 3, *[mass[b] * length[b] ** 2] * 6])
        scale = np.maximum(scale, np.max(powers[:, None] * is_own, axis=0))
    return Bodies(names, base, slope, np.stack([mass * length**2] * 3 + [mass], axis=1), scale, added)


MARGIN = 1e-6
"""Smallest eigenvalue of a scaled pseudo-inertia: far above the rounding of a centre of mass, and negligible beside the
eigenvalues of a body."""
ROUNDING = 1e-12
"""Tolerance of the smallest eigenvalue for thin plates and rods, whose exact value is 0."""
RIDGE = 1e-4
"""Increase of chi^2 equivalent to a change of a body by its own size along a direction without effect on the data."""
GAP = 1e-10
"""Duality gap of chi^2 at convergence."""
FARTHEST = 1e6
"""Standard deviations from the start to the best fit, or in a body's own size, above which chi^2 is scaled down: data
without noise give 1e10, where rounding prevents convergence."""
ACTIVE = 0.01
"""Multiplier of a body's constraint, over the largest one, from which the constraint counts as active."""


class ConsistentSolution(NamedTuple):
    """Physically consistent solution of a linear least-squares problem."""

    x: Float[np.ndarray, "d"]
    """Free values; those of the unconstrained fit where no consistent solution exists."""
    added: dict[str, float]
    """Changes of fixed parameters by name."""
    rise: float
    """Increase of chi^2 over the unconstrained fit."""
    active: tuple[str, ...]
    """Bodies whose constraint is active: the data alone would make them physically inconsistent."""
    exists: bool
    """Whether a physically consistent machine has the fixed parameters."""
    determined: int
    """Number of directions with an effect on the data."""
    excluding: tuple[int, ...] = ()
    """Free values whose bounds exclude all consistent solutions, where there are some without them."""


def consistent_solution(
    found: Bodies,
    matrix: Float[np.ndarray, "m d"],
    measured: Float[np.ndarray, "m"],
    best: Float[np.ndarray, "d"],
    limited: Bool[np.ndarray, "d"],
    start: Float[np.ndarray, "d"],
    lower: Float[np.ndarray, "d"],
    upper: Float[np.ndarray, "d"],
) -> ConsistentSolution:
    """Free values with the smallest chi^2 = |measured - matrix x|^2 over all physically consistent machines.

    Along directions without effect on the data, the values are as close to the start as consistency permits, each
    parameter in units of its body. A best fit that is consistent is returned unchanged.

    Args:
        found: the bodies.
        matrix: of the equations, in units of the noise.
        measured: right-hand side of the equations.
        best: values with the smallest chi^2 within their bounds, consistent or not.
        limited: mask of the values limited by their bound in the best fit.
        start: values of the machine, or initial values of the study.
        lower: lower bounds, -inf for none.
        upper: upper bounds.

    Source: Wensing, Kim and Slotine 2018; Traversaro et al., "Identification of fully physical consistent inertial
        parameters using optimization on manifolds", IROS 2016.
    """
    corner = np.asarray(np.linalg.qr(np.column_stack([matrix, measured - matrix @ start]), mode="r"))
    scale = _scales(found, corner[:, :-1])
    sizes = np.linalg.norm(corner[:-1, :-1] * scale[: start.size], axis=0)
    farthest = max(float(np.linalg.norm(corner[:-1, :-1] @ (best - start))), float(sizes.max(initial=0.0)))
    unit = max(1.0, farthest / FARTHEST)
    rows, right = corner[:, :-1] / unit, corner[:, -1] / unit
    problem = _Problem(found, rows, right, scale, start, lower, upper)
    for fixed in (np.zeros(start.size, bool), limited):
        centre = _centred(problem, np.where(fixed, best, start), fixed)
        y = centre.values(np.zeros(centre.size))
        if _is_consistent(problem, y):
            whole = centre.rank == start.size
            return ConsistentSolution(best if whole else y[: start.size], {}, 0.0, (), True, centre.rank)
    inside = _consistent_solution(problem, best)
    return inside._replace(rise=unit**2 * inside.rise)


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    bodies: Bodies
    rows: np.ndarray
    right: np.ndarray
    scale: np.ndarray
    start: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def excess(self, x: np.ndarray) -> float:
        """chi^2 at x, apart from a constant."""
        return float(np.sum((self.right - self.rows @ (x - self.start)) ** 2))


@dataclasses.dataclass(frozen=True, eq=False)
class _Centred:
    """Coordinates w with y = centre + basis w; w = 0 is the best fit closest to the start.

    The first `rank` entries of w are in standard deviations, the others in sizes of bodies.
    """

    centre: np.ndarray
    basis: np.ndarray
    weak: np.ndarray
    """Length of each column of the basis in sizes of bodies."""
    own: np.ndarray
    """w of the start."""
    rank: int
    cone: Cone
    """Constraints less the margin, on the faces to which the bodies are confined for all w."""

    @property
    def size(self) -> int:
        """Number of entries of w."""
        return self.basis.shape[1]

    def values(self, w: np.ndarray) -> np.ndarray:
        """y of w."""
        return self.centre + self.basis @ w


def _is_consistent(problem: _Problem, y: np.ndarray) -> bool:
    """Whether a machine file accepts the bodies at y, and all values are within their bounds."""
    d, found = problem.start.size, problem.bodies
    if np.any((y[:d] < problem.lower) | (y[:d] > problem.upper)):
        return False
    for matrix, r in zip(found.base + np.tensordot(y, found.slope, 1), np.sqrt(found.size), strict=True):
        # The check of a machine file is more tolerant, as its numbers have few digits.
        if np.linalg.eigvalsh(matrix / np.outer(r, r)).min() < -ROUNDING:
            return False
        inertia = np.trace(matrix[:3, :3]) * np.eye(3) - matrix[:3, :3]
        center, tensor = central_inertia(float(matrix[3, 3]), matrix[:3, 3], inertia)
        tensor = 0.5 * (tensor + tensor.T)
        try:
            RigidMass.model_validate({
                "name": "body", "mass": float(matrix[3, 3]), "center_of_mass": center.tolist(),
                "inertia_tensor": tensor.tolist(),
            })  # fmt: skip
        except ValidationError:
            return False
    return True


def _scales(found: Bodies, rows: np.ndarray) -> np.ndarray:
    """Typical size of each entry of y; other parameters get the one with the median effect of inertial ones on data."""
    d = rows.shape[1]
    length = np.linalg.norm(rows, axis=0)
    scale = found.scale.copy()
    inertial = (scale[:d] > 0.0) & (length > 0.0)
    effect = float(np.median(scale[:d][inertial] * length[inertial])) if inertial.any() else 1.0
    other = scale[:d] == 0.0
    scale[:d][other] = np.where(length[other] > 0.0, effect / np.where(length[other] > 0.0, length[other], 1.0), 1.0)
    return scale


def _centred(
    problem: _Problem, start: np.ndarray, fixed: np.ndarray, constrained: Bool[np.ndarray, "2 d"] | None = None
) -> _Centred:
    """Coordinates w about the best fit, with some values fixed; lower and upper bounds that are constraints, by default
    those of the fixed values."""
    d, k = start.size, problem.scale.size
    moving = np.flatnonzero(~fixed)
    rows, right = problem.rows[:, moving], problem.right - problem.rows @ (start - problem.start)
    svd = scaled_svd(rows, RANK_TOLERANCE)
    effect = svd.values[: svd.rank, None] * svd.right[: svd.rank] * svd.scale * problem.scale[moving]
    u, s, w = np.linalg.svd(effect, full_matrices=True)
    best = u.T @ (svd.left[: len(right), : svd.rank].T @ right)
    along = np.zeros((k, moving.size + k - d))
    along[moving, : svd.rank] = w[: svd.rank].T / s
    along[moving, svd.rank : moving.size] = w[svd.rank :].T
    along[d:, moving.size :] = np.eye(k - d)
    basis = problem.scale[:, None] * along
    own = np.zeros(along.shape[1])
    own[: svd.rank] = -best
    centre = np.concatenate([start, np.zeros(k - d)]) - basis @ own
    cone = _cone(problem, centre, basis, np.stack([fixed, fixed]) if constrained is None else constrained)
    return _Centred(centre, basis, np.linalg.norm(along, axis=0), own, svd.rank, cone)


def _cone(problem: _Problem, centre: np.ndarray, basis: np.ndarray, constrained: Bool[np.ndarray, "2 d"]) -> Cone:
    """Pseudo-inertias in sizes of their bodies less the margin, and lower and upper bounds, affine in w."""
    found = problem.bodies
    root = 1.0 / np.sqrt(found.size)
    unit = root[:, :, None] * root[:, None, :]
    base = unit * (found.base + np.tensordot(centre, found.slope, 1))
    slope = unit * np.tensordot(basis.T, found.slope, 1)
    sizes = np.tile(np.eye(4), (len(base), 1, 1))
    for b in range(len(base)):
        # A constant singular block has no interior: the body is restricted to its face.
        flat = np.concatenate([unit[b] * found.base[b], *(unit[b] * part for part in found.slope[:, b])])
        _, size, axes = np.linalg.svd(flat / (np.abs(flat).max() or 1.0))
        face = axes[size > 1e-9]
        if len(face) < 4:
            base[b], slope[:, b] = _on_face(base[b], face, 1.0), _on_face(slope[:, b], face, 0.0)
            sizes[b] = _on_face(np.eye(4), face, 0.0)
    for mask, bounds, side in zip(constrained, (problem.lower, problem.upper), (1.0, -1.0), strict=True):
        i = np.flatnonzero(mask)
        bound, bound_slope = np.tile(np.eye(4), (i.size, 1, 1)), np.zeros((basis.shape[1], i.size, 4, 4))
        bound[:, 0, 0] = side * (centre[i] - bounds[i]) / problem.scale[i]
        bound_slope[:, :, 0, 0] = side * (basis[i] / problem.scale[i, None]).T
        base, slope = np.concatenate([base, bound]), np.concatenate([slope, bound_slope], axis=1)
        sizes = np.concatenate([sizes, np.zeros(bound.shape)])
    return Cone(base - MARGIN * sizes, slope, np.zeros(basis.shape[1]))


def _on_face(matrix: np.ndarray, face: np.ndarray, filled: float) -> np.ndarray:
    """Matrices restricted to a face, padded by a constant on the diagonal."""
    n = len(face)
    found = np.zeros(matrix.shape)
    found[..., :n, :n] = face @ matrix @ face.T
    found[..., range(n, 4), range(n, 4)] = filled
    return found


def _consistent_solution(problem: _Problem, best: np.ndarray) -> ConsistentSolution:
    """Solution with the smallest chi^2 over consistent machines, with the bounds that it reaches as constraints."""
    lower, upper = problem.lower, problem.upper
    sized = problem.bodies.scale[: best.size] > 0.0
    # Consistent bodies already have masses above 0, but not above a larger bound.
    constrained = np.stack([(lower >= 0.0) & (~sized | (lower > 0.0)), np.zeros(best.size, bool)])
    while True:
        found = _constrained_solution(problem, best, constrained)
        beyond = np.stack([found.x < lower, found.x > upper])
        if not (found.exists and beyond.any()):
            return found
        # The problem is convex: bounds that the solution satisfies by itself need no constraint.
        constrained = constrained | beyond


def _constrained_solution(
    problem: _Problem, best: np.ndarray, constrained: Bool[np.ndarray, "2 d"]
) -> ConsistentSolution:
    d = problem.start.size
    about = _centred(problem, problem.start, np.zeros(d, bool), constrained)
    start, matrices = _interior_point(about)
    if start is None:
        excluding = _excluding(problem, constrained, matrices)
        return ConsistentSolution(best, {}, 0.0, _active(problem, matrices), False, about.rank, excluding)
    weight = np.where(np.arange(about.size) < about.rank, 2.0, 2.0 * RIDGE)
    w, _ = minimize_over(about.cone, np.diag(weight), np.zeros(about.size), start, GAP)
    y = _restored(problem, _on_bounds(problem, constrained, about.values(w)))
    x = y[:d]
    rise = max(problem.excess(x) - problem.excess(best), 0.0)
    added = {name: float(value) for name, value in zip(problem.bodies.added, y[d:], strict=True) if value}
    return ConsistentSolution(x, added, rise, _active(problem, about.cone.matrices(w)), True, about.rank)


def _excluding(problem: _Problem, constrained: Bool[np.ndarray, "2 d"], matrices: np.ndarray) -> tuple[int, ...]:
    """Values whose bounds exclude all consistent solutions; none where there are none without bounds either."""
    which = np.nonzero(constrained)[1]
    unbounded = _centred(problem, problem.start, np.zeros(problem.start.size, bool))
    if not which.size or _interior_point(unbounded)[0] is None:
        return ()
    slack = matrices[len(problem.bodies.names) :, 0, 0]
    return tuple(sorted(set(which[slack <= slack.min() / ACTIVE].tolist())))


def _on_bounds(problem: _Problem, constrained: Bool[np.ndarray, "2 d"], y: np.ndarray) -> np.ndarray:
    """Values with those close to a bound set to it, as the search ends in the interior."""
    d = problem.start.size
    near = 1e-6 * problem.scale[:d]
    x = np.where(constrained[0] & (y[:d] - problem.lower < near), problem.lower, y[:d])
    x = np.where(constrained[1] & (problem.upper - y[:d] < near), problem.upper, x)
    return np.append(x, y[d:])


def _restored(problem: _Problem, y: np.ndarray) -> np.ndarray:
    """y with the start's values of parameters without effect on any measurement, where bodies stay consistent."""
    d, slope = problem.start.size, problem.bodies.slope
    own = np.append(problem.start, np.zeros(y.size - d))
    idle = np.append(~problem.rows.any(axis=0), np.ones(y.size - d, bool))
    y = np.where(idle & ~slope.any(axis=(1, 2, 3)), own, y)
    for b in range(slope.shape[1]):
        mine = np.flatnonzero(idle & slope[:, b].any(axis=(1, 2)))
        for some in (mine, *([k] for k in mine)):
            tried = y.copy()
            tried[some] = own[some]
            y = tried if _is_consistent(problem, tried) else y
    return y


def _interior_point(about: _Centred) -> tuple[np.ndarray | None, np.ndarray]:
    """An interior point near the start, None where there is none, and the matrices there.

    Minimizes t with P(w) + t E positive definite, towards -1, with a small penalty on the distance to the start.
    """
    cone = about.cone
    inside = cone.matrices(about.own)
    short = float(np.linalg.eigvalsh(inside).min())
    if short > MARGIN:
        return about.own, inside
    k = about.size
    slack = np.broadcast_to(np.eye(4), (1, *cone.base.shape))
    wider = Cone(cone.base, np.concatenate([cone.slope, slack]), np.zeros(k + 1))
    price = 1e-6 * np.append(about.weak**2, 0.0)
    hessian = np.diag(np.append(price[:k], 1.0))
    gradient = np.append(-price[:k] * about.own, 1.0)
    w, _ = minimize_over(wider, hessian, gradient, np.append(about.own, 1.0 - 2.0 * short), 1e-8)
    return (w[:k] if w[k] < 0.0 else None), wider.matrices(w)


def _active(problem: _Problem, matrices: np.ndarray) -> tuple[str, ...]:
    """Bodies with active constraints: near the minimum of the barrier the multiplier of a matrix is its inverse."""
    names = problem.bodies.names
    sizes = np.linalg.eigvalsh(matrices[: len(names)])  # of an active one 0 up to rounding
    multiplier = np.sum(1.0 / np.maximum(sizes, np.finfo(float).tiny), axis=1)
    return tuple(name for name, m in zip(names, multiplier, strict=True) if m >= ACTIVE * multiplier.max())
