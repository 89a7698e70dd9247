"""Estimates from records of noise and of periodic forces: against SciPy, against second ways, and what is refused."""

import numpy as np
import pytest
from scipy import signal, stats

from jaxmb.measurement.records import time_records
from jaxmb.measurement.records.spectra import estimate, products
from jaxmb.measurement.records.time_records import estimate_frf, estimate_periodic_frf

RATE = 100.0
ROUNDING = 1e-11
"""Sums of a few thousand products in another order."""


def record(inputs=1, outputs=1, n=5000, seed=0, noise=0.1):
    """Forces and what simple filters make of them."""
    rng = np.random.default_rng(seed)
    force = rng.normal(size=(n, inputs))
    response = noise * rng.normal(size=(n, outputs))
    for o in range(outputs):
        for i in range(inputs):
            response[:, o] += signal.lfilter([1.0, 0.3 * (o + 1)], [1.0, -0.4 - 0.1 * i, 0.3], force[:, i]) * (
                o - i + 1.5
            )
    return force, response


def scipy_matrices(force, response, segment, overlap, window):
    """G_ff, G_yf and G_yy by scipy.signal.csd, without the lines that are left out."""

    def csd(a, b):
        # csd(x, y) is the mean of conj(X) Y
        settings = (RATE, window, segment, round(overlap * segment))
        each = [[signal.csd(y, x, *settings)[1] for y in b.T] for x in a.T]
        return np.moveaxis(np.array(each), -1, 0)[1 : (segment + 1) // 2]

    return csd(force, force), csd(response, force), csd(response, response)


@pytest.mark.parametrize(
    ("window", "overlap", "segment"), [("hann", 0.5, 256), ("boxcar", 0.0, 125), ("flattop", 0.75, 200)]
)
def test_one_force_against_scipy(window, overlap, segment):
    force, response = record()
    f, y = force[:, 0], response[:, 0]
    made = estimate_frf(f, y, RATE, segment=segment, overlap=overlap, window=window)
    shared = (RATE, window, segment, round(overlap * segment))
    frequency_hz, g_yf = signal.csd(f, y, *shared)
    lines = slice(1, (segment + 1) // 2)
    np.testing.assert_allclose(made.frequency_hz, frequency_hz[lines], rtol=1e-14)
    np.testing.assert_allclose(made.frf[:, 0, 0], (g_yf / signal.welch(f, *shared)[1])[lines], rtol=ROUNDING)
    np.testing.assert_allclose(made.coherence[:, 0], signal.coherence(f, y, *shared)[1][lines], rtol=ROUNDING)
    second = estimate_frf(f, y, RATE, segment=segment, overlap=overlap, window=window, estimator="H2")
    np.testing.assert_allclose(second.frf[:, 0, 0], (signal.welch(y, *shared)[1] / np.conj(g_yf))[lines], rtol=ROUNDING)


def test_an_argument_that_does_not_exist():
    with pytest.raises(TypeError, match="argument 'output' does not exist, did you mean 'outputs'"):
        estimate_frf(*record(), RATE, output=["tool z"])


def test_several_forces_against_scipy():
    force, response = record(2, 3)
    made = estimate_frf(force, response, RATE, segment=256, overlap=0.5)
    ff, yf, yy = scipy_matrices(force, response, 256, 0.5, "hann")
    np.testing.assert_allclose(made.frf, yf @ np.linalg.inv(ff), rtol=1e-9, atol=1e-11)
    coherent = np.real(np.einsum("foi,fij,foj->fo", yf, np.linalg.inv(ff), np.conj(yf)))
    np.testing.assert_allclose(made.coherence, coherent / np.real(np.einsum("foo->fo", yy)), rtol=1e-9)
    h2 = estimate_frf(force, response[:, :2], RATE, segment=256, overlap=0.5, estimator="H2")
    np.testing.assert_allclose(h2.frf, yy[:, :2, :2] @ np.linalg.inv(np.conj(np.swapaxes(yf[:, :2], 1, 2))), rtol=1e-8)


@pytest.mark.parametrize("inputs", [1, 2, 3])
def test_hv_by_singular_values_of_the_data(inputs):
    # The second way: total least squares of the segments' transforms themselves, each channel scaled to unit power.
    force, response = record(inputs, 2)
    segment = 250
    made = estimate_frf(force, response, RATE, segment=segment, overlap=0.0, window="hann", estimator="Hv")
    pieces = np.hstack([force, response]).reshape(-1, segment, inputs + 2)
    w = signal.get_window("hann", segment)[None, :, None]
    transforms = np.fft.rfft((pieces - pieces.mean(axis=1, keepdims=True)) * w, axis=1)[:, 1:125]
    size = np.sqrt(np.mean(np.abs(transforms) ** 2, axis=0))
    for line in (0, 17, 60, 123):
        for o in range(2):
            columns = [*range(inputs), inputs + o]
            data = transforms[:, line, columns] / size[line, columns]
            v = np.conj(np.linalg.svd(data)[2][-1])
            expected = -v[:inputs] / v[inputs] * size[line, inputs + o] / size[line, :inputs]
            np.testing.assert_allclose(made.frf[line, o], expected, rtol=1e-8)


def test_hv_of_one_force_is_the_geometric_mean():
    force, response = record()
    h1, h2, hv = (
        estimate_frf(force, response, RATE, segment=256, estimator=e).frf[:, 0, 0] for e in ("H1", "H2", "Hv")
    )
    np.testing.assert_allclose(np.abs(hv), np.sqrt(np.abs(h1) * np.abs(h2)), rtol=ROUNDING)
    np.testing.assert_allclose(np.angle(hv / h1), 0.0, atol=1e-10)
    assert np.all(np.abs(h1) <= np.abs(h2))


@pytest.mark.parametrize("estimator", ["H1", "H2", "Hv"])
def test_units_of_channels_change_nothing_but_units(estimator):
    force, response = record(2, 2, noise=0.5)
    f_unit, y_unit = np.array([1e-3, 40.0]), np.array([1e6, -7.0])
    made = estimate_frf(force, response, RATE, segment=128, estimator=estimator)
    other = estimate_frf(force * f_unit, response * y_unit, RATE, segment=128, estimator=estimator)
    np.testing.assert_allclose(other.frf, made.frf * y_unit[:, None] / f_unit, rtol=1e-7)
    np.testing.assert_allclose(other.coherence, made.coherence, rtol=1e-7)


@pytest.mark.parametrize(("estimator", "noisy"), [("H1", "response"), ("H2", "force"), ("Hv", "both")])
@pytest.mark.parametrize("inputs", [1, 2])
def test_each_estimator_is_unbiased_for_its_noise(estimator, noisy, inputs):
    # A gain without dynamics, so that nothing leaks; noise of 0.5 of each channel's own size where it is said to be.
    rng = np.random.default_rng(1)
    n, gain = 400_000, np.array([[2.0, -1.0], [0.5, 3.0]])[:, :inputs][:inputs]
    force = rng.normal(size=(n, inputs))
    response = force @ gain.T
    seen_f = force + (0.5 * rng.normal(size=force.shape) if noisy != "response" else 0.0)
    seen_y = response + (0.5 * response.std(axis=0) * rng.normal(size=response.shape) if noisy != "force" else 0.0)
    made = estimate_frf(seen_f, seen_y, RATE, segment=64, overlap=0.0, window="boxcar", estimator=estimator)
    # Random error of a line: 0.5 / sqrt(2 * 6250) of the largest gain, less for the mean over 31 lines: 5 deviations.
    spread = 5 * 0.75 / np.sqrt(2 * 6250 * 31) * np.abs(gain).max()
    np.testing.assert_allclose(made.frf.mean(axis=0), gain, atol=spread)
    if noisy != "response":
        biased = estimate_frf(seen_f, seen_y, RATE, segment=64, overlap=0.0, window="boxcar").frf.mean(axis=0)
        assert np.abs(biased - gain).max() > 0.1  # H1 is too low by the noise's share of the force, a fifth


def test_what_a_set_says_of_itself():
    force, response = record(2, 3)
    made = estimate_frf(
        force, response, RATE, segment=256, overlap=0.5, kind="mobility", outputs=("a x", "a y", "b -z"),
        inputs=("a x", "c z"), unit="mm/s/N", posture={"z1": 0.2}, nodes={"a": (1.0, 0.0, 0.0)}, source="shakers",
    )  # fmt: skip
    assert (made.kind, made.outputs, made.inputs) == ("mobility", ("a x", "a y", "b -z"), ("a x", "c z"))
    assert (made.unit, dict(made.posture), dict(made.nodes)) == ("mm/s/N", {"z1": 0.2}, {"a": (1.0, 0.0, 0.0)})
    assert (made.source, made.decay_1_s) == ("shakers", 0.0)
    # 38 segments of Hann windows half overlapping count for 0.95 each.
    assert made.averages == 36


def test_coherence_of_too_few_averages_is_left_out():
    force, response = record(2, 1)
    few = estimate_frf(force, response, RATE, segment=2500, overlap=0.0)
    assert (few.averages, few.coherence) == (2, None)
    assert estimate_frf(force, response, RATE, segment=1600, overlap=0.0).coherence is not None


def test_whole_numbers_and_offsets():
    force, response = record()
    counts = np.round(1000 * force).astype(np.int16), np.round(1000 * response).astype(np.int32)
    made = estimate_frf(*counts, RATE, segment=256)
    expected = estimate_frf(counts[0] + 70.0, counts[1] - 1e4, RATE, segment=256)
    np.testing.assert_allclose(made.frf, expected.frf, rtol=1e-9)


def test_a_long_record_is_taken_in_parts(monkeypatch):
    force, response = record(2, 2)
    whole = estimate_frf(force, response, RATE, segment=256, estimator="H2")
    monkeypatch.setattr(time_records, "CHUNK", 5000)
    parts = estimate_frf(force, response, RATE, segment=256, estimator="H2")
    np.testing.assert_allclose(parts.frf, whole.frf, rtol=1e-9)
    np.testing.assert_allclose(parts.coherence, whole.coherence, rtol=ROUNDING)
    assert parts.averages == whole.averages


def test_default_segment_is_about_an_eighth():
    force, response = record(n=5000)
    assert estimate_frf(force, response, RATE).frequency_hz[0] == RATE / 512
    assert estimate_frf(force[:20], response[:20], RATE).frequency_hz[0] == RATE / 16


def test_lines_without_force_are_not_numbers():
    # A sum of sines in the lines 2 to 20 of each segment; nothing but rounding elsewhere.
    rng = np.random.default_rng(2)
    n, segment = 4000, 100
    lines = np.zeros((n // 2 + 1), complex)
    lines[80:801:40] = np.exp(2j * np.pi * rng.uniform(size=19))
    f = np.fft.irfft(lines, n)
    made = estimate_frf(f, 2.0 * f, RATE, segment=segment, overlap=0.0, window="boxcar")
    excited = np.isin(np.arange(1, 50), np.arange(2, 21))
    np.testing.assert_array_equal(made.finite[:, 0, 0], excited)
    np.testing.assert_allclose(made.frf[excited, 0, 0], 2.0, rtol=1e-9)


def test_dependent_forces_are_named_with_the_frequency():
    force, response = record(2, 1)
    copied = np.column_stack([force[:, 0], -3.0 * force[:, 0]])
    with pytest.raises(ValueError, match=r"the 2 forces are linearly dependent at [\d.]+ Hz \(smallest eigenvalue"):
        estimate_frf(copied, response, RATE, segment=256)
    # One source behind two 16-bit converters is still one source.
    counts = np.column_stack([np.round(8000 * force[:, 0]), np.round(5000 * force[:, 0])])
    with pytest.raises(ValueError, match="linearly dependent"):
        estimate_frf(counts, response, RATE, segment=256)
    # At one line only
    hum = 1e7 * np.sin(2 * np.pi * 12.5 * np.arange(5000) / RATE)[:, None]
    with pytest.raises(ValueError, match=r"linearly dependent at 12\.5 Hz"):
        estimate_frf(force + hum, response, RATE, segment=256, window="boxcar", overlap=0.0)


def test_h2_needs_responses_that_differ():
    force, response = record(2, 1, noise=0.0)
    with pytest.raises(ValueError, match=r"the 2 responses are linearly dependent at [\d.]+ Hz, for which H2"):
        estimate_frf(force, np.hstack([response, 2 * response]), RATE, segment=256, estimator="H2")
    with pytest.raises(ValueError, match="H2 of several forces requires the whole matrix"):
        estimate(
            products(np.ones(1), np.ones((3, 1, 2)) * [[1, 1j]] ** np.arange(3)[:, None, None], np.ones((3, 1, 2))),
            "H2",
        )


X = np.sin(np.arange(100.0))
WITH_NAN = np.where(np.arange(100) == 16, np.nan, X)


@pytest.mark.parametrize(
    ("force", "response", "rate", "settings", "message"),
    [
        (X, X[:90], 1.0, {}, "force has 100 samples and response 90, expected the same number"),
        (WITH_NAN, X, 1.0, {}, "force 1 is nan at sample 17, expected finite numbers"),
        (X, np.column_stack([X, WITH_NAN]), 1.0, {}, "response 2 is nan at sample 17"),
        (np.zeros(100), X, 1.0, {}, "force 1 is 0 throughout, expected a signal"),
        (X, np.column_stack([X, np.full(100, 3.5)]), 1.0, {}, r"response 2 is 3\.5 throughout"),
        ([], [], 1.0, {}, r"force has shape \(0,\), expected \[samples\]"),
        (np.zeros((3, 2, 2)), X, 1.0, {}, r"force has shape \(3, 2, 2\)"),
        (5.0, X, 1.0, {}, r"force has shape \(\)"),
        ("force.csv", X, 1.0, {}, "force does not hold real numbers: found <U9"),
        (X + 0j, X, 1.0, {}, "force does not hold real numbers: found complex128"),
        (X > 0, X, 1.0, {}, "force does not hold real numbers: found bool"),
        ([[1.0, 2.0], [1.0]], X, 1.0, {}, "force does not hold real numbers: setting an array element with a sequence"),
        (1e200 * X, X, 1.0, {}, r"force holds .*e\+199, expected numbers whose squares are finite"),
        (X, X, 0.0, {}, r"sample_rate_hz is 0\.0, expected a number above 0"),
        (X, X, -5, {}, "sample_rate_hz is -5, expected a number above 0"),
        (X, X, np.nan, {}, "sample_rate_hz is nan, expected a finite number"),
        (X, X, "1024", {}, 'sample_rate_hz is "1024", expected a number'),
        (X, X, True, {}, "sample_rate_hz is true, expected a number"),
        (X, X, 1.0, {"segment": 101}, "segment is 101 samples, expected at most the 100 of the record"),
        (X, X, 1.0, {"segment": 3}, "segment is 3, expected a whole number of at least 4"),
        (X, X, 1.0, {"segment": 16.0}, r"segment is 16\.0, expected a whole number"),
        (X, X, 1.0, {"overlap": 1.0}, r"overlap is 1\.0, expected a number of at least 0 and below 1"),
        (X, X, 1.0, {"overlap": -0.1}, r"overlap is -0\.1, expected a number of at least 0 and below 1"),
        (X, X, 1.0, {"overlap": "half"}, 'overlap is "half", expected a number'),
        (X, X, 1.0, {"segment": 8, "overlap": 0.99}, r"overlap is 0\.99 of 8 samples, expected segments that differ"),
        (X, X, 1.0, {"window": "hanning"}, r"window is 'hanning', did you mean 'hann'\? expected one of hann, boxcar"),
        (X, X, 1.0, {"estimator": "H3"}, "estimator is 'H3', expected one of H1, H2, Hv"),
        (X, X, 1.0, {"kind": "velocity"}, "kind is 'velocity', expected one of"),
        (X, X, 1.0, {"outputs": ("a x", "b x")}, "1 outputs and 1 inputs, but 2 and 1 names"),
        (np.column_stack([X, X**2]), X, 1.0, {"estimator": "H2"}, "H2 of 2 forces requires as many responses, found 1"),
        (np.column_stack([X, X**2]), X, 1.0, {"segment": 100}, "2 forces require at least as many segments, found 1"),
    ],
)  # fmt: skip
def test_what_is_refused(force, response, rate, settings, message):
    with pytest.raises(ValueError, match=message) as caught:
        estimate_frf(force, response, rate, **settings)
    assert "\n" not in str(caught.value)


def periodic(count, noise=0.0, period=64):
    """Periods of a sum of odd sines, and the settled response of a filter to it."""
    rng = np.random.default_rng(3)
    lines = np.zeros(period // 2 + 1, complex)
    odd = np.arange(1, 20, 2)
    lines[odd] = np.exp(2j * np.pi * rng.uniform(size=odd.size))
    force = np.tile(np.fft.irfft(lines, period), count + 20)
    b, a = [1.0, 0.4], [1.0, -0.9, 0.5]
    response = signal.lfilter(b, a, force)[20 * period :]
    h = signal.freqz(b, a, 2 * np.pi * odd / period)[1]
    return force[20 * period :], response + noise * rng.normal(size=response.size), odd, h


def test_periodic_force_is_exact():
    force, response, odd, h = periodic(1)
    made = estimate_periodic_frf(force, response, 640.0, 64, odd, inputs=("motor rz",))
    np.testing.assert_allclose(made.frf[:, 0, 0], h, rtol=1e-10)
    np.testing.assert_allclose(made.frequency_hz, 10.0 * odd, rtol=1e-14)
    assert (made.averages, made.coherence, made.inputs) == (1, None, ("motor rz",))


def test_periods_are_averaged():
    force, response, odd, h = periodic(50, 0.05)
    made = estimate_periodic_frf(np.append(force, 3.0), np.append(response, 7.0), 640.0, 64, odd)
    assert made.averages == 50
    # What is beyond whole periods does not count. Each period's ratio by the sum that defines the transform; the force
    # is of size 1 at each line.
    samples = np.arange(64)
    wave = np.exp(-2j * np.pi * np.outer(samples, odd) / 64)
    shaken = force[:64] @ wave
    each = response.reshape(50, 64) @ wave / shaken
    np.testing.assert_allclose(made.frf[:, 0, 0], each.mean(axis=0), rtol=1e-9)
    left = np.sum(np.abs(each - each.mean(axis=0)) ** 2, axis=0)
    np.testing.assert_allclose(1 - made.coherence[:, 0], left / np.sum(np.abs(each) ** 2, axis=0), rtol=1e-9)
    # Noise has the variance 64 sigma^2 at a line: chi-squares of 20 and 980, outside once in 1000 times each.
    variance = 64 * 0.05**2 / 2
    for squares, freedom in ((50 * np.abs(made.frf[:, 0, 0] - h) ** 2, 20), (left, 980)):
        low, high = stats.chi2.ppf([5e-4, 1 - 5e-4], freedom)
        assert low < np.sum(squares) / variance < high


@pytest.mark.parametrize(
    ("period", "harmonics", "message"),
    [
        (65, [1], "period is 65 samples, expected at most the 64 of the record"),
        (3, [1], "period is 3, expected a whole number of at least 4"),
        (64, [], "harmonics are no list of whole numbers"),
        (64, [1.5], "harmonics are no list of whole numbers"),
        (64, [0, 1], "harmonics go from 0 to 1, expected increasing ones from 1 to below 32"),
        (64, [3, 1], "harmonics go from 3 to 1"),
        (64, [1, 32], "harmonics go from 1 to 32"),
        (64, range(1, 10**12), "there are 999999999999 harmonics, expected at most half the 64 samples of a period"),
        (64, [1, 2], "the force has no harmonic 2, expected those that were excited"),
    ],
)
def test_what_a_periodic_test_refuses(period, harmonics, message):
    force, response, _, _ = periodic(1)
    with pytest.raises(ValueError, match=message):
        estimate_periodic_frf(force, response, 1.0, period, harmonics)
    with pytest.raises(ValueError, match="force has 2 channels, expected the one of a periodic test"):
        estimate_periodic_frf(np.column_stack([force, response]), response, 1.0, 64, [1])
