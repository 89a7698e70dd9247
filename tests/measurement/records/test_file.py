"""Descriptions of time records: what they make of files, what they refuse, and the two that come with jaxmb."""

import os
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
import tomli_w
from scipy import signal

from jaxmb.io.validation import InputError
from jaxmb.measurement.frf_set import FrfSet, select_channels, to_si
from jaxmb.measurement.records.file import (
    estimate_of_records,
    frf_of_records,
    in_stated_unit,
    measured_frf,
    measurement_names,
    read_records,
)
from jaxmb.measurement.records.impacts import estimate_frf_from_hits
from jaxmb.measurement.records.spectra import decay_of_end_level, exponential_window
from jaxmb.measurement.records.time_records import estimate_frf, estimate_periodic_frf

RNG = np.random.default_rng(0)
FORCE = RNG.normal(size=(4000, 2))
RESPONSE = np.column_stack([signal.lfilter([1.0, 0.5], [1.0, -0.5], FORCE @ g) for g in ([1.0, 2.0], [3.0, -1.0])])
TABLE = np.hstack([np.arange(4000.0)[:, None] / 500.0, FORCE, RESPONSE])
NOISE = {
    "sample_rate_hz": 500.0,
    "record": [{"file": "run.npz"}],
    "forces": {"columns": [2, 3], "dofs": ["1 x", "2 -z"]},
    "responses": {"columns": {"first": 4, "last": 5}, "dofs": ["1 x", "3 y"]},
    "method": {"kind": "noise", "segment": 256, "overlap": 0.5},
}


def described(folder, **changes):
    """Path of a description in a folder."""
    data = {key: value for key, value in (NOISE | changes).items() if value is not None}
    path = folder / "records.toml"
    path.write_text(tomli_w.dumps(data))
    return path


def same(a, b):
    """Equal but for the order of sums, which depends on how arrays lie in memory."""
    np.testing.assert_allclose(a, b, rtol=1e-10)


def expected_noise():
    return estimate_frf(FORCE, RESPONSE, 500.0, segment=256, overlap=0.5)


@pytest.fixture
def folder(tmp_path):
    np.savez(tmp_path / "run.npz", data=TABLE)
    return tmp_path


def test_npz(folder):
    made = frf_of_records(described(folder, posture={"z1": "90 deg"}, nodes={"1": [0.1, 0.0, 2.0]}))
    same(made.frf, expected_noise().frf)
    same(made.coherence, expected_noise().coherence)
    assert (made.outputs, made.inputs, made.unit) == (("1 x", "3 y"), ("1 x", "2 -z"), "m/s^2/N")
    assert dict(made.posture) == {"z1": np.pi / 2}
    assert dict(made.nodes) == {"1": (0.1, 0.0, 2.0)}
    assert made.source == str(folder / "records.toml")


def test_mat(folder):
    scipy.io.savemat(folder / "run.mat", {"other": np.ones((2, 2)), "data": TABLE})
    path = described(folder, record=[{"file": "run.mat", "variable": "data"}])
    same(frf_of_records(path).frf, expected_noise().frf)


def test_mat_of_version_7_3(folder):
    with h5py.File(folder / "run.mat", "w", userblock_size=512) as file:
        file["data"], file["other"] = TABLE.T, np.ones((2, 2))  # MATLAB's axes are reversed in HDF5
        for item in file.values():
            item.attrs["MATLAB_class"] = np.bytes_("double")
    path = described(folder, record=[{"file": "run.mat", "variable": "data"}])
    same(frf_of_records(path).frf, expected_noise().frf)


def test_arrays_of_their_own(folder):
    scipy.io.savemat(folder / "run.mat", {"f": FORCE, "a": RESPONSE, "note": "shaker"})
    path = described(
        folder, record=[{"file": "run.mat"}], forces={"columns": [1, 2], "variable": "f"},
        responses={"columns": [1, 2], "variable": "a"},
    )  # fmt: skip
    made = frf_of_records(path)
    same(made.frf, expected_noise().frf)
    assert (made.outputs, made.inputs) == (("1", "2"), ("1", "2"))


