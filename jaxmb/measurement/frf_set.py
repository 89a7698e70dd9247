"""Measured frequency responses as one immutable, validated set, with conversions and selections."""

import dataclasses
import functools
import math
import re
import tokenize
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from jaxmb.io.validation import (
    check_distinct,
    error_location,
    finite_number,
    known_name,
    shown,
    suggestion,
    whole_number,
)
from jaxmb.response.frf_kind import ALL_DIRECTIONS, DERIVATIVES, FrfKind, check_kind

if TYPE_CHECKING:
    import pint

SI_UNITS: Mapping[FrfKind, str] = {"receptance": "m/N", "mobility": "m/s/N", "accelerance": "m/s^2/N"}
"""Unit of a response to a force in SI; rotations and moments have rad for m and N m for N."""
LONGEST_UNIT = 80
NO_UNIT = (
    ValueError, TypeError, AttributeError, ArithmeticError, LookupError, RuntimeError, AssertionError, SyntaxError,
    tokenize.TokenError,
)  # fmt: skip
"""Exceptions that pint raises, besides its own, on a string that is no unit."""
UNKNOWN = "unknown"
"""Unit of responses whose sensor or force transducer is not specified in the file."""


def unit_scale(unit: str, kind: FrfKind) -> float:
    """Factor from `unit` to the SI unit of `kind`: 9.80665 for "g/N" and accelerance.

    A digit after a letter is an exponent: "m/s2/N" is "m/s^2/N"; "ms-2" is "m/s^2".

    Raises:
        ValueError: the unit is invalid, or not that of the kind.
    """
    wanted = SI_UNITS[kind]
    if unit == wanted:
        return 1.0
    import pint  # imported here: its import takes a third of a second

    if len(unit) > LONGEST_UNIT:
        raise ValueError(f"unit '{unit[:20]}...' has {len(unit)} characters, expected one such as '{wanted}'")
    try:
        return float(_registry().Quantity(1.0, _spelt(unit)).to(wanted).magnitude)
    except (pint.PintError, *NO_UNIT) as error:
        reason = "" if isinstance(error, pint.DimensionalityError) else f": {error}"
        raise ValueError(f"unit {unit!r} is not one of {kind} such as '{wanted}'{reason}") from None


def unit_over(above: str, below: str) -> str:
    """Unit of a response over that of a force, with brackets where needed: "g/N", "m/s^2/(N m)"."""
    return f"{above}/{below}" if re.fullmatch(r"[\w^]+", below) else f"{above}/({below})"


def same_unit(a: str, b: str, kind: FrfKind) -> bool:
    """Whether two units are equal, irrespective of spelling."""
    return a == b or (UNKNOWN not in (a, b) and math.isclose(unit_scale(a, kind), unit_scale(b, kind), rel_tol=1e-9))


def _spelt(unit: str) -> str:
    """A unit in pint's spelling; ValueError where pint would misread it."""
    if not unit.isprintable():
        raise ValueError("it holds a character that cannot be printed")
    if re.search(r"/\s*/", unit):
        raise ValueError("two slashes follow each other")
    if re.search(r"\bG\b", unit):
        raise ValueError("'G' is a unit of magnetism, did you mean 'g'?")
    unit = re.sub(r"\bms\^?-([12])\b", r"m s^-\1", unit)  # no measurement is per millisecond
    unit = re.sub(r"(?<=[A-Za-z])(?<![\d.][eE])(-?\d)", r"^\1", unit)
    if re.search(r"[\d)]\s*(\^|\*\*)", unit):  # 9^9^9 would be computed
        raise ValueError("a number has a power")
    return unit


@functools.cache
def _registry() -> "pint.UnitRegistry":
    import pint

    # g is the standard acceleration of gravity here, not the gram; kg is not a thousand of it
    registry = pint.UnitRegistry(cache_folder=None)
    registry.define("g = 9.80665 * meter / second**2")
    registry.define("kg = kilogram")
    return registry


def largest_of_rows(values: np.ndarray) -> np.ndarray:
    """Value of largest magnitude along the second axis [row, 1, ...]."""
    return np.take_along_axis(values, np.argmax(np.abs(values), axis=1, keepdims=True), axis=1)


