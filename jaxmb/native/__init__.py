"""Native kernel of `linalg.small_solve`: `receptance.cpp`, compiled on the user's machine and cached.

It is compiled at first use, in two to three seconds, by the C++ compiler named by CXX or found on the path;
`jaxmb identify` compiles it in another process while importing JAX. Without a compiler, or with JAXMB_NATIVE "off", JAX
solves. The library is cached by its source, the version of jaxlib, whose headers it includes, and the processor's
features, with a SHA-256 digest that is verified before loading.
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
"""Environment variable: "on" (default) or "off"; also 1 and 0."""
TARGET = "jaxmb_receptance"
SOURCE = Path(__file__).with_name("receptance.cpp")
COMPILERS = "g++", "c++", "clang++"
OPTIONS = "-std=c++17", "-O3", "-fPIC", "-shared", "-pthread", "-fvisibility=hidden"
"""Without options that change results: -ffast-math would also flush small numbers to zero in the whole process."""
PROCESSOR_OPTIONS = "-march=native", "-mcpu=native"
"""Alternatives, of which the first one accepted by the compiler is used."""
COMPILE_TIMEOUT_S = 120.0
RETRY_AFTER_S = 3600.0
"""Time after which a compiler that failed is tried again: the disk may have been full, or the computer busy."""
TRIM_THRESHOLD_BYTES = 1 << 26
"""Freed memory that the process keeps."""
MMAP_THRESHOLD_BYTES = 1 << 25
"""Size of allocations up to which freed memory is kept, the largest that glibc allows."""
MALLOC = "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES"
"""Environment variables for these settings, which take precedence."""


_compiling: list[subprocess.Popen[bytes]] = []
"""Processes that compile the kernel for this one."""


class NotAvailableError(Exception):
    """The kernel is not available; the message is the reason."""


@functools.cache
def in_use() -> bool:
    """Whether JAX can call the kernel in this process; compiles it if necessary."""
    try:
        _register(compile_now())
    except NotAvailableError:
        return False
    return True


def begin() -> None:
    """Start compiling the kernel in another process, if necessary; this process waits for it at first use."""
    try:
        path = _library_path()
        if not os.path.exists(path):
            _check_can_compile(path, _compiler())
            # -P: do not import modules from the current folder
            command = [sys.executable, "-P", "-c", "from jaxmb import native; native.compile_now()"]
            none = subprocess.DEVNULL
            _compiling.append(subprocess.Popen(command, stdin=none, stdout=none, stderr=none))
    except (NotAvailableError, OSError):
        pass  # reported at first use


def compile_now() -> Path:
    """Path of the kernel's library, compiled if it is missing or damaged.

    Raises:
        NotAvailableError: it cannot be compiled.
    """
    while _compiling:
        _compiling.pop().wait()
    path = _library_path()
    if not _is_intact(path):
        compiler = _compiler()
        _check_can_compile(path, compiler)
        _compile(compiler, path)
    return path


def status() -> str:
    """Solver in use: the kernel, or JAX with the reason; does not compile."""
    try:
        path = _library_path()
        if _is_intact(path):
            _loaded(path)
            return f"native, {path}"
        compiler = _compiler()
        _check_can_compile(path, compiler)
        return f"native, to be compiled at first use by {shlex.join(compiler)}"
    except NotAvailableError as reason:
        return f"by JAX: {reason}"


def _is_intact(path: Path) -> bool:
    """Whether the file matches its digest: loading a damaged library may end the process with a bus error."""
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
    """The kernel's function; loading may fail where computers with different libraries share the cache folder."""
    try:
        return getattr(ctypes.CDLL(str(path)), TARGET)
    except (OSError, AttributeError) as error:
        raise NotAvailableError(f"{path} cannot be loaded: {error}") from None


def _keep_memory() -> None:
    """Let glibc on Linux keep freed memory, up to a bound, unless the user has set otherwise.

    By default it returns arrays of some MB to the system and faults them in again at the next call, which for three
    coordinates takes twice as long as the responses.
    """
    if sys.platform != "linux":  # the numbers of the options are glibc's
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None or any(name in os.environ for name in MALLOC):
        return
    for option, size in ((-1, TRIM_THRESHOLD_BYTES), (-3, MMAP_THRESHOLD_BYTES)):  # M_TRIM_, M_MMAP_THRESHOLD
        mallopt(option, size)


