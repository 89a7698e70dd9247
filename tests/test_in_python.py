"""Results as tables, short representations, suggestions on wrong names, and types of a user's program."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jaxmb

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def result():
    return jaxmb.identify(jaxmb.load_study("validation-3r"), seed=1)


def test_tables(result):
    """Columns of equal length with the numbers of the result."""
    parameters = result.table("parameters")
    assert parameters["name"] == list(result.parameters)
    assert parameters["value"] == [p.value for p in result.parameters.values()]
    assert parameters["interval_95_upper"][0] == result.parameters["stiffness.z1"].interval_95[1]
    assert result.table("modes")["frequency_hz"] == [mode.frequency_hz for mode in result.modes]
    correlation = result.table("correlation")
    np.testing.assert_array_equal([correlation[name] for name in correlation["name"]], result.correlation.T)
    assert len(result.table("history")["objective"]) == len(result.history) > 0
    for name in ("parameters", "modes", "correlation", "history"):
        columns = result.table(name)
        assert len({len(column) for column in columns.values()}) == 1
        assert all(isinstance(x, str | int | float) for column in columns.values() for x in column)
    with pytest.raises(ValueError, match=r"table 'paramters' does not exist, did you mean 'parameters'\?"):
        result.table("paramters")


def test_short_representations(result):
    """In a few lines, with what one looks for: names, sizes, verdicts."""
    machine = repr(result.study.machine)
    assert machine == str(result.study.machine)
    assert "manipulator-3r: 3 bodies; 3 coordinates: z1, z2, z3; frames tool" in machine
    study = repr(result.study)
    assert "validation-3r of manipulator-3r" in study
    assert "milling posture (frf, fitted)" in study
    assert "6 free parameters: stiffness.z1, " in study
    metrics = repr(result.metrics)
    assert "largest_parameter_error=" in metrics
    for text in (machine, study, metrics, repr(result), repr(result.model), repr(jaxmb.load_machine("surgiscope"))):
        assert len(text) < 700


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda r: r.metrics["largest_parameter_eror"], "metric .* did you mean 'largest_parameter_error'"),
        (lambda r: r.parameters["stifness.z1"], "did you mean 'stiffness.z1'"),
        (lambda r: r.predicted("miling posture"), "did you mean 'milling posture'"),
        (lambda r: jaxmb.frf(r.model, [0.0, 1.0, 2.0], [5.0], kind="acelerance"), "did you mean 'accelerance'"),
        (lambda r: jaxmb.frf(r.model, [0.0, 1.0, 2.0], [5.0], frame="tol"), "did you mean 'tool'"),
        (lambda r: jaxmb.posture(r.model, {"zz1": 0.0}), "did you mean 'z1'"),
        (lambda r: jaxmb.set_parameters(r.model, {"damping.z11": 0.0}), "did you mean 'damping.z1'"),
        (lambda r: jaxmb.load_machine("kuka-kr9"), "did you mean 'kuka-kr90'"),
        (lambda r: jaxmb.load_study("validation-3"), "did you mean 'validation-3r'"),
        (lambda r: jaxmb.linearize(r.model, r.model.reference, at="equilibrum"), "did you mean 'equilibrium'"),
        (lambda r: jaxmb.base_parameters(r.model, of=["mas.*"]), r"did you mean 'mass\.\*'"),
        (lambda r: jaxmb.exciting_motion(r.machine, harmonic=3), "settings: harmonic: .* did you mean 'harmonics'"),
        (lambda r: jaxmb.monte_carlo(r.study, truth={"stifness.z1": 1.0}), "did you mean 'stiffness.z1'"),
        (lambda r: jaxmb.load_machin, "did you mean 'load_machine'"),
    ],
)
def test_suggestions(result, call, message):
    with pytest.raises((ValueError, KeyError, AttributeError), match=message):
        call(result)


MODEL = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
Q = np.asarray(MODEL.reference)
LINE = np.array([5.0])
SET = {"frequency_hz": LINE, "frf": np.ones((1, 1, 1)), "kind": "receptance"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: jaxmb.build_model("kuka-kr90"), r'machine is "kuka-kr90", expected a Machine, .* jaxmb.load_machine$'),
        (lambda: jaxmb.identify("kr90-modelled"), r'study is "kr90-modelled", expected a Study'),
        (lambda: jaxmb.modes(Q), "tangent is ndarray, expected a Tangent"),
        (lambda: jaxmb.mass_matrix(jaxmb.load_machine("kuka-kr90"), Q), "model is Machine, expected a Model"),
        (lambda: jaxmb.mass_matrix(MODEL, Q + 1j), "q is .*, expected an array of numbers"),
        (lambda: jaxmb.cartesian_stiffness(MODEL, Q * np.nan, "tool"), "q holds nan, expected finite numbers"),
        (lambda: jaxmb.frame_pose(MODEL, Q, 3), "frame '3' does not exist"),
        (lambda: jaxmb.frf(MODEL, Q, LINE, outputs=("tool", "x")), r"point 'tool': expected a list of pairs"),
        (lambda: jaxmb.frf(MODEL, Q, LINE, inputs=["tool x"]), r"point 'tool x': expected a list of pairs"),
        (lambda: jaxmb.frf(MODEL, Q, LINE, inputs=5), r"point 5: expected a list of pairs"),
        (lambda: jaxmb.posture(MODEL, {"z1": None}), "z1 is null, expected a number"),
        (lambda: jaxmb.set_parameters(MODEL, {"stiffness.z1": [1.0]}), r"'stiffness.z1' is \[1.0\], expected a number"),
        (lambda: jaxmb.set_parameters(MODEL, {"stiffness.z1": "5"}), "'stiffness.z1' is \"5\", expected a number"),
        (lambda: jaxmb.set_parameters(MODEL, {"first_moment.link1.x": np.nan}), "is nan, expected a finite number"),
        (lambda: jaxmb.set_parameters(MODEL, ["stiffness.z1"]), "expected a dict of parameters with their values"),
        (lambda: jaxmb.close_loops(MODEL, {}, near=Q * np.nan), "near holds nan, expected finite numbers"),
        (lambda: jaxmb.convert_frf(np.ones((2, 1, 1)), LINE, "mobility", "receptance"), r"shape \(2, 1, 1\), expected"),
        (lambda: jaxmb.make_study("kr90-modelled", "x"), "study: .* expected a table"),
        (lambda: jaxmb.undamped_modes(Q), "tangent is ndarray, expected a Tangent"),
        (lambda: jaxmb.mac([1.0, 2.0], np.ones((2, 1))), r"shapes are \(2,\) and \(2, 1\), expected \[n, modes\]"),
        (lambda: jaxmb.FrfSet(**SET, posture=[1.0]), r"posture is \[1.0\], expected a dict"),
        (lambda: jaxmb.FrfSet(**SET, nodes={"1": 2.0}), "node '1' is at 2.0, expected three finite coordinates"),
        (lambda: jaxmb.FrfSet(**SET, unit=9.81), "unit is 9.81, expected a text"),
        (lambda: jaxmb.in_band(jaxmb.FrfSet(**SET), 5.0), "band_hz is 5.0, expected a low and a high frequency"),
    ],
)
def test_wrong_types_and_shapes(call, message):
    """Arguments of a wrong type or shape raise one sentence with the value and the expectation."""
    with pytest.raises(ValueError, match=message):
        call()


def test_wrong_keywords_are_suggested():
    with pytest.raises(TypeError, match=r"modal_analysis: argument 'methd' does not exist, did you mean 'method'\?"):
        jaxmb.modal_analysis(None, methd="lsce")


PROGRAM = """
from pathlib import Path

