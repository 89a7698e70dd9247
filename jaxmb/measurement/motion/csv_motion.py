"""Recorded motions and torques from CSV files, or from recordings at the motors described by a TOML file."""

import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from jaxmb.io.files import csv_table, find_description, is_number, read_toml
from jaxmb.io.validation import (
    InputError,
    check_distinct,
    check_known,
    check_without_unit,
    error_location,
    known_name,
    validated,
)
from jaxmb.machine.values import Angle, Name, NonZero, Number, Part, Positive
from jaxmb.measurement.motion.record import PARTS, TEMPERATURE, Drives, MotionRecord, check_record
from jaxmb.measurement.records.file import data_path, read_columns
from jaxmb.measurement.records.schema import DataFile, PublicData
from jaxmb.measurement.records.spectra import check_finite

CURRENTS = ("current", "currents", "i")


def read_motion(
    path: str | Path,
    coordinates: Sequence[str],
    even: bool = True,
    gear_ratios: Mapping[str, float] = types.MappingProxyType({}),
) -> MotionRecord:
    """A recorded motion: columns `time_s`, coordinates by name, `<name>.velocity`, `<name>.acceleration`,
    `<name>.torque`, `temperature`.

    Args:
        path: of a CSV file.
        coordinates: names of the machine's coordinates.
        even: whether the time steps have to be even.
        gear_ratios: of motor shafts among the coordinates, by name.

    Raises:
        InputError: the file cannot be read, or a column or a number is invalid; the message names the line.
    """
    heads, rows = csv_table(Path(path), "numbers")
    with error_location(str(path)):
        _check_heads(heads, coordinates)
    try:
        if any("_" in "".join(row) for _, row in rows):
            raise ValueError
        table = np.array([row for _, row in rows], dtype=float)
    except ValueError:
        cells = ((number, head, cell) for number, row in rows for head, cell in zip(heads, row, strict=True))
        number, head, cell = next(each for each in cells if not is_number(each[2]))
        raise InputError(f"{path}: line {number}: {head} is '{cell}', expected a number") from None
    columns = dict(zip(heads, table.T, strict=True))
    names = tuple(name for name in coordinates if name in columns)
    absent = np.full(len(table), np.nan)

    measured = {
        what: np.stack([columns.get(f"{name}.{what}", absent) for name in names], axis=1)
        for what in PARTS
        if what == "torque" or any(f"{name}.{what}" in columns for name in names)
    }
    record = MotionRecord(
        time_s=columns["time_s"],
        names=names,
        position=np.stack([columns[name] for name in names], axis=1),
        effort=measured["torque"],
        velocity=measured.get("velocity"),
        acceleration=measured.get("acceleration"),
        temperature=columns.get(TEMPERATURE),
    )
    with error_location(str(path)):
        check_record(record, even, gear_ratios)
    return record


def write_motion(path: str | Path, record: MotionRecord) -> None:
    """Write a record as a CSV file for `read_motion` and torque tests; columns of NaN are omitted.

    Args:
        path: of the CSV file; an existing one is replaced.
        record: motion to write.
    """
    columns = record.columns
    table = np.stack(list(columns.values()), axis=1)
    np.savetxt(path, table, fmt="%.17g", delimiter=",", header=",".join(columns), comments="")


def _check_heads(heads: Sequence[str], coordinates: Sequence[str]) -> None:
    if all(map(is_number, heads)):
        expected = ["time_s", *coordinates, *(f"{name}.torque" for name in coordinates)]
        raise ValueError(
            f"line 1 holds the numbers {', '.join(heads[:3])}, ... and no column names, expected a heading such as"
            f" {','.join(expected)}"
        )
    if "time_s" not in heads:
        raise ValueError(f"columns are {', '.join(heads)}, expected time_s among them")
    check_distinct(heads, "column '{}' occurs twice, expected it once")
    check_without_unit(heads, coordinates)
    for head in heads:
        name, _, what = head.partition(".")
        if head not in ("time_s", TEMPERATURE) and name not in coordinates:
            names = (*coordinates, *(f"{name}.torque" for name in coordinates), "time_s", TEMPERATURE)
            raise ValueError(known_name("column", head, names))
        if what.lower() in CURRENTS:
            raise ValueError(
                f"column '{head}' is a current, expected '{name}.torque' in N m or N; currents belong in a TOML"
                " description of recordings at the motors, whose [[drive]] has gain (N m per unit) and ratio;"
                " an unknown gain is free as drive_gain.<drive>"
            )
        if what and what not in PARTS:
            raise ValueError(known_name(f"column '{head}': signal", what, PARTS))
        if what and name not in heads:
            raise ValueError(f"column '{head}' has no column '{name}' of positions")
    if not set(heads) & set(coordinates):
        raise ValueError(f"columns are {', '.join(heads)}, expected coordinates among them: {', '.join(coordinates)}")


MOST_DRIVES = 100


