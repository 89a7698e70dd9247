"""`jaxmb map`."""

from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from jaxmb.cli.console import FRAME_DEFAULT, Out, Robot, RobotArgument, deliver, find_robot, progress, wrong_input

if TYPE_CHECKING:
    from jaxmb.maps import ModalMaps, PostureMap

SHOW = ["dexterity"]
OF_MODES, OF_POSTURES = (
    ("path", "modes", "limits", "band_hz"),
    ("wrench", "length", "good", "plane", "shown", "directions"),
)
"""Options of modal maps only, and of the other maps only."""


class MapOptions(NamedTuple):
    """Options of `jaxmb map`."""

    machine: RobotArgument
    over: Annotated[
        list[str] | None,
        typer.Option(
            help='Coordinate and its range, as "q2=0:146 deg" or "x1=0:0.5" (m), or position of a frame, as'
            ' "tool.x=1:2.5" (frequency, damping and compliance only); twice for a plane.'
        ),
    ] = None
    path: Annotated[
        str | None,
        typer.Option(
            help='Straight path, as "q2=0:90 deg,q3=-90:0 deg" or "tool.x=1:2" (frequency, damping and compliance).'
        ),
    ] = None
    out: Out = None
    posture: Annotated[
        str, typer.Option(help='Other coordinates, as "q4=45 deg,q5=45 deg"; the rest as in the reference posture.')
    ] = ""
    show: Annotated[
        list[str],
        typer.Option(
            help="dexterity, nu_p, nu_r, deflection, stiffness, least_stiffness or greatest_stiffness; or frequency,"
            " damping, static_compliance or dynamic_compliance. More than once."
        ),
    ] = SHOW
    modes: Annotated[
        int | None, typer.Option(help="Modes of frequency and damping.", show_default="4, or all of fewer")
    ] = None
    joints: Annotated[
        str | None,
        typer.Option(
            help='Coordinates of the dexterity, or those that move the frame to its positions, as "z1,z2,z3".',
            show_default="all, for positions of six or fewer",
        ),
    ] = None
    directions: Annotated[
        str | None,
        typer.Option(help='Directions of the dexterity, of x,y,z,rx,ry,rz, as "x,y,rz".', show_default="all"),
    ] = None
    limits: Annotated[
        list[str] | None,
        typer.Option(help='Range of a coordinate at those positions, as "z2=-5:140 deg".', show_default="none"),
    ] = None
    band_hz: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Frequencies of the dynamic compliance, Hz.", show_default="all"),
    ] = None
    wrench: Annotated[
        tuple[float, float, float, float, float, float] | None,
        typer.Option(
            help="Force (N) and moment (Nm) on the frame, ground axes: six numbers separated by spaces, as"
            " --wrench 0 0 -2000 0 0 0.",
            show_default="none",
        ),
    ] = None
    direction: Annotated[
        tuple[float, float, float] | None,
        typer.Option(
            help="Direction of the stiffness or compliance, ground axes: three numbers separated by spaces, as"
            " --direction 1 0 0.",
            show_default="for compliance the softest",
        ),
    ] = None
    frame: Annotated[str, typer.Option(help="Frame of the quantities.", show_default=FRAME_DEFAULT)] = "tool"
    shown: Annotated[str | None, typer.Option(help="Frame drawn in the workspace.", show_default="the same")] = None
    plane: Annotated[
        str | None,
        typer.Option(help="The workspace's axes: xy, xz or yz.", show_default="those along which the frame moves most"),
    ] = None
    points: Annotated[int, typer.Option(help="Grid points of each coordinate.")] = 121
    length: Annotated[
        float | None, typer.Option(help="Characteristic length of the dexterity, m.", show_default="the optimal one")
    ] = None
    good: Annotated[
        list[str] | None,
        typer.Option(help='Threshold, as "dexterity=0.4", SI units.', show_default="reached by the best quarter"),
    ] = None


