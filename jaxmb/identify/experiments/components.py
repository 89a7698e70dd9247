"""Optional components of a test: noise, frequency lines, linear equations, description, own parameters, vibration;
alternatives to columns of coordinates and readings.

Each component refers to its test and computes derived quantities on demand. A test without a component returns None.
"""

import abc
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxmb.identify.estimation.least_squares import NormalEquations, normal_equations
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.experiments.vibration_view import check_vibration
from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters
from jaxmb.identify.regression.base_parameters import BaseParameters
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.tangent import LinearizeAt, motion_coordinates
from jaxmb.response.frf_kind import Point

if TYPE_CHECKING:
    from jaxmb.identify.experiments.posture_test import PostureTest
    from jaxmb.identify.experiments.test import Test

T = TypeVar("T", bound="Test[Any]")
P = TypeVar("P", bound="PostureTest")
BLOCKS = 12
"""Groups of neighbouring rows, or lines, of a test."""


@dataclasses.dataclass(frozen=True, eq=False)
class Component(abc.ABC, Generic[T]):
    """An optional capability of a test."""

    test: T


C_co = TypeVar("C_co", covariant=True)


class Attached(Generic[C_co]):
    """Descriptor of a component of a test, which is constructed at each access."""

    def __init__(self, kind: Callable[[Any], C_co]) -> None:
        self.kind = kind

    def __get__(self, test: Any, owner: type | None = None) -> C_co:
        """The component of the test."""
        return self.kind(test)


