"""What all kinds of tests have in common: what they see of a machine, and how a prediction compares with the data."""

import abc
import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.identify.estimation.least_squares import NormalEquations, normal_equations
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import LinearizeAt, Tangent
from jaxmb.response.frf_kind import Point


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


View = Any
"""What a test sees of a machine: a pytree of arrays that each kind of test defines for itself."""


class AffineView(Protocol):
    """A view as an affine function of the free values."""

    def __call__(self, values: Float[Array, "d"] | np.ndarray) -> View:
        """The view at physical values."""
        ...

    def joined(self, others: list[Any]) -> Self:
        """The same function in a form that it shares with other views of its kind, so that they can be stacked."""
        ...


class Equations(NamedTuple):
    """measured = matrix @ x, row by row: a test whose prediction is linear.

    x are the free values, or their reciprocals where `Test.reciprocal` says so.
    """

    matrix: Float[np.ndarray, "m d"]
    measured: Float[np.ndarray, "m"]
    """Less what does not depend on the free values."""
    std: Float[np.ndarray, "m"]
    weight: Float[np.ndarray, "m"]
    """By which the squared error of a row counts, over its variance."""
    case: Int[np.ndarray, "m"]
    """What was measured together, such as one load, has one number."""


class Score(NamedTuple):
    """How well a machine predicts one test, by what the test can tell; empty or None what it cannot."""

    frac: tuple[float, ...] = ()
    """FRAC of each FRF, 1 alike."""
    log_error: float | None = None
    """Root mean square error of log H."""
    frequency_errors_hz: tuple[float, ...] = ()
    """Absolute errors of natural frequencies."""
    explained_percent: float | None = None
    """100 (1 - RMS of what is left / RMS of what was measured), of data on a linear scale."""

    @property
    def poor(self) -> bool:
        """Whether the machine predicts something else than was measured.

        Fits that follow what was measured stay below a log error of 0.3, 35 % in magnitude or 17 degrees of phase,
        antiresonances included (0.20 for `daisy-arm`, 0.07 with 5 % of noise); a reversed sensor, the wrong unit or
        order of points, or the other sign of time left 0.5 to 3.
        """
        error, explained = self.log_error, self.explained_percent
        return (error is not None and error > 0.3) or (explained is not None and explained < 50.0)


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


class Sums(NamedTuple):
    """Sums of numbers of a machine that a kind of test tells."""

    names: tuple[str, ...]
    """Of a number that each is called after."""
    formulas: tuple[str, ...]
    parameters: tuple[str, ...]
    matrix: Float[np.ndarray, "s p"]
    """Sums = matrix @ [value of each of the parameters]."""


