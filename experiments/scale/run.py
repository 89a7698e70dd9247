"""Peak memory and time of one generation of a population search: candidates x postures x lines x coordinates.

    python experiments/scale/run.py [--candidates 4096] [--postures 32] [--lines 512] [--out results/scale]
    python experiments/scale/run.py --study --postures 200 --lines 12000      # writes scale.toml for `jaxmb identify`

The KUKA KR90 with nine virtual joints, three by three FRFs of its tool at each posture, 18 stiffnesses and dampings
free. The peak is that of the process, compilation included; what the process held before is stated beside it.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
import tomli_w

import jaxmb
from jaxmb.fitting import population_objectives
from jaxmb.results import versions

BOUNDS = {"stiffness.*": {"lower": 5.5e5, "upper": 1e8}, "damping.*": {"lower": 1.0, "upper": 1e5}}
RANGES_DEG = {"z1": (-90.0, 90.0), "z2": (25.0, 105.0), "z3": (-125.0, -25.0)}


def study_of(postures: int, lines: int) -> dict[str, Any]:
    """Description of a study of the KR90 at random postures, with 1 % of noise."""
    draw, step = np.random.default_rng(0), 99.0 / (lines - 1)
    tests = [
        {
            "kind": "frf",
            "name": f"posture {k + 1}",
            "simulate": {
                "lines": {"first_hz": 1.0, "last_hz": 100.0 + 0.5 * step, "step_hz": step},
                "noise_log_std": 0.01,
                "noise_seed": k,
            },
            "posture": {name: f"{draw.uniform(*range_deg):.1f} deg" for name, range_deg in RANGES_DEG.items()},
            "noise_log_std": 0.01,
        }
        for k in range(postures)
    ]
    return {"machine": "kuka-kr90", "test": tests, "free": BOUNDS}


def peak_mib() -> float:
    """Largest resident memory of the process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def main() -> None:
    """Evaluate one generation, print a line, and write the numbers; or write the study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=4096)
    parser.add_argument("--postures", type=int, default=32)
    parser.add_argument("--lines", type=int, default=512)
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    parser.add_argument("--study", action="store_true")
    options = parser.parse_args()
    data = study_of(options.postures, options.lines)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.study:
        (options.out / "scale.toml").write_text(tomli_w.dumps(data))
        return
    problem = jaxmb.make_study(data, "scale").problem
    lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
    population = lower + np.random.default_rng(1).uniform(size=(options.candidates, lower.size)) * (upper - lower)
    before, began = peak_mib(), time.monotonic()
    objectives = np.asarray(population_objectives(problem, jax.device_put(population)))
    spent = time.monotonic() - began
    found = {
        "candidates": options.candidates,
        "postures": options.postures,
        "lines": options.lines,
        "finite": int(np.isfinite(objectives).sum()),
        "before_mib": before,
        "peak_mib": peak_mib(),
        "seconds": spent,
        "device": str(jax.devices()[0]),
    }
    print(", ".join(f"{name} {value:.6g}" if isinstance(value, float) else f"{name} {value}"
                    for name, value in found.items()))  # fmt: skip
    (options.out / "scale.json").write_text(json.dumps(found | {"versions": versions()}, indent=1))


if __name__ == "__main__":
    main()
