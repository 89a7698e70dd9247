"""Placement of a task against brute force with the closed-form inverse kinematics of the KR240."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.machine.schema import Machine
from jaxmb.maps import ToolPath, place_task, placed_path
from jaxmb.maps.placement import REASONS
from jaxmb.mechanics.postures import inverse_kinematics, inverse_kinematics_path

LIMITS_DEG = {"q1": (-185, 185), "q2": (0, 146), "q3": (-245, 29), "q4": (-350, 350), "q5": (-125, 125),
              "q6": (-350, 350)}  # fmt: skip
LIMITS = {name: tuple(np.radians(pair)) for name, pair in LIMITS_DEG.items()}
# A spindle across the flange, so that its turn about its own axis moves the arm: pose in the flange's frame.
SPINDLE = np.array([[0.0, 0.0, 1.0, 0.25], [0.0, 1.0, 0.0, 0.0], [-1.0, 0.0, 0.0, 0.15], [0.0, 0.0, 0.0, 1.0]])


@pytest.fixture(scope="module")
def robot():
    data = jaxmb.load_machine("kuka-kr240").model_dump()
    spindle = {"name": "spindle", "body": "q6", "origin": {"xyz": SPINDLE[:3, 3].tolist(), "rpy": [0, np.pi / 2, 0]}}
    return jaxmb.build_model(Machine.model_validate(data | {"frame": [*data["frame"], spindle]}))


@pytest.fixture(scope="module")
def milling():
    """A line of 0.5 m with the spindle pointing down, pushed back, up and sideways."""
    poses = np.tile(np.diag([1.0, -1.0, -1.0, 1.0]), (5, 1, 1))
    poses[:, 1, 3] = np.linspace(-0.25, 0.25, 5)
    return ToolPath(poses, np.tile([-300.0, 250.0, 400.0, 0.0, 0.0, 0.0], (5, 1)))


def arm_pose(q):
    """T_03 and the wrist of the modified DH table of the machine file."""
    c1, s1, c, s = np.cos(q[0]), np.sin(q[0]), np.cos(q[1] + q[2]), np.sin(q[1] + q[2])
    out = np.array([c1, s1, 0.0])
    across = np.array([s1, -c1, 0.0])
    x, y = c * out + s * np.array([0, 0, 1.0]), -s * out + c * np.array([0, 0, 1.0])
    return np.column_stack([x, y, across])


def closed_form(flange):
    """The eight solutions for a pose of frame q6, angles within half a turn of the limits' middles, NaN for none."""
    found = []
    wrist = flange[:3, 3]
    forearm, offset = np.hypot(0.055, 1.1), np.arctan2(1.1, -0.055)
    for front in (1.0, -1.0):
        q1 = np.arctan2(front * wrist[1], front * wrist[0])
        reach, height = front * np.hypot(wrist[0], wrist[1]) - 0.35, wrist[2] - 0.75
        cosine = (reach**2 + height**2 - 1.25**2 - forearm**2) / (2 * 1.25 * forearm)
        if abs(cosine) > 1.0:
            cosine = np.nan
        for bend in (np.arccos(cosine), -np.arccos(cosine)):
            q2 = np.arctan2(height, reach) - np.arctan2(forearm * np.sin(bend), 1.25 + forearm * np.cos(bend))
            arm = [q1, q2, bend - offset]
            turn = arm_pose(arm).T @ flange[:3, :3]
            for s5 in (1.0, -1.0):
                s5 = s5 * np.sqrt(max(1.0 - turn[1, 2] ** 2, 0.0))
                q4, q5 = np.arctan2(turn[2, 2] / s5, -turn[0, 2] / s5), np.arctan2(s5, turn[1, 2])
                found.append([*arm, q4, q5, np.arctan2(-turn[1, 1] / s5, turn[1, 0] / s5)])
    middle = np.array([sum(pair) / 2 for pair in LIMITS.values()])
    return [middle + np.remainder(np.array(q) - middle + np.pi, 2 * np.pi) - np.pi for q in found]


def is_within(q):
    return all(low <= x <= high for x, (low, high) in zip(q, LIMITS.values(), strict=True))


