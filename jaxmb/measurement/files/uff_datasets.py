"""Datasets of a universal file, read line by line.

A universal file is a sequence of datasets, each between two lines with -1 in columns 1 to 6; the line after the first
mark holds the dataset's number. Only a binary dataset 58b holds data that are no lines; its header gives their size.

Source: SDRC I-DEAS universal file formats (University of Cincinnati, SDRL), datasets 58 and 58b.
"""

import dataclasses
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

MARK = b"    -1"
LONGEST_LINE = 10_000
HEADER_LINES = 11


@dataclasses.dataclass(frozen=True)
class Dataset:
    """One dataset of a file."""

    number: int
    binary: bool
    first: str
    """The line with the number; it has further fields if the dataset is binary."""
    line: int
    """Number of that line in the file."""
    function: int
    """1 for the first dataset 58 of the file; 0 for a dataset of another kind."""
    header: tuple[str, ...]
    """The records before the values of a dataset 58; empty for others."""
    data: bytes
    """Contents after the header, or after the line of the number where there is none."""

    @property
    def location(self) -> str:
        """Location in the file, for messages."""
        location = f"line {self.line}, dataset {self.number}"
        return f"function {self.function} ({location})" if self.function else location


def datasets(file: BinaryIO, data_bytes: Callable[[Dataset], int]) -> Iterator[Dataset]:
    """The datasets of a universal file in sequence.

    Args:
        file: opened for reading bytes, at its beginning.
        data_bytes: number of bytes of values after the header of a binary dataset.

    Raises:
        ValueError: the file is no universal file, is truncated, or a binary dataset has another length than specified.
    """
    reader = _Lines(file)
    while line := reader.next():
        if not line.strip():
            continue
        if line.rstrip() != MARK:
            raise ValueError(f"line {reader.number}: found '{_shown(line)}', expected -1 in columns 5 and 6")
        first = reader.next()
        if not first:
            raise ValueError(f"line {reader.number}: the file ends after the mark -1, expected a dataset")
        yield _dataset(reader, text(first), data_bytes)


def text(line: bytes) -> str:
    """A line as text without its end; unprintable characters become blanks, which preserves the columns."""
    try:
        characters = line.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError:
        characters = line.rstrip(b"\r\n").decode("cp1252", "replace")  # encoding of western Windows programs
    return "".join(c if c.isprintable() else " " for c in characters)


class _Lines:
    """Reader that counts the lines of a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.number = 0
        self.functions = 0
        """Datasets 58 so far."""

    def next(self) -> bytes:
        """The next line with its end; empty at the end of the file."""
        line = self.file.readline(LONGEST_LINE)
        self.number += bool(line)
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            raise ValueError(f"line {self.number} has more than {LONGEST_LINE} characters, expected about 80")
        return line


def _dataset(reader: _Lines, first: str, data_bytes: Callable[[Dataset], int]) -> Dataset:
    digits = first[:6].strip()
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(
            f"line {reader.number}: found '{first[:80].strip()}', expected the number of a dataset in columns 1 to 6"
        )
    is_function = int(digits) == 58
    reader.functions += is_function
    function = reader.functions if is_function else 0
    dataset = Dataset(int(digits), first[6:7].lower() == "b", first, reader.number, function, (), b"")
    header: list[str] = []
    for record in range(1, HEADER_LINES + 1) if is_function else ():
        found = reader.next()
        if not found.endswith(b"\n") or found.rstrip() == MARK:
            how = "the dataset ends" if found.rstrip() == MARK else "the file ends"
            raise ValueError(f"{dataset.location}: {how} before the end of record {record} of {HEADER_LINES}")
        header.append(text(found))
    dataset = dataclasses.replace(dataset, header=tuple(header))
    if dataset.binary:
        if not is_function:
            raise ValueError(f"line {dataset.line}: dataset {digits} is binary, expected that of 58 only")
        return dataclasses.replace(dataset, data=_binary_data(reader, dataset, data_bytes(dataset)))
    data = bytearray()
    while found := reader.next():
        if found.rstrip() == MARK:
            return dataclasses.replace(dataset, data=bytes(data))
        data += found
    raise ValueError(
        f"{dataset.location}: the file ends at line {reader.number} before its end mark -1: it is truncated"
    )


def _binary_data(reader: _Lines, dataset: Dataset, size: int) -> bytes:
    """Binary data, verified by the mark after them."""
    following = os.fstat(reader.file.fileno()).st_size - reader.file.tell()
    if following < size:
        raise ValueError(
            f"{dataset.location}: {following} bytes of data follow, expected {size}: the file is truncated"
        )
    data = reader.file.read(size)
    reader.number += data.count(b"\n")
    closing = reader.next()
    if not closing.strip():  # some programs end the data with a line end
        closing = reader.next()
    if closing.rstrip() != MARK:
        raise ValueError(
            f"{dataset.location}: found '{_shown(closing)}' after {size} bytes of data, expected the mark -1:"
            f" the number of points or the precision contradicts record 7"
        )
    return data


def _shown(line: bytes) -> str:
    return text(line)[:80].strip()
