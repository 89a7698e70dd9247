"""What a user gives for the fields of an FRF set, as the arrays, names and numbers that stand in one."""

import math
from collections.abc import Mapping, Sequence

import numpy as np


def largest_part(h: np.ndarray) -> float:
    """Largest finite real or imaginary part, a few lines at a time: a set may fill half of the memory."""
    step = max(1, 1_000_000 // h[0].size)
    blocks = (h[i : i + step].view(float) for i in range(0, len(h), step))
    return max(float(np.max(np.abs(block), where=np.isfinite(block), initial=0.0)) for block in blocks)


def numbers(name: str, values: object, dtype: type) -> np.ndarray:
    """A copy of the values as an array of real or complex numbers; what is frozen already is not copied."""
    if (
        isinstance(values, np.ndarray) and values.dtype == dtype and values.base is None
        and values.flags.c_contiguous and not values.flags.writeable
    ):  # fmt: skip
        return values
    try:
        array = np.array(values)
        if array.dtype.kind not in ("biuf" if dtype is float else "biufc"):
            raise ValueError(f"found {array.dtype}")
        return array.astype(dtype, order="C", copy=False)
    except (TypeError, ValueError) as error:
        what = "real" if dtype is float else "real or complex"
        raise ValueError(f"{name} does not hold {what} numbers: {error}") from None


def point_names(what: str, points: Sequence[str | tuple[str, str]] | None, count: int) -> tuple[str, ...]:
    """Names of degrees of freedom as texts, ("tool", "x") as "tool x"; numbered from 1 where there are none."""
    if points is None or len(points) == 0:
        return tuple(str(i + 1) for i in range(count))
    return tuple(point if isinstance(point, str) else " ".join(map(str, point)) for point in points)


def postures(posture: Mapping[str, float]) -> dict[str, float]:
    """Coordinates by name; ValueError where one is not finite."""
    values = {str(name): float(value) for name, value in posture.items()}
    for name, value in values.items():
        if not math.isfinite(value):
            raise ValueError(f"posture of '{name}' is {value}, expected a finite number")
    return values


def positions(nodes: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float, float]]:
    """Places of nodes by name; ValueError where one is not three finite numbers."""
    places = {}
    for name, position in nodes.items():
        values = tuple(float(x) for x in position)
        if len(values) != 3 or not all(math.isfinite(x) for x in values):
            raise ValueError(f"node '{name}' is at {values}, expected three finite coordinates")
        places[str(name)] = values
    return places
