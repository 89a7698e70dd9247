"""What a user should know of values found from deflections, beside how well they follow."""

from collections.abc import Sequence

import numpy as np

from jaxmb.identify.assess.deflections.monte_carlo import MonteCarlo
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.machine.schema import Machine
from jaxmb.machine.virtual_spring import ROUNDING, least_scaled_eigenvalue


def spring_remarks(machine: Machine) -> list[str]:
    """A sentence on each virtual spring whose fitted compliance is not positive semi-definite.

    A linear fit keeps diagonals from being negative, and no more.
    """
    told = []
    for spring in machine.virtual_spring:
        least = least_scaled_eigenvalue(spring.matrix)
        if least < -ROUNDING:
            told.append(
                f"the compliance of virtual spring '{spring.name}' is not positive semi-definite (least eigenvalue"
                f" {least:.3g}, scaled to a diagonal of 1): [complete] finds compliances that are, by minimise_over of"
                " jaxmb.identify.estimation.semidefinite"
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


def assumed_remarks(sets: Sequence[DeflectionSet]) -> list[str]:
    """One sentence on standard deviations that nothing states."""
    assumed = list(dict.fromkeys(text for group in sets for text in group.assumed))
    if not assumed:
        return []
    names = ", ".join(repr(group.name) for group in sets if group.assumed)
    return [
        f"no standard deviation is stated for displacements of {names}: {' and '.join(assumed)} {_is(assumed)} assumed,"
        " and all standard deviations follow from it"
    ]


def size_remarks(sets: Sequence[DeflectionSet]) -> list[str]:
    """A sentence on each set all of whose translations, or rotations, are smaller than their standard deviations."""
    told = []
    for group in sets:
        for kind, columns in (("translations", slice(0, 3)), ("rotations", slice(3, 6))):
            share = np.concatenate([np.abs(t.displacement / t.std)[:, columns].ravel() for t in group.tests])
            share = share[np.isfinite(share)]
            if share.size and share.max() < 1.0:
                told.append(
                    f"{kind} of '{group.name}' are smaller than their standard deviation throughout (at most"
                    f" {share.max():.2g} of it): is it the unit?"
                )
    return told


def _is(items: Sequence[str]) -> str:
    return "is" if len(items) == 1 else "are"
