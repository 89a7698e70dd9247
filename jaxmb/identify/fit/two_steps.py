"""Stiffness from modes, then damping from FRFs: the two-step method of Rognant et al. 2010."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import jax.numpy as jnp
import numpy as np
import scipy
from jaxtyping import Bool, Float, Int

from jaxmb.identify.estimation.identifiability import information_rows, scaled_svd
from jaxmb.identify.experiments.frf.frf_test import FrfTest
from jaxmb.identify.experiments.modes_test import ModesTest
from jaxmb.identify.fit.loop import Report, run_fit
from jaxmb.identify.fit.noise import row_variances
from jaxmb.identify.fit.problem import Prior, Problem, linearized, make_problem
from jaxmb.identify.fit.settings import FitSettings, Start
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.parameters.free_parameters import subset
from jaxmb.machine.families import OF_DAMPING
from jaxmb.measurement.noise import correlation_length

STEP = 1e-4
"""Step of u for central differences of FRFs."""
ROUNDING = 1e-9
"""Error of a response, over the root mean square of all responses, up to which it is rounding."""


WITHOUT_EFFECT = 1e-7
"""Singular value over the largest, up to which a direction of the damping has no effect on the FRFs: the error of the
differences."""


T = TypeVar("T", ModesTest, FrfTest)


def two_step_fit(
    problem: Problem,
    settings: FitSettings,
    start: Start,
    seed: int,
    state_file: Path | None = None,
    resume: bool = False,
    report: Callable[[Report], None] | None = None,
) -> tuple[Fit, Float[np.ndarray, "k d"]]:
    """Fit of all parameters but damping to frequencies and shapes of modal tests, then of damping to FRFs by J_Q.

    J_Q is the sum of |H_model - H|^2 over that of |H|^2 (eq. 34), over the used lines of all FRF tests. As in the
    paper, normal modes of the undamped machine are compared with the measured ones. Errors of the first step propagate
    to the damping through the FRFs. Errors of the second step are estimated from the residual and its correlation along
    frequency. See `run_fit` for the arguments.

    Returns:
        The fit, and R [k, d]: R^T R is the inverse of the covariance of u.

    Source: Rognant et al. 2010, sections II-E and III-B; covariance of estimates in two steps: Murphy and Topel,
    J. Business and Economic Statistics 3, 370 (1985).
    """
    free, second = problem.free, _of_second_step(problem)
    modal, frfs = _tests_of(problem, ModesTest), _tests_of(problem, FrfTest)
    of_first, of_second = np.flatnonzero(~second), np.flatnonzero(second)
    own = _first_problem(problem, modal.values(), of_first, np.where(second, 0.0, start.values))
    first = Start(np.asarray(start.values)[of_first], np.asarray(start.given)[of_first], start.random)
    fit = run_fit(own, settings, first, seed, state_file, resume, report)
    u = np.asarray(free.encode(np.asarray(start.values)))
    if fit.best_u is None:
        return fit, np.zeros((free.size, free.size))
    found = u.copy()
    found[of_first] = fit.best_u
    found[of_second] = _least_jq(problem, frfs, found, of_second)
    residual, jacobian, stated_variances = linearized(own, found[of_first])
    rows = information_rows(jacobian, row_variances(own, residual, jacobian, stated_variances))
    first_rows = np.zeros((len(rows), u.size))  # the modal tests have no information on the damping
    first_rows[:, of_first] = rows
    whole = dataclasses.replace(fit, best_u=found, initial_u=u, ends=[])
    return whole, np.concatenate([first_rows, _damping_rows(problem, frfs, found, of_second)])


def _of_second_step(problem: Problem) -> Bool[np.ndarray, "d"]:
    """Mask of the free parameters identified from the FRFs."""
    return np.array([name.split(".")[0] in OF_DAMPING for name in problem.free.names])


def _tests_of(problem: Problem, kind: type[T]) -> dict[int, T]:
    """Tests of a kind, by number."""
    return {k: test for k, test in enumerate(problem.tests) if isinstance(test, kind)}


def check_two_steps(problem: Problem) -> None:
    """Raise ValueError if one of the two steps has no free parameters or no tests."""
    second = _of_second_step(problem)
    prior = np.full(second.size, np.inf) if problem.prior is None else np.asarray(problem.prior.std)
    modal, frfs = _tests_of(problem, ModesTest), _tests_of(problem, FrfTest)
    for is_wrong, message in (
        (not modal, "no modal test is fitted, expected one for the stiffnesses"),
        (not frfs, "no FRF test is fitted, expected one for the damping"),
        (not second.any(), f"no damping is free, expected one of {', '.join(f'{name}.*' for name in OF_DAMPING)}"),
        (bool(second.all()), "damping alone is free, expected stiffnesses beside it"),
        (
            bool(np.isfinite(prior[second]).any()),
            "a prior of damping is given, expected none: only J_Q determines the damping",
        ),
        (len(modal) + len(frfs) < len(problem.tests), "expected modal and FRF tests alone"),
        (bool(problem.free.of_tests), "gains and delays of tests are free, expected parameters of the machine alone"),
    ):
        if is_wrong:
            raise ValueError(f"preset 'rognant2010': {message}")


def _undamped(test: ModesTest, problem: Problem) -> ModesTest:
    """The test with its shapes and with the frequencies of the undamped structure.

    For an eigenvalue lambda the frequency is |lambda| with viscous damping and Re(-lambda^2)^(1/2) with structural
    damping, to first order for damping distributed as stiffness or mass.
    """
    structural = any(name.startswith("loss_factor") for name in problem.free.names)
    squared = test.damping_ratio**2
    factor = (1.0 - 2.0 * squared if structural else 1.0) / (1.0 - squared)
    return dataclasses.replace(
        test,
        frequency_hz=test.frequency_hz * jnp.sqrt(factor),
        damping_std=jnp.full_like(test.damping_std, jnp.inf),
    )


def _first_problem(
    problem: Problem, modal: Iterable[ModesTest], chosen: Int[np.ndarray, "k"], values: np.ndarray
) -> Problem:
    """Problem of the first step, with all other parameters at given values."""
    prior = problem.prior
    if prior is not None:
        # damping has no prior: the rows of the others contain no column of it
        prior = Prior(prior.mean[chosen], prior.std[chosen], prior.rows[np.ix_(chosen, chosen)])
    undamped = [_undamped(test, problem) for test in modal]
    return make_problem(problem.free.apply(problem.model, values), subset(problem.free, chosen), undamped, prior)


def _responses(problem: Problem, frfs: Mapping[int, FrfTest], u: np.ndarray) -> list[np.ndarray]:
    """Predicted minus measured responses of each test [f, o, i], 0 for unused lines."""
    values = np.asarray(problem.free.values(u))
    errors = [np.asarray(test.predict(problem.view(k, values))) - np.asarray(test.measured) for k, test in frfs.items()]
    return [
        np.where(np.asarray(test.weight) > 0.0, each, 0.0) for test, each in zip(frfs.values(), errors, strict=True)
    ]


def _parts(responses: Sequence[np.ndarray]) -> np.ndarray:
    """Real parts of all responses, then imaginary parts."""
    flat = np.concatenate([each.ravel() for each in responses])
    return np.concatenate([np.real(flat), np.imag(flat)])


def _least_jq(problem: Problem, frfs: Mapping[int, FrfTest], u: np.ndarray, chosen: Int[np.ndarray, "k"]) -> np.ndarray:
    """Entries of u for damping with the smallest J_Q."""
    measured = [np.where(np.asarray(test.weight) > 0.0, test.measured, 0.0) for test in frfs.values()]
    size = np.sqrt(sum(np.sum(np.abs(each) ** 2) for each in measured))

    def error(x: np.ndarray) -> np.ndarray:
        tried = u.copy()
        tried[chosen] = x
        return _parts(_responses(problem, frfs, tried)) / size

    lower, upper = (np.asarray(bound)[chosen] for bound in (problem.free.lower, problem.free.upper))
    inside = np.clip(u[chosen], lower + STEP * (upper - lower), upper - STEP * (upper - lower))
    return scipy.optimize.least_squares(error, inside, bounds=(lower, upper), xtol=1e-10).x


def _damping_rows(
    problem: Problem, frfs: Mapping[int, FrfTest], u: np.ndarray, chosen: Int[np.ndarray, "k"]
) -> Float[np.ndarray, "k d"]:
    """Rows of weight 1 that determine the damping u_2 given u_1: R (d u_2 - S d u_1), S the effect of an error of u_1.

    The covariance R^-1 R^-T given u_1 is the sandwich (J^T J)^-1 G^T G (J^T J)^-1, times the correlation length in
    lines; G are the products of Jacobian and residual summed over the responses of each line.
    """
    steps = [
        (_responses(problem, frfs, u + step), _responses(problem, frfs, u - step)) for step in STEP * np.eye(u.size)
    ]
    slopes = [[(a - b) / (2.0 * STEP) for a, b in zip(*each, strict=True)] for each in steps]
    jacobian = np.stack([_parts(each) for each in slopes], axis=1)
    errors, products, length = _responses(problem, frfs, u), [], 1.0
    for t, error in enumerate(errors):
        own = np.stack([np.sum((np.conj(slopes[k][t]) * error).real, axis=(1, 2)) for k in chosen])
        size = np.sqrt(np.mean(own**2, axis=1, keepdims=True))
        scaled = own / np.where(size > 0.0, size, 1.0)
        length = max(length, correlation_length(scaled, np.ones(own.shape, dtype=bool)))
        products.append(own)
    scores = np.concatenate(products, axis=1)
    svd = scaled_svd(jacobian[:, chosen], WITHOUT_EFFECT)
    directions = svd.right[: svd.rank] / svd.scale
    scores, slope = directions @ scores, directions @ jacobian[:, chosen].T @ jacobian
    # for data without noise the residual is only rounding
    rounding = ROUNDING**2 * np.sum(_parts([np.asarray(test.measured) for test in frfs.values()]) ** 2) / len(jacobian)
    lower = np.linalg.cholesky(length * scores @ scores.T + rounding * slope[:, chosen] @ directions.T)
    return np.linalg.solve(lower, slope)
