"""The problem of a study: its cost against plain NumPy, its derivatives against differences, and tests of all kinds in
one against each alone."""

import dataclasses

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.estimation.identifiability import identifiability, information_rows, row_blocks
from jaxmb.identify.experiments.test import without_name
from jaxmb.identify.fit import problem as problem_module
from jaxmb.identify.fit.noise import reduced_chi_squares_of_tests, row_variances
from jaxmb.identify.fit.problem import compressed, final_state, group_by_form, linearized, objective
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.identify.study.study import load_study
from jaxmb.mechanics.tangent import linearize
from jaxmb.response.frf import response_rows
from tests.identify.arm import FREE, TRUTH, frf, loads, shapes, study_of
from tests.identify.crane import crane_study, frf_test
from tests.identify.derivatives import assert_jacobian, cost_of, residual_alone, residual_of


@pytest.fixture(scope="module")
def crane(tmp_path_factory):
    """All families of parameters free, peaks weighted up, noise in the data."""
    weights = {"peaks": 20, "elsewhere": 0.5}
    return crane_study(tmp_path_factory.mktemp("crane"), [frf_test(noise=0.02, weights=weights)])


def truth_u(study):
    return np.asarray(study.free.encode(np.array([study.truth[n] for n in study.free.names])))


def near_truth(study, size=0.05, seed=0):
    random = np.random.default_rng(seed)
    lower, upper = np.asarray(study.free.lower), np.asarray(study.free.upper)
    return np.clip(truth_u(study) + size * random.uniform(-1, 1, size=study.free.size), lower, upper)


def plain_cost(study, u, phase="safe"):
    """Equation 22 line by line: sum W |log Hs - log H|^2."""
    total = 0.0
    model = set_parameters(study.model, study.free.named(study.free.values(u)))
    for test in study.tests:
        tangent = linearize(model, test.q)
        M, C, K = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
        rows = np.asarray(response_rows(model, test.q, test.outputs))
        for k, w in enumerate(np.asarray(test.omega)):
            H = (1j * w) ** test.derivatives * rows @ np.linalg.inv(K + 1j * w * C - w**2 * M) @ rows.T
            Hs = np.asarray(test.measured[k])
            W = np.asarray(test.weight[k])
            error = np.log(Hs / H) if phase == "safe" else np.log(Hs) - np.log(H)
            total += float(np.sum(W * np.abs(error) ** 2))
    return total


@pytest.mark.parametrize("seed", range(3))
def test_cost_is_equation_22(crane, seed):
    u = near_truth(crane, 0.3, seed)
    assert float(cost_of(crane.problem, jnp.asarray(u))) == pytest.approx(plain_cost(crane, u), rel=1e-9)
    # Without a prior the objective is the cost, whatever the noise level.
    assert float(objective(crane.problem, u)) == pytest.approx(plain_cost(crane, u), rel=1e-9)


def test_expected_cost_at_the_truth(crane, tmp_path):
    """Each residual of a weight W has the variance W sigma^2: the cost has the mean 2 sigma^2 sum W and the variance
    4 sigma^4 sum W^2. That of 30 draws is four of its deviations off once in 15000 times; they are some percent."""
    weight, u, costs = np.asarray(crane.tests[0].weight), jnp.asarray(truth_u(crane)), []
    for seed in range(1, 31):  # weights are of the draw 0
        other = frf_test(noise=0.02)
        other["simulate"]["noise_seed"] = seed
        measured = crane_study(tmp_path, [other]).tests[0].measured
        tests = (dataclasses.replace(crane.tests[0], measured=measured),)
        costs.append(float(cost_of(dataclasses.replace(crane.problem, tests=tests), u)))
    expected = 2 * 0.02**2 * weight.sum()
    std = 2 * 0.02**2 * np.sqrt(np.sum(weight**2) / len(costs))
    assert std < 0.02 * expected
    assert np.mean(costs) == pytest.approx(expected, abs=4 * std)


@pytest.fixture(scope="module")
def noisy_validation():
    """The shipped validation study with 1 % of noise, both ways of taking the phase."""
    study = load_study("validation-3r")
    test = study.tests[0]
    real, imaginary = np.random.default_rng(0).normal(scale=0.01, size=(2, *test.measured.shape))
    test = dataclasses.replace(test, measured=test.measured * jnp.asarray(np.exp(real + 1j * imaginary)))

    def with_phase(phase):
        tests = (dataclasses.replace(test, phase=phase),)
        return dataclasses.replace(study, problem=dataclasses.replace(study.problem, tests=tests))

    return with_phase("safe"), with_phase("principal")


