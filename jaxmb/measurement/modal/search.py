"""Search for poles: stable ones, out-of-band ones that reach into the band, and those found in the residual."""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from jaxmb.measurement.modal.model import Lines, as_lines, damping_std
from jaxmb.measurement.modal.refine import RefinedPoles, refine_poles
from jaxmb.measurement.modal.stabilization import (
    SAME,
    StabilityRule,
    StabilizationChart,
    auto_mac,
    damping_ratio,
    merged,
    stabilization_chart,
    stable_poles,
)

Estimator = Callable[[np.ndarray, np.ndarray, range], Iterator[tuple[int, np.ndarray, np.ndarray]]]
SEGMENT_LINES = 480
"""Approximate lines per segment of a wide band: the same model orders resolve a narrow band better."""
OVERLAP = 0.5
"""Overlap with the neighbouring segments, relative to a segment."""
BESIDE = 0.1
"""Margin on either side of a band, relative to it, in which poles are kept because their modes reach into it."""
LEAST_STRENGTH = 25.0
"""Least strength of a pole (see RefinedPoles): five standard deviations. Noise has 1, modes in responses with 5 % noise
have thousands."""
DOUBTFUL_STRENGTH = 9.0
"""Three standard deviations: not counted as a mode, but reported."""
ROUNDING = 1e-10
"""Ratio to the largest response below which a residual is rounding error."""
QUIET = 1.25
"""Ratio of the residual to its noise below which it is not searched."""
PEAK = 1.5
"""Ratio of the residual to its noise at which a peak is tried as a pole; noise reaches 1.2 over thousands of lines."""
CLEARLY = 0.999
"""Ratio of residual powers below which the same number of poles is an improvement; a weak mode reduces it further."""
FIRST_DAMPING = 0.01
"""Initial damping ratio of a pole without a neighbour."""
NARROWEST = 0.5
"""Least half-power bandwidth, in lines, of a pole found in the residual."""
MOST_LOOKS = 3
"""Number of searches of the residual, and out of band."""


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """Data and settings of a search."""

    frequency_hz: np.ndarray
    lines: Lines
    frf: np.ndarray
    """The responses of the lines [f, output, input]."""
    band_hz: tuple[float, float]
    orders: range
    estimator: Estimator
    rule: StabilityRule
    decay_1_s: float = 0.0


def chart_of(search: Search, frf: np.ndarray, orders: range) -> StabilizationChart:
    """Stabilization chart of responses [f, output, input], merged from segments of the band."""
    charts, cores = [], []
    for part, core in _segments(search.frequency_hz, search.band_hz):
        f, h = search.frequency_hz[part], frf[part]
        size = np.sqrt(np.mean(np.abs(h) ** 2, axis=(0, 2)))
        h = h / np.where(size > 0.0, size, 1.0)[:, None]
        # an exponential window adds its decay to that of every mode
        poles = ((n, pole + search.decay_1_s, rows) for n, pole, rows in search.estimator(f, h, orders))
        lines = as_lines(search.lines.s[part], h, search.lines.power)
        charts.append(stabilization_chart(poles, lines, beside((f[0], f[-1])), search.rule, size))
        cores.append(core)
    return merged(charts, cores, search.rule)


def all_strong(search: Search, refined: RefinedPoles) -> RefinedPoles:
    """The significant poles: the weakest is removed and the others are refined until all are significant."""
    while refined.eigenvalue.size and refined.strength.min() < LEAST_STRENGTH:
        keep = np.arange(refined.eigenvalue.size) != np.argmin(refined.strength)
        refined = refine_poles(search.lines, refined.eigenvalue[keep], refined.participation[keep], refined.noise)
    return refined


def with_poles_beside(search: Search, refined: RefinedPoles) -> RefinedPoles:
    """The poles with out-of-band ones added: the residual terms do not represent a mode close to the band.

    A pole is tried above and below the band, with the dominant participation of the residual at that end. It is kept if
    it stays outside, all poles are significant and the weighted sum of squares decreases.
    """
    low, high = search.band_hz
    span, own = high - low, refined.eigenvalue.size
    starts = [(high + BESIDE * span, slice(-max(4, int(BESIDE * search.frequency_hz.size)), None))]
    if low > 0.0:
        starts.append((max(low - BESIDE * span, 0.5 * low), slice(0, max(4, int(BESIDE * search.frequency_hz.size)))))
    for start_hz, end in starts:
        for _ in range(MOST_LOOKS):
            if _is_rounding(search, refined):
                return refined
            residual = remainder(search, refined)[end]
            participation = np.linalg.svd(residual.reshape(-1, residual.shape[2]), full_matrices=False)[2][:1]
            pole = 2 * np.pi * start_hz * (-FIRST_DAMPING + 1j)
            tried = refine_poles(
                search.lines,
                np.append(refined.eigenvalue, pole),
                np.concatenate([refined.participation, participation]),
                refined.noise,
            )
            size = np.abs(tried.eigenvalue[own:]) / (2 * np.pi)
            if (
                np.any((low <= size) & (size <= high))
                or tried.strength.min() < LEAST_STRENGTH
                or _residual_ratio(tried, refined) >= 1.0
            ):
                break
            refined = tried
    return refined


