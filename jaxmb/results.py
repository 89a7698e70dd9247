"""Results of identifications: parameters, metrics and uncertainty.

`jaxmb.identify` returns a `Result`; its `metrics` have attributes, and are a mapping with the names of result.json.
"""

from jaxmb.identify.assess.estimate import Estimate as Estimate
from jaxmb.identify.assess.identify import identify as identify
from jaxmb.identify.assess.laws.one_model import OneModel as OneModel
from jaxmb.identify.assess.linear_estimate import linear_estimate as linear_estimate
from jaxmb.identify.assess.metrics import (
    KindMetrics as KindMetrics,
    Metrics as Metrics,
    PredictionScores as PredictionScores,
    Profile as Profile,
    StiffnessModelMetrics as StiffnessModelMetrics,
    TrueMode as TrueMode,
)
from jaxmb.identify.assess.result import (
    Mode as Mode,
    Outcome as Outcome,
    Parameter as Parameter,
    Result as Result,
)
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics as DeflectionMetrics
from jaxmb.identify.assess.tests.frf import FrfMetrics as FrfMetrics, ModesMetrics as ModesMetrics
from jaxmb.identify.assess.uncertainty.monte_carlo import (
    Draws as Draws,
    bootstrap as bootstrap,
    monte_carlo as monte_carlo,
    write_draws as write_draws,
)
from jaxmb.identify.assess.uncertainty.nonlinear import with_profiles as with_profiles
from jaxmb.identify.estimation.identifiability import KnownTogether as KnownTogether
from jaxmb.io.files import (
    strict as strict,
    versions as versions,
)
