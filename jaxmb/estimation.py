"""Estimation for any observation matrix: least squares, identifiability, and reduction of overparameterized models.

Independent of machines. Rank, groups of parameters identifiable only in combination, and standard deviations come from
one decomposition (`identifiability`), before a test as well as after it.
"""

from jaxmb.identify.estimation.identifiability import (
    Group as Group,
    Identifiability as Identifiability,
    KnownTogether as KnownTogether,
    ScaledSvd as ScaledSvd,
    correlation as correlation,
    groups as groups,
    groups_by_name as groups_by_name,
    identifiability as identifiability,
    information_rows as information_rows,
    scaled_svd as scaled_svd,
    verdicts as verdicts,
)
from jaxmb.identify.estimation.least_squares import (
    Box as Box,
    LeastSquaresState as LeastSquaresState,
    residual_and_jacobian as residual_and_jacobian,
)
from jaxmb.identify.estimation.linear import (
    LinearFit as LinearFit,
    linear_fit as linear_fit,
)
from jaxmb.identify.estimation.reduction import (
    Partition as Partition,
    Reduction as Reduction,
    Step as Step,
    partition as partition,
    reduction as reduction,
)
from jaxmb.identify.estimation.semidefinite import (
    Cone as Cone,
    minimize_over as minimize_over,
)
