"""Residuals against plain NumPy, their derivatives against differences, and the short ways against the long ones."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.experiments.motion import scene
from jaxmb.identify.parameters.model_parameters import set_parameters
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import load_study, make_study
from jaxmb.machine.file import write_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.tangent import linearize
from jaxmb.response.frf import response_rows
from jaxmb.response.modal import energy_shares, modes

MACHINE = Machine.model_validate({
    "name": "crane",
    "body": [
        {"name": "cart", "joint": [{"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": 8e5,
                                    "damping": 300.0, "rotor_inertia": 30.0}], "mass": 60.0},
        {"name": "lever", "parent": "cart", "joint": [{"name": "r", "axis": [0.0, 1.0, 0.0], "stiffness": 5e4,
                                                       "damping": 25.0, "rotor_inertia": 0.6}],
         "mass": 20.0, "center_of_mass": [0.4, 0.05, 0.1],
         "inertia_products": {"xx": 0.4, "yy": 1.6, "zz": 1.5, "xy": 0.05, "xz": -0.08, "yz": 0.02}},
        {"name": "wrist", "parent": "lever", "origin": {"xyz": [0.8, 0.0, 0.1]},
         "joint": [{"name": "w", "stiffness": 6e3, "damping": 2.0}], "mass": 4.0, "center_of_mass": [0.2, 0.1, 0.0],
         "inertia_products": {"xx": 0.05, "yy": 0.1, "zz": 0.12}},
    ],
    "frame": [{"name": "tool", "body": "wrist", "origin": {"xyz": [0.4, 0.1, 0.05], "rpy": [0.1, 0.2, 0.3]}}],
    "spring": [{"name": "stay", "frame_a": "ground", "frame_b": "wrist", "type": "translation",
                "direction": [0.0, 0.6, 0.8], "stiffness": 1e5, "damping": 40.0}],
})  # fmt: skip
FREE = {
    "stiffness.*": {"lower": 1e3, "upper": 1e7},
    "damping.*": {"lower": 0.1, "upper": 1e4},
    "mass.wrist": {"lower": 1.0, "upper": 9.0},
    "first_moment.wrist.*": {"lower": -3.0, "upper": 3.0},
    "inertia.wrist.*": {"lower": -1.0, "upper": 2.0},
    "rotor_inertia.s": {"lower": 5.0, "upper": 100.0},
}
POSTURE = {"r": 0.3, "w": -0.4}


PENDULUM = MACHINE.model_copy(update={
    "body": (MACHINE.body[1].model_copy(update={"parent": "ground"}),),
    "frame": (MACHINE.frame[0].model_copy(update={"body": "lever"}),),
    "spring": (),
})  # fmt: skip
"""The lever alone: what is slow to compile is compiled for one coordinate."""


def crane_study(folder, tests, free=FREE, machine=MACHINE, **settings):
    write_machine(machine, folder / "crane.toml")
    file = StudyFile.model_validate({"machine": "crane.toml", "test": tests, "free": free} | settings)
    return make_study(file, "crane", folder)


def frf_test(noise=0.0, **more):
    lines = {"first_hz": 1.0, "last_hz": 30.0, "step_hz": 1.0}
    simulate = {"lines": lines, "noise_log_std": noise, "response": "mobility"}
    return {"kind": "frf", "simulate": simulate, "posture": POSTURE, "noise_log_std": 0.02} | more


@pytest.fixture(scope="module")
def crane(tmp_path_factory):
    """All families of parameters free, peaks weighted up, noise in the data."""
    weights = {"peaks": 20, "elsewhere": 0.5}
    return crane_study(tmp_path_factory.mktemp("crane"), [frf_test(noise=0.02, weights=weights)])


def truth_u(study):
    return np.asarray(study.free.encode(np.array([study.truth[n] for n in study.free.names])))


def near_truth(study, size=0.05, seed=0):
    random = np.random.default_rng(seed)
    lower, upper = np.asarray(study.free.lower), np.asarray(study.free.upper)
    return np.clip(truth_u(study) + size * random.uniform(-1, 1, size=study.free.size), lower, upper)


def plain_cost(study, u, phase="safe"):
    """Equation 22 line by line: sum W |log Hs - log H|^2."""
    total = 0.0
    model = set_parameters(study.model, study.free.named(study.free.values(u)))
    for test in study.tests:
        tangent = linearize(model, test.q)
        M, C, K = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
        rows = np.asarray(response_rows(model, test.q, test.outputs))
        for k, w in enumerate(np.asarray(test.omega)):
            H = (1j * w) ** test.derivatives * rows @ np.linalg.inv(K + 1j * w * C - w**2 * M) @ rows.T
            Hs = np.asarray(test.measured[k])
            W = np.asarray(test.weight[k])
            error = np.log(Hs / H) if phase == "safe" else np.log(Hs) - np.log(H)
            total += float(np.sum(W * np.abs(error) ** 2))
    return total


@pytest.mark.parametrize("seed", range(3))
def test_cost_is_equation_22(crane, seed):
    u = near_truth(crane, 0.3, seed)
    assert float(crane.problem.cost(jnp.asarray(u))) == pytest.approx(plain_cost(crane, u), rel=1e-9)
    # Without a prior the objective is the cost, whatever the noise level.
    assert float(crane.problem.objective(jnp.asarray(u))) == pytest.approx(plain_cost(crane, u), rel=1e-9)


def test_expected_cost_at_the_truth(crane):
    """Each residual of a weight W has the variance W sigma^2: the cost's mean is 2 sigma^2 sum W."""
    expected = 2 * 0.02**2 * float(np.sum(crane.tests[0].weight))
    # Some hundred draws with few heavy weights among them.
    assert float(crane.problem.cost(jnp.asarray(truth_u(crane)))) == pytest.approx(expected, rel=0.5)


