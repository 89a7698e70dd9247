"""Estimators of poles, and the search: stable poles, out-of-band ones that reach into the band, and the residual."""

import dataclasses
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from jaxmb.measurement.modal.model import Lines, as_lines, damping_std
from jaxmb.measurement.modal.refine import RefinedPoles, refine_poles
from jaxmb.measurement.modal.stabilization import (
    SAME,
    OrderPoles,
    StabilityRule,
    StabilizationChart,
    auto_mac,
    damping_ratio,
    plausible_poles,
    stabilization_chart,
    stable_poles,
)

MARGIN_BELOW, MARGIN_ABOVE = 0.05, 0.02
"""Margins of the half circle beyond the band, relative to its width. Real coefficients mirror every pole at both ends
of the half circle; a mode at the end of the band would coincide with its mirror image. The lower margin ends at 0 Hz,
where the image is the true conjugate."""

RIDGE = 1e-14
"""Regularization of the normal matrix for noise-free data, relative to its mean diagonal; far below any noise."""


def polyreference_poles(
    frequency_hz: np.ndarray, frf: np.ndarray, orders: range
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Poles and participations of every order, from a right matrix fraction with real coefficients.

    H_o(f) A(z) = B_o(z),  A(z) = I + A_1 z + ... + A_n z^n,  z = exp(j pi (f - f_low) / (f_high - f_low))

    The lines lie on the upper half circle. The lowest coefficient is the identity: poles that only describe noise are
    then unstable. B_o is eliminated first (its normal matrix is the same for all outputs), and the normal matrix of
    every order is a leading block of the largest one. Poles are the z at which A is singular, participations its left
    null vectors.

    Args:
        frequency_hz: lines [f], in any spacing.
        frf: responses [f, output, input], each output scaled as it shall count.
        orders: of A, ascending.

    Yields:
        Order, stable poles [k] in rad/s above the lower end, and participations [k, input], for each order.

    Source: Guillaume et al., "A poly-reference implementation of the least-squares complex frequency-domain
    estimator", IMAC 21, 2003; for the constraint Cauberghe et al., "The influence of the parameter constraint on the
    stability of the poles and the discrimination capabilities of the stabilisation diagrams", MSSP 19(5), 2005.
    """
    span = frequency_hz[-1] - frequency_hz[0]
    low = max(0.0, frequency_hz[0] - MARGIN_BELOW * span)
    high = frequency_hz[-1] + MARGIN_ABOVE * span
    seconds = 0.5 / (high - low)
    data, fitted = _normal_matrices(np.pi * (frequency_hz - low) / (high - low), frf, orders[-1])
    inputs = frf.shape[2]
    explained, rows = np.zeros_like(data), 0
    for order in orders:
        while rows <= order:
            explained += fitted[rows].T @ fitted[rows]
            rows += 1
        size = (order + 1) * inputs
        normal = data[:size, :size] - explained[:size, :size]
        z, participation = stable_roots(normal, inputs)
        yield order, np.log(z) / seconds + 2j * np.pi * low, participation


def stable_roots(normal: np.ndarray, inputs: int) -> tuple[np.ndarray, np.ndarray]:
    """Roots z [k] of A with |z| < 1 and Im > 0, and u [k, input] with u^T A(z) = 0.

    A = I + A_1 z + ... + A_n z^n makes sum of the squares X^T `normal` X least, X = [I; A_1; ...; A_n].
    """
    order = normal.shape[0] // inputs - 1
    unknown, known = normal[inputs:, inputs:], normal[inputs:, :inputs]
    # for noise-free data the higher orders are not unique; this selects the smallest solution
    unknown = unknown + RIDGE * np.trace(unknown) / (order * inputs) * np.eye(order * inputs)
    A = np.concatenate([np.eye(inputs), -np.linalg.solve(unknown, known)]).reshape(order + 1, inputs, inputs)
    companion = np.eye(order * inputs, k=-inputs)
    companion[:inputs] = -A[1:].transpose(2, 0, 1).reshape(inputs, -1)
    values = np.linalg.eigvals(companion)
    z = 1.0 / values[(np.abs(values) > 1.0) & (values.imag < 0.0)]
    at_roots = np.tensordot(z[:, None] ** np.arange(order + 1), A, axes=1)
    return z, np.linalg.svd(at_roots)[0][:, :, -1].conj()


def _normal_matrices(angle: np.ndarray, frf: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """Normal matrix of A alone [k, k], and factors [row, output, k] of its reduction by B, to be summed row by row.

    With R the normal matrix of B and S_o its coupling with A, the reduced matrix is T - sum_o S_o^T R^-1 S_o.
    With R = L L^T the rows of L^-1 S_o up to n give that sum for order n.
    """
    _, outputs, inputs = frf.shape
    power = np.exp(1j * np.outer(np.arange(-order, order + 1), angle))
    lag = np.arange(order + 1)[None, :] - np.arange(order + 1)[:, None] + order
    products = np.einsum("foi,foj->fij", frf.conj(), frf)
    of_b = np.real(power.sum(axis=1))[lag]
    coupling = np.real(power @ frf.reshape(angle.size, -1)).reshape(-1, outputs, inputs)[lag]
    of_a = np.real(power @ products.reshape(angle.size, -1)).reshape(-1, inputs, inputs)[lag]
    size = (order + 1) * inputs
    # the lines do not cover the whole half circle, which costs up to three digits
    factor = np.linalg.cholesky(of_b + 1e-12 * of_b[0, 0] * np.eye(order + 1))
    fitted = np.linalg.solve(factor, coupling.transpose(0, 2, 1, 3).reshape(order + 1, -1))
    return of_a.transpose(0, 2, 1, 3).reshape(size, size), fitted.reshape(order + 1, outputs, size)


UNEVEN = 1e-6
"""Largest deviation from an even frequency axis, relative to the step."""
SKIPPED = 2
"""First samples of the impulse responses that are skipped: they are distorted by the truncated band."""


def lsce_poles(
    frequency_hz: np.ndarray, frf: np.ndarray, orders: range
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Poles and participations of every order, from linear prediction of the impulse responses.

    h_o(t_m) + h_o(t_m+1) A_1 + ... + h_o(t_m+n) A_n = 0,  h_o = sum_r psi_or l_r^T z_r^m,  so  l_r^T A(z_r) = 0

    The impulse responses are the inverse Fourier transform of the band, with its first line as frequency 0.
    Prediction runs backward (the lowest coefficient is the identity), for the same reason as in `polyreference_poles`.

    Args:
        frequency_hz: lines [f], evenly spaced.
        frf: responses [f, output, input], each output scaled as it shall count.
        orders: of A, ascending.

    Raises:
        ValueError: the lines are not evenly spaced, or too few.

    Yields:
        Order, stable poles [k] in rad/s above the first line, and participations [k, input], for each order.

    Source: Vold et al., "A multi-input modal estimation algorithm for mini-computers", SAE 820194, 1982; Brown et
    al., "Parameter estimation techniques for modal analysis", SAE 790221, 1979.
    """
    step = np.diff(frequency_hz).mean()
    even = frequency_hz[0] + step * np.arange(frequency_hz.size)
    off = np.abs(frequency_hz - even)
    if off.max() > UNEVEN * step:
        worst = int(np.argmax(off))
        raise ValueError(
            f"line {worst + 1} of the band is {frequency_hz[worst]:.6g} Hz, expected {even[worst]:.6g} Hz:"
            " method 'lsce' requires evenly spaced lines, 'polyreference' does not"
        )
    impulse = np.fft.irfft(frf, axis=0)
    # the second half of the periodic response is the distorted beginning of the next period
    rows = impulse.shape[0] // 2 - orders[-1] - SKIPPED
    if rows < orders[-1]:
        raise ValueError(f"the band has {frequency_hz.size} lines, too few for order {orders[-1]} of method 'lsce'")
    seconds = 1.0 / (step * impulse.shape[0])
    _, outputs, inputs = frf.shape
    sample = SKIPPED + np.arange(rows)[:, None] + np.arange(orders[-1] + 1)
    windows = (impulse[sample, o].reshape(rows, -1) for o in range(outputs))
    normal = sum((window.T @ window for window in windows), np.zeros(()))  # of the samples from row to row + order
    for order in orders:
        size = (order + 1) * inputs
        z, participation = stable_roots(normal[:size, :size], inputs)
        yield order, np.log(z) / seconds + 2j * np.pi * frequency_hz[0], participation


Estimator = Callable[[np.ndarray, np.ndarray, range], Iterator[tuple[int, np.ndarray, np.ndarray]]]
SEGMENT_LINES = 480
"""Approximate lines per segment of a wide band: the same model orders resolve a narrow band better."""
OVERLAP = 0.5
"""Overlap with the neighbouring segments, relative to a segment."""
BESIDE = 0.1
"""Margin on either side of a band, relative to it, in which poles are kept because their modes reach into it."""
LEAST_STRENGTH = 25.0
"""Least strength of a pole (see RefinedPoles): five standard deviations. Noise has 1, modes in responses with 5 % noise
have thousands."""
DOUBTFUL_STRENGTH = 9.0
"""Three standard deviations: not counted as a mode, but reported."""
NOISE_ROUNDS = 3
"""Number of estimates of the noise of lines, each from the residual of a fit with the previous one."""
LEAST_LIKELIHOOD_GAIN = 10.0
"""Log-likelihood that a part in proportion to the response must gain; one that is not there gains more in 1e-5 of all
cases."""
NEGLIGIBLE = 1e-3
"""Ratio of one part of the noise variance to the other that is not distinguished from 0."""
ROUNDING = 1e-10
"""Ratio to the largest response below which a residual is rounding error."""
QUIET = 1.25
"""Ratio of the residual to its noise below which it is not searched."""
PEAK = 1.5
"""Ratio of the residual to its noise at which a peak is tried as a pole; noise reaches 1.2 over thousands of lines."""
CLEARLY = 0.999
"""Ratio of residual powers below which the same number of poles is an improvement; a weak mode reduces it further."""
FIRST_DAMPING = 0.01
"""Initial damping ratio of a pole without a neighbour."""
NARROWEST = 0.5
"""Least half-power bandwidth, in lines, of a pole found in the residual."""
MOST_LOOKS = 3
"""Number of searches of the residual, and out of band."""


@dataclasses.dataclass(frozen=True, eq=False)
class Search:
    """Data and settings of a search."""

    frequency_hz: np.ndarray
    lines: Lines
    frf: np.ndarray
    """The responses of the lines [f, output, input]."""
    band_hz: tuple[float, float]
    orders: range
    estimator: Estimator
    rule: StabilityRule
    decay_1_s: float = 0.0


def chart_of(search: Search, frf: np.ndarray, orders: range) -> StabilizationChart:
    """Stabilization chart of responses [f, output, input], by segments of the band.

    Of two poles of one order at the common end of two segments that are the same within the rule, one is used.
    """
    found: list[OrderPoles] = []
    for part, core in _segments(search.frequency_hz, search.band_hz, 1.0 + search.rule.frequency):
        f, h = search.frequency_hz[part], frf[part]
        size = np.sqrt(np.mean(np.abs(h) ** 2, axis=(0, 2)))
        h = h / np.where(size > 0.0, size, 1.0)[:, None]
        # an exponential window adds its decay to that of every mode
        poles = ((n, pole + search.decay_1_s, rows) for n, pole, rows in search.estimator(f, h, orders))
        lines = as_lines(search.lines.s[part], h, search.lines.power)
        for n, pole, rows, psi in plausible_poles(poles, lines, core, search.rule, size):
            known = np.concatenate([np.zeros(0), *(np.abs(each[1]) for each in found if each[0] == n)])
            near = np.abs(np.abs(pole)[:, None] - known) <= search.rule.frequency * known
            new = ~near.any(axis=1)
            found.append((n, pole[new], rows[new], psi[:, new]))
    return stabilization_chart(found, search.rule)


def all_strong(search: Search, refined: RefinedPoles) -> RefinedPoles:
    """The significant poles: the weakest is removed and the others are refined until all are significant."""
    while refined.eigenvalue.size and refined.strength.min() < LEAST_STRENGTH:
        keep = np.arange(refined.eigenvalue.size) != np.argmin(refined.strength)
        refined = refine_poles(search.lines, refined.eigenvalue[keep], refined.participation[keep], refined.noise)
    return refined


def with_poles_beside(search: Search, refined: RefinedPoles) -> RefinedPoles:
    """The poles with out-of-band ones added: the residual terms do not represent a mode close to the band.

    A pole is tried above and below the band, with the dominant participation of the residual at that end. It is kept if
    it stays outside, all poles are significant and the weighted sum of squares decreases.
    """
    low, high = search.band_hz
    span, own = high - low, refined.eigenvalue.size
    starts = [(high + BESIDE * span, slice(-max(4, int(BESIDE * search.frequency_hz.size)), None))]
    if low > 0.0:
        starts.append((max(low - BESIDE * span, 0.5 * low), slice(0, max(4, int(BESIDE * search.frequency_hz.size)))))
    for start_hz, end in starts:
        for _ in range(MOST_LOOKS):
            if _is_rounding(search, refined):
                return refined
            residual = remainder(search, refined)[end]
            participation = np.linalg.svd(residual.reshape(-1, residual.shape[2]), full_matrices=False)[2][:1]
            pole = 2 * np.pi * start_hz * (-FIRST_DAMPING + 1j)
            tried = refine_poles(
                search.lines,
                np.append(refined.eigenvalue, pole),
                np.concatenate([refined.participation, participation]),
                refined.noise,
            )
            size = np.abs(tried.eigenvalue[own:]) / (2 * np.pi)
            if (
                np.any((low <= size) & (size <= high))
                or tried.strength.min() < LEAST_STRENGTH
                or residual_ratio(tried, refined) >= 1.0
            ):
                break
            refined = tried
    return refined


def with_noise_of_lines(search: Search, refined: RefinedPoles, significant: bool = True) -> tuple[Search, RefinedPoles]:
    """The search with the noise of each line, and the poles refined with it, by default the significant ones only.

    The noise variance of a response is modelled as sigma^2 (1 + c |H|^2 / sigma^2): a constant part and one in
    proportion to the fitted response, as of calibration, of the force, and of hits that differ. c maximizes the
    likelihood of the mean squares of the residual of each line, which are gamma distributed.

    Source: Davidian and Carroll, "Variance function estimation", Journal of the American Statistical Association 82,
    1987.
    """
    from scipy.optimize import minimize_scalar  # imported here: it takes a tenth of a second

    for _ in range(NOISE_ROUNDS):
        residual = remainder(search, refined)
        if _is_rounding(search, refined):
            break
        found, fitted = (np.abs(h / refined.noise) ** 2 for h in (residual, search.frf - residual))
        of_lines, size = np.mean(found, axis=(1, 2)), np.mean(fitted, axis=(1, 2))

        def misfit(log_c: float, of_lines: np.ndarray = of_lines, size: np.ndarray = size) -> float:
            variance = 1.0 + np.exp(log_c) * size
            return float(np.log(np.mean(of_lines / variance)) + np.mean(np.log(variance)))

        limits = np.log([NEGLIGIBLE / size.max(), 1.0 / NEGLIGIBLE / size.min()])
        best = minimize_scalar(misfit, bounds=limits, method="bounded").x
        if found.size * (misfit(-np.inf) - misfit(best)) < LEAST_LIKELIHOOD_GAIN:
            break
        variance = 1.0 + np.exp(best) * fitted
        search = dataclasses.replace(search, lines=as_lines(search.lines.s, search.frf, search.lines.power, variance))
        refined = refine_poles(search.lines, refined.eigenvalue, refined.participation)
        refined = all_strong(search, refined) if significant else refined
    return search, refined


def with_residual_poles(search: Search, refined: RefinedPoles) -> tuple[RefinedPoles, np.ndarray]:
    """The poles with those added that are stable in the residual: of close modes one may hide another.

    The rule's presence is halved, and every second order is used; where no pole is stable, the highest peak is tried. A
    pole is kept if it is significant and no duplicate: a neighbour with the same shape describes a distortion of the
    resonance curve, such as leakage.

    Returns:
        The poles, and frequencies where one may be missing, Hz.
    """
    rule = dataclasses.replace(search.rule, presence=0.5 * search.rule.presence)
    relaxed = dataclasses.replace(search, rule=rule)
    doubtful = np.zeros(0)
    for _ in range(MOST_LOOKS):
        if _is_rounding(search, refined):
            break
        residual = remainder(search, refined)
        height, *peak = _highest_peak(search, refined, residual)
        if height < QUIET:
            break
        chart = chart_of(relaxed, residual, search.orders[::2])
        new = stable_poles(chart)
        tried = refined
        if new.size:
            tried, doubtful = _with(search, refined, chart.eigenvalue[new], chart.participation[new])
        if tried is refined and height >= PEAK:
            tried, _ = _with(search, refined, *peak)
        if tried is refined:
            break
        refined = tried
    return refined, doubtful


def twins(search: Search, refined: RefinedPoles) -> np.ndarray:
    """Mask of the poles that are the weaker of two modes within a half-power bandwidth, for one reference.

    One reference does not distinguish close modes from a mode that varies or is nonlinear.
    """
    size, width = np.abs(refined.eigenvalue), -2.0 * np.real(refined.eigenvalue)
    mode = is_mode(refined, search.band_hz, search.rule)
    near = np.abs(size[:, None] - size) < np.maximum(width[:, None], width)
    return np.any(near & mode[:, None] & mode & (refined.strength[:, None] < refined.strength), axis=1)


def _with(
    search: Search, refined: RefinedPoles, eigenvalue: np.ndarray, participation: np.ndarray
) -> tuple[RefinedPoles, np.ndarray]:
    """The poles with those new ones added that are distinct modes, unchanged if none is; and frequencies of doubtful
    new ones, Hz, which exceed the noise but not by enough."""
    before = refined.eigenvalue.size
    eigenvalue = np.concatenate([refined.eigenvalue, eigenvalue])
    participation = np.concatenate([refined.participation, participation])
    first = refine_poles(search.lines, eigenvalue, participation, refined.noise)
    weak = is_mode(first, search.band_hz, search.rule) & (first.strength < LEAST_STRENGTH)
    weak &= (first.strength > DOUBTFUL_STRENGTH) & ~_duplicates(search, first)
    weak[:before] = False
    # a pole narrower than `NARROWEST` lines describes the noise of one line
    spacing = 2.0 * np.pi * float(np.median(np.diff(search.frequency_hz)))
    wide = -2.0 * np.real(first.eigenvalue) >= NARROWEST * spacing
    wide[:before] = True
    if not wide.all():
        first = refine_poles(search.lines, first.eigenvalue[wide], first.participation[wide], refined.noise)
        weak = weak[wide]
    tried = _without_duplicates(search, all_strong(search, first), refined)
    # an old pole may have been replaced: the same number of poles must clearly reduce the residual
    enough = 1.0 if tried.eigenvalue.size > before else CLEARLY
    return tried if residual_ratio(tried, refined) < enough else refined, np.abs(first.eigenvalue[weak]) / (2 * np.pi)


def _highest_peak(search: Search, refined: RefinedPoles, residual: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Largest ratio of the residual to the noise at a line, and a pole there with the damping of its nearest neighbour.

    A mode partly fitted by its neighbour has too small a residual on too few lines for the estimator.
    """
    weighted = residual / search.lines.level[:, None, None] / np.where(refined.noise > 0.0, refined.noise, np.inf)
    _, size, rows = np.linalg.svd(weighted, full_matrices=False)
    line = int(np.argmax(size[:, 0]))
    # the largest singular value of complex noise, of standard deviation 1 in real and imaginary parts
    height = float(size[line, 0]) / (np.sqrt(2.0) * sum(np.sqrt(n) for n in residual.shape[1:]))
    omega = 2 * np.pi * search.frequency_hz[line]
    distance = np.abs(np.abs(refined.eigenvalue) - omega)
    damping = float(damping_ratio(refined.eigenvalue[np.argmin(distance)])) if distance.size else FIRST_DAMPING
    return height, np.array([omega * (-damping + 1j)]), rows[line, :1]


def _without_duplicates(search: Search, tried: RefinedPoles, before: RefinedPoles) -> RefinedPoles:
    """The poles without duplicates of a mode, as long as there are more than before."""
    while tried.eigenvalue.size > before.eigenvalue.size and (duplicate := _duplicates(search, tried)).any():
        keep = np.arange(duplicate.size) != np.argmin(np.where(duplicate, tried.strength, np.inf))
        tried = all_strong(
            search, refine_poles(search.lines, tried.eigenvalue[keep], tried.participation[keep], tried.noise)
        )
    return tried


def _duplicates(search: Search, refined: RefinedPoles) -> np.ndarray:
    """Mask of poles that are the weaker of two at the same frequency with the same shape."""
    size = np.abs(refined.eigenvalue)
    near = np.abs(size[:, None] - size) < search.rule.frequency * size
    same = near & (auto_mac(refined.shape) > SAME)
    return np.any(same & (refined.strength[:, None] < refined.strength), axis=1)


def remainder(search: Search, refined: RefinedPoles) -> np.ndarray:
    """Residual of the responses [f, output, input]."""
    half = search.frequency_hz.size
    return (refined.remainder[:half] + 1j * refined.remainder[half:]) * search.lines.level[:, None, None]


def beside(band_hz: tuple[float, float]) -> tuple[float, float]:
    """The band with its margins."""
    reach = BESIDE * (band_hz[1] - band_hz[0])
    return band_hz[0] - reach, band_hz[1] + reach


def is_mode(refined: RefinedPoles, band_hz: tuple[float, float], rule: StabilityRule) -> np.ndarray:
    """Mask of poles that are modes: in the band, with a damping ratio above its standard deviation and at most that of
    the rule. The damping of a pole that only distorts a resonance curve is below its standard deviation."""
    frequency_hz, damping = np.abs(refined.eigenvalue) / (2 * np.pi), damping_ratio(refined.eigenvalue)
    inside = (frequency_hz >= band_hz[0]) & (frequency_hz <= band_hz[1])
    known = damping > damping_std(refined.eigenvalue, refined.covariance)
    return inside & known & (damping > 0.0) & (damping <= rule.largest_damping_ratio)


def _is_rounding(search: Search, refined: RefinedPoles) -> bool:
    """Whether the residual is rounding error only."""
    return bool(np.abs(refined.remainder).max() <= ROUNDING * np.abs(search.frf).max())


def residual_ratio(a: RefinedPoles, b: RefinedPoles) -> float:
    """Ratio of the residual power of a to that of b, averaged over the responses."""
    return float(np.mean((a.noise / b.noise) ** 2))


def _segments(
    frequency_hz: np.ndarray, band_hz: tuple[float, float], slack: float
) -> Iterator[tuple[slice, tuple[float, float]]]:
    """Lines of each segment, and the frequency range in which its poles are used, by the factor `slack` beyond the
    common end of two segments."""
    low, high = beside(band_hz)
    last = frequency_hz.size - 1
    count = max(1, round(frequency_hz.size / SEGMENT_LINES))
    ends = np.linspace(0, last, count + 1)
    reach = OVERLAP * ends[1]
    for i, (begin, end) in enumerate(pairwise(ends)):
        part = slice(max(0, round(begin - reach)), min(last, round(end + reach)) + 1)
        first = low if i == 0 else frequency_hz[round(begin)] / slack
        yield part, (float(first), float(high if i == count - 1 else frequency_hz[round(end)] * slack))
