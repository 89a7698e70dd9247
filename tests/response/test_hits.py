"""Simulated hits against SciPy's integrator and against the linear machine's own FRF."""

import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp

from jaxmb.mechanics.tangent import Tangent
from jaxmb.response.hits import Softening, half_sine, record_hits

MASS = np.array([[3.0, 0.4], [0.4, 1.5]])
STIFFNESS = np.array([[9e4, -1e4], [-1e4, 5e4]])
OWN = np.array([8e4, 4e4])
DAMPING = np.array([[9.0, -2.0], [-2.0, 5.0]])
TANGENT = Tangent(*(jnp.asarray(x) for x in (MASS, DAMPING, STIFFNESS)))
OUTPUTS = np.array([[1.0, 0.0], [0.3, 1.0], [0.5, -0.5]])
ROWS = np.eye(2)
HIT = {"start_s": 0.01, "length_s": 0.01, "sample_rate_hz": 1024.0, "samples": 512}


def records(loss, half, impulse, rows=ROWS, hit=HIT):
    softening = Softening(jnp.asarray(loss), jnp.asarray(half))
    impulses = jnp.full(len(rows), impulse)
    force, response = record_hits(
        TANGENT, jnp.asarray(OWN), softening, jnp.asarray(OUTPUTS), jnp.asarray(rows), impulses, **hit
    )
    return np.asarray(force), np.asarray(response)


@pytest.mark.parametrize(("loss", "half"), [(0.0, 1e-4), (0.3, 1e-4), (0.8, 1e-5)])
def test_the_motion_is_that_of_an_independent_integrator(loss, half):
    impulse, row = 0.5, np.array([0.6, 0.8])
    _, response = records(loss, half, impulse, row[None, :])
    time = np.arange(HIT["samples"]) / HIT["sample_rate_hz"]

    def pulse(t):
        phase = (t - 0.01) / 0.01
        return impulse * np.pi / 0.02 * np.sin(np.pi * phase) if 0.0 <= phase <= 1.0 else 0.0

    def acceleration(t, q, qd):
        lost = OWN * q * loss * np.abs(q) / (np.abs(q) + half)
        return np.linalg.solve(MASS, row * pulse(t) - DAMPING @ qd - STIFFNESS @ q + lost)

    def slope(t, x):
        return np.concatenate([x[2:], acceleration(t, x[:2], x[2:])])

    found = solve_ivp(slope, (0.0, time[-1]), np.zeros(4), t_eval=time, rtol=1e-9, atol=1e-13, max_step=5e-4)
    expected = np.array([OUTPUTS @ acceleration(t, x[:2], x[2:]) for t, x in zip(time, found.y.T, strict=True)])
    # 16 steps in the fastest mode's period leave 2e-4 of a phase after a step, over 20 periods of ringing.
    assert np.abs(response[0] - expected).max() < 2e-3 * np.abs(expected).max()


def test_a_linear_machine_gives_its_frf_back():
    fast = HIT | {"sample_rate_hz": 8192.0, "samples": 4096}  # what the hit has above half the rate folds into the band
    force, response = records(0.0, 1e-4, 1.0, hit=fast)
    sigma = 30.0  # rings down to e^-15 within the record, so that no leakage is left
    time = np.arange(fast["samples"]) / fast["sample_rate_hz"]
    window = np.exp(-sigma * time)
    h = np.fft.rfft(response * window[None, :, None], axis=1) / np.fft.rfft(force * window, axis=1)[:, :, None]
    s = 2j * np.pi * np.fft.rfftfreq(time.size, 1.0 / fast["sample_rate_hz"]) + sigma
    z = MASS * s[:, None, None] ** 2 + DAMPING * s[:, None, None] + STIFFNESS
    expected = s[:, None, None] ** 2 * (OUTPUTS @ np.linalg.inv(z))
    band = slice(4, 40)  # 8 to 80 Hz, both modes
    error = np.abs(h.transpose(1, 2, 0)[band] - expected[band]).max() / np.abs(expected[band]).max()
    assert error < 3e-4


def test_a_force_is_the_impulse_it_is_said_to_be():
    time = np.linspace(0.0, 0.1, 100_001)
    force = np.asarray(half_sine(jnp.asarray(time), jnp.asarray(7.0), 0.02, 0.03))
    assert np.trapezoid(force, time) == pytest.approx(7.0, rel=1e-6)
    assert force.min() >= 0.0


def test_softening_lowers_the_frequency_with_amplitude():
    def first_peak(impulse):
        _, response = records(0.3, 1e-4, impulse)
        return np.argmax(np.abs(np.fft.rfft(response[0, :, 0]))[5:40]) + 5, response[0, :, 0] / impulse

    (weak, small), (strong, large) = first_peak(1e-6), first_peak(10.0)
    assert strong < weak
    _, linear = first_peak(1e-9)
    assert np.allclose(small, linear, rtol=0.0, atol=1e-3 * np.abs(linear).max())
    assert not np.allclose(large, linear, rtol=0.0, atol=0.1 * np.abs(linear).max())


def test_absurd_records_are_refused():
    softening = Softening(jnp.asarray(0.0), jnp.asarray(1.0))
    arguments = (TANGENT, jnp.asarray(OWN), softening, jnp.asarray(OUTPUTS), jnp.eye(2), jnp.ones(2))
    with pytest.raises(ValueError, match="a record of 3000000 samples takes"):
        record_hits(*arguments, **(HIT | {"samples": 3_000_000}))
