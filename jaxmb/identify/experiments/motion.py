"""Tests at one posture, and their view of a machine as an affine function of the free values."""

import abc
import dataclasses
import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.components import Evaluation, Vibration
from jaxmb.identify.experiments.machine_errors import loaded, payload_errors
from jaxmb.identify.experiments.motion_view import MotionView, motion_view, reduced_view, reducing_basis
from jaxmb.identify.experiments.test import Test
from jaxmb.identify.experiments.tolerances import StatedError, joint_kind, posture_text, zero_error
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.io.validation import display_name
from jaxmb.linalg.responses import Support
from jaxmb.machine.build import Model
from jaxmb.machine.families import FAMILIES, leaves_of
from jaxmb.mechanics.kinematics import FULL_TURN
from jaxmb.mechanics.loops import independent_coordinates, motion_map
from jaxmb.mechanics.tangent import LinearizeAt, Tangent
from jaxmb.response.frf_kind import DIRECTIONS, GROUND_DIRECTIONS, Point, dof_names

ViewArguments = tuple[Float[Array, "n"], LinearizeAt, tuple[Point, ...], tuple[Point, ...], bool, bool]
"""Posture, point of linearization, outputs, inputs, whether sensors feel gravity, whether energy shares are needed."""
LINEAR_LEAVES = frozenset(leaf for family in FAMILIES if family.affine for leaf in leaves_of(family))
"""Leaves of the model in each of which the tangent at a fixed posture is affine, with the others fixed."""
LOSS_FACTORS = frozenset(family.leaf for family in FAMILIES if family.loss)
"""Leaves that multiply a stiffness: structural damping is bilinear in them and that stiffness."""
PRODUCTS = {
    "rayleigh_mass": frozenset(family.leaf for family in FAMILIES if family.matrix == "mass"),
    "rayleigh_stiffness": frozenset(family.leaf for family in FAMILIES if family.matrix == "stiffness"),
    "stiffness_slope": frozenset({"stiffness", "rayleigh_stiffness", *LOSS_FACTORS}),
}
"""Leaves (keys) that multiply others (values) in the tangent: it is affine in either, not in both."""
STIFFNESSES = PRODUCTS["rayleigh_stiffness"] - {"spring_stiffness"}
"""Leaves that determine how the members of a loop share a load."""
LOADS = frozenset({"spring_stiffness"}).union(
    family.leaf
    for family in FAMILIES
    if family.matrix == "mass" and family.owner not in ("coordinate", "transmission")  # reflected: without weight
)
"""Leaves that determine joint loads, on which a load-dependent stiffness depends."""
GRAVITY_INDEPENDENT = LOSS_FACTORS | STIFFNESSES | {"damping"}
"""Leaves without effect on the gravity stiffness."""
MOST_PRODUCTS = 400
"""Largest number of precomputed pairs of a loss factor and another free value."""
VIEW_BATCH = 8
"""Batch size of views of a large machine."""
MOST_ENTRIES = 400
"""Largest number of entries of the tangent for differentiation entry by entry."""
ROUNDING = 1e-13
"""Change of a matrix over the whole range of a value, relative to the matrix, that counts as rounding."""


