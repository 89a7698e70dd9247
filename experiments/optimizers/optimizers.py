"""Optimizers by name, each `run(objective, seed)`, until the objective ends it. One more is one more line of `ALL`."""

import functools
import itertools
from collections.abc import Callable
from typing import Any

import cma
import evosax.algorithms
import jax
import jax.numpy as jnp
import numpy as np
import optax
import scipy.optimize
from objective import Objective

POPULATION = 64
SEARCHED = 20
"""Generations of a search before refinement."""
REFINED = 2
"""Candidates of a search that are refined."""
STEPS = 300
"""Of a gradient descent before it starts again elsewhere."""

Optimizer = Callable[[Objective, int], Any]


def random_points(objective: Objective, seed: int) -> Any:
    """Endless points, even over the cube."""
    draw = np.random.default_rng(seed)
    return (draw.uniform(size=objective.size) for _ in itertools.count())


def population(name: str, objective: Objective, seed: int, generations: int | None = None) -> np.ndarray:
    """An algorithm of evosax; the latest population [p, d], best first, after so many generations."""
    kind = getattr(evosax.algorithms, name)
    options = {"std_schedule": optax.linear_schedule(0.25, 0.02, 200)} if name == "SimpleGA" else {}
    algorithm = kind(population_size=POPULATION, solution=jnp.zeros(objective.size), **options)
    ask, tell, settings = jax.jit(algorithm.ask), jax.jit(algorithm.tell), algorithm.default_params
    if name == "SimpleGA":  # its defaults, no crossover and mutations as wide as the box, do not converge
        settings = settings.replace(crossover_rate=0.5)
    key = jax.random.PRNGKey(seed)
    key, first = jax.random.split(key)
    start = np.random.default_rng(seed).uniform(size=(POPULATION, objective.size))
    if name in evosax.algorithms.population_based_algorithms:
        state = algorithm.init(first, jnp.asarray(start), jnp.asarray(objective.many(start)), settings)
    else:
        state = algorithm.init(first, jnp.asarray(start[0]), settings)
    points, costs = start, np.zeros(POPULATION)
    for _ in itertools.count() if generations is None else range(generations):
        key, key_ask, key_tell = jax.random.split(key, 3)
        asked, state = ask(key_ask, state, settings)
        points = np.clip(np.asarray(asked), 0.0, 1.0)
        costs = objective.many(points)
        state, _ = tell(key_tell, jnp.asarray(points), jnp.asarray(costs), state, settings)
    return points[np.argsort(costs, kind="stable")]


def covariance_matrix_adaptation(objective: Objective, seed: int) -> None:
    """CMA-ES of the package `cma`, with growing populations after each restart."""
    for run in itertools.count():
        start = np.random.default_rng([seed, run]).uniform(size=objective.size)
        options = {"bounds": [0, 1], "seed": 1 + 1000 * seed + run, "popsize": POPULATION * 2**run, "verbose": -9}
        search = cma.CMAEvolutionStrategy(start, 0.3, options)
        while not search.stop():
            points = search.ask()
            search.tell(points, objective.many(np.stack(points)).tolist())


def differential_evolution(objective: Objective, seed: int) -> None:
    """SciPy's, polished by its L-BFGS-B."""
    for run in itertools.count():
        scipy.optimize.differential_evolution(
            lambda points: objective.many(points.T), [(0.0, 1.0)] * objective.size, rng=1000 * seed + run,
            vectorized=True, updating="deferred", popsize=max(1, POPULATION // objective.size), maxiter=10_000,
        )  # fmt: skip


def nelder_mead(objective: Objective, seed: int, start: np.ndarray | None = None) -> None:
    """SciPy's, within bounds, from random points one after the other; from one point only where it is given."""
    for x in random_points(objective, seed) if start is None else [start]:
        options = {"maxfev": 200 * objective.size, "adaptive": True, "xatol": 1e-12, "fatol": 1e-15}
        scipy.optimize.minimize(
            objective, x, method="Nelder-Mead", bounds=[(0.0, 1.0)] * objective.size, options=options
        )


def trust_region(objective: Objective, seed: int, start: np.ndarray | None = None) -> None:
    """SciPy's bounded trust region with the exact Jacobian, from random points one after the other."""
    for x in random_points(objective, seed) if start is None else [start]:
        inside = np.clip(x, 1e-9, 1.0 - 1e-9)
        jacobian: Any = objective.jacobian
        scipy.optimize.least_squares(
            objective.residual, inside, jacobian, bounds=(0.0, 1.0), xtol=1e-12, ftol=1e-12, gtol=1e-12
        )


def descent(make: Callable[[], Any], objective: Objective, seed: int, start: np.ndarray | None = None) -> None:
    """optax's, projected onto the cube."""
    method = make()
    update = jax.jit(method.update)
    for x in random_points(objective, seed) if start is None else [start]:
        state, point = method.init(jnp.asarray(x)), x
        for _ in range(STEPS):
            _, slope = objective.with_gradient(point)
            change, state = update(jnp.asarray(slope), state, jnp.asarray(point))
            point = np.clip(np.asarray(optax.apply_updates(jnp.asarray(point), change)), 0.0, 1.0)


def quasi_newton(objective: Objective, seed: int, start: np.ndarray | None = None) -> None:
    """SciPy's L-BFGS-B, with gradients."""
    for x in random_points(objective, seed) if start is None else [start]:
        options = {"maxiter": STEPS, "ftol": 1e-15, "gtol": 1e-12}
        bounds = [(0.0, 1.0)] * objective.size
        scipy.optimize.minimize(objective.with_gradient, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options)


def searched(name: str, refine: Any, objective: Objective, seed: int) -> None:
    """A short population search, its best candidates refined, again and again."""
    for run in itertools.count():
        for start in population(name, objective, 1000 * seed + run, SEARCHED)[:REFINED]:
            refine(objective, seed, start)


EVOSAX = ("CMA_ES", "Sep_CMA_ES", "SNES", "DifferentialEvolution", "PSO", "SimpleGA", "MA_ES")
ADAM = functools.partial(descent, lambda: optax.adam(0.02))
LBFGS = functools.partial(descent, lambda: optax.lbfgs(linesearch=None, learning_rate=0.3))
ALL: dict[str, Optimizer] = {
    **{f"evosax {name}": functools.partial(population, name) for name in EVOSAX},
    "cma CMA-ES": covariance_matrix_adaptation,
    "SciPy differential evolution": differential_evolution,
    "SciPy Nelder-Mead": nelder_mead,
    "SciPy trust region": trust_region,
    "SciPy L-BFGS-B": quasi_newton,
    "optax Adam": ADAM,
    "optax L-BFGS": LBFGS,
    "CMA_ES + trust region": functools.partial(searched, "CMA_ES", trust_region),
    "PSO + trust region": functools.partial(searched, "PSO", trust_region),
    "DifferentialEvolution + trust region": functools.partial(searched, "DifferentialEvolution", trust_region),
    "SimpleGA + Nelder-Mead": functools.partial(searched, "SimpleGA", nelder_mead),
    "CMA_ES + Adam": functools.partial(searched, "CMA_ES", ADAM),
}  # fmt: skip
"""All that are compared, beside jaxmb's own fit."""
