"""FRF sets from MATLAB files: what SciPy and h5py write, as MATLAB lays it out, and files that lie."""

import struct

import h5py
import numpy as np
import pytest
import scipy.io
from hypothesis import HealthCheck, given, settings, strategies as st

from jaxmb.io.validation import InputError
from jaxmb.measurement.files.frf_file import difference, read_frf
from jaxmb.measurement.frf_set import FrfSet

FREQUENCY = np.array([1.0, 2.0, 3.5, 4.0])
H = np.arange(24).reshape(4, 2, 3) * (0.1 - 0.2j) + 1.0
H[2, 1, 1] = complex(np.nan, np.inf)


def cell(texts):
    return np.array(texts, dtype=object)[:, None]


VARIABLES = {
    "frequency_hz": FREQUENCY, "frf": H, "kind": "mobility", "coherence": H[:, :, 0].real / 100.0, "unit": "mm/s/N",
    "outputs": cell(["12 x", "tool -ry"]), "inputs": ["a", "bcd ef", "g"], "averages": 16, "decay_1_s": 0.5,
    "posture_names": cell(["z2", "z3"]), "posture_values": [1.5, -2.0], "node_names": cell(["12"]),
    "node_positions": np.array([[1.0, 2.0, 3.0]]), "trace_lines": cell(["12; 12"]),
    "source": "r\xe9sum\xe9", "other": np.ones((3, 4)),
}  # fmt: skip
MADE = FrfSet(
    FREQUENCY, H, "mobility", ("12 x", "tool -ry"), ("a", "bcd ef", "g"), VARIABLES["coherence"], 16, 0.5, "mm/s/N",
    {"z2": 1.5, "z3": -2.0}, {"12": (1.0, 2.0, 3.0)}, "r\xe9sum\xe9", (("12", "12"),),
)  # fmt: skip


def write_hdf5(path, variables, **options):
    """Variables as MATLAB -v7.3 writes them: axes reversed, characters as UTF-16, cells as references."""

    def put(group, name, value):
        if isinstance(value, dict):
            inner = group.create_group(name)
            inner.attrs["MATLAB_class"] = np.bytes_("struct")
            for key, x in value.items():
                put(inner, key, x)
            return
        if isinstance(value, list) and isinstance(value[0], str):
            width = max(map(len, value))
            value = np.array([np.frombuffer(x.ljust(width).encode("utf-16-le"), "<u2") for x in value])
            kind = "char"
        elif isinstance(value, str):
            value, kind = np.frombuffer(value.encode("utf-16-le"), "<u2")[None, :], "char"
        elif np.asarray(value).dtype == object:
            inner = file.require_group("#refs#")
            names = [f"r{len(inner) + i}" for i in range(len(value))]
            for key, x in zip(names, value[:, 0], strict=True):
                put(inner, key, x)
            value, kind = np.array([[inner[key].ref for key in names]], dtype=h5py.ref_dtype).T, "cell"
        else:
            value, kind = np.atleast_2d(value), "double"
        if np.iscomplexobj(value):
            pairs = np.empty(value.shape, dtype=[("real", "<f8"), ("imag", "<f8")])
            pairs["real"], pairs["imag"] = value.real, value.imag
            value = pairs
        data = group.create_dataset(name, data=value.T, **(options if kind == "double" else {}))
        data.attrs["MATLAB_class"] = np.bytes_(kind)

    with h5py.File(path, "w", userblock_size=512) as file:
        for name, value in variables.items():
            put(file, name, value)
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM")


WRITERS = {
    "v6": lambda path, variables: scipy.io.savemat(path, variables),
    "v7": lambda path, variables: scipy.io.savemat(path, variables, do_compression=True),
    "v7.3": write_hdf5,
    "v7.3 packed": lambda path, variables: write_hdf5(path, variables, chunks=True, compression="gzip"),
}


@pytest.fixture(params=WRITERS)
def write(request):
    return WRITERS[request.param]


def test_every_field(tmp_path, write):
    write(tmp_path / "set.mat", VARIABLES)
    assert difference(MADE, read_frf(tmp_path / "set.mat")) == ""


def test_a_struct(tmp_path, write):
    write(tmp_path / "set.MAT", {"test1": VARIABLES, "n": 3.0, "empty": {"a": 1.0}})
    assert difference(MADE, read_frf(tmp_path / "set.MAT")) == ""
    write(tmp_path / "set.mat", {"test1": VARIABLES, "test2": VARIABLES})
    assert "structs test1, test2 hold an FRF set each, expected one" in refusal(tmp_path / "set.mat")


