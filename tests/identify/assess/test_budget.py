"""The uncertainty budget against closed forms, and intervals of studies that are described with errors."""

import dataclasses
import types

import jax
import numpy as np
import pytest
import tomli_w
from scipy.spatial.transform import Rotation

import jaxmb
from jaxmb.identify.assess.budget import (
    DRAWS,
    Budget,
    DescribedTests,
    _drawn,
    explained_tests,
    linear_refit,
    machine_errors_in_tests,
)
from jaxmb.identify.assess.identify import identify
from jaxmb.identify.assess.linear_estimate import linear_estimate
from jaxmb.identify.estimation.variance_components import Excess
from jaxmb.identify.experiments.machine_errors import machine_errors, with_machine_errors
from jaxmb.identify.experiments.posture_test import displaced_view
from jaxmb.identify.experiments.tolerances import StatedError, Tolerances
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine
from jaxmb.studies import study_data
from tests.identify.arm import BRIEF, MACHINE, OUTPUTS, TRUTH, estimate_at, frf, loads, shapes, study_of

EXACT = dict.fromkeys(Tolerances.model_fields, 0.0)
TOOL = np.array([0.7, 0.1, 0.05])


def parts(result):
    """Relative standard deviations by the tolerances alone."""
    return {name: own.tolerances / result.parameters[name].value for name, own in result.metrics.uncertainty.items()}


def test_a_time_base_scales_stiffness_twice_and_damping_once(tmp_path):
    """s^2 / (M s^2 + C s + K) at 1 + e times the frequency is that of C (1 + e) and K (1 + e)^2."""
    study = study_of(tmp_path, frf(noise=0.01), **BRIEF, tolerances=EXACT | {"time_base_ppm": 100.0})
    found = parts(identify(study))
    for name, share in found.items():
        assert share == pytest.approx(2e-4 if name.startswith("stiffness") else 1e-4, rel=2e-3)


def test_the_size_of_loads_scales_stiffness(tmp_path):
    found = identify(study_of(tmp_path, loads(), free={"stiffness.*": {"lower": 1e3, "upper": 1e6}},
                              tolerances=EXACT | {"load_percent": 2.0}))  # fmt: skip
    for name, share in parts(found).items():
        assert share == pytest.approx(0.02, rel=1e-3)
        assert found.parameters[name].std == pytest.approx(
            np.hypot(found.metrics.uncertainty[name].noise, found.metrics.uncertainty[name].tolerances), rel=1e-12
        )
    assert found.metrics.uncertainty["stiffness.a"].sources[0].kind == "load_percent"


def compliances_by_hand(study, wrenches):
    """Compliances of joints, by least squares, that explain the displacements under some loads by the stated ones."""
    (entry,), model, rows, seen = study.fitted, study.model, [], []
    for case, wrench in zip(entry.source.cases, wrenches, strict=True):
        loaded = np.asarray(jaxmb.frame_jacobian(model, case.q, case.frame))
        points = np.stack([np.asarray(jaxmb.frame_jacobian(model, case.q, point)) for point in case.points])
        for load, into in ((case.wrench, rows), (wrench, seen)):
            into.append((points * (loaded.T @ load))[case.measured])
    true = np.array([1.0 / TRUTH[f"stiffness.{name}"] for name in "ab"])
    std = np.asarray(entry.test.std)
    return np.linalg.lstsq(np.concatenate(rows) / std[:, None], np.concatenate(seen) @ true / std)[0]


@pytest.mark.parametrize("kind", ["load_direction_deg", "load_lever_mm"])
def test_errors_of_loads_as_by_hand(tmp_path, kind):
    free = {"stiffness.*": {"lower": 1e3, "upper": 1e6}}
    study, size = study_of(tmp_path, loads(1e-4), free=free, tolerances=EXACT | {kind: 1.0}), np.pi / 180.0
    cases, changes = study.fitted[0].source.cases, []
    for axis in np.eye(3):
        if kind == "load_direction_deg":
            turn = Rotation.from_rotvec(size * axis).as_matrix()
            wrenches = [np.append(turn @ case.wrench[:3], case.wrench[3:]) for case in cases]
        else:
            poses = [np.asarray(jaxmb.frame_pose(study.model, case.q, case.frame))[:3, :3] for case in cases]
            levers = [np.cross(1e-3 * at @ axis, case.wrench[:3]) for at, case in zip(poses, cases, strict=True)]
            wrenches = [case.wrench + np.append(np.zeros(3), m) for case, m in zip(cases, levers, strict=True)]
        own, other = (compliances_by_hand(study, w) for w in ([case.wrench for case in cases], wrenches))
        changes.append(other / own - 1.0)
    expected = dict(zip(("stiffness.a", "stiffness.b"), np.linalg.norm(changes, axis=0), strict=True))
    assert parts(identify(study)) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize("test", [loads(1e-6), frf(noise=0.01)], ids=["deflections", "frf"])
