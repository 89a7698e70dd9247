"""Errors and intervals of base parameters where a Kalman smoother finds the motion: an encoder alone, and with others.

    python experiments/torque/kalman.py [--draws 200] [--out results/torque]

The slider-crank has the motion and noise of the study `slider-crank`, 4 s of it at 500 Hz, with torques of the printed
noise and of a tenth of it; an open arm of two joints has encoders of 0.3 mrad. Gyroscopes err by 0.01 rad/s in each
sample. Noise is drawn anew for each fit.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

CRANK = {"q1": {"speed": 6.0, "sine": [3.0, 1.0], "cosine": [1.0]}}
CRANK_FREE = (
    "inertia.crank.zz", "first_moment.crank.x", "first_moment.crank.y", "inertia.coupler.zz", "first_moment.coupler.x",
    "first_moment.coupler.y",
)  # fmt: skip
BODY = {"mass": 2.0, "center_of_mass": [0.15, 0.02, 0.0], "inertia_products": {"xx": 0.02, "yy": 0.06, "zz": 0.07}}
ARM = {
    "name": "arm",
    "gravity": [0.0, -9.81, 0.0],
    "body": [
        BODY | {"name": "upper", "joint": [{"name": "a", "damping": 0.8, "friction": 1.5}]},
        BODY | {"name": "fore", "parent": "upper", "origin": {"xyz": [0.4, 0.0, 0.0]},
                "joint": [{"name": "b", "damping": 0.3, "friction": 0.6}]},
    ],
}  # fmt: skip
ARM_FREE = (
    "inertia.upper.zz", "first_moment.upper.x", "first_moment.upper.y", "inertia.fore.zz", "first_moment.fore.x",
    "first_moment.fore.y", "damping.a", "damping.b", "friction.a", "friction.b",
)  # fmt: skip
ARM_MOTION = {"a": {"sine": [0.4, 0.0, 0.3, 0.0, 0.1], "cosine": [0.1, 0.2, 0.05]},
              "b": {"sine": [0.3, 0.2, -0.2, 0.0, -0.1], "cosine": [-0.1, 0.1, 0.08]}}  # fmt: skip


def cases() -> dict[str, dict[str, Any]]:
    """Studies by name, of 4 s at 500 Hz (crank) and 10 s at 200 Hz (arm)."""
    found = {}
    crank = {"duration_s": 4.0, "rate_hz": 500.0, "base_hz": 0.5, "motion": CRANK}
    arm = {"duration_s": 10.0, "rate_hz": 200.0, "base_hz": 0.2, "motion": ARM_MOTION}
    for name, machine, how, free, angle_std, torques in (
        ("slider-crank", "slider-crank", crank, CRANK_FREE, 1e-3, (1e-2, 1e-3)),
        ("arm", "arm.toml", arm, ARM_FREE, 3e-4, (0.1, 0.01)),
    ):
        for torque_std in torques:
            for sensors in ({}, {"velocity_std": 1e-2}):
                test = {
                    "kind": "torque",
                    "simulate": how | sensors | {"angle_std": angle_std, "torque_std": torque_std},
                    "kalman": {"position_std": angle_std} | sensors,
                    "least_speed": 0.1 if name == "arm" else 0.0,
                }
                label = f"{name}, torques {torque_std:g} Nm, encoder{' and gyroscope' if sensors else ''}"
                linear = {"upper": 9.0, "scale": "linear"}
                signed = ("inertia", "first_moment")
                bounds = {key: linear | {"lower": -9.0 if key.startswith(signed) else 0.0} for key in free}
                found[label] = {"machine": machine, "test": [test], "free": bounds}
    return found


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(jaxmb.Machine.model_validate(ARM), arguments.out / "arm.toml")
    results = {}
    for name, data in cases().items():
        if arguments.only not in name:
            continue
        errors, start = [], time.perf_counter()
        for seed in range(arguments.draws):
            study = jaxmb.make_study(data, "kalman", arguments.out, noise_seed=seed)
            metrics: Any = jaxmb.identify(study).metrics.tests["torque"]
            each = [(row.value - row.true, row.std) for row in metrics.base if np.isfinite(row.std)]
            errors += [each] if each else []
        if not errors:
            print(f"{name:52} no standard deviation is reported ({time.perf_counter() - start:.0f} s)", flush=True)
            continue
        off, std = np.moveaxis(np.array(errors), 2, 0)
        inside = 100.0 * np.mean(np.abs(off) < 1.959964 * std, axis=0)
        bias = np.mean(off, axis=0) / np.mean(std, axis=0)
        results[name] = {"inside_percent": inside.tolist(), "mean_error_over_std": bias.tolist()}
        print(f"{name:52} {np.mean(inside):5.1f} % of {off.size} hold, by parameter {inside.min():5.1f} to"
              f" {inside.max():5.1f} %; mean errors up to {np.abs(bias).max():.2f} std"
              f"{'' if len(off) == arguments.draws else f'; {len(off)} draws report standard deviations'}"
              f" ({time.perf_counter() - start:.0f} s)", flush=True)  # fmt: skip
    (arguments.out / "kalman.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
