"""Residual and posterior density of a study as pure functions, for optimizers and samplers of other packages."""

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.components import is_robust
from jaxmb.identify.fit.problem import Problem, is_real, kind_of
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.identify.study.study import Solver, Study
from jaxmb.io.validation import check_known, typed_arguments


@typed_arguments
def residual(study: Study) -> Callable[[Mapping[str, ArrayLike]], Float[Array, "m"]]:
    """The residual of a study as a pure function of its free parameters by name.

    f(parameters) = sqrt(weight) (predicted - measured) / std x noise unit, all fitted tests one after another; f . f is
    the cost (eq. 22 of Huynh et al. 2020), the prior left out. The noise unit is the standard deviation of the first
    FRF test, 1 where there is none. f can be transformed by `jax.jit`, `jax.grad`, `jax.jacobian` and `jax.vmap`.
    Before a fit, gears of joints with a motor are rigid in torque tests; in `result.study` their torques are linearized
    about the fitted machine with elastic gears.

    Args:
        study: from `load_study`. `result.study` has the noise, the weights and the lines that a fit estimated, so that
            f . f at the identified values is `result.cost`, and more where a robust linear step has down-weighted
            outliers, which f contains with full weight.

    Returns:
        f: values by name (numbers or traced scalars, SI units) -> residuals [m]. A name that is left out keeps the
        study's initial value; of tied names, which share a value, the first one given is used.

    Raises:
        NotImplementedError: the study is for a complete stiffness model, which has no list of free parameters.
        ValueError: (f) a name is not a free parameter, or a value is no real scalar.
    """
    check_has_list(study)

    def residual_at(parameters: Mapping[str, ArrayLike]) -> Float[Array, "m"]:
        return _data_residual(study.problem, values_of(study.free, study.start.values, parameters))

    return residual_at


def check_has_list(study: Study) -> None:
    """Raise NotImplementedError where a study has no list of free parameters."""
    if study.solver is Solver.STIFFNESS_MODEL:
        raise NotImplementedError(f"study '{study.name}': a complete stiffness model has no list of free parameters")


def check_named(parameters: Mapping[str, ArrayLike], names: Sequence[str]) -> None:
    """Raise ValueError where values by name are no dictionary of real scalars of these names."""
    if not isinstance(parameters, Mapping):
        raise ValueError(f"parameters: found {kind_of(parameters)}, expected a dictionary of values by name")
    check_known("free parameter", map(str, parameters), names)
    for name, value in parameters.items():
        if not is_real(value) or np.shape(value) != ():
            raise ValueError(f"{name}: found {kind_of(value)}, expected a real scalar (`jax.vmap` for several)")


def values_of(
    free: FreeParameters, initial: Float[Array, "d"] | np.ndarray, parameters: Mapping[str, ArrayLike]
) -> Float[Array, "d"]:
    """Values of all free parameters [d] from values by name; the initial ones where a name is left out.

    Raises:
        ValueError: a name is not a free parameter, or a value is no real scalar.
    """
    check_named(parameters, [name for tied in free.tied for name in tied])
    given = [next((parameters[name] for name in tied if name in parameters), None) for tied in free.tied]
    values = [initial[i] if value is None else value for i, value in enumerate(given)]
    return jnp.stack([jnp.asarray(value, float) for value in values])


_data_residual = compiled(Problem.data_residual)


