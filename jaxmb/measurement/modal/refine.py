"""Joint refinement of poles and participations on all responses, with shapes and residual terms eliminated."""

import dataclasses

import numpy as np

from jaxmb.measurement.frf_set import largest_of_rows
from jaxmb.measurement.modal.model import (
    Lines,
    between,
    fitted_shapes,
    inverse_root,
    pole_functions,
    solved_by,
    turned,
)
from jaxmb.measurement.noise import correlation_length

MOST_STEPS = 30
SMALL_STEP = 1e-9
"""Converged where no pole changes by more than this, relative; noise changes poles by 1e-6 and more."""
SMALL_GAIN = 1e-6
"""... or where the relative decrease of the cost is less than this ..."""
SMALL_MOVE = 0.03
"""... or no pole in the band moves by more than this part of its standard deviation in a step with little damping:
poles far outside, which add only curvature, keep creeping."""
HARDLY = 1e-3
"""Levenberg damping of such a step."""
LEAST_NOISE = 1e-6
"""Least noise of a response relative to its RMS: less is rounding error."""

LEAST_KNOWN = 1e-14
"""Relative eigenvalue of the normal matrix below which a direction is not identifiable in double precision."""


@dataclasses.dataclass(frozen=True, eq=False)
class RefinedPoles:
    """Poles, and the quantities that follow from them by linear least squares."""

    eigenvalue: np.ndarray
    """[r], rad/s."""
    participation: np.ndarray
    """[r, input], the largest component 1."""
    shape: np.ndarray
    """[output, r]"""
    remainder: np.ndarray
    """Residual [2 f, output, input], real parts above imaginary parts."""
    noise: np.ndarray
    """Standard deviation of real and imaginary part of the residual [output, input]."""
    covariance: np.ndarray
    """Covariance of Re and Im of each pole [r, 2, 2], (rad/s)^2, allowing for correlation along frequency."""
    strength: np.ndarray
    """Significance of each shape [r]: mean square of its components over their standard deviations, marginal over poles
    and participations, allowing for correlation along frequency. 1 where a pole describes only noise or duplicates
    another one."""
    converged: bool
    """Whether the fit converged within `MOST_STEPS`."""


@dataclasses.dataclass(frozen=True, eq=False)
class _Equations:
    """Iterate of the fit: cost, shapes, and normal equations of a step in poles and participations."""

    cost: float
    shape: np.ndarray
    remainder: np.ndarray
    gradient: np.ndarray
    normal: np.ndarray
    shape_root: np.ndarray
    """Root of the covariance of the shapes at fixed poles [output, 2 r, 2 r], see `inverse_root`."""
    coupling: np.ndarray
    """Normal matrix between shapes and step [output, 2 r, step]."""


def refine_poles(
    lines: Lines, eigenvalue: np.ndarray, participation: np.ndarray, noise: np.ndarray | None = None
) -> RefinedPoles:
    """Weighted least-squares fit of poles and participations to all responses, each weighted by its noise.

    min over lambda, l of  sum_oi ||y_oi - Phi_oi(lambda, l) psi_o||^2 / sigma_oi^2,  psi_o the best for these lambda, l

    (separable least squares, "variable projection"), by Gauss-Newton steps with Levenberg damping. The Jacobian is
    Kaufman's approximation: projected derivatives of Phi. All normal equations are assembled from the inner products of
    one function per pole and its derivative, so that a step costs nearly the same for one response and for a hundred.
    The noise sigma_oi starts proportional to the RMS of each response and is then estimated from the residual.

    Args:
        lines: the responses.
        eigenvalue: initial poles [r], rad/s.
        participation: initial participations [r, input].
        noise: initial estimate of sigma [output, input].

    Source: Golub and Pereyra, "Separable nonlinear least squares: the variable projection method and its
    applications", Inverse Problems 19, 2003; Kaufman, BIT 15, 1975.
    """
    rms = np.sqrt(np.mean(lines.responses**2, axis=0))
    floor = np.where(rms > 0.0, rms, rms.max(initial=0.0) or 1.0)
    first = noise is None
    noise = floor if first else noise
    for _ in range(2 if first else 1):
        eigenvalue, participation, point, converged = _minimize(lines, noise, eigenvalue, participation)
        count, inputs = participation.shape
        fitted = lines.residual.shape[1] + 2.0 * count / inputs + 2.0 * count / len(point.shape)  # of each response
        square = np.sum(point.remainder**2, axis=0) / max(lines.responses.shape[0] - fitted, 1.0)
        noise = np.maximum(np.sqrt(square), LEAST_NOISE * floor)
    return fixed_poles(lines, eigenvalue, participation, noise, converged)


