"""Linear steps that end at machines that can exist: every body has a positive definite pseudo-inertia."""

import dataclasses
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float
from pydantic import ValidationError

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.identify.estimation.semidefinite import Cone, minimise_over
from jaxmb.identify.parameters.free_parameters import FreeParameters, affine_numbers
from jaxmb.machine.build import Model
from jaxmb.machine.changed import central_inertia
from jaxmb.machine.schema import RigidMass

FAMILIES = ("mass", "first_moment", "inertia")
SMALLEST_PART = 0.1
"""Mass and length of a body that has none, over the largest ones of the machine."""
_AXES = ("x", "y", "z")
_TENSOR = {"xx": (0, 0), "yy": (1, 1), "zz": (2, 2), "xy": (0, 1), "xz": (0, 2), "yz": (1, 2)}
NUMBERS = ("mass", *(f"first_moment.{a}" for a in _AXES), *(f"inertia.{a}" for a in _TENSOR))
"""The ten numbers of a body."""


@dataclasses.dataclass(frozen=True, eq=False)
class Bodies:
    """Pseudo-inertias of the bodies that a fit touches, affine in y: the free values, then the added numbers."""

    names: tuple[str, ...]
    base: Float[np.ndarray, "b 4 4"]
    """At y = 0."""
    slope: Float[np.ndarray, "k b 4 4"]
    size: Float[np.ndarray, "b 4"]
    """Diagonal of a pseudo-inertia of each body's size: m l^2, three times, and m."""
    scale: Float[np.ndarray, "k"]
    """Of y: m, m l or m l^2; 0 of what is no inertial number."""
    added: tuple[str, ...]
    """Numbers that are not free and that no measurement depends on; they may move for a body to be possible."""


def pseudo_inertia(numbers: Float[np.ndarray, "... 10"]) -> Float[np.ndarray, "... 4 4"]:
    """[[tr(I) / 2 E - I, h], [h^T, m]] of mass m, first moment h and inertia I about the frame's origin.

    It is positive definite if and only if some distribution of mass in space has these ten numbers.

    Args:
        numbers: in the order of `NUMBERS`.

    Source: Wensing, Kim and Slotine, "Linear matrix inequalities for physically consistent inertial parameter
        identification", IEEE Robotics and Automation Letters 3 (2018), eq. 12.
    """
    numbers = np.asarray(numbers, float)
    inertia = np.zeros((*numbers.shape[:-1], 3, 3))
    for k, (i, j) in enumerate(_TENSOR.values(), 4):
        inertia[..., i, j] = inertia[..., j, i] = numbers[..., k]
    found = np.zeros((*numbers.shape[:-1], 4, 4))
    trace = np.trace(inertia, axis1=-2, axis2=-1)[..., None, None]
    found[..., :3, :3] = 0.5 * trace * np.eye(3) - inertia
    found[..., :3, 3] = found[..., 3, :3] = numbers[..., 1:4]
    found[..., 3, 3] = numbers[..., 0]
    return found


def touched_bodies(free: FreeParameters) -> tuple[str, ...]:
    """Bodies and payloads of which an inertial number is free."""
    named = (name.split(".") for names in free.tied for name in names)
    return tuple(dict.fromkeys(item for family, item, *_ in named if family in FAMILIES))


def numbers_of(body: str) -> tuple[str, ...]:
    """Names of the ten numbers of a body."""
    return tuple(f"{family}.{body}{dot}{axes}" for family, dot, axes in (name.partition(".") for name in NUMBERS))