def with_residual_poles(search: Search, refined: RefinedPoles) -> tuple[RefinedPoles, np.ndarray]:
    """The poles with those added that are stable in the residual: of close modes one may hide another.

    The rule's presence is halved, and every second order is used; where no pole is stable, the highest peak is tried. A
    pole is kept if it is significant and no duplicate: a neighbour with the same shape describes a distortion of the
    resonance curve, such as leakage.

    Returns:
        The poles, and frequencies where one may be missing, Hz.
    """
    rule = dataclasses.replace(search.rule, presence=0.5 * search.rule.presence)
    relaxed = dataclasses.replace(search, rule=rule)
    doubtful = np.zeros(0)
    for _ in range(MOST_LOOKS):
        if _is_rounding(search, refined):
            break
        residual = remainder(search, refined)
        height, *peak = _highest_peak(search, refined, residual)
        if height < QUIET:
            break
        chart = chart_of(relaxed, residual, search.orders[::2])
        new = stable_poles(chart)
        tried = refined
        if new.size:
            tried, doubtful = _with(search, refined, chart.eigenvalue[new], chart.participation[new])
        if tried is refined and height >= PEAK:
            tried, _ = _with(search, refined, *peak)
        if tried is refined:
            break
        refined = tried
    return refined, doubtful


def without_twins(search: Search, refined: RefinedPoles) -> RefinedPoles:
    """The poles without the weaker of any two modes within a half-power bandwidth, for one reference.

    One reference does not distinguish close modes from a mode that varies or is nonlinear.
    """
    while True:
        place, width = np.abs(refined.eigenvalue), -2.0 * np.real(refined.eigenvalue)
        near = np.abs(place[:, None] - place) < np.maximum(width[:, None], width)
        mode = is_mode(refined, search.band_hz, search.rule)
        near &= mode[:, None] & mode & (refined.strength[:, None] < refined.strength)
        twin = near.any(axis=1)
        if not twin.any():
            return refined
        keep = np.arange(twin.size) != np.argmin(np.where(twin, refined.strength, np.inf))
        refined = refine_poles(search.lines, refined.eigenvalue[keep], refined.participation[keep], refined.noise)


def _with(
    search: Search, refined: RefinedPoles, eigenvalue: np.ndarray, participation: np.ndarray
) -> tuple[RefinedPoles, np.ndarray]:
    """The poles with those new ones added that are distinct modes, unchanged if none is; and frequencies of doubtful
    new ones, Hz, which exceed the noise but not by enough."""
    before = refined.eigenvalue.size
    eigenvalue = np.concatenate([refined.eigenvalue, eigenvalue])
    participation = np.concatenate([refined.participation, participation])
    first = refine_poles(search.lines, eigenvalue, participation, refined.noise)
    weak = is_mode(first, search.band_hz, search.rule) & (first.strength < LEAST_STRENGTH)
    weak &= (first.strength > DOUBTFUL_STRENGTH) & ~_duplicates(search, first)
    weak[:before] = False
    # a pole narrower than `NARROWEST` lines describes the noise of one line
    spacing = 2.0 * np.pi * float(np.median(np.diff(search.frequency_hz)))
    wide = -2.0 * np.real(first.eigenvalue) >= NARROWEST * spacing
    wide[:before] = True
    if not wide.all():
        first = refine_poles(search.lines, first.eigenvalue[wide], first.participation[wide], refined.noise)
        weak = weak[wide]
    tried = _without_duplicates(search, all_strong(search, first), refined)
    # an old pole may have been replaced: the same number of poles must clearly reduce the residual
    enough = 1.0 if tried.eigenvalue.size > before else CLEARLY
    return tried if _residual_ratio(tried, refined) < enough else refined, np.abs(first.eigenvalue[weak]) / (2 * np.pi)


