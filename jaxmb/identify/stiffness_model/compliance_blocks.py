"""Compliances by name, "q2" of a joint and "link1 y,rz" of a link, and the matrices that they make up."""

from collections.abc import Sequence

import numpy as np

from jaxmb.mechanics.kinematics import ELASTIC_AXES


def ends_of(name: str) -> tuple[str, str]:
    """The two degrees of freedom that a compliance is between: "link1 y,rz" is between "link1 y" and "link1 rz"."""
    spring, _, entry = name.partition(" ")
    a, _, b = entry.partition(",")
    return (f"{spring} {a}", f"{spring} {b}") if entry else (name, name)


def diagonal_of(end: str) -> str:
    """The compliance on the diagonal of one degree of freedom."""
    spring, _, axis = end.partition(" ")
    return f"{spring} {axis},{axis}" if axis else end


def is_diagonal(name: str) -> bool:
    """Whether a compliance stands on the diagonal of its matrix."""
    a, b = ends_of(name)
    return a == b


def _blocks(names: Sequence[str]) -> list[list[str]]:
    """Degrees of freedom by the smallest blocks that make their matrices block-diagonal."""
    blocks: list[list[str]] = []
    for name in names:
        ends = dict.fromkeys(ends_of(name))
        joined = [block for block in blocks if not ends.keys().isdisjoint(block)]
        blocks = [block for block in blocks if block not in joined]
        blocks.append(list(dict.fromkeys([*(end for block in joined for end in block), *ends])))
    return blocks


def block_matrices(names: Sequence[str]) -> np.ndarray:
    """Where each compliance stands [parameter, block, n, n]; one block more is left empty."""
    blocks = _blocks(names)
    place = {end: (i, k) for i, block in enumerate(blocks) for k, end in enumerate(block)}
    n = max(map(len, blocks))
    found = np.zeros((len(names), len(blocks) + 1, n, n))
    for i, name in enumerate(names):
        (block, a), (_, b) = (place[end] for end in ends_of(name))
        found[i, block, [a, b], [b, a]] = 1.0
    return found


def joints_and_links(names: Sequence[str], values: np.ndarray) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Compliances of joints, and matrices of links."""
    joints, links = {}, {}
    for name, value in zip(names, values.tolist(), strict=True):
        spring, _, entry = name.partition(" ")
        if entry:
            a, b = (ELASTIC_AXES.index(axis) for axis in entry.split(","))
            links.setdefault(spring, np.zeros((6, 6)))[[a, b], [b, a]] = value
        else:
            joints[name] = value
    return joints, links
