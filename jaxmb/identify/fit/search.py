"""Population search for candidates to refine, by any algorithm of evosax."""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled, compiled_partial
from jaxmb.identify.estimation.least_squares import Box
from jaxmb.identify.fit.devices import POINTS_BYTES, block_memory, in_blocks, replicated, sharded
from jaxmb.identify.fit.problem import Problem, with_tests_sharded
from jaxmb.identify.fit.state import NOT_FINITE, STEPS_AT_ONCE, Progress
from jaxmb.io.validation import known_name

DEFAULT = "CMA_ES"
"""Algorithm of `"auto"`: of the compared ones it found difficult minima most often (experiments/search)."""
RANDOM_FIRST = ("auto", "random")
"""Settings whose first rounds use random starts."""
SHORT_NAMES = {"de": "DifferentialEvolution", "ga": "SimpleGA"}
INITIAL_STD = 0.3
"""Initial standard deviation of a distribution, in widths of the box; with evosax's default, 1, most candidates are on
a bound."""


class SearchState(NamedTuple):
    """State of a population search."""

    key: Array
    algorithm: Any
    population: Float[Array, "p d"]
    """Latest population, in u."""
    fitness: Float[Array, "p"]
    generations: Int[Array, ""]
    non_finite: Int[Array, ""]
    best_u: Float[Array, "d"]
    best: Float[Array, ""]
    latest: Float[Array, "g p"]
    """Fitness of the initial population, then of the generations of the last advance."""


class PopulationSearch:
    """Any evosax algorithm, by name, on the box scaled to the unit cube.

    evosax has no bounds: candidates outside are projected onto the bound, evaluated and returned to evosax there. A
    candidate without a finite cost is counted and ranked below all others. evosax is imported when a search begins.
    """

    name = "search"

    def __init__(self, problem: Problem, box: Box, algorithm: str, population: int, generations: int):
        self._problem, self._box = replicated((with_tests_sharded(problem, population), box))
        self._name, self._generations, self._size = algorithm, generations, population

    @functools.cached_property
    def _evosax(self) -> tuple[Any, bool, Any]:
        return evosax_algorithm(self._name, self._size, self._generations, self._box.lower.size)

    @functools.cached_property
    def _advance(self) -> Any:
        algorithm, _, params = self._evosax
        return compiled_partial(_some_generations, algorithm, params, self._problem, self._box)

    def begin(self, seed: int, candidates: Float[np.ndarray, "s d"]) -> SearchState:
        algorithm, from_population, params = self._evosax
        key, key_population, key_init = jax.random.split(jax.random.PRNGKey(seed), 3)
        lower, upper = jax.device_put(jax.device_get((self._box.lower, self._box.upper)))
        known = (jnp.asarray(candidates)[: self._size] - lower) / (upper - lower)
        if from_population:
            drawn = jax.random.uniform(key_population, (self._size - known.shape[0], lower.size))
            cube = jnp.concatenate([known, drawn])
            population = lower + cube * (upper - lower)
            fitness, bad = self._evaluated(population)
            memory = algorithm.init(key_init, cube, fitness, params)
        else:
            population = jnp.broadcast_to(lower + known[0] * (upper - lower), (self._size, lower.size))
            first, bad = self._evaluated(population[:1])
            fitness = jnp.broadcast_to(first, (self._size,))
            memory = algorithm.init(key_init, known[0], params)
        best, zero = jnp.argmin(fitness), jnp.asarray(0)
        latest = jnp.broadcast_to(fitness, (1 + STEPS_AT_ONCE, self._size))
        return SearchState(key, memory, population, fitness, zero, bad, population[best], fitness[best], latest)

    def _evaluated(self, population: Float[Array, "p d"]) -> tuple[Float[Array, "p"], Int[Array, ""]]:
        """Costs on the device of this process, and the number of those that are not finite."""
        return jax.device_put(jax.device_get(_fitness(self._problem, replicated(population))))

    def advance(self, state: SearchState, goal: float) -> SearchState:
        count = min(STEPS_AT_ONCE, self._generations - int(state.generations))
        return self._advance(*replicated((state, np.asarray(count))))

    def progress(self, state: SearchState) -> Progress:
        done = int(state.generations)
        u, ended = np.asarray(state.best_u), done >= self._generations
        first = 0 if self._evosax[1] and done <= STEPS_AT_ONCE else 1
        costs = np.asarray(state.latest)[first : 2 + (done - 1) % STEPS_AT_ONCE].ravel() if done else np.zeros(0)
        return Progress(
            u, float(state.best), (done + self._evosax[1]) * self._size, int(state.non_finite), ended, costs
        )

    def outcome(self, state: SearchState) -> tuple[np.ndarray, np.ndarray]:
        order = np.argsort(np.asarray(state.fitness), kind="stable")
        ranked = np.concatenate([np.asarray(state.best_u)[None], np.asarray(state.population)[order]])
        fitness = np.concatenate([np.asarray(state.best)[None], np.asarray(state.fitness)[order]])
        _, first = np.unique(ranked, axis=0, return_index=True)
        return ranked[np.sort(first)], fitness[np.sort(first)]


