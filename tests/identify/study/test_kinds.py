"""The registry of kinds of tests: every row leads to what it names, and a study file knows the same kinds."""

import inspect

import pytest
from pydantic import ValidationError

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.format.test_format import TestPart
from jaxmb.identify.study.kinds import KINDS
from tests.identify.arm import frf, loads, shapes, study_of

EXAMPLES = {"frf": frf(), "modes": shapes(), "deflection": loads()}


def arguments(function):
    return list(inspect.signature(function).parameters)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_leads_to_what_it_names(kind):
    row = KINDS[kind]
    assert issubclass(row.format, TestPart)
    assert row.format.model_fields["kind"].annotation.__args__ == (kind,)
    if kind in EXAMPLES:
        assert arguments(row.reader) == ["part", "label", "setting"]
        assert arguments(row.metrics.found) == ["finding", "entries"]
    if row.remarks is not None:
        assert arguments(row.remarks) == ["finding", "entries", "metrics"]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_entries_name_their_row(tmp_path, kind):
    (entry,) = study_of(tmp_path, EXAMPLES[kind]).entries
    assert isinstance(entry, Entry)
    assert entry.kind == kind
    assert entry.name == entry.test.name == "test 1"
    assert entry.truth is not None


def test_other_kinds_are_refused_with_those_there_are():
    data = {"machine": "arm.toml", "test": [{"kind": "sound"}], "free": {"stiffness.*": {"lower": 1.0, "upper": 2.0}}}
    with pytest.raises(ValidationError) as told:
        StudyFile.model_validate(data)
    assert all(f"'{kind}'" in str(told.value) for kind in KINDS)
