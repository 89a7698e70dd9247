"""Corrected targets put the loaded tool where it should be."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.response.static import corrected_target, loaded_pose

LOAD = jnp.array([800.0, -600.0, -2500.0, 50.0, 20.0, -80.0])


@pytest.fixture(scope="module")
def model():
    data = jaxmb.load_machine("kuka-kr240").model_dump()
    spring = {"name": "arm", "body": "q2", "origin": {"xyz": [1.25, 0, 0]}, "diagonal": [1e-9, 2e-8, 2e-8] + [2e-8] * 3}
    return jaxmb.build_model(jaxmb.Machine.model_validate(data | {"virtual_spring": [spring]}))


def test_the_loaded_tool_stands_where_it_should(model):
    q = model.reference
    wanted = jaxmb.frame_pose(model, q, "tool")
    uncorrected = loaded_pose(model, q, "tool", LOAD)
    np.testing.assert_array_equal(
        loaded_pose(model, np.asarray(q).tolist(), "tool", np.asarray(LOAD).tolist()), uncorrected
    )
    assert np.linalg.norm(uncorrected[:3, 3] - wanted[:3, 3]) > 1e-3
    target = corrected_target(model, q, "tool", LOAD)
    # Newton's last step is 1e-13 rad, over three metres
    assert np.allclose(loaded_pose(model, target, "tool", LOAD), wanted, atol=1e-11)
    linear = jaxmb.deflection(model, q, "tool", LOAD)[0]
    first_order = q - jnp.linalg.solve(jaxmb.frame_jacobian(model, q, "tool"), linear)
    assert np.allclose(target, first_order, atol=1e-4)


def test_along_a_trajectory_with_the_load_elsewhere(model):
    path = model.reference + jnp.linspace(0.0, 0.3, 5)[:, None] * jnp.array([1.0, 0.2, -0.3, 0.0, 0.1, 0.0])
    targets = jax.vmap(lambda q: corrected_target(model, q, "tool", LOAD, "q5_dh"))(path)
    for q, target in zip(path, targets, strict=True):
        there = loaded_pose(model, target, "tool", LOAD, "q5_dh")
        assert np.allclose(there, jaxmb.frame_pose(model, q, "tool"), atol=1e-11)


def test_no_way_to_correct(model):
    # with the wrist straight, what joints 4 and 6 do is the same: one direction cannot be corrected
    assert np.all(np.isnan(corrected_target(model, model.reference.at[4].set(0.0), "tool", LOAD)))


def test_closed_chains_are_refused():
    """Coordinates that follow others would keep their values: the target would not be a posture of the machine."""
    inertia = {"mass": 1.0, "inertia_products": {"xx": 1.0, "yy": 1.0, "zz": 1.0}, "origin": {"xyz": [1, 0, 0]}}
    body = [{"name": name, "parent": parent, **inertia, "joint": [{"name": c, "stiffness": 1e4}]}
            for name, parent, c in (("a", "ground", "q1"), ("tool", "a", "q2"))]  # fmt: skip
    coupling = [{"coordinate": "q2", "follows": "q1", "ratio": -0.5}]
    machine = jaxmb.Machine.model_validate({"name": "pair", "body": body, "coupling": coupling})
    model, load = jaxmb.build_model(machine), np.array([10.0, 20.0, 0.0, 0.0, 0.0, 0.0])
    with pytest.raises(NotImplementedError, match="compensation: 'pair' has loops"):
        corrected_target(model, [0.4, -0.2], "tool", load)
    with pytest.raises(ValueError, match="q: the loops of 'pair' are open"):
        loaded_pose(model, [0.4, 0.0], "tool", load)