def _highest_peak(search: Search, refined: RefinedPoles, residual: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Largest ratio of the residual to the noise at a line, and a pole there with the damping of its nearest neighbour.

    A mode partly fitted by its neighbour has too small a residual on too few lines for the estimator.
    """
    weighted = residual / np.where(refined.noise > 0.0, refined.noise, np.inf)
    _, size, rows = np.linalg.svd(weighted, full_matrices=False)
    line = int(np.argmax(size[:, 0]))
    # the largest singular value of complex noise, of standard deviation 1 in real and imaginary parts
    height = float(size[line, 0]) / (np.sqrt(2.0) * sum(np.sqrt(n) for n in residual.shape[1:]))
    omega = 2 * np.pi * search.frequency_hz[line]
    by_distance = np.argsort(np.abs(np.abs(refined.eigenvalue) - omega))
    damping = float(damping_ratio(refined.eigenvalue[by_distance[0]])) if by_distance.size else FIRST_DAMPING
    return height, np.array([omega * (-damping + 1j)]), rows[line, :1]


def _without_duplicates(search: Search, tried: RefinedPoles, before: RefinedPoles) -> RefinedPoles:
    """The poles without duplicates of a mode, as long as there are more than before."""
    while tried.eigenvalue.size > before.eigenvalue.size:
        duplicate = _duplicates(search, tried)
        if not duplicate.any():
            break
        worst = np.argmin(np.where(duplicate, tried.strength, np.inf))
        keep = np.arange(duplicate.size) != worst
        tried = all_strong(
            search, refine_poles(search.lines, tried.eigenvalue[keep], tried.participation[keep], tried.noise)
        )
    return tried


def _duplicates(search: Search, refined: RefinedPoles) -> np.ndarray:
    """Mask of poles that are the weaker of two at the same frequency with the same shape."""
    size = np.abs(refined.eigenvalue)
    near = np.abs(size[:, None] - size) < search.rule.frequency * size
    same = near & (auto_mac(refined.shape) > SAME)
    return np.any(same & (refined.strength[:, None] < refined.strength), axis=1)


def remainder(search: Search, refined: RefinedPoles) -> np.ndarray:
    """Residual of the responses [f, output, input]."""
    half = search.frequency_hz.size
    return refined.remainder[:half] + 1j * refined.remainder[half:]


def beside(band_hz: tuple[float, float]) -> tuple[float, float]:
    """The band with its margins."""
    reach = BESIDE * (band_hz[1] - band_hz[0])
    return band_hz[0] - reach, band_hz[1] + reach


def is_mode(refined: RefinedPoles, band_hz: tuple[float, float], rule: StabilityRule) -> np.ndarray:
    """Mask of poles that are modes: in the band, with a damping ratio above its standard deviation and at most that of
    the rule. The damping of a pole that only distorts a resonance curve is below its standard deviation."""
    frequency_hz, damping = np.abs(refined.eigenvalue) / (2 * np.pi), damping_ratio(refined.eigenvalue)
    inside = (frequency_hz >= band_hz[0]) & (frequency_hz <= band_hz[1])
    known = damping > damping_std(refined.eigenvalue, refined.covariance)
    return inside & known & (damping > 0.0) & (damping <= rule.largest_damping_ratio)


def _is_rounding(search: Search, refined: RefinedPoles) -> bool:
    """Whether the residual is rounding error only."""
    return bool(np.abs(refined.remainder).max() <= ROUNDING * np.abs(search.frf).max())


def _residual_ratio(a: RefinedPoles, b: RefinedPoles) -> float:
    """Ratio of the residual power of a to that of b, averaged over the responses."""
    return float(np.mean((a.noise / b.noise) ** 2))


def _segments(frequency_hz: np.ndarray, band_hz: tuple[float, float]) -> Iterator[tuple[slice, tuple[float, float]]]:
    """Lines of each segment, and the frequency range in which its poles are used."""
    low, high = beside(band_hz)
    last = frequency_hz.size - 1
    count = max(1, round(frequency_hz.size / SEGMENT_LINES))
    ends = np.linspace(0, last, count + 1)
    reach = OVERLAP * ends[1]
    for i, (begin, end) in enumerate(pairwise(ends)):
        part = slice(max(0, round(begin - reach)), min(last, round(end + reach)) + 1)
        core = (low if i == 0 else frequency_hz[round(begin)], high if i == count - 1 else frequency_hz[round(end)])
        yield part, (float(core[0]), float(core[1]))
