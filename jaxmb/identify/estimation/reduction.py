"""From a linear model with more parameters than the data can tell apart to one of full rank that predicts the same.

Nothing here knows what the parameters are: any observation matrix A with named columns will do. Steps are affine maps
between the parameters before and after, so that each parameter of the first model can be followed to the last.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from jaxmb.identify.estimation.identifiability import COUPLED, RANK_TOLERANCE, scaled_svd

INDEPENDENT = 1e-3
"""What must be left of a scaled column beside those chosen before it, for it to be chosen by preference."""


@dataclasses.dataclass(frozen=True, eq=False)
class Step:
    """One reduction of the parameters of a linear model."""

    name: str
    before: tuple[str, ...]
    names: tuple[str, ...]
    """Of the parameters that are left."""
    expand: Float[np.ndarray, "before after"]
    """before = expand after + constant is one set of parameters that predicts the same."""
    reduce: Float[np.ndarray, "after before"]
    """after = reduce (before - constant): A' reduce x = A x, A' = A expand, for the x that the step allows."""
    constant: Float[np.ndarray, "before"]
    """What parameters that are left out are held at."""
    exact: bool
    """Any x is allowed; otherwise only those of which the step assumes nothing wrong (a symmetric compliance ...)."""


@dataclasses.dataclass(frozen=True)
class Partition:
    """Columns of a linear model by what the data say of each."""

    rank: int
    identifiable: tuple[int, ...]
    """G1: known whatever the others are."""
    nonidentifiable: tuple[int, ...]
    """G2: without effect on the data."""
    semi_identifiable: tuple[int, ...]
    """G3: known only together with others."""


@dataclasses.dataclass(frozen=True)
class Group:
    """Semi-identifiable columns that are coupled with each other and with no other."""

    columns: tuple[int, ...]
    rank: int


@dataclasses.dataclass(frozen=True, eq=False)
class Reduction:
    """A chain of steps from the first model to the last, and why the last ones were taken."""

    steps: tuple[Step, ...]
    partition: Partition
    """Of the parameters before the algebraic steps, as are the columns of the groups."""
    groups: tuple[Group, ...]

    @property
    def original(self) -> tuple[str, ...]:
        """Names of the first model's parameters."""
        return self.steps[0].before

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the last model's parameters."""
        return self.steps[-1].names

    @property
    def counts(self) -> dict[str, int]:
        """Number of parameters of the first model and after each step."""
        return {"original": len(self.original)} | {step.name: len(step.names) for step in self.steps}

    @property
    def expand(self) -> Float[np.ndarray, "first last"]:
        """first = expand last + constant."""
        return functools.reduce(np.matmul, [step.expand for step in self.steps])

    @property
    def reduce(self) -> Float[np.ndarray, "last first"]:
        """last = reduce (first - constant)."""
        return functools.reduce(np.matmul, [step.reduce for step in reversed(self.steps)])

    @property
    def constant(self) -> Float[np.ndarray, "first"]:
        """What the first model's parameters are where the last one's are 0."""
        constant = np.zeros(len(self.names))
        for step in reversed(self.steps):
            constant = step.expand @ constant + step.constant
        return constant

    def follow(self, name: str) -> dict[str, float]:
        """Parameters of the last model that one of the first is part of, with its factor; none if it has no effect."""
        column = self.reduce[:, self.original.index(name)]
        return {self.names[i]: float(column[i]) for i in np.flatnonzero(column)}


