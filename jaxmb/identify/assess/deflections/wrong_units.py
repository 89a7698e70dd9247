"""Common factors of a column that would mend a fit: another unit, a reversed sign.

Displacements are linear in compliances and in loads, so a factor common to all of them is one of the compliances and
cannot be seen. It can where something else knows the size: translations beside rotations, forces beside moments, one
set of tests beside the others, compliances that must not be negative, are held, or have bounds.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from jaxmb.identify.assess.deflections.solve import Unknowns, equations, fit_deflections
from jaxmb.identify.experiments.load_cases import DeflectionTest, measured_displacements
from jaxmb.identify.stiffness_model.variants import StiffnessModel, least_squares
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.machine.build import Model

GROSS = 0.3
"""Share of the displacements that a fit leaves, above which a factor is looked for. A wrong one leaves all of a kind or
set, which is half of the mean square of two and a fifth of that of five; joints without links leave 0.1 to 0.2."""
MENDS = 1.0 / 3.0
"""What a factor may leave of that to be named."""
ALIKE = 0.01
"""Shares that differ by less are equally good."""
DEGREE = 180.0 / np.pi
FACTORS = {"-1": -1.0, "1000": 1e3, "1/1000": 1e-3}
OF_ANGLES = {"57.3": DEGREE, "1/57.3": 1.0 / DEGREE}

Misfit = Callable[[Sequence[DeflectionSet]], float]


def unexplained(model: Model, found: Unknowns, initial: Float[np.ndarray, "d"]) -> Misfit:
    """What a fit of free parameters leaves of the displacements of some sets, by `share_scale`."""

    def share(sets: Sequence[DeflectionSet]) -> float:
        rows = dataclasses.replace(equations(model, found, sets), std=share_scale(sets))
        fit = fit_deflections(found, dataclasses.replace(rows, weight=np.ones(rows.std.size)), initial)
        return float(np.sqrt(fit.cost))

    return share


def unexplained_by(stiffness: StiffnessModel, model: Model) -> Misfit:
    """What a fit of a stiffness model leaves of the displacements of some sets, by `share_scale`."""

    def share(sets: Sequence[DeflectionSet]) -> float:
        tests = [test for group in sets for test in group.tests]
        measured, scale = measured_displacements(tests)[0], share_scale(sets)
        fit = least_squares(stiffness, stiffness.observation(model, tests), measured, scale)
        return float(np.linalg.norm(fit.residual / scale))

    return share


def share_scale(sets: Sequence[DeflectionSet]) -> Float[np.ndarray, "m"]:
    """Scale of each measured displacement with which the squared residuals add up to the mean, over the translations
    and rotations of every set, of the share of their mean square that is left: it knows no units."""
    scale, groups = [], 0
    for group in sets:
        values, std = measured_displacements(group.tests)
        turns = np.concatenate([np.broadcast_to(np.arange(6) > 2, t.measured.shape)[t.measured] for t in group.tests])
        size = np.empty(values.size)
        for kind in (turns, ~turns):
            if kind.any():
                size[kind] = np.sqrt(kind.sum()) * (float(np.sqrt(np.mean(values[kind] ** 2))) or float(std.min()))
                groups += 1
        scale.append(size)
    return np.sqrt(groups) * np.concatenate(scale)


def factor_remarks(sets: Sequence[DeflectionSet], misfit: Misfit) -> list[str]:
    """A sentence on the factors of a column that mend a fit by far, where it leaves gross errors.

    Args:
        sets: what is fitted.
        misfit: what a fit leaves of the displacements of such sets.
    """
    left = misfit(sets)
    if left <= GROSS:
        return []
    tried = [(told, misfit(changed)) for told, changed in _candidates(sets)]
    least = min(share for _, share in tried)
    if least > MENDS * left:
        return []
    best = " or ".join(told for told, share in tried if share <= least + ALIKE)
    return [
        f"{100.0 * left:.3g} % of the displacements are left, and {100.0 * least:.2g} % with {best}: is a column in"
        " another unit, or its sign reversed?"
    ]


def bound_remarks(found: Unknowns, values: Float[np.ndarray, "d"], known: Bool[np.ndarray, "d"]) -> list[str]:
    """A sentence on the factors of all displacements that bring all values into their bounds, where none is inside."""

    def inside(x: np.ndarray) -> np.ndarray:
        return ((x >= np.array(found.free.lower_value)) & (x <= np.array(found.free.upper_value)))[known]

    if not known.any() or inside(values).any():
        return []
    factors = (FACTORS | OF_ANGLES).items()
    best = [told for told, f in factors if inside(found.values(f * found.compliance(values))).all()]
    if not best:
        return []
    return [
        f"all values are outside of their bounds, and inside with all displacements times {' or '.join(best)}: is a"
        " column in another unit?"
    ]


def _candidates(sets: Sequence[DeflectionSet]) -> Iterator[tuple[str, list[DeflectionSet]]]:
    """The sets with one factor each that can be told from a factor of all, in words."""
    yield from _scaled("all displacements", sets, FACTORS, _motion(np.ones(6)))
    tests = [test for group in sets for test in group.tests]
    translations, rotations = np.repeat([1.0, 0.0], 3), np.repeat([0.0, 1.0], 3)
    measured = np.any([test.measured.any(axis=0) for test in tests], axis=0)
    if measured[:3].any() and measured[3:].any():
        yield from _scaled("translations", sets, FACTORS, _motion(translations))
        yield from _scaled("rotations", sets, FACTORS | OF_ANGLES, _motion(rotations))
    loaded = np.any([test.wrench != 0.0 for test in tests], axis=0)
    if loaded[:3].any() and loaded[3:].any():
        yield from _scaled("forces", sets, FACTORS, _load(translations))
        yield from _scaled("moments", sets, FACTORS, _load(rotations))
    for group in sets if len(sets) > 1 else ():
        yield from _scaled(f"the displacements of '{group.name}'", sets, FACTORS, _motion(np.ones(6)), group)


Change = Callable[[DeflectionTest, float], DeflectionTest]


def _motion(which: np.ndarray) -> Change:
    return lambda test, f: dataclasses.replace(test, displacement=test.displacement * np.where(which, f, 1.0))


def _load(which: np.ndarray) -> Change:
    return lambda test, f: dataclasses.replace(test, wrench=test.wrench * np.where(which, f, 1.0))


def _scaled(
    what: str,
    sets: Sequence[DeflectionSet],
    factors: dict[str, float],
    change: Change,
    only: DeflectionSet | None = None,
) -> Iterator[tuple[str, list[DeflectionSet]]]:
    """The sets, or one of them, changed by each factor."""
    for told, factor in factors.items():
        yield (
            f"{what} times {told}",
            [
                group
                if only is not None and group is not only
                else dataclasses.replace(group, tests=tuple(change(test, factor) for test in group.tests))
                for group in sets
            ],
        )
