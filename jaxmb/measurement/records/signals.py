"""Recorded signals as arrays that estimators can use, or one sentence about what is wrong with them."""

import math

import numpy as np


def signal_columns(what: str, values: object) -> np.ndarray:
    """Recorded values as floats [n, channel]; one axis is one channel, whole numbers are counts.

    Args:
        what: "force" or "response", for messages.
        values: the record [n] or [n, channel].

    Raises:
        ValueError: not real numbers, empty, of another shape, not finite, or a channel that never changes.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:  # rows of different lengths
        raise ValueError(f"{what} is no array of numbers: {error}") from None
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{what} holds {array.dtype}, expected real numbers")
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"{what} has shape {array.shape}, expected [samples] or [samples, channels], at least one")
    columns = array.astype(float).reshape(array.shape[0], -1)
    wrong = np.argwhere(~np.isfinite(columns))
    if wrong.size:
        sample, channel = wrong[0]
        raise ValueError(
            f"{what} {channel + 1} is {columns[sample, channel]} at sample {sample + 1}, expected finite numbers"
        )
    largest = np.abs(columns).max()
    if largest > 1e100:
        raise ValueError(f"{what} holds {largest:g}, expected numbers whose squares are finite")
    still = np.flatnonzero(np.ptp(columns, axis=0) == 0.0)
    if still.size:
        raise ValueError(f"{what} {still[0] + 1} is {columns[0, still[0]]:g} throughout, expected a signal")
    return columns


def checked_record(force: object, response: object) -> tuple[np.ndarray, np.ndarray]:
    """Force [n, input] and response [n, output] of one record, of the same length.

    Raises:
        ValueError: see `signal_columns`; or they do not have the same number of samples.
    """
    f, y = signal_columns("force", force), signal_columns("response", response)
    if f.shape[0] != y.shape[0]:
        raise ValueError(f"force has {f.shape[0]} samples and response {y.shape[0]}, expected the same number")
    return f, y


def checked_rate(sample_rate_hz: float) -> float:
    """The sample rate; ValueError where no record can have it."""
    rate = real_number("sample_rate_hz", sample_rate_hz)
    if rate <= 0.0:
        raise ValueError(f"sample_rate_hz is {sample_rate_hz!r}, expected a number above 0")
    return rate


def real_number(what: str, value: object) -> float:
    """A finite real number; ValueError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise ValueError(f"{what} is {value!r}, expected a number")
    if not math.isfinite(value):
        raise ValueError(f"{what} is {value!r}, expected a finite number")
    return float(value)


def whole_number(what: str, value: object, least: int) -> int:
    """A whole number of at least `least`; ValueError where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{what} is {value!r}, expected a whole number of at least {least}")
    return int(value)


def fraction(what: str, value: object) -> float:
    """A number of at least 0 and below 1; ValueError where it is none."""
    number = real_number(what, value)
    if not 0.0 <= number < 1.0:
        raise ValueError(f"{what} is {value!r}, expected at least 0 and below 1")
    return number
