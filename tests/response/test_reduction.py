"""Responses of reduced machines beside those of the whole ones."""

import numpy as np
import pytest
from scipy.linalg import eigh

import jaxmb
from jaxmb.response.reduction import interface_basis, reduce_motion, reduced_frf

SECTION = {"young_modulus": 7e10, "shear_modulus": 2.6e10, "density": 2700.0, "area": 8e-4, "second_moment_y": 1.6e-7,
           "second_moment_z": 3.2e-7, "torsion_constant": 3.2e-7, "elements": 6, "loss_factor": 0.02}  # fmt: skip
ARM = jaxmb.Machine.model_validate({
    "name": "arm",
    "body": [{"name": "hub", "joint": [{"name": "q", "axis": [0.0, 1.0, 0.0], "stiffness": 2e4, "damping": 20.0}]}],
    "beam": [SECTION | {"name": "boom", "body": "hub", "length": 1.5}],
    "frame": [{"name": "tool", "body": "boom", "origin": {"xyz": [0.0, 0.1, 0.0]}}],
})  # fmt: skip
LINES = np.linspace(1.0, 120.0, 60)


def test_a_reduced_arm_responds_as_the_whole_one():
    model = jaxmb.build_model(ARM)
    points = [("tool", "x"), ("tool", "z"), ("boom/3", "rx"), ("q", "angle")]
    found = reduce_motion(model, np.zeros(1), LINES[-1], outputs=points)
    whole = np.asarray(jaxmb.frf(model, np.zeros(1), LINES, outputs=points))
    size = np.abs(whole).max(axis=0)
    moves = size > 1e-9 * size.max()  # what twists does not bend
    error = np.abs(reduced_frf(found, LINES) - whole).max(axis=0) / np.where(moves, size, np.inf)
    assert found.basis.shape[1] < 15 < found.basis.shape[0]
    assert error.max() < 1e-3
    # small responses count beside a thousandth of the largest one, so it is not the same measure
    assert 0.1 * error.max() < found.error < 1e-2


def test_a_machine_that_nothing_holds():
    free = ARM.model_dump(exclude_none=True)
    free["body"][0]["joint"] = [{"name": "q", "axis": [0.0, 1.0, 0.0]}]
    model = jaxmb.build_model(jaxmb.Machine.model_validate(free | {"gravity": [0.0, 0.0, 0.0]}))
    points = [("tool", "z")]
    found = reduced_frf(reduce_motion(model, np.zeros(1), LINES[-1], outputs=points), LINES)
    whole = np.asarray(jaxmb.frf(model, np.zeros(1), LINES, outputs=points))
    np.testing.assert_allclose(found, whole, rtol=2e-3, atol=1e-3 * np.abs(whole).max())


def test_an_unstable_closed_machine_at_a_rounded_posture():
    """The rows of sensors and forces are those of the posture with closed loops, as of `frf`."""
    model = jaxmb.build_model(jaxmb.load_machine("slider-crank"))
    q, points = np.array([0.7, -0.908, 0.306]), [("tool", "x"), ("tool", "y")]
    with pytest.warns(UserWarning, match="as with rounded values"):
        found = reduced_frf(reduce_motion(model, q, LINES[-1] / 12.0, outputs=points), LINES)
    whole = np.asarray(jaxmb.frf(model, jaxmb.close_loops(model, {"q1": 0.7}), LINES, outputs=points))
    np.testing.assert_allclose(found, whole, rtol=1e-9, atol=1e-9 * np.abs(whole).max())


def test_springs_of_the_interface_may_take_any_value():
    """A chain of masses: with the first spring as the interface, its stiffness does not matter to the basis."""
    size, highest = 40, 1.0
    mass, chain = np.eye(size), 2.0 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1)
    chain *= 1e4
    first = np.eye(size)[:1]
    basis = interface_basis(mass, chain, first, highest)
    assert basis.shape[1] < 12
    for stiffness in (0.0, 1e2, 1e6):
        changed = chain + stiffness * first.T @ first
        exact = np.sqrt(eigh(changed, mass, eigvals_only=True))
        near = np.sqrt(eigh(basis.T @ changed @ basis, basis.T @ mass @ basis, eigvals_only=True))
        inside = exact < 2.0 * np.pi * highest
        np.testing.assert_allclose(near[: inside.sum()], exact[inside], rtol=1e-3)


@pytest.mark.parametrize("added", [0.0, 1e4])
def test_a_chain_that_nothing_holds(added):
    """Its frequencies are 2 sqrt(k/m) sin(pi r / 2n), Rayleigh 1877, and SciPy's with a spring at the interface."""
    size, highest = 40, 5.0
    ends = np.eye(size)[[0, -1]]
    free = 2.0 * np.eye(size) - np.eye(size, k=1) - np.eye(size, k=-1) - ends.T @ ends
    basis = interface_basis(np.eye(size), 1e4 * free, ends[:1], highest)
    assert basis.shape[1] < size / 2
    held = 1e4 * free + added * ends[:1].T @ ends[:1]
    if added:
        exact = np.sqrt(eigh(held, eigvals_only=True))
    else:
        exact = 200.0 * np.sin(np.pi * np.arange(size) / (2 * size))
    near = np.sqrt(np.maximum(eigh(basis.T @ held @ basis, basis.T @ basis, eigvals_only=True), 0.0))
    inside = exact < 2.0 * np.pi * highest
    # the zero frequency is the square root of rounding, 1e-16 of the largest stiffness
    np.testing.assert_allclose(near[: inside.sum()], exact[inside], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("highest_hz", [0.0, -1.0, np.nan])
def test_highest_frequency(highest_hz):
    with pytest.raises(ValueError, match=r"highest_hz is .*, expected a (finite number|number above 0)"):
        reduce_motion(jaxmb.build_model(ARM), np.zeros(1), highest_hz)
