"""Optimal design of experiments: selection of tests from candidates for the precision of parameters or predictions.

Every candidate is the observation matrix A_i of one test in units of its noise; M = sum_i A_i^T A_i is the inverse of
the covariance of the parameters.
"""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Float

from jaxmb.io.validation import check_choice

Criterion = Literal["D", "A", "test-pose"]
START = 1e-9
"""Ridge, relative to the information of all candidates, that keeps M regular while rows are fewer than parameters."""
RESTARTS = 4
"""Exchange runs from random sets in addition to the greedy one, since single exchanges end in local optima. The draws
are the same in every call."""
ROUNDING = 1e-9
"""Relative difference up to which two criteria are equal: the same tests in another order."""
REGULAR = 1e10
"""Condition number of M up to which the decrease of a criterion is exact to about 1e-6."""
MOST_PASSES = 20
"""Largest number of passes over the chosen tests; every exchange improves the criterion."""


@dataclasses.dataclass(frozen=True, eq=False)
class Design:
    """Chosen tests, their criterion and the predicted covariance."""

    chosen: tuple[int, ...]
    """Indices of the candidates, with repetitions if allowed."""
    criterion: Criterion
    value: float
    """-log det M, trace M^-1, or trace W M^-1: smaller is better."""
    greedy_value: float
    """Criterion of the greedy selection before any exchange."""
    covariance: Float[np.ndarray, "d d"]


