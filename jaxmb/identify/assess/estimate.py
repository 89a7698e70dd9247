"""A finished fit with the views of the identified machine by its tests."""

import dataclasses
import functools
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.goodness import GoodnessOfFit, Solution
from jaxmb.identify.assess.modal_agreement import ModalAgreement, modal_agreement
from jaxmb.identify.estimation.identifiability import Knowledge, verdicts
from jaxmb.identify.experiments.components import Equations
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.fit.linear import LinearStep, Unknowns
from jaxmb.identify.fit.state import Fit


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
class Estimate(Solution):
    """A finished fit: a solution with its goodness of fit, standard deviations, and the course of its solver."""

    values: Float[np.ndarray, "d"]
    """Physical values of the free parameters."""
    known: Knowledge
    """Standard deviations and verdicts of u, from the Jacobian."""
    goodness: GoodnessOfFit
    solver: Solver
    linear: Linear | None = None
    """Linear step; None for other studies."""
    systematic_covariance: Float[np.ndarray, "d d"] | None = None
    """Covariance of u due to systematic errors."""

    @property
    def std(self) -> Float[np.ndarray, "d"]:
        """Standard deviations of u."""
        return self.known.std

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
                yield entry, self.views[k], self.study.problem.rows[k]


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
