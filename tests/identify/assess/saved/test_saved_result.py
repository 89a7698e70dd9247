"""A result that was written is read back as it was, without a fit, and its study can be run again."""

import dataclasses
import json
import re
import shutil

import numpy as np
import pytest
import tomli_w

import jaxmb
from jaxmb.cli.console import find_robot
from jaxmb.identify.assess.saved import csv_text, study_toml
from jaxmb.identify.study.format.study_format import StudyFile, study_digest
from jaxmb.identify.study.study import StudyOrigin
from jaxmb.io.files import find_description, read_toml
from jaxmb.io.validation import InputError
from jaxmb.maps.modal import load_identified

POSTURE = {"z2": "70 deg", "z3": "-100 deg"}
LINES = {"first_hz": 1.0, "last_hz": 30.0, "step_hz": 0.5}
FREE = {"stiffness.*": {"lower": 2e5, "upper": 2e7, "initial": 1.9e6}}


def written(folder, **changes):
    """Folder and result of a fit to FRFs in a file beside the study."""
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    frequency_hz = np.arange(1.0, 30.0, 0.5)
    q = jaxmb.posture(model, {"z2": np.radians(70.0), "z3": np.radians(-100.0)})
    names = ("tool x", "tool y", "tool z")
    noise = np.random.default_rng(0).normal(size=(2, frequency_hz.size, 3, 3))
    h = np.asarray(jaxmb.frf(model, q, frequency_hz)) * np.exp(0.01 * (noise[0] + 1j * noise[1]))
    jaxmb.write_frf(folder / "hammer.npz", jaxmb.FrfSet(frequency_hz, h, "accelerance", names, names))
    tests = [
        {"kind": "frf", "file": "hammer.npz", "posture": POSTURE, "noise_log_std": "estimate", "cross_axis": 0.0},
        {"kind": "modes", "name": "modes", "posture": POSTURE, "frequency_hz": [10.18, 11.24],
         "damping_percent": [1.89, 1.80], "frequency_std_hz": 0.05, "damping_std_percent": 0.1},
    ]  # fmt: skip
    study = {
        "machine": "manipulator-3r", "source": "made up", "test": tests, "free": FREE, "rounds": 1,
        "refine": {"coarse_lines": 0, "starts": 1},
    } | changes  # fmt: skip
    (folder / "mine.toml").write_text(tomli_w.dumps(study))
    result = jaxmb.identify(jaxmb.load_study(folder / "mine.toml"), seed=2)
    assert jaxmb.write_result(result, folder / "out") == (
        "result.json",
        "parameters.csv",
        "machine.toml",
        "machine.xml",
        "study.toml",
    )
    return folder / "out", result


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return written(tmp_path_factory.mktemp("two"))


def test_unknown_numbers_of_a_table_are_empty_in_its_file():
    columns = {"name": ["a", "b"], "value": [1.5, 2.0], "std": [np.inf, 0.1], "interval_95_lower": [np.nan, 1.8]}
    assert csv_text(columns) == "name,value,std,interval_95_lower\na,1.5,,\nb,2.0,0.1,1.8\n"


def test_all_of_a_result_comes_back(two):
    folder, result = two
    again = jaxmb.load_result(folder)
    assert result.json_text() == (folder / "result.json").read_text()
    told, saved = json.loads(again.json_text()), json.loads(result.json_text())
    assert told.pop("estimated_noise") == pytest.approx(saved.pop("estimated_noise"), rel=1e-14)  # a product more
    assert told == saved
    assert again.outcome is result.outcome
    assert again.study.source == "made up"
    assert dict(again.metrics) == json.loads(result.json_text())["metrics"]
    assert again.metrics.one_model.parameters[0].parameter == result.metrics.one_model.parameters[0].parameter
    assert again.metrics.tests["modes"].measured_modes[1].content == ()
    for name, value in jaxmb.parameters(result.model).items():
        assert jaxmb.parameters(again.model)[name] == value
    for test in ("hammer", "modes"):
        np.testing.assert_allclose(again.residual(test), result.residual(test), rtol=1e-9, atol=1e-12)
    # the noise is the estimated one
    assert 0.005 < float(again.study.tests[0].noise.nominal) < 0.02


