"""Noise of an FRF test that follows from a fit: additive, estimated, and correlated behind a window."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxmb.identify.assess.identify import identify
from jaxmb.machine.schema import Machine
from jaxmb.measurement.files.frf_file import write_frf
from jaxmb.measurement.frf_set import FrfSet
from tests.identify.arm import TRUTH, estimate_at, frf, study_of

LINES = np.linspace(1.0, 25.0, 400)
POINTS = ("tool x", "tool z")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An arm with a coherence of ten averages behind its FRFs, and what is predicted of its true parameters."""
    folder = tmp_path_factory.mktemp("noise")
    size = np.exp(0.1 * np.random.default_rng(0).normal(size=(LINES.size, 2, 2)))
    frfs = FrfSet(LINES, 1j * size, "accelerance", POINTS, POINTS, coherence=np.full(size.shape, 0.99), averages=10)
    write_frf(folder / "m.npz", frfs)
    points = [["tool", "x"], ["tool", "z"]]
    own = {"posture": {"a": 0.2, "b": 0.5}, "outputs": points, "inputs": points, "noise_log_std": "estimate"}
    study = study_of(folder, {"kind": "frf", "name": "a", "file": "m.npz"} | own)
    view = study.tests[0].view(study.free.apply(study.model, jnp.asarray([TRUTH[name] for name in study.free.names])))
    return study.tests[0], view


def with_noise_of(made, additive, floor):
    """The test with additive noise and a floor about what is predicted, drawn."""
    test, view = made
    rng, predicted = np.random.default_rng(3), np.asarray(test.predict(view))

    def noise(size):
        return size * (rng.normal(size=predicted.shape) + 1j * rng.normal(size=predicted.shape))

    measured = predicted * np.exp(noise(floor)) + noise(additive)
    known = np.full(predicted.shape, additive) / np.abs(measured)
    parts = {
        "measured": measured, "known_std": known, "noise_std": np.hypot(known, 0.01), "magnitude": np.abs(measured),
        "additive_std": np.full(predicted.shape, additive),
    }  # fmt: skip
    return dataclasses.replace(test, **{name: jnp.asarray(part) for name, part in parts.items()}), view, predicted


def test_additive_noise_is_relative_to_the_machine_that_fits(made):
    test, view, predicted = with_noise_of(made, 0.02, 0.0)
    fitted = test.noise.at_fit(view)
    counts = np.abs(predicted) >= 5.0 * 0.02
    assert 0.1 < counts.mean() < 0.999
    np.testing.assert_array_equal(np.asarray(fitted.weight) > 0.0, counts)
    np.testing.assert_allclose(np.asarray(fitted.known_std)[counts], 0.02 / np.abs(predicted[counts]), rtol=1e-9)
    np.testing.assert_allclose(
        np.asarray(fitted.noise_std)[counts] ** 2, 0.01**2 + (0.02 / np.abs(predicted[counts])) ** 2
    )
    # so errors are no larger than they are said to be, and lines that noise made large count for no more
    weak = counts & (np.abs(predicted) < 0.3)
    error = np.real(np.log(predicted / np.asarray(test.measured)))[weak]
    weight = np.asarray(fitted.known_std)[weak] ** -2.0
    mean, std = np.sum(weight * error) / np.sum(weight), np.sum(weight) ** -0.5
    assert abs(mean) < 3.0 * std
    biased = np.asarray(test.known_std)[weak] ** -2.0
    assert abs(np.sum(biased * error) / np.sum(biased)) > 4.0 * std


def test_what_no_noise_makes_of_the_machine_counts(made):
    """FRFs in another unit are far above what the machine predicts, however small that is beside their noise."""
    test, view, predicted = with_noise_of(made, 0.02, 0.0)
    large = 1e3 * np.asarray(test.measured)
    wrong = dataclasses.replace(
        test, measured=jnp.asarray(large), magnitude=jnp.asarray(np.abs(large)), additive_std=test.additive_std * 1e3
    )
    fitted = wrong.noise.at_fit(view)
    above = np.abs(predicted) >= 10.0 * 0.02
    assert np.all(np.asarray(fitted.weight)[above] > 0.0)
    np.testing.assert_allclose(np.asarray(fitted.noise_std)[above], np.asarray(wrong.noise_std)[above])


