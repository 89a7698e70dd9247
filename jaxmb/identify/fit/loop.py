"""The loop of Huynh et al. 2020, Fig. 2: search, refine, again from there until the tolerance or the round limit."""

import dataclasses
import hashlib
import time
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np

from jaxmb.identify.estimation.least_squares import Box, residual_and_jacobian
from jaxmb.identify.experiments.frf_test import FrfTest
from jaxmb.identify.fit.problem import Problem
from jaxmb.identify.fit.refine import Descent, LeastSquares, NelderMead
from jaxmb.identify.fit.search import PopulationSearch
from jaxmb.identify.fit.stage import Stage, objective
from jaxmb.identify.study.study import Study
from jaxmb.io.arrays import read_arrays
from jaxmb.io.files import write_whole
from jaxmb.io.validation import InputError

SAME_MINIMUM = 1e-6
"""Two starts came to the same minimum where their costs agree to this, relative."""
SAVE_EVERY_S = 2.0
WORTHWHILE = 3.0
"""A start goes on to all lines where its coarse objective is below this many times the lowest of any start."""
PLAUSIBLE = 2.0
"""A minimum may be the right one where its objective is below this many times what the noise alone gives."""

MOST_ENDS = 100
"""Starts whose end is kept, to ask afterwards which of them the noise tells from the best."""


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
    """What is shown while a fit runs."""

    round: int
    rounds: int
    stage: str
    evaluations: int
    cost: float
    """Best objective so far, on all lines and with the study's own weights."""


@dataclasses.dataclass
class Fit:
    """Everything a fit knows between two advances of a stage; all of it is saved."""

    round: int = 0
    stage: int = 0
    initial_u: np.ndarray | None = None
    """First start of the first round."""
    best_u: np.ndarray | None = None
    best: float = float("inf")
    settled: bool = False
    """Whether the best candidate has been refined to its end."""
    best_start: float = float("inf")
    """Lowest objective of any start on the coarse lines."""
    minima: list[float] = dataclasses.field(default_factory=list)
    """Objective of every start that was refined to its end, all rounds."""
    ends: list[np.ndarray] = dataclasses.field(default_factory=list)
    """Where starts on all lines came to, ended or not: the objective, then u. The `MOST_ENDS` lowest, ascending."""
    history: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """(evaluations so far, best objective so far)."""
    search_evaluations: int = 0
    refine_evaluations: int = 0
    non_finite: int = 0
    compile_seconds: float = 0.0
    search_seconds: float = 0.0
    refine_seconds: float = 0.0
    candidates: np.ndarray | None = None
    """What the last finished stage of the round handed on."""
    done: bool = False


def run_fit(
    study: Study,
    seed: int,
    state_file: Path | None = None,
    resume: bool = False,
    report: Callable[[Report], None] | None = None,
) -> Fit:
    """Fit a study's free parameters.

    Every round draws starts (or lets a population search propose them), fits all of them to a few evenly weighted
    lines, and refines the best on everything. Rounds differ by their random key only, so that a run taken up again
    from a saved state goes on exactly as it would have.

    Args:
        study: the study.
        seed: seed of search and starts.
        state_file: where the state is saved every few seconds; not saved where None.
        resume: take up the saved state where there is one.
        report: called after every advance.

    Raises:
        InputError: the saved state is of another study or seed, or cannot be read.
    """
    problem = study.problem
    stages = _stages(study, problem)
    mark = _fingerprint(study, seed)
    fit, stage_state = Fit(), None
    if resume and state_file is not None and state_file.exists():
        fit, stage_state = _load(state_file, mark, stages, study)
    saved = time.monotonic()
    while not fit.done:
        stage = stages[fit.stage]
        searching = fit.stage < len(stages) - 1
        began, compiled_before = time.monotonic(), COMPILATION.seconds
        if stage_state is None:
            incoming = _starts(study, fit, seed) if fit.candidates is None else fit.candidates
            stage_state = stage.begin(_key(seed, fit), jnp.asarray(incoming))
        stage_state = stage.advance(stage_state, float("inf") if searching else fit.best)
        progress = stage.progress(stage_state)
        compiled = COMPILATION.seconds - compiled_before
        fit.compile_seconds += compiled
        spent = time.monotonic() - began - compiled
        if searching:
            fit.search_seconds += spent
        else:
            fit.refine_seconds += spent
        reached = progress.objective if not searching else float(objective(problem, jnp.asarray(progress.u)))
        if reached < fit.best:
            fit.best, fit.best_u, fit.settled = reached, progress.u, False
        so_far = fit.search_evaluations + fit.refine_evaluations + progress.evaluations
        fit.history.append((so_far, fit.best))
        if report is not None:
            report(Report(fit.round + 1, study.rounds, stage.name, so_far, fit.best))
        if progress.finished:
            _finish_stage(study, fit, stage, stage_state, searching, seed)
            stage_state = None
            fit.stage += 1
            if fit.stage == len(stages) or fit.candidates is None:
                _finish_round(study, fit)
        if state_file is not None and (fit.done or time.monotonic() - saved > SAVE_EVERY_S):
            _save(state_file, mark, fit, stage_state)
            saved = time.monotonic()
    return fit


