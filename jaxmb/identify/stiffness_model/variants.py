"""Stiffness models of increasing detail fitted to the same deflection tests, and their residuals.

J1: joints only. J2: joints only, one of them with a separate compliance at each of its angles due to a gravity
compensator. C1: complete model of joints and links, reduced to its identifiable parameters. C2: the same with the
compensator.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.linear import LinearFit, linear_fit
from jaxmb.identify.estimation.reduction import Reduction, Step, reduction
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase,
    Term,
    joint_terms,
    measured_displacements,
    observation_matrix,
)
from jaxmb.identify.stiffness_model.complete_model import CompleteModel, complete_model, physical_preference
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model

SAME_ANGLE = 1e-3
"""Largest difference between equal angles of two tests, rad: the scatter of readings at one angle."""


@dataclasses.dataclass(frozen=True, eq=False)
class Compensated:
    """A joint with angle-dependent compliance, and its tested angles."""

    joint: str
    angles: tuple[float, ...]
    """rad, ascending."""

    @property
    def angles_text(self) -> str:
        """The angles in deg, for messages."""
        return ", ".join(f"{np.degrees(a):.6g}" for a in self.angles)


@dataclasses.dataclass(frozen=True, eq=False)
class StiffnessModel:
    """Compliances identifiable from deflection tests, linear in the displacements."""

    name: str
    terms: tuple[Term, ...]
    """Terms of the parameters before the algebraic reduction."""
    parameters: tuple[str, ...]
    """Names of these parameters, a compensated one once."""
    compensated: tuple[Compensated, str] | None
    """The compensated joint, and the parameter with one value per angle."""
    reduction: Reduction

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the reduced parameters."""
        return self.reduction.names

    def observation(self, model: Model, tests: Sequence[LoadCase]) -> Float[np.ndarray, "m d"]:
        """Observation matrix [m, d] of the reduced parameters.

        Raises:
            ValueError: a test is at an angle of the compensated joint without a parameter.
        """
        matrix, columns = _matrix(self.terms, model, tests, self.parameters, self.compensated)
        return matrix[:, [columns.index(name) for name in self.names]]

    def angles_not_tested(self, model: Model, tests: Sequence[LoadCase]) -> list[tuple[str, float]]:
        """Names and angles [rad] of tests at an angle of the compensated joint without a parameter."""
        return [] if self.compensated is None else _not_tested(self.compensated[0], model, tests)


@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
    """A fitted stiffness model."""

    model: StiffnessModel
    fit: LinearFit


def compensated_joint(model: Model, joint: str, tests: Sequence[LoadCase]) -> Compensated:
    """A joint with its distinct angles in the tests.

    Raises:
        ValueError: the machine has no such joint, or it is prismatic.
    """
    check_known("compensated joint", [joint], model.coordinates)
    index = model.coordinates.index(joint)
    if not model.revolute[index]:
        raise ValueError(f"compensated joint '{joint}' is prismatic, expected a revolute one")
    angles: list[float] = []
    for angle in sorted(float(test.q[index]) for test in tests):
        if not angles or angle - angles[-1] > SAME_ANGLE:
            angles.append(angle)
    return Compensated(joint, tuple(angles))


def stiffness_models(
    model: Model, tests: Sequence[LoadCase], compensated: Compensated | None = None
) -> tuple[CompleteModel, dict[str, StiffnessModel]]:
    """Complete model and all variants by name, J2 and C2 only with a compensator, each reduced to full rank by
    `reduction`.

    Args:
        model: the machine.
        tests: deflection tests.
        compensated: a joint with a gravity compensator.

    Raises:
        ValueError: the machine is not a serial chain of elastic links.
    """
    frames = dict.fromkeys(name for test in tests for name in (test.frame, *test.points))
    complete = complete_model(model, tuple(frames))
    joints = tuple(joint_terms(model, model.coordinates))
    found = {}
    for name, terms, names, steps, prefer in (
        ("J", joints, model.coordinates, (), None),
        ("C", complete.terms, complete.names, complete.steps, physical_preference(complete)),
    ):
        found[f"{name}1"] = _reduced(f"{name}1", model, tests, terms, names, None, steps, prefer)
        if compensated is not None:
            term = complete.aggregated.get(compensated.joint, compensated.joint) if name == "C" else compensated.joint
            # a separate model; its physical steps are those of the plain one
            found[f"{name}2"] = _reduced(f"{name}2", model, tests, terms, names, (compensated, term), (), prefer)
    return complete, found


def fitted_variant(
    stiffness: StiffnessModel,
    model: Model,
    tests: Sequence[LoadCase],
    robust: bool = False,
    weight: Float[np.ndarray, "m"] | None = None,
    independent: Callable[[Any], Any] = lambda rows: rows,
) -> Variant:
    """A stiffness model fitted to tests, with non-negative compliances for J1 and J2.

    Args:
        stiffness: the model.
        model: the machine.
        tests: deflection tests.
        robust: see `linear_fit`.
        weight: of the squared error of each displacement over its variance [m]; default: 1.
        independent: combinations of rows [m] or [m, d] whose errors are independent; default: the rows.

    Raises:
        ValueError: there are not more equations than parameters, so that the model cannot be tested.
    """
    measured, std = measured_displacements(tests)
    if measured.size <= len(stiffness.names):
        raise ValueError(
            f"deflection tests '{tests[0].name}' to '{tests[-1].name}': {measured.size} displacements for"
            f" {len(stiffness.names)} parameters of {stiffness.name}, expected more tests to leave a residual"
        )
    scaled = std if weight is None else std / np.sqrt(weight)
    matrix = independent(stiffness.observation(model, tests))
    return Variant(stiffness, stiffness_fit(stiffness, matrix, independent(measured), scaled, robust))


