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
import math
import os
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

import jaxmb

HERE = Path(__file__).parent
ARM = tuple(f"dsr_joint{k}" for k in range(1, 7))
JOINTS = ("column_prismatic_joint", *ARM)
"""Joints of a set."""
STAGES = {"column_middle_joint": -0.706, "column_top_joint": -0.736}
"""Offset of each sliding stage, which travels half the height of the column: as <mimic> in the URDF."""
OVERLAP = {"column_middle_joint": 1.448}
"""Overlap of the guide of the lower stage where its coordinate is 0, m, as published with the data. That of the upper
stage is rigid: fits in which its compliance and play were free ended with both at 0."""
SENSORS = {"tilt_sensor_base": "tilt_sensor_base_accel", "tilt_sensor_column_tip": "tilt_sensor_column_accel"}
"""Accelerometer of each frame."""
NOMINAL_STD_MM = 0.05
"""Standard deviation of a position, to which the others of the study are relative where it is estimated."""
GROUND_MRAD = 0.1
"""Standard deviation of tilts of the foot at each point, beyond its compliance, on other ground; in the recorded set
they are below the noise of the accelerometer."""
LEAST_POINTS = 3
"""Fewest positions that determine the pose of the total station."""
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
    upward: tuple[tuple[float, ...], ...]
    """Readings of the accelerometers of `SENSORS`, m/s^2; empty where they are not recorded."""


def folder() -> Path:
    """Folder of the public data."""
    root = os.environ.get("JAXMB_DATA")
    if root is None:
        raise SystemExit("JAXMB_DATA is not set, expected the folder that contains hilti-trailblazer")
    return Path(root) / "hilti-trailblazer"


def joint_values(states: Sequence[float]) -> dict[str, float]:
    """Coordinates of the machine at the joint states of the column and the arm, m and rad."""
    column, *arm = states
    return {name: 0.5 * column + offset for name, offset in STAGES.items()} | dict(zip(ARM, arm, strict=True))


