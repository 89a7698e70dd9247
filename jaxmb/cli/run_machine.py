"""Commands on machines: `jaxmb predict`, `jaxmb compensate` and `jaxmb map`."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from jaxmb.cli.console import (
    FRAME_DEFAULT,
    Out,
    Robot,
    RobotArgument,
    WrongInput,
    deliver,
    find_robot,
    names_in,
    progress,
    writing,
    wrong_input,
)
from jaxmb.io.validation import InputError, check_distinct, check_known, check_without_unit, error_location

if TYPE_CHECKING:
    import numpy as np
    from jax import Array

    from jaxmb.machine.build import Model
    from jaxmb.maps import ModalMaps, PostureMap

PREDICTED_LINES = 1001
LARGEST_ZERO = 0.1
"""Zero of a joint, rad or m, above which it is hardly an error."""


Wrench = Annotated[
    tuple[float, float, float, float, float, float] | None,
    typer.Option(
        help="Force (N) and moment (N m) on the frame, ground axes: six numbers separated by spaces, as"
        " --wrench 0 0 -2000 0 0 0.",
        show_default="none",
    ),
]
"""Option of a load."""


class PredictOptions(NamedTuple):
    """Options of `jaxmb predict`."""

    machine: RobotArgument
    out: Out = None
    posture: Annotated[
        list[str] | None,
        typer.Option(help='Coordinates, as "z2=70 deg,z3=-100 deg"; the others as in the reference posture.'),
    ] = None
    frame: Annotated[str, typer.Option(help="Frame of the force and of the motion.", show_default=FRAME_DEFAULT)] = (
        "tool"
    )
    band_hz: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lowest and highest frequency, Hz.", show_default="around the first modes"),
    ] = None
    kind: Annotated[str, typer.Option(help="receptance, mobility or accelerance.")] = "accelerance"
    animate: Annotated[
        int | None,
        typer.Option(
            help="Mode to write as an animated GIF, counted from the lowest frequency, 1.",
            show_default="none",
        ),
    ] = None


def predict(options: PredictOptions) -> None:
    """Compute modes and frequency responses of a machine; write frf.npz, state-space.mat, machine.xml and figures.

    state-space.mat: viscous damping only; machine.xml (MJCF): if MuJoCo is installed and can describe the machine.
    """
    with wrong_input():
        robot = find_robot(options.machine)  # errors in its file are reported before JAX is imported

    import numpy as np

    import jaxmb
    from jaxmb.machine.values import coordinate_values
    from jaxmb.measurement.frf_set import band_of
    from jaxmb.mechanics.kinematics import frame_name
    from jaxmb.mechanics.mjcf import exported_mjcf
    from jaxmb.mechanics.tangent import motion_coordinates, operating_point
    from jaxmb.report.mode_shapes import check_mode, mode_shape_sections, predicted_sections
    from jaxmb.report.rendering import write_mode_animation
    from jaxmb.response.frf_kind import check_kind, endpoints
    from jaxmb.response.modal import check_mass_matrix

    with wrong_input(), progress(robot.name, "computing"):
        model = robot.model
        derivatives = check_kind(options.kind)
        points, _ = endpoints(frame_name(model, options.frame), None, None)
        q = jaxmb.posture(model, coordinate_values(",".join(options.posture or ())))
        band_hz = None if options.band_hz is None else band_of(options.band_hz, 0.0)
        try:
            tangent = jaxmb.linearize(model, q, robot.linearize_at)
            check_mass_matrix(np.asarray(tangent.mass), motion_coordinates(model))
            found = jaxmb.modes(tangent)
        except RuntimeError as error:  # no equilibrium, or fractional damping that is too large
            raise ValueError(str(error)) from None
        if options.animate is not None:
            check_mode(robot.name, found, options.animate)
        first_hz = np.asarray(found.frequency_hz)[:6].tolist()
        low_hz, high_hz = band_hz or ((0.2 * first_hz[0], 1.25 * first_hz[-1]) if first_hz else (1.0, 100.0))
        frequency_hz = np.linspace(low_hz, high_hz, PREDICTED_LINES)
        h = np.asarray(jaxmb.frf(model, q, frequency_hz, options.frame, options.kind, at=robot.linearize_at))  # pyright: ignore[reportArgumentType]  (checked)
        if not h.any():
            raise ValueError(
                f"frame '{options.frame}' does not move, so that all its FRFs are zero: expected a frame that a free"
                " coordinate moves"
            )
    names = tuple(" ".join(point) for point in points)
    values = dict(zip(model.coordinates, np.asarray(q).tolist(), strict=True))
    at = {coordinate: values[coordinate] for coordinate in jaxmb.independent_coordinates(model)}
    source = f"predicted for {robot.name}"
    predicted = jaxmb.FrfSet(frequency_hz, h, options.kind, names, names, posture=at, source=source)  # pyright: ignore[reportArgumentType]
    angles = [name for name, turns in zip(model.coordinates, model.revolute, strict=True) if turns]
    report = [
        *predicted_sections(
            robot.name, found, frequency_hz, h, points, derivatives, at, angles, _std_of_modes(robot, q)
        ),
        *mode_shape_sections(model, q, found),
    ]

    files: dict[str, bytes | Callable[[Path], object]] = {"frf.npz": lambda path: jaxmb.write_frf(path, predicted)}
    if not (model.structural or model.fractional):
        system = jaxmb.state_space(model, q, frame=options.frame, kind=options.kind, at=robot.linearize_at)  # pyright: ignore[reportArgumentType]
        files["state-space.mat"] = lambda path: jaxmb.write_state_space(path, system, points, points, options.kind)  # pyright: ignore[reportArgumentType]
    # written at its equilibrium, an open chain has unloaded springs at q
    point = q if model.loops else operating_point(model, q, robot.linearize_at)[: len(model.coordinates)]
    mjcf = exported_mjcf(robot.machine, dict(zip(model.coordinates, np.asarray(point).tolist(), strict=True)))
    if mjcf is not None:
        files["machine.xml"] = mjcf.encode()
    mode = options.animate or 1
    figure = (
        None
        if options.animate is None
        else lambda folder: write_mode_animation(folder / f"mode-{mode}.gif", model, q, mode, found=found)
    )
    deliver(robot.name, robot.folder(options.out, "predict"), report, files, figure)


def _std_of_modes(robot: Robot, q: "Array") -> "Callable[[int], tuple[np.ndarray, np.ndarray]] | None":
    """Standard deviations of the first modes at a posture; None without a covariance of parameters of the machine."""
    from jaxmb.maps.modal import load_identified, std_of_modes

    if robot.result is None or robot.model.fractional:
        return None
    try:
        return partial(std_of_modes, load_identified(robot.result), q)
    except InputError:
        return None


def compensate(
    machine: RobotArgument,
    joints: Annotated[
        Path,
        typer.Argument(
            help="CSV file with a line for each posture and a column for each coordinate that drives command, rad or"
            " m; the others stay as in the reference posture."
        ),
    ],
    out: Annotated[Path, typer.Option(help="CSV file of the results, with the same columns.")] = Path("commands.csv"),
    frame: Annotated[str, typer.Option(help="Frame that is compensated.", show_default=FRAME_DEFAULT)] = "tool",
    reverse: Annotated[
        bool, typer.Option("--reverse", help="The inverse: values of the nominal machine from joint commands.")
    ] = False,
    wrench: Wrench = None,
) -> None:
    """Compute joint commands that compensate the geometric errors and deflections of an identified machine."""
    if out.is_dir():
        raise WrongInput(f"{out}: is a folder, expected a CSV file or none")
    if out.resolve() == joints.resolve():  # the default of --out is a usual input of --reverse
        raise WrongInput(f"{out}: is the file of the postures, expected another --out")
    with wrong_input():
        robot = find_robot(machine)  # errors in its file are reported before JAX is imported

    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxmb.io.files import write_atomically
    from jaxmb.mechanics.kinematics import check_wrench, frame_name, frame_pose
    from jaxmb.response.static import CONVERGED, actual_pose, compensate as commands_of, nominal_model, nominal_values
    from jaxmb.spatial import displacement

    with wrong_input(), progress(robot.name, "computing"):
        model = robot.model
        point = frame_name(model, frame)
        load = None if wrench is None else jnp.asarray(wrench)
        check_wrench(load)
        driven, rows = _postures(joints, model)
        q, nominal, columns = np.array(rows), nominal_model(model), [model.coordinates.index(name) for name in driven]
        function = nominal_values if reverse else commands_of

        def solved(x: jax.Array) -> tuple[jax.Array, jax.Array]:
            y = function(model, x, point, load, driven)
            command, stated = (x, y) if reverse else (y, x)
            return y, displacement(frame_pose(nominal, stated, point), actual_pose(model, command, point, load))

        found, left = (np.asarray(part) for part in jax.vmap(solved)(jnp.asarray(q)))
        lost = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if lost.size:
            raise ValueError(
                f"{joints}: posture {lost[0] + 1} cannot be compensated: it is singular or out of reach,"
                " or the machine is too soft to reach it under its weight and the load"
            )
        lines = [",".join(driven), *(",".join(repr(x) for x in row) for row in found[:, columns].tolist())]
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, ("\n".join(lines) + "\n").encode())
    largest = np.max(np.abs(found - q), axis=0)[columns]
    changes = ", ".join(f"{name} {value:.4g}" for name, value in zip(driven, largest, strict=True))
    across, about = (np.linalg.norm(part, axis=1).max() for part in (left[:, :3], left[:, 3:]))
    beyond = max(across, about) > CONVERGED
    rest = f"; largest displacement of {point} that remains: {across:.4g} m, {about:.4g} rad" if beyond else ""
    typer.echo(f"{robot.name}: {len(q)} postures written to {out}; largest changes (rad, m): {changes}{rest}")
    for name, zero in zip(model.coordinates, np.asarray(model.zero).tolist(), strict=True):
        if abs(zero) > LARGEST_ZERO:
            typer.echo(
                f"remark: the zero of {name}, {zero:.4g} (rad or m), is compensated as an error of the machine; one"
                " that its controller knows belongs to the origin of the body"
            )


def _postures(path: Path, model: "Model") -> tuple[tuple[str, ...], list[list[float]]]:
    """Coordinates with a column in a CSV file, and its postures, rad or m, other coordinates as in the reference
    posture."""
    from jaxmb.io.files import csv_table, number_of_cell
    from jaxmb.machine.values import check_angle, check_travel

    coordinates, reference = model.coordinates, model.reference.tolist()
    checks = {
        name: check_angle if turns else check_travel for name, turns in zip(coordinates, model.revolute, strict=True)
    }
    heads, rows = csv_table(path, "a line for each posture")
    with error_location(str(path)):
        check_without_unit(heads, coordinates)
        check_known("column: coordinate", heads, coordinates)
        check_distinct(heads, "column '{}' occurs twice, expected it once")
    found = []
    for number, row in rows:
        with error_location(f"{path}: line {number}"):
            values = {name: number_of_cell(name, cell) for name, cell in zip(heads, row, strict=True)}
            for name, value in values.items():
                checks[name](name, value)
        found.append([values.get(name, own) for name, own in zip(coordinates, reference, strict=True)])
    return tuple(heads), found


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
        list[str] | None,
        typer.Option(help='Other coordinates, as "q4=45 deg,q5=45 deg"; the rest as in the reference posture.'),
    ] = None
    show: Annotated[
        list[str],
        typer.Option(
            help="dexterity, nu_p, nu_r, deflection, stiffness, least_stiffness or greatest_stiffness; or frequency,"
            " damping, static_compliance or dynamic_compliance. More than once."
        ),
    ] = ["dexterity"]
    modes: Annotated[
        int | None,
        typer.Option(help="Number of modes in maps of frequency and damping.", show_default="4, or all of fewer"),
    ] = None
    joints: Annotated[
        str | None,
        typer.Option(
            help='Coordinates of the Jacobian, or those that move the frame in maps over positions, as "z1,z2,z3".',
            show_default="all, for positions of six or fewer",
        ),
    ] = None
    directions: Annotated[
        str | None,
        typer.Option(
            help='Components of the twist in the dexterity (x,y,z,rx,ry,rz), as "x,y,rz".', show_default="all"
        ),
    ] = None
    limits: Annotated[
        list[str] | None,
        typer.Option(help='Limits of a coordinate in maps over positions, as "z2=-5:140 deg".', show_default="none"),
    ] = None
    band_hz: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Band of the dynamic compliance, Hz.", show_default="all"),
    ] = None
    wrench: Wrench = None
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
        typer.Option(help="The workspace's axes: xy, xz or yz.", show_default="the plane of the largest motion"),
    ] = None
    points: Annotated[int, typer.Option(help="Grid points of each coordinate.")] = 121
    length: Annotated[
        float | None, typer.Option(help="Characteristic length of the dexterity, m.", show_default="the optimal one")
    ] = None
    good: Annotated[
        list[str] | None,
        typer.Option(help='Threshold, as "dexterity=0.4", SI units.', show_default="that of the best quarter"),
    ] = None


def map_postures(options: MapOptions) -> None:
    """Map dexterity, stiffness or modes over the postures of a robot, with good zones; write map.json and figures."""
    with wrong_input():
        robot = find_robot(options.machine)
        found = _mapped(options, robot, tuple(dict.fromkeys(options.show)))
    from jaxmb.maps import ModalMaps, modal_maps_json, posture_maps_json
    from jaxmb.report.maps import posture_map_sections
    from jaxmb.report.modal_maps import modal_map_sections

    if isinstance(found, ModalMaps):
        sections, text = modal_map_sections(found), modal_maps_json(found)
    else:
        sections = posture_map_sections(found, options.plane, options.length is not None)
        text = posture_maps_json(found)
    deliver(robot.name, robot.folder(options.out, "map"), sections, {"map.json": text.encode()})


def _is_modal(options: MapOptions, quantities: tuple[str, ...]) -> bool:
    """Whether the quantities are modal; ValueError for options that do not fit together."""
    from jaxmb.maps import MODAL_QUANTITIES, QUANTITIES

    check_known("show: quantity", quantities, (*QUANTITIES, *MODAL_QUANTITIES))
    modal = [name for name in quantities if name in MODAL_QUANTITIES]
    if modal and len(modal) < len(quantities):
        other = next(name for name in quantities if name not in modal)
        raise ValueError(f"show: '{modal[0]}' and '{other}' need separate commands")
    used_by = {
        **dict.fromkeys(("path", "limits"), MODAL_QUANTITIES),
        **dict.fromkeys(("good", "plane", "shown", "directions"), QUANTITIES),
        "modes": ("frequency", "damping"),
        "band_hz": ("dynamic_compliance",),
        "length": ("dexterity",),
        "wrench": [name for name, about in QUANTITIES.items() if "wrench" in about.needs],
        "direction": ("stiffness", "static_compliance", "dynamic_compliance"),
    }
    for option, users in used_by.items():
        if getattr(options, option) is not None and not set(users) & set(quantities):
            raise ValueError(f"{option}: not used by a map of {quantities[0]}, remove it")
    if options.path is not None and options.over:
        raise ValueError("path: found 'over' as well, expected one of the two")
    if options.path is None and not options.over:
        raise ValueError('over: found none, expected a coordinate and its range, as "q2=0:146 deg"')
    if options.plane not in (None, "xy", "xz", "yz"):
        raise ValueError(f"plane: '{options.plane}', expected xy, xz or yz")
    if options.plane is not None and len(options.over or ()) == 1:
        raise ValueError("plane: not used by a map over one coordinate, remove it")
    return bool(modal)


def _mapped(options: MapOptions, robot: Robot, quantities: tuple[str, ...]) -> "ModalMaps | dict[str, PostureMap]":
    from jaxmb.machine.values import coordinate_values
    from jaxmb.maps import DIRECTIONS, load_identified, modal_maps, posture_maps
    from jaxmb.maps.workspace_grid import grid_of, path_of, ranges_of, thresholds_of

    is_modal, model, path, limits = _is_modal(options, quantities), robot.model, options.path, options.limits
    held = coordinate_values(",".join(options.posture or ()))
    over = grid_of(model, options.over or [], options.points) if path is None else {}
    if not is_modal:
        with progress(robot.name, "mapping"):
            return posture_maps(
                model,
                over,
                quantities,
                options.frame,
                held,
                length=options.length,
                wrench=options.wrench,
                direction=options.direction,
                joints=names_in(options.joints),
                directions=names_in(options.directions) or DIRECTIONS,
                shown=options.shown,
                good=thresholds_of(options.good or []),
            )
    identified = None if robot.result is None else load_identified(robot.result)
    with progress(robot.name, "compiling") as line:
        return modal_maps(
            model if identified is None else identified,
            over=over if path is None else None,
            path=None if path is None else path_of(model, path, options.points),
            modes=options.modes,
            quantities=quantities,
            frame=options.frame,
            held=held,
            joints=names_in(options.joints),
            limits=None if limits is None else ranges_of(model, "limits", limits),
            direction=options.direction,
            band_hz=options.band_hz,
            report=lambda done, of: line(f"{done} of {of} postures"),
        )
