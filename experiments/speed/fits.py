"""How soon the exact answer of `kr90-modelled` is found, from random starts, beside SciPy, a GA and CMA-ES.

All sides start from random points in the bounds of Table 4 of Huynh et al. 2020 on the same noise-free FRFs, warm
(compiled), in turn, on one BLAS thread. A fit is exact where all 18 parameters are within 1e-6 of the truth. The
expected time to the exact answer is the mean time of a start over the part of the starts that are exact.
"""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import peer_fits
import peers
from threadpoolctl import threadpool_limits

import jaxmb
from jaxmb.fitting import Fit, population_objectives, run_fit
from jaxmb.studies import study_data

EXACT = 1e-6
MANY = 32
RANGES_DEG = (25.0, 105.0), (-125.0, -25.0)
"""Of the second and the third joint: an FRF in the axes of the tool does not depend on the first one."""
POPULATION, GENERATIONS = 256, 100


class Try(NamedTuple):
    """One start, or one whole fit."""

    seconds: float
    processor: float
    exact: bool


def postures(count: int) -> np.ndarray:
    """Angles of the joints [count, 3], degrees: that of the study, then random ones."""
    draw = np.random.default_rng(0)
    found = np.stack([np.zeros(count), *(draw.uniform(*between, count) for between in RANGES_DEG)], axis=1)
    found[0] = np.rad2deg(peers.POSTURE)
    return found.round(1)


def kr90_study(count: int = 1, lines: int = 146) -> jaxmb.Study:
    """The shipped study kr90-modelled without initial values, at so many postures and lines."""
    data = study_data("kr90-modelled")
    (test,) = data["test"]
    step = 29.0 / (lines - 1)
    simulate = {"lines": {"first_hz": 1.0, "last_hz": 30.0 + 0.1 * step, "step_hz": step}}
    data["test"] = [
        test | {
            "name": f"posture {k + 1}", "simulate": simulate,
            "posture": {f"z{joint + 1}": f"{angle} deg" for joint, angle in enumerate(posture)},
        }
        for k, posture in enumerate(postures(count))
    ]  # fmt: skip
    data["start"] = "random"
    data["free"] = {name: {k: v for k, v in part.items() if k != "initial"} for name, part in data["free"].items()}
    return jaxmb.make_study(data, "kr90-modelled")


def is_exact(study: jaxmb.Study, fit: Fit) -> bool:
    """Whether the fitted parameters are the true ones."""
    values = study.free.named(study.free.values(np.asarray(fit.best_u)))
    return max(abs(values[name] / true - 1.0) for name, true in study.truth.items()) < EXACT


def tried(work: Callable[..., bool], *arguments: Any) -> Try:
    """A start, timed."""
    began, used = time.perf_counter(), time.process_time()
    exact = work(*arguments)
    return Try(time.perf_counter() - began, time.process_time() - used, bool(exact))