@pytest.fixture(scope="module")
def noisy_validation():
    """The shipped validation study with 1 % of noise, both ways of taking the phase."""
    study = load_study("validation-3r")
    test = study.tests[0]
    real, imaginary = np.random.default_rng(0).normal(scale=0.01, size=(2, *test.measured.shape))
    test = dataclasses.replace(test, measured=test.measured * jnp.asarray(np.exp(real + 1j * imaginary)))

    def with_phase(phase):
        tests = (dataclasses.replace(test, phase=phase),)
        return dataclasses.replace(study, problem=dataclasses.replace(study.problem, tests=tests))

    return with_phase("safe"), with_phase("principal")


def test_phase_on_the_principal_branch_wraps(noisy_validation):
    """A phase at half a turn wraps by 2 pi under the smallest noise: what eq. 22 costs then as printed."""
    safe, principal = noisy_validation
    u = truth_u(safe)
    good, wrapped = (float(s.problem.cost(jnp.asarray(u))) for s in (safe, principal))
    # Most of it comes from few lines, so the factor follows their weights; what it is exactly is compared below.
    assert wrapped > 100.0 * good
    assert good == pytest.approx(plain_cost(safe, u, "safe"), rel=1e-9)
    assert wrapped == pytest.approx(plain_cost(safe, u, "principal"), rel=1e-9)
    # Each wrap adds at least W (2 pi - 6 sigma)^2, W at least 0.5: the excess is that of whole turns.
    assert wrapped - good > 0.5 * 6.2**2


def test_phases_agree_where_nothing_wraps(noisy_validation):
    """Lines whose phases stay away from the cut cost the same either way."""
    safe, principal = noisy_validation
    test = safe.tests[0]
    away = np.abs(np.abs(np.angle(test.measured)) - np.pi) > 0.5
    weight = jnp.asarray(np.where(away, test.weight, 0.0))
    costs = []
    for study in (safe, principal):
        tests = (dataclasses.replace(study.tests[0], weight=weight),)
        costs.append(float(dataclasses.replace(study.problem, tests=tests).cost(jnp.asarray(truth_u(safe)))))
    assert weight.any()
    assert costs[0] == pytest.approx(costs[1], rel=1e-9)


@eqx.filter_jit
def residual_of(problem, u):
    return problem.residual(u)


@eqx.filter_jit
def jacobian_of(problem, u):
    return jax.jacfwd(problem.residual)(u)


@eqx.filter_jit
def gradient_of(problem, u):
    return jax.grad(problem.objective)(u)


