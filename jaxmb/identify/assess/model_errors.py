"""Search for the single error, in the description of a machine or its tests, that explains the misfit of a fit."""

import dataclasses
import functools
import itertools
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import chdtri

from jaxmb.identify.assess.corrected import Corrected
from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, identifiability, jacobian_svd, scaled_svd
from jaxmb.identify.estimation.least_squares import MOST_EVALUATIONS, host_minimum
from jaxmb.identify.estimation.variance_components import ERROR_RATE
from jaxmb.identify.experiments.components import own_names
from jaxmb.identify.experiments.machine_errors import FURTHER
from jaxmb.identify.experiments.motion import PostureTest
from jaxmb.identify.experiments.test import Test, residual_of_test
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.fit.problem import is_large, test_at
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.io.validation import display_name, listed
from jaxmb.machine.build import Model
from jaxmb.machine.families import STATION
from jaxmb.spatial import rotation_by, rotation_vector

TRIED, TRIED_ALTERNATIVES = 6, 3
"""Numbers of errors, and of alternatives, that are refitted: those that explain most to first order."""
SCANNED = (2.0, -2.0, 8.0, -8.0, 32.0, -32.0)
"""Sizes over the typical one at which all errors are tried: log FRFs are not linear at antiresonances."""
MOST_TESTS, MOST_CHANNELS = 4, 6
"""Largest number of tests, and number of sensors and inputs, for fits without each of them."""
MOST_PAIRS = 15
"""Largest number of pairs of tests that are tried with exchanged postures."""
LINEAR = 0.1
"""Part of the misfit by which a decrease to first order may be too small, and that a further spring explains."""
HELD = 3
"""Number of sizes of an error at which the free parameters are fitted before its size."""
SCREENED, CONTINUED = 8, 0.05
"""Evaluations of a refit from each start, and the part of the misfit that it explains after them if it is continued."""
DRAWN = 16
"""Starts of refits between the bounds where data are not reproduced, as the fit may be in a local minimum: a factor of
1000 on the FRFs of an arm of four joints is found from nine of them."""
SMALL = 5.0
"""Size over the typical one up to which an error with a tolerance ends the search if it leaves noise alone."""
EXPLAINS = 0.9
"""Part of the misfit beyond noise that an error explains where its correction does not leave noise alone."""
MOST_NAMED = 4
MOST_LIKELY = 3
"""Number of errors within their tolerances that are named, the largest over their tolerance."""
PARALLEL = 1e-8
"""1 - cosine of columns up to which two errors have one effect."""


@dataclasses.dataclass(frozen=True)
class ModelError:
    """A model-error hypothesis with its fitted number."""

    text: str
    """The error and its number, for messages."""
    explains: float
    """Part of the misfit beyond noise that it explains."""
    values: dict[str, float] = dataclasses.field(default_factory=dict)
    """Values of the free parameters in a fit with the error corrected, SI."""
    std: dict[str, float] = dataclasses.field(default_factory=dict)
    """Their standard deviations there, SI: of the noise, and of the misfit that remains, as scatter."""
    of_machine: bool = False
    """Whether it is an error of the machine, not of a test."""


@dataclasses.dataclass(frozen=True)
class FurtherSpring:
    """A spring that the model lacks, fitted alone beside the free parameters."""

    place: str
    """Where it acts, and in which direction."""
    stiffness: float
    """N m/rad or N/m."""
    unit: str
    explains: float
    """Part of the misfit beyond noise that it explains."""


class Explanations(NamedTuple):
    """Hypotheses that explain a misfit: errors of the description, and springs that the model lacks."""

    errors: tuple[ModelError, ...] = ()
    """Hypotheses that each explain most of it, the most plausible first."""
    further_springs: tuple[FurtherSpring, ...] = ()
    """Springs that each lower the residual significantly, the best first, also where none explains most."""


class Metric(NamedTuple):
    """Inverse root of the covariance of the residual: of the noise, and of errors within their tolerances."""

    scale: Float[np.ndarray, "m"]
    """1 over the standard deviation of the noise; 0 for unused rows."""
    basis: Float[np.ndarray, "m k"]
    """Orthonormal directions of these errors, in units of the noise."""
    less: Float[np.ndarray, "k"]
    """1 - 1 / (standard deviation along each)."""

    def __call__(self, columns: Float[np.ndarray, "m *c"]) -> Float[np.ndarray, "m *c"]:
        """Columns in units of the covariance."""
        scaled = (columns.T * self.scale).T
        return scaled - self.basis @ ((self.basis.T @ scaled).T * self.less).T

    def without(self, kept: Float[np.ndarray, "m"]) -> "Metric":
        """The metric of the rows that are kept."""
        return self._replace(scale=self.scale * kept, basis=self.basis * kept[:, None])

    def squares(self, columns: Float[np.ndarray, "m c"]) -> Float[np.ndarray, "c"]:
        """Sums of squares in units of the noise alone, of columns in units of the covariance."""
        along = self.basis.T @ columns
        return np.sum(columns**2, axis=0) + np.sum(along**2 * (1.0 / (1.0 - self.less[:, None]) ** 2 - 1.0), axis=0)


def metric(variances: Float[np.ndarray, "m"], effects: Float[np.ndarray, "m e"]) -> Metric:
    """The metric of noise with some variances and errors with some effects of one standard deviation each."""
    scale = np.where(variances > 0.0, 1.0 / np.sqrt(np.where(variances > 0.0, variances, 1.0)), 0.0)
    left, values, _ = np.linalg.svd(effects * scale[:, None], full_matrices=False)
    return Metric(scale, left, 1.0 - 1.0 / np.hypot(1.0, values))


