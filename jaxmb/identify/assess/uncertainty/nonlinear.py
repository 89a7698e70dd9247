"""Uncertainty beyond the linear standard deviations of a fit: equally good fits, unmeasured modes, bounds, curvature,
and profiles of the cost, its minimum over all other parameters at values of one parameter.

Standard deviations from the Jacobian at the best fit are too small where the cost rises less than its parabola, where
another start converged to different values at nearly the same cost, where a parameter governs a fitted mode that was
not measured and that fits noise, and where a bound limits a parameter.
"""

import dataclasses
import itertools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.assess.metrics import Profile
from jaxmb.identify.assess.modal_agreement import GOVERNS, mode_shares
from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.estimation.identifiability import combination_std, identifiability, row_blocks
from jaxmb.identify.estimation.least_squares import Box, finished
from jaxmb.identify.experiments.components import AffineView
from jaxmb.identify.experiments.posture_test import PostureTest
from jaxmb.identify.experiments.vibration_view import AffineVibration, view_slope
from jaxmb.identify.fit.noise import row_variances
from jaxmb.identify.fit.problem import Problem, compressed, is_large, linearized, residual_at
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.fit.state import Fit
from jaxmb.identify.parameters.free_parameters import FreeParameters, matching_any
from jaxmb.identify.study.study import Solver, Study
from jaxmb.io.validation import listed
from jaxmb.machine.build import Model
from jaxmb.machine.families import OF_GEOMETRY, STATION
from jaxmb.mechanics.tangent import Tangent
from jaxmb.response.modal import Modes

AS_GOOD = 0.05
"""Probability of a fit over that of the best one above which it is equally good."""
CURVED = 0.5
"""Nonlinear part of the change of a residual above which another fit is a distinct minimum."""
LIMITED = 5.0
"""Decrease of the cost without a bound, in standard deviations, above which it is not noise."""


def with_ambiguity(estimate: Estimate, fit: Fit, variances: Float[np.ndarray, "m"]) -> tuple[Estimate, list[str]]:
    """The estimate with standard deviations that include ambiguity by other fits and unmeasured modes, and remarks.

    Where another fit as good as the best disagrees on a parameter by more than its interval, the largest such distance
    becomes its standard deviation. Where a parameter governs a fitted mode that was not measured, its verdict is at
    most "weak": its standard deviation is at least the limit of "weak".

    Args:
        estimate: the best fit, known from its Jacobian.
        fit: the finished fit.
        variances: of every residual.
    """
    study, known = estimate.study, estimate.identifiability
    others = equally_good(estimate, fit, variances)
    distance = np.max(np.abs(others - estimate.u), axis=0, initial=0.0)
    ambiguous = np.flatnonzero(distance > INTERVAL * known.std)
    std = np.where(distance > INTERVAL * known.std, distance, known.std)
    names, values = study.free.names, np.array([study.free.values(u) for u in (*others, estimate.u)])
    ranges = [f"{names[i]} ({values[:, i].min():.3g} to {values[:, i].max():.3g})" for i in ambiguous]
    remarks = (
        [f"ambiguous, since fits that the noise does not distinguish disagree: {listed(ranges)}"] if ranges else []
    )
    unmeasured = dict[str, list[str]]()
    weakest = np.broadcast_to(known.limits[0], std.shape)
    for entry in study.fitted:
        agreement = estimate.agreements.get(entry.name)
        if agreement is None or not agreement.unmeasured:
            continue
        shares = mode_shares(study.model, study.free, entry.test, study.free.values(estimate.u)).share
        for mode in agreement.unmeasured:
            governing = np.flatnonzero((shares[mode] >= GOVERNS) & (std < weakest))
            std[governing] = weakest[governing]
            text = f"{float(agreement.fitted.damped_frequency_hz[mode]):.4g} {entry.source.frequency_unit}"
            for i in governing:
                unmeasured.setdefault(names[i], []).append(text)
    which = [f"{name} (mode at {', '.join(modes[:2])})" for name, modes in unmeasured.items()]
    if which:
        remarks.append(f"at most weakly known, since they govern a mode that was not measured: {listed(which)}")
    return estimate.with_std(std), remarks


