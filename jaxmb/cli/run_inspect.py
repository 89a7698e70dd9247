"""`jaxmb inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from jaxmb.cli.console import console_of, move_aside, progress, writable, writing, wrong_input


def inspect(
    study: Annotated[str, typer.Argument(help="Built-in study, or path of a study file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder for inspect.json and figures.", show_default="none: tables alone")
    ] = None,
) -> None:
    """Predict before any fit which parameters the tests of a study identify, and propose the next tests."""
    from jaxmb.identify.study.file import read_study_file

    with wrong_input():
        file, path = read_study_file(study)  # errors in it are reported before JAX is imported

    from jaxmb.identify.plan.inspection import inspect as run
    from jaxmb.identify.study.study import make_study
    from jaxmb.io.files import write_atomically
    from jaxmb.report.inspection import inspection_sections
    from jaxmb.report.section import write_pictures
    from jaxmb.report.terminal import on_terminal

    with wrong_input(), progress(path.stem, "reading the study"):
        problem = make_study(file, path.stem, path.parent, str(path))
    folder = None if out is None else writable(out, ("inspect.json",))
    console = console_of()
    with wrong_input(), progress(problem.name, "compiling and differentiating"):
        found = run(problem)
    report = inspection_sections(found)
    console.print(on_terminal(report, console.width))
    if folder is None:
        return
    with writing(folder):
        aside = move_aside(folder, ("inspect.json",))
        write_atomically(folder / "inspect.json", found.json_text().encode())
        with progress(problem.name, "drawing figures"):
            figures = write_pictures(report, folder / "figures")
    written = ["inspect.json", *(f"figures/{path.name}" for path in figures)]
    console.print(f"written in {folder}: {', '.join(written)}{aside}", markup=False, highlight=False, soft_wrap=True)
