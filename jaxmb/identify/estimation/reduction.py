"""Reduction of a rank-deficient linear model to one of full rank with the same predictions.

Applies to any observation matrix A with named columns. Steps are affine maps between the parameters before and after,
so that each parameter of the original model can be traced to the reduced one.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float
from scipy.special import fdtri

from jaxmb.identify.estimation.identifiability import COUPLED, RANK_TOLERANCE, components, scaled_svd
from jaxmb.io.validation import check_known

INDEPENDENT = 1e-3
"""Smallest distance of a scaled column from the span of those chosen before it, for a choice by preference."""


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One reduction of the parameters of a linear model."""

    name: str
    before: tuple[str, ...]
    names: tuple[str, ...]
    """Names after the step."""
    expand: Float[np.ndarray, "before after"]
    """before = expand after + constant is one set of parameters with the same predictions."""
    reduce: Float[np.ndarray, "after before"]
    """after = reduce (before - constant): A' reduce x = A x, A' = A expand, for admissible x."""
    constant: Float[np.ndarray, "before"]
    """Fixed values of the eliminated parameters."""
    exact: bool
    """Whether any x is admissible, else only x that satisfy the assumption of the step (a symmetric compliance ...)."""


def selection_step(
    name: str,
    before: Sequence[str],
    kept: Sequence[int],
    constants: Mapping[str, float] | None = None,
    exact: bool = True,
) -> Step:
    """Step that keeps some parameters and fixes the others.

    Args:
        name: of the step.
        before: names of the parameters before it.
        kept: indices of the kept ones.
        constants: values of the others, default: 0.
        exact: see `Step`.
    """
    expand = np.eye(len(before))[:, kept]
    fixed = dict.fromkeys(before, 0.0) | dict(constants or {}) | {before[i]: 0.0 for i in kept}
    constant = np.array([fixed[parameter] for parameter in before])
    return Step(name, tuple(before), tuple(before[i] for i in kept), expand, expand.T.copy(), constant, exact)


@dataclasses.dataclass(frozen=True)
class Partition:
    """Columns of a linear model by identifiability."""

    rank: int
    identifiable: tuple[int, ...]
    """G1: identifiable separately."""
    nonidentifiable: tuple[int, ...]
    """G2: without effect on the data."""
    semi_identifiable: tuple[int, ...]
    """G3: identifiable only in combination."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Semi-identifiable columns that are coupled with each other and with no others."""

    columns: tuple[int, ...]
    rank: int


@dataclasses.dataclass(frozen=True, eq=False)
class Reduction:
    """A sequence of reduction steps, with the partition and groups behind the algebraic ones."""

    steps: tuple[Step, ...]
    partition: Partition
    """Partition of the columns before the algebraic steps, to which the groups refer as well."""
    groups: tuple[Group, ...]

    @property
    def original(self) -> tuple[str, ...]:
        """Names of the original model's parameters."""
        return self.steps[0].before

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the reduced model's parameters."""
        return self.steps[-1].names

    @property
    def counts(self) -> dict[str, int]:
        """Number of parameters of the original model and after each step."""
        return {"original": len(self.original)} | {step.name: len(step.names) for step in self.steps}

    @property
    def expand(self) -> Float[np.ndarray, "first last"]:
        """original = expand reduced + constant."""
        return functools.reduce(np.matmul, [step.expand for step in self.steps])

    @property
    def reduce(self) -> Float[np.ndarray, "last first"]:
        """reduced = reduce (original - constant)."""
        return functools.reduce(np.matmul, [step.reduce for step in reversed(self.steps)])

    @property
    def constant(self) -> Float[np.ndarray, "first"]:
        """Values of the original model's parameters for reduced parameters of 0."""
        constant = np.zeros(len(self.names))
        for step in reversed(self.steps):
            constant = step.expand @ constant + step.constant
        return constant

    def follow(self, name: str) -> dict[str, float]:
        """Reduced parameters that contain an original one, with its coefficient; empty if it has no effect."""
        column = self.reduce[:, self.original.index(name)]
        return {self.names[i]: float(column[i]) for i in np.flatnonzero(column)}


