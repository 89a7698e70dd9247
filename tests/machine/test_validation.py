"""Sentences on wrong files whose parts may be of several kinds."""

import pytest

from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.io.validation import InputError, error_location, validated
from jaxmb.machine.schema import Machine


def told(*tests, **more):
    with pytest.raises(InputError) as error:
        validated(StudyFile, {"machine": "m", "test": list(tests), "free": {}} | more, "study.toml")
    return str(error.value)


DEFLECTION = {"kind": "deflection", "file": "a.csv"}
MODES = {"kind": "modes", "frequency_std_hz": 0.1, "damping_std_percent": 0.1}


def test_keys_are_those_of_the_kind_of_test():
    text = told(DEFLECTION | {"fram": "tool"})
    assert text.startswith("study.toml: test number 1, fram: unknown key, did you mean 'frame'? expected one of: kind,")
    assert "std_mm" in text
    assert "noise_log_std" not in text
    text = told(DEFLECTION, MODES | {"contents": []})
    assert text.startswith("study.toml: test number 2, contents: unknown key, did you mean 'content'?")
    assert "content_share" in text
    assert "std_mm" not in text
    text = told({"kind": "frf", "file": "h.npz", "weigths": {}, "name": "a"})
    assert text.startswith("study.toml: test 'a', weigths: unknown key, did you mean 'weights'?")


def test_a_key_is_suggested_where_it_is_close():
    assert "load_frame: unknown key; expected one of: kind," in told(DEFLECTION | {"load_frame": "tool"})


def test_keys_of_a_beam_in_a_file_are_listed():
    beam = {"name": "b", "length": 1.0, "sektion": {"tube": [0.06, 0.05]}, "young_modulus": 7e10}
    beam |= {"shear_modulus": 2.6e10, "density": 2700.0}
    with pytest.raises(InputError, match=r"sektion: unknown key, did you mean 'section'\? .*section, from, to, roll"):
        validated(Machine, {"name": "m", "beam": [beam]}, "m.toml")


def test_keys_are_those_of_the_part_that_the_key_stands_in():
    simulate = {"tests": 5, "zones": {"a": {"q1": [0.0, 1.0]}}, "force_n": [1.0, 2.0]}
    text = told({"kind": "deflection", "simulate": simulate | {"forces": 1}})
    assert text.startswith("study.toml: test number 1, simulate, forces: unknown key")
    assert "plan_seed" in text
    text = told(DEFLECTION | {"instruments": {"tracker_mm": 0.1, "draw": 5}})
    assert text.startswith(
        "study.toml: test number 1, instruments, draw: unknown key, did you mean 'draws'? expected one"
    )
    text = told({"kind": "modes", "simulate": {"below": 5.0}, "frequency_std_hz": 1.0, "damping_std_percent": 1.0})
    assert "test number 1, simulate, below: unknown key, did you mean 'below_hz'?" in text


def test_other_mistakes_name_no_kind():
    assert told(DEFLECTION | {"std_mm": "thick"}).startswith('study.toml: test number 1, std_mm: found "thick"')
    assert told(DEFLECTION | {"simulate": {"tests": 1}}).startswith("study.toml: test number 1, simulate, ")
    assert "test number 1, kind: found \"sound\", expected one of 'frf'" in told({"kind": "sound"})


@pytest.mark.parametrize("error", [ValueError, NotImplementedError])
def test_a_place_is_named_once(error):
    with (
        pytest.raises(error, match=r"^s\.toml: r\.toml: record number 1: wrong$"),
        error_location("s.toml"), error_location("r.toml"), error_location("r.toml"),
        error_location("r.toml: record number 1"),
    ):  # fmt: skip
        raise error("wrong")
