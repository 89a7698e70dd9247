"""A finished fit with the views of the identified machine by its tests."""

import dataclasses
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.budget import Budget
from jaxmb.identify.assess.modal_agreement import ModalAgreement, modal_agreement
from jaxmb.identify.estimation.identifiability import (
    Identifiability,
    Jacobian,
    row_blocks,
    triangular_factor,
    verdicts,
)
from jaxmb.identify.experiments.components import Equations
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.fit.linear import LinearStep, Unknowns
from jaxmb.identify.fit.noise import Misfit, effective_length, misfits, misfits_of_tests, sampled_weights
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model

INCONSISTENT = 2.0
"""Root mean square residual, in units of stated noise, above which no standard deviation covers the effect of model
error on parameters."""
SYSTEMATIC = 0.05
"""Systematic fraction of the variance of the residual above which the fit does not reproduce its data."""
LEAST_LEFT = 1e-4, 0.1
"""Residual of log H, and residual over stated noise, below which a systematic fraction is ignored."""


class Linear(NamedTuple):
    """Linear step of a linear study, with its equations."""

    unknowns: Unknowns
    equations: Equations
    step: LinearStep
    start: Float[np.ndarray, "d"]
    """Physical values kept by parameters without effect on any measurement."""


class Solver(NamedTuple):
    """Course of the solver that made an estimate."""

    initial: Float[np.ndarray, "d"]
    """Initial physical values."""
    cost: float
    """Without the prior."""
    initial_cost: float
    variances: Float[np.ndarray, "m"]
    """Of the residual, in units of the noise."""
    evaluations: dict[str, int]
    history: list[tuple[int, float]]
    """(evaluations, best objective so far)."""
    doubts: tuple[str, ...] = ()
    """Sentences on noise and convergence."""
    fit: Fit | None = None
    """Starts and minima of a search; None for a linear step."""
    information: Float[np.ndarray, "k d"] | None = None
    """Information about u, where the estimate is not at the minimum of the cost; else that of the Jacobian."""


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """A finished fit with the views of the identified machine by its tests."""

    study: Study
    """The study, with its noise as estimated where it is not known."""
    seed: int
    u: Float[np.ndarray, "d"]
    values: Float[np.ndarray, "d"]
    """Physical values of the free parameters."""
    model: Model
    """Model of the identified machine."""
    residual: Float[np.ndarray, "m"]
    """Residual in units of the noise, scaled by the roots of the weights; rows of the prior last."""
    jacobian: Jacobian
    """Derivative of the residual by u."""
    row_weights: Float[np.ndarray, "m"]
    known: Identifiability
    """Standard deviations and verdicts of u, from the Jacobian."""
    views: tuple[Any, ...]
    """Views of the identified machine by each fitted test; not recomputed for other standard deviations."""
    solver: Solver
    linear: Linear | None = None
    """Linear step; None for other studies."""
    systematic_covariance: Float[np.ndarray, "d d"] | None = None
    """Covariance of u due to systematic errors."""
    budget: Budget | None = None
    """Effect of the errors of machine and tests; None where all is exact."""
    tolerated: tuple[bool, ...] = ()
    """Whether such errors, within their tolerances, explain the misfit of each test; empty where all is exact."""

    @functools.cached_property
    def compressed(self) -> tuple[Float[np.ndarray, "k"], Float[np.ndarray, "k d"]]:
        """Residual and Jacobian rotated into at most d + 1 rows (see `triangular_factor`)."""
        blocks = (np.column_stack([self.jacobian[rows], self.residual[rows]]) for rows in row_blocks(self.jacobian))
        factor = triangular_factor(blocks)
        return factor[:, -1], factor[:, :-1]

    @functools.cached_property
    def misfit(self) -> Misfit | None:
        """Reduced chi-square of all data; None where noise is estimated from the residual."""
        tests = self.study.tests
        if self.linear is not None:
            estimated = all(entry.source.noise_estimated for entry in self.study.fitted)
            return None if estimated else self.linear.step.misfit
        if not all(test.noise.is_known for test in tests):
            return None
        data, own = slice(0, self.study.problem.data_rows), sum(test.noise.nuisance_rows for test in tests)
        length = np.average([effective_length(test) for test in tests], weights=[test.rows for test in tests])
        weights = sampled_weights(self.study.problem, self.row_weights)
        return misfits(self.residual, self.jacobian, weights, [data], [own], [float(length)])[0]

    @property
    def excess(self) -> Misfit | None:
        """`misfit`, at most 1 where errors within the stated tolerances explain it."""
        found = self.misfit
        if found is None or found.explained or not self.tolerated:
            return found
        judged = zip(self.tolerated, self.misfits, strict=True)
        tolerated = all(self.tolerated) if self.linear is not None else all(t or own.explained for t, own in judged)
        return dataclasses.replace(found, square=1.0) if tolerated else found

    @property
    def misfit_tolerated(self) -> bool | None:
        """Whether errors within the stated tolerances explain a misfit; None without a misfit or
        tolerances."""
        misfit, excess = self.misfit, self.excess
        if misfit is None or excess is None or misfit.explained or not self.tolerated:
            return None
        return excess.explained

    @functools.cached_property
    def excesses(self) -> list[Misfit]:
        """`misfits`, at most 1 where errors within the stated tolerances explain it."""
        tolerated = self.tolerated or (False,) * len(self.misfits)
        pairs = zip(self.misfits, tolerated, strict=True)
        return [dataclasses.replace(own, square=min(own.square, 1.0)) if allowed else own for own, allowed in pairs]

    @functools.cached_property
    def not_reproduced(self) -> tuple[str, ...]:
        """Names of the fitted tests that the machine does not reproduce within their noise."""
        problem, names = self.study.problem, []
        for test, view, misfit in zip(problem.tests, self.views, self.excesses, strict=True):
            noise = misfit.explained
            if not test.noise.is_known:
                noise = not (test.noise.correlation.between_responses or test.name in self.systematic)
            if test.name in self.gross_errors or (not noise and test.score(view, None).poor):
                names.append(test.name)
        return tuple(names)

    @property
    def std(self) -> Float[np.ndarray, "d"]:
        """Standard deviations of u."""
        return self.known.std

    @property
    def missed(self) -> tuple[str, ...]:
        """Names of all tests that the machine does not reproduce, held-out tests included."""
        return tuple(dict.fromkeys([*self.not_reproduced, *self.held_out_errors]))

    @functools.cached_property
    def gross_errors(self) -> dict[str, str]:
        """Sentences on gross errors, by name of a fitted test; see `Source.gross_errors`. None where errors within the
        stated tolerances explain the misfit."""
        tolerated = self.tolerated or (False,) * len(self.study.tests)
        parts = zip(self.study.fitted, self.study.tests, self.study.problem.row_slices, tolerated, strict=True)
        free = self.study.free
        found = {
            e.name: e.source.gross_errors(test, self.model, self.jacobian[rows], free)
            for e, test, rows, allowed in parts
            if not (allowed and self.misfit_tolerated)
        }
        return {name: text for name, text in found.items() if text}

    @functools.cached_property
    def held_out_errors(self) -> dict[str, str]:
        """Sentences on gross errors, by name of a held-out test."""
        entries = [entry for entry in self.study.entries if entry.role == "check"]
        found = {entry.name: entry.source.gross_errors(entry.test, self.model) for entry in entries}
        return {name: text for name, text in found.items() if text}

    @functools.cached_property
    def systematic(self) -> dict[str, float]:
        """Systematic fraction of the residual variance, by name of the fitted tests in which it is significant."""
        problem, found = self.study.problem, {}
        tolerated = self.tolerated or (False,) * len(problem.tests)
        parts = zip(problem.row_slices, problem.tests, self.misfits, tolerated, strict=True)
        for rows, test, misfit, allowed in parts:
            if test.lines is None or allowed:
                continue
            share = test.lines.systematic(self.residual[rows], self.row_weights[rows])
            size = misfit.factor * (test.noise.nominal or 0.0)
            is_significant = size > LEAST_LEFT[0] and (not test.noise.is_known or misfit.factor > LEAST_LEFT[1])
            if is_significant and share >= SYSTEMATIC:
                found[test.name] = share
        return found

    @property
    def is_inconsistent(self) -> bool:
        """Whether the residual of a test is at least `INCONSISTENT` times its stated noise."""
        if self.linear is not None:  # without the outliers of robust tests
            left = self.excess
            return left is not None and not left.explained and left.square > INCONSISTENT**2
        pairs = zip(self.study.problem.tests, self.excesses, strict=True)
        return any(test.noise.is_known and not left.explained and left.square > INCONSISTENT**2 for test, left in pairs)

    @property
    def unknown(self) -> "Estimate":
        """The estimate without standard deviations, as of a machine that does not reproduce its data."""
        return self.with_std(np.full(self.u.size, np.inf))

    def with_std(self, std: Float[np.ndarray, "d"]) -> "Estimate":
        """The estimate with other standard deviations and the verdicts that follow."""
        known = self.known._replace(std=std, verdict=verdicts(std, self.known.prior_std))
        return dataclasses.replace(self, known=known)

    def with_added(self, covariance: Float[np.ndarray, "d d"]) -> "Estimate":
        """The estimate with a covariance of systematic errors of u added to that of noise."""
        known = self.known._replace(covariance=self.known.covariance + covariance)
        before = 0.0 if self.systematic_covariance is None else self.systematic_covariance
        added = dataclasses.replace(self, known=known, systematic_covariance=before + covariance)
        return added.with_std(np.sqrt(self.known.std**2 + np.diag(covariance)))

    @property
    def with_tolerances(self) -> "Estimate":
        """The estimate with the covariance of the errors of machine and tests."""
        return self if self.budget is None else self.with_added(self.budget.covariance)

    @functools.cached_property
    def misfits(self) -> list[Misfit]:
        """Reduced chi-square of each fitted test."""
        return misfits_of_tests(self.study.problem, self.residual, self.jacobian, self.row_weights)

    @functools.cached_property
    def agreements(self) -> tuple[ModalAgreement | None, ...]:
        """Fitted modes paired with the modes of a modal analysis, for each fitted test; None without modal analysis."""
        pairs = zip(self.study.fitted, self.views, strict=True)
        return tuple(modal_agreement(entry, view, self.model) for entry, view in pairs)

    def of(self, entries: Sequence[Entry]) -> Iterator[tuple[Entry, Any, slice]]:
        """The fitted ones of some entries, each with its view and its rows."""
        index = {entry.name: k for k, entry in enumerate(self.study.fitted)}
        for entry in entries:
            if entry.role == "fit":
                k = index[entry.name]
                yield entry, self.views[k], self.study.problem.row_slices[k]


class Diagnosis(NamedTuple):
    """Errors of model or data found in an estimate beyond its noise."""

    estimate: Estimate
    """The estimate, its standard deviations with the effect of these errors."""
    wrong: bool
    """Whether the model does not reproduce the data within its noise and the stated tolerances."""
    doubts: Sequence[str]
    remarks: Sequence[str]
    causes: Sequence[str] = ()
    """Sentences on likely causes of a residual larger than its noise."""
    hypothesis: str = ""
    """Sentence on the model-error hypotheses that explain the residual; empty for none."""
    metrics: Mapping[str, object] = types.MappingProxyType({})
    """Fields of `Metrics` by name."""
