"""Base parameters: the combinations of a machine's numbers on which its efforts depend, and no more than these."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import jax
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.identify.estimation.reduction import reduction
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
WIDE = 100.0
"""Factor on the tolerance of the rank, up and down, within which the rank must not change."""
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
    not the random numbers: inertias before first moments before masses, bodies in the order of the machine.

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
        ValueError: a pattern matches no name, or the columns are so close to dependent that no choice can be made.

    Warns:
        UserWarning: the number of base parameters depends on the tolerance within four decades.

    Source: Gautier 1990, "Numerical calculation of the base inertial parameters of robots"; Pyrhonen et al. 2024,
    eq. 2-9.
    """
    if by not in ("torque", "energy"):
        raise ValueError(f"by is '{by}', expected 'torque' or 'energy'")
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
    wide = [scaled_svd(Y, RANK_TOLERANCE * factor).rank for factor in (WIDE, 1.0 / WIDE)]
    if wide[0] != wide[1]:
        warnings.warn(
            f"'{model.name}' has {wide[0]} to {wide[1]} base parameters, by the tolerance of their rank:"
            " some hardly act by themselves",
            stacklevel=2,
        )
    order = {name: -float(place) for place, name in enumerate(sorted(chosen, key=_preference))}
    found = reduction(Y, chosen, order, independent=WIDE * RANK_TOLERANCE)
    matrix = np.zeros((len(found.names), len(names)))
    matrix[:, [names.index(name) for name in chosen]] = _rounded(found.reduce)
    formulas = [_formula(name, row, names) for name, row in zip(found.names, matrix, strict=True)]
    return BaseParameters(found.names, matrix, tuple(formulas))


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


def _chosen(model: Model, names: tuple[str, ...], of: Sequence[str] | None) -> list[str]:
    if of is None:
        values = parameters(model)
        return [name for name in names if name.split(".")[0] in OF_BODIES or values[name] != 0.0]
    found: set[str] = set()
    for pattern in of:
        matches = matching(names, pattern)
        if not matches:
            raise ValueError(known_name("parameter of the regressor", pattern, names))
        found.update(matches)
    return [name for name in names if name in found]


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
            size = "" if abs(factor) == 1.0 else f"{abs(factor):.6g} "
            text += f" {'+' if factor > 0.0 else '-'} {size}{name}"
    return text


def _of_base(base: BaseParameters, values: Sequence[float] | np.ndarray) -> np.ndarray:
    found = np.asarray(values, dtype=float)
    if found.shape != (len(base.names),):
        raise ValueError(f"values has shape {found.shape}, expected one for each of {len(base.names)} base parameters")
    return found
