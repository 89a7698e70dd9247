"""Stiffness from modes, then damping from FRFs (Rognant et al. 2010), beside what was simulated."""

import dataclasses
import types

import jax
import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.uncertainty.monte_carlo import monte_carlo
from jaxmb.identify.assess.uncertainty.nonlinear import profiled
from jaxmb.identify.experiments.frf.frf_test import FrfTest
from jaxmb.identify.fit import two_steps
from jaxmb.identify.fit.loop import run_fit
from jaxmb.identify.fit.problem import Prior
from jaxmb.identify.fit.two_steps import two_step_fit
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters, subset
from jaxmb.identify.study.reading.parameters import whitening
from tests.identify.arm import BRIEF, FREE, MACHINE, TRUTH, frf, shapes, study_of

METHOD = {"method": "rognant2010"} | BRIEF
# proportional to the stiffness, as the method takes it: the modes are those of the undamped machine
DAMPED = TRUTH | {"damping.a": 50.0, "damping.b": 9.0}


def measured(seed=None, noise=0.02, **truth):
    """Both modes, and FRFs with several lines in each half-power bandwidth."""
    modes = shapes(noise=seed is not None, frequency_std_hz=0.005)
    modes["simulate"]["parameters"] = DAMPED
    lines = {"first_hz": 2.0, "last_hz": 25.0, "step_hz": 0.05}
    simulate = {"lines": lines, "noise_log_std": noise, "parameters": DAMPED | truth}
    return [modes, *(frf(name=name, simulate=simulate, **role) for name, role in (
        ("tool", {"band_hz": [2.0, 18.0]}), ("wide", {"role": "check"})))]  # fmt: skip


def made(folder, seed=None, **changes):
    return study_of(folder, *measured(seed, **changes), noise_seed=seed, **METHOD)


def test_values_criterion_and_the_modes_damping(tmp_path):
    study = made(tmp_path, noise=0.0)
    result = identify(study)
    assert result.status == "converged"
    for name, true in DAMPED.items():
        assert result.parameters[name].value == pytest.approx(true, rel=1e-5)
    # the criterion by hand, of the fitted band and of all lines
    jq = result.metrics["jq_percent"]
    assert set(jq) == {"tool", "wide"}
    assert jq["tool"] < 1e-8
    other = identify(made(tmp_path, 0))
    test = other.study.tests[1]
    hertz = np.asarray(test.omega) / (2.0 * np.pi)
    own = np.asarray(jaxmb.frf(other.model, test.q, hertz, outputs=test.outputs, inputs=test.inputs))
    used = np.asarray(test.weight) > 0.0
    error = np.sum(np.abs(own - test.measured)[used] ** 2) / np.sum(np.abs(test.measured)[used] ** 2)
    assert other.metrics["jq_percent"]["tool"] == pytest.approx(100.0 * error, rel=1e-9)


def test_without_noise_only_rounding_limits_the_damping(tmp_path):
    """Given the stiffness, the standard deviation is that of errors of 1e-9 of the responses' root mean square."""
    study = made(tmp_path, noise=0.0)
    u = np.asarray(study.free.encode(np.array([DAMPED[name] for name in study.free.names])))
    second = np.array([name.startswith("damping") for name in study.free.names])
    frfs = {k: test for k, test in enumerate(study.problem.tests) if isinstance(test, FrfTest)}
    (test,) = frfs.values()
    rows = two_steps._damping_rows(study.problem, frfs, u, np.flatnonzero(second))[:, second]
    hertz, used = np.asarray(test.omega) / (2.0 * np.pi), np.asarray(test.weight) > 0.0

    def responses(x):
        model = study.free.apply(study.model, np.asarray(study.free.values(x)))
        flat = np.asarray(jaxmb.frf(model, test.q, hertz, outputs=test.outputs, inputs=test.inputs))[used]
        return np.concatenate([flat.real, flat.imag])

    slopes = [(responses(u + e) - responses(u - e)) / 2e-4 for e in 1e-4 * np.eye(u.size)[second]]
    variance = 1e-18 * np.mean(responses(u) ** 2)
    expected = variance * np.linalg.inv(np.array(slopes) @ np.array(slopes).T)
    np.testing.assert_allclose(np.linalg.inv(rows.T @ rows), expected, rtol=1e-3)


@pytest.mark.parametrize("factor", [0.0, 2.0])
def test_dampings_that_frfs_do_not_determine(monkeypatch, factor):
    """One without effect on them, or known in combination only: the other one's information is that of it alone."""
    rng = np.random.default_rng(0)
    slope, error = rng.normal(size=(50, 1, 1, 3)) + 1j, rng.normal(size=(50, 1, 1))
    slope[..., 2] = factor * slope[..., 1]
    monkeypatch.setattr(two_steps, "_responses", lambda problem, frfs, u: [error + slope @ u])
    frfs = {0: types.SimpleNamespace(measured=np.ones((50, 1, 1)))}
    alone, both = (two_steps._damping_rows(None, frfs, np.zeros(3), np.array(own)) for own in ([1], [1, 2]))
    assert both.shape == (1, 3)
    np.testing.assert_allclose(np.outer(both, both), np.outer(alone, alone), rtol=1e-6)


