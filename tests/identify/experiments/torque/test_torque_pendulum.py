"""Torque tests of a table that NumPy wrote: a pendulum, tau = I q'' + m g l cos q + d q' + f sign q'."""

import numpy as np
import pytest
from scipy.stats import chi2

import jaxmb
from jaxmb.identify.experiments.torque.effort_noise import correlation_length
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.study import make_study

NAMES = ("inertia.bob.zz", "first_moment.bob.x", "damping.q", "friction.q")
TRUE = np.array([0.5, 1.2, 0.7, 0.9])
G = 9.81
RATE = 200.0
TIME = np.arange(1001) / RATE
PENDULUM = jaxmb.Machine.model_validate({
    "name": "pendulum",
    "gravity": [0.0, -G, 0.0],
    "body": [{"name": "bob", "mass": 2.0, "joint": [{"name": "q", "damping": 0.1, "friction": 0.1}]}],
})  # fmt: skip
FREE = {
    "inertia.bob.zz": {"lower": -5.0, "upper": 5.0}, "first_moment.bob.x": {"lower": -5.0, "upper": 5.0},
    "damping.q": {"lower": 0.0, "upper": 5.0, "scale": "linear"}, "friction.q": {"lower": 0.0, "upper": 5.0},
}  # fmt: skip
TEST = {"kind": "torque", "file": "motion.csv", "cutoff_hz": 40.0, "least_speed": 0.02, "from_s": 0.3, "to_s": 4.7}


def motion(time=TIME):
    """Angle, rate and acceleration: 0.4 and 1.2 Hz."""
    terms = [(1.2, 0.4, 0.3), (0.3, 1.2, 1.0)]
    w = [(size, 2 * np.pi * hz, phase) for size, hz, phase in terms]
    return (sum(a * np.sin(w * time + p) for a, w, p in w), sum(a * w * np.cos(w * time + p) for a, w, p in w),
            -sum(a * w**2 * np.sin(w * time + p) for a, w, p in w))  # fmt: skip


def columns(time=TIME):
    """By which I, m l, d and f act."""
    q, qd, qdd = motion(time)
    return np.stack([qdd, G * np.cos(q), qd, np.sign(qd)], axis=1)


def study(folder, effort=0.0, time=TIME, measured=False, free=FREE, **changes):
    """Of the pendulum's torque and some more."""
    q, qd, qdd = motion(time)
    table = {"time_s": time, "q": q, "q.torque": columns(time) @ TRUE + effort}
    if measured:
        table |= {"q.velocity": qd, "q.acceleration": qdd}
    np.savetxt(folder / "motion.csv", np.stack(list(table.values()), axis=1), fmt="%.17g", delimiter=",",
               header=",".join(table), comments="")  # fmt: skip
    jaxmb.write_machine(PENDULUM, folder / "pendulum.toml")
    data = {"machine": "pendulum.toml", "test": [TEST | changes], "free": free, "tolerances": "exact"}
    return make_study(StudyFile.model_validate(data), "pendulum", folder)


def found(*arguments, **changes):
    result = jaxmb.identify(study(*arguments, **changes))
    return np.array([result.parameters[name].value for name in NAMES]), result


def used(**changes):
    """Which samples a test uses, but for the filter's ends."""
    settings = TEST | changes
    first, last = settings["from_s"], settings["to_s"]
    return (first <= TIME) & (last >= TIME) & (np.abs(motion()[1]) >= settings["least_speed"])


def test_closed_form(tmp_path):
    """Central differences of five samples at 1.2 Hz and 200 Hz make rates smaller by (w dt)^4 / 30 = 7e-8; friction and
    damping, which are almost alike, share the error."""
    values, result = found(tmp_path)
    assert result.status == "converged"
    np.testing.assert_allclose(values, TRUE, rtol=1e-6)
    assert result.study.tests[0].rows == pytest.approx(used().sum(), abs=2)


