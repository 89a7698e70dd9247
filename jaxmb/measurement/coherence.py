"""What a coherence tells of single responses: chance taken off, a multiple coherence shared out to its inputs."""

import numpy as np


def without_chance(coherence: np.ndarray, averages: int | None, inputs: int) -> np.ndarray:
    """Coherence without what chance alone makes of it, (n c - q) / (n - q), at least 0.

    Of n averages of noise that has nothing to do with q inputs, the coherence is q / n in the mean. It comes back as it
    is where the averages are not known, or no more than the inputs.

    Args:
        coherence: 0 to 1, of any shape; NaN stays.
        averages: n, independent ones.
        inputs: q, those behind the coherence.

    Source: Bendat, Piersol, Random Data, 4th ed., 9.2.3; the adjusted coefficient of determination of regression.
    """
    if averages is None or averages <= inputs:
        return coherence
    return np.maximum((averages * coherence - inputs) / (averages - inputs), 0.0)


def of_each_input(coherence: np.ndarray, frf: np.ndarray, averages: int | None) -> np.ndarray:
    """Coherence [f, output, input] that tells of every response what it tells of itself.

    An ordinary coherence comes back as it is. A multiple coherence c [f, output] tells the noise of an output against
    all that the q inputs make of it; against the part of one input of the same spectrum that noise is larger by

        share = sum_k |H_ok|^2 / |H_oi|^2,    c_oi = 1 / (1 + share (1 - c) / c (n - 1) / (n - q)),

    with the last factor, where n averages are known, for what chance makes of a coherence of q inputs and of one. 0
    where a response is 0, NaN where it or the coherence is not known.

    Args:
        coherence: [f, output] or [f, output, input].
        frf: responses [f, output, input] of all inputs behind the coherence.
        averages: independent ones, where known.
    """
    if coherence.ndim == 3:
        return coherence
    inputs = frf.shape[2]
    size = np.abs(frf)
    known = np.isfinite(size)
    largest = np.max(size, axis=2, keepdims=True, where=known, initial=0.0)
    # a part of the largest one: squares of very small responses would all be zero
    power = (np.where(known, size, 0.0) / np.where(largest > 0.0, largest, 1.0)) ** 2
    c = coherence[:, :, None]
    chance = (averages - 1) / (averages - inputs) if averages is not None and averages > inputs else 1.0
    signal = c * power
    with np.errstate(invalid="ignore", divide="ignore"):
        each = np.where(signal == 0.0, 0.0, signal / (signal + (1.0 - c) * power.sum(axis=2, keepdims=True) * chance))
    return np.where(known, each, np.nan)
