"""Candidate terms of the laws by which parameters may vary between tests: functions of posture, load or amplitude."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.parameters.free_parameters import FreeParameters, matching
from jaxmb.identify.study.format.study_format import AMPLITUDE, LOAD, LawsPart
from jaxmb.io.validation import check_known, display_name
from jaxmb.machine.build import Model
from jaxmb.mechanics.dynamics import gravity_effort
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.tangent import coordinate_loads

LEAST_TESTS = 3
"""Smallest number of fitted tests for cross-validation of laws."""
CONSTANT = 1e-6
"""Range of a term over the tests, relative to its size, below which it is constant."""


@dataclasses.dataclass(frozen=True)
class Term:
    """One term of a law: ln parameter = ... + coefficient (function of a covariate - its mean over the tests)."""

    parameter: str
    by: str
    """A coordinate, "amplitude" or "load"."""
    function: str
    """"sin" or "cos" of a revolute coordinate; "linear" in a prismatic one, relative to its range in the tests, and in
    the load; "log" of the amplitude."""
    scale: float
    """Divisor of the covariate before the function is evaluated; 1 for angles."""
    mean: float
    """Mean of the function over the fitted tests."""

    @property
    def text(self) -> str:
        """The term as text: "cos z2", "ln amplitude", "load"."""
        return {"sin": f"sin {self.by}", "cos": f"cos {self.by}", "log": f"ln {self.by}"}.get(self.function, self.by)

    def value(self, covariate: float | np.ndarray) -> float | np.ndarray:
        """Value of the term, centred: 0 on average over the fitted tests."""
        x = covariate / self.scale
        f = {"sin": np.sin, "cos": np.cos, "log": np.log}.get(self.function)
        return (x if f is None else f(x)) - self.mean


def covariate(model: Model, term_or_by: str, parameter: str, q: np.ndarray, amplitude: float | None) -> float:
    """Covariate of a law: a coordinate's value, the amplitude, or the load on the parameter's joint.

    The load is the size of the static effort of gravity on the coordinate, in closed loops its share, N m or N.

    Raises:
        ValueError: the amplitude is not given.
    """
    if term_or_by == AMPLITUDE:
        if amplitude is None:
            raise ValueError("no amplitude is given, expected one: a law depends on it")
        return amplitude
    if term_or_by == LOAD:
        return float(abs(_gravity_loads(model, jnp.asarray(q))[model.coordinates.index(_item(parameter))]))
    return float(q[model.coordinates.index(term_or_by)])


@compiled
def _gravity_loads(model: Model, q: Float[Array, "n"]) -> Float[Array, "n"]:
    x = whole(model, q)
    return coordinate_loads(model, x, gravity_effort(model, x))


def law_terms(part: LawsPart, model: Model, free: FreeParameters, tests: Sequence[Entry]) -> tuple[Term, ...]:
    """All candidate terms of a study's laws, except those with equal values in all tests.

    Args:
        part: table of the study file.
        model: the machine's, from which gravity loads are computed.
        free: the free parameters.
        tests: the fitted tests.

    Raises:
        ValueError: a parameter is not free, a covariate is not known or not given, there are too few tests, or nothing
            changes between them.
        NotImplementedError: a test contains several postures.
    """
    for entry in tests:
        if entry.test.vibration is None:
            raise NotImplementedError(
                f"laws cannot be found together with {display_name(entry.name)}, which was made at several postures"
            )
    postures = np.array([np.asarray(entry.test.vibration.q) for entry in tests if entry.test.vibration is not None])
    amplitudes = [entry.amplitude for entry in tests]
    if len(postures) < LEAST_TESTS:
        raise ValueError(
            f"there are {len(postures)} tests to fit, expected at least {LEAST_TESTS}: each is held out once"
        )
    parameters, of_tests = [], dict(free.of_tests)
    for pattern in part.parameters:
        found = matching([name for name in free.names if name not in of_tests], pattern)
        if not found:
            raise ValueError(f"parameters: '{pattern}' is not among the free parameters of the machine")
        parameters += [name for name in found if name not in parameters]
    for by in part.by:
        check_known("by", [by], (*model.coordinates, AMPLITUDE, LOAD))
        if by == AMPLITUDE and None in amplitudes:
            name = tests[amplitudes.index(None)].name
            raise ValueError(f"by 'amplitude': test '{name}' has no amplitude, expected one")
        if by == LOAD and not any(_item(name) in model.coordinates for name in parameters):
            raise ValueError("by 'load': none of the parameters is of a joint, expected one")
    terms = [
        term
        for name in parameters
        for by in part.by
        if by != LOAD or _item(name) in model.coordinates
        for term in _terms(name, by, model, postures, amplitudes)
    ]
    if not terms:
        raise ValueError(f"by: {', '.join(part.by)}: the same in all tests, expected something that changes")
    return tuple(terms)


def _terms(name: str, by: str, model: Model, postures: np.ndarray, amplitudes: Sequence[float | None]) -> list[Term]:
    x = np.array([covariate(model, by, name, q, a) for q, a in zip(postures, amplitudes, strict=True)])
    if by == AMPLITUDE:
        shapes = [("log", float(np.exp(np.mean(np.log(x)))))]
    elif by == LOAD:
        shapes = [("linear", float(x.max()))]
    elif model.revolute[model.coordinates.index(by)]:
        shapes = [("sin", 1.0), ("cos", 1.0)]
    else:
        shapes = [("linear", float(np.ptp(x)))]
    found = []
    for function, scale in shapes:
        if scale > 0.0:
            term = Term(name, by, function, scale, 0.0)
            values = np.asarray(term.value(x))
            if np.ptp(values) > CONSTANT * max(1.0, np.abs(values).max()):
                found.append(dataclasses.replace(term, mean=float(np.mean(values))))
    return found


def _item(parameter: str) -> str:
    return parameter.split(".", 1)[1]
