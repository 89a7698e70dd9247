"""FRFs of an FRF test, from a file or simulated, assigned to its points."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxmb.identify.experiments.frf.frf_test import FrfSource, predict_frf
from jaxmb.identify.experiments.test import Truth
from jaxmb.identify.experiments.vibration_view import VibrationView, check_vibration, vibration_view
from jaxmb.identify.study.context import ReadingContext, simulated_machine
from jaxmb.identify.study.format.vibration_format import FrfTestPart, Hits, Lines, Simulate
from jaxmb.io.validation import check_known, error_location, listed
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import (
    SI_UNITS,
    UNKNOWN,
    FrfSet,
    in_band,
    same_unit,
    select_channels,
    split_dof,
    to_si,
)
from jaxmb.measurement.modal.analysis import modal_analysis
from jaxmb.measurement.modal.model import synthesize
from jaxmb.measurement.reciprocity import reciprocal_pairs, stack_inputs, symmetrize, unsymmetry
from jaxmb.measurement.records.file import MeasuredFrf, in_stated_unit, measured_frf
from jaxmb.measurement.records.impacts import estimate_frf_from_hits
from jaxmb.mechanics.postures import stated_posture
from jaxmb.mechanics.tangent import motion_coordinates, motion_stiffness, with_loaded_stiffness
from jaxmb.response.frf import IDEAL, Sensor, response_rows
from jaxmb.response.frf_kind import ALL_DIRECTIONS, DERIVATIVES, DIRECTIONS, GROUND_DIRECTIONS, Point, dof_names
from jaxmb.response.hits import Softening, record_hits
from jaxmb.response.modal import modes


def named_points(
    read: FrfSet, outputs: Sequence[Point], inputs: Sequence[Point], nodes: Mapping[str, str], model: Model
) -> FrfSet:
    """The responses of a file with the names of the points of a test, as measured in the file.

    Names of a node and a direction, "tool x" or "12 -z", identify a response. If the node is a frame of the machine,
    or `nodes` assigns it to one, points are matched by name. If all names have one node that is no frame, and all
    points of the test one frame, they are matched by direction. The sign of a response measured against an axis is
    reversed. Names without node and direction are assigned to the points of the test in order.

    Args:
        read: contents of the file.
        outputs: points of the test.
        inputs: points of the test.
        nodes: frame of the machine by node of the file.
        model: the machine.

    Raises:
        ValueError: a point of the test is not in the file, or cannot be distinguished.
    """
    split = tuple(_split(read, names) for names in (read.outputs, read.inputs))
    sides = tuple(zip(split, (outputs, inputs), strict=True))
    present = {node for side in split if side is not None for node, _ in side}
    for node, frame in nodes.items():
        check_known(f"nodes: '{read.source}': node", [node], sorted(present))
        check_known(f"nodes: {node}: frame", [frame], model.frames)
    frame_of = {node: nodes.get(node, node) for node in present}
    counts = len(outputs), len(inputs)
    if any(side is None and n != wanted for side, n, wanted in zip(split, read.frf.shape[1:], counts, strict=True)):
        raise ValueError(
            f"'{read.source}' has {read.frf.shape[1]} outputs and {read.frf.shape[2]} inputs, expected"
            f" {counts[0]} and {counts[1]} for {', '.join(dof_names(outputs))} from {', '.join(dof_names(inputs))}"
        )
    if present and not nodes and not present & {*model.frames, *model.coordinates}:
        frame_of = _by_direction(read, sides)
    renamed = [
        dof_names(points) if side is None else tuple(f"{frame_of[node]} {direction}" for node, direction in side)
        for side, points in sides
    ]
    return dataclasses.replace(read, outputs=renamed[0], inputs=renamed[1])


Side = tuple[list[tuple[str, str]] | None, Sequence[Point]]
"""Node and direction of each output or input of the file, and points of the test."""


def _split(read: FrfSet, names: Sequence[str]) -> list[tuple[str, str]] | None:
    """Node and direction with its sign of every name; None where no name has them.

    Raises:
        ValueError: some names have them: the order of the points is no order of all names.
    """
    dofs = [split_dof(name) for name in names]
    without = [name for name, (_, direction, _) in zip(names, dofs, strict=True) if not direction]
    if 0 < len(without) < len(names):
        raise ValueError(
            f"'{read.source}' has the point '{without[0]}' beside {', '.join(n for n in names if n not in without)}:"
            f" expected a node and one of {', '.join(ALL_DIRECTIONS)} for all of them or for none"
        )
    return None if without else [(node, direction if sign > 0 else f"-{direction}") for node, direction, sign in dofs]


def _by_direction(read: FrfSet, sides: Sequence[Side]) -> dict[str, str]:
    """Frame of each node, where the outputs (or inputs) of the file have one node and those of the test one frame."""
    pairs = {(node, frame) for side, points in sides for node, _ in side or () for frame, _ in points}
    nodes, frames = (sorted(set(names)) for names in zip(*pairs, strict=True))
    if not len(nodes) == len(frames) == len(pairs):
        raise ValueError(
            f"'{read.source}' has the nodes {listed(nodes, 10)}, no frame of the machine, and the test the frames"
            f' {", ".join(frames)}: expected which frame each node is, nodes = {{ "1" = "tool" }}'
        )
    return dict(pairs)


FORCES = DIRECTIONS[:3]
"""Directions of hammer hits: x, y, z."""
PRETRIGGER = 0.02
"""Share of a record before the contact of the hammer."""


def simulated_frf(
    spec: Simulate,
    at: dict[str, float],
    outputs: tuple[Point, ...],
    inputs: tuple[Point, ...],
    context: ReadingContext,
    sensor: Sensor,
) -> tuple[MeasuredFrf, Truth]:
    """Simulated FRFs between points of a machine at a posture, with those of single hits, and the true machine.

    Args:
        spec: entry of the study file.
        at: posture, by coordinate.
        outputs: points and directions of the sensors.
        inputs: those of the forces.
        context: study file, machine and preliminary fits.
        sensor: of all outputs.

    Raises:
        ValueError: the machine or its posture is invalid, or hits are combined with a sensor that is not ideal.
    """
    model, seed, truth = simulated_machine(spec, context)
    q, _ = stated_posture(model, at)
    view = vibration_view(model, q, context.file.linearize_at, outputs, inputs, sensor.gravity, False, False)
    check_vibration(view, motion_coordinates(model))
    rng = np.random.default_rng(seed)
    if spec.hits is not None and sensor != IDEAL:
        raise ValueError("simulated hits are measured by ideal sensors, expected lines, or no sensor")
    estimate = (
        MeasuredFrf(_computed(spec, view, outputs, inputs, sensor, rng), ())
        if spec.hits is None
        else _from_hits(spec.hits, model, q, view, outputs, inputs, rng)
    )
    return estimate, dataclasses.replace(truth, modes=modes(view.tangent))


def _computed(
    spec: Simulate,
    view: VibrationView,
    outputs: tuple[Point, ...],
    inputs: tuple[Point, ...],
    sensor: Sensor,
    rng: np.random.Generator,
) -> FrfSet:
    lines = cast(Lines, spec.lines)  # given where no hits are
    count = int(np.floor((lines.last_hz - lines.first_hz) / lines.step_hz + 1e-9)) + 1
    frequency_hz = lines.first_hz + lines.step_hz * np.arange(count)
    omega, decay = jax.device_put((2 * np.pi * frequency_hz, np.zeros(())))
    # called with all arguments, as by the tests, so that both share one program
    h = np.asarray(predict_frf(view, omega, DERIVATIVES[spec.response], decay, sensor, None))
    if spec.noise_log_std > 0.0:
        real, imaginary = rng.normal(scale=spec.noise_log_std, size=(2, *h.shape))
        h = h * np.exp(real + 1j * imaginary)
    return FrfSet(frequency_hz, h, spec.response, dof_names(outputs), dof_names(inputs), source="simulated")


def _from_hits(
    spec: Hits, model: Model, q: Array, view: VibrationView, outputs: tuple[Point, ...], inputs: tuple[Point, ...],
    rng: np.random.Generator,
) -> MeasuredFrf:  # fmt: skip
    """H1 estimates of FRFs from records of hits with an exponential window, one input after the other.

    Hits beside the sensor or oblique to its axis, and softening springs, whose stiffness differs from hit to hit, make
    cross FRFs unsymmetric.

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
    rows = np.stack([_hit_row(spec, model, q, point, rng) for point in inputs])
    impulse = spec.impulse_ns * np.exp(spec.impulse_log_std * rng.normal(size=(len(inputs), spec.hits)))
    force, response = record_hits(
        view.tangent,
        motion_stiffness(with_loaded_stiffness(model, q)),
        Softening(jnp.asarray(spec.softening), jnp.asarray(spec.softening_half)),
        view.output_rows,
        jnp.asarray(np.repeat(rows, spec.hits, axis=0)),
        jnp.asarray(impulse.ravel()),
        start_s=PRETRIGGER * spec.record_s,
        length_s=1e-3 * spec.contact_ms,
        sample_rate_hz=spec.sample_rate_hz,
        samples=round(spec.record_s * spec.sample_rate_hz),
    )
    response = np.asarray(response) + spec.noise * rng.normal(size=response.shape)
    records = list(zip(np.asarray(force), response, strict=True))
    tests = [
        estimate_frf_from_hits(
            records[i * spec.hits : (i + 1) * spec.hits],
            spec.sample_rate_hz,
            decay_1_s=spec.decay_1_s,
            outputs=dof_names(outputs),
            inputs=dof_names(inputs[i : i + 1]),
            source="simulated hits",
        )
        for i in range(len(inputs))
    ]
    hits = tuple(hit for test in tests for hit in test.hits)
    return MeasuredFrf(stack_inputs([test.frf_set for test in tests]), (), hits=hits)


