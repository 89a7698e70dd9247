"""Search for the error, or the two errors, in the description of a machine or its tests that explain the misfit of a
fit."""

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtri

from jaxmb.identify.assess.corrected import CorrectedResidual, ResidualBlock, joint_fit
from jaxmb.identify.assess.estimate import Estimate, noise_variances
from jaxmb.identify.assess.hypotheses import (
    EXPLAINS,
    LINEAR,
    MOST_NAMED,
    UNCHANGED,
    FittedHypothesis,
    HypothesisSearch,
    Whitening,
    alternatives_to,
    drops,
    fits_without_tests,
    refitted_hypotheses,
    size_penalty,
    with_random_starts,
)
from jaxmb.identify.estimation.identifiability import (
    RANK_TOLERANCE,
    identifiability,
    inverse_std,
    jacobian_svd,
    scaled_svd,
    triangular_factor,
)
from jaxmb.identify.estimation.least_squares import host_minimum
from jaxmb.identify.estimation.variance_components import ERROR_RATE
from jaxmb.identify.experiments.components import own_names
from jaxmb.identify.experiments.machine_errors import FURTHER, compliance_key, rocking_pairs
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.fit.problem import is_large, on_some_lines
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import display_name, listed
from jaxmb.machine.build import Model
from jaxmb.machine.families import STATION
from jaxmb.spatial import rotation_by, rotation_vector

FEW_ROWS, ENOUGH = (4000, 16_000), 5000.0
"""Smallest and largest number of rows of a search, and sum of squares beyond the noise that suffices in between."""
HALF = 0.5
"""Part of a misfit from which the change of the parameters by a hypothesis that is not named is part of their standard
deviations."""
MOST_JOINT = 8
"""Number of refits, beside those of single errors of pairs, that are repeated with the most likely errors within their
tolerances."""
EXPLAINS_ALL = 0.99
"""Part of a misfit from which an error explains it."""
MOST_LIKELY = 3
"""Number of errors within their tolerances that are named, the largest over their tolerance."""


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
    is_hidden: bool = False
    """Whether noise and tolerances allow the residual as a whole, though not its part that the error explains."""
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
    nearest: Mapping[str, float] | None = None
    """Values of the free parameters in a fit with the hypothesis that explains most, more than half, where none
    explains enough to be named."""


