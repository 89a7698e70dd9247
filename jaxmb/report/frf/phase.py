"""Phases as curves that do not jump from one end of the axis to the other and back."""

import numpy as np

FARTHEST = 270.0
"""Degrees up to which a phase is followed beyond half a turn before it goes on a whole turn away."""


def continuous_deg(angle: np.ndarray, beside: np.ndarray | None = None) -> np.ndarray:
    """A phase [f], deg, in -180 to 180, with whole turns added so that it has few jumps; NaN stays NaN.

    Each line is the nearest to the one before, so that noise about half a turn does not throw the curve across the
    axis; beyond `FARTHEST` it goes on a turn away. A curve that belongs beside another stays within half a turn of it.

    Args:
        angle: in -180 to 180.
        beside: a phase that this one is compared with, as it is drawn; followed where it is finite.
    """
    told, last = np.array(angle, dtype=float), np.nan
    for k, value in enumerate(told):
        if not np.isfinite(value):
            continue
        other = np.nan if beside is None else beside[k]
        near = other if np.isfinite(other) else last
        if np.isfinite(near):
            value += 360.0 * np.round((near - value) / 360.0)
        if not np.isfinite(other) and abs(value) > FARTHEST:
            value -= 360.0 * np.sign(value)
        told[k] = last = value
    return told


def unbroken(x: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curve of an angle [deg] with a gap where it goes on a turn away, instead of a line across."""
    jumps = np.flatnonzero(np.abs(np.diff(angle)) > 180.0) + 1
    return np.insert(x, jumps, x[jumps]), np.insert(angle, jumps, np.nan)
