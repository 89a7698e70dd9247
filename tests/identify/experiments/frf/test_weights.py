"""Weights find modes and not noise, and what cannot enter a logarithm is left out and said."""

import numpy as np
import pytest
from scipy.signal import find_peaks, peak_widths

from jaxmb.identify.assess.remarks import data_remarks
from jaxmb.identify.experiments.frf.weights import MOST_DAMPING, band_weights, peak_weights, resonances, usable_lines
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study
from jaxmb.io.validation import InputError
from jaxmb.machine.file import load_machine
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.mechanics.kinematics import reference_posture
from jaxmb.mechanics.postures import build_model
from jaxmb.mechanics.tangent import linearize
from jaxmb.response.frf import frf
from jaxmb.response.modal import modes

MODEL = build_model(load_machine("manipulator-3r"))
POSTURE = reference_posture(MODEL)
STEP_HZ = 0.2
FREQUENCY = STEP_HZ * np.arange(1, 151)


@pytest.fixture(scope="module")
def measured():
    return np.asarray(frf(MODEL, POSTURE, FREQUENCY))


@pytest.fixture(scope="module")
def mode_lines():
    """Line next to each natural frequency."""
    return np.round(np.asarray(modes(linearize(MODEL, POSTURE)).frequency_hz) / STEP_HZ).astype(int) - 1


def noisy(h, seed):
    real, imaginary = np.random.default_rng(seed).normal(scale=0.01, size=(2, *h.shape))
    return h * np.exp(real + 1j * imaginary)


def test_peaks_of_direct_frfs_are_the_modes(measured, mode_lines):
    """Every mode is a peak of some direct FRF, and they have no other peak."""
    at_peak = np.argwhere(peak_weights(FREQUENCY, measured, 50.0, 0, 0.5) == 50.0)
    direct = np.array([line for line, o, i in at_peak if o == i])
    distance = np.abs(direct[:, None] - mode_lines)
    # The summit of a peak lies a line beside the natural frequency at most.
    assert distance.min(axis=1).max() <= 1
    assert distance.min(axis=0).max() <= 1


@pytest.mark.parametrize("seed", range(5))
def test_noise_makes_and_loses_no_peak(measured, seed):
    """With 1 % of noise each FRF has the peaks that it has without, moved by a line at most."""
    clean, found = (peak_weights(FREQUENCY, h, 50.0, 0, 0.5) for h in (measured, noisy(measured, seed)))
    assert set(np.unique(found)) == {0.5, 50.0}
    for o, i in np.ndindex(3, 3):
        expected, peaks = (np.flatnonzero(w[:, o, i] == 50.0) for w in (clean, found))
        assert expected.size
        assert peaks.size == expected.size, (o, i)
        assert np.abs(peaks - expected).max() <= 1, (o, i)


def test_a_low_prominence_takes_ripples(measured):
    """The threshold is what keeps noise out: below the noise's own size, ripples become peaks."""
    few, many = (np.sum(peak_weights(FREQUENCY, noisy(measured, 0), 50.0, 0, 0.5, p) == 50.0) for p in (0.1, 1e-3))
    assert many > 2 * few


@pytest.mark.parametrize("half_width", [0, 1, 2, 7])
def test_half_width(half_width):
    """One resonance: the peak and so many lines to either side, and no line more."""
    h = (1.0 / (1.0 - (np.arange(1, 41) / 20.0) ** 2 + 0.02j))[:, None, None]
    weights = peak_weights(np.arange(1.0, 41.0), h, 80.0, half_width, 0.25)[:, 0, 0]
    expected = np.full(40, 0.25)
    expected[19 - half_width : 20 + half_width] = 80.0
    np.testing.assert_array_equal(weights, expected)


def far(lines):
    """Frequencies far above their step, where a peak of one line is that of a lightly damped mode."""
    return 100.0 + np.arange(lines)


def test_a_hump_between_antiresonances_is_no_mode():
    """A broad maximum stands out as far as a mode does, but no lightly damped mode is as wide."""
    f = np.linspace(1.0, 30.0, 146)
    hump = (1.0 - (f / 12.0) ** 2) * (1.0 - (f / 1.5) ** 2) * np.exp(-f / 3.0) + 1e-9j
    mode = hump + 0.5 / (1.0 - (f / 20.0) ** 2 + 0.01j)
    assert not np.any(peak_weights(f, hump[:, None, None], 80.0, 2, 0.5) == 80.0)
    lines = np.flatnonzero(peak_weights(f, mode[:, None, None], 80.0, 0, 0.5)[:, 0, 0] == 80.0)
    np.testing.assert_allclose(f[lines], [20.0], atol=0.2)


def test_peaks_at_the_ends_of_the_band():
    h = np.array([1.0, 9.0, 1.0, 1.0, 1.0, 9.0, 1.0])[:, None, None] + 0j
    np.testing.assert_array_equal(peak_weights(far(7), h, 5.0, 3, 1.0), np.full((7, 1, 1), 5.0))


