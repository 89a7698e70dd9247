"""Identifiability of the free parameters from the tests, by one SVD of the weighted Jacobian."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int

Verdict = Literal["yes", "weak", "no"]

RANK_TOLERANCE = 1e-10
"""Singular value over the largest, below which a direction of a linear model has no effect on the data: rounding of
dependent columns is 1e-16, and no instrument resolves effects below 1e-10."""
SMALLEST_COLUMN = 1e-14
"""Length of a column of a linear model over the longest, below which it is the rounding of zeros."""
COUPLED = 1e-6
"""Component of a scaled parameter in a unit direction above which it is not zero."""
TOGETHER = 0.5
"""Absolute correlation from which two parameters are analysed in combination."""
NOTABLE = 0.2
"""Component of a parameter in a unit direction from which it is a member of the group."""
NO_EFFECT = 1e-9
"""Part of a slope, or of the largest singular value, that counts as rounding."""
CHUNK = 1000
"""Rows of a Jacobian per factorization, which fit the cache."""


class BlockJacobian(Protocol):
    """A Jacobian [m, d] that is computed in blocks of rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        ...

    @property
    def blocks(self) -> Sequence[slice]:
        """Blocks of rows that cover all rows."""
        ...

    def __getitem__(self, rows: slice) -> Float[np.ndarray, "k d"]:
        """The rows of a block."""
        ...


Jacobian = Float[np.ndarray, "m d"] | BlockJacobian


def row_blocks(jacobian: Jacobian, rows: slice | None = None) -> list[slice]:
    """Blocks of the given rows of a Jacobian, default: all; for an array a single block."""
    rows = slice(0, jacobian.shape[0]) if rows is None else rows
    if isinstance(jacobian, np.ndarray):
        return [rows]
    return [block for block in jacobian.blocks if rows.start <= block.start and block.stop <= rows.stop]


def triangular_factor(blocks: Iterable[Float[np.ndarray, "k d"]]) -> Float[np.ndarray, "r d"]:
    """R of the QR decomposition of a matrix given in blocks of rows: R^T R = J^T J, without squaring J.

    Source: Demmel et al., "Communication-optimal parallel and sequential QR and LU factorizations", SIAM J. Sci.
    Comput. 34, A206 (2012).
    """
    found = []
    for block in blocks:
        whole = len(block) // CHUNK * CHUNK
        if whole > CHUNK:
            parts = np.asarray(np.linalg.qr(block[:whole].reshape(-1, CHUNK, block.shape[1]), mode="r"))
            block = np.concatenate([parts.reshape(-1, block.shape[1]), block[whole:]])
        found.append(np.asarray(np.linalg.qr(block, mode="r")))
    return found[0] if len(found) == 1 else np.asarray(np.linalg.qr(np.concatenate(found), mode="r"))


