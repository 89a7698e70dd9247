"""Gravity compensators: what they do to the stiffness of the joint they work on, and which spring would do that."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.identify.identifiability import knowledge


@dataclasses.dataclass(frozen=True)
class Compensator:
    """A spring along the line between a point of the carrier and one of the arm, about the joint's axis.

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
    """alpha, rad: between the two radii at q = 0."""


def added_stiffness(spring: Compensator, q: float | np.ndarray) -> Float[Array, "..."]:
    """What the compensator adds to the joint's stiffness at q, d^2 V / dq^2 [Nm/rad]; it may be below zero."""
    leaves = jnp.asarray(dataclasses.astuple(spring))
    return jnp.vectorize(lambda x: _second_derivative(leaves, x))(jnp.asarray(q))


def _second_derivative(leaves: Array, q: Array) -> Array:
    k, free, a, b, alpha = leaves

    def energy(x: Array) -> Array:
        return 0.5 * k * (jnp.sqrt(a**2 + b**2 + 2.0 * a * b * jnp.cos(x + alpha)) - free) ** 2

    return jax.grad(jax.grad(energy))(q)


@dataclasses.dataclass(frozen=True, eq=False)
class CompensatorFit:
    """A joint and its compensator, fitted to the joint's compliance at several angles."""

    joint_stiffness: float
    """Of the joint alone, Nm/rad."""
    spring: Compensator
    std: dict[str, float]
    """Standard deviations of joint_stiffness and of the spring's numbers that were free; inf where not determined."""
    compliance: np.ndarray
    """Fitted compliance at each angle, rad/Nm."""
    chi_square: float
    """Sum of squared errors over their variances."""


FREE = ("stiffness", "free_length")


def fit_compensator(
    angle: Sequence[float] | np.ndarray,
    compliance: Sequence[float] | np.ndarray,
    std: Sequence[float] | np.ndarray,
    start: Compensator,
    joint_stiffness: float,
    free: Sequence[str] = FREE,
) -> CompensatorFit:
    """The joint's own stiffness and the spring that explain its compliance at several angles.

    1 / c(q) = k_joint + d^2 V / dq^2, each compliance weighted by its standard deviation. Stiffness and free length act
    through the products k and k s0, in which the problem is linear; points of attachment need many angles.

    Args:
        angle: of the joint, rad, one for each compliance.
        compliance: of the joint there, rad/Nm.
        std: standard deviations; inf of a compliance that is not known.
        start: the spring as it is known: what is not free stays.
        joint_stiffness: first value.
        free: numbers of the spring that are fitted.

    Raises:
        ValueError: fewer angles than numbers to fit; sizes, names or numbers that are wrong.

    Source: Klimchik et al. 2013, "Identification of geometrical and elastostatic parameters of heavy industrial
    robots".
    """
    from scipy.optimize import least_squares

    names = [field.name for field in dataclasses.fields(Compensator)]
    wrong = [name for name in free if name not in names]
    if wrong:
        raise ValueError(f"free number '{wrong[0]}' is none of a compensator, expected some of {', '.join(names)}")
    at, measured, sigma = (np.asarray(x, dtype=float) for x in (angle, compliance, std))
    if not at.shape == measured.shape == sigma.shape or at.ndim != 1:
        raise ValueError(f"{at.size} angles, {measured.size} compliances and {sigma.size} deviations, expected as many")
    if not np.all(np.isfinite(at)):
        raise ValueError(f"angle {int(np.argmin(np.isfinite(at)))} is not finite, expected rad")
    # An infinite deviation is a compliance that is not known: it has no weight.
    for what, numbers, good in (
        ("compliance", measured, np.isfinite(measured) & (measured > 0.0)),
        ("std", sigma, sigma > 0.0),
    ):
        if not good.all():
            place = int(np.argmin(good))
            raise ValueError(f"{what} {place} is {numbers[place]:g}, expected a number above 0")
    if not (np.isfinite(joint_stiffness) and joint_stiffness > 0.0):
        raise ValueError(f"joint_stiffness is {joint_stiffness:g}, expected a finite number above 0")
    if np.unique(at).size < 1 + len(free):
        raise ValueError(
            f"{np.unique(at).size} different angles for {1 + len(free)} numbers, expected at least as many angles"
        )
    places = [names.index(name) for name in free]
    known = np.array(dataclasses.astuple(start))
    scale = np.concatenate([[joint_stiffness], np.where(known[places] != 0.0, np.abs(known[places]), 1.0)])
    batch = jax.jit(jax.vmap(_second_derivative, in_axes=(None, 0)))
    slope = jax.jit(jax.jacfwd(lambda leaves: jax.vmap(_second_derivative, in_axes=(None, 0))(leaves, jnp.asarray(at))))

    def leaves(x: np.ndarray) -> np.ndarray:
        values = known.copy()
        values[places] = x[1:] * scale[1:]
        return values

    def predicted(x: np.ndarray) -> np.ndarray:
        return 1.0 / (x[0] * scale[0] + np.asarray(batch(jnp.asarray(leaves(x)), jnp.asarray(at))))

    def jacobian(x: np.ndarray) -> np.ndarray:
        change = np.asarray(slope(jnp.asarray(leaves(x))))[:, places]
        whole = np.concatenate([np.ones((at.size, 1)), change], axis=1) * scale
        return -(predicted(x)[:, None] ** 2) * whole / sigma[:, None]

    first = np.concatenate([[joint_stiffness], known[places]]) / scale
    found = least_squares(
        lambda x: (predicted(x) - measured) / sigma,
        first,
        jac=jacobian,  # pyright: ignore[reportArgumentType]  (the stubs know names alone)
        x_scale="jac",
        xtol=1e-14,
        ftol=1e-14,
        gtol=1e-14,
    )
    spread = knowledge(found.jac, np.ones(at.size)).std * scale
    return CompensatorFit(
        joint_stiffness=float(found.x[0] * scale[0]),
        spring=Compensator(*(float(v) for v in leaves(found.x))),
        std=dict(zip(("joint_stiffness", *free), spread.tolist(), strict=True)),
        compliance=predicted(found.x),
        chi_square=float(2.0 * found.cost),
    )
