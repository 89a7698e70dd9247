"""Does one linear model do, and which law is chosen: a KR90 stand-in over noise seeds, with three truths.

    python experiments/posture-law/run.py [SEEDS] [OUT] [TRUTH ...]

Of every seed the seven tests of `kr90-posture-law` are simulated with new noise, and the true stiffness.z2 follows the
study's law of z2, or a law of the amplitude of each test, or is the same everywhere. A line of JSON for each goes to
OUT.
"""

import json
import math
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np

from jaxmb import identify, make_study
from jaxmb.laws import LEVEL
from jaxmb.studies import study_data

STIFFNESS = 6e6
TRUTHS = {"constant": (None, 0.0), "z2": ("cos z2", 0.3), "amplitude": ("ln amplitude", -0.05)}


def law(truth: str, test: dict) -> float:
    """Logarithm of the true stiffness.z2 over `STIFFNESS`."""
    _, coefficient = TRUTHS[truth]
    if truth == "z2":
        return coefficient * math.cos(math.radians(float(test["posture"]["z2"].removesuffix(" deg"))))
    return coefficient * math.log(test["amplitude"] / 50.0) if truth == "amplitude" else 0.0


def study_of(truth: str, seed: int):
    """The study with a truth and a noise seed; each test has its own draws."""
    data = study_data("kr90-posture-law")
    for number, test in enumerate(data["test"]):
        test["simulate"]["parameters"]["stiffness.z2"] = STIFFNESS * math.exp(law(truth, test))
        test["simulate"]["noise_seed"] = 1000 * seed + number
    return make_study(data, f"kr90-posture-law-{truth}")


def line_of(truth: str, seed: int) -> dict:
    """What is found of one truth with one noise."""
    began = time.monotonic()
    found = identify(study_of(truth, seed))
    one, laws = found.metrics["one_model"], found.metrics["laws"]
    term, coefficient = TRUTHS[truth]
    chosen = [(c["parameter"], c["term"]) for c in laws["chosen"]]
    wanted = [] if term is None else [("stiffness.z2", term)]
    own = next((c for c in laws["chosen"] if (c["parameter"], c["term"]) in wanted), None)
    z = None if own is None else (own["coefficient"] - coefficient) / own["std"]
    last = [c for c in laws["considered"] if c["step"] == len(wanted) + 1 and c["holdout_error"] is not None]
    return {
        "truth": truth, "seed": seed, "does": one["does"], "p": one["p"], "separate_p": one["separate"]["p"],
        "residual_over_noise": one["residual_over_noise"], "first": one["parameters"][0], "chosen": chosen,
        "right": chosen == wanted, "extra": [c for c in chosen if c not in wanted], "z": z,
        "without": laws["holdout"]["without"], "with": laws["holdout"]["with"], "after": laws["one_model"],
        "by_given_term_alone": any(c["gain"] > c["gain_std"] for c in last),
        "by_hold_out_alone": any(c["predicts"] for c in last),
        "by_probability_alone": any(c["p"] < LEVEL for c in last),
        "seconds": time.monotonic() - began,
    }  # fmt: skip


def summary(lines: list[dict]) -> None:
    """Print the rates."""
    for truth in TRUTHS:
        mine = [line for line in lines if line["truth"] == truth]
        if not mine:
            continue
        print(f"{truth}: {len(mine)} noise seeds")
        first = Counter(x["first"]["parameter"] for x in mine)
        print(f"  one model is consistent: {sum(x['does'] for x in mine)}; first: {first}")
        residual = np.mean([x["residual_over_noise"] for x in mine])
        spread = np.mean([x["first"]["spread"] for x in mine])
        print(f"  residual over noise {residual:.3f}, spread of the first {100 * spread:.2f} %")
        print(f"  right law: {sum(x['right'] for x in mine)}; with a false term: {sum(bool(x['extra']) for x in mine)}")
        z = np.array([x["z"] for x in mine if x["z"] is not None])
        if z.size:
            inside, rms = np.sum(np.abs(z) < 1.96), np.sqrt(np.mean(z**2))
            print(f"  coefficient inside its 95 %: {inside} of {z.size}; rms z {rms:.2f}")
        print(
            f"  hold-out error {np.mean([x['without'] for x in mine]):.3f} -> {np.mean([x['with'] for x in mine]):.4f}"
        )
        kinds = {"given_term": "hold-out of the term that was chosen with all tests", "hold_out": "hold-out",
                 "probability": "probability"}  # fmt: skip
        for kind, what in kinds.items():
            print(f"  a false term by {what} alone: {sum(x[f'by_{kind}_alone'] for x in mine)}")
        print(f"  seconds: median {np.median([x['seconds'] for x in mine]):.1f}")


def main() -> None:
    """All truths, or those that are named, and all seeds."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    out = Path(sys.argv[2] if len(sys.argv) > 2 else "posture-law.jsonl")
    lines = []
    with out.open("w") as file:
        for truth in sys.argv[3:] or TRUTHS:
            for seed in range(1, seeds + 1):
                lines.append(line_of(truth, seed))
                file.write(json.dumps(lines[-1]) + "\n")
                file.flush()
    summary(lines)


if __name__ == "__main__":
    main()
