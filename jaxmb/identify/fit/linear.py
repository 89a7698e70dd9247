"""Studies whose predictions are linear in the free values, or in their reciprocals: one linear step."""

import dataclasses
from collections.abc import Collection, Sequence

import numpy as np
from jaxtyping import Bool, Float

from jaxmb.identify.estimation.identifiability import Knowledge, knowledge, scaled_svd, verdicts
from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.components import Equations
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.fit.noise import Misfit, misfit
from jaxmb.identify.fit.possible import Bodies, Possible, numbers_of, possible_values, touched_bodies
from jaxmb.identify.fit.problem import Prior
from jaxmb.identify.parameters.free_parameters import Bound, FreeParameters, free_parameters
from jaxmb.machine.build import Model
from jaxmb.machine.families import NOT_NEGATIVE

NO_EFFECT = 1e-12
"""A column of the equations below this share of the largest one is rounding: the parameter has no effect."""


@dataclasses.dataclass(frozen=True, eq=False)
class Unknowns:
    """What the equations are linear in: the free values, some of them by their reciprocals."""

    free: FreeParameters
    reciprocal: Bool[np.ndarray, "d"]
    least: Float[np.ndarray, "d"]
    """1 over the upper bound where it is a reciprocal, else the lower bound, at least 0 of what cannot be negative."""
    most: Float[np.ndarray, "d"]
    """1 over the lower bound where it is a reciprocal, else the upper bound."""

    def encode(self, values: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """Unknowns x of physical values; it is its own inverse."""
        return np.where(self.reciprocal, 1.0 / np.where(self.reciprocal, values, 1.0), values)

    decode = encode

    def slope(self, x: Float[np.ndarray, "d"]) -> Float[np.ndarray, "d"]:
        """dx / du, with u the entries that `FreeParameters` moves."""
        logarithmic, width = np.array(self.free.logarithmic), np.array(self.free.width)
        of_reciprocal = -x * np.where(logarithmic, 1.0, x * width)
        return np.where(self.reciprocal, of_reciprocal, np.where(logarithmic, x, width))


@dataclasses.dataclass(frozen=True, eq=False)
class LinearStep:
    """Unknowns that explain the measurements best, and what is known of them."""

    x: Float[np.ndarray, "d"]
    jacobian: Float[np.ndarray, "m d"]
    """Of the residuals by u, scaled by the roots of the weights, the robust ones too."""
    known: Knowledge
    """Of the entries u of the free parameters."""
    without_effect: Bool[np.ndarray, "d"]
    """Which parameters no measurement depends on."""
    on_bound: Bool[np.ndarray, "d"]
    residual: Float[np.ndarray, "m"]
    """Measured less fitted."""
    robust_weight: Float[np.ndarray, "m"]
    settled: bool
    """Whether the robust weights came to rest."""
    solved: bool
    """Whether it was found which unknowns are held on their bound."""
    cost: float
    """Sum of weight (residual / std)^2, the robust weights in it."""
    misfit: Misfit
    """What is left of the rows, over what their noise leaves."""
    row_weights: Float[np.ndarray, "m"]
    """By which the squared error of each row counts, over its variance; robust weights too."""
    prior_std: Float[np.ndarray, "d"] | None = None
    """Of u; the last rows are those of the prior."""
    possible: Possible | None = None
    """How the bodies came to be possible, where inertial numbers are free; `x` are its values then."""


def unknowns(free: FreeParameters, reciprocal: Bool[np.ndarray, "d"]) -> Unknowns:
    """What is to be found in one linear step, and from where on.

    Args:
        free: the free parameters.
        reciprocal: from `linear_in`.
    """
    floored = np.array([all(_is_not_negative(name) for name in names) for names in free.tied], dtype=bool)
    lower, upper = np.array(free.lower_value), np.array(free.upper_value)
    lower = np.where(floored, np.maximum(lower, 0.0), lower)
    with np.errstate(divide="ignore"):
        least, most = np.where(reciprocal, 1.0 / upper, lower), np.where(reciprocal, 1.0 / lower, upper)
    return Unknowns(free, reciprocal, least, most)


def _is_not_negative(name: str) -> bool:
    family, _, *axes = name.split(".")
    return family in NOT_NEGATIVE or (family == "compliance" and axes[0] == axes[1])


def linear_equations(model: Model, free: FreeParameters, tests: Sequence[Test]) -> Equations:
    """Equations of some tests, one below the other, what was measured together numbered throughout."""
    parts = [test.linear.equations(model, free) for test in tests if test.linear is not None]
    first = np.cumsum([0, *(int(part.case.max(initial=-1)) + 1 for part in parts)])
    cases = [part.case + start for part, start in zip(parts, first, strict=False)]
    columns = (np.concatenate(column) for column in zip(*(part[:4] for part in parts), strict=True))
    return Equations(*columns, case=np.concatenate(cases))


def with_prior(found: Unknowns, rows: Equations, prior: Prior | None) -> Equations:
    """The equations with one below them for each parameter that a prior is about: value = mean.

    Args:
        found: what is to be found.
        rows: of the tests.
        prior: of the free parameters, in u = value / width.
    """
    if prior is None:
        return rows
    std = np.asarray(prior.std)
    of = np.flatnonzero(np.isfinite(std))
    width = np.array(found.free.width)[of]
    return Equations(
        matrix=np.concatenate([rows.matrix, np.eye(std.size)[of]]),
        measured=np.concatenate([rows.measured, np.asarray(prior.mean)[of] * width]),
        std=np.concatenate([rows.std, std[of] * width]),
        weight=np.concatenate([rows.weight, np.ones(of.size)]),
        case=np.concatenate([rows.case, int(rows.case.max(initial=-1)) + 1 + np.arange(of.size)]),
    )


def without_effect(rows: Equations) -> Bool[np.ndarray, "d"]:
    """Which unknowns nothing that was measured depends on."""
    effect = np.linalg.norm(rows.matrix / rows.std[:, None], axis=0)
    return effect <= NO_EFFECT * effect.max(initial=0.0)


def idle_numbers(
    model: Model, free: FreeParameters, tests: Sequence[Test], rows: Equations, held: Collection[str] = ()
) -> tuple[str, ...]:
    """Inertial numbers of bodies that a fit touches that are not free and that no measurement depends on.

    Args:
        model: the machine's.
        free: the free parameters.
        tests: that are fitted.
        rows: their equations.
        held: names that are to keep their values whatever is measured.
    """
    taken = {name for names in free.tied for name in names} | set(held)
    names = [name for body in touched_bodies(free) for name in numbers_of(body)]
    if not set(names) - taken:
        return ()
    each = free_parameters(model, [Bound((name,), 0.0, 1.0, logarithmic=False) for name in names])
    acting = [test for test in tests if not np.isnan(_reciprocal(test, model, each)).all()]
    effect, largest = np.zeros(len(names)), np.linalg.norm(rows.matrix / rows.std[:, None], axis=0).max(initial=0.0)
    if acting:
        more = linear_equations(model, each, acting)
        effect = np.linalg.norm(more.matrix / more.std[:, None], axis=0)
        largest = max(largest, effect.max(initial=0.0))
    return tuple(
        name for name, size in zip(names, effect, strict=True) if name not in taken and size <= NO_EFFECT * largest
    )


def _reciprocal(test: Test, model: Model, free: FreeParameters) -> np.ndarray:
    found = None if test.linear is None else test.linear.reciprocal(model, free)
    return np.zeros(free.size) if found is None else found


def linear_step(
    found: Unknowns,
    rows: Equations,
    start: Float[np.ndarray, "d"],
    robust: bool = False,
    bodies: Bodies | None = None,
    prior_std: Float[np.ndarray, "d"] | None = None,
    alike: Float[np.ndarray, "r"] | None = None,
) -> LinearStep:
    """Unknowns that minimise the weighted squared errors within their bounds.

    What is known of them is what the equations tell without a thought of bodies.

    Args:
        found: what is to be found.
        rows: of the tests.
        start: physical values of parameters that no measurement depends on.
        robust: less weight for outliers.
        bodies: those that are to be possible, where inertial numbers are among the unknowns.
        prior_std: of the prior of u whose equations are the last rows (`with_prior`), where there is one.
        alike: `Correlation.lengths` of the rows of tests.

    Source: Dumas et al. 2011, eq. 16-18; Klimchik et al. 2014, eq. 7-9.
    """
    lost = without_effect(rows)
    matrix = np.where(lost, 0.0, rows.matrix)
    fitted = linear_fit(
        matrix, rows.measured, rows.std / np.sqrt(rows.weight), found.least, found.most, robust, found.free.names
    )
    x = best = np.where(lost, found.encode(start), fitted.values)
    weight = rows.weight * fitted.weights
    root = np.sqrt(weight) / rows.std
    possible = None
    if bodies is not None:
        possible = possible_values(
            bodies, matrix * root[:, None], rows.measured * root, best, fitted.on_bound & ~lost, found.encode(start),
            found.least, found.most,
        )  # fmt: skip
        x = possible.x
    residual = rows.measured - matrix @ x
    jacobian = matrix * found.slope(x) * root[:, None]
    known = knowledge(jacobian, weight, prior_std)
    # Bodies that must be possible take values away from bounds, or to them.
    stopped = np.asarray(fitted.on_bound) | ((x != best) & np.isfinite(known.std))
    on_bound = stopped & ~lost & ((x <= found.least) | (x >= found.most))
    data = slice(0, residual.size - (0 if prior_std is None else int(np.isfinite(prior_std).sum())))
    errors = np.sqrt(weight) * residual / rows.std
    return LinearStep(
        x=x,
        jacobian=jacobian,
        known=known,
        without_effect=lost,
        on_bound=on_bound,
        residual=residual,
        robust_weight=np.asarray(fitted.weights),
        settled=fitted.settled,
        solved=fitted.solved,
        cost=float(np.sum(errors[data] ** 2)),
        misfit=misfit(
            errors[data],
            rows.weight[data],
            _determined(jacobian, known, data),
            np.asarray(fitted.weights)[data],
            alike,
        ),
        row_weights=weight,
        prior_std=prior_std,
        possible=possible,
    )


def _determined(jacobian: np.ndarray, known: Knowledge, data: slice) -> float:
    """Degrees of freedom that the parameters take from the rows of the tests."""
    if known.prior_std is None:
        return float(np.isfinite(known.std).sum())
    svd = scaled_svd(jacobian)
    return float(np.sum(svd.left[: len(jacobian), : svd.rank][data] ** 2))


def reported_knowledge(step: LinearStep) -> Knowledge:
    """What the tests tell of the values, as it is reported.

    Standard deviations are widened where the model does not follow the data (`Misfit.widening`). A value on a bound has
    none: the data would move it beyond, and what they say of it there they do not say of the bound.
    """
    factor, known = step.misfit.widening, step.known
    known = known._replace(std=factor * known.std, covariance=factor**2 * known.covariance)
    if step.prior_std is not None and factor > 1.0:  # what is wider is what the tests tell, not the prior
        priors = int(np.isfinite(step.prior_std).sum())
        wider = np.where(np.arange(step.row_weights.size) < step.row_weights.size - priors, factor**2, 1.0)
        known = knowledge(step.jacobian, wider * step.row_weights, step.prior_std)
    std = np.where(step.on_bound, np.inf, known.std)
    return known._replace(std=std, verdict=verdicts(std, step.prior_std))