def fixed_poles(
    lines: Lines, eigenvalue: np.ndarray, participation: np.ndarray, noise: np.ndarray, converged: bool = True
) -> RefinedPoles:
    """Given poles [r] and participations [r, input] with shapes, residual, noise and significance.

    Args:
        lines: the responses.
        eigenvalue: [r], rad/s.
        participation: [r, input]
        noise: weights of the responses: an estimate of sigma [output, input].
        converged: whether the poles are those of a fit that converged.
    """
    participation = participation / largest_of_rows(participation)
    point = _equations(lines, noise, eigenvalue, participation)
    # windows and overlap correlate the noise of neighbouring lines
    errors = (point.remainder / noise).reshape(2, -1, noise.size)
    correlated = correlation_length(errors, np.ones(errors.shape, bool))
    return RefinedPoles(
        eigenvalue,
        participation,
        point.shape,
        point.remainder,
        noise,
        _pole_covariance(lines, noise, eigenvalue, participation, point) * correlated,
        _strength(point, participation) / correlated,
        converged,
    )


def _minimize(
    lines: Lines, noise: np.ndarray, eigenvalue: np.ndarray, participation: np.ndarray
) -> tuple[np.ndarray, np.ndarray, _Equations, bool]:
    """Poles and participations of least cost, the equations there, and whether the iteration converged."""
    participation = participation / largest_of_rows(participation)  # the scale goes to the shape
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
        new = eigenvalue + moves[0]
        # a step may reduce the decay rate of a pole at most to a fifth, so that it stays damped
        new = np.minimum(new.real, 0.2 * eigenvalue.real) + 1j * new.imag
        new_participation = participation + moves[1:].T
        tried = _equations(lines, noise, new, new_participation)
        if tried.cost <= point.cost:
            gain = point.cost - tried.cost
            small = np.max(np.abs(new - eigenvalue) / np.abs(eigenvalue)) < SMALL_STEP
            if damping <= HARDLY:
                variance = np.sum(root[: 2 * eigenvalue.size] ** 2, axis=1) * tried.cost / lines.responses.size
                inside = (np.abs(eigenvalue) > omega[0]) & (np.abs(eigenvalue) < omega[-1])
                far = step[: 2 * eigenvalue.size] ** 2 > SMALL_MOVE**2 * variance
                small |= not far.reshape(-1, 2)[inside].any()
            eigenvalue, participation, point = new, new_participation, tried
            damping = max(damping / 10.0, 1e-12)
            if small or gain <= SMALL_GAIN * point.cost:
                break
        else:
            damping *= 10.0
            if damping > 1e8:
                break
    else:
        return eigenvalue, participation, point, False
    return eigenvalue, participation, point, True


