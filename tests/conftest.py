"""Compiled programs are kept between runs of the tests: compiling is most of their time."""

import gc
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

import jaxmb  # noqa: F401  (turns on 64-bit floats)

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)

MAPS = Path("/proc/self/maps")
MOST_MAPS = 25_000
"""A process may have 65530 mappings of memory, and every compiled program takes some: beyond that it ends."""


@pytest.fixture(autouse=True, scope="module")
def compiled_programs_are_dropped() -> Iterator[None]:
    """Drop the compiled programs of modules that are done, before there are too many."""
    yield
    if MAPS.is_file() and MAPS.read_bytes().count(b"\n") > MOST_MAPS:
        jax.clear_caches()
        gc.collect()
