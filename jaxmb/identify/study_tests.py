"""From one test in a study file to what the fit compares with."""

from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from jaxmb.identify.experiments import FrfTest, ModesTest, Scene, observe, predict_frf
from jaxmb.identify.parameters import (
    parameters,
    set_parameters,
)
from jaxmb.identify.study_file import FrfTestPart, ModesTestPart, Simulate, StudyFile
from jaxmb.identify.weights import band_weights, peak_weights, usable_lines
from jaxmb.machine.build import Model, build_model
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine, known_name
from jaxmb.measurement.frf_set import FrfSet, in_band
from jaxmb.measurement.npz import read_frf
from jaxmb.mechanics.kinematics import check_coordinates, posture
from jaxmb.response.frf import DERIVATIVES, DIRECTIONS, check_points, endpoints
from jaxmb.response.modal import Modes, check_mass_matrix, modes


class Simulated(NamedTuple):
    """The machine behind a simulated test."""

    coordinates: tuple[str, ...]
    parameters: dict[str, float]
    modes: Modes


def machine_named(name: str, folder: Path) -> Machine:
    """Built-in machine, or one in a file; a relative path is beside the study."""
    beside = folder / name
    return load_machine(beside if beside.suffix in (".toml", ".urdf") else name)


def frf_test(
    part: FrfTestPart, label: str, file: StudyFile, folder: Path, whole: Machine, model: Model, noise_seed: int | None
) -> tuple[FrfTest, list[str], Simulated | None]:
    """FRF test, sentences on lines that are not used, and the machine behind it where it was simulated.

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
    check_points(model, (*outputs, *inputs))
    for what, points in (("outputs", outputs), ("inputs", inputs)):
        if not points:
            raise ValueError(f"{what} is empty, expected at least one point")
        if len(set(points)) < len(points):
            raise ValueError(f"{what} holds a point twice: {_points(points)}")
    truth = None
    if part.simulate is not None:
        measured, truth = _simulated(part, part.simulate, file, folder, whole, noise_seed)
    else:
        measured = read_frf(folder / str(part.file))
    if measured.frf.shape[1:] != (len(outputs), len(inputs)):
        raise ValueError(
            f"'{measured.source}' has {measured.frf.shape[1]} outputs and {measured.frf.shape[2]} inputs,"
            f" expected {len(outputs)} and {len(inputs)} for {_points(outputs)} from {_points(inputs)}"
        )
    _check_names(measured, outputs, inputs, model)
    if part.band_hz is not None:
        measured = in_band(measured, part.band_hz)
    weight = _weights(part, measured, outputs, inputs)
    weight, notes = _masked(measured, weight, outputs, inputs)
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
        noise_std=jnp.asarray(part.noise_log_std),
    )
    return test, notes, truth


def _check_names(measured: FrfSet, outputs: tuple, inputs: tuple, model: Model) -> None:
    """Raise ValueError where the file names its points as jaxmb does, and they are not those of the test."""
    for what, names, points in (("outputs", measured.outputs, outputs), ("inputs", measured.inputs, inputs)):
        parts = [tuple(name.split(" ")) for name in names]
        known = all(len(p) == 2 and p[0] in model.frames and p[1].removeprefix("-") in DIRECTIONS for p in parts)
        if known and parts != [tuple(p) for p in points]:
            raise ValueError(f"'{measured.source}' has the {what} {', '.join(names)}, expected {_points(points)}")


def _simulated(
    part: FrfTestPart, how: Simulate, file: StudyFile, folder: Path, whole: Machine, noise_seed: int | None
) -> tuple[FrfSet, Simulated]:
    model = build_model(machine_named(how.machine, folder) if how.machine is not None else whole)
    model = set_parameters(model, how.parameters)
    count = int(np.floor((how.lines.last_hz - how.lines.first_hz) / how.lines.step_hz + 1e-9)) + 1
    frequency_hz = how.lines.first_hz + how.lines.step_hz * np.arange(count)
    outputs, inputs = endpoints(part.frame, part.outputs, part.inputs)
    q = posture(model, part.posture)
    seen = observe(model, q, file.linearize_at, outputs, inputs)
    check_scene(seen, model)
    h = np.asarray(predict_frf(seen, jnp.asarray(2 * np.pi * frequency_hz), DERIVATIVES[how.response]))
    if how.noise_log_std > 0.0:
        draw = np.random.default_rng(how.noise_seed if noise_seed is None else noise_seed)
        real, imaginary = draw.normal(scale=how.noise_log_std, size=(2, *h.shape))
        h = h * np.exp(real + 1j * imaginary)
    truth = Simulated(model.coordinates, parameters(model), modes(seen.tangent))
    return FrfSet(frequency_hz, h, how.response, source="simulated"), truth


def check_scene(seen: Scene, model: Model) -> None:
    """Raise ValueError where a test cannot see the machine: no equilibrium, or a motion without mass."""
    if not np.isfinite(np.asarray(seen.tangent.stiffness)).all():
        raise ValueError("no static equilibrium was found: a loaded coordinate has too little stiffness to hold it")
    check_mass_matrix(np.asarray(seen.tangent.mass), model.coordinates)


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
            raise ValueError(f"{what} {_points([point])} is not in the test, expected one of {_points(points)}")
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
            what = f"the FRF from {_points([inputs[i]])} to {_points([outputs[o]])}"
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


def _points(points: object) -> str:
    return ", ".join(f"{frame} {direction}" for frame, direction in points)  # pyright: ignore[reportGeneralTypeIssues]
