"""Named parameters of a model, their entries in its arrays, and their units."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.machine.elements import TERMS
from jaxmb.mechanics.kinematics import ELASTIC_AXES

Vector = TypeVar("Vector", np.ndarray, Array)

NOT_NEGATIVE = (
    "stiffness", "damping", "loss_factor", "rotor_inertia", "free_length", "mass", "gain", "force_gain",
    "young_modulus", "shear_modulus", "density", "rayleigh", "fractional",
    "stiffness_slope", "friction", "stribeck_speed",
)  # fmt: skip
"""Families of non-negative parameters."""
OF_CHANNELS = ("gain", "force_gain", "delay")
"""Families of parameters of test channels, not of the machine."""
ORDER = "fractional.order"
"""Order of fractional damping, at most 1."""
_AXES = "xyz"
_FURTHER = {
    "stribeck": ("N", "N m"), "stribeck_speed": ("m/s", "rad/s"), "cubic_damping": ("N s^3/m^3", "N m s^3/rad^3"),
    "load_friction": ("1", "1"), "damping_slope": ("N s/(m K)", "N m s/(rad K)"),
}  # fmt: skip
"""Units for prismatic and for revolute coordinates."""
_TENSOR = {"xx": (0, 0), "yy": (1, 1), "zz": (2, 2), "xy": (0, 1), "xz": (0, 2), "yz": (1, 2)}


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
    (x.y ... rz.rz, the first not after the second in x, y, z, rx, ry, rz) of virtual springs; rayleigh.mass and
    rayleigh.stiffness; fractional.order and fractional.time of a machine with fractional damping; stiffness_slope.* of
    coordinates with load-dependent stiffness; stribeck.*, cubic_damping.*, load_friction.*, damping_slope.* and
    stribeck_speed.* of coordinates with these friction terms.
    """
    found: dict[str, ParameterSpec] = {}
    driven, shafts = ({pair[k] for pair in model.motors} for k in (0, 1))
    joint_of = {shaft: joint for joint, shaft in model.motors if model.brakes_release}
    moving = [(i, name) for i, name in enumerate(model.coordinates) if not model.locked[joint_of.get(i, i)]]
    for family, without in (("stiffness", ()), ("damping", ()), ("loss_factor", shafts)):
        for i, name in moving:
            if i not in without:
                found[f"{family}.{name}"] = ParameterSpec(family, ((i,),))
        for i, name in enumerate(model.springs):
            found[f"{family}.{name}"] = ParameterSpec(f"spring_{family}", ((i,),))
    for i, name in moving:
        if model.load_dependent[i]:
            found[f"stiffness_slope.{name}"] = ParameterSpec("stiffness_slope", ((i,),))
    for i, name in moving:
        if i not in driven:
            found[f"rotor_inertia.{name}"] = ParameterSpec("rotor_inertia", ((i,),))
    for family in ("friction", "offset"):
        for i, name in moving:
            found[f"{family}.{name}"] = ParameterSpec(family, ((i,),))
    for i, name in moving:
        for term in model.further_friction[i]:
            found[f"{term}.{name}"] = ParameterSpec("friction_terms", ((i, TERMS.index(term)),))
        if "stribeck" in model.further_friction[i]:
            found[f"stribeck_speed.{name}"] = ParameterSpec("stribeck_speed", ((i,),))
    for family, of in (("rotor_inertia", "inertia"), ("damping", "damping"), ("friction", "friction")):
        for i, name in enumerate(model.transmissions):
            found[f"{family}.{name}"] = ParameterSpec(f"transmission_{of}", ((i,),))
    for i, name in enumerate(model.springs):
        if model.spring_type[i] == "length":
            found[f"free_length.{name}"] = ParameterSpec("spring_free_length", ((i,),))
    for i, name in enumerate(model.beams):
        for family in ("young_modulus", "shear_modulus", "density"):
            found[f"{family}.{name}"] = ParameterSpec(family, ((i,),))
        found[f"loss_factor.{name}"] = ParameterSpec("beam_loss_factor", ((i,),))
    for i, name in enumerate(model.masses):
        found[f"mass.{name}"] = ParameterSpec("mass", ((i,),))
    for i, name in enumerate(model.masses):
        for k, axis in enumerate(_AXES):
            found[f"first_moment.{name}.{axis}"] = ParameterSpec("first_moment", ((i, k),))
        for axes, (a, b) in _TENSOR.items():
            found[f"inertia.{name}.{axes}"] = ParameterSpec(
                "inertia", ((i, a, b), (i, b, a)) if a != b else ((i, a, b),)
            )
    for i, name in enumerate(model.virtual_springs):
        for a, b in itertools.combinations_with_replacement(range(6), 2):
            entries = ((i, a, b), (i, b, a)) if a != b else ((i, a, b),)
            found[f"compliance.{name}.{ELASTIC_AXES[a]}.{ELASTIC_AXES[b]}"] = ParameterSpec("compliance", entries)
    for of in ("mass", "stiffness"):
        found[f"rayleigh.{of}"] = ParameterSpec(f"rayleigh_{of}", ((),))
    for of in ("order", "time") if model.fractional else ():
        found[f"fractional.{of}"] = ParameterSpec(f"fractional_{of}", ((),))
    return found


