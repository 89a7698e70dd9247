"""What tests of tables and figures look at them with."""

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from jaxmb.report.pictures import pictures
from jaxmb.report.section import Section
from jaxmb.report.style import drawing
from jaxmb.report.terminal import on_terminal


@pytest.fixture(scope="session")
def text_of():
    """Text of sections, or of a table, as a terminal shows it."""

    def text(shown, width: int = 120) -> str:
        sections = shown if isinstance(shown, list | tuple) else [Section("", (shown,))]
        console = Console(width=width)
        with console.capture() as captured:
            console.print(on_terminal(sections, width))
        return captured.get()

    return text


@pytest.fixture(scope="session")
def figures_of():
    """Figures of sections, by name, as they are written."""

    def figures(sections) -> dict[str, Figure]:
        found = pictures(sections)
        assert len({picture.name for picture in found}) == len(found)
        with drawing():
            return {picture.name: picture.draw() for picture in found}

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
