"""Every setting of a fit changes what it says it changes."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.fit.loop import run_fit
from tests.identify.arm import frf, study_of


@pytest.fixture
def study(tmp_path):
    """The arm from random starts, with some settings changed."""

    def make(refine=None, weights=None, noise=0.01, **settings):
        test = frf(noise=noise, noise_log_std=0.01) | ({} if weights is None else {"weights": weights})
        return study_of(tmp_path, test, **{"start": "random", "refine": refine or {}} | settings)

    return make


def fitted(made):
    return run_fit(made.problem, made.settings, made.start, 0)


def raised_lines(changed):
    return int(np.sum(np.asarray(changed.tests[0].weight) == 50.0))


def test_prominence_and_half_width(study):
    """No peak of these FRFs stands out by five decades; a peak alone is a fifth of one with two lines to each side."""
    peaks = {"peaks": 50, "elsewhere": 0.5}
    assert raised_lines(study(weights=peaks | {"prominence": 5.0})) == 0
    alone, wide = (raised_lines(study(weights=peaks | {"half_width_lines": n})) for n in (0, 2))
    assert 0 < alone < wide <= 5 * alone


def test_rounds_until_the_fit_may_stop(study):
    """With noise the tolerance is out of reach: least_rounds and agreement decide how many rounds are made."""
    once = fitted(study(rounds=12, least_rounds=1, agreement=1))
    four = fitted(study(rounds=12, least_rounds=4, agreement=1))
    agreed = fitted(study(rounds=12, least_rounds=1, agreement=6))
    assert once.round == 1
    assert four.round == 4
    assert 1 < agreed.round < 12
    assert len([m for m in agreed.minima if m <= agreed.best * (1 + 1e-6)]) >= 6


ONCE = {"rounds": 1, "least_rounds": 1}


def test_starts_and_steps_of_a_round(study):
    """Evaluations on the coarse lines grow with the starts, and end at the most steps."""
    few, many = (fitted(study({"starts": n}, **ONCE)) for n in (2, 8))
    assert many.search_evaluations > 3 * few.search_evaluations
    short = fitted(study({"starts": 2, "coarse_steps": 7}, **ONCE))
    assert short.search_evaluations == 2 * 7
    assert few.search_evaluations > 2 * 7


def test_how_many_are_refined(study):
    """After few steps no two starts are at one point of the coarse lines: `keep` of them go on."""
    two, four = (fitted(study({"starts": 8, "keep": n, "coarse_steps": 10}, **ONCE)) for n in (2, 4))
    assert two.refine_evaluations < four.refine_evaluations
    assert len(two.minima) == 2 < len(four.minima) <= 4


def test_gradient_tolerance(study):
    """A loose tolerance ends a noisy refinement sooner, and further from the minimum."""
    loose, tight = (fitted(study({"gradient_tolerance": t}, **ONCE)) for t in (1e-2, 1e-9))
    assert loose.refine_evaluations < tight.refine_evaluations
    assert loose.best > tight.best


def test_estimated_start_has_the_first_measured_frequency(study):
    """Stiffnesses that nobody gave are scaled until the first natural frequency is that of the first peak."""
    estimated = study(start="estimate", noise=0.0)
    model = estimated.free.apply(estimated.model, estimated.start.values)
    q = estimated.tests[0].q
    first, true = (float(jaxmb.undamped_modes(jaxmb.linearize(m, q)).frequency_hz[0]) for m in (model, estimated.model))
    # The first peak lies at the first mode, to the step of the lines.
    assert first == pytest.approx(true, abs=0.25)
    assert not estimated.start.given.any()
    starts = {start: fitted(study(start=start, **ONCE)).initial_u for start in ("estimate", "random")}
    assert np.abs(starts["estimate"] - starts["random"]).max() > 0.1
