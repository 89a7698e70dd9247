"""Dynamic stiffness matrices of a linearized machine."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Complex, Float


class DynamicStiffness(NamedTuple):
    """Z = K + j D + p E + j w C - w^2 M at every frequency line."""

    mass: Float[Array, "n n"]
    damping: Float[Array, "n n"]
    stiffness: Float[Array, "n n"]
    omega: Float[Array, "f"]
    structural: Float[Array, "n n"] | None = None
    """D."""
    fractional: Float[Array, "n n"] | None = None
    """E."""
    power: Complex[Array, "f"] | None = None
    """p at every line; None without E."""

    def at_lines(self) -> tuple[Float[Array, "n n f"], Float[Array, "n n f"]]:
        """Real and imaginary part of Z, lines last."""
        w = self.omega
        real = self.stiffness[..., None] - w**2 * self.mass[..., None]
        imaginary = w * self.damping[..., None]
        if self.structural is not None:
            imaginary = imaginary + self.structural[..., None]
        if self.fractional is not None and self.power is not None:
            real = real + self.power.real * self.fractional[..., None]
            imaginary = imaginary + self.power.imag * self.fractional[..., None]
        return real, imaginary

    def matrices(self) -> Complex[Array, "f n n"]:
        """Z of each line."""
        return jax.lax.complex(*self.at_lines()).transpose(2, 0, 1)


class Parts(NamedTuple):
    """Complex numbers as real and imaginary parts, frequency lines last, for vectorized arithmetic."""

    re: Float[Array, "... f"]
    im: Float[Array, "... f"]

    def joined(self) -> Complex[Array, "... f"]:
        """Complex array of the parts."""
        return jax.lax.complex(self.re, self.im)

    def times(self, factor: Any) -> "Parts":
        """Product with other parts, or with real or complex numbers."""
        if isinstance(factor, Parts):
            return Parts(self.re * factor.re - self.im * factor.im, self.re * factor.im + self.im * factor.re)
        if jnp.iscomplexobj(factor):
            return self.times(Parts(jnp.real(factor), jnp.imag(factor)))
        return Parts(self.re * factor, self.im * factor)
