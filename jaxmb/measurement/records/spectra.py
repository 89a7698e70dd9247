"""Spectra of forces and responses summed over segments, the estimators H1, H2 and Hv; windows and checks of records."""

import dataclasses
import math
from typing import Literal, TypeVar, get_args

import numpy as np

from jaxmb.io.validation import check_choice, finite_number
from jaxmb.measurement.frf_set import numbers


def signal_columns(what: str, values: object) -> np.ndarray:
    """Recorded values as floats [n, channel]; a 1-D record is one channel, integers are converted.

    Args:
        what: "force" or "response", for messages.
        values: the record [n] or [n, channel].

    Raises:
        ValueError: values are not real or finite, empty or of another shape, or a channel is constant.
    """
    array = numbers(what, values, float)
    if array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"{what} has shape {array.shape}, expected [samples] or [samples, channels], at least one")
    columns = array.reshape(array.shape[0], -1)
    for channel, column in enumerate(columns.T, start=1):
        check_finite(f"{what} {channel}", column)
    largest = np.abs(columns).max()
    if largest > 1e100:
        raise ValueError(f"{what} holds {largest:g}, expected numbers whose squares are finite")
    still = np.flatnonzero(np.ptp(columns, axis=0) == 0.0)
    if still.size:
        raise ValueError(f"{what} {still[0] + 1} is {columns[0, still[0]]:g} throughout, expected a signal")
    return columns


def check_finite(name: str, values: np.ndarray) -> None:
    """Raise ValueError with the first sample that is not a finite number."""
    wrong = np.flatnonzero(~np.isfinite(values))
    if wrong.size:
        raise ValueError(f"{name} is {values[wrong[0]]} at sample {wrong[0] + 1}, expected finite numbers")


def one_force(force: np.ndarray, test: str) -> np.ndarray:
    """The force [n] of a record [n, 1]; ValueError where it has more channels, in a test such as "a hammer"."""
    if force.shape[1] != 1:
        raise ValueError(f"force has {force.shape[1]} channels, expected the one of {test}")
    return force[:, 0]


def checked_record(force: object, response: object) -> tuple[np.ndarray, np.ndarray]:
    """Force [n, input] and response [n, output] of one record, of the same length.

    Raises:
        ValueError: see `signal_columns`; or they do not have the same number of samples.
    """
    f, y = signal_columns("force", force), signal_columns("response", response)
    if f.shape[0] != y.shape[0]:
        raise ValueError(f"force has {f.shape[0]} samples and response {y.shape[0]}, expected the same number")
    return f, y


Estimator = Literal["H1", "H2", "Hv"]
SILENT = 1e-24
"""Share of a force's largest power below which a line is not excited: the square of rounding errors."""
DEPENDENT = 1e-8
"""Smallest eigenvalue of the normalized force matrix below which forces are linearly dependent. Two 16-bit recordings
of one signal give about 1e-9."""


@dataclasses.dataclass(frozen=True, eq=False)
class Spectra:
    """Products of the transforms F of forces and Y of responses, for e^(+j omega t), summed over segments."""

    frequency_hz: np.ndarray
    force: np.ndarray
    """G_ff = sum F F^H [freq, input, input]."""
    cross: np.ndarray
    """G_yf = sum Y F^H [freq, output, input]."""
    response: np.ndarray
    """Power spectra of the responses, diagonal of G_yy [freq, output]."""
    response_matrix: np.ndarray | None
    """G_yy = sum Y Y^H [freq, output, output], where requested."""
    segments: int
    """Number of segments summed."""


def products(frequency_hz: np.ndarray, f: np.ndarray, y: np.ndarray, whole: bool = False) -> Spectra:
    """Spectra of segments.

    Args:
        frequency_hz: lines [freq].
        f: transforms of the forces [segment, freq, input].
        y: transforms of the responses [segment, freq, output].
        whole: whether to compute all of G_yy rather than its diagonal.
    """
    f, y = np.moveaxis(f, 0, -1), np.moveaxis(y, 0, -1)
    f_h = np.conj(np.swapaxes(f, 1, 2))
    matrix = y @ np.conj(np.swapaxes(y, 1, 2)) if whole else None
    return Spectra(frequency_hz, f @ f_h, y @ f_h, np.sum(np.abs(y) ** 2, axis=-1), matrix, f.shape[-1])


def summed(a: Spectra, b: Spectra) -> Spectra:
    """Spectra of the segments of both."""
    matrix = None if a.response_matrix is None or b.response_matrix is None else a.response_matrix + b.response_matrix
    return Spectra(
        a.frequency_hz, a.force + b.force, a.cross + b.cross, a.response + b.response, matrix, a.segments + b.segments
    )


