"""What of Tables 1 and 2 of Klimchik et al. 2014, as found on a stand-in, hangs on the setup and on the draw.

python experiments/kr270-complete-stiffness/run.py [--seeds 10]
"""

import argparse
from typing import Any

import numpy as np

import jaxmb
from jaxmb.studies import study_data

SETUPS: dict[str, dict[str, Any]] = {
    "as in the study": {},
    "one point": {"points": ["p1"]},
    "two points": {"points": ["p1", "p2"]},
    "pose of the tool": {"points": None, "frame": "tool", "offset_m": [0.0, 0.2, 0.0], "measured": "pose"},
    "load on the axis of joint 6": {"offset_m": [0.0, -0.2, 0.0]},
    "load 0.2 m to the other side": {"offset_m": [0.0, -0.4, 0.0]},
    "joint 1 at zero": {"ranges": {"q1": ["0 deg", "0 deg"]}},
    "wrist at 45 deg": {"ranges": {name: ["45 deg", "45 deg"] for name in ("q4", "q5", "q6")}},
}
"""What differs from the study, of the fitted and of the check tests alike."""
PRINTED = "1, 10, 45, final 26"


def study(changes: dict[str, Any], plan_seed: int | None = None, noise_seed: int | None = None) -> jaxmb.Study:
    """The shipped study with another setup, other configurations or other errors of the tracker."""
    data = study_data("kr270-complete-stiffness")
    for test in data["test"]:
        for name, value in changes.items():
            if name == "ranges":
                for zone in test["simulate"]["zones"].values():
                    zone.update(value)
            else:
                (test if name in ("points", "frame") else test["simulate"])[name] = value
        if test.get("points", ()) is None:
            del test["points"]
    if plan_seed is not None:
        data["test"][0]["simulate"]["plan_seed"] = plan_seed
    return jaxmb.make_study(data, "kr270-complete-stiffness", noise_seed=noise_seed)


def told(result: jaxmb.Result) -> tuple[str, list[float]]:
    """Groups and final parameters as a text, and the compensated percent of J1, J2, C1 and C2."""
    found, percent = result.metrics["reduction"], result.metrics["compensated_percent"]
    counts = f"{found['G1']}, {found['G2']}, {found['G3']}, final {found['final']}"
    return counts, [np.nan if percent[name] is None else percent[name] for name in ("J1", "J2", "C1", "C2")]


def main() -> None:
    """Print everything that the README of this experiment tells."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    print(f"groups and parameters left (printed: {PRINTED}); compensated by J1, J2, C1, C2 (%)")
    for name, changes in SETUPS.items():
        counts, percent = told(jaxmb.identify(study(changes)))
        print(f"  {name}: {counts}; {np.round(percent, 1)}", flush=True)
    for what, seeds in (
        ("errors of the tracker", [(None, seed) for seed in range(options.seeds)]),
        ("candidates, so of the 15 configurations", [(1000 + seed, None) for seed in range(options.seeds)]),
    ):
        results, refused = [], 0
        for pair in seeds:
            try:
                results.append(told(jaxmb.identify(study({}, *pair))))
            except jaxmb.InputError:  # a singular posture among those chosen
                refused += 1
        percent = np.array([row for _, row in results])
        counts, times = np.unique([row for row, _ in results], return_counts=True)
        print(
            f"{options.seeds} draws of the {what}: "
            + "; ".join(f"{c} ({t} times)" for c, t in zip(counts, times, strict=True))
            + f"; {refused} refused"
        )
        print(
            f"  compensated from {np.round(percent.min(axis=0), 1)} to {np.round(percent.max(axis=0), 1)}", flush=True
        )


if __name__ == "__main__":
    main()
