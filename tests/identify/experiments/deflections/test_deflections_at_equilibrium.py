"""Deflections of an arm that sags, from the equilibrium under its weight: statics by hand, solved by SciPy."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq, root

import jaxmb
from jaxmb.identify.assess.tests.deflections import drawn_displacements
from jaxmb.identify.experiments.deflections.deflection_test import deflection_test
from jaxmb.identify.experiments.deflections.load_cases import LoadCase
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.machine.schema import Machine
from jaxmb.response.static import deflection
from tests.identify.arm import BRIEF, MACHINE, frf, loads, study_of
from tests.identify.experiments.deflections.test_closed_chains import FIVE_BAR
from tests.identify.experiments.deflections.test_gravity_in_deflections import gravity_torque
from tests.mechanics.test_loops import BASE, COUPLER, CRANK, FOUR_BAR, ROCKER

STIFFNESS = np.array([9e3, 2e3])
MODEL = jaxmb.set_parameters(
    jaxmb.build_model(MACHINE), dict(zip(("stiffness.a", "stiffness.b"), STIFFNESS.tolist(), strict=True))
)
FREE = {"stiffness.*": {"lower": 1e3, "upper": 1e6}}
FORCES = np.array([[60.0, 0.0, -80.0], [-50.0, 20.0, -40.0], [70.0, 0.0, 30.0]])
POSTURES = np.array([[0.3, -0.9], [-0.6, 1.1], [0.8, 0.4]])


def tool(q):
    """Position of the tool by hand: rotations about y."""
    x = np.array([[0.8, 0.1], [0.7, 0.05]])
    turn = [np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) for angle in np.cumsum(q)]
    across, up = turn[0] @ x[0] + turn[1] @ x[1]
    return np.array([across, 0.1, up])


def moved(q, force):
    """Translation of the tool from the equilibrium under the weight to that under weight and force, m."""

    def imbalance(x, load):
        steps = 1e-6 * np.eye(2)
        jacobian = np.stack([(tool(x + step) - tool(x - step)) / 2e-6 for step in steps], axis=1)
        return STIFFNESS * (x - q) + gravity_torque(x) - jacobian.T @ load

    unloaded, loaded = (tool(root(imbalance, q, (load,), tol=1e-13).x) for load in (np.zeros(3), force))
    return loaded - unloaded


DISPLACEMENTS = np.stack([moved(q, force) for q, force in zip(POSTURES, FORCES, strict=True)])
CASES = [
    LoadCase(f"{i}", POSTURES[i], "tool", np.append(FORCES[i], np.zeros(3)), ("tool",),
             np.append(DISPLACEMENTS[i], np.full(3, np.nan))[None], np.full((1, 6), 1e-6))
    for i in range(len(FORCES))
]  # fmt: skip


def test_nonlinear_equilibria():
    found = [deflection(MODEL, case.q, "tool", case.wrench, linear=False, weight=True)[0, :3] for case in CASES]
    np.testing.assert_allclose(found, DISPLACEMENTS, rtol=1e-6, atol=1e-9)
    with pytest.raises(ValueError, match="linear = False"):
        deflection(MODEL, CASES[0].q, "tool", CASES[0].wrench, weight=True)


def test_linearization_between_the_equilibria():
    """The error is of second order in the deflections of 0.03 rad, that at the readings of first order."""
    sagging, stated = (deflection_test("loads", MODEL, CASES, gravity=True, at_equilibrium=at) for at in (True, False))
    size = np.abs(DISPLACEMENTS).max()
    errors = [
        float(np.abs(np.asarray(test.predict(test.view(MODEL))).reshape(3, 3) - DISPLACEMENTS).max() / size)
        for test in (sagging, stated)
    ]
    assert errors[0] < 1e-3
    assert errors[1] > 0.02


def test_a_joint_bends_as_its_bearing():
    """A virtual spring that only turns about the axis of a joint is in series with the joint."""
    data = MACHINE.model_dump()
    spring = {"name": "bearing", "body": "fore", "at": "joint", "diagonal": [0.0, 0.0, 0.0, 0.0, 3e-4, 0.0]}
    bent = jaxmb.set_parameters(
        jaxmb.build_model(Machine.model_validate(data | {"virtual_spring": [spring]})),
        dict(zip(("stiffness.a", "stiffness.b"), STIFFNESS.tolist(), strict=True)),
    )
    softer = jaxmb.set_parameters(MODEL, {"stiffness.b": 1.0 / (1.0 / STIFFNESS[1] + 3e-4)})
    tests = [deflection_test("loads", one, CASES, gravity=True, at_equilibrium=True) for one in (bent, softer)]
    found, expected = (test.predict(test.view(one)) for test, one in zip(tests, (bent, softer), strict=True))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def measured(folder, factor=1.0):
    """The displacements under loads, which are so many times as large in the file."""
    lines = ["test,a rad,b rad,fx N,fy N,fz N,point,dx mm,dy mm,dz mm"]
    for case in CASES:
        numbers = [*case.q, *(factor * case.wrench[:3]), "tool", *(1e3 * case.displacement[0, :3])]
        lines.append(",".join([case.name, *map(str, numbers)]))
    (folder / "loads.csv").write_text("\n".join(lines) + "\n")
    return {"kind": "deflection", "file": "loads.csv", "std_mm": 0.01}


def test_identified_stiffness(tmp_path):
    found = {
        at: jaxmb.identify(
            study_of(tmp_path, measured(tmp_path), free=FREE, linearize_at=at, tolerances="exact", **BRIEF)
        )
        for at in ("equilibrium", "posture")
    }
    errors = {
        at: [
            abs(result.parameters[f"stiffness.{name}"].value / true - 1.0)
            for name, true in zip("ab", STIFFNESS, strict=True)
        ]
        for at, result in found.items()
    }
    assert max(errors["equilibrium"]) < 1e-3
    assert max(errors["posture"]) > 0.01
    assert found["equilibrium"].status == "converged"
    assert not found["equilibrium"].doubts
    rows = found["equilibrium"].metrics.tests["deflection"].deflections
    gaps = [np.subtract(row.predicted_mm, row.measured_mm) for row in rows]
    assert np.abs(gaps).max() < 0.05


def test_linear_equations_about_the_machine():
    """With them, a linear study names the sag."""
    test = deflection_test("loads", MODEL, CASES, gravity=True, at_equilibrium=True).about(MODEL)
    free = free_parameters(MODEL, [Bound((f"stiffness.{name}",), 1e2, 1e6) for name in "ab"])
    equations = test.linear.equations(MODEL, free)
    expected = test.predict(test.view(MODEL))
    np.testing.assert_allclose(equations.matrix @ (1.0 / STIFFNESS), expected, rtol=1e-3, atol=1e-7)
    soft = jaxmb.set_parameters(MODEL, {"stiffness.a": 10.0})
    assert np.isnan(test.about(soft).effort).any()


def test_a_sag_that_is_not_modelled_is_named(tmp_path):
    result = jaxmb.identify(study_of(tmp_path, measured(tmp_path), free=FREE))
    (first, *_) = result.metrics.model_errors
    assert 'linearize_at = "equilibrium"' in first.text
    assert first.explains > 0.95
    for name, true in zip("ab", STIFFNESS, strict=True):
        assert abs(first.values[f"stiffness.{name}"] / true - 1.0) < 5e-3


def test_standard_deviations_contain_the_sag(tmp_path):
    """Where noise hides it: those of noise alone are those at the equilibrium, where the values are true."""
    how = measured(tmp_path) | {"std_mm": 0.4}
    sagging, stated = (
        jaxmb.identify(study_of(tmp_path, how, free=FREE, linearize_at=at, tolerances="exact")).parameters
        for at in ("equilibrium", "posture")
    )
    for name, true in zip(("stiffness.a", "stiffness.b"), STIFFNESS, strict=True):
        error = np.log(stated[name].value / true)
        assert stated[name].std_log == pytest.approx(np.hypot(sagging[name].std_log, error), rel=0.1)
        assert stated[name].std_log > 1.5 * sagging[name].std_log


def test_simulated_measurements_are_of_the_equilibrium(tmp_path):
    study = study_of(tmp_path, loads(noise=1e-6), free=FREE, linearize_at="equilibrium")
    (case,) = study.fitted[0].source.cases[:1]
    true = jaxmb.build_model(MACHINE)
    expected = deflection(true, jnp.asarray(case.q), "tool", jnp.asarray(case.wrench), linear=False, weight=True)
    np.testing.assert_allclose(case.displacement, expected, atol=1e-8)


def test_a_complete_stiffness_model_is_linear(tmp_path):
    with pytest.raises(ValueError, match="linearize_at"):
        study_of(tmp_path, loads(), free={}, complete={}, linearize_at="equilibrium")


def test_beside_frfs(tmp_path):
    beside = study_of(tmp_path, frf(), loads(), linearize_at="equilibrium").tests[-1]
    assert (beside.gravity, beside.at_equilibrium) == (True, True)


HELD = {"body": [body | {"joint": [body["joint"][0] | springs]} for body, springs in zip(
    FOUR_BAR["body"], ({"stiffness": 400.0}, {}, {}), strict=True)], "independent": ["q1"]}  # fmt: skip


def end(q):
    """End of the coupler of the four-bar at an angle of its crank, by the cosine rule."""
    crank = CRANK * np.array([np.cos(q), np.sin(q)])
    between = np.array([BASE, 0.0]) - crank
    length = np.linalg.norm(between)
    along = (length**2 + COUPLER**2 - ROCKER**2) / (2.0 * length)
    across = np.sqrt(COUPLER**2 - along**2)
    return crank + (along * between + across * np.array([-between[1], between[0]])) / length


def four_bar_moved(q, force, stiffness=400.0):
    """Translation of the end from the equilibrium under the weight to that under weight and force, m."""

    def imbalance(x, load):
        def energy(at):
            crank, heights = CRANK * np.sin(at), end(at)[1]
            return 9.81 * (0.5 * crank + (crank + heights) + 0.75 * heights) - load @ end(at)

        return stiffness * (x - q) + (energy(x + 1e-5) - energy(x - 1e-5)) / 2e-5

    unloaded, loaded = (
        end(brentq(imbalance, q - 0.3, q + 0.3, (load,), xtol=1e-14)) for load in (np.zeros(2), np.array(force))
    )
    return loaded - unloaded


def test_a_closed_chain_sags(tmp_path):
    """The compliance at the end changes with the posture of the crank, which sags by a degree."""
    rng, lines = np.random.default_rng(4), ["test,q1 rad,fx N,fy N,dx mm,dy mm"]
    for k, q in enumerate(np.linspace(0.7, 1.5, 8)):
        force = rng.uniform(-12.0, 12.0, 2)
        seen = 1e3 * four_bar_moved(q, force) + rng.normal(scale=0.002, size=2)
        lines.append(",".join(map(str, (k, q, *force, *seen))))
    (tmp_path / "loads.csv").write_text("\n".join(lines) + "\n")
    test = {"kind": "deflection", "file": "loads.csv", "frame": "end", "std_mm": 0.002}
    free, machine = {"stiffness.q1": {"lower": 50.0, "upper": 5e3}}, Machine.model_validate(FOUR_BAR | HELD)
    found = {
        at: jaxmb.identify(
            study_of(tmp_path, test, free=free, machine=machine, linearize_at=at, tolerances="exact", **BRIEF)
        )
        for at in ("equilibrium", "posture")
    }
    stiffness = {at: result.parameters["stiffness.q1"] for at, result in found.items()}
    assert stiffness["equilibrium"].value == pytest.approx(400.0, rel=3e-3)
    assert found["equilibrium"].doubts == ()
    low, high = stiffness["posture"].interval_95
    assert low < 400.0 < high
    assert stiffness["posture"].std > 5.0 * stiffness["equilibrium"].std  # contains the change by the sag
    assert any("equilibrium" in doubt for doubt in found["posture"].doubts)


def test_flexible_links_in_loops_stay_at_the_posture(tmp_path):
    tests = [
        {"kind": "deflection", "frame": "tool", "posture": {"q1": 2.0, "q3": 1.1}, "instruments": {"tracker_mm": 0.01},
         "simulate": {"tests": 3, "zones": {"all": {"q1": [1.9, 2.0]}}, "force_n": [5.0, 9.0]}}
    ]  # fmt: skip
    machine = Machine.model_validate(FIVE_BAR)
    study = study_of(tmp_path, *tests, free=FREE, machine=machine, linearize_at="equilibrium")
    assert not study.tests[0].at_equilibrium
    assert any("loops" in remark for remark in study.entries[0].remarks)


def test_an_unstable_start_is_refused_where_no_fit_leaves_it(tmp_path):
    free = {"stiffness.*": {"lower": 1.0, "upper": 1e2}}
    study = study_of(tmp_path, measured(tmp_path), free=free, linearize_at="equilibrium")
    with pytest.raises(ValueError, match=r"study 'arm', initial values: .* the machine may be unstable"):
        jaxmb.inspect(study)


@pytest.mark.parametrize("at", ["posture", "equilibrium"])
def test_loads_of_another_unit_make_a_machine_that_falls(tmp_path, at):
    free = {"stiffness.*": {"lower": 1.0, "upper": 1e6}}
    result = jaxmb.identify(study_of(tmp_path, measured(tmp_path, 1e-3), free=free, linearize_at=at))
    assert result.parameters["stiffness.b"].value < 10.0
    assert result.parameters["stiffness.b"].identifiable != "yes"
    assert result.doubts


def test_robust_fits_and_draws_of_instruments(tmp_path):
    """As in other linear studies; the draws are about the displacements of the machine that sags."""
    instruments = {"tracker_mm": 0.01, "balance_kg": 0.01, "draws": 4}
    test = measured(tmp_path) | {"instruments": instruments}
    del test["std_mm"]
    study = study_of(tmp_path, test, free=FREE, linearize_at="equilibrium", tolerances="exact")
    result = jaxmb.identify(study)
    metrics = result.metrics.tests["deflection"]
    assert [row.parameter for row in metrics.table2] == ["stiffness.a", "stiffness.b"]
    drawn = next(drawn_displacements(result.model, study.fitted, 1, 0))
    np.testing.assert_allclose(drawn, DISPLACEMENTS.ravel(), atol=3e-4)
    robust = study_of(tmp_path, measured(tmp_path) | {"robust": True}, free=FREE, linearize_at="equilibrium")
    assert jaxmb.identify(robust).status == "converged"