def assert_jacobian(problem, u, step=1e-4, reverse=True):
    """Fourth-order central differences, good to some 1e-8 of a column; rounding over the step limits small ones."""
    jacobian = np.asarray(jacobian_of(problem, jnp.asarray(u)))
    residual = np.asarray(residual_of(problem, jnp.asarray(u)))
    rounding = 1e-14 * max(np.abs(residual).max(), 1.0) / step
    for i in range(u.size):
        e = np.zeros(u.size)
        e[i] = step
        r = {k: np.asarray(residual_of(problem, jnp.asarray(u + k * e))) for k in (-2, -1, 1, 2)}
        slope = (8.0 * (r[1] - r[-1]) - (r[2] - r[-2])) / (12.0 * step)
        size = np.abs(slope).max()
        assert size > 0.0
        np.testing.assert_allclose(jacobian[:, i], slope, rtol=0, atol=1e-6 * size + rounding, err_msg=str(i))
    if not reverse:
        return
    # Reverse mode, the other way through the same derivative.
    by_columns = 2.0 * jacobian.T @ residual
    gradient = np.asarray(gradient_of(problem, jnp.asarray(u)))
    np.testing.assert_allclose(gradient, by_columns, rtol=0, atol=1e-9 * np.abs(by_columns).max())


def test_jacobian_of_every_family(crane):
    families = {name.split(".")[0] for name in crane.free.names}
    assert families == {"stiffness", "damping", "mass", "first_moment", "inertia", "rotor_inertia"}
    assert "stiffness.stay" in crane.free.names
    # Only the wrist's zz moment and its centre in its own plane act about its one axis; what lies across acts too, as
    # the wrist is carried around by the lever.
    assert_jacobian(crane.problem, near_truth(crane))


PENDULUM_FREE = {
    "stiffness.*": {"lower": 1e2, "upper": 1e7},
    "inertia.lever.yy": {"lower": 1.0, "upper": 90.0},
    "first_moment.lever.x": {"lower": -30.0, "upper": 30.0},
}


@pytest.fixture(scope="module")
def sagging(tmp_path_factory):
    """The pendulum linearized where it sags to, by about a third of a degree."""
    test = frf_test(posture={"r": 0.3}, outputs=[["tool", "x"], ["tool", "z"]])
    folder = tmp_path_factory.mktemp("sag")
    return crane_study(folder, [test], PENDULUM_FREE, PENDULUM, linearize_at="equilibrium")


def test_jacobian_at_the_equilibrium(sagging):
    assert sagging.problem.scenes == (None,)
    assert_jacobian(sagging.problem, near_truth(sagging), step=1e-5, reverse=False)


def test_equilibrium_is_not_the_posture(sagging):
    """The sag under gravity moves the tangent, so that the two settings cannot be confused."""
    test = sagging.tests[0]
    soft = set_parameters(sagging.model, {"stiffness.r": 1e3})
    at_rest, sagged = (scene(dataclasses.replace(test, at=at), soft).tangent for at in ("posture", "equilibrium"))
    # m g c is about 80 Nm against 1000 Nm/rad: gravity's own stiffness turns with it.
    assert abs(float(at_rest.stiffness[0, 0] - sagged.stiffness[0, 0])) > 1.0


def test_affine_scene_is_the_scene(crane):
    """What is precomputed as an affine function of the values against the scene of the changed model."""
    (linear,) = crane.problem.scenes
    for seed in range(5):
        random = np.random.default_rng(seed)
        low, high = np.array(crane.free.lower_value), np.array(crane.free.upper_value)
        values = jnp.asarray(low + random.uniform(size=low.size) * (high - low))
        direct = scene(crane.tests[0], crane.free.apply(crane.model, values))
        short = linear(values)
        for name in ("mass", "damping", "stiffness"):
            a, b = (np.asarray(getattr(s.tangent, name)) for s in (short, direct))
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max(), err_msg=name)
        np.testing.assert_allclose(short.stiffness, direct.stiffness, rtol=1e-12)
        np.testing.assert_array_equal(short.output_rows, direct.output_rows)


def test_residual_of_the_affine_scene(tmp_path):
    """With and without what is precomputed: the same residuals and the same Jacobian."""
    test = frf_test(posture={"r": 0.3}, outputs=[["tool", "x"], ["tool", "z"]])
    problem = crane_study(tmp_path, [test], PENDULUM_FREE, PENDULUM).problem
    direct = dataclasses.replace(problem, scenes=(None,))
    u = jnp.asarray([np.log(3e4), 0.1, 0.1])
    ours, theirs = (np.asarray(residual_of(p, u)) for p in (problem, direct))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())
    ours, theirs = (np.asarray(jacobian_of(p, u)) for p in (problem, direct))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-11 * np.abs(theirs).max())


