"""The loop of Huynh et al. 2020, Fig. 2: search and refine, repeated until the tolerance or the round limit."""

import dataclasses
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.monitoring
import numpy as np

from jaxmb.identify.fit.devices import check_shared, from_first_process, is_first
from jaxmb.identify.fit.noise import explained_objective
from jaxmb.identify.fit.problem import Problem, compressed
from jaxmb.identify.fit.refine import Descent, LeastSquares, NelderMead, insensitive_restored, polished
from jaxmb.identify.fit.search import DEFAULT, RANDOM_FIRST, PopulationSearch
from jaxmb.identify.fit.settings import FitSettings, Start
from jaxmb.identify.fit.state import (
    MOST_ENDS,
    NOT_FINITE,
    Fit,
    Refinement,
    Stage,
    distinct,
    fingerprint,
    load_state,
    same_end,
    save_state,
)

SAME_MINIMUM = 1e-6
"""Relative difference of costs up to which two starts converged to the same minimum."""
SAME_CHI2 = 0.1
"""Difference of chi-squares, over the mean for a row, up to which they did, where that is more."""
SAVE_EVERY_S = 2.0
LOCAL_STEP = 2.0
"""Largest change of any u from the best minimum to a start around it: a factor of 7 of a logarithmic parameter."""
DISTINGUISHABLE = 1.0
"""Distance of two intermediate points of minimizations, in units of the noise, below which only one is continued."""
RANDOM_ROUNDS = 8
"""Rounds with random starts only; later ones begin with a population search from the best minimum."""
MANY_STARTS = 32
SURE = 3
"""After `MANY_STARTS` starts, a minimum reached by `SURE` times the requested number is accepted even if noise does not
explain its cost: the probability of having missed a better one found by one start in ten is 3 %."""
LEAST_LINES = 8
"""Smallest number of coarse lines of each test, for many tests."""
WORTHWHILE = 3.0
"""Largest coarse objective, over the lowest of all starts, of a start that is refined on all lines."""


