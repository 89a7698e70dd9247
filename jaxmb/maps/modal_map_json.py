"""What `jaxmb map` says and writes of frequencies, damping and compliance."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmb.cli.console import console_of, writable, writing
from jaxmb.cli.map_figures import remove_stale_figures
from jaxmb.io.files import write_whole
from jaxmb.io.strict_json import strict
from jaxmb.machine.build import Model
from jaxmb.maps.identified_machine import ModalMap, ModalMaps, load_identified, modal_maps
from jaxmb.report.modal_map_plots import SHOWN_AS, write_modal_map_figures

if TYPE_CHECKING:
    from rich.table import Table


def write_modal_map(model: Model, saved: Path | None, folder: Path, wanted: Mapping[str, Any]) -> None:
    """Map what is wanted (arguments of `modal_maps`), print it, and write map.json and figures.

    Args:
        model: the machine.
        saved: folder of the identification that it is from, which knows its covariance.
        folder: where the files go.
        wanted: arguments of `modal_maps`.

    Raises:
        ValueError: an argument or a file is wrong.
    """
    known = None if saved is None else load_identified(saved)
    if known is None:
        found = modal_maps(model, **wanted)
    else:
        found = modal_maps(known.model, **wanted, free=known.free, covariance=known.covariance)
    folder = writable(folder, ("map.json",))
    console = console_of()
    console.print(f"{found.machine}: {found.postures.reached.sum()} postures", highlight=False, style="italic")
    console.print(modal_table(found))
    for sentence in modal_remarks(found):
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    with writing(folder):
        write_whole(folder / "map.json", json.dumps(modal_report(found), allow_nan=False).encode())
        figures = write_modal_map_figures(found, folder / "figures")
        remove_stale_figures(folder / "figures", figures)
    names = ", ".join(["map.json", *(f"figures/{path.name}" for path in figures)])
    console.print(f"written in {folder}: {names}", markup=False, highlight=False, soft_wrap=True)


def modal_table(found: ModalMaps) -> "Table":
    """Least and greatest value of each quantity, with their standard deviations."""
    from rich.table import Table

    from jaxmb.report.cells import number

    table = Table(box=None, pad_edge=False)
    table.add_column("quantity")
    for name in ("least", "std", "greatest", "std", "median std"):
        table.add_column(name, justify="right")
    for name, shown in found.maps.items():
        label, unit, scale = SHOWN_AS[name]
        count = shown.values.shape[-1] if shown.by_mode else 1
        for m in range(count):
            values = (shown.values[..., m] if shown.by_mode else shown.values) * scale
            std = None if shown.std is None else (shown.std[..., m] if shown.by_mode else shown.std) * scale
            row = [f"{label}{f' {m + 1}' if shown.by_mode else ''} ({unit})"]
            if not np.isfinite(values).any():
                table.add_row(*row, "none")
                continue
            for at in (np.nanargmin(values), np.nanargmax(values)):
                row += [number(float(values.flat[at])), "" if std is None else _std(float(std.flat[at]))]
            relative = None if std is None else 100.0 * std / np.abs(values)
            known = relative is not None and np.isfinite(relative).any()
            row.append("" if relative is None else f"{np.nanmedian(relative):.2g} %" if known else "unknown")
            table.add_row(*row)
    return table


def _std(value: float) -> str:
    return f"{value:.2g}" if np.isfinite(value) else "unknown"


def modal_remarks(found: ModalMaps) -> list[str]:
    """Sentences on what is not reached and on what is not known."""
    said = []
    reached = found.postures.reached
    if not reached.all():
        said.append(f"{int(np.sum(~reached))} of {reached.size} places are not reached from the start posture")
    if found.hardly_known:
        names = ", ".join(found.hardly_known)
        rough = "several times too small or too large"
        said.append(f"hardly known, so that standard deviations they act on may be {rough}: {names}")
    for name, shown in found.maps.items():
        for parameter, share in shown.unknown.items():
            lost = f"{100 * share:.0f} % of the std"
            said.append(f"{SHOWN_AS[name][0]}: nothing is known of {parameter}, which leaves {lost} unknown")
    return said


def modal_report(found: ModalMaps) -> dict[str, Any]:
    """What map.json holds: SI units, null where a number is unknown or there is none."""
    postures = found.postures
    by_name: dict[str, Any] = {"path_m": postures.grid[0]} if postures.is_path else {}
    if not postures.is_path:
        by_name["over"] = dict(zip(postures.over, postures.grid, strict=True))
    return strict(
        {
            "schema": 1,
            "machine": found.machine,
            "frame": found.frame,
            "shown": postures.frame,
            **by_name,
            "held": dict(postures.held),
            "postures": {name: postures.coordinates[..., postures.names.index(name)] for name in postures.varied},
            "reached": postures.reached,
            "settings": dict(found.settings),
            "hardly_known": found.hardly_known,
            "position_m": postures.position,
            "maps": {name: _entry(shown) for name, shown in found.maps.items()},
        }
        | ({} if found.peak_hz is None else {"peak_hz": found.peak_hz})
    )


def _entry(shown: ModalMap) -> dict[str, Any]:
    return {
        "unit": shown.unit,
        "by_mode": shown.by_mode,
        "values": shown.values,
        "std": shown.std,
        "unknown": dict(shown.unknown),
    }
