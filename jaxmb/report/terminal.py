"""Sections of a report on a terminal."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping

from rich import box
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from jaxmb.report.section import Cell, Facts, Lines, Part, Section, Table

WIDTH = 100
"""Default line width, characters."""
FOLDED, NARROWEST = 24, 12
"""Characters of a name before it folds, while minor columns are shown and after they are dropped."""
GAP = 2
"""Characters of spacing per column."""
STYLE = {"yes": "green", "weak": "yellow", "no": "red"}


class _Names(textwrap.TextWrapper):
    """Wraps names after a dot or an underscore that precedes a letter, so that numbers are not split."""

    wordsep_re = re.compile(r"(?<=[._])(?=[A-Za-z])")


def on_terminal(sections: Iterable[Section], width: int = WIDTH) -> Group:
    """Text and tables of the sections as `rich` renderables; no number is truncated.

    Args:
        sections: of a report.
        width: line width, characters.
    """
    shown: list[RenderableType] = []
    for section in sections:
        parts = [shown for part in section.parts for shown in _part(part, width)]
        if parts:
            title = Text(_one_line(section.title), style="bold")
            # rich truncates the title of a rule that is longer than the line
            fits = title.cell_len + 4 <= width
            shown += [Rule(title, align="left", style="dim") if fits else title, *parts, Text("")]
    return Group(*shown)


def _part(part: Part, width: int) -> Iterator[RenderableType]:
    # Text, because rich would read "[x]" in a name as a style.
    match part:
        case Lines(lines, verbatim=True):
            yield Text("\n".join(("", *lines, "")), no_wrap=True, overflow="ignore")
        case Lines(lines):
            yield Text("\n".join(map(_one_line, lines)), overflow="fold")
        case Facts(rows):
            grid = RichTable.grid(padding=(0, 1))
            grid.add_column(max_width=2 * width // 5, overflow="fold")
            grid.add_column(overflow="fold")
            for about, sentence in rows:
                grid.add_row(Text(_one_line(f"{about}:" if about else "")), Text(_one_line(sentence)))
            yield grid
        case Table():
            if part.title:
                yield Text(_one_line(part.title), style="bold")
            yield from _tables(part, width)
            if part.caption:
                yield Text(_one_line(part.caption), style="dim")


def _tables(content: Table, width: int) -> Iterator[RichTable]:
    """The table with names folded and minor columns dropped as required by the width; columns that still do not fit
    follow in further tables, next to the columns that identify the rows."""
    columns = content.columns
    cells = [[heading.heading, *(_cell(row[i]).plain for row in content.rows)] for i, heading in enumerate(columns)]
    natural = [max(map(len, column)) for column in cells]

    def least(i: int, folded: int) -> int:
        longest = max(map(len, cells[i][1:]), default=0)
        word = max(map(len, cells[i][0].split()), default=0)  # headings wrap between words
        return max(word, min(longest, folded) if columns[i].align == "left" else longest)

    def room(shown: list[int], folded: int) -> int:
        return width - sum(least(i, folded) + GAP for i in shown)

    for most in sorted({column.minor for column in columns}, reverse=True):
        blocks, folded = [[i for i, column in enumerate(columns) if column.minor <= most]], FOLDED
        if room(blocks[0], folded) >= 0:
            break
    else:
        shown, folded = blocks[0], NARROWEST
        keys = _keys(content, shown)
        blocks = [list[int]()]
        for i in shown:
            if len(blocks[-1]) > len(keys) and room([*blocks[-1], i], folded) < 0:
                blocks.append(list(keys))
            if i not in blocks[-1]:
                blocks[-1].append(i)
    for shown in blocks:
        widths, spare = {i: least(i, folded) for i in shown}, max(room(shown, folded), 0)
        for i in sorted(shown, key=lambda i: natural[i] - widths[i]):
            more = min(spare, max(natural[i] - widths[i], 0))
            widths[i], spare = widths[i] + more, spare - more
        yield _table(content, widths)


def _keys(content: Table, shown: list[int]) -> list[int]:
    """The first column, and the following text columns needed to identify a row uniquely."""
    keys = shown[:1]
    for i in shown[1:]:
        count = len({tuple(map(str, (row[k] for k in keys))) for row in content.rows})
        more = len({tuple(map(str, (row[k] for k in [*keys, i]))) for row in content.rows})
        if count < len(content.rows) and more > count and content.columns[i].align == "left":
            keys.append(i)
    return keys


def _table(content: Table, widths: Mapping[int, int]) -> RichTable:
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    for i, width in widths.items():
        column = content.columns[i]
        table.add_column(Text(column.heading), justify=column.align, width=width, overflow="fold")
    for row in content.rows:
        table.add_row(*(_folded(_cell(row[i]), width) for i, width in widths.items()))
    return table


def _folded(cell: Text, width: int) -> Text:
    """A cell with words folded to the column width."""
    text = re.sub(rf"\S{{{width + 1},}}", lambda word: _Names(width).fill(word[0]), cell.plain)
    return Text(text, style=cell.style)


def _cell(cell: str | Cell) -> Text:
    if isinstance(cell, str):
        return Text(_one_line(cell))
    return Text(_one_line(cell.text), style=STYLE.get(cell.verdict, ""))


def _one_line(text: str) -> str:
    """The text with line breaks (possible in names from files) replaced by spaces."""
    return re.sub(r"\s*[\r\n]+\s*", " ", text)
