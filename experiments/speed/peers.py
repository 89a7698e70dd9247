"""The peers of the speed benchmark: the fits of Huynh et al. 2020 in NumPy and SciPy alone.

Nothing here is imported from jaxmb: these are the times its own have to be compared with. On matrices this small one
BLAS thread is the fastest (OPENBLAS_NUM_THREADS=1): the singular value decompositions take half the time of two.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, minimize
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
# The step is the best of 1e-8 (SciPy's), 1e-7: near the solution the noise of the differences decides.
FORWARD: dict[str, Any] = {"jac": "2-point", "diff_step": 1e-7}


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


def tangent(machine: Machine) -> tuple[Real, Real, Real]:
    """Mass, gravity stiffness and Jacobian of the tool in the milling posture (eq. 29-38)."""
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
                R = R @ rotation(2, POSTURE[link])
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


def kr90_problem(machine: Machine = "kuka-kr90", truth: Real | None = None) -> Problem:
    """Modelled FRFs of the KR90, 18 parameters (or of the 3R manipulator, 6), 1-30 Hz, every 0.2 Hz."""
    M, K0, J = tangent(machine)
    p = np.array(TRUTH[machine]) if truth is None else np.asarray(truth, float)
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


def frf(problem: Problem, p: Real) -> Complex:
    """Accelerance [f, 3, 3] at the tool, the fast way."""
    pair = np.array([[0, 1, 2], [1, 3, 4], [2, 4, 5]])
    return -(problem.omega[:, None, None] ** 2) * receptance_pairs(problem, p)[:, pair]


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


def residual(problem: Problem, p: Real) -> Real:
    """Residuals whose sum of squares is the cost."""
    return Residuals(problem)(np.log(p))


def jacobian(problem: Problem, p: Real) -> Real:
    """Exact derivatives of the residuals by the logarithms of the parameters."""
    return Residuals(problem).jacobian(np.log(p))


def random_start(problem: Problem, rng: np.random.Generator, count: int = 1) -> Real:
    """Logarithmic parameters [count, 2n], uniform in the whole box."""
    lower, upper = problem.log_bounds
    return lower + rng.random((count, len(lower))) * (upper - lower)


@dataclass
class Search:
    """What a search reached and spent."""

    seconds: float
    starts: int
    """Starts, or rounds."""
    evaluations: int
    """FRF matrices over all frequencies; an exact Jacobian adds none."""
    cost: float
    p: Real
    exact: bool
    """All parameters within the tolerance, or a cost too small for more."""


def relative_error(problem: Problem, x: Real) -> float:
    """Largest relative error of the logarithmic parameters x."""
    return float(np.max(np.abs(np.expm1(x - np.log(problem.truth)))))


def stopper(problem: Problem, gain: float, tolerance: float, enough: float) -> Callable[..., None]:
    """Callback that stops a fit that is exact, or that gained less than a fraction in its last ten iterations."""
    history: list[float] = []

    def stop(intermediate_result: Any) -> None:
        value = 2 * intermediate_result.cost
        history.append(value)
        stalled = value > 1e-3 and len(history) > 10 and value > (1 - gain) * history[-11]
        if stalled or value < enough or relative_error(problem, intermediate_result.x) < tolerance:
            raise StopIteration

    return stop


def trust_region(
    problem: Problem,
    x: Real,
    jac: Literal["exact", "2-point"] = "exact",
    warm_up: bool = True,
    stride: int = 3,
    max_nfev: int = 300,
    tolerance: float = 1e-6,
    enough: float = 1e-12,
    **options: Any,
) -> Search:
    """SciPy's bounded trust region from one start of logarithmic parameters.

    The warm-up first fits every few lines, all weighted alike: from random starts the weights of the peaks hide the way
    to the truth, and fewer lines are cheaper. Either stage ends when ten iterations gain little: such fits are in
    another minimum.
    """
    begin = perf_counter()
    equal = np.sqrt(np.where(ROW == COLUMN, 1.0, 2.0) * np.ones_like(problem.root_weights))
    settings: dict[str, Any] = {"ftol": 1e-15, "xtol": 1e-15, "gtol": 1e-15} | options
    stages = [(equal, stride, 0.05)] if warm_up else []
    evaluations, value = 0, np.inf
    for root_weights, step, gain in [*stages, (problem.root_weights, 1, 0.01)]:
        fit = Residuals(problem, root_weights, step)

        result = least_squares(
            fit,
            x,
            jac=fit.jacobian if jac == "exact" else "2-point",  # type: ignore[arg-type]
            bounds=problem.log_bounds,
            max_nfev=max_nfev,
            callback=stopper(problem, gain, tolerance, enough),
            **settings,
        )
        x, value = result.x, 2 * float(result.cost)
        evaluations += fit.evaluations
    exact = value < enough or relative_error(problem, x) < tolerance
    return Search(perf_counter() - begin, 1, evaluations, value, np.exp(x), exact)


def trust_region_multistart(
    problem: Problem, rng: np.random.Generator, seconds: float = 60.0, **options: Any
) -> Search:
    """Trust regions from random starts until one is exact, or the time is over."""
    begin, starts, evaluations = perf_counter(), 0, 0
    best: Search | None = None
    while best is None or (not best.exact and perf_counter() - begin < seconds):
        one = trust_region(problem, random_start(problem, rng)[0], **options)
        starts, evaluations = starts + 1, evaluations + one.evaluations
        if best is None or one.cost < best.cost or one.exact:
            best = one
    return Search(perf_counter() - begin, starts, evaluations, best.cost, best.p, best.exact)


def finite_difference_multistart(
    problem: Problem, rng: np.random.Generator, seconds: float = 60.0, **options: Any
) -> Search:
    """The same with the Jacobian by forward differences."""
    return trust_region_multistart(problem, rng, seconds, **(FORWARD | options))


def population(
    problem: Problem, rng: np.random.Generator, size: int, generations: int, guess: Real | None = None
) -> tuple[Real, int]:
    """Best logarithmic parameters of a genetic algorithm with the defaults of MATLAB's ga, and its evaluations.

    Rank scaling, stochastic universal selection, two elites, scattered crossover for 80 % of the children, for the
    others a Gaussian mutation that shrinks to nothing over the generations.
    """
    lower, upper = problem.log_bounds
    people = random_start(problem, rng, size)
    if guess is not None:
        people[0] = guess
    elites, crossed = 2, round(0.8 * (size - 2))
    mutated = size - elites - crossed
    expectation = 1 / np.sqrt(np.arange(1, size + 1))
    wheel = np.cumsum(expectation) / np.sum(expectation)
    costs = cost(problem, np.exp(people))
    evaluations = size
    for generation in range(generations):
        order = np.argsort(costs)
        people, costs = people[order], costs[order]
        count = 2 * crossed + mutated
        # Rounding may leave the last limit of the wheel below the last pointer.
        pointers = (rng.random() + np.arange(count)) / count
        parents = people[rng.permutation(np.minimum(np.searchsorted(wheel, pointers), size - 1))]
        mask = rng.random((crossed, len(lower))) < 0.5
        children = np.where(mask, parents[:crossed], parents[crossed : 2 * crossed])
        scale = (1 - generation / generations) * (upper - lower)
        mutants = parents[2 * crossed :] + scale * rng.standard_normal((mutated, len(lower)))
        new = np.clip(np.concatenate([children, mutants]), lower, upper)
        people = np.concatenate([people[:elites], new])
        costs = np.concatenate([costs[:elites], cost(problem, np.exp(new))])
        evaluations += len(new)
    return people[np.argmin(costs)], evaluations


def population_nelder_mead(
    problem: Problem,
    rng: np.random.Generator,
    tolerance: float | None = None,
    seconds: float = 60.0,
    size: int | None = None,
    generations: int | None = None,
    iterations: int | None = None,
) -> Search:
    """The paper's fit (Fig. 2): rounds of population search and Nelder-Mead until the cost is below the tolerance.

    Sizes not given are the paper's; so is the tolerance, the cost printed in the end (64 for the KR90, 1e-7 for the
    manipulator).
    """
    large = len(problem.M) > 3
    tolerance = tolerance or (64.0 if large else 1e-7)
    size, generations = size or (100 if large else 80), generations or (20 if large else 15)
    iterations = iterations or (10000 if large else 5000)
    begin, rounds, evaluations, value = perf_counter(), 0, 0, np.inf
    best: Real | None = None

    def stop(intermediate_result: Any) -> None:
        if intermediate_result.fun < tolerance or perf_counter() - begin > seconds:
            raise StopIteration

    while value > tolerance and perf_counter() - begin < seconds:
        x, count = population(problem, rng, size, generations, best)
        local = minimize(
            lambda x: float(cost(problem, np.exp(x))),
            x,
            method="Nelder-Mead",
            bounds=np.transpose(problem.log_bounds),
            callback=stop,
            options={
                "maxiter": iterations,
                "maxfev": 10 * iterations,
                "xatol": 1e-8,
                "fatol": 1e-12,
                "adaptive": large,
            },
        )
        rounds, evaluations = rounds + 1, evaluations + count + int(local.nfev)
        if local.fun < value:
            best, value = local.x, float(local.fun)
    assert best is not None
    exact = value < 1e-12 or relative_error(problem, best) < 1e-6
    return Search(perf_counter() - begin, rounds, evaluations, value, np.exp(best), exact)


def best_time(function: Any, *arguments: Any, repeats: int = 5, loops: int = 100) -> float:
    """Seconds of a call: the best mean of a few loops, after one call to warm up."""
    function(*arguments)
    times = []
    for _ in range(repeats):
        begin = perf_counter()
        for _ in range(loops):
            function(*arguments)
        times.append((perf_counter() - begin) / loops)
    return min(times)


def show(name: str, runs: list[Search]) -> None:
    """One line about searches from different seeds."""
    seconds, evaluations = [run.seconds for run in runs], [run.evaluations for run in runs]
    print(
        f"{name:44s} median {np.median(seconds):7.3f} s ({min(seconds):.3f}-{max(seconds):.3f}), "
        f"{np.median([run.starts for run in runs]):g} starts, {np.median(evaluations):.0f} evaluations, "
        f"{sum(run.exact for run in runs)}/{len(runs)} exact, worst cost {max(run.cost for run in runs):.1e}"
    )


def main(starts: int = 30, seeds: int = 10) -> None:
    """Print the times of the peers."""
    print(f"BLAS threads: {os.environ.get('OPENBLAS_NUM_THREADS', 'library default')}, cores: {os.cpu_count()}")
    problem = kr90_problem()
    p = np.exp(random_start(problem, np.random.default_rng(0))[0])
    fit = Residuals(problem)
    solved, fast = best_time(solved_frf, problem, p), best_time(frf, problem, p)
    print(f"FRF evaluations a second: {1 / solved:.0f} by solves, {1 / fast:.0f} by modes")
    print(f"cost {best_time(cost, problem, p) * 1e3:.3f} ms", end=", ")
    both = best_time(lambda x: (fit(x), fit.jacobian(x)), np.log(p))
    print(f"residuals and Jacobian {both * 1e3:.3f} ms")
    for name, options in {
        "trust region, equal weights first": {},
        "trust region, peak weights throughout": {"warm_up": False},
        "finite differences, equal weights first": FORWARD,
    }.items():
        rng = np.random.default_rng(1)
        runs = [trust_region(problem, random_start(problem, rng)[0], **options) for _ in range(starts)]
        exact = np.mean([run.exact for run in runs])
        print(f"{name:44s} {np.mean([run.seconds for run in runs]):.3f} s a start, {exact:.0%} of {starts} exact")

    def fresh(count: int) -> list[np.random.Generator]:
        return [np.random.default_rng(seed) for seed in range(count)]

    show("to the exact answer", [trust_region_multistart(problem, rng) for rng in fresh(seeds)])
    show("  peak weights throughout", [trust_region_multistart(problem, rng, warm_up=False) for rng in fresh(seeds)])
    show("  finite differences", [finite_difference_multistart(problem, rng) for rng in fresh(seeds // 2)])
    small = kr90_problem("manipulator-3r")
    show("population + Nelder-Mead, 3R manipulator", [population_nelder_mead(small, rng) for rng in fresh(seeds)])
    show("population + Nelder-Mead, KR90 to 64", [population_nelder_mead(problem, rng) for rng in fresh(3)])


if __name__ == "__main__":
    main()
