"""Results: what an identification found, what it is judged by, and how that is kept.

`jaxmb.identify` gives a `Result`; its `metrics` are a record, and a mapping with the names of result.json.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.identify.assess.finding import Finding
    from jaxmb.identify.assess.holdout import Verdict
    from jaxmb.identify.assess.identify import identify
    from jaxmb.identify.assess.linear_outcome import linear_finding
    from jaxmb.identify.assess.metrics import KindMetrics, Metrics, Profile, TrueMode
    from jaxmb.identify.assess.one_model import OneModel
    from jaxmb.identify.assess.profile import with_profiles
    from jaxmb.identify.assess.result import Mode, Parameter, Result
    from jaxmb.identify.assess.stiffness_model.record import StiffnessModelMetrics
    from jaxmb.identify.assess.tests.deflections import DeflectionMetrics
    from jaxmb.identify.assess.tests.frf import FrfMetrics
    from jaxmb.identify.assess.tests.modes import ModesMetrics
    from jaxmb.identify.estimation.identifiability import KnownTogether
    from jaxmb.io.strict_json import strict, versions

__all__ = [
    "DeflectionMetrics",
    "Finding",
    "FrfMetrics",
    "KindMetrics",
    "KnownTogether",
    "Metrics",
    "Mode",
    "ModesMetrics",
    "OneModel",
    "Parameter",
    "Profile",
    "Result",
    "StiffnessModelMetrics",
    "TrueMode",
    "Verdict",
    "identify",
    "linear_finding",
    "strict",
    "versions",
    "with_profiles",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "DeflectionMetrics": "jaxmb.identify.assess.tests.deflections",
        "Finding": "jaxmb.identify.assess.finding",
        "FrfMetrics": "jaxmb.identify.assess.tests.frf",
        "KindMetrics": "jaxmb.identify.assess.metrics",
        "KnownTogether": "jaxmb.identify.estimation.identifiability",
        "Metrics": "jaxmb.identify.assess.metrics",
        "Mode": "jaxmb.identify.assess.result",
        "ModesMetrics": "jaxmb.identify.assess.tests.modes",
        "OneModel": "jaxmb.identify.assess.one_model",
        "Parameter": "jaxmb.identify.assess.result",
        "Profile": "jaxmb.identify.assess.metrics",
        "Result": "jaxmb.identify.assess.result",
        "StiffnessModelMetrics": "jaxmb.identify.assess.stiffness_model.record",
        "TrueMode": "jaxmb.identify.assess.metrics",
        "Verdict": "jaxmb.identify.assess.holdout",
        "identify": "jaxmb.identify.assess.identify",
        "linear_finding": "jaxmb.identify.assess.linear_outcome",
        "strict": "jaxmb.io.strict_json",
        "versions": "jaxmb.io.strict_json",
        "with_profiles": "jaxmb.identify.assess.profile",
    },
)