class AffineMotion(eqx.Module):
    """A `MotionView` as an affine function of the free values: its value at zero and its slopes.

    Structural damping has bilinear terms in addition: products of loss factors and the other values.
    """

    base: MotionView
    slope: MotionView
    losses: tuple[int, ...] = eqx.field(static=True, default=())
    """Indices of the free values that are loss factors."""
    products: Float[Array, "m m l d"] | None = None
    """Derivative of the structural damping matrix by each loss factor and each free value."""

    def __call__(self, values: Float[Array, "d"] | np.ndarray) -> MotionView:
        """The view at physical values, exact to rounding; NumPy in, NumPy out."""
        numpy = isinstance(values, np.ndarray)

        def evaluate(slope: Array | None, base: Array) -> Any:
            if slope is None:
                return base
            change = (np if numpy else jnp).einsum("...d,d->...", slope, values)
            return np.asarray(base) + change if numpy else base + change

        slopes, bases = ((part.tangent, part.stiffness) for part in (self.slope, self.base))
        tangent, stiffness = jax.tree.map(evaluate, slopes, bases, is_leaf=lambda part: part is None)
        if self.products is not None:
            xp: Any = np if numpy else jnp
            products = np.asarray(self.products) if numpy else self.products
            bilinear = xp.einsum("ijld,l,d->ij", products, values[np.array(self.losses)], values)
            tangent = dataclasses.replace(tangent, structural=tangent.structural + bilinear)
        return dataclasses.replace(self.base, tangent=tangent, stiffness=stiffness)

    def tangent_slope(self, free: FreeParameters, u: Float[np.ndarray, "d"]) -> Tangent:
        """Derivatives of the tangent matrices by u [m, m, d]: differences, as each of them is affine in each value."""
        values = free.values(u)
        base, steps = self(values).tangent, np.diag(free.slope(values))
        columns = (jax.tree.map(np.subtract, self(values + step).tangent, base) for step in steps)
        return jax.tree.map(lambda *column: np.stack(column, axis=-1), *columns)

    def stackable(self, others: "Sequence[AffineMotion]") -> "AffineMotion":
        """The same with the joint support of all views, and without slopes that are 0 in all of them."""
        supports = [view.base.support for view in (self, *others)]
        support: Support | None = None
        if all(entries is not None for entries in supports):
            support = tuple(sorted({entry for entries in supports for entry in entries or ()}))
        tangents = [view.slope.tangent for view in (self, *others)]
        unused = {
            field.name: None
            for field in dataclasses.fields(Tangent)
            if not any(np.any(np.asarray(x)) for t in tangents for x in jax.tree.leaves(getattr(t, field.name)))
        }
        slope = dataclasses.replace(self.slope, tangent=dataclasses.replace(self.slope.tangent, **unused))
        return dataclasses.replace(self, base=dataclasses.replace(self.base, support=support), slope=slope)


def affine_motion(test: "PostureTest", model: Model, free: FreeParameters) -> AffineMotion | None:
    """The view of a test as an affine function of the free values, with its support: the entries of the tangent that
    vary.

    None where it is not affine: linearized about an equilibrium, or with a free parameter that enters nonlinearly.
    Slopes are differences over the whole range of each value: exact to rounding for an affine function, without a
    derivative to compile. Models with many degrees of freedom are reduced to those that the test observes.
    """
    has_shear = "timoshenko" in model.beam_theory  # whose stiffness is a fraction of both moduli
    size, leaves = free.size, {target.leaf for target in free.targets}
    pairs = list(zip(free.targets, free.source, strict=True))
    losses = tuple(sorted({i for target, i in pairs if target.leaf in LOSS_FACTORS}))
    others = tuple(sorted({i for target, i in pairs if target.leaf not in LOSS_FACTORS}))
    is_supported = leaves <= LINEAR_LEAVES | LOSS_FACTORS and not {*losses} & {*others}
    shared = LOADS | STIFFNESSES if model.loops else LOADS
    has_products = (
        any(leaf in leaves and leaves & factors for leaf, factors in PRODUCTS.items())
        or (any(model.load_dependent) and leaves & shared)
        or len(losses) * len(others) > MOST_PRODUCTS
    )
    if test.at != "posture" or has_shear or has_products or not is_supported or not size:
        return None
    step = np.maximum(np.abs(np.asarray(free.lower_value)), np.abs(np.asarray(free.upper_value)))

    weightless = can_omit_gravity(model, free)
    active = [(), *((i,) for i in range(size)), *itertools.product(losses, others)]
    values = np.array([np.isin(np.arange(size), chosen) * step for chosen in active])
    if weightless:
        views, base = _weightless_views(test, model, free, values), test.view(free.apply(model, values[0]))
        start_view = next(views)
    else:
        views = (test.view(free.apply(model, v)) for v in values)
        base = start_view = next(views)
    columns = []
    for upper_step in step:
        upper_view = next(views)
        slope = jax.tree.map(lambda b, t, r=upper_step: (np.asarray(t) - np.asarray(b)) / r, start_view, upper_view)
        columns.append(
            dataclasses.replace(slope, tangent=_without_rounding(slope.tangent, upper_view.tangent, upper_step))
        )
    start = base.tangent.structural
    bilinear: dict[tuple[int, int], np.ndarray] = {}
    for i, j in itertools.product(losses, others):
        together = np.asarray(next(views).tangent.structural) - np.asarray(start)
        alone = step[i] * columns[i].tangent.structural + step[j] * columns[j].tangent.structural
        bilinear[i, j] = (together - alone) / (step[i] * step[j])
    basis = reducing_basis(base, columns, free, test.vibration.band_end_hz)
    if basis is not None:
        base, columns = reduced_view(base, basis), [reduced_view(column, basis) for column in columns]
        bilinear = {key: basis.T @ part @ basis for key, part in bilinear.items()}
    slope = jax.tree.map(lambda *c: jax.device_put(np.stack(c, axis=-1)), *columns)
    matrices = [part for part in jax.tree.leaves(slope.tangent) if part.ndim == 3]
    parts = [np.abs(np.asarray(part)).sum(axis=-1) for part in matrices]
    bilinear_slope = None
    if bilinear:
        count = base.tangent.mass.shape[0]
        zero = np.zeros((count, count))
        rows = [np.stack([bilinear.get((i, j), zero) for j in range(size)], axis=-1) for i in losses]
        bilinear_slope = jax.device_put(np.stack(rows, axis=2))
        parts.append(np.abs(np.asarray(bilinear_slope)).sum(axis=(2, 3)))
    entries = np.argwhere(np.sum(parts, axis=0))
    many = len(entries) > MOST_ENTRIES
    support = None if many else tuple((int(i), int(j)) for i, j in entries)
    return AffineMotion(dataclasses.replace(base, support=support), slope, losses, bilinear_slope)


