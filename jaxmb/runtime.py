"""What is set in JAX when jaxmb is imported: 64-bit floats, threads that cannot block each other, a cache of programs.

What the user has set stays. The rest is set in the environment where JAX is not imported yet, which child processes
inherit, and in JAX's configuration where it is.

**Threads.** jaxlib 0.10.0 to 0.11.0 can wait for itself for ever on a CPU: a batched LAPACK call that runs on a thread
of XLA's pool queues its pieces to the same pool and blocks until they are done, so a few such calls at once (the linear
solves of two tests of different form, say) leave no thread to do the pieces. A pool of one thread never blocks, because
there a call does its pieces itself. The size of the pool is read from PJRT_NPROC, or from NPROC where that is not set,
when JAX first computes.

**Cache.** JAX keeps compiled programs in a folder, by a key of the program, the compiler's options, the version of
jaxlib and the features of the processor. What cannot be read or written there is compiled as if there were no cache.
JAX's own limit of the folder's size looks at every file before it writes one, so the folder is cut back here, when a
process ends.
"""

import atexit
import contextlib
import os
import sys
import time
import warnings
from importlib.metadata import version
from pathlib import Path

BLOCKING = ((0, 10, 0), (0, 11, 0))
"""First and last jaxlib whose batched LAPACK calls can block the pool of threads they run on."""
POOL_SIZES = ("PJRT_NPROC", "NPROC")
"""Environment variables that hold the size of XLA's pool of threads on a CPU, the one that counts first."""
CACHE = "JAXMB_COMPILATION_CACHE"
"""Environment variable that turns the cache "off"; "on" where not set."""
MOST_BYTES = 200_000_000
"""On the disk, of all compiled programs that are kept from one process to the next."""
KEPT = 0.75
"""Part of that to which the cache is cut back where it has grown beyond."""
LOOK_EVERY_S = 3600.0
"""At the size of the cache: with thousands of files that takes a tenth of a second."""


def prepare() -> None:
    """Set everything that the user has not decided otherwise."""
    _set("jax_enable_x64", True)
    one_thread()
    keep_programs()


def one_thread() -> None:
    """Give XLA's pool on a CPU one thread, where jaxlib needs it and the user has not chosen the size of the pool.

    Where JAX has computed already it is too late, which a warning says.
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
            stacklevel=4,
        )
        return
    os.environ[POOL_SIZES[0]] = "1"


def keep_programs() -> None:
    """Keep compiled programs from one process to the next, in the user's folder of caches.

    Not where JAXMB_COMPILATION_CACHE is "off", where JAX was given a folder by the user, and where none can be written.
    """
    from platformdirs import user_cache_path

    asked = os.environ.get(CACHE, "on")
    if asked not in ("on", "off"):
        warnings.warn(f"{CACHE} is '{asked}', expected 'on' or 'off'", RuntimeWarning, stacklevel=4)
    try:
        folder = user_cache_path("jaxmb", appauthor=False) / "programs"
    except RuntimeError:  # there is no home
        return
    if os.environ.get("JAX_COMPILATION_CACHE_DIR") == str(folder):  # not the user's: jaxmb's in a parent process
        del os.environ["JAX_COMPILATION_CACHE_DIR"]
    if asked == "off" or _is_set("jax_compilation_cache_dir") or not _made(folder):
        return
    _set("jax_compilation_cache_dir", str(folder))
    _set("jax_persistent_cache_min_compile_time_secs", 0.0)
    _set("jax_persistent_cache_min_entry_size_bytes", -1)
    # Another process that writes, a full disk: the program is compiled, which is no concern of the user.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry", UserWarning)
    atexit.register(_look, folder)


def _look(folder: Path) -> None:
    """Cut the cache back, where JAX was used and nobody has looked for an hour."""
    looked = folder / "looked"
    with contextlib.suppress(OSError):
        if "jax" in sys.modules and not (looked.exists() and time.time() - looked.stat().st_mtime < LOOK_EVERY_S):
            looked.touch()
            cut_back(folder)


def cut_back(folder: Path, most_bytes: int = MOST_BYTES) -> None:
    """Remove the programs that were not used for longest, where all together take more than that on the disk."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        found = [(entry.stat(), entry.path) for entry in entries if entry.name.endswith("-cache")]
        sizes = {path: max(stat.st_size, getattr(stat, "st_blocks", 0) * 512) for stat, path in found}
        total = sum(sizes.values())
        if total <= most_bytes:
            return
        for _, path in sorted((max(stat.st_atime, stat.st_mtime), path) for stat, path in found):
            with contextlib.suppress(OSError):  # another process may have removed it
                os.unlink(path)
            total -= sizes[path]
            if total <= KEPT * most_bytes:
                return


def _made(folder: Path) -> bool:
    """Whether a folder is there, or could be made, and can be written."""
    if not folder.is_absolute():  # there is no home, which older versions of platformdirs do not tell
        return False
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.R_OK | os.W_OK | os.X_OK)


def _is_set(option: str) -> bool:
    """Whether the user has given an option of JAX, which is None by default, a value."""
    if option.upper() in os.environ:
        return True
    jax = sys.modules.get("jax")
    return jax is not None and getattr(jax.config, option) is not None


def _set(option: str, value: object) -> None:
    """Give an option of JAX a value, where the environment has none."""
    if option.upper() in os.environ:
        return
    jax = sys.modules.get("jax")
    if jax is None:
        os.environ[option.upper()] = str(value)
    else:
        jax.config.update(option, value)


def _has_computed() -> bool:
    """Whether JAX has started its backends, and with them the pool of threads."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and bridge.backends_are_initialized()


def _release(text: str) -> tuple[int, ...]:
    """The first three numbers of a version."""
    return tuple(int(part) for part in text.split(".")[:3] if part.isdigit())
