"""The machine of a command: built-in, from a file, or from the folder of an identification."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from jaxmb.cli.console import progress

if TYPE_CHECKING:
    from jaxmb.machine.build import Model

RobotArgument = Annotated[
    str,
    typer.Argument(
        help="Built-in machine, path of a .toml or .urdf, or output folder of jaxmb identify.", show_default=False
    ),
]
FRAME_DEFAULT = "tool, or the machine's only end frame"
"""Default frame, see `jaxmb.mechanics.kinematics.frame_name`."""


class Robot(NamedTuple):
    """The machine of a command."""

    name: str
    model: "Model"
    result: Path | None
    """Folder of the identification it was loaded from; None for others."""

    def folder(self, out: Path | None, command: str) -> Path:
        """Output folder of a command: `out` if given, else in the folder of the result, else results/NAME."""
        if out is not None:
            return out
        return Path("results") / self.name if self.result is None else self.result / command


def find_robot(name_or_path: str) -> Robot:
    """The machine by built-in name, path of a file, or folder of a result.

    Raises:
        ValueError: there is no such machine, or its description is wrong.
        NotImplementedError: the description uses an unsupported feature.
    """
    from jaxmb.machine.file import RESULT_FILE, load_machine, result_folder

    machine = load_machine(name_or_path)
    from jaxmb.mechanics.postures import build_model  # errors in the file are reported before JAX is imported

    folder = result_folder(name_or_path)
    if folder is not None and (folder / RESULT_FILE).exists():
        from jaxmb.identify.assess.saved import read_saved

        read_saved(folder / RESULT_FILE, others=True)
    with progress(machine.name, "building the model"):
        model = build_model(machine)
    return Robot(machine.name, model, folder)
