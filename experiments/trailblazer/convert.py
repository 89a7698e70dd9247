"""Recordings of the construction robot Hilti Trailblazer as studies of pose tests.

    python experiments/trailblazer/convert.py fit --out studies/trailblazer
    jaxmb identify studies/trailblazer/trailblazer.toml --out results/trailblazer

    python experiments/trailblazer/convert.py predict SET.yaml --machine results/trailblazer --out studies/SET
    jaxmb identify studies/SET/prediction.toml --out results/SET

The second pair predicts a new set from its stationing points: results/SET/poses.csv has positions and standard
deviations of all its points, its evaluation points with or without measured positions.

The recordings are those of Kindle et al., "Enhancing Robotic Precision in Construction", IEEE Robotics and Automation
Letters 10(1) (2025), found in the folder `hilti-trailblazer` that JAXMB_DATA contains. Nothing of them is kept here.
Needs PyYAML.
"""

import argparse
import csv
import json
import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import jaxmb

HERE = Path(__file__).parent
ARM = tuple(f"dsr_joint{k}" for k in range(1, 7))
STAGES = {"column_middle_joint": -0.706, "column_top_joint": -0.736}
"""Offset of each sliding stage, which travels half the height of the column: as <mimic> in the URDF."""
OVERLAP = {"column_middle_joint": 1.448}
"""Overlap of the guide of the lower stage where its coordinate is 0, m, as published with the data. That of the upper
stage is rigid: fits in which its compliance and play were free ended with both at 0."""
SENSORS = {"tilt_sensor_base": "tilt_sensor_base_accel", "tilt_sensor_column_tip": "tilt_sensor_column_accel"}
"""Accelerometer of each frame."""
RATIO = 0.2
"""Standard deviation of an inclination over that of a position, mrad/mm."""
INCLINED = {
    'std_mm = "estimate"\n': f"inclination_std_mrad = {0.05 * RATIO:g}\n",
    "[free]\n": '"frame.tilt_sensor_*.r[xy]" = { lower = -0.05, upper = 0.05 }\n',
    "[prior]\n": '"frame.tilt_sensor_*" = 2e-2\n',
}
"""Lines after others in the study with inclinations: their noise, the misalignment of the sensors and its prior."""
STIFFNESS = 1e5
"""Nm/rad of the joints of the arm, before the fit."""


class Point(NamedTuple):
    """A position of the prism."""

    height: float
    """Of the column, m."""
    space: int
    """Branch of the arm's inverse kinematics."""
    stationing: bool
    """Whether it is one of the points from which the pose of a station is determined."""
    q: dict[str, float]
    position: tuple[float, ...]
    """Measured, m; empty where it is not."""
    upward: tuple[float, ...]
    """Readings of the accelerometers of `SENSORS`, m/s^2; empty where they are not recorded."""


def folder() -> Path:
    """Folder of the public data."""
    root = os.environ.get("JAXMB_DATA")
    if root is None:
        raise SystemExit("JAXMB_DATA is not set, expected the folder that contains hilti-trailblazer")
    return Path(root) / "hilti-trailblazer"


def points(path: Path) -> list[Point]:
    """All points of a set."""
    data: dict[str, Any] = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    found = []
    for height, spaces in data["column_heights"].items():
        for space, sets in spaces["solution_spaces"].items():
            for kind in ("stationing_measurements", "evaluation_measurements"):
                for one in sets.get(kind) or []:
                    column, *arm = one["joint_states"]
                    q = {name: 0.5 * column + offset for name, offset in STAGES.items()}
                    q |= dict(zip(ARM, arm, strict=True))
                    position = tuple(one.get("prism_position") or ())
                    upward = tuple(x for key in SENSORS.values() for x in one.get(key) or ())
                    found.append(Point(float(height), int(space), kind.startswith("stationing"), q, position, upward))
    return found


def machine(path: Path, out: Path) -> jaxmb.Machine:
    """The machine of the URDF: sliding stages as coordinates of their own, elastic joints, and virtual springs: at the
    foot of the column (ground and tracks), at its top (flange), and in the guide of the lower stage, whose overlap
    decreases with the height and which has play."""
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
        for name, body, coordinate in (("lower", "column_middle", "column_middle_joint"),)
    ]  # fmt: skip
    return jaxmb.Machine.model_validate(data | {"body": bodies, "virtual_spring": springs})


