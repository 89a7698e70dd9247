"""Tables in narrow terminals: names fold, minor columns go, other columns move below; numbers stay whole."""

import re

import numpy as np
import pytest

from jaxmb.report.section import Lines, Section, Table, left, right, table as table_of

NUMBERS = ("2.234e6", "1234", "0.0123", "-4.567e-12", "12.3", ">1000")
NAMES = ("stiffness.shoulder_pan_joint", "damping.z1", "first_moment.wrist_3_link.x (12 tied)", "friction.q1")


@pytest.mark.parametrize("count", [1, 3, 7, 14, 25])
def test_numbers_are_whole_at_any_width(count, text_of):
    rng = np.random.default_rng(count)
    rows = tuple((name, "N m s/rad", *rng.choice(NUMBERS, count).tolist(), "weak") for name in NAMES)
    columns = (*left("parameter", "unit"), *right(*map(str, range(count - 1))), *right("last", minor=1), *left("known"))
    table = Table("", columns, rows)
    assert "last" in text_of(table, 800)  # 60 and 80 are checked by `text_of`
    assert all("".join(name.split()) in "".join(text_of(table, 800).split()) for name in NAMES)


def test_a_narrow_terminal_folds_long_names_between_their_words(text_of):
    rows = (("stiffness.shoulder_pan_joint", "2.234e6", "1234", "1.000e5"),)
    table = Table("", (*left("parameter"), *right("value", "std"), *right("lower", minor=1)), rows)
    assert re.findall(r"stiffness\S*", text_of(table, 40)) == ["stiffness.shoulder_pan_"]
    assert "lower" not in text_of(table, 40)
    assert "stiffness.shoulder_pan_joint" in text_of(table, 60)
    assert "lower" in text_of(table, 60)


def test_columns_without_room_follow_below_beside_the_first(text_of):
    columns = (*left("model"), *right(*(f"{axis} max, RMS" for axis in "xyz")))
    table = Table("", columns, (("joints and compensator", *["10.25  12345.25"] * 3),))
    shown = text_of(table, 55)
    assert shown.count("10.25  12345.25") == 3
    assert shown.count("model") == 2


def test_a_title_longer_than_the_line_is_whole(text_of):
    title = "what the tests of a study with a long name determine, at the initial values of its parameters"
    shown = text_of([Section(title, (Table("", left("a"), (("b",),)),))], 60)
    assert " ".join(shown.split()).startswith(title)


def test_columns_below_stand_beside_all_columns_that_distinguish_the_rows(text_of):
    columns = (*left("tests", "role"), *right("number"), *left("kind"), *right("mean", "largest", "explained %"))
    rows = tuple(
        (tests, role, "23", kind, "0.498", "0.908", percent)
        for tests, role, kind, percent in (
            ("fit", "fitted", "translation (mm)", "89.1"), ("fit", "fitted", "rotation (deg)", "82.7"),
            ("check", "held out", "translation (mm)", "84.3"), ("check", "held out", "rotation (deg)", "84.5"),
        )
    )  # fmt: skip
    below = text_of(Table("", columns, rows), 60).split("explained %")[1]
    assert [" ".join(line.split()) for line in below.splitlines() if "." in line] == [
        *("fit translation (mm) 89.1", "fit rotation (deg) 82.7"),
        *("check translation (mm) 84.3", "check rotation (deg) 84.5"),
    ]


def test_lines_of_a_file_stand_apart(text_of):
    shown = text_of([Section("a", (Lines(("append:",)), Lines(("[[test]]",), verbatim=True), Lines(("1 test",))))])
    assert [line.rstrip() for line in shown.splitlines()][1:6] == ["append:", "", "[[test]]", "", "1 test"]


def test_columns_without_cells_are_left_out_with_their_notes():
    rows = [("a", None, None, "1"), ("b", None, "2", None)]
    shown = table_of(
        "", right("name", "none", "some", "other"), rows, "caption", {"none": "not drawn", "some": "drawn"}
    )
    assert [column.heading for column in shown.columns] == ["name", "some", "other"]
    assert shown.rows == (("a", "-", "1"), ("b", "2", "-"))
    assert shown.caption == "caption; drawn"
