"""Phases as curves that do not jump from one end of the axis to the other and back."""

import numpy as np

FARTHEST = 270.0
"""Degrees from the middle up to which a phase is followed before it goes on a whole turn away."""


def continuous_deg(angle: np.ndarray, beside: np.ndarray | None = None) -> np.ndarray:
    """A phase [f], deg, in -180 to 180, with whole turns added so that it has few jumps; NaN stays NaN.

    Each line is the nearest to the one before, so that noise about half a turn does not throw the curve across the
    axis. More than `FARTHEST` from the middle of the axis, or from a curve that it belongs beside, it goes on a turn
    away. Alone it begins on the turn from which it has to do so least often.

    Args:
        angle: in -180 to 180.
        beside: a phase that this one is compared with, as it is drawn; 0 where it is not finite.
    """
    seen = np.flatnonzero(np.isfinite(angle))
    continuous = np.array(angle, dtype=float)
    if not seen.size:
        return continuous
    middle = np.zeros(angle.size) if beside is None else np.where(np.isfinite(beside), beside, 0.0)
    first = float(angle[seen[0]])
    if beside is not None:
        starts = [_near(first, float(middle[seen[0]]))]
    else:
        starts = [start for start in (first, first - 360.0, first + 360.0) if abs(start) <= FARTHEST]
    paths = [_followed(angle[seen], middle[seen], start) for start in starts]
    continuous[seen] = min(paths, key=lambda path: int(np.sum(np.abs(np.diff(path)) > 180.0)))
    return continuous


def _followed(angle: np.ndarray, middle: np.ndarray, start: float) -> np.ndarray:
    path, last = np.empty(angle.size), start
    for k, value in enumerate(angle):
        here = _near(float(value), last)
        if abs(here - middle[k]) > FARTHEST:
            here = _near(here, middle[k])
        path[k] = last = here
    return path


def _near(angle: float, other: float) -> float:
    """The angle, whole turns away, that is nearest to another."""
    return angle + 360.0 * round((other - angle) / 360.0)


def unbroken(x: np.ndarray, angle: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Curve of an angle [deg] with a gap where it goes on a turn away, instead of a line across."""
    jumps = np.flatnonzero(np.abs(np.diff(angle)) > 180.0) + 1
    return np.insert(x, jumps, x[jumps]), np.insert(angle, jumps, np.nan)
