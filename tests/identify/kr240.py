"""Deflections of the KR240 under loads, and studies of them, for the tests of several rooms."""

import dataclasses

import numpy as np
import tomli_w

from jaxmb.identify.experiments.deflections.deflection_test import DeflectionSource, deflection_test
from jaxmb.identify.experiments.deflections.load_cases import LoadCase, predicted
from jaxmb.identify.experiments.deflections.table import deflections_csv
from jaxmb.identify.experiments.test import Entry
from jaxmb.identify.study.study import load_study
from jaxmb.machine.file import load_machine
from jaxmb.machine.schema import Machine
from jaxmb.mechanics.postures import build_model

MACHINE = load_machine("kuka-kr240")
MODEL = build_model(MACHINE)
JOINTS = tuple(f"stiffness.q{i}" for i in range(1, 7))
TRUTH = np.array([3.8e6, 6.6e6, 3.9e6, 5.6e5, 6.6e5, 4.7e5])
STD = np.repeat([3e-5, 6e-5], 3)
FREE = {"stiffness.*": {"lower": 1e4, "upper": 1e9}}
ARM = {"name": "arm", "body": "q3", "diagonal": [1e-9, 2e-9, 3e-9, 4e-8, 5e-8, 6e-8]}
"""A virtual spring of the arm."""


def with_arm(**changes):
    """The machine with an elastic arm."""
    return Machine.model_validate(MACHINE.model_dump() | {"virtual_spring": [ARM | changes]})


def loaded(count=12, wrench=None, noise=0.0, seed=3, model=MODEL, reach=0.3, size=(2000.0, 500.0), **changes):
    """Load cases at postures about the reference, displaced by the machine's own compliances.

    Args:
        count: how many.
        wrench: one for all [6] or one for each [count, 6]; drawn where not given.
        noise: standard deviations of the errors, in units of the stated ones.
        seed: of postures, loads and errors.
        model: the machine.
        reach: of the postures about the reference, rad.
        size: largest force and moment that are drawn.
        changes: other fields of the load cases.
    """
    draw = np.random.default_rng(seed)
    given = None if wrench is None else np.broadcast_to(wrench, (count, 6))
    cases = []
    for i in range(count):
        q = np.asarray(model.reference) + draw.uniform(-reach, reach, size=6)
        load = draw.uniform(-1.0, 1.0, size=6) * np.repeat(size, 3)
        case = LoadCase(
            f"t{i + 1}", q, "tool", load if given is None else given[i], ("tool",), np.zeros((1, 6)), STD[None]
        )
        cases.append(dataclasses.replace(case, **changes))
    return displaced(measured_by(model, cases), lambda d: d + noise * STD * draw.normal(size=d.shape))


def measured_by(model, cases):
    """The load cases with what a machine's own compliances make of them; what was not measured stays so."""
    return [
        dataclasses.replace(case, displacement=np.where(case.measured, d, np.nan))
        for case, d in zip(cases, predicted(model, cases), strict=True)
    ]


def displaced(cases, change):
    """The load cases with other displacements."""
    return [dataclasses.replace(case, displacement=change(case.displacement)) for case in cases]


def entry_of(cases, name="set", role="fit", instruments=None, model=MODEL):
    """An entry of a study, of some load cases."""
    test = deflection_test(name, model, cases)
    return Entry("deflection", test, DeflectionSource(cases=tuple(cases), instruments=instruments), role=role)


def study_of(folder, *sets, parts=(), free=FREE, machine="kuka-kr240", model=MODEL, cells=lambda text: text, **more):
    """A study of load cases in tables, one for each set.

    Args:
        folder: where its files are written.
        sets: load cases of each test.
        parts: what the study says of each test beside its file.
        free: of the study; left out where it is None.
        machine: of the study.
        model: the machine's.
        cells: changes the text of the first table.
        more: other keys of the study.
    """
    tests = []
    for k, (name, cases) in enumerate(zip(("near", "far"), sets, strict=False)):
        text = deflections_csv(model, cases)
        (folder / f"{name}.csv").write_text(cells(text) if k == 0 else text)
        tests.append({"kind": "deflection", "file": f"{name}.csv"} | dict(parts[k] if k < len(parts) else {}))
    path = folder / "mine.toml"
    path.write_text(tomli_w.dumps({"machine": machine, "test": tests} | ({"free": free} if free else {}) | more))
    return load_study(path)
