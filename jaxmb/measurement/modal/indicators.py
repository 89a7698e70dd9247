"""Numbers that judge FRFs and mode shapes: FRAC, CMIF, phase collinearity and deviation, modal scaling.

The modal assurance criterion is `jaxmb.response.modal.mac`; AutoMAC is that of a set of shapes with itself.
"""

import numpy as np

from jaxmb.measurement.frf_set import split_dof
from jaxmb.measurement.modal.model import ModalModel

FEW_SENSORS = 3
"""Sensors that are too few to distinguish shapes."""


def frac(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Frequency response assurance criterion [output, input] of two sets [freq, output, input]: 1 alike, 0 not at all.

    FRAC = |sum a conj(b)|^2 / (sum |a|^2 sum |b|^2), sums over the lines at which both are finite; NaN where none is.

    Raises:
        ValueError: the sets differ in shape.

    Source: Heylen, Lammens, "FRAC: a consistent way of comparing frequency response functions", 1996.
    """
    if a.shape != b.shape or a.ndim != 3:
        raise ValueError(f"the responses are {a.shape} and {b.shape}, expected the same [freq, output, input]")
    both = np.isfinite(a) & np.isfinite(b)
    a, b = _in_parts_of_the_largest(np.where(both, a, 0.0)), _in_parts_of_the_largest(np.where(both, b, 0.0))
    power = np.sum(np.abs(a) ** 2, axis=0) * np.sum(np.abs(b) ** 2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.abs(np.sum(a * b.conj(), axis=0)) ** 2 / power


def _in_parts_of_the_largest(h: np.ndarray) -> np.ndarray:
    """Each response over its largest value: squares of very small ones would all be zero."""
    largest = np.abs(h).max(axis=0)
    return h / np.where(largest > 0.0, largest, 1.0)


def cmif(frf: np.ndarray) -> np.ndarray:
    """Complex mode indicator [freq, min(output, input)]: singular values of the FRF matrix at each line, descending.

    What is not finite counts as zero. Peaks of the first mark modes; peaks of the second at the same line mark close or
    repeated ones. (Some authors plot the squares.)

    Source: Shih, Tsuei, Allemang, Brown, Mechanical Systems and Signal Processing 2(4), 1988, 367-377.
    """
    return np.linalg.svd(np.where(np.isfinite(frf), frf, 0.0), compute_uv=False)


def modal_phase_collinearity(shape: np.ndarray) -> float:
    """MPC of a shape [n]: 1 where all components move in phase or in opposition, 0 where no phase stands out.

    MPC = ((Sxx - Syy)^2 + 4 Sxy^2) / (Sxx + Syy)^2, Sxx, Syy, Sxy the products of its real and imaginary parts.

    Source: Pappa, Elliott, Schenk, Journal of Guidance, Control, and Dynamics 16(5), 1993, 860-868.
    """
    x, y = np.real(shape), np.imag(shape)
    xx, yy, xy = x @ x, y @ y, x @ y
    return float(((xx - yy) ** 2 + 4.0 * xy**2) / (xx + yy) ** 2)


def modal_phase_deviation(shape: np.ndarray) -> float:
    """MPD of a shape [n], rad: mean angle of its components to the line through them, weighted by their size.

    Source: Heylen, Lammens, Sas, Modal Analysis Theory and Testing, 1997, A.5.
    """
    parts = np.stack([np.real(shape), np.imag(shape)], axis=1)
    _, _, right = np.linalg.svd(parts, full_matrices=False)
    size = np.abs(shape)
    cosine = np.abs(parts @ right[0]) / np.where(size > 0.0, size, 1.0)
    return float(np.sum(size * np.arccos(np.clip(cosine, 0.0, 1.0))) / np.sum(size))


def modal_scaling(model: ModalModel) -> np.ndarray:
    """Q [r] of every mode: participation = Q shape at the driving points, the residue Q shape shape^T.

    Least squares over all degrees of freedom at which both force and response were measured.

    Raises:
        ValueError: there is no such driving point.
    """
    outputs = {name: (i, sign) for i, (name, sign) in enumerate(map(_unsigned, model.outputs))}
    inputs = enumerate(map(_unsigned, model.inputs))
    pairs = [(*outputs[name], i, sign) for i, (name, sign) in inputs if name in outputs]
    if not pairs:
        raise ValueError("no force was measured where a response was, expected a driving point for the modal scaling")
    rows, columns = [o for o, _, _, _ in pairs], [i for _, _, i, _ in pairs]
    signs = np.array([a * b for _, a, _, b in pairs], dtype=float)
    shape, participation = model.shape[rows], signs[:, None] * model.participation[:, columns].T
    return np.sum(shape.conj() * participation, axis=0) / np.sum(np.abs(shape) ** 2, axis=0)


def modal_mass(model: ModalModel) -> np.ndarray:
    """Modal mass [r] of each shape as it is scaled, from the driving points: real for a proportionally damped mode.

    Q = 1 / (2 j omega_d m), so that unit mass is m = 1 for the shape divided by sqrt(m).

    Raises:
        ValueError: there is no driving point.

    Source: Ewins, Modal Testing, 2nd ed., section 2.5.
    """
    return 1.0 / (2j * np.imag(model.eigenvalue) * modal_scaling(model))


def _unsigned(name: str) -> tuple[str, int]:
    """Degree of freedom without its sign, and the sign."""
    try:
        node, direction, sign = split_dof(name)
    except ValueError:
        return name, 1
    return f"{node} {direction}", sign


def distinguishable(sensors: int, *modes: int) -> bool:
    """Whether that many sensors distinguish the shapes of that many modes, so that their MAC is informative."""
    return sensors > FEW_SENSORS and min(modes) > 0 and max(modes) <= sensors
