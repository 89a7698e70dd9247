"""Which single mistakes in the description of a machine or its tests a fit names, and how often it accuses good ones.

    python experiments/mistakes/run.py [--correct 20] [--seed 0]

The 3R manipulator of Huynh et al. 2020 at three postures, FRFs with 1.5 % of noise that is stated and that is to be
estimated; stiffness and damping of all joints are free, but of one that is locked or held by mistake. One mistake at a
time.
"""

import argparse
import copy
import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, cast

import jax.numpy as jnp
import numpy as np

import jaxmb
from jaxmb.deflections import DeflectionTest
from jaxmb.fitting import with_tests
from jaxmb.studies import study_data

NOISE = 0.015
LINES = {"first_hz": 1.0, "last_hz": 40.0, "step_hz": 0.5}
POSTURES = ({}, {"z1": 40.0, "z2": 60.0}, {"z3": -60.0, "z1": -30.0})
SIGMAS = 4.0
MACHINE = jaxmb.load_machine("manipulator-3r")
Study = Any
Measured = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""What was measured [f, o, i] instead of what is, and the lines, rad/s."""


class Case(NamedTuple):
    """A mistake."""

    name: str
    expected: str
    """What the text of the mistake that is named holds."""
    make: Callable[[Path, float | str, int], Study]


def description(level: float | str, machine: str = "truth.toml") -> dict[str, Any]:
    """The study as it is."""
    (test,) = study_data("validation-3r")["test"]
    angles = {name: float(text.split()[0]) for name, text in test["posture"].items()}
    tests = []
    for k, posture in enumerate(POSTURES):
        named = {name: f"{angle} deg" for name, angle in (angles | posture).items()}
        simulate = {"lines": LINES, "noise_log_std": NOISE, "machine": machine}
        tests.append({"kind": "frf", "name": f"p{k}", "frame": "tool", "posture": named, "simulate": simulate})
        tests[-1]["noise_log_std"] = level
    data = {name: part for name, part in study_data("validation-3r").items() if name != "test"}
    return data | {"machine": "machine.toml", "test": tests}


def study(folder: Path, level: float | str, seed: int, truth: Any = MACHINE) -> Study:
    """A study of the machine, with FRFs of the true one."""
    jaxmb.write_machine(MACHINE, folder / "machine.toml")
    jaxmb.write_machine(truth, folder / "truth.toml")
    return jaxmb.make_study(description(level), "mistakes", folder, noise_seed=seed)


def heavier(factor: float) -> Any:
    """The machine with other masses."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    for body in data["body"]:
        body["mass"] *= factor
        for name in ("inertia", "inertia_products"):
            if body.get(name):
                body[name] = {axis: factor * value for axis, value in body[name].items()}
    return jaxmb.Machine.model_validate(data)


def loaded(mass: float) -> Any:
    """The machine with a payload."""
    data = MACHINE.model_dump(mode="json", exclude_unset=True)
    return jaxmb.Machine.model_validate(data | {"payload": [{"name": "load", "frame": "tool", "mass": mass}]})


def measured(how: Measured, which: tuple[int, ...] = (0,)) -> Callable[[Path, float | str, int], Study]:
    """Studies with something else made of what was measured in some tests."""

    def make(folder: Path, level: float | str, seed: int) -> Study:
        made = study(folder, level, seed)
        tests = [
            dataclasses.replace(test, measured=jnp.asarray(how(np.array(test.measured), np.asarray(test.omega))))
            if k in which
            else test
            for k, test in enumerate(made.tests)
        ]
        return made.with_problem(with_tests(made.problem, tests))

    return make


def column(number: int, factor: float, axis: int) -> Measured:
    """One output (axis 1) or input (axis 2) by a factor."""

    def how(h: np.ndarray, omega: np.ndarray) -> np.ndarray:
        h[(slice(None), number) if axis == 1 else (slice(None), slice(None), number)] *= factor
        return h

    return how


def off(coordinate: str, degrees: float) -> Callable[[Path, float | str, int], Study]:
    """Studies that state another posture of the second test than there was."""

    def make(folder: Path, level: float | str, seed: int) -> Study:
        true = study(folder, level, seed)
        data = copy.deepcopy(description(level))
        posture = data["test"][1]["posture"]
        posture[coordinate] = f"{float(posture[coordinate].split()[0]) + degrees} deg"
        wrong = jaxmb.make_study(data, "mistakes", folder, noise_seed=seed)
        tests = [dataclasses.replace(a, measured=b.measured) for a, b in zip(wrong.tests, true.tests, strict=True)]
        return wrong.with_problem(with_tests(wrong.problem, tests))

    return make


def rigid(joint: str, stiffness: float | None) -> Callable[[Path, float | str, int], Study]:
    """Studies that lock a joint, or state another stiffness than it has."""

    def make(folder: Path, level: float | str, seed: int) -> Study:
        study(folder, level, seed)
        wrong = {"lock": [joint]} if stiffness is None else {"hold": {f"stiffness.{joint}": stiffness}}
        return jaxmb.make_study(description(level) | wrong, "mistakes", folder, noise_seed=seed)

    return make


