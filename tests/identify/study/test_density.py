"""The posterior density of a study beside SciPy's distributions, and what samplers need of it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.stats

import jaxmb
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from tests.identify.arm import TRUTH, frf, loads, study_of

MODES = {
    "kind": "modes", "posture": {"z2": "70 deg", "z3": "-100 deg"}, "frequency_hz": [10.18, 11.3, 22.6],
    "damping_percent": [1.9, 1.8, 1.6], "frequency_std_hz": 0.05, "damping_std_percent": 0.1,
}  # fmt: skip
FREE = {
    "stiffness.z1": {"lower": 2e5, "upper": 2e7, "initial": 2e6},
    "damping.*": {"lower": 1.0, "upper": 1e5, "initial": 1e3},
    "mass.link3": {"lower": 100.0, "upper": 400.0, "scale": "linear"},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    data = {"machine": "manipulator-3r", "test": [MODES], "free": FREE, "prior": {"damping.z1": 0.5}}
    return make_study(StudyFile.model_validate(data), "modes", tmp_path_factory.mktemp("study"))


def by_scipy(study, parameters):
    """Log density of measured modes given the parameters and the prior, with the constants of the distributions."""
    model = jaxmb.set_parameters(study.model, parameters)
    q = jaxmb.posture(model, MODES["posture"])
    found = jaxmb.modes(jaxmb.linearize(model, q))
    log = scipy.stats.norm.logpdf(MODES["frequency_hz"], found.damped_frequency_hz, 0.05).sum()
    log += scipy.stats.norm.logpdf(MODES["damping_percent"], 100.0 * np.asarray(found.damping_ratio), 0.1).sum()
    for name, value in parameters.items():
        if name == "damping.z1":
            initial = dict(zip(study.free.names, np.asarray(study.start.values), strict=True))[name]
            log += scipy.stats.lognorm.logpdf(value, 0.5, scale=initial)
        elif name != "mass.link3":
            log += -np.log(value)  # uniform in the logarithm
    return log


def test_density_of_the_values(study):
    """Differences between points, since the density is known up to a constant."""
    density, rng = jaxmb.log_density(study), np.random.default_rng(0)
    factors = np.exp(rng.normal(0.0, 0.05, (4, study.free.size)))
    points = [dict(zip(study.free.names, factor * study.start.values, strict=True)) for factor in factors]
    ours = np.array([float(density(p)) for p in points])
    theirs = np.array([by_scipy(study, {k: float(v) for k, v in p.items()}) for p in points])
    np.testing.assert_allclose(np.diff(ours), np.diff(theirs), rtol=1e-8)
    assert float(density(points[0] | {"stiffness.z1": 1e8})) == -np.inf
    assert np.isfinite(list(jax.grad(density)(points[0] | {"stiffness.z1": 1e8}).values())).all()


def test_density_of_measured_frfs(tmp_path):
    """log of measured over predicted FRFs is normal, real and imaginary part each, whatever the level of the noise."""
    study = study_of(tmp_path, frf(noise=0.03, noise_log_std=0.03), tolerances="exact")
    density, (test,) = jaxmb.log_density(study), study.tests
    q = jaxmb.posture(study.model, {"a": 0.2, "b": 0.5})

    def expected(parameters):
        model = jaxmb.set_parameters(study.model, parameters)
        h = jaxmb.frf(model, q, np.arange(1.0, 25.1, 0.25), "tool", outputs=[("tool", "x"), ("tool", "z")])
        ratio = np.log(np.asarray(test.measured) / np.asarray(h))
        log = scipy.stats.norm.logpdf([ratio.real, ratio.imag], 0.0, 0.03).sum()
        return log - np.log(list(parameters.values())).sum()  # uniform in the logarithms

    points = [{name: factor * value for name, value in TRUTH.items()} for factor in (1.0, 1.02, 0.97)]
    ours = [float(density(point)) for point in points]
    np.testing.assert_allclose(np.diff(ours), np.diff([expected(point) for point in points]), rtol=1e-8)


def test_coordinates_without_bounds(study):
    """They return to the values, and their density is that of the values times the derivative of these."""
    density = jaxmb.log_density(study)
    point = dict(zip(study.free.names, 1.1 * study.start.values, strict=True))
    z = density.to_unbounded(point)
    back = density.from_unbounded(z)
    assert back == {name: pytest.approx(value, rel=1e-12) for name, value in point.items()}
    jacobian = jax.jit(jax.jacobian(density.from_unbounded))(z)
    steepness = sum(float(jnp.log(jacobian[name][name])) for name in z)
    other = z | {"stiffness.z1": z["stiffness.z1"] + 0.3}
    jacobian = jax.jacobian(density.from_unbounded)(other)
    change = sum(float(jnp.log(jacobian[name][name])) for name in z) - steepness
    expected = float(density(density.from_unbounded(other)) - density(point)) + change
    assert float(density.of_unbounded(other) - density.of_unbounded(z)) == pytest.approx(expected, rel=1e-9)
    several = jax.vmap(density.of_unbounded)(jax.tree.map(lambda a, b: jnp.stack([a, b]), z, other))
    np.testing.assert_allclose(several, [density.of_unbounded(z), density.of_unbounded(other)], rtol=1e-9)


def test_an_optimizer_of_another_package(study):
    """The most likely point in the coordinates of the fit is what `identify` finds."""
    density = jaxmb.log_density(study)
    result = jaxmb.identify(study)
    found = {name: p.value for name, p in result.parameters.items()}

    def loss(position):  # without the derivative of the coordinates, which moves the maximum
        parameters = density.from_unbounded(position)
        slope = sum(jnp.log(v) for name, v in parameters.items() if name != "mass.link3")
        return -(density(parameters) + slope)

    start = density.to_unbounded({name: 1.02 * value for name, value in found.items()})
    solver = optax.lbfgs()
    state, step = solver.init(start), jax.jit(optax.value_and_grad_from_state(loss))

    @jax.jit
    def update(position, state):
        value, gradient = step(position, state=state)
        change, state = solver.update(gradient, state, position, value=value, grad=gradient, value_fn=loss)
        return optax.apply_updates(position, change), state

    for _ in range(60):
        start, state = update(start, state)
    for name, value in density.from_unbounded(start).items():
        assert abs(float(value) - found[name]) < 0.02 * result.parameters[name].std, name


def test_wrong_names(study):
    density = jaxmb.log_density(study)
    with pytest.raises(
        ValueError, match=r"free parameter 'stiffness\.z9' does not exist, did you mean 'stiffness\.z1'"
    ):
        density({"stiffness.z9": 1.0})
    with pytest.raises(ValueError, match=r"unbounded coordinates: 'stiffness\.z1' is missing"):
        density.of_unbounded({})


def test_weights_that_narrow_the_density_are_warned_of():
    with pytest.warns(UserWarning, match="study 'validation-3r': its tests have weights above 1"):
        jaxmb.log_density(jaxmb.load_study("validation-3r"))


def test_outliers_of_robust_tests_are_warned_of(tmp_path):
    test = loads() | {"robust": True}
    with pytest.warns(UserWarning, match="study 'arm': outliers of its robust tests"):
        jaxmb.log_density(study_of(tmp_path, test, free={"stiffness.*": {"lower": 1e3, "upper": 1e6}}))
