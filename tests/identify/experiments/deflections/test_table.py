"""Deflection tests in tables: what is read is what was written, and each mistake is named with its place."""

import math
import re
from pathlib import Path

import numpy as np
import pytest

from jaxmb.identify.experiments.deflections.table import deflection_tests, deflections_csv, read_deflections
from jaxmb.io.validation import InputError
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model

MODEL = build_model(load_machine("kuka-kr240"))
HEAD = "test,q2 deg,q3 deg,load frame,fx N,fz kN,my,point,dx mm,dz mm,rx deg,sx mm"
ROW = "a,45,-90,tool,10,-1.5,3,q6,0.5,,,"


@pytest.fixture
def read(tmp_path):
    def of(*lines: str):
        path = tmp_path / "tests.csv"
        path.write_text("\n".join(lines) + "\n")
        return read_deflections(MODEL, path)

    return of


def test_units_are_those_of_the_headings(read):
    (test,) = read(HEAD, "a,45,-90,tool,10,-1.5,3,q6,0.5,-1.25,0.01,0.02")
    assert test.q[1:3] == pytest.approx([math.pi / 4, -math.pi / 2], rel=1e-15)
    assert test.q[0] == MODEL.reference[0]
    assert test.wrench.tolist() == [10.0, 0.0, -1500.0, 0.0, 3.0, 0.0]
    assert (test.frame, test.points) == ("tool", ("q6",))
    assert test.displacement[0, [0, 2, 3]] == pytest.approx([5e-4, -1.25e-3, math.radians(0.01)], rel=1e-15)
    assert np.isnan(test.displacement[0, [1, 4, 5]]).all()
    # A displacement without a column of deviations has that of a tracker.
    assert test.std[0] == pytest.approx([2e-5, 3e-5, 3e-5, *[math.radians(0.01)] * 3], rel=1e-15)


def test_units_may_be_in_brackets(read):
    bracketed = HEAD.replace("q2 deg", "q2 (deg)").replace("fz kN", "fz [kN]")
    (one,), (other,) = (read(head, "a,45,-90,tool,10,-1.5,3,q6,0.5,-1.25,0.01,0.02") for head in (bracketed, HEAD))
    assert (one.q.tolist(), one.wrench.tolist()) == (other.q.tolist(), other.wrench.tolist())


def test_lines_of_one_test_are_its_points(read):
    tests = read(
        HEAD, "a,45,-90,tool,10,-1.5,3,q6,0.5,-1.25,,", "b,45,-90,,1,2,3,,0.5,,,", "a,,,,,,,tool,0.4,,0.1,0.02"
    )
    assert [t.name for t in tests] == ["a", "b"]
    assert tests[0].points == ("q6", "tool")
    assert tests[0].measured.sum(axis=1).tolist() == [2, 2]
    assert tests[1].points == ("tool",)


def test_what_is_written_is_read_back(tmp_path):
    draw = np.random.default_rng(0)
    displacement = 1e-3 * draw.normal(size=(5, 2, 6))
    displacement[2, 1, 3:] = np.nan
    std = 1e-5 * draw.uniform(1.0, 2.0, size=(5, 2, 6))
    tests = deflection_tests(
        MODEL, draw.normal(size=(5, 6)), 1e3 * draw.normal(size=(5, 6)), displacement, points=("q6", "tool"), std=std
    )
    path = tmp_path / "tests.csv"
    path.write_text(deflections_csv(MODEL, tests))
    for before, after in zip(tests, read_deflections(MODEL, path), strict=True):
        assert (before.name, before.frame, before.points) == (after.name, after.frame, after.points)
        for what in ("q", "wrench", "displacement", "std"):
            # Every number is divided by its unit and multiplied by it again: two roundings.
            np.testing.assert_allclose(getattr(after, what), getattr(before, what), rtol=1e-15)


