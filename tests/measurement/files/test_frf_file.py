"""FRF sets in files, whatever the format: what is written comes back, and nothing is ever left half-written."""

import dataclasses
import errno
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from hypothesis.extra import numpy as arrays

from jaxmb.io.validation import InputError
from jaxmb.measurement.files import frf_file
from jaxmb.measurement.files.frf_file import difference, read_frf, write_frf
from jaxmb.measurement.frf_set import LARGEST, FrfSet

ENDINGS = ("npz", "uff", "csv")
FREQUENCY = np.array([1.0, 2.0, 3.5, 4.0])
H = np.arange(24).reshape(4, 2, 3) * (0.1 - 0.2j) + 1.0
MADE = FrfSet(
    FREQUENCY, H, "mobility", outputs=("12 x", "tool -ry"), inputs=("3 x", "4 x", "arm:5 z"), coherence=H.real / 100.0
)


@pytest.fixture(params=ENDINGS)
def ending(request):
    return request.param


NODES = st.one_of(
    st.integers(0, 9_999_999_999).map(str),
    st.from_regex(r"[A-Za-z][A-Za-z0-9_.]{0,9}", fullmatch=True).filter(lambda name: name.upper() != "NONE"),
    st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,9}:[1-9][0-9]{0,4}", fullmatch=True).filter(
        lambda name: not name.upper().startswith("NONE:")
    ),
)
DOFS = st.tuples(NODES, st.sampled_from(["", " x", " -x", " y", " -z", " rx", " -ry", " rz"])).map("".join)
NUMBERS = st.floats(-LARGEST, LARGEST) | st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 5e-324])
FINITE = st.floats(-1e20, 1e20)


@st.composite
def frf_sets(draw):
    """Sets with everything in them that all formats hold."""
    outputs = draw(st.lists(DOFS, min_size=1, max_size=3, unique=True))
    inputs = draw(st.lists(DOFS, min_size=1, max_size=2, unique=True))
    lines = draw(st.integers(1, 9))
    if draw(st.booleans()):
        frequency_hz = draw(st.integers(0, 50)) * 0.25 + np.arange(lines) * draw(st.sampled_from([0.25, 0.1, 1 / 3]))
    else:
        frequency_hz = np.cumsum(draw(arrays.arrays(float, lines, elements=st.floats(1e-3, 1e5))))
    assume(np.all(np.diff(frequency_hz) > 0.0))
    shape = (lines, len(outputs), len(inputs))
    parts = draw(arrays.arrays(float, (*shape, 2), elements=NUMBERS))
    by_pair = draw(st.sampled_from([None, False, True]))
    kind = draw(st.sampled_from(["receptance", "mobility", "accelerance"]))
    units = {"receptance": ["mm/N", "um/lbf"], "mobility": ["mm/s/N"], "accelerance": ["g/N", "in/s^2/lbf"]}[kind]
    return FrfSet(
        frequency_hz=frequency_hz,
        frf=parts.view(complex)[..., 0],
        kind=kind,
        outputs=tuple(outputs),
        inputs=tuple(inputs),
        coherence=None
        if by_pair is None
        else draw(
            arrays.arrays(
                float,
                shape if by_pair else shape[:2],
                elements=st.floats(0, 1).map(lambda x: x or 0.0) | st.just(np.nan),
            )
        ),
        averages=draw(st.none() | st.integers(1, 2**31)),
        decay_1_s=draw(st.sampled_from([0.0, 0.1, 3.75])),
        unit=draw(st.sampled_from(["", "unknown", *units])),
        posture=draw(st.dictionaries(st.sampled_from(["z1", "joint 2", "q:3"]), FINITE, max_size=3)),
        nodes=draw(
            st.dictionaries(st.integers(0, 9_999_999_999).map(str), st.tuples(FINITE, FINITE, FINITE), max_size=2)
        ),
        source=draw(st.sampled_from(["", "hammer, 3rd day", 'Prüfstand 4; shaker: "left"', "a " * 50 + "b"])),
    )


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(made=frf_sets())
def test_whatever_is_written_comes_back(tmp_path, ending, made):
    path = tmp_path / f"set.{ending}"
    write_frf(path, made)
    assert difference(made, read_frf(path)) == ""
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("coherence", [None, np.full((4, 2), 0.9), np.full((4, 2, 3), 0.8)])
def test_round_trip_of_every_field(tmp_path, ending, coherence):
    h = H.copy()
    h[2, 1, 1] = complex(np.nan, np.inf)
    made = FrfSet(
        FREQUENCY, h, "accelerance", outputs=MADE.outputs, inputs=MADE.inputs, coherence=coherence,
        averages=16, decay_1_s=0.4, unit="g/lbf", posture={"z2": 1.2217304763960306},
        nodes={"12": (0.1, 1 / 3, -2.0), "7": (1, 2, 3)}, trace_lines=(("12", "7", "12"), ("7", "12", "7")),
        source="hammer, é",
    )  # fmt: skip
    write_frf(tmp_path / f"set.{ending}", made)
    read = read_frf(tmp_path / f"set.{ending}")
    for field in dataclasses.fields(FrfSet):
        found, expected = getattr(read, field.name), getattr(made, field.name)
        np.testing.assert_array_equal(found, expected, err_msg=field.name, strict=isinstance(expected, np.ndarray))


