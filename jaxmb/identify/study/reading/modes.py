"""Reader of modal tests: an entry of a study file, or a simulation, as a test."""

import dataclasses

import jax.numpy as jnp
import numpy as np

from jaxmb.identify.experiments.entry import Entry, Truth
from jaxmb.identify.experiments.modes_test import ModesSource, ModesTest
from jaxmb.identify.experiments.motion_view import check_motion, motion_view
from jaxmb.identify.study.context import ReadingContext, simulated_machine
from jaxmb.identify.study.format.modes_format import ModesTestPart
from jaxmb.identify.study.format.test_format import SimulateModes
from jaxmb.io.validation import check_known, listed
from jaxmb.mechanics.beams import mesh_warnings
from jaxmb.mechanics.kinematics import check_coordinates
from jaxmb.mechanics.postures import stated_posture
from jaxmb.mechanics.tangent import motion_coordinates, mounting_doubt
from jaxmb.response.frf import check_points
from jaxmb.response.modal import modes, spring_names


def read_modes_test(part: ModesTestPart, label: str, context: ReadingContext) -> list[Entry]:
    """Modal test of a study, and the machine behind it where it was simulated.

    Args:
        part: entry of the study file.
        label: its name in messages.
        context: of the tests.

    Raises:
        ValueError: more modes than the machine has, content by springs or shapes at points that it has not.
    """
    model = context.model
    q, changed = stated_posture(model, part.posture)
    check_coordinates(model, q=q)
    if context.file.linearize_at == "posture":
        changed += mounting_doubt(model, q)
    check_points(model, part.outputs)
    truth = None
    if part.simulate is None:
        frequency_hz, damping_percent = np.array(part.frequency_hz), np.array(part.damping_percent)
        shape = np.array(part.shapes or np.zeros((frequency_hz.size, 0)), dtype=complex)
    else:
        frequency_hz, damping_percent, shape, truth = _simulated(part, part.simulate, context)
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
            "modes",
            test,
            ModesSource(),
            truth,
            part.amplitude,
            part.role,
            (*changed, *mesh_warnings(model, test.vibration.highest_hz)),
        )
    ]


def _simulated(
    part: ModesTestPart, how: SimulateModes, context: ReadingContext
) -> tuple[np.ndarray, np.ndarray, np.ndarray, Truth]:
    """Frequencies [Hz], damping ratios [%] and shapes [mode, output] as they would be measured."""
    true, seed, truth = simulated_machine(how, context)
    there, _ = stated_posture(true, part.posture)
    seen = motion_view(true, there, context.file.linearize_at, part.outputs, part.outputs)
    check_motion(seen, motion_coordinates(true))
    found = modes(seen.tangent)
    kept = np.flatnonzero(np.asarray(found.damped_frequency_hz) <= how.below_hz)
    if not kept.size:
        raise ValueError(f"the machine has no mode below {how.below_hz:g} Hz")
    frequency_hz = np.asarray(found.damped_frequency_hz)[kept]
    damping_percent = 100.0 * np.asarray(found.damping_ratio)[kept]
    shape = _largest_one((np.asarray(seen.output_rows) @ np.asarray(found.shape)[:, kept]).T)
    if how.noise:
        draw = np.random.default_rng(seed)
        count = kept.size
        frequency_hz = frequency_hz + _of_each("frequency_std_hz", part.frequency_std_hz, count) * draw.normal(
            size=count
        )
        spread = _of_each("damping_std_percent", part.damping_std_percent, count)
        damping_percent = damping_percent + spread * draw.normal(size=count)
        real, imaginary = part.shape_std * draw.normal(size=(2, *shape.shape))
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
