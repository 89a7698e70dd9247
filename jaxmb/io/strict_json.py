"""Strict JSON: null instead of NaN and infinity."""

import dataclasses
import importlib.metadata
import json
import math
import platform
from pathlib import Path
from typing import Any

import numpy as np

from jaxmb.io.files import check_regular
from jaxmb.io.validation import InputError


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a result depends on."""
    names = ("jaxmb", "jax", "jaxlib", "numpy", "scipy", "evosax", "optax", "equinox")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def strict(value: Any) -> Any:
    """A value as data for strict JSON: numbers, lists and dictionaries, None for numbers that are not finite."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return strict(dataclasses.asdict(value))
    if isinstance(value, dict):
        return {str(k): strict(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [strict(v) for v in value]
    if isinstance(value, np.ndarray):
        return strict(value.tolist())
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else None
    return value


def read_strict(path: Path, expected: str) -> Any:
    """Contents of a file of strict JSON.

    Args:
        path: of the file.
        expected: description of the expected file, for messages.

    Raises:
        InputError: the file cannot be read, is no strict JSON, or has a key twice in one object.
    """
    check_regular(path)
    try:
        return json.loads(path.read_bytes(), parse_constant=_refused, object_pairs_hook=_without_duplicates)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}, expected {expected}") from None
    except RecursionError:
        raise InputError(f"{path}: is nested too deeply, so not {expected}") from None
    except KeyError as error:
        raise InputError(f"{path}: has the key {error} twice in one object, so not {expected}") from None
    except ValueError:
        raise InputError(f"{path}: is no JSON, so not {expected}") from None


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for key, value in pairs:
        if key in values:
            raise KeyError(key)
        values[key] = value
    return values
