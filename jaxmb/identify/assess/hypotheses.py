"""Refits of one or two errors in the description of a machine or its tests: hypotheses, their fits, and the choice of
the errors that are refitted and of their starts."""

import dataclasses
import functools
import itertools
import math
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float
from scipy.special import chdtri

from jaxmb.identify.assess.corrected import CorrectedResidual, rotated
from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, inverse_std, scaled_svd, triangular_factor
from jaxmb.identify.estimation.least_squares import MOST_EVALUATIONS, SETTLED, host_minimum
from jaxmb.identify.experiments.machine_errors import compliance_key, damping_key, rocking_pairs
from jaxmb.identify.experiments.posture_test import PostureTest
from jaxmb.identify.experiments.test import LEAST_PERCENT, Entry, Source, Test, residual_of_test
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.fit.problem import Prior, Problem, test_at
from jaxmb.io.validation import display_name
from jaxmb.machine.build import Model

EXPLAINS = 0.9
"""Part of the misfit beyond noise that an error explains where its correction does not leave noise alone."""
SCREENED = 8
"""Evaluations of a refit from each start."""
GAINED = 0.02
"""Part of the misfit at its start: a fit at one size ends with a step that lowers the sum of squares by less."""


WhiteningStep = tuple[slice, Float[np.ndarray, "r k"], Float[np.ndarray, "k"]]
"""Rows, orthonormal directions of errors there in units of the noise, and the standard deviation along each."""


@dataclasses.dataclass(frozen=True, eq=False)
class Whitening:
    """Scales columns to units of the covariance of the residual, that of the noise and of errors within their
    tolerances."""

    variances: Float[np.ndarray, "m"]
    """Of the noise; 0 for unused rows."""
    effects: Float[np.ndarray, "m e"]
    """Change of the residual by one standard deviation of each error."""
    tests: Sequence[slice] = ()
    """Rows of each test, where most errors have an effect in one test only."""

    @functools.cached_property
    def scale(self) -> Float[np.ndarray, "m"]:
        """1 over the standard deviation of the noise; 0 for unused rows."""
        return inverse_std(self.variances)

    @functools.cached_property
    def _steps(self) -> list[WhiteningStep]:
        """Errors of single tests, and those of several in units of the covariance with these."""
        scaled = self.effects * self.scale[:, None]
        in_tests = np.zeros((len(self.tests), scaled.shape[1]), bool)
        for own, rows in zip(in_tests, self.tests, strict=True):
            own |= np.any(scaled[rows] != 0.0, axis=0)
        single, found = in_tests.sum(axis=0) == 1, list[WhiteningStep]()
        for rows, members in [*zip(self.tests, in_tests & single, strict=True), (slice(None), ~single)]:
            columns = functools.reduce(_whitened, found, scaled[:, members])[rows]
            left, values, _ = np.linalg.svd(columns, full_matrices=False)
            found.append((rows, left, np.hypot(1.0, values)))
        return found

    def __call__(self, columns: Float[np.ndarray, "m *c"]) -> Float[np.ndarray, "m *c"]:
        """Columns in units of the covariance."""
        return functools.reduce(_whitened, self._steps, (columns.T * self.scale).T)

    def of_rows(self, kept: Float[np.ndarray, "m"]) -> "Whitening":
        """The same with the other rows unused, where `kept` is 0."""
        return dataclasses.replace(self, variances=self.variances * kept)

    def over_noise(self, columns: Float[np.ndarray, "m *c"]) -> Float[np.ndarray, "m *c"]:
        """Columns in units of the noise alone, of those in units of the covariance."""
        inverse = [(rows, basis, 1.0 / std) for rows, basis, std in reversed(self._steps)]
        return functools.reduce(_whitened, inverse, columns)


def _whitened(columns: Float[np.ndarray, "m *c"], step: WhiteningStep) -> Float[np.ndarray, "m *c"]:
    """Columns divided by the standard deviation along some directions."""
    (rows, basis, std), found = step, columns.copy()
    found[rows] -= basis @ ((basis.T @ columns[rows]).T * (1.0 - 1.0 / std)).T
    return found


Drops = tuple[float, Float[np.ndarray, "c"], Float[np.ndarray, "c"]]
"""Sum of squares of a residual, and for each error the decrease by it and its size; see `drops`."""


def drops(
    residual: Float[np.ndarray, "m"], jacobian: Float[np.ndarray, "m d"], columns: Float[np.ndarray, "m c"]
) -> Drops:
    """Sum of squares of the residual beside the free parameters, and its decrease in a fit with each error and the
    size of that, to first order; all in units of the covariance.

    Args:
        residual: of the fit.
        jacobian: by the free parameters.
        columns: by the errors.
    """
    svd = scaled_svd(jacobian, RANK_TOLERANCE)
    beside, rest = svd.beside(columns), svd.beside(residual)
    own = np.sum(beside**2, axis=0)
    has_effect = own > 1e-12 * np.sum(columns**2, axis=0)
    sizes = np.where(has_effect, -(beside.T @ rest) / np.where(has_effect, own, 1.0), 0.0)
    return float(rest @ rest), own * sizes**2, sizes


