"""What tests of tables and figures look at them with."""

from collections.abc import Sequence

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from jaxmb.report.rendering import drawing, figure_of
from jaxmb.report.section import Cell, Lines, Section, Table, pictures
from jaxmb.report.terminal import on_terminal


@pytest.fixture(scope="session")
def text_of():
    """Text of sections, or of a table, as a terminal shows it; nothing of it is truncated in narrow terminals."""

    def rendered(sections, width: int) -> str:
        console = Console(width=width)
        with console.capture() as captured:
            console.print(on_terminal(sections, width))
        return captured.get()

    def text(shown, width: int = 120) -> str:
        sections = shown if isinstance(shown, list | tuple) else [Section("", (shown,))]
        for narrow in (60, 80):
            complete(sections, rendered(sections, narrow), narrow)
        return rendered(sections, width)

    return text


def complete(sections: Sequence[Section], shown: str, width: int) -> None:
    """All numbers are whole, but for those of minor columns; no line is longer than the terminal, but for files."""
    assert "…" not in shown
    parts = [part for section in sections for part in section.parts]
    verbatim = {line for part in parts if isinstance(part, Lines) and part.verbatim for line in part.lines}
    assert [line for line in shown.splitlines() if len(line.rstrip()) > width and line.rstrip() not in verbatim] == []
    for part in parts:
        if isinstance(part, Table):
            numbers = [i for i, column in enumerate(part.columns) if column.align == "right" and not column.minor]
            cells = [row[i].text if isinstance(row[i], Cell) else row[i] for row in part.rows for i in numbers]
            assert [cell for cell in cells if cell not in shown] == []


@pytest.fixture(scope="session")
def figures_of():
    """Figures of sections, by name, as they are written."""

    def figures(sections) -> dict[str, Figure]:
        found = pictures(sections)
        assert len({picture.name for picture in found}) == len(found)
        with drawing():
            return {picture.name: figure_of(picture.chart()) for picture in found}

    return figures


@pytest.fixture(scope="session")
def overlapping():
    """Titles, labels and legends of a figure that lie on each other or outside of it, as they are drawn."""

    def pairs(figure: Figure) -> list[tuple[str, str]]:
        figure.draw_without_rendering()
        texts = [t for a in figure.axes for t in (a.title, a.xaxis.label, a.yaxis.label)]
        texts += [*figure.texts, *(t for legend in figure.legends for t in legend.get_texts())]
        boxes = [(t.get_text(), t.get_window_extent()) for t in texts if t.get_text() and t.get_visible()]
        w, h = figure.bbox.width, figure.bbox.height
        outside = [(t, "outside") for t, b in boxes if b.x0 < 0 or b.y0 < 0 or b.x1 > w or b.y1 > h]
        return outside + [(a, b) for i, (a, p) in enumerate(boxes) for b, q in boxes[:i] if p.overlaps(q)]

    return pairs