def test_each_frf_has_its_own_peaks():
    h = np.ones((9, 1, 2), dtype=complex)
    h[2, 0, 0] = h[6, 0, 1] = 10.0
    weights = peak_weights(far(9), h, 5.0, 0, 1.0)
    np.testing.assert_array_equal(np.argwhere(weights == 5.0), [[2, 0, 0], [6, 0, 1]])


def test_a_lost_line_is_no_valley():
    """A mode keeps its weight where a line beside it is lost, and lost lines make no peaks."""
    h = np.array([1.0, 2.0, 9.0, np.nan, 2.0, 1.0, 0.0, 1.0, 1.0])[:, None, None] + 0j
    weights = peak_weights(far(9), h, 5.0, 0, 1.0)[:, 0, 0]
    np.testing.assert_array_equal(np.flatnonzero(weights == 5.0), [2])


def test_bands_by_hand():
    f = np.array([1.0, 2.0, 3.0, 4.0])
    bands = [((2.0, 3.0), 7.0, [0], [0, 1]), ((3.0, 9.0), 0.0, [0, 1], [1])]
    weights = band_weights(f, (4, 2, 2), bands, 0.5)
    expected = np.full((4, 2, 2), 0.5)
    expected[1:3, 0, :] = 7.0
    expected[2:, :, 1] = 0.0  # the later band counts where two overlap
    np.testing.assert_array_equal(weights, expected)


def test_the_ends_of_a_band_are_lines_of_it_up_to_rounding():
    f = 0.1 * np.arange(10)  # 0.30000000000000004 and 0.6000000000000001 are the ends
    weights = band_weights(f, (10, 1, 1), [((0.3, 0.6), 5.0, (0,), (0,))], 1.0)
    np.testing.assert_array_equal(np.flatnonzero(weights[:, 0, 0] == 5.0), [3, 4, 5, 6])


def test_usable_lines():
    h = np.array([[[1.0, 1e-14], [2.0, 1e-12]], [[np.nan, 0.0], [np.inf, 1.0]], [[0.0, 0.0], [0.0, 0.0]]]) + 0j
    expected = [[[True, False], [True, True]], [[False, False], [False, True]], [[False, False], [False, False]]]
    np.testing.assert_array_equal(usable_lines(h), expected)


@pytest.fixture
def study(tmp_path):
    """Study of an FRF file: a function of the responses and of the test's further entries."""

    def make(h, **more):
        write_frf(tmp_path / "h.npz", FrfSet(FREQUENCY, h, "accelerance", source="h"))
        test = {"kind": "frf", "noise_log_std": 0.01, "name": "one", "file": "h.npz"} | more
        free = {"stiffness.*": {"lower": 1e5, "upper": 1e8}}
        file = StudyFile.model_validate({"machine": "manipulator-3r", "test": [test], "free": free})
        return make_study(file, "s", tmp_path)

    return make


def test_all_lines_count_alike_where_nothing_is_said(measured, study):
    made = study(measured)
    np.testing.assert_array_equal(made.tests[0].weight, np.ones(measured.shape))
    assert data_remarks(made) == []


def test_zero_and_missing_lines_are_left_out_and_reported(measured, study):
    h = measured.copy()
    h[3] = 0.0
    h[5:7, 1, 2] = np.nan
    h[9, 0, 0] = complex(1.0, np.inf)
    made = study(h)
    expected = np.ones(h.shape)
    expected[3] = expected[5:7, 1, 2] = expected[9, 0, 0] = 0.0
    np.testing.assert_array_equal(made.tests[0].weight, expected)
    assert np.isfinite(made.tests[0].measured).all()
    assert data_remarks(made) == ["test 'one': all FRFs: up to 3 of 150 lines are zero or not finite, and are left out"]
    residual = np.asarray(made.problem.residual(made.free.lower))
    assert np.isfinite(residual).all()


def test_cross_terms_that_symmetry_makes_zero_are_no_error(measured, study):
    h = measured.copy()
    h[:, 0, 1] = h[:, 1, 0] = 0.0
    h[:, 1, 2] = 1e-15 * np.abs(h).max(axis=(1, 2))
    made = study(h, weights={"peaks": 50, "elsewhere": 0.5})
    for o, i in ((0, 1), (1, 0), (1, 2)):
        assert not np.asarray(made.tests[0].weight[:, o, i]).any()
    assert np.asarray(made.tests[0].weight[:, 2, 1]).all()
    [told] = data_remarks(made)
    assert "tool x from tool y; tool y from tool x, tool z (3 FRFs): all 150 lines" in told