def with_bound_limits(estimate: Estimate) -> tuple[Estimate, list[str]]:
    """The estimate with infinite standard deviations of parameters limited by a bound, and a remark on these.

    A standard deviation on a bound assumes a minimum there. It is invalid where the unbounded minimum is beyond it.
    Where the cost would decrease by far (`LIMITED`), the bound excludes the measured machine, and no standard deviation
    is known.
    """
    study, std = estimate.study, estimate.identifiability.std
    move, beyond = beyond_bounds(estimate, std)
    side, (residual, jacobian) = study.free.bound_side(estimate.u), estimate.compressed
    limited = [f"{study.free.names[i]} ({'upper' if side[i] > 0 else 'lower'})" for i in np.flatnonzero(beyond)]
    sentences = [f"not known, limited by its bound: {listed(limited)}"] if limited else []
    gain = -np.sum((jacobian @ move) * (2.0 * residual + jacobian @ move))
    spare = max(int(np.sum(estimate.stated_variances > 0.0)) - estimate.u.size, 1)
    far = beyond.any() and gain > LIMITED**2 * float(residual @ residual) / spare
    return estimate.without_std if far else estimate.with_std(np.where(beyond, np.inf, std)), sentences


def beyond_bounds(
    estimate: Estimate, std: Float[np.ndarray, "d"]
) -> tuple[Float[np.ndarray, "d"], Bool[np.ndarray, "d"]]:
    """Distance of the unbounded minimum to the estimate in each u, and whether it is beyond a bound by more than the
    95 % interval, stated tolerances included.

    Args:
        estimate: with values on bounds.
        std: standard deviations of u without those of tolerances.
    """
    side, budget = estimate.study.free.bound_side(estimate.u), estimate.goodness.budget
    residual, jacobian = estimate.compressed
    by_errors = 0.0 if budget is None else np.linalg.norm(budget.effect, axis=1)
    move = -np.linalg.lstsq(jacobian, residual, rcond=None)[0]
    return move, (side * move > 0.0) & (np.abs(move) > INTERVAL * np.hypot(std, by_errors))


def equally_good(estimate: Estimate, fit: Fit, variances: Float[np.ndarray, "m"]) -> Float[np.ndarray, "k d"]:
    """Minima u of other starts whose cost exceeds the best one by no more than noise explains.

    A fit is equally good where its likelihood, with the variance of the residuals, is at least `AS_GOOD` times that of
    the best, or where its probability is, to second order and with all values within the bounds equally probable: a
    narrow mode fits the noise of some line, and such a minimum is as improbable as it is narrow. Fits within the linear
    range of the best one are excluded, as its standard deviations cover them.

    Source: likelihood ratios as evidence, Royall, Statistical Evidence, 1997; Laplace's approximation, MacKay,
    Information Theory, Inference and Learning Algorithms, 2003, chapter 28.
    """
    study, u, residual, jacobian = estimate.study, estimate.u, estimate.residual, estimate.jacobian
    found, limit = [], -2.0 * np.log(AS_GOOD)
    widest = (np.asarray(study.free.upper) - np.asarray(study.free.lower)) ** -2.0

    def narrowness(rows: Float[np.ndarray, "k d"], variance: float) -> float:
        """-2 log of the volume of a minimum, but for a constant."""
        return float(np.linalg.slogdet(rows.T @ rows + variance * np.diag(widest))[1])

    for end in fit.ends:
        other = residual_at(study.problem, end[1:])
        change = other - residual
        if not np.isfinite(other).all() or not change.any():
            continue
        variance = float(variances @ change**2 / (change @ change))
        excess = other @ other - residual @ residual
        if excess > limit * variance:
            narrower = narrowness(estimate.compressed[1], variance)
            narrower -= narrowness(compressed(study.problem, end[1:])[1], variance)
            if excess > (limit + narrower) * variance:
                continue
        linear = np.concatenate([jacobian[rows] @ (end[1:] - u) for rows in row_blocks(jacobian)])
        if np.linalg.norm(change - linear) > CURVED * np.linalg.norm(change):
            found.append(end[1:])
    return np.array(found).reshape(-1, study.free.size)


ENOUGH = 0.8
"""Rise of the cost over that of the parabola above which the interval is accurate to a tenth."""
MOST_STEPS = 4
"""Largest number of least squares steps in the other parameters, and of steps outwards."""


