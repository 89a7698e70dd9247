"""What several tests in one fit are worth, whether their intervals hold, and what several postures cost.

    python experiments/several-tests/run.py [--draws 200] [--out results/several-tests] [PART ...]

`fused`: predicted and achieved error of every parameter of the KR90 from FRFs at one posture, from six static
deflections, and from both. `coverage`: how often 95 % intervals hold the truth over draws of noise. `cost`: time and
memory of 1, 8 and 32 postures. `convergence`: random starts that come to the truth. All where none is named.
"""

import argparse
import json
import resource
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxmb
from jaxmb.estimation import identifiability
from jaxmb.fitting import final_state, noise_objective, run_fit
from jaxmb.results import strict, versions
from jaxmb.studies import study_data

INTERVAL = 1.96
"""Standard deviations to either side of a 95 % interval."""


def print_now(text: str) -> None:
    """Print a line at once: the draws take minutes."""
    print(text, flush=True)


def true_u(study: jaxmb.Study) -> np.ndarray:
    """The truth as entries u."""
    return study.free.encode(np.array([study.truth[name] for name in study.free.names]))


def at_truth(study: jaxmb.Study) -> np.ndarray:
    """Predicted standard deviation of each log-parameter, at the truth."""
    _, jacobian, weights = (np.asarray(x) for x in final_state(study.problem, jnp.asarray(true_u(study))))
    return identifiability(jacobian, weights).std


def seeded(data: dict[str, Any], study: jaxmb.Study, draw: int) -> dict[str, Any]:
    """The description with its own noise in every test of every draw, and one start at the truth.

    Whether a search from random starts comes to the same minimum is another question (experiments/recovery).
    """
    tests = []
    for number, test in enumerate(data["test"]):
        tests.append(test | {"simulate": test["simulate"] | {"noise_seed": 1000 * draw + number}})
    free = {
        name: {"lower": low, "upper": high, "initial": study.truth[name]}
        for name, low, high in zip(study.free.names, study.free.lower_value, study.free.upper_value, strict=True)
    }
    method = {"start": "estimate", "rounds": 1, "refine": {"starts": 1, "coarse_lines": 0}}
    return data | {"test": tests, "free": free} | method


def fused(draws: int) -> dict[str, Any]:
    """Predicted and achieved errors of one FRF posture, of six deflections, and of both."""
    whole = study_data("kr90-fused")
    frf, loads = whole["test"]
    # Deflections tell nothing of damping; a prior too weak to matter takes them through the same search as the others.
    stiffness = {name: part for name, part in whole["free"].items() if name.startswith("stiffness")}
    cases = {
        "FRFs": whole | {"test": [frf]},
        "deflections": whole | {"test": [loads], "free": stiffness},
        "both": whole,
    }
    predicted, achieved = {}, {}
    for case, data in cases.items():
        study = jaxmb.make_study(data, case)
        predicted[case] = dict(zip(study.free.names, at_truth(study), strict=True))
        errors = []
        for draw in range(draws):
            result = jaxmb.identify(jaxmb.make_study(seeded(data, study, draw), case))
            errors.append([np.log(result.parameters[n].value / study.truth[n]) for n in study.free.names])
        rms = np.sqrt(np.mean(np.square(errors), axis=0))
        achieved[case] = dict(zip(study.free.names, rms, strict=True))
    names = list(predicted["both"])
    print_now(f"standard deviation of the logarithm, predicted | root mean square error over {draws} draws")
    print_now(f"{'':14s}" + "".join(f"{case:>26s}" for case in cases))
    for name in names:
        cells = "".join(f"{predicted[c].get(name, np.inf):14.3g} |{achieved[c].get(name, np.nan):9.3g} " for c in cases)
        print_now(f"{name:14s}{cells}")
    better = {n: min(predicted["FRFs"][n], predicted["deflections"].get(n, np.inf)) for n in names}
    achieved_better = {n: min(achieved["FRFs"][n], achieved["deflections"].get(n, np.inf)) for n in names}
    worst = max(predicted["both"][n] / better[n] for n in names)
    # The error of a root mean square over so many draws, and of the ratio of two.
    print_now(f"predicted, both over the better of the two alone: at most {worst:.4f}")
    known = [n for n in names if predicted["both"][n] < 1.0]
    ratios = {n: achieved["both"][n] / achieved_better[n] for n in known}
    print_now("achieved, likewise, of what can be known: " + ", ".join(f"{n} {r:.2f}" for n, r in ratios.items()))
    return {"draws": draws, "predicted": predicted, "achieved": achieved, "achieved_ratio": ratios}


