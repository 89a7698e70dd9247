"""The command `jaxmb`. What a command needs is imported inside of it, so that the others start fast."""

import math
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

    from jaxmb.identify.fit import Report

DONE, WRONG_INPUT, NOT_CONVERGED, INTERRUPTED = 0, 2, 3, 130
LARGEST_SEED = 2**63 - 1
LINE_EVERY_S = 5.0
"""Between two lines of progress where there is no terminal to draw in."""
PREDICTED_LINES = 1001
WIDTH = 120
"""Of tables that do not go to a terminal."""

# Typer brings its own copy of click or uses the installed one, by version; this is the base class in both.
UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Identify stiffness and damping of robots from frequency responses and modes.",
)
Out = Annotated[Path | None, typer.Option(help="Folder for the results.", show_default="results/NAME")]


class WrongInput(Exception):
    """What the user gave cannot be used; the message is the one line that is shown."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code of the command: 0 done, 2 wrong input, 3 a fit that did not converge, 130 interrupted."""
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="jaxmb", standalone_mode=False)
    except UsageError as error:
        return _say(error.format_message(), WRONG_INPUT)
    except WrongInput as error:
        return _say(str(error), WRONG_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _say("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else DONE


@app.callback(invoke_without_command=True)
def _start(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def studies() -> None:
    """List the studies that come with jaxmb."""
    from rich.table import Table
    from rich.text import Text

    from jaxmb.machine.file import find_description, library_names, read_toml

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="bold")
    table.add_column()
    for name in library_names("studies"):
        about = read_toml(find_description(name, "studies", "study", (".toml",)))
        table.add_row(Text(name), Text(str(about.get("description", ""))))
    _console().print(table)


@app.command()
def identify(
    study: Annotated[str, typer.Argument(help="Built-in study, or path of a study file.", show_default=False)],
    out: Out = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the search and the starts.")] = 0,
    noise_seed: Annotated[
        int | None,
        typer.Option(min=0, max=LARGEST_SEED, help="Seed of simulated noise.", show_default="the study's own"),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(help="Published method to use: default or huynh2020.", show_default="the study's own"),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the saved state of an interrupted run.")] = False,
) -> None:
    """Identify the free parameters of a study; write result.json, machine.toml and figures."""
    from jaxmb.identify.identify import identify as run
    from jaxmb.identify.presets import PRESETS
    from jaxmb.identify.study import load_study
    from jaxmb.machine.file import write_machine, write_whole
    from jaxmb.report.tables import result_tables

    with _input():
        if preset is not None and preset not in PRESETS:
            raise ValueError(f"--preset is '{preset}', expected one of {', '.join(PRESETS)}")
        problem = load_study(study, noise_seed, preset)
    folder = _writable(Path("results") / problem.name if out is None else out, ("result.json", "machine.toml"))
    state = folder / "state.npz"
    console = _console()
    with _writing(folder):
        if resume and not state.exists():
            console.print(f"no saved state in {folder}: starting anew", markup=False, highlight=False, soft_wrap=True)
        elif not resume:
            state.unlink(missing_ok=True)  # or an early interruption would offer to go on with another run
        try:
            with _input(), _progress(problem.name) as report:
                result = run(problem, seed, state, resume, report)
            write_whole(folder / "result.json", result.json_text().encode())
        except KeyboardInterrupt:
            if not state.exists():
                raise
            raise typer.Exit(
                _say(f"interrupted: the state is saved in {state}; the same command with --resume goes on", INTERRUPTED)
            ) from None
        state.unlink(missing_ok=True)
        write_machine(result.machine, folder / "machine.toml")
        console.print(result_tables(result, console.width))
        from jaxmb.report.plots import write_figures  # matplotlib, once the numbers are on the screen

        figures = write_figures(result, folder / "figures")
    written = ["result.json", "machine.toml", *(f"figures/{path.name}" for path in figures)]
    console.print(f"written in {folder}: {', '.join(written)}", markup=False, highlight=False, soft_wrap=True)
    if not result.converged:
        raise typer.Exit(_say(result.status, NOT_CONVERGED))


@app.command()
def predict(
    machine: Annotated[str, typer.Argument(help="Built-in machine, or path of a .toml or .urdf.", show_default=False)],
    out: Out = None,
    posture: Annotated[
        str, typer.Option(help='Coordinates, as "z2=70 deg,z3=-100 deg"; the others as in the reference posture.')
    ] = "",
    frame: Annotated[str, typer.Option(help="Where force and motion are.")] = "tool",
    band_hz: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lowest and highest frequency, Hz.", show_default="around the first modes"),
    ] = None,
    kind: Annotated[str, typer.Option(help="receptance, mobility or accelerance.")] = "accelerance",
) -> None:
    """Modes and frequency responses of a machine; write frf.npz and a figure."""
    import numpy as np

    from jaxmb.machine.build import build_model
    from jaxmb.machine.file import load_machine
    from jaxmb.measurement.frf_set import FrfSet
    from jaxmb.measurement.files import write_frf
    from jaxmb.mechanics.kinematics import posture as posture_of
    from jaxmb.mechanics.tangent import linearize
    from jaxmb.report.tables import predicted_modes_table
    from jaxmb.response.frf import check_kind, check_points, endpoints, frf
    from jaxmb.response.modal import check_mass_matrix, modes

    with _input():
        described = load_machine(machine)
        model = build_model(described)
        derivatives = check_kind(kind)
        points, _ = endpoints(frame, None, None)
        check_points(model, points)
        q = posture_of(model, _coordinates(posture))
        band = None if band_hz is None else _band(*band_hz)
        tangent = linearize(model, q)
        check_mass_matrix(np.asarray(tangent.mass), model.coordinates)
    folder = _writable(Path("results") / described.name if out is None else out, ("frf.npz",))
    found = modes(tangent)
    low_hz, high_hz = _band_around(np.asarray(found.frequency_hz).tolist()) if band is None else band
    frequency_hz = np.linspace(low_hz, high_hz, PREDICTED_LINES)
    h = np.asarray(frf(model, q, frequency_hz, frame, kind))  # pyright: ignore[reportArgumentType]  (checked)
    names = tuple(" ".join(point) for point in points)
    console = _console()
    console.print(predicted_modes_table(found, f"Modes of {described.name}"))
    with _writing(folder):
        write_frf(
            folder / "frf.npz",
            FrfSet(frequency_hz, h, kind, names, names, source=f"predicted for {described.name}"),  # pyright: ignore[reportArgumentType]
        )
        from jaxmb.report.frf_plot import Curve, frf_figure
        from jaxmb.report.style import FITTED, drawing, write_figure

        with drawing():
            curve = Curve("predicted", h, FITTED, 1.0, "-")
            figure = frf_figure(described.name, frequency_hz, [curve], points, points, derivatives)
            write_figure(figure, folder / "figures" / "frf.png")
    console.print(f"written in {folder}: frf.npz, figures/frf.png", markup=False, highlight=False, soft_wrap=True)


def _coordinates(text: str) -> dict[str, float]:
    """Values by coordinate from "z2=70 deg, z3=-1.7"."""
    from jaxmb.machine.schema import angle

    values: dict[str, float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, equals, value = (p.strip() for p in part.partition("="))
        if not equals:
            raise ValueError(f"posture: found '{part}', expected something like \"z2=70 deg\"")
        if name in values:
            raise ValueError(f"posture: '{name}' is given twice")
        try:
            number: float | str = float(value)
        except ValueError:
            number = value
        try:
            values[name] = angle(number)
        except ValueError as error:
            raise ValueError(f"posture: {name}: found '{value}', {error}") from None
    return values


def _band(low_hz: float, high_hz: float) -> tuple[float, float]:
    if not (math.isfinite(low_hz) and math.isfinite(high_hz)):
        raise ValueError(f"band_hz: {low_hz:g} to {high_hz:g} Hz, expected finite numbers")
    if low_hz < 0.0:
        raise ValueError(f"band_hz: {low_hz:g} Hz, expected 0 or more")
    if not low_hz < high_hz:
        raise ValueError(f"band_hz: {low_hz:g} to {high_hz:g} Hz, expected the lower end first")
    return low_hz, high_hz


def _band_around(frequency_hz: list[float]) -> tuple[float, float]:
    """A band that shows the first six modes well; 1 to 100 Hz for a machine that has none."""
    if not frequency_hz:
        return 1.0, 100.0
    return 0.2 * frequency_hz[0], 1.25 * frequency_hz[:6][-1]


@contextmanager
def _input() -> Iterator[None]:
    """Wrong input in one line instead of a traceback."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        raise WrongInput(str(error)) from error


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    """A file that cannot be written in one line instead of a traceback."""
    try:
        yield
    except OSError as error:
        raise WrongInput(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error


def _writable(folder: Path, files: tuple[str, ...]) -> Path:
    """The folder, made with its figures' if need be, after a trial that files can be written there."""
    with _writing(folder):
        for place in (folder, folder / "figures"):
            place.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=place):
                pass
        for name in files:
            if (folder / name).is_dir():
                raise WrongInput(f"{folder / name}: is a folder, expected a file or nothing")
    return folder


@contextmanager
def _progress(name: str) -> "Iterator[Callable[[Report], None]]":
    """What `identify` calls with its progress: a live line in a terminal, a plain line now and then elsewhere."""
    console = _console(stderr=True)
    if console.is_terminal:
        with console.status(f"{name}: compiling") as live:
            yield lambda report: live.update(f"{name}: {_progress_line(report)}")
        return
    shown = [time.monotonic()]

    def line(report: "Report") -> None:
        if time.monotonic() - shown[0] >= LINE_EVERY_S:
            shown[0] = time.monotonic()
            print(f"{name}: {_progress_line(report)}", file=sys.stderr, flush=True)

    yield line


def _progress_line(report: "Report") -> str:
    return (
        f"round {report.round} of at most {report.rounds}, {report.stage}, {report.evaluations} evaluations,"
        f" best cost {report.cost:.4g}"
    )


def _console(stderr: bool = False) -> "Console":
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=WIDTH)


def _say(message: str, code: int) -> int:
    """One line on stderr."""
    print(f"jaxmb: {' '.join(message.split())}", file=sys.stderr, flush=True)
    return code
