"""Postures of a machine by names, and models whose loops are closed."""

import dataclasses
import warnings
from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model, tree_model
from jaxmb.machine.schema import Machine
from jaxmb.machine.values import number_of_text
from jaxmb.mechanics.kinematics import FULL_TURN, check_coordinates, frame_poses, whole
from jaxmb.mechanics.loops import (
    CLOSED,
    LEAST_RANK,
    check_closed,
    close_rounded,
    constraint_rank,
    dependent_coordinates,
    followers,
    gap,
    newton,
)

LONGEST_STEP = 0.1
"""Of the given coordinates from one closed posture to the next, rad or m: the loops stay on their branch."""
SINGULAR = 1e-5
"""Singular value of the constraints, beside the largest one, below which a posture is singular: a closed one is known
to the root of CLOSED there."""
SMALL_STEP = 1e-4
"""rad or m."""
NEAR, FAR = 0.01, 0.3
"""Changes of stated coordinates, rad or parts of the machine's size: up to the first the branch is the same, beyond the
second they are reported."""
MOST_BESIDE = 0.3
"""How far a closed posture may lie beside where the motion map leads, as a part of the step: on another branch it lies
farther."""
SHORTEST_STEP = 1e-6
"""Part of the way to the given values below which no closed posture is looked for."""


def build_model(machine: Machine) -> Model:
    """Model of a machine, ready for the equations; the loops of its reference posture are closed.

    Args:
        machine: a validated machine, from `load_machine` or built in Python.

    Returns:
        The model; its coordinates and masses keep the order of the machine.

    Raises:
        ValueError: a loop cannot close near the reference posture, or on another branch than the stated values are on
            only, the reference posture is singular, the coordinates that are named as independent do not decide where
            the others are, or nothing is left that could move.
        NotImplementedError: a coordinate that follows from others has friction by its load.
    """
    model = tree_model(machine)
    if not model.loops:
        return model
    n = len(model.coordinates)
    wanted = [model.coordinates.index(name) for name in machine.independent]
    elastic = [bool(k > 0.0) for k in np.asarray(model.stiffness)]
    unlikely = [i for i in range(n) if (elastic[i] or model.locked[i]) and i not in wanted]
    passive = [i for i in range(n) if i not in wanted and i not in unlikely]
    # the reference posture may be far from closed: what was named stays where it is
    guess = np.array(model.reference)
    # the constraints' rank is that of closed postures: away from them those that say the same say different things
    others = [*passive, *unlikely]
    try:
        reference = _closed(model, guess, [passive, others])
    except ValueError:
        anywhere, left = newton(model, guess, list(range(n)))
        if left <= CLOSED:
            _check_given(machine, gap(model, anywhere).slope, others)
        raise
    slope = gap(model, reference).slope
    _check_given(machine, slope, others)
    dependent = dependent_coordinates(slope, [passive, unlikely])
    _check_regular(model, reference, slope, dependent)
    _check_branch(machine, model, guess, reference, dependent)
    for i in dependent:
        if "load_friction" in model.further_friction[i]:
            raise NotImplementedError(
                f"machine '{model.name}': '{model.coordinates[i]}' has load_friction and follows from others,"
                " expected it of an independent coordinate"
            )
    left = [i for i in range(n) if i not in dependent and not model.locked[i]]
    if not left and not model.beams:
        raise ValueError(f"machine '{model.name}': its loops and locks leave no coordinate that could move")
    model = dataclasses.replace(model, reference=jax.device_put(reference), dependent=dependent)
    bent = np.any(np.abs(gap(model, np.asarray(whole(model, model.reference)), rigid_only=True).slope[:, n:]) > 0.0)
    model = dataclasses.replace(model, following=followers(model), bent_loops=bool(bent))
    return dataclasses.replace(model, as_built=model) if bent else model


def _check_regular(model: Model, q: np.ndarray, slope: np.ndarray, dependent: Sequence[int]) -> None:
    """Raise ValueError where a closed posture is singular, as with all links in line: more coordinates seem independent
    there than are. In a regular posture a small step of these can be closed, and constraints keep their rank."""
    values = np.linalg.svd(slope, compute_uv=False)
    values /= values.max(initial=0.0) or 1.0
    lead = [i for i in range(q.size) if i not in dependent]
    step = np.zeros_like(q)
    step[lead] = SMALL_STEP * np.random.default_rng(0).uniform(0.5, 1.0, len(lead))
    step[list(dependent)] = -np.linalg.lstsq(slope[:, list(dependent)], slope @ step, rcond=LEAST_RANK)[0]
    there, left = newton(model, q + step, list(dependent))
    beside = np.max(np.abs(there - q - step), initial=0.0)
    if (
        np.any((values > LEAST_RANK) & (values < SINGULAR))
        or left > CLOSED
        or beside > MOST_BESIDE * np.max(np.abs(step), initial=0.0)
        or constraint_rank(gap(model, there).slope) != len(dependent)
    ):
        raise ValueError(
            f"the loops of '{model.name}' ({', '.join(model.loops)}) are singular in the reference posture, as with"
            " links in line: how many coordinates are independent is not decided there; expected another posture"
        )