def parameters(model: Model) -> dict[str, float]:
    """Value of every parameter of the model by name, in SI units (see `places` for the names)."""
    leaves = {spec.leaf: np.asarray(getattr(model, spec.leaf)) for spec in parameter_table(model).values()}
    return {name: float(leaves[spec.leaf][spec.entries[0]]) for name, spec in parameter_table(model).items()}


def set_parameters(model: Model, values: Mapping[str, float | Float[Array, ""]]) -> Model:
    """The model with the named parameters at the given values (numbers or traced scalars), SI units.

    A mass scales its first moment and inertia unless these are given too, so that the centre of mass and the mass
    distribution are unchanged. Torque is linear in all ten parameters either way.

    Raises:
        ValueError: a parameter is unknown, one of the families in `NOT_NEGATIVE` is negative, or the order of
            fractional damping exceeds 1.
    """
    known = parameter_table(model)
    for name, value in values.items():
        if name not in known:
            raise ValueError(known_name("parameter", name, known))
        if not isinstance(value, Tracer) and name.split(".")[0] in NOT_NEGATIVE and not float(value) >= 0.0:
            raise ValueError(f"parameter '{name}' is {float(value):g}, expected 0 or more")
        if not isinstance(value, Tracer) and name == ORDER and float(value) > 1.0:
            raise ValueError(f"parameter '{name}' is {float(value):g}, expected 1 or less")
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
    if family == "compliance":
        return ("m/N", "rad/N", "rad/(N m)")[sum(axis.startswith("r") for axis in axes)]
    if family in ("rayleigh", "fractional"):
        return {"mass": "1/s", "stiffness": "s", "order": "1", "time": "s"}[item]
    if family == "stiffness_slope":
        return "1/(N m)" if model.revolute[model.coordinates.index(item)] else "1/N"
    if family in (*TERMS, "stribeck_speed"):
        return _FURTHER[family][model.revolute[model.coordinates.index(item)]]
    if family in ("stiffness", "damping", "rotor_inertia", "friction", "offset"):
        if item in model.coordinates:
            rotation = model.revolute[model.coordinates.index(item)]
        elif item in model.transmissions:  # referred to its first coordinate
            rates = np.asarray(model.transmission_rate[model.transmissions.index(item)])
            rotation = model.revolute[int(np.flatnonzero(rates)[0])]
        else:
            rotation = model.spring_type[model.springs.index(item)] == "rotation"
        units = {
            "stiffness": ("N/m", "N m/rad"),
            "damping": ("N s/m", "N m s/rad"),
            "rotor_inertia": ("kg", "kg m^2"),
            "friction": ("N", "N m"),
            "offset": ("N", "N m"),
        }
        return units[family][rotation]
    return {
        "loss_factor": "1", "free_length": "m", "mass": "kg", "first_moment": "kg m", "inertia": "kg m^2",
        "gain": "1", "force_gain": "1", "drive_gain": "N m", "delay": "s",
        "young_modulus": "Pa", "shear_modulus": "Pa", "density": "kg/m^3",
    }[family]  # fmt: skip


def assigned(model: Model, targets: Sequence[ParameterSpec], values: Sequence[float | Array]) -> Model:
    """The model with values assigned to the targets, SI units; on the host unless something is traced."""
    traced = any(isinstance(x, Tracer) for x in (*values, *jax.tree.leaves(model)))
    leaves: dict[str, Any] = {}

    def changed(name: str) -> Any:
        if name not in leaves:
            leaves[name] = getattr(model, name) if traced else np.array(getattr(model, name))
        return leaves[name]

    order = sorted(zip(targets, values, strict=True), key=lambda pair: pair[0].leaf != "mass")
    for target, value in order:
        if target.leaf == "mass":
            ((row,),) = target.entries
            mass = model.mass[row] if traced else float(np.asarray(model.mass)[row])
            ratio = value / (jnp.where(mass > 0.0, mass, 1.0) if traced else mass if mass > 0.0 else 1.0)
            for name in ("first_moment", "inertia"):
                moments = changed(name)
                if traced:
                    leaves[name] = moments.at[row].multiply(ratio)
                else:
                    moments[row] *= ratio
        for entry in target.entries:
            leaf = changed(target.leaf)
            if traced:
                leaves[target.leaf] = leaf.at[entry].set(value)
            else:
                leaf[entry] = value
    names = list(leaves)
    if not names:
        return model
    new = [leaves[name] if traced else jax.device_put(leaves[name]) for name in names]
    changed_model = eqx.tree_at(lambda m: [getattr(m, name) for name in names], model, new)
    if any(name.endswith("loss_factor") for name in names):
        return dataclasses.replace(changed_model, structural=True)
    return changed_model
