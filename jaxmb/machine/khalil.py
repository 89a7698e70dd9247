"""Machines from two tables: geometry in the notation of Khalil and Kleinfinger, and the beams of their bodies.

A row of the geometry places frame R_i, with z_i along the axis of joint i, in the frame of the body before it:

    T = Rz(gamma) Tz(b) Rx(alpha) Tx(d) Rz(theta) Tz(r)

where theta is the variable of a revolute joint (sigma = 0), r that of a prismatic joint (sigma = 1), and sigma = 2 is a
fixed frame. The beams of a body are laid end to end from the origin of its frame. A body is attached to the node of the
body before it through which its joint axis passes; where there is none, the body before it is rigid up to the joint.

Source: Rognant et al. 2010, eq. 1 and 13, Tables I to III; Khalil and Kleinfinger 1986.
"""

import ast
import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator

from jaxmb.io.files import csv_table
from jaxmb.io.validation import Table, check_distinct, check_known, error_location, validated
from jaxmb.machine.elements import origin_table, pose_matrix
from jaxmb.machine.schema import Machine
from jaxmb.machine.values import GROUND, Number, Part, by_level, in_order_of_need

OPERATORS = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
LONGEST = 200
LARGEST_POWER = 10.0


def values_of(symbols: Mapping[str, float | str]) -> dict[str, float]:
    """Values of symbols, each a number or an expression of others.

    Raises:
        ValueError: an expression is invalid, or definitions of symbols are circular.
    """
    if "pi" in symbols:
        raise ValueError("symbols: pi has its own value, expected another name")
    needs, found = dict[str, set[str]](), dict[str, float]()
    for name, expression in symbols.items():
        with error_location(f"symbols: {name}"):
            needs[name] = names_in(expression) & symbols.keys()
    for name in in_order_of_need(needs, "symbols: definitions"):
        with error_location(f"symbols: {name}"):
            found[name] = value_of(symbols[name], found)
    return found


def value_of(expression: float | str, symbols: Mapping[str, float]) -> float:
    """Value of a number, or of an expression with + - * / **, parentheses, pi and symbols.

    Raises:
        ValueError: the expression is invalid, or has a symbol without a value.
    """
    if isinstance(expression, bool) or not isinstance(expression, int | float | str):
        raise ValueError(f"found {expression!r}, expected a number or an expression")
    text = isinstance(expression, str)
    number = _value(_parsed(expression).body, expression, symbols) if text else float(expression)
    if not math.isfinite(number):
        raise ValueError(f"'{expression}' is {number}, expected a finite number")
    return number


def names_in(expression: float | str) -> set[str]:
    """Symbols of an expression, without pi."""
    if not isinstance(expression, str):
        return set()
    return {node.id for node in ast.walk(_parsed(expression)) if isinstance(node, ast.Name)} - {"pi"}


def _parsed(text: str) -> ast.Expression:
    expected = 'expected arithmetic such as "Lp/3"'
    if len(text) > LONGEST:
        raise ValueError(f"an expression has {len(text)} characters, expected at most {LONGEST}")
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"'{text}' is no expression, {expected}") from None


def _value(node: ast.expr, text: str, symbols: Mapping[str, float]) -> float:
    match node:
        case ast.Constant(int() | float() as number) if not isinstance(number, bool):
            return float(number)
        case ast.Name("pi"):
            return math.pi
        case ast.Name(name):
            if name not in symbols:
                raise ValueError(f"'{text}': the symbol '{name}' has no value")
            return symbols[name]
        case ast.UnaryOp(op, operand) if type(op) in OPERATORS:
            return OPERATORS[type(op)](_value(operand, text, symbols))
        case ast.BinOp(left, op, right) if type(op) in OPERATORS:
            a, b = _value(left, text, symbols), _value(right, text, symbols)
            if isinstance(op, ast.Pow) and abs(b) > LARGEST_POWER:
                raise ValueError(f"'{text}': the power {b:g} is larger than {LARGEST_POWER:g}")
            try:
                result = OPERATORS[type(op)](a, b)
            except (ZeroDivisionError, OverflowError):
                raise ValueError(f"'{text}' has no finite value") from None
            if isinstance(result, complex):
                raise ValueError(f"'{text}' has no real value")
            return result
        case _:
            raise ValueError(f"'{text}' has other elements than numbers, symbols, + - * / ** and parentheses")


