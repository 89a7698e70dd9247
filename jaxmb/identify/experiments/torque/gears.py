"""Drives with elastic gears: motion of links and motors from a record of one side, and efforts of the drives.

With theta the motor's angle over the ratio r and q the link's angle, the effort of a drive at the joint is

    tau = r f_motor(q, theta) + f_link(q, theta),    f_link + k (q - theta) + d (q' - theta') = 0,

f_motor rotor inertia and shaft friction, f_link the inverse dynamics of the links, k and d the stiffness and damping of
the gear (Spong 1987). All terms are rows of the regressor of links and shafts. The second equation determines the side
that was not recorded.
"""

import dataclasses
import functools
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled, in_batches
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.torque_regressor import BLOCK, regressor_names, stacked_torque_regressor
from jaxmb.io.validation import check_known
from jaxmb.machine.build import Model
from jaxmb.measurement.motion.record import MotionRecord, Side, rates
from jaxmb.mechanics.forward import frictionless, tree_effort
from jaxmb.mechanics.loops import independent_coordinates

Steps = list[tuple[np.ndarray, np.ndarray, np.ndarray]]
"""Matrices by which u and u' after each step follow from those before, from the load before and from its change."""
NEWTON_STEPS = 2
"""Newton steps: the first one is exact up to products of deflections, of a thousandth of a radian each."""
INITIAL_LOAD_S = 0.1
"""Time over which the initial load is smoothed, s; its derivatives give the deflection without free vibration."""
AT_REST = 0.01
"""Initial speed over the largest speed, below which a recorded motion starts at rest."""
INITIAL_ACCELERATION = 0.3
"""Initial over largest acceleration, up to which a motion may start at rest: the low-pass filter spreads acceleration
to the first sample. A record that begins at a reversal of joints has more."""
LARGEST_DEFLECTION = 0.2
"""Largest plausible deflection of a gear, rad or m."""


class Gears(NamedTuple):
    """Gear model of a torque test."""

    sides: dict[str, Side]
    """Recorded side of each joint with a motor, where not both were recorded."""
    dynamic: bool = True
    """Whether links vibrate on their gears; otherwise deflections are quasi-static."""
    fitted: Model | None = None
    """Machine about which efforts are linearized; None for rigid gears."""


def brakes_released(model: Model) -> Model:
    """The machine with the motor shafts unlocked, except those of locked joints."""
    joint_of = {shaft: joint for joint, shaft in model.motors}
    locked = tuple(model.locked[joint_of.get(i, i)] for i in range(len(model.locked)))
    return dataclasses.replace(model, locked=locked)


def without_masses(model: Model, names: Container[str]) -> Model:
    """The machine with bodies and payloads that weigh nothing."""
    keep = jnp.array([name not in names for name in model.masses], dtype=float)
    return dataclasses.replace(
        model,
        mass=keep * model.mass,
        first_moment=keep[:, None] * model.first_moment,
        inertia=keep[:, None, None] * model.inertia,
    )


def shaft_names(model: Model) -> list[str]:
    """Coordinates of the shafts of the motors."""
    return [model.coordinates[shaft] for _, shaft in model.motors]


def drives_of(model: Model) -> list[tuple[int, int, float]]:
    """Indices of joint and shaft among the independent coordinates, and the gear ratio, of each motor.

    Raises:
        NotImplementedError: a joint with a motor is a dependent coordinate of a loop.
    """
    names, found = independent_coordinates(model), []
    for (joint, shaft), ratio in zip(model.motors, np.asarray(model.gear_ratio).tolist(), strict=True):
        if joint in model.dependent:
            raise NotImplementedError(
                f"torque tests need '{model.coordinates[joint]}', which has a motor, among the machine's independent"
                " coordinates"
            )
        found.append((names.index(model.coordinates[joint]), names.index(model.coordinates[shaft]), ratio))
    return found


