"""Consistency of one linear model with all tests of a study, and the parameter on which they disagree."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag
from scipy.special import chdtrc, fdtrc

from jaxmb.identify.assess.budget import with_error_prior
from jaxmb.identify.assess.estimate import LARGER_NOISE, Estimate
from jaxmb.identify.assess.laws.law_problem import fit_by_test, law_state
from jaxmb.identify.estimation.identifiability import Jacobian, ScaledSvd, rotated_rows, scaled_svd
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.noise import excess_correlation_length
from jaxmb.identify.fit.problem import is_large
from jaxmb.identify.parameters.model_parameters import unit
from jaxmb.identify.study.study import Study

REFITTED = 3
"""Largest number of parameters refitted with a value for each test, those with the largest drop."""
LARGE = 10.0
"""Drop of chi^2 per degree of freedom above which it is not noise, and linearization is insufficient."""
MOST_TESTS = 20
"""Largest number of tests for such refits, as each adds a coefficient."""
LEVEL = 0.01
"""Significance level of one candidate among several."""
DISAGREE = 1e-4
"""Significance level of a disagreement of tests, which increases all standard deviations: small, as correct studies
must not be affected."""
TINY = 1e-12
"""Smallest probability that is printed."""
MOST = 0.5
"""Part of the excess of chi^2 above which a parameter with a value for each test is reported as its cause."""
ACTS = 1e-7
"""Length of the component of a unit column orthogonal to all others above which it counts as independent."""


class TestResidual(NamedTuple):
    """Linearized residual r + J du of one test in units of its noise, compressed to few rows.

    See `rotated_rows`.
    """

    name: str
    residual: Float[np.ndarray, "k"]
    jacobian: Float[np.ndarray, "k d"]
    rows: int
    """Number of independent residuals."""
    degrees: float
    """Degrees of freedom from which its noise was estimated; inf where it is known."""
    correlation_length: float
    """Of the residual, in rows (see `Noise.correlation_length`)."""
    errors: Float[np.ndarray, "k e"]
    """Change by each error of machine and tests of one standard deviation, the same errors in all tests."""


@dataclasses.dataclass(frozen=True, eq=False)
class Drop:
    """Drop of chi^2 if some parameters may differ between the tests."""

    drop: float
    degrees: int
    p: float
    """Probability of such a drop under one model."""


@dataclasses.dataclass(frozen=True, eq=False)
class OwnValue(Drop):
    """Drop of chi^2 if one parameter may differ between the tests."""

    spread: float
    """Relative standard deviation of the parameter over the tests that explains the drop, beyond the noise; that of the
    fitted values where refitted."""
    parameter: str
    p_holm: float
    """Corrected for the number of parameters."""
    residual: float | None = dataclasses.field(metadata={"key": "leaves"})
    """Root mean square residual of such a fit, in units of the noise; None where not refitted."""
    unsettled: bool | None = None
    """True where that fit did not converge."""


@dataclasses.dataclass(frozen=True, eq=False)
class OneModel:
    """Consistency of one model with all tests."""

    residual_over_noise: float
    """Root mean square residual in units of the noise."""
    chi2: float
    """At the joint optimum of the linearized residuals, weighted by their noise only."""
    degrees: int
    p: float | None
    """Probability of such a chi^2 under one model; None where a noise is estimated."""
    separate: Drop
    """All parameters separate in each test."""
    is_consistent: bool = dataclasses.field(metadata={"key": "does"})
    """Whether neither all parameters together nor any single one differ significantly between the tests."""
    parameters: tuple[OwnValue, ...]
    """By decreasing drop; those refitted with a value for each test first, by increasing residual."""

    @property
    def contradiction(self) -> float:
        """Sum of squares beyond noise by which the tests contradict one model; 0 where it is consistent."""
        drops = (self.separate, *self.parameters)
        return 0.0 if self.is_consistent else max(each.drop - each.degrees for each in drops)


def blocks(
    study: Study,
    residual: Float[np.ndarray, "m"],
    jacobian: Jacobian,
    stated_variances: Float[np.ndarray, "m"],
    errors: Callable[[slice], Float[np.ndarray, "k e"]] | None = None,
) -> list[TestResidual]:
    """Linearized residuals of each test near a fit, without the prior.

    Args:
        study: the study.
        residual: of the fit, scaled by the root of the row weights, in units of the noise.
        jacobian: of the residual, with any number of columns.
        stated_variances: variance of each residual; 0 for rows that are not used.
        errors: change of some rows of the residual by each stated error; None for none.
    """
    none = np.zeros((study.problem.data_rows, 0))
    return [
        _block(
            test, residual[rows], jacobian[rows], stated_variances[rows], none[rows] if errors is None else errors(rows)
        )
        for test, rows in zip(study.tests, study.problem.row_slices, strict=True)
    ]


def _block(
    test: Test, residual: np.ndarray, jacobian: np.ndarray, stated_variances: np.ndarray, errors: np.ndarray
) -> TestResidual:
    # A row that is zero with its derivatives, as of a mode with the measured content, has no noise.
    used = (stated_variances > 0.0) & ((residual != 0.0) | np.any(jacobian != 0.0, axis=1))
    size = np.sqrt(np.where(used, stated_variances, 1.0))
    r, j = np.where(used, residual / size, 0.0), np.where(used[:, None], jacobian / size[:, None], 0.0)
    c = np.where(used[:, None], errors / size[:, None], 0.0)
    count, degrees, length = int(used.sum()) - test.noise.nuisance_rows, np.inf, 1.0
    if not test.noise.is_known:
        remainder, rank = _least_residual(r, j)
        length = excess_correlation_length(test, remainder * size, stated_variances)
        freedom = max(count - rank, 1)
        least = np.finfo(float).tiny if test.noise.is_one_factor else 1.0 / length
        variance = max(float(remainder @ remainder) / freedom, least) * length
        r, j, c, degrees = *(part / np.sqrt(variance) for part in (r, j, c)), freedom / length
    elif test.lines is not None and used.any() and _scatter(test, residual, stated_variances, used) > LARGER_NOISE:
        beside, _ = _least_residual(r, np.column_stack([j, c]))
        scatter = max(_scatter(test, beside * size, stated_variances, used), 1.0)
        r, j, c = (part / np.sqrt(scatter) for part in (r, j, c))  # larger noise is no disagreement of tests
    basis = scaled_svd(jacobian).range(residual.size)
    used_weights = np.where(used, stated_variances, 0.0)
    larger = test.noise.variance_factor(basis, used_weights)
    larger *= test.noise.known_factor(basis, residual, used_weights)
    few = rotated_rows(np.column_stack([j, c, r]) / np.sqrt(larger))
    j, c = np.split(few[:, :-1], [j.shape[1]], axis=1)
    return TestResidual(test.name, few[:, -1], j, max(count, 0), degrees, length, c)


def _scatter(test: Test, residual: np.ndarray, stated_variances: np.ndarray, used: np.ndarray) -> float:
    """Mean variance of the scatter between lines over that of the noise."""
    return 1.0 if test.lines is None else float(np.mean(test.lines.scatter(residual, stated_variances)[used]))


def _least_residual(residual: np.ndarray, jacobian: np.ndarray) -> tuple[np.ndarray, int]:
    """Residual r + J du at the best du, and the rank of J."""
    svd = scaled_svd(jacobian)
    return svd.beside(residual), svd.rank


def relative_columns(study: Study, u: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
    """Factors that convert columns of the Jacobian to relative changes of the parameters; 1 for values of 0."""
    return np.where(study.free.logarithmic | (u == 0.0), 1.0, u)


def separate_columns(tests: Sequence[TestResidual], i: int) -> Float[np.ndarray, "m t"]:
    """Column i of the Jacobian of all tests, split into a column for each test."""
    return np.asarray(block_diag(*(block.jacobian[:, [i]] for block in tests)))


def agreement(
    tests: Sequence[TestResidual], relative: Float[np.ndarray, "d"], names: Sequence[str], level: float = DISAGREE
) -> OneModel:
    """Agreement of tests on one model, and drop of chi^2 by parameter, in their order.

    All of it follows from residuals that are linear near the fit: chi^2 = min |r + J du|^2 beside that where also B v
    is added, B holding the column of one parameter for each test separately. Under one model the drop is a chi^2 with
    as many degrees as B adds to the rank of J (one less than the number of tests if all depend on the parameter); with
    estimated noise the drop over its degrees has an F distribution. The fit need not be at the optimum of chi^2 itself,
    as with weighted peaks, since du is free. The spread of the parameter over the tests is that of DerSimonian and
    Laird: with v of variance tau^2 the drop is on average its degrees + tau^2 trace(B^T P B), P the projector onto the
    complement of J. Errors of machine and tests are further unknowns, common to all tests, with their standard
    deviations as a prior.

    Args:
        tests: from `blocks`.
        relative: from `relative_columns`.
        names: of the parameters.
        level: significance level of a disagreement.

    Source: G. A. F. Seber and C. J. Wild, Nonlinear Regression, 1989, sections 5.3 and 5.9; R. DerSimonian and N.
    Laird, Controlled Clinical Trials 7, 177 (1986).
    """
    errors = np.concatenate([b.errors for b in tests])
    count = errors.shape[1]
    residual = np.pad(np.concatenate([b.residual for b in tests]), (0, count))
    svd = scaled_svd(with_error_prior(np.concatenate([b.jacobian for b in tests]), errors))
    remainder = svd.beside(residual)
    chi2 = float(remainder @ remainder)
    estimated = any(np.isfinite(b.degrees) for b in tests)
    freedom = sum(b.degrees for b in tests if np.isfinite(b.degrees))

    def chance(drop: float, degrees: int) -> float:
        if degrees == 0:
            return 1.0
        drop = max(drop, 0.0)  # rounding, without a drop
        return float(fdtrc(degrees, freedom, drop / degrees) if estimated else chdtrc(degrees, drop))

    first = np.cumsum([0, *(b.residual.size for b in tests)])
    below = (0, count), (0, 0)
    drops = [
        _drop(np.pad(factor * separate_columns(tests, i), below), svd, remainder, chance)
        for i, factor in enumerate(relative)
    ]
    own = [scaled_svd(b.jacobian) for b in tests]
    left = [o.beside(np.column_stack([b.errors, b.residual])) for o, b in zip(own, tests, strict=True)]
    apart = with_error_prior(np.zeros((errors.shape[0], 0)), np.concatenate(left)[:, :-1])
    least, _ = _least_residual(np.pad(np.concatenate(left)[:, -1], (0, count)), apart)
    separate = chi2 - float(least @ least)
    rank = svd.rank - count
    more = sum(o.rank for o in own) - rank
    degrees = max(sum(b.rows for b in tests) - rank, 1)
    plain = sum(
        b.correlation_length * float(np.sum(remainder[a:e] ** 2))
        for b, a, e in zip(tests, first, first[1:], strict=False)
    )
    corrected, p_separate = holm([p for _, _, p, _ in drops]), chance(separate, more)
    return OneModel(
        chi2=chi2,
        degrees=degrees,
        p=None if estimated else chance(chi2, degrees),
        residual_over_noise=float(np.sqrt(plain / degrees)),
        separate=Drop(separate, more, p_separate),
        is_consistent=p_separate >= level and min(corrected) >= level,
        parameters=tuple(
            OwnValue(*drop, name, p_holm, residual=None)
            for drop, name, p_holm in zip(drops, names, corrected, strict=True)
        ),
    )


def _drop(
    columns: np.ndarray, svd: ScaledSvd, remainder: np.ndarray, chance: Callable[[float, int], float]
) -> tuple[float, int, float, float]:
    """Drop of chi^2 by columns in addition to those of a decomposed matrix, the degrees and the probability of the
    drop, and the spread that explains it (see `OwnValue`)."""
    length = np.linalg.norm(columns, axis=0)
    seen = length > 0.0
    beside = svd.beside(columns[:, seen])
    vectors, values, _ = np.linalg.svd(beside / length[seen], full_matrices=False)
    degrees = int(np.sum(values > ACTS))
    drop = float(np.sum((vectors[:, :degrees].T @ remainder) ** 2))
    spread = np.sqrt(max(drop - degrees, 0.0) / float(np.sum(beside**2))) if degrees else 0.0
    return drop, degrees, chance(drop, degrees), float(spread)


def holm(p: Sequence[float]) -> list[float]:
    """Probabilities of several tests corrected for their number, by S. Holm, Scand. J. Statistics 6, 65 (1979)."""
    order = np.argsort(p, kind="stable")
    raised = np.maximum.accumulate(np.asarray(p, dtype=float)[order] * np.arange(len(p), 0, -1))
    found = np.empty(len(p))
    found[order] = np.minimum(raised, 1.0)
    return found.tolist()


def one_model(estimate: Estimate) -> OneModel | None:
    """Consistency of one model with all tests of a fit; None for fewer than two tests.

    Parameters with a large drop, a few at most, are refitted with a value for each test.
    """
    study, u = estimate.study, estimate.u
    if len(study.tests) < 2:
        return None
    budget = estimate.goodness.budget
    errors = None if budget is None else budget.all_columns
    tests = blocks(study, estimate.residual, estimate.jacobian, estimate.stated_variances, errors)
    found = agreement(tests, relative_columns(study, u), study.free.names)
    values = sorted(found.parameters, key=lambda value: -value.drop)
    return dataclasses.replace(
        found, parameters=tuple(_refitted_by_test(study, u, estimate.stated_variances, errors, values))
    )


def _refitted_by_test(
    study: Study,
    u: np.ndarray,
    stated_variances: np.ndarray,
    errors: Callable[[slice], np.ndarray] | None,
    values: Sequence[OwnValue],
) -> list[OwnValue]:
    """The parameters, the first of them refitted with a value for each test where their drop is large."""
    if len(study.tests) > MOST_TESTS or is_large(study.problem) or any(test.vibration is None for test in study.tests):
        return list(values)
    fitted = []
    for value in [value for value in values[:REFITTED] if value.drop > LARGE * value.degrees]:
        problem, fit, spread = fit_by_test(study, u, value.parameter)
        found = blocks(study, *law_state(problem, fit), stated_variances, errors)
        ratio = agreement(found, relative_columns(study, fit.u), study.free.names).residual_over_noise
        lost = None if fit.converged else True
        fitted.append(dataclasses.replace(value, spread=spread, residual=ratio, unsettled=lost))
    own = {value.parameter for value in fitted}
    return [
        *sorted(fitted, key=lambda value: value.residual),
        *(value for value in values if value.parameter not in own),
    ]


def variation_text(line: OwnValue, study: Study, value: float) -> str:
    """Text of the spread of a parameter: in percent, and on a linear scale, where it may be near 0, in its unit."""
    free = study.free
    i = free.names.index(line.parameter)
    if free.logarithmic[i]:
        return f"{100.0 * line.spread:.2g} %"
    size = abs(value) or float(free.width[i])  # see `relative_columns`
    return f"{line.spread * size:.2g} {unit(study.model, line.parameter)}"


def one_model_text(found: OneModel | None, study: Study, values: Mapping[str, float]) -> str:
    """A sentence where one model is not consistent with all tests, with the parameter that explains most of it; empty
    otherwise.

    Args:
        found: by `one_model`.
        study: the study.
        values: of the free parameters, by name.
    """
    if found is None or found.is_consistent:
        return ""
    line, p = found.parameters[0], min(found.separate.p, *(line.p_holm for line in found.parameters))
    text = f"no single linear model is consistent with all tests (p {f'{p:.1g}' if p > TINY else f'below {TINY:g}'})"
    if line.p_holm >= DISAGREE or not _explains(line, found):
        return f"{text}, and no single parameter that differs between them explains it"
    left = "" if line.residual is None else f", which leaves a residual of {line.residual:.3g} times the noise"
    lost = " (that fit did not converge)" if line.unsettled else ""
    size = variation_text(line, study, values[line.parameter])
    return f"{text}; {line.parameter} would have to differ by {size} between them{left}{lost}"


def _explains(line: OwnValue, found: OneModel) -> bool:
    """Whether a separate value in each test explains most of the residual beyond noise."""
    if line.residual is None:
        excess = max(found.chi2 - found.degrees, found.separate.drop - found.separate.degrees)
        return line.drop - line.degrees >= MOST * excess
    drop = found.residual_over_noise**2 - line.residual**2
    separate = (found.separate.drop - found.separate.degrees) / found.degrees
    return drop >= MOST * max(found.residual_over_noise**2 - 1.0, separate)
