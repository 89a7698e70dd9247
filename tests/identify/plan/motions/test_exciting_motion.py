"""Exciting motions: within limits at all times, from rest to rest, and what is predicted of them."""

import numpy as np
import pytest

import jaxmb
from jaxmb.identify.plan import exciting_motion
from jaxmb.identify.plan.exciting_motion import Found
from jaxmb.identify.plan.motion_information import FINE, Limits, at_limits, limits_of, random_choice, series_of, within
from tests.identify.experiments.torque.test_torque_recovery import ARM

LIMITS = {"a": {"range": [-1.0, 2.0], "speed": 3.0, "acceleration": 20.0},
          "b": {"range": ["-90 deg", "60 deg"], "speed": 4.0, "acceleration": 15.0}}  # fmt: skip
FREE = ["inertia.*", "first_moment.*", "mass.*", "damping.*", "friction.*", "offset.*"]
HOW = {"base_hz": 0.2, "harmonics": 4, "limits": LIMITS, "torque_std": 0.1, "rate_hz": 100.0, "starts": 1, "steps": 40}


@pytest.fixture(scope="module")
def found():
    return jaxmb.exciting_motion(ARM, FREE, **HOW)


@pytest.fixture(scope="module")
def random():
    return jaxmb.exciting_motion(ARM, FREE, **HOW | {"steps": 0})


def test_limits_of_a_coupled_coordinate_bound_the_one_that_it_follows():
    joints = {"a": {"range": (-2.0, 2.0), "speed_limit": 2.0}, "b": {"range": (-0.1, 0.3), "speed_limit": 0.3}}
    joints["b"]["acceleration_limit"] = 5.0
    body = [{"name": f"{name}-body", "mass": 1.0, "joint": [{"name": name} | keys]} for name, keys in joints.items()]
    coupling = [{"coordinate": "b", "follows": "a", "ratio": -0.5, "offset": 0.1}]
    machine = jaxmb.Machine.model_validate({"name": "gripper", "body": body, "coupling": coupling})
    np.testing.assert_allclose(np.ravel(limits_of(machine, ["a"], {})), [-0.4, 0.4, 0.6, 10.0], rtol=1e-12)


def test_limits_are_kept_at_all_times_and_used():
    """On a grid forty times as fine as that on which the motions were brought to their limits."""
    limits = Limits(*(np.array(part) for part in ([-1.0, -np.inf], [2.0, np.inf], [3.0, 4.0], [20.0, np.inf])))
    around = np.array([0.5, 0.3])
    fine, finer = (series_of(4, 0.2, limits, around, n) for n in (FINE, 40 * FINE))
    draw = np.random.default_rng(0)
    for _ in range(50):
        choice = random_choice(fine, draw)
        for c, start in (at_limits(fine, choice[:, :-1], choice[:, -1]), map(np.asarray, within(fine, choice))):
            position = start[:, None] + c @ finer.position.T
            speed, acceleration = (np.abs(c @ part.T).max(axis=1) for part in (finer.velocity, finer.acceleration))
            assert np.all(position.min(axis=1) >= limits.lower)
            assert np.all(position.max(axis=1) <= limits.upper)
            assert np.all(speed <= limits.speed)
            assert np.all(acceleration <= limits.acceleration)
        c, _ = at_limits(fine, choice[:, :-1], choice[:, -1])
        used = [np.ptp(c[0] @ finer.position.T) / 3.0, np.abs(c[0] @ finer.velocity.T).max() / 3.0,
                np.abs(c[0] @ finer.acceleration.T).max() / 20.0]  # fmt: skip
        assert max(used) == pytest.approx(1.0, abs=0.005)


def test_from_rest_to_rest(found):
    z, zd, zdd = found.states([0.0, found.duration_s])
    np.testing.assert_allclose(z[0], z[1], atol=1e-12)
    np.testing.assert_allclose(zd, 0.0, atol=1e-12)
    np.testing.assert_allclose(zdd, 0.0, atol=1e-12)


