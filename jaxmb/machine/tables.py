"""Machines from tables of Denavit-Hartenberg parameters."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import ValidationError

from jaxmb.io.validation import Table, validated
from jaxmb.machine.elements import origin_matrix, origin_table, pose_matrix
from jaxmb.machine.schema import Drive, Machine, RigidMass
from jaxmb.machine.values import FEW, GROUND, SOME, Angle, Length, Name, Origin, Part

Convention = Literal["standard", "modified"]


class DhRow(Drive, RigidMass):
    """One row of the table: a coordinate and the link it moves, whose mass data are in the row's own DH frame."""

    a: Length = 0.0
    """Distance along x [m]."""
    alpha: Angle = 0.0
    """Angle about x [rad]."""
    d: Length = 0.0
    """Distance along z; a prismatic coordinate adds to it [m]."""
    theta: Angle = 0.0
    """Angle about z; a revolute coordinate adds to it [rad]."""


class DhTable(Part):
    """A serial chain by its DH parameters."""

    convention: Convention
    """`"standard"`: the joint's axis is at the far end of the link; `"modified"` (Craig): at its own end."""
    row: Annotated[tuple[DhRow, ...], FEW, SOME]
    """Rows of the table, `[[dh.row]]`."""
    parent: Name = GROUND
    """Body that carries the table's frame 0."""
    origin: Origin = Origin()
    """Frame 0 in the parent's frame."""


def machine_from_dh(
    name: str,
    rows: Iterable[Table],
    convention: Convention = "standard",
    *,
    parent: str = GROUND,
    origin: Table | None = None,
    **machine: Any,
) -> Machine:
    """Machine of a DH table.

    standard:       T = Rz(theta) Tz(d) Tx(a) Rx(alpha), the row's frame at the far end of its link;
    modified:       T = Rx(alpha) Tx(a) Rz(theta) Tz(d), with a and alpha of the link before (Craig's a_i-1, alpha_i-1);
    with theta + q for a revolute and d + q for a prismatic coordinate q.

    Args:
        name: name of the machine.
        rows: name, type, a [m], alpha [rad or "90 deg"], d [m], theta [rad or "90 deg"] of each row, and optionally
            mass, center_of_mass and inertia_products or inertia_tensor in the row's DH frame, stiffness, damping,
            rotor_inertia, friction, offset, further_friction, motor and limits of motion. Coordinate and body of a row
            have its name, its DH frame is `<name>_dh`.
        convention: "standard" or "modified".
        parent: body that carries the table's frame 0.
        origin: frame 0 in the parent's frame, as in a machine file: {"xyz": [...], "rpy": [...]}.
        machine: the other keys of a machine file (gravity, body, frame, payload, spring, posture ...).

    Raises:
        ValueError: a row is invalid; the message names it, the value found and the expectation.

    Source: Denavit and Hartenberg 1955; Craig, "Introduction to Robotics", section 3.4.
    """
    table = {"convention": convention, "row": [dict(row) for row in rows], "parent": parent, "origin": origin or {}}
    return validated(Machine, {"name": name, "dh": table} | machine, f"machine '{name}'", prepare=expand_tables)


def expand_tables(data: Table) -> Table:
    """Contents of a machine file with its DH table, if any, expanded to bodies and frames.

    Bodies, frames, payloads and springs may refer to the rows' DH frames.

    Raises:
        ValueError: the table is invalid; the message names the row, the value found and the expectation.
    """
    if "dh" not in data:
        return data
    bodies, frames = _chain(validated(DhTable, data["dh"], "dh"))
    dh_frames = {frame["name"]: (frame["body"], origin_matrix(frame["origin"])) for frame in frames}
    rest = {key: value for key, value in data.items() if key != "dh"}
    for key, made, carrier in (("body", bodies, "parent"), ("frame", frames, "body")):
        parts = data.get(key, [])
        if isinstance(parts, list | tuple):
            rest[key] = made + [_on_body(part, carrier, dh_frames) for part in parts]
    return rest


def _chain(table: DhTable) -> tuple[list[Table], list[Table]]:
    """Bodies and DH frames of a table.

    The motion of a row is along or about z and so commutes with Rz(theta) Tz(d), which belong to the origin of its
    joint. The body's frame is directly behind the motion, before Tx(a) Rx(alpha) of a standard row.
    """
    bodies, frames = [], []
    carrier, origin_transform = table.parent, origin_matrix(table.origin)
    for row in table.row:
        transverse = pose_matrix([row.a, 0.0, 0.0], [row.alpha, 0.0, 0.0])
        axial = pose_matrix([0.0, 0.0, row.d], [0.0, 0.0, row.theta])
        if table.convention == "standard":
            origin, far_end = origin_transform @ axial, transverse
        else:
            origin, far_end = origin_transform @ transverse @ axial, np.eye(4)
        bodies.append(_body(row, carrier, origin, far_end))
        frames.append({"name": f"{row.name}_dh", "body": row.name, "origin": origin_table(far_end)})
        carrier, origin_transform = row.name, far_end
    return bodies, frames


def _body(row: DhRow, parent: str, origin: np.ndarray, far_end: np.ndarray) -> Table:
    given_keys = row.model_fields_set
    coordinate = {key: getattr(row, key) for key in Drive.model_fields if key in given_keys}
    body = {"name": row.name, "parent": parent, "origin": origin_table(origin), "joint": [coordinate]}
    rotation, offset = far_end[:3, :3], far_end[:3, 3]
    body["mass"] = row.mass
    if row.mass != 0.0:
        body["center_of_mass"] = (rotation @ np.array(row.center_of_mass) + offset).tolist()
    if given_keys & {"inertia_products", "inertia_tensor"}:
        rotated = rotation @ row.central_inertia @ rotation.T
        body["inertia_tensor"] = (0.5 * (rotated + rotated.T)).tolist()
    return body


def _on_body(part: Any, key: str, dh_frames: dict[str, tuple[str, np.ndarray]]) -> Any:
    """A part, attached to the body of its DH frame if it is on one; an invalid part is left to validation."""
    carrier = part.get(key) if isinstance(part, dict) else None
    if isinstance(carrier, str) and carrier in dh_frames:
        with suppress(ValidationError):
            body, pose = dh_frames[carrier]
            return part | {key: body, "origin": origin_table(pose @ origin_matrix(part.get("origin", {})))}
    return part