def least_deflection(robot, deflect, poses, wrenches):
    """Least of the largest deflections along a path by the closed form; branches keep their number along it."""
    flanges = poses @ np.linalg.inv(SPINDLE)
    branches = [closed_form(flange) for flange in flanges]
    best = np.inf
    for number in range(8):
        path = np.array([b[number] for b in branches])
        turned = np.unwrap(path, axis=0)
        if all(is_within(q) for q in turned):
            best = min(best, float(np.max(deflect(jnp.asarray(turned), jnp.asarray(wrenches)))))
    return best


@pytest.fixture(scope="module")
def deflect(robot):
    one = lambda q, w: jnp.linalg.norm(jaxmb.deflection(robot, q, "spindle", w)[0, :3])  # noqa: E731
    return jax.jit(jax.vmap(one))


def test_inverse_kinematics_finds_the_closed_form(robot):
    rng = np.random.default_rng(5)
    low, high = np.array(list(LIMITS.values())).T
    solve = jax.jit(jax.vmap(lambda pose, start: inverse_kinematics(robot, pose, "spindle", start), (None, 0)))
    starts = jnp.asarray(rng.uniform(low, high, (64, 6)))
    for _ in range(5):
        wanted = jaxmb.frame_pose(robot, jnp.asarray(rng.uniform(low, high)), "spindle")
        q, distance = (np.asarray(x) for x in solve(wanted, starts))
        reached = q[distance < 1e-9]
        # one start in ten ends at a place where no step leads nearer
        assert len(reached) > 32
        known = np.array(closed_form(np.asarray(wanted) @ np.linalg.inv(SPINDLE)))
        known = known[~np.isnan(known[:, 0] + known[:, 2])]
        apart = np.remainder(reached[:, None] - known[None] + np.pi, 2 * np.pi) - np.pi
        assert np.abs(apart).max(axis=2).min(axis=1).max() < 1e-7  # each is one of the closed form's
        assert np.abs(apart).max(axis=2).min(axis=0).max() < 1e-7  # and each of those is found
        np.testing.assert_allclose(jaxmb.frame_pose(robot, jnp.asarray(reached[0]), "spindle"), wanted, atol=1e-9)


def test_inverse_kinematics_says_what_it_did_not_reach(robot):
    far = jnp.eye(4).at[0, 3].set(9.0)
    q, distance = inverse_kinematics(robot, far, "spindle", robot.reference)
    assert np.all(np.isfinite(q))
    place = np.asarray(jaxmb.frame_pose(robot, q, "spindle"))[:3, 3]
    assert float(distance) >= np.linalg.norm(place - np.array([9.0, 0, 0])) - 1e-12
    # a half turn away the rotation vector is at its end, and is not taken for nothing
    here = jaxmb.frame_pose(robot, robot.reference, "spindle")
    turned = here @ jnp.diag(jnp.array([-1.0, -1.0, 1.0, 1.0]))
    _, apart = inverse_kinematics(robot, turned, "spindle", robot.reference, steps=0)
    assert float(apart) == pytest.approx(np.pi, rel=1e-6)
    held = inverse_kinematics(robot, here, "spindle", robot.reference + 0.1, joints=("q2", "q3"))[0]
    assert np.all(np.asarray(held != robot.reference + 0.1) == [False, True, True, False, False, False])


def test_a_path_keeps_its_branch(robot, milling):
    poses, _ = placed_path(milling, {"x": 1.5, "z": 0.8})
    for start in closed_form(poses[0] @ np.linalg.inv(SPINDLE)):
        if np.isnan(start[2]):
            continue
        path, distance = inverse_kinematics_path(robot, jnp.asarray(poses), "spindle", jnp.asarray(start))
        assert np.max(distance) < 1e-9
        assert np.abs(np.diff(path, axis=0)).max() < 0.5
        for q, pose in zip(path, poses, strict=True):
            np.testing.assert_allclose(jaxmb.frame_pose(robot, q, "spindle"), pose, atol=1e-9)


@pytest.fixture(scope="module")
def result(robot, milling):
    search = {"x": np.linspace(1.0, 2.0, 5), "z": 0.7, "spin": np.radians(np.arange(-180, 180, 45))}
    return place_task(robot, milling, search, LIMITS, "spindle")


