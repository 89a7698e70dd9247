"""Options of a modal analysis: the band and the orders, as they can be used."""

from collections.abc import Sequence

import numpy as np

FIRST_ORDER, ORDER_STEP = 8, 2
"""Every other order shows as well what comes back as every one, in half the time."""
LARGEST_COMPANION = 240
"""Largest order times references: the eigenvalues of a larger matrix take long and show nothing more."""
LEAST_LINES = 16


def band_of(band_hz: Sequence[float]) -> tuple[float, float]:
    """Low and high frequency."""
    if len(band_hz) != 2:
        raise ValueError(f"band_hz is {band_hz!r}, expected a low and a high frequency")
    return float(band_hz[0]), float(band_hz[1])


def within(frequency_hz: np.ndarray, band_hz: Sequence[float] | None) -> tuple[float, float]:
    """The band where modes are looked for: as asked for, but not beyond the lines that are used.

    A band from 0 Hz stays one if lines do begin there: nothing lies below, whether or not 0 Hz itself can be used.
    """
    low, high = float(frequency_hz[0]), float(frequency_hz[-1])
    if band_hz is None:
        return low, high
    asked = band_of(band_hz)
    if asked[0] <= 0.0 and low < 1.5 * (frequency_hz[1] - low):
        low = 0.0
    return max(asked[0], low), min(asked[1], high)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def orders_of(max_order: int, shape: tuple[int, ...], lost: int) -> tuple[range, list[str]]:
    """Orders to try, and what was made of the largest one asked for."""
    count, _, references = shape
    if not isinstance(max_order, int) or max_order < 2:
        raise ValueError(f"max_order is {max_order!r}, expected a whole number of at least 2")
    if count < LEAST_LINES:
        more = f", {lost} more are left out because some response is not finite there" if lost else ""
        raise ValueError(f"the band has {_counted(count, 'line')}, expected at least {LEAST_LINES}{more}")
    most = min(max_order, count // 4, max(LARGEST_COMPANION // references, 2))
    remarks = []
    if most < max_order:
        remarks.append(
            f"orders go to {most} and not to {max_order}: {count} lines, {_counted(references, 'reference')}"
        )
    return range(min(FIRST_ORDER, most), most + 1, ORDER_STEP), remarks
