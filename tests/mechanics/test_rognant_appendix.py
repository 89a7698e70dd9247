"""The equations printed by Rognant et al. 2010 (eq. 1-27, 35-38, 43-50), against a Lagrangian and against jaxmb.

They are written here in NumPy as they stand, for an arm of three joints and four beams, in the paper's coordinates:
joint angles q, and displacements u of both nodes of each beam, in ground axes, on top of the rigid arm. First they are
held against Lagrange's equations of the paper's own kinematics, p = T r + T N A u and eq. 20, 23 and 25, to the first
order in u and u'. Eq. 36, 43, 44, 45 and 47 hold as printed; the others so:

| eq. | in the text of the paper | what holds |
|---|---|---|
| before 6 | dPy' = dPhi_y, dPz' = dPhi_z | dPy' = dPhi_z, dPz' = -dPhi_y, as the polynomials have it |
| 17, 18 | A is made of the rotations of eq. 17 | of their transposes: A turns u from ground axes to the body's |
| 23, 35, 48 | I_x integrated over the mass | I_x / S, whose integral is rho I_x dx |
| 25, 49, 50 | g is the gravity field | g is its opposite |
| 37 | no I_k | + I_k on the diagonal, which eq. 23 has |
| 38 | no torsion | + u^T Lambda_k^T N^tT I_x/S N^t A |
| 46 | no torsion | + A^T N^tT I_x/S N^t (sum Omega q' q') u |
| 46, first line | A^T N^T T^T (sum V q' q')^T T N A' | A^T N^T T^T (sum V q' q') N A |
| 48 | A^T N^t I_x N^t A' u' | A^T N^tT I_x N^t A' u', as the sizes ask for |

The entries of N and B cannot be read in the text at hand: they are Hermite's.

Eq. 20 leaves out that sections turn about the beam's axis with the rigid arm, for which eq. 23 has I_k alone: all of it
for beams that are parallel to the only joint's axis that turns them. LEFT_OUT is the rest of that energy; it is added
where jaxmb is compared. jaxmb has the displacement e of each element's end against its beginning, so that u = S(q) e to
the first order. Exact are then all rows at e = 0, all rows of what is linear in e' and e'', and of what is linear in e
the rows of q.
"""

from functools import cache
from itertools import product
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.polynomial.polynomial import polyder, polyval
from scipy.spatial.transform import Rotation

import jaxmb

TABLE = np.array([[0.2, 0.1, 0.3, 0.15, 0.25], [0.4, 0.5, -0.9, 0.3, 0.1], [-0.3, 0.2, 0.8, 0.4, -0.12]])
"""gamma, b, alpha, d, r of each joint, whose angle is q (Table I)."""
YIELD_AXIS, YIELD = np.array([0.6, 0.0, 0.8]), 3e3
"""Joint 2 also gives way about this axis of body 2, Nm/rad: K_l of eq. 24."""
GRAVITY = np.array([0.7, -1.1, -9.5])
Q = np.array([0.4, -0.9, 0.7])
QD = np.array([1.3, -0.7, 2.1])
QDD = np.array([-2.0, 5.0, 3.0])
RIGID, SMALL = np.array([0, 1, 3]), np.array([2, *range(4, 28)])
"""Coordinates of jaxmb: q1, q2, the yielding of joint 2, q3, six of each beam."""


def turned(axis, angle, order=0, xp=np):
    """Rotation matrix about z or x, or its derivative by the angle of this order."""
    c, s = xp.cos(angle + 0.5 * np.pi * order), xp.sin(angle + 0.5 * np.pi * order)
    rest = float(order == 0)
    about_z, about_x = ((c, -s, 0, 0), (s, c, 0, 0), (0, 0, rest, 0)), ((rest, 0, 0, 0), (0, c, -s, 0), (0, s, c, 0))
    rows = about_z if axis == "z" else about_x
    return xp.array([*rows, (0, 0, 0, rest)])


def shifted(x=0.0, y=0.0, z=0.0):
    matrix = np.eye(4)
    matrix[:3, 3] = x, y, z
    return matrix