def numbers(name: str, values: object, dtype: type) -> np.ndarray:
    """A copy of the values as an array of real or complex numbers; a read-only array is returned as it is."""
    if (
        isinstance(values, np.ndarray) and values.dtype == dtype and values.base is None
        and values.flags.c_contiguous and not values.flags.writeable
    ):  # fmt: skip
        return values
    try:
        array = np.array(values)
        if array.dtype.kind not in ("iuf" if dtype is float else "iufc"):
            raise ValueError(f"found {array.dtype}")
        return array.astype(dtype, order="C", copy=False)
    except (TypeError, ValueError) as error:
        what = "real" if dtype is float else "real or complex"
        raise ValueError(f"{name} does not hold {what} numbers: {error}") from None


def point_names(points: Sequence[str | tuple[str, str]] | None, count: int) -> tuple[str, ...]:
    """Names of degrees of freedom as strings, ("tool", "x") and "tool +x" as "tool x"; numbered from 1 where none are
    given.

    Raises:
        ValueError: it is no list of names.
    """
    points = () if points is None else points
    named = not isinstance(points, str) and isinstance(points, Iterable)
    if not named or not all(
        isinstance(point, Iterable) and all(isinstance(part, str) for part in point) for point in points
    ):
        raise ValueError(f"degrees of freedom are {points!r}, expected a list of names, such as ['tool z']")
    if len(points) == 0:
        return tuple(str(i + 1) for i in range(count))
    names = [point if isinstance(point, str) else " ".join(point) for point in points]
    dofs = zip(names, map(split_dof, names), strict=True)
    return tuple(f"{node} {direction}" if direction and sign > 0 else name for name, (node, direction, sign) in dofs)


def postures(posture: Mapping[str, float]) -> dict[str, float]:
    """Coordinates by name; ValueError where one is not finite."""
    if not isinstance(posture, Mapping):
        raise ValueError(f"posture is {shown(posture)}, expected a dict of coordinates with their values")
    return {str(name): finite_number(f"posture of '{name}'", value) for name, value in posture.items()}


def positions(nodes: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float, float]]:
    """Positions of nodes by name; ValueError where one is not three finite numbers."""
    if not isinstance(nodes, Mapping):
        raise ValueError(f"nodes are {shown(nodes)}, expected a dict of nodes with their positions")
    checked = {}
    for name, position in nodes.items():
        values = numbers(f"position of node '{name}'", position, float)
        if values.shape != (3,) or not np.isfinite(values).all():
            raise ValueError(f"node '{name}' is at {values.tolist()}, expected three finite coordinates")
        checked[str(name)] = tuple(values.tolist())
    return checked


def lines_through(
    trace_lines: Sequence[str | Sequence[str]], nodes: Mapping[str, object]
) -> tuple[tuple[str, ...], ...]:
    """Lines through nodes, each a list of names or a text as "1; 2; 3"; ValueError where a node has no position."""
    if isinstance(trace_lines, str) or not isinstance(trace_lines, Sequence):
        raise ValueError(f"trace_lines are {shown(trace_lines)}, expected a list of lines through nodes")
    found = [line.split(";") if isinstance(line, str) else line for line in trace_lines]
    for line in found:
        if not isinstance(line, Sequence) or len(line) < 2 or any(str(name).strip() not in nodes for name in line):
            raise ValueError(f"a trace line is {shown(line)}, expected at least two nodes that have positions")
    return tuple(tuple(str(name).strip() for name in line) for line in found)


def unbiased_coherence(coherence: np.ndarray, averages: int | None, inputs: int) -> np.ndarray:
    """Coherence corrected for its bias, (n c - q) / (n - q), at least 0.

    The expected coherence of n averages of noise uncorrelated with q inputs is q / n. The coherence is returned
    unchanged where the number of averages is not known or does not exceed the number of inputs.

    Args:
        coherence: 0 to 1, of any shape; NaN stays.
        averages: n, independent ones.
        inputs: q, number of inputs behind the coherence.

    Source: Bendat, Piersol, Random Data, 4th ed., 9.2.3; the adjusted coefficient of determination of regression.
    """
    if averages is None or averages <= inputs:
        return coherence
    return np.maximum((averages * coherence - inputs) / (averages - inputs), 0.0)


