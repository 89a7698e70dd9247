"""Rates and accelerations of recorded angles, against what a sine has in closed form."""

import numpy as np
import pytest
from scipy import signal

from jaxmb.measurement.motion.estimate import decimated, low_passed_motion
from jaxmb.measurement.motion.record import MotionRecord, butterworth, decimation, edge, low_pass, rates

RATE, CUTOFF = 1000.0, 20.0
TIME = np.arange(0.0, 4.0, 1.0 / RATE)
INSIDE = slice(edge(RATE, CUTOFF), -edge(RATE, CUTOFF))


def test_slow_motion_passes_without_delay_and_fast_noise_does_not():
    slow, fast = np.sin(2 * np.pi * TIME), 0.1 * np.sin(2 * np.pi * 200.0 * TIME)
    found = low_pass(np.stack([slow + fast, slow], axis=1), RATE, CUTOFF)
    np.testing.assert_allclose(found[INSIDE, 0], slow[INSIDE], atol=2e-4)
    np.testing.assert_allclose(found[INSIDE, 1], slow[INSIDE], atol=2e-4)


def test_the_gain_at_the_cutoff_is_a_half():
    found = low_pass(np.sin(2 * np.pi * CUTOFF * TIME), RATE, CUTOFF)
    assert np.abs(found[INSIDE]).max() == pytest.approx(0.5, rel=1e-2)


@pytest.mark.parametrize(("bands", "rate"), [((10.0, 20.0), 1000.0), ((50.0, 60.0), 800.0)])
def test_pass_and_stop_band(bands, rate):
    """The filters of Pyrhonen et al. 2024: what SciPy's design attenuates, run forwards and backwards, is what sines
    inside of the ends lose."""
    order, corner = butterworth(bands, rate)
    sections = signal.butter(order, corner, fs=rate, output="sos")
    tried = np.array([0.5 * bands[0], bands[0], corner, bands[1]])
    expected = np.abs(signal.sosfreqz(sections, tried, fs=rate)[1]) ** 2
    assert expected[1] >= 10 ** (-1.0 / 20.0) * (1 - 1e-9)
    assert expected[3] <= 10 ** (-60.0 / 20.0) * (1 + 1e-9)
    less = signal.butter(order - 1, corner, fs=rate, output="sos")
    assert np.abs(signal.sosfreqz(less, bands[1:], fs=rate)[1][0]) ** 2 > 10 ** (-60.0 / 20.0)
    time, ends = np.arange(0.0, 4.0, 1.0 / rate), edge(rate, bands)
    for frequency, gain in zip(tried, expected, strict=True):
        wave = np.sin(2 * np.pi * frequency * time)
        np.testing.assert_allclose(low_pass(wave, rate, bands)[ends:-ends], gain * wave[ends:-ends], atol=2e-3)


@pytest.mark.parametrize("rate", [100.0, 1000.0])
def test_rates_of_a_sine(rate):
    time, w = np.arange(0.0, 4.0, 1.0 / rate), 2 * np.pi * 1.5
    velocity, acceleration = rates(np.sin(w * time), rate)
    # central differences of five samples are off by (w h)^4 / 30 and / 90; the second part is rounding
    inside, off = time[2:-2], (w / rate) ** 4
    np.testing.assert_allclose(velocity[2:-2], w * np.cos(w * inside), atol=w * off / 30 + 1e-15 * rate)
    np.testing.assert_allclose(acceleration[2:-2], -(w**2) * np.sin(w * inside), atol=w**2 * off / 90 + 4e-15 * rate**2)
    for part in (velocity, acceleration):
        assert part[0] == part[1] == part[2]
        assert part[-1] == part[-2] == part[-3]


def test_noise_of_decimated_samples_is_nearly_independent():
    noise = low_pass(np.random.default_rng(0).normal(size=200_000), RATE, CUTOFF)[:: decimation(RATE, CUTOFF)]
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.1


@pytest.mark.parametrize(
    ("cutoff", "count", "message"),
    [
        (600.0, 4000, "below half the sampling rate of 1000 Hz"),
        (1.0, 500, "too few for a cut-off at 1 Hz"),
        ((20.0, 10.0), 4000, "pass and stop band are 20 and 10 Hz, expected ascending frequencies below half"),
        ((10.0, 10.1), 4000, "need a filter of order 453, expected bands further apart"),
    ],
)
def test_wrong_cutoffs(cutoff, count, message):
    with pytest.raises(ValueError, match=message):
        low_pass(np.zeros(count), RATE, cutoff)


def test_a_record_of_transients_alone_is_not_decimated():
    """The cut-off permits 10 samples between both transients, of which none is a multiple of the step."""
    cutoff, step = 2.1, 23
    count = 2 * edge(RATE, cutoff) + 10
    record = MotionRecord(TIME[:count], ("a",), np.zeros((count, 1)), np.zeros((count, 1)))
    with pytest.raises(ValueError, match=f"there are {count} samples, too few for filtered torques: none of every 23 "):
        decimated(record, low_passed_motion(record, cutoff), step)
