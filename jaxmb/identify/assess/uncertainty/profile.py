"""Profiles of the cost: its minimum over all other parameters, at values of one parameter."""

import dataclasses
import fnmatch
import itertools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from scipy.special import chdtri

from jaxmb.identify.assess.metrics import Profile
from jaxmb.identify.assess.result import INTERVAL, Result
from jaxmb.identify.estimation.identifiability import identifiability
from jaxmb.identify.estimation.least_squares import Box, finished
from jaxmb.identify.fit.noise import row_variances
from jaxmb.identify.fit.problem import Problem, compressed, linearized, residual_at
from jaxmb.identify.fit.refine import least_squares_from
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import known_name

POINTS = 25
REACH = 3.5
"""Standard deviations covered to either side."""
WIDEST = 4.0
"""Largest range of u to either side, where the standard deviation is unknown or larger: a factor of 55."""
RISE = float(chdtri(1, 1.0 - 0.95))
"""Rise of the cost, in units of the noise, at the ends of a 95 % interval: 1.96 squared."""


def with_profiles(result: Result, patterns: Sequence[str], points: int = POINTS) -> Result:
    """The result with `metrics.profiles`, profiles of the parameters selected by names or patterns, and a remark on
    each in which a fit did not converge."""
    profiles = {profile.name: profile for profile in cost_profiles(result, patterns, points)}
    sentences = [
        f"the profile of {name} may be too steep: at {profile.unsettled} of {profile.values.size} values the fit of the"
        " other parameters did not converge, so that the cost can be lower there and the interval wider"
        for name, profile in profiles.items()
        if profile.unsettled
    ]
    metrics = dataclasses.replace(result.metrics, profiles=profiles)
    remarks, doubts = (*result.remarks, *sentences), (*result.doubts, *sentences)
    return dataclasses.replace(result, metrics=metrics, remarks=remarks, doubts=doubts)


def cost_profiles(result: Result, patterns: Sequence[str], points: int = POINTS) -> tuple[Profile, ...]:
    """Profiles of the parameters selected by names or patterns, in the order of the study.

    Raises:
        ValueError: a pattern selects no free parameter.
        NotImplementedError: the study was fitted in one linear step, where the cost is a parabola in the compliances.
    """
    return tuple(cost_profile(result, name, points) for name in profiled(result.study, patterns))


def profiled(study: Study, patterns: Sequence[str]) -> list[str]:
    """Names of the parameters selected for profiles, in the order of the study; raises as `cost_profiles`."""
    if study.solver.is_linear:
        raise NotImplementedError("profiles are for nonlinear fits, and this study takes one linear step")
    for pattern in patterns:
        if not fnmatch.filter(study.free.names, pattern):
            raise ValueError(known_name("profile: free parameter or pattern", pattern, study.free.names))
    return [name for name in study.free.names if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def cost_profile(result: Result, name: str, points: int = POINTS) -> Profile:
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
    reach = min(REACH * std, WIDEST) if np.isfinite(std) and std > 0.0 else WIDEST
    low, high = max(float(study.free.lower[i]), best[i] - reach), min(float(study.free.upper[i]), best[i] + reach)
    below = np.linspace(best[i], low, points // 2 + 1)[1:] if low < best[i] else np.zeros(0)
    above = np.linspace(best[i], high, points // 2 + 1)[1:] if high > best[i] else np.zeros(0)
    at_best = float(np.sum(residual_at(problem, best) ** 2))
    scale = _scale(result, best, i)
    rises, unsettled = zip(*(_side(problem, best, i, side) for side in (below, above)), strict=True)
    u = np.concatenate([below[::-1], best[i : i + 1], above])
    rise = scale * (np.concatenate([rises[0][::-1], [at_best], rises[1]]) - at_best)

    def value(x: float) -> float:
        return float(study.free.values(np.where(np.arange(best.size) == i, x, best))[i])

    values = np.array([value(x) for x in u])
    low_end, high_end = (
        None if x is None else float(np.interp(x, u, values))
        for x in (_crossing(u, rise, int(below.size), side) for side in (-1, 1))
    )
    known = np.isfinite(std) and std > 0.0
    return Profile(
        name,
        values,
        rise,
        expected=((u - best[i]) / std) ** 2 if known else np.full(u.size, np.nan),
        interval=(low_end, high_end),
        linear_interval=(value(best[i] - INTERVAL * std), value(best[i] + INTERVAL * std)) if known else (None, None),
        lowest=float(rise.min()),
        unsettled=sum(unsettled) or None,
    )


def _scale(result: Result, u: np.ndarray, i: int) -> float:
    """Variance of u_i from the curvature of the cost, over that of the weighted estimate; 1 where undefined.

    Later inflation of the standard deviation, such as by ambiguous fits, is excluded.
    """
    study = result.study
    residual, jacobian, weights = linearized(study.problem, u)
    rows = compressed(study.problem, u)[1]
    others = np.delete(rows, i, axis=1)
    column = rows[:, i] - others @ np.linalg.lstsq(others, rows[:, i], rcond=None)[0]
    curvature = float(column @ column)
    variance = float(identifiability(jacobian, row_variances(study.problem, residual, jacobian, weights)).std[i] ** 2)
    return 1.0 / (curvature * variance) if np.isfinite(variance) and variance > 0.0 and curvature > 0.0 else 1.0


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
            roots = np.sqrt(np.maximum([rise[a], rise[b]], 0.0))
            share = (np.sqrt(RISE) - roots[0]) / (roots[1] - roots[0])
            return float(u[a] + share * (u[b] - u[a]))
    return None
