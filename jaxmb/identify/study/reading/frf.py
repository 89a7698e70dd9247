"""Reader of FRF tests: an entry of a study file, and the data it refers to, as a test."""

import dataclasses
import functools
from collections.abc import Iterable, Sequence
from pathlib import Path

import jax
import numpy as np

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.frf.frf_test import FrfSource, FrfTest
from jaxmb.identify.experiments.frf.noise import band_weights, leak_std, peak_weights, usable_lines
from jaxmb.identify.study.context import ReadingContext
from jaxmb.identify.study.format.frf_format import FrfTestPart
from jaxmb.identify.study.format.study_format import stated_tolerances
from jaxmb.identify.study.reading.points import named_points
from jaxmb.identify.study.simulation.frf import simulated_frf
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import SI_UNITS, UNKNOWN, FrfSet, in_band, same_unit, select_channels, to_si, with_unit
from jaxmb.measurement.modal.analysis import modal_analysis
from jaxmb.measurement.modal.model import synthesize
from jaxmb.measurement.noise import CoherenceNoise, coherence_noise, cross_axis_leak, misalignment_leak
from jaxmb.measurement.reciprocity import Keep, kept_of_pairs, reciprocal_pairs, symmetrize, unsymmetry
from jaxmb.measurement.records.file import MeasuredFrf, measured_frf
from jaxmb.mechanics.beams import mesh_warnings
from jaxmb.mechanics.postures import stated_posture
from jaxmb.mechanics.tangent import mounting_doubt
from jaxmb.response.frf import check_points
from jaxmb.response.frf_kind import DERIVATIVES, Point, dof_names, endpoints
from jaxmb.response.hits import Sensor

SILENT = (".npz", ".mat", ".csv")
"""Files that are in SI where they do not say their unit, so that SI may not be their own word."""
OPPOSITE = 0.85
"""Unsymmetry from which two responses of a pair are opposite: 1 where one is minus the other, 0.71 where they have
nothing to do with each other. 0.85 is a correlation of -0.44 between responses of the same size."""
SAME_POSTURE = 1e-4
"""Two postures are the same where their coordinates agree to this, rad or m."""