GEOMETRY = ("joint", "a", "mu", "sigma", "gamma", "b", "alpha", "d", "theta", "r")
TRANSFORM = ("gamma", "b", "alpha", "d", "theta", "r")
BEAM = ("body", "beam", "length", "section", "phi", "theta", "psi")
JOINTS = {0.0: ("revolute", "theta", "rz"), 1.0: ("prismatic", "r", "z"), 2.0: ("fixed", "", "")}
"""Type of the joint, its variable, and the axis of a spring along it, by sigma."""
SPRING_AXES = {
    "x": ("prismatic", (1.0, 0.0, 0.0)), "y": ("prismatic", (0.0, 1.0, 0.0)), "z": ("prismatic", (0.0, 0.0, 1.0)),
    "rx": ("revolute", (1.0, 0.0, 0.0)), "ry": ("revolute", (0.0, 1.0, 0.0)), "rz": ("revolute", (0.0, 0.0, 1.0)),
}  # fmt: skip
COINCIDENT = 1e-9
"""Distance up to which nodes coincide, m."""

Label = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, int) else value)]
Springs = dict[Label, dict[Literal["x", "y", "z", "rx", "ry", "rz"], Any]]
"""Stiffness or damping by joint and axis."""


class KhalilTables(Part):
    """`[khalil]`: geometry and beams of a flexible manipulator; see `machine_from_tables`."""

    geometry: Any
    """Rows, or the name of a CSV file."""
    beams: Any = ()
    """Rows, or the name of a CSV file."""
    symbols: Table = {}
    """Numbers or expressions by name."""
    sections: dict[Label, Table] = {}
    """Keys of a `[[beam]]` by name of the section."""
    chains: dict[str, Table] = {}
    """Symbols by name of the chain."""
    loops: tuple[tuple[str, str], ...] = ()
    """Pairs of coincident frames."""
    stiffness: Springs = {}
    """By joint, in the axes of its frame [N/m, N m/rad]."""
    damping: Springs = {}
    """By joint, likewise [N s/m, N m s/rad]."""
    loss_factor: Number = 0.0
    """eta of structural damping of springs and beams [1]."""


Segment = tuple[np.ndarray, np.ndarray, Table]
"""Pose of a beam's start and end in its body's frame, and its row."""
TableSource = str | os.PathLike[str] | Iterable[Table]


def machine_from_tables(
    name: str,
    geometry: TableSource,
    beams: TableSource = (),
    symbols: Mapping[str, float | str] | None = None,
    sections: Mapping[str, Table] | None = None,
    chains: Mapping[str, Mapping[str, float | str]] | None = None,
    loops: Sequence[tuple[str, str]] = (),
    stiffness: Mapping[str, Mapping[str, float]] | None = None,
    damping: Mapping[str, Mapping[str, float]] | None = None,
    loss_factor: float = 0.0,
    **machine: Any,
) -> Machine:
    """Machine of a geometry table and a beam table.

    Coordinate, body, frame R_i and beams of joint 3 of chain "a" are called q3-a, body3-a, R3-a and beam3_1-a; without
    chains q3, body3, R3 and beam3_1. A joint's springs, where it has any, are coordinates q3_x-a ... q3_ry-a behind it,
    in the axes of R_i (eq. 24).

    Args:
        name: of the machine.
        geometry: rows, or a CSV file, with joint, a (joint of the body before, 0 for the ground), mu (1 for a driven
            joint), sigma, gamma, b, alpha, d, theta, r; angles in rad. The joint variable has its value at zero
            displacement; a symbol that begins with q is the joint's own coordinate.
        beams: rows, or a CSV file, with body, beam, length, section, phi, theta, psi (yaw, pitch and roll about z, y
            and x of the body's frame), and elements where that is not 1.
        symbols: by name, numbers or expressions.
        sections: by name, the keys of a `[[beam]]`: area, second_moment_y, young_modulus, density ...
        chains: chains of the same table by name, each with its own symbols.
        loops: pairs of coincident frames, such as ("R7-a", "R8-a").
        stiffness: by joint, "x", "y", "z" [N/m], "rx", "ry", "rz" [Nm/rad] in the axes of R_i; of all chains.
        damping: of the same springs, likewise.
        loss_factor: eta of structural damping of all these springs, and of beams whose section has none of its own.
        machine: the other keys of a machine file (posture, payload, gravity ...); further bodies, beams and frames
            follow those of the tables.

    Raises:
        ValueError: a row is invalid; the message names the table and the row.
    """
    tables = {
        "geometry": geometry, "beams": beams, "symbols": symbols or {}, "sections": sections or {},
        "chains": chains or {}, "loops": list(loops), "stiffness": stiffness or {}, "damping": damping or {},
        "loss_factor": loss_factor,
    }  # fmt: skip
    return validated(Machine, {"name": name, "khalil": tables} | machine, f"machine '{name}'", prepare=expand_khalil)


