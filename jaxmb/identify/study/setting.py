"""What the tests of a study stand in."""

from pathlib import Path
from typing import NamedTuple

from jaxmb.identify.study.file import machine_named
from jaxmb.identify.study.format.study_format import StudyFile
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model


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


def measured_model(machine: str | None, setting: Setting) -> Model:
    """The machine that a simulated test is made of: another one, or the study's own with nothing locked."""
    return build_model(setting.whole if machine is None else machine_named(machine, setting.folder))
