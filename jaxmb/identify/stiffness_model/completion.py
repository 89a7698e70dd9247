"""Physically consistent compliances of joints and links from the parameters of a reduced model.

Among all compliances with the reduced values, those with symmetric positive semi-definite matrices are determined. The
reduced values do not determine many directions, most of which are bounded by physical consistency.
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
from jaxmb.identify.estimation.semidefinite import Cone, minimize_over
from jaxmb.identify.stiffness_model.complete_model import (
    CompleteModel,
    block_matrices,
    diagonal_of,
    ends_of,
    is_diagonal,
    joints_and_links,
)
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import elastic_springs

GAP = 1e-12
"""Tolerance of the objective (half the chi-square); rounding may limit it to ten times that."""
NEARNESS = 1e-6
"""Weight of a scaled unit of distance from the nominal values against a standard deviation, to select among equal
fits."""
LARGEST = 1e8
"""Bound on the sum of all scaled compliances; compliances that can reach it are unbounded."""
NEAR = 1e-3
"""Tolerance of the ends of intervals, in scaled compliance; less precise ends are NaN."""
DOUBT = 0.99
"""Probability level of the test of physical consistency."""


@dataclasses.dataclass(frozen=True, eq=False)
class CompletionOutcome:
    """The physically consistent machine that agrees with reduced values, or the nearest one."""

    possible: bool
    """Whether the reduced values are physically consistent within their noise; if not, this is the closest machine
    that is."""
    freedom: int
    """Number of directions not determined by the reduced values."""
    chi_square: float
    """Of the reduced values against those of the machine; 0 for an exact match."""
    joints: dict[str, float]
    """Compliance of each coordinate, rad/Nm or m/N; non-negative."""
    links: dict[str, Float[np.ndarray, "6 6"]]
    """Compliance of each virtual spring, positive semi-definite."""


@dataclasses.dataclass(frozen=True, eq=False)
class Completion(CompletionOutcome):
    """Physically consistent compliances of every joint and link for given reduced values."""

    values: dict[str, float]
    """By parameter of the model with separate joints and links, SI units."""
    limit: float
    """99 % quantile of the chi-square of a physically consistent machine."""
    converged: bool
    """Whether the optimization converged; if not, another machine may fit better."""


def completion(
    complete: CompleteModel,
    reduced: Reduction,
    values: Float[np.ndarray, "r"],
    covariance: Float[np.ndarray, "r r"],
    nominal: Mapping[str, float] | None = None,
) -> Completion:
    """Physically consistent compliances of all joints and links for identified values of the reduced model.

    x minimizes the chi-square of T x = values with every link's matrix positive semi-definite and every joint's
    compliance non-negative; among equal fits x is closest to the nominal values in the norm of
    D^-1 (C - C_nominal) D^-1, D^2 the nominal diagonal, or a common size for translations and for rotations where it is
    0.

    Args:
        complete: the complete model.
        reduced: its reduction, by `complete_reduction`.
        values: of the reduced model's parameters [r], by `linear_fit` with the effect of fixed parameters subtracted.
        covariance: of the values [r, r].
        nominal: compliances by parameter ("q2", "link1 y,rz"); default: 0, which selects the smallest compliances.

    Raises:
        ValueError: sizes or names are wrong, or a covariance is not positive definite.

    Source: proposed in the outlook of Klimchik et al. 2014; the method is this project's.
    """
    problem = _problem(complete, reduced, values, covariance, nominal or {})
    w, gap = _nearest(problem, GAP)
    found = problem.compliances(w)
    chi_square = float(np.sum(w[problem.noise] ** 2))
    # A small residual by rounding and the nominal values is removed if the matrices stay positive definite.
    exact = np.where(problem.noise, 0.0, w)
    if np.linalg.eigvalsh(problem.cone.matrices(exact)).min() > 0.0:
        found, chi_square = problem.compliances(exact), 0.0
    # entries of directions without compliance are 0 but for rounding
    found = np.where(problem.diagonal > 0.0, np.maximum(found, 0.0), found)
    joints, links = joints_and_links(problem.names, found)
    limit = float(chdtri(len(values), 1.0 - DOUBT))
    return Completion(
        possible=chi_square <= limit,
        freedom=len(problem.names) - len(values),
        chi_square=chi_square,
        joints=joints,
        links=links,
        values=dict(zip(problem.names, found.tolist(), strict=True)),
        limit=limit,
        converged=gap <= 10.0 * GAP,
    )


def compliance_intervals(
    complete: CompleteModel,
    reduced: Reduction,
    values: Float[np.ndarray, "r"],
    covariance: Float[np.ndarray, "r r"],
    names: Sequence[str] | None = None,
    probability: float = 0.95,
) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each compliance over the physically consistent machines within the confidence
    region of the reduced values.

    The region is bounded by the chi-square quantile of the given probability. Takes up to a second per parameter of a
    six-joint robot.

    Args:
        complete: the complete model.
        reduced: its reduction.
        values: of the reduced model's parameters [r].
        covariance: of the values [r, r].
        names: of the compliances; default: all.
        probability: joint coverage probability of the region.

    Returns:
        Lower and upper end by name; -inf or inf if bounded neither by data nor by physics, NaN if the search for an end
        did not converge.

    Raises:
        ValueError: see `completion`; or no physically consistent machine is within the region.
    """
    problem = _problem(complete, reduced, values, covariance, {})
    check_known("compliance", names or (), problem.names)
    square = float(chdtri(len(values), 1.0 - probability))
    start, gap = _nearest(problem, 1e-3 * square)
    smallest = float(np.sum(start[problem.noise] ** 2))
    if smallest >= square:
        raise ValueError(
            f"the values are not physically consistent: the closest machine has a chi-square of {smallest:.3g},"
            f" expected below {square:.3g} for a probability of {probability:g}"
            + ("" if gap < 0.1 * square else "; the search for the closest machine did not converge")
        )
    cone = dataclasses.replace(problem.cone, ball=problem.noise.astype(float), radius=float(np.sqrt(square)))
    # For small matrices threads within LAPACK only add overhead, a factor of five.
    with threadpool_limits(1, user_api="blas"):
        return {name: _interval(problem, cone, start, name) for name in names or problem.names}


