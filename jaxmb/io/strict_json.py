"""Strict JSON: null where a number is not known, never NaN."""

import dataclasses
import importlib.metadata
import math
import platform
from typing import Any

import numpy as np


def versions() -> dict[str, str]:
    """Versions of what a result depends on."""
    names = ("jaxmb", "jax", "jaxlib", "numpy", "scipy", "evosax", "optax", "equinox")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}


def strict(value: Any) -> Any:
    """A value as strict JSON can hold it: plain numbers and lists, None for what is not finite."""
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
