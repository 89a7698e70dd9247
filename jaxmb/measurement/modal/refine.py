"""Poles and participations refined together on all responses, shapes and residual terms eliminated."""

import dataclasses

import numpy as np

from jaxmb.measurement.line_noise import correlated_lines
from jaxmb.measurement.modal.model import Lines, between, inverse_root, pole_functions, solved_by, turned

MOST_STEPS = 30
SMALL_STEP = 1e-9
"""The fit ends where no pole moves by more than this part of itself; noise moves it by 1e-6 and more."""
SMALL_GAIN = 1e-6
"""... or where the cost falls by less than this part ..."""
SMALL_MOVE = 0.03
"""... or no pole within the lines moves by more than this part of its standard deviation in a step that is
hardly damped: poles far beside them, which only bend the lines, continue to creep."""
HARDLY = 1e-3
"""Levenberg's damping of such a step."""
LEAST_NOISE = 1e-6
"""Of a response, as a part of its RMS: less is rounding, and would give weights without meaning."""

LEAST_KNOWN = 1e-14
"""Directions of a step below this part of the best known one have no finite covariance in these numbers."""


@dataclasses.dataclass(frozen=True, eq=False)
class RefinedPoles:
    """Poles, and what follows from them by linear least squares."""

    eigenvalue: np.ndarray
    """[r], rad/s."""
    participation: np.ndarray
    """[r, input], the largest component 1."""
    shape: np.ndarray
    """[output, r]"""
    remainder: np.ndarray
    """What is left of the responses [2 f, output, input]: real parts above imaginary parts."""
    noise: np.ndarray
    """Standard deviation of real and imaginary part of what is left [output, input]."""
    covariance: np.ndarray
    """Of Re and Im of each pole [r, 2, 2], (rad/s)^2; lines whose remainders go together count as one."""
    strength: np.ndarray
    """How far each shape stands out of the noise [r]: mean square of its components in their standard deviations, which
    count what poles and participations could do instead. 1 where a pole describes nothing or what another one does."""
    converged: bool
    """Whether the fit came to its end within `MOST_STEPS`."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Equations:
    """One point of the fit: cost, shapes, and normal equations of a step in poles and participations."""

    cost: float
    shape: np.ndarray
    remainder: np.ndarray
    gradient: np.ndarray
    normal: np.ndarray
    shape_root: np.ndarray
    """Of the covariance of the shapes at fixed poles [output, 2 r, 2 r], see `inverse_root`."""
    coupling: np.ndarray
    """Normal matrix between shapes and step [output, 2 r, step]."""


def refine_poles(
    lines: Lines, eigenvalue: np.ndarray, participation: np.ndarray, noise: np.ndarray | None = None
) -> RefinedPoles:
    """Poles and participations that fit all responses best, each weighted by its own noise.

    min over lambda, l of  sum_oi ||y_oi - Phi_oi(lambda, l) psi_o||^2 / sigma_oi^2,  psi_o the best for these lambda, l

    (separable least squares, "variable projection"), by Gauss-Newton steps with Levenberg's damping. The Jacobian is
    that of Kaufman: derivatives of Phi, projected. All normal equations are assembled from the inner products of one
    function a pole and its derivative, so that a step costs the same for one response and for a hundred. The noise
    sigma_oi starts as a part of each response's RMS and is then taken from what is left.

    Args:
        lines: the responses.
        eigenvalue: first poles [r], rad/s.
        participation: first participations [r, input].
        noise: first estimate of sigma [output, input].

    Source: Golub and Pereyra, "Separable nonlinear least squares: the variable projection method and its
    applications", Inverse Problems 19, 2003; Kaufman, BIT 15, 1975.
    """
    rms = np.sqrt(np.mean(lines.responses**2, axis=0))
    floor = np.where(rms > 0.0, rms, rms.max(initial=0.0) or 1.0)
    first = noise is None
    noise = floor if first else noise
    for _ in range(2 if first else 1):
        eigenvalue, participation, point, converged = _minimize(lines, noise, eigenvalue, participation)
        noise = np.maximum(_noise(lines, point, participation), LEAST_NOISE * floor)
    return _described(lines, noise, eigenvalue, participation, converged)


def fixed_poles(lines: Lines, eigenvalue: np.ndarray, participation: np.ndarray, noise: np.ndarray) -> RefinedPoles:
    """Known poles [r] and participations [r, input], and what follows from them.

    Args:
        lines: the responses.
        eigenvalue: [r], rad/s.
        participation: [r, input]
        noise: weights of the responses: an estimate of sigma [output, input].
    """
    return _described(lines, noise, eigenvalue, _unit(participation), True)


def _described(
    lines: Lines, noise: np.ndarray, eigenvalue: np.ndarray, participation: np.ndarray, converged: bool
) -> RefinedPoles:
    point = _equations(lines, noise, eigenvalue, participation)
    return RefinedPoles(
        eigenvalue,
        participation,
        point.shape,
        point.remainder,
        noise,
        _pole_covariance(point, participation) * _lines_as_one(point, noise),
        _strength(point, participation),
        converged,
    )


def _minimize(
    lines: Lines, noise: np.ndarray, eigenvalue: np.ndarray, participation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, _Equations, bool]:
    """Poles and participations of the least cost, the equations there, and whether that is the end."""
    participation = _unit(participation)
    point = _equations(lines, noise, eigenvalue, participation)
    if eigenvalue.size == 0:
        return eigenvalue, participation, point, True
    damping, omega = 1e-4, np.imag(lines.s)
    for _ in range(MOST_STEPS):
        free = _free(participation)
        normal = point.normal[np.ix_(free, free)]
        step = np.zeros(free.size)
        damped = normal + damping * np.diag(np.diag(normal))
        root = inverse_root(damped, least=0.0)
        step[free] = solved_by(root, point.gradient[free][:, None])[:, 0]
        moves = step.reshape(-1, eigenvalue.size, 2) @ np.array([1.0, 1j])
        moved = eigenvalue + moves[0]
        # a pole may lose most of its damping in a step, but stays damped
        moved = np.minimum(moved.real, 0.2 * eigenvalue.real) + 1j * moved.imag
        other = participation + moves[1:].T
        tried = _equations(lines, noise, moved, other)
        if tried.cost <= point.cost:
            gain = point.cost - tried.cost
            small = np.max(np.abs(moved - eigenvalue) / np.abs(eigenvalue)) < SMALL_STEP
            if damping <= HARDLY:
                variance = np.sum(root[: 2 * eigenvalue.size] ** 2, axis=1) * tried.cost / lines.responses.size
                inside = (np.abs(eigenvalue) > omega[0]) & (np.abs(eigenvalue) < omega[-1])
                far = step[: 2 * eigenvalue.size] ** 2 > SMALL_MOVE**2 * variance
                small |= not far.reshape(-1, 2)[inside].any()
            eigenvalue, participation, point = moved, other, tried
            damping = max(damping / 10.0, 1e-12)
            if small or gain <= SMALL_GAIN * point.cost:
                break
        else:
            damping *= 10.0
            if damping > 1e8:
                break
    else:
        return eigenvalue, _unit(participation), point, False
    return eigenvalue, _unit(participation), point, True


def _equations(lines: Lines, noise: np.ndarray, eigenvalue: np.ndarray, participation: np.ndarray) -> _Equations:
    """Cost and normal equations; a step is [1 + input, r, 2]: pole, then each component of the participation."""
    weight = 1.0 / noise**2
    outputs, inputs = weight.shape
    count = eigenvalue.size
    g, h = pole_functions(lines, eigenvalue), pole_functions(lines, eigenvalue, derivative=1)
    both = np.concatenate([g, h], axis=1).reshape(g.shape[0], -1)
    gram = (both.T @ both).reshape(2, count, 2, 2, count, 2)
    gg, gh, hh = gram[0, :, :, 0], gram[0, :, :, 1], gram[1, :, :, 1]

    # shapes, all inputs of an output together
    of_shapes = np.tensordot(weight, between(participation.T, gg, participation.T), axes=1)
    right = turned(participation.T, np.tensordot(lines.responses, g, axes=(0, 0)))
    right = np.einsum("oi,oirp->orp", weight, right)
    size = 2 * count
    root = inverse_root(of_shapes.reshape(outputs, size, size))
    solved = solved_by(root, right.reshape(outputs, size, 1)).reshape(outputs, count, 2)
    psi = solved[..., 0] + 1j * solved[..., 1]
    residue = psi[:, None, :] * participation.T
    remainder = lines.responses - np.tensordot(
        g, np.stack([residue.real, residue.imag], axis=-1), axes=((1, 2), (2, 3))
    )

    # derivatives with respect to poles (through h) and participations (through g)
    left = np.tensordot(remainder * weight, both, axes=(0, 0)).reshape(outputs, inputs, 2, count, 2)
    gradient = np.concatenate(
        [
            turned(residue, left[:, :, 1]).sum(axis=(0, 1))[None],
            turned(psi[:, None, :], left[:, :, 0]).sum(axis=0),
        ]
    ).ravel()
    cross = np.empty((outputs, count, 2, 1 + inputs, count, 2))
    normal = np.zeros((1 + inputs, count, 2, 1 + inputs, count, 2))
    cross[:, :, :, 0] = 0.0
    squares = between(psi, gg, psi)
    hg = gh.transpose(2, 3, 0, 1)
    for i in range(inputs):
        w = weight[:, i][:, None, None, None, None]
        normal[0, :, :, 0] += (w * between(residue[:, i], hh, residue[:, i])).sum(axis=0)
        pole_part = (w * between(residue[:, i], hg, psi)).sum(axis=0)
        normal[0, :, :, 1 + i] = pole_part
        normal[1 + i, :, :, 0] = pole_part.transpose(2, 3, 0, 1)
        normal[1 + i, :, :, 1 + i] = (w * squares).sum(axis=0)
        cross[:, :, :, 0] += w * between(participation[:, i], gh, residue[:, i])
        cross[:, :, :, 1 + i] = w * between(participation[:, i], gg, psi)
    columns = cross.reshape(outputs, size, gradient.size)
    explained = (np.swapaxes(root, 1, 2) @ columns).reshape(outputs * size, gradient.size)
    reduced = normal.reshape(gradient.size, gradient.size) - explained.T @ explained
    cost = float(np.sum(remainder**2 * weight))
    return _Equations(cost, psi, remainder, gradient, reduced, root, columns)


def _noise(lines: Lines, point: _Equations, participation: np.ndarray) -> np.ndarray:
    """Standard deviation of what is left of every response, by the numbers it has more than the fit."""
    count, inputs = participation.shape
    outputs = point.shape.shape[0]
    fitted = lines.residual.shape[1] + 2.0 * count / inputs + 2.0 * count * inputs / (outputs * inputs)
    spare = max(lines.responses.shape[0] - fitted, 1.0)
    return np.sqrt(np.sum(point.remainder**2, axis=0) / spare)


def _pole_covariance(point: _Equations, participation: np.ndarray) -> np.ndarray:
    free = _free(participation)
    normal = point.normal[np.ix_(free, free)]
    count = participation.shape[0]
    root = inverse_root(normal, LEAST_KNOWN)[: 2 * count].reshape(count, 2, normal.shape[0])
    return root @ np.swapaxes(root, 1, 2)


def _lines_as_one(point: _Equations, noise: np.ndarray) -> float:
    """Number of lines that tell no more than one: windows and overlap correlate the noise of neighbours."""
    errors = (point.remainder / noise).reshape(2, -1, noise.size)
    return correlated_lines(errors, np.ones(errors.shape, bool))


def _strength(point: _Equations, participation: np.ndarray) -> np.ndarray:
    """psi^T C^-1 psi / (2 outputs) of each shape psi, C the covariance of all its components together.

    C = D + M S^-1 M^T: D at fixed poles and participations (a block an output), M what a step in those of the others
    does to the shape, S the normal matrix of that step. Its own pole and participation are kept: they mean nothing
    where the shape is zero, and turning its participation into a repeated mode's would let that take over the shape.
    C^-1 by Woodbury's identity, which needs no inverse of S: it is singular for repeated modes, of whose participations
    only the plane is known.
    """
    outputs, count = point.shape.shape
    covariance = point.shape_root @ np.swapaxes(point.shape_root, 1, 2)
    coupling, free = point.coupling, _free(participation)
    strength = np.zeros(count)
    for r in range(count):
        others = free.reshape(-1, count, 2).copy()
        others[:, r] = False
        others = others.ravel()
        own = slice(2 * r, 2 * r + 2)
        inner = np.linalg.pinv(covariance[:, own, own], hermitian=True)
        psi = np.stack([np.real(point.shape[:, r]), np.imag(point.shape[:, r])], axis=1)
        weighted = np.einsum("opq,oq->op", inner, psi)
        steps = covariance[:, own] @ coupling[:, :, others]
        along = np.einsum("opk,op->k", steps, weighted)
        inside = point.normal[np.ix_(others, others)]
        inside = inside + np.einsum("opk,opq,oql->kl", steps, inner, steps, optimize=True)
        taken = np.sum((inverse_root(inside).T @ along) ** 2)
        strength[r] = (np.sum(psi * weighted) - taken) / (2 * outputs)
    return strength


def _unit(participation: np.ndarray) -> np.ndarray:
    """Rows whose largest component is 1: the rest of a row's scale is the shape's."""
    largest = np.argmax(np.abs(participation), axis=1)[:, None]
    return participation / np.take_along_axis(participation, largest, axis=1)


def _free(participation: np.ndarray) -> np.ndarray:
    """Which numbers of a step are free: all but the participation component that is 1."""
    count, inputs = participation.shape
    free = np.ones((1 + inputs, count, 2), bool)
    free[1 + np.argmax(np.abs(participation), axis=1), np.arange(count)] = False
    return free.ravel()
