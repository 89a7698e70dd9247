"""Machine files: validated reading and atomic writing."""

import hashlib
import os
from pathlib import Path

import tomli_w

from jaxmb.io.files import find_description, library_names, read_strict, read_text, read_toml, write_atomically
from jaxmb.io.validation import InputError, Table, error_location, typed_arguments, validated
from jaxmb.machine.khalil import expand_khalil
from jaxmb.machine.mjcf import machine_from_mjcf
from jaxmb.machine.schema import Machine
from jaxmb.machine.tables import expand_tables
from jaxmb.machine.urdf import machine_from_urdf

ENDINGS = (".toml", ".urdf", ".xml")
MACHINE_FILE = "machine.toml"
"""Name of the file of the identified machine in the folder of a result."""
RESULT_FILE = "result.json"


def load_machine(name_or_path: str | os.PathLike[str]) -> Machine:
    """Machine from a built-in name, a `.toml`, `.urdf` or `.xml` (MJCF) file, or the folder of a result.

    Args:
        name_or_path: "kuka-kr90", "robots/mine.toml", "robots/mine.urdf", or "results/mine", a folder that
            `jaxmb identify` wrote. The coordinates of a URDF have the names of its joints, its frames those of its
            links; those of an MJCF file the names of its joints, and of its bodies and sites.

    Raises:
        InputError: (a ValueError) the name or file does not exist, cannot be read, or describes no valid machine.
        NotImplementedError: the file uses an unsupported feature, such as a floating joint.
    """
    folder = result_folder(name_or_path)
    if folder is not None:
        check_machine(folder)
    path = find_description(name_or_path, "machines", "machine", ENDINGS) if folder is None else folder / MACHINE_FILE
    if path.suffix.lower() == ".xml":
        return machine_from_mjcf(path)
    if path.suffix.lower() == ".urdf":
        with error_location(str(path)):
            return machine_from_urdf(read_text(path), path.stem)

    def expand(data: Table) -> Table:
        if "test" in data and "machine" in data:
            raise ValueError("is a study, expected a machine, such as the one it names")
        return expand_tables(expand_khalil(data, path.parent))

    return validated(Machine, read_toml(path), str(path), prepare=expand)


def result_folder(name_or_path: str | os.PathLike[str]) -> Path | None:
    """Path of the result folder that the argument names; None for a built-in name or a file.

    Raises:
        InputError: the folder has no machine.toml.
    """
    text = os.fspath(name_or_path)
    folder = Path(text)
    # Unlike Path.is_dir, os.path.isdir returns False for a text that is no valid file name.
    if text in machine_names() or folder.suffix.lower() in ENDINGS or not os.path.isdir(text):
        return None
    if not (folder / MACHINE_FILE).is_file():
        expected = f"a file ending in {' or '.join(ENDINGS)}, or a folder that jaxmb identify wrote"
        raise InputError(f"{folder}: a folder without {MACHINE_FILE}, expected {expected}")
    return folder


def check_machine(folder: Path) -> None:
    """Raise InputError where the machine in a result folder differs from the identified one, by its digest.

    Results without a digest, from earlier versions, are accepted.
    """
    result, machine = folder / RESULT_FILE, folder / MACHINE_FILE
    if not (result.is_file() and machine.is_file()):
        return
    saved = read_strict(result, "a result of an identification")
    digest = saved.get("machine_digest") if isinstance(saved, dict) else None
    if digest not in (None, hashlib.sha256(machine.read_bytes()).hexdigest()):
        raise InputError(
            f"{machine}: was changed after {RESULT_FILE} was written, expected the identified machine; to use the"
            " changed machine, name this file instead of its folder"
        )


def machine_names() -> tuple[str, ...]:
    """Names of the built-in machines."""
    return library_names("machines")


@typed_arguments
def write_machine(machine: Machine, path: str | os.PathLike[str]) -> None:
    """Write a machine as TOML; `load_machine` reads the same machine back.

    Raises:
        ValueError: the name does not end in ".toml", by which `load_machine` knows the format.
        OSError: the file cannot be written; no partial file remains.
    """
    if Path(path).suffix != ".toml":
        raise ValueError(f"a machine is written as TOML, expected a name that ends in .toml, found '{path}'")
    write_atomically(path, machine_toml(machine).encode())


def machine_toml(machine: Machine) -> str:
    """A machine as TOML text, without entries that equal their defaults."""
    return tomli_w.dumps(machine.model_dump(mode="json", exclude_defaults=True, exclude_none=True))
