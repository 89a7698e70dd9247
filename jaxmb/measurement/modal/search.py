"""The search for poles: those that are stable, that reach in from beside the band, that are left unexplained."""

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
"""A wider band is analysed in segments of about so many lines: the same orders resolve a narrow band better."""
OVERLAP = 0.5
"""Part of a segment by which it reaches into those beside it."""
BESIDE = 0.1
"""Part of a band beside it, on both sides, where poles are followed because their modes reach into it."""
LEAST_STRENGTH = 25.0
"""Of a pole (see RefinedPoles): its shape stands five standard deviations out of the noise. Noise has 1, modes seen in
responses with 5 % of noise have thousands."""
DOUBTFUL_STRENGTH = 9.0
"""Three standard deviations: not counted as a mode, but worth a word."""
ROUNDING = 1e-10
"""Of the largest response: what is left below it holds no poles."""
QUIET = 1.25
"""Above its noise: where what is left rises nowhere as far, there is nothing in it to look for."""
PEAK = 1.5
"""How far what is left must rise above its noise to be tried as pole: over thousands of lines noise rises 1.2 times."""
CLEARLY = 0.999
"""Part of what was left below which as many poles as before explain more. A mode just strong enough takes more away."""
FIRST_DAMPING = 0.01
"""Damping ratio of a pole that is tried where none is near."""
NARROWEST = 0.5
"""Half-power bandwidth, in lines, of what is a pole of its own in what others leave."""
MOST_LOOKS = 3
"""How often poles are searched for in what the others leave, and beside the band."""


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """What the search works on."""

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
    """Stabilization chart of responses [f, output, input], made segment by segment."""
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
    """The poles that stand out of the noise: the weakest is left out and the others refined, until all do."""
    while refined.eigenvalue.size and refined.strength.min() < LEAST_STRENGTH:
        keep = np.arange(refined.eigenvalue.size) != np.argmin(refined.strength)
        refined = refine_poles(search.lines, refined.eigenvalue[keep], refined.participation[keep], refined.noise)
    return refined


def with_poles_beside(search: Search, refined: RefinedPoles) -> RefinedPoles:
    """The poles with such outside the band as its lines need: a mode near its end is more than a residual term.

    A pole is tried above and below the band, with the participation that most of the remainder at that end has, and
    stays if it stays outside, stands out of the noise and the weighted sum of squares falls.
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
            left = remainder(search, refined)[end]
            participation = np.linalg.svd(left.reshape(-1, left.shape[2]), full_matrices=False)[2][:1]
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
                or _left_of(tried, refined) >= 1.0
            ):
                break
            refined = tried
    return refined


def with_residual_poles(search: Search, refined: RefinedPoles) -> tuple[RefinedPoles, np.ndarray]:
    """The poles with those that are stable in what they leave of the responses: of close modes one may hide another.

    Half the presence is enough for a pole to be tried, and half the orders to look at; where none is stable, the
    highest peak is tried. A pole stays if it stands out of the noise, and is no second pole for a mode: one beside
    another with its shape describes an error of the line's form, such as leakage makes.

    Returns:
        The poles, and frequencies where one may be missing, Hz.
    """
    rule = dataclasses.replace(search.rule, presence=0.5 * search.rule.presence)
    looking = dataclasses.replace(search, rule=rule)
    doubtful = np.zeros(0)
    for _ in range(MOST_LOOKS):
        if _is_rounding(search, refined):
            break
        left = remainder(search, refined)
        height, *peak = _highest_peak(search, refined, left)
        if height < QUIET:
            break
        chart = chart_of(looking, left, search.orders[::2])
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
    """Without the weaker one of each two modes of one reference that lie within a half-power bandwidth.

    One reference does not distinguish close modes from one that varied or was not linear.
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
    """The poles with those of the new ones that are modes of their own, or as they were where none is; and frequencies
    of new ones that may be, Hz: they stand out of the noise, but not by enough."""
    before = refined.eigenvalue.size
    eigenvalue = np.concatenate([refined.eigenvalue, eigenvalue])
    participation = np.concatenate([refined.participation, participation])
    first = refine_poles(search.lines, eigenvalue, participation, refined.noise)
    weak = is_mode(first, search.band_hz, search.rule) & (first.strength < LEAST_STRENGTH)
    weak &= (first.strength > DOUBTFUL_STRENGTH) & ~_seconds(search, first)
    weak[:before] = False
    wide = _wide(search, first.eigenvalue)
    wide[:before] = True
    if not wide.all():
        first = refine_poles(search.lines, first.eigenvalue[wide], first.participation[wide], refined.noise)
        weak = weak[wide]
    tried = _without_seconds(search, all_strong(search, first), refined)
    # a pole that stood for a mode in its neighbour's place may have gone: as many poles must leave clearly less
    enough = 1.0 if tried.eigenvalue.size > before else CLEARLY
    return tried if _left_of(tried, refined) < enough else refined, np.abs(first.eigenvalue[weak]) / (2 * np.pi)


