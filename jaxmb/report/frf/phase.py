"""Unwrapped phases for drawing."""

import numpy as np

FARTHEST = 270.0
"""Largest distance of an unwrapped phase from the middle of the axis before it is wrapped by 360 degrees, degrees."""


def continuous_deg(angle: np.ndarray, beside: np.ndarray | None = None) -> np.ndarray:
    """Unwrapped phase [f], deg; NaN stays NaN.

    Each value is the closest to the preceding one modulo 360 degrees, so that noise about 180 degrees causes no jumps.
    The phase is wrapped where it differs by more than `FARTHEST` from the middle of the axis or from a reference curve.
    Without a reference the initial turn is the one with the fewest wraps.

    Args:
        angle: phase [f] in -180 to 180.
        beside: drawn phase [f] of the curve to compare with; 0 is used where it is not finite.
    """
    finite = np.flatnonzero(np.isfinite(angle))
    continuous = np.array(angle, dtype=float)
    if not finite.size:
        return continuous
    middle = np.zeros(angle.size) if beside is None else np.where(np.isfinite(beside), beside, 0.0)
    first = float(angle[finite[0]])
    if beside is not None:
        starts = [_near(first, float(middle[finite[0]]))]
    else:
        starts = [start for start in (first, first - 360.0, first + 360.0) if abs(start) <= FARTHEST]
    paths = [_unwrap(angle[finite], middle[finite], start) for start in starts]
    continuous[finite] = min(paths, key=lambda path: int(np.sum(np.abs(np.diff(path)) > 180.0)))
    return continuous


def _unwrap(angle: np.ndarray, middle: np.ndarray, start: float) -> np.ndarray:
    path, last = np.empty(angle.size), start
    for k, value in enumerate(angle):
        phase = _near(float(value), last)
        if abs(phase - middle[k]) > FARTHEST:
            phase = _near(phase, middle[k])
        path[k] = last = phase
    return path


def _near(angle: float, other: float) -> float:
    """The angle equal to the first modulo 360 degrees that is closest to the other."""
    return angle + 360.0 * round((other - angle) / 360.0)


def unbroken(x: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curve of an unwrapped angle [deg], interrupted at its wraps."""
    jumps = np.flatnonzero(np.abs(np.diff(angle)) > 180.0) + 1
    return np.insert(x, jumps, x[jumps]), np.insert(angle, jumps, np.nan)
