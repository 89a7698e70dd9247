"""What JAX is told before it computes.

**Threads.** jaxlib 0.10.0 to 0.11.0 can wait for itself for ever on a CPU: a batched LAPACK call that runs on a thread
of XLA's pool queues its pieces to the same pool and blocks until they are done, so a few such calls at once (the linear
solves of two tests of different form, say) leave no thread to do the pieces. A pool of one thread never blocks, because
there a call does its pieces itself. The size of the pool is read from PJRT_NPROC, or from NPROC where that is not set,
when JAX first computes.
"""

import os
import sys
import warnings
from importlib.metadata import version

BLOCKING = ((0, 10, 0), (0, 11, 0))
"""First and last jaxlib whose batched LAPACK calls can block the pool of threads they run on."""
POOL_SIZES = ("PJRT_NPROC", "NPROC")
"""Environment variables that hold the size of XLA's pool of threads on a CPU, the one that counts first."""


def one_thread() -> None:
    """Give XLA's pool on a CPU one thread, where jaxlib needs it and the user has not chosen the size of the pool.

    Child processes inherit the setting. Where JAX has computed already it is too late, which a warning says.
    """
    if not BLOCKING[0] <= _release(version("jaxlib")) <= BLOCKING[1]:
        return
    if any(name in os.environ for name in POOL_SIZES):
        return
    if _has_computed() and (os.cpu_count() or 1) > 1:
        warnings.warn(
            f"JAX has computed before jaxmb was imported: with jaxlib {version('jaxlib')} on a CPU a fit can then wait"
            " for ever; import jaxmb first, or set PJRT_NPROC=1 in the environment, or install jaxlib 0.11.1 or newer",
            RuntimeWarning,
            stacklevel=3,
        )
        return
    os.environ[POOL_SIZES[0]] = "1"


def _has_computed() -> bool:
    """Whether JAX has started its backends, and with them the pool of threads."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def _release(text: str) -> tuple[int, ...]:
    """The first three numbers of a version."""
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
