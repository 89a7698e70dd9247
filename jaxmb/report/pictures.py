"""Figures of a report as files."""

import os
from collections.abc import Iterable
from pathlib import Path

from jaxmb.report.section import Picture, Section


def pictures(sections: Iterable[Section]) -> list[Picture]:
    """All figures of some sections, in their order."""
    return [part for section in sections for part in section.parts if isinstance(part, Picture)]


def write_pictures(sections: Iterable[Section], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw all figures of some sections and write them as PNG files.

    Args:
        sections: of a report.
        folder: where the files go; it is made where it does not exist.

    Raises:
        OSError: the folder or a file cannot be written; no file is left half-written.
    """
    from jaxmb.report.style import drawing, write_figure

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with drawing():
        return [write_figure(picture.draw(), folder / f"{picture.name}.png") for picture in pictures(sections)]
