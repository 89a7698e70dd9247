"""Deflections of the KR270, a robot of elastic links with a gravity compensator, for the tests of several rooms."""

import dataclasses
import functools
import tempfile
from pathlib import Path

import numpy as np
import tomli_w

from jaxmb.identify.assess.identify import identify
from jaxmb.identify.experiments.deflections.load_cases import LoadCase
from jaxmb.identify.experiments.deflections.table import deflections_csv
from jaxmb.identify.study.study import load_study
from jaxmb.machine.file import load_machine
from jaxmb.mechanics.postures import build_model, candidate_postures
from tests.identify.kr240 import measured_by

MACHINE = load_machine("kuka-kr270")
MODEL = build_model(MACHINE)
RIGID = build_model(MACHINE.model_copy(update={"spring": ()}))
"""Without its gravity compensator, which makes the compliance of joint 2 depend on the posture."""
ANGLES = tuple(np.radians([20.0, 80.0, 140.0]))
RANGES = {"q1": (-1.5, 1.5), "q2": ANGLES, "q3": (-4.0, -1.8), "q4": (-3.0, 3.0), "q5": (0.4, 1.8), "q6": (-3.0, 3.0)}
DOWN = np.array([0.0, 0.0, -2500.0, 0.0, 0.0, 0.0])
POSITIONS = np.where([True] * 3 + [False] * 3, 0.0, np.nan) * np.ones((3, 1))
"""Displacements of three points whose rotation was not measured."""


def vertical(postures, prefix="t", std=3e-5):
    """Load cases that nobody has measured: a vertical force of 2.5 kN, positions of three points."""
    return [
        LoadCase(f"{prefix}{i}", np.asarray(q), "load", DOWN, ("p1", "p2", "p3"), POSITIONS, np.full((3, 6), std))
        for i, q in enumerate(postures)
    ]


def made(count, seed, prefix="t"):
    """Positions of three points at three angles of joint 2, displaced by the machine's own compliances."""
    return measured_by(MODEL, vertical(candidate_postures(MODEL, RANGES, count, seed), prefix))


def at_angles(cases, degrees):
    """The load cases as they would be measured at other angles of joint 2, one for each."""
    other = [
        dataclasses.replace(case, q=np.where(np.arange(6) == 1, np.radians(angle), case.q))
        for case, angle in zip(cases, degrees, strict=True)
    ]
    return measured_by(MODEL, other)


def complete_study(fit, check=(), compensated="q2", instruments=None):
    """A study of a complete stiffness model, of load cases in tables."""
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for name, cases in (("fit", fit), ("check", check)):
            if len(cases):
                (Path(folder) / f"{name}.csv").write_text(deflections_csv(MODEL, cases))
                parts.append({"kind": "deflection", "name": name, "role": name, "file": f"{name}.csv"})
        if instruments is not None:
            parts[0]["instruments"] = instruments
        path = Path(folder) / "study.toml"
        path.write_text(
            tomli_w.dumps({"machine": "kuka-kr270", "complete": {"compensated": compensated}, "test": parts})
        )
        return load_study(path)


@functools.cache
def fitted_cases():
    """The load cases that are fitted."""
    return made(20, 1)


@functools.cache
def judged():
    """Result of a complete stiffness model with check tests: two at angles that were tested, two at others."""
    checks = made(20, 2, prefix="c")[:4]
    checks = [*checks[:2], *at_angles(checks[2:], (35.0, 47.5))]
    return identify(complete_study(fitted_cases(), checks, instruments={"tracker_mm": 0.03, "draws": 5}))
