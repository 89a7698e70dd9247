"""Sentences on wrong files whose parts may be of several kinds."""

import pytest

from jaxmb.identify.parameters.free_parameters import unknown_pattern
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.io.files import find_description, read_text, read_toml
from jaxmb.io.validation import InputError, closest, error_location, validated
from jaxmb.machine.schema import Machine
from jaxmb.machine.tables import expand_tables, machine_from_dh


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


def test_expectations_are_in_terms_of_the_file():
    assert "test number 1: found 3, expected a table" in told(3)
    tied = {"stiffness.a": {"lower": 1.0, "upper": 2.0, "tied": 3}}
    assert "free, stiffness.a, tied: found 3, expected true or false" in told(DEFLECTION, free=tied)


@pytest.mark.parametrize("error", [ValueError, NotImplementedError])
def test_a_place_is_named_once(error):
    with (
        pytest.raises(error, match=r"^s\.toml: r\.toml: record number 1: wrong$"),
        error_location("s.toml"), error_location("r.toml"), error_location("r.toml"),
        error_location("r.toml: record number 1"),
    ):  # fmt: skip
        raise error("wrong")


@pytest.mark.parametrize(
    ("name", "names", "near"),
    [
        ("A2", ("a1", "a2"), "a2"),
        ("torque_a2", ("a6.torque", "a2.torque"), "a2.torque"),
        ("std", ("kind", "std_mm"), "std_mm"),
        ("inertia", ("rotor_inertia", "inertia_tensor"), "inertia_tensor"),
        ("st", ("std_mm",), None),
        ("gain", ("posture",), None),
    ],
)
def test_the_closest_name_ignores_case_and_may_begin_with_the_wrong_one(name, names, near):
    assert closest(name, names) == near


def test_a_missing_file_has_the_closest_name_of_its_folder(tmp_path, monkeypatch):
    (tmp_path / "hammer.csv").write_text("")
    (tmp_path / "arm.toml").write_text("")
    with pytest.raises(InputError, match=r"hamer\.csv: cannot be read: No such file .*, did you mean 'hammer\.csv'\?$"):
        read_text(tmp_path / "hamer.csv")
    with pytest.raises(InputError, match=r"folder '.*data' does not exist$"):
        read_text(tmp_path / "data" / "hammer.csv")
    with pytest.raises(InputError, match=r"path\.csv: cannot be read: No such file or directory$"):
        read_text(tmp_path / "path.csv")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^amr: does not exist, did you mean 'arm\.toml'\? expected a file ending"):
        find_description("./amr", "machines", "machine", (".toml",))
    with pytest.raises(
        InputError, match=r"machine 'arm' does not exist, did you mean 'arm\.toml'\? expected one of: fl"
    ):
        find_description("arm", "machines", "machine", (".toml",))


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        ("a,b\n20 °C,1\n".encode("latin-1"), r"byte 7 .* in UTF-8 \(the byte is in line 2\)"),
        (b"PK\xff", "workbook as CSV"),
    ],
)
def test_text_in_another_encoding_has_its_line(tmp_path, data, hint):
    (tmp_path / "a.csv").write_bytes(data)
    with pytest.raises(InputError, match=hint):
        read_text(tmp_path / "a.csv")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("[test]\n[test]", r"line 2, column 6\); a table is stated once, and each item of a list in double brackets"),
        ("[test]\n[[test]]", r"line 2, column 7\); a table is stated once"),
        ("a = 1\na = 2\n", r"line 2, column 6\); the key is stated twice$"),
    ],
)
def test_a_repeated_table_or_key_is_explained(tmp_path, text, hint):
    path = tmp_path / "s.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=hint):
        read_toml(path)


def test_a_table_in_place_of_a_list_of_tables():
    with pytest.raises(InputError, match=r"s\.toml: test: found .*, expected a list of tables, \[\[test\]\]"):
        validated(StudyFile, {"machine": "m", "test": DEFLECTION, "free": {}}, "s.toml")


def test_kinds_are_listed_where_none_is_stated():
    kinds = "expected one of 'frf', 'modes', 'deflection', 'torque', 'pose'"
    assert f"test number 1, kind: missing, {kinds}" in told({"file": "a.csv"})
    assert f"""test number 1, kind: found "FRF", did you mean 'frf'? {kinds}""" in told({"kind": "FRF"})


def test_a_pattern_of_no_parameter_has_the_names_of_the_closest_family():
    names = ("stiffness.a1", "stiffness.a2", "friction.a1")
    one = unknown_pattern("parameter", "Stiffness.q*", names)
    assert one.endswith("did you mean 'stiffness.a1'? expected one of: stiffness.a1, stiffness.a2")
    assert unknown_pattern("parameter", "coulomb.*", names).endswith("expected one of: stiffness.*, friction.*")


def test_an_angle_in_degrees_without_a_unit_is_refused():
    row = {"name": "a1", "alpha": -90}
    with pytest.raises(ValueError, match=r"""alpha: found -90, expected at most two turns .*; write "-90 deg" for"""):
        expand_tables({"name": "m", "dh": {"convention": "standard", "row": [row]}})
    expand_tables({"name": "m", "dh": {"convention": "standard", "row": [row | {"alpha": "900 deg"}]}})


def test_a_length_in_millimetres_is_refused():
    table = {"name": "m", "dh": {"convention": "standard", "row": [{"name": "a1", "d": 400.0}]}}
    with pytest.raises(ValueError, match=r"row 'a1', d: found 400\.0, expected at most 100 m, is it in mm"):
        expand_tables(table)
    body = {"name": "b", "origin": {"xyz": [0.0, 0.0, 400.0]}, "joint": [{"name": "q"}]}
    with pytest.raises(InputError, match=r"body 'b', origin, xyz number 3: found 400\.0, expected at most 100 m"):
        validated(Machine, {"name": "m", "body": [body]}, "m.toml")
    heavy = {"name": "b", "mass": 5.0, "center_of_mass": [0.0, 0.0, 400.0], "joint": [{"name": "q"}]}
    with pytest.raises(InputError, match=r"body 'b', center_of_mass number 3: found 400\.0, expected at most 100 m"):
        validated(Machine, {"name": "m", "body": [heavy]}, "m.toml")


def test_one_frame_in_place_of_a_list_beside_a_dh_table():
    """[frame] instead of [[frame]]."""
    with pytest.raises(InputError, match=r"frame: found .*, expected a list"):
        machine_from_dh("m", [{"name": "a1", "d": 0.4}], "standard", frame={"name": "tool", "body": "a1_dh"})
