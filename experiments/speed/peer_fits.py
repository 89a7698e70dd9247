"""How NumPy and SciPy users would fit what is in `peers.py`, from random starts; nothing here is imported from jaxmb.

On matrices this small one BLAS thread is the fastest (OPENBLAS_NUM_THREADS=1): the singular value decompositions take
half the time of two.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any, Literal

import numpy as np
from peers import COLUMN, ROW, Problem, Real, Residuals, Stacked, cost
from scipy.optimize import least_squares, minimize

# The step is the best of 1e-8 (SciPy's), 1e-7: near the solution the noise of the differences decides.
FORWARD: dict[str, Any] = {"jac": "2-point", "diff_step": 1e-7}


def random_start(problem: Problem, rng: np.random.Generator, count: int = 1) -> Real:
    """Logarithmic parameters [count, 2n], uniform in the whole box."""
    lower, upper = problem.log_bounds
    return lower + rng.random((count, len(lower))) * (upper - lower)


@dataclass
class Search:
    """What a search reached and spent."""

    seconds: float
    """Of the processor."""
    starts: int
    """Starts, or rounds."""
    evaluations: int
    """FRF matrices over all frequencies; an exact Jacobian adds none."""
    cost: float
    p: Real
    exact: bool
    """All parameters within the tolerance, or a cost too small for more."""


def relative_error(problem: Problem, x: Real) -> float:
    """Largest relative error of the logarithmic parameters x."""
    return float(np.max(np.abs(np.expm1(x - np.log(problem.truth)))))


def stopper(problem: Problem, gain: float, tolerance: float, enough: float) -> Callable[..., None]:
    """Callback that stops a fit that is exact, or that gained less than a fraction in its last ten iterations."""
    history: list[float] = []

    def stop(intermediate_result: Any) -> None:
        value = 2 * intermediate_result.cost
        history.append(value)
        stalled = value > 1e-3 and len(history) > 10 and value > (1 - gain) * history[-11]
        if stalled or value < enough or relative_error(problem, intermediate_result.x) < tolerance:
            raise StopIteration

    return stop


def trust_region(
    problem: Problem,
    x: Real,
    jac: Literal["exact", "2-point"] = "exact",
    warm_up: bool = True,
    stride: int = 3,
    max_nfev: int = 300,
    tolerance: float = 1e-6,
    enough: float = 0.0,
    others: Sequence[Problem] = (),
    **options: Any,
) -> Search:
    """SciPy's bounded trust region from one start of logarithmic parameters; others are more postures.

    The warm-up first fits every few lines, all weighted alike: from random starts the weights of the peaks hide the way
    to the truth, and fewer lines are cheaper. Either stage ends when ten iterations gain little: such fits are in
    another minimum.
    """
    begin = process_time()
    evenly = np.sqrt(np.where(ROW == COLUMN, 1.0, 2.0) * np.ones_like(problem.root_weights))
    settings: dict[str, Any] = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15} | options
    evaluations, value = 0, np.inf
    for weights, step, gain in [(evenly, stride, 0.05)] * warm_up + [(None, 1, 0.01)]:
        fit = Stacked([Residuals(one, weights, step) for one in (problem, *others)])
        result = least_squares(
            fit,
            x,
            jac=fit.jacobian if jac == "exact" else "2-point",  # type: ignore[arg-type]
            bounds=problem.log_bounds,
            max_nfev=max_nfev,
            callback=stopper(problem, gain, tolerance, enough),
            **settings,
        )
        x, value = result.x, 2 * float(result.cost)
        evaluations += sum(one.evaluations for one in fit.fits)
    exact = value < enough or relative_error(problem, x) < tolerance
    return Search(process_time() - begin, 1, evaluations, value, np.exp(x), exact)


def trust_region_multistart(
    problem: Problem, rng: np.random.Generator, seconds: float = 60.0, **options: Any
) -> Search:
    """Trust regions from random starts until one is exact, or the time is over."""
    begin, starts, evaluations = process_time(), 0, 0
    best: Search | None = None
    while best is None or (not best.exact and process_time() - begin < seconds):
        one = trust_region(problem, random_start(problem, rng)[0], **options)
        starts, evaluations = starts + 1, evaluations + one.evaluations
        if best is None or one.cost < best.cost or one.exact:
            best = one
    return Search(process_time() - begin, starts, evaluations, best.cost, best.p, best.exact)


def population(
    problem: Problem, rng: np.random.Generator, size: int, generations: int, guess: Real | None = None
) -> tuple[Real, int]:
    """Best logarithmic parameters of a genetic algorithm with the defaults of MATLAB's ga, and its evaluations.

    Rank scaling, stochastic universal selection, two elites, scattered crossover for 80 % of the children, for the
    others a Gaussian mutation that shrinks to nothing over the generations.
    """
    lower, upper = problem.log_bounds
    people = random_start(problem, rng, size)
    if guess is not None:
        people[0] = guess
    elites, crossed = 2, round(0.8 * (size - 2))
    mutated = size - elites - crossed
    expectation = 1 / np.sqrt(np.arange(1, size + 1))
    wheel = np.cumsum(expectation) / np.sum(expectation)
    costs = cost(problem, np.exp(people))
    evaluations = size
    for generation in range(generations):
        order = np.argsort(costs)
        people, costs = people[order], costs[order]
        count = 2 * crossed + mutated
        # Rounding may leave the last limit of the wheel below the last pointer.
        pointers = (rng.random() + np.arange(count)) / count
        parents = people[rng.permutation(np.minimum(np.searchsorted(wheel, pointers), size - 1))]
        mask = rng.random((crossed, len(lower))) < 0.5
        children = np.where(mask, parents[:crossed], parents[crossed : 2 * crossed])
        scale = (1 - generation / generations) * (upper - lower)
        mutants = parents[2 * crossed :] + scale * rng.standard_normal((mutated, len(lower)))
        new = np.clip(np.concatenate([children, mutants]), lower, upper)
        people = np.concatenate([people[:elites], new])
        costs = np.concatenate([costs[:elites], cost(problem, np.exp(new))])
        evaluations += len(new)
    return people[np.argmin(costs)], evaluations


def population_nelder_mead(
    problem: Problem,
    rng: np.random.Generator,
    tolerance: float | None = None,
    seconds: float = 60.0,
    size: int | None = None,
    generations: int | None = None,
    iterations: int | None = None,
) -> Search:
    """The paper's fit (Fig. 2): rounds of population search and Nelder-Mead until the cost is below the tolerance.

    Sizes not given are the paper's; so is the tolerance, the cost printed in the end (64 for the KR90, 1e-7 for the
    manipulator).
    """
    large = len(problem.M) > 3
    tolerance = tolerance or (64.0 if large else 1e-7)
    size, generations = size or (100 if large else 80), generations or (20 if large else 15)
    iterations = iterations or (10000 if large else 5000)
    begin, rounds, evaluations, value = process_time(), 0, 0, np.inf
    best = random_start(problem, rng)[0]

    def stop(intermediate_result: Any) -> None:
        if intermediate_result.fun < tolerance or process_time() - begin > seconds:
            raise StopIteration

    while value > tolerance and process_time() - begin < seconds:
        x, count = population(problem, rng, size, generations, best)
        local = minimize(
            lambda x: float(cost(problem, np.exp(x))),
            x,
            method="Nelder-Mead",
            bounds=np.transpose(problem.log_bounds),
            callback=stop,
            options={
                "maxiter": iterations,
                "maxfev": 10 * iterations,
                "xatol": 1e-8,
                "fatol": 1e-12,
                "adaptive": large,
            },
        )
        rounds, evaluations = rounds + 1, evaluations + count + int(local.nfev)
        if local.fun < value:
            best, value = local.x, float(local.fun)
    exact = relative_error(problem, best) < 1e-6
    return Search(process_time() - begin, rounds, evaluations, value, np.exp(best), exact)


def cma_es(problem: Problem, rng: np.random.Generator, seconds: float = 60.0, size: int = 24) -> Search:
    """CMA-ES of `cma` on logarithmic parameters, a population's costs in one call, until it is exact or ends."""
    import cma

    begin, (lower, upper) = process_time(), problem.log_bounds
    unit = (random_start(problem, rng)[0] - lower) / (upper - lower)
    settings = {"bounds": [0.0, 1.0], "popsize": size, "seed": int(rng.integers(1, 2**31)), "verbose": -9,
                "tolfun": 0.0, "tolfunhist": 0.0, "tolx": 1e-13}  # fmt: skip
    search = cma.CMAEvolutionStrategy(unit, 0.3, settings)
    x, value = lower + unit * (upper - lower), np.inf
    while not search.stop() and process_time() - begin < seconds and relative_error(problem, x) > 1e-6:
        asked = search.ask()
        people = lower + np.array(asked) * (upper - lower)
        costs = np.asarray(cost(problem, np.exp(people)))
        search.tell(asked, costs.tolist())
        if costs.min() < value:
            x, value = people[np.argmin(costs)], float(costs.min())
    exact = relative_error(problem, x) < 1e-6
    return Search(process_time() - begin, 1, int(search.countevals), value, np.exp(x), exact)
