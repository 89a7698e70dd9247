"""Stiffness models of increasing detail fitted to the same deflection tests, and what each leaves uncompensated.

J1: joints alone. J2: joints alone, one of them with another compliance at each of its angles, as a gravity compensator
makes it. C1: complete model of joints and links, reduced to what the tests can tell. C2: with the compensator too.
"""

import dataclasses
from collections.abc import Mapping, Sequence

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
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model

VARIANTS = ("J1", "J2", "C1", "C2")
SAME_ANGLE = 1e-6
"""rad: two tests are made at the same angle where they agree to this."""


@dataclasses.dataclass(frozen=True, eq=False)
class Compensated:
    """A joint whose compliance depends on its angle, and the angles at which it was tested."""

    joint: str
    angles: tuple[float, ...]
    """rad, ascending."""

    @property
    def angles_text(self) -> str:
        """The angles in deg, for messages."""
        return ", ".join(f"{np.degrees(a):.6g}" for a in self.angles)


@dataclasses.dataclass(frozen=True, eq=False)
class StiffnessModel:
    """Compliances that some tests can tell apart, in which displacements are linear."""

    name: str
    terms: tuple[Term, ...]
    """Of the parameters before the algebraic reduction."""
    parameters: tuple[str, ...]
    """Their names, a compensated one once."""
    compensated: tuple[Compensated, str] | None
    """The compensated joint, and the parameter that stands once for each of its angles."""
    reduction: Reduction

    @property
    def names(self) -> tuple[str, ...]:
        """Of the parameters that are left."""
        return self.reduction.names

    def observation(self, model: Model, tests: Sequence[LoadCase]) -> Float[np.ndarray, "m d"]:
        """Observation matrix of the parameters that are left.

        Raises:
            ValueError: a test is at an angle of the compensated joint at which its compliance is not a parameter.
        """
        matrix, columns = _matrix(self.terms, model, tests, self.parameters, self.compensated)
        return matrix[:, [columns.index(name) for name in self.names]]

    def angles_not_tested(self, model: Model, tests: Sequence[LoadCase]) -> list[tuple[str, float]]:
        """Tests at an angle [rad] of the compensated joint at which its compliance is not a parameter."""
        return [] if self.compensated is None else _not_tested(self.compensated[0], model, tests)


@dataclasses.dataclass(frozen=True, eq=False)
class Variant:
    """One stiffness model, fitted."""

    model: StiffnessModel
    fit: LinearFit


def compensated_joint(model: Model, joint: str, tests: Sequence[LoadCase]) -> Compensated:
    """A joint, and its different angles in some tests.

    Raises:
        ValueError: the machine has no such joint.
    """
    if joint not in model.coordinates:
        raise ValueError(known_name("compensated joint", joint, model.coordinates))
    angles: list[float] = []
    for angle in sorted(float(test.q[model.coordinates.index(joint)]) for test in tests):
        if not angles or angle - angles[-1] > SAME_ANGLE:
            angles.append(angle)
    return Compensated(joint, tuple(angles))


def stiffness_models(
    model: Model,
    tests: Sequence[LoadCase],
    compensated: Compensated | None = None,
    preference: Mapping[str, float] | None = None,
) -> tuple[CompleteModel, dict[str, StiffnessModel]]:
    """All variants, those with a compensator where there is one, each reduced to full rank: what no test loads is
    eliminated, and of parameters that act only together as many are kept as they are independent, by preference.

    Args:
        model: the machine.
        tests: what is measured of it.
        compensated: a joint with a gravity compensator.
        preference: see `reduction`; `physical_preference` where not given.

    Raises:
        ValueError: the machine is no chain of elastic links.
    """
    frames = dict.fromkeys(name for test in tests for name in (test.frame, *test.points))
    complete = complete_model(model, tuple(frames))
    wanted = dict(physical_preference(complete) if preference is None else preference)
    joints = tuple(joint_terms(model, model.coordinates))
    found = {}
    for name, terms, names, steps, prefer in (
        ("J", joints, model.coordinates, (), None),
        ("C", complete.terms, complete.names, complete.steps, wanted),
    ):
        found[f"{name}1"] = _reduced(f"{name}1", model, tests, terms, names, None, steps, prefer)
        if compensated is not None:
            term = complete.aggregated.get(compensated.joint, compensated.joint) if name == "C" else compensated.joint
            # another model from the start, whose physical steps are those of the plain one
            found[f"{name}2"] = _reduced(f"{name}2", model, tests, terms, names, (compensated, term), (), prefer)
    return complete, {name: found[name] for name in VARIANTS if name in found}


