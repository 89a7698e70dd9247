"""Fit of modes whose poles move from response to response, on the lines around them.

Modes that are not fitted are a straight line over frequency there.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class MovingModes:
    """Modes whose poles move."""

    eigenvalue: np.ndarray
    """lambda [r], rad/s."""
    participation: np.ndarray
    """[r, input], the largest component 1."""
    move: np.ndarray
    """a, b, v and k [output, r, 4]."""
    std: np.ndarray
    """Root mean squares of a, b, v and k over the outputs [r, 4]."""
    shape: np.ndarray
    """[output, r]"""
    covariance: np.ndarray
    """Of Re and Im of lambda [r, 2, 2], (rad/s)^2: of the mean, from noise and from the moves."""

    def part(self, keep: np.ndarray) -> "MovingModes":
        """Some of them."""
        return MovingModes(
            self.eigenvalue[keep],
            self.participation[keep],
            self.move[:, keep],
            self.std[keep],
            self.shape[:, keep],
            self.covariance[keep],
        )

    def of_responses(self, some: np.ndarray) -> "MovingModes":
        """In some of the outputs."""
        return dataclasses.replace(self, move=self.move[some], shape=self.shape[some])

    def and_also(self, other: "MovingModes") -> "MovingModes":
        """These and others."""
        return MovingModes(
            np.concatenate([self.eigenvalue, other.eigenvalue]),
            np.concatenate([self.participation, other.participation]),
            np.concatenate([self.move, other.move], axis=1),
            np.concatenate([self.std, other.std]),
            np.concatenate([self.shape, other.shape], axis=1),
            np.concatenate([self.covariance, other.covariance]),
        )

    def responses(self, s: np.ndarray, power: int, still: bool = False) -> np.ndarray:
        """What they add to the responses [f, output, input]; where `still`, what they would add if no pole moved."""
        move = 0.0 * self.move if still else self.move
        residue = self.participation.T * self.shape[:, None, :]
        both = residue @ resonances(s, self.eigenvalue, move)
        both = both + residue.conj() @ resonances(s.conj(), self.eigenvalue, move).conj()
        return (both * s**power).transpose(2, 0, 1)


def one_mode(eigenvalue: complex, participation: np.ndarray, std: np.ndarray, outputs: int) -> MovingModes:
    """A mode to begin with, that does not move.

    Args:
        eigenvalue: lambda, rad/s.
        participation: [input]
        std: of a, b, v and k [4].
        outputs: number of responses.
    """
    return MovingModes(
        np.array([eigenvalue]),
        participation[None],
        np.broadcast_to([0.0, 0.0, std[2], 0.0], (outputs, 1, 4)),
        np.asarray(std)[None],
        np.zeros((outputs, 1), complex),
        np.zeros((1, 2, 2)),
    )


def one_less(group: MovingModes, pole: complex, shift: np.ndarray) -> MovingModes:
    """The others of a group, the nearest one in the middle between it and the one left out.

    Args:
        group: modes, this pole among them.
        pole: to leave out.
        shift: first shifts of the one in the middle [output].
    """
    gone = group.eigenvalue == pole
    others = group.part(~gone)
    near = int(np.argmin(np.abs(others.eigenvalue - pole)))
    size = np.linalg.norm(group.shape, axis=0) * np.linalg.norm(group.participation, axis=1)
    weight = np.array([size[~gone][near], size[gone][0]]) ** 2
    eigenvalue = others.eigenvalue.copy()
    eigenvalue[near] = (weight @ [eigenvalue[near], pole]) / weight.sum()
    move = others.move.copy()
    move[:, near] = [0.0, 0.0, others.std[near, 2], 0.0]
    move[:, near, 0] = shift
    return dataclasses.replace(others, eigenvalue=eigenvalue, move=move)


def moved_poles(eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Poles of every response [output, r], with their moves [output, r, 4]."""
    return eigenvalue + 1j * np.imag(eigenvalue) * move[..., 0] + np.real(eigenvalue) * move[..., 1]


