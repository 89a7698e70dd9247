"""Experimental modal analysis: from measured FRFs to poles, shapes and residual terms."""

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.lsce import lsce_poles
from jaxmb.measurement.modal_data import ModalData, modal_data
from jaxmb.measurement.modal_model import ModalModel
from jaxmb.measurement.modal_refine import RefinedPoles, refine_poles
from jaxmb.measurement.polyreference import polyreference_poles
from jaxmb.measurement.residues import Lines, as_lines, residual_terms
from jaxmb.measurement.stabilization import (
    StabilityRule,
    StabilizationChart,
    by_hand,
    damping_ratio,
    merged,
    stabilization_chart,
    stable_poles,
)
from jaxmb.response.frf import DERIVATIVES

Method = Literal["polyreference", "lsce"]
ESTIMATORS = {"polyreference": polyreference_poles, "lsce": lsce_poles}
FIRST_ORDER = 8
ORDER_STEP = 2
LARGEST_COMPANION = 240
"""Order times references at most: eigenvalues of a larger matrix take minutes and find nothing more."""
BESIDE = 0.1
"""Part of the band beside it, on both sides, where poles are followed because their modes reach into it."""
LEAST_STRENGTH = 5.0
"""Mean square of a shape in its standard deviations: noise alone has 1, and up to 3 where a pole was fitted to it."""
MOST_LOOKS = 3


@dataclasses.dataclass(frozen=True, eq=False)
class ModalAnalysis:
    """Poles found in measured FRFs, and how."""

    model: ModalModel
    chart: StabilizationChart
    noise: np.ndarray
    """Standard deviation of the real and of the imaginary part of what the model leaves [output, input]."""
    remarks: tuple[str, ...]
    """What was left out of the data, and what a reader of the poles should know."""
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
        """Shapes [output, r], the largest component 1."""
        return self.model.shape


def modal_analysis(
    frf_set: FrfSet,
    band_hz: Sequence[float] | None = None,
    max_order: int = 60,
    method: Method = "polyreference",
    references: Sequence[str] | None = None,
    chosen: Sequence[float | tuple[int, float]] | None = None,
    rule: StabilityRule | None = None,
) -> ModalAnalysis:
    """Poles, shapes and residual terms of measured FRFs in a band.

    Args:
        frf_set: FRFs of any kind and unit; what is not finite is left out and remarked.
    """
    rule = rule or StabilityRule()
    data = modal_data(frf_set, None if band_hz is None else (float(band_hz[0]), float(band_hz[1])), references)
    frequency_hz = data.frf_set.frequency_hz
    band = (frequency_hz[0], frequency_hz[-1]) if band_hz is None else (float(band_hz[0]), float(band_hz[1]))
    responses = data.responses
    orders, order_remarks = _orders(max_order, responses.shape)
    scale = np.sqrt(np.mean(np.abs(responses) ** 2, axis=(0, 2)))
    lines = as_lines(data.s, responses / scale[:, None], DERIVATIVES[frf_set.kind])

    def look(values: np.ndarray) -> StabilizationChart:
        charts, cores = [], []
        for segment, core in segments(frequency_hz, band):
            part = values[segment]
            size = np.sqrt(np.mean(np.abs(part) ** 2, axis=(0, 2)))
            part = part / np.where(size > 0.0, size, 1.0)[:, None]
            found = (
                (order, eigenvalue + frf_set.decay_1_s, rows)
                for order, eigenvalue, rows in ESTIMATORS[method](frequency_hz[segment], part, orders)
            )
            ends = frequency_hz[segment][[0, -1]]
            charts.append(stabilization_chart(found, as_lines(data.s[segment], values[segment], lines.power), _beside((ends[0], ends[1])), rule))
            cores.append(core)
        return merged(charts, cores, rule)

    chart = look(responses / scale[:, None])
    picked = stable_poles(chart) if chosen is None else by_hand(chart, chosen, band)
    eigenvalue, participation = chart.eigenvalue[picked], chart.participation[picked]
    refined = refine_poles(lines, eigenvalue, participation)
    if chosen is None:
        refined = _without_weak(lines, refined)
        for _ in range(MOST_LOOKS if LOOKS else 0):
            found, refined = refined.eigenvalue.size, _second_look(lines, refined, look)
            if refined.eigenvalue.size <= found:
                break
    model = _model(data, refined, lines, scale, band, rule)
    noise = refined.noise * scale[:, None]
    return ModalAnalysis(
        model,
        chart,
        noise.T if data.transposed else noise,
        (*data.remarks, *order_remarks),
        MappingProxyType({"band_hz": band, "max_order": max_order, "method": method, "references": references}),
    )


