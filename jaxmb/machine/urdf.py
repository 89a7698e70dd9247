"""URDF files: reading and writing."""

import functools
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

import numpy as np
from pydantic import ValidationError

from jaxmb.io.files import write_atomically
from jaxmb.io.validation import Table, check_known, listed, sentence, shown, typed_arguments
from jaxmb.machine.elements import (
    Coupling,
    deviation_matrix,
    motion_matrix,
    origin_matrix,
    origin_table,
    rotation_matrix,
)
from jaxmb.machine.schema import EXACT, Body, Coordinate, Frame, Machine, Payload, RigidMass
from jaxmb.machine.values import (
    GROUND,
    OUTSIDE_NAME,
    AngleText,
    Origin,
    Part,
    in_order_of_need,
    name_of,
    numbers_text,
    omitted,
    unused_name,
    valid_name,
)

COORDINATE_OF_JOINT = {"revolute": "revolute", "continuous": "revolute", "prismatic": "prismatic", "fixed": None}
UNSUPPORTED_JOINTS = ("floating", "planar", "spherical")
OUT_OF_REACH = 1e9
"""Number that means no limit where the format requires one, rad or m, per second, Nm or N."""

_NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")


@dataclass
class _Element:
    """An XML element and its line number."""

    tag: str
    attributes: dict[str, str]
    line: int
    parent: "_Element | None"
    """None for links and joints."""
    children: list["_Element"] = field(default_factory=list)

    @property
    def label(self) -> str:
        """Name in errors, such as "joint 'hip', limit"."""
        return f"{self.parent.label}, {self.tag}" if self.parent else f"{self.tag} '{self.attributes.get('name', '')}'"

    def only(self, tag: str) -> "_Element":
        """The element inside with this tag."""
        found = self.optional(tag)
        if found is None:
            raise ValueError(f"{self.label}: line {self.line}: <{tag}> is missing, expected one")
        return found

    def optional(self, tag: str) -> "_Element | None":
        """The element inside with this tag; None where there is none."""
        found = [child for child in self.children if child.tag == tag]
        if len(found) > 1:
            raise ValueError(f"{self.label}: line {found[1].line}: found a second <{tag}>, expected one")
        return found[0] if found else None

    def part(self, tag: str) -> "_Element":
        """The element inside with this tag; where there is none, one without attributes."""
        return self.optional(tag) or _Element(tag, {}, self.line, self)

    def attribute(self, key: str) -> str:
        """An attribute that must be given."""
        if key not in self.attributes:
            raise ValueError(f'{self.label}: line {self.line}: <{self.tag}> has no {key}, expected {key}="..."')
        return self.attributes[key]

    def not_negative(self, key: str, default: str | None = None) -> float:
        """One number of at least 0."""
        (value,) = self.numbers(key, 1, default)
        if value < 0.0:
            raise ValueError(f'{self.label}: line {self.line}: found {key}="{value:g}", expected a number not below 0')
        return value

    def numbers(self, key: str, count: int = 1, default: str | None = None) -> list[float]:
        """Exactly `count` finite decimal numbers; Python's float() also accepts nan, inf, 1_000 and other digits."""
        text = self.attributes.get(key, default) or self.attribute(key)
        entries = text.split()
        values = [float(entry) if _NUMBER.fullmatch(entry) else math.nan for entry in entries[: count + 1]]
        if len(entries) != count or not all(math.isfinite(v) for v in values):
            expected = "one finite number" if count == 1 else f"{count} finite numbers"
            raise ValueError(f"{self.label}: line {self.line}: found {key}={shown(text)}, expected {expected}")
        return values


