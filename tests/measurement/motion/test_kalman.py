"""The Kalman filter of a motion and its smoother against SciPy's Riccati equation and Gaussian conditioning."""

import numpy as np
import pytest
from scipy.linalg import block_diag, expm, solve_discrete_are
from scipy.stats import chi2

import jaxmb
from jaxmb.measurement.motion.estimate import smoothed_motions

RATE, DENSITY = 100.0, 40.0
STD = np.array([2e-3, 3e-2, 0.5])
START = (10.0, 1000.0)
"""Of velocity and acceleration, as the module states."""


def exact_step(density=DENSITY, step=1.0 / RATE):
    """F and Q of white jerk by the matrix exponential of Van Loan 1978."""
    A, B = np.diag([1.0, 1.0], 1), np.diag([0.0, 0.0, density])
    both = expm(step * np.block([[-A, B], [np.zeros((3, 3)), A.T]]))
    F = both[3:, 3:].T
    return F, F @ both[:3, 3:]


def drawn(count, seed=0):
    """A motion that the filter's model makes, and what three sensors measure of it [k, 3]."""
    random, (F, Q) = np.random.default_rng(seed), exact_step()
    states = [np.array([0.3, -1.0, 4.0])]
    root = np.linalg.cholesky(Q)
    for _ in range(count - 1):
        states.append(F @ states[-1] + root @ random.normal(size=3))
    states = np.array(states)
    return states, states + STD * random.normal(size=states.shape)


def filtered(measured, sensors, causal=True, **settings):
    names = ("position", "velocity", "acceleration")
    given = {names[i]: measured[:, [i]] for i in sensors} | {f"{names[i]}_std": STD[i] for i in sensors}
    return jaxmb.kalman_motion(
        given.pop("position"), RATE, given.pop("position_std"), causal=causal, **given, **settings
    )


def states_of(found):
    return np.stack([found.position[:, 0], found.velocity[:, 0], found.acceleration[:, 0]], axis=1)


@pytest.mark.parametrize("sensors", [(0,), (0, 1), (0, 2), (0, 1, 2)])
def test_each_estimate_is_the_mean_given_what_was_measured(sensors):
    """Joint Gaussian of 12 samples, conditioned densely on the first k, and of the smoother on all."""
    count, (F, Q) = 12, exact_step()
    _, measured = drawn(count)
    found = filtered(measured, sensors, jerk_density=DENSITY)
    # all states from the first one and the steps' noise
    steps = np.block([
        [np.linalg.matrix_power(F, i - j) if j <= i else np.zeros((3, 3)) for j in range(count)] for i in range(count)
    ])  # fmt: skip
    first = np.diag([STD[0] ** 2, START[0] ** 2, START[1] ** 2])
    covariance = steps @ block_diag(first, *(count - 1) * [Q]) @ steps.T
    mean = steps[:, :3] @ [measured[0, 0], 0.0, 0.0]
    picked = np.array([3 * k + i for k in range(count) for i in sensors if (k, i) != (0, 0)])
    noise = np.diag((STD**2)[picked % 3])
    of_measured, z = covariance[np.ix_(picked, picked)] + noise, measured.ravel()[picked]
    smoothed = states_of(filtered(measured, sensors, causal=False, jerk_density=DENSITY)).ravel()
    every = mean + covariance[:, picked] @ np.linalg.solve(of_measured, z - mean[picked])
    np.testing.assert_allclose(smoothed, every, rtol=1e-7, atol=1e-7)
    for k in (0, 1, 4, count - 1):
        until = picked < 3 * (k + 1)
        cross = covariance[3 * k : 3 * k + 3][:, picked[until]]
        gain = np.linalg.solve(of_measured[np.ix_(until, until)], cross.T).T if until.any() else np.zeros((3, 0))
        expected = mean[3 * k : 3 * k + 3] + gain @ (z - mean[picked])[until]
        # rounding of the wide start: 1000 / 0.5 squared, in double precision
        np.testing.assert_allclose(states_of(found)[k], expected, rtol=1e-7, atol=1e-9)
    of_last = covariance[-3:, -3:] - gain @ cross.T
    # here the dense way rounds: it subtracts variances of the start, 1e6
    np.testing.assert_allclose(found.covariance[0], of_last, rtol=1e-6, atol=1e-9)
    missed, (_, size) = z - mean[picked], np.linalg.slogdet(2.0 * np.pi * of_measured)
    expected = -0.5 * (missed @ np.linalg.solve(of_measured, missed) + size)
    np.testing.assert_allclose(found.log_likelihood, expected, rtol=1e-6)
    assert np.isnan(found.innovations[0, 0, 0])
    assert np.isfinite(found.innovations[1:, 0, list(sensors)]).all()


@pytest.mark.parametrize("sensors", [(0,), (0, 1), (0, 1, 2)])
def test_steady_state_by_the_riccati_equation(sensors):
    _, measured = drawn(2000)
    found = filtered(measured, sensors, jerk_density=DENSITY)
    (F, Q), H, R = exact_step(), np.eye(3)[list(sensors)], np.diag(STD[list(sensors)] ** 2)
    ahead = solve_discrete_are(F.T, H.T, Q, R)
    behind = ahead - ahead @ H.T @ np.linalg.solve(H @ ahead @ H.T + R, H @ ahead)
    np.testing.assert_allclose(found.covariance[0], behind, rtol=1e-6)
    assert 3 < found.settled[0] < 200