def with_curvature(estimate: Estimate) -> Estimate:
    """The estimate with standard deviations that are valid where the cost rises less than its parabola.

    For each parameter that is not "no" the profile of the cost is evaluated on either side, all others refitted.
    Where it rises less at the ends of the 95 % interval, the interval is widened to the point of equal rise, or to the
    parameter's bound; it is never narrowed. Deviations of the geometry and stations, in which poses are linear to their
    square, are left out. A few steps with the compiled program of the fit suffice; `cost_profile`
    follows the cost further. Large problems (`is_large`) are unchanged: each step takes minutes, and standard
    deviations are so small that the cost is a parabola.
    """
    known = estimate.identifiability
    linear = [name.split(".")[0] in (*OF_GEOMETRY, STATION) for name in estimate.study.free.names]
    some = [i for i, verdict in enumerate(known.verdict) if verdict != "no" and known.std[i] > 0.0 and not linear[i]]
    if not some or is_large(estimate.study.problem) or float(estimate.residual @ estimate.residual) <= 0.0:
        return estimate
    std, jacobian = known.std.copy(), estimate.compressed[1]
    inverse = np.linalg.pinv(jacobian.T @ jacobian, hermitian=True)
    for i in some:
        for side in (-1.0, 1.0):
            std[i] = max(std[i], _std_on_side(estimate, i, side, known.std[i], inverse[:, i]))
    return estimate.with_std(std) if np.any(std > known.std) else estimate


def _std_on_side(estimate: Estimate, i: int, side: float, std: float, column: Float[np.ndarray, "d"]) -> float:
    """Distance, over `INTERVAL`, at which the cost has risen as its parabola at the end of the interval, limited by the
    bound."""
    lower, upper = (np.asarray(bound) for bound in (estimate.study.free.lower, estimate.study.free.upper))
    least, expected = float(estimate.residual @ estimate.residual), (INTERVAL * std) ** 2 / column[i]
    distance, along = INTERVAL * std, column / column[i]
    room = float(upper[i] - estimate.u[i] if side > 0.0 else estimate.u[i] - lower[i])
    for _ in range(MOST_STEPS):
        if distance >= room:
            return max(std, room / INTERVAL)
        u = np.clip(estimate.u + side * distance * along, lower, upper)
        rise = _least_cost(estimate, i, u, least + ENOUGH * expected) - least
        if rise >= ENOUGH * expected:
            break
        distance *= min(np.sqrt(expected / max(rise, 0.25 * expected)), 2.0)
    return distance / INTERVAL


def _least_cost(estimate: Estimate, i: int, u: np.ndarray, enough: float) -> float:
    """Minimum cost at fixed u_i, in units of the noise; not minimized further if certain to stay above `enough`."""
    problem, others = estimate.study.problem, np.arange(u.size) != i
    lower, upper = np.asarray(problem.free.lower), np.asarray(problem.free.upper)
    best = np.inf
    for _ in range(MOST_STEPS):
        residual, jacobian = compressed(problem, u)
        cost = float(residual @ residual)
        if not cost < best:
            break
        best = cost
        step, *_ = np.linalg.lstsq(jacobian[:, others], -residual, rcond=None)
        linear = residual + jacobian[:, others] @ step
        if float(linear @ linear) >= enough:  # even the parabola through this point stays above
            break
        u = u.copy()
        u[others] = np.clip(u[others] + np.clip(step, -1.0, 1.0), lower[others], upper[others])
    return best


