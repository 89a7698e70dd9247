"""Standard deviations where the cost is no parabola: a parameter that others which are hardly known can make up for."""

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.result import INTERVAL
from jaxmb.identify.estimation.identifiability import limits
from jaxmb.identify.fit.problem import compressed, is_large

ENOUGH = 0.8
"""Rise of the cost there over that of the parabola, from which on the interval is right to a tenth."""
MOST_STEPS = 4
"""Steps of least squares in the other parameters, and steps outwards."""


def with_curvature(finding: Finding) -> Finding:
    """The finding with standard deviations that hold where the cost rises less than its parabola says.

    For each parameter that is well known to first order the cost is looked at on either side, all others fitted again
    (the profile of the cost). Where it rises less at the ends of the 95 % interval, the interval is widened to where
    it has risen as much, or to the parameter's bound. It is never narrowed. Few steps with the program that every fit
    has compiled do for that; `cost_profile` follows the cost further. Of large problems (`is_large`) each step takes
    minutes, and standard deviations are so small that the cost is a parabola: they stay as they are.
    """
    known = finding.known
    well = [i for i, verdict in enumerate(known.verdict) if verdict == "yes" and known.std[i] > 0.0]
    if not well or is_large(finding.study.problem) or float(finding.residual @ finding.residual) <= 0.0:
        return finding
    std, most = known.std.copy(), np.broadcast_to(limits(known.prior_std)[0], known.std.shape)
    jacobian = finding.compressed[1]
    inverse = np.linalg.pinv(jacobian.T @ jacobian, hermitian=True)
    for i in well:
        for side in (-1.0, 1.0):
            std[i] = max(std[i], _std_on_side(finding, i, side, known.std[i], most[i], inverse[:, i]))
    return finding.with_std(std) if np.any(std > known.std) else finding


def _std_on_side(
    finding: Finding, i: int, side: float, std: float, most: float, column: Float[np.ndarray, "d"]
) -> float:
    """Distance to where the cost has risen as its parabola does at the end of the interval, or to the bound, over
    `INTERVAL`; `most` where that is not reached before."""
    lower, upper = (np.asarray(bound) for bound in (finding.study.free.lower, finding.study.free.upper))
    least, expected = float(finding.residual @ finding.residual), (INTERVAL * std) ** 2 / column[i]
    distance, along = INTERVAL * std, column / column[i]
    room = min(float(upper[i] - finding.u[i] if side > 0.0 else finding.u[i] - lower[i]), INTERVAL * most)
    for _ in range(MOST_STEPS):
        if distance >= room:
            return max(std, room / INTERVAL)
        u = np.clip(finding.u + side * distance * along, lower, upper)
        rise = _least_cost(finding, i, u, least + ENOUGH * expected) - least
        if rise >= ENOUGH * expected:
            break
        distance *= min(np.sqrt(expected / max(rise, 0.25 * expected)), 2.0)
    return distance / INTERVAL


def _least_cost(finding: Finding, i: int, u: np.ndarray, enough: float) -> float:
    """The least cost with u_i as it is, in units of the noise; of one that stays above `enough` only that it does."""
    problem, others = finding.study.problem, np.arange(u.size) != i
    lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
    best = np.inf
    for _ in range(MOST_STEPS):
        residual, jacobian = compressed(problem, u)
        cost = float(residual @ residual)
        if not cost < best:
            break
        best = cost
        step, *_ = np.linalg.lstsq(jacobian[:, others], -residual, rcond=None)
        left = residual + jacobian[:, others] @ step
        if float(left @ left) >= enough:  # even the parabola through this point stays above
            break
        u = u.copy()
        u[others] = np.clip(u[others] + np.clip(step, -1.0, 1.0), lower[others], upper[others])
    return best