class Hypothesis(NamedTuple):
    """An error of one number, rarely of a few, or alternatives to some tests."""

    error: StatedError | None = None
    alternatives: Mapping[int, Test] = types.MappingProxyType({})
    """Tests in place of others, by the index of these."""
    text: str = ""
    """Text on the alternatives; empty for an error."""
    beside: tuple[StatedError, ...] = ()
    """Those that are fitted with an error: the damping of a missing elasticity, a second error."""
    is_one_number: bool = True
    """Whether it is no error of several numbers, which have a text and no sizes."""

    @property
    def fitted(self) -> tuple[StatedError, ...]:
        """The errors in the order of their fitted sizes; none of alternatives."""
        return () if self.error is None else (*self.beside, self.error)


UNCHANGED = Hypothesis()


def size_penalty(size: float) -> float:
    """-2 times the logarithm of a Cauchy distribution of the size of an error over its typical one, as its prior."""
    return float(2.0 * np.log1p(size**2))


class FittedHypothesis(NamedTuple):
    """A refitted hypothesis."""

    hypothesis: Hypothesis
    x: np.ndarray
    """Fitted unknowns, numbers beside an error, and its size, these over their typical ones."""
    chi_square: float
    noise_squares: float = np.nan
    """Sum of squares of the residual in units of the noise alone; not known in searches."""

    @property
    def sizes(self) -> Float[np.ndarray, "k"]:
        """Sizes of the fitted errors over their typical ones."""
        return self.x[self.x.size - len(self.hypothesis.fitted) :]

    @property
    def size(self) -> float:
        """Size of an error over the typical one; 0 for alternatives."""
        return 0.0 if self.hypothesis.error is None else float(self.x[-1])

    @property
    def errors(self) -> list[tuple[StatedError, float]]:
        """Errors with their sizes, SI, the first one first; without dampings of missing elasticities."""
        fitted = self.hypothesis.fitted
        known = [(error, size * error.typical) for error, size in zip(fitted, self.sizes.tolist(), strict=True)]
        return [each for each in known[::-1] if each[0].text or each[0].tolerance or len(fitted) == 1]

    def is_among(self, errors: Collection[StatedError]) -> bool:
        """Whether its errors are some of others; not of alternatives."""
        return bool(self.errors) and all(error in errors for error, _ in self.errors)

    @property
    def surprise(self) -> float:
        """Size for comparisons of likelihood; 0 for alternatives."""
        return math.hypot(*(error.surprise(size) for error, size in self.errors))

    @property
    def score(self) -> float:
        """Sum of squares with the penalty of the size of the error."""
        return self.chi_square + size_penalty(self.surprise)

    @property
    def is_plausible(self) -> bool:
        """Whether an error of this size is plausible."""
        return all(error.is_plausible(size) for error, size in self.errors)

    @property
    def text(self) -> str:
        """The hypothesis with its sizes."""
        return " and ".join(error.described(size) for error, size in self.errors) or self.hypothesis.text