def test_a_foundation_is_in_series_with_the_first_joint(tmp_path, test):
    """1 / K of the joint grows by the compliance about its axis, the second joint changes by less than a twentieth of
    that. With deflections known to a nanometre the residual confirms the tolerance, whose factor is then 1."""
    free, known = (
        BRIEF | {"free": {"stiffness.*": {"lower": 1e3, "upper": 1e6}}},
        EXACT | {"foundation_urad_per_knm": 100.0},
    )
    share = parts(identify(study_of(tmp_path, test, **free, tolerances=known)))
    assert share["stiffness.a"] == pytest.approx(1e-7 * TRUTH["stiffness.a"], rel=0.01)
    assert share["stiffness.b"] < 0.05 * share["stiffness.a"]


def test_a_joint_zero_moves_the_postures_of_deflections(tmp_path):
    study = study_of(tmp_path, loads(), free={"stiffness.*": {"lower": 1e3, "upper": 1e6}})
    test, source = study.fitted[0].test, study.fitted[0].source
    cases = [dataclasses.replace(case, q=case.q + np.array([0.0, 0.01])) for case in source.cases]
    moved = source.with_cases(test, study.model, cases)
    expected = np.asarray(moved.residual(moved.view(study.model)))
    plain, found = (source.residual_with(test, study.model, by) for by in ({}, {"zero of b": 0.01}))
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    assert np.linalg.norm(found - plain) > 1e-3 * np.linalg.norm(plain)


def test_a_lever_turns_with_the_loaded_frame(tmp_path):
    study = study_of(tmp_path, loads(), free={"stiffness.*": {"lower": 1e3, "upper": 1e6}})
    test, source, model = study.fitted[0].test, study.fitted[0].source, study.model
    axes = [np.asarray(jaxmb.frame_pose(model, case.q, case.frame))[:3, 0] for case in source.cases]
    moments = [np.cross(0.1 * axis, case.wrench[:3]) for axis, case in zip(axes, source.cases, strict=True)]
    cases = [
        dataclasses.replace(case, wrench=case.wrench + np.append(np.zeros(3), moment))
        for case, moment in zip(source.cases, moments, strict=True)
    ]
    moved = source.with_cases(test, model, cases)
    expected = np.asarray(moved.residual(moved.view(model)))
    found = source.residual_with(test, model, {f"lever of loads of {test.name} along x": 0.1})
    np.testing.assert_allclose(found, expected, rtol=1e-9)


INERTIAL = {"mass_percent", "center_of_mass_mm", "inertia_percent", "damping_percent", "tilt_deg"}
DYNAMIC = {"inertia_percent", "damping_percent", "foundation_um_per_kn", "foundation_urad_per_knm"}
POSES = {"rows": 6, "ranges": {"a": [-1.0, 1.0], "b": [-1.0, 1.0]}, "measured": "pose", "inclinations": ["elbow"],
         "distances": ["elbow"]}  # fmt: skip


@pytest.mark.parametrize(
    ("test", "silent"),
    [
        (frf(noise=0.01), set()),
        (shapes(), set()),
        (loads(), INERTIAL),
        ({"kind": "pose", "name": "t", "simulate": POSES}, DYNAMIC),
    ],
    ids=["frf", "modes", "deflections", "poses"],
)
def test_each_tolerance_changes_the_residual(tmp_path, test, silent):
    """Deflections under loads alone do not depend on masses, damping and gravity, poses at rest not on inertia, damping
    and, as the device stands beside it, the foundation."""
    known = Tolerances(foundation_um_per_kn=1.0, foundation_urad_per_knm=1.0)
    study = study_of(tmp_path, test, free={"stiffness.a": {"lower": 1e3, "upper": 1e6}})
    described = DescribedTests(study.fitted, study.model, study.free, known)
    plain, largest = described.residual({}), {}
    for error in described.errors:
        if size := error.std(known):
            change = float(np.abs(described.residual({error.key: size}) - plain).max())
            largest[error.tolerance] = max(change, largest.get(error.tolerance, 0.0))
    assert {kind for kind, change in largest.items() if change == 0.0} == silent


