"""The two figures of the speed benchmark."""

from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import NullFormatter, ScalarFormatter

MARKERS = "osD^vP"


def of_kernels(found: dict[str, Any], path: Path) -> None:
    """Processor time of the FRFs of a machine over its coordinates, each way a line, with quartiles."""
    figure, axes = plt.subplots(figsize=(7.0, 4.5), layout="constrained")
    names = [name for name in next(iter(found.values())) if "Jacobian" not in name]
    sizes = np.array([int(size) for size in found])
    for name, marker in zip(names, MARKERS, strict=True):
        times = np.array([np.percentile(np.array(ways[name])[:, 1], [25, 50, 75]) for ways in found.values()]) * 1e6
        axes.plot(sizes, times[:, 1], marker=marker, label=name, linewidth=2.0 if name == "jaxmb" else 1.2)
        axes.fill_between(sizes, times[:, 0], times[:, 2], alpha=0.2)
    axes.set(xscale="log", yscale="log", xlabel="coordinates", ylabel="processor time of an evaluation, µs")
    axes.set_xticks(sizes)
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title("FRFs, 146 lines, 3 x 3 points")
    axes.grid(which="major", alpha=0.3)
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def of_fits(found: dict[str, Any], path: Path) -> None:
    """Expected processor time to the exact answer, a bar for each way; open where no try was exact."""
    heights = [len(ways) for ways in found.values()]
    figure, all_axes = plt.subplots(
        len(found), figsize=(7.5, 1.2 + 0.36 * sum(heights)), layout="constrained", sharex=True, squeeze=False,
        height_ratios=heights,
    )  # fmt: skip
    for axes, (problem, ways) in zip(all_axes[:, 0], found.items(), strict=True):
        for row, (name, tries) in enumerate(ways.items()):
            exact = sum(bool(one[2]) for one in tries)
            seconds = sum(one[1] for one in tries) / max(1, exact)
            color = "C0" if name.startswith("jaxmb") else "C1"
            axes.barh(row, seconds, color=color if exact else "none", edgecolor=color)
            said = f"{seconds:.2g} s, {exact} of {len(tries)} exact" if exact else f"> {seconds:.2g} s, none exact"
            axes.text(seconds * 1.1, row, said, va="center", fontsize="small")
        axes.set_yticks(range(len(ways)), list(ways), fontsize="small")
        axes.invert_yaxis()
        axes.set_title(f"kr90-modelled, {problem}", fontsize="medium")
        axes.set_xscale("log")
    all_axes[-1, 0].set_xlim(right=all_axes[-1, 0].get_xlim()[1] * 8.0)  # room for what is written behind the bars
    all_axes[-1, 0].set_xlabel("expected processor time to the exact answer, s")
    figure.savefig(path, dpi=150)
    plt.close(figure)