@dataclasses.dataclass(frozen=True, eq=False)
class HypothesisSearch:
    """Refits of hypotheses."""

    corrected: CorrectedResidual
    whiten: Whitening
    noise_mean: float
    """Expected sum of squares of the residual by noise: its degrees of freedom, or the sum of squares less the part in
    which an error may be hidden."""
    masked: slice | Bool[np.ndarray, "m"] | None = None
    """Rows that are left out."""
    allowance: float | None = None
    """Sum of squares above `noise_mean` that counts as noise; None for that of its chi-square distribution."""
    elsewhere: float = 0.0
    """Part of the sum of squares that is in no row."""
    alternatives: Sequence[tuple[Mapping[int, Test], str]] = ()
    """Tests in place of others, by the index of these, each with its text."""

    @property
    def noise_limit(self) -> float:
        """Largest sum of squares of noise alone."""
        return (
            float(chdtri(self.noise_mean, FALSE_ALARM)) if self.allowance is None else self.noise_mean + self.allowance
        )

    @property
    def size(self) -> int:
        """Number of free parameters."""
        return self.corrected.problem.free.size

    def state(self, hypothesis: Hypothesis, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Residual in units of its covariance, and its Jacobian by u and, for an error, numbers beside it and its size
        over the typical ones."""
        fitted = hypothesis.fitted
        typical, index = [error.typical for error in fitted], [self.corrected.errors.index(error) for error in fitted]
        x = np.zeros(len(self.corrected.errors))
        x[index] = y[self.size :] * typical
        columns = np.append(np.arange(self.size), self.size + np.array(index, dtype=int))
        residual, jacobian = self.corrected.state(y[: self.size], x, columns, hypothesis.alternatives)
        jacobian[:, self.size :] *= typical
        if self.masked is not None:
            residual[self.masked], jacobian[self.masked] = 0.0, 0.0
        both = self.whiten(np.column_stack([jacobian, residual]))
        return both[:, -1], both[:, :-1]

    def cost(self, u: np.ndarray) -> float:
        """Sum of squares of the residual in units of the noise alone, which tolerances do not lower."""
        residual, _ = self.corrected.state(u, np.zeros(len(self.corrected.errors)), np.zeros(0, dtype=int))
        return float(np.sum((residual * self.whiten.scale) ** 2))

    def fitted(
        self, hypothesis: Hypothesis, first: np.ndarray, evaluations: int = MOST_EVALUATIONS
    ) -> FittedHypothesis:
        """Fit of a hypothesis, from a start, with at most so many evaluations."""
        free = self.corrected.problem.free
        lower, upper = np.asarray(free.lower), np.asarray(free.upper)
        for error in hypothesis.fitted:
            low, high = error.bounds
            lower, upper = np.append(lower, low / error.typical), np.append(upper, high / error.typical)
        state = functools.partial(self.state, hypothesis)
        x, residual = host_minimum(functools.partial(rotated, state), first, lower, upper, evaluations)
        return FittedHypothesis(hypothesis, x, float(residual @ residual) + self.elsewhere)

    def at_size(self, start: FittedHypothesis) -> FittedHypothesis:
        """Fit of the free parameters at the size of an error in a start: one of 90 deg displaces them."""

        def state(u: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            residual, jacobian = self.state(start.hypothesis, np.append(u, start.size))
            return residual, jacobian[:, :-1]

        free, excess = self.corrected.problem.free, 1.0 - self.noise_mean / max(start.chi_square, 1e-300)
        u, residual = host_minimum(
            functools.partial(rotated, state), start.x[:-1], np.asarray(free.lower), np.asarray(free.upper), SCREENED,
            settled=max(GAINED * excess, SETTLED),
        )  # fmt: skip
        return start._replace(x=np.append(u, start.size), chi_square=float(residual @ residual) + self.elsewhere)

    def reproduces(self, end: FittedHypothesis) -> bool:
        """Whether a refit reproduces at least half of the data of its alternatives to tests: smaller lengths have
        smaller residuals in any case, and a line at the end of a shifted table has no value."""
        if end.chi_square <= self.noise_limit:
            return True
        problem, values = self.corrected.problem, self.corrected.problem.free.values(end.x[: self.size])
        model = problem.free.apply(problem.model, values)
        tests = (test_at(test, problem.free, values) for test in end.hypothesis.alternatives.values())
        scores = (test.score(test.view(model), None) for test in tests)
        return not any(score._replace(least_percent=LEAST_PERCENT).poor for score in scores)


LIKELY, TRIED, TRIED_ALTERNATIVES = 18, 6, 3
"""Numbers of errors that explain most to first order or after a step, for which, as for those with starts of their own,
the free parameters are fitted at a size; of those that explain most then, which are refitted; and of alternatives that
are refitted."""
CONTINUED = 0.05
"""Part of the misfit that a refit explains after `SCREENED` evaluations if it is continued."""
SCANNED = (2.0, -2.0, 8.0, -8.0, 32.0, -32.0)
"""Sizes over the typical one at which all errors are tried, up to the smallest of their own starts: log FRFs are not
linear at antiresonances."""
MOST_SCANNED, POINTS = 10**7, 64
"""Largest number of rows times errors for sizes other than the starts of an error, and points at a time."""
MOST_TESTS, MOST_CHANNELS = 4, 6
"""Largest number of tests, and number of sensors and inputs, for fits without each of them; of more tests errors of a
single one are compared in its rows."""
MOST_PAIRS = 15
"""Largest number of pairs of tests that are tried with exchanged postures."""
LINEAR = 0.1
"""Part of the misfit by which a decrease to first order may be too small, and that a further spring explains."""
MOST_SIZES = 3
"""Number of sizes of an error, beside its own starts, at which the free parameters are fitted before its size."""
MOST_NAMED = 4
"""Largest number of errors that are named together."""
DRAWN = 16
"""Starts of refits between the bounds where data are not reproduced, as the fit may be in a local minimum: a factor of
1000 on the FRFs of an arm of four joints is found from nine of them."""
SECOND, FAR, UNEQUAL = 3, 32.0, 0.1
"""Number of errors that are fitted beside the one that explains most, the largest size over the typical one from which
they start, and compliance of one of two springs over that of the other, as a start."""
EQUAL, REMAINS = 0.01, 0.5
"""Relative difference of the sums of squares of errors of which each may be the first of two; part of a misfit that two
errors leave at most after `SCREENED` evaluations if their fit is continued."""
SMALL = 5.0
"""Size over the typical one up to which an error with a tolerance ends the search if it leaves noise alone."""
PARALLEL = 1e-8
"""1 - cosine of columns up to which two errors have one effect."""


def refitted_hypotheses(
    search: HypothesisSearch, points: Sequence[np.ndarray], chi_square: float, beyond: Collection[str]
) -> list[FittedHypothesis]:
    """The likeliest hypotheses, each fitted jointly with the free parameters.

    Refitted are alternatives that lower the residual; errors that explain most to first order, at any of the points or
    at a size that is tried, or that have starting values of their own; errors of a channel without which the other
    channels agree; errors whose effect resembles that of the best; and pairs of errors.

    Args:
        search: the hypotheses and the residual that they may explain.
        points: of the linearizations, u; the fit first.
        chi_square: sum of squares of the residual at the fit.
        beyond: keys of errors beyond their tolerance, which are refitted in any case.
    """
    errors, channel = search.corrected.errors, _fit_without_channel(search, points[0])
    at = [*points, *([] if channel is None else [channel[0]])]
    expected, distinct, inside = _expected_chi_squares(search, at, None if channel is None else channel[1])
    inner, tried = _searches_and_sizes(search, points[0])
    if channel is not None:
        tried |= _fits_at_sizes(search, channel[0], np.flatnonzero(inside).tolist())
    expected = np.concatenate([expected, [[tried[k][0].chi_square for k in range(len(errors))]]])
    noise_limit = search.noise_limit if chi_square > search.noise_limit else -np.inf
    # those that lower the residual without a refit, such as a reversed sign, take a small part of the time of errors
    alternatives, found = _likely_alternatives(search, at), dict[int, FittedHypothesis]()
    early = [search.fitted(other, first) for other, first, remains in alternatives if remains < REMAINS]
    best = min((end.chi_square for end in early if end.chi_square <= noise_limit), default=np.inf)
    is_alternative = bool(np.isfinite(best))

    @functools.cache
    def sized(k: int) -> list[FittedHypothesis]:
        return [inner.get(k, search).at_size(end) for end in tried[k]]

    # stated numbers that may be far off, not compliances where none is stated
    far = [bool(e.tolerance and e.starts and e.bounds[0] < 0.0 and not is_alternative) for e in errors]

    def may_explain(k: int) -> bool:
        # unless another error leaves noise alone, and this one more to first order
        return bool(best > noise_limit or far[k] or expected[:, k].min() <= best + LINEAR * (chi_square - best))

    def refit(numbers: Iterable[int]) -> None:
        nonlocal best
        for k in filter(may_explain, numbers):
            first = np.append(at[int(np.argmin(expected[: len(at), k]))], 0.0)
            nearest = min(sized(k), key=lambda end: end.chi_square)
            own = [end.x for end in sized(k) if far[k] and end.size in _start_sizes(errors[k]) and end is not nearest]
            ends = (search.fitted(nearest.hypothesis, start, SCREENED) for start in (first, nearest.x, *own))
            end = min(ends, key=lambda end: end.chi_square)
            if chi_square - end.chi_square > CONTINUED * max(chi_square - search.noise_mean, 0.0):
                end = _with_damping(search, search.fitted(end.hypothesis, end.x), errors[k].key)
            conventions = (end for end in sized(k) if end.size != 0.0 and end.surprise < 1e-9)  # such as 90 deg
            usual = [search.at_size(end) for end in conventions]
            found[k] = min([end, *usual], key=lambda end: end.score)
            if _is_usual(found[k]):
                best = min(best, found[k].chi_square)

    def likely() -> list[int]:
        order = np.argsort(expected.min(axis=0), kind="stable").tolist()
        return [k for k in order if distinct[k] and k not in found]

    refit([k for k, error in enumerate(errors) if error.key in beyond])
    refit([k for k in likely() if inside[k] and not is_alternative])
    nearer = np.full(len(errors), np.inf)
    # the fit may be so far off that no step from it shows what a payload or a missing elasticity explains
    for k in filter(may_explain, {*likely()[:LIKELY], *(k for k in likely() if errors[k].starts)}):
        nearer[k] = min(end.chi_square for end in sized(k))
    expected = np.concatenate([expected, nearer[None]])
    refit(likely()[:TRIED])
    refit([k for k in likely() if errors[k].starts and may_explain(k)][:TRIED])
    if found:
        nearest = min(found, key=lambda k: found[k].chi_square)
        similar, surprise = _similar_errors(search, nearest, found[nearest]), found[nearest].surprise
        expected = np.concatenate([expected, [[similar[k].chi_square for k in range(len(errors))]]])
        more = sorted(set(similar) - set(found), key=lambda k: similar[k].chi_square)
        # of errors with one effect, only those that are more plausible
        more = [k for k in more if distinct[k] or similar[k].surprise < 0.99 * surprise][:TRIED]
        tried = {k: [similar[k], *tried[k]] for k in more}
        sized.cache_clear()
        refit(more)
    late = (search.fitted(other, first) for other, first, remains in alternatives if remains >= REMAINS)
    ends = [*found.values(), *(early if is_alternative else [*early, *late] if best > noise_limit else ())]
    return [*ends, *(_refits_of_pairs(search, ends) if ends and search.allowance is None else ())]


def _searches_and_sizes(
    search: HypothesisSearch, u: np.ndarray
) -> tuple[dict[int, HypothesisSearch], dict[int, list[FittedHypothesis]]]:
    """The search in the rows of a test, of each error of one of many tests, and the sizes tried of each error."""
    parts = _searches_in_single_tests(search, u)
    inner = {k: part for numbers, part in parts for k in numbers}
    tried = _fits_at_sizes(search, u, [k for k in range(len(search.corrected.errors)) if k not in inner])
    for numbers, part in parts:
        tried |= _fits_at_sizes(part, u, numbers)
    return inner, tried


def _with_damping(search: HypothesisSearch, end: FittedHypothesis, key: str) -> FittedHypothesis:
    """The refit of a missing elasticity, with its damping (by key of the compliance) where that lowers the residual
    significantly: also of one that is noise, as it is compared with those of others."""
    fitted, own = end.hypothesis.fitted, damping_key(key)
    for damping in (error for error in search.corrected.errors if error.key == own and error not in fitted):
        wider = end.hypothesis._replace(beside=(damping, *end.hypothesis.beside))
        damped = search.fitted(wider, np.insert(end.x, search.size, 0.0))
        least = float(chdtri(1, FALSE_ALARM)) * max(damped.chi_square / search.noise_mean, 1.0)
        end = damped if end.chi_square - damped.chi_square > least else end
    return end


def _refits_of_pairs(search: HypothesisSearch, found: Sequence[FittedHypothesis]) -> list[FittedHypothesis]:
    """Refits of two errors; see `refits_of_pairs`."""
    corrected, size, errors = search.corrected, search.size, search.corrected.errors
    typical = np.array([error.typical for error in errors])

    def beside(end: FittedHypothesis) -> Drops:
        own, x = [errors.index(error) for error in end.hypothesis.fitted], np.zeros(len(errors))
        x[own] = end.sizes * typical[own]
        residual, jacobian = corrected.state(end.x[:size], x, np.arange(size + len(errors)))
        columns = search.whiten(jacobian[:, size:] * typical)
        known = np.column_stack([search.whiten(jacobian[:, :size]), columns[:, own]])
        return drops(search.whiten(residual), known, columns)

    def fitted(both: Hypothesis, starts: Sequence[PairStart]) -> FittedHypothesis:
        ends = (search.fitted(both, np.append(end.x[:size], sizes), SCREENED) for end, sizes in starts)
        best, before = min(ends, key=lambda end: end.chi_square), min(end.chi_square for end, _ in starts)
        if best.chi_square > max(search.noise_limit, search.noise_mean + REMAINS * (before - search.noise_mean)):
            return best  # it will not leave noise alone
        best = search.fitted(both, best.x)
        for error in both.fitted:
            best = _with_damping(search, best, error.key)
        return best

    pairs = refits_of_pairs(found, errors, corrected.model, beside, fitted, search.noise_limit)
    if min(end.chi_square for end in found) <= search.noise_limit:
        return pairs

    def single(end: FittedHypothesis, error: StatedError, own: float) -> FittedHypothesis:
        first = np.append(end.x[:size], own / error.typical)
        return _with_damping(search, search.fitted(Hypothesis(error), first), error.key)

    left = [end for end in pairs if end.chi_square <= search.noise_limit]
    return with_singles(left, single, search.noise_limit, float(chdtri(1, FALSE_ALARM / len(errors)))) or pairs


def with_singles(
    pairs: Sequence[FittedHypothesis], single: Callable[[FittedHypothesis, StatedError, float], FittedHypothesis],
    noise_limit: float, least: float,
) -> list[FittedHypothesis]:  # fmt: skip
    """Single errors of pairs that leave noise alone without the second one, and the pairs that leave less; none if a
    second one is needed. The fit of a single error may have ended in a local minimum, which the pair has left.

    Args:
        pairs: that leave noise alone.
        single: the refit of one error of a pair and its size, SI, from the minimum of the pair.
        noise_limit: largest sum of squares of noise alone.
        least: significant decrease of a sum of squares.
    """
    found = dict[str, FittedHypothesis]()
    for end in pairs:
        for error, own in end.errors:
            alone = single(end, error, own)
            if alone.chi_square <= min(noise_limit, found.get(error.key, alone).chi_square):
                found[error.key] = alone
    lowest = min((end.chi_square for end in found.values()), default=-np.inf)
    return [*found.values(), *(end for end in pairs if found and end.chi_square <= lowest - least)]


PairStart = tuple[FittedHypothesis, Float[np.ndarray, "k"]]
"""A fit, and sizes of the errors of another hypothesis over their typical ones."""


def refits_of_pairs(
    found: Sequence[FittedHypothesis], errors: Sequence[StatedError], model: Model,
    beside: Callable[[FittedHypothesis], Drops], fitted: Callable[[Hypothesis, Sequence[PairStart]], FittedHypothesis],
    noise_limit: float,
) -> list[FittedHypothesis]:  # fmt: skip
    """Refits of two errors with a significantly lower sum of squares than those of single ones: of springs that yield
    alike their two stiffnesses; one of the errors that explain most and one that explains most beside it, where both
    leave noise alone.

    Args:
        found: refitted hypotheses.
        errors: all.
        model: with further springs.
        beside: returns the `drops` of all errors beside a fitted one.
        fitted: the refit of a hypothesis from the best start.
        noise_limit: largest sum of squares of noise alone.
    """
    order = sorted(found, key=lambda end: end.chi_square)
    single = {end.hypothesis.error.key: end for end in order if end.hypothesis.error is not None}
    most = min(noise_limit, (1.0 + EQUAL) * order[0].chi_square) if order else noise_limit
    if not single or any(end.hypothesis.error is None and end.chi_square <= most for end in order):
        return []  # a changed test leaves noise alone, also where a rotation by 180 deg is equivalent to it
    known, names = {error.key: error for error in errors}, model.coordinates
    springs = {
        compliance_key(of): [compliance_key(names[i]) for i in pair] for of, pair in rocking_pairs(model).items()
    }
    pairs = {pair: keys for pair, keys in springs.items() if pair in single}
    tried, least = list[tuple[Hypothesis, list[PairStart], float]](), float(chdtri(1, FALSE_ALARM / len(errors)))
    for pair, (one, other) in pairs.items():
        ratios = {pair: (1.0, 1.0), other: (1.0, UNEQUAL), one: (UNEQUAL, 1.0)}
        starts = [(single[key], np.multiply(single[key].size, each)) for key, each in ratios.items() if key in single]
        tried.append((Hypothesis(known[one], beside=(known[other],)), starts, np.inf))
    # next to a single error that leaves noise alone, only a second one that is significant to first order is tried
    first, nearest = next(iter(single)), ([] if order[0].chi_square <= noise_limit else [*single][:SECOND])
    apart = [key for key in nearest if key not in springs][:1]
    equal = [key for key in nearest if single[key].chi_square <= (1.0 + EQUAL) * single[first].chi_square]
    for key in dict.fromkeys([first, *apart, *equal]):
        # springs that yield alike are no second error beside each other, nor beside both
        end, own = single[key], {key, *springs.get(key, ())}
        own |= {each for keys in pairs.values() if not own.isdisjoint(keys) for each in keys}
        _, less, sizes = beside(end)
        others = {
            k: error for k, error in enumerate(errors) if own.isdisjoint([error.key, *springs.get(error.key, ())])
        }
        scores = {k: less[k] - size_penalty(error.surprise(sizes[k] * error.typical)) for k, error in others.items()}
        likely = [k for k in sorted(others, key=lambda k: -scores[k])[:SECOND] if less[k] > least]
        near = {k: single[error.key] for k, error in others.items() if error.key in nearest}
        for k in dict.fromkeys([*likely, *near]):
            least_size, most_size = np.clip(np.divide(errors[k].bounds, errors[k].typical), -FAR, FAR)
            starts = [(end, np.append(np.clip(sizes[k], least_size, most_size), end.sizes))]
            if k in near:  # each may have been fitted in place of both
                starts.append((end, 0.5 * np.append(near[k].size, end.sizes)))
            tried.append((end.hypothesis._replace(beside=(errors[k], *end.hypothesis.beside)), starts, noise_limit))
    ends = [(fitted(both, starts), most) for both, starts, most in tried]
    return [end for end, most in ends if end.chi_square <= min(most, single[first].chi_square - least)]


def _searches_in_single_tests(search: HypothesisSearch, u: np.ndarray) -> list[tuple[list[int], HypothesisSearch]]:
    """Of each of many tests, the errors that no other has, by index, and a search in its rows: the residual of other
    tests is linear in the free parameters, about u, so that the time does not grow with the square of their number."""
    corrected, problem, whiten = search.corrected, search.corrected.problem, search.whiten
    if len(problem.tests) <= MOST_TESTS:
        return []
    found, of_tests = list[tuple[list[int], HypothesisSearch]](), np.concatenate([index for index, _ in corrected.own])
    residual, jacobian = search.state(UNCHANGED, u)
    known = np.broadcast_to(corrected.known, residual.size)
    for test, view, own, rows in zip(problem.tests, problem.views, corrected.own, problem.row_slices, strict=True):
        others = np.delete(np.column_stack([jacobian, residual]), rows, axis=0)
        factor = triangular_factor([others, np.zeros((u.size, u.size + 1))])[: u.size]
        mean = u - np.linalg.lstsq(factor[:, :-1], factor[:, -1])[0]
        prior = Prior(*map(jax.device_put, (mean, np.ones(u.size), factor[:, :-1])))
        inside = dataclasses.replace(
            corrected,
            problem=dataclasses.replace(problem, tests=(test,), views=(view,), prior=prior),
            own=(own,),
            known=np.pad(known[rows], (0, u.size)),
            further=None if corrected.further is None else corrected.further[rows],
        )
        effects = np.pad(whiten.effects[rows], ((0, u.size), (0, 0)))
        variances = np.append(whiten.variances[rows], np.ones(u.size))
        part = dataclasses.replace(search, corrected=inside, whiten=Whitening(variances, effects))
        at_u = part.state(UNCHANGED, u)[0]
        part = dataclasses.replace(part, elsewhere=float(residual @ residual - at_u @ at_u))
        single = [k for k in own[0].tolist() if k >= corrected.of_machine and np.sum(of_tests == k) == 1]
        found.append((single, part))
    return found


def _start_sizes(error: StatedError) -> list[float]:
    """Starts of an error over its typical size."""
    return [start / error.typical for start in error.starts]


def _fits_at_sizes(
    search: HypothesisSearch, u: np.ndarray, numbers: Sequence[int]
) -> dict[int, list[FittedHypothesis]]:
    """Fits at the sizes that are tried of some errors, by index, the best first: at u, or after a step of the free
    parameters to first order from there. Of the usual sizes the best are kept, of the starts of an error all: an angle
    that is far off has a larger residual there than beside no error until the free parameters are fitted."""
    corrected, free, best = search.corrected, search.corrected.problem.free, dict[tuple[int, float], FittedHypothesis]()
    errors, none = corrected.errors, np.zeros(len(corrected.errors))
    residual, jacobian = map(search.whiten, corrected.state(u, none, np.arange(search.size)))
    svd, usual = scaled_svd(jacobian), SCANNED if residual.size * len(errors) <= MOST_SCANNED else ()
    pairs, own = list[tuple[int, float]](), dict[int, list[float]]()
    for k in numbers:
        (least, most), typical = errors[k].bounds, errors[k].typical
        own[k] = _start_sizes(errors[k])
        nearest = min(map(abs, own[k]), default=math.inf)
        sizes = [*own[k], *(x for x in usual if abs(x) < nearest)]
        pairs += [(k, x) for x in sizes if least < x * typical < most] or [(k, 0.0)]
    for first in range(0, len(pairs), POINTS):  # for the memory; the last points are repeated, for one program
        some = [pairs[min(i, len(pairs) - 1)] for i in range(first, first + POINTS)]
        x = np.zeros((POINTS, len(errors)))
        for row, (k, size) in zip(x, some, strict=True):
            row[k] = size * errors[k].typical
        start = np.tile(u, (POINTS, 1))
        at_u = search.whiten(corrected.residuals(start, x).T)
        stepped = np.clip(start - (svd.gain @ (svd.range(len(at_u)).T @ at_u)).T, free.lower, free.upper)
        for points, found in ((start, at_u), (stepped, search.whiten(corrected.residuals(stepped, x).T))):
            for (k, size), point, chi_square in zip(some, points, np.sum(found**2, axis=0), strict=True):
                whole = float(chi_square) + search.elsewhere
                end = FittedHypothesis(Hypothesis(errors[k]), np.append(point, size), whole)
                key = k, size if size in own[k] else abs(size)
                best[key] = min(best.get(key, end), end, key=lambda end: end.chi_square)
    kept = {k: list[FittedHypothesis]() for k in numbers}
    for (k, size), end in sorted(best.items(), key=lambda each: each[1].score):
        if size in own[k] or sum(each.size not in own[k] for each in kept[k]) < MOST_SIZES:
            kept[k].append(end)
    return kept


def _similar_errors(search: HypothesisSearch, k: int, best: FittedHypothesis) -> dict[int, FittedHypothesis]:
    """Errors of the size whose effect, beside the free parameters, is closest to that of a refitted one, and the sum of
    squares that they leave to first order, by index."""
    corrected, size, errors = search.corrected, search.size, search.corrected.errors
    x, typical = np.zeros(len(errors)), np.array([error.typical for error in errors])
    x[k] = best.size * typical[k]
    _, jacobian = corrected.state(best.x[:size], x, np.arange(size + len(errors)))
    svd = scaled_svd(search.whiten(jacobian[:, :size]), RANK_TOLERANCE)
    beside = svd.beside(search.whiten(jacobian[:, size:] * typical))
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
    return error is None or not error.tolerance or abs(end.size) <= SMALL


def with_random_starts(
    search: HypothesisSearch, found: Sequence[FittedHypothesis], seed: int
) -> list[FittedHypothesis]:
    """Refits, of which the best and those of alternatives are repeated from random starts unless one leaves noise
    alone."""
    order = sorted(found, key=lambda end: end.chi_square)
    if any(end.chi_square <= search.noise_limit and _is_usual(end) for end in order):
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


def _expected_chi_squares(
    search: HypothesisSearch, points: Sequence[np.ndarray], channel: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sum of squares that each error leaves to first order at each point [p, e]; whether its effect is distinct from
    that of earlier ones [e]; whether it has an effect in a channel alone, whose fit without it is the last point [e]:
    such an error may leave noise alone there."""
    corrected, size = search.corrected, search.size
    errors, every = corrected.errors, np.arange(size + len(corrected.errors))
    typical = np.array([error.typical for error in errors])
    expected, distinct = np.zeros((len(points), len(errors))), np.zeros(len(errors), bool)
    inside, repeated = np.zeros(len(errors), bool), np.zeros(len(errors), bool)
    order = np.argsort([not error.starts for error in errors], kind="stable")  # parallel for small errors only
    for p, u in enumerate(points):
        residual, jacobian = corrected.state(u, np.zeros(len(errors)), every)
        columns = search.whiten(jacobian[:, size:] * typical)
        # columns parallel to an earlier one, such as those of all tests and of a single test
        unit = columns[:, order] / np.maximum(np.linalg.norm(columns[:, order], axis=0), np.finfo(float).tiny)
        repeated[order] = np.any(np.triu(np.abs(unit.T @ unit), 1) > 1.0 - PARALLEL, axis=0)
        rest, less, _ = drops(search.whiten(residual), search.whiten(jacobian[:, :size]), columns)
        less[repeated] = 0.0
        expected[p] = rest - less
        distinct |= ~repeated
        if channel is not None and p == len(points) - 1:
            effect = jacobian[:, size:] * typical * search.whiten.scale[:, None]
            inside = np.any(effect != 0.0, axis=0) & ~np.any(effect[~channel], axis=0)
            expected[p, inside] = 0.0
    return expected, distinct, inside


def fits_without_tests(search: HypothesisSearch, u: np.ndarray) -> list[np.ndarray]:
    """Fits without each test, where there are a few."""
    rows = search.corrected.problem.row_slices
    few = rows if 1 < len(rows) <= MOST_TESTS else ()
    return [dataclasses.replace(search, masked=own).fitted(UNCHANGED, u).x for own in few]


def _fit_without_channel(search: HypothesisSearch, u: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
    """Fit without the sensor or input that explains most, and the mask of its rows; None where no single one leaves
    noise alone: a single wrong one misleads the fit, so that no error is small there."""
    problem, residual = search.corrected.problem, search.state(UNCHANGED, u)[0]
    channels = dict[str, np.ndarray]()
    for own, test in zip(problem.row_slices, problem.tests, strict=True):
        for name, mask in ({} if test.description is None else test.description.channels).items():
            channels.setdefault(name, np.zeros(residual.size, bool))[own] |= mask & (search.whiten.scale[own] > 0.0)
    used = np.count_nonzero(search.whiten.scale)
    partial = [mask for mask in channels.values() if np.count_nonzero(mask) < used]
    partial.sort(key=lambda mask: -float(np.sum(residual[mask] ** 2)))
    for mask in partial[:MOST_CHANNELS]:
        without = dataclasses.replace(search, masked=mask).fitted(UNCHANGED, u)
        if without.chi_square <= float(chdtri(search.noise_mean - np.count_nonzero(mask), FALSE_ALARM)):
            return without.x, mask
    return None


def _likely_alternatives(
    search: HypothesisSearch, points: Sequence[np.ndarray]
) -> list[tuple[Hypothesis, np.ndarray, float]]:
    """The most likely alternatives to tests, the point at which each has the smallest residual beside the free
    parameters, and the part of the sum of squares at the first point that remains."""
    problem, tried, plain = search.corrected.problem, list[tuple[float, int, int]](), 0.0
    some = [*search.alternatives, *exchanged_postures(problem.tests)]
    for p, u in enumerate(points if some else ()):
        model = problem.free.apply(problem.model, problem.free.values(u))
        views = [test.view(model) for test in problem.tests]
        each = list(map(residual_of_test, problem.tests, views))
        scale = search.whiten.scale[: problem.data_rows]
        _, jacobian = search.corrected.state(u, np.zeros(len(search.corrected.errors)), np.arange(search.size))
        svd = scaled_svd(jacobian[: problem.data_rows] * scale[:, None], RANK_TOLERANCE)
        if not p:
            plain = float(np.sum(svd.beside(np.concatenate(each) * scale) ** 2))
        for number, (tests, _) in enumerate(some):
            parts = list(each)
            for k, test in tests.items():
                own = problem.tests[k]
                is_there = (
                    isinstance(test, PostureTest) and isinstance(own, PostureTest)
                    and test.q is own.q and test.view_arguments[1:] == own.view_arguments[1:]
                )  # fmt: skip
                parts[k] = residual_of_test(test, views[k] if is_there else test.view(model))
            whole = svd.beside(np.nan_to_num(np.concatenate(parts) * scale, nan=1e6))
            tried.append((float(whole @ whole), number, p))
    best = dict[int, tuple[int, float]]()
    for square, number, p in sorted(tried):
        best.setdefault(number, (p, square / max(plain, 1e-300)))
    chosen = itertools.islice(best.items(), TRIED_ALTERNATIVES)
    return [(Hypothesis(None, *some[number]), points[p], remains) for number, (p, remains) in chosen]


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


def alternatives_to(entries: Sequence[Entry], problem: Problem) -> list[tuple[dict[int, Test], str]]:
    """Alternatives to the tests of a problem, with their texts; see `Source.refined` and `Source.alternatives`."""

    def own(source: Source, test: Test) -> Iterable[tuple[str, str, Test]]:
        return itertools.chain(source.refined(test, problem.model), source.alternatives(test, problem.model))

    each = zip(entries, problem.tests, strict=True)
    return single_and_common((entry.name, own(entry.source, test)) for entry, test in each)


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