def stiffness_fit(
    stiffness: StiffnessModel,
    matrix: Float[np.ndarray, "m d"],
    measured: Float[np.ndarray, "m"],
    std: Float[np.ndarray, "m"],
    robust: bool = False,
) -> LinearFit:
    """A stiffness model's parameters from its observation matrix and displacements; see `fitted_variant`."""
    lower = np.zeros(len(stiffness.names)) if stiffness.name.startswith("J") else None
    return linear_fit(matrix, measured, std, lower, robust=robust, names=stiffness.names)


def predict(variant: Variant, model: Model, tests: Sequence[LoadCase]) -> Float[np.ndarray, "m"]:
    """Predicted displacements [m] for the measured components of the tests, m and rad.

    Raises:
        ValueError: a test is at an angle of the compensated joint without an identified compliance.
    """
    return variant.model.observation(model, tests) @ variant.fit.values


def compensated_percent(measured: Sequence[LoadCase], predicted: Float[np.ndarray, "m"]) -> float:
    """Share of the deflections that a model predicts, 100 (1 - RMS of the residual / RMS of the deflection), by the
    norms of the translations of all points."""
    residual, deflection = residual_norms(measured, predicted)
    return 100.0 * (1.0 - float(np.sqrt(np.mean(residual**2) / np.mean(deflection**2))))


def residual_norms(measured: Sequence[LoadCase], predicted: Float[np.ndarray, "m"]) -> tuple[np.ndarray, np.ndarray]:
    """Norms [point] of the residual of each point's translation, and of the measured translation, m."""
    residual, deflection = translations(measured, predicted)
    return np.linalg.norm(residual, axis=1), np.linalg.norm(deflection, axis=1)


def translations(measured: Sequence[LoadCase], predicted: Float[np.ndarray, "m"]) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of the measured translations [point, 3], and these, m; 0 for components that were not measured.

    Raises:
        ValueError: no translation was measured.
    """
    displacement = np.concatenate([test.displacement for test in measured])
    residual, seen = np.zeros(displacement.shape), np.isfinite(displacement)
    residual[seen] = displacement[seen] - predicted
    known = seen[:, :3].any(axis=1)
    if not known.any():
        raise ValueError(f"deflection tests '{measured[0].name}' to '{measured[-1].name}': no translation was measured")
    # components that were not measured do not contribute to a norm
    return residual[known, :3], np.nan_to_num(displacement[known, :3])


def _reduced(
    name: str,
    model: Model,
    tests: Sequence[LoadCase],
    terms: Sequence[Term],
    names: Sequence[str],
    compensated: tuple[Compensated, str] | None,
    steps: Sequence[Step],
    preference: dict[str, float] | None,
) -> StiffnessModel:
    matrix, columns = _matrix(terms, model, tests, names, compensated)
    _, std = measured_displacements(tests)
    if preference is not None and compensated is not None:
        level = preference.get(compensated[1], 0.0)
        preference = {c: preference.get(c, level) for c in columns}
    chain = reduction(matrix / std[:, None], columns, preference, before=steps)
    return StiffnessModel(name, tuple(terms), tuple(names), compensated, chain)


def _distances(joint: Compensated, model: Model, tests: Sequence[LoadCase]) -> tuple[np.ndarray, np.ndarray]:
    """Angle of the joint in each test [t], and its distance from each of the joint's angles [t, a], rad."""
    at = np.array([float(test.q[model.coordinates.index(joint.joint)]) for test in tests])
    return at, np.abs(at[:, None] - np.array(joint.angles))


def _not_tested(joint: Compensated, model: Model, tests: Sequence[LoadCase]) -> list[tuple[str, float]]:
    """Names and angles [rad] of tests at none of the joint's angles."""
    at, distance = _distances(joint, model, tests)
    far = np.flatnonzero(distance.min(axis=1) > SAME_ANGLE).tolist()
    return [(tests[i].name, float(at[i])) for i in far]


def _matrix(
    terms: Sequence[Term], model: Model, tests: Sequence[LoadCase], names: Sequence[str],
    compensated: tuple[Compensated, str] | None,
) -> tuple[np.ndarray, tuple[str, ...]]:  # fmt: skip
    """Observation matrix with one column per angle of the compensated joint, and names of the columns."""
    matrix = observation_matrix(model, tests, terms)
    if compensated is None:
        return matrix, tuple(names)
    joint, angled = compensated
    for test, angle in _not_tested(joint, model, tests):
        raise ValueError(
            f"deflection test '{test}': {joint.joint} is {np.degrees(angle):.6g} deg, where its compliance"
            f" was not identified, expected one of {joint.angles_text} deg"
        )
    nearest = _distances(joint, model, tests)[1].argmin(axis=1)
    rows = np.repeat(nearest, [int(test.measured.sum()) for test in tests])
    column = list(names).index(angled)
    split = matrix[:, column, None] * (rows[:, None] == np.arange(len(joint.angles)))
    labels = tuple(f"{angled} at {np.degrees(a):.6g} deg" for a in joint.angles)
    split_names = (*names[:column], *labels, *names[column + 1 :])
    return np.hstack([matrix[:, :column], split, matrix[:, column + 1 :]]), split_names