def _wide(search: Search, eigenvalue: np.ndarray) -> np.ndarray:
    """Which poles are as wide as `NARROWEST` lines and more: a narrower one describes the noise of one line."""
    spacing = 2.0 * np.pi * float(np.median(np.diff(search.frequency_hz)))
    return -2.0 * np.real(eigenvalue) >= NARROWEST * spacing


def _highest_peak(search: Search, refined: RefinedPoles, left: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """How far most is left above the noise at one line, and a pole there, as damped as the pole nearest to it.

    A mode that its neighbour stands for as well leaves too little on too few lines for the estimator to see.
    """
    weighted = left / np.where(refined.noise > 0.0, refined.noise, np.inf)
    _, size, rows = np.linalg.svd(weighted, full_matrices=False)
    line = int(np.argmax(size[:, 0]))
    # the largest singular value of complex noise, of standard deviation 1 in real and imaginary parts
    height = float(size[line, 0]) / (np.sqrt(2.0) * sum(np.sqrt(n) for n in left.shape[1:]))
    place = 2 * np.pi * search.frequency_hz[line]
    by_distance = np.argsort(np.abs(np.abs(refined.eigenvalue) - place))
    damping = float(damping_ratio(refined.eigenvalue[by_distance[0]])) if by_distance.size else FIRST_DAMPING
    return height, np.array([place * (-damping + 1j)]), rows[line, :1]


def _without_seconds(search: Search, tried: RefinedPoles, before: RefinedPoles) -> RefinedPoles:
    """Without each pole that describes the mode of another one once more, if that was alone before."""
    while tried.eigenvalue.size > before.eigenvalue.size:
        second = _seconds(search, tried)
        if not second.any():
            break
        worst = np.argmin(np.where(second, tried.strength, np.inf))
        keep = np.arange(second.size) != worst
        tried = all_strong(
            search, refine_poles(search.lines, tried.eigenvalue[keep], tried.participation[keep], tried.noise)
        )
    return tried


def _seconds(search: Search, refined: RefinedPoles) -> np.ndarray:
    """Which poles are the weaker one of two at one place with one shape."""
    size = np.abs(refined.eigenvalue)
    near = np.abs(size[:, None] - size) < search.rule.frequency * size
    same = near & (auto_mac(refined.shape) > SAME)
    return np.any(same & (refined.strength[:, None] < refined.strength), axis=1)


def remainder(search: Search, refined: RefinedPoles) -> np.ndarray:
    """What the poles leave of the responses [f, output, input]."""
    half = search.frequency_hz.size
    return refined.remainder[:half] + 1j * refined.remainder[half:]


def beside(band_hz: tuple[float, float]) -> tuple[float, float]:
    """The band and what lies near it."""
    reach = BESIDE * (band_hz[1] - band_hz[0])
    return band_hz[0] - reach, band_hz[1] + reach


def is_mode(refined: RefinedPoles, band_hz: tuple[float, float], rule: StabilityRule) -> np.ndarray:
    """Which poles are estimates of modes: in the band, and with a damping ratio that is known to be more than zero and
    no more than the rule allows. A pole that only bends a line's form ends with a damping below its deviation."""
    frequency_hz, damping = np.abs(refined.eigenvalue) / (2 * np.pi), damping_ratio(refined.eigenvalue)
    inside = (frequency_hz >= band_hz[0]) & (frequency_hz <= band_hz[1])
    known = damping > damping_std(refined.eigenvalue, refined.covariance)
    return inside & known & (damping > 0.0) & (damping <= rule.largest_damping_ratio)


def _is_rounding(search: Search, refined: RefinedPoles) -> bool:
    """Whether what is left of the responses is nothing but rounding."""
    return bool(np.abs(refined.remainder).max() <= ROUNDING * np.abs(search.frf).max())


def _left_of(a: RefinedPoles, b: RefinedPoles) -> float:
    """What a leaves as a part of what b leaves: mean over the responses of the ratio of squares."""
    return float(np.mean((a.noise / b.noise) ** 2))


def _segments(frequency_hz: np.ndarray, band_hz: tuple[float, float]) -> Iterator[tuple[slice, tuple[float, float]]]:
    """Lines of each segment, and the frequencies between which its poles count."""
    low, high = beside(band_hz)
    last = frequency_hz.size - 1
    count = max(1, round(frequency_hz.size / SEGMENT_LINES))
    ends = np.linspace(0, last, count + 1)
    reach = OVERLAP * ends[1]
    for i, (begin, end) in enumerate(pairwise(ends)):
        part = slice(max(0, round(begin - reach)), min(last, round(end + reach)) + 1)
        core = (low if i == 0 else frequency_hz[round(begin)], high if i == count - 1 else frequency_hz[round(end)])
        yield part, (float(core[0]), float(core[1]))