def _interval(problem: "_Problem", cone: Cone, start: np.ndarray, name: str) -> tuple[float, float]:
    """Smallest and largest value of one compliance in a cone."""
    i = problem.names.index(name)
    # A diagonal entry is bounded by the largest sum, a coupling entry by its square root.
    far = 1e-2 * (LARGEST if is_diagonal(name) else np.sqrt(LARGEST))
    flat = np.zeros((start.size, start.size))
    ends = []
    for sign in (1.0, -1.0):
        w, gap = minimize_over(cone, flat, sign * problem.slope[i], start, 1e-6)
        end = float(problem.base[i] + problem.slope[i] @ w)
        ends.append(end if gap <= NEAR or abs(end) >= far else np.nan)
    low, high = (np.copysign(np.inf, end) if abs(end) >= far else end * problem.size[i] for end in ends)
    return float(low), float(high)


def completed_model(model: Model, found: CompletionOutcome) -> Model:
    """The machine with the completion's compliances; a joint without compliance is rigid, stiffness 0.

    Raises:
        ValueError: the machine has springs between frames, whose contribution to the identified compliances is unknown.
    """
    springs = elastic_springs(model)
    if springs:
        raise ValueError(
            f"machine '{model.name}' has the spring '{springs[0]}' between frames, expected none: the identified"
            " compliances include the effect of such springs"
        )
    compliance = np.array([found.joints[name] for name in model.coordinates])
    stiffness = np.where(compliance > 0.0, 1.0 / np.where(compliance > 0.0, compliance, 1.0), 0.0)
    links = np.stack([found.links[name] for name in model.virtual_springs])
    changed = (jnp.asarray(stiffness), jnp.asarray(links))
    return eqx.tree_at(lambda m: (m.stiffness, m.compliance), model, changed)


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """Scaled compliances X = base + slope w; the first entries of w are the directions not determined by the reduced
    values, the last ones changes of these values in standard deviations."""

    names: tuple[str, ...]
    size: np.ndarray
    """Scale of each compliance."""
    base: np.ndarray
    slope: np.ndarray
    noise: np.ndarray
    """Mask of the entries of w that change the values."""
    nominal: np.ndarray
    """Scaled nominal compliances."""
    cone: Cone
    diagonal: np.ndarray
    """Mask of the diagonal compliances, 1 or 0."""

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
    # Joints and links are separate before the last physical step, which adds them.
    tail = dataclasses.replace(reduced, steps=reduced.steps[len(complete.steps) - 1 :])
    names = tail.original
    check_known("nominal compliance", nominal, names)
    size = _sizes(complete, tail, values, nominal)
    try:
        factor = np.linalg.cholesky(covariance / np.outer(std, std))
    except np.linalg.LinAlgError:
        raise ValueError("covariance is not positive definite, expected that of independent values") from None
    white = np.linalg.solve(factor, tail.reduce * size / std[:, None])
    target = np.linalg.solve(factor, (values + tail.reduce @ tail.constant) / std)
    u, s, vt = np.linalg.svd(white)
    inverse = (vt[:r].T / s) @ u.T
    base, slope = inverse @ target, np.concatenate([vt[r:].T, inverse], axis=1)
    matrices = block_matrices(names)
    start, slopes = np.tensordot(base, matrices, 1), np.tensordot(slope.T, matrices, 1)
    # A separate block: the slack of the bound on the sum.
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
        cone=Cone(start, slopes, np.zeros(len(names))),
        diagonal=diagonal,
    )