@pytest.mark.parametrize(("additive", "floor"), [(0.002, 0.03), (0.02, 0.01), (0.02, 0.0)])
def test_only_the_floor_is_estimated(made, additive, floor):
    """Beside additive noise that is known, on lines of which most have more of it."""
    test, view, _ = with_noise_of(made, additive, floor)
    test = test.noise.at_fit(view)
    residual = np.asarray(test.residual(view))
    expected = 2.0 * np.sum(np.asarray(test.weight) > 0.0)
    found = test.noise.estimated_level(residual, expected)
    assert found == pytest.approx(floor, rel=0.1, abs=0.003)
    again = test.noise.with_level(found)
    assert float(again.nominal_std) == found
    known = np.asarray(test.known_std)
    np.testing.assert_allclose(np.asarray(again.noise_std) ** 2, known**2 + found**2, rtol=1e-9)


def test_the_scatter_determines_the_noise_beside_leakage(made):
    """Leakage into most FRFs is smooth: it remains noise, and the scatter is that of the other FRFs."""
    test, view, predicted = with_noise_of(made, 0.0, 0.01)
    known, level = np.full(predicted.shape, 0.5), 0.04
    known[:, 0, 0] = 0.001
    parts = {"known_std": known, "noise_std": np.hypot(known, level), "weight": np.ones(predicted.shape)}
    leaks = test.measured * np.exp(known * np.linspace(-1.0, 1.0, len(known))[:, None, None])
    test = dataclasses.replace(test, measured=leaks, **{name: jnp.asarray(part) for name, part in parts.items()})
    factor = test.lines.scatter(np.asarray(test.residual(view)), np.asarray(test.stated_variances()))
    std = np.broadcast_to(factor, 2 * known.size).reshape(2, *known.shape) ** 0.5 * parts["noise_std"]
    np.testing.assert_allclose(std[..., 0, 0], 0.01, rtol=0.1)  # the median of 800 squares is exact to 5 %
    np.testing.assert_allclose(std[..., 1, 1], 0.5, rtol=1e-3)


def test_the_variance_of_errors_behind_a_window(made):
    """White noise in time behind exp(-sigma t), over FRFs of any phase, along a direction of the residual: the sum of
    squares of what each sample of unit variance adds to the projection."""
    test, _ = made
    rng, decay = np.random.default_rng(1), 2.0
    step = float(LINES[1] - LINES[0])
    samples = 1024
    time = np.arange(samples) / (samples * step)
    window = np.exp(-decay * time)
    direction = (
        rng.normal(size=(2, 1, 1, 1)) * np.exp(-((LINES - 12.0) ** 2) / 2.0)[:, None, None] * np.ones((2, 1, 2, 2))
    )
    phase = np.exp(1j * np.linspace(0.0, 6.0, LINES.size))[:, None, None] * np.ones((1, 2, 2))
    test = dataclasses.replace(test, decay=jnp.asarray(decay), measured=jnp.asarray(phase))
    transform = np.exp(-2j * np.pi * LINES[:, None] * time) * window
    transform /= np.sqrt(np.sum(window**2) / 2.0)
    errors = transform[:, None, None, :] / phase[..., None]
    projected = np.einsum("cfoi,cfoin->oin", direction, np.stack([errors.real, errors.imag]))
    basis = direction.reshape(-1, 1)
    factor = test.noise.variance_factor(basis, np.ones(basis.size))
    assert factor > 3.0
    assert np.sum(projected**2) / np.sum(direction**2) == pytest.approx(factor, rel=0.05)
    # nothing that is fitted acts on the test
    assert test.noise.variance_factor(np.zeros((basis.size, 1)), np.ones(basis.size)) == 1.0


def test_what_symmetry_makes_zero_is_leak_alone(tmp_path):
    """Slides along the axes of the tool, oblique in space, do not move it across: what a sensor shows there leaks, and
    is left out once the machine is known, instead of being compared with rounding."""
    turn = [0.3, 0.37, 0.9]
    along, across = Rotation.from_euler("xyz", turn).as_matrix()[:, [0, 2]].T.tolist()
    joint = {"name": "s", "type": "prismatic", "axis": along, "stiffness": 4e5, "damping": 60.0}
    other = {"name": "t", "type": "prismatic", "axis": across, "stiffness": 1e5, "damping": 40.0}
    bodies = [
        {"name": "cart", "joint": [joint], "mass": 20.0},
        {"name": "head", "parent": "cart", "joint": [other], "mass": 8.0},
    ]
    tool = {"name": "tool", "body": "head", "origin": {"rpy": turn}}
    machine = Machine.model_validate({"name": "cross", "body": bodies, "frame": [tool]})
    omega = 2.0 * np.pi * LINES
    direct = [-(omega**2) / (k + 1j * c * omega - m * omega**2) for m, c, k in ((28.0, 60.0, 4e5), (8.0, 40.0, 1e5))]
    h = np.zeros((LINES.size, 2, 2), complex)
    h[:, 0, 0], h[:, 1, 1] = direct
    leak = np.eye(2) + np.array([[0.0, 0.02], [-0.015, 0.0]])
    noise = np.random.default_rng(0).normal(size=(2, *h.shape))
    h = (leak @ h @ leak.T) * np.exp(0.005 * (noise[0] + 1j * noise[1]))
    write_frf(tmp_path / "m.npz", FrfSet(LINES, h, "accelerance", POINTS, POINTS))
    points = [["tool", "x"], ["tool", "z"]]
    own = {"name": "a", "file": "m.npz", "outputs": points, "noise_log_std": 0.005, "cross_axis": 0.03}
    free = {"stiffness.*": {"lower": 1e3, "upper": 1e7}, "damping.*": {"lower": 1.0, "upper": 1e4}}
    result = identify(study_of(tmp_path, {"kind": "frf"} | own, machine=machine, free=free))
    assert result.status == "converged"
    assert result.doubts == ()
    truth = {"stiffness.s": 4e5, "stiffness.t": 1e5, "damping.s": 60.0, "damping.t": 40.0}
    for name, value in truth.items():
        found = result.parameters[name]
        assert found.identifiable == "yes"
        assert abs(np.log(found.value / value)) <= 3.0 * found.std_log


