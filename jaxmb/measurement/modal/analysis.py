"""Experimental modal analysis: from measured FRFs to poles, shapes and residual terms."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from threadpoolctl import threadpool_limits

from jaxmb.io.validation import Table, check_choice, typed_arguments, whole_number
from jaxmb.measurement.frf_set import FrfSet, band_of, largest_of_rows
from jaxmb.measurement.modal.data import ModalData, SingleHits, modal_data, single_hits
from jaxmb.measurement.modal.model import ModalModel, as_lines, residual_terms
from jaxmb.measurement.modal.refine import RefinedPoles, refine_poles
from jaxmb.measurement.modal.roving import FEWEST_RESPONSES, LEAST_GAIN, Scatter, scatter_of, varying_test
from jaxmb.measurement.modal.search import (
    Estimator,
    Search,
    all_strong,
    chart_of,
    is_mode,
    lsce_poles,
    polyreference_poles,
    remainder,
    residual_ratio,
    twins,
    with_noise_of_lines,
    with_poles_beside,
    with_residual_poles,
)
from jaxmb.measurement.modal.stabilization import (
    Chosen,
    StabilityRule,
    StabilizationChart,
    by_hand,
    neighbouring_poles,
    stable_poles,
)
from jaxmb.response.frf_kind import DERIVATIVES

FIRST_ORDER, ORDER_STEP = 8, 2
"""Every second order shows stable poles as well as every order, in half the time."""
LARGEST_COMPANION = 240
"""Largest order times references: eigenvalues of a larger matrix are slow and give no further modes."""
LEAST_LINES = 16


def within(frequency_hz: np.ndarray, band_hz: Sequence[float] | None) -> tuple[float, float]:
    """The band searched for modes: the requested one, limited to the lines used.

    A band from 0 Hz keeps its lower end where the lines begin there, whether or not the line at 0 Hz is usable.
    """
    low, high = float(frequency_hz[0]), float(frequency_hz[-1])
    if band_hz is None:
        return low, high
    asked = band_of(band_hz)
    if asked[0] <= 0.0 and low < 1.5 * (frequency_hz[1] - low):
        low = 0.0
    return max(asked[0], low), min(asked[1], high)


def counted(count: int, what: str) -> str:
    """A number and its noun, in the plural unless it is 1."""
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def orders_of(max_order: int, shape: tuple[int, ...], lost: int) -> tuple[range, list[str]]:
    """Model orders to try, and remarks where the requested largest order was reduced."""
    count, _, references = shape
    whole_number("max_order", max_order, 2)
    if count < LEAST_LINES:
        more = f", {lost} more are omitted because a response is not finite there" if lost else ""
        raise ValueError(f"the band has {counted(count, 'line')}, expected at least {LEAST_LINES}{more}")
    most = min(max_order, count // 4, max(LARGEST_COMPANION // references, 2))
    reduced = f"largest order reduced from {max_order} to {most}: {count} lines, {counted(references, 'reference')}"
    return range(min(FIRST_ORDER, most), most + 1, ORDER_STEP), [reduced] if most < max_order else []


Method = Literal["polyreference", "lsce"]
ESTIMATORS: Mapping[Method, Estimator] = {"polyreference": polyreference_poles, "lsce": lsce_poles}


@dataclasses.dataclass(frozen=True, eq=False)
class ModalAnalysis:
    """Result of a modal analysis: modal model, stabilization chart, residual and remarks."""

    model: ModalModel
    chart: StabilizationChart
    """Its shapes and participations have the references last and are scaled for comparison only."""
    started_from: np.ndarray
    """Indices of the poles of the chart from which the fit started [k]."""
    noise: np.ndarray
    """Standard deviation of real and imaginary part of the residual [output, input]; where noise is proportional to the
    response, of the quietest lines."""
    line_hz: np.ndarray
    """Lines analysed [f], Hz."""
    left: np.ndarray
    """Residual of the responses [f, output, input]; where frequencies vary between responses, of the responses
    corrected for the shifts."""
    scatter: Scatter | None
    """Variation of the natural frequencies between responses [response, r]; None where they are constant."""
    remarks: tuple[str, ...]
    """Data that were omitted, and warnings on the identified modes."""
    options: Mapping[str, Any]

    @property
    def frequency_hz(self) -> np.ndarray:
        """|lambda| / 2 pi of the poles [r]."""
        return self.model.frequency_hz

    @property
    def damping_ratio(self) -> np.ndarray:
        """-Re(lambda) / |lambda| of the poles [r]."""
        return self.model.damping_ratio

    @property
    def shape(self) -> np.ndarray:
        """Shapes [point, r], the largest component 1, over `points`."""
        return self.model.mode_shape

    @property
    def points(self) -> tuple[str, ...]:
        """Degrees of freedom of the shapes: the outputs, or the inputs where these are more (roving hammer)."""
        return self.model.points


@typed_arguments
def modal_analysis(
    frf_set: FrfSet,
    band_hz: Sequence[float] | None = None,
    max_order: int = 60,
    method: Method = "polyreference",
    references: Sequence[str] | None = None,
    chosen: Sequence[Chosen] | Literal["stable"] | None = None,
    rule: StabilityRule | None = None,
    report: Callable[[str], None] | None = None,
    hits: Sequence[FrfSet] = (),
) -> ModalAnalysis:
    """Modes of a structure from its measured FRFs: poles, shapes, participations, residual terms, uncertainty.

    An estimator computes poles for every model order. Poles that are stable over the orders, by `rule`, are refined
    together on all responses (see `refine_poles`), those not significant above the noise are removed, and the residual
    is searched once more. Noise may be constant or proportional to the response (see `with_noise_of_lines`). Where
    natural frequencies vary between responses (see `varying_test`), each mode is one pole with a shift in every
    response, and chart and model are those of the mean. Out-of-band poles that the lines require are fitted too and
    kept separately in the model.

    Args:
        frf_set: FRFs of any kind and unit. Values that are not finite are omitted with a remark; the decay rate of an
            exponential window is removed from the poles.
        band_hz: band to analyse, low and high; all lines where None.
        max_order: largest order of the polynomials, 2 or more; every second order from 8 on is fitted. Each order adds
            as many poles as there are references.
        method: "polyreference" (frequency domain) or "lsce" (impulse responses; evenly spaced lines only).
        references: the inputs to use; or outputs, with a roving excitation. Where None, or where all names are both,
            whichever are fewer.
        chosen: poles selected manually: frequencies in Hz, pairs of order and frequency, or lists of such pairs, whose
            poles are merged into one mode; or "stable", all stable poles of the chart. They are refined, and none is
            added or removed; neighbouring stable poles are fitted too, so that a selected pole cannot drift to them.
        rule: of the automatic selection; the default is intended for all data.
        report: called with a progress message from time to time.
        hits: responses to the single hits behind the averages, each a set of one input, where recorded
            (`HitTest.hits`, `Estimate.hits`). Where frequencies vary, the modes are those of the hits.

    Raises:
        ValueError: an option is invalid, or the data do not permit an analysis.

    Source: see `polyreference_poles`, `lsce_poles`, `refine_poles`.
    """
    options = {
        "band_hz": band_hz,
        "max_order": max_order,
        "method": method,
        "references": references,
        "chosen": chosen,
        "rule": rule or StabilityRule(),
    }
    return _analysed(frf_set, options, None, report or (lambda _: None), hits)


def reselected(frf_set: FrfSet, earlier: ModalAnalysis, chosen: Sequence[Chosen]) -> ModalAnalysis:
    """Modal analysis of other poles of the same stabilization chart, which is not computed again.

    Args:
        frf_set: the analysed FRFs.
        earlier: their analysis with `chosen`.
        chosen: as of `modal_analysis`.

    Raises:
        ValueError: see `modal_analysis`.
    """
    return _analysed(frf_set, {**earlier.options, "chosen": chosen}, earlier.chart, lambda _: None, ())


def _analysed(
    frf_set: FrfSet,
    options: Table,
    chart: StabilizationChart | None,
    report: Callable[[str], None],
    hits: Sequence[FrfSet],
) -> ModalAnalysis:
    """Analysis with options of `modal_analysis`; with `chosen`, by the chart of an earlier analysis if one is given."""
    band_hz, max_order, method, references, chosen, rule = (
        options[key] for key in ("band_hz", "max_order", "method", "references", "chosen", "rule")
    )
    check_choice("method", method, get_args(Method))
    data = modal_data(frf_set, None if band_hz is None else band_of(band_hz), references)
    frequency_hz, responses = data.frf_set.frequency_hz, data.responses
    orders, remarks = orders_of(max_order, responses.shape, data.lost)
    band = within(frequency_hz, band_hz)
    scale = np.sqrt(np.mean(np.abs(responses) ** 2, axis=(0, 2)))
    scaled = responses / scale[:, None]
    single = single_hits(data, hits) if len(hits) >= FEWEST_RESPONSES else None
    if single is not None:
        own = scale[single.point][:, None] if data.transposed else scale
        single = dataclasses.replace(single, responses=single.responses / own)
    lines = as_lines(2j * np.pi * frequency_hz + frf_set.decay_1_s, scaled, DERIVATIVES[frf_set.kind])
    search = Search(frequency_hz, lines, scaled, band, orders, ESTIMATORS[method], rule, frf_set.decay_1_s)
    # the matrices are small: LAPACK's own threads would only synchronize
    with threadpool_limits(1, user_api="blas"):
        found = _by_rule(search, report, single, data) if chosen is None else _by_hand(search, report, chosen, chart)
    model = _model(data, found.search, found.refined, scale, found.mode)
    remarks = [*data.remarks, *remarks, *found.remarks, *_warnings(model, found.refined, responses.shape[2])]
    if chosen is None:
        scatter = found.scatter
        remarks += _not_on_chart(model, found.chart, found.start, rule) if scatter is None else scatter.remarks
        remarks += [f"{hz:.6g} Hz may be a mode too: it is stable in the residual, but weak" for hz in found.doubtful]
    noise, left = (part * scale[:, None] for part in (found.refined.noise, remainder(found.search, found.refined)))
    options = {
        "band_hz": band if band_hz is None else band_of(band_hz),
        "max_order": orders[-1],
        "method": method,
        "references": data.frf_set.outputs if data.transposed else data.frf_set.inputs,
        "chosen": chosen if chosen is None or isinstance(chosen, str) else tuple(chosen),
        "rule": rule,
    }
    if data.transposed:
        noise, left = noise.T, left.transpose(0, 2, 1)
    return ModalAnalysis(
        model, found.chart, found.start, noise, frequency_hz, left, found.scatter, tuple(remarks),
        MappingProxyType(options),
    )  # fmt: skip


class _Found(NamedTuple):
    """Refined poles of a search."""

    search: Search
    """The search whose responses were used for the refinement."""
    chart: StabilizationChart
    start: np.ndarray
    refined: RefinedPoles
    mode: np.ndarray
    """Which poles are modes."""
    scatter: Scatter | None = None
    doubtful: np.ndarray = np.zeros(0)
    """Frequencies of weak poles that were rejected, Hz."""
    remarks: tuple[str, ...] = ()


def _by_rule(search: Search, report: Callable[[str], None], single: SingleHits | None, data: ModalData) -> _Found:
    """Stable poles of the chart, refined."""
    report("testing whether frequencies vary between responses")
    varying = varying_test(search, report, single, data.transposed)
    report("stabilization chart")
    chart = chart_of(search, search.frf, search.orders)
    report("refining the poles")
    start = stable_poles(chart)
    refined = refine_poles(search.lines, chart.eigenvalue[start], chart.participation[start])
    if varying is not None:
        moved = varying.refined
        # of wide modes that overlap, constant poles may look like varying ones on the lines around each
        if residual_ratio(refined, moved) >= LEAST_GAIN:
            search = varying.search
            chart = chart_of(search, search.frf, search.orders)
            mode = is_mode(moved, search.band_hz, search.rule)
            mode[varying.modes.eigenvalue.size :] = False
            between = "hits" if single is not None else "inputs" if data.transposed else "outputs"
            return _Found(search, chart, stable_poles(chart), moved, mode, scatter_of(varying, mode, between))
    refined, doubtful = with_residual_poles(search, with_poles_beside(search, all_strong(search, refined)))
    weighted, refined = with_noise_of_lines(search, refined)
    if weighted is not search:
        search = weighted
        refined, doubtful = with_residual_poles(search, with_poles_beside(search, refined))
    remarks: tuple[str, ...] = ()
    mode = is_mode(refined, search.band_hz, search.rule)
    if search.frf.shape[2] == 1:
        twin = twins(search, refined)
        mode &= ~twin
        remarks = tuple(
            f"{hz:.6g} Hz may be a mode too: it is omitted, since it is within a half-power bandwidth of another one"
            " and there is one reference; if both are modes, select both by hand if the chart has both, or measure with"
            " a second one"
            for hz in np.abs(refined.eigenvalue[twin]) / (2 * np.pi)
        )
    if not mode.any() and stable_poles(chart_of(search, search.frf.conj(), search.orders)).size:
        remarks = ("damping is negative: if the FRFs are for exp(-j omega t), conjugate them",)
    return _Found(search, chart, start, refined, mode, None, doubtful, remarks)


def _by_hand(
    search: Search, report: Callable[[str], None], chosen: Sequence[Chosen] | Literal["stable"],
    chart: StabilizationChart | None,
) -> _Found:  # fmt: skip
    """Manually selected poles, refined."""
    if chart is None:
        report("stabilization chart")
        chart = chart_of(search, search.frf, search.orders)
    report("refining the poles")
    if isinstance(chosen, str) and chosen == "stable":
        start, merged = stable_poles(chart), np.zeros(0, int)
    else:
        start, merged = by_hand(chart, chosen, search.band_hz, search.rule)
    # the stable poles not selected are fitted too: a selected pole would drift to them otherwise
    fitted = np.concatenate([start, neighbouring_poles(chart, np.concatenate([start, merged]), search.rule)])
    refined = refine_poles(search.lines, chart.eigenvalue[fitted], chart.participation[fitted])
    search, refined = with_noise_of_lines(search, refined, significant=False)
    mode = is_mode(refined, search.band_hz, search.rule)
    mode[start.size :] = False
    return _Found(search, chart, start, refined, mode)


def _model(data: ModalData, search: Search, refined: RefinedPoles, scale: np.ndarray, mode: np.ndarray) -> ModalModel:
    """The poles in the scale of the set by ascending frequency, modes separated from other poles."""
    order = np.argsort(np.abs(refined.eigenvalue), kind="stable")
    eigenvalue, shape, participation = refined.eigenvalue[order], refined.shape[:, order], refined.participation[order]
    upper, lower = residual_terms(search.lines, search.frf, eigenvalue, shape, participation)
    shape, upper, lower = shape * scale[:, None], upper * scale[:, None], lower * scale[:, None]
    if data.transposed:
        shape, participation, upper, lower = participation.T, shape.T, upper.T, lower.T
    largest = largest_of_rows(shape.T)
    shape, participation = shape / largest.T, participation * largest
    mode = mode[order]
    return ModalModel(
        eigenvalue=eigenvalue[mode],
        shape=shape[:, mode],
        participation=participation[mode],
        pole_covariance=refined.covariance[order][mode],
        upper_residual=upper,
        lower_residual=lower,
        beyond_eigenvalue=eigenvalue[~mode],
        beyond_shape=shape[:, ~mode],
        beyond_participation=participation[~mode],
        kind=data.frf_set.kind,
        unit=data.frf_set.unit,
        outputs=data.frf_set.outputs,
        inputs=data.frf_set.inputs,
        band_hz=search.band_hz,
    )


def _warnings(model: ModalModel, refined: RefinedPoles, references: int) -> list[str]:
    """Warnings on the identified modes."""
    warnings = (
        (not model.eigenvalue.size, "no pole in the band is stable"),
        (
            not refined.converged,
            "the refinement of the poles did not converge: nearby poles fit the responses better, and standard"
            " deviations do not include that error",
        ),
        (references == 1, "one reference: modes at the same frequency are not distinguishable, two are needed"),
    )
    return [text for applies, text in warnings if applies]


def _not_on_chart(model: ModalModel, chart: StabilizationChart, start: np.ndarray, rule: StabilityRule) -> list[str]:
    """A remark for each mode without a corresponding stable pole of the chart."""
    remarks = []
    # each mode is paired with the nearest unpaired pole of the chart
    free = list(chart.frequency_hz[start])
    for frequency_hz in model.frequency_hz:
        near = min(free, key=lambda f, at=frequency_hz: abs(f - at), default=np.inf)
        if abs(near / frequency_hz - 1.0) <= rule.frequency:
            free.remove(near)
        else:
            remarks.append(f"{frequency_hz:.6g} Hz is not stable on the chart: it was found in the residual")
    return remarks
