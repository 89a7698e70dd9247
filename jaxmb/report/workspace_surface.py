"""Values over a workspace, where several postures may reach one place: as fine patches, or as the best in each cell."""

import numpy as np

FINE = 240
"""Patches along each axis of a map of two coordinates, about: fewer show as saw teeth."""
MOST_FACTOR = 12
MOST_CELLS = 160
"""Along the longer axis of the workspace, of a map of more than two coordinates."""
POSTURES_PER_CELL = 4.0


def fine_patches(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners [patch, 4, 2] and values [patch] of the surface over two coordinates, linear between its points."""
    for axis in (0, 1):
        factor = int(np.clip(-(-FINE // (values.shape[axis] - 1)), 1, MOST_FACTOR))
        x, y, values = (_finer(c, axis, factor) for c in (x, y, values))
    corners = [np.stack([c[:-1, :-1], c[1:, :-1], c[1:, 1:], c[:-1, 1:]], axis=-1).reshape(-1, 4) for c in (x, y)]
    middle = 0.25 * (values[:-1, :-1] + values[1:, :-1] + values[1:, 1:] + values[:-1, 1:]).ravel()
    return np.stack(corners, axis=-1), middle


def best_in_cells(
    x: np.ndarray, y: np.ndarray, values: np.ndarray, higher_is_better: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Edges along x and y, and the best value of the postures in each square cell [x, y]; NaN where there is none."""
    x, y, values = x.ravel(), y.ravel(), values.ravel()
    known = np.isfinite(values)
    x, y, values = x[known], y[known], values[known]
    width, height = max(float(np.ptp(x)), 1e-3), max(float(np.ptp(y)), 1e-3)
    size = max(np.sqrt(width * height * POSTURES_PER_CELL / len(x)), max(width, height) / MOST_CELLS)
    columns, rows = int(width / size) + 1, int(height / size) + 1
    at = tuple(((c - c.min()) / size).astype(int) for c in (x, y))
    worst = -np.inf if higher_is_better else np.inf
    best = np.full((columns, rows), worst)
    (np.maximum if higher_is_better else np.minimum).at(best, at, values)
    edges = tuple(c.min() + size * np.arange(n + 1) for c, n in ((x, columns), (y, rows)))
    return *edges, np.where(np.isfinite(best), best, np.nan)


def _finer(values: np.ndarray, axis: int, factor: int) -> np.ndarray:
    """As many intervals times the factor, linear between the points."""
    values = np.moveaxis(values, axis, 0)
    share = (np.arange(factor) / factor)[:, None]
    inside = values[:-1, None] * (1.0 - share) + values[1:, None] * share
    return np.moveaxis(np.concatenate([inside.reshape(-1, values.shape[1]), values[-1:]]), 0, axis)