class Test(eqx.Module):
    """One test of a machine: its data, what it sees of the machine, and how a prediction compares with the data.

    Each kind of test is a final class of its own, and a row of `jaxmb.identify.study.kinds`. What is defined here holds
    for a kind that says nothing else.
    """

    __test__: ClassVar[bool] = False

    name: eqx.AbstractVar[str]

    @abc.abstractmethod
    def view(self, model: Model) -> View:
        """What the test sees of a machine."""

    @abc.abstractmethod
    def predict(self, view: View) -> Any:
        """What would be measured."""

    @abc.abstractmethod
    def residual(self, view: View) -> Float[Array, "m"]:
        """sqrt(weight) (predicted - measured) / standard deviation of each row."""

    @abc.abstractmethod
    def row_weights(self) -> Float[Array, "m"] | Float[np.ndarray, "m"]:
        """Weight of each row, which is also the variance of its residual under the stated noise; 0 where not used.

        NumPy where it is not traced.
        """

    @property
    @abc.abstractmethod
    def rows(self) -> int:
        """Number of residuals."""

    @abc.abstractmethod
    def score(self, view: View, reference_hz: np.ndarray | None) -> Score:
        """How well a machine predicts the test.

        Args:
            view: of the machine.
            reference_hz: natural frequencies that are known of the machine that was measured; None where none are.
        """

    def check(self, model: Model) -> None:
        """Raise ValueError where the test cannot be made of a machine."""

    def impossible(self, view: View) -> tuple[str, ...]:
        """What was measured and cannot be compared with the prediction, in words."""
        return ()

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
        return normal_equations(lambda x: self.residual(view(values(x))), u)

    def reciprocal(self, model: Model, free: FreeParameters) -> Float[np.ndarray, "d"] | None:
        """How the prediction is linear in each free value: 0 in the value itself, 1 in its reciprocal, NaN where the
        prediction does not depend on it. None where the prediction is not linear.
        """
        return None

    def equations(self, model: Model, free: FreeParameters) -> Equations:
        """The linear equations of a test whose `reciprocal` is not None, with a column for every free value.

        A column is zero where the prediction does not depend on the value.
        """
        raise NotImplementedError(f"{display_name(self.name)} is not linear in the free parameters")

    @property
    def accepts_linear_prior(self) -> bool:
        """Whether a prior may be of values on a linear scale: a linear step has its rows below those of the test."""
        return False

    def decimate(self, lines: int) -> "Test":
        """The test on fewer lines, evenly spread and weighted, that show the way as well as all."""
        return self

    @property
    def can_decimate(self) -> bool:
        """Whether `decimate` leaves fewer rows."""
        return False

    @property
    def exact_cost(self) -> float:
        """Cost, in units of the noise, below which the data are followed as far as rounding allows."""
        return 1e-12 * self.rows

    # Numbers of its own

    @property
    def number_names(self) -> tuple[str, ...]:
        """Names of numbers that belong to the test and not to the machine, and that a study may free."""
        return ()

    @property
    def numbers(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """These numbers as they are known, in the order of `number_names`."""
        return np.zeros(0)

    def with_numbers(self, numbers: Float[Array, "k"] | Float[np.ndarray, "k"]) -> Self:
        """The test with other such numbers."""
        return self

    def for_residual(self) -> "Test":
        """The test without arrays that neither its residual nor its row weights depend on."""
        return self

    # Mistakes in how it is described

    def changes(self, model: Model) -> tuple[Hypothesis, ...]:
        """Mistakes that can be made in its description."""
        return ()

    def residual_with(self, model: Model, changes: Float[Array, "c"]) -> Float[Array, "m"]:
        """The residual with the description changed."""
        return self.residual(self.view(model))

    def scatter(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Variance, over that of its noise, of what differs from row to row: no model follows it. 1 where rows have no
        order.
        """
        return 1.0

    has_lines: ClassVar[bool] = False
    """Whether it has lines, of which single ones may not belong to their neighbours."""

    @property
    def noise_is_correlated(self) -> bool:
        """Whether part of its noise goes on from line to line, so that `systematic` cannot judge what is left."""
        return False

    def systematic(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Part of the variance of what is left that is no noise."""
        return 0.0

    def outlier_lines(self, residual: np.ndarray, row_weights: np.ndarray) -> Int[np.ndarray, "k"]:
        """Numbers of outlier lines."""
        return np.zeros(0, dtype=int)

    @property
    def lines_left_out(self) -> Int[np.ndarray, "k"]:
        """Numbers of the lines that were left out for that."""
        return np.zeros(0, dtype=int)

    def without_lines(self, lines: Int[np.ndarray, "k"]) -> "Test":
        """The test with some lines left out."""
        return self

    def lines_text(self, lines: Int[np.ndarray, "k"]) -> str:
        """Some lines in a sentence."""
        return ", ".join(map(str, lines))

    @property
    def robust(self) -> bool:
        """Whether outliers are given less weight: in a linear step by how far they are off, in a search single lines
        that do not belong (`outlier_lines`) none."""
        return False

    # Noise

    @property
    def noise_known(self) -> bool:
        """Whether the noise is as stated, and not to be estimated from what the fit leaves."""
        return True

    @property
    def nominal_noise(self) -> float | None:
        """Standard deviation in which eq. 22 of Huynh et al. 2020 counts; None for what is no FRF."""
        return None

    @property
    def noise_follows_fit(self) -> bool:
        """Whether `at_fit` gives another test."""
        return False

    def at_fit(self, view: View) -> "Test":
        """The test with its noise as it is of a machine that fits."""
        return self

    def noise_change(self, other: "Test") -> float:
        """Largest logarithm of the ratio of the noise of any row to that of another version of the test; infinite
        where that has other lines left out."""
        return 0.0

    @property
    def noise_is_one_factor(self) -> bool:
        """Whether noise that is to be estimated is a factor on all rows."""
        return True

    def estimated_noise(self, residual: np.ndarray, expected: float) -> float:
        """`nominal_noise` with which the sum of squares of a residual is as expected."""
        raise NotImplementedError(f"the noise of {display_name(self.name)} cannot be estimated from a fit")

    def with_noise(self, std: float) -> "Test":
        """The test with another `nominal_noise`."""
        raise NotImplementedError(f"the noise of {display_name(self.name)} cannot be estimated from a fit")

    def variance_factor(self, basis: Float[np.ndarray, "m r"], row_weights: np.ndarray) -> float:
        """How many times larger correlations between the errors of rows make their variance along some directions.

        Args:
            basis: directions, as columns.
            row_weights: variance of each row.
        """
        return 1.0

    @property
    def degrees_factor(self) -> float:
        """By what correlations between the errors of rows divide the degrees of freedom of their sum of squares."""
        return 1.0

    @property
    def correlation_lengths(self) -> Float[np.ndarray, "m"]:
        """How many neighbouring rows tell as much as one where their stated deviations are larger than their errors for
        it, so that they count as if they were independent."""
        return np.ones(self.rows)

    def correlation_length(self, residual: np.ndarray, row_weights: np.ndarray) -> float:
        """Number of neighbouring rows whose residuals tell no more than one."""
        return 1.0

    @property
    def nuisance_rows(self) -> int:
        """Rows that numbers of the test's own take up, as the scale of a measured shape does."""
        return 0

    # Other data

    def measured_on(self, view: View) -> Self:
        """The test as it would be measured on a machine without noise, where the residual is not linear in the data;
        itself where it is, so that a difference of residuals says the same."""
        return self

    def resample(self, residual: np.ndarray, row_weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """A residual drawn from what a fit left, with replacement; of rows without an order each by itself."""
        used = row_weights > 0.0
        plain = residual[used] / np.sqrt(row_weights[used])
        drawn = np.zeros(residual.size)
        if plain.size:
            drawn[used] = np.sqrt(row_weights[used]) * rng.choice(plain, size=plain.size)
        return drawn

    def sums(self, model: Model, free: FreeParameters) -> "Sums | None":
        """Sums of a machine's numbers that such tests determine, by the machine's structure and by which are free and
        not by their values; None where each number is determined alone."""
        return None

    # What it tells of the machine at one posture

    @property
    def posture(self) -> Float[Array, "n"] | None:
        """Posture at which the test was made; None where it was made at several."""
        return None

    @property
    def linearized_at(self) -> LinearizeAt:
        """Where small motions are taken: at the posture, or at the equilibrium under gravity."""
        return "posture"

    def tangent(self, view: View) -> Tangent | None:
        """Small motions of the machine at the test's posture; None where the test was made at several."""
        return None

    @property
    def band_end_hz(self) -> float:
        """Frequency up to which a result lists the modes of the machine at the test's posture."""
        return 0.0

    @property
    def highest_hz(self) -> float:
        """Highest frequency that the test measures."""
        return 0.0

    @property
    def highest_text(self) -> str:
        """What `highest_hz` is, in a sentence."""
        return "the highest measured frequency of"

    @property
    def first_frequency_hz(self) -> float | None:
        """Frequency of the first mode that the data show; None where they show none."""
        return None

    def probe(self) -> Probe | None:
        """The test as one that could be made at other postures; None where that cannot be planned."""
        return None


MOST_NAMED = 5
"""Names in a sentence."""


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, "and 3 more" for those beyond `MOST_NAMED`."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def display_name(name: str) -> str:
    """A test in a sentence: "test 'arm'", and "test 1" where that is all its name."""
    return name if re.fullmatch(r"test \d+", name) else f"test '{name}'"
