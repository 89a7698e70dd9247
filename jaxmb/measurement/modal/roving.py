"""Tests whose natural frequencies move from response to response: their modes, and the responses without the moves."""

import dataclasses
from collections.abc import Callable

import numpy as np

from jaxmb.measurement.modal.data import SingleHits
from jaxmb.measurement.modal.model import as_lines
from jaxmb.measurement.modal.moving_search import MovingSearch
from jaxmb.measurement.modal.refine import RefinedPoles, fixed_poles, refine_poles
from jaxmb.measurement.modal.search import Search, remainder, with_poles_beside

MOST_ALONE = 8
"""Modes that tell whether poles move."""
FEWEST_RESPONSES = 4
MOVING = 1.1
"""Factor of variance that moves explain from which on poles do move: in responses that were measured at once it is 1.00
to 1.01, at a scatter of 0.03 % of the frequencies 1.2 and more."""
OUTSTANDING = 10.0
"""Squares of what a mode adds, over what all leave around it: modes have 26 and more, what stood for their
errors 0 to 2."""
FEWEST_LINES = 5
"""Around a mode."""


@dataclasses.dataclass(frozen=True, eq=False)
class Scatter:
    """How far natural frequencies move from response to response."""

    shift: np.ndarray
    """Of each frequency in every response or hit, as a part of it [response, r]."""
    std: np.ndarray
    """Standard deviation of the shifts [r]; close modes are given that of the others."""
    between: str
    """What the responses are: "hits" where these are known, "inputs" where the excitation roved, else "outputs"."""

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
    """Of the frequency in every response or hit, as a part of it [output, r]."""
    std: np.ndarray
    """Standard deviation of it [r]."""
    covariance: np.ndarray
    """Of Re and Im of each pole [r, 2, 2], (rad/s)^2, the scatter of the mean included."""

    def part(self, keep: np.ndarray) -> "MovingTest":
        """Some of the modes."""
        return MovingTest(
            self.search,
            self.eigenvalue[keep],
            self.participation[keep],
            self.shift[:, keep],
            self.std[keep],
            self.covariance[keep],
        )

    def with_poles_beside(self) -> tuple["MovingTest", RefinedPoles]:
        """The modes that stand out, and these as they were found with poles outside the band that were refined.

        Fitted on the lines around them, some modes only stood for what their neighbours left: of the whole band they
        explain hardly more than is left there.
        """
        search, test = self.search, self
        refined = with_poles_beside(search, refine_poles(search.lines, test.eigenvalue, test.participation))
        beside = slice(test.eigenvalue.size, None)
        pole, rows, covariance = (
            each[beside] for each in (refined.eigenvalue, refined.participation, refined.covariance)
        )
        while True:
            known = fixed_poles(
                search.lines,
                np.concatenate([test.eigenvalue, pole]),
                np.concatenate([test.participation, rows]),
                refined.noise,
            )
            outstanding = _outstanding(search, known)[: test.eigenvalue.size]
            if not np.any(outstanding < OUTSTANDING):
                break
            test = test.part(np.arange(outstanding.size) != np.argmin(outstanding))
        return test, dataclasses.replace(known, covariance=np.concatenate([test.covariance, covariance]))

    def scatter(self, eigenvalue: np.ndarray, mode: np.ndarray, between: str) -> Scatter:
        """That of the modes by ascending frequency.

        Args:
            eigenvalue: poles as they were refined, those of these modes first.
            mode: which of them are modes.
            between: what the responses are.
        """
        modes = np.flatnonzero(mode)
        modes = modes[np.argsort(np.abs(eigenvalue[modes]), kind="stable")]
        return Scatter(self.shift[:, modes], self.std[modes], between)


def moving_test(
    search: Search, report: Callable[[str], None], hits: SingleHits | None, transposed: bool
) -> MovingTest | None:
    """Modes with the moves of their poles; None where the poles do not move, or there is no mode that does.

    Where responses to single hits are known, these are the responses, and all outputs are their references: each hit
    has one pole a mode, and nothing is broadened.

    Up to `MOST_ALONE` modes that lie alone, the highest first, are fitted with a pole that moves from response to
    response and with one that does not. Poles move where, of the better explained half of these modes, the median ratio
    of what is left is `MOVING` and more.

    Args:
        search: in the responses as they were measured.
        report: is told how far the search has come.
        hits: behind these responses, where known.
        transposed: whether the references are the outputs.
    """
    frf = search.frf if hits is None else hits.responses
    if frf.shape[1] < FEWEST_RESPONSES:
        return None
    largest, decay = search.rule.largest_damping_ratio, search.decay_1_s
    hunt = MovingSearch(search.frequency_hz, frf, search.lines.power, largest, decay, hits is not None)
    hunt.look_for_single_ones(MOST_ALONE)
    if hunt.gain_of_moves() < MOVING:
        return None
    hunt.look_everywhere(report)
    return _without_moves(search, hunt, hits, transposed) if hunt.modes.eigenvalue.size else None


def _outstanding(search: Search, known: RefinedPoles) -> np.ndarray:
    """Squares of what each mode adds to the responses over those of what all leave, on the lines around it [r]."""
    omega, left = np.imag(search.lines.s), np.sum(np.abs(remainder(search, known)) ** 2, axis=(1, 2))
    ratio = np.zeros(known.eigenvalue.size)
    for r, pole in enumerate(known.eigenvalue):
        near = np.argsort(np.abs(omega - abs(pole)), kind="stable")
        near = near[: max(FEWEST_LINES, int(np.sum(np.abs(omega - abs(pole)) < search.decay_1_s - np.real(pole))))]
        own = np.abs(search.lines.s[near] ** search.lines.power / (search.lines.s[near] - pole)) ** 2
        residue = known.shape[:, r, None] * known.participation[r]
        ratio[r] = np.sum(own) * np.sum(np.abs(residue) ** 2) / max(np.sum(left[near]), np.finfo(float).tiny)
    return ratio


def _without_moves(search: Search, hunt: MovingSearch, hits: SingleHits | None, transposed: bool) -> MovingTest:
    modes, power = hunt.modes, search.lines.power
    frf = hunt.frf - modes.responses(hunt.s, power) + modes.responses(hunt.s, power, still=True)
    rows = modes.participation
    if hits is not None:
        weight = 1.0 / np.mean(hunt.noise, axis=1)
        frf = hits.averaged(frf, weight)
        if not transposed:
            frf, rows = frf.transpose(0, 2, 1), hits.averaged(modes.shape, weight).T
    still = dataclasses.replace(search, frf=frf, lines=as_lines(search.lines.s, frf, power))
    # an exponential window adds its decay to that of every mode
    eigenvalue = modes.eigenvalue + search.decay_1_s
    return MovingTest(still, eigenvalue, rows, modes.move[:, :, 0], modes.std[:, 0], modes.covariance)
