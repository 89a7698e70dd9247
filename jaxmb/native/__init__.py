"""The small solve by a kernel for this computer: `receptance.cpp`, compiled once into the user's folder of caches.

It is compiled when it is first needed, which takes two to three seconds, by the C++ compiler that CXX names or that is
found; `jaxmb identify` has another process do it while it imports JAX. Where there is no compiler, or JAXMB_NATIVE is
"off", JAX solves. What was compiled is kept by its source, the version of jaxlib, whose headers it was compiled with,
and the features of the processor, with a SHA-256 digest beside it that is verified before it is loaded.
"""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SETTING = "JAXMB_NATIVE"
"""Environment variable: "on", as where it is not set, or "off"; also 1 and 0."""
TARGET = "jaxmb_receptance"
SOURCE = Path(__file__).with_name("receptance.cpp")
COMPILERS = "g++", "c++", "clang++"
OPTIONS = "-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"
"""None that lets the compiler change what is computed: -ffast-math would also flush small numbers to zero in the whole
process."""
FOR_THIS_PROCESSOR = "-march=native", "-mcpu=native"
"""The first that the compiler takes."""
PATIENCE_S = 120.0
AGAIN_S = 3600.0
"""After which a compiler that failed is tried again: a disk may have been full, or the computer busy."""
KEPT_BYTES = 1 << 26
"""Of freed memory, which the process keeps."""
LARGEST_KEPT_BYTES = 1 << 25
"""Arrays up to which memory is kept: the largest that glibc allows."""
MALLOC = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"
"""Environment variables by which the user decides this."""


_begun: list[subprocess.Popen[bytes]] = []
"""Processes that compile for this one."""


class NotAvailableError(Exception):
    """Why there is no kernel."""


@functools.cache
def in_use() -> bool:
    """Whether JAX can call the kernel in this process; it is compiled where it was not."""
    try:
        _register(compile_now())
    except NotAvailableError:
        return False
    return True


def begin() -> None:
    """Have another process compile the kernel where it is to be compiled. This one goes on, and waits for it when
    it needs the code."""
    try:
        path = _place()
        if not os.path.exists(path):
            _check_possible(path, _compiler())
            # -P: a file of the folder that the user is in is no module of this
            command = [sys.executable, "-P", "-c", "from jaxmb import native; native.compile_now()"]
            none = subprocess.DEVNULL
            _begun.append(subprocess.Popen(command, stdin=none, stdout=none, stderr=none))
    except (NotAvailableError, OSError):
        pass  # what hinders it is told where the code is needed


def compile_now() -> Path:
    """The kernel's file, compiled where it is missing or damaged.

    Raises:
        NotAvailableError: there is none.
    """
    while _begun:
        _begun.pop().wait()
    path = _place()
    if not _is_whole(path):
        compiler = _compiler()
        _check_possible(path, compiler)
        _compile(compiler, path)
    return path


def status() -> str:
    """What solves: the kernel, or JAX and why; without compiling anything."""
    try:
        path = _place()
        if _is_whole(path):
            _loaded(path)
            return f"native, {path}"
        compiler = _compiler()
        _check_possible(path, compiler)
        return f"native, to be compiled at first use by {shlex.join(compiler)}"
    except NotAvailableError as why:
        return f"by JAX: {why}"


def _is_whole(path: Path) -> bool:
    """Whether the file has the digest beside it. Loading a damaged library may end the process with a bus error."""
    try:
        return _digest_file(path).read_text() == hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):  # ValueError: the digest is no text
        return False


def _digest_file(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _register(path: Path) -> None:
    import jax

    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_loaded(path)), platform="cpu")
    _keep_memory()


def _loaded(path: Path) -> Any:
    """The kernel's function. Another computer with the same folder of caches may have older libraries."""
    try:
        return getattr(ctypes.CDLL(str(path)), TARGET)
    except (OSError, AttributeError) as error:
        raise NotAvailableError(f"{path} cannot be loaded: {error}") from None


