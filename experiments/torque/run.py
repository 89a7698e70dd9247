"""Errors of identified base parameters of the slider-crank, seed by seed, beside Table 2 of Pyrhonen et al. 2024.

    python experiments/torque/run.py [--seeds 100] [--out results/torque]

Each seed draws the noise of angles and torques anew. It is also counted how often 95 % intervals hold the truth.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

PRINTED_PERCENT = {
    "inertia.crank.zz": 0.31, "first_moment.crank.x": 1.11, "inertia.coupler.zz": 1.82, "first_moment.coupler.x": 1.24,
}  # fmt: skip
"""Table 2."""


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    errors: dict[str, list[float]] = {name: [] for name in PRINTED_PERCENT}
    inside, missed = [], []
    for seed in range(arguments.seeds):
        result = jaxmb.identify(jaxmb.load_study("slider-crank", noise_seed=seed))
        metrics: Any = result.metrics.tests["torque"]
        rows, torques = metrics.base, metrics.torques
        for row in rows:
            inside.append(abs(row.value - row.true) <= 1.96 * row.std)
            if row.name in errors:
                errors[row.name].append(100.0 * abs(row.value / row.true - 1.0))
        missed.append(next(row.rms_error for row in torques if row.role == "check"))
    told = {
        "seeds": arguments.seeds,
        "median_percent": {name: float(np.median(found)) for name, found in errors.items()},
        "worst_percent": {name: float(np.max(found)) for name, found in errors.items()},
        "printed_percent": PRINTED_PERCENT,
        "interval_holds_percent": 100.0 * float(np.mean(inside)),
        "held_out_rms_error_nm": float(np.median(missed)),
    }
    print(f"{'base parameter':26} {'median %':>9} {'worst %':>9} {'printed %':>9}")
    for name, printed in PRINTED_PERCENT.items():
        print(f"{name:26} {told['median_percent'][name]:9.3f} {told['worst_percent'][name]:9.3f} {printed:9.2f}")
    print(f"95 % intervals that hold the truth: {told['interval_holds_percent']:.1f} %")
    print(
        f"held-out torque, root mean square of what is missed: {told['held_out_rms_error_nm']:.5f} Nm (noise 0.01 Nm)"
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "slider-crank.json").write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