def _library_path() -> Path:
    """Path of the kernel's library for this processor, whether it exists or not."""
    from platformdirs import user_cache_path

    setting = os.environ.get(SETTING, "on")
    if setting not in ("on", "off", "1", "0"):
        warnings.warn(f"{SETTING} is '{setting}', expected 'on' or 'off'", RuntimeWarning, stacklevel=2)
    if setting in ("off", "0"):
        raise NotAvailableError(f"{SETTING} is '{setting}'")
    if os.name != "posix":
        raise NotAvailableError(f"the kernel is not compiled on {platform.system()}")
    try:
        folder = user_cache_path("jaxmb", appauthor=False) / "native"
    except RuntimeError as error:
        raise NotAvailableError(str(error)) from None
    if not folder.is_absolute():  # no home folder, which older versions of platformdirs do not report
        raise NotAvailableError(f"'{folder}' is no cache folder")
    parts = SOURCE.read_bytes(), version("jaxlib").encode(), _processor().encode(), " ".join(OPTIONS).encode()
    key = hashlib.sha256(b"|".join(parts)).hexdigest()[:20]
    return folder / f"{key}.so"


def _processor() -> str:
    """Identification of the processor's instruction set."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    features = sorted({line for line in lines if line.split("\t")[0].lower() in ("flags", "features", "model name")})
    return "\n".join([platform.system(), platform.machine(), platform.processor(), *features])


def _compiler() -> list[str]:
    """The C++ compiler as a command."""
    command_line = shlex.split(os.environ.get("CXX", ""))
    if command_line:
        if shutil.which(command_line[0]) is None:
            raise NotAvailableError(f"the C++ compiler '{command_line[0]}', which CXX names, is not found")
        return command_line
    found = next((name for name in COMPILERS if shutil.which(name)), None)
    if found is None:
        raise NotAvailableError("no C++ compiler is found")
    return [found]


def _failure_note(path: Path, compiler: Sequence[str]) -> Path:
    """File that records the failure of this compiler and version."""
    binary = shutil.which(compiler[0]) or compiler[0]
    changed = os.stat(binary).st_mtime_ns if os.path.exists(binary) else 0
    key = hashlib.sha256(f"{os.path.realpath(binary)} {changed} {list(compiler)}".encode()).hexdigest()[:8]
    return path.with_name(f"{path.stem}-{key}.failed")


def _check_can_compile(path: Path, compiler: Sequence[str]) -> None:
    """Raise NotAvailableError where this compiler has failed recently, or the folder is not writable."""
    note = _failure_note(path, compiler)
    if os.path.exists(note) and time.time() - os.stat(note).st_mtime < RETRY_AFTER_S:
        raise NotAvailableError(note.read_text() or f"{shlex.join(compiler)} failed")
    existing = next(folder for folder in path.parents if os.path.exists(folder))
    if not (existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)):
        raise NotAvailableError(f"{path.parent} cannot be written")


def _compile(compiler: Sequence[str], path: Path) -> None:
    """Compile in a temporary folder, then rename, so that other processes never see a partial file."""
    found = find_spec("jaxlib")  # `jax.ffi.include_dir` without importing JAX
    headers = Path(str(found.origin)).with_name("include") if found is not None else Path()
    message = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            library = Path(folder) / path.name
            for processor_option in PROCESSOR_OPTIONS:
                command = [*compiler, *OPTIONS, processor_option, f"-I{headers}", str(SOURCE), "-o", str(library)]
                completed = subprocess.run(
                    command,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    timeout=COMPILE_TIMEOUT_S,
                    check=False,
                )
                if completed.returncode == 0 and library.exists():
                    digest = _digest_file(library)
                    digest.write_text(hashlib.sha256(library.read_bytes()).hexdigest())
                    for file in (library, digest):
                        _flush(file)
                        os.replace(file, path.with_name(file.name))
                    return
                message = message or next((line for line in completed.stderr.splitlines() if "error" in line), "")
    except subprocess.TimeoutExpired:
        message = f"it took longer than {COMPILE_TIMEOUT_S:g} s"
    except OSError as error:
        raise NotAvailableError(f"{shlex.join(compiler)}: {error}") from None
    reason = f"{shlex.join(compiler)} could not compile {SOURCE.name}: {message}"
    with contextlib.suppress(OSError):  # a full disk
        _failure_note(path, compiler).write_text(reason)
    raise NotAvailableError(reason)


def _flush(path: Path) -> None:
    """Write a file to the disk, so that a power failure after its renaming does not leave it empty."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
