"""Figures of maps and placements show what the numbers say."""

import dataclasses

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import BoundaryNorm, to_rgb

import jaxmb
from jaxmb.maps import Placement, PlacementResult, find_zones, posture_maps
from jaxmb.maps.placement import PlacementSettings
from jaxmb.report.charts import Cells, Colors
from jaxmb.report.interactive import traces_of
from jaxmb.report.maps import (
    bands,
    best_in_cells,
    interpolated,
    joint_space_chart,
    posture_map_sections,
    workspace_chart,
)
from jaxmb.report.modal_maps import placement_chart
from jaxmb.report.rendering import figure_of, write_pictures


@pytest.fixture(scope="module")
def maps():
    robot = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
    over = {"q2": np.radians(np.linspace(0, 146, 30)), "q3": np.radians(np.linspace(-245, 29, 31))}
    load = [0, 0, -2000, 0, 0, 0]
    quantities = ("dexterity", "nu_r", "greatest_stiffness")
    return posture_maps(robot, over, quantities, wrench=load, length=1.0)


def texts(axes):
    return [text.get_text() for text in axes.texts]


def test_joint_space(maps):
    figure = figure_of(joint_space_chart(maps["dexterity"]))
    axes, bar = figure.axes
    assert axes.get_xlabel() == "q2 (deg)"
    assert axes.get_ylabel() == "q3 (deg)"
    assert axes.get_xlim() == pytest.approx((0.0, 146.0))
    assert "κ" in bar.get_ylabel()
    assert texts(axes) == [f"Z{i + 1}" for i in range(min(len(maps["dexterity"].zones), 6))]
    assert "(deg)" in figure_of(joint_space_chart(maps["nu_r"])).axes[1].get_ylabel()
    # light is good, whichever way
    maps_of = {
        name: figure_of(joint_space_chart(found)).axes[0].collections[0].cmap.name for name, found in maps.items()
    }
    assert maps_of == {"dexterity": "viridis", "nu_r": "viridis_r", "greatest_stiffness": "viridis"}


def test_a_label_stands_in_its_zone(maps):
    found = maps["dexterity"]
    for text, zone in zip(figure_of(joint_space_chart(found)).axes[0].texts, found.zones, strict=False):
        at = [int(np.argmin(np.abs(np.degrees(g) - x))) for g, x in zip(found.postures.grid, text.xy, strict=True)]
        assert zone.mask[tuple(at)]


def test_the_workspace_of_two_coordinates_has_no_gaps():
    """Cells between the postures of a coarse grid are filled; the better of two surfaces counts, NaN hides nothing."""
    x, y = np.meshgrid(np.arange(9.0), np.arange(5.0), indexing="ij")
    surfaces = []
    for value in (1.0, 2.0, np.nan):
        found = interpolated(0.8 * x - 0.6 * y, 0.6 * x + 0.8 * y, np.full(x.shape, value))
        surfaces.append([part.ravel() for part in found])
    edge_x, edge_y, best = best_in_cells(*(np.concatenate(parts) for parts in zip(*surfaces, strict=True)), True)
    assert max(best.shape) > 150  # fine enough not to show as saw teeth
    at = np.meshgrid(0.5 * (edge_x[1:] + edge_x[:-1]), 0.5 * (edge_y[1:] + edge_y[:-1]), indexing="ij")
    u, v = 0.8 * at[0] + 0.6 * at[1], -0.6 * at[0] + 0.8 * at[1]
    np.testing.assert_array_equal(best[(u > 0.1) & (u < 7.9) & (v > 0.1) & (v < 3.9)], 2.0)
    assert np.isnan(best[(u < -0.1) | (v < -0.1)]).all()


def test_workspace_axes(maps):
    figure = figure_of(workspace_chart(maps["nu_r"]))
    assert figure.axes[0].get_xlabel() == "x of tool (m)"