def model_errors(estimate: Estimate, contradiction: float) -> Explanations:
    """Model-error hypotheses that each explain most of the misfit beyond noise, the most plausible first, and further
    springs.

    Each adds one number, an error in the description of the machine or of a test, or two where the second lowers the
    residual significantly, or replaces some tests, as by exchanged channels. They are ranked to first order, by the
    Jacobian; the best are fitted jointly with the free parameters. If none explains the misfit, outlier lines are
    excluded instead. Errors within their tolerances and noise are the covariance of the residual; noise that is not
    stated is estimated from the line-to-line scatter, and from the residual of tests without lines, which then have no
    misfit. Where noise and tolerances explain the residual as a whole, they may hide an error: there is a search if the
    tests contradict one model, or if one error lowers the residual significantly to first order (`FALSE_ALARM` over the
    number of errors; not beside a prior from an earlier fit). There is none for machines with many degrees of freedom
    (`Problem.one_by_one`), and for large problems (`is_large`). Of many frequency lines some are used, fewer for a
    large misfit.

    Args:
        estimate: the fit.
        contradiction: excess of chi-square of one model for all tests over that of a model for each, which may be
            significant where the chi-square of all tests is not; 0 where one model is consistent with all tests.
    """
    problem = estimate.study.problem
    # each evaluation of a machine with many degrees of freedom would take minutes
    if problem.one_by_one or is_large(problem) or all(test.description is None for test in problem.tests):
        return Explanations()
    (scatter, is_doubtful), of_noise = _scatter(estimate), noise_variances(estimate)
    estimate, kept = _on_some_lines(estimate, scatter * estimate.stated_variances, is_doubtful or contradiction > 0.0)
    scatter, of_noise, contradiction = scatter[kept], of_noise[kept], contradiction * kept.size / scatter.size
    study, u, size = estimate.study, estimate.u, estimate.u.size
    for rows, test in zip(study.problem.row_slices, study.problem.tests, strict=True):
        if not test.noise.is_known and test.lines is None:
            of_noise[rows] = 0.0  # a noise that is estimated from the residual contains all errors
    if not (is_doubtful or contradiction or of_noise[: study.problem.data_rows].any()):
        return Explanations()
    corrected = CorrectedResidual.of(study, estimate.model)
    if (stated := estimate.goodness.budget) is not None:
        columns = stated.columns[kept[kept < problem.data_rows]]
        corrected = corrected.with_effects(stated.errors, columns, study.tolerances, u)
    significant, is_doubtful = float(chdtri(1, FALSE_ALARM / len(corrected.errors))), is_doubtful or contradiction > 0.0
    if not is_doubtful and float(estimate.residual @ estimate.residual) < significant:
        return Explanations()  # data without noise
    goodness = estimate.goodness
    if goodness.misfit_tolerated and goodness.joint is not None and goodness.budget is not None:
        corrected = corrected.about(goodness.joint, goodness.budget.errors, study.tolerances)
        u = goodness.joint.u
    std = np.pad(corrected.tolerances(study), ((0, 1), (0, 0)))  # none in rows of the prior
    blocks = list(corrected.blocks(u, np.zeros(std.shape[1]), np.arange(size + std.shape[1])))
    # an earlier fit was searched for errors, and its covariance contains those that it could not name
    is_lowered = not study.origin.file.prior_from and _largest_drop(blocks, size, std, of_noise) >= significant
    if not (is_doubtful or is_lowered):
        return Explanations()
    variances, effects = scatter * estimate.stated_variances, _effects(blocks, size, std)[:, std.any(axis=0)]
    whiten = Whitening(variances, effects, corrected.problem.row_slices)
    degrees = float(np.sum(variances > 0.0) - jacobian_svd(estimate.jacobian).rank)
    alternatives = alternatives_to(study.fitted, corrected.problem)
    search = HypothesisSearch(corrected, whiten, degrees, alternatives=alternatives)
    unchanged = search.fitted(UNCHANGED, u)
    chi_square = unchanged.chi_square
    lower = () if estimate.run.information is not None else _lower_minimum(search, u, unchanged)
    is_normal = chi_square <= float(chdtri(degrees, ERROR_RATE))
    exceeds = any(error.key in goodness.beyond_tolerance for error in corrected.described)
    if is_normal and not exceeds and (contradiction or is_lowered):
        hidden = contradiction or significant  # a part of a sum of squares that is normal as a whole
        search = dataclasses.replace(
            search, noise_mean=max(chi_square - hidden, 1.0), allowance=(1.0 - EXPLAINS) * hidden
        )
    elif is_normal and (lower or not exceeds):
        return Explanations(lower)
    start = np.asarray(study.free.encode(study.start.values))
    refits = refitted_hypotheses(
        search, [unchanged.x, *fits_without_tests(search, unchanged.x), start], chi_square, goodness.beyond_tolerance
    )
    if goodness.not_reproduced:
        refits = with_random_starts(search, refits, estimate.seed)
    found = [end for end in refits if end.is_plausible and search.reproduces(end)]
    if found and not is_doubtful:
        likely = min(found, key=lambda end: end.chi_square)
        error = likely.hypothesis.error
        if error is not None and _is_tolerated(corrected, study, error, likely.size):
            return Explanations(lower)
    is_hidden = search.allowance is not None or goodness.misfit_tolerated
    whole, ends = (chi_square, found) if is_hidden else _with_likely_errors(search, study, unchanged, found)
    named = (_named_errors(search, unchanged.x, whole, ends) if ends else ()) or lower
    best = None
    if not named and search.allowance is None:
        named = _outliers(estimate, search, (unchanged.x, start), chi_square)
        named = named or _displacement_between_rows(estimate, search, unchanged.x, chi_square)
        best = None if named else best_above_half(found, chi_square, search.noise_mean, len(corrected.errors))
    springs = further_springs(corrected.model, found, chi_square, degrees, len(corrected.errors))
    return Explanations(named, springs, best and study.free.named(study.free.values(best.x[:size])))


