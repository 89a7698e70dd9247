"""Terms of friction together with all parameters of a machine: columns, and their fit."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxmb.identify.experiments.torque.further_columns import stribeck, stribeck_slope
from jaxmb.identify.experiments.torque.prepared import Prepared, Samples, least_squares
from jaxmb.identify.regression.torque_regressor import load_columns

ROUNDS = 30
"""Of the fit with all terms that were taken."""
SETTLED = 1e-6
"""Change of all coefficients and speeds, relative to each, at which it ends."""


class FrictionTerm(NamedTuple):
    """A term of the friction of one coordinate."""

    coordinate: str
    kind: str
    """One of `FRICTION_TERMS`."""
    coefficient: float
    """Nm or N for "stribeck", without a unit for "load", Nm s^3 for "cubic" and Nm s/K for "temperature"."""
    std: float
    speed: float | None
    """Stribeck speed, rad/s or m/s."""
    before: float
    """Root mean square error of the coordinate's effort on held-out motion, Nm or N."""
    after: float
    temperature: float | None = None
    """Mean of those recorded, about which the damping changes."""


class FrictionChoice(NamedTuple):
    """Terms of friction that are there, and the machine with them."""

    terms: tuple[FrictionTerm, ...]
    """Those that do most first."""
    values: dict[str, float]
    """Numbers of the regressor with which they were fitted: they say what gears carry."""


def fitted_terms(
    rows: Prepared, names: Sequence[str], terms: Sequence[FrictionTerm], std: Float[np.ndarray, "r"]
) -> FrictionChoice:
    """Terms of friction and all parameters together, by weighted least squares.

    By steps of Gauss and Newton in the coefficients and Stribeck speeds; the load that gears carry is that of the step
    before.

    Args:
        rows: equations of the motion, with its samples.
        names: of the regressor's columns.
        terms: with coefficients and speeds to start from.
        std: of each row.
    """
    right = (rows.effort - rows.constant) / std
    best, _ = least_squares(rows.regressor / std[:, None], right)
    choice = FrictionChoice(tuple(terms), dict(zip(names, best.tolist(), strict=True)))
    for _ in range(ROUNDS):
        columns, slopes = term_columns(rows, names, choice)
        best, _ = least_squares(np.concatenate([rows.regressor, columns, slopes], axis=1) / std[:, None], right)
        values, sizes, steps = np.split(best, [len(names), len(names) + len(terms)])
        curved = iter(steps.tolist())
        found = [
            term._replace(
                coefficient=float(size), speed=None if term.speed is None else _moved(term.speed, next(curved))
            )
            for term, size in zip(choice.terms, sizes, strict=True)
        ]
        before, choice = choice, FrictionChoice(tuple(found), dict(zip(names, values.tolist(), strict=True)))
        if all(_near(a, b) for a, b in zip(before.terms, found, strict=True)):
            break
    return choice


def term_columns(rows: Prepared, names: Sequence[str], choice: FrictionChoice) -> tuple[np.ndarray, np.ndarray]:
    """Columns [r, k] of the coefficients of terms, and [r, s] of Stribeck speeds."""
    loads, samples = load_columns(names), samples_of(rows)
    values = np.array([choice.values[name] for name in names])
    columns, slopes = [], []
    for term in choice.terms:
        i = rows.measured.index(term.coordinate)
        columns.append(term_column(rows, i, term_effort(term.kind, term.speed, samples, i, loads, values)))
        if term.speed is not None:
            slope = term.coefficient * stribeck_slope(samples.velocity[:, i], term.speed)
            slopes.append(term_column(rows, i, slope))
    empty = np.zeros((len(rows.effort), 0))
    return np.column_stack([empty, *columns]), np.column_stack([empty, *slopes])


def _moved(speed: float, step: float) -> float:
    """A Stribeck speed after a step, which may change it by half."""
    return float(np.clip(speed + step, speed / 1.5, 1.5 * speed))


def _near(before: FrictionTerm, after: FrictionTerm) -> bool:
    moved = [abs(after.coefficient - before.coefficient) <= SETTLED * abs(after.coefficient)]
    if before.speed is not None and after.speed is not None:
        moved.append(abs(after.speed - before.speed) <= SETTLED * after.speed)
    return all(moved)


def samples_of(rows: Prepared) -> Samples:
    """All samples behind some equations."""
    if rows.samples is None:
        raise ValueError("rows have no samples, expected those of `prepared` with keep_samples")
    return rows.samples


def term_column(rows: Prepared, coordinate: int, effort: Float[np.ndarray, "k"]) -> Float[np.ndarray, "r"]:
    """Rows of an effort at one coordinate."""
    samples = samples_of(rows)
    whole = np.zeros(samples.velocity.shape)
    whole[:, coordinate] = effort
    return samples.kept(whole)


def term_effort(
    kind: str, speed: float | None, samples: Samples, i: int, loads: np.ndarray, values: np.ndarray
) -> Float[np.ndarray, "k"]:
    """Effort of a kind of term for a coefficient of 1, at all samples of one coordinate.

    Args:
        kind: one of `FRICTION_TERMS`.
        speed: of Stribeck friction.
        samples: of the motion.
        i: number of the coordinate among those measured.
        loads: which columns load the gear.
        values: of the regressor's numbers.
    """
    v = samples.velocity[:, i]
    if kind == "stribeck" and speed is not None:
        return stribeck(v, speed)
    if kind == "cubic":
        return v**3
    if kind == "load":
        return np.abs(samples.regressor[:, i, loads] @ values[loads]) * np.sign(v)
    temperature = samples.temperature
    return np.zeros(v.shape) if temperature is None else (temperature - temperature.mean()) * v
