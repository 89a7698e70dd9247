"""`jaxmb compensate`."""

import csv
import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from jaxmb.cli.console import FRAME_DEFAULT, RobotArgument, find_robot, progress, writing, wrong_input
from jaxmb.io.validation import InputError, check_known, error_location


def compensate(
    machine: RobotArgument,
    joints: Annotated[
        Path, typer.Argument(help="CSV file with a column for each coordinate, rad or m, and a line for each posture.")
    ],
    out: Annotated[Path, typer.Option(help="CSV file of the results, in the same columns.")] = Path("commands.csv"),
    frame: Annotated[str, typer.Option(help="Frame that is compensated.", show_default=FRAME_DEFAULT)] = "tool",
    reverse: Annotated[
        bool, typer.Option("--reverse", help="From joint commands to the values of the nominal machine at that pose.")
    ] = False,
    wrench: Annotated[
        str, typer.Option(help='Load at the frame, "fx,fy,fz,mx,my,mz" in N and Nm, ground axes.', show_default="none")
    ] = "",
) -> None:
    """Joint commands with which the tool of an identified machine is where that of the nominal machine would be, under
    its weight and a load."""
    with wrong_input():
        robot = find_robot(machine)  # errors in its file are reported before JAX is imported

    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxmb.io.files import write_atomically
    from jaxmb.mechanics.kinematics import frame_name
    from jaxmb.response.pose_compensation import compensate as commands_of, nominal_values

    with wrong_input(), progress(robot.name, "computing"):
        model = robot.model
        point, numbers = frame_name(model, frame), _load(wrench)
        load = None if numbers is None else jnp.asarray(numbers)
        q = np.array(_postures(joints, model.coordinates, np.asarray(model.reference).tolist()))
        function = nominal_values if reverse else commands_of
        found = np.asarray(jax.vmap(lambda x: function(model, x, point, load))(jnp.asarray(q)))
        lost = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if lost.size:
            raise ValueError(f"{joints}: posture {lost[0] + 1} cannot be compensated: it is singular or out of reach")
        lines = [",".join(model.coordinates), *(",".join(repr(x) for x in row) for row in found.tolist())]
    with writing(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(out, ("\n".join(lines) + "\n").encode())
    largest = np.max(np.abs(found - q), axis=0)
    changes = ", ".join(f"{name} {value:.4g}" for name, value in zip(model.coordinates, largest, strict=True))
    typer.echo(f"{robot.name}: {len(q)} postures written to {out}; largest changes (rad, m): {changes}")


def _load(text: str) -> "list[float] | None":
    """Wrench of a text of six numbers; None for an empty one."""
    if not text:
        return None
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if len(values) != 6:
        raise ValueError(f'wrench: found "{text}", expected six numbers "fx,fy,fz,mx,my,mz"')
    return values


def _postures(path: Path, coordinates: Sequence[str], reference: Sequence[float]) -> list[list[float]]:
    """Postures of a CSV file, rad or m; coordinates without a column as in the reference posture."""
    from jaxmb.io.files import read_text

    rows = [row for row in csv.reader(io.StringIO(read_text(path), newline="")) if any(cell.strip() for cell in row)]
    if len(rows) < 2:
        raise InputError(f"{path}: found {len(rows)} lines, expected a heading and a line for each posture")
    heads = [cell.strip() for cell in rows[0]]
    with error_location(str(path)):
        check_known("column: coordinate", heads, coordinates)
        if len(set(heads)) < len(heads):
            raise ValueError(f"columns are {', '.join(heads)}, expected each coordinate once")
    found = []
    for number, row in enumerate(rows[1:], 1):
        try:
            values = dict(zip(heads, map(float, row), strict=True))
            if not all(map(math.isfinite, values.values())):
                raise ValueError
        except ValueError:
            raise InputError(
                f"{path}: posture {number} is {', '.join(row)[:80]}, expected {len(heads)} finite numbers"
            ) from None
        found.append([values.get(name, own) for name, own in zip(coordinates, reference, strict=True)])
    return found
