"""Studies that one linear step fits: which they are, and that a step says whether it came to rest."""

import numpy as np
import pytest
from scipy.optimize import OptimizeResult, lsq_linear

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.linear_estimate import NO_ACTIVE_SET, WEIGHTS_NOT_CONVERGED, linear_status
from jaxmb.identify.estimation import linear
from jaxmb.identify.fit.linear import linear_equations, linear_step, unknowns
from jaxmb.identify.study.study import linear_in
from jaxmb.machine.schema import Machine
from tests.identify.arm import FREE, MACHINE, frf, loads, shapes, study_of

STIFF = {"stiffness.*": FREE["stiffness.*"]}


@pytest.fixture(scope="module")
def deflections(tmp_path_factory):
    """Deflections alone, outliers to be given less weight."""
    return study_of(tmp_path_factory.mktemp("loads"), loads(robust=True), free=STIFF)


def test_which_studies_are_linear(tmp_path, deflections):
    np.testing.assert_array_equal(linear_in(deflections.problem), [True, True])
    assert deflections.solver.is_linear
    spring = {"name": "pad", "body": "upper", "diagonal": [1e-9] * 6}
    machine = Machine.model_validate(MACHINE.model_dump() | {"virtual_spring": [spring]})
    compliance = {"compliance.pad.rz.rz": {"lower": 1e-10, "upper": 1e-8, "scale": "linear"}}
    linear_too = study_of(tmp_path, loads(), loads(name="more"), free=STIFF | compliance, machine=machine)
    # displacements are linear in 1 / stiffness and in a compliance itself
    np.testing.assert_array_equal(linear_in(linear_too.problem), [True, True, False])
    for tests, settings in (
        ((frf(),), {}),
        ((shapes(),), {}),
        ((loads(), frf()), {}),
        ((frf(), loads()), {}),
    ):
        study = study_of(tmp_path, *tests, free=STIFF, **settings)
        assert linear_in(study.problem) is None
        assert not study.solver.is_linear
    # with a prior the predictions are linear, and the fit is not
    prior = study_of(tmp_path, loads(), free=STIFF, prior={"*": 1.0})
    assert linear_in(prior.problem) is not None
    assert not prior.solver.is_linear


def test_a_step_says_whether_its_weights_came_to_rest(deflections, monkeypatch):
    problem = deflections.problem
    found = unknowns(problem.free, linear_in(problem))
    rows = linear_equations(problem.model, problem.free, problem.tests)
    wrong = rows.measured.copy()
    wrong[::7] += 20.0 * rows.std[::7]
    rows, start = rows._replace(measured=wrong), deflections.start.values
    assert linear_step(found, rows, start, robust=True).weights_converged
    monkeypatch.setattr(linear, "MOST_ROUNDS", 1)
    step = linear_step(found, rows, start, robust=True)
    assert not step.weights_converged
    assert (step.robust_weight < 0.5).any()
    assert linear_step(found, rows, start).weights_converged  # nothing to come to rest


def test_a_fit_whose_weights_still_move_did_not_converge(deflections, monkeypatch):
    assert identify(deflections).converged
    monkeypatch.setattr(linear, "MOST_ROUNDS", 1)
    result = identify(deflections)
    assert not result.converged
    assert result.as_json()["status"] == WEIGHTS_NOT_CONVERGED
    assert WEIGHTS_NOT_CONVERGED.startswith("not converged: the robust weights still move after ")


@pytest.mark.parametrize("robust", [False, True])
def test_a_step_says_whether_its_bounds_were_found(deflections, robust, monkeypatch):
    """Turned displacements would make the compliances negative, which they are kept from."""
    problem = deflections.problem
    found = unknowns(problem.free, linear_in(problem))
    rows = linear_equations(problem.model, problem.free, problem.tests)
    rows = rows._replace(measured=-rows.measured)
    assert linear_step(found, rows, deflections.start.values, robust).active_set_found

    def stopped(*given, **more):
        return OptimizeResult(lsq_linear(*given, **more) | {"success": False})

    monkeypatch.setattr("scipy.optimize.lsq_linear", stopped)
    step = linear_step(found, rows, deflections.start.values, robust)
    assert not step.active_set_found
    assert (
        linear_status([step], "converged")
        == NO_ACTIVE_SET
        == "not converged: the active set of bounds was not identified"
    )


def test_progress_of_a_linear_step_is_reported_once(deflections):
    seen = []
    result = identify(deflections, report=seen.append)
    (last,) = seen
    assert (last.round, last.rounds, last.stage, last.evaluations) == (1, 1, "linear step", 1)
    assert last.cost == result.cost


def test_a_weak_prior_leaves_the_linear_fit(tmp_path):
    """Deflections alone are fitted in one linear step; with a prior that knows nothing the search finds the same."""
    a, b = (identify(study_of(tmp_path, loads(), free=STIFF, **more)) for more in ({}, {"prior": {"*": 1e4}}))
    assert (a.evaluations["search"], a.study.solver.is_linear, b.study.solver.is_linear) == (0, True, False)
    assert a.seconds["search"] == 0.0 < a.seconds["refine"] < a.seconds["total"]
    for name in a.parameters:
        assert b.parameters[name].value == pytest.approx(a.parameters[name].value, rel=1e-6)  # the prior's pull
        assert b.parameters[name].std_log == pytest.approx(a.parameters[name].std_log, rel=1e-6)
    assert b.metrics["explained_percent"] == pytest.approx(a.metrics["explained_percent"], rel=1e-6)