def test_exchanged_inputs_exchange_their_noise(tmp_path):
    """Weak FRFs have the noise of leakage: those of a test with exchanged inputs and its alternative are one test."""
    rng = np.random.default_rng(1)
    size = rng.uniform(0.5, 2.0, size=(LINES.size, 2, 2)) * np.array([[1.0, 0.01], [0.02, 3.0]])
    points = [["tool", "x"], ["tool", "z"]]
    own = {"posture": {"a": 0.2, "b": 0.5}, "outputs": points, "inputs": points, "noise_log_std": 0.01}
    right, wrong = (FrfSet(LINES, 1j * h, "accelerance", POINTS, POINTS) for h in (size, size[:, :, ::-1]))
    tests = []
    for name, frfs in (("right", right), ("wrong", wrong)):
        write_frf(tmp_path / f"{name}.npz", frfs)
        study = study_of(tmp_path, {"kind": "frf", "name": name, "file": f"{name}.npz"} | own)
        tests.append(study.tests[0])
    alternatives = {text: test for _, text, test in tests[1].description.alternatives(study.model)}
    other = alternatives["exchanged inputs tool x and tool z"]
    np.testing.assert_array_equal(other.measured, tests[0].measured)
    np.testing.assert_allclose(other.noise_std, tests[0].noise_std, rtol=1e-12)
    assert np.ptp(np.asarray(other.noise_std)) > 0.1


def test_channels_whose_exchange_leaves_nothing_to_compare_are_not_exchanged(tmp_path):
    """Where the cross FRFs are zero, exchanged inputs have only values that are not used, which explain any data."""
    points = [["tool", "x"], ["tool", "z"]]
    own = {"posture": {"a": 0.2, "b": 0.5}, "outputs": points, "inputs": points, "noise_log_std": 0.01}
    for cross, expected in ((0.0, False), (0.1, True)):
        size = np.broadcast_to([[1.0, cross], [cross, 3.0]], (LINES.size, 2, 2)) * 1j
        write_frf(tmp_path / "m.npz", FrfSet(LINES, size, "accelerance", POINTS, POINTS))
        study = study_of(tmp_path, {"kind": "frf", "name": "m", "file": "m.npz"} | own)
        texts = [text for _, text, _ in study.tests[0].description.alternatives(study.model)]
        assert any("exchanged" in text for text in texts) == expected


def test_exchanged_channels_are_compared_where_both_were_measured(tmp_path):
    """Of a machine that both tests fit: the exchange that corrects the file leaves no residual, but for lost lines."""
    points = [["tool", "x"], ["tool", "z"]]
    own = {"posture": {"a": 0.2, "b": 0.5}, "outputs": points, "inputs": points, "noise_log_std": 0.01}
    study = study_of(
        tmp_path, {"kind": "frf", "simulate": {"lines": {"first_hz": 2.0, "last_hz": 20.0, "step_hz": 0.5}}} | own
    )
    view = study.tests[0].view(study.model)
    h = np.array(study.tests[0].predict(view))[:, :, ::-1]
    h[:2, 0, 1] = np.nan
    write_frf(
        tmp_path / "m.npz", FrfSet(np.asarray(study.tests[0].omega) / 2.0 / np.pi, h, "accelerance", POINTS, POINTS)
    )
    (wrong,) = study_of(tmp_path, {"kind": "frf", "name": "m", "file": "m.npz", "cross_axis": 0.0} | own).tests
    alternatives = {text: test for _, text, test in wrong.description.alternatives(study.model)}
    residual = alternatives["exchanged inputs tool x and tool z"].residual(view)
    np.testing.assert_allclose(residual, 0.0, atol=1e-9)
    assert np.linalg.norm(wrong.residual(view)) > 100.0


