"""What all commands share: what they say, where they write, and how wrong input ends."""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

DONE, WRONG_INPUT, NOT_CONVERGED, ALONE, INTERRUPTED = 0, 2, 3, 4, 130
LINE_EVERY_S = 10.0
"""Between two lines of progress where there is no terminal to draw in."""
WIDTH = 120
"""Characters of a line that does not go to a terminal, where COLUMNS is not set."""
Out = Annotated[
    Path | None,
    typer.Option(help="Folder for the results; those that are there are replaced.", show_default="results/NAME"),
]


class WrongInput(Exception):
    """What the user gave cannot be used; the message is the one line that is shown."""


@contextmanager
def wrong_input() -> Iterator[None]:
    """Wrong input in one line instead of a traceback."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        raise WrongInput(str(error)) from error


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """A file that cannot be written in one line instead of a traceback."""
    try:
        yield
    except OSError as error:
        raise WrongInput(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error


def writable(folder: Path, files: tuple[str, ...]) -> Path:
    """The folder, made with its figures' if need be, after a trial that files can be written there."""
    with writing(folder):
        for place in (folder, folder / "figures"):
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                pass
        for name in files:
            if (folder / name).is_dir():
                raise WrongInput(f"{folder / name}: is a folder, expected a file or nothing")
    return folder


def console_of(stderr: bool = False) -> "Console":
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    known = console.is_terminal or "COLUMNS" in os.environ
    return console if known else Console(stderr=stderr, highlight=False, width=WIDTH)


@contextmanager
def progress(name: str, first: str) -> Iterator[Callable[[str], None]]:
    """What is called with what is being done: a live line in a terminal, a plain line now and then elsewhere.

    Args:
        name: of what it is done with.
        first: what is done at first.
    """
    console = console_of(stderr=True)
    if console.is_terminal:
        with console.status(f"{name}: {first}") as live:
            yield lambda text: live.update(f"{name}: {text}")
        return
    shown = [time.monotonic()]

    def line(text: str) -> None:
        if time.monotonic() - shown[0] >= LINE_EVERY_S:
            shown[0] = time.monotonic()
            print(f"{name}: {text}", file=sys.stderr, flush=True)

    yield line


def say(message: str, code: int) -> int:
    """One line on stderr."""
    print(f"jaxmb: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code
