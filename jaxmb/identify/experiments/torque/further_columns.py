"""Columns of the regressor of torque tests for friction beyond viscous and Coulomb friction."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import load_columns, regressor_names
from jaxmb.machine.build import Model


def column_names(model: Model, measured: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns of a torque test: those of `regressor_names`, then the Stribeck speeds of the coordinates
    whose effort was measured."""
    return (*regressor_names(model), *(f"stribeck_speed.{name}" for name in _stribeck(model, measured)))


def stribeck(velocity: Float[np.ndarray, "..."], speed: float) -> Float[np.ndarray, "..."]:
    """exp(-(v / v_s)^2) sign v."""
    return np.exp(-((velocity / speed) ** 2)) * np.sign(velocity)


def stribeck_slope(velocity: Float[np.ndarray, "..."], speed: float) -> Float[np.ndarray, "..."]:
    """Its derivative by v_s."""
    return stribeck(velocity, speed) * 2.0 * velocity**2 / speed**3


def further_columns(
    model: Model,
    measured: Sequence[str],
    regressor: Float[np.ndarray, "k c p"],
    velocity: Float[np.ndarray, "k c"],
    temperature: Float[np.ndarray, "k"] | None,
    carrying: Mapping[str, float] | None = None,
) -> tuple[Float[np.ndarray, "k c q"], Float[np.ndarray, "k c"]]:
    """The regressor with all columns of `column_names`, and the constant beside them.

    Temperatures are known here. Friction c |tau| sign v by the load tau = Y p, and Stribeck friction by its speed v_s,
    are not linear: they are taken about known values, c_0 and v_s0 of the machine and p_0, as
    (1 + c_0 sign(tau_0 v)) Y p + (c - c_0) |tau_0| sign v and ... + c_s0 (v_s - v_s0) d/dv_s exp(-(v / v_s)^2) sign v.

    Args:
        model: the machine.
        measured: coordinates whose effort was measured.
        regressor: Y at these.
        velocity: of these, rad/s or m/s.
        temperature: of the drives, where it was recorded.
        carrying: p_0 by name; the machine's own where not given.
    """
    constant = np.zeros(velocity.shape)
    if not any(model.further_friction):
        return regressor, constant
    names, own = regressor_names(model), parameters(model)
    loads = load_columns(names)
    known = own if carrying is None else carrying
    values = np.array([known.get(name, 0.0) for name in names])
    found, speeds = regressor.copy(), _stribeck(model, measured)
    more = np.zeros((*velocity.shape, len(speeds)))
    for i, name in enumerate(measured):
        terms, v = model.further_friction[model.coordinates.index(name)], velocity[:, i]
        if "load_friction" in terms:
            coefficient, load = own[f"load_friction.{name}"], regressor[:, i, loads] @ values[loads]
            column = np.abs(load) * np.sign(v)
            found[:, i, loads] *= (1.0 + coefficient * np.sign(load * v))[:, None]
            found[:, i, names.index(f"load_friction.{name}")] = column
            constant[:, i] -= coefficient * column
        if "damping_slope" in terms and temperature is not None:
            normal = float(model.friction_temperature[model.coordinates.index(name)])
            found[:, i, names.index(f"damping_slope.{name}")] = (temperature - normal) * v
        if "stribeck" in terms:
            speed = own[f"stribeck_speed.{name}"]
            column = own[f"stribeck.{name}"] * stribeck_slope(v, speed)
            more[:, i, speeds.index(name)] = column
            constant[:, i] -= column * speed
    return np.concatenate([found, more], axis=2), constant


def _stribeck(model: Model, measured: Sequence[str]) -> list[str]:
    return [name for name in measured if "stribeck" in model.further_friction[model.coordinates.index(name)]]
