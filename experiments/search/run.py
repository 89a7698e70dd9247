"""How often the default fit finds the best minimum of hard problems, with and without its population search.

    python experiments/search/run.py [--seeds 16] [--problem NAME ...] [--setting "cmaes" ...] [--out DIR]

Every fit begins at random starts, with its own seed, and ends by itself. It is a success where its objective is within
a millionth of what the stated noise leaves above the least one known: of all fits, and of a refinement from the truth.
"""

import argparse
import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np
from threadpoolctl import threadpool_limits

import jaxmb
from jaxmb.fitting import RefinePart, SearchPart, Start, noise_objective, run_fit
from jaxmb.studies import make_study, study_data

HERE = Path(__file__).parent
ANGLES = (0.3, -0.5, 0.7, -0.4, 0.6, -0.8, 0.5, -0.3, 0.3, -0.5)
UNCOUNTED = 999
"""Seed of the fit before the others, in which programs are compiled."""


def chain(joints: int) -> dict[str, Any]:
    """A plane chain of hinges, each lighter and softer than the one before, damped by about 1 %."""
    draw = np.random.default_rng(joints)
    bodies = []
    for k in range(joints):
        mass = 20.0 * 0.75**k
        stiffness, damping = 6e4 * 0.55**k * draw.uniform(0.6, 1.6), 0.5**k * draw.uniform(0.5, 2.0)
        joint = {"name": f"a{k}", "axis": [0.0, 1.0, 0.0], "stiffness": float(stiffness), "damping": float(damping)}
        bodies.append({
            "name": f"link{k}", "mass": mass, "center_of_mass": [0.25, 0.0, 0.0], "joint": [joint],
            "inertia_products": {"xx": 0.01 * mass, "yy": 0.03 * mass, "zz": 0.03 * mass},
            **({"parent": f"link{k - 1}", "origin": {"xyz": [0.5, 0.0, 0.0]}} if k else {}),
        })  # fmt: skip
    tool = {"name": "tool", "body": f"link{joints - 1}", "origin": {"xyz": [0.5, 0.0, 0.0]}}
    return {"name": f"chain-{joints}", "body": bodies, "frame": [tool]}


def frf_test(first_hz: float, last_hz: float, **others: Any) -> dict[str, Any]:
    """Two FRFs of the tool with 1 % of noise."""
    simulate = {
        "lines": {"first_hz": first_hz, "last_hz": last_hz, "step_hz": 0.25}, "noise_log_std": 0.01, "noise_seed": 1
    }  # fmt: skip
    outputs, inputs = [["tool", "z"], ["tool", "x"]], [["tool", "z"]]
    return {"kind": "frf", "simulate": simulate, "outputs": outputs, "inputs": inputs, "noise_log_std": 0.01} | others


def chain_study(joints: int, last_hz: float, folder: Path) -> jaxmb.Study:
    """Stiffness and damping of all hinges over four and six decades, from two FRFs at the end."""

    jaxmb.write_machine(jaxmb.Machine.model_validate(chain(joints)), folder / f"chain-{joints}.toml")
    posture = {f"a{k}": angle for k, angle in enumerate(ANGLES[:joints])}
    free = {"stiffness.*": {"lower": 1e2, "upper": 1e6}, "damping.*": {"lower": 1e-3, "upper": 1e3}}
    test = frf_test(2.0, last_hz, posture=posture)
    return make_study({"machine": f"chain-{joints}.toml", "test": [test], "free": free}, f"chain {joints}", folder)


def light_kr90(stretched: bool) -> jaxmb.Study:
    """The KR90 with a twentieth of its damping, two FRFs up to 100 Hz, at the milling posture or stretched."""
    data = study_data("kr90-modelled")
    posture = {"z2": "10 deg", "z3": "-10 deg"} if stretched else data["test"][0]["posture"]
    test = frf_test(2.0, 100.0, posture=posture)
    true = jaxmb.parameters(jaxmb.build_model(jaxmb.load_machine("kuka-kr90")))
    low = {name: 0.05 * value for name, value in true.items() if name.startswith("damping.")}
    test["simulate"] |= {"parameters": low}
    free = {"stiffness.*": {"lower": 5.5e5, "upper": 1e8}, "damping.*": {"lower": 0.1, "upper": 1e4}}
    return make_study({"machine": "kuka-kr90", "test": [test], "free": free}, "light KR90")


