"""Programs that earlier commands traced, kept as StableHLO beside JAX's compiled ones.

With all programs compiled, a command still traces and lowers them, which is a large part of its computing time, since
JAX finds a compiled program by its lowered form. An exported program is found by what tracing depends on: the function,
the forms of its arrays, the values of all other arguments, the sources of jaxmb, versions of packages and settings, all
as written by pickle. What pickle cannot write, or belongs to another package, is traced. So is all of a process other
than the command, as functions and constants may have been replaced there.
"""

import contextlib
import functools
import hashlib
import io
import os
import pickle
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
from jax.core import Tracer

from jaxmb import native, runtime
from jaxmb.io.files import write_atomically

PACKAGES = "jax", "jaxlib", "equinox", "numpy", "optax", "evosax"
"""Packages beside jaxmb whose functions and classes a program may depend on."""
SETTINGS = "JAX", "XLA"
"""Beginnings of the names of environment variables that a program may depend on."""
DIGEST_BYTES = 32


class _Array:
    """In the place of an array in a pytree."""


class Programs:
    """A compiled function, with its exported programs by the form of its arguments.

    Args:
        source: what pickle finds under its name, and defines the function together with `fixed`.
        function: of pytrees of arrays and other leaves, which are fixed in a program.
        traced: the same, compiled by tracing.
        fixed: a pytree of further values on which the function depends.
    """

    def __init__(
        self, source: Any, function: Callable[..., Any], traced: Callable[..., Any], fixed: Any = None
    ) -> None:
        self.source, self.function, self.traced, self.fixed = source, function, traced, fixed
        self._found: dict[Any, Callable[..., Any] | None] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The value of the function."""
        program = self.program(*args, **kwargs)
        return self.traced(*args, **kwargs) if program is None else program()

    def program(self, *args: Any, **kwargs: Any) -> Callable[[], Any] | None:
        """The function of these arguments; None where it must be traced."""
        if runtime.exports is None:
            return None
        leaves, structure = jax.tree.flatten((args, kwargs))
        if any(isinstance(leaf, Tracer) for leaf in leaves):
            return None
        arrays = [leaf for leaf in leaves if eqx.is_array(leaf)]
        others = tuple(_Array if eqx.is_array(leaf) else leaf for leaf in leaves)
        forms = tuple((array.shape, array.dtype.name, getattr(array, "weak_type", False)) for array in arrays)
        form = structure, others, forms
        if form not in self._found:
            self._found[form] = self._program_of(arrays, *form)
        found = self._found[form]
        return None if found is None else functools.partial(found, arrays)

    def _program_of(self, arrays: list[Any], structure: Any, others: tuple[Any, ...], forms: Any) -> Any:
        path = self._path((jax.tree.unflatten(structure, others), forms))
        if path is None:
            return None
        kept = _read(path)
        if kept is None:
            with contextlib.suppress(Exception):  # the caller traces it again, and reports what is wrong
                kept = _export(self.function, arrays, structure, others)
                _write(path, kept)
        return None if kept is None else _program_from(*kept)

    def _path(self, arguments: Any) -> Path | None:
        """File of the program; None where pickle cannot write all that it depends on."""
        if runtime.exports is None or jax.default_backend() != "cpu" or jax.device_count() != 1:
            return None
        written = io.BytesIO()
        with contextlib.suppress(Exception):  # of any kind, by the classes of the values
            _Pickler(written).dump((_located(self.source), self.fixed, arguments, _surroundings()))
            return runtime.exports / f"jaxmb-{hashlib.sha256(written.getvalue()).hexdigest()}-cache"
        return None


def _located(source: Any) -> Any:
    """The place of a decorated function: its name, and how many decorators of the module's are left out."""
    name = getattr(source, "__qualname__", "")
    found, left_out = getattr(sys.modules.get(source.__module__), name, None), 0
    while found is not None and found is not source:
        found, left_out = getattr(found, "__wrapped__", None), left_out + 1
    return source if found is None else (source.__module__, name, left_out)


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if callable(obj):
            package = str(obj.__module__).split(".", 1)[0]
            if package not in PACKAGES and package != "jaxmb" and package not in sys.stdlib_module_names:
                raise pickle.PicklingError(f"{obj} is of {package}")
        return NotImplemented


@functools.cache
def _surroundings() -> list[Any]:
    """Sources, versions and settings; the native kernel is registered, without which its programs cannot be called."""
    sources = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        sources.update(path.read_bytes())
    settings = sorted(item for item in os.environ.items() if item[0].startswith(SETTINGS))
    return [sources.digest(), sys.version, [version(package) for package in PACKAGES], settings, native.in_use()]


def _export(function: Callable[..., Any], arrays: list[Any], structure: Any, others: tuple[Any, ...]) -> Any:
    """Exported program of a list of arrays, and its value with `_Array` in the place of arrays."""
    form: Any = None

    def flat(arrays: list[Any]) -> list[Any]:
        nonlocal form
        given = iter(arrays)
        args, kwargs = jax.tree.unflatten(structure, [next(given) if leaf is _Array else leaf for leaf in others])
        value = function(*args, **kwargs)
        form = jax.tree.map(lambda leaf: _Array if eqx.is_array(leaf) else leaf, value)
        return [leaf for leaf in jax.tree.leaves(value) if eqx.is_array(leaf)]

    import jax.export

    checks = [jax.export.DisabledSafetyCheck.custom_call(native.TARGET)]
    return jax.export.export(jax.jit(flat), disabled_checks=checks)(arrays).serialize(), form


def _program_from(exported: bytearray, form: Any) -> Callable[[list[Any]], Any]:
    import jax.export

    program = jax.jit(jax.export.deserialize(exported).call)
    leaves, structure = jax.tree.flatten(form)

    def call(arrays: list[Any]) -> Any:
        found = iter(program(arrays))
        return jax.tree.unflatten(structure, [next(found) if leaf is _Array else leaf for leaf in leaves])

    return call


def _read(path: Path) -> Any:
    """A kept program; None if there is none, or it is damaged."""
    with contextlib.suppress(Exception):
        contents = path.read_bytes()
        if hashlib.sha256(contents[DIGEST_BYTES:]).digest() == contents[:DIGEST_BYTES]:
            return pickle.loads(contents[DIGEST_BYTES:])  # noqa: S301 - of the user's own folder, as JAX's programs
    return None


def _write(path: Path, kept: Any) -> None:
    """Keep a program; a full or write-protected disk is no error."""
    contents = pickle.dumps(kept)
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomically(path, hashlib.sha256(contents).digest() + contents)
