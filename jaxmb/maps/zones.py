"""Connected regions of good points on a grid, and the largest box of good points in each."""

from dataclasses import dataclass

import numpy as np

Ranges = tuple[tuple[float, float], ...]
"""Lowest and highest value along each axis of a grid."""


@dataclass(frozen=True)
class Zone:
    """A connected region of good points of a grid."""

    mask: np.ndarray
    """True at the points of the zone [*grid]."""
    points: int
    """Number of its points."""
    share: float
    """Number of its points over the number of points of the grid."""
    extent: Ranges
    """Lowest and highest value of its points along each axis: a bounding box that may contain other points."""
    box: Ranges
    """The largest box, by number of points, within the zone."""
    best: float
    worst: float
    """Values at its best and worst point."""
    best_at: tuple[float, ...]
    """Values along the axes of the grid at its best point."""


def find_zones(
    values: np.ndarray, grid: tuple[np.ndarray, ...], threshold: float, higher_is_better: bool, least_points: int = 1
) -> tuple[Zone, ...]:
    """Connected regions with values at least (or at most) a threshold, largest first.

    Points are connected along the axes of the grid, not diagonally, and not across the ends of an axis of a full turn.
    NaN is not good.

    Args:
        values: at the grid points [*grid].
        grid: values of each axis, ascending.
        threshold: smallest good value, or largest if smaller is better.
        higher_is_better: whether good is above the threshold.
        least_points: smallest number of points of a region.
    """
    from scipy.ndimage import label

    good = values >= threshold if higher_is_better else values <= threshold
    labels, count = label(good)  # pyright: ignore[reportGeneralTypeIssues]
    zones = []
    for number in range(1, count + 1):
        mask = labels == number
        if np.count_nonzero(mask) >= least_points:
            zones.append(_zone(mask, values, grid, higher_is_better))
    return tuple(sorted(zones, key=lambda zone: -zone.points))


def largest_box(mask: np.ndarray) -> tuple[slice, ...]:
    """Slices of the largest all-True box, by number of points, of a mask with at least one True."""
    found = _largest_box(mask)[1]
    return tuple(slice(low, high + 1) for low, high in found)


def _zone(mask: np.ndarray, values: np.ndarray, grid: tuple[np.ndarray, ...], higher_is_better: bool) -> Zone:
    indices = np.nonzero(mask)
    inside = values[indices]
    order = inside if higher_is_better else -inside
    best, worst = int(order.argmax()), int(order.argmin())
    bounds = tuple(slice(int(i.min()), int(i.max()) + 1) for i in indices)
    box = largest_box(mask[bounds])
    return Zone(
        mask=mask,
        points=int(mask.sum()),
        share=float(mask.mean()),
        extent=tuple((float(g[b][0]), float(g[b][-1])) for g, b in zip(grid, bounds, strict=True)),
        box=tuple((float(g[b][c][0]), float(g[b][c][-1])) for g, b, c in zip(grid, bounds, box, strict=True)),
        best=float(inside[best]),
        worst=float(inside[worst]),
        best_at=tuple(float(g[i[best]]) for g, i in zip(grid, indices, strict=True)),
    )


def _largest_box(mask: np.ndarray) -> tuple[int, list[tuple[int, int]]]:
    """Number of points and index ranges of the largest box, by exhaustive search along the shortest axis."""
    if mask.ndim == 1:
        low, high = _longest_run(mask)
        return high - low + 1, [(low, high)]
    if mask.ndim == 2:
        return _largest_rectangle(mask)
    axis = int(np.argmin(mask.shape))
    layers = np.moveaxis(mask, axis, 0)
    best: tuple[int, list[tuple[int, int]]] = (0, [(0, -1)] * mask.ndim)
    for low in range(len(layers)):
        common = np.ones_like(layers[0])
        for high in range(low, len(layers)):
            common &= layers[high]
            if (high - low + 1) * np.count_nonzero(common) <= best[0]:
                continue
            points, ranges = _largest_box(common)
            if points * (high - low + 1) > best[0]:
                best = points * (high - low + 1), [*ranges[:axis], (low, high), *ranges[axis:]]
    return best


def _longest_run(mask: np.ndarray) -> tuple[int, int]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], mask.astype(np.int8), [0]])))
    if not edges.size:
        return 0, -1
    longest = int(np.argmax(edges[1::2] - edges[::2]))
    return int(edges[2 * longest]), int(edges[2 * longest + 1]) - 1


def _largest_rectangle(mask: np.ndarray) -> tuple[int, list[tuple[int, int]]]:
    """Number of points and index ranges of the largest all-True rectangle: largest rectangle in a histogram, by row."""
    best: tuple[int, list[tuple[int, int]]] = (0, [(0, -1), (0, -1)])
    height = np.zeros(mask.shape[1] + 1, dtype=int)  # the last stays 0 and empties the stack
    for row, line in enumerate(mask):
        height[:-1] = np.where(line, height[:-1] + 1, 0)
        stack: list[tuple[int, int]] = []  # first column and height, ascending heights
        for column, tall in enumerate(height.tolist()):
            start = column
            while stack and stack[-1][1] >= tall:
                start, top = stack.pop()
                if top * (column - start) > best[0]:
                    best = top * (column - start), [(row - top + 1, row), (start, column - 1)]
            stack.append((start, tall))
    return best
