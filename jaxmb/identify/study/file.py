"""Study files and their machines, found and checked: errors in them are reported before JAX is imported."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.io.files import find_description, library_names, read_toml
from jaxmb.io.validation import Table, error_location, validated
from jaxmb.machine.file import ENDINGS, load_machine
from jaxmb.machine.schema import Machine

PATHS = ("file", "machine", "prior_from")
"""Keys of a study file whose values may be paths."""


def study_names() -> tuple[str, ...]:
    """Names of the studies that come with jaxmb."""
    return library_names("studies")


def study_data(name_or_path: str | os.PathLike[str]) -> Table:
    """What the file of a study says, as plain data: to be changed and given to `make_study`.

    Raises:
        InputError: there is no such file, or it is no TOML.
    """
    return read_toml(find_description(name_or_path, "studies", "study", (".toml",)))


def read_study_file(
    name_or_path: str | os.PathLike[str], preset: str | None = None, search: str | None = None
) -> tuple[StudyFile, Path]:
    """Description of a study, and the file that it is in.

    Args:
        name_or_path: "kr90-modelled", "studies/mine.toml".
        preset: method instead of the study's own: "default", "huynh2020" or "rognant2010".
        search: algorithm of the population search instead of the study's own.

    Raises:
        InputError: there is no such file, or what it or its machine's says cannot be; one sentence says where.
    """
    path = find_description(name_or_path, "studies", "study", (".toml",))
    data = read_toml(path)
    if preset is not None:
        data = {key: value for key, value in data.items() if key != "method"} | {"preset": preset}
    if search is not None:
        own = data.get("search")
        data["search"] = (own if isinstance(own, dict) else {}) | {"algorithm": search}
    file = validated(StudyFile, data, str(path))
    with error_location(str(path)):
        machine_named(file.machine, path.parent)
    return file, path


def machine_named(name: str, folder: Path) -> Machine:
    """Built-in machine, or one in a file; a path is relative to the study's folder."""
    path = folder / name
    return load_machine(path if path.suffix in ENDINGS else name)


def plain_study(file: StudyFile, folder: Path, path_as: Callable[[Path], Any]) -> Table:
    """A description as the plain data of a study file.

    Args:
        file: the description.
        folder: paths in it are relative to this one.
        path_as: replaces the path of a file.
    """
    data = file.model_dump(mode="json", exclude_unset=True, exclude_none=True, warnings=False)
    return _with_paths(data, folder, path_as)


def study_digest(file: StudyFile, folder: Path) -> str:
    """SHA-256 of a description and of the contents of the files that it names, in whatever folder these are."""
    return hashlib.sha256(
        json.dumps(plain_study(file, folder, _contents), sort_keys=True, default=str).encode()
    ).hexdigest()


def _contents(path: Path) -> list[Any]:
    """Name and contents of a file; of a description, its plain data."""
    if path.suffix == ".toml":
        return [path.name, _with_paths(read_toml(path), path.parent, _contents)]
    with path.open("rb") as file:
        return [path.name, hashlib.file_digest(file, "sha256").hexdigest()]


def _with_paths(value: Any, folder: Path, path_as: Callable[[Path], Any]) -> Any:
    if isinstance(value, list):
        return [_with_paths(entry, folder, path_as) for entry in value]
    if not isinstance(value, dict):
        return value
    changed = {key: _with_paths(entry, folder, path_as) for key, entry in value.items()}
    for key in PATHS:
        # what is no file is the name of something that comes with jaxmb
        if isinstance(changed.get(key), str) and (folder / changed[key]).is_file():
            changed[key] = path_as(folder / changed[key])
    return changed
