"""Base parameters: the minimal set of combinations of a machine's parameters on which its torques depend."""

import dataclasses
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import SMALLEST_COLUMN
from jaxmb.identify.estimation.reduction import independent_columns
from jaxmb.identify.parameters.free_parameters import matching_any
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import energy_regressor, regressor_names, stacked_torque_regressor
from jaxmb.io.validation import check_choice, check_known, finite_number, typed_arguments
from jaxmb.machine.build import Model
from jaxmb.machine.families import OF_BODIES
from jaxmb.mechanics.kinematics import frame_poses
from jaxmb.mechanics.loops import CLOSED, independent_coordinates
from jaxmb.mechanics.postures import closed_step

STEP = 0.3
"""Standard deviation of a step of closed chains, rad or relative to the machine's size."""
HALVINGS = 8
"""Largest number of halvings of a step for which the loops do not close."""


def random_states(
    model: Model, count: int, seed: int = 0
) -> tuple[Float[np.ndarray, "k n"], Float[np.ndarray, "k m"], Float[np.ndarray, "k m"]]:
    """Random states of motion within half a turn or the machine's size about the reference posture, rates of 1/s and
    1/s^2.

    Coordinates of an open chain are drawn uniformly. A closed chain follows a random walk by `closed_step`; a step that
    fails or leads to another branch is reversed and halved. Locked coordinates are fixed.

    Source: Pyrhonen et al. 2024, eq. 5-6.

    Returns:
        k closed postures, rates and accelerations of the independent coordinates, SI units.
    """
    random = np.random.default_rng(seed)
    index = np.array([model.coordinates.index(name) for name in independent_coordinates(model)], dtype=int)
    size = float(np.max(np.abs(np.asarray(frame_poses(model, model.reference))[:, :3, 3]))) or 1.0
    unit = np.array([1.0 if model.revolute[i] else size for i in index]) * ~np.array(model.locked)[index]
    qd, qdd = random.normal(size=(2, count, index.size)) * unit
    reference = np.asarray(model.reference)
    q = np.tile(reference, (count, 1))
    if not model.loops:
        q[:, index] += random.uniform(-math.pi, math.pi, size=(count, index.size)) * unit
        return q, qd, qdd
    posture = reference
    for k in range(count):
        step = STEP * random.normal(size=index.size) * unit
        for _ in range(HALVINGS):
            target = posture[index] + step
            if np.all(np.abs(target - reference[index]) <= math.pi * unit):
                closed, gap = map(np.asarray, closed_step(model, jnp.asarray(posture), jnp.asarray(target)))
                if gap <= CLOSED:
                    posture = closed
                    break
            step = -0.5 * step
        q[k] = posture
    return q, qd, qdd


LESS_PREFERRED = (
    ("inertia", "zz"), ("inertia", "xx"), ("inertia", "xy"), ("inertia", "xz"), ("inertia", "yz"), ("inertia", "yy"),
    ("first_moment", "x"), ("first_moment", "y"), ("first_moment", "z"),
    ("rotor_inertia", ""), ("mass", ""), ("density", ""),
)  # fmt: skip
"""Families with their axes by decreasing priority as independent parameters, after all others; for joints about z the
usual choice for robots."""
DIGITS = 10
"""Significant digits of a coefficient: further ones are rounding."""
WEAK = 1e-5
"""Singular value over the largest, from which a direction counts for the rank: smaller ones are rounding of the machine
description, and no measured torque determines them."""
GAP = 30.0
"""Factor on that limit, up and down, within which the rank must be constant."""
NO_TERM = 1e-8
"""Share of a dependent parameter's column below which a term of a formula is rounding, of the regression or of
calibrated offsets of 1e-11 m."""
ROUNDED_ANGLE = 2e-5
"""Deviation from parallel or perpendicular axes due to angles with four digits (1.5708), rad."""
ROWS = 3
"""Rows of the regressor per column."""


class BaseParameters(NamedTuple):
    """The b base parameters of a machine, each the sum of an independent parameter and multiples of dependent ones."""

    names: tuple[str, ...]
    """Names of the independent parameters, which equal the base parameters if the dependent ones are 0."""
    matrix: Float[np.ndarray, "b p"]
    """Values of base parameters = matrix @ [value of each of `regressor_names`]."""
    formulas: tuple[str, ...]
    """Rows of the matrix as text, such as "inertia.crank.zz + 0.0064 mass.slider"."""
    parameters: tuple[str, ...]
    """`regressor_names`, the names of its columns."""


