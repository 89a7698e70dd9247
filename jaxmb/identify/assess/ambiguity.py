"""What the linear standard deviations of a fit do not see: other fits as good, and modes that nobody measured.

Standard deviations come from the Jacobian at the best fit. Two things make them too small. Another start may have come
to quite different values at nearly the same cost. And the best fit may have found a place for a parameter by inventing
a mode beside a measured one, where it fits what is noise.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxmb.identify.assess.modal_agreement import ModalAgreement
from jaxmb.identify.assess.mode_shares import GOVERNS, mode_shares
from jaxmb.identify.estimation.identifiability import Knowledge, limits, verdicts
from jaxmb.identify.fit.loop import Fit, final_state
from jaxmb.identify.study.study import Study

AS_GOOD = 1.96
"""Standard deviations of their difference in cost within which two fits are equally good: 95 % of a normal one."""
DISAGREES = 1.96
"""Standard deviations beyond which another fit's value is not covered by the interval about the best one."""


def ambiguity(
    study: Study, fit: Fit, known: Knowledge, residual: Float[np.ndarray, "m"], variances: Float[np.ndarray, "m"],
    agreements: Sequence[ModalAgreement | None],
) -> tuple[Knowledge, list[str]]:  # fmt: skip
    """Knowledge with standard deviations that hold what other fits and unmeasured modes leave open, and remarks on it.

    Where another fit as good as the best disagrees on a parameter by more than its interval, the largest such distance
    becomes its standard deviation. Where a parameter governs a fitted mode that was not measured it is known weakly at
    best: its standard deviation is at least the one at which "weak" begins.

    Args:
        study: what was fitted.
        fit: the finished fit.
        known: from the Jacobian at the best fit.
        residual: of the best fit, in units of the noise.
        variances: of every residual.
        agreements: of each test, fitted beside measured modes, where modes were measured.
    """
    if fit.best_u is None:
        return known, []
    others = equally_good(study, fit, residual, variances)
    distance = np.max(np.abs(others - fit.best_u), axis=0, initial=0.0)
    apart = np.flatnonzero(distance > DISAGREES * known.std)
    std = known.std.copy()
    std[apart] = distance[apart]
    remarks = []
    for i in apart:
        values = np.array([study.free.values(u)[i] for u in (*others, fit.best_u)])
        remarks.append(
            f"{study.free.names[i]} is ambiguous: fits that the noise does not tell apart have"
            f" {values.min():.3g} to {values.max():.3g}"
        )
    weakest = np.broadcast_to(limits(known.prior_std)[0], std.shape)
    for test, agreement in zip(study.tests, agreements, strict=True):
        if agreement is None:
            continue
        if not agreement.unmeasured:
            continue
        shares = mode_shares(study.model, study.free, test, study.free.values(fit.best_u)).share
        for mode in agreement.unmeasured:
            governing = np.flatnonzero((shares[mode] >= GOVERNS) & (std < weakest))
            std[governing] = weakest[governing]
            frequency_hz = float(agreement.fitted.damped_frequency_hz[mode])
            remarks += [
                f"{study.free.names[i]} is at most weakly known: it governs the mode at {frequency_hz:.4g} Hz, which"
                " was not measured"
                for i in governing
            ]
    return known._replace(std=std, verdict=verdicts(std, known.prior_std)), remarks


def not_held_back(
    study: Study, known: Knowledge, bound: np.ndarray, residual: Float[np.ndarray, "m"],
    jacobian: Float[np.ndarray, "m d"],
) -> tuple[Knowledge, list[str]]:  # fmt: skip
    """Knowledge without the parameters that only a bound holds back, and a remark on each.

    The standard deviation on a bound is that of a minimum there. Where the data would move a parameter beyond by more
    than its 95 % interval, there is none: all that is known is that it wants to leave.

    Args:
        study: what was fitted.
        known: of the fit.
        bound: `remarks.on_bound` of it.
        residual: of the fit, in units of the noise.
        jacobian: likewise.
    """
    move = -np.linalg.lstsq(jacobian, residual, rcond=None)[0]
    beyond = np.flatnonzero((bound * move > 0.0) & (np.abs(move) > DISAGREES * known.std))
    std = known.std.copy()
    std[beyond] = np.inf
    told = [
        f"{study.free.names[i]} is held back by its {'upper' if bound[i] > 0 else 'lower'} bound, beyond which the data"
        " would move it: it is not known"
        for i in beyond
    ]
    return known._replace(std=std, verdict=verdicts(std, known.prior_std)), told


def equally_good(
    study: Study, fit: Fit, residual: Float[np.ndarray, "m"], variances: Float[np.ndarray, "m"]
) -> Float[np.ndarray, "k d"]:
    """Ends of other starts, u, whose cost is above the best one by no more than noise explains.

    If another fit were the true one, its residuals e would be noise, and the best fit with residuals b would win by
    chance: of the difference in cost, e.e - b.b = 2 e.(e - b) - |e - b|^2, only e.(e - b) is random, with mean 0 and
    variance sum v (e - b)^2. So a fit is as good as the best where e.(e - b) is at most `AS_GOOD` times the root of it.
    """
    found = []
    for end in fit.ends:
        other = np.asarray(final_state(study.problem, jnp.asarray(end[1:]))[0])
        change = other - residual
        if not np.isfinite(other).all() or not change.any():
            continue
        if other @ change <= AS_GOOD * np.sqrt(np.sum(variances * change**2)):
            found.append(end[1:])
    return np.array(found).reshape(-1, study.free.size)