def _with_likely_errors(
    search: HypothesisSearch, study: Study, unchanged: FittedHypothesis, found: Sequence[FittedHypothesis]
) -> tuple[float, list[FittedHypothesis]]:
    """Sum of squares of the fit without a hypothesis, and the refits that leave least, with the most likely errors
    within their tolerances fitted beside them, where one explains most and the effect of errors there is not linear.

    Otherwise the rest of such an effect seems to be a second error. Two errors are kept if they leave significantly
    less than single ones.
    """
    corrected, size, errors = search.corrected, search.size, search.corrected.errors
    tolerated = [errors[k] for k in np.flatnonzero(corrected.tolerances(study).any(axis=0))]

    def with_errors(end: FittedHypothesis) -> FittedHypothesis:
        own, tests = end.hypothesis.fitted, end.hypothesis.alternatives
        others = [error for error in tolerated if error not in own]
        joint = joint_fit(corrected, study, end.x[:size], others, search.whiten.variances, own, end.sizes, tests)
        if joint is None:
            return end
        left, of_others = joint.fitted * search.whiten.scale, joint.sizes[: len(others)]
        x = np.append(joint.u, joint.sizes[len(others) :])
        return end._replace(x=x, chi_square=float(left @ left + of_others @ of_others))

    if not found:
        return unchanged.chi_square, []
    order, least = sorted(found, key=lambda end: end.chi_square), float(chdtri(1, FALSE_ALARM / len(errors)))
    is_alternative = order[0].hypothesis.error is None and order[0].chi_square <= search.noise_limit
    if is_alternative or best_above_half(order, unchanged.chi_square, search.noise_mean, len(errors)) is None:
        return unchanged.chi_square, list(found)
    single = [end for end in order if len(end.errors) < 2]
    first = {id(end): end for end in (*single[:1], order[0])}
    ends = list(map(with_errors, first.values()))
    if all(before.chi_square - end.chi_square < least for before, end in zip(first.values(), ends, strict=True)):
        return unchanged.chi_square, list(found)
    members = {error for end in order[:MOST_JOINT] for error, _ in end.errors}
    of_pairs = (end for end in single if members.intersection(error for error, _ in end.errors))
    likely = {id(end): end for end in (*order[:MOST_JOINT], *of_pairs)}
    ends += [with_errors(end) for key, end in likely.items() if key not in first]
    plain = with_errors(unchanged).chi_square
    lowest = min((end.chi_square for end in ends if len(end.errors) < 2), default=np.inf)
    if plain < min(end.chi_square for end in ends):
        return unchanged.chi_square, list(found)  # they ended in local minima
    ends = [end for end in ends if len(end.errors) < 2 or end.chi_square < lowest - least]
    return plain, [end for end in ends if end.is_plausible]


def _is_tolerated(corrected: CorrectedResidual, study: Study, error: StatedError, size: float) -> bool:
    """Whether an error, of a size over its typical one, has a tolerance, or is common to all tests and the tolerance of
    each test makes it plausible: sensors that are mounted anew may deviate alike by chance."""
    if error.std(study.tolerances) > 0.0:
        return True
    axes = [how for how in (" about ", " along ") if how in error.key]
    keys = {error.key.replace(how, f" of {test.name}{how}") for test in study.problem.tests for how in axes}
    std = [each.std(study.tolerances) for each in corrected.errors if each.key in keys]
    if not std or 0.0 in std:
        return False
    return float(np.sum((size * error.typical / np.array(std)) ** 2)) <= float(chdtri(len(std), ERROR_RATE))


def _on_some_lines(
    estimate: Estimate, variances: Float[np.ndarray, "m"], is_doubtful: bool
) -> tuple[Estimate, Int[np.ndarray, "k"]]:
    """The estimate on a share of the frequency lines that suffices for a search, and its rows.

    Args:
        estimate: the fit.
        variances: of its rows.
        is_doubtful: whether noise and tolerances do not explain the residual.
    """
    problem, used = estimate.study.problem, variances > 0.0
    excess = float(np.mean(estimate.residual[used] ** 2 / variances[used])) - 1.0 if used.any() else 0.0
    most = float(np.clip(ENOUGH / max(excess, 1e-300), *FEW_ROWS)) if is_doubtful else FEW_ROWS[1]
    some, of_data = on_some_lines(problem, most)
    kept = np.append(of_data, np.arange(problem.data_rows, estimate.residual.size))
    joint = estimate.goodness.joint
    if joint is not None:
        joint = joint._replace(
            residual=joint.residual[kept], jacobian=joint.jacobian[kept], columns=joint.columns[of_data]
        )
    some_lines = dataclasses.replace(
        estimate,
        study=estimate.study.with_problem(some),
        residual=estimate.residual[kept],
        jacobian=np.asarray(estimate.jacobian)[kept],
        stated_variances=estimate.stated_variances[kept],
        goodness=dataclasses.replace(estimate.goodness, joint=joint),
    )
    return some_lines, kept