def _keep_memory() -> None:
    """Let glibc keep what is freed, up to a bound, unless the user has decided otherwise.

    It gives an array of some MB back to the system and asks for another at the next call, page by page; for three
    coordinates that takes twice as long as the responses.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for name in MALLOC):
        return
    for which, size in ((-1, KEPT_BYTES), (-3, LARGEST_KEPT_BYTES)):  # M_TRIM_THRESHOLD, M_MMAP_THRESHOLD
        mallopt(which, size)


def _place() -> Path:
    """Where the kernel for this processor is, or would be."""
    from platformdirs import user_cache_path

    asked = os.environ.get(SETTING, "on")
    if asked not in ("on", "off", "1", "0"):
        warnings.warn(f"{SETTING} is '{asked}', expected 'on' or 'off'", RuntimeWarning, stacklevel=2)
    if asked in ("off", "0"):
        raise NotAvailableError(f"{SETTING} is '{asked}'")
    if os.name != "posix":
        raise NotAvailableError(f"the kernel is not compiled on {platform.system()}")
    try:
        folder = user_cache_path("jaxmb", appauthor=False) / "native"
    except RuntimeError as error:
        raise NotAvailableError(str(error)) from None
    if not folder.is_absolute():  # older versions of platformdirs do not tell that there is no home
        raise NotAvailableError(f"'{folder}' is no folder of caches")
    parts = SOURCE.read_bytes(), version("jaxlib").encode(), _processor().encode(), " ".join(OPTIONS).encode()
    key = hashlib.sha256(b"|".join(parts)).hexdigest()[:20]
    return folder / f"{key}.so"


def _processor() -> str:
    """What tells processors with other instructions apart."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    kept = sorted({line for line in lines if line.split("\t")[0].lower() in ("flags", "features", "model name")})
    return "\n".join([platform.system(), platform.machine(), platform.processor(), *kept])


def _compiler() -> list[str]:
    """The C++ compiler as a command."""
    given = shlex.split(os.environ.get("CXX", ""))
    if given:
        if shutil.which(given[0]) is None:
            raise NotAvailableError(f"the C++ compiler '{given[0]}', which CXX names, is not found")
        return given
    found = next((name for name in COMPILERS if shutil.which(name)), None)
    if found is None:
        raise NotAvailableError("no C++ compiler is found")
    return [found]


def _note(path: Path, compiler: Sequence[str]) -> Path:
    """Where is told that this compiler could not do it: another one, or a new version of it, is tried again."""
    binary = shutil.which(compiler[0]) or compiler[0]
    changed = os.stat(binary).st_mtime_ns if os.path.exists(binary) else 0
    which = hashlib.sha256(f"{os.path.realpath(binary)} {changed} {list(compiler)}".encode()).hexdigest()[:8]
    return path.with_name(f"{path.stem}-{which}.failed")


def _check_possible(path: Path, compiler: Sequence[str]) -> None:
    """Raise NotAvailableError where this compiler has failed, or nothing can be written."""
    note = _note(path, compiler)
    if os.path.exists(note) and time.time() - os.stat(note).st_mtime < AGAIN_S:
        raise NotAvailableError(note.read_text() or f"{shlex.join(compiler)} failed")
    there = next(folder for folder in path.parents if os.path.exists(folder))
    if not (there.is_dir() and os.access(there, os.W_OK | os.X_OK)):
        raise NotAvailableError(f"{path.parent} cannot be written")


def _compile(compiler: Sequence[str], path: Path) -> None:
    """Compile beside the place, then move it there, so that another process finds all of it or nothing."""
    found = find_spec("jaxlib")  # `jax.ffi.include_dir` without importing JAX
    headers = Path(str(found.origin)).with_name("include") if found is not None else Path()
    said = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            made = Path(folder) / path.name
            for own in FOR_THIS_PROCESSOR:
                command = [*compiler, *OPTIONS, own, f"-I{headers}", str(SOURCE), "-o", str(made)]
                done = subprocess.run(
                    command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE_S, check=False
                )
                if done.returncode == 0 and made.exists():
                    digest = _digest_file(made)
                    digest.write_text(hashlib.sha256(made.read_bytes()).hexdigest())
                    for file in (made, digest):
                        _flush(file)
                        os.replace(file, path.with_name(file.name))
                    return
                said = said or next((line for line in done.stderr.splitlines() if "error" in line), "")
    except subprocess.TimeoutExpired:
        said = f"it took longer than {PATIENCE_S:g} s"
    except OSError as error:
        raise NotAvailableError(f"{shlex.join(compiler)}: {error}") from None
    why = f"{shlex.join(compiler)} could not compile {SOURCE.name}: {said}"
    with contextlib.suppress(OSError):  # a full disk
        _note(path, compiler).write_text(why)
    raise NotAvailableError(why)


def _flush(path: Path) -> None:
    """Write a file to the disk, so that a power failure after its renaming does not leave it empty."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