import jax
import numpy as np

import jaxmb


def frequencies(name: str, posture: dict[str, str | float]) -> np.ndarray:
    model = jaxmb.build_model(jaxmb.load_machine(name))
    q = jaxmb.posture(model, posture)
    modes = jaxmb.modes(jaxmb.linearize(model, q))
    system = jaxmb.state_space(model, q, [("tool", "x")], [("tool", "x")], kind="mobility")
    assert np.asarray(system.A).ndim == 2
    h = jaxmb.frf(model, q, np.linspace(1.0, 30.0, 50), frame="tool", kind="receptance")
    return np.abs(np.asarray(h)) + np.asarray(modes.frequency_hz)[0]


def fitted(path: Path) -> dict[str, float]:
    result: jaxmb.Result = jaxmb.identify(jaxmb.load_study(path), seed=2)
    density = jaxmb.log_density(result.study)
    values = {name: parameter.value for name, parameter in result.parameters.items()}
    slope = jax.grad(density)(values)
    assert set(slope) == set(values)
    columns = result.table("parameters")
    jaxmb.write_machine(result.machine, path.with_suffix(".machine.toml"))
    jaxmb.write_mjcf(result.machine, "robot.xml", {"z1": "10 deg"})
    return dict(zip(columns["name"], columns["value"], strict=True))


print(frequencies("kuka-kr90", {"z2": "70 deg"}), fitted(Path("study.toml")))
"""


def test_a_users_program_passes_the_type_checker(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "pyproject.toml").write_text('[tool.basedpyright]\ntypeCheckingMode = "standard"\n')
    command = [sys.executable, "-m", "basedpyright", "--pythonpath", sys.executable, "--level", "error", "program.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=None)
    assert done.returncode == 0, done.stdout
