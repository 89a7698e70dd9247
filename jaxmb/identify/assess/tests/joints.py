"""Systematic errors of torque tests: joints that disagree on a parameter, and friction in the residual."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from scipy.special import chdtri, ndtri

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, row_blocks, scaled_svd
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.test import listed
from jaxmb.identify.experiments.torque.effort_noise import samples_alike
from jaxmb.identify.experiments.torque.further_columns import stribeck
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.identify.parameters.model_parameters import unit
from jaxmb.identify.regression.torque_regressor import carried_columns, regressor_names

SPEEDS = np.geomspace(0.02, 0.5, 5)
"""Stribeck speeds that are tried, of the largest speed."""
EXACT = 1e-4
"""Residual over effort, root mean squares, below which rounding and differentiation are all there is to see."""
SMALL = 0.01
"""Residual over effort that need not be spoken of."""
LOSSES = ("friction", "damping", "offset")
NAMED = 3
"""Parameters in one remark."""
LEAST_SHARE = 0.25
"""Part of the square of a residual beyond that of a fit of all parameters, from which on it is of friction: what has
another cause looks a little like friction too."""
FAMILY = {"load": "load_friction", "stribeck": "stribeck", "cubic": "cubic_damping"}


class JointRows(NamedTuple):
    """Equations of one coordinate in all tests, in units of their noise: residual + jacobian du."""

    name: str
    jacobian: Float[np.ndarray, "r d"]
    residual: Float[np.ndarray, "r"]
    """Predicted less measured."""
    root: Float[np.ndarray, "r"]
    """By which an effort is multiplied."""
    velocity: Float[np.ndarray, "r"]
    load: Float[np.ndarray, "r"]
    """Effort that the gear carries."""
    absent: frozenset[str]
    """Kinds of friction that are not in the machine and were not tried."""


def systematic_errors(finding: Finding, entries: Sequence[Entry]) -> tuple[Float[np.ndarray, "d d"], list[str]]:
    """What adds to the covariance of u beside noise, and a remark on each cause.

    Friction that the residual of a joint contains beyond chance, of a kind that `friction_terms` would try: the squared
    change of the parameters by a fit with it. And where what joints determine of a parameter, each by its own equations
    and their own residual, differs from the estimate by all beyond chance: the variance between joints (DerSimonian and
    Laird) times the squares of the weights that they have in the estimate, and the squared difference of their mean.

    Args:
        finding: a linear fit.
        entries: the torque tests of its study.

    Source: DerSimonian and Laird 1986, "Meta-analysis in clinical trials", of effects that differ between studies.
    """
    size = finding.u.size
    tests: list[tuple[Any, Any]] = [(entry.test, view) for entry, view, _ in finding.of(entries)]
    sizes = [test.sizes(view) for test, view in tests]
    if all(np.all(missed <= EXACT * measured) for measured, missed in sizes):
        return np.zeros((size, size)), []
    joints = joint_rows(finding, entries)
    prior = finding.jacobian[finding.study.problem.data_rows :]
    small = [np.asarray(np.linalg.qr(np.column_stack([each.jacobian, each.residual]), mode="r")) for each in joints]
    root = _least_squares(np.pad(np.concatenate([prior, *(rows[:, :size] for rows in small)]), ((0, 0), (0, 1)))).root
    spread = root @ root.T
    change, of_friction = _friction(finding, joints, spread)
    scatter, of_joints = _disagreement(finding, joints, small, spread)
    return np.outer(change, change) + np.diag(scatter), [*of_joints, *(of_friction or _beyond_noise(finding, entries))]


def joint_rows(finding: Finding, entries: Sequence[Entry]) -> list[JointRows]:
    """Equations of each coordinate whose effort was measured, those of several tests together."""
    names = regressor_names(finding.model)
    loads, parts = carried_columns(names), dict[str, list[JointRows]]()
    for entry, view, rows in finding.of(entries):
        test: Any = entry.test
        source = entry.source
        velocity = source.velocity if source.velocity.size else np.zeros(test.rows)
        number, seen = np.asarray(test.coordinate), np.asarray(view)[: len(names)]
        carried = np.asarray(test.regressor)[:, : len(names)][:, loads] @ seen[loads]
        factor = np.sqrt(finding.row_weights[rows]) / np.asarray(test.std)
        for i, name in enumerate(source.coordinates):
            own = number == i
            there = finding.model.further_friction[finding.model.coordinates.index(name)]
            absent = {kind for kind, family in FAMILY.items() if family not in there and kind not in source.kinds}
            parts.setdefault(name, []).append(
                JointRows(
                    name=name,
                    jacobian=finding.jacobian[rows][own],
                    residual=finding.residual[rows][own],
                    root=factor[own],
                    velocity=velocity[own],
                    load=carried[own],
                    absent=frozenset(absent),
                )
            )
    return [
        JointRows(
            name=name,
            jacobian=np.concatenate([part.jacobian for part in some]),
            residual=np.concatenate([part.residual for part in some]),
            root=np.concatenate([part.root for part in some]),
            velocity=np.concatenate([part.velocity for part in some]),
            load=np.concatenate([part.load for part in some]),
            absent=frozenset.intersection(*(part.absent for part in some)),
        )
        for name, some in parts.items()
    ]


class _Solution(NamedTuple):
    """Least squares over some rows."""

    step: Float[np.ndarray, "d"]
    root: Float[np.ndarray, "d r"]
    """Its product with its transpose is the covariance for noise of 1."""
    unknown: np.ndarray
    """Which entries the rows do not determine [d]."""


def _least_squares(rows: Float[np.ndarray, "r d+1"]) -> _Solution:
    """Step from equations [jacobian, residual]."""
    svd = scaled_svd(rows[:, :-1], RANK_TOLERANCE)
    root = svd.right[: svd.rank].T / svd.values[: svd.rank] / svd.scale[:, None]
    return _Solution(-root @ (svd.left[: len(rows), : svd.rank].T @ rows[:, -1]), root, svd.unknown)


def _disagreement(
    finding: Finding, joints: Sequence[JointRows], small: Sequence[np.ndarray], spread: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Variance of each entry of u by the scatter between joints."""
    size, free = finding.u.size, finding.study.free
    # bounds, bodies that have to be possible and priors keep a fit from the torques, which is no disagreement of joints
    whole = _least_squares(np.concatenate(small))
    steps, stds, weights = (np.zeros((len(small), size)) for _ in range(3))
    for j, (joint, rows) in enumerate(zip(joints, small, strict=True)):
        own = _least_squares(rows)
        steps[j] = own.step - whole.step
        # by what the joint's own fit misses: what the fit to all misses contains the disagreement
        missed, rank = joint.residual + joint.jacobian @ own.step, own.root.shape[1]
        noise = missed @ missed / max(1.0, missed.size - rank) * samples_alike(missed, rank)
        stds[j] = np.where(own.unknown, np.inf, np.sqrt(noise) * np.linalg.norm(own.root, axis=1))
        weights[j] = np.einsum("ij,ji->i", spread, rows[:, :size].T @ rows[:, :size])
    values = finding.values + np.where(free.logarithmic, finding.values, free.width) * whole.step
    limit = np.where(np.array(free.logarithmic), 1.0, np.abs(finding.u + whole.step))
    determined = (stds < limit) & np.isfinite(finding.known.std) & ~whole.unknown
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
        slope = finding.values[i] if free.logarithmic[i] else free.width[i]
        each = ", ".join(
            f"{values[i] + slope * steps[j, i]:.4g} +- {abs(slope) * stds[j, i]:.2g} by {joints[j].name}"
            for j in np.flatnonzero(own).tolist()
        )
        rise = scatter[i] / finding.known.std[i] ** 2
        found.append((rise, f"{free.names[i]} is {each}, {values[i]:.4g} by all"))
    worst = [text for _, text in sorted(found, reverse=True)]
    if not worst:
        return scatter, []
    more = f"; and {len(worst) - NAMED} more" if len(worst) > NAMED else ""
    return scatter, [
        f"joints disagree beyond their standard deviations: {'; '.join(worst[:NAMED])}{more}; the standard"
        " deviations contain this scatter"
    ]