def test_phase_on_the_principal_branch_wraps(noisy_validation):
    """A phase at half a turn wraps by 2 pi under the smallest noise: what eq. 22 costs then as printed."""
    safe, principal = noisy_validation
    u = truth_u(safe)
    good, wrapped = (float(cost_of(s.problem, jnp.asarray(u))) for s in (safe, principal))
    # Most of it comes from few lines, so the factor follows their weights; what it is exactly is compared below.
    assert wrapped > 100.0 * good
    assert good == pytest.approx(plain_cost(safe, u, "safe"), rel=1e-9)
    assert wrapped == pytest.approx(plain_cost(safe, u, "principal"), rel=1e-9)
    # Each wrap adds at least W (2 pi - 6 sigma)^2, W at least 0.5: the excess is that of whole turns.
    assert wrapped - good > 0.5 * 6.2**2


def test_phases_agree_where_nothing_wraps(noisy_validation):
    """Lines whose phases stay away from the cut cost the same either way."""
    safe, principal = noisy_validation
    test = safe.tests[0]
    away = np.abs(np.abs(np.angle(test.measured)) - np.pi) > 0.5
    weight = jnp.asarray(np.where(away, test.weight, 0.0))
    costs = []
    for study in (safe, principal):
        tests = (dataclasses.replace(study.tests[0], weight=weight),)
        costs.append(float(cost_of(dataclasses.replace(study.problem, tests=tests), jnp.asarray(truth_u(safe)))))
    assert weight.any()
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)


def test_jacobian_of_every_family(crane):
    families = {name.split(".")[0] for name in crane.free.names}
    assert families == {"stiffness", "damping", "mass", "first_moment", "inertia", "rotor_inertia"}
    assert "stiffness.stay" in crane.free.names
    # Only the wrist's zz moment and its centre in its own plane act about its one axis; what lies across acts too, as
    # the wrist is carried around by the lever.
    assert_jacobian(crane.problem, near_truth(crane))


def test_tests_count_by_their_noise(tmp_path):
    """FRFs of twice the noise count a quarter; others by their variance, in units of the first noise."""
    first, second = (frf(noise=0.02, noise_log_std=level) for level in (0.02, 0.04))
    problem = study_of(tmp_path, first, second, loads()).problem
    assert float(problem.noise_unit) == 0.02
    u = jnp.log(jnp.array([4e4, 1e4, 30.0, 3.0]))
    model = problem.free.apply(problem.model, problem.free.values(u))
    a, b, c = (residual_alone(t, model) for t in problem.tests)
    np.testing.assert_allclose(b, a / 2.0, rtol=1e-12)
    expected = 0.02**2 * (a @ a + b @ b + c @ c)
    assert float(np.sum(residual_of(problem, u) ** 2)) == pytest.approx(expected, rel=1e-12)
    assert float(objective(problem, u)) == pytest.approx(expected, rel=1e-12)
    rows = np.asarray(problem.stated_variances())
    assert rows.size == a.size + b.size + c.size == residual_of(problem, u).size


def test_tests_together_are_tests_one_by_one(tmp_path):
    """Tests of one form run as one program; the residuals are those of each alone, in the order of the study."""
    study = study_of(tmp_path, frf(), shapes(), frf(b=0.9), loads(), frf(b=-0.4, noise_log_std=0.03), shapes(b=1.1))
    problem = study.problem
    assert group_by_form([without_name(test) for test in problem.tests], problem.views) == [[0, 2, 4], [1, 5], [3]]
    u = jnp.log(jnp.array([4e4, 1e4, 30.0, 3.0]))
    model = problem.free.apply(problem.model, problem.free.values(u))
    alone = [residual_alone(test, model) for test in problem.tests]
    together = np.asarray(residual_of(problem, u)) / float(problem.noise_unit)
    # sums of a few dozen products in another order
    np.testing.assert_allclose(together, np.concatenate(alone), rtol=1e-9, atol=1e-9)
    assert [rows.stop - rows.start for rows in problem.row_slices] == [r.size for r in alone]
    for rows, r in zip(problem.row_slices, alone, strict=True):
        np.testing.assert_allclose(together[rows], r, rtol=1e-9, atol=1e-9)
    assert problem.data_rows == problem.stated_variances().size == together.size