def test_stated_noise_of_hann_windows_has_fewer_independent_lines(tmp_path):
    """H1 of random forces, boxcar and Hann: 1 + 2 (4 / 9 + 1 / 36) times the variance."""
    std, rng = list[np.ndarray](), np.random.default_rng(1)
    band = {"first_hz": 1.0, "last_hz": 25.0, "step_hz": 0.05}
    exact = study_of(tmp_path, frf(simulate={"lines": band, "noise_log_std": 0.0})).tests[0]
    lines, measured = np.asarray(exact.omega) / (2.0 * np.pi), np.asarray(exact.measured)
    for window in (np.ones(1200), np.hanning(1201)[:-1]):
        force, response = (
            np.fft.rfft(rng.normal(size=(4, 21, 1200)) * window)[..., 20 : 20 + lines.size] for _ in range(2)
        )
        error = np.sum(response * force.conj(), axis=1) / np.sum(np.abs(force) ** 2, axis=1)
        noisy = measured * np.exp(0.02 * error.T.reshape(measured.shape))
        write_frf(tmp_path / "m.npz", FrfSet(lines, noisy, "accelerance", POINTS, POINTS))
        own = {"posture": {"a": 0.2, "b": 0.5}, "file": "m.npz", "noise_log_std": 0.02 / np.sqrt(40.0)}
        points = {"outputs": [["tool", "x"], ["tool", "z"]], "inputs": [["tool", "x"], ["tool", "z"]]}
        study = study_of(tmp_path, {"kind": "frf", "name": "a"} | own | points, tolerances="exact")
        std.append(estimate_at(study, np.log([TRUTH[name] for name in study.free.names])).std)
    np.testing.assert_allclose((std[1] / std[0]) ** 2, 1.94, rtol=0.15)


def test_leaks_of_directions_within_their_tolerance_have_no_common_ratio(tmp_path):
    """The errors of directions have columns of their own, so that the noise does not contain them a second time; a
    stated ratio has no other place."""
    test = {"posture": {"a": 0.2, "b": 0.5}, "noise_log_std": 0.01}
    write_frf(tmp_path / "m.npz", FrfSet(LINES, smooth_frf(), "accelerance", POINTS, POINTS))
    points = [["tool", "x"], ["tool", "z"]]
    for own, has_ratio in (({"cross_axis": 0.03}, True), ({}, False)):
        part = {"kind": "frf", "file": "m.npz", "outputs": points, "inputs": points} | test | own
        (read,) = study_of(tmp_path, part).tests
        assert np.asarray(read.leak).any()
        basis = np.asarray(read.leak / read.measured / read.noise_std)
        basis = np.concatenate([basis.real, basis.imag]).reshape(-1, 1)
        factor = read.noise.variance_factor(basis, np.asarray(read.stated_variances()))
        assert (factor > 10.0) is has_ratio
        assert read.noise.between_responses is has_ratio


def smooth_frf():
    """Responses of two directions, of which one is small across the other."""
    s = 2j * np.pi * LINES[:, None, None]
    return s**2 / (s**2 + 8.0 * s + (60.0**2)) * np.array([[1.0, 0.02], [0.02, 0.5]])


def test_the_additive_residual_is_that_of_responses(made):
    """Against the measured and predicted responses, and its derivative against a difference."""
    test, _, predicted = with_noise_of(made, 0.0, 0.3)
    factor = np.random.default_rng(5).uniform(0.5, 2.0, test.rows)
    rate = np.random.default_rng(6).normal(size=predicted.shape) + 0.5j

    def residual(at):
        return factor * np.asarray(test.residual_of(predicted * np.exp(rate * at)))

    jacobian = (residual(1e-6) - residual(-1e-6))[:, None] / 2e-6
    found, slope = test.description.additive(residual(0.0), jacobian, factor)
    scale = (np.sqrt(np.asarray(test.weight)) / np.asarray(test.noise_std)).ravel()
    error = (predicted / np.asarray(test.measured) - 1.0).ravel() * scale
    np.testing.assert_allclose(found, np.concatenate([error.real, error.imag]) * factor, atol=1e-9)
    change = (predicted * rate / np.asarray(test.measured)).ravel() * scale
    np.testing.assert_allclose(slope[:, 0], np.concatenate([change.real, change.imag]) * factor, atol=1e-4)
