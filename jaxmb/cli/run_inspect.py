"""`jaxmb inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from jaxmb.cli.console import console_of, writable, writing, wrong_input


def inspect(
    study: Annotated[str, typer.Argument(help="Built-in study, or path of a study file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder for inspect.json and figures.", show_default="none: tables alone")
    ] = None,
) -> None:
    """Say what the tests of a study can tell of its parameters, and which test to make next, before any is fitted."""
    from jaxmb.identify.study.file import read_study_file

    with wrong_input():
        file, path = read_study_file(study)  # what is wrong in it is told before JAX is imported

    from jaxmb.identify.plan.inspection import inspect as run
    from jaxmb.identify.study.study import make_study
    from jaxmb.io.files import write_whole
    from jaxmb.report.inspect_tables import inspection_tables

    with wrong_input():
        problem = make_study(file, path.stem, path.parent, str(path))
    folder = None if out is None else writable(out, ("inspect.json",))
    console = console_of()
    with wrong_input():
        if console.is_terminal:
            with console_of(stderr=True).status(f"{problem.name}: compiling and differentiating"):
                found = run(problem)
        else:
            found = run(problem)
    console.print(inspection_tables(found))
    if folder is None:
        return
    with writing(folder):
        from jaxmb.report.inspect_plots import write_inspection_figures

        write_whole(folder / "inspect.json", found.json_text().encode())
        figures = write_inspection_figures(found, folder / "figures")
    written = ["inspect.json", *(f"figures/{path.name}" for path in figures)]
    console.print(f"written in {folder}: {', '.join(written)}", markup=False, highlight=False, soft_wrap=True)
