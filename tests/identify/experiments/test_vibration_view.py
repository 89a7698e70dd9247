"""What tests at one posture see of a machine: at the posture and where it sags to, and the short way to it."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb import build_model, make_study, reference_posture
from jaxmb.identify.experiments.vibration_view import LINEAR_LEAVES, PRODUCTS, affine_vibration, vibration_view
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.identify.parameters.model_parameters import parameter_table, parameters, set_parameters
from jaxmb.machine.schema import Machine
from tests.identify.crane import crane_study, frf_test, pendulum_study
from tests.identify.derivatives import assert_jacobian, jacobian_of, residual_of
from tests.identify.parameters.test_parameters import EVERYTHING


@pytest.fixture(scope="module")
def crane(tmp_path_factory):
    """All families of parameters free."""
    return crane_study(tmp_path_factory.mktemp("crane"), [frf_test()])


@pytest.fixture(scope="module")
def sagging(tmp_path_factory):
    """The pendulum linearized where it sags to, by about a third of a degree."""
    return pendulum_study(tmp_path_factory.mktemp("sag"), linearize_at="equilibrium")


def test_jacobian_at_the_equilibrium(sagging):
    assert sagging.problem.views == (None,)
    assert_jacobian(
        sagging.problem, np.log([5e4, 10.0, 10.0]) * [1.0, 0.0, 0.0] + [0.02, 0.05, 0.13], step=1e-5, reverse=False
    )


def test_equilibrium_is_not_the_posture(sagging):
    """The sag under gravity moves the tangent, so that the two settings cannot be confused."""
    test = sagging.tests[0]
    soft = set_parameters(sagging.model, {"stiffness.r": 1e3})
    at_rest, sagged = (dataclasses.replace(test, at=at).view(soft).tangent for at in ("posture", "equilibrium"))
    # m g c is about 80 Nm against 1000 Nm/rad: gravity's own stiffness turns with it.
    assert abs(float(at_rest.stiffness[0, 0] - sagged.stiffness[0, 0])) > 1.0


def test_the_affine_view_is_the_view(crane):
    """What is precomputed as an affine function of the values against the view of the changed model."""
    (affine,) = crane.problem.views
    for seed in range(5):
        random = np.random.default_rng(seed)
        low, high = np.array(crane.free.lower_value), np.array(crane.free.upper_value)
        values = jnp.asarray(low + random.uniform(size=low.size) * (high - low))
        direct = crane.tests[0].view(crane.free.apply(crane.model, values))
        short = affine(values)
        for name in ("mass", "damping", "stiffness"):
            a, b = (np.asarray(getattr(s.tangent, name)) for s in (short, direct))
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max(), err_msg=name)
        np.testing.assert_array_equal(short.output_rows, direct.output_rows)


def test_loss_factors_beside_stiffness():
    """Structural damping is the product of both: stiffness and loss factors of joints and links, some tied."""
    text = {"lower": 1e-3, "upper": 0.5}
    free = {
        "stiffness.*": {"lower": 1e3, "upper": 1e6}, "young_modulus.upper": {"lower": 1e10, "upper": 3e11},
        "loss_factor.upper": text, "loss_factor.[!u]*": text | {"tied": True},
        "damping.*": {"lower": 1.0, "upper": 1e3},
    }  # fmt: skip
    lines = {"first_hz": 1.0, "last_hz": 60.0, "step_hz": 5.0}
    test = {"kind": "frf", "simulate": {"lines": lines}, "frame": "tool", "noise_log_std": 0.02}
    study = make_study({"machine": "two-flexible-links", "test": [test], "free": free}, "losses")
    (affine,) = study.problem.views
    for seed in range(3):
        low, high = np.asarray(study.free.lower_value), np.asarray(study.free.upper_value)
        values = low + np.random.default_rng(seed).uniform(size=low.size) * (high - low)
        direct = study.tests[0].view(study.free.apply(study.model, values)).tangent
        for short in (affine(values).tangent, affine(jnp.asarray(values)).tangent):
            for name in ("mass", "damping", "stiffness", "structural"):
                a, b = (np.asarray(getattr(t, name)) for t in (short, direct))
                np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max(), err_msg=name)


def test_affine_families_that_multiply_another_are_listed():
    """All affine families free but those of `PRODUCTS`: one that multiplies another in the tangent is missing there."""
    without = {"virtual_spring", "fractional"}
    model = build_model(Machine.model_validate({k: v for k, v in EVERYTHING.items() if k not in without}))
    model = dataclasses.replace(model, load_dependent=(False,) * len(model.coordinates))
    names = [name for name, spec in parameter_table(model).items() if spec.leaf in LINEAR_LEAVES - PRODUCTS.keys()]
    own = parameters(model)
    bounds = [Bound((name,), 0.0, 2.0 * abs(own[name]) or 1.0, logarithmic=False) for name in names]
    free = free_parameters(model, bounds)
    points = (("tool", "x"), ("tool", "y"))
    arguments = (reference_posture(model), "posture", points, points, False, False)
    affine = affine_vibration(arguments, 100.0, model, free)
    assert affine is not None
    values = np.array([own[name] for name in names]) * np.random.default_rng(1).uniform(0.5, 1.5, len(names))
    direct = vibration_view(free.apply(model, values), *arguments).tangent
    for name in ("mass", "damping", "stiffness"):
        a, b = (np.asarray(getattr(tangent, name)) for tangent in (affine(values).tangent, direct))
        size = np.sqrt(np.diag(b))
        np.testing.assert_allclose(a / np.outer(size, size), b / np.outer(size, size), atol=1e-9, err_msg=name)


def test_residual_of_the_affine_view(tmp_path):
    """With and without what is precomputed: the same residuals and the same Jacobian."""
    problem = pendulum_study(tmp_path).problem
    direct = dataclasses.replace(problem, views=(None,))
    u = jnp.asarray([np.log(3e4), 0.1, 0.1])
    ours, theirs = (np.asarray(residual_of(p, u)) for p in (problem, direct))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())
    ours, theirs = (np.asarray(jacobian_of(p, u)) for p in (problem, direct))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * np.abs(theirs).max())


def test_numpy_in_numpy_out(crane):
    """Outside of compiled programs an affine view is plain NumPy: same numbers, no program for each."""
    (affine,) = crane.problem.views
    values = np.asarray(crane.start.values)
    plain, traced = affine(values), affine(jnp.asarray(values))
    for leaf in jax.tree.leaves(plain.tangent):
        assert type(leaf) is np.ndarray
    for leaf in jax.tree.leaves(traced.tangent):
        assert isinstance(leaf, jax.Array)
    for ours, theirs in zip(jax.tree.leaves(plain), jax.tree.leaves(traced), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12 * np.abs(np.asarray(theirs)).max())
