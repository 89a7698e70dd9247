"""Exciting motions: periodic, within the limits of the drives, optimal for the identification from torques, also in
addition to the tests of a study."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
import scipy
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from jaxmb.identify.estimation.identifiability import (
    RANK_TOLERANCE,
    Identifiability,
    combination_std,
    identifiability,
    scaled_svd,
)
from jaxmb.identify.experiments.torque.effort_rows import closed_from
from jaxmb.identify.experiments.torque.gears import brakes_released, drives_of, shaft_names, without_effect_on_drives
from jaxmb.identify.experiments.torque.torque_test import TorqueEntry, torque_entries
from jaxmb.identify.parameters.free_parameters import affine_map, values_by_name
from jaxmb.identify.plan.candidates import OperatingPoint, Planned, proposal_toml, triangular_information
from jaxmb.identify.plan.motion_information import (
    FINE,
    SAMPLES,
    Limits,
    MotionObjective,
    Series,
    at_limits,
    criterion_of,
    limits_of,
    positions,
    random_choice,
    rows_along,
    series_of,
    trajectory,
    value_and_slope,
    within,
)
from jaxmb.identify.regression.base_parameters import BaseParameters, base_parameters
from jaxmb.identify.regression.torque_regressor import payload_columns, regressor_names
from jaxmb.identify.study.format.next_format import NextMotionPart
from jaxmb.identify.study.format.torque_format import MotionPart
from jaxmb.identify.study.reading.motions import states_along
from jaxmb.identify.study.study import Study
from jaxmb.io.validation import Table, check_known, finite_number, validated
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import build_model, posture

REFUSED = 1e6
"""Criterion of an infeasible motion."""


class Found(NamedTuple):
    """An optimized motion scaled to its limits."""

    coefficients: np.ndarray
    start: np.ndarray
    criterion: float


def improved(objective: MotionObjective, series: Series, fine: Series, choice: np.ndarray, steps: int) -> Found:
    """The motion of an optimization vector after quasi-Newton steps, scaled to its limits.

    Raises:
        ValueError: a loop cannot be closed along the motion, nor along any that was tried.

    Source: Byrd et al. 1995, L-BFGS-B.
    """
    shape = choice.shape
    if steps:
        choice = scipy.optimize.minimize(
            lambda x: value(objective, series, x, shape), choice.ravel(), jac=True, method="L-BFGS-B",
            options={"maxiter": steps, "maxcor": 20},
        ).x.reshape(shape)  # fmt: skip
    c, start = at_limits(fine, np.asarray(within(series, jax.device_put(choice))[0]), choice[:, -1])
    # on fine samples, with the exact sign of Coulomb friction
    return Found(c, start, criterion_of(objective, _rows(objective, fine, c, start)))


def value(
    objective: MotionObjective, series: Series, flat: np.ndarray, shape: tuple[int, ...]
) -> tuple[float, np.ndarray]:
    """Criterion and gradient; `REFUSED` for a motion along which a loop cannot be closed."""
    choice = jax.device_put(flat.reshape(shape))
    z = np.asarray(positions(objective, series, choice))
    try:
        q = closed_from(objective.model, z, np.asarray(objective.model.reference))
    except ValueError:
        return REFUSED, np.zeros(flat.size)
    found, slope = value_and_slope(objective, series, choice, jax.device_put(q), jax.device_put(z))
    if not np.isfinite(found):
        return REFUSED, np.zeros(flat.size)
    return float(found), np.asarray(slope).ravel()


REFERENCES = 4
"""Number of random motions that determine the identifiable directions of the parameters."""


class BaseDeviation(NamedTuple):
    """Predicted standard deviation of a base parameter."""

    name: str
    formula: str
    std: float
    """SI units; inf if it is not identifiable."""


@dataclasses.dataclass(frozen=True, eq=False)
class ExcitingMotion:
    """A periodic motion from rest to rest, and the predicted standard deviations of the parameters."""

    motion: dict[str, MotionPart]
    """Series of each coordinate, as in `motion` of a simulated torque test."""
    posture: dict[str, float]
    """Start posture, rad or m."""
    base_hz: float
    periods: int
    std: dict[str, float]
    """Predicted standard deviation of each free parameter, SI units; inf if it is not identifiable separately."""
    base: tuple[BaseDeviation, ...]
    """Of each base parameter that contains a free parameter."""
    condition_number: float
    """Of the regressor of the base parameters along the motion, rows over their standard deviations, columns scaled to
    length 1."""
    criterion: float
    """Minimised criterion: -log det of the information (in directions with a common scale for one machine and seed);
    with `wanted`, log of the sum of (std / wanted std)^2; or log of the condition number."""
    rows: Float[np.ndarray, "d d"]
    """R with R^T R the information of the motion alone on the free parameters."""

    @property
    def duration_s(self) -> float:
        """Duration of all periods, s."""
        return self.periods / self.base_hz

    def states(
        self, time_s: Sequence[float] | Float[np.ndarray, "k"]
    ) -> tuple[Float[np.ndarray, "k c"], Float[np.ndarray, "k c"], Float[np.ndarray, "k c"]]:
        """Positions, rates and accelerations of its coordinates, in the order of `motion`, SI units."""
        names = tuple(self.motion)
        z, zd, zdd = states_along(self.motion, self.base_hz, np.asarray(time_s, dtype=float), names)
        return z + np.array([self.posture[name] for name in names]), zd, zdd

    def as_test(self) -> Table:
        """Its keys for a torque test of a study as plain data: `posture`, and `base_hz`, `duration_s` and `motion` of
        `simulate`."""
        return {
            "kind": "torque",
            "posture": dict(self.posture),
            "simulate": {
                "duration_s": self.duration_s,
                "base_hz": self.base_hz,
                "motion": {name: {"sine": list(m.sine), "cosine": list(m.cosine)} for name, m in self.motion.items()},
            },
        }


def exciting_motion(
    machine: Machine,
    free: Sequence[str] | None = None,
    *,
    torque_std: float | Mapping[str, float] = 1.0,
    rate_hz: float = 100.0,
    **settings: Any,
) -> ExcitingMotion:
    """Optimal exciting motion for the identification of inertial and friction parameters from drive torques.

    Each coordinate moves by q(t) = q_0 + sum_k a_k sin(k w t) + b_k (cos(k w t) - 1) with sum k a_k = 0 and
    sum k^2 b_k = 0, so that a period begins and ends at rest without acceleration. Starting from random motions,
    quasi-Newton steps minimize -log det (J^T J), J the regressor over the standard deviations of the torques, on the
    identifiable directions of the parameters; the sum of the variances of `wanted`; or, with the criterion "condition",
    the condition number of the regressor of base parameters, columns scaled to length 1. The motion respects the limits
    of range, speed and acceleration of independent and coupled coordinates at all times; those of dependent coordinates
    in loops and collisions are not checked. Motors turn with their joints, through rigid gears.

    Args:
        machine: its coordinates have `speed_limit` and optionally `range` and `acceleration_limit`.
        free: names or patterns of `regressor_names` to identify; default: those of base parameters, masses and all
            others that are not 0.
        torque_std: standard deviation of each sample of the torque, Nm or N: a number, or by coordinate.
        rate_hz: independent samples per second.
        settings: as in `[next]` of kind "torque": `base_hz`, `harmonics`, `periods`, `limits`, `wanted`,
            `criterion`, `without`, `starts`, `steps` (0: a random motion at its limits), `seed`.

    Returns:
        The motion with the predicted standard deviations.

    Raises:
        ValueError: a parameter, coordinate or setting is unknown, a speed limit is missing, a wanted parameter is not
            identifiable by any motion, the information of all motions is singular, or a loop cannot be closed along a
            motion.

    Source: Swevers et al. 1997, "Optimal robot excitation and identification"; Gautier and Khalil 1992, "Exciting
    trajectories for the identification of base inertial parameters of robots".
    """
    part = validated(NextMotionPart, {"kind": "torque"} | settings, "settings")
    model = brakes_released(build_model(machine))
    names = regressor_names(model)
    base = base_parameters(model, free)
    chosen = [name for i, name in enumerate(names) if base.matrix[:, i].any()]
    coordinates = [name for name in independent_coordinates(model) if name not in shaft_names(model)]
    std = torque_std if isinstance(torque_std, Mapping) else dict.fromkeys(coordinates, torque_std)
    check_known("torque_std: coordinate", std, coordinates)
    for label, value in (*((f"torque_std of '{name}'", each) for name, each in std.items()), ("rate_hz", rate_hz)):
        finite_number(label, value, above=0.0)
    if not std:
        raise ValueError(f"torque_std is empty, expected that of at least one of {', '.join(coordinates)}")
    sought = MotionProblem(
        names=tuple(chosen),
        size=np.ones(len(chosen)),
        columns=np.eye(len(names))[:, [names.index(name) for name in chosen]],
        weight=np.array([1.0 / std[name] if name in std else 0.0 for name in independent_coordinates(model)]),
        rate_hz=rate_hz,
        made=np.zeros((0, len(chosen))),
        base=base,
    )
    return found_motion(machine, model, part, sought)


class MotionProblem(NamedTuple):
    """The d parameters to identify by a motion, the noise, and the prior information."""

    names: tuple[str, ...]
    """Names of the parameters."""
    size: Float[np.ndarray, "d"]
    """Scale of each parameter, SI units."""
    columns: Float[np.ndarray, "p d"]
    """Derivatives of the numbers of `regressor_names` by the parameters."""
    weight: Float[np.ndarray, "i"]
    """1 / standard deviation of the torque or force at each independent coordinate; 0 if it is not measured."""
    rate_hz: float
    """Independent samples per second."""
    made: Float[np.ndarray, "k d"]
    """Information rows of the planned tests and the prior."""
    base: BaseParameters
    """Base parameters."""


@threadpool_limits.wrap(limits=1, user_api="blas")  # for small matrices threads within LAPACK only add overhead
def found_motion(machine: Machine, model: Model, part: NextMotionPart, sought: MotionProblem) -> ExcitingMotion:
    """The best of several optimized motions; see `exciting_motion`."""
    model, coordinates, gears = brakes_released(model), independent_coordinates(model), np.eye(len(sought.weight))
    for joint, shaft, ratio in drives_of(model):
        gears[joint, shaft] = ratio
    driven = [
        name
        for name in coordinates
        if not model.locked[model.coordinates.index(name)] and name not in shaft_names(model)
    ]
    rest = np.asarray(posture(model, {}))[[model.coordinates.index(name) for name in coordinates]]
    limits = limits_of(machine, driven, part.limits)
    index = np.array([coordinates.index(name) for name in driven])
    coarse, fine = (series_of(part.harmonics, part.base_hz, limits, rest[index], n) for n in (SAMPLES, FINE))
    draw = np.random.default_rng(part.seed)
    drawn = [random_choice(fine, draw) for _ in range(max(part.starts, REFERENCES))]
    runs = np.stack([_payload_mask(model, machine, payloads) @ sought.columns for payloads in part.without])
    objective = MotionObjective(
        model=model, moved=index, rest=rest, gears=gears, columns=runs, weight=sought.weight,
        samples=sought.rate_hz * part.periods / part.base_hz, made=sought.made,
        wanted=_target_rows(part.wanted, sought.names) * sought.size,
    )  # fmt: skip
    if part.criterion == "condition":
        base = base_columns(sought)
        reduced = dataclasses.replace(
            objective, columns=np.stack([_payload_mask(model, machine, payloads) @ base for payloads in part.without]),
            made=np.zeros((0, base.shape[1])), wanted=np.zeros((0, base.shape[1])), by_condition=True,
        )  # fmt: skip
    else:
        # identifiable directions [d, r] of the parameters, scaled to equal information from random motions
        rows = [_rows(objective, fine, *at_limits(fine, c[:, :-1], c[:, -1])) for c in drawn[:REFERENCES]]
        basis = scaled_svd(np.concatenate([*rows, objective.made]), RANK_TOLERANCE).gain
        reduced = dataclasses.replace(
            objective, columns=runs @ basis, made=np.asarray(np.linalg.qr(sought.made @ basis, mode="r")),
            wanted=_in_directions(objective, basis, sought.names),
        )  # fmt: skip
    best = min(
        (improved(reduced, coarse, fine, choice, part.steps) for choice in drawn[: part.starts]),
        key=lambda found: np.nan_to_num(found.criterion, nan=np.inf),  # NaN for a singular information matrix
    )
    if not np.isfinite(best.criterion):
        raise ValueError(
            f"no motion of {part.starts} starts determines all parameters, so that the criterion '{part.criterion}' is"
            " not known: expected more starts, or parameters and torques with which it is"
        )
    return _exciting_motion(objective, fine, best, driven, part, sought)


def _payload_mask(model: Model, machine: Machine, without: Sequence[str]) -> np.ndarray:
    """Diagonal matrix that removes the columns of absent payloads, and those without effect on drives."""
    keep = 1.0 - np.isin(regressor_names(model), without_effect_on_drives(model))
    keep[payload_columns(model, without, [payload.name for payload in machine.payload], "without: payload")] = 0.0
    return np.diag(keep)


def _target_rows(wanted: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    """Rows of the target parameters over their tolerances; a full name overrides a pattern."""
    by_name = values_by_name(names, wanted, "wanted: free parameter")
    chosen = np.array([names.index(name) for name in by_name], dtype=int)
    return np.eye(len(names))[chosen] / np.array(list(by_name.values()))[:, None]


def _rows(objective: MotionObjective, series: Series, c: np.ndarray, start: np.ndarray) -> np.ndarray:
    """Triangular factor of the information rows of a motion on the d parameters."""
    Y = rows_along(objective, trajectory(objective, series, c, start))
    rows = np.concatenate([(Y @ part).reshape(-1, part.shape[1]) for part in objective.columns])
    return np.asarray(np.linalg.qr(rows, mode="r"))


def _in_directions(objective: MotionObjective, basis: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Rows of the target parameters in the identifiable directions.

    Raises:
        ValueError: a target parameter has a component outside these directions.
    """
    rows = objective.wanted @ basis
    outside = objective.wanted - rows @ np.linalg.pinv(basis)
    wrong = np.abs(outside).max(axis=1) > 1e-6 * np.abs(objective.wanted).max(axis=1)
    if wrong.any():
        name = names[int(np.argmax(np.abs(objective.wanted[wrong][0])))]
        raise ValueError(
            f"wanted: '{name}' is identifiable only in combination with others, expected a parameter that torques"
            " identify separately"
        )
    return rows


