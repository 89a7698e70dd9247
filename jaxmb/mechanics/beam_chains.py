"""Beams approximated by chains of rigid bodies, for programs without beams."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Array, Float
from scipy.linalg import eigh

from jaxmb.machine.beam import FlexibleBeam
from jaxmb.machine.build import Model
from jaxmb.machine.elements import origin_matrix, origin_table, pose_matrix
from jaxmb.machine.schema import Body, Coordinate, Machine
from jaxmb.machine.values import GROUND, Origin
from jaxmb.mechanics.tangent import linearize

SEGMENTS = 8
"""Least number of segments of a beam."""
ROUNDING = 1e-14
"""Ratio of two eigenvalues below which the smaller one is a rounding error of 0."""


def natural_frequencies(model: Model, q: Float[Array, "n"]) -> Float[np.ndarray, "m"]:
    """Undamped natural frequencies above 0 at a posture, ascending, rad/s."""
    tangent = linearize(model, q)
    squares = eigh(np.asarray(tangent.stiffness), np.asarray(tangent.mass), eigvals_only=True)
    return np.sqrt(squares[squares > ROUNDING * squares[-1]])


def with_chains(machine: Machine, omega: float) -> Machine:
    """The machine with each beam as a chain of rigid segments, with hinges for bending and torsion amid each segment.

    The bodies at the ends of elements have the names of these ends. Tension and shear are left out; structural damping
    becomes viscous, with the same damping force at one frequency. Errors of bending fall with the square of the number
    of segments.

    Args:
        machine: with beams.
        omega: frequency at which structural damping is kept, rad/s.
    """
    bodies = (*machine.body, *(body for beam in machine.beam for body in _chain(beam, omega)))
    return machine.model_copy(update={"body": bodies, "beam": ()})


def _chain(beam: FlexibleBeam, omega: float) -> Iterator[Body]:
    each = math.ceil(SEGMENTS / beam.elements)
    length = beam.length / (each * beam.elements)
    hinges = {
        "x": ((1.0, 0.0, 0.0), beam.shear_modulus * beam.torsion_constant / length),
        "y": ((0.0, 1.0, 0.0), beam.young_modulus * beam.second_moment_y / length),
        "z": ((0.0, 0.0, 1.0), beam.young_modulus * beam.second_moment_z / length),
    }
    half = pose_matrix((0.5 * length, 0.0, 0.0))
    parent, start, viscous = beam.body, origin_matrix(beam.origin), beam.loss_factor / omega
    if beam.body != GROUND and beam.density:
        yield Body(name=f"{beam.name}/root", parent=parent, origin=beam.origin, **_rod(beam, 0.5 * length))
    for k in range(1, each * beam.elements + 1):
        name, end = f"{beam.name}/segment{k}", beam.ends[k // each - 1] if k % each == 0 else ""
        joint = tuple(
            Coordinate(name=f"{name}/{label}", axis=axis, stiffness=value, damping=viscous * value)
            for label, (axis, value) in hinges.items()
        )
        place = Origin.model_validate(origin_table(start @ half))
        extent = 0.5 * length if k == each * beam.elements else length
        yield Body(name=name, parent=parent, origin=place, joint=joint, **_rod(beam, extent))
        parent, start = name, half
        if end:
            yield Body(name=end, parent=name, origin=Origin(xyz=(0.5 * length, 0.0, 0.0)))
            parent, start = end, np.eye(4)


def _rod(beam: FlexibleBeam, length: float) -> dict[str, Any]:
    """Mass, centre of mass and inertia of a piece of a beam that begins at the origin."""
    mass, per_length = beam.density * beam.area * length, beam.density * length
    if not mass:
        return {}
    own = np.array([beam.second_moment_y + beam.second_moment_z, beam.second_moment_y, beam.second_moment_z])
    moments = per_length * own + mass * length**2 / 12.0 * np.array([0.0, 1.0, 1.0])
    tensor = tuple(tuple(row) for row in np.diag(moments).tolist())
    return {"mass": mass, "center_of_mass": (0.5 * length, 0.0, 0.0), "inertia_tensor": tensor}