def reduction(
    matrix: Float[np.ndarray, "m d"],
    names: Sequence[str],
    preference: Mapping[str, float] | None = None,
    constants: Mapping[str, float] | None = None,
    before: Sequence[Step] = (),
) -> Reduction:
    """Reduction of a linear model to full rank with equal predictions: elimination (M4) and selection in groups (M5).

    The matrix should be in units of the noise. The numerical rank is that of the matrix with columns scaled to length
    1, counting singular values above 1e-10 of the largest.

    Args:
        matrix: A [m, d].
        names: of its columns.
        preference: priority by parameter; higher ones are preferably kept, default: 0. If None: length of the column.
        constants: fixed values of the eliminated parameters, default: 0; their effect must be subtracted from the data.
        before: steps that led to this matrix.

    Raises:
        ValueError: sizes differ, a name is unknown or used twice, a number is not finite, or near-dependent columns
            make the groups ambiguous.

    Source: Klimchik et al. 2014, section 3.2.
    """
    names = tuple(names)
    _check(matrix, names, preference, constants)
    parts = partition(matrix)
    groups = coupled_groups(matrix, parts)
    lengths = np.linalg.norm(matrix, axis=0)
    priority = lengths if preference is None else np.array([preference.get(name, 0.0) for name in names])
    kept = set(parts.identifiable).union(*(select(matrix, group, priority) for group in groups))
    remaining = sorted({*parts.identifiable, *parts.semi_identifiable})
    elimination = selection_step("M4", names, remaining, constants)
    position = {column: i for i, column in enumerate(remaining)}
    selection = _assignment(
        matrix[:, remaining], elimination.names, sorted(position[k] for k in kept),
        [tuple(position[c] for c in group.columns) for group in groups], constants,
    )  # fmt: skip
    return Reduction((*before, elimination, selection), parts, groups)


def partition(matrix: Float[np.ndarray, "m d"]) -> Partition:
    """Partition of the columns by the rows of V in A = U S V^T, columns of A scaled to length 1 (M4a): identifiable
    without a component in the null space, non-identifiable without one in the row space, semi-identifiable with both.

    Source: Klimchik et al. 2014, eq. 15-20.
    """
    svd = scaled_svd(matrix, RANK_TOLERANCE)
    effective = np.linalg.norm(svd.right[: svd.rank], axis=0) > COUPLED
    masks = (effective & ~svd.unknown, ~effective, effective & svd.unknown)
    return Partition(svd.rank, *(tuple(np.flatnonzero(mask).tolist()) for mask in masks))


def coupled_groups(matrix: Float[np.ndarray, "m d"], parts: Partition) -> tuple[Group, ...]:
    """Groups of semi-identifiable columns (M5a): connected by the rows of L = (V_r*)^-1 V_r^T, eq. 21.

    V_r* are rows of V_r that keep its rank, best conditioned first. Another choice gives another L with the same
    groups, the connected components of the dependence graph.

    Raises:
        ValueError: the groups violate the paper's conditions (b), that each keeps its rank without any one of its
            columns, or (c), that no other column is in its range: the rank is ambiguous due to rounding.
    """
    semi = np.array(parts.semi_identifiable, int)
    if not semi.size:
        return ()
    own = scaled_svd(matrix[:, semi], RANK_TOLERANCE)
    rows = own.right[: own.rank]
    star = independent_columns(rows, np.zeros(semi.size), own.rank)
    couplings = np.abs(np.linalg.solve(rows[:, star], rows)) > COUPLED
    # Columns with a component in the same row of L are coupled.
    members = components(couplings.T.astype(float) @ couplings.astype(float) > 0.0)
    groups = [_group(matrix, semi[part], parts) for part in members]
    if sum(group.rank for group in groups) + len(parts.identifiable) != parts.rank:
        raise ValueError(
            f"the {len(groups)} groups of coupled parameters have {sum(group.rank for group in groups)} independent"
            f" columns and the matrix has rank {parts.rank}, with {len(parts.identifiable)} separately identifiable"
            " columns: the columns are too close to dependent to determine groups"
        )
    return tuple(groups)


def select(
    matrix: Float[np.ndarray, "m d"],
    group: Group,
    preference: Float[np.ndarray, "d"],
) -> tuple[int, ...]:
    """Kept columns of a group (M5b): as many as its rank, independent, of the highest preference.

    Greedy selection, which maximizes the sum of preferences of independent columns. Columns closer than `INDEPENDENT`
    to the span of those chosen before are considered last. Ties go to the largest distance, then to the first column.

    Raises:
        ValueError: the group has fewer independent columns than its rank.
    """
    columns = matrix[:, list(group.columns)]
    chosen = independent_columns(columns / np.linalg.norm(columns, axis=0), preference[list(group.columns)], group.rank)
    if len(chosen) < group.rank:
        raise ValueError(
            f"a group of rank {group.rank} has only {len(chosen)} independent columns: the matrix is too close to"
            " dependent for a choice"
        )
    return tuple(group.columns[i] for i in chosen)


