"""Studies whose predictions are linear in the free values, or in their reciprocals: one linear step."""

import dataclasses
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float

from jaxmb.identify.estimation.identifiability import Knowledge, knowledge, verdicts
from jaxmb.identify.estimation.linear import linear_fit
from jaxmb.identify.experiments.test import Equations, Test
from jaxmb.identify.fit.noise import Misfit, misfit
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.parameters.model_parameters import NOT_NEGATIVE
from jaxmb.machine.build import Model

NO_EFFECT = 1e-12
"""A column of the equations below this share of the largest one is rounding: the parameter has no effect."""


@dataclasses.dataclass(frozen=True, eq=False)
class Unknowns:
    """What the equations are linear in: the free values, some of them by their reciprocals."""

    free: FreeParameters
    reciprocal: Bool[np.ndarray, "d"]
    bounded: Bool[np.ndarray, "d"]
    """Which must not be below `least`."""
    least: Float[np.ndarray, "d"]
    """1 over the upper bound where it is a reciprocal, else the lower bound, but not below 0."""

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


def unknowns(free: FreeParameters, reciprocal: Bool[np.ndarray, "d"]) -> Unknowns:
    """What is to be found in one linear step, and from where on.

    Args:
        free: the free parameters.
        reciprocal: from `linear_in`.
    """
    bounded = np.array([all(_is_not_negative(name) for name in names) for names in free.tied], dtype=bool)
    lower, upper = np.array(free.lower_value), np.array(free.upper_value)
    least = np.where(reciprocal, 1.0 / np.where(reciprocal, upper, 1.0), np.where(bounded, np.maximum(lower, 0.0), 0.0))
    return Unknowns(free, reciprocal, bounded, least)


def _is_not_negative(name: str) -> bool:
    family, _, *axes = name.split(".")
    return family in NOT_NEGATIVE or (family == "compliance" and axes[0] == axes[1])


def linear_equations(model: Model, free: FreeParameters, tests: Sequence[Test]) -> Equations:
    """Equations of some tests, one below the other, what was measured together numbered throughout."""
    parts = [test.equations(model, free) for test in tests]
    first = np.cumsum([0, *(int(part.case.max(initial=-1)) + 1 for part in parts)])
    cases = [part.case + start for part, start in zip(parts, first, strict=False)]
    columns = (np.concatenate(column) for column in zip(*(part[:4] for part in parts), strict=True))
    return Equations(*columns, case=np.concatenate(cases))


def without_effect(rows: Equations) -> Bool[np.ndarray, "d"]:
    """Which unknowns nothing that was measured depends on."""
    effect = np.linalg.norm(rows.matrix / rows.std[:, None], axis=0)
    return effect <= NO_EFFECT * effect.max(initial=0.0)


def linear_step(found: Unknowns, rows: Equations, start: Float[np.ndarray, "d"], robust: bool = False) -> LinearStep:
    """Unknowns that minimise the weighted squared errors, none below its least.

    Args:
        found: what is to be found.
        rows: of the tests.
        start: physical values of parameters that no measurement depends on.
        robust: less weight for outliers.

    Source: Dumas et al. 2011, eq. 16-18; Klimchik et al. 2014, eq. 7-9.
    """
    lost = without_effect(rows)
    matrix = np.where(lost, 0.0, rows.matrix)
    least = np.where(lost, 0.0, found.least)
    fitted = linear_fit(
        matrix, rows.measured - matrix @ least, rows.std / np.sqrt(rows.weight), found.bounded, robust,
        found.free.names,
    )  # fmt: skip
    x = np.where(lost, found.encode(start), least + fitted.values)
    weight = rows.weight * fitted.weights
    residual = rows.measured - matrix @ x
    jacobian = matrix * found.slope(x) * (np.sqrt(weight) / rows.std)[:, None]
    known = knowledge(jacobian, weight)
    determined = int(np.isfinite(known.std).sum())
    return LinearStep(
        x=x,
        jacobian=jacobian,
        known=known,
        without_effect=lost,
        on_bound=np.asarray(fitted.on_bound) & ~lost,
        residual=residual,
        robust_weight=np.asarray(fitted.weights),
        settled=fitted.settled,
        solved=fitted.solved,
        cost=float(np.sum(weight * (residual / rows.std) ** 2)),
        misfit=misfit(np.sqrt(weight) * residual / rows.std, rows.weight, determined, fitted.weights),
    )


def reported_knowledge(step: LinearStep) -> Knowledge:
    """What the tests tell of the values, as it is reported.

    Standard deviations are widened where the model does not follow the data (`Misfit.widening`). A value on a bound has
    none: the data would move it beyond, and what they say of it there they do not say of the bound.
    """
    factor = step.misfit.widening
    std = np.where(step.on_bound, np.inf, factor * step.known.std)
    covariance = factor**2 * step.known.covariance
    return step.known._replace(std=std, covariance=covariance, verdict=verdicts(std, None))
