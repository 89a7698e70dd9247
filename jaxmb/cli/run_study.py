"""Commands on studies and results: `jaxmb identify`, `jaxmb inspect` and `jaxmb report`."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, NoReturn

import typer

from jaxmb.cli.console import (
    NOT_CONVERGED,
    PROCESS_LOST,
    Out,
    WrongInput,
    console_of,
    deliver,
    move_aside,
    print_sections,
    print_written,
    progress,
    say,
    say_interrupted,
    writable,
    write_report_files,
    writing,
    wrong_input,
)
from jaxmb.io.validation import check_choice, error_location

if TYPE_CHECKING:
    from jaxmb.identify.assess.result import Result
    from jaxmb.identify.assess.uncertainty.monte_carlo import Draws
    from jaxmb.identify.fit.loop import Report
    from jaxmb.identify.study.format.study_format import StudyFile
    from jaxmb.report.page import Page
    from jaxmb.report.section import Section

LARGEST_SEED = 2**63 - 1
PAGE, DRAWS = "report.html", ("draws.npz", "bootstrap.npz")


class IdentifyOptions(NamedTuple):
    """Options of `jaxmb identify`."""

    study: Annotated[str, typer.Argument(help="Built-in study, or path of a study file.", show_default=False)]
    out: Out = None
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the search and the starts.")] = 0
    noise_seed: Annotated[
        int | None,
        typer.Option(min=0, max=LARGEST_SEED, help="Seed of simulated noise.", show_default="the study's own"),
    ] = None
    preset: Annotated[
        str | None,
        typer.Option(help="Published method: default, huynh2020 or rognant2010.", show_default="the study's own"),
    ] = None
    search: Annotated[
        str | None,
        typer.Option(
            help="Population search: auto, random (none), cmaes, de, pso or another evosax algorithm.",
            show_default="the study's own",
        ),
    ] = None
    profile: Annotated[
        list[str] | None,
        typer.Option(help="Parameter or pattern for a profile of the cost, minimized over all other parameters."),
    ] = None
    draws: Annotated[
        int | None,
        typer.Option(min=2, help="Number of Monte-Carlo draws about the identified machine; writes draws.npz."),
    ] = None
    bootstrap: Annotated[
        int | None,
        typer.Option(min=2, help="Number of bootstrap draws of the residual; writes bootstrap.npz."),
    ] = None
    resume: Annotated[bool, typer.Option("--resume", help="Continue from the saved state of an interrupted run.")] = (
        False
    )
    report: Annotated[bool, typer.Option("--report", help="Write report.html as well, see `jaxmb report`.")] = False
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Join a run of several processes, see docs/cluster.md.")
    ] = False


def identify(options: IdentifyOptions) -> None:
    """Identify the free parameters of a study; write result.json, machine.toml, study.toml and figures."""
    from jaxmb import native

    file, path = _study_file(options)  # errors in the file are reported before JAX is imported
    folder = Path("results") / path.stem if options.out is None else options.out
    state = folder / "state.npz"
    if options.distributed:
        continue_in_child(state)
    native.begin()

    from jaxmb.identify.assess.identify import identify as run
    from jaxmb.identify.assess.saved import MACHINE, MJCF, PARAMETERS, POSES, RESULT, STUDY, URDF, write_result
    from jaxmb.identify.assess.uncertainty.nonlinear import profiled, with_profiles
    from jaxmb.identify.fit.devices import is_first
    from jaxmb.identify.fit.search import algorithm_named
    from jaxmb.identify.study.study import make_study
    from jaxmb.report.page import REPORT
    from jaxmb.report.result_sections import sections

    with wrong_input():
        if options.distributed:
            join_others(state)
        if options.search is not None:
            with error_location("--search"):
                algorithm_named(options.search)
        with progress(path.stem, "reading the study"):
            study = make_study(file, path.stem, path.parent, str(path), options.noise_seed)
        if options.profile:
            profiled(study, options.profile)

    def identified(report: "Callable[[Report], None] | None" = None) -> "Result":
        result = run(study, options.seed, state, options.resume, report)
        return with_profiles(result, options.profile) if options.profile else result

    asked = (("draws", options.draws), ("bootstrap", options.bootstrap))
    resampling = [(name, count) for name, count in asked if count is not None]
    if options.distributed and not is_first():  # takes part in all computations of the first process
        with wrong_input(), collective():
            result = identified()
            for name, count in resampling:
                _drawn(result, count, name)
            return
    writable(folder, (RESULT, MACHINE, STUDY))
    with writing(folder):
        if options.resume and not state.exists():
            console_of().print(f"no saved state in {folder}: starting from the beginning", soft_wrap=True)
        elif not options.resume:
            state.unlink(missing_ok=True)  # an early interruption must not offer the state of another run
        try:
            with wrong_input(), collective(), progress(study.name, "compiling") as line:
                result = identified(lambda report: line(_stage(report)))
            aside = move_aside(folder, (RESULT, PARAMETERS, MACHINE, POSES, URDF, MJCF, STUDY, REPORT, PAGE, *DRAWS))
            written = write_result(result, folder)
        except KeyboardInterrupt:
            raise typer.Exit(say_interrupted(state)) from None
        state.unlink(missing_ok=True)
        shown = sections(result)
        print_sections(shown)
        for name, count in resampling:  # before the figures, which would delay other processes
            written = [*written, _draw(result, count, name, folder)]
        written = [*written, *_report_files(result, shown, folder, options.report)]
    print_written(folder, written, aside)
    if not result.converged:
        reason = [text for text in result.doubts[:1] if text not in result.status]
        raise typer.Exit(say("; ".join([result.status, *reason]), NOT_CONVERGED))


def _study_file(options: IdentifyOptions) -> "tuple[StudyFile, Path]":
    """The study file and its path, after a check of the options."""
    from jaxmb.identify.study.format.study_format import PRESETS, read_study_file

    with wrong_input():
        if options.report:
            check_page()
        if options.preset is not None:
            check_choice("--preset", options.preset, PRESETS)
        return read_study_file(options.study, options.preset, options.search)


def _report_files(result: "Result", shown: "Sequence[Section]", folder: Path, page: bool) -> list[str]:
    """Write the sections as data, their figures, and the report page if wanted; returns the names of the files."""
    written = write_report_files(result.study.name, folder, shown)
    if page:
        from jaxmb.report.result_page import result_page

        with progress(result.study.name, "writing the report"):
            write_page(result_page(result, folder), folder / PAGE)
        written.append(PAGE)
    return written


def _draw(result: "Result", count: int, name: str, folder: Path) -> str:
    """Fit `count` draws about the result, print their table and write them; returns the name of the file."""
    from jaxmb.identify.assess.uncertainty.monte_carlo import write_draws
    from jaxmb.report.parameters import draws_sections

    with wrong_input(), collective(), progress(result.study.name, name) as line:
        found = _drawn(result, count, name, lambda done, of: line(f"{name}: {done} of {of}"))
    what = "draws of the residual" if name == "bootstrap" else "draws of the noise"
    print_sections(draws_sections(found, result, what))
    write_draws(folder / f"{name}.npz", found)
    return f"{name}.npz"


def _drawn(result: "Result", count: int, name: str, report: "Callable[[int, int], None] | None" = None) -> "Draws":
    """Fits to `count` draws about the result, by all processes together."""
    from jaxmb.identify.assess.uncertainty import monte_carlo as drawn

    if name == "bootstrap":
        return drawn.bootstrap(result, count, result.seed, report)
    truth = {name: parameter.value for name, parameter in result.parameters.items()}
    return drawn.monte_carlo(result.study, count, result.seed, truth, report=report)


def _stage(report: "Report") -> str:
    return (
        f"round {report.round} of at most {report.rounds}, {report.stage}, {report.evaluations} evaluations,"
        f" best cost {report.cost:.4g}"
    )


LOST = (
    "another process of this run ended or cannot be reached: restart all of them, with --resume to continue from the"
    " saved state if there is one"
)
JOINING_S = 4.0
"""Time that a process interrupted during its start waits until it has joined the others and can notify them, s."""
LISTENING_S = 1.0
"""Delay before another process is reported lost, s: if it was interrupted, `_end_with_interrupted` ends this one."""
_joined = threading.Event()


@contextmanager
def collective() -> Iterator[None]:
    """Context of a collective computation: ends this process if another one is lost, as it would wait forever."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError:
        if jax.process_count() == 1:
            raise
        time.sleep(LISTENING_S)
        say(LOST, PROCESS_LOST)
        os._exit(PROCESS_LOST)