def measure(seeds: int, starts: int, patience_s: float) -> dict[str, dict[str, list[Try]]]:
    """Tries of all ways for one posture and for many, each seed's in turn.

    Args:
        seeds: fits of each kind; of many postures a third of them.
        starts: of each of SciPy's ways, for each seed.
        patience_s: that a GA or CMA-ES gets for a try.
    """
    found = {"1 posture": one_posture(seeds, starts, patience_s)}
    return found | {f"{MANY} postures": many_postures(max(2, seeds // 3), starts)}


def one_posture(seeds: int, starts: int, patience_s: float) -> dict[str, list[Try]]:
    """Tries by name."""
    study, problem = kr90_study(), peers.kr90_problem()
    warm(study)
    forward = peer_fits.FORWARD

    def region(**options: Any) -> Callable[[np.random.Generator], bool]:
        return lambda rng: peer_fits.trust_region(problem, peer_fits.random_start(problem, rng)[0], **options).exact

    single: dict[str, Callable[[np.random.Generator], bool]] = {
        "trust region, exact Jacobian": region(warm_up=False),
        "trust region, exact Jacobian, even weights first": region(),
        "trust region, differences": region(warm_up=False, **forward),
        "trust region, differences, even weights first": region(**forward),
    }
    slow: dict[str, Callable[[np.random.Generator], bool]] = {
        "GA + Nelder-Mead": lambda rng: peer_fits.population_nelder_mead(problem, rng, 1e-12, patience_s).exact,
        "CMA-ES": lambda rng: peer_fits.cma_es(problem, rng, patience_s).exact,
    }
    tries: dict[str, list[Try]] = {}
    with threadpool_limits(1, user_api="blas"):
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            tries.setdefault("jaxmb", []).append(tried(exactly, study, seed))
            tries.setdefault("jaxmb, with its report", []).append(tried(reported, study, seed))
            for name, start in single.items():
                tries.setdefault(name, []).extend(tried(start, rng) for _ in range(starts))
            if seed % 4 == 0:
                for name, search in slow.items():
                    tries.setdefault(name, []).append(tried(search, rng))
    return tries


def many_postures(seeds: int, starts: int) -> dict[str, list[Try]]:
    """Tries by name, of the same fit to FRFs at many postures."""
    study = kr90_study(MANY)
    problem, *others = (peers.kr90_problem(posture=np.deg2rad(at)) for at in postures(MANY))
    warm(study)

    def region(rng: np.random.Generator, warm_up: bool) -> bool:
        start = peer_fits.random_start(problem, rng)[0]
        return peer_fits.trust_region(problem, start, warm_up=warm_up, others=others).exact

    tries: dict[str, list[Try]] = {}
    with threadpool_limits(1, user_api="blas"):
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            tries.setdefault("jaxmb", []).append(tried(exactly, study, seed))
            for name, warm_up in (("", False), (", even weights first", True)):
                way = tries.setdefault(f"trust region, exact Jacobian{name}", [])
                way.extend(tried(region, rng, warm_up) for _ in range(min(starts, 2)))
    return tries


def warm(study: jaxmb.Study) -> None:
    """Compile."""
    fitted(study, 1000)
    fitted(study, 1001)


def fitted(study: jaxmb.Study, seed: int) -> Fit:
    """The fit alone."""
    return run_fit(study.problem, study.settings, study.start, seed)


def exactly(study: jaxmb.Study, seed: int) -> bool:
    """Whether the fit alone finds the truth."""
    return is_exact(study, fitted(study, seed))


def reported(study: jaxmb.Study, seed: int) -> bool:
    """Whether an identification with standard deviations, modes and metrics finds the truth."""
    found = jaxmb.identify(study, seed=seed)
    return max(abs(found.parameters[name].value / true - 1.0) for name, true in study.truth.items()) < EXACT


def population(repeats: int) -> dict[str, list[Try]]:
    """The costs of a population over generations: of jaxmb a generation a call, of NumPy as many a call as it likes."""
    study, problem = kr90_study(), peers.kr90_problem()
    people = peer_fits.random_start(problem, np.random.default_rng(0), POPULATION)
    on_device = jax.device_put(people)

    def own() -> bool:
        for _ in range(GENERATIONS):
            jax.block_until_ready(population_objectives(study.problem, on_device))
        return True

    def peer(at_once: int) -> bool:
        for first in range(0, POPULATION, at_once):
            peers.cost(problem, np.exp(people[first : first + at_once]))
        return True

    jax.block_until_ready(population_objectives(study.problem, on_device))
    tries: dict[str, list[Try]] = {}
    with threadpool_limits(1, user_api="blas"):
        for _ in range(repeats):
            tries.setdefault("jaxmb", []).append(tried(own))
            for at_once in (1, 16, POPULATION):
                one = tried(peer, at_once)
                whole = Try(GENERATIONS * one.seconds, GENERATIONS * one.processor, one.exact)
                tries.setdefault(f"NumPy, {at_once} at a time", []).append(whole)
    return tries
