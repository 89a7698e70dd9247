"""Model of a machine with closed loops; postures by names of coordinates, on closed loops, by the pose of a frame
(inverse kinematics), or random ones within limits."""

import dataclasses
import warnings
from collections.abc import Collection, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from jaxmb.compiled import compiled, numeric_arguments
from jaxmb.io.validation import check_known, finite_number, typed_arguments, whole_number
from jaxmb.machine.build import Model, tree_model
from jaxmb.machine.schema import Machine
from jaxmb.machine.values import AngleText, check_travel, check_turns, number_of_text
from jaxmb.mechanics.compliance import elastic_jacobian
from jaxmb.mechanics.kinematics import FULL_TURN, check_coordinates, frame_pose, frame_poses, whole
from jaxmb.mechanics.loops import (
    CLOSED,
    LEAST_RANK,
    OPEN,
    check_closed,
    check_open_chain,
    close_rounded,
    constraint_rank,
    dependent_coordinates,
    followers,
    gap,
    independent_coordinates,
    loop_closure,
    loop_gaps,
    motion_map,
    newton,
)
from jaxmb.spatial import displacement

LONGEST_STEP = 0.1
"""Largest step of the given coordinates between closed postures, rad or m, so that loops stay on their branch."""
SINGULAR = 1e-5
"""Singular value of the constraints, relative to the largest, below which a posture is singular: its accuracy is then
the square root of CLOSED."""
SMALL_STEP = 1e-4
"""Largest trial step of a coordinate from a closed posture, rad or m."""
NEAR, FAR = 0.01, 0.3
"""Changes of stated coordinates, rad or relative to the machine's size: up to the first the branch is the same, above
the second they are reported."""
MOST_BESIDE = 0.3
"""Largest deviation of a closed posture from the prediction by the motion map, relative to the step; larger on another
branch."""
SHORTEST_STEP = 1e-6
"""Least step, relative to the total change."""
SHORTEST_SPRING = 1e-9
"""Distance of two points up to which they coincide, m."""


class OutOfReachError(ValueError):
    """A posture at which a closed chain cannot be closed."""


@typed_arguments
def build_model(machine: Machine) -> Model:
    """Model of a machine, with the loops of its reference posture closed.

    Args:
        machine: a validated machine, from `load_machine` or built in Python.

    Returns:
        The model; its coordinates and masses keep the order of the machine.

    Raises:
        ValueError: a loop cannot close near the reference posture or on the branch of the stated values, the reference
            posture is singular, the coordinates named as independent do not determine the others, or no coordinate can
            move.
        NotImplementedError: a dependent coordinate, or one with a motor, has load-dependent friction.
    """
    model = tree_model(machine)
    for joint, _ in model.motors:
        if "load_friction" in model.further_friction[joint]:
            raise NotImplementedError(
                f"machine '{model.name}': '{model.coordinates[joint]}' has load_friction and a motor, expected one of"
                " them: the load of its gear is not computed"
            )
    if not model.loops:
        return model
    n = len(model.coordinates)
    named = [model.coordinates.index(name) for name in machine.independent]
    elastic = [bool(k > 0.0) for k in np.asarray(model.stiffness)]
    coupled = [i for i, _ in model.couplings]
    locked = [i for i in range(n) if model.locked[i]]  # independent if possible: dependent ones follow the others
    others = [i for i in range(n) if i not in [*named, *coupled, *locked]]
    preferred, later_choice = ([i for i in others if elastic[i] is k] for k in (False, True))
    # the reference posture may be far from closed: named coordinates keep their values
    guess = np.array(model.reference)
    for k, (i, other) in enumerate(model.couplings):
        if model.coordinates[i] not in machine.posture:
            guess[i] = model.coupling_ratio[k] * guess[other] + model.coupling_offset[k]
    # the constraints' rank is evaluated at closed postures: elsewhere redundant constraints seem independent
    unlocked = [*coupled, *preferred, *later_choice]
    free = [*unlocked, *(i for i in locked if i not in named)]
    try:
        reference = _closed_reference(model, guess, [coupled, [*coupled, *preferred], unlocked, free])
    except ValueError:
        closed, remaining = newton(model, guess, list(range(n)))
        if remaining <= CLOSED:
            _check_given(machine, gap(model, closed).slope, free)
        raise
    slope = gap(model, reference).slope
    _check_given(machine, slope, free)
    named_free = [i for i in named if i not in locked]
    dependent = dependent_coordinates(slope, [coupled, preferred, later_choice, named_free, locked])
    _check_regular(model, reference, slope, dependent)
    _check_branch(machine, model, guess, reference, dependent)
    for i in dependent:
        if "load_friction" in model.further_friction[i]:
            raise NotImplementedError(
                f"machine '{model.name}': '{model.coordinates[i]}' has load_friction and is a dependent coordinate,"
                " expected an independent coordinate"
            )
    movable = [i for i in range(n) if i not in dependent and not model.locked[i]]
    added = [model.coordinates[i] for i in movable if i in preferred and np.any(slope[:, i] != 0.0)]
    if named and added:
        warnings.warn(
            f"independent: {', '.join(added)} was selected besides {', '.join(machine.independent)}, expected"
            f" {len(named) + len(added)} names to determine the loops of '{model.name}'",
            stacklevel=2,
        )
    if not movable and not model.beams:
        raise ValueError(f"machine '{model.name}': with its loops and locks no coordinate can move")
    model = dataclasses.replace(model, reference=jax.device_put(reference), dependent=dependent)
    involves_beams = np.any(
        np.abs(gap(model, np.asarray(whole(model, model.reference)), rigid_only=True).slope[:, n:]) > 0.0
    )
    model = dataclasses.replace(model, following=followers(model), bent_loops=bool(involves_beams))
    return dataclasses.replace(model, as_built=model) if involves_beams else model


