"""How often known parameters come back exactly: the 3R manipulator's six, and the KR90's 18 for the published truth and
for 20 others, 100 seeds each.

    python experiments/recovery/run.py [--seeds 100] [--truths 20] [--truth-seed 2020] [--out results/recovery]

Every fit starts from random points in the bounds (no initial values), on noise-free FRFs; for odd truths these are read
from a file that was written before.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb
from jaxmb.fitting import FrfTest
from jaxmb.results import versions
from jaxmb.studies import study_data

EXACT = 1e-6
TRUTH_SEED = 2020
"""Of the truths on which the rules for stopping were chosen; any other seed draws others."""


def described(truth: dict[str, float]) -> dict[str, Any]:
    """The shipped study kr90-modelled with another truth, and nothing given to start from."""
    data = study_data("kr90-modelled")
    data["test"][0]["simulate"]["parameters"] = truth
    data["start"] = "random"
    data["free"] = {name: {k: v for k, v in part.items() if k != "initial"} for name, part in data["free"].items()}
    return data


def as_file(study: jaxmb.Study, truth: dict[str, float], folder: Path) -> jaxmb.Study:
    """The same study with its FRFs written to a file and read from there."""
    data = described(truth)
    (test,) = (t for t in study.tests if isinstance(t, FrfTest))
    frequency_hz = np.asarray(test.omega) / (2 * np.pi)
    jaxmb.write_frf(folder / "frf.npz", jaxmb.FrfSet(frequency_hz, np.asarray(test.measured), "accelerance"))
    data["test"][0].pop("simulate")
    data["test"][0]["file"] = "frf.npz"
    data["tolerances"] = "exact"  # as of the simulated tests
    read = jaxmb.make_study(data, study.name, folder)
    return dataclasses.replace(read, truth=study.truth)


def truths(count: int, truth_seed: int = TRUTH_SEED) -> list[dict[str, float]]:
    """The published truth (the machine's own values), then random ones, even in the logarithm over the bounds."""
    free = jaxmb.load_study("kr90-modelled").free
    draw = np.random.default_rng(truth_seed).uniform(
        np.log(free.lower_value), np.log(free.upper_value), (count, free.size)
    )
    return [{}, *(dict(zip(free.names, np.exp(row).tolist(), strict=True)) for row in draw)]


def evaluations(result: jaxmb.Result) -> int:
    """Of the cost; least squares makes each of them with an exact Jacobian."""
    return result.evaluations["search"] + result.evaluations["refine"]


def main() -> None:
    """Run all fits, print a line a truth, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--truths", type=int, default=20)
    parser.add_argument("--truth-seed", type=int, default=TRUTH_SEED)
    parser.add_argument("--out", type=Path, default=Path("results/recovery"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    rows = []
    small = jaxmb.load_study("validation-3r")
    small_results = [jaxmb.identify(small, seed=s) for s in range(options.seeds)]
    small_errors = [result.metrics["largest_parameter_error"] for result in small_results]
    counts = [evaluations(result) for result in small_results]
    small_exact = int(np.sum(np.array(small_errors) < EXACT))
    print(
        f"validation-3r: {small_exact} of {options.seeds} seeds exact within 1e-6,"
        f" largest error {max(small_errors):.1e}, {min(counts)} to {max(counts)} evaluations"
    )
    shipped = jaxmb.load_study("kr90-modelled")
    counts = [evaluations(jaxmb.identify(shipped, seed=s)) for s in range(options.seeds)]
    print(f"kr90-modelled with its initial values: {min(counts)} to {max(counts)} evaluations")
    print("kr90-modelled from random starts:")
    print("truth   exact within 1e-6   largest error   median s   longest s     evaluations")
    for number, truth in enumerate(truths(options.truths, options.truth_seed)):
        study = jaxmb.make_study(described(truth), f"truth {number}")
        if number % 2:
            study = as_file(study, truth, options.out)
        errors, seconds, costs, counts = [], [], [], []
        for seed in range(options.seeds):
            began = time.perf_counter()
            result = jaxmb.identify(study, seed=seed)
            seconds.append(time.perf_counter() - began)
            errors.append(result.metrics["largest_parameter_error"])
            costs.append(result.cost)
            counts.append(evaluations(result))
        exact = int(np.sum(np.array(errors) < EXACT))
        rows.append(
            {
                "truth": truth,
                "exact": exact,
                "errors": errors,
                "costs": costs,
                "seconds": seconds,
                "evaluations": counts,
            }
        )
        longest = max(seconds[1:] or seconds)
        print(
            f"{number or 'printed':>7}   {exact:4d} of {options.seeds:<4d}        {max(errors):10.1e}"
            f"      {np.median(seconds):7.2f}     {longest:7.2f}     {min(counts)} to {max(counts)}",
            flush=True,
        )
        for seed in np.flatnonzero(np.array(errors) >= EXACT):
            print(f"          seed {seed}: error {errors[seed]:.1e}, cost {costs[seed]:.1e}")
    numbers = {"versions": versions(), "validation-3r": small_errors, "rows": rows}
    (options.out / "recovery.json").write_text(json.dumps(numbers))


if __name__ == "__main__":
    main()
