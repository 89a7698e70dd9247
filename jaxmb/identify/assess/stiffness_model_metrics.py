"""What a result tells of a complete stiffness model: its reduction, what its variants compensate, what it was completed
to."""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Errors:
    """Of many points, mm."""

    max: float
    rms: float


@dataclasses.dataclass(frozen=True, eq=False)
class CompensationRow:
    """What one variant leaves of the deflections: a row of Table 2 of Klimchik et al. 2014."""

    model: str
    """Name of the variant; "none" for the deflections themselves."""
    parameters: int
    x: Errors
    y: Errors
    z: Errors
    position: Errors
    compensated_percent: float


@dataclasses.dataclass(frozen=True, eq=False)
class CompletionOutcome:
    """The machine that agrees with the reduced model, or the nearest one."""

    possible: bool
    freedom: int
    """Directions in the compliances that the reduced values leave free."""
    chi_square: float
    joints: dict[str, float]
    links: dict[str, np.ndarray]
    """Compliance [6, 6] of each."""


@dataclasses.dataclass(frozen=True, eq=False)
class SpringOutcome:
    """The machine's own spring that would make the compliance of the compensated joint what it is."""

    joint_stiffness: float
    stiffness: float
    free_length: float
    std: dict[str, float]
    fitted_compliance: np.ndarray
    """At each angle, rad/Nm."""
    chi_square: float
    unsettled: bool | None = None
    """True where the fit did not converge."""


@dataclasses.dataclass(frozen=True, eq=False)
class CompensatorOutcome:
    """Compliance of the compensated joint at each of its angles, NaN where nothing loads it."""

    joint: str
    angle_deg: np.ndarray
    compliance: np.ndarray
    """rad/Nm."""
    std: np.ndarray
    spring: SpringOutcome | None = None


@dataclasses.dataclass(frozen=True, eq=False)
class CompensationScatter:
    """Standard deviations over draws of the instruments' errors, by variant; without those that are not judged."""

    draws: int
    compensated_percent_std: dict[str, float]
    predicted_std_mm: dict[str, float]
    """Root mean square over the judged points of the standard deviation of their predicted translation."""

    @property
    def remark(self) -> str:
        """The scatter in a sentence."""
        each = ", ".join(
            f"{name} {percent:.2g} % and {self.predicted_std_mm[name]:.2g} mm"
            for name, percent in self.compensated_percent_std.items()
        )
        return (
            f"in {self.draws} draws of the instruments' errors in the fitted tests, what is compensated and predicted"
            f" scatters by (standard deviations): {each}"
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Compensation:
    """What each variant leaves of the deflections of fitted tests and of others, Table 2 of Klimchik et al. 2014.

    A variant that cannot predict all tests of a role is left out of that role's table and errors, and has the percent
    None: on some of the tests alone it would not compare with the others.
    """

    table2_fit: tuple[CompensationRow, ...] | None = None
    table2_check: tuple[CompensationRow, ...] | None = None
    errors_mm_fit: dict[str, np.ndarray] | None = None
    """Of every point [point, 3], by variant."""
    errors_mm_check: dict[str, np.ndarray] | None = None
    compensated_percent: dict[str, float | None] = dataclasses.field(default_factory=dict)
    """Of the tests on which compensation is judged, by variant."""

    def rows(self, role: str) -> tuple[CompensationRow, ...] | None:
        """Table 2 of the tests of a role."""
        return self.table2_fit if role == "fit" else self.table2_check

    def errors_mm(self, role: str) -> dict[str, np.ndarray] | None:
        """Errors of the tests of a role."""
        return self.errors_mm_fit if role == "fit" else self.errors_mm_check

    @property
    def judged(self) -> str:
        """Role of the tests on which compensation is judged."""
        return "fit" if self.table2_check is None else "check"


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class StiffnessModelMetrics(Compensation):
    """What a result tells of a complete stiffness model."""

    reduction: dict[str, int]
    """Number of parameters by step."""
    published_reduction: dict[str, int] | None = None
    """The same as Klimchik et al. 2014 printed it, of the machine of that paper."""
    groups: tuple[tuple[str, ...], ...]
    """Parameters of the model before the last step that are one group each."""
    group_ranks: tuple[int, ...]
    parameters: dict[str, int]
    """Number of parameters of each variant."""
    completion: CompletionOutcome
    compensator: CompensatorOutcome | None = None
    budget: dict[str, dict[str, float]] | None = None
    """Share of each joint and link in the deflections along the loads of each test, %."""
    monte_carlo: CompensationScatter | None = None