def at_joints(
    model: Model, record: MotionRecord, angles_at: Side | Mapping[str, Side]
) -> tuple[MotionRecord, dict[str, Side]]:
    """The record with drive efforts converted to the joints, and shafts without a recorded joint converted to that
    joint.

    Args:
        model: the machine.
        record: of its motion.
        angles_at: side of the gear on which angles in joint columns were recorded, for all joints or by joint.

    Raises:
        ValueError: an effort is given twice, or a name is not that of a joint with a motor.
    """
    names, sides = independent_coordinates(model), dict[str, Side]()
    measured = set(np.flatnonzero(np.isfinite(record.effort).any(axis=0)).tolist())
    # column and divisor of the motion, column and factor of the effort
    columns = {name: (i, 1.0, i, 1.0) for i, name in enumerate(record.names)}
    drives = {names[joint]: (names[shaft], ratio) for joint, shaft, ratio in drives_of(model)}
    check_known("angles_at: joint with a motor", angles_at if isinstance(angles_at, Mapping) else (), drives)
    for joint, (shaft, ratio) in drives.items():
        if joint not in columns and shaft not in columns:
            continue
        side: Side = angles_at.get(joint, "motor") if isinstance(angles_at, Mapping) else angles_at
        if shaft in columns and joint in columns:
            i, k = record.names.index(shaft), record.names.index(joint)
            if {i, k} <= measured:
                raise ValueError(f"'{joint}.torque' and '{shaft}.torque' are the same, expected one of them")
            columns[joint] = (k, 1.0, k, 1.0) if k in measured else (k, 1.0, i, ratio)
            columns[shaft] = (i, 1.0, i, np.nan)
            continue
        if shaft in columns:
            i, *_ = columns.pop(shaft)
            columns[joint], side = (i, ratio, i, ratio), "motor"
        sides[joint] = side
    selected = tuple(name for name in names if name in columns)
    motion, divisor, own, factor = map(np.array, zip(*(columns[name] for name in selected), strict=True))
    parts = {field: getattr(record, field) for field in ("position", "velocity", "acceleration")}
    there = {field: None if part is None else part[:, motion] / divisor for field, part in parts.items()}
    drives = record.drives and record.drives._replace(ratio=record.drives.ratio[:, own] * factor)
    effort = record.effort[:, own] * factor
    return dataclasses.replace(record, names=selected, effort=effort, drives=drives, **there), sides


def reversed_at(record: MotionRecord, joints: Sequence[str]) -> MotionRecord:
    """The record at joints for gear ratios of the opposite sign, for joints recorded at their shafts."""
    sign = np.where(np.isin(record.names, joints), -1.0, 1.0)
    parts = {field: getattr(record, field) for field in ("position", "velocity", "acceleration", "effort")}
    drives = record.drives and record.drives._replace(ratio=record.drives.ratio * sign)
    scaled = {field: None if part is None else part * sign for field, part in parts.items()}
    return dataclasses.replace(record, drives=drives, **scaled)


def rigid_gears(model: Model, recorded: Sequence[str], z: Float[np.ndarray, "k m"]) -> Float[np.ndarray, "k m"]:
    """Coordinates, or their derivatives, with unrecorded shafts from their joints through rigid gears."""
    found, names = z.copy(), independent_coordinates(model)
    for joint, shaft, ratio in drives_of(model):
        if names[shaft] not in recorded:
            found[:, shaft] = ratio * z[:, joint]
    return found


def unloaded(model: Model) -> Float[np.ndarray, "n"]:
    """Unloaded position of all springs: the reference posture, with undeflected gears."""
    rest = np.array(model.reference)
    for (joint, shaft), ratio in zip(model.motors, np.asarray(model.gear_ratio), strict=True):
        rest[shaft] = ratio * rest[joint]
    return rest


def drive_rows(model: Model, rows: Float[np.ndarray, "k m p"]) -> Float[np.ndarray, "k m p"]:
    """Regressor rows of the drives, for joints with motors: gear loads cancel, and the stiffness of a position loop is
    part of the recorded effort."""
    if not model.motors:
        return rows
    found, names = rows.copy(), regressor_names(model)
    for joint, shaft, ratio in drives_of(model):
        found[:, joint] += ratio * rows[:, shaft]
    found[:, :, np.isin(names, without_effect_on_drives(model))] = 0.0
    return found


def without_effect_on_drives(model: Model) -> list[str]:
    """Names of the stiffness and damping of gears and the stiffness of position loops, see `drive_rows`."""
    drives = [(model.coordinates[joint], model.coordinates[shaft]) for joint, shaft in model.motors]
    return [name for own, motor in drives for name in (f"stiffness.{own}", f"damping.{own}", f"stiffness.{motor}")]


def begins_at_rest(velocity: Float[np.ndarray, "k m"], acceleration: Float[np.ndarray, "k m"]) -> bool:
    """Whether a motion begins at rest, without speed and acceleration."""
    speed, change = (
        np.abs(part[0]) / np.maximum(np.abs(part).max(axis=0), 1e-300) for part in (velocity, acceleration)
    )
    return bool(np.all(speed <= AT_REST) and np.all(change <= INITIAL_ACCELERATION))


