"""Exciting motions: periodic, within the limits of the drives, and such that torques tell most of the parameters."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from threadpoolctl import threadpool_limits

from jaxmb.identify.estimation.identifiability import RANK_TOLERANCE, deviations, scaled_svd
from jaxmb.identify.experiments.test import Sums
from jaxmb.identify.parameters.free_parameters import matching
from jaxmb.identify.plan.motions.criterion import Aim, rows_along, states
from jaxmb.identify.plan.motions.limits import limits_of
from jaxmb.identify.plan.motions.search import Found, improved
from jaxmb.identify.plan.motions.series import FINE, SAMPLES, Series, at_limits, random_choice, series_of
from jaxmb.identify.regression.base_parameters import base_parameters
from jaxmb.identify.regression.torque_regressor import regressor_names
from jaxmb.identify.study.format.next_format import NextMotionPart
from jaxmb.identify.study.format.torque_format import Motion
from jaxmb.identify.study.reading.torque import payload_columns
from jaxmb.identify.study.simulation.torques import states_along
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.loops import independent_coordinates
from jaxmb.mechanics.postures import build_model, posture

REFERENCES = 4
"""Random motions from which it is found which directions of the parameters can be told."""


class BaseDeviation(NamedTuple):
    """What a motion tells of a base parameter."""

    name: str
    formula: str
    std: float
    """SI units; inf where it is not told."""


@dataclasses.dataclass(frozen=True, eq=False)
class ExcitingMotion:
    """A periodic motion that starts and ends at rest, and what torques along it tell."""

    motion: dict[str, Motion]
    """Series of each coordinate, as in `motion` of a simulated torque test."""
    posture: dict[str, float]
    """Where it starts, rad or m."""
    base_hz: float
    periods: int
    std: dict[str, float]
    """Predicted standard deviation of each free parameter, SI units; inf where torques do not tell it alone."""
    base: tuple[BaseDeviation, ...]
    """Of each base parameter that has something free in it."""
    condition_number: float
    """Of the regressor of the base parameters along the motion, rows over their standard deviations, columns scaled to
    length 1."""
    criterion: float
    """That was made least: -log det of the information (of directions scaled alike for every motion of one machine and
    seed); with wanted parameters, log of the sum of (std / wanted std)^2; or log of the condition number."""
    rows: Float[np.ndarray, "d d"]
    """R with R^T R the information of the motion alone on the free parameters."""

    @property
    def duration_s(self) -> float:
        """Of all periods."""
        return self.periods / self.base_hz

    def states(
        self, time_s: Sequence[float] | Float[np.ndarray, "k"]
    ) -> tuple[Float[np.ndarray, "k c"], Float[np.ndarray, "k c"], Float[np.ndarray, "k c"]]:
        """Positions, rates and accelerations of its coordinates, in the order of `motion`, SI units."""
        names = tuple(self.motion)
        z, zd, zdd = states_along(self.motion, self.base_hz, np.asarray(time_s, dtype=float), names)
        return z + np.array([self.posture[name] for name in names]), zd, zdd

    def as_test(self) -> dict[str, Any]:
        """What of it belongs in a torque test of a study: `posture`, and of `simulate` `base_hz`, `duration_s` and
        `motion`; plain data."""
        motion = {name: {"sine": list(m.sine), "cosine": list(m.cosine)} for name, m in self.motion.items()}
        return {
            "kind": "torque",
            "posture": dict(self.posture),
            "simulate": {"duration_s": self.duration_s, "base_hz": self.base_hz, "motion": motion},
        }


def exciting_motion(
    machine: Machine,
    free: Sequence[str] | None = None,
    *,
    torque_std: float | Mapping[str, float] = 1.0,
    rate_hz: float = 100.0,
    **settings: Any,
) -> ExcitingMotion:
    """The motion along which torques of the drives tell most of inertial and friction parameters.

    Each coordinate moves by q(t) = q_0 + sum_k a_k sin(k w t) + b_k (cos(k w t) - 1) with sum k a_k = 0 and
    sum k^2 b_k = 0, so that a period begins and ends at rest without acceleration. From random motions quasi-Newton
    steps go down the gradient of -log det (J^T J), J the regressor over the standard deviations of the torques, on the
    directions of the parameters that can be told; of the sum of the variances of `wanted`; or, with the criterion
    "condition", of the condition number of the regressor of base parameters, columns scaled to length 1. The motion
    keeps the limits of range, speed and acceleration at all times. Collisions are not looked at.

    Args:
        machine: its coordinates have `speed_limit`, and `range` and `acceleration_limit` where there are such.
        free: names or patterns of `regressor_names` that are to be found; where not given, those of base parameters:
            of masses, and of all else what is not 0.
        torque_std: standard deviation of each sample of the torque, Nm or N: a number, or by coordinate.
        rate_hz: independent samples per second.
        settings: as in `[next]` of kind "torque": `base_hz`, `harmonics`, `periods`, `limits`, `wanted`,
            `criterion`, `without`, `starts`, `steps` (0: a random motion at its limits), `seed`.

    Returns:
        The motion with the standard deviations that are to be expected.

    Raises:
        ValueError: a name is none of a parameter or coordinate, there is no speed limit, a wanted parameter cannot be
            told by any motion, or a loop opens along one.

    Source: Swevers et al. 1997, "Optimal robot excitation and identification"; Gautier and Khalil 1992, "Exciting
    trajectories for the identification of base inertial parameters of robots".
    """
    part = NextMotionPart.model_validate({"kind": "torque"} | settings)
    model = build_model(machine)
    names = regressor_names(model)
    base = base_parameters(model, free)
    chosen = [name for i, name in enumerate(names) if base.matrix[:, i].any()]
    columns = np.eye(len(names))[:, [names.index(name) for name in chosen]]
    sums = Sums(base.names, base.formulas, names, base.matrix)
    coordinates = independent_coordinates(model)
    std = torque_std if isinstance(torque_std, Mapping) else dict.fromkeys(coordinates, torque_std)
    for name in std:
        if name not in coordinates:
            raise ValueError(known_name("torque_std: coordinate", name, coordinates))
    for what, given in (*((f"torque_std of '{name}'", each) for name, each in std.items()), ("rate_hz", rate_hz)):
        if not 0.0 < given < np.inf:
            raise ValueError(f"{what} is {given}, expected a finite number above 0")
    if not std:
        raise ValueError(f"torque_std is empty, expected that of at least one of {', '.join(coordinates)}")
    measured = np.array([1.0 / std[name] if name in std else 0.0 for name in coordinates])
    none = np.zeros((0, len(chosen)))
    sought = Sought(tuple(chosen), np.ones(len(chosen)), columns, measured, rate_hz, none, sums)
    return found_motion(machine, model, part, sought)


class Sought(NamedTuple):
    """What a motion is to tell of d parameters, and what is known of them."""

    names: tuple[str, ...]
    """One for each."""
    size: Float[np.ndarray, "d"]
    """SI units of one unit of each."""
    columns: Float[np.ndarray, "p d"]
    """Change of each number of `regressor_names` with each."""
    weight: Float[np.ndarray, "i"]
    """1 / standard deviation of the effort at each independent coordinate; 0 where it is not measured."""
    rate_hz: float
    """Independent samples per second."""
    made: Float[np.ndarray, "k d"]
    """Rows of what is known before."""
    base: Sums


def found_motion(machine: Machine, model: Model, part: NextMotionPart, sought: Sought) -> ExcitingMotion:
    """The best of several improved motions; see `exciting_motion`."""
    # The matrices are small: more threads in LAPACK only wait for each other.
    with threadpool_limits(1, user_api="blas"):
        return _found_motion(machine, model, part, sought)


def _found_motion(machine: Machine, model: Model, part: NextMotionPart, sought: Sought) -> ExcitingMotion:
    coordinates = independent_coordinates(model)
    moved = [name for name in coordinates if not model.locked[model.coordinates.index(name)]]
    reference = np.asarray(posture(model, {}))
    rest = reference[[model.coordinates.index(name) for name in coordinates]]
    limits = limits_of(machine, moved, part.limits)
    places = np.array([coordinates.index(name) for name in moved])
    coarse, fine = (series_of(part.harmonics, part.base_hz, limits, rest[places], n) for n in (SAMPLES, FINE))
    draw = np.random.default_rng(part.seed)
    drawn = [random_choice(fine, draw) for _ in range(max(part.starts, REFERENCES))]
    runs = np.stack([_carried(model, machine, payloads) @ sought.columns for payloads in part.without])
    aim = Aim(
        model=model, moved=places, rest=rest, columns=runs, weight=sought.weight,
        samples=sought.rate_hz * part.periods / part.base_hz, made=sought.made,
        wanted=_wanted(part.wanted, sought.names) * sought.size,
    )  # fmt: skip
    if part.criterion == "condition":
        base = base_columns(sought)
        sharp = dataclasses.replace(
            aim, columns=np.stack([_carried(model, machine, payloads) @ base for payloads in part.without]),
            made=np.zeros((0, base.shape[1])), wanted=np.zeros((0, base.shape[1])), by_condition=True,
        )  # fmt: skip
    else:
        told = _told(aim, fine, drawn)
        sharp = dataclasses.replace(
            aim, columns=runs @ told, made=_triangle(sought.made @ told), wanted=_in_directions(aim, told, sought.names)
        )
    best = min(
        (improved(sharp, coarse, fine, choice, part.steps) for choice in drawn[: part.starts]),
        key=lambda found: found.criterion,
    )
    return _described(aim, fine, best, moved, part, sought)


def _carried(model: Model, machine: Machine, without: Sequence[str]) -> np.ndarray:
    """Diagonal matrix that leaves out columns of payloads."""
    keep = np.ones(len(regressor_names(model)))
    keep[payload_columns(model, without, [payload.name for payload in machine.payload])] = 0.0
    return np.diag(keep)


def _wanted(wanted: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    """Rows of wanted parameters over their tolerances; a full name overrules a pattern."""
    by_name: dict[str, float] = {}
    for exact in (False, True):
        for pattern, tolerance in wanted.items():
            if (pattern in names) is exact:
                matches = [pattern] if exact else matching(names, pattern)
                if not matches:
                    raise ValueError(known_name("wanted: free parameter", pattern, names))
                by_name |= dict.fromkeys(matches, tolerance)
    rows = np.zeros((len(by_name), len(names)))
    for row, (name, tolerance) in zip(rows, by_name.items(), strict=True):
        row[names.index(name)] = 1.0 / tolerance
    return rows


def _rows(aim: Aim, series: Series, found: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """Triangular factor of what a motion tells of the d parameters."""
    Y = rows_along(aim, states(aim, series, *found))
    return _triangle(np.concatenate([(Y @ part).reshape(-1, part.shape[1]) for part in aim.columns]))


def _triangle(rows: np.ndarray) -> np.ndarray:
    return np.asarray(np.linalg.qr(rows, mode="r"))


def _told(aim: Aim, fine: Series, drawn: Sequence[np.ndarray]) -> np.ndarray:
    """Directions [d, r] of the parameters that motions can tell, scaled so that random ones tell each alike."""
    rows = [_rows(aim, fine, at_limits(fine, choice[:, :-1], choice[:, -1])) for choice in drawn[:REFERENCES]]
    svd = scaled_svd(np.concatenate([*rows, aim.made]), RANK_TOLERANCE)
    return svd.right[: svd.rank].T / svd.values[: svd.rank] / svd.scale[:, None]


def _in_directions(aim: Aim, told: np.ndarray, names: Sequence[str]) -> np.ndarray:
    """Rows of wanted parameters in the directions that can be told.

    Raises:
        ValueError: one has a part in a direction that cannot.
    """
    found = aim.wanted @ told
    lost = aim.wanted - found @ np.linalg.pinv(told)
    size = np.abs(aim.wanted).max(axis=1)
    for row, whole, left in zip(aim.wanted, size, lost, strict=True):
        if np.abs(left).max() > 1e-6 * whole:
            name = names[int(np.argmax(np.abs(row)))]
            raise ValueError(
                f"wanted: no motion tells '{name}' by itself, expected a parameter that torques tell alone"
            )
    return found


def _described(
    aim: Aim, fine: Series, best: Found, moved: Sequence[str], part: NextMotionPart, sought: Sought
) -> ExcitingMotion:
    amplitudes = best.coefficients @ fine.amplitudes.T
    sine, cosine = np.split(amplitudes, 2, axis=1)
    own = _rows(aim, fine, (best.coefficients, best.start))
    rows = np.concatenate([own, sought.made])
    return ExcitingMotion(
        motion={
            name: Motion(sine=tuple(sine[i].tolist()), cosine=tuple(cosine[i].tolist())) for i, name in enumerate(moved)
        },
        posture=dict(zip(moved, best.start.tolist(), strict=True)),
        base_hz=part.base_hz,
        periods=part.periods,
        std=dict(zip(sought.names, deviations(rows, np.diag(sought.size)).tolist(), strict=True)),
        base=base_deviations(rows, sought.base, sought.columns),
        condition_number=_condition(aim, fine, best, base_columns(sought)),
        criterion=best.criterion,
        rows=own,
    )


def _condition(aim: Aim, fine: Series, best: Found, base: np.ndarray) -> float:
    Y = rows_along(aim, states(aim, fine, best.coefficients, best.start))
    columns = (Y @ base).reshape(-1, base.shape[1])
    size = np.linalg.norm(columns, axis=0)
    return float(np.linalg.cond(columns / size)) if size.all() else np.inf


def base_columns(sought: Sought) -> np.ndarray:
    """Which columns of Y stand for base parameters that have something free in them [p, b]."""
    base = sought.base
    free = [name for name, row in zip(base.names, base.matrix @ sought.columns, strict=True) if row.any()]
    return np.eye(len(base.parameters))[:, [base.parameters.index(name) for name in free]]


def base_deviations(
    rows: Float[np.ndarray, "k d"], base: Sums, columns: Float[np.ndarray, "p d"]
) -> tuple[BaseDeviation, ...]:
    """What rows of tests tell of the base parameters that have something free in them.

    Args:
        rows: of the free parameters, in units of the noise.
        base: base parameters.
        columns: change of each number of the machine with each free parameter.
    """
    moved = base.matrix @ columns
    told = zip(base.names, base.formulas, deviations(rows, moved), moved, strict=True)
    return tuple(BaseDeviation(name, formula, float(std)) for name, formula, std, row in told if row.any())
