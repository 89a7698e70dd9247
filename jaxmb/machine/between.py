"""Beams between frames, expanded to beams along x and the loops that clamp their ends."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from pydantic import ValidationError

from jaxmb.io.validation import known_name
from jaxmb.machine.geometry import origin_matrix, roll_pitch_yaw, rotation_about
from jaxmb.machine.values import GROUND, Origin, angle

PARALLEL = 1e-6
"""Sine of the angle between a beam and the z axis of its frame, below which the x axis is the reference direction."""


def expand_beams(data: dict[str, Any]) -> dict[str, Any]:
    """Contents of a machine file with `from` and `to` of beams replaced by body, origin and length.

    A beam begins at the frame `from` and ends at the frame `to` in the reference posture, clamped to both, or at the
    point `to = [x, y, z]` in the axes of `from`, free. Its z axis lies in the plane of the beam and the z axis of
    `from`, turned by `roll` about the beam.

    Raises:
        ValueError: a beam has one of the two keys only, or also body, origin or length; a frame does not exist, or
            depends on the beam itself; both ends coincide.
    """
    beams = data.get("beam", ())
    if not isinstance(beams, list | tuple) or not any(isinstance(b, dict) and {"from", "to"} & b.keys() for b in beams):
        return data
    try:
        return data | _expanded(data, beams)
    except (TypeError, KeyError, AttributeError, ValidationError) as error:
        raise ValueError(
            f"the ends of beams with from and to cannot be computed, an entry has another form than expected: {error}"
        ) from None


def _without_keys(beam: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in beam.items() if key not in ("from", "to", "roll")}


def _expanded(data: dict[str, Any], beams: Sequence[Any]) -> dict[str, Any]:
    reference = _ReferencePoses(data)
    written, frames, loops = [], [], []
    for beam in beams:
        if not (isinstance(beam, dict) and {"from", "to"} & beam.keys()):
            written.append(beam)
            continue
        name, to = beam.get("name"), beam.get("to")
        carrier, start, length = reference.beam(beam)
        written.append(_without_keys(beam) | {"body": carrier, "origin": _origin(start), "length": length})
        if isinstance(to, str):
            carrier, _ = reference.on_carrier(to, f"beam '{name}': to")
            end = np.linalg.inv(reference.pose(carrier)) @ reference.pose(str(name))
            frames.append({"name": f"{name}/to", "body": carrier, "origin": _origin(end)})
            loops.append({"name": name, "frame_a": f"{name}/to", "frame_b": name, "type": "fixed"})
    return {
        "beam": written,
        "frame": [*data.get("frame", ()), *frames],
        "loop": [*data.get("loop", ()), *loops],
    }


class _ReferencePoses:
    """Poses of the frames of a machine file in its reference posture; loops are not closed."""

    def __init__(self, data: dict[str, Any]) -> None:
        self.parts: dict[str, tuple[str, Any]] = {GROUND: (GROUND, None)}
        for kind in ("body", "beam", "frame"):
            for part in data.get(kind, ()):
                part = part if isinstance(part, dict) else part.model_dump()
                name = str(part.get("name"))
                self.parts[name] = (kind, part)
                if kind == "beam":
                    self.parts |= {f"{name}/{k}": ("end", (part, k)) for k in range(1, part.get("elements", 4))}
        self.posture = data.get("posture", {})
        self.poses: dict[str, np.ndarray] = {GROUND: np.eye(4)}
        self.in_progress: set[str] = set()

    def pose(self, name: str) -> np.ndarray:
        """Pose of a frame in the ground frame [4, 4]."""
        if name not in self.parts:
            raise ValueError(known_name("frame", name, self.parts))
        if name in self.in_progress:
            raise ValueError(f"the pose of '{name}' depends on itself, through beams from or to it")
        if name not in self.poses:
            self.in_progress.add(name)
            self.poses[name] = self._pose(*self.parts[name])
            self.in_progress.remove(name)
        return self.poses[name]

    def _pose(self, kind: str, part: Any) -> np.ndarray:
        if kind in ("beam", "end"):
            beam, number = part if kind == "end" else (part, part.get("elements", 4))
            carrier, start, length = self.beam(beam)
            offset = np.eye(4)
            offset[0, 3] = length * number / beam.get("elements", 4)
            return self.pose(carrier) @ start @ offset
        pose = self.pose(part.get("parent" if kind == "body" else "body", GROUND)) @ _matrix(part.get("origin", {}))
        for joint in part.get("joint", ()) if kind == "body" else ():
            axis, value = (
                np.array(joint.get("axis", (0.0, 0.0, 1.0)), float),
                angle(self.posture.get(joint["name"], 0.0)),
            )
            motion = np.eye(4)
            if joint.get("type") == "prismatic":
                motion[:3, 3] = value * axis
            else:
                motion[:3, :3] = rotation_about(axis, value)
            pose = pose @ motion
        return pose

    def on_carrier(self, name: str, label: str) -> tuple[str, np.ndarray]:
        """Body, ground or element end that carries a frame, and the frame's pose relative to it [4, 4]."""
        if name not in self.parts:
            raise ValueError(known_name(f"{label}: frame", name, self.parts))
        kind, part = self.parts[name]
        return (part["body"], _matrix(part.get("origin", {}))) if kind == "frame" else (name, np.eye(4))

    def beam(self, beam: dict[str, Any]) -> tuple[str, np.ndarray, float]:
        """Carrier of a beam, the pose of the beam's start relative to it [4, 4], and the beam's length [m]."""
        if not {"from", "to"} & beam.keys():
            return beam.get("body", GROUND), _matrix(beam.get("origin", {})), beam["length"]
        name, to = f"beam '{beam.get('name')}'", beam.get("to")
        extra = {"body", "origin", "length"} & beam.keys()
        if extra or not {"from", "to"} <= beam.keys():
            raise ValueError(f"{name}: has {', '.join(sorted(extra)) or 'from or to alone'}, expected both from and to"
                             " in place of body, origin and length")  # fmt: skip
        carrier, pose = self.on_carrier(beam["from"], f"{name}: from")
        if isinstance(to, str):
            self.on_carrier(to, f"{name}: to")
            start = self.pose(carrier) @ pose
            span = start[:3, :3].T @ (self.pose(to)[:3, 3] - start[:3, 3])
        else:
            if not (isinstance(to, list | tuple) and len(to) == 3 and all(isinstance(x, int | float) for x in to)):
                raise ValueError(f"{name}: to: found {to!r}, expected the name of a frame or a point [x, y, z] in m")
            span = np.array(to, float)
        length = float(np.linalg.norm(span))
        if not length > 0.0:
            raise ValueError(f"{name}: from and to coincide, expected a length above 0")
        x, up = span / length, np.array([0.0, 0.0, 1.0])
        if np.linalg.norm(np.cross(x, up)) < PARALLEL:
            up = np.array([1.0, 0.0, 0.0])
        y = np.cross(up, x) / np.linalg.norm(np.cross(up, x))
        rotation = np.eye(4)
        roll = rotation_about(np.array([1.0, 0.0, 0.0]), angle(beam.get("roll", 0.0)))
        rotation[:3, :3] = np.stack([x, y, np.cross(x, y)], axis=1) @ roll
        return carrier, pose @ rotation, length


def _matrix(origin: Any) -> np.ndarray:
    return origin_matrix(origin if isinstance(origin, Origin) else Origin.model_validate(origin))


def _origin(matrix: np.ndarray) -> dict[str, list[float]]:
    return {"xyz": matrix[:3, 3].tolist(), "rpy": list(roll_pitch_yaw(matrix[:3, :3]))}
