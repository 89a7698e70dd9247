"""Points of frequency responses beside a frame's own axes: the ground's axes, and coordinates."""

import numpy as np
import pytest

import jaxmb

LINES = np.array([2.0, 7.0, 11.0, 19.0])
MODEL = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
Q = np.asarray(jaxmb.posture(MODEL, {"z1": 0.4, "z2": 1.1, "z3": -1.6}))


def test_ground_axes_are_the_frame_s_own_turned():
    rotation = np.asarray(jaxmb.frame_pose(MODEL, Q, "tool"))[:3, :3]
    own = np.asarray(jaxmb.frf(MODEL, Q, LINES, outputs=[("tool", a) for a in ("x", "y", "z", "rx", "ry", "rz")]))
    ground = np.asarray(jaxmb.frf(MODEL, Q, LINES, outputs=[("tool", a) for a in ("X", "-Y", "Z", "RX", "RY", "RZ")]))
    turn = np.diag([1, -1, 1, 1, 1, 1]) @ np.kron(np.eye(2), rotation)
    expected = turn @ own @ turn.T
    np.testing.assert_allclose(ground, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())


def test_coordinates_by_the_inverse_of_the_dynamic_stiffness():
    tangent = jaxmb.linearize(MODEL, Q)
    m, c, k = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
    names = MODEL.coordinates
    found = np.asarray(
        jaxmb.frf(
            MODEL, Q, LINES, kind="mobility", outputs=[("z2", "angle"), ("x3", "-angle")], inputs=[("z1", "angle")]
        )
    )
    for line, h in zip(LINES, found, strict=True):
        s = 2j * np.pi * line
        inverse = np.linalg.inv(k + s * c + s**2 * m)
        column = s * inverse[:, names.index("z1")]
        np.testing.assert_allclose(h[:, 0], [column[names.index("z2")], -column[names.index("x3")]], rtol=1e-9)


@pytest.mark.parametrize(
    ("point", "told"),
    [
        (("z1", "travel"), r"point \('z1', 'travel'\): expected 'angle' of a coordinate of its type"),
        (("z9", "angle"), "coordinate 'z9' does not exist"),
        (("tool", "w"), "expected \\(frame, direction\\)"),
    ],
)
def test_wrong_points(point, told):
    with pytest.raises(ValueError, match=told):
        jaxmb.frf(MODEL, Q, LINES, outputs=[point])


def test_rows_at_a_posture_of_another_machine():
    with pytest.raises(ValueError, match=r"q has shape \(2,\), expected \(9,\): one value a coordinate"):
        jaxmb.response_rows(MODEL, np.zeros(2), [("tool", "x")])