def test_deviations_of_one_point_have_the_shape_of_its_displacements():
    std = 1e-5 * (1.0 + np.arange(18.0).reshape(3, 6))
    tests = deflection_tests(MODEL, np.zeros((3, 6)), np.ones((3, 6)), np.full((3, 6), 1e-4), std=std)
    np.testing.assert_array_equal([test.std[0] for test in tests], std)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ([], "found 0 lines, expected a heading and a line for each measured point"),
        ([HEAD], "found 1 lines, expected a heading and a line for each measured point"),
        ([HEAD.replace(",", ";"), "a;45"], "line 1: cells are separated by semicolons, expected commas"),
        ([HEAD.replace(",", "\t"), ROW], "line 1: cells are separated by tabs, expected commas"),
        (
            [HEAD.replace("fx N", "Fx N"), ROW],
            "column 'Fx N' does not exist, did you mean 'fx'? expected one of: test, load",
        ),
        (
            [HEAD.replace("load frame", "Load frame"), ROW],
            "column 'Load frame' does not exist, did you mean 'load frame'?",
        ),
        ([HEAD.replace("fx N", "torque x"), ROW], "column 'torque x' does not exist; expected one of"),
        ([HEAD.replace("dx mm", "dx"), ROW], "column 'dx' has no unit, expected 'dx m' or another of m, mm, um"),
        ([HEAD.replace("dx mm", "dx inch"), ROW], "column 'dx inch' has the unit 'inch'"),
        ([HEAD.replace("q2 deg", "q2 mm"), ROW], "column 'q2 mm' has the unit 'mm', expected 'q2 rad'"),
        ([HEAD.replace("q2 deg", "q9 deg"), ROW], "column 'q9 deg'"),
        ([HEAD.replace("dz mm", "dx mm"), ROW], "column 'dx' appears twice"),
        (["test,fx N", "a,1"], "no column of dx dy dz rx ry rz"),
        (["test,dx mm", "a,1"], "no column of fx fy fz mx my mz"),
        (["fx N,dx mm", "1,1"], "no column of test"),
        ([HEAD, "a,45,-90,tool,10"], "line 2 has 5 cells, expected 12"),
        ([HEAD, "a,45,-90,tool,10,-1.5,3,q6,0.5,-1.25,0.01,0.02,7"], "line 2 has 13 cells, expected 12"),
        ([HEAD, ",45,-90,tool,10,-1.5,3,q6,0.5,-1.25,0.01,0.02"], "line 2 has no test"),
        ([HEAD, "a,,-90,tool,10,-1.5,3,q6,0.5,,,"], "line 2, deflection test 'a': q2 is empty"),
        ([HEAD, "a,45,-90,tool,ten,-1.5,3,q6,0.5,,,"], "line 2, deflection test 'a': fx is 'ten'"),
        ([HEAD, "a,45,-90,tool,10,-1.5,3,q6,nan,,,"], "line 2, deflection test 'a': dx is 'nan'"),
        ([HEAD, "a,45,-90,hand,10,-1.5,3,q6,0.5,,,"], "deflection test 'a': frame 'hand'"),
        ([HEAD, "a,45,-90,tool,0,0,0,q6,0.5,,,"], "deflection test 'a': wrench is zero"),
        ([HEAD, "a,45,-90,tool,10,-1.5,3,q6,,,,"], "deflection test 'a': no displacement was measured"),
        ([HEAD, "a,45,-90,tool,10,-1.5,3,q6,0.5,,,0"], "deflection test 'a': a standard deviation is 0 m or rad"),
        (
            [HEAD, "a,45,-90,tool,1e300,-1.5,3,q6,0.5,,,"],
            "deflection test 'a': wrench has 1e+300 N or N m, expected at most 1e+09",
        ),
        (
            [HEAD, "a,45,-90,tool,10,-1.5,3,q6,0.5,,,1e-300"],
            "deflection test 'a': a standard deviation is 1e-303 m or rad, expected 1e-12 to 10",
        ),
        (
            [HEAD.replace("q2 deg", "q2 rad"), "a,45,-90,tool,10,-1.5,3,q6,0.5,,,"],
            "deflection test 'a': q2 is 45 rad, expected a finite number of at most 12.57 rad, is it in deg?",
        ),
        (
            [HEAD, "a,45,-90,tool,10,-1.5,3,q6,0.5,,,", "a,,,,,,,tool,500,,,"],
            "line 3, deflection test 'a': a displacement of 0.5 m or rad is too large for a deflection",
        ),
        ([HEAD, "a" * 200_000], "line 2 is not a valid CSV line: field larger than field limit"),
        (
            [HEAD.replace("dx mm", "dx m"), "a,45,-90,tool,10,-1.5,3,q6,0.5,,,"],
            "deflection test 'a': a displacement of 0.5 m or rad is too large for a deflection, is it in mm or deg?",
        ),
        (
            [HEAD, "a,45,-90,tool,10,-1.5,3,q6,0.5,,,", "a,46,-90,tool,10,-1.5,3,tool,0.5,,,"],
            "line 3, deflection test 'a': has another posture or load",
        ),
        (
            [HEAD, "a,45,-90,tool,10,-1.5,3,q6,0.5,,,", "a,45,-90,tool,10,-1.5,3,q6,0.5,,,"],
            "line 2, deflection test 'a': a point appears twice",
        ),
    ],
)
def test_mistakes_are_named(read, lines, told):
    with pytest.raises(InputError) as error:
        read(*lines)
    assert told in str(error.value)
    assert "tests.csv: " in str(error.value)