def _some_generations(
    algorithm: Any, params: Any, problem: Problem, box: Box, state: SearchState, count: Int[Array, ""]
) -> SearchState:
    def one(i: int, s: SearchState) -> SearchState:
        key, key_ask, key_tell = jax.random.split(s.key, 3)
        asked, memory = algorithm.ask(key_ask, s.algorithm, params)
        cube = jnp.clip(asked, 0.0, 1.0)
        population = box.lower + cube * (box.upper - box.lower)
        fitness, bad = _fitness(problem, population)
        memory, _ = algorithm.tell(key_tell, cube, fitness, memory, params)
        leader = jnp.argmin(fitness)
        better = fitness[leader] < s.best
        return SearchState(
            key,
            memory,
            population,
            fitness,
            s.generations + 1,
            s.non_finite + bad,
            jnp.where(better, population[leader], s.best_u),
            jnp.where(better, fitness[leader], s.best),
            s.latest.at[i + 1].set(fitness),
        )

    return jax.lax.fori_loop(0, count, one, state)


def algorithm_names() -> tuple[str, ...]:
    """Names of evosax's algorithms."""
    import evosax.algorithms

    # Stein variational algorithms have several populations, for which studies have no setting.
    return tuple(name for name in evosax.algorithms.algorithms if not name.startswith("SV_"))


def algorithm_named(name: str) -> str:
    """evosax's name of a search algorithm, from its name in any case, with or without _ and - ("cmaes"), or a short
    name ("de").

    Nothing is imported for "auto" and "random".

    Raises:
        ValueError: the algorithm is unknown.
    """

    def plain(text: str) -> str:
        return text.lower().replace("_", "").replace("-", "")

    if plain(name) in RANDOM_FIRST:
        return plain(name)
    known = {plain(own): own for own in algorithm_names()} | SHORT_NAMES
    if plain(name) not in known:
        listed = (*RANDOM_FIRST, *known.values(), *known)  # with short names, for the suggestion
        raise ValueError(known_name("search algorithm", name, dict.fromkeys(listed)))
    return known[plain(name)]


@functools.lru_cache
def evosax_algorithm(name: str, population: int, generations: int, size: int) -> tuple[Any, bool, Any]:
    """An algorithm of evosax, whether it begins with a population instead of a mean, and its parameters.

    It is cached for all searches with the same settings, so that compiled programs are reused.

    Raises:
        ValueError: the algorithm does not work with such a population.
    """
    # These imports take over a second.
    import optax
    from evosax.algorithms import algorithms, population_based_algorithms

    options: dict[str, object] = {}
    match name:
        case "RandomSearch":
            options["sampling_fn"] = lambda key: jax.random.uniform(key, (size,))
        case "SimpleGA":  # the defaults, no crossover and mutations as wide as the box, do not converge
            options["std_schedule"] = optax.linear_schedule(0.25, 0.02, generations)
    try:
        algorithm = algorithms[name](population_size=population, solution=jnp.zeros(size), **options)
    except (AssertionError, ZeroDivisionError):
        raise ValueError(
            f"[search]: population is {population}, expected an even number of at least 4 for '{name}'"
        ) from None
    params, from_population = algorithm.default_params, name in population_based_algorithms
    params = params.replace(crossover_rate=0.5) if name == "SimpleGA" else params
    if not from_population and hasattr(params, "std_init"):
        params = params.replace(std_init=jnp.asarray(INITIAL_STD))
    return algorithm, from_population, params


@compiled
def population_objectives(problem: Problem, population: Float[Array, "p d"]) -> Float[Array, "p"]:
    """Objective of each candidate of a population, in blocks limited by memory, on all devices."""

    def objectives(some: Array, problem: Problem) -> Array:
        return in_blocks(problem.objective, some, 0 if problem.one_by_one else block_memory(POINTS_BYTES))

    return objectives(population, problem) if problem.tests_sharded else sharded(objectives, population, problem)


@compiled
def _fitness(problem: Problem, population: Float[Array, "p d"]) -> tuple[Float[Array, "p"], Int[Array, ""]]:
    fitness = population_objectives(problem, population)
    finite = jnp.isfinite(fitness)
    return jnp.where(finite, fitness, NOT_FINITE), jnp.sum(~finite)
