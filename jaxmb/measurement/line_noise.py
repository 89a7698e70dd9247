"""Noise of neighbouring lines that is one, and leakage from the largest response of a line."""

import itertools
import warnings
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
from jaxtyping import Complex, Float
from numpy.lib.stride_tricks import sliding_window_view

from jaxmb.measurement.frf_set import FrfSet, split_dof
from jaxmb.response.frf_kind import turns

FALSE_LINE = 1e-4
"""How often one line or more of a good test is called odd."""
MOST_ODD = 0.05
"""Share of all lines, above which they are no single ones."""
NEIGHBOURS = 3
NORMAL, FAR = 1.4826, 3.0
"""Standard deviation of a normal number over its median size; standard deviations above which an error counts as so
many where it is asked what is common to errors: it may be a single one."""
FAR_OUT = 5.0
"""Standard deviations by which noise is like noise elsewhere one time in a million."""
APART, LAGS = 4, 6
"""Lines between which no window correlates noise any more, and how many distances from there on are looked at."""


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


def systematic(errors: np.ndarray, present: np.ndarray, window: float = 1.0) -> float:
    """Part of the variance of some errors that is no noise; 0 where none stands out.

    What a model cannot follow goes on from line to line, also where no window makes lines alike any more (`APART`), or
    is common to the FRFs of different inputs at a line, which were measured at different times. The larger of the two
    is returned, where it stands `FAR_OUT` standard deviations out of what noise does.

    Args:
        errors: in units of their standard deviation [part, f, output, input], 0 where there is none.
        present: where there is one, of the same shape.
        window: number of neighbouring lines that a window makes one.
    """
    power = float(np.sum(errors**2)) / max(int(np.sum(present)), 1)
    if power == 0.0:
        return 0.0
    usual, largest = float(np.median(np.abs(errors[present]))) * NORMAL, 0.0
    for products in (_along(int(np.ceil(APART * window))), _across):
        clipped = products(np.clip(errors, -FAR * usual, FAR * usual))
        # of independent products the sum has this standard deviation, however unlike their sizes are
        std = np.sqrt(sum(float(np.sum(each**2)) for each in clipped))
        if sum(float(np.sum(each)) for each in clipped) > FAR_OUT * std:
            shared, count = (sum(float(np.sum(each)) for each in products(of)) for of in (errors, present.astype(int)))
            largest = max(largest, shared / count / power)
    return largest


def _along(first: int) -> Callable[[np.ndarray], list[np.ndarray]]:
    """Products of errors that lie so many lines and some more apart, those of as many neighbouring lines added up."""

    def products(errors: np.ndarray) -> list[np.ndarray]:
        count = errors.shape[1] - first - LAGS
        if count <= 0:
            return []
        later = sum(errors[:, k : k + count] for k in range(first, first + LAGS))
        return [np.add.reduceat(errors[:, :count] * later, np.arange(0, count, first), axis=1)]

    return products


def _across(errors: np.ndarray) -> list[np.ndarray]:
    """Products of the errors of different inputs at a line, those of all outputs added up first."""
    of_input = errors.sum(axis=2)
    return [of_input[..., i] * of_input[..., j] for i, j in itertools.combinations(range(errors.shape[3]), 2)]


def outlier_lines(errors: np.ndarray, present: np.ndarray) -> np.ndarray:
    """Numbers of the lines whose errors do not belong to those of their neighbours; none where these are many.

    An error is compared with the median of the mean errors of up to `NEIGHBOURS` pairs of lines, one on either side,
    so that a slope does not count, and that difference with 1.48 times the median size of all such differences of its
    FRF. A line is odd where one of its errors lies so far off as in `FALSE_LINE` of all normal tests one does; the
    oddest is taken first, and the others are then judged without it.

    Args:
        errors: in any unit [part, f, ...].
        present: where there is one, of the same shape.
    """
    count, found = errors.shape[1], []
    left = np.where(present, errors, np.nan).reshape(len(errors), count, -1)
    far = -NormalDist().inv_cdf(0.5 * FALSE_LINE / max(int(np.sum(present)), 1))
    while True:  # one at a time: those that are left out do not speak against their neighbours
        apart = _apart(left) if count > 2 * NEIGHBOURS else np.zeros_like(left)
        worst = int(np.argmax(np.max(apart, axis=(0, 2))))
        if np.max(apart[:, worst]) <= far:
            return np.array(sorted(found), dtype=int)
        found.append(worst)
        left[:, worst] = np.nan
        if len(found) > MOST_ODD * count:
            return np.zeros(0, dtype=int)


