"""Maps of the KR240 with the published zones."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import jaxmb
from jaxmb.maps import (
    QUANTITIES,
    MapSettings,
    ToolPath,
    dexterity,
    find_zones,
    load_influence,
    place_task,
    posture_maps,
    posture_quantities,
)

WRIST = {name: np.radians(45.0) for name in ("q4", "q5", "q6")}
PRINTED = [((0, 110), (-245, -170)), ((0, 25), (0, 29)), ((100, 146), (0, 29))]
"""q2 and q3 of the zones of Dumas et al. 2011, Table I, deg."""
WEIGHT = [0.0, 0.0, -2000.0, 0.0, 0.0, 0.0]


@pytest.fixture(scope="module")
def robot():
    return jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))


@pytest.fixture(scope="module")
def maps(robot):
    """The joint space of Fig. 2 and 3, every second degree."""
    over = {"q2": np.radians(np.arange(0, 147, 2)), "q3": np.radians(np.arange(-245, 30, 2))}
    return posture_maps(robot, over, tuple(QUANTITIES), held=WRIST | {"q1": 0.0}, length=1.0, wrench=WEIGHT,
                        direction=[0, 0, 1], good={"dexterity": 0.39})  # fmt: skip


# Inverse condition numbers found for the assumed geometry with L = 1 m.
@pytest.mark.parametrize(("printed", "least"), list(zip(PRINTED, [0.397, 0.454, 0.477], strict=True)))
def test_published_zones_hold_no_singularity(robot, printed, least):
    q2, q3 = printed
    over = {"q2": np.radians(np.linspace(*q2, 60)), "q3": np.radians(np.linspace(*q3, 60))}
    found = posture_maps(robot, over, held=WRIST, length=1.0)["dexterity"]
    assert len(np.unique(np.sign(found.determinant))) == 1
    assert found.values.min() >= least - 5e-4  # printed with three digits
    assert found.values.min() <= least + 5e-4


def test_influence_of_the_load_is_within_the_printed_bounds(maps):
    assert maps["nu_p"].values.max() <= 0.016
    assert np.degrees(maps["nu_r"].values.max()) <= 0.025


def test_values_are_those_of_single_postures(robot, maps):
    index = (17, 40)
    q = jnp.asarray(maps["nu_p"].postures.coordinates[index])
    assert (q[1], q[2]) == tuple(g[i] for g, i in zip(maps["nu_p"].postures.grid, index, strict=True))
    wrench = jnp.array(WEIGHT)
    moved = jaxmb.deflection(robot, q, "tool", wrench)[0, :3]
    nu_p, nu_r = load_influence(robot, q, "tool", wrench)
    expected = {
        "dexterity": dexterity(robot, q),
        "nu_p": nu_p,
        "nu_r": nu_r,
        "deflection": jnp.linalg.norm(moved),
        "stiffness": -2000.0 / moved[2],
    }
    for name, value in expected.items():
        # nu_p is a difference of 1e-3 of two lengths
        assert maps[name].values[index] == pytest.approx(float(value), rel=1e-10)
    assert np.all(maps["least_stiffness"].values <= maps["stiffness"].values * (1 + 1e-12))
    assert np.all(maps["stiffness"].values <= maps["greatest_stiffness"].values * (1 + 1e-12))
    place = np.asarray(jaxmb.frame_pose(robot, q, "tool"))[:3, 3]
    np.testing.assert_allclose(maps["dexterity"].postures.position[index], place, atol=1e-14)
    assert maps["dexterity"].postures.held == {"q1": 0.0} | WRIST


def test_zones_are_good_all_over(maps):
    for found in maps.values():
        sign = 1.0 if found.about.higher_is_better else -1.0
        assert found.zones
        assert [z.points for z in found.zones] == sorted((z.points for z in found.zones), reverse=True)
        for zone in found.zones:
            assert np.all(sign * found.values[zone.mask] >= sign * found.threshold)
            assert zone.points >= 2
            inside = [(g >= low) & (g <= high) for g, (low, high) in zip(found.postures.grid, zone.box, strict=True)]
            assert np.all(zone.mask[np.ix_(*inside)])
            assert zone.best == found.values[zone.mask][np.argmax(sign * found.values[zone.mask])]
    # nothing was said of good stiffness: the best quarter of the postures
    share = sum(z.share for z in posture_share(maps["stiffness"]))
    assert share == pytest.approx(0.25, abs=0.01)


def posture_share(found):
    return find_zones(found.values, found.postures.grid, found.threshold, found.about.higher_is_better)


def test_the_printed_zones_are_found_again(maps):
    """With a threshold just below what all of them reach, each lies in one zone; and none has a singularity inside."""
    found = maps["dexterity"]
    degrees = [np.degrees(g) for g in found.postures.grid]
    for q2, q3 in PRINTED:
        box = np.ix_((degrees[0] >= q2[0]) & (degrees[0] <= q2[1]), (degrees[1] >= q3[0]) & (degrees[1] <= q3[1]))
        assert any(zone.mask[box].all() for zone in found.zones)
    for zone in found.zones:
        assert len(np.unique(np.sign(found.determinant[zone.mask]))) == 1


def test_the_best_quarter_is_three_zones_as_printed(robot):
    over = {"q2": np.radians(np.arange(0, 147, 2)), "q3": np.radians(np.arange(-245, 30, 2))}
    for length in (0.82, 1.0, 1.3):  # eq. 8: the length changes the number, not where the zones are
        zones = posture_maps(robot, over, held=WRIST, length=length, least_points=20)["dexterity"].zones
        assert len(zones) == 3
        extents = sorted(
            (np.degrees(zone.extent).tolist() for zone in zones), key=lambda e: (e[1][1] > 0, e[0][1] > 100)
        )
        for extent, printed in zip(extents, PRINTED, strict=True):
            low, high = np.transpose([[max(a[0], b[0]), min(a[1], b[1])] for a, b in zip(extent, printed, strict=True)])
            # the printed boxes were read off a figure; they share most of their area with what is found
            assert np.prod(high - low) > 0.8 * np.prod(np.diff(printed))


def test_found_length_and_thinned_chunks(robot):
    over = {"q2": np.linspace(0.2, 2.0, 50), "q3": np.linspace(-4.0, 0.3, 47)}
    found = posture_maps(robot, over, held=WRIST)["dexterity"]
    length = found.settings.length_m
    for other in (0.98 * length, 1.02 * length):
        assert posture_maps(robot, over, held=WRIST, length=other)["dexterity"].values.max() < found.values.max()
    # 2350 postures are two whole chunks and a part
    q = jaxmb.posture(robot, WRIST | {"q2": over["q2"][-1], "q3": over["q3"][-1]})
    assert found.values[-1, -1] == pytest.approx(float(dexterity(robot, q, "tool", length)), rel=1e-12)


def test_one_and_three_coordinates_and_other_robots(robot):
    line = posture_maps(robot, {"q5": np.linspace(-1.0, 1.0, 41)}, length=1.0, good={"dexterity": 0.2})["dexterity"]
    assert [zone.mask.sum() for zone in line.zones] == [z.points for z in line.zones]
    assert len(line.zones) == 2  # either side of the stretched wrist
    assert line.values[20] == 0.0
    cube = {"q2": np.linspace(0.2, 2, 9), "q3": np.linspace(-4, 0, 8), "q5": np.linspace(-1, 1, 7)}
    assert posture_maps(robot, cube, ("dexterity", "least_stiffness"))["dexterity"].zones[0].mask.shape == (9, 8, 7)
    arm = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    names = [c for c in arm.coordinates if c.startswith("z")]
    found = posture_maps(arm, {names[1]: np.linspace(0.2, 2, 9), names[2]: np.linspace(-2, -0.2, 8)},
                         ("dexterity", "least_stiffness"), joints=names, directions=("x", "y", "z"))  # fmt: skip
    assert found["dexterity"].determinant is not None
    assert found["dexterity"].values.max() > 0.0
    assert posture_maps(arm, {names[1]: [0.0, 1.0]}, joints=names)["dexterity"].determinant is None


def test_wrong_input(robot):
    over = {"q2": [0.0, 1.0]}
    for arguments, sentence in [
        ({"over": {}}, "over: found nothing"),
        ({"over": {"q9": [0, 1]}}, "over: coordinate 'q9' does not exist"),
        ({"over": {"q2": [1.0, 0.0]}}, "over: q2 has values"),
        ({"over": {"q2": [0.0, 146.0]}}, "q2 from 0 to 146 rad exceeds a full turn"),
        ({"over": {"tool.x": [1.0, 2.0]}}, "over: coordinate 'tool.x' does not exist"),
        ({"over": {"q2": [1.0]}}, "two or more, ascending"),
        ({"over": over, "held": {"q2": 1.0}}, "held: coordinate 'q2'"),
        ({"over": over, "quantities": ("nu_p",)}, "'nu_p' needs a wrench"),
        ({"over": over, "quantities": ("stiffness",)}, "'stiffness' needs a direction"),
        ({"over": over, "quantities": ("dex",)}, "quantity 'dex' does not exist"),
        ({"over": over, "quantities": ()}, "quantities: found none"),
        ({"over": over, "quantities": ("deflection",), "wrench": [0, 0, 1]}, "wrench has shape"),
        ({"over": over, "quantities": ("stiffness",), "direction": [0, 0, 0]}, "direction: "),
        ({"over": over, "good": {"nu_r": 1.0}}, "good: quantity 'nu_r' does not exist"),
        ({"over": over, "length": -1.0}, "length is -1.0, expected a number above 0"),
        ({"over": over, "shown": "wrist"}, "frame 'wrist' does not exist"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            posture_maps(robot, **arguments)


def test_a_rigid_machine_has_no_map_of_deflections():
    """A URDF has no stiffness: all deflections would be 0, and all postures good."""
    arm = jaxmb.build_model(jaxmb.load_machine(Path(__file__).parents[2] / "mechanics" / "robots" / "arm.urdf"))
    over = {"axis1": [0.0, 1.0]}
    with pytest.raises(ValueError, match="a map of 'least_stiffness': 'arm' has neither springs nor beams"):
        posture_maps(arm, over, ("dexterity", "least_stiffness"), frame="flange")
    with pytest.raises(ValueError, match="place_task: 'arm' has neither springs nor beams and is rigid"):
        place_task(arm, ToolPath(np.eye(4)[None], np.zeros((1, 6))), {}, {"axis1": (0.0, 1.0)}, frame="flange")


def test_quantities_of_any_postures(robot):
    postures = np.random.default_rng(0).uniform(-1, 1, (5, 6))
    settings = MapSettings(2.0, robot.coordinates)
    found = posture_quantities(robot, postures, ("dexterity", "determinant"), "tool", settings)
    for q, value, determinant in zip(postures, *found.values(), strict=True):
        assert value == pytest.approx(float(dexterity(robot, jnp.asarray(q), length=2.0)), rel=1e-12)
        jacobian = np.asarray(jaxmb.frame_jacobian(robot, jnp.asarray(q), "tool"))
        assert determinant == pytest.approx(np.linalg.det(jacobian) / 2.0**3, rel=1e-10)