def independent_columns(
    columns: Float[np.ndarray, "m d"],
    priority: Float[np.ndarray, "d"],
    rank: int,
    least_sizes: Sequence[float] = (INDEPENDENT, RANK_TOLERANCE),
) -> list[int]:
    """Indices of independent columns, as many as the rank, of the highest priority, by Gram-Schmidt orthogonalization.

    Args:
        columns: of length 1.
        priority: of each; among equal ones the column farthest from the span of those chosen before, then the first.
        rank: number of columns.
        least_sizes: smallest distances from that span, one after the other.
    """
    rest = columns
    chosen: list[int] = []
    for least in least_sizes:
        for level in np.unique(priority)[::-1]:
            while len(chosen) < rank:
                size = np.where(priority == level, np.linalg.norm(rest, axis=0), 0.0)
                if size.max() <= least:
                    break
                # Rounding must not decide between equals.
                best = int(np.flatnonzero(size >= (1.0 - 1e-6) * size.max())[0])
                along = rest[:, best] / np.linalg.norm(rest[:, best])
                rest = rest - np.outer(along, along @ rest)
                rest[:, best] = 0.0
                chosen.append(best)
    return sorted(chosen)


def _assignment(
    matrix: np.ndarray,
    names: tuple[str, ...],
    kept: list[int],
    groups: list[tuple[int, ...]],
    constants: Mapping[str, float] | None,
) -> Step:
    """M5c: columns that are not kept are fixed, and their effect is assigned to the kept ones of their group."""
    step = selection_step("M5", names, kept, constants)
    size = np.linalg.norm(matrix, axis=0)
    scaled = matrix / size
    for group in groups:
        inside = [i for i in group if i in kept]
        outside = [i for i in group if i not in kept]
        factor = np.linalg.lstsq(scaled[:, inside], scaled[:, outside], rcond=None)[0]
        # The rounding of a zero must not appear as a coupling.
        factor = np.where(np.abs(factor) > 1e-12, factor, 0.0) * size[outside] / size[inside][:, None]
        step.reduce[np.ix_([kept.index(i) for i in inside], outside)] = factor
    return step


def _group(matrix: np.ndarray, columns: np.ndarray, parts: Partition) -> Group:
    """A group with its rank; ValueError if it violates the conditions (b) or (c) of `coupled_groups`."""
    svd = scaled_svd(matrix[:, columns], RANK_TOLERANCE)
    others = np.setdiff1d([*parts.identifiable, *parts.semi_identifiable], columns).astype(int)
    scaled = matrix[:, others] / np.linalg.norm(matrix[:, others], axis=0)
    independent = np.linalg.norm(svd.beside(scaled), axis=0) > RANK_TOLERANCE
    if not (np.all(svd.unknown) and np.all(independent)):
        raise ValueError(
            f"columns {columns.tolist()} appear coupled, but one is independent of the others, or another column"
            " depends on them: the matrix is too close to dependent to determine groups"
        )
    return Group(tuple(columns.tolist()), svd.rank)


def _check(
    matrix: np.ndarray,
    names: tuple[str, ...],
    preference: Mapping[str, float] | None,
    constants: Mapping[str, float] | None,
) -> None:
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        raise ValueError(f"matrix has shape {matrix.shape}, expected one column for each of {len(names)} names")
    if not matrix.size:
        raise ValueError(f"matrix has shape {matrix.shape}, expected rows and columns")
    if len(set(names)) != len(names):
        raise ValueError("two parameters have the same name, expected each name once")
    if not np.all(np.isfinite(matrix)):
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise ValueError(f"matrix has {matrix[row, column]} in row {row} of parameter '{names[column]}'")
    for argument, numbers in (("preference", preference or {}), ("constants", constants or {})):
        check_known(f"{argument}: parameter", numbers, names)
        for name, value in numbers.items():
            if not np.isfinite(value):
                raise ValueError(f"{argument}: parameter '{name}' has {value}, expected a finite number")


