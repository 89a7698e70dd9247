"""Selection of laws of posture, load or amplitude by cross-validation: prediction of held-out tests."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.special import ndtr

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.assess.hypotheses import drops
from jaxmb.identify.assess.laws.law_problem import (
    CandidateTerm,
    ChosenTerm,
    GroupError,
    HoldOutErrors,
    LawFit,
    LawProblem,
    Laws,
    ValueInTest,
    WithLaws,
    fit_laws,
    in_tests,
    law_problem,
    law_state,
    terms_of,
)
from jaxmb.identify.assess.laws.one_model import (
    LEVEL,
    TestResidual,
    agreement,
    blocks,
    relative_columns,
    separate_columns,
)
from jaxmb.identify.estimation.identifiability import identifiability, scaled_svd
from jaxmb.identify.fit.noise import row_variances
from jaxmb.identify.study.law_terms import Term
from jaxmb.identify.study.study import Study

FARTHEST_LOG = 50.0
"""Largest logarithm of a plausible ratio."""
HOLDS = 2.0
"""Hold-out error in units of the noise up to which a law is valid."""


class HoldOut(NamedTuple):
    """Prediction errors of each group of tests with equal covariates, by fits to all others."""

    error: np.ndarray
    """Root mean square residual of each group, in units of its noise."""
    fits: list[LawFit]
    """The fit without each group."""

    @property
    def mean(self) -> float:
        """Root mean square over the groups."""
        return float(np.sqrt(np.mean(self.error**2)))

    @property
    def converged(self) -> bool:
        """Whether all fits converged."""
        return all(fit.converged for fit in self.fits)


def law_blocks(study: Study, problem: LawProblem, fit: LawFit) -> list[TestResidual]:
    residual, jacobian = law_state(problem, fit)
    return blocks(study, residual, jacobian, np.asarray(study.problem.stated_variances()))


def law_covariance(study: Study, problem: LawProblem, fit: LawFit, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Covariance and standard deviations of u and of the coefficients of the terms."""
    residual, jacobian = law_state(problem, fit)
    variances = row_variances(study.problem, residual, jacobian, np.asarray(study.problem.stated_variances()))
    known = identifiability(jacobian[:, : study.free.size + terms], variances)
    return known.covariance, known.std


def law_outcome(
    study: Study, chosen: Sequence[Term], fit: LawFit, considered: Sequence[CandidateTerm], without: HoldOut,
    with_laws: HoldOut, groups: Sequence[np.ndarray],
) -> Laws:  # fmt: skip
    """Laws of a result, from the chosen and considered terms."""
    problem = law_problem(study, chosen, fit.coefficients.size)
    covariance, std = law_covariance(study, problem, fit, len(chosen))
    free, d = study.free, study.free.size
    relative = relative_columns(study, fit.u)
    after = agreement(law_blocks(study, problem, fit), relative, free.names, LEVEL)
    # Without a chosen term the best candidate is shown, for comparison.
    shown = dict.fromkeys(term.parameter for term in chosen) or [line.parameter for line in considered[:1]]
    errors = tuple(
        GroupError(tuple(study.tests[t].name for t in group), float(a), float(b))
        for group, a, b in zip(groups, without.error, with_laws.error, strict=True)
    )
    return Laws(
        by=() if study.laws is None else tuple(study.laws.by),
        chosen=tuple(
            ChosenTerm(**vars(t), term=t.text, coefficient=float(c), std=float(s))
            for t, c, s in zip(chosen, fit.coefficients, std[d:], strict=False)
        ),
        centre=free.named(np.clip(free.values(fit.u), free.lower_value, free.upper_value)),
        centre_std_log=free.named(std[:d] / np.abs(np.where(relative == 0.0, 1.0, relative))),
        holdout=HoldOutErrors(without.mean, errors, with_laws.mean),
        considered=tuple(considered),
        one_model=WithLaws(after.is_consistent, after.residual_over_noise, after.p),
        values={name: _values(study, chosen, fit, problem, covariance, name) for name in shown},
    )


def _values(
    study: Study, chosen: Sequence[Term], fit: LawFit, problem: LawProblem, covariance: np.ndarray, name: str
) -> tuple[ValueInTest, ...]:
    """Values of one parameter in each test: by its law, and from the test itself, with standard deviations of the
    logarithm."""
    i, d = study.free.names.index(name), study.free.size
    relative = relative_columns(study, fit.u)[i]
    table = np.array([in_tests(study, t) if t.parameter == name else np.zeros(len(study.tests)) for t in chosen])
    change = table.T @ fit.coefficients[: len(chosen)] if chosen else np.zeros(len(study.tests))
    own, own_std = _by_each_test(study, chosen, fit, problem, name)
    lines = []
    for t, test in enumerate(study.tests):
        direction = np.zeros(d + len(chosen))
        direction[i] = 1.0 / relative
        direction[d:] = table[:, t] if chosen else []
        value = float(study.free.values(fit.u)[i] * np.exp(change[t]))
        ratio = float(np.exp(own[t])) if abs(own[t]) < FARTHEST_LOG else np.nan
        law_std, truth = float(np.sqrt(max(direction @ covariance @ direction, 0.0))), study.fitted[t].truth
        true = None if truth is None else truth.parameters.get(name)
        lines.append(ValueInTest(test.name, value, law_std, value * ratio, float(own_std[t]), true))
    return tuple(lines)