def write_table(
    path: Path, rows: Sequence[Point], fitted: Sequence[bool], stations: Sequence[str], inclined: Sequence[bool]
) -> None:
    """Table of a pose test; rows with the same station share the pose of the total station.

    Args:
        path: of the table.
        rows: the points.
        fitted: whether the position of each point is fitted.
        stations: label of each.
        inclined: whether the readings of its accelerometers are fitted, in a row of its own unless its position is.
    """
    empty = [""] * (3 * len(SENSORS))
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        upward = [f"{frame}.a{axis}" for frame in SENSORS for axis in "xyz"]
        table.writerow([*STAGES, *ARM, "prism.x", "prism.y", "prism.z", *upward, "station", "role"])
        for point, fit, station, tilt in zip(rows, fitted, stations, inclined, strict=True):
            q, readings = [point.q[name] for name in (*STAGES, *ARM)], point.upward if tilt else empty
            position = point.position or ("", "", "")
            table.writerow([*q, *position, *(readings if fit else empty), station, "fit" if fit else "check"])
            if tilt and not fit:
                table.writerow([*q, "", "", "", *readings, station, "fit"])


def write_fit(out: Path, data: Path, rows: Sequence[Point], inclinations: bool = False) -> Path:
    """The study that identifies the machine from points of one set, in which the total station did not move."""
    out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(machine(data, out), out / "machine.toml")
    write_table(out / "poses.csv", rows, [True] * len(rows), ["set"] * len(rows), [inclinations] * len(rows))
    text = (HERE / "trailblazer.toml").read_text()
    if inclinations:
        for line, further in INCLINED.items():
            text = text.replace(line, line + further)
    (out / "trailblazer.toml").write_text(text)
    return out / "trailblazer.toml"


def write_prediction(out: Path, result: Path, rows: Sequence[Point], inclinations: str = "none") -> Path:
    """The study that predicts a set with an identified machine, from the stationing points of the set.

    `inclinations` of which points are fitted: "none", "stationing" or "all", with a machine that was identified with
    inclinations. Each height of the column has a pose of the total station of its own, since the ground may yield
    as the column moves; heights without stationing points take that of the nearest height.
    """
    heights = {point.height for point in rows if point.stationing}
    if not heights:
        raise SystemExit("the set has no stationing points, expected some with a measured prism_position")
    out.mkdir(parents=True, exist_ok=True)
    for name in ("machine.toml", "result.json"):
        shutil.copy(result / name, out)
    nearest = [min(heights, key=lambda height: abs(height - point.height)) for point in rows]
    fitted = [point.stationing for point in rows]
    inclined = [inclinations == "all" or (inclinations == "stationing" and fit) for fit in fitted]
    write_table(out / "poses.csv", rows, fitted, [f"{h:g}" for h in nearest], inclined)
    level = json.loads((out / "result.json").read_text())["metrics"]["pose_std_mm"]["prism"]
    text = (HERE / "prediction.toml").read_text()
    study = out / "prediction.toml"
    study.write_text(
        text.replace('std_mm = "estimate"', f"std_mm = {level:.4g}\ninclination_std_mrad = {RATIO * level:.4g}")
    )
    return study


def main() -> None:
    """Write the study of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("fit", "predict"))
    parser.add_argument("set", nargs="?", type=Path, help="YAML file of a set (default: flat.yaml of the public data)")
    parser.add_argument("--machine", type=Path, help="folder with the result of the fit, for predict")
    parser.add_argument("--inclinations", choices=("none", "stationing", "all"), default="none",
                        help="points whose accelerometer readings are fitted; not none for the fit: all")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="folder of the study")
    args = parser.parse_args()
    rows = points(args.set or folder() / "flat.yaml")
    if args.what == "fit":
        print(write_fit(args.out, folder(), rows, args.inclinations != "none"))
    elif args.machine is None:
        parser.error("predict needs --machine, the folder with the result of the fit")
    else:
        print(write_prediction(args.out, args.machine, rows, args.inclinations))


if __name__ == "__main__":
    main()
