"""Modal models and time histories in universal files, as pyuff reads and writes them."""

import numpy as np
import pytest
import pyuff

import jaxmb
from jaxmb.io.validation import InputError

FREQUENCY_HZ = np.arange(2.0, 40.0, 0.05)


def frfs(outputs, inputs):
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    points = [("tool", axis) for axis in "xyz"]
    h = jaxmb.frf(model, jaxmb.reference_posture(model), FREQUENCY_HZ, kind="receptance", outputs=points, inputs=points)
    return jaxmb.FrfSet(FREQUENCY_HZ, np.asarray(h), "receptance", outputs, inputs, nodes={"7": (0.1, 0.2, 0.3)})


@pytest.mark.parametrize(
    ("points", "node"),
    [(("7 +x", "7 -y", "7 z"), 7), (("a long tool name x", "a long tool name -y", "a long tool name z"), 1)],
)
def test_dataset_55(tmp_path, points, node):
    """What pyuff reads has the modes and, by its modal A, the residues, to the six digits of the format."""
    model = jaxmb.modal_analysis(frfs(points, points)).model
    path = tmp_path / "modes.uff"
    jaxmb.write_modal_model(path, model, {"7": (0.1, 0.2, 0.3)})
    file = pyuff.UFF(str(path))
    sets = [each for each in file.read_sets() if each["type"] == 55]
    assert len(sets) == model.eigenvalue.size == 3
    assert (2411 in file.get_set_types()) == (node == 7)
    for r, each in enumerate(sets):
        np.testing.assert_allclose(each["eig"], model.eigenvalue[r], rtol=1e-4)
        assert list(each["node_nums"]) == [node]
        shape = np.array([each["r1"][0], -each["r2"][0], each["r3"][0]])
        np.testing.assert_allclose(shape, model.shape[:, r], atol=2e-5)
        residue = np.outer(shape, shape) / each["modal_a"]
        expected = np.outer(model.shape[:, r], model.participation[r])
        np.testing.assert_allclose(residue, expected, atol=1e-3 * np.abs(expected).max())
    with pytest.raises(ValueError, match=r"expected a file ending in \.uff or \.unv"):
        jaxmb.write_modal_model(tmp_path / "modes.txt", model)