def _second_look(lines: Lines, refined: RefinedPoles, look: Any) -> RefinedPoles:
    """The poles with those that are stable in what they leave of the responses."""
    half = lines.s.size
    chart = look(refined.remainder[:half] + 1j * refined.remainder[half:])
    new = stable_poles(chart)
    if new.size == 0:
        return refined
    eigenvalue = np.concatenate([refined.eigenvalue, chart.eigenvalue[new]])
    participation = np.concatenate([refined.participation, chart.participation[new]])
    tried = _without_weak(lines, refine_poles(lines, eigenvalue, participation))
    if DEBUG:
        print("   second look:", chart.frequency_hz[new].round(2), chart.damping_ratio[new].round(4),
              "->", (np.abs(tried.eigenvalue)/2/np.pi).round(2), "strength", tried.strength.round(1),
              "noise", np.median(refined.noise), np.median(tried.noise))
    return tried


def _without_weak(lines: Lines, refined: RefinedPoles) -> RefinedPoles:
    """The poles that stand out of the noise: the weakest one is left out, and the others refined, until all do."""
    while refined.eigenvalue.size and refined.strength.min() < LEAST_STRENGTH:
        keep = np.arange(refined.eigenvalue.size) != np.argmin(refined.strength)
        if DEBUG: print('   weak', abs(refined.eigenvalue[~keep])/2/np.pi, refined.strength.min())
        refined = refine_poles(lines, refined.eigenvalue[keep], refined.participation[keep])
    return refined


DEBUG = False
LOOKS = True

def _model(
    data: ModalData, refined: RefinedPoles, lines: Lines, scale: np.ndarray, band: tuple[float, float], rule: StabilityRule
) -> ModalModel:
    order = np.argsort(np.abs(refined.eigenvalue))
    eigenvalue, shape, participation = refined.eigenvalue[order], refined.shape[:, order], refined.participation[order]
    terms = residual_terms(lines, data.responses / scale[:, None], eigenvalue, shape, participation)
    upper, lower = terms[0] * scale[:, None], terms[1] * scale[:, None]
    shape = shape * scale[:, None]
    if data.transposed:
        shape, participation, upper, lower = participation.T, shape.T, upper.T, lower.T
    largest = np.take_along_axis(shape, np.argmax(np.abs(shape), axis=0)[None, :], axis=0)
    shape, participation = shape / largest, participation * largest.T
    frequency_hz = np.abs(eigenvalue) / (2 * np.pi)
    inside = (frequency_hz >= band[0]) & (frequency_hz <= band[1])
    inside &= damping_ratio(eigenvalue) <= rule.largest_damping_ratio
    return ModalModel(
        eigenvalue=eigenvalue[inside],
        shape=shape[:, inside],
        participation=participation[inside],
        pole_covariance=refined.covariance[order][inside],
        upper_residual=upper,
        lower_residual=lower,
        beyond_eigenvalue=eigenvalue[~inside],
        beyond_shape=shape[:, ~inside],
        beyond_participation=participation[~inside],
        kind=data.frf_set.kind,
        unit=data.frf_set.unit,
        outputs=data.frf_set.outputs,
        inputs=data.frf_set.inputs,
        band_hz=band,
    )


SEGMENT_LINES = 480
OVERLAP = 0.5

def segments(frequency_hz, band):
    count = max(1, round(frequency_hz.size / SEGMENT_LINES))
    ends = np.linspace(0, frequency_hz.size - 1, count + 1)
    reach = OVERLAP * (ends[1] - ends[0])
    low, high = _beside(band)
    out = []
    for i in range(count):
        a, b = max(0, round(ends[i] - reach)), min(frequency_hz.size - 1, round(ends[i + 1] + reach))
        core = (low if i == 0 else frequency_hz[round(ends[i])], high if i == count - 1 else frequency_hz[round(ends[i + 1])])
        out.append((slice(a, b + 1), core))
    return out


def _beside(band: tuple[float, float]) -> tuple[float, float]:
    reach = BESIDE * (band[1] - band[0])
    return band[0] - reach, band[1] + reach


def _orders(max_order: int, shape: tuple[int, ...]) -> tuple[range, tuple[str, ...]]:
    """Orders to try, and what was made of the largest one asked for."""
    count, _, references = shape
    if not isinstance(max_order, int) or max_order < 2:
        raise ValueError(f"max_order is {max_order!r}, expected a whole number of at least 2")
    if count < 8:
        raise ValueError(f"the band has {count} lines, expected at least 8")
    most = min(max_order, count // 2 - 1, max(LARGEST_COMPANION // references, 2))
    remarks = () if most == max_order else (f"orders go to {most}, not {max_order}: {count} lines, {references} references",)
    return range(min(FIRST_ORDER, most), most + 1, ORDER_STEP), remarks
