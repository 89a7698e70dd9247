"""Fit of modes whose poles vary between responses, on the lines around them.

The contribution of all other modes is modelled there as linear in frequency.
"""

import dataclasses

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from jaxmb.measurement.frf_set import largest_of_rows


@dataclasses.dataclass(frozen=True, eq=False)
class VaryingModes:
    """Modes whose poles vary between responses, by a shift of frequency and damping and by their scatter over hits."""

    eigenvalue: np.ndarray
    """lambda [r], rad/s."""
    participation: np.ndarray
    """[r, input], the largest component 1."""
    move: np.ndarray
    """a, b, v and k [output, r, 4]: relative shifts of frequency and decay rate, and two terms of their scatter."""
    std: np.ndarray
    """Root mean squares of a, b, v and k over the outputs [r, 4]."""
    shape: np.ndarray
    """[output, r]"""
    covariance: np.ndarray
    """Covariance of Re and Im of the mean lambda [r, 2, 2], (rad/s)^2, by noise and by the variation."""

    def part(self, keep: np.ndarray) -> "VaryingModes":
        """Selected modes."""
        return VaryingModes(
            self.eigenvalue[keep],
            self.participation[keep],
            self.move[:, keep],
            self.std[keep],
            self.shape[:, keep],
            self.covariance[keep],
        )

    def of_responses(self, some: np.ndarray) -> "VaryingModes":
        """The modes in selected outputs."""
        return dataclasses.replace(self, move=self.move[some], shape=self.shape[some])

    def and_also(self, other: "VaryingModes") -> "VaryingModes":
        """These modes and others."""
        return VaryingModes(
            np.concatenate([self.eigenvalue, other.eigenvalue]),
            np.concatenate([self.participation, other.participation]),
            np.concatenate([self.move, other.move], axis=1),
            np.concatenate([self.std, other.std]),
            np.concatenate([self.shape, other.shape], axis=1),
            np.concatenate([self.covariance, other.covariance]),
        )

    def responses(self, s: np.ndarray, power: int, still: bool = False) -> np.ndarray:
        """Contribution to the responses [f, output, input]; with `still`, at the mean poles."""
        move = 0.0 * self.move if still else self.move
        residue = self.participation.T * self.shape[:, None, :]
        both = residue @ resonances(s, self.eigenvalue, move)
        both = both + residue.conj() @ resonances(s.conj(), self.eigenvalue, move).conj()
        return (both * s**power).transpose(2, 0, 1)


def one_mode(eigenvalue: complex, participation: np.ndarray, std: np.ndarray, outputs: int) -> VaryingModes:
    """Initial estimate of a mode, with a pole that does not vary.

    Args:
        eigenvalue: lambda, rad/s.
        participation: [input]
        std: standard deviations of a, b, v and k [4].
        outputs: number of responses.
    """
    return VaryingModes(
        np.array([eigenvalue]),
        participation[None],
        np.broadcast_to([0.0, 0.0, std[2], 0.0], (outputs, 1, 4)),
        np.asarray(std)[None],
        np.zeros((outputs, 1), complex),
        np.zeros((1, 2, 2)),
    )


def one_less(group: VaryingModes, pole: complex, shift: np.ndarray) -> VaryingModes:
    """The group without one mode, its nearest neighbour moved to the weighted mean of the two.

    Args:
        group: modes, including this pole.
        pole: pole of the mode to remove.
        shift: initial frequency shifts of that neighbour [output].
    """
    removed = group.eigenvalue == pole
    others = group.part(~removed)
    near = int(np.argmin(np.abs(others.eigenvalue - pole)))
    size = np.linalg.norm(group.shape, axis=0) * np.linalg.norm(group.participation, axis=1)
    weight = np.array([size[~removed][near], size[removed][0]]) ** 2
    eigenvalue = others.eigenvalue.copy()
    eigenvalue[near] = (weight @ [eigenvalue[near], pole]) / weight.sum()
    move = others.move.copy()
    move[:, near] = [0.0, 0.0, others.std[near, 2], 0.0]
    move[:, near, 0] = shift
    return dataclasses.replace(others, eigenvalue=eigenvalue, move=move)


