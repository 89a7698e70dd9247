"""Frequency responses of a known machine come back from simulated hammer hits and shaker noise, and so does damping.

Two arms of two masses each, nearly alike and weakly coupled: two pairs of close modes that every sensor sees. Records
are exact: the response to a band-limited force is computed line by line over a period so long that it has died, so that
neither a time step nor aliasing stands between the estimate and the truth.
"""

import numpy as np
import pytest
import scipy.linalg
from scipy import signal
from scipy.optimize import least_squares

from jaxmb.measurement.records.impacts import cut_hits, estimate_frf_from_hits, find_hits
from jaxmb.measurement.records.spectra import decay_of_end_level, without_window_damping
from jaxmb.measurement.records.time_records import estimate_frf, leakage_remark, peak_loss

MASS = np.array([2.0, 1.0, 2.0, 1.0])
SPRINGS = ((6.4e4, 0, None), (3.0e4, 0, 1), (6.592e4, 2, None), (3.0e4, 2, 3), (600.0, 1, 3))
DAMPING_RATIO = np.array([0.005, 0.008, 0.010, 0.006])
RATE = 256.0
TIPS = [1, 3]
PEAK = 0.01
"""What the error around a peak may be, as a share of the response: the number to reach."""


def _modes():
    stiffness = np.zeros((4, 4))
    for k, i, j in SPRINGS:
        row = np.zeros(4)
        row[i] = 1.0
        if j is not None:
            row[j] = -1.0
        stiffness += k * np.outer(row, row)
    squares, shapes = scipy.linalg.eigh(stiffness, np.diag(MASS))
    return np.sqrt(squares), shapes


OMEGA, SHAPES = _modes()
POLES = -DAMPING_RATIO * OMEGA + 1j * OMEGA * np.sqrt(1.0 - DAMPING_RATIO**2)


def accelerance(s, inputs):
    """H(s) [freq, output, input] of all four masses to forces on some of them."""
    s = np.asarray(s)[:, None]
    each = s**2 / (s**2 + 2 * DAMPING_RATIO * OMEGA * s + OMEGA**2)
    return np.einsum("or,fr,ir->foi", SHAPES, each, SHAPES[inputs])


def respond(force, inputs):
    """Steady response [n, 4] to a force [n, input] that repeats after n samples."""
    lines = 2j * np.pi * np.fft.rfftfreq(len(force), 1 / RATE)
    return np.fft.irfft(
        np.einsum("foi,fi->fo", accelerance(lines, inputs), np.fft.rfft(force, axis=0)), len(force), axis=0
    )


def noisy(x, share, size, rng):
    return x + share * size * rng.normal(size=x.shape)


def errors(frf_set, inputs):
    """Largest error in the half-power bands, of the response there; and within 3 bandwidths, of the peak's height."""
    sigma = frf_set.decay_1_s
    truth = accelerance(2j * np.pi * frf_set.frequency_hz + sigma, inputs)
    in_band, around = 0.0, 0.0
    for pole in POLES:
        bandwidth = 2 * (sigma - pole.real) / (2 * np.pi)
        distance = np.abs(frf_set.frequency_hz - pole.imag / (2 * np.pi))
        error = np.abs(frf_set.frf - truth)
        band, near = distance <= bandwidth / 2, distance <= 3 * bandwidth
        in_band = max(in_band, float(np.max(error[band] / np.abs(truth[band]))))
        around = max(around, float(np.max(error[near].max(axis=0) / np.abs(truth[near]).max(axis=0))))
    return in_band, around