def test_a_free_first_moment_leaves_the_centre_of_mass_in_the_moments_of_inertia():
    model = jaxmb.build_model(MACHINE)
    body, own = MACHINE.body[-1].name, jaxmb.parameters(model)
    names = [f"first_moment.{body}.{axis}" for axis in "xyz"]
    free = free_parameters(model, [Bound((name,), -50.0, 50.0, logarithmic=False) for name in names])
    known = list(machine_errors(model, free, {}))
    off = 0.01
    moved = jaxmb.parameters(with_machine_errors(model, free, known, {f"centre of mass of {body} x": off}))
    mass, moment = own[f"mass.{body}"], own[names[0]]
    assert [moved[name] for name in names] == [own[name] for name in names]
    rise = moved[f"inertia.{body}.yy"] - own[f"inertia.{body}.yy"]
    assert rise == pytest.approx(2.0 * moment * off + mass * off**2, rel=1e-9)  # parallel axes
    assert moved[f"inertia.{body}.xx"] == pytest.approx(own[f"inertia.{body}.xx"], rel=1e-12)
    all_free = [*names, *(f"inertia.{body}.{entry}" for entry in ("xx", "yy", "zz", "xy", "xz", "yz"))]
    free = free_parameters(model, [Bound((name,), -50.0, 50.0, logarithmic=False) for name in all_free])
    assert not [e.key for e, _ in machine_errors(model, free, {}) if e.key.startswith(f"centre of mass of {body}")]


def test_free_geometry_has_no_tolerance(tmp_path):
    free = {"stiffness.*": {"lower": 1e3, "upper": 1e6}, "zero.a": {"lower": -0.1, "upper": 0.1}}
    free["frame.tool.x"] = {"lower": -0.01, "upper": 0.01}
    study = study_of(tmp_path, frf(noise=0.01), free=free)
    described = DescribedTests(study.fitted, study.model, study.free, Tolerances())
    keys = {error.key for error in described.errors}
    assert {"zero of b", "position of tool along y"} < keys
    assert not {"zero of a", "position of tool along x"} & keys


@pytest.mark.parametrize("follows", [True, False])
def test_axes_have_tolerances_beside_tests_that_follow_the_geometry(follows):
    model = jaxmb.build_model(MACHINE)
    free = free_parameters(model, [Bound(("stiffness.a",), 1e3, 1e6)])
    source = types.SimpleNamespace(follows_geometry=follows, frames=lambda test: {})
    entry = types.SimpleNamespace(source=source, test=types.SimpleNamespace(vibration=None))
    found = machine_errors_in_tests(model, free, [entry])
    kinds = {error.tolerance for error, _ in found}
    assert "mass_percent" in kinds
    assert ({"origin_mm", "origin_deg"} <= kinds) == follows


def test_gravity_is_tilted_across_its_direction():
    data = MACHINE.model_dump(mode="json", exclude_unset=True) | {"gravity": [0.0, -9.81, 0.0]}
    model = jaxmb.build_model(Machine.model_validate(data))
    free = free_parameters(model, [Bound(("stiffness.a",), 1e3, 1e6)])
    known = list(machine_errors(model, free, {}))
    tilted = [key for key in (error.key for error, _ in known) if key.startswith("tilt")]
    assert tilted == ["tilt about X", "tilt about Z"]
    for size in (0.01, 0.5 * np.pi):
        down, across = -9.81 * np.cos(size), 9.81 * np.sin(size)
        for key, expected in zip(tilted, ([0.0, down, -across], [across, down, 0.0]), strict=True):
            there = with_machine_errors(model, free, known, {key: size})
            np.testing.assert_allclose(there.gravity, expected, atol=1e-12)


@pytest.mark.parametrize(("curved", "linear_later"), [(1e-4, [1]), (1.0, [])])
def test_slow_tests_are_drawn_to_first_order_where_their_effect_is_linear(curved, linear_later):
    """The first test, which is not linear, is evaluated in all draws, the second one in the first four."""
    rng, asked = np.random.default_rng(0), list[tuple[int, ...]]()
    jacobian, columns, bend = rng.normal(size=(60, 2)), rng.normal(size=(60, 1)), rng.normal(size=(60, 1))
    bend[30:] *= curved

    def change(z, linear):
        asked.append(tuple(linear))
        beyond = bend @ z**2
        for k in linear:
            beyond[30 * k : 30 * k + 30] = 0.0
        return beyond - columns @ z

    effect = -np.linalg.lstsq(jacobian, columns)[0]
    first = Budget((StatedError("e", size=1.0),), effect, effect @ effect.T, columns, np.zeros((60, 0)))
    std = np.full(2, 0.1)
    found, whole = (
        _drawn(change, slow, linear_refit(jacobian), jacobian, first, std, 0) for slow in ({1: slice(30, 60)}, {})
    )
    assert asked[:4] == [()] * 4
    assert asked[4:DRAWS] == [tuple(linear_later)] * (DRAWS - 4)
    assert set(asked[DRAWS:]) == {()}
    np.testing.assert_allclose(found.covariance, whole.covariance, rtol=1e-3)


