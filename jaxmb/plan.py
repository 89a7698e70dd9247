"""Test planning: identifiability before measuring, and selection of the next tests.

`inspect` does both for a study. The other names are its parts: candidate tests, their information on the free
parameters, and the choice of the most informative set.
"""

from jaxmb.identify.estimation.design import (
    Design as Design,
    choose_tests as choose_tests,
)
from jaxmb.identify.experiments.components import Probe as Probe
from jaxmb.identify.plan.candidates import (
    Candidate as Candidate,
    OperatingPoint as OperatingPoint,
    candidates_of as candidates_of,
    information_of as information_of,
    planned as planned,
    postures_of as postures_of,
)
from jaxmb.identify.plan.exciting_motion import NextMotion as NextMotion
from jaxmb.identify.plan.inspection import (
    Expected as Expected,
    Inspection as Inspection,
    inspect as inspect,
)
from jaxmb.identify.plan.next_tests import (
    NextTests as NextTests,
    choose_next as choose_next,
    criterion_of as criterion_of,
)
from jaxmb.identify.study.format.next_format import (
    NextMotionPart as NextMotionPart,
    NextPart as NextPart,
)
