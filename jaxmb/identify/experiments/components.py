"""Components of tests: what a kind of test can tell beside its prediction and residual; one that it lacks is None.

Each refers to its test, so that a test need not carry what follows from its data.
"""

import abc
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.identify.estimation.least_squares import NormalEquations, normal_equations
from jaxmb.identify.experiments.names import display_name
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import LinearizeAt, Tangent
from jaxmb.response.frf_kind import Point

if TYPE_CHECKING:
    from jaxmb.identify.experiments.test import Test

T = TypeVar("T", bound="Test[Any]")


@dataclasses.dataclass(frozen=True, eq=False)
class Component(abc.ABC, Generic[T]):
    """Something that a test can tell."""

    test: T


class Correlation(Component[T]):
    """How errors of rows go together: not at all, where a kind of test says nothing else."""

    @property
    def between_responses(self) -> bool:
        """Whether errors go on from line to line at one ratio, so that the residual does not show a misfit."""
        return False

    def variance_factor(self, basis: Float[np.ndarray, "m r"], row_weights: np.ndarray) -> float:
        """How many times larger correlations make the variance of errors along some directions.

        Args:
            basis: directions, as columns.
            row_weights: variance of each row.
        """
        return 1.0

    @property
    def degrees_factor(self) -> float:
        """By what correlations divide the degrees of freedom of a sum of squares."""
        return 1.0

    @property
    def lengths(self) -> Float[np.ndarray, "m"]:
        """How many neighbouring rows tell as much as one where their stated deviations are larger than their errors for
        it, so that they count as if they were independent."""
        return np.ones(self.test.rows)

    def length(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Number of neighbouring rows whose residuals tell no more than one."""
        return 1.0


class Noise(Component[T]):
    """Noise of a test: as stated and independent of the fit, where a kind of test says nothing else."""

    @property
    def correlation(self) -> Correlation[Any]:
        """Between the errors of rows."""
        return Correlation(self.test)

    @property
    def is_known(self) -> bool:
        """Whether the noise is as stated, and not to be estimated from what the fit leaves."""
        return True

    @property
    def nominal(self) -> float | None:
        """Standard deviation in which eq. 22 of Huynh et al. 2020 counts; None for what is no FRF."""
        return None

    @property
    def is_one_factor(self) -> bool:
        """Whether noise that is to be estimated is a factor on all rows."""
        return True

    def estimated(self, residual: np.ndarray, expected: float) -> float:
        """`nominal` with which the sum of squares of a residual is as expected."""
        raise NotImplementedError(f"the noise of {display_name(self.test.name)} cannot be estimated from a fit")

    def with_nominal(self, std: float) -> T:
        """The test with another `nominal`."""
        raise NotImplementedError(f"the noise of {display_name(self.test.name)} cannot be estimated from a fit")

    @property
    def follows_fit(self) -> bool:
        """Whether `at_fit` gives another test."""
        return False

    def at_fit(self, view: Any) -> T:
        """The test with its noise as it is of a machine that fits."""
        return self.test

    def change_from(self, other: T) -> float:
        """Largest logarithm of the ratio of the noise of any row to that of another version of the test; infinite
        where that has other lines left out."""
        return 0.0

    @property
    def exact_cost(self) -> float:
        """Cost, in units of the noise, below which the data are followed as far as rounding allows."""
        return 1e-12 * self.test.rows

    @property
    def nuisance_rows(self) -> int:
        """Rows that numbers of the test's own take up, as the scale of a measured shape does."""
        return 0

    def noiseless(self, view: Any) -> T:
        """The test as it would be measured on a machine without noise, where the residual is not linear in the data;
        itself where it is, so that a difference of residuals says the same."""
        return self.test

    def resample(self, residual: np.ndarray, row_weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A residual drawn from what a fit left, with replacement; of rows without an order each by itself."""
        used = row_weights > 0.0
        plain = residual[used] / np.sqrt(row_weights[used])
        drawn = np.zeros(residual.size)
        if plain.size:
            drawn[used] = np.sqrt(row_weights[used]) * rng.choice(plain, size=plain.size)
        return drawn


class Lines(Component[T]):
    """Lines of a test, of which single ones may not belong to their neighbours. Abstract."""

    @property
    @abc.abstractmethod
    def robust(self) -> bool:
        """Whether outlier lines are left out."""

    @abc.abstractmethod
    def decimate(self, most: int) -> T:
        """The test on fewer lines, evenly spread and weighted, that show the way as well as all."""

    @abc.abstractmethod
    def outliers(self, residual: np.ndarray, row_weights: np.ndarray) -> Int[np.ndarray, "k"]:
        """Numbers of outlier lines."""

    @property
    @abc.abstractmethod
    def left_out(self) -> Int[np.ndarray, "k"]:
        """Numbers of the lines that were left out for that."""

    @abc.abstractmethod
    def without(self, lines: Int[np.ndarray, "k"]) -> T:
        """The test with some lines left out."""

    @abc.abstractmethod
    def text(self, lines: Int[np.ndarray, "k"]) -> str:
        """Some lines in a sentence."""

    @abc.abstractmethod
    def scatter(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Variance, over that of the noise, of what differs from line to line: no model follows it."""

    @abc.abstractmethod
    def systematic(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Part of the variance of what is left that is no noise; 0 where that cannot be told."""

    @abc.abstractmethod
    def undefined(self, view: Any) -> tuple[str, ...]:
        """What was measured and cannot be compared with the prediction, in words."""


class Equations(NamedTuple):
    """measured = matrix @ x, row by row: a test whose prediction is linear.

    x are the free values, or their reciprocals where `LinearForm.reciprocal` says so.
    """

    matrix: Float[np.ndarray, "m d"]
    measured: Float[np.ndarray, "m"]
    """Less what does not depend on the free values."""
    std: Float[np.ndarray, "m"]
    weight: Float[np.ndarray, "m"]
    """By which the squared error of a row counts, over its variance."""
    case: Int[np.ndarray, "m"]
    """What was measured together, such as one load, has one number."""


class Sums(NamedTuple):
    """Sums of numbers of a machine that a kind of test tells."""

    names: tuple[str, ...]
    """Of a number that each is called after."""
    formulas: tuple[str, ...]
    parameters: tuple[str, ...]
    matrix: Float[np.ndarray, "s p"]
    """Sums = matrix @ [value of each of the parameters]."""


class LinearForm(Component[T]):
    """Equations of a test whose prediction is linear in values or in their reciprocals. Abstract."""

    @property
    def robust(self) -> bool:
        """Whether outliers are given less weight, by how far they are off."""
        return False

    @property
    def accepts_prior(self) -> bool:
        """Whether a prior may be of values on a linear scale: a linear step has its rows below those of the test."""
        return False

    @abc.abstractmethod
    def reciprocal(self, model: Model, free: FreeParameters) -> Float[np.ndarray, "d"] | None:
        """How the prediction is linear in each free value: 0 in the value itself, 1 in its reciprocal, NaN where the
        prediction does not depend on it. None where the prediction is not linear."""

    @abc.abstractmethod
    def equations(self, model: Model, free: FreeParameters) -> Equations:
        """The linear equations where `reciprocal` is not None, with a column for every free value.

        A column is zero where the prediction does not depend on the value.
        """

    def sums(self, model: Model, free: FreeParameters) -> Sums | None:
        """Sums of a machine's numbers that such tests determine, by the machine's structure and by which are free and
        not by their values; None where each number is determined alone."""
        return None


class Hypothesis(NamedTuple):
    """A number, 0 as a test is described, by which a single mistake in that would be mended."""

    key: str
    """Tests that share it share the number."""
    size: float
    """Of the order of a common mistake."""
    text: Callable[[float], str]
    """The mistake in words, for a value of the number."""
    least: float = -np.inf
    """Values that cannot be lie below."""
    starts: tuple[float, ...] = ()
    """From where it is looked for beside 0: what is far from there is not seen from 0."""


class Hypotheses(Component[T]):
    """Mistakes that can be made in the description of a test. Abstract."""

    @abc.abstractmethod
    def of(self, model: Model) -> tuple[Hypothesis, ...]:
        """All of them, for a machine."""

    @abc.abstractmethod
    def residual(self, model: Model, numbers: Float[Array, "c"]) -> Float[Array, "m"]:
        """The residual with the description changed by numbers in the order of `of`."""


class OwnParameters(Component[T]):
    """Numbers that belong to a test and not to the machine, and that a study may free. Abstract."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Of these numbers."""

    @property
    @abc.abstractmethod
    def values(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """As they are known, in the order of `names`."""

    @abc.abstractmethod
    def with_values(self, values: Float[Array, "k"] | Float[np.ndarray, "k"]) -> T:
        """The test with others."""


class Probe(eqx.Module):
    """An FRF test that could be made at any posture."""

    points: tuple[Point, ...] = eqx.field(static=True)
    """All points that outputs and inputs are taken from: alternatives of one size are one program."""
    outputs: Int[Array, "o"]
    inputs: Int[Array, "i"] | None
    """None where they are the outputs."""
    derivatives: int = eqx.field(static=True)
    at: LinearizeAt = eqx.field(static=True)
    omega: Float[Array, "f"]
    decay: Float[Array, ""]
    noise_std: Float[Array, ""]
    """Standard deviation of log H, real and imaginary part each."""

    @property
    def ends(self) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
        """Outputs and inputs by name."""
        outputs = tuple(self.points[i] for i in np.asarray(self.outputs))
        return outputs, outputs if self.inputs is None else tuple(self.points[i] for i in np.asarray(self.inputs))

    @property
    def band_hz(self) -> tuple[float, float]:
        """First and last line."""
        return float(self.omega[0]) / (2 * np.pi), float(self.omega[-1]) / (2 * np.pi)

    def changed(
        self,
        omega: Float[np.ndarray, "f"] | None = None,
        ends: tuple[Sequence[Point], Sequence[Point]] | None = None,
        points: Sequence[Point] | None = None,
    ) -> "Probe":
        """The probe with other lines and points where such are given.

        Args:
            omega: angular frequencies, rad/s.
            ends: outputs and inputs.
            points: more points than those, so that probes of other ends share a program.
        """
        outputs, inputs = self.ends if ends is None else (tuple(ends[0]), tuple(ends[1]))
        known = tuple(dict.fromkeys([*(points or ()), *outputs, *inputs]))
        return Probe(
            points=known,
            outputs=jnp.asarray([known.index(p) for p in outputs]),
            inputs=None if inputs == outputs else jnp.asarray([known.index(p) for p in inputs]),
            derivatives=self.derivatives,
            at=self.at,
            omega=self.omega if omega is None else jnp.asarray(omega),
            decay=self.decay,
            noise_std=self.noise_std,
        )


class Vibration(Component[T]):
    """Small motions of the machine at the one posture of a test. Abstract."""

    @property
    @abc.abstractmethod
    def q(self) -> Float[Array, "n"]:
        """The posture."""

    @property
    @abc.abstractmethod
    def linearized_at(self) -> LinearizeAt:
        """Where small motions are taken: at the posture, or at the equilibrium under gravity."""

    @abc.abstractmethod
    def tangent(self, view: Any) -> Tangent:
        """Small motions of the machine that has the view."""

    def check(self, model: Model) -> None:
        """Raise ValueError where a machine has no equilibrium at the posture, or a motion without mass."""

    @property
    @abc.abstractmethod
    def band_end_hz(self) -> float:
        """Frequency up to which a result lists the modes of the machine."""

    @property
    @abc.abstractmethod
    def highest_hz(self) -> float:
        """Highest frequency that the test measures."""

    @property
    @abc.abstractmethod
    def highest_text(self) -> str:
        """What `highest_hz` is, in a sentence."""

    @property
    @abc.abstractmethod
    def first_frequency_hz(self) -> float | None:
        """Frequency of the first mode that the data show; None where they show none."""

    def probe(self) -> Probe | None:
        """The test as one that could be made at other postures; None where that cannot be planned."""
        return None


class AffineView(Protocol):
    """What a test sees of a machine, as an affine function of the free values."""

    def __call__(self, values: Float[Array, "d"] | np.ndarray) -> Any:
        """The view at physical values."""
        ...

    def joined(self, others: list[Any]) -> Self:
        """The same function in a form that it shares with other views of its kind, so that they can be stacked."""
        ...


class Evaluation(Component[T]):
    """How the residual of a test is evaluated in a fit: as it is, where a kind of test says nothing else."""

    def stripped(self) -> T:
        """The test without arrays that neither its residual nor its row weights depend on."""
        return self.test

    def affine_view(self, model: Model, free: FreeParameters) -> AffineView | None:
        """The view as an affine function of the free values, which saves the kinematics; None where it is not one."""
        return None

    def normal_equations(
        self, view: AffineView, values: Callable[[Float[Array, "d"]], Float[Array, "d"]], u: Float[Array, "d"]
    ) -> NormalEquations:
        """Those of the residual at u.

        Args:
            view: what the test sees, as a function of the free values.
            values: the free values, as a function of u.
            u: where.
        """
        return normal_equations(lambda x: self.test.residual(view(values(x))), u)


def own_names(test: "Test[Any]") -> tuple[str, ...]:
    """Names of the numbers of a test's own; none where it has none."""
    return () if test.own is None else test.own.names


def is_robust(test: "Test[Any]") -> bool:
    """Whether the linear step of a test gives outliers less weight."""
    return test.linear is not None and test.linear.robust


def accepts_prior(test: "Test[Any]") -> bool:
    """Whether the linear step of a test has the rows of a prior on a linear scale below its own."""
    return test.linear is not None and test.linear.accepts_prior


def can_be_planned(test: "Test[Any]") -> bool:
    """Whether a test could be made at other postures."""
    return test.vibration is not None and test.vibration.probe() is not None
