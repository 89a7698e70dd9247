"""Candidate postures keep to their limits."""

import jax
import numpy as np
import pytest

import jaxmb
from jaxmb.machine.values import angle
from jaxmb.mechanics.kinematics import frame_poses
from jaxmb.mechanics.postures import candidate_postures

RANGES = {"q1": (-1.0, 1.0), "q2": (0.0, 0.5, 1.0, 1.5), "q3": (-4.0, -1.0)}
LOAD = ("tool", np.array([0.0, 0.0, -2500.0, 0.0, 0.0, 0.0]))


@pytest.fixture(scope="module")
def model():
    return jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))


def test_limits_floor_and_drives(model):
    q = candidate_postures(model, RANGES, 50, seed=3, floor=0.3, load=LOAD, largest_effort={"q2": 4000.0})
    assert q.shape == (50, 6)
    assert set(q[:, 1]) <= {0.0, 0.5, 1.0, 1.5}
    assert np.all(np.abs(q[:, 0]) <= 1.0)
    assert np.all(q[:, 4] == np.asarray(model.reference)[4])
    poses = np.asarray(jax.jit(jax.vmap(lambda at: frame_poses(model, at)))(q))
    assert poses[:, 1:, 2, 3].min() > 0.3
    jacobians = np.asarray(jax.jit(jax.vmap(lambda at: jaxmb.frame_jacobian(model, at, "tool")))(q))
    assert np.abs(jacobians[:, :, 1] @ LOAD[1]).max() <= 4000.0
    assert np.array_equal(q, candidate_postures(model, RANGES, 50, 3, 0.3, LOAD, {"q2": 4000.0}))


def test_what_cannot_be_had(model):
    with pytest.raises(ValueError, match="0 of 400 postures drawn are possible, expected 2"):
        candidate_postures(model, RANGES, 2, floor=100.0)
    with pytest.raises(ValueError, match="range: coordinate 'q7' does not exist"):
        candidate_postures(model, {"q7": (0.0, 1.0)}, 2)
    with pytest.raises(ValueError, match=r"range of 'q1' is \(1.0, 0.0\)"):
        candidate_postures(model, {"q1": (1.0, 0.0)}, 2)


def test_a_range_in_degrees_is_refused(model):
    with pytest.raises(ValueError, match='range: q1 is -185 rad, expected at most two turns; write "-185 deg" for deg'):
        candidate_postures(model, {"q1": (-185.0, 185.0)}, 2)


def test_ranges_of_a_slide_are_lengths():
    slides = jaxmb.build_model(jaxmb.load_machine("slider-crank"))
    with pytest.raises(ValueError, match="range: q3 is an angle, expected a number in m"):
        candidate_postures(slides, {"q3": (angle("1 deg"), 1.0)}, 2)
    with pytest.raises(ValueError, match="range: q3 is 200 m, expected at most 100 m, is it in mm"):
        candidate_postures(slides, {"q3": (100.0, 200.0)}, 2)
    with pytest.raises(NotImplementedError, match="candidate postures: 'slider-crank' has loops"):
        candidate_postures(slides, {"q1": (0.0, 1.0)}, 2, floor=-9.0)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"count": 0}, "count is 0, expected a whole number of at least 1"),
        ({"load": LOAD, "largest_effort": {"q7": 1.0}}, "largest_effort: coordinate 'q7' does not exist"),
        ({"largest_effort": {"q2": 1.0}}, "largest_effort is given without a load"),
        ({"load": ("tool", np.ones(3))}, r"load: wrench is \[1.0, 1.0, 1.0\], expected six finite numbers"),
        ({"load": ("hand", np.ones(6))}, "load: frame 'hand' does not exist"),
        ({"load": LOAD[1]}, "expected the name of a frame and a wrench"),
    ],
)
def test_wrong_arguments(model, changed, told):
    with pytest.raises(ValueError, match=told):
        candidate_postures(model, **{"ranges": RANGES, "count": 2} | changed)