def before_turn(joint):
    """Eq. 1 without rot(z, theta): trans(z, r) may stand before it."""
    gamma, b, alpha, d, r = TABLE[joint]
    return turned("z", gamma) @ shifted(z=b) @ turned("x", alpha) @ shifted(x=d) @ shifted(z=r)


def beam(body, begin, end, roll, E, G, density, area, Iy, Iz):
    """A beam of a body between two places in it; its axes by eq. 13."""
    along = np.subtract(end, begin)
    length = np.linalg.norm(along)
    yaw, pitch = np.arctan2(along[1], along[0]), -np.arcsin(along[2] / length)
    pose = shifted(*begin)
    pose[:3, :3] = Rotation.from_euler("ZYX", [yaw, pitch, roll]).as_matrix()
    return SimpleNamespace(body=body, pose=pose, length=length, E=E, G=G, rho=density, S=area, Iy=Iy, Iz=Iz, Ix=Iy + Iz)


SECOND, THIRD = before_turn(1)[:3, 3], before_turn(2)[:3, 3]
BEAMS = (
    beam(0, np.zeros(3), SECOND - [0, 0, 0.3], 0.4, 2.1e11, 8.0e10, 7800.0, 1.0e-3, 2e-7, 1e-7),
    beam(0, SECOND - [0, 0, 0.3], SECOND, -0.7, 7.0e10, 2.6e10, 2700.0, 2.0e-3, 3e-7, 5e-7),
    beam(1, np.zeros(3), THIRD, 1.1, 7.0e10, 2.6e10, 2700.0, 1.5e-3, 1e-7, 4e-7),
    beam(2, np.zeros(3), [0.3, -0.1, 0.2], 0.2, 1.1e11, 4.0e10, 4500.0, 6.0e-4, 5e-8, 2e-8),
)
SIZE = 12 * len(BEAMS)
LENGTH = np.array([b.length for b in BEAMS])
I_K = np.array([BEAMS[1].rho * BEAMS[1].Ix * BEAMS[1].length, 0.0, 0.0])
"""Of eq. 23: the second beam is parallel to the axis of joint 1."""
PLACES, WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(6))


def shapes(xi, length):
    """N of eq. 6 (three rows), N^t of eq. 8 and B of eq. 10 at one place of a beam, in its own axes."""
    N, B = np.zeros((3, 12)), np.zeros((4, 12))
    a, b = 1 - 3 * xi**2 + 2 * xi**3, 3 * xi**2 - 2 * xi**3
    c, d = length * (xi - 2 * xi**2 + xi**3), length * (xi**3 - xi**2)
    N[0, [0, 6]], N[1, [1, 5, 7, 11]], N[2, [2, 4, 8, 10]] = (1 - xi, xi), (a, c, b, d), (a, -c, b, -d)
    x, long = xi * length, length
    a, b = -6 / long**2 + 12 * x / long**3, 6 / long**2 - 12 * x / long**3
    c, d = -4 / long + 6 * x / long**2, -2 / long + 6 * x / long**2
    B[0, [0, 6]], B[1, [1, 5, 7, 11]], B[2, [2, 4, 8, 10]] = (-1 / long, 1 / long), (a, c, b, d), (a, -c, b, -d)
    B[3, [3, 9]] = -1 / long, 1 / long
    Nt = np.zeros((1, 12))
    Nt[0, [3, 9]] = 1 - xi, xi
    return N, Nt, B


def chain(body, q, orders):
    """0T of a body, its joints differentiated by their angles as often as given: T, U_k and V_kl of eq. 26."""
    if any(orders[body + 1 :]):
        return np.zeros((4, 4))
    T = np.eye(4)
    for j in range(body + 1):
        T = T @ before_turn(j) @ turned("z", q[j], orders[j])
    return T


def blocks(T):
    """A, Lambda_k and Omega_kl of the same derivative of T."""
    return np.kron(np.eye(4), T[:3, :3].T)


FIXES = {"section": ("35", "48"), "gravity": ("49", "50"), "I_k": ("37",), "torsion": ("38", "46"), "line": ("46",)}
"""What has to be put right, and the equations that do not hold otherwise."""


