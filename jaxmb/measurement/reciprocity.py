"""Reciprocity of a set of frequency responses, its enforcement, and sets stacked along their inputs."""

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from jaxmb.io.validation import check_choice, check_distinct
from jaxmb.measurement.frf_set import FrfSet, check_same, dof_indices, of_each_input, split_dof

Keep = Literal["mean", "upper", "lower"]


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two cross responses that are equal by reciprocity: H_ab, and H_ba with the signs of the dofs."""

    name: str
    """"12 x / 3 z": the two degrees of freedom, without sign."""
    upper: tuple[int, int]
    """(output, input) of the one whose output comes first in the set."""
    lower: tuple[int, int]
    sign: float
    """H_upper = sign H_lower, from the signs of the four degrees of freedom."""


def reciprocal_pairs(frf_set: FrfSet) -> tuple[Pair, ...]:
    """Pairs of cross responses H_ab, H_ba of a set, matched by the names of their dofs.

    "12 -x" is the degree of freedom "12 x" with its sign reversed. Names that are no degrees of freedom (numbers, say)
    match nothing: an equal index is not an equal degree of freedom.

    Raises:
        ValueError: a degree of freedom occurs twice among the outputs, or among the inputs.
    """
    for what, names in (("output", frf_set.outputs), ("input", frf_set.inputs)):
        dofs = [" ".join(split_dof(name)[:2]) for name in names]
        check_distinct(dofs, f"{what} '{{}}' occurs twice in the set, expected once")
    outputs, inputs = dof_indices(frf_set.outputs), dof_indices(frf_set.inputs)
    both = [dof for dof in outputs if dof in inputs]
    pairs = []
    for a, b in itertools.combinations(both, 2):
        (row_a, sign_a), (row_b, sign_b) = outputs[a], outputs[b]
        (column_a, turn_a), (column_b, turn_b) = inputs[a], inputs[b]
        sign = sign_a * turn_b * sign_b * turn_a
        pairs.append(Pair(f"{' '.join(a)} / {' '.join(b)}", (row_a, column_b), (row_b, column_a), sign))
    return tuple(pairs)


def kept_of_pairs(frf_set: FrfSet, keep: Keep | Sequence[str]) -> list[tuple[Pair, Keep]]:
    """Pairs of cross responses, each with the one that is kept: "upper", "lower" or their "mean".

    Args:
        frf_set: with degrees of freedom as names.
        keep: one choice for all pairs, or a list of the responses to keep, "12 x / 3 z" (output / input), at most one
            of a pair; the mean is kept of the other pairs.

    Raises:
        ValueError: a named response has no reciprocal partner, or both of a pair are named.
    """
    pairs = reciprocal_pairs(frf_set)
    if isinstance(keep, str):
        check_choice("keep", keep, get_args(Keep))
        return [(pair, kept) for pair in pairs for kept in get_args(Keep) if kept == keep]
    known: dict[str, tuple[Pair, Keep]] = {}
    for pair in pairs:
        a, b = pair.name.split(" / ")
        known |= {f"{a} / {b}": (pair, "upper"), f"{b} / {a}": (pair, "lower")}
    chosen: dict[str, Keep] = {}
    for name in keep:
        pair, kept = known.get(" / ".join(part.strip() for part in name.split("/")), (None, "mean"))
        if pair is None:
            raise ValueError(f"response '{name}' was not measured both ways, expected one of {', '.join(known)}")
        if pair.name in chosen:
            raise ValueError(f"response '{name}': the pair {pair.name} is named twice, expected one of the two")
        chosen[pair.name] = kept
    return [(pair, chosen.get(pair.name, "mean")) for pair in pairs]


def unsymmetry(frf_set: FrfSet) -> dict[str, float]:
    """Deviation of each pair of cross responses from reciprocity, 0 to 1, by the names of the two dofs.

    d = sqrt(sum |H_ab - H_ba|^2 / (2 sum (|H_ab|^2 + |H_ba|^2))) over the lines at which both are finite: 0 where they
    are equal, 1 where one is minus the other, 0.71 where they are uncorrelated, half the relative difference where
    they are close. It is the norm of the skew-symmetric part over that of the pair.

    Raises:
        ValueError: the set has no pair of cross responses.
    """
    return {pair.name: _distance(*_parts(frf_set, [pair])) for pair in _some_pairs(frf_set)}


def total_unsymmetry(frf_set: FrfSet) -> float:
    """The measure of `unsymmetry` over all pairs together: norm of the skew-symmetric part over that of all pairs.

    Raises:
        ValueError: the set has no pair of cross responses.
    """
    return _distance(*_parts(frf_set, _some_pairs(frf_set)))


def symmetrize(frf_set: FrfSet, keep: Keep | Sequence[str] = "mean") -> FrfSet:
    """The set with each pair of cross responses made equal; responses without a partner are unchanged.

    Args:
        frf_set: with degrees of freedom as names.
        keep: "upper" keeps the response whose output comes first in the set, "lower" the other one, "mean" the mean of
            both; a list names the response to keep of each pair (`kept_of_pairs`).

    Returns:
        The set. Its coherence, if any, is [freq, output, input]: that of the response kept, or the smaller of the two
        for their mean; a multiple coherence is converted to one of each input first (`of_each_input`).

    Raises:
        ValueError: `keep` is none of these, or the set has no pair of cross responses.

    Source: Huynh et al. 2020, 5.3, which keeps one of each pair of cross responses.
    """
    _some_pairs(frf_set)
    h = frf_set.frf.copy()
    known = frf_set.coherence
    coherence = None if known is None else of_each_input(known, h, frf_set.averages).copy()
    for pair, kept_one in kept_of_pairs(frf_set, keep):
        (i, j), (k, m) = pair.upper, pair.lower
        upper, lower = h[:, i, j].copy(), _signed(h[:, k, m], pair.sign)
        with np.errstate(invalid="ignore"):
            kept = {"upper": upper, "lower": lower, "mean": 0.5 * (upper + lower)}[kept_one]
        h[:, i, j], h[:, k, m] = kept, _signed(kept, pair.sign)
        if coherence is not None:
            a, b = coherence[:, i, j].copy(), coherence[:, k, m].copy()
            coherence[:, i, j] = coherence[:, k, m] = {"upper": a, "lower": b, "mean": np.minimum(a, b)}[kept_one]
    return dataclasses.replace(frf_set, frf=h, coherence=coherence)


def stack_inputs(sets: Sequence[FrfSet]) -> FrfSet:
    """One set from several measured in turn at different inputs, as with a roving hammer.

    Returns:
        The sets stacked along their inputs, with coherence [freq, output, input] where each has one (a multiple
        coherence converted by `of_each_input`) and the smallest number of averages.

    Raises:
        ValueError: the list is empty, or two sets differ in lines, kind, unit, outputs, posture or exponential window,
            or share an input.
    """
    if not sets:
        raise ValueError("there are no sets to join, expected at least one")
    first = sets[0]
    for number, other in enumerate(sets[1:], 2):
        check_same(other, first, ("kind", "unit", "outputs", "decay_1_s", "posture"), f"set {number}", "set 1")
        if first.frequency_hz.shape != other.frequency_hz.shape or not np.allclose(
            first.frequency_hz, other.frequency_hz, rtol=1e-9, atol=0.0
        ):
            raise ValueError(f"set {number} has other lines than set 1, expected the same")
    inputs = tuple(name for each in sets for name in each.inputs)
    check_distinct(inputs, "input '{}' occurs in more than one set, expected different inputs")
    known = [of_each_input(x.coherence, x.frf, x.averages) for x in sets if x.coherence is not None]
    averages = [each.averages for each in sets if each.averages is not None]
    return dataclasses.replace(
        first,
        frf=np.concatenate([each.frf for each in sets], axis=2),
        inputs=inputs,
        coherence=np.concatenate(known, axis=2) if len(known) == len(sets) else None,
        averages=min(averages) if len(averages) == len(sets) else None,
        nodes={name: position for each in sets for name, position in each.nodes.items()},
        trace_lines=tuple(dict.fromkeys(line for each in sets for line in each.trace_lines)),
    )


def _some_pairs(frf_set: FrfSet) -> tuple[Pair, ...]:
    pairs = reciprocal_pairs(frf_set)
    if not pairs:
        raise ValueError(
            f"no response was measured both ways: outputs are {', '.join(frf_set.outputs[:8])}, inputs"
            f" {', '.join(frf_set.inputs[:8])}; expected two degrees of freedom that occur among both"
        )
    return pairs


def _parts(frf_set: FrfSet, pairs: Sequence[Pair]) -> tuple[np.ndarray, np.ndarray]:
    a = np.stack([frf_set.frf[:, pair.upper[0], pair.upper[1]] for pair in pairs])
    b = np.stack([_signed(frf_set.frf[:, pair.lower[0], pair.lower[1]], pair.sign) for pair in pairs])
    both = np.isfinite(a) & np.isfinite(b)
    return a[both], b[both]


def _signed(h: np.ndarray, sign: float) -> np.ndarray:
    """A copy with the sign applied; a product with -1 would turn infinite complex values into NaN."""
    return h.copy() if sign > 0.0 else -h


def _distance(a: np.ndarray, b: np.ndarray) -> float:
    size = np.sum(np.abs(a) ** 2 + np.abs(b) ** 2)
    return float(np.sqrt(np.sum(np.abs(a - b) ** 2) / (2.0 * size))) if size > 0.0 else 0.0