def _stages(study: Study, problem: Problem) -> list[Stage]:
    box = Box(study.free.lower, study.free.upper, jnp.asarray(study.free.logarithmic))
    refine, search = study.refine, study.search
    coarse = coarsened(problem, refine.coarse_lines) if refine.coarse_lines else problem
    stages: list[Stage] = []
    if search.algorithm != "random":
        stages.append(PopulationSearch(coarse, box, search.algorithm, search.population, search.generations))
    if refine.method == "least-squares":
        if refine.coarse_lines and any(isinstance(t, FrfTest) for t in study.tests):
            # This far from the end the gradient tolerance only needs to tell what has settled.
            exact = study.tolerance * _weight(coarse) / _weight(problem)
            stages.append(LeastSquares("starts", coarse, box, refine.coarse_steps, refine.starts, 1e-6, exact))
            keep = min(refine.keep, refine.starts)
        else:
            keep = refine.starts
        stages.append(LeastSquares("refine", problem, box, refine.most_steps, keep, refine.gradient_tolerance))
    elif refine.method == "nelder-mead":
        stages.append(NelderMead(problem, box, refine.most_steps))
    else:
        stages.append(Descent(problem, box, refine.method, refine.most_steps))
    return stages


def _weight(problem: Problem) -> float:
    """Sum of all FRF weights of a problem, what its tolerance is measured against."""
    return sum(float(np.sum(np.asarray(t.weight))) for t in problem.tests if isinstance(t, FrfTest))


def coarsened(problem: Problem, lines: int) -> Problem:
    """The problem on at most `lines` lines of each FRF, spread evenly, all with the same weight.

    Peaks that are weighted up make a landscape of narrow valleys; on evenly weighted lines most random starts find the
    right one, and a few lines show it as well as all.
    """

    def thin(test: Any) -> Any:
        if not isinstance(test, FrfTest):
            return test
        picked = np.unique(np.linspace(0, test.omega.size - 1, min(lines, test.omega.size)).round().astype(int))
        return dataclasses.replace(
            test,
            omega=jnp.asarray(np.asarray(test.omega)[picked]),
            measured=jnp.asarray(np.asarray(test.measured)[picked]),
            weight=jnp.asarray((np.asarray(test.weight)[picked] > 0.0).astype(float)),
            noise_std=jnp.asarray(np.asarray(test.noise_std)[picked]),
        )

    return dataclasses.replace(problem, tests=tuple(thin(test) for test in problem.tests))


def _key(seed: int, fit: Fit) -> jax.Array:
    return jax.random.PRNGKey(np.random.SeedSequence([seed, fit.round, fit.stage]).generate_state(1)[0])


def _starts(study: Study, fit: Fit, seed: int) -> np.ndarray:
    """Starts of a round: the initial values, then points drawn evenly in the box.

    Later rounds go on from the best so far, unless that has come to its end already and a search would not move it.
    """
    lower, upper = np.asarray(study.free.lower), np.asarray(study.free.upper)
    count = max(study.refine.starts, study.search.population if study.search.algorithm != "random" else 1)
    drawn = np.random.default_rng([seed, fit.round]).uniform(size=(count, lower.size))
    starts = lower + drawn * (upper - lower)
    if fit.best_u is not None:
        if not (fit.settled and study.search.algorithm == "random"):
            starts[0] = fit.best_u
        return starts
    given = np.array([source == "given" or not study.random_start for source in study.initial_source])
    starts[0] = np.clip(np.where(given, study.free.encode(study.initial), starts[0]), lower, upper)
    fit.initial_u = starts[0]
    return starts


def _finish_stage(study: Study, fit: Fit, stage: Stage, state: Any, searching: bool, seed: int) -> None:
    progress = stage.progress(state)
    fit.non_finite += progress.non_finite
    if searching:
        fit.search_evaluations += progress.evaluations
        candidates, objectives = stage.outcome(state)
        if isinstance(stage, LeastSquares):
            fit.best_start = min(fit.best_start, float(objectives[0]))
            candidates = candidates[objectives <= WORTHWHILE * fit.best_start]
        elif len(candidates) < study.refine.starts:
            # A search of few candidates leaves room for starts drawn at random beside them.
            drawn = _starts(study, fit, seed)[1 : study.refine.starts - len(candidates) + 1]
            candidates = np.concatenate([candidates, drawn])
        fit.candidates = candidates if len(candidates) else None
        return
    fit.refine_evaluations += progress.evaluations
    if isinstance(stage, LeastSquares):
        ended = np.asarray(state.stationary) | np.asarray(state.stalled)
        fit.minima += [float(x) for x in np.asarray(state.objective)[ended]]
        fit.settled = fit.best in fit.minima
        reached = np.column_stack([np.asarray(state.objective), np.asarray(state.u)])
        ends = [*fit.ends, *reached[np.isfinite(reached).all(axis=1)]]
        fit.ends = sorted(ends, key=lambda end: float(end[0]))[:MOST_ENDS]