def test_the_bands_of_a_page_have_the_colours_of_the_picture():
    levels = np.arange(13.0)
    colors = Colors("viridis", (0.0, 12.0), levels=levels)
    (trace,) = traces_of(Cells([0.0, 1.0], [0.0, 1.0], np.zeros((1, 1)), colors))
    on_page = np.array([to_rgb(color) for _, color in trace["colorscale"][::2]])
    drawn = matplotlib.colormaps["viridis"](BoundaryNorm(levels, 256)(levels[:-1] + 0.5))[:, :3]
    nearest = np.argmin(np.linalg.norm(on_page[:, None] - drawn, axis=-1), axis=1)
    np.testing.assert_array_equal(nearest, np.arange(12))


def over_q5(found, values, position):
    """The map over a third coordinate of two values, with the frame at another position for the second of them."""
    postures = dataclasses.replace(
        found.postures,
        over=(*found.postures.over, "q5"),
        grid=(*found.postures.grid, np.array([0.0, 1.0])),
        revolute=(True, True, True),
        position=np.stack([found.postures.position, position], axis=2),
    )
    return dataclasses.replace(found, values=values, postures=postures, determinant=None, zones=())


def test_one_and_three_coordinates(maps, tmp_path):
    found = maps["dexterity"]
    grid = found.postures.grid
    cube = over_q5(found, np.stack([found.values, 0.5 * found.values], axis=-1), found.postures.position)
    postures = dataclasses.replace(found.postures, over=("q3",), grid=grid[1:], revolute=(True,))
    line = dataclasses.replace(found, values=found.values[0], postures=postures, determinant=None, zones=())
    written = write_pictures(posture_map_sections({"cube": cube, "line": line}), tmp_path)
    assert [path.name for path in written] == ["cube-joints.png", "cube-workspace.png", "line-joints.png"]
    assert "best over q5" in joint_space_chart(cube).note


def test_three_coordinates_are_drawn_where_the_postures_are(maps):
    """The better half is ten metres to the right of the other: no value of it may show at the left."""
    found = maps["dexterity"]
    values = np.stack([0.0 * found.values, 0.0 * found.values + 0.5], axis=-1)
    cube = over_q5(found, values, found.postures.position + np.array([10.0, 0.0, 0.0]))
    axes = figure_of(workspace_chart(cube)).axes[0]
    mesh = axes.collections[0]
    cells = np.asarray(mesh.get_coordinates())[:-1, :-1, 0]
    values = np.ma.filled(mesh.get_array(), np.nan)
    np.testing.assert_array_equal(values[np.isfinite(values) & (cells > 5.0)], 0.5)
    np.testing.assert_array_equal(values[np.isfinite(values) & (cells < 3.0)], 0.0)
    assert np.isfinite(values[cells > 5.0]).any()
    assert np.isfinite(values[cells < 3.0]).any()


def test_the_best_of_a_cell():
    x, y, values = ([0.0, 0.01, 1.0, 0.5], [0.0, 0.01, 1.0, 0.2], [1.0, 3.0, 2.0, np.nan])
    x, y, values = (np.repeat(column, 100) for column in (x, y, values))  # cells are as fine as the postures are many
    for better, corner in ((True, 3.0), (False, 1.0)):
        *_, best = best_in_cells(x, y, values, better)
        assert best[0, 0] == corner
        assert best[-1, -1] == 2.0
        assert np.isfinite(best).sum() == 2


def test_infinite_stiffness_is_drawn_as_no_value(maps, tmp_path):
    """As of a robot without compliances, over one coordinate and over three."""
    found = maps["greatest_stiffness"]
    grid = found.postures.grid[1:]
    values = np.full(found.values.shape, np.inf)
    cube = over_q5(found, np.stack([values, values], axis=-1), found.postures.position)
    zones = find_zones(values[0], grid, np.inf, True)
    postures = dataclasses.replace(found.postures, over=("q3",), grid=grid, revolute=(True,))
    line = dataclasses.replace(
        found, values=values[0], postures=postures, determinant=None, zones=zones, threshold=np.inf
    )
    sections = posture_map_sections({"cube": cube, "line": line})
    assert len(write_pictures(sections, tmp_path)) == 3
    assert sections[1].parts[0].rows[0][-1] == "infinite"