def expand_khalil(data: Table, folder: str | os.PathLike[str] = "") -> Table:
    """Contents of a machine file with its `[khalil]` tables, if any, expanded to bodies, beams, frames and loops.

    Args:
        data: the contents; `[khalil]` has the arguments of `machine_from_tables`.
        folder: folder of the machine file, to which paths of CSV files are relative.

    Raises:
        ValueError: a row is invalid; the message names the table and the row.
    """
    if "khalil" not in data:
        return data
    tables = validated(KhalilTables, data["khalil"], "khalil")
    rows = _rows(tables.geometry, "geometry", GEOMETRY, (), folder)
    beam_rows = _rows(tables.beams, "beams", BEAM, ("elements",), folder)
    parts: dict[str, list[Any]] = {"body": [], "beam": [], "frame": [], "independent": []}
    for chain, chain_symbols in (tables.chains or {"": {}}).items():
        known = values_of(tables.symbols | chain_symbols)
        suffix = f"-{chain}" if chain else ""
        _Chain(tables, rows, beam_rows, known, suffix, parts).add_bodies()
    parts["loop"] = [{"name": f"{a}_{b}", "frame_a": a, "frame_b": b, "type": "fixed"} for a, b in tables.loops]
    if not parts["loop"]:
        parts.pop("independent")
    rest = {key: value for key, value in data.items() if key != "khalil"}
    for key, first in parts.items():
        further = rest.get(key, [])
        rest[key] = [*first, *further] if isinstance(further, list | tuple) else further
    return rest