def continue_in_child(state: Path) -> None:
    """Continue in a child process; this one waits for it and exits with its exit code.

    JAX aborts all processes when the first one is lost, from a thread of its own and without a message; the parent
    prints it. Call this before JAX is imported. It does nothing on platforms without fork.

    Args:
        state: file of the saved state, for the message about an interruption.
    """
    if not hasattr(os, "fork"):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    ours, of_parent = os.pipe()
    child = os.fork()
    if child:
        _watch(child)
    os.close(of_parent)
    threading.Thread(target=_end_with_parent, args=(ours,), daemon=True).start()
    received, noted = os.pipe()
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noted)
    for number in _ending():
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_end_by_signal, args=(received, state), daemon=True).start()


def join_others(state: Path) -> None:
    """Join a distributed run; this process ends with the others when one of them is interrupted.

    Args:
        state: as in `continue_in_child`.

    Raises:
        ValueError: see `jaxmb.identify.fit.devices.join`.
    """
    from jaxmb.identify.fit.devices import join

    join()
    threading.Thread(target=_end_with_interrupted, args=(state,), daemon=True).start()
    _joined.set()


def _ending() -> tuple[signal.Signals, ...]:
    return signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def _watch(child: int) -> NoReturn:
    for number in _ending():
        signal.signal(number, lambda received, _: os.kill(child, received))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGABRT:
        code = say(LOST, PROCESS_LOST)
    os._exit(code if code >= 0 else 128 - code)