MODES = {
    "kind": "modes", "posture": POSTURE, "frequency_hz": [11.0, 16.0], "damping_percent": [2.0, 1.5],
    "frequency_std_hz": 0.05, "damping_std_percent": [0.1, 0.2],
}  # fmt: skip


@pytest.fixture(scope="module")
def modal(tmp_path_factory):
    """Two measured modes of the crane, the second with a content that it does not have enough of."""
    free = {k: v for k, v in FREE.items() if k.startswith(("stiffness", "damping"))}
    test = MODES | {"content": [[], ["r", "w"]], "content_share": 0.99, "content_std": 0.05}
    settings = {"hold": {"stiffness.s": 8e5, "damping.s": 300.0}}
    return crane_study(tmp_path_factory.mktemp("modal"), [test], free, **settings)


def modal_u(study):
    values = {"r": 5e4, "w": 6e3, "stay": 1e5}
    dampings = {"r": 25.0, "w": 2.0, "stay": 40.0}
    named = {f"stiffness.{n}": v for n, v in values.items()} | {f"damping.{n}": v for n, v in dampings.items()}
    return np.asarray(study.free.encode(np.array([named[n] for n in study.free.names])))


def test_modal_residual(modal):
    """Frequencies, damping ratios and missing content over their deviations, of the pairs with the least error."""
    u = modal_u(modal)
    model = modal.free.apply(modal.model, jnp.asarray(modal.free.values(u)))
    tangent = linearize(model, modal.tests[0].q)
    found = modes(tangent)
    f, z = np.asarray(found.damped_frequency_hz), np.asarray(found.damping_ratio)
    share = np.asarray(energy_shares(found.shape, model.stiffness))[1:].sum(axis=0)

    def errors(a, b):
        pair = np.array([a, b])
        missing = max(0.99 - share[b], 0.0) / 0.05
        frequency = (f[pair] - [11.0, 16.0]) / 0.05
        return np.concatenate([frequency, (z[pair] - [0.02, 0.015]) / [0.001, 0.002], [0.0, missing]])

    pairings = [errors(a, b) for a in range(f.size) for b in range(f.size) if a != b]
    best = min(pairings, key=lambda r: r @ r)
    residual = np.asarray(residual_of(modal.problem, jnp.asarray(u)))
    np.testing.assert_allclose(residual, best, rtol=1e-8, atol=1e-8)
    assert residual.size == modal.tests[0].rows == 6
    assert best[-1] > 0.1  # the content counts in this test


def test_jacobian_of_modes(modal):
    """Away from where two pairings cost the same and from where content is just enough."""
    assert_jacobian(modal.problem, modal_u(modal))


def test_content_counts_from_below_only(modal):
    u = jnp.asarray(modal_u(modal))
    tests = (dataclasses.replace(modal.tests[0], content_share=jnp.asarray(1e-3)),)
    residual = np.asarray(residual_of(dataclasses.replace(modal.problem, tests=tests), u))
    np.testing.assert_array_equal(residual[4:], [0.0, 0.0])


def test_tests_count_by_their_noise(tmp_path):
    """FRFs of twice the noise count a quarter; modes by their variance, in units of the first noise."""
    free = {"stiffness.r": {"lower": 1e3, "upper": 1e6}}
    first = frf_test(noise=0.02)
    second = frf_test(noise=0.02) | {"noise_log_std": 0.04}
    study = crane_study(tmp_path, [first, second, MODES], free)
    problem = study.problem
    assert float(problem.noise_unit) == 0.02
    u = jnp.asarray(np.log([4e4]))
    model = problem.free.apply(problem.model, problem.free.values(u))
    a, b, c = (np.asarray(t.residual(scene(t, model))) for t in problem.tests)
    np.testing.assert_allclose(b, a / 2.0, rtol=1e-12)
    expected = 0.02**2 * (a @ a + b @ b + c @ c)
    assert float(problem.cost(u)) == pytest.approx(expected, rel=1e-12)
    rows = np.asarray(problem.row_weights())
    assert rows.size == a.size + b.size + c.size == residual_of(problem, u).size