def _effects(blocks: Sequence[ResidualBlock], size: int, std: Float[np.ndarray, "b e"]) -> Float[np.ndarray, "m e"]:
    """Change of the residual by one standard deviation of each error, which is stated for each block."""
    found = [np.zeros((len(block.residual), own.size)) for block, own in zip(blocks, std, strict=True)]
    for effects, block, own in zip(found, blocks, std, strict=True):
        errors = block.columns[block.columns >= size] - size
        effects[:, errors] = block.jacobian[:, block.columns >= size] * own[errors]
    return np.concatenate(found)


def _largest_drop(
    blocks: Sequence[ResidualBlock], size: int, std: Float[np.ndarray, "b e"], variances: Float[np.ndarray, "m"]
) -> float:
    """Largest decrease of the sum of squares, to first order, in a fit with one of the errors without a tolerance.

    Args:
        blocks: residual and Jacobian by all columns.
        size: number of free parameters.
        std: of the errors by their tolerances, in the rows of each block.
        variances: of the noise.
    """
    scale, short = inverse_std(variances), list[ResidualBlock]()
    for block in blocks:  # the triangular factor has the inner products of the columns, in fewer rows
        factor = triangular_factor([np.column_stack([block.residual, block.jacobian]) * scale[block.rows, None]])
        short.append(block._replace(residual=factor[:, 0], jacobian=factor[:, 1:]))
    tolerated = std.any(axis=0)
    residual = np.concatenate([block.residual for block in short])
    jacobian = np.concatenate([block.jacobian[:, :size] for block in short])
    ends = np.cumsum([len(block.residual) for block in short]).tolist()
    tests = list(map(slice, [0, *ends], ends))
    of_noise = Whitening(np.ones(residual.size), _effects(short, size, std)[:, tolerated], tests)
    columns = _effects(short, size, np.ones_like(std))[:, ~tolerated]
    return float(np.max(drops(of_noise(residual), of_noise(jacobian), of_noise(columns))[1], initial=0.0))


def further_springs(
    model: Model, found: Sequence[FittedHypothesis], chi_square: float, degrees: float, tried: int
) -> tuple[FurtherSpring, ...]:
    """Further springs that significantly lower the residual, by more than a tenth of the misfit, the best first.

    Args:
        model: with further springs.
        found: refitted hypotheses.
        chi_square: sum of squares without any.
        degrees: of freedom.
        tried: number of errors that could have been refitted.
    """
    least, springs = float(chdtri(1, ERROR_RATE / tried)), list[FurtherSpring]()
    turns = dict(zip(model.coordinates, model.revolute, strict=True)) | dict.fromkeys(rocking_pairs(model), True)
    places = {compliance_key(name): name for name in turns if name.startswith(FURTHER)}
    for end in sorted(found, key=lambda end: end.chi_square):
        drop, (error, size) = chi_square - end.chi_square, end.errors[0] if len(end.errors) == 1 else (None, 0.0)
        explains = min(drop / max(chi_square - degrees, least), 1.0)
        if error is not None and error.key in places and size > 0.0 and drop > least and explains > LINEAR:
            place = places[error.key]
            springs.append(FurtherSpring(place, 1.0 / size, "N m/rad" if turns[place] else "N/m", explains))
    return tuple(springs)


def best_above_half(
    found: Sequence[FittedHypothesis], chi_square: float, noise_mean: float, tried: int
) -> FittedHypothesis | None:
    """The hypothesis that explains most of a misfit; None where that is less than half of it, or insignificant.

    Args:
        found: refitted hypotheses.
        chi_square: sum of squares without any.
        noise_mean: expected sum of squares of noise alone.
        tried: number of hypotheses.
    """
    best, least = min(found, key=lambda end: end.chi_square, default=None), float(chdtri(1, ERROR_RATE / tried))
    return None if best is None or chi_square - best.chi_square < max(HALF * (chi_square - noise_mean), least) else best