def chance_correlation(averages: int | None, inputs: int) -> float:
    """(n - 1) / (n - q), by which the variance of H grows where n averages of q independent random inputs are
    correlated by chance; 1 where the number of averages is not known or does not exceed the number of inputs.

    The part of an input that the others do not explain is a share of beta distribution (n - q + 1, q - 1) of its
    spectrum; the factor is the mean of the reciprocal.
    """
    return (averages - 1) / (averages - inputs) if averages is not None and averages > inputs else 1.0


def of_each_input(coherence: np.ndarray, frf: np.ndarray, averages: int | None) -> np.ndarray:
    """Coherence [f, output, input] of each single response.

    An ordinary coherence is returned unchanged. A multiple coherence c [f, output] relates the noise of an output to
    its response to all q inputs; relative to the response to one input of the same spectrum that noise is larger by

        share = sum_k |H_ok|^2 / |H_oi|^2,    c_oi = 1 / (1 + share (1 - c) / c ((n - 1) / (n - q))^2),

    where the last factor, used if n averages are known, corrects the bias of a coherence of q inputs and of one, and
    for the correlation by chance of q independent inputs (see `chance_correlation`). 0 where a response is 0, NaN where
    it or the coherence is not known.

    Args:
        coherence: [f, output] or [f, output, input].
        frf: responses [f, output, input] of all inputs behind the coherence.
        averages: independent ones, where known.
    """
    if coherence.ndim == 3:
        return coherence
    inputs = frf.shape[2]
    size = np.abs(frf)
    known = np.isfinite(size)
    power = np.where(known, size, 0.0) ** 2
    c = coherence[:, :, None]
    signal, noise = c * power, (1.0 - c) * chance_correlation(averages, inputs) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(signal == 0.0, 0.0, signal / (signal + noise * power.sum(axis=2, keepdims=True)))
    return np.where(known, each, np.nan)


LARGEST = 1e100
"""Largest magnitude accepted as a response; the square of a larger one could overflow."""


