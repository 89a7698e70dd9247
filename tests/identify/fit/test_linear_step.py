"""Stiffness from deflections: what is found, what is called unknown, and which tests are refused."""

import dataclasses

import numpy as np
import pytest
import scipy.optimize
import tomli_w
from jaxmb.identify.assess.deflections.solve import check_plan, equations, fit_deflections, unknowns

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.experiments.deflection_table import deflections_csv
from jaxmb.identify.experiments.load_cases import LoadCase, predicted
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.identify.study.study import load_study
from jaxmb.io.validation import InputError
from jaxmb.machine.build import build_model
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine

MACHINE = load_machine("kuka-kr240")
MODEL = build_model(MACHINE)
JOINTS = tuple(f"stiffness.q{i}" for i in range(1, 7))
TRUTH = np.array([3.8e6, 6.6e6, 3.9e6, 5.6e5, 6.6e5, 4.7e5])
STD = np.repeat([3e-5, 6e-5], 3)
START = np.full(6, 1e6)


def loaded(model=MODEL, count=8, wrench=None, noise=0.0, seed=3, **changes):
    draw = np.random.default_rng(seed)
    tests = []
    for i in range(count):
        q = np.asarray(model.reference) + draw.uniform(-0.3, 0.3, size=len(model.coordinates))
        load = draw.uniform(-1.0, 1.0, size=6) * np.repeat([2000.0, 500.0], 3) if wrench is None else np.array(wrench)
        test = LoadCase(f"t{i + 1}", q, "tool", load, ("tool",), np.zeros((1, 6)), STD[None, :])
        tests.append(dataclasses.replace(test, **changes))
    moved = predicted(model, tests)
    return [
        dataclasses.replace(t, displacement=d + noise * STD * draw.normal(size=d.shape))
        for t, d in zip(tests, moved, strict=True)
    ]


def free_of(model=MODEL, names=JOINTS, lower=1e5, upper=1e9, logarithmic=True):
    return unknowns(model, free_parameters(model, [Bound((n,), lower, upper, None, logarithmic) for n in names]))


def solved(tests, model=MODEL, found=None, robust=False, weight=1.0):
    found = free_of(model) if found is None else found
    rows = equations(model, found, [DeflectionSet("set", tuple(tests), rotation_weight=weight)])
    fit = fit_deflections(found, rows, START[: len(found.terms)], robust)
    return found.values(fit.compliance), fit


def test_the_values_are_those_of_weighted_least_squares():
    tests = loaded(noise=1.0)
    found = free_of()
    rows = equations(MODEL, found, [DeflectionSet("set", tuple(tests), rotation_weight=0.2)])
    root = np.sqrt(rows.weight) / rows.std
    expected, _ = scipy.optimize.nnls(rows.matrix * root[:, None], rows.displacement * root)
    values, fit = solved(tests, weight=0.2)
    # The smallest compliance, 1e-9 of the upper bound, is where this fit ends and not at 0.
    np.testing.assert_allclose(1.0 / values, expected, rtol=1e-9)
    assert fit.cost == pytest.approx(np.sum((root * (rows.displacement - rows.matrix @ expected)) ** 2), rel=1e-9)


def test_deviations_are_those_of_repeated_measurements():
    found = free_of()
    exact = loaded(noise=0.0)
    draw = np.random.default_rng(11)
    runs = []
    for _ in range(600):
        noisy = [
            dataclasses.replace(t, displacement=t.displacement + STD * draw.normal(size=(1, 6))) for t in exact
        ]  # fmt: skip
        runs.append(solved(noisy, found=found, weight=5.0)[0])
    _, fit = solved(exact, found=found, weight=5.0)
    # 600 draws tell a standard deviation to 2.9 %; four times that.
    np.testing.assert_allclose(np.std(np.log(runs), axis=0), fit.known.std, rtol=0.12)


def test_what_is_not_free_is_taken_as_it_is():
    found = free_of(names=("stiffness.q2", "stiffness.q5"))
    values, _ = solved(loaded(), found=found)
    np.testing.assert_allclose(values, TRUTH[[1, 4]], rtol=1e-9)


def test_tied_joints_share_one_value():
    model = set_parameters(MODEL, dict.fromkeys(JOINTS[3:], 5e5))
    found = unknowns(model, free_parameters(model, [Bound(JOINTS[:3][:1], 1e5, 1e9), Bound(JOINTS[3:], 1e5, 1e9)]))
    values, _ = solved(loaded(model), model, found)
    np.testing.assert_allclose(values, [3.8e6, 5e5], rtol=1e-9)