class _Chain:
    """One chain of bodies, added to the parts of a machine."""

    def __init__(
        self,
        tables: KhalilTables,
        rows: list[Table],
        beam_rows: list[Table],
        symbols: Mapping[str, float],
        suffix: str,
        parts: dict[str, list[Any]],
    ) -> None:
        self.rows, self.beam_rows, self.symbols, self.suffix, self.parts = rows, beam_rows, symbols, suffix, parts
        self.sections, self.loss_factor = tables.sections, tables.loss_factor
        self.springs: dict[str, Mapping[str, Mapping[Any, float]]] = {
            "stiffness": tables.stiffness,
            "damping": tables.damping,
        }
        self.nodes: dict[str, list[tuple[np.ndarray, str]]] = {"0": [(np.eye(4), GROUND)]}
        """Nodes of each body: pose in R_i and name of the machine's frame; the body's own frame first."""

    def add_bodies(self) -> None:
        """Add all bodies of the chain to the parts."""
        names = [str(row["joint"]) for row in self.rows]
        check_distinct(names, "geometry: joint '{}' occurs twice, expected each once")
        moving = [str(row["joint"]) for row in self.rows if str(row["sigma"]).strip() not in ("2", "2.0")]
        for row in self.rows:
            check_known(f"geometry: joint {row['joint']}: a: joint", [str(row["a"])], ["0", *names])
        check_known("beams: body: moving joint", (str(row["body"]) for row in self.beam_rows), moving)
        for key, joints in self.springs.items():
            check_known(f"{key}: moving joint", joints, moving)
        in_order_of_need({str(row["joint"]): [str(row["a"])] for row in self.rows}, "geometry: joints")
        for row in by_level(self.rows, lambda row: str(row["a"]), self.nodes):
            self._add_body(row)

    def _add_body(self, row: Table) -> None:
        joint = str(row["joint"])
        kind = self._number(row, "sigma")
        if kind not in JOINTS:
            raise ValueError(f"geometry: joint {joint}: sigma is {row['sigma']}, expected 0, 1 or 2")
        kind_name, variable, own_axis = JOINTS[kind]
        gamma, b, alpha, d, theta, r = (self._number(row, key, variable=key == variable) for key in TRANSFORM)
        to_axis = pose_matrix([0, 0, b], [0, 0, gamma]) @ pose_matrix(rpy=[alpha, 0, 0])
        frame = to_axis @ pose_matrix([d, 0, 0]) @ pose_matrix([0, 0, r], [0, 0, theta])
        previous_nodes = self.nodes[str(row["a"])]
        if not variable:
            on, carrier = min(previous_nodes, key=lambda node: float(np.linalg.norm(node[0][:3, 3] - frame[:3, 3])))
            self._frame(f"R{joint}", carrier, np.linalg.inv(on) @ frame)
            self.nodes[joint] = [(np.linalg.inv(frame) @ on, carrier)]
            return
        segments = self._segments(joint)
        root, on, carrier = self._connection(previous_nodes, frame, segments)
        base = frame @ pose_matrix([0, 0, root])
        names = {key: f"{key}{joint}{self.suffix}" for key in ("q", "body")}
        springs = {
            axis: {key: joints.get(joint, {}).get(axis, 0.0) for key, joints in self.springs.items()}
            for axis in SPRING_AXES
        }
        # an axis with a stiffness or a damper has a coordinate, in the axes of R_i, which turn with the joint
        axes = [axis for axis, values in springs.items() if axis != own_axis and any(values.values())]
        coordinates = [
            {"name": f"q{joint}_{axis}{self.suffix}", "type": SPRING_AXES[axis][0], "axis": SPRING_AXES[axis][1]}
            | springs[axis] | {"loss_factor": self.loss_factor}
            for axis in axes
        ]  # fmt: skip
        loss_factor = self.loss_factor if springs[own_axis]["stiffness"] else 0.0
        coordinates.insert(0, {"name": names["q"], "type": kind_name, "loss_factor": loss_factor} | springs[own_axis])
        self.parts["body"].append(
            {
                "name": names["body"],
                "parent": carrier,
                "origin": origin_table(np.linalg.inv(on) @ base),
                "joint": coordinates,
            }
        )
        driven = self._number(row, "mu")
        if driven not in (0.0, 1.0):
            raise ValueError(f"geometry: joint {joint}: mu is {row['mu']}, expected 0 or 1")
        if driven:
            self.parts["independent"].append(names["q"])
        self._frame(f"R{joint}", names["body"], pose_matrix([0, 0, -root]))
        self.nodes[joint] = [(pose_matrix([0, 0, root]), names["body"])]
        self._beams(joint, segments, root)

    def _connection(
        self,
        previous_nodes: list[tuple[np.ndarray, str]],
        frame: np.ndarray,
        segments: list[tuple[np.ndarray, np.ndarray, Any]],
    ) -> tuple[float, np.ndarray, str]:
        """Coordinate along the joint axis where a body is attached [m], and pose and name of the carrying node."""
        for point in [np.zeros(3), *(end[:3, 3] for _, end, _ in segments)]:
            position = frame[:3, :3] @ point + frame[:3, 3]
            for on, carrier in previous_nodes[1:]:
                if np.hypot(*point[:2]) < COINCIDENT and np.linalg.norm(on[:3, 3] - position) < COINCIDENT:
                    return float(point[2]), on, carrier
        on, carrier = min(previous_nodes, key=lambda node: float(np.linalg.norm(node[0][:3, 3] - frame[:3, 3])))
        return 0.0, on, carrier

    def _segments(self, joint: str) -> list[Segment]:
        """Pose of the start and end of each beam of a body in its frame, and its row."""
        found = []
        start = np.zeros(3)
        for row in self.beam_rows:
            if str(row["body"]) == joint:
                angles = [self._number(row, key, f"beams: body {joint}") for key in ("psi", "theta", "phi")]
                length = self._number(row, "length", f"beams: body {joint}")
                begin = pose_matrix(start, angles)
                end = begin @ pose_matrix([length, 0, 0])
                found.append((begin, end, dict(row) | {"length": length}))
                start = end[:3, 3]
        return found

    def _beams(self, joint: str, segments: list[Segment], root: float) -> None:
        """Add the beams of a body, in both directions away from the node at which it is attached."""
        points = [np.zeros(3), *(end[:3, 3] for _, end, _ in segments)]
        at = [i for i, point in enumerate(points) if np.linalg.norm(point - [0.0, 0.0, root]) < COINCIDENT]
        attached = at[0] if at else 0
        # a beam laid from its end is rotated by pi about z, which does not change its section
        back = [(end @ pose_matrix(rpy=[0, 0, np.pi]), begin @ pose_matrix(rpy=[0, 0, np.pi]), row)
                for begin, end, row in reversed(segments[:attached])]  # fmt: skip
        for branch in (segments[attached:], back):
            on, carrier = self.nodes[joint][0]
            for begin, end, row in branch:
                section = str(row["section"])
                check_known(f"beams: body {joint}: section", [section], self.sections)
                name = f"beam{joint}_{row['beam']}{self.suffix}"
                # the node's pose is that of its frame, which for a body is at its attachment
                self.parts["beam"].append(
                    {"name": name, "body": carrier, "origin": origin_table(np.linalg.inv(on) @ begin),
                     "length": row["length"], "elements": self._elements(row), "loss_factor": self.loss_factor}
                    | dict(self.sections[section])
                )  # fmt: skip
                on, carrier = end, name
                self.nodes[joint].append((on, carrier))

    def _elements(self, row: Table) -> int:
        text = row.get("elements")
        number = 1.0 if text in (None, "") else self._number(row, "elements", f"beams: body {row['body']}")
        if not (number >= 1.0 and number.is_integer()):
            raise ValueError(f"beams: body {row['body']}: elements is {text}, expected a whole number of at least 1")
        return int(number)

    def _frame(self, name: str, body: str, pose: np.ndarray) -> None:
        self.parts["frame"].append({"name": f"{name}{self.suffix}", "body": body, "origin": origin_table(pose)})

    def _number(self, row: Table, key: str, where: str = "geometry", variable: bool = False) -> float:
        value = row.get(key, 0.0)
        try:
            own = {name for name in names_in(value) - self.symbols.keys() if variable and name.startswith("q")}
            at_zero, at_half = (value_of(value, dict.fromkeys(own, x) | dict(self.symbols)) for x in (0.0, 0.5))
            if own and not math.isclose(at_half - at_zero, 0.5, rel_tol=1e-9):
                raise ValueError(f"found '{value}', expected the joint's coordinate, to which numbers may be added")
            return at_zero
        except ValueError as error:
            row_name = f"joint {row['joint']}: " if "joint" in row else ""
            raise ValueError(f"{where}: {row_name}{key}: {error}") from None


