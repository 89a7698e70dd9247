"""Figures of modal maps show the values, what is known of them, and what is not reached."""

import dataclasses

import numpy as np

from jaxmb.maps import ModalMap, ModalMaps, Postures
from jaxmb.maps.modal import ModalMapSettings
from jaxmb.report.modal_maps import modal_map_chart, modal_map_sections
from jaxmb.report.rendering import figure_of, write_pictures

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
    chart = modal_map_chart(maps(("tool.x", "tool.z"), (X, Z)), "frequency")
    titles = [panel.title for panel in chart.panels]
    assert titles.count("relative std (%)") == 3
    assert [t for t in titles if t.startswith("mode")] == ["mode 1 (Hz)", "mode 2 (Hz)", "mode 3 (Hz)"]
    assert chart.panels[0].y.label == "tool.z (m)"
    assert "grey: not reached" in chart.note
    figure_of(chart).draw_without_rendering()


def test_planes_of_narrow_ranges_have_no_common_scale():
    """Of a stroke of 2 m over one of 10 mm panels would be 30 m high."""
    for grid, equal in (((X, Z), True), ((0.01 * X, Z), False), ((X, 0.01 * Z), False)):
        panel = modal_map_chart(maps(("x", "z"), grid), "frequency").panels[0]
        assert panel.equal is equal
        assert 1.0 < panel.height < 5.0


def test_one_map_without_std():
    chart = modal_map_chart(maps(("tool.x", "tool.z"), (X, Z), gap=False), "static_compliance")
    (panel,) = chart.panels
    assert "(µm/N)" in panel.title
    assert "direction 1, 0, 0" in chart.title
    assert "grey" not in chart.note
    assert len(figure_of(chart).axes) == 2  # the map and its bar


def test_a_path_has_a_band_of_95_percent():
    found = maps(("path",), (X,), modes=2, std=0.5, gap=False)
    chart = modal_map_chart(found, "frequency")
    assert [mark.label for mark in chart.legend()] == ["95 % interval", "mode 1", "mode 2"]
    (panel,) = chart.panels
    assert "along the path" in panel.x.label
    bands, curves = panel.marks[:2], panel.marks[2:]
    for m, (line, band) in enumerate(zip(curves, bands, strict=True)):
        y = found.maps["frequency"].values[:, m]
        np.testing.assert_allclose(line.y, y)
        np.testing.assert_allclose(band.high, y + 1.96 * 0.5)
        np.testing.assert_allclose(band.low, y - 1.96 * 0.5)


def test_a_path_without_values_is_unknown():
    """As of the largest response of a machine without damping."""
    found = maps(("path",), (X,), modes=2, gap=False)
    plain = found.maps["frequency"]
    found.maps["frequency"] = dataclasses.replace(plain, values=np.full_like(plain.values, np.nan))
    assert modal_map_chart(found, "frequency").title.endswith(": unknown")


def test_the_unknown_is_named():
    found = maps(("tool.x", "tool.z"), (X, Z), std=np.nan, unknown={"stiffness.q1": 0.7})
    chart = modal_map_chart(found, "frequency")
    assert "std unknown where values depend on stiffness.q1" in chart.title
    assert not any("std" in panel.title for panel in chart.panels)


def test_more_modes_than_columns_and_three_axes(tmp_path):
    found = maps(("tool.x", "tool.z", "tool.y"), (X, Z, X), modes=5)
    chart = modal_map_chart(found, "frequency")
    assert sum(panel.title.startswith("mode") for panel in chart.panels) == 5
    assert "at the middle of the other axes" in chart.title
    written = write_pictures(modal_map_sections(found), tmp_path)
    assert [path.name for path in written] == ["frequency.png", "static-compliance.png"]
