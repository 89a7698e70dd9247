"""Sections of a report on a terminal."""

from collections.abc import Iterable, Iterator

from rich import box
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from jaxmb.report.section import Cell, Facts, Lines, Part, Section, Table

WIDE = 100
"""Characters of a line below which minor columns are left out."""
STYLE = {"yes": "green", "weak": "yellow", "no": "red"}


def on_terminal(sections: Iterable[Section], width: int = WIDE) -> Group:
    """What of some sections a terminal can show: their lines and tables.

    Args:
        sections: of a report.
        width: characters of a line.
    """
    shown: list[RenderableType] = []
    for section in sections:
        parts = [shown for part in section.parts for shown in _part(part, width)]
        if parts:
            shown += [Rule(Text(section.title, style="bold"), align="left", style="dim"), *parts, Text("")]
    return Group(*shown)


def _part(part: Part, width: int) -> Iterator[RenderableType]:
    # Text, because rich would read "[x]" in a name as a style.
    if isinstance(part, Lines):
        yield Text("\n".join(part.lines))
    if isinstance(part, Facts):
        grid = RichTable.grid(padding=(0, 1))
        for about, sentence in part.rows:
            grid.add_row(Text(f"{about}:" if about else ""), Text(sentence))
        yield grid
    if isinstance(part, Table):
        if part.title:
            yield Text(part.title, style="bold")
        yield _table(part, width)
        if part.caption:
            yield Text(part.caption, style="dim")


def _table(content: Table, width: int) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    shown = [i for i, column in enumerate(content.columns) if width >= WIDE or not column.minor]
    for i in shown:
        column = content.columns[i]
        # numbers hold no spaces: only what stands above them goes on in the next line
        keeps = column.align == "left" and not column.wraps
        table.add_column(Text(column.heading), justify=column.align, no_wrap=keeps)
    for row in content.rows:
        table.add_row(*(_cell(row[i]) for i in shown))
    return table


def _cell(cell: str | Cell) -> Text:
    return Text(cell) if isinstance(cell, str) else Text(cell.text, style=STYLE.get(cell.verdict, ""))
