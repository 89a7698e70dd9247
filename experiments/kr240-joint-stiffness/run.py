"""The joint stiffnesses of the KUKA KR240 from 23 loads, beside Table II of Dumas et al. 2011, and what decides them.

Run as `python experiments/kr240-joint-stiffness/run.py`; about a minute.
"""

import dataclasses
import time

import jax.numpy as jnp
import numpy as np
from jaxmb.identify.assess.deflections.monte_carlo import monte_carlo
from jaxmb.identify.assess.deflections.solve import check_plan, equations, fit_deflections, unknowns

import jaxmb
from jaxmb.identify.experiments.load_cases import LoadCase, predicted
from jaxmb.identify.study.format.deflection_format import Instruments
from jaxmb.identify.study.reading.deflections import DeflectionSet

PRINTED = np.array([np.nan, 1e5, 3.7e5, 1e4, 1.4e4, 2.2e4])
"""Table II, Nm/rad."""
DRAWS = 500


def main() -> None:
    """Print everything that the README of this experiment tells."""
    study = jaxmb.load_study("kr240-joint-stiffness")
    result = jaxmb.identify(study)
    print("Table II: parameter, printed error, ours by draws, by first order, ratio to the printed one")
    for row, printed in zip(result.metrics["table2"], PRINTED, strict=True):
        drawn, first_order = row["error"], row["linear_error"]
        print(f"  {row['parameter']} {printed:.2g} {drawn:.3g} {first_order:.3g} {drawn / printed:.2f}")
    for line in result.metrics["sets"]:
        for kind, unit in (("translation", "mm"), ("rotation", "deg")):
            told = line[kind]
            mean, largest = told[f"mean_gap_{unit}"], told[f"max_gap_{unit}"]
            print(f"{line['set']}, {kind}: mean {told[f'mean_measured_{unit}']:.3f} {unit}, gap {mean:.4f} mean,"
                  f" {largest:.4f} largest, {told['explained_percent']:.1f} % explained")  # fmt: skip
    _each_axis(result)
    _convergence(result)
    _alternatives(study)
    _seeds()
    _speed(study)


def _each_axis(result: jaxmb.Result) -> None:
    rows = [row for row in result.metrics["deflections"] if row["role"] == "check"]
    gap = np.abs([row["measured_deg"] - row["predicted_deg"] for row in rows]).mean(axis=0)
    print("check, mean gap of rotation about x, y, z (deg):", np.round(gap, 4))


def _convergence(result: jaxmb.Result) -> None:
    told = result.metrics["convergence"]
    for count in (3, 6, 12):
        k = list(told["tests"]).index(count)
        widths = [
            100.0 * (told[name]["upper"][k] - told[name]["lower"][k]) / told[name]["median"][-1]
            for name in result.study.free.names[1:]
        ]
        print(f"{count} tests: central 90 % of the values spans, % of the last:", np.round(widths).astype(int))


def _alternatives(study: jaxmb.Study) -> None:
    """The same Monte-Carlo with one assumption changed at a time; the tests' postures and forces stay."""
    found = unknowns(study.model, study.free)
    base = study.deflections[0]
    single = {"tracker_mm": 0.03 / np.sqrt(2.0)}
    cases = {
        "as in the study": base,
        "0.03 mm on the displacement, not on each position": _instruments(base, **single),
        "reflectors at 0.2 m": _instruments(base, reflectors_m=0.2),
        "reflectors at 1 m": _instruments(base, reflectors_m=1.0),
        "eq. 18 as printed, rows in m and rad": dataclasses.replace(base, rotation_weight=4.0),
        "rotations decide (eq. 18 with rows in m and deg)": dataclasses.replace(base, rotation_weight=13000.0),
        "loads half as large": _loads(base, 0.5),
        "loads twice as large": _loads(base, 2.0),
    }
    model = study.free.apply(study.model, jnp.asarray([study.truth[name] for name in study.free.names]))
    for what, group in cases.items():
        drawn = monte_carlo(model, found, [group], study.initial, DRAWS, 0)
        print(f"{what}: ratio to Table II", np.round(drawn.std[1:] / PRINTED[1:], 2))


def _instruments(group: DeflectionSet, **changed: float) -> DeflectionSet:
    """The set with other instruments, and deviations that follow from them."""
    if group.instruments is None:
        raise ValueError(f"deflection tests '{group.name}' have no instruments, expected those whose errors are drawn")
    instruments: Instruments = group.instruments.model_copy(update=changed)
    std = np.repeat([instruments.translation_std, instruments.rotation_std], 3)
    tests = tuple(dataclasses.replace(t, std=np.broadcast_to(std, t.std.shape)) for t in group.tests)
    return dataclasses.replace(group, instruments=instruments, tests=tests)


def _loads(group: DeflectionSet, factor: float) -> DeflectionSet:
    tests = tuple(dataclasses.replace(t, wrench=factor * t.wrench) for t in group.tests)
    return dataclasses.replace(group, tests=tests)


def _seeds() -> None:
    ratios = []
    for seed in range(10):
        study = jaxmb.load_study("kr240-joint-stiffness", noise_seed=seed)
        result = jaxmb.identify(study)
        ratios.append([row["linear_error"] for row in result.metrics["table2"]][1:] / PRINTED[1:])
    print("ten other draws of the errors, first order: ratio to Table II from", np.round(np.min(ratios, axis=0), 2),
          "to", np.round(np.max(ratios, axis=0), 2))  # fmt: skip


def _speed(study: jaxmb.Study) -> None:
    draw = np.random.default_rng(0)
    count, std = 1000, np.repeat([3e-5, 6e-5], 3)[None]
    q = np.asarray(study.model.reference) + draw.uniform(-0.5, 0.5, size=(count, 6))
    wrench = draw.normal(size=(count, 6)) * np.repeat([1000.0, 300.0], 3)
    tests = [LoadCase(str(i), q[i], "tool", wrench[i], ("tool",), np.zeros((1, 6)), std) for i in range(count)]
    moved = predicted(study.model, tests)
    tests = [dataclasses.replace(t, displacement=d) for t, d in zip(tests, moved, strict=True)]
    found = unknowns(study.model, study.free)
    seconds = []
    for _ in range(6):
        began = time.perf_counter()
        rows = equations(study.model, found, [DeflectionSet("many", tuple(tests))])
        check_plan(study.model, found, tests, rows)
        fit_deflections(found, rows, study.initial)
        seconds.append(time.perf_counter() - began)
    print(f"1000 tests, six stiffnesses: {seconds[0]:.2f} s with compilation, then {np.median(seconds[1:]):.3f} s")


if __name__ == "__main__":
    main()