def drops(
    residual: Float[np.ndarray, "m"], jacobian: Float[np.ndarray, "m d"], columns: Float[np.ndarray, "m c"]
) -> tuple[float, Float[np.ndarray, "c"]]:
    """Sum of squares of the residual beside the free parameters, and its decrease in a fit with each error, to first
    order; all in units of the covariance.

    Args:
        residual: of the fit.
        jacobian: by the free parameters.
        columns: by the errors.
    """
    svd = scaled_svd(jacobian, RANK_TOLERANCE)
    beside, rest = svd.beside(columns), svd.beside(residual)
    own = np.sum(beside**2, axis=0)
    has_effect = own > 1e-12 * np.sum(columns**2, axis=0)
    return float(rest @ rest), np.where(has_effect, (beside.T @ rest) ** 2 / np.where(has_effect, own, 1.0), 0.0)


class Hypothesis(NamedTuple):
    """An error of one number, or alternatives to some tests."""

    error: StatedError | None = None
    tests: Mapping[int, Test] = types.MappingProxyType({})
    """Alternatives, by index of the test."""
    text: str = ""
    """Of alternatives."""


NONE = Hypothesis()


def prior(size: float) -> float:
    """-2 times the logarithm of a Cauchy distribution of the size of an error over its typical one."""
    return float(2.0 * np.log1p(size**2))


class FittedHypothesis(NamedTuple):
    """A refitted hypothesis."""

    hypothesis: Hypothesis
    x: np.ndarray
    """Fitted unknowns, and the size of an error over the typical one."""
    chi_square: float
    squares: float = np.nan
    """Sum of squares of the residual in units of the noise alone; not known in searches."""

    @property
    def size(self) -> float:
        """Size of an error over the typical one; 0 for alternatives."""
        return 0.0 if self.hypothesis.error is None else float(self.x[-1])

    @property
    def surprise(self) -> float:
        """Size for comparisons of likelihood; 0 for alternatives."""
        error = self.hypothesis.error
        return 0.0 if error is None else error.surprise(self.size * error.typical)

    @property
    def score(self) -> float:
        """Sum of squares with the size of the error as a prior."""
        return self.chi_square + prior(self.surprise)

    @property
    def is_convention(self) -> bool:
        """Whether an error of this size, not 0, is one of another convention, such as 90 deg."""
        return self.size != 0.0 and self.surprise < 1e-9

    @property
    def is_plausible(self) -> bool:
        """Whether an error of this size is plausible."""
        error = self.hypothesis.error
        return error is None or error.is_plausible(self.size * error.typical)

    @property
    def text(self) -> str:
        """The hypothesis with its size."""
        error = self.hypothesis.error
        return self.hypothesis.text if error is None else error.described(self.size * error.typical)