def measured_responses(
    part: FrfTestPart, outputs: tuple[Point, ...], inputs: tuple[Point, ...], context: ReadingContext
) -> FrfSource:
    """The responses of an FRF test, as its description asks for them.

    Args:
        part: entry of the study file.
        outputs: points of the test.
        inputs: likewise.
        context: of the tests.

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
    everything, remarks = measured.frf_set, measured.remarks
    analysis = None
    if part.modal is not None:
        analysis = modal_analysis(
            everything,
            band_hz=part.modal.band_hz,
            max_order=part.modal.max_order,
            method=part.modal.method,
            references=part.modal.references,
            chosen=part.modal.chosen_hz,
            hits=measured.hits,
        )
    responses = everything
    if part.fit == "synthesized" and analysis is not None:
        responses = synthesize(analysis.model, everything.frequency_hz)
        if part.band_hz is None:
            responses = in_band(responses, analysis.model.band_hz)
    responses = select_channels(responses, dof_names(outputs), dof_names(inputs))
    if part.band_hz is not None:
        responses = in_band(responses, part.band_hz)
    if part.symmetrize is not None:
        remarks = (*remarks, *_opposite(responses))
        responses = symmetrize(responses, keep=part.symmetrize)
    return FrfSource(
        fitted=responses,
        everything=everything,
        treatment=_treatment(part),
        frequency_unit=part.frequency_unit,
        modal=analysis,
        truth=truth,
        remarks=remarks if analysis is None else remarks + analysis.remarks,
    )


def _treatment(part: FrfTestPart) -> str:
    done = ["synthesized"] if part.fit == "synthesized" else []
    if part.symmetrize is not None:
        done.append("mean of pairs" if part.symmetrize == "mean" else "mirrored")
    return " and ".join(done) if part.symmetrize != "mean" else ", ".join(done)


def _opposite(responses: FrfSet) -> list[str]:
    """A sentence on the pairs of cross responses of which one is minus the other, where there are such."""
    if not reciprocal_pairs(responses):
        return []  # which `symmetrize` refuses
    found = {name: d for name, d in unsymmetry(responses).items() if d > OPPOSITE}
    if not found:
        return []
    listed = ", ".join(f"{name} ({d:.2f})" for name, d in found.items())
    return [
        f"{listed}: opposite to the response measured in the reverse direction (unsymmetry, 1 where one is minus"
        ' the other): is a sensor reversed? Name it "-x" where it is named, in the file or in outputs'
    ]


def points_text(points: Iterable[Point]) -> str:
    """Points for a message."""
    return ", ".join(dof_names(points))


def _from_file(
    part: FrfTestPart, folder: Path, outputs: tuple[Point, ...], inputs: tuple[Point, ...], model: Model
) -> MeasuredFrf:
    """The responses in SI at the points of a test; those of single hits too, at all points of the file."""
    measured = measured_frf(str(part.file), folder)
    read, remarks = measured.frf_set, measured.remarks
    read = dataclasses.replace(read, source=read.source or str(part.file))
    if part.unit is not None:
        if read.unit != UNKNOWN and not same_unit(read.unit, part.unit, read.kind):
            if Path(str(part.file)).suffix.lower() not in SILENT:
                raise ValueError(
                    f"unit is '{part.unit}', but '{read.source}' states {read.unit}: expected that or none"
                )
            remarks = (*remarks, f"'{read.source}' is taken to be in {part.unit} as the study says, not in {read.unit}")
        read = with_unit(read, part.unit)
    if read.unit == UNKNOWN:
        raise ValueError(
            f"the unit of '{read.source}' is not known, expected unit = \"...\" in the test, such as"
            f" '{SI_UNITS[read.kind]}'"
        )
    unit, read = read.unit, to_si(read)
    _check_posture(read, part.posture, model)
    named = named_points(read, outputs, inputs, part.nodes, model)
    taken = select_channels(named, dof_names(outputs), dof_names(inputs))
    name_of = dict(zip(read.inputs, named.inputs, strict=True))
    hits = tuple(
        dataclasses.replace(to_si(with_unit(hit, unit)), outputs=named.outputs, inputs=(name_of[hit.inputs[0]],))
        for hit in measured.hits
    )
    return MeasuredFrf(taken, (*remarks, *(_without_coherence(taken) if part.coherence else ())), hits=hits)


def _without_coherence(taken: FrfSet) -> list[str]:
    """A sentence on the outputs of whose responses no coherence is a number, where the set has a coherence."""
    if taken.coherence is None:
        return []
    lost = [name for o, name in enumerate(taken.outputs) if not np.isfinite(taken.coherence[:, o]).any()]
    if not lost:
        return []
    return [f"the coherence of {', '.join(lost)} holds no number: no line there counts for less by it"]


def _check_posture(read: FrfSet, posture: dict[str, float], model: Model) -> None:
    """Raise ValueError where the file was measured at another posture than the test says."""
    for name, value in read.posture.items():
        if name in posture and abs(posture[name] - value) > SAME_POSTURE:
            raise ValueError(f"'{read.source}' was measured at {name} = {value:.6g}, posture has {posture[name]:.6g}")
        if name in model.coordinates and name not in posture:
            raise ValueError(f"'{read.source}' was measured at {name} = {value:.6g}, expected the same in posture")


def sensor_of(part: FrfTestPart) -> Sensor:
    """What the sensors of a test measure."""
    return Sensor(part.sensor.gravity, part.sensor.high_pass_hz)


HIDDEN = 0.5
"""Standard deviation of log H, by the coherence, above which a measured value is taken for noise."""
NOMINAL_LOG_STD = 0.01
"""Standard deviation of log H during a fit whose noise is to be estimated from its residual."""


def read_frf_test(part: FrfTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """An FRF test, and a second entry with its held-out lines, where there are any.

    Args:
        part: entry of the study file.
        label: its name in messages.
        context: of the tests.

    Raises:
        ValueError: the data cannot be used as described.
    """
    model = context.model
    q, changed = stated_posture(model, part.posture)
    if context.file.linearize_at == "posture":
        changed += mounting_doubt(model, q)
    outputs, inputs = endpoints(part.frame, part.outputs, part.inputs)
    check_points(model, (*outputs, *inputs, *((frame, "x") for frame in part.shape_frames)))
    for what, points in (("outputs", outputs), ("inputs", inputs)):
        if not points:
            raise ValueError(f"{what} is empty, expected at least one point")
        if len(set(points)) < len(points):
            raise ValueError(f"{what} holds a point twice: {points_text(points)}")
    data = measured_responses(part, outputs, inputs, context)
    measured = data.fitted
    weight = _weights(part, measured, outputs, inputs)
    weight, notes = _masked(measured, weight, outputs, inputs)
    nominal = NOMINAL_LOG_STD if part.noise_log_std == "estimate" else part.noise_log_std
    random = coherence_noise(measured if part.coherence else dataclasses.replace(measured, coherence=None))
    leak = _leak(part, measured, context)
    leaked = leak_std(leak, measured.frf)
    additive = random.std if measured.averages else np.zeros(random.std.shape)
    if measured.averages:
        weight, notes = _above_noise(random, weight, notes, outputs, inputs)
    known = np.sqrt(random.log_std**2 + leaked**2)
    noise = np.sqrt(nominal**2 + known**2)
    usable = weight > 0.0
    if part.symmetrize is not None:
        weight, factor = _counted_once(measured, weight, part.symmetrize)
        known, noise, additive, leak = (x * factor for x in (known, noise, additive, leak))
    test = FrfTest(
        name=label,
        q=q,
        outputs=outputs,
        inputs=inputs,
        derivatives=DERIVATIVES[measured.kind],
        at=context.file.linearize_at,
        phase=part.phase,
        omega=jax.device_put(2 * np.pi * measured.frequency_hz),
        measured=jax.device_put(np.where(usable, measured.frf, 1.0)),
        weight=_on_device(weight),
        noise_std=_on_device(noise),
        known_std=_on_device(known),
        additive_std=_on_device(additive),
        level=jax.device_put(random.size),
        leak=_on_device(np.where(usable, leak, 0.0)),
        nominal_std=jax.device_put(np.asarray(nominal)),
        excluded=jax.device_put(np.zeros(measured.frequency_hz.size, dtype=bool)),
        decay=jax.device_put(np.asarray(measured.decay_1_s)),
        noise_is_known=part.noise_log_std != "estimate",
        sensor=sensor_of(part),
        robust=part.robust,
        symmetrized=part.symmetrize is not None,
    )
    if part.file is not None and not {"noise_log_std", "weights"} & part.model_fields_set:
        notes.append(f"no noise_log_std is stated, {nominal:g} of log H is taken")
    notes += mesh_warnings(model, test.vibration.highest_hz)
    entry = Entry("frf", test, data, data.truth, part.amplitude, part.role, (*changed, *notes, *data.remarks))
    if part.check_every is None:
        return [entry]
    test, held_out = split_lines(test, part.check_every)
    return [dataclasses.replace(entry, test=test), Entry("frf", held_out, data, data.truth, role="check")]


def _leak(part: FrfTestPart, measured: FrfSet, context: ReadingContext) -> np.ndarray:
    """Leakage of responses into others: as stated, else by the tolerance of directions."""
    tolerances = stated_tolerances(context.file)
    exact = part.simulate is not None and context.file.tolerances is None
    if part.cross_axis is not None or tolerances is None or exact:
        return cross_axis_leak(measured, part.cross_axis or 0.0)
    return misalignment_leak(measured, float(np.radians(tolerances.sensor_direction_deg)))


def split_lines(test: FrfTest, every: int) -> tuple[FrfTest, FrfTest]:
    """A test without each `every`-th line, and those lines as a test of their own.

    Raises:
        ValueError: there are fewer lines, or none that counts on one side.
    """
    number = np.arange(test.omega.size)
    out = number % every == every - 1
    if not out.any():
        raise ValueError(f"check_every is {every}, but there are only {test.omega.size} lines")

    counts = np.asarray(test.weight).max(axis=(1, 2)) > 0.0
    for chosen, what in ((~out, "left to fit"), (out, "held out")):
        if not counts[chosen].any():
            raise ValueError(f"check_every is {every}: no line with a weight is {what}")
    return test.at_lines(~out), test.at_lines(out)


def _on_device(array: np.ndarray) -> jax.Array:
    """An array on the device; tests of one size share those with one value throughout."""
    value = array.flat[0]
    return _constant(array.shape, value.item()) if (array == value).all() else jax.device_put(array)


@functools.lru_cache(maxsize=8, typed=True)
def _constant(shape: tuple[int, ...], value: complex) -> jax.Array:
    return jax.device_put(np.full(shape, value))


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
    """Weights with what cannot enter a logarithm at 0, and one sentence on it where there is such."""
    usable = usable_lines(measured.frf)
    lines = measured.frequency_hz.size
    lost = lines - np.sum(usable, axis=0)
    for o, i in np.argwhere(lost == lines):
        if outputs[o] == inputs[i] or not np.isfinite(measured.frf[:, o, i]).any():
            what = f"the FRF from {points_text([inputs[i]])} to {points_text([outputs[o]])}"
            raise ValueError(f"{what} has no finite non-zero value in {lines} lines")
    weight = np.where(usable, weight, 0.0)
    if not weight.any():
        raise ValueError("all weights are zero, expected at least one line that counts")
    return weight, _lost_lines(lost, lines, outputs, inputs)


def _above_noise(
    noise: CoherenceNoise, weight: np.ndarray, notes: list[str], outputs: tuple, inputs: tuple
) -> tuple[np.ndarray, list[str]]:
    """Weights with what does not rise above its noise at 0, and a sentence on it beside others.

    Raises:
        ValueError: nothing is left.
    """
    hidden = (noise.log_std > HIDDEN) & (weight > 0.0)
    if not hidden.any():
        return weight, notes
    weight = np.where(hidden, 0.0, weight)
    if not weight.any():
        raise ValueError("by their coherence all responses are noise, expected at least one line that is not")
    lost = np.sum(hidden, axis=0)
    hidden_text = f"up to {lost.max()} of {hidden.shape[0]} lines do not rise above the noise given by their coherence"
    return weight, [*notes, f"{_between(lost > 0, outputs, inputs)}: {hidden_text}, and are left out"]


def _counted_once(
    measured: FrfSet, weight: np.ndarray, symmetrize: Keep | Sequence[str]
) -> tuple[np.ndarray, np.ndarray]:
    """Weights and factors on the noise with which one response of each symmetrized pair counts for both, so that
    a single measurement does not count as two. The cost is the same as with both.

    A response that was mirrored takes the weight of its image; the mean of two has half their variance.
    """
    weight, factor = weight.copy(), np.ones(weight.shape)
    for pair, kept in kept_of_pairs(measured, symmetrize):
        (o, i), image = pair.upper, (slice(None), *pair.lower)
        both = weight[:, o, i] + weight[image]
        weight[:, o, i] = 0.5 * both if kept == "mean" else both
        weight[image] = 0.0
        if kept == "mean":
            factor[:, o, i] = 1.0 / np.sqrt(2.0)
    return weight, factor


def _lost_lines(lost: np.ndarray, lines: int, outputs: tuple, inputs: tuple) -> list[str]:
    """One sentence on the lines [output, input] that are not used; none where all are."""
    counts = []
    if (lost == lines).any():
        counts.append(f"{_between(lost == lines, outputs, inputs)}: no usable line")
    some = (lost > 0) & (lost < lines)
    if some.any():
        fewest, most = lost[some].min(), lost[some].max()
        count = f"{most}" if fewest == most else f"{fewest} to {most}"
        counts.append(f"{_between(some, outputs, inputs)}: {count} of {lines} lines not usable")
    return [f"{'; '.join(counts)}; zero or not finite, and left out"] if counts else []


def _between(marked: np.ndarray, outputs: tuple, inputs: tuple) -> str:
    """FRFs [output, input] in words and their number: "tool z with tool x, tool y (4 FRFs)", both ways taken as one."""
    count = int(marked.sum())
    number = f"({count} FRF{'s' if count > 1 else ''})"
    if count == marked.size:
        return "all FRFs" if count > 1 else "the FRF"
    to, by = list(dof_names(outputs)), list(dof_names(inputs))
    left = {(to[o], by[i]) for o, i in np.argwhere(marked)}
    both = all((b, a) in left for a, b in left)
    groups = []
    while left:
        names = sorted({name for pair in left for name in pair} if both else {o for o, _ in left}, key=(to + by).index)
        best = max(names, key=lambda name: sum(name in pair if both else name == pair[0] for pair in left))
        taken = {pair for pair in left if (best in pair if both else best == pair[0])}
        others = {b if a == best else a for a, b in taken} if both else {b for _, b in taken}
        groups.append(f"{best} {'with' if both else 'from'} {', '.join(sorted(others, key=by.index))}")
        left -= taken
    return f"{'; '.join(groups)} {number}"