def test_modal_a_of_a_roving_hammer(tmp_path):
    """The residues of one sensor, mounted against z, in mm/N: its shape is not the largest component of each mode."""
    points = ("7 x", "7 y", "7 z")
    h = -1e3 * frfs(points, points).frf[:, 2:]
    model = jaxmb.modal_analysis(jaxmb.FrfSet(FREQUENCY_HZ, h, "receptance", ("7 -z",), points, unit="mm/N")).model
    jaxmb.write_modal_model(tmp_path / "modes.uff", model)
    sets = [each for each in pyuff.UFF(str(tmp_path / "modes.uff")).read_sets() if each["type"] == 55]
    assert len(sets) == model.eigenvalue.size > 0
    for r, each in enumerate(sets):
        shape = np.array([each["r1"][0], each["r2"][0], each["r3"][0]])
        expected = -1e-3 * model.shape[0, r] * model.participation[r]
        np.testing.assert_allclose(shape[2] * shape / each["modal_a"], expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize(("nodes", "complete"), [(11, True), (30, False)])
def test_numbers_of_named_nodes_are_listed(tmp_path, nodes, complete):
    """In two lines of 80 characters, of more nodes the first ones, none with a part of its name."""
    names = [f"section{k}" for k in range(1, nodes + 1)]
    s = 2j * np.pi * FREQUENCY_HZ[:, None, None]
    h = np.linspace(0.1, 1.0, nodes)[:, None] / (s**2 + s + (2.0 * np.pi * 15.0) ** 2)
    model = jaxmb.modal_analysis(jaxmb.FrfSet(FREQUENCY_HZ, h, "receptance", [f"{n} z" for n in names], ["1 z"])).model
    jaxmb.write_modal_model(tmp_path / "modes.uff", model)
    (mode,) = (each for each in pyuff.UFF(str(tmp_path / "modes.uff")).read_sets() if each["type"] == 55)
    *listed, last = f"{mode['id4']} {mode['id5']}".split("; ")
    assert listed == [f"{k} {name}" for k, name in enumerate(names, start=1)][: len(listed)]
    assert (last == f"{nodes} {names[-1]}") if complete else last.endswith("...")


def history(values, rate, **more):
    return {"type": 58, "func_type": 1, "rsp_node": 1, "rsp_dir": 1, "ref_node": 1, "ref_dir": 1, "data": values,
            "x": np.arange(len(values)) / rate, "id1": "a", "rsp_ent_name": "NONE", "ref_ent_name": "NONE",
            "abscissa_spacing": 1, "ordinate_spec_data_type": 12, "abscissa_spec_data_type": 17,
            "orddenom_spec_data_type": 0, "binary": 1} | more  # fmt: skip


DESCRIPTION = """sample_rate_hz = {rate}
record = [{{ file = "run.uff" }}]
forces = {{ columns = [2], dofs = ["1 x"] }}
responses = {{ columns = [1, 3], dofs = ["1 x", "2 x"] }}
method = {{ kind = "noise", segment = 64 }}
"""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pyuff leaves files open
@pytest.mark.parametrize("binary", [0, 1])
def test_time_histories(tmp_path, binary):
    """Functions of type 1 are the columns, in their order; an FRF between them is no column."""
    rng, rate = np.random.default_rng(0), 512.0
    channels = rng.normal(size=(3, 640))
    file = pyuff.UFF(str(tmp_path / "run.uff"))
    for channel in channels:
        file.write_sets(history(channel, rate, binary=binary), "add")
    (tmp_path / "run.toml").write_text(DESCRIPTION.format(rate=rate))
    (record,) = jaxmb.read_records(tmp_path / "run.toml")
    digits = 0.0 if binary else 1e-5  # single precision as text
    np.testing.assert_allclose(record.force[:, 0], channels[1], rtol=digits, atol=digits)
    np.testing.assert_allclose(record.response.T, channels[[0, 2]], rtol=digits, atol=digits)
    (tmp_path / "run.toml").write_text(DESCRIPTION.format(rate=500.0))
    with pytest.raises(InputError, match=r"run\.uff: sampled at 512 Hz, but the stated rate is 500 Hz"):
        jaxmb.read_records(tmp_path / "run.toml")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_units_of_time_histories(tmp_path):
    """As of accelerometers in g, read as m/s^2 by a description without units."""
    channels = np.random.default_rng(0).normal(size=(3, 640))
    file = pyuff.UFF(str(tmp_path / "run.uff"))
    for channel, label in zip(channels, ("g", "N", "g"), strict=True):
        file.write_sets(history(channel, 512.0, ordinate_axis_units_lab=label), "add")
    path, text = tmp_path / "run.toml", DESCRIPTION.format(rate=512.0)
    path.write_text(text)
    with pytest.raises(InputError, match=r"run\.uff: column 1 over column 2 is in g/N, expected m/s\^2/N: state unit"):
        jaxmb.read_records(path)
    for stated, unit in (
        ('dofs = ["1 x", "2 x"], unit = "g"', "g/N"),
        ('dofs = ["1 x", "2 x"], factors = 9.8', "m/s^2/N"),
    ):
        path.write_text(text.replace('dofs = ["1 x", "2 x"]', stated))
        assert jaxmb.read_records(path)[0].unit == unit


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_time_histories_that_begin_at_different_times(tmp_path):
    file = pyuff.UFF(str(tmp_path / "run.uff"))
    for start, channel in enumerate(np.random.default_rng(0).normal(size=(3, 640))):
        own = history(channel, 512.0)
        file.write_sets(own | {"x": own["x"] + (start == 2) * 0.5}, "add")
    (tmp_path / "run.toml").write_text(DESCRIPTION.format(rate=512.0))
    with pytest.raises(
        InputError, match=r"function 3 .*640 samples at steps of 0\.00195312 s from 0\.5 s, but function 1"
    ):
        jaxmb.read_records(tmp_path / "run.toml")


def test_no_time_history(tmp_path):
    jaxmb.write_frf(tmp_path / "run.uff", frfs(("1 x", "1 y", "1 z"), ("1 x", "1 y", "1 z")))
    (tmp_path / "run.toml").write_text(DESCRIPTION.format(rate=512.0))
    with pytest.raises(InputError, match=r"holds no time response .*; found 9 frequency response function"):
        jaxmb.read_records(tmp_path / "run.toml")


def test_trace_lines(tmp_path):
    """Of nodes by their numbers, also of nodes without a sensor."""
    model = jaxmb.modal_analysis(frfs(("7 x", "7 y", "arm z"), ("7 x", "7 y", "arm z"))).model
    nodes = {"7": (0.1, 0.2, 0.3), "arm": (0.0, 0.0, 1.0), "9": (0.0, 0.0, 0.0)}
    jaxmb.write_modal_model(tmp_path / "modes.uff", model, nodes, [("9", "7", "arm")])
    of_nodes, line = pyuff.UFF(str(tmp_path / "modes.uff")).read_sets([1, 2])
    assert line["nodes"].tolist() == [9, 7, 10]
    assert dict(zip(of_nodes["node_nums"], of_nodes["z"], strict=True)) == {7: 0.3, 10: 1.0, 9: 0.0}
