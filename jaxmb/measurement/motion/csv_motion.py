"""Motions and torques in CSV files, a column for each signal."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from jaxmb.io.files import read_text
from jaxmb.io.validation import InputError, known_name, place
from jaxmb.measurement.motion.record import MotionRecord, check_record

TEMPERATURE = "temperature"
"""A column for the whole machine."""
PARTS = ("velocity", "acceleration", "torque")
CURRENTS = ("current", "currents", "i")


def read_motion(path: str | Path, coordinates: Sequence[str], even: bool = True) -> MotionRecord:
    """A recorded motion: columns `time_s`, coordinates by name, `<name>.velocity`, `<name>.acceleration`,
    `<name>.torque`, `temperature`.

    Args:
        path: of a CSV file.
        coordinates: names that its columns may have.
        even: whether its steps of time have to be even.

    Raises:
        InputError: the file cannot be read, a column or a number is wrong; the line is named.
    """
    lines = list(csv.reader(io.StringIO(read_text(Path(path)))))
    rows = [(number, row) for number, row in enumerate(lines, 1) if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise InputError(f"{path}: found {len(rows)} lines, expected a heading and numbers")
    heads = [cell.strip() for cell in rows[0][1]]
    with place(str(path)):
        _check_heads(heads, coordinates)
    table = np.empty((len(rows) - 1, len(heads)))
    for i, (number, row) in enumerate(rows[1:]):
        if len(row) != len(heads):
            raise InputError(f"{path}: line {number} has {len(row)} cells, expected {len(heads)} as in the heading")
        try:
            table[i] = [float(cell) for cell in row]
        except ValueError:
            wrong = next(k for k, cell in enumerate(row) if not _is_number(cell))
            raise InputError(f"{path}: line {number}: {heads[wrong]} is '{row[wrong]}', expected a number") from None
    columns = dict(zip(heads, table.T, strict=True))
    names = tuple(name for name in coordinates if name in columns)
    absent = np.full(len(table), np.nan)

    def part(what: str) -> np.ndarray:
        return np.stack([columns.get(f"{name}.{what}", absent) for name in names], axis=1)

    def measured(what: str) -> np.ndarray | None:
        return part(what) if any(f"{name}.{what}" in columns for name in names) else None

    record = MotionRecord(
        time_s=columns["time_s"],
        names=names,
        position=np.stack([columns[name] for name in names], axis=1),
        effort=part("torque"),
        velocity=measured("velocity"),
        acceleration=measured("acceleration"),
        temperature=columns.get(TEMPERATURE),
    )
    with place(str(path)):
        check_record(record, even)
    return record


def write_motion(path: str | Path, record: MotionRecord) -> None:
    """Write a record as a file that `read_motion` and torque tests read; columns of NaN are left out.

    Args:
        path: of a CSV file, which is replaced where there is one.
        record: the motion.
    """
    columns = {"time_s": record.time_s} | dict(zip(record.names, record.position.T, strict=True))
    parts = zip(PARTS, (record.velocity, record.acceleration, record.effort), strict=True)
    for what, values in parts:
        for name, column in zip(record.names, () if values is None else values.T, strict=values is not None):
            if not np.isnan(column).all():
                columns[f"{name}.{what}"] = column
    if record.temperature is not None:
        columns[TEMPERATURE] = record.temperature
    table = np.stack(list(columns.values()), axis=1)
    np.savetxt(path, table, fmt="%.17g", delimiter=",", header=",".join(columns), comments="")


def _check_heads(heads: Sequence[str], coordinates: Sequence[str]) -> None:
    if all(map(_is_number, heads)):
        wanted = ["time_s", *coordinates, *(f"{name}.torque" for name in coordinates)]
        raise ValueError(
            f"line 1 holds the numbers {', '.join(heads[:3])}, ... and no names of columns, expected a heading such as"
            f" {','.join(wanted)}"
        )
    if "time_s" not in heads:
        raise ValueError(f"columns are {', '.join(heads)}, expected time_s among them")
    for head in heads:
        if heads.count(head) > 1:
            raise ValueError(f"column '{head}' is there twice")
        name, _, what = head.partition(".")
        if head not in ("time_s", TEMPERATURE) and name not in coordinates:
            raise ValueError(known_name("column: coordinate", name, coordinates))
        if what.lower() in CURRENTS:
            raise ValueError(
                f"column '{head}' is a current, expected '{name}.torque' in Nm or N; currents belong in a TOML"
                " description of recordings at the motors, whose [[drive]] states gain (Nm for one unit) and ratio;"
                " an unknown gain is free as drive_gain.<drive>"
            )
        if what and what not in PARTS:
            raise ValueError(known_name(f"column '{head}': signal", what, PARTS))
        if what and name not in heads:
            raise ValueError(f"column '{head}' stands without one for '{name}'")


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
