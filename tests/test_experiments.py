"""Experiments fit the package that they are run with."""

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.optimize

import jaxmb

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
PROGRAMS = sorted(path for path in EXPERIMENTS.glob("*/*.py"))


def loaded(path, monkeypatch):
    """The module of a program, which finds its neighbours as it does when it is run."""
    monkeypatch.syspath_prepend(str(path.parent))
    for other in path.parent.glob("*.py"):  # one of this name in another folder
        monkeypatch.delitem(sys.modules, other.stem, raising=False)
    name = f"experiment_{path.parent.name}_{path.stem}".replace("-", "_")
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)  # where dataclasses look for their module
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: str(path.relative_to(EXPERIMENTS)))
def test_every_program_finds_what_it_imports(path, monkeypatch):
    module = loaded(path, monkeypatch)
    assert module.__doc__
    assert "__main__" not in path.read_text() or callable(module.main)


def test_coverage_counts_data_that_are_not_followed(monkeypatch):
    run = loaded(EXPERIMENTS / "coverage" / "run.py", monkeypatch)
    understated = run.frf(noise=0.3, noise_log_std=0.01)
    assert [run.outcome(run.stated(test), 1).alarms for test in (understated, run.frf())] == [1.0, 0.0]


def test_alternatives_of_the_kr240_change_one_thing_alone(monkeypatch):
    run = loaded(EXPERIMENTS / "kr240-joint-stiffness" / "run.py", monkeypatch)

    def cases_of(**changes):
        (entry,) = run._changed(**changes).fitted
        return entry.source.cases, entry

    plain, _ = cases_of()
    half, _ = cases_of(loads=0.5)
    for one, other in zip(plain, half, strict=True):
        np.testing.assert_array_equal(other.q, one.q)
        np.testing.assert_allclose(other.wrench, 0.5 * one.wrench, rtol=1e-12)
    near, entry = cases_of(reflectors_m=0.25)
    assert entry.source.instruments.reflectors_m == 0.25
    # reflectors at half the distance: rotations err twice as much, translations as before
    np.testing.assert_allclose(near[0].std, plain[0].std * np.repeat([1.0, 2.0], 3), rtol=1e-12)
    _, entry = cases_of(rotation_weight=4.0)
    np.testing.assert_array_equal(np.unique(np.asarray(entry.test.stated_variances())), [1.0, 4.0])


def test_peers_of_the_speed_benchmark_fit_the_same_responses(monkeypatch):
    """NumPy's machine and jaxmb's are written apart; both in a posture that is no special one."""
    peers = loaded(EXPERIMENTS / "speed" / "peers.py", monkeypatch)
    angles = np.deg2rad([0.0, 47.0, -61.0])
    problem = peers.kr90_problem(posture=angles)
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    q = jaxmb.posture(model, dict(zip(("z1", "z2", "z3"), angles, strict=True)))
    expected = jaxmb.frf(model, q, problem.frequency_hz, kind="receptance")[:, peers.ROW, peers.COLUMN]
    found = peers.receptance_pairs(problem, problem.truth)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_allclose(problem.H_pairs, expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())


def test_jacobian_of_the_speed_benchmarks_peers(monkeypatch):
    """Beside SciPy's finite differences, for two postures."""
    peers = loaded(EXPERIMENTS / "speed" / "peers.py", monkeypatch)
    problems = [peers.kr90_problem(posture=np.deg2rad(at)) for at in ([0.0, 70.0, -100.0], [0.0, 40.0, -50.0])]
    fit = peers.Stacked([peers.Residuals(problem, stride=12) for problem in problems])
    x = np.log(problems[0].truth) + 0.1
    differences = np.asarray(scipy.optimize.approx_fprime(x, fit, 1e-7))
    np.testing.assert_allclose(fit.jacobian(x), differences, atol=1e-4 * np.abs(differences).max())


def test_times_of_the_speed_benchmark(monkeypatch):
    """Expected time to an exact answer, and how time grows."""
    run = loaded(EXPERIMENTS / "speed" / "run.py", monkeypatch)
    assert run.expected([(2.0, 1.0, True), (4.0, 3.0, False)], 0) == 6.0
    assert run.expected([(2.0, 1.0, False), (4.0, 3.0, False)], 1) == 4.0
    times = {str(size): [[1.0, 2e-3 * size**1.5]] * 3 for size in (4, 16, 64)}
    assert abs(run.slopes.slope(times) - 1.5) < 1e-12


@pytest.mark.parametrize(("names", "states"), [
    ("", "[2, 1, 2, 3, 4, 5, 6]"),
    ("joint_names: [dsr_joint6, dsr_joint5, dsr_joint4, dsr_joint3, dsr_joint2, dsr_joint1, column_prismatic_joint]",
     "[6, 5, 4, 3, 2, 1, 2]"),
])  # fmt: skip
def test_a_set_of_the_trailblazer_without_optional_parts(tmp_path, monkeypatch, names, states):
    convert = loaded(EXPERIMENTS / "trailblazer" / "convert.py", monkeypatch)
    one = f"{{joint_states: {states}, prism_position: [.nan, .nan, .nan], tilt_sensor_base_accel: [0, 0, 9.8]}}"
    spaces = f"{{solution_spaces: {{7: {{evaluation_measurements: [{one}]}}}}}}"
    (tmp_path / "set.yaml").write_text(f"{names}\ncolumn_heights: {{2.0: {spaces}}}\n")
    (point,) = convert.points(tmp_path / "set.yaml")
    assert (point.height, point.space, point.stationing) == (2.0, 7, False)
    arm = {f"dsr_joint{k}": float(k) for k in range(1, 7)}
    assert point.q == pytest.approx({"column_middle_joint": 0.294, "column_top_joint": 0.264} | arm)
    assert point.position == ()
    assert point.upward == ((0.0, 0.0, 9.8), ())


@pytest.mark.parametrize(("text", "message"), [
    ("[1, 2]", "has no column_heights, expected a set of the layout of flat.yaml"),
    ("joint_names: [a]\ncolumn_heights: {}", r"joint_names is \['a'\], expected"),
    ("column_heights: {high: {}}", "column height is high, expected a number of metres"),
    ("column_heights: {2: {solution_spaces: {0: {stationing_measurements: [{}]}}}}",
     "column height 2, solution space 0, stationing_measurements, 1: has no joint_states, expected 7 numbers"),
    ("column_heights: {2: {solution_spaces: {0: {stationing_measurements: [{joint_states: [1, 2]}]}}}}",
     r"joint_states is \[1, 2\], expected 7 numbers"),
])  # fmt: skip
def test_a_wrong_set_of_the_trailblazer_gets_a_sentence(tmp_path, monkeypatch, text, message):
    convert = loaded(EXPERIMENTS / "trailblazer" / "convert.py", monkeypatch)
    (tmp_path / "set.yaml").write_text(text)
    with pytest.raises(SystemExit, match=message):
        convert.points(tmp_path / "set.yaml")
