"""What is to be said of a fit that does not follow its deflections."""

import numpy as np
from jaxtyping import Float

PLAUSIBLE = 2.0
"""Cost over what the noise alone gives, above which the model does not follow the data."""
OUTLIER = 0.5
"""Robust weight below which a displacement is called an outlier."""


CAUSES = (
    "a moment or an offset of the tool that is left out of the loads, axes of another frame, something else that gives"
    " way (links, the base, the gripper)"
)
"""What linear models of joints usually fail on."""


def misfit_excess(
    cost: float, weight: Float[np.ndarray, "m"], robust_weight: Float[np.ndarray, "m"], parameters: int
) -> float:
    """Cost over what the noise alone gives; see `misfit_remarks`."""
    degrees = max(float(robust_weight.sum()) - parameters, 1.0)
    # The weights are relative: only what they make of the errors of the stated deviations says how large a cost may be.
    return cost / float(np.average(weight, weights=robust_weight) * degrees)


def widening(
    cost: float, weight: Float[np.ndarray, "m"], robust_weight: Float[np.ndarray, "m"], parameters: int
) -> float:
    """Factor by which standard deviations are widened: the root of the excess where it is above `PLAUSIBLE`, else 1.

    What the stated deviations do not explain is taken as noise of that size; see `misfit_remarks` for the arguments.

    Source: Birge, Phys. Rev. 40, 207 (1932).
    """
    excess = misfit_excess(cost, weight, robust_weight, parameters)
    return float(np.sqrt(excess)) if excess > PLAUSIBLE else 1.0


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
    excess = misfit_excess(cost, weight, robust_weight, parameters)
    if excess > PLAUSIBLE:
        remarks.append(
            f"the cost is {excess:.3g} times what the noise alone gives: the model cannot follow the data,"
            f" or the noise is larger than stated; standard deviations are widened by {np.sqrt(excess):.3g} for it."
            f" Usual causes: {CAUSES}"
        )
    outliers = int(np.sum(robust_weight < OUTLIER))
    if outliers:
        remarks.append(f"{outliers} of {robust_weight.size} displacements are outliers and count little or nothing")
    return remarks