def test_rates_are_derivatives(found):
    at, step = np.linspace(0.1, 4.9, 7), 1e-5
    z, zd, zdd = (np.stack(part) for part in zip(*(found.states(at + k * step) for k in (-1, 0, 1)), strict=True))
    np.testing.assert_allclose((z[2] - z[0]) / (2 * step), zd[1], rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose((zd[2] - zd[0]) / (2 * step), zdd[1], rtol=1e-6, atol=1e-7)


def test_deviations_are_those_of_least_squares(found):
    """(W^T W)^-1 of a regressor that is set up here, sample by sample, of the base parameters' own columns."""
    model = jaxmb.build_model(ARM)
    rows = 500
    states = found.states(np.arange(rows) * found.duration_s / rows)
    Y = np.asarray(jaxmb.stacked_torque_regressor(model, *states)) / 0.1
    names = jaxmb.regressor_names(model)
    W = Y[:, :, [names.index(row.name) for row in found.base]].reshape(2 * rows, -1)
    expected = np.sqrt(np.diag(np.linalg.inv(W.T @ W)))
    # friction's sign changes between samples, which fall elsewhere on another grid
    np.testing.assert_allclose([row.std for row in found.base], expected, rtol=0.02)
    assert found.condition_number == pytest.approx(np.linalg.cond(W / np.linalg.norm(W, axis=0)), rel=0.02)
    assert found.std["mass.fore"] == np.inf
    assert found.std["friction.b"] == next(row.std for row in found.base if row.name == "friction.b")


def test_improved_motions_tell_more(found, random):
    assert found.criterion < random.criterion - 1.0
    by_condition = jaxmb.exciting_motion(ARM, FREE, **HOW | {"criterion": "condition"})
    assert by_condition.condition_number < min(found.condition_number, random.condition_number)
    assert by_condition.criterion == pytest.approx(np.log(by_condition.condition_number))
    wanted = jaxmb.exciting_motion(ARM, FREE, **HOW, wanted={"friction.*": 0.01})
    of_friction = [np.hypot(*(motion.std[f"friction.{name}"] for name in "ab")) for motion in (wanted, found)]
    assert of_friction[0] < of_friction[1]
    assert wanted.criterion == pytest.approx(2.0 * np.log(of_friction[0] / 0.01))


def test_a_motion_with_a_singular_information_matrix_is_not_chosen(monkeypatch):
    criteria = iter([np.nan, 1.0, 2.0])
    monkeypatch.setattr(
        exciting_motion, "improved", lambda _, __, fine, x, ___: Found(x[:, :-1], x[:, -1], next(criteria))
    )
    assert jaxmb.exciting_motion(ARM, FREE, **HOW | {"starts": 3}).criterion == 1.0


def test_payload_in_one_run_and_not_in_the_other():
    """Its mass is told by two runs, and by neither alone."""
    data = ARM.model_dump(exclude_unset=True)
    data["payload"] = [{"name": "load", "frame": "fore", "mass": 1.0, "center_of_mass": [0.4, 0.0, 0.0]}]
    machine = jaxmb.Machine.model_validate(data)
    free = [*FREE, "mass.load", "first_moment.load.x"]
    how = HOW | {"steps": 0}
    both = jaxmb.exciting_motion(machine, free, **how, without=[[], ["load"]])
    assert np.isfinite(both.std["first_moment.load.x"])
    assert jaxmb.exciting_motion(machine, free, **how).std["first_moment.load.x"] == np.inf


def test_closed_chain():
    machine = jaxmb.load_machine("slider-crank")
    limits = {"q1": {"speed": 12.0, "acceleration": 100.0}}
    how = {"base_hz": 0.5, "limits": limits, "starts": 1, "torque_std": 0.01}
    random, best = (jaxmb.exciting_motion(machine, **how, steps=steps) for steps in (0, 40))
    assert len(best.base) == 6
    assert best.criterion < random.criterion - 1.0


@pytest.mark.parametrize(
    ("free", "changes", "sentence"),
    [
        (FREE, {"limits": {}}, "'a' has no speed limit, expected one in the machine or in limits"),
        (FREE, {"limits": {"c": {"speed": 1.0}}}, "limits: coordinate 'c'"),
        (FREE, {"limits": {"a": {"range": [-185, 185]}}}, "limits of a: range is -185 rad, expected at most two turns"),
        (FREE, {"wanted": {"mass.fore": 0.1}}, "wanted: 'mass.fore' is identifiable only in combination"),
        (FREE, {"wanted": {"mass.hand": 0.1}}, "wanted: free parameter 'mass.hand'"),
        (FREE, {"without": [["load"]]}, "without: payload 'load'"),
        (FREE, {"wanted": {"friction.a": 0.1}, "criterion": "condition"}, "both wanted and the criterion"),
        (FREE, {"harmonics": 1}, "harmonics"),
        (FREE, {"torque_std": {"c": 1.0}}, "torque_std: coordinate 'c'"),
        (FREE, {"torque_std": {"a": 1.0}, "criterion": "condition"}, "no motion of 1 starts determines all parameters"),
        (["weight.*"], {}, "weight"),
    ],
)
def test_wrong_settings(free, changes, sentence):
    with pytest.raises(ValueError, match=sentence):
        jaxmb.exciting_motion(ARM, free, **HOW | {"steps": 0} | changes)


def test_loop_that_cannot_follow():
    """The crank's far end beyond its range is out of reach of a coupler that is too short."""
    data = jaxmb.load_machine("slider-crank").model_dump(exclude_unset=True)
    data["independent"] = ["q3"]
    with pytest.raises(ValueError, match="opens"):
        jaxmb.exciting_motion(
            jaxmb.Machine.model_validate(data), limits={"q3": {"speed": 3.0}}, base_hz=0.5, steps=0, starts=1
        )


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"torque_std": 0.0}, "torque_std of '.*' is 0.0, expected a number above 0"),
        ({"torque_std": {}}, "torque_std is empty"),
        ({"rate_hz": -5.0}, "rate_hz is -5.0, expected a number above 0"),
    ],
)
def test_wrong_noise(settings, told):
    with pytest.raises(ValueError, match=told):
        jaxmb.exciting_motion(jaxmb.load_machine("slider-crank"), **settings)