def named_hypotheses(
    chi_squares: Sequence[float],
    sizes: Sequence[float],
    chi_square: float,
    noise_mean: float,
    noise_limit: float,
    tried: int,
) -> tuple[list[int], float]:
    """Indices of the hypotheses that explain a misfit, the most plausible first, and the explained part of the misfit.

    The decrease of the best must be significant, at `ERROR_RATE` over the number of hypotheses, and leave noise alone
    or less than a tenth of the misfit. Others are equivalent where the difference of their sums of squares is
    insignificant, also with a Cauchy distribution of the typical size as a prior: of these, small errors are more
    plausible than large ones, and far larger ones are left out.

    Args:
        chi_squares: sum of squares of each refit.
        sizes: of each error over its typical size; 0 for an alternative.
        chi_square: without a hypothesis.
        noise_mean: expected sum of squares of noise alone.
        noise_limit: largest sum of squares of noise alone.
        tried: number of hypotheses.
    """
    best, least = min(chi_squares), float(chdtri(1, ERROR_RATE / tried))
    explains = 1.0 - max(best - noise_mean, 0.0) / max(chi_square - noise_mean, least)
    if chi_square - best < least or not (best <= noise_limit or explains >= EXPLAINS):
        return [], explains
    within = float(chdtri(1, ERROR_RATE)) * max(best / noise_mean, 1.0)
    near = [k for k in np.argsort(np.abs(sizes), kind="stable").tolist() if chi_squares[k] <= best + within]
    scores = {k: chi_squares[k] + size_penalty(sizes[k]) for k in near}
    return [k for k in near if scores[k] <= min(scores.values()) + within][:MOST_NAMED], explains


def _named_errors(
    search: HypothesisSearch, u: np.ndarray, chi_square: float, found: Sequence[FittedHypothesis]
) -> tuple[ModelError, ...]:
    """The hypotheses that explain the misfit, the most plausible first."""
    chi_squares, corrected = [end.chi_square for end in found], search.corrected
    free = corrected.problem.free
    named, explains = named_hypotheses(
        chi_squares,
        [end.surprise for end in found],
        chi_square,
        search.noise_mean,
        search.noise_limit,
        len(corrected.errors),
    )
    if not named:
        return ()
    refit = search.fitted(UNCHANGED, found[int(np.argmin(chi_squares))].x[: search.size])
    least, lower = min(chi_squares), refit.chi_square
    as_good = lower <= least + float(chdtri(1, ERROR_RATE)) * max(least / search.noise_mean, 1.0)
    if as_good and named_hypotheses([lower], [0.0], chi_square, search.noise_mean, search.noise_limit, 1)[0]:
        slopes = search.state(UNCHANGED, refit.x)[1]
        text = _minimum_text(free, u, refit.x)
        return (_model_error(free, text, explains, refit.x, slopes, lower / search.noise_mean),)
    machine = corrected.errors[: corrected.of_machine]
    return tuple(
        dataclasses.replace(
            _model_error(
                free, end.text, explains, end.x[: search.size], search.state(*end[:2])[1],
                end.chi_square / search.noise_mean,
            ),
            of_machine=end.is_among(machine), is_hidden=search.allowance is not None,
        )
        for end in (found[k] for k in named)
    )  # fmt: skip


def _model_error(
    free: FreeParameters, text: str, explains: float, u: np.ndarray, jacobian: Float[np.ndarray, "m k"], ratio: float
) -> ModelError:
    """A model error with the values of a fit with it; the first columns of the Jacobian are those of u.

    Args:
        ratio: of the sum of squares that remains to its degrees of freedom, by which the standard deviations increase.
    """
    values, std = free.values(u), identifiability(jacobian, np.ones(len(jacobian))).std[: u.size]
    std = max(ratio, 1.0) ** 0.5 * std * np.abs(free.slope(values))
    return ModelError(text, explains, free.named(values), free.named(std))


def _lower_minimum(search: HypothesisSearch, u: np.ndarray, end: FittedHypothesis) -> tuple[ModelError, ...]:
    """The minimum in which a fit with the description unchanged ends, where it explains most of the misfit at u."""
    before, slopes = search.state(UNCHANGED, u)[0], search.state(UNCHANGED, end.x)[1]
    excess = float(before @ before) - search.noise_mean
    explains = min(1.0 - (end.chi_square - search.noise_mean) / max(excess, 1e-300), 1.0)
    if not (explains >= EXPLAINS and excess > search.noise_mean and search.cost(end.x) < search.cost(u)):
        return ()
    free, ratio = search.corrected.problem.free, end.chi_square / search.noise_mean
    return (_model_error(free, _minimum_text(free, u, end.x), explains, end.x, slopes, ratio),)


def _minimum_text(free: FreeParameters, u: np.ndarray, lower: np.ndarray) -> str:
    """Text on a lower minimum of the cost with the description unchanged, by the parameter that differs most."""
    most = int(np.argmax(np.abs(lower - u) / (free.upper - free.lower)))
    near = f"{free.names[most]} near {free.values(lower)[most]:.4g}"
    return f"a lower minimum of the cost that the search did not find, with {near},"