def _weightless_views(
    test: "PostureTest", model: Model, free: FreeParameters, values: Float[np.ndarray, "k d"]
) -> Iterator[MotionView]:
    """Views without gravity at several free values, in batches that share the kinematics."""
    for first in range(0, len(values), VIEW_BATCH):
        some = values[first : first + VIEW_BATCH]
        filled = np.concatenate([some, np.zeros((VIEW_BATCH - len(some), some.shape[1]))])
        views = jax.tree.map(np.asarray, _view_batch(test.view_arguments, model, free, jax.device_put(filled)))
        yield from (jax.tree.map(lambda part, i=i: part[i], views) for i in range(len(some)))


@compiled
def _view_batch(
    view_arguments: ViewArguments, model: Model, free: FreeParameters, values: Float[Array, "k d"]
) -> MotionView:
    return jax.vmap(lambda v: motion_view(free.apply(model, v), *view_arguments, weightless=True))(values)


def can_omit_gravity(model: Model, free: FreeParameters) -> bool:
    """Whether derivatives by the free values omit gravity: large machines, and no free value with an effect on
    weight."""
    leaves = {target.leaf for target in free.targets}
    return model.bent_loops and leaves <= GRAVITY_INDEPENDENT and not any(model.load_dependent)


def _without_rounding(slope: Tangent, upper: Tangent, step: float) -> Tangent:
    """Slopes of a tangent with rounding residues set to zero.

    Rounding would otherwise drive an insensitive value through its whole range, and the value would not be reported.
    """

    def cleaned(change: np.ndarray, matrix: Array) -> np.ndarray:
        if matrix.ndim < 2:  # the order of fractional damping, on which no linear parameter has an effect
            return change
        size = np.sqrt(np.abs(np.diagonal(np.asarray(matrix))))
        return np.where(np.abs(change) * step > ROUNDING * np.outer(size, size), change, 0.0)

    return jax.tree.map(cleaned, slope, upper)


class PostureTest(Test[MotionView]):
    """A test of linearized motion at one posture. Abstract."""

    q: eqx.AbstractVar[Float[Array, "n"]]
    at: eqx.AbstractVar[LinearizeAt]
    outputs: eqx.AbstractVar[tuple[Point, ...]]
    inputs: eqx.AbstractVar[tuple[Point, ...]]

    def view(self, model: Model) -> MotionView:
        """Linearized motion of the machine at the test's posture."""
        return motion_view(model, *self.view_arguments)

    @property
    def view_arguments(self) -> ViewArguments:
        """Arguments of `motion_view` after the machine."""
        return self.q, self.at, self.outputs, self.inputs, self.feels_gravity, self.shares_energy

    @property
    def evaluation(self) -> "MotionEvaluation[Any]":
        """Evaluation of its residual in a fit."""
        return MotionEvaluation(self)

    @property
    @abc.abstractmethod
    def vibration(self) -> Vibration[Any]:
        """Linearized motion at its posture."""

    @property
    def feels_gravity(self) -> bool:
        """Whether its sensors feel gravity as they tilt."""
        return False

    @property
    def shares_energy(self) -> bool:
        """Whether it needs the share of each spring in the strain energy of modes."""
        return False


