"""Named parameters of a model, their entries in its arrays, and their units."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxmb.io.validation import check_known, finite_number, shown, typed_arguments
from jaxmb.machine.build import Model
from jaxmb.machine.elements import TERMS
from jaxmb.machine.families import FAMILIES, NOT_NEGATIVE, OF_GEOMETRY, OUTSIDE, Family, leaves_of
from jaxmb.machine.values import GROUND
from jaxmb.mechanics.kinematics import ELASTIC_AXES

DEVIATIONS = frozenset(family.leaf for family in FAMILIES if family.name in OF_GEOMETRY)
"""Leaves of deviations from the stated geometry."""
ORDER = "fractional.order"
"""Order of fractional damping, at most 1."""
FURTHER_FRICTION = ("friction_terms", "stribeck_speed")
"""Leaves of friction terms that each coordinate has or not."""
TENSOR = {"xx": (0, 0), "yy": (1, 1), "zz": (2, 2), "xy": (0, 1), "xz": (0, 2), "yz": (1, 2)}
"""Rows and columns of the six independent entries of an inertia."""


class ParameterSpec(NamedTuple):
    """A parameter's entry in the parameter table: a leaf of the model and the entries of it that hold the value."""

    leaf: str
    entries: tuple[tuple[int, ...], ...]


def parameter_table(model: Model) -> dict[str, ParameterSpec]:
    """Parameter table of a model: every parameter's entry by name.

    stiffness.*, damping.*, loss_factor.*, rotor_inertia.*, friction.*, offset.* of unlocked coordinates including motor
    shafts, except loss_factor of a shaft and rotor_inertia of a driven coordinate; rotor_inertia.*, damping.*,
    friction.* of transmissions; stiffness.*, damping.*, loss_factor.* of springs, and free_length.* of those between
    two points; young_modulus.*, shear_modulus.*, density.*, loss_factor.* of beams; mass.*, first_moment.*.x (y, z) and
    inertia.*.xx (yy, zz, xy, xz, yz) of bodies and payloads, about the origin of the body's frame; compliance.*.x.x
    (x.y ... rz.rz, the first not after the second in x, y, z, rx, ry, rz) of virtual springs, guide_exponent.* of those
    with a guide, play.*.x and play_load.*.x (y, z, rx, ry, rz) of those with play; rayleigh.mass and
    rayleigh.stiffness; fractional.order and fractional.time of a machine with fractional damping; stiffness_slope.* of
    coordinates with load-dependent stiffness; stribeck.*, cubic_damping.*, load_friction.*, damping_slope.* and
    stribeck_speed.* of coordinates with these friction terms; origin.*.x (y, z, rx, ry, rz), zero.* and reading_scale.*
    of joints, frame.*.x (y, z, rx, ry, rz) of frames, except those of the ground and of beam elements.
    """
    found: dict[str, ParameterSpec] = {}
    driven, shafts = ({pair[k] for pair in model.motors} for k in (0, 1))
    joint_of = {shaft: joint for joint, shaft in model.motors if model.brakes_release}
    moving = [(i, name) for i, name in enumerate(model.coordinates) if not model.locked[joint_of.get(i, i)]]
    some = {  # leaves of parameters that only some owners have
        "loss_factor": [i not in shafts for i in range(len(model.coordinates))],
        "rotor_inertia": [i not in driven for i in range(len(model.coordinates))],
        "stribeck_speed": ["stribeck" in terms for terms in model.further_friction],
        "stiffness_slope": model.load_dependent,
        "spring_free_length": [kind == "length" for kind in model.spring_type],
        "guide_exponent": [coordinate >= 0 for coordinate in model.guides],
        "play": model.has_play,
        "play_load": model.has_play,
    }

    def has(family: Family, i: int) -> bool:
        if family.leaf == "friction_terms":
            return family.name in model.further_friction[i]
        return family.leaf not in some or some[family.leaf][i]

    fixed = {GROUND, *model.elements}
    special = {
        "coordinate": moving,
        "frame": [(i, name) for i, name in enumerate(model.frames) if name not in fixed],
        "body": list(enumerate(model.masses)),
    }

    for _, rows in itertools.groupby(FAMILIES, _written_together):
        group = list(rows)
        owner, name = group[0].owner, group[0].name
        if owner == "machine":
            for leaf in leaves_of(group[0]) if name != "fractional" or model.fractional else ():
                found[leaf.replace("_", ".", 1)] = ParameterSpec(leaf, ((),))
        elif owner not in OUTSIDE:
            items = special[owner] if owner in special else enumerate(getattr(model, f"{owner.replace(' ', '_')}s"))
            for (i, item), family in itertools.product(items, group):
                for axes, entries in _entries(family, i, getattr(model, family.leaf).shape) if has(family, i) else ():
                    found[".".join((family.name, item, *axes))] = ParameterSpec(family.leaf, entries)
    return found


def _written_together(family: Family) -> tuple[str, ...]:
    """Families of equal value are listed owner by owner, others family by family."""
    if family.owner == "beam" or family.name in ("first_moment", "inertia"):
        return (family.owner,)
    if family.leaf in FURTHER_FRICTION:
        return ("further friction",)
    return (family.owner, family.name)


