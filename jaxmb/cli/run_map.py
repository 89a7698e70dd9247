"""`jaxmb map`."""

import json
import math
from pathlib import Path
from typing import Annotated

import typer

from jaxmb.cli.console import Out, console_of, coordinate_values, writable, writing, wrong_input

SHOW = ["dexterity"]


def map_postures(
    machine: Annotated[
        str,
        typer.Argument(
            help="Built-in machine, path of a .toml or .urdf, or folder that jaxmb identify wrote.", show_default=False
        ),
    ],
    over: Annotated[
        list[str] | None,
        typer.Option(
            help='Coordinate and its range, as "q2=0:146 deg" or "x1=0:0.5" (m), or place of a frame, as'
            ' "tool.x=1:2.5" (frequency, damping and compliance only); twice for a plane.'
        ),
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            help='Straight path, as "q2=0:90 deg,q3=-90:0 deg" or "tool.x=1:2" (frequency, damping and compliance).'
        ),
    ] = None,
    out: Out = None,
    posture: Annotated[
        str, typer.Option(help='Other coordinates, as "q4=45 deg,q5=45 deg"; the rest as in the reference posture.')
    ] = "",
    show: Annotated[
        list[str],
        typer.Option(
            help="dexterity, nu_p, nu_r, deflection, stiffness, least_stiffness or greatest_stiffness; or frequency,"
            " damping, static_compliance or dynamic_compliance. More than once."
        ),
    ] = SHOW,
    modes: Annotated[int | None, typer.Option(help="Modes of frequency and damping.", show_default="4")] = None,
    joints: Annotated[
        str | None,
        typer.Option(
            help='Coordinates that count for the dexterity, or that move the frame to its places, as "z1,z2,z3".',
            show_default="all, to places of six or fewer",
        ),
    ] = None,
    directions: Annotated[
        str | None,
        typer.Option(
            help='Directions in which the dexterity counts, of x,y,z,rx,ry,rz, as "x,y,rz".', show_default="all"
        ),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(help='Range of a coordinate at those places, as "z2=-5:140 deg".', show_default="none"),
    ] = None,
    band_hz: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Frequencies of the dynamic compliance, Hz.", show_default="all"),
    ] = None,
    wrench: Annotated[
        tuple[float, float, float, float, float, float] | None,
        typer.Option(
            help="Force (N) and moment (Nm) on the frame, ground axes: six numbers separated by spaces, as"
            " --wrench 0 0 -2000 0 0 0.",
            show_default="none",
        ),
    ] = None,
    direction: Annotated[
        tuple[float, float, float] | None,
        typer.Option(
            help="Direction of the stiffness or compliance, ground axes: three numbers separated by spaces, as"
            " --direction 1 0 0.",
            show_default="of compliance the softest",
        ),
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
    from jaxmb.machine.file import load_machine

    with wrong_input():
        saved = Path(machine) if (Path(machine) / "machine.toml").is_file() else None
        described = load_machine(machine if saved is None else saved / "machine.toml")

    from jaxmb.machine.build import build_model
    from jaxmb.maps.map_json import best_of_map, map_remarks, map_report, map_table, map_title
    from jaxmb.maps.modal_maps import MODAL_QUANTITIES
    from jaxmb.maps.ranges import grid_of, limits_of, path_of

    with wrong_input():
        model = build_model(described)
        modal = [name for name in show if name in MODAL_QUANTITIES]
        if modal and len(modal) < len(show):
            other = next(name for name in show if name not in modal)
            raise ValueError(f"show: '{modal[0]}' and '{other}' are not mapped together, expected a command for each")
        indices_only = {"wrench": wrench, "length": length, "good": good, "plane": plane, "shown": shown}
        indices_only |= {"directions": directions}
        modal_only = {"path": path, "modes": modes, "limits": limits, "band_hz": band_hz}
        for option, given in (indices_only if modal else modal_only).items():
            if given is not None:
                raise ValueError(f"{option}: has no part in a map of {(modal or show)[0]}, expected it left out")
        if path is not None and over:
            raise ValueError("path: found 'over' as well, expected one of the two")
        if path is None and not over:
            raise ValueError('over: found none, expected a coordinate and its range, as "q2=0:146 deg"')
        where = Path("results") / described.name if saved is None else saved / "map"
        where = where if out is None else out
        if modal:
            from jaxmb.maps.modal_map_json import write_modal_map

            postures = {
                "over": None if path is not None else grid_of(model, over or [], points),
                "path": None if path is None else path_of(model, path, points),
                "held": coordinate_values(posture),
                "joints": None if joints is None else _names(joints),
                "limits": None if limits is None else limits_of(model, limits),
            }
            wanted = {"quantities": tuple(dict.fromkeys(modal)), "modes": 4 if modes is None else modes}
            wanted |= {"frame": frame, "direction": direction, "band_hz": band_hz}
            write_modal_map(model, saved, where, postures | wanted)
            return
        from jaxmb.maps.dexterity import DIRECTIONS
        from jaxmb.maps.maps import posture_maps

        if plane not in (None, "xy", "xz", "yz"):
            raise ValueError(f"plane: '{plane}', expected xy, xz or yz")
        maps = posture_maps(
            model,
            grid_of(model, over or [], points),
            tuple(dict.fromkeys(show)),
            frame,
            coordinate_values(posture),
            length,
            wrench,
            direction,
            joints=None if joints is None else _names(joints),
            directions=DIRECTIONS if directions is None else _names(directions),
            shown=shown,
            good=_thresholds(good or []),
        )
    folder = writable(where, ("map.json",))
    console = console_of()
    for found in maps.values():
        console.print(map_title(found), markup=False, highlight=False, style="italic")
        console.print(map_table(found) if found.zones else f"no zone: {best_of_map(found)}", highlight=False)
        for sentence in [] if length is not None else map_remarks(found):
            console.print(sentence, markup=False, highlight=False, soft_wrap=True)
    with writing(folder):
        from jaxmb.cli.map_figures import remove_stale_figures
        from jaxmb.io.files import write_whole
        from jaxmb.report.map_plots import write_map_figures

        write_whole(folder / "map.json", json.dumps(map_report(maps), allow_nan=False).encode())
        figures = write_map_figures(maps, folder / "figures", plane)
        remove_stale_figures(folder / "figures", figures)
    names = ", ".join(["map.json", *(f"figures/{path.name}" for path in figures)])
    console.print(f"written in {folder}: {names}", markup=False, highlight=False, soft_wrap=True)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


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
