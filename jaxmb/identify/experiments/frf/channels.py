"""Responses predicted for an FRF test, and its channels: gains of sensors and force transducers, and a delay."""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmb.compiled import compiled
from jaxmb.identify.estimation.least_squares import NormalEquations
from jaxmb.identify.experiments.components import OwnParameters
from jaxmb.identify.experiments.motion import MotionEvaluation
from jaxmb.identify.experiments.motion_view import AffineMotion, MotionView
from jaxmb.linalg.responses import receptance_by_entries
from jaxmb.linalg.small_solve import DynamicStiffness, Parts
from jaxmb.response.frf import IDEAL, Sensor, laplace, sensed_receptance, sensor_factor, with_decay
from jaxmb.response.frf_kind import dof_names

if TYPE_CHECKING:
    from jaxmb.identify.experiments.frf.frf_test import FrfTest


class Channels(eqx.Module):
    """Measurement channels of an FRF: measured H gain[o] / force_gain[i] exp(-s delay), s = j omega + decay.

    A sensor and a force transducer at one point are two channels, each with a gain of its own.
    """

    gain: Float[Array, "o"] | Float[np.ndarray, "o"]
    """Measured over true response."""
    force_gain: Float[Array, "i"] | Float[np.ndarray, "i"]
    """Measured over true force: it divides the FRF."""
    delay: Float[Array, ""] | Float[np.ndarray, ""]
    """Delay of the responses relative to the forces, s."""

    def applied_to(
        self, frf: Complex[Array, "f o i"], omega: Float[Array, "f"], decay: Float[Array, ""] | float
    ) -> Complex[Array, "f o i"]:
        """FRFs as measured through the channels.

        Args:
            frf: of the machine.
            omega: angular frequencies of the lines, rad/s.
            decay: rate of the exponential window behind the responses, 1/s.
        """
        factor = jnp.asarray(self.gain)[:, None] / jnp.asarray(self.force_gain)
        return frf * factor * jnp.exp(-(decay + 1j * omega) * self.delay)[:, None, None]


def known_channels(test: "FrfTest") -> Channels:
    """Channels of a test; unit gains and no delay where it has none."""
    ideal = Channels(np.ones(len(test.outputs)), np.ones(len(test.inputs)), np.zeros(()))
    return ideal if test.channels is None else test.channels


MOST_ENTRIES_PER_PARAMETER = 2
"""Varying entries of the tangent over free parameters, up to which derivatives by entries are cheaper than by
parameters."""
_MATRICES = ("stiffness", "damping", "mass", "structural")


def varying_matrices(view: AffineMotion, parameters: int) -> tuple[str, ...]:
    """Matrices of the tangent that depend on the free parameters, where normal equations by their entries are cheaper;
    empty otherwise."""
    slope, support = view.slope.tangent, view.base.support
    depends = {name: getattr(slope, name) is not None for name in _MATRICES}
    depends["structural"] |= view.products is not None
    found = tuple(name for name in _MATRICES if depends[name])
    if support is None or slope.fractional is not None or view.base.tilt_rows is not None:
        return ()
    return found if len(found) * len(support) <= MOST_ENTRIES_PER_PARAMETER * parameters else ()


@compiled
def predict_frf(
    view: MotionView,
    omega: Float[Array, "f"],
    derivatives: int,
    decay: Float[Array, ""] | float = 0.0,
    sensor: Sensor = IDEAL,
    channels: Channels | None = None,
) -> Complex[Array, "f o i"]:
    """Frequency responses [f, o, i] at s = j omega + decay; 0 derivatives for receptance, 2 for accelerance.

    M s^2 + C s + K at s equals the dynamic stiffness at j omega with C + 2 decay M for C and K + decay C + decay^2 M
    for K. Channels are applied last; None: ideal channels.
    """
    outputs, inputs = view.output_rows, view.output_rows if view.input_rows is None else view.input_rows
    frf = sensed_receptance(
        view.tangent, omega, decay, derivatives, outputs, inputs, view.tilt_rows, sensor, view.support
    )
    return frf if channels is None else channels.applied_to(frf, omega, decay)


