"""Base parameters: the combinations of a machine's numbers on which its efforts depend, and no more than these."""

import dataclasses
import math
import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import SMALLEST_COLUMN
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.random_states import random_states
from jaxmb.identify.regression.torque_regressor import energy_regressor, regressor_names, stacked_torque_regressor
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model

OF_BODIES = ("mass", "first_moment", "inertia", "density")
"""Families of what every machine has."""
PREFERRED = (
    ("stiffness", ""), ("damping", ""), ("friction", ""), ("offset", ""),
    ("stribeck", ""), ("cubic_damping", ""), ("load_friction", ""), ("damping_slope", ""),
    ("inertia", "zz"), ("inertia", "xx"), ("inertia", "xy"), ("inertia", "xz"), ("inertia", "yz"), ("inertia", "yy"),
    ("first_moment", "x"), ("first_moment", "y"), ("first_moment", "z"),
    ("rotor_inertia", ""), ("mass", ""), ("density", ""),
)  # fmt: skip
"""Families with their axes, from those that rather stand for a base parameter to those that are rather added to one.
With joints that turn about z this is the usual choice for robots."""
DIGITS = 10
"""Significant digits that are kept of a coefficient: the last ones are rounding."""
WEAK = 1e-5
"""Singular value, of the largest, from which on a direction counts: weaker ones are rounding of a description, and no
torque that is measured determines them."""
GAP = 30.0
"""Factor on that limit, up and down, within which the rank must not change."""
NO_TERM = 1e-8
"""Part of a dependent parameter's column, below which a term of a formula is rounding: of the regression, or of
calibrated offsets of 1e-11 m."""
ROUNDED_ANGLE = 2e-5
"""rad, by which axes that are meant to be parallel or perpendicular deviate where angles have four digits (1.5708)."""
ROWS = 3
"""Rows of the regressor for each of its columns."""


class BaseParameters(NamedTuple):
    """The b base parameters of a machine, each the sum of an independent parameter and multiples of dependent ones."""

    names: tuple[str, ...]
    """Of the independent parameters: the base parameters take their places where dependent ones are 0."""
    matrix: Float[np.ndarray, "b p"]
    """Values of base parameters = matrix @ [value of each of `regressor_names`]."""
    formulas: tuple[str, ...]
    """The rows of the matrix as text, such as "inertia.crank.zz + 0.0064 mass.slider"."""


