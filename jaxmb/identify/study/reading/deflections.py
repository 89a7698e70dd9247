"""From one entry of a study to the deflection tests that it stands for."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from jaxmb.identify.experiments.deflection_table import DEGREE, read_table
from jaxmb.identify.experiments.load_cases import DeflectionTest, check_tests
from jaxmb.identify.parameters.model_parameters import parameters, set_parameters
from jaxmb.identify.study.format.deflection_format import CompletePart, DeflectionTestPart, Instruments
from jaxmb.identify.study.reading.frf import called
from jaxmb.identify.study.simulation.deflection_design import designed
from jaxmb.identify.study.simulation.deflections import planned_tests, simulated_tests
from jaxmb.io.validation import known_name
from jaxmb.machine.build import Model, build_model
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.kinematics import posture


@dataclasses.dataclass(frozen=True, eq=False)
class DeflectionSet:
    """Deflection tests that belong together: one table, or one plan."""

    name: str
    tests: tuple[DeflectionTest, ...]
    role: Literal["fit", "check"] = "fit"
    """"check": they are predicted and compared, and the fit does not see them."""
    rotation_weight: float = 1.0
    robust: bool = False
    instruments: Instruments | None = None
    truth: dict[str, float] | None = None
    """Parameters of the machine that was measured, where it was simulated and has the coordinates of the fitted one."""
    assumed: tuple[str, ...] = ()
    """Standard deviations that neither the table nor the study states, "0.03 mm"."""


def deflection_set(
    part: DeflectionTestPart,
    label: str,
    folder: Path,
    whole: Machine,
    model: Model,
    noise_seed: int | None,
    complete: CompletePart | None = None,
) -> DeflectionSet:
    """The tests that an entry of a study stands for.

    Args:
        part: the entry.
        label: what messages call it.
        folder: what paths are relative to.
        whole: the study's machine, nothing locked.
        model: the machine that is fitted.
        noise_seed: seed of simulated errors instead of the study's own.
        complete: what the study says of a complete stiffness model, where it is for one.

    Raises:
        ValueError: the tests cannot be made, read or be the machine's.
    """
    if "frame" in part.model_fields_set and part.frame not in model.frames:
        raise ValueError(known_name("frame", part.frame, model.frames))
    std = _std(part)
    truth, stated = None, None
    if part.simulate is None:
        start = np.asarray(posture(model, part.posture))
        tests, stated = read_table(model, folder / str(part.file), part.frame, start, std)
    else:
        how = part.simulate
        measured = whole if how.machine is None else load_machine(_beside(folder, how.machine))
        true = set_parameters(build_model(measured), how.parameters)
        seed = how.noise_seed if noise_seed is None else noise_seed
        planned = planned_tests(how, part, std, true)
        if how.design is not None:
            planned = designed(how.design, part, how.tests, planned, model, complete)
        tests = [_seen_by(model, true, test) for test in simulated_tests(how, part, planned, true, seed)]
        check_tests(model, tests)
        truth = parameters(true) if true.coordinates == model.coordinates else None
    return DeflectionSet(
        label, tuple(tests), part.role, part.rotation_weight, part.robust, part.instruments, truth,
        _assumed(part, tests, stated),
    )  # fmt: skip


def _assumed(
    part: DeflectionTestPart, tests: Sequence[DeflectionTest], stated: Sequence[np.ndarray] | None
) -> tuple[str, ...]:
    """Standard deviations that nobody stated, of what was measured without one."""
    if part.instruments is not None:
        return ()
    lacking = np.zeros(6, bool)
    for i, test in enumerate(tests):
        lacking |= (test.measured if stated is None else test.measured & ~stated[i]).any(axis=0)
    kinds = (("std_mm", f"{part.std_mm:g} mm", lacking[:3]), ("std_deg", f"{part.std_deg:g} deg", lacking[3:]))
    return tuple(text for key, text, lost in kinds if lost.any() and key not in part.model_fields_set)


def _std(part: DeflectionTestPart) -> np.ndarray:
    if part.instruments is not None:
        return np.repeat([part.instruments.translation_std, part.instruments.rotation_std], 3)
    return np.repeat([1e-3 * part.std_mm, DEGREE * part.std_deg], 3)


def _beside(folder: Path, name: str) -> str | Path:
    path = folder / name
    return path if path.suffix in (".toml", ".urdf") else name


def _seen_by(model: Model, true: Model, test: DeflectionTest) -> DeflectionTest:
    """The test with the coordinates of the fitted machine, where the measured one has others too."""
    if true.coordinates == model.coordinates:
        return test
    known = dict(zip(true.coordinates, test.q, strict=True))
    missing = [name for name in model.coordinates if name not in known]
    if missing:
        raise ValueError(f"the simulated machine has no coordinate '{missing[0]}', expected all of the fitted one's")
    return dataclasses.replace(test, q=np.array([known[name] for name in model.coordinates]))


def sets_told(sets: Sequence[DeflectionSet]) -> str:
    """The sets of a study in a sentence: "test 'near'", "tests 'near', 'far'"."""
    if len(sets) == 1:
        return called(sets[0].name)
    return f"tests {', '.join(repr(group.name) for group in sets)}"
