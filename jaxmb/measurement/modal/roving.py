"""Tests whose natural frequencies vary between responses: their modes, and the responses corrected for the shifts."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from jaxmb.measurement.modal.data import SingleHits
from jaxmb.measurement.modal.model import as_lines
from jaxmb.measurement.modal.refine import RefinedPoles, fixed_poles, refine_poles
from jaxmb.measurement.modal.search import Search, remainder, with_poles_beside
from jaxmb.measurement.modal.varying import VaryingModes
from jaxmb.measurement.modal.varying_search import VaryingSearch

MOST_ALONE = 8
"""Largest number of modes used to test whether poles vary."""
FEWEST_RESPONSES = 4
LEAST_GAIN = 1.1
"""Least reduction factor of the variance by varying poles: it is 1.00 to 1.01 for responses measured simultaneously
without leakage, up to 2 beside overlapping modes that are not found yet, 1.2 and more for a scatter of 0.03 % of the
frequencies."""
OUTSTANDING = 10.0
"""Least ratio of a mode's power to that of the residual around it: modes have 26 and more, poles that only fitted
their errors 0 to 2."""
FEWEST_LINES = 5
"""Least number of lines around a mode."""


@dataclasses.dataclass(frozen=True, eq=False)
class Scatter:
    """Variation of natural frequencies between responses."""

    shift: np.ndarray
    """Relative shift of each frequency in every response or hit [response, r]."""
    std: np.ndarray
    """Standard deviation of the shifts [r]; close modes have that of the others."""
    between: str
    """Kind of the responses: "hits" where known, "inputs" with a roving excitation, else "outputs"."""

    @property
    def remarks(self) -> list[str]:
        """Warning on the variation, if any."""
        if not self.std.size:
            return []
        low, high = (f"{100.0 * std:.2g}" for std in (self.std.min(), self.std.max()))
        return [
            f"natural frequencies differ between {self.between} with a standard deviation of"
            f" {low if low == high else f'{low} to {high}'} %: the structure, its boundary or the amplitude changed"
            " during the test, leakage of short records distorts the peaks, or there are close modes, which two"
            " references would separate; modes and synthesized FRFs are those of the mean"
        ]


class Varying(NamedTuple):
    """Modes that vary between responses, and the responses corrected for the shifts."""

    search: Search
    """Search in the corrected responses."""
    modes: VaryingModes
    """Modes with the participations of the corrected responses, and with their variation in every response or hit."""
    refined: RefinedPoles
    """These modes, followed by refined out-of-band poles."""


def scatter_of(varying: Varying, mode: np.ndarray, between: str) -> Scatter:
    """Variation of the modes, by ascending frequency.

    Args:
        varying: from `varying_test`.
        mode: mask of the refined poles that are modes.
        between: kind of the responses, see `Scatter`.
    """
    order = np.flatnonzero(mode)
    order = order[np.argsort(np.abs(varying.refined.eigenvalue[order]), kind="stable")]
    return Scatter(varying.modes.move[:, order, 0], varying.modes.std[order, 0], between)


def varying_test(
    search: Search, report: Callable[[str], None], hits: SingleHits | None, transposed: bool
) -> Varying | None:
    """Modes with the variation of their poles; None where the poles do not vary, or no mode is found.

    Responses to single hits are used where known, with all outputs as references: each hit then has one pole per mode,
    and resonances are not broadened by averaging.

    Up to `MOST_ALONE` well-separated modes, the highest first, are fitted with a varying and with a constant pole.
    Poles vary if the median ratio of the residual variances, over the better fitted half of these modes, is at least
    `LEAST_GAIN`, and again after all modes have been found.

    Args:
        search: in the measured responses.
        report: called with progress messages.
        hits: responses to the single hits behind these responses, where known.
        transposed: whether the references are the outputs.
    """
    frf = search.frf if hits is None else hits.responses
    if frf.shape[1] < FEWEST_RESPONSES:
        return None
    largest, decay = search.rule.largest_damping_ratio, search.decay_1_s
    varying = VaryingSearch(search.frequency_hz, frf, search.lines.power, largest, decay, hits is not None)
    varying.find_separated(MOST_ALONE)
    if varying.gain_of_moves() < LEAST_GAIN:
        return None
    varying.find_all(report)
    # beside an overlapping mode that was not found before, a pole looks as if it varied
    if varying.gain_of_moves() < LEAST_GAIN:
        return None
    return _with_poles_beside(*_corrected(search, varying, hits, transposed))


def _outstanding(search: Search, known: RefinedPoles) -> np.ndarray:
    """Power of each mode's contribution over that of the residual, on the lines around the mode [r]."""
    omega, residual = np.imag(search.lines.s), np.sum(np.abs(remainder(search, known)) ** 2, axis=(1, 2))
    ratio = np.zeros(known.eigenvalue.size)
    for r, pole in enumerate(known.eigenvalue):
        near = np.argsort(np.abs(omega - abs(pole)), kind="stable")
        near = near[: max(FEWEST_LINES, int(np.sum(np.abs(omega - abs(pole)) < search.decay_1_s - np.real(pole))))]
        own = np.abs(search.lines.s[near] ** search.lines.power / (search.lines.s[near] - pole)) ** 2
        residue = known.shape[:, r, None] * known.participation[r]
        ratio[r] = np.sum(own) * np.sum(np.abs(residue) ** 2) / max(np.sum(residual[near]), np.finfo(float).tiny)
    return ratio


def _corrected(
    search: Search, varying: VaryingSearch, hits: SingleHits | None, transposed: bool
) -> tuple[Search, VaryingModes]:
    """The search in the responses corrected for the shifts, and the modes with the participations of these."""
    modes, power = varying.modes, search.lines.power
    frf = varying.frf - modes.responses(varying.s, power) + modes.responses(varying.s, power, still=True)
    rows = modes.participation
    if hits is not None:
        weight = 1.0 / np.mean(varying.noise, axis=1)
        frf = hits.averaged(frf, weight)
        if not transposed:
            frf, rows = frf.transpose(0, 2, 1), hits.averaged(modes.shape, weight).T
    corrected = dataclasses.replace(search, frf=frf, lines=as_lines(search.lines.s, frf, power))
    # an exponential window adds its decay rate to that of every mode
    return corrected, dataclasses.replace(modes, eigenvalue=modes.eigenvalue + search.decay_1_s, participation=rows)


def _with_poles_beside(search: Search, modes: VaryingModes) -> Varying:
    """The significant modes, and these together with refined out-of-band poles.

    Modes fitted on the lines around them may only describe the residual of their neighbours; over the whole band their
    power hardly exceeds that of the residual.
    """
    refined = with_poles_beside(search, refine_poles(search.lines, modes.eigenvalue, modes.participation))
    pole, rows, covariance = (
        each[modes.eigenvalue.size :] for each in (refined.eigenvalue, refined.participation, refined.covariance)
    )
    while True:
        known = fixed_poles(
            search.lines,
            np.concatenate([modes.eigenvalue, pole]),
            np.concatenate([modes.participation, rows]),
            refined.noise,
        )
        outstanding = _outstanding(search, known)[: modes.eigenvalue.size]
        if not np.any(outstanding < OUTSTANDING):
            break
        modes = modes.part(np.arange(outstanding.size) != np.argmin(outstanding))
    known = dataclasses.replace(known, covariance=np.concatenate([modes.covariance, covariance]))
    return Varying(search, modes, known)
