"""Stages of a fit, the state of a fit between two advances of a stage, and its file."""

import dataclasses
import hashlib
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmb.identify.fit.problem import Problem
from jaxmb.identify.fit.settings import FitSettings, Start
from jaxmb.io.files import read_arrays, write_atomically
from jaxmb.io.validation import InputError

STEPS_AT_ONCE = 10
NOT_FINITE = 1e300
"""Cost of a candidate whose objective is not finite, for methods that compare costs."""


class Progress(NamedTuple):
    """Progress of a stage."""

    u: np.ndarray
    """Best candidate so far [d]."""
    objective: float
    """Objective of the stage at `u`."""
    evaluations: int
    non_finite: int
    finished: bool
    costs: np.ndarray = np.zeros(0)
    """Cost of each evaluation of the last advance, in order, for stages that only evaluate the objective."""


class Stage(Protocol):
    """A method that minimizes the objective of a problem."""

    name: str

    def begin(self, seed: int, candidates: Float[np.ndarray, "s d"]) -> Any:
        """Initial state, from candidates with the best first; the seed determines random draws."""
        ...

    def advance(self, state: Any, goal: float) -> Any:
        """State after some further evaluations; `goal` is the lowest objective already known."""
        ...

    def progress(self, state: Any) -> Progress:
        """Progress of the state."""
        ...

    def outcome(self, state: Any) -> tuple[Float[np.ndarray, "k d"], Float[np.ndarray, "k"]]:
        """Resulting candidates and their objectives, the best first."""
        ...


class Refinement(Stage, Protocol):
    """The last stage, on all lines and with the study's weights."""

    def objective_at(self, u: Float[np.ndarray, "d"]) -> float:
        """Its objective at u, by a program that is compiled anyway."""
        ...


SAME_END = 1e-4
"""Largest difference of any entry of u (a logarithm or a part of a range) between equal minima."""
MOST_ENDS = 100
"""Largest number of kept minima, of which those indistinguishable from the best within noise are determined later."""


@dataclasses.dataclass
class Fit:
    """State of a fit between two advances of a stage; all of it is saved."""

    round: int = 0
    stage: int = 0
    initial_u: np.ndarray | None = None
    """First start of the first round."""
    best_u: np.ndarray | None = None
    best: float = float("inf")
    converged: bool = False
    """Whether the refinement of the best candidate converged."""
    best_start: float = float("inf")
    """Lowest objective of any start on the coarse lines."""
    minima: list[float] = dataclasses.field(default_factory=list)
    """Objective of every converged start, of all rounds."""
    ends: list[np.ndarray] = dataclasses.field(default_factory=list)
    """End points of starts on all lines, converged or not: the objective, then u. The `MOST_ENDS` lowest distinct ones,
    ascending."""
    history: list[tuple[int, float]] = dataclasses.field(default_factory=list)
    """(evaluations so far, best objective so far)."""
    search_evaluations: int = 0
    refine_evaluations: int = 0
    population_evaluations: int = 0
    """Evaluations of population searches, included in `search_evaluations`."""
    before_population: float = float("inf")
    """Best objective at the start of the first population search; inf without one, or without an earlier objective."""
    non_finite: int = 0
    compile_seconds: float = 0.0
    search_seconds: float = 0.0
    refine_seconds: float = 0.0
    candidates: np.ndarray | None = None
    """Candidates from the last finished stage of the round."""
    counts: list[int] = dataclasses.field(default_factory=list)
    """Number of starts that converged to each candidate on the coarse lines; empty for other candidates."""
    refined: list[np.ndarray] = dataclasses.field(default_factory=list)
    """End points on the coarse lines whose refinement converged: the refined objective, then u on the coarse lines."""
    local_starts: np.ndarray | None = None
    """Pending starts around the best minimum; None before there are any."""
    metric: np.ndarray | None = None
    """R [d, d] of the Jacobian at that minimum: derivative of the compressed residual by u, in units of the noise."""
    tried: list[np.ndarray] = dataclasses.field(default_factory=list)
    """End points on the coarse lines of the local starts that were refined."""
    local_objective: float = float("inf")
    """Objective of the minimum around which they are."""
    done: bool = False


def fingerprint(problem: Problem, settings: FitSettings, start: Start, seed: int) -> str:
    """Digest of data, settings, start and seed, with which a saved state must agree."""
    digest = hashlib.sha256()
    leaves, structure = jax.tree.flatten(problem)
    digest.update(str(structure).encode())
    for leaf in leaves:
        digest.update(np.asarray(leaf).tobytes())
    digest.update(repr((settings, (start.values.tolist(), start.given.tolist(), start.random), seed)).encode())
    return digest.hexdigest()


def save_state(path: Path, digest: str, fit: Fit, stage_state: Any) -> None:
    arrays = {f"fit.{k}": np.asarray(v) for k, v in dataclasses.asdict(fit).items() if v is not None}
    arrays |= {f"stage.{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(stage_state))}
    buffer = BytesIO()
    np.savez(buffer, mark=np.asarray(digest), **arrays)  # pyright: ignore[reportArgumentType]
    write_atomically(path, buffer.getvalue())


def load_state(path: Path, digest: str, stages: Sequence[Stage], settings: FitSettings, size: int) -> tuple[Fit, Any]:
    try:
        data = read_arrays(path)
    except InputError as error:
        raise InputError(f"{path}: not a saved state of a fit: {str(error).removeprefix(f'{path}: ')}") from None
    if "mark" in data and str(data["mark"]) != digest:
        raise InputError(f"{path}: the saved state is of another study, setting or seed; start without resuming")
    try:
        fit = Fit(**{field.name: _field(field, data) for field in dataclasses.fields(Fit)})
        fit.history = [(int(n), float(c)) for n, c in fit.history]
        return fit, _stage_state(data, stages[fit.stage], settings, size)
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError(f"{path}: not a saved state of a fit: {error}") from None


def _field(field: "dataclasses.Field[Any]", data: dict[str, np.ndarray]) -> Any:
    """Value of a field of `Fit`: an array or None, a number, or a list."""
    key = f"fit.{field.name}"
    if field.default is None:
        return data.get(key)
    return list(data[key]) if field.default is dataclasses.MISSING else type(field.default)(data[key])


def _stage_state(data: dict[str, np.ndarray], stage: Stage, settings: FitSettings, size: int) -> Any:
    """State of the running stage from its leaves; None between two stages."""
    leaves = [data[f"stage.{i}"] for i in range(sum(name.startswith("stage.") for name in data))]
    if not leaves:
        return None
    # The shape of a stage's state is that of a fresh one.
    fresh = stage.begin(0, np.zeros((max(settings.refine.starts, settings.search.population), size)))
    kept = [np.asarray(a) if isinstance(b, np.ndarray) else jnp.asarray(a)
            for a, b in zip(leaves, jax.tree.leaves(fresh), strict=True)]  # fmt: skip
    return jax.tree.unflatten(jax.tree.structure(fresh), kept)


def distinct(ends: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Distinct end points (objective, then u), the first of equal ones."""
    kept: list[np.ndarray] = []
    for end in ends:
        if same_end(end[1:], kept) is None:
            kept.append(end)
    return kept


def same_end(u: Float[np.ndarray, "d"], ends: Sequence[np.ndarray]) -> int | None:
    """Index of the first end point (objective, then u) equal to u; None where there is none."""
    return next((k for k, end in enumerate(ends) if np.max(np.abs(u - end[1:])) <= SAME_END), None)
