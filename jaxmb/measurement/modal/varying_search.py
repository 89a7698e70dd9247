"""Search for modes whose poles vary between responses, one by one at the peaks of the residual."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from jaxmb.measurement.modal.stabilization import SAME, auto_mac, damping_ratio
from jaxmb.measurement.modal.varying import (
    MOST_STD,
    VaryingFit,
    VaryingModes,
    Window,
    best_shifts,
    fit_varying_poles,
    noise_between_peaks,
    one_less,
    one_mode,
    peaks,
    window,
)

REACH = 3.0
"""Distance in half-power bandwidths within which modes are fitted together."""
AROUND = 4.0
"""Half-power bandwidths on either side of a mode whose lines are used to fit it."""
FEWEST_LINES = 12
CLEARLY = 2.0
"""Least reduction factor of the variance for an additional mode. It is 4 to 25 for a pair that was fitted as one mode,
hardly more than 1 for a second pole of one mode."""
GROSS = 20.0
"""Ratio of residual to noise variance above which a mode is added even if one pole does not explain it fully."""
UNEXPLAINED = 0.1
"""Largest residual power, relative to the responses, of a single mode used to test whether poles vary."""
STANDS_OUT = 2.0
"""Mean square of the residual over that of the noise above which a line is examined."""
FIRST_STD = np.array([0.003, 0.02, 4e-6, 0.002])
"""Prior root mean squares of a, b, v and k."""
FIRST_DAMPING = (0.0015, 0.004, 0.01, 0.03)
FIRST_ERROR = 0.02
"""Initial model error relative to the response, from differing hits, before it is estimated at the modes found."""
NARROWEST = 0.3
"""Least half-power bandwidth of a mode in lines."""
APART = (0.3, 1.0)
"""Distances of two poles in half-power bandwidths from which their fit starts."""
HALF_POWER = 2.35
"""Width of a normal distribution at half its height, in standard deviations."""
FURTHER = 2.0
"""Largest ratio of a mode's standard deviations to the median when a second mode is fitted beside it."""
MOST_SWEEPS = 3
MOST_RESPONSES = 24
"""Number of responses on which an additional mode of a group is tried before all are used."""
MOST_TOGETHER = 12
"""Largest number of modes fitted together."""