def _check_regular(model: Model, q: np.ndarray, slope: np.ndarray, dependent: Sequence[int]) -> None:
    """Raise ValueError where a closed posture is singular, as with all links in line, where too many coordinates seem
    independent. From a regular posture a small step of these can be closed, and the constraints keep their rank."""
    values = np.linalg.svd(slope, compute_uv=False)
    values /= values.max(initial=0.0) or 1.0
    independent = [i for i in range(q.size) if i not in dependent]
    step = np.zeros_like(q)
    step[independent] = SMALL_STEP * np.random.default_rng(0).uniform(0.5, 1.0, len(independent))
    step[list(dependent)] = -np.linalg.lstsq(slope[:, list(dependent)], slope @ step, rcond=LEAST_RANK)[0]
    closed_near, remaining = newton(model, q + step, list(dependent))
    if (
        np.any((values > LEAST_RANK) & (values < SINGULAR))
        or remaining > CLOSED
        or np.max(np.abs(closed_near - q - step), initial=0.0) > MOST_BESIDE * np.max(np.abs(step), initial=0.0)
        or constraint_rank(gap(model, closed_near).slope) != len(dependent)
    ):
        raise ValueError(
            f"the loops of '{model.name}' ({', '.join(model.loops)}) are singular in the reference posture, as with"
            " links in line: the number of independent coordinates is undetermined; expected another posture"
        )


_poses = compiled(frame_poses)


def _check_branch(machine: Machine, model: Model, stated: np.ndarray, q: np.ndarray, dependent: Sequence[int]) -> None:
    """Raise ValueError where the stated coordinates are on another branch of the loops than the closed posture, and
    warn where they are far from it. Between branches the determinant of the constraints on dependent coordinates is 0.
    """
    poses = np.asarray(_poses(model, jax.device_put(q)))
    size = np.max(np.linalg.norm(poses[:, None, :3, 3] - poses[None, :, :3, 3], axis=2))
    relative_change = np.abs(q - stated) / np.where(np.array(model.revolute, dtype=bool), 1.0, max(size, CLOSED))
    if relative_change.max(initial=0.0) <= NEAR:
        return
    far = [i for i in np.argsort(-relative_change, kind="stable") if relative_change[i] > NEAR]
    changes = ", ".join(f"{model.coordinates[i]} from {stated[i]:.4g} to {q[i]:.4g}" for i in far[:3])
    basis = np.linalg.qr(gap(model, q).slope[:, list(dependent)])[0]
    signs = [
        np.linalg.slogdet(basis.T @ gap(model, stated + s * (q - stated)).slope[:, list(dependent)])[0]
        for s in np.linspace(0.0, 1.0, 11)
    ]
    if all(model.coordinates[i] in machine.posture for i in dependent) and min(signs) * max(signs) < 0.0:
        raise ValueError(
            f"posture: the loops of '{model.name}' close on another branch than that of the stated values, with"
            f" {changes}: expected values nearer to a closed posture"
        )
    if relative_change.max() > FAR:
        warnings.warn(f"posture: the loops of '{model.name}' close with {changes}, rad and m", stacklevel=3)


