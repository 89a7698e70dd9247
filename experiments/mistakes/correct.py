"""How often correct FRF studies are accused of an error, and what that does to their standard deviations.

    python experiments/mistakes/correct.py [--draws 20] [WAY ...]

Two machines of different topology: the three-joint manipulator of Huynh et al. 2020 and an arm of two flexible links on
elastic joints. Noise is drawn anew for each fit: stated, to be estimated, known from a coherence, or beside weights of
peaks; at one posture or at three. A study is accused where its confidence is capped, its status is not "converged", or
a remark names an error.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmb

PEAKS = {"peaks": 50, "half_width_lines": 2, "elsewhere": 0.5}
ARMS = {
    "manipulator-3r": (
        {"first_hz": 1.0, "last_hz": 40.0, "step_hz": 0.5},
        (
            {"z1": 0.0, "z2": 1.22, "z3": -1.75},
            {"z1": 0.7, "z2": 1.05, "z3": -1.75},
            {"z1": -0.5, "z2": 1.22, "z3": -1.05},
        ),
        {"stiffness.*": {"lower": 2e5, "upper": 2e7}, "damping.*": {"lower": 1e2, "upper": 1e4}},
    ),
    "two-flexible-links": (
        {"first_hz": 1.0, "last_hz": 60.0, "step_hz": 0.75},
        ({"shoulder": -0.35, "elbow": 1.05}, {"shoulder": 0.2, "elbow": 0.5}, {"shoulder": -0.8, "elbow": 1.6}),
        {"stiffness.*": {"lower": 2e3, "upper": 2e5}, "damping.*": {"lower": 1.0, "upper": 200.0}},
    ),
}  # fmt: skip
WAYS: dict[str, dict[str, Any]] = {
    "stated": {"noise": 0.015},
    "stated, 3 tests": {"noise": 0.015, "tests": 3},
    "peaks, 3 tests": {"noise": 0.01, "tests": 3, "weights": PEAKS},
    "estimated": {"noise": 0.02, "noise_log_std": "estimate"},
    "estimated, 3 tests": {"noise": 0.05, "tests": 3, "noise_log_std": "estimate"},
    "coherence": {"noise": 0.03, "coherence": 20},
    "coherence, estimated, 3 tests": {"noise": 0.03, "tests": 3, "coherence": 20, "noise_log_std": "estimate"},
}


def description(folder: Path, arm: str, draw: int, noise: float, tests: int = 1, coherence: int = 0, **changes: Any):
    """A study of a machine: noise of log H, and a coherence of so many averages where one is recorded."""
    lines, postures, free = ARMS[arm]
    made = []
    for k, posture in enumerate(postures[:tests]):
        test = {"kind": "frf", "name": f"p{k}", "frame": "tool", "posture": posture, "noise_log_std": noise}
        if coherence:
            test |= {"file": measured(folder, arm, posture, draw, k, noise, coherence), "noise_log_std": 1e-4}
        else:
            test["simulate"] = {"lines": lines, "noise_log_std": noise, "noise_seed": 1000 * draw + k}
        made.append(test | changes)
    return {"machine": arm, "test": made, "free": free}


def measured(
    folder: Path, arm: str, posture: dict[str, float], draw: int, test: int, noise: float, averages: int
) -> str:
    """FRFs with additive noise, the mean of some averages, and their coherence; the name of the file."""
    lines = ARMS[arm][0]
    rng, model = np.random.default_rng([draw, test]), jaxmb.build_model(jaxmb.load_machine(arm))
    frequency_hz = np.arange(lines["first_hz"], lines["last_hz"] + 1e-9, lines["step_hz"])
    q = jaxmb.posture(model, posture)
    h = np.asarray(jaxmb.frf(model, q, jnp.asarray(frequency_hz), frame="tool"))
    size = noise * np.median(np.abs(h), axis=0) * np.sqrt(averages)
    single = h + size * (rng.normal(size=(averages, *h.shape)) + 1j * rng.normal(size=(averages, *h.shape)))
    mean, power = single.mean(axis=0), np.mean(np.abs(single) ** 2, axis=0)
    points = tuple(f"tool {axis}" for axis in "xyz")
    found = jaxmb.FrfSet(
        frequency_hz, mean, "accelerance", points, points, coherence=np.abs(mean) ** 2 / np.maximum(power, 1e-300)
    )
    jaxmb.write_frf(folder / f"p{test}.npz", found)
    return f"p{test}.npz"


def accused(result: Any) -> list[str]:
    """Why a result is taken for wrong; empty where it is not."""
    verdicts = [p.identifiable for p in result.parameters.values()]
    found = [text for text in result.doubts if "bound" not in text]
    return found if result.status != "converged" or found else ([] if "yes" in verdicts else ["no parameter is known"])


def main() -> None:
    """Print each accusation, and how many there were of each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=", ".join(WAYS))
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    total = count = 0
    for arm in ARMS:
        for way in options.ways or WAYS:
            stds, flagged = [], []
            for draw in range(options.first, options.first + options.draws):
                with tempfile.TemporaryDirectory() as folder:
                    data = description(Path(folder), arm, draw, **WAYS[way])
                    result = jaxmb.identify(jaxmb.make_study(data, "correct", Path(folder)))
                stds.append([p.std_log for p in result.parameters.values()])
                if texts := accused(result):
                    flagged.append(draw)
                    times = np.max(np.array(stds[-1]) / np.median(stds, axis=0))
                    print(f"  {arm}, {way}, draw {draw}: {result.status}; deviations up to {times:.0f} times: {texts}")
            total, count = total + len(flagged), count + options.draws
            print(f"{arm}, {way}: {len(flagged)} of {options.draws} accused", flush=True)
    print(f"{total} of {count} accused")


if __name__ == "__main__":
    main()
