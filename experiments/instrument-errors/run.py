"""How often 95 % intervals hold the true stiffness where loads and postures have stated errors.

    python experiments/instrument-errors/run.py [--draws 100]

An arm of three joints is described with a quarter of its true stiffness. Its deflections are simulated with errors of
the tracker, of the direction of the load (1 deg) and its lever arm (20 mm), and of balance (1 kg) and encoders
(0.2 deg), drawn anew for each fit of its joint stiffnesses.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

MACHINE = """
name = "arm"
[[body]]
name = "column"
origin = { xyz = [0.0, 0.0, 0.4] }
joint = [{ name = "turn", stiffness = 1e5 }]
mass = 10.0
[[body]]
name = "upper"
parent = "column"
origin = { xyz = [0.2, 0.0, 0.3] }
joint = [{ name = "shoulder", axis = [0.0, 1.0, 0.0], stiffness = 1.5e5 }]
mass = 10.0
[[body]]
name = "fore"
parent = "upper"
origin = { xyz = [0.7, 0.0, 0.0] }
joint = [{ name = "elbow", axis = [0.0, 1.0, 0.0], stiffness = 6e4 }]
mass = 10.0
[[frame]]
name = "tool"
body = "fore"
origin = { xyz = [0.6, 0.1, 0.0] }
"""
TRUTH = {"stiffness.turn": 4e5, "stiffness.shoulder": 6e5, "stiffness.elbow": 2.5e5}
ZONES = {"all": {"turn": [-1.0, 1.0], "shoulder": [-1.0, 0.3], "elbow": [0.3, 1.8]}}
DIRECTIONS = [[0.0, 0.0, -1.0], [1.0, 1.0, 0.0], [1.0, -1.0, 0.5]]
TRACKER = {"tracker_mm": 0.01}
LOAD = {"direction_deg": 1.0, "lever_mm": 20.0}
ALL = LOAD | {"balance_kg": 1.0, "encoder_deg": 0.2}
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "direction and lever arm, positions": ("position", LOAD),
    "all, positions": ("position", ALL),
    "all, positions and rotations": ("pose", ALL),
}


def main() -> None:
    """Fit all draws and print the shares."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "arm.toml").write_text(MACHINE)
        for way, (measured, errors) in WAYS.items():
            print(way, json.dumps(shares(Path(folder), measured, errors, given.draws)), flush=True)


def shares(folder: Path, measured: str, errors: dict[str, Any], draws: int) -> dict[str, Any]:
    """Shares of the intervals that hold the truth, mean chi-square and number of rejected models, of so many fits."""
    simulate = {"tests": 16, "zones": ZONES, "force_n": [300.0, 800.0], "directions": DIRECTIONS, "measured": measured}
    test = {"kind": "deflection", "simulate": simulate | {"parameters": TRUTH}, "instruments": TRACKER | errors}
    study = {"machine": "arm.toml", "test": [test], "free": {"stiffness.*": {"lower": 1e4, "upper": 1e8}}}
    scaled, chi_square, rejected = [], [], 0
    for seed in range(draws):
        result = jaxmb.identify(jaxmb.make_study(study, "arm", folder, noise_seed=seed))
        found = [result.parameters[name] for name in TRUTH]
        true = list(TRUTH.values())
        scaled.append([np.log(p.value / k) / p.std_log for p, k in zip(found, true, strict=True)])
        chi_square.append(result.cost / (16 * (3 if measured == "position" else 6) - 3))
        rejected += not result.converged
    held = np.abs(scaled) < 1.96
    return {
        "covered_percent": round(100.0 * float(held.mean()), 1),
        "each": (100.0 * held.mean(axis=0)).round(1).tolist(),
        "error_over_std": round(float(np.sqrt(np.mean(np.square(scaled)))), 3),
        "reduced_chi_square": round(float(np.mean(chi_square)), 3),
        "rejected": rejected,
    }


if __name__ == "__main__":
    main()