def machine_from_urdf(text: str, name: str) -> Machine:
    """Machine described by a URDF.

    Links become bodies, joints coordinates, both under their own names; the coordinates are in the order of the file's
    joints. A root link called "ground" is the ground itself, any other root link is a body fixed to it. Damping is read
    from `<dynamics>`; range, speed and effort limits from `<limit>`; geometry and transmissions are not used.

    Args:
        text: the XML.
        name: name of the machine; characters not allowed in names are replaced by _.

    Raises:
        ValueError: the text is no XML, or describes no valid machine; the message names the link or joint, the value
            found and the expectation.
        NotImplementedError: a floating, planar or spherical joint, or an origin given by a quaternion.
    """
    robot = _parse(text)
    if robot.tag != "robot":
        raise ValueError(f"line {robot.line}: found <{robot.tag}>, expected <robot>")
    for element in robot.children:
        if element.tag.startswith("xacro:"):
            raise ValueError(f"line {element.line}: found <{element.tag}>, expected plain URDF: expand the xacro first")
    links = _by_name(robot, "link")
    joints = _by_name(robot, "joint")
    parent_joint = _tree(links, joints)
    (root,) = (link for link in links if link not in parent_joint)
    order = [*parent_joint] if root == GROUND else [root, *parent_joint]
    bodies = [_body(link, links[link], parent_joint.get(link)) for link in order]
    couplings = [
        _coupling(joint, mimic, joints)
        for joint in joints.values()
        if COORDINATE_OF_JOINT[joint.attributes["type"]] is not None and (mimic := joint.optional("mimic")) is not None
    ]
    data = {"name": OUTSIDE_NAME.sub("_", name) or "_", "body": bodies, "coupling": couplings}
    try:
        return Machine.model_validate(data)
    except ValidationError as error:
        raise ValueError(sentence(error, data, Machine)) from None


def _body(name: str, link: _Element, joint: _Element | None) -> Table:
    body: Table = {"name": name} | _inertial(link)
    if joint is None:
        return body
    body["parent"] = joint.only("parent").attribute("link")
    body["origin"] = _origin(joint)
    kind = COORDINATE_OF_JOINT[joint.attributes["type"]]
    if kind is None:
        return body
    coordinate = {"name": joint.attributes["name"], "type": kind, "axis": _axis(joint)}
    dynamics = joint.part("dynamics")
    coordinate |= {key: dynamics.not_negative(key, "0") for key in ("damping", "friction")}
    return body | {"joint": [coordinate | _limits(joint.part("limit"), joint.attributes["type"])]}


def _coupling(joint: _Element, mimic: _Element, joints: Mapping[str, _Element]) -> Table:
    """The coupling of a joint that mimics another."""
    follows = mimic.attribute("joint")
    check_known(f"{mimic.label}: joint", [follows], joints)
    (ratio,), (offset,) = mimic.numbers("multiplier", default="1"), mimic.numbers("offset", default="0")
    return {"coordinate": joint.attributes["name"], "follows": follows, "ratio": ratio, "offset": offset}


def _limits(limit: _Element, kind: str) -> Table:
    """Limits of range, speed and effort of a joint; 0 and `OUT_OF_REACH` mean no limit."""
    result: Table = {}
    low, high = (limit.numbers(key, default="0")[0] for key in ("lower", "upper"))
    if kind != "continuous" and low > high:
        raise ValueError(
            f"{limit.label}: line {limit.line}: found lower={low:g} above upper={high:g}, expected rising limits"
        )
    if kind != "continuous" and low < high and max(-low, high) < OUT_OF_REACH:
        result["range"] = [low, high] if kind == "prismatic" else [AngleText(low), AngleText(high)]
    for key, name in (("velocity", "speed_limit"), ("effort", "effort_limit")):
        most = limit.numbers(key, default="0")[0]
        if 0.0 < most < OUT_OF_REACH:
            result[name] = most
    return result


