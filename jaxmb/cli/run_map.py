"""`jaxmb map`."""

from collections.abc import Mapping
from typing import Annotated

import typer

from jaxmb.cli.console import Out, console_of, move_aside, progress, writable, writing, wrong_input
from jaxmb.cli.robot import FRAME_DEFAULT, RobotArgument, find_robot

SHOW = ["dexterity"]


def map_postures(
    machine: RobotArgument,
    over: Annotated[
        list[str] | None,
        typer.Option(
            help='Coordinate and its range, as "q2=0:146 deg" or "x1=0:0.5" (m), or position of a frame, as'
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
    modes: Annotated[
        int | None, typer.Option(help="Modes of frequency and damping.", show_default="4, or all of fewer")
    ] = None,
    joints: Annotated[
        str | None,
        typer.Option(
            help='Coordinates of the dexterity, or those that move the frame to its positions, as "z1,z2,z3".',
            show_default="all, for positions of six or fewer",
        ),
    ] = None,
    directions: Annotated[
        str | None,
        typer.Option(help='Directions of the dexterity, of x,y,z,rx,ry,rz, as "x,y,rz".', show_default="all"),
    ] = None,
    limits: Annotated[
        list[str] | None,
        typer.Option(help='Range of a coordinate at those positions, as "z2=-5:140 deg".', show_default="none"),
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
            show_default="for compliance the softest",
        ),
    ] = None,
    frame: Annotated[str, typer.Option(help="Frame of the quantities.", show_default=FRAME_DEFAULT)] = "tool",
    shown: Annotated[str | None, typer.Option(help="Frame drawn in the workspace.", show_default="the same")] = None,
    plane: Annotated[
        str | None,
        typer.Option(help="The workspace's axes: xy, xz or yz.", show_default="those along which the frame moves most"),
    ] = None,
    points: Annotated[int, typer.Option(help="Grid points of each coordinate.")] = 121,
    length: Annotated[
        float | None, typer.Option(help="Characteristic length of the dexterity, m.", show_default="the optimal one")
    ] = None,
    good: Annotated[
        list[str] | None,
        typer.Option(help='Threshold, as "dexterity=0.4", SI units.', show_default="reached by the best quarter"),
    ] = None,
) -> None:
    """Maps of a robot's postures and the zones where they are good; write map.json and figures."""
    with wrong_input():
        robot = find_robot(machine)

        from jaxmb.machine.values import coordinate_values
        from jaxmb.maps import MODAL_QUANTITIES
        from jaxmb.maps.workspace_grid import grid_of, limits_of, path_of, thresholds_of

        quantities = tuple(dict.fromkeys(show))
        modal = [name for name in quantities if name in MODAL_QUANTITIES]
        if modal and len(modal) < len(quantities):
            other = next(name for name in quantities if name not in modal)
            raise ValueError(f"show: '{modal[0]}' and '{other}' need separate commands")
        of_postures = {"wrench": wrench, "length": length, "good": good, "plane": plane, "shown": shown}
        of_postures |= {"directions": directions}
        of_modes = {"path": path, "modes": modes, "limits": limits, "band_hz": band_hz}
        _refuse(of_postures if modal else of_modes, quantities[0])
        if path is not None and over:
            raise ValueError("path: found 'over' as well, expected one of the two")
        if path is None and not over:
            raise ValueError('over: found none, expected a coordinate and its range, as "q2=0:146 deg"')
        if plane not in (None, "xy", "xz", "yz"):
            raise ValueError(f"plane: '{plane}', expected xy, xz or yz")
        fixed, joint_names = coordinate_values(posture), None if joints is None else _names(joints)
        if modal:
            from jaxmb.maps import load_identified, modal_maps

            identified = None if robot.result is None else load_identified(robot.result)
            with progress(robot.name, "compiling") as line:
                found = modal_maps(
                    robot.model if identified is None else identified.model,
                    over=None if path is not None else grid_of(robot.model, over or [], points),
                    path=None if path is None else path_of(robot.model, path, points),
                    modes=modes,
                    quantities=quantities,
                    frame=frame,
                    held=fixed,
                    joints=joint_names,
                    limits=None if limits is None else limits_of(robot.model, limits),
                    direction=direction,
                    band_hz=band_hz,
                    free=None if identified is None else identified.free,
                    covariance=None if identified is None else identified.covariance,
                    linearize_at="posture" if identified is None else identified.linearize_at,
                    report=lambda done, of: line(f"{done} of {of} postures"),
                )
        else:
            from jaxmb.maps import DIRECTIONS, posture_maps

            with progress(robot.name, "mapping"):
                found = posture_maps(
                    robot.model,
                    grid_of(robot.model, over or [], points),
                    quantities,
                    frame,
                    fixed,
                    length,
                    wrench,
                    direction,
                    joints=joint_names,
                    directions=DIRECTIONS if directions is None else _names(directions),
                    shown=shown,
                    good=thresholds_of(good or []),
                )
    from jaxmb.io.files import write_atomically
    from jaxmb.maps import ModalMaps, modal_maps_json, posture_maps_json
    from jaxmb.report.maps import modal_map_sections, posture_map_sections
    from jaxmb.report.section import write_pictures
    from jaxmb.report.terminal import on_terminal

    folder = writable(robot.folder(out, "map"), ("map.json",))
    console = console_of()
    sections = (
        modal_map_sections(found) if isinstance(found, ModalMaps)
        else posture_map_sections(found, plane, length is not None)
    )  # fmt: skip
    console.print(on_terminal(sections, console.width))
    with writing(folder):
        text = modal_maps_json(found) if isinstance(found, ModalMaps) else posture_maps_json(found)
        aside = move_aside(folder, ("map.json",))
        write_atomically(folder / "map.json", text.encode())
        with progress(robot.name, "drawing figures"):
            figures = write_pictures(sections, folder / "figures")
    names = ", ".join(["map.json", *(f"figures/{path.name}" for path in figures)])
    console.print(f"written in {folder}: {names}{aside}", markup=False, highlight=False, soft_wrap=True)


def _refuse(options: Mapping[str, object], quantity: str) -> None:
    """Raise ValueError for options that a map of the quantity does not use."""
    for option, value in options.items():
        if value is not None:
            raise ValueError(f"{option}: not used by a map of {quantity}, remove it")


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))