def test_axes_that_matlab_leaves_out(tmp_path, write):
    base = {"kind": "mobility", "frequency_hz": FREQUENCY[:, None]}
    for h, shape in ((H[:, :, 0], (4, 2, 1)), (H[:, 0, 0][:, None], (4, 1, 1)), (H[:, 0, 0][None, :], (4, 1, 1))):
        write(tmp_path / "set.mat", base | {"frf": h})
        assert read_frf(tmp_path / "set.mat").frf.shape == shape
    coherence = VARIABLES["coherence"][:, :1]
    for frf in (H[:, 0, 0][None, :], H[:, 0, 0][:, None]):
        write(tmp_path / "set.mat", base | {"frf": frf, "coherence": coherence.T})
        np.testing.assert_array_equal(read_frf(tmp_path / "set.mat").coherence, coherence)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    shape=st.tuples(st.integers(2, 6), st.integers(1, 4), st.integers(2, 3)),
    number=st.sampled_from([np.float64, np.float32, np.int16, np.uint8]),
    is_complex=st.booleans(),
    scale=st.floats(1e-30, 1e30),
)
def test_every_number_comes_back(tmp_path, write, shape, number, is_complex, scale):
    h = (np.random.default_rng(0).normal(size=shape) * (scale if number is np.float64 else 100.0)).astype(number)
    if is_complex:
        h = h + 1j * h[::-1].astype(float)
    write(tmp_path / "set.mat", {"frequency_hz": np.arange(shape[0]) + 1, "frf": h, "kind": "receptance"})
    np.testing.assert_array_equal(read_frf(tmp_path / "set.mat").frf, h)


def refusal(path):
    """The message with which a file is refused: one line that begins with its path."""
    with pytest.raises(InputError) as caught:
        read_frf(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message.removeprefix(f"{path}: ")


@pytest.mark.parametrize(("count", "more"), [(1, ""), (12, ""), (14, " and 2 more")])
def test_variables_of_a_file_without_an_frf_set_are_listed(tmp_path, count, more):
    scipy.io.savemat(tmp_path / "other.mat", {f"v{i}": np.ones((3, 2)) for i in range(count)})
    listed = ", ".join(f"v{i} (3x2 double)" for i in range(min(count, 12))) + more
    expected = f"variable 'frequency_hz' is missing, expected frequency_hz, frf, kind; found {listed}"
    assert refusal(tmp_path / "other.mat") == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": None}, "variable 'kind' is missing, expected frequency_hz, frf, kind; found"),
        ({"frf": None}, "variable 'frf' is missing"),
        (
            {"frf": np.moveaxis(H, 0, 2)},
            "frf has shape (2, 3, 4), its axis 3 as long as frequency_hz, expected [f, output",
        ),
        ({"frf": H[:3]}, "frf has shape (3, 2, 3), expected (4, outputs, inputs)"),
        ({"frf": "text"}, "frf does not hold real or complex numbers"),
        ({"frf": cell(["a", "b"])}, "frf does not hold real or complex numbers"),
        ({"frf": {"a": 1.0}}, "variable 'frf' is a struct, expected numbers, text or a column cell of texts"),
        ({"frequency_hz": FREQUENCY[::-1]}, "frequency_hz is not increasing: line 2 is 3.5 Hz after 4 Hz"),
        ({"kind": "speed"}, "kind is 'speed', expected one of receptance, mobility, accelerance"),
        ({"kind": 2.0}, "kind is '2.0', expected one of receptance, mobility, accelerance"),
        ({"kind": ["mobility", "mobility"]}, "kind is '['mobility', 'mobility']'"),
        ({"unit": "m/s^2/N"}, "unit 'm/s^2/N' is not one of mobility"),
        ({"outputs": np.ones(2)}, "degrees of freedom are [[1.0, 1.0]], expected a list of names"),
        ({"outputs": cell(["a"])}, "frf has 2 outputs and 3 inputs, but 1 and 3 names"),
        ({"averages": [1.0, 2.0]}, "averages is [[1.0, 2.0]], expected a whole number"),
        ({"coherence": np.full((4, 2), 2.0)}, "coherence holds values outside 0 to 1"),
        ({"posture_values": [1.0]}, "posture_values has shape (1,), expected 2 entries as posture_names"),
    ],
)
def test_lies_in_a_file(tmp_path, write, changes, message):
    variables = {name: x for name, x in (VARIABLES | changes).items() if x is not None}
    write(tmp_path / "set.mat", variables)
    assert message in refusal(tmp_path / "set.mat")


def test_what_is_found_instead_is_listed(tmp_path, write):
    write(tmp_path / "set.mat", {"H": np.ones((5, 2, 2)), "f": np.ones((5, 1)), "name": "rig"})
    assert "found H (5x2x2 double), f (5x1 double), name (1x3 char)" in refusal(tmp_path / "set.mat")


def test_cells_of_other_things(tmp_path):
    mixed = np.empty((2, 1), dtype=object)
    mixed[:, 0] = ["a", np.ones(3)]
    for outputs in (mixed, np.array([["a", "b"], ["c", "d"]], dtype=object)):
        scipy.io.savemat(tmp_path / "set.mat", VARIABLES | {"outputs": outputs})
        assert "variable 'outputs' is a cell of other than texts, expected" in refusal(tmp_path / "set.mat")


