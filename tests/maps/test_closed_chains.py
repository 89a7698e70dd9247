"""Maps of machines with loops: a five-bar and a four-bar by their closed forms, and by single postures one by one."""

import numpy as np
import pytest
from scipy.ndimage import label

import jaxmb
from jaxmb.maps import (
    MODAL_QUANTITIES,
    dexterity,
    load_influence,
    modal_maps,
    modal_quantities,
    posture_maps,
    posture_quantities,
    postures_along,
    postures_over,
)
from jaxmb.maps.modal import FreeModel, logarithmic
from jaxmb.mechanics.compliance import cartesian_compliance
from jaxmb.mechanics.kinematics import joints_moving_frame
from tests.mechanics.test_loops import BASE, COUPLER, CRANK, FOUR_BAR, ROCKER, angles, machine_of, rod

ARM, ROD, APART = 0.3, 0.6, 0.7
FIVE_BAR = {
    "name": "five-bar",
    "gravity": [0.0, -9.81, 0.0],
    "body": [
        rod("left", "ground", "a", ARM, 1.0, stiffness=2e3, damping=2.0, loss_factor=0.03),
        rod("left-rod", "left", "b", ROD, 1.0, ARM),
        rod("right", "ground", "c", ARM, 1.0, APART, stiffness=3e3, damping=3.0),
        rod("right-rod", "right", "d", ROD, 1.0, ARM),
    ],
    "frame": [
        {"name": "tool", "body": "left-rod", "origin": {"xyz": [ROD, 0.0, 0.0]}},
        {"name": "pin", "body": "right-rod", "origin": {"xyz": [ROD, 0.0, 0.0]}},
    ],
    "loop": [{"name": "closure", "frame_a": "tool", "frame_b": "pin"}],
    "posture": {"a": 2.0, "b": -1.36, "c": 1.1, "d": 1.39},
}
DRIVES = {"a": np.linspace(0.6, 4.1, 20), "c": np.linspace(-1.0, 2.5, 20)}
DOWN = np.array([0.0, -50.0, 0.0, 0.0, 0.0, 0.0])


@pytest.fixture(scope="module")
def five_bar():
    return jaxmb.build_model(jaxmb.Machine.model_validate(FIVE_BAR))


@pytest.fixture(scope="module")
def four_bar():
    return jaxmb.build_model(machine_of())


def elbows(a, c):
    """Ends of both arms [..., 2]."""
    left = ARM * np.stack([np.cos(a), np.sin(a)], axis=-1)
    return left, ARM * np.stack([np.cos(c), np.sin(c)], axis=-1) + [APART, 0.0]


def tool_of(a, c):
    """Where the rods meet, on the left of the line from elbow to elbow; NaN where they do not."""
    left, right = elbows(a, c)
    across = right - left
    far = np.linalg.norm(across, axis=-1)
    with np.errstate(invalid="ignore"):
        high = np.sqrt(ROD**2 - 0.25 * far**2)
    up = np.stack([-across[..., 1], across[..., 0]], axis=-1) / far[..., None]
    return 0.5 * (left + right) + high[..., None] * up


def drives_of(x, y):
    """Both drives with the elbows outwards; NaN where a place is too far or too near."""
    found = []
    for start, side in ((0.0, 1.0), (APART, -1.0)):
        radius = np.hypot(x - start, y)
        with np.errstate(invalid="ignore"):
            opening = np.arccos((ARM**2 + radius**2 - ROD**2) / (2 * ARM * radius))
        found.append(np.arctan2(y, x - start) + side * opening)
    return found


def test_a_grid_of_drives(five_bar):
    found = postures_over(five_bar, DRIVES)
    a, c = np.meshgrid(*DRIVES.values(), indexing="ij")
    expected = tool_of(a, c)
    far = np.linalg.norm(np.subtract(*elbows(a, c)), axis=-1)
    assert np.abs(far - 2 * ROD).min() > 1e-3  # no posture is at the edge
    np.testing.assert_array_equal(found.reached, np.isfinite(expected[..., 0]))
    assert 0 < found.reached.sum() < found.reached.size
    np.testing.assert_allclose(found.position[..., :2], expected, atol=1e-8)
    assert np.isnan(found.coordinates[~found.reached]).all()
    # what is given is exact
    np.testing.assert_array_equal(found.coordinates[found.reached][:, [0, 2]], np.stack([a, c], -1)[found.reached])
    assert (found.varied, found.held) == (("a", "b", "c", "d"), {})


