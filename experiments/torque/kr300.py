"""Torques of a KUKA KR300 in a part of its run, predicted from another: one half from the other, half seconds in turn.

JAXMB_DATA=... python experiments/torque/kr300.py [--out results/torque]
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

SHARED = {"kind": "torque", "file": "kuka-kr300", "least_speed": 0.05}
FREE = {
    "damping.q?": {"lower": 0.0, "upper": 5e4, "scale": "linear"}, "friction.q?": {"lower": 0.0, "upper": 5e3},
    "mass.q6": {"lower": 0.0, "upper": 500.0}, "first_moment.q6.*": {"lower": -200.0, "upper": 200.0},
}  # fmt: skip
OFFSET = {"offset.q?": {"lower": -5e3, "upper": 5e3}}
STD = {"q1": 40.0, "q2": 60.0, "q3": 40.0, "q4": 10.0, "q5": 20.0, "q6": 10.0}
"""Nm, about what a fit leaves: half a second is too short for an estimate of its own."""
HALVES = [(0.0, 5.0), (5.0, 10.0)]
PIECES = [(0.5 * i, 0.5 * i + 0.499) for i in range(5, 17)]
"""While all joints move."""
SPLITS: dict[str, tuple[list[tuple[float, float]], list[tuple[float, float]]]] = {
    "first half -> second": (HALVES[:1], HALVES[1:]),
    "second half -> first": (HALVES[1:], HALVES[:1]),
    "every other half second": (PIECES[::2], PIECES[1::2]),
}
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "below 5 Hz": ({"effort_cutoff_hz": 5.0}, {}),
    "as recorded": ({}, {}),
    "below 5 Hz, offsets free": ({"effort_cutoff_hz": 5.0}, OFFSET),
}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    told = {}
    print(f"{'':52}{'mass.q6':>8}   relative error of torque, %, on the part that is held out, joints 1 to 6")
    for split, (fitted, held_out) in SPLITS.items():
        for case, (settings, more) in CASES.items():
            stated = {} if len(fitted) == 1 else {"torque_std": STD}
            parts = [(part, "fit") for part in fitted] + [(part, "check") for part in held_out]
            tests = [
                SHARED
                | settings
                | stated
                | {"from_s": first, "to_s": last, "role": role, "name": f"{role} from {first} s"}
                for (first, last), role in parts
            ]
            data = {"machine": "kuka-kr300", "test": tests, "free": FREE | more}
            result = jaxmb.identify(jaxmb.make_study(data, "kr300", Path.cwd()))
            metrics: Any = result.metrics.tests["torque"]
            errors = []
            for name in (f"q{i}" for i in range(1, 7)):
                rows = [row for row in metrics.torques if row.role == "check" and row.coordinate == name]
                missed, size = (sum(getattr(row, key) ** 2 for row in rows) for key in ("rms_error", "rms"))
                errors.append(100.0 * float(np.sqrt(missed / size)))
            mass = result.parameters["mass.q6"].value
            told[f"{split}, {case}"] = {"mass.q6": mass, "percent": errors}
            print(f"{split + ', ' + case:52}{mass:8.0f}   " + " ".join(f"{error:6.1f}" for error in errors), flush=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "kr300.json").write_text(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
