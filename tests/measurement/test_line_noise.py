"""The noise that a coherence tells against the scatter of FRFs that are estimated again and again."""

import numpy as np
import pytest

from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.line_noise import coherence_log_std

AVERAGES = 200
DRAWS = 3000


def averaged(truth, noise, rng, inputs):
    """H1 estimates [draw, input] and multiple coherences [draw] of one output at one line."""
    shape = (DRAWS, AVERAGES)
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
    told = coherence_log_std(
        FrfSet(np.ones(1), np.array(truth)[None, None, :], "receptance", coherence=given, averages=AVERAGES)
    )
    # The scatter of 3000 draws is known to 1 %, the formula is the first order in the relative noise (up to 0.2 here).
    np.testing.assert_allclose(told[0, 0], scatter, rtol=0.06)


def test_no_coherence_is_no_noise_and_no_signal_is_finite():
    h = np.ones((3, 1, 1), dtype=complex)
    frequency = np.arange(3.0)
    assert not coherence_log_std(FrfSet(frequency, h, "receptance")).any()
    coherence = np.array([0.0, np.nan, 1.0])[:, None, None]
    std = coherence_log_std(FrfSet(frequency, h, "receptance", coherence=coherence))[:, 0, 0]
    assert np.isfinite(std).all()
    assert std[0] == std[1] > 100.0
    assert std[2] == 0.0


def test_zero_responses_of_several_inputs_count_for_nothing():
    h = np.array([[[1.0, 0.0]]], dtype=complex)
    std = coherence_log_std(FrfSet(np.ones(1), h, "receptance", coherence=np.full((1, 1), 0.9), averages=4))
    assert np.isfinite(std).all()
    assert std[0, 0, 1] > 100.0
