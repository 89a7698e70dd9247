"""How far values scatter: by Monte-Carlo draws as to first order, and less the more tests there are."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.assess.linear_estimate import linear_estimate
from jaxmb.identify.assess.tests import deflections
from jaxmb.identify.assess.tests.deflections import convergence, monte_carlo
from jaxmb.identify.experiments.components import Equations
from jaxmb.identify.fit.linear import linear_step
from jaxmb.identify.study.study import load_study

TRACKER_ALONE = {"balance_kg": 0.0, "encoder_deg": 0.0}


@pytest.fixture(scope="module")
def estimate():
    """What is found of a robot of known stiffness, at the truth itself."""
    study = load_study("kr240-joint-stiffness")
    truth = np.array([study.truth[name] for name in study.free.names])
    model = study.free.apply(study.model, jnp.asarray(truth))
    return dataclasses.replace(linear_estimate(study, seed=2), values=truth, model=model)


def draws(estimate, count, seed=2, upper=None, stated=1.0, **errors):
    """Monte-Carlo draws with other errors of the instruments.

    Args:
        estimate: of the robot.
        count: how many.
        seed: of the draws.
        upper: bound of the second stiffness instead of the study's own.
        stated: standard deviations in the table, over those of the tracker.
        errors: of the instruments that are not the study's own.
    """
    (entry,) = estimate.study.fitted
    instruments = entry.source.instruments.model_copy(update=errors)
    linear = estimate.linear
    if upper is not None:
        lower = np.where(np.arange(6) == 1, 1.0 / upper, linear.unknowns.lower)
        linear = linear._replace(unknowns=dataclasses.replace(linear.unknowns, lower=lower))
    std = stated * np.repeat([instruments.translation_std, instruments.rotation_std], 3)[None]
    cases = tuple(dataclasses.replace(case, std=std) for case in entry.source.cases)
    changed = dataclasses.replace(entry, source=dataclasses.replace(entry.source, instruments=instruments, cases=cases))
    return monte_carlo(dataclasses.replace(estimate, seed=seed, solved=linear), [changed], count)


def without_instruments(estimate, count):
    (entry,) = estimate.study.fitted
    plain = dataclasses.replace(entry, source=dataclasses.replace(entry.source, instruments=None))
    return monte_carlo(estimate, [plain], count)


@pytest.mark.parametrize("read", [lambda f, n: draws(f, n, **TRACKER_ALONE), without_instruments])
def test_errors_of_the_tracker_alone_are_those_of_the_covariance(estimate, read):
    drawn = read(estimate, 600)
    assert drawn.std[0] == np.inf
    found, rows, _, start = estimate.linear
    exact = rows._replace(measured=rows.matrix @ found.encode(estimate.values))
    known = linear_step(found, exact, start).identifiability.std
    # 600 draws tell a standard deviation to 2.9 %, and values that err by 5 % add their second order: four times both.
    np.testing.assert_allclose(drawn.std[1:] / estimate.values[1:], known[1:], rtol=0.13)


def test_errors_of_displacements_are_those_of_the_table(estimate):
    """A table may state other standard deviations than follow from the tracker."""
    own, smaller = (draws(estimate, 50, seed=4, stated=stated, **TRACKER_ALONE).std[1:] for stated in (1.0, 0.1))
    np.testing.assert_allclose(smaller, 0.1 * own, rtol=0.05)


def test_each_instrument_adds_its_own(estimate):
    def scatter(**errors):
        return draws(estimate, 100, seed=3, tracker_mm=1e-6, **TRACKER_ALONE | errors).std[1:]

    quiet = scatter()
    # 100 draws tell a standard deviation to 7 %
    assert np.all(scatter(balance_kg=5.0) > 100.0 * quiet)
    assert np.all(scatter(encoder_deg=1.0) > 100.0 * quiet)


def test_a_weak_stiffness_scatters_as_its_compliance_and_not_as_its_bound(estimate):
    near, far = (draws(estimate, 100, seed=6, upper=upper, tracker_mm=3.0) for upper in (1e10, 1e14))
    on_bound = np.isclose(near.values[:, 1], 1e10)
    assert 10 < on_bound.sum() < 90
    assert near.clipped[1] == on_bound.sum()
    # The two bounds differ by 1e4; as compliances both are next to none, 1e-3 of the joint's 1.5e-7 rad/Nm.
    assert near.std[1] == pytest.approx(far.std[1], rel=1e-2)
    assert near.std[1] < 0.1 * near.values[:, 1].std()


def test_draws_without_a_clipped_compliance_count_none(estimate):
    np.testing.assert_array_equal(draws(estimate, 20, seed=1).clipped, np.zeros(6, int))


def test_a_seed_gives_its_draws_again(estimate):
    first, again, other = (draws(estimate, 5, seed).values for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_all_tests_give_the_same_in_any_order(estimate, monkeypatch):
    monkeypatch.setattr(deflections, "MOST_ORDERS", 50)
    settled = convergence(estimate.linear, 4)
    assert settled.counts.tolist() == list(range(1, 24))
    assert np.isnan(settled.values[:, :, 0]).all()
    found, _, step, _ = estimate.linear
    np.testing.assert_allclose(settled.values[:, -1, 1:], np.tile(found.decode(step.x)[1:], (50, 1)), rtol=1e-9)
    # Nine tests instead of three: errors are divided by about the root of three.
    few, more = (np.nanstd(np.log(settled.values[:, k, 1:]), axis=0) for k in (2, 8))
    assert np.all(more < few)


def test_many_tests_are_looked_at_in_fewer_orders(estimate, monkeypatch):
    monkeypatch.setattr(deflections, "MOST_ORDERS", 50)
    rows = estimate.linear.equations
    cases = np.concatenate([rows.case + k * (rows.case.max() + 1) for k in range(20)])
    many = Equations(*(np.concatenate([part] * 20) for part in rows[:4]), case=cases)
    settled = convergence(estimate.linear._replace(equations=many), 4)
    assert settled.counts.size == 24
    assert settled.counts[-1] == 460
    assert 4 <= len(settled.values) < 10