def base_parameters(
    model: Model,
    of: Sequence[str] | None = None,
    *,
    by: Literal["torque", "energy"] = "torque",
    samples: int | None = None,
    seed: int = 0,
) -> BaseParameters:
    """Base parameters of a machine, found from its regressor at random states.

    Columns of zeros have no effect. The others are split into independent and dependent ones, Y_d = Y_i beta, by the
    rank of Y, so that Y K = Y_i (K_i + beta K_d) = Y_i K_B. Which are independent follows an order of preference and
    not the random numbers: inertias before first moments before masses, bodies in the order of the machine. Axes and
    offsets of open chains that are parallel or perpendicular but for 2e-5 rad, as where angles have four digits
    (1.5708), are taken as exactly so.

    Args:
        model: the machine; its loops stay on the branch of the reference posture.
        of: names or patterns ("inertia.*") of `regressor_names` that are to be looked at, the others being known; where
            not given, those of masses, and of all else what the machine has, that is what is not 0.
        by: "torque" takes the regressor of `actuator_effort`; "energy" that of the total energy, which knows nothing of
            dampers, friction and offsets.
        samples: number of states; three rows a column where not given.
        seed: of the random states.

    Returns:
        Names of the b independent parameters, matrix [b, p] of the map from the values of all p `regressor_names`, and
        its rows as text.

    Raises:
        ValueError: a pattern matches no name.

    Warns:
        UserWarning: the number of base parameters depends on the tolerance within a factor of 30.

    Source: Gautier 1990, "Numerical calculation of the base inertial parameters of robots"; Pyrhonen et al. 2024,
    eq. 2-9.
    """
    if by not in ("torque", "energy"):
        raise ValueError(f"by is '{by}', expected 'torque' or 'energy'")
    model = _without_rounded_angles(model)
    names = regressor_names(model)
    chosen = _chosen(model, names, of)
    free = ~np.array(model.locked)[[i for i in range(len(model.coordinates)) if i not in model.dependent]]
    rows_of_state = int(np.sum(free)) if by == "torque" else 1
    count = samples or max(ROWS, math.ceil(ROWS * len(chosen) / rows_of_state))
    states = random_states(model, count, seed)
    if by == "torque":
        stacked = stacked_torque_regressor(model, *states)[:, free]
    else:
        stacked = np.asarray(_energies(model, jax.device_put(states.q), jax.device_put(states.qd)))
    Y = stacked.reshape(-1, len(names))[:, [names.index(name) for name in chosen]]
    # Some states, near dead points, have larger efforts by far; the rank is that of rows of one size.
    size = np.linalg.norm(Y, axis=1, keepdims=True)
    Y = Y / np.where(size > 0.0, size, 1.0)
    length = np.linalg.norm(Y, axis=0)
    acts = length > SMALLEST_COLUMN * length.max(initial=0.0)
    chosen, length = [name for name, some in zip(chosen, acts, strict=True) if some], length[acts]
    scaled = Y[:, acts] / length
    values = np.linalg.svd(scaled, compute_uv=False) if scaled.size else np.zeros(0)
    least, rank, most = (int(np.sum(values > part * WEAK * values[0])) for part in (GAP, 1.0, 1.0 / GAP))
    if least != most:
        warnings.warn(
            f"'{model.name}' has {least} to {most} base parameters, by the tolerance of their rank:"
            " some hardly act by themselves",
            stacklevel=2,
        )
    kept = _independent(scaled, sorted(range(len(chosen)), key=lambda i: _preference(chosen[i])), rank)
    factor = np.linalg.lstsq(scaled[:, kept], scaled, rcond=None)[0]
    factor[:, kept] = np.eye(len(kept))
    factor = np.where(np.abs(factor) > NO_TERM, factor, 0.0) * length / length[kept][:, None]
    matrix = np.zeros((len(kept), len(names)))
    matrix[:, [names.index(name) for name in chosen]] = _rounded(factor)
    own = tuple(chosen[i] for i in kept)
    formulas = [_formula(name, row, names) for name, row in zip(own, matrix, strict=True)]
    return BaseParameters(own, matrix, tuple(formulas))


