"""Compiled programs are kept between runs of the tests: compiling is most of their time."""

import gc
import os
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

# The matrices are small: with more threads BLAS's workers wait for each other, for several times the processor time.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Most programs are compiled once and run a few times: without LLVM's optimizations, with XLA's plain emitters of fused
# loops, in place of those over MLIR, and each in one part, compiling takes a quarter of the time.
# jaxlib 0.11 and newer end the process at a flag that they do not know.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0"
    + (
        " --xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
        if version("jaxlib").startswith("0.10.")
        else ""
    ),
)
# Commands print lines of the width that they have without a terminal.
os.environ.pop("COLUMNS", None)
# In a folder of the tests' own, also of the processes that they start; JAX reads it when it is imported.
os.environ["JAX_COMPILATION_CACHE_DIR"] = str(Path(__file__).parent.parent / ".cache" / "jax")
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax
import pytest

import jaxmb
import jaxmb.cli.console
from jaxmb.identify.assess.tests import deflections

# A loaded machine takes longer for what is wrong in a file, which is then not said in one line.
jaxmb.cli.console.FIRST_LINE_AFTER_S = 600.0
# Each fit of deflections alone is repeated for each number of its tests in so many random orders, for up to 2 s; the
# tests of that have their own number.
deflections.MOST_ORDERS = 5

# JAX's traces make hundred thousands of objects that stay; to look through them after every 700 new ones is slow.
gc.set_threshold(200_000, 30, 30)

LONG = frozenset((Path(__file__).parent / "long.txt").read_text().splitlines())
"""Tests, or single cases, that `make test` leaves out and `make test-long` runs: above a second with nothing compiled,
unless they alone protect something."""

MAPS = Path("/proc/self/maps")
MOST_MAPS = 52_000
"""A process may have 65530 mappings of memory, and every compiled program takes some: beyond that it ends."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the long tests; a name in `long.txt` without a test is an error where all are collected."""
    found = set[str]()
    for item in items:
        names = LONG & {item.nodeid, item.nodeid.partition("[")[0]}
        found |= names
        if names:
            item.add_marker(pytest.mark.long)
    gone = LONG - found
    if gone and config.args == config.getini("testpaths"):
        raise pytest.UsageError(f"tests/long.txt: {', '.join(sorted(gone))} does not exist, expected names of tests")


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_dropped() -> Iterator[None]:
    """Drop the compiled programs of modules that are done, before there are too many."""
    yield
    if MAPS.is_file() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
