"""Which optimizer finds the answer of FRF studies, how often, and at what price.

    python experiments/optimizers/run.py run [--seeds 20] [--study NAME ...] [--optimizer NAME ...] [--out DIR]
    python experiments/optimizers/run.py table [--out DIR]

Every optimizer starts at random in the bounds, of every study, with every seed, and runs until the cost is within a
millionth of what noise leaves above the least one that is known, or its evaluations or seconds are spent. `run` adds
each run to a file of DIR, and goes on where it was stopped. `table` prints what is in the file and draws the profiles.
"""

import argparse
import contextlib
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from objective import Ended, Goal, Objective, goal_of
from optimizers import ALL, OWN, Optimizer
from threadpoolctl import threadpool_limits

import jaxmb
from jaxmb.fitting import run_fit
from jaxmb.studies import study_data

HERE = Path(__file__).parent
LEAST_RUNS = 10
"""Of jaxmb, for a profile of a study: of fewer a part says little."""
MOST = 20_000
"""Evaluations of a run."""
SECONDS = {"3R": 1.5, "KR90": 2.5, "three postures": 4.0, "flexible arm": 2.5}
"""Of the processor, of a run."""
UNCOUNTED = 1_000
"""Seed of the run before the others, in which programs are compiled."""
Run = dict[str, Any]
"""`study`, `optimizer`, `seed`; `near` and `exact`: evaluations and seconds, where it came there; `spent`: both."""


def described(name: str) -> dict[str, Any]:
    """What a study file says of one of the four problems."""
    if name == "3R":
        return study_data("validation-3r")
    if name == "KR90":
        return study_data("kr90-modelled")
    data = study_data("kr90-postures" if name == "three postures" else "flexible-arm")
    fitted = [part for part in data["test"] if part.get("role") != "check"][:3]
    lines = {"first_hz": 1.0, "last_hz": 100.0, "step_hz": 1.0}
    return data | {"test": [part | {"simulate": part["simulate"] | {"lines": lines}} for part in fitted]}


def study_of(name: str) -> jaxmb.Study:
    """A problem, with ", principal phase" and ", linear scale" behind its name where that is meant."""
    problem, *kinds = name.split(", ")
    data = described(problem)
    if "principal phase" in kinds:
        data["test"] = [part | {"phase": "principal"} for part in data["test"]]
    if "linear scale" in kinds:
        data["free"] = {key: part | {"scale": "linear"} for key, part in data["free"].items()}
    return jaxmb.make_study(data, name)


KINDS = "", ", principal phase", ", linear scale", ", principal phase, linear scale"
STUDIES = [problem + kind for kind in KINDS for problem in SECONDS]


def known_goal(problem: str, out: Path) -> Goal:
    """Least objective that jaxmb's own fit finds from three seeds, kept beside the runs; and what counts from it."""
    kept = out / "goals.json"
    goals = json.loads(kept.read_text()) if kept.exists() else {}
    if problem not in goals:
        study = study_of(problem)
        fits = [run_fit(study.problem, study.settings, study.start, 10_000 + seed) for seed in range(3)]
        goals[problem] = dataclasses.asdict(goal_of(study.problem, min(fit.best for fit in fits)))
        kept.write_text(json.dumps(goals, indent=1) + "\n")
    return Goal(**goals[problem])


def objective_of(name: str, goal: Goal) -> Objective:
    """A study as optimizers see it, with what its problem may spend."""
    problem = name.split(", ")[0]
    judge = study_of(name.replace(", principal phase", "")).problem if "principal" in name else None
    return Objective(study_of(name), judge, goal, MOST, SECONDS[problem])


def one_run(run: Optimizer, objective: Objective, seed: int) -> dict[str, Any]:
    """What an optimizer reached: name of a goal -> evaluations and seconds; and what it spent."""
    objective.restart()
    with contextlib.suppress(Ended):
        run(objective, seed)
    found = objective.reached | {"spent": (objective.spent, objective.seconds)}
    return {name: (round(evaluations), round(seconds, 5)) for name, (evaluations, seconds) in found.items()}


def all_runs(studies: list[str], optimizers: list[str], seeds: int, out: Path) -> None:
    """Run what is not in the file yet, seed after seed, so that all studies have as many."""
    file = out / "runs.jsonl"
    done = kept(file)
    objectives: dict[str, Objective] = {}
    compiled = set()
    for seed in range(seeds):
        for study in studies:
            for name in optimizers:
                if any((run["study"], run["optimizer"], run["seed"]) == (study, name, seed) for run in done):
                    continue
                if study not in objectives:
                    objectives[study] = objective_of(study, known_goal(study.split(", ")[0], out))
                objective = objectives[study]
                if (study, name) not in compiled:
                    objective.most, objective.limit = MOST / 10, 2.0 * SECONDS[study.split(", ")[0]]
                    one_run(ALL[name], objective, UNCOUNTED)
                    objective.most, objective.limit = MOST, SECONDS[study.split(", ")[0]]
                    compiled.add((study, name))
                found = {"study": study, "optimizer": name, "seed": seed} | one_run(ALL[name], objective, seed)
                done.append(found)
                with file.open("a") as written:
                    written.write(json.dumps(found) + "\n")
        print(f"{time.strftime('%H:%M')} seed {seed}: {len(done)} runs", flush=True)