def test_uneven_time(tmp_path):
    """The message has a rate that works; the step of friction is between two samples, which are left out."""
    time = np.arange(1001) / RATE
    time[1:-1] += np.random.default_rng(0).uniform(-0.4, 0.4, 999) / RATE
    with pytest.raises(ValueError, match=r"test 'motion': .*time_s is not even: .* or resample_hz = 200 of the test"):
        study(tmp_path, time=time)
    values, result = found(tmp_path, time=time, resample_hz=200.0)
    np.testing.assert_allclose(values, TRUE, rtol=1e-3)
    assert any("resampled at 200 Hz, from steps of 0.001" in text for text in result.remarks)
    values, _ = found(tmp_path, time=time, resample_hz=100.0, cutoff_hz=30.0)
    np.testing.assert_allclose(values, TRUE, rtol=1e-2)
    with pytest.raises(ValueError, match=r"resample_hz: 1 Hz gives 6 samples, expected 20 to 2000000"):
        study(tmp_path, time=time, resample_hz=1.0)


def test_measured_rates(tmp_path):
    """At 20 Hz differences take (w dt)^4 / 30 = 7e-4 from rates at 1.2 Hz; measured ones are right. Only the filter at
    9 Hz, (1.2 / 9)^8 = 1e-7, and its ends are left."""
    time = np.arange(400) / 20.0
    settings = {"time": time, "cutoff_hz": 9.0, "from_s": 2.0, "to_s": 18.0}
    values, _ = found(tmp_path, measured=True, **settings)
    np.testing.assert_allclose(values, TRUE, rtol=1e-5)
    rough, _ = found(tmp_path, **settings)
    assert np.abs(rough / TRUE - 1.0).max() > 1e-4


@pytest.mark.parametrize(("column", "factor"), [(None, 1.0), ("q.velocity", 180.0 / np.pi), ("q.acceleration", -1.0)])
def test_rates_in_another_unit(tmp_path, column, factor):
    """Damping would come out 57 times too small, with nothing else that shows it."""
    own = study(tmp_path, measured=True)
    names = (tmp_path / "motion.csv").read_text().partition("\n")[0]
    table = np.loadtxt(tmp_path / "motion.csv", delimiter=",", skiprows=1)
    table[:, [name == column for name in names.split(",")]] *= factor
    np.savetxt(tmp_path / "motion.csv", table, fmt="%.17g", delimiter=",", header=names, comments="")
    doubts = make_study(own.origin.file, "again", tmp_path).fitted[0].source.doubts
    assert doubts == (() if column is None else (
        f"{column} is {factor:.3g} times the rate of its motion: is it in another unit?",
    ))  # fmt: skip


def test_part_of_a_record(tmp_path):
    wrong = np.where((TIME < 1.0) | (TIME > 4.0), 50.0, 0.0)
    values, result = found(tmp_path, wrong, from_s=1.0, to_s=4.0)
    np.testing.assert_allclose(values, TRUE, rtol=1e-3)
    time = result.study.fitted[0].source.time_s
    assert time.min() == pytest.approx(1.0, abs=0.1)
    assert time.max() == pytest.approx(4.0, abs=0.1)
    assert time.min() >= 1.0 - 1e-9
    assert time.max() <= 4.0 + 1e-9


@pytest.mark.parametrize("least", [0.5, {"q": 0.5}])
def test_slow_samples_are_left_out(tmp_path, least):
    """Where it sticks, below 0.45 rad/s, the torque is anything."""
    stuck = np.where(np.abs(motion()[1]) < 0.45, 20.0, 0.0)
    values, _ = found(tmp_path, stuck, least_speed=least)
    np.testing.assert_allclose(values, TRUE, rtol=2e-3)


def test_filtered_equations(tmp_path):
    """A ripple of 5 Nm at 50 Hz does not pass 8 Hz, (8 / 50)^8 = 4e-7 of it; every 1.1 * 200 / 16 = 13th sample
    stays."""
    ripple = 5.0 * np.sin(2 * np.pi * 50.0 * TIME)
    values, result = found(tmp_path, ripple, effort_cutoff_hz=8.0, from_s=0.6, to_s=4.4)
    np.testing.assert_allclose(values, TRUE, rtol=2e-3)
    assert set(np.round(np.diff(result.study.fitted[0].source.time_s) * RATE)) <= {13.0, 26.0}


@pytest.mark.parametrize("torque_std", [0.3, {"q": 0.3}])
def test_given_deviation(tmp_path, torque_std):
    """Deviations of the parameters are those of linear least squares on the exact columns; NumPy's inverse."""
    _, result = found(tmp_path, torque_std=torque_std)
    X = columns()[used()]
    expected = 0.3 * np.sqrt(np.diag(np.linalg.inv(X.T @ X)))
    # differences and a sample more or less at either end
    np.testing.assert_allclose([result.parameters[name].std for name in NAMES], expected, rtol=5e-3)


