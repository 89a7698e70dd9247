"""From one test in a study file to what the fit compares with."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np

from jaxmb.identify.experiments import FrfTest, ModesTest
from jaxmb.identify.measured import Measured, measured_responses, points_text
from jaxmb.identify.study_file import FrfTestPart, ModesTestPart, StudyFile
from jaxmb.identify.weights import band_weights, peak_weights, usable_lines
from jaxmb.machine.build import Model
from jaxmb.machine.schema import Machine, known_name
from jaxmb.measurement.frf_set import FrfSet
from jaxmb.measurement.line_noise import coherence_log_std, cross_axis_log_std
from jaxmb.mechanics.kinematics import check_coordinates, posture
from jaxmb.response.frf import DERIVATIVES, check_points, endpoints

NOMINAL_LOG_STD = 0.01
"""Standard deviation of log H while a fit runs whose noise is to be estimated from what it leaves."""


def frf_test(
    part: FrfTestPart, label: str, file: StudyFile, folder: Path, whole: Machine, model: Model, noise_seed: int | None
) -> tuple[FrfTest, list[str], Measured]:
    """FRF test, sentences on lines that are not used, and everything that was measured.

    Args:
        part: what the study says of the test.
        label: what messages call it.
        file: the whole study.
        folder: what paths are relative to.
        whole: the study's machine, nothing locked.
        model: the machine that is fitted.
        noise_seed: seed of simulated noise instead of the study's own.

    Raises:
        ValueError: the data cannot be used as described.
    """
    q = posture(model, part.posture)
    outputs, inputs = endpoints(part.frame, part.outputs, part.inputs)
    check_points(model, (*outputs, *inputs, *((frame, "x") for frame in part.shape_frames)))
    for what, points in (("outputs", outputs), ("inputs", inputs)):
        if not points:
            raise ValueError(f"{what} is empty, expected at least one point")
        if len(set(points)) < len(points):
            raise ValueError(f"{what} holds a point twice: {points_text(points)}")
    data = measured_responses(part, outputs, inputs, file, folder, whole, model, noise_seed)
    measured = data.fitted
    weight = _weights(part, measured, outputs, inputs)
    weight, notes = _masked(measured, weight, outputs, inputs)
    nominal = NOMINAL_LOG_STD if part.noise_log_std == "estimate" else part.noise_log_std
    random = coherence_log_std(measured) if part.coherence else np.zeros(measured.frf.shape)
    leaked = cross_axis_log_std(measured, part.cross_axis)
    test = FrfTest(
        name=label,
        q=q,
        outputs=outputs,
        inputs=inputs,
        derivatives=DERIVATIVES[measured.kind],
        at=file.linearize_at,
        phase=part.phase,
        omega=jnp.asarray(2 * np.pi * measured.frequency_hz),
        measured=jnp.asarray(np.where(weight > 0.0, measured.frf, 1.0)),
        weight=jnp.asarray(weight),
        noise_std=jnp.asarray(np.sqrt(nominal**2 + random**2 + leaked**2)),
        nominal_std=jnp.asarray(nominal),
        decay=jnp.asarray(measured.decay_1_s),
        noise_known=part.noise_log_std != "estimate",
    )
    return test, notes + list(data.remarks), data


def _weights(part: FrfTestPart, measured: FrfSet, outputs: tuple, inputs: tuple) -> np.ndarray:
    weights = part.weights
    if weights is None:
        return np.ones(measured.frf.shape)
    if weights.peaks is not None:
        return peak_weights(
            measured.frequency_hz,
            measured.frf,
            weights.peaks,
            weights.half_width_lines,
            weights.elsewhere,
            weights.prominence,
        )
    bands = []
    for band in weights.bands:
        if not band.band_hz[0] <= band.band_hz[1]:
            raise ValueError(f"weights: band_hz {band.band_hz[0]:g} to {band.band_hz[1]:g} Hz is reversed")
        rows = _indices("weights: output", band.outputs, outputs)
        columns = _indices("weights: input", band.inputs, inputs)
        bands.append((band.band_hz, band.weight, rows, columns))
    return band_weights(measured.frequency_hz, measured.frf.shape, bands, weights.elsewhere)


def _indices(what: str, wanted: tuple | None, points: tuple) -> list[int]:
    if wanted is None:
        return list(range(len(points)))
    for point in wanted:
        if tuple(point) not in points:
            raise ValueError(f"{what} {points_text([point])} is not in the test, expected one of {points_text(points)}")
    return [points.index(tuple(p)) for p in wanted]


def _masked(measured: FrfSet, weight: np.ndarray, outputs: tuple, inputs: tuple) -> tuple[np.ndarray, list[str]]:
    """Weights with what cannot enter a logarithm at 0, and a sentence on it."""
    usable = usable_lines(measured.frf)
    lines, notes = measured.frequency_hz.size, []
    for o in range(len(outputs)):
        for i in range(len(inputs)):
            lost = lines - int(usable[:, o, i].sum())
            if lost == 0:
                continue
            what = f"the FRF from {points_text([inputs[i]])} to {points_text([outputs[o]])}"
            values = measured.frf[:, o, i]
            if lost == lines and (outputs[o] == inputs[i] or not np.isfinite(values).any()):
                raise ValueError(f"{what} has no finite non-zero value in {lines} lines")
            notes.append(f"{lost} of {lines} lines of {what} are zero or not finite and are not used")
    weight = np.where(usable, weight, 0.0)
    if not usable.any():
        raise ValueError("no FRF has a finite non-zero value")
    if not weight.any():
        raise ValueError("all weights are zero, expected at least one line that counts")
    return weight, notes


def modes_test(part: ModesTestPart, label: str, file: StudyFile, model: Model) -> ModesTest:
    """Modal test of a study.

    Raises:
        ValueError: more modes than the machine has, or content by coordinates that it has not.
    """
    q = posture(model, part.posture)
    check_coordinates(model, q=q)
    count = len(part.frequency_hz)
    if count > len(model.coordinates):
        raise ValueError(f"{count} modes were measured, but the machine has only {len(model.coordinates)} coordinates")
    content = np.zeros((count, len(model.coordinates)), dtype=bool)
    for mode, names in enumerate(part.content or ()):
        for name in names:
            if name not in model.coordinates:
                raise ValueError(known_name(f"content of mode {mode + 1}: coordinate", name, model.coordinates))
            content[mode, model.coordinates.index(name)] = True
    return ModesTest(
        name=label,
        q=q,
        at=file.linearize_at,
        frequency_hz=jnp.asarray(part.frequency_hz),
        damping_ratio=jnp.asarray(part.damping_percent) / 100.0,
        content=jnp.asarray(content),
        frequency_std=jnp.broadcast_to(jnp.asarray(part.frequency_std_hz), (count,)),
        damping_std=jnp.broadcast_to(jnp.asarray(part.damping_std_percent) / 100.0, (count,)),
        content_share=jnp.asarray(part.content_share),
        content_std=jnp.asarray(part.content_std),
    )
