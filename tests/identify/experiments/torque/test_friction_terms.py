"""Further terms of friction: found where the truth has them, not taken where it has not."""

import numpy as np
import pytest

from jaxmb.identify.experiments.torque.friction_terms import friction_terms
from jaxmb.identify.experiments.torque.prepared import Prepared
from jaxmb.measurement.motion.csv_motion import read_motion, write_motion
from jaxmb.measurement.motion.record import MotionRecord
from tests.identify.experiments.torque.test_torque_pendulum import TEST, TIME, columns, motion, study

NAMES = ("inertia.bob.zz", "first_moment.bob.x", "damping.q", "friction.q")
TRUE = np.array([0.5, 1.2, 0.7, 0.9])
KINDS = ("stribeck", "load", "cubic", "temperature")
NOISE = 0.05
WARM = 30.0 + 15.0 * np.linspace(0.0, 1.0, 4001)


def rows(extra=None, seed=0):
    """Equations of the pendulum along 20 s, with a further torque of the speed, the load and the temperature."""
    time = np.arange(4001) / 200.0
    Y, v = columns(time), motion(time)[1]
    effort = Y @ TRUE + NOISE * np.random.default_rng(seed).normal(size=time.size)
    if extra is not None:
        effort = effort + extra(v, np.abs(Y[:, :2] @ TRUE[:2]), WARM)
    return Prepared(Y, effort, np.zeros(time.size, dtype=int), time, v, ("q",), WARM)


@pytest.mark.parametrize(
    ("kind", "size", "law"),
    [
        ("stribeck", 0.4, lambda v, load, warm: np.exp(-((v / 0.4) ** 2)) * np.sign(v)),
        ("load", 0.05, lambda v, load, warm: load * np.sign(v)),
        ("cubic", 0.02, lambda v, load, warm: v**3),
        ("temperature", -0.05, lambda v, load, warm: (warm - warm.mean()) * v),
    ],
)
def test_a_term_that_is_there(kind, size, law):
    found = friction_terms(rows(lambda *state: size * law(*state)), NAMES, KINDS)
    assert found[0].kind == kind
    assert len(found) == 1 or kind == "stribeck"  # of speeds that are tried none is the true one: a rest may be left
    term = found[0]
    # five deviations, and what the grid of Stribeck speeds, steps of 1.5, leaves of the size
    assert abs(term.coefficient - size) < 5.0 * term.std + (0.2 * size if kind == "stribeck" else 0.0)
    assert term.after < term.before
    assert term.after == pytest.approx(NOISE, rel=0.05)
    if kind == "stribeck":
        assert term.speed == pytest.approx(0.4, rel=0.25)
    else:
        assert term.speed is None


def test_no_term_where_there_is_none():
    """Five draws of the noise, four kinds each: by chance one in twenty studies of these would take one."""
    taken = [friction_terms(rows(seed=seed), NAMES, KINDS) for seed in range(5)]
    assert sum(len(found) > 0 for found in taken) <= 1


def test_what_a_study_says(tmp_path):
    _, v, _ = motion(TIME)
    noise = NOISE * np.random.default_rng(1).normal(size=TIME.size)
    tried = {"friction_terms": ["stribeck", "cubic"]}
    entry = study(tmp_path, noise + 0.2 * v**3, **tried).fitted[0]
    (told,) = [remark for remark in entry.remarks if "friction" in remark]
    assert told.startswith("q: cubic friction of 0.2")
    assert "it is not in what was identified" in told
    entry = study(tmp_path, noise, **tried).fitted[0]
    assert any("no further friction (stribeck, cubic) predicts" in remark for remark in entry.remarks)


def test_wrong_requests(tmp_path):
    with pytest.raises(ValueError, match="expected no effort_cutoff_hz beside them"):
        study(tmp_path, friction_terms=["cubic"], effort_cutoff_hz=8.0)
    with pytest.raises(ValueError, match="found no column 'temperature' in the record"):
        study(tmp_path, friction_terms=["temperature"])
    assert TEST["cutoff_hz"] == 40.0


def test_temperatures_in_tables(tmp_path):
    time = np.arange(30) / 10.0
    record = MotionRecord(time, ("q",), np.sin(time)[:, None], np.cos(time)[:, None], temperature=20.0 + time)
    write_motion(tmp_path / "warm.csv", record)
    np.testing.assert_array_equal(read_motion(tmp_path / "warm.csv", ["q"]).temperature, record.temperature)
