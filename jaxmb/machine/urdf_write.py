"""URDF of machines."""

import os
from collections.abc import Iterable
from xml.sax.saxutils import quoteattr

import numpy as np

from jaxmb.io.files import write_atomically
from jaxmb.machine.schema import Body, Coordinate, Machine, RigidMass
from jaxmb.machine.urdf import OUT_OF_REACH
from jaxmb.machine.values import GROUND, Origin

GRAVITY = (0.0, 0.0, -9.81)
"""m/s^2, of a machine read from a URDF, which does not specify it."""


def write_urdf(machine: Machine, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write a machine as URDF, which `load_machine` reads back with the same masses, geometry, damping and friction.

    Bodies become links under their own names, coordinates joints, the ground a root link called "ground"; payloads and
    named frames are links at fixed joints. Ranges, speed and effort limits are written; a revolute joint without a
    range is "continuous". Rotor inertias, stiffness, loss factors, offsets, further friction, locks, acceleration
    limits, transmissions, damping of the whole machine and another gravity than 9.81 m/s^2 along -z have no URDF
    element: they are omitted and listed in a comment at the top of the file.

    Args:
        machine: an open chain, or several, of rigid bodies with one coordinate each at most.
        path: of the file.

    Returns:
        Omitted properties, empty where the file is complete.

    Raises:
        NotImplementedError: URDF cannot describe the machine: it has loops, springs, beams, motors, or several
            coordinates between two bodies. The message names all of them.
        OSError: the file cannot be written; no partial file remains.
    """
    write_atomically(path, urdf_text(machine).encode())
    return _omitted(machine)


def urdf_text(machine: Machine) -> str:
    """A machine as the text of a URDF; see `write_urdf`."""
    unsupported = beyond_urdf(machine)
    if unsupported:
        raise NotImplementedError(f"machine '{machine.name}': a URDF cannot describe {', '.join(unsupported)}")
    omitted = "; ".join(_omitted(machine)).replace("--", "- -")
    comment = [f"<!-- omitted, without a URDF element: {omitted} -->"] if omitted else []
    links, joints, used = [f"  <link name={quoteattr(GROUND)}/>"], [], set(machine.coordinates)

    def fixed(name: str, parent: str, origin: Origin) -> str:
        joint = f"{name}_fixed"
        while joint in used:
            joint += "_"
        used.add(joint)
        return _joint(joint, "fixed", parent, name, origin)

    for body in machine.body:
        links.append(_link(body))
        joints.append(_moving_joint(body, body.joint[0]) if body.joint else fixed(body.name, body.parent, body.origin))
    for frame in machine.frame:
        links.append(f"  <link name={quoteattr(frame.name)}/>")
        joints.append(fixed(frame.name, frame.body, frame.origin))
    for payload in machine.payload:
        links.append(_link(payload))
        joints.append(fixed(payload.name, payload.frame, Origin()))
    return "\n".join([
        '<?xml version="1.0"?>', *comment, f"<robot name={quoteattr(machine.name)}>", *links, *joints, "</robot>", ""
    ])  # fmt: skip


def beyond_urdf(machine: Machine) -> tuple[str, ...]:
    """Properties of a machine that URDF cannot describe; empty where it can be written."""
    found = [
        f"{label} ({', '.join(each.name for each in parts)})"
        for label, parts in (
            ("beams", machine.beam),
            ("loops", machine.loop),
            ("springs", machine.spring),
            ("virtual springs", machine.virtual_spring),
            ("motors", [c for body in machine.body for c in body.joint if c.motor]),
        )
        if parts
    ]
    several = [body.name for body in machine.body if len(body.joint) > 1]
    if several:
        found.append(f"several coordinates between two bodies ({', '.join(several)})")
    used = {GROUND, *(b.name for b in machine.body), *(f.name for f in machine.frame)}
    same = [payload.name for payload in machine.payload if payload.name in used]
    if same:
        found.append(f"a payload and a frame of one name ({', '.join(same)})")
    return tuple(found)


def _omitted(machine: Machine) -> tuple[str, ...]:
    """Properties of a machine that its URDF omits."""
    found = []
    joints = [c for body in machine.body for c in body.joint]
    for label, key in (
        ("rotor inertia", "rotor_inertia"), ("stiffness", "stiffness"), ("loss factor", "loss_factor"),
        ("offset", "offset"), ("further friction", "further_friction"), ("lock", "locked"),
        ("acceleration limit", "acceleration_limit"),
    ):  # fmt: skip
        concerned = [c.name for c in joints if getattr(c, key)]
        if concerned:
            found.append(f"{label} of {', '.join(concerned)}")
    if machine.transmission:
        found.append(f"transmission {', '.join(each.name for each in machine.transmission)}")
    if machine.rayleigh.mass or machine.rayleigh.stiffness or machine.fractional is not None:
        found.append("damping of the whole machine")
    if machine.gravity != GRAVITY:
        found.append(f"gravity {', '.join(f'{g:g}' for g in machine.gravity)} m/s^2")
    return tuple(found)


def _link(rigid: RigidMass) -> str:
    name = quoteattr(rigid.name)
    if rigid.mass == 0.0:
        return f"  <link name={name}/>"
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = rigid.central_inertia.tolist()
    tensor = {"ixx": xx, "ixy": xy, "ixz": xz, "iyy": yy, "iyz": yz, "izz": zz}
    return (
        f"  <link name={name}>\n    <inertial>\n"
        f'      <origin xyz="{_numbers(rigid.center_of_mass)}" rpy="0 0 0"/>\n'
        f'      <mass value="{_numbers([rigid.mass])}"/>\n'
        f"      <inertia {_attributes(tensor)}/>\n"
        "    </inertial>\n  </link>"
    )


def _moving_joint(body: Body, coordinate: Coordinate) -> str:
    kind = "prismatic" if coordinate.type == "prismatic" else "continuous" if coordinate.range is None else "revolute"
    axis = np.array(coordinate.axis) / np.linalg.norm(coordinate.axis)
    elements = [f'    <axis xyz="{_numbers(axis)}"/>']
    low, high = coordinate.range or (-OUT_OF_REACH, OUT_OF_REACH)
    limits = {} if kind == "continuous" else {"lower": low, "upper": high}
    most = coordinate.effort_limit, coordinate.speed_limit
    if limits or any(most):  # a limit has to state both
        limits |= dict(zip(("effort", "velocity"), (each or OUT_OF_REACH for each in most), strict=True))
        elements.append(f"    <limit {_attributes(limits)}/>")
    if coordinate.damping or coordinate.friction:
        losses = {"damping": coordinate.damping, "friction": coordinate.friction}
        elements.append(f"    <dynamics {_attributes(losses)}/>")
    return _joint(coordinate.name, kind, body.parent, body.name, body.origin, elements)


def _joint(name: str, kind: str, parent: str, child: str, origin: Origin, elements: Iterable[str] = ()) -> str:
    lines = [
        f'  <joint name={quoteattr(name)} type="{kind}">',
        f"    <parent link={quoteattr(parent)}/>",
        f"    <child link={quoteattr(child)}/>",
        f'    <origin xyz="{_numbers(origin.xyz)}" rpy="{_numbers(origin.rpy)}"/>',
        *elements,
        "  </joint>",
    ]
    return "\n".join(lines)


def _attributes(values: dict[str, float]) -> str:
    return " ".join(f'{key}="{_numbers([value])}"' for key, value in values.items())


def _numbers(values: Iterable[float]) -> str:
    """Numbers as text that is read back exactly."""
    return " ".join(repr(float(value)) for value in values)