@typed_arguments
def base_parameters(
    model: Model,
    of: Sequence[str] | None = None,
    *,
    by: Literal["torque", "energy"] = "torque",
    samples: int | None = None,
    seed: int = 0,
) -> BaseParameters:
    """Base parameters of a machine from its regressor at random states.

    Columns of zeros have no effect. The others are split into independent and dependent ones, Y_d = Y_i beta, by the
    rank of Y, so that Y K = Y_i (K_i + beta K_d) = Y_i K_B. The choice of independent ones follows a fixed priority:
    inertias before first moments before masses, bodies in the order of the machine. Axes and offsets of open chains
    that are parallel or perpendicular up to 2e-5 rad, as by angles with four digits (1.5708), are treated as exactly
    so.

    Args:
        model: the machine; its loops stay on the branch of the reference posture.
        of: names or patterns ("inertia.*") of the unknown parameters among `regressor_names`; default: those of bodies
            and all others that are not 0.
        by: "torque" uses the regressor of `actuator_effort`; "energy" that of the total energy, without dampers,
            friction and offsets.
        samples: number of states; default: three rows per column.
        seed: of the random states.

    Returns:
        Names of the b independent parameters, matrix [b, p] of the map from the values of all p `regressor_names`, and
        its rows as text.

    Raises:
        ValueError: a pattern matches no name, or `by` is neither of the two.

    Warns:
        UserWarning: the number of base parameters depends on the tolerance within a factor of 30.

    Source: Gautier 1990, "Numerical calculation of the base inertial parameters of robots"; Pyrhonen et al. 2024,
    eq. 2-9.
    """
    check_choice("by", by, ("torque", "energy"))
    model = _without_rounded_angles(model)
    names = regressor_names(model)
    chosen = relevant_names(model) if of is None else matching_any(names, of, "parameter of the regressor")
    free = ~np.array(model.locked)[[i for i in range(len(model.coordinates)) if i not in model.dependent]]
    rows_of_state = int(np.sum(free)) if by == "torque" else 1
    count = samples or max(ROWS, math.ceil(ROWS * len(chosen) / rows_of_state))
    q, qd, qdd = random_states(model, count, seed)
    if by == "torque":
        stacked = stacked_torque_regressor(model, q, qd, qdd)[:, free]
    else:
        stacked = np.asarray(_energies(model, jax.device_put(q), jax.device_put(qd)))
    Y = stacked.reshape(-1, len(names))[:, [names.index(name) for name in chosen]]
    # States near dead points have much larger torques: rows are normalized before the rank is determined.
    size = np.linalg.norm(Y, axis=1, keepdims=True)
    Y = Y / np.where(size > 0.0, size, 1.0)
    length = np.linalg.norm(Y, axis=0)
    effective = length > SMALLEST_COLUMN * length.max(initial=0.0)
    chosen, length = [name for name, kept in zip(chosen, effective, strict=True) if kept], length[effective]
    scaled = Y[:, effective] / length
    values = np.linalg.svd(scaled, compute_uv=False) if scaled.size else np.zeros(0)
    lowest, rank, highest = (
        int(np.sum(values > part * WEAK * values.max(initial=0.0))) for part in (GAP, 1.0, 1.0 / GAP)
    )
    if lowest != highest:
        warnings.warn(
            f"'{model.name}' has {lowest} to {highest} base parameters, depending on the tolerance of their rank:"
            " some are nearly dependent",
            stacklevel=2,
        )
    order = sorted(range(len(chosen)), key=lambda i: _preference(chosen[i]))
    kept = independent_columns(scaled, -np.argsort(order), rank, (WEAK, 0.0))
    factor = np.linalg.lstsq(scaled[:, kept], scaled, rcond=None)[0]
    factor[:, kept] = np.eye(len(kept))
    factor = np.where(np.abs(factor) > NO_TERM, factor, 0.0) * length / length[kept][:, None]
    matrix = np.zeros((len(kept), len(names)))
    digits = [[float(f"{value:.{DIGITS - 1}e}") for value in row] for row in factor]
    matrix[:, [names.index(name) for name in chosen]] = np.array(digits).reshape(factor.shape)
    own = tuple(chosen[i] for i in kept)
    formulas = [_formula(name, row, names) for name, row in zip(own, matrix, strict=True)]
    return BaseParameters(own, matrix, tuple(formulas), names)