@dataclasses.dataclass(frozen=True, eq=False)
class FrfSet:
    """Frequency responses [freq, output, input] for e^(+j omega t) with their kind, unit, names and coherence.

    Values that are not finite are kept; `finite` marks the others, and functions that use a set mask and report them.
    """

    frequency_hz: np.ndarray
    frf: np.ndarray
    kind: FrfKind
    outputs: tuple[str, ...] = ()
    """Degree of freedom of each output, node and direction: "tool x", "12 -z" for a sensor mounted against the axis,
    "12 rx" for a rotation (("tool", "x") and "tool +x" are kept as "tool x"); numbered where not known."""
    inputs: tuple[str, ...] = ()
    coherence: np.ndarray | None = None
    """[freq, output] or [freq, output, input], 0 to 1, where measured."""
    averages: int | None = None
    """Independent averages behind the responses and their coherence, where known."""
    decay_1_s: float = 0.0
    """Decay rate sigma of an exponential window applied to the records, 1/s: the responses are H(j omega + sigma)."""
    unit: str = ""
    """Unit of the stored responses, "m/s^2/N", "g/lbf" or "unknown"; the SI unit of the kind where not given."""
    posture: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """Joint coordinates of the machine during the measurement, rad or m, where known."""
    nodes: Mapping[str, tuple[float, float, float]] = dataclasses.field(default_factory=dict)
    """Positions of the nodes named by outputs and inputs, m, in axes of the measurement, where known."""
    source: str = ""
    """Origin of the set (file or measurement), for messages and results."""
    trace_lines: tuple[tuple[str, ...], ...] = ()
    """Lines through nodes by which the structure is drawn."""

    def __post_init__(self) -> None:
        """Check and freeze.

        Raises:
            ValueError: shapes, kind, frequency axis or coherence are invalid or inconsistent.
        """
        frequency_hz = numbers("frequency_hz", self.frequency_hz, float)
        h = numbers("frf", self.frf, complex)
        if frequency_hz.ndim != 1 or frequency_hz.size == 0:
            raise ValueError(f"frequency_hz has shape {frequency_hz.shape}, expected one axis of at least one line")
        if h.ndim != 3 or h.shape[0] != frequency_hz.size or 0 in h.shape:
            raise ValueError(
                f"frf has shape {h.shape}, expected ({frequency_hz.size}, outputs, inputs) for"
                f" {frequency_hz.size} frequencies"
            )
        if not np.isfinite(frequency_hz).all():
            raise ValueError(
                f"frequency_hz holds {frequency_hz[~np.isfinite(frequency_hz)][0]}, expected finite numbers"
            )
        if frequency_hz[0] < 0.0:
            raise ValueError(f"frequency_hz starts at {frequency_hz[0]:g} Hz, expected 0 or more")
        falling = np.flatnonzero(frequency_hz[1:] <= frequency_hz[:-1])
        if falling.size:
            i = falling[0]
            raise ValueError(
                f"frequency_hz is not increasing: line {i + 2} is {frequency_hz[i + 1]:g} Hz"
                f" after {frequency_hz[i]:g} Hz"
            )
        check_kind(self.kind)
        for name, text in (("unit", self.unit), ("source", self.source)):
            if not isinstance(text or "", str):
                raise ValueError(f"{name} is {shown(text)}, expected a text")
        outputs = point_names(self.outputs, h.shape[1])
        inputs = point_names(self.inputs, h.shape[2])
        if (len(outputs), len(inputs)) != h.shape[1:]:
            raise ValueError(
                f"frf has {h.shape[1]} outputs and {h.shape[2]} inputs, but {len(outputs)} and {len(inputs)} names"
            )
        for what, names in (("outputs", outputs), ("inputs", inputs)):
            check_distinct(names, f"{what} hold '{{}}' more than once, expected different degrees of freedom")
        coherence = None if self.coherence is None else numbers("coherence", self.coherence, float)
        if coherence is not None and coherence.shape not in (h.shape, h.shape[:2]):
            raise ValueError(f"coherence has shape {coherence.shape}, expected {h.shape[:2]} or {h.shape}")
        if coherence is not None and not np.all((coherence >= 0.0) & (coherence <= 1.0) | np.isnan(coherence)):
            raise ValueError("coherence holds values outside 0 to 1")
        averages = self.averages
        if averages is not None:
            is_whole = isinstance(averages, float) and averages.is_integer()  # as of MATLAB
            averages = whole_number("averages", int(averages) if is_whole else averages, 1)
        decay_1_s = finite_number("decay_1_s", self.decay_1_s, least=0.0)
        parts = h.view(float)
        finite = np.isfinite(parts)
        if max(parts.max(where=finite, initial=0.0), -parts.min(where=finite, initial=0.0)) > LARGEST:
            raise ValueError(f"frf holds numbers above {LARGEST:g}, expected a response in SI units")
        for name, value in (
            ("frequency_hz", frequency_hz),
            ("frf", h),
            ("outputs", outputs),
            ("inputs", inputs),
            ("coherence", coherence),
            ("averages", averages),
            ("decay_1_s", decay_1_s),
            ("unit", self.unit or SI_UNITS[self.kind]),
            ("posture", MappingProxyType(postures(self.posture))),
            ("nodes", MappingProxyType(nodes := positions(self.nodes))),
            ("trace_lines", lines_through(self.trace_lines, nodes)),
        ):
            if isinstance(value, np.ndarray):
                value.setflags(write=False)
            object.__setattr__(self, name, value)

    @property
    def finite(self) -> np.ndarray:
        """Mask [freq, output, input] of the finite values."""
        return np.isfinite(self.frf)


def check_same(found: FrfSet, expected: FrfSet, fields: Iterable[str], label: str, reference: str) -> None:
    """Raise ValueError for the first field in which a set, "hit 3", differs from a reference, "the averages"."""
    for field in fields:
        a, b = getattr(expected, field), getattr(found, field)
        if a != b:
            raise ValueError(f"{field} of {label} is {b!r}, expected {a!r} as in {reference}")


def check_phase(frf_set: FrfSet) -> None:
    """Raise ValueError where no FRF has a phase: all are real and of one sign, as magnitudes, linear or in dB."""
    finite = frf_set.frf[frf_set.finite]
    if not np.imag(finite).any() and np.unique(np.sign(np.real(finite[finite != 0.0]))).size == 1:
        raise ValueError("all FRFs are real and of one sign, as magnitudes or dB: expected complex values")


