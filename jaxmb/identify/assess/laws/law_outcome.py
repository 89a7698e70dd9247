"""What a result says of laws that were chosen: coefficients, values in each test, errors of tests held out."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxmb.identify.assess.laws.law_problem import Fitted, LawProblem, in_tests, law_problem, law_state
from jaxmb.identify.assess.laws.law_record import (
    Candidate,
    ChosenTerm,
    GroupError,
    HoldOutErrors,
    Laws,
    ValueInTest,
    WithLaws,
)
from jaxmb.identify.assess.laws.one_model import LEVEL, Block, agreement, blocks, holm, relative_columns
from jaxmb.identify.estimation.identifiability import knowledge, scaled_svd
from jaxmb.identify.fit.noise import row_variances
from jaxmb.identify.study.law_terms import Term
from jaxmb.identify.study.study import Study

FARTHEST_LOG = 50.0
"""Logarithm of a ratio from which on it is no value of anything."""
HOLDS = 2.0
"""Times the noise up to which tests that are held out are predicted where a law holds."""


class HoldOut(NamedTuple):
    """How well each group of equal tests is predicted by a fit to all others."""

    error: np.ndarray
    """Root mean square residual of each group, in units of its noise."""
    fits: list[Fitted]
    """The fit without each group."""

    @property
    def mean(self) -> float:
        """Root mean square over the groups."""
        return float(np.sqrt(np.mean(self.error**2)))

    @property
    def converged(self) -> bool:
        """Whether all fits did."""
        return all(fit.converged for fit in self.fits)


def law_blocks(study: Study, problem: LawProblem, fit: Fitted) -> list[Block]:
    residual, jacobian = law_state(problem, fit)
    return blocks(study, residual, jacobian, np.asarray(study.problem.row_weights()))


def law_covariance(study: Study, problem: LawProblem, fit: Fitted, terms: int) -> tuple[np.ndarray, np.ndarray]:
    """Covariance and standard deviations of u and of the coefficients of the terms there are."""
    residual, jacobian = law_state(problem, fit)
    variances = row_variances(study.problem, residual, jacobian, np.asarray(study.problem.row_weights()))
    known = knowledge(jacobian[:, : study.free.size + terms], variances)
    return known.covariance, known.std


def law_outcome(
    study: Study, chosen: Sequence[Term], fit: Fitted, considered: Sequence[Candidate], without: HoldOut,
    with_laws: HoldOut, apart: Sequence[np.ndarray],
) -> Laws:  # fmt: skip
    """What a result says of the terms that were chosen and considered."""
    problem = law_problem(study, chosen, fit.coefficients.size)
    covariance, std = law_covariance(study, problem, fit, len(chosen))
    free, d = study.free, study.free.size
    after = agreement(law_blocks(study, problem, fit), relative_columns(study, fit.u))
    centre = np.clip(free.values(fit.u), free.lower_value, free.upper_value)
    relative = relative_columns(study, fit.u)
    lawful = list(dict.fromkeys(term.parameter for term in chosen))
    # The candidate that came nearest stands for itself where none was taken, so that one sees why.
    shown = lawful or [line.parameter for line in considered[:1]]
    errors = tuple(
        GroupError(tuple(study.tests[t].name for t in group), float(a), float(b))
        for group, a, b in zip(apart, without.error, with_laws.error, strict=True)
    )
    does = after.separate.p >= LEVEL and min(holm([p.p for p in after.parameters])) >= LEVEL
    return Laws(
        by=() if study.laws is None else tuple(study.laws.by),
        chosen=tuple(
            ChosenTerm(t.parameter, t.by, t.text, float(c), float(s), t.function, t.scale, t.mean)
            for t, c, s in zip(chosen, fit.coefficients, std[d:], strict=False)
        ),
        centre=free.named(centre),
        centre_std_log=free.named(std[:d] / np.abs(np.where(relative == 0.0, 1.0, relative))),
        holdout=HoldOutErrors(without.mean, errors, with_laws.mean),
        considered=tuple(considered),
        one_model=WithLaws(does, after.ratio, after.p),
        values={name: _values(study, chosen, fit, problem, covariance, name) for name in shown},
    )


def _values(
    study: Study, chosen: Sequence[Term], fit: Fitted, problem: LawProblem, covariance: np.ndarray, name: str
) -> tuple[ValueInTest, ...]:
    """Of one parameter in each test: by its law, and by the test itself, with standard deviations of the logarithm."""
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
        apart = float(np.exp(own[t])) if abs(own[t]) < FARTHEST_LOG else np.nan
        law_std = float(np.sqrt(max(direction @ covariance @ direction, 0.0)))
        lines.append(ValueInTest(test.name, value, law_std, value * apart, float(own_std[t]), _truth(study, t, name)))
    return tuple(lines)


def _by_each_test(
    study: Study, chosen: Sequence[Term], fit: Fitted, problem: LawProblem, name: str
) -> tuple[np.ndarray, np.ndarray]:
    """Logarithm of what each test says of a parameter beside its law, to first order, and its standard deviation.

    All other numbers are common to the tests and fitted again.
    """
    i, d = study.free.names.index(name), study.free.size
    tests = law_blocks(study, problem, fit)
    relative = relative_columns(study, fit.u)[i]
    first = np.cumsum([0, *(b.residual.size for b in tests)])
    apart = np.zeros((first[-1], len(tests)))
    for t, block in enumerate(tests):
        apart[first[t] : first[t + 1], t] = block.jacobian[:, i] * relative
    others = [k for k in range(d) if k != i] + [d + k for k, t in enumerate(chosen) if t.parameter != name]
    whole = np.column_stack([np.concatenate([b.jacobian for b in tests])[:, others], apart])
    residual = np.concatenate([b.residual for b in tests])
    svd = scaled_svd(whole)
    move = -(svd.right[: svd.rank].T / svd.values[: svd.rank]) @ (svd.left[: residual.size, : svd.rank].T @ residual)
    std = knowledge(whole, np.ones(residual.size)).std
    return (move / svd.scale)[len(others) :], std[len(others) :]


def _truth(study: Study, t: int, name: str) -> float | None:
    truth = study.fitted[t].truth
    return None if truth is None else truth.parameters.get(name)


def unsettled_laws(laws: Laws | None) -> list[str]:
    """A sentence where fits with laws did not converge."""
    if laws is None or not laws.unsettled:
        return []
    return ["laws: some of the fits by which they were chosen did not converge: other ones may predict better"]


def law_remarks(laws: Laws | None) -> list[str]:
    """A sentence on each law that was taken, or on there being none."""
    if laws is None:
        return []
    without = laws.holdout.without
    if not laws.chosen:
        return [
            f"no law of {', '.join(laws.by)} predicts tests that are held out better than one model"
            f" ({without:.3g} times the noise)"
        ]
    # A deviation tells how far noise moves a coefficient; of a law that leaves more than noise it tells nothing.
    holds = laws.holdout.with_ <= HOLDS
    found = [
        f"{line.parameter} follows exp({line.coefficient:.3g} (± {line.std:.1g}) {line.term})"
        if holds
        else f"{line.parameter} is approximated by exp({line.coefficient:.3g} {line.term})"
        for line in laws.chosen
    ]
    return [
        f"{'; '.join(found)}: tests that are held out are predicted to {laws.holdout.with_:.3g} times the noise,"
        f" {without:.3g} without"
    ]