def _rows(
    table: Any, label: str, keys: Sequence[str], optional: Sequence[str], folder: str | os.PathLike[str]
) -> list[Table]:
    """Rows of a table with all its keys; a row may be a list of values in the order of the keys."""
    if isinstance(table, str | os.PathLike):
        path = Path(folder, table)
        heads, lines = csv_table(path, "a line for each row of the table")
        with error_location(str(path)):
            return _rows([dict(zip(heads, line, strict=True)) for _, line in lines], label, keys, optional, folder)
    if not isinstance(table, Iterable):
        raise ValueError(f"{label}: found {table!r}, expected rows or the name of a CSV file")
    rows = []
    for number, row in enumerate(table, 1):
        if isinstance(row, Mapping):
            named = dict(row)
        elif isinstance(row, list | tuple) and len(keys) <= len(row) <= len(keys) + len(optional):
            named = dict(zip((*keys, *optional), row, strict=False))
        else:
            raise ValueError(f"{label}: row {number} is {row!r}, expected {', '.join(keys)}")
        missing = [key for key in keys if named.get(key) in (None, "")]
        if missing:
            raise ValueError(f"{label}: row {number} has no {missing[0]}")
        check_known(f"{label}: row {number}: key", named, (*keys, *optional))
        rows.append(named)
    return rows