def test_upper_case_endings(tmp_path):
    for name in ("SET.UFF", "SET.UNV", "SET.CSV", "SET.NPZ", "set.unv"):
        write_frf(tmp_path / name, MADE)
        assert difference(MADE, read_frf(tmp_path / name)) == ""


def test_a_file_that_is_there_is_replaced(tmp_path, ending):
    path = tmp_path / f"set.{ending}"
    path.write_bytes(b"something else")
    write_frf(path, MADE)
    assert difference(MADE, read_frf(path)) == ""


def test_nothing_is_left_half_written(tmp_path, ending, monkeypatch):
    """A full disk, a folder that is not there, and a file that does not read back: the old file stays as it is."""
    path = tmp_path / f"set.{ending}"
    path.write_bytes(b"old")

    def full(temporary: Path, made: FrfSet) -> None:
        temporary.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    def other(temporary: Path, made: FrfSet) -> None:
        writer(temporary, dataclasses.replace(made, frf=made.frf * (1 + 1e-15)))

    writer = frf_file.WRITERS[path.suffix]
    monkeypatch.setitem(frf_file.WRITERS, path.suffix, full)
    with pytest.raises(OSError, match="No space left on device"):
        write_frf(path, MADE)
    monkeypatch.setitem(frf_file.WRITERS, path.suffix, other)
    with pytest.raises(ValueError, match=r"cannot hold this set: frf of line 1 is"):
        write_frf(path, MADE)
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"
    monkeypatch.undo()
    with pytest.raises(OSError, match="No such file or directory") as error:
        write_frf(tmp_path / "none" / path.name, MADE)
    assert error.value.filename == str(tmp_path / "none" / path.name)


@pytest.mark.parametrize(
    ("ending", "changes", "message"),
    [
        ("uff", {"outputs": ("12 x", "left_gripper x")}, r"output 'left_gripper x': expected a node number of at most"),
        ("uff", {"outputs": ("12 x", "é x")}, "output 'é x': expected a node number"),
        ("uff", {"inputs": ("3 x", "none x", "4 z")}, r"inputs number 2 is 'none x', found '0 x'"),
        ("uff", {"inputs": ("3 x", " 4 x", "4 z")}, r"inputs number 2 is ' 4 x', found '4 x'"),
        ("uff", {"nodes": {"tool": (0.0, 0.0, 0.0)}}, "node 'tool' has a position, expected a node number"),
        ("uff", {"source": "x" * 400}, "source and posture need 413 characters, expected at most 292"),
        ("uff", {"unit": "mm s^-1 N^-1"}, r"unit 'mm s\^-1 N\^-1' does not fit, expected two labels"),
        ("uff", {"unit": "V/N"}, r"record 9, line \d+: unit 'V/N' is not one of mobility"),
        ("uff", {"unit": "m/s1/N"}, r"unit is 'm/s1/N', found 'm/s\^1/N'"),
        ("csv", {"outputs": ("a; b", "c")}, "the name 'a; b' holds a semicolon"),
        ("csv", {"outputs": ("a\n", "c")}, r"the name 'a\\n' holds a semicolon, a leading or trailing blank"),
        ("csv", {"source": "two\nlines"}, r"source 'two\\nlines' or unit 'm/s/N'"),
        ("csv", {"source": "a,"}, "source is 'a,', found 'a'"),
    ],
)  # fmt: skip
def test_what_a_format_cannot_hold_is_refused(tmp_path, ending, changes, message):
    path = tmp_path / f"set.{ending}"
    with pytest.raises(ValueError, match=rf"set\.{ending}: a \.{ending} file cannot hold this set: .*{message}"):
        write_frf(path, dataclasses.replace(MADE, **changes))
    assert list(tmp_path.iterdir()) == []


def test_differences():
    assert difference(MADE, MADE) == ""
    for changes, message in (
        ({"frequency_hz": FREQUENCY + 1.0}, "frequency_hz of line 1 is 1.0, found 2.0"),
        ({"frf": np.where(H[2, 1, 1] == H, np.nan, H)}, "frf of line 3 is 2.6, found nan"),
        ({"kind": "receptance", "unit": "m/s/N"}, "kind is 'mobility', found 'receptance'"),
        ({"outputs": ("12 x", "tool ry")}, "outputs number 2 is 'tool -ry', found 'tool ry'"),
        ({"coherence": None}, "coherence is an array (4, 2, 3), found None"),
        ({"averages": 3}, "averages is None, found 3"),
        ({"posture": {"a": 1.0}}, "posture is mappingproxy({}), found mappingproxy({'a': 1.0})"),
    ):
        assert difference(MADE, dataclasses.replace(MADE, **changes)) == message


def test_paths(tmp_path, ending):
    with pytest.raises(ValueError, match=r"set\.mat: expected a file ending in \.npz, \.uff, \.unv or \.csv"):
        write_frf(tmp_path / "set.mat", MADE)
    assert list(tmp_path.iterdir()) == []
    for name, message in (
        ("set.xlsx", r"cannot read FRFs from '\.xlsx', expected \.npz, \.uff, \.unv, \.mat or \.csv"),
        ("set", "cannot read FRFs from 'a file without ending'"),
        (f"none.{ending}", "cannot be read: No such file or directory"),
        ("none.mat", "cannot be read: No such file or directory"),
    ):
        with pytest.raises(InputError, match=message):
            read_frf(tmp_path / name)
    (tmp_path / f"folder.{ending}").mkdir()
    with pytest.raises(InputError, match="cannot be read"):
        read_frf(tmp_path / f"folder.{ending}")