def test_titles_say_what_a_map_is_of(maps):
    said = joint_space_chart(maps["dexterity"]).note
    assert "L = 1 m" in said
    assert "q4 = q5 = q6 = 45 deg, q1 = 0" in said
    assert "load 0, 0, -2000 N" in workspace_chart(maps["nu_r"]).note
    assert "load" not in joint_space_chart(maps["greatest_stiffness"]).note


def test_a_workspace_fills_its_figure(maps):
    """The bar is as tall as the axes, and a tall workspace has a narrow figure."""
    found = maps["dexterity"]
    narrow = dataclasses.replace(found.postures, position=found.postures.position * np.array([0.3, 1.0, 1.0]))
    tall = dataclasses.replace(found, postures=narrow)
    widths = []
    for shown in (found, tall):
        figure = figure_of(workspace_chart(shown, "xz"))
        figure.draw_without_rendering()
        axes, bar = (a.get_position() for a in figure.axes)
        assert bar.height == pytest.approx(axes.height, rel=0.02)
        assert axes.width > 0.3
        widths.append(figure.get_figwidth())
    assert widths[1] < 0.8 * widths[0]


def test_the_name_of_a_small_zone_stands_beside_it(maps):
    found = maps["dexterity"]
    zone = found.zones[0]
    small = np.zeros_like(zone.mask)
    small[tuple(np.argwhere(zone.mask)[0])] = True
    for mask, beside in ((zone.mask, False), (small, True)):
        figure = figure_of(joint_space_chart(dataclasses.replace(found, zones=(dataclasses.replace(zone, mask=mask),))))
        assert (figure.axes[0].texts[0].arrow_patch is not None) == beside


def test_bands():
    assert np.all(np.diff(bands(np.array([0.0, 1.0]))) == pytest.approx(0.1))
    wide = bands(np.array([0.3, 40.0, np.nan]), True)
    np.testing.assert_allclose(wide, [0.2, 0.5, 1, 2, 5, 10, 20, 50])
    assert len(bands(np.full(4, 2.0))) > 1


def test_placement():
    def placement(x, cost, possible=True):
        nothing = np.full(3, np.nan)
        place = {"x": x, "y": 0.0, "z": 0.0, "yaw": 0.0, "spin": 0.1}
        along = np.full(3, cost) if possible else nothing
        return Placement(place, possible, "", cost, np.zeros((3, 6)), along, along)

    grid = {"x": np.array([1.0, 1.5]), "y": np.zeros(1), "z": np.zeros(1), "yaw": np.zeros(1), "spin": np.arange(3.0)}
    cost = np.array([[2e-4, 3e-4, np.inf], [np.inf, np.inf, np.inf]]).reshape(2, 1, 1, 1, 3)
    settings = PlacementSettings(length_m=1.0, limits={})
    result = PlacementResult("robot", "tool", "max", placement(1.1, 1e-4), placement(1.5, np.inf, False), grid, cost,
                             np.zeros(cost.shape, dtype=int), 6, settings)  # fmt: skip
    with matplotlib.rc_context():
        chart = placement_chart(result)
        left, bar, _ = figure_of(chart).axes
    assert left.get_xlabel() == "x (m)"
    assert left.get_ylabel() == "spin (deg)"
    assert bar.get_ylabel() == "largest deflection along the path (mm)"
    shown = left.collections[0].get_array()
    assert shown.count() == 2  # what is not possible is left blank
    assert [mark.label for mark in chart.legend()] == ["naive", "best", "best: 0.1 mm"]
