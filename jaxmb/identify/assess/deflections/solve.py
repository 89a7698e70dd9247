"""Stiffness from deflections: linear least squares in compliances."""

import dataclasses
from collections.abc import Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmb.identify.estimation.identifiability import NOTABLE, Knowledge, knowledge
from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.load_cases import (
    DeflectionTest,
    Term,
    check_tests,
    joint_terms,
    measured_displacements,
    observation_matrix,
    spring_term,
)
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.study.reading.deflections import DeflectionSet
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import compliance_matrix, elastic_jacobian

NO_EFFECT = 1e-12
"""A column of the observation matrix below this share of the largest one is rounding: the parameter has no effect."""
SINGULAR = 1e-3
"""Least singular value of the joints' Jacobian over the largest, below which a posture is called singular."""
PARALLEL = 1e-6
"""Sine of the angle between two wrenches below which they are parallel."""


@dataclasses.dataclass(frozen=True, eq=False)
class Unknowns:
    """The free parameters of a study as compliances, in which deflections are linear."""

    free: FreeParameters
    terms: tuple[Term, ...]
    stiffness: Bool[np.ndarray, "d"]
    """Which are stiffnesses: the compliance is 1 over the value."""
    bounded: Bool[np.ndarray, "d"]
    """Which compliances must not be below `least`."""
    least: Float[np.ndarray, "d"]
    """1 over the upper bound of a stiffness, the lower bound of a diagonal compliance, but not below 0."""

    def compliance(self, values: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """Compliances of physical values."""
        return np.where(self.stiffness, 1.0 / np.where(self.stiffness, values, 1.0), values)

    def values(self, compliance: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """Physical values of compliances: the same function, which is its own inverse."""
        return self.compliance(compliance)

    def slope(self, compliance: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """d compliance / d u, with u the entries that `FreeParameters` moves."""
        logarithmic, width = np.array(self.free.logarithmic), np.array(self.free.width)
        of_stiffness = -compliance * np.where(logarithmic, 1.0, compliance * width)
        return np.where(self.stiffness, of_stiffness, np.where(logarithmic, compliance, width))


@dataclasses.dataclass(frozen=True, eq=False)
class Equations:
    """displacement = matrix @ compliances, row by row, for what was measured."""

    matrix: Float[np.ndarray, "m d"]
    displacement: Float[np.ndarray, "m"]
    """Measured, less what compliances that are not free explain."""
    std: Float[np.ndarray, "m"]
    weight: Float[np.ndarray, "m"]
    """By which the squared error of a row counts, over its variance."""
    test: np.ndarray
    """Index of each row's test."""

    @property
    def unloaded(self) -> Bool[np.ndarray, "d"]:
        """Which parameters no test stresses."""
        effect = np.linalg.norm(self.matrix / self.std[:, None], axis=0)
        return effect <= NO_EFFECT * effect.max(initial=0.0)

    def of_tests(self, chosen: np.ndarray) -> "Equations":
        """The rows of some tests, by their indices."""
        rows = np.isin(self.test, chosen)
        return Equations(*(part[rows] for part in (self.matrix, self.displacement, self.std, self.weight, self.test)))


@dataclasses.dataclass(frozen=True, eq=False)
class DeflectionFit:
    """Compliances that explain deflections best, and what is known of them."""

    compliance: Float[np.ndarray, "d"]
    known: Knowledge
    """Of the entries u of the free parameters."""
    unloaded: Bool[np.ndarray, "d"]
    """Which parameters no test stresses."""
    on_bound: Bool[np.ndarray, "d"]
    residual: Float[np.ndarray, "m"]
    """Measured less fitted."""
    robust_weight: Float[np.ndarray, "m"]
    cost: float
    """Sum of weight (residual / std)^2, the robust weights in it."""


def unknowns(model: Model, free: FreeParameters) -> Unknowns:
    """The free parameters as compliances.

    Raises:
        ValueError: a parameter does not act on deflections.
        NotImplementedError: the machine has springs between frames, in which deflections are not linear.
    """
    if model.springs:
        raise NotImplementedError(
            f"spring '{model.springs[0]}' between frames: stiffness from deflections of such machines is not possible"
        )
    terms: list[Term] = []
    stiffness, diagonal = [], []
    for names in free.tied:
        entries: list[tuple[int, int]] = []
        for name in names:
            family, item, *axes = name.split(".")
            if family == "stiffness":
                entries += joint_terms(model, [item])[0]
            elif family == "compliance":
                entries += spring_term(model, item, axes[0], axes[1])
            else:
                raise ValueError(
                    f"free parameter '{name}' does not act on deflections, expected stiffness.* of coordinates or"
                    " compliance.* of virtual springs"
                )
        terms.append(tuple(entries))
        stiffness.append(names[0].startswith("stiffness."))
        diagonal.append(all(a == b for a, b in entries))
    is_stiffness, bounded = np.array(stiffness), np.array(diagonal)
    lower, upper = np.array(free.lower_value), np.array(free.upper_value)
    least = np.where(is_stiffness, 1.0 / np.where(is_stiffness, upper, 1.0), np.where(bounded, np.maximum(lower, 0), 0))
    return Unknowns(free, tuple(terms), is_stiffness, bounded, least)


def equations(model: Model, found: Unknowns, sets: Sequence[DeflectionSet]) -> Equations:
    """Equations of all tests of some sets, the tests numbered one after the other."""
    tests = [test for group in sets for test in group.tests]
    displacement, std = measured_displacements(tests)
    held, values = _held(model, found)
    whole = observation_matrix(model, tests, (*found.terms, *held))
    free = len(found.terms)
    return Equations(
        matrix=whole[:, :free],
        displacement=displacement - whole[:, free:] @ values,
        std=std,
        weight=np.concatenate([row_weights(group, test) for group in sets for test in group.tests]),
        test=np.repeat(np.arange(len(tests)), [int(test.measured.sum()) for test in tests]),
    )


def row_weights(group: DeflectionSet, test: DeflectionTest) -> np.ndarray:
    """By which the squared error of each measured displacement of a test counts."""
    each = np.repeat([1.0, group.rotation_weight], 3)
    return np.broadcast_to(each, test.displacement.shape)[test.measured]


def _held(model: Model, found: Unknowns) -> tuple[list[Term], np.ndarray]:
    """Entries of the compliance that are not free, with their values."""
    whole = np.array(compliance_matrix(model, model.reference))
    for term in found.terms:
        for entry in term:
            whole[entry] = 0.0
    at = np.argwhere(whole != 0.0)
    return [((int(a), int(b)),) for a, b in at], whole[tuple(at.T)]


def fit_deflections(
    found: Unknowns, rows: Equations, initial: Float[np.ndarray, "d"], robust: bool = False
) -> DeflectionFit:
    """Compliances that minimise the weighted squared errors of the displacements, none below its least.

    Args:
        found: what is to be found.
        rows: of the tests.
        initial: physical values of parameters that no test stresses.
        robust: less weight for outliers.

    Source: Dumas et al. 2011, eq. 16-18; Klimchik et al. 2014, eq. 7-9.
    """
    unloaded = rows.unloaded
    matrix = np.where(unloaded, 0.0, rows.matrix)
    least = np.where(unloaded, 0.0, found.least)
    fitted = linear_fit(
        matrix, rows.displacement - matrix @ least, rows.std / np.sqrt(rows.weight), found.bounded, robust,
        found.free.names,
    )  # fmt: skip
    compliance = np.where(unloaded, found.compliance(initial), least + fitted.values)
    weight = rows.weight * fitted.weights
    residual = rows.displacement - matrix @ compliance
    jacobian = matrix * found.slope(compliance)
    weighted = jacobian * (np.sqrt(weight) / rows.std)[:, None]
    return DeflectionFit(
        compliance=compliance,
        known=knowledge(weighted, weight),
        unloaded=unloaded,
        on_bound=np.asarray(fitted.on_bound) & ~unloaded,
        residual=residual,
        robust_weight=np.asarray(fitted.weights),
        cost=float(np.sum(weight * (residual / rows.std) ** 2)),
    )


def check_plan(model: Model, found: Unknowns, tests: Sequence[DeflectionTest], rows: Equations) -> None:
    """Raise ValueError where tests cannot tell what is to be found; the tests are named.

    Fewer equations than parameters; a posture in which the joints' Jacobian is singular; loads that are all parallel
    and leave a parameter undetermined.
    """
    check_tests(model, tests)
    check_postures(model, tests)
    check_equations(found, tests, rows)


def check_equations(found: Unknowns, tests: Sequence[DeflectionTest], rows: Equations) -> None:
    """Raise ValueError where tests are too few, or their loads all parallel and leave a parameter undetermined."""
    count, wanted = rows.displacement.size, len(found.terms)
    if count < wanted:
        raise ValueError(
            f"{named(tests)}: {count} measured displacements give fewer equations than the {wanted} free parameters"
            " need"
        )
    if parallel_loads(tests):
        known = knowledge(np.where(rows.unloaded, 0.0, rows.matrix) / rows.std[:, None], np.ones(count))
        lost = [name for name, std in zip(found.free.names, known.std, strict=True) if not np.isfinite(std)]
        if lost:
            raise ValueError(
                f"{named(tests)}: all loads are parallel and do not determine {', '.join(lost)}, expected loads in"
                " several directions or these parameters not free"
            )


def named(tests: Sequence[DeflectionTest]) -> str:
    """Tests in a sentence: "deflection tests 'a' to 'c'"."""
    if len(tests) == 1:
        return f"deflection test '{tests[0].name}'"
    return f"deflection tests '{tests[0].name}' to '{tests[-1].name}'"


def check_postures(model: Model, tests: Sequence[DeflectionTest]) -> None:
    """Raise ValueError where the posture of a test is singular: there two joints act alike; the test is named."""
    for test, (ratio, alike) in zip(tests, _conditioning(model, tests), strict=True):
        if ratio < SINGULAR:
            raise ValueError(
                f"deflection test '{test.name}': its posture is singular, {' and '.join(alike)} act nearly alike there"
                f" (least over largest singular value of the Jacobian {ratio:.2g}, expected at least {SINGULAR:g}):"
                " expected a posture some degrees away, or the study without this test"
            )


def parallel_loads(tests: Sequence[DeflectionTest]) -> bool:
    """Whether several tests have wrenches, force and moment together, that are all multiples of one."""
    wrenches = np.stack([test.wrench / np.linalg.norm(test.wrench) for test in tests])
    across = wrenches - np.outer(wrenches @ wrenches[0], wrenches[0])
    return len(tests) > 1 and bool(np.linalg.norm(across, axis=1).max() < PARALLEL)


def _conditioning(model: Model, tests: Sequence[DeflectionTest]) -> list[tuple[float, list[str]]]:
    """Least over largest singular value of the joints' Jacobian at each load, lengths over the longest lever, and the
    joints that the least one is of [t]."""
    told: list[tuple[float, list[str]]] = [(1.0, [])] * len(tests)
    for frame in {test.frame for test in tests}:
        of_frame = [i for i, test in enumerate(tests) if test.frame == frame]
        columns = np.array(_joint_columns(model, jnp.asarray(np.stack([tests[i].q for i in of_frame])), frame))
        carrying = np.any(columns != 0.0, axis=(0, 1))  # joints that carry the frame
        columns, names = columns[:, :, carrying], np.array(model.coordinates)[carrying]
        if columns.size:
            length = np.linalg.norm(columns[:, :3], axis=1).max() or 1.0
            columns[:, :3] /= length
            _, size, right = np.linalg.svd(columns, full_matrices=False)
            for i, sizes, parts in zip(of_frame, size, np.abs(right[:, -1]), strict=True):
                told[i] = float(sizes[-1] / sizes[0]), names[parts >= NOTABLE * parts.max()].tolist()
    return told


@eqx.filter_jit
def _joint_columns(model: Model, q: Float[Array, "t n"], frame: str) -> Float[Array, "t 6 n"]:
    return jax.vmap(lambda at: elastic_jacobian(model, at, frame)[:, : len(model.coordinates)])(q)
