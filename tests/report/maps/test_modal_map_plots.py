"""Figures of modal maps show the values, what is known of them, and what is not reached."""

import numpy as np
import pytest

from jaxmb.maps import ModalMap, ModalMaps, Postures
from jaxmb.maps.modal import ModalMapSettings
from jaxmb.report.modal_maps import modal_map_figure, modal_map_sections
from jaxmb.report.section import write_pictures

X, Z = np.linspace(0.0, 1.0, 7), np.linspace(0.0, 2.0, 8)


def maps(over, grid, modes=3, std=0.1, unknown=None, gap=True):
    shape = tuple(len(axis) for axis in grid)
    places = np.zeros((*shape, 2))
    values = 5.0 + np.add.outer(np.indices(shape).sum(axis=0), np.arange(modes))
    if gap:
        places[0], values[0] = np.nan, np.nan
    postures = Postures(over, grid, (False,) * len(over), places, ("q1", "q2"), np.zeros((*shape, 3)), "tool", {},
                        ("q1", "q2"))  # fmt: skip
    spread = None if std is None else np.where(np.isnan(values), np.nan, std)
    found = {
        "frequency": ModalMap("frequency", "Hz", values, spread, unknown or {}),
        "static_compliance": ModalMap("static_compliance", "m/N", 1e-6 * values[..., 0], None, {}),
    }
    return ModalMaps("robot", "tool", postures, found, None, (), ModalMapSettings(modes, (1.0, 0.0, 0.0), None, ()))


def test_planes():
    figure = modal_map_figure(maps(("tool.x", "tool.z"), (X, Z)), "frequency")
    titles = [axes.get_title() for axes in figure.axes if axes.get_title()]
    assert titles.count("relative std (%)") == 3
    assert [t for t in titles if t.startswith("mode")] == ["mode 1 (Hz)", "mode 2 (Hz)", "mode 3 (Hz)"]
    assert figure.axes[0].get_ylabel() == "tool.z (m)"
    assert "grey: not reached" in figure.get_suptitle()


def test_one_map_without_std():
    figure = modal_map_figure(maps(("tool.x", "tool.z"), (X, Z), gap=False), "static_compliance")
    assert len(figure.axes) == 2  # the map and its bar
    assert "(µm/N)" in figure.axes[0].get_title()
    assert "direction 1, 0, 0" in figure.get_suptitle()
    assert "grey" not in figure.get_suptitle()


def test_a_path_has_a_band_of_95_percent():
    found = maps(("path",), (X,), modes=2, std=0.5, gap=False)
    axes = modal_map_figure(found, "frequency").axes[0]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["mode 1", "mode 2"]
    assert "along the path" in axes.get_xlabel()
    for m, (line, band) in enumerate(zip(axes.lines, axes.collections, strict=True)):
        y = found.maps["frequency"].values[:, m]
        np.testing.assert_allclose(line.get_ydata(), y)
        corners = band.get_paths()[0].vertices
        assert corners[:, 1].max() == pytest.approx(y.max() + 1.96 * 0.5)
        assert corners[:, 1].min() == pytest.approx(y.min() - 1.96 * 0.5)


def test_the_unknown_is_named():
    found = maps(("tool.x", "tool.z"), (X, Z), std=np.nan, unknown={"stiffness.q1": 0.7})
    figure = modal_map_figure(found, "frequency")
    assert "std unknown where values depend on stiffness.q1" in " ".join(figure.get_suptitle().split())
    assert not any("std" in axes.get_title() for axes in figure.axes)


def test_more_modes_than_columns_and_three_axes(tmp_path):
    found = maps(("tool.x", "tool.z", "tool.y"), (X, Z, X), modes=5)
    figure = modal_map_figure(found, "frequency")
    assert sum(axes.get_visible() and axes.get_title().startswith("mode") for axes in figure.axes) == 5
    assert "at the middle of the other axes" in figure.get_suptitle()
    written = write_pictures(modal_map_sections(found), tmp_path)
    assert [path.name for path in written] == ["frequency.png", "static-compliance.png"]