def test_positions_of_points_beside_the_last_axis_are_enough():
    reflector = {"name": "reflector", "body": "q6", "origin": {"xyz": [0.2, 0.0, 0.2]}}
    frames = [*MACHINE.model_dump()["frame"], reflector]
    model = build_model(Machine.model_validate(MACHINE.model_dump() | {"frame": frames}))
    seen = np.where(np.arange(6) < 3, 0.0, np.nan)
    tests = [
        dataclasses.replace(t, displacement=np.where(np.isnan(seen), np.nan, t.displacement))
        for t in loaded(model, points=("reflector",))
    ]
    np.testing.assert_allclose(solved(tests, model)[0], TRUTH, rtol=1e-9)
    # The tool point lies on the axis of joint 6, and does not move with it.
    tests = [
        dataclasses.replace(t, displacement=np.where(np.isnan(seen), np.nan, t.displacement)) for t in loaded(model)
    ]
    values, fit = solved(tests, model)
    assert fit.known.verdict[5] == "no"
    assert np.isfinite(fit.known.std[:5]).all()
    np.testing.assert_allclose(values[:5], TRUTH[:5], rtol=1e-9)


def test_compliances_of_virtual_springs():
    diagonal = [1e-9, 2e-9, 3e-9, 4e-8, 5e-8, 6e-8]
    spring = {"name": "arm", "body": "q3", "diagonal": diagonal}
    model = build_model(Machine.model_validate(MACHINE.model_dump() | {"virtual_spring": [spring]}))
    names = ("compliance.arm.y.y", "compliance.arm.z.z", "compliance.arm.y.z")
    found = free_of(model, names, -1e-7, 1e-6, logarithmic=False)
    values, fit = solved(loaded(model), model, found)
    # Beside the largest of the three the rounding of the others is 1e-16 of all displacements.
    np.testing.assert_allclose(values, [2e-9, 3e-9, 0.0], rtol=1e-6, atol=1e-14)
    assert fit.known.verdict == ("yes",) * 3


def test_a_rigid_joint_ends_on_the_upper_bound():
    model = set_parameters(MODEL, {"stiffness.q4": 1e14})
    found = free_of(upper=1e8)
    values, fit = solved(loaded(model), model, found)
    assert values[3] == pytest.approx(1e8, rel=1e-12)
    assert fit.on_bound.tolist() == [False, False, False, True, False, False]


def test_a_joint_that_nothing_loads_is_not_known():
    values, fit = solved(loaded(wrench=[0.0, 0.0, -1000.0, 200.0, 300.0, 0.0]))
    assert fit.unloaded.tolist() == [True] + [False] * 5
    assert fit.known.verdict[0] == "no"
    assert fit.known.std[0] == np.inf
    assert values[0] == START[0]
    np.testing.assert_allclose(values[1:], TRUTH[1:], rtol=1e-9)


def test_outliers_count_little_where_asked_for():
    tests = loaded(count=20, noise=1.0)
    for i in (4, 11):
        tests[i] = dataclasses.replace(tests[i], displacement=tests[i].displacement + 0.01)
    plain, _ = solved(tests)
    robust, fit = solved(tests, robust=True)
    # Without the outliers the largest deviation of a value is a few percent.
    assert np.abs(np.log(robust / TRUTH)).max() < 4 * fit.known.std.max() < 0.2
    assert np.abs(np.log(plain / TRUTH)).max() > 0.5
    assert np.sum(fit.robust_weight < 0.01) == 12


def refused(tests, found=None):
    found = free_of() if found is None else found
    rows = equations(MODEL, found, [DeflectionSet("set", tuple(tests))])
    check_plan(MODEL, found, tests, rows)


def test_fewer_equations_than_parameters_are_refused():
    (test,) = loaded(count=1)
    few = dataclasses.replace(test, displacement=np.where(np.arange(6) < 4, test.displacement, np.nan))
    with pytest.raises(
        ValueError, match="deflection test 't1': 4 measured displacements give fewer equations than the 6"
    ):
        refused([few])


def test_parallel_loads_that_leave_a_joint_unknown_are_refused():
    tests = loaded(wrench=[0.0, 0.0, -1000.0, 0.0, 0.0, 0.0])
    with pytest.raises(
        ValueError, match=r"'t1' to 't8': all loads are parallel and do not determine stiffness.q1, stiff"
    ):
        refused(tests)
    refused(tests, free_of(names=JOINTS[1:5]))  # what they do load is found