@pytest.mark.parametrize(
    ("separator", "header"), [(",", "t,f1,f2,a1,a2\n"), (";", ""), ("\t", "time\tb\tc\td\te\n"), (" ", "")]
)
def test_csv(folder, separator, header):
    text = header + "\n".join(separator.join(map(repr, row)) for row in TABLE.tolist()) + "\n"
    (folder / "run.csv").write_text(text, encoding="utf-8-sig")
    same(frf_of_records(described(folder, record=[{"file": "run.csv"}])).frf, expected_noise().frf)


def test_factors_and_units(folder):
    path = described(
        folder, forces={"columns": [2, 3], "factors": [0.5, -2.0], "unit": "lbf"},
        responses={"columns": [4, 5], "factors": 0.1, "unit": "g"},
    )  # fmt: skip
    record = read_records(path)[0]
    np.testing.assert_allclose(record.force, FORCE * [0.5, -2.0], rtol=1e-15)
    np.testing.assert_allclose(record.response, 0.1 * RESPONSE, rtol=1e-15)
    assert (record.sample_rate_hz, record.source) == (500.0, str(folder / "run.npz"))
    assert frf_of_records(path).unit == "g/lbf"
    made = to_si(frf_of_records(path))
    expected = 0.1 * 9.80665 / 4.4482216152605 * expected_noise().frf / [0.5, -2.0]
    np.testing.assert_allclose(made.frf, expected, rtol=1e-9)
    half = described(folder, responses={"columns": [4, 5], "unit": "g"})
    assert frf_of_records(half).unit == "g/N"
    np.testing.assert_allclose(to_si(frf_of_records(half)).frf, 9.80665 * expected_noise().frf, rtol=1e-12)
    assert frf_of_records(described(folder, forces={"columns": [2, 3], "unit": "unknown"})).unit == "unknown"


def test_every_setting_of_noise_counts(folder):
    settings = {"segment": 200, "overlap": 0.25, "window": "flattop", "estimator": "Hv"}
    made = frf_of_records(described(folder, kind="mobility", method={"kind": "noise"} | settings))
    expected = estimate_frf(FORCE, RESPONSE, 500.0, kind="mobility", **settings)
    same(made.frf, expected.frf)
    assert (made.kind, made.averages) == ("mobility", expected.averages)


def test_an_overloaded_channel_of_noise_is_reported(folder):
    """Its FRFs are wrong by the share that the limit cuts off."""
    table = TABLE.copy()
    table[:, 4] = np.clip(table[:, 4], -4.0, 4.0)
    np.savez(folder / "run.npz", data=table)
    clipped = np.count_nonzero(np.abs(table[:, 4]) == 4.0)
    (remark,) = [text for text in estimate_of_records(described(folder)).remarks if "overloaded" in text]
    assert remark.startswith(f"response 2 was overloaded: {clipped} of 4000 samples are at its limit")
    forces = NOISE["forces"] | {"full_scale": 3.0}
    stated = estimate_of_records(described(folder, forces=forces, responses=NOISE["responses"])).remarks
    assert [text.split(":")[0] for text in stated if "overloaded" in text] == [
        "force 1 was overloaded", "force 2 was overloaded", "response 2 was overloaded"
    ]  # fmt: skip


def test_periodic(folder):
    t = np.arange(128)
    force = sum(np.cos(2 * np.pi * k * t / 128 + k**2) for k in range(3, 30, 3))
    np.savez(folder / "run.npz", data=np.column_stack([force, 2 * np.roll(force, 3)]))
    method = {"kind": "periodic", "period": 128, "first_harmonic": 3, "last_harmonic": 29, "step": 3}
    path = described(folder, forces={"columns": [1]}, responses={"columns": [2]}, method=method)
    expected = estimate_periodic_frf(force, 2 * np.roll(force, 3), 500.0, 128, range(3, 30, 3))
    made = estimate_of_records(path)
    same(made.frf_set.frf, expected.frf)
    assert made.summary == ("periods: 1, df 11.7188 Hz",)
    path.write_text(path.read_text().replace("500.0", "1.0"))
    assert estimate_of_records(path).summary[1] == (
        "sample_rate_hz is 1: if the sample rate is unknown, read Hz as cycles per sample"
    )
    np.testing.assert_allclose(
        expected.frf[:, 0, 0], 2 * np.exp(-2j * np.pi * np.arange(3, 30, 3) * 3 / 128), rtol=1e-9
    )