class FrfLabels(TypedDict, total=False):
    """Keyword arguments of the estimators that become fields of the `FrfSet`."""

    kind: FrfKind
    """Kind of the responses: "receptance", "mobility" or "accelerance" (default)."""
    outputs: Sequence[str]
    """Degrees of freedom of the responses, as "12 x"; numbered where not given."""
    inputs: Sequence[str]
    """Degrees of freedom of the forces."""
    unit: str
    """Unit of the responses over that of the forces; SI where not given, or "unknown"."""
    posture: Mapping[str, float] | None
    """Coordinates of the machine, rad or m."""
    nodes: Mapping[str, tuple[float, float, float]] | None
    """Positions of the nodes, m."""
    trace_lines: Sequence[Sequence[str]]
    """Lines through nodes by which the structure is drawn."""
    source: str
    """Name of the set in messages."""


def labelled(frf_set: FrfSet, labels: FrfLabels) -> FrfSet:
    """The set with the given labels; those that are None stay as they are.

    Raises:
        TypeError: a label does not exist.
        ValueError: a label is invalid.
    """
    for name in labels.keys() - FrfLabels.__annotations__.keys():
        raise TypeError(known_name("argument", name, FrfLabels.__annotations__))
    return dataclasses.replace(frf_set, **{name: value for name, value in labels.items() if value is not None})


def band_of(band_hz: Sequence[float], least: float = -np.inf) -> tuple[float, float]:
    """Band as (low, high), Hz.

    Raises:
        ValueError: it is not two finite frequencies of at least `least`, the lower end first.
    """
    if np.shape(band_hz) != (2,):
        raise ValueError(f"band_hz is {band_hz!r}, expected a low and a high frequency")
    low, high = (finite_number("band_hz", end, least=least) for end in band_hz)
    if not low < high:
        raise ValueError(f"band_hz is {low:g} to {high:g} Hz, expected the lower end first")
    return low, high


def lines_within(frequency_hz: np.ndarray, low: float, high: float) -> np.ndarray:
    """Mask [f] of the lines from low to high, ends included up to rounding, Hz."""
    slack = 1e-9 * max(abs(low), abs(high), 1.0)
    return (frequency_hz >= low - slack) & (frequency_hz <= high + slack)


def in_band(frf_set: FrfSet, band_hz: Sequence[float]) -> FrfSet:
    """The lines of a set within [low, high] Hz, ends included.

    Raises:
        ValueError: the band is reversed or holds no line.
    """
    low, high = band_of(band_hz)
    keep = lines_within(frf_set.frequency_hz, low, high)
    if not keep.any():
        raise ValueError(
            f"no line of the FRF lies in {low:g} to {high:g} Hz:"
            f" its lines are {frf_set.frequency_hz[0]:g} to {frf_set.frequency_hz[-1]:g} Hz"
        )
    return select_lines(frf_set, keep)


def split_dof(name: str) -> tuple[str, str, int]:
    """Node, direction and sign (+1 or -1) of a degree of freedom such as "tool x", "tool +x" or "12 -rz"; the whole
    name, "" and 1 where it does not end in a direction."""
    node, _, axis = name.rpartition(" ")
    direction = axis[1:] if axis.startswith(("-", "+")) else axis
    if not node or direction not in ALL_DIRECTIONS:
        return name, "", 1
    return node, direction, -1 if axis.startswith("-") else 1


def dof_indices(names: Sequence[str]) -> dict[tuple[str, str], tuple[int, int]]:
    """Index and sign by node and direction; names without a direction are skipped."""
    return {
        (node, direction): (i, sign) for i, (node, direction, sign) in enumerate(map(split_dof, names)) if direction
    }


def as_kind(frf_set: FrfSet, kind: FrfKind) -> FrfSet:
    """The responses converted to another kind by a power of s = j omega + decay; in SI units.

    A line at s = 0 is omitted where the conversion integrates; `convert_frf`, whose array has no frequencies of its
    own, refuses it.

    Raises:
        ValueError: the kind is unknown, the unit is unknown or not that of the kind, or no line remains.
    """
    frf_set = to_si(frf_set)
    power = check_kind(kind) - DERIVATIVES[frf_set.kind]
    if power < 0 and frf_set.decay_1_s == 0.0 and frf_set.frequency_hz[0] == 0.0:
        frf_set = select_lines(frf_set, frf_set.frequency_hz > 0.0)
    s = 2j * np.pi * frf_set.frequency_hz + frf_set.decay_1_s
    return dataclasses.replace(frf_set, frf=frf_set.frf * (s**power)[:, None, None], kind=kind, unit=SI_UNITS[kind])