def hits(rng, count, block, noise, at=1, pulse_s=0.008, pre_s=0.1):
    """Records of half-sine hits behind an anti-aliasing filter of 8th order, with offsets and noise on all channels."""
    n = 4 * block
    s = 2j * np.pi * np.fft.rfftfreq(n, 1 / RATE)
    b, a = signal.butter(8, 2 * np.pi * 0.4 * RATE, analog=True)
    filtered = signal.freqs(b, a, s.imag)[1]
    h = accelerance(s, [at])[:, :, 0]
    records = []
    for _ in range(count):
        length, start = pulse_s * rng.uniform(0.9, 1.1), pre_s + rng.uniform(0, 1 / RATE)
        # Transform of sin(pi t / length) over its half period.
        pulse = (np.pi / length) * (1 + np.exp(-s * length)) / ((np.pi / length) ** 2 + s**2)
        force = 100 * rng.uniform(0.7, 1.3) * pulse * np.exp(-s * start) * filtered
        f = np.fft.irfft(force, n)[:block] * RATE
        y = np.fft.irfft(h * force[:, None], n, axis=0)[:block] * RATE
        records.append((noisy(f, noise, f.max(), rng) + 0.5, noisy(y, noise, np.abs(y).max(axis=0), rng) - 0.3))
    return records


def fitted_poles(frf_set):
    """Poles [mode] of constant + sum R / (s - pole) + conj, fitted on the axis j omega by variable projection."""
    s = 2j * np.pi * frf_set.frequency_hz
    keep = (frf_set.frequency_hz > 15) & (frf_set.frequency_hz < 45)
    s, h = s[keep], frf_set.frf[keep, :, 0]

    def residual(x):
        poles = x[:4] + 1j * x[4:]
        plus, minus = 1 / (s[:, None] - poles), 1 / (s[:, None] - np.conj(poles))
        basis = np.hstack([plus + minus, 1j * (plus - minus), np.ones((s.size, 1))])
        a, b = np.vstack([basis.real, basis.imag]), np.vstack([h.real, h.imag])
        return (b - a @ np.linalg.lstsq(a, b, rcond=None)[0]).ravel()

    start = np.concatenate([1.3 * POLES.real - frf_set.decay_1_s, 1.002 * POLES.imag])
    found = least_squares(residual, start, x_scale=np.abs(start), xtol=1e-12, ftol=1e-12).x
    return found[:4] + 1j * found[4:]


def test_simulated_records_are_those_of_scipy():
    # Force held between samples: lsim is exact, and the sampled truth is the step-invariant discretization.
    n, dt = 4096, 1 / RATE / 16
    a = np.block([[np.zeros((4, 4)), np.eye(4)], [-np.diag(OMEGA**2), -np.diag(2 * DAMPING_RATIO * OMEGA)]])
    b = np.concatenate([np.zeros((4, 1)), SHAPES[[1]].T])
    c = SHAPES @ a[4:]
    system = signal.StateSpace(a, b, c, (SHAPES @ SHAPES[[1]].T))
    smooth = np.exp(-0.5 * ((np.arange(n) * dt - 0.3) / 0.02) ** 2)
    _, y, _ = signal.lsim(system, smooth, np.arange(n) * dt)
    lines = 2j * np.pi * np.fft.rfftfreq(64 * n, dt)
    whole = np.fft.irfft(accelerance(lines, [1])[:, :, 0] * np.fft.rfft(smooth, 64 * n)[:, None], 64 * n, axis=0)[:n]
    # lsim takes the force as straight between samples, which lowers lines at f by (pi f dt)^2 / 3: 1e-4 at 20 Hz.
    np.testing.assert_allclose(y, whole, atol=3e-4 * np.abs(y).max())


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_hammer(seed):
    # Ten hits, each channel with noise of 0.1 % of its peak, 8 s each, exponential window down to 1 %.
    rng = np.random.default_rng(seed)
    block = 2048
    test = estimate_frf_from_hits(hits(rng, 10, block, 1e-3), RATE, decay_1_s=decay_of_end_level(0.01, block / RATE))
    assert (len(test.accepted), dict(test.rejected), test.remarks) == (10, {}, ())
    assert max(errors(test.frf_set, [1])) < PEAK
    assert np.median(test.frf_set.coherence) > 0.9