CHANCE = 0.05
"""Significance level of the F test: probability of keeping parameters that are 0."""


@dataclasses.dataclass(frozen=True, eq=False)
class EssentialParameters:
    """Essential parameters of a linear model; the others are 0."""

    names: tuple[str, ...]
    values: Float[np.ndarray, "k"]
    std: Float[np.ndarray, "k"]
    """inf for parameters that are not identifiable."""
    eliminated: tuple[str, ...]
    """Names in the order of elimination."""
    chi_square: float
    """Sum of squared errors over variances of the smaller model."""


def essential_parameters(
    matrix: Float[np.ndarray, "m d"],
    measured: Float[np.ndarray, "m"],
    std: Float[np.ndarray, "m"],
    names: tuple[str, ...],
) -> EssentialParameters:
    """Essential parameters by backward elimination.

    The parameter with the largest relative standard deviation is set to 0 and the others are fitted again, as long as
    the sum of squares does not increase significantly over that of all d parameters: with k of them eliminated

        F = ((chi^2_k - chi^2_0) / k) / max(chi^2_0 / (m - r), 1)

    is below the quantile of Fisher's distribution with k and m - r degrees of freedom, r the rank. The noise variance
    is that of the full model's residual, but at least the stated one, which the residual underestimates for
    autocorrelated samples.

    Args:
        matrix: of the linear model [m, d], for example `torque_regressor` on base parameters.
        measured: measured values [m].
        std: their standard deviations [m].
        names: of the parameters.

    Returns:
        Essential parameters with values and standard deviations of the smaller model.

    Raises:
        ValueError: sizes differ, a number is not finite, or a standard deviation is not positive.

    Source: Pham and Gautier, "Essential parameters of robots", CDC 1991; Gautier and Khalil, "Exciting trajectories for
        the identification of base inertial parameters of robots", Int. J. Robotics Research 11 (1992).
    """
    matrix, measured, std = (np.asarray(x, float) for x in (matrix, measured, std))
    if matrix.ndim != 2 or matrix.shape != (measured.size, len(names)) or std.shape != measured.shape:
        raise ValueError(
            f"matrix has shape {matrix.shape}, expected {(measured.size, len(names))} for {measured.size} measured"
            f" values and {len(names)} names, with as many deviations (found {std.size})"
        )
    if not np.all(std > 0.0):
        raise ValueError(f"std has {std[~(std > 0.0)][0]:g}, expected numbers above 0")
    rows = np.column_stack([matrix, measured]) / std[:, None]
    if not np.isfinite(rows).all():
        raise ValueError(f"row {np.argwhere(~np.isfinite(rows))[0, 0]} of matrix or measured is not finite")
    corner = np.asarray(np.linalg.qr(rows, mode="r"))
    essential = list(range(len(names)))
    eliminated: list[int] = []
    values, deviations, full, rank = _fit(corner, essential)
    chi_square, freedom = full, max(len(rows) - rank, 1)
    scale = max(full / freedom, 1.0)
    while essential:
        size = np.abs(values)
        relative = np.where(np.isfinite(deviations), deviations / np.where(size > 0.0, size, 1e-300), np.inf)
        worst = essential[int(np.argmax(relative))]
        fewer = [i for i in essential if i != worst]
        trial = _fit(corner, fewer)
        ratio = (trial[2] - full) / (len(eliminated) + 1) / scale
        if ratio > 1.0 / float(fdtri(freedom, len(eliminated) + 1, CHANCE)):
            break
        essential, (values, deviations, chi_square, _) = fewer, trial
        eliminated.append(worst)
    return EssentialParameters(
        tuple(names[i] for i in essential), values, np.sqrt(scale) * deviations,
        tuple(names[i] for i in eliminated), chi_square,
    )  # fmt: skip


def _fit(corner: np.ndarray, columns: list[int]) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Values, standard deviations by the stated noise, sum of squares and rank of a fit of selected columns."""
    if not columns:
        return np.zeros(0), np.zeros(0), float(corner[:, -1] @ corner[:, -1]), 0
    svd = scaled_svd(corner[:, columns], RANK_TOLERANCE)
    values = svd.solve(corner[:, -1])
    std = np.where(svd.unknown, np.inf, np.linalg.norm(svd.gain, axis=1))
    error = corner[:, -1] - corner[:, columns] @ values
    return values, std, float(error @ error), svd.rank
