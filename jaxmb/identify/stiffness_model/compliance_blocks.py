"""Named compliances, "q2" of a joint and "link1 y,rz" of a link, and their matrices."""

from collections.abc import Sequence

import numpy as np

from jaxmb.mechanics.kinematics import ELASTIC_AXES


def ends_of(name: str) -> tuple[str, str]:
    """The two degrees of freedom of a compliance: "link1 y" and "link1 rz" of "link1 y,rz"."""
    spring, _, entry = name.partition(" ")
    a, _, b = entry.partition(",")
    return (f"{spring} {a}", f"{spring} {b}") if entry else (name, name)


def diagonal_of(end: str) -> str:
    """Name of the diagonal compliance of one degree of freedom."""
    spring, _, axis = end.partition(" ")
    return f"{spring} {axis},{axis}" if axis else end


def is_diagonal(name: str) -> bool:
    """Whether a compliance is on the diagonal of its matrix."""
    a, b = ends_of(name)
    return a == b


def _blocks(names: Sequence[str]) -> list[list[str]]:
    """Degrees of freedom by the smallest blocks of the block-diagonal matrices."""
    blocks: list[list[str]] = []
    for name in names:
        ends = dict.fromkeys(ends_of(name))
        merged = [block for block in blocks if not ends.keys().isdisjoint(block)]
        blocks = [block for block in blocks if block not in merged]
        blocks.append(list(dict.fromkeys([*(end for block in merged for end in block), *ends])))
    return blocks


def block_matrices(names: Sequence[str]) -> np.ndarray:
    """Positions of each compliance [parameter, block, n, n], 1 or 0, with an additional empty block."""
    blocks = _blocks(names)
    position = {end: (i, k) for i, block in enumerate(blocks) for k, end in enumerate(block)}
    n = max(map(len, blocks))
    found = np.zeros((len(names), len(blocks) + 1, n, n))
    for i, name in enumerate(names):
        (block, a), (_, b) = (position[end] for end in ends_of(name))
        found[i, block, [a, b], [b, a]] = 1.0
    return found


def joints_and_links(names: Sequence[str], values: np.ndarray) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Compliances of joints by name, and compliance matrices [6, 6] of links by name."""
    joints, links = {}, {}
    for name, value in zip(names, values.tolist(), strict=True):
        spring, _, entry = name.partition(" ")
        if entry:
            a, b = (ELASTIC_AXES.index(axis) for axis in entry.split(","))
            links.setdefault(spring, np.zeros((6, 6)))[[a, b], [b, a]] = value
        else:
            joints[name] = value
    return joints, links