@dataclasses.dataclass(frozen=True, eq=False)
class HypothesisSearch:
    """Refits of hypotheses."""

    corrected: Corrected
    metric: Metric
    noise: float
    """Expected sum of squares of the residual: degrees of freedom."""
    masked: slice | Bool[np.ndarray, "m"] | None = None
    """Rows that are left out."""

    @property
    def size(self) -> int:
        """Number of free parameters."""
        return self.corrected.problem.free.size

    def state(self, hypothesis: Hypothesis, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residual in units of its covariance, and its Jacobian by u and, for an error, its size over the typical
        one."""
        errors, error = self.corrected.errors, hypothesis.error
        x, columns = np.zeros(len(errors)), np.arange(self.size)
        if error is not None:
            k = errors.index(error)
            x[k], columns = y[-1] * error.typical, np.append(columns, self.size + k)
        residual, jacobian = self.corrected.state(y[: self.size], x, columns, hypothesis.tests)
        if error is not None:
            jacobian[:, -1] *= error.typical
        if self.masked is not None:
            residual[self.masked], jacobian[self.masked] = 0.0, 0.0
        return self.metric(residual), self.metric(jacobian)

    def cost(self, u: np.ndarray) -> float:
        """Sum of squares of the residual in units of the noise alone, which tolerances do not lower."""
        residual, _ = self.corrected.state(u, np.zeros(len(self.corrected.errors)), np.zeros(0, dtype=int))
        return float(np.sum((residual * self.metric.scale) ** 2))

    def fitted(
        self, hypothesis: Hypothesis, first: np.ndarray, evaluations: int = MOST_EVALUATIONS
    ) -> FittedHypothesis:
        """Fit of a hypothesis, from a start, with at most so many evaluations."""
        free, error = self.corrected.problem.free, hypothesis.error
        lower, upper = np.asarray(free.lower), np.asarray(free.upper)
        if error is not None:
            low, high = error.bounds
            lower, upper = np.append(lower, low / error.typical), np.append(upper, high / error.typical)
        x, residual = host_minimum(functools.partial(self.state, hypothesis), first, lower, upper, evaluations)
        return FittedHypothesis(hypothesis, x, float(residual @ residual))

    def held(self, hypothesis: Hypothesis, first: np.ndarray) -> FittedHypothesis:
        """Fit of the free parameters at the size of an error in a start: one of 90 deg displaces them."""

        def state(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            residual, jacobian = self.state(hypothesis, np.append(u, first[-1]))
            return residual, jacobian[:, :-1]

        free = self.corrected.problem.free
        lower, upper = np.asarray(free.lower), np.asarray(free.upper)
        u, residual = host_minimum(state, first[:-1], lower, upper, SCREENED)
        return FittedHypothesis(hypothesis, np.append(u, first[-1]), float(residual @ residual))

    def reproduces(self, end: FittedHypothesis) -> bool:
        """Whether a refit reproduces its alternatives to tests: smaller lengths have smaller residuals in any case."""
        if end.chi_square <= float(chdtri(self.noise, FALSE_ALARM)):
            return True
        problem, values = self.corrected.problem, self.corrected.problem.free.values(end.x[: self.size])
        model = problem.free.apply(problem.model, values)
        tests = (test_at(test, problem.free, values) for test in end.hypothesis.tests.values())
        return not any(test.score(test.view(model), None).poor for test in tests)


def model_errors(estimate: Estimate) -> Explanations:
    """Model-error hypotheses that each explain most of the misfit beyond noise, the most plausible first, and further
    springs.

    Each adds one number, an error in the description of the machine or of a test, or replaces some tests, as by
    exchanged channels. They are ranked to first order, by the Jacobian; the best are fitted jointly with the free
    parameters. If none explains the misfit, outlier lines are excluded instead. Errors within their tolerances and
    noise are the covariance of the residual; noise that is not stated is estimated from the line-to-line scatter. There
    is no search where noise and tolerances explain the residual, where the residual cannot be distinguished from
    estimated noise (`GoodnessOfFit.systematic`), for machines with many degrees of freedom (`Problem.one_by_one`), and
    for large problems (`is_large`).
    """
    problem = estimate.study.problem
    if problem.one_by_one or is_large(problem):
        return Explanations()  # each evaluation of a machine with many degrees of freedom would take minutes
    scatter = _scatter(estimate)
    if scatter is None:
        return Explanations()
    study = estimate.study
    corrected = Corrected.of(study, estimate.model)
    zero, every = np.zeros(len(corrected.errors)), np.arange(estimate.u.size + len(corrected.errors))
    jacobian = corrected.state(estimate.u, zero, every)[1]
    std, has_tolerance = corrected.tolerances(study, len(jacobian))
    effects = jacobian[:, estimate.u.size :] * std * has_tolerance
    variances = scatter * estimate.row_weights
    degrees = float(np.sum(variances > 0.0) - jacobian_svd(estimate.jacobian).rank)
    search = HypothesisSearch(corrected, metric(variances, effects[:, std > 0.0]), degrees)
    unchanged = search.fitted(NONE, estimate.u)
    plain, chi_square = unchanged.x, unchanged.chi_square
    before, _ = search.state(NONE, estimate.u)
    excess = float(before @ before) - degrees
    explains = min(1.0 - (chi_square - degrees) / max(excess, 1e-300), 1.0)
    lower = tuple[ModelError, ...]()
    if explains >= EXPLAINS and excess > degrees and search.cost(plain) < search.cost(estimate.u):
        text, slopes = _minimum_text(study.free, estimate.u, plain), search.state(NONE, plain)[1]
        lower = (_with_values(study.free, text, explains, plain, slopes, chi_square / degrees),)
    if chi_square <= float(chdtri(degrees, ERROR_RATE)) and (lower or not estimate.goodness.exceeds_tolerance):
        return Explanations(lower)
    start = np.asarray(study.free.encode(study.start.values))
    points = [plain, *_without_tests(search, plain), start]
    refits = _refitted(search, points, chi_square, estimate.goodness.beyond_tolerance)
    if estimate.goodness.not_reproduced:
        refits = _from_draws(search, refits, estimate.seed)
    found = [end for end in refits if end.is_plausible and search.reproduces(end)]
    named = (_reported(search, plain, chi_square, found) if found else ()) or lower
    return Explanations(
        named
        or _single_lines(estimate, search, (plain, start), chi_square)
        or _moved_station(estimate, search, plain, chi_square),
        further_springs(corrected.model, found, chi_square, degrees, len(corrected.errors)),
    )


def further_springs(
    model: Model, found: Sequence[FittedHypothesis], plain: float, noise: float, tried: int
) -> tuple[FurtherSpring, ...]:
    """Further springs that significantly lower the residual, by more than a tenth of the misfit, the best first.

    Args:
        model: with further springs.
        found: refitted hypotheses.
        plain: sum of squares without any.
        noise: degrees of freedom.
        tried: number of errors that could have been refitted.
    """
    least, springs = float(chdtri(1, ERROR_RATE / tried)), list[FurtherSpring]()
    further = [(k, name) for k, name in enumerate(model.coordinates) if name.startswith(FURTHER)]
    places = {f"compliance of {name}": k for k, name in further}
    for end in sorted(found, key=lambda end: end.chi_square):
        error, drop = end.hypothesis.error, plain - end.chi_square
        k = None if error is None else places.get(error.key)
        if error is not None and k is not None and end.size > 0.0 and drop > least:
            explains = min(drop / max(plain - noise, least), 1.0)
            unit = "N m/rad" if model.revolute[k] else "N/m"
            if explains > LINEAR:
                springs.append(FurtherSpring(model.coordinates[k], 1.0 / (end.size * error.typical), unit, explains))
    return tuple(springs)


def _without_tests(search: HypothesisSearch, u: np.ndarray) -> list[np.ndarray]:
    """Fits without each test, where there are a few."""
    rows = search.corrected.problem.row_slices
    if not 1 < len(rows) <= MOST_TESTS:
        return []
    return [dataclasses.replace(search, masked=own).fitted(NONE, u).x for own in rows]


def _without_channel(search: HypothesisSearch, u: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Fit without the sensor or input that explains most, and the mask of its rows; None where no single one leaves
    noise alone: a single wrong one misleads the fit, so that no error is small there."""
    problem, residual = search.corrected.problem, search.state(NONE, u)[0]
    channels = dict[str, np.ndarray]()
    for own, test in zip(problem.row_slices, problem.tests, strict=True):
        for name, mask in ({} if test.description is None else test.description.channels).items():
            channels.setdefault(name, np.zeros(residual.size, bool))[own] |= mask & (search.metric.scale[own] > 0.0)
    used = np.count_nonzero(search.metric.scale)
    partial = [mask for mask in channels.values() if np.count_nonzero(mask) < used]
    partial.sort(key=lambda mask: -float(np.sum(residual[mask] ** 2)))
    for mask in partial[:MOST_CHANNELS]:
        without = dataclasses.replace(search, masked=mask).fitted(NONE, u)
        if without.chi_square <= float(chdtri(search.noise - np.count_nonzero(mask), FALSE_ALARM)):
            return without.x, mask
    return None


def _refitted(
    search: HypothesisSearch, points: Sequence[np.ndarray], chi_square: float, beyond: Collection[str]
) -> list[FittedHypothesis]:
    """Refits of the errors beyond their tolerance (keys), of the hypotheses on a single wrong channel, of those that
    explain most to first order at any of some points or at a size that is tried, of those that have starts of their
    own, and of those whose effect resembles that of the best."""
    errors, channel = search.corrected.errors, _without_channel(search, points[0])
    at = [*points, *([] if channel is None else [channel[0]])]
    expected, distinct, inside = _expected(search, at, None if channel is None else channel[1])
    tried = _scanned(search, points[0], range(len(errors)))
    if channel is not None:
        tried |= _scanned(search, channel[0], np.flatnonzero(inside).tolist())
    expected = np.concatenate([expected, [[tried[k][0].chi_square for k in range(len(errors))]]])
    found, best = dict[int, FittedHypothesis](), np.inf
    noise = float(chdtri(search.noise, FALSE_ALARM))
    enough = noise if chi_square > noise else -np.inf

    def refit(numbers: Sequence[int]) -> None:
        nonlocal best
        for k in numbers:
            # a stated number that may be wrong by a large factor, not a compliance where none is stated
            far = errors[k].kind and errors[k].starts and errors[k].bounds[0] < 0.0
            if best <= enough and not far and expected[:, k].min() > best + LINEAR * (chi_square - best):
                continue  # another error leaves noise alone, and this one more to first order
            first = np.append(at[int(np.argmin(expected[: len(at), k]))], 0.0)
            held = [search.held(end.hypothesis, end.x) for end in tried[k]]
            nearest = min(held, key=lambda end: end.chi_square)
            ends = (search.fitted(nearest.hypothesis, start, SCREENED) for start in (first, nearest.x))
            end = min(ends, key=lambda end: end.chi_square)
            if chi_square - end.chi_square > CONTINUED * max(chi_square - search.noise, 0.0):
                end = search.fitted(end.hypothesis, end.x)
            usual = [end for end in held if end.is_convention]
            found[k] = min([end, *usual], key=lambda end: end.score)
            if _is_usual(found[k]):
                best = min(best, found[k].chi_square)

    def likely() -> list[int]:
        order = np.argsort(expected.min(axis=0), kind="stable").tolist()
        return [k for k in order if distinct[k] and k not in found]

    refit([k for k, error in enumerate(errors) if error.key in beyond])
    refit([k for k in likely() if inside[k]])
    refit(likely()[:TRIED])
    refit([k for k in likely() if errors[k].starts][:TRIED])
    if found:
        nearest = min(found, key=lambda k: found[k].chi_square)
        similar, surprise = _similar(search, nearest, found[nearest]), found[nearest].surprise
        expected = np.concatenate([expected, [[similar[k].chi_square for k in range(len(errors))]]])
        more = sorted(set(similar) - set(found), key=lambda k: similar[k].chi_square)
        tried = {k: [similar[k], *tried[k]] for k in more}
        # of errors with one effect, only those that are more plausible
        refit([k for k in more if distinct[k] or similar[k].surprise < 0.99 * surprise][:TRIED])
    return [*found.values(), *(() if best <= enough else _alternatives(search, at))]


def _scanned(search: HypothesisSearch, u: np.ndarray, numbers: Sequence[int]) -> dict[int, list[FittedHypothesis]]:
    """Fits at the sizes that are tried of some errors, by index, the best first: at u, and after a step of the free
    parameters to first order from there."""
    corrected, size, pairs = search.corrected, search.size, list[tuple[int, float]]()
    for k in numbers:
        error = corrected.errors[k]
        (least, most), sizes = error.bounds, [*error.starts, *(error.typical * x for x in SCANNED)]
        pairs += [(k, x / error.typical) for x in sizes if least < x < most] or [(k, 0.0)]
    x = np.zeros((len(pairs), len(corrected.errors)))
    for row, (k, amount) in zip(x, pairs, strict=True):
        row[k] = amount * corrected.errors[k].typical
    svd = scaled_svd(search.metric(corrected.state(u, np.zeros(len(corrected.errors)), np.arange(size))[1]))
    start, free, ends = np.tile(u, (len(pairs), 1)), corrected.problem.free, dict[int, list[FittedHypothesis]]()
    first = search.metric(corrected.residuals(start, x).T)
    stepped = np.clip(start - (svd.gain @ (svd.range(len(first)).T @ first)).T, free.lower, free.upper)
    squares = [np.sum(part**2, axis=0) for part in (first, search.metric(corrected.residuals(stepped, x).T))]
    best = dict[tuple[int, float], FittedHypothesis]()
    for i, (k, amount) in enumerate(pairs):
        for point, chi_square in ((start[i], squares[0][i]), (stepped[i], squares[1][i])):
            end = FittedHypothesis(Hypothesis(corrected.errors[k]), np.append(point, amount), float(chi_square))
            key = k, abs(amount)
            best[key] = min(best.get(key, end), end, key=lambda end: end.chi_square)
    for (k, _), end in best.items():
        ends.setdefault(k, []).append(end)
    return {k: sorted(each, key=lambda end: end.score)[:HELD] for k, each in ends.items()}


def _similar(search: HypothesisSearch, k: int, best: FittedHypothesis) -> dict[int, FittedHypothesis]:
    """Errors of the size whose effect, beside the free parameters, is closest to that of a refitted one, and the sum of
    squares that they leave to first order, by index."""
    corrected, size, errors = search.corrected, search.size, search.corrected.errors
    x, typical = np.zeros(len(errors)), np.array([error.typical for error in errors])
    x[k] = best.size * typical[k]
    _, jacobian = corrected.state(best.x[:size], x, np.arange(size + len(errors)))
    svd = scaled_svd(search.metric(jacobian[:, :size]), RANK_TOLERANCE)
    beside = svd.beside(search.metric(jacobian[:, size:] * typical))
    own, effect = np.sum(beside**2, axis=0), beside[:, k] * best.size
    sizes = (beside.T @ effect) / np.where(own > 0.0, own, 1.0)
    left = best.chi_square + np.sum((effect[:, None] - beside * sizes) ** 2, axis=0)
    least, most = np.array([error.bounds for error in errors]).T / typical
    return {
        i: FittedHypothesis(Hypothesis(error), np.append(best.x[:size], np.clip(sizes[i], least[i], most[i])), left[i])
        for i, error in enumerate(errors)
    }


def _is_usual(end: FittedHypothesis) -> bool:
    """Whether it is an error without a tolerance, or of a size that its tolerance makes plausible."""
    error = end.hypothesis.error
    return error is None or not error.kind or abs(end.size) <= SMALL


def _from_draws(search: HypothesisSearch, found: Sequence[FittedHypothesis], seed: int) -> list[FittedHypothesis]:
    """Refits, of which the best and those of alternatives are repeated from random starts unless one leaves noise
    alone."""
    order, enough = sorted(found, key=lambda end: end.chi_square), float(chdtri(search.noise, FALSE_ALARM))
    if any(end.chi_square <= enough and _is_usual(end) for end in order):
        return order
    free, errors = search.corrected.problem.free, [end for end in order if end.hypothesis.error is not None]
    repeated = [*errors[:MOST_NAMED], *(end for end in order if end.hypothesis.error is None)]
    draws = np.random.default_rng(seed).uniform(free.lower, free.upper, (DRAWN, search.size))
    found = [end for end in order if not any(end is other for other in repeated)]
    for end in repeated:
        ends = (search.fitted(end.hypothesis, np.append(u, end.x[search.size :]), SCREENED) for u in draws)
        best = min(ends, key=lambda end: end.chi_square)
        found.append(min(end, search.fitted(end.hypothesis, best.x), key=lambda end: end.chi_square))
    return found


def _expected(
    search: HypothesisSearch, points: Sequence[np.ndarray], channel: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum of squares that each error leaves to first order at each point [p, e]; whether its effect is distinct from
    that of earlier ones [e]; whether it has an effect in a channel alone, whose fit without it is the last point [e]:
    such an error may leave noise alone there."""
    corrected, size = search.corrected, search.size
    errors, every = corrected.errors, np.arange(size + len(corrected.errors))
    typical = np.array([error.typical for error in errors])
    expected, distinct = np.zeros((len(points), len(errors))), np.zeros(len(errors), bool)
    inside = np.zeros(len(errors), bool)
    for p, u in enumerate(points):
        residual, jacobian = corrected.state(u, np.zeros(len(errors)), every)
        columns = search.metric(jacobian[:, size:] * typical)
        repeated = _repeated(columns)
        rest, less = drops(search.metric(residual), search.metric(jacobian[:, :size]), columns)
        less[repeated] = 0.0
        expected[p] = rest - less
        distinct |= ~np.isin(np.arange(len(errors)), repeated)
        if channel is not None and p == len(points) - 1:
            effect = jacobian[:, size:] * typical * search.metric.scale[:, None]
            inside = np.any(effect != 0.0, axis=0) & ~np.any(effect[~channel], axis=0)
            expected[p, inside] = 0.0
    return expected, distinct, inside


def _alternatives(search: HypothesisSearch, points: Sequence[np.ndarray]) -> list[FittedHypothesis]:
    """Refits of the most likely alternatives to tests."""
    problem, tried = search.corrected.problem, list[tuple[float, int, int]]()
    known = (
        (t.name, () if t.description is None else t.description.alternatives(problem.model)) for t in problem.tests
    )
    some = [*single_and_common(known), *exchanged_postures(problem.tests)]
    for p, u in enumerate(points):
        model = problem.free.apply(problem.model, problem.free.values(u))
        views = [test.view(model) for test in problem.tests]
        each = list(map(residual_of_test, problem.tests, views))
        for number, (tests, _) in enumerate(some):
            parts = list(each)
            for k, test in tests.items():
                is_there = getattr(test, "q", None) is getattr(problem.tests[k], "q", None)
                parts[k] = residual_of_test(test, views[k] if is_there else test.view(model))
            whole = np.concatenate(parts) * search.metric.scale[: problem.data_rows]
            tried.append((float(np.sum(np.nan_to_num(whole, nan=1e6) ** 2)), number, p))
    found, chosen = list[FittedHypothesis](), set[int]()
    for _, number, p in sorted(tried):
        if number not in chosen and len(chosen) < TRIED_ALTERNATIVES:
            chosen.add(number)
            found.append(search.fitted(Hypothesis(None, *some[number]), points[p]))
    return found


def single_and_common(
    known: Iterable[tuple[str, Iterable[tuple[str, str, Test]]]],
) -> list[tuple[dict[int, Test], str]]:
    """Alternatives to single tests, then to all that have one of the same key, with their texts.

    Args:
        known: name of each test, and its alternatives: key, text and test.
    """
    single, common = list[tuple[dict[int, Test], str]](), dict[str, tuple[dict[int, Test], str]]()
    for k, (name, alternatives) in enumerate(known):
        for key, text, other in alternatives:
            single.append(({k: other}, f"{text} of {display_name(name)}"))
            common.setdefault(key, ({}, text))[0][k] = other
    return [*single, *(each for each in common.values() if len(each[0]) > 1)]


def exchanged_postures(tests: Sequence[Test]) -> list[tuple[dict[int, Test], str]]:
    """Alternatives in which two tests have each other's posture, as where their files were exchanged, with texts."""
    at = [(k, test) for k, test in enumerate(tests) if isinstance(test, PostureTest)]
    pairs = [
        (one, other)
        for one, other in itertools.combinations(at, 2)
        if one[1].q.shape == other[1].q.shape and not np.array_equal(one[1].q, other[1].q)
    ]
    return [
        (
            {i: dataclasses.replace(a, q=b.q), k: dataclasses.replace(b, q=a.q)},
            f"exchanged postures of {display_name(a.name)} and {display_name(b.name)}",
        )
        for (i, a), (k, b) in (pairs if len(pairs) <= MOST_PAIRS else ())
    ]


def selected(
    chi_squares: Sequence[float], sizes: Sequence[float], plain: float, noise: float, tried: int
) -> tuple[list[int], float]:
    """Indices of the hypotheses that explain a misfit, the most plausible first, and the explained part of the misfit.

    The decrease of the best must be significant, at `ERROR_RATE` over the number of hypotheses, and leave noise alone
    or less than a tenth of the misfit. Others are equivalent where the difference of their sums of squares is
    insignificant, also with a Cauchy distribution of the typical size as a prior: of these, small errors are more
    plausible than large ones, and far larger ones are left out.

    Args:
        chi_squares: sum of squares of each refit.
        sizes: of each error over its typical size; 0 for an alternative.
        plain: without a hypothesis.
        noise: degrees of freedom.
        tried: number of hypotheses.
    """
    best, least = min(chi_squares), float(chdtri(1, ERROR_RATE / tried))
    explains = 1.0 - max(best - noise, 0.0) / max(plain - noise, least)
    enough = best <= float(chdtri(noise, FALSE_ALARM)) or explains >= EXPLAINS
    if plain - best < least or not enough:
        return [], explains
    within = float(chdtri(1, ERROR_RATE)) * max(best / noise, 1.0)
    near = [k for k in np.argsort(np.abs(sizes), kind="stable").tolist() if chi_squares[k] <= best + within]
    scores = {k: chi_squares[k] + prior(sizes[k]) for k in near}
    return [k for k in near if scores[k] <= min(scores.values()) + within][:MOST_NAMED], explains


def _reported(
    search: HypothesisSearch, u: np.ndarray, chi_square: float, found: Sequence[FittedHypothesis]
) -> tuple[ModelError, ...]:
    """The hypotheses that explain the misfit, the most plausible first."""
    chi_squares, corrected = [end.chi_square for end in found], search.corrected
    free = corrected.problem.free
    named, explains = selected(
        chi_squares, [end.surprise for end in found], chi_square, search.noise, len(corrected.errors)
    )
    if not named:
        return ()
    ends = [found[k] for k in named]
    refit = search.fitted(NONE, found[int(np.argmin(chi_squares))].x[: search.size])
    other, lower = refit.x, refit.chi_square
    least = min(chi_squares)
    as_good = lower <= least + float(chdtri(1, ERROR_RATE)) * max(least / search.noise, 1.0)
    if as_good and selected([lower], [0.0], chi_square, search.noise, 1)[0]:
        text = _minimum_text(free, u, other)
        return (_with_values(free, text, explains, other, search.state(NONE, other)[1], lower / search.noise),)
    errors = [
        _with_values(
            free, end.text, explains, end.x[: search.size], search.state(*end[:2])[1],
            end.chi_square / search.noise,
        )
        for end in ends
    ]  # fmt: skip
    machine = corrected.errors[: corrected.of_machine]
    return tuple(
        dataclasses.replace(error, of_machine=end.hypothesis.error in machine)
        for error, end in zip(errors, ends, strict=True)
    )


def _with_values(
    free: FreeParameters, text: str, explains: float, u: np.ndarray, jacobian: Float[np.ndarray, "m k"], ratio: float
) -> ModelError:
    """A model error with the values of a fit with it; the first columns of the Jacobian are those of u.

    Args:
        ratio: of the sum of squares that remains to its degrees of freedom.
    """
    values = free.values(u)
    scatter = max(ratio, 1.0) ** 0.5
    std = scatter * identifiability(jacobian, np.ones(len(jacobian))).std[: u.size] * np.abs(free.slope(values))
    return ModelError(text, explains, free.named(values), free.named(std))


def _minimum_text(free: FreeParameters, u: np.ndarray, lower: np.ndarray) -> str:
    """Text on a lower minimum of the cost with the description unchanged, by the parameter that differs most."""
    most = int(np.argmax(np.abs(lower - u) / (free.upper - free.lower)))
    value = float(np.asarray(free.values(jax.device_put(lower)))[most])
    return f"a lower minimum of the cost that the search did not find, with {free.names[most]} near {value:.4g},"


def _single_lines(
    estimate: Estimate, search: HypothesisSearch, starts: Sequence[np.ndarray], chi_square: float
) -> tuple[ModelError, ...]:
    """Outlier lines, rows and load cases, where the residual without them is noise."""
    problem, kept, texts = estimate.study.problem, np.ones(estimate.residual.size), []
    for rows, test in zip(problem.row_slices, problem.tests, strict=True):
        if test.lines is not None:
            outliers = test.lines.outliers(estimate.residual[rows], estimate.row_weights[rows])
            if outliers.size:
                kept[rows] = np.asarray(test.lines.without(outliers).row_weights()) > 0.0
                texts.append(f"{test.lines.lines_text(outliers)} of {display_name(test.name)} (robust = true)")
    ends = list[FittedHypothesis]()

    def fitted(mask: np.ndarray) -> tuple[Metric, np.ndarray, np.ndarray]:
        own = dataclasses.replace(search, metric=search.metric.without(mask))
        ends.append(min((own.fitted(NONE, start) for start in starts), key=lambda end: end.chi_square))
        return own.metric, *own.state(NONE, ends[-1].x)

    kept, names = outlying_groups(group_rows(estimate), kept, search.noise, fitted)
    texts += names
    if not texts:
        return ()
    if not names:
        fitted(kept)
    end, free = ends[-1], search.corrected.problem.free
    noise = search.noise - float(np.sum((search.metric.scale > 0.0) & (kept == 0.0)))
    explains = min(1.0 - (end.chi_square - noise) / max(chi_square - search.noise, 1e-300), 1.0)
    if explains < EXPLAINS:
        return ()
    slopes = dataclasses.replace(search, metric=search.metric.without(kept)).state(NONE, end.x)[1]
    text = f"excluding {' and '.join(texts)}"
    return (_with_values(free, text, explains, end.x, slopes, end.chi_square / max(noise, 1.0)),)


def group_rows(estimate: Estimate) -> list[tuple[Int[np.ndarray, "k"], str]]:
    """Rows of each group of rows of the tests, of which single ones may be wrong, and the text of each."""
    found = list[tuple[np.ndarray, str]]()
    for rows, entry in zip(estimate.study.problem.row_slices, estimate.study.fitted, strict=True):
        group, names = entry.source.groups(entry.test)
        every = np.arange(rows.start, rows.stop)
        found += [(every[group == k], f"{name} of {display_name(entry.name)}") for k, name in enumerate(names)]
    return [(own, text) for own, text in found if own.size]


MOST_GROUPS, LEAST_GROUPS = 3, 6
"""Largest number of wrong groups of rows, and smallest number of groups of which one may be wrong."""


def outlying_groups(
    groups: Sequence[tuple[Int[np.ndarray, "k"], str]], kept: Float[np.ndarray, "m"], noise: float,
    fitted: Callable[[Float[np.ndarray, "m"]], tuple[Metric, Float[np.ndarray, "m"], Float[np.ndarray, "m d"]]],
) -> tuple[Float[np.ndarray, "m"], list[str]]:  # fmt: skip
    """Rows without outlying groups, 1 where they are kept, and the texts of these groups; none where leaving out a few
    groups does not leave noise alone.

    A fit without a group is one with an unknown error of each of its rows: to first order the sum of squares decreases
    by that of these columns beside the free parameters. The group that explains most is left out first.

    Args:
        groups: rows of each, and its text.
        kept: rows before.
        noise: expected sum of squares of all rows.
        fitted: returns the metric, the residual and the Jacobian in it of a fit of some rows.
    """
    before, names, most = kept, list[str](), min(MOST_GROUPS, len(groups) // LEAST_GROUPS)
    if most:
        scale, residual, jacobian = fitted(kept)
    while len(names) < most:
        svd = scaled_svd(jacobian, RANK_TOLERANCE)
        rest, drop = svd.beside(residual), np.zeros(len(groups))
        for k, (rows, _) in enumerate(groups):
            own = rows[scale.scale[rows] > 0.0]
            columns = scale((np.arange(residual.size)[:, None] == own).astype(float))
            drop[k] = np.sum((np.linalg.qr(svd.beside(columns))[0].T @ rest) ** 2)
        rows, text = groups[int(np.argmax(drop))]
        kept = np.where(np.isin(np.arange(kept.size), rows), 0.0, kept)
        names.append(text)
        scale, residual, jacobian = fitted(kept)
        degrees = noise - float(np.sum(before > kept))
        if degrees > 0.0 and float(residual @ residual) <= float(chdtri(degrees, FALSE_ALARM)):
            return kept, names
    return before, []


def _moved_station(
    estimate: Estimate, search: HypothesisSearch, u: Float[np.ndarray, "d"], chi_square: float
) -> tuple[ModelError, ...]:
    """The station of a pose test that was displaced between two of its rows, where another pose from there on explains
    the misfit.

    To first order the columns of the other pose are those of the station in the rows behind; the pair of rows that
    explains most is refitted. It is not among the first or last `MOST_GROUPS` rows, which may be single wrong ones.
    """
    study, size, corrected = estimate.study, search.size, search.corrected
    zero, every, free = np.zeros(len(corrected.errors)), np.arange(search.size), study.free
    residual, jacobian = corrected.state(u, zero, every)
    svd = scaled_svd(search.metric(jacobian), RANK_TOLERANCE)
    rest, found = svd.beside(search.metric(residual)), list[tuple[float, np.ndarray, np.ndarray, str]]()
    for rows, entry in zip(study.problem.row_slices, study.fitted, strict=True):
        group, names = entry.source.groups(entry.test)
        for k, label in enumerate(getattr(entry.test, "stations", ())):
            of_station = [name for name in own_names(entry.test) if name.startswith(f"{STATION}.{entry.name}.{label}.")]
            columns, own = free.entries_of(of_station), np.flatnonzero(np.asarray(entry.test.station) == k)
            if columns is None or np.any(columns < 0):
                continue
            for i in range(MOST_GROUPS, own.size - MOST_GROUPS - 1):
                behind = np.zeros(residual.size, dtype=bool)
                behind[rows] = np.isin(group, own[i + 1 :])
                moved = svd.beside(search.metric(jacobian[:, columns] * behind[:, None]))
                drop = float(np.sum((np.linalg.qr(moved)[0].T @ rest) ** 2))
                where = f"station {label} of {display_name(entry.name)}", names[own[i]], names[own[i + 1]]
                found.append((drop, columns, behind, "{} that moved by {{}} between {} and {}".format(*where)))
    if not found:
        return ()
    _, columns, behind, text = max(found, key=lambda each: each[0])

    def with_other(y: np.ndarray) -> np.ndarray:
        there = y[:size].copy()
        there[columns] = y[size:]
        return there

    def state(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (first, before), (second, after) = (corrected.state(v, zero, every) for v in (y[:size], with_other(y)))
        own = np.where(behind[:, None], after[:, columns], 0.0)
        slopes = np.where(behind[:, None], after, before)
        slopes[:, columns] -= own
        return search.metric(np.where(behind, second, first)), search.metric(np.concatenate([slopes, own], axis=1))

    anywhere = np.full(columns.size, np.inf)
    lower, upper = np.append(free.lower, -anywhere), np.append(free.upper, anywhere)
    y, of_end = host_minimum(state, np.append(u, u[columns]), lower, upper)
    least, noise = float(of_end @ of_end), search.noise - columns.size
    explains = 1.0 - max(least - noise, 0.0) / max(chi_square - noise, 1e-300)
    is_significant = chi_square - least > float(chdtri(columns.size, ERROR_RATE / len(found)))
    if not is_significant or not (least <= float(chdtri(noise, FALSE_ALARM)) or explains >= EXPLAINS):
        return ()
    one, other = (np.asarray(free.values(v))[columns] for v in (y[:size], with_other(y)))
    by = f"{1e3 * np.linalg.norm(other[:3] - one[:3]):.3g} mm"
    if columns.size > 3:
        own, there = (rotation_by(jax.device_put(pose[3:])) for pose in (one, other))
        turn = rotation_vector(own.T @ there)
        by += f" and {1e3 * float(np.linalg.norm(turn)):.3g} mrad"
    text = text.format(by)
    return (_with_values(free, text, explains, y[:size], state(y)[1], least / noise),)


def with_hypotheses(estimate: Estimate, found: Sequence[ModelError]) -> Estimate:
    """The estimate with standard deviations that include its change by each hypothesis: the error may be there or
    not."""
    free = estimate.study.free
    values = [np.array([error.values[name] for name in free.names]) for error in found if error.values]
    if not values:
        return estimate
    changes = [np.abs(free.encode(own) - estimate.u) for own in values]
    return estimate.with_std(np.hypot(estimate.std, np.max(changes, axis=0)))


def most_likely_errors(estimate: Estimate) -> ModelError | None:
    """The most likely errors within their tolerances, and the values of a joint fit with them; None where the effect of
    errors is linear, or tolerances do not explain the misfit."""
    goodness, free, study = estimate.goodness, estimate.study.free, estimate.study
    if goodness.joint is None or goodness.budget is None or not goodness.misfit_tolerated:
        return None
    joint, errors = goodness.joint, goodness.budget.errors
    order = np.argsort(-np.abs(joint.sizes))[:MOST_LIKELY].tolist()
    text = listed([errors[k].described(float(joint.sizes[k]) * errors[k].std(study.tolerances)) for k in order])
    values = free.values(joint.u)
    return ModelError(text, 1.0, free.named(values), free.named(joint.std * np.abs(free.slope(values))))


def model_errors_text(found: Sequence[ModelError]) -> str:
    """A sentence on the errors that would explain a misfit; empty where there are none."""
    if not found:
        return ""
    texts = ", or ".join(error.text for error in found)
    return f"{texts} would explain {100.0 * found[0].explains:.0f} % of the misfit beyond noise{_separation(found)}"


def _separation(found: Sequence[ModelError]) -> str:
    """A clause on the measurement that would separate some errors: it changes their effects differently."""
    if len(found) < 2:
        return ""
    if any("factor" in error.text for error in found):
        return " (a calibration with a known mass would separate them)"
    if all(error.of_machine for error in found):
        loads = any("payload" in error.text for error in found)
        return f" ({'weighing the payload' if loads else 'a test at another posture'} would separate them)"
    if not any(error.of_machine for error in found):
        return " (a repetition with sensors, hammer or load in another direction would separate them)"
    return " (a repetition with sensors or load mounted anew, or at another posture, would separate them)"


def _scatter(estimate: Estimate) -> np.ndarray | None:
    """Variance of each row over that of its noise in the fit; None where noise and tolerances explain the residual."""
    problem, goodness = estimate.study.problem, estimate.goodness
    doubtful = bool(goodness.systematic) or goodness.exceeds_tolerance
    found = np.ones(estimate.residual.size)
    for rows, test, misfit in zip(problem.row_slices, problem.tests, goodness.excesses, strict=True):
        residual, weights = estimate.residual[rows], estimate.row_weights[rows]
        if test.noise.is_known:
            doubtful |= not misfit.explained
        elif test.lines is not None:
            found[rows] = np.maximum(test.lines.scatter(residual, weights), np.finfo(float).tiny)
            doubtful |= test.noise.correlation.between_responses or test.lines.outliers(residual, weights).size > 0
    return found if doubtful and any(test.description is not None for test in problem.tests) else None


def _repeated(columns: Float[np.ndarray, "m c"]) -> np.ndarray:
    """Indices of columns parallel to an earlier one, such as those of all tests and of a single test."""
    unit = columns / np.maximum(np.linalg.norm(columns, axis=0), np.finfo(float).tiny)
    parallel = np.triu(np.abs(unit.T @ unit), 1) > 1.0 - PARALLEL
    return np.flatnonzero(parallel.any(axis=0))
