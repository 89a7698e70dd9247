"""What a result tells of laws that parameters follow from test to test."""

import dataclasses

from jaxmb.identify.study.law_terms import Term


@dataclasses.dataclass(frozen=True, eq=False)
class ChosenTerm:
    """A term that was taken: ln parameter = ... + coefficient * term."""

    parameter: str
    by: str
    term: str
    coefficient: float
    std: float
    function: str
    scale: float
    mean: float

    def as_term(self) -> Term:
        """The term as a function of what it is of."""
        return Term(self.parameter, self.by, self.function, self.scale, self.mean)


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """A term that was considered in one step, fitted beside those that were chosen before."""

    step: int
    parameter: str
    by: str
    term: str
    coefficient: float
    z: float
    """The coefficient over its standard deviation."""
    p: float
    """Probability of so large a z without a law, corrected for the number of candidates."""
    holdout_error: float | None
    """Of tests held out, in units of their noise; None where it was not judged by these."""
    gain: float
    """Mean logarithm of the ratio of hold-out errors, before over after; NaN where it was not judged."""
    gain_std: float
    choice_gain: float
    """The same where for each group of tests the term, too, is chosen without it."""
    choice_gain_std: float
    predicts: bool
    """Whether held-out tests are predicted better, by more than the standard error."""
    taken: bool


@dataclasses.dataclass(frozen=True, eq=False)
class GroupError:
    """Error of tests held out together, without laws and with them, in units of the noise."""

    tests: tuple[str, ...]
    without: float
    with_: float


@dataclasses.dataclass(frozen=True, eq=False)
class HoldOutErrors:
    """Root mean square error of tests held out, without laws and with them, in units of the noise."""

    without: float
    tests: tuple[GroupError, ...]
    with_: float


@dataclasses.dataclass(frozen=True, eq=False)
class WithLaws:
    """Whether one model does for all tests once its parameters follow the laws."""

    does: bool
    residual_over_noise: float
    p: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class ValueInTest:
    """A parameter in one test: by its law, and by the test itself, with standard deviations of the logarithm."""

    test: str
    law: float
    law_std_log: float
    own: float
    own_std_log: float
    truth: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Laws:
    """Laws that were chosen by what they predict of tests held out."""

    by: tuple[str, ...]
    """What laws may be of."""
    chosen: tuple[ChosenTerm, ...]
    centre: dict[str, float]
    """Values of the parameters at the centre of the tests."""
    centre_std_log: dict[str, float]
    holdout: HoldOutErrors
    considered: tuple[Candidate, ...]
    one_model: WithLaws
    values: dict[str, tuple[ValueInTest, ...]]
    """Of each parameter with a law; of the nearest candidate where there is none."""
    unsettled: bool | None = None
    """True where some of the fits by which laws were chosen and judged did not converge."""