def _check_given(machine: Machine, slope: np.ndarray, free: Sequence[int]) -> None:
    """Raise ValueError where the coordinates not named as independent cannot close the loops."""
    rank, n = constraint_rank(slope), slope.shape[1]
    if constraint_rank(slope[:, list(free)]) < rank:
        raise ValueError(
            f"independent: {', '.join(machine.independent)} cannot all be given: only {n - rank} of {n} coordinates are"
            " independent"
        )


@typed_arguments
def posture(model: Model, values: Mapping[str, float | str]) -> Float[Array, "n"]:
    """Posture q [n] with the named coordinates at the given values, the others as in the reference posture.

    Loops are closed as by `close_loops`.

    Args:
        model: the machine.
        values: coordinate name -> value, rad or m, or a text such as "70 deg".

    Raises:
        ValueError: a name is not a coordinate of the machine, a text is no angle, a number of a joint exceeds a
            turn, or a loop cannot close.
        NotImplementedError: a value is traced and the machine has loops.
    """
    numbers = _values(model, values)
    if any(isinstance(number, Tracer) for number in (model.reference, *numbers.values())):
        if model.loops:
            raise NotImplementedError("posture: loops are closed outside of compiled functions only")
        return model.reference.at[jnp.array(list(numbers), dtype=int)].set(jnp.array(list(numbers.values())))
    return close_loops(model, values)