def bodies(model: Model, free: FreeParameters, idle: Collection[str]) -> Bodies | None:
    """What must be positive definite where inertial numbers are free; None where none is.

    Args:
        model: the machine's, whose own bodies give the sizes.
        free: the free parameters.
        idle: numbers that may be moved beside them.
    """
    names = touched_bodies(free)
    if not names:
        return None
    ten = [numbers_of(name) for name in names]
    added = tuple(number for numbers in ten for number in numbers if number in idle)
    masses, inertias = np.asarray(model.mass), np.asarray(model.inertia)
    turned = 0.5 * np.trace(inertias, axis1=1, axis2=2)
    lengths = np.sqrt(np.maximum(turned, 0.0) / np.where(masses > 0.0, masses, np.inf))
    most, longest = float(masses.max(initial=0.0)) or 1.0, float(lengths.max(initial=0.0)) or 1.0
    rows = [model.masses.index(name) for name in names]
    mass = np.array([masses[i] or SMALLEST_PART * most for i in rows])
    length = np.array([lengths[i] or SMALLEST_PART * longest for i in rows])
    base, slope = np.zeros((len(names), 4, 4)), np.zeros((free.size + len(added), len(names), 4, 4))
    scale = np.zeros(free.size + len(added))
    for b, numbers in enumerate(ten):
        matrix, constant = affine_numbers(model, free, numbers)
        base[b] = pseudo_inertia(constant)
        slope[: free.size, b] = pseudo_inertia(matrix.T)
        powers = np.array([mass[b], *[mass[b] * length[b]] * 3, *[mass[b] * length[b] ** 2] * 6])
        for k, number in enumerate(numbers):
            own = [i for i, tied in enumerate(free.tied) if number in tied]
            if number in added:
                own = [free.size + added.index(number)]
                slope[own[0], b] = pseudo_inertia(np.eye(10)[k])
            scale[own] = np.maximum(scale[own], powers[k])
    size = np.stack([mass * length**2] * 3 + [mass], axis=1)
    return Bodies(names, base, slope, size, scale, added)


MARGIN = 1e-6
"""Least eigenvalue of a scaled pseudo-inertia: far from what rounding does to a centre of mass, and nothing beside what
a body has."""
ROUNDING = 1e-12
"""By which that of a thin plate or rod, which is 0, may be below."""
PULL = 1e-4
"""Rise of chi^2 for which a direction that the data do not determine may move a body by its own size."""
GAP = 1e-10
"""Of chi^2, at which the search for the best possible machine ends."""
FARTHEST = 1e6
"""Standard deviations from the start to the best fit, or in a body's own size, above which chi^2 is taken in larger
units: without noise they are 1e10 and the search is lost in rounding."""
PRESSING = 0.01
"""Part of the largest multiplier from which on a body is one of those that keep the data from being followed."""


class ConsistentSolution(NamedTuple):
    """The best possible machine beside the best one."""

    x: Float[np.ndarray, "d"]
    """Free values."""
    added: dict[str, float]
    """By how much numbers that are not free were moved."""
    rise: float
    """Of chi^2 above that of the best fit, possible or not."""
    pressing: tuple[str, ...]
    """Bodies that end on the limit of what can exist, where the data would move them beyond."""
    exists: bool
    """Whether a possible machine has the numbers that are kept; if not, x are the values of the best fit."""
    determined: int
    """Directions that the data determine."""
    shut_out: tuple[int, ...] = ()
    """Free values whose bounds leave no possible body, where there is one without them."""