def printed(q, qd, u, ud, gravity, fixes=frozenset(FIXES)):
    """The appendix, by the number of each equation, integrated over the arm; as printed but for these fixes.

    "37" to "50" are of the first order in u and ud.
    """
    n = len(q)
    found = {"35": np.zeros((SIZE, SIZE)), "36": np.zeros((SIZE, SIZE)), "37": np.zeros((n, n))}
    found |= {"38": np.zeros((n, SIZE))} | {name: np.zeros(n) for name in ("43", "45", "47", "49")}
    found |= {name: np.zeros(SIZE) for name in ("44", "46", "48", "50")}
    unit = np.eye(n, dtype=int)
    g = np.append(-gravity if "gravity" in fixes else gravity, 0.0)
    for e, b in enumerate(BEAMS):
        T = chain(b.body, q, 0 * unit[0])
        U = [chain(b.body, q, k) for k in unit]
        V = [[chain(b.body, q, k + j) for j in unit] for k in unit]
        A, Lam, Om = blocks(T), [blocks(X) for X in U], [[blocks(X) for X in row] for row in V]
        Td, Ad = sum(v * X for v, X in zip(qd, U, strict=True)), sum(v * X for v, X in zip(qd, Lam, strict=True))
        VV = sum(qd[i] * qd[j] * V[i][j] for i, j in product(range(n), repeat=2))
        OO = sum(qd[i] * qd[j] * Om[i][j] for i, j in product(range(n), repeat=2))
        at = slice(12 * e, 12 * e + 12)
        v, vd = u[at], ud[at]
        Ru = np.kron(np.eye(4), b.pose[:3, :3].T)
        E = np.diag([b.E * b.S, b.E * b.Iz, b.E * b.Iy, b.G * b.Ix])
        Ix = b.Ix / b.S if "section" in fixes else b.Ix
        added = b.Ix / b.S if "torsion" in fixes else 0.0
        for xi, weight in zip(PLACES + 0.5, WEIGHTS, strict=True):
            dx = weight * b.length
            dm = b.rho * b.S * dx
            N, Nt, B = shapes(xi, b.length)
            N, Nt, B = b.pose @ np.vstack([N, np.zeros(12)]) @ Ru, Nt @ Ru, B @ Ru
            r = b.pose @ [xi * b.length, 0.0, 0.0, 1.0]
            found["35"][at, at] += dm * (A.T @ N.T @ N @ A + A.T @ Nt.T * Ix @ Nt @ A)
            found["36"][at, at] += dx * (A.T @ B.T @ E @ B @ A)
            found["44"][at] += dm * (A.T @ N.T @ T.T @ VV @ r)
            first = A.T @ N.T @ T.T @ VV @ N @ A if "line" in fixes else A.T @ N.T @ T.T @ VV.T @ T @ N @ Ad
            found["46"][at] += dm * ((first + A.T @ N.T @ T.T @ Td @ N @ Ad - A.T @ N.T @ Td.T @ T @ N @ Ad
                                      + A.T @ N.T @ N @ OO + A.T @ Nt.T * added @ Nt @ OO) @ v)  # fmt: skip
            found["48"][at] += dm * ((A.T @ N.T @ T.T @ Td @ N @ A - A.T @ N.T @ Td.T @ T @ N @ A
                                      + 2 * A.T @ N.T @ N @ Ad + 2 * A.T @ Nt.T * Ix @ Nt @ Ad) @ vd)  # fmt: skip
            found["50"][at] += dm * (A.T @ N.T @ T.T @ g)
            for k in range(n):
                for l in range(n):  # noqa: E741
                    found["37"][k, l] += dm * (
                        r @ U[k].T @ U[l] @ r + r @ U[k].T @ U[l] @ N @ A @ v + r @ U[l].T @ U[k] @ N @ A @ v
                        + r @ U[k].T @ T @ N @ Lam[l] @ v + r @ U[l].T @ T @ N @ Lam[k] @ v)  # fmt: skip
                found["38"][k, at] += dm * (
                    r @ U[k].T @ T @ N @ A + v @ (Lam[k].T @ N.T @ N @ A + A.T @ N.T @ U[k].T @ T @ N @ A
                                                  + Lam[k].T @ Nt.T * added @ Nt @ A))  # fmt: skip
                found["43"][k] += dm * (r @ U[k].T @ VV @ r)
                found["45"][k] += dm * (
                    (r @ U[k].T @ VV @ N @ A + 2 * r @ U[k].T @ Td @ N @ Ad + r @ VV.T @ U[k] @ N @ A
                     + r @ U[k].T @ T @ N @ OO + r @ VV.T @ T @ N @ Lam[k]) @ v)  # fmt: skip
                found["47"][k] += dm * 2 * (r @ U[k].T @ Td @ N @ A + r @ U[k].T @ T @ N @ Ad) @ vd
                found["49"][k] += dm * (g @ U[k] @ r + g @ U[k] @ N @ A @ v + g @ T @ N @ Lam[k] @ v)
    found["37"] += np.diag(I_K) if "I_k" in fixes else 0.0
    axis = chain(1, q, 0 * unit[0])[:3, :3] @ YIELD_AXIS
    between, rows = np.concatenate([-axis, axis]), np.array([21, 22, 23, 27, 28, 29])
    found["36"][np.ix_(rows, rows)] += YIELD * np.outer(between, between)  # last node of body 1, first of body 2
    return found


