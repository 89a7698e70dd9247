"""Poles selected with the pointer: simulated events on matplotlib's Agg canvas."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from matplotlib import pyplot
from matplotlib.backend_bases import MouseButton, MouseEvent
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from jaxmb.cli import main
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.report import pick
from jaxmb.report.pick import SIZE, pick_poles

MODES = np.array([[11.0, 0.012], [11.4, 0.009], [23.0, 0.006]])
"""Frequency and damping."""


@pytest.fixture(scope="module")
def measured():
    rng = np.random.default_rng(2)
    shape = rng.normal(size=(4, 3))
    s = 2j * np.pi * np.arange(6.0, 30.0, 0.05)[:, None]
    omega, zeta = 2 * np.pi * MODES[:, 0], MODES[:, 1]
    h = np.einsum("or,ir,fr->foi", shape, shape[:2], s**2 / (s**2 + 2 * zeta * omega * s + omega**2))
    h += 1e-3 * np.abs(h).mean() * (rng.normal(size=h.shape) + 1j * rng.normal(size=h.shape))
    names = tuple(f"{n} z" for n in range(1, 5))
    return FrfSet(s[:, 0].imag / (2 * np.pi), h, "accelerance", names, names[:2], source="hits\n\x1b.uff")


def agg(name="poles"):
    figure = Figure(figsize=SIZE)
    FigureCanvasAgg(figure)
    return figure


@pytest.fixture
def picker(measured):
    return pick_poles(measured, max_order=16, figure=agg())


def pole_near(picker, frequency_hz, order=14):
    """Pole of the chart nearest to a frequency at an order."""
    chart = picker.found.chart
    return int(np.argmin(np.abs(chart.frequency_hz - frequency_hz) + 1e3 * (chart.order != order)))


def pointer(picker, kind, pole, offset=0.0):
    """An event at a pole, or beside it by an offset in pixels."""
    chart, canvas = picker.found.chart, picker.figure.canvas
    axes = picker.figure.axes[0]
    x, y = axes.transData.transform((chart.frequency_hz[pole], chart.order[pole]))
    canvas.callbacks.process(
        f"button_{kind}_event", MouseEvent(f"button_{kind}_event", canvas, x, y + offset, MouseButton.LEFT)
    )


def drag(picker, first, last):
    pointer(picker, "press", first)
    pointer(picker, "release", last)


def click(picker, pole):
    drag(picker, pole, pole)


def frequencies(picker):
    return [] if picker.analysis is None else picker.analysis.frequency_hz.tolist()


def test_modes_are_dropped_and_added(picker):
    assert frequencies(picker) == pytest.approx(MODES[:, 0], rel=1e-4)
    for hz in MODES[:, 0]:
        click(picker, pole_near(picker, hz))
    assert picker.analysis is None
    click(picker, pole_near(picker, 23.0, order=10))
    assert frequencies(picker) == pytest.approx([23.0], rel=1e-4)
    assert picker.chosen[0][0] == 10
    assert picker.figure.texts[0].get_text().startswith("poles: 1 mode selected")


def test_merged_poles_are_one_mode_and_written(picker, measured, tmp_path):
    drag(picker, pole_near(picker, 11.0), pole_near(picker, 11.4))
    assert len(frequencies(picker)) == 2
    drag(picker, pole_near(picker, 11.0), pole_near(picker, 11.4))
    assert len(frequencies(picker)) == 2
    assert "already" in picker.message
    write_frf(tmp_path / "set.npz", measured)
    picker.write(tmp_path / "poles.toml")
    command = ["modal", str(tmp_path / "set.npz"), "--poles-hz", str(tmp_path / "poles.toml")]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    poles = json.loads((tmp_path / "out" / "modal.json").read_text())["poles"]
    for key in ("frequency_hz", "damping_ratio"):
        again = [pole[key] for pole in poles]
        np.testing.assert_allclose(again, getattr(picker.analysis, key), rtol=1e-9)  # digits of the file
    # the two modes as one are no longer those of the structure
    assert min(abs(poles[0]["frequency_hz"] - hz) for hz in MODES[:2, 0]) > 1e-3
    # the file is a first selection as well
    again = pick_poles(measured, max_order=16, chosen=picker.chosen, figure=agg())
    assert again.toml() == picker.toml()


def test_what_is_no_click_on_a_pole(picker):
    before = picker.chosen
    pole = pole_near(picker, 23.0)
    pointer(picker, "press", pole, offset=40.0)
    pointer(picker, "release", pole)
    picker.figure.canvas.toolbar = type("Toolbar", (), {"mode": "zoom rect"})()
    click(picker, pole)
    assert picker.chosen == before


def test_response_and_zoom_follow(picker):
    axes = picker.figure.axes
    axes[0].set_xlim(20.0, 26.0)
    title = axes[2].get_title()
    canvas = picker.figure.canvas
    x, y = axes[2].transAxes.transform((0.5, 0.5))
    canvas.callbacks.process("button_press_event", MouseEvent("button_press_event", canvas, x, y, MouseButton.LEFT))
    assert axes[2].get_title() != title
    click(picker, pole_near(picker, 23.0))
    assert axes[0].get_xlim() == (20.0, 26.0)
    # without its mode the highest peak of the synthesized response is no longer there
    (given,), (curve,) = (
        [line for line in axes[2].lines if line.get_color() == each] for each in ("#b3b3b3", "#0072B2")
    )
    peak = np.argmin(np.abs(given.get_xdata() - 23.0))
    assert curve.get_ydata()[peak] < 0.2 * given.get_ydata()[peak]


def test_command(measured, tmp_path, monkeypatch, capsys):
    write_frf(tmp_path / "set.npz", measured)
    command = ["modal", str(tmp_path / "set.npz"), "--order", "16", "--out", str(tmp_path / "out")]
    assert main([*command, "--pick"]) == 2
    assert "ipympl" in capsys.readouterr().err
    pickers = []

    class Kept(pick.PolePicker):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            pickers.append(self)

    monkeypatch.setattr(pick, "PolePicker", Kept)
    monkeypatch.setattr(pick, "window", agg)
    monkeypatch.setattr(pyplot, "show", lambda: click(pickers[-1], pole_near(pickers[-1], 11.4)))
    assert main([*command, "--pick"]) == 0
    found = json.loads((tmp_path / "out" / "modal.json").read_text())
    assert [pole["frequency_hz"] for pole in found["poles"]] == pytest.approx([11.0, 23.0], rel=1e-3)
    assert main([*command, "--pick", "--poles-hz", str(tmp_path / "out" / "poles.toml")]) == 0
    assert "max_order = 16" in (tmp_path / "out" / "poles.toml").read_text()
    assert len(json.loads((tmp_path / "out" / "modal.json").read_text())["poles"]) == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[modal]\nchosen_hz = [[0, 11.0]]\n", "modal, chosen_hz"),
        ("[modal]\nchosen_hz = [[8, 11.0, 3.0]]\n", "modal, chosen_hz"),
        ("[modal]\nchosen_hz = ['11']\n", "modal, chosen_hz number 1"),
        ("chosen_hz = [11.0]\n", "unknown key"),
        ("[modal]\nchosen_hz = [[8, 17.0]]\n", "order 8, 17 Hz"),
    ],
)
def test_wrong_files(text, message, measured, tmp_path, capsys):
    write_frf(tmp_path / "set.npz", measured)
    (tmp_path / "poles.toml").write_text(text)
    command = ["modal", str(tmp_path / "set.npz"), "--order", "8", "--poles-hz", str(tmp_path / "poles.toml")]
    assert main([*command, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line


@pytest.mark.parametrize("name", ["webagg", "module://nowhere", "agg"])
def test_without_a_window(name, measured, tmp_path):
    """A toolkit that is not installed, an unknown one, and none: one line."""
    write_frf(tmp_path / "set.npz", measured)
    program = "import sys; sys.modules['tornado'] = None; from jaxmb.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "modal", str(tmp_path / "set.npz"), "--pick"]
    done = subprocess.run(command, env=os.environ | {"MPLBACKEND": name}, capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("jaxmb: ")]
    assert name in line
    assert "Traceback" not in done.stderr