class Noise(Component[T]):
    """Noise of a test and its correlation. This default: as stated, independent of the fit and between rows."""

    @property
    def is_known(self) -> bool:
        """Whether the noise is as stated; otherwise it is estimated from the residual of the fit."""
        return getattr(self.test, "noise_is_known", True)

    @property
    def nominal(self) -> float | None:
        """Nominal standard deviation of log H, the unit of the cost of eq. 22 of Huynh et al. 2020; None for other
        tests."""
        return None

    @property
    def level(self) -> float | None:
        """Standard deviation that is estimated where the noise is not known (`estimated_level`, `with_level`), SI."""
        return self.nominal

    @property
    def level_text(self) -> str:
        """`level` with its unit and quantity, for messages."""
        return "" if self.level is None else f"{self.level:.3g} of log H"

    @property
    def is_one_factor(self) -> bool:
        """Whether the noise to be estimated is one factor common to all rows."""
        return True

    def estimated_level(self, residual: np.ndarray, expected: float) -> float:
        """`level` at which the sum of squares of a residual equals its expectation; this default: of one factor."""
        return (self.level or 0.0) * math.sqrt(float(residual @ residual) / expected)

    def with_level(self, std: float) -> T:
        """The test with another `level`."""
        raise NotImplementedError(f"the noise of {display_name(self.test.name)} cannot be estimated from a fit")

    @property
    def follows_fit(self) -> bool:
        """Whether the noise depends on the fitted machine, so that `at_fit` returns a different test."""
        return False

    def at_fit(self, view: Any) -> T:
        """The test with its noise evaluated at the prediction of the fitted machine."""
        return self.test

    def change_from(self, other: T) -> float:
        """Largest |log| of the ratio of a row's noise to that in another version of the test; infinite where the
        excluded lines differ."""
        return 0.0

    @property
    def exact_cost(self) -> float:
        """Cost, in units of the noise, below which the fit is exact to rounding."""
        return 1e-12 * self.test.rows

    @property
    def nuisance_rows(self) -> int:
        """Degrees of freedom of nuisance parameters that no study names, such as the scale of a measured mode shape."""
        return 0

    def noiseless(self, view: Any) -> T:
        """The test with noise-free data of a machine, where the residual is not linear in the data; unchanged where it
        is linear, since a difference of residuals is then equivalent."""
        return self.test

    def resample(self, residual: np.ndarray, stated_variances: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Bootstrap sample of a residual, rows drawn independently with replacement, their variance multiplied by
        `correlation_lengths`. Rows that are 0, as of a mode with the stated content, have no noise."""
        used = (stated_variances > 0.0) & (residual != 0.0)
        plain = residual[used] * np.sqrt(self.correlation_lengths[used] / stated_variances[used])
        drawn = np.zeros(residual.size)
        if plain.size:
            drawn[used] = np.sqrt(stated_variances[used]) * rng.choice(plain, size=plain.size)
        return drawn

    @property
    def between_responses(self) -> bool:
        """Whether a response leaks into others at one ratio for all lines, so that the residual does not show a
        misfit."""
        return False

    def variance_factor(self, basis: Float[np.ndarray, "m r"], stated_variances: np.ndarray) -> float:
        """Factor by which correlation increases the variance of the errors projected onto some directions.

        Args:
            basis: directions, as columns.
            stated_variances: variance of each row.
        """
        return 1.0

    @property
    def degrees_factor(self) -> float:
        """Divisor of the degrees of freedom of a sum of squares, due to correlation."""
        return 1.0

    @property
    def correlation_lengths(self) -> Float[np.ndarray, "m"]:
        """Correlation length of each row, in rows, already included in its stated standard deviation: rows with
        inflated deviations enter a fit as if they were independent."""
        return np.ones(self.test.rows)

    def correlation_length(self, residual: np.ndarray, stated_variances: np.ndarray) -> float:
        """Correlation length of the residual, in rows: that many rows carry the information of one independent row."""
        return 1.0

    def known_factor(
        self, basis: Float[np.ndarray, "m r"], residual: np.ndarray, stated_variances: np.ndarray
    ) -> float:
        """Factor by which a correlation of known noise that the residual shows increases the variance of the errors
        projected onto some directions. This default: independent errors."""
        return 1.0

    @property
    def groups(self) -> Int[np.ndarray, "g m"]:
        """Group of each row, in several ways, within which the errors of a model may be common. This default:
        neighbouring rows."""
        return np.arange(self.test.rows)[None] * BLOCKS // max(self.test.rows, 1)


class Equations(NamedTuple):
    """Linear equations of a test: measured = matrix @ x, row by row.

    x are the free values, or their reciprocals where `LinearForm.reciprocal` says so.
    """

    matrix: Float[np.ndarray, "m d"]
    measured: Float[np.ndarray, "m"]
    """Measured values minus the part of the prediction that does not depend on the free values."""
    std: Float[np.ndarray, "m"]
    weight: Float[np.ndarray, "m"]
    """Weight of the squared error of each row, in addition to its inverse variance."""
    case: Int[np.ndarray, "m"]
    """Index of the case of each row: rows measured together, such as under one load, share it."""


class LinearForm(Component[T]):
    """Equations of a test whose prediction is linear in the free values or in their reciprocals. Abstract."""

    accepts_prior: ClassVar[bool] = False
    """Whether the linear step accepts a prior on values on a linear scale, as rows appended to those of the test."""

    @abc.abstractmethod
    def reciprocal(self, model: Model, free: FreeParameters) -> Float[np.ndarray, "d"] | None:
        """For each free value: 0 where the prediction is linear in it, 1 where it is linear in its reciprocal, NaN
        where it does not depend on it. None where the prediction is not linear."""

    @abc.abstractmethod
    def equations(self, model: Model, free: FreeParameters) -> Equations:
        """The linear equations where `reciprocal` is not None, with a column for every free value.

        A column is zero where the prediction does not depend on the value.
        """

    def combinations(self, model: Model, free: FreeParameters) -> BaseParameters | None:
        """Parameter combinations identifiable from such tests. They depend on the machine's structure and on which
        parameters are free, not on their values. None where each parameter is identifiable by itself."""
        return None


class Description(Component[T]):
    """Possible errors in the description of a test, differentiable. Abstract."""

    @abc.abstractmethod
    def errors(self, model: Model) -> Iterator[tuple[StatedError, Any]]:
        """Single errors for a machine, each with its direction among the errors of `residual`: a pytree of arrays, of a
        size of 1 in SI units."""

    @abc.abstractmethod
    def none(self, model: Model) -> Any:
        """No errors."""

    @abc.abstractmethod
    def residual(self, model: Model, errors: Any) -> Float[Array, "m"]:
        """The residual with the description corrected."""

    def additive(
        self, residual: Float[np.ndarray, "m"], jacobian: Float[np.ndarray, "m d"], factor: Float[np.ndarray, "m"]
    ) -> tuple[Float[np.ndarray, "m"], Float[np.ndarray, "m d"]]:
        """Residual and Jacobian as of a difference of predicted and measured values; both are multiplied by a factor
        for each row. This default: they are."""
        return residual, jacobian

    def alternatives(self, model: Model) -> Iterator[tuple[str, str, T]]:
        """Errors that are no number, such as exchanged channels: key common to all tests, text that names the test, and
        the test without that error."""
        return iter(())

    @property
    def channels(self) -> Mapping[str, Bool[np.ndarray, "m"]]:
        """Mask of the rows of each sensor and input by name. This default: none."""
        return {}


class OwnParameters(Component[T]):
    """Parameters of the test itself, not of the machine, such as gains and delays; a study may free them. Abstract."""

    @property
    @abc.abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names of the test's parameters."""

    @property
    @abc.abstractmethod
    def values(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """Their values, in the order of `names`."""

    @abc.abstractmethod
    def with_values(self, values: Float[Array, "k"] | Float[np.ndarray, "k"]) -> T:
        """The test with other values."""

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """Bounds of those that are free without being named by a study. This default: none."""
        return ()


class Probe(eqx.Module):
    """A candidate FRF test, applicable at any posture."""

    points: tuple[Point, ...] = eqx.field(static=True)
    """All points from which outputs and inputs are selected: selections of one size share a compiled program."""
    outputs: Int[Array, "o"]
    inputs: Int[Array, "i"] | None
    """None where the inputs are the outputs."""
    derivatives: int = eqx.field(static=True)
    at: LinearizeAt = eqx.field(static=True)
    omega: Float[Array, "f"]
    decay: Float[Array, ""]
    noise_std: Float[Array, ""]
    """Standard deviation of log H, real and imaginary part each."""

    @property
    def ends(self) -> tuple[tuple[Point, ...], tuple[Point, ...]]:
        """Points of outputs and of inputs."""
        outputs = tuple(self.points[i] for i in np.asarray(self.outputs))
        return outputs, outputs if self.inputs is None else tuple(self.points[i] for i in np.asarray(self.inputs))

    @property
    def band_hz(self) -> tuple[float, float]:
        """First and last line, Hz."""
        return float(self.omega[0]) / (2 * np.pi), float(self.omega[-1]) / (2 * np.pi)

    def changed(
        self,
        omega: Float[np.ndarray, "f"] | None = None,
        ends: tuple[Sequence[Point], Sequence[Point]] | None = None,
        points: Sequence[Point] | None = None,
    ) -> "Probe":
        """The probe with its lines or points replaced where given.

        Args:
            omega: angular frequencies, rad/s.
            ends: outputs and inputs.
            points: further points, so that probes with different outputs and inputs share a compiled program.
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


class Vibration(Component[P]):
    """Linearized motion of the machine at the posture of a test. Abstract."""

    highest_text: ClassVar[str]
    """Description of `highest_hz`, for messages."""

    @property
    def q(self) -> Float[Array, "n"]:
        """Posture [n], rad or m."""
        return self.test.q

    @property
    def frames(self) -> Iterator[str]:
        """Frames of its outputs and inputs."""
        known = (*self.test.outputs, *self.test.inputs)
        return (name for name, direction in known if direction.removeprefix("-") not in ("angle", "travel"))

    def check(self, model: Model) -> None:
        """Raise ValueError where a machine has no equilibrium at the posture, or a singular mass matrix."""
        check_vibration(self.test.view(model), motion_coordinates(model))

    @property
    @abc.abstractmethod
    def band_end_hz(self) -> float:
        """Frequency up to which a result lists the modes of the machine, Hz."""

    @property
    @abc.abstractmethod
    def highest_hz(self) -> float:
        """Highest measured frequency, Hz."""

    @property
    @abc.abstractmethod
    def first_frequency_hz(self) -> float | None:
        """Frequency of the first mode in the data, Hz; None where no mode is found."""

    def probe(self) -> Probe | None:
        """The test as a candidate for other postures; None where its kind cannot be planned."""
        return None


class AffineView(Protocol):
    """The view of a machine by a test, as an affine function of the free values."""

    def __call__(self, values: Float[Array, "d"] | np.ndarray) -> Any:
        """The view at physical values."""
        ...

    def stackable(self, others: list[Any]) -> Self:
        """The same function in a form common to other views of its kind, so that they can be stacked."""
        ...


class Evaluation(Component[T]):
    """Evaluation of the residual of a test in a fit. This default: directly, by automatic differentiation."""

    def stripped(self) -> T:
        """The test without the arrays that its residual and row weights do not depend on."""
        return self.test

    def affine_view(self, model: Model, free: FreeParameters) -> AffineView | None:
        """The view as an affine function of the free values, which avoids repeated kinematics; None where it is not
        affine."""
        return None

    def normal_equations(
        self, view: AffineView, values: Callable[[Float[Array, "d"]], Float[Array, "d"]], u: Float[Array, "d"]
    ) -> NormalEquations:
        """Normal equations of the residual at u.

        Args:
            view: of the machine, as a function of the free values.
            values: the free values, as a function of u.
            u: unknowns of the fit.
        """
        return normal_equations(lambda x: self.test.residual(view(values(x))), u)


def own_names(test: "Test[Any]") -> tuple[str, ...]:
    """Names of the parameters of a test itself; empty where it has none."""
    return () if test.own is None else test.own.names


def is_robust(test: "Test[Any]") -> bool:
    """Whether the linear step of a test down-weights outliers by the size of their residual."""
    return getattr(test, "is_robust", False)


def accepts_prior(test: "Test[Any]") -> bool:
    """Whether the linear step of a test accepts a prior on a linear scale (see `LinearForm.accepts_prior`)."""
    return test.linear is not None and test.linear.accepts_prior


def can_be_planned(test: "Test[Any]") -> bool:
    """Whether tests of this kind can be planned at other postures."""
    return test.vibration is not None and test.vibration.probe() is not None


def coordinate_alternatives(
    model: Model, q: Float[np.ndarray, "t n"], beside: Sequence[Float[np.ndarray, "t n"]] = ()
) -> Iterator[tuple[str, Float[np.ndarray, "t n"]]]:
    """Texts of errors of the columns of coordinates, and the corrected values: units, signs, zeros of another
    convention, exchanged columns, a shift of all lines, and sums of two coordinates.

    Args:
        model: the machine.
        q: stated values, rad or m.
        beside: those of the lines above and below; by default of these lines, the first and the last beside each other.
    """
    names, turns = model.coordinates, np.array(model.revolute[: q.shape[1]])
    varied = np.flatnonzero(np.ptp(q, axis=0) > 0.0).tolist()
    for revolute, every, wrong, factor in (
        (True, "joint angles", "degrees", np.pi / 180.0),
        (False, "travel of joints", "mm", 1e-3),
    ):
        own = [k for k in varied if turns[k] == revolute]
        if own:
            yield f"{every} in {wrong}", np.where(turns == revolute, factor * q, q)
        for k in own if len(own) > 1 else ():
            yield f"{names[k]} in {wrong}", np.where(np.arange(turns.size) == k, factor * q, q)
    for k in varied:
        yield f"the sign of {names[k]}", np.where(np.arange(turns.size) == k, -q, q)
        for degrees in (90, -90, 180) if turns[k] else ():
            text = f"a zero of {names[k]} {degrees:+d} deg from the stated one"
            yield text, q + np.radians(degrees) * (np.arange(turns.size) == k)
    for i, k in itertools.combinations(varied, 2):
        if turns[i] == turns[k]:
            yield f"exchanged values of {names[i]} and {names[k]}", q[:, exchanged(turns.size, i, k)]
    above, below = beside or (np.roll(q, 1, axis=0), np.roll(q, -1, axis=0))
    for where, shifted in (("down", below), ("up", above)) if varied else ():
        yield f"joint values shifted {where} by one line", shifted
    for i, k in itertools.pairwise(varied):
        for what, sign in (("sum", -1.0), ("difference", 1.0)) if turns[i] == turns[k] else ():
            own = sign * q[:, [i]] * (np.arange(turns.size) == k)
            yield f"the {what} of {names[k]} and {names[i]} in place of {names[k]}", q + own


def column_alternatives(
    names: Sequence[str], one: str = "", several: str = ""
) -> Iterator[tuple[str, Int[np.ndarray, "c"], Float[np.ndarray, "c"]]]:
    """Texts of reversed and exchanged columns, with the order and the signs of the columns that correct them.

    Args:
        names: of the columns.
        one: noun before the name of a column, with a space.
        several: the same in the plural.
    """
    plain = np.arange(len(names))
    for k, name in enumerate(names):
        yield f"the sign of {one}{name}", plain, np.where(plain == k, -1.0, 1.0)
    for i, k in itertools.combinations(plain.tolist(), 2):
        yield f"exchanged {several}{names[i]} and {names[k]}", exchanged(len(names), i, k), np.ones(len(names))


def exchanged(count: int, i: int, k: int) -> Int[np.ndarray, "c"]:
    """Indices of columns of which two are exchanged."""
    order = np.arange(count)
    order[[i, k]] = k, i
    return order
