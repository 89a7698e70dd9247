"""JAX settings made when jaxmb is imported: 64-bit floats, the size of the thread pool, and the compilation cache.

Settings of the user take precedence. If JAX is not imported yet, settings are made in the environment, which child
processes inherit, otherwise in JAX's configuration.

**Threads.** jaxlib 0.10.0 to 0.11.0 can deadlock on a CPU: a batched LAPACK call on a thread of XLA's pool queues its
tasks to the same pool and blocks until they are done, so concurrent calls (such as the linear solves of two tests of
different form) can occupy all threads. With a pool of one thread a call runs its tasks itself. The size of the pool is
read from PJRT_NPROC, or else NPROC, at JAX's first computation.

**Cache.** JAX stores compiled programs in a folder, by a key of the program, the compiler's options, the version of
jaxlib and the processor's features. Entries that cannot be read or written are compiled as without a cache. JAX's own
limit on the folder's size examines every file at each write, so the folder is trimmed here, at the end of a process.
"""

import atexit
import contextlib
import difflib
import os
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import lazy_loader

BLOCKING = ((0, 10, 0), (0, 11, 0))
"""First and last jaxlib whose batched LAPACK calls can deadlock."""
POOL_SIZES = ("PJRT_NPROC", "NPROC")
"""Environment variables for the size of XLA's thread pool on a CPU, by precedence."""
CACHE = "JAXMB_COMPILATION_CACHE"
"""Environment variable that turns the cache "off"; by default "on"."""
MOST_BYTES = 200_000_000
"""Limit on the disk space of the compilation cache."""
TARGET_FRACTION = 0.75
"""Fraction of the limit to which the cache is trimmed."""
CHECK_INTERVAL_S = 3600.0
"""Interval between checks of the cache's size, which take a tenth of a second with thousands of files."""

exports: Path | None = None
"""Folder of the programs that commands export; None in other processes."""


def public_names(package: str, stub: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package whose stub lists its names, each imported at its first use.

    The AttributeError for a name that does not exist suggests the closest one.
    """
    found, listed, names = lazy_loader.attach_stub(package, stub)

    def attribute(name: str) -> Any:
        if name not in names and not name.startswith("__"):
            close = difflib.get_close_matches(name, names, n=1)
            hint = f", did you mean '{close[0]}'?" if close else ""
            raise AttributeError(f"module '{package}' has no attribute '{name}'{hint}")
        return found(name)

    return attribute, listed, names


def prepare() -> None:
    """Make all settings that the user has not made."""
    _set("jax_enable_x64", True)
    one_thread()
    keep_programs()


def one_thread() -> None:
    """Limit XLA's pool on a CPU to one thread, if jaxlib needs it and the user has not chosen the size of the pool.

    A warning is issued where JAX has already computed, so that the setting has no effect.
    """
    blocking = BLOCKING[0] <= _release(version("jaxlib")) <= BLOCKING[1]
    if not blocking or any(name in os.environ for name in POOL_SIZES):
        return
    if _has_computed() and (os.cpu_count() or 1) > 1:
        warnings.warn(
            f"JAX has computed before jaxmb was imported: with jaxlib {version('jaxlib')} on a CPU a fit can then wait"
            " for ever; import jaxmb first, or set PJRT_NPROC=1 in the environment, or install jaxlib 0.11.1 or newer",
            RuntimeWarning,
            stacklevel=4,
        )
        return
    os.environ[POOL_SIZES[0]] = "1"


def keep_programs() -> None:
    """Set up the compilation cache in the user's cache folder.

    Not if JAXMB_COMPILATION_CACHE is "off", the user has set a folder for JAX, or the folder is not writable.
    """
    from platformdirs import user_cache_path

    setting = os.environ.get(CACHE, "on")
    if setting not in ("on", "off"):
        warnings.warn(f"{CACHE} is '{setting}', expected 'on' or 'off'", RuntimeWarning, stacklevel=4)
    try:
        folder = user_cache_path("jaxmb", appauthor=False) / "programs"
    except RuntimeError:  # no home folder
        return
    if os.environ.get("JAX_COMPILATION_CACHE_DIR") == str(folder):  # not the user's: jaxmb's in a parent process
        del os.environ["JAX_COMPILATION_CACHE_DIR"]
    if setting == "off" or _is_set("jax_compilation_cache_dir") or not _is_writable(folder):
        return
    _set("jax_compilation_cache_dir", str(folder))
    _set("jax_persistent_cache_min_compile_time_secs", 0.0)
    _set("jax_persistent_cache_min_entry_size_bytes", -1)
    # If another process is writing, or the disk is full, the program is compiled: the user need not be warned.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry", UserWarning)
    atexit.register(_trim_if_due, folder)


def keep_exports() -> None:
    """Keep exported programs beside the compiled ones; for the process of a command."""
    global exports
    folder = os.environ.get("JAX_COMPILATION_CACHE_DIR")
    exports = Path(folder) if folder else None


def _trim_if_due(folder: Path) -> None:
    """Trim the cache if JAX was used and the last check was `CHECK_INTERVAL_S` ago."""
    marker = folder / "looked"
    with contextlib.suppress(OSError):
        if "jax" in sys.modules and not (marker.exists() and time.time() - marker.stat().st_mtime < CHECK_INTERVAL_S):
            marker.touch()
            cut_back(folder)


def cut_back(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the least recently used programs where the cache exceeds `most_bytes` on the disk."""
    with contextlib.suppress(OSError), os.scandir(folder) as directory:
        programs = [(entry.stat(), entry.path) for entry in directory if entry.name.endswith("-cache")]
        sizes = {path: max(stat.st_size, getattr(stat, "st_blocks", 0) * 512) for stat, path in programs}
        total = sum(sizes.values())
        if total <= most_bytes:
            return
        for _, path in sorted((max(stat.st_atime, stat.st_mtime), path) for stat, path in programs):
            with contextlib.suppress(OSError):  # another process may have removed it
                os.unlink(path)
            total -= sizes[path]
            if total <= TARGET_FRACTION * most_bytes:
                return


def _is_writable(folder: Path) -> bool:
    """Whether a folder exists, or could be created, and is writable."""
    if not folder.is_absolute():  # no home folder, which older versions of platformdirs do not report
        return False
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _is_set(option: str) -> bool:
    """Whether the user has set an option of JAX, which is None by default."""
    if option.upper() in os.environ:
        return True
    jax = sys.modules.get("jax")
    return jax is not None and getattr(jax.config, option) is not None


def _set(option: str, value: object) -> None:
    """Set an option of JAX, unless it is set in the environment."""
    if option.upper() in os.environ:
        return
    jax = sys.modules.get("jax")
    if jax is None:
        os.environ[option.upper()] = str(value)
    else:
        jax.config.update(option, value)


def _has_computed() -> bool:
    """Whether JAX has initialized its backends, and with them the thread pool."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def _release(text: str) -> tuple[int, ...]:
    """The first three numbers of a version."""
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
