"""Essential parameters of a linear model: the smallest model that fits the data equally well."""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy.special import fdtri

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd

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
    full_chi_square: float
    """The same for all parameters."""


def essential_parameters(
    matrix: Float[np.ndarray, "m d"],
    measured: Float[np.ndarray, "m"],
    std: Float[np.ndarray, "m"],
    names: tuple[str, ...],
    chance: float = CHANCE,
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
        chance: significance level.

    Returns:
        Essential parameters with values and standard deviations of the smaller model.

    Raises:
        ValueError: sizes differ, or a standard deviation is not positive.

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
        if ratio > 1.0 / float(fdtri(freedom, len(eliminated) + 1, chance)):
            break
        essential, (values, deviations, chi_square, _) = fewer, trial
        eliminated.append(worst)
    return EssentialParameters(
        tuple(names[i] for i in essential), values, np.sqrt(scale) * deviations,
        tuple(names[i] for i in eliminated), chi_square, full,
    )  # fmt: skip


def _fit(corner: np.ndarray, columns: list[int]) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Values, standard deviations by the stated noise, sum of squares and rank of a fit of selected columns."""
    if not columns:
        return np.zeros(0), np.zeros(0), float(corner[:, -1] @ corner[:, -1]), 0
    svd = scaled_svd(corner[:, columns], RANK_TOLERANCE)
    gain = svd.right[: svd.rank].T / svd.values[: svd.rank]
    target = svd.left[: len(corner), : svd.rank].T @ corner[:, -1]
    values = gain @ target / svd.scale
    std = np.where(svd.unknown, np.inf, np.linalg.norm(gain, axis=1) / svd.scale)
    error = corner[:, -1] - corner[:, columns] @ values
    return values, std, float(error @ error), svd.rank
