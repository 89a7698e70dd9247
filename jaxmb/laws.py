"""Laws: whether one linear model does for all tests, and which law of posture, load or amplitude if not.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.identify.assess.laws.law_problem import model_with_laws, terms_of, values_with_laws
    from jaxmb.identify.assess.laws.law_record import ChosenTerm, Laws
    from jaxmb.identify.assess.one_model import LEVEL, OneModel
    from jaxmb.identify.study.format.law_format import LawsPart
    from jaxmb.identify.study.law_terms import Term, covariate, law_terms

__all__ = [
    "LEVEL",
    "ChosenTerm",
    "Laws",
    "LawsPart",
    "OneModel",
    "Term",
    "covariate",
    "law_terms",
    "model_with_laws",
    "terms_of",
    "values_with_laws",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ChosenTerm": "jaxmb.identify.assess.laws.law_record",
        "LEVEL": "jaxmb.identify.assess.one_model",
        "Laws": "jaxmb.identify.assess.laws.law_record",
        "LawsPart": "jaxmb.identify.study.format.law_format",
        "OneModel": "jaxmb.identify.assess.one_model",
        "Term": "jaxmb.identify.study.law_terms",
        "covariate": "jaxmb.identify.study.law_terms",
        "law_terms": "jaxmb.identify.study.law_terms",
        "model_with_laws": "jaxmb.identify.assess.laws.law_problem",
        "terms_of": "jaxmb.identify.assess.laws.law_problem",
        "values_with_laws": "jaxmb.identify.assess.laws.law_problem",
    },
)