def effort(q, u, qd, ud, qdd, udd, gravity):
    """Left side of eq. 27 and the forces of its right side: of q, then of u."""
    f = printed(q, qd, u, ud, gravity)
    of_q = f["37"] @ qdd + f["38"] @ udd + f["43"] + f["45"] + f["47"] + f["49"]
    of_u = f["38"].T @ qdd + f["35"] @ udd + f["44"] + f["46"] + f["48"] + f["50"] + f["36"] @ u
    return np.concatenate([of_q, of_u])


def rigid_poses(q):
    """0T of each body, in JAX."""
    poses, T = [], jnp.eye(4)
    for j in range(3):
        T = T @ before_turn(j) @ turned("z", q[j], xp=jnp)
        poses.append(T)
    return poses


def cubics(length, order):
    """Derivatives, at places of a beam, of the cubics that are 1 in one value or slope at its ends, else 0 there."""
    x = length
    values_and_slopes = np.array([[1, 0, 0, 0], [1, x, x**2, x**3], [0, 1, 0, 0], [0, 1, 2 * x, 3 * x**2]])
    return polyval((PLACES + 0.5) * length, polyder(np.linalg.inv(values_and_slopes), order)).T


VALUE, SLOPE, BEND = (np.array([cubics(length, order) for length in LENGTH]) for order in range(3))
ALONG = np.stack([0.5 - PLACES, 0.5 + PLACES])


def sections(w):
    """At places of each beam: position, small turn about the beam's axis, axes of the section, strains of eq. 9."""
    poses = jnp.stack(rigid_poses(w[:3]))[np.array([b.body for b in BEAMS])] @ np.array([b.pose for b in BEAMS])
    axes, local = poses[:, :3, :3], (w[3:].reshape(-1, 4, 3) @ poses[:, :3, :3]).reshape(-1, 12)
    across = local[:, np.array([[1, 7, 5, 11], [2, 8, 4, 10]])] * np.array([[1, 1, 1, 1], [1, 1, -1, -1]])
    moved, slope, bent = (jnp.einsum("bcf,bpf->bpc", across, shape) for shape in (VALUE, SLOPE, BEND))
    axial, turn = local[:, [0, 6]] @ ALONG, local[:, [3, 9]] @ ALONG
    stretch, twist = ((local[:, i + 6] - local[:, i]) / LENGTH for i in (0, 3))
    inside = jnp.stack([LENGTH[:, None] * (PLACES + 0.5) + axial, moved[..., 0], moved[..., 1]], axis=2)
    phi = jnp.stack([turn, -slope[..., 1], slope[..., 0]], axis=2)
    position = poses[:, None, :3, 3] + jnp.einsum("bxy,bpy->bpx", axes, inside)
    tilted = axes[:, None] @ (jnp.eye(3) + jnp.swapaxes(jnp.cross(phi[..., None, :], jnp.eye(3)), -1, -2))
    strains = [jnp.broadcast_to(stretch[:, None], turn.shape), bent[..., 0], bent[..., 1]]
    return position, turn, tilted, jnp.stack([*strains, jnp.broadcast_to(twist[:, None], turn.shape)], axis=2)


