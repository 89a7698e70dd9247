"""A wrong argument of a compiled function is said without the frames of JAX and Equinox."""

import traceback

import jax
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


Q = [0.1, 1.2, -1.7]
TAKES_A_LIST = {
    "frf": lambda q: jaxmb.frf(MODEL, q, [5.0, 6.0]),
    "linearize": lambda q: jaxmb.linearize(MODEL, q).stiffness,
    "mass_matrix": lambda q: jaxmb.mass_matrix(MODEL, q),
    "gravity_effort": lambda q: jaxmb.gravity_effort(MODEL, q),
    "static_equilibrium": lambda q: jaxmb.static_equilibrium(MODEL, q, "tool", [0.0, 0.0, 9.0, 0.0, 0.0, 0.0]),
    "frame_pose": lambda q: jaxmb.frame_pose(MODEL, q, "tool"),
}


@pytest.mark.parametrize("name", TAKES_A_LIST)
def test_a_posture_may_be_a_list_and_must_be_finite(name):
    call = TAKES_A_LIST[name]
    np.testing.assert_array_equal(call(Q), call(jnp.array(Q)))
    with pytest.raises(ValueError, match=r"^q(_rest)? holds nan, expected finite numbers$"):
        call([0.1, np.nan, -1.7])
    with pytest.raises(ValueError, match="expected an array of numbers"):
        call(["70 deg", 0.0, 0.0])
    jax.jacfwd(call)(jnp.array(Q))


@pytest.mark.parametrize(("wrong", "told"), [(np.nan, "nan"), (-5.0, "-5")])
def test_a_frequency_that_cannot_be(wrong, told):
    with pytest.raises(ValueError, match=rf"^frequency_hz holds {told}, expected finite numbers of at least 0$"):
        jaxmb.frf(MODEL, POSTURE, [5.0, wrong])
