"""Channels of an FRF test: gains of its sensors and force transducers, and a delay between both."""

from collections.abc import Sequence

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmb.response.frf_kind import Point, dof_names


class Channels(eqx.Module):
    """What channels make of a frequency response: H gain[o] / force_gain[i] exp(-s delay), s = j omega + decay.

    A sensor and a force transducer at one point are two channels, each with a gain of its own.
    """

    gain: Float[Array, "o"] | Float[np.ndarray, "o"]
    """Reading of each response over what it is."""
    force_gain: Float[Array, "i"] | Float[np.ndarray, "i"]
    """Reading of each force over what it is: it divides the response."""
    delay: Float[Array, ""] | Float[np.ndarray, ""]
    """By which responses are read later than forces, s."""

    def seen(
        self, frf: Complex[Array, "f o i"], omega: Float[Array, "f"], decay: Float[Array, ""] | float
    ) -> Complex[Array, "f o i"]:
        """Frequency responses as they are read at angular frequencies omega, rad/s.

        Args:
            frf: of the machine.
            omega: lines.
            decay: rate of the exponential window behind the responses, 1/s.
        """
        factor = jnp.asarray(self.gain)[:, None] / jnp.asarray(self.force_gain)
        return frf * factor * jnp.exp(-(decay + 1j * omega) * self.delay)[:, None, None]

    def changed(self, gain: Float[Array, "o"], force_gain: Float[Array, "i"], delay: Float[Array, ""]) -> "Channels":
        """The channels with logarithms added to their gains, and a delay."""
        return Channels(self.gain * jnp.exp(gain), self.force_gain * jnp.exp(force_gain), self.delay + delay)

    @property
    def numbers(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """Gains of responses, of forces, and the delay, in the order of `channel_names`."""
        xp = self.gain.__array_namespace__()
        return xp.concatenate([self.gain, self.force_gain, xp.reshape(self.delay, 1)])


def ideal_channels(outputs: int, inputs: int) -> Channels:
    """Channels that read what is there."""
    return Channels(np.ones(outputs), np.ones(inputs), np.zeros(()))


def channels_of(numbers: Float[Array, "k"] | Float[np.ndarray, "k"], outputs: int) -> Channels:
    """Channels from their numbers, in the order of `channel_names`."""
    return Channels(numbers[:outputs], numbers[outputs:-1], numbers[-1])


def channel_names(test: str, outputs: Sequence[Point], inputs: Sequence[Point]) -> tuple[str, ...]:
    """Names of the numbers of a test's channels: gain.TEST.POINT, force_gain.TEST.POINT, delay.TEST."""
    gains = [f"{family}.{test}.{point}" for family, points in (("gain", outputs), ("force_gain", inputs))
             for point in dof_names(points)]  # fmt: skip
    return (*gains, f"delay.{test}")
