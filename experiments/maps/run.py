"""How fast maps over 100 000 postures of a six-joint robot are, beside a loop over Pinocchio's Jacobian.

    python experiments/maps/run.py [--rounds 7] [--out results/maps]

Both sides get the same postures of the KUKA KR240, warm (compiled), in turn, on one BLAS thread. Pinocchio's loop
calls `computeFrameJacobian` once a posture and NumPy takes all singular values at once; for the other quantities
Pinocchio has no function.
"""

import argparse
import importlib
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import jaxmb
from jaxmb.maps import QUANTITIES, MapSettings, characteristic_length, posture_quantities

pin: Any = importlib.import_module("pinocchio")  # its stubs name nothing of what it holds
POSTURES = 100_000
WORK = {
    "dexterity": ("dexterity",),
    "nu_p, nu_r": ("nu_p", "nu_r"),
    "deflection, stiffness": ("deflection", "stiffness", "least_stiffness", "greatest_stiffness"),
    "all of them": tuple(QUANTITIES),
}
WRENCH = (0.0, 0.0, -2000.0, 0.0, 0.0, 0.0)


def pinocchio_robot(model: jaxmb.Model) -> tuple[Any, int]:
    """The same chain in Pinocchio, and its tool frame."""
    robot, parent = pin.Model(), 0
    for i, name in enumerate(model.coordinates):
        origin = np.asarray(model.origin[i])
        parent = robot.addJoint(parent, pin.JointModelRZ(), pin.SE3(origin[:3, :3], origin[:3, 3]), name)
    offset = np.asarray(model.frame_offset[model.frames.index("tool")])
    place = pin.SE3(offset[:3, :3], offset[:3, 3])
    return robot, robot.addFrame(pin.Frame("tool", parent, 0, place, pin.FrameType.OP_FRAME))


def peer_dexterity(robot: Any, frame: int, postures: np.ndarray) -> np.ndarray:
    """1/kappa_F with L = 1 m by Pinocchio's Jacobians."""
    data = robot.createData()
    axes = pin.LOCAL_WORLD_ALIGNED
    jacobian = np.empty((len(postures), 6, 6))
    for i, q in enumerate(postures):
        jacobian[i] = pin.computeFrameJacobian(robot, data, q, frame, axes)
    size = np.linalg.svd(jacobian, compute_uv=False)
    return 6.0 / np.sqrt(np.sum(size**2, axis=1) * np.sum(size**-2.0, axis=1))


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and processor seconds that a piece of work takes."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def spread(values: list[float]) -> list[float]:
    """Lowest, median and highest."""
    return [float(x) for x in np.percentile(values, [0, 50, 100])]


def main() -> None:
    """Time all in turn, print the table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("results/maps"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr240"))
    robot, frame = pinocchio_robot(model)
    postures = np.random.default_rng(0).uniform(-3.0, 3.0, (POSTURES, 6))
    settings = MapSettings(1.0, model.coordinates, wrench=WRENCH, direction=(0.0, 0.0, 1.0))

    def ours(quantities: tuple[str, ...]) -> dict[str, np.ndarray]:
        return posture_quantities(model, postures, quantities, "tool", settings)

    work: dict[str, Callable[[], object]] = {name: lambda q=quantities: ours(q) for name, quantities in WORK.items()}
    work["characteristic length"] = lambda: characteristic_length(model, postures)
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in (*work, "Pinocchio loop")}
    with threadpool_limits(1, user_api="blas"):
        compile_seconds = {name: timed(first)[0] for name, first in work.items()}
        difference = np.abs(ours(("dexterity",))["dexterity"] - peer_dexterity(robot, frame, postures)).max()
        for _ in range(options.rounds):
            for name, again in work.items():
                seconds[name].append(timed(again))
            seconds["Pinocchio loop"].append(timed(lambda: peer_dexterity(robot, frame, postures)))
    print(
        f"{POSTURES} postures, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f};"
        f" 1/kappa_F differs by {difference:.1e}"
    )
    for name, found in seconds.items():
        wall, processor = (spread(list(column)) for column in zip(*found, strict=True))
        first = f", first call {compile_seconds[name]:.1f} s" if name in compile_seconds else ""
        print(f"{name:21} {wall[1]:.2f} s ({wall[0]:.2f} to {wall[2]:.2f}), processor {processor[1]:.2f} s{first}")
    pairs = zip(seconds["Pinocchio loop"], seconds["dexterity"], strict=True)
    ratio = spread([peer[0] / own[0] for peer, own in pairs])
    print(f"Pinocchio loop / dexterity: {ratio[1]:.2f} ({ratio[0]:.2f} to {ratio[2]:.2f})")
    (options.out / "maps.json").write_text(
        json.dumps({"seconds": seconds, "first_call": compile_seconds, "ratio": ratio, "difference": float(difference)})
    )


if __name__ == "__main__":
    main()
