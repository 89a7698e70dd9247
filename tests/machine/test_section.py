"""Sections from their dimensions, and sections that cannot be."""

import re

import numpy as np
import pytest
from pydantic import ValidationError

from jaxmb.machine.beam import FlexibleBeam

ALUMINIUM = {"name": "b", "length": 1.0, "young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0}
POISSON = 7e10 / 5.2e10 - 1.0
NUMBERS = {"area": 4e-4, "second_moment_y": 2e-8, "second_moment_z": 1e-8, "torsion_constant": 2e-8}


def beam(**changes):
    return FlexibleBeam.model_validate(ALUMINIUM | changes)


def by_cells(inside, width, height, count=800):
    """Area and second moments of a section by midpoints of cells."""
    y, z = ((np.arange(count) + 0.5) / count * side - side / 2 for side in (width, height))
    cell = width * height / count**2 * inside(y[:, None], z[None, :])
    return cell.sum(), (cell * z[None, :] ** 2).sum(), (cell * y[:, None] ** 2).sum()


@pytest.mark.parametrize(
    ("section", "inside", "sides"),
    [
        ({"tube": [0.06, 0.05]}, lambda y, z: (np.hypot(y, z) < 0.03) & (np.hypot(y, z) > 0.025), (0.06, 0.06)),
        ({"box": [0.04, 0.08]}, lambda y, z: y + z < 1.0, (0.04, 0.08)),
        ({"box": [0.04, 0.08, 0.005]}, lambda y, z: (abs(y) > 0.015) | (abs(z) > 0.035), (0.04, 0.08)),
    ],
)
def test_area_and_second_moments(section, inside, sides):
    found = beam(section=section)
    numbers = (found.area, found.second_moment_y, found.second_moment_z)
    np.testing.assert_allclose(numbers, by_cells(inside, *sides), rtol=2e-3)


def test_torsion():
    """Rectangles by the table of Timoshenko and Goodier, a thin box by Bredt, a tube by its polar moment."""
    assert beam(section={"box": [0.02, 0.02]}).torsion_constant == pytest.approx(0.1406 * 0.02**4, rel=1e-3)
    assert beam(section={"box": [0.02, 0.04]}).torsion_constant == pytest.approx(0.229 * 0.04 * 0.02**3, rel=2e-3)
    thin = beam(section={"box": [0.05, 0.1, 1e-4]}).torsion_constant
    assert thin == pytest.approx(2.0 * 1e-4 * (0.05 * 0.1) ** 2 / 0.15, rel=5e-3)
    tube = beam(section={"tube": [0.06, 0.05]})
    assert tube.torsion_constant == pytest.approx(tube.second_moment_y + tube.second_moment_z, rel=1e-12)


def test_shear_factors():
    """Cowper's closed forms of a rod, a thin tube, a thin square box and a full rectangle; given ones stay."""
    rod, tube, box = (
        beam(section=s) for s in ({"tube": [0.06, 0]}, {"tube": [0.06, 0.0599]}, {"box": [0.1, 0.1, 1e-4]})
    )
    v = POISSON
    assert rod.shear_factor_y == pytest.approx(6.0 * (1.0 + v) / (7.0 + 6.0 * v), rel=1e-12)
    assert tube.shear_factor_z == pytest.approx(2.0 * (1.0 + v) / (4.0 + 3.0 * v), rel=1e-3)
    assert box.shear_factor_y == pytest.approx(20.0 * (1.0 + v) / (48.0 + 39.0 * v), rel=1e-3)
    full = beam(section={"box": [0.04, 0.08]})
    assert full.shear_factor_y == full.shear_factor_z == pytest.approx(10.0 * (1.0 + v) / (12.0 + 11.0 * v), rel=1e-12)
    assert beam(section={"tube": [0.06, 0]}, shear_factor_y=0.7).shear_factor_y == 0.7


def test_shear_factors_of_a_flat_box():
    """By the energy of the shear flow in walls of unit thickness, for Poisson's ratio 0."""

    def by_energy(across, along):
        flange, web = np.linspace(0.0, across / 2, 1001), np.linspace(-along / 2, along / 2, 1001)
        moments = along / 2 * flange, along * across / 4 + (along**2 / 4 - web**2) / 2
        energy = 4 * np.trapezoid(moments[0] ** 2, flange) + 2 * np.trapezoid(moments[1] ** 2, web)
        return (along**3 / 6 + across * along**2 / 2) ** 2 / (2 * (across + along) * energy)

    flat = beam(section={"box": [0.04, 0.12, 1e-5]}, shear_modulus=3.5e10)
    assert flat.shear_factor_y == pytest.approx(by_energy(0.12, 0.04), rel=0.02)
    assert flat.shear_factor_z == pytest.approx(by_energy(0.04, 0.12), rel=0.02)
    assert flat.shear_factor_z > 4.0 * flat.shear_factor_y


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"young_modulus": 70.0}, "young_modulus is 70 Pa, expected at least 1e+06"),
        ({"shear_modulus": 2.6e4}, "shear_modulus is 26000 Pa, expected at least 3.3e+05"),
        ({"section": {"tube": [0.06, 0.05]}}, "gives section and area, expected one of them"),
    ],
)
def test_beams_that_cannot_be(changes, message):
    with pytest.raises(ValidationError, match=re.escape(message)):
        beam(**NUMBERS | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"area": 4.0}, "sqrt(second_moment_y * second_moment_z) is 1.41e-08 m^4, expected at least 1.27 m^4"),
        (
            {"second_moment_y": 2e4, "second_moment_z": 1e4},
            "the radius of gyration of its section, sqrt(second moment / area), is 7.07e+03 m",
        ),
        ({"young_modulus": 70e6}, "young_modulus is 7e+07 Pa, materials have 5e+08 (soft plastics) to 1.3e+12 Pa"),
        ({"young_modulus": 200e12}, "young_modulus is 2e+14 Pa, materials have 5e+08 (soft plastics) to 1.3e+12 Pa"),
        ({"shear_modulus": 26e6}, "shear_modulus is 2.6e+07 Pa, materials have 1.7e+08"),
        ({"torsion_constant": 4e-8}, "torsion_constant is 4e-08 m^4, expected at most the sum of the second moments"),
    ],
)
def test_sections_that_cannot_be(changes, message):
    with pytest.warns(UserWarning, match=re.escape(f"beam 'b': {message}")):
        beam(**NUMBERS | changes)


@pytest.mark.parametrize(
    "section",
    [{"tube": [0.05, 0.06]}, {"tube": [0.05]}, {"box": [0.04, 0.08, 0.02]}, {"box": ["4 cm", 0.1]}, {"rod": [1]}, 3],
)
def test_sections_that_are_none(section):
    with pytest.raises(ValidationError, match=r"section .*expected \{ tube = \[outer, inner\] \}"):
        beam(section=section)


def test_the_least_second_moments_are_those_of_an_ellipse():
    """A full rod is accepted with numbers of three digits, and a strip of any slenderness."""
    rod = beam(section={"tube": [0.05, 0]})
    printed = {k: float(f"{getattr(rod, k):.3g}") for k in NUMBERS}
    assert beam(**printed).area == printed["area"]
    assert beam(section={"box": [0.2, 1e-4]}).area == pytest.approx(2e-5)
