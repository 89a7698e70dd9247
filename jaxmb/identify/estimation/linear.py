"""Weighted linear least squares for parameters that act linearly on the data: bounded, robust, of any rank."""

import dataclasses

import numpy as np
from jaxtyping import Bool, Float

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, ScaledSvd, scaled_svd, without_rounding

HUBER = 1.345
BISQUARE = 4.685
"""Tuning constants, in standard deviations: both keep 95 % of the efficiency of least squares on normal errors."""
MOST_ROUNDS = 100
PULL = 1e-3
"""Of the least singular value that acts: weight by which what the data do not determine stays near its centre."""


@dataclasses.dataclass(frozen=True, eq=False)
class LinearFit:
    """Parameters of a linear model, and what the data say of them."""

    values: Float[np.ndarray, "d"]
    covariance: Float[np.ndarray, "d d"]
    """By the stated deviations; of what the data determine only. A parameter held on its bound has none."""
    std: Float[np.ndarray, "d"]
    """inf where the data do not determine a parameter, 0 where it is held on its bound."""
    residual: Float[np.ndarray, "m"]
    """Measured minus fitted, in the measurement's units."""
    weights: Float[np.ndarray, "m"]
    """What the robust fit gave each measurement, 0 to 1; all 1 without it."""
    rank: int
    singular_values: Float[np.ndarray, "d"]
    """Of the weighted matrix, columns scaled to length 1, descending."""
    on_bound: Bool[np.ndarray, "d"]
    """Which parameters the data would move beyond a bound, and which are held there."""
    settled: bool = True
    """Whether the robust weights came to rest within `MOST_ROUNDS` rounds."""
    solved: bool = True
    """Whether it was found which parameters are held on their bound, in up to 100 exchanges for each parameter."""


def linear_fit(
    matrix: Float[np.ndarray, "m d"],
    measured: Float[np.ndarray, "m"],
    std: Float[np.ndarray, "m"],
    lower: Float[np.ndarray, "d"] | None = None,
    upper: Float[np.ndarray, "d"] | None = None,
    robust: bool = False,
    names: tuple[str, ...] | None = None,
) -> LinearFit:
    """Parameters pi that minimise the sum of w ((measured - A pi) / std)^2 within bounds.

    Where many do, those of smallest scaled norm; where the bounds exclude 0, of smallest scaled distance from the place
    within them that is nearest to 0.

    Columns of A / std are scaled to length 1 first. So rank, values and deviations do not depend on the parameters'
    units, as long as these make no column as short as `SMALLEST_COLUMN` (1e-14) of the longest: such a column counts
    as zeros, its parameter becomes 0 and is not determined. Of the scaled matrix, singular values up to
    `RANK_TOLERANCE` (1e-10) of the largest count as zeros.

    Args:
        matrix: A, the observation matrix.
        measured: what was measured.
        std: its standard deviations.
        lower: bounds that no parameter is below; -inf, or not given: none.
        upper: the same that none is above.
        robust: weigh each measurement by its residual: Huber's weights first, then Tukey's bisquare, which leaves gross
            outliers out altogether. Their scale is the stated deviation, or what the median residual says if more.
        names: of the parameters, for errors.

    Returns:
        The fit. Its covariance is that of a weighted estimate with errors of the stated deviations.

    Raises:
        ValueError: sizes differ, a number is not finite, a deviation is not above 0, a lower bound is not below its
            upper one, or there are fewer equations than parameters.

    Source: Klimchik et al. 2014, eq. 7-9; Dumas et al. 2011, eq. 18; Huber and Ronchetti, Robust Statistics (2009).
    """
    matrix, measured, std = (np.asarray(x, float) for x in (matrix, measured, std))
    lower = np.full(matrix.shape[-1:], -np.inf) if lower is None else np.asarray(lower, float)
    upper = np.full(matrix.shape[-1:], np.inf) if upper is None else np.asarray(upper, float)
    _check(matrix, measured, std, lower, upper, names)
    centre = np.clip(0.0, lower, upper)
    rows, right = without_rounding(matrix / std[:, None]), (measured - matrix @ centre) / std
    box = lower - centre, upper - centre
    values, held, solved = _solve(rows, right, *box)
    weights = np.ones(measured.size)
    settled = True
    if robust:
        values, held, weights, settled, solved = _reweighted(rows, right, box, values)
    # the sum of a centre and the way to a bound is not always the bound
    values = np.where(values <= box[0], lower, np.where(values >= box[1], upper, centre + values))
    root = np.sqrt(weights)
    weighted = rows * root[:, None]
    covariance, deviation = _spread(weighted, weights, held)
    whole = scaled_svd(weighted, RANK_TOLERANCE)
    return LinearFit(
        values=values,
        covariance=covariance,
        std=deviation,
        residual=measured - matrix @ values,
        weights=weights,
        rank=whole.rank,
        singular_values=whole.values,
        on_bound=held,
        settled=settled,
        solved=solved,
    )


