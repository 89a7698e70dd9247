"""The public data of the construction robot Hilti Trailblazer as a table of a pose test and a machine of jaxmb.

The recordings are those of Kindle et al., "Enhancing Robotic Precision in Construction", IEEE Robotics and Automation
Letters 10(1) (2025), found in the folder `hilti-trailblazer` that JAXMB_DATA contains. Nothing of them is kept here.
"""

import csv
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import jaxmb

ARM = tuple(f"dsr_joint{k}" for k in range(1, 7))
STAGES = {"column_middle_joint": -0.706, "column_top_joint": -0.736}
"""Offset of each sliding stage, which travels half the height of the column: as <mimic> in the URDF."""
OVERLAP = {"column_middle_joint": 1.448, "column_top_joint": 1.414}
"""Overlap of the guide of each stage where its coordinate is 0, m, as published with the data."""
STIFFNESS = 1e5
"""Nm/rad of the joints of the arm, before the fit."""


class Point(NamedTuple):
    """A measured position of the prism."""

    height: float
    """Of the column, m."""
    space: int
    """Branch of the arm's inverse kinematics."""
    stationing: bool
    """Whether it is one of the points from which the pose of a station is determined."""
    q: dict[str, float]
    position: tuple[float, float, float]


def folder() -> Path:
    """Folder of the public data."""
    root = os.environ.get("JAXMB_DATA")
    if root is None:
        raise SystemExit("JAXMB_DATA is not set, expected the folder that contains hilti-trailblazer")
    return Path(root) / "hilti-trailblazer"


def points(path: Path) -> list[Point]:
    """All measured points of the flat floor."""
    data: dict[str, Any] = yaml.load((path / "flat.yaml").read_text(), Loader=yaml.CSafeLoader)
    found = []
    for height, spaces in data["column_heights"].items():
        for space, sets in spaces["solution_spaces"].items():
            for kind in ("stationing_measurements", "evaluation_measurements"):
                for one in sets.get(kind, []):
                    column, *arm = one["joint_states"]
                    q = {name: 0.5 * column + offset for name, offset in STAGES.items()}
                    q |= dict(zip(ARM, arm, strict=True))
                    stationing = kind.startswith("stationing")
                    found.append(Point(float(height), int(space), stationing, q, tuple(one["prism_position"])))
    return found


def machine(path: Path, out: Path) -> jaxmb.Machine:
    """The machine of the URDF: sliding stages as coordinates of their own, elastic joints, and virtual springs: at the
    foot of the column (ground and tracks), at its top (flange), and in the guides of both stages, whose overlap
    decreases with the height and which have play."""
    urdf = out / "trailblazer.urdf"
    urdf.write_text(re.sub(r"<mimic[^>]*/>", "", (path / "trailblazer.urdf").read_text()))
    data = jaxmb.load_machine(urdf).model_dump(mode="python", exclude_defaults=True)
    bodies = [body for body in data["body"] if body["name"] != "column_pseudo_tip"]
    for body in bodies:
        for joint in body.get("joint", ()):
            if joint["name"] in ARM:
                joint["stiffness"] = STIFFNESS
    compliance = [0.0, 0.0, 0.0, 1e-6, 1e-6, 1e-6]
    springs: list[dict[str, Any]] = [
        {"name": name, "body": body, "diagonal": compliance} for name, body in
        (("foot", "column_base"), ("top", "column_tip"))
    ]  # fmt: skip
    springs += [
        {"name": name, "body": body, "at": "joint", "diagonal": [0.1 * value for value in compliance],
         "guide": {"coordinate": coordinate, "overlap_m": OVERLAP[coordinate]},
         "play": [0.0, 0.0, 0.0, 1e-4, 1e-4, 0.0], "play_load": [1.0, 1.0, 1.0, 200.0, 200.0, 1.0]}
        for name, body, coordinate in (("lower", "column_middle", "column_middle_joint"),
                                       ("upper", "column_top", "column_top_joint"))
    ]  # fmt: skip
    return jaxmb.Machine.model_validate(data | {"body": bodies, "virtual_spring": springs})


def write(out: Path, path: Path, held_out: float) -> None:
    """Machine and table of a fit in which one height of the column is held out.

    All other heights share one pose of the total station, which did not move. At the height that is held out each
    space is a station, whose stationing points determine its pose, and its other points are predicted; points of spaces
    without stationing points are left out there.
    """
    jaxmb.write_machine(machine(path, out), out / "trailblazer.toml")
    with (out / "poses.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow([*STAGES, *ARM, "prism.x", "prism.y", "prism.z", "station", "role"])
        rows = points(path)
        known = {(point.height, point.space) for point in rows if point.stationing}
        for point in rows:
            here = point.height == held_out
            if here and (point.height, point.space) not in known:
                continue
            station = f"{point.height}-{point.space}" if here else "fitted"
            role = "check" if here and not point.stationing else "fit"
            table.writerow([*(point.q[name] for name in (*STAGES, *ARM)), *point.position, station, role])