INERTIA, TWISTING, WEIGHT, STRAIN, LEFT_OUT = np.eye(5)
"""Shares of the energies below in a Lagrangian."""


def energies(w, wd):
    """Of eq. 23 (translation, then torsion with I_x / S and I_k), less those of gravity and of strain by eq. 25; then
    what eq. 23 leaves out: half the trace of R' P R'^T of sections with inertia about their axis only, less torsion.
    """
    (position, _, _, strains), (velocity, twist, axes, _) = jax.jvp(sections, (w,), (wd,))
    dx = LENGTH[:, None] * WEIGHTS
    mass = dx * np.array([[b.rho * b.S] for b in BEAMS])
    polar = dx * np.array([[b.rho * b.Ix] for b in BEAMS])
    rigidity = dx[:, :, None] * np.array([[[b.E * b.S, b.E * b.Iz, b.E * b.Iy, b.G * b.Ix]] for b in BEAMS])
    between = w[3:].reshape(-1, 6)[4, 3:] - w[3:].reshape(-1, 6)[3, 3:]
    twisting = 0.5 * (jnp.sum(polar * twist**2) + jnp.sum(I_K * wd[:3] ** 2))
    turning = 0.5 * jnp.sum(polar * (axes**2 @ np.array([-0.5, 0.5, 0.5])).sum(axis=2))
    strain = jnp.sum(rigidity * strains**2) + YIELD * (between @ rigid_poses(w[:3])[1][:3, :3] @ YIELD_AXIS) ** 2
    inertia = 0.5 * jnp.sum(mass[:, :, None] * velocity**2)
    return jnp.array([inertia, twisting, jnp.sum(mass * (position @ GRAVITY)), -0.5 * strain, turning - twisting])


@jax.jit
def lagrange(shares, state):
    """Lagrange's equations of some of the energies, for w, its rates and accelerations."""

    def of(w, wd):
        return energies(w, wd) @ shares

    w, wd, wdd = state
    return jax.jvp(jax.grad(of, 1), (w, wd), (wd, wdd))[1] - jax.grad(of)(w, wd)


def change(function, state, by):
    """What is linear in `by` of a function that has no higher powers of it than the second."""
    return 0.5 * (function(state + by) - function(state - by))


NONE, STILL = np.zeros(SIZE), np.zeros(3 + SIZE)
U, UD = np.random.default_rng(0).normal(size=(2, SIZE))
AT, MOVING, ELASTIC, RATE = (np.concatenate(parts) for parts in ((Q, NONE), (QD, NONE), (0 * Q, U), (0 * Q, UD)))
REST = np.array([AT, STILL, STILL])


def along(place, direction):
    by = np.zeros((3, STILL.size))
    by[place] = direction
    return by


def columns(shares, state, place):
    """Lagrange's equations for units of coordinates (place 0) or accelerations (2): derivatives, where linear."""
    return np.array([lagrange(shares, state + along(place, unit)) for unit in np.eye(STILL.size)])


@cache
def exact():
    """What the Lagrangian of the paper's kinematics has in place of each equation, to the first order in u and u'."""
    moving = np.array([AT, MOVING, STILL])

    def moves(state):
        return lagrange(INERTIA + TWISTING, state)

    def weight(state):
        return lagrange(WEIGHT, state)

    M, more, less = (columns(INERTIA + TWISTING, REST + along(0, by), 2) for by in (STILL, ELASTIC, -ELASTIC))
    M, K = M + 0.5 * (more - less), columns(STRAIN, REST, 0)
    bias, of_u, of_rate = moves(moving), change(moves, moving, along(0, ELASTIC)), change(moves, moving, along(1, RATE))
    listed = {"35": M[3:, 3:], "36": K[3:, 3:], "37": M[:3, :3], "38": M[:3, 3:], "43": bias[:3], "44": bias[3:]}
    listed |= {"45": of_u[:3], "46": of_u[3:], "47": of_rate[:3], "48": of_rate[3:]}
    return listed | {"49": (weight(REST) + change(weight, REST, along(0, ELASTIC)))[:3], "50": weight(REST)[3:]}


