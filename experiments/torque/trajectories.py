"""What exciting motions tell more than random ones within the same limits.

    python experiments/torque/trajectories.py [--random 100] [--out results/torque]

The slider-crank, and the Staubli TX40 with friction, within the ranges and speeds of its description and the
accelerations of its public recording. Random motions have amplitudes that fall with the harmonic, each joint's scaled
as large as its limits allow, as those of the search are before its first step.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

STD = {"q1": 1.9, "q2": 1.85, "q3": 1.1, "q4": 0.52, "q5": 1.05, "q6": 0.55}
"""Nm: deviations that the fit of `tx40` leaves."""
REACHED = {"q1": 24.9, "q2": 24.8, "q3": 44.6, "q4": 49.7, "q5": 34.3, "q6": 63.6}
"""rad/s^2, in the recording."""
FRICTION = ["friction.*", "damping.*", "offset.*", "rotor_inertia.*"]
CASES: dict[str, tuple[list[str] | None, dict[str, Any]]] = {
    "slider-crank": (None, {"torque_std": 0.01, "rate_hz": 100.0, "base_hz": 0.5,
                            "limits": {"q1": {"speed": 12.0, "acceleration": 100.0}}}),
    "staubli-tx40": (["mass.*", "first_moment.*", "inertia.*", *FRICTION],
                     {"torque_std": STD, "rate_hz": 100.0, "base_hz": 0.1,
                      "limits": {name: {"acceleration": most} for name, most in REACHED.items()}}),
}  # fmt: skip


def deviations(motion: jaxmb.ExcitingMotion) -> np.ndarray:
    """Of all base parameters."""
    return np.array([row.std for row in motion.base])


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--random", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    told: dict[str, Any] = {}
    for name, (free, how) in CASES.items():
        machine = jaxmb.load_machine(name)
        random = [
            jaxmb.exciting_motion(machine, free, **how, starts=1, steps=0, seed=1000 + i)
            for i in range(arguments.random)
        ]
        drawn = np.array([deviations(motion) for motion in random])
        conditions = np.array([motion.condition_number for motion in random])
        means = np.exp(np.mean(np.log(drawn), axis=1))
        told[name] = {"base_parameters": drawn.shape[1], "random_motions": len(random), "condition_random": {
            "median": float(np.median(conditions)), "best": float(conditions.min())}}  # fmt: skip
        for criterion in ("D", "condition"):
            began = time.perf_counter()
            best = jaxmb.exciting_motion(machine, free, **how, criterion=criterion)
            seconds = time.perf_counter() - began
            ratio = drawn / deviations(best)
            mean = np.exp(np.mean(np.log(deviations(best))))
            told[name][criterion] = {
                "seconds": round(seconds, 1),
                "condition_number": best.condition_number,
                "std_random_over_this": {
                    "geometric_mean_of_median_motion": float(np.median(means) / mean),
                    "geometric_mean_of_best_motion": float(means.min() / mean),
                    "least_of_a_parameter_in_median": float(np.median(ratio, axis=0).min()),
                    "largest_of_a_parameter_in_median": float(np.median(ratio, axis=0).max()),
                },
            }
        print(json.dumps({name: told[name]}, indent=2), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "trajectories.json").write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