def test_a_grid_of_places(five_bar):
    """All places of the drives' branch that are connected, on the near side of the line on which both rods lie."""
    over = {"tool.x": np.linspace(-0.35, 1.05, 21), "tool.y": np.linspace(0.02, 0.92, 16)}
    found = postures_over(five_bar, over)
    x, y = np.meshgrid(*over.values(), indexing="ij")
    a, c = drives_of(x, y)
    left, right = elbows(a, c)
    to_left, to_right = left - np.stack([x, y], -1), right - np.stack([x, y], -1)
    above = to_left[..., 0] * to_right[..., 1] - to_left[..., 1] * to_right[..., 0] > 0.0
    parts = label(np.isfinite(a) & np.isfinite(c) & above)[0]  # pyright: ignore[reportGeneralTypeIssues]
    expected = parts == parts[tuple(np.argwhere(found.reached)[0])]
    np.testing.assert_array_equal(found.reached, expected)
    assert 50 < expected.sum() < expected.size
    turns = np.stack([a, c], -1)[expected] - found.coordinates[expected][:, [0, 2]]
    np.testing.assert_allclose(turns - 2 * np.pi * np.round(turns / (2 * np.pi)), 0.0, atol=1e-6)
    np.testing.assert_allclose(found.position[..., :2], np.stack([x, y], -1), atol=1e-8)
    for q in found.coordinates[expected][::40]:
        jaxmb.motion_map(five_bar, q)  # closed


def test_the_same_map_over_places_and_over_drives(five_bar):
    over = {"tool.x": np.linspace(0.25, 0.45, 3), "tool.y": np.linspace(0.5, 0.7, 3)}
    by_place = modal_maps(five_bar, over, quantities=tuple(MODAL_QUANTITIES))
    for i, j in ((0, 0), (1, 2), (2, 1)):
        q = by_place.postures.coordinates[i, j]
        near = {"a": q[0] + np.array([-1e-3, 0.0]), "c": q[2] + np.array([0.0, 1e-3])}
        by_drive = modal_maps(five_bar, near, quantities=tuple(MODAL_QUANTITIES))
        for name in MODAL_QUANTITIES:
            np.testing.assert_allclose(
                by_drive.maps[name].values[1, 0], by_place.maps[name].values[i, j], rtol=1e-6
            )  # places within 1e-8 m


def test_a_coordinate_that_follows_may_vary(four_bar):
    """Given is the rocker: it turns as far as crank and coupler reach, and the crank follows."""
    rocker = np.linspace(1.2, 3.0, 19)
    found = postures_over(four_bar, {"q3": rocker}, frame="end")
    crank = found.coordinates[found.reached][:, 0]
    np.testing.assert_allclose(found.coordinates[found.reached], [angles(value) for value in crank], atol=1e-8)

    far = np.hypot(BASE + ROCKER * np.cos(rocker), ROCKER * np.sin(rocker))
    np.testing.assert_array_equal(found.reached, (far > COUPLER - CRANK) & (far < COUPLER + CRANK))
    assert 0 < found.reached.sum() < 19


def test_paths(four_bar, five_bar):
    """After postures that do not close the path goes on from the last one that did."""
    there = np.linspace(2.0, 4.0, 21)
    found = postures_along(five_bar, {"a": np.concatenate([there, there[::-1]]), "c": np.full(42, 0.2)})
    expected = tool_of(np.concatenate([there, there[::-1]]), np.full(42, 0.2))
    np.testing.assert_array_equal(found.reached, np.isfinite(expected[:, 0]))
    assert not found.reached.all()
    np.testing.assert_allclose(found.position[:, :2], expected, atol=1e-8)
    assert np.all(np.diff(found.grid[0]) >= 0.0)
    near = postures_along(four_bar, {"q1": np.linspace(0.5, 1.5, 5)}, frame="end", limits={"q3": (0.0, 1.9)})
    np.testing.assert_array_equal(near.reached, near.coordinates[:, 2] <= 1.9)
    places = postures_along(five_bar, {"tool.x": np.linspace(0.35, 1.1, 16), "tool.y": np.full(16, 0.6)})
    np.testing.assert_array_equal(places.reached, np.hypot(places.position[:, 0], 0.6) < ARM + ROD)