def consistent_solution(
    found: Bodies,
    matrix: Float[np.ndarray, "m d"],
    measured: Float[np.ndarray, "m"],
    best: Float[np.ndarray, "d"],
    held: Bool[np.ndarray, "d"],
    start: Float[np.ndarray, "d"],
    least: Float[np.ndarray, "d"],
    most: Float[np.ndarray, "d"],
) -> ConsistentSolution:
    """Free values with the least chi^2 = |measured - matrix x|^2 of all possible machines.

    Directions that the data do not determine stay as near to the start as bodies that can exist let them, each number
    in units of its body. Where the best fit can exist, it is what comes back.

    Args:
        found: the bodies.
        matrix: of the equations, in units of the noise.
        measured: what they are to give.
        best: values with the least chi^2 within their bounds, bodies possible or not.
        held: which of them are held on a bound.
        start: the machine's own values, or those that the study starts from.
        least: the lower bounds, -inf for none.
        most: the upper ones.

    Source: Wensing, Kim and Slotine 2018; Traversaro et al., "Identification of fully physical consistent inertial
        parameters using optimization on manifolds", IROS 2016.
    """
    corner = np.asarray(np.linalg.qr(np.column_stack([matrix, measured - matrix @ start]), mode="r"))
    scale = _scales(found, corner[:, :-1])
    sizes = np.linalg.norm(corner[:-1, :-1] * scale[: start.size], axis=0)
    farthest = max(float(np.linalg.norm(corner[:-1, :-1] @ (best - start))), float(sizes.max(initial=0.0)))
    unit = max(1.0, farthest / FARTHEST)
    rows, right = corner[:, :-1] / unit, corner[:, -1] / unit
    problem = _Problem(found, rows, right, scale, start, least, most)
    for fixed in [np.zeros(start.size, bool), held] if held.any() else [np.zeros(start.size, bool)]:
        centre = _centred(problem, np.where(fixed, best, start), fixed)
        y = centre.values(np.zeros(centre.size))
        if _can_exist(problem, y):
            whole = centre.rank == start.size
            return ConsistentSolution(best if whole else y[: start.size], {}, 0.0, (), True, centre.rank)
    inside = _inside(problem, best)
    return inside._replace(rise=unit**2 * inside.rise)


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    bodies: Bodies
    rows: np.ndarray
    right: np.ndarray
    scale: np.ndarray
    start: np.ndarray
    least: np.ndarray
    most: np.ndarray

    def excess(self, x: np.ndarray) -> float:
        """chi^2 but for what no x explains."""
        return float(np.sum((self.right - self.rows @ (x - self.start)) ** 2))


class _Walls(NamedTuple):
    """Which lower and upper bounds a search minds; the others it never came to."""

    lower: Bool[np.ndarray, "d"]
    upper: Bool[np.ndarray, "d"]