def points(path: Path) -> list[Point]:
    """All points of a set.

    Raises:
        SystemExit: the file is not a set; one sentence names the location.
    """
    try:
        data = yaml.load(path.read_text(), Loader=yaml.CSafeLoader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SystemExit(f"{path}: {' '.join(str(error).split())}") from None
    if not isinstance(data, dict) or not isinstance(data.get("column_heights"), dict):
        raise SystemExit(f"{path}: has no column_heights, expected a set of the layout of flat.yaml")
    names = data.get("joint_names", JOINTS)
    if sorted(names) != sorted(JOINTS):
        raise SystemExit(f"{path}: joint_names is {names}, expected {list(JOINTS)} in any order")
    found = []
    for height, spaces in data["column_heights"].items():
        if not isinstance(height, int | float):
            raise SystemExit(f"{path}: column height is {height}, expected a number of metres")
        for space, sets in ((spaces or {}).get("solution_spaces") or {}).items():
            for kind in ("stationing_measurements", "evaluation_measurements"):
                for k, one in enumerate((sets or {}).get(kind) or []):
                    at = f"{path}: column height {height}, solution space {space}, {kind}, {k + 1}"
                    states = numbers(one, "joint_states", len(JOINTS), at)
                    if not states:
                        raise SystemExit(f"{at}: has no joint_states, expected {len(JOINTS)} numbers")
                    value = dict(zip(names, states, strict=True))
                    position = numbers(one, "prism_position", 3, at)
                    upward = tuple(numbers(one, key, 3, at) for key in SENSORS.values())
                    stationing = kind.startswith("stationing")
                    q = joint_values([value[name] for name in JOINTS])
                    found.append(Point(float(height), int(space), stationing, q, position, upward))
    return found


def numbers(one: Mapping[str, Any], key: str, count: int, at: str) -> tuple[float, ...]:
    """Numbers of a measurement; empty where the key is missing, null or NaN."""
    value = one.get(key) or ()
    if not isinstance(value, list | tuple) or len(value) not in (0, count):
        raise SystemExit(f"{at}: {key} is {value}, expected {count} numbers")
    try:
        found = tuple(float(x) for x in value)
    except (TypeError, ValueError):
        raise SystemExit(f"{at}: {key} is {value}, expected {count} numbers") from None
    return found if all(map(math.isfinite, found)) else ()


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


def write_table(path: Path, rows: Sequence[Point], fitted: Sequence[bool], stations: Sequence[str]) -> None:
    """Table of a pose test; rows with the same station share the pose of the total station.

    Args:
        path: of the table.
        rows: the points; readings of their accelerometers are fitted.
        fitted: whether the position of each point is fitted.
        stations: label of each.
    """
    empty = ("",) * 3
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        upward = [f"{frame}.a{axis}" for frame in SENSORS for axis in "xyz"]
        table.writerow([*STAGES, *ARM, "prism.x", "prism.y", "prism.z", *upward, "station", "role"])
        for point, fit, station in zip(rows, fitted, stations, strict=True):
            q = [point.q[name] for name in (*STAGES, *ARM)]
            readings = [x for own in point.upward for x in own or empty]
            role = "fit" if fit else "inclined" if any(point.upward) else "check"
            table.writerow([*q, *(point.position or empty), *readings, station, role])


def write_fit(out: Path, data: Path, rows: Sequence[Point]) -> Path:
    """The study that identifies the machine from points of one set, with a pose of the total station at each height, as
    for predictions."""
    out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(machine(data, out), out / "machine.toml")
    rows = [point for point in rows if point.position]
    write_table(out / "poses.csv", rows, [True] * len(rows), [label(point.height) for point in rows])
    return Path(shutil.copy(HERE / "trailblazer.toml", out))


def label(height: float) -> str:
    """Label of the pose of the total station at a height of the column."""
    return f"{height:g}"


def write_prediction(out: Path, result: Path, rows: Sequence[Point], inclinations: str = "all") -> Path:
    """The study that predicts a set with an identified machine, from the stationing points of the set and the readings
    of accelerometers at "all" points, at "stationing" points or at none ("none").

    Each height of the column has a pose of the total station of its own, since the ground may yield as the column
    moves; heights with fewer than three positions of stationing points take that of the nearest height that has them.
    """
    fitted = [point.stationing and bool(point.position) for point in rows]
    count = Counter(point.height for point, fit in zip(rows, fitted, strict=True) if fit)
    heights = [height for height in count if count[height] >= LEAST_POINTS]
    if not heights:
        raise SystemExit(
            f"no column height has {LEAST_POINTS} stationing_measurements with a prism_position, expected some that"
            " determine the pose of the total station"
        )
    for name in ("machine.toml", "result.json"):
        if not (result / name).is_file():
            raise SystemExit(f"{result}: has no {name}, expected the folder with the result of the fit")
    out.mkdir(parents=True, exist_ok=True)
    for name in ("machine.toml", "result.json"):
        shutil.copy(result / name, out)
    nearest = [min(heights, key=lambda height: abs(height - point.height)) for point in rows]
    if inclinations != "all":
        without = ((),) * len(SENSORS)
        rows = [
            point if fit and inclinations == "stationing" else point._replace(upward=without)
            for point, fit in zip(rows, fitted, strict=True)
        ]
    write_table(out / "poses.csv", rows, fitted, [label(height) for height in nearest])
    level = json.loads((out / "result.json").read_text())["metrics"]["pose_std_mm"]["prism"] / NOMINAL_STD_MM
    study = tomllib.loads((HERE / "trailblazer.toml").read_text())["test"][0]
    lines = [
        f"std_mm = {level * NOMINAL_STD_MM:.4g}",
        f"inclination_std_mrad = {level * study['inclination_std_mrad']:.4g}",
        *(f'scatter_mrad."{name}" = {level * std:.4g}' for name, std in study["scatter_mrad"].items()),
        *(f'scatter_mrad."foot.{axis}" = {GROUND_MRAD:g}' for axis in ("rx", "ry")),
    ]
    text = (HERE / "prediction.toml").read_text()
    (out / "prediction.toml").write_text(text.replace('std_mm = "estimate"', "\n".join(lines)))
    return out / "prediction.toml"


def main() -> None:
    """Write the study of the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("fit", "predict"))
    parser.add_argument("set", nargs="?", type=Path, help="YAML file of a set (default: flat.yaml of the public data)")
    parser.add_argument("--machine", type=Path, help="folder with the result of the fit, for predict")
    parser.add_argument("--inclinations", choices=("all", "stationing", "none"), default="all",
                        help="points of which a prediction uses the accelerometers' readings")  # fmt: skip
    parser.add_argument("--out", type=Path, required=True, help="folder of the study")
    args = parser.parse_args()
    rows = points(args.set or folder() / "flat.yaml")
    if args.what == "fit":
        print(write_fit(args.out, folder(), rows))
    elif args.machine is None:
        parser.error("predict needs --machine, the folder with the result of the fit")
    else:
        print(write_prediction(args.out, args.machine, rows, args.inclinations))


if __name__ == "__main__":
    main()
