"""How the time of responses and of costs grows with coordinates, postures and lines.

Responses of random machines for coordinates; the cost of the KR90's study, of some candidates at once, for postures and
lines. The slope is that of the least-squares line through the logarithms: 1 is proportional, 3 with the cube.
"""

from functools import partial

import jax
import numpy as np
from fits import kr90_study
from kernels import OMEGA, by_jaxmb, machines, seconds, timed_in_turn
from threadpoolctl import threadpool_limits

from jaxmb.fitting import population_objectives

COORDINATES = 3, 6, 9, 18, 36, 60
POSTURES = 1, 4, 16, 64
LINES = 64, 256, 1024, 4096
CANDIDATES = 16


def measure(repeats: int, quick: bool) -> dict[str, dict[str, list[list[float]]]]:
    """Elapsed and processor seconds of each repetition, by what grows and how large it is."""
    found = {"coordinates": coordinates(repeats)}
    some = POSTURES[:3] if quick else POSTURES
    found["postures"] = costs({str(count): (count, 64) for count in some}, repeats)
    found["lines"] = costs({str(count): (1, count) for count in LINES}, repeats)
    return found


def coordinates(repeats: int) -> dict[str, list[list[float]]]:
    """Responses of 64 machines, 146 lines, three points."""
    batch, ways = (0, 0, 0, None, None), {}
    for size in COORDINATES:
        *parts, rows = (jax.device_put(part) for part in machines(size, 64))
        own = jax.jit(jax.vmap(by_jaxmb, batch))
        ways[str(size)] = 1, partial(own, *parts, jax.device_put(OMEGA), rows)
    with threadpool_limits(1, user_api="blas"):
        return timed_in_turn(ways, repeats)


def costs(sizes: dict[str, tuple[int, int]], repeats: int) -> dict[str, list[list[float]]]:
    """Costs of some candidates, by postures and lines."""
    ways = {}
    for name, (postures, lines) in sizes.items():
        problem = kr90_study(postures, lines).problem
        low, high = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
        people = low + np.random.default_rng(0).random((CANDIDATES, low.size)) * (high - low)
        ways[name] = 1, partial(population_objectives, problem, jax.device_put(people))
    for _, work in ways.values():
        seconds(work)
    with threadpool_limits(1, user_api="blas"):
        return timed_in_turn(ways, repeats)


def slope(times: dict[str, list[list[float]]]) -> float:
    """Of the logarithm of the processor time over that of the size."""
    sizes = [float(size) for size in times]
    medians = [np.median(np.array(each)[:, 1]) for each in times.values()]
    return float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
