"""The complete stiffness model of the KR 270 stand-in: what it is reduced to, and what it compensates."""

import dataclasses
import io
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from rich.console import Console
from scipy.stats import chi2

import jaxmb
from jaxmb.cli import main
from jaxmb.identify.assess.remarks import misfit_remarks, outlier_remarks
from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.deflections.load_cases import measured_displacements, observation_matrix, predicted
from jaxmb.identify.fit.noise import ReducedChiSquare
from jaxmb.identify.stiffness_model.compensator import added_stiffness, spring_of
from jaxmb.identify.stiffness_model.complete_model import complete_reduction
from jaxmb.identify.stiffness_model.variants import compensated_percent
from jaxmb.io.files import find_description, read_text
from jaxmb.mechanics.compliance import compliance_matrix
from jaxmb.mechanics.kinematics import frame_jacobian
from jaxmb.report import on_terminal, sections


@pytest.fixture(scope="module")
def result():
    return jaxmb.identify(jaxmb.load_study("kr270-complete-stiffness"))


def test_reduction(result):
    found = result.metrics["reduction"]
    assert {step: found[step] for step in ("original", "M1", "M2", "M3")} == {
        "original": 258, "M1": 153, "M2": 62, "M3": 56,
    }  # fmt: skip
    # of the algebraic steps only these counts hang on the tests: published 1, 10, 45 and 26
    assert (found["G1"], found["G2"], found["G3"], found["final"]) == (2, 9, 45, 26)
    assert result.metrics["parameters"] == {"J1": 5, "J2": 9, "C1": 26, "C2": 30}


def test_what_is_compensated_on_configurations_not_used(result):
    """Against least squares by NumPy: joints alone by their Jacobians, joints and links by the reduced columns.

    What is left of the second is the tracker's noise and its part in the values: a chi-square of 270, outside of its
    bounds once in 1000 times.
    """
    percent, model = result.metrics["compensated_percent"], result.study.model
    fit, check = (entries[0].source.cases for entries in (result.study.fitted, result.study.checks))
    measured, moved = (measured_displacements(cases)[0] for cases in (fit, check))
    complete, reduced = complete_reduction(model, fit)
    kept = [complete.names.index(name) for name in reduced.names]
    known, asked = (observation_matrix(model, cases, complete.terms)[:, kept] for cases in (fit, check))
    for name, matrices in (("J1", [joint_columns(model, c) for c in (fit, check)]), ("C1", [known, asked])):
        size = np.linalg.norm(matrices[0], axis=0)
        left = moved - matrices[1] / size @ np.linalg.lstsq(matrices[0] / size, measured)[0]
        by_hand = 100.0 * (1.0 - np.linalg.norm(left) / np.linalg.norm(moved))
        assert percent[name] == pytest.approx(by_hand, abs=1e-6), name
    part = (asked / size) @ np.linalg.pinv(known / size)
    spread = (np.sqrt(2.0) * 3e-5) ** 2 * (np.eye(moved.size) + part @ part.T)
    low, high = chi2.ppf([5e-4, 1.0 - 5e-4], moved.size)
    assert low < left @ np.linalg.solve(spread, left) < high
    # Klimchik et al. 2014 promise 95 % for links and joints, and found 84 % for joints alone
    assert percent["C1"] >= 95.0
    assert percent["C2"] >= 95.0
    assert percent["J1"] < percent["J2"] < 92.0
    table = {row["model"]: row for row in result.metrics["table2_check"]}
    assert table["none"]["z"]["max"] > 5.0


def joint_columns(model, cases):
    """Translations of the measured points for a unit of the compliance of joints 2 to 6; no load turns joint 1."""
    rows = []
    for case in cases:
        effort = np.asarray(frame_jacobian(model, case.q, case.frame)).T @ case.wrench
        rows += [np.asarray(frame_jacobian(model, case.q, point))[:3] * effort for point in case.points]
    return np.concatenate(rows)[:, 1:]


def test_the_machine_that_is_written_can_be_and_predicts(result, tmp_path):
    jaxmb.write_machine(result.machine, tmp_path / "machine.toml")
    model = jaxmb.build_model(jaxmb.load_machine(tmp_path / "machine.toml"))
    cases = result.study.checks[0].source.cases
    rows = np.concatenate([p[t.measured] for p, t in zip(predicted(model, cases), cases, strict=True)])
    assert compensated_percent(cases, rows) > 95.0
    assert result.metrics["completion"]["possible"]
    measured, _ = measured_displacements(cases)
    assert rows.shape == measured.shape


def test_the_spring_of_the_machine_by_three_angles():
    machine = jaxmb.load_machine("kuka-kr270")
    model = jaxmb.build_model(machine)
    spring = spring_of(model, "q2")
    assert spring is not None
    # the piston is behind the spring of link 2, here rigid
    rigid_links = dataclasses.replace(model, compliance=jnp.zeros_like(model.compliance))
    compliance = jax.jit(lambda q: compliance_matrix(rigid_links, q)[1, 1])
    for angle in (0.3, 1.4, 2.5):
        whole = 1.0 / compliance(model.reference.at[1].set(angle))
        assert whole - model.stiffness[1] == pytest.approx(float(added_stiffness(spring, angle)), rel=1e-6)


def test_tables_and_files(result, tmp_path):
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(on_terminal(sections(result), 120))
    text = console.export_text()
    for part in ("Table 1", "Table 2", "C2: joints, links and compensator", "link1 ry,ry at 80 deg", "J1: joints"):
        assert part in text
    json.loads(result.json_text())
    assert main(["identify", "kr270-complete-stiffness", "--out", str(tmp_path)]) == 0
    told = json.loads((tmp_path / "result.json").read_text())
    assert set(told["metrics"]["reduction"]) == {"original", "M1", "M2", "M3", "G1", "G2", "G3", "final"}
    assert set(told["metrics"]["compensated_percent"]) == {"J1", "J2", "C1", "C2"}
    assert {p.name for p in (tmp_path / "figures").iterdir()} == {
        "errors-check.png",
        "errors-fit.png",
        "compliances.png",
    }


def test_what_a_study_of_a_complete_model_cannot_have(tmp_path):
    text = read_text(find_description("kr270-complete-stiffness", "studies", "study", (".toml",)))
    for old, new, message in (
        ("[complete]", 'lock = ["q1"]\n[complete]', r"\[complete\] is .*, expected no lock"),
        ('compensated = "q2"', 'compensated = "q9"', r"compensated joint 'q9' does not exist"),
        (
            "[complete]",
            '[free]\n"stiffness.q1" = { lower = 1.0, upper = 2.0 }\n[complete]',
            r"\[complete\] is .*, expected no free",
        ),
    ):
        (tmp_path / "study.toml").write_text(text.replace(old, new, 1))
        with pytest.raises((jaxmb.InputError, NotImplementedError), match=message):
            jaxmb.load_study(tmp_path / "study.toml")


def test_a_model_that_does_not_follow_is_told(result):
    rows = result.metrics["completion"]
    assert rows["possible"]
    assert not any("reduced chi-square" in remark for remark in result.remarks)
    fit = linear_fit(np.ones((9, 1)), np.r_[np.zeros(8), 1.0], np.full(9, 1e-3), robust=True)
    (excess,), (outliers,) = misfit_remarks(ReducedChiSquare(1e6, 100.0)), outlier_remarks(fit.weights)
    assert excess.startswith("reduced chi-square 1e+06")
    assert outliers.startswith("1 of 9")