def test_objects_beside_the_set_are_left_alone(tmp_path):
    """A string or a table, which MATLAB writes in a form of its own, may stand in the file beside the set."""
    scipy.io.savemat(tmp_path / "set.mat", VARIABLES)
    for name, message in ((b"x", None), (b"kind", "occurs twice")):
        inner = struct.pack("<IIII", 6, 8, 17, 0) + struct.pack("<HH4s", 1, len(name), name)
        inner += struct.pack("<HH4s", 1, 4, b"MCOS")
        opaque = struct.pack("<II", 14, len(inner)) + inner
        whole = (tmp_path / "set.mat").read_bytes()
        (tmp_path / "more.mat").write_bytes(whole + opaque)
        if message is None:
            assert difference(MADE, read_frf(tmp_path / "more.mat")) == ""
        else:
            assert message in refusal(tmp_path / "more.mat")


def test_damaged_files(tmp_path):
    path = tmp_path / "set.mat"
    scipy.io.savemat(path, {"frequency_hz": FREQUENCY, "frf": H, "kind": "mobility"})
    whole = path.read_bytes()
    frf = whole.index(b"frf")
    for content, message in (
        (b"", "not a MATLAB file of version 5, 7 or 7.3, expected one saved with -v7 or -v7.3"),
        (b"frequency_hz;frf" * 20, "not a MATLAB file"),
        (whole[:-3], "expected a variable within the"),
        (whole[:132], "the file ends within the tag of a variable: it is truncated"),
        (whole[:128] + struct.pack("<II", 77, 8) + whole[136:], "byte 128: found an element of type 77"),
        (whole[: frf + 8] + struct.pack("<I", 250) + whole[frf + 12 :], "variable 'frf'"),
        (whole[: frf + 4] + struct.pack("<I", 77) + whole[frf + 8 :], "variable 'frf' holds an element of type 77"),
    ):
        path.write_bytes(content)
        assert message in refusal(path)
    # One wrong byte in the type of an element ends the process in SciPy's own reader
    path.write_bytes(whole[: frf + 7] + b"\x54" + whole[frf + 8 :])
    refusal(path)


def test_claims_beyond_memory_are_refused_before_anything_is_read(tmp_path):
    path = tmp_path / "set.mat"
    scipy.io.savemat(path, {"frequency_hz": FREQUENCY, "frf": H, "kind": "mobility"})
    whole = path.read_bytes()
    at = whole.index(struct.pack("<iii", 4, 2, 3))
    path.write_bytes(whole[:at] + struct.pack("<iii", 2**30, 2**30, 2**30) + whole[at + 12 :])
    assert f"variable 'frf' claims {2**90} entries of 448 bytes, expected at most 50000000" in refusal(path)
    path.write_bytes(whole[:at] + struct.pack("<iii", -4, 2, 3) + whole[at + 12 :])
    assert "a variable has the dimensions (-4, 2, 3), expected at least two, none below 0" in refusal(path)
    with h5py.File(path, "w") as file:
        file["frequency_hz"], file["kind"] = FREQUENCY, 1.0
        file.create_dataset("frf", shape=(10**4, 10**4, 10**4), dtype="<f8", chunks=(100, 100, 100))
    assert "variable 'frf' claims 1000000000000 entries" in refusal(path)


def test_hdf5_whose_numbers_stand_elsewhere(tmp_path):
    """HDF5 fills with zeros what was never written, and follows links to other files."""
    path = tmp_path / "set.mat"
    good = VARIABLES | {"kind": "mobility"}
    for replace, message in (
        (
            lambda file: file.create_dataset("frf", shape=(3, 2, 4), dtype="<f8"),
            "variable 'frf' of 24 entries is not stored",
        ),
        (
            lambda file: file.create_dataset("frf", shape=(3, 2, 4), dtype="<f8", chunks=(1, 1, 1)),
            "is not stored completely",
        ),
        (
            lambda file: file.create_dataset("frf", (3, 2, 4), "<f8", external=[(str(tmp_path / "x.raw"), 0, 192)]),
            "variable 'frf' is stored in another file",
        ),
        (lambda file: file.__setitem__("frf", h5py.ExternalLink("other.mat", "/frf")), "variable 'frf' is missing"),
        (lambda file: file.__setitem__("frf", h5py.SoftLink("/coherence")), "variable 'frf' is missing"),
    ):
        write_hdf5(path, good)
        with h5py.File(path, "r+") as file:
            del file["frf"]
            replace(file)
        assert message in refusal(path)
    path.write_bytes(path.read_bytes()[:3000])
    assert "cannot be read as HDF5" in refusal(path)