def elastic_rows(
    model: Model,
    gears: Gears,
    absent: Sequence[int],
    z: Float[np.ndarray, "k m"],
    zd: Float[np.ndarray, "k m"],
    zdd: Float[np.ndarray, "k m"],
    rate_hz: float,
) -> tuple[Float[np.ndarray, "k m p"], Float[np.ndarray, "k m"], Float[np.ndarray, "k m"]]:
    """Efforts of drives with elastic gears, linearized: matrix @ [value of each of `regressor_names`] + constant; and
    the coordinates of both sides.

    Args:
        model: the machine, brakes released, without loops.
        gears: with the machine of linearization.
        absent: columns of the regressor without effect in this record.
        z: coordinates at consecutive samples, as with rigid gears.
        zd: their rates.
        zdd: their accelerations.
        rate_hz: samples per second.

    Raises:
        ValueError: deflections of that machine are too large, or its mass matrix is not positive definite.
    """
    fitted, names, own = gears.fitted or model, independent_coordinates(model), regressor_names(model)
    drives = [drive for drive in drives_of(model) if names[drive[0]] in gears.sides]
    known = parameters(fitted)
    p0 = np.array([0.0 if i in absent else known[name] for i, name in enumerate(own)])
    link = np.array([gears.sides[names[joint]] == "link" for joint, _, _ in drives], dtype=bool)
    joints, shafts = (np.array([drive[k] for drive in drives]) for k in (0, 1))
    ratio = np.array([drive[2] for drive in drives])
    at = [fitted.coordinates.index(names[joint]) for joint in joints]
    k, d = (np.where(link, -1.0, 1.0) * np.asarray(part)[at] for part in (fitted.stiffness, fitted.damping))
    # unit vectors of the unknowns: the link's angle, or the motor's over the ratio
    unit = np.zeros((z.shape[1], len(drives)))
    unit[np.where(link, shafts, joints), np.arange(len(drives))] = np.where(link, ratio, 1.0)
    by = _tangents(fitted, absent, own, unit, z, zd, zdd)
    terms = [part[:, joints] for part in by]
    terms[0] = terms[0] + np.diag(k)
    terms[1] = terms[1] + np.diag(d)
    step_s, steps = 1.0 / rate_hz, None
    at_rest = begins_at_rest(zd, zdd)
    if at_rest:
        zd, zdd = (np.concatenate([np.zeros_like(part[:1]), part[1:]]) for part in (zd, zdd))
    if gears.dynamic:
        K, C, M = (part[:, ~link][:, :, ~link] for part in terms)
        steps = _steps(K, C, M, step_s)
    rest = jnp.asarray(unloaded(model))
    for _ in range(NEWTON_STEPS):
        rows = stacked_torque_regressor(model, z, zd, zdd, rest)
        responses = _response(terms, (rows[:, joints] @ p0)[:, :, None], link, step_s, steps, at_rest)
        z, zd, zdd = (state + part[:, :, 0] @ unit.T for state, part in zip((z, zd, zdd), responses, strict=True))
        largest = np.abs(responses[0]).max()
        if not largest <= LARGEST_DEFLECTION:
            raise ValueError(
                f"gears deflect by {largest:.2g} rad or m, expected at most {LARGEST_DEFLECTION:g}: check stiffnesses"
                " of gears, ratios, masses and units"
            )
    rows = stacked_torque_regressor(model, z, zd, zdd, rest)
    found = drive_rows(model, rows)
    constant = found @ p0
    acting = np.flatnonzero(np.abs(rows[:, joints]).max(axis=(0, 1)) > 0.0)
    for some in np.array_split(acting, -(-acting.size // 32)):
        responses = _response(terms, rows[:, joints][:, :, some], link, step_s, steps, at_rest)
        change = by[0] @ responses[0] + by[1] @ responses[1] + by[2] @ responses[2]
        change[:, joints] += ratio[:, None] * change[:, shafts]
        found[:, :, some] += change
    return found, constant - found @ p0, z


def _response(
    terms: Sequence[Float[np.ndarray, "k n n"]],
    load: Float[np.ndarray, "k n c"],
    link: np.ndarray,
    step_s: float,
    steps: Steps | None,
    at_rest: bool,
) -> list[Float[np.ndarray, "k n c"]]:
    """u, u', u'' from K u + C u' + M u'' = -load, or from K u = -load.

    For links by matrix exponentials, with the load linear between samples and initially without free vibration; for
    motors, whose inertia is not in these equations, from u and its finite differences.

    Args:
        terms: K, C, M.
        load: in columns.
        link: mask of drives whose link was recorded, so that u is the motor's.
        step_s: time between samples.
        steps: from `_steps`; None for K u = -load.
        at_rest: whether the motion begins in equilibrium.
    """
    K, C, M = terms
    found = [np.zeros(load.shape) for _ in range(3)]
    free = np.flatnonzero(~link)
    inside = np.ix_(np.arange(len(K)), free, free)
    k, c, m, f = K[inside], C[inside], M[inside], load[:, free]
    static = -np.linalg.solve(k, f)
    if steps is None:
        found[0][:, free] = static
    elif free.size:
        state = np.concatenate([static[0], np.zeros_like(static[0])])
        if not at_rest:
            begin = static[: max(5, round(INITIAL_LOAD_S / step_s))]
            times = step_s * np.arange(len(begin))
            fitted = np.polynomial.polynomial.polyfit(times, begin.reshape(len(begin), -1), 2)
            u, v, half = fitted.reshape(3, *static[0].shape)
            state = np.concatenate([u - np.linalg.solve(k[0], 2.0 * m[0] @ half + c[0] @ v), v])
        for i in range(len(f)):
            if i:
                by_state, by_load, by_change = steps[i - 1]
                state = by_state @ state + by_load @ f[i - 1] + by_change @ (f[i] - f[i - 1])
            found[0][i, free], found[1][i, free] = np.split(state, 2)
        found[2][:, free] = -np.linalg.solve(m, f + c @ found[1][:, free] + k @ found[0][:, free])
    for j in np.flatnonzero(link):
        total = load[:, j] + sum(
            np.einsum("kn,knc->kc", part[:, j, free], move[:, free]) for part, move in zip(terms, found, strict=True)
        )
        u = -total / K[:, j, j, None]
        if steps is not None:
            for _ in range(2):
                u = -(total + C[:, j, j, None] * rates(u, 1.0 / step_s)[0]) / K[:, j, j, None]
            found[1][:, j], found[2][:, j] = rates(u, 1.0 / step_s)
        found[0][:, j] = u
    return found


def _steps(
    K: Float[np.ndarray, "k n n"], C: Float[np.ndarray, "k n n"], M: Float[np.ndarray, "k n n"], step_s: float
) -> Steps:
    """Transition matrices of u and u' over each step, from the means of K, C and M over the step.

    Raises:
        ValueError: M is not positive definite.
    """
    from scipy.linalg import expm

    n = K.shape[1]
    if n == 0:
        return []
    if not np.all(np.linalg.eigvalsh(0.5 * (M + np.swapaxes(M, 1, 2)))[:, 0] > 0.0):
        raise ValueError(
            "the mass matrix of the links is not positive definite along the motion, so that their vibration on the"
            " gears cannot be computed: add bounds of masses and inertias, or other tests"
        )
    k, c, m = (0.5 * (part[1:] + part[:-1]) for part in (K, C, M))
    rate = np.zeros((len(k), 4 * n, 4 * n))
    unit = np.broadcast_to(np.eye(n), k.shape)
    rate[:, :n, n : 2 * n] = step_s * unit
    rate[:, n : 2 * n, : 3 * n] = -step_s * np.linalg.solve(m, np.concatenate([k, c, unit], axis=2))
    rate[:, 2 * n : 3 * n, 3 * n :] = unit
    found = np.asarray(expm(rate))[:, : 2 * n]
    return [(own[:, : 2 * n], own[:, 2 * n : 3 * n], own[:, 3 * n :]) for own in found]


def _tangents(
    model: Model,
    absent: Sequence[int],
    names: Sequence[str],
    unit: Float[np.ndarray, "m n"],
    z: np.ndarray,
    zd: np.ndarray,
    zdd: np.ndarray,
) -> list[Float[np.ndarray, "k m n"]]:
    """Derivatives of the efforts of links and shafts by coordinates, rates and accelerations along some directions,
    without gears."""
    gears = np.isin(np.arange(len(model.coordinates)), model.motors)
    carried = without_masses(frictionless(model), {names[i].split(".")[1] for i in absent})
    gearless = dataclasses.replace(carried, stiffness=jnp.where(gears, 0.0, model.stiffness))
    found = in_batches(functools.partial(_tangent_block, gearless, jax.device_put(unit)), BLOCK, z, zd, zdd)
    shafts = [shaft for _, shaft in model.motors]
    found[1][:, shafts] += np.asarray(model.damping)[shafts, None] * unit[shafts]
    return found


@compiled
def _tangent_block(model: Model, unit: Array, z: Array, zd: Array, zdd: Array) -> tuple[Array, ...]:
    def effort(q: Array, qd: Array, qdd: Array) -> Array:
        return tree_effort(model, q, qd, qdd, model.reference, None)

    def along(*state: Array) -> tuple[Array, ...]:
        _, slope = jax.linearize(effort, *state)
        directions, none = unit.T, jnp.zeros_like(unit.T)
        each = ([directions if k == own else none for k in range(3)] for own in range(3))
        return tuple(jax.vmap(slope, out_axes=-1)(*moves) for moves in each)

    return jax.vmap(along)(z, zd, zdd)
