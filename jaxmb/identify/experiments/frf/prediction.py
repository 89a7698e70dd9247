"""Frequency responses of a machine, as predicted for a test."""

from jaxtyping import Array, Complex, Float

from jaxmb.compiled import compiled
from jaxmb.identify.experiments.frf.channels import Channels
from jaxmb.identify.experiments.motion_view import MotionView
from jaxmb.response.frf import IDEAL, sensed_receptance
from jaxmb.response.hits import Sensor


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
