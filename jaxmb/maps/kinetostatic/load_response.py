"""Response of a robot to a load at one posture: influence of the complementary stiffness, stiffness by direction."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from jaxmb.machine.build import Model
from jaxmb.mechanics.compliance import (
    cartesian_compliance,
    compliance_matrix,
    elastic_jacobian,
)


def load_influence(
    model: Model, q: Float[Array, "n"], frame: str, wrench: Float[Array, "6"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Indices nu_p and nu_r: how much the complementary stiffness K_C changes the displacement under a wrench.

    With d the displacement by K_X^-1 w, and d0 the same with K_C left out, nu_p is the difference of the lengths of
    their translations over the larger one, and nu_r the largest difference of their rotations about x, y and z.

    Args:
        model: the machine.
        q: posture under the load [n], rad or m.
        frame: where the wrench acts.
        wrench: force then moment on the machine at the frame's origin, ground axes [6].

    Returns:
        nu_p without unit (0 where nothing moves) and nu_r in rad.

    Source: Dumas et al. 2011, eq. 10-11.
    """
    compliance, jacobian = compliance_matrix(model, q), elastic_jacobian(model, q, frame)
    elastic = compliance @ (jacobian.T @ wrench)  # displacement of the joints and springs
    without = jacobian @ elastic
    if model.elastic_nodes:  # they are displaced by the load from the posture
        loaded = cartesian_compliance(model, q, frame, wrench) @ wrench
    else:
        load = loaded_joints_stiffness(model, jacobian, wrench)
        loaded = jacobian @ jnp.linalg.solve(jnp.eye(elastic.size) - compliance @ load, elastic)
    lengths = jnp.stack([jnp.linalg.norm(without[:3]), jnp.linalg.norm(loaded[:3])])
    longest = jnp.max(lengths)
    nu_p = jnp.where(longest > 0.0, jnp.abs(lengths[1] - lengths[0]) / jnp.where(longest > 0.0, longest, 1.0), 0.0)
    return nu_p, jnp.max(jnp.abs(loaded[3:] - without[3:]))


def loaded_joints_stiffness(
    model: Model, jacobian: Float[Array, "6 n"], wrench: Float[Array, "6"]
) -> Float[Array, "n n"]:
    """K_C = d(J^T w)/dq of a machine without virtual springs and beams, in closed form.

    Differentiation takes ten times as long.

    Of two coordinates the one nearer to the ground turns the other's axis and its lever arm to the frame; the farther
    one moves the frame, and with it the lever arm of the nearer one. With the columns (v, a) of J, translation and
    rotation, and the wrench (f, m), the entry [i, j] is f . (a_near x v_far) in both cases, plus m . (a_j x a_i) where
    j is nearer to the ground than i.

    Args:
        model: the machine.
        jacobian: of the loaded frame by all coordinates, `elastic_jacobian`.
        wrench: on that frame.

    Source: Dumas et al. 2011, eq. 6.
    """
    n = len(model.coordinates)
    depth = np.zeros(n, dtype=int)
    for node in model.order:
        depth[node] = 0 if model.parent[node] < 0 else depth[model.parent[node]] + 1
    linear, angular = jacobian[:3].T, jacobian[3:].T
    force = jnp.cross(linear, wrench[:3]) @ angular.T  # [i, j] = f . (a_j x v_i)
    moment = jnp.cross(angular, wrench[3:]) @ angular.T
    nearer = jnp.asarray(depth[None, :] < depth[:, None])  # [i, j]: j is nearer to the ground than i
    return jnp.where(nearer | jnp.eye(n, dtype=bool), force, force.T) + jnp.where(nearer, moment, 0.0)


def translational_compliance(model: Model, q: Float[Array, "n"], frame: str) -> Float[Array, "3 6"]:
    """Translation of a frame's origin for a small wrench on it, J_p C J^T, ground axes: m/N, then m/Nm."""
    jacobian = elastic_jacobian(model, q, frame)
    return jacobian[:3] @ compliance_matrix(model, q) @ jacobian.T


def stiffness_along(compliance: Float[Array, "3 3"], direction: Float[Array, "3"]) -> Float[Array, ""]:
    """Force along a direction u over the displacement along it, 1 / (u^T C u), N/m; other displacements are free.

    Infinite where the direction has no compliance.
    """
    along = direction / jnp.linalg.norm(direction)
    compliant = along @ compliance @ along
    # J C J^T along a direction without compliance is not 0 but the rounding of its largest entry.
    moves = compliant > 1e-14 * jnp.trace(compliance)
    return jnp.where(moves, 1.0 / jnp.where(moves, compliant, 1.0), jnp.inf)


def principal_stiffness(compliance: Float[Array, "3 3"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Stiffness in the softest and in the stiffest direction, N/m: 1 over the largest and the smallest eigenvalue of C.

    Infinite where the direction has no compliance.
    """
    values = jnp.linalg.eigvalsh(compliance)
    moves = values > 1e-14 * values[2]
    stiffness = jnp.where(moves, 1.0 / jnp.where(moves, values, 1.0), jnp.inf)
    return stiffness[2], stiffness[0]
