"""`jaxmb map`."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from jaxmb.cli.console import Out, console_of, coordinate_values, writable, writing, wrong_input

if TYPE_CHECKING:
    import numpy as np
    from rich.table import Table

    from jaxmb.machine.build import Model
    from jaxmb.response.maps import Map

SHOW = ["dexterity"]


def map_postures(
    machine: Annotated[str, typer.Argument(help="Built-in machine, or path of a .toml or .urdf.", show_default=False)],
    over: Annotated[
        list[str],
        typer.Option(help='Coordinate and its range, as "q2=0:146 deg" or "x1=0:0.5" (m); twice for a plane.'),
    ],
    out: Out = None,
    posture: Annotated[
        str, typer.Option(help='Other coordinates, as "q4=45 deg,q5=45 deg"; the rest as in the reference posture.')
    ] = "",
    show: Annotated[
        list[str],
        typer.Option(
            help="dexterity, nu_p, nu_r, deflection, stiffness, least_stiffness or greatest_stiffness; more than once."
        ),
    ] = SHOW,
    wrench: Annotated[
        tuple[float, float, float, float, float, float] | None,
        typer.Option(help="Force (N) and moment (Nm) on the frame, ground axes.", show_default="none"),
    ] = None,
    direction: Annotated[
        tuple[float, float, float] | None,
        typer.Option(help="Direction of the stiffness, ground axes.", show_default="none"),
    ] = None,
    frame: Annotated[str, typer.Option(help="Where the quantities are taken.")] = "tool",
    shown: Annotated[
        str | None, typer.Option(help="Frame that is drawn in the workspace.", show_default="the same")
    ] = None,
    plane: Annotated[
        str | None,
        typer.Option(help="The workspace's axes: xy, xz or yz.", show_default="along which the frame moves most"),
    ] = None,
    points: Annotated[int, typer.Option(help="Grid points of each coordinate.")] = 121,
    length: Annotated[
        float | None, typer.Option(help="Characteristic length of the dexterity, m.", show_default="found")
    ] = None,
    good: Annotated[
        list[str] | None,
        typer.Option(help='Threshold, as "dexterity=0.4", SI units.', show_default="that of the best quarter"),
    ] = None,
) -> None:
    """Maps of a robot's postures and the zones where they are good; write map.json and figures."""
    with wrong_input():
        from jaxmb.machine.build import build_model
        from jaxmb.machine.file import load_machine
        from jaxmb.response.maps import posture_maps

        described = load_machine(machine)
        model = build_model(described)
        if plane not in (None, "xy", "xz", "yz"):
            raise ValueError(f"plane: '{plane}', expected xy, xz or yz")
        maps = posture_maps(
            model,
            _grid(model, over, points),
            tuple(dict.fromkeys(show)),
            frame,
            coordinate_values(posture),
            length,
            wrench,
            direction,
            shown=shown,
            good=_thresholds(good or []),
        )
    folder = writable(Path("results") / described.name if out is None else out, ("map.json",))
    console = console_of()
    for found in maps.values():
        console.print(_title(found), markup=False, highlight=False, style="italic")
        console.print(_table(found))
    with writing(folder):
        from jaxmb.machine.file import write_whole
        from jaxmb.report.map_plots import write_map_figures

        write_whole(folder / "map.json", json.dumps(_report(maps), allow_nan=False).encode())
        figures = write_map_figures(maps, folder / "figures", plane)
    names = ", ".join(["map.json", *(f"figures/{path.name}" for path in figures)])
    console.print(f"written in {folder}: {names}", markup=False, highlight=False, soft_wrap=True)