def reduction(
    matrix: Float[np.ndarray, "m d"],
    names: Sequence[str],
    preference: Mapping[str, float] | None = None,
    constants: Mapping[str, float] | None = None,
    before: Sequence[Step] = (),
    independent: float = INDEPENDENT,
) -> Reduction:
    """Reduction of a linear model to full rank: elimination (M4) and selection in groups (M5). Predictions are kept.

    The matrix is best given in units of the noise. The numerical rank is that of the matrix with its columns scaled to
    length 1, singular values below 1e-10 of the largest left out.

    Args:
        matrix: A.
        names: of its columns.
        preference: number by parameter, those of higher ones are rather kept, not named ones are 0. Where not given the
            parameters of longer columns are.
        constants: what parameters are held at that are not kept, 0 where not named: data are to be fitted less what
            they make.
        before: steps that led to this matrix.
        independent: what must be left of a scaled column beside those chosen before it, for it to be chosen by
            preference.

    Raises:
        ValueError: sizes differ, a name is unknown or used twice, a number is not finite, or the columns are so close
            to dependent that groups cannot be told.

    Source: Klimchik et al. 2014, section 3.2.
    """
    names = tuple(names)
    _check(matrix, names, preference, constants)
    parts = partition(matrix)
    groups = coupled_groups(matrix, parts)
    lengths = np.linalg.norm(matrix, axis=0)
    wanted = lengths if preference is None else np.array([preference.get(name, 0.0) for name in names])
    kept = set(parts.identifiable).union(*(select(matrix, group, wanted, independent) for group in groups))
    elimination = _elimination(names, parts, constants or {})
    left = [names.index(name) for name in elimination.names]
    position = {column: i for i, column in enumerate(left)}
    selection = _assignment(
        matrix[:, left], elimination.names, sorted(position[k] for k in kept),
        [tuple(position[c] for c in group.columns) for group in groups], constants or {},
    )  # fmt: skip
    return Reduction((*before, elimination, selection), parts, groups)


def partition(matrix: Float[np.ndarray, "m d"]) -> Partition:
    """Columns by the rows of V in A = U S V^T, columns of A scaled to length 1 (M4a): a row without a part in the null
    space is identifiable, one without a part in the row space is not, one with both is known together with others.

    Source: Klimchik et al. 2014, eq. 15-20.
    """
    svd = scaled_svd(matrix, RANK_TOLERANCE)
    acts = np.linalg.norm(svd.right[: svd.rank], axis=0) > COUPLED
    which = (acts & ~svd.unknown, ~acts, acts & svd.unknown)
    return Partition(svd.rank, *(tuple(np.flatnonzero(mask).tolist()) for mask in which))


def coupled_groups(matrix: Float[np.ndarray, "m d"], parts: Partition) -> tuple[Group, ...]:
    """Groups of semi-identifiable columns (M5a): connected by the rows of L = (V_r*)^-1 V_r^T, eq. 21.

    V_r* are rows of V_r that keep its rank, the best conditioned first. Another choice gives another L of the same
    groups: they are the components of what depends on what.

    Raises:
        ValueError: the groups do not meet the paper's conditions (b), that each is as good without any one of its
            columns, and (c), that no other column lies in its range: the rank is then not clear to rounding.
    """
    semi = np.array(parts.semi_identifiable, int)
    if not semi.size:
        return ()
    from scipy.sparse.csgraph import connected_components

    own = scaled_svd(matrix[:, semi], RANK_TOLERANCE)
    rows = own.right[: own.rank]
    star = _stand_out(rows, np.zeros(semi.size), own.rank)
    couplings = np.abs(np.linalg.solve(rows[:, star], rows)) > COUPLED
    # Columns that have a part in the same row of L belong together.
    count, label = connected_components(couplings.T.astype(float) @ couplings.astype(float) > 0.0, directed=False)
    members = [semi[label == number] for number in range(count)]
    groups = [_group(matrix, columns, parts) for columns in sorted(members, key=lambda columns: columns[0])]
    if sum(group.rank for group in groups) + len(parts.identifiable) != parts.rank:
        raise ValueError(
            f"the {count} groups of coupled parameters have {sum(group.rank for group in groups)} independent columns"
            f" and the matrix has rank {parts.rank}, of which {len(parts.identifiable)} are identifiable alone: its"
            " columns are too close to dependent for groups to be told"
        )
    return tuple(groups)


def select(
    matrix: Float[np.ndarray, "m d"],
    group: Group,
    preference: Float[np.ndarray, "d"],
    independent: float = INDEPENDENT,
) -> tuple[int, ...]:
    """Columns of a group that are kept (M5b): as many as its rank, independent, of the highest preference.

    Greedy, which for independent columns gives the highest sum of preferences; a column of which less than
    `independent` stands out of those chosen before is passed over in favour of others while there are any. Equal
    preferences go to what stands out most, and then to what comes first.
    """
    left = matrix[:, list(group.columns)]
    chosen = _stand_out(left / np.linalg.norm(left, axis=0), preference[list(group.columns)], group.rank, independent)
    if len(chosen) < group.rank:
        raise ValueError(
            f"a group of rank {group.rank} has only {len(chosen)} columns that stand out of each other: the matrix is"
            " too close to dependent for a choice"
        )
    return tuple(group.columns[i] for i in chosen)


