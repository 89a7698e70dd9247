"""From reduced parameters back to whole compliances of joints and links that a machine can have.

Among all compliances that give the reduced values, those are looked for whose matrices are symmetric and positive
semi-definite. The reduced values leave them free in many directions; physics bounds most of these.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import chdtri
from threadpoolctl import threadpool_limits

from jaxmb.identify.estimation.reduction import Reduction
from jaxmb.identify.estimation.semidefinite import Cone, minimise_over
from jaxmb.identify.stiffness_model.complete_model import CompleteModel
from jaxmb.identify.stiffness_model.compliance_blocks import (
    block_matrices,
    diagonal_of,
    ends_of,
    is_diagonal,
    joints_and_links,
)
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model

GAP = 1e-12
"""Of the objective of a completion, half its chi-square; rounding may keep the search at ten times that."""
NEARNESS = 1e-6
"""What one scaled unit of distance from the nominal weighs against a standard deviation: among equals it decides."""
LARGEST = 1e8
"""Sum of all scaled compliances that is searched; what can grow to it is called unbounded."""
NEAR = 1e-3
"""Of a scaled compliance: an end of its interval that is not known so well is not given."""
DOUBT = 0.99
"""Probability that reduced values of a possible machine pass for such."""


@dataclasses.dataclass(frozen=True, eq=False)
class Completion:
    """Compliances of every joint and link that agree with reduced values."""

    values: dict[str, float]
    """By parameter, of the model in which joints and links are apart."""
    joints: dict[str, float]
    """Compliance of each coordinate, rad/Nm or m/N; 0 or more."""
    links: dict[str, Float[np.ndarray, "6 6"]]
    """Compliance of each virtual spring, positive semi-definite."""
    freedom: int
    """Number of directions that the reduced values leave free."""
    chi_square: float
    """Of the reduced values, against those of the completion; 0 where they are met exactly."""
    limit: float
    """Chi-square that the reduced values of a possible machine exceed once in 100 times."""
    converged: bool = True
    """Whether the search for it came to its end: otherwise another machine may agree better."""

    @property
    def possible(self) -> bool:
        """Whether a machine can have the reduced values, within their noise. Otherwise this is the nearest one."""
        return self.chi_square <= self.limit


def completion(
    complete: CompleteModel,
    reduced: Reduction,
    values: Float[np.ndarray, "r"],
    covariance: Float[np.ndarray, "r r"],
    nominal: Mapping[str, float] | None = None,
) -> Completion:
    """Physically possible compliances of all joints and links that agree with identified values of the reduced model.

    Those x that minimise the chi-square of T x = values with every link's matrix positive semi-definite and every
    joint's compliance above 0; among equals the nearest to the nominal ones, by the norm of D^-1 (C - C_nominal) D^-1,
    D^2 the nominal diagonal, or one size for translations and one for rotations where it is 0.

    Args:
        complete: the complete model.
        reduced: its reduction, by `complete_reduction`.
        values: of the last model's parameters, by `linear_fit` less what held parameters make.
        covariance: of the values.
        nominal: compliances by parameter ("q2", "link1 y,rz"), those not named 0: the smallest compliances where none.

    Raises:
        ValueError: sizes or names are wrong, or a covariance is not positive definite.

    Source: proposed in the outlook of Klimchik et al. 2014; the method is this project's.
    """
    problem = _problem(complete, reduced, values, covariance, nominal or {})
    w, left = _nearest(problem, GAP)
    found = problem.compliances(w)
    chi_square = float(np.sum(w[problem.noise] ** 2))
    # Rounding and nearness leave a little: taken away where the matrices stay positive definite.
    exact = np.where(problem.noise, 0.0, w)
    if np.linalg.eigvalsh(problem.cone.matrices(exact)).min() > 0.0:
        found, chi_square = problem.compliances(exact), 0.0
    joints, links = joints_and_links(problem.names, found)
    by_name = dict(zip(problem.names, found.tolist(), strict=True))
    limit = chi_square_quantile(DOUBT, len(values))
    return Completion(by_name, joints, links, len(problem.names) - len(values), chi_square, limit, left <= 10.0 * GAP)


def compliance_intervals(
    complete: CompleteModel,
    reduced: Reduction,
    values: Float[np.ndarray, "r"],
    covariance: Float[np.ndarray, "r r"],
    names: Sequence[str] | None = None,
    probability: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each compliance over all possible machines that agree with the reduced values.

    They agree where the chi-square of the reduced values has no more than the given probability. Takes up to a second
    for each parameter of a six-joint robot.

    Args:
        complete: the complete model.
        reduced: its reduction.
        values: of the last model's parameters.
        covariance: of the values.
        names: of the compliances asked for, all of them where not given.
        probability: that the true values of all reduced parameters together are within.

    Returns:
        Lower and upper end by name; -inf or inf where neither data nor physics bound it, NaN where the search for an
        end did not converge.

    Raises:
        ValueError: see `completion`; or no possible machine agrees with the values.
    """
    problem = _problem(complete, reduced, values, covariance, {})
    for name in names or ():
        if name not in problem.names:
            raise ValueError(known_name("compliance", name, problem.names))
    square = chi_square_quantile(probability, len(values))
    start, left = _nearest(problem, 1e-3 * square)
    least = float(np.sum(start[problem.noise] ** 2))
    if least >= square:
        raise ValueError(
            f"no machine agrees with the values: those of the nearest have a chi-square of {least:.3g}, expected below"
            f" {square:.3g} for a probability of {probability:g}"
            + ("" if left < 0.1 * square else "; the search for the nearest did not converge")
        )
    cone = dataclasses.replace(problem.cone, ball=problem.noise.astype(float), radius=float(np.sqrt(square)))
    # The matrices are small: with more threads LAPACK's workers wait for each other, five times as long.
    with threadpool_limits(1, user_api="blas"):
        return {name: _interval(problem, cone, start, name) for name in names or problem.names}