def _check_branch(machine: Machine, model: Model, stated: np.ndarray, q: np.ndarray, dependent: Sequence[int]) -> None:
    """Raise ValueError where the stated coordinates are on another branch of the loops than the closed posture, and
    warn where they were far from it. Between branches the determinant of the dependent ones' constraints is 0."""
    moved = np.abs(q - stated)
    poses = np.asarray(frame_poses(model, jax.device_put(q)))
    turns = np.array(model.revolute, dtype=bool)
    size = np.max(np.linalg.norm(poses[:, None, :3, 3] - poses[None, :, :3, 3], axis=2))
    share = moved / np.where(turns, 1.0, max(size, CLOSED))
    if share.max(initial=0.0) <= NEAR:
        return
    far = [i for i in np.argsort(-share, kind="stable") if share[i] > NEAR]
    changes = ", ".join(f"{model.coordinates[i]} from {stated[i]:.4g} to {q[i]:.4g}" for i in far[:3])
    basis = np.linalg.qr(gap(model, q).slope[:, list(dependent)])[0]
    signs = [
        np.linalg.slogdet(basis.T @ gap(model, stated + s * (q - stated)).slope[:, list(dependent)])[0]
        for s in np.linspace(0.0, 1.0, 11)
    ]
    known = all(model.coordinates[i] in machine.posture for i in dependent)
    if known and min(signs) * max(signs) < 0.0:
        raise ValueError(
            f"posture: the loops of '{model.name}' close on another branch than the stated values are on, with"
            f" {changes}: expected values nearer to those of a closed posture"
        )
    if share.max() > FAR:
        warnings.warn(f"posture: the loops of '{model.name}' close with {changes}, rad and m", stacklevel=3)


def _check_given(machine: Machine, slope: np.ndarray, others: Sequence[int]) -> None:
    """Raise ValueError where the coordinates beside those named as independent cannot close the loops."""
    rank, n = constraint_rank(slope), slope.shape[1]
    if constraint_rank(slope[:, list(others)]) < rank:
        names = ", ".join(machine.independent)
        raise ValueError(
            f"independent: {names} cannot all be given: the loops leave {n - rank} of {n} coordinates independent"
        )


def posture(model: Model, values: Mapping[str, float | str]) -> Float[Array, "n"]:
    """Posture q [n] with the named coordinates at the given values, the others as in the reference posture.

    Loops are closed as by `close_loops`, which says how rounded values of all coordinates are taken.

    Args:
        model: the machine.
        values: coordinate name -> value, rad or m, or a text such as "70 deg".

    Raises:
        ValueError: a name is not a coordinate of the machine, a text is no angle, an angle is more than a turn, or a
            loop cannot close.
    """
    where = _values(model, values)
    if any(isinstance(number, Tracer) for number in (model.reference, *where.values())):
        if model.loops:
            raise NotImplementedError("posture: loops are closed outside of compiled functions only")
        return model.reference.at[jnp.array(list(where), dtype=int)].set(jnp.array(list(where.values())))
    if model.loops:
        return close_loops(model, values)
    q = np.array(model.reference)
    q[list(where)] = list(where.values())
    return jax.device_put(q)


def close_loops(
    model: Model, values: Mapping[str, float | str], near: Float[Array, "n"] | None = None
) -> Float[Array, "n"]:
    """Posture q [n] with the named coordinates at the given values and all loops closed.

    It is reached from `near` in short steps, each closed by Newton's method, so that every loop stays on its branch.
    Independent coordinates that are not named keep the values of `near`. Where all coordinates that follow are named
    too, their values give the branch and need to be right to rounding only: a warning states by how much they change.

    Args:
        model: the machine.
        values: coordinate name -> value, rad or m, or a text such as "70 deg".
        near: a posture whose loops are closed [n]; the reference posture where not given.

    Raises:
        ValueError: a name is not a coordinate, so many coordinates cannot be given, `near` is open, or a loop cannot
            close: the values are out of reach, or on the other side of a singular posture.
    """
    q, change = closed_posture(model, values, near)
    if change:
        warnings.warn(change, stacklevel=2)
    return jax.device_put(q)