def mode_std(
    test: PostureTest,
    model: Model,
    free: FreeParameters,
    u: Float[np.ndarray, "d"],
    tangent: Tangent,
    found: Modes,
    rows: Float[np.ndarray, "k d"],
    affine: AffineView | None = None,
    by_errors: tuple[Tangent, Float[np.ndarray, "k k"]] | None = None,
) -> Float[np.ndarray, "mode 2"]:
    """Standard deviations of natural frequency (Hz) and damping ratio of each mode, to first order.

    Args:
        test: determines the posture.
        model: to which the free parameters are applied.
        free: the free parameters.
        u: their fitted entries.
        tangent: of the identified machine at the test's posture.
        found: some of its modes.
        rows: information of the fit about u, `information_rows`.
        affine: view of the test as a function of the free values, where it is affine.
        by_errors: derivatives of the tangent matrices by the errors of the machine [n, n, e], and the expected products
            of u and these errors.

    Returns:
        inf where a mode depends on a direction of u that has no effect on the data.
    """
    if isinstance(affine, AffineVibration) and affine.base.tangent.mass.shape == tangent.mass.shape:  # not reduced
        slope = affine.tangent_slope(free, u)
    else:
        slope = view_slope(model, free, jax.device_put(u), test.q, test.at).tangent
    changes = _mode_slopes(tangent, found, slope)
    variance = np.stack([combination_std(rows, part) for part in changes], axis=1) ** 2
    if by_errors is not None:
        both = np.concatenate([changes, _mode_slopes(tangent, found, by_errors[0])], axis=2)
        variance += np.einsum("qmi,ij,qmj->mq", both, by_errors[1], both)
    return np.sqrt(variance)


def _mode_slopes(tangent: Tangent, found: Modes, slope: Tangent) -> Float[np.ndarray, "2 mode k"]:
    """Derivatives of natural frequency (Hz) and damping ratio of some modes by those of the tangent matrices [n, n, k].

    dlambda = -phi^T (lambda^2 dM + lambda dC + dK) phi / phi^T (2 lambda M + C) phi, with K + j D + E lambda^a for K
    where there is structural or fractional damping.
    """
    M, phi, root = tangent.mass, np.asarray(found.shape), np.asarray(found.eigenvalue)[:, None]

    def along(matrix: Array) -> np.ndarray:
        return np.einsum("im,ijd,jm->md", phi, np.asarray(matrix).reshape(*M.shape, -1), phi, optimize=True)

    changes = root**2 * along(slope.mass) + root * along(slope.damping) + along(slope.stiffness)
    below = 2.0 * root * along(tangent.mass) + along(tangent.damping)
    if slope.structural is not None:
        changes = changes + 1j * along(slope.structural)
    if tangent.fractional is not None and slope.fractional is not None:
        E, order = along(tangent.fractional.matrix), float(tangent.fractional.order)
        of_order = np.log(root) * E * np.asarray(slope.fractional.order)
        changes = changes + root**order * (along(slope.fractional.matrix) + of_order)
        below = below + order * root ** (order - 1.0) * E
    changes = -changes / below
    size, ratio = np.abs(root), -np.real(root) / np.abs(root)
    growth = (np.conj(root) * changes).real / size
    return np.stack([growth / (2.0 * np.pi), -(changes.real + ratio * growth) / size])


POINTS = 25
REACH = 3.5
"""Standard deviations covered to either side."""
WIDEST = 4.0
"""Largest range of u to either side, where the standard deviation is unknown or larger: a factor of 55."""
RISE = INTERVAL**2
"""Rise of the cost, in units of the noise, at the ends of a 95 % interval."""


def with_profiles(result: Result, patterns: Sequence[str], points: int = POINTS) -> Result:
    """The result with `metrics.profiles`, profiles of the parameters selected by names or patterns, and a remark on
    each in which a fit did not converge.

    Raises:
        ValueError: a pattern selects no free parameter.
        NotImplementedError: the study was fitted in one linear step, where the cost is a parabola in the compliances,
            or in two steps, which have no common cost.
    """
    profiles = {name: cost_profile(result, name, points) for name in profiled(result.study, patterns)}
    sentences = [
        f"the profile of {name} may be too steep: at {profile.unsettled} of {profile.values.size} values the fit of the"
        " other parameters did not converge, so that the cost can be lower there and the interval wider"
        for name, profile in profiles.items()
        if profile.unsettled
    ]
    metrics = dataclasses.replace(result.metrics, profiles=profiles)
    remarks, doubts = (*result.remarks, *sentences), (*result.doubts, *sentences)
    return dataclasses.replace(result, metrics=metrics, remarks=remarks, doubts=doubts)


def profiled(study: Study, patterns: Sequence[str]) -> list[str]:
    """Names of the parameters selected for profiles, in the order of the study; raises as `with_profiles`."""
    if study.solver.is_linear:
        raise NotImplementedError("profiles are for nonlinear fits, and this study takes one linear step")
    if study.solver is Solver.TWO_STEPS:
        raise NotImplementedError("profiles are of one cost, and this study is fitted in two steps")
    return matching_any(study.free.names, patterns, "profile: free parameter or pattern")


