"""Repeatability of deflections, from tests of one posture and load that were measured several times."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmb.identify.experiments.deflections.load_cases import LoadCase

LEAST_DEGREES = 10
"""Degrees of freedom from which a standard deviation is taken: it is then known to 22 %."""


class Repeatability(NamedTuple):
    """Scatter of repeated tests about their means, of translations and of rotations."""

    std: tuple[float, float]
    """Pooled standard deviation, m and rad; NaN where nothing of the kind was repeated."""
    degrees: tuple[int, int]
    """Degrees of freedom."""
    chi_square: tuple[float, float]
    """Sum of squares over the stated variances."""
    groups: int
    """Postures and loads that were repeated."""


def repeatability(cases: Sequence[LoadCase]) -> Repeatability:
    """Repeatability of tests; those with equal postures, loads and points are repetitions.

    Args:
        cases: the tests, with what was stated of their standard deviations.

    Source: pooled variance of ISO 5725-2.
    """
    known: dict[tuple, list[LoadCase]] = {}
    for case in cases:
        numbers = (tuple(float(f"{x:.9g}") for x in part) for part in (case.q, case.wrench))
        known.setdefault((case.frame, case.points, *numbers), []).append(case)
    groups = [group for group in known.values() if len(group) > 1]
    squares, over, degrees = np.zeros(2), np.zeros(2), np.zeros(2, dtype=int)
    for group in groups:
        moved = np.stack([case.displacement for case in group])
        seen = np.isfinite(moved)
        count = seen.sum(axis=0)
        mean = np.sum(np.where(seen, moved, 0.0), axis=0) / np.maximum(count, 1)
        errors = np.where(seen, moved - mean, 0.0)
        scaled = np.where(seen, errors / np.stack([case.std for case in group]), 0.0)
        for kind, columns in enumerate((slice(0, 3), slice(3, 6))):
            squares[kind] += np.sum(errors[..., columns] ** 2)
            over[kind] += np.sum(scaled[..., columns] ** 2)
            degrees[kind] += int(np.sum(np.maximum(count[:, columns] - 1, 0)))
    std = np.where(degrees > 0, np.sqrt(squares / np.maximum(degrees, 1)), np.nan)
    return Repeatability((float(std[0]), float(std[1])), (int(degrees[0]), int(degrees[1])),
                         (float(over[0]), float(over[1])), len(groups))  # fmt: skip
