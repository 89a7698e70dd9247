"""What a window takes from lightly damped peaks, and when that is said."""

import dataclasses

import numpy as np
import pytest
from scipy import signal

from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.records.time_records import leakage_remark, peak_loss, segment_for


def test_peak_loss_in_closed_form():
    x = np.array([0.5, 5.0, 50.0, 500.0])
    # Boxcar: rho = 1 - t / T.
    np.testing.assert_allclose(peak_loss("boxcar", x), (1 - np.exp(-x)) / x, rtol=1e-9)
    # Hann, long segments: second moment of its kernel, a third of a line squared; the next term is of order 1 / x^3.
    np.testing.assert_allclose(peak_loss("hann", x[2:]), (2 * np.pi / x[2:]) ** 2 / 3, rtol=0.02)
    # Whatever the window, its correlation on any grid: one way more, by quadrature.
    for name in ("hamming", "flattop", "blackmanharris"):
        w = signal.get_window(name, 1 << 14)
        rho = signal.correlate(w, w, method="fft")[w.size - 1 :]
        t = np.arange(w.size) / w.size
        kept = np.trapezoid(rho / rho[0] * np.exp(-20.0 * t), t) * 20.0
        assert peak_loss(name, np.array([20.0]))[0] == pytest.approx(1 - kept, abs=2e-5)


@pytest.mark.parametrize("window", ["hann", "boxcar", "flattop"])
@pytest.mark.parametrize("loss", [0.1, 0.01, 1e-4])
def test_segment_for_a_peak(window, loss):
    samples = segment_for(window, 0.8, 100.0, loss)
    at = peak_loss(window, np.array([0.8 * samples / 100.0, 0.8 * samples / 100.0 / 1.1]))
    # On a grid of 3.5 %: no more is lost than asked for, and a tenth shorter would lose more.
    assert at[0] <= loss * 1.0001 < at[1]


def resonance(line_hz, half_width_hz=0.5, coherence=0.9):
    """One mode at 20 Hz on lines of a given spacing."""
    f = np.arange(1, round(50 / line_hz)) * line_hz
    h = 1 / (1j * (f - 20.0) + half_width_hz) + 1e-3
    return FrfSet(f, h[:, None, None], "receptance", coherence=np.full((f.size, 1), coherence))


def test_remark():
    # The rule: (line / half width)^2 / 3 is 1 % at a line of 0.173 half widths.
    assert leakage_remark(resonance(0.08)) is None
    assert leakage_remark(resonance(0.1)) == (
        "the peak at 20 Hz is 10.2 lines wide: leakage lowers it by 1% or more,"
        " expected segments at least 2 times as long"
    )
    # A half width of two lines loses 7 %; three lines take the peak for wider, and name a little less than it loses.
    assert peak_loss("hann", np.array([4 * np.pi]))[0] == pytest.approx(0.07, abs=5e-3)
    assert "is 4.5 lines wide: leakage lowers it by 6% or more" in leakage_remark(resonance(0.25))
    assert "at least 3 times as long" in leakage_remark(resonance(0.25))
    # The window that decides is the one that was used.
    assert leakage_remark(resonance(0.08), "flattop") is not None
    # What is not coherent, does not stand out or has no value is not judged.
    assert leakage_remark(resonance(0.25, coherence=0.3)) is None
    flat = dataclasses.replace(resonance(0.25), frf=np.ones((199, 1, 1)))
    assert leakage_remark(flat) is None
    assert leakage_remark(dataclasses.replace(flat, frf=np.full((199, 1, 1), np.nan))) is None
    assert leakage_remark(FrfSet([1.0, 2.0], np.ones((2, 1, 1)), "mobility")) is None