def nearest_posture(model: Model, q: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """A posture with its loops closed by the dependent coordinates, where they are open by errors of the description.

    Raises:
        OutOfReachError: they cannot close near it.
    """
    if float(np.max(np.abs(gap(model, q).size))) <= OPEN:
        return q
    closed, remaining = newton(model, q, list(model.dependent))
    if not remaining <= CLOSED:
        raise OutOfReachError(f"posture: the loops of '{model.name}' ({', '.join(model.loops)}) cannot close")
    return closed


@typed_arguments
@numeric_arguments("near")
def close_loops(
    model: Model, values: Mapping[str, float | str], near: Float[Array, "n"] | None = None
) -> Float[Array, "n"]:
    """Posture q [n] with the named coordinates at the given values and all loops closed.

    It is reached from `near` in short steps, each closed by Newton's method, so that every loop stays on its branch.
    Independent coordinates that are not named keep the values of `near`. Where all dependent coordinates are named too,
    their values select the branch and may be rounded: a warning states their largest change.

    Args:
        model: the machine.
        values: coordinate name -> value, rad or m, or a text such as "70 deg".
        near: a posture whose loops are closed [n]; by default the reference posture.

    Raises:
        ValueError: a name is not a coordinate, too many coordinates are given, `near` is open, or a loop cannot close:
            the values are out of reach, or beyond a singular posture.
    """
    q, changes = stated_posture(model, values, near)
    for change in changes:
        warnings.warn(change, stacklevel=2)
    return q


def closed_posture(
    model: Model, values: Mapping[str, float | str], near: Float[Array, "n"] | np.ndarray | None = None
) -> tuple[Float[np.ndarray, "n"], str]:
    """`close_loops` of values in rad or m, with a message on the change of rounded values instead of a warning, else
    ""; numbers of any size, as in a range."""
    q, change = _closed_posture(model, values, near)
    _check_spring_lengths(model, q)
    return q, change


def _closed_posture(
    model: Model, values: Mapping[str, float | str], near: Float[Array, "n"] | np.ndarray | None
) -> tuple[Float[np.ndarray, "n"], str]:
    numbers = _values(model, values, np.inf)
    q = np.array(model.reference if near is None else near, dtype=float)
    check_coordinates(model, q=q)
    given = sorted(numbers)
    target = np.array([float(numbers[i]) for i in given])
    if not model.loops or (len(given) > len(q) - len(model.dependent) and set(model.dependent) <= set(given)):
        q[given] = target
        return close_rounded(model, q, "posture") if model.loops else (q, "")
    check_closed(model, q, "near")
    dependent = dependent_for_given(model, q, given)
    start, progress = q[given].copy(), 0.0
    longest = float(np.max(np.abs(target - start), initial=0.0))
    fraction = min(1.0, LONGEST_STEP / longest) if longest else 1.0
    while progress < 1.0:
        step = min(fraction, 1.0 - progress)
        predicted = np.zeros_like(q)
        predicted[given] = start + (progress + step) * (target - start) - q[given]
        slope = gap(model, q).slope
        predicted[list(dependent)] = -np.linalg.lstsq(slope[:, list(dependent)], slope @ predicted, rcond=LEAST_RANK)[0]
        closed, remaining = newton(model, q + predicted, list(dependent))
        deviation = np.abs(closed - q - predicted)
        if (
            remaining <= CLOSED
            and np.max(deviation, initial=0.0) <= MOST_BESIDE * np.max(np.abs(predicted), initial=0.0) + CLOSED
        ):
            q, progress = closed, progress + step
            fraction = min(2.0 * fraction, LONGEST_STEP / longest if longest else 1.0)
        elif step > SHORTEST_STEP:
            fraction = 0.5 * step
        else:
            reached = ", ".join(f"{model.coordinates[i]} = {q[i]:.6g}" for i in given)
            raise OutOfReachError(
                f"posture: the loops of '{model.name}' ({', '.join(model.loops)}) cannot close there, only up to"
                f" {reached}"
            )
    return q, ""


def stated_posture(
    model: Model, values: Mapping[str, float | str], near: Float[Array, "n"] | None = None
) -> tuple[Float[Array, "n"], tuple[str, ...]]:
    """`close_loops`, with messages on the change of rounded values instead of a warning."""
    _values(model, values)
    q, change = closed_posture(model, values, near)
    return jax.device_put(q), (change,) if change else ()


def _check_spring_lengths(model: Model, q: np.ndarray) -> None:
    """Raise ValueError where a spring acts along the line between two points that coincide."""
    lines = [(i, *model.spring_frames[i]) for i, kind in enumerate(model.spring_type) if kind == "length"]
    poses = np.asarray(frame_poses(model, jnp.asarray(q))) if lines else np.empty(0)
    for i, a, b in lines:
        if np.linalg.norm(poses[b, :3, 3] - poses[a, :3, 3]) < SHORTEST_SPRING:
            raise ValueError(
                f"posture: the ends of spring '{model.springs[i]}' coincide there, so that it has no direction;"
                " expected another posture, or a spring of type 'translation'"
            )


def dependent_for_given(model: Model, q: np.ndarray, given: Sequence[int]) -> tuple[int, ...]:
    """Indices of the dependent coordinates at a closed posture where some are given; the others keep their values.

    Raises:
        ValueError: too many coordinates are given.
    """
    if not any(i in model.dependent for i in given):
        return model.dependent
    slope = gap(model, q).slope
    other_independent = [i for i in range(len(model.coordinates)) if i not in model.dependent and i not in given]
    found = dependent_coordinates(slope, [[i for i in model.dependent if i not in given], other_independent])
    if len(found) < constraint_rank(slope):
        raise ValueError(
            f"posture: {', '.join(model.coordinates[i] for i in given)} cannot all be given: the other coordinates"
            " cannot close the loops"
        )
    return found


def _values(model: Model, values: Mapping[str, float | str], most: float = FULL_TURN) -> dict[int, float]:
    """Values by index of the coordinate; numbers of a joint above `most` are refused, since they may be in degrees."""
    if not isinstance(values, Mapping):
        raise ValueError('posture: values: expected a dict of coordinates with their values, as {"z2": "70 deg"}')
    numbers = {}
    for name, value in values.items():
        check_known("posture: coordinate", [name], model.coordinates)
        value = number_of_text(f"posture: {name}", value) if isinstance(value, str) else value
        index = model.coordinates.index(name)
        number = 0.0 if isinstance(value, Tracer) else finite_number(f"posture: {name}", value)
        if not model.revolute[index]:
            check_travel(f"posture: {name}", value if isinstance(value, AngleText) else number)
        is_joint = index < len(model.joints)  # shafts behind gears turn many times
        if model.revolute[index] and is_joint and abs(number) > most and not isinstance(value, AngleText):
            raise ValueError(
                f'posture: {name} is {number:g} rad, more than a turn; write "{number:g} deg" for degrees,'
                f' "{number:g} rad" for radians'
            )
        numbers[index] = value if isinstance(value, Tracer) else number
    return numbers


def check_ranges(label: str, model: Model, ranges: Mapping[str, Collection[float]]) -> None:
    """Raise ValueError where a range has an unknown coordinate, an angle or more than 100 m for a prismatic one, or
    more than two turns without a unit for a joint."""
    check_known(f"{label}: coordinate", ranges, model.coordinates)
    for name, ends in ranges.items():
        for end in ends:
            if not model.revolute[model.coordinates.index(name)]:
                check_travel(f"{label}: {name}", end)
            elif name in model.joints and len({*ends}) > 1:  # a fixed value is that of a posture
                check_turns(f"{label}: {name}", end)


def _closed_reference(model: Model, guess: np.ndarray, free: Sequence[Sequence[int]]) -> np.ndarray:
    """The guess with its loops closed by the first of these sets of free coordinates that can close them.

    Raises:
        ValueError: none of them can.
    """
    q = guess
    for coordinates in free:
        q, remaining = newton(model, guess, list(coordinates))
        if remaining <= CLOSED:
            return q
    gaps = np.abs(gap(model, q).size)
    raise ValueError(
        f"the loops of '{model.name}' ({', '.join(model.loops)}) cannot close near the reference posture:"
        f" the smallest gap reached is {gaps.max():.3g} m or rad; expected lengths that fit, or a posture nearer to a"
        " closed one"
    )


def closed_along(
    model: Model, z: Float[np.ndarray, "k m"], near: Float[np.ndarray, "*k n"]
) -> Float[np.ndarray, "k n"]:
    """All coordinates [k, n] along a motion of the independent ones, on the branch of a posture near its start.

    Each sample is predicted by the motion map from the previous one, and closed by Newton's method.

    Args:
        model: the machine; without loops, z is returned.
        z: independent coordinates, in the order of `independent_coordinates` [k, m], rad or m.
        near: a closed posture [n] at or near the first sample; or one for each sample [k, n], which are then closed
            all at once.

    Raises:
        ValueError: a loop cannot be closed; the message names the sample.
    """
    if not model.loops:
        return z
    if near.ndim == 2:
        q, gap_size = map(np.asarray, _closed_each(model, jnp.asarray(z), jnp.asarray(near)))
    else:
        check_closed(model, near, "near")
        q, gap_size = map(np.asarray, _continued(model, jnp.asarray(z), jnp.asarray(near)))
    open_samples = np.flatnonzero(~(gap_size <= OPEN))
    if open_samples.size:
        names = ", ".join(
            f"{name} = {value:.4g}"
            for name, value in zip(independent_coordinates(model), z[open_samples[0]], strict=True)
        )
        raise OutOfReachError(
            f"a loop of '{model.name}' opens at sample {open_samples[0] + 1}, {names}: the posture is out of reach"
        )
    return q


@compiled
def _continued(model: Model, z: Float[Array, "k m"], near: Float[Array, "n"]) -> tuple[Array, Array]:
    def step(q: Array, target: Array) -> tuple[Array, tuple[Array, Array]]:
        found, gap_size = closed_step(model, q, target)
        return found, (found, gap_size)

    return jax.lax.scan(step, near, z)[1]


@compiled
def _closed_each(model: Model, z: Float[Array, "k m"], near: Float[Array, "k n"]) -> tuple[Array, Array]:
    return jax.vmap(lambda q, target: closed_step(model, q, target))(near, z)


@compiled
def closed_step(
    model: Model, q: Float[Array, "n"], target: Float[Array, "m"]
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Closed posture with given independent coordinates, predicted from a nearby one by the motion map and closed by
    Newton's method; and its largest gap, m or rad, infinite where another branch was reached."""
    independent = np.array([model.coordinates.index(name) for name in independent_coordinates(model)], dtype=int)
    predicted_step = motion_map(model, q) @ (target - q[independent])
    closed = loop_closure(model, (q + predicted_step).at[independent].set(target))
    deviates = jnp.max(jnp.abs(closed - q - predicted_step)) > MOST_BESIDE * jnp.max(jnp.abs(predicted_step)) + OPEN
    return closed, jnp.where(deviates, jnp.inf, jnp.max(jnp.abs(loop_gaps(model, closed))))


LEAST_DAMPING = 1e-12
LARGEST_STEP = 0.7
"""Largest change of a coordinate in one step, rad or m, within which the Jacobian is meaningful."""


def inverse_kinematics(
    model: Model,
    pose: Float[Array, "4 4"],
    frame: str,
    start: Float[Array, "n"],
    joints: Sequence[str] | None = None,
    steps: int = 40,
    rotation: bool = True,
    settled: float = 0.0,
) -> tuple[Float[Array, "n"], Float[Array, ""]]:
    """Coordinates at which a frame has a pose, near a start, and the remaining pose error.

    q <- q + (J^T J + l I)^-1 J^T e with the error e of position and rotation vector and the damping l = |e|^2 / 2,
    which vanishes at the solution, where the steps become Gauss-Newton's, and bounds the step at singular postures.

    Args:
        model: the machine.
        pose: target pose of the frame, T_0frame.
        frame: name of the frame.
        start: initial coordinates [n], rad or m. Coordinates not in `joints` keep their values.
        joints: coordinates that may change; by default all.
        steps: largest number of steps.
        rotation: whether the frame takes the rotation of the pose, not its position only.
        settled: size of the error at and below which the step from there is the last one.

    Returns:
        q [n], angles not normalized, and the pose error: the larger of the distance [m] and the angle [rad]. If it is
        not small, no solution was found from this start.

    Source: Sugihara 2011, "Solvability-unconcerned inverse kinematics by the Levenberg-Marquardt method".
    """
    may_move = jnp.array([joints is None or name in joints for name in model.coordinates])
    rows = slice(6 if rotation else 3)

    def error(q: Array) -> Array:
        return displacement(frame_pose(model, q, frame), pose)[rows]

    def step(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        q, _, count = state
        e = error(q)
        jacobian = jnp.where(may_move, elastic_jacobian(model, q, frame)[rows, : q.shape[0]], 0.0)
        normal = jacobian.T @ jacobian + (0.5 * e @ e + LEAST_DAMPING) * jnp.eye(q.shape[0])
        change = jnp.linalg.solve(normal, jacobian.T @ e)
        q = q + change * jnp.minimum(1.0, LARGEST_STEP / jnp.maximum(jnp.max(jnp.abs(change)), 1e-300))
        return q, jnp.linalg.norm(e), count + 1

    first = start, jnp.asarray(jnp.inf), jnp.asarray(0)
    q = jax.lax.while_loop(lambda state: (state[1] > settled) & (state[2] < steps), step, first)[0]
    if not rotation:
        return q, jnp.linalg.norm(error(q))
    current = frame_pose(model, q, frame)
    distance = jnp.linalg.norm(pose[:3, 3] - current[:3, 3])
    # A rotation by theta changes the matrix by sqrt(8) sin(theta / 2), which is valid up to half a turn.
    sine = jnp.linalg.norm(pose[:3, :3] - current[:3, :3]) / 8.0**0.5
    return q, jnp.maximum(distance, 2.0 * jnp.arcsin(jnp.minimum(sine, 1.0)))


STEPS_ALONG_PATH = 10
"""Number of steps at each pose of a path."""


def inverse_kinematics_path(
    model: Model,
    poses: Float[Array, "k 4 4"],
    frame: str,
    start: Float[Array, "n"],
    joints: Sequence[str] | None = None,
) -> tuple[Float[Array, "k n"], Float[Array, "k"]]:
    """Coordinates along a path of poses, each solved from the previous one, so that the branch is kept.

    Args:
        model: the machine.
        poses: poses of the frame, T_0frame, closely spaced.
        frame: name of the frame.
        start: coordinates near those of the first pose [n].
        joints: coordinates that may change; by default all.

    Returns:
        q [k, n] and the pose errors of `inverse_kinematics` [k].
    """

    def follow(q: Array, pose: Array) -> tuple[Array, tuple[Array, Array]]:
        found, distance = inverse_kinematics(model, pose, frame, q, joints, STEPS_ALONG_PATH)
        return found, (found, distance)

    return jax.lax.scan(follow, start, poses)[1]


MOST_TRIES = 200
"""Largest number of draws, each of as many postures as requested, before the search is given up."""


def candidate_postures(
    model: Model,
    ranges: Mapping[str, tuple[float, float] | Sequence[float]],
    count: int,
    seed: int = 0,
    floor: float = 0.0,
    load: tuple[str, np.ndarray] | None = None,
    largest_effort: Mapping[str, float] | None = None,
) -> np.ndarray:
    """Random postures [count, n] within joint limits, with every frame above the floor and no drive overloaded.

    Args:
        model: the machine.
        ranges: lower and upper limit of a coordinate [rad or m], or a list of three or more values it may take; the
            others stay as in the reference posture.
        count: number of postures.
        seed: of the draws.
        floor: height [m] above which the origins of all moving frames must be.
        load: frame and wrench of the tests.
        largest_effort: of drives under the load, Nm or N by coordinate.

    Raises:
        ValueError: a name is not a coordinate, a range is reversed, a load or a count is invalid, or too few of the
            drawn postures are admissible.
        NotImplementedError: the machine has loops.
    """
    whole_number("count", count, 1)
    load = None if load is None else _checked_load(model, load)
    check_known("largest_effort: coordinate", largest_effort or {}, model.coordinates)
    if largest_effort and load is None:
        raise ValueError("largest_effort is given without a load, expected the frame and wrench of the tests as load")
    check_ranges("range", model, ranges)
    check_open_chain(model, "candidate postures")
    for name, limits in ranges.items():
        if len(limits) < 2 or (len(limits) == 2 and not limits[0] <= limits[1]):
            raise ValueError(
                f"range of '{name}' is {tuple(limits)}, expected lower and upper limit, or a list of values"
            )
    rng = np.random.default_rng(seed)
    found: list[np.ndarray] = []
    for _ in range(MOST_TRIES):
        q = np.tile(np.asarray(model.reference), (count, 1))
        for name, limits in ranges.items():
            drawn = (
                rng.uniform(limits[0], limits[1], count) if len(limits) == 2 else rng.choice(np.asarray(limits), count)
            )
            q[:, model.coordinates.index(name)] = drawn
        heights, efforts = (np.asarray(x) for x in _heights_and_efforts(model, jnp.asarray(q), load))
        good = np.all(heights[:, _movable(model)] > floor, axis=1)
        for name, most in (largest_effort or {}).items():
            good &= np.abs(efforts[:, model.coordinates.index(name)]) <= most
        found.extend(q[good])
        if len(found) >= count:
            return np.stack(found[:count])
    raise ValueError(
        f"{len(found)} of {MOST_TRIES * count} postures drawn are possible, expected {count}: widen ranges or limits"
    )


def lowest_frame(model: Model, q: np.ndarray) -> float:
    """Height [m] of the lowest origin of a frame that moves."""
    heights, _ = _heights_and_efforts(model, jnp.asarray(q)[None], None)
    return float(np.asarray(heights)[0, _movable(model)].min())


@compiled
def _heights_and_efforts(model: Model, q: Array, load: tuple[str, np.ndarray] | None) -> tuple[Array, Array]:
    """Heights of all frames [c, f] and efforts of the load [c, n]."""

    def one(at: Array) -> tuple[Array, Array]:
        height = frame_poses(model, at)[:, 2, 3]
        if load is None:
            return height, jnp.zeros_like(at)
        return height, (elastic_jacobian(model, at, load[0]).T @ load[1])[: at.size]

    return jax.vmap(one)(q)


def _checked_load(model: Model, load: tuple[str, np.ndarray]) -> tuple[str, np.ndarray]:
    if len(load) != 2 or not isinstance(load[0], str):
        raise ValueError(f"load is {load}, expected the name of a frame and a wrench")
    check_known("load: frame", [load[0]], model.frames)
    wrench = np.asarray(load[1], float)
    if wrench.shape != (6,) or not np.all(np.isfinite(wrench)):
        raise ValueError(f"load: wrench is {wrench.tolist()}, expected six finite numbers, force then moment")
    return load[0], wrench


def _movable(model: Model) -> list[int]:
    return [i for i, node in enumerate(model.frame_node) if node >= 0]
