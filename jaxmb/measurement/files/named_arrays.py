"""An FRF set as arrays by name, which NPZ and MATLAB files have alike."""

from collections.abc import Mapping

import numpy as np

from jaxmb.measurement.frf_set import FrfSet

NEEDED = ("frequency_hz", "frf", "kind")
OPTIONAL = (
    "coherence", "outputs", "inputs", "unit", "averages", "decay_1_s",
    "posture_names", "posture_values", "node_names", "node_positions", "source",
)  # fmt: skip
ARRAY_NAMES = NEEDED + OPTIONAL
LARGEST_SET = 50_000_000
"""Complex numbers in one set (800 MB): a file that claims more is refused before it is read."""


def set_from_arrays(arrays: Mapping[str, np.ndarray], source: str) -> FrfSet:
    """FRF set from arrays by name, `frequency_hz` [f], `frf` [f, output, input], `kind`, and the optional ones.

    Args:
        arrays: by name; texts are arrays of texts.
        source: where they come from, unless they say so themselves.

    Raises:
        ValueError: an array has another shape or type than it must have, or they are not those of one set.
    """
    posture_names = _texts(arrays, "posture_names")
    posture_values = _vector(arrays, "posture_values", len(posture_names))
    node_names = _texts(arrays, "node_names")
    positions = arrays.get("node_positions", np.zeros((0, 3)))
    if positions.shape != (len(node_names), 3):
        raise ValueError(f"node_positions has shape {positions.shape}, expected ({len(node_names)}, 3) as node_names")
    for name, names in (("posture_names", posture_names), ("node_names", node_names)):
        twice = sorted({x for x in names if names.count(x) > 1}) if len(names) != len(set(names)) else []
        if twice:
            raise ValueError(f"{name} holds '{twice[0]}' more than once")
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
    """The arrays of a set by name; `set_from_arrays` makes the same set of them."""
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