def _finish_round(study: Study, fit: Fit) -> None:
    fit.stage, fit.candidates = 0, None
    fit.round += 1
    agree = sum(m <= fit.best * (1.0 + SAME_MINIMUM) for m in fit.minima)
    found = agree >= study.agreement and fit.best <= PLAUSIBLE * study.noise_objective
    good = fit.best <= study.tolerance and (fit.settled or study.refine.method != "least-squares")
    fit.done = good or (found and fit.round >= study.least_rounds) or fit.round >= study.rounds


def _fingerprint(study: Study, seed: int) -> str:
    """What a saved state must agree with: the data and settings of the study, and the seed."""
    digest = hashlib.sha256()
    leaves, structure = jax.tree.flatten(study.problem)
    digest.update(str(structure).encode())
    for leaf in leaves:
        digest.update(np.asarray(leaf).tobytes())
    how = (study.search, study.refine, study.random_start, study.initial.tolist())
    settings = (*how, study.rounds, study.least_rounds, study.agreement, study.tolerance)
    digest.update(repr((settings, seed)).encode())
    return digest.hexdigest()


def _save(path: Path, mark: str, fit: Fit, stage_state: Any) -> None:
    arrays = {f"fit.{k}": np.asarray(v) for k, v in dataclasses.asdict(fit).items() if v is not None}
    leaves = jax.tree.leaves(stage_state)
    arrays |= {f"stage.{i}": np.asarray(leaf) for i, leaf in enumerate(leaves)}
    buffer = BytesIO()
    np.savez(buffer, mark=np.asarray(mark), **arrays)  # pyright: ignore[reportArgumentType]
    write_whole(path, buffer.getvalue())


def _load(path: Path, mark: str, stages: Sequence[Stage], study: Study) -> tuple[Fit, Any]:
    try:
        data = read_arrays(path)
    except InputError as error:
        raise InputError(f"{path}: not a saved state of a fit: {str(error).removeprefix(f'{path}: ')}") from None
    try:
        if str(data["mark"]) != mark:
            raise InputError(f"{path}: the saved state is of another study, setting or seed; start without resuming")
        fit = Fit(
            round=int(data["fit.round"]),
            stage=int(data["fit.stage"]),
            initial_u=data.get("fit.initial_u"),
            best_u=data.get("fit.best_u"),
            best=float(data["fit.best"]),
            settled=bool(data["fit.settled"]),
            best_start=float(data["fit.best_start"]),
            minima=data["fit.minima"].tolist(),
            ends=list(data["fit.ends"]),
            history=[(int(n), float(c)) for n, c in data["fit.history"]],
            search_evaluations=int(data["fit.search_evaluations"]),
            refine_evaluations=int(data["fit.refine_evaluations"]),
            non_finite=int(data["fit.non_finite"]),
            compile_seconds=float(data["fit.compile_seconds"]),
            search_seconds=float(data["fit.search_seconds"]),
            refine_seconds=float(data["fit.refine_seconds"]),
            candidates=data.get("fit.candidates"),
            done=bool(data["fit.done"]),
        )
        return fit, _stage_state(data, stages, fit, study)
    except InputError:
        raise
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(f"{path}: not a saved state of a fit: {error}") from None


def _stage_state(data: dict[str, np.ndarray], stages: Sequence[Stage], fit: Fit, study: Study) -> Any:
    """State of the running stage from its leaves; None between two stages."""
    leaves = [data[f"stage.{i}"] for i in range(sum(name.startswith("stage.") for name in data))]
    if not leaves:
        return None
    # The shape of a stage's state is that of a fresh one.
    count = max(study.refine.starts, study.search.population)
    fresh = stages[fit.stage].begin(jax.random.PRNGKey(0), jnp.zeros((count, study.free.size)))
    structure = jax.tree.structure(fresh)
    kept = [np.asarray(a) if isinstance(b, np.ndarray) else jnp.asarray(a)
            for a, b in zip(leaves, jax.tree.leaves(fresh), strict=True)]  # fmt: skip
    return jax.tree.unflatten(structure, kept)


@eqx.filter_jit
def final_state(problem: Problem, u: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Residual and Jacobian at the end of a fit, in units of the noise, and the weight of each row."""
    value, jacobian = residual_and_jacobian(problem.residual, u)
    return value / problem.noise_unit, jacobian / problem.noise_unit, problem.row_weights()