def _inertial(link: _Element) -> Table:
    """Mass, centre of mass and inertia about it in the link's axes; empty where the link has no mass."""
    inertial = link.optional("inertial")
    if inertial is None:
        return {}
    mass, origin = inertial.only("mass").not_negative("value"), _origin(inertial)
    data: Table = {"mass": mass, "center_of_mass": origin["xyz"]}
    inertia = inertial.optional("inertia")
    if inertia is None:
        return data
    xx, yy, zz = (inertia.numbers(key)[0] for key in ("ixx", "iyy", "izz"))
    # Many files give only the diagonal.
    xy, xz, yz = (inertia.numbers(key, default="0")[0] for key in ("ixy", "ixz", "iyz"))
    tensor = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
    rotation = rotation_matrix(origin["rpy"])
    if mass == 0.0 and not tensor.any():
        return data
    rotated = rotation @ tensor @ rotation.T if any(origin["rpy"]) else tensor
    return data | {"inertia_tensor": (0.5 * (rotated + rotated.T)).tolist()}


def _axis(joint: _Element) -> list[float]:
    element = joint.optional("axis")
    if element is None:
        return [1.0, 0.0, 0.0]
    axis = element.numbers("xyz", 3)
    length = math.hypot(*axis)
    if length == 0.0:
        raise ValueError(
            f"{element.label}: found xyz={shown(element.attributes['xyz'])}, expected a direction, not zero"
        )
    return [a / length for a in axis]


def _origin(element: _Element) -> Table:
    origin = element.part("origin")
    if "quat_xyzw" in origin.attributes:
        raise NotImplementedError(f"{origin.label}: a rotation by quat_xyzw is not supported, expected rpy")
    return {key: origin.numbers(key, 3, "0 0 0") for key in ("xyz", "rpy")}


def _tree(links: dict[str, _Element], joints: dict[str, _Element]) -> dict[str, _Element]:
    """Parent joint of each link but the root, in the order of the joints, which form one tree over all links."""
    if not links:
        raise ValueError("the robot has no link, expected at least one")
    parent_joint: dict[str, _Element] = {}
    parents: dict[str, list[str]] = {}
    for joint in joints.values():
        kind = joint.attribute("type")
        if kind in UNSUPPORTED_JOINTS:
            raise NotImplementedError(
                f"{joint.label}: a {kind} joint is not supported, expected {', '.join(COORDINATE_OF_JOINT)}"
            )
        if kind not in COORDINATE_OF_JOINT:
            raise ValueError(
                f"{joint.label}: found type={shown(kind)}, expected one of: {', '.join(COORDINATE_OF_JOINT)}"
            )
        ends = {end: joint.only(end).attribute("link") for end in ("parent", "child")}
        for end, link in ends.items():
            check_known(f"{joint.label}: {end} link", [link], links)
        child = ends["child"]
        if child in parent_joint:
            raise ValueError(
                f"link '{child}' is the child of two joints, '{parent_joint[child].attributes['name']}' and"
                f" '{joint.attributes['name']}', expected a tree"
            )
        parent_joint[child], parents[child] = joint, [ends["parent"]]
    in_order_of_need(parents, "the parents of links")
    roots = [link for link in links if link not in parent_joint]
    if len(roots) > 1:
        raise ValueError(f"the robot has {len(roots)} root links ({listed(roots, 20)}), expected one")
    return parent_joint


def _by_name(robot: _Element, tag: str) -> dict[str, _Element]:
    result: dict[str, _Element] = {}
    for element in (child for child in robot.children if child.tag == tag):
        name = element.attribute("name")
        try:
            valid_name(name)
        except ValueError as error:
            raise ValueError(f"line {element.line}: <{tag}>: found name={shown(name)}, {error}") from None
        if name in result:
            raise ValueError(f"line {element.line}: the {tag} name '{name}' is used twice, expected each once")
        result[name] = element
    return result


def _parse(text: str) -> _Element:
    """Root element of an XML text; a DTD is refused, so that no entities are expanded or fetched."""
    top = _Element("", {}, 0, None)
    stack = [top]

    def start(tag: str, attributes: dict[str, str]) -> None:
        element = _Element(tag, attributes, parser.CurrentLineNumber, stack[-1] if len(stack) > 2 else None)
        stack[-1].children.append(element)
        stack.append(element)

    def doctype(*_declared: Any) -> NoReturn:
        raise ValueError(f"line {parser.CurrentLineNumber}: found a document type declaration, expected plain URDF")

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, lambda _tag: stack.pop()
    parser.StartDoctypeDeclHandler = doctype
    try:
        parser.Parse(text, True)
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise ValueError(f"line {error.lineno}, column {error.offset + 1}: not valid XML: {reason}") from None
    return top.children[0]


