"""What the linear standard deviations of a fit do not see: other fits as good, and modes that nobody measured.

Standard deviations come from the Jacobian at the best fit. Two things make them too small. Another start may have come
to quite different values at nearly the same cost. And the best fit may have found a place for a parameter by inventing
a mode beside a measured one, where it fits what is noise.
"""

import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.mode_shares import GOVERNS, mode_shares
from jaxmb.identify.assess.remarks import on_bound
from jaxmb.identify.estimation.identifiability import limits, row_blocks
from jaxmb.identify.experiments.test import listed
from jaxmb.identify.fit.problem import residual_at
from jaxmb.identify.fit.state import Fit

AS_GOOD = 0.05
"""Likelihood of a fit over that of the best one, from which on it is as good."""
CURVED = 0.5
"""Part of a residual's change that is not linear in the parameters, from which on another fit is one of its own."""
HELD = 5.0
"""Standard deviations that the cost would fall without a bound, from which on that is no noise."""
DISAGREES = 1.96
"""Standard deviations beyond which another fit's value is not covered by the interval about the best one."""


def ambiguity(finding: Finding, fit: Fit, variances: Float[np.ndarray, "m"]) -> tuple[Finding, list[str]]:
    """The finding with standard deviations that hold what other fits and unmeasured modes leave open, and remarks.

    Where another fit as good as the best disagrees on a parameter by more than its interval, the largest such distance
    becomes its standard deviation. Where a parameter governs a fitted mode that was not measured it is known weakly at
    best: its standard deviation is at least the one at which "weak" begins.

    Args:
        finding: the best fit, known from its Jacobian.
        fit: the finished fit.
        variances: of every residual.
    """
    study, known = finding.study, finding.known
    others = equally_good(finding, fit, variances)
    distance = np.max(np.abs(others - finding.u), axis=0, initial=0.0)
    apart = np.flatnonzero(distance > DISAGREES * known.std)
    std = known.std.copy()
    std[apart] = distance[apart]
    remarks, names = [], study.free.names
    if apart.size:
        values = np.array([study.free.values(u) for u in (*others, finding.u)])
        ranges = [f"{names[i]} ({values[:, i].min():.3g} to {values[:, i].max():.3g})" for i in apart]
        remarks.append(f"ambiguous, since fits that the noise does not distinguish disagree: {listed(ranges)}")
    unmeasured = dict[str, list[str]]()
    weakest = np.broadcast_to(limits(known.prior_std)[0], std.shape)
    for test, agreement in zip(study.tests, finding.agreements, strict=True):
        if agreement is None:
            continue
        if not agreement.unmeasured:
            continue
        shares = mode_shares(study.model, study.free, test, study.free.values(finding.u)).share
        for mode in agreement.unmeasured:
            governing = np.flatnonzero((shares[mode] >= GOVERNS) & (std < weakest))
            std[governing] = weakest[governing]
            frequency_hz = float(agreement.fitted.damped_frequency_hz[mode])
            for i in governing:
                unmeasured.setdefault(names[i], []).append(f"{frequency_hz:.4g} Hz")
    if unmeasured:
        which = [f"{name} (mode at {', '.join(modes[:2])})" for name, modes in unmeasured.items()]
        remarks.append(f"at most weakly known, since they govern a mode that was not measured: {listed(which)}")
    return finding.with_std(std), remarks


def not_bound_limited(finding: Finding) -> tuple[Finding, list[str]]:
    """The finding without the parameters that only a bound holds back, and a remark on each.

    The standard deviation on a bound is that of a minimum there. Where the data would move a parameter beyond by more
    than its 95 % interval, there is none: all that is known is that it wants to leave. Where the cost would fall by far
    (`HELD`), the bound keeps the fit from the machine that was measured, and the other parameters are wrong too.
    """
    study, known = finding.study, finding.known
    bound = on_bound(study, finding.u)
    residual, jacobian = finding.compressed
    move = -np.linalg.lstsq(jacobian, residual, rcond=None)[0]
    beyond = np.flatnonzero((bound * move > 0.0) & (np.abs(move) > DISAGREES * known.std))
    std = known.std.copy()
    std[beyond] = np.inf
    held = [f"{study.free.names[i]} ({'upper' if bound[i] > 0 else 'lower'})" for i in beyond]
    sentences = [f"not known, limited by its bound: {listed(held)}"] if held else []
    gain = -np.sum((jacobian @ move) * (2.0 * residual + jacobian @ move))
    spare = max(int(np.sum(finding.row_weights > 0.0)) - finding.u.size, 1)
    far = beyond.size > 0 and gain > HELD**2 * float(residual @ residual) / spare
    return finding.with_std(std).cap_confidence(not far), sentences


def equally_good(finding: Finding, fit: Fit, variances: Float[np.ndarray, "m"]) -> Float[np.ndarray, "k d"]:
    """Ends of other starts, u, whose cost is above the best one by no more than noise explains.

    Which of several minima is the lowest is left to chance: a fit is as good as the best where its likelihood, with
    the variance of the residuals, is at least `AS_GOOD` of the best one's. What lies in the valley of the best fit,
    where the residual changes as the Jacobian says, is in its standard deviations.

    Source: likelihood ratios as evidence, Royall, Statistical Evidence, 1997.
    """
    study, u, residual, jacobian = finding.study, finding.u, finding.residual, finding.jacobian
    found, limit = [], -2.0 * np.log(AS_GOOD)
    for end in fit.ends:
        other = residual_at(study.problem, end[1:])
        change = other - residual
        if not np.isfinite(other).all() or not change.any():
            continue
        variance = float(variances @ change**2 / (change @ change))
        if other @ other - residual @ residual > limit * variance:
            continue
        linear = np.concatenate([jacobian[rows] @ (end[1:] - u) for rows in row_blocks(jacobian)])
        if np.linalg.norm(change - linear) > CURVED * np.linalg.norm(change):
            found.append(end[1:])
    return np.array(found).reshape(-1, study.free.size)
