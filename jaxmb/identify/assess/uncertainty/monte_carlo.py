"""Monte-Carlo and bootstrap: fits of a study to many draws of its noise, truth or residual, as one compiled program."""

import dataclasses
import os
from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float
from threadpoolctl import threadpool_limits

from jaxmb.compiled import compiled
from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.estimation.least_squares import (
    Box,
    LeastSquaresState,
    residual_and_jacobian,
    slope_cosine,
)
from jaxmb.identify.fit.devices import all_devices, in_blocks, replicated, sharded
from jaxmb.identify.fit.problem import Problem, final_state, test_at
from jaxmb.identify.fit.refine import least_squares_to_end
from jaxmb.identify.study.study import Solver, Study
from jaxmb.io.files import write_atomically
from jaxmb.io.validation import check_known, whole_number

AT_ONCE = 32
"""Draws per device between two progress reports."""
STATIONARY = 1e-6
"""Cosine between residual and Jacobian up to which a fit counts as converged."""


@dataclasses.dataclass(frozen=True, eq=False)
class Draws:
    """Fits of one study to many draws."""

    names: tuple[str, ...]
    """Names of the free parameters [d]."""
    logarithmic: Bool[np.ndarray, "d"]
    """Mask of parameters whose error is that of the logarithm; others in their own unit."""
    truth: Float[np.ndarray, "n d"]
    """True physical values of each draw; those of the fit for a bootstrap."""
    values: Float[np.ndarray, "n d"]
    """Physical values identified in each fit."""
    error: Float[np.ndarray, "n d"]
    """Errors of the logarithms, or of the values."""
    std: Float[np.ndarray, "n d"]
    """Standard deviation reported by each fit; inf where not identifiable."""
    cost: Float[np.ndarray, "n"]
    """Objective at the end of each fit, in units of the noise."""
    converged: Bool[np.ndarray, "n"]
    """Mask of the converged fits; statistics over all draws exclude the others."""

    @property
    def covered(self) -> Bool[np.ndarray, "n d"]:
        """Whether the 95 % interval of each fit contains the true value."""
        return np.abs(self.error) <= INTERVAL * self.std

    @property
    def coverage(self) -> Float[np.ndarray, "d"]:
        """Share of the fits whose 95 % interval contains the true value."""
        return np.mean(self.covered[self.converged], axis=0)

    @property
    def scatter(self) -> Float[np.ndarray, "d"]:
        """Standard deviation of the errors over all draws."""
        return np.std(self.error[self.converged], axis=0, ddof=1)

    @property
    def bias(self) -> Float[np.ndarray, "d"]:
        """Mean error over all draws."""
        return np.mean(self.error[self.converged], axis=0)

    @property
    def ratio(self) -> float:
        """Errors over their stated standard deviations, root mean square over draws and parameters."""
        return float(np.sqrt(np.mean((self.error / self.std)[self.converged] ** 2)))

    def interval(self, share: float = 0.95) -> Float[np.ndarray, "d 2"]:
        """Quantiles of the values over the draws between which that share of them lies."""
        return np.quantile(self.values[self.converged], [0.5 - 0.5 * share, 0.5 + 0.5 * share], axis=0).T