def _outliers(
    estimate: Estimate, search: HypothesisSearch, starts: Sequence[np.ndarray], chi_square: float
) -> tuple[ModelError, ...]:
    """Outlier lines, rows and load cases, where the residual without them is noise."""
    problem, kept, texts = estimate.study.problem, np.ones(estimate.residual.size), []
    for rows, test in zip(problem.row_slices, problem.tests, strict=True):
        is_noise = test.noise.is_known and estimate.goodness.untolerated_misfits[test.name].explained
        if not (test.lines is None or is_noise):
            outliers = test.lines.outliers(estimate.residual[rows], estimate.stated_variances[rows])
            if outliers.size:
                kept[rows] = np.asarray(test.lines.without(outliers).stated_variances()) > 0.0
                texts.append(f"{test.lines.lines_text(outliers)} of {display_name(test.name)} (robust = true)")
    ends = list[FittedHypothesis]()

    def fitted(mask: np.ndarray) -> tuple[Whitening, np.ndarray, np.ndarray]:
        own = dataclasses.replace(search, whiten=search.whiten.of_rows(mask))
        ends.append(min((own.fitted(UNCHANGED, start) for start in starts), key=lambda end: end.chi_square))
        return own.whiten, *own.state(UNCHANGED, ends[-1].x)

    kept, names = outlying_groups(group_rows(estimate), kept, search.noise_mean, fitted)
    texts += names
    if not texts:
        return ()
    if not names:
        fitted(kept)
    end, free = ends[-1], search.corrected.problem.free
    degrees = search.noise_mean - float(np.sum((search.whiten.scale > 0.0) & (kept == 0.0)))
    explains = min(1.0 - (end.chi_square - degrees) / max(chi_square - search.noise_mean, 1e-300), 1.0)
    if explains < EXPLAINS:
        return ()
    slopes = dataclasses.replace(search, whiten=search.whiten.of_rows(kept)).state(UNCHANGED, end.x)[1]
    ratio = end.chi_square / max(degrees, 1.0)
    return (_model_error(free, f"excluding {' and '.join(texts)}", explains, end.x, slopes, ratio),)


def group_rows(estimate: Estimate) -> list[tuple[Int[np.ndarray, "k"], str]]:
    """Rows of each group of rows of the tests, of which single ones may be wrong, and the text of each."""
    found = list[tuple[np.ndarray, str]]()
    for rows, entry in zip(estimate.study.problem.row_slices, estimate.study.fitted, strict=True):
        group, names = entry.source.groups(entry.test)
        own = (rows.start + np.flatnonzero(group == k) for k in range(len(names)))
        found += [(k, f"{name} of {display_name(entry.name)}") for k, name in zip(own, names, strict=True)]
    return [(own, text) for own, text in found if own.size]


MOST_GROUPS, LEAST_GROUPS = 3, 6
"""Largest number of wrong groups of rows, and smallest number of groups of which one may be wrong."""


