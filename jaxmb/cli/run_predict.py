"""`jaxmb predict`."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from jaxmb.cli.console import FRAME_DEFAULT, Out, RobotArgument, deliver, find_robot, progress, wrong_input

PREDICTED_LINES = 1001


class PredictOptions(NamedTuple):
    """Options of `jaxmb predict`."""

    machine: RobotArgument
    out: Out = None
    posture: Annotated[
        str, typer.Option(help='Coordinates, as "z2=70 deg,z3=-100 deg"; the others as in the reference posture.')
    ] = ""
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
            help="Number of a mode to write as an animated GIF, 1 is the lowest frequency.",
            show_default="none",
        ),
    ] = None


def predict(options: PredictOptions) -> None:
    """Modes and frequency response functions of a machine; write frf.npz, figures, including the first mode shapes,
    state-space.mat for machines with viscous damping, and machine.xml (MJCF) where MuJoCo is installed and can describe
    the machine."""
    with wrong_input():
        robot = find_robot(options.machine)  # errors in its file are reported before JAX is imported

    import numpy as np

    from jaxmb.io.files import write_atomically
    from jaxmb.machine.values import coordinate_values
    from jaxmb.measurement.files.frf_file import write_frf
    from jaxmb.measurement.frf_set import FrfSet
    from jaxmb.mechanics.kinematics import frame_name
    from jaxmb.mechanics.loops import independent_coordinates
    from jaxmb.mechanics.mjcf import exported_mjcf
    from jaxmb.mechanics.postures import posture as posture_of
    from jaxmb.mechanics.tangent import linearize, motion_coordinates
    from jaxmb.report.mode_shapes import mode_shape_sections, predicted_sections, write_mode_animation
    from jaxmb.report.structure import check_mode
    from jaxmb.response.frf import check_kind, check_points, endpoints, frf
    from jaxmb.response.modal import check_mass_matrix, modes
    from jaxmb.response.state_space import state_space, write_state_space

    with wrong_input(), progress(robot.name, "computing"):
        model = robot.model
        derivatives = check_kind(options.kind)
        points, _ = endpoints(frame_name(model, options.frame), None, None)
        check_points(model, points)
        q = posture_of(model, coordinate_values(options.posture))
        band = None if options.band_hz is None else _band(*options.band_hz)
        tangent = linearize(model, q)
        check_mass_matrix(np.asarray(tangent.mass), motion_coordinates(model))
        found = modes(tangent)
        if options.animate is not None:
            check_mode(robot.name, found, options.animate)
        low_hz, high_hz = _band_around(np.asarray(found.frequency_hz).tolist()) if band is None else band
        frequency_hz = np.linspace(low_hz, high_hz, PREDICTED_LINES)
        h = np.asarray(frf(model, q, frequency_hz, options.frame, options.kind))  # pyright: ignore[reportArgumentType]  (checked)
    names = tuple(" ".join(point) for point in points)
    predicted = FrfSet(frequency_hz, h, options.kind, names, names, source=f"predicted for {robot.name}")  # pyright: ignore[reportArgumentType]
    values = dict(zip(model.coordinates, np.asarray(q).tolist(), strict=True))
    at = {coordinate: values[coordinate] for coordinate in independent_coordinates(model)}
    angles = [name for name, turns in zip(model.coordinates, model.revolute, strict=True) if turns]
    report = predicted_sections(robot.name, found, frequency_hz, h, points, derivatives, at, angles)
    report += mode_shape_sections(model, q, found)

    def animation(mode: int, folder: Path) -> Path:
        return write_mode_animation(folder / f"mode-{mode}.gif", model, q, mode, found=found)

    files: dict[str, Callable[[Path], object]] = {"frf.npz": lambda path: write_frf(path, predicted)}
    if not (model.structural or model.fractional):
        system = state_space(model, q, frame=options.frame, kind=options.kind)  # pyright: ignore[reportArgumentType]
        files["state-space.mat"] = lambda path: write_state_space(path, system, points, points, options.kind)  # pyright: ignore[reportArgumentType]
    mjcf = exported_mjcf(robot.machine, values)
    if mjcf is not None:
        files["machine.xml"] = lambda path: write_atomically(path, mjcf.encode())
    figure = None if options.animate is None else partial(animation, options.animate)
    deliver(robot.name, robot.folder(options.out, "predict"), report, files, figure)


def _band(low_hz: float, high_hz: float) -> tuple[float, float]:
    if not (math.isfinite(low_hz) and math.isfinite(high_hz)):
        raise ValueError(f"band_hz: {low_hz:g} to {high_hz:g} Hz, expected finite numbers")
    if low_hz < 0.0:
        raise ValueError(f"band_hz: {low_hz:g} Hz, expected 0 or more")
    if not low_hz < high_hz:
        raise ValueError(f"band_hz: {low_hz:g} to {high_hz:g} Hz, expected the lower end first")
    return low_hz, high_hz


def _band_around(frequency_hz: list[float]) -> tuple[float, float]:
    """A band around the first six modes, Hz; 1 to 100 Hz for a machine without modes."""
    if not frequency_hz:
        return 1.0, 100.0
    return 0.2 * frequency_hz[0], 1.25 * frequency_hz[:6][-1]
