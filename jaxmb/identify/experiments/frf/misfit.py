"""What a fit that does not follow its FRFs looks like: sentences on what may be wrong with the test."""

import math
from typing import NamedTuple

import numpy as np

from jaxmb.identify.experiments.frf.frf_test import FrfTest
from jaxmb.response.frf_kind import dof_names

FACTOR = 0.3
"""Logarithm of a factor on all lines, from which on it is named."""
CONSTANT = 1.0 / 3.0
"""Log-magnitudes are off by one factor where their interquartile range is below this share of their median."""
MOST = 0.8
"""Share of lines that is nearly all."""


class FrfMisfit(NamedTuple):
    """How far a fit is off an FRF test, and what that may come from."""

    cause: str
    factor: float
    """Of magnitudes, root mean square; 1 where only phases are off."""
    degrees: float
    """Of phases."""


def frf_misfit(test: FrfTest, fitted: np.ndarray, poor: bool, undamped: bool) -> FrfMisfit | None:
    """How a fit does not follow an FRF test; None where it does.

    Args:
        test: what was measured.
        fitted: FRFs [f, o, i] of the identified machine.
        poor: whether the fit does not follow the test.
        undamped: whether every free damping ended on its lower bound.
    """
    measured = np.asarray(test.measured)
    used = (np.asarray(test.weight) > 0.0) & np.isfinite(fitted) & (fitted != 0.0)
    if not used.any() or not (poor or undamped):
        return None
    reversed_time = _other_sign_of_time(test, measured, fitted, used)
    if not (poor or reversed_time):
        return None
    cause = _reversed_time_text() if reversed_time else _cause(test, measured, fitted, used)
    cause = cause if poor else f"every damping is on its lower bound and {cause}"
    return FrfMisfit(cause, *_size(test, measured, fitted, used))


def _size(test: FrfTest, measured: np.ndarray, fitted: np.ndarray, used: np.ndarray) -> tuple[float, float]:
    """Root mean square errors of magnitude and phase, lines counting by their noise as in the error of log H."""
    error, counts = np.log(measured[used] / fitted[used]), np.asarray(test.noise_std)[used] ** -2.0
    squares = np.real(error) ** 2, np.imag(error) ** 2
    factor, angle = (math.sqrt(float(np.sum(counts * each) / np.sum(counts))) for each in squares)
    return math.exp(min(factor, 100.0)), math.degrees(angle)


def _reversed_time_text() -> str:
    return "its phases have the opposite sign: are the FRFs for exp(-j omega t)?"


def _cause(test: FrfTest, measured: np.ndarray, fitted: np.ndarray, used: np.ndarray) -> str:
    error = np.log(np.where(used, measured, 1.0) / np.where(used, fitted, 1.0))
    size = np.real(error)[used]
    middle = float(np.median(size))
    spread = float(np.subtract(*np.percentile(size, [75.0, 25.0])))
    if abs(middle) > FACTOR and spread <= CONSTANT * abs(middle):
        return f"measured over fitted is {math.exp(middle):.3g} throughout: is it the unit?"
    opposite = _opposite_side(test, np.abs(np.imag(error)) > 0.5 * np.pi, used)
    if opposite:
        return f"measured and fitted are opposite at {opposite}: is a sensor or hammer reversed?"
    return (
        "check posture, unit, frame, sign and order of points, or whether weak FRFs are noise (coherence, cross_axis)"
    )


def _opposite_side(test: FrfTest, opposite: np.ndarray, used: np.ndarray) -> str:
    """The output, or the input, at which nearly all lines of every FRF are opposite, and of no other FRF."""
    share = np.sum(opposite & used, axis=0) / np.maximum(np.sum(used, axis=0), 1)
    known, turned = used.any(axis=0), share > MOST
    for what, points, on, there in (
        ("output", test.outputs, turned, known),
        ("input", test.inputs, turned.T, known.T),
    ):
        whole = np.all(on | ~there, axis=1) & np.any(there, axis=1)
        if whole.any() and not whole.all() and np.array_equal(whole[:, None] & there, on & there):
            return f"{what} {', '.join(name for name, is_on in zip(dof_names(points), whole, strict=True) if is_on)}"
    return ""


def _other_sign_of_time(test: FrfTest, measured: np.ndarray, fitted: np.ndarray, used: np.ndarray) -> bool:
    """Whether the conjugate of what was measured looks more like an FRF of the machine.

    A passive machine takes up power where it is driven: Re(H / (j omega)^(d-1)) >= 0, d = 0 for receptance, 1 mobility,
    2 accelerance. Of receptance and accelerance that is the sign of the imaginary part. Where no force acts at a
    sensor, the signs of real and imaginary parts are compared with the fitted ones.
    """
    driven = np.array([[o == i for i in test.inputs] for o in test.outputs])
    here = used & driven
    if here.any() and test.derivatives != 1:
        taken_up = np.real(measured / 1j ** (test.derivatives - 1))[here]
        as_is, conjugate, opposite = (
            float(np.median(np.abs(np.log(h / fitted[used]))))
            for h in (measured[used], np.conj(measured[used]), -measured[used])
        )
        return float(np.mean(taken_up < 0.0)) > MOST and conjugate < min(as_is, opposite, 1.0)
    turning = used & (np.abs(np.imag(measured)) > 0.2 * np.abs(measured))  # near the real axis noise decides the sign
    same = [part(measured) * part(fitted) > 0.0 for part in (np.real, np.imag)]
    if not turning.any() or not (used & ~turning).any():
        return False
    return float(np.mean(same[0][used & ~turning])) > MOST and float(np.mean(same[1][turning])) < 1.0 - MOST