def test_the_study_can_be_run_again_from_elsewhere(two, tmp_path, monkeypatch):
    folder, result = two
    monkeypatch.chdir(tmp_path)
    study = jaxmb.load_study(folder / "study.toml")
    np.testing.assert_array_equal(study.tests[0].measured, result.study.tests[0].measured)


def test_data_that_are_gone(two, tmp_path):
    folder = moved(two[0], tmp_path / "copy")
    (folder.parent / "hammer.npz").unlink()
    with pytest.raises(InputError, match=r"the study of the result cannot be read again: .*hammer\.npz") as caught:
        jaxmb.load_result(folder)
    assert "\n" not in str(caught.value)


def moved(folder, to):
    """A copy of a result and of its data in another folder."""
    shutil.copytree(folder.parent, to)
    study = to / "out/study.toml"
    study.write_text(study.read_text().replace(str(folder.parent), str(to)))
    return to / "out"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("lower = 200000.0", "lower = 300000.0"),
        ('"stiffness.*"', '"stiffness.z2"'),
        ('name = "modes"', 'name = "other"'),
    ],
)
def test_a_study_that_was_edited_is_refused(two, tmp_path, old, new):
    folder = moved(two[0], tmp_path / "copy")
    text = (folder / "study.toml").read_text()
    assert old in text
    (folder / "study.toml").write_text(text.replace(old, new))
    with pytest.raises(InputError, match=r"copy/out: study\.toml is not the one the result was found from") as caught:
        jaxmb.load_result(folder)
    assert "\n" not in str(caught.value)


def test_data_may_lie_elsewhere_but_must_be_the_same(two, tmp_path):
    folder = moved(two[0], tmp_path / "copy")
    assert jaxmb.load_result(folder).parameters == two[1].parameters
    measured = jaxmb.read_frf(folder.parent / "hammer.npz")
    jaxmb.write_frf(folder.parent / "hammer.npz", dataclasses.replace(measured, frf=1.01 * measured.frf))
    with pytest.raises(InputError, match="or a file that it names has changed since"):
        jaxmb.load_result(folder)


REMOVED = object()


def change(saved, place, value):
    """Change one place of result.json."""
    *parents, key = place
    for parent in parents:
        saved = saved[parent]
    if value is REMOVED:
        del saved[key]
    else:
        saved[key] = value


