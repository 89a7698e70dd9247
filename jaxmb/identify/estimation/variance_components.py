"""Errors larger than their stated standard deviations: score tests and maximum likelihood of variance components.

The residual r of a fit with the Jacobian J has the covariance P (W + C S^2 C^T) P, P = I - J J^+, with the variances W
of the noise, the effects C of errors of one standard deviation each, and factors S on these deviations, 1 as stated.
Projection by P makes the likelihood the restricted one (REML).

Source: Harville, "Maximum likelihood approaches to variance component estimation", J. Am. Stat. Assoc. 72, 320 (1977);
Lin, "Variance component testing in generalized linear models with random effects", Biometrika 84, 309 (1997); Zhou et
al., "MM algorithms for variance components models", J. Comput. Graph. Stat. 28, 350 (2019).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.linalg import solve_triangular
from scipy.special import chdtrc

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd, triangular_factor

ERROR_RATE = 0.01
"""Probability that an error is reported although all are drawn from their stated distributions."""
MOST_ROUNDS = 100
CONVERGED = 1e-3
"""Change of log S at convergence."""
LARGEST = 1e6
"""Upper bound of factors, which a gross misfit would let grow without limit."""
LEAST_OBSERVABLE = 1e-6
"""Share of the variance of an error that appears in the residual below which it has no test."""

ROUNDING = 1e-7
"""Part of a column outside of the directions of the free parameters that counts as rounding."""

STATED_DEGREES = 2.0
"""Degrees of freedom of a stated standard deviation that is itself known to 50 % (JCGM 100, G.4.2)."""
DOMINANT = 0.7
"""Share of the statistic of a kind above which a single error is named."""


class Statistics(NamedTuple):
    """Residual and effects of errors, whitened by the noise, without the directions of the free parameters, and rotated
    into few rows."""

    residual: Float[np.ndarray, "r *n"]
    effects: Float[np.ndarray, "r e"]
    degrees: float
    """Rows less directions of the free parameters."""
    drawn: Float[np.ndarray, "r n"] | None = None
    """Residuals of noise-free data with drawn errors, where their effect is not linear, so that the last n errors are
    its curvature; None where it is linear."""


def sufficient_statistics(
    residual: Float[np.ndarray, "m"],
    jacobian: Float[np.ndarray, "m d"],
    variances: Float[np.ndarray, "m"],
    effects: Float[np.ndarray, "m e"],
) -> Statistics:
    """Sufficient statistics of the residual for factors on the standard deviations of errors.

    Args:
        residual: at the fit.
        jacobian: of the residual by the free parameters.
        variances: of the noise; rows of variance 0 are left out.
        effects: change of the residual by an error of one standard deviation each.
    """
    used = variances > 0.0
    scale = 1.0 / np.sqrt(variances[used, None])
    svd = scaled_svd(jacobian[used] * scale, RANK_TOLERANCE)
    whole = np.column_stack([effects[used], residual[used]]) * scale
    both = svd.beside(whole)
    both[:, np.linalg.norm(both, axis=0) <= ROUNDING * np.linalg.norm(whole, axis=0)] = 0.0
    few = triangular_factor([both])
    return Statistics(few[:, -1], few[:, :-1], float(used.sum() - svd.rank))


class Marginal(NamedTuple):
    """Score and information of the errors under a covariance with given factors."""

    square: Float[np.ndarray, "*n"]
    """r^T V^-1 r."""
    score: Float[np.ndarray, "e *n"]
    """C^T V^-1 r, of covariance `information` under V."""
    information: Float[np.ndarray, "e e"]
    """C^T V^-1 C, its diagonal between 0 (not observable) and 1 / S^2."""


def marginal(data: Statistics, factors: Float[np.ndarray, "e"], noise: float = 1.0) -> Marginal:
    """r^T V^-1 r, C^T V^-1 r and C^T V^-1 C for V = noise I + C S^2 C^T, from its triangular factor: with large factors
    differences of inner products would be rounding.

    Args:
        data: of the residual.
        factors: S of each error.
        noise: factor on the variances of the noise.
    """
    root = np.linalg.qr(np.concatenate([np.sqrt(noise) * np.eye(len(data.effects)), (data.effects * factors).T]), "r")
    effects, residual = (solve_triangular(root, part, trans=1) for part in (data.effects, data.residual))
    return Marginal(np.sum(residual**2, axis=0), effects.T @ residual, effects.T @ effects)


class ScoreTest(NamedTuple):
    """Test of the hypothesis that some errors have their stated standard deviation."""

    p: float
    """Probability of a larger score."""
    observable: float
    """Share of the variance of the errors that appears in the residual beyond noise and all other errors."""


def score_test(found: Marginal, members: Int[np.ndarray, "k"], factors: Float[np.ndarray, "e"]) -> ScoreTest:
    """Locally most powerful test against larger errors: the sum of squares of their scores, a weighted sum of
    chi-squares, in the approximation by three moments.

    Source: Liu, Tang and Zhang, "A new chi-square approximation", Comput. Stat. Data Anal. 53, 853 (2009), without
    noncentrality; Imhof, Biometrika 48, 419 (1961).
    """
    own = factors[members]
    covariance = found.information[np.ix_(members, members)] * own[:, None] * own
    weights = np.clip(np.linalg.eigvalsh(covariance), 0.0, 1.0)
    observable = float(np.mean(weights))
    if weights.max() < LEAST_OBSERVABLE:
        return ScoreTest(1.0, observable)
    statistic = float(np.sum((own * found.score[members]) ** 2))
    first, second, third = (float(np.sum(weights**k)) for k in (1, 2, 3))
    degrees = second**3 / third**2
    argument = (statistic - first) * np.sqrt(degrees / second) + degrees
    return ScoreTest(float(chdtrc(degrees, max(argument, 0.0))), observable)


def likely_factors(
    data: Statistics,
    groups: Sequence[Int[np.ndarray, "k"]],
    first: Float[np.ndarray, "e"],
    noise: float = 1.0,
    degrees: Sequence[float] | None = None,
) -> Float[np.ndarray, "e"]:
    """Most likely factors, at least 1, common to the errors of each group, by restricted likelihood.

    A stated standard deviation with degrees of freedom is an observation of its own, so that errors that the residual
    hardly shows keep it: their factors would have no upper bound by chance.

    Args:
        data: of the residual.
        groups: disjoint indices of errors; others keep their factors.
        first: start, equal within each group.
        noise: factor on the variances of the noise.
        degrees: degrees of freedom of the stated standard deviations of each group; default: 0.
    """
    factors, degrees = first.copy(), [0.0] * len(groups) if degrees is None else degrees
    for _ in range(MOST_ROUNDS):
        found, change = marginal(data, factors, noise), 0.0
        for members, n in zip(groups, degrees, strict=True):
            expected, old = float(np.trace(found.information[np.ix_(members, members)])), factors[members[0]]
            if expected * old**2 >= LEAST_OBSERVABLE:
                both = old**4 * float(np.sum(found.score[members] ** 2)) + n
                variance = (np.sqrt(n**2 + 4.0 * expected * both) - n) / (2.0 * expected)
                new = float(np.clip(np.sqrt(variance), 1.0, LARGEST))
                change = max(change, abs(np.log(new / old)))
                factors[members] = new
        if change < CONVERGED:
            break
    return factors


class Exceeded(NamedTuple):
    """Errors that are larger than stated beyond chance."""

    members: Int[np.ndarray, "k"]
    p: float
    """Of the score test, given all other errors."""
    sizes: Float[np.ndarray, "k"]
    """Estimated errors over their standard deviations."""


class Excess(NamedTuple):
    """Comparison of a residual with the stated standard deviations of errors."""

    factors: Float[np.ndarray, "e"]
    """Most likely factor on the standard deviation of each error, at least 1."""
    exceeded: tuple[Exceeded, ...]
    """Most significant first."""
    observable: dict[str, float]
    """Observable share of the errors of each kind."""


def excess(data: Statistics, kinds: Mapping[str, Int[np.ndarray, "k"]], noise: float = 1.0) -> Excess:
    """Compares a residual with the stated standard deviations of errors.

    Each kind and each single error is tested, given all others; the most significant is released and the rest is
    tested again, at `ERROR_RATE` over the number of tests. The factors of all other kinds are those of the largest
    likelihood.

    Args:
        data: of the residual.
        kinds: indices of the errors of each kind; errors of no kind keep their standard deviation.
        noise: factor on the variances of the noise.
    """
    factors, exceeded = np.ones(data.effects.shape[1]), list[Exceeded]()
    singles = [np.array([k]) for members in kinds.values() if len(members) > 1 for k in members]
    tried = [np.asarray(members) for members in kinds.values()] + singles
    observable, released = dict[str, float](), list[np.ndarray]()
    while tried:
        found = marginal(data, factors, noise)
        tests = [score_test(found, members, factors) for members in tried]
        if not exceeded:
            observable = {kind: test.observable for kind, test in zip(kinds, tests, strict=False)}
        best = int(np.argmin([test.p for test in tests]))
        if tests[best].p >= ERROR_RATE / len(tests) or len(exceeded) == len(kinds):
            break
        if not _beyond_draws(data, tried[best], factors, noise):
            tried.pop(best)
            continue
        chosen = _dominant(found, tried[best], factors)
        released.append(chosen)
        factors = likely_factors(data, _disjoint(released), factors, noise)
        sizes = factors**2 * marginal(data, factors, noise).score  # best linear unbiased prediction; of r = C x
        exceeded.append(Exceeded(chosen, tests[best].p, sizes[chosen]))
        tried = [members for members in tried if not np.isin(chosen, members).any()]
    groups, count = _disjoint([*released, *(np.asarray(members) for members in kinds.values())]), len(released)
    degrees = [0.0] * count + [STATED_DEGREES] * (len(groups) - count)
    return Excess(likely_factors(data, groups, factors, noise, degrees), tuple(exceeded), observable)


def _beyond_draws(data: Statistics, members: np.ndarray, factors: np.ndarray, noise: float) -> bool:
    """Whether the statistic of some errors is larger than those of all drawn errors: where the effect of errors is not
    linear it has no known distribution."""
    if data.drawn is None:
        return True
    own = slice(0, factors.size - data.drawn.shape[1])
    linear = data._replace(residual=np.column_stack([data.residual, data.drawn]), effects=data.effects[:, own])
    squares = np.sum((factors[members, None] * marginal(linear, factors[own], noise).score[members]) ** 2, axis=0)
    return bool(squares[0] > squares[1:].max())


def _dominant(found: Marginal, members: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """The single error that gives most of the statistic of some errors; all of them where there is none."""
    squares = (factors[members] * found.score[members]) ** 2
    largest = int(np.argmax(squares))
    return members[[largest]] if squares[largest] > DOMINANT * squares.sum() else members


def _disjoint(groups: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Groups without the members of earlier ones, empty ones left out."""
    assigned, found = set[int](), list[np.ndarray]()
    for members in groups:
        own = [k for k in members.tolist() if k not in assigned]
        assigned.update(own)
        if own:
            found.append(np.array(own))
    return found
