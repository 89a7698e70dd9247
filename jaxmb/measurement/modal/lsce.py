"""Poles of many impulse responses together, by poly-reference least squares complex exponential."""

from collections.abc import Iterator

import numpy as np

from jaxmb.measurement.modal.polyreference import stable_roots

UNEVEN = 1e-6
"""Of the step: frequencies off their even place by more than this are not those of a discrete Fourier transform."""
SKIPPED = 2
"""First samples of the impulse responses, which hold what the ends of the band cut off."""


def lsce_poles(
    frequency_hz: np.ndarray, frf: np.ndarray, orders: range
) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """Poles and participations of every order, from linear prediction of the impulse responses.

    h_o(t_m) + h_o(t_m+1) A_1 + ... + h_o(t_m+n) A_n = 0,  h_o = sum_r psi_or l_r^T z_r^m,  so  l_r^T A(z_r) = 0

    The impulse responses are the inverse Fourier transform of the band, whose first line stands for frequency 0.
    Prediction runs backward (the lowest coefficient is the identity), as in `polyreference_poles` and for its reason.

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
            " method 'lsce' needs evenly spaced lines, 'polyreference' does not"
        )
    impulse = np.fft.irfft(frf, axis=0)
    # the second half of a circular response is its beginning, seen through the cut ends of the band
    rows = impulse.shape[0] // 2 - orders[-1] - SKIPPED
    if rows < orders[-1]:
        raise ValueError(f"the band has {frequency_hz.size} lines, too few for order {orders[-1]} of method 'lsce'")
    seconds = 1.0 / (step * impulse.shape[0])
    inputs = frf.shape[2]
    normal = _normal_matrix(impulse[SKIPPED:], rows, orders[-1])
    for order in orders:
        size = (order + 1) * inputs
        z, participation = stable_roots(normal[:size, :size], inputs)
        yield order, np.log(z) / seconds + 2j * np.pi * frequency_hz[0], participation


def _normal_matrix(impulse: np.ndarray, rows: int, order: int) -> np.ndarray:
    """Sum over outputs of W^T W, W [row, (k, input)] the samples from row to row + order."""
    _, outputs, inputs = impulse.shape
    size = (order + 1) * inputs
    total = np.zeros((size, size))
    place = np.arange(rows)[:, None] + np.arange(order + 1)[None, :]
    for o in range(outputs):
        windows = impulse[place, o, :].reshape(rows, size)
        total += windows.T @ windows
    return total