@pytest.mark.parametrize("end_level", [1.0, 0.05, 1e-3])
def test_the_window_does_not_move_the_estimate(end_level):
    # Without noise what is left is the tail that the record cuts off and the filter's ringing behind the force window.
    rng = np.random.default_rng(3)
    block = 4096
    test = estimate_frf_from_hits(hits(rng, 3, block, 0.0), RATE, decay_1_s=decay_of_end_level(end_level, block / RATE))
    assert max(errors(test.frf_set, [1])) < 0.002


def test_damping_behind_an_exponential_window_is_not_biased():
    # 8 s and a level of 0.1 % at their end: the window adds 0.69 % of damping to a mode of 0.5 % at 20 Hz.
    rng = np.random.default_rng(4)
    block, draws = 2048, 10
    decay = decay_of_end_level(1e-3, block / RATE)
    ratios, apparent = [], []
    for _ in range(draws):
        found = fitted_poles(estimate_frf_from_hits(hits(rng, 5, block, 1e-3), RATE, decay_1_s=decay).frf_set)
        poles = without_window_damping(found, decay)
        ratios.append(-poles.real / np.abs(poles))
        apparent.append(-found.real / np.abs(found))
        np.testing.assert_allclose(poles.imag, POLES.imag, rtol=2e-4)
    bias = np.mean(ratios, axis=0) / DAMPING_RATIO - 1
    assert np.all(np.abs(bias) < 0.02), bias
    # It is the correction that does it.
    assert np.all(np.mean(apparent, axis=0) / DAMPING_RATIO - 1 > 0.3)