def monte_carlo(
    study: Study,
    draws: int = 200,
    seed: int = 0,
    truth: Mapping[str, float] | Float[np.ndarray, "n d"] | None = None,
    starts: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> Draws:
    """Fits of a study to data simulated at known true values, with many draws of its noise.

    The noise is Gaussian, with the stated standard deviations, and added to the quantities of the residual: log H of
    FRFs, displacements, frequencies. A prior is treated as a measurement and resampled as well. All fits are one
    compiled program, distributed over all devices.

    Args:
        study: from `load_study`, or `result.study`, whose tests have the noise that was estimated.
        draws: number of draws.
        seed: of the noise and of further starts.
        truth: true values by name (or [n, d], one row a draw, in the order of `study.free.names`); those with which
            the study simulates its tests where not given.
        starts: number of random points within the bounds at which each fit begins in addition to the true values; the
            lowest minimum is used. With 0 the result is the effect of noise near the true minimum.
        report: called with the number of finished draws and of all draws.

    Raises:
        ValueError: the true values are not known, or not those of the free parameters, or no fit to any draw converges.
        NotImplementedError: the study finds a complete stiffness model, or is fitted in two steps.
    """
    _check(study, draws)
    true = np.array([study.free.encode(values) for values in _true_values(study, truth, draws)])
    weights = np.asarray(study.problem.stated_variances())

    def errors(rng: np.random.Generator) -> np.ndarray:
        return -np.sqrt(weights) * rng.normal(size=weights.size)  # minus: the residual is predicted minus measured

    return _fitted(study.problem, true, seed, errors, report, starts, simulated=True)


def bootstrap(
    result: Result,
    draws: int = 200,
    seed: int = 0,
    report: Callable[[int, int], None] | None = None,
) -> Draws:
    """Fits of an identified study to its predictions plus a bootstrap sample of its residual.

    No stated noise is needed. Residuals of an FRF test are resampled in blocks of neighbouring lines, with all outputs
    and inputs, one correlation length long; those of other tests row by row, of autocorrelated torques with the
    variance multiplied by the correlation length. They are scaled for the degrees of freedom of the fit. Fits start
    from the identified values.

    Args:
        result: of `identify`.
        draws: number of draws.
        seed: of the draws.
        report: called with the number of finished draws and of all draws.

    Raises:
        ValueError: the residual is only rounding, or no fit to any draw converges.
        NotImplementedError: the study finds a complete stiffness model, or is fitted in two steps.

    Source: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 9.4; blocks: Kuensch, "The jackknife
        and the bootstrap for general stationary observations", Ann. Statist. 17, 1217 (1989).
    """
    study = result.study
    _check(study, draws)
    if result.cost <= study.settings.tolerance:
        raise ValueError("the residual of the fit is only rounding, expected data with noise for a bootstrap")
    problem, free = study.problem, study.free
    u = np.clip(
        free.encode(np.array([result.parameters[name].value for name in free.names])),
        np.asarray(free.lower),
        np.asarray(free.upper),
    )
    residual, _, weights = (np.asarray(x) for x in final_state(problem, jax.device_put(u)))
    used = np.count_nonzero(residual[: problem.data_rows])
    larger = np.sqrt(used / max(used - free.size - sum(test.noise.nuisance_rows for test in problem.tests), 1))

    def errors(rng: np.random.Generator) -> np.ndarray:
        parts = [
            test.noise.resample(residual[rows], weights[rows], rng) * larger
            for rows, test in zip(problem.row_slices, problem.tests, strict=True)
        ]
        prior = weights[problem.data_rows :]
        return np.concatenate([*parts, np.sqrt(prior) * rng.normal(size=prior.size)])

    return _fitted(problem, np.repeat(u[None], draws, axis=0), seed, errors, report)


def write_draws(path: str | os.PathLike[str], draws: Draws) -> None:
    """Write draws as an NPZ file, an array for each field of `Draws`."""
    buffer = BytesIO()
    arrays = {field.name: np.asarray(getattr(draws, field.name)) for field in dataclasses.fields(draws)}
    np.savez(buffer, **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(Path(path), buffer.getvalue())


def _check(study: Study, draws: int) -> None:
    if study.solver is Solver.STIFFNESS_MODEL:
        raise NotImplementedError("draws are for studies with free parameters, and this one has [complete]")
    if study.solver is Solver.TWO_STEPS:
        raise NotImplementedError("draws are for fits to all tests at once, and this study is fitted in two steps")
    whole_number("draws", draws, 2)


def _true_values(
    study: Study, truth: Mapping[str, float] | Float[np.ndarray, "n d"] | None, draws: int
) -> Float[np.ndarray, "n d"]:
    names = study.free.names
    if truth is None or isinstance(truth, Mapping):
        known = study.truth if truth is None else truth
        check_known("truth: free parameter", truth or (), names)
        missing = [name for name in names if name not in known]
        if missing:
            raise ValueError(f"the true value of '{missing[0]}' is not known, expected truth with all free parameters")
        truth = np.array([[known[name] for name in names]])
    truth = np.asarray(truth, dtype=float)
    if truth.ndim != 2 or truth.shape[1] != len(names) or truth.shape[0] not in (1, draws):
        raise ValueError(f"truth has the shape {truth.shape}, expected ({draws}, {len(names)})")
    wrong = ~np.isfinite(truth) | (np.array(study.free.logarithmic) & (truth <= 0.0))
    if wrong.any():
        row, k = np.argwhere(wrong)[0]
        above = " above 0, as it is fitted on a logarithmic scale" if study.free.logarithmic[k] else ""
        raise ValueError(f"the true value of '{names[k]}' is {truth[row, k]:g}, expected a finite number{above}")
    return np.broadcast_to(truth, (draws, len(names)))


def _fitted(
    problem: Problem,
    true: Float[np.ndarray, "n d"],
    seed: int,
    errors: Callable[[np.random.Generator], np.ndarray],
    report: Callable[[int, int], None] | None,
    starts: int = 0,
    simulated: bool = False,
) -> Draws:
    """Fits to draws of the errors.

    Args:
        problem: of the study.
        true: u of each draw.
        seed: of the draws.
        errors: of the residual, drawn.
        report: of progress.
        starts: number of further starts of each fit.
        simulated: whether the data of the tests are replaced by noise-free simulations.
    """
    free = problem.free
    fixed = replicated((problem, problem.box))
    parts = []
    with threadpool_limits(1, user_api="blas"):
        for u, begin, shift in _batches(problem, true, seed, errors, starts):
            parts.append([np.asarray(x) for x in _fit_draws(*fixed, simulated, *replicated((u, begin, shift)))])
            if report is not None:
                report(min(len(parts) * len(u), len(true)), len(true))
    u, cost, std, converged = (np.concatenate(x)[: len(true)] for x in zip(*parts, strict=True))
    if not converged.any():
        raise ValueError(
            f"none of {len(true)} fits to draws converged: the free parameters are not identifiable from the data"
        )
    logarithmic, size = np.array(free.logarithmic), free.slope(np.ones(len(free.names)))
    values, truth = (np.array([free.values(x) for x in rows]) for rows in (u, true))
    return Draws(free.names, logarithmic, truth, values, (u - true) * size, std * size, cost, converged)


def _batches(
    problem: Problem,
    true: Float[np.ndarray, "n d"],
    seed: int,
    errors: Callable[[np.random.Generator], np.ndarray],
    starts: int,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Batches of true u, starts and shifts of the residual; the last batch is padded."""
    mesh = all_devices()
    count = min(AT_ONCE * (1 if mesh is None else mesh.size), len(true))
    lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
    for first in range(0, len(true), count):
        numbers = [min(first + k, len(true) - 1) for k in range(count)]
        own = [np.random.default_rng([seed, k]) for k in numbers]
        u = true[numbers]
        shift = np.array([errors(rng) for rng in own])
        drawn = np.array([rng.uniform(size=(starts, lower.size)) for rng in own])
        yield u, np.concatenate([np.clip(u, lower, upper)[:, None], lower + drawn * (upper - lower)], axis=1), shift


@compiled
def _fit_draws(
    problem: Problem,
    box: Box,
    simulated: bool,
    u: Float[Array, "n d"] | Float[np.ndarray, "n d"],
    begin: Float[Array, "n s d"] | Float[np.ndarray, "n s d"],
    shift: Float[Array, "n m"] | Float[np.ndarray, "n m"],
) -> tuple[Float[Array, "n d"], Float[Array, "n"], Float[Array, "n d"], Bool[Array, "n"]]:
    """u, objective, standard deviation of u and convergence of the fit to each draw."""

    def some(draws: tuple[Array, Array, Array], problem: Problem, box: Box) -> tuple[Array, Array, Array, Array]:
        def one(draw: tuple[Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
            true, starts, noise = draw
            own = _simulated(problem, true) if simulated else problem
            there = own.residual(true) / own.noise_unit

            def residual(x: Array) -> Array:
                return own.residual(x) / own.noise_unit - there + noise

            ends = jax.lax.map(lambda x: least_squares_to_end(residual, box, x), starts)
            lowest = jnp.argmin(jnp.where(jnp.isfinite(ends.objective), ends.objective, jnp.inf))
            end: LeastSquaresState = jax.tree.map(lambda x: x[lowest], ends)
            jacobian = residual_and_jacobian(residual, end.u)[1]
            converged = jnp.isfinite(end.objective) & (slope_cosine(end, box) <= STATIONARY)
            return end.u, end.objective, _deviation(jacobian, jnp.asarray(own.stated_variances())), converged

        return in_blocks(one, draws, problem.memory_of_fits)

    return sharded(some, (u, begin, shift), problem, box)


def _simulated(problem: Problem, u: Float[Array, "d"]) -> Problem:
    """The problem with noise-free data."""
    values = problem.free.values(u)
    tests = (
        test_at(test, problem.free, values).noise.noiseless(problem.view(k, values))
        for k, test in enumerate(problem.tests)
    )
    return dataclasses.replace(problem, tests=tuple(tests))


def _deviation(jacobian: Float[Array, "m d"], weights: Float[Array, "m"]) -> Float[Array, "d"]:
    """Standard deviation of a weighted estimate (see `identifiability`); inf where not identifiable."""
    scale = jnp.sqrt(jnp.sum(jacobian**2, axis=0))
    columns = jacobian / jnp.where(scale > 0.0, scale, 1.0)
    inverse = jnp.linalg.inv(columns.T @ columns)
    std = jnp.sqrt(jnp.diagonal(inverse @ ((columns.T * weights) @ columns) @ inverse)) / scale
    return jnp.where(jnp.isfinite(std), std, jnp.inf)
