"""`jaxmb inspect`."""

from pathlib import Path
from typing import Annotated

import typer

from jaxmb.cli.console import console_of, deliver, progress, writable, wrong_input


def inspect(
    study: Annotated[str, typer.Argument(help="Built-in study, or path of a study file.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option(help="Folder for inspect.json and figures.", show_default="none: tables alone")
    ] = None,
) -> None:
    """Predict before any fit which parameters the tests of a study identify, and propose the next tests."""
    from jaxmb.identify.study.format.study_format import read_study_file

    with wrong_input():
        file, path = read_study_file(study)  # errors in it are reported before JAX is imported

    from jaxmb.identify.plan.inspection import inspect as run
    from jaxmb.identify.study.study import make_study
    from jaxmb.io.files import write_atomically
    from jaxmb.report.inspection import inspection_sections
    from jaxmb.report.terminal import on_terminal

    with wrong_input(), progress(path.stem, "reading the study"):
        problem = make_study(file, path.stem, path.parent, str(path))
    if out is not None:
        writable(out, ("inspect.json",))
    with wrong_input(), progress(problem.name, "compiling and differentiating"):
        found = run(problem)
    report = inspection_sections(found)
    if out is None:
        console = console_of()
        console.print(on_terminal(report, console.width))
        return
    text = found.json_text().encode()
    deliver(problem.name, out, report, {"inspect.json": lambda path: write_atomically(path, text)})