def _hit_row(spec: Hits, model: Model, q: Array, point: Point, rng: np.random.Generator) -> np.ndarray:
    """Jacobian row [n] of the actual position and direction of a hit, which differ from the stated ones.

    A force f at r from the frame's origin does the work f . (v + w x r) = f . v + (r x f) . w.
    """
    axes = GROUND_DIRECTIONS if point[1].isupper() else DIRECTIONS
    rows = np.asarray(response_rows(model, q, [(point[0], axis) for axis in axes]))
    direction = np.zeros(3)
    direction[FORCES.index(point[1].removeprefix("-").lower())] = -1.0 if point[1].startswith("-") else 1.0
    tilted = direction + np.radians(spec.tilt_deg) * rng.normal(size=3) * (direction == 0.0)
    tilted /= np.linalg.norm(tilted)
    return np.concatenate([tilted, np.cross(spec.offset_m * rng.normal(size=3), tilted)]) @ rows


OPPOSITE = 0.85
"""Unsymmetry above which two responses of a pair have opposite signs: 1 where one is minus the other, 0.71 where they
are uncorrelated. 0.85 is a correlation of -0.44 between responses of the same size."""
SAME_POSTURE = 1e-4
"""Largest difference of a coordinate between equal postures, rad or m."""


def responses_of_test(
    part: FrfTestPart, outputs: tuple[Point, ...], inputs: tuple[Point, ...], context: ReadingContext
) -> tuple[FrfSource, Truth | None, tuple[str, ...]]:
    """FRFs of a test, processed as the study states, the true machine of simulated ones, and remarks on their origin.

    Args:
        part: table of the study file.
        outputs: points of the test.
        inputs: points of the test.
        context: study file, machine and preliminary fits.

    Raises:
        ValueError: the data cannot be used as described.
    """
    sensors = outputs + tuple(
        (frame, axis) for frame in part.shape_frames for axis in "xyz" if (frame, axis) not in outputs
    )
    truth = None
    if part.simulate is not None:
        measured, truth = simulated_frf(part.simulate, part.posture, sensors, inputs, context, sensor_of(part))
    else:
        measured = _from_file(part, context.folder, sensors, inputs, context.model)
    measured_set, remarks = measured.frf_set, measured.remarks
    analysis = None
    if part.modal is not None:
        analysis = modal_analysis(
            measured_set,
            band_hz=part.modal.band_hz,
            max_order=part.modal.max_order,
            method=part.modal.method,
            references=part.modal.references,
            chosen=part.modal.chosen_hz,
            hits=measured.hits,
        )
    responses, band_hz = measured_set, part.band_hz
    if part.fit == "synthesized" and analysis is not None:
        lines_hz = measured_set.frequency_hz
        responses = synthesize(analysis.model, lines_hz[lines_hz > 0.0])  # residual terms may be infinite at 0 Hz
        band_hz = analysis.model.band_hz if band_hz is None else band_hz
    responses = select_channels(responses, dof_names(outputs), dof_names(inputs))
    responses = responses if band_hz is None else in_band(responses, band_hz)
    if part.symmetrize is not None:
        remarks = (*remarks, *_opposite_sign_remarks(responses))
        responses = symmetrize(responses, keep=part.symmetrize)
    source = FrfSource(
        fitted=responses,
        measured=measured_set,
        treatment=_treatment(part),
        frequency_unit=part.frequency_unit,
        modal=analysis,
    )
    return source, truth, remarks if analysis is None else remarks + analysis.remarks