def check_estimator(estimator: str, outputs: int, inputs: int) -> None:
    """Raise ValueError for an unknown estimator, or one not applicable to these numbers of outputs and inputs."""
    check_choice("estimator", estimator, get_args(Estimator))
    if estimator == "H2" and inputs > 1 and outputs != inputs:
        raise ValueError(
            f"H2 of {inputs} forces requires as many responses, found {outputs}: expected H1 or Hv, or more responses"
        )


def estimate(spectra: Spectra, estimator: Estimator = "H1") -> tuple[np.ndarray, np.ndarray]:
    """Frequency responses [freq, output, input] and multiple coherence [freq, output] from spectra.

    H1 = G_yf G_ff^-1       noise on the responses only;
    H2 = G_yy G_fy^-1       noise on the forces only; one force, or as many responses as forces;
    Hv                      noise on all channels: for each response y the row (H, -1) with the least power of its
                            product with forces and y, the eigenvector of the smallest eigenvalue of their spectral
                            matrix.
    gamma^2 = G_yf G_ff^-1 G_fy / G_yy for each response, the ordinary coherence where there is one force.

    Hv depends on the scaling of the channels. Each is scaled to power 1 at each line, which assumes the same
    signal-to-noise ratio of all channels; with one force, Hv is then the geometric mean of H1 and H2.

    Lines at which a force has no power are nan.

    Raises:
        ValueError: forces are linearly dependent at a line.

    Source: Bendat, Piersol, Random Data, 4th ed., 7.2; Rocklin, Crowley, Vold, 3rd IMAC, 1985, 272-278.
    """
    power = np.real(np.einsum("fii->fi", spectra.force))
    excited = np.all(power > SILENT * power.max(axis=0), axis=1)
    scale = np.sqrt(np.where(excited[:, None], power, 1.0))
    force = spectra.force / (scale[:, :, None] * scale[:, None, :])
    force[~excited] = np.eye(force.shape[1])
    smallest = np.linalg.eigvalsh(force)[:, 0]
    worst = int(np.argmin(smallest))
    if smallest[worst] < DEPENDENT:
        raise ValueError(
            f"the {force.shape[1]} forces are linearly dependent at {spectra.frequency_hz[worst]:g} Hz (smallest"
            f" eigenvalue {max(smallest[worst], 0.0):.1e} of their spectra scaled to power 1), expected independent"
            " sources"
        )
    cross = spectra.cross / scale[:, None, :]
    h1 = cross @ np.linalg.inv(force)
    with np.errstate(divide="ignore", invalid="ignore"):
        coherence = np.real(np.sum(h1 * np.conj(cross), axis=2)) / spectra.response
        if estimator == "H1":
            h = h1
        elif estimator == "Hv":
            h = _total_least_squares(force, cross, spectra.response)
        elif force.shape[1] == 1:
            h = spectra.response[:, :, None] / np.conj(cross)
        else:
            h = _h2(spectra, cross, excited)
        h = h / scale[:, None, :]
    h[~excited] = np.nan
    coherence[~excited] = np.nan
    return h, np.clip(coherence, 0.0, 1.0)


def _h2(spectra: Spectra, cross: np.ndarray, excited: np.ndarray) -> np.ndarray:
    """G_yy G_fy^-1 at the excited lines, each response scaled to power 1 while solving."""
    if spectra.response_matrix is None:
        raise ValueError("H2 of several forces requires the whole matrix of response spectra")
    size = np.sqrt(spectra.response[excited])
    unit = cross[excited] / np.where(size > 0.0, size, 1.0)[:, :, None]
    smallest = np.linalg.svd(unit, compute_uv=False)[:, -1]
    worst = int(np.argmin(smallest))
    # `DEPENDENT` bounds eigenvalues, the squares of singular values
    if smallest[worst] < np.sqrt(DEPENDENT):
        raise ValueError(
            f"the {cross.shape[1]} responses are linearly dependent at {spectra.frequency_hz[excited][worst]:g} Hz,"
            " for which H2 of several forces is not defined: expected H1 or Hv"
        )
    h = np.full(cross.shape, np.nan, dtype=complex)
    inverse = np.linalg.inv(np.conj(np.swapaxes(unit, 1, 2)))
    h[excited] = (spectra.response_matrix[excited] / size[:, None, :]) @ inverse
    return h