def holds(fixes=frozenset(FIXES)):
    """Numbers of the equations that are the Lagrangian's."""
    values, expected = printed(Q, QD, U, UD, GRAVITY, fixes), exact()
    return {
        number
        for number, value in expected.items()
        if np.allclose(values[number], value, rtol=0.0, atol=1e-12 * np.abs(value).max())
    }


def test_printed_equations_against_the_lagrangian():
    assert holds() == set(exact())
    assert holds(frozenset()) == {"36", "43", "44", "45", "47"}


@pytest.mark.parametrize("fix", FIXES)
def test_each_misprint(fix):
    assert set(exact()) - holds(frozenset(FIXES) - {fix}) == set(FIXES[fix])


@cache
def machine(*gravity):
    """The same arm for jaxmb, each body standing at the end of the beam before it."""

    def origin(pose):
        return {"xyz": pose[:3, 3].tolist(), "rpy": Rotation.from_matrix(pose[:3, :3]).as_euler("xyz").tolist()}

    def begins(k):
        b = BEAMS[k]
        section = {"area": b.S, "second_moment_y": b.Iy, "second_moment_z": b.Iz, "torsion_constant": b.Ix}
        material = {"young_modulus": b.E, "shear_modulus": b.G, "density": b.rho}
        return {"name": f"beam{k}", "length": b.length, "elements": 1} | section | material

    ends = [b.pose @ shifted(b.length) for b in BEAMS]
    gives = {"name": "yield", "axis": YIELD_AXIS.tolist(), "stiffness": YIELD}
    bodies = [
        {"name": "body0", "origin": origin(before_turn(0)), "joint": [{"name": "q1"}]},
        {"name": "body1", "parent": "beam1", "origin": origin(np.linalg.solve(ends[1], before_turn(1))),
         "joint": [{"name": "q2"}, gives]},
        {"name": "body2", "parent": "beam2", "origin": origin(np.linalg.solve(ends[2], before_turn(2))),
         "joint": [{"name": "q3"}]},
    ]  # fmt: skip
    carried = [("body0", BEAMS[0].pose), ("beam0", np.linalg.solve(ends[0], BEAMS[1].pose)),
               ("body1", BEAMS[2].pose), ("body2", BEAMS[3].pose)]  # fmt: skip
    beams = [begins(k) | {"body": body, "origin": origin(pose)} for k, (body, pose) in enumerate(carried)]
    parts = {"name": "arm", "gravity": gravity, "body": bodies, "beam": beams}
    return jaxmb.build_model(jaxmb.Machine.model_validate(parts))


def placed(x):
    """The paper's q and u, for jaxmb's coordinates of small deflections: u = S(q) e."""
    q, small = x[RIGID], x[SMALL]
    bodies = jnp.stack(rigid_poses(q))
    poses = bodies[np.array([b.body for b in BEAMS])] @ np.array([b.pose for b in BEAMS])
    begin = poses[:, :3, 3]
    nodes = jnp.stack([begin, begin + LENGTH[:, None] * poses[:, :3, 0]], axis=1).reshape(-1, 3)
    own = jnp.einsum("bxy,bcy->bcx", poses[:, :3, :3], small[1:].reshape(-1, 2, 3))
    yielded = jnp.stack([jnp.zeros(3), bodies[1, :3, :3] @ YIELD_AXIS * small[0]])
    displaced = jnp.concatenate([own, yielded[None]])
    first = np.array([1, 3, 5, 7, 4])  # of the nodes that each of them carries
    carried = (np.arange(8)[:, None] >= first).astype(float)
    levers = nodes[:, None] - nodes[first]
    shift = displaced[:, 0] + jnp.cross(displaced[:, 1], levers)
    u = jnp.stack([jnp.einsum("nk,nkx->nx", carried, shift), carried @ displaced[:, 1]], axis=1)
    return jnp.concatenate([q, u.ravel()])


