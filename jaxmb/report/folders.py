"""Report pages from the output folders of commands."""

from collections.abc import Callable, Sequence
from pathlib import Path

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.saved import RESULT, load_result
from jaxmb.io.validation import InputError
from jaxmb.report.page import Page
from jaxmb.report.result_page import comparison_page, result_page
from jaxmb.report.saved_sections import REPORT, read_sections
from jaxmb.report.section import Facts, Section, capital, pictures, side_by_side

MOST_SENTENCES = 8
"""Largest number of sentences before the sections of a saved report."""


def page_of_folders(folders: Sequence[Path], report: Callable[[str], None] = lambda _: None) -> Page:
    """Page of the results in some folders.

    Args:
        folders: output folders of `jaxmb identify`, `modal`, `map`, `inspect` or `predict`.
        report: called with the current activity.

    Raises:
        InputError: a folder has no result that can be read.
    """
    if not folders:
        raise InputError("results: found none, expected a folder of a result")
    loaded = [_loaded(folder) for folder in folders]
    results = [found for found in loaded if isinstance(found, Result)]
    report("building the report")
    if len(loaded) == 1:
        (found,), (folder,) = loaded, folders
        return result_page(found, folder) if isinstance(found, Result) else found
    if len(results) == len(loaded):
        return comparison_page(results, _names(folders))
    pages = [result_page(f, folder) if isinstance(f, Result) else f for f, folder in zip(loaded, folders, strict=True)]
    named = list(zip(_names(folders), pages, strict=True))
    sentences = [f"{name}: {text}" for name, page in named for text in page.sentences[:1]]
    sections = side_by_side([(name, page.sections) for name, page in named])
    return Page(f"{len(pages)} results", ", ".join(map(str, folders)), "", sentences, sections)


def _names(folders: Sequence[Path]) -> list[str]:
    """Short distinct names of folders."""
    plain = [folder.resolve().name for folder in folders]
    if len(set(plain)) == len(plain):
        return plain
    longer = ["/".join(folder.resolve().parts[-2:]) for folder in folders]
    return longer if len(set(longer)) == len(longer) else [f"{k}: {name}" for k, name in enumerate(plain, 1)]


def _loaded(folder: Path) -> Result | Page:
    """The result in a folder, or the page of its saved report."""
    if not folder.is_dir():
        raise InputError(f"{folder}: expected the output folder of a command")
    reason = ""
    if (folder / RESULT).exists():
        try:
            return load_result(folder)
        except InputError as error:
            if not (folder / REPORT).exists():
                raise
            reason = str(error)
    elif not (folder / REPORT).exists():
        raise InputError(f"{folder}: found neither {RESULT} nor {REPORT}, expected the output folder of a command")
    return saved_page(folder, reason)


def saved_page(folder: Path, reason: str = "") -> Page:
    """Page of the sections that a command saved in its folder.

    Args:
        folder: the folder.
        reason: why the result itself cannot be read; empty otherwise.
    """
    title, command, sections = read_sections(folder)
    sentences = [each for part in sections[0].parts for each in _sentences(part)] if sections else []
    findings = dict.fromkeys(
        chart.title for chart in (picture.chart() for picture in pictures(sections)) if chart.title
    )
    sentences = (sentences or [f"{finding}." for finding in findings])[:MOST_SENTENCES]
    if reason:
        sentences.append(f"Tables and charts are those that were saved with the result: {reason}.")
    origin = Facts((("command", command), ("read from", str(folder))))
    return Page(title, f"written by {command}", "", sentences, [*sections, Section("Provenance", (origin,))])


def _sentences(part: object) -> list[str]:
    """Statements of a part that a page may begin with."""
    rows = part.rows if isinstance(part, Facts) else ()
    return [f"{capital(about)}: {text}" if about else text for about, text in rows]