FARTHEST = 1e-6
"""Least distance to a bound of a finite coordinate, relative to the width of the bounds."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class LogDensity:
    """Logarithm of the posterior density of a study's free parameters, up to a constant; see `log_density`.

    As a pytree it can be an argument of compiled functions, which then serve all studies that differ in numbers only.
    """

    problem: Problem
    initial: Float[Array, "d"]
    """Values of names that are left out."""

    @property
    def free(self) -> FreeParameters:
        """The free parameters, their bounds and scales."""
        return self.problem.free

    def __call__(self, parameters: Mapping[str, ArrayLike]) -> Float[Array, ""]:
        """Log density at parameters by name, SI units; -inf outside the bounds."""
        return _of_values(self.problem, values_of(self.free, self.initial, parameters))

    def to_unbounded(self, parameters: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Unbounded coordinates of parameters, by the first of tied names; on a bound, near it."""
        free = self.free
        u = free.encode(values_of(self.free, self.initial, parameters))
        z = jax.scipy.special.logit(jnp.clip((u - free.lower) / (free.upper - free.lower), FARTHEST, 1.0 - FARTHEST))
        return dict(zip(free.names, z, strict=True))

    def from_unbounded(self, position: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Parameters by name of unbounded coordinates: the inverse of `to_unbounded`."""
        return dict(zip(self.free.names, self.free.values(self._u(position)), strict=True))

    def of_unbounded(self, position: Mapping[str, ArrayLike]) -> Float[Array, ""]:
        """Log density of the unbounded coordinates, for samplers and optimizers without bounds."""
        z = self._stacked(position)
        steepness = jnp.sum(jax.nn.log_sigmoid(z) + jax.nn.log_sigmoid(-z))
        return _of_u(self.problem, self._u(position)) + steepness

    def _stacked(self, position: Mapping[str, ArrayLike]) -> Float[Array, "d"]:
        check_named(position, self.free.names)
        missing = [name for name in self.free.names if name not in position]
        if missing:
            raise ValueError(f"unbounded coordinates: '{missing[0]}' is missing, expected all of `to_unbounded`")
        return jnp.stack([jnp.asarray(position[name], float) for name in self.free.names])

    def _u(self, position: Mapping[str, ArrayLike]) -> Float[Array, "d"]:
        return self.free.lower + (self.free.upper - self.free.lower) * jax.nn.sigmoid(self._stacked(position))


@typed_arguments
def log_density(study: Study) -> LogDensity:
    """Logarithm of the posterior density of a study's free parameters, a pure function of values by name.

    f(parameters) = -chi^2 / 2 + log p, up to a constant: chi^2 is the sum of the squared residuals over their variances
    (`residual` over its noise unit), p the density of the values under the study's prior. Without a prior a parameter
    is uniform between its bounds on its scale, that is in its logarithm where the scale is logarithmic. Samplers need
    coordinates without bounds: `f.to_unbounded(parameters)`, `f.of_unbounded(position)`, which is the density of these
    coordinates, and `f.from_unbounded(position)`. All can be transformed by `jax.jit`, `jax.grad` and `jax.vmap`.

    Args:
        study: from `load_study`; `result.study` has the noise and the weights that a fit estimated. The density is that
            of the measurement where the study states or estimates its noise, and has no `weights`; with weights above
            1, and for robust torque and deflection tests, there is a warning.

    Returns:
        f: values by name (SI units) -> scalar. A name that is left out keeps the study's initial value.

    Raises:
        NotImplementedError: the study is for a complete stiffness model, which has no list of free parameters.
        ValueError: (f) a name is not a free parameter, or a value is no real scalar.
    """
    check_has_list(study)
    if any(np.max(np.asarray(test.stated_variances()), initial=0.0) > 1.0 for test in study.problem.tests):
        warnings.warn(
            f"study '{study.name}': its tests have weights above 1, which count as lower noise: the density is narrower"
            " than that of the measurement, leave out `weights`",
            stacklevel=2,
        )
    if any(map(is_robust, study.tests)):
        warnings.warn(
            f"study '{study.name}': outliers of its robust tests, which a fit down-weights, have their full weight in"
            " the density: exclude them from the data",
            stacklevel=2,
        )
    return LogDensity(study.problem, jnp.asarray(study.start.values, float))


def _posterior(problem: Problem, u: Float[Array, "d"]) -> Float[Array, ""]:
    """Log density of u, up to a constant."""
    chi_square = jnp.sum(problem.data_residual(problem.free.values(u)) ** 2) / problem.noise_unit**2
    return -0.5 * (chi_square + jnp.sum(problem.prior_residual(u) ** 2))


_of_u = compiled(_posterior)


@compiled
def _of_values(problem: Problem, values: Float[Array, "d"]) -> Float[Array, ""]:
    free = problem.free
    inside = jnp.all((values >= free.lower_value) & (values <= free.upper_value))
    allowed = jnp.clip(values, free.lower_value, free.upper_value)
    is_log = jnp.asarray(free.logarithmic)
    slope = jnp.sum(jnp.where(is_log, jnp.log(jnp.where(is_log, allowed, 1.0)), 0.0))  # p(value) = p(u) du/dvalue
    return jnp.where(inside, _posterior(problem, free.encode(allowed)) - slope, -jnp.inf)
