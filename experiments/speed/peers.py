"""What the peers of the speed benchmark fit: the FRFs of Huynh et al. 2020 and their derivatives, in NumPy alone.

Nothing here is imported from jaxmb: these are the times its own have to be compared with.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.signal import find_peaks

Real = NDArray[np.float64]
Complex = NDArray[np.complex128]
Machine = Literal["kuka-kr90", "manipulator-3r"]

GRAVITY = np.array([0.0, 0.0, -9.81])
POSTURE = np.deg2rad([0.0, 70.0, -100.0])
LINK_OFFSET = np.array([[0.0, 0.0, 0.0], [0.35, 0.0, 0.0], [1.35, 0.0, 0.0]])
TOOL_OFFSET = np.array([1.566, 0.042, 0.005])
MASS = np.array([511.726, 249.53, 222.659])

# Tables 2 and 3: centres of mass in the joint frame; xx, yy, zz, xy, xz, yz about them in the axes of the link.
CENTER = {
    "manipulator-3r": [[-0.018, 0.002, -0.21], [0.532, -0.007, 0.248], [0.423, 0.018, -0.018]],
    "kuka-kr90": [[-0.02, 0.0, -0.21], [0.53, 0.0, 0.25], [0.42, 0.02, -0.02]],
}
INERTIA = {
    "manipulator-3r": [
        [19.45, 33.893, 30.242, 2.274, 0.938, 0.373],
        [5.014, 57.621, 56.853, -1.058, 5.498, -0.069],
        [5.882, 49.927, 48.9, -1.372, 0.074, -1.202],
    ],
    "kuka-kr90": [
        [15.45, 30.90, 30.24, 1.87, 0.94, 0.37],
        [80.01, 150.62, 150.85, -1.06, 0.5, -0.07],
        [45.88, 125.93, 125.90, -1.37, 0.07, -1.20],
    ],
}
# Stiffness, then damping. The paper gives no bounds for the 3R manipulator ("a reasonable range"): these are ours.
TRUTH = {
    "manipulator-3r": [2.0e6, 3.0e6, 1.55e6, 1.2e3, 1.545e3, 0.34e3],
    "kuka-kr90": [
        *(5.0e6, 6.1e6, 11.9e6, 6.9e6, 11.8e6, 8.1e6, 2.8e6, 5.2e6, 12.0e6),
        *(20.0, 40.0, 3100.0, 2400.0, 40.0, 9400.0, 200.0, 9200.0, 80.0),
    ],
}
LOWER = {"manipulator-3r": [5.5e5] * 3 + [1.0] * 3, "kuka-kr90": [5.5e5] * 9 + [1.0] * 9}
UPPER = {
    "manipulator-3r": [1e7] * 3 + [1e4] * 3,
    "kuka-kr90": [5e6, 5e7, 5e7, 8e6, 4e7, 4e7, 4e6, 1e8, 1e8] + [1e4] * 9,
}
PEAK_WEIGHT = {"manipulator-3r": 50.0, "kuka-kr90": 80.0}
OTHER_WEIGHT = 0.5
PEAK_HALF_WIDTH = 2
# Modelled FRFs are symmetric: six of the nine say everything, the off-diagonal ones with the weight of both.
ROW, COLUMN = np.triu_indices(3)


@dataclass(frozen=True, eq=False)
class Problem:
    """FRFs at the tool and the tangent matrices of the machine they belong to; parameters are stiffness, damping."""

    M: Real
    """Mass [n, n]."""
    K0: Real
    """Stiffness by gravity alone [n, n]."""
    J: Real
    """Translation of the tool [3, n], in its own axes."""
    frequency_hz: Real
    H_true: Complex
    """Accelerance [f, 3, 3]."""
    lower: Real
    upper: Real
    weights: Real
    """[f, 3, 3]."""
    truth: Real

    @cached_property
    def omega(self) -> Real:
        return 2 * np.pi * self.frequency_hz

    @cached_property
    def H_pairs(self) -> Complex:
        """Receptance to fit, its six different elements [f, 6]."""
        return -self.H_true[:, ROW, COLUMN] / self.omega[:, None] ** 2

    @cached_property
    def root_weights(self) -> Real:
        """Square roots of the weights of the six different elements [f, 6]."""
        return np.sqrt(np.where(ROW == COLUMN, 1.0, 2.0) * self.weights[:, ROW, COLUMN])

    @cached_property
    def reduced(self) -> tuple[Real, Real, Real]:
        """W with W^T M W = 1, and gravity stiffness and Jacobian in those coordinates."""
        W = np.linalg.inv(np.linalg.cholesky(self.M)).T.astype(float)
        return W, W.T @ self.K0 @ W, self.J @ W

    @cached_property
    def log_bounds(self) -> tuple[Real, Real]:
        return np.log(self.lower), np.log(self.upper)


def rotation(axis: int, angle: float) -> Real:
    """Rotation matrix about axis 0, 1 or 2."""
    i, j = (axis + 1) % 3, (axis + 2) % 3
    R = np.eye(3)
    R[[i, j], [i, j]] = np.cos(angle)
    R[i, j], R[j, i] = -np.sin(angle), np.sin(angle)
    return R


def tangent(machine: Machine, posture: Real = POSTURE) -> tuple[Real, Real, Real]:
    """Mass, gravity stiffness and Jacobian of the tool in a posture (eq. 29-38)."""
    axes_of_link = (2,) if machine == "manipulator-3r" else (2, 0, 1)
    n = 3 * len(axes_of_link)
    R, origin = np.eye(3), np.zeros(3)
    axis, point = np.zeros((n, 3)), np.zeros((n, 3))  # of each coordinate
    M, K = np.zeros((n, n)), np.zeros((n, n))

    def velocity(r: Real, count: int) -> Real:
        """Velocity [3, n] of the point r that the first coordinates move."""
        J = np.zeros((3, n))
        J[:, :count] = np.cross(axis[:count], r - point[:count]).T
        return J

    done = 0
    for link in range(3):
        origin = origin + R @ LINK_OFFSET[link]
        if link == 1:
            R = R @ rotation(0, np.pi / 2)
        for which in axes_of_link:
            axis[done], point[done] = R[:, which], origin
            if which == 2:  # the others are deflections, zero in the posture
                R = R @ rotation(2, posture[link])
            done += 1
        r = origin + R @ np.array(CENTER[machine][link])
        xx, yy, zz, xy, xz, yz = INERTIA[machine][link]
        # The printed modal parameters follow only with the printed products subtracted.
        tensor = R @ np.array([[xx, -xy, -xz], [-xy, yy, -yz], [-xz, -yz, zz]]) @ R.T
        Jv, Jw = velocity(r, done), np.zeros((3, n))
        Jw[:, :done] = axis[:done].T
        M += MASS[link] * Jv.T @ Jv + Jw.T @ tensor @ Jw
        # A rotation about an inner axis i turns the velocity that an outer one j gives: d2r/dqi dqj = a_i x v_j.
        for j in range(done):
            bend = -MASS[link] * np.cross(axis[: j + 1], Jv[:, j]) @ GRAVITY
            K[: j + 1, j] += bend
            K[j, :j] += bend[:j]
    tool = origin + R @ TOOL_OFFSET
    return M, K, (R @ rotation(0, -np.pi / 2)).T @ velocity(tool, done)


def peak_weights(H: Complex, peak: float) -> Real:
    """The paper's weights [f, 3, 3]: high around the peaks of every FRF, low elsewhere."""
    weights = np.full(H.shape, OTHER_WEIGHT)
    level = np.log10(np.abs(H))
    for i, j in np.ndindex(H.shape[1:]):
        for k in find_peaks(level[:, i, j], prominence=0.1)[0]:
            weights[max(k - PEAK_HALF_WIDTH, 0) : k + PEAK_HALF_WIDTH + 1, i, j] = peak
    return weights