def _exciting_motion(
    objective: MotionObjective,
    fine: Series,
    best: Found,
    driven: Sequence[str],
    part: NextMotionPart,
    sought: MotionProblem,
) -> ExcitingMotion:
    sine, cosine = np.split(best.coefficients @ fine.amplitudes.T, 2, axis=1)
    own = _rows(objective, fine, best.coefficients, best.start)
    rows = np.concatenate([own, sought.made])
    base = base_columns(sought)
    Y = rows_along(objective, trajectory(objective, fine, best.coefficients, best.start))
    columns = (Y @ base).reshape(-1, base.shape[1])
    size = np.linalg.norm(columns, axis=0)
    return ExcitingMotion(
        motion={
            name: MotionPart(sine=tuple(sine[i].tolist()), cosine=tuple(cosine[i].tolist()))
            for i, name in enumerate(driven)
        },
        posture=dict(zip(driven, best.start.tolist(), strict=True)),
        base_hz=part.base_hz,
        periods=part.periods,
        std=dict(zip(sought.names, combination_std(rows, np.diag(sought.size)).tolist(), strict=True)),
        base=base_deviations(rows, sought.base, sought.columns),
        condition_number=float(np.linalg.cond(columns / size)) if size.all() else np.inf,
        criterion=best.criterion,
        rows=own,
    )


