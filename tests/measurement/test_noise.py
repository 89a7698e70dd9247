"""The noise that a coherence tells against the scatter of FRFs that are estimated again and again."""

import numpy as np
import pytest

from jaxmb.measurement.frf_set import FrfSet, of_each_input, select_channels, unbiased_coherence
from jaxmb.measurement.noise import (
    coherence_noise,
    lines_of_window,
    moderated,
    window_correlation,
    window_correlation_of,
)
from jaxmb.measurement.reciprocity import stack_inputs, symmetrize

AVERAGES = 200
DRAWS = 3000


def averaged(truth, noise, rng, inputs, averages=AVERAGES):
    """H1 estimates [draw, input] and multiple coherences [draw] of one output at one line."""
    shape = (DRAWS, averages)
    f = (rng.normal(size=(*shape, inputs)) + 1j * rng.normal(size=(*shape, inputs))) / np.sqrt(2.0)
    x = f @ truth + noise * (rng.normal(size=shape) + 1j * rng.normal(size=shape)) / np.sqrt(2.0)
    gff = np.einsum("dai,daj->dij", f, f.conj())
    gxf = np.einsum("da,daj->dj", x, f.conj())
    h = np.linalg.solve(np.swapaxes(gff, 1, 2), gxf[:, :, None])[:, :, 0]
    explained = np.einsum("di,dij,dj->d", h, gff, h.conj()).real
    return h, explained / np.sum(np.abs(x) ** 2, axis=1)


@pytest.mark.parametrize("noise", [0.1, 1.0, 1.5])
@pytest.mark.parametrize("truth", [[1.0 - 2.0j], [1.0, 0.4j]])
def test_it_is_the_scatter_of_the_estimates(noise, truth):
    h, coherence = averaged(np.array(truth), noise, np.random.default_rng(5), len(truth))
    error = np.log(h / np.array(truth))
    scatter = np.sqrt(0.5 * (error.real.var(axis=0) + error.imag.var(axis=0)))
    mean = float(np.mean(coherence))
    given = np.full((1, 1, 1), mean) if len(truth) == 1 else np.full((1, 1), mean)
    told = coherence_noise(
        FrfSet(np.ones(1), np.array(truth)[None, None, :], "receptance", coherence=given, averages=AVERAGES)
    ).log_std
    # The scatter of 3000 draws is known to 1 %, the formula is the first order in the relative noise (up to 0.2 here).
    np.testing.assert_allclose(told[0, 0], scatter, rtol=0.06)


def test_random_inputs_are_correlated_by_chance():
    truth, n = np.array([1.0, 0.4j]), 8
    h, coherence = averaged(truth, 0.1, np.random.default_rng(5), 2, n)
    error = h - truth
    stated = coherence_noise(
        FrfSet(np.arange(DRAWS), h[:, None, :], "receptance", coherence=coherence[:, None], averages=n)
    )
    scatter = 0.5 * np.mean(np.abs(error) ** 2, axis=0)
    # the scatter of 3000 draws is known to 2 %; the chance is (n - 1) / (n - 2), 17 %
    np.testing.assert_allclose(np.mean(stated.std[:, 0] ** 2, axis=0), scatter, rtol=0.06)


def test_no_coherence_is_no_noise_and_no_signal_is_finite():
    h = np.ones((3, 1, 1), dtype=complex)
    frequency = np.arange(3.0)
    assert not coherence_noise(FrfSet(frequency, h, "receptance")).log_std.any()
    coherence = np.array([0.0, np.nan, 1.0])[:, None, None]
    for averages in (None, 1, 20):
        std = coherence_noise(FrfSet(frequency, h, "receptance", coherence=coherence, averages=averages)).log_std[
            :, 0, 0
        ]
        assert 100.0 < std[0] < np.inf
        # nothing is known of the second line, and the third has no noise
        assert std[1] == std[2] == 0.0