def resonances(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Resonance functions averaged over the hits [output, r, f] at s [f], for moves [output, r, 4]."""
    z, w, v, k = _terms(s, eigenvalue, move)
    top = z - 1j * w * k
    return top / (z * top + w**2 * v)


def slopes(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Derivatives of `resonances` by the pole, v and k, and the resonances [output, 4, r, f]."""
    z, w, v, k = _terms(s, eigenvalue, move)
    top = z - 1j * w * k
    inverse = 1.0 / (z * top + w**2 * v)
    below = inverse * inverse
    of_v = -(w**2) * top * below
    return np.stack([top * top * below - w**2 * v * below, of_v, -1j * w**3 * v * below, top * inverse], axis=1)


def _terms(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, ...]:
    """z = s - lambda_o [output, r, f], w [r, 1], and v and k [output, r, 1]."""
    omega = np.imag(eigenvalue)
    pole = eigenvalue + 1j * omega * move[..., 0] + np.real(eigenvalue) * move[..., 1]
    return s - pole[:, :, None], omega[:, None], move[..., 2:3], move[..., 3:]


MOST_STEPS = 25
SMALL_GAIN = 1e-4
"""Relative decrease of the cost below which the fit has converged."""
LEAST_STD = np.array([1e-6, 1e-6, 1e-12, 1e-6])
"""Least standard deviations of a, b, v and k."""
MOST_TRIED = 8
"""Largest number of initial shifts tried on either side."""
LEAST_NOISE = 0.01
"""Least noise variance of a response, relative to the median one."""
MOST_STDS = 4.0
"""Largest shift, in standard deviations."""
LOWEST = np.array([-MOST_STDS, -MOST_STDS, 0.0, -MOST_STDS])
"""Lower bounds of a, b, v and k in standard deviations: v is a variance."""
MOST_STD = np.array([0.02, 0.2, 1e-4, 0.02])
"""Largest standard deviations of a, b, v and k: larger ones indicate several modes rather than one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """Lines in units of their noise, with a straight line over frequency projected out of each response."""

    s: np.ndarray
    """[f]"""
    power: int
    weight: np.ndarray
    """Square root of 2 over the variance of each value [output, input, f]."""
    background: np.ndarray
    """Orthonormal basis of weighted straight lines [output, input, 2, f]."""
    responses: np.ndarray
    """Weighted, without the straight lines [output, input, f]."""

    def of_responses(self, some: np.ndarray) -> "Window":
        """The window of selected outputs."""
        return Window(self.s, self.power, self.weight[some], self.background[some], self.responses[some])


@dataclasses.dataclass(frozen=True, eq=False)
class VaryingFit:
    """Least-squares fit of modes to the lines of a window."""

    modes: VaryingModes
    left: np.ndarray
    """Residual of the weighted responses [output, input, f]."""
    variance: float
    """Reduced chi-square: 1 where the residual is the noise."""


def window(s: np.ndarray, power: int, responses: np.ndarray, variance: np.ndarray) -> Window:
    """Window of the lines s [f] of responses [f, output, input] with the variance of each value [f, output, input]."""
    weight = np.ascontiguousarray(np.sqrt(2.0 / variance).transpose(1, 2, 0))
    along = (np.imag(s) - np.imag(s).mean()) / max(np.ptp(np.imag(s)), np.finfo(float).tiny)
    straight = np.stack([np.ones(s.size), along], axis=1)
    background = np.swapaxes(np.linalg.qr(weight[..., None] * straight)[0], 2, 3).astype(complex)
    values = weight * responses.transpose(1, 2, 0)
    return Window(s, power, weight, background, _without(background, values[:, :, None])[:, :, 0])


def noise_between_peaks(frf: np.ndarray, decay_lines: float) -> np.ndarray:
    """Noise variance of each response [output, input] from second differences along frequency.

    The median is used, as most lines lie between the peaks. An exponential window correlates noise m lines apart by
    1 / (1 + m^2 x^2), x = pi / `decay_lines`, its decay rate over the line spacing in Hz.
    """
    bends = np.abs(frf[:-2] - 2.0 * frf[1:-1] + frf[2:]) ** 2
    # the median of the square of complex noise is ln 2 of its mean
    first, second = (decay_lines**2 / (decay_lines**2 + (np.pi * m) ** 2) for m in (1.0, 2.0))
    variance = np.median(bends, axis=0) / ((6.0 - 8.0 * first + 2.0 * second) * np.log(2.0))
    # a zero or constant response has no such variance and would outweigh all others
    return np.maximum(variance, max(LEAST_NOISE * float(np.median(variance)), 1e-12 * float(np.mean(np.abs(frf) ** 2))))


def peaks(height: np.ndarray) -> np.ndarray:
    """Indices of values higher than the two neighbours on both sides, the highest first."""
    windows = sliding_window_view(np.pad(height, 2, constant_values=np.inf), 5)
    indices = np.flatnonzero(np.argmax(windows, axis=1) == 2)
    return indices[np.argsort(-height[indices], kind="stable")]


def fit_varying_poles(lines: Window, first: VaryingModes, known: bool = False) -> VaryingFit:
    """Regularized least-squares fit of poles, participations and moves.

    min  sum |y_o - Phi_o(lambda_o, l) psi_o|^2 + sum (a_or / tau_r)^2 + ... the same of b, v and k

    by Gauss-Newton steps with Levenberg damping; shapes are eliminated, then the moves of each response. The standard
    deviations are estimated by expectation maximization: root mean squares of the moves and their posterior variance.

    Args:
        lines: the responses.
        first: initial modes; their shapes are not used.
        known: whether the standard deviations are fixed. A pole with standard deviations of 0 does not vary.
    """
    eigenvalue, participation, move = first.eigenvalue, first.participation, first.move
    std = np.maximum(first.std, LEAST_STD)
    outputs, (count, inputs) = lines.weight.shape[0], participation.shape
    point = _point(lines, eigenvalue, participation, move, std)
    equations = _equations(lines, eigenvalue, participation, move, std, point)
    damping = 1e-4
    for _ in range(MOST_STEPS):
        step, move_step = equations.step(damping)
        tried = (
            _damped(eigenvalue + step[0], eigenvalue),
            participation + step[1:].T,
            np.clip(move + move_step, LOWEST * std, MOST_STDS * std),
        )
        new = _point(lines, *tried, std)
        if new.cost <= point.cost:
            gain = point.cost - new.cost
            (eigenvalue, participation, move), point = tried, new
            if not known:
                squares = np.sum(move**2 + equations.variance, axis=0) / max(outputs - 1, 1)
                std = np.clip(np.sqrt(squares), LEAST_STD, MOST_STD)
                point = _point(lines, *tried, std)
            damping = max(damping / 10.0, 1e-8)
            if gain <= SMALL_GAIN * point.cost:
                break
            equations = _equations(lines, eigenvalue, participation, move, std, point)
        else:
            damping *= 10.0
            if damping > 1e4:
                break
    moves = float(np.sum(1.0 - equations.variance / std**2))
    unknown = 2.0 * outputs * (count + 2 * inputs) + 2.0 * count * inputs + max(moves, 0.0)
    spare = max(2.0 * lines.weight.size - unknown, 1.0)
    variance = float(np.sum(np.abs(point.left) ** 2)) / spare
    normal = equations.normal
    covariance = np.linalg.pinv(normal, hermitian=True).reshape(2, normal.shape[0] // 2, 2, -1)[:, :count, :, :count]
    covariance = np.einsum("arbr->rab", covariance) * max(variance, 1.0)
    scale = largest_of_rows(participation)
    modes = VaryingModes(eigenvalue, participation / scale, move, std, point.shape * scale[:, 0], covariance)
    return VaryingFit(modes, point.left, variance)


def best_shifts(lines: Window, first: VaryingModes) -> tuple[VaryingModes, float]:
    """One mode with the best of several shifts a in each response, and its cost: the fit then starts within a peak."""
    half_width = float(-np.real(first.eigenvalue)[0] / np.abs(first.eigenvalue[0]))
    tau = float(first.std[0, 0])
    reach = 3.0 * max(tau, 0.001)
    count = min(int(np.ceil(reach / half_width)) + 1, MOST_TRIED)
    cost, best = np.full(lines.weight.shape[0], np.inf), first.move.copy()
    for value in np.linspace(-reach, reach, 2 * count + 1):
        move = first.move.copy()
        move[:, :, 0] = value
        point = _point(lines, first.eigenvalue, first.participation, move, np.maximum(first.std, LEAST_STD))
        tried = np.sum(np.abs(point.left) ** 2, axis=(1, 2)) + (value / max(tau, LEAST_STD[0])) ** 2
        best[tried < cost, 0, 0] = value
        cost = np.minimum(cost, tried)
    return dataclasses.replace(first, move=best), float(cost.sum())


@dataclasses.dataclass(frozen=True, eq=False)
class _Point:
    cost: float
    shape: np.ndarray
    left: np.ndarray
    basis: np.ndarray
    """Orthonormal basis of the weighted mode functions [output, input, r, f]."""


def _point(
    lines: Window, eigenvalue: np.ndarray, participation: np.ndarray, move: np.ndarray, std: np.ndarray
) -> _Point:
    outputs, count = move.shape[:2]
    g = lines.s**lines.power * resonances(lines.s, eigenvalue, move)
    rows = _without(lines.background, lines.weight[:, :, None] * g[:, None] * participation.T[:, :, None])
    rows = np.swapaxes(rows, 1, 2).reshape(outputs, count, -1)
    size = np.linalg.norm(rows, axis=2)
    columns, root = np.linalg.qr(np.swapaxes(rows / np.where(size > 0.0, size, 1.0)[:, :, None], 1, 2))
    y = lines.responses.reshape(outputs, -1, 1)
    components = _adjoint(columns) @ y
    residual = y - columns @ components
    least = 1e-9 * np.copysign(np.eye(count), np.real(root))
    shape = np.linalg.solve(root + least, components)[..., 0] / size
    cost = float(np.sum(np.abs(residual) ** 2) + np.sum((move / std) ** 2))
    basis = np.swapaxes(np.swapaxes(columns, 1, 2).reshape(outputs, count, *lines.weight.shape[1:]), 1, 2)
    return _Point(cost, shape, residual.reshape(lines.responses.shape), basis)


@dataclasses.dataclass(frozen=True, eq=False)
class _Equations:
    """Normal equations of a step, with the moves of each response eliminated."""

    normal: np.ndarray
    """Normal matrix of Re, then Im of lambda and of the free components of l [k, k]."""
    force: np.ndarray
    """[k]"""
    scale: np.ndarray
    """Diagonal multiplied by the Levenberg damping [k], and a constant added to it."""
    least: float
    free: np.ndarray
    """Mask of the free components of lambda and l [2, 1 + input, r]."""
    coupling: np.ndarray
    """Change of the moves by a step [output, 4 r, 2 (1 + input) r], and without one [output, 4 r]."""
    alone: np.ndarray
    variance: np.ndarray
    """Posterior variance of the moves [output, r, 4]."""

    def step(self, damping: float) -> tuple[np.ndarray, np.ndarray]:
        """Steps of lambda and l [1 + input, r] and of the moves [output, r, 4]."""
        step = np.zeros(self.free.shape)
        step[self.free] = np.linalg.solve(self.normal + np.diag(damping * self.scale + self.least), self.force)
        moves = self.alone - self.coupling @ step.ravel()
        return step[0] + 1j * step[1], _by_mode(moves, self.variance.shape[1])


def _equations(
    lines: Window,
    eigenvalue: np.ndarray,
    participation: np.ndarray,
    move: np.ndarray,
    std: np.ndarray,
    point: _Point,
) -> _Equations:
    outputs, count = move.shape[:2]
    inputs = participation.shape[1]
    # derivatives by the pole, v and k before the participation, and the resonance itself
    rows = slopes(lines.s, eigenvalue, move) * (point.shape[:, None, :, None] * lines.s**lines.power)
    rows = lines.weight[:, :, None] * rows.reshape(outputs, 1, 4 * count, -1)
    everything = np.concatenate([rows, lines.background, point.basis, point.left[:, :, None]], axis=2)
    products = rows.conj() @ np.swapaxes(everything, 2, 3)
    products, straight, fitted, right = np.split(products, np.cumsum([4 * count, 2, count]), axis=3)
    # order: pole and participations (complex), then a, b, v and k; a and b are steps of the pole
    every = _every(eigenvalue, participation)
    adjoint = _adjoint(every)
    fitted, right = np.sum(adjoint @ fitted, axis=1), np.sum(adjoint @ right, axis=1)[..., 0]
    products = np.sum(adjoint @ (products - straight @ _adjoint(straight)) @ every, axis=1) - fitted @ _adjoint(fitted)
    shared = (1 + inputs) * count
    gram, cross, own = (
        products[:, :shared, :shared].sum(axis=0),
        products[:, shared:, :shared],
        products[:, shared:, shared:],
    )
    prior = std.T.ravel() ** -2.0
    normal = np.real(own) + np.diag(prior)
    gradient = np.real(right[:, shared:]) - np.swapaxes(move, 1, 2).reshape(outputs, -1) * prior
    right = right[:, :shared]
    cross = np.concatenate([np.real(cross), -np.imag(cross)], axis=-1)
    whole = np.block([[np.real(gram), -np.imag(gram)], [np.imag(gram), np.real(gram)]])
    covariance = np.linalg.inv(normal)
    coupling = covariance @ cross
    flat = coupling.reshape(-1, 2 * shared).T
    reduced = whole - flat @ cross.reshape(-1, 2 * shared)
    force = np.hstack([np.real(right), np.imag(right)]).sum(axis=0) - flat @ gradient.ravel()
    free = np.ones((2, 1 + inputs, count), bool)
    free[:, 1 + np.argmax(np.abs(participation), axis=1), np.arange(count)] = False
    numbers = np.flatnonzero(free)
    unreduced = whole.diagonal()[numbers]
    inside = reduced[np.ix_(numbers, numbers)]
    return _Equations(
        inside,
        force[numbers],
        np.maximum(inside.diagonal(), 1e-6 * unreduced),
        np.finfo(float).eps * unreduced.max(),
        free,
        coupling,
        np.einsum("omn,on->om", covariance, gradient),
        _by_mode(np.diagonal(covariance, axis1=1, axis2=2), count),
    )


def _by_mode(moves: np.ndarray, count: int) -> np.ndarray:
    """Moves [output, 4 r] as [output, r, 4]."""
    return np.swapaxes(moves.reshape(moves.shape[0], -1, count), 1, 2)


def _every(eigenvalue: np.ndarray, participation: np.ndarray) -> np.ndarray:
    """Map from the derivatives [4 r] by pole, v, k and participation (before the participation) to those by pole,
    participations, a, b, v and k, for each input [input, 4 r, (5 + input) r]."""
    count, inputs = participation.shape
    pick = np.zeros((inputs, 4, 5 + inputs, count), complex)
    each = np.arange(inputs)
    pick[:, 0, 0] = pick[:, 1, 3 + inputs] = pick[:, 2, 4 + inputs] = participation.T
    pick[:, 0, 1 + inputs] = 1j * np.imag(eigenvalue) * participation.T
    pick[:, 0, 2 + inputs] = np.real(eigenvalue) * participation.T
    pick[each, 3, 1 + each] = 1.0
    return (pick[..., None] * np.eye(count)).transpose(0, 1, 3, 2, 4).reshape(inputs, 4 * count, -1)


def _damped(tried: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Poles with the change of their decay rates limited to factors of 0.3 to 3, so that they stay damped."""
    return np.clip(np.real(tried), 3.0 * np.real(before), 0.3 * np.real(before)) + 1j * np.imag(tried)


def _without(background: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values [output, input, n, f] with the straight lines projected out."""
    return values - (values @ np.swapaxes(background, 2, 3)) @ background


def _adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a.conj(), -1, -2)
