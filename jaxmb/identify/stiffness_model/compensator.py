"""Gravity compensators: effect on the stiffness of their joint, and identification of the spring from it."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import identifiability
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import spring_stretch

SAME = 1e-9
"""Change of a spring's length below which a joint has no effect on it, m/rad."""
MOST_EVALUATIONS = 100
"""Largest number of evaluations per fitted parameter."""


@dataclasses.dataclass(frozen=True)
class Compensator:
    """A spring between a point of the carrier and a point of the arm, about the joint's axis.

    s^2 = a^2 + b^2 + 2 a b cos(q + alpha),  V = k (s - s0)^2 / 2.
    """

    stiffness: float
    """k, N/m."""
    free_length: float
    """s0, m; the preload at length s is k (s - s0)."""
    carrier_radius: float
    """a, m: distance of its point on the carrier from the joint's axis."""
    arm_radius: float
    """b, m: that of its point on the arm."""
    angle: float
    """alpha, rad: at q = 0 from the opposite of the radius on the carrier to that on the arm; 0 where s is largest."""


def added_stiffness(spring: Compensator, q: float | np.ndarray) -> Float[Array, "..."]:
    """Contribution of the compensator to the joint's stiffness at q, d^2 V / dq^2 [Nm/rad]; it may be negative."""
    leaves = jnp.asarray(dataclasses.astuple(spring), float)
    return _added(leaves, jnp.ravel(jnp.asarray(q, float))).reshape(jnp.shape(q))


def _second_derivative(leaves: Array, q: Array) -> Array:
    k, free, a, b, alpha = leaves

    def energy(x: Array) -> Array:
        return 0.5 * k * (jnp.sqrt(a**2 + b**2 + 2.0 * a * b * jnp.cos(x + alpha)) - free) ** 2

    return jax.grad(jax.grad(energy))(q)


_added = jax.jit(jax.vmap(_second_derivative, in_axes=(None, 0)))


@dataclasses.dataclass(frozen=True, eq=False)
class CompensatorFit:
    """A joint and its compensator, fitted to the joint's compliance at several angles."""

    joint_stiffness: float
    """Stiffness of the joint alone, Nm/rad."""
    spring: Compensator
    std: dict[str, float]
    """Standard deviations of joint_stiffness and of the free parameters of the spring; inf if not identifiable."""
    compliance: np.ndarray
    """Fitted compliance at each angle, rad/Nm."""
    chi_square: float
    """Chi-square of the residual, by the covariance of the compliances."""
    converged: bool
    """Whether the fit converged within `MOST_EVALUATIONS`."""


NUMBERS = tuple(field.name for field in dataclasses.fields(Compensator))
FREE = ("stiffness", "free_length")


def fit_compensator(
    angle: Sequence[float] | np.ndarray,
    compliance: Sequence[float] | np.ndarray,
    std: Sequence[float] | np.ndarray,
    start: Compensator,
    joint_stiffness: float,
    free: Sequence[str] = FREE,
    correlation: Float[np.ndarray, "k k"] | None = None,
) -> CompensatorFit:
    """Stiffness of a joint and its compensator spring from the joint's compliance at several angles.

    1 / c(q) = k_joint + d^2 V / dq^2, by generalized least squares with the inverse covariance of the compliances,
    which are correlated when they stem from one fit. The problem is linear in the products k and k s0 of stiffness and
    free length; attachment points need many angles.

    Args:
        angle: of the joint [k], rad.
        compliance: of the joint at each angle [k], rad/Nm.
        std: standard deviations [k]; inf for an unknown compliance.
        start: initial spring; fixed parameters keep its values.
        joint_stiffness: initial value, Nm/rad.
        free: fitted parameters of the spring.
        correlation: of the compliances [k, k]; default: uncorrelated.

    Raises:
        ValueError: there are fewer angles than parameters to fit, or sizes, names or numbers are wrong.

    Source: Klimchik et al. 2013, "Identification of geometrical and elastostatic parameters of heavy industrial
    robots".
    """
    from scipy.optimize import least_squares

    q, measured, sigma = (np.asarray(x, dtype=float) for x in (angle, compliance, std))
    _check(q, measured, sigma, joint_stiffness, free)
    whitening = _whitening(sigma, correlation)
    known, index = np.array(dataclasses.astuple(start), float), np.array([NUMBERS.index(name) for name in free], int)
    first = np.append(joint_stiffness, known[index])
    scale = np.where(first == 0.0, 1.0, np.abs(first))
    fixed = jax.device_put((scale, known, index, q))
    found = least_squares(
        lambda x: whitening @ (np.asarray(_compliance(x, *fixed)) - measured),
        first / scale,
        jac=lambda x: whitening @ np.asarray(_compliance_slope(x, *fixed)),  # pyright: ignore[reportArgumentType]  (stubs know names alone)
        x_scale="jac",
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
        max_nfev=MOST_EVALUATIONS * first.size,
    )
    deviations = identifiability(found.jac, np.ones(len(whitening))).std * scale
    values = (found.x * scale).tolist()
    return CompensatorFit(
        joint_stiffness=values[0],
        spring=dataclasses.replace(start, **dict(zip(free, values[1:], strict=True))),
        std=dict(zip(("joint_stiffness", *free), deviations.tolist(), strict=True)),
        compliance=np.asarray(_compliance(found.x, *fixed)),
        chi_square=float(2.0 * found.cost),
        converged=bool(found.success),
    )


