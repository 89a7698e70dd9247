"""Response of a robot to a load at one posture: influence of the complementary stiffness, directional stiffness."""

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
    """Indices nu_p and nu_r of the influence of the complementary stiffness K_C on the displacement under a wrench.

    With d = K_X^-1 w and d0 the displacement without K_C, nu_p is the difference of the lengths of their translations
    over the larger one, and nu_r the largest difference of their rotations about x, y and z.

    Args:
        model: the machine.
        q: posture under the load [n], rad or m.
        frame: frame of the wrench.
        wrench: force then moment on the machine at the frame's origin, ground axes [6].

    Returns:
        nu_p, dimensionless (0 without displacement), and nu_r in rad.

    Source: Dumas et al. 2011, eq. 10-11.
    """
    compliance, jacobian = compliance_matrix(model, q), elastic_jacobian(model, q, frame)
    elastic = compliance @ (jacobian.T @ wrench)  # displacement of the joints and springs
    without = jacobian @ elastic
    if model.elastic_nodes:  # displaced by the load relative to the posture
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
    """K_C = d(J^T w)/dq of a machine without virtual springs and beams, in closed form (ten times as fast as automatic
    differentiation).

    Of two coordinates the proximal one rotates the distal one's axis and lever arm; the distal one moves the frame and
    with it the lever arm of the proximal one. With the columns (v, a) of J, translation and rotation, and the wrench
    (f, m), the entry [i, j] is f . (a_proximal x v_distal) in both cases, plus m . (a_j x a_i) if j is proximal to i.

    Args:
        model: the machine.
        jacobian: of the loaded frame by all coordinates, `elastic_jacobian`.
        wrench: on that frame, ground axes [6].

    Returns:
        K_C [n, n].

    Source: Dumas et al. 2011, eq. 6.
    """
    n = len(model.coordinates)
    depth = np.zeros(n, dtype=int)
    for node in model.order:
        depth[node] = 0 if model.parent[node] < 0 else depth[model.parent[node]] + 1
    linear, angular = jacobian[:3].T, jacobian[3:].T
    force = jnp.cross(linear, wrench[:3]) @ angular.T  # [i, j] = f . (a_j x v_i)
    moment = jnp.cross(angular, wrench[3:]) @ angular.T
    proximal = jnp.asarray(depth[None, :] < depth[:, None])  # [i, j]: j is closer to the ground than i
    return jnp.where(proximal | jnp.eye(n, dtype=bool), force, force.T) + jnp.where(proximal, moment, 0.0)


def translational_compliance(model: Model, q: Float[Array, "n"], frame: str) -> Float[Array, "3 6"]:
    """Translation of a frame's origin per unit wrench on it, J_p C J^T, ground axes: m/N, then m/Nm."""
    jacobian = elastic_jacobian(model, q, frame)
    return jacobian[:3] @ compliance_matrix(model, q) @ jacobian.T


def stiffness_along(compliance: Float[Array, "3 3"], direction: Float[Array, "3"]) -> Float[Array, ""]:
    """Stiffness 1 / (u^T C u) along a direction u, N/m, with the other displacements unconstrained.

    Infinite for a direction without compliance.
    """
    along = direction / jnp.linalg.norm(direction)
    compliant = along @ compliance @ along
    # Along a rigid direction J C J^T is not 0 but of the order of the rounding of its largest entry.
    is_compliant = compliant > 1e-14 * jnp.trace(compliance)
    return jnp.where(is_compliant, 1.0 / jnp.where(is_compliant, compliant, 1.0), jnp.inf)


def principal_stiffness(compliance: Float[Array, "3 3"]) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Stiffness in the softest and in the stiffest direction, N/m: inverses of the extreme eigenvalues of C.

    Infinite for a direction without compliance.
    """
    values = jnp.linalg.eigvalsh(compliance)
    is_compliant = values > 1e-14 * values[2]
    stiffness = jnp.where(is_compliant, 1.0 / jnp.where(is_compliant, values, 1.0), jnp.inf)
    return stiffness[2], stiffness[0]
