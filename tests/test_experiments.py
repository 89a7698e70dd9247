"""Experiments fit the package that they are run with."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
PROGRAMS = sorted(path for path in EXPERIMENTS.glob("*/*.py"))


def loaded(path, monkeypatch):
    """The module of a program, which finds its neighbours as it does when it is run."""
    monkeypatch.syspath_prepend(str(path.parent))
    name = f"experiment_{path.parent.name}_{path.stem}".replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(EXPERIMENTS)))
def test_every_program_finds_what_it_imports(path, monkeypatch):
    module = loaded(path, monkeypatch)
    assert module.__doc__
    assert "__main__" not in path.read_text() or callable(module.main)


def test_alternatives_of_the_kr240_change_one_thing_alone(monkeypatch):
    run = loaded(EXPERIMENTS / "kr240-joint-stiffness" / "run.py", monkeypatch)

    def cases_of(**changes):
        (entry,) = run._changed(**changes).fitted
        return entry.source.cases, entry

    plain, _ = cases_of()
    half, _ = cases_of(loads=0.5)
    for one, other in zip(plain, half, strict=True):
        np.testing.assert_array_equal(other.q, one.q)
        np.testing.assert_allclose(other.wrench, 0.5 * one.wrench, rtol=1e-12)
    near, entry = cases_of(reflectors_m=0.25)
    assert entry.source.instruments.reflectors_m == 0.25
    # reflectors at half the distance: rotations err twice as much, translations as before
    np.testing.assert_allclose(near[0].std, plain[0].std * np.repeat([1.0, 2.0], 3), rtol=1e-12)
    _, entry = cases_of(rotation_weight=4.0)
    np.testing.assert_array_equal(np.unique(np.asarray(entry.test.row_weights())), [1.0, 4.0])