def hit_record(at, size=100.0, n=1000, damping=20.0):
    f = np.zeros(n)
    f[at : at + 15] = size * np.sin(np.pi * np.arange(1, 16) / 16)
    y = np.convolve(f, np.exp(-damping * np.arange(n) / 500.0) * np.sin(0.4 * np.arange(n)))[:n]
    return f, np.column_stack([y, 2.0 * np.roll(y, 1)])


def test_hits_one_a_file(folder):
    for number, record in enumerate((hit_record(60), hit_record(80, 60.0), hit_record(5))):
        np.savez(folder / f"hit{number}.npz", data=np.column_stack(record))
    path = described(
        folder, record=[{"file": f"hit{i}.npz"} for i in range(3)], forces={"columns": [1], "dofs": ["3 -z"]},
        responses={"columns": [2, 3]}, method={"kind": "hits", "end_level": 0.01},
    )  # fmt: skip
    made = estimate_of_records(path)
    expected = estimate_frf_from_hits(
        [hit_record(60), hit_record(80, 60.0)], 500.0, decay_1_s=decay_of_end_level(0.01, 2.0)
    )
    same(made.frf_set.frf, expected.frf_set.frf)
    assert (made.frf_set.inputs, made.frf_set.averages) == (("3 -z",), 2)
    assert made.frf_set.decay_1_s == pytest.approx(-np.log(0.01) / 2.0)
    assert made.remarks == ("hit 3 is rejected: it begins 5 samples into the record, expected at least 19",)
    assert made.summary == ("hits: 2 of 3 used, peak force 60 to 100 N, df 0.5 Hz",)
    # the window begins at the hit, and has fallen to the level as long behind it as a record is
    assert exponential_window(np.array([2.0]), made.frf_set.decay_1_s)[0] == pytest.approx(0.01)


def test_hits_cut_out_of_records_of_a_roving_hammer(folder):
    for name, shift in (("a", 0), ("b", 40)):
        f = np.concatenate([hit_record(60 + shift)[0], hit_record(90)[0], hit_record(900)[0]])
        y = np.vstack([hit_record(60 + shift)[1], hit_record(90)[1], hit_record(900)[1]])
        np.savez(folder / f"{name}.npz", data=np.column_stack([f, y]))
    method = {"kind": "hits", "block": 800, "pre_trigger_s": 0.1, "decay_1_s": 3.0, "double_hit_level": 0.2,
              "force_window_s": 0.2, "estimator": "H2", "trigger": 30.0}  # fmt: skip
    path = described(
        folder, record=[{"file": "a.npz", "input": "1 x"}, {"file": "b.npz", "input": "2 z"}],
        forces={"columns": [1], "full_scale": 101.0}, responses={"columns": [2, 3], "full_scale": 1e9}, method=method,
    )  # fmt: skip
    made = estimate_of_records(path)
    assert (made.frf_set.inputs, made.frf_set.frf.shape, made.frf_set.averages) == (("1 x", "2 z"), (399, 2, 2), 2)
    np.testing.assert_allclose(made.frf_set.frf[:40, :, 0], made.frf_set.frf[:40, :, 1], rtol=1e-6)
    assert [hit.inputs[0] for hit in made.hits] == ["1 x", "1 x", "2 z", "2 z"]
    assert made.summary == tuple(f"hits at '{x}': 2 of 2 used, peak force 100 N, df 0.625 Hz" for x in ("1 x", "2 z"))
    assert [r for r in made.remarks if "less than a block after it" in r] == [
        f"{folder / name}.npz: the hit at 5.802 s has less than a block after it" for name in "ab"
    ]
    words = "none of the 2 hits can be used: hit 1: the force was overloaded"
    for record, message in (([{"file": "a.npz"}], words), ([{"file": "a.npz", "input": "1 x"},
                            {"file": "b.npz", "input": "2 z"}], f"toml: input '1 x': {words}")):  # fmt: skip
        with pytest.raises(InputError, match=message):
            estimate_of_records(described(
                folder, record=record, forces={"columns": [1], "full_scale": 80.0}, responses={"columns": [2, 3]},
                method=method,
            ))  # fmt: skip


