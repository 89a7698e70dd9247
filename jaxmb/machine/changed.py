"""Machines derived from another: with more coordinates locked, or with the numbers of a model written back."""

from collections.abc import Sequence

import jax
import numpy as np
from jaxtyping import Array

from jaxmb.io.validation import check_known
from jaxmb.machine.beam import VirtualSpring
from jaxmb.machine.build import Model, tree_model
from jaxmb.machine.elements import TERMS, Fractional, FurtherFriction, Rayleigh
from jaxmb.machine.families import OF_BODIES, keys_of
from jaxmb.machine.schema import LOCKED_BOTH, Coordinate, Machine


def with_locked(machine: Machine, names: Sequence[str]) -> Machine:
    """The machine with the named coordinates locked as well.

    Raises:
        ValueError: a name is not a coordinate, or is one whose motor is not locked.
    """
    check_known("locked coordinate", names, machine.coordinates)

    def lock(coordinate: Coordinate) -> Coordinate:
        shaft, change = coordinate.shaft, dict[str, object]()
        if coordinate.motor is not None and shaft is not None:
            braked = shaft.locked or shaft.name in names
            if coordinate.name in names and not braked:
                raise ValueError(
                    f"locked coordinate '{coordinate.name}': its motor '{shaft.name}' is not locked, {LOCKED_BOTH}"
                )
            change["motor"] = coordinate.motor.model_copy(update={"locked": braked})
        return coordinate.model_copy(update=change | {"locked": coordinate.locked or coordinate.name in names})

    body = tuple(b.model_copy(update={"joint": tuple(lock(c) for c in b.joint)}) for b in machine.body)
    return machine.model_copy(update={"body": body})


def machine_of(machine: Machine, model: Model) -> Machine:
    """The machine with the numbers of a model that was built from it.

    Stiffness and its slope, damping, rotor inertia, all friction and offset of coordinates, stiffness and damping of
    springs, deviations of the geometry, inertia, damping and friction of transmissions, moduli, density and loss factor
    of beams, compliance, exponent of the guide and play of virtual springs, Rayleigh and fractional damping, mass,
    centre of mass and inertia of bodies and payloads are taken from the model;
    unchanged values keep the form in which they were written.
    """
    start, model = (jax.tree.map(np.asarray, m) for m in (tree_model(machine), model))
    elastic: dict[str, dict[str, object]] = {
        name: {
            **_numbers(model, i, "coordinate"),
            **_numbers(model, i, "joint"),
            "stiffness_slope": float(model.stiffness_slope[i]) if model.load_dependent[i] else None,
            "further_friction": _further_friction(model, i),
        }
        for i, name in enumerate(model.coordinates)
    }
    for joint, motor, shaft in machine.drives:
        values = elastic[shaft.name]
        of_motor = {key: values[key] for key in ("stiffness", "damping", "friction", "offset")}
        of_motor["inertia"] = values["rotor_inertia"]
        elastic[joint.name]["motor"] = motor.model_copy(update=of_motor)
    rigid: dict[str, dict[str, object]] = {}
    for i, name in enumerate(model.masses):
        rigid[name] = _numbers(model, i, "body")
        pairs = [(getattr(start, leaf)[i], getattr(model, leaf)[i]) for leaf in OF_BODIES]
        if any(bool(np.any(np.asarray(a) != np.asarray(b))) for a, b in pairs):
            mass, moment, inertia = (np.asarray(b) for _, b in pairs)
            center, about_center = central_inertia(float(mass), moment, inertia)
            rigid[name] |= {
                "mass": float(mass),
                "center_of_mass": tuple(center.tolist()),
                "inertia_products": None,
                "inertia_tensor": _symmetric_rows(about_center),
            }
    of_frame = {name: _numbers(model, i, "frame") for i, name in enumerate(model.frames)}
    law = Fractional.model_construct(order=float(model.fractional_order), time=float(model.fractional_time))
    return machine.model_copy(update={
        **{key: tuple(part.model_copy(update=_numbers(model, i, key)) for i, part in enumerate(parts))
           for key, parts in machine.elements.items() if keys_of(key)},
        "body": tuple(
            b.model_copy(
                update={"joint": tuple(c.model_copy(update=elastic[c.name]) for c in b.joint)}
                | {"frame_deviation": of_frame[b.name]["deviation"]}
                | rigid[b.name]
            )
            for b in machine.body
        ),
        "frame": tuple(f.model_copy(update=of_frame[f.name]) for f in machine.frame),
        "payload": tuple(p.model_copy(update=rigid[p.name]) for p in machine.payload),
        "spring": tuple(
            s.model_copy(
                update=_numbers(model, i, "spring")
                | ({"free_length": float(model.spring_free_length[i])} if s.type == "length" else {})
            )
            for i, s in enumerate(machine.spring)
        ),
        "virtual_spring": tuple(_virtual_spring(s, i, start, model) for i, s in enumerate(machine.virtual_spring)),
        "rayleigh": Rayleigh(mass=float(model.rayleigh_mass), stiffness=float(model.rayleigh_stiffness)),
        "fractional": law if model.fractional else None,
    })  # fmt: skip


def central_inertia(mass: float, first_moment: np.ndarray, inertia: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Centre of mass and inertia about it, from the standard form: the inverse of `standard_inertia`."""
    c = first_moment / mass if mass else np.zeros(3)
    return c, inertia - mass * (c @ c * np.eye(3) - np.outer(c, c))


def _numbers(model: Model, i: int, owner: str) -> dict[str, object]:
    """Values of the i-th owner by key of the machine file."""
    return {key: _row(getattr(model, leaf)[i]) for key, leaf in keys_of(owner).items()}


def _row(values: np.ndarray | Array) -> float | tuple[float, ...]:
    """A number, or the numbers of a vector."""
    plain = np.asarray(values).tolist()
    return tuple(plain) if isinstance(plain, list) else plain


def _virtual_spring(spring: VirtualSpring, i: int, start: Model, model: Model) -> VirtualSpring:
    """A virtual spring with the numbers of the i-th one of a model, which differed from `start`."""
    change = _numbers(model, i, "virtual spring")
    if not np.array_equal(start.compliance[i], model.compliance[i]):
        change |= {"compliance": _symmetric_rows(model.compliance[i]), "diagonal": None, "beam": None}
    if spring.guide is not None:
        change["guide"] = spring.guide.model_copy(update={"exponent": float(model.guide_exponent[i])})
    if spring.play is not None:
        change |= {"play": _row(model.play[i]), "play_load": _row(model.play_load[i])}
    return spring.model_copy(update=change)


def _further_friction(model: Model, i: int) -> FurtherFriction | None:
    """Further friction of one coordinate; None without any."""
    terms = model.further_friction[i]
    if not terms:
        return None
    values = {term: float(model.friction_terms[i][TERMS.index(term)]) for term in terms}
    if "stribeck" in terms:
        values["stribeck_speed"] = float(model.stribeck_speed[i])
    if "damping_slope" in terms:
        values["temperature"] = float(model.friction_temperature[i])
    return FurtherFriction.model_validate(values)


def _symmetric_rows(matrix: Array | np.ndarray) -> tuple[tuple[float, ...], ...]:
    """Rows of the symmetric part of a matrix."""
    return tuple(tuple(row) for row in np.asarray(0.5 * (matrix + matrix.T)).tolist())
