"""`jaxmb modal` from a file to poles, and what it says of wrong input."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

from jaxmb.cli import main
from jaxmb.measurement.files.frf_file import read_frf, write_frf
from jaxmb.measurement.frf_set import FrfSet, of_each_input, select_channels, to_si
from jaxmb.measurement.modal.analysis import modal_analysis
from jaxmb.report.charts import Rule
from jaxmb.report.modal import coherence_chart, stabilization_chart, synthesized, synthesized_chart

POLES = np.array([[11.0, 0.012], [11.2, 0.009], [23.0, 0.006]])
"""Frequency and damping of the modes that were measured."""


@pytest.fixture
def measured():
    rng = np.random.default_rng(2)
    shape = rng.normal(size=(4, 3))
    s = 2j * np.pi * np.arange(4.0, 35.0, 0.05)[:, None]
    omega, zeta = 2 * np.pi * POLES[:, 0], POLES[:, 1]
    modal = s**2 / (s**2 + 2 * zeta * omega * s + omega**2)
    h = np.einsum("or,ir,fr->foi", shape, shape[:2], modal)
    h += 1e-3 * np.abs(h).mean() * (rng.normal(size=h.shape) + 1j * rng.normal(size=h.shape))
    names = tuple(f"{n} z" for n in range(1, 5))
    return FrfSet(s[:, 0].imag / (2 * np.pi), h, "accelerance", names, names[:2])


def analysed(tmp_path, *options):
    assert main(["modal", str(tmp_path / "set.npz"), "--out", str(tmp_path / "out"), *options]) == 0
    text = (tmp_path / "out" / "modal.json").read_text()
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in modal.json"))


def test_poles_files_and_figures(measured, tmp_path, capsys):
    write_frf(tmp_path / "set.npz", measured)
    found = analysed(tmp_path, "--band-hz", "5", "30", "--order", "30")
    frequency, damping = (np.array([pole[k] for pole in found["poles"]]) for k in ("frequency_hz", "damping_ratio"))
    np.testing.assert_allclose(frequency, POLES[:, 0], rtol=1e-4)
    np.testing.assert_allclose(damping, POLES[:, 1], rtol=1e-2)
    for pole, truth in zip(found["poles"], POLES, strict=True):
        # five standard deviations of the noise that was added
        assert abs(pole["frequency_hz"] - truth[0]) < 5 * pole["frequency_std_hz"]
        assert abs(pole["damping_ratio"] - truth[1]) < 5 * pole["damping_std"]
        assert pole["mpc"] > 0.99
    assert found["median_frac"] > 0.999
    assert found["options"]["band_hz"] == [5.0, 30.0]
    again = read_frf(tmp_path / "out" / "synthesized.npz")
    assert again.outputs == measured.outputs
    assert again.frequency_hz[0] == pytest.approx(5.0)
    np.testing.assert_array_equal(read_frf(tmp_path / "out" / "measured.npz").frf, measured.frf)
    for name in ("stabilization", "cmif", "synthesized", "automac"):
        assert (tmp_path / "out" / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "11.2" in printed
    assert "damping % of critical   ± std" in printed
    assert "4 outputs, 2 inputs" in printed
    assert not (tmp_path / "out" / "figures" / "coherence.png").exists()


def test_one_output_and_its_coherence(measured, tmp_path, capsys):
    noisy = dataclasses.replace(measured, coherence=np.full(measured.frf.shape[:2], 0.9), averages=5)
    write_frf(tmp_path / "set.npz", select_channels(noisy, ["3 z"], ["1 z"]))
    analysed(tmp_path, "--band-hz", "15", "30", "--order", "20")
    assert "1 output, 1 input, unit" in capsys.readouterr().out
    assert (tmp_path / "out" / "figures" / "coherence.png").read_bytes().startswith(b"\x89PNG")


def test_a_description_of_hits(tmp_path, capsys):
    force = np.zeros(8000)
    for at, peak in ((500, 100.0), (2500, 80.0), (4500, 60.0)):
        force[at : at + 9] = peak * np.sin(np.pi * np.arange(1, 10) / 10)
    pole = 2 * np.pi * 20.0 * (-0.02 + 1j) / 500.0
    answer = np.convolve(force, np.imag(np.exp(pole * np.arange(4000))))[:8000]
    np.savez(tmp_path / "hits.npz", data=np.column_stack([force, answer, 2.0 * answer]))
    (tmp_path / "hits.TOML").write_text(
        'sample_rate_hz = 500.0\nrecord = [{ file = "hits.npz" }]\nforces = { columns = [1] }\n'
        'responses = { columns = [2, 3], unit = "g" }\nmethod = { kind = "hits", block = 1500, end_level = 0.01 }\n'
    )
    command = ["modal", str(tmp_path / "hits.TOML"), "--band-hz", "5", "50", "--order", "10"]
    assert main([*command, "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "hits: 3 of 3 used, peak force 60 to 100 N, df 0.333333 Hz" in printed
    assert "unit g/N" in printed


def test_single_hits_of_records_are_analysed(tmp_path, capsys):
    rng, data = np.random.default_rng(2), []
    pulse = 100.0 * np.sin(np.pi * np.arange(1, 10) / 10)
    moved = 0.004 * rng.normal(size=6)
    for shift in moved:
        force = np.zeros(1500)
        force[50:59] = pulse
        pole = 2 * np.pi * 20.0 * (1.0 + shift) * (-0.01 + 1j) / 500.0
        answer = np.outer(np.convolve(force, np.imag(np.exp(pole * np.arange(1500))))[:1500], [1.0, 2.0, -1.0])
        data.append(np.column_stack([force, answer + 0.1 * rng.normal(size=answer.shape)]))
    np.savez(tmp_path / "hits.npz", data=np.vstack(data))
    (tmp_path / "hits.toml").write_text(
        'sample_rate_hz = 500.0\nrecord = [{ file = "hits.npz" }]\nforces = { columns = [1] }\nresponses = { columns ='
        ' [2, 3, 4], unit = "g" }\nmethod = { kind = "hits", block = 1400, pre_trigger_s = 0.05, end_level = 0.01 }\n'
    )
    command = ["modal", str(tmp_path / "hits.toml"), "--band-hz", "5", "50", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    assert "natural frequencies differ between hits" in " ".join(capsys.readouterr().out.split())
    (pole,) = json.loads((tmp_path / "out" / "modal.json").read_text())["poles"]
    assert pole["frequency_hz"] == pytest.approx(20.0 * (1.0 + moved.mean()), rel=1e-4)
    assert pole["damping_ratio"] == pytest.approx(0.01, rel=0.01)


def test_figures_say_what_they_show(measured):
    measured = dataclasses.replace(measured, coherence=np.linspace(0.5, 1.0, 620 * 4).reshape(620, 4))
    analysis = modal_analysis(measured, band_hz=(5.0, 30.0), max_order=30)
    compared = synthesized(analysis, measured)
    note = synthesized_chart("rig", compared).note
    assert note.endswith("of 4 outputs, by median FRAC, those explained best, in the middle and worst")
    (panel,) = coherence_chart("rig", analysis, compared).panels
    assert panel.y.label == "multiple coherence"
    line = panel.marks[-1]
    np.testing.assert_allclose(line.y, np.median(measured.coherence[20:521], axis=1))
    np.testing.assert_allclose(line.x, compared.measured.frequency_hz)
    poles, indicator = stabilization_chart("rig", analysis, compared.measured).panels
    # lines of the poles are below their symbols
    assert [isinstance(mark, Rule) for mark in poles.marks] == [True] * 3 + [False] * 4
    np.testing.assert_allclose([mark.at for mark in poles.marks[:3]], analysis.frequency_hz)
    assert indicator.y.log


def test_the_title_of_a_stabilization_chart_does_not_call_poles_stable_that_were_chosen_by_hand(measured):
    chart = modal_analysis(measured, band_hz=(5.0, 30.0), max_order=30).chart
    new = int(np.flatnonzero(np.array(chart.label) == "new")[0])
    pole = (int(chart.order[new]), float(chart.frequency_hz[new]))
    analysis = modal_analysis(measured, band_hz=(5.0, 30.0), max_order=30, chosen=[pole])
    title = stabilization_chart("rig", analysis, measured).title
    assert title == "rig: 1 chosen pole from 5 to 30 Hz"


def test_a_band_from_0_hz_of_receptances():
    """Their residual term of lower modes is infinite at 0 Hz, where there may be a line."""
    s = 2j * np.pi * np.arange(0.0, 20.0, 0.05)
    frf = (1.0 / (s**2 + 2 * 0.01 * 60.0 * s + 60.0**2))[:, None, None]
    static = FrfSet(np.imag(s) / (2 * np.pi), frf, "receptance", ("1 z",), ("1 z",))
    compared = synthesized(modal_analysis(static, (0.0, 19.0), 8), static)
    assert compared.measured.frequency_hz[0] == pytest.approx(0.05)
    np.testing.assert_allclose(compared.synthesized.frf, compared.measured.frf, rtol=1e-6)


def test_coherence_of_one_of_two_inputs(measured):
    """That of both inputs is converted to that of each, as for an analysis of one input."""
    measured = dataclasses.replace(measured, coherence=np.linspace(0.5, 1.0, 620 * 4).reshape(620, 4))
    analysis = modal_analysis(measured, band_hz=(5.0, 30.0), max_order=30, references=("2 z",))
    compared = synthesized(analysis, measured)
    expected = of_each_input(measured.coherence, measured.frf, None)[20:521, :, 1:]
    np.testing.assert_allclose(compared.measured.coherence, expected)
    (panel,) = coherence_chart("rig", analysis, compared).panels
    assert panel.y.label == "coherence"


def test_a_unit_that_the_file_contradicts(measured, tmp_path, capsys):
    write_frf(tmp_path / "set.npz", dataclasses.replace(measured, unit="g/N"))
    command = ["modal", str(tmp_path / "set.npz"), "--out", str(tmp_path / "out"), "--unit"]
    assert main([*command, "mm/s^2/N"]) == 2
    assert "states g/N: expected that or none" in capsys.readouterr().err
    # SI is the default of other formats, but stated in a universal file
    write_frf(tmp_path / "set.uff", to_si(measured))
    assert main(["modal", str(tmp_path / "set.uff"), "--out", str(tmp_path / "out"), "--unit", "g/N"]) == 2
    assert f"states {to_si(measured).unit}: expected that or none" in capsys.readouterr().err


def test_options_change_what_they_say(measured, tmp_path):
    write_frf(tmp_path / "set.npz", measured)
    by_hand = analysed(tmp_path, "--band-hz", "5", "30", "--order", "20", "--poles-hz", "23.0")
    assert [round(pole["frequency_hz"]) for pole in by_hand["poles"]] == [23]
    one = analysed(tmp_path, "--band-hz", "15", "30", "--order", "20", "--references", "2 z", "--unit", "g/N")
    assert one["inputs"] == ["2 z"]
    assert one["unit"] == "g/N"
    assert len(one["poles"]) == 1
    lsce = analysed(tmp_path, "--band-hz", "5", "30", "--method", "lsce")
    assert [round(pole["frequency_hz"], 1) for pole in lsce["poles"]] == [11.0, 11.2, 23.0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--band-hz", "30", "5"), "30"),
        (("--band-hz", "100", "200"), "no line"),
        (("--references", "9 x"), "9 x"),
        (("--poles-hz", "abc"), "--poles-hz is 'abc'"),
        (("--poles-hz", "17.5"), "17.5"),
        (("--poles-hz", "23, nan"), "--poles-hz is ' nan', expected a finite number"),
        (("--poles-hz", "-11,23"), "--poles-hz is -11.0, expected a number above 0"),
        (("--poles-hz", "23,23.01"), "chosen pole 23.01 Hz: the chart has none within 3% that is not selected already"),
        (("--method", "guess"), "guess"),
    ],
)
def test_wrong_options_are_one_line(measured, tmp_path, capsys, options, message):
    write_frf(tmp_path / "set.npz", measured)
    assert main(["modal", str(tmp_path / "set.npz"), "--out", str(tmp_path / "out"), *options]) == 2
    (line,) = capsys.readouterr().err.strip().split("\n")
    assert message in line


@pytest.mark.parametrize("name", ["nowhere.npz", "nothing", "set.docx"])
def test_files_that_are_none(tmp_path, capsys, name):
    assert main(["modal", str(tmp_path / name)]) == 2
    (line,) = capsys.readouterr().err.strip().split("\n")
    assert name in line


def test_public_data_that_are_not_there(monkeypatch, capsys):
    monkeypatch.delenv("JAXMB_DATA", raising=False)
    for command in (["modal", "daisy-subframe"], ["identify", "daisy-arm"]):
        assert main(command) == 2
        (line,) = capsys.readouterr().err.strip().split("\n")
        assert "JAXMB_DATA is not set" in line
        assert "github.com" in line


@pytest.mark.skipif(
    not (Path(os.environ.get("JAXMB_DATA", "/nowhere")) / "daisy-subframe").is_dir(),
    reason="the public measurements are not there: JAXMB_DATA does not name their folder",
)
def test_the_subframe_has_the_modes_of_its_peaks(tmp_path):
    """Peaks of the mode indicator that were listed independently; no other pole, and the model explains the FRFs."""
    out = tmp_path / "out"
    assert main(["modal", "daisy-subframe", "--band-hz", "20", "480", "--out", str(out)]) == 0
    found = json.loads((out / "modal.json").read_text())
    frequency = np.array([pole["frequency_hz"] for pole in found["poles"]])
    peaks = np.array([62, 119, 155, 193, 215, 230, 239, 287, 321, 334, 352, 398, 417, 468])
    assert np.abs(frequency[None, :] / peaks[:, None] - 1.0).min(axis=1).max() < 0.01
    assert frequency.size <= peaks.size + 2
    assert found["median_frac"] >= 0.96