def _whitening(sigma: Float[np.ndarray, "k"], correlation: Float[np.ndarray, "k k"] | None) -> np.ndarray:
    """Whitening matrix W [known, k] of the errors; those without finite standard deviation are excluded."""
    known = np.isfinite(sigma)
    matrix = np.eye(sigma.size) if correlation is None else np.asarray(correlation, dtype=float)
    if matrix.shape != (sigma.size, sigma.size):
        raise ValueError(f"correlation is {matrix.shape}, expected ({sigma.size}, {sigma.size})")
    lower = np.linalg.cholesky(matrix[np.ix_(known, known)]) * sigma[known, None]
    whole = np.zeros((int(known.sum()), sigma.size))
    whole[:, known] = np.linalg.inv(lower)
    return whole


def _check(q: np.ndarray, measured: np.ndarray, sigma: np.ndarray, stiffness: float, free: Sequence[str]) -> None:
    check_known("free: compensator parameter", free, NUMBERS)
    if not q.shape == measured.shape == sigma.shape or q.ndim != 1:
        raise ValueError(f"{q.size} angles, {measured.size} compliances and {sigma.size} deviations, expected as many")
    if not np.all(np.isfinite(q)):
        raise ValueError(f"angle {int(np.argmin(np.isfinite(q)))} is not finite, expected rad")
    # An infinite standard deviation marks an unknown compliance of weight 0.
    for argument, numbers, good in (
        ("compliance", measured, np.isfinite(measured) & (measured > 0.0)),
        ("std", sigma, sigma > 0.0),
    ):
        if not good.all():
            k = int(np.argmin(good))
            raise ValueError(f"{argument} {k} is {numbers[k]:g}, expected a number above 0")
    if not (np.isfinite(stiffness) and stiffness > 0.0):
        raise ValueError(f"joint_stiffness is {stiffness:g}, expected a finite number above 0")
    if np.unique(q).size < 1 + len(free):
        raise ValueError(
            f"{np.unique(q).size} different angles for {1 + len(free)} parameters, expected at least as many angles"
        )


@jax.jit
def _compliance(x: Array, scale: Array, known: Array, index: Array, q: Array) -> Array:
    """Compliance at each angle for scaled values x of the joint's stiffness and of the free numbers of its spring."""
    values = x * scale
    return 1.0 / (values[0] + _added(known.at[index].set(values[1:]), q))


_compliance_slope = jax.jit(jax.jacfwd(_compliance))


def spring_of(model: Model, joint: str) -> Compensator | None:
    """The machine's compensator spring of a joint: one between two points whose distance only this joint changes; None
    without one.

    s^2 = A + B cos(q + alpha) along any one joint; three angles determine A, B and alpha and with them the radii, the
    larger one as `carrier_radius`.

    Raises:
        ValueError: the machine has no such joint.
    """
    check_known("joint", [joint], model.coordinates)
    index = model.coordinates.index(joint)
    slope = np.asarray(_stretch_slope(model, model.reference + 0.1))
    for s, kind in enumerate(model.spring_type):
        others = np.delete(np.abs(slope[s]), index)
        if kind != "length" or np.abs(slope[s, index]) < SAME or others.max(initial=0.0) > SAME:
            continue
        turns = 2.0 * np.pi / 3.0 * np.arange(3)
        q = np.tile(np.asarray(model.reference), (3, 1))
        q[:, index] = turns
        square = (np.asarray(_stretches(model, jnp.asarray(q)))[:, s] + float(model.spring_free_length[s])) ** 2
        cosine, sine = 2.0 / 3.0 * square @ np.cos(turns), 2.0 / 3.0 * square @ np.sin(turns)
        a_square, b_double = float(np.mean(square)), float(np.hypot(cosine, sine))
        large, small = np.sqrt(a_square + b_double), np.sqrt(max(a_square - b_double, 0.0))
        return Compensator(
            float(model.spring_stiffness[s]), float(model.spring_free_length[s]), 0.5 * (large + small),
            0.5 * (large - small), float(np.arctan2(-sine, cosine)),
        )  # fmt: skip
    return None


@compiled
def _stretches(model: Model, q: Float[Array, "t n"]) -> Float[Array, "t s"]:
    """Elongation of every spring between frames from its free length, at t postures."""
    return jax.vmap(lambda at: spring_stretch(model, at, at))(q)


@compiled
def _stretch_slope(model: Model, q: Float[Array, "n"]) -> Float[Array, "s n"]:
    """Derivatives of the elongations by the coordinates."""
    return jax.jacfwd(lambda at: spring_stretch(model, at, at))(q)