def _apart(errors: Float[np.ndarray, "p f e"]) -> Float[np.ndarray, "p f e"]:
    """How far each error lies from those of its neighbours, over 1.48 times the median of that; 0 where not known."""
    padded = np.pad(errors, ((0, 0), (NEIGHBOURS, NEIGHBOURS), (0, 0)), constant_values=np.nan)
    window = sliding_window_view(padded, 2 * NEIGHBOURS + 1, axis=1)
    pairs = 0.5 * (window + window[..., ::-1])[..., :NEIGHBOURS]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # lines with no neighbours, FRFs with no line
        apart = np.abs(errors - np.nanmedian(pairs, axis=-1))
        usual = np.nanmedian(apart, axis=1, keepdims=True) / NormalDist().inv_cdf(0.75)
    return np.nan_to_num(apart / np.where(usual > 0.0, usual, np.inf))


def window_correlation(
    omega: Float[np.ndarray, "f"], decay_1_s: float, rows: slice = slice(None)
) -> Complex[np.ndarray, "r f"]:
    """Correlation E[N_k N_l*] / var N of white noise at the lines of a record behind the window exp(-sigma t).

    It is 2 sigma / (2 sigma + j (omega_k - omega_l)): the transform of the window's square.

    Args:
        omega: the lines, rad/s.
        decay_1_s: sigma, 1/s.
        rows: which k.
    """
    return 2.0 * decay_1_s / (2.0 * decay_1_s + 1j * (omega[rows, None] - omega))


def lines_of_window(frequency_hz: Float[np.ndarray, "f"], decay_1_s: float) -> float:
    """Number of neighbouring lines whose noise behind an exponential window is that of one, 1 + 2 sum |rho_k|^2."""
    if decay_1_s == 0.0 or frequency_hz.size < 2:
        return 1.0
    step = 2.0 * np.pi * float(np.median(np.diff(frequency_hz)))
    return 1.0 + 2.0 * float(np.sum(1.0 / (1.0 + (np.arange(1, frequency_hz.size) * step / (2.0 * decay_1_s)) ** 2)))


def cross_axis_leak(frf_set: FrfSet, share: float) -> np.ndarray:
    """What a share of the largest response at a line adds to H [f, o, i] where it leaks into the others.

    Accelerometers feel a few percent of what moves across their axis, and a hammer that hits a few degrees askew
    excites a few percent along the others: of a small cross response next to a large direct one little is left.
    Responses are compared with those of the same unit.

    Args:
        frf_set: the responses.
        share: of the largest response; 0.03 to 0.05 for common sensors and hits by hand.
    """
    frf = np.where(frf_set.finite, frf_set.frf, 0.0)
    size = np.abs(frf)
    rotates = [np.array([_is_rotation(name) for name in names]) for names in (frf_set.outputs, frf_set.inputs)]
    leak = np.zeros(size.shape, complex)
    for o in (False, True):
        for i in (False, True):
            block = np.ix_(np.arange(size.shape[0]), rotates[0] == o, rotates[1] == i)
            if size[block].size:
                each = frf[block]
                flat = each.reshape(len(each), -1)
                largest = np.take_along_axis(flat, np.argmax(np.abs(flat), axis=1)[:, None], axis=1)[:, :, None]
                leak[block] = np.broadcast_to(largest, each.shape)
    return share * leak


def _is_rotation(name: str) -> bool:
    try:
        return turns(split_dof(name)[1])
    except ValueError:
        return False