def _total_least_squares(force: np.ndarray, cross: np.ndarray, response: np.ndarray) -> np.ndarray:
    lines, inputs = force.shape[:2]
    augmented = np.empty((lines, inputs + 1, inputs + 1), dtype=complex)
    augmented[:, :inputs, :inputs] = force
    h = np.empty_like(cross)
    for o in range(cross.shape[1]):
        size = np.sqrt(response[:, o])
        unit = cross[:, o] / np.where(size > 0.0, size, 1.0)[:, None]
        augmented[:, inputs, :inputs] = unit
        augmented[:, :inputs, inputs] = np.conj(unit)
        augmented[:, inputs, inputs] = 1.0
        row = np.conj(np.linalg.eigh(augmented)[1][:, :, 0])
        h[:, o] = -row[:, :inputs] / row[:, inputs:] * size[:, None]
    return h


WINDOWS = ("hann", "boxcar", "hamming", "blackman", "blackmanharris", "nuttall", "flattop", "cosine", "bartlett")
"""Names of the windows of a segment, as in scipy.signal.get_window."""

Number = TypeVar("Number", complex, np.ndarray)


def segment_window(name: str, samples: int) -> np.ndarray:
    """Window [samples] of a segment, in its periodic form.

    Raises:
        ValueError: no window of that name.
    """
    from scipy.signal import get_window

    check_choice("window", name, WINDOWS)
    return np.asarray(get_window(name, samples))


def effective_averages(window: np.ndarray, step: int, segments: int) -> float:
    """Number of independent segments whose mean has the same variance as that of overlapping ones.

    n = K / (1 + 2 sum_m (1 - m / K) rho_m^2), rho_m = sum_k w_k w_(k + m step) / sum_k w_k^2, for noise that is white
    over the width of the window.

    Args:
        window: of a segment [samples].
        step: samples between the starts of consecutive segments.
        segments: K, number of segments averaged.

    Source: Welch, IEEE Trans. Audio Electroacoustics 15, 1967, p. 71; Harris, Proc. IEEE 66, 1978, eq. 17-18.
    """
    correlated = 0.0
    for m in range(1, min(segments, math.ceil(window.size / step))):
        rho = float(window[: -m * step] @ window[m * step :]) / float(window @ window)
        correlated += (1.0 - m / segments) * rho**2
    return segments / (1.0 + 2.0 * correlated)


def exponential_window(time_s: np.ndarray, decay_1_s: float) -> np.ndarray:
    """exp(-sigma t) at times [n] from the start of a hit, s; to be applied to force and response.

    Source: Fladung, Rost, Mech. Systems and Signal Processing 11(1), 1997, 23-36.
    """
    return np.exp(-decay_1_s * time_s)


def decay_of_end_level(end_level: float, length_s: float) -> float:
    """Decay rate sigma of the exponential window that reaches a level, such as 0.01, `length_s` after the hit, 1/s.

    The window begins at the hit. With the length of a record, the level is reached one record length after the hit; at
    the end of the record, earlier by the pre-trigger time, the window is slightly above it.

    Raises:
        ValueError: the level is not between 0 and 1, or the length is not above 0.
    """
    if not 0.0 < finite_number("end_level", end_level) <= 1.0:
        raise ValueError(f"end_level is {end_level!r}, expected above 0 and at most 1")
    return math.log(1.0 / end_level) / finite_number("length_s", length_s, above=0.0)


def without_window_damping(eigenvalue: Number, decay_1_s: float) -> Number:
    """Eigenvalues of the machine from those of responses with an exponential window; exact.

    The transforms of f exp(-sigma t) and y exp(-sigma t) are those of f and y at s = j omega + sigma, so the estimate
    is H(j omega + sigma), and a pole lambda of H appears at lambda - sigma. The correction keeps the damped frequency
    and reduces the decay rate zeta omega_n by sigma.

    Args:
        eigenvalue: identified on the axis j omega, rad/s.
        decay_1_s: sigma of the window, `FrfSet.decay_1_s`.

    Source: Fladung, Rost, Mech. Systems and Signal Processing 11(1), 1997, 23-36.
    """
    return eigenvalue + decay_1_s


def force_window(samples: int, start: int, stop: int, taper: int) -> np.ndarray:
    """Window [samples] of 1 from start to stop, followed by a half-cosine taper to 0, and 0 elsewhere."""
    sample = np.arange(samples)
    fall = 0.5 * (1.0 + np.cos(np.pi * np.clip((sample - stop + 1) / (taper + 1), 0.0, 1.0)))
    return np.where(sample >= start, fall, 0.0)
