"""Metrics of a complete stiffness model: reduction, compensation by its variants, completed machine."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Errors:
    """Errors over many points, mm."""

    max: float
    rms: float


@dataclasses.dataclass(frozen=True, eq=False)
class CompensationRow:
    """Residual deflections after compensation by one variant: a row of Table 2 of Klimchik et al. 2014."""

    model: str
    """Name of the variant; "none" for uncompensated deflections."""
    parameters: int
    x: Errors
    y: Errors
    z: Errors
    position: Errors
    compensated_percent: float


@dataclasses.dataclass(frozen=True, eq=False)
class CompletionOutcome:
    """The physically consistent machine that agrees with the reduced model, or the nearest one."""

    possible: bool
    freedom: int
    """Directions in the compliances that the reduced values do not determine."""
    chi_square: float
    joints: dict[str, float]
    links: dict[str, np.ndarray]
    """Compliance [6, 6] of each link."""


@dataclasses.dataclass(frozen=True, eq=False)
class SpringOutcome:
    """Spring of the machine that reproduces the compliance of the compensated joint."""

    joint_stiffness: float
    stiffness: float
    free_length: float
    std: dict[str, float]
    fitted_compliance: np.ndarray
    """Compliance at each angle, rad/Nm."""
    chi_square: float
    unsettled: bool | None = None
    """True where the fit did not converge."""


@dataclasses.dataclass(frozen=True, eq=False)
class CompensatorOutcome:
    """Compliance of the compensated joint at each of its angles, NaN without load."""

    joint: str
    angle_deg: np.ndarray
    compliance: np.ndarray
    """rad/Nm."""
    std: np.ndarray
    spring: SpringOutcome | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class CompensationScatter:
    """Standard deviations over draws of the instruments' errors, by variant; without variants that are not
    evaluated."""

    draws: int
    compensated_percent_std: dict[str, float]
    predicted_std_mm: dict[str, float]
    """Root mean square, over the evaluated points, of the standard deviation of their predicted translation."""

    @property
    def remark(self) -> str:
        """A sentence on the scatter."""
        each = ", ".join(
            f"{name} {percent:.2g} % and {self.predicted_std_mm[name]:.2g} mm"
            for name, percent in self.compensated_percent_std.items()
        )
        return (
            f"in {self.draws} draws of the instruments' errors in the fitted tests, the standard deviations of the"
            f" compensated percentage and of the predictions are: {each}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Compensation:
    """Residual deflections after compensation, for fitted and check tests: Table 2 of Klimchik et al. 2014.

    A variant that cannot predict all tests of a role is omitted from that role's table and errors, with None as its
    percentage, since values on a subset of tests are not comparable.
    """

    table2_fit: tuple[CompensationRow, ...] | None = None
    table2_check: tuple[CompensationRow, ...] | None = None
    errors_mm_fit: dict[str, np.ndarray] | None = None
    """Errors of every point [point, 3], by variant."""
    errors_mm_check: dict[str, np.ndarray] | None = None
    compensated_percent: dict[str, float | None] = dataclasses.field(default_factory=dict)
    """Compensated percentage in the evaluated tests, by variant."""

    def rows(self, role: str) -> tuple[CompensationRow, ...] | None:
        """Table 2 for the tests of a role."""
        return self.table2_fit if role == "fit" else self.table2_check

    def errors_mm(self, role: str) -> dict[str, np.ndarray] | None:
        """Errors in the tests of a role, mm."""
        return self.errors_mm_fit if role == "fit" else self.errors_mm_check

    @property
    def judged(self) -> str:
        """Role of the tests in which compensation is evaluated."""
        return "fit" if self.table2_check is None else "check"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class StiffnessModelMetrics(Compensation):
    """Metrics of a complete stiffness model."""

    reduction: dict[str, int]
    """Number of parameters after each reduction step."""
    published_reduction: dict[str, int] | None = None
    """The same as published, as stated in the study."""
    groups: tuple[tuple[str, ...], ...]
    """Groups of parameters of the model before the last reduction step."""
    group_ranks: tuple[int, ...]
    parameters: dict[str, int]
    """Number of parameters of each variant."""
    completion: CompletionOutcome
    compensator: CompensatorOutcome | None = None
    budget: dict[str, dict[str, float]] | None = None
    """Share of each joint and link in the deflections along the loads of each test, %."""
    monte_carlo: CompensationScatter | None = None