def principal() -> jaxmb.Study:
    """`kr90-modelled` with the phase on its principal branch."""
    data = study_data("kr90-modelled")
    return make_study(data | {"test": [part | {"phase": "principal"} for part in data["test"]]}, "principal")


PROBLEMS = {
    "kr90-modelled": lambda folder: jaxmb.load_study("kr90-modelled"),
    "three postures": lambda folder: make_study(
        (data := study_data("kr90-postures")) | {"test": data["test"][:3]}, "three"
    ),
    "flexible arm": lambda folder: jaxmb.load_study("flexible-arm"),
    "principal phase": lambda folder: principal(),
    "chain of 6": lambda folder: chain_study(6, 60.0, folder),
    "chain of 8": lambda folder: chain_study(8, 60.0, folder),
    "chain of 10": lambda folder: chain_study(10, 80.0, folder),
    "light KR90": lambda folder: light_kr90(stretched=False),
    "light KR90, stretched": lambda folder: light_kr90(stretched=True),
}


def fits(name: str, settings: list[str], seeds: int, folder: Path) -> list[dict[str, Any]]:
    """All fits of a problem, the settings in turn."""
    study = PROBLEMS[name](folder)
    problem, free = study.problem, study.free
    truth = free.encode(np.array([study.truth[n] for n in free.names]))
    once = dataclasses.replace(
        study.settings, rounds=1, search=SearchPart(algorithm="random"), refine=RefinePart(starts=1, coarse_lines=0)
    )
    known = Start(np.asarray(free.values(np.asarray(truth))), np.ones(free.size, dtype=bool))
    least = run_fit(problem, once, known, 0).best
    start = Start(study.start.values, np.zeros(free.size, dtype=bool), random=True)
    found = []
    for seed in (UNCOUNTED, *range(seeds)):
        for setting in settings:
            search = jaxmb.make_study(study_data("validation-3r") | {"search": setting}, "setting").settings.search
            began = time.process_time()
            fit = run_fit(problem, dataclasses.replace(study.settings, search=search), start, seed)
            seconds = time.process_time() - began
            evaluations = [fit.search_evaluations, fit.refine_evaluations, fit.population_evaluations]
            found.append({"problem": name, "setting": setting, "seed": seed, "objective": fit.best, "rounds": fit.round,
                          "seconds": round(seconds, 4), "evaluations": evaluations})  # fmt: skip
    level = min(least, *(fit["objective"] for fit in found)) + 1e-6 * noise_objective(problem)
    return [fit | {"success": bool(fit["objective"] <= level)} for fit in found if fit["seed"] != UNCOUNTED]


def table(found: list[dict[str, Any]]) -> str:
    """By problem and setting: successes, median rounds, processor seconds of a fit and for each success."""
    lines = [f"{'':24s}{'search':>10s}{'found':>10s}{'rounds':>8s}{'a fit, s':>10s}{'a success, s':>14s}"]
    groups = dict.fromkeys((fit["problem"], fit["setting"]) for fit in found)
    for problem, setting in groups:
        some = [fit for fit in found if (fit["problem"], fit["setting"]) == (problem, setting)]
        hits, total = sum(fit["success"] for fit in some), sum(fit["seconds"] for fit in some)
        middle, rounds = (np.median([fit[key] for fit in some]) for key in ("seconds", "rounds"))
        price = f"{total / hits:14.3f}" if hits else f"{'':14s}"
        lines.append(f"{problem:24s}{setting:>10s}{f'{hits}/{len(some)}':>10s}{rounds:8.0f}{middle:10.3f}{price}")
    return "\n".join(lines)


def main() -> None:
    """Run all fits and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--problem", nargs="*", choices=[*PROBLEMS], default=[*PROBLEMS])
    parser.add_argument("--setting", nargs="*", default=["random", "auto"])
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    file = options.out / "fits.jsonl"
    for name in options.problem:
        with threadpool_limits(1, user_api="blas"):
            found = fits(name, options.setting, options.seeds, options.out)
        jax.clear_caches()
        with file.open("a") as written:
            written.writelines(json.dumps(fit) + "\n" for fit in found)
        print(table(found), flush=True)
    kept = [json.loads(line) for line in file.read_text().splitlines()]
    (options.out / "table.txt").write_text(table(kept) + "\n")


if __name__ == "__main__":
    main()