@pytest.mark.parametrize("inputs", [1, 2])
def test_chance_alone_is_told_as_noise(inputs):
    """Coherences of forces and responses that have nothing to do with each other: inputs / averages in the mean."""
    rng = np.random.default_rng(7)
    shape = (DRAWS, 20)
    f = rng.normal(size=(*shape, inputs)) + 1j * rng.normal(size=(*shape, inputs))
    x = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    gff = np.einsum("dai,daj->dij", f, f.conj())
    gxf = np.einsum("da,daj->dj", x, f.conj())
    h = np.linalg.solve(np.swapaxes(gff, 1, 2), gxf[:, :, None])[:, :, 0]
    c = np.einsum("di,dij,dj->d", h, gff, h.conj()).real / np.sum(np.abs(x) ** 2, axis=1)
    chance = unbiased_coherence(c, 20, inputs)
    # the mean of what stands before the limit at 0 is 0, within four of its standard deviations
    assert np.mean((20 * c - inputs) / (20 - inputs)) == pytest.approx(0.0, abs=4 * np.std(c) / np.sqrt(DRAWS))
    assert np.all(chance >= 0.0)
    measured = FrfSet(np.arange(DRAWS), h[:, None, :], "receptance", coherence=c[:, None], averages=20)
    # most lines count for nothing, where c = inputs / 20 taken as it is would tell a deviation of 0.7
    assert np.median(coherence_noise(measured).log_std) > 1.0


@pytest.mark.parametrize("averages", [None, 3, 16])
def test_a_multiple_coherence_keeps_its_share(averages):
    """Noise of an output counts a hundredfold in the FRF of an input that it hardly answers to, whatever the verb."""
    rng = np.random.default_rng(3)
    h = rng.normal(size=(6, 2, 2)) * [[1.0, 0.01], [0.01, 1.0]] + 0j
    names = ("a x", "b x")
    coherence = rng.uniform(0.7, 0.99, size=(6, 2))
    measured = FrfSet(np.arange(6.0), h, "mobility", names, names, coherence=coherence, averages=averages)
    std = coherence_noise(measured).log_std
    assert np.median(std[:, 0, 1] / std[:, 0, 0]) > 30.0
    for i, name in enumerate(names):
        np.testing.assert_allclose(
            coherence_noise(select_channels(measured, inputs=[name])).log_std[:, :, 0], std[:, :, i], rtol=1e-9
        )
    np.testing.assert_allclose(
        coherence_noise(select_channels(measured, inputs=names[::-1])).log_std, std[:, :, ::-1], rtol=1e-9
    )
    assert select_channels(measured, inputs=names[::-1]).coherence.ndim == 2
    third = FrfSet(np.arange(6.0), h[:, :, :1], "mobility", names, ("c x",), coherence=coherence, averages=averages)
    joined = coherence_noise(stack_inputs([measured, third])).log_std
    np.testing.assert_allclose(joined[:, :, :2], std, rtol=1e-9)
    np.testing.assert_allclose(joined[:, :, 2], coherence_noise(third).log_std[:, :, 0], rtol=1e-9)
    for keep, expected in (("upper", std[:, 0, 1]), ("lower", std[:, 1, 0])):
        kept = coherence_noise(symmetrize(measured, keep)).log_std
        np.testing.assert_allclose(kept[:, 0, 1], expected, rtol=1e-9)
        np.testing.assert_allclose(kept[:, 1, 0], expected, rtol=1e-9)
        np.testing.assert_allclose(kept[:, 0, 0], std[:, 0, 0], rtol=1e-9)
    # the worse one stands for the mean
    np.testing.assert_allclose(
        coherence_noise(symmetrize(measured)).log_std[:, 0, 1], np.maximum(std[:, 0, 1], std[:, 1, 0]), rtol=1e-9
    )


def test_the_share_as_it_is_defined():
    h = np.array([[[3.0, 4.0j]]])
    each = of_each_input(np.array([[0.8]]), h, None)[0, 0]
    np.testing.assert_allclose(each, [1 / (1 + 0.25 * 25 / 9), 1 / (1 + 0.25 * 25 / 16)], rtol=1e-12)
    # squares of such responses are below the smallest number
    np.testing.assert_allclose(of_each_input(np.array([[0.8]]), 1e-60 * h, None)[0, 0], each, rtol=1e-12)
    np.testing.assert_array_equal(of_each_input(np.array([[1.0]]), h, 9), np.ones((1, 1, 2)))
    h[0, 0, 1] = np.nan
    np.testing.assert_allclose(of_each_input(np.array([[0.8]]), h, None)[0, 0], [0.8, np.nan], rtol=1e-12)


def test_zero_responses_of_several_inputs_count_for_nothing():
    h = np.array([[[1.0, 0.0]]], dtype=complex)
    std = coherence_noise(FrfSet(np.ones(1), h, "receptance", coherence=np.full((1, 1), 0.9), averages=4)).log_std
    assert np.isfinite(std).all()
    assert std[0, 0, 1] > 100.0


