"""What is to be said of a fit that does not follow its deflections."""

import numpy as np
from jaxtyping import Float

PLAUSIBLE = 2.0
"""Cost over what the noise alone gives, above which the model does not follow the data."""
OUTLIER = 0.5
"""Robust weight below which a displacement is called an outlier."""


def misfit_remarks(
    cost: float, weight: Float[np.ndarray, "m"], robust_weight: Float[np.ndarray, "m"], parameters: int
) -> list[str]:
    """Sentences on a cost that the noise does not explain, and on outliers; none where there is nothing to say.

    Args:
        cost: sum of weight robust_weight (residual / std)^2.
        weight: by which the squared error of each displacement counts.
        robust_weight: what the robust fit gave each of them, 1 without it.
        parameters: number of them that the data determine.
    """
    remarks = []
    degrees = max(float(robust_weight.sum()) - parameters, 1.0)
    # The weights are relative: only what they make of the errors of the stated deviations says how large a cost may be.
    excess = cost / (np.average(weight, weights=robust_weight) * degrees)
    if excess > PLAUSIBLE:
        remarks.append(
            f"the cost is {excess:.3g} times what the noise alone gives: the model cannot follow the data,"
            " or the noise is larger than stated"
        )
    outliers = int(np.sum(robust_weight < OUTLIER))
    if outliers:
        remarks.append(f"{outliers} of {robust_weight.size} displacements are outliers and count little or nothing")
    return remarks