def inverse_std(variances: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """1 over the standard deviation of each row; 0 for unused rows, of variance 0."""
    return np.where(variances > 0.0, 1.0 / np.sqrt(np.where(variances > 0.0, variances, 1.0)), 0.0)


def rotated_rows(matrix: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "r c"]:
    """A matrix rotated into as many rows as it has columns that are not zero: inner products of columns remain."""
    used = np.flatnonzero(matrix.any(axis=0))
    factor = triangular_factor([matrix[:, used]])
    found = np.zeros((len(factor), matrix.shape[1]))
    found[:, used] = factor
    return found


class Identifiability(NamedTuple):
    """Standard deviations and identifiability of the entries of u, linearized at one point."""

    std: Float[np.ndarray, "d"]
    """Standard deviation of each entry; inf for entries that are not identifiable separately."""
    covariance: Float[np.ndarray, "d d"]
    singular_values: Float[np.ndarray, "d"]
    """Of the Jacobian in units of the noise, descending: 1 over the standard deviation along each direction."""
    directions: Float[np.ndarray, "d d"]
    """The corresponding directions in u, as columns."""
    prior_std: Float[np.ndarray, "d"] | None
    verdict: tuple[Verdict, ...]
    needed: Float[np.ndarray, "d"] | None = None
    """Standard deviation that is sufficient for the purpose of the study; NaN where none is stated."""

    def with_std(self, std: Float[np.ndarray, "d"]) -> "Identifiability":
        """The same with other standard deviations and the verdicts that follow."""
        return self._replace(std=std, verdict=verdicts(std, self.limits))

    @property
    def limits(self) -> tuple[Float[np.ndarray, "*d"], Float[np.ndarray, "*d"]]:
        """Standard deviations from which an entry is "weak", and from which it is "no"; see `limits`."""
        return limits(self.prior_std, self.needed)

    @property
    def without_effect(self) -> Float[np.ndarray, "d k"]:
        """The directions in u without effect on the data, as columns."""
        return self.directions[:, self.singular_values <= NO_EFFECT * self.singular_values.max(initial=0.0)]


class ScaledSvd(NamedTuple):
    """A = left diag(values) right diag(scale); with fewer rows than columns A is padded by rows of zeros."""

    scale: Float[np.ndarray, "d"]
    """Length of each column; 1 for a column of zeros."""
    left: Float[np.ndarray, "m d"]
    values: Float[np.ndarray, "d"]
    right: Float[np.ndarray, "d d"]
    rank: int
    """Number of directions with an effect on the data."""

    @property
    def gain(self) -> Float[np.ndarray, "d r"]:
        """Parameters [d, r] by coordinates along the first `rank` left singular vectors."""
        return self.right[: self.rank].T / self.values[: self.rank] / self.scale[:, None]

    def basis(self, rows: Float[np.ndarray, "k d"]) -> Float[np.ndarray, "k r"]:
        """Rows [k, r] of the first `rank` left singular vectors, from the same rows of the matrix."""
        return rows @ self.gain

    def range(self, count: int) -> Float[np.ndarray, "m r"]:
        """The first `rank` left singular vectors [m, r] of a matrix with `count` rows, without rows of padding."""
        return self.left[:count, : self.rank]

    def beside(self, columns: Float[np.ndarray, "m *c"]) -> Float[np.ndarray, "m *c"]:
        """Columns less their part along the first `rank` left singular vectors."""
        basis = self.range(len(columns))
        return columns - basis @ (basis.T @ columns)

    def solve(self, right: Float[np.ndarray, "m"]) -> Float[np.ndarray, "d"]:
        """Least-squares solution x of A x = right of smallest scaled norm."""
        along = (self.range(right.size).T @ right) / self.values[: self.rank]
        return (self.right[: self.rank].T @ along) / self.scale

    @property
    def unknown(self) -> np.ndarray:
        """Mask [d] of the parameters with a component in a direction without effect on the data."""
        return np.linalg.norm(self.right[self.rank :], axis=0) > COUPLED


def without_rounding(matrix: Float[np.ndarray, "m d"]) -> Float[np.ndarray, "m d"]:
    """The matrix with columns at the level of rounding (see `SMALLEST_COLUMN`) set to zero."""
    length = np.linalg.norm(matrix, axis=0)
    return np.where(length > SMALLEST_COLUMN * length.max(initial=0.0), matrix, 0.0)


def jacobian_svd(jacobian: Jacobian) -> ScaledSvd:
    """`scaled_svd` of a Jacobian with any number of rows; `left` is that of its triangular factor."""
    return scaled_svd(triangular_factor(jacobian[block] for block in row_blocks(jacobian)), rows=jacobian.shape[0])


def scaled_svd(matrix: Float[np.ndarray, "m d"], tolerance: float | None = None, rows: int = 0) -> ScaledSvd:
    """Singular value decomposition with columns scaled to length 1, independent of the parameters' units.

    Args:
        matrix: of any size; with fewer rows than columns, rows of zeros are added, so that all d directions result.
        tolerance: singular value over the largest below which a direction has no effect, default: rounding. If given,
            columns at the level of rounding are set to zero.
        rows: number of rows of the matrix whose triangular factor is given, if it is one.
    """
    if matrix.shape[0] < matrix.shape[1]:
        matrix = np.pad(matrix, ((0, matrix.shape[1] - matrix.shape[0]), (0, 0)))
    matrix = matrix if tolerance is None else without_rounding(matrix)
    size = np.linalg.norm(matrix, axis=0)
    scale = np.where(size > 0.0, size, 1.0)
    left, values, right = np.linalg.svd(matrix / scale, full_matrices=False)
    tolerance = max(rows, *matrix.shape) * np.finfo(float).eps if tolerance is None else tolerance
    rank = int(np.sum(values > tolerance * values.max(initial=0.0)))
    right[:rank, ~matrix.any(axis=0)] = 0.0  # rounding would couple parameters without effect to others
    return ScaledSvd(scale, left, values, right, rank)


def identifiability(
    jacobian: Jacobian,
    variances: Float[np.ndarray, "m"],
    prior_std: Float[np.ndarray, "d"] | None = None,
    needed: Float[np.ndarray, "d"] | None = None,
) -> Identifiability:
    """Standard deviations and identifiability of a weighted least-squares estimate.

    With J = U S V^T the estimate changes by G e, G = V S^-1 U^T, for residual errors e; the errors of an FRF scaled by
    sqrt(W) have the variance W, so the covariance is G diag(W) G^T, and (J^T J)^-1 for unit weights.

    Args:
        jacobian: of the residuals in units of the noise, rows scaled by sqrt(W), including the prior's rows.
        variances: W of each row, in units of the stated noise.
        prior_std: the prior's standard deviations, if any.
        needed: standard deviation that is sufficient, NaN where none is stated.

    Returns:
        A parameter is identifiable ("yes") for a standard deviation below `needed`, "weak" below ten times that and
        "no" above. Where none is stated it is 0.1; with a prior the limits are then 0.5 and 0.95 of the prior's.
    """
    factor = triangular_factor(jacobian[block] for block in row_blocks(jacobian))
    svd = scaled_svd(factor, rows=jacobian.shape[0])
    covariance = svd.gain @ _weighted(svd, jacobian, variances) @ svd.gain.T
    std = np.where(svd.unknown, np.inf, np.sqrt(np.maximum(np.diag(covariance), 0.0)))
    _, singular_values, directions = np.linalg.svd(np.pad(factor, ((0, svd.scale.size - len(factor)), (0, 0))))
    verdict = verdicts(std, limits(prior_std, needed))
    return Identifiability(std, covariance, singular_values, directions.T, prior_std, verdict, needed)


def _weighted(svd: ScaledSvd, jacobian: Jacobian, variances: np.ndarray) -> Float[np.ndarray, "r r"]:
    """U^T diag(W) U for the left singular vectors U of a Jacobian."""
    bases = ((svd.basis(jacobian[block]), variances[block]) for block in row_blocks(jacobian))
    return sum(((basis.T * weights) @ basis for basis, weights in bases), start=np.zeros((svd.rank, svd.rank)))


def combination_std(rows: Float[np.ndarray, "k d"], combinations: Float[np.ndarray, "s d"]) -> Float[np.ndarray, "s"]:
    """Standard deviations [s] of linear combinations of parameters from linear tests; inf if not identifiable.

    Args:
        rows: of the tests [k, d], in units of their noise.
        combinations: coefficients of the parameters in each combination [s, d].
    """
    svd = scaled_svd(rows, RANK_TOLERANCE)
    parts = combinations / svd.scale @ svd.right.T
    identifiable = np.linalg.norm(parts[:, svd.rank :], axis=1) <= COUPLED * np.linalg.norm(parts, axis=1)
    return np.where(identifiable, np.linalg.norm(parts[:, : svd.rank] / svd.values[: svd.rank], axis=1), np.inf)


def propagated_std(slope: Float[np.ndarray, "m d"], known: Identifiability) -> Float[np.ndarray, "m"]:
    """Standard deviation of quantities with some derivatives by u, to first order; NaN where unknown.

    It is unknown where a quantity depends on a direction without effect on the data, or on a parameter whose standard
    deviation was set to infinity. Where a standard deviation was inflated, the additional variance is included.
    """
    variance = np.maximum(np.einsum("mi,ij,mj->m", slope, known.covariance, slope), 0.0)
    stated = np.maximum(np.diag(known.covariance), 0.0)
    finite = np.isfinite(known.std)
    variance += slope[:, finite] ** 2 @ np.maximum(known.std[finite] ** 2 - stated[finite], 0.0)
    open_ = np.linalg.norm(slope @ known.without_effect, axis=1)
    undetermined = np.abs(slope[:, ~finite & (stated > 0.0)]).sum(axis=1) + open_
    return np.where(undetermined > NO_EFFECT * np.linalg.norm(slope, axis=1), np.nan, np.sqrt(variance))


class Group(NamedTuple):
    """Parameters identifiable only in combination: a weak direction or (std inf) a subspace without effect."""

    std: float
    """Standard deviation along the direction; inf if it has no effect on the data."""
    parts: Float[np.ndarray, "d"]
    """The direction, of length 1; for several directions the norms of the parameters' components."""
    members: tuple[int, ...]
    """Parameters with a component of `NOTABLE` or more, largest first."""
    dimension: int = 1
    """Number of independent directions."""


def information_rows(jacobian: Jacobian, variances: Float[np.ndarray, "m"]) -> Float[np.ndarray, "d d"]:
    """R [d, d] with R^T R = M, the information of the weighted estimate of `identifiability` with covariance M^-1.

    With J = U S V^T and U^T diag(W) U = L L^T, R = L^-1 S V^T without squaring S; for unit weights it is the triangular
    factor of J up to a rotation. Stacking the rows of further tests, in units of their noise, adds their information.
    """
    svd = jacobian_svd(jacobian)
    lower = np.linalg.cholesky(_weighted(svd, jacobian, variances))
    rows = np.linalg.solve(lower, svd.values[: svd.rank, None] * svd.right[: svd.rank]) * svd.scale
    return np.pad(rows, ((0, jacobian.shape[1] - svd.rank), (0, 0)))


def groups(rows: Float[np.ndarray, "m d"], prior_std: Float[np.ndarray, "d"] | None = None) -> tuple[Group, ...]:
    """Weak directions and directions without effect, and the parameters identifiable only in combination along them.

    Directions without effect come first, one group for each set of parameters coupled by the null space (which is the
    sum of the groups' subspaces). Then directions of the remaining parameters with a standard deviation above the limit
    of "yes", in descending order: principal axes of the covariance, computed separately for sets of parameters with
    mutual correlations below `TOGETHER`, so that directions of equal standard deviation are not mixed.

    Args:
        rows: of unit weight, in units of the noise: `information_rows`.
        prior_std: the prior's standard deviations, if any; u is then measured in them.
    """
    svd = scaled_svd(rows)
    null = svd.right[svd.rank :].T
    found = []
    for part in components(np.abs(null @ null.T) > COUPLED):
        dimension = round(float(np.sum(null[part] ** 2)))
        if dimension:
            found.append(_null_group(part, null / svd.scale[:, None], dimension))
    known = identifiability(rows, np.ones(len(rows)), prior_std)
    unit = np.ones(svd.scale.size) if prior_std is None else np.where(np.isfinite(prior_std), prior_std, 1.0)
    yes = np.broadcast_to(limits(prior_std)[0] / unit, unit.shape)
    fixed = np.flatnonzero(np.isfinite(known.std))
    covariance = known.covariance[np.ix_(fixed, fixed)] / np.outer(unit[fixed], unit[fixed])
    weak = []
    for part in components(np.abs(correlation(covariance)) >= TOGETHER):
        variance, axes = np.linalg.eigh(covariance[np.ix_(part, part)])
        for size, axis in zip(variance, axes.T, strict=True):
            if size > np.sum((axis * yes[fixed[part]]) ** 2):
                parts = np.zeros(unit.size)
                parts[fixed[part]] = axis * np.sign(axis[np.argmax(np.abs(axis))])
                order = np.argsort(-np.abs(parts), kind="stable").tolist()
                members = tuple(i for i in order if np.abs(parts[i]) >= NOTABLE)
                weak.append(Group(float(np.sqrt(size)), parts, members))
    return (*found, *sorted(weak, key=lambda group: -group.std))


@dataclasses.dataclass(frozen=True)
class KnownTogether:
    """A `Group` of parameters by name, as in results."""

    std: float
    dimension: int
    parameters: dict[str, float]
    """Components of the parameters by name."""


def groups_by_name(found: Sequence[Group], names: Sequence[str]) -> tuple[KnownTogether, ...]:
    """Groups with the components of their parameters by name."""
    return tuple(KnownTogether(g.std, g.dimension, {names[i]: float(g.parts[i]) for i in g.members}) for g in found)


def components(adjacency: Bool[np.ndarray, "n n"]) -> list[Int[np.ndarray, "k"]]:
    """Ascending indices of each connected component of a symmetric graph, in the order of their first ones."""
    from scipy.sparse.csgraph import connected_components

    count, label = connected_components(adjacency, directed=False)
    return sorted((np.flatnonzero(label == k) for k in range(count)), key=lambda part: part[0])


def _null_group(part: np.ndarray, null: Float[np.ndarray, "d k"], dimension: int) -> Group:
    """Group of parameters coupled by directions without effect (columns of `null`)."""
    axes = np.linalg.svd(null[part].T, full_matrices=False)[2][:dimension]
    first = axes[0] * np.sign(axes[0][np.argmax(np.abs(axes[0]))])
    parts = np.zeros(len(null))
    parts[part] = first if dimension == 1 else np.linalg.norm(axes, axis=0)
    members = part[np.argsort(-np.abs(parts[part]), kind="stable")]
    return Group(np.inf, parts, tuple(members.tolist()), dimension)


def correlation(covariance: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "d d"]:
    """Correlation matrix of a covariance; 0 for parameters without variance."""
    size = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    scale = np.where(size > 0.0, size, 1.0)
    return covariance / np.outer(scale, scale)


def verdicts(std: Float[np.ndarray, "d"], limits: tuple[np.ndarray, np.ndarray]) -> tuple[Verdict, ...]:
    """Identifiability by standard deviation: "yes", "weak" or "no", see `identifiability`."""
    yes, weak = limits
    return tuple("yes" if s < a else "weak" if s < b else "no" for s, a, b in np.broadcast(std, yes, weak))


def limits(
    prior_std: Float[np.ndarray, "d"] | None = None, needed: Float[np.ndarray, "d"] | None = None
) -> tuple[Float[np.ndarray, "*d"], Float[np.ndarray, "*d"]]:
    """Standard deviations from which an entry of u is weakly identifiable, and from which it is not identifiable.

    Args:
        prior_std: the prior's standard deviations, if any; inf for entries without.
        needed: standard deviation that is sufficient, NaN where none is stated; it comes before the prior's.
    """
    yes, weak = np.array(0.1), np.array(1.0)
    if prior_std is not None:
        known = np.isfinite(prior_std)
        yes, weak = np.where(known, 0.5 * prior_std, yes), np.where(known, 0.95 * prior_std, weak)
    if needed is not None:
        stated = np.isfinite(needed)
        yes, weak = np.where(stated, needed, yes), np.where(stated, 10.0 * needed, weak)
    return yes, weak