def test_against_brute_force(robot, milling, result, deflect):
    # The same costs on the coarse grid: every branch was found there.
    values = list(itertools.product(result.grid["x"], result.grid["spin"]))
    coarse = [least_deflection(robot, deflect, *placed_path(milling, {"x": x, "z": 0.7, "spin": s})) for x, s in values]
    cost = result.cost.ravel()
    both = np.isfinite(cost)
    assert both.mean() > 0.5
    # singular paths are left out here and not in the closed form; otherwise they are the same to rounding
    assert np.all(cost[both] >= np.array(coarse)[both] * (1 - 1e-9))
    assert np.mean(np.abs(cost[both] / np.array(coarse)[both] - 1.0) < 1e-9) > 0.9
    # A fine grid finds nothing better than what was refined, but for what lies between its own lines.
    fine = [
        least_deflection(robot, deflect, *placed_path(milling, {"x": x, "z": 0.7, "spin": s}))
        for x in np.linspace(1.0, 2.0, 21)
        for s in np.radians(np.arange(-180, 180, 7.5))
    ]
    assert result.best.cost <= min(fine) * (1 + 1e-6)
    assert result.best.cost > 0.9 * min(fine)


def test_the_result_is_what_it_says(robot, milling, result, deflect):
    best, naive = result.best, result.naive
    poses, wrenches = placed_path(milling, best.place)
    for q, pose in zip(best.joint_path, poses, strict=True):
        np.testing.assert_allclose(jaxmb.frame_pose(robot, jnp.asarray(q), "spindle"), pose, atol=1e-8)
        assert is_within(q)
    np.testing.assert_allclose(best.deflection, deflect(jnp.asarray(best.joint_path), jnp.asarray(wrenches)), rtol=1e-9)
    assert best.cost == np.max(best.deflection)
    assert best.cost <= result.cost.min()
    assert best.possible
    assert naive.possible
    assert naive.place["x"] == 1.5
    assert best.cost < naive.cost
    assert np.all(best.dexterity > 0.05)
    assert result.evaluations > result.cost.size == 40
    assert result.cost.shape == (5, 1, 1, 1, 8)


def test_yaw_turns_the_loads_and_spin_does_not(milling):
    plain, turned = (placed_path(milling, place) for place in ({}, {"x": 2.0, "yaw": np.pi / 2, "spin": 0.3}))
    np.testing.assert_allclose(plain[0], milling.poses)
    np.testing.assert_allclose(turned[1][:, :3], np.tile([-250.0, -300.0, 400.0], (5, 1)), atol=1e-12)
    np.testing.assert_allclose(turned[0][0, :3, 3], [2.25, 0.0, 0.0], atol=1e-12)
    np.testing.assert_allclose(turned[0][:, :3, 2], plain[0][:, :3, 2])


def test_criterion_and_least_dexterity_change_the_result(robot, milling):
    search = {"x": [1.2, 1.5], "z": [0.7], "spin": [-2.0, 0.4, 1.5]}
    largest = place_task(robot, milling, search, LIMITS, "spindle", refine=False, starts=16)
    rms = place_task(robot, milling, search, LIMITS, "spindle", refine=False, starts=16, criterion="rms")
    assert rms.best.cost == pytest.approx(np.sqrt(np.mean(rms.best.deflection**2)))
    assert rms.best.cost < largest.best.cost
    assert (largest.best.place["x"], largest.best.place["spin"]) in itertools.product(search["x"], search["spin"])
    asked = float(largest.best.dexterity.min()) + 1e-6  # the best of before is singular by that
    strict = place_task(robot, milling, search, LIMITS, "spindle", refine=False, starts=16, least_dexterity=asked,
                        length=largest.settings.length_m)  # fmt: skip
    assert strict.best.dexterity.min() >= asked
    assert np.all(strict.cost >= largest.cost)
    assert strict.best.cost > largest.best.cost


