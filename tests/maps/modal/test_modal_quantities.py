"""Modal quantities over postures against `modes`, `frf`, closed forms and finite differences."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import brentq

import jaxmb
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from jaxmb.machine.schema import Machine
from jaxmb.maps import MODAL_QUANTITIES, modal_quantities
from jaxmb.maps.modal import FreeModel, free_values, logarithmic
from jaxmb.maps.modal_properties import CHUNK

NAMES = tuple(MODAL_QUANTITIES)


class Vary(eqx.Module):
    """Logarithms of stiffnesses and dampings of all coordinates and springs, and of the masses."""

    model: jaxmb.Model

    def __call__(self, u):
        n, s = len(self.model.coordinates), len(self.model.springs)
        parts = jnp.split(jnp.exp(u), np.cumsum([n, n, s, s]))
        leaves = ("stiffness", "damping", "spring_stiffness", "spring_damping", "mass")
        changed = [getattr(self.model, leaf) * part for leaf, part in zip(leaves, parts, strict=True)]
        return eqx.tree_at(lambda m: [getattr(m, leaf) for leaf in leaves], self.model, changed)

    @property
    def start(self):
        """u of the model itself."""
        return np.zeros(2 * len(self.model.coordinates) + 2 * len(self.model.springs) + len(self.model.masses))


@pytest.fixture(scope="module")
def arm():
    """Two levers and a slide under gravity, with a spring to the ground; damping neither small nor proportional."""
    lever = {"mass": 5.0, "center_of_mass": [0.3, 0.05, 0.02],
             "inertia_products": {"xx": 0.2, "yy": 0.5, "zz": 0.6}}  # fmt: skip
    return jaxmb.build_model(Machine.model_validate({
        "name": "arm",
        "gravity": [0.0, -9.81, 0.0],
        "body": [
            {"name": "a", "joint": [{"name": "p", "stiffness": 4e3, "damping": 9.0},
                                    {"name": "b", "axis": [0.0, 1.0, 0.0], "stiffness": 9e3, "damping": 3.0}]} | lever,
            {"name": "c", "parent": "a", "origin": {"xyz": [0.6, 0.0, 0.0]},
             "joint": [{"name": "r", "stiffness": 2e3, "damping": 4.0}]} | lever,
            {"name": "d", "parent": "c", "origin": {"xyz": [0.5, 0.0, 0.0]}, "mass": 2.0,
             "joint": [{"name": "s", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": 3e4, "damping": 40.0}]},
        ],
        "frame": [{"name": "tool", "body": "d", "origin": {"xyz": [0.2, 0.1, 0.05]}}],
        "spring": [{"name": "strut", "frame_a": "ground", "frame_b": "tool", "type": "translation",
                    "direction": [0.6, 0.8, 0.0], "stiffness": 2e3, "damping": 5.0}],
    }))  # fmt: skip


def postures(model, count, seed=0):
    return np.random.default_rng(seed).uniform(-0.6, 0.6, (count, len(model.coordinates)))


def test_same_as_modes(arm):
    """At more postures than are computed together, and not a multiple of them; the same LAPACK call, so to rounding."""
    rows = postures(arm, CHUNK + 7)
    found = modal_quantities(arm, rows, modes=3)
    for i in (0, 5, CHUNK - 1, CHUNK, CHUNK + 6):
        expected = jaxmb.modes(jaxmb.linearize(arm, rows[i]))
        np.testing.assert_allclose(found.values["frequency"][i], expected.frequency_hz[:3], rtol=1e-9)
        np.testing.assert_allclose(found.values["damping"][i], expected.damping_ratio[:3], rtol=1e-9)
    assert found.gradients == {}


def test_kr90_same_as_modes():
    robot = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    rows = np.tile(np.asarray(robot.reference), (5, 1))
    rows[:, robot.coordinates.index("z2")] = np.radians([20, 50, 70, 90, 120])
    found = modal_quantities(robot, rows, ("frequency", "damping"))
    for q, frequency, damping in zip(rows, found.values["frequency"], found.values["damping"], strict=True):
        expected = jaxmb.modes(jaxmb.linearize(robot, q))
        np.testing.assert_allclose(frequency, expected.frequency_hz[:4], rtol=1e-9)
        np.testing.assert_allclose(damping, expected.damping_ratio[:4], rtol=1e-9)


@pytest.mark.parametrize(
    ("direction", "point"),
    [(None, "posture"), ((1.0, -2.0, 0.5), "posture"), ((1.0, -2.0, 0.5), "equilibrium")],
)
def test_gradients_against_finite_differences(arm, direction, point):
    rows, vary, step = postures(arm, 6), Vary(arm), 1e-5

    def at(u):
        return modal_quantities(vary(jnp.asarray(u)), rows, NAMES, 4, direction=direction, at=point)

    found = modal_quantities(arm, rows, NAMES, 4, direction=direction, vary=vary, u=vary.start, at=point)
    assert found.gradients["damping"].shape == (6, 4, vary.start.size)
    assert found.gradients["dynamic_compliance"].shape == (6, vary.start.size)
    for j, unit in enumerate(np.eye(vary.start.size)):
        above, below = at(step * unit), at(-step * unit)
        for name in NAMES:
            numeric = (above.values[name] - below.values[name]) / (2.0 * step)
            # Central differences err by step^2 / 6 times a third derivative of the order of the value, and by
            # rounding 1e-13 / step of it: 1e-8 either way. Forty times that where modes are close.
            scale = 4e-7 * np.abs(found.values[name])
            assert np.all(np.abs(found.gradients[name][..., j] - numeric) < scale), (name, j)
    # all act but the first lever's mass without its moments, which is on the axis: none is zero by mistake
    largest = np.abs(found.gradients["frequency"]).max(axis=(0, 1))
    assert [j for j, size in enumerate(largest) if size == 0.0] == [10]


@pytest.mark.parametrize("point", ["posture", "equilibrium"])
def test_gradients_by_the_geometry(arm, point):
    """A frame or joint that is elsewhere changes the Jacobian of the tool as well."""
    names, rows, step = ("frame.tool.x", "frame.tool.rz", "origin.r.y"), postures(arm, 3), 1e-5
    vary = FreeModel(arm, free_parameters(arm, [Bound((name,), -1.0, 1.0, None, False) for name in names]))
    start = np.asarray(vary.free.encode(free_values(arm, vary.free)))
    quantities = ("static_compliance", "dynamic_compliance")
    found = modal_quantities(arm, rows, quantities, 4, vary=vary, u=start, at=point)
    for j, unit in enumerate(np.eye(len(names))):
        above, below = (
            modal_quantities(vary(jnp.asarray(start + side * unit)), rows, quantities, 4, at=point).values
            for side in (step, -step)
        )
        for name in quantities:
            numeric = (above[name] - below[name]) / (2.0 * step)
            np.testing.assert_allclose(
                found.gradients[name][:, j], numeric, atol=1e-7 * found.values[name].max(), err_msg=f"{name} {j}"
            )


def test_static_compliance_in_closed_form(arm):
    rows = postures(arm, 4)
    along = np.array([1.0, -2.0, 0.5]) / np.linalg.norm([1.0, -2.0, 0.5])
    directed = modal_quantities(arm, rows, ["static_compliance"], direction=3.0 * along).values["static_compliance"]
    worst = modal_quantities(arm, rows, ["static_compliance"]).values["static_compliance"]
    for q, one, most in zip(rows, directed, worst, strict=True):
        jacobian = np.asarray(jaxmb.frame_jacobian(arm, q, "tool"))[:3]
        matrix = jacobian @ np.linalg.inv(np.asarray(jaxmb.linearize(arm, q).stiffness)) @ jacobian.T
        assert one == pytest.approx(along @ matrix @ along, rel=1e-11)
        assert most == pytest.approx(np.linalg.eigvalsh(matrix)[-1], rel=1e-11)


@pytest.mark.parametrize("direction", [None, (0.0, 1.0, 0.0)])
def test_dynamic_compliance_is_the_peak_of_the_receptance(arm, direction):
    rows = postures(arm, 5, seed=3)
    found = modal_quantities(arm, rows, ["dynamic_compliance", "frequency", "damping"], direction=direction)
    half_width_hz = (found.values["frequency"] * found.values["damping"]).min(axis=1)
    frequency_hz = np.linspace(0.0, 60.0, 6001)
    for q, value, peak_hz, half in zip(
        rows, found.values["dynamic_compliance"], found.peak_hz, half_width_hz, strict=True
    ):
        # FRFs are in the frame's own axes
        turn = np.asarray(jaxmb.frame_pose(arm, q, "tool"))[:3, :3]
        h = turn @ np.asarray(jaxmb.frf(arm, q, frequency_hz, kind="receptance")) @ turn.T
        size = np.linalg.svd(h, compute_uv=False)[:, 0] if direction is None else np.abs(h[:, 1, 1])
        # A line of the grid is at most 0.005 Hz from the peak, which falls by half the square of half widths.
        assert size.max() <= value * (1.0 + 1e-12)
        assert value == pytest.approx(size.max(), rel=0.5 * (0.005 / half) ** 2)
        assert peak_hz == pytest.approx(frequency_hz[np.argmax(size)], abs=0.02)


def test_a_band_bounds_the_peak(arm):
    rows = postures(arm, 3)
    whole = modal_quantities(arm, rows, ["dynamic_compliance", "frequency"])
    low, high = 1.2 * whole.peak_hz.max(), 3.0 * whole.values["frequency"].max()
    found = modal_quantities(arm, rows, ["dynamic_compliance"], band_hz=(low, high))
    assert np.all((found.peak_hz >= low) & (found.peak_hz <= high))
    assert np.all(found.values["dynamic_compliance"] < whole.values["dynamic_compliance"])
    at_rest = modal_quantities(arm, rows, ["static_compliance", "dynamic_compliance"], band_hz=(0.0, 1e-6)).values
    np.testing.assert_allclose(at_rest["dynamic_compliance"], at_rest["static_compliance"], rtol=1e-10)


def oscillator(damping, stiffness=400.0, **more):
    along = {"name": "x", "type": "prismatic", "axis": [1.0, 0.0, 0.0], "stiffness": stiffness, "damping": damping}
    joints = [
        along | more,
        {"name": "y", "type": "prismatic", "axis": [0.0, 1.0, 0.0], "stiffness": 900.0, "damping": 2.0},
    ]
    return jaxmb.build_model(Machine.model_validate({
        "name": "oscillator", "gravity": [0.0, 0.0, 0.0],
        "body": [{"name": "mass", "mass": 1.0, "joint": joints}],
        "frame": [{"name": "tool", "body": "mass"}],
    }))  # fmt: skip


def test_closed_forms_of_one_mass():
    """omega_0 = 20 and 30 rad/s, zeta = c / (2 sqrt(k m)), peak 1 / (2 k zeta sqrt(1 - zeta^2))."""
    model, zeta = oscillator(4.0), 4.0 / 40.0
    found = modal_quantities(model, np.zeros((1, 2)), NAMES, 2, direction=(1, 0, 0), vary=Vary(model),
                             u=Vary(model).start)  # fmt: skip
    np.testing.assert_allclose(found.values["frequency"][0], np.array([20.0, 30.0]) / (2 * np.pi), rtol=1e-12)
    np.testing.assert_allclose(found.values["damping"][0], [zeta, 2.0 / 60.0], rtol=1e-12)
    peak = 1.0 / (2.0 * 400.0 * zeta * np.sqrt(1.0 - zeta**2))
    assert found.values["dynamic_compliance"][0] == pytest.approx(peak, rel=1e-12)
    assert found.peak_hz[0] == pytest.approx(20.0 * np.sqrt(1.0 - 2.0 * zeta**2) / (2 * np.pi), rel=1e-6)
    # by log k, log c, log m (the mass alone, it has no moments): f as k^1/2 m^-1/2, zeta as c (k m)^-1/2
    at = [0, 2, 4]
    np.testing.assert_allclose(
        found.gradients["frequency"][0, 0, at], np.array([0.5, 0.0, -0.5]) * 10.0 / np.pi, atol=1e-12
    )
    np.testing.assert_allclose(found.gradients["damping"][0, 0, at], zeta * np.array([-0.5, 1.0, -0.5]), atol=1e-12)
    assert found.gradients["static_compliance"][0, 0] == pytest.approx(-1.0 / 400.0, rel=1e-12)


def test_closed_forms_of_structural_damping():
    """lambda^2 = -omega^2 (1 + j eta): zeta = sin(atan(eta) / 2), and 1 / (k eta) is the peak, at omega."""
    model, eta = oscillator(0.0, loss_factor=0.2), 0.2
    free = logarithmic(model, ["stiffness.x", "loss_factor.x"])
    found = modal_quantities(model, np.zeros((1, 2)), NAMES, 2, direction=(1, 0, 0), vary=FreeModel(model, free),
                             u=np.log([400.0, eta]))  # fmt: skip
    raised = (1.0 + eta**2) ** 0.25
    assert found.values["frequency"][0, 0] == pytest.approx(10.0 / np.pi * raised, rel=1e-12)
    assert found.values["damping"][0, 0] == pytest.approx(np.sin(0.5 * np.arctan(eta)), rel=1e-12)
    assert found.values["dynamic_compliance"][0] == pytest.approx(1.0 / (400.0 * eta), rel=1e-12)
    assert found.peak_hz[0] == pytest.approx(10.0 / np.pi, rel=1e-6)
    assert found.values["static_compliance"][0] == pytest.approx(1.0 / 400.0, rel=1e-12)
    # by log k and log eta
    slopes = 10.0 / np.pi * raised * np.array([0.5, 0.5 * eta**2 / (1.0 + eta**2)])
    np.testing.assert_allclose(found.gradients["frequency"][0, 0], slopes, rtol=1e-10)
    slope = 0.5 * np.cos(0.5 * np.arctan(eta)) * eta / (1.0 + eta**2)
    np.testing.assert_allclose(found.gradients["damping"][0, 0], [0.0, slope], atol=1e-12)
    np.testing.assert_allclose(found.gradients["dynamic_compliance"][0], [-1.0 / 80.0, -1.0 / 80.0], rtol=1e-6)
    np.testing.assert_allclose(found.gradients["static_compliance"][0], [-1.0 / 400.0, 0.0], atol=1e-15)


def test_fractional_damping_is_refused():
    data = {"name": "x", "fractional": {"order": 0.5, "time": 1e-3},
            "body": [{"name": "m", "mass": 1.0, "joint": [{"name": "x", "type": "prismatic", "stiffness": 1.0}]}],
            "frame": [{"name": "tool", "body": "m"}]}  # fmt: skip
    with pytest.raises(NotImplementedError, match="'x' has fractional damping"):
        modal_quantities(jaxmb.build_model(Machine.model_validate(data)), np.zeros((1, 1)))


def test_what_does_not_oscillate_is_no_mode():
    """c > 2 sqrt(k m): one mode less, and what there is moves up."""
    found = modal_quantities(oscillator(50.0), np.zeros((2, 2)), modes=2)
    np.testing.assert_allclose(found.values["frequency"], [[30.0 / (2 * np.pi), np.nan]] * 2)
    assert np.isnan(found.values["damping"][:, 1]).all()


def test_critical_damping_has_no_derivative():
    model = oscillator(40.0 * (1.0 - 1e-13))
    found = modal_quantities(model, np.zeros((1, 2)), modes=2, vary=Vary(model), u=Vary(model).start)
    slopes = found.gradients["frequency"][0]
    # whichever side rounding takes it to, the other mode is not harmed
    good = np.isfinite(slopes).all(axis=1)
    assert good.sum() == 1
    assert found.values["frequency"][0][good] == pytest.approx(30.0 / (2 * np.pi))


def test_a_machine_that_does_not_hold_itself():
    """Nothing holds x: no compliance. The mode along y is there."""
    found = modal_quantities(oscillator(4.0, 0.0), np.zeros((1, 2)), NAMES, 1)
    assert np.isnan(found.values["static_compliance"]).all()
    assert np.isnan(found.values["dynamic_compliance"]).all()
    assert np.isnan(found.peak_hz).all()


def test_every_mass_matrix_is_checked():
    """A point mass on two massless links: stretched out, no motion along them moves it; bent, every motion does."""
    link = {"joint": [{"name": "p", "stiffness": 4e3, "damping": 9.0}]}
    model = jaxmb.build_model(Machine.model_validate({
        "name": "links",
        "gravity": [0.0, 0.0, 0.0],
        "body": [{"name": "a"} | link,
                 {"name": "b", "parent": "a", "origin": {"xyz": [1.0, 0.0, 0.0]}, "mass": 2.0,
                  "center_of_mass": [0.5, 0.0, 0.0],
                  "joint": [{"name": "r", "stiffness": 2e3, "damping": 4.0}]}],
        "frame": [{"name": "tool", "body": "b", "origin": {"xyz": [0.5, 0.0, 0.0]}}],
    }))  # fmt: skip
    rows = np.array([[0.0, 0.7], [0.0, 1.0], [0.2, 0.0], [0.0, 0.5]])
    assert np.all(modal_quantities(model, rows[:2], modes=1).values["frequency"] > 0.0)
    with pytest.raises(ValueError, match=r"posture p = 0.2, r = 0: the mass matrix is singular: .* coordinate '[pr]'"):
        modal_quantities(model, rows, modes=1)
    # the static compliance needs no mass
    assert np.all(modal_quantities(model, rows, ["static_compliance"]).values["static_compliance"] > 0.0)


def test_wrong_arguments(arm):
    rows = postures(arm, 2)
    for arguments, sentence in [
        ({"quantities": ()}, "quantities: found none"),
        ({"quantities": ["frequencies"]}, "did you mean 'frequency'"),
        ({"modes": 0}, "modes: 0, expected 1 to 4"),
        ({"frame": "tol"}, "frame 'tol'"),
        ({"quantities": ["static_compliance"], "frame": "ground"}, "frame .ground. does not move"),
        ({"direction": (0, 0, 0)}, "direction: "),
        ({"band_hz": (2.0, 1.0)}, "band_hz is 2 to 1 Hz"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            modal_quantities(arm, rows, **arguments)
    with pytest.raises(ValueError, match="postures have shape"):
        modal_quantities(arm, rows[:, :2])
    massless = eqx.tree_at(lambda m: (m.mass, m.first_moment, m.inertia), arm, replace_fn=jnp.zeros_like)
    with pytest.raises(ValueError, match="mass matrix is singular"):
        modal_quantities(massless, rows)


def test_a_lever_that_sags_in_closed_form():
    """A lever on a spring at angle q0: k (a - q0) = m g c cos a, K = k + m g c sin a, J = -L cos a downwards."""
    k, mass, arm_m, tool, inertia, g = 90.0, 4.0, 0.7, 1.1, 0.3, 9.81
    model = jaxmb.build_model(Machine.model_validate({
        "name": "lever", "body": [{"name": "lever", "mass": mass, "center_of_mass": [arm_m, 0.0, 0.0],
                                   "inertia_products": {"xx": 0.1, "yy": inertia, "zz": inertia},
                                   "joint": [{"name": "a", "axis": [0.0, 1.0, 0.0], "stiffness": k, "damping": 0.1}]}],
        "frame": [{"name": "tool", "body": "lever", "origin": {"xyz": [tool, 0.0, 0.0]}}],
    }))  # fmt: skip
    rest = np.array([-0.5, 0.2, 0.9])
    moment = mass * g * arm_m
    angle = np.array([brentq(lambda a, q=q: k * (a - q) - moment * np.cos(a), q - 1.0, q + 1.0) for q in rest])
    stiffness = k + moment * np.sin(angle)
    total = inertia + mass * arm_m**2
    turns = -k * (angle - rest) / stiffness  # d angle / d ln k
    softer = k + moment * np.cos(angle) * turns
    free = logarithmic(model, ["stiffness.a"])
    found = modal_quantities(
        model, rest[:, None], ("frequency", "static_compliance"), 1, direction=(0.0, 0.0, 1.0),
        vary=FreeModel(model, free), u=np.log([k]), at="equilibrium",
    )  # fmt: skip
    frequency, compliance = np.sqrt(stiffness / total) / (2 * np.pi), (tool * np.cos(angle)) ** 2 / stiffness
    np.testing.assert_allclose(found.values["frequency"][:, 0], frequency, rtol=1e-9)
    np.testing.assert_allclose(found.values["static_compliance"], compliance, rtol=1e-9)
    np.testing.assert_allclose(found.gradients["frequency"][:, 0, 0], 0.5 * frequency * softer / stiffness, rtol=1e-8)
    slope = compliance * (-2.0 * np.tan(angle) * turns - softer / stiffness)
    np.testing.assert_allclose(found.gradients["static_compliance"][:, 0], slope, rtol=1e-8)
    here = modal_quantities(model, rest[:, None], ("frequency",), 1).values["frequency"]
    assert np.all(np.abs(found.values["frequency"] / here - 1.0) > 0.01)


def test_what_finds_no_equilibrium_is_not_there():
    """A lever without a spring falls wherever it does not hang; the others are as ever."""
    model = jaxmb.build_model(Machine.model_validate({
        "name": "loose", "body": [{"name": "lever", "mass": 4.0, "center_of_mass": [0.7, 0.0, 0.0],
                                   "inertia_products": {"xx": 0.1, "yy": 0.1, "zz": 0.1},
                                   "joint": [{"name": "turn"}, {"name": "s", "type": "prismatic", "stiffness": 0.0}]}],
        "frame": [{"name": "tool", "body": "lever", "origin": {"xyz": [1.0, 0.0, 0.0]}}],
    }))  # fmt: skip
    found = modal_quantities(model, np.zeros((2, 2)), ("frequency", "static_compliance"), 1, at="equilibrium")
    assert np.isnan(found.values["frequency"]).all()
    assert np.isnan(found.values["static_compliance"]).all()