def test_what_is_held_stays(five_bar):
    """With one rod's angle held a drive follows."""
    found = postures_over(five_bar, {"a": np.linspace(1.9, 2.1, 3)}, {"d": 1.1})
    assert found.held == {"d": 1.1}
    np.testing.assert_array_equal(found.coordinates[:, 3], 1.1)
    np.testing.assert_allclose(
        found.position[:, :2], tool_of(found.coordinates[:, 0], found.coordinates[:, 2]), atol=1e-8
    )
    assert np.ptp(found.coordinates[:, 2]) > 0.01


def test_modes_of_a_four_bar(four_bar):
    """Mass and stiffness of the crank's angle by differences of energies along the closed form."""
    crank = np.linspace(0.5, 2.5, 5)
    found = modal_maps(four_bar, {"q1": crank}, quantities=tuple(MODAL_QUANTITIES), frame="end", direction=(1, 0, 0))

    def centres(angle):
        q = angles(angle)
        joint = CRANK * np.array([np.cos(angle), np.sin(angle)])
        along = [np.array([np.cos(t), np.sin(t)]) for t in (angle, q[0] + q[1], q[2])]
        middles = (0.5 * CRANK * along[0], joint + 0.5 * COUPLER * along[1], [BASE, 0.0] + 0.5 * ROCKER * along[2])
        return np.array(middles), np.array([angle, q[0] + q[1], q[2]]), joint + COUPLER * along[1]

    masses, lengths, h = np.array([1.0, 2.0, 1.5]), np.array([CRANK, COUPLER, ROCKER]), 1e-3
    for angle, frequency, damping, compliance in zip(
        crank, *(found.maps[name].values for name in ("frequency", "damping", "static_compliance")), strict=True
    ):
        at = [centres(angle + k * h) for k in (-2, -1, 0, 1, 2)]
        moved, turned, end = (
            (at[0][i] - 8 * at[1][i] + 8 * at[3][i] - at[4][i]) / (12 * h) for i in range(3)
        )  # of fourth order
        mass = masses @ np.sum(moved**2, axis=1) + masses * lengths**2 / 12 @ turned**2
        energy = [9.81 * masses @ part[0][:, 1] for part in at]
        stiffness = 100.0 + (-energy[0] + 16 * energy[1] - 30 * energy[2] + 16 * energy[3] - energy[4]) / (12 * h**2)
        assert frequency[0] == pytest.approx(np.sqrt(stiffness / mass) / (2 * np.pi), rel=1e-7)
        assert damping[0] == pytest.approx(0.1 / (2 * np.sqrt(stiffness * mass)), rel=1e-7)
        assert compliance == pytest.approx(end[0] ** 2 / stiffness, rel=1e-6)


def test_modal_quantities_are_those_of_single_postures(five_bar):
    """With a loss factor in one drive: modes and FRFs of postures that are closed one by one."""
    over = {"a": DRIVES["a"][6:10:3], "c": DRIVES["c"][8:12:3]}
    found = modal_maps(five_bar, over, quantities=tuple(MODAL_QUANTITIES), direction=(0, 1, 0))
    for i, j in np.ndindex(2, 2):
        q = jaxmb.close_loops(five_bar, {"a": over["a"][i], "c": over["c"][j]})
        expected = jaxmb.modes(jaxmb.linearize(five_bar, q))
        np.testing.assert_allclose(found.maps["frequency"].values[i, j], expected.frequency_hz, rtol=1e-7)
        np.testing.assert_allclose(found.maps["damping"].values[i, j], expected.damping_ratio, rtol=1e-6)
        lines = np.linspace(0.0, 60.0, 6001)
        size = np.abs(jaxmb.frf(five_bar, q, lines, outputs=[("tool", "Y")], inputs=[("tool", "Y")], kind="receptance"))
        half = float((expected.frequency_hz * expected.damping_ratio).min())
        peak = found.maps["dynamic_compliance"].values[i, j]
        assert size.max() <= peak * (1.0 + 1e-8)
        # a line is at most 0.005 Hz from the peak, which falls by half the square of half widths
        assert peak == pytest.approx(size.max(), rel=0.5 * (0.005 / half) ** 2 + 1e-8)


