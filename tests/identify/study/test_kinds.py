"""Kinds of tests: each has a format and a reader, and the other tables know no further kinds."""

import inspect

import pytest
from pydantic import ValidationError

from jaxmb.identify.assess.kinds import KINDS, Kind
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.plan.inspection import PLANNERS
from jaxmb.identify.study.format.next_format import AnyNextPart
from jaxmb.identify.study.format.study_format import AnyTestPart, StudyFile
from jaxmb.identify.study.reading.tests import READERS
from jaxmb.report.inspection import NEXT_REPORTS
from jaxmb.report.tests import PARTS, SECTIONS, plain_sections
from tests.identify.arm import frf, loads, shapes, study_of

EXAMPLES = {"frf": frf(), "modes": shapes(), "deflection": loads()}
FORMATS = {part.model_fields["kind"].annotation.__args__[0]: part for part in AnyTestPart.__args__}
NEXT_FORMATS = {part.model_fields["kind"].annotation.__args__[0] for part in AnyNextPart.__args__}


def arguments(function):
    return list(inspect.signature(function).parameters)


def test_all_tables_have_the_same_kinds():
    assert FORMATS.keys() == READERS.keys()
    assert KINDS.keys() | SECTIONS.keys() | PLANNERS.keys() <= READERS.keys()
    assert PARTS.keys() <= SECTIONS.keys()
    assert NEXT_FORMATS == PLANNERS.keys() == NEXT_REPORTS.keys()


@pytest.mark.parametrize("kind", READERS)
def test_functions_of_a_kind_have_the_arguments_of_all(kind):
    assert arguments(READERS[kind]) == ["part", "label", "context"]
    assert arguments(SECTIONS.get(kind, plain_sections)) == ["result", "entries"]
    own = KINDS.get(kind, Kind())
    assert arguments(own.metrics.of_fit) == ["estimate", "entries"]
    remarks = own.remarks
    assert remarks is None or arguments(remarks) == ["estimate", "entries", "metrics"]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_entries_name_their_kind(tmp_path, kind):
    (entry,) = study_of(tmp_path, EXAMPLES[kind]).entries
    assert isinstance(entry, Entry)
    assert entry.kind == kind
    assert entry.name == entry.test.name == "test 1"
    assert entry.truth is not None


def test_other_kinds_are_refused_with_those_there_are():
    data = {"machine": "arm.toml", "test": [{"kind": "sound"}], "free": {"stiffness.*": {"lower": 1.0, "upper": 2.0}}}
    with pytest.raises(ValidationError) as error:
        StudyFile.model_validate(data)
    assert all(f"'{kind}'" in str(error.value) for kind in READERS)