def test_innovations_are_white_and_errors_as_large_as_told():
    """Limits are 99.99 % of chi-square and normal distributions."""
    true, measured = drawn(4000)
    found = filtered(measured, (0, 1, 2), jerk_density=DENSITY)
    white = found.innovations[1:, 0]
    squares = np.sum(white**2)
    assert chi2(white.size).ppf(5e-5) < squares < chi2(white.size).ppf(1 - 5e-5)
    for lag in (1, 2, 5):
        products = white[lag:].T @ white[:-lag] / np.sqrt(len(white) - lag)
        assert np.abs(products).max() < 4.5
    # errors of one estimate in each 100 samples are nearly independent
    errors = (states_of(found) - true)[200::100]
    distance = np.einsum("ki,ij,kj->", errors, np.linalg.inv(found.covariance[0]), errors)
    assert chi2(errors.size).ppf(5e-5) < distance < chi2(errors.size).ppf(1 - 5e-5)


def test_the_density_of_the_jerk_is_found():
    """By the innovations' likelihood: largest at the truth, but for chance."""
    _, measured = drawn(4000)
    for sensors in ((0,), (0, 1, 2)):
        found = filtered(measured, sensors)
        assert found.jerk_density[0] == pytest.approx(DENSITY, rel=0.3)
        at_truth = filtered(measured, sensors, jerk_density=DENSITY).log_likelihood
        # twice the difference is chi-square with one degree; 0.01 in the logarithm is what the search may miss
        assert 0.0 <= 2.0 * float(found.log_likelihood[0] - at_truth[0]) + 0.01 < chi2(1).ppf(0.9999)


def test_coordinates_are_apart_and_estimates_causal():
    _, one = drawn(300)
    _, other = drawn(300, seed=1)
    position, velocity = (np.stack([one[:, i], other[:, i]], axis=1) for i in (0, 1))
    velocity[:, 1] = np.nan
    density = [DENSITY, 2 * DENSITY]
    both = jaxmb.kalman_motion(
        position, RATE, STD[0], velocity=velocity, velocity_std=STD[1], jerk_density=density, causal=True
    )
    alone = filtered(one, (0, 1), jerk_density=DENSITY), filtered(other, (0,), jerk_density=2 * DENSITY)
    for i, single in enumerate(alone):
        np.testing.assert_array_equal(both.acceleration[:, i], single.acceleration[:, 0])
    assert np.isnan(both.innovations[:, 1, 1]).all()
    for end in (20, 200):  # before and after the gain is constant
        part = filtered(one[:end], (0, 1), jerk_density=DENSITY)
        np.testing.assert_allclose(states_of(part), states_of(alone[0])[:end], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_std": 0.0}, "position_std is 0.0, expected positive numbers"),
        ({"velocity": np.zeros((30, 1))}, "velocity_std is not given"),
        ({"velocity": np.zeros((30, 2)), "velocity_std": 1.0}, r"velocity has shape \(30, 2\), expected \(30, 1\)"),
        ({"position": np.full((30, 1), np.inf)}, "position holds inf, expected finite numbers"),
        ({"jerk_density": [1.0, 2.0]}, r"jerk_density has shape \(2,\), expected one number or one for each of 1"),
        ({"rate_hz": 0.0}, "rate_hz is 0.0, expected a number above 0"),
    ],
)
def test_wrong_requests(changes, message):
    with pytest.raises(ValueError, match=message):
        jaxmb.kalman_motion(**{"position": np.zeros((30, 1)), "rate_hz": RATE, "position_std": 1e-3} | changes)


def test_a_record_within_the_transients_of_the_smoother_is_refused():
    """No sample was left between them, and the equations without samples failed later with a message of Python."""
    _, measured = drawn(300)
    record = jaxmb.MotionRecord(np.arange(300) / RATE, ("q1",), measured[:, :1], np.zeros((300, 1)))
    (motion,) = smoothed_motions(record, STD[0], None, None, DENSITY, 0)
    assert 0 < motion.first < 150
    few = [part[: 2 * motion.first] for part in (record.time_s, record.position, record.effort)]
    with pytest.raises(ValueError, match=f"{2 * motion.first} samples, too few for transients of {motion.first} "):
        smoothed_motions(jaxmb.MotionRecord(few[0], ("q1",), *few[1:]), STD[0], None, None, DENSITY, 0)


def test_the_smoother_with_constant_gain_is_that_of_all_samples():
    """300 samples, of which the last gains are constant: the mean is that of one least squares problem."""
    _, measured = drawn(300)
    (F, Q), count = exact_step(), len(measured)
    root = np.linalg.inv(np.linalg.cholesky(Q))
    rows = np.zeros((4 * count - 1, 3 * count))
    right = np.zeros(len(rows))
    rows[:count, ::3], right[:count] = np.eye(count) / STD[0], measured[:, 0] / STD[0]
    for k in range(count - 1):
        rows[count + 3 * k : count + 3 * k + 3, 3 * k : 3 * k + 6] = root @ np.hstack([-F, np.eye(3)])
    rows[-2:, 1:3] = np.diag(1.0 / np.array(START))
    expected = np.linalg.lstsq(rows, right, rcond=None)[0]
    found = states_of(filtered(measured, (0,), causal=False, jerk_density=DENSITY)).ravel()
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
