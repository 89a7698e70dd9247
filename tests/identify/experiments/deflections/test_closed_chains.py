"""Deflections of closed chains in few degrees of freedom, against the whole machine."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.experiments.deflections.deflection_test import deflection_test
from jaxmb.identify.experiments.deflections.instruments import Instruments
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, check_cases, turning
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.identify.study.simulation.deflections import measured_with

SECTION = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 2e-4, "second_moment_y": 2e-9,
           "second_moment_z": 3e-9, "torsion_constant": 4e-9, "elements": 2}  # fmt: skip
FIVE_BAR = {
    "name": "five-bar",
    "body": [
        {"name": "left", "mass": 1.0, "joint": [{"name": "q1", "stiffness": 2e3}]},
        {"name": "elbow", "parent": "upper-left", "mass": 0.2, "joint": [{"name": "q2"}]},
        {"name": "right", "mass": 1.0, "origin": {"xyz": [0.4, 0.0, 0.0]}, "joint": [{"name": "q3", "stiffness": 3e3}]},
        {"name": "knee", "parent": "upper-right", "mass": 0.2, "joint": [{"name": "q4", "stiffness": 5.0}]},
    ],
    "beam": [
        SECTION | {"name": "upper-left", "body": "left", "length": 0.5},
        SECTION | {"name": "fore-left", "body": "elbow", "length": 0.6},
        SECTION | {"name": "upper-right", "body": "right", "length": 0.5},
        SECTION | {"name": "fore-right", "body": "knee", "length": 0.6},
    ],
    "frame": [{"name": "tool", "body": "fore-left"}, {"name": "end", "body": "fore-right"}],
    "loop": [{"name": "closure", "frame_a": "tool", "frame_b": "end"}],
    "independent": ["q1", "q3"],
    "posture": {"q1": 2.0, "q2": -1.3, "q3": 1.1, "q4": 1.3},
}  # fmt: skip
STIFFNESS = [Bound((f"stiffness.{name}",), 0.5 * value, 4.0 * value) for name, value in (("q1", 2e3), ("q3", 3e3))]
FOLLOWING = [Bound(("stiffness.q4",), 1.0, 50.0)]
MODULI = [Bound(("young_modulus.upper-left", "young_modulus.fore-right"), 3e10, 2e11)]


@pytest.fixture(scope="module")
def model():
    return jaxmb.build_model(jaxmb.Machine.model_validate(FIVE_BAR))


@pytest.fixture(scope="module")
def deflections(model):
    postures = [jaxmb.posture(model, {"q1": a, "q3": b}) for a, b in ((2.0, 1.1), (1.8, 0.9))]
    loads = np.array([[30.0, -20.0, 10.0, 1.0, 0.0, 2.0], [0.0, 0.0, -50.0, 0.0, 0.0, 0.0]])
    cases = [
        LoadCase(
            f"load {i}", np.asarray(q), "tool", load, ("tool", "end"), np.full((2, 6), 1e-4), np.full((2, 6), 1e-5)
        )
        for i, (q, load) in enumerate(zip(postures, loads, strict=True))
    ]
    return deflection_test("loads", model, cases)


@pytest.mark.parametrize(("bounds", "size"), [(STIFFNESS, 3), (STIFFNESS + FOLLOWING, 4), (STIFFNESS + MODULI, None)])
def test_few_degrees_of_freedom_say_what_all_say(model, deflections, bounds, size):
    """One for each load of a posture, and one for each joint that is free; a modulus acts on all of its beam."""
    free = free_parameters(model, bounds)
    affine = deflections.affine_view(model, free)
    assert affine is not None
    assert size is None or affine.base.shape[1] == size
    random = np.random.default_rng(0)
    for _ in range(3):
        values = free.values(random.uniform(np.asarray(free.lower), np.asarray(free.upper)))
        whole = deflections.predict(deflections.view(free.apply(model, values)))
        np.testing.assert_allclose(deflections.predict(affine(values)), whole, rtol=1e-9, atol=1e-16)


def test_where_it_cannot_be_so(model, deflections):
    length = free_parameters(model, [Bound(("density.upper-left",), 1e3, 5e3)])
    assert deflections.affine_view(model, length) is not None  # acts on nothing: no slope
    open_chain = dataclasses.replace(model, following=())
    assert deflections.affine_view(open_chain, length) is None


def test_drives_that_do_not_repeat(model):
    """Points move by the platform's own motion map, by differences of closed postures; the loop stays closed."""
    q = jaxmb.posture(model, {"q1": 1.9, "q3": 1.0})
    columns = turning(model, np.asarray(q))
    assert columns.shape == (4, 2)
    for i, name in enumerate(("q1", "q3")):
        value = {"q1": 1.9, "q3": 1.0}[name]
        steps = [np.asarray(jaxmb.close_loops(model, {name: value + h}, q)) for h in (1e-5, -1e-5)]
        np.testing.assert_allclose(columns[:, i], (steps[0] - steps[1]) / 2e-5, atol=1e-8)
    case = LoadCase("load", np.asarray(q), "tool", np.eye(6)[0], ("tool",), np.zeros((1, 6)), np.full((1, 6), 1e-5))
    errors = Instruments.model_validate({"tracker_mm": 1e-9, "reflectors_m": 1.0, "repeat_deg": 1.0})
    seen = measured_with(model, [case] * 200, errors, np.random.default_rng(0))
    moved = np.stack([one.displacement[0] for one in seen])
    there = np.asarray(jaxmb.frame_jacobian(model, q, "tool")) @ columns
    expected = errors.repeat_std**2 * there @ there.T
    plane = np.ix_([0, 1, 5], [0, 1, 5])
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))[plane]
    # 200 draws tell a variance to 10 %
    np.testing.assert_allclose(np.cov(moved.T)[plane] / scale, expected[plane] / scale, atol=0.3)
    tilted = Instruments.model_validate({"tracker_mm": 1e-9, "reflectors_m": 1.0, "encoder_deg": 2.0})
    assert np.isfinite(measured_with(model, [case], tilted, np.random.default_rng(0))[0].displacement).all()


def test_a_posture_that_is_open(model):
    q = np.array(jaxmb.posture(model, {"q1": 1.9, "q3": 1.0}))
    case = LoadCase("load", q, "tool", np.eye(6)[0], ("tool",), np.full((1, 6), 1e-4), np.full((1, 6), 1e-5))
    check_cases(model, [case])
    with pytest.raises(ValueError, match=r"deflection test 'load': posture: the loops of 'five-bar' are open by"):
        check_cases(model, [dataclasses.replace(case, q=q + 0.01)])