def resonances(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Mean resonances of the hits [output, r, f] at s [f], for moves [output, r, 4]."""
    z, w, v, k = _terms(s, eigenvalue, move)
    top = z - 1j * w * k
    return top / (z * top + w**2 * v)


def slopes(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> np.ndarray:
    """Derivatives of `resonances` with respect to the pole, v and k, and these themselves [output, 4, r, f]."""
    z, w, v, k = _terms(s, eigenvalue, move)
    top = z - 1j * w * k
    inverse = 1.0 / (z * top + w**2 * v)
    below = inverse * inverse
    of_v = -(w**2) * top * below
    return np.stack([top * top * below - w**2 * v * below, of_v, -1j * w**3 * v * below, top * inverse], axis=1)


def _terms(s: np.ndarray, eigenvalue: np.ndarray, move: np.ndarray) -> tuple[np.ndarray, ...]:
    """z = s - lambda_o [output, r, f], w [r, 1], and v and k [output, r, 1]."""
    return s - moved_poles(eigenvalue, move)[:, :, None], np.imag(eigenvalue)[:, None], move[..., 2:3], move[..., 3:]


MOST_STEPS = 25
SMALL_GAIN = 1e-4
"""The fit ends where the cost falls by less than this part."""
LEAST_STD = np.array([1e-6, 1e-6, 1e-12, 1e-6])
"""Of a, b, v and k."""
MOST_TRIED = 8
"""First shifts on either side."""
LEAST_NOISE = 0.01
"""Variance of the noise of a response, beside the median one."""
MOST_STDS = 4.0
"""Largest move, in standard deviations."""
LOWEST = np.array([-MOST_STDS, -MOST_STDS, 0.0, -MOST_STDS])
"""Of a, b, v and k, in the same: v is a variance."""
MOST_STD = np.array([0.02, 0.2, 1e-4, 0.02])
"""Of a, b, v and k: more are several modes in the place of one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Window:
    """Some lines, in units of their noise, without a straight line for each response."""

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
        """Of some outputs."""
        return Window(self.s, self.power, self.weight[some], self.background[some], self.responses[some])


@dataclasses.dataclass(frozen=True, eq=False)
class MovingFit:
    """Modes that fit some lines best."""

    modes: MovingModes
    left: np.ndarray
    """What is left of the weighted responses [output, input, f]."""
    variance: float
    """Of what is left, by the numbers that there are more than parameters: 1 where it is the noise."""


def window(s: np.ndarray, power: int, responses: np.ndarray, variance: np.ndarray) -> Window:
    """Lines s [f] of responses [f, output, input], with the variance of each value [f, output, input]."""
    weight = np.ascontiguousarray(np.sqrt(2.0 / variance).transpose(1, 2, 0))
    along = (np.imag(s) - np.imag(s).mean()) / max(np.ptp(np.imag(s)), np.finfo(float).tiny)
    straight = np.stack([np.ones(s.size), along], axis=1)
    background = np.swapaxes(np.linalg.qr(weight[..., None] * straight)[0], 2, 3).astype(complex)
    values = weight * responses.transpose(1, 2, 0)
    return Window(s, power, weight, background, _without(background, values[:, :, None])[:, :, 0])


def noise_between_peaks(frf: np.ndarray, decay_lines: float = 0.0) -> np.ndarray:
    """Variance of each response [output, input] that bends from line to line show; most lines lie between the peaks.

    An exponential window correlates the noise m lines apart by 1 / (1 + m^2 x^2), x = pi / `decay_lines`, where that is
    its rate over the spacing of the lines in Hz.
    """
    bends = np.abs(frf[:-2] - 2.0 * frf[1:-1] + frf[2:]) ** 2
    # the median of the square of complex noise is ln 2 of its mean
    first, second = (decay_lines**2 / (decay_lines**2 + (np.pi * m) ** 2) for m in (1.0, 2.0))
    variance = np.median(bends, axis=0) / ((6.0 - 8.0 * first + 2.0 * second) * np.log(2.0))
    # a response that is zero or constant has none, and would count for all others
    return np.maximum(variance, max(LEAST_NOISE * float(np.median(variance)), 1e-12 * float(np.mean(np.abs(frf) ** 2))))


def peaks(height: np.ndarray) -> np.ndarray:
    """Places that are higher than two others on both sides, the highest first."""
    top = np.ones(height.size, bool)
    for k in (1, 2):
        top[k:] &= height[k:] > height[:-k]
        top[:-k] &= height[:-k] >= height[k:]
    top[:2] = top[-2:] = False
    places = np.flatnonzero(top)
    return places[np.argsort(-height[places], kind="stable")]


def moving_poles(lines: Window, first: MovingModes, known: bool = False) -> MovingFit:
    """Poles, participations and moves that fit best, with the moves as small as they may be.

    min  sum |y_o - Phi_o(lambda_o, l) psi_o|^2 + sum (a_or / tau_r)^2 + ... the same of b, v and k

    by Gauss-Newton steps with Levenberg's damping; shapes are eliminated, then the moves of each response. The standard
    deviations are the root mean squares of what is known of the moves (expectation maximization).

    Args:
        lines: the responses.
        first: modes to begin with; their shapes do not count.
        known: whether the standard deviations are to stay. A pole of which they are 0 does not move.
    """
    eigenvalue, participation, move = first.eigenvalue, first.participation, first.move
    std = np.maximum(first.std, LEAST_STD)
    outputs, (count, inputs) = lines.weight.shape[0], participation.shape
    point = _point(lines, eigenvalue, participation, move, std)
    equations = _equations(lines, eigenvalue, participation, move, std, point)
    damping = 1e-4
    for _ in range(MOST_STEPS):
        step, along = equations.step(damping)
        tried = (
            _damped(eigenvalue + step[0], eigenvalue),
            participation + step[1:].T,
            np.clip(move + along, LOWEST * std, MOST_STDS * std),
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
    squares = float(np.sum(np.abs(point.left) ** 2))
    variance = squares / spare
    normal = equations.normal
    covariance = np.linalg.pinv(normal, hermitian=True).reshape(2, normal.shape[0] // 2, 2, -1)[:, :count, :, :count]
    covariance = np.einsum("arbr->rab", covariance) * max(variance, 1.0)
    scale = _largest(participation)
    modes = MovingModes(eigenvalue, participation / scale, move, std, point.shape * scale[:, 0], covariance)
    return MovingFit(modes, point.left, variance)


def best_shifts(lines: Window, first: MovingModes) -> tuple[MovingModes, float]:
    """One mode with the best of some shifts a in each response, and what it leaves: a fit starts within a peak."""
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
    """Orthonormal rows that the shapes stand for [output, input, r, f]."""


def _point(
    lines: Window, eigenvalue: np.ndarray, participation: np.ndarray, move: np.ndarray, std: np.ndarray
) -> _Point:
    outputs, count = move.shape[:2]
    g = lines.s**lines.power * resonances(lines.s, eigenvalue, move)
    rows = _without(lines.background, lines.weight[:, :, None] * g[:, None] * participation.T[:, :, None])
    rows = np.swapaxes(rows, 1, 2).reshape(outputs, count, -1)
    size = np.linalg.norm(rows, axis=2)
    basis, root = _orthonormal(rows / np.where(size > 0.0, size, 1.0)[:, :, None])
    y = lines.responses.reshape(outputs, -1, 1)
    along = basis.conj() @ y
    left = y - np.swapaxes(basis, 1, 2) @ along
    shape = np.linalg.solve(root + 1e-9 * np.eye(count), along)[..., 0] / size
    cost = float(np.sum(np.abs(left) ** 2) + np.sum((move / std) ** 2))
    basis = np.swapaxes(basis.reshape(outputs, count, *lines.weight.shape[1:]), 1, 2)
    return _Point(cost, shape, left.reshape(lines.responses.shape), basis)


def _orthonormal(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal rows Q [output, r, n] and upper triangular R [output, r, r] with rows = R^T Q (Gram, Schmidt)."""
    basis, root = np.zeros_like(rows), np.zeros((*rows.shape[:2], rows.shape[1]), complex)
    for k in range(rows.shape[1]):
        row = rows[:, k : k + 1]
        for _ in range(2 if k else 0):  # the second pass removes the rounding of the first
            along = row @ _adjoint(basis[:, :k])
            row = row - along @ basis[:, :k]
            root[:, :k, k] += along[:, 0]
        size = np.linalg.norm(row, axis=2)
        root[:, k, k] = size[:, 0]
        basis[:, k] = row[:, 0] / np.where(size > 0.0, size, 1.0)
    return basis, root


@dataclasses.dataclass(frozen=True, eq=False)
class _Equations:
    """Normal equations of a step from a point, those of the moves of each response eliminated."""

    normal: np.ndarray
    """Of Re, then Im of lambda and of the free numbers of l [k, k]."""
    force: np.ndarray
    """[k]"""
    scale: np.ndarray
    """Diagonal that Levenberg's damping multiplies [k], and the least that is added to it."""
    least: float
    free: np.ndarray
    """Which numbers of lambda and l are free [2, 1 + input, r]."""
    coupling: np.ndarray
    """Moves that a step takes along [output, 4 r, 2 (1 + input) r], and those without one [output, 4 r]."""
    alone: np.ndarray
    variance: np.ndarray
    """Of the moves [output, r, 4]."""

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
    # derivatives with respect to the pole, v and k before the participation, and the resonance itself
    rows = slopes(lines.s, eigenvalue, move) * (point.shape[:, None, :, None] * lines.s**lines.power)
    rows = lines.weight[:, :, None] * rows.reshape(outputs, 1, 4 * count, -1)
    everything = np.concatenate([rows, lines.background, point.basis, point.left[:, :, None]], axis=2)
    products = rows.conj() @ np.swapaxes(everything, 2, 3)
    products, straight, fitted, right = np.split(products, np.cumsum([4 * count, 2, count]), axis=3)
    # of the pole and the participations, which are complex, then of a, b, v and k: a and b are steps of the pole
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
    told = np.linalg.inv(normal)
    taken = told @ cross
    along = taken.reshape(-1, 2 * shared).T
    reduced = whole - along @ cross.reshape(-1, 2 * shared)
    force = np.hstack([np.real(right), np.imag(right)]).sum(axis=0) - along @ gradient.ravel()
    free = np.ones((2, 1 + inputs, count), bool)
    free[:, 1 + np.argmax(np.abs(participation), axis=1), np.arange(count)] = False
    numbers = np.flatnonzero(free)
    held = whole.diagonal()[numbers]
    inside = reduced[np.ix_(numbers, numbers)]
    return _Equations(
        inside,
        force[numbers],
        np.maximum(inside.diagonal(), 1e-6 * held),
        np.finfo(float).eps * held.max(),
        free,
        taken,
        np.einsum("omn,on->om", told, gradient),
        _by_mode(np.diagonal(told, axis1=1, axis2=2), count),
    )


def _by_mode(moves: np.ndarray, count: int) -> np.ndarray:
    """Numbers of the moves [output, 4 r] as [output, r, 4]."""
    return np.swapaxes(moves.reshape(moves.shape[0], -1, count), 1, 2)


def _every(eigenvalue: np.ndarray, participation: np.ndarray) -> np.ndarray:
    """From the derivatives [4 r] of pole, v, k and participation before the participation those of pole,
    participations, a, b, v and k, for each input [input, 4 r, (5 + input) r]."""
    count, inputs = participation.shape
    pick = np.zeros((inputs, 4, 5 + inputs, count), complex)
    each = np.arange(inputs)
    pick[:, 0, 0] = pick[:, 1, 3 + inputs] = pick[:, 2, 4 + inputs] = participation.T
    pick[:, 0, 1 + inputs] = 1j * np.imag(eigenvalue) * participation.T
    pick[:, 0, 2 + inputs] = np.real(eigenvalue) * participation.T
    pick[each, 3, 1 + each] = 1.0
    every = pick[..., None] * np.eye(count)
    return every.transpose(0, 1, 3, 2, 4).reshape(inputs, 4 * count, -1)


def _damped(moved: np.ndarray, before: np.ndarray) -> np.ndarray:
    """A pole may lose most of its damping in a step, but stays damped."""
    return np.clip(np.real(moved), 3.0 * np.real(before), 0.3 * np.real(before)) + 1j * np.imag(moved)


def _without(background: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values [output, input, n, f] without the straight lines."""
    return values - (values @ np.swapaxes(background, 2, 3)) @ background


def _adjoint(a: np.ndarray) -> np.ndarray:
    return np.swapaxes(a.conj(), -1, -2)


def _largest(participation: np.ndarray) -> np.ndarray:
    """Largest component of each participation [r, 1]."""
    return np.take_along_axis(participation, np.argmax(np.abs(participation), axis=1)[:, None], axis=1)
