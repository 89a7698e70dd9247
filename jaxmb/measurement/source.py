"""Measured FRFs from a file of FRFs, or estimated from time records."""

import os
from pathlib import Path

from jaxmb.io.validation import InputError
from jaxmb.measurement.files.frf_file import READERS, read_frf_and_remarks
from jaxmb.measurement.records.file import Estimate, estimate_of_records, measurement_names


def measured_frf(name_or_path: str | os.PathLike[str], folder: Path | None = None) -> Estimate:
    """FRFs, with remarks, from a file of FRFs, a TOML file that describes time records, or a built-in measurement.

    Args:
        name_or_path: "hammer.uff", "hammer.toml", "daisy-subframe".
        folder: base of a relative path; the current directory where not given.

    Raises:
        InputError: it is none of these, or its content is invalid; the message names the location.
    """
    text = os.fspath(name_or_path)
    path = Path(text) if folder is None else folder / text
    if text in measurement_names():
        return estimate_of_records(text)
    if path.suffix.lower() == ".toml":
        return estimate_of_records(path)
    if path.suffix.lower() not in READERS:
        names = ", ".join(measurement_names())
        raise InputError(f"{path}: expected a file ending in {', '.join(READERS)} or .toml, or one of {names}")
    return Estimate(*read_frf_and_remarks(path))