def kept(file: Path) -> list[Run]:
    """All runs of a file."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def by_optimizer(runs: list[Run], study: str) -> dict[str, list[Run]]:
    """The runs of a study, the optimizers as `ALL` has them."""
    found = {name: [r for r in runs if (r["study"], r["optimizer"]) == (study, name)] for name in ALL}
    return {name: some for name, some in found.items() if some}


def table(runs: list[Run]) -> str:
    """By study and optimizer: runs near the answer and at it, and medians of what that took."""
    lines = []
    for study in STUDIES:
        ways = by_optimizer(runs, study)
        if not ways:
            continue
        lines += ["", study, f"{'':38s}{'runs':>5s}{'near':>6s}{'exact':>6s}{'evaluations':>12s}{'seconds':>9s}"
                  f"{'a success':>11s}"]  # fmt: skip
        for name, some in sorted(ways.items(), key=lambda item: expected_seconds(item[1])):
            near, exact = (sum(goal in run for run in some) for goal in ("near", "exact"))
            row = f"{name:38s}{len(some):5d}{near:6d}{exact:6d}"
            if exact:
                middle = np.median([run["exact"] for run in some if "exact" in run], axis=0)
                row += f"{middle[0]:12.0f}{middle[1]:9.3f}{expected_seconds(some):11.3f}"
            lines.append(row)
    return "\n".join(lines)


def expected_seconds(runs: list[Run]) -> float:
    """Seconds that all runs took together for each that found the answer; inf where none did."""
    successes = sum("exact" in run for run in runs)
    return sum(run["spent"][1] for run in runs) / successes if successes else np.inf


def profile(name: str, ways: dict[str, list[Run]], most: int = 12) -> Figure:
    """Part of the runs that have the exact answer, by evaluations and by seconds; of the best optimizers."""
    figure, panels = plt.subplots(1, 2, figsize=(11.0, 4.6), sharey=True, layout="constrained")
    ranked = [way for way in sorted(ways, key=lambda way: expected_seconds(ways[way])) if np.isfinite(
        expected_seconds(ways[way]))][:most]  # fmt: skip
    prices = {way: np.array([run["exact"] for run in ways[way] if "exact" in run]).reshape(-1, 2) for way in ranked}
    end = 2.0 * np.max(np.concatenate([*prices.values(), np.full((1, 2), 1e-3)]), axis=0)
    for i, way in enumerate(ranked):
        reached, runs = prices[way], len(ways[way])
        style: dict[str, Any] = {"color": f"C{i % 10}", "ls": ("-", "--")[i // 10 % 2], "lw": 1.3}
        if way == OWN:
            style = {"color": "black", "lw": 2.8}
        share = 100.0 * np.array([0, *range(1, len(reached) + 1), len(reached)]) / runs
        for k, axes in enumerate(panels):
            at = np.sort(reached[:, k])
            axes.step([at[0], *at, end[k]], share, where="post", label=way, **style)
    for axes, text in zip(panels, ("evaluations of the cost", "seconds of the processor"), strict=True):
        axes.set(xscale="log", xlabel=text, ylim=(0.0, 102.0))
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda at, _: f"{at:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("runs with the exact answer, %")
    panels[1].legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8, frameon=False)
    figure.suptitle(name)
    return figure


def main() -> None:
    """Run, or print and draw what was run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--study", nargs="*", choices=STUDIES, default=STUDIES)
    parser.add_argument("--optimizer", nargs="*", choices=[*ALL], default=[*ALL])
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.what == "run":
        with threadpool_limits(1, user_api="blas"):
            all_runs(options.study, options.optimizer, options.seeds, options.out)
        return
    runs = kept(options.out / "runs.jsonl")
    text = table(runs)
    print(text)
    (options.out / "table.txt").write_text(text.lstrip("\n") + "\n")
    for name in options.study:
        ways = by_optimizer(runs, name)
        if len(ways.get(OWN, ())) >= LEAST_RUNS and any("exact" in run for some in ways.values() for run in some):
            figure = profile(name, ways)
            figure.savefig(options.out / f"{name.replace(', ', '-').replace(' ', '-')}.png", dpi=110)
            plt.close(figure)


if __name__ == "__main__":
    main()
