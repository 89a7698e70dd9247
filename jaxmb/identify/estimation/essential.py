"""Which parameters of a linear model the data really tell: the smaller model that explains them as well."""

import dataclasses

import numpy as np
from jaxtyping import Float
from scipy.special import fdtri

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd

CHANCE = 0.05
"""Probability with which parameters that are 0 are kept for what they explain of the noise."""


@dataclasses.dataclass(frozen=True, eq=False)
class EssentialParameters:
    """The parameters that are left of a linear model, the others taken as 0."""

    names: tuple[str, ...]
    values: Float[np.ndarray, "k"]
    std: Float[np.ndarray, "k"]
    """inf where the data do not determine one."""
    eliminated: tuple[str, ...]
    """In the order in which they went."""
    chi_square: float
    """Sum of squared errors over variances of the smaller model."""
    full_chi_square: float
    """The same of all parameters."""


def essential_parameters(
    matrix: Float[np.ndarray, "m d"],
    measured: Float[np.ndarray, "m"],
    std: Float[np.ndarray, "m"],
    names: tuple[str, ...],
    chance: float = CHANCE,
) -> EssentialParameters:
    """Parameters without which a linear model explains its data significantly worse.

    The one of the largest relative standard deviation is taken as 0 and the others are fitted again, as long as the sum
    of squares does not grow significantly over that of all d parameters: with k of them eliminated

        F = ((chi^2_k - chi^2_0) / k) / max(chi^2_0 / (m - r), 1)

    stays below the quantile of Fisher's distribution of k and m - r degrees of freedom, r the rank. The noise is taken
    as what the full model leaves, and as no less than stated, as it is where neighbouring samples are alike.

    Args:
        matrix: of the equations; `torque_regressor` on base parameters, say.
        measured: what they are to give.
        std: standard deviation of each.
        names: of the parameters.
        chance: probability of a larger F where all that was eliminated is 0.

    Returns:
        What is left, with values and standard deviations of the smaller model.

    Raises:
        ValueError: sizes differ, or a deviation is not above 0.

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
    left = list(range(len(names)))
    gone: list[int] = []
    values, spread, full, rank = _fitted(corner, left)
    chi_square, freedom = full, max(len(rows) - rank, 1)
    scale = max(full / freedom, 1.0)
    while left:
        size = np.abs(values)
        relative = np.where(np.isfinite(spread), spread / np.where(size > 0.0, size, 1e-300), np.inf)
        worst = left[int(np.argmax(relative))]
        fewer = [i for i in left if i != worst]
        tried = _fitted(corner, fewer)
        ratio = (tried[2] - full) / (len(gone) + 1) / scale
        if ratio > 1.0 / float(fdtri(freedom, len(gone) + 1, chance)):
            break
        left, (values, spread, chi_square, _) = fewer, tried
        gone.append(worst)
    return EssentialParameters(
        tuple(names[i] for i in left), values, np.sqrt(scale) * spread, tuple(names[i] for i in gone), chi_square, full
    )


def _fitted(corner: np.ndarray, columns: list[int]) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Values, standard deviations by the stated noise, sum of squares and rank of a fit of some columns."""
    if not columns:
        return np.zeros(0), np.zeros(0), float(corner[:, -1] @ corner[:, -1]), 0
    svd = scaled_svd(corner[:, columns], RANK_TOLERANCE)
    gain = svd.right[: svd.rank].T / svd.values[: svd.rank]
    target = svd.left[: len(corner), : svd.rank].T @ corner[:, -1]
    values = gain @ target / svd.scale
    std = np.where(svd.unknown, np.inf, np.linalg.norm(gain, axis=1) / svd.scale)
    error = corner[:, -1] - corner[:, columns] @ values
    return values, std, float(error @ error), svd.rank
