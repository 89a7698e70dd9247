"""Pseudo-measured deflections of a machine whose stiffness is known, with the errors of the instruments."""

import dataclasses
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmb.identify.estimation.design import Design, choose_tests
from jaxmb.identify.experiments.deflections.load_cases import (
    LoadCase,
    check_cases,
    equilibria,
    joint_terms,
    measured_displacements,
    observation_matrix,
    predicted,
)
from jaxmb.identify.experiments.deflections.source import repeat_columns, true_case
from jaxmb.identify.stiffness_model.variants import StiffnessModel, compensated_joint, stiffness_models
from jaxmb.identify.study.format.deflection_format import (
    CompletePart,
    DeflectionTestPart,
    DesignPart,
    Instruments,
    SimulateDeflections,
)
from jaxmb.identify.study.simulation.postures import lowest_frame
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.postures import close_loops, posture, stated_posture


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
        complete: of a complete stiffness model; the joints alone are to be known where not given.

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


MOST_TRIES = 1000
POSITION = np.array([True] * 3 + [False] * 3)
"""Which displacements of a point a tracker measures without several reflectors."""


def planned_tests(how: SimulateDeflections, part: DeflectionTestPart, std: np.ndarray, model: Model) -> list[LoadCase]:
    """Tests with postures and loads, and displacements of zero where they are to be measured.

    Args:
        how: of postures and loads.
        part: and of the rest.
        std: standard deviations [6] of the displacements of a point.
        model: the machine.

    Raises:
        ValueError: a frame or a coordinate is not the machine's.
    """
    points = (part.frame,) if part.points is None else part.points
    check_known("frame", (part.frame, *points), model.frames)
    start = np.asarray(stated_posture(model, part.posture)[0])
    draw = np.random.default_rng(how.plan_seed)
    zones = list(how.zones.items())
    for zone, ranges in zones:
        check_known(f"zone '{zone}': coordinate", ranges, model.coordinates)
    postures, forces, names = [], [], []
    count = how.tests if how.design is None else how.design.candidates
    for number in range(count):
        zone, ranges = zones[number % len(zones)]
        q = _drawn(model, start, ranges, how.floor_m, draw, zone)
        direction = np.array(how.directions[number % len(how.directions)])
        forces.append(draw.uniform(*how.force_n) * direction / np.linalg.norm(direction))
        postures.append(q)
        names.append(f"{zone} {number // len(zones) + 1}")
    turned = np.asarray(jax.vmap(lambda q: frame_pose(model, q, part.frame))(jnp.asarray(np.stack(postures))))
    arms = turned[:, :3, :3] @ np.array(how.offset_m)
    wrenches = np.concatenate([np.stack(forces), np.cross(arms, np.stack(forces))], axis=1)
    seen = np.where(POSITION | (how.measured == "pose"), 0.0, np.nan)
    displacement = np.tile(seen, (len(points), 1))
    spread = np.tile(std, (len(points), 1))
    order = sorted(range(count), key=lambda i: i % len(zones))  # by zone, as one would measure and draw them
    return [LoadCase(names[i], postures[i], part.frame, wrenches[i], points, displacement, spread) for i in order]


def _drawn(
    model: Model,
    start: np.ndarray,
    ranges: Mapping[str, tuple[float, float]],
    floor: float | None,
    draw: np.random.Generator,
    zone: str,
) -> np.ndarray:
    """A posture in a zone, above the floor where there is one."""
    for _ in range(MOST_TRIES):
        values = {name: draw.uniform(first, last) for name, (first, last) in ranges.items()}
        if model.loops:
            q = np.asarray(close_loops(model, values, jnp.asarray(start)))
        else:
            q = start.copy()
            q[[model.coordinates.index(name) for name in values]] = list(values.values())
        if floor is None or lowest_frame(model, q) > floor:
            return q
    raise ValueError(f"zone '{zone}': no posture drawn keeps all frames above floor_m = {floor:g}")


def measured_with(
    model: Model,
    tests: Sequence[LoadCase],
    errors: Instruments | None,
    draw: np.random.Generator,
    nonlinear: bool = False,
    gravity: bool = False,
) -> list[LoadCase]:
    """The tests as instruments would see them on a machine, with errors.

    Posture and load of each test are what was read; the true ones differ by the errors of the encoders and of the load:
    of the balance, of the direction of the force, and of where it acts. Between the readings without and with the load
    the revolute coordinates turn by what the drives do not repeat. What was not measured in a test stays so.

    Args:
        model: the machine that is measured.
        tests: postures, loads and points.
        errors: of the instruments; none where not given.
        draw: source of the errors.
        nonlinear: whether the load acts on the moved machine; to first order where not.
        gravity: whether gravity's stiffness acts, to first order.
    """
    true = list(tests)
    if errors is not None:
        true = [true_case(model, test, errors, _standard_errors(test, errors, draw)) for test in tests]
    moved = equilibria(model, true) if nonlinear else predicted(model, true, gravity)
    turned = [np.zeros(1)] * len(true)
    if errors is not None and errors.repeat_std > 0.0:
        columns = repeat_columns(model, true, errors.repeat_std)
        turned = [each @ draw.normal(size=each.shape[-1]) for each in columns]
    seen = []
    for test, displacement, turn in zip(tests, moved, turned, strict=True):
        if errors is not None:
            scale = np.repeat([errors.translation_std, errors.rotation_std], 3)
            displacement = displacement + scale * draw.normal(size=displacement.shape) + turn
        seen.append(dataclasses.replace(test, displacement=np.where(test.measured, displacement, np.nan)))
    return seen


def _standard_errors(test: LoadCase, errors: Instruments, draw: np.random.Generator) -> np.ndarray:
    """A draw of what `true_case` takes; what has no error is not drawn, so that seeds keep their meaning."""
    z = np.zeros(7 + test.q.size)
    if test.wrench[:3].any():
        z[0] = draw.normal()
    z[7:] = draw.normal(size=test.q.size)
    if errors.direction_std > 0.0:
        z[1:4] = draw.normal(size=3)
    if errors.lever_std > 0.0:
        z[4:7] = draw.normal(size=3)
    return z


def simulated_tests(
    how: SimulateDeflections, part: DeflectionTestPart, planned: Sequence[LoadCase], model: Model, noise_seed: int,
    gravity: bool = False,
) -> list[LoadCase]:  # fmt: skip
    """Tests of a study as they would be measured on a machine.

    Raises:
        ValueError: the machine cannot be tested so; a test whose displacement cannot be is named.
    """
    seen = measured_with(model, planned, part.instruments, np.random.default_rng(noise_seed), how.nonlinear, gravity)
    check_cases(model, seen)
    return seen
