"""Linearized motion of a machine about a posture, as seen by the sensors and shakers of a test, and as an affine
function of the free values."""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int
from scipy.linalg import eigh

from jaxmb.compiled import compiled
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.linalg.responses import Support
from jaxmb.machine.build import Model
from jaxmb.machine.families import FAMILIES, leaves_of
from jaxmb.mechanics.equilibrium import equilibrium_or_nan
from jaxmb.mechanics.kinematics import whole
from jaxmb.mechanics.tangent import LinearizeAt, Tangent, motion_stiffness, tangent_about, with_loaded_stiffness
from jaxmb.response.frf import response_rows, tilt_rows
from jaxmb.response.frf_kind import Point
from jaxmb.response.modal import check_mass_matrix, is_unlocked, spring_matrices
from jaxmb.response.reduction import error_of_basis, interface_basis, reduced_tangent

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


class VibrationView(eqx.Module):
    """The view of a machine by a test at one posture, in m small-amplitude coordinates."""

    tangent: Tangent
    stiffness: Float[Array, "m"] | Float[Array, "s m m"] | None
    """Stiffness of each coordinate's own spring; with gears, springs between frames or beams, the contribution of each
    to the stiffness matrix (`spring_matrices`). None for tests that do not need it."""
    output_rows: Float[Array, "o m"]
    input_rows: Float[Array, "i m"] | None
    """None where the inputs are the outputs."""
    is_unlocked: tuple[bool, ...] = eqx.field(static=True)
    """See `is_unlocked`."""
    tilt_rows: Float[Array, "o m"] | None = None
    """Contribution of gravity to the accelerations at the outputs, by tilt; None where the sensors do not feel it."""
    support: Support | None = eqx.field(static=True, default=None)
    """Entries of the tangent that depend on the free parameters; None where unknown."""


@compiled
def vibration_view(
    model: Model,
    q: Float[Array, "n"],
    at: LinearizeAt,
    outputs: tuple[Point, ...],
    inputs: tuple[Point, ...],
    feels_gravity: bool = False,
    shares_energy: bool = False,
    weightless: bool = False,
) -> VibrationView:
    """The view of a machine at posture q: its tangent there, and the Jacobian rows of sensors and forces.

    With the stiffness of each spring if `shares_energy`. NaN where the equilibrium of linearization does not exist, so
    that a fit rejects the step. Weightless: see `tangent_about`.
    """
    model = with_loaded_stiffness(model, q) if at == "posture" else model
    point = whole(model, q) if at == "posture" else equilibrium_or_nan(model, q)
    output_rows = response_rows(model, point, outputs)
    input_rows = None if inputs == outputs else response_rows(model, point, inputs)
    tilt = tilt_rows(model, point, outputs) if feels_gravity else None
    tangent = tangent_about(model, q, point, weightless)
    if at == "equilibrium":  # some tangents do not depend on the point, and would look valid without an equilibrium
        there = jnp.all(jnp.isfinite(point))
        tangent = jax.tree.map(lambda part: jnp.where(there, part, jnp.nan), tangent)
    coupled, stiffness = model.springs or model.motors or model.beams or model.following, None
    if shares_energy:
        stiffness = spring_matrices(model, q, point) if coupled else motion_stiffness(model)
    return VibrationView(tangent, stiffness, output_rows, input_rows, is_unlocked(model), tilt)


def check_vibration(view: VibrationView, names: Sequence[str]) -> None:
    """Raise ValueError where the linearized motion is undefined: no equilibrium, or a singular mass matrix.

    Args:
        view: of the machine.
        names: of its small-amplitude coordinates.
    """
    if not np.isfinite(np.asarray(view.tangent.stiffness)).all():
        raise ValueError("no static equilibrium was found: a loaded coordinate has too little stiffness to hold it")
    check_mass_matrix(np.asarray(view.tangent.mass), names)


MANY = 80
"""Degrees of freedom above which a view is reduced."""
LARGEST_INTERFACE = 0.4
"""Largest interface, over the degrees of freedom: with more directions a reduction saves little."""
MOST_POINTS = 12
"""Points that are taken into the interface; more are shapes of modes, which need no displacements of their own."""
SMALLEST_EIGENVALUE = 1e-9
"""Eigenvalue of a slope over its largest one, below which it is rounding."""
LARGEST_FREQUENCY_ERROR = 1e-4
"""Largest relative error of a natural frequency of the reduced machine, where there are no points or too many."""
CHECKED_LOSS = 0.02
"""Loss factor at which the error of a reduction is determined."""
LARGEST_ERROR = 1e-3
"""Largest error of a response of the reduced machine, over the largest response between the same points."""