@dataclasses.dataclass(frozen=True, eq=False)
class _Centred:
    """Values and added numbers y = centre + basis w; w = 0 is the best fit nearest to the start.

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
    """Margin left out; on the faces on which the bodies lie whatever w is."""
    size_of: np.ndarray

    @property
    def size(self) -> int:
        return self.basis.shape[1]

    def values(self, w: np.ndarray) -> np.ndarray:
        return self.centre + self.basis @ w


def _can_exist(problem: _Problem, y: np.ndarray) -> bool:
    """Whether the bodies at y are those of a machine file, and nothing is outside of its bounds."""
    d, found = problem.start.size, problem.bodies
    if np.any((y[:d] < problem.least) | (y[:d] > problem.most)):
        return False
    root = np.sqrt(found.size)
    for matrix, r in zip(found.base + np.tensordot(y, found.slope, 1), root, strict=True):
        # The machine file's own check is wider: what is printed with a few digits may be a little beyond the limit.
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
    """Sizes of all y: what is no inertial number changes what is measured as much as one of those of its size."""
    d = rows.shape[1]
    length = np.linalg.norm(rows, axis=0)
    scale = found.scale.copy()
    inertial = (scale[:d] > 0.0) & (length > 0.0)
    effect = float(np.median(scale[:d][inertial] * length[inertial])) if inertial.any() else 1.0
    other = scale[:d] == 0.0
    scale[:d][other] = np.where(length[other] > 0.0, effect / np.where(length[other] > 0.0, length[other], 1.0), 1.0)
    return scale


def _centred(problem: _Problem, start: np.ndarray, fixed: np.ndarray, walls: _Walls | None = None) -> _Centred:
    """Coordinates w about the best fit, some values fixed."""
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
    cone, size_of = _cone(problem, centre, basis, walls or _Walls(fixed, fixed))
    return _Centred(centre, basis, np.linalg.norm(along, axis=0), own, svd.rank, cone, size_of)


def _cone(problem: _Problem, centre: np.ndarray, basis: np.ndarray, walls: _Walls) -> tuple[Cone, np.ndarray]:
    """Pseudo-inertias in sizes of their bodies, and bounds, affine in w; and what a margin takes from them."""
    found = problem.bodies
    root = 1.0 / np.sqrt(found.size)
    unit = root[:, :, None] * root[:, None, :]
    base = unit * (found.base + np.tensordot(centre, found.slope, 1))
    slope = unit * np.tensordot(basis.T, found.slope, 1)
    sizes = np.tile(np.eye(4), (len(base), 1, 1))
    for b in range(len(base)):
        # What no w moves and is singular cannot be in the inside: it is left to the face on which it lies.
        flat = np.concatenate([unit[b] * found.base[b], *(unit[b] * part for part in found.slope[:, b])])
        _, size, axes = np.linalg.svd(flat / (np.abs(flat).max() or 1.0))
        face = axes[size > 1e-9]
        if len(face) == 4:
            continue
        base[b], slope[:, b] = _on_face(base[b], face, 1.0), _on_face(slope[:, b], face, 0.0)
        sizes[b] = _on_face(np.eye(4), face, 0.0)
    for at, bounds, side in ((walls.lower, problem.least, 1.0), (walls.upper, problem.most, -1.0)):
        i = np.flatnonzero(at)
        bound, bound_slope = np.zeros((i.size, 4, 4)), np.zeros((basis.shape[1], i.size, 4, 4))
        bound[:] = np.eye(4)
        bound[:, 0, 0] = side * (centre[i] - bounds[i]) / problem.scale[i]
        bound_slope[:, :, 0, 0] = side * (basis[i] / problem.scale[i, None]).T
        base, slope = np.concatenate([base, bound]), np.concatenate([slope, bound_slope], axis=1)
        sizes = np.concatenate([sizes, np.zeros(bound.shape)])
    return Cone(base, slope, np.zeros(basis.shape[1])), sizes


def _on_face(matrix: np.ndarray, face: np.ndarray, filled: float) -> np.ndarray:
    """Matrices seen on a face, the rest of the diagonal filled up."""
    n = len(face)
    found = np.zeros(matrix.shape)
    found[..., :n, :n] = face @ matrix @ face.T
    found[..., range(n, 4), range(n, 4)] = filled
    return found


def _inside(problem: _Problem, best: np.ndarray) -> ConsistentSolution:
    """The least chi^2 over possible machines, from a point among them on."""
    least, most = problem.least, problem.most
    sized = problem.bodies.scale[: best.size] > 0.0
    # A mass above 0 is what the bodies say already, one above more is not.
    walls = _Walls((least >= 0.0) & (~sized | (least > 0.0)), np.zeros(best.size, bool))
    while True:
        found = _inside_walls(problem, best, walls)
        beyond = _Walls(found.x < least, found.x > most)
        if not found.exists or not (beyond.lower.any() or beyond.upper.any()):
            return found
        # The problem is convex: bounds that the best point keeps by itself need not be looked at.
        walls = _Walls(walls.lower | beyond.lower, walls.upper | beyond.upper)


def _inside_walls(problem: _Problem, best: np.ndarray, walls: _Walls) -> ConsistentSolution:
    d = problem.start.size
    about = _centred(problem, problem.start, np.zeros(d, bool), walls)
    cone = dataclasses.replace(about.cone, base=about.cone.base - MARGIN * about.size_of)
    start, pressing = _any_inside(cone, about)
    if start is None:
        shut_out = _shutting_out(problem, walls, pressing)
        return ConsistentSolution(best, {}, 0.0, _named(problem, pressing), False, about.rank, shut_out)
    weight = np.where(np.arange(about.size) < about.rank, 2.0, 2.0 * PULL)
    w, _ = minimise_over(cone, np.diag(weight), np.zeros(about.size), start, GAP)
    y = _restored(problem, _on_walls(problem, walls, about.values(w)))
    x = y[:d]
    rise = max(problem.excess(x) - problem.excess(best), 0.0)
    added = {name: float(value) for name, value in zip(problem.bodies.added, y[d:], strict=True) if value}
    return ConsistentSolution(x, added, rise, _named(problem, cone.matrices(w)), True, about.rank)


def _shutting_out(problem: _Problem, walls: _Walls, matrices: np.ndarray) -> tuple[int, ...]:
    """Values whose bounds are why no possible body was found, none where there is none without them either."""
    own = np.zeros(problem.start.size, bool)
    if not (walls.lower.any() or walls.upper.any()):
        return ()
    about = _centred(problem, problem.start, own, _Walls(own, own))
    cone = dataclasses.replace(about.cone, base=about.cone.base - MARGIN * about.size_of)
    if _any_inside(cone, about)[0] is None:
        return ()
    which = np.concatenate([np.flatnonzero(walls.lower), np.flatnonzero(walls.upper)])
    left = matrices[len(problem.bodies.names) :, 0, 0]
    return tuple(sorted(set(which[left <= left.min() / PRESSING].tolist())))


def _on_walls(problem: _Problem, walls: _Walls, y: np.ndarray) -> np.ndarray:
    """Values put on the bounds that they would touch: the search ends a little before them."""
    d = problem.start.size
    near = 1e-6 * problem.scale[:d]
    found = y.copy()
    found[:d] = np.where(walls.lower & (y[:d] - problem.least < near), problem.least, found[:d])
    found[:d] = np.where(walls.upper & (problem.most - y[:d] < near), problem.most, found[:d])
    return found


def _restored(problem: _Problem, y: np.ndarray) -> np.ndarray:
    """Numbers that no measurement depends on as they were, where their bodies can exist with them."""
    d, slope = problem.start.size, problem.bodies.slope
    own = np.append(problem.start, np.zeros(y.size - d))
    idle = np.append(~problem.rows.any(axis=0), np.ones(y.size - d, bool))
    alone = idle & ~slope.any(axis=(1, 2, 3))
    y = np.where(alone, own, y)
    for b in range(slope.shape[1]):
        mine = np.flatnonzero(idle & slope[:, b].any(axis=(1, 2)))
        for some in (mine, *([k] for k in mine)):
            tried = y.copy()
            tried[some] = own[some]
            if _can_exist(problem, tried):
                y = tried
    return y


def _any_inside(cone: Cone, about: _Centred) -> tuple[np.ndarray | None, np.ndarray]:
    """A point inside, near the start; None where there is none. And the matrices there.

    t of P(w) + t E > 0 goes towards -1, at a price for leaving the start that is small beside that.
    """
    inside = cone.matrices(about.own)
    short = float(np.linalg.eigvalsh(inside).min())
    if short > MARGIN:
        return about.own, inside
    k = about.size
    slack = np.zeros((1, *cone.base.shape))
    slack[0] = np.eye(4)
    wider = Cone(cone.base, np.concatenate([cone.slope, slack]), np.zeros(k + 1))
    price = 1e-6 * np.append(about.weak**2, 0.0)
    hessian = np.diag(np.append(price[:k], 1.0))
    gradient = np.append(-price[:k] * about.own, 1.0)
    w, _ = minimise_over(wider, hessian, gradient, np.append(about.own, 1.0 - 2.0 * short), 1e-8)
    return (w[:k] if w[k] < 0.0 else None), wider.matrices(w)


def _named(problem: _Problem, matrices: np.ndarray) -> tuple[str, ...]:
    """Bodies that press on the limit: near the minimum of the barrier the multiplier of a matrix is its inverse."""
    names: Sequence[str] = problem.bodies.names
    press = np.trace(np.linalg.inv(matrices[: len(names)]), axis1=1, axis2=2)
    return tuple(name for name, p in zip(names, press, strict=True) if p >= PRESSING * press.max())