def test_the_first_step_keeps_the_correlations_of_a_prior(tmp_path):
    study = made(tmp_path)
    first = np.array([not name.startswith("damping") for name in study.free.names])
    entries, std = np.flatnonzero(first), np.where(first, 0.1, np.inf)
    covariance = 0.01 * (0.1 * np.eye(entries.size) + 0.9)
    prior = Prior(np.zeros(first.size), std, whitening(std, entries, covariance))
    problem = dataclasses.replace(study.problem, prior=prior)
    rows = two_steps._first_problem(problem, (), entries, study.start.values).prior.rows
    np.testing.assert_allclose(np.linalg.inv(rows.T @ rows), covariance, rtol=1e-9)


def test_intervals_hold_the_truth(tmp_path):
    """Errors of both steps, in standard deviations, over some draws of all noise."""
    errors = []
    for seed in range(12):
        study = made(tmp_path, seed)
        fit, information = two_step_fit(study.problem, study.settings, study.start, seed)
        true = study.free.encode(np.array([DAMPED[name] for name in study.free.names]))
        covariance = np.linalg.inv(information.T @ information)
        errors.append((fit.best_u - true) / np.sqrt(np.diag(covariance)))
    squares = np.mean(np.square(errors), axis=0)
    # chi-square of 12: 1e-3 on either side; within it twelve draws of each parameter
    assert squares.min() > 0.18
    assert squares.max() < 2.8


def test_a_residual_of_the_frfs_that_errors_of_the_modes_explain(tmp_path):
    """With narrow peaks it is beyond the noise of the FRFs, and no sign of a wrong description."""
    modes, tool, _ = measured(0)
    modes["frequency_std_hz"] = 0.05
    result = identify(study_of(tmp_path, modes, tool | {"noise_log_std": 0.02}, noise_seed=0, **METHOD))
    assert not result.metrics.misfit.explained
    assert not result.doubts
    # the noise of the frequencies is 0.6 % of the first, twice as much of a stiffness
    for stiffness, true in ((result.parameters[name], TRUTH[name]) for name in ("stiffness.a", "stiffness.b")):
        assert abs(stiffness.value / true - 1.0) < 2.0 * stiffness.std / true < 0.04
    assert result.remarks == (
        f"reduced chi-square {result.metrics.misfit.square:.3g} (residual {result.metrics.misfit.factor:.3g} times the"
        " stated noise): errors of the values of the two steps explain it, within their standard deviations",
    )


def test_stiffness_is_that_of_the_modes_alone(tmp_path):
    """An error of the FRFs' scale moves the damping, and no stiffness."""
    plain, wrong = identify(made(tmp_path, 1)), identify(made(tmp_path, 1, **{"mass.fore": 8.04}))
    for name in ("stiffness.a", "stiffness.b"):
        assert wrong.parameters[name].value == plain.parameters[name].value
    assert wrong.parameters["damping.b"].value != pytest.approx(plain.parameters["damping.b"].value, rel=1e-2)


@pytest.mark.parametrize(
    ("tests", "free", "text"),
    [
        ([frf()], FREE, "no modal test is fitted"),
        ([shapes()], FREE, "no FRF test is fitted"),
        ([shapes(), frf()], {"stiffness.*": FREE["stiffness.*"]}, "no damping is free"),
        ([shapes(), frf()], {"damping.*": FREE["damping.*"]}, "damping alone is free"),
    ],
)
def test_both_steps_need_data_and_parameters(tmp_path, tests, free, text):
    with pytest.raises(ValueError, match=text):
        study_of(tmp_path, *tests, free=free, **METHOD)


def test_a_prior_of_damping_is_refused(tmp_path):
    study_of(tmp_path, *measured(), prior={"stiffness.*": 0.5}, **METHOD)
    with pytest.raises(ValueError, match="a prior of damping is given"):
        study_of(tmp_path, *measured(), prior={"damping.*": 0.5}, **METHOD)


def test_draws_and_profiles_fit_all_tests_at_once(tmp_path):
    study = made(tmp_path)
    with pytest.raises(NotImplementedError, match="draws are for fits to all tests at once"):
        monte_carlo(study)
    with pytest.raises(NotImplementedError, match="profiles are of one cost"):
        profiled(study, ["stiffness.a"])


def test_an_inspection_states_that_it_is_of_one_fit(tmp_path):
    """FRFs and modes together determine the stiffness better than the modes alone."""
    remarks = jaxmb.inspect(study_of(tmp_path, *measured(), **METHOD)).remarks
    assert remarks == ("preset 'rognant2010': the prediction is of one fit to all tests, not of the two steps",)


def test_a_first_step_that_did_not_converge(tmp_path, monkeypatch):
    def stopped(*args):
        fit = run_fit(*args)
        return dataclasses.replace(fit, best_u=fit.best_u + 0.02, converged=False)

    monkeypatch.setattr(two_steps, "run_fit", stopped)
    assert identify(made(tmp_path, 0)).status.startswith("not converged")


def test_first_problem_keeps_what_is_not_free():
    model = jaxmb.build_model(MACHINE)
    bounds = [Bound(("stiffness.a", "stiffness.b"), 1.0, 9e9), Bound(("damping.b",), 1.0, 9e9)]
    free = subset(free_parameters(model, bounds), np.array([1]))
    moved = free.apply(model, np.array([7.0]))
    assert jaxmb.parameters(moved) == jaxmb.parameters(model) | {"damping.b": 7.0}
    assert jax.tree.structure(moved) == jax.tree.structure(model)
