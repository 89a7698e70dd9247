"""Planning: what tests will tell before they are made, and which to make next.

`inspect` answers for a study. The rest is what it is made of: candidates, what each would tell of the free parameters,
and the choice of those that together tell most.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.identify.estimation.design import Design, choose_tests
    from jaxmb.identify.experiments.probe import Probe
    from jaxmb.identify.plan.candidates import Candidate, Place, candidates_of, information_of, planned, postures_of
    from jaxmb.identify.plan.inspection import Expected, Inspection, inspect
    from jaxmb.identify.plan.next_tests import NextTests, choose_next, criterion_of
    from jaxmb.identify.study.format.next_format import NextPart

__all__ = [
    "Candidate",
    "Design",
    "Expected",
    "Inspection",
    "NextPart",
    "NextTests",
    "Place",
    "Probe",
    "candidates_of",
    "choose_next",
    "choose_tests",
    "criterion_of",
    "information_of",
    "inspect",
    "planned",
    "postures_of",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Candidate": "jaxmb.identify.plan.candidates",
        "Design": "jaxmb.identify.estimation.design",
        "Expected": "jaxmb.identify.plan.inspection",
        "Inspection": "jaxmb.identify.plan.inspection",
        "NextPart": "jaxmb.identify.study.format.next_format",
        "NextTests": "jaxmb.identify.plan.next_tests",
        "Place": "jaxmb.identify.plan.candidates",
        "Probe": "jaxmb.identify.experiments.probe",
        "candidates_of": "jaxmb.identify.plan.candidates",
        "choose_next": "jaxmb.identify.plan.next_tests",
        "choose_tests": "jaxmb.identify.estimation.design",
        "criterion_of": "jaxmb.identify.plan.next_tests",
        "information_of": "jaxmb.identify.plan.candidates",
        "inspect": "jaxmb.identify.plan.inspection",
        "planned": "jaxmb.identify.plan.candidates",
        "postures_of": "jaxmb.identify.plan.candidates",
    },
)
