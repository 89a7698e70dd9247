"""The same work on a GPU and on the processors of the same computer: how fast, and whether the answers agree.

    python experiments/gpu/run.py [--out results/gpu] [--quick]

Needs JAX with CUDA. Each platform has its own process, without a cache of compiled programs. "First" includes
compilation; "again" is the median of three further calls.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PLATFORMS = "cpu", "cuda"
CANDIDATES = 256, 4096, 32768
STUDIES = "kr90-modelled", "validation-3r"


def measure(quick: bool) -> dict[str, Any]:
    """Times and answers on the platform of this process."""
    import jax
    import numpy as np

    import jaxmb
    from jaxmb.fitting import population_objectives
    from jaxmb.results import versions

    sys.path.insert(0, str(Path(__file__).parents[1]))
    from scale.run import study_of

    times: dict[str, dict[str, float]] = {}
    answers: dict[str, list[float]] = {}

    def timed(name: str, work: Callable[..., Sequence[float]], *arguments: Any, repeats: int = 3) -> None:
        """Keep the seconds of the first call and the median of later ones, and the answer."""
        spent = []
        for _ in range(repeats + 1):
            began = time.perf_counter()
            answers[name] = list(work(*arguments))
            spent.append(time.perf_counter() - began)
        times[name] = {"first": spent[0], "again": statistics.median(spent[1:])}

    def objectives(problem: Any, population: Any) -> Sequence[float]:
        return np.asarray(population_objectives(problem, population)).tolist()

    def identified(study: Any) -> Sequence[float]:
        return [each.value for each in jaxmb.identify(study).parameters.values()]

    def scatter(study: Any, draws: int) -> Sequence[float]:
        return np.ravel(jaxmb.monte_carlo(study, draws=draws, seed=1).scatter).tolist()

    for postures, counts in ((1, CANDIDATES), (32, CANDIDATES[:2])):
        problem = jaxmb.make_study(study_of(postures, 146), "scale").problem
        lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
        for count in counts[: 2 if quick else None]:
            points = lower + np.random.default_rng(1).uniform(size=(count, lower.size)) * (upper - lower)
            timed(f"objectives of {count} candidates, {postures} postures", objectives, problem, jax.device_put(points))
    for study in STUDIES:
        timed(f"identify {study}", identified, jaxmb.load_study(study))
    timed("identify 32 postures", identified, jaxmb.make_study(study_of(32, 146), "scale"), repeats=1)
    for draws in (64, 1024):
        study = jaxmb.load_study("validation-3r")
        timed(f"{draws} Monte Carlo fits of validation-3r", scatter, study, draws, repeats=1)
    device = str(jax.devices()[0].device_kind)
    return {"device": device, "versions": versions(), "times": times, "answers": answers}


def compare(found: dict[str, dict[str, Any]]) -> str:
    """Table of seconds on both platforms and of the largest relative difference of the answers."""
    import numpy as np

    cpu, cuda = (found[name] for name in PLATFORMS)
    rows = [f"processors: {os.cpu_count()} cores; GPU: {cuda['device']}; jax {cuda['versions']['jax']}", ""]
    rows += [
        "| seconds | cores, first | again | GPU, first | again | cores / GPU | difference |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, here in cpu["times"].items():
        there = cuda["times"][name]
        a, b = (np.asarray(each["answers"][name], float) for each in (cpu, cuda))
        apart = float(np.max(np.abs(a - b) / np.maximum(np.abs(a), 1e-300)))
        rows.append(
            f"| {name} | {here['first']:.3g} | {here['again']:.3g} | {there['first']:.3g} | {there['again']:.3g} "
            f"| {here['again'] / there['again']:.2g} | {apart:.1e} |"
        )
    return "\n".join(rows)


def main() -> None:
    """Measure on both platforms, print the table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/gpu"))
    parser.add_argument("--quick", action="store_true", help="without the largest populations")
    parser.add_argument("--platform", choices=PLATFORMS, help="only this one, in this process")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.platform:
        found = measure(options.quick)
        (options.out / f"{options.platform}.json").write_text(json.dumps(found, indent=1))
        return
    for name in PLATFORMS:
        given = os.environ | {
            "JAX_PLATFORMS": "cpu" if name == "cpu" else "cuda,cpu",
            "JAX_ENABLE_COMPILATION_CACHE": "0",
        }
        command = [sys.executable, __file__, "--platform", name, "--out", str(options.out)]
        subprocess.run(command + ["--quick"] * options.quick, env=given, check=True)
    table = compare({name: json.loads((options.out / f"{name}.json").read_text()) for name in PLATFORMS})
    print(table)
    (options.out / "output.txt").write_text(table + "\n")


if __name__ == "__main__":
    main()
