"""Common factors of a column that would correct a poor fit: wrong unit, reversed sign.

Displacements are linear in compliances and in loads, so a factor common to all of them is absorbed by the compliances
and is not identifiable. It is identifiable where another quantity fixes the scale: translations with rotations, forces
with moments, one set of tests with the others, or non-negative, fixed or bounded compliances.
"""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from jaxtyping import Bool, Float

from jaxmb.identify.assess.estimate import Linear
from jaxmb.identify.experiments.deflections.deflection_test import deflection_test
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, measured_displacements
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.fit.linear import Unknowns, linear_equations, linear_step
from jaxmb.identify.stiffness_model.variants import StiffnessModel, least_squares
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model

GROSS = 0.3
"""Residual share of the displacements above which a factor is searched. A wrong factor leaves all of a kind or set,
half of the mean square of two and a fifth of that of five; models of joints without links leave 0.1 to 0.2."""
LARGEST_CORRECTED = 1.0 / 3.0
"""Largest residual share with a factor, over that without, at which the factor is reported."""
EQUIVALENT = 0.01
"""Difference of shares up to which factors are equivalent."""
DEGREE = 180.0 / np.pi
FACTORS = {"-1": -1.0, "1000": 1e3, "1/1000": 1e-3}
OF_ANGLES = {"57.3": DEGREE, "1/57.3": 1.0 / DEGREE}

Cases = Sequence[Sequence[LoadCase]]
"""Load cases of each test."""
Misfit = Callable[[Cases], float]


def unexplained(study: Study, linear: Linear) -> Misfit:
    """Function that returns the residual share of displacements of load cases in a fit of the free parameters, scaled
    by `share_scale`."""

    def share(cases: Cases) -> float:
        tests = [deflection_test(str(k), study.model, some) for k, some in enumerate(cases)]
        rows = linear_equations(study.model, study.free, tests)
        rows = rows._replace(std=share_scale(cases), weight=np.ones(rows.measured.size))
        return float(np.sqrt(linear_step(linear.unknowns, rows, linear.start).cost))

    return share


def unexplained_by(stiffness: StiffnessModel, model: Model) -> Misfit:
    """Function that returns the residual share of displacements of load cases in a fit of a stiffness model, scaled by
    `share_scale`."""

    def share(cases: Cases) -> float:
        every = [case for some in cases for case in some]
        measured, scale = measured_displacements(every)[0], share_scale(cases)
        fit = least_squares(stiffness, stiffness.observation(model, every), measured, scale)
        return float(np.linalg.norm(fit.residual / scale))

    return share


def share_scale(cases: Cases) -> Float[np.ndarray, "m"]:
    """Scale of each measured displacement with which the squared residuals sum to the mean residual share of the
    translations and rotations of all tests; independent of units."""
    scale, groups = [], 0
    for some in cases:
        values, std = measured_displacements(some)
        turns = np.concatenate([np.broadcast_to(np.arange(6) > 2, c.measured.shape)[c.measured] for c in some])
        size = np.empty(values.size)
        for kind in (turns, ~turns):
            if kind.any():
                size[kind] = np.sqrt(kind.sum()) * (float(np.sqrt(np.mean(values[kind] ** 2))) or float(std.min()))
                groups += 1
        scale.append(size)
    return np.sqrt(groups) * np.concatenate(scale)


def factor_remarks(entries: Sequence[Entry], misfit: Misfit) -> list[str]:
    """A sentence on the factors of a column that remove gross errors of a fit; empty where there are none.

    Args:
        entries: the fitted deflection tests.
        misfit: returns the residual share of displacements of load cases.
    """
    before = misfit([entry.source.cases for entry in entries])
    if before <= GROSS:
        return []
    tried = [(change, misfit(changed)) for change, changed in _candidates(entries)]
    least = min(share for _, share in tried)
    if least > LARGEST_CORRECTED * before:
        return []
    best = " or ".join(change for change, share in tried if share <= least + EQUIVALENT)
    return [
        f"the residual is {100.0 * before:.3g} % of the displacements, and {100.0 * least:.2g} % with {best}: is a"
        " column in another unit, or its sign reversed?"
    ]


def values_by_upper_bounds(linear: Linear) -> Float[np.ndarray, "d"]:
    """Values of a linear study without lower bounds of stiffnesses and upper bounds of compliances."""
    found, rows, _, start = linear
    found = dataclasses.replace(found, upper=np.full(found.upper.size, np.inf))
    return found.decode(linear_step(found, rows, start).x)


def bound_remarks(found: Unknowns, values: Float[np.ndarray, "d"], known: Bool[np.ndarray, "d"]) -> list[str]:
    """A sentence on factors of all displacements that bring all values inside their bounds, where none is inside.

    Args:
        found: unknowns of the study.
        values: identified without bounds (`values_by_upper_bounds`).
        known: mask of the values determined by the tests.
    """

    def inside(x: np.ndarray) -> np.ndarray:
        return ((x >= np.array(found.free.lower_value)) & (x <= np.array(found.free.upper_value)))[known]

    if not known.any() or inside(values).any():
        return []
    factors = (FACTORS | OF_ANGLES).items()
    best = [change for change, f in factors if inside(found.decode(f * found.encode(values))).all()]
    if not best:
        return []
    return [
        "without bounds all values are outside of them, and inside with all displacements times"
        f" {' or '.join(best)}: is a column in another unit?"
    ]


def _candidates(entries: Sequence[Entry]) -> Iterator[tuple[str, Cases]]:
    """Load cases scaled by each factor that is identifiable, with its text."""
    cases = [entry.source.cases for entry in entries]
    every = [case for some in cases for case in some]
    whole, translations, rotations = np.ones(6), np.repeat([1.0, 0.0], 3), np.repeat([0.0, 1.0], 3)
    columns: list[tuple[str, dict[str, float], str, np.ndarray, int | None]] = []
    columns.append(("all displacements", FACTORS, "displacement", whole, None))
    measured = np.any([case.measured.any(axis=0) for case in every], axis=0)
    if measured[:3].any() and measured[3:].any():
        columns.append(("translations", FACTORS, "displacement", translations, None))
        columns.append(("rotations", FACTORS | OF_ANGLES, "displacement", rotations, None))
    loaded = np.any([case.wrench != 0.0 for case in every], axis=0)
    if loaded[:3].any() and loaded[3:].any():
        columns.append(("forces", FACTORS, "wrench", translations, None))
        columns.append(("moments", FACTORS, "wrench", rotations, None))
    for k, entry in enumerate(entries if len(entries) > 1 else ()):
        columns.append((f"the displacements of '{entry.name}'", FACTORS, "displacement", whole, k))
    for what, factors, field, which, only in columns:
        for text, factor in factors.items():
            scale = np.where(which, factor, 1.0)
            yield (
                f"{what} times {text}",
                [
                    some if only not in (None, k) else [_scaled(case, field, scale) for case in some]
                    for k, some in enumerate(cases)
                ],
            )


def _scaled(case: LoadCase, field: str, scale: Float[np.ndarray, "6"]) -> LoadCase:
    return dataclasses.replace(case, **{field: getattr(case, field) * scale})