class PlacementErrors(NamedTuple):
    """Errors of the posture of a test, its payloads, and the directions and positions of its points; 0 as described."""

    posture: Float[np.ndarray, "n"] | Array
    """True minus stated joint coordinates, rad or m."""
    payload: Float[np.ndarray, "f"] | Array
    """Point mass at each frame of the machine, kg."""
    output_turn: Float[np.ndarray, "o 3"] | Array
    """Rotation of each output's direction about the axes it is stated in, rad."""
    output_shift: Float[np.ndarray, "o 3"] | Array
    """Displacement of each output along these axes, m."""
    input_turn: Float[np.ndarray, "i 3"] | Array
    input_shift: Float[np.ndarray, "i 3"] | Array


def no_placement_errors(test: "PostureTest", model: Model) -> PlacementErrors:
    """No errors, for the joint coordinates of the machine as it is described."""
    outputs, inputs = (np.zeros((len(points), 3)) for points in (test.outputs, test.inputs))
    joints = np.zeros(min(len(model.joints), int(jnp.size(test.q))))
    return PlacementErrors(joints, np.zeros(len(model.frames)), outputs, outputs, inputs, inputs)


def placement_errors(test: "PostureTest", model: Model) -> Iterator[tuple[StatedError, PlacementErrors]]:
    """Errors of the posture of a test, of the joint zeros and payloads, each for a size of 1 rad, m or kg.

    In a machine with loops, of the independent coordinates, loops closed to first order.
    """
    none, columns = no_placement_errors(test, model), np.eye(len(model.coordinates))
    names = independent_coordinates(model)
    if model.loops:
        columns = np.asarray(motion_map(model, jnp.asarray(test.q)))
    for name, column in zip(names, columns.T, strict=True):
        if name in model.joints[: none.posture.size]:
            displaced = none._replace(posture=column[: none.posture.size])
            revolute = model.revolute[model.coordinates.index(name)]
            text = functools.partial(posture_text, name, display_name(test.name), revolute)
            key = f"posture of {test.name} {name}"
            yield StatedError(key, *joint_kind("posture", revolute), text=text), displaced
            yield zero_error(name, revolute), displaced
    for error, payload in payload_errors(model, test.name):
        yield error, none._replace(payload=payload)


def point_errors(
    test: "PostureTest", model: Model, which: str, points: tuple[Point, ...]
) -> Iterator[tuple[StatedError, PlacementErrors]]:
    """Errors of direction and position of each output or input, of this test and of all tests.

    Args:
        test: the test.
        model: the machine.
        which: "output" or "input".
        points: its outputs or inputs.
    """
    none = no_placement_errors(test, model)
    for k, (point, name) in enumerate(zip(points, dof_names(points), strict=True)):
        changes = direction_changes(point)
        for i in np.flatnonzero(changes.any(axis=1)):
            unit, axis = np.outer(np.eye(len(points))[k], np.eye(3)[i]), axes_of(point)[i]
            for end, has_tolerance in ((f" of {test.name}", True), ("", False)):
                key = f"direction of {which} {name}{end} about {axis}"
                stated = StatedError(key, "sensor_direction_deg", np.pi / 180.0)
                yield _stated_error(stated, has_tolerance), none._replace(**{f"{which}_turn": unit})
                if changes[i, :3].any():
                    key = f"position of {which} {name}{end} along {axis}"
                    stated = StatedError(key, "sensor_position_mm", 1e-3)
                    yield _stated_error(stated, has_tolerance), none._replace(**{f"{which}_shift": unit})


def _stated_error(error: StatedError, has_tolerance: bool) -> StatedError:
    """An error of one test with its tolerance; one common to all tests has none: sensors are mounted anew."""
    if has_tolerance:
        return error
    least, most = error.bounds
    return error._replace(kind="", size=error.typical, text=error.described, least=least, most=most)


def channel_alternatives(which: str, names: Sequence[str]) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
    """Key and text of each channel with a reversed sign and of each exchanged pair, with the order and the signs of the
    channels that correct it."""
    plain = np.arange(len(names))
    for k, name in enumerate(names):
        yield f"sign of {which} {name}", f"the sign of {which} {name}", plain, np.where(plain == k, -1.0, 1.0)
    for i, k in itertools.combinations(plain.tolist(), 2):
        order = plain.copy()
        order[[i, k]] = k, i
        text = f"exchanged {which}s {names[i]} and {names[k]}"
        yield text, text, order, np.ones(len(names))


P = TypeVar("P", bound=PostureTest)