def cost_profile(result: Result, name: str, points: int) -> Profile:
    """Profile of one parameter, from the fit outwards, all others starting from the previous point.

    The rise is scaled to a likelihood ratio also for weighted costs or estimated noise: by the variance from the
    curvature over that of the weighted estimate.

    Args:
        result: a finished identification.
        name: of a free parameter.
        points: number of values, the fit included.
    """
    study, problem = result.study, result.study.problem
    i = study.free.names.index(name)
    identified = np.array([result.parameters[free_name].value for free_name in study.free.names])
    best = np.clip(study.free.encode(identified), study.free.lower, study.free.upper)
    fitted = result.parameters[name]
    std = fitted.std_log if study.free.logarithmic[i] else fitted.std / study.free.width[i]
    known = np.isfinite(std) and std > 0.0
    reach = min(REACH * std, WIDEST) if known else WIDEST
    low, high = max(float(study.free.lower[i]), best[i] - reach), min(float(study.free.upper[i]), best[i] + reach)
    below, above = (
        np.linspace(best[i], end, points // 2 + 1)[1:] if end != best[i] else np.zeros(0) for end in (low, high)
    )
    at_best = float(np.sum(residual_at(problem, best) ** 2))
    rises, unsettled = zip(*(_side(problem, best, i, side) for side in (below, above)), strict=True)
    u = np.concatenate([below[::-1], best[i : i + 1], above])
    rise = _scale(result, best, i) * (np.concatenate([rises[0][::-1], [at_best], rises[1]]) - at_best)
    values = np.array([study.free.values(np.where(np.arange(best.size) == i, x, best))[i] for x in u])
    low_end, high_end = (
        None if x is None else float(np.interp(x, u, values))
        for x in (_crossing(u, rise, int(below.size), side) for side in (-1, 1))
    )
    return Profile(
        name,
        values,
        rise,
        expected=((u - best[i]) / std) ** 2 if known else np.full(u.size, np.nan),
        interval=(low_end, high_end),
        linear_interval=fitted.interval_95 or (None, None),
        lowest=float(rise.min()),
        unsettled=sum(unsettled) or None,
    )


def _scale(result: Result, u: np.ndarray, i: int) -> float:
    """Variance of u_i from the curvature of the cost, over that of the weighted estimate; 1 where undefined.

    Later inflation of the standard deviation, such as by ambiguous fits, is excluded.
    """
    study = result.study
    residual, jacobian, weights = linearized(study.problem, u)
    variances = row_variances(study.problem, residual, jacobian, weights)
    own, weighted = (identifiability(jacobian, each).std[i] for each in (np.ones(weights.size), variances))
    return float(own / weighted) ** 2 if np.isfinite([own, weighted]).all() and own > 0.0 and weighted > 0.0 else 1.0


def _side(problem: Problem, best: np.ndarray, i: int, values: np.ndarray) -> tuple[np.ndarray, int]:
    """Minimum cost in units of the noise at values of u_i away from the fit, and the number of values without
    convergence."""
    u, costs, unsettled = jnp.asarray(best), [], 0
    lower, upper = np.array(problem.free.lower), np.array(problem.free.upper)
    for value in values:
        lower[i] = upper[i] = value
        box = Box(jnp.asarray(lower), jnp.asarray(upper), jnp.asarray(problem.free.logarithmic))
        state = least_squares_from(problem, box, u.at[i].set(value))
        u, unsettled = state.u, unsettled + (not finished(state))
        costs.append(float(state.objective) / float(problem.noise_unit) ** 2)
    return np.array(costs), unsettled


def _crossing(u: np.ndarray, rise: np.ndarray, middle: int, side: int) -> float | None:
    """u at which the rise passes that of a 95 % interval, to one side of the fit; None where it does not."""
    order = np.arange(middle, -1, -1) if side < 0 else np.arange(middle, u.size)
    for a, b in itertools.pairwise(order):
        if rise[b] >= RISE > rise[a]:
            # The root of the rise is nearly linear in u.
            return float(np.interp(np.sqrt(RISE), np.sqrt(np.maximum([rise[a], rise[b]], 0.0)), [u[a], u[b]]))
    return None
