"""Motions recorded at motors, against gears worked out by hand."""

import numpy as np
import pytest
import pyuff

from jaxmb.measurement.motion.csv_motion import read_described

TIME = np.arange(50) / 100.0
Q = np.stack([0.5 * np.sin(3 * TIME), 0.4 * np.cos(2 * TIME)], axis=1)
TAU = np.stack([np.cos(TIME), 2.0 + np.sin(TIME)], axis=1)
TEXT = """
rate_hz = 100.0
zero = { b = "90 deg" }
position = { file = "motors.npz", variable = "angle", columns = [1, 2], unit = "deg" }
effort = { file = "motors.npz", variable = "current", columns = [2, 3] }
drive = [{ name = "first", ratio = { a = 50 }, gain = 0.2 }, { name = "second", ratio = { a = 20, b = -40 } }]
"""


def write(folder, text=TEXT):
    # the second motor turns by 20 a - 40 (b - 90 deg); torques: tau_a = 50 m_1 + 20 m_2, tau_b = -40 m_2
    angle = np.degrees(np.stack([50 * Q[:, 0], 20 * Q[:, 0] - 40 * (Q[:, 1] - np.pi / 2)], axis=1))
    second = TAU[:, 1] / -40
    first = (TAU[:, 0] - 20 * second) / 50
    current = np.stack([0 * TIME, first / 0.2, second], axis=1)
    np.savez(folder / "motors.npz", angle=angle, current=current)
    (folder / "motion.toml").write_text(text)


def test_joint_motion_behind_coupled_gears(tmp_path):
    write(tmp_path)
    found = read_described("motion.toml", tmp_path, ("a", "b", "c"))
    assert found.names == ("a", "b")
    assert found.rate_hz == pytest.approx(100.0)
    np.testing.assert_allclose(found.position, Q, atol=1e-12)
    np.testing.assert_allclose(found.effort, TAU, atol=1e-12)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("b = -40", "x = -40", "coordinate 'x' does not exist"),
        (", b = -40", "", "2 drives do not determine a"),
        ("[2, 3]", "[2]", "effort has 1 columns for 2 drives"),
        ("[2, 3]", "[2, 4]", "column is 4, expected at most the 3 of array 'current'"),
        ("[2, 3]", "[3, 3]", "effort names a column twice, expected one for each drive"),
        ("a = 50", "a = 0", "ratio, a: found 0, expected another number than 0"),
        ("columns = [2, 3]", 'columns = [2, 3], unit = "deg"', "effort has unit 'deg', expected none: gain of a drive"),
        ("motors.npz", "absent.npz", "absent.npz: cannot be read: No such file"),
    ],
)
def test_wrong_descriptions(tmp_path, old, new, message):
    write(tmp_path, TEXT.replace(old, new, 1))
    with pytest.raises(ValueError, match=message):
        read_described("motion.toml", tmp_path, ("a", "b"))


@pytest.mark.parametrize(("variable", "signal"), [("angle", "position"), ("current", "effort")])
def test_a_missing_sample_is_that_of_a_drive(tmp_path, variable, signal):
    """Coupled gears spread it over several coordinates."""
    write(tmp_path)
    columns = dict(np.load(tmp_path / "motors.npz"))
    columns[variable][10, -1] = np.nan
    np.savez(tmp_path / "motors.npz", **columns)
    with pytest.raises(ValueError, match=f"{signal} of drive 'second' is nan at sample 11"):
        read_described("motion.toml", tmp_path, ("a", "b"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # pyuff leaves files open
def test_sample_rate_of_a_universal_file(tmp_path):
    file = pyuff.UFF(str(tmp_path / "motors.uff"))
    for values in (TIME, TIME):
        file.write_sets({
            "type": 58, "func_type": 1, "rsp_node": 1, "rsp_dir": 1, "ref_node": 1, "ref_dir": 1, "data": values,
            "x": TIME, "id1": "a", "rsp_ent_name": "NONE", "ref_ent_name": "NONE", "abscissa_spacing": 1,
            "abscissa_spec_data_type": 17, "ordinate_spec_data_type": 12, "orddenom_spec_data_type": 0, "binary": 1,
        }, "add")  # fmt: skip
    text = TEXT.replace("motors.npz", "motors.uff").replace('variable = "angle", ', "").replace("100.0", "50.0")
    (tmp_path / "motion.toml").write_text(text.replace('variable = "current", ', "").replace("[2, 3]", "[1, 2]"))
    with pytest.raises(ValueError, match=r"motors\.uff: sampled at 100 Hz, but the stated rate is 50 Hz"):
        read_described("motion.toml", tmp_path, ("a", "b"))
