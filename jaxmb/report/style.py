"""Common style of all figures drawn by matplotlib: sizes, labels of logarithmic axes, and file output."""

from collections.abc import Iterator
from contextlib import contextmanager

import matplotlib
from matplotlib.ticker import LogFormatter

_RC = {
    "font.family": "sans-serif",
    "font.size": 8.0,
    "axes.titlesize": 8.0,
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.90",
    "grid.linewidth": 0.5,
    "legend.fontsize": 8.0,
    "legend.frameon": False,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "text.usetex": False,
    "text.parse_math": False,  # names may contain $, as the variables of a controller
    "text.hinting": "none",  # at 200 dpi without a visible effect, and a twelfth of the time of a figure
}


@contextmanager
def drawing() -> Iterator[None]:
    """Context with the style of the figures."""
    with matplotlib.rc_context(_RC):  # pyright: ignore[reportArgumentType]
        yield


class PowersOfTen(LogFormatter):
    """Ticks of a logarithmic axis as "10⁻³" or "2 × 10⁵", without matplotlib's mathematical text, which is slow."""

    SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Label of a tick; empty for unlabelled ticks."""
        if not super().__call__(x, pos):
            return ""
        mantissa, exponent = f"{x:.2e}".split("e")
        power = "10" + str(int(exponent)).translate(self.SUPERSCRIPT)
        return power if float(mantissa) == 1.0 else f"{float(mantissa):g} × {power}"
