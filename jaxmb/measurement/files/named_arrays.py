"""An FRF set as named arrays, the common content of NPZ and MATLAB files."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxmb.measurement.frf_set import FrfSet, repeated

NEEDED = ("frequency_hz", "frf", "kind")
OPTIONAL = (
    "coherence", "outputs", "inputs", "unit", "averages", "decay_1_s",
    "posture_names", "posture_values", "node_names", "node_positions", "source",
)  # fmt: skip
ARRAY_NAMES = NEEDED + OPTIONAL
LARGEST_SET = 50_000_000
"""Largest number of complex values in one set (800 MB); a larger file is rejected before it is read."""


def set_from_arrays(arrays: Mapping[str, np.ndarray], source: str) -> FrfSet:
    """FRF set from arrays by name, `frequency_hz` [f], `frf` [f, output, input], `kind`, and the optional ones.

    Args:
        arrays: by name; strings are string arrays.
        source: origin of the arrays, unless they specify it.

    Raises:
        ValueError: an array has a wrong shape or type, or the arrays are inconsistent.
    """
    posture_names = _texts(arrays, "posture_names")
    posture_values = _vector(arrays, "posture_values", len(posture_names))
    node_names = _texts(arrays, "node_names")
    positions = arrays.get("node_positions", np.zeros((0, 3)))
    if positions.shape != (len(node_names), 3):
        raise ValueError(f"node_positions has shape {positions.shape}, expected ({len(node_names)}, 3) as node_names")
    for name, names in (("posture_names", posture_names), ("node_names", node_names)):
        twice = repeated(names)
        if twice is not None:
            raise ValueError(f"{name} holds '{twice}' more than once")
    return FrfSet(
        frequency_hz=arrays["frequency_hz"],
        frf=arrays["frf"],
        kind=_text(arrays["kind"], "kind"),  # pyright: ignore[reportArgumentType]  (checked by FrfSet)
        outputs=_texts(arrays, "outputs"),
        inputs=_texts(arrays, "inputs"),
        coherence=arrays.get("coherence"),
        averages=_whole(arrays["averages"], "averages") if "averages" in arrays else None,
        decay_1_s=_number(arrays["decay_1_s"], "decay_1_s") if "decay_1_s" in arrays else 0.0,
        unit=_text(arrays["unit"], "unit") if "unit" in arrays else "",
        posture=dict(zip(posture_names, posture_values, strict=True)),
        nodes={name: tuple(_real(x, "node_positions").tolist()) for name, x in zip(node_names, positions, strict=True)},  # pyright: ignore[reportArgumentType]  (three of them)
        source=_text(arrays["source"], "source") if "source" in arrays else source,
    )


def arrays_of_set(frf_set: FrfSet) -> dict[str, np.ndarray]:
    """The arrays of a set by name, inverse of `set_from_arrays`."""
    arrays = {
        "frequency_hz": frf_set.frequency_hz,
        "frf": frf_set.frf,
        "kind": np.array(frf_set.kind),
        "outputs": np.array(frf_set.outputs),
        "inputs": np.array(frf_set.inputs),
        "unit": np.array(frf_set.unit),
        "decay_1_s": np.array(float(frf_set.decay_1_s)),
        "source": np.array(frf_set.source),
    }
    if frf_set.coherence is not None:
        arrays["coherence"] = frf_set.coherence
    if frf_set.averages is not None:
        arrays["averages"] = np.array(frf_set.averages)
    if frf_set.posture:
        arrays["posture_names"] = np.array(list(frf_set.posture))
        arrays["posture_values"] = np.array(list(frf_set.posture.values()))
    if frf_set.nodes:
        arrays["node_names"] = np.array(list(frf_set.nodes))
        arrays["node_positions"] = np.array(list(frf_set.nodes.values()))
    return arrays


def _text(array: np.ndarray, name: str) -> str:
    if array.size != 1 or array.dtype.kind not in "US":
        raise ValueError(f"{name} is an array of {array.dtype} with {array.size} entries, expected one text")
    return str(array.reshape(()).astype(str))


def _texts(arrays: Mapping[str, np.ndarray], name: str) -> tuple[str, ...]:
    if name not in arrays:
        return ()
    array = arrays[name]
    if array.dtype.kind not in "US" or not (array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 2)):
        raise ValueError(f"{name} is an array of {array.dtype} of shape {array.shape}, expected a list of texts")
    return tuple(" ".join(map(str, x)) if array.ndim == 2 else str(x) for x in array.astype(str))


def _vector(arrays: Mapping[str, np.ndarray], name: str, size: int) -> tuple[float, ...]:
    array = _real(arrays.get(name, np.zeros(0)), name)
    if array.shape != (size,):
        raise ValueError(f"{name} has shape {array.shape}, expected ({size},) as posture_names")
    return tuple(array.tolist())


def _number(array: np.ndarray, name: str) -> float:
    if array.size != 1:
        raise ValueError(f"{name} has {array.size} entries, expected one number")
    return float(_real(array, name).reshape(()))


def _whole(array: np.ndarray, name: str) -> int:
    value = _number(array, name)
    if not value.is_integer():
        raise ValueError(f"{name} is {value}, expected a whole number")
    return int(value)


def _real(array: np.ndarray, name: str) -> np.ndarray:
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name} is an array of {array.dtype}, expected real numbers")
    return array.astype(float)


TEXTS = ("kind", "unit", "source")
LISTS = ("outputs", "inputs", "posture_names", "node_names")
VECTORS = ("frequency_hz", "posture_values")
LISTED = 12

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Shape and class of variables by name."""
Choice = Callable[[Shapes, Callable[[str], Shapes]], tuple[str, list[str]]]
"""Function of the shapes of all variables and of the fields of a struct; returns the struct that holds the selected
variables ("" for the file itself) and their names."""


def those_of_a_set(shapes: Shapes, fields: Callable[[str], Shapes]) -> tuple[str, list[str]]:
    """The struct that holds the set ("" for the file itself), and the names of its arrays.

    Args:
        shapes: of the variables of the file.
        fields: shapes of the fields of a struct, by its name.

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


def as_arrays(variables: Mapping[str, object]) -> dict[str, np.ndarray]:
    """Variables with the shapes of an FRF set.

    Vectors may be rows or columns; a 2-D `frf` is [f, output] of one input, as MATLAB drops trailing axes of size 1.

    Raises:
        ValueError: text is found instead of numbers or the reverse, or the axes of `frf` are in another order.
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
