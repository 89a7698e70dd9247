"""`jaxmb report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxmb.cli.console import WrongInput, progress, writing, wrong_input

if TYPE_CHECKING:
    from jaxmb.report.page import Page


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
    from jaxmb.report.folders import page_of_folders

    with wrong_input(), progress(out.stem, "reading the results") as line:
        page = page_of_folders([Path(folder) for folder in results], line)
        write_page(page, out)
    typer.echo(f"written: {out}")


def check_page() -> None:
    """Raise WrongInput if a page cannot be made."""
    from jaxmb.report.page import check_plotly

    try:
        check_plotly()
    except ModuleNotFoundError as error:
        raise WrongInput(str(error)) from None


def write_page(page: "Page", path: Path) -> None:
    """Write a page as one HTML file."""
    from jaxmb.io.files import write_atomically
    from jaxmb.report.page import page_html

    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, page_html(page).encode())