def standard_values(
    model: Model,
    base: BaseParameters,
    values: Sequence[float] | Float[np.ndarray, "b"],
    dependent: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Standard parameters by name that have given base parameters, with the dependent ones at given values.

    K_i = K_B - beta K_d: every choice of K_d gives the same torques.

    Args:
        model: the machine.
        base: its base parameters.
        values: K_B [b], SI units.
        dependent: K_d by name, SI units; default: 0.

    Raises:
        ValueError: a name is not a dependent parameter, its value is not finite, or the number of values is not b.

    Source: Pyrhonen et al. 2024, eq. 8 and 10.
    """
    names, values = regressor_names(model), _of_base(base, values)
    effective = [name for i, name in enumerate(names) if base.matrix[:, i].any()]
    dependent_names = [name for name in effective if name not in base.names]
    found = dict.fromkeys(effective, 0.0)
    for name, value in (dependent or {}).items():
        check_known("dependent parameter", [name], dependent_names)
        found[name] = finite_number(f"dependent parameter '{name}'", value)
    fixed = np.array([found.get(name, 0.0) for name in names])
    return found | dict(zip(base.names, (values - base.matrix @ fixed).tolist(), strict=True))


def minimum_norm_values(
    model: Model, base: BaseParameters, values: Sequence[float] | Float[np.ndarray, "b"]
) -> dict[str, float]:
    """Standard parameters by name that have given base parameters and minimum norm.

    K = B^+ K_B, B the matrix of the base parameters, in SI units.

    Raises:
        ValueError: the number of values is not b.

    Source: Pyrhonen et al. 2024, section 2.1.
    """
    smallest = np.linalg.pinv(base.matrix) @ _of_base(base, values)
    names = regressor_names(model)
    return {name: float(smallest[i]) for i, name in enumerate(names) if base.matrix[:, i].any()}


class WithoutKnown(NamedTuple):
    """A linear regression with the effect of known parameters subtracted from the torques."""

    regressor: Float[np.ndarray, "... d"]
    effort: Float[np.ndarray, "..."]
    names: tuple[str, ...]
    """Names of the remaining columns."""


def without_known(
    regressor: Float[Array, "... p"] | np.ndarray,
    effort: Float[Array, "..."] | np.ndarray,
    names: Sequence[str],
    known: Mapping[str, float],
) -> WithoutKnown:
    """Regression on the unknown parameters alone, Y_u K_u = tau - Y_k K_k.

    Args:
        regressor: Y [..., p].
        effort: tau [...], Nm or N.
        names: of the columns of Y.
        known: K_k by name, SI units.

    Raises:
        ValueError: a name is not that of a column, its value is not finite, or sizes differ.

    Source: Pyrhonen et al. 2024, section 2.2.
    """
    Y, tau = np.asarray(regressor, dtype=float), np.asarray(effort, dtype=float)
    if Y.shape != (*tau.shape, len(names)):
        raise ValueError(f"regressor has shape {Y.shape}, expected {(*tau.shape, len(names))}")
    check_known("parameter of the regressor", known, names)
    is_known = np.array([name in known for name in names], dtype=bool)
    values = np.array([finite_number(f"known: '{name}'", known[name]) for name in names if name in known])
    remaining = tuple(name for name in names if name not in known)
    return WithoutKnown(Y[..., ~is_known], tau - Y[..., is_known] @ values, remaining)


def relevant_names(model: Model, free: Collection[str] = ()) -> list[str]:
    """Names of the relevant columns among `regressor_names`: of bodies, of non-zero parameters and of free ones."""
    values = parameters(model)
    return [
        name
        for name in regressor_names(model)
        if name.split(".")[0] in (*OF_BODIES, "density") or values[name] != 0.0 or name in free
    ]


def _without_rounded_angles(model: Model) -> Model:
    """The machine with axes made exactly parallel or perpendicular where they are so up to rounded angles.

    Otherwise 1.5708 rad in place of a right angle causes additional base parameters and terms of size 4e-6. Machines
    with loops are unchanged, since their loops must close.
    """
    if model.loops:
        return model

    def exact(turn: np.ndarray) -> np.ndarray:
        if not np.any((np.abs(turn) <= ROUNDED_ANGLE) & (turn != 0.0)):
            return turn
        left, _, right = np.linalg.svd(np.where(np.abs(turn) <= ROUNDED_ANGLE, 0.0, turn))
        return left @ right

    def straight(vectors: np.ndarray) -> np.ndarray:
        size = np.linalg.norm(vectors, axis=-1, keepdims=True)
        return np.where(np.abs(vectors) <= ROUNDED_ANGLE * size, 0.0, vectors)

    def exact_poses(poses: Array) -> Array:
        found = np.array(poses)
        for pose in found:
            pose[:3, :3], pose[:3, 3] = exact(pose[:3, :3]), straight(pose[:3, 3])
        return jax.device_put(found)

    return dataclasses.replace(
        model,
        origin=exact_poses(model.origin),
        axis=jax.device_put(straight(np.asarray(model.axis))),
        mass_offset=exact_poses(model.mass_offset),
        gravity=jax.device_put(straight(np.asarray(model.gravity))),
    )


def _preference(name: str) -> int:
    family, _, *axes = name.split(".")
    row = family, *(axes or ("",))
    return LESS_PREFERRED.index(row) if row in LESS_PREFERRED else -1


@compiled
def _energies(model: Model, q: Float[Array, "k n"], qd: Float[Array, "k m"]) -> Float[Array, "k p"]:
    return jax.vmap(lambda posture, rate: energy_regressor(model, posture, rate))(q, qd)


def _formula(own: str, row: np.ndarray, names: Sequence[str]) -> str:
    text = own
    for name, factor in sorted(zip(names, row.tolist(), strict=True), key=lambda term: _preference(term[0])):
        if name != own and factor != 0.0:
            size = f"{abs(factor):.6g} ".removeprefix("1 ")
            text += f" {'+' if factor > 0.0 else '-'} {size}{name}"
    return text


def _of_base(base: BaseParameters, values: Sequence[float] | np.ndarray) -> np.ndarray:
    found = np.asarray(values, dtype=float)
    if found.shape != (len(base.names),):
        raise ValueError(f"values has shape {found.shape}, expected one for each of {len(base.names)} base parameters")
    return found