CARRIED: dict[type[Part], tuple[str, ...]] = {
    Machine: ("name", "description", "source", "body", "frame", "payload", "coupling"),
    Body: (*RigidMass.model_fields, "parent", "origin", "joint"),
    Coordinate: (
        "name", "type", "axis", "damping", "friction", "range", "speed_limit", "effort_limit", "origin_deviation",
        "zero",
    ),
    Frame: ("name", "body", "origin", "deviation"),
    Payload: (*RigidMass.model_fields, "frame"),
}  # fmt: skip
"""Keys that a URDF carries, by class; all others are listed as omitted where they are stated."""


@typed_arguments
def write_urdf(machine: Machine, path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Write a machine as URDF, which `load_machine` reads back with the same masses, geometry, damping and friction.

    Bodies become links under their own names, coordinates joints, the ground a root link called "ground"; payloads and
    named frames are links at fixed joints. Ranges, speed and effort limits are written; a revolute joint without a
    range is "continuous". Zeros and deviations of joint origins and frames are included in the origins. All else, such
    as rotor inertias, stiffness, scaled readings, the reference posture and another gravity than 9.81 m/s^2 along -z
    (`CARRIED`), has no URDF element: it is omitted and listed in a comment at the top of the file.

    Args:
        machine: an open chain, or several, of rigid bodies with one coordinate each at most.
        path: of the file.

    Returns:
        Omitted properties, empty where the file is complete.

    Raises:
        NotImplementedError: URDF cannot describe the machine: it has loops, springs, virtual springs, beams, motors,
            several coordinates between two bodies, or a payload with the name of a body or frame. The message names all
            of them.
        OSError: the file cannot be written; no partial file remains.
    """
    write_atomically(path, urdf_text(machine).encode())
    return omitted(machine, CARRIED)


def urdf_text(machine: Machine) -> str:
    """A machine as the text of a URDF; see `write_urdf`."""
    unsupported = beyond_urdf(machine)
    if unsupported:
        raise NotImplementedError(f"machine '{machine.name}': a URDF cannot describe {', '.join(unsupported)}")
    notes = "; ".join(omitted(machine, CARRIED)).replace("--", "- -")
    comment = [f"<!-- omitted, without a URDF element: {notes} -->"] if notes else []
    used = set(machine.coordinates)

    def fixed(name: str, parent: str, origin: Origin) -> str:
        return _joint(unused_name(f"{name}_fixed", used, "_"), "fixed", parent, name, origin)

    stated = {frame.name: (frame.body, frame.origin) for frame in machine.frame if frame.deviation != EXACT}
    links = [
        f"  <link name={quoteattr(GROUND)}/>",
        *(_link(body) for body in machine.body),
        *(f"  <link name={quoteattr(frame.name)}/>" for frame in machine.frame),
        *(_link(payload) for payload in machine.payload),
    ]
    joints = [
        *(
            _moving_joint(b, b.joint[0], machine.coupling) if b.joint else fixed(b.name, b.parent, b.origin)
            for b in machine.body
        ),
        *(fixed(f.name, f.body, _displaced(f.origin, deviation_matrix(f.deviation))) for f in machine.frame),
        *(fixed(p.name, *stated.get(p.frame, (p.frame, Origin()))) for p in machine.payload),
    ]
    return "\n".join([
        '<?xml version="1.0"?>', *comment, f"<robot name={quoteattr(machine.name)}>", *links, *joints, "</robot>", ""
    ])  # fmt: skip


def beyond_urdf(machine: Machine) -> tuple[str, ...]:
    """Properties of a machine that URDF cannot describe; empty where it can be written."""
    used = {GROUND, *(b.name for b in machine.body), *(f.name for f in machine.frame)}
    return tuple(
        f"{label} ({', '.join(each.name for each in parts)})"
        for label, parts in (
            *(
                (f"{name_of(key)}s", parts)
                for key, parts in machine.elements.items()
                if key not in (*CARRIED[Machine], "transmission")
            ),
            ("motors", [c for body in machine.body for c in body.joint if c.motor]),
            ("several coordinates between two bodies", [body for body in machine.body if len(body.joint) > 1]),
            ("a payload and a frame of one name", [payload for payload in machine.payload if payload.name in used]),
        )
        if parts
    )


def _link(rigid: RigidMass) -> str:
    name = quoteattr(rigid.name)
    if rigid.mass == 0.0:
        return f"  <link name={name}/>"
    (xx, xy, xz), (_, yy, yz), (_, _, zz) = rigid.central_inertia.tolist()
    tensor = {"ixx": xx, "ixy": xy, "ixz": xz, "iyy": yy, "iyz": yz, "izz": zz}
    return (
        f"  <link name={name}>\n    <inertial>\n"
        f'      <origin xyz="{numbers_text(rigid.center_of_mass)}" rpy="0 0 0"/>\n'
        f'      <mass value="{numbers_text([rigid.mass])}"/>\n'
        f"      <inertia {_attributes(tensor)}/>\n"
        "    </inertial>\n  </link>"
    )


def _moving_joint(body: Body, coordinate: Coordinate, couplings: Sequence[Coupling]) -> str:
    kind = "prismatic" if coordinate.type == "prismatic" else "continuous" if coordinate.range is None else "revolute"
    axis = np.array(coordinate.axis) / np.linalg.norm(coordinate.axis)
    elements = [f'    <axis xyz="{numbers_text(axis)}"/>']
    low, high = coordinate.range or (-OUT_OF_REACH, OUT_OF_REACH)
    limits = {} if kind == "continuous" else {"lower": low, "upper": high}
    most = coordinate.effort_limit, coordinate.speed_limit
    if limits or any(most):  # a limit has to state both
        limits |= dict(zip(("effort", "velocity"), (each or OUT_OF_REACH for each in most), strict=True))
        elements.append(f"    <limit {_attributes(limits)}/>")
    if coordinate.damping or coordinate.friction:
        losses = {"damping": coordinate.damping, "friction": coordinate.friction}
        elements.append(f"    <dynamics {_attributes(losses)}/>")
    elements += [
        f"    <mimic joint={quoteattr(c.follows)} {_attributes({'multiplier': c.ratio, 'offset': c.offset})}/>"
        for c in couplings
        if c.coordinate == coordinate.name
    ]
    origin = _displaced(
        body.origin,
        deviation_matrix(coordinate.origin_deviation),
        motion_matrix(coordinate.type, axis, coordinate.zero),
    )
    return _joint(coordinate.name, kind, body.parent, body.name, origin, elements)


def _displaced(origin: Origin, *motions: np.ndarray) -> Origin:
    """An origin after further motions in its own axes; to the last digit the same without motion."""
    moving = [motion for motion in motions if not np.array_equal(motion, np.eye(4))]
    if not moving:
        return origin
    return Origin.model_validate(origin_table(functools.reduce(np.matmul, moving, origin_matrix(origin))))


def _joint(name: str, kind: str, parent: str, child: str, origin: Origin, elements: Iterable[str] = ()) -> str:
    lines = [
        f'  <joint name={quoteattr(name)} type="{kind}">',
        f"    <parent link={quoteattr(parent)}/>",
        f"    <child link={quoteattr(child)}/>",
        f'    <origin xyz="{numbers_text(origin.xyz)}" rpy="{numbers_text(origin.rpy)}"/>',
        *elements,
        "  </joint>",
    ]
    return "\n".join(lines)


def _attributes(values: dict[str, float]) -> str:
    return " ".join(f'{key}="{numbers_text([value])}"' for key, value in values.items())