def _solve(
    rows: np.ndarray, right: np.ndarray, lower: np.ndarray, upper: np.ndarray
) -> tuple[np.ndarray, np.ndarray, bool]:
    """Least-squares parameters of smallest scaled norm in a box about 0 [d], which the data hold on its faces [d], and
    whether that was found."""
    svd = scaled_svd(rows, RANK_TOLERANCE)
    values = _smallest(svd, right)
    if np.all((lower <= values) & (values <= upper)):
        return values, np.zeros(values.size, bool), True
    from scipy.optimize import lsq_linear

    # In the left singular vectors the problem is small, and with a right side of length 1 the solver's tolerances mean
    # something. Directions that the data do not determine are pulled to 0, weakly.
    length, r = np.linalg.norm(right) or 1.0, svd.rank
    small, target = svd.values[:r, None] * svd.right[:r], svd.left[:, :r].T @ right / length
    pull = max(PULL * float(svd.values[:r].min(initial=1.0)), 1e-7) * svd.right[r:]
    low, high = (bound * svd.scale / length for bound in (lower, upper))
    found = lsq_linear(
        np.concatenate([small, pull]), np.concatenate([target, np.zeros(len(pull))]), (low, high), method="bvls",
        tol=1e-14, max_iter=100 * values.size,
    )  # fmt: skip
    # the solver may leave what it holds on a bound a rounding off it
    below = (found.x <= low) | (found.active_mask < 0)
    above = (found.x >= high) | (found.active_mask > 0)
    values = np.where(below, lower, np.where(above, upper, found.x * length / svd.scale))
    # With what is on the bounds kept there the rest is exact, and the pull is gone.
    free = ~(below | above)
    polished = values.copy()
    polished[free] = _smallest(scaled_svd(rows[:, free], RANK_TOLERANCE), right - rows[:, ~free] @ values[~free])
    if np.all((lower <= polished) & (polished <= upper)):
        values = polished
    # Held is what the data would move beyond; what is there by chance, or for nearness to 0, is free.
    slope = small.T @ (small @ (values * svd.scale / length) - target)
    held = below & (slope > 1e-12) | above & (slope < -1e-12)
    return values, held, bool(found.success)


def _smallest(svd: ScaledSvd, right: np.ndarray) -> np.ndarray:
    r = svd.rank
    return (svd.right[:r].T @ ((svd.left[:, :r].T @ right) / svd.values[:r])) / svd.scale


def _reweighted(
    rows: np.ndarray, right: np.ndarray, box: tuple[np.ndarray, np.ndarray], values: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool, bool]:
    """Iteratively reweighted least squares, from the convex loss on to the one that leaves outliers out."""
    held, weights, settled, solved = np.zeros(values.size, bool), np.ones(right.size), False, False
    for bisquare in (False, True):
        for _ in range(MOST_ROUNDS):
            residual = right - rows @ values
            # A median residual of more than the stated deviation says that the stated one is too small.
            size = np.abs(residual) / max(1.0, 1.4826 * float(np.median(np.abs(residual))))
            if bisquare:
                weights = tukey(size)
            else:
                weights = HUBER / np.maximum(size, HUBER)
            root, before = np.sqrt(weights), values
            values, held, solved = _solve(rows * root[:, None], right * root, *box)
            change = np.abs(rows @ (values - before)).max(initial=0.0)
            settled = change <= 1e-9 * max(1.0, float(np.abs(rows @ values).max(initial=0.0)))
            if settled:
                break
    return values, held, weights, settled, solved


def tukey(size: Float[np.ndarray, "m"]) -> Float[np.ndarray, "m"]:
    """Tukey's weights of residuals in standard deviations: 0 from `BISQUARE` on."""
    return np.where(np.abs(size) < BISQUARE, (1.0 - (size / BISQUARE) ** 2) ** 2, 0.0)


def _spread(weighted: np.ndarray, weights: np.ndarray, held: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Covariance [d, d] of a weighted estimate, and standard deviations [d]."""
    d = held.size
    svd = scaled_svd(weighted[:, ~held], RANK_TOLERANCE)
    gain = (svd.right[: svd.rank].T / svd.values[: svd.rank]) @ svd.left[:, : svd.rank].T / svd.scale[:, None]
    covariance, std = np.zeros((d, d)), np.zeros(d)
    covariance[np.ix_(~held, ~held)] = (gain * weights) @ gain.T
    std[~held] = np.where(svd.unknown, np.inf, np.sqrt(np.diagonal(covariance)[~held]))
    return covariance, std


def _check(
    matrix: np.ndarray, measured: np.ndarray, std: np.ndarray, lower: np.ndarray, upper: np.ndarray,
    names: tuple[str, ...] | None,
) -> None:  # fmt: skip
    if matrix.ndim != 2:
        raise ValueError(f"matrix has shape {matrix.shape}, expected (measurements, parameters)")
    m, d = matrix.shape
    for what, given, expected in (
        ("measured", measured.shape, (m,)),
        ("std", std.shape, (m,)),
        ("lower", lower.shape, (d,)),
        ("upper", upper.shape, (d,)),
        ("names", (d,) if names is None else (len(names),), (d,)),
    ):
        if given != expected:
            raise ValueError(f"{what} has shape {given}, expected {expected} for a matrix of shape {matrix.shape}")
    called = tuple(map(str, range(d))) if names is None else names
    if not np.all(np.isfinite(matrix)):
        row, column = np.argwhere(~np.isfinite(matrix))[0]
        raise ValueError(f"matrix has {matrix[row, column]} in row {row} of parameter '{called[column]}'")
    for what, numbers in (("measured", measured), ("std", std)):
        if not np.all(np.isfinite(numbers)):
            row = np.flatnonzero(~np.isfinite(numbers))[0]
            raise ValueError(f"{what} has {numbers[row]} in row {row}, expected a finite number")
    if not np.all(std > 0.0):
        row = np.flatnonzero(std <= 0.0)[0]
        raise ValueError(f"std has {std[row]:g} in row {row}, expected a number above 0")
    if not np.all(lower < upper):
        i = np.flatnonzero(~(lower < upper))[0]
        raise ValueError(
            f"parameter '{called[i]}' has the bounds {lower[i]:g} and {upper[i]:g}, expected lower < upper"
        )
    if m < d:
        raise ValueError(f"there are {m} equations for {d} parameters, expected at least as many equations")
