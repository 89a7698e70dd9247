"""Study files and their machines, found and checked: what is wrong in one is reported before JAX is imported."""

import os
from pathlib import Path
from typing import Any

from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.io.files import find_description, library_names, read_toml
from jaxmb.io.validation import place, validated
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine


def study_names() -> tuple[str, ...]:
    """Names of the studies that come with jaxmb."""
    return library_names("studies")


def study_data(name_or_path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the file of a study says, as plain data: to be changed and given to `make_study`.

    Raises:
        InputError: there is no such file, or it is no TOML.
    """
    return read_toml(find_description(name_or_path, "studies", "study", (".toml",)))


def read_study_file(name_or_path: str | os.PathLike[str], preset: str | None = None) -> tuple[StudyFile, Path]:
    """Description of a study, and the file that it is in.

    Args:
        name_or_path: "kr90-modelled", "studies/mine.toml".
        preset: method instead of the study's own: "default" or "huynh2020".

    Raises:
        InputError: there is no such file, or what it or its machine's says cannot be; one sentence says where.
    """
    path = find_description(name_or_path, "studies", "study", (".toml",))
    data = read_toml(path) | ({} if preset is None else {"preset": preset})
    file = validated(StudyFile, data, str(path))
    with place(str(path)):
        machine_named(file.machine, path.parent)
    return file, path


def machine_named(name: str, folder: Path) -> Machine:
    """Built-in machine, or one in a file; a relative path is beside the study."""
    beside = folder / name
    return load_machine(beside if beside.suffix in (".toml", ".urdf") else name)
