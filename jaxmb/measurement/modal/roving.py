"""Tests whose natural frequencies move from response to response: their modes, and the responses without the moves."""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxmb.measurement.modal.moving_modes import MovingModes
from jaxmb.measurement.modal.moving_search import MovingSearch
from jaxmb.measurement.modal.refine import RefinedPoles
from jaxmb.measurement.modal.residues import as_lines
from jaxmb.measurement.modal.search import Search

MOST_ALONE = 8
"""Modes that tell whether poles move."""
FEWEST_RESPONSES = 4
MOVING = 1.1
"""Factor of variance that moves explain from which on poles do move: in responses that were measured at once it is 1.00
to 1.01, at a scatter of 0.03 % of the frequencies 1.2 and more."""


@dataclasses.dataclass(frozen=True, eq=False)
class Scatter:
    """How far natural frequencies move from response to response."""

    shift: np.ndarray
    """Of each frequency in every response, as a part of it [response, r]."""
    std: np.ndarray
    """Standard deviation of the shifts [r]; close modes are given that of the others."""
    between: str
    """What the responses are: "inputs" where the excitation roved, else "outputs"."""

    @property
    def remarks(self) -> list[str]:
        """What a reader of the modes should know."""
        if not self.std.size:
            return []
        return [
            f"natural frequencies differ between {self.between} with a standard deviation of"
            f" {100.0 * self.std.min():.2g} to {100.0 * self.std.max():.2g} %: the structure, its boundary or the"
            " amplitude changed during the test; modes and synthesized FRFs are those of the mean"
        ]


@dataclasses.dataclass(frozen=True, eq=False)
class MovingTest:
    """Modes that move from response to response, and the responses as they were if none did."""

    search: Search
    """In the responses without the moves."""
    eigenvalue: np.ndarray
    """[r], rad/s."""
    participation: np.ndarray
    """[r, input]"""
    shift: np.ndarray
    """Of the frequency in every response, as a part of it [output, r]."""
    std: np.ndarray
    """Standard deviations of the moves of frequency and damping, as a part of these [r, 2]."""

    def counted_in(self, refined: RefinedPoles) -> RefinedPoles:
        """Poles, those of these modes first, as uncertain as the mean of their moves is too: sigma / sqrt(outputs)."""
        count, outputs = self.eigenvalue.size, self.shift.shape[0]
        pole = refined.eigenvalue[:count]
        covariance = refined.covariance.copy()
        decay = np.real(pole) - self.search.decay_1_s  # what moves is a part of it with the window's
        covariance[:count, 0, 0] += (decay * self.std[:, 1]) ** 2 / outputs
        covariance[:count, 1, 1] += (np.imag(pole) * self.std[:, 0]) ** 2 / outputs
        return dataclasses.replace(refined, covariance=covariance)

    def scatter(self, eigenvalue: np.ndarray, mode: np.ndarray, between: str) -> Scatter:
        """That of the modes by ascending frequency.

        Args:
            eigenvalue: poles as they were refined, those of these modes first.
            mode: which of them are modes.
            between: what the responses are.
        """
        modes = np.flatnonzero(mode)
        modes = modes[np.argsort(np.abs(eigenvalue[modes]), kind="stable")]
        return Scatter(self.shift[:, modes], self.std[modes, 0], between)


def moving_test(search: Search, report: Callable[[str], None]) -> MovingTest | None:
    """Modes with the moves of their poles; None where the poles do not move, or there is no mode that does.

    Up to `MOST_ALONE` modes that lie alone, the highest first, are fitted with a pole that moves from response to
    response and with one that does not. Poles move where, of the better explained half of these modes, the median ratio
    of what is left is `MOVING` and more.

    Args:
        search: in the responses as they were measured.
        report: is told how far the search has come.
    """
    if search.frf.shape[1] < FEWEST_RESPONSES:
        return None
    largest, decay = search.rule.largest_damping_ratio, search.decay_1_s
    hunt = MovingSearch(search.frequency_hz, search.frf, search.lines.power, largest, decay)
    hunt.look_for_single_ones(MOST_ALONE)
    if hunt.gain_of_moves() < MOVING:
        return None
    hunt.look_everywhere(report)
    return _without_moves(search, hunt.s, hunt.modes) if hunt.modes.eigenvalue.size else None


def _without_moves(search: Search, s: np.ndarray, modes: MovingModes) -> MovingTest:
    power = search.lines.power
    frf = search.frf - modes.responses(s, power) + modes.responses(s, power, still=True)
    still = dataclasses.replace(search, frf=frf, lines=as_lines(search.lines.s, frf, power))
    # an exponential window adds its decay to that of every mode
    eigenvalue = modes.eigenvalue + search.decay_1_s
    return MovingTest(still, eigenvalue, modes.participation, modes.move[:, :, 0], modes.std)
