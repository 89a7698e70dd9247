"""Common to all commands: output, progress, result folders, and errors as one line."""

import inspect
import itertools
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from jaxmb.machine.build import Model
    from jaxmb.machine.schema import Machine
    from jaxmb.mechanics.tangent import LinearizeAt
    from jaxmb.report.section import Section

DONE, WRONG_INPUT, NOT_CONVERGED, PROCESS_LOST, INTERRUPTED = 0, 2, 3, 4, 130
FIRST_LINE_AFTER_S, LINE_EVERY_S = 2.0, 10.0
"""Delay of the first progress line and interval between lines without a terminal, s."""
WIDTH = 120
"""Line width without a terminal and without COLUMNS, characters."""
Out = Annotated[
    Path | None,
    typer.Option(
        help="Folder for the results; earlier results are moved to previous-1, -2, ... in it.",
        show_default="results/NAME",
    ),
]


def with_options(run: Callable[..., None]) -> Callable[..., None]:
    """A command of Typer with an option for each field of the named tuple that `run` takes as `options`."""
    options = inspect.signature(run, eval_str=True).parameters["options"].annotation

    def command(**values: object) -> None:
        run(options(**values))

    command.__name__, command.__doc__ = run.__name__, run.__doc__
    command.__signature__ = inspect.signature(options, eval_str=True)  # pyright: ignore[reportFunctionMemberAccess]
    return command


def names_in(text: str | None) -> tuple[str, ...] | None:
    """Names of an option, separated by commas."""
    return None if text is None else tuple(name.strip() for name in text.split(","))


class WrongInput(Exception):
    """The input is wrong; the message is printed as one line."""


@contextmanager
def wrong_input() -> Iterator[None]:
    """Context that turns errors from wrong input into one line instead of a traceback."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        raise WrongInput(str(error)) from error


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Context that turns write errors into one line instead of a traceback."""
    try:
        yield
    except OSError as error:
        raise WrongInput(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error


def writable(folder: Path, files: tuple[str, ...]) -> None:
    """Create the folder with its figures folder, and check that files can be written there."""
    with writing(folder):
        for path in (folder, folder / "figures"):
            path.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=path):
                pass
        for name in files:
            if (folder / name).is_dir():
                raise WrongInput(f"{folder / name}: is a folder, expected a file or none")


def move_aside(folder: Path, files: tuple[str, ...]) -> str:
    """Move the earlier result of a folder to a subfolder; returns a clause on it, empty without an earlier result.

    Args:
        folder: output folder of a command.
        files: output files of the command other than figures.
    """
    earlier = [name for name in files if (folder / name).exists()]
    if not earlier:
        return ""
    if any((folder / "figures").iterdir()):
        earlier.append("figures")
    previous = next(path for k in itertools.count(1) if not (path := folder / f"previous-{k}").exists())
    previous.mkdir()
    for name in earlier:
        (folder / name).rename(previous / name)
    return f"; the earlier result was moved to {previous.name}"


def deliver(
    name: str,
    folder: Path,
    sections: "Sequence[Section]",
    files: "Mapping[str, bytes | Callable[[Path], object]]",
    figure: Callable[[Path], Path] | None = None,
) -> None:
    """Print the sections of a command's report, and write its files and figures; an earlier result is moved aside.

    Args:
        name: of the machine or measurement.
        folder: output folder.
        sections: of the report.
        files: for each file name the contents, or the function that writes the file at a path.
        figure: writes a further figure in a folder and returns its path.
    """
    from jaxmb.io.files import write_atomically
    from jaxmb.report.page import REPORT

    written = (*files, REPORT)
    writable(folder, written)
    print_sections(sections)
    with writing(folder):
        aside = move_aside(folder, written)
        for file, content in files.items():
            if isinstance(content, bytes):
                write_atomically(folder / file, content)
            else:
                content(folder / file)
        figures = write_report_files(name, folder, sections)
        figures += [] if figure is None else [f"figures/{figure(folder / 'figures').name}"]
    print_written(folder, [*files, *figures], aside)


def print_sections(sections: "Sequence[Section]") -> None:
    """Print the sections of a report."""
    from jaxmb.report.terminal import on_terminal

    console = console_of()
    console.print(on_terminal(sections, console.width))


