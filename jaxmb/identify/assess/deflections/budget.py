"""Share of each joint, spring and flexible link in the deflections of a test."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.deflections.deflection_test import DeflectionTest
from jaxmb.identify.experiments.entry import Entry
from jaxmb.machine.build import Model


def deflection_budget(test: Any, model: Model) -> dict[str, float]:
    """Share of each elastic element in the work of the loads of all cases, which is also its share of strain energy, %.

    The work of a load is its size times the deflection along it, so these are shares of that deflection. With W the
    work and k_i the stiffness of element i, its share is -d ln W / d ln k_i (theorem of Castigliano). Gravity, where it
    acts, and what is rigid have none; the shares then do not sum to 100.

    Args:
        test: a `DeflectionTest`, of its postures and loads.
        model: the identified machine's.
    """
    _, first = np.unique(np.asarray(test.case), return_index=True)
    with_loaded_stiffness = dataclasses.replace(test, at_point=test.effort)
    scales = jnp.zeros(sum(map(len, _elements(model))))
    shares = -100.0 * np.asarray(_logarithmic_slope(with_loaded_stiffness, model, jnp.asarray(first), scales))
    names = [name for part in _elements(model) for name in part]
    return dict(zip(names, shares.tolist(), strict=True))


def deflection_budgets(entries: Sequence[Entry], model: Model) -> dict[str, dict[str, float]]:
    """`deflection_budget` of deflection tests by name."""
    return {entry.name: deflection_budget(entry.test, model) for entry in entries}


def _elements(model: Model) -> tuple[tuple[str, ...], ...]:
    """Names of coordinates, springs between frames, virtual springs and beams."""
    return model.coordinates, model.springs, model.virtual_springs, model.beams


@compiled
def _logarithmic_slope(test: DeflectionTest, model: Model, first: Array, scales: Float[Array, "e"]) -> Array:
    """Derivative of the logarithm of the work by the logarithms of all stiffnesses."""
    ends = np.cumsum([len(part) for part in _elements(model)])[:-1]

    def logarithm(scales: Array) -> Array:
        joint, spring, virtual, beam = (jnp.exp(part) for part in jnp.split(scales, ends))
        scaled = dataclasses.replace(
            model,
            stiffness=model.stiffness * joint,
            spring_stiffness=model.spring_stiffness * spring,
            compliance=model.compliance / virtual[:, None, None],
            young_modulus=model.young_modulus * beam,
            shear_modulus=model.shear_modulus * beam,
        )
        return jnp.log(jnp.sum(test.predict(test.view(scaled))[first]))

    return jax.grad(logarithm)(scales)
