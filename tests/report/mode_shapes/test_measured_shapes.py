"""Measured mode shapes on their geometry, and modal analyses compared."""

import numpy as np
import pytest

import jaxmb
from jaxmb.cli import main
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.report.modal import SavedAnalysis, compared_analyses
from jaxmb.report.mode_shapes import DRAWN_PART, measured_shapes

NODES = {"1": (0.0, 0.0, 0.0), "2": (1.0, 0.0, 0.0), "3": (1.0, 2.0, 0.0), "4": (9.0, 9.0, 9.0)}
POINTS = ("1 z", "2 -x", "2 z", "3 rx", "tip y")
SHAPES = np.array([[1.0, -0.4, 0.5, 3.0, 2.0], [0.2, 0.6, -0.8, 1.0, -1.0]])


def plate(poles_hz=(11.0, 23.0), noise=1e-4, seed=0):
    """Accelerances of two modes at points of which the last two have no translation at a known position."""
    line_hz = np.arange(5.0, 35.0, 0.05)
    s, omega = 2j * np.pi * line_hz[:, None], 2 * np.pi * np.array(poles_hz)
    modal = s**2 / (s**2 + 0.02 * omega * s + omega**2)
    rng = np.random.default_rng(seed)
    h = np.einsum("ro,ri,fr->foi", SHAPES, SHAPES[:, :1], modal)
    h += noise * (rng.normal(size=h.shape) + 1j * rng.normal(size=h.shape))
    return FrfSet(line_hz, h, "accelerance", POINTS, POINTS[:1], nodes=NODES, trace_lines=[("1", "2", "3")])


def test_nodes_move_as_measured():
    """Along the axes of their sensors; sensors of rotations and of nodes without a position are left out."""
    measured = plate()
    drawn = measured_shapes("plate", jaxmb.modal_analysis(measured), measured)
    assert drawn.structure.lines == (((0, 1, 2), ""),)
    assert [name for _, name in drawn.structure.joints] == ["1", "2", "3"]
    np.testing.assert_array_equal(drawn.points, [NODES[name] for name in "123"])
    for mode, shape, hz in zip(drawn.modes, SHAPES, (11.0, 23.0), strict=True):
        expected = np.array([[0, 0, shape[0]], [-shape[1], 0, shape[2]], [0, 0, 0]])
        likeness = np.vdot(mode.displacement, expected) / np.linalg.norm(mode.displacement) / np.linalg.norm(expected)
        assert abs(likeness) == pytest.approx(1.0, abs=1e-5)
        largest = np.linalg.norm(mode.displacement.real, axis=1).max()
        assert largest == pytest.approx(DRAWN_PART * np.sqrt(5.0))
        assert mode.frequency_hz == pytest.approx(hz, rel=1e-3)
    assert drawn.title == "plate: measured shapes of all modes, 11 to 23 Hz"


def test_without_positions_of_two_moving_nodes_nothing_is_drawn():
    measured = plate()
    analysis = jaxmb.modal_analysis(measured)
    for nodes in ({}, {"1": NODES["1"], "3": NODES["3"]}):
        bare = FrfSet(measured.frequency_hz, measured.frf, measured.kind, POINTS, POINTS[:1], nodes=nodes)
        assert measured_shapes("plate", analysis, bare) is None


def test_analyses_are_compared(tmp_path, capsys):
    """Modes that changed by 2 % and by nothing, and one that only the first has; also on the page."""
    for name, of in (("before", plate()), ("after", plate((11.22, 23.0), seed=1)), ("one", plate((11.0, 50.0)))):
        write_frf(tmp_path / f"{name}.npz", of)
        assert main(["modal", str(tmp_path / f"{name}.npz"), "--out", str(tmp_path / name)]) == 0
    before, after, one = (SavedAnalysis.read(tmp_path / name) for name in ("before", "after", "one"))
    finding, table = compared_analyses(before, after, ("before", "after"))
    assert finding.startswith("before and after: 1 of 2 modes in both differ in frequency by more than 2 standard")
    assert finding.endswith("0 in before and 0 in after have no partner")
    changes = [float(row[3]) for row in table.rows]
    np.testing.assert_allclose(changes, [2.0, 0.0], atol=2e-3)
    assert abs(float(table.rows[1][4])) < 4.0 < 100.0 < float(table.rows[0][4])
    finding, table = compared_analyses(before, one, ("before", "one"))
    assert finding.endswith("1 in before and 0 in one have no partner")
    assert table.rows[1][2:5] == ("-", "-", "-")
    page = tmp_path / "page.html"
    assert main(["report", str(tmp_path / "before"), str(tmp_path / "after"), "--out", str(page)]) == 0
    text = page.read_text()
    assert "1 of 2 modes in both differ" in text
    assert "before: measured shapes of all modes" in text
    (tmp_path / "one" / "modal.json").write_text('{"schema": 1}')
    assert main(["report", str(tmp_path / "before"), str(tmp_path / "one"), "--out", str(page)]) == 2
    assert "one/modal.json: was not written by this version of jaxmb" in capsys.readouterr().err