class VaryingSearch:
    """Modes found so far, and the residual of the responses.

    The residual is compared with the noise between the peaks plus a model error proportional to the response: hits
    differ in position and direction, so that the residual at the peaks far exceeds the sensor noise.
    """

    def __init__(
        self,
        frequency_hz: np.ndarray,
        frf: np.ndarray,
        power: int,
        largest_damping_ratio: float,
        decay_1_s: float,
        single_hits: bool = False,
    ) -> None:
        """Prepare a search in responses [f, output, input] that are s^power times receptances.

        An exponential window adds its decay rate to that of every mode. Responses to single hits are not broadened.
        """
        self.decay_1_s = decay_1_s
        self.first_std = FIRST_STD * [1.0, 1.0, 0.0, 0.0] if single_hits else FIRST_STD
        self.omega, self.power, self.frf = 2.0 * np.pi * frequency_hz, power, frf
        self.s = 1j * self.omega
        self.largest_damping_ratio = largest_damping_ratio
        self.spacing = 2.0 * np.pi * float(np.median(np.diff(frequency_hz)))
        self.noise = noise_between_peaks(frf, 2.0 * np.pi * decay_1_s / self.spacing)
        rising = np.maximum(self.omega, 0.5 * self.spacing) / self.omega[-1]
        self.beyond = np.linalg.qr(rising[:, None] ** [power, power - 2.0])[0]
        self.modes = one_mode(1j, np.ones(frf.shape[2], complex), self.first_std, frf.shape[1]).part(np.zeros(1, bool))
        self.left = frf
        self.failed = np.zeros(frequency_hz.size)
        self._judge_by(FIRST_ERROR)

    def find_separated(self, most: int) -> None:
        """Find up to `most` well-separated modes."""
        self._sweep(most)
        self.failed[:] = 0.0
        self._refit()
        # from the better half: the others may be pairs
        self._measure_error(0.25)

    def find_all(self, report: Callable[[str], None]) -> None:
        """Find all modes, until a sweep adds none; `report` is called with their number."""
        for _ in range(MOST_SWEEPS):
            if not self._sweep(report=report):
                break
            report("frequencies vary between responses, refitting all modes")
            self._refit()
            self._measure_error(0.5)
            report("frequencies vary between responses, removing redundant modes")
            self._leave_out()

    def gain_of_moves(self) -> float:
        """Median reduction factor of the variance by varying poles, over the better fitted half of the modes found; 1
        where two common poles in place of each explain the responses better: to first order both have one effect."""
        both = list[tuple[float, float, float]]()
        for k in range(self.modes.eigenvalue.size):
            mode = self.modes.part(np.array([k]))
            lines = self._window(self._around(mode), mode)
            free = fit_varying_poles(lines, mode)
            if np.sum(np.abs(free.left) ** 2) > UNEXPLAINED * np.sum(np.abs(lines.responses) ** 2):
                continue
            still = dataclasses.replace(mode, move=0.0 * mode.move, std=0.0 * mode.std)
            constant = fit_varying_poles(lines, still, known=True).variance
            pairs = (self._pair(still, lines, apart) for apart in APART)
            both.append((free.variance, constant / free.variance, min(pairs) / free.variance))
        better = np.array(sorted(both)[: (len(both) + 1) // 2])
        if not better.size or np.median(better[:, 2]) < 1.0:
            return 1.0
        return float(np.median(better[:, 1]))

    def _pair(self, still: VaryingModes, lines: Window, apart: float) -> float:
        """Variance beside two common poles in place of one that varies, from a start with a distance in half-power
        bandwidths."""
        step = 1j * apart * np.real(still.eigenvalue)
        one, other = (dataclasses.replace(still, eigenvalue=still.eigenvalue + by) for by in (-step, step))
        return fit_varying_poles(lines, one.and_also(other), known=True).variance

    def _judge_by(self, error: float) -> None:
        """Set the variance to that of noise plus a relative model error; at antiresonances, of each mode's response."""
        each = (self.modes.part(one) for one in np.eye(self.modes.eigenvalue.size, dtype=bool))
        of_modes = sum(np.abs(mode.responses(self.s, self.power)) ** 2 for mode in each)
        self._variance = self.noise + error**2 * np.maximum(np.abs(self.frf) ** 2, of_modes)

    def _std(self) -> np.ndarray:
        """Median standard deviations of well-separated modes; prior ones for fewer than two."""
        eigenvalue = self.modes.eigenvalue
        alone = [k for k in range(eigenvalue.size) if self._beside(eigenvalue[k]).sum() == 1]
        return np.median(self.modes.std[alone], axis=0) if len(alone) > 1 else self.first_std

    def _around(self, modes: VaryingModes) -> np.ndarray:
        """Indices of the lines used to fit these modes."""
        place = np.abs(modes.eigenvalue)
        reach = -2.0 * AROUND * np.real(modes.eigenvalue) + 3.0 * modes.std[:, 0] * place
        reach = np.maximum(reach, 0.5 * FEWEST_LINES * self.spacing)
        lines = np.flatnonzero((self.omega >= np.min(place - reach)) & (self.omega <= np.max(place + reach)))
        if lines.size < FEWEST_LINES:  # some lines are missing there
            lines = np.sort(np.argsort(np.abs(self.omega - np.mean(place)), kind="stable")[:FEWEST_LINES])
        return lines

    def _window(self, lines: np.ndarray, own: VaryingModes | None = None) -> Window:
        """Window of the residual at these lines, plus the contribution of the modes to be fitted."""
        values = self.left[lines]
        if own is not None:
            values = values + own.responses(self.s[lines], self.power)
        return window(self.s[lines], self.power, values, self._variance[lines])

    def _beside(self, eigenvalue: complex) -> np.ndarray:
        """Mask of the modes close to a pole, directly or through other modes."""
        from scipy.sparse.csgraph import connected_components  # imported here: it takes 60 ms

        poles = np.append(self.modes.eigenvalue, eigenvalue)
        place, width = np.abs(poles), -2.0 * np.real(poles)
        close = np.abs(place[:, None] - place) < REACH * 0.5 * (width[:, None] + width)
        group = connected_components(close)[1]
        return group[:-1] == group[-1]

    def _close(self, omega: np.ndarray, place: float, reach: float) -> np.ndarray:
        return np.abs(omega - place) < max(reach, 1.5 * self.spacing)

    def _possible(self, eigenvalue: np.ndarray) -> bool:
        damping = damping_ratio(eigenvalue + self.decay_1_s)
        seen = [np.sum(self._close(self.omega, abs(pole), -2.0 * np.real(pole))) > 1 for pole in eigenvalue]
        wide = -2.0 * np.real(eigenvalue) > NARROWEST * self.spacing
        inside = (np.abs(eigenvalue) > self.omega[0]) & (np.abs(eigenvalue) < self.omega[-1])
        return bool(np.all((damping > 0.0) & (damping < self.largest_damping_ratio) & wide & inside & seen))

    def _replace(self, inside: np.ndarray, new: VaryingModes) -> None:
        self.left = self.left + self.modes.part(inside).responses(self.s, self.power)
        self.left = self.left - new.responses(self.s, self.power)
        self.modes = self.modes.part(~inside).and_also(new)

    def _sweep(self, most_alone: int | None = None, report: Callable[[str], None] = lambda _: None) -> int:
        """Number of modes added at peaks of the residual, highest first; only separated ones with `most_alone`."""
        added, lines = 0, self._peaks()
        while lines.size and added != most_alone:
            line, lines = int(lines[0]), lines[1:]
            report(f"frequencies vary between responses, {self.modes.eigenvalue.size} modes so far")
            if not self._stands_out(line):
                continue
            if self._add(line, most_alone is not None):
                added += 1
            else:
                self._exclude(line)
            lines = self._peaks()
        return added

    def _exclude(self, line: int) -> None:
        """Exclude lines within half the bandwidth of the nearest mode until their residual grows clearly."""
        reach = 3.5 * self.spacing
        if self.modes.eigenvalue.size:
            near = np.argmin(np.abs(np.abs(self.modes.eigenvalue) - self.omega[line]))
            reach = max(reach, 0.5 * float(self._width(self._grouped(self.modes))[near]))
        near = np.abs(self.omega - self.omega[line]) < reach
        self.failed[near] = np.maximum(self.failed[near], np.mean(self._squares()[near] / self.noise, axis=(1, 2)))

    def _squares(self) -> np.ndarray:
        """Squared magnitude of the residual, with the contribution of out-of-band modes projected out."""
        flat = self.left.reshape(self.s.size, -1)
        return np.abs(flat - self.beyond @ (self.beyond.T @ flat)).reshape(self.left.shape) ** 2

    def _peaks(self) -> np.ndarray:
        """Lines at the peaks of the residual, the highest first."""
        squares = self._squares()
        height = np.mean(squares / self.noise, axis=(1, 2))
        lines = peaks(height)
        excess = np.mean(squares / self._variance, axis=(1, 2))[lines]
        return lines[(excess > STANDS_OUT) & (height[lines] > CLEARLY * self.failed[lines])]

    def _stands_out(self, line: int) -> bool:
        """Whether the residual at a line exceeds a straight line over frequency."""
        place, eigenvalue = self.omega[line], self.modes.eigenvalue
        damping = np.median(damping_ratio(eigenvalue)) if eigenvalue.size else FIRST_DAMPING[2]
        lines = self._around(self._at(line, float(damping)))
        near = np.abs(self.omega[lines] - place) < 1.5 * self.spacing
        return float(np.mean(np.abs(self._window(lines).responses[:, :, near]) ** 2)) / 2.0 > STANDS_OUT

    def _at(self, line: int, damping: float) -> VaryingModes:
        """Initial mode at a line, with the dominant participation of the residual there."""
        omega = self.omega[line]
        residual = self.left[self._close(self.omega, omega, omega * damping)]
        row = np.linalg.svd(residual.reshape(-1, residual.shape[2]), full_matrices=False)[2][0]
        return one_mode(omega * (-damping + 1j), row, self._std(), residual.shape[1])

    def _add(self, line: int, alone: bool) -> bool:
        """Whether a mode was added at this line."""
        omega = self.omega[line]
        tried = []
        for damping in FIRST_DAMPING:
            first = self._at(line, damping)
            lines = self._window(self._around(first))
            shifted, cost = best_shifts(lines, first)
            tried.append((cost / np.sum(np.abs(lines.responses) ** 2), shifted, lines))
        _, shifted, lines = min(tried, key=lambda each: each[0])
        first = fit_varying_poles(lines, shifted, known=True).modes
        pole, std = first.eigenvalue[0], first.std[0, 0]
        here = abs(abs(pole) - omega) < -6.0 * np.real(pole) + 3.0 * std * omega + 3.0 * self.spacing
        here = here and self._possible(first.eigenvalue)
        inside = self._beside(pole if here else omega * (-0.005 + 1j))
        if inside.any():
            return not alone and inside.sum() < MOST_TOGETHER and self._add_to(inside, line, first)
        return bool(here) and self._add_single(first)

    def _add_single(self, first: VaryingModes) -> bool:
        lines = self._window(self._around(first))
        fit = self._fit_single(lines, first)
        outputs, inputs = self.frf.shape[1:]
        nothing = np.sum(np.abs(lines.responses) ** 2) / max(2.0 * lines.weight.size - 4.0 * outputs * inputs, 1.0)
        if not self._possible(fit.modes.eigenvalue) or nothing < min(CLEARLY * fit.variance, GROSS):
            return False
        self._replace(np.zeros(self.modes.eigenvalue.size, bool), fit.modes)
        return True

    def _fit_single(self, lines: Window, first: VaryingModes) -> VaryingFit:
        """Fit of one mode with its own standard deviations, unless these indicate several modes."""
        fit = fit_varying_poles(lines, first)
        if np.any(fit.modes.std > 0.5 * MOST_STD):
            first = dataclasses.replace(first, std=self._std()[None])
            fit = fit_varying_poles(lines, first, known=True)
        return fit

    def _grouped(self, modes: VaryingModes) -> VaryingModes:
        """Modes of a group with the standard deviations of separated modes: close modes do not determine theirs."""
        if modes.eigenvalue.size == 1:
            return modes
        return dataclasses.replace(modes, std=np.broadcast_to(self._std(), modes.std.shape))

    def _add_to(self, inside: np.ndarray, line: int, single: VaryingModes) -> bool:
        """Whether a mode was added to the group at a line; it starts with its neighbour's damping or as `single`."""
        place, group = self.omega[line], self._grouped(self.modes.part(inside))
        # a pair fitted as one mode seems to vary more than the others
        group = dataclasses.replace(group, std=np.minimum(group.std, FURTHER * self._std()))
        near = int(np.argmin(np.abs(np.imag(group.eigenvalue) - place)))
        damping = float(damping_ratio(group.eigenvalue[near]))
        starts = [self._at(line, damping)]
        reach = 4.0 * damping * place + 3.0 * group.std[near, 0] * place + 3.0 * self.spacing
        if self._possible(single.eigenvalue) and abs(np.imag(single.eigenvalue[0]) - place) < reach:
            starts.append(single)
        starts = [dataclasses.replace(start, std=group.std[[near]]) for start in starts]
        lines = self._window(self._around(functools.reduce(VaryingModes.and_also, starts, group)), group)
        # most candidates are no modes; the responses with the largest residual are enough to reject them
        some = np.sort(np.argsort(-np.sum(np.abs(self.left[line]) ** 2 / self.noise, axis=1))[:MOST_RESPONSES])
        few = lines.of_responses(some)
        before = fit_varying_poles(few, group.of_responses(some), known=True)
        fits = []
        for start in starts:
            own = dataclasses.replace(start.of_responses(some), move=before.modes.move[:, [near]])
            fits.append(fit_varying_poles(few, before.modes.and_also(own), known=True))
        best = min(fits, key=lambda fit: fit.variance)
        if not self._is_better(few, before, best):
            return False
        if some.size < self.left.shape[1]:
            before = fit_varying_poles(lines, group, known=True)
            both = before.modes.and_also(dataclasses.replace(starts[0], move=before.modes.move[:, [near]]))
            pole, rows = best.modes.eigenvalue, best.modes.participation
            best = fit_varying_poles(lines, dataclasses.replace(both, eigenvalue=pole, participation=rows), known=True)
            if not self._is_better(lines, before, best):
                return False
        self._replace(inside, best.modes)
        return True

    def _is_better(self, lines: Window, before: VaryingFit, after: VaryingFit) -> bool:
        """Whether the last mode is plausible and clearly reduces the variance, of all lines or of those close to it."""
        if not self._possible(after.modes.eigenvalue) or self._twins(after.modes)[-1]:
            return False
        if before.variance > CLEARLY * after.variance:
            return True
        pole = after.modes.eigenvalue[-1]
        near = self._close(np.imag(lines.s), abs(pole), -2.0 * np.real(pole))
        squares = [np.sum(np.abs(fit.left[:, :, near]) ** 2) for fit in (before, after)]
        return bool(before.variance > 1.1 * after.variance and squares[0] > 1.5 * CLEARLY * squares[1])

    def _width(self, modes: VaryingModes) -> np.ndarray:
        """Half-power bandwidth [r] by damping and by the scatter of the frequencies over the hits, rad/s."""
        spread = np.hypot(modes.std[:, 0], np.sqrt(modes.std[:, 2]))
        return -2.0 * (np.real(modes.eigenvalue) + self.decay_1_s) + HALF_POWER * spread * np.abs(modes.eigenvalue)

    def _twins(self, modes: VaryingModes, same: float = SAME) -> np.ndarray:
        """Mask of the modes that duplicate another one of the same participation within their bandwidth."""
        place, width = np.abs(modes.eigenvalue), self._width(modes)
        near = np.abs(place[:, None] - place) < np.maximum(width[:, None], width)
        near &= auto_mac(modes.participation.T) > same
        return np.any(near & ~np.eye(place.size, dtype=bool), axis=1)

    def _refit(self) -> None:
        """Refit every group given all others."""
        for pole in self.modes.eigenvalue:
            if not np.any(self.modes.eigenvalue == pole):
                continue
            inside = self._beside(pole)
            group = self._grouped(self.modes.part(inside))
            lines = self._window(self._around(group), group)
            one = group.eigenvalue.size == 1
            fit = self._fit_single(lines, group) if one else fit_varying_poles(lines, group, known=True)
            if self._possible(fit.modes.eigenvalue):
                self._replace(inside, fit.modes)

    def _measure_error(self, part: float) -> None:
        """Set the model error to this quantile, over the modes, of the residual relative to the response."""
        each = []
        for k in range(self.modes.eigenvalue.size):
            pole, lines = self.modes.eigenvalue[k], self._around(self.modes.part(np.arange(k, k + 1)))
            near = np.abs(self.omega[lines] - abs(pole)) < max(-np.real(pole), 0.6 * self.spacing)
            if near.any():
                bare = self._window(lines)
                left = (bare.responses / bare.weight).transpose(2, 0, 1)[near]
                size = np.maximum(np.abs(self.frf[lines][near]) ** 2, np.finfo(float).tiny)
                each.append(np.median(np.abs(left) ** 2 / size) / np.log(2.0))
        if each:
            self._judge_by(float(np.sqrt(np.quantile(each, part))))

    def _leave_out(self) -> None:
        """Remove modes within a bandwidth of others if these fit the lines nearly as well without them."""
        for pole in self.modes.eigenvalue[self._twins(self._grouped(self.modes), same=-1.0)]:
            inside = self._beside(pole)
            group = self._grouped(self.modes.part(inside))
            own = group.eigenvalue == pole
            if not own.any() or not self._twins(group, same=-1.0)[own][0]:
                continue
            lines = self._window(self._around(group), group)
            now = fit_varying_poles(lines, group, known=True)
            shift = self.modes.move[:, :, 0]  # common to the modes of a response
            common = np.median(shift, axis=1) if shift.shape[1] > 1 else np.zeros(len(shift))
            best = fit_varying_poles(lines, one_less(group, pole, common), known=True)
            one = self._twins(group)[own][0]
            if self._possible(best.modes.eigenvalue) and (one or best.variance < CLEARLY * now.variance):
                self._replace(inside, best.modes)