def _end_with_parent(pipe: int) -> None:
    """End this process when its parent was killed."""
    os.read(pipe, 1)
    os._exit(PROCESS_LOST)


def _end_by_signal(received: int, state: Path) -> None:
    """End all processes of the run, or this one if it cannot reach the others."""
    number = os.read(received, 1)[0]
    if _joined.wait(JOINING_S):
        from jaxmb.identify.fit.devices import interrupt_all

        if interrupt_all(number):
            return  # `_end_with_interrupted` ends this process too
    os._exit(say_interrupted(state, number))


def _end_with_interrupted(state: Path) -> None:
    from jaxmb.identify.fit.devices import is_first, wait_for_interruption

    number = wait_for_interruption()
    if number is not None:
        os._exit(say_interrupted(state if is_first() else None, number))


def inspect(
    study: Annotated[str, typer.Argument(help="Built-in study, or path of a study file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder for inspect.json and figures.", show_default="none: tables alone")
    ] = None,
) -> None:
    """Predict the identifiability of parameters before measuring, and propose the next tests."""
    from jaxmb.identify.study.format.study_format import read_study_file

    with wrong_input():
        file, path = read_study_file(study)  # errors in it are reported before JAX is imported

    from jaxmb.identify.plan.inspection import inspect as run
    from jaxmb.identify.study.study import make_study
    from jaxmb.report.inspection import inspection_sections

    with wrong_input(), progress(path.stem, "reading the study"):
        loaded = make_study(file, path.stem, path.parent, str(path))
    if out is not None:
        writable(out, ("inspect.json",))
    with wrong_input(), progress(loaded.name, "compiling and differentiating"):
        inspection = run(loaded)
    shown = inspection_sections(inspection)
    if out is None:
        print_sections(shown)
    else:
        deliver(loaded.name, out, shown, {"inspect.json": inspection.json_text().encode()})


def report(
    results: Annotated[
        list[Path],
        typer.Argument(help="Output folders of jaxmb identify, modal, map, inspect or predict.", show_default=False),
    ],
    out: Annotated[Path, typer.Option(help="HTML file of the report.")] = Path("report.html"),
) -> None:
    """Write the results of earlier commands as one HTML file that needs no network; compare several identifications."""
    check_page()
    if out.is_dir():
        raise WrongInput(f"{out}: is a folder, expected an HTML file or none")
    from jaxmb.report.result_page import page_of_folders

    with wrong_input(), progress(out.stem, "reading the results") as line:
        write_page(page_of_folders(results, line), out)
    typer.echo(f"written: {out}")


def check_page() -> None:
    """Raise WrongInput if a page cannot be made."""
    from jaxmb.report.page import plotly_folder

    try:
        plotly_folder()
    except ModuleNotFoundError as error:
        raise WrongInput(str(error)) from None


def write_page(page: "Page", path: Path) -> None:
    """Write a page as one HTML file."""
    from jaxmb.io.files import write_atomically
    from jaxmb.report.page import page_html

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page_html(page).encode())
