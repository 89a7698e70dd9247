"""The experiment beside Table II of Dumas et al. 2011 says what it needs."""

import importlib.util
from pathlib import Path

import pytest

from jaxmb.identify.study.reading.deflections import DeflectionSet

RUN = Path(__file__).parents[3] / "experiments" / "kr240-joint-stiffness" / "run.py"


def test_tests_without_instruments_are_named():
    spec = importlib.util.spec_from_file_location("kr240_run", RUN)
    assert spec is not None
    assert spec.loader is not None
    run = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    with pytest.raises(ValueError, match="deflection tests 'fit' have no instruments, expected those whose errors"):
        run._instruments(DeflectionSet("fit", ()), reflectors_m=1.0)
