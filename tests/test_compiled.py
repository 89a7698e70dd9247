"""A wrong argument of a compiled function is said without the frames of JAX and Equinox."""

import traceback

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.compiled import compiled

MODEL = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
POSTURE = jaxmb.reference_posture(MODEL)
WRONG = {
    "a frame that does not exist": (lambda: jaxmb.frame_pose(MODEL, POSTURE, "nowhere"), "frame 'nowhere'"),
    "a point of an FRF": (lambda: jaxmb.frf(MODEL, POSTURE, np.ones(2), [("tool", "up")]), "'up'"),
    "a posture of another machine": (lambda: jaxmb.linearize(MODEL, POSTURE[:2]), "q has shape (2,)"),
}


def frames_of(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_argument_is_said_in_one_sentence(case):
    call, words = WRONG[case]
    with pytest.raises(ValueError) as found:  # noqa: PT011 - which words, is asserted below
        call()
    assert words in str(found.value)
    said = "".join(traceback.format_exception(found.value))
    assert not [name for name in frames_of(found.value) if "equinox" in name or "/jax/" in name]
    assert "JAX" not in said
    assert said.count("Traceback") == 1


def test_an_error_that_jax_raises_keeps_its_place():
    @compiled
    def added(a, b):
        return a + b

    with pytest.raises((TypeError, ValueError)) as found:
        added(jnp.ones(2), jnp.ones(3))
    assert any(name.endswith("test_compiled.py") for name in frames_of(found.value)[1:])
    assert added(jnp.ones(2), b=jnp.ones(2)).tolist() == [2.0, 2.0]
