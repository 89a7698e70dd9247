"""How fast the KR90's exact answer is found, beside what careful NumPy and SciPy users would write.

    python experiments/speed/run.py [--seeds 20] [--out results/speed]

Both sides start from random points in the bounds of Table 4 on the same noise-free FRFs, warm (compiled), in turn, on
one BLAS thread, until all 18 parameters are within 1e-6 of the truth.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import peers
from threadpoolctl import threadpool_limits

import jaxmb
from jaxmb.fitting import Fit, objective, run_fit
from jaxmb.results import versions
from jaxmb.studies import study_data

EXACT = 1e-6


def random_start_study() -> jaxmb.Study:
    """The shipped study kr90-modelled without initial values."""
    data = study_data("kr90-modelled")
    data["start"] = "random"
    data["free"] = {name: {k: v for k, v in part.items() if k != "initial"} for name, part in data["free"].items()}
    return jaxmb.make_study(data, "kr90-modelled")


def largest_error(study: jaxmb.Study, fit: Fit) -> float:
    """Largest relative error of the fitted parameters."""
    values = study.free.named(study.free.values(np.asarray(fit.best_u)))
    return max(abs(values[name] / true - 1.0) for name, true in study.truth.items())


def timed(work: Callable[[], object]) -> float:
    """Seconds that a piece of work takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def quartiles(seconds: list[float]) -> str:
    """Median with the quartiles, in seconds."""
    low, middle, high = np.percentile(seconds, [25, 50, 75])
    return f"{middle:7.3f} s ({low:.3f} to {high:.3f})"


def main() -> None:
    """Time both sides in turn, print the table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    study, problem = random_start_study(), peers.kr90_problem("kuka-kr90")
    jaxmb.identify(study, seed=1000)  # compiles
    seconds: dict[str, list[float]] = {"jaxmb": [], "jaxmb whole": [], "plain": [], "warm-up": []}
    exact = dict.fromkeys(seconds, 0)
    with threadpool_limits(1, user_api="blas"):
        for seed in range(options.seeds):
            began = time.perf_counter()
            fit = run_fit(study.problem, study.settings, study.start, seed)
            seconds["jaxmb"].append(time.perf_counter() - began)
            exact["jaxmb"] += largest_error(study, fit) < EXACT
            began = time.perf_counter()
            jaxmb.identify(study, seed=seed)
            seconds["jaxmb whole"].append(time.perf_counter() - began)
            for name, warm_up in (("plain", False), ("warm-up", True)):
                found = peers.trust_region_multistart(problem, np.random.default_rng(seed), warm_up=warm_up, enough=0.0)
                seconds[name].append(found.seconds)
                exact[name] += found.exact
        print(f"exact answer, {options.seeds} seeds, median (quartiles):")
        for name, label in (
            ("plain", "SciPy trust region, exact Jacobian, random starts"),
            ("warm-up", "the same, first on evenly weighted lines as jaxmb does"),
            ("jaxmb", "jaxmb, the fit"),
            ("jaxmb whole", "jaxmb, with standard deviations, modes and metrics"),
        ):
            ratio = np.array(seconds[name]) / np.array(seconds["jaxmb"])
            low, middle, high = np.percentile(ratio, [25, 50, 75])
            print(
                f"  {label:56s}{quartiles(seconds[name])}   {exact[name.split()[0]]} of {options.seeds} exact"
                f"   {middle:.2f} times jaxmb's ({low:.2f} to {high:.2f})"
            )
        evaluations = cost_rates(study, problem)
    for label, rate in evaluations.items():
        print(f"  {label:56s}{rate:9.0f} a second")
    numbers = {"seconds": seconds, "exact": exact, "evaluations": evaluations, "versions": versions()}
    (options.out / "speed.json").write_text(json.dumps(numbers, indent=1))


def cost_rates(study: jaxmb.Study, problem: peers.Problem) -> dict[str, float]:
    """Evaluations of the cost a second on both sides."""
    u = 0.5 * (study.free.lower + study.free.upper)
    many = jnp.stack([u + 0.001 * i for i in range(64)])
    batch = jax.jit(lambda x: jax.lax.map(study.problem.objective, x, batch_size=8))
    values = np.exp(np.asarray(u))
    jax.block_until_ready((objective(study.problem, u), batch(many)))
    one = [timed(lambda: jax.block_until_ready(objective(study.problem, u))) for _ in range(200)]
    some = [timed(lambda: jax.block_until_ready(batch(many))) / len(many) for _ in range(20)]
    peer = [timed(lambda: peers.cost(problem, values)) for _ in range(200)]
    return {
        "NumPy cost": 1 / float(np.median(peer)),
        "jaxmb cost, one at a time": 1 / float(np.median(one)),
        "jaxmb cost, 64 at a time": 1 / float(np.median(some)),
    }


if __name__ == "__main__":
    main()