K = ("parameters", "stiffness.z2")


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("study",), REMOVED, "study: missing"),
        (("status",), "maybe", "status: found"),
        (("parameters",), None, "parameters: found null, expected a table"),
        (("metrics",), "text", "metrics: found"),
        (("metrics", "fit"), "text", "result.json"),
        (("estimated_noise",), None, "estimated_noise: found null"),
        (("cost",), float("nan"), "is no JSON"),
        ((*K, "value"), True, "stiffness.z2, value: found true, expected a number"),
        ((*K, "value"), "2e6", "stiffness.z2, value: found .*, expected a number"),
        ((*K, "value"), -2e6, "stiffness.z2: value, std, .* contradict each other"),
        ((*K, "interval_95"), [3e6, 1e6], "stiffness.z2: value, std, .* contradict each other"),
        ((*K, "identifiable"), "maybe", "identifiable: found"),
        ((*K, "std_log"), 1.0, "stiffness.z2: value, std, .* contradict each other"),
        (K, REMOVED, "parameters: found .*, expected .*stiffness.z2"),
        (("covariance", "matrix", 0), [1.0], "result.json"),
        (("covariance", "matrix", 0, 1), 1.0, "covariance: does not have"),
        (("covariance", "matrix", 0, 0), None, "covariance: does not have"),
        (("correlation", 0, 1), 0.5, "covariance: does not have"),
        (("correlation", 0), [], "result.json"),
    ],
)
def test_wrong_values_are_told(two, tmp_path, place, value, told):
    saved = json.loads((two[0] / "result.json").read_text())
    change(saved, place, value)
    shutil.copy(two[0] / "study.toml", tmp_path)
    (tmp_path / "result.json").write_text(json.dumps(saved))
    with pytest.raises(InputError, match=told) as caught:
        jaxmb.load_result(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_parameter_too_many(two, tmp_path):
    saved = json.loads((two[0] / "result.json").read_text())
    saved["parameters"]["stiffness.q9"] = saved["parameters"]["stiffness.z2"]
    shutil.copy(two[0] / "study.toml", tmp_path)
    (tmp_path / "result.json").write_text(json.dumps(saved))
    with pytest.raises(InputError, match=r"parameters: found .*stiffness\.q9, expected"):
        jaxmb.load_result(tmp_path)


@pytest.mark.parametrize(
    ("text", "told"),
    [(None, "cannot be read"), ("{", "no JSON"), ("{}", "this version"), ("[" * 100_000, "nested too deeply")],
)
def test_what_is_no_result(tmp_path, text, told):
    if text is not None:
        (tmp_path / "result.json").write_text(text)
    with pytest.raises(InputError, match=told):
        jaxmb.load_result(tmp_path)


@pytest.mark.parametrize("name", jaxmb.study_names())
def test_every_study_is_written_as_it_was_read(name, tmp_path):
    path = find_description(name, "studies", "study", (".toml",))
    file = StudyFile.model_validate(read_toml(path))
    (tmp_path / "study.toml").write_text(study_toml(StudyOrigin(file, path.parent, None, "")))
    again = StudyFile.model_validate(read_toml(tmp_path / "study.toml"))
    assert again == file
    assert again.model_fields_set == file.model_fields_set
    assert study_digest(again, tmp_path) == study_digest(file, path.parent)


@pytest.mark.parametrize(("changed", "to", "message"), [
    ('"value": ', '"value": 1', "value, std, std_log and interval_95 contradict each other"),
    ('"std": ', '"std": 1', "value, std, std_log and interval_95 contradict each other"),
    ('"seed": 2', '"seed": 2,\n "sead": 3', "sead: unknown key, did you mean 'seed'?"),
    ('"seed": 2', '"seed": 2,\n "seed": 3', "has the key 'seed' twice in one object"),
])  # fmt: skip
def test_an_edited_result_is_refused(two, tmp_path, changed, to, message):
    """Also by the commands that need no more than the machine of the result."""
    folder = shutil.copytree(two[0], tmp_path / "out")
    text = (folder / "result.json").read_text()
    (folder / "result.json").write_text(text.replace(changed, to, 1))
    with pytest.raises(InputError, match=re.escape(message)):
        jaxmb.load_result(folder)
    with pytest.raises(InputError, match=re.escape(message)):
        find_robot(str(folder))
    with pytest.raises(InputError, match=re.escape(message)):
        load_identified(folder)


def test_a_changed_machine_is_none_of_the_result(two, tmp_path):
    folder = shutil.copytree(two[0], tmp_path / "out")
    machine, result = folder / "machine.toml", folder / "result.json"
    machine.write_text(re.sub("stiffness = [0-9.]+", "stiffness = 123456.0", machine.read_text(), count=1))
    for read in (jaxmb.load_result, jaxmb.load_machine, load_identified):
        with pytest.raises(InputError, match=r"machine\.toml: was changed after .* name this file instead"):
            read(folder)
    assert jaxmb.load_machine(machine).name == "manipulator-3r"
    # as earlier versions wrote it
    result.write_text(re.sub(r' "machine_digest": "\w+",\n', "", result.read_text()))
    assert jaxmb.load_result(folder).parameters == two[1].parameters