def _treatment(part: FrfTestPart) -> str:
    symmetrized = {None: "", "mean": "mean of pairs"}.get(part.symmetrize, "mirrored")
    done = filter(None, ("synthesized" if part.fit == "synthesized" else "", symmetrized))
    return (", " if part.symmetrize == "mean" else " and ").join(done)


def _opposite_sign_remarks(responses: FrfSet) -> list[str]:
    """A sentence on pairs of cross FRFs with opposite signs; none without such pairs."""
    by_pair = unsymmetry(responses) if reciprocal_pairs(responses) else {}  # without pairs `symmetrize` refuses it
    pairs = ", ".join(f"{name} ({d:.2f})" for name, d in by_pair.items() if d > OPPOSITE)
    remark = (
        f"{pairs}: opposite to the response measured in the reverse direction (unsymmetry, 1 where one is minus"
        ' the other): is a sensor reversed? Name it "-x" where it is named, in the file or in outputs'
    )
    return [remark] if pairs else []


def _from_file(
    part: FrfTestPart, folder: Path, outputs: tuple[Point, ...], inputs: tuple[Point, ...], model: Model
) -> MeasuredFrf:
    """The responses in SI at the points of a test; those of single hits too, at all points of the file."""
    measured = measured_frf(str(part.file), folder)
    read, remarks = measured.frf_set, measured.remarks
    read = dataclasses.replace(read, source=read.source or str(part.file))
    if part.unit is not None:
        if read.unit != UNKNOWN and not same_unit(read.unit, part.unit, read.kind):
            remarks = (
                *remarks,
                f"'{read.source}' is taken to be in {part.unit} as the study states, not in {read.unit}",
            )
        read = in_stated_unit(read, part.unit, str(part.file))
    if read.unit == UNKNOWN:
        raise ValueError(
            f"the unit of '{read.source}' is not known, expected unit = \"...\" in the test, such as"
            f" '{SI_UNITS[read.kind]}'"
        )
    unit, read = read.unit, to_si(read)
    _check_posture(read, part.posture, model)
    named = named_points(read, outputs, inputs, part.nodes, model)
    with error_location(f"'{read.source}'"):
        selected = select_channels(named, dof_names(outputs), dof_names(inputs))
    name_of = dict(zip(read.inputs, named.inputs, strict=True))
    hits = tuple(
        dataclasses.replace(
            to_si(dataclasses.replace(hit, unit=unit)), outputs=named.outputs, inputs=(name_of[hit.inputs[0]],)
        )
        for hit in measured.hits
    )
    return MeasuredFrf(selected, (*remarks, *(_coherence_remarks(selected) if part.coherence else ())), hits=hits)


def _coherence_remarks(frf_set: FrfSet) -> list[str]:
    """A sentence on outputs whose coherence is missing, where the set has a coherence."""
    coherence = np.zeros((1, len(frf_set.outputs))) if frf_set.coherence is None else frf_set.coherence
    lost = [name for o, name in enumerate(frf_set.outputs) if not np.isfinite(coherence[:, o]).any()]
    remark = f"the coherence of {', '.join(lost)} holds no number: its lines are not weighted by coherence"
    return [remark] if lost else []


def _check_posture(read: FrfSet, posture: dict[str, float], model: Model) -> None:
    """Raise ValueError where the file states another posture than the test."""
    for name, value in read.posture.items():
        if name in posture and abs(posture[name] - value) > SAME_POSTURE:
            raise ValueError(f"'{read.source}' was measured at {name} = {value:.6g}, posture has {posture[name]:.6g}")
        if name in model.coordinates and name not in posture:
            raise ValueError(f"'{read.source}' was measured at {name} = {value:.6g}, expected the same in posture")


def sensor_of(part: FrfTestPart) -> Sensor:
    """Sensor model of a test."""
    return Sensor(part.sensor.gravity, part.sensor.high_pass_hz)