CHANGES = [
    ({"sample_rate_hz": 0.0}, "sample_rate_hz: found 0.0, expected greater than 0"),
    ({"sample_rate_hz": None}, "sample_rate_hz: missing, expected a value"),
    ({"sample_rate": 5.0}, "sample_rate: unknown key, did you mean 'sample_rate_hz'?"),
    ({"record": []}, r"record: found \[\]"),
    ({"record": [{"variable": "x"}]}, "expected either file or public"),
    ({"record": [{"file": "a.npz"}, {"file": "b.npz"}]}, "has 2 records, expected one for a method of kind 'noise'"),
    ({"record": [{"file": "none.npz"}]}, "record number 1: .*none.npz: cannot be read: No such file"),
    ({"record": [{"file": "records.toml"}]}, "cannot read time records from it, expected a file ending in .mat"),
    ({"record": [{"file": "run.npz", "variable": "z"}]}, r"has no array of numbers 'z', found data \(4000, 5\)"),
    ({"record": [{"public": "x.mat"}]}, r"names public data, expected a table \[public\]"),
    ({"record": [{"file": "run.npz", "input": "1 x"}]}, "gives input, expected it for all records of hits"),
    ({"forces": {"columns": []}}, r"forces, columns: found \[\], expected at least 1 item$"),
    ({"forces": {"columns": [0, 2]}}, "forces, columns number 1: found 0, expected a number of at least 1$"),
    ({"forces": {"columns": ["force"]}}, "forces, columns number 1: found \"force\", expected a whole number$"),
    ({"forces": {"columns": "force"}}, "forces, columns: found \"force\", expected a table or a list$"),
    ({"forces": {"columns": {"first": 0, "last": 2}}}, "columns, first: found 0, expected a number of at least 1$"),
    ({"forces": {"columns": {"frist": 1, "last": 2}}}, "columns, frist: unknown key, did you mean 'first'"),
    ({"forces": {"columns": [2], "dofs": [""]}}, "dofs number 1: found \"\", expected a text of at least 1 character$"),
    ({"record": [{"file": "run.npz", "input": ""}]}, "input: found \"\", expected a text of at least 1 character$"),
    ({"method": {"kind": "noise", "segment": 3}}, "segment: found 3, expected a number of at least 4$"),
    ({"method": {"kind": "noise", "segment": 25.5}}, r"segment: found 25\.5, expected a whole number$"),
    ({"method": {"kind": "hits", "block": 15}}, "block: found 15, expected a number of at least 16$"),
    ({"method": {"kind": "hits", "end_level": 1.5}}, r"end_level: found 1\.5, expected a number of at most 1$"),
    ({"method": {"kind": "hits", "pre_trigger_s": -1.0}}, r"found -1\.0, expected a number not below 0$"),
    ({"nodes": {"": [0.0, 0.0, 0.0]}}, 'nodes, "": found "", expected a text of at least 1 character$'),
    ({"forces": {"columns": [2, 2]}}, "forces: names a column twice"),
    ({"forces": {"columns": {"first": 3, "last": 2}}}, r"columns: columns go from 3 to 2, .* first$"),
    ({"forces": {"columns": [2, 9]}}, "column is 9, expected at most the 5 of array 'data'"),
    ({"forces": {"columns": [2, 4]}}, "uses column 4 as a force and as a response"),
    ({"forces": {"columns": [2, 3], "dofs": ["1 x"]}}, "forces: has 1 dofs for 2 columns"),
    ({"forces": {"columns": [2, 3], "dofs": ["1 x", "1 x"]}}, "forces: names the degree of freedom '1 x' twice"),
    ({"forces": {"columns": [2, 3], "factors": [1.0, 2.0, 3.0]}}, "forces: has 3 factors for 2 columns"),
    ({"forces": {"columns": [2, 3], "factors": 0.0}}, "forces, factors number 1: found 0.0, expected another"),
    ({"forces": {"columns": [2, 3], "unit": "kg m"}}, r"unit 'm/s\^2/\(kg m\)' is not one of"),
    ({"method": {"kind": "noise"}}, "segment: missing"),
    ({"method": {"kind": "sweep"}}, "method, kind: found \"sweep\", expected one of"),
    ({"method": {"kind": "noise", "segment": 5000}}, "segment is 5000 samples, expected at most the 4000"),
    ({"method": {"kind": "noise", "segment": 256, "overlap": 1.0}}, "overlap: found 1.0, expected less than 1"),
    ({"method": {"kind": "noise", "segment": 256, "window": "han"}}, r"window is 'han', did you mean 'hann'\?"),
    ({"method": {"kind": "hits"}}, "has 2 forces, expected one for a method of kind 'hits'"),
    ({"method": {"kind": "hits", "end_level": 0.1, "decay_1_s": 1.0}}, "gives both decay_1_s and end_level"),
    ({"method": {"kind": "periodic", "period": 64, "first_harmonic": 5, "last_harmonic": 3}},
     "harmonics go from 5 to 3, expected the first one first"),
    ({"method": {"kind": "periodic", "period": 64, "last_harmonic": 999_999_999}},
     "last_harmonic is 999999999, expected below half the 64 samples of a period"),
    ({"posture": {"z1": "far"}}, "posture, z1: found \"far\""),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), CHANGES)
