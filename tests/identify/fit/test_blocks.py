"""Points in blocks are points one by one, whatever the memory holds; and what a block takes is known beforehand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmb.identify.fit import devices as blocks
from jaxmb.identify.fit.devices import block_size, in_blocks, live_bytes
from jaxmb.identify.fit.search import population_objectives
from tests.identify.arm import frf, study_of

POINTS = np.arange(21.0).reshape(7, 3)


def squares(x):
    return {"sum": jnp.sum(x**2), "all": x**2}


@pytest.mark.parametrize("memory", [0, 100, 200, 10_000])
def test_any_block_gives_the_same(memory):
    found = jax.jit(lambda x: in_blocks(squares, x, memory))(POINTS)
    np.testing.assert_array_equal(found["all"], POINTS**2)
    np.testing.assert_array_equal(found["sum"], np.sum(POINTS**2, axis=1))


def test_blocks_are_even():
    needed = live_bytes(jax.make_jaxpr(lambda x: x * 2.0)(POINTS[0]).jaxpr)
    assert needed == 24
    assert [block_size(needed, 7, memory) for memory in (0, 24, 4 * 24, 6 * 24, 1000)] == [1, 1, 4, 4, 7]


def test_live_bytes_of_a_chain_are_those_of_two_links():
    """Of x -> exp -> exp -> exp no more than two arrays of 800 bytes live at a time, and one within a loop."""
    chain = jax.make_jaxpr(lambda x: jnp.exp(jnp.exp(jnp.exp(x))))(np.zeros(100))
    assert live_bytes(chain.jaxpr) == 1600
    loop = jax.make_jaxpr(lambda x: jax.lax.fori_loop(0, 5, lambda k, y: jnp.exp(y), x))(np.zeros(100))
    assert 800 <= live_bytes(loop.jaxpr) <= 1700


@pytest.mark.parametrize("lines", [50, 400])
def test_estimate_of_a_population(tmp_path, lines):
    """XLA fuses steps, so that it takes no more for a candidate than was estimated: a third to two thirds of it, as it
    was measured; and it cannot take less than the residual."""
    test = frf()
    test["simulate"] |= {"lines": {"first_hz": 1.0, "last_hz": 1.0 + 0.05 * lines, "step_hz": 0.05}}
    problem = study_of(tmp_path, test, frf(b=0.9) | {"simulate": test["simulate"]}).problem
    population = np.repeat(np.asarray(problem.free.lower)[None], 16, axis=0)
    needed = live_bytes(jax.make_jaxpr(problem.objective)(population[0]).jaxpr)
    program = jax.jit(lambda x: in_blocks(problem.objective, x, 10**12)).lower(population).compile()
    taken = program.memory_analysis().temp_size_in_bytes / 16
    residual = 8 * problem.data_rows
    assert residual < taken < needed < 5 * taken


def test_a_population_as_on_a_device_with_memory(tmp_path, monkeypatch):
    problem = study_of(tmp_path, frf(), frf(b=0.9)).problem
    lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
    population = lower + np.linspace(0.0, 1.0, 5)[:, None] * (upper - lower)
    alone = np.asarray(population_objectives(problem, population))
    np.testing.assert_allclose(alone, [float(problem.objective(u)) for u in population], rtol=1e-12)
    monkeypatch.setattr(blocks, "_on_cpu", lambda: False)
    together = jax.jit(lambda x: in_blocks(problem.objective, x, blocks.block_memory(blocks.POINTS_BYTES)))(population)
    np.testing.assert_allclose(together, alone, rtol=1e-12)