def loads(factor: float) -> Callable[[Path, float | str, int], Study]:
    """Studies with deflections beside the FRFs, under loads that are stated so many times too small."""

    def make(folder: Path, level: float | str, seed: int) -> Study:
        study(folder, level, seed)
        data = description(level)
        zone = {name: ["-60 deg", "60 deg"] for name in ("z1", "z2", "z3")}
        simulate = {
            "machine": "truth.toml",
            "tests": 8,
            "force_n": [500.0, 1000.0],
            "directions": [[1, 0, 0], [0, 1, 0]],
        }
        simulate["zones"] = {"work": zone}
        instruments = {"tracker_mm": 0.005}
        data["test"].append({"kind": "deflection", "name": "d", "instruments": instruments, "simulate": simulate})
        made = jaxmb.make_study(data, "mistakes", folder, noise_seed=seed)
        *others, last = cast("tuple[DeflectionTest, ...]", made.tests)
        wrong = dataclasses.replace(last, displacement=factor * jnp.asarray(last.displacement))
        return made.with_problem(with_tests(made.problem, [*others, wrong]))

    return make


def single(places: tuple[int, ...], factor: float) -> Measured:
    """Lines with a peak that does not belong there."""

    def how(h: np.ndarray, omega: np.ndarray) -> np.ndarray:
        h[list(places)] *= factor
        return h

    return how


def late(seconds: float) -> Measured:
    """Responses that are late."""
    return lambda h, omega: h * np.exp(-1j * omega * seconds)[:, None, None]


def cases() -> list[Case]:
    """Every mistake in three sizes."""
    found: list[Case] = []
    for factor in (0.9, 1.05, 1.2):
        found.append(Case(f"masses {factor}", "all masses", lambda f, n, s, x=factor: study(f, n, s, heavier(x))))
    for mass in (2.0, 5.0, 20.0):
        found.append(Case(f"payload {mass} kg", "a payload", lambda f, n, s, x=mass: study(f, n, s, loaded(x))))
    for degrees in (1.0, 5.0, -10.0):
        found.append(Case(f"z2 by {degrees} deg", "of z2 in the posture of test 'p1'", off("z2", degrees)))
        found.append(Case(f"z3 by {degrees} deg", "of z3 in the posture of test 'p1'", off("z3", degrees)))
    for factor in (0.8, 1.1, 3.0):
        found.append(
            Case(f"FRFs of p0 by {factor}", "on the FRFs of test 'p0'", measured(lambda h, w, x=factor: x * h))
        )
        for axis, what in ((1, "output"), (2, "input")):
            every = measured(column(1, factor, axis), (0, 1, 2))
            found.append(Case(f"{what} y by {factor}", f"on {what} tool y", every))
            first = measured(column(1, factor, axis))
            found.append(Case(f"{what} y of p0 by {factor}", f"on {what} tool y of test 'p0'", first))
    for joint in ("z1", "z2", "z3"):
        found.append(Case(f"{joint} locked", f"of {joint}, which is locked,", rigid(joint, None)))
    for factor in (1.3, 3.0, 500.0):
        stated = 1.55e6 * factor
        found.append(Case(f"z3 held at {factor:g} times", f"of z3 instead of {stated:.3g}", rigid("z3", stated)))
    for factor in (1.2, 9.80665, -1.0, 1e-3):
        found.append(Case(f"loads by {factor:g}", "on the loads of test 'd'", loads(factor)))
    for count, factor in ((1, 1.3), (2, 2.0), (3, 0.3)):
        lines = (11, 12, 47)[:count]
        text = "excluding " + ", ".join(f"{1.0 + 0.5 * k:.4g}" for k in lines) + " Hz of test 'p0'"
        found.append(Case(f"{count} lines by {factor}", text, measured(single(lines, factor))))
    for seconds in (5e-4, 2e-3, 5e-3):
        found.append(Case(f"p0 late by {1e3 * seconds} ms", "responses of test 'p0'", measured(late(seconds))))
        every = measured(late(seconds), (0, 1, 2))
        found.append(Case(f"all late by {1e3 * seconds} ms", "responses of all FRF tests", every))
    return found


def fitted(made: Study) -> tuple[Any, float]:
    """A result, and its largest error in standard deviations."""
    result = jaxmb.identify(made)
    truth = jaxmb.parameters(jaxmb.build_model(MACHINE))
    return result, max(abs(np.log(p.value / truth[n])) / p.std_log for n, p in result.parameters.items())


def main() -> None:
    """Print a line for each mistake, and how many were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--correct", type=int, default=20, help="correct studies, of each way of telling the noise")
    parser.add_argument("--only", default="", help="cases whose names hold it")
    parser.add_argument("--seed", type=int, default=0, help="of the noise")
    options = parser.parse_args()
    for level in (NOISE, "estimate"):
        print(f"\nnoise {level}")
        named = passed = 0
        every = [case for case in cases() if options.only in case.name]
        for case in every:
            with tempfile.TemporaryDirectory() as folder:
                result, worst = fitted(case.make(Path(folder), level, options.seed))
            texts = [error.text for error in result.metrics.model_errors or ()]
            right = any(case.expected in text for text in texts)
            known = all(p.identifiable == "yes" for p in result.parameters.values())
            named += right
            passed += known and worst > SIGMAS
            print(f"{case.name:20s} {'named' if right else '-':6s} {', or '.join(texts)}", flush=True)
        accused = 0
        for draw in range(options.correct):
            with tempfile.TemporaryDirectory() as folder:
                result, _ = fitted(study(Path(folder), level, 100 + draw))
            accused += result.metrics.model_errors is not None
        print(f"{named} of {len(every)} named; {passed} passed with every parameter 'yes' and one off by more than")
        print(f"{SIGMAS:g} deviations; {accused} of {options.correct} correct studies accused")


if __name__ == "__main__":
    main()