def test_what_is_not_possible_says_why(robot, milling):
    for search, limits, sentence in [
        ({"x": [5.0, 6.0]}, LIMITS, "2 where a pose is not reached"),
        ({"x": [1.5], "z": [0.7]}, LIMITS | {"q1": (2.0, 2.1)}, "1 outside the joint limits"),
        ({"x": [1.5], "z": [0.7]}, LIMITS, "1 at or across a singular posture"),
    ]:
        with pytest.raises(ValueError, match=f"none of the .* placements is feasible: {sentence}"):
            place_task(robot, milling, search, limits, "spindle", starts=16, refine=False,
                       least_dexterity=0.9 if "singular" in sentence else 0.05)  # fmt: skip
    # the naive placement may fail while the best does not
    out = place_task(robot, milling, {"x": [1.5], "z": [0.7]}, LIMITS, "spindle", starts=16, naive={"x": 9.0})
    assert not out.naive.possible
    assert out.naive.reason == "where a pose is not reached"
    assert out.naive.cost == np.inf


def test_a_planar_arm_of_three_joints():
    body = [
        {"name": f"b{i}", "parent": f"b{i - 1}" if i else "ground", "origin": {"xyz": [1.0 if i else 0.0, 0.0, 0.0]},
         "joint": [{"name": f"q{i}", "axis": [0, 0, 1], "stiffness": 1e5}]}
        for i in range(3)
    ]  # fmt: skip
    frame = [{"name": "tool", "body": "b2", "origin": {"xyz": [0.3, 0.0, 0.0]}}]
    arm = jaxmb.build_model(Machine.model_validate({"name": "planar", "body": body, "frame": frame}))
    task = ToolPath(np.eye(4)[None], np.array([[0.0, 100.0, 0.0, 0.0, 0.0, 0.0]]))
    limits = {f"q{i}": (-3.0, 3.0) for i in range(3)}
    found = place_task(arm, task, {"x": np.linspace(0.6, 1.8, 4)}, limits, starts=16)
    # a force across the line to the ground bends least where it is nearest to all joints
    assert found.best.place["x"] < 1.0
    assert found.best.joint_path.sum() == pytest.approx(0.0, abs=1e-7)
    # a compressed spring at the first link makes the stretched arm unstable
    post = {"name": "post", "body": "ground", "origin": {"xyz": [0.3, 0.0, 0.0]}}
    spring = {"name": "s", "type": "length", "frame_a": "post", "frame_b": "b1", "free_length": 2.0, "stiffness": 2e5}
    pushed = Machine.model_validate({"name": "planar", "body": body, "frame": [*frame, post], "spring": [spring]})
    reach = {"x": [1.6, 2.28]}
    found = place_task(jaxmb.build_model(pushed), task, reach, limits, starts=16, refine=False)
    assert REASONS[found.reason.flat[1]] == "where the machine is unstable"
    assert found.best.place["x"] == 1.6
    assert np.isfinite(found.best.cost)


def test_wrong_input(robot, milling):
    good = {"x": [1.5], "z": [0.7]}
    for change, sentence in [
        ({"search": {"w": [1.0]}}, "search: variable 'w' does not exist"),
        ({"search": {"x": [2.0, 1.0]}}, "search: x has values"),
        ({"limits": {"q1": (0.0, 1.0), "q9": (0, 1)}}, "coordinate 'q9' does not exist"),
        ({"limits": LIMITS | {"q1": (1.0, -1.0)}}, "limits: q1 from 1 to -1"),
        ({"limits": {}}, "limits: coordinate 'q1' has none"),
        ({"criterion": "mean"}, "criterion 'mean' does not exist"),
        ({"starts": 0}, "starts is 0, expected a whole number of at least 1"),
        ({"naive": {"v": 1.0}}, "naive: variable 'v'"),
        ({"length": 0.0}, "length is 0.0, expected a number above 0"),
        ({"least_dexterity": 1.0}, "least_dexterity is 1.0, expected a number of at least 0 and below 1"),
        ({"path": ToolPath(milling.poses, milling.wrenches[:3])}, "path: wrenches have shape"),
        ({"path": ToolPath(milling.poses[0], milling.wrenches)}, "path: poses have shape"),
        ({"path": ToolPath(2.0 * milling.poses, milling.wrenches)}, "path: pose 0 is not a rotation"),
        ({"path": ToolPath(np.nan * milling.poses, milling.wrenches)}, "not finite"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            place_task(
                **({"model": robot, "path": milling, "search": good, "limits": LIMITS, "frame": "spindle"} | change)
            )