def _grid(model: "Model", texts: list[str], points: int) -> dict[str, "np.ndarray"]:
    """Values by coordinate from "q2=0:146 deg"."""
    import numpy as np

    if points < 2:
        raise ValueError(f"points: {points}, expected 2 or more")
    grid: dict[str, np.ndarray] = {}
    for text in texts:
        name, equals, range_text = (part.strip() for part in text.partition("="))
        low_text, colon, high_text = (part.strip() for part in range_text.partition(":"))
        if not (equals and colon):
            raise ValueError(f"over: found '{text}', expected something like \"q2=0:146 deg\"")
        if name in grid:
            raise ValueError(f"over: '{name}' is given twice")
        # A unit after the second number is that of both.
        unit = next((u for u in ("deg", "rad") if high_text.endswith(u)), "")
        if unit and not low_text.endswith(("deg", "rad")):
            low_text = f"{low_text} {unit}"
        try:
            low, high = (coordinate_values(f"{name}={part}")[name] for part in (low_text, high_text))
        except ValueError as error:
            raise ValueError(f"over: {str(error).removeprefix('posture: ')}") from None
        if not low < high:
            raise ValueError(f"over: {name}: found '{range_text}', expected the lower end first")
        if unit and name in model.coordinates and not model.revolute[model.coordinates.index(name)]:
            raise ValueError(f"over: {name}: found '{range_text}', but it is a travel, expected metres without a unit")
        grid[name] = np.linspace(low, high, points)
    return grid


def _thresholds(texts: list[str]) -> dict[str, float]:
    found = {}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"good: found '{text}', expected something like \"dexterity=0.4\"")
        found[name] = number
    return found


def _title(found: "Map") -> str:
    sense = "at least" if found.about.higher_is_better else "at most"
    limit = f"{sense} {found.threshold:.4g} {found.about.unit}".rstrip()
    length = f", length {found.settings['length_m']:.4g} m" if found.quantity == "dexterity" else ""
    return f"{found.quantity} of {found.machine}{length}: zones of {limit}"


def _table(found: "Map") -> "Table":
    from rich.table import Table

    from jaxmb.report.cells import number

    table = Table(box=None, pad_edge=False)
    for name in ("zone", "share", *(f"{c} reaches" for c in found.over), *(f"{c} all good" for c in found.over)):
        table.add_column(name, justify="right")
    table.add_column("best", justify="right")
    for i, zone in enumerate(found.zones, 1):
        ends = [
            f"{low:.0f} to {high:.0f} deg" if turning else f"{low:.3f} to {high:.3f} m"
            for ranges in (zone.extent, zone.box)
            for (low, high), turning in zip(_in_degrees(found, ranges), found.revolute, strict=True)
        ]
        table.add_row(f"Z{i}", f"{100 * zone.share:.1f} %", *ends, number(zone.best))
    return table


def _in_degrees(found: "Map", ranges: tuple[tuple[float, float], ...]) -> list[tuple[float, float]]:
    scale = [math.degrees(1.0) if turning else 1.0 for turning in found.revolute]
    return [(s * low, s * high) for (low, high), s in zip(ranges, scale, strict=True)]


def _report(maps: dict[str, "Map"]) -> dict[str, Any]:
    """What map.json holds; null where a number is unknown or infinite."""
    first = next(iter(maps.values()))
    return {
        "schema": 1,
        "machine": first.machine,
        "frame": first.frame,
        "shown": first.shown,
        "over": {name: axis.tolist() for name, axis in zip(first.over, first.grid, strict=True)},
        "held": dict(first.held),
        "settings": {name: _plain(value) for name, value in first.settings.items()},
        "position_m": _plain(first.position),
        "det_sign": _plain(first.side),
        "maps": {
            name: {
                "unit": found.about.unit,
                "higher_is_better": found.about.higher_is_better,
                "threshold": _plain(found.threshold),
                "zones": [
                    {
                        "points": zone.points,
                        "share": zone.share,
                        "reaches": dict(zip(found.over, map(list, zone.extent), strict=True)),
                        "all_good": dict(zip(found.over, map(list, zone.box), strict=True)),
                        "best": _plain(zone.best),
                        "worst": _plain(zone.worst),
                        "best_at": dict(zip(found.over, zone.best_at, strict=True)),
                    }
                    for zone in found.zones
                ],
                "values": _plain(found.values),
            }
            for name, found in maps.items()
        },
    }


def _plain(value: Any) -> Any:
    """Lists and numbers, None for what is not finite."""
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