class FrfChannels(OwnParameters["FrfTest"]):
    """Gains of the channels of an FRF test and its delay; only the delay where the FRFs are symmetrized."""

    @property
    def names(self) -> tuple[str, ...]:
        """gain.TEST.POINT, force_gain.TEST.POINT, delay.TEST."""
        test = self.test
        ends = (("gain", test.outputs), ("force_gain", test.inputs))
        gains = [f"{family}.{test.name}.{point}" for family, points in ends for point in dof_names(points)]
        return (*([] if test.symmetrized else gains), f"delay.{test.name}")

    @property
    def values(self) -> Float[Array, "k"] | Float[np.ndarray, "k"]:
        """Gains of its channels and its delay, in the order of `names`."""
        known = known_channels(self.test)
        xp = known.gain.__array_namespace__()
        values = xp.concatenate([known.gain, known.force_gain, xp.reshape(known.delay, 1)])
        return values[-1:] if self.test.symmetrized else values

    def with_values(self, values: Float[Array, "k"] | Float[np.ndarray, "k"]) -> "FrfTest":
        """The test with other gains and delay."""
        if self.test.symmetrized:
            channels = dataclasses.replace(known_channels(self.test), delay=values[-1])
        else:
            outputs = len(self.test.outputs)
            channels = Channels(values[:outputs], values[outputs:-1], values[-1])
        return dataclasses.replace(self.test, channels=channels)


class FrfEvaluation(MotionEvaluation["FrfTest"]):
    """Derivatives of an FRF by the varying entries of the tangent."""

    def stripped(self) -> "FrfTest":
        """The test without the components of its noise, more than half of its data."""
        nothing = np.zeros(())
        return dataclasses.replace(
            self.test, known_std=nothing, additive_std=nothing, magnitude=nothing, leak=nothing, excluded=nothing
        )

    def normal_equations(
        self, view: AffineMotion, values: Callable[[Float[Array, "d"]], Float[Array, "d"]], u: Float[Array, "d"]
    ) -> NormalEquations:
        """Normal equations of the residual at u; see `Evaluation.normal_equations`.

        Where few entries p of the tangent vary, from dH = -X_o^T dZ X_i and dZ = dK + s dC + s^2 dM + j dD: with E =
        dr / dp and S = dp / du they are S^T E^T r and S^T E^T E S. No derivative by a parameter, nor one of the
        logarithm, is formed at any line.
        """
        test, names = self.test, varying_matrices(view, u.size) if self.test.phase == "safe" else ()
        if not names:
            return super().normal_equations(view, values, u)
        scale = jnp.sqrt(test.weight) / test.noise_std
        used = scale > 0.0
        # At an unused line the response may be NaN, and 0 times NaN is not 0.
        of_use = jnp.any(used, axis=(1, 2))
        omega = jnp.where(of_use, test.omega, test.omega[jnp.argmax(of_use)])
        support = view.base.support or ()
        row, column = np.array(support, dtype=int).reshape(-1, 2).T

        def entries(u: Array) -> Array:
            tangent = view(values(u)).tangent
            return jnp.concatenate([getattr(tangent, name)[row, column] for name in names])

        view_there, s = view(values(u)), laplace(omega, test.decay)
        t = with_decay(view_there.tangent, test.decay)
        fractional, power = (None, None) if t.fractional is None else (t.fractional.matrix, t.fractional.power(s))
        z = DynamicStiffness(t.mass, t.damping, t.stiffness, omega, t.structural, fractional, power)
        outputs = view_there.output_rows
        inputs = outputs if view_there.input_rows is None else view_there.input_rows
        h, sensitivity = receptance_by_entries(z, outputs, inputs, support)
        seen = h * sensor_factor(laplace(test.omega, test.decay), test.derivatives, test.sensor)
        seen = seen if test.channels is None else test.channels.applied_to(seen, test.omega, test.decay)
        residual = test.residual_of(seen)
        size = h.real**2 + h.imag**2
        part = jnp.where(used, -scale / jnp.where(used, size, 1.0), 0.0)
        over = Parts((part * h.real).transpose(1, 2, 0), (-part * h.imag).transpose(1, 2, 0))
        relative = sensitivity.times(jax.lax.optimization_barrier(over))
        factors = {"stiffness": 1.0, "damping": s, "mass": s**2, "structural": 1j}
        by_entry = [relative.times(factors[name]) for name in names]
        rows = jnp.concatenate([jnp.stack(part, axis=1) for part in by_entry]).reshape(len(names) * len(support), -1)
        right = residual.reshape(2, *h.shape).transpose(0, 2, 3, 1).ravel()
        slope = jax.jacfwd(entries)(u)
        return NormalEquations(residual @ residual, slope.T @ (rows @ right), slope.T @ (rows @ rows.T) @ slope)
