"""Which variables of a MATLAB file are those of an FRF set, and what their shapes mean."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxmb.measurement.files.named_arrays import ARRAY_NAMES, LARGEST_SET, NEEDED

TEXTS = ("kind", "unit", "source")
LISTS = ("outputs", "inputs", "posture_names", "node_names")
VECTORS = ("frequency_hz", "posture_values")
LISTED = 12

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and class of variables by name."""
Choice = Callable[[Shapes, Callable[[str], Shapes]], tuple[str, list[str]]]
"""From the shapes of all variables, and those within a struct by its name: the struct that holds the chosen ones (""
where the file itself does), and their names."""


def those_of_a_set(shapes: Shapes, fields: Callable[[str], Shapes]) -> tuple[str, list[str]]:
    """The struct that holds the set ("" where variables of the file do), and the names of its arrays.

    Args:
        shapes: the variables of the file.
        fields: those of a struct, by its name.

    Raises:
        ValueError: there is no such struct or more than one, or an array is too large.
    """
    complete = set(NEEDED) <= set(shapes)
    structs = {} if complete else {name: fields(name) for name, (_, kind) in shapes.items() if kind == "struct"}
    holders = [name for name, found in structs.items() if set(NEEDED) <= set(found)]
    if len(holders) > 1:
        raise ValueError(f"structs {', '.join(holders)} hold an FRF set each, expected one")
    if not complete and not holders:
        missing = next(name for name in NEEDED if name not in shapes)
        raise ValueError(f"variable '{missing}' is missing, expected {', '.join(NEEDED)}; found {_listed(shapes)}")
    holder = holders[0] if holders else ""
    found = structs[holder] if holders else shapes
    names = [name for name in ARRAY_NAMES if name in found]
    for name in names:
        size = int(np.prod([float(n) for n in found[name][0]]))
        if size > LARGEST_SET:
            raise ValueError(f"variable '{name}' claims {size} entries, expected at most {LARGEST_SET}")
    return holder, names


def as_arrays(variables: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Variables with the shapes that they have in an FRF set.

    Vectors may lie or stand; a 2-D `frf` is [f, output] of one input, as MATLAB has no axes of one entry at the end.

    Raises:
        ValueError: text stands for numbers or the reverse, or the axes of `frf` are in another order.
    """
    arrays = {name: _as_array(name, value) for name, value in variables.items()}
    h, size = arrays["frf"], arrays["frequency_hz"].size
    if h.ndim == 2 and h.shape == (1, size):
        h = h.T
    while h.ndim < 3:
        h = h[..., None]
    if h.shape[0] != size and size in h.shape:
        raise ValueError(
            f"frf has shape {h.shape}, its axis {h.shape.index(size) + 1} as long as frequency_hz,"
            f" expected [f, output, input]: permute it"
        )
    return arrays | {"frf": h}


def _as_array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, dict):
        kind = next((n.strip("()") for n, x in value.items() if x is None), "struct")
        raise ValueError(f"variable '{name}' is a {kind}, expected numbers, text or a column cell of texts")
    is_text = not isinstance(value, np.ndarray)
    if name not in TEXTS + LISTS:
        if is_text:
            raise ValueError(f"variable '{name}' holds text, expected numbers")
        return value.reshape(-1) if name in VECTORS and 1 in value.shape else value
    if not is_text:
        if value.size:
            raise ValueError(f"variable '{name}' holds numbers, expected text")
        value = ""
    if name in TEXTS:
        if not isinstance(value, str):
            raise ValueError(f"variable '{name}' holds {len(value)} texts, expected one")
        return np.array(value, dtype=str)
    texts = ([value] if value else []) if isinstance(value, str) else value
    # A matrix of characters has rows of one length, filled up with blanks
    return np.array([text.rstrip() for text in texts], dtype=str)


def _listed(shapes: Shapes) -> str:
    """Variables with their shapes and classes, for a message."""
    words = [f"{name} ({'x'.join(map(str, shape))} {kind})" for name, (shape, kind) in shapes.items()]
    more = f" and {len(words) - LISTED} more" if len(words) > LISTED else ""
    return ", ".join(words[:LISTED]) + more if words else "none"
