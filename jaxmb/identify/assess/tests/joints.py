"""Systematic errors of torque tests: disagreement of joints on a parameter, friction and delays in the residual."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy.special import chdtri, ndtri

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, row_blocks, scaled_svd
from jaxmb.identify.experiments.components import own_names
from jaxmb.identify.experiments.torque.effort_noise import correlation_length
from jaxmb.identify.experiments.torque.gain_fit import DELAY
from jaxmb.identify.experiments.torque.prepared import stribeck
from jaxmb.identify.experiments.torque.source import TorqueEntry
from jaxmb.identify.experiments.torque.unexplained import effort_rate
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.parameters.model_parameters import unit
from jaxmb.identify.regression.torque_regressor import load_columns, regressor_names
from jaxmb.io.validation import display_name, listed
from jaxmb.machine.elements import FRICTION_KINDS

SPEEDS = np.geomspace(0.02, 0.5, 5)
"""Candidate Stribeck speeds over the largest speed."""
EXACT = 1e-4
"""Ratio of root mean squares of residual and effort below which the residual is rounding and differentiation error."""
SMALL = 0.01
"""Residual over effort that is not reported."""
LOSSES = ("friction", "damping", "offset")
NAMED = 3
"""Largest number of parameters in one remark."""
LEAST_SHARE = 0.25
"""Explained part of a squared residual, beyond that of a fit of all parameters, above which friction is reported:
residuals with other causes also correlate a little with friction."""


class JointRows(NamedTuple):
    """Equations of one coordinate in all tests, in units of their noise: residual + jacobian du."""

    name: str
    jacobian: Float[np.ndarray, "r d"]
    residual: Float[np.ndarray, "r"]
    """Predicted minus measured."""
    root: Float[np.ndarray, "r"]
    """Factor that scales an effort to units of the noise."""
    velocity: Float[np.ndarray, "r"]
    load: Float[np.ndarray, "r"]
    """Effort transmitted by the gear."""
    by_delay: Float[np.ndarray, "r"]
    """Derivative of the predicted effort by its delay, in units of the noise, 1/s."""
    test: Int[np.ndarray, "r"]
    """Index of the test among the fitted ones."""
    absent: frozenset[str]
    """Kinds of friction that are not in the machine and were not candidates."""


def systematic_errors(estimate: Estimate, entries: Sequence[TorqueEntry]) -> tuple[Float[np.ndarray, "d d"], list[str]]:
    """Covariance of u due to systematic errors, and a remark on each cause.

    For significant friction in the residual of a joint, of a kind that `friction_terms` could select, and for a delay
    of its torque or of all torques of a test: the squared change of the parameters in a fit with these. Where estimates
    of a parameter by single joints, each from its own equations and residual, differ significantly from the joint
    estimate: the variance between joints (DerSimonian and Laird) times the squares of their weights in the estimate,
    plus the squared difference of their mean.

    Args:
        estimate: a linear fit.
        entries: the torque tests of its study.

    Source: DerSimonian and Laird 1986, "Meta-analysis in clinical trials", of effects that differ between studies.
    """
    size = estimate.u.size
    tests = [(entry.test, view) for entry, view, _ in estimate.of(entries)]
    sizes = [test.sizes(view) for test, view in tests]
    if all(np.all(missed <= EXACT * measured) for measured, missed in sizes):
        return np.zeros((size, size)), []
    joints = joint_rows(estimate, entries)
    prior = estimate.jacobian[estimate.study.problem.data_rows :]
    small = [np.asarray(np.linalg.qr(np.column_stack([each.jacobian, each.residual]), mode="r")) for each in joints]
    root = _least_squares(np.pad(np.concatenate([prior, *(rows[:, :size] for rows in small)]), ((0, 0), (0, 1)))).root
    spread = root @ root.T
    change, of_terms = _missing_terms(estimate, entries, joints, spread)
    scatter, of_joints = _disagreement(estimate, joints, small, spread)
    return np.outer(change, change) + np.diag(scatter), [*of_joints, *(of_terms or _beyond_noise(estimate, entries))]


def joint_rows(estimate: Estimate, entries: Sequence[TorqueEntry]) -> list[JointRows]:
    """Equations of each coordinate with measured effort, over all tests."""
    names = regressor_names(estimate.model)
    loads, parts = load_columns(names), dict[str, list[JointRows]]()
    for number_of_test, (entry, view, rows) in enumerate(estimate.of(entries)):
        test, source = entry.test, entry.source
        predicted = np.asarray(test.predict(view))
        velocity = source.velocity if source.velocity.size else np.zeros(test.rows)
        seen = np.asarray(view)[: len(names)]
        carried = np.asarray(test.regressor)[:, : len(names)][:, loads] @ seen[loads]
        factor = np.sqrt(estimate.row_weights[rows]) / np.asarray(test.std)
        for i, name in enumerate(source.coordinates):
            own = np.asarray(test.coordinate) == i
            there = estimate.model.further_friction[estimate.model.coordinates.index(name)]
            rate = np.zeros(own.sum())
            if source.time_s.size:
                rate = effort_rate(source.time_s[own], predicted[own], velocity[own])
            part = JointRows(
                name=name,
                jacobian=estimate.jacobian[rows][own],
                residual=estimate.residual[rows][own],
                root=factor[own],
                velocity=velocity[own],
                load=carried[own],
                by_delay=-factor[own] * rate,
                test=np.full(rate.size, number_of_test),
                absent=frozenset(
                    k for k, family in FRICTION_KINDS.items() if family not in there and k not in source.kinds
                ),
            )
            parts.setdefault(name, []).append(part)
    return [_of_all_tests(some) for some in parts.values()]


def _of_all_tests(parts: Sequence[JointRows]) -> JointRows:
    """Equations of a coordinate in all tests, from those in each test."""
    names, *columns, absent = zip(*parts, strict=True)
    return JointRows(names[0], *map(np.concatenate, columns), absent=frozenset.intersection(*absent))


class _Solution(NamedTuple):
    """Least squares over some rows."""

    step: Float[np.ndarray, "d"]
    root: Float[np.ndarray, "d r"]
    """root @ root.T is the covariance for unit noise."""
    unknown: np.ndarray
    """Mask of the entries not determined by the rows [d]."""


def _least_squares(rows: Float[np.ndarray, "r d+1"]) -> _Solution:
    """Least squares step of equations [jacobian, residual]."""
    svd = scaled_svd(rows[:, :-1], RANK_TOLERANCE)
    return _Solution(-svd.solve(rows[:, -1]), svd.gain, svd.unknown)


def _disagreement(
    estimate: Estimate, joints: Sequence[JointRows], small: Sequence[np.ndarray], spread: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Variance of each entry of u due to the scatter between joints, and remarks."""
    size, free = estimate.u.size, estimate.study.free
    # bounds, physical consistency and priors change the fit of all joints, which is not a disagreement between them
    whole = _least_squares(np.concatenate(small))
    steps, stds, weights = (np.zeros((len(small), size)) for _ in range(3))
    for j, (joint, rows) in enumerate(zip(joints, small, strict=True)):
        own = _least_squares(rows)
        steps[j] = own.step - whole.step
        # from the residual of the joint's own fit: the residual of the joint fit contains the disagreement
        missed, rank = joint.residual + joint.jacobian @ own.step, own.root.shape[1]
        noise = missed @ missed / max(1.0, missed.size - rank) * correlation_length(missed, rank)
        stds[j] = np.where(own.unknown, np.inf, np.sqrt(noise) * np.linalg.norm(own.root, axis=1))
        weights[j] = np.einsum("ij,ji->i", spread, rows[:, :size].T @ rows[:, :size])
    values = estimate.values + free.slope(estimate.values) * whole.step
    limit = np.where(np.array(free.logarithmic), 1.0, np.abs(estimate.u + whole.step))
    determined = (stds < limit) & np.isfinite(estimate.known.std) & ~whole.unknown
    compared = np.flatnonzero(determined.any(axis=0))
    scatter, found = np.zeros(size), []
    for i in compared.tolist():
        own = determined[:, i]
        step, precision = steps[own, i], stds[own, i] ** -2.0
        excess, count = float(precision @ step**2), int(own.sum())
        if excess <= float(chdtri(count, FALSE_ALARM / compared.size)):
            continue
        mean = precision @ step / precision.sum()
        between = float(precision @ (step - mean) ** 2) - (count - 1)
        between = max(0.0, between / (precision.sum() - np.sum(precision**2) / precision.sum())) if count > 1 else 0.0
        equal = 1.0 / (between + 1.0 / precision)
        scatter[i] = between * float(np.sum(weights[:, i] ** 2)) + float(equal @ step / equal.sum()) ** 2
        slope = free.slope(estimate.values)[i]
        each = ", ".join(
            f"{values[i] + slope * steps[j, i]:.4g} +- {abs(slope) * stds[j, i]:.2g} by {joints[j].name}"
            for j in np.flatnonzero(own).tolist()
        )
        rise = scatter[i] / estimate.known.std[i] ** 2
        found.append((rise, f"{free.names[i]} is {each}, {values[i]:.4g} by all"))
    worst = [text for _, text in sorted(found, reverse=True)]
    if not worst:
        return scatter, []
    more = f"; and {len(worst) - NAMED} more" if len(worst) > NAMED else ""
    return scatter, [
        f"joints disagree beyond their standard deviations: {'; '.join(worst[:NAMED])}{more}; the standard"
        " deviations contain this scatter"
    ]