def base_columns(sought: MotionProblem) -> np.ndarray:
    """Selection matrix [p, b] of the columns of Y of base parameters that contain a free parameter."""
    base = sought.base
    free = [name for name, row in zip(base.names, base.matrix @ sought.columns, strict=True) if row.any()]
    return np.eye(len(base.parameters))[:, [base.parameters.index(name) for name in free]]


def base_deviations(
    rows: Float[np.ndarray, "k d"], base: BaseParameters, columns: Float[np.ndarray, "p d"]
) -> tuple[BaseDeviation, ...]:
    """Predicted standard deviations of the base parameters that contain a free parameter.

    Args:
        rows: information rows on the free parameters, in units of the noise.
        base: base parameters.
        columns: derivatives of the numbers of the machine by the free parameters.
    """
    matrix = base.matrix @ columns
    entries = zip(base.names, base.formulas, combination_std(rows, matrix), matrix, strict=True)
    return tuple(BaseDeviation(name, formula, float(std)) for name, formula, std, row in entries if row.any())


PROPOSED = "one motion is proposed: periodic, from rest to rest, within the limits of the drives"


@dataclasses.dataclass(frozen=True, eq=False)
class NextMotion:
    """A proposed next motion, and the predicted identifiability after it."""

    part: NextMotionPart
    like: str
    """Test with the same sampling and noise."""
    motion: ExcitingMotion
    """Its standard deviations are those after the planned tests and this one."""
    limits: Limits
    """Limits of its coordinates."""
    revolute: tuple[bool, ...]
    """Whether each coordinate is revolute (rad) or prismatic (m)."""
    known: Identifiability
    """Identifiability after the planned tests and this one."""

    def as_json(self, model: Model) -> Table:
        """The motion in the layout of `inspect.json`."""
        test = self.motion.as_test()
        return {
            "kind": "torque",
            "like": self.like,
            "seed": self.part.seed,
            "without": self.part.without,
            "posture": test["posture"],
            **test["simulate"],
            "condition_number": self.motion.condition_number,
            "std": self.motion.std,
            "base": {row.name: row.std for row in self.motion.base},
        }

    def as_toml(self, study: Study) -> str:
        """The motion as TOML that can be appended to the study file, one test for each run."""
        runs = [self.motion.as_test() | {"without": list(absent) or None} for absent in self.part.without]
        return proposal_toml(study, self.like, runs)


