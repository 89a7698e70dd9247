"""The view of a machine by a deflection test: compliance, points and loads in the same degrees of freedom."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.motion import LINEAR_LEAVES, LOSS_FACTORS
from jaxmb.identify.experiments.motion_view import directions_of_change
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import closed_stiffness, elastic_stiffness, stable_inverse


class ElasticView(NamedTuple):
    """Displacement of each row: at_point C effort, with C the compliance of each load case or one for all."""

    compliance: Float[Array, "*t e e"]
    at_point: Float[Array, "m e"]
    """Row of the measured point's elastic Jacobian."""
    effort: Float[Array, "m e"]
    """J_l^T w of the loaded frame."""


class AffineStiffness(eqx.Module):
    """An `ElasticView` of a machine with loops, whose stiffness matrices are affine functions of the free values."""

    base: Float[Array, "t r r"]
    slope: Float[Array, "t r r d"]
    at_point: Float[Array, "m r"]
    effort: Float[Array, "m r"]

    def __call__(self, values: Float[Array, "d"] | np.ndarray) -> ElasticView:
        """The view at physical values."""
        return ElasticView(_compliances(self.base, self.slope, jnp.asarray(values)), self.at_point, self.effort)

    def stackable(self, others: list[Self]) -> Self:
        """Unchanged: views of equal shapes can be stacked."""
        return self


class _Posture(NamedTuple):
    """Independent elastic coordinates at a posture, their stiffness at the middle of the bounds, and its slopes."""

    columns: Float[np.ndarray, "e k"]
    stiffness: Float[np.ndarray, "k k"]
    slope: Float[np.ndarray, "d k k"]


def affine_stiffness(
    model: Model,
    free: FreeParameters,
    q: Float[np.ndarray, "t n"],
    rows: tuple[Float[np.ndarray, "m e"], Float[np.ndarray, "m e"], Int[np.ndarray, "m"]],
    gravity: bool,
) -> AffineStiffness | None:
    """The view of a machine with loops, reduced exactly to the degrees of freedom excited by loads and free
    stiffnesses.

    If the free values change a stiffness K_0 by B^T S B, a displacement u under a load g satisfies K_0 u = g - B^T S B
    u: it is a combination of K_0^-1 g and the columns of K_0^-1 B^T for any S.

    Args:
        model: the machine.
        free: the free parameters.
        q: posture of each load case.
        rows: points, efforts and load case of each row, in all elastic degrees of freedom.
        gravity: as in `compliance_matrix`.

    Returns:
        None where the machine has no loops, or its stiffness is not affine in the free values.
    """
    is_affine = {target.leaf for target in free.targets} <= LINEAR_LEAVES | LOSS_FACTORS
    if not model.following or not is_affine or "timoshenko" in model.beam_theory:
        return None
    lower, upper = np.asarray(free.lower_value), np.asarray(free.upper_value)
    middle = 0.5 * (lower + upper)
    at_middle = free.apply(model, middle)
    upper_models = [free.apply(model, np.where(np.arange(free.size) == i, upper, middle)) for i in range(free.size)]
    if gravity or model.springs:
        postures = [_posture(at_middle, upper_models, upper - middle, there, gravity) for there in q]
    else:
        # without the loop constraints, the stiffness is that of coordinates and beams, equal in all postures
        own = [np.asarray(_elastic_stiffness(one, jnp.asarray(q[0]))) for one in (at_middle, *upper_models)]
        changes = [(there - own[0]) / by for there, by in zip(own[1:], upper - middle, strict=True)]
        postures = [_posture_of_changes(at_middle, changes, there) for there in q]
    if not all(np.all(np.linalg.eigvalsh(posture.stiffness) > 0.0) for posture in postures):
        return None
    at_point, effort = (
        [part[rows[2] == t] @ posture.columns for t, posture in enumerate(postures)] for part in rows[:2]
    )
    loaded = [
        np.concatenate([np.unique(loads, axis=0), *map(directions_of_change, posture.slope)])
        for loads, posture in zip(effort, postures, strict=True)
    ]
    size = max(map(len, loaded))
    bases = [_basis(posture.stiffness, parts, size) for posture, parts in zip(postures, loaded, strict=True)]
    base, slope = [], []
    for posture, basis in zip(postures, bases, strict=True):
        slopes = basis.T @ posture.slope @ basis
        slope.append(np.moveaxis(slopes, 0, -1))
        base.append(basis.T @ posture.stiffness @ basis - np.einsum("drs,d->rs", slopes, middle))
    seen = (np.concatenate([p @ basis for p, basis in zip(part, bases, strict=True)]) for part in (at_point, effort))
    return AffineStiffness(*map(jax.device_put, (np.stack(base), np.stack(slope), *seen)))


def _posture(at_middle: Model, upper_models: Sequence[Model], by: np.ndarray, q: np.ndarray, gravity: bool) -> _Posture:
    columns, stiffness = map(np.asarray, _closed_stiffness(at_middle, jnp.asarray(q), gravity))
    there = [np.asarray(_closed_stiffness(model, jnp.asarray(q), gravity)[1]) for model in upper_models]
    slope = np.stack([(k - stiffness) / step for k, step in zip(there, by, strict=True)])
    return _Posture(columns, stiffness, slope)


def _posture_of_changes(at_middle: Model, changes: Sequence[np.ndarray], q: np.ndarray) -> _Posture:
    columns, stiffness = map(np.asarray, _closed_stiffness(at_middle, jnp.asarray(q), False))
    slope = []
    for change in changes:
        acts = np.flatnonzero(change.any(axis=0))
        slope.append(columns[acts].T @ change[np.ix_(acts, acts)] @ columns[acts])
    return _Posture(columns, stiffness, np.stack(slope))


def _basis(stiffness: Float[np.ndarray, "k k"], acting: Float[np.ndarray, "a k"], size: int) -> np.ndarray:
    """Displacements under loads, orthonormal in the stiffness [k, size], completed by arbitrary ones where fewer than
    `size`."""
    factor = np.linalg.cholesky(stiffness)
    padded = np.zeros((len(stiffness), min(size, len(stiffness))))
    if len(acting) < len(stiffness):
        scaled = np.linalg.solve(factor, acting.T)
        padded[:, : len(acting)] = scaled / np.linalg.norm(scaled, axis=0)
    return np.linalg.solve(factor.T, np.linalg.qr(padded)[0])


@compiled
def _closed_stiffness(model: Model, q: Float[Array, "n"], gravity: bool) -> tuple[Array, Array]:
    return closed_stiffness(model, q, gravity)


@compiled
def _elastic_stiffness(model: Model, q: Float[Array, "n"]) -> Array:
    return elastic_stiffness(model, q, gravity=False)[1]


@compiled
def _compliances(base: Array, slope: Array, values: Array) -> Array:
    return jax.vmap(stable_inverse)(base + jnp.einsum("trsd,d->trs", slope, values))