def map_postures(options: MapOptions) -> None:
    """Maps of a robot's postures and the zones where they are good; write map.json and figures."""
    with wrong_input():
        robot = find_robot(options.machine)
        quantities = tuple(dict.fromkeys(options.show))
        found = (
            _modal_maps(options, robot, quantities)
            if _is_modal(options, quantities)
            else _maps(options, robot, quantities)
        )
    from jaxmb.io.files import write_atomically
    from jaxmb.maps import ModalMaps, modal_maps_json, posture_maps_json
    from jaxmb.report.maps import posture_map_sections
    from jaxmb.report.modal_maps import modal_map_sections

    if isinstance(found, ModalMaps):
        sections, text = modal_map_sections(found), modal_maps_json(found)
    else:
        sections = posture_map_sections(found, options.plane, options.length is not None)
        text = posture_maps_json(found)
    files = {"map.json": lambda path: write_atomically(path, text.encode())}
    deliver(robot.name, robot.folder(options.out, "map"), sections, files)


def _is_modal(options: MapOptions, quantities: tuple[str, ...]) -> bool:
    """Whether the quantities are modal; ValueError for options that do not fit together."""
    from jaxmb.maps import MODAL_QUANTITIES

    modal = [name for name in quantities if name in MODAL_QUANTITIES]
    if modal and len(modal) < len(quantities):
        other = next(name for name in quantities if name not in modal)
        raise ValueError(f"show: '{modal[0]}' and '{other}' need separate commands")
    for option in OF_POSTURES if modal else OF_MODES:
        if getattr(options, option) is not None:
            raise ValueError(f"{option}: not used by a map of {quantities[0]}, remove it")
    if options.path is not None and options.over:
        raise ValueError("path: found 'over' as well, expected one of the two")
    if options.path is None and not options.over:
        raise ValueError('over: found none, expected a coordinate and its range, as "q2=0:146 deg"')
    if options.plane not in (None, "xy", "xz", "yz"):
        raise ValueError(f"plane: '{options.plane}', expected xy, xz or yz")
    return bool(modal)


def _modal_maps(options: MapOptions, robot: Robot, quantities: tuple[str, ...]) -> "ModalMaps":
    from jaxmb.machine.values import coordinate_values
    from jaxmb.maps import load_identified, modal_maps
    from jaxmb.maps.workspace_grid import grid_of, limits_of, path_of

    model, path, limits = robot.model, options.path, options.limits
    held = coordinate_values(options.posture)
    identified = None if robot.result is None else load_identified(robot.result)
    with progress(robot.name, "compiling") as line:
        return modal_maps(
            model if identified is None else identified.model,
            over=None if path is not None else grid_of(model, options.over or [], options.points),
            path=None if path is None else path_of(model, path, options.points),
            modes=options.modes,
            quantities=quantities,
            frame=options.frame,
            held=held,
            joints=_names(options.joints),
            limits=None if limits is None else limits_of(model, limits),
            direction=options.direction,
            band_hz=options.band_hz,
            free=None if identified is None else identified.free,
            covariance=None if identified is None else identified.covariance,
            linearize_at="posture" if identified is None else identified.linearize_at,
            report=lambda done, of: line(f"{done} of {of} postures"),
        )


def _maps(options: MapOptions, robot: Robot, quantities: tuple[str, ...]) -> "dict[str, PostureMap]":
    from jaxmb.machine.values import coordinate_values
    from jaxmb.maps import DIRECTIONS, posture_maps
    from jaxmb.maps.workspace_grid import grid_of, thresholds_of

    held = coordinate_values(options.posture)
    with progress(robot.name, "mapping"):
        return posture_maps(
            robot.model,
            grid_of(robot.model, options.over or [], options.points),
            quantities,
            options.frame,
            held,
            length=options.length,
            wrench=options.wrench,
            direction=options.direction,
            joints=_names(options.joints),
            directions=_names(options.directions) or DIRECTIONS,
            shown=options.shown,
            good=thresholds_of(options.good or []),
        )


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(","))