def test_a_singular_posture_is_refused():
    tests = loaded()
    q = tests[5].q.copy()
    q[4] = 0.0  # the axes of joints 4 and 6 are one
    tests[5] = dataclasses.replace(tests[5], q=q)
    with pytest.raises(ValueError, match="deflection test 't6': its posture is singular"):
        refused(tests)


def test_parameters_that_do_not_act_are_refused():
    with pytest.raises(ValueError, match=r"free parameter 'damping.q1' does not act on deflections"):
        free_of(names=("damping.q1",))


def test_springs_between_frames_are_not_possible():
    spring = {"name": "balancer", "frame_a": "q1", "frame_b": "q2", "direction": [0.0, 0.0, 1.0], "type": "rotation"}
    model = build_model(Machine.model_validate(MACHINE.model_dump() | {"spring": [spring]}))
    with pytest.raises(NotImplementedError, match="spring 'balancer' between frames"):
        free_of(model)


@pytest.fixture
def study(tmp_path):
    """A study of tests in a table, with what a test of this file changes."""

    def of(tests, sets=({},), free=None, **more):
        (tmp_path / "tests.csv").write_text(deflections_csv(MODEL, tests))
        entries = [{"kind": "deflection", "file": "tests.csv"} | s for s in sets]
        bounds = {"stiffness.*": {"lower": 1e4, "upper": 1e9}} if free is None else free
        path = tmp_path / "study.toml"
        path.write_text(tomli_w.dumps({"machine": "kuka-kr240", "test": entries, "free": bounds} | more))
        return load_study(path)

    return of


def test_a_table_becomes_a_result(study):
    result = identify(study(loaded(count=12, noise=1.0), ({"name": "fit"}, {"name": "same", "role": "check"})))
    assert result.converged
    written = result.as_json()
    assert written["modes"] == []
    assert len(written["history"]) == 1
    assert written["metrics"]["explained_percent"]["fit"] == written["metrics"]["explained_percent"]["check"]
    assert 90.0 < written["metrics"]["explained_percent"]["fit"] < 100.0
    for name, true in zip(JOINTS, TRUTH, strict=True):
        p = result.parameters[name]
        # Six values of one draw: four standard deviations hold all of them but once in 2600.
        assert abs(np.log(p.value / true)) < 4.0 * p.std_log
        assert p.identifiable == "yes"
    assert [row["parameter"] for row in written["metrics"]["table2"]] == list(JOINTS)
    assert written["metrics"]["convergence"]["tests"] == list(range(1, 13))


def test_an_unloaded_joint_is_named(study):
    vertical = [
        dataclasses.replace(t, wrench=np.array([0.0, 0.0, -1000.0, 100.0 * i, 300.0, 0.0]))
        for i, t in enumerate(loaded())
    ]
    result = identify(study(vertical))
    unknown = result.as_json()["parameters"]["stiffness.q1"]
    assert unknown["std"] is None
    assert unknown["std_log"] is None
    assert unknown["identifiable"] == "no"
    assert any(r.startswith("stiffness.q1 is not known: no test loads it") for r in result.remarks)


def test_values_outside_of_their_bounds_are_told(study):
    result = identify(study(loaded(), free={"stiffness.*": {"lower": 4e6, "upper": 1e9}}))
    assert any(r.startswith("stiffness.q4 is outside of its bounds") for r in result.remarks)


def test_a_model_that_cannot_follow_is_told(study):
    tests = [dataclasses.replace(t, displacement=t.displacement + 3e-4 * (i % 2)) for i, t in enumerate(loaded())]
    assert any("times what the noise alone gives" in r for r in identify(study(tests)).remarks)


def test_studies_that_cannot_be_fitted_are_refused(study):
    tests = loaded()
    with pytest.raises(NotImplementedError, match="robust is for deflection tests alone"):
        study(tests, ({"robust": True},), prior={"*": 1.0})
    with pytest.raises(ValueError, match="every test has the role 'check'"):
        study(tests, ({"role": "check"},))
    with pytest.raises(InputError, match=r"test 'a': .*tests.csv: line 2, deflection test 't1': frame 'hand'"):
        study([dataclasses.replace(tests[0], frame="hand")], ({"name": "a"},))
