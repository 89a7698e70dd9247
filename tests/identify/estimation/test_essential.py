"""Essential parameters: those that are 0 go, those that are not stay, and the F-test keeps its word."""

import dataclasses

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.tests.torque import TorqueMetrics
from jaxmb.report.tests import base_table, torque_table
from tests.identify.fit.test_physical_consistency import BOUND, INERTIAL, made, study_of

NAMES = tuple("abcdefgh")
TRUE = np.array([3.0, 0.0, -1.0, 0.0, 0.5, 0.0, 0.0, 20.0])


def equations(draw, count=200):
    matrix = draw.normal(size=(count, 8)) * np.geomspace(0.3, 3.0, 8)
    std = draw.uniform(0.5, 1.5, count)
    return matrix, matrix @ TRUE + std * draw.normal(size=count), std


def test_what_is_left_is_weighted_least_squares_of_it():
    matrix, measured, std = equations(np.random.default_rng(1))
    found = jaxmb.essential_parameters(matrix, measured, std, NAMES)
    assert set(found.names) | set(found.eliminated) == set(NAMES)
    assert {"a", "c", "e", "h"} <= set(found.names)
    own = [NAMES.index(name) for name in found.names]
    expected, left, *_ = np.linalg.lstsq(matrix[:, own] / std[:, None], measured / std, rcond=None)
    np.testing.assert_allclose(found.values, expected, rtol=1e-10)
    assert found.chi_square == pytest.approx(float(left[0]), rel=1e-10)


def test_how_often_zeros_stay():
    """At a chance of 5 % all of the four zeros are gone in 95 % of the draws; of 300, 285 +- 4, four of these. The
    noise is never taken for less than stated, which changes that by a few draws."""
    draw = np.random.default_rng(2)
    whole = [set(jaxmb.essential_parameters(*equations(draw), NAMES).eliminated) == set("bdfg") for _ in range(300)]
    assert sum(whole) >= 270


def test_what_cannot_be_told_apart_goes_first():
    matrix, measured, std = equations(np.random.default_rng(3))
    twice = np.column_stack([matrix, matrix[:, 0]])
    found = jaxmb.essential_parameters(twice, measured, std, (*NAMES, "again"))
    assert found.eliminated[0] in ("a", "again")
    assert np.isfinite(found.std).all()


def test_wrong_sizes():
    with pytest.raises(ValueError, match=r"matrix has shape \(3, 2\), expected \(3, 1\)"):
        jaxmb.essential_parameters(np.ones((3, 2)), np.ones(3), np.ones(3), ("a",))
    with pytest.raises(ValueError, match="std has 0"):
        jaxmb.essential_parameters(np.ones((3, 1)), np.ones(3), np.zeros(3), ("a",))
    with pytest.raises(ValueError, match="row 1 of matrix or measured is not finite"):
        jaxmb.essential_parameters(np.ones((3, 1)), np.array([1.0, np.nan, 1.0]), np.ones(3), ("a",))


def arm_along_x():
    body = [
        {"name": f"b{i}", "parent": f"b{i - 1}" if i else "ground", "mass": 3.0 - i, "center_of_mass": [0.2, 0.0, 0.0],
         "inertia_tensor": np.diag([0.02, 0.06, 0.06]).tolist(), "origin": {"xyz": [0.4 if i else 0.0, 0.0, 0.0]},
         "joint": [{"name": f"q{i}", "axis": axis, "damping": 1.0}]}
        for i, axis in enumerate(([0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]))
    ]  # fmt: skip
    return jaxmb.Machine.model_validate({"name": "arm", "body": body})


def test_of_an_arm(tmp_path):
    """Links along their x axes: first moments across them and products of inertia are 0, and not essential."""
    machine = arm_along_x()
    free = INERTIAL | {"damping.*": {"lower": 0.0, "upper": 9.0, "scale": "linear"}, "offset.*": BOUND}
    draw = np.random.default_rng(4)
    result = identify(made(tmp_path, *study_of(machine, draw, free=free, count=300, noise=0.1)))
    metrics = result.metrics.of(TorqueMetrics)
    base = jaxmb.base_parameters(jaxmb.build_model(machine))
    own = jaxmb.parameters(jaxmb.build_model(machine))
    true = dict(zip(base.names, base.matrix @ [own[name] for name in jaxmb.regressor_names(result.model)], strict=True))
    kept = {row.name: row for row in metrics.base if row.essential_value is not None}
    not_zero = {row.name for row in metrics.base if abs(true.get(row.name, 0.0)) > 1e-9}
    assert not_zero <= set(kept)
    assert len(set(kept) - not_zero) <= 2  # at the chance of 5 %, more are hardly kept
    assert len(metrics.base) > len(not_zero) + 5
    for name in not_zero:
        assert kept[name].essential_value == pytest.approx(true[name], abs=5.0 * kept[name].essential_std)
        assert kept[name].essential_std <= 1.01 * kept[name].std
    for row in metrics.torques:
        assert row.essential_percent == pytest.approx(row.relative_percent, rel=0.05)


DAMPING = {"damping.*": {"lower": 0.0, "upper": 9.0, "scale": "linear"}}


@pytest.mark.parametrize(
    ("free", "settings", "robust"),
    [
        (INERTIAL, {}, False),  # nothing is in the way
        ({"mass.b1": BOUND | {"lower": 0.0}}, {}, False),  # one number moves many sums
        (INERTIAL, {"prior": {"mass.b1": 1.0}}, False),
        (INERTIAL, {}, True),
    ],
)
def test_only_beside_the_same_fit(tmp_path, free, settings, robust):
    """A smaller model is shown where the full one is least squares over all of its sums: it then follows the fitted
    torques no better than that."""
    draw = np.random.default_rng(5)
    own, data, test, source = study_of(arm_along_x(), draw, free=free | DAMPING, noise=0.1, **settings)
    test = dataclasses.replace(test, is_robust=robust)
    metrics = identify(made(tmp_path, own, data, test, source)).metrics.of(TorqueMetrics)
    shown = free is INERTIAL and not settings and not robust
    assert metrics.base
    assert any(row.essential_value is not None for row in metrics.base) == shown
    for row in metrics.torques:
        assert (row.essential_percent is not None) == shown
        assert not shown or row.essential_percent >= 0.98 * row.relative_percent
    headings = [column.heading for table in (torque_table(metrics), base_table(metrics)) for column in table.columns]
    assert any("essential" in heading for heading in headings) == shown
    assert {row[0] for row in base_table(metrics).rows} == {row.formula for row in metrics.base}