class Signals(DataFile):
    """Signals of one file, one column per drive."""

    columns: tuple[Annotated[int, Field(ge=1, strict=True)], ...] = Field(min_length=1, max_length=MOST_DRIVES)
    """Column numbers of the drives in their order, from 1."""
    unit: Literal["rad", "deg"] = "rad"
    """Unit of angles, for `position` only: the unit of efforts is part of the drive's `gain`."""


class Drive(Part):
    """A motor with its gear; its angle is sum_i ratio_i q_i."""

    name: Name
    """Name of the motor."""
    ratio: dict[Name, NonZero] = Field(min_length=1)
    """Rotation of the recorded angle per unit of each coordinate; several for coupled axes [1, rad/m]."""
    gain: Number = 1.0
    """Motor torque per unit of the recorded signal, such as the torque constant for a current [N m over the unit of the
    signal]."""


class MotionFile(Part):
    """A motion recorded at the motors, with the transmission from the drives to the coordinates."""

    description: str = ""
    """Free text."""
    source: str = ""
    """Free text."""
    rate_hz: Positive
    """Samples per second."""
    public: PublicData | None = None
    """Source of published data."""
    position: Signals
    """Signals of the angles."""
    effort: Signals
    """Signals of the efforts."""
    drive: tuple[Drive, ...] = Field(min_length=1, max_length=MOST_DRIVES)
    """Motors with their gears, in the order of the columns."""
    zero: dict[Name, Angle] = {}
    """Coordinates at zero reading of the drives [rad, m]."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        for what, signals in (("position", self.position), ("effort", self.effort)):
            if len(signals.columns) != len(self.drive):
                raise ValueError(f"{what} has {len(signals.columns)} columns for {len(self.drive)} drives")
            if len(set(signals.columns)) != len(signals.columns):
                raise ValueError(f"{what} names a column twice, expected one for each drive")
            if signals.public is not None and self.public is None:
                raise ValueError("names public data, expected a table [public] with their repository")
        if "unit" in self.effort.model_fields_set:
            raise ValueError(
                f"effort has unit '{self.effort.unit}', expected none: gain of a drive is N m per unit of its signal"
            )
        check_distinct([drive.name for drive in self.drive], "drive '{}' occurs twice")
        return self


def read_described(
    name_or_path: str,
    folder: Path,
    coordinates: Sequence[str],
    gear_ratios: Mapping[str, float] = types.MappingProxyType({}),
) -> MotionRecord:
    """Motion of the coordinates from a description of recordings at the motors.

    With N the ratios [drive, coordinate]: q = N^-1 theta + zero and, by power balance, tau = N^T (gain x).

    Args:
        name_or_path: a built-in name, or a TOML file.
        folder: base of a relative path.
        coordinates: names of the machine's coordinates.
        gear_ratios: of motor shafts among the coordinates, by name.

    Raises:
        InputError: the description, or a file that it names, is invalid.
    """
    is_file = Path(name_or_path).suffix.lower() == ".toml"
    path = folder / name_or_path if is_file else find_description(name_or_path, "motions", "motion", (".toml",))
    about = validated(MotionFile, read_toml(path), str(path))
    with error_location(str(path)):
        record = _joint_motion(about, path.parent, coordinates)
        check_record(record, gear_ratios=gear_ratios)
    return record


def _joint_motion(about: MotionFile, folder: Path, coordinates: Sequence[str]) -> MotionRecord:
    used = {name for drive in about.drive for name in drive.ratio}
    check_known("coordinate", (*used, *about.zero), coordinates)
    names = tuple(name for name in coordinates if name in used)
    ratio = np.array([[drive.ratio.get(name, 0.0) for name in names] for drive in about.drive])
    if ratio.shape[0] != ratio.shape[1] or np.linalg.matrix_rank(ratio) < len(names):
        raise ValueError(
            f"{len(about.drive)} drives do not determine {', '.join(names)}, expected one drive per coordinate"
        )
    angles, efforts = (
        read_columns(data_path(signals, about.public, folder), signals.variable, signals.columns, about.rate_hz)
        for signals in (about.position, about.effort)
    )
    if len(angles) != len(efforts):
        raise ValueError(f"position has {len(angles)} samples and effort {len(efforts)}, expected the same number")
    for what, signals in (("position", angles), ("effort", efforts)):
        for drive, column in zip(about.drive, signals.T, strict=True):
            check_finite(f"{what} of drive '{drive.name}'", column)
    if about.position.unit == "deg":
        angles = np.radians(angles)
    zero = np.array([about.zero.get(name, 0.0) for name in names])
    gain = np.array([drive.gain for drive in about.drive])
    drives = Drives(tuple(drive.name for drive in about.drive), ratio, gain, efforts)
    return MotionRecord(
        time_s=np.arange(len(angles)) / about.rate_hz,
        names=names,
        position=np.linalg.solve(ratio, angles.T).T + zero,
        effort=drives.effort,
        drives=drives,
    )
