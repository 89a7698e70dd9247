"""Laws: test of one linear model for all tests, and parameter laws of posture, load or amplitude where it fails."""

from jaxmb.identify.assess.laws.law_problem import (
    ChosenTerm as ChosenTerm,
    Laws as Laws,
    model_with_laws as model_with_laws,
    terms_of as terms_of,
    values_with_laws as values_with_laws,
)
from jaxmb.identify.assess.laws.one_model import (
    LEVEL as LEVEL,
    OneModel as OneModel,
)
from jaxmb.identify.study.format.study_format import LawsPart as LawsPart
from jaxmb.identify.study.law_terms import (
    Term as Term,
    covariate as covariate,
    law_terms as law_terms,
)