class Compilation:
    """Seconds that JAX has spent compiling in this process."""

    def __init__(self) -> None:
        """Listen to JAX from now on."""
        self.seconds = 0.0
        jax.monitoring.register_event_duration_secs_listener(self._add)

    def _add(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            self.seconds += duration_secs


COMPILATION = Compilation()


class Report(NamedTuple):
    """Progress report of a fit."""

    round: int
    rounds: int
    stage: str
    evaluations: int
    cost: float
    """Best objective so far, on all lines and with the study's weights."""


def run_fit(
    problem: Problem,
    settings: FitSettings,
    start: Start,
    seed: int,
    state_file: Path | None = None,
    resume: bool = False,
    report: Callable[[Report], None] | None = None,
) -> Fit:
    """Fit the free parameters of a problem.

    Every round draws random starts (or takes those of a population search), fits all of them to a few evenly weighted
    lines, and refines the best on all lines, except those equal to an earlier refined one on the coarse lines. If
    `RANDOM_ROUNDS` rounds of random starts do not end the fit, because they disagree or noise does not explain the best
    minimum, further rounds begin with a population search from that minimum. Rounds differ only by their random key, so
    that a run resumed from a saved state continues identically. At the end, unless no round is left, starts around the
    best minimum along the least determined directions are tried until none of them gives a lower minimum.

    Args:
        problem: tests and free parameters.
        settings: of search, refinement and stopping.
        start: first start.
        seed: seed of search and starts.
        state_file: file in which the state is saved every few seconds; None for none.
        resume: whether to continue from the saved state, if there is one.
        report: called after every advance.

    Raises:
        InputError: the saved state is of another problem, setting or seed, or cannot be read.
    """
    *searches, refinement = stages = _stages(problem, settings)
    run = _Run(problem, settings, start, seed)
    digest = "" if state_file is None else fingerprint(problem, settings, start, seed)
    fit, stage_state = Fit(stage=_first_stage(settings, 0)), None
    if resume and state_file is not None:
        check_shared(state_file)
    if resume and state_file is not None and state_file.exists():
        fit, stage_state = load_state(state_file, digest, stages, settings, problem.free.size)
    saved = time.monotonic()
    while not fit.done:
        stage = stages[fit.stage]
        searching = fit.stage < len(searches)
        began, compiled_before = time.monotonic(), COMPILATION.seconds
        if stage_state is None:
            if isinstance(stage, PopulationSearch) and fit.population_evaluations == 0:
                fit.before_population = fit.best
            incoming = _starts(run, fit) if fit.candidates is None else fit.candidates
            drawn_from = np.random.SeedSequence([seed, fit.round, fit.stage])
            stage_state = from_first_process(stage.begin(int(drawn_from.generate_state(1)[0]), incoming))
        evaluations_before = stage.progress(stage_state).evaluations
        stage_state = from_first_process(stage.advance(stage_state, float("inf") if searching else fit.best))
        progress = stage.progress(stage_state)
        compiled = COMPILATION.seconds - compiled_before
        fit.compile_seconds += compiled
        spent = time.monotonic() - began - compiled
        if searching:
            fit.search_seconds += spent
        else:
            fit.refine_seconds += spent
        objective = np.inf if searching else progress.objective
        # on all lines only after every fourfold increase of evaluations, as it takes as long as several coarse steps
        is_fourfold = progress.evaluations.bit_length() // 2 > evaluations_before.bit_length() // 2
        if searching and not fit.converged and is_fourfold:
            objective = from_first_process(refinement.objective_at(progress.u))
        if objective < fit.best:
            fit.best, fit.best_u, fit.converged = objective, progress.u, False
        so_far = fit.search_evaluations + fit.refine_evaluations + progress.evaluations
        is_on_all_lines = not (searching and settings.refine.coarse_lines)
        _extend_history(fit, so_far, progress.costs if is_on_all_lines else np.zeros(0))
        if report is not None:
            report(Report(fit.round + 1, settings.rounds, stage.name, so_far, fit.best))
        if progress.finished:
            if searching:
                _finish_search(run, fit, stage, stage_state)
            else:
                _finish_refinement(run, fit, stage, stage_state)
            stage_state = None
            fit.stage += 1
            if fit.stage == len(stages) or fit.candidates is None:
                _finish_round(run, fit)
        if fit.done and fit.converged and fit.best_u is not None and fit.best > settings.tolerance:
            fit.best_u = from_first_process(polished(problem, fit.best_u))
        if fit.done and fit.best_u is not None and fit.initial_u is not None:
            fit.best_u = from_first_process(insensitive_restored(problem, fit.best_u, fit.initial_u))
        if state_file is not None and is_first() and (fit.done or time.monotonic() - saved > SAVE_EVERY_S):
            save_state(state_file, digest, fit, stage_state)
            saved = time.monotonic()
    return fit


def _extend_history(fit: Fit, evaluations: int, costs: np.ndarray) -> None:
    """Append to the history each new minimum of the last evaluations, and the best at their end."""
    best = fit.history[-1][1] if fit.history else np.inf
    for number, cost in enumerate(costs.tolist(), evaluations - costs.size + 1):
        if cost < min(best, NOT_FINITE):
            best = cost
            fit.history.append((number, best))
    if not fit.history or fit.history[-1][0] < evaluations or fit.best < best:
        fit.history.append((evaluations, min(best, fit.best)))


class _Run(NamedTuple):
    """Constants of a fit."""

    problem: Problem
    settings: FitSettings
    start: Start
    seed: int


def _stages(problem: Problem, settings: FitSettings) -> tuple[*tuple[Stage, ...], Refinement]:
    box, refine, search = problem.box, settings.refine, settings.search
    coarse = coarsened(problem, refine.coarse_lines) if refine.coarse_lines else problem
    stages: list[Stage] = []
    if search.algorithm != "random":
        algorithm = DEFAULT if search.algorithm in RANDOM_FIRST else search.algorithm
        stages.append(PopulationSearch(coarse, box, algorithm, search.population, search.generations))
    if refine.method == "least-squares":
        if refine.coarse_lines and any(test.lines is not None for test in problem.tests):
            # In this stage the gradient tolerance only needs to detect convergence.
            exact = settings.tolerance * _weight(coarse) / _weight(problem)
            stages.append(LeastSquares("starts", coarse, box, refine.coarse_steps, refine.starts, 1e-6, exact))
            keep = min(refine.keep, refine.starts)
        else:
            keep = refine.starts
        last: Refinement = LeastSquares("refine", problem, box, refine.most_steps, keep, refine.gradient_tolerance)
    elif refine.method == "nelder-mead":
        last = NelderMead(problem, box, refine.most_steps)
    else:
        last = Descent(problem, box, refine.method, refine.most_steps)
    return *stages, last


def _first_stage(settings: FitSettings, round_number: int) -> int:
    """First stage of a round: the population search, or the one after it."""
    is_named = settings.search.algorithm not in RANDOM_FIRST
    is_late = settings.search.algorithm == "auto" and round_number >= RANDOM_ROUNDS
    return 0 if is_named or is_late else _after_search(settings)


def _after_search(settings: FitSettings) -> int:
    """First stage after the population search."""
    return int(settings.search.algorithm != "random")


def _weight(problem: Problem) -> float:
    """Sum of the weights of all tests with lines, the reference of the tolerance."""
    return sum(float(np.sum(np.asarray(test.stated_variances()))) for test in problem.tests if test.lines is not None)


def coarsened(problem: Problem, lines: int) -> Problem:
    """The problem on fewer lines of each test that has lines (see `FrfLines.decimate`), fewer for many tests."""
    count = sum(test.lines is not None for test in problem.tests)
    lines = min(lines, max(LEAST_LINES, -(-2 * lines // max(count, 1))))
    tests = (test if test.lines is None else test.lines.decimate(lines) for test in problem.tests)
    return dataclasses.replace(problem, tests=tuple(tests))


def _starts(run: _Run, fit: Fit) -> np.ndarray:
    """Starts of a round: the initial values, then uniform random points in the box.

    Later rounds start from the best so far, unless its refinement has converged and there is no population search.
    """
    free, search, start = run.problem.free, run.settings.search, run.start
    lower, upper = np.asarray(free.lower), np.asarray(free.upper)
    searched = fit.stage < _after_search(run.settings)
    count = max(run.settings.refine.starts, search.population if searched else 1)
    starts = lower + np.random.default_rng([run.seed, fit.round]).uniform(size=(count, lower.size)) * (upper - lower)
    if fit.best_u is not None:
        if searched or not fit.converged:
            starts[0] = fit.best_u
        return starts
    kept = start.given | (not start.random)
    starts[0] = np.clip(np.where(kept, free.encode(start.values), starts[0]), lower, upper)
    fit.initial_u = starts[0]
    return starts


def _finish_search(run: _Run, fit: Fit, stage: Stage, state: Any) -> None:
    """Candidates for the next stage, from a population search or from starts fitted on the coarse lines."""
    progress, (candidates, objectives) = stage.progress(state), stage.outcome(state)
    fit.non_finite += progress.non_finite
    fit.search_evaluations += progress.evaluations
    if isinstance(stage, PopulationSearch):
        fit.population_evaluations += progress.evaluations
        missing = run.settings.refine.starts - len(candidates)
        if missing > 0:
            candidates = np.concatenate([candidates, _starts(run, fit)[1 : missing + 1]])
    else:
        fit.best_start = min(fit.best_start, float(objectives[0]))
        searched = _first_stage(run.settings, fit.round) < _after_search(run.settings)
        candidates, fit.counts = _distinct_unrefined(
            fit, candidates[objectives <= WORTHWHILE * fit.best_start], once=searched
        )
        if fit.metric is not None:
            fit.counts = []
            candidates = _distinguishable(fit, fit.metric, candidates)
    fit.candidates = candidates if len(candidates) else None


def _finish_refinement(run: _Run, fit: Fit, stage: Stage, state: Any) -> None:
    """Minima and end points of the refined candidates."""
    progress = stage.progress(state)
    fit.non_finite += progress.non_finite
    fit.refine_evaluations += progress.evaluations
    if isinstance(stage, LeastSquares):
        ended = (np.asarray(state.stationary) | np.asarray(state.stalled)) & (np.asarray(state.evaluations) > 0)
        counts = np.array([*fit.counts, *[1] * ended.size])[: ended.size]
        objectives, is_counted = np.asarray(state.objective)[ended], ended[: len(fit.counts)]
        fit.minima += np.repeat(objectives, counts[ended]).tolist()
        if fit.counts and fit.candidates is not None:
            pairs = zip(objectives, fit.candidates[: is_counted.size][is_counted], strict=True)
            fit.refined += [np.append(objective, u) for objective, u in pairs]
        # Far below the tolerance the objective is rounding, which differs between programs: the lowest objective may be
        # that of a start on few lines.
        fit.converged = min(fit.minima, default=np.inf) <= max(fit.best, run.settings.tolerance)
        ends = np.column_stack([np.asarray(state.objective), np.asarray(state.u)])
        ends = [*fit.ends, *ends[np.isfinite(ends).all(axis=1)]]
        fit.ends = distinct(sorted(ends, key=lambda end: float(end[0])))[:MOST_ENDS]


def _finish_round(run: _Run, fit: Fit) -> None:
    fit.candidates, fit.counts = None, []
    if fit.local_starts is None:
        fit.round += 1
        fit.stage = _first_stage(run.settings, fit.round)
        fit.done = _done(run, fit)
        is_inexact = run.settings.refine.method == "least-squares" and fit.best > run.settings.tolerance
        if fit.done and is_inexact and fit.round < run.settings.rounds:
            fit.local_starts = _local_starts(run.problem, fit)
    elif fit.best < fit.local_objective * (1.0 - SAME_MINIMUM):
        fit.local_starts = _local_starts(run.problem, fit)
    if fit.local_starts is not None:
        count = run.settings.refine.starts
        fit.candidates, fit.local_starts = fit.local_starts[:count], fit.local_starts[count:]
        fit.done = len(fit.candidates) == 0
        fit.stage = _after_search(run.settings)


def _local_starts(problem: Problem, fit: Fit) -> np.ndarray:
    """Starts around the best minimum, along the directions with the least effect on the data, weakest first.

    Other minima as good as this one, or better ones, are most often there, and random starts may miss all of them.
    """
    if fit.best_u is None:
        return np.zeros((0, problem.free.size))
    fit.local_objective = fit.best
    triangle = from_first_process(compressed(problem, fit.best_u)[1])
    fit.metric, fit.tried = triangle, []
    directions = np.linalg.svd(triangle)[2][::-1]
    steps = LOCAL_STEP * directions / np.max(np.abs(directions), axis=1, keepdims=True)
    starts = np.stack([fit.best_u + steps, fit.best_u - steps], axis=1).reshape(-1, fit.best_u.size)
    # Rounding determines the signs of directions and the order of equal ones.
    return from_first_process(np.clip(starts, np.asarray(problem.free.lower), np.asarray(problem.free.upper)))


def _distinct_unrefined(fit: Fit, candidates: np.ndarray, once: bool) -> tuple[np.ndarray, list[int]]:
    """Distinct end points on the coarse lines that have not been refined yet, and the number of starts that reached
    each. For the others, the known refined objective is counted as a further agreement.

    Args:
        fit: so far.
        candidates: ends of starts [s, d].
        once: whether starts with one end point count as one, as they are from one population.
    """
    distinct_ends: list[np.ndarray] = []
    counts: list[int] = []
    known: set[int] = set()
    for u in candidates:
        k, own = same_end(u, fit.refined), same_end(u, distinct_ends)
        if k is not None:
            if not (once and k in known):
                fit.minima.append(float(fit.refined[k][0]))
            known.add(k)
        elif own is None:
            distinct_ends.append(np.append(np.nan, u))
            counts.append(1)
        else:
            counts[own] += not once
    return np.array(distinct_ends).reshape(-1, candidates.shape[1] + 1)[:, 1:], counts


def _distinguishable(fit: Fit, metric: np.ndarray, candidates: np.ndarray) -> np.ndarray:
    """Candidates that the data distinguish from those of earlier local starts; they are added to these."""
    new = []
    for u in candidates:
        if all(np.linalg.norm(metric @ (u - other)) > DISTINGUISHABLE for other in fit.tried):
            fit.tried.append(u)
            new.append(u)
    return np.array(new).reshape(-1, candidates.shape[1])


def _done(run: _Run, fit: Fit) -> bool:
    """Whether the best minimum is accepted, or no round is left."""
    settings = run.settings
    same = max(SAME_MINIMUM, SAME_CHI2 / max(run.problem.data_rows, 1))
    agree = sum(m <= fit.best * (1.0 + same) for m in fit.minima)
    found = agree >= settings.agreement and fit.best <= explained_objective(run.problem)
    lasting = agree >= SURE * settings.agreement and fit.round * settings.refine.starts >= MANY_STARTS
    good = fit.best <= settings.tolerance and (fit.converged or settings.refine.method != "least-squares")
    return good or ((found or lasting) and fit.round >= settings.least_rounds) or fit.round >= settings.rounds