def closed_posture(
    model: Model, values: Mapping[str, float | str], near: Float[Array, "n"] | np.ndarray | None = None
) -> tuple[Float[np.ndarray, "n"], str]:
    """`close_loops` with a sentence on the change of rounded values instead of a warning; "" where there is none."""
    where = _values(model, values)
    q = np.array(model.reference if near is None else near, dtype=float)
    check_coordinates(model, q=q)
    given = sorted(where)
    target = np.array([float(where[i]) for i in given])
    if not model.loops or (len(given) > len(q) - len(model.dependent) and set(model.dependent) <= set(given)):
        q[given] = target
        return close_rounded(model, q, "posture") if model.loops else (q, "")
    check_closed(model, q, "near")
    dependent = following_given(model, q, given)
    start, done = q[given].copy(), 0.0
    longest = float(np.max(np.abs(target - start), initial=0.0))
    part = min(1.0, LONGEST_STEP / longest) if longest else 1.0
    while done < 1.0:
        step = min(part, 1.0 - done)
        ahead = np.zeros_like(q)
        ahead[given] = start + (done + step) * (target - start) - q[given]
        slope = gap(model, q).slope
        ahead[list(dependent)] = -np.linalg.lstsq(slope[:, list(dependent)], slope @ ahead, rcond=LEAST_RANK)[0]
        closed, left = newton(model, q + ahead, list(dependent))
        beside = np.abs(closed - q - ahead)
        if left <= CLOSED and np.max(beside) <= MOST_BESIDE * np.max(np.abs(ahead)) + CLOSED:
            q, done = closed, done + step
            part = min(2.0 * part, LONGEST_STEP / longest if longest else 1.0)
        elif step > SHORTEST_STEP:
            part = 0.5 * step
        else:
            reached = ", ".join(f"{model.coordinates[i]} = {q[i]:.6g}" for i in given)
            raise ValueError(
                f"posture: the loops of '{model.name}' ({', '.join(model.loops)}) cannot close there: they can up to"
                f" {reached}"
            )
    return q, ""


def stated_posture(model: Model, values: Mapping[str, float | str]) -> tuple[Float[Array, "n"], tuple[str, ...]]:
    """`posture` with the sentence on the change of rounded values, where there is one, instead of a warning."""
    if not model.loops:
        return posture(model, values), ()
    q, change = closed_posture(model, values)
    return jax.device_put(q), (change,) if change else ()


def following_given(model: Model, q: np.ndarray, given: Sequence[int]) -> tuple[int, ...]:
    """Numbers of the coordinates that follow at a closed posture where some are given: others stay where they are.

    Raises:
        ValueError: so many coordinates cannot be given.
    """
    if not any(i in model.dependent for i in given):
        return model.dependent
    slope = gap(model, q).slope
    kept = [i for i in range(len(model.coordinates)) if i not in model.dependent and i not in given]
    found = dependent_coordinates(slope, [[i for i in model.dependent if i not in given], kept])
    if len(found) < constraint_rank(slope):
        names = ", ".join(model.coordinates[i] for i in given)
        raise ValueError(f"posture: {names} cannot all be given: the loops let the others not follow")
    return found


def _values(model: Model, values: Mapping[str, float | str]) -> dict[int, float]:
    """Values by number of the coordinate."""
    if not isinstance(values, Mapping):
        raise ValueError('posture: values: expected a dict of coordinates with their values, as {"z2": "70 deg"}')
    where = {}
    for name, value in values.items():
        if name not in model.coordinates:
            raise ValueError(known_name("posture: coordinate", name, model.coordinates))
        if isinstance(value, str):
            try:
                value = number_of_text(value)
            except ValueError as error:
                raise ValueError(f"posture: {name}: found '{value}', {error}") from None
        index = model.coordinates.index(name)
        if not isinstance(value, Tracer) and not np.isfinite(float(value)):
            raise ValueError(f"posture: {name} is {float(value)}, expected a finite number")
        if model.revolute[index] and not isinstance(value, Tracer) and abs(float(value)) > FULL_TURN:
            number = f"{float(value):g}"
            raise ValueError(f'posture: {name} is {number} rad, more than a turn; write "{number} deg" for degrees')
        where[index] = value
    return where


def _closed(model: Model, guess: np.ndarray, free: Sequence[Sequence[int]]) -> np.ndarray:
    """The guess with its loops closed by moving the first of these sets of coordinates that can close them.

    Raises:
        ValueError: none can.
    """
    q = guess
    for some in free:
        q, left = newton(model, guess, list(some))
        if left <= CLOSED:
            return q
    gaps = np.abs(gap(model, q).size)
    raise ValueError(
        f"the loops of '{model.name}' ({', '.join(model.loops)}) cannot close near the reference posture:"
        f" {gaps.max():.3g} m or rad are left open; expected lengths that fit, or a posture nearer to a closed one"
    )
