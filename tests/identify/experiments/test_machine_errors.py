"""Errors of a machine's description."""

import dataclasses

import jax
import numpy as np
import pytest

import jaxmb
from jaxmb import Machine, build_model, linearize, modes
from jaxmb.identify.experiments.machine_errors import (
    SPRING,
    all_elastic,
    carried_inertia,
    machine_errors,
    with_further_springs,
    with_machine_errors,
)
from jaxmb.identify.experiments.tolerances import factor_number
from jaxmb.identify.parameters.free_parameters import Bound, free_parameters
from tests.identify.arm import MACHINE

ARM = build_model(Machine.model_validate(MACHINE))
LINKS = build_model(jaxmb.load_machine("two-flexible-links"))
MASSLESS = {name: 0.0 * getattr(LINKS, name) for name in ("mass", "first_moment", "inertia", "rotor_inertia")}
MODELS = {
    "arm": ARM,
    "motors, one of them on the ground": build_model(jaxmb.load_machine("manipulator-3r-motors")),
    "flexible links": LINKS,
    "mass in beams alone": dataclasses.replace(LINKS, **MASSLESS),
    "stiffness in beams alone": dataclasses.replace(LINKS, locked=(True, True), stiffness=0.0 * LINKS.stiffness),
}


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_nearly_rigid_further_springs_leave_the_modes(model):
    """A foundation about the axis of the first joint moves the machine as the joint does, and a rotor on it has no body
    that contains it: neither must make the mass matrix singular. Joints behind a flexible link stay at its end."""
    further = all_elastic(with_further_springs(model))
    n, count = len(model.coordinates), len(further.coordinates)
    q = np.append(np.full(n, 0.3), np.zeros(count - n))
    own, found = (np.asarray(modes(linearize(m, at)).eigenvalue) for m, at in ((model, q[:n]), (further, q)))
    slow = slice(min(own.size, 5))
    np.testing.assert_allclose(found[slow], own[slow], rtol=1e-5)  # RIGID and the springs' number in series


def test_a_joint_at_the_end_of_a_flexible_link_has_errors_of_its_axis():
    """Its origin there is that of the link's end, unlike that of a further coordinate of the same body."""
    free = free_parameters(LINKS, [Bound(("stiffness.shoulder",), 1e3, 1e6)])
    keys = {error.key for error, _ in machine_errors(with_further_springs(LINKS), free, {})}
    assert {f"axis of elbow {what} {axis}" for what in ("along", "about") for axis in "xz"} <= keys


@pytest.mark.parametrize("further", [False, True])
def test_intersecting_axes_of_two_bodies_have_errors_of_both(further):
    """The axes of a shoulder meet in one point, where the second body has the origin of the first; an elastic
    coordinate of the same body has the axis of its joint."""
    bodies = [
        {"name": "base", "mass": 1.0, "origin": {"xyz": [0.3, 0, 0]}, "joint": [{"name": "turn", "stiffness": 1e4}]},
        {"name": "upper", "parent": "base", "mass": 1.0, "joint": [
            {"name": "lift", "axis": [0.0, 1.0, 0.0], "stiffness": 1e4},
            {"name": "bend", "axis": [1.0, 0.0, 0.0], "stiffness": 1e4},
        ]},
    ]  # fmt: skip
    model = build_model(Machine.model_validate({"name": "shoulder", "body": bodies}))
    free = free_parameters(model, [Bound(("stiffness.turn",), 1e3, 1e6)])
    model = with_further_springs(model) if further else model
    keys = {error.key for error, _ in machine_errors(model, free, {}) if error.key.startswith("axis of")}
    named = {
        f"axis of {name} {what} {axis}"
        for name, axes in (("turn", "xy"), ("lift", "xz"))
        for what in ("along", "about")
        for axis in axes
    }
    assert keys == named