@pytest.mark.parametrize(("inputs", "seed"), [([1], 0), ([1], 1), (TIPS, 0), (TIPS, 1)])
def test_shakers_with_bursts(inputs, seed):
    # 64 bursts of 16 s, 32 s from one to the next: the response dies within the segment, and no window is needed.
    rng = np.random.default_rng(seed)
    block, count, noise = 8192, 64, 2e-3
    force = rng.normal(size=(count, block, len(inputs)))
    force[:, block // 2 :] = 0.0
    force = force.reshape(-1, len(inputs))
    response = respond(force, inputs)
    frf_set = estimate_frf(
        noisy(force, noise, force.std(axis=0), rng), noisy(response, noise, response.std(axis=0), rng), RATE,
        segment=block, overlap=0.0, window="boxcar",
    )  # fmt: skip
    assert frf_set.averages == count
    assert max(errors(frf_set, inputs)) < PEAK


@pytest.fixture(scope="module")
def continuous():
    """Records of noise that goes on for 2.3 h, by inputs."""
    made = {}
    for inputs in ([1], TIPS):
        rng = np.random.default_rng(5)
        force = rng.normal(size=(2**21, len(inputs)))
        response = respond(force, inputs)
        made[len(inputs)] = (noisy(force, 2e-3, 1.0, rng), noisy(response, 2e-3, response.std(axis=0), rng))
    return made


def test_one_shaker_with_noise_that_goes_on(continuous):
    # Segments of 256 s: by the rule of `peak_loss` the sharpest peak (0.5 % at 20 Hz) loses 0.05 %.
    frf_set = estimate_frf(*continuous[1], RATE, segment=2**16, overlap=2 / 3)
    assert leakage_remark(frf_set) is None
    assert max(errors(frf_set, [1])) < PEAK


def test_two_shakers_with_noise_that_goes_on(continuous):
    # What is left of leakage is random, and larger by the other shaker's share: within 1 % of the larger of the two
    # shakers' responses. By itself the smaller one comes to 1.2 to 1.6 % at its worst line; bursts are the way to 1 %.
    frf_set = estimate_frf(*continuous[2], RATE, segment=2**16, overlap=2 / 3)
    truth = accelerance(2j * np.pi * frf_set.frequency_hz, TIPS)
    for pole in POLES:
        near = np.abs(frf_set.frequency_hz - pole.imag / (2 * np.pi)) <= 3 * 2 * -pole.real / (2 * np.pi)
        size = np.abs(truth[near]).max(axis=(1, 2))
        assert np.max(np.abs(frf_set.frf - truth)[near].max(axis=(1, 2)) / size) < PEAK
    assert max(errors(frf_set, TIPS)) < 0.02


@pytest.mark.parametrize(("window", "segment"), [("hann", 2**12), ("hann", 2**13), ("boxcar", 2**13)])
def test_a_segment_that_is_too_short_lowers_peaks_as_predicted(continuous, window, segment):
    # The first peak, 0.5 % at 20 Hz: its neighbour 0.55 Hz away changes the loss by a few hundredths of it.
    force, response = continuous[1]
    frf_set = estimate_frf(force, response, RATE, segment=segment, overlap=0.5, window=window)
    line = np.argmin(np.abs(frf_set.frequency_hz - POLES[0].imag / (2 * np.pi)))
    s = 2j * np.pi * frf_set.frequency_hz[[line]]
    own = accelerance(s, [1])[0, 1, 0]
    # Off the peak's middle by up to half a line: what the impulse response weighted with rho gives there.
    time = np.arange(segment) / RATE
    w = signal.get_window(window, segment)
    rho = signal.correlate(w, w)[segment - 1 :]
    rho = rho / rho[0]
    residues = SHAPES[1] * SHAPES[1] * POLES**2 / (2j * POLES.imag)
    weighted = np.sum(rho[:, None] * np.exp(np.outer(time, POLES - s[0])) * residues, axis=0).sum() / RATE
    exact = np.sum(residues / (s[0] - POLES))
    expected_loss = np.real((weighted - exact) / own)
    measured_loss = np.real((frf_set.frf[line, 1, 0] - own) / own)
    # Random error of the estimate there: a per cent of the response.
    assert measured_loss == pytest.approx(expected_loss, abs=0.012)
    simple = peak_loss(window, np.array([-POLES[0].real * segment / RATE]))[0]
    assert -expected_loss == pytest.approx(simple, rel=0.35)
    assert simple > 0.01
    if window == "hann":
        assert leakage_remark(frf_set) is not None


def test_hits_from_one_long_record_and_what_is_wrong_with_them():
    rng = np.random.default_rng(6)
    block = 2048
    # A softer tip: a clipped top has to last a few samples to be seen as one.
    records = hits(rng, 6, block, 1e-3, pulse_s=0.024)
    # The second is hit twice, the fourth overloads the force channel, the fifth the third response.
    f, y = records[1]
    later = round(0.3 * RATE)
    records[1] = (f + 0.4 * np.roll(f - 0.5, later), y + 0.4 * np.roll(y + 0.3, later, axis=0))
    records[3] = (np.minimum(records[3][0], 0.6 * records[3][0].max()), records[3][1])
    clipped = records[4][1].copy()
    clipped[:, 2] = np.clip(clipped[:, 2], -0.5 * np.abs(clipped[:, 2]).max(), 0.5 * np.abs(clipped[:, 2]).max())
    records[4] = (records[4][0], clipped)
    force = np.concatenate([f for f, _ in records])
    response = np.vstack([y for _, y in records])
    starts, left_out = find_hits(force, RATE, block=block - 64, pre_trigger_s=0.09)
    assert (len(starts), left_out) == (6, ())
    test = estimate_frf_from_hits(
        cut_hits(force, response, starts, block - 64), RATE, decay_1_s=decay_of_end_level(0.01, block / RATE)
    )
    assert test.accepted == (1, 3, 6)
    assert "double hit" in test.rejected[2]
    assert test.rejected[4] == "the force was overloaded"
    assert test.rejected[5] == "response 3 was overloaded"
    assert test.frf_set.averages == 3
    assert max(errors(test.frf_set, [1])) < PEAK
