"""How far values scatter: by Monte-Carlo draws as to first order, and less the more tests there are."""

import dataclasses

import numpy as np
import pytest

from jaxmb.identify.assess.deflections.monte_carlo import convergence, monte_carlo
from jaxmb.identify.assess.deflections.solve import equations, fit_deflections, unknowns
from jaxmb.identify.study.study import load_study

STUDY = load_study("kr240-joint-stiffness")
FOUND = unknowns(STUDY.model, STUDY.free)
FITTED = [group for group in STUDY.deflections if group.role == "fit"]
ROWS = equations(STUDY.model, FOUND, FITTED)
FIT = fit_deflections(FOUND, ROWS, STUDY.initial)


def with_instruments(**errors):
    (group,) = FITTED
    if not errors:
        return [dataclasses.replace(group, instruments=None)]
    assert group.instruments is not None
    return [dataclasses.replace(group, instruments=group.instruments.model_copy(update=errors))]


@pytest.mark.parametrize("sets", [with_instruments(balance_kg=0.0, encoder_deg=0.0), with_instruments()])
def test_errors_of_the_tracker_alone_are_those_of_the_covariance(sets):
    drawn = monte_carlo(STUDY.model, FOUND, sets, STUDY.initial, 600, 2)
    truth = np.array([STUDY.truth[name] for name in STUDY.free.names])
    assert drawn.std[0] == np.inf
    exact = [
        dataclasses.replace(ROWS, displacement=ROWS.matrix @ FOUND.compliance(truth)),
    ]
    known = fit_deflections(FOUND, exact[0], STUDY.initial).known.std
    # 600 draws tell a standard deviation to 2.9 %, and values that err by 5 % add their second order: four times both.
    np.testing.assert_allclose(drawn.std[1:] / truth[1:], known[1:], rtol=0.13)


def test_each_instrument_adds_its_own():
    def scatter(**errors):
        return monte_carlo(STUDY.model, FOUND, with_instruments(**errors), STUDY.initial, 200, 3).std[1:]

    quiet = scatter(tracker_mm=1e-6, balance_kg=0.0, encoder_deg=0.0)
    weighed = scatter(tracker_mm=1e-6, balance_kg=5.0, encoder_deg=0.0)
    turned = scatter(tracker_mm=1e-6, balance_kg=0.0, encoder_deg=1.0)
    assert np.all(weighed > 100.0 * quiet)
    assert np.all(turned > 100.0 * quiet)


def test_a_weak_stiffness_scatters_as_its_compliance_and_not_as_its_bound():
    def of(upper: float):
        least = np.where(np.arange(6) == 1, 1.0 / upper, FOUND.least)
        noisy = with_instruments(tracker_mm=3.0)
        return monte_carlo(STUDY.model, dataclasses.replace(FOUND, least=least), noisy, STUDY.initial, 100, 6)

    near, far = of(1e10), of(1e14)
    on_bound = np.isclose(near.values[:, 1], 1e10)
    assert 10 < on_bound.sum() < 90
    assert near.clipped[1] == on_bound.sum()
    # The two bounds differ by 1e4; as compliances both are next to none, 1e-3 of the joint's 1.5e-7 rad/Nm.
    assert near.std[1] == pytest.approx(far.std[1], rel=1e-2)
    assert near.std[1] < 0.1 * near.values[:, 1].std()


def test_draws_without_a_clipped_compliance_count_none():
    drawn = monte_carlo(STUDY.model, FOUND, FITTED, STUDY.initial, 20, 1)
    np.testing.assert_array_equal(drawn.clipped, np.zeros(6, int))


def test_a_seed_gives_its_draws_again():
    first, again, other = (monte_carlo(STUDY.model, FOUND, FITTED, STUDY.initial, 5, s).values for s in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_all_tests_give_the_same_in_any_order():
    settled = convergence(FOUND, ROWS, STUDY.initial, 4)
    assert settled.counts.tolist() == list(range(1, 24))
    assert np.isnan(settled.values[:, :, 0]).all()
    np.testing.assert_allclose(settled.values[:, -1, 1:], np.tile(FOUND.values(FIT.compliance)[1:], (50, 1)), rtol=1e-9)
    # Nine tests instead of three: errors are divided by about the root of three.
    few, more = (np.nanstd(np.log(settled.values[:, k, 1:]), axis=0) for k in (2, 8))
    assert np.all(more < few)


def test_many_tests_are_looked_at_in_fewer_orders():
    (group,) = FITTED
    rows = equations(STUDY.model, FOUND, [dataclasses.replace(group, tests=group.tests * 20)])
    settled = convergence(FOUND, rows, STUDY.initial, 4)
    assert settled.counts.size == 24
    assert settled.counts[-1] == 460
    assert 4 <= len(settled.values) < 10
