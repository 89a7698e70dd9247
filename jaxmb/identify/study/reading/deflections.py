"""Reader of deflection tests of a study: from tables, or planned by optimal design and simulated with instrument
errors."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.special import chdtri

from jaxmb.identify.estimation.design import Design, choose_tests
from jaxmb.identify.experiments.deflections.deflection_test import DeflectionSource, deflection_test, has_equilibria
from jaxmb.identify.experiments.deflections.load_cases import (
    LEAST_DEGREES,
    LoadCase,
    check_cases,
    equilibria,
    joint_terms,
    measured_displacements,
    observation_matrix,
    predicted,
    repeat_columns,
    repeatability,
    singular_postures,
    true_case,
)
from jaxmb.identify.experiments.deflections.table import DEGREE, read_table
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.experiments.tolerances import Instruments
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.stiffness_model.variants import StiffnessModel, compensated_joint, stiffness_models
from jaxmb.identify.study.context import ReadingContext, assumed_std, assumed_values, check_moving, simulated_machine
from jaxmb.identify.study.format.static_format import (
    CompletePart,
    DeflectionTestPart,
    DesignPart,
    SimulateDeflections,
)
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.mechanics.kinematics import frame_pose
from jaxmb.mechanics.postures import check_ranges, close_loops, lowest_frame, posture, stated_posture


def designed(
    design: DesignPart,
    part: DeflectionTestPart,
    count: int,
    candidates: Sequence[LoadCase],
    model: Model,
    complete: CompletePart | None,
) -> list[LoadCase]:
    """Load cases selected by optimal design, in the order of the candidates.

    Args:
        design: settings of the selection.
        part: the entry of the study.
        count: number of load cases.
        candidates: load cases to select from.
        model: the machine whose geometry is used.
        complete: options of a complete stiffness model; without them the design is for the compliances of the joints.

    Raises:
        ValueError: see `choose_load_cases` and `stiffness_models`.
    """
    stiffness = None
    if complete is not None:
        joint = complete.compensated
        compensated = None if joint is None else compensated_joint(model, joint, candidates)
        _, models = stiffness_models(model, candidates, compensated)
        stiffness = models["C1" if compensated is None else "C2"]
    purpose = None
    if design.test_postures is not None and part.simulate is not None:
        postures = np.stack([np.asarray(posture(model, part.posture | values)) for values in design.test_postures])
        forces = np.tile(candidates[0].wrench[:3], (len(postures), 1))
        loads = _wrenches(model, part.frame, postures, forces, part.simulate.offset_m)
        purpose = [
            dataclasses.replace(candidates[0], name="test pose", q=q, wrench=load)
            for q, load in zip(postures, loads, strict=True)
        ]
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
    """Design of the load cases that determine a stiffness model best.

    Args:
        model: the machine.
        candidates: load cases with postures, loads and points; displacements that are not NaN would be measured.
        count: number of load cases to select.
        criterion: see `choose_tests`.
        stiffness: the model to be determined; by default the compliances of the unlocked joints that the candidates
            load.
        purpose: load cases whose displacements are to be predicted best, for the criterion "test-pose".

    Raises:
        ValueError: see `choose_tests`; or the candidates measure different components.
    """
    shapes = {test.measured.sum() for test in candidates}
    if len(shapes) != 1:
        raise ValueError(f"candidates measure {sorted(int(s) for s in shapes)} displacements, expected all as many")

    joints = [name for name, locked in zip(model.joints, model.locked, strict=False) if not locked]

    def observed(tests: Sequence[LoadCase]) -> np.ndarray:
        if stiffness is None:
            return observation_matrix(model, tests, joint_terms(model, joints))
        return stiffness.observation(model, tests)

    _, std = measured_displacements(candidates)
    rows = observed(candidates) / std[:, None]
    loaded = np.linalg.norm(rows, axis=0) > 0.0
    blocks = rows[:, loaded].reshape(len(candidates), -1, int(loaded.sum()))
    wanted = None if purpose is None else observed(purpose)[:, loaded]
    return choose_tests(blocks, count, criterion, wanted)  # pyright: ignore[reportArgumentType]  (checked there)


MOST_TRIES = 1000
POSITION = np.array([True] * 3 + [False] * 3)
"""Components of the displacement of a point that a tracker measures with one reflector."""


def planned_tests(spec: SimulateDeflections, part: DeflectionTestPart, std: np.ndarray, model: Model) -> list[LoadCase]:
    """Load cases with postures and loads, and displacements of 0 where they are to be measured.

    Args:
        spec: plan of postures and loads.
        part: the entry of the study, for all other settings.
        std: standard deviations [6] of the displacements of a point.
        model: the machine.

    Raises:
        ValueError: a frame or a coordinate does not exist in the machine.
    """
    points = (part.frame,) if part.points is None else part.points
    check_known("frame", (part.frame, *points), model.frames)
    start = np.asarray(stated_posture(model, part.posture)[0])
    draw = np.random.default_rng(spec.plan_seed)
    zones = list(spec.zones.items())
    for zone, ranges in zones:
        check_ranges(f"zone '{zone}'", model, ranges)
    postures, forces, names = [], [], []
    count = spec.tests if spec.design is None else spec.design.candidates
    for number in range(count):
        zone, ranges = zones[number % len(zones)]
        postures.append(_drawn(model, start, ranges, spec.floor_m, draw, zone))
        direction = np.array(spec.directions[number % len(spec.directions)])
        forces.append(draw.uniform(*spec.force_n) * direction / np.linalg.norm(direction))
        names.append(f"{zone} {number // len(zones) + 1}")
    wrenches = _wrenches(model, part.frame, np.stack(postures), np.stack(forces), spec.offset_m)
    displacement = np.tile(np.where(POSITION | (spec.measured == "pose"), 0.0, np.nan), (len(points), 1))
    spread = np.tile(std, (len(points), 1))
    order = sorted(range(count), key=lambda i: i % len(zones))  # ordered by zone, as they would be measured
    return [LoadCase(names[i], postures[i], part.frame, wrenches[i], points, displacement, spread) for i in order]


def _wrenches(
    model: Model, frame: str, q: Float[np.ndarray, "t n"], forces: Float[np.ndarray, "t 3"], offset: Sequence[float]
) -> Float[np.ndarray, "t 6"]:
    """Wrenches of forces in ground axes, whose point of application has an offset in the axes of the loaded frame."""
    poses = np.asarray(jax.vmap(lambda at: frame_pose(model, at, frame))(jnp.asarray(q)))
    return np.concatenate([forces, np.cross(poses[:, :3, :3] @ np.array(offset), forces)], axis=1)


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
        q = np.asarray(close_loops(model, values, jnp.asarray(start)))
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
    weight: bool = False,
) -> list[LoadCase]:
    """The load cases as measured on a machine by instruments with errors: `true_displacements` with those of the
    tracker. Components that are not measured remain NaN.

    Args:
        model: the machine that is measured.
        tests: postures, loads and points.
        errors: of the instruments; None for exact ones.
        draw: random generator of the errors.
        nonlinear: whether the load acts on the deflected machine; otherwise to first order.
        gravity: whether the geometric stiffness of gravity acts, to first order.
        weight: whether the machine deflects under its weight before the load acts; `nonlinear` then.
    """
    found = true_displacements(model, tests, errors, draw, nonlinear, gravity, weight)
    if errors is not None:
        scale = np.repeat([errors.translation_std, errors.rotation_std], 3)
        found = [own + scale * draw.normal(size=own.shape) for own in found]
    return [
        dataclasses.replace(test, displacement=np.where(test.measured, own, np.nan))
        for test, own in zip(tests, found, strict=True)
    ]


def true_displacements(
    model: Model,
    tests: Sequence[LoadCase],
    errors: Instruments | None,
    draw: np.random.Generator,
    nonlinear: bool = False,
    gravity: bool = False,
    weight: bool = False,
) -> list[Float[np.ndarray, "p 6"]]:
    """Displacements of the points of each load case, m and rad, as they are, without errors of the tracker.

    Posture and load of each case are the readings; the true ones differ by the errors of encoders, balance, direction
    and point of application of the force. Between the readings without and with the load the revolute coordinates
    change by the repeatability of the drives. For the arguments see `measured_with`.
    """
    true = list(tests)
    if errors is not None:
        std = errors.case_std(model.revolute)
        true = [true_case(model, test, std * _standard_errors(test, std, draw)) for test in tests]
    displacements = equilibria(model, true, weight) if nonlinear or weight else predicted(model, true, gravity)
    if errors is not None and errors.repeat_std > 0.0:
        columns = repeat_columns(model, true, errors.repeat_std)
        displacements = [
            own + each @ draw.normal(size=each.shape[-1]) for own, each in zip(displacements, columns, strict=True)
        ]
    return displacements


def _standard_errors(test: LoadCase, std: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """Standard normal errors in the order of `Instruments.case_std`; exact quantities draw no numbers, so that seeds
    keep their results."""
    z = np.zeros(7 + test.q.size)
    if test.wrench[:3].any():
        z[0] = draw.normal()
    z[7:] = draw.normal(size=test.q.size)
    if std[1] > 0.0:
        z[1:4] = draw.normal(size=3)
    if std[4] > 0.0:
        z[4:7] = draw.normal(size=3)
    return z


def read_deflection_test(part: DeflectionTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """A deflection test, from a table or simulated.

    Args:
        part: table of the study file.
        label: its name, unique in the study.
        context: study file, machine and preliminary fits.

    Raises:
        ValueError: the tests cannot be simulated or read, or do not match the machine.
    """
    model = context.model
    check_known("frame", [part.frame] if "frame" in part.model_fields_set else [], model.frames)
    truth, stated, instruments = None, None, part.instruments
    stated_std = (1e-3 * part.std_mm, DEGREE * part.std_deg)
    std = np.repeat(stated_std if instruments is None else (instruments.translation_std, instruments.rotation_std), 3)
    # With tests of other kinds the fit is a search with gravity in all tests; alone, displacements remain linear in
    # compliances, at the equilibrium about the fitted machine.
    asked = context.file.linearize_at == "equilibrium"
    at_equilibrium = asked and has_equilibria(model)
    mixed = not all(other.static for other in context.file.test)
    gravity = at_equilibrium or (mixed and not model.virtual_springs)
    q, changed = stated_posture(model, part.posture)
    if part.simulate is None:
        start = np.asarray(q)
        cases, stated, unstated, closed = read_table(model, context.folder / str(part.file), part.frame, start, std)
        cases, stated, instruments, repeated = _by_repeats(part, cases, stated, context)
        changed += (*closed, *assumed_values(part, model, unstated, start), *repeated)
    else:
        spec = part.simulate
        true, seed, truth = simulated_machine(spec, context)
        planned = planned_tests(spec, part, std, true)
        if spec.design is not None:
            planned = designed(spec.design, part, spec.tests, planned, model, context.file.complete)
        draw = np.random.default_rng(seed)
        measured = measured_with(true, planned, instruments, draw, spec.nonlinear, gravity, at_equilibrium)
        check_cases(true, measured)
        cases = [_by_coordinates(model, true, case) for case in measured]
        check_cases(model, cases)
    for case in cases:
        measured = zip(case.points, case.measured, strict=True)
        frames = case.frame, *(point for point, components in measured if components.any())
        check_moving(model, f"deflection test '{case.name}': frame", frames)

    def linear(machine: Model) -> Entry:
        test = deflection_test(
            label, machine, cases, part.rotation_weight, part.robust, gravity, instruments, at_equilibrium
        )
        return Entry(part.kind, test, source, truth, role=part.role, remarks=remarks)

    if asked and not at_equilibrium:
        changed = (*changed, "deflections are linearized at the posture, as the machine has loops and flexible links")

    def about(machine: Model) -> Entry:
        entry = linear(machine)
        if not at_equilibrium:
            return entry
        test = entry.test.about(machine)
        if not np.isfinite(test.effort).all():
            raise ValueError(f"machine '{machine.name}' has no stable equilibrium under its weight and the loads")
        return dataclasses.replace(entry, test=test)

    singular = singular_postures(model, cases)
    if 0 < len(singular) < len(cases):
        more = f", and {len(singular) - 1} more" if len(singular) > 1 else ""
        changed = (*changed, f"{singular[0]}{more}: such postures determine only a combination of these joints")
    remarks = (*_assumed(part, cases, stated), *changed)
    has_errors = instruments is not None and instruments.changes_cases
    source = DeflectionSource(
        cases=tuple(cases), instruments=instruments, rotation_weight=part.rotation_weight,
        linearized_about=about if has_errors or (at_equilibrium and not mixed) else None,
    )  # fmt: skip
    return [linear(model)]


def _assumed(
    part: DeflectionTestPart, cases: Sequence[LoadCase], stated: Sequence[np.ndarray] | None
) -> tuple[str, ...]:
    """A sentence on default standard deviations of displacements that were measured without one."""
    if part.instruments is not None:
        return ()
    lacking = np.zeros(6, bool)
    for i, test in enumerate(cases):
        lacking |= (test.measured if stated is None else test.measured & ~stated[i]).any(axis=0)
    lost = [bool(lacking[:3].any()), bool(lacking[3:].any())]
    return assumed_std("displacements", part, {"std_mm": "mm", "std_deg": "deg"}, lost)


def _by_repeats(
    part: DeflectionTestPart, cases: Sequence[LoadCase], stated: Sequence[np.ndarray], context: ReadingContext
) -> tuple[list[LoadCase], list[np.ndarray], Instruments | None, tuple[str, ...]]:
    """Load cases with standard deviations from repeated ones, where none are stated or the scatter is significantly
    larger.

    The variance of the scatter over the stated one is compared with a quantile of chi-square over its degrees of
    freedom. In robust fits stated deviations are kept, since outliers are no larger noise. Nothing is compared where
    errors of loads and postures are stated, which contribute to the scatter.

    Returns:
        Load cases, masks of the displacements with a standard deviation, the instruments with the scatter, and a
        sentence on each kind of displacement.
    """
    found, sentences, instruments = repeatability(cases), list[str](), part.instruments
    cases, stated = list(cases), [own.copy() for own in stated]
    robust = any(getattr(other, "robust", False) for other in context.file.test)
    if instruments is not None and (instruments.changes_cases or instruments.repeat_std > 0.0):
        return cases, stated, instruments, ()
    for kind, (key, unit, size) in enumerate((("std_mm", "mm", 1e3), ("std_deg", "deg", 1.0 / DEGREE))):
        columns, degrees = slice(3 * kind, 3 * kind + 3), found.degrees[kind]
        if degrees < LEAST_DEGREES or found.std[kind] == 0.0:
            continue
        text = f"{size * found.std[kind]:.3g} {unit} in {found.groups} postures and loads with repeated tests"
        lacking = [case.measured[:, columns] & ~own[:, columns] for case, own in zip(cases, stated, strict=True)]
        if part.instruments is None and key not in part.model_fields_set and any(some.any() for some in lacking):
            cases = [
                _with_std(case, columns, np.where(some, found.std[kind], case.std[:, columns]))
                for case, some in zip(cases, lacking, strict=True)
            ]
            for own, some in zip(stated, lacking, strict=True):
                own[:, columns] |= some
            sentences.append(f"displacements scatter by {text}: the standard deviation of those without a stated one")
        elif found.chi_square[kind] > float(chdtri(degrees, FALSE_ALARM)):
            factor = math.sqrt(found.chi_square[kind] / degrees)
            if not robust:
                cases = [_with_std(case, columns, factor * case.std[:, columns]) for case in cases]
                instruments = None if instruments is None else instruments.with_scatter(kind, factor)
            taken = "" if robust else ": the stated standard deviations are multiplied by this factor"
            sentences.append(
                f"displacements scatter by {text}, {factor:.2g} times what their stated deviations give{taken}"
            )
    return cases, stated, instruments, tuple(sentences)


def _with_std(case: LoadCase, columns: slice, std: np.ndarray) -> LoadCase:
    """The load case with other standard deviations of its translations or rotations [p, 3]."""
    changed = case.std.copy()
    changed[:, columns] = std
    return dataclasses.replace(case, std=changed)


def _by_coordinates(model: Model, true: Model, test: LoadCase) -> LoadCase:
    """The load case in the coordinates of the fitted machine; the measured machine may have further ones."""
    known = dict(zip(true.coordinates, test.q, strict=True))
    missing = [name for name in model.coordinates if name not in known]
    if missing:
        raise ValueError(f"the simulated machine has no coordinate '{missing[0]}', expected all of the fitted one's")
    return dataclasses.replace(test, q=np.array([known[name] for name in model.coordinates]))
