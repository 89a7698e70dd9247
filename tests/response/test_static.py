"""Arguments of deflections: what is taken as an array, and what is refused in one sentence."""

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb

LOAD = [100.0, 0.0, -1000.0, 0.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def model():
    return jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))


def test_lists_are_arrays(model):
    q = np.asarray(model.reference)
    expected = jaxmb.deflection(model, jnp.asarray(q), "tool", jnp.array(LOAD))
    np.testing.assert_array_equal(jaxmb.deflection(model, q.tolist(), "tool", LOAD, ["tool"]), expected)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"points": []}, "points is empty, expected at least one frame"),
        ({"points": "tool"}, "points is 'tool', expected a sequence of names of frames"),
        ({"points": [1]}, r"points is \[1\], expected a sequence of names of frames"),
        ({"points": ["hand"]}, "frame 'hand' does not exist"),
        ({"wrench": LOAD[:3]}, r"wrench has shape \(3,\), expected \(6,\)"),
        ({"wrench": "down"}, "wrench is 'down', expected an array of numbers"),
    ],
)
def test_wrong_arguments(model, changed, told):
    with pytest.raises(ValueError, match=told):
        jaxmb.deflection(**{"model": model, "q": model.reference, "frame": "tool", "wrench": jnp.array(LOAD)} | changed)
