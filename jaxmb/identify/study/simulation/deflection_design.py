"""Deflection tests chosen out of many that could be made."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmb.identify.estimation.design import Design, choose_tests
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase,
    joint_terms,
    measured_displacements,
    observation_matrix,
)
from jaxmb.identify.stiffness_model.variants import StiffnessModel, compensated_joint, stiffness_models
from jaxmb.identify.study.format.deflection_format import CompletePart, DeflectionTestPart, DesignPart
from jaxmb.machine.build import Model
from jaxmb.mechanics.postures import posture


def designed(
    design: DesignPart,
    part: DeflectionTestPart,
    count: int,
    candidates: Sequence[LoadCase],
    model: Model,
    complete: CompletePart | None,
) -> list[LoadCase]:
    """The tests that a study chooses, in the order of the candidates.

    Args:
        design: how.
        part: the entry of the study.
        count: how many.
        candidates: tests that could be made.
        model: the machine whose geometry is used.
        complete: what the study says of a complete stiffness model; the joints alone are to be known where not given.

    Raises:
        ValueError: the tests cannot be chosen so.
    """
    stiffness = None
    if complete is not None:
        joint = complete.compensated
        compensated = None if joint is None else compensated_joint(model, joint, candidates)
        _, models = stiffness_models(model, candidates, compensated)
        stiffness = models["C1" if compensated is None else "C2"]
    purpose = None
    if design.test_postures is not None:
        places = [np.asarray(posture(model, part.posture | values)) for values in design.test_postures]
        purpose = [dataclasses.replace(candidates[0], name="test pose", q=q) for q in places]
    chosen = choose_load_cases(model, candidates, count, design.criterion, stiffness, purpose)
    return [candidates[i] for i in sorted(chosen.chosen)]


def choose_load_cases(
    model: Model,
    candidates: Sequence[LoadCase],
    count: int,
    criterion: str = "D",
    stiffness: StiffnessModel | None = None,
    purpose: Sequence[LoadCase] | None = None,
) -> Design:
    """Which of the candidates to make, so that a stiffness model is known best.

    Args:
        model: the machine.
        candidates: tests with postures, loads and points; what they would measure is what is not NaN.
        count: how many to choose.
        criterion: see `choose_tests`.
        stiffness: what is to be known; the compliances of the joints that the candidates load where not given.
        purpose: tests whose displacements are to be predicted best, for the criterion "test-pose".

    Raises:
        ValueError: see `choose_tests`; or the candidates do not measure alike.
    """
    shapes = {test.measured.sum() for test in candidates}
    if len(shapes) != 1:
        raise ValueError(f"candidates measure {sorted(int(s) for s in shapes)} displacements, expected all as many")

    def observed(tests: Sequence[LoadCase]) -> np.ndarray:
        if stiffness is None:
            return observation_matrix(model, tests, joint_terms(model, model.joints))
        return stiffness.observation(model, tests)

    _, std = measured_displacements(candidates)
    rows = observed(candidates) / std[:, None]
    loaded = np.linalg.norm(rows, axis=0) > 0.0
    blocks = rows[:, loaded].reshape(len(candidates), -1, int(loaded.sum()))
    wanted = None if purpose is None else observed(purpose)[:, loaded]
    return choose_tests(blocks, count, criterion, wanted)  # pyright: ignore[reportArgumentType]  (checked there)
