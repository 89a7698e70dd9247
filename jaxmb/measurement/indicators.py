"""Numbers that tell how good modes and FRFs are: collinearity, mode indicator function, agreement, modal scaling.

The modal assurance criterion is `jaxmb.mac`; of shapes with themselves it is the AutoMAC.
"""

import dataclasses

import numpy as np

from jaxmb.measurement.frf_set import FrfSet, split_dof
from jaxmb.measurement.modal_model import ModalModel


@dataclasses.dataclass(frozen=True, eq=False)
class ModalScaling:
    """Scale of modes from driving points, where a response was measured at an input, in its direction."""

    driving_points: tuple[str, ...]
    """The inputs that are outputs too."""
    modal_a: np.ndarray
    """a_r [r], complex, of the model's shapes (largest component 1): residues are shape shape^T / a_r."""
    modal_mass: np.ndarray
    """Re(a_r / (2 j omega_d)) [r], kg for FRFs in SI: the modal mass where damping is proportional."""
    unit_shape: np.ndarray
    """Shapes [output, r] scaled to a_r = 1."""
    misfit: np.ndarray
    """How far participations and shapes are from reciprocal at the driving points [r], 0 to 1; 0 where there is one."""


def phase_collinearity(shape: np.ndarray) -> np.ndarray:
    """Modal phase collinearity (MPC) of shapes [o, r]: 1 where all components are in phase or opposed, so for real modes.

    MPC = ((Sxx - Syy)^2 + 4 Sxy^2) / (Sxx + Syy)^2, sums over real and imaginary parts; it does not depend on scaling.

    Source: Juang and Pappa, "An eigensystem realization algorithm for modal parameter identification and model
    reduction", J. Guidance 8(5), 1985, in the form of Vacher et al., ISMA 2010.
    """
    xx, yy = np.sum(shape.real**2, axis=0), np.sum(shape.imag**2, axis=0)
    xy = np.sum(shape.real * shape.imag, axis=0)
    return ((xx - yy) ** 2 + 4.0 * xy**2) / (xx + yy) ** 2


def phase_deviation(shape: np.ndarray) -> np.ndarray:
    """Mean phase deviation (MPD) of shapes [o, r] from their mean phase, rad: 0 for real modes.

    The mean phase is the line through the origin of the complex plane that is nearest to all components (largest right
    singular vector of [Re, Im]); each deviation, folded to 0 to pi/2, counts by the size of its component.

    Source: Heylen, Lammens and Sas, "Modal analysis theory and testing", 1997; by SVD as in Reynders, Houbrechts and De
    Roeck, MSSP 29, 2012.
    """
    direction = np.linalg.svd(np.stack([shape.real.T, shape.imag.T], axis=2), full_matrices=False)[2][:, 0]
    size = np.abs(shape)
    along = np.abs(shape.real * direction[:, 0] + shape.imag * direction[:, 1])
    deviation = np.arccos(np.minimum(along / np.where(size > 0.0, size, 1.0), 1.0))
    return np.sum(size * deviation, axis=0) / np.sum(size, axis=0)


def mode_indicator(frf_set: FrfSet) -> np.ndarray:
    """Complex mode indicator function (CMIF): singular values [f, min(output, input)] of the FRF matrix at each line.

    A peak of the first one is a mode, a peak of the second one at the same place a second mode there. NaN at lines with
    a value that is not finite.

    Source: Shih, Tsuei, Allemang and Brown, "Complex mode indication function and its applications to spatial domain
    parameter estimation", MSSP 2(4), 1988.
    """
    values = np.full((frf_set.frequency_hz.size, min(frf_set.frf.shape[1:])), np.nan)
    good = frf_set.finite.all(axis=(1, 2))
    values[good] = np.linalg.svd(frf_set.frf[good], compute_uv=False)
    return values


def frf_assurance(a: FrfSet, b: FrfSet) -> np.ndarray:
    """Frequency response assurance criterion (FRAC) of each response [output, input]: 1 alike up to a factor, 0 not.

    FRAC = |sum_f conj(a) b|^2 / (sum_f |a|^2 sum_f |b|^2), over the lines at which both are finite; NaN where one of
    them is zero everywhere.

    Raises:
        ValueError: the sets do not have the same kind, lines, outputs and inputs.

    Source: Heylen and Lammens, "FRAC: a consistent way of comparing frequency response functions", 1996.
    """
    for what in ("kind", "outputs", "inputs"):
        if getattr(a, what) != getattr(b, what):
            raise ValueError(f"{what} of the FRFs are {getattr(a, what)} and {getattr(b, what)}, expected the same")
    if a.frequency_hz.shape != b.frequency_hz.shape or not np.allclose(a.frequency_hz, b.frequency_hz, rtol=1e-9):
        raise ValueError(
            f"the FRFs have {a.frequency_hz.size} and {b.frequency_hz.size} lines, expected the same frequencies"
        )
    both = a.finite & b.finite
    x, y = np.where(both, a.frf, 0.0), np.where(both, b.frf, 0.0)
    size = np.sum(np.abs(x) ** 2, axis=0) * np.sum(np.abs(y) ** 2, axis=0)
    return np.where(size > 0.0, np.abs(np.sum(x.conj() * y, axis=0)) ** 2, np.nan) / np.where(size > 0.0, size, 1.0)


def modal_scaling(model: ModalModel) -> ModalScaling:
    """Modal A, modal mass and unit-A shapes from the driving points of a model.

    By reciprocity participation_ri = shape_ri / a_r at driving points i; 1 / a_r is the best for all of them together.

    Raises:
        ValueError: no input is an output too.

    Source: Allemang and Brown, "A correlation coefficient for modal vector analysis", IMAC 1, 1982; Ewins, "Modal
    testing", 2nd ed., 2000, section 2.8.
    """
    pairs = []
    for i, name in enumerate(model.inputs):
        for text, sign in ((name, 1.0), (_opposite(name), -1.0)):
            if text in model.outputs:
                pairs.append((model.outputs.index(text), i, sign))
                break
    if not pairs:
        raise ValueError(
            f"no input is an output too: inputs {', '.join(model.inputs[:10])}, outputs {', '.join(model.outputs[:10])}"
        )
    outputs, inputs, signs = (np.array(column) for column in zip(*pairs, strict=True))
    shape = (model.shape[outputs] * signs[:, None]).T
    participation = model.participation[:, inputs]
    inverse = np.sum(shape.conj() * participation, axis=1) / np.sum(np.abs(shape) ** 2, axis=1)
    left = participation - inverse[:, None] * shape
    modal_a = 1.0 / inverse
    return ModalScaling(
        driving_points=tuple(model.inputs[i] for i in inputs),
        modal_a=modal_a,
        modal_mass=np.real(modal_a / (2j * model.eigenvalue.imag)),
        unit_shape=model.shape * np.sqrt(inverse),
        misfit=np.linalg.norm(left, axis=1) / np.linalg.norm(participation, axis=1),
    )


def _opposite(name: str) -> str:
    """The degree of freedom against this one; a text that names none where the direction is not known."""
    try:
        node, direction, sign = split_dof(name)
    except ValueError:
        return ""
    return f"{node} {direction if sign < 0 else '-' + direction}"