def _beyond_noise(estimate: Estimate, entries: Sequence[TorqueEntry]) -> list[str]:
    """A sentence where the residual is larger than the recorded torque above the band of the motion."""
    found = list[str]()
    for entry, view, _ in estimate.of(entries):
        test = entry.test
        sizes = zip(entry.source.coordinates, *test.sizes(view), entry.source.noise_bound, strict=False)
        found += [
            f"{name} ({100.0 * missed / measured:.2g} % of its torque)"
            for name, measured, missed, bound in sizes
            if entry.source.noise_estimated and missed > max(bound, SMALL * measured)
        ]
    if not found:
        return []
    return [
        f"the residual at {listed(found)} is larger than the noise above the band of the motion: friction or elasticity"
        " is missing in the model; the standard deviations count the whole residual as noise"
    ]


def _missing_terms(
    estimate: Estimate, entries: Sequence[TorqueEntry], joints: Sequence[JointRows], spread: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Change of u in a fit with significant friction and delays, and remarks: at most one term of each joint, and a
    delay of each test."""
    widening = 1.0 if estimate.misfit is None else estimate.misfit.widening
    restricted = estimate.linear is not None and not estimate.linear.step.misfit.explained
    tests = [entry.test for entry, _, _ in estimate.of(entries)]
    # wrong fixed values may resemble a delay of a joint
    tried = [[term for term in _candidates(joint) if not (restricted and term[0] == "delay")] for joint in joints]
    shared = len(tests)
    kinds = ["delay"] * shared + [kind for some in tried for kind, _ in some]
    group = np.repeat(np.arange(shared + len(joints)), [1] * shared + [len(some) for some in tried])
    acts, right, residual = (
        np.zeros((estimate.u.size, group.size)),
        np.zeros(group.size),
        np.zeros(shared + len(joints)),
    )
    squares = np.zeros((group.size, group.size))
    for j, (joint, some) in enumerate(zip(joints, tried, strict=True)):
        of_tests = [joint.by_delay * (joint.test == k) for k in range(shared)]
        columns = np.stack([*of_tests, *(column for _, column in some)], axis=1)
        own = np.flatnonzero((group < shared) | (group == shared + j))
        acts[:, own] += joint.jacobian.T @ columns
        squares[np.ix_(own, own)] += columns.T @ columns
        right[own] -= columns.T @ joint.residual
        residual[:shared] += np.bincount(joint.test, joint.residual**2, shared)
        residual[shared + j] = joint.residual @ joint.residual
    # orthogonal to the free parameters
    slope = sum(estimate.jacobian[rows].T @ estimate.residual[rows] for rows in row_blocks(estimate.jacobian))
    right += acts.T @ spread @ slope
    beside = squares - acts.T @ spread @ acts
    determined = np.diag(beside) > RANK_TOLERANCE * np.diag(squares)
    is_free = [k for k, test in enumerate(tests) if f"{DELAY}.{test.name}" in own_names(test)]
    chosen, sizes = _selected(beside, right / widening, group, determined & ~np.isin(group, is_free))
    values = np.linalg.solve(beside[np.ix_(chosen, chosen)], right[chosen])
    changes = -spread @ acts[:, chosen] * values
    # limited to 1: residuals of other joints may decrease too
    share = np.minimum((widening * sizes) ** 2 / residual[group[chosen]], 1.0)
    friction, delays, of_friction, of_delays = list[str](), list[str](), list[int](), list[int]()
    for n, k in enumerate(chosen):
        if restricted and share[n] < LEAST_SHARE:
            continue
        of_test = group[k] < shared
        name = tests[k].name if of_test else joints[group[k] - shared].name
        if kinds[k] != "delay":
            friction.append(f"{name} ({kinds[k]}, {100.0 * share[n]:.2g} % of its mean square)")
            of_friction.append(n)
            continue
        late = f"{1e3 * abs(values[n]):.2g} ms {'late' if values[n] > 0.0 else 'early'} against the angles"
        late = f"{late}, which explains {100.0 * share[n]:.2g} % of the residual"
        if of_test:
            delays.append(
                f'the torques of {display_name(name)} are {late} ("{DELAY}.{name}" in [free] identifies the delay)'
            )
        else:
            delays.append(f"the torque of {name} is {late}")
        of_delays.append(n)
    remarks = list[str]()
    if friction:
        asked = ", ".join(dict.fromkeys(f'"{kinds[chosen[n]]}"' for n in of_friction))
        effect = _effect(estimate, changes[:, of_friction].sum(axis=1))
        remarks.append(
            f"the residual contains friction: {', '.join(friction)}; friction_terms = [{asked}] of the tests {effect}"
        )
    if delays:
        effect = _effect(estimate, changes[:, of_delays].sum(axis=1))
        remarks.append(f"{'; '.join(delays)}; a correction {effect}")
    return changes.sum(axis=1), remarks


def _selected(
    beside: Float[np.ndarray, "k k"], right: Float[np.ndarray, "k"], group: np.ndarray, possible: np.ndarray
) -> tuple[list[int], Float[np.ndarray, "s"]]:
    """Forward selection of one column per group, the most significant first, with the significance of each in standard
    deviations; columns are orthogonal to the free parameters.

    Args:
        beside: products of the columns.
        right: products of the columns with the negative residual.
        group: of each column.
        possible: mask of the columns that may be selected.
    """
    least = -float(ndtri(0.5 * FALSE_ALARM / max(1, group.size)))
    chosen, sizes = list[int](), list[float]()
    while True:
        by_chosen = beside[:, chosen] @ np.linalg.inv(beside[np.ix_(chosen, chosen)])
        own = np.diag(beside) - np.sum(by_chosen * beside[:, chosen], axis=1)
        open_still = possible & ~np.isin(group, group[chosen]) & (own > RANK_TOLERANCE * np.diag(beside))
        size = np.where(open_still, np.abs(right - by_chosen @ right[chosen]), 0.0) / np.sqrt(np.maximum(own, 1e-300))
        if not size.max(initial=0.0) > least:
            return chosen, np.array(sizes)
        chosen.append(int(np.argmax(size)))
        sizes.append(float(size.max()))


def _effect(estimate: Estimate, change: Float[np.ndarray, "d"]) -> str:
    """A clause on the parameter with the largest change relative to its standard deviation."""
    std, free = estimate.known.std, estimate.study.free
    relative = np.where(np.isfinite(std) & (std > 0.0), np.abs(change) / np.where(std > 0.0, std, 1.0), 0.0)
    # friction of the joint itself changes most; other parameters are preferred in the remark
    i = int(np.argmax(relative * np.array([0.1 if name.split(".")[0] in LOSSES else 1.0 for name in free.names])))
    by = change[i] * free.slope(estimate.values)[i]
    return (
        f"would change {free.names[i]} by {by:.2g} {unit(estimate.model, free.names[i])}; the standard deviations"
        " contain this"
    )


def _candidates(joint: JointRows) -> list[tuple[str, np.ndarray]]:
    """Candidate efforts missing in the model, in units of the noise: kinds of friction with a coefficient of 1, and a
    delay of 1 s."""
    v, found = joint.velocity, list[tuple[str, np.ndarray]]()
    if "load" in joint.absent:
        found.append(("load", np.abs(joint.load) * np.sign(v)))
    if "cubic" in joint.absent:
        found.append(("cubic", v**3))
    if "stribeck" in joint.absent:
        found += [("stribeck", stribeck(v, speed)) for speed in SPEEDS * np.abs(v).max(initial=0.0) if speed > 0.0]
    friction = [(kind, joint.root * effort) for kind, effort in found if effort.any()]
    return [*friction, ("delay", joint.by_delay)]
