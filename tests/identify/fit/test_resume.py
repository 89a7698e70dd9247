"""A fit that is interrupted and taken up again ends where it would have ended."""

import dataclasses

import numpy as np
import pytest

from jaxmb.identify.fit import loop as fitting
from jaxmb.identify.fit.loop import run_fit as run
from jaxmb.identify.fit.settings import RefinePart, SearchPart
from jaxmb.io.validation import InputError
from tests.identify.arm import FREE, frf, study_of

HOW = {
    "least squares": (SearchPart(), RefinePart()),
    "search": (SearchPart(algorithm="SimpleGA", population=16, generations=30), RefinePart()),
    "search behind drawn starts": (SearchPart(population=16, generations=10), RefinePart()),
    "nelder-mead": (SearchPart(), RefinePart(method="nelder-mead", most_steps=1200)),
}


def noisy_study(folder, free):
    """The arm with 1 % of noise, whose tolerance is out of reach, so that several rounds are made."""
    return study_of(folder, frf(noise=0.01, noise_log_std=0.01), start="random", rounds=2, free=free)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return noisy_study(tmp_path_factory.mktemp("resume"), FREE)


def with_settings(study, **settings):
    return dataclasses.replace(study, settings=dataclasses.replace(study.settings, **settings))


def with_method(base, how):
    search, refine = HOW[how]
    return with_settings(base, search=search, refine=refine)


def run_fit(study, seed, *saved, **how):
    return run(study.problem, study.settings, study.start, seed, *saved, **how)


@pytest.fixture(autouse=True)
def save_always(monkeypatch):
    monkeypatch.setattr(fitting, "SAVE_EVERY_S", 0.0)


class Interrupt:
    """Interrupts a fit, as Ctrl-C does, after so many reports."""

    def __init__(self, after):
        self.left = after

    def __call__(self, report):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("how", HOW)
def test_resume_is_as_if_never_stopped(base, how, tmp_path, monkeypatch):
    monkeypatch.setattr(fitting, "RANDOM_ROUNDS", 1)
    # Of six parameters Nelder-Mead needs more evaluations than it makes between two reports.
    base = noisy_study(tmp_path, FREE | {"mass.*": {"lower": 1.0, "upper": 90.0}}) if how == "nelder-mead" else base
    study, state = with_method(base, how), tmp_path / "state.npz"
    reports = []
    whole = run_fit(study, 7, report=reports.append)
    # During the first stage, in the middle, and with all done but the last; a search is compiled anew for each run.
    places = sorted({2, len(reports) - 1} if how == "search" else {2, 3, len(reports) // 2, len(reports)} - {0, 1})
    assert {r.stage for r in reports} >= {"refine"}
    assert len(reports) > 2
    for after in places:
        state.unlink(missing_ok=True)
        with pytest.raises(KeyboardInterrupt):
            run_fit(study, 7, state, report=Interrupt(after))
        assert state.exists()
        resumed = run_fit(study, 7, state, resume=True)
        assert_same(resumed, whole)


def assert_same(fit, expected):
    """All but the seconds, to the last bit."""
    for field in dataclasses.fields(fit):
        if not field.name.endswith("_seconds"):
            np.testing.assert_array_equal(getattr(fit, field.name), getattr(expected, field.name), err_msg=field.name)


def test_interrupted_again_and_again(base, tmp_path):
    """Two reports at a time: what is done after the last saved state is done again and not counted twice."""
    study, state = with_method(base, "least squares"), tmp_path / "state.npz"
    whole = run_fit(study, 7)
    for _ in range(200):
        try:
            fit = run_fit(study, 7, state, resume=True, report=Interrupt(2))
            break
        except KeyboardInterrupt:
            continue
    assert_same(fit, whole)


def test_a_finished_fit_is_not_run_again(base, tmp_path):
    study, state = with_method(base, "least squares"), tmp_path / "state.npz"
    whole = run_fit(study, 7, state)
    reports = []
    assert_same(run_fit(study, 7, state, resume=True, report=reports.append), whole)
    assert reports == []


def test_without_resuming_a_fit_begins_anew(base, tmp_path):
    study, state = with_method(base, "least squares"), tmp_path / "state.npz"
    run_fit(study, 8, state)
    assert_same(run_fit(study, 7, state), run_fit(study, 7))


@pytest.fixture(scope="module")
def saved(base, tmp_path_factory):
    """State of a fit that was interrupted, as bytes."""
    state = tmp_path_factory.mktemp("saved") / "state.npz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "SAVE_EVERY_S", 0.0)
        with pytest.raises(KeyboardInterrupt):
            run_fit(with_method(base, "least squares"), 7, state, report=Interrupt(2))
    return state.read_bytes()


def refused(study, seed, state, message):
    with pytest.raises(InputError, match=message) as caught:
        run_fit(study, seed, state, resume=True)
    assert str(caught.value).startswith(f"{state}: ")
    assert "\n" not in str(caught.value)


def test_state_of_another_fit(base, saved, tmp_path):
    state = tmp_path / "state.npz"
    state.write_bytes(saved)
    study = with_method(base, "least squares")
    message = "the saved state is of another study, setting or seed"
    refused(study, 8, state, message)
    refused(with_method(base, "nelder-mead"), 7, state, message)
    refused(with_settings(study, rounds=3), 7, state, message)
    other = dataclasses.replace(study.tests[0], weight=study.tests[0].weight * 2.0)
    refused(dataclasses.replace(study, problem=dataclasses.replace(study.problem, tests=(other,))), 7, state, message)
    assert_same(run_fit(study, 7, state, resume=True), run_fit(study, 7))


@pytest.mark.parametrize("content", ["empty", "text", "half", "bit", "array", "less", "more"])
def test_state_that_is_none(base, saved, tmp_path, content):
    study, state = with_method(base, "least squares"), tmp_path / "state.npz"
    plain = {"empty": b"", "text": b"no state\n", "half": saved[: len(saved) // 2]}
    if content in plain:
        state.write_bytes(plain[content])
    elif content == "bit":
        middle = saved.index(b"fit.minima") + 100
        state.write_bytes(saved[:middle] + bytes([saved[middle] ^ 0xFF]) + saved[middle + 1 :])
    elif content == "array":
        with state.open("wb") as file:
            np.save(file, np.zeros(3))
    else:
        state.write_bytes(saved)
        with np.load(state) as stored:
            arrays = dict(stored)
        last = max((n for n in arrays if n.startswith("stage.")), key=lambda n: int(n.split(".")[1]))
        if content == "less":
            del arrays[last]
        else:
            arrays[f"stage.{int(last.split('.')[1]) + 1}"] = arrays[last]
        np.savez(state, **arrays)
    refused(study, 7, state, "not a saved state of a fit")
