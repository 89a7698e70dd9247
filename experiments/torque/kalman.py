"""Base parameters of the slider-crank from causal estimates of its motion: an encoder alone, and with other sensors.

    python experiments/torque/kalman.py [--draws 20] [--out results/torque]

The motion and the noise of angles and torques are those of `slider-crank`; the gyroscope errs by 0.01 rad/s and the
accelerometer by 0.5 rad/s^2 in each sample. The zero-phase filter of the study stands beside the causal ones.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

SENSORS: dict[str, dict[str, float]] = {
    "encoder": {},
    "encoder, gyroscope": {"velocity_std": 1e-2},
    "encoder, gyroscope, accelerometer": {"velocity_std": 1e-2, "acceleration_std": 0.5},
}
HOW = {
    "duration_s": 10.0, "rate_hz": 1000.0, "base_hz": 0.5, "angle_std": 1e-3, "torque_std": 1e-2,
    "motion": {"q1": {"speed": 6.0, "sine": [3.0, 1.0], "cosine": [1.0]}},
}  # fmt: skip
NAMES = ("inertia.crank.zz", "first_moment.crank.x", "inertia.coupler.zz", "first_moment.coupler.x")
FREE = {name: {"lower": -0.1, "upper": 0.1} for name in (*NAMES, "first_moment.crank.y", "first_moment.coupler.y")}


def errors_percent(folder: Path, seed: int, sensors: dict[str, float], settings: dict[str, Any]) -> list[float]:
    """Of the base parameters of Table 2 that are not 0."""
    test = {"kind": "torque", "simulate": HOW | sensors, **settings}
    data = {"machine": "slider-crank", "test": [test], "free": FREE}
    result = jaxmb.identify(jaxmb.make_study(data, "slider-crank", folder, noise_seed=seed))
    metrics: Any = result.metrics.tests["torque"]
    base = {row.name: row for row in metrics.base}
    return [100.0 * (base[name].value / base[name].true - 1.0) for name in NAMES]


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    cases: dict[str, tuple[dict[str, float], dict[str, Any]]] = {
        f"causal: {name}": (sensors, {"kalman": {"position_std": 1e-3} | sensors}) for name, sensors in SENSORS.items()
    }
    cases["zero phase: encoder"] = ({}, {})
    told = {}
    print(f"{'root mean square error, %':45}" + "".join(f"{name:>24}" for name in NAMES))
    for name, (sensors, settings) in cases.items():
        errors = [errors_percent(arguments.out, seed, sensors, settings) for seed in range(arguments.draws)]
        told[name] = np.sqrt(np.mean(np.square(errors), axis=0)).tolist()
        print(f"{name:45}" + "".join(f"{value:24.3f}" for value in told[name]))
    (arguments.out / "kalman.json").write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
