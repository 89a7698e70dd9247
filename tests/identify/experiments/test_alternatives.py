"""Corrected columns of tables of coordinates."""

import numpy as np

from jaxmb.identify.experiments.components import coordinate_alternatives
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model


def test_columns_of_coordinates_are_in_another_unit_reversed_or_exchanged():
    """Of two slides and a hinge that move, and a hinge at rest."""
    joints = [
        {"name": name, "type": kind} for name, kind in zip("xyab", ("prismatic",) * 2 + ("revolute",) * 2, strict=True)
    ]
    model = build_model(Machine.model_validate({"name": "m", "body": [{"name": "b", "mass": 1.0, "joint": joints}]}))
    q = np.array([[0.1, 0.5, 0.2, 0.4], [0.3, 0.6, -0.7, 0.4]])
    found = dict(coordinate_alternatives(model, q))
    assert set(found) == {
        "joint angles in degrees", "travel of joints in mm", "x in mm", "y in mm", "the sign of x", "the sign of y",
        "the sign of a", "exchanged values of x and y", "joint values shifted down by one line",
        "joint values shifted up by one line", "the sum of y and x in place of y",
        "the difference of y and x in place of y",
        *(f"a zero of a {degrees} deg from the stated one" for degrees in ("+90", "-90", "+180")),
    }  # fmt: skip
    at = "a zero of a -90 deg from the stated one"
    np.testing.assert_allclose(found[at], q - [0.0, 0.0, 0.5 * np.pi, 0.0])
    np.testing.assert_allclose(found["travel of joints in mm"], q * [1e-3, 1e-3, 1.0, 1.0])
    np.testing.assert_allclose(found["y in mm"], q * [1.0, 1e-3, 1.0, 1.0])
    np.testing.assert_allclose(found["joint angles in degrees"], q * [1.0, 1.0, np.pi / 180.0, np.pi / 180.0])
    np.testing.assert_allclose(found["exchanged values of x and y"], q[:, [1, 0, 2, 3]])
    np.testing.assert_allclose(found["joint values shifted down by one line"][0], q[1])
    np.testing.assert_allclose(found["the sum of y and x in place of y"], q - q[:, [0]] * [0.0, 1.0, 0.0, 0.0])
