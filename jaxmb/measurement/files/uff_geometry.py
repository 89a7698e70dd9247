"""Positions of nodes in a universal file: datasets 15 and 2411."""

import dataclasses
import re
from typing import BinaryIO

from jaxmb.measurement.files.uff_datasets import Dataset, at
from jaxmb.measurement.files.uff_function import through_pyuff
from jaxmb.measurement.files.uff_units import Units

MOST_BYTES = 20_000_000
FIELDS = 7


@dataclasses.dataclass
class Positions:
    """Positions of nodes, collected from the datasets of one file."""

    by_node: dict[str, tuple[float, float, float]] = dataclasses.field(default_factory=dict)
    """In the file's unit of length."""
    local: bool = False
    """Whether some are stated in another coordinate system than the first, as dataset 15 may."""
    has_systems: bool = False
    """Whether the file defines coordinate systems (datasets 18, 2420)."""

    def in_metres(self, system: Units | None) -> dict[str, tuple[float, float, float]]:
        """Positions in m; as they stand where the file states no units.

        Those in coordinate systems that the file defines are left out.
        """
        if self.local and self.has_systems:
            return {}
        per_metre = 1.0 if system is None else system.per_metre
        return {node: (x / per_metre, y / per_metre, z / per_metre) for node, (x, y, z) in self.by_node.items()}


def read_positions(file: BinaryIO, dataset: Dataset, positions: Positions) -> None:
    """Add the nodes of a dataset 15 or 2411.

    Raises:
        ValueError: a record is not what it must be, or a node stands there twice.
    """
    place = at(dataset.line, dataset.number)
    size = dataset.end - dataset.start
    if size > MOST_BYTES:
        raise ValueError(f"{place}: has {size} bytes, expected at most {MOST_BYTES}")
    file.seek(dataset.start)
    # pyuff joins the lines of dataset 15 without a blank between them, and reads no exponents with a D
    lines = [re.sub(rb"(?<=[\d.])[Dd](?=[+-]?\d)", b"E", line.rstrip()) for line in file.read(size).splitlines()]
    numbers = b" ".join(lines).split()
    for number, line in enumerate(lines, start=dataset.line + 1):
        for word in line.split():
            try:
                float(word)
            except ValueError:
                found = word[:40].decode("ascii", "replace")
                raise ValueError(f"{place}, line {number}: found '{found}', expected a number") from None
    block = b"".join(b" " + line + b" \n" for line in lines)
    fields = through_pyuff(b"    -1\n%6d\n" % dataset.number + block + b"    -1\n")
    if fields is None or len(numbers) % FIELDS:
        raise ValueError(f"{place}: holds {len(numbers)} numbers, expected {FIELDS} for each node")
    for label, definition, x, y, z in zip(
        *(fields[name] for name in ("node_nums", "def_cs", "x", "y", "z")), strict=True
    ):
        if not float(label).is_integer():
            raise ValueError(f"{place}: the label of a node is {label}, expected a whole number")
        name = str(int(label))
        position = (float(x), float(y), float(z))
        if not all(abs(c) < 1e30 for c in position):
            raise ValueError(f"{place}: node {name} is at {position}, expected finite coordinates")
        if positions.by_node.setdefault(name, position) != position:
            raise ValueError(f"{place}: node {name} stands in the file at two positions")
        positions.local |= dataset.number == 15 and int(definition) > 1
