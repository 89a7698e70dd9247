"""What of measured FRFs goes into a modal analysis: band, references, and what is finite."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from jaxmb.measurement.frf_set import FrfSet, in_band, lines, pick, repeated

ZERO = 1e-30
"""Part of the largest response of a set up to which an input or output is zero: no sensor reaches as far."""
MOST_MISSING = 0.5
"""A response that lacks more than this part of its lines is left out, and not its lines in all others."""


@dataclasses.dataclass(frozen=True, eq=False)
class ModalData:
    """Finite responses of the band, with the references as the last axis."""

    frf_set: FrfSet
    """The outputs, inputs and lines that are used."""
    transposed: bool
    """The references are the outputs."""
    lost: int
    """Lines of the band that are left out because some response is not finite there."""
    remarks: tuple[str, ...]
    """What was left out, and why."""

    @property
    def responses(self) -> np.ndarray:
        """[f, other side, reference]."""
        frf = self.frf_set.frf
        return frf.transpose(0, 2, 1) if self.transposed else frf

    @property
    def s(self) -> np.ndarray:
        """j omega plus the decay rate of the exponential window [f]."""
        return 2j * np.pi * self.frf_set.frequency_hz + self.frf_set.decay_1_s


@dataclasses.dataclass(frozen=True, eq=False)
class SingleHits:
    """Responses to the single hits behind averaged ones."""

    responses: np.ndarray
    """[f, hit, output]"""
    point: np.ndarray
    """Which of the inputs was hit [hit]."""

    def averaged(self, values: np.ndarray, weight: np.ndarray) -> np.ndarray:
        """Weighted means [..., input, n] over the hits of each input, of values [..., hit, n] with weights [hit]."""
        share = np.equal.outer(np.arange(self.point.max() + 1), self.point) * weight
        return (share / share.sum(axis=1, keepdims=True)) @ values


def single_hits(data: ModalData, hits: Sequence[FrfSet]) -> SingleHits:
    """Responses to single hits on the lines, inputs and outputs that are used.

    Args:
        data: the averages.
        hits: sets of one input each, with the lines of the averages. Hits with a value that is not finite are left out.

    Raises:
        ValueError: a hit is not of the kind, unit, window, lines and outputs of the averages, or an input has none.
    """
    used, found, point = data.frf_set, [], []
    place = {name.replace(" -", " "): number for number, name in enumerate(used.inputs)}
    for number, hit in enumerate(hits, 1):
        for what in ("kind", "unit", "decay_1_s"):
            if getattr(hit, what) != getattr(used, what):
                wanted = getattr(used, what)
                raise ValueError(
                    f"{what} of hit {number} is {getattr(hit, what)!r}, expected {wanted!r} as in the averages"
                )
        if len(hit.inputs) != 1:
            raise ValueError(f"hit {number} has {len(hit.inputs)} inputs, expected one")
        at = place.get(hit.inputs[0].replace(" -", " "))
        if at is not None:
            frf = pick(hit, used.outputs, used.inputs[at : at + 1]).frf[:, :, 0]
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
    """Choose lines, references and finite responses.

    Args:
        frf_set: what was measured.
        band_hz: lines from low to high; all of them where None.
        references: the inputs to use, or the outputs (with a roving hammer); where None, whichever are fewer.

    Raises:
        ValueError: band or references are not in the set, or nothing finite is left.
    """
    used = frf_set if band_hz is None else in_band(frf_set, band_hz)
    remarks: list[str] = []
    transposed = len(used.inputs) > len(used.outputs)
    if references is not None:
        transposed = _are_outputs(used, references)
        twice = repeated(references)
        if twice is not None:
            raise ValueError(f"reference '{twice}' stands in the list more than once, expected different ones")
        used = pick(used, outputs=references) if transposed else pick(used, inputs=references)
    used = _finite_channels(used, remarks)
    good = used.finite.all(axis=(1, 2))
    standing = (used.frequency_hz == 0.0) & (used.decay_1_s == 0.0)
    if not good.all():
        bad = used.frequency_hz[~good]
        remarks.append(
            f"{bad.size} of {good.size} lines are left out, {bad[0]:.6g} to {bad[-1]:.6g} Hz:"
            " some response is not finite there"
        )
    if standing.any():
        remarks.append("the line at 0 Hz is left out: residual terms are not finite there")
    if not np.any(good & ~standing):
        raise ValueError(f"no line of '{frf_set.source}' in the band has only finite responses")
    return ModalData(lines(used, good & ~standing), transposed, int(np.sum(~good)), tuple(remarks))


def _are_outputs(frf_set: FrfSet, references: Sequence[str]) -> bool:
    """Whether the references are outputs and not inputs."""
    if isinstance(references, str) or not references:
        raise ValueError(f"references are {references!r}, expected a list of inputs or of outputs")
    for side, transposed in ((frf_set.inputs, False), (frf_set.outputs, True)):
        if all(name in side for name in references):
            return transposed
    missing = next(name for name in references if name not in frf_set.inputs)
    raise ValueError(
        f"reference '{missing}' is not in the set, expected inputs such as {', '.join(frf_set.inputs[:10])}"
        f" or outputs such as {', '.join(frf_set.outputs[:10])}"
    )


def _finite_channels(frf_set: FrfSet, remarks: list[str]) -> FrfSet:
    """Without inputs, then outputs, that lack much of a response, and without those that are zero throughout."""
    lacking = (~frf_set.finite).mean(axis=0) > MOST_MISSING
    bad_inputs = lacking.mean(axis=0) > 0.5
    bad_outputs = lacking[:, ~bad_inputs].any(axis=1)
    size = np.abs(np.where(frf_set.finite, frf_set.frf, 0.0)).max(axis=0)
    silent_outputs = (size.max(axis=1) <= ZERO * size.max()) & ~bad_outputs
    silent_inputs = (size.max(axis=0) <= ZERO * size.max()) & ~bad_inputs
    inputs = [name for name, bad in zip(frf_set.inputs, bad_inputs | silent_inputs, strict=True) if not bad]
    outputs = [name for name, bad in zip(frf_set.outputs, bad_outputs | silent_outputs, strict=True) if not bad]
    if not inputs or not outputs:
        raise ValueError(f"no output of '{frf_set.source}' has finite responses in the band that are not all zero")
    for what, names, bad, why in (
        ("input", frf_set.inputs, bad_inputs, "most of its values are not finite"),
        ("output", frf_set.outputs, bad_outputs, "most values of a response are not finite"),
        ("input", frf_set.inputs, silent_inputs, "it is zero everywhere"),
        ("output", frf_set.outputs, silent_outputs, "it is zero everywhere"),
    ):
        remarks += [f"{what} '{name}' is left out: {why}" for name, out in zip(names, bad, strict=True) if out]
    if len(inputs) == len(frf_set.inputs) and len(outputs) == len(frf_set.outputs):
        return frf_set
    return pick(frf_set, outputs, inputs)