def kr90_problem(machine: Machine = "kuka-kr90", posture: Real = POSTURE) -> Problem:
    """Modelled FRFs of the KR90, 18 parameters (or of the 3R manipulator, 6), 1-30 Hz, every 0.2 Hz."""
    M, K0, J = tangent(machine, posture)
    p = np.array(TRUTH[machine])
    frequency_hz = np.linspace(1.0, 30.0, 146)
    blank = np.ones((len(frequency_hz), 3, 3))
    bounds = np.array(LOWER[machine]), np.array(UPPER[machine])
    H = solved_frf(Problem(M, K0, J, frequency_hz, blank.astype(complex), *bounds, blank, p), p)
    return Problem(M, K0, J, frequency_hz, H, *bounds, peak_weights(H, PEAK_WEIGHT[machine]), p)


def solved_frf(problem: Problem, p: Real) -> Complex:
    """Accelerance [f, 3, 3] at the tool by a solve at every frequency, to machine precision."""
    n = len(problem.M)
    Z = (problem.K0 - problem.omega[:, None, None] ** 2 * problem.M).astype(complex)
    Z.reshape(len(Z), -1)[:, :: n + 1] += p[:n] + 1j * problem.omega[:, None] * p[n:]
    X = np.linalg.solve(Z, problem.J.T.astype(complex))
    return np.asarray(-(problem.omega[:, None, None] ** 2) * (problem.J @ X), complex)


