"""FRF sets as CSV tables: the documented layout, what a spreadsheet makes of it, and tables that lie."""

import re
from pathlib import Path

import numpy as np
import pytest

from jaxmb.io.validation import InputError
from jaxmb.measurement.files.frf_file import difference, read_frf, write_frf
from jaxmb.measurement.frf_set import FrfSet

TABLE = """\
# kind: accelerance
# unit: g/N
# averages: 16
# posture z2: 1.25
# node 12: 0.1, 0.2, 0.3
# measured on Tuesday at 12:30
frequency_hz,H(12 x; 3 -z) real,H(12 x; 3 -z) imag,coherence(12 x; 3 -z)
1.0,0.1,-2e-3,0.9
1.5,nan,0.5,1.0
2.5,,inf,
"""
MADE = FrfSet(
    np.array([1.0, 1.5, 2.5]), np.array([0.1 - 2e-3j, complex(np.nan, 0.5), complex(np.nan, np.inf)])[:, None, None],
    "accelerance", ("12 x",), ("3 -z",), np.array([0.9, 1.0, np.nan])[:, None, None], 16, unit="g/N",
    posture={"z2": 1.25}, nodes={"12": (0.1, 0.2, 0.3)}, source="as in the docs",
)  # fmt: skip


def read(tmp_path, text, encoding="utf-8"):
    path = tmp_path / "set.csv"
    path.write_bytes(text.encode(encoding))
    return read_frf(path)


def refusal(tmp_path, text, encoding="utf-8"):
    """The message with which a table is refused: one line that begins with its path."""
    with pytest.raises(InputError) as caught:
        read(tmp_path, text, encoding)
    message = str(caught.value)
    assert message.startswith(f"{tmp_path / 'set.csv'}: ")
    assert "\n" not in message
    return message.removeprefix(f"{tmp_path / 'set.csv'}: ")


def test_a_table_written_by_hand(tmp_path):
    text = TABLE.replace("# unit", "# source: as in the docs\n# unit")
    assert difference(MADE, read(tmp_path, text)) == ""
    assert read(tmp_path, TABLE).source == str(tmp_path / "set.csv")
    # What a spreadsheet makes of it: a byte order mark, CR LF, and lines filled up to the same number of cells
    saved = "\ufeff" + text.replace("\nfreq", ",,\nfreq").replace("16\n", "16,,,\n").replace("\n", "\r\n") + ",,,\r\n"
    assert difference(MADE, read(tmp_path, saved)) == ""


def test_the_table_of_the_documentation(tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "frf-files.md").read_text()
    tables = re.findall(r"```\n(# kind.*?)```", page, flags=re.DOTALL)
    made = read(tmp_path, tables[0])
    assert (made.kind, made.unit, made.averages, made.outputs, made.inputs) == (
        "accelerance", "g/N", 16, ("12 x",), ("3 -z",)
    )  # fmt: skip
    np.testing.assert_array_equal(made.frf[:, 0, 0], [0.1 - 0.002j, complex(np.nan, np.nan)])
    assert (made.nodes["3"], made.trace_lines) == ((0.0, 0.2, 0.3), (("3", "12"),))


def test_pairs_that_are_missing_are_nan(tmp_path):
    head = "frequency_hz,H(a; b) real,H(a; b) imag,H(c; d) imag,H(c; d) real,coherence(c)\n"
    made = read(tmp_path, "# kind: mobility\n" + head + "1,2,3,4,5,0.5\n")
    assert (made.outputs, made.inputs, made.unit) == (("a", "c"), ("b", "d"), "m/s/N")
    np.testing.assert_array_equal(made.finite[0], [[True, False], [False, True]])
    assert (made.frf[0, 0, 0], made.frf[0, 1, 1]) == (2 + 3j, 5 + 4j)
    np.testing.assert_array_equal(made.coherence, [[np.nan, 0.5]])


def test_what_was_written_is_readable(tmp_path):
    write_frf(tmp_path / "set.csv", MADE)
    lines = (tmp_path / "set.csv").read_text().splitlines()
    assert lines[:3] == ["# kind: accelerance", "# unit: g/N", "# averages: 16"]
    assert "# lines: 3" in lines
    assert lines[-3] == "1.0,0.1,-0.002,0.9"


