"""Optimizers by name, each `run(objective, seed)`, until the objective ends it. One more is one more line of `ALL`."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import evosax.algorithms
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.optimize
from objective import Objective, prices

from jaxmb.fitting import Report, Start, coarsened, run_fit

POPULATION = 64
PATIENCE = 30
"""Generations without a gain of a hundredth after which a population starts again elsewhere."""
SEARCHED = 20
"""Generations of a search before refinement."""
REFINED = 2
"""Candidates of a search that are refined."""
STEPS = 300
"""Of a gradient descent before it starts again elsewhere."""

Optimizer = Callable[[Objective, int], Any]


def random_points(objective: Objective, seed: int) -> Iterator[np.ndarray]:
    """Endless points, even over the cube."""
    draw = np.random.default_rng(seed)
    return (draw.uniform(size=objective.size) for _ in itertools.count())


def starts(objective: Objective, seed: int, start: np.ndarray | None) -> Iterator[np.ndarray]:
    """Where a local method begins: at the one point that is given, else at random points one after the other."""
    return random_points(objective, seed) if start is None else iter([start])


@functools.cache
def evolution(name: str, size: int) -> tuple[Any, Any, Any]:
    """An algorithm of evosax, and its compiled functions: the next population, and what it learns of the costs."""
    kind = getattr(evosax.algorithms, name)
    options = {"std_schedule": optax.linear_schedule(0.25, 0.02, 200)} if name == "SimpleGA" else {}
    algorithm = kind(population_size=POPULATION, solution=jnp.zeros(size), **options)
    settings = algorithm.default_params
    if name == "SimpleGA":  # its defaults, no crossover and mutations as wide as the box, do not converge
        settings = settings.replace(crossover_rate=0.5)

    def ask(key: jax.Array, state: Any) -> tuple[jax.Array, Any]:
        asked, state = algorithm.ask(key, state, settings)
        return jnp.clip(asked, 0.0, 1.0), state

    def tell(key: jax.Array, points: jax.Array, costs: jax.Array, state: Any) -> Any:
        return algorithm.tell(key, points, costs, state, settings)[0]

    return algorithm, jax.jit(ask), jax.jit(tell)


def evolved(name: str, objective: Objective, seed: Any, generations: float = np.inf) -> np.ndarray:
    """An algorithm of evosax from a random population; the last one [p, d], best first, after so many generations or
    `PATIENCE` without a gain."""
    algorithm, ask, tell = evolution(name, objective.size)
    draw = np.random.default_rng(seed)
    keys = (jax.random.PRNGKey(k) for k in itertools.count(int(draw.integers(2**30))))
    points = draw.uniform(size=(POPULATION, objective.size))
    if name in evosax.algorithms.population_based_algorithms:
        state = algorithm.init(next(keys), points, objective.many(points), algorithm.default_params)
    else:
        state = algorithm.init(next(keys), points[0], algorithm.default_params)
    costs, best, idle, done = np.zeros(POPULATION), np.inf, 0, 0
    while done < generations and idle < PATIENCE:
        asked, state = ask(next(keys), state)
        points = np.asarray(asked)
        costs = objective.many(points)
        state = tell(next(keys), points, costs, state)
        idle, done = 0 if costs.min() < 0.99 * best else idle + 1, done + 1
        best = min(best, float(costs.min()))
    return points[np.argsort(costs, kind="stable")]


def population(name: str, objective: Objective, seed: int) -> None:
    """An algorithm of evosax, again and again."""
    for run in itertools.count():
        evolved(name, objective, [seed, run])


def covariance_matrix_adaptation(objective: Objective, seed: int) -> None:
    """CMA-ES of the package `cma`, with growing populations after each restart."""
    import cma  # which comes with jaxmb's tests only

    for run in itertools.count():
        start = np.random.default_rng([seed, run]).uniform(size=objective.size)
        size = min(POPULATION * 2**run, 1024)
        options = {"bounds": [0, 1], "seed": 1 + 1000 * seed + run, "popsize": size, "verbose": -9}
        search = cma.CMAEvolutionStrategy(start, 0.3, options)
        while not search.stop():
            points = search.ask()
            search.tell(points, objective.many(np.stack(points)).tolist())


def differential_evolution(objective: Objective, seed: int) -> None:
    """SciPy's, polished by its L-BFGS-B."""
    for run in itertools.count():
        scipy.optimize.differential_evolution(
            lambda points: objective.many(np.atleast_2d(points.T)), [(0.0, 1.0)] * objective.size,
            rng=1000 * seed + run, vectorized=True, updating="deferred",
            popsize=max(1, POPULATION // objective.size), maxiter=10_000,
        )  # fmt: skip


def nelder_mead(objective: Objective, seed: int, start: np.ndarray | None = None) -> None:
    """SciPy's, within bounds."""
    for x in starts(objective, seed, start):
        options = {"maxfev": 200 * objective.size, "adaptive": True, "xatol": 1e-10, "fatol": 1e-15}
        scipy.optimize.minimize(
            objective, x, method="Nelder-Mead", bounds=[(0.0, 1.0)] * objective.size, options=options
        )


def trust_region(objective: Objective, seed: int, start: np.ndarray | None = None) -> None:
    """SciPy's bounded trust region with the exact Jacobian."""
    for x in starts(objective, seed, start):
        inside = np.clip(x, 1e-9, 1.0 - 1e-9)
        jacobian: Any = objective.jacobian
        scipy.optimize.least_squares(objective.residual, inside, jacobian, bounds=(0.0, 1.0), gtol=1e-15)


def few_lines_first(objective: Objective, seed: int) -> None:
    """SciPy's bounded trust region on 32 evenly weighted lines, as jaxmb's fit begins, and from there on all."""
    residual, jacobian, price = objective.kept("few", lambda: few_lines(objective, 32))

    def counted(function: Any, name: str) -> Any:
        def display_name(x: np.ndarray) -> np.ndarray:
            objective.told(np.inf, price[name])
            return np.asarray(function(x))

        return display_name

    ways = counted(residual, "residual"), counted(jacobian, "jacobian")
    for x in random_points(objective, seed):
        found = scipy.optimize.least_squares(ways[0], x, ways[1], bounds=(0.0, 1.0), gtol=1e-15)
        trust_region(objective, seed, found.x)


def few_lines(objective: Objective, lines: int) -> tuple[Any, Any, dict[str, float]]:
    """Residual and Jacobian on the cube of fewer lines, evenly weighted, and their prices in evaluations on all."""
    problem = objective.study.problem
    low, high = (jnp.asarray(x) for x in (problem.free.lower, problem.free.upper))
    few = coarsened(problem, lines)

    def residual(x: jax.Array) -> jax.Array:
        return few.residual(low + x * (high - low))

    value, jacobian = jax.jit(residual), jax.jit(jax.jacfwd(residual))
    found = prices(jax.jit(objective.traced), {"jacobian": jacobian}, objective.size)
    rows = sum(test.rows for test in few.tests) / sum(test.rows for test in problem.tests)
    return value, jacobian, found | {"residual": rows}


def quasi_newton(objective: Objective, seed: int, start: np.ndarray | None = None) -> None:
    """SciPy's L-BFGS-B, with gradients."""
    for x in starts(objective, seed, start):
        options = {"maxiter": STEPS, "ftol": 1e-12, "gtol": 1e-12}
        bounds = [(0.0, 1.0)] * objective.size
        scipy.optimize.minimize(objective.with_gradient, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def descent(name: str, objective: Objective, seed: int, start: np.ndarray | None = None) -> None:
    """optax's, projected onto the cube."""
    begin, step = objective.kept(name, lambda: descent_step(name, objective))
    for x in starts(objective, seed, start):
        point, state = jnp.asarray(x), begin(x)
        for _ in range(STEPS):
            before = point
            point, state, cost, gradients = step(point, state)
            objective.told(float(cost), float(gradients) * objective.prices["gradient"], np.asarray(before))


def descent_step(name: str, objective: Objective) -> tuple[Any, Any]:
    """The beginning of an optimizer of optax and one step of it: next point, state, cost before, gradients computed."""
    method = optax.lbfgs() if name == "lbfgs" else optax.adam(optax.cosine_decay_schedule(0.05, STEPS))

    def step(x: jax.Array, state: Any) -> tuple[jax.Array, Any, jax.Array, jax.Array]:
        cost, slope = jax.value_and_grad(objective.traced)(x)
        change, state = method.update(slope, state, x, value=cost, grad=slope, value_fn=objective.traced)
        searched = state[-1].info.num_linesearch_steps if name == "lbfgs" else 0
        return jnp.clip(jnp.asarray(optax.apply_updates(x, change)), 0.0, 1.0), state, cost, jnp.asarray(1 + searched)

    return jax.jit(method.init), jax.jit(step)


def searched(name: str, refine: Any, objective: Objective, seed: int) -> None:
    """A short population search, its best candidates refined, again and again."""
    for run in itertools.count():
        for start in evolved(name, objective, [seed, run], SEARCHED)[:REFINED]:
            refine(objective, seed, start)


def best_of_random(refine: Any, objective: Objective, seed: int) -> None:
    """The best of so many random points as a population has, refined, again and again."""
    points = random_points(objective, seed)
    while True:
        some = np.stack([next(points) for _ in range(POPULATION)])
        refine(objective, seed, some[np.argmin(objective.many(some))])


def own_fit(objective: Objective, seed: int, search: Any = None, refine: Any = None) -> None:
    """jaxmb's fit, again and again; with settings of its search and its refinement other than the study's.

    Its search and first starts take few of the lines, at a lower price. It ends where it has what it was asked for.
    """
    study = objective.study
    given = study.settings
    settings = dataclasses.replace(
        given,
        search=given.search.model_copy(update=search or {}),
        refine=given.refine.model_copy(update=refine or {}),
        tolerance=objective.goal.exact,
    )
    price = objective.kept(("own", settings.refine.coarse_lines), lambda: own_prices(objective, settings))

    for run in itertools.count():
        before = 0

        def report(now: Report) -> None:
            nonlocal before
            new, before = now.evaluations - before, now.evaluations
            objective.told(now.cost, new * price[now.stage])

        start = Start(study.start.values, np.zeros(objective.size, dtype=bool), random=True)
        fit = run_fit(study.problem, settings, start, 1000 * seed + run, report=report)
        if fit.best_u is not None:
            objective.best = np.inf
            objective.told(fit.best, 0.0, objective.cube(fit.best_u))


def own_prices(objective: Objective, settings: Any) -> dict[str, float]:
    """What an evaluation of each stage of jaxmb's fit takes, in evaluations of the cost on all lines."""
    problem, lines = objective.study.problem, settings.refine.coarse_lines
    few = coarsened(problem, lines) if lines else problem
    u = objective.study.problem.free.lower
    one = jax.jit(lambda x: problem.objective(u + x))
    others = {
        "search": jax.jit(lambda x: few.objective(u + x)),
        "starts": jax.jit(lambda x: few.normal_equations(u + x)),
        "refine": jax.jit(lambda x: problem.normal_equations(u + x)),
    }
    found = prices(one, others, objective.size)
    rows = sum(test.rows for test in few.tests) / sum(test.rows for test in problem.tests)
    return found | {"search": rows}


EVOSAX = ("CMA_ES", "Sep_CMA_ES", "SNES", "DifferentialEvolution", "PSO", "SimpleGA", "MA_ES")
ADAM = functools.partial(descent, "adam")
LBFGS = functools.partial(descent, "lbfgs")
OWN = "jaxmb"
ALL: dict[str, Optimizer] = {
    OWN: own_fit,
    "jaxmb, all lines at once": functools.partial(own_fit, refine={"coarse_lines": 0}),
    "jaxmb, one start a round": functools.partial(own_fit, refine={"starts": 1}),
    "jaxmb, eight starts a round": functools.partial(own_fit, refine={"starts": 8}),
    "jaxmb, CMA_ES first": functools.partial(own_fit, search={"algorithm": "CMA_ES"}),
    "jaxmb, random starts only": functools.partial(own_fit, search={"algorithm": "random"}),
    "jaxmb, PSO first": functools.partial(own_fit, search={"algorithm": "PSO"}),
    "jaxmb, DifferentialEvolution first": functools.partial(own_fit, search={"algorithm": "DifferentialEvolution"}),
    **{f"evosax {name}": functools.partial(population, name) for name in EVOSAX},
    "cma CMA-ES": covariance_matrix_adaptation,
    "SciPy differential evolution": differential_evolution,
    "SciPy Nelder-Mead": nelder_mead,
    "SciPy trust region": trust_region,
    "SciPy L-BFGS-B": quasi_newton,
    "optax Adam": ADAM,
    "optax L-BFGS": LBFGS,
    "trust region on few lines + on all": few_lines_first,
    "best of random + trust region": functools.partial(best_of_random, trust_region),
    "CMA_ES + trust region": functools.partial(searched, "CMA_ES", trust_region),
    "PSO + trust region": functools.partial(searched, "PSO", trust_region),
    "DifferentialEvolution + trust region": functools.partial(searched, "DifferentialEvolution", trust_region),
    "SimpleGA + Nelder-Mead": functools.partial(searched, "SimpleGA", nelder_mead),
    "CMA_ES + Adam": functools.partial(searched, "CMA_ES", ADAM),
    "CMA_ES + L-BFGS": functools.partial(searched, "CMA_ES", LBFGS),
}  # fmt: skip
"""All that are compared."""
