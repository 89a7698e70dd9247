"""Normal equations of an FRF test by the entries of the tangent that move."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Complex, Float

from jaxmb.identify.estimation.least_squares import NormalEquations
from jaxmb.identify.experiments.motion import AffineMotion
from jaxmb.linalg import DynamicStiffness, Parts, receptance_by_entries
from jaxmb.response.frf import laplace, with_decay

MOST = 2
"""Entries that move, over free parameters, up to which this takes less than to differentiate by each parameter."""
_MATRICES = ("stiffness", "damping", "mass", "structural")


def moving(view: AffineMotion, parameters: int) -> tuple[str, ...]:
    """Matrices of the tangent that move, where normal equations are best taken by their entries; none where not."""
    slope, support = view.slope.tangent, view.base.support
    moves = {name: getattr(slope, name) is not None for name in _MATRICES}
    moves["structural"] |= view.products is not None
    found = tuple(name for name in _MATRICES if moves[name])
    if support is None or slope.fractional is not None or view.base.tilt_rows is not None:
        return ()
    return found if len(found) * len(support) <= MOST * parameters else ()


def equations_by_entries(
    view: AffineMotion,
    names: tuple[str, ...],
    values: Callable[[Float[Array, "d"]], Float[Array, "d"]],
    u: Float[Array, "d"],
    omega: Float[Array, "f"],
    decay: Float[Array, ""],
    compared: Callable[[Complex[Array, "f o i"]], Float[Array, "m"]],
    scale: Float[Array, "f o i"],
) -> NormalEquations:
    """Those of residuals scale log(H / measured), from dH = -X_o^T dZ X_i and dZ = dK + s dC + s^2 dM + j dD.

    Residuals depend on the parameters through few entries p of the tangent: with E = dr / dp and S = dp / du they are
    S^T E^T r and S^T E^T E S. No derivative by a parameter is formed at any line, nor one of the logarithm.

    Args:
        view: what the test sees, as a function of the free values.
        names: of the matrices that move (`moving`).
        values: the free values, as a function of u.
        u: where.
        omega: lines, rad/s.
        decay: s = j omega + decay.
        compared: residuals of receptances H, real parts then imaginary parts.
        scale: of each line, 0 where it is not used.
    """
    used = scale > 0.0
    # Where a line is not used at all the machine need not have a response, and 0 times NaN is no 0.
    of_use = jnp.any(used, axis=(1, 2))
    omega = jnp.where(of_use, omega, omega[jnp.argmax(of_use)])
    support = view.base.support or ()
    row, column = np.array(support, dtype=int).reshape(-1, 2).T

    def entries(u: Array) -> Array:
        tangent = view(values(u)).tangent
        return jnp.concatenate([getattr(tangent, name)[row, column] for name in names])

    seen, s = view(values(u)), laplace(omega, decay)
    t = with_decay(seen.tangent, decay)
    fractional, power = (None, None) if t.fractional is None else (t.fractional.matrix, t.fractional.power(s))
    z = DynamicStiffness(t.mass, t.damping, t.stiffness, omega, t.structural, fractional, power)
    outputs, inputs = seen.output_rows, seen.output_rows if seen.input_rows is None else seen.input_rows
    h, fall = receptance_by_entries(z, outputs, inputs, support)
    residual = compared(h)
    size = h.real**2 + h.imag**2
    part = jnp.where(used, -scale / jnp.where(used, size, 1.0), 0.0)
    over = Parts((part * h.real).transpose(1, 2, 0), (-part * h.imag).transpose(1, 2, 0))
    relative = fall.times(jax.lax.optimization_barrier(over))
    factors = {"stiffness": 1.0, "damping": s, "mass": s**2, "structural": 1j}
    by_entry = [relative.times(factors[name]) for name in names]
    rows = jnp.concatenate([jnp.stack(part, axis=1) for part in by_entry]).reshape(len(names) * len(support), -1)
    right = residual.reshape(2, *h.shape).transpose(0, 2, 3, 1).ravel()
    slope = jax.jacfwd(entries)(u)
    return NormalEquations(residual @ residual, slope.T @ (rows @ right), slope.T @ (rows @ rows.T) @ slope)