@pytest.mark.parametrize("point", ["posture", "equilibrium"])
def test_gradients_of_a_closed_chain_with_a_loss_factor(five_bar, point):
    rows = postures_over(five_bar, {"a": DRIVES["a"][6:8], "c": DRIVES["c"][8:10]}).coordinates.reshape(-1, 4)
    names = ("stiffness.a", "damping.c", "loss_factor.a", "mass.left-rod")
    vary = FreeModel(five_bar, logarithmic(five_bar, names))
    start, step = np.log([2e3, 3.0, 0.03, 1.0]), 1e-5

    def at(u):
        return modal_quantities(vary(u), rows, tuple(MODAL_QUANTITIES), 2, direction=(0, 1, 0), at=point)

    found = modal_quantities(
        five_bar, rows, tuple(MODAL_QUANTITIES), 2, direction=(0, 1, 0), vary=vary, u=start, at=point
    )
    for j, unit in enumerate(np.eye(4)):
        above, below = at(start + step * unit), at(start - step * unit)
        for name in MODAL_QUANTITIES:
            numeric = (above.values[name] - below.values[name]) / (2 * step)
            # central differences err by 1e-8 of the value, more where modes are close
            scale = 4e-7 * np.abs(found.values[name])
            assert np.all(np.abs(found.gradients[name][..., j] - numeric) < scale), (name, j)
    acting = [np.abs(found.gradients[name]).max() for name in ("frequency", "damping", "dynamic_compliance")]
    assert min(acting) > 0.0
    assert np.abs(found.gradients["dynamic_compliance"][:, 2]).min() > 0.0  # of the loss factor


def test_uncertainty_of_a_closed_chain(five_bar):
    """One mode's frequency by two stiffnesses: the standard deviation is that of its gradient."""
    over = {"a": DRIVES["a"][6:8], "c": DRIVES["c"][8:10]}
    covariance = np.array([[4e-4, 1e-4], [1e-4, 9e-4]])
    found = modal_maps(five_bar, over, free=["stiffness.a", "stiffness.c"], covariance=covariance)
    q = found.postures.coordinates[1, 0]
    slopes = []
    for name in ("stiffness.a", "stiffness.c"):
        vary = FreeModel(five_bar, logarithmic(five_bar, [name]))
        start = np.log(float(five_bar.stiffness[five_bar.coordinates.index(name[-1])]))
        ends = [jaxmb.modes(jaxmb.linearize(vary(np.array([start + h])), q)).frequency_hz for h in (1e-5, -1e-5)]
        slopes.append((ends[0] - ends[1]) / 2e-5)
    expected = np.sqrt(np.einsum("im,ij,jm->m", np.array(slopes), covariance, np.array(slopes)))
    np.testing.assert_allclose(found.maps["frequency"].std[1, 0], expected, rtol=1e-6)


def test_dexterity_and_stiffness(five_bar):
    """J R of both drives is that of the closed form: rods keep their length, (p - e) . p' = (p - e) . e'."""
    quantities = ("dexterity", "deflection", "stiffness", "least_stiffness", "greatest_stiffness")
    found = posture_maps(
        five_bar, DRIVES, quantities, wrench=DOWN, direction=(0, 1, 0), directions=("x", "y"), shown="pin"
    )
    maps = found["dexterity"]
    assert maps.settings.joints == ("a", "c")
    reached = maps.postures.reached
    assert 0 < reached.sum() < reached.size
    for name in quantities:
        np.testing.assert_array_equal(~np.isnan(found[name].values), reached)
    assert np.all(np.isinf(found["greatest_stiffness"].values[reached]))  # across the plane nothing gives way
    for i, j in np.argwhere(reached)[::25]:
        a, c = DRIVES["a"][i], DRIVES["c"][j]
        place, ends = tool_of(a, c), elbows(a, c)
        left = np.stack([place - end for end in ends])
        rates = np.diag([left[0] @ [-np.sin(a), np.cos(a)], left[1] @ [-np.sin(c), np.cos(c)]]) * ARM
        jacobian = np.linalg.solve(left, rates)
        assert maps.determinant[i, j] == pytest.approx(np.linalg.det(jacobian), rel=1e-5)
        condition = np.linalg.norm(jacobian) * np.linalg.norm(np.linalg.inv(jacobian)) / 2
        assert maps.values[i, j] == pytest.approx(1.0 / condition, rel=1e-5)
        compliance = jacobian @ np.diag([1 / 2e3, 1 / 3e3]) @ jacobian.T
        assert found["deflection"].values[i, j] == pytest.approx(np.linalg.norm(compliance[:, 1]) * 50.0, rel=1e-5)
        assert found["stiffness"].values[i, j] == pytest.approx(1.0 / compliance[1, 1], rel=1e-5)
        assert found["least_stiffness"].values[i, j] == pytest.approx(1.0 / np.linalg.eigvalsh(compliance)[1], rel=1e-5)
    i, j = np.argwhere(reached)[0]
    q = jaxmb.close_loops(five_bar, {"a": DRIVES["a"][i], "c": DRIVES["c"][j]}, near=maps.postures.coordinates[i, j])
    moved = jaxmb.deflection(five_bar, q, "tool", DOWN)[0, :3]
    assert found["deflection"].values[i, j] == pytest.approx(float(np.linalg.norm(moved)), rel=1e-6)
    along = float(cartesian_compliance(five_bar, q, "tool")[1, 1])
    assert found["stiffness"].values[i, j] == pytest.approx(1.0 / along, rel=1e-6)
    single = dexterity(five_bar, q, "tool", directions=("x", "y"))
    assert maps.values[i, j] == pytest.approx(float(single), rel=1e-6)


