"""What a load does to a robot at a posture, in single numbers: influence of K_C, stiffness by direction, deflection."""

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
        nu_p [1] (0 where nothing moves) and nu_r [rad].

    Source: Dumas et al. 2011, eq. 10-11.
    """
    compliance, jacobian = compliance_matrix(model, q), elastic_jacobian(model, q, frame)
    given_way = compliance @ (jacobian.T @ wrench)
    without = jacobian @ given_way
    if model.virtual_springs:  # which give way to the load from the posture
        loaded = cartesian_compliance(model, q, frame, wrench) @ wrench
    else:
        load = loaded_joints_stiffness(model, jacobian, wrench)
        loaded = jacobian @ jnp.linalg.solve(jnp.eye(given_way.size) - compliance @ load, given_way)
    lengths = jnp.stack([jnp.linalg.norm(without[:3]), jnp.linalg.norm(loaded[:3])])
    longest = jnp.max(lengths)
    nu_p = jnp.where(longest > 0.0, jnp.abs(lengths[1] - lengths[0]) / jnp.where(longest > 0.0, longest, 1.0), 0.0)
    return nu_p, jnp.max(jnp.abs(loaded[3:] - without[3:]))


def loaded_joints_stiffness(
    model: Model, jacobian: Float[Array, "6 n"], wrench: Float[Array, "6"]
) -> Float[Array, "n n"]:
    """K_C = d(J^T w)/dq of a machine without virtual springs, in closed form: the derivative costs ten times as much.

    Of two coordinates the one nearer to the ground turns both the other's axis and its arm to the frame; the farther
    one moves the frame, and with it the arm of the nearer one. With columns (v, a) of J that is f . (a_near x v_far)
    either way, and m . (a_j x a_i) where j is the nearer one.

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
    """Force along a direction for a motion along it, 1 / (u^T C u), N/m: it may move sideways, and turn.

    Infinite where nothing gives way.
    """
    along = direction / jnp.linalg.norm(direction)
    given = along @ compliance @ along
    # J C J^T of a direction without compliance is rounding of the largest one.
    moves = given > 1e-14 * jnp.trace(compliance)
    return jnp.where(moves, 1.0 / jnp.where(moves, given, 1.0), jnp.inf)


def principal_stiffness(compliance: Float[Array, "3 3"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Stiffness in the softest and the stiffest direction, N/m: 1 over the eigenvalues of C; infinite where rigid."""
    values = jnp.linalg.eigvalsh(compliance)
    moves = values > 1e-14 * values[2]
    stiffness = jnp.where(moves, 1.0 / jnp.where(moves, values, 1.0), jnp.inf)
    return stiffness[2], stiffness[0]
