"""Reader of deflection tests of a study file, with their tables of loads and displacements."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import chdtri

from jaxmb.identify.experiments.deflections.deflection_test import LEAST_DEGREES, deflection_test, repeatability
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, check_cases
from jaxmb.identify.experiments.deflections.source import DeflectionSource
from jaxmb.identify.experiments.deflections.table import DEGREE, read_table
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.tolerances import Instruments
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.study.context import ReadingContext, simulated_machine
from jaxmb.identify.study.format.deflection_format import DeflectionTestPart
from jaxmb.identify.study.simulation.deflections import designed, planned_tests, simulated_tests
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.postures import stated_posture


def read_deflection_test(part: DeflectionTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """A deflection test, from a table or simulated.

    Args:
        part: entry of the study file.
        label: its name in messages.
        context: of the tests.

    Raises:
        ValueError: the tests cannot be made, read or be the machine's.
    """
    model = context.model
    if "frame" in part.model_fields_set and part.frame not in model.frames:
        raise ValueError(known_name("frame", part.frame, model.frames))
    std = _std(part)
    # Beside other tests the fit searches, and all of them see the same machine; alone, displacements stay linear.
    gravity = not all(other.static for other in context.file.test) and not model.virtual_springs
    q, changed = stated_posture(model, part.posture)
    truth, stated, instruments = None, None, part.instruments
    if part.simulate is None:
        start = np.asarray(q)
        cases, stated, unstated, closed = read_table(model, context.folder / str(part.file), part.frame, start, std)
        cases, stated, instruments, repeated = _by_repeats(part, cases, stated, context)
        changed += (*closed, *_taken(part, model, unstated, start), *repeated)
    else:
        how = part.simulate
        true, seed, truth = simulated_machine(how, context)
        planned = planned_tests(how, part, std, true)
        if how.design is not None:
            planned = designed(how.design, part, how.tests, planned, model, context.file.complete)
        cases = [
            _by_coordinates(model, true, case) for case in simulated_tests(how, part, planned, true, seed, gravity)
        ]
        check_cases(model, cases)
    _check_frames(model, cases)

    def about(machine: Model) -> Entry:
        test = deflection_test(label, machine, cases, part.rotation_weight, part.robust, gravity, instruments)
        return Entry("deflection", test, source, truth, role=part.role, remarks=remarks)

    remarks = (*_assumed(part, cases, stated), *changed)
    source = DeflectionSource(
        cases=tuple(cases), instruments=instruments, rotation_weight=part.rotation_weight,
        about=about if (instruments is not None and instruments.changes_cases) or context.file.frees_geometry else None,
    )  # fmt: skip
    return [about(model)]


def _taken(part: DeflectionTestPart, model: Model, unstated: Sequence[str], start: np.ndarray) -> tuple[str, ...]:
    """A sentence on coordinates whose values are not specified."""
    values = dict(zip(model.coordinates, start.tolist(), strict=True))
    turns = dict(zip(model.coordinates, model.revolute, strict=True))
    names = [name for name in unstated if name not in part.posture]
    texts = [
        f"{name} = {values[name] / DEGREE:.4g} deg" if turns[name] else f"{name} = {1e3 * values[name]:.4g} mm"
        for name in names
    ]
    if not names:
        return ()
    return (f"{part.file} has no column for {', '.join(names)}: the reference posture's {', '.join(texts)} is taken",)


def _check_frames(model: Model, cases: Sequence[LoadCase]) -> None:
    """Raise ValueError where a load acts, or a displacement was measured, at a frame that is fixed to the ground."""
    for case in cases:
        measured = [point for point, some in zip(case.points, case.measured, strict=True) if some.any()]
        for frame in (case.frame, *measured):
            if model.frame_node[model.frames.index(frame)] < 0:
                raise ValueError(
                    f"deflection test '{case.name}': frame '{frame}' does not move, expected one that the machine moves"
                )


def _assumed(
    part: DeflectionTestPart, cases: Sequence[LoadCase], stated: Sequence[np.ndarray] | None
) -> tuple[str, ...]:
    """A sentence on default standard deviations of displacements that were measured without one."""
    if part.instruments is not None:
        return ()
    lacking = np.zeros(6, bool)
    for i, test in enumerate(cases):
        lacking |= (test.measured if stated is None else test.measured & ~stated[i]).any(axis=0)
    kinds = (("std_mm", f"{part.std_mm:g} mm", lacking[:3]), ("std_deg", f"{part.std_deg:g} deg", lacking[3:]))
    assumed = [text for key, text, lost in kinds if lost.any() and key not in part.model_fields_set]
    if not assumed:
        return ()
    return (
        f"no standard deviation is stated for its displacements: {' and '.join(assumed)}"
        f" {'is' if len(assumed) == 1 else 'are'} assumed, and all standard deviations follow from it",
    )


def _by_repeats(
    part: DeflectionTestPart, cases: Sequence[LoadCase], stated: Sequence[np.ndarray], context: ReadingContext
) -> tuple[list[LoadCase], list[np.ndarray], Instruments | None, tuple[str, ...]]:
    """Tests with the standard deviations of repeated ones, where none are stated or these are larger beyond chance.

    The scatter exceeds the stated deviations where the F-test of their variances says so; these are exact, so that the
    limit is that of a chi-square. Outliers of a robust fit are no larger noise, and errors of loads and postures make
    repeated tests differ by themselves.

    Returns:
        Tests, which displacements have a deviation, the instruments with it, and a sentence on each kind of deviation.
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
    """A test with other standard deviations of its translations or rotations [p, 3]."""
    changed = case.std.copy()
    changed[:, columns] = std
    return dataclasses.replace(case, std=changed)


def _std(part: DeflectionTestPart) -> np.ndarray:
    if part.instruments is not None:
        return np.repeat([part.instruments.translation_std, part.instruments.rotation_std], 3)
    return np.repeat([1e-3 * part.std_mm, DEGREE * part.std_deg], 3)


def _by_coordinates(model: Model, true: Model, test: LoadCase) -> LoadCase:
    """The test with the coordinates of the fitted machine, where the measured one has others too."""
    if true.coordinates == model.coordinates:
        return test
    known = dict(zip(true.coordinates, test.q, strict=True))
    missing = [name for name in model.coordinates if name not in known]
    if missing:
        raise ValueError(f"the simulated machine has no coordinate '{missing[0]}', expected all of the fitted one's")
    return dataclasses.replace(test, q=np.array([known[name] for name in model.coordinates]))