def choose_tests(
    candidates: Float[np.ndarray, "c r d"],
    count: int,
    criterion: Criterion = "D",
    purpose: Float[np.ndarray, "w d"] | None = None,
    made: Float[np.ndarray, "m d"] | None = None,
    repeat: bool = False,
) -> Design:
    """Tests by greedy selection followed by single exchanges (Fedorov), in at most `MOST_PASSES` passes.

    Exchanges start from the greedy set, in which each test is the best given the preceding ones, and from `RESTARTS`
    random sets; the best result is returned. It is at least as good as the greedy set but not necessarily the global
    optimum.

    D-optimal tests maximize det M, that is, minimize the volume of the parameters' confidence region. A-optimal ones
    minimize the sum of the parameters' variances, test-pose ones the variance of the predictions: trace(P M^-1 P^T), P
    the observation matrix at the poses where accuracy is required.

    Args:
        candidates: observation matrices [candidate, row, parameter] in units of the noise, padded by rows of zeros.
        count: number of tests to choose.
        criterion: "D", "A" or "test-pose".
        purpose: P [row, parameter], for "test-pose" only.
        made: observation rows of existing tests.
        repeat: whether a candidate may be chosen repeatedly.

    Raises:
        ValueError: sizes do not match, or a parameter is not identifiable from all candidates together.

    Source: Fedorov, Theory of optimal experiments, 1972; Wu et al., "Industry-oriented performance measures for design
    of robot calibration experiment", 2013, for the test pose.
    """
    candidates = np.asarray(candidates, float)
    _check(candidates, count, criterion, purpose, repeat)
    size = candidates.shape[2]
    purpose, made = _rows("purpose", purpose, size), _rows("made", made, size)
    whitening = _whitening(candidates, made)
    before = np.zeros((size, size)) if made is None else (made @ whitening).T @ (made @ whitening)
    target = np.eye(size) if purpose is None else purpose
    problem = _Problem(candidates @ whitening, (target @ whitening).T @ (target @ whitening), criterion, repeat)
    chosen, matrix = _greedy(problem, before, count)
    greedy = float(_value(matrix, problem.weight, criterion))
    chosen, matrix = _exchange(problem, chosen, matrix)
    value = float(_value(matrix, problem.weight, criterion))
    rng = np.random.default_rng(0)
    for _ in range(RESTARTS):
        # candidates are repeated equally often if there are fewer than tests
        rounds = [rng.permutation(len(candidates)) for _ in range(-(-count // len(candidates)))]
        start = np.concatenate(rounds)[:count].tolist()
        end = _exchange(problem, start, before + sum(map(problem.information, start)))
        other = float(_value(end[1], problem.weight, criterion))
        if other < value - ROUNDING * abs(value):
            (chosen, matrix), value = end, other
    covariance = whitening @ np.linalg.inv(matrix) @ whitening.T
    shift = 2.0 * float(np.linalg.slogdet(whitening)[1]) if criterion == "D" else 0.0
    return Design(tuple(chosen), criterion, value + shift, greedy + shift, covariance)


@dataclasses.dataclass(frozen=True, eq=False)
class _Problem:
    """Candidates in whitened parameters, and the criterion."""

    candidates: Float[np.ndarray, "c r d"]
    weight: Float[np.ndarray, "d d"]
    criterion: Criterion
    repeat: bool

    @property
    def ridge(self) -> np.ndarray:
        """Regularization of M for too few rows."""
        return START / len(self.weight) * np.eye(len(self.weight))

    def best(self, matrix: np.ndarray, chosen: list[int]) -> int:
        """The candidate with the least criterion when added to M."""
        if self.criterion == "D" and np.linalg.cond(matrix) < REGULAR:
            values = -_gains(self.candidates, matrix)
        else:  # decreases of a variance that is large before would be equal up to rounding
            values = _value(matrix + np.swapaxes(self.candidates, 1, 2) @ self.candidates, self.weight, self.criterion)
        if not self.repeat:
            values[chosen] = np.inf
        return int(np.argmin(values))

    def information(self, candidate: int) -> np.ndarray:
        """Contribution of one test to M."""
        return self.candidates[candidate].T @ self.candidates[candidate]


def _check(candidates: np.ndarray, count: int, criterion: str, purpose: np.ndarray | None, repeat: bool) -> None:
    if candidates.ndim != 3:
        raise ValueError(f"candidates have shape {candidates.shape}, expected three axes: candidate, row, parameter")
    number = len(candidates)
    check_choice("criterion", criterion, ("D", "A", "test-pose"))
    if (purpose is None) == (criterion == "test-pose"):
        raise ValueError("purpose is required for the criterion 'test-pose', and only for this")
    if count < 1 or (count > number and not repeat):
        raise ValueError(f"count is {count}, expected 1 to {number}, the number of candidates")
    if not np.all(np.isfinite(candidates)):
        raise ValueError(f"candidate {int(np.argwhere(~np.isfinite(candidates))[0][0])} is not finite")


def _whitening(candidates: np.ndarray, made: np.ndarray | None) -> np.ndarray:
    """Transformation of the parameters that makes the information of all tests together the identity, so that
    regularity does not depend on units and couplings.

    Raises:
        ValueError: a parameter has no effect on any test, or the tests together are rank-deficient.
    """
    number, _, size = candidates.shape
    rows = candidates.reshape(-1, size) if made is None else np.concatenate([candidates.reshape(-1, size), made])
    length = np.linalg.norm(rows, axis=0)
    if not length.all():
        raise ValueError(f"parameter {int(np.argmin(length))} has no effect on any candidate, expected it removed")
    if np.linalg.matrix_rank(rows / length) < size:
        raise ValueError(f"not all of {size} parameters are identifiable from all {number} candidates together")
    return np.linalg.inv(np.linalg.qr(rows / length, mode="r")) / length[:, None]


def _greedy(problem: _Problem, before: np.ndarray, count: int) -> tuple[list[int], np.ndarray]:
    """Greedy selection of tests, and M with them.

    Raises:
        ValueError: a parameter is not identifiable from them.
    """
    chosen: list[int] = []
    matrix = before + problem.ridge
    for _ in range(count):
        chosen.append(problem.best(matrix, chosen))
        matrix = matrix + problem.information(chosen[-1])
    size = len(matrix)
    if np.linalg.matrix_rank(matrix - problem.ridge, hermitian=True) < size:
        raise ValueError(f"not all of {size} parameters are identifiable from {count} tests, expected more tests")
    return chosen, matrix - problem.ridge


def _exchange(problem: _Problem, chosen: list[int], matrix: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Tests after single exchanges that improve the criterion, and M with them."""
    chosen = list(chosen)
    ridge = 1e-3 * problem.ridge  # M of a random set may be singular
    for _ in range(MOST_PASSES):
        before = list(chosen)
        for i, old in enumerate(before):
            without = matrix - problem.information(old)
            new = problem.best(without + ridge, [c for c in chosen if c != old])
            trial = without + problem.information(new)
            now, then = (_value(m + ridge, problem.weight, problem.criterion) for m in (matrix, trial))
            if new != old and then < now:
                chosen[i], matrix = new, trial
        if chosen == before:
            break
    return chosen, matrix


def _rows(name: str, rows: np.ndarray | None, size: int) -> np.ndarray | None:
    if rows is None:
        return None
    rows = np.asarray(rows, float)
    if rows.ndim != 2 or rows.shape[1] != size:
        raise ValueError(f"{name} has shape {rows.shape}, expected rows of {size} parameters, as candidates have")
    if not np.all(np.isfinite(rows)):
        raise ValueError(f"{name}: row {int(np.argwhere(~np.isfinite(rows))[0][0])} is not finite")
    return rows


def _gains(candidates: Float[np.ndarray, "c r d"], matrix: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "c"]:
    """Logarithm of the increase of det M by each candidate, by the matrix determinant lemma."""
    inner = candidates @ np.linalg.inv(matrix) @ np.swapaxes(candidates, 1, 2)
    return np.linalg.slogdet(np.eye(candidates.shape[1]) + inner)[1]


def _value(matrix: Float[np.ndarray, "*c d d"], weight: np.ndarray, criterion: Criterion) -> Float[np.ndarray, "*c"]:
    """Criterion of each information matrix; inf where it is singular."""
    sign, size = np.linalg.slogdet(matrix)
    regular = sign > 0.0
    if criterion == "D":
        return np.where(regular, -size, np.inf)
    covariance = np.linalg.solve(np.where(regular[..., None, None], matrix, np.eye(len(weight))), weight)
    return np.where(regular, np.trace(covariance, axis1=-2, axis2=-1), np.inf)


@dataclasses.dataclass(frozen=True)
class Observability:
    """Observability indices of a set of poses; larger is better."""

    O1: float
    """Geometric mean of the singular values over the root of the number of poses; D-optimality."""
    O2: float
    """Smallest over largest singular value."""
    O3: float
    """Smallest singular value; E-optimality."""
    O4: float
    """Square of the smallest over the largest singular value."""
    O5: float
    """Harmonic sum of the singular values; A-optimality."""


def observability(rows: Float[np.ndarray, "m d"], poses: int, nuisance: Float[np.ndarray, "m k"]) -> Observability:
    """Observability indices O1 to O5 of an observation matrix, nuisance parameters eliminated.

    Args:
        rows: derivatives of the measured quantities by the parameters, both in comparable units.
        poses: number of poses.
        nuisance: derivatives by parameters that are fitted as well and not judged, such as stations.

    Source: Sun and Hollerbach, "Observability index selection for robot calibration", 2008.
    """
    if nuisance.size:
        basis, size, _ = np.linalg.svd(nuisance, full_matrices=False)
        basis = basis[:, size > ROUNDING * size.max(initial=0.0)]
        rows = rows - basis @ (basis.T @ rows)
    values = np.linalg.svd(rows, compute_uv=False)
    largest, least = float(values[0]), float(values[-1]) if len(rows) >= rows.shape[1] else 0.0
    if not least > ROUNDING * largest:
        return Observability(0.0, 0.0, 0.0, 0.0, 0.0)
    product = float(np.exp(np.mean(np.log(values)))) / float(np.sqrt(poses))
    return Observability(product, least / largest, least, least**2 / largest, 1.0 / float(np.sum(1.0 / values)))
