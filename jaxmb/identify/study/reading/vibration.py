"""Readers of FRF tests and modal tests: weights, noise and held-out lines of FRFs; modes as measured or simulated."""

import dataclasses
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from jaxmb.identify.experiments.frf.frf_test import FrfTest
from jaxmb.identify.experiments.frf.noise import leak_std
from jaxmb.identify.experiments.frf.weights import band_weights, peak_weights, usable_lines
from jaxmb.identify.experiments.modes_test import ModesTest
from jaxmb.identify.experiments.test import Entry, Source, Truth
from jaxmb.identify.experiments.vibration_view import check_vibration, vibration_view
from jaxmb.identify.study.context import ReadingContext, simulated_machine
from jaxmb.identify.study.format.study_format import stated_tolerances
from jaxmb.identify.study.format.vibration_format import FrfTestPart, ModesTestPart, SimulateModes
from jaxmb.identify.study.reading.responses import responses_of_test, sensor_of
from jaxmb.io.validation import check_distinct, check_known, listed
from jaxmb.machine.build import Model
from jaxmb.measurement.frf_set import FrfSet, check_phase
from jaxmb.measurement.noise import coherence_noise, cross_axis_leak, misalignment_leak
from jaxmb.measurement.reciprocity import Keep, kept_of_pairs
from jaxmb.mechanics.beams import mesh_warnings
from jaxmb.mechanics.kinematics import check_coordinates
from jaxmb.mechanics.postures import stated_posture
from jaxmb.mechanics.tangent import motion_coordinates, mounting_warning
from jaxmb.response.frf import IDEAL, check_points
from jaxmb.response.frf_kind import DERIVATIVES, dof_names, endpoints
from jaxmb.response.modal import modes, spring_names

MOST_COHERENCE_STD = 0.5
"""Standard deviation of log H by the coherence above which a value is excluded as noise."""
COHERENCE_TEXTS = (
    "do not rise above the noise given by their coherence",
    "by their coherence all responses are noise, expected at least one line that is not",
)
"""Reason for which such values are left out, and the error where no others remain."""
NOMINAL_LOG_STD = 0.01
"""Standard deviation of log H during a fit whose noise is estimated from its residual."""