def plan_motion(study: Study, operating_point: OperatingPoint, made: Float[np.ndarray, "m d"]) -> Planned:
    """The next motion requested by a study, optimal in addition to its planned tests; its torque tests define sampling
    and noise.

    Raises:
        ValueError: see `exciting_motion`.
    """
    part: Any = study.next
    like = next(e for e in torque_entries(study.fitted) if part.like in (None, e.name))
    base = like.test.linear.combinations(study.model, study.free)
    weight, rate_hz = measured_as(like, study.model)
    size = study.free.slope(operating_point.values)
    columns = affine_map(study.model, study.free, base.parameters)[0] * size
    sought = MotionProblem(study.free.names, size, columns, weight, rate_hz, made, base)
    found = found_motion(study.machine, study.model, part, sought)
    rows = np.concatenate([made, triangular_information(found.rows)])
    proposed = NextMotion(
        part=part,
        like=like.name,
        motion=found,
        limits=limits_of(study.machine, tuple(found.motion), part.limits),
        revolute=tuple(study.model.revolute[study.model.coordinates.index(name)] for name in found.motion),
        known=identifiability(rows, np.ones(len(rows)), study.problem.prior_std),
    )
    return Planned(proposed, PROPOSED)


def measured_as(entry: TorqueEntry, model: Model) -> tuple[Float[np.ndarray, "i"], float]:
    """1 / standard deviation of the torque or force at each independent coordinate, 0 if it was not measured, and the
    samples per second."""
    number, std = np.asarray(entry.test.coordinate), np.asarray(entry.test.std)
    by_name = {name: 1.0 / np.median(std[number == i]) for i, name in enumerate(entry.source.coordinates)}
    weight = np.array([by_name.get(name, 0.0) for name in independent_coordinates(model)])
    return weight, 1.0 / float(np.median(np.diff(np.unique(np.asarray(entry.source.time_s, dtype=float)))))