def test_outliers(tmp_path):
    """One sample in 20 is wrong by 30 Nm: a plain fit is off by several of the deviations of the good samples."""
    draw = np.random.default_rng(0)
    noise = 0.1 * draw.normal(size=TIME.size)
    noise[draw.random(TIME.size) < 0.05] += 30.0
    plain, _ = found(tmp_path, noise, torque_std=0.1)
    robust, result = found(tmp_path, noise, torque_std=0.1, robust=True)
    std = np.array([result.parameters[name].std for name in NAMES])
    assert np.abs((plain - TRUE) / std).max() > 10.0
    assert np.abs((robust - TRUE) / std).max() < 4.0


def alike_noise(draw, a, count):
    """AR(1) of variance 1: x_k = a x_(k-1) + sqrt(1 - a^2) e_k."""
    white = draw.normal(size=count)
    x = np.empty(count)
    x[0] = white[0]
    for k in range(1, count):
        x[k] = a * x[k - 1] + np.sqrt(1.0 - a**2) * white[k]
    return x


@pytest.mark.parametrize("a", [0.0, 0.5, 0.9])
def test_samples_alike(a):
    """The sum of all correlations of an AR(1) process is (1 + a) / (1 - a); a is estimated from 100 000 samples with a
    deviation of sqrt((1 - a^2) / n), which is 1.4 % of 1 - a at most."""
    noise = alike_noise(np.random.default_rng(3), a, 100_000)
    assert correlation_length(noise) == pytest.approx((1.0 + a) / (1.0 - a), rel=0.1)


def test_few_samples_alike():
    """One sample, or none that moves, says nothing of its neighbours; nor do ten of what else drifts away."""
    assert correlation_length(np.array([1.0])) == 1.0
    assert correlation_length(np.zeros(50)) == 1.0
    assert 1.0 <= correlation_length(np.linspace(-1.0, 1.0, 10), 4.0) < np.inf
    assert 1.0 < correlation_length(np.linspace(-1.0, 1.0, 40), 2.0) < np.inf


def test_what_a_fit_takes_is_given_back():
    """Of 500 samples of an AR(1) process ten sines are fitted, slower than it is: they take more than a quarter of the
    mean of the estimates over 50 draws. A good part of that is given back, and not much too much."""
    k, true = np.arange(500)[:, None] / 500.0, 1.9 / 0.1
    basis, _ = np.linalg.qr(np.concatenate([f(2 * np.pi * np.arange(1, 6) * k) for f in (np.sin, np.cos)], axis=1))
    draw, plain, corrected = np.random.default_rng(0), [], []
    for _ in range(50):
        noise = alike_noise(draw, 0.9, 500)
        left = noise - basis @ (basis.T @ noise)
        size = np.mean(left**2) / (1.0 - 10 / 500)
        plain.append(size * correlation_length(left))
        corrected.append(size * correlation_length(left, 10.0))
    assert np.mean(plain) < 0.75 * true
    assert 0.7 * true < np.mean(corrected) < 1.3 * true
    assert np.mean(corrected) > 1.2 * np.mean(plain)


@pytest.mark.parametrize("a", [0.0, 0.8])
def test_intervals(tmp_path, a):
    """e^T C^-1 e of six draws of the noise is of chi-square with 24 degrees: within its central 99.8 %, for noise whose
    samples are alike too, where C is a factor 9 larger. The estimate of that factor varies by some 15 %."""
    total = 0.0
    for seed in range(6):
        noise = 0.2 * alike_noise(np.random.default_rng(seed), a, TIME.size)
        values, result = found(tmp_path, noise)
        order = [result.study.free.names.index(name) for name in NAMES]
        width = np.where(result.study.free.logarithmic, 1.0, result.study.free.width)
        covariance = (result.covariance * np.outer(width, width))[np.ix_(order, order)]
        total += (values - TRUE) @ np.linalg.solve(covariance, values - TRUE)
    low, high = chi2.ppf([0.001, 0.999], 24)
    assert low < total < high