def test_a_released_joint_has_its_own_ratio_of_damping():
    """The machine states it for a; a further spring, of which nothing is known, has that of b."""
    locked = dataclasses.replace(ARM, locked=(True, False))
    released = all_elastic(with_further_springs(locked))
    ratio = np.asarray(released.damping) / np.asarray(released.stiffness)
    own = np.asarray(ARM.damping) / np.asarray(ARM.stiffness)
    np.testing.assert_allclose(ratio, np.where(np.arange(len(ratio)) == 0, own[0], own[1]), rtol=1e-12)


def test_no_body_misses_more_mass_than_it_has():
    """A misfit of gravity led to a payload of minus 6e8 kg."""
    free = free_parameters(ARM, [Bound(("stiffness.a",), 1e3, 1e6)])
    known = list(machine_errors(ARM, free, {}))
    payloads = [error for error, _ in known if error.key.startswith("payload")]
    assert len(payloads) == len(ARM.frames) - 1  # not at the ground
    for error in payloads:
        there = with_machine_errors(ARM, free, known, {error.key: error.bounds[0]})
        assert 0.0 < np.min(there.mass) < 0.1 * np.max(ARM.mass)


def test_all_masses_have_a_largest_factor():
    """A step to first order led to masses exp(240) times as large, whose Jacobian overflows where it is squared."""
    free = free_parameters(ARM, [Bound(("stiffness.a",), 1e3, 1e6)])
    known = list(machine_errors(ARM, free, {}))
    (masses,) = [error for error, _ in known if error.key == "masses"]
    for size in masses.bounds:
        factor = np.asarray(with_machine_errors(ARM, free, known, {"masses": size}).mass) / np.asarray(ARM.mass)
        assert np.all((factor > 1e-4) & (factor < 1e4))


def test_shafts_are_no_joints_beside_further_springs():
    """Their springs are position loops, whose damping says nothing of a released lock."""
    model = MODELS["motors, one of them on the ground"]
    further = with_further_springs(model)
    assert further.joints == model.joints == ("z1", "z2", "z3")
    released = all_elastic(further)
    ratio = np.asarray(released.damping) / np.asarray(released.stiffness)
    np.testing.assert_allclose(ratio[6:], np.median(ratio[:3]), rtol=1e-12)
    assert ratio[3] > 10.0 * np.max(ratio[:3])


def test_a_stated_number_is_corrected_alone_where_locks_are_released():
    """Numbers that follow those of coordinates, such as the stiffness of a spring between frames, keep their place."""
    spring = {"name": "balancer", "frame_a": "wall", "frame_b": "tool", "type": "length", "stiffness": 100.0,
              "free_length": 0.3}  # fmt: skip
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    frames = [*data["frame"], {"name": "wall", "body": "ground", "origin": {"xyz": [0.0, 0.0, 0.5]}}]
    model = with_further_springs(build_model(Machine.model_validate(data | {"frame": frames, "spring": [spring]})))
    free = free_parameters(model, [Bound(("stiffness.a",), 1e3, 1e6)])
    released = all_elastic(model)
    known = list(machine_errors(model, free, {}))
    before = jaxmb.parameters(released)
    for key, name in (("stiffness.balancer", "stiffness.balancer"), ("mass of fore", "mass.fore")):
        after = jaxmb.parameters(with_machine_errors(released, free, known, {key: 0.1}))
        changed = {own for own, value in after.items() if not np.isclose(value, before[own], rtol=1e-12, atol=0.0)}
        assert name in changed
        assert all("fore" in own or own == name for own in changed)
    assert after["mass.fore"] == pytest.approx(before["mass.fore"] * np.exp(0.1))