def modes(problem: Problem, p: Real) -> tuple[Complex, Complex, Complex]:
    """Eigenvalues [..., 2n], shapes [..., n, 2n] and scales [..., 2n] of one or many parameter sets.

    Z^-1 = W (sum over r of phi_r phi_r^T / (scale_r (j w - s_r))) W^T with the W of the problem's reduced
    matrices. One eigenvalue problem costs half of the solves at all frequencies, at relative errors of 1e-11 (5e-9 at
    worst, near antiresonances).
    """
    W, K0, _ = problem.reduced
    n = len(W)
    C = (W.T * p[..., None, n:]) @ W
    A = np.zeros((*p.shape[:-1], 2 * n, 2 * n))
    A[..., :n, n:] = np.eye(n)
    A[..., n:, :n] = -K0 - (W.T * p[..., None, :n]) @ W
    A[..., n:, n:] = -C
    s, V = np.linalg.eig(A)
    V = V[..., :n, :]
    return s.astype(complex), V.astype(complex), np.sum((C @ V + 2 * s[..., None, :] * V) * V, -2).astype(complex)


def receptance_pairs(problem: Problem, p: Real) -> Complex:
    """Receptance at the tool, its six different elements [..., f, 6], of one or many parameter sets."""
    s, V, scale = modes(problem, p)
    V = problem.reduced[2] @ V
    terms = 1 / ((1j * problem.omega[:, None] - s[..., None, :]) * scale[..., None, :])
    return terms @ np.swapaxes(V[..., ROW, :] * V[..., COLUMN, :], -1, -2)


def cost(problem: Problem, p: Real) -> Any:
    """Cost (eq. 22) of one or many parameter sets, the phase as that of the ratio, which cannot jump by 2 pi."""
    error = np.log(receptance_pairs(problem, p) / problem.H_pairs) * problem.root_weights
    return np.sum(error.real**2 + error.imag**2, (-2, -1))


class Residuals:
    """Weighted residuals over logarithmic parameters; the Jacobian takes over what the residuals computed."""

    def __init__(self, problem: Problem, root_weights: Real | None = None, stride: int = 1):
        self.problem = problem
        self.root_weights = (problem.root_weights if root_weights is None else root_weights)[::stride]
        self.omega, self.target = problem.omega[::stride], problem.H_pairs[::stride]
        self.evaluations = 0
        self.at: Real | None = None

    def __call__(self, x: Real) -> Real:
        """Real and imaginary parts [f * 6 * 2]."""
        problem, n = self.problem, len(self.problem.M)
        self.evaluations += 1
        s, V, scale = modes(problem, np.exp(x))
        W, _, B = problem.reduced
        V, B = W @ V, B @ V
        terms = 1 / ((1j * self.omega[:, None] - s) * scale)
        self.X = (terms @ (V[:, None] * B).reshape(n * 3, 2 * n).T).reshape(-1, n, 3)
        self.G = terms @ (B[ROW] * B[COLUMN]).T
        self.at = x.copy()
        return (np.log(self.G / self.target) * self.root_weights).view(float).ravel()

    def jacobian(self, x: Real) -> Real:
        """Derivatives [f * 6 * 2, 2n]: every parameter touches one diagonal element of Z, dG = -X_i^T dZ_ii X_i."""
        if self.at is None or not np.array_equal(x, self.at):
            self(x)
        n, p = len(self.problem.M), np.exp(x)
        slope = (self.X[:, :, ROW] * self.X[:, :, COLUMN] * (-self.root_weights / self.G)[:, None]).transpose(0, 2, 1)
        out = np.empty((*slope.shape[:2], 2, 2 * n))
        out[:, :, 0, :n], out[:, :, 1, :n] = slope.real * p[:n], slope.imag * p[:n]
        rate = self.omega[:, None, None] * p[n:]  # times j: the real part becomes the imaginary one
        out[:, :, 0, n:], out[:, :, 1, n:] = -slope.imag * rate, slope.real * rate
        return out.reshape(-1, 2 * n)


class Stacked:
    """Residuals of several postures of one machine, and their Jacobian."""

    def __init__(self, fits: Sequence[Residuals]):
        self.fits = fits

    def __call__(self, x: Real) -> Real:
        """Those of all postures, one after the other."""
        return np.concatenate([fit(x) for fit in self.fits])

    def jacobian(self, x: Real) -> Real:
        """The same."""
        return np.concatenate([fit.jacobian(x) for fit in self.fits])
