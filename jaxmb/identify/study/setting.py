"""What the tests of a study stand in."""

from pathlib import Path
from typing import NamedTuple

from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.machine.build import Model, build_model
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine


class Setting(NamedTuple):
    """What the tests of a study stand in."""

    file: StudyFile
    """The whole study."""
    folder: Path
    """What paths are relative to."""
    whole: Machine
    """The study's machine, nothing locked."""
    model: Model
    """The machine that is fitted."""
    noise_seed: int | None
    """Seed of simulated noise instead of the study's own."""


def machine_named(name: str, folder: Path) -> Machine:
    """Built-in machine, or one in a file; a relative path is beside the study."""
    beside = folder / name
    return load_machine(beside if beside.suffix in (".toml", ".urdf") else name)


def measured_model(machine: str | None, setting: Setting) -> Model:
    """The machine that a simulated test is made of: another one, or the study's own with nothing locked."""
    return build_model(setting.whole if machine is None else machine_named(machine, setting.folder))
