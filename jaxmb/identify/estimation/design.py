"""Which tests to make: a few out of many candidates, after which the parameters, or what they serve, are known best.

Every candidate is the observation matrix of one test in units of its noise. Tests add up: M = sum_i A_i^T A_i is the
inverse of the covariance of the parameters.
"""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Float

Criterion = Literal["D", "A", "test-pose"]
START = 1e-9
"""Part of what all candidates together tell, that makes M regular while there are fewer rows than parameters."""
RESTARTS = 4
"""Exchanges from random sets, beside those from the greedy one: each ends in an optimum of single exchanges, not all in
the same. The draws are the same in every call."""
ROUNDING = 1e-9
"""Relative difference of two criteria that is none: the same tests in another order."""
MOST_PASSES = 20
"""Over all chosen tests: each exchange betters the criterion, so the last pass leaves the best set there was."""


@dataclasses.dataclass(frozen=True, eq=False)
class Design:
    """Chosen tests, and what they promise."""

    chosen: tuple[int, ...]
    """Candidates in the order of the first choice; one may be taken more than once where that was allowed."""
    criterion: Criterion
    value: float
    """-log det M, trace M^-1, or trace W M^-1: smaller is better."""
    greedy_value: float
    """Of the tests that are chosen one after the other, before any exchange."""
    covariance: Float[np.ndarray, "d d"]
    exchanges: int
    """That led to the chosen tests from where they began: the greedy choice, or a random one."""


def choose_tests(
    candidates: Float[np.ndarray, "c r d"],
    count: int,
    criterion: Criterion = "D",
    purpose: Float[np.ndarray, "w d"] | None = None,
    made: Float[np.ndarray, "m d"] | None = None,
    repeat: bool = False,
) -> Design:
    """The best of some sets of tests, each exchanged one by one while that helps, in at most `MOST_PASSES` passes.

    One set begins with tests chosen one after the other, each the best given those before; `RESTARTS` others begin at
    random. So the tests are never worse than the greedy ones, and need not be the best of all sets.

    D-optimal tests make det M largest: the smallest volume of the parameters' confidence region. A-optimal ones make
    the sum of the parameters' variances least, test-pose ones the variance of what the parameters are to predict:
    trace(P M^-1 P^T), P the observation matrix at the poses where accuracy is wanted.

    Args:
        candidates: observation matrices [candidate, row, parameter] in units of the noise; rows of zeros fill up.
        count: how many tests to choose.
        criterion: "D", "A" or "test-pose".
        purpose: P [row, parameter], for "test-pose" alone.
        made: rows of tests that were made already.
        repeat: whether a candidate may be chosen again.

    Raises:
        ValueError: sizes do not fit, or all candidates together leave a parameter unknown.

    Source: Fedorov, Theory of optimal experiments, 1972; Wu et al., "Industry-oriented performance measures for design
    of robot calibration experiment", 2013, for the test pose.
    """
    candidates = np.asarray(candidates, float)
    _check(candidates, count, criterion, purpose, repeat)
    size = candidates.shape[2]
    purpose, made = _rows("purpose", purpose, size), _rows("made", made, size)
    turn = _turn(candidates, made)
    before = np.zeros((size, size)) if made is None else (made @ turn).T @ (made @ turn)
    wanted = np.eye(size) if purpose is None else purpose
    race = _Race(candidates @ turn, (wanted @ turn).T @ (wanted @ turn), criterion, repeat)
    chosen, matrix = _greedy(race, before, count)
    greedy = _value(matrix, race.weight, criterion)
    chosen, matrix, exchanges = _exchanged(race, chosen, matrix)
    value = _value(matrix, race.weight, criterion)
    rng = np.random.default_rng(0)
    for _ in range(RESTARTS):
        start = _drawn(rng, len(candidates), count)
        end = _exchanged(race, start, before + sum(map(race.information, start)))
        other = _value(end[1], race.weight, criterion)
        if other < value - ROUNDING * abs(value):
            (chosen, matrix, exchanges), value = end, other
    covariance = turn @ np.linalg.inv(matrix) @ turn.T
    shift = 2.0 * float(np.linalg.slogdet(turn)[1]) if criterion == "D" else 0.0
    return Design(tuple(chosen), criterion, value + shift, greedy + shift, covariance, exchanges)


@dataclasses.dataclass(frozen=True, eq=False)
class _Race:
    """Candidates in turned parameters, and what they are judged by."""

    candidates: Float[np.ndarray, "c r d"]
    weight: Float[np.ndarray, "d d"]
    criterion: Criterion
    repeat: bool

    @property
    def ridge(self) -> np.ndarray:
        """What makes M regular while there are too few rows."""
        size = len(self.weight)
        return START / size * np.eye(size)

    def best(self, matrix: np.ndarray, taken: list[int]) -> int:
        """The candidate that betters the criterion most beside M."""
        gains = _gains(self.candidates, matrix, self.weight, self.criterion)
        if not self.repeat:
            gains[taken] = -np.inf
        return int(np.argmax(gains))

    def information(self, candidate: int) -> np.ndarray:
        """What one test adds to M."""
        return self.candidates[candidate].T @ self.candidates[candidate]


