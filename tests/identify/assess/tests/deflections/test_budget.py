"""Shares of joints and links in deflections, beside Castigliano's theorem by hand."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.tests.deflections import deflection_budget
from tests.identify.arm import MACHINE, loads, study_of


def test_joints_of_an_open_arm(tmp_path):
    """The work of a load is the sum of (J^T w)^2 / k over the joints."""
    study = study_of(tmp_path, loads(count=5), free={"stiffness.*": {"lower": 1e3, "upper": 1e6}})
    (entry,) = study.entries
    model = jaxmb.build_model(MACHINE)
    work = np.zeros(2)
    for case in entry.source.cases:
        work += (np.asarray(jaxmb.frame_jacobian(model, case.q, case.frame)).T @ case.wrench) ** 2 / [5e4, 9e3]
    shares = deflection_budget(entry.test, model)
    assert shares == pytest.approx(dict(zip("ab", 100.0 * work / work.sum(), strict=True)), rel=1e-9)


def test_a_cantilever_on_a_joint(tmp_path):
    """F l^2 / k of the joint and F l^3 / (3 E I) of the beam."""
    k, length, e, i = 5e4, 0.8, 7e10, 4.2e-8
    beam = {
        "name": "link", "body": "hub", "length": length, "elements": 2, "young_modulus": e, "shear_modulus": 2.6e10,
        "density": 2700.0, "area": 7.1e-4, "second_moment_y": i, "second_moment_z": i, "torsion_constant": 7e-8,
    }  # fmt: skip
    machine = jaxmb.Machine.model_validate({
        "name": "cantilever",
        "body": [{"name": "hub", "joint": [{"name": "q", "axis": [0, 1, 0], "stiffness": k}]}],
        "beam": [beam], "frame": [{"name": "tool", "body": "link"}],
    })  # fmt: skip
    zones = {"all": {"q": [-0.1, 0.1]}}
    test = {"kind": "deflection", "name": "down", "simulate": {
        "tests": 3, "zones": zones, "force_n": [10.0, 20.0], "directions": [[0, 0, -1]]}}  # fmt: skip
    study = study_of(tmp_path, test, free={"stiffness.q": {"lower": 1e3, "upper": 1e6}}, machine=machine)
    (entry,) = study.entries
    joint, link = length**2 / k, length**3 / (3.0 * e * i)
    shares = deflection_budget(entry.test, jaxmb.build_model(machine))
    # the load is within 0.1 rad of the beam's normal, and stretches it a little
    assert shares == pytest.approx({"q": 100 * joint / (joint + link), "link": 100 * link / (joint + link)}, rel=1e-3)
    result = jaxmb.identify(study)
    assert result.metrics["budget"]["down"] == pytest.approx(shares, rel=1e-2)
