"""Search for the single error that explains the misfit of a linear step: of deflections or torques."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import scipy
from scipy.special import chdtri

from jaxmb.identify.assess.budget import used_frames
from jaxmb.identify.assess.estimate import Estimate, Linear
from jaxmb.identify.assess.model_errors import (
    Explanations,
    Fitted,
    Hypothesis,
    Metric,
    ModelError,
    first_order_drops,
    further_springs,
    metric,
    selected,
    single_and_common,
)
from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, scaled_svd
from jaxmb.identify.experiments.deflections.source import DeflectionSource
from jaxmb.identify.experiments.machine_errors import (
    MachineErrors,
    all_elastic,
    machine_errors,
    with_further_springs,
    with_machine_errors,
)
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.experiments.tolerances import StatedError
from jaxmb.identify.fit.linear import linear_equations, with_prior
from jaxmb.identify.fit.noise import FALSE_ALARM
from jaxmb.machine.build import Model
from jaxmb.mechanics.postures import OutOfReachError

TRIED = 8
"""Errors that are refitted: those that explain most to first order."""
LINEAR = 0.1
"""Least decrease to first order, over the largest one, of an error that may explain most of a misfit."""
STEP = 1e-3
"""Step of derivatives, in typical sizes."""
MOST_STEPS = 30


@dataclasses.dataclass(frozen=True, eq=False)
class LinearSearch:
    """Fits of hypotheses on a linear study."""

    estimate: Estimate
    linear: Linear
    model: Model
    """With further springs for deflections, and springs instead of locks."""
    machine: tuple[tuple[StatedError, MachineErrors], ...]
    metric: Metric

    def equations(self, tests: Mapping[int, Test], errors: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Matrix and measured values in units of the covariance.

        Args:
            tests: alternatives, by index.
            errors: sizes by key, SI.
        """
        study = self.estimate.study
        model = with_machine_errors(self.model, study.free, self.machine, errors)
        own = [
            tests[k] if k in tests else entry.source.corrected(entry.test, model, errors)
            for k, entry in enumerate(study.fitted)
        ]
        rows = with_prior(self.linear.unknowns, linear_equations(model, study.free, own), study.problem.prior)
        scale = np.sqrt(self.linear.step.row_weights) / rows.std
        matrix, measured = np.nan_to_num(rows.matrix * scale[:, None]), np.nan_to_num(rows.measured * scale)
        return self.metric(matrix), self.metric(measured)

    def solved(self, tests: Mapping[int, Test], errors: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Fitted unknowns and the residual in units of the covariance."""
        matrix, measured = self.equations(tests, errors)
        size = np.maximum(np.linalg.norm(matrix, axis=0), 1e-300)
        low, high = self.linear.unknowns.lower * size, self.linear.unknowns.upper * size
        x = scipy.optimize.lsq_linear(matrix / size, measured, (low, np.maximum(high, low + 1e-300))).x
        return x / size, matrix @ (x / size) - measured

    def fitted(self, hypothesis: Hypothesis) -> Fitted:
        """Fit of a hypothesis."""
        error = hypothesis.error
        if error is None:
            x, residual = self.solved(hypothesis.tests, {})
            return Fitted(hypothesis, x, float(residual @ residual))

        def residual_at(size: np.ndarray) -> np.ndarray:
            try:
                residual = self.solved({}, {error.key: float(size[0]) * error.typical})[1]
            except OutOfReachError:
                return np.full(self.metric.scale.size, 1e6)
            return np.nan_to_num(residual, nan=1e6)

        low, high = (bound / error.typical for bound in error.bounds)
        starts = [0.0, *(start / error.typical for start in error.starts if low <= start / error.typical <= high)]
        first = min(starts, key=lambda start: float(np.sum(residual_at(np.array([start])) ** 2)))
        inside = float(np.clip(first, low + 1e-9 * max(abs(low), 1.0) if np.isfinite(low) else -np.inf, high))
        found = scipy.optimize.least_squares(
            residual_at, [inside], bounds=([low], [high]), diff_step=STEP, x_scale=max(abs(inside), 1.0),
            ftol=1e-6, max_nfev=MOST_STEPS,
        )  # fmt: skip
        x, _ = self.solved({}, {error.key: float(found.x[0]) * error.typical})
        return Fitted(hypothesis, np.append(x, found.x), float(found.fun @ found.fun))


def linear_model_errors(estimate: Estimate) -> Explanations:
    """Model-error hypotheses that each explain most of the misfit of a linear step, and further springs; see
    `model_errors`.

    Where the noise is estimated from the residual, that of the best hypothesis takes its place.
    """
    linear, study, goodness = estimate.linear, estimate.study, estimate.goodness
    if linear is None:
        return Explanations()
    explained = linear.step.misfit.explained or goodness.misfit_tolerated
    if explained and not (goodness.exceeds_tolerance or goodness.missed):
        return Explanations()
    search, degrees = _search(estimate, linear)
    residual = search.solved({}, {})[1]
    plain, estimated = float(residual @ residual), all(entry.source.noise_estimated for entry in study.fitted)
    likely, others = _likely(search)
    found = list[Fitted]()
    for some in (likely, _alternatives(search), others):
        if not estimated and found and min(end.chi_square for end in found) <= float(chdtri(degrees, FALSE_ALARM)):
            break  # another one leaves noise alone
        found += map(search.fitted, some)
    if not found:
        return Explanations()
    least = min(end.chi_square for end in found)
    if estimated and least > MOST_LEFT * plain:
        return Explanations()
    noise = max(least / degrees, 1e-300) if estimated else 1.0
    tried = len(_errors(search)) + len(found)
    found = [end._replace(chi_square=end.chi_square / noise) for end in found]
    chi_squares, sizes = [end.chi_square for end in found], [end.size for end in found]
    named, explains = selected(chi_squares, sizes, plain / noise, degrees, tried)
    machine = [error for error, _ in search.machine]
    errors = tuple(
        ModelError(
            end.text, min(explains, 1.0), study.free.named(linear.unknowns.decode(end.x[: study.free.size])),
            of_machine=end.hypothesis.error in machine,
        )
        for end in (found[k] for k in named)
    )  # fmt: skip
    return Explanations(errors, further_springs(search.model, found, plain / noise, degrees, tried))


MOST_LEFT = 0.5
"""Part of the sum of squares of the residual that an error leaves at most where the noise is not known."""


def _search(estimate: Estimate, linear: Linear) -> tuple[LinearSearch, float]:
    """The search, and the degrees of freedom."""
    study, model = estimate.study, estimate.model
    if all(isinstance(entry.source, DeflectionSource) for entry in study.fitted):
        model = all_elastic(with_further_springs(model))
    known = tuple(machine_errors(model, study.free, list(used_frames(study.fitted))))
    lengths = np.ones(estimate.residual.size)
    for rows, test in zip(study.problem.row_slices, study.tests, strict=True):
        lengths[rows] = test.noise.correlation.lengths
    budget = estimate.goodness.budget
    effects = np.zeros((estimate.residual.size, 0))
    if budget is not None and len(budget.columns):
        both = np.concatenate([budget.columns, budget.curvature], axis=1)
        effects = np.pad(both, ((0, estimate.residual.size - len(both)), (0, 0)))
    variances = estimate.row_weights * lengths
    used = variances > 0.0
    degrees = float(np.sum(1.0 / lengths[used])) - scaled_svd(np.asarray(estimate.jacobian), RANK_TOLERANCE).rank
    return LinearSearch(estimate, linear, model, known, metric(variances, effects)), max(degrees, 1.0)


def _errors(search: LinearSearch) -> list[StatedError]:
    """Possible errors of machine and tests, equal keys once."""
    found = {error.key: error for error, _ in search.machine}
    for entry in search.estimate.study.fitted:
        found |= {error.key: error for error in entry.source.errors(entry.test, search.estimate.model)}
    return list(found.values())


def _likely(search: LinearSearch) -> tuple[list[Hypothesis], list[Hypothesis]]:
    """The errors that explain most to first order, and others with further starting values."""
    errors, study = _errors(search), search.estimate.study
    matrix, measured = search.equations({}, {})
    x, residual = search.solved({}, {})
    columns = np.zeros((residual.size, len(errors)))
    for k, error in enumerate(errors):
        step = STEP * error.typical
        there, values = search.equations({}, {error.key: step})
        change = (there @ x - values - (matrix @ x - measured)) / STEP
        columns[:, k] = np.where(np.isfinite(change), change, 0.0)
    std = np.array([0.0 if study.exact else error.std(study.tolerances) / error.typical for error in errors])
    _, drops = first_order_drops(residual, matrix, columns, std, search.metric.squares(columns))
    order = [k for k in np.argsort(-drops).tolist() if drops[k] > LINEAR * drops.max()][:TRIED]
    others = [k for k, error in enumerate(errors) if error.starts and k not in order and columns[:, k].any()]
    return [Hypothesis(errors[k]) for k in order], [Hypothesis(errors[k]) for k in others]


def _alternatives(search: LinearSearch) -> list[Hypothesis]:
    """Alternatives to single tests and to all of them."""
    fitted = search.estimate.study.fitted
    known = ((entry.name, entry.source.alternatives(entry.test, search.model)) for entry in fitted)
    return [Hypothesis(None, *each) for each in single_and_common(known)]
