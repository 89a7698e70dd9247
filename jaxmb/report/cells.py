"""What all tables share: how they look, and how a number is written."""

import math

from rich import box
from rich.table import Table
from rich.text import Text

VERDICT_STYLE = {"yes": "green", "weak": "yellow", "no": "red"}


def number(value: float, digits: int = 4) -> str:
    """A number with so many significant digits, as "2.8e6" where it is large; "unknown" where it is not finite."""
    if not math.isfinite(value):
        return "unknown"
    if value != 0.0 and not 1e-3 <= abs(value) < 1e4:
        mantissa, exponent = f"{value:.{digits - 1}e}".split("e")
        return f"{mantissa}e{int(exponent)}"
    text = f"{value:#.{digits}g}"
    return (f"{value:.0f}" if "e" in text else text).removesuffix(".")


def percent(value: float, signed: bool = False) -> str:
    """A percentage with two significant digits, as an integer from ten on, and ">1000" beyond that."""
    if abs(value) > 1000.0 and math.isfinite(value):
        return ">1000" if value > 0.0 else "<-1000"
    if 9.95 <= abs(value) <= 1000.0:
        return f"{value:+.0f}" if signed else f"{value:.0f}"
    return f"{value:+.2g}" if signed else number(value, 2)


def new_table(title: str, *headings: str) -> Table:
    """An empty table in the look of all."""
    # Text, because rich would read "[x]" in a name as a style.
    table = Table(
        title=Text(title),
        box=box.SIMPLE_HEAD,
        title_justify="left",
        title_style="bold",
        pad_edge=False,
        collapse_padding=True,
    )
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table