def test_rows_of_a_prior_are_the_last(tmp_path):
    """A row for each parameter, of which those that the prior says nothing of count for nothing."""
    study = study_of(tmp_path, frf(), prior={"damping.*": 0.5})
    problem, u = study.problem, np.log(list(TRUTH.values()))
    residual = np.asarray(residual_of(problem, jnp.asarray(u))) / float(problem.noise_unit)
    assert problem.row_slices[-1].stop == problem.data_rows == residual.size - 4
    away = (u - study.free.encode(study.start.values)) / [np.inf, np.inf, 0.5, 0.5]
    np.testing.assert_allclose(residual[problem.data_rows :], away, rtol=1e-12)
    np.testing.assert_array_equal(problem.stated_variances()[problem.data_rows :], [0.0, 0.0, 1.0, 1.0])
    # u may be NumPy's, compiled or not
    data = residual[: problem.data_rows] * float(problem.noise_unit)
    assert float(np.sum(problem.data_residual(study.free.values(u)) ** 2)) == pytest.approx(data @ data, rel=1e-9)


def test_each_kind_adds_what_it_knows(tmp_path):
    """Information adds up: the inverse covariance of all tests is the sum of those of each alone."""
    u = jnp.log(jnp.array(list(TRUTH.values())))

    def information(*tests):
        # without gravity, whose stiffness acts in deflections beside other tests alone
        problem = study_of(tmp_path, *tests, gravity=[0.0, 0.0, 0.0]).problem
        _, jacobian, _ = final_state(problem, u)
        return np.asarray(jacobian).T @ np.asarray(jacobian)

    alone = sum(information(test) for test in (frf(), loads()))
    np.testing.assert_allclose(information(frf(), loads()), alone, rtol=1e-8, atol=1e-6 * np.abs(alone).max())


def test_laws_take_other_values_in_each_test(tmp_path):
    """Residuals at the values of each test are those of each test at its own values."""
    problem = study_of(tmp_path, frf(), loads(), frf(b=0.9), loads(name="more")).problem
    values = np.array([4e4, 1e4, 30.0, 3.0]) * np.array([1.0, 1.1, 1.3, 1.7])[:, None]
    parts = eqx.filter_jit(lambda p, v: p.residuals_by_test(v))(problem, jnp.asarray(values))
    for part, test, own in zip(parts, problem.tests, values, strict=True):
        alone = residual_alone(test, problem.free.apply(problem.model, jnp.asarray(own)))
        np.testing.assert_allclose(part, alone, rtol=1e-9, atol=1e-9)


def test_the_jacobian_of_a_large_problem_is_never_whole(tmp_path, monkeypatch):
    """Block by block the same numbers as from the whole Jacobian in dense algebra: weights, a prior, a free delay."""
    free = FREE | {"delay.one": {"lower": -1e-3, "upper": 1e-3}}
    peaks = {"peaks": 80, "elsewhere": 0.5}
    tests = frf(noise=0.02, noise_log_std=0.02, weights=peaks, name="one"), frf(b=0.9, name="two"), loads()
    problem = study_of(tmp_path, *tests, free=free, prior={"damping.*": 0.5}).problem
    u = np.append(np.log(list(TRUTH.values())) + 0.01, 0.4)
    residual, whole, weights = (np.asarray(x) for x in final_state(problem, jnp.asarray(u)))
    monkeypatch.setattr(problem_module, "MOST_ENTRIES", 0)
    values, jacobian, same = linearized(problem, u)
    blocks = row_blocks(jacobian)
    assert len(blocks) == 4
    assert jacobian.shape == whole.shape
    np.testing.assert_allclose(values, residual, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.concatenate([jacobian[rows] for rows in blocks]), whole, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(same, weights)
    r, rows = compressed(problem, u)
    assert rows.shape == (6, 5)
    np.testing.assert_allclose(rows.T @ rows, whole.T @ whole, rtol=1e-9, atol=1e-9 * np.abs(whole.T @ whole).max())
    np.testing.assert_allclose(rows.T @ r, whole.T @ residual, rtol=1e-7)
    assert r @ r == pytest.approx(residual @ residual, rel=1e-12)
    hat = whole @ np.linalg.pinv(whole)
    left = (np.eye(weights.size) - hat) * weights @ (np.eye(weights.size) - hat)
    for found, own in zip(
        reduced_chi_squares_of_tests(problem, values, jacobian, weights), problem.row_slices, strict=True
    ):
        mean, spread = np.trace(left[own, own]), np.sum(left[own, own] ** 2)
        assert found.degrees == pytest.approx(mean**2 / spread, rel=1e-9)
        assert found.square == pytest.approx(residual[own] @ residual[own] / mean, rel=1e-8)
    variances = row_variances(problem, values, jacobian, weights)
    gain = np.linalg.pinv(whole)
    np.testing.assert_allclose(identifiability(jacobian, variances).covariance, gain * variances @ gain.T, rtol=1e-7)
    information = information_rows(jacobian, variances)
    np.testing.assert_allclose(np.linalg.inv(information.T @ information), gain * variances @ gain.T, rtol=1e-7)
