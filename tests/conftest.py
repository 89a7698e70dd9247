"""Compiled programs are kept between runs of the tests: compiling is most of their time."""

from pathlib import Path

import jax

import jaxmb  # noqa: F401  (turns on 64-bit floats)

jax.config.update("jax_compilation_cache_dir", str(Path(__file__).parent.parent / ".cache" / "jax"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.2)
