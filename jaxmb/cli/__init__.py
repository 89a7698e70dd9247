"""The command `jaxmb`. Each subcommand imports its dependencies inside its function, for a fast start of the others."""

from typing import Annotated

import typer

from jaxmb.cli.console import DONE, INTERRUPTED, WRONG_INPUT, WrongInput, console_of, printable, say, with_options
from jaxmb.cli.run_machine import compensate, map_postures, predict
from jaxmb.cli.run_modal import modal
from jaxmb.cli.run_study import identify, inspect, report

# Typer brings its own copy of click or uses the installed one, by version; this is the base class in both.
UsageError: type[typer.BadParameter] = typer.BadParameter.__mro__[1]

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Identify stiffness, damping, inertia, friction and geometry of robots from frequency responses, modes, "
    "deflections, poses and torques.",
)


def main(arguments: list[str] | None = None) -> int:
    """Exit code of the command: 0 done, 2 wrong input, 3 fit not converged, 4 another process of a distributed run
    lost, 130 interrupted."""
    try:
        code = typer.main.get_command(app).main(arguments, prog_name="jaxmb", standalone_mode=False)
    except UsageError as error:
        message = error.format_message()
        if message.startswith("Missing argument"):
            expected = {"results": "output folders of commands", "joints": "a CSV file of postures"}
            hints = [f"expected {kind}" for name, kind in expected.items() if f"'{name}'" in message]
            message = f"{message.rstrip('.')}; {next(iter(hints), '`jaxmb studies` lists the built-in ones')}"
        return say(message, WRONG_INPUT)
    except WrongInput as error:
        return say(str(error), WRONG_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return say("interrupted", INTERRUPTED)
    return code if isinstance(code, int) else DONE


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from jaxmb import native

        print(f"jaxmb {version('jaxmb')}")
        print(printable(f"FRF kernel: {native.status()}"))
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _start(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print the version, and whether the compiled kernel is used.",
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(context.get_help())


@app.command()
def studies() -> None:
    """List the built-in studies (data measured or simulated, run time), measurements and machines."""
    from importlib import resources
    from pathlib import Path

    from rich.table import Table
    from rich.text import Text

    from jaxmb.io.files import find_description, library_names, read_toml

    recorded = {name: read_toml(find_description(name, room, what, (".toml",)))
                for room, what in (("measurements", "measurement"), ("motions", "motion"))
                for name in library_names(room)}  # fmt: skip
    run_times = read_toml(Path(str(resources.files("jaxmb.library") / "run_times.toml")))
    public = [name for name, about in recorded.items() if "public" in about]
    for room, what, command in (
        ("studies", "study", "identify"),
        ("measurements", "measurement", "modal"),
        ("machines", "machine", "predict` and `jaxmb map"),
    ):
        table = Table(
            title=f"{room}, for `jaxmb {command}`", title_justify="left", box=None, pad_edge=False, show_header=False
        )
        table.add_column(no_wrap=True, style="bold")
        table.add_column(overflow="fold")
        for name in library_names(room):
            about = read_toml(find_description(name, room, what, (".toml",)))
            tests = about.get("test", ())
            is_public = "public" in about or any(test.get("file") in public for test in tests)
            notes = (
                ("simulated" if all("simulate" in test for test in tests) else "measured") if tests else "",
                f"{run_times[name]} s" if tests and name in run_times else "",
                "needs JAXMB_DATA" if is_public else "",
            )
            shown = f" ({', '.join(filter(None, notes))})" if any(notes) else ""
            table.add_row(Text(name), Text(f"{about.get('description', '')}{shown}"))
        console_of().print(table)


for command in (with_options(identify), inspect, modal, with_options(predict), compensate, report):
    app.command()(command)
app.command("map")(with_options(map_postures))