def _interval(problem: "_Problem", cone: Cone, start: np.ndarray, name: str) -> tuple[float, float]:
    """Smallest and largest value of one compliance inside a cone."""
    i = problem.names.index(name)
    # A diagonal can grow to the largest sum, what couples two of them to its root.
    far = 1e-2 * (LARGEST if is_diagonal(name) else np.sqrt(LARGEST))
    flat = np.zeros((start.size, start.size))
    ends = []
    for sign in (1.0, -1.0):
        w, left = minimise_over(cone, flat, sign * problem.slope[i], start, 1e-6)
        end = float(problem.base[i] + problem.slope[i] @ w)
        ends.append(end if left <= NEAR or abs(end) >= far else np.nan)
    low, high = (np.copysign(np.inf, end) if abs(end) >= far else end * problem.size[i] for end in ends)
    return float(low), float(high)


def chi_square_quantile(probability: float, freedom: int) -> float:
    """What a chi-square of so many degrees of freedom stays below with a probability."""
    return float(chdtri(freedom, 1.0 - probability))


def completed_model(model: Model, found: Completion) -> Model:
    """The machine with the completion's compliances; a joint of no compliance is rigid, stiffness 0.

    Raises:
        ValueError: the machine has springs between frames, whose part of the identified compliances is not known.
    """
    if model.springs:
        raise ValueError(
            f"machine '{model.name}' has the spring '{model.springs[0]}' between frames: expected one without, as what"
            " such springs do is part of the identified compliances"
        )
    compliance = np.array([found.joints[name] for name in model.coordinates])
    stiffness = np.where(compliance > 0.0, 1.0 / np.where(compliance > 0.0, compliance, 1.0), 0.0)
    links = np.stack([found.links[name] for name in model.virtual_springs])
    changed = (jnp.asarray(stiffness), jnp.asarray(links))
    return eqx.tree_at(lambda m: (m.stiffness, m.compliance), model, changed)


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """Scaled compliances X = base + slope w; the first entries of w move what the reduced values leave free, the last
    the values themselves, in standard deviations."""

    names: tuple[str, ...]
    size: np.ndarray
    """Of each compliance."""
    base: np.ndarray
    slope: np.ndarray
    noise: np.ndarray
    """Which entries of w are of the values."""
    nominal: np.ndarray
    """Scaled."""
    weight: np.ndarray
    """How often each compliance stands in its matrix."""
    cone: Cone
    diagonal: np.ndarray
    """Which compliances stand on a diagonal, 1 or 0."""

    def compliances(self, w: np.ndarray) -> np.ndarray:
        return (self.base + self.slope @ w) * self.size