def test_coordinates_that_move_a_frame():
    """A four-bar carries a wrist on its coupler and a second four-bar stands beside it."""
    again = [
        body | {"name": f"{body['name']}-2", "joint": [{"name": f"p{i}"}],
                "parent": "ground" if body["parent"] == "ground" else "crank-2"}
        for i, body in enumerate(FOUR_BAR["body"], 1)
    ]  # fmt: skip
    frames = [frame | {"name": f"{frame['name']}-2", "body": f"{frame['body']}-2"} for frame in FOUR_BAR["frame"]]
    loops = [*FOUR_BAR["loop"], {"name": "closure-2", "frame_a": "end-2", "frame_b": "pin-2"}]
    wrist = {"name": "wrist", "parent": "coupler", "joint": [{"name": "w"}]}
    posture = FOUR_BAR["posture"] | {"p1": 1.0, "p2": -0.5, "p3": 1.8}
    model = jaxmb.build_model(
        machine_of(
            body=[*FOUR_BAR["body"], wrist, *again],
            frame=[*FOUR_BAR["frame"], *frames],
            loop=loops,
            posture=posture,
            independent=["q1", "p1"],
        )
    )
    assert joints_moving_frame(model, "wrist") == ("q1", "w")
    assert joints_moving_frame(model, "pin") == ("q1",)
    assert joints_moving_frame(model, "pin-2") == ("p1",)
    with pytest.raises(ValueError, match="joints: 'q3' is a dependent coordinate"):
        joints_moving_frame(model, "wrist", ("q3",))


def test_wrong_input(four_bar, five_bar):
    with pytest.raises(ValueError, match="a, b, c cannot all be given"):
        postures_over(five_bar, {name: [0.5, 1.0] for name in ("a", "b", "c")})
    with pytest.raises(
        ValueError, match="over: the loops of 'four-bar' close nowhere on the grid, from the start posture"
    ):
        postures_over(four_bar, {"q3": [0.1, 0.2]}, frame="end")
    with pytest.raises(ValueError, match="path: no position of 'tool' is reached by a, c from the start posture"):
        postures_along(five_bar, {"tool.x": [3.0, 4.0]})
    with pytest.raises(ValueError, match="joints: 'b' is a dependent coordinate"):
        postures_over(five_bar, {"tool.x": [0.3, 0.4]}, joints=("b",))
    with pytest.raises(NotImplementedError, match="load_influence: 'five-bar' has loops"):
        load_influence(five_bar, five_bar.reference, "tool", DOWN)
    with pytest.raises(NotImplementedError, match="a map of 'nu_p': 'four-bar' has loops"):
        posture_maps(four_bar, {"q1": [0.5, 1.0]}, ("nu_p",), "end", wrench=DOWN)
    away = np.array([[1.0, 0.0, 1.0]])
    with pytest.raises(ValueError, match="postures: the loops of 'four-bar' are open by"):
        modal_quantities(four_bar, away, frame="end")
    settings = posture_maps(four_bar, {"q1": [0.5, 1.0]}, ("least_stiffness",), "end")["least_stiffness"].settings
    with pytest.raises(ValueError, match="postures: the loops of 'four-bar' are open by"):
        posture_quantities(four_bar, away, ("least_stiffness",), "end", settings)
