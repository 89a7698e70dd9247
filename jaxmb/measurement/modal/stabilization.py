"""Stabilization chart, and the automatic or manual selection of poles from it."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np

from jaxmb.io.validation import finite_number
from jaxmb.measurement.frf_set import largest_of_rows
from jaxmb.measurement.modal.model import Lines, shapes

LABELS = ("new", "frequency", "damping", "shape")
"""Agreement of a pole with one of the previous order: none; frequency; also damping; also shape."""
SAME = 0.95
"""MAC above which two poles at the same frequency are one mode."""


@dataclasses.dataclass(frozen=True)
class StabilityRule:
    """Tolerances within which poles of different orders are the same mode, and the presence required of a mode."""

    frequency: float = 0.005
    """Largest relative difference of frequency."""
    damping: float = 0.5
    """Largest difference of the damping ratio, relative to the larger one."""
    mac: float = 0.9
    """Least MAC of the shapes, and of a shape with the plane of two poles at the same frequency."""
    presence: float = 1.0 / 3.0
    """Least share of the orders in which a mode is found."""
    largest_damping_ratio: float = 0.1


@dataclasses.dataclass(frozen=True, eq=False)
class StabilizationChart:
    """All plausible poles of all model orders."""

    order: np.ndarray
    """[p], ascending."""
    eigenvalue: np.ndarray
    """[p], rad/s."""
    shape: np.ndarray
    """[output, p]"""
    participation: np.ndarray
    """[p, input]"""
    label: tuple[str, ...]
    """One of LABELS each."""
    mode: np.ndarray
    """Index of the stable mode of each pole [p]; -1 for none."""
    orders: int
    """Number of model orders."""

    @property
    def frequency_hz(self) -> np.ndarray:
        """|lambda| / 2 pi [p]."""
        return np.abs(self.eigenvalue) / (2 * np.pi)

    @property
    def damping_ratio(self) -> np.ndarray:
        """-Re(lambda) / |lambda| [p]."""
        return damping_ratio(self.eigenvalue)


def damping_ratio(eigenvalue: np.ndarray) -> np.ndarray:
    """-Re(lambda) / |lambda|."""
    return -np.real(eigenvalue) / np.abs(eigenvalue)


def auto_mac(vectors: np.ndarray) -> np.ndarray:
    """MAC between all pairs of columns."""
    unit = vectors / np.linalg.norm(vectors, axis=0)
    return np.abs(unit.conj().T @ unit) ** 2


OrderPoles = tuple[int, np.ndarray, np.ndarray, np.ndarray]
"""An order, its poles [p], participations [p, input] and shapes [output, p]."""


def plausible_poles(
    poles: Iterable[tuple[int, np.ndarray, np.ndarray]],
    lines: Lines,
    band_hz: tuple[float, float],
    rule: StabilityRule,
    scale: np.ndarray,
) -> Iterator[OrderPoles]:
    """Poles of each order with their shapes: those in the band with a damping ratio above 0 and at most that of the
    rule.

    Args:
        poles: order, poles and participations, by ascending order.
        lines: the responses that determine the shapes.
        band_hz: band in which poles are kept.
        rule: tolerances.
        scale: by which the lines were divided [output].
    """
    low, high = (2 * np.pi * f for f in band_hz)
    for order, eigenvalue, participation in poles:
        size, damping = np.abs(eigenvalue), damping_ratio(eigenvalue)
        keep = (size >= low) & (size <= high) & (damping > 0.0) & (damping <= rule.largest_damping_ratio)
        eigenvalue, participation = eigenvalue[keep], participation[keep] / largest_of_rows(participation[keep])
        psi = shapes(lines, eigenvalue, participation) if keep.any() else np.zeros((lines.responses.shape[1], 0))
        psi = psi * scale[:, None]
        norm = np.linalg.norm(psi, axis=0)
        yield order, eigenvalue, participation, psi / np.where(norm > 0.0, norm, 1.0)


def stabilization_chart(found: Sequence[OrderPoles], rule: StabilityRule) -> StabilizationChart:
    """Stabilization chart of the poles of all orders; those of one order may come from several segments of the band.

    With increasing order, each pole is assigned to at most one mode found before, and each mode to at most one pole, by
    frequency, damping and shape. A mode is stable if it has poles in the rule's share of the orders.
    """
    found = sorted(found, key=lambda each: each[0])
    order = np.repeat([each[0] for each in found], [each[1].size for each in found])
    orders = np.unique([each[0] for each in found])
    starts = np.append(np.searchsorted(order, orders), order.size)
    chart = StabilizationChart(
        order=order,
        eigenvalue=np.concatenate([values for _, values, _, _ in found]),
        shape=np.hstack([psi for _, _, _, psi in found]),
        participation=np.concatenate([rows for _, _, rows, _ in found]),
        label=(),
        mode=np.zeros(0, int),
        orders=orders.size,
    )
    return dataclasses.replace(
        chart, label=_labels(chart, starts, rule), mode=_stable(chart, _tracks(chart, starts, rule), rule)
    )


def stable_poles(chart: StabilizationChart) -> np.ndarray:
    """Representative pole of each stable mode [mode], closest to the median of its poles; by ascending frequency."""
    chosen = []
    for number in np.unique(chart.mode[chart.mode >= 0]):
        members = np.flatnonzero(chart.mode == number)
        values = chart.eigenvalue[members]
        middle = np.median(np.real(values)) + 1j * np.median(np.imag(values))
        # of equal estimates that of the higher order, which is less biased by neighbouring modes
        chosen.append(members[members.size - 1 - np.argmin(np.abs(values - middle)[::-1])])
    return np.array(sorted(chosen, key=lambda p: abs(chart.eigenvalue[p])), int)


def _tracks(chart: StabilizationChart, starts: np.ndarray, rule: StabilityRule) -> np.ndarray:
    """Index of the track of every pole."""
    from scipy.optimize import linear_sum_assignment

    track = np.full(chart.eigenvalue.size, -1)
    last: list[int] = []
    for begin, end in pairwise(starts):
        here = np.arange(begin, end)
        distance = distance_of(chart, np.array(last, int), here, rule)
        rows, columns = linear_sum_assignment(np.where(np.isfinite(distance), distance, 1e3))
        for row, column in zip(rows, columns, strict=True):
            if np.isfinite(distance[row, column]):
                track[here[column]] = row
                last[row] = here[column]
        for pole in here[track[here] < 0]:
            track[pole] = len(last)
            last.append(pole)
    return track


def distance_of(chart: StabilizationChart, a: np.ndarray, b: np.ndarray, rule: StabilityRule) -> np.ndarray:
    """Distance of poles a and b [a, b] in tolerances; infinite where they are not the same mode."""
    frequency, damping = _differences(chart, a, b, rule)
    shape = (1.0 - np.maximum(_mac(chart, a, b), _plane_mac(chart, a, b, rule))) / (1.0 - rule.mac)
    is_same = (frequency <= 1.0) & (damping <= 1.0) & (shape <= 1.0)
    return np.where(is_same, frequency + damping + shape, np.inf)


def _differences(
    chart: StabilizationChart, a: np.ndarray, b: np.ndarray, rule: StabilityRule
) -> tuple[np.ndarray, np.ndarray]:
    """Relative differences [a, b] of frequency and damping ratio of poles a and b, in tolerances."""
    size, damping = np.abs(chart.eigenvalue), chart.damping_ratio
    frequency = np.abs(size[a][:, None] - size[b]) / size[b] / rule.frequency
    larger = np.maximum(damping[a][:, None], damping[b])
    return frequency, np.abs(damping[a][:, None] - damping[b]) / larger / rule.damping


def _mac(chart: StabilizationChart, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.abs(chart.shape[:, a].conj().T @ chart.shape[:, b]) ** 2


def _plane_mac(chart: StabilizationChart, a: np.ndarray, b: np.ndarray, rule: StabilityRule) -> np.ndarray:
    """MAC of shape a with the plane of shape b and of the pole closest to it in frequency, of the same order [a, b].

    Only the plane of the shapes of a repeated mode is identifiable; the basis of it differs between orders.
    """
    values = chart.eigenvalue[b]
    part = np.zeros((a.size, b.size))
    for i in range(b.size):
        near = np.abs(values - values[i])
        near[i] = np.inf
        j = int(np.argmin(near))
        if near[j] > 0.1 * rule.frequency * np.abs(values[i]):
            continue
        plane = np.linalg.qr(chart.shape[:, b[[i, j]]])[0]
        part[:, i] = np.sum(np.abs(plane.conj().T @ chart.shape[:, a]) ** 2, axis=0)
    return part


def _stable(chart: StabilizationChart, track: np.ndarray, rule: StabilityRule) -> np.ndarray:
    """Index of the stable mode of every pole, by ascending frequency; -1 where its track is too short."""
    long = np.flatnonzero(np.bincount(track) >= rule.presence * chart.orders)
    mode = np.full(track.size, -1)
    for number, t in enumerate(sorted(long, key=lambda t: np.median(np.abs(chart.eigenvalue[track == t])))):
        mode[track == t] = number
    return mode


def _labels(chart: StabilizationChart, starts: np.ndarray, rule: StabilityRule) -> tuple[str, ...]:
    """Agreement of every pole with those of the previous order, see `LABELS`."""
    label = np.zeros(chart.eigenvalue.size, int)
    for begin, middle, end in zip(starts[:-2], starts[1:-1], starts[2:], strict=True):
        before, here = np.arange(begin, middle), np.arange(middle, end)
        frequency, damping = (difference <= 1.0 for difference in _differences(chart, before, here, rule))
        damped = frequency & damping
        shaped = damped & (_mac(chart, before, here) >= rule.mac)
        label[here] = np.sum([agrees.any(axis=0) for agrees in (frequency, damped, shaped)], axis=0)
    return tuple(LABELS[agreement] for agreement in label)


BY_HAND = 0.03
"""Largest relative distance of a pole from a manually selected frequency."""
Chosen = float | tuple[int, float] | Sequence[tuple[int, float]]
"""A manually selected mode: a frequency (Hz), order and frequency of a pole, or several such pairs, the poles merged
into one mode."""


def by_hand(
    chart: StabilizationChart,
    chosen: Sequence[Chosen],
    band_hz: tuple[float, float],
    rule: StabilityRule,
) -> tuple[np.ndarray, np.ndarray]:
    """Poles [r] of a chart selected manually, in the order given, and the poles [k] merged into them.

    A frequency alone selects the nearest stable mode not selected yet or, where none is near, the nearest pole of the
    chart. A mode is selected once, including its estimates at other orders. Of merged poles, the one of the highest
    order is selected, which is the least biased by neighbouring modes.

    Raises:
        ValueError: nothing is selected, a frequency is invalid, or no unselected pole lies within 3 % of it.
    """
    if isinstance(chosen, str) or not isinstance(chosen, Sequence) or len(chosen) == 0:
        raise ValueError(f"chosen is {chosen!r}, expected frequencies in Hz or pairs of order and frequency")
    stable = stable_poles(chart)
    inside = (chart.frequency_hz >= band_hz[0]) & (chart.frequency_hz <= band_hz[1])
    picked, merged = list[int](), list[int]()

    def nearest(item: float | tuple[int, float], taken: np.ndarray) -> int:
        if isinstance(item, tuple | list) and len(item) != 2:
            raise ValueError(f"chosen holds {item!r}, expected frequencies in Hz or pairs of order and frequency")
        order, frequency_hz = item if isinstance(item, tuple | list) else (None, item)
        finite_number("chosen", frequency_hz, above=0.0)
        off = np.abs(chart.frequency_hz / frequency_hz - 1.0)
        free = inside & ~taken & (off <= BY_HAND)
        near = stable[free[stable]] if order is None else np.flatnonzero(free & (chart.order == order))
        if order is None and not near.size:
            # a frequency nearer to a selected mode was meant to be that mode
            near = np.flatnonzero(free & (off <= off[stable[taken[stable]]].min(initial=np.inf)))
        if not near.size:
            where = f"{frequency_hz:g} Hz" if order is None else f"order {order}, {frequency_hz:g} Hz"
            raise ValueError(
                f"chosen pole {where}: the chart has none within {BY_HAND:.0%} that is not selected already"
            )
        return int(near[np.argmin(off[near])])

    for item in chosen:
        taken = same_mode(chart, np.array([*picked, *merged], int), rule)
        group = item if isinstance(item, tuple | list) and item and isinstance(item[0], tuple | list) else [item]
        *others, pole = sorted({nearest(one, taken) for one in group}, key=lambda p: int(chart.order[p]))  # pyright: ignore[reportArgumentType]
        picked.append(pole)
        merged += others
    return np.array(picked, int), np.array(merged, int)


def same_mode(chart: StabilizationChart, picked: np.ndarray, rule: StabilityRule) -> np.ndarray:
    """Mask [p] of the poles that estimate a picked mode; two stable modes are distinct, however close."""
    both_stable = (chart.mode[:, None] >= 0) & (chart.mode[picked] >= 0)
    near = np.isfinite(distance_of(chart, np.arange(chart.mode.size), picked, rule))
    return np.any(np.where(both_stable, chart.mode[:, None] == chart.mode[picked], near), axis=1)


def neighbouring_poles(chart: StabilizationChart, picked: np.ndarray, rule: StabilityRule) -> np.ndarray:
    """The stable poles [k] that are not further estimates of a picked one.

    Close to a picked pole, a pole of the same shape is a further estimate of it: a joint that softens with amplitude
    has one frequency for each way it was excited, and the picked pole represents all of them.
    """
    stable = stable_poles(chart)
    same = np.isfinite(distance_of(chart, stable, picked, rule)) | (chart.mode[stable][:, None] == chart.mode[picked])
    near = np.abs(chart.frequency_hz[stable][:, None] / chart.frequency_hz[picked] - 1.0) <= BY_HAND
    same |= near & (_mac(chart, stable, picked) >= rule.mac)
    return stable[~same.any(axis=1)]
