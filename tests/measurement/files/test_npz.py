"""FRF sets as NPZ files: what comes back, and what files may claim."""

import io
import struct
import zipfile

import numpy as np
import pytest

from jaxmb.io.validation import InputError
from jaxmb.measurement.files.frf_file import read_frf

FREQUENCY = np.array([1.0, 2.0, 3.5, 4.0])
H = np.arange(24).reshape(4, 2, 3) * (0.1 - 0.2j) + 1.0


def test_source_is_the_path_where_the_file_does_not_say(tmp_path):
    np.savez(tmp_path / "set.npz", frequency_hz=FREQUENCY, frf=H, kind="mobility")
    assert read_frf(tmp_path / "set.npz").source == str(tmp_path / "set.npz")


ARRAYS = {"frequency_hz": FREQUENCY, "frf": H, "kind": "mobility"}


def refusal(path):
    """The message with which a file is refused: one line that begins with its path."""
    with pytest.raises(InputError) as caught:
        read_frf(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frequency_hz": None}, "array 'frequency_hz' is missing; found frf, kind"),
        ({"frf": None}, "array 'frf' is missing; found frequency_hz, kind"),
        ({"kind": None}, "array 'kind' is missing; found frequency_hz, frf"),
        (
            {"coherense": np.ones(4)},
            "array 'coherense' does not exist, did you mean 'coherence'? expected one of: averages, coherence",
        ),
        ({"frequency_hz": FREQUENCY[:3]}, "frf has shape (4, 2, 3), expected (3, outputs, inputs)"),
        ({"frequency_hz": FREQUENCY[::-1]}, "frequency_hz is not increasing: line 2 is 3.5 Hz after 4 Hz"),
        ({"frequency_hz": [1.0, 2.0, np.nan, 4.0]}, "frequency_hz holds nan, expected finite numbers"),
        ({"frequency_hz": np.array(["1", "2", "x", "4"])}, "frequency_hz does not hold real numbers: found <U1"),
        ({"frequency_hz": FREQUENCY * (1 + 1j)}, "frequency_hz does not hold real numbers: found complex128"),
        ({"frf": H[:, 0]}, "frf has shape (4, 3)"),
        ({"kind": "displacement"}, "kind is 'displacement', expected one of receptance, mobility, accelerance"),
        ({"kind": 2}, "kind is '2', expected one of receptance, mobility, accelerance"),
        ({"kind": ["mobility", "mobility"]}, "kind is '['mobility', 'mobility']'"),
        ({"source": 1.0}, "source is 1.0, expected a text"),
        ({"outputs": [1, 2]}, "degrees of freedom are [1, 2], expected a list of names"),
        ({"outputs": "x"}, "degrees of freedom are 'x', expected a list of names"),
        ({"inputs": ["a"]}, "frf has 2 outputs and 3 inputs, but 2 and 1 names"),
        ({"coherence": np.ones(4)}, "coherence has shape (4,), expected (4, 2) or (4, 2, 3)"),
        ({"coherence": ["a", "b"]}, "coherence does not hold real numbers: found <U1"),
        ({"averages": 2.5}, "averages is 2.5, expected a whole number"),
        ({"averages": [2, 3]}, "averages is [2, 3], expected a whole number"),
        ({"decay_1_s": "fast"}, 'decay_1_s is "fast", expected a number'),
        ({"posture_names": ["a", "b"]}, "posture_values has shape (0,), expected 2 entries as posture_names"),
        ({"posture_values": [1.0]}, "posture_values has shape (1,), expected 0 entries as posture_names"),
        ({"posture_names": [1, 2]}, "posture_names is [1, 2], expected a list of texts"),
        ({"posture_names": ["a", "a"], "posture_values": [1.0, 2.0]}, "posture_names holds 'a' more than once"),
        ({"posture_names": ["a"], "posture_values": [np.nan]}, "posture of 'a' is nan, expected a finite number"),
        ({"node_names": ["1"]}, "node_positions has shape (0,), expected 1 entries as node_names"),
        ({"node_names": ["1"], "node_positions": [[1.0, 2.0, np.inf]]}, "node '1' is at [1.0, 2.0, inf]"),
    ],
)
def test_lies_in_a_file(tmp_path, changes, message):
    arrays = {name: array for name, array in (ARRAYS | changes).items() if array is not None}
    np.savez(tmp_path / "set.npz", **arrays)
    assert message in refusal(tmp_path / "set.npz")


def test_pickles_are_not_opened(tmp_path):
    np.savez(tmp_path / "set.npz", **ARRAYS, outputs=np.array([print, {}], dtype=object))
    assert "array 'outputs' cannot be read: Object arrays cannot be loaded" in refusal(tmp_path / "set.npz")


def test_files_that_are_no_archive(tmp_path):
    path = tmp_path / "set.npz"
    np.savez(path, **ARRAYS)
    whole = path.read_bytes()
    middle = whole.index(b"frf.npy") + 200
    for content in (
        b"",
        b"frequency, frf\n1.0, 2.0\n",
        whole[: len(whole) // 2],
    ):
        path.write_bytes(content)
        assert "not a NPZ file of plain arrays" in refusal(path)
    path.write_bytes(whole[:middle] + b"\0" * 20 + whole[middle + 20 :])
    assert "array 'frf' cannot be read: Bad CRC-32" in refusal(path)
    buffer = io.BytesIO()
    np.save(buffer, H)
    path.write_bytes(buffer.getvalue())
    assert "not a NPZ file" in refusal(path)


def test_no_broken_byte_gets_past(tmp_path):
    """Whatever byte of a small archive is wrong, the set is refused with one line, or still a valid set."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **ARRAYS)
    whole = buffer.getvalue()
    path = tmp_path / "set.npz"
    refused = still_valid = 0
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            read_frf(path)
        except InputError as error:
            refused += str(error).startswith(f"{path}: ")
        else:
            still_valid += 1
    assert refused + still_valid == len(whole)
    # Dates and attributes of an archive's entries mean nothing here.
    assert refused > len(whole) / 2


def test_an_archive_of_something_else(tmp_path):
    with zipfile.ZipFile(tmp_path / "set.npz", "w") as archive:
        archive.writestr("readme.txt", "no array")
    assert "'readme.txt' is not an array as NumPy writes it" in refusal(tmp_path / "set.npz")
    with zipfile.ZipFile(tmp_path / "empty.npz", "w"):
        pass
    assert "found none" in refusal(tmp_path / "empty.npz")
    with zipfile.ZipFile(tmp_path / "text.npz", "w") as archive:
        for name in ARRAYS:
            archive.writestr(f"{name}.npy", "no array")
    assert "'frequency_hz' is not an array as NumPy writes it" in refusal(tmp_path / "text.npz")


def test_claims_beyond_memory_are_refused_before_anything_is_unpacked(tmp_path):
    """An archive's directory, or an array's header, that claims terabytes."""
    path = tmp_path / "set.npz"
    np.savez(path, **ARRAYS)
    content = bytearray(path.read_bytes())
    entry = content.rindex(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 4_000_000_000)
    path.write_bytes(content)
    assert "expected at most 800000000" in refusal(path)
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<c16", "fortran_order": False, "shape": (10**6, 10**6, 1)})
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("frf.npy", header.getvalue())
    assert "array 'frf' cannot be read: Unable to allocate" in refusal(path)


def test_paths_that_lead_nowhere(tmp_path):
    assert "cannot be read" in refusal(tmp_path / "none.npz")
    (tmp_path / "folder.npz").mkdir()
    assert "cannot be read" in refusal(tmp_path / "folder.npz")