def test_a_linear_refit_is_a_projection():
    rng = np.random.default_rng(1)
    jacobian, residual = rng.normal(size=(9, 3)), rng.normal(size=7)
    change, rest = linear_refit(jacobian)(residual)
    expected = np.linalg.lstsq(jacobian, -np.pad(residual, (0, 2)))[0]
    np.testing.assert_allclose(change, expected, rtol=1e-12)
    np.testing.assert_allclose(rest, np.pad(residual, (0, 2)) + jacobian @ expected, rtol=1e-12)


def test_tolerances_explain_a_residual_by_its_shape():
    """Not by its size: a smaller one in other directions than those of the errors is not theirs."""
    rng = np.random.default_rng(0)
    jacobian, column, curved = np.ones((40, 1)), np.zeros((40, 1)), np.zeros((40, DRAWS))
    column[:20, 0] = 30.0
    curved[20:30] = 1e-2 * rng.normal(size=(10, DRAWS))
    draws = rng.normal(size=(DRAWS, 1))
    stated = Budget((StatedError("a", "gain_percent", 0.01),), np.zeros((1, 1)), np.zeros((1, 1)), column, curved,
                    draws, Excess(np.ones(1 + DRAWS), (), {}))  # fmt: skip
    noise, weights = rng.normal(size=40), np.ones(40)
    of_error, other = noise + column[:, 0], noise + 20.0 * np.where(np.arange(40) >= 30, 1.0, -1.0)
    assert np.sum(other**2) < np.sum(of_error**2)
    found = [explained_tests(stated, [slice(0, 40)], residual - residual.mean(), jacobian, weights)
             for residual in (of_error, other)]  # fmt: skip
    assert found == [(True,), (False,)]


@pytest.mark.parametrize("kind", ["frf", "modes"])
def test_data_with_a_reversed_sensor_leave_the_effects_of_errors_as_they_are(tmp_path, kind):
    """Next to half a turn a small delay changes the phase of a ratio by a turn, and a shape that is not the measured
    one changes its residual otherwise."""
    model, posture = jaxmb.build_model(MACHINE), {"a": 0.2, "b": 0.5}
    model = jaxmb.set_parameters(model, TRUTH)
    q, found = jaxmb.posture(model, posture), []
    for sign in (1.0, -1.0):
        if kind == "frf":
            f, names = np.arange(1.0, 25.0), ("tool x", "tool z")
            h = np.array(jaxmb.frf(model, q, f, outputs=[("tool", "x"), ("tool", "z")], inputs=[("tool", "x")]))
            h[:, 1] *= sign * np.exp(1e-9j)
            jaxmb.write_frf(tmp_path / "h.npz", jaxmb.FrfSet(f, h, "accelerance", names, names[:1]))
            test = {"kind": "frf", "file": "h.npz", "posture": posture, "outputs": [["tool", "xz"]],
                    "inputs": [["tool", "x"]], "cross_axis": 0.0}  # fmt: skip
        else:
            own = jaxmb.modes(jaxmb.linearize(model, q))
            shape = np.array(jaxmb.response_rows(model, q, [tuple(p) for p in OUTPUTS]) @ own.shape)
            shape[-1] *= sign
            test = shapes(frequency_hz=own.damped_frequency_hz.tolist(), shapes=[
                [[float(x.real), float(x.imag)] for x in column] for column in shape.T
            ], damping_percent=(100.0 * own.damping_ratio).tolist())  # fmt: skip
            del test["simulate"]
        known = EXACT | {"delay_us" if kind == "frf" else "sensor_direction_deg": 1.0}
        study = study_of(tmp_path, test, **BRIEF, tolerances=known)
        u = study.free.encode(np.array([TRUTH[name] for name in study.free.names]))
        found.append(estimate_at(study, u).goodness.budget.columns)
    assert np.abs(found[0]).max() > 0.0
    np.testing.assert_allclose(found[1], found[0], atol=1e-6 * np.abs(found[0]).max())


def test_where_nothing_is_stated(tmp_path):
    """A simulated test is as described; "exact" says so of a measured one, whose default is that of the field."""
    simulated = identify(study_of(tmp_path, frf(noise=0.01), **BRIEF))
    assert simulated.metrics.uncertainty is None
    modes = {"kind": "modes", "posture": {"a": 0.2, "b": 0.5}, "frequency_hz": [5.0, 15.0],
             "damping_percent": [1.0, 1.0], "frequency_std_hz": 0.02, "damping_std_percent": 0.05}  # fmt: skip
    assert identify(study_of(tmp_path, modes, **BRIEF)).metrics.uncertainty is not None
    assert identify(study_of(tmp_path, modes, **BRIEF, tolerances="exact")).metrics.uncertainty is None
    with pytest.raises(ValueError, match="mass_percent"):
        study_of(tmp_path, modes, tolerances={"mass_percent": -1.0})


