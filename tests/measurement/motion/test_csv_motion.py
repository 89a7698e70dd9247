"""Motions in CSV files: what was written is read, and wrong files are told where."""

import tracemalloc

import numpy as np
import pytest

from jaxmb.io import files
from jaxmb.io.files import LARGEST_FILE, csv_table
from jaxmb.measurement.motion.csv_motion import read_motion, write_motion
from jaxmb.measurement.motion.record import MotionRecord, check_record, resampled

TIME = np.arange(30) / 100.0


def record(**changes):
    q = np.stack([np.sin(TIME), 0.1 * TIME], axis=1)
    effort = np.stack([np.cos(TIME), np.full(30, np.nan)], axis=1)
    return MotionRecord(**{"time_s": TIME, "names": ("a", "b"), "position": q, "effort": effort} | changes)


def test_written_and_read(tmp_path):
    velocity = np.stack([np.cos(TIME), np.full(30, np.nan)], axis=1)
    write_motion(tmp_path / "motion.csv", record(velocity=velocity))
    found = read_motion(tmp_path / "motion.csv", ("b", "a", "c"))
    assert found.names == ("b", "a")
    assert found.rate_hz == pytest.approx(100.0)
    np.testing.assert_array_equal(found.position[:, ::-1], record().position)
    np.testing.assert_array_equal(found.effort[:, 1], np.cos(TIME))
    assert np.isnan(found.effort[:, 0]).all()
    np.testing.assert_array_equal(found.velocity[:, 1], np.cos(TIME))
    assert found.acceleration is None


@pytest.mark.parametrize("rate_hz", [100.0, 250.0, 300.0])
def test_resampled(rate_hz):
    """Uneven samples of a sine of 1 Hz and of a step: a spline errs by 5 (w h)^4 / 384 of steps h, here 1e-5, the
    filter at 40 Hz by (1 / 40)^8; beside what is blurred, the step keeps its values."""
    draw = np.random.default_rng(0)
    time = np.cumsum(draw.uniform(0.5, 1.5, 1001)) / 250.0
    angle, effort = np.sin(2 * np.pi * time), np.where(time < 2.0, -1.0, 3.0)
    found = resampled(
        MotionRecord(time, ("a", "b"), np.stack([angle, 0 * time], 1), np.stack([effort, np.nan * time], 1)), rate_hz
    )
    assert found.rate_hz == pytest.approx(rate_hz, rel=1e-12)
    assert len(found.time_s) == int((time[-1] - time[0]) * rate_hz) + 1
    inside = slice(30, -30)  # without the filter's ends
    np.testing.assert_allclose(found.position[inside, 0], np.sin(2 * np.pi * found.time_s)[inside], atol=3e-5)
    far = np.abs(found.time_s - 2.0) > (found.blurred + 1) / rate_hz
    far[:30], far[-30:] = False, False
    np.testing.assert_allclose(found.effort[far, 0], np.where(found.time_s < 2.0, -1.0, 3.0)[far], atol=0.03 * 4)
    assert np.isnan(found.effort[:, 1]).all()


def test_a_sample_missing_among_many_is_named():
    """Its acceleration would be 16 rad/s^2 off at 1 rad/s and a cut-off of 20 Hz."""
    time = np.delete(np.arange(120_001), 60_000) / 1000.0
    with pytest.raises(ValueError, match=r"time_s is not even: sample \d+ is 0.0005 s off steps of 0.00100001 s"):
        check_record(MotionRecord(time, ("a",), time[:, None], time[:, None]))
    check_record(MotionRecord(np.round(np.arange(1000) / 3e3, 6), ("a",), time[:1000, None], time[:1000, None]))


def lines(heads="time_s,a,a.torque", rows=None):
    rows = [f"{t},{t},{2 * t}" for t in TIME] if rows is None else rows
    return "\n".join([heads, *rows])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (lines("t,a,a.torque"), "columns are t, a, a.torque, expected time_s among them"),
        (lines("time_s", ["0"]), "columns are time_s, expected coordinates among them: a, b"),
        (lines("time_s,x,a.torque"), "column 'x' does not exist; expected one of: a, b, a.torque"),
        (lines("time_s,a deg,a.torque"), "column 'a deg' has a unit, expected the heading 'a', in rad or m"),
        (lines("time_s,a,a_torque"), "column 'a_torque' does not exist, did you mean 'a.torque'?"),
        (lines("time_s;a;a.torque", ["0,00;0,1;0,2"]), "line 1: cells are separated by semicolons, expected commas"),
        (lines("time_s,a,b.torque"), "column 'b.torque' has no column 'b'"),
        (lines("time_s,a,a.force"), "column 'a.force': signal 'force' does not exist"),
        (lines(rows=[f"{t},{t}" for t in TIME]), "line 2 has 2 cells, expected 3 as in the heading"),
        (lines('time_s,a,"a.torque\n"', ["0,1"]), "line 3 has 2 cells"),  # a cell over two lines, as of a spreadsheet
        (lines(rows=["0,x,1"]), "line 2: a is 'x', expected a number"),
        (lines(rows=["0,1_0,1"]), "line 2: a is '1_0', expected a number"),
        (lines(rows=[f"{t},nan,1" for t in TIME]), "a is nan at sample 1"),
        (
            lines(rows=[f"{-t},1,1" for t in TIME]),
            r"time_s goes from -?0 to -0.01 s at sample 2, expected increasing times",
        ),
        (
            lines(rows=[f"{t**1.1},1,1" for t in TIME]),
            r"time_s is not even: sample \d+ is .* s off steps of .*, or resample_hz = 113 of the test",
        ),
        (
            lines("0.0,0.1,0.2"),
            "line 1 holds the numbers 0.0, 0.1, 0.2, ... and no column names, expected a heading such as"
            " time_s,a,b,a.torque,b.torque",
        ),
        (
            lines("time_s,a,a.current"),
            r"column 'a.current' is a current, expected 'a.torque' in N m or N; currents belong .* TOML description .*"
            r"\[\[drive\]\] has gain .* free as drive_gain",
        ),
        (lines(rows=[f"{t},{9000 * t},1" for t in TIME]), "is it in degrees, or counts"),
        (lines(rows=["0,1,1", "1,1,1"]), "there are 2 samples, expected at least 20"),
        (lines("time_s,a,b"), r"no torque was measured, expected a column such as 'a.torque'"),
    ],
)
def test_wrong_files(tmp_path, text, message):
    (tmp_path / "motion.csv").write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        read_motion(tmp_path / "motion.csv", ("a", "b"))
    assert "motion.csv" in str(raised.value)


def test_a_table_may_be_larger_than_a_description(tmp_path):
    path = tmp_path / "motion.csv"
    path.write_text(lines(rows=[f"{t},{t:>90000},{2 * t:>90000}" for t in TIME]))
    assert path.stat().st_size > LARGEST_FILE
    np.testing.assert_array_equal(read_motion(path, ("a", "b")).time_s, TIME)


def test_memory_of_a_table(tmp_path, monkeypatch):
    """Six bytes for each of the file: those of the file and of its cells, of 20 characters and an object each."""
    path = tmp_path / "motion.csv"
    path.write_text("\n".join([",".join("abcdefghij"), *1000 * [",".join(10 * ["0.12345678901234567"])]]))
    monkeypatch.setattr(files, "LARGEST_TABLE", path.stat().st_size)
    tracemalloc.start()
    try:
        csv_table(path, "numbers")
        assert tracemalloc.get_traced_memory()[1] < 8 * path.stat().st_size
    finally:
        tracemalloc.stop()
