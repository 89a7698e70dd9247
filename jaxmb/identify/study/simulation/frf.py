"""Pseudo-measured frequency responses of a machine whose parameters are known."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmb.identify.experiments.entry import Truth
from jaxmb.identify.experiments.frf.channels import predict_frf
from jaxmb.identify.experiments.motion_view import MotionView, check_motion, motion_view
from jaxmb.identify.study.context import ReadingContext, simulated_machine
from jaxmb.identify.study.format.test_format import Hits, Lines, Simulate
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.reciprocity import stack_inputs
from jaxmb.measurement.records.file import MeasuredFrf
from jaxmb.measurement.records.impacts import estimate_frf_from_hits
from jaxmb.mechanics.postures import stated_posture
from jaxmb.mechanics.tangent import motion_coordinates, motion_stiffness, with_loaded_stiffness
from jaxmb.response.frf import IDEAL, response_rows
from jaxmb.response.frf_kind import DERIVATIVES, DIRECTIONS, GROUND_DIRECTIONS, Point, dof_names
from jaxmb.response.hits import Sensor, Softening, record_hits
from jaxmb.response.modal import modes

FORCES = DIRECTIONS[:3]
"""x, y, z: along what a hammer can hit."""
BEFORE_HIT = 0.02
"""Share of a record before the hammer touches."""


def simulated_frf(
    how: Simulate, at: dict[str, float], outputs: tuple[Point, ...], inputs: tuple[Point, ...], context: ReadingContext,
    sensor: Sensor,
) -> tuple[MeasuredFrf, Truth]:  # fmt: skip
    """FRFs between points of a machine at a posture, with those of single hits, and the machine they are of.

    Args:
        how: entry of the study file.
        at: posture, by coordinate.
        outputs: points and directions of the sensors.
        inputs: those of the forces.
        context: of the tests.
        sensor: of all outputs.

    Raises:
        ValueError: the machine or its posture cannot be, or hits are to be measured by a sensor that is not ideal.
    """
    model, seed, truth = simulated_machine(how, context)
    q, _ = stated_posture(model, at)
    seen = motion_view(model, q, context.file.linearize_at, outputs, inputs, sensor.gravity, False, False)
    check_motion(seen, motion_coordinates(model))
    draw = np.random.default_rng(seed)
    if how.hits is not None:
        if sensor != IDEAL:
            raise ValueError("simulated hits are measured by ideal sensors, expected lines, or no sensor")
        estimate = _from_hits(how.hits, model, q, seen, outputs, inputs, draw)
    else:
        estimate = MeasuredFrf(_computed(how, seen, outputs, inputs, sensor, draw), ())
    return estimate, dataclasses.replace(truth, modes=modes(seen.tangent))


def _computed(
    how: Simulate,
    seen: MotionView,
    outputs: tuple[Point, ...],
    inputs: tuple[Point, ...],
    sensor: Sensor,
    draw: np.random.Generator,
) -> FrfSet:
    frequency_hz = _frequencies(how.lines)
    omega, decay = jax.device_put((2 * np.pi * frequency_hz, np.zeros(())))
    # with all arguments, as tests call it: one program for both
    h = np.asarray(predict_frf(seen, omega, DERIVATIVES[how.response], decay, sensor, None))
    if how.noise_log_std > 0.0:
        real, imaginary = draw.normal(scale=how.noise_log_std, size=(2, *h.shape))
        h = h * np.exp(real + 1j * imaginary)
    return FrfSet(frequency_hz, h, how.response, dof_names(outputs), dof_names(inputs), source="simulated")


def _frequencies(lines: Lines | None) -> np.ndarray:
    if lines is None:
        raise ValueError("expected either lines or hits")
    count = int(np.floor((lines.last_hz - lines.first_hz) / lines.step_hz + 1e-9)) + 1
    return lines.first_hz + lines.step_hz * np.arange(count)


def _from_hits(
    how: Hits, model: Model, q: Array, seen: MotionView, outputs: tuple[Point, ...], inputs: tuple[Point, ...],
    draw: np.random.Generator,
) -> MeasuredFrf:  # fmt: skip
    """FRFs as H1 gives them from records of hits, one input after the other, with an exponential window.

    A hammer never hits exactly where the sensor sits and along its axis. That, and springs that differ from hit to
    hit with their deflection, is what makes cross FRFs unsymmetric.

    Raises:
        NotImplementedError: the machine has motors behind gears, beams or loops.
        ValueError: an input is a moment.
    """
    if model.motors or model.beams or model.loops:
        raise NotImplementedError(
            "hits are simulated of machines without motors behind gears, beams and loops: expected lines"
        )
    for point in inputs:
        if point[1].removeprefix("-").lower() not in FORCES:
            raise ValueError(f"input '{' '.join(point)}': a hammer gives no moment, expected x, y or z")
    rows = np.stack([_hit_row(how, model, q, point, draw) for point in inputs])
    impulse = how.impulse_ns * np.exp(how.impulse_log_std * draw.normal(size=(len(inputs), how.hits)))
    samples = round(how.record_s * how.sample_rate_hz)
    force, response = record_hits(
        seen.tangent,
        motion_stiffness(with_loaded_stiffness(model, q)),
        Softening(jnp.asarray(how.softening), jnp.asarray(how.softening_half)),
        seen.output_rows,
        jnp.asarray(np.repeat(rows, how.hits, axis=0)),
        jnp.asarray(impulse.ravel()),
        start_s=BEFORE_HIT * how.record_s,
        length_s=1e-3 * how.contact_ms,
        sample_rate_hz=how.sample_rate_hz,
        samples=samples,
    )
    response = np.asarray(response) + how.noise * draw.normal(size=response.shape)
    records = list(zip(np.asarray(force), response, strict=True))
    tests = [
        estimate_frf_from_hits(
            records[i * how.hits : (i + 1) * how.hits],
            how.sample_rate_hz,
            decay_1_s=how.decay_1_s,
            outputs=dof_names(outputs),
            inputs=dof_names(inputs[i : i + 1]),
            source="simulated hits",
        )
        for i in range(len(inputs))
    ]
    hits = tuple(hit for test in tests for hit in test.hits)
    return MeasuredFrf(stack_inputs([test.frf_set for test in tests]), (), hits=hits)


def _hit_row(how: Hits, model: Model, q: Array, point: Point, draw: np.random.Generator) -> np.ndarray:
    """Jacobian [n] of where and along what the hammer really hits: beside the point, and askew.

    A force f at r from the frame's origin does the work f . (v + w x r) = f . v + (r x f) . w.
    """
    axes = GROUND_DIRECTIONS if point[1].isupper() else DIRECTIONS
    rows = np.asarray(response_rows(model, q, [(point[0], axis) for axis in axes]))
    direction = np.zeros(3)
    direction[FORCES.index(point[1].removeprefix("-").lower())] = -1.0 if point[1].startswith("-") else 1.0
    askew = direction + np.radians(how.tilt_deg) * draw.normal(size=3) * (direction == 0.0)
    askew /= np.linalg.norm(askew)
    offset = how.offset_m * draw.normal(size=3)
    return np.concatenate([askew, np.cross(offset, askew)]) @ rows