def _beyond_noise(finding: Finding, entries: Sequence[Entry]) -> list[str]:
    """A sentence where the residual is larger than the recorded torque above the band of the motion."""
    found = list[str]()
    for entry, view, _ in finding.of(entries):
        test: Any = entry.test
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


def _friction(finding: Finding, joints: Sequence[JointRows], spread: np.ndarray) -> tuple[np.ndarray, list[str]]:
    """Change of u by a fit with the friction that residuals contain."""
    widening = 1.0 if finding.misfit is None else finding.misfit.widening
    restricted = finding.linear is not None and not finding.linear.step.misfit.explained
    tried = [_candidates(joint) for joint in joints]
    least = -float(ndtri(0.5 * FALSE_ALARM / max(1, sum(len(some) for some in tried))))
    slope = sum(finding.jacobian[rows].T @ finding.residual[rows] for rows in row_blocks(finding.jacobian))
    columns, squares, rights, texts, kinds = [], [], [], [], list[str]()
    for joint, some in zip(joints, tried, strict=True):
        best: tuple[float, str, np.ndarray, np.ndarray] | None = None
        for kind, column in some:
            acts = joint.jacobian.T @ column
            own = column @ column - acts @ spread @ acts
            if own > RANK_TOLERANCE * (column @ column):
                right = float(acts @ spread @ slope - column @ joint.residual)
                size = abs(right) / float(np.sqrt(own)) / widening
                if size > least and (best is None or size > best[0]):
                    best = size, kind, column, acts
        if best is not None:
            size, kind, column, acts = best
            share = (widening * size) ** 2 / float(joint.residual @ joint.residual)
            columns.append(acts)
            squares.append(column @ column)
            rights.append(acts @ spread @ slope - column @ joint.residual)
            if share >= LEAST_SHARE or not restricted:
                texts.append(f"{joint.name} ({kind}, {100.0 * share:.2g} % of its mean square)")
                kinds.append(kind)
    if not columns:
        return np.zeros(finding.u.size), []
    acts = np.stack(columns, axis=1)
    change = -spread @ acts @ np.linalg.solve(np.diag(squares) - acts.T @ spread @ acts, np.array(rights))
    std, free = finding.known.std, finding.study.free
    relative = np.where(np.isfinite(std) & (std > 0.0), np.abs(change) / np.where(std > 0.0, std, 1.0), 0.0)
    # friction of the joint itself moves most; the remark is on another parameter where one moves
    i = int(np.argmax(relative * np.array([0.1 if name.split(".")[0] in LOSSES else 1.0 for name in free.names])))
    if not texts:
        return change, []
    by = change[i] * (finding.values[i] if free.logarithmic[i] else free.width[i])
    asked = ", ".join(f'"{kind}"' for kind in dict.fromkeys(kinds))
    return change, [
        f"the residual contains friction: {', '.join(texts)}; friction_terms = [{asked}] of the tests would change"
        f" {free.names[i]} by {by:.2g} {unit(finding.model, free.names[i])}; the standard deviations contain this"
    ]


def _candidates(joint: JointRows) -> list[tuple[str, np.ndarray]]:
    """Efforts of kinds of friction for a coefficient of 1, in units of the noise."""
    v, found = joint.velocity, list[tuple[str, np.ndarray]]()
    if "load" in joint.absent:
        found.append(("load", np.abs(joint.load) * np.sign(v)))
    if "cubic" in joint.absent:
        found.append(("cubic", v**3))
    if "stribeck" in joint.absent:
        found += [("stribeck", stribeck(v, speed)) for speed in SPEEDS * np.abs(v).max(initial=0.0) if speed > 0.0]
    return [(kind, joint.root * effort) for kind, effort in found if effort.any()]
