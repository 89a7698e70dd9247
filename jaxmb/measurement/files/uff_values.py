"""The values of one function of a universal file: text through pyuff, a piece at a time, and bytes through NumPy."""

import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO

import numpy as np

from jaxmb.measurement.files.uff_function import DOUBLE, VALUES, Function, function_block, through_pyuff

TEXT_PIECE = 4_000_000
"""Bytes of text given to pyuff at once: it needs some ten times as many."""
BINARY_PIECE = 250_000
BYTE_ORDERS = {1: "<", 2: ">"}
"""By the field of dataset 58b: little endian (DEC, Intel), big endian (IBM, HP, Sun)."""
IEEE_754 = 2

Piece = tuple[int, np.ndarray | None, np.ndarray]
"""Number of the first point, abscissa (None where even) and values."""


def binary_size(function: Function) -> int:
    """Bytes of data that a dataset 58b with this header has.

    Raises:
        ValueError: the line of the number says that they are others, or in another form than IEEE numbers.
    """
    header = function.dataset.first[7:].ljust(73)
    names = ("byte order", "floating point format", "number of header lines", "number of data bytes")
    ends = (0, 6, 12, 24, 36)
    found = [header[a:b].strip() for a, b in itertools.pairwise(ends)]
    for name, field in zip(names, found, strict=True):
        if not (field.isascii() and field.isdigit()):
            raise ValueError(f"{function.place}: {name} is '{field}', expected a whole number")
    order, form, lines, declared = map(int, found)
    if order not in BYTE_ORDERS or form != IEEE_754 or lines != 11:
        raise ValueError(
            f"{function.place}: byte order {order}, format {form}, {lines} header lines,"
            f" expected 1 or 2, 2 (IEEE 754), 11"
        )
    size = function.points * _numbers_per_point(function) * _width(function)
    # pyuff states the bytes of the real parts alone, and no others' programs care
    if declared not in (size, function.points * _width(function)):
        raise ValueError(
            f"{function.place}, record 7, line {function.dataset.line + 7}: {function.points} points have {size} bytes,"
            f" but line {function.dataset.line} says {declared}"
        )
    return size


def pieces(file: BinaryIO, function: Function) -> Iterator[Piece]:
    """The values of a function, in pieces.

    Raises:
        ValueError: a value is no number, or there are not as many as the header says; the message names the line.
    """
    return _binary_pieces(file, function) if function.dataset.binary else _text_pieces(file, function)


def _binary_pieces(file: BinaryIO, function: Function) -> Iterator[Piece]:
    per_point = _numbers_per_point(function)
    order = BYTE_ORDERS[int(function.dataset.first[7:13])]
    file.seek(function.dataset.start)
    for start in range(0, function.points, BINARY_PIECE):
        count = min(BINARY_PIECE, function.points - start)
        data = file.read(count * per_point * _width(function))
        if len(data) != count * per_point * _width(function):
            raise ValueError(f"{function.place}: the file changed while it was read")
        numbers = np.frombuffer(data, dtype=f"{order}f{_width(function)}").astype(float).reshape(count, per_point)
        yield (
            start,
            None if function.even else numbers[:, 0],
            _values(function, numbers[:, 0 if function.even else 1 :]),
        )


def _text_pieces(file: BinaryIO, function: Function) -> Iterator[Piece]:
    widths = _widths(function)
    line, done, left = function.dataset.data_line, 0, function.dataset.end - function.dataset.start
    file.seek(function.dataset.start)
    while left > 0:
        raw = file.readlines(min(left, TEXT_PIECE))
        size = sum(map(len, raw))
        while size > left:  # readlines goes on to the end of a line, and takes more than one
            size -= len(raw.pop())
        file.seek(function.dataset.end - left + size)
        left -= size
        lines = [x.rstrip() for x in raw]
        if any(len(x) not in widths for x in lines):
            _name_wrong_line(function, lines, line, widths)
        lines_there = [x for x in lines if x]
        if not lines_there:
            continue
        fields = through_pyuff(function_block(function, lines_there))
        if fields is None:
            _name_wrong_line(function, lines, line, widths)
            raise ValueError(f"{function.place}: the values from line {line} on cannot be read")
        values = np.asarray(fields["data"])
        if done + len(values) > function.points:
            raise ValueError(_miscount(function, "more follow"))
        if sum(widths[len(x)] for x in lines_there) != len(values) * _numbers_per_point(function):
            raise ValueError(f"{function.place}: a value is not whole before line {line + len(raw)}")
        yield done, None if function.even else np.asarray(fields["x"]), values
        done += len(values)
        line += len(raw)
    if done != function.points:
        raise ValueError(_miscount(function, f"{done} follow"))


def _miscount(function: Function, found: str) -> str:
    where = f"{function.place}, record 7, line {function.dataset.line + 7}"
    return f"{where}: says {function.points} points, but {found}"


def _values(function: Function, numbers: np.ndarray) -> np.ndarray:
    """Values [point] from their real numbers [point, part]."""
    if VALUES[function.data_type] == 1:
        return numbers[:, 0]
    values = np.empty(len(numbers), complex)  # not real + 1j * imaginary, which makes NaN of one infinite part
    values.real, values.imag = numbers[:, 0], numbers[:, 1]
    return values


def _numbers_per_point(function: Function) -> int:
    return VALUES[function.data_type] + (0 if function.even else 1)


def _width(function: Function) -> int:
    return 8 if function.data_type in DOUBLE else 4


def _widths(function: Function) -> dict[int, int]:
    """Lengths that a line of values may have, and how many numbers it holds then."""
    if function.data_type not in DOUBLE:
        columns = [13] * 6
    elif function.even:
        columns = [20] * 4
    else:
        columns = [13, 20] * 2 if function.data_type == 4 else [13, 20, 20]
    allowed = {sum(columns[:n]): n for n in range(len(columns) + 1)}
    if function.data_type == 6 and not function.even:
        return {0: 0, 53: 3}
    return {k: n for k, n in allowed.items() if function.data_type != 4 or function.even or n % 2 == 0}


def _name_wrong_line(function: Function, lines: list[bytes], first: int, widths: dict[int, int]) -> None:
    """Raise ValueError at the first line that does not hold numbers in the columns of its format."""
    longest = sorted(widths)
    for number, line in enumerate(lines, start=first):
        if len(line) not in widths:
            raise ValueError(
                f"{function.place}, line {number}: the values end in column {len(line)},"
                f" expected one of {', '.join(map(str, longest[1:]))} for ordinate data type {function.data_type}"
            )
        start = 0
        for end in [x for x in _ends(function) if x <= len(line)]:
            field = line[start:end].strip()
            if not re.fullmatch(
                rb"[+-]?(\d+\.?\d*|\.\d+)([eEdD][+-]?\d+)?|[+-]?(nan|inf|infinity)", field, re.IGNORECASE
            ):
                shown = field.decode("ascii", "replace")
                raise ValueError(
                    f"{function.place}, line {number}: found '{shown}' in columns {start + 1} to {end},"
                    f" expected a number"
                )
            start = end


def _ends(function: Function) -> list[int]:
    if function.data_type not in DOUBLE:
        return [13 * k for k in range(1, 7)]
    if function.even:
        return [20 * k for k in range(1, 5)]
    return [13, 33, 46, 66] if function.data_type == 4 else [13, 33, 53]
