"""Figures of a report as PNG files."""

import os
from collections.abc import Iterable
from pathlib import Path

from jaxmb.report.section import Picture, Section


def pictures(sections: Iterable[Section]) -> list[Picture]:
    """All figures of the sections, in order."""
    return [part for section in sections for part in section.parts if isinstance(part, Picture)]


def write_pictures(sections: Iterable[Section], folder: str | os.PathLike[str]) -> list[Path]:
    """Draw all figures of the sections, write them as PNG files, and return their paths.

    Args:
        sections: of a report.
        folder: output folder, created if missing.

    Raises:
        OSError: the folder or a file cannot be written; no partial file remains.
    """
    from jaxmb.report.style import drawing, write_figure

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with drawing():
        return [write_figure(picture.draw(), folder / f"{picture.name}.png") for picture in pictures(sections)]
