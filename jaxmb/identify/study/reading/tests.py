"""From the tests that a study describes to what its fit compares with, and what is known beside that."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.names import display_name
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.identify.study.format.test_format import TestPart
from jaxmb.identify.study.kinds import KINDS
from jaxmb.identify.study.setting import Setting
from jaxmb.io.validation import InputError, known_name, place
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import FrfSet, split_dof
from jaxmb.response.frf_kind import Point, dof_names

EXAMPLE = 'nodes = { "1" = "tool" }'


def named_points(
    read: FrfSet, outputs: Sequence[Point], inputs: Sequence[Point], nodes: Mapping[str, str], model: Model
) -> FrfSet:
    """The responses of a file with the names of the points of a test, as they stand in the file.

    Names of a node and a direction, "tool x" or "12 -z", tell what was measured: where the node is a frame of the
    machine, or `nodes` says which, the point is found by name; where all names are of one node that is no frame, and
    all points of the test of one frame, by direction. What stands against an axis is turned round. Names that tell
    neither node nor direction are those of the test one by one.

    Args:
        read: what the file holds.
        outputs: of the test.
        inputs: likewise.
        nodes: frame of the machine by node of the file.
        model: the machine.

    Raises:
        ValueError: a point of the test is not in the file, or it cannot be told which it is.
    """
    split = tuple(_split(names) for names in (read.outputs, read.inputs))
    present = {node for side in split if side is not None for node, _ in side}
    for node, frame in nodes.items():
        if node not in present:
            raise ValueError(known_name(f"nodes: '{read.source}' has no node", node, sorted(present)))
        if frame not in model.frames:
            raise ValueError(known_name(f"nodes: {node}: frame", frame, model.frames))
    frame_of = {node: nodes.get(node, node) for node in present}
    sides = ("outputs", split[0], outputs), ("inputs", split[1], inputs)
    counts = len(outputs), len(inputs)
    if any(side is None and n != wanted for side, n, wanted in zip(split, read.frf.shape[1:], counts, strict=True)):
        raise ValueError(
            f"'{read.source}' has {read.frf.shape[1]} outputs and {read.frf.shape[2]} inputs, expected"
            f" {counts[0]} and {counts[1]} for {', '.join(dof_names(outputs))} from {', '.join(dof_names(inputs))}"
        )
    if not nodes and not present & {*model.frames, *model.coordinates}:
        frame_of = _by_direction(read, sides)
    renamed = [
        _renamed(read, what, side, points, frame_of) for what, side, points in sides
    ]  # fmt: skip
    return dataclasses.replace(read, outputs=renamed[0], inputs=renamed[1])


Side = tuple[str, list[tuple[str, str]] | None, Sequence[Point]]


def _split(names: Sequence[str]) -> list[tuple[str, str]] | None:
    """Node and direction with its sign of every name; None where one of them tells none."""
    try:
        parts = [split_dof(name) for name in names]
    except ValueError:
        return None
    return [(node, direction if sign > 0 else f"-{direction}") for node, direction, sign in parts]


def _by_direction(read: FrfSet, sides: Sequence[Side]) -> dict[str, str]:
    """Frame of each node where a side of the file has one node and that side of the test one frame."""
    frame_of: dict[str, str] = {}
    for what, side, points in sides:
        if side is None:
            continue
        at, frames = sorted({node for node, _ in side}), sorted({frame for frame, _ in points})
        known = frame_of.get(at[0], frames[0])
        if (
            len(at) > 1
            or len(frames) > 1
            or known != frames[0]
            or (at[0] not in frame_of and known in frame_of.values())
        ):
            raise ValueError(
                f"{what} of '{read.source}' are at {_nodes(at)}, no frame of the machine, and those of the test at"
                f" {', '.join(frames)}: expected which frame each node is, {EXAMPLE}"
            )
        frame_of[at[0]] = frames[0]
    return frame_of


def _renamed(
    read: FrfSet, what: str, side: list[tuple[str, str]] | None, points: Sequence[Point], frame_of: Mapping[str, str]
) -> tuple[str, ...]:
    names = read.outputs if what == "outputs" else read.inputs
    if side is None:
        return dof_names(points)
    renamed = tuple(f"{frame_of[node]} {direction}" for node, direction in side)
    for frame, direction in points:
        if not {f"{frame} {direction}", f"{frame} {_reversed(direction)}"} & set(renamed):
            raise ValueError(
                f"'{frame} {direction}' is not among the {what} of '{read.source}', which has {', '.join(names[:20])}"
                + ("" if renamed == names else f" ({', '.join(f'{n} is {f}' for n, f in frame_of.items())})")
            )
    return renamed


def _reversed(direction: str) -> str:
    return direction.removeprefix("-") if direction.startswith("-") else f"-{direction}"


def _nodes(names: Sequence[str]) -> str:
    return f"node{'s' if len(names) > 1 else ''} {', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"


def read_tests(file: StudyFile, source: str, setting: Setting) -> list[Entry]:
    """All tests of a study, read or simulated, those that are fitted first.

    Args:
        file: the study.
        source: what messages call it.
        setting: what its tests stand in.

    Raises:
        InputError: a test cannot be; it is named.
    """
    names = test_names(file.test)
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{source}: the test name '{name}' is used twice, expected each once")
    found: list[Entry] = []
    for number in sorted(range(len(names)), key=lambda i: file.test[i].role == "check"):
        label, part = names[number], file.test[number]
        fitted = tuple(found) if part.role == "check" else ()
        own = setting._replace(noise_seed=_seed_of(setting.noise_seed, number), fitted=fitted)
        with place(f"{source}: {display_name(label)}"):
            found += KINDS[part.kind].reader(part, label, own)
    if all(entry.role == "check" for entry in found):
        raise InputError(f"{source}: every test has the role 'check', expected one to fit")
    return found


def test_names(parts: Sequence[TestPart]) -> list[str]:
    """What each test of a study is called: its name; else its file without ending where no other is; else "test 1"."""
    numbered = [f"test {number}" for number in range(1, len(parts) + 1)]
    files = [part.source_file if part.name is None else None for part in parts]
    stems = [None if file is None else Path(file).stem for file in files]
    taken = [*stems, *(part.name for part in parts), *numbered]
    return [
        part.name or (stem if stem and taken.count(stem) == 1 else number)
        for part, stem, number in zip(parts, stems, numbered, strict=True)
    ]


def check_kinds(file: StudyFile) -> None:
    """Raise where the tests of a study cannot stand beside what else it says."""
    if file.complete is not None and not all(part.static for part in file.test):
        raise ValueError("[complete] is for deflection tests alone, expected no others")
    if file.complete is not None and file.prior:
        raise NotImplementedError("a prior cannot be used with [complete]")
    if file.complete is not None and file.lock:
        raise NotImplementedError("lock cannot be used with [complete]")


def check_stiffness(file: StudyFile, model: Model) -> None:
    """Raise where a coordinate would move freely in one test and be rigid in another."""
    if len({part.static for part in file.test}) == 2 and not model.springs:
        # not of shafts: under a constant load a drive holds its motor
        # nor of what follows from others where rigid loops close: it gives way with them in both
        for i, (name, stiffness, locked) in enumerate(zip(model.joints, model.stiffness, model.locked, strict=False)):
            if stiffness == 0.0 and not locked and i not in model.following:
                raise ValueError(
                    f"coordinate '{name}' has no stiffness, so it would be free in some tests and rigid under the loads"
                    f" of the deflection tests: expected a stiffness, or '{name}' in lock"
                )


def common_truth(entries: Sequence[Entry], coordinates: tuple[str, ...]) -> dict[str, float]:
    """True parameters, where all fitted tests were simulated on one machine that moves in the same coordinates."""
    truths = [
        entry.truth.parameters if entry.truth is not None and entry.truth.coordinates == coordinates else None
        for entry in entries
    ]
    first = truths[0] if truths else None
    return first if first is not None and all(t == first for t in truths) else {}


def _seed_of(noise_seed: int | None, number: int) -> int | None:
    """Seed of one test's noise: that of all for the first, and for each other one that follows from it."""
    if noise_seed is None or number == 0:
        return noise_seed
    return int(np.random.SeedSequence([noise_seed, number]).generate_state(1)[0])