def fitted_variant(
    stiffness: StiffnessModel,
    model: Model,
    tests: Sequence[LoadCase],
    robust: bool = False,
    weight: Float[np.ndarray, "m"] | None = None,
) -> Variant:
    """A stiffness model fitted to tests; compliances of joints alone are kept from being negative.

    Args:
        stiffness: the model.
        model: the machine.
        tests: what was measured.
        robust: see `linear_fit`.
        weight: by which the squared error of each displacement counts, over its variance; 1 where not given.

    Raises:
        ValueError: there are no more equations than parameters, so that nothing tells whether the model holds.
    """
    measured, std = measured_displacements(tests)
    if measured.size <= len(stiffness.names):
        raise ValueError(
            f"deflection tests '{tests[0].name}' to '{tests[-1].name}': {measured.size} displacements are explained by"
            f" {len(stiffness.names)} parameters of {stiffness.name} whatever they are, expected more tests"
        )
    scaled = std if weight is None else std / np.sqrt(weight)
    return Variant(stiffness, least_squares(stiffness, stiffness.observation(model, tests), measured, scaled, robust))


def least_squares(
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
    """Displacements that a variant gives for what was measured in some tests [rows].

    Raises:
        ValueError: a test is at an angle of the compensated joint at which its compliance was not identified.
    """
    return variant.model.observation(model, tests) @ variant.fit.values


def compensated_percent(measured: Sequence[LoadCase], predicted: Float[np.ndarray, "m"]) -> float:
    """100 (1 - RMS of what is left / RMS of the deflection), norms of the translations of all points."""
    left, whole = residual_norms(measured, predicted)
    return 100.0 * (1.0 - float(np.sqrt(np.mean(left**2) / np.mean(whole**2))))


def residual_norms(measured: Sequence[LoadCase], predicted: Float[np.ndarray, "m"]) -> tuple[np.ndarray, np.ndarray]:
    """Norms [point] of what a prediction leaves of each point's translation, and of the translation itself, m."""
    left, whole = translations(measured, predicted)
    return np.linalg.norm(left, axis=1), np.linalg.norm(whole, axis=1)


def translations(measured: Sequence[LoadCase], predicted: Float[np.ndarray, "m"]) -> tuple[np.ndarray, np.ndarray]:
    """What a prediction leaves of the measured translations [point, 3], and these, m; 0 for what was not measured."""
    left, whole, row = [], [], 0
    for test in measured:
        count = int(test.measured.sum())
        errors = np.full(test.displacement.shape, np.nan)
        errors[test.measured] = test.displacement[test.measured] - predicted[row : row + count]
        row += count
        left.append(errors[:, :3])
        whole.append(test.displacement[:, :3])
    moved = np.concatenate(whole)
    seen = np.isfinite(moved).any(axis=1)
    if not seen.any():
        raise ValueError(f"deflection tests '{measured[0].name}' to '{measured[-1].name}': no translation was measured")
    # a direction that was not measured adds nothing to a norm
    return np.nan_to_num(np.concatenate(left)[seen]), np.nan_to_num(moved[seen])


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


def _distances(joint: Compensated, model: Model, tests: Sequence[LoadCase]) -> np.ndarray:
    """How far each test is from each of the angles [t, a], rad."""
    at = np.array([float(test.q[model.coordinates.index(joint.joint)]) for test in tests])
    return np.abs(at[:, None] - np.array(joint.angles))


def _not_tested(joint: Compensated, model: Model, tests: Sequence[LoadCase]) -> list[tuple[str, float]]:
    """Names of tests whose angle is none of the joint's, with that angle [rad]."""
    far = _distances(joint, model, tests).min(axis=1) > SAME_ANGLE
    index = model.coordinates.index(joint.joint)
    return [(test.name, float(test.q[index])) for test, other in zip(tests, far, strict=True) if other]


def _matrix(
    terms: Sequence[Term], model: Model, tests: Sequence[LoadCase], names: Sequence[str],
    compensated: tuple[Compensated, str] | None,
) -> tuple[np.ndarray, tuple[str, ...]]:  # fmt: skip
    """Observation matrix with the compensated joint's column once for each of its angles, and names of the columns."""
    matrix = observation_matrix(model, tests, terms)
    if compensated is None:
        return matrix, tuple(names)
    joint, angled = compensated
    for test, angle in _not_tested(joint, model, tests):
        raise ValueError(
            f"deflection test '{test}': {joint.joint} is {np.degrees(angle):.6g} deg, where its compliance"
            f" was not identified, expected one of {joint.angles_text} deg"
        )
    nearest = _distances(joint, model, tests).argmin(axis=1)
    rows = np.repeat(nearest, [int(test.measured.sum()) for test in tests])
    place = list(names).index(angled)
    split = matrix[:, place, None] * (rows[:, None] == np.arange(len(joint.angles)))
    labels = tuple(f"{angled} at {np.degrees(a):.6g} deg" for a in joint.angles)
    return np.hstack([matrix[:, :place], split, matrix[:, place + 1 :]]), (*names[:place], *labels, *names[place + 1 :])
