"""Data of a modal analysis (band, references, finite responses) and indicators of FRFs and mode shapes."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmb.io.validation import check_distinct
from jaxmb.measurement.frf_set import (
    UNKNOWN,
    FrfSet,
    check_same,
    dof_indices,
    in_band,
    select_channels,
    select_lines,
    unit_scale,
)
from jaxmb.measurement.modal.model import ModalModel

FEW_SENSORS = 3
"""Number of sensors up to which mode shapes are not distinguishable."""


def frac(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Frequency response assurance criterion [output, input] of two sets [freq, output, input]: 1 equal up to a factor.

    FRAC = |sum a conj(b)|^2 / (sum |a|^2 sum |b|^2), sums over the lines at which both are finite; NaN where none is.

    Raises:
        ValueError: the sets differ in shape.

    Source: Heylen, Lammens, "FRAC: a consistent way of comparing frequency response functions", 1996.
    """
    if a.shape != b.shape or a.ndim != 3:
        raise ValueError(f"the responses are {a.shape} and {b.shape}, expected the same [freq, output, input]")
    both = np.isfinite(a) & np.isfinite(b)
    a, b = np.where(both, a, 0.0), np.where(both, b, 0.0)
    power = np.sum(np.abs(a) ** 2, axis=0) * np.sum(np.abs(b) ** 2, axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.abs(np.sum(a * b.conj(), axis=0)) ** 2 / power


def cmif(frf: np.ndarray) -> np.ndarray:
    """Complex mode indicator [freq, min(output, input)]: singular values of the FRF matrix at each line, descending.

    Values that are not finite count as zero. Peaks of the first mark modes; simultaneous peaks of the second mark close
    or repeated modes. (Some authors plot the squares.)

    Source: Shih, Tsuei, Allemang, Brown, Mechanical Systems and Signal Processing 2(4), 1988, 367-377.
    """
    return np.linalg.svd(np.where(np.isfinite(frf), frf, 0.0), compute_uv=False)


def modal_phase_collinearity(shape: np.ndarray) -> float:
    """MPC of a shape [n]: 1 where all components are in phase or in opposition, 0 where no phase dominates.

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

    Least squares over all degrees of freedom at which both force and response were measured. Names without a direction,
    such as numbers, match nothing: an equal index is not an equal degree of freedom.

    Raises:
        ValueError: there is no such driving point.
    """
    outputs, inputs = dof_indices(model.outputs), dof_indices(model.inputs)
    both = [dof for dof in inputs if dof in outputs]
    if not both:
        raise ValueError("no force was measured where a response was, expected a driving point for the modal scaling")
    rows, columns = [outputs[dof][0] for dof in both], [inputs[dof][0] for dof in both]
    signs = np.array([outputs[dof][1] * inputs[dof][1] for dof in both], dtype=float)
    shape, participation = model.shape[rows], signs[:, None] * model.participation[:, columns].T
    return np.sum(shape.conj() * participation, axis=0) / np.sum(np.abs(shape) ** 2, axis=0)


def modal_mass(model: ModalModel) -> np.ndarray:
    """Modal mass [r] of each shape as scaled, from the driving points: real for a proportionally damped mode.

    Q = 1 / (2 j omega_d m), so that unit mass is m = 1 for the shape divided by sqrt(m). In kg, or in the unit of force
    over that of acceleration of the FRFs where it is unknown.

    Raises:
        ValueError: there is no driving point.

    Source: Ewins, Modal Testing, 2nd ed., section 2.5.
    """
    unit = 1.0 if model.unit == UNKNOWN else unit_scale(model.unit, model.kind)
    return 1.0 / (2j * np.imag(model.eigenvalue) * modal_scaling(model) * unit)


def distinguishable(sensors: int, *modes: int) -> bool:
    """Whether the MAC is informative: the sensors distinguish the shapes of these numbers of modes."""
    return sensors > FEW_SENSORS and min(modes) > 0 and max(modes) <= sensors


ZERO = 1e-30
"""Ratio to the largest response below which an input or output counts as zero; below the range of any sensor."""
MOST_MISSING = 0.5
"""Share of missing lines above which a response is omitted rather than these lines of all responses."""


@dataclasses.dataclass(frozen=True, eq=False)
class ModalData:
    """Finite responses of the band, with the references as the last axis."""

    frf_set: FrfSet
    """The outputs, inputs and lines that are used."""
    transposed: bool
    """Whether the references are the outputs."""
    lost: int
    """Number of lines of the band omitted because a response is not finite there."""
    remarks: tuple[str, ...]
    """Omitted channels and lines, with the reason."""

    @property
    def responses(self) -> np.ndarray:
        """[f, other side, reference]."""
        frf = self.frf_set.frf
        return frf.transpose(0, 2, 1) if self.transposed else frf


@dataclasses.dataclass(frozen=True, eq=False)
class SingleHits:
    """Responses to the single hits behind averaged ones."""

    responses: np.ndarray
    """[f, hit, output]"""
    point: np.ndarray
    """Index of the input of each hit [hit]."""

    def averaged(self, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Weighted means [..., input, n] over the hits of each input, of values [..., hit, n] with weights [hit]."""
        share = np.equal.outer(np.arange(self.point.max() + 1), self.point) * weight
        return (share / share.sum(axis=1, keepdims=True)) @ values


def single_hits(data: ModalData, hits: Sequence[FrfSet]) -> SingleHits:
    """Responses to single hits at the lines, inputs and outputs used.

    Args:
        data: the averages.
        hits: sets of one input each, with the lines of the averages. Hits with a value that is not finite are omitted.

    Raises:
        ValueError: a hit is not of the kind, unit, window, lines and outputs of the averages, or an input has none.
    """
    used, found, point = data.frf_set, [], []
    of_name = {name: number for number, name in enumerate(used.inputs)}
    # a point may have been hit from both sides
    of_name = {name.replace(" -", " "): number for name, number in of_name.items()} | of_name
    for number, hit in enumerate(hits, 1):
        check_same(hit, used, ("kind", "unit", "decay_1_s"), f"hit {number}", "the averages")
        if len(hit.inputs) != 1:
            raise ValueError(f"hit {number} has {len(hit.inputs)} inputs, expected one")
        at = of_name.get(hit.inputs[0], of_name.get(hit.inputs[0].replace(" -", " ")))
        if at is not None:
            frf = select_channels(hit, used.outputs, used.inputs[at : at + 1]).frf[:, :, 0]
            frf = frf[np.isin(hit.frequency_hz, used.frequency_hz)]
            if len(frf) != used.frequency_hz.size:
                raise ValueError(f"hit {number} has {len(frf)} of the {used.frequency_hz.size} lines of the averages")
            if np.isfinite(frf).all():
                found.append(frf)
                point.append(at)
    for at, name in enumerate(used.inputs):
        if at not in point:
            raise ValueError(f"no hit at input '{name}' has only finite values, expected hits at each input")
    return SingleHits(np.stack(found, axis=1), np.array(point))


def modal_data(frf_set: FrfSet, band_hz: tuple[float, float] | None, references: Sequence[str] | None) -> ModalData:
    """Lines, references and finite responses selected for an analysis.

    Args:
        frf_set: the measurement.
        band_hz: lines from low to high; all of them where None.
        references: the inputs to use, or the outputs (with a roving hammer); where None, or where all names are both,
            whichever are fewer.

    Raises:
        ValueError: band or references are not in the set, nothing finite is left, or all responses are real.
    """
    used = frf_set if band_hz is None else in_band(frf_set, band_hz)
    remarks: list[str] = []
    transposed = len(used.inputs) > len(used.outputs)
    if references is not None:
        transposed = _are_outputs(used, references)
        check_distinct(references, "reference '{}' occurs more than once, expected different ones")
        used = select_channels(used, outputs=references) if transposed else select_channels(used, inputs=references)
    static = (used.frequency_hz == 0.0) & (used.decay_1_s == 0.0)
    used = _finite_channels(used, static, remarks)
    good = used.finite.all(axis=(1, 2))
    if not good.all():
        bad = used.frequency_hz[~good]
        remarks.append(
            f"{bad.size} of {good.size} lines are omitted, {bad[0]:.6g} to {bad[-1]:.6g} Hz:"
            " a response is not finite there"
        )
    if static.any():
        remarks.append("the line at 0 Hz is omitted: residual terms are not finite there")
    if not np.any(good & ~static):
        raise ValueError(f"no line of '{frf_set.source}' in the band has only finite responses")
    used = select_lines(used, good & ~static)
    if not np.imag(used.frf).any():
        raise ValueError("all FRFs are real, as magnitudes or dB: expected complex values")
    return ModalData(used, transposed, int(np.sum(~good)), tuple(remarks))


def _are_outputs(frf_set: FrfSet, references: Sequence[str]) -> bool:
    """Whether the references are outputs rather than inputs; names of both, as of driving points: of the fewer."""
    if not isinstance(references, Sequence) or isinstance(references, str) or not references:
        raise ValueError(f"references are {references!r}, expected a list of inputs or of outputs")
    inputs, outputs = frf_set.inputs, frf_set.outputs
    sides = ((outputs, True), (inputs, False)) if len(inputs) > len(outputs) else ((inputs, False), (outputs, True))
    for side, transposed in sides:
        if all(name in side for name in references):
            return transposed
    missing = next(name for name in references if name not in frf_set.inputs)
    raise ValueError(
        f"reference '{missing}' is not in the set, expected inputs such as {', '.join(frf_set.inputs[:10])}"
        f" or outputs such as {', '.join(frf_set.outputs[:10])}"
    )


def _finite_channels(frf_set: FrfSet, static: np.ndarray, remarks: list[str]) -> FrfSet:
    """The set without inputs and outputs with responses that are mostly not finite, those with the largest share of
    such responses first, or zero on all lines that remain."""
    lacking = (~frf_set.finite).mean(axis=0) > MOST_MISSING
    bad_outputs, bad_inputs = np.zeros(len(frf_set.outputs), bool), np.zeros(len(frf_set.inputs), bool)
    while (left := lacking & ~bad_inputs & ~bad_outputs[:, None]).any():
        of_outputs, of_inputs = left.sum(axis=1) / np.sum(~bad_inputs), left.sum(axis=0) / np.sum(~bad_outputs)
        if of_inputs.max() > of_outputs.max():
            bad_inputs[np.argmax(of_inputs)] = True
        else:
            bad_outputs[np.argmax(of_outputs)] = True
    kept = ~bad_inputs & ~bad_outputs[:, None]
    lines = (frf_set.finite | ~kept).all(axis=(1, 2)) & ~static
    size = np.abs(np.where(frf_set.finite & kept, frf_set.frf, 0.0))[lines if lines.any() else slice(None)].max(axis=0)
    silent_outputs = (size.max(axis=1) <= ZERO * size.max()) & ~bad_outputs
    silent_inputs = (size.max(axis=0) <= ZERO * size.max()) & ~bad_inputs
    inputs = [name for name, bad in zip(frf_set.inputs, bad_inputs | silent_inputs, strict=True) if not bad]
    outputs = [name for name, bad in zip(frf_set.outputs, bad_outputs | silent_outputs, strict=True) if not bad]
    if not inputs or not outputs:
        raise ValueError(f"no output of '{frf_set.source}' has finite responses in the band that are not all zero")
    for what, names, bad, why in (
        ("input", frf_set.inputs, bad_inputs, "most values of a response are not finite"),
        ("output", frf_set.outputs, bad_outputs, "most values of a response are not finite"),
        ("input", frf_set.inputs, silent_inputs, "it is zero on all lines used"),
        ("output", frf_set.outputs, silent_outputs, "it is zero on all lines used"),
    ):
        remarks += [f"{what} '{name}' is omitted: {why}" for name, out in zip(names, bad, strict=True) if out]
    return select_channels(frf_set, outputs, inputs)