def posture_alternatives(test: P, model: Model) -> Iterator[tuple[str, str, P]]:
    """The test with radians for degrees in its posture, with degrees for radians, and with a joint angle reversed."""
    q = np.asarray(test.q)
    turns = np.array(model.revolute[: q.size])
    if not model.loops:
        if np.abs(q[turns]).max(initial=0.0) > FULL_TURN:
            yield (
                "degrees",
                "a posture in degrees that is stated in radians",
                _at(test, np.where(turns, np.radians(q), q)),
            )
        for i in np.flatnonzero(turns & (np.abs(q) > 0.0)).tolist():
            name, sign = model.coordinates[i], np.where(np.arange(q.size) == i, -1.0, 1.0)
            yield f"sign of {name}", f"the sign of {name} in the posture", _at(test, sign * q)


def _at(test: P, q: np.ndarray) -> P:
    return dataclasses.replace(test, q=jax.device_put(q))


def displaced_view(test: "PostureTest", model: Model, errors: PlacementErrors) -> MotionView:
    """The view of a machine with errors of posture, payload, directions and positions corrected, to first order in the
    last two."""
    further = jnp.zeros(len(model.coordinates) - jnp.size(test.q))  # coordinates that a hypothesis adds
    q = jnp.concatenate([jnp.asarray(test.q), further]).at[: errors.posture.size].add(errors.posture)
    wide = (_with_axes(test.outputs), _with_axes(test.inputs))
    carrying = loaded(model, jnp.asarray(errors.payload))
    view = motion_view(carrying, q, test.at, wide[0], wide[1], test.feels_gravity, test.shares_energy)
    rows = [view.output_rows, view.output_rows if view.input_rows is None else view.input_rows]
    turns, shifts = (errors.output_turn, errors.input_turn), (errors.output_shift, errors.input_shift)
    ends = zip(rows, (test.outputs, test.inputs), wide, turns, shifts, strict=True)
    output_rows, input_rows = (_displaced_rows(*end) for end in ends)
    tilt = None if view.tilt_rows is None else view.tilt_rows[: len(test.outputs)]
    return dataclasses.replace(view, output_rows=output_rows, input_rows=input_rows, tilt_rows=tilt)


def axes_of(point: Point) -> tuple[str, ...]:
    """The six axes among which the direction of a point is; empty at a coordinate."""
    base = point[1].removeprefix("-")
    return next((axes for axes in (DIRECTIONS, GROUND_DIRECTIONS) if base in axes), ())


def direction_changes(point: Point) -> Float[np.ndarray, "3 6"]:
    """Change of a point's direction, in its six axes, by a rotation about each of the first three; 0 at a
    coordinate."""
    axes, change = axes_of(point), np.zeros((3, 6))
    if axes:
        base = point[1].removeprefix("-")
        k = axes.index(base)
        along = (1.0 if base == point[1] else -1.0) * np.eye(3)[k % 3]
        change[:, 3 * (k // 3) : 3 * (k // 3) + 3] = np.cross(np.eye(3), along)
    return change


def _with_axes(points: tuple[Point, ...]) -> tuple[Point, ...]:
    """Points, and all axes of their frames."""
    return tuple(dict.fromkeys([*points, *((name, axis) for name, base in points for axis in axes_of((name, base)))]))


def _displaced_rows(
    rows: Float[Array, "w m"],
    points: tuple[Point, ...],
    wide: tuple[Point, ...],
    turn: Float[np.ndarray, "p 3"] | Array,
    shift: Float[np.ndarray, "p 3"] | Array,
) -> Float[Array, "p m"]:
    """Rows of points with other directions and positions, from the rows of all axes of their frames."""
    turned, shifted = np.zeros((len(points), 3, len(wide))), np.zeros((len(points), 3, len(wide)))
    for p, point in enumerate(points):
        columns, change = [wide.index((point[0], axis)) for axis in axes_of(point)], direction_changes(point)
        if columns:
            turned[p][:, columns] = change
            # a point off the origin moves by w x r: along a it moves by w . (r x a); rotations are equal there
            shifted[p][:, columns[3:]] = change[:, :3]
    return (
        rows[: len(points)] + (jnp.einsum("pi,piw->pw", turn, turned) + jnp.einsum("pi,piw->pw", shift, shifted)) @ rows
    )


class MotionEvaluation(Evaluation[P]):
    """Evaluation with a precomputed affine view, where there is one."""

    def affine_view(self, model: Model, free: FreeParameters) -> AffineMotion | None:
        """The view as an affine function of the free values; None where it is not affine."""
        return affine_motion(self.test, model, free)
