"""Free parameters of a fit, of the model and of tests, and their vector u."""

import fnmatch
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.identify.parameters.model_parameters import (
    ORDER,
    ParameterSpec,
    assigned,
    parameter_table,
    parameters,
)
from jaxmb.io.validation import check_distinct, check_known, closest, known_name
from jaxmb.machine.build import Model
from jaxmb.machine.families import NOT_NEGATIVE

Vector = TypeVar("Vector", np.ndarray, Array)


class Bound(NamedTuple):
    """Bounds, initial value and scale of one free parameter, or of several tied to one value; SI units."""

    names: tuple[str, ...]
    lower: float
    upper: float
    initial: float | None = None
    logarithmic: bool = True
    needed: float = np.nan
    """Standard deviation of u that is sufficient; NaN: not stated."""


class FreeParameters(eqx.Module):
    """The vector u of free parameters [d], and its mapping to physical values.

    An entry of u is the natural logarithm of the value or, on a linear scale, the value over the width of its bounds,
    so that one unit of u is a large change of any parameter. Tied parameters share one entry.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    """One name per entry: the first of those tied together."""
    tied: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    """All names per entry."""
    targets: tuple[ParameterSpec, ...] = eqx.field(static=True)
    """Entries of the model that are set."""
    source: tuple[int, ...] = eqx.field(static=True)
    """Entry of u for each target."""
    logarithmic: tuple[bool, ...] = eqx.field(static=True)
    lower_value: Float[np.ndarray, "d"]
    """Bounds of the physical values; a leaf like all numbers here, so that other bounds need no recompilation."""
    upper_value: Float[np.ndarray, "d"]
    width: Float[np.ndarray, "d"]
    lower: Float[Array, "d"]
    """Bounds of u."""
    upper: Float[Array, "d"]
    needed: Float[np.ndarray, "d"]
    """Standard deviation of u that is sufficient for the purpose of the study; NaN where none is stated."""
    of_tests: tuple[tuple[str, int], ...] = eqx.field(static=True, default=())
    """Parameters of tests instead of the model, with the entry of u for each."""

    @property
    def size(self) -> int:
        """Number of entries d."""
        return len(self.names)

    def slope(self, values: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """Derivative of each physical value by its entry of u: the value on a logarithmic scale, else the width."""
        return np.where(np.array(self.logarithmic), values, self.width)

    def values(self, u: Vector) -> Vector:
        """Physical values of u, SI units; NumPy in, NumPy out."""
        xp = u.__array_namespace__()  # NumPy outside JAX, without compilation
        is_log = xp.asarray(self.logarithmic)
        return xp.where(is_log, xp.exp(xp.where(is_log, u, 0.0)), u * xp.asarray(self.width))

    def encode(self, values: Vector) -> Vector:
        """u of physical values; NumPy in, NumPy out."""
        xp = values.__array_namespace__()
        is_log = xp.asarray(self.logarithmic)
        return xp.where(is_log, xp.log(xp.where(is_log, values, 1.0)), values / xp.asarray(self.width))

    def bound_side(self, u: Float[np.ndarray, "d"]) -> Int[np.ndarray, "d"]:
        """-1 where an entry of u is on its lower bound, 1 on its upper one, 0 between them."""
        lower, upper = np.asarray(self.lower), np.asarray(self.upper)
        near = 1e-9 * (upper - lower)
        return np.where(u <= lower + near, -1, np.where(u >= upper - near, 1, 0))

    def apply(self, model: Model, values: Float[Array, "d"] | Float[np.ndarray, "d"]) -> Model:
        """The model at physical values."""
        return assigned(model, list(self.targets), [values[i] for i in self.source])

    def entries_of(self, names: Sequence[str]) -> Int[np.ndarray, "k"] | None:
        """Entries of u for parameters of a test, -1 for fixed ones; None if none is free."""
        known = dict(self.of_tests)
        found = np.array([known.get(name, -1) for name in names], dtype=int)
        return found if np.any(found >= 0) else None

    def named(self, values: Sequence[float] | np.ndarray) -> dict[str, float]:
        """Values by name, for each of the tied names."""
        return {name: float(v) for names, v in zip(self.tied, values, strict=True) for name in names}


def free_parameters(model: Model, bounds: Sequence[Bound], of_tests: Sequence[str] = ()) -> FreeParameters:
    """The free parameters of a fit.

    Args:
        model: of the machine.
        bounds: of the free parameters.
        of_tests: names of the parameters of tests.

    Raises:
        ValueError: an unknown or repeated name, reversed or non-finite bounds, a bound at or below zero on a
            logarithmic scale, or an initial value outside its bounds.
    """
    known = parameter_table(model)
    for bound in bounds:
        check_known("free parameter", bound.names, [*known, *of_tests])
        check_bound(bound)
    check_distinct([name for bound in bounds for name in bound.names], "free parameter '{}' is given twice")
    if not bounds:
        raise ValueError("no parameter is free, expected at least one")
    entries = [(name, i) for i, bound in enumerate(bounds) for name in bound.names]
    targets = [(known[name], i) for name, i in entries if name in known]
    lower, upper = np.array([(b.lower, b.upper) for b in bounds], dtype=float).T
    width = upper - lower
    logarithmic = np.array([b.logarithmic for b in bounds])

    def encoded(x: np.ndarray) -> Array:
        return jax.device_put(np.where(logarithmic, np.log(np.where(logarithmic, x, 1.0)), x / width))

    return FreeParameters(
        names=tuple(b.names[0] for b in bounds),
        tied=tuple(b.names for b in bounds),
        targets=tuple(t for t, _ in targets),
        source=tuple(i for _, i in targets),
        logarithmic=tuple(bool(x) for x in logarithmic),
        lower_value=lower,
        upper_value=upper,
        width=width,
        lower=encoded(lower),
        upper=encoded(upper),
        needed=np.array([b.needed for b in bounds]),
        of_tests=tuple((name, i) for name, i in entries if name not in known),
    )


def subset(free: FreeParameters, entries: Int[np.ndarray, "k"]) -> FreeParameters:
    """Selected entries of free parameters, without those of tests; the others keep the model's values."""
    number = {int(old): new for new, old in enumerate(entries)}
    kept = [(target, number[i]) for target, i in zip(free.targets, free.source, strict=True) if i in number]
    return FreeParameters(
        names=tuple(free.names[i] for i in number),
        tied=tuple(free.tied[i] for i in number),
        targets=tuple(target for target, _ in kept),
        source=tuple(i for _, i in kept),
        logarithmic=tuple(free.logarithmic[i] for i in number),
        lower_value=free.lower_value[entries],
        upper_value=free.upper_value[entries],
        width=free.width[entries],
        lower=free.lower[entries],
        upper=free.upper[entries],
        needed=free.needed[entries],
    )