def _stand_out(left: np.ndarray, wanted: np.ndarray, rank: int, independent: float = INDEPENDENT) -> list[int]:
    """Independent columns, see `select`."""
    chosen: list[int] = []
    for least in (independent, RANK_TOLERANCE):
        for level in np.unique(wanted)[::-1]:
            while len(chosen) < rank:
                size = np.where(wanted == level, np.linalg.norm(left, axis=0), 0.0)
                if size.max() <= least:
                    break
                # Rounding must not decide between equals.
                best = int(np.flatnonzero(size >= (1.0 - 1e-6) * size.max())[0])
                along = left[:, best] / np.linalg.norm(left[:, best])
                left = left - np.outer(along, along @ left)
                left[:, best] = 0.0
                chosen.append(best)
    return sorted(chosen)


def _elimination(names: tuple[str, ...], parts: Partition, constants: Mapping[str, float]) -> Step:
    """M4b: columns without effect are left out."""
    kept = sorted({*parts.identifiable, *parts.semi_identifiable})
    expand = np.eye(len(names))[:, kept]
    constant = np.array([constants.get(name, 0.0) if i not in kept else 0.0 for i, name in enumerate(names)])
    return Step("M4", names, tuple(names[i] for i in kept), expand, expand.T.copy(), constant, exact=True)


def _assignment(
    matrix: np.ndarray,
    names: tuple[str, ...],
    kept: list[int],
    groups: list[tuple[int, ...]],
    constants: Mapping[str, float],
) -> Step:
    """M5c: columns that are not kept are held, and what they do is done by the kept ones of their group."""
    d = len(names)
    reduce = np.zeros((len(kept), d))
    reduce[np.arange(len(kept)), kept] = 1.0
    size = np.linalg.norm(matrix, axis=0)
    scaled = matrix / size
    for group in groups:
        inside = [i for i in group if i in kept]
        outside = [i for i in group if i not in kept]
        factor = np.linalg.lstsq(scaled[:, inside], scaled[:, outside], rcond=None)[0]
        # What rounding leaves of a zero would look like a coupling.
        factor = np.where(np.abs(factor) > 1e-12, factor, 0.0) * size[outside] / size[inside][:, None]
        reduce[np.ix_([kept.index(i) for i in inside], outside)] = factor
    constant = np.array([constants.get(name, 0.0) if i not in kept else 0.0 for i, name in enumerate(names)])
    return Step("M5", names, tuple(names[i] for i in kept), np.eye(d)[:, kept], reduce, constant, exact=True)


def _group(matrix: np.ndarray, columns: np.ndarray, parts: Partition) -> Group:
    """A group with its rank; ValueError where it does not meet the conditions (b) and (c)."""
    svd = scaled_svd(matrix[:, columns], RANK_TOLERANCE)
    others = np.setdiff1d([*parts.identifiable, *parts.semi_identifiable], columns).astype(int)
    beside = matrix[:, others] / np.linalg.norm(matrix[:, others], axis=0)
    span = svd.left[: matrix.shape[0], : svd.rank]
    apart = np.linalg.norm(beside - span @ (span.T @ beside), axis=0) > RANK_TOLERANCE
    if not (np.all(svd.unknown) and np.all(apart)):
        raise ValueError(
            f"columns {columns.tolist()} look coupled, but not all need each other, or another depends on them: the"
            " matrix is too close to dependent for groups to be told"
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
    for what, given in (("preference", preference or {}), ("constants", constants or {})):
        for name, value in given.items():
            if name not in names:
                raise ValueError(f"{what}: parameter '{name}' does not exist among the {len(names)} of the matrix")
            if not np.isfinite(value):
                raise ValueError(f"{what}: parameter '{name}' has {value}, expected a finite number")