def reducing_basis(
    base: VibrationView, slopes: Sequence[VibrationView], free: FreeParameters, highest_hz: float
) -> Float[np.ndarray, "m r"] | None:
    """Reduction basis that preserves the motion seen by a test for all free values within their bounds.

    Free springs, dampers and masses, and the test's points where they are few, form the interface (see
    `interface_basis`). None where the machine has few degrees of freedom, or where the reduction error is too large at
    the bounds of the free values or halfway between them: error of responses, or of natural frequencies where there are
    no points or many.

    Args:
        base: view with all free values at zero.
        slopes: derivative of the view by each of them.
        free: the free parameters.
        highest_hz: up to which the test asks for responses or modes.
    """
    size = base.tangent.mass.shape[0]
    if size <= MANY:
        return None
    outputs = np.asarray(base.output_rows)
    inputs = outputs if base.input_rows is None else np.asarray(base.input_rows)
    changes = [part for s in slopes for part in (s.tangent.mass, s.tangent.damping, s.tangent.stiffness)]
    directions = [directions_of_change(np.asarray(part)) for part in changes]
    # a change with an effect nearly everywhere is no interface; the error of the responses decides whether modes and
    # points suffice
    directions = [found for found in directions if found.shape[0] <= size // 10]
    points = [rows for rows in (inputs, outputs) if rows.shape[0] <= MOST_POINTS]
    interface = np.concatenate([*directions, *points, np.zeros((0, size))])
    if interface.shape[0] > LARGEST_INTERFACE * size:
        return None
    lower, upper = np.asarray(free.lower), np.asarray(free.upper)
    tangents = [_tangent_at(base, slopes, free.values(u)) for u in (0.5 * (lower + upper), lower, upper)]
    basis = interface_basis(np.asarray(tangents[0].mass), np.asarray(tangents[0].stiffness), interface, highest_hz)
    if 0 < inputs.shape[0] <= MOST_POINTS:
        errors, most = [error_of_basis(t, basis, outputs, inputs, highest_hz) for t in tangents], LARGEST_ERROR
    else:
        errors, most = [_frequency_error(t, basis, highest_hz) for t in tangents], LARGEST_FREQUENCY_ERROR
    return basis if max(errors) <= most else None


def reduced_view(view: VibrationView, basis: Float[np.ndarray, "m r"]) -> VibrationView:
    """The view, or its derivative, in the coordinates of a basis."""

    def seen(rows: Any) -> Any:
        return None if rows is None else jax.device_put(np.asarray(rows) @ basis)

    shares = None if view.stiffness is None else jax.device_put(basis.T @ np.asarray(view.stiffness) @ basis)
    return dataclasses.replace(
        view,
        tangent=reduced_tangent(view.tangent, basis),
        stiffness=shares,
        output_rows=seen(view.output_rows),
        input_rows=seen(view.input_rows),
        tilt_rows=seen(view.tilt_rows),
    )


def restricted_view(view: VibrationView, moving: Int[Array, "r"]) -> VibrationView:
    """The view with some degrees of freedom, the others at rest."""

    def among(matrix: Array) -> Array:
        return matrix[..., moving, :][..., moving] if matrix.ndim > 1 else matrix

    shares = view.stiffness
    if shares is not None and shares.ndim == 1:
        shares = jax.vmap(jnp.diag)(jnp.diag(shares))
    return dataclasses.replace(
        view,
        tangent=jax.tree.map(among, view.tangent),
        stiffness=None if shares is None else among(shares),
        output_rows=view.output_rows[:, moving],
        input_rows=None if view.input_rows is None else view.input_rows[:, moving],
        tilt_rows=None if view.tilt_rows is None else view.tilt_rows[:, moving],
    )


def directions_of_change(change: Float[np.ndarray, "m m"]) -> Float[np.ndarray, "k m"]:
    """Eigenvectors of the non-zero part of a change of a symmetric matrix, as rows."""
    active = np.flatnonzero(np.any(change != 0.0, axis=0))
    found = np.zeros((active.size, change.shape[0]))
    values, vectors = np.linalg.eigh(change[np.ix_(active, active)])
    found[:, active] = vectors.T
    return found[np.abs(values) > SMALLEST_EIGENVALUE * np.abs(values).max(initial=0.0)]


def _frequency_error(tangent: Tangent, basis: Float[np.ndarray, "m r"], highest_hz: float) -> float:
    """Largest relative error of the natural frequencies up to the highest."""
    mass, stiffness = np.asarray(tangent.mass), np.asarray(tangent.stiffness)
    exact = eigh(stiffness, mass, eigvals_only=True)
    exact = exact[exact <= (2.0 * np.pi * highest_hz) ** 2]
    near = eigh(basis.T @ stiffness @ basis, basis.T @ mass @ basis, eigvals_only=True)[: exact.size]
    return float(np.max(np.abs(near - exact) / np.abs(exact), initial=0.0)) / 2.0


def _tangent_at(base: VibrationView, slopes: Sequence[VibrationView], values: Float[np.ndarray, "d"]) -> Tangent:
    """The tangent at free values, with a uniform loss factor of 2 %, as loss factors may be free."""

    def evaluate(part: Any, *changes: Any) -> np.ndarray:
        return np.asarray(part) + sum(v * np.asarray(c) for v, c in zip(values, changes, strict=True))

    found = jax.tree.map(evaluate, base.tangent, *(s.tangent for s in slopes))
    return dataclasses.replace(found, structural=CHECKED_LOSS * np.asarray(found.stiffness))


class AffineVibration(eqx.Module):
    """A `VibrationView` as an affine function of the free values: its value at zero and its slopes.

    Structural damping has bilinear terms in addition: products of loss factors and the other values.
    """

    base: VibrationView
    slope: VibrationView
    losses: tuple[int, ...] = eqx.field(static=True, default=())
    """Indices of the free values that are loss factors."""
    products: Float[Array, "m m l d"] | None = None
    """Derivative of the structural damping matrix by each loss factor and each free value."""

    def __call__(self, values: Float[Array, "d"] | np.ndarray) -> VibrationView:
        """The view at physical values, exact to rounding; NumPy in, NumPy out."""
        xp: Any = values.__array_namespace__()

        def evaluate(slope: Array | None, base: Array) -> Any:
            return base if slope is None else xp.asarray(base) + xp.einsum("...d,d->...", xp.asarray(slope), values)

        slopes, bases = ((part.tangent, part.stiffness) for part in (self.slope, self.base))
        tangent, stiffness = jax.tree.map(evaluate, slopes, bases, is_leaf=lambda part: part is None)
        if self.products is not None:
            bilinear = xp.einsum("ijld,l,d->ij", xp.asarray(self.products), values[np.array(self.losses)], values)
            tangent = dataclasses.replace(tangent, structural=tangent.structural + bilinear)
        return dataclasses.replace(self.base, tangent=tangent, stiffness=stiffness)

    def tangent_slope(self, free: FreeParameters, u: Float[np.ndarray, "d"]) -> Tangent:
        """Derivatives of the tangent matrices by u [m, m, d]: differences, as each of them is affine in each value."""
        values = free.values(u)
        base, steps = self(values).tangent, np.diag(free.slope(values))
        columns = (jax.tree.map(np.subtract, self(values + step).tangent, base) for step in steps)
        return jax.tree.map(lambda *column: np.stack(column, axis=-1), *columns)

    def stackable(self, others: "Sequence[AffineVibration]") -> "AffineVibration":
        """The same with the joint support of all views, and without slopes that are 0 in all of them."""
        known = [view.base.support for view in (self, *others) if view.base.support is not None]
        support = tuple(sorted(set[tuple[int, int]]().union(*known))) if len(known) > len(others) else None
        tangents = [view.slope.tangent for view in (self, *others)]
        unused = {
            field.name: None
            for field in dataclasses.fields(Tangent)
            if not any(np.any(np.asarray(x)) for t in tangents for x in jax.tree.leaves(getattr(t, field.name)))
        }
        slope = dataclasses.replace(self.slope, tangent=dataclasses.replace(self.slope.tangent, **unused))
        return dataclasses.replace(self, base=dataclasses.replace(self.base, support=support), slope=slope)


def affine_vibration(
    view_arguments: ViewArguments, highest_hz: float, model: Model, free: FreeParameters
) -> AffineVibration | None:
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
    if view_arguments[1] != "posture" or has_shear or has_products or not is_supported or not size:
        return None
    step = np.maximum(np.abs(np.asarray(free.lower_value)), np.abs(np.asarray(free.upper_value)))

    def seen(v: np.ndarray) -> VibrationView:
        return vibration_view(free.apply(model, v), *view_arguments)

    active = [(), *((i,) for i in range(size)), *itertools.product(losses, others)]
    values = np.array([np.isin(np.arange(size), chosen) * step for chosen in active])
    if can_omit_gravity(model, free):
        views, base = _weightless_views(view_arguments, model, free, values), seen(values[0])
        start_view = next(views)
    else:
        views = map(seen, values)
        base = start_view = next(views)
    columns = []
    for upper_step in step:
        upper_view = next(views)
        slope = jax.tree.map(lambda b, t, r=upper_step: (np.asarray(t) - np.asarray(b)) / r, start_view, upper_view)
        columns.append(
            dataclasses.replace(slope, tangent=_without_rounding(slope.tangent, upper_view.tangent, upper_step))
        )
    products = np.zeros((len(losses), size, *base.tangent.mass.shape))
    for (k, i), j in itertools.product(enumerate(losses), others):
        together = np.asarray(next(views).tangent.structural) - np.asarray(base.tangent.structural)
        alone = step[i] * columns[i].tangent.structural + step[j] * columns[j].tangent.structural
        products[k, j] = (together - alone) / (step[i] * step[j])
    basis = reducing_basis(base, columns, free, highest_hz)
    if basis is not None:
        base, columns = reduced_view(base, basis), [reduced_view(column, basis) for column in columns]
        products = basis.T @ products @ basis
    slope = jax.tree.map(lambda *c: jax.device_put(np.stack(c, axis=-1)), *columns)
    parts = [np.abs(np.asarray(part)).sum(axis=-1) for part in jax.tree.leaves(slope.tangent) if part.ndim == 3]
    entries = np.argwhere(np.sum([*parts, np.abs(products).sum(axis=(0, 1))], axis=0))
    support = None if len(entries) > MOST_ENTRIES else tuple((int(i), int(j)) for i, j in entries)
    bilinear = jax.device_put(np.moveaxis(products, (0, 1), (2, 3))) if losses and others else None
    return AffineVibration(dataclasses.replace(base, support=support), slope, losses, bilinear)


def _weightless_views(
    view_arguments: ViewArguments, model: Model, free: FreeParameters, values: Float[np.ndarray, "k d"]
) -> Iterator[VibrationView]:
    """Views without gravity at several free values, in batches that share the kinematics."""
    for first in range(0, len(values), VIEW_BATCH):
        some = values[first : first + VIEW_BATCH]
        filled = np.concatenate([some, np.zeros((VIEW_BATCH - len(some), some.shape[1]))])
        views = jax.tree.map(np.asarray, _view_batch(view_arguments, model, free, jax.device_put(filled)))
        yield from (jax.tree.map(lambda part, i=i: part[i], views) for i in range(len(some)))


@compiled
def _view_batch(
    view_arguments: ViewArguments, model: Model, free: FreeParameters, values: Float[Array, "k d"]
) -> VibrationView:
    return jax.vmap(lambda v: vibration_view(free.apply(model, v), *view_arguments, weightless=True))(values)


def can_omit_gravity(model: Model, free: FreeParameters) -> bool:
    """Whether derivatives by the free values omit gravity: large machines, and no free value with an effect on
    weight."""
    leaves = {target.leaf for target in free.targets}
    return model.bent_loops and leaves <= GRAVITY_INDEPENDENT and not any(model.load_dependent)


@compiled
def view_slope(
    model: Model,
    free: FreeParameters,
    u: Float[Array, "d"],
    q: Float[Array, "n"],
    at: LinearizeAt,
    points: tuple[Point, ...] = (),
) -> VibrationView:
    """Derivatives by u [..., d] of the view of points at a posture."""
    weightless = at == "posture" and can_omit_gravity(model, free)

    def view(u: Array) -> VibrationView:
        return vibration_view(free.apply(model, free.values(u)), q, at, points, points, weightless=weightless)

    return jax.jacfwd(view)(u)


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