def nothing_free() -> FreeParameters:
    """Empty free parameters, for a study with other unknowns."""
    none = np.zeros(0)
    return FreeParameters((), (), (), (), (), none, none, none, jax.device_put(none), jax.device_put(none), none)


def check_bound(bound: Bound) -> None:
    """Raise ValueError if the bounds of a parameter are inconsistent."""
    location = f"free parameter '{bound.names[0]}'"
    if not (np.isfinite(bound.lower) and np.isfinite(bound.upper)):
        raise ValueError(f"{location}: bounds {bound.lower} to {bound.upper}, expected finite numbers")
    if not bound.lower < bound.upper:
        raise ValueError(f"{location}: lower bound {bound.lower:g} is not below the upper bound {bound.upper:g}")
    if bound.logarithmic and bound.lower <= 0.0:
        raise ValueError(f"{location}: lower bound {bound.lower:g} on a logarithmic scale, expected above 0")
    if bound.names[0].split(".")[0] in NOT_NEGATIVE and bound.lower < 0.0:
        raise ValueError(f"{location}: lower bound {bound.lower:g}, expected 0 or more")
    if ORDER in bound.names and bound.upper > 1.0:
        raise ValueError(f"{location}: upper bound {bound.upper:g}, expected 1 or less")
    if bound.initial is not None and not bound.lower <= bound.initial <= bound.upper:
        raise ValueError(
            f"{location}: initial value {bound.initial:g} is outside its bounds {bound.lower:g} to {bound.upper:g}"
        )


def matching(names: Sequence[str], pattern: str) -> list[str]:
    """Names that match a pattern such as "stiffness.*" or "damping.z?", in their order."""
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def unknown_pattern(label: str, pattern: str, names: Sequence[str]) -> str:
    """Message for a pattern that matches no name, with the closest family of parameters and its names."""
    family, _, rest = pattern.partition(".")
    families = dict.fromkeys(name.partition(".")[0] for name in names)
    near = closest(family, families)
    if near is None:
        return known_name(label, pattern, [f"{family}.*" for family in families])
    if matching(names, f"{near}.{rest}"):
        return f"{label} '{pattern}' does not exist, did you mean '{near}.{rest}'?"
    return known_name(label, pattern, matching(names, f"{near}.*"))


def matching_any(names: Sequence[str], patterns: Sequence[str], label: str) -> list[str]:
    """Names that match any of some patterns, in their order.

    Args:
        names: to choose from.
        patterns: such as "stiffness.*".
        label: noun of a pattern in an error message.

    Raises:
        ValueError: a pattern matches no name.
    """
    for pattern in patterns:
        if not matching(names, pattern):
            raise ValueError(unknown_pattern(label, pattern, names))
    return [name for name in names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def values_by_name(names: Sequence[str], values: Mapping[str, float], label: str) -> dict[str, float]:
    """Values by name from values by name or pattern; a full name overrules a pattern.

    Args:
        names: to choose from.
        values: by name or pattern.
        label: noun of a pattern in an error message.

    Raises:
        ValueError: a pattern matches no name.
    """
    found = dict[str, float]()
    for pattern in sorted(values, key=names.__contains__):
        found |= dict.fromkeys(matching_any(names, [pattern], label), values[pattern])
    return found


def affine_map(
    model: Model, free: FreeParameters, names: Sequence[str]
) -> tuple[Float[np.ndarray, "p d"], Float[np.ndarray, "p"]]:
    """Affine map from free values to parameters of a model, as by `FreeParameters.apply`: matrix @ values + constant.

    A free mass scales the first moments and inertias of its body that are not free themselves.

    Args:
        model: of the machine.
        free: the free parameters.
        names: of the parameters [p], as in `parameters`.

    Returns:
        Matrix [p, d] and constant [p].
    """
    own = parameters(model)
    entry = {name: i for i, tied in enumerate(free.tied) for name in tied}
    matrix, constant = np.zeros((len(names), free.size)), np.array([own[name] for name in names])
    for row, name in enumerate(names):
        family, item = name.split(".")[:2]
        mass = f"mass.{item}"
        if name in entry:
            matrix[row, entry[name]], constant[row] = 1.0, 0.0
        elif family in ("first_moment", "inertia") and mass in entry and own[mass] > 0.0:
            matrix[row, entry[mass]], constant[row] = own[name] / own[mass], 0.0
    return matrix, constant
