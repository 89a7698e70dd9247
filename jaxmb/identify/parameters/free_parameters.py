"""Which numbers of a model and of tests a fit may move, and the vector that stands for them."""

import fnmatch
import math
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.identify.parameters.model_parameters import NOT_NEGATIVE, ORDER, Place, assigned, parameters, places
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model

Vector = TypeVar("Vector", np.ndarray, Array)


class Bound(NamedTuple):
    """What a study says of one free parameter, or of several that share one value."""

    names: tuple[str, ...]
    lower: float
    upper: float
    initial: float | None = None
    logarithmic: bool = True


class FreeParameters(eqx.Module):
    """The vector u that a fit moves, and how it stands for physical values.

    u is the natural logarithm of the value, or the value over the width of its bounds where the scale is linear, so
    that one unit of u is a large change of any parameter. Tied parameters share one entry.
    """

    names: tuple[str, ...] = eqx.field(static=True)
    """One name an entry: the first of those tied together."""
    tied: tuple[tuple[str, ...], ...] = eqx.field(static=True)
    targets: tuple[Place, ...] = eqx.field(static=True)
    source: tuple[int, ...] = eqx.field(static=True)
    """Entry of u behind each target."""
    logarithmic: tuple[bool, ...] = eqx.field(static=True)
    lower_value: Float[np.ndarray, "d"]
    """Bounds of the physical values; like all numbers here a leaf, so that other bounds compile nothing again."""
    upper_value: Float[np.ndarray, "d"]
    width: Float[np.ndarray, "d"]
    lower: Float[Array, "d"]
    """Bounds of u."""
    upper: Float[Array, "d"]
    of_tests: tuple[tuple[str, int], ...] = eqx.field(static=True, default=())
    """Numbers that belong to tests and not to the model, and the entry of u behind each."""

    @property
    def size(self) -> int:
        """Number of entries d."""
        return len(self.names)

    def values(self, u: Vector) -> Vector:
        """Physical values behind u, SI units; NumPy in, NumPy out."""
        xp = u.__array_namespace__()  # NumPy outside of JAX, where nothing need be compiled for it
        is_log = xp.asarray(self.logarithmic)
        return xp.where(is_log, xp.exp(xp.where(is_log, u, 0.0)), u * xp.asarray(self.width))

    def encode(self, values: Vector) -> Vector:
        """u that stands for physical values; NumPy in, NumPy out."""
        xp = values.__array_namespace__()
        is_log = xp.asarray(self.logarithmic)
        return xp.where(is_log, xp.log(xp.where(is_log, values, 1.0)), values / xp.asarray(self.width))

    def apply(self, model: Model, values: Float[Array, "d"] | Float[np.ndarray, "d"]) -> Model:
        """The model at physical values."""
        return assigned(model, list(self.targets), [values[i] for i in self.source])

    def entries_of(self, names: Sequence[str]) -> Int[np.ndarray, "k"] | None:
        """Entries of u behind numbers of a test, -1 behind those that are not free; None where none is."""
        known = dict(self.of_tests)
        found = np.array([known.get(name, -1) for name in names], dtype=int)
        return found if np.any(found >= 0) else None

    def named(self, values: Sequence[float] | np.ndarray) -> dict[str, float]:
        """Values by name, tied ones each with their own."""
        return {name: float(v) for names, v in zip(self.tied, values, strict=True) for name in names}


def free_parameters(model: Model, bounds: Sequence[Bound], of_tests: Sequence[str] = ()) -> FreeParameters:
    """The free parameters of a fit.

    Args:
        model: the machine's.
        bounds: what is free.
        of_tests: names of numbers of tests, which may be free beside those of the model.

    Raises:
        ValueError: an unknown or repeated name, reversed or non-finite bounds, a bound at or below zero on a
            logarithmic scale, an initial value outside.
    """
    known = places(model)
    seen: set[str] = set()
    for bound in bounds:
        for name in bound.names:
            if name not in known and name not in of_tests:
                raise ValueError(known_name("free parameter", name, [*known, *of_tests]))
            if name in seen:
                raise ValueError(f"free parameter '{name}' is given twice")
            seen.add(name)
        check_bound(bound)
    if not bounds:
        raise ValueError("no parameter is free, expected at least one")
    entries = [(name, i) for i, bound in enumerate(bounds) for name in bound.names]
    targets = [(known[name], i) for name, i in entries if name in known]
    lower = np.array([b.lower for b in bounds], dtype=float)
    upper = np.array([b.upper for b in bounds], dtype=float)
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
        of_tests=tuple((name, i) for name, i in entries if name not in known),
    )


def subset(free: FreeParameters, entries: Int[np.ndarray, "k"]) -> FreeParameters:
    """Some entries of free parameters, those of the model alone; the others keep the model's values."""
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
    )


def nothing_free() -> FreeParameters:
    """No free parameters, of a study that finds something else."""
    none = np.zeros(0)
    return FreeParameters((), (), (), (), (), none, none, none, jax.device_put(none), jax.device_put(none))


def check_bound(bound: Bound) -> None:
    """Raise ValueError where the bounds of a parameter cannot be meant."""
    place = f"free parameter '{bound.names[0]}'"
    if not (math.isfinite(bound.lower) and math.isfinite(bound.upper)):
        raise ValueError(f"{place}: bounds {bound.lower} to {bound.upper}, expected finite numbers")
    if not bound.lower < bound.upper:
        raise ValueError(f"{place}: lower bound {bound.lower:g} is not below the upper bound {bound.upper:g}")
    if bound.logarithmic and bound.lower <= 0.0:
        raise ValueError(f"{place}: lower bound {bound.lower:g} on a logarithmic scale, expected above 0")
    if bound.names[0].split(".")[0] in NOT_NEGATIVE and bound.lower < 0.0:
        raise ValueError(f"{place}: lower bound {bound.lower:g}, expected 0 or more")
    if ORDER in bound.names and bound.upper > 1.0:
        raise ValueError(f"{place}: upper bound {bound.upper:g}, expected 1 or less")
    if bound.initial is not None and not bound.lower <= bound.initial <= bound.upper:
        raise ValueError(
            f"{place}: initial value {bound.initial:g} is outside its bounds {bound.lower:g} to {bound.upper:g}"
        )


def matching(names: Sequence[str], pattern: str) -> list[str]:
    """Names that a pattern such as "stiffness.*" or "damping.z?" selects, in their own order."""
    return [name for name in names if fnmatch.fnmatchcase(name, pattern)]


def affine_numbers(
    model: Model, free: FreeParameters, names: Sequence[str]
) -> tuple[Float[np.ndarray, "p d"], Float[np.ndarray, "p"]]:
    """Numbers of a model as `FreeParameters.apply` sets them: matrix @ values + constant.

    A free mass takes the first moments and inertias of its body along that are not free themselves.

    Args:
        model: the machine's.
        free: the free parameters.
        names: of the numbers (`parameters`).
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