def test_motors_turn_with_their_joints():
    """A pendulum behind a gear: deviations of least squares over its drive's torque in closed form. The brake, which
    torque tests release, has no effect."""
    joint = {"name": "q", "stiffness": 1.2e4, "damping": 12.0, "speed_limit": 3.0, "range": [-1.0, 1.0],
             "motor": {"inertia": 8e-4, "ratio": -80.0, "damping": 2e-3, "friction": 0.01, "locked": True}}  # fmt: skip
    bob = {"name": "bob", "mass": 12.0, "center_of_mass": [0.4, 0.0, 0.0], "joint": [joint],
           "inertia_products": {"xx": 1.0, "yy": 1.0, "zz": 1.5}}  # fmt: skip
    machine = jaxmb.Machine.model_validate({"name": "pendulum", "gravity": [0.0, -9.81, 0.0], "body": [bob]})
    found = jaxmb.exciting_motion(machine, torque_std=0.1, starts=1, steps=0)
    assert list(found.motion) == ["q"]
    q, rate, acceleration = (part[:, 0] for part in found.states(np.arange(1000) / 1000 * found.duration_s))
    sign = np.sign(-80.0 * rate)
    W = np.stack([acceleration, 9.81 * np.cos(q), -9.81 * np.sin(q), 6400.0 * rate, -80.0 * sign], axis=1) / 0.1
    expected = np.sqrt(np.diag(np.linalg.inv(W.T @ W)))[1:]
    names = ["first_moment.bob.x", "first_moment.bob.y", "damping.q_motor", "friction.q_motor"]
    np.testing.assert_allclose([found.std[name] for name in names], expected, rtol=0.02)
    assert all(found.std[name] == np.inf for name in ("stiffness.q", "rotor_inertia.q_motor", "inertia.bob.zz"))
