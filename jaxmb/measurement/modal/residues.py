"""Shapes of known poles, by linear least squares on the responses: the basis of every fit of a modal model.

A response of kind p (0 receptance, 1 mobility, 2 accelerance) from input i to output o is

    H_oi = s^p ( sum_r [ psi_or l_ri / (s - lambda_r) + conj(psi_or l_ri) / (s - conj(lambda_r)) ] + U_oi + L_oi / s^2 )

In real numbers the pair of a pole is two functions g_r [line, 2] (real parts above imaginary parts), and what stands
before them are Re and Im of the product psi_or l_ri. U and L are complex and free for every response, so they are
projected out of functions and responses once, and only the shapes psi are left to solve for.
"""

import dataclasses

import numpy as np

SINGULAR = 1e-10
"""Directions of a scaled normal matrix below this part of its largest one are not solved for."""


@dataclasses.dataclass(frozen=True, eq=False)
class Lines:
    """Responses of some lines as real numbers, without what the residual terms explain."""

    s: np.ndarray
    """j omega, plus the decay of an exponential window [f]."""
    power: int
    """Of s that makes receptance this kind."""
    residual: np.ndarray
    """Orthonormal basis of the residual terms [2 f, 4]."""
    responses: np.ndarray
    """[2 f, output, input], orthogonal to the residual terms."""


def as_lines(s: np.ndarray, frf: np.ndarray, power: int) -> Lines:
    """Real parts above imaginary parts of the responses, with the residual terms projected out."""
    terms = s[:, None] ** np.array([power, power - 2.0])
    residual = np.linalg.qr(_stack(np.hstack([terms, 1j * terms])) / _norms(terms))[0]
    lines = Lines(s, power, residual, np.zeros(0))
    return dataclasses.replace(lines, responses=_without(lines, _stack(frf)))


def pole_functions(lines: Lines, eigenvalue: np.ndarray, derivative: int = 0) -> np.ndarray:
    """Functions of the poles [2 f, r, 2], or their derivatives with respect to the poles; residual terms out."""
    weight = lines.s[:, None] ** lines.power
    a = weight / (lines.s[:, None] - eigenvalue) ** (1 + derivative)
    b = weight / (lines.s[:, None] - eigenvalue.conj()) ** (1 + derivative)
    return _without(lines, _stack(np.stack([a + b, 1j * (a - b)], axis=2)))


def between(left: np.ndarray, gram: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Inner products [..., r, 2, s, 2] of functions times complex factors left [..., r] and right [..., s].

    `gram` [r, 2, s, 2] are the inner products of the functions themselves.
    """
    a, b = np.real(left)[..., :, None, None], np.imag(left)[..., :, None, None]
    half = np.stack([a * gram[:, 0] + b * gram[:, 1], a * gram[:, 1] - b * gram[:, 0]], axis=-3)
    c, d = np.real(right)[..., None, None, :], np.imag(right)[..., None, None, :]
    return np.stack([c * half[..., 0] + d * half[..., 1], c * half[..., 1] - d * half[..., 0]], axis=-1)


def turned(factor: np.ndarray, products: np.ndarray) -> np.ndarray:
    """Inner products [..., r, 2] with data of functions times complex factors [..., r], from those of the functions."""
    both = (products[..., 0] + 1j * products[..., 1]) * factor.conj()
    return np.stack([both.real, both.imag], axis=-1)


def inverse_root(normal: np.ndarray, least: float = SINGULAR) -> np.ndarray:
    """W [..., n, n] with W W^T the inverse of a symmetric normal matrix.

    It is scaled to a unit diagonal first; directions below `least` of the largest one are left out.
    """
    diagonal = np.diagonal(normal, axis1=-2, axis2=-1)
    scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
    values, vectors = np.linalg.eigh(normal * scale[..., :, None] * scale[..., None, :])
    known = values > least * values[..., -1:]
    root = np.where(known, 1.0 / np.sqrt(np.where(known, values, 1.0)), 0.0)
    return scale[..., :, None] * vectors * root[..., None, :]


def solved_by(root: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solutions [..., n, k] of the normal equations of `inverse_root`."""
    return root @ (np.swapaxes(root, -2, -1) @ right)


def shapes(lines: Lines, eigenvalue: np.ndarray, participation: np.ndarray) -> np.ndarray:
    """Shapes [output, r] of poles with their participations [r, input]."""
    g = pole_functions(lines, eigenvalue)
    size = 2 * eigenvalue.size
    gram = np.tensordot(g, g, axes=(0, 0))
    normal = between(participation.T, gram, participation.T).sum(axis=0).reshape(size, size)
    data = np.tensordot(lines.responses, g, axes=(0, 0))
    right = turned(participation.T, data).sum(axis=1)
    solved = solved_by(inverse_root(normal), right.reshape(-1, size).T).reshape(eigenvalue.size, 2, -1)
    return (solved[:, 0] + 1j * solved[:, 1]).T


def residual_terms(
    lines: Lines, frf: np.ndarray, eigenvalue: np.ndarray, shape: np.ndarray, participation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """U and L [output, input], the best for these poles, shapes and participations."""
    bare = dataclasses.replace(lines, residual=np.zeros((2 * lines.s.size, 0)))
    g = pole_functions(bare, eigenvalue)
    product = shape[:, None, :] * participation.T
    left = _stack(frf) - np.tensordot(g, np.stack([np.real(product), np.imag(product)]), axes=((1, 2), (3, 0)))
    terms = lines.s[:, None] ** np.array([lines.power, lines.power - 2.0])
    norm = np.linalg.norm(terms, axis=0)
    complex_left = left[: lines.s.size] + 1j * left[lines.s.size :]
    solved = np.linalg.lstsq(terms / norm, complex_left.reshape(lines.s.size, -1), rcond=None)[0] / norm[:, None]
    upper, lower = solved.reshape(2, *frf.shape[1:])
    return upper, lower


def _stack(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.real(values), np.imag(values)])


def _norms(terms: np.ndarray) -> np.ndarray:
    return np.tile(np.linalg.norm(terms, axis=0), 2)


def _without(lines: Lines, values: np.ndarray) -> np.ndarray:
    flat = values.reshape(values.shape[0], -1)
    return (flat - lines.residual @ (lines.residual.T @ flat)).reshape(values.shape)
