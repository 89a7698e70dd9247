"""Every setting of a study changes what it says it changes."""

from pathlib import Path

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.fit.loop import run_fit
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.io.files import find_description, read_toml


def study(refine=None, weights=None, noise=0.0, **changes):
    """The shipped validation study with some settings changed."""
    data = read_toml(find_description("validation-3r", "studies", "study", (".toml",)))
    data["refine"] = refine or {}
    data["test"][0]["weights"] |= weights or {}
    data["test"][0]["simulate"]["noise_log_std"] = noise
    return jaxmb.make_study(StudyFile.model_validate(data | changes), "validation-3r", Path())


def raised_lines(changed):
    return int(np.sum(np.asarray(changed.tests[0].weight) == 50.0))


def test_prominence_and_half_width():
    """No peak of these FRFs stands out by five decades; a peak alone is a fifth of one with two lines to each side."""
    assert raised_lines(study(weights={"prominence": 5.0})) == 0
    alone, wide = (raised_lines(study(weights={"half_width_lines": n})) for n in (0, 2))
    assert 0 < alone < wide <= 5 * alone


def test_rounds_until_the_fit_may_stop():
    """With noise the tolerance is out of reach: least_rounds and agreement decide how many rounds are made."""
    loose = {"noise": 0.01, "rounds": 12}
    once = run_fit(study(**loose, least_rounds=1, agreement=1), 0)
    four = run_fit(study(**loose, least_rounds=4, agreement=1), 0)
    agreed = run_fit(study(**loose, least_rounds=1, agreement=6), 0)
    assert once.round == 1
    assert four.round == 4
    assert 1 < agreed.round < 12
    assert len([m for m in agreed.minima if m <= agreed.best * (1 + 1e-6)]) >= 6


def test_starts_and_steps_of_a_round():
    """Evaluations on the coarse lines grow with the starts, and end at the most steps."""
    few, many = (run_fit(study({"starts": n}, rounds=1, least_rounds=1), 0) for n in (1, 8))
    assert many.search_evaluations > 3 * few.search_evaluations
    short = run_fit(study({"starts": 1, "coarse_steps": 10}, rounds=1, least_rounds=1), 0)
    assert short.search_evaluations == 10
    assert few.search_evaluations > 10


def test_how_many_are_refined():
    """With noise all starts that found the minimum look alike on the coarse lines: `keep` of them go on."""
    noisy = {"noise": 0.01, "rounds": 1, "least_rounds": 1}
    one, four = (run_fit(study({"starts": 8, "keep": n}, **noisy), 0) for n in (1, 4))
    assert (len(one.minima), len(four.minima)) == (1, 4)


def test_gradient_tolerance():
    """A loose tolerance ends a noisy refinement sooner, and further from the minimum."""
    noisy = {"noise": 0.01, "rounds": 1, "least_rounds": 1}
    loose, tight = (run_fit(study({"gradient_tolerance": t}, **noisy), 0) for t in (1e-2, 1e-9))
    assert loose.refine_evaluations < tight.refine_evaluations
    assert loose.best > tight.best


def test_estimated_start_has_the_first_measured_frequency():
    """Stiffnesses that nobody gave are scaled until the first natural frequency is that of the first peak."""
    estimated = study(start="estimate")
    model = estimated.free.apply(estimated.model, estimated.start.values)
    first = jaxmb.undamped_modes(jaxmb.linearize(model, estimated.tests[0].q)).frequency_hz[0]
    # The first peak lies at the mode of 10.18 Hz, to the step of the lines.
    assert first == pytest.approx(10.18, abs=0.2)
    assert not estimated.start.given.any()
    fits = {start: run_fit(study(start=start), 0).initial_u for start in ("estimate", "random")}
    assert np.abs(fits["estimate"] - fits["random"]).max() > 0.1
