"""Gains of six drives with a coupled wrist, from currents with and without a payload: errors and intervals.

    python experiments/torque/gains.py [--draws 30] [--out results/torque]

The arm has the geometry, masses and gears of the Staubli TX40, whose motor 6 turns joints 5 and 6, and the payload and
the exciting motion of payload.py. Its motors have gains that nobody knows, and each current noise of 2 % of its size.
Of the arm all but the payload is free.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from payload import BOUNDS, best_motion, machine

import jaxmb

RATIO = {
    "motor1": {"q1": 32.0}, "motor2": {"q2": 32.0}, "motor3": {"q3": 45.0}, "motor4": {"q4": -48.0},
    "motor5": {"q5": 45.0}, "motor6": {"q5": 32.0, "q6": 32.0},
}  # fmt: skip
GAINS = dict(zip(RATIO, (0.31, 0.28, 0.2, 0.07, 0.08, 0.05), strict=True))
"""Nm of the motor for one ampere."""
NOISE = 0.02
RATE = 100.0


def runs(model: jaxmb.Model, motion: jaxmb.ExcitingMotion) -> list[tuple[np.ndarray, np.ndarray]]:
    """Angles of the motors and their currents, with and without the payload."""
    time = np.arange(0.0, 4.0 * motion.duration_s, 1.0 / RATE)
    states = motion.states(time)
    names, values = jaxmb.regressor_names(model), jaxmb.parameters(model)
    values |= {f"friction.q{i}": 5.0 for i in range(1, 7)} | {f"damping.q{i}": 2.0 for i in range(1, 7)}
    Y = jaxmb.stacked_torque_regressor(model, *states)
    N = np.array([[turns.get(f"q{i}", 0.0) for i in range(1, 7)] for turns in RATIO.values()])
    found = []
    for carries in (True, False):
        own = [values[name] if carries or ".load" not in name else 0.0 for name in names]
        current = np.linalg.solve(N.T, (Y @ np.array(own)).T).T / list(GAINS.values())
        found.append((states[0] @ N.T, current))
    return found


def study(folder: Path, recorded: list[tuple[np.ndarray, np.ndarray]], seed: int) -> jaxmb.Study:
    """Both runs with noise of a seed, in files."""
    draw, tests = np.random.default_rng(seed), list[dict[str, Any]]()
    for name, (angles, current) in zip(("with", "without"), recorded, strict=True):
        noisy = current + NOISE * current.std(axis=0) * draw.normal(size=current.shape)
        np.savez(folder / f"{name}.npz", angles=angles, currents=noisy)
        lines = [f"rate_hz = {RATE}"]
        for of, variable in (("position", "angles"), ("effort", "currents")):
            lines.append(f'{of} = {{ file = "{name}.npz", variable = "{variable}", columns = [1, 2, 3, 4, 5, 6] }}')
        for drive, ratio in RATIO.items():
            turns = ", ".join(f"{joint} = {value}" for joint, value in ratio.items())
            lines.append(f'[[drive]]\nname = "{drive}"\nratio = {{ {turns} }}')
        (folder / f"{name}.toml").write_text("\n".join(lines))
        test = {"kind": "torque", "name": name, "file": f"{name}.toml", "cutoff_hz": 5.0, "least_speed": 0.05}
        tests.append(test | ({"without": ["load"]} if name == "without" else {}))
    free = {
        pattern.replace("*", "q?*") if pattern.split(".")[0] in ("mass", "first_moment", "inertia") else pattern: bounds
        for pattern, bounds in BOUNDS.items()
    }
    bounds = {name: {"lower": low, "upper": high, "scale": "linear"} for name, (low, high) in free.items()}
    bounds["drive_gain.*"] = {"lower": 0.0, "upper": 1.0, "scale": "linear"}
    return jaxmb.make_study({"machine": "arm.toml", "test": tests, "free": bounds}, "gains", folder)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(machine(), arguments.out / "arm.toml")
    recorded = runs(jaxmb.build_model(machine()), best_motion())
    errors, percent = [], []
    for seed in range(arguments.draws):
        found = jaxmb.identify(study(arguments.out, recorded, seed)).parameters
        gains = {name: found[f"drive_gain.{name}"] for name in GAINS}
        errors.append([(gains[name].value - gain) / gains[name].std for name, gain in GAINS.items()])
        percent.append([100.0 * (gains[name].value / gain - 1.0) for name, gain in GAINS.items()])
    told = {
        "draws": arguments.draws,
        "error_percent_rms": dict(
            zip(GAINS, np.sqrt(np.mean(np.square(percent), axis=0)).round(3).tolist(), strict=True)
        ),
        "error_percent_mean": dict(zip(GAINS, np.mean(percent, axis=0).round(3).tolist(), strict=True)),
        "error_over_std_rms": dict(
            zip(GAINS, np.sqrt(np.mean(np.square(errors), axis=0)).round(2).tolist(), strict=True)
        ),
        "intervals_hold_percent": 100.0 * float(np.mean(np.abs(errors) <= 1.96)),
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