def test_rotor_inertias_are_tried_at_sizes_of_the_machine():
    """Up to the inertia that a joint carries, which no posture exceeds; of 1 kg m^2 a small robot has none."""
    model = build_model(jaxmb.load_machine("kuka-kr240"))
    postures = np.random.default_rng(1).uniform(-np.pi, np.pi, (200, len(model.coordinates)))
    own = np.diagonal(jax.vmap(lambda q: jaxmb.mass_matrix(model, q))(postures), axis1=1, axis2=2) - model.rotor_inertia
    assert np.all(own.max(axis=0) <= carried_inertia(model))
    assert np.all(own.max(axis=0) >= 0.3 * carried_inertia(model))
    small = dataclasses.replace(
        ARM, mass=1e-3 * ARM.mass, inertia=1e-3 * ARM.inertia, first_moment=1e-3 * ARM.first_moment
    )
    free = free_parameters(ARM, [Bound(("stiffness.a",), 1e3, 1e6)])
    sizes = [{e.key: (e.typical, *e.starts) for e, _ in machine_errors(m, free, {})} for m in (ARM, small)]
    large, tiny = (np.array(each["rotor inertia of b"]) for each in sizes)
    np.testing.assert_allclose(tiny, 1e-3 * large, rtol=1e-12)


def test_the_length_of_a_beam():
    """As of a machine that is stated with it."""
    free = free_parameters(LINKS, [Bound(("stiffness.shoulder",), 1e3, 1e6)])
    known = list(machine_errors(LINKS, free, {}))
    machine = jaxmb.load_machine("two-flexible-links").model_dump(exclude_unset=True)
    beam = machine["beam"][0]
    (error,) = [error for error, _ in known if error.key == f"length of {beam['name']}"]
    size = float(np.log(1.05))
    found = with_machine_errors(LINKS, free, known, {error.key: size})
    longer = build_model(
        Machine.model_validate(machine | {"beam": [beam | {"length": 1.05 * beam["length"]}, *machine["beam"][1:]]})
    )
    q = np.full(len(LINKS.coordinates), 0.4)
    for of in (lambda m: jaxmb.frame_pose(m, q, "tool"), lambda m: modes(linearize(m, q)).eigenvalue[:3]):
        np.testing.assert_allclose(of(found), of(longer), rtol=1e-9, atol=1e-12)
        assert not np.allclose(of(LINKS), of(longer), rtol=1e-3)
    assert error.text is not None
    assert f"of {1.05 * beam['length']:.3g} m instead of {beam['length']:.3g}" in error.text(size)


def test_springs_of_joints_without_stiffness_in_closed_chains():
    """In an open chain such a coordinate is a drive."""
    crank = build_model(jaxmb.load_machine("slider-crank"))
    free = free_parameters(crank, [Bound(("stiffness.q1",), 1e-3, 1e6)])
    known = list(machine_errors(crank, free, {}))
    assert [error.key for error, _ in known if error.key.startswith(SPRING)] == ["spring at q2", "spring at q3"]
    found = with_machine_errors(crank, free, known, {"spring at q2": 400.0})
    assert np.asarray(found.stiffness).tolist() == [0.0, 400.0, 0.0]
    free = free_parameters(ARM, [Bound((f"stiffness.{ARM.coordinates[0]}",), 1e-3, 1e6)])
    without = dataclasses.replace(ARM, stiffness=0.0 * ARM.stiffness)
    assert not [error for error, _ in machine_errors(without, free, {}) if error.key.startswith(SPRING)]


def test_factors_near_one_show_their_difference():
    assert [factor_number(x) for x in (1.0, 0.99981, 1.0523, 9.80665)] == ["1", "0.99981", "1.05", "9.81"]


def test_gravity_that_is_not_stated_has_a_size_only_near_that_of_the_earth():
    """Beside free stiffnesses another one has the same effect."""
    model = dataclasses.replace(ARM, gravity=np.zeros(3))
    free = free_parameters(model, [Bound(("stiffness.a",), 1e3, 1e6)])
    along_z = next(error for error, _ in machine_errors(model, free, {}) if error.key == "gravity along Z")
    assert along_z.described(-2.32) == "gravity along -Z, where none is stated,"
    assert along_z.described(-9.7) == "a gravity of -9.7 m/s^2 along Z, where none is stated,"
