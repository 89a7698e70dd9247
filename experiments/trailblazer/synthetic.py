"""Simulated sets of the Hilti Trailblazer on other ground, in the layout of its recordings, and how well they are
predicted.

    python experiments/trailblazer/synthetic.py results/trailblazer [CASE ...]

The truth is the identified machine, tilted, on softer ground, at other heights, or with fewer stationing points; joint
values are those of flat.yaml. Positions have noise of 0.5 mm, accelerometers of 0.045 mrad and the identified
misalignment, and the guide tilts at random by 0.2 mrad. Prints the error of the evaluation points, and how many
components are within the 95 % intervals. Needs PyYAML.
"""

import copy
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import convert
import numpy as np
import yaml
from run import COLUMNS, held_out, identified, line
from scipy.spatial.transform import Rotation

import jaxmb
from jaxmb.fitting import PoseRows, pose_test, predicted_poses, with_scatter

POSITION_STD, READING_STD, GUIDE_STD = 0.5e-3, 4.4e-4, 2e-4
"""Of the simulated noise, m and m/s^2 (the sensor's data sheet), and of tilts of the guide, rad."""
CASES: Mapping[str, Mapping[str, Any]] = {
    "level": {},
    "tilt of 1 deg": {"tilt": (0.0, np.radians(1.0))},
    "tilt of 3 deg": {"tilt": (np.radians(-3.0), 0.0)},
    "tilt of 6 deg": {"tilt": (np.radians(4.2), np.radians(-4.2))},
    "ground 3 times as soft": {"ground": 3.0},
    "ground 10 times as soft, tilt of 3 deg": {"ground": 10.0, "tilt": (np.radians(2.1), np.radians(2.1))},
    "8 stationing points a height": {"keep": 8},
    "other heights": {"heights": (0.3, 0.2, 0.1, 0.05, -0.05)},
}
"""Tilt of the machine's base about its x and y axes, rad; factor on the compliance of the foot of the column;
stationing points kept at each height, and change of each height, m."""


def simulated(
    data: Mapping[str, Any], folder: Path, seed: int, tilt: tuple[float, float] = (0.0, 0.0), ground: float = 1.0,
    keep: int | None = None, heights: tuple[float, ...] = (0.0,) * 5,
) -> dict[str, Any]:  # fmt: skip
    """A set as the identified machine would measure it (see `CASES`).

    Args:
        data: a recorded set, whose joint values it has.
        folder: of the result.
        seed: of the noise, and of the direction from which the total station sees the machine.
    """
    machine = jaxmb.load_machine(folder / "machine.toml").model_dump(mode="python")
    for spring in machine["virtual_spring"]:
        if spring["name"] == "foot":
            spring["compliance"] = (ground * np.array(spring["compliance"])).tolist()
    model = jaxmb.build_model(jaxmb.Machine.model_validate(machine))
    draw = np.random.default_rng(seed)
    found = {"column_heights": {}}
    ordered = sorted(data["column_heights"].items())
    for (height, spaces), change in zip(ordered, heights, strict=True):
        spaces = copy.deepcopy(spaces)
        if keep is not None:  # of both branches of the arm, at the corners of the stationing square
            each = [sets for sets in spaces["solution_spaces"].values() if sets["stationing_measurements"]]
            for sets in each:
                sets["stationing_measurements"] = sets["stationing_measurements"][1 :: 8 * len(each) // keep]
        found["column_heights"][height + change] = spaces
        for sets in spaces["solution_spaces"].values():
            for one in (*sets["stationing_measurements"], *sets["evaluation_measurements"]):
                one["joint_states"][0] += change
    points = [
        one for spaces in found["column_heights"].values() for sets in spaces["solution_spaces"].values()
        for kind in ("stationing_measurements", "evaluation_measurements") for one in sets[kind]
    ]  # fmt: skip
    frames = ("prism", *convert.SENSORS)
    q = np.array([[convert.joint_values(one["joint_states"])[name] for name in model.coordinates] for one in points])
    measured = np.full((len(q), len(frames), 10), np.nan)
    measured[:, 0, :3] = measured[:, 1:, 6:9] = 1.0
    rows = PoseRows(frames, q, measured, ("set",) * len(q), np.zeros(len(q), bool), ("",) * len(q))

    # the total station is level, the machine's base is not; seen from the base the station is tilted the other way
    turn = Rotation.from_rotvec([*(-np.array(tilt)), 0.0]) * Rotation.from_rotvec([0.0, 0.0, draw.uniform(-3.0, 3.0)])
    pose = np.array([[*draw.uniform(-5.0, 5.0, size=2), 1.0, *turn.as_rotvec()]])
    test = pose_test("", rows, ("set",), pose, [1e-3] * 4, elastic=True, levelled=True)
    poses, upward = predicted_poses(test, model)
    rows.measured[..., 6:9] = upward
    test = pose_test("", rows, ("set",), pose, [1e-3] * 4, elastic=True, levelled=True)
    test = with_scatter(test, model, {"lower.rx": GUIDE_STD, "lower.ry": GUIDE_STD})
    change = np.einsum("tpcr,tr->tpc", np.asarray(test.scatter), draw.normal(size=(len(q), 2)))
    upward = upward + np.einsum("tpij,tpi->tpj", np.asarray(test.vertical)[:, :, :2], change[..., 6:8])
    position = poses[:, 0, :3, 3] + change[:, 0, :3] + POSITION_STD * draw.normal(size=(len(q), 3))
    readings = 9.81 * upward[:, 1:] + READING_STD * draw.normal(size=(len(q), len(convert.SENSORS), 3))
    for one, at, own in zip(points, position, readings, strict=True):
        one["prism_position"] = at.tolist()
        one |= {key: reading.tolist() for key, reading in zip(convert.SENSORS.values(), own, strict=True)}
    return found


def main() -> None:
    """Errors of the evaluation points of each case."""
    folder, *cases = Path(sys.argv[1]), *sys.argv[2:]
    data = yaml.load((convert.folder() / "flat.yaml").read_text(), Loader=yaml.CSafeLoader)
    print(f"{COLUMNS}   case, processor s")
    for k, case in enumerate(cases or CASES):
        with tempfile.TemporaryDirectory() as name:
            out = Path(name)
            (out / "set.yaml").write_text(yaml.dump(simulated(data, folder, k, **CASES[case])))
            study = convert.write_prediction(out / "new", folder, convert.points(out / "set.yaml"))
            result, seconds = identified(study, out / "result")
        print(f"{line('all', held_out(result))}   {case}, {seconds:.0f}   {result.status}", flush=True)


if __name__ == "__main__":
    main()
