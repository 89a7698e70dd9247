"""Least-squares problem of a study with parameters that vary between tests by laws."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.least_squares import Box, finished, residual_and_jacobian
from jaxmb.identify.fit.problem import Problem
from jaxmb.identify.fit.refine import least_squares_to_end
from jaxmb.identify.study.law_terms import Term, covariate, law_terms
from jaxmb.identify.study.study import Study
from jaxmb.io.files import restored
from jaxmb.machine.build import Model


@dataclasses.dataclass(frozen=True)
class ChosenTerm(Term):
    """A chosen term: ln parameter = ... + coefficient * term."""

    term: str
    """`text`."""
    coefficient: float
    std: float


@dataclasses.dataclass(frozen=True, eq=False)
class CandidateTerm:
    """A candidate term of one step, fitted with the previously chosen terms."""

    step: int
    parameter: str
    by: str
    term: str
    coefficient: float
    z: float
    """The coefficient over its standard deviation."""
    p: float
    """Probability of so large a z without a law, corrected for the number of candidates."""
    holdout_error: float | None
    """Error of held-out tests, in units of their noise; None where not evaluated."""
    gain: float
    """Mean logarithm of the ratio of hold-out errors, before over after; NaN where not evaluated."""
    gain_std: float
    choice_gain: float
    """The same with the term, too, chosen without the held-out group."""
    choice_gain_std: float
    predicts: bool
    """Whether held-out tests are predicted better, by more than the standard error."""
    taken: bool


@dataclasses.dataclass(frozen=True, eq=False)
class GroupError:
    """Error of tests held out together, without laws and with them, in units of the noise."""

    tests: tuple[str, ...]
    without: float
    with_: float


@dataclasses.dataclass(frozen=True, eq=False)
class HoldOutErrors:
    """Root mean square error of tests held out, without laws and with them, in units of the noise."""

    without: float
    tests: tuple[GroupError, ...]
    with_: float


@dataclasses.dataclass(frozen=True, eq=False)
class WithLaws:
    """Consistency of one model with all tests, with parameters that follow the laws."""

    is_consistent: bool = dataclasses.field(metadata={"key": "does"})
    residual_over_noise: float
    p: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class ValueInTest:
    """A parameter in one test: by its law, and from the test itself, with standard deviations of the logarithm."""

    test: str
    law: float
    law_std_log: float
    own: float
    own_std_log: float
    truth: float | None


@dataclasses.dataclass(frozen=True, eq=False)
class Laws:
    """Laws chosen by cross-validation."""

    by: tuple[str, ...]
    """Covariates of the laws."""
    chosen: tuple[ChosenTerm, ...]
    centre: dict[str, float]
    """Values of the parameters at the centre of the tests."""
    centre_std_log: dict[str, float]
    holdout: HoldOutErrors
    considered: tuple[CandidateTerm, ...]
    one_model: WithLaws
    values: dict[str, tuple[ValueInTest, ...]]
    """Values of each parameter with a law, or of the best candidate without laws."""
    unsettled: bool | None = None
    """True where some of the fits by which laws were chosen and judged did not converge."""


MOST_STEPS = 100
GRADIENT_TOLERANCE = 1e-7
"""Cosine between residual and Jacobian at convergence; the remaining decrease is far below the noise."""
FARTHEST = 3.0
"""Largest change of the logarithm of a parameter that a term may make."""


class LawFit(NamedTuple):
    """A fit of the parameters at the centre of the tests, and of the coefficients of their laws."""

    u: np.ndarray
    coefficients: np.ndarray
    objective: float
    converged: bool
    """Whether it converged within `MOST_STEPS`."""


class LawProblem(eqx.Module):
    """The problem of a study whose parameters may differ from test to test.

    In test t, parameter i has the value p_i exp(sum_l c_l b_lt), over its terms l. Terms are arrays, so that all laws
    with the same number of terms share a compiled program; a term of zeros has no effect.
    """

    problem: Problem
    owner: Float[Array, "l d"]
    """1 where a term belongs to a parameter."""
    basis: Float[Array, "l t"]
    """Value of each term in each test."""
    keep: Float[Array, "t"]
    """1 for fitted tests, 0 for held-out ones."""

    def residual(self, x: Float[Array, "e"]) -> Float[Array, "m"]:
        """Residuals of all tests, then of the prior, at x: u, then the coefficients. In units of the first noise."""
        problem, d = self.problem, self.problem.free.size
        u, c = x[:d], x[d:]
        values = problem.free.values(u) * jnp.exp((self.basis * c[:, None]).T @ self.owner)
        parts = [part * self.keep[k] for k, part in enumerate(problem.residuals_by_test(values))]
        return jnp.concatenate([*parts, problem.prior_residual(u)]) * problem.noise_unit


def law_problem(study: Study, terms: Sequence[Term], count: int, keep: np.ndarray | None = None) -> LawProblem:
    """The problem of a study with laws, padded to `count` terms with terms of zeros."""
    owner, basis = np.zeros((count, study.free.size)), np.zeros((count, len(study.tests)))
    for row, term in enumerate(terms):
        owner[row, study.free.names.index(term.parameter)] = 1.0
        basis[row] = in_tests(study, term)
    kept = np.ones(len(study.tests)) if keep is None else keep
    return LawProblem(study.problem, jnp.asarray(owner), jnp.asarray(basis), jnp.asarray(kept, dtype=float))


def in_tests(study: Study, term: Term) -> np.ndarray:
    """Value of a term in each fitted test."""
    return np.asarray(term.value(covariates(study, term)))


def covariates(study: Study, term: Term) -> np.ndarray:
    """Covariate of a term in each fitted test."""
    return np.array([
        covariate(study.model, term.by, term.parameter, np.asarray(entry.test.vibration.q), entry.amplitude)
        for entry in study.fitted
        if entry.test.vibration is not None
    ])  # fmt: skip


def terms_of(study: Study) -> tuple[Term, ...]:
    """All candidate terms of a study; empty without [laws]. Raises as `law_terms`."""
    if study.laws is None:
        return ()
    return law_terms(study.laws, study.model, study.free, study.fitted)


def fit_laws(problem: LawProblem, u: np.ndarray, coefficients: np.ndarray) -> LawFit:
    """Joint bounded least squares fit of u and the coefficients, from a start."""
    free = problem.problem.free
    reach = np.abs(np.asarray(problem.basis)).max(axis=1)
    most = FARTHEST / np.where(reach > 0.0, reach, 1.0)
    box = Box(
        jnp.concatenate([free.lower, -most]),
        jnp.concatenate([free.upper, most]),
        jnp.asarray([*free.logarithmic, *(False for _ in most)]),
    )
    x, objective, converged = _fit(problem, box, jnp.asarray(np.concatenate([u, coefficients])))
    return LawFit(np.asarray(x)[: free.size], np.asarray(x)[free.size :], float(objective), bool(converged))


@compiled
def _fit(problem: LawProblem, box: Box, x: Array) -> tuple[Array, Array, Array]:
    state = least_squares_to_end(problem.residual, box, x, MOST_STEPS, GRADIENT_TOLERANCE)
    return state.u, state.objective, finished(state)


@compiled
def _state(problem: LawProblem, x: Array) -> tuple[Array, Array]:
    value, jacobian = residual_and_jacobian(problem.residual, x)
    return value / problem.problem.noise_unit, jacobian / problem.problem.noise_unit


def fit_by_test(study: Study, u: np.ndarray, parameter: str) -> tuple[LawProblem, LawFit, float]:
    """A fit in which one parameter has its own value in each test: the problem, the fit, and their relative spread."""
    tests = len(study.tests)
    # Orthonormal contrasts: differences between the tests, with the mean in the parameter itself.
    contrasts = np.linalg.svd(np.eye(tests) - 1.0 / tests)[0][:, : tests - 1].T
    owner = np.zeros((tests - 1, study.free.size))
    owner[:, study.free.names.index(parameter)] = 1.0
    problem = law_problem(study, (), tests - 1)
    problem = dataclasses.replace(problem, owner=jnp.asarray(owner), basis=jnp.asarray(contrasts))
    fit = fit_laws(problem, u, np.zeros(tests - 1))
    return problem, fit, float(np.std(fit.coefficients @ contrasts, ddof=1))


def law_state(problem: LawProblem, fitted: LawFit) -> tuple[np.ndarray, np.ndarray]:
    """Residual and Jacobian (u, then coefficients) at a fit, in units of the noise."""
    residual, jacobian = _state(problem, jnp.asarray(np.concatenate([fitted.u, fitted.coefficients])))
    return np.asarray(residual), np.asarray(jacobian)


def values_with_laws(
    study: Study, laws: Laws | Mapping[str, object], q: Float[np.ndarray, "n"], amplitude: float | None = None
) -> np.ndarray:
    """Values of the free parameters [d] at a posture and amplitude, by the laws of a result.

    Raises:
        ValueError: a law depends on the amplitude, and none is given.
    """
    laws = laws if isinstance(laws, Laws) else restored(Laws, laws)
    values = np.array([laws.centre[name] for name in study.free.names])
    for term in laws.chosen:
        x = covariate(study.model, term.by, term.parameter, np.asarray(q), amplitude)
        values[study.free.names.index(term.parameter)] *= np.exp(term.coefficient * term.value(x))
    return values


def model_with_laws(
    study: Study, laws: Laws | Mapping[str, object], q: Float[np.ndarray, "n"], amplitude: float | None = None
) -> Model:
    """The machine with parameters by the laws of a result at a posture, for `linearize`, `frf` and `modes` there.

    Args:
        study: `result.study`.
        laws: `result.metrics.laws`, or the same as result.json has it.
        q: coordinates, of `posture(model, {...})`.
        amplitude: in the unit of the study's tests, where a law depends on it.
    """
    return study.free.apply(study.model, jnp.asarray(values_with_laws(study, laws, q, amplitude)))
