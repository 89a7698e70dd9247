"""Beam elements: their stiffness, and the cross-sections at which their mass is integrated.

The start of an element moves with its parent node; its elastic coordinates (t, r) are the small translation and
rotation of its end, in the axes of its start. Bending is interpolated by Hermite polynomials, tension and torsion
linearly.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.spatial import pseudo_inertia, rotation_by, transform

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(4)
PLACES, WEIGHTS = 0.5 + 0.5 * _NODES, 0.5 * _WEIGHTS
"""Gauss points along an element, 0 to 1, and weights: exact for products of two cubic polynomials."""


MESH = 1e-3
"""Relative error of a natural frequency above which a mesh is coarse."""


def element_stiffness(model: Model) -> Float[Array, "w 6 6"]:
    """Stiffness matrix of each element at its end, its start being clamped: N/m, N/rad, Nm/rad.

    Source: Rognant et al. 2010, eq. 9-12; with shear Przemieniecki, Theory of Matrix Structural Analysis, section 5.6.
    """

    def of_beam(length: Array, tension: Array, torsion: Array, bending: Array, shear: Array) -> Array:
        rows = jnp.zeros((6, 6)).at[0, 0].set(tension / length).at[3, 3].set(torsion / length)
        for along, about, sign, b, phi in ((1, 5, -1.0, bending[1], shear[0]), (2, 4, 1.0, bending[0], shear[1])):
            unit = b / (length**3 * (1.0 + phi))
            rows = rows.at[along, along].set(12.0 * unit).at[about, about].set((4.0 + phi) * length**2 * unit)
            coupling = sign * 6.0 * length * unit
            rows = rows.at[along, about].set(coupling).at[about, along].set(coupling)
        return rows

    tension = model.young_modulus * model.beam_area
    torsion = model.shear_modulus * model.torsion_constant
    bending = model.young_modulus[:, None] * model.beam_second_moment
    return jax.vmap(of_beam)(model.beam_length, tension, torsion, bending, _shear_ratios(model))[model.element_beam]


def section_inertias(model: Model) -> Float[Array, "w 4 4 4"]:
    """Pseudo-inertia of each section of each element [element, section].

    Mass and rotary inertia about the beam's axis; about the transverse axes as well in Timoshenko's theory.
    """
    per_length = model.density[:, None] * model.beam_second_moment
    transverse = per_length * (np.array(model.beam_theory) == "timoshenko")[:, None]
    section_inertia = jnp.concatenate([per_length.sum(axis=1, keepdims=True), transverse], axis=1)

    def of_section(length: Array, mass: Array, inertia: Array, weight: Array) -> Array:
        return weight * length * pseudo_inertia(mass, jnp.zeros(3), jnp.diag(inertia))

    each = jax.vmap(jax.vmap(of_section, in_axes=(None, None, None, 0)), in_axes=(0, 0, 0, None))(
        model.beam_length, model.density * model.beam_area, section_inertia, jnp.asarray(WEIGHTS)
    )
    return each[model.element_beam]


def section_poses(
    model: Model, deflection: Float[Array, "w 6"], places: np.ndarray = PLACES
) -> Float[Array, "w s 4 4"]:
    """Pose of each section [element, section] in the axes of its element's start, at positions from 0 to 1 along it, by
    default the Gauss points."""

    def of_section(place: Array, length: Array, shear: Array, by: Array) -> Array:
        displacement = _displacement(place, length, shear) @ by
        return transform(rotation_by(displacement[3:]), displacement[:3].at[0].add(place * length))

    beam = model.element_beam
    of_all = jax.vmap(jax.vmap(of_section, in_axes=(0, None, None, None)), in_axes=(None, 0, 0, 0))
    return of_all(jnp.asarray(places), model.beam_length[beam], _shear_ratios(model)[beam], deflection)


def element_centers(model: Model, deflection: Float[Array, "w 6"]) -> Float[Array, "w 3"]:
    """Centre of mass of each element in the axes of its start, m."""
    beam = model.element_beam
    fields = jax.vmap(jax.vmap(_displacement, in_axes=(0, None, None)), in_axes=(None, 0, 0))(
        jnp.asarray(PLACES), model.beam_length, _shear_ratios(model)
    )
    mean = jnp.einsum("g,cgij->cij", jnp.asarray(WEIGHTS), fields[:, :, :3])
    displacement = jnp.einsum("wij,wj->wi", mean[beam], deflection)
    return displacement.at[:, 0].add(0.5 * model.beam_length[beam])


def mesh_errors(model: Model, highest_hz: float) -> tuple[Float[np.ndarray, "c"], Float[np.ndarray, "c"]]:
    """Relative discretization error of each beam in a natural frequency at the highest frequency: of bending (cubic),
    and the largest of tension, torsion and (Timoshenko's theory) shear (linear).

    The frequency of a wave of wave number k is too high by (k h)^4 / 1440 with cubic, and by (k h)^2 / 24 with linear
    elements of length h. Modes in which loads act on the beam's ends only have smaller errors.

    Source: Strang and Fix, An Analysis of the Finite Element Method, section 6.3.
    """
    h, omega = np.asarray(model.beam_length), 2.0 * np.pi * highest_hz
    young, shear, area, moments, torsion, inverse = (
        np.asarray(part)
        for part in (model.young_modulus, model.shear_modulus, model.beam_area, model.beam_second_moment,
                     model.torsion_constant, model.shear_flexibility)
    )  # fmt: skip
    density = np.asarray(model.density)
    bending = density * area * omega**2 * h**4 / (young * moments.min(axis=1)) / 1440.0
    slowness = np.max([density / young, density * moments.sum(axis=1) / (shear * torsion),
                       density / shear * inverse.max(axis=1)], axis=0)  # fmt: skip
    return bending, slowness * (omega * h) ** 2 / 24.0


def mesh_warnings(model: Model, highest_hz: float) -> tuple[str, ...]:
    """Warning about beams with too few elements for frequencies up to the highest; empty where all have enough."""
    cubic, linear = mesh_errors(model, highest_hz)
    factor = np.maximum((cubic / MESH) ** 0.25, (linear / MESH) ** 0.5)
    coarse = [i for i in np.argsort(-factor) if factor[i] > 1.0]
    if not coarse:
        return ()
    worst = coarse[0]
    required = [f"{model.beams[i]} = {math.ceil(model.beam_elements[i] * factor[i])}" for i in coarse[:5]]
    return (
        f"the mesh of {len(coarse)} of {len(model.beams)} beams is coarse for {highest_hz:.3g} Hz: natural frequencies"
        f" of '{model.beams[worst]}' with {model.beam_elements[worst]} elements are too high by up to"
        f" {100.0 * max(cubic[worst], linear[worst]):.2g} %; for 0.1 % set elements: {', '.join(required)}"
        + (", ..." if len(coarse) > 5 else ""),
    )


def _displacement(x: Array, length: Array, shear: Array) -> Float[Array, "6 6"]:
    """Translation and rotation of the section at x, 0 to 1, of an element for unit displacements of its end.

    Source: Rognant et al. 2010, eq. 6-8; with shear Przemieniecki, section 11.6.
    """
    rows = jnp.zeros((6, 6)).at[0, 0].set(x).at[3, 3].set(x)
    for along, about, sign, phi in ((1, 5, 1.0, shear[0]), (2, 4, -1.0, shear[1])):
        whole = 1.0 + phi
        rows = rows.at[along, along].set((3.0 * x**2 - 2.0 * x**3 + phi * x) / whole)
        rows = rows.at[along, about].set(sign * length * (x**3 - x**2 + 0.5 * phi * (x**2 - x)) / whole)
        rows = rows.at[about, along].set(sign * 6.0 * (x - x**2) / (length * whole))
        rows = rows.at[about, about].set((3.0 * x**2 - 2.0 * x + phi * x) / whole)
    return rows


def _shear_ratios(model: Model) -> Float[Array, "c 2"]:
    """Phi = 12 E I / (k G A l^2) of bending along y and along z; 0 in Euler-Bernoulli's theory."""
    bending = 12.0 * model.young_modulus[:, None] * model.beam_second_moment[:, ::-1]
    shear = (model.shear_modulus * model.beam_area * model.beam_length**2)[:, None]
    # The ratio of Euler-Bernoulli's theory must be 0 also where precomputed views set the modulus to 0.
    shears = model.shear_flexibility > 0.0
    return jnp.where(shears, model.shear_flexibility * bending / jnp.where(shears, shear, 1.0), 0.0)