def outlying_groups(
    groups: Sequence[tuple[Int[np.ndarray, "k"], str]], kept: Float[np.ndarray, "m"], degrees: float,
    fitted: Callable[[Float[np.ndarray, "m"]], tuple[Whitening, Float[np.ndarray, "m"], Float[np.ndarray, "m d"]]],
) -> tuple[Float[np.ndarray, "m"], list[str]]:  # fmt: skip
    """Rows without outlying groups, 1 where they are kept, and the texts of these groups; none where leaving out a few
    groups does not leave noise alone.

    A fit without a group is one with an unknown error of each of its rows: to first order the sum of squares decreases
    by that of these columns beside the free parameters. The group that explains most is left out first.

    Args:
        groups: rows of each, and its text.
        kept: rows before.
        degrees: of freedom with all rows.
        fitted: returns the whitening, and the whitened residual and Jacobian of a fit of some rows.
    """
    before, names, most = kept, list[str](), min(MOST_GROUPS, len(groups) // LEAST_GROUPS)
    if most:
        whiten, residual, jacobian = fitted(kept)
    while len(names) < most:
        svd = scaled_svd(jacobian, RANK_TOLERANCE)
        rest, drop = svd.beside(residual), np.zeros(len(groups))
        for k, (rows, _) in enumerate(groups):
            own = rows[whiten.scale[rows] > 0.0]
            columns = whiten((np.arange(residual.size)[:, None] == own).astype(float))
            drop[k] = np.sum((np.linalg.qr(svd.beside(columns))[0].T @ rest) ** 2)
        rows, text = groups[int(np.argmax(drop))]
        kept = np.where(np.isin(np.arange(kept.size), rows), 0.0, kept)
        names.append(text)
        whiten, residual, jacobian = fitted(kept)
        left = degrees - float(np.sum(before > kept))
        if left > 0.0 and float(residual @ residual) <= float(chdtri(left, FALSE_ALARM)):
            return kept, names
    return before, []


def _displacement_between_rows(
    estimate: Estimate, search: HypothesisSearch, u: Float[np.ndarray, "d"], chi_square: float
) -> tuple[ModelError, ...]:
    """The station of a pose test, or the point whose position on its body is free, that was displaced between two of
    its rows, where another pose from there on explains the misfit.

    To first order the columns of the other pose are those in the rows behind; the pair of rows that explains most is
    refitted. It is not among the first or last `MOST_GROUPS` rows, which may be single wrong ones.
    """
    study, size, corrected = estimate.study, search.size, search.corrected
    zero, every, free = np.zeros(len(corrected.errors)), np.arange(search.size), study.free
    residual, jacobian = corrected.state(u, zero, every)
    svd = scaled_svd(search.whiten(jacobian), RANK_TOLERANCE)
    rest, found = svd.beside(search.whiten(residual)), list[tuple[float, np.ndarray, np.ndarray, str]]()
    for rows, entry in zip(study.problem.row_slices, study.fitted, strict=True):
        group, names = entry.source.groups(entry.test)
        if not hasattr(entry.test, "stations"):
            continue
        movable = list[tuple[str, np.ndarray | None, np.ndarray]]()
        for k, label in enumerate(entry.test.stations):
            pose = [name for name in own_names(entry.test) if name.startswith(f"{STATION}.{entry.name}.{label}.")]
            columns = free.entries_of(pose)
            movable.append((f"station {label}", columns, np.flatnonzero(np.asarray(entry.test.station) == k)))
        for point in entry.test.points:
            position = [name for axis in "xyz" if (name := f"frame.{point}.{axis}") in free.names]
            columns = np.array([free.names.index(name) for name in position], dtype=int) if position else None
            movable.append((f"point {point}", columns, np.arange(len(entry.test.q))))
        for what, columns, own in movable:
            if columns is None or np.any(columns < 0):
                continue
            for i in range(MOST_GROUPS, own.size - MOST_GROUPS - 1):
                behind = np.zeros(residual.size, dtype=bool)
                behind[rows] = np.isin(group, own[i + 1 :])
                moved = svd.beside(search.whiten(jacobian[:, columns] * behind[:, None]))
                drop = float(np.sum((np.linalg.qr(moved)[0].T @ rest) ** 2))
                where = f"{what} of {display_name(entry.name)}", names[own[i]], names[own[i + 1]]
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
        return search.whiten(np.where(behind, second, first)), search.whiten(np.concatenate([slopes, own], axis=1))

    anywhere = np.full(columns.size, np.inf)
    lower, upper = np.append(free.lower, -anywhere), np.append(free.upper, anywhere)
    y, of_end = host_minimum(state, np.append(u, u[columns]), lower, upper)
    least, degrees = float(of_end @ of_end), search.noise_mean - columns.size
    explains = 1.0 - max(least - degrees, 0.0) / max(chi_square - degrees, 1e-300)
    is_explained = least <= float(chdtri(degrees, FALSE_ALARM)) or explains >= EXPLAINS
    if not is_explained or chi_square - least <= float(chdtri(columns.size, ERROR_RATE / len(found))):
        return ()
    one, other = (np.asarray(free.values(v))[columns] for v in (y[:size], with_other(y)))
    by = f"{1e3 * np.linalg.norm(other[:3] - one[:3]):.3g} mm"
    if columns.size > 3:
        own, there = (rotation_by(jax.device_put(pose[3:])) for pose in (one, other))
        by += f" and {1e3 * float(np.linalg.norm(rotation_vector(own.T @ there))):.3g} mrad"
    return (_model_error(free, text.format(by), explains, y[:size], state(y)[1], least / degrees),)


def with_hypotheses(estimate: Estimate, found: Explanations) -> Estimate:
    """The estimate with a covariance that includes its change by each hypothesis, or by the nearest where none is
    named: the error may be there or not. The variance of each parameter increases at least by the square of its largest
    change; predictions in which parameters compensate each other change as little as with the error corrected."""
    free = estimate.study.free
    values = [own for own in (found.nearest, *(error.values for error in found.errors)) if own]
    if not values:
        return estimate
    changes = np.array([free.encode(np.array([own[name] for name in free.names])) - estimate.u for own in values])
    squares = changes**2
    total = np.sum(squares, axis=0)
    share = np.max(np.max(squares, axis=0)[total > 0.0] / total[total > 0.0], initial=0.0)
    return estimate.with_added_covariance(share * changes.T @ changes)


def most_likely_errors(estimate: Estimate) -> ModelError | None:
    """The most likely errors within their tolerances, and the values of a joint fit with them; None where the effect of
    errors is linear, or tolerances do not explain the misfit."""
    goodness, free, study = estimate.goodness, estimate.study.free, estimate.study
    if goodness.joint is None or goodness.budget is None or not goodness.misfit_tolerated:
        return None
    joint, errors = goodness.joint, goodness.budget.errors
    order = np.argsort(-np.abs(joint.sizes))[:MOST_LIKELY].tolist()
    sizes = [(errors[k], float(joint.sizes[k])) for k in order]
    text = listed([f"{e.described(x * e.std(study.tolerances))}: {abs(x):.2g} tolerances" for e, x in sizes])
    values = free.values(joint.u)
    return ModelError(text, 1.0, free.named(values), free.named(joint.std * np.abs(free.slope(values))))


def explain_all(found: Sequence[ModelError]) -> bool:
    """Whether an error explains a misfit: attributing it to tolerances, or to its consequences, would mislead."""
    return any(error.explains > EXPLAINS_ALL for error in found)


def is_of_tests(found: Sequence[ModelError]) -> bool:
    """Whether an error of tests, not of the machine, explains a misfit."""
    return explain_all(found) and not any(error.of_machine for error in found)


REPETITIONS = {
    "frf": "with sensors or hammer in another direction",
    "modes": "with sensors in another direction",
    "deflection": "with loads in another direction",
    "torque": "along another motion",
    "pose": "from another station",
}
"""How a test is repeated so that the effects of errors of its description change, by kind."""


def model_errors_text(found: Sequence[ModelError], kinds: Collection[str] = ()) -> str:
    """A sentence on the errors that would explain a misfit of tests of some kinds; empty where there are none."""
    if not found:
        return ""
    texts = ", or ".join(error.text for error in found)
    explained = f"{100.0 * found[0].explains:.0f} % of the misfit beyond noise"
    if found[0].is_hidden:
        explained = "a significant part of the residual, which noise and tolerances allow as a whole"
    return f"{texts} would explain {explained}{_separation(found, kinds)}"


def _separation(found: Sequence[ModelError], kinds: Collection[str]) -> str:
    """A clause on the measurement that would separate some errors: it changes their effects differently."""
    if len(found) < 2:
        return ""
    if any("factor" in error.text for error in found):
        return " (a calibration with a known mass would separate them)"
    if all(error.of_machine for error in found):
        loads = any("payload" in error.text for error in found)
        return f" ({'weighing the payload' if loads else 'a test at another posture'} would separate them)"
    how = [text for kind, text in REPETITIONS.items() if kind in kinds]
    how += ["at another posture"] if any(error.of_machine for error in found) else []
    return f" (a repetition {' or '.join(how)} would separate them)" if how else ""


def _scatter(estimate: Estimate) -> tuple[Float[np.ndarray, "m"], bool]:
    """Variance of each row over that of its noise in the fit, and whether noise and tolerances do not explain the
    residual."""
    problem, goodness = estimate.study.problem, estimate.goodness
    doubtful = bool(goodness.systematic_fractions or goodness.beyond_tolerance)
    found = np.ones(estimate.residual.size)
    for rows, test, misfit in zip(
        problem.row_slices, problem.tests, goodness.untolerated_misfits.values(), strict=True
    ):
        residual, weights = estimate.residual[rows], estimate.stated_variances[rows]
        if test.noise.is_known:
            doubtful |= not misfit.explained
        elif test.lines is not None:
            found[rows] = np.maximum(test.lines.scatter(residual, weights), np.finfo(float).tiny)
            doubtful |= test.noise.between_responses or test.lines.outliers(residual, weights).size > 0
    return found, doubtful
