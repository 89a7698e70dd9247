"""How far the noise of the records makes each value of a measured FRF uncertain."""

import numpy as np

from jaxmb.measurement.coherence import of_each_input, without_chance
from jaxmb.measurement.frf_set import FrfSet, split_dof

SMALLEST_COHERENCE = 1e-6
"""Below it a value says nothing, and its standard deviation would be no number."""


def correlated_lines(errors: np.ndarray, present: np.ndarray) -> float:
    """Number of neighbouring lines whose errors are one: the integrated autocorrelation 1 + 2 sum rho_k.

    The sum ends at the first lag that is not positive, as of a Markov chain (Geyer, Statistical Science 7(4), 1992).

    Args:
        errors: in units of their standard deviation [part, f, ...], 0 where there is none.
        present: where there is one, of the same shape.
    """
    power = np.sum(errors**2) / max(int(np.sum(present)), 1)
    count = 1.0
    for lag in range(1, errors.shape[1]):
        pairs = int(np.sum(present[:, lag:] & present[:, :-lag]))
        shared = np.sum(errors[:, lag:] * errors[:, :-lag]) / max(pairs, 1)
        if power == 0.0 or shared <= 0.0:
            break
        count += 2.0 * float(shared / power)
    return count


def coherence_log_std(frf_set: FrfSet) -> np.ndarray:
    """Standard deviation of log H [f, o, i], real and imaginary part each, from the coherence; 0 where it is not known.

    For one input, var(log H) = (1 - c) / (2 n c) for the coherence c of n independent averages, without what chance
    makes of it. A multiple coherence of several inputs tells the noise of an output; with inputs of equal spectra its
    share in H_oi is larger by sum_k |H_ok|^2 / |H_oi|^2.

    Where the set does not say how many averages are behind it, one is taken and nothing taken off for chance: the noise
    is then told too large, and lines count for less than they might.

    Source: Bendat and Piersol, Random Data, 4th ed., eq. 9.90 and section 9.2.
    """
    coherence = frf_set.coherence
    if coherence is None:
        return np.zeros(frf_set.frf.shape)
    each = without_chance(of_each_input(coherence, frf_set.frf, frf_set.averages), frf_set.averages, 1)
    each = np.maximum(each, SMALLEST_COHERENCE)
    variance = (1.0 - each) / (2.0 * (frf_set.averages or 1) * each)
    return np.sqrt(np.nan_to_num(variance, nan=0.0))


def cross_axis_log_std(frf_set: FrfSet, share: float) -> np.ndarray:
    """Standard deviation of log H [f, o, i] where a share of the largest response at a line leaks into the others.

    Accelerometers feel a few percent of what moves across their axis, and a hammer that hits a few degrees askew
    excites a few percent along the others: of a small cross response next to a large direct one little is left.
    Responses are compared with those of the same unit.

    Args:
        frf_set: the responses.
        share: of the largest response; 0.03 to 0.05 for common sensors and hits by hand.
    """
    size = np.abs(np.where(frf_set.finite, frf_set.frf, 0.0))
    rotates = [np.array([_is_rotation(name) for name in names]) for names in (frf_set.outputs, frf_set.inputs)]
    relative = np.zeros(size.shape)
    for o in (False, True):
        for i in (False, True):
            block = np.ix_(np.arange(size.shape[0]), rotates[0] == o, rotates[1] == i)
            if size[block].size:
                largest = size[block].max(axis=(1, 2), keepdims=True)
                relative[block] = largest / np.maximum(size[block], SMALLEST_COHERENCE * largest + np.finfo(float).tiny)
    return share * relative / np.sqrt(2.0)


def _is_rotation(name: str) -> bool:
    try:
        return split_dof(name)[1].startswith("r")
    except ValueError:
        return False
