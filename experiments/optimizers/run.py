"""Which optimizer finds the answer of FRF studies, how often, and at what price.

    python experiments/optimizers/run.py [--seeds 20] [--most 40000] [--seconds 20] [--only NAME ...] [--out DIR]

Every optimizer starts at random in the bounds, of every study, with every seed, and runs until the cost is within a
millionth of what noise leaves above the least one that is known, or its evaluations or seconds are spent.
"""

import argparse
import contextlib
import dataclasses
import json
import time
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from objective import Ended, Objective, goal_of
from optimizers import ALL, Optimizer
from threadpoolctl import threadpool_limits

import jaxmb
from jaxmb.fitting import run_fit
from jaxmb.results import versions
from jaxmb.studies import study_data

OWN = "jaxmb"


def studies() -> dict[str, jaxmb.Study]:
    """The studies by name, all from random starts."""
    kr90 = study_data("kr90-modelled")
    three = study_data("kr90-postures")
    three["test"] = [part | {"simulate": part["simulate"] | {"lines": LINES}} for part in three["test"][:3]]
    literal = study_data("kr90-modelled")
    literal["test"][0]["phase"] = "principal"
    raw = study_data("kr90-modelled")
    raw["free"] = {name: part | {"scale": "linear"} for name, part in raw["free"].items()}
    described = {
        "3R": study_data("validation-3r"), "KR90": kr90, "KR90, three postures, 1 % noise": three,
        "flexible arm, 2 % noise": study_data("flexible-arm"), "KR90, principal phase": literal,
        "KR90, linear scale": raw,
    }  # fmt: skip
    return {name: jaxmb.make_study(_from_anywhere(data), name) for name, data in described.items()}


LINES = {"first_hz": 1.0, "last_hz": 100.0, "step_hz": 1.0}


def _from_anywhere(data: dict) -> dict:
    free = {name: {k: v for k, v in part.items() if k != "initial"} for name, part in data["free"].items()}
    return data | {"start": "random", "free": free}


def least_cost(study: jaxmb.Study, seeds: int = 3) -> float:
    """Least objective that jaxmb's own fit finds from several seeds."""
    fits = [run_fit(study.problem, study.settings, study.start, 10_000 + seed) for seed in range(seeds)]
    return min(fit.best for fit in fits)


def one_run(run: Optimizer, objective: Objective, seed: int) -> dict[str, list[float]]:
    """What an optimizer reached: name of a goal -> evaluations and seconds."""
    objective.restart()
    with contextlib.suppress(Ended):
        run(objective, seed)
    return {name: list(price) for name, price in objective.reached.items()}


def own_run(study: jaxmb.Study, objective: Objective, seed: int) -> dict[str, list[float]]:
    """The same for jaxmb's own fit, which is told the cost that is good enough: a run for each goal.

    Each of its evaluations has a Jacobian with it.
    """
    reached = {}
    for name, level in dataclasses.asdict(objective.goal).items():
        settings = dataclasses.replace(study.settings, tolerance=level)
        began = time.perf_counter()
        fit = run_fit(study.problem, settings, study.start, seed)
        seconds = time.perf_counter() - began
        if fit.best <= level:
            reached[name] = [objective.prices["jacobian"] * (fit.search_evaluations + fit.refine_evaluations), seconds]
    return reached


def main() -> None:
    """Run all, print a table for each study, write the numbers and the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--most", type=int, default=40_000, help="evaluations of a run")
    parser.add_argument("--seconds", type=float, default=20.0, help="of a run")
    parser.add_argument("--only", nargs="*", help="studies")
    parser.add_argument("--out", type=Path, default=Path("results/optimizers"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    found: dict[str, dict[str, list[dict[str, list[float]]]]] = {}
    with threadpool_limits(1, user_api="blas"):
        for name, study in studies().items():
            if options.only and name not in options.only:
                continue
            goal = goal_of(study, least_cost(study))
            objective = Objective(study.problem, goal, options.most, options.seconds)
            found[name] = {}
            print(f"\n{name}: {objective.size} parameters; a gradient counts as {objective.prices['gradient']:.1f}"
                  f" evaluations, a Jacobian as {objective.prices['jacobian']:.1f}")  # fmt: skip
            print(f"{'':38s}{'near':>6s}{'exact':>7s}{'evaluations':>13s}{'seconds':>9s}")
            for way, run in {OWN: None, **ALL}.items():
                runs = [
                    own_run(study, objective, seed) if run is None else one_run(run, objective, seed)
                    for seed in (10_000, *range(options.seeds))
                ][1:]  # the first one compiles
                found[name][way] = runs
                print(_row(way, runs), flush=True)
            numbers = {"versions": versions(), "seeds": options.seeds, "runs": found}
            (options.out / "optimizers.json").write_text(json.dumps(numbers))
    for name, ways in found.items():
        profile(name, ways).savefig(options.out / f"{name.replace(', ', '-').replace(' ', '-')}.png", dpi=150)


def _row(way: str, runs: list[dict[str, list[float]]]) -> str:
    """Part of the runs that came near and to the answer, and what an exact answer costs: spent by all, a success."""
    parts = [100.0 * np.mean([name in run for run in runs]) for name in ("basin", "exact")]
    exact = [run["exact"] for run in runs if "exact" in run]
    middle = np.median(exact, axis=0) if exact else (np.nan, np.nan)
    return f"{way:38s}{parts[0]:5.0f}%{parts[1]:6.0f}%{middle[0]:13.0f}{middle[1]:9.2f}"


def profile(name: str, ways: dict[str, list[dict[str, list[float]]]]) -> Figure:
    """Part of the runs that have the exact answer, by evaluations and by seconds."""
    figure, panels = plt.subplots(1, 2, figsize=(11.0, 5.2), sharey=True, layout="constrained")
    ranked = sorted(ways, key=lambda way: -sum("exact" in run for run in ways[way]))
    prices = {way: np.array([run["exact"] for run in ways[way] if "exact" in run]).reshape(-1, 2) for way in ranked}
    end = 2.0 * np.max(np.concatenate(list(prices.values())), axis=0, initial=1e-3)
    for i, way in enumerate(ranked):
        reached, runs = prices[way], len(ways[way])
        if not len(reached):
            continue
        style = {"color": f"C{i % 10}", "ls": ("-", "--")[i // 10 % 2], "lw": 2.5 if way == OWN else 1.3}
        share = 100.0 * np.array([0, *range(1, len(reached) + 1), len(reached)]) / runs
        for k, axes in enumerate(panels):
            at = np.sort(reached[:, k])
            axes.step([at[0], *at, end[k]], share, where="post", label=way, **style)
    for axes, text in zip(panels, ("evaluations of the cost", "seconds"), strict=True):
        axes.set(xscale="log", xlabel=text, ylim=(0.0, 102.0))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("runs with the exact answer, %")
    panels[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
    figure.suptitle(name)
    return figure


if __name__ == "__main__":
    main()