def heavier(factors, machine=MACHINE):
    """A machine with other masses and inertias, the centres of mass as they are."""
    data = machine.model_dump(mode="json", exclude_unset=True)
    for body, factor in zip(data["body"], factors, strict=True):
        body["mass"] *= factor
        body["inertia_products"] = {axis: factor * value for axis, value in body["inertia_products"].items()}
    return Machine.model_validate(data)


def test_errors_of_masses_move_antiresonances(tmp_path):
    """By several lines, so that the residual is ten times the noise, and damping by more than the linear effect."""
    machine = jaxmb.load_machine("manipulator-3r")
    write_machine(heavier([0.97, 1.06, 0.99], machine), tmp_path / "true.toml")
    lines = {"first_hz": 2.0, "last_hz": 40.0, "step_hz": 0.5}
    simulate = {"machine": "true.toml", "lines": lines, "noise_log_std": 0.01}
    test = frf(posture={"z1": 0.3, "z2": -0.4, "z3": 0.9}, simulate=simulate, noise_log_std=0.01, outputs=None)
    free = {"stiffness.*": {"lower": 1e5, "upper": 1e8}, "damping.*": {"lower": 1.0, "upper": 1e5}}
    known = EXACT | {"mass_percent": 3.0}
    result = identify(study_of(tmp_path, test, machine=machine, free=free, tolerances=known))
    assert result.metrics.misfit.factor > 5.0
    assert result.doubts == ()
    true = jaxmb.parameters(jaxmb.build_model(machine))
    for name, p in result.parameters.items():
        assert abs(np.log(p.value / true[name])) < 3.0 * p.std_log < 0.6
    joint = result.metrics.most_likely_errors
    assert joint.text.startswith("mass of link2 +6.0")
    assert any(f"with the most likely ones ({joint.text})" in text for text in result.remarks)
    for name, value in joint.values.items():
        assert abs(value - true[name]) < 3.0 * joint.std[name] < 0.15 * true[name]


@pytest.mark.parametrize("noise", [0.01, 3e-4])
def test_errors_within_their_tolerances_are_covered_and_no_doubt(tmp_path, noise):
    """Masses off by 4 and -3 %: without tolerances the fit is in doubt, with them it is not, and the true values are in
    the intervals. With little noise only their joint fit explains the residual."""
    write_machine(heavier([1.04, 0.97]), tmp_path / "true.toml")
    tests = [frf(b, noise, k, name=f"p{k}", noise_log_std=noise) for k, b in enumerate((0.5, -0.9))]
    for test in tests:
        test["simulate"]["machine"] = "true.toml"
    plain = identify(study_of(tmp_path, *tests, **BRIEF))
    assert not plain.metrics.misfit.explained
    assert plain.metrics.tolerated is None
    stated = identify(study_of(tmp_path, *tests, **BRIEF, tolerances=EXACT | {"mass_percent": 4.0}))
    assert stated.metrics.tolerated
    assert stated.doubts == ()
    assert any("likely by their tolerances" in text for text in stated.remarks)
    for name, p in stated.parameters.items():
        assert p.interval_95[0] <= TRUTH[name] <= p.interval_95[1]
    assert 0.02 < stated.parameters["stiffness.a"].std_log < 0.08


def test_larger_noise_than_stated_is_no_error_of_the_description(tmp_path):
    """Errors within the usual tolerances would explain a residual as large as that of ten times the stated noise."""
    first = {"name": "q1", "stiffness": 6e4, "damping": 20.0, "rotor_inertia": 1.0}
    turned, second = {"xyz": [0.6, 0.0, 0.0], "rpy": ["90 deg", 0.0, 0.0]}, {"name": "q2", "damping": 10.0}
    heavy, light = {"xx": 0.2, "yy": 1.0, "zz": 1.0}, {"xx": 0.1, "yy": 0.4, "zz": 0.4}
    bodies = [
        {"name": "l1", "joint": [first], "mass": 20.0, "center_of_mass": [0.3, 0, 0], "inertia_products": heavy},
        {"name": "l2", "parent": "l1", "origin": turned, "joint": [second | {"stiffness": 3e4}], "mass": 10.0,
         "center_of_mass": [0.2, 0, 0], "inertia_products": light},
    ]  # fmt: skip
    tool = {"name": "tool", "body": "l2", "origin": {"xyz": [0.5, 0.1, 0.05]}}
    machine = Machine.model_validate({"name": "crossed", "body": bodies, "frame": [tool]})
    model, rng, f = jaxmb.build_model(machine), np.random.default_rng(0), np.arange(2.0, 40.0, 0.5)
    posture = {"q1": 0.3, "q2": 0.8}
    exact = np.asarray(jaxmb.frf(model, jaxmb.posture(model, posture), f))
    noise = 0.02 * (rng.normal(size=exact.shape) + 1j * rng.normal(size=exact.shape))
    tools = ("tool x", "tool y", "tool z")
    measured = jaxmb.FrfSet(f, exact * np.exp(noise), kind="accelerance", outputs=tools, inputs=tools, unit="m/s^2/N")
    jaxmb.write_frf(tmp_path / "frf.npz", measured)
    test = {"kind": "frf", "file": "frf.npz", "posture": posture, "cross_axis": 0.0}
    free = {"stiffness.*": {"lower": 1e4, "upper": 1e6}, "damping.*": {"lower": 1.0, "upper": 1e3}}

    def found(noise, **settings):
        own = test | {"noise_log_std": noise}
        return identify(study_of(tmp_path, own, machine=machine, free=free, **BRIEF, **settings))

    result, right = found(0.002), found(0.02)
    (doubt,) = result.doubts
    assert "noise understated" in doubt
    assert right.doubts == ()
    result, right = (found(noise, tolerances=EXACT) for noise in (0.002, 0.02))  # by noise alone
    for mode, own in zip(result.modes, right.modes, strict=True):
        np.testing.assert_allclose(mode.frequency_std_hz, own.frequency_std_hz, rtol=0.2)


