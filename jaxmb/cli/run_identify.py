"""`jaxmb identify`."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxmb.cli.console import (
    NOT_CONVERGED,
    Out,
    console_of,
    move_aside,
    progress,
    say,
    say_interrupted,
    writable,
    writing,
    wrong_input,
)
from jaxmb.cli.other_processes import go_on_watched, join_others, with_others

if TYPE_CHECKING:
    from jaxmb.identify.assess.result import Result
    from jaxmb.identify.assess.uncertainty.monte_carlo import Draws
    from jaxmb.identify.fit.loop import Report

LARGEST_SEED = 2**63 - 1


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
        typer.Option(help="Published method: default, huynh2020 or rognant2010.", show_default="the study's own"),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="Population search: auto, random (none), cmaes, de, pso or another evosax algorithm.",
            show_default="the study's own",
        ),
    ] = None,
    profile: Annotated[
        list[str] | None,
        typer.Option(help="Parameter or pattern for a profile of the cost, minimised over all other parameters."),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=2, help="Number of Monte-Carlo draws about the identified machine; writes draws.npz."),
    ] = None,
    bootstrap: Annotated[
        int | None,
        typer.Option(min=2, help="Number of bootstrap draws of the residual; writes bootstrap.npz."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the saved state of an interrupted run.")
    ] = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Join a run of several processes, see docs/cluster.md.")
    ] = False,
) -> None:
    """Identify the free parameters of a study; write result.json, machine.toml, study.toml and figures."""
    from jaxmb import native
    from jaxmb.identify.study.file import read_study_file
    from jaxmb.identify.study.presets import PRESETS

    with wrong_input():
        if preset is not None and preset not in PRESETS:
            raise ValueError(f"--preset is '{preset}', expected one of {', '.join(PRESETS)}")
        file, path = read_study_file(study, preset, search)  # errors in it are reported before JAX is imported
    folder = Path("results") / path.stem if out is None else out
    state = folder / "state.npz"
    if distributed:
        go_on_watched(state)
    native.begin()

    from jaxmb.identify.assess.identify import identify as run
    from jaxmb.identify.assess.saved import MACHINE, RESULT, STUDY, URDF, write_result
    from jaxmb.identify.assess.uncertainty.profile import profiled, with_profiles
    from jaxmb.identify.fit.devices import is_first
    from jaxmb.identify.study.study import make_study
    from jaxmb.report.result_sections import sections
    from jaxmb.report.section import write_pictures
    from jaxmb.report.terminal import on_terminal

    with wrong_input():
        if distributed:
            join_others(state)
        with progress(path.stem, "reading the study"):
            problem = make_study(file, path.stem, path.parent, str(path), noise_seed)
        if profile:
            profiled(problem, profile)
    resampling = [(count, name) for count, name in ((draws, "draws"), (bootstrap, "bootstrap")) if count is not None]
    if distributed and not is_first():
        with wrong_input(), with_others():
            result = run(problem, seed, state, resume)
            if profile:  # keeps the processes in step for the draws
                with_profiles(result, profile)
            for count, name in resampling:
                _drawn(result, count, name)
        return
    folder = writable(folder, (RESULT, MACHINE, STUDY))
    console = console_of()
    with writing(folder):
        if resume and not state.exists():
            console.print(
                f"no saved state in {folder}: starting from the beginning",
                markup=False,
                highlight=False,
                soft_wrap=True,
            )
        elif not resume:
            state.unlink(missing_ok=True)  # an early interruption must not offer the state of another run
        try:
            with wrong_input(), with_others(), _progress(problem.name) as report:
                result = run(problem, seed, state, resume, report)
                if profile:
                    result = with_profiles(result, profile)
            aside = move_aside(folder, (RESULT, MACHINE, URDF, STUDY, "draws.npz", "bootstrap.npz"))
            written = write_result(result, folder)
        except KeyboardInterrupt:
            raise typer.Exit(say_interrupted(state)) from None
        state.unlink(missing_ok=True)
        report = sections(result)
        console.print(on_terminal(report, console.width))
        for count, name in resampling:  # before the figures, which would delay other processes
            _draw(result, count, name, folder)
            written = [*written, f"{name}.npz"]
        with progress(problem.name, "drawing figures"):
            figures = write_pictures(report, folder / "figures")
        written = [*written, *(f"figures/{path.name}" for path in figures)]
    console.print(f"written in {folder}: {', '.join(written)}{aside}", markup=False, highlight=False, soft_wrap=True)
    if not result.converged:
        reason = [text for text in result.doubts[:1] if text not in result.status]
        raise typer.Exit(say("; ".join([result.status, *reason]), NOT_CONVERGED))


def _draw(result: "Result", count: int, name: str, folder: Path) -> None:
    """Fit `count` draws about the result, print their table and write them."""
    from jaxmb.identify.assess.uncertainty.monte_carlo import write_draws
    from jaxmb.report.parameters import draws_sections
    from jaxmb.report.terminal import on_terminal

    console = console_of()
    with wrong_input(), with_others(), progress(result.study.name, name) as line:
        found = _drawn(result, count, name, lambda done, of: line(f"{name}: {done} of {of}"))
    what = "draws of the residual" if name == "bootstrap" else "draws of the noise"
    console.print(on_terminal(draws_sections(found, result, what), console.width))
    write_draws(folder / f"{name}.npz", found)


def _drawn(result: "Result", count: int, name: str, report: "Callable[[int, int], None] | None" = None) -> "Draws":
    """Fits to `count` draws about the result, by all processes together."""
    from jaxmb.identify.assess.uncertainty import monte_carlo as drawn

    if name == "bootstrap":
        return drawn.bootstrap(result, count, result.seed, report)
    truth = {name: parameter.value for name, parameter in result.parameters.items()}
    return drawn.monte_carlo(result.study, count, result.seed, truth, report=report)


@contextmanager
def _progress(name: str) -> "Iterator[Callable[[Report], None]]":
    """Context with the progress callback of `identify`."""
    with progress(name, "compiling") as line:
        yield lambda report: line(_progress_line(report))


def _progress_line(report: "Report") -> str:
    return (
        f"round {report.round} of at most {report.rounds}, {report.stage}, {report.evaluations} evaluations,"
        f" best cost {report.cost:.4g}"
    )