def _check(candidates: np.ndarray, count: int, criterion: str, purpose: np.ndarray | None, repeat: bool) -> None:
    if candidates.ndim != 3:
        raise ValueError(f"candidates have shape {candidates.shape}, expected three axes: candidate, row, parameter")
    number = len(candidates)
    if criterion not in ("D", "A", "test-pose"):
        raise ValueError(f"criterion is '{criterion}', expected 'D', 'A' or 'test-pose'")
    if (purpose is None) == (criterion == "test-pose"):
        raise ValueError("purpose is for the criterion 'test-pose', and needed there")
    if count < 1 or (count > number and not repeat):
        raise ValueError(f"{count} tests are to be chosen out of {number} candidates")
    if not np.all(np.isfinite(candidates)):
        raise ValueError(f"candidate {int(np.argwhere(~np.isfinite(candidates))[0][0])} is not finite")


def _turn(candidates: np.ndarray, made: np.ndarray | None) -> np.ndarray:
    """Parameters by which all tests together would be the identity: what is regular hangs on no units and couplings.

    Raises:
        ValueError: a parameter acts on no test, or some are unknown after all of them.
    """
    number, _, size = candidates.shape
    everything = candidates.reshape(-1, size) if made is None else np.concatenate([candidates.reshape(-1, size), made])
    length = np.linalg.norm(everything, axis=0)
    if not length.all():
        raise ValueError(f"parameter {int(np.argmin(length))} acts on no candidate, expected it left out")
    if np.linalg.matrix_rank(everything / length) < size:
        raise ValueError(f"all {number} candidates together leave some of {size} parameters unknown")
    return np.linalg.inv(np.linalg.qr(everything / length, mode="r")) / length[:, None]


def _greedy(race: _Race, before: np.ndarray, count: int) -> tuple[list[int], np.ndarray]:
    """Tests chosen one after the other, and M with them.

    Raises:
        ValueError: they leave a parameter unknown.
    """
    chosen: list[int] = []
    matrix = before + race.ridge
    for _ in range(count):
        chosen.append(race.best(matrix, chosen))
        matrix = matrix + race.information(chosen[-1])
    size = len(matrix)
    if np.linalg.matrix_rank(matrix - race.ridge, hermitian=True) < size:
        raise ValueError(f"{count} tests leave some of {size} parameters unknown, expected more tests")
    return chosen, matrix - race.ridge


def _drawn(rng: np.random.Generator, number: int, count: int) -> list[int]:
    """Random candidates, each as often as any other where there are fewer of them than tests."""
    rounds = [rng.permutation(number) for _ in range(-(-count // number))]
    return np.concatenate(rounds)[:count].tolist()


def _exchanged(race: _Race, chosen: list[int], matrix: np.ndarray) -> tuple[list[int], np.ndarray, int]:
    """Tests exchanged one by one while that betters the criterion, M with them, and the number of exchanges."""
    chosen, exchanges = list(chosen), 0
    ridge = 1e-3 * race.ridge  # random tests may leave a parameter unknown: exchanges then find out
    for _ in range(MOST_PASSES):
        moved = 0
        for place, old in enumerate(chosen):
            without = matrix - race.information(old)
            new = race.best(without + ridge, [c for c in chosen if c != old])
            trial = without + race.information(new)
            now, then = (_value(m + ridge, race.weight, race.criterion) for m in (matrix, trial))
            if new != old and then < now:
                chosen[place], matrix, moved = new, trial, moved + 1
        exchanges += moved
        if not moved:
            break
    return chosen, matrix, exchanges


def _rows(what: str, rows: np.ndarray | None, size: int) -> np.ndarray | None:
    if rows is None:
        return None
    rows = np.asarray(rows, float)
    if rows.ndim != 2 or rows.shape[1] != size:
        raise ValueError(f"{what} has shape {rows.shape}, expected rows of {size} parameters, as candidates have")
    if not np.all(np.isfinite(rows)):
        raise ValueError(f"{what}: row {int(np.argwhere(~np.isfinite(rows))[0][0])} is not finite")
    return rows


def _gains(
    candidates: Float[np.ndarray, "c r d"], matrix: Float[np.ndarray, "d d"], weight: np.ndarray, criterion: Criterion
) -> Float[np.ndarray, "c"]:
    """How much each candidate betters the criterion, by the matrix determinant lemma and Woodbury's identity."""
    inverse = np.linalg.inv(matrix)
    spread = candidates @ inverse
    inner = np.eye(candidates.shape[1]) + spread @ np.swapaxes(candidates, 1, 2)
    if criterion == "D":
        return np.linalg.slogdet(inner)[1]
    return np.einsum("crr->c", np.linalg.solve(inner, spread @ weight @ np.swapaxes(spread, 1, 2)))


def _value(matrix: Float[np.ndarray, "d d"], weight: np.ndarray, criterion: Criterion) -> float:
    sign, size = np.linalg.slogdet(matrix)
    if sign <= 0.0:
        return np.inf
    return -float(size) if criterion == "D" else float(np.trace(np.linalg.solve(matrix, weight)))
