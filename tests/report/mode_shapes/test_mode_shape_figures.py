"""Figures of mode shapes show the machine as it is and as it is displaced, at one scale, and name the mode."""

import numpy as np
import pytest
from matplotlib.colors import to_rgba

import jaxmb
from jaxmb.report import drawing, mode_shape_figures, mode_shape_grid
from jaxmb.report.mode_shapes import AT_REST, DISPLACED, mode_shape_sections


@pytest.fixture(scope="module", params=["kuka-kr90", "two-flexible-links", "manipulator-3r"])
def machine(request):
    model = jaxmb.build_model(jaxmb.load_machine(request.param))
    return model, jaxmb.modes(jaxmb.linearize(model, model.reference))


def lines_of(axes, color):
    drawn = [np.column_stack(line.get_data()) for line in axes.lines
             if line.get_linestyle() != "None" and to_rgba(line.get_color()) == to_rgba(color)]  # fmt: skip
    return [points[np.isfinite(points[:, 0])] for points in drawn]


def test_grid(machine, overlapping):
    """Each mode from the side and from above, at one scale."""
    model, found = machine
    with drawing():
        figure = mode_shape_grid(model, model.reference, found=found)
        assert overlapping(figure) == []
    count = min(6, found.frequency_hz.size)
    titles = [f"mode {m + 1}: {f:.4g} Hz, damping {100 * d:.2f} %" for m, (f, d) in
              enumerate(zip(found.damped_frequency_hz[:count], found.damping_ratio[:count], strict=True))]  # fmt: skip
    assert [axes.get_title() for axes in figure.axes[::2]] == titles
    scales = []
    for axes in figure.axes:
        size = axes.get_window_extent().size
        scales += [size[0] / np.ptp(axes.get_xlim()), size[1] / np.ptp(axes.get_ylim())]
        inside = np.concatenate([*lines_of(axes, AT_REST), *lines_of(axes, DISPLACED)])
        low, high = np.array([axes.get_xlim(), axes.get_ylim()]).T
        assert np.all((inside > low) & (inside < high))
    np.testing.assert_allclose(scales, scales[0])
    shown = {figure.axes[1].get_xlabel()[0], *(axes.get_ylabel()[0] for axes in figure.axes[:2])}
    assert shown == set("xyz")
    assert model.name in figure.texts[0].get_text()
    assert "10 %" in figure.texts[0].get_text()


def test_one_figure_a_mode(machine, overlapping):
    model, found = machine
    with drawing():
        figures = mode_shape_figures(model, model.reference, count=2, found=found)
        assert [overlapping(figure) for figure in figures] == [[], []]
    tool = np.asarray(jaxmb.frame_pose(model, model.reference, "tool"))[:3, 3]
    for figure in figures:
        largest = []
        for axes, horizontal in zip(figure.axes, [figure.axes[1].get_xlabel()[0]] * 2, strict=True):
            at_rest, moved = (np.concatenate(lines_of(axes, color)) for color in (AT_REST, DISPLACED))
            there = tool[["xyz".index(horizontal), "xyz".index(axes.get_ylabel()[0])]]
            assert np.min(np.linalg.norm(at_rest - there, axis=1)) < 1e-9
            assert at_rest.shape == moved.shape
            largest.append(np.max(np.linalg.norm(moved - at_rest, axis=1)) / np.linalg.norm(np.ptp(at_rest, axis=0)))
        assert max(largest) > 0.05  # in one view or the other


def test_modes_are_computed_where_not_given():
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    with drawing():
        figures = mode_shape_figures(model, model.reference)
    assert [figure.axes[0].get_title()[:17] for figure in figures] == [
        "mode 1: 10.18 Hz,",
        "mode 2: 11.24 Hz,",
        "mode 3: 22.59 Hz,",
    ]


def test_a_mode_that_moves_nothing_that_is_drawn(figures_of):
    flywheel = {
        "name": "wheel",
        "mass": 1.0,
        "inertia_products": {"xx": 1, "yy": 1, "zz": 1},
        "joint": [{"name": "q", "stiffness": 9.0}],
    }
    frame = {"name": "tool", "body": "ground", "origin": {"xyz": [1.0, 0.0, 0.0]}}
    model = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "spin", "body": [flywheel], "frame": [frame]}))
    found = jaxmb.modes(jaxmb.linearize(model, model.reference))
    figures = figures_of(mode_shape_sections(model, model.reference, found))
    assert "no drawn point moves" in figures["mode-shapes"].axes[0].get_title()


def test_wrong_counts():
    model = jaxmb.build_model(jaxmb.load_machine("manipulator-3r"))
    with pytest.raises(ValueError, match="count is 0, expected a whole number of at least 1"):
        mode_shape_figures(model, model.reference, count=0)


def test_no_modes():
    body = {"name": "wheel", "mass": 1.0, "inertia_products": {"xx": 1, "yy": 1, "zz": 1}, "joint": [{"name": "q"}]}
    model = jaxmb.build_model(jaxmb.Machine.model_validate({"name": "free", "body": [body]}))
    found = jaxmb.modes(jaxmb.linearize(model, model.reference))
    assert mode_shape_sections(model, model.reference, found) == []
    assert mode_shape_figures(model, model.reference, found=found) == []
    with pytest.raises(ValueError, match="mode 1: 'free' has no such mode"):
        mode_shape_grid(model, model.reference, found=found)