def test_what_is_refused(folder, changes, message):
    path = described(folder, **changes)
    with pytest.raises(InputError, match=message) as caught:
        frf_of_records(path)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("run.csv", b"1,2\n3,x\n", "no table of numbers: could not convert string 'x'"),
        ("run.csv", b"1,2\n3\n", "no table of numbers"),
        ("run.csv", b"1,5\n-2,75\n0,03\n", "a line is '0,03', a number with a decimal comma, expected points"),
        ("run.csv", b"a;b\n1,5;2\n2;3\n", "'1,5' .*points in numbers and one separator, as ';' in line 1"),
        ("run.csv", b"a,b\n\xff\xfe,1\n", "is not UTF-8 text"),
        ("run.csv", b"", "the first line is empty, expected names or numbers"),
        ("run.csv", b"a,b\n", r"the table is an array of float64 of shape \(0, 1\), expected real numbers"),
        ("run.npz", b"PK", "not a NPZ file of plain arrays"),
        ("run.mat", b"MATLAB 5.0", "not a MATLAB file of version 5, 7 or 7.3"),
        ("run.mat", b"MATLAB 7.3" + b" " * 502 + b"\x89HDF\r\n\x1a\n", "cannot be read as HDF5"),
    ],
)
def test_files_that_are_none(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_records(described(tmp_path, record=[{"file": name}], forces={"columns": [1]}, responses={"columns": [2]}))
    assert "\n" not in str(caught.value)


def test_a_cut_off_mat_file(folder):
    scipy.io.savemat(folder / "run.mat", {"data": TABLE}, do_compression=True)
    whole = (folder / "run.mat").read_bytes()
    for size in (len(whole) // 2, len(whole) - 10):
        (folder / "run.mat").write_bytes(whole[:size])
        with pytest.raises(InputError, match=r"run\.mat: the file ends|run\.mat: byte 128"):
            read_records(described(folder, record=[{"file": "run.mat"}]))


def test_a_sample_rate_beside_the_records_is_none(folder):
    np.savez(folder / "run.npz", data=TABLE, fs=500.0, rate=np.array([[500]]))
    same(frf_of_records(described(folder)).frf, expected_noise().frf)
    scipy.io.savemat(folder / "run.mat", {"data": TABLE, "fs": 500.0})
    same(frf_of_records(described(folder, record=[{"file": "run.mat"}])).frf, expected_noise().frf)


def test_endings_in_capitals(folder):
    scipy.io.savemat(folder / "RUN.MAT", {"data": TABLE})
    np.savez(folder / "x.npz", data=TABLE)
    (folder / "x.npz").rename(folder / "RUN.NPZ")
    np.savetxt(folder / "RUN.CSV", TABLE, delimiter=",", fmt="%.17g")
    for name in ("RUN.MAT", "RUN.NPZ", "RUN.CSV"):
        path = described(folder, record=[{"file": name}])
        capital = path.rename(path.with_name("RECORDS.TOML"))
        same(frf_of_records(capital).frf, expected_noise().frf)
        same(measured_frf(capital).frf_set.frf, expected_noise().frf)


def test_several_hits_in_a_record_need_a_block(folder):
    f = np.concatenate([hit_record(60)[0], hit_record(90)[0]])
    y = np.vstack([hit_record(60)[1], hit_record(90)[1]])
    np.savez(folder / "run.npz", data=np.column_stack([f, y]))
    parts = {"forces": {"columns": [1]}, "responses": {"columns": [2, 3]}}
    with pytest.raises(InputError, match=r"run\.npz holds more than one hit: expected method\.block"):
        estimate_of_records(described(folder, method={"kind": "hits"}, **parts))
    found = estimate_of_records(described(folder, method={"kind": "hits", "block": 900}, **parts))
    assert found.summary[0].startswith("hits: 2 of 2 used")
    swapped = {"forces": {"columns": [2]}, "responses": {"columns": [1, 3]}}
    with pytest.raises(InputError, match=r"none of the 2 hits can be used: .* is the force in another channel\?"):
        estimate_of_records(described(folder, method={"kind": "hits", "block": 900}, **swapped))


def test_arrays_that_are_no_records(folder):
    for data, message in (
        (np.ones((2, 3, 4)), r"array 'data' is an array of float64 of shape \(2, 3, 4\), expected real numbers"),
        (np.ones((0, 5)), "expected real numbers"),
        (np.where(TABLE[7, 2] == TABLE, np.nan, TABLE), "force 2 is nan at sample 8"),
        (np.full((400, 5), 2.0), "force 1 is 2 throughout"),
    ):
        np.savez(folder / "run.npz", data=data)
        with pytest.raises(InputError, match=message):
            frf_of_records(described(folder))
    np.savez(folder / "run.npz", a=TABLE, b=TABLE)
    with pytest.raises(
        InputError, match=r"holds 2 arrays of numbers \(a \(4000, 5\), b \(4000, 5\)\), expected the name"
    ):
        frf_of_records(described(folder))


def test_public_data_that_are_not_there(monkeypatch, tmp_path):
    assert set(measurement_names()) >= {"daisy-arm", "daisy-subframe"}
    monkeypatch.delenv("JAXMB_DATA", raising=False)
    where = "robot_arm_dat.mat of https://github.com/SLICOT/SLICOT-SystemIdentification at commit 947f1c5"
    with pytest.raises(InputError, match=f"the environment variable JAXMB_DATA is not set: expected {where}"):
        frf_of_records("daisy-arm")
    monkeypatch.setenv("JAXMB_DATA", str(tmp_path))
    with pytest.raises(InputError, match=f"there is no {tmp_path}/daisy-subframe/robot_arm_dat.mat: expected {where}"):
        frf_of_records("daisy-arm")
    with pytest.raises(InputError, match="measurement 'daisy-leg' does not exist, did you mean 'daisy-arm'"):
        frf_of_records("daisy-leg")


DATA = os.environ.get("JAXMB_DATA", "")
needs_data = pytest.mark.skipif(
    not (Path(DATA) / "daisy-subframe").is_dir() or not DATA, reason="JAXMB_DATA names no folder with daisy-subframe"
)


@needs_data
def test_daisy_subframe():
    made = estimate_of_records("daisy-subframe")
    frf_set = made.frf_set
    assert frf_set.frf.shape == (1023, 28, 2)
    assert (frf_set.unit, frf_set.averages) == ("unknown", 7)
    assert (frf_set.frequency_hz[0], frf_set.frequency_hz[-1]) == (0.5, 511.5)
    # Against SciPy, both inputs at once
    data = scipy.io.loadmat(Path(DATA) / "daisy-subframe" / "flexible_structure_dat.mat")["flexible_structure_dat"]
    settings = (1024.0, "hann", 2048, 1536)
    ff = np.array([[signal.csd(data[:, j], data[:, i], *settings)[1] for j in range(2)] for i in range(2)])
    yf = np.array([[signal.csd(data[:, j], data[:, o + 2], *settings)[1] for j in range(2)] for o in (0, 27)])
    expected = np.einsum("oif,fij->foj", yf, np.linalg.inv(np.moveaxis(ff, -1, 0)))[1:-1]
    np.testing.assert_allclose(frf_set.frf[:, [0, 27]], expected, rtol=1e-7)
    band = (frf_set.frequency_hz >= 20.0) & (frf_set.frequency_hz <= 480.0)
    assert np.median(frf_set.coherence[band]) > 0.99
    assert made.remarks[0].startswith("the peak at 119 Hz is 2.3 lines wide")


@needs_data
def test_daisy_arm_and_which_column_is_the_torque():
    frf_set = frf_of_records("daisy-arm")
    assert frf_set.frf.shape == (100, 1, 1)
    np.testing.assert_allclose(frf_set.frequency_hz * 1024, np.arange(1, 200, 2), rtol=1e-12)
    record = read_records("daisy-arm")[0]
    lines = np.arange(1, 200, 2)
    torque = np.abs(np.fft.rfft(record.force[:, 0]))[lines]
    motion = np.abs(np.fft.rfft(record.response[:, 0]))[lines]
    # Even lines carry what distortion makes of odd ones: the force has a thirtieth there.
    assert np.median(np.abs(np.fft.rfft(record.force[:, 0]))[lines[1:] - 1]) < 0.05 * np.median(torque)
    # A flat source that feels the machine: never much above its median, least where the ratio has its sharpest peaks.
    peaks = signal.find_peaks(np.abs(frf_set.frf[:, 0, 0]), prominence=5.0)[0]
    np.testing.assert_array_equal(lines[peaks], [59, 129])
    assert torque.max() < 1.5 * np.median(torque)
    assert lines[np.argmin(torque)] == 59
    assert torque[peaks[1]] < 0.5 * np.median(torque)
    assert motion.max() > 14 * np.median(motion)
    assert motion.min() < np.median(motion) / 300
    # The phase falls by half a turn through both peaks, as through poles of a stable machine.
    phase = np.unwrap(np.angle(frf_set.frf[:, 0, 0]))
    for peak in peaks:
        assert phase[peak + 3] - phase[peak - 3] == pytest.approx(-np.pi, abs=0.3)
    # The reaction on the ground is minus the torque on the arm: a positive inertia at low frequency.
    arm = select_channels(frf_set, inputs=["motor rz"]).frf[:5, 0, 0]
    np.testing.assert_allclose(arm, 0.105, atol=0.01)


def test_a_unit_is_stated_where_the_set_says_none():
    def frf_set(unit="", **changes):
        return FrfSet([1.0], np.full((1, 1, 1), 2.0 - 1.0j), "mobility", unit=unit, **changes)

    for stands in ("unknown", ""):
        stated = in_stated_unit(frf_set(stands), "mm/s/N", "rig.csv")
        assert (stated.frf[0, 0, 0], stated.unit) == (2.0 - 1.0j, "mm/s/N")
    # the same unit in other words is no contradiction
    assert in_stated_unit(frf_set("mm/s/N"), "mm s-1 N-1", "rig.csv").unit == "mm s-1 N-1"
    with pytest.raises(ValueError, match=r"unit is 'm/s/lbf', but 'rig' states mm/s/N: expected that or none"):
        in_stated_unit(frf_set("mm/s/N", source="rig"), "m/s/lbf", "rig.csv")
    with pytest.raises(ValueError, match=r"unit is 'mm/s/N', but 'rig\.uff' states m/s/N"):
        in_stated_unit(frf_set(), "mm/s/N", "rig.uff")
    with pytest.raises(ValueError, match="unit 'g/N' is not one of mobility"):
        in_stated_unit(frf_set("unknown"), "g/N", "rig.csv")