def read_frf_test(part: FrfTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """An FRF test, and a second entry with its held-out lines, if any.

    Args:
        part: table of the study file.
        label: its name, unique in the study.
        context: study file, machine and preliminary fits.

    Raises:
        ValueError: the data cannot be used as described.
    """
    model = context.model
    q, changed = stated_posture(model, part.posture)
    if context.file.linearize_at == "posture":
        changed += mounting_warning(model, q)
    outputs, inputs = endpoints(part.frame, part.outputs, part.inputs)
    check_points(model, (*outputs, *inputs, *((frame, "x") for frame in part.shape_frames)))
    for what, points in (("outputs", outputs), ("inputs", inputs)):
        if not points:
            raise ValueError(f"{what} is empty, expected at least one point")
        check_distinct(dof_names(points), f"{what} holds the point '{{}}' twice, expected it once")
    source, truth, remarks = responses_of_test(part, outputs, inputs, context)
    measured = source.fitted
    if part.simulate is None:
        check_phase(measured)
    weight, notes = _usable(measured, _weights(part, measured, outputs, inputs), outputs, inputs)
    if measured.kind != "receptance" or sensor_of(part) != IDEAL:
        static = measured.frequency_hz + measured.decay_1_s == 0.0
        if weight[static].any():
            notes.append("the line at 0 Hz is left out: the predicted FRF is 0 or undefined there")
        weight[static] = 0.0
    nominal = NOMINAL_LOG_STD if part.noise_log_std == "estimate" else part.noise_log_std
    by_coherence = coherence_noise(measured if part.coherence else dataclasses.replace(measured, coherence=None))
    leak = _leak(part, measured, context)
    additive_std = by_coherence.std if measured.averages else np.zeros(by_coherence.std.shape)
    if measured.averages:
        hidden = (by_coherence.log_std > MOST_COHERENCE_STD) & (weight > 0.0)
        weight, more = _without(weight, hidden, *COHERENCE_TEXTS, outputs, inputs)
        notes += more
    known_std = np.sqrt(by_coherence.log_std**2 + leak_std(leak, measured.frf) ** 2)
    noise_std = np.sqrt(nominal**2 + known_std**2)
    if part.symmetrize is not None:
        weight, factor = _weights_of_pairs(measured, weight, part.symmetrize)
        known_std, noise_std, additive_std, leak = (x * factor for x in (known_std, noise_std, additive_std, leak))
    test = FrfTest(
        name=label,
        q=q,
        outputs=outputs,
        inputs=inputs,
        derivatives=DERIVATIVES[measured.kind],
        at=context.file.linearize_at,
        phase=part.phase,
        omega=jax.device_put(2 * np.pi * measured.frequency_hz),
        measured=jax.device_put(np.where(weight > 0.0, measured.frf, 1.0)),
        weight=jax.device_put(weight),
        noise_std=jax.device_put(noise_std),
        known_std=jax.device_put(known_std),
        additive_std=jax.device_put(additive_std),
        magnitude=jax.device_put(by_coherence.size),
        leak=jax.device_put(np.where(weight > 0.0, leak, 0.0)),
        nominal_std=jax.device_put(np.asarray(nominal)),
        excluded=jax.device_put(np.zeros(measured.frequency_hz.size, dtype=bool)),
        decay=jax.device_put(np.asarray(measured.decay_1_s)),
        noise_is_known=part.noise_log_std != "estimate",
        sensor=sensor_of(part),
        robust=part.robust,
        has_leak_ratio=part.cross_axis is not None,
        symmetrized=part.symmetrize is not None,
    )
    is_assumed = part.file is not None and not {"noise_log_std", "weights"} & part.model_fields_set
    on_noise = (
        (is_assumed, f"no noise_log_std is stated, {nominal:g} of log H is assumed"),
        (nominal > 1.0, f"noise_log_std is {nominal:g}, {100.0 * nominal:g} % of the response; 1 % is 0.01"),
    )
    notes += [text for applies, text in on_noise if applies] + [*mesh_warnings(model, test.vibration.highest_hz)]
    entry = Entry(part.kind, test, source, truth, part.amplitude, part.role, (*changed, *notes, *remarks))
    if part.check_every is None:
        return [entry]
    test, held_out = split_lines(test, part.check_every)
    return [dataclasses.replace(entry, test=test), Entry(part.kind, held_out, source, truth, role="check")]


def _leak(part: FrfTestPart, measured: FrfSet, context: ReadingContext) -> np.ndarray:
    """Leakage of responses into others: the stated ratio, else by the tolerance of sensor directions."""
    tolerances = stated_tolerances(context.file)
    exact = part.simulate is not None and context.file.tolerances is None
    if part.cross_axis is not None or tolerances is None or exact:
        return cross_axis_leak(measured, part.cross_axis or 0.0)
    return misalignment_leak(measured, float(np.radians(tolerances.sensor_direction_deg)))


def without_absent_frfs(entry: Entry, models: Sequence[Model]) -> Entry:
    """A test without the FRFs that vanish in all of some machines by symmetry, with a remark on them; others unchanged.

    Raises:
        ValueError: no other FRF has a weight.
    """
    test, lines = entry.test, entry.test.lines
    if lines is None:
        return entry
    used = (np.asarray(test.weight) > 0.0).any(axis=0)
    absent = used & np.all([lines.absent(test.view(model)) for model in models], axis=0)
    if not absent.any():
        return entry
    text = f"{frfs_text(absent, test.outputs, test.inputs)}: the machine has no response, the measured one is left out"
    return dataclasses.replace(entry, test=lines.without_frfs(absent), remarks=(*entry.remarks, text))


def split_lines(test: FrfTest, every: int) -> tuple[FrfTest, FrfTest]:
    """A test without every n-th line, and a test of these lines.

    Raises:
        ValueError: there are fewer lines, or one of both tests has no line with a weight.
    """
    out = np.arange(test.omega.size) % every == every - 1
    if not out.any():
        raise ValueError(f"check_every is {every}, but there are only {test.omega.size} lines")

    counts = np.asarray(test.weight).max(axis=(1, 2)) > 0.0
    for chosen, what in ((~out, "left to fit"), (out, "held out")):
        if not counts[chosen].any():
            raise ValueError(f"check_every is {every}: no line with a weight is {what}")
    return test.at_lines(~out), test.at_lines(out)


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
    ends = ("weights: output", outputs), ("weights: input", inputs)
    bands = [
        (band.band_hz, band.weight, _indices(*ends[0], band.outputs), _indices(*ends[1], band.inputs))
        for band in weights.bands
    ]
    return band_weights(measured.frequency_hz, measured.frf.shape, bands, weights.elsewhere)


def _indices(what: str, points: tuple, wanted: tuple | None) -> list[int]:
    if wanted is None:
        return list(range(len(points)))
    check_known(what, dof_names(wanted), dof_names(points))
    return [points.index(tuple(p)) for p in wanted]


def _usable(measured: FrfSet, weight: np.ndarray, outputs: tuple, inputs: tuple) -> tuple[np.ndarray, list[str]]:
    """Weights, 0 for responses without a valid logarithm, and a sentence on these, if any."""
    usable = usable_lines(measured.frf)
    lines = measured.frequency_hz.size
    for o, i in np.argwhere(~usable.any(axis=0)):
        if outputs[o] == inputs[i] or not np.isfinite(measured.frf[:, o, i]).any():
            raise ValueError(
                f"the FRF from {' '.join(inputs[i])} to {' '.join(outputs[o])} has no finite non-zero value in {lines}"
                " lines, expected FRFs from all inputs to all outputs; other combinations need a test of their own"
            )
    nothing = "all weights are zero, expected at least one line that counts"
    return _without(weight, ~usable, "are zero or not finite", nothing, outputs, inputs)


def _without(
    weight: np.ndarray, left_out: np.ndarray, reason: str, nothing: str, outputs: tuple, inputs: tuple
) -> tuple[np.ndarray, list[str]]:
    """Weights, 0 for responses that are left out, and a sentence on the numbers of their lines; none where all count.

    Raises:
        ValueError: no response has a weight; its text is `nothing`.
    """
    weight = np.where(left_out, 0.0, weight)
    if not weight.any():
        raise ValueError(nothing)
    lost, lines = np.sum(left_out, axis=0), len(left_out)
    some = (lost > 0) & (lost < lines)
    groups = (lost == lines, f"all {lines}"), (some, f"up to {np.max(lost, where=some, initial=0)} of {lines}")
    texts = [f"{frfs_text(which, outputs, inputs)}: {count} lines" for which, count in groups if which.any()]
    return weight, [f"{'; '.join(texts)} {reason}, and are left out"] if texts else []


def _weights_of_pairs(
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


def frfs_text(marked: np.ndarray, outputs: tuple, inputs: tuple) -> str:
    """FRFs [output, input] as text with their number: "tool z from tool x, tool y (2 FRFs)"."""
    count = int(marked.sum())
    if count == marked.size:
        return "all FRFs" if count > 1 else "the FRF"
    to, by = dof_names(outputs), dof_names(inputs)
    rows = [
        f"{to[o]} from {', '.join(by[i] for i in np.flatnonzero(marked[o]))}" for o in np.flatnonzero(marked.any(1))
    ]
    return f"{'; '.join(rows)} ({count} FRF{'s' if count > 1 else ''})"


LEAST_DAMPING_PERCENT = 0.1
"""Damping ratio, %, below which all modes of an assembled machine are doubtful."""


def read_modes_test(part: ModesTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """A modal test, measured or simulated.

    Args:
        part: table of the study file.
        label: its name, unique in the study.
        context: study file, machine and preliminary fits.

    Raises:
        ValueError: there are more modes than degrees of freedom, or content or shapes refer to missing parts.
    """
    model = context.model
    q, changed = stated_posture(model, part.posture)
    check_coordinates(model, q=q)
    if context.file.linearize_at == "posture":
        changed += mounting_warning(model, q)
    check_points(model, part.outputs)
    check_distinct(dof_names(part.outputs), "outputs holds the point '{}' twice, expected it once")
    truth = None
    if part.simulate is None:
        frequency_hz, damping_percent = np.array(part.frequency_hz), np.array(part.damping_percent)
        shape = np.array(part.shapes or np.zeros((frequency_hz.size, 0)), dtype=complex)
        if damping_percent.max() < LEAST_DAMPING_PERCENT:
            text = f"damping_percent is at most {damping_percent.max():.2g}: expected %, are these fractions?"
            changed = (*changed, text)
    else:
        frequency_hz, damping_percent, shape, truth = _simulated_modes(part, part.simulate, context)
    count = frequency_hz.size
    degrees, names = len(motion_coordinates(model)), spring_names(model)
    if count > degrees:
        locked = listed([name for name, own in zip(model.coordinates, model.locked, strict=True) if own])
        without = f": the stiffness of {locked}, locked, may be missing" if locked else ""
        raise ValueError(f"{count} modes were measured, but the machine has only {degrees} coordinates{without}")
    every = (*model.coordinates, *model.springs, *model.beams)
    what = " or ".join(["coordinate"] + ["spring"] * bool(model.springs) + ["beam"] * bool(model.beams))
    content = np.zeros((count, len(every)), dtype=bool)
    for mode, dominating in enumerate(part.content or ()):
        check_known(f"content of mode {mode + 1}: {what}", dominating, names)
        content[mode, [every.index(name) for name in dominating]] = True
    test = ModesTest(
        name=label,
        q=q,
        at=context.file.linearize_at,
        frequency_hz=jnp.asarray(frequency_hz),
        damping_ratio=jnp.asarray(damping_percent) / 100.0,
        content=jnp.asarray(content),
        shape=jnp.asarray(_largest_one(shape)),
        frequency_std=jnp.asarray(_of_each("frequency_std_hz", part.frequency_std_hz, count)),
        damping_std=jnp.asarray(_of_each("damping_std_percent", part.damping_std_percent, count)) / 100.0,
        shape_std=jnp.asarray(part.shape_std),
        content_share=jnp.asarray(part.content_share),
        content_std=jnp.asarray(part.content_std),
        outputs=part.outputs,
        inputs=part.outputs,
        has_content=bool(content.any()),
    )
    return [
        Entry(
            part.kind,
            test,
            Source(),
            truth,
            part.amplitude,
            part.role,
            (*changed, *mesh_warnings(model, test.vibration.highest_hz)),
        )
    ]


def _simulated_modes(
    part: ModesTestPart, spec: SimulateModes, context: ReadingContext
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Truth]:
    """Simulated frequencies [Hz], damping ratios [%] and shapes [mode, output], and the true machine."""
    true, seed, truth = simulated_machine(spec, context)
    q, _ = stated_posture(true, part.posture)
    view = vibration_view(true, q, context.file.linearize_at, part.outputs, part.outputs)
    check_vibration(view, motion_coordinates(true))
    found = modes(view.tangent)
    kept = np.flatnonzero(np.asarray(found.damped_frequency_hz) <= spec.below_hz)
    if not kept.size:
        raise ValueError(f"the machine has no mode below {spec.below_hz:g} Hz")
    frequency_hz = np.asarray(found.damped_frequency_hz)[kept]
    damping_percent = 100.0 * np.asarray(found.damping_ratio)[kept]
    shape = _largest_one((np.asarray(view.output_rows) @ np.asarray(found.shape)[:, kept]).T)
    if spec.noise:
        rng = np.random.default_rng(seed)
        count = kept.size
        frequency_hz = frequency_hz + _of_each("frequency_std_hz", part.frequency_std_hz, count) * rng.normal(
            size=count
        )
        damping_std_percent = _of_each("damping_std_percent", part.damping_std_percent, count)
        damping_percent = damping_percent + damping_std_percent * rng.normal(size=count)
        real, imaginary = part.shape_std * rng.normal(size=(2, *shape.shape))
        shape = shape + real + 1j * imaginary
    return frequency_hz, damping_percent, shape, dataclasses.replace(truth, modes=found)


def _of_each(name: str, given: tuple[float, ...], count: int) -> np.ndarray:
    if len(given) not in (1, count):
        raise ValueError(f"{name} has {len(given)} entries for {count} modes")
    return np.broadcast_to(np.array(given), (count,))


def _largest_one(shape: np.ndarray) -> np.ndarray:
    """Shapes [mode, output] scaled so that the largest component of each is 1."""
    if not shape.shape[1]:
        return shape
    largest = np.take_along_axis(shape, np.argmax(np.abs(shape), axis=1)[:, None], axis=1)
    if not np.abs(largest).all():
        raise ValueError(f"shape {int(np.argmin(np.abs(largest[:, 0]))) + 1} is zero at all outputs")
    return shape / largest