def _equations(lines: Lines, noise: np.ndarray, eigenvalue: np.ndarray, participation: np.ndarray) -> _Equations:
    """Cost and normal equations; a step is [1 + input, r, 2]: pole, then each component of the participation."""
    weight = 1.0 / noise**2
    outputs, inputs = weight.shape
    count = eigenvalue.size
    g, h = pole_functions(lines, eigenvalue), pole_functions(lines, eigenvalue, derivative=1)
    both = np.concatenate([g, h], axis=1).reshape(g.shape[0], -1)
    gram = (both.T @ both).reshape(2, count, 2, 2, count, 2)
    gg, gh, hh = gram[0, :, :, 0], gram[0, :, :, 1], gram[1, :, :, 1]

    psi, root = fitted_shapes(lines, g, gg, participation, weight)
    residue = psi[:, None, :] * participation.T
    remainder = lines.responses - np.tensordot(
        g, np.stack([np.real(residue), np.imag(residue)], axis=-1), axes=((1, 2), (2, 3))
    )

    # derivatives with respect to poles (through h) and participations (through g)
    right = np.tensordot(remainder * weight, both, axes=(0, 0)).reshape(outputs, inputs, 2, count, 2)
    gradient = np.concatenate(
        [
            turned(residue, right[:, :, 1]).sum(axis=(0, 1))[None],
            turned(psi[:, None, :], right[:, :, 0]).sum(axis=0),
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
    columns = cross.reshape(outputs, 2 * count, gradient.size)
    explained = (np.swapaxes(root, 1, 2) @ columns).reshape(outputs * 2 * count, gradient.size)
    reduced = normal.reshape(gradient.size, gradient.size) - explained.T @ explained
    cost = float(np.sum(remainder**2 * weight))
    return _Equations(cost, psi, remainder, gradient, reduced, root, columns)


def _pole_covariance(
    lines: Lines, noise: np.ndarray, eigenvalue: np.ndarray, participation: np.ndarray, point: _Equations
) -> np.ndarray:
    """Covariance of each pole by the noise of each entry, or by the residuals of single lines where this is larger.

    lambda changes by B e, e the errors of the responses, B = N^-1 J^T / sigma^2 with the projected Jacobian J. The
    covariance is B V B^T, V the variance of each entry. Noise that is common to the responses of a line, as that of the
    force, adds up over them: the second estimate sums B e over each line.

    Source: White, Econometrica 48, 817 (1980).
    """
    count, (poles, inputs), free = len(lines.s), participation.shape, _free(participation)
    root = np.zeros((free.size, np.sum(free)))
    root[free] = inverse_root(point.normal[np.ix_(free, free)], LEAST_KNOWN)
    steps = root @ root[: 2 * poles].T
    own, *of_rows = steps.reshape(1 + inputs, 2 * poles, 2 * poles)
    g, h = (pole_functions(lines, eigenvalue, k).reshape(2 * count, 2 * poles) for k in (0, 1))
    by_noise, change = np.zeros((poles, 2, 2)), np.zeros((count, poles, 2))
    for o, psi in enumerate(point.shape):  # one response at a time, for the memory
        of_shapes = solved_by(point.shape_root[o], point.coupling[o] @ steps)
        for i, rows in enumerate(participation.T):
            sensitivity = h @ _times(psi * rows, own) + g @ (_times(psi, of_rows[i]) - _times(rows, of_shapes))
            sensitivity = sensitivity.reshape(2, count, poles, 2) / noise[o, i]
            change += np.einsum("pfrq,pf->frq", sensitivity, point.remainder[:, o, i].reshape(2, count) / noise[o, i])
            sensitivity *= np.sqrt(lines.variance[:, o, i])[:, None, None]
            by_noise += np.einsum("pfrs,pfrt->rst", sensitivity, sensitivity)
    by_line = np.sum(change**2, axis=0)
    known = np.diagonal(by_noise, axis1=1, axis2=2)
    scale = np.sqrt(np.maximum(1.0, by_line / np.where(known > 0.0, known, np.inf)))
    return by_noise * scale[:, :, None] * scale[:, None, :]


def _times(factor: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Columns [2 r, k] of real and imaginary parts times complex factors [r]."""
    pairs = columns.reshape(factor.size, 2, columns.shape[1])
    both = (pairs[:, 0] + 1j * pairs[:, 1]) * factor[:, None]
    return np.stack([both.real, both.imag], axis=1).reshape(columns.shape)


def _strength(point: _Equations, participation: np.ndarray) -> np.ndarray:
    """psi^T C^-1 psi / (2 outputs) of each shape psi, C the covariance of all its components together.

    C = D + M S^-1 M^T: D at fixed poles and participations (one block per output), M the sensitivity of the shape to a
    step in those of the other modes, S the normal matrix of that step. The mode's own pole and participation are fixed:
    they are undefined where the shape is zero, and a participation free to turn into that of a repeated mode would
    transfer the shape to it. C^-1 follows by Woodbury's identity without an inverse of S, which is singular for
    repeated modes: only the plane of their participations is identifiable.
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
        gradient = np.einsum("opk,op->k", steps, weighted)
        inside = point.normal[np.ix_(others, others)]
        inside = inside + np.einsum("opk,opq,oql->kl", steps, inner, steps, optimize=True)
        reduction = np.sum((inverse_root(inside).T @ gradient) ** 2)
        strength[r] = (np.sum(psi * weighted) - reduction) / (2 * outputs)
    return strength


def _free(participation: np.ndarray) -> np.ndarray:
    """Mask of the free components of a step: all but the participation component that is 1."""
    count, inputs = participation.shape
    free = np.ones((1 + inputs, count, 2), bool)
    free[1 + np.argmax(np.abs(participation), axis=1), np.arange(count)] = False
    return free.ravel()