def _entries(
    family: Family, i: int, shape: tuple[int, ...]
) -> Iterator[tuple[tuple[str, ...], tuple[tuple[int, ...], ...]]]:
    """Axes in the names of an owner's parameters, and the entries that hold each, by the shape of the array: numbers,
    vectors of three or six components, inertias and compliances."""
    if family.leaf == "friction_terms":
        yield (), ((i, TERMS.index(family.name)),)
    elif len(shape) == 1:
        yield (), ((i,),)
    elif len(shape) == 2:
        yield from (((axis,), ((i, k),)) for k, axis in enumerate(ELASTIC_AXES[: shape[1]]))
    elif shape[1] == 3:
        yield from (((axes,), _symmetric(i, a, b)) for axes, (a, b) in TENSOR.items())
    else:
        for a, b in itertools.combinations_with_replacement(range(6), 2):
            yield (ELASTIC_AXES[a], ELASTIC_AXES[b]), _symmetric(i, a, b)


def _symmetric(i: int, a: int, b: int) -> tuple[tuple[int, ...], ...]:
    return ((i, a, b), (i, b, a)) if a != b else ((i, a, b),)


@typed_arguments
def parameters(model: Model) -> dict[str, float]:
    """Value of every parameter of the model by name, in SI units (see `parameter_table` for the names)."""
    table = parameter_table(model)
    leaves = {spec.leaf: np.asarray(getattr(model, spec.leaf)) for spec in table.values()}
    return {name: float(leaves[spec.leaf][spec.entries[0]]) for name, spec in table.items()}


@typed_arguments
def set_parameters(model: Model, values: Mapping[str, float | Float[Array, ""]]) -> Model:
    """The model with the named parameters at the given values (numbers or traced scalars), SI units.

    A mass scales its first moment and inertia unless these are given too, so that the centre of mass and the mass
    distribution are unchanged. Torque is linear in all ten parameters either way.

    Raises:
        ValueError: a parameter is unknown, a value is no finite number, one of the families in `NOT_NEGATIVE` is
            negative, or the order of fractional damping exceeds 1.
    """
    known = parameter_table(model)
    if not isinstance(values, Mapping):
        raise ValueError(f"values are {shown(values)}, expected a dict of parameters with their values")
    check_known("parameter", values, known)
    for name, value in values.items():
        if isinstance(value, Tracer):
            continue
        number = finite_number(f"parameter '{name}'", value)
        if name.split(".")[0] in NOT_NEGATIVE and number < 0.0:
            raise ValueError(f"parameter '{name}' is {number:g}, expected 0 or more")
        if name == ORDER and number > 1.0:
            raise ValueError(f"parameter '{name}' is {number:g}, expected 1 or less")
    return assigned(model, [known[name] for name in values], list(values.values()))


def with_numbers(model: Model, values: Mapping[str, float]) -> Model:
    """The model with parameters at other values, SI units; a mass does not scale its first moment and inertia."""
    if not values:
        return model
    known, own = parameter_table(model), parameters(model)
    bodies = [name.removeprefix("mass.") for name in values if name.startswith("mass.")]
    unscaled = {
        name: own[name]
        for body in bodies
        for name in known
        if name.startswith((f"first_moment.{body}.", f"inertia.{body}."))
    }
    complete = unscaled | dict(values)
    return assigned(model, [known[name] for name in complete], list(complete.values()))


def unit(model: Model, name: str) -> str:
    """SI unit of a parameter of the model or of a test, "N m/rad" for example."""
    family, item, *axes = name.split(".")
    row = next(row for row in FAMILIES if row.name == family)
    if len(row.units) == 1:
        return row.units[0]
    if row.owner == "machine":
        return row.units[leaves_of(row).index(f"{family}_{item}")]
    turns = [axis.startswith("r") for axis in axes[1 - len(row.units) :]]  # the label of a station is none
    return row.units[sum(turns) if turns else _rotates(model, item)]


def _rotates(model: Model, item: str) -> bool:
    """Whether a coordinate, transmission or spring acts on a rotation."""
    if item in model.coordinates:
        return model.revolute[model.coordinates.index(item)]
    if item in model.transmissions:  # referred to its first coordinate
        rates = np.asarray(model.transmission_rate[model.transmissions.index(item)])
        return model.revolute[int(np.flatnonzero(rates)[0])]
    return model.spring_type[model.springs.index(item)] == "rotation"


def assigned(model: Model, targets: Sequence[ParameterSpec], values: Sequence[float | Array]) -> Model:
    """The model with values assigned to the targets, SI units; on the host unless something is traced."""
    traced = any(isinstance(x, Tracer) for x in (*values, *jax.tree.leaves(model)))
    leaves: dict[str, Any] = {}

    def put(name: str, entry: Any, value: Any) -> None:
        if name not in leaves:
            leaves[name] = getattr(model, name) if traced else np.array(getattr(model, name))
        if traced:
            leaves[name] = leaves[name].at[entry].set(value)
        else:
            leaves[name][entry] = value

    for target, value in sorted(zip(targets, values, strict=True), key=lambda pair: pair[0].leaf != "mass"):
        if target.leaf == "mass":
            ((row,),) = target.entries
            xp = jnp if traced else np
            mass = xp.asarray(model.mass)[row]
            ratio = value / xp.where(mass > 0.0, mass, 1.0)
            for name in ("first_moment", "inertia"):
                put(name, row, xp.asarray(getattr(model, name))[row] * ratio)
        for entry in target.entries:
            put(target.leaf, entry, value)
    if not leaves:
        return model
    return dataclasses.replace(
        model,
        structural=model.structural or any(name.endswith("loss_factor") for name in leaves),
        deviates=model.deviates or any(name in DEVIATIONS for name in leaves),
        **(leaves if traced else jax.device_put(leaves)),
    )
