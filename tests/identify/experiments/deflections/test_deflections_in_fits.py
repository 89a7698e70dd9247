"""Residuals and scores of deflection tests against displacements of the plane arm by hand."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

import jaxmb
from jaxmb.identify.experiments.deflections.deflection_test import deflection_test
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, predicted
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.machine.schema import Machine
from tests.identify.arm import FREE, MACHINE, loads, study_of


def moved_by_hand(case, a, b, stay=0.0):
    """J K^-1 J^T w of the tool, for two hinges about y and a spring along x between ground and elbow."""
    elbow = turned(case.q[0], [0.8, 0.0, 0.1])
    arms = [elbow + turned(case.q.sum(), [0.7, 0.1, 0.05]), turned(case.q.sum(), [0.7, 0.1, 0.05])]
    jacobian = np.array([[*np.cross([0.0, 1.0, 0.0], arm), 0.0, 1.0, 0.0] for arm in arms]).T
    stiffness = np.diag([a, b])
    stiffness[0, 0] += stay * elbow[2] ** 2  # it moves along x by its height
    return jacobian @ np.linalg.solve(stiffness, jacobian.T @ case.wrench)


def turned(angle, vector):
    return Rotation.from_rotvec([0.0, angle, 0.0]).apply(vector)


def test_residuals_are_those_of_all_load_cases(tmp_path):
    (entry,) = study_of(tmp_path, loads(rotation_weight=4.0)).entries
    model = set_parameters(study_of(tmp_path, loads()).model, {"stiffness.a": 4e4, "stiffness.b": 1e4})
    cases = entry.source.cases
    moved = np.concatenate([moved_by_hand(case, 4e4, 1e4) for case in cases])
    displacement = np.concatenate([case.displacement.ravel() for case in cases])
    std = np.concatenate([case.std.ravel() for case in cases])
    weight = np.tile(np.repeat([1.0, 4.0], 3), 6)
    found = np.asarray(entry.test.residual(entry.test.view(model)))
    np.testing.assert_allclose(found, np.sqrt(weight) * (moved - displacement) / std, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(entry.test.stated_variances(), weight)
    assert entry.test.rows == found.size


def test_springs_between_frames(tmp_path):
    """Their stiffness depends on the posture, and so does the compliance."""
    stay = {"name": "stay", "frame_a": "ground", "frame_b": "elbow", "direction": [1.0, 0.0, 0.0],
            "type": "translation", "stiffness": 2e4}  # fmt: skip
    machine = Machine.model_validate(MACHINE.model_dump() | {"spring": [stay]})
    study = study_of(tmp_path, loads(), free={"stiffness.*": FREE["stiffness.*"]}, machine=machine)
    assert not study.solver.is_linear
    (entry,) = study.entries
    moved = np.concatenate([moved_by_hand(case, 5e4, 9e3, 2e4) for case in entry.source.cases])
    np.testing.assert_allclose(entry.test.predict(entry.test.view(study.model)), moved, rtol=1e-9, atol=1e-15)


def test_free_zeros(tmp_path):
    """Displacements depend on joint zeros as on postures, and identify them without any other test."""
    free = {"stiffness.*": FREE["stiffness.*"], "zero.b": {"lower": -0.2, "upper": 0.2}}
    study = study_of(tmp_path, loads(), free=free)
    assert not study.solver.is_linear
    (entry,) = study.entries
    cases = [dataclasses.replace(case, q=case.q + np.array([0.0, 0.05])) for case in entry.source.cases]
    moved = np.concatenate([moved_by_hand(case, 4e4, 1e4) for case in cases])
    model = study.free.apply(study.model, np.array([4e4, 1e4, 0.05]))
    np.testing.assert_allclose(entry.test.predict(entry.test.view(model)), moved, rtol=1e-9, atol=1e-15)
    measured = dataclasses.replace(entry, test=dataclasses.replace(entry.test, displacement=jnp.asarray(moved)))
    result = jaxmb.identify(study._with_entries([measured]))
    found = [result.parameters[name].value for name in study.free.names]
    np.testing.assert_allclose(found, [4e4, 1e4, 0.05], rtol=1e-6)


def case(name, q, force, measured):
    displacement = np.where(measured, 0.0, np.nan)[None]
    return LoadCase(name, np.array(q), "tool", np.array(force + [0.0] * 3), ("tool",), displacement, np.ones((1, 6)))


@pytest.mark.parametrize("turns", [False, True])
def test_score_is_the_share_that_is_explained(tmp_path, turns):
    """100 (1 - RMS of what is left / RMS of what was measured) of translations; of rotations where there are no others.

    Displacements of a machine that is softer by a tenth in all joints are 1.1 times as large: 1 / 11 is left.
    """
    model = study_of(tmp_path, loads()).model
    rotation = np.arange(6) >= 3
    seen = rotation if turns else np.ones(6, bool)
    cases = [case("a", [0.3, 0.5], [0.0, 0.0, -30.0], seen), case("b", [-0.4, 1.0], [25.0, 0.0, 0.0], seen)]
    soft = set_parameters(model, {"stiffness.a": 5e4 / 1.1, "stiffness.b": 9e3 / 1.1})
    # What rotations miss does not show beside translations.
    factor = np.where(seen, np.where(rotation & (not turns), 5.0, 1.0), np.nan)
    moved = [
        dataclasses.replace(c, displacement=x * factor) for c, x in zip(cases, predicted(soft, cases), strict=True)
    ]
    test = deflection_test("bench", model, moved)
    found = test.score(test.view(model), None)
    assert found.explained_percent == pytest.approx(100.0 / 1.1)
    assert test.score(test.view(soft), None).explained_percent == pytest.approx(100.0)
    assert (found.frac, found.log_error, found.frequency_errors_hz) == ((), None, ())
