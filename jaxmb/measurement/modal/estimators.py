"""Poles of many frequency responses together, by poly-reference least squares in the frequency domain."""

from collections.abc import Iterator

import numpy as np

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
    sample = np.arange(rows)[:, None] + np.arange(order + 1)[None, :]
    for o in range(outputs):
        windows = impulse[sample, o, :].reshape(rows, size)
        total += windows.T @ windows
    return total
