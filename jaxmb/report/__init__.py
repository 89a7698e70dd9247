"""What is shown of results: sections built once, on a terminal or as pictures."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxmb.identify.assess.result import Result


def write_report(result: "Result", folder: str | os.PathLike[str]) -> list[Path]:
    """Draw everything there is to see of a result and write it as PNG files.

    Args:
        result: from `identify` or `load_result`.
        folder: where the files go; it is made where it does not exist.

    Returns:
        The files.

    Raises:
        OSError: the folder or a file cannot be written; no file is left half-written.
    """
    from jaxmb.report.pictures import write_pictures
    from jaxmb.report.result_sections import sections

    return write_pictures(sections(result), folder)
