"""Estimation for any observation matrix: least squares, what is known after it, models with too many numbers.

Nothing here knows of machines. Rank, groups of parameters that only together are known, and standard deviations come
from one decomposition (`knowledge`), before a test as after it.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.identify.estimation.identifiability import (
        Group,
        Knowledge,
        KnownTogether,
        ScaledSvd,
        correlation,
        groups,
        groups_by_name,
        information_rows,
        knowledge,
        scaled_svd,
        verdicts,
    )
    from jaxmb.identify.estimation.least_squares import Box, LeastSquaresState, residual_and_jacobian
    from jaxmb.identify.estimation.linear import LinearFit, linear_fit
    from jaxmb.identify.estimation.reduction import Partition, Reduction, Step, partition, reduction
    from jaxmb.identify.estimation.semidefinite import Cone, minimise_over

__all__ = [
    "Box",
    "Cone",
    "Group",
    "Knowledge",
    "KnownTogether",
    "LeastSquaresState",
    "LinearFit",
    "Partition",
    "Reduction",
    "ScaledSvd",
    "Step",
    "correlation",
    "groups",
    "groups_by_name",
    "information_rows",
    "knowledge",
    "linear_fit",
    "minimise_over",
    "partition",
    "reduction",
    "residual_and_jacobian",
    "scaled_svd",
    "verdicts",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Box": "jaxmb.identify.estimation.least_squares",
        "Cone": "jaxmb.identify.estimation.semidefinite",
        "Group": "jaxmb.identify.estimation.identifiability",
        "Knowledge": "jaxmb.identify.estimation.identifiability",
        "KnownTogether": "jaxmb.identify.estimation.identifiability",
        "LeastSquaresState": "jaxmb.identify.estimation.least_squares",
        "LinearFit": "jaxmb.identify.estimation.linear",
        "Partition": "jaxmb.identify.estimation.reduction",
        "Reduction": "jaxmb.identify.estimation.reduction",
        "ScaledSvd": "jaxmb.identify.estimation.identifiability",
        "Step": "jaxmb.identify.estimation.reduction",
        "correlation": "jaxmb.identify.estimation.identifiability",
        "groups": "jaxmb.identify.estimation.identifiability",
        "groups_by_name": "jaxmb.identify.estimation.identifiability",
        "information_rows": "jaxmb.identify.estimation.identifiability",
        "knowledge": "jaxmb.identify.estimation.identifiability",
        "linear_fit": "jaxmb.identify.estimation.linear",
        "minimise_over": "jaxmb.identify.estimation.semidefinite",
        "partition": "jaxmb.identify.estimation.reduction",
        "reduction": "jaxmb.identify.estimation.reduction",
        "residual_and_jacobian": "jaxmb.identify.estimation.least_squares",
        "scaled_svd": "jaxmb.identify.estimation.identifiability",
        "verdicts": "jaxmb.identify.estimation.identifiability",
    },
)