def test_a_wrong_unit_has_no_hint_on_coordinates_of_the_same_name(read):
    with pytest.raises(InputError) as error:
        read(HEAD.replace("dx mm", "dx inch"), ROW)
    assert str(error.value).endswith("expected 'dx m' or another of m, mm, um")


def test_coordinates_with_names_of_measured_columns(tmp_path):
    """A heading is the coordinate's; the measured rotation of that name has "measured" in front."""
    part = {"name": "hand", "mass": 1.0, "joint": [{"name": "rx", "axis": [0.0, 1.0, 0.0], "stiffness": 1e4}]}
    machine = {"name": "arm", "body": [part], "frame": [{"name": "tool", "body": "hand"}]}
    model = build_model(Machine.model_validate(machine))
    path = tmp_path / "tests.csv"
    path.write_text("test,rx deg,fz N,measured rx mrad,dz mm\na,30,50,0.2,1\n")
    (test,) = read_deflections(model, path)
    assert test.q == pytest.approx([math.pi / 6])
    assert test.displacement[0, [2, 3]] == pytest.approx([1e-3, 2e-4])
    path.write_text(deflections_csv(model, [test]))
    (back,) = read_deflections(model, path)
    np.testing.assert_allclose(back.displacement, test.displacement, rtol=1e-12)
    path.write_text("test,rx deg,fz N,dz mm\na,30,50,1\n")
    (test,) = read_deflections(model, path)
    assert test.measured[0].tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("heading", ["load fx N", "fx N"])
def test_the_heading_of_a_load_beside_a_coordinate_of_its_name(tmp_path, heading):
    joint = [{"name": "fx", "axis": [0.0, 1.0, 0.0], "stiffness": 1e4}]
    machine = Machine.model_validate({"name": "m", "body": [{"name": "b", "mass": 1.0, "joint": joint}]})
    path = tmp_path / "t.csv"
    path.write_text(f"test,fx deg,{heading},dz mm\na,30,50,1\n")
    with pytest.raises(InputError, match=r"are headed 'measured fx'"):
        read_deflections(build_model(machine), path, "b")


def test_counts_that_differ_are_named():
    q, wrench, moved = np.zeros((3, 6)), np.ones((3, 6)), np.full((3, 6), 1e-3)
    with pytest.raises(ValueError, match=r"there are 3 postures, 3 wrenches, 2 displacements, 3 names, expected one"):
        deflection_tests(MODEL, q, wrench, moved[:2])
    with pytest.raises(ValueError, match="there are 3 postures, 1 wrenches, 3 displacements, 3 names, expected one"):
        deflection_tests(MODEL, q, wrench[:1], moved, names=["a", "b", "c"])


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"q": np.full((2, 6), np.nan)}, "deflection test '1': q1 is nan rad, expected a finite number"),
        ({"std": np.inf}, "deflection test '1': a standard deviation is inf m or rad, expected 1e-12 to 10"),
        ({"displacement": np.full((2, 6), np.inf)}, "deflection test '1': a displacement is infinite"),
        ({"names": ["a", "a"]}, "deflection test 'a' is there twice, expected a name for each test"),
        (
            {"q": np.zeros((0, 6)), "wrench": np.zeros((0, 6)), "displacement": np.zeros((0, 6))},
            "there are no deflection tests, expected at least one",
        ),
    ],
)
def test_arrays_that_cannot_be_tests(changed, told):
    good = {"q": np.zeros((2, 6)), "wrench": np.ones((2, 6)), "displacement": np.full((2, 6), 1e-3)}
    with pytest.raises(ValueError, match=re.escape(told)):
        deflection_tests(MODEL, **good | changed)


def test_the_documented_table_can_be_read(tmp_path):
    text = (Path(__file__).parents[4] / "docs" / "elastostatics.md").read_text()
    table = next(block for block in re.findall(r"```\n(.*?)```", text, re.DOTALL) if block.startswith("test,"))
    path = tmp_path / "tests.csv"
    path.write_text(table)
    first, second = read_deflections(MODEL, path)
    assert first.measured.sum() == 6
    assert second.measured.sum() == 3
