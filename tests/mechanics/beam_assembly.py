"""Beams of steel between nodes in space, assembled by hand: what beams in machines are compared with."""

import numpy as np


def assembled(nodes, bodies):
    """Mass and stiffness matrix of beams between nodes in space, in absolute displacements of the nodes, by hand.

    Args:
        nodes: number of nodes.
        bodies: (first node, second node, rotation to the element's axes, length) of each element.

    Source: Przemieniecki, Theory of Matrix Structural Analysis, 1968, eq. 5.116 and 11.28 without tilting inertia.
    """
    M, K = np.zeros((2, 6 * nodes, 6 * nodes))
    E, G, A, Iy, Iz, J, rho = 2.1e11, 8e10, 1e-4, 2e-8, 1e-8, 1.5e-8, 7800.0
    for a, b, rotation, L in bodies:
        k, m = np.zeros((2, 12, 12))
        k[np.ix_([0, 6], [0, 6])] = E * A / L * np.array([[1, -1], [-1, 1]])
        k[np.ix_([3, 9], [3, 9])] = G * J / L * np.array([[1, -1], [-1, 1]])
        m[np.ix_([0, 6], [0, 6])] = rho * A * L / 6 * np.array([[2, 1], [1, 2]])
        m[np.ix_([3, 9], [3, 9])] = rho * (Iy + Iz) * L / 6 * np.array([[2, 1], [1, 2]])
        for place, inertia, s in (([1, 5, 7, 11], Iz, 1.0), ([2, 4, 8, 10], Iy, -1.0)):
            turn = np.diag([1.0, s * L, 1.0, s * L])
            k[np.ix_(place, place)] = E * inertia / L**3 * turn @ np.array(
                [[12, 6, -12, 6], [6, 4, -6, 2], [-12, -6, 12, -6], [6, 2, -6, 4]]) @ turn  # fmt: skip
            m[np.ix_(place, place)] = rho * A * L / 420 * turn @ np.array(
                [[156, 22, 54, -13], [22, 4, 13, -3], [54, 13, 156, -22], [-13, -3, -22, 4]]) @ turn  # fmt: skip
        both = np.kron(np.eye(4), rotation)
        place = [*range(6 * a, 6 * a + 6), *range(6 * b, 6 * b + 6)]
        M[np.ix_(place, place)] += both @ m @ both.T
        K[np.ix_(place, place)] += both @ k @ both.T
    return M, K
