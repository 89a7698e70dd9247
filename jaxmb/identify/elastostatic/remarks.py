"""What a user should know of values found from deflections, beside how well they follow."""

from collections.abc import Sequence

import numpy as np

from jaxmb.identify.elastostatic.monte_carlo import MonteCarlo
from jaxmb.machine.schema import Machine

ROUNDING = 1e-6
"""Negative eigenvalue of a scaled compliance that machine files still take for the rounding of 0."""


def spring_remarks(machine: Machine) -> list[str]:
    """A sentence on each virtual spring whose fitted compliance is not positive semi-definite.

    A linear fit keeps diagonals from being negative, and no more. The eigenvalue is of the matrix scaled to a diagonal
    of 1, which knows no units; its sign is that of the matrix itself.
    """
    told = []
    for spring in machine.virtual_spring:
        matrix = spring.matrix
        size = np.sqrt(np.abs(np.diagonal(matrix)))
        # Where a diagonal is 0 its row is scaled to what couples it with others.
        size = np.where(size > 0.0, size, np.sqrt(np.abs(matrix).max(axis=1)))
        size = np.where(size > 0.0, size, 1.0)
        least = float(np.linalg.eigvalsh(matrix / np.outer(size, size))[0])
        if least < -ROUNDING:
            told.append(
                f"the compliance of virtual spring '{spring.name}' is not positive semi-definite (least eigenvalue"
                f" {least:.3g}, scaled to a diagonal of 1): [complete] finds compliances that are, by minimise_over of"
                " jaxmb.identify.semidefinite"
            )
    return told


def clipped_remarks(names: Sequence[str], drawn: MonteCarlo | None) -> list[str]:
    """A sentence on each value whose compliance was at its least in some Monte-Carlo draws."""
    if drawn is None:
        return []
    return [
        f"{name} ended on its bound in {count} of {len(drawn.values)} draws, whose scatter is too small for that"
        for name, count in zip(names, drawn.clipped.tolist(), strict=True)
        if count
    ]