def coverage(draws: int) -> dict[str, Any]:
    """How often the 95 % intervals of the parameters that are identifiable at the truth hold it."""
    validation = study_data("validation-3r")
    validation["test"] = [
        test | {"simulate": test["simulate"] | {"noise_log_std": test["noise_log_std"]}} for test in validation["test"]
    ]
    three = study_data("kr90-postures")
    three["test"] = [test for test in three["test"] if test.get("role") != "check"][:3]
    found = {}
    for name, data in {"validation-3r": validation, "three postures of the KR90": three}.items():
        study = jaxmb.make_study(data, name)
        std = at_truth(study)
        identifiable = std < 0.1
        hits, converged, narrowest = [], 0, []
        for draw in range(draws):
            result = jaxmb.identify(jaxmb.make_study(seeded(data, study, draw), name))
            converged += result.converged
            inside = []
            for parameter in study.free.names:
                p = result.parameters[parameter]
                inside.append(abs(np.log(study.truth[parameter] / p.value)) <= INTERVAL * p.std_log)
            hits.append(inside)
            narrowest.append([result.parameters[n].std_log for n in study.free.names])
        share = np.mean(hits, axis=0)
        each = {n: float(s) for n, s, on in zip(study.free.names, share, identifiable, strict=True) if on}
        others = {n: float(s) for n, s, on in zip(study.free.names, share, identifiable, strict=True) if not on}
        mean = float(np.mean(list(each.values())))
        print_now(
            f"{name}: {draws} draws, {converged} converged; {len(each)} of {study.free.size} identifiable at the truth"
        )
        low, high = 100 * min(each.values()), 100 * max(each.values())
        print_now(f"  mean coverage {100 * mean:.1f} %, each {low:.1f} to {high:.1f} %")
        print_now("  " + ", ".join(f"{n} {100 * s:.1f}" for n, s in each.items()))
        if others:
            print_now("  not identifiable: " + ", ".join(f"{n} {100 * s:.1f}" for n, s in others.items()))
        ratio = np.median(np.array(narrowest) / std, axis=0)
        low, high = ratio[identifiable].min(), ratio[identifiable].max()
        print_now(f"  std of a draw over that at the truth, median: {low:.3f} to {high:.3f}")
        found[name] = {"draws": draws, "converged": converged, "mean": mean, "each": each, "others": others}
    return found


def convergence(starts: int = 100) -> dict[str, Any]:
    """Share of random starts that come to the truth, on all lines, for one and for three postures of the validation."""
    found = {}
    for name in ("validation-3r", "validation-3r-postures"):
        refine = {"starts": starts, "keep": starts, "coarse_lines": 0}
        study = jaxmb.make_study(study_data(name) | {"rounds": 1, "refine": refine}, name)
        ends = [float(end[0]) for end in run_fit(study.problem, study.settings, study.start, 0).ends]
        found[name] = sum(objective <= 1e-12 * noise_objective(study.problem) for objective in ends) / starts
        print_now(f"{name}: {100 * found[name]:.0f} % of {starts} random starts end at the truth")
    return found


def cost(repeats: int = 7) -> dict[str, Any]:
    """Time of residual and Jacobian, and of a whole fit, for 1, 8 and 32 postures; peak memory of the process."""
    data = study_data("kr90-postures")
    eight = [test for test in data["test"] if test.get("role") != "check"]
    draw = np.random.default_rng(0)
    more = []
    for number in range(24):
        angles = draw.uniform([-90.0, 20.0, -130.0], [90.0, 110.0, -20.0])
        at = {name: f"{angle:.1f} deg" for name, angle in zip(("z1", "z2", "z3"), angles, strict=True)}
        more.append(eight[0] | {"name": f"drawn {number + 1}", "posture": at})
    found: dict[str, Any] = {}
    studies = {count: jaxmb.make_study(data | {"test": (eight + more)[:count]}, f"{count}") for count in (1, 8, 32)}
    seconds: dict[int, list[float]] = {count: [] for count in studies}
    for study in studies.values():
        jax.block_until_ready(final_state(study.problem, jnp.asarray(true_u(study))))
    for _ in range(repeats):  # in turn, so that a busy machine is as busy for all
        for count, study in studies.items():
            u = jnp.asarray(true_u(study))
            began = time.perf_counter()
            for _ in range(5):
                jax.block_until_ready(final_state(study.problem, u))
            seconds[count].append((time.perf_counter() - began) / 5)
    for count in studies:
        ratio = np.array(seconds[count]) / np.array(seconds[1])
        low, middle, high = np.percentile(ratio, [25, 50, 75])
        print_now(
            f"{count:3d} postures: residual and Jacobian {1e3 * np.median(seconds[count]):8.1f} ms,"
            f" {middle:.2f} times one posture ({low:.2f} to {high:.2f})"
        )
        found[f"{count}"] = {"seconds": seconds[count], "ratio": [low, middle, high]}
    for count, study in studies.items():
        result = jaxmb.identify(study)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        told = ", ".join(f"{name} {spent:.1f} s" for name, spent in result.seconds.items())
        print_now(f"{count:3d} postures: {result.status}; {told}; peak memory so far {peak:.2f} GiB")
        found[f"{count}"] |= {"fit": result.seconds, "status": result.status, "peak_gib": peak}
    return found


def main() -> None:
    """Run what is asked for, print it, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=["fused", "coverage", "cost", "convergence", []], default=[])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("results/several-tests"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    work = {
        "cost": cost,
        "convergence": convergence,
        "fused": lambda: fused(options.draws),
        "coverage": lambda: coverage(options.draws),
    }
    numbers = {name: do() for name, do in work.items() if name in (options.parts or list(work))}
    for name, told in numbers.items():
        (options.out / f"{name}.json").write_text(json.dumps(strict(told | {"versions": versions()}), indent=1))


if __name__ == "__main__":
    main()