def test_a_value_on_its_bound_within_tolerances_is_no_doubt(tmp_path):
    """Masses 4 % smaller than stated: the apparent stiffness is 4 % larger than the true one, beyond its bound."""
    write_machine(heavier([0.96, 0.96]), tmp_path / "true.toml")
    test = shapes(noise=True, damping_std_percent=0.5)
    test["simulate"]["machine"] = "true.toml"
    free = {f"stiffness.{name}": {"lower": 1e3, "upper": 1.01 * TRUTH[f"stiffness.{name}"]} for name in "ab"}
    exact, stated = (
        identify(study_of(tmp_path, test, free=free, tolerances=EXACT | {"mass_percent": percent}))
        for percent in (0.0, 4.0)
    )
    assert any("limited by its bound" in text for text in exact.doubts)
    assert stated.doubts == ()
    for name, p in stated.parameters.items():
        assert p.value == pytest.approx(1.01 * TRUTH[name])
        assert p.interval_95[0] <= TRUTH[name] <= p.interval_95[1]


def test_numbers_of_a_machine_with_errors():
    """A mass changes its inertia in proportion, a centre of mass leaves the inertia about itself."""
    model = jaxmb.build_model(MACHINE)
    free = free_parameters(model, [Bound(("stiffness.a",), 1e3, 1e6)])
    known = list(machine_errors(model, free, {"tool": False}))
    errors = {"mass of fore": np.log(1.1), "centre of mass of fore x": 0.02, "moment of inertia of fore y": 0.03}
    changed = with_machine_errors(model, free, known, errors)
    i = model.masses.index("fore")
    centre = np.array([0.32, 0.1, 0.0])
    about = 1.1 * (np.diag([0.05, 0.3, 0.3]) + np.diag([0.0, 0.03, 0.0]))
    np.testing.assert_allclose(changed.mass[i], 8.8, rtol=1e-12)
    np.testing.assert_allclose(changed.first_moment[i], 8.8 * centre, rtol=1e-12)
    inertia = about + 8.8 * (centre @ centre * np.eye(3) - np.outer(centre, centre))
    np.testing.assert_allclose(changed.inertia[i], inertia, rtol=1e-12)
    assert with_machine_errors(model, free, known, {}) is model
    loaded = with_machine_errors(model, free, known, {"payload tool": 2.0})
    np.testing.assert_allclose(loaded.mass[i], 10.0, rtol=1e-12)
    np.testing.assert_allclose(loaded.first_moment[i], 8.0 * np.array([0.3, 0.1, 0.0]) + 2.0 * TOOL, rtol=1e-12)
    moved = with_machine_errors(model, free, known, {"position of tool along z": 0.01, "tilt about X": 0.02})
    tool = model.frames.index("tool")
    np.testing.assert_allclose(moved.frame_offset[tool, :3, 3] - model.frame_offset[tool, :3, 3], [0.0, 0.0, 0.01])
    np.testing.assert_allclose(moved.gravity, [0.0, 0.02 * 9.81, -9.81], rtol=3e-4, atol=1e-12)
    tilted = with_machine_errors(model, free, known, {"tilt about X": 0.3}).gravity
    np.testing.assert_allclose(tilted, 9.81 * np.array([0.0, np.sin(0.3), -np.cos(0.3)]), atol=0.03)  # by 2 atan(0.15)
    assert np.linalg.norm(tilted) == pytest.approx(9.81, rel=1e-12)


