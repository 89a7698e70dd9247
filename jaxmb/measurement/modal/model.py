"""Modal model (poles, shapes, participations, residual terms), FRFs synthesized from it, and its linear algebra."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmb.measurement.frf_set import FrfSet, largest_of_rows
from jaxmb.response.frf_kind import DERIVATIVES, FrfKind


@dataclasses.dataclass(frozen=True, eq=False)
class ModalModel:
    """Modes of a structure as measured between outputs and inputs.

    H_oi(s) = s^p ( sum_r [ R_oir / (s - lambda_r) + conj(R_oir) / (s - conj(lambda_r)) ] + U_oi + L_oi / s^2 ),

    R_oir = shape_or participation_ri, s = j omega and p = 0, 1, 2 for receptance, mobility, accelerance. Residues and
    residual terms are those of the receptance, in its unit: `unit` over s^p. U represents modes above the band, L modes
    below it (the inverse mass of a free structure). The poles `beyond` contribute to the lines but are not modes of
    this model: they are out of band, have an implausible damping, or were not selected.
    """

    eigenvalue: np.ndarray
    """[r], rad/s, Im > 0, by ascending |eigenvalue|; without the decay of an exponential window."""
    shape: np.ndarray
    """[output, r], the largest component 1."""
    participation: np.ndarray
    """[r, input], with the scale of the residues."""
    pole_covariance: np.ndarray
    """Covariance of Re and Im of each eigenvalue [r, 2, 2], (rad/s)^2; NaN where not known."""
    upper_residual: np.ndarray
    """U [output, input], complex."""
    lower_residual: np.ndarray
    """L [output, input], complex; -L / omega^2 in receptance."""
    beyond_eigenvalue: np.ndarray
    """[k], rad/s."""
    beyond_shape: np.ndarray
    """[output, k]"""
    beyond_participation: np.ndarray
    """[k, input]"""
    kind: FrfKind
    unit: str
    """Unit of FRFs of this kind."""
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    band_hz: tuple[float, float]

    @property
    def frequency_hz(self) -> np.ndarray:
        """|lambda| / 2 pi [r]."""
        return np.abs(self.eigenvalue) / (2 * np.pi)

    @property
    def damped_frequency_hz(self) -> np.ndarray:
        """Im(lambda) / 2 pi [r]."""
        return np.imag(self.eigenvalue) / (2 * np.pi)

    @property
    def damping_ratio(self) -> np.ndarray:
        """-Re(lambda) / |lambda| [r]."""
        return -np.real(self.eigenvalue) / np.abs(self.eigenvalue)

    @property
    def points(self) -> tuple[str, ...]:
        """Degrees of freedom of `mode_shape`: the outputs, or the inputs where these are more (roving hammer)."""
        return self.inputs if len(self.inputs) > len(self.outputs) else self.outputs

    @property
    def mode_shape(self) -> np.ndarray:
        """[point, r], largest component 1: shapes, or participations where there are more inputs than outputs."""
        if len(self.inputs) <= len(self.outputs):
            return self.shape
        return (self.participation / largest_of_rows(self.participation)).T

    @property
    def frequency_std_hz(self) -> np.ndarray:
        """Standard deviation of `frequency_hz` [r] by noise, and of the mean where frequencies vary."""
        gradient = (
            np.column_stack([np.real(self.eigenvalue), np.imag(self.eigenvalue)]) / np.abs(self.eigenvalue)[:, None]
        )
        return np.sqrt(np.einsum("ri,rij,rj->r", gradient, self.pole_covariance, gradient)) / (2 * np.pi)

    @property
    def damping_std(self) -> np.ndarray:
        """Standard deviation of `damping_ratio` [r], as that of `frequency_hz`."""
        return damping_std(self.eigenvalue, self.pole_covariance)


def damping_std(eigenvalue: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """Standard deviation of -Re(lambda) / |lambda| [r] from the covariance of Re and Im of lambda [r, 2, 2]."""
    re, im = np.real(eigenvalue), np.imag(eigenvalue)
    gradient = np.stack([-(im**2), re * im], axis=1) / np.abs(eigenvalue)[:, None] ** 3
    return np.sqrt(np.einsum("ri,rij,rj->r", gradient, covariance, gradient))


def synthesize(
    model: ModalModel, frequency_hz: Sequence[float] | np.ndarray, residual_terms: bool = True, decay_1_s: float = 0.0
) -> FrfSet:
    """The FRFs of a modal model, of its kind, unit, outputs and inputs.

    Args:
        model: from `modal_analysis`.
        frequency_hz: where [f].
        residual_terms: whether to include U, L and the poles beyond, rather than the modes alone.
        decay_1_s: decay rate of an exponential window to apply, 1/s: H(j omega + decay).

    Raises:
        ValueError: the frequencies are no valid axis, or include 0 Hz where L makes the response infinite.
    """
    frequency_hz = np.asarray(frequency_hz, float)
    s = 2j * np.pi * frequency_hz + decay_1_s
    power = DERIVATIVES[model.kind]
    h = _pole_sum(s, model.eigenvalue, model.shape, model.participation)
    if residual_terms:
        if np.any(s == 0.0) and power < 2:
            raise ValueError(f"frequency_hz holds 0 Hz, where the lower residual of {model.kind} is infinite")
        beyond = _pole_sum(s, model.beyond_eigenvalue, model.beyond_shape, model.beyond_participation)
        h = h + beyond + model.upper_residual
        h = h * s[:, None, None] ** power + s[:, None, None] ** (power - 2.0) * model.lower_residual
    else:
        h = h * s[:, None, None] ** power
    return FrfSet(
        frequency_hz,
        h,
        model.kind,
        model.outputs,
        model.inputs,
        decay_1_s=decay_1_s,
        unit=model.unit,
        source="modal model",
    )


def _pole_sum(s: np.ndarray, eigenvalue: np.ndarray, shape: np.ndarray, participation: np.ndarray) -> np.ndarray:
    residue = shape[:, None, :] * participation.T[None, :, :]
    a, b = 1.0 / (s[:, None] - eigenvalue), 1.0 / (s[:, None] - eigenvalue.conj())
    return np.tensordot(a, residue, axes=(1, 2)) + np.tensordot(b, residue.conj(), axes=(1, 2))


SINGULAR = 1e-10
"""Relative eigenvalue of a scaled normal matrix below which a direction is not solved for."""


@dataclasses.dataclass(frozen=True, eq=False)
class Lines:
    """Responses as real numbers, each line over its noise, with the residual terms projected out."""

    s: np.ndarray
    """j omega, plus the decay of an exponential window [f]."""
    power: int
    """Power of s that converts receptance to this kind."""
    residual: np.ndarray
    """Orthonormal basis of the residual terms [2 f, 4]."""
    responses: np.ndarray
    """[2 f, output, input], orthogonal to the residual terms."""
    level: np.ndarray
    """Noise of each line, the least 1 [f]: by it all rows are divided."""
    variance: np.ndarray
    """Relative variance of the noise in these rows, the mean of each response 1 [f, output, input]."""


def as_lines(s: np.ndarray, frf: np.ndarray, power: int, variance: np.ndarray | None = None) -> Lines:
    """Lines of responses.

    Args:
        s: j omega, plus the decay of an exponential window [f].
        frf: responses [f, output, input].
        power: see `Lines`.
        variance: of the noise, relative to that of each response [f, output, input]; constant where None.
    """
    relative = np.ones(frf.shape) if variance is None else variance
    level = np.sqrt(np.mean(relative, axis=(1, 2)))
    level = level / level.min()
    relative = relative / level[:, None, None] ** 2
    relative = relative / np.mean(relative, axis=0)
    terms = s[:, None] ** np.array([power, power - 2.0]) / level[:, None]
    residual = np.linalg.qr(_stack(np.hstack([terms, 1j * terms])) / np.tile(np.linalg.norm(terms, axis=0), 2))[0]
    return Lines(s, power, residual, _without(residual, _stack(frf / level[:, None, None])), level, relative)


def pole_functions(lines: Lines, eigenvalue: np.ndarray, derivative: int = 0) -> np.ndarray:
    """Functions of the poles [2 f, r, 2], or their derivatives by the poles, with the residual terms projected out."""
    weight = lines.s[:, None] ** lines.power / lines.level[:, None]
    a = weight / (lines.s[:, None] - eigenvalue) ** (1 + derivative)
    b = weight / (lines.s[:, None] - eigenvalue.conj()) ** (1 + derivative)
    return _without(lines.residual, _stack(np.stack([a + b, 1j * (a - b)], axis=2)))


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

    It is scaled to a unit diagonal first; directions with a relative eigenvalue below `least` are omitted.
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
    gram = np.tensordot(g, g, axes=(0, 0))
    return fitted_shapes(lines, g, gram, participation, np.ones((1, participation.shape[1])))[0]


def fitted_shapes(
    lines: Lines, g: np.ndarray, gram: np.ndarray, participation: np.ndarray, weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Shapes [output, r] by weighted least squares, all inputs of an output together, and the root of their covariance
    [output, 2 r, 2 r] (see `inverse_root`).

    Args:
        lines: the responses.
        g: `pole_functions` of the poles.
        gram: inner products of these [r, 2, r, 2].
        participation: [r, input]
        weight: of each response [output, input]; or [1, input] for all outputs, which then have one root.
    """
    outputs, count = lines.responses.shape[1], len(participation)
    normal = np.tensordot(weight, between(participation.T, gram, participation.T), axes=1)
    root = inverse_root(normal.reshape(len(weight), 2 * count, 2 * count))
    right = turned(participation.T, np.tensordot(lines.responses, g, axes=(0, 0)))
    right = np.sum(weight[:, :, None, None] * right, axis=1).reshape(outputs, 2 * count, 1)
    solved = solved_by(root, right).reshape(outputs, count, 2)
    return solved[..., 0] + 1j * solved[..., 1], root


def residual_terms(
    lines: Lines, frf: np.ndarray, eigenvalue: np.ndarray, shape: np.ndarray, participation: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Least-squares U and L [output, input] for given poles, shapes and participations."""
    modes = lines.s[:, None, None] ** lines.power * _pole_sum(lines.s, eigenvalue, shape, participation)
    values = (frf - modes) / lines.level[:, None, None]
    terms = lines.s[:, None] ** np.array([lines.power, lines.power - 2.0]) / lines.level[:, None]
    norm = np.linalg.norm(terms, axis=0)
    solved = np.linalg.lstsq(terms / norm, values.reshape(lines.s.size, -1), rcond=None)[0] / norm[:, None]
    upper, lower = solved.reshape(2, *frf.shape[1:])
    return upper, lower


def _stack(values: np.ndarray) -> np.ndarray:
    return np.concatenate([np.real(values), np.imag(values)])


def _without(basis: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Values [2 f, ...] with the columns of an orthonormal basis projected out."""
    flat = values.reshape(values.shape[0], -1)
    return (flat - basis @ (basis.T @ flat)).reshape(values.shape)
