"""Responses of a file at the points of a test, by the names of nodes and directions."""

import dataclasses
from collections.abc import Mapping, Sequence

from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import FrfSet, split_dof
from jaxmb.response.frf_kind import Point, dof_names

EXAMPLE = 'nodes = { "1" = "tool" }'


def named_points(
    read: FrfSet, outputs: Sequence[Point], inputs: Sequence[Point], nodes: Mapping[str, str], model: Model
) -> FrfSet:
    """The responses of a file with the names of the points of a test, as measured in the file.

    Names of a node and a direction, "tool x" or "12 -z", identify a response: where the node is a frame of the machine,
    or `nodes` says which, the point is found by name; where all names are of one node that is no frame, and all points
    of the test of one frame, by direction. The sign of a response measured against an axis is reversed. Names with
    neither node nor direction are those of the test one by one.

    Args:
        read: contents of the file.
        outputs: of the test.
        inputs: likewise.
        nodes: frame of the machine by node of the file.
        model: the machine.

    Raises:
        ValueError: a point of the test is not in the file, or cannot be distinguished.
    """
    split = tuple(_split(names) for names in (read.outputs, read.inputs))
    present = {node for side in split if side is not None for node, _ in side}
    for node, frame in nodes.items():
        check_known(f"nodes: '{read.source}' has no node", [node], sorted(present))
        check_known(f"nodes: {node}: frame", [frame], model.frames)
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
    """Node and direction with its sign of every name; None where one of them has none."""
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
        nodes, frames = sorted({node for node, _ in side}), sorted({frame for frame, _ in points})
        known = frame_of.get(nodes[0], frames[0])
        if (
            len(nodes) > 1
            or len(frames) > 1
            or known != frames[0]
            or (nodes[0] not in frame_of and known in frame_of.values())
        ):
            raise ValueError(
                f"{what} of '{read.source}' are at {_nodes(nodes)}, no frame of the machine, and those of the test at"
                f" {', '.join(frames)}: expected which frame each node is, {EXAMPLE}"
            )
        frame_of[nodes[0]] = frames[0]
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