HEAD = "frequency_hz,H(12 x; 3 -z) real,H(12 x; 3 -z) imag,coherence(12 x; 3 -z)"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (TABLE, "", "holds no table, expected a line that begins with frequency_hz"),
        (TABLE, "# kind: mobility\n", "holds no table"),
        (TABLE, "a" * 10_000_001, "line 1 is too long, expected a line end after every line"),
        ("# kind: accelerance\n", "", "a line '# kind: ...' is missing, expected receptance, mobility or accelerance"),
        ("accelerance", "speed", "kind is 'speed', expected one of receptance"),
        ("# kind: accelerance", "# kind: mobility", "unit 'g/N' is not one of mobility such as 'm/s/N'"),
        ("# unit", "# uint", "line 2: unknown 'uint', expected one of kind, unit, averages"),
        ("# unit: g/N", "# kind: accelerance", "line 2: 'kind' occurs twice"),
        ("averages: 16", "averages: 1.5", "averages is 1.5, expected a whole number"),
        ("averages: 16", "averages: many", 'averages is \'many\', expected a whole number'),
        ("posture z2: 1.25", "posture z2: left", 'posture of \'z2\' is "left", expected a number'),
        ("0.1, 0.2, 0.3", "0.1, 0.2", "node '12' is at [0.1, 0.2], expected three finite coordinates"),
        ("# unit", "# lines: 4\n# unit", "has 3 lines, but '# lines' is 4: the file may be truncated"),
        ("frequency_hz", "f", "line 7, column 1: found 'f', expected frequency_hz"),
        (HEAD, HEAD.replace(",", ";"), "line 7: cells are separated by semicolons, expected commas, and points"),
        (HEAD, HEAD.replace(",", "\t"), "line 7: cells are separated by tabs, expected commas"),
        (HEAD, HEAD + ",phase", "line 7, column 5: found 'phase', expected H(output; input) real"),
        (HEAD, HEAD + ",H(12 x) real", "line 7, column 5: found 'H(12 x) real', expected H(output; input) real"),
        (HEAD, HEAD + ",H(12 x; 3 -z) real", "line 7, column 5: 'H(12 x; 3 -z) real' occurs twice"),
        (HEAD, HEAD + ",H(a; b) real", "line 7: H(a; b) has a column real but none imag"),
        (HEAD, HEAD + ',"H(a; b) real', "line 7: unexpected end of data"),
        (HEAD, "frequency_hz,coherence(a; b)", "line 7: no column holds a response"),
        (HEAD, HEAD + ",coherence(12 x)", "line 7: coherence is given both by output and by output and input"),
        ("coherence(12 x;", "coherence(13 x;", "column 4: coherence of '13 x', which has no response"),
        ("1.0,0.1", "1.0,x.1", "line 8, column 2 (H(12 x; 3 -z) real): found 'x.1', expected a number"),
        ("1.0,0.1", "1.0,1_0", "line 8, column 2 (H(12 x; 3 -z) real): found '1_0', expected a number"),
        ("1.0,0.1", "1,0,0,1", "line 8 has 6 cells, expected 4 (a comma in a number would be one more)"),
        ("-2e-3,0.9", "-2e-3", "line 8 has 3 cells, expected 4"),
        ("1.5,nan", "1.0,nan", "line 9, column 1: frequency_hz is 1 after 1, expected more"),
        ("1.5,nan", "nan,nan", "line 9, column 1: frequency_hz is nan after 1, expected more"),
        ("1.0,0.1", "-1.0,0.1", "frequency_hz starts at -1 Hz, expected 0 or more"),
        ("-2e-3,0.9", "-2e-3,1.9", "coherence holds values outside 0 to 1"),
        ("2.5,,inf,\n", "2.5,,inf,", "line 10 does not end: the file may be truncated"),
        ("\n1.0,0.1,-2e-3,0.9\n1.5,nan,0.5,1.0\n2.5,,inf,", "", "frequency_hz has shape (0,), expected one axis"),
    ],
)  # fmt: skip
def test_tables_that_lie(tmp_path, old, new, message):
    assert old in TABLE
    assert message in refusal(tmp_path, TABLE.replace(old, new, 1))


def test_files_that_are_no_text(tmp_path):
    assert "byte 0 is not UTF-8 text, expected a text file" in refusal(tmp_path, TABLE, "utf-16")
    assert "not UTF-8 text" in refusal(tmp_path, TABLE.replace("Tuesday", "Sams\xe4tag"), "latin-1")
    assert "line 1, column 1: found 'PK" in refusal(tmp_path, "PK\x03\x04,\n")


def test_a_sparse_table_that_would_fill_the_memory(tmp_path):
    names = [f"H({i} x; {i} y) {part}" for i in range(400) for part in ("real", "imag")]
    text = "# kind: mobility\n" + ",".join(["frequency_hz", *names]) + "\n"
    row = ",0" * len(names) + "\n"
    text += "".join(f"{k}{row}" for k in range(320))
    assert "400 outputs, 400 inputs: more than 50000000 numbers" in refusal(tmp_path, text)