def _problem(
    complete: CompleteModel,
    reduced: Reduction,
    values: np.ndarray,
    covariance: np.ndarray,
    nominal: Mapping[str, float],
) -> _Problem:
    values, covariance = np.asarray(values, float), np.asarray(covariance, float)
    r = len(reduced.names)
    if values.shape != (r,) or covariance.shape != (r, r):
        raise ValueError(
            f"values of shape {values.shape} and covariance of shape {covariance.shape}, expected ({r},) and ({r}, {r})"
        )
    std = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    for name, deviation in zip(reduced.names, std, strict=True):
        if not (np.isfinite(deviation) and deviation > 0.0):
            raise ValueError(f"'{name}' has the standard deviation {deviation:g}, expected a finite number above 0")
    # Joints and links are apart up to the step that adds them, the last physical one.
    tail = dataclasses.replace(reduced, steps=reduced.steps[len(complete.steps) - 1 :])
    names = tail.original
    for name in nominal:
        if name not in names:
            raise ValueError(known_name("nominal compliance", name, names))
    size = _sizes(complete, tail, values, nominal)
    try:
        factor = np.linalg.cholesky(covariance / np.outer(std, std))
    except np.linalg.LinAlgError:
        raise ValueError("the covariance is not positive definite, expected that of independent values") from None
    white = np.linalg.solve(factor, tail.reduce * size / std[:, None])
    target = np.linalg.solve(factor, (values + tail.reduce @ tail.constant) / std)
    u, s, vt = np.linalg.svd(white)
    inverse = (vt[:r].T / s) @ u.T
    base, slope = inverse @ target, np.concatenate([vt[r:].T, inverse], axis=1)
    matrices = block_matrices(names)
    start, slopes = np.tensordot(base, matrices, 1), np.tensordot(slope.T, matrices, 1)
    # Of one block of their own, the room that is left of the largest sum.
    diagonal = np.array([float(is_diagonal(name)) for name in names])
    start = start + np.where(matrices.any(axis=0), 0.0, np.eye(matrices.shape[-1]))
    start[-1, 0, 0] = LARGEST - diagonal @ base
    slopes[:, -1, 0, 0] = -diagonal @ slope
    return _Problem(
        names=names,
        size=size,
        base=base,
        slope=slope,
        noise=np.arange(len(names)) >= len(names) - r,
        nominal=np.array([nominal.get(name, 0.0) for name in names]) / size,
        weight=2.0 - diagonal,
        cone=Cone(start, slopes, np.zeros(len(names))),
        diagonal=diagonal,
    )


def _nearest(problem: _Problem, gap: float) -> tuple[np.ndarray, float]:
    """w of the possible compliances that agree best, and among equals are nearest to the nominal ones; and how near it
    is, see `minimise_over`."""
    weighted = NEARNESS * problem.weight[:, None] * problem.slope
    hessian = problem.slope.T @ weighted + np.diag(problem.noise.astype(float))
    gradient = weighted.T @ (problem.base - problem.nominal)
    # Inside, whatever the data say: a diagonal of one size, which agrees as well as one can.
    ones = problem.diagonal
    back = np.linalg.inv(problem.slope)
    along, off = (back @ ones)[problem.noise], (back @ problem.base)[problem.noise]
    share = np.clip(float(along @ off) / float(along @ along), 1e-3, 1e3)
    return minimise_over(problem.cone, hessian, gradient, back @ (share * ones - problem.base), gap)


def _sizes(complete: CompleteModel, tail: Reduction, values: np.ndarray, nominal: Mapping[str, float]) -> np.ndarray:
    """Size of each compliance: the root of its row's times the root of its column's."""
    known = {name: abs(float(v)) for name, v in zip(tail.names, values, strict=True) if is_diagonal(name)}
    typical = {}
    for kind in (True, False):
        alike = [v for name, v in known.items() if _rotation(complete, name) == kind]
        typical[kind] = max(alike, default=0.0) or max(known.values(), default=0.0) or 1.0

    def size(name: str) -> float:
        return float(np.sqrt(nominal.get(name, 0.0) or typical[_rotation(complete, name)]))

    return np.array([np.prod([size(diagonal_of(end)) for end in ends_of(name)]) for name in tail.original])


def _rotation(complete: CompleteModel, name: str) -> bool:
    """Whether a compliance on a diagonal is of a rotation; a joint's by the term it is added to."""
    return not complete.aggregated.get(name, name).endswith((",x", ",y", ",z"))