@pytest.mark.parametrize(("o", "i", "value"), [(0, 0, np.nan), (0, 1, np.nan), (2, 2, 0.0)])
def test_an_frf_without_any_line_is_an_error(measured, study, o, i, value):
    h = measured.copy()
    h[:, o, i] = value
    axes = "xyz"
    message = (
        rf"test 'one': the FRF from tool {axes[i]} to tool {axes[o]} has no finite non-zero value in 150 lines.*own"
    )
    with pytest.raises(InputError, match=message):
        study(h)


def test_weights_that_are_all_zero_are_an_error(measured, study):
    with pytest.raises(InputError, match="test 'one': all weights are zero"):
        study(measured, weights={"elsewhere": 0.0})
    band = {"band_hz": [1.0, 5.0], "weight": 0.0}
    with pytest.raises(InputError, match="test 'one': all weights are zero"):
        study(measured, weights={"bands": [band], "elsewhere": 0.0})


def test_bands_in_a_study(measured, study):
    point = {"outputs": [["tool", "x"]], "inputs": [["tool", "z"]]}
    bands = [{"band_hz": [9.0, 12.0], "weight": 10.0}, {"band_hz": [20.0, 25.0], "weight": 3.0} | point]
    weight = np.asarray(study(measured, weights={"bands": bands, "elsewhere": 0.0}).tests[0].weight)
    first = (FREQUENCY >= 9.0 - 1e-9) & (FREQUENCY <= 12.0 + 1e-9)
    second = (FREQUENCY >= 20.0 - 1e-9) & (FREQUENCY <= 25.0 + 1e-9)
    expected = np.zeros(measured.shape)
    expected[first] = 10.0
    expected[second, 0, 2] = 3.0
    np.testing.assert_array_equal(weight, expected)


def test_the_first_fit_is_to_lines_that_count(measured, study):
    """Evenly over all where all count; over those of a band where the others have no weight, and as many in number."""
    whole = study(measured).tests[0].lines.decimate(4)
    np.testing.assert_allclose(whole.omega, 2.0 * np.pi * FREQUENCY[[0, 50, 99, 149]])
    band = {"band_hz": [9.0, 12.0], "weight": 10.0}
    test = study(measured, weights={"bands": [band], "elsewhere": 0.0}).tests[0]
    np.testing.assert_allclose(test.lines.decimate(4).omega, 2.0 * np.pi * np.array([9.0, 10.0, 11.0, 12.0]))
    np.testing.assert_array_equal(test.lines.decimate(4).weight, np.ones((4, 3, 3)))
    most = test.lines.decimate(32)
    assert most.omega.size == 32
    assert (np.diff(most.omega) > 0.0).all()
    assert np.sum(most.weight[:, 0, 0]) == np.count_nonzero(test.weight[:, 0, 0]) == 16


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            {"bands": [{"band_hz": [12.0, 9.0], "weight": 1.0}]},
            r"weights.bands.0.band_hz\n .*expected ascending values",
        ),
        (
            {"bands": [{"band_hz": [1.0, 9.0], "weight": 1.0, "outputs": [["link1", "x"]]}]},
            "weights: output 'link1 x' does not exist; expected one of: tool x, tool y, tool z",
        ),
    ],
)
def test_wrong_bands(measured, study, weights, message):
    with pytest.raises(ValueError, match=message):
        study(measured, weights=weights)


def test_what_has_no_line_is_said_in_one_sentence(measured, study):
    """A plane arm: nothing across its plane; and one response alone."""
    h = measured.copy()
    h[:, 2, :2] = h[:, :2, 2] = 0.0
    [remark] = data_remarks(study(h))
    assert remark.startswith(
        "test 'one': tool x from tool z; tool y from tool z; tool z from tool x, tool y (4 FRFs): all 150 lines"
    )
    h = measured.copy()
    h[:, 2, 0] = 0.0
    h[:2, 0] = np.nan
    [remark] = data_remarks(study(h))
    assert (
        "tool z from tool x (1 FRF): all 150 lines; tool x from tool x, tool y, tool z (3 FRFs): up to 2 of 150"
        in remark
    )


@pytest.mark.parametrize("digits", [1, 12], ids=["with plateaus", "without"])
def test_resonances_are_the_peaks_and_widths_that_scipy_finds(digits):
    random = np.random.default_rng(0)
    count = 0
    for size in range(1, 200):
        level = np.round(0.05 * np.cumsum(random.normal(size=size)), digits)
        frequency_hz = np.sort(random.uniform(1.0, 200.0, size))
        expected, properties = find_peaks(level, prominence=0.1)
        depth = np.minimum(0.5, 0.5 * np.log10(2.0) / properties["prominences"])
        ends = [np.ravel(peak_widths(level, [p], share)[2:]) for p, share in zip(expected, depth, strict=True)]
        width = np.array([np.ptp(np.interp(e, np.arange(size), frequency_hz)) for e in ends])
        expected = expected[width <= 2.0 * MOST_DAMPING * frequency_hz[expected]]
        np.testing.assert_array_equal(resonances(level, frequency_hz, 0.1), expected)
        count += expected.size
    assert count > 300