def _by_each_test(
    study: Study, chosen: Sequence[Term], fit: LawFit, problem: LawProblem, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of the ratio of each test's own estimate of a parameter to its law, to first order, and its standard
    deviation.

    All other parameters are common to the tests and refitted.
    """
    i, d = study.free.names.index(name), study.free.size
    tests = law_blocks(study, problem, fit)
    separate = separate_columns(tests, i) * relative_columns(study, fit.u)[i]
    others = [k for k in range(d) if k != i] + [d + k for k, t in enumerate(chosen) if t.parameter != name]
    whole = np.column_stack([np.concatenate([b.jacobian for b in tests])[:, others], separate])
    residual = np.concatenate([b.residual for b in tests])
    std = identifiability(whole, np.ones(residual.size)).std
    return -scaled_svd(whole).solve(residual)[len(others) :], std[len(others) :]


def unconverged_laws(laws: Laws | None) -> list[str]:
    """A sentence where fits with laws did not converge."""
    text = "laws: some of the fits by which they were chosen did not converge: other ones may predict better"
    return [text] if laws is not None and laws.unsettled else []


def law_remarks(laws: Laws | None) -> list[str]:
    """A sentence on the chosen laws, or on their absence."""
    if laws is None:
        return []
    without = laws.holdout.without
    if not laws.chosen:
        return [
            f"no law of {', '.join(laws.by)} predicts held-out tests better than one model"
            f" ({without:.3g} times the noise)"
        ]
    # A standard deviation is the effect of noise on a coefficient; it is not valid for a law with a larger residual.
    holds = laws.holdout.with_ <= HOLDS
    found = [
        f"{line.parameter} follows exp({line.coefficient:.3g} (± {line.std:.1g}) {line.term})"
        if holds
        else f"{line.parameter} is approximated by exp({line.coefficient:.3g} {line.term})"
        for line in laws.chosen
    ]
    return [
        f"{'; '.join(found)}: held-out tests are predicted to {laws.holdout.with_:.3g} times the noise,"
        f" {without:.3g} without"
    ]


FITTED_FULLY = 6
"""Candidates fitted in each step, those with the largest first-order drop."""
HELD_OUT = 2
"""Candidates evaluated by cross-validation in each step, those with the best fit."""


class Considered(NamedTuple):
    """A candidate of one step, fitted with the previously chosen terms."""

    term: Term
    fit: LawFit
    held_out: HoldOut | None
    """None where not evaluated by cross-validation."""
    converged: bool
    """Whether all fits behind the candidate converged."""
    outcome: CandidateTerm
    """Its numbers, as for a candidate that is not taken."""


def chosen_laws(estimate: Estimate) -> Laws | None:
    """Laws of a fit; None where the study has no [laws].

    Forward selection. Candidates are ranked by the first-order drop of chi^2; the best few are fitted fully, and the
    best of those evaluated by cross-validation: each group of tests that share all covariates is held out once. A term
    is chosen if the mean of the paired logarithms of the error improves by more than its standard error over the groups
    (one standard error rule), both with this term and with the term chosen without the held-out group; and if its
    coefficient is significant at `LEVEL` for that many candidates. The first criterion rejects laws that imitate
    another model error and do not generalize; the others correct for the selection among many candidates.

    Args:
        estimate: the fit of one model.

    Source: L. Breiman, J. Friedman, R. Olshen and C. Stone, Classification and Regression Trees, 1984, section 3.4.3.
    """
    study, u = estimate.study, estimate.u
    if study.laws is None:
        return None
    terms = terms_of(study)
    count = min(study.laws.most, len(terms))
    table = np.array([in_tests(study, term) for term in terms]).T.round(9)
    _, group = np.unique(table, axis=0, return_inverse=True)
    groups = [np.flatnonzero(group.ravel() == g) for g in range(group.max() + 1)]
    fit = fit_laws(law_problem(study, (), count), u, np.zeros(count))
    chosen: list[Term] = []
    first = held_out = _hold_out(study, [chosen] * len(groups), [fit] * len(groups), groups)
    considered: list[CandidateTerm] = []
    converged = fit.converged and first.converged
    while len(chosen) < count:
        remaining = [term for term in terms if term not in chosen]
        tried = _tried(study, chosen, remaining, fit, held_out, groups)
        best = min((c for c in tried if c.held_out is not None), key=lambda c: -c.outcome.gain, default=None)
        taken = best is not None and best.outcome.p < LEVEL and best.outcome.predicts
        converged = converged and all(c.converged for c in tried)
        considered += [dataclasses.replace(c.outcome, taken=taken and c is best) for c in tried]
        if best is None or best.held_out is None or not taken:
            break
        chosen.append(best.term)
        fit, held_out = best.fit, best.held_out
    laws = law_outcome(study, chosen, fit, considered, first, held_out, groups)
    return laws if converged else dataclasses.replace(laws, unsettled=True)


def _hold_out(
    study: Study, terms: Sequence[Sequence[Term]], starts: Sequence[LawFit], groups: Sequence[np.ndarray]
) -> HoldOut:
    """Errors of each group by fits to all others, each with its own terms and from its own start."""
    count, weights = starts[0].coefficients.size, np.asarray(study.problem.stated_variances())
    errors, fits = [], []
    for group, begin, mine in zip(groups, starts, terms, strict=True):
        keep = np.where(np.isin(np.arange(len(study.tests)), group), 0.0, 1.0)
        fits.append(fit_laws(law_problem(study, mine, count, keep), begin.u, begin.coefficients))
        residual, _ = law_state(law_problem(study, mine, count), fits[-1])
        rows = np.concatenate([np.arange(r.start, r.stop) for r in (study.problem.row_slices[t] for t in group)])
        used = weights[rows] > 0.0
        errors.append(np.sqrt(np.mean(residual[rows][used] ** 2 / weights[rows][used])))
    return HoldOut(np.array(errors), fits)


def _gain(before: HoldOut, after: HoldOut) -> tuple[float, float]:
    """Mean logarithm of the ratio of errors, and its standard error."""
    gains = np.log(before.error / after.error)
    return float(np.mean(gains)), float(np.std(gains, ddof=1) / np.sqrt(gains.size)) if gains.size > 1 else np.inf


def _tried(
    study: Study, chosen: Sequence[Term], remaining: Sequence[Term], fit: LawFit, before: HoldOut,
    groups: Sequence[np.ndarray],
) -> list[Considered]:  # fmt: skip
    """The best candidates of a step by first-order drop, the best fit first; the first few evaluated by
    cross-validation."""
    count = fit.coefficients.size
    before_it = law_problem(study, chosen, count)
    found = []
    for k in np.argsort(-_promised(study, before_it, remaining, fit), kind="stable")[:FITTED_FULLY]:
        terms = [*chosen, remaining[k]]
        problem = law_problem(study, terms, count)
        new = fit_laws(problem, fit.u, fit.coefficients)
        z = new.coefficients[len(chosen)] / law_covariance(study, problem, new, len(terms))[1][-1]
        found.append((terms[-1], new, float(z)))
    found.sort(key=lambda one: one[1].objective)
    blind = [
        [*chosen, remaining[int(np.argmax(_promised(study, before_it, remaining, without, group)))]]
        for group, without in zip(groups, before.fits, strict=True)
    ]
    without_it, tried = _hold_out(study, blind, before.fits, groups), list[Considered]()
    choice = _gain(before, without_it)
    for rank, (term, new, z) in enumerate(found):
        held_out, gain, converged = None, (np.nan, np.nan), new.converged and without_it.converged
        if rank < HELD_OUT:
            held_out = _hold_out(study, [[*chosen, term]] * len(groups), [new] * len(groups), groups)
            gain, converged = _gain(before, held_out), converged and held_out.converged
        outcome = CandidateTerm(
            step=len(chosen) + 1,
            parameter=term.parameter,
            by=term.by,
            term=term.text,
            coefficient=float(new.coefficients[len(chosen)]),
            z=z,
            p=min(2.0 * len(remaining) * float(ndtr(-abs(z))), 1.0) if np.isfinite(z) else 1.0,
            holdout_error=None if held_out is None else held_out.mean,
            gain=gain[0],
            gain_std=gain[1],
            choice_gain=choice[0],
            choice_gain_std=choice[1],
            predicts=gain[0] > gain[1] and choice[0] > choice[1],
            taken=False,
        )
        tried.append(Considered(term, new, held_out, converged, outcome))
    return tried


def _promised(
    study: Study, problem: LawProblem, remaining: Sequence[Term], fit: LawFit, unseen: Sequence[int] | np.ndarray = ()
) -> np.ndarray:
    """First-order drop of chi^2 by each candidate, with all other parameters refitted; without some tests."""
    seen = [t for t in range(len(study.tests)) if t not in unseen]
    every, relative = law_blocks(study, problem, fit), relative_columns(study, fit.u)
    tests = [every[t] for t in seen]
    residual = np.concatenate([block.residual for block in tests])
    jacobian = np.concatenate([block.jacobian for block in tests])
    in_test = np.repeat(seen, [block.residual.size for block in tests])
    of = [study.free.names.index(term.parameter) for term in remaining]
    values = np.stack([in_tests(study, term)[in_test] for term in remaining], axis=1)
    return drops(residual, jacobian, values * relative[of] * jacobian[:, of])[1]
