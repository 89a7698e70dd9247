"""The stand-in for the KR90's unpublished FRFs: what the paper found, on some draws of hits and noise."""

import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import jaxmb
from tests.identify.derivatives import residual_of


def fitted(study):
    """The fit, beside SciPy's least squares from the true parameters.

    The search knows nothing of the truth, and flat directions of the dampings have several minima of nearly the same
    cost: it finds a lower one than SciPy in most of the fits, and one of 0.3 % more for the synthesized FRFs of draw 1.
    """
    result = jaxmb.identify(study)
    free, problem = study.free, study.problem
    bounds = np.asarray(free.lower), np.asarray(free.upper)
    truth = np.asarray(free.encode(np.array([study.truth[name] for name in free.names])))
    inside = np.clip(truth, bounds[0] + 1e-6, bounds[1] - 1e-6)
    other = least_squares(
        lambda u: np.asarray(residual_of(problem, jnp.asarray(u))), inside, bounds=bounds, x_scale="jac"
    )
    assert result.cost <= 1.01 * 2.0 * other.cost
    lines = result.metrics["measured_modes"]
    frequency, damping = (
        np.mean([abs(line[f"{what}"] - line[f"measured_{what}"]) for line in lines])
        for what in ("frequency_hz", "damping_percent")
    )
    return result, len(lines), frequency, damping, min(line["mac"] for line in lines)


def test_synthesized_responses_are_followed_within_the_papers_own_errors():
    """Table 6, last column: 0.125 Hz and 0.175 percentage points on average; MAC over 13 triaxial points.

    Of eight draws the third alone is beyond, in damping, by 0.036: `experiments/kr90-measured` has them all.
    """
    result, modes, frequency, damping, mac = fitted(jaxmb.load_study("kr90-synthesized", noise_seed=1))
    assert modes == 4
    assert mac >= 0.9
    # no parameter is known: hits are askew, four modes at one posture do not determine nine stiffnesses
    assert "yes" not in {p.identifiable for p in result.parameters.values()}
    # every mode of the machine in the band is a row, with or without a measured partner
    alone = [line for line in result.metrics["unmatched_modes"] if line["of"] == "fitted"]
    assert len(result.modes) == modes + len(alone)
    assert frequency <= 0.125
    assert damping <= 0.175


def test_measured_responses_are_not():
    """Their damping is further off (the paper: 0.40 percentage points; 0.25 to 0.92 in eight draws), and not for a fit
    that ended too early."""
    _, modes, _, damping, _ = fitted(jaxmb.load_study("kr90-measured", noise_seed=1))
    assert modes == 4
    assert damping > 0.175