def test_turned_and_displaced_points_are_those_of_another_frame(tmp_path):
    """To first order the rows of a sensor beside its frame, and askew, are those of a frame that is there."""
    turn, shift = 1e-5, 2e-5
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    origin = {"xyz": [0.7 + shift, 0.1, 0.05], "rpy": [0.0, turn, 0.0]}
    data["frame"] = [*data["frame"], {"name": "askew", "body": "fore", "origin": origin}]
    own = study_of(tmp_path, frf()).tests[0]
    other = study_of(
        tmp_path, frf(outputs=[["askew", "z"]], inputs=[["tool", "x"]]), machine=Machine.model_validate(data)
    )
    expected = other.tests[0].view(other.model).output_rows
    model = jaxmb.build_model(MACHINE)
    errors, by = own.description.none(model), np.array([[0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    placed = errors._replace(output_turn=turn * by, output_shift=shift * np.array([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]))
    plain, found = (displaced_view(own, model, each).output_rows for each in (errors, placed))
    np.testing.assert_allclose(found[1] - plain[1], expected[0] - plain[1], rtol=1e-4)
    assert np.linalg.norm(found[1] - plain[1]) > 1e-6
    np.testing.assert_array_equal(found[0], plain[0])


def test_values_far_from_a_rough_prior_contradict_no_tolerance():
    """Four modes, eighteen parameters: data are followed exactly, and only the prior disagrees with them."""
    result = jaxmb.identify(jaxmb.load_study("kr90-measured-modes"))
    assert result.status == "converged"
    assert result.cost < 0.1
    assert not any(check.exceeded for check in result.metrics.tolerance_checks.values())


WRIST = [
    {"name": "column", "origin": {"xyz": [0.0, 0.0, 0.5]}, "mass": 60.0, "center_of_mass": [0.05, 0.0, 0.1],
     "inertia_products": {"xx": 2.0, "yy": 2.0, "zz": 1.5},
     "joint": [{"name": "j1", "axis": [0.0, 0.0, 1.0], "damping": 30.0, "friction": 8.0}]},
    {"name": "boom", "parent": "column", "origin": {"xyz": [0.2, 0.0, 0.3]}, "mass": 40.0,
     "center_of_mass": [0.35, 0.02, 0.03], "inertia_products": {"xx": 0.4, "yy": 3.0, "zz": 3.0},
     "joint": [{"name": "j2", "axis": [0.0, 1.0, 0.0], "damping": 25.0, "friction": 10.0}]},
    {"name": "stick", "parent": "boom", "origin": {"xyz": [0.8, 0.0, 0.1]}, "mass": 20.0,
     "center_of_mass": [0.3, 0.0, 0.05], "inertia_products": {"xx": 0.1, "yy": 0.9, "zz": 0.9},
     "joint": [{"name": "j3", "axis": [0.0, 1.0, 0.0], "damping": 10.0, "friction": 5.0}]},
    {"name": "hand", "parent": "stick", "origin": {"xyz": [0.6, 0.0, 0.0]}, "mass": 5.0,
     "center_of_mass": [0.1, 0.03, 0.0], "inertia_products": {"xx": 0.03, "yy": 0.05, "zz": 0.05},
     "joint": [{"name": "j4", "axis": [1.0, 0.0, 0.0], "damping": 2.0, "friction": 1.5}]},
]  # fmt: skip
WRONG = ((0.977, (0.1, 0.3, 0.2)), (0.994, (2.6, -2.5, 1.8)), (0.974, (-9.5, 0.0, 3.8)), (1.0, (-2.0, 1.9, 6.0)))
"""Factor on the mass of each body, and error of its centre of mass, mm: at most two default tolerances."""


@pytest.mark.parametrize("seed", [0, 1])
def test_errors_within_their_tolerances_explain_torques_that_displace_the_fit(tmp_path, seed):
    """The small torques of a wrist depend on moments that large torques with errors of the arm displace: there a
    zero of the wrist had another effect, and was off by 379 tolerances."""
    rng, omega = np.random.default_rng(5), 2.0 * np.pi * np.array([0.2, 0.45, 0.8])
    size, phase = 0.4 * np.pi / omega * rng.uniform(0.3, 0.8, (4, 3)), rng.uniform(0.0, 6.28, (4, 3))
    turn = omega * np.arange(0.0, 8.0, 0.01)[:, None, None] + phase
    q, v, a = (
        np.sum(part, axis=2)
        for part in (size * np.sin(turn), size * omega * np.cos(turn), -size * omega**2 * np.sin(turn))
    )
    bodies = [
        body | {
            "mass": factor * body["mass"],
            "center_of_mass": (np.array(body["center_of_mass"]) + 1e-3 * np.array(by)).tolist(),
            "inertia_products": {axis: factor * value for axis, value in body["inertia_products"].items()},
        }
        for body, (factor, by) in zip(WRIST, WRONG, strict=True)
    ]  # fmt: skip
    true = {"name": "wrist", "body": bodies, "gravity": [0.0019, 0.0076, -9.81]}
    model = jaxmb.build_model(jaxmb.Machine.model_validate(true))
    efforts = jax.jit(jax.vmap(lambda *motion: jaxmb.actuator_effort(model, *motion)))
    torque = np.array(efforts(q + np.radians([0.076, -0.016, 0.073, 0.055]), v, a))
    std = 0.01 * np.sqrt(np.mean(torque**2, axis=0))
    torque = torque + std * np.random.default_rng(seed).normal(size=torque.shape)
    torque *= np.array([0.989, 1.012, 0.989, 1.021])
    names = ("j1", "j2", "j3", "j4")
    head = ",".join(["time_s", *(name + of for of in ("", ".velocity", ".acceleration", ".torque") for name in names)])
    table = np.column_stack([0.01 * np.arange(len(q)), q, v, a, torque])
    np.savetxt(tmp_path / "run.csv", table, delimiter=",", header=head, comments="")
    test = {"kind": "torque", "file": "run.csv", "torque_std": dict(zip(names, std.tolist(), strict=True))}
    free = {f"first_moment.hand.{axis}": {"lower": -20.0, "upper": 20.0} for axis in "xz"} | {
        "damping.*": {"lower": 0.0, "upper": 200.0, "scale": "linear"},
        "friction.*": {"lower": 0.0, "upper": 100.0, "scale": "linear"},
    }
    (tmp_path / "wrist.toml").write_text(tomli_w.dumps({"name": "wrist", "body": WRIST}))
    study = {"machine": "wrist.toml", "test": [test], "free": free}
    (tmp_path / "study.toml").write_text(tomli_w.dumps(study))
    goodness = linear_estimate(jaxmb.load_study(tmp_path / "study.toml")).goodness
    assert goodness.misfit.square > 3.0
    assert goodness.misfit_tolerated
    assert not goodness.beyond_tolerance


def test_parameters_without_effect_leave_the_budget_of_base_parameters_as_it_is():
    """Free in addition, they give the same base parameters."""
    study = study_data("slider-crank")
    study["test"] = study["test"][:1]
    study["test"][0]["simulate"] |= {"duration_s": 2.0, "rate_hz": 100.0, "angle_std": 0.0}
    study["tolerances"] = EXACT | {"torque_percent": 5.0, "joint_zero_deg": 0.05}
    every = {
        f"{name}.*": {"lower": -5.0 * (name != "mass"), "upper": 5.0} for name in ("mass", "first_moment", "inertia")
    }
    few, many = (
        identify(jaxmb.make_study(study | {"free": free}, "s")).metrics["base"] for free in (study["free"], every)
    )
    by_formula = {row["formula"]: row["std"] for row in many}
    assert [by_formula[row["formula"]] for row in few] == pytest.approx([row["std"] for row in few], rel=1e-3)


def test_a_parameter_without_effect_leaves_the_tolerances_of_the_others_as_they_are():
    """Rounding moved it up to its bounds in refits to drawn errors, which ended early: the mass had 0.6 of its standard
    deviation."""
    motion = {"z1": {"sine": [1.0]}, "z2": {"sine": [0.5, -0.4]}, "z3": {"sine": [0.2, 0.7]}}
    stiffness = {f"stiffness.z{k}": 0.0 for k in (1, 2, 3)}
    simulate = {"duration_s": 10.0, "rate_hz": 20.0, "motion": motion, "parameters": stiffness}
    free = {f"first_moment.link{body}.{axis}": {"lower": -500.0, "upper": 500.0} for body, axis in ("2x", "3x", "3z")}
    free |= {"mass.link3": {"lower": 0.0, "upper": 500.0}, "damping.z3": {"lower": 1.0, "upper": 1e4}}
    study = {
        "machine": "manipulator-3r",
        "test": [{"kind": "torque", "torque_std": 20.0, "cutoff_hz": 5.0, "simulate": simulate}],
        "free": free, "hold": stiffness, "tolerances": {},
    }  # fmt: skip
    more = study | {"free": free | {"first_moment.link2.z": {"lower": -500.0, "upper": 500.0}}}
    few, many = (jaxmb.inspect(jaxmb.make_study(one, "arm")).uncertainty for one in (study, more))
    assert {name: many[name].tolerances / few[name].tolerances for name in few} == pytest.approx(
        dict.fromkeys(few, 1.0), rel=1e-3
    )