def standard_values(
    model: Model,
    base: BaseParameters,
    values: Sequence[float] | Float[np.ndarray, "b"],
    dependent: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Values by name of all parameters that base parameters are made of, with the dependent ones at wanted values.

    K_i = K_B - beta K_d: every choice gives the same efforts.

    Args:
        model: the machine.
        base: its base parameters.
        values: K_B [b].
        dependent: K_d by name, 0 where not named.

    Raises:
        ValueError: a name is not that of a dependent parameter, or there is not one value for each base parameter.

    Source: Pyrhonen et al. 2024, eq. 8 and 10.
    """
    names, values = regressor_names(model), _of_base(base, values)
    acting = [name for i, name in enumerate(names) if base.matrix[:, i].any()]
    following = [name for name in acting if name not in base.names]
    found = dict.fromkeys(acting, 0.0)
    for name, value in (dependent or {}).items():
        if name not in following:
            raise ValueError(known_name("dependent parameter", name, following))
        found[name] = float(value)
    wanted = np.array([found.get(name, 0.0) for name in names])
    return found | dict(zip(base.names, (values - base.matrix @ wanted).tolist(), strict=True))


def minimum_norm_values(
    model: Model, base: BaseParameters, values: Sequence[float] | Float[np.ndarray, "b"]
) -> dict[str, float]:
    """Values by name of all parameters that base parameters are made of, of the least sum of squares.

    K = B^+ K_B, B the matrix of the base parameters, in SI units.

    Raises:
        ValueError: there is not one value for each base parameter.

    Source: Pyrhonen et al. 2024, section 2.1.
    """
    least = np.linalg.pinv(base.matrix) @ _of_base(base, values)
    names = regressor_names(model)
    return {name: float(least[i]) for i, name in enumerate(names) if base.matrix[:, i].any()}


class WithoutKnown(NamedTuple):
    """A linear problem with known values moved to its left-hand side."""

    regressor: Float[np.ndarray, "... d"]
    effort: Float[np.ndarray, "..."]
    names: tuple[str, ...]
    """Of the columns that are left."""


def without_known(
    regressor: Float[Array, "... p"] | np.ndarray,
    effort: Float[Array, "..."] | np.ndarray,
    names: Sequence[str],
    known: Mapping[str, float],
) -> WithoutKnown:
    """Y_u K_u = tau - Y_k K_k: a regression on the unknown parameters alone.

    Args:
        regressor: Y [..., p].
        effort: tau [...].
        names: of the columns of Y.
        known: K_k by name.

    Raises:
        ValueError: a name is not that of a column, or sizes differ.

    Source: Pyrhonen et al. 2024, section 2.2.
    """
    Y, tau = np.asarray(regressor, dtype=float), np.asarray(effort, dtype=float)
    if Y.shape != (*tau.shape, len(names)):
        raise ValueError(f"regressor has shape {Y.shape}, expected {(*tau.shape, len(names))}")
    for name in known:
        if name not in names:
            raise ValueError(known_name("parameter of the regressor", name, names))
    moved = np.array([name in known for name in names], dtype=bool)
    values = np.array([known[name] for name in names if name in known], dtype=float)
    left = tuple(name for name in names if name not in known)
    return WithoutKnown(Y[..., ~moved], tau - Y[..., moved] @ values, left)


def acting_names(model: Model, free: Collection[str] = ()) -> list[str]:
    """Those of `regressor_names` that a machine has: of bodies, of what is not 0, and what a fit may change."""
    values = parameters(model)
    return [
        name
        for name in regressor_names(model)
        if name.split(".")[0] in OF_BODIES or values[name] != 0.0 or name in free
    ]


def _chosen(model: Model, names: tuple[str, ...], of: Sequence[str] | None) -> list[str]:
    if of is None:
        return acting_names(model)
    found: set[str] = set()
    for pattern in of:
        matches = matching(names, pattern)
        if not matches:
            raise ValueError(known_name("parameter of the regressor", pattern, names))
        found.update(matches)
    return [name for name in names if name in found]


def _without_rounded_angles(model: Model) -> Model:
    """The machine with axes exactly parallel or perpendicular that are so but for the rounding of angles.

    Otherwise 1.5708 rad in place of a right angle gives base parameters and terms of its own, 4e-6 in size. Machines
    with loops stay as they are: theirs have to close.
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

    def placed(poses: Array) -> Array:
        found = np.array(poses)
        for pose in found:
            pose[:3, :3], pose[:3, 3] = exact(pose[:3, :3]), straight(pose[:3, 3])
        return jax.device_put(found)

    return dataclasses.replace(
        model,
        origin=placed(model.origin),
        axis=jax.device_put(straight(np.asarray(model.axis))),
        mass_offset=placed(model.mass_offset),
        gravity=jax.device_put(straight(np.asarray(model.gravity))),
    )


def _independent(scaled: np.ndarray, order: Sequence[int], rank: int) -> list[int]:
    """Columns of length 1 that are independent, as many as the rank, the first of an order that stand out of those
    before (Gautier 1990), by the orthogonalization of Gram and Schmidt."""
    kept: list[int] = []
    left = scaled.copy()
    for least in (WEAK, 0.0):
        for i in order:
            size = float(np.linalg.norm(left[:, i]))
            if len(kept) < rank and i not in kept and size > least:
                along = left[:, i] / size
                left = left - np.outer(along, along @ left)
                kept.append(i)
    return sorted(kept)


def _preference(name: str) -> int:
    family, _, *axes = name.split(".")
    return PREFERRED.index((family, *(axes or ("",))))


@compiled
def _energies(model: Model, q: Float[Array, "k n"], qd: Float[Array, "k m"]) -> Float[Array, "k p"]:
    return jax.vmap(lambda posture, rate: energy_regressor(model, posture, rate))(q, qd)


def _rounded(matrix: np.ndarray) -> np.ndarray:
    """Coefficients without what rounding left behind their first digits."""
    return np.array([[float(f"{value:.{DIGITS - 1}e}") for value in row] for row in matrix]).reshape(matrix.shape)


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