def _nearest(problem: _Problem, gap: float) -> tuple[np.ndarray, float]:
    """w of the physically consistent compliances with the best fit, closest to the nominal ones among equal fits, and
    the gap by `minimize_over`."""
    weighted = NEARNESS * (2.0 - problem.diagonal)[:, None] * problem.slope  # by the entries of each compliance
    hessian = problem.slope.T @ weighted + np.diag(problem.noise.astype(float))
    gradient = weighted.T @ (problem.base - problem.nominal)
    # Interior start for any data: a multiple of the identity with the best fit.
    ones, back = problem.diagonal, np.linalg.inv(problem.slope)
    along, off = (back @ ones)[problem.noise], (back @ problem.base)[problem.noise]
    share = np.clip(float(along @ off) / float(along @ along), 1e-3, 1e3)
    return minimize_over(problem.cone, hessian, gradient, back @ (share * ones - problem.base), gap)


def _sizes(complete: CompleteModel, tail: Reduction, values: np.ndarray, nominal: Mapping[str, float]) -> np.ndarray:
    """Scale of each compliance: square roots of the sizes of its row and of its column."""
    known = {name: abs(float(v)) for name, v in zip(tail.names, values, strict=True) if is_diagonal(name)}
    typical = {}
    for kind in (True, False):
        same = [v for name, v in known.items() if _rotation(complete, name) == kind]
        typical[kind] = max(same, default=0.0) or max(known.values(), default=0.0) or 1.0

    def size(name: str) -> float:
        return float(np.sqrt(nominal.get(name, 0.0) or typical[_rotation(complete, name)]))

    return np.array([np.prod([size(diagonal_of(end)) for end in ends_of(name)]) for name in tail.original])


def _rotation(complete: CompleteModel, name: str) -> bool:
    """Whether a diagonal compliance is rotational; for a joint by the term it is added to."""
    return not complete.aggregated.get(name, name).endswith((",x", ",y", ",z"))
