"""Accelerometers that feel gravity, beside a pendulum whose motion is integrated and whose readings are written out."""

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import jaxmb
from jaxmb.response.frf import Sensor

G, LENGTH, MASS, CENTER, INERTIA, STIFFNESS, DAMPING, REST = 9.81, 0.9, 6.0, 0.4, 0.3, 500.0, 12.0, 0.5
MODEL = jaxmb.build_model(
    jaxmb.Machine.model_validate({
        "name": "pendulum",
        "body": [
            {"name": "rod", "joint": [{"name": "q", "axis": [0, 1, 0], "stiffness": STIFFNESS, "damping": DAMPING}],
             "mass": MASS, "center_of_mass": [CENTER, 0.0, 0.0],
             "inertia_products": {"xx": INERTIA, "yy": INERTIA, "zz": INERTIA}}
        ],
        "frame": [{"name": "tool", "body": "rod", "origin": {"xyz": [LENGTH, 0.0, 0.0]}}],
    })
)  # fmt: skip
AXES = {"x": lambda q: np.array([np.cos(q), -np.sin(q)]), "z": lambda q: np.array([np.sin(q), np.cos(q)])}
"""Axes of the tool in the plane of x and z."""


def reading(q, qd, qdd, axis):
    """axis . (a - g) of the tool at LENGTH (cos q, -sin q)."""
    acceleration = LENGTH * (qdd * np.array([-np.sin(q), -np.cos(q)]) + qd**2 * np.array([-np.cos(q), np.sin(q)]))
    return AXES[axis](q) @ (acceleration + np.array([0.0, G]))


@pytest.mark.parametrize("hertz", [0.5, 3.0])
@pytest.mark.parametrize("axis", ["x", "z"])
def test_a_pendulum_that_is_integrated(hertz, axis):
    inertia, omega, force = INERTIA + MASS * CENTER**2, 2.0 * np.pi * hertz, 1e-3

    def acceleration(t, q, qd):
        gravity = MASS * G * CENTER * (np.cos(q) - np.cos(REST))  # the springs carry the rest
        pushed = -LENGTH * force * np.cos(omega * t)  # along the tool's z
        return (pushed + gravity - STIFFNESS * (q - REST) - DAMPING * qd) / inertia

    def rate(t, y):
        return [y[1], acceleration(t, *y)]

    settled = np.ceil(3.0 * hertz) / hertz
    times = settled + np.arange(64) / (64 * hertz)
    motion = solve_ivp(rate, (0.0, times[-1]), [REST, 0.0], t_eval=times, rtol=1e-11, atol=1e-15, method="DOP853").y
    readings = [reading(q, qd, acceleration(t, q, qd), axis) for t, (q, qd) in zip(times, motion.T, strict=True)]
    expected = 2.0 * np.mean(readings * np.exp(-1j * omega * times)) / force
    for corner, factor in ((0.0, 1.0), (0.8, 1j * hertz / (1j * hertz + 0.8))):
        found = jaxmb.frf(
            MODEL, [REST], [hertz], outputs=[("tool", axis)], inputs=[("tool", "z")], sensor=Sensor(True, corner)
        )
        assert abs(complex(found[0, 0, 0]) / (expected * factor) - 1.0) < 1e-5


def test_it_matters_at_low_frequencies_alone():
    plain, felt = (
        np.asarray(jaxmb.frf(MODEL, [REST], [0.5, 50.0], outputs=[("tool", "z")], sensor=Sensor(gravity)))[:, 0, 0]
        for gravity in (False, True)
    )
    # along z the tip moves by -LENGTH q, and gravity's part G cos q changes by -G sin q
    expected = 1.0 - G * np.sin(REST) / ((2.0 * np.pi * np.array([0.5, 50.0])) ** 2 * LENGTH)
    np.testing.assert_allclose(np.abs(felt / plain), np.abs(expected), rtol=1e-9)
    with pytest.raises(ValueError, match="sensor: high_pass_hz is -3, expected a number of at least 0"):
        jaxmb.frf(MODEL, [REST], [0.5], sensor=Sensor(high_pass_hz=-3))
    # at rest only gravity's part remains
    still = {kind: complex(jaxmb.frf(MODEL, [REST], [0.0], outputs=[("tool", "z")], kind=kind, sensor=sensor)[0, 0, 0])
             for kind, sensor in (("receptance", Sensor()), ("accelerance", Sensor(gravity=True)))}  # fmt: skip
    np.testing.assert_allclose(still["accelerance"], still["receptance"] * G * np.sin(REST) / LENGTH, rtol=1e-12)