def write_report_files(name: str, folder: Path, sections: "Sequence[Section]") -> list[str]:
    """Write the sections of a command's report as data and their figures; returns the names of the files."""
    from jaxmb.report.page import REPORT, write_sections
    from jaxmb.report.rendering import write_pictures

    with progress(name, "drawing figures"):
        write_sections(folder / REPORT, name, shlex.join(["jaxmb", *sys.argv[1:]]), sections)
        return [REPORT, *(f"figures/{path.name}" for path in write_pictures(sections, folder / "figures"))]


def print_written(folder: Path, files: Sequence[str], aside: str) -> None:
    """Print the files written in a folder, and the clause of `move_aside`, as one line unless on a terminal."""
    console = console_of()
    console.print(f"written in {folder}: {', '.join(files)}{aside}", soft_wrap=not console.is_terminal)


def printable(text: str) -> str:
    """The text with characters other than printable ones, spaces and line breaks replaced by escape sequences.

    Text quoted from files must not control the terminal.
    """
    return "".join(
        c if c.isprintable() or c == "\n" or unicodedata.category(c) == "Zs" else c.encode("unicode_escape").decode()
        for c in text
    )


def console_of(stderr: bool = False) -> "Console":
    """A console that prints `printable` text without markup."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Escaping(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else segment._replace(text=printable(segment.text))

    console = Escaping(stderr=stderr, highlight=False, markup=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDTH
    return console


@contextmanager
def progress(name: str, first: str) -> Iterator[Callable[[str], None]]:
    """Context with a function that reports the current activity: a live line in a terminal, elsewhere a plain line on
    stderr after `FIRST_LINE_AFTER_S` and then every `LINE_EVERY_S`.

    Args:
        name: of the study or machine.
        first: the first activity.
    """
    console = console_of(stderr=True)
    if console.is_terminal:
        from rich.text import Text  # rich would read "[red]" in a name as a style

        with console.status(Text(_line(f"{name}: {first}"))) as live:
            yield lambda text: live.update(Text(_line(f"{name}: {text}")))
        return
    current, ended = [first], threading.Event()

    def print_lines() -> None:
        wait_s, start_s = FIRST_LINE_AFTER_S, time.monotonic()
        while not ended.wait(wait_s):
            elapsed = f"{time.monotonic() - start_s:.0f} s"
            print(_line(f"{name}: {current[0]}, {elapsed}"), file=sys.stderr, flush=True)
            wait_s = LINE_EVERY_S

    thread = threading.Thread(target=print_lines, daemon=True)
    thread.start()
    try:
        yield lambda text: current.__setitem__(0, text)
    finally:
        ended.set()
        thread.join()


def say(message: str, code: int) -> int:
    """Print one line on stderr and return the exit code."""
    print(_line(f"jaxmb: {message}"), file=sys.stderr, flush=True)
    return code


def _line(text: str) -> str:
    return printable(" ".join(text.split()))


def say_interrupted(state: Path | None, number: int = signal.SIGINT) -> int:
    """Print one line on stderr about an interrupted fit and its saved state, if any; returns the exit code."""
    saved = state is not None and state.exists()
    how = f": the state is saved in {state}; the same command with --resume continues" if saved else ""
    return say(f"interrupted{how}", 128 + number)


RobotArgument = Annotated[
    str,
    typer.Argument(
        help="Built-in machine, path of a .toml, .urdf or .xml (MJCF), or output folder of jaxmb identify.",
        show_default=False,
    ),
]
FRAME_DEFAULT = "tool, or the machine's only end frame"
"""Default frame, see `jaxmb.mechanics.kinematics.frame_name`."""


class Robot(NamedTuple):
    """The machine of a command."""

    name: str
    machine: "Machine"
    model: "Model"
    result: Path | None
    """Folder of the identification it was loaded from; None for others."""
    linearize_at: "LinearizeAt" = "posture"
    """Linearization point of the tests of that identification."""

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

    folder, at = result_folder(name_or_path), "posture"
    if folder is not None and (folder / RESULT_FILE).exists():
        from jaxmb.identify.assess.saved import read_saved

        saved = read_saved(folder / RESULT_FILE, others=True)
        if isinstance(saved, dict):
            at = saved.get("linearize_at", at)
            if (status := saved.get("status", "converged")) != "converged":
                say(f"{folder}: status of the identified machine: {status}", DONE)
    with progress(machine.name, "building the model"):
        model = build_model(machine)
    return Robot(machine.name, machine, model, folder, at)