@jax.jit
def motion(x, xd, xdd):
    """The paper's coordinates, their rates and accelerations, and the derivatives of the first."""

    def rate(x, xd):
        return jax.jvp(placed, (x,), (xd,))[1]

    return placed(x), rate(x, xd), jax.jvp(rate, (x, xd), (xd, xdd))[1], jax.jacfwd(placed)(x)


def predicted(rates, by, gravity):
    """Effort in jaxmb's coordinates by the paper's equations: of the rigid arm's motion, and what is linear in `by`.

    Args:
        rates: velocities and accelerations of the joints.
        by: small deflections, their rates and accelerations.
        gravity: m/s^2.
    """
    rigid, small = np.zeros((2, 3, 28))
    rigid[:, RIGID], small[:, SMALL] = (Q, *rates), by
    *base, J = (np.asarray(part) for part in motion(*rigid))
    *moved, J_moved = (np.asarray(part) for part in motion(*(rigid + small)))
    base, moved = np.array(base), np.array(moved)

    def by_paper(state):
        return effort(*(part for row in state for part in (row[:3], row[3:])), gravity) + lagrange(LEFT_OUT, state)

    full = by_paper(base)
    return J.T @ full, J.T @ change(by_paper, base, moved - base) + (J_moved - J).T @ full


@jax.jit
def inverse_dynamics(model, x, by):
    rest = jnp.zeros(28)
    return jax.jvp(lambda x: jaxmb.inverse_dynamics(model, *x, rest), (x,), (by,))


def found(rates, by, gravity):
    """The same by jaxmb."""
    x, small = np.zeros((2, 3, 28))
    x[:, RIGID], small[:, SMALL] = (Q, *rates), by
    return inverse_dynamics(machine(*gravity), x, small)


def same(one, other, scale=None):
    scale = np.abs(other).max() if scale is None else scale
    assert np.all(np.abs(one - np.asarray(other)) <= 1e-12 * scale)


HELD, NO_DEFLECTION, NO_GRAVITY = (0 * Q, 0 * Q), np.zeros(25), np.zeros(3)
SOME = np.random.default_rng(1).normal(size=(3, 25))


def test_masses_and_stiffness_of_jaxmb():
    x = np.zeros(28)
    x[RIGID] = Q
    J = np.asarray(motion(x, 0 * x, 0 * x)[3])
    f = printed(Q, 0 * Q, NONE, NONE, NO_GRAVITY)
    M = J.T @ (np.block([[f["37"], f["38"]], [f["38"].T, f["35"]]]) + columns(LEFT_OUT, REST, 2)) @ J
    same(M, jaxmb.mass_matrix(machine(*NO_GRAVITY), x), np.sqrt(np.outer(np.diag(M), np.diag(M))))
    units = np.eye(25)
    K = np.array([found(HELD, (unit, NO_DEFLECTION, NO_DEFLECTION), NO_GRAVITY)[1] for unit in units])
    expected = (J[3:].T @ f["36"] @ J[3:])[SMALL]
    same(expected[:, SMALL], K[:, SMALL], np.sqrt(np.outer(*2 * [np.diag(K[:, SMALL])])))
    assert not np.any(K[:, RIGID])


@pytest.mark.parametrize(("rates", "gravity"), [(HELD, GRAVITY), ((QD, 0 * Q), NO_GRAVITY), ((QD, QDD), GRAVITY)])
def test_gravity_and_coriolis_forces_of_jaxmb(rates, gravity):
    """All rows without deflections and for their rates, those of the joints for the deflections themselves."""
    for rows, by in (
        (slice(None), (NO_DEFLECTION, SOME[1], SOME[2])),
        (RIGID, (SOME[0], NO_DEFLECTION, NO_DEFLECTION)),
    ):
        (one, one_by), (other, other_by) = predicted(rates, by, gravity), found(rates, by, gravity)
        same(one, other)
        same(one_by[rows], np.asarray(other_by)[rows])