@pytest.mark.parametrize("hits", [3, 5, 10])
def test_few_averages_tell_noise_that_is_right_in_the_mean(hits):
    """Errors over estimated variances are 1 in the mean square, where (n - 1) / (n - 2) and more is left by line."""
    rng, lines = np.random.default_rng(hits), 20_000
    true = np.exp(np.sin(np.linspace(0.0, 20.0, lines)))
    degrees = 2 * (hits - 1)
    estimated = true * rng.chisquare(degrees, size=lines) / degrees
    error = np.sqrt(true) * rng.normal(size=lines)
    assert np.mean(error**2 / moderated(estimated, degrees)) == pytest.approx(1.0, abs=0.03)
    # weights 1 / variance: what they make of the variance of a mean, over what they say of it
    weight = 1.0 / moderated(estimated, degrees)
    assert np.sum(weight**2 * error**2) / np.sum(weight) == pytest.approx(1.0, abs=0.05)
    scatter = np.std(np.log(moderated(estimated, degrees) / true))
    assert scatter < 0.5 * np.std(np.log(estimated / true))


def test_noise_that_differs_from_line_to_line_keeps_its_own():
    """Where the true variances scatter a hundredfold, neighbours say nothing of a line."""
    rng, lines, degrees = np.random.default_rng(0), 2000, 18
    true = np.exp(2.0 * rng.normal(size=lines))
    estimated = true * rng.chisquare(degrees, size=lines) / degrees
    found = moderated(estimated, degrees)
    # all are widened by the mean square of Student's t
    assert np.median(found / estimated) == pytest.approx(degrees / (degrees - 2.0), rel=0.1)
    assert np.corrcoef(np.log(found), np.log(true))[0, 1] > 0.95


def test_lines_behind_an_exponential_window_have_noise_in_common():
    """The expectation itself, sum w^2 exp(-j (omega_k - omega_l) t), over the samples of a record."""
    rate, samples, decay = 64.0, 1024, 0.7
    time = np.arange(samples) / rate
    omega = 2.0 * np.pi * np.arange(40) * rate / samples
    square = np.exp(-2.0 * decay * time)
    difference = omega[:, None] - omega
    expected = np.tensordot(square, np.exp(-1j * time[:, None, None] * difference), 1) / square.sum()
    np.testing.assert_allclose(window_correlation(omega, decay), expected, atol=0.02)  # samples instead of an integral
    lines = lines_of_window(omega / (2.0 * np.pi), decay)
    assert lines == pytest.approx(np.sum(np.abs(window_correlation(omega, decay)[20]) ** 2), rel=0.1)  # of more lines
    assert lines_of_window(omega, 0.0) == 1.0


def hann_noise(rng, lines, pairs, averages=32):
    """Errors of H1 with random forces and Hann windows, in units of their standard deviation [2, f, pair]."""
    window, shape = np.hanning(2 * lines + 41)[:-1], (pairs, averages, 2 * lines + 40)
    force, response = (np.fft.rfft(rng.normal(size=shape) * window)[:, :, 10 : lines + 10] for _ in range(2))
    error = np.sum(response * force.conj(), axis=1) / np.sum(np.abs(force) ** 2, axis=1)
    found = np.stack([error.real, error.imag]).swapaxes(1, 2)
    return found / np.sqrt(np.mean(found**2))


def test_lines_of_hann_windows_have_noise_in_common():
    """The squares of the correlation of the window's transform, 4 / 9 and 1 / 36 at distances of one and two lines."""
    rng = np.random.default_rng(4)
    errors, present = hann_noise(rng, 300, 160), np.ones((2, 300, 160), bool)
    hann = np.array([4.0 / 9.0, 1.0 / 36.0, 0.0])
    np.testing.assert_allclose(window_correlation_of(errors, present), hann, atol=0.03)
    white = rng.normal(size=errors.shape)
    np.testing.assert_array_equal(window_correlation_of(white, present), 0.0)
    smooth = 0.15 * np.sin(np.arange(300) / 3.0)[:, None]  # a model error is no window
    np.testing.assert_allclose(window_correlation_of(errors + smooth, present), hann, atol=0.03)
    larger = 0.5 * np.sin(np.arange(300) / 2.0)[:, None] + white
    np.testing.assert_array_equal(window_correlation_of(larger, present), 0.0)