def to_si(frf_set: FrfSet) -> FrfSet:
    """The responses in SI units.

    Raises:
        ValueError: the unit is unknown, invalid, or not that of the kind.
    """
    si_unit = SI_UNITS[frf_set.kind]
    if frf_set.unit == si_unit:
        return frf_set
    if frf_set.unit == UNKNOWN:
        raise ValueError(f"the unit of '{frf_set.source}' is not known, expected one such as '{si_unit}'")
    with error_location(f"'{frf_set.source}'"):
        scale = unit_scale(frf_set.unit, frf_set.kind)
    return dataclasses.replace(frf_set, frf=frf_set.frf * scale, unit=si_unit)


def select_channels(
    frf_set: FrfSet,
    outputs: Sequence[str | tuple[str, str]] | None = None,
    inputs: Sequence[str | tuple[str, str]] | None = None,
) -> FrfSet:
    """Selected outputs and inputs of a set, in the order given; "tool -x" is "tool x" with its sign reversed.

    A multiple coherence is converted to one of each input where inputs are omitted (`of_each_input`).

    Raises:
        ValueError: a degree of freedom is missing from the set or ambiguous.
    """
    outputs = frf_set.outputs if outputs is None else point_names(outputs, 0)
    inputs = frf_set.inputs if inputs is None else point_names(inputs, 0)
    rows, row_signs = _indices("output", frf_set.outputs, outputs)
    columns, column_signs = _indices("input", frf_set.inputs, inputs)
    if outputs == frf_set.outputs and inputs == frf_set.inputs:
        return frf_set
    picked = frf_set.frf[:, rows][:, :, columns]
    coherence = frf_set.coherence
    if coherence is not None:
        if coherence.ndim == 2 and len(set(columns)) < len(frf_set.inputs):
            # the noise of an output stays, but its response to the omitted inputs is gone
            coherence = of_each_input(coherence, frf_set.frf, frf_set.averages)
        coherence = coherence[:, rows] if coherence.ndim == 2 else coherence[:, rows][:, :, columns]
    return dataclasses.replace(
        frf_set,
        # no product with -1, which turns infinite complex values into NaN
        frf=np.where(row_signs[:, None] * column_signs < 0.0, -picked, picked),
        outputs=outputs,
        inputs=inputs,
        coherence=coherence,
    )


def select_lines(frf_set: FrfSet, keep: np.ndarray) -> FrfSet:
    """Selected lines of a set, by mask or index [f]."""
    coherence = None if frf_set.coherence is None else frf_set.coherence[keep]
    return dataclasses.replace(
        frf_set, frequency_hz=frf_set.frequency_hz[keep], frf=frf_set.frf[keep], coherence=coherence
    )


def _indices(what: str, names: tuple[str, ...], selected: Sequence[str]) -> tuple[list[int], np.ndarray]:
    """Indices of degrees of freedom, and -1 for those whose sign is reversed."""
    indices, signs = [], []
    for name in selected:
        among = [name] if name in names else names  # "3 x" beside "3 -x": hit from both sides
        candidates = [(names.index(known), sign) for known in among if (sign := _relative_sign(name, known))]
        if len(candidates) != 1:
            how_often = "more than once" if candidates else "not"
            hint = suggestion(name, names) or ","
            raise ValueError(f"{what} '{name}' is {how_often} in the set{hint} expected one of {', '.join(names[:20])}")
        indices.append(candidates[0][0])
        signs.append(candidates[0][1])
    return indices, np.array(signs)


def _relative_sign(name: str, known: str) -> float:
    """1 for the same degree of freedom, -1 for the same with its sign reversed, 0 for another one."""
    (*dof, sign), (*other, known_sign) = split_dof(name), split_dof(known)
    return float(sign * known_sign) if dof == other else 0.0
