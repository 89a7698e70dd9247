"""Poles of a stabilization chart that are chosen by hand, and those that keep them company."""

from collections.abc import Sequence

import numpy as np

from jaxmb.measurement.modal.stabilization import StabilityRule, StabilizationChart, distance_of, stable_poles

BY_HAND = 0.03
"""How far a pole may be from the frequency that was chosen by hand, as a part of it."""


def by_hand(
    chart: StabilizationChart,
    chosen: Sequence[float | tuple[int, float]],
    band_hz: tuple[float, float],
    rule: StabilityRule,
) -> np.ndarray:
    """Poles [r] chosen by frequency, or by order and frequency, as they were given; those of a chart in a band.

    A frequency alone means the nearest stable mode that is not taken yet, or where none is near the nearest pole of the
    chart. A mode is taken once: what is another estimate of it, at another order, is no choice any more.

    Raises:
        ValueError: nothing is chosen, what is chosen is no frequency, or no pole that is not taken yet lies within 3 %
            of it.
    """
    if len(chosen) == 0:
        raise ValueError("chosen is empty, expected frequencies in Hz or pairs of order and frequency")
    stable = stable_poles(chart)
    inside = (chart.frequency_hz >= band_hz[0]) & (chart.frequency_hz <= band_hz[1])
    picked: list[int] = []
    for item in chosen:
        order, frequency_hz = item if isinstance(item, tuple | list) else (None, item)
        if not (np.isfinite(frequency_hz) and frequency_hz > 0.0):
            raise ValueError(f"chosen holds {frequency_hz:g} Hz, expected frequencies above 0")
        off = np.abs(chart.frequency_hz / frequency_hz - 1.0)
        taken = _same_mode(chart, np.array(picked, int), rule)
        free = inside & ~taken & (off <= BY_HAND)
        near = stable[free[stable]] if order is None else np.flatnonzero(free & (chart.order == order))
        if order is None and not near.size:
            # what a mode that is taken lies nearer to, was meant to be that mode
            near = np.flatnonzero(free & (off <= off[stable[taken[stable]]].min(initial=np.inf)))
        if not near.size:
            where = f"{frequency_hz:g} Hz" if order is None else f"order {order}, {frequency_hz:g} Hz"
            raise ValueError(f"chosen pole {where}: the chart has none within {BY_HAND:.0%} that is not chosen already")
        picked.append(int(near[np.argmin(off[near])]))
    return np.array(picked, int)


def _same_mode(chart: StabilizationChart, picked: np.ndarray, rule: StabilityRule) -> np.ndarray:
    """Which poles [p] are estimates of the modes of the picked ones: two stable modes are two, however near."""
    if not picked.size:
        return np.zeros(chart.mode.size, bool)
    both_stable = (chart.mode[:, None] >= 0) & (chart.mode[picked] >= 0)
    near = np.isfinite(distance_of(chart, np.arange(chart.mode.size), picked, rule))
    return np.any(np.where(both_stable, chart.mode[:, None] == chart.mode[picked], near), axis=1)


def neighbouring_poles(chart: StabilizationChart, picked: np.ndarray, rule: StabilityRule) -> np.ndarray:
    """The stable poles [k] that are no other estimate of a picked one.

    Near a pole that was picked by hand, a pole of the same shape is another estimate of it: a joint that softens with
    amplitude rings at as many frequencies as it was hit in ways, and who picks one wants it to stand for all.
    """
    stable = stable_poles(chart)
    if not picked.size or not stable.size:
        return stable
    same = np.isfinite(distance_of(chart, stable, picked, rule)) | (chart.mode[stable][:, None] == chart.mode[picked])
    near = np.abs(chart.frequency_hz[stable][:, None] / chart.frequency_hz[picked] - 1.0) <= BY_HAND
    a, b = (chart.shape[:, which] / np.linalg.norm(chart.shape[:, which], axis=0) for which in (stable, picked))
    same |= near & (np.abs(a.conj().T @ b) ** 2 >= rule.mac)
    return stable[~same.any(axis=1)]
