"""A payload from two runs of a six-joint arm: errors and intervals, draw by draw.

    python experiments/torque/payload.py [--draws 200] [--arbitrary] [--out results/torque]

The arm has the geometry and masses of the Staubli TX40 and runs the same motion with and without a payload of 2 kg, its
centre 60 mm before the wrist and 20 mm beside the axis. Torques have the deviations that the fit of `tx40` leaves. The
motion is the one that tells most of the payload within what the public recording of that robot reached, in positions,
speeds and accelerations of each joint; with --arbitrary it is one that was written down without much thought.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

CENTRE = [0.02, 0.0, 0.06]
TRUE = {"mass": 2.0, "first_moment": [2.0 * x for x in CENTRE]}
STD = {"q1": 1.9, "q2": 1.85, "q3": 1.1, "q4": 0.52, "q5": 1.05, "q6": 0.55}
"""Nm, of each sample at 200 Hz."""
SINE = {
    "q1": [0.5, 0.3, -0.2], "q2": [0.3, -0.2, 0.2], "q3": [-0.3, 0.3, 0.1],
    "q4": [0.6, -0.4, 0.3], "q5": [-0.5, 0.4, 0.3], "q6": [0.8, 0.5, -0.4],
}  # fmt: skip
REACHED = {
    "q1": ((-100.0, 120.0), 5.02, 24.9), "q2": ((-94.0, 20.0), 5.02, 24.8), "q3": ((-45.0, 120.0), 6.97, 44.6),
    "q4": ((-240.0, 80.0), 7.16, 49.7), "q5": ((-90.0, 108.0), 5.59, 34.3), "q6": ((-200.0, 200.0), 11.4, 63.6),
}  # fmt: skip
"""In the recording: range in degrees, rad/s, rad/s^2 (angles filtered at 20 Hz)."""
WANTED = {"mass.load": 0.02, "first_moment.load.*": 0.006}
"""1 % of the mass, 3 mm of the centre."""
BOUNDS = {
    "damping.*": (0.0, 100.0), "friction.*": (0.0, 100.0), "offset.*": (-20.0, 20.0), "rotor_inertia.*": (0.0, 5.0),
    "mass.*": (0.0, 50.0), "first_moment.*": (-20.0, 20.0), "inertia.*": (-5.0, 5.0),
}  # fmt: skip


def machine() -> jaxmb.Machine:
    """The arm with its payload."""
    about = jaxmb.load_machine("staubli-tx40").model_dump(exclude_unset=True)
    box = {"xx": 0.004, "yy": 0.003, "zz": 0.002}
    payload = {"name": "load", "frame": "tool", "mass": 2.0, "center_of_mass": CENTRE, "inertia_products": box}
    return jaxmb.Machine.model_validate(about | {"payload": [payload]})


def arbitrary_motion() -> dict[str, Any]:
    """Posture and simulation of a motion that nobody looked at."""
    motion = {name: {"sine": sine, "cosine": sine[::-1]} for name, sine in SINE.items()}
    return {"kind": "torque", "simulate": {"duration_s": 20.0, "base_hz": 0.1, "motion": motion}}


def best_motion() -> jaxmb.ExcitingMotion:
    """The motion of the same length that tells most of the payload."""
    limits = {
        name: {"range": [f"{low} deg", f"{high} deg"], "speed": speed, "acceleration": acceleration}
        for name, ((low, high), speed, acceleration) in REACHED.items()
    }
    return jaxmb.exciting_motion(
        machine(), list(BOUNDS), torque_std=STD, rate_hz=200.0, base_hz=0.2, periods=4, limits=limits,
        wanted=WANTED, without=[[], ["load"]],
    )  # fmt: skip


def study(folder: Path, motion: dict[str, Any], seed: int) -> jaxmb.Study:
    """Two runs of a motion with noise of a seed."""
    simulate = motion["simulate"] | {
        "rate_hz": 200.0, "angle_std": 2e-5, "torque_std": STD, "noise_seed": 0,
        "parameters": {f"friction.q{i}": 5.0 for i in range(1, 7)} | {f"damping.q{i}": 2.0 for i in range(1, 7)},
    }  # fmt: skip
    test = motion | {"cutoff_hz": 5.0, "simulate": simulate}
    data = {
        "machine": "arm.toml",
        "test": [test | {"name": "with"}, test | {"name": "without", "without": ["load"]}],
        "free": {name: {"lower": low, "upper": high, "scale": "linear"} for name, (low, high) in BOUNDS.items()},
    }
    return jaxmb.make_study(data, "payload", folder, noise_seed=seed)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--arbitrary", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(machine(), arguments.out / "arm.toml")
    mass, centre, inside = [], [], []
    motion, predicted = arbitrary_motion(), None
    if not arguments.arbitrary:
        best = best_motion()
        motion, predicted = best.as_test(), best.std
    for seed in range(arguments.draws):
        found = jaxmb.identify(study(arguments.out, motion, seed)).parameters
        m = found["mass.load"]
        moments = [found[f"first_moment.load.{axis}"] for axis in "xyz"]
        mass.append(100.0 * (m.value / TRUE["mass"] - 1.0))
        centre.append(1e3 * (np.array([p.value for p in moments]) / m.value - CENTRE))
        pairs = zip([m, *moments], [TRUE["mass"], *TRUE["first_moment"]], strict=True)
        inside.append([abs(p.value - truth) <= 1.96 * p.std for p, truth in pairs])
    within = np.abs(mass) <= 1.0, np.abs(centre).max(axis=1) <= 3.0
    told = {
        "draws": arguments.draws,
        "motion": "arbitrary" if predicted is None else "exciting",
        "predicted_mass_std_percent": None if predicted is None else 100.0 * predicted["mass.load"] / TRUE["mass"],
        "mass_within_1_percent": 100.0 * float(np.mean(within[0])),
        "centre_within_3_mm": 100.0 * float(np.mean(within[1])),
        "mass_error_percent": {"rms": float(np.sqrt(np.mean(np.square(mass)))), "worst": float(np.abs(mass).max())},
        "centre_error_mm": {"rms": np.sqrt(np.mean(np.square(centre), axis=0)).tolist(),
                            "worst": np.abs(centre).max(axis=0).tolist()},
        "interval_holds_percent": (100.0 * np.mean(inside, axis=0)).tolist(),
        "all_intervals_hold_percent": 100.0 * float(np.mean(inside)),
    }  # fmt: skip
    print(json.dumps(told, indent=2))
    (arguments.out / f"payload-{told['motion']}.json").write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
