"""A prior of values beside torques: the posterior of a linear Gaussian model, in closed form."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.study.study import make_study
from tests.identify.fit.test_physical_consistency import BOUND, arm, made, study_of

POSITIVE = {"lower": 0.0, "upper": 10.0, "scale": "linear"}
FREE = {"damping.q0": POSITIVE, "damping.q1": POSITIVE | {"initial": 0.5}, "offset.*": BOUND, "inertia.b1.xx": BOUND}
PRIOR = {"damping.q1": 0.02, "offset.*": 0.1, "inertia.b1.xx": 0.05}


def example(folder, **settings):
    """The machine's own values of offsets and inertia are about what the prior is."""
    draw = np.random.default_rng(3)
    return made(folder, *study_of(arm(draw, 3), draw, free=FREE, count=20, noise=0.2, prior=PRIOR, **settings))


def test_posterior(tmp_path):
    """Sigma = (A^T A + P^-1)^-1, mean = Sigma (A^T y + P^-1 m), in units of the noise."""
    study = example(tmp_path)
    assert study.solver.is_linear
    result = identify(study)
    names, own = study.free.names, jaxmb.parameters(study.model)
    rows = study.tests[0].linear.equations(study.model, study.free)
    prior = {"damping.q1": 0.02, "inertia.b1.xx": 0.05} | {f"offset.q{i}": 0.1 for i in range(3)}
    mean = np.array([0.5 if name == "damping.q1" else own[name] for name in names])
    precision = np.diag([prior.get(name, np.inf) ** -2.0 for name in names])
    matrix, right = rows.matrix / rows.std[:, None], rows.measured / rows.std
    covariance = np.linalg.inv(matrix.T @ matrix + precision)
    expected = covariance @ (matrix.T @ right + precision @ mean)
    found = result.parameters
    np.testing.assert_allclose([found[name].value for name in names], expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([found[name].std for name in names], np.sqrt(np.diag(covariance)), rtol=1e-9)
    left = right - matrix @ expected
    assert result.cost == pytest.approx(left @ left, rel=1e-9)
    assert result.metrics["prior_std"] == pytest.approx(prior)
    # 60 torques leave 60 less what the parameters take of them, a prior's part not counted
    taken = np.trace(matrix @ covariance @ matrix.T)
    assert result.metrics["misfit"]["square"] == pytest.approx(left @ left / (60.0 - taken), rel=1e-9)


def test_verdicts_are_beside_the_prior(tmp_path):
    """Where the torques do not halve the prior's deviation a value is not known by them."""
    result = identify(example(tmp_path))
    for name, std in result.metrics["prior_std"].items():
        ratio = result.parameters[name].std / std
        assert result.parameters[name].identifiable == ("yes" if ratio < 0.5 else "weak" if ratio < 0.95 else "no")
    assert any(text.startswith("determined by the prior:") for text in result.remarks)


def test_deviations_where_the_model_does_not_follow(tmp_path):
    """Noise of 1.7 times the stated size: the variance of the torques is wider, that of the prior is not. So it is
    Sigma (f^2 A^T A + P^-1) Sigma of an estimate that was weighed by Sigma."""
    study = example(tmp_path)
    test = dataclasses.replace(study.tests[0], std=np.asarray(study.tests[0].std) / 1.7)
    problem = dataclasses.replace(study.problem, tests=(test,))
    source = study.entries[0].source
    narrow = dataclasses.replace(
        source, rebuild=lambda *of, **how: dataclasses.replace(source.rebuild(*of, **how), std=test.std)
    )
    entries = (dataclasses.replace(study.entries[0], test=test, source=narrow),)
    result = identify(dataclasses.replace(study, problem=problem, entries=entries))
    square = result.metrics["misfit"]["square"]
    assert np.sqrt(square) == pytest.approx(1.7, rel=0.17)
    rows = test.linear.equations(study.model, study.free)
    matrix = rows.matrix / rows.std[:, None]
    prior = result.metrics["prior_std"]
    precision = np.diag([prior.get(name, np.inf) ** -2.0 for name in study.free.names])
    inverse = np.linalg.inv(matrix.T @ matrix + precision)
    expected = np.sqrt(np.diag(inverse @ (square * matrix.T @ matrix + precision) @ inverse))
    found = np.array([result.parameters[name].std for name in study.free.names])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_priors_of_logarithms_are_searched(tmp_path):
    free = FREE | {"damping.q1": {"lower": 0.01, "upper": 10.0, "initial": 0.5}}
    draw = np.random.default_rng(3)
    own, data, _, _ = study_of(arm(draw, 3), draw, free=free, prior={"damping.q1": 0.1})
    jaxmb.write_machine(own, tmp_path / "machine.toml")
    assert not make_study(data, "study", tmp_path).solver.is_linear


def test_robust_torques_have_no_prior(tmp_path):
    draw = np.random.default_rng(3)
    own, data, _, _ = study_of(arm(draw, 3), draw, free=FREE, prior=PRIOR)
    jaxmb.write_machine(own, tmp_path / "machine.toml")
    data["test"][0]["robust"] = True
    with pytest.raises(NotImplementedError, match="robust torque tests have no prior"):
        make_study(data, "study", tmp_path)
