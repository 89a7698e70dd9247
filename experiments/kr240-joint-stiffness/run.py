"""The joint stiffnesses of the KUKA KR240 from 23 loads, beside Table II of Dumas et al. 2011, and what decides them.

Run as `python experiments/kr240-joint-stiffness/run.py`; about two minutes.
"""

import dataclasses
import time
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmb
from jaxmb.deflections import DeflectionSource, LoadCase, deflection_test, monte_carlo, predicted
from jaxmb.fitting import linear_equations, linear_step, unknowns
from jaxmb.results import Estimate, linear_estimate
from jaxmb.studies import linear_in, study_data

PRINTED = np.array([np.nan, 1e5, 3.7e5, 1e4, 1.4e4, 2.2e4])
"""Table II, Nm/rad."""
DRAWS = 500
SEEDS = 20


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
    _alternatives(study.truth)
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


def _alternatives(truth: dict[str, float]) -> None:
    """The same Monte-Carlo with one assumption changed at a time; the tests' postures and directions stay."""
    cases: dict[str, dict[str, Any]] = {
        "as in the study": {},
        "0.03 mm on the displacement, not on each position": {"tracker_mm": 0.03 / np.sqrt(2.0)},
        "reflectors at 0.2 m": {"reflectors_m": 0.2},
        "reflectors at 1 m": {"reflectors_m": 1.0},
        "eq. 18 as printed, rows in m and rad": {"rotation_weight": 4.0},
        "rotations decide (eq. 18 with rows in m and deg)": {"rotation_weight": 13000.0},
        "loads half as large": {"loads": 0.5},
        "loads twice as large": {"loads": 2.0},
        "first guess": {
            "force_n": [196.0, 981.0],
            "offset_m": [0.3, 0.0, 0.0],
            "reflectors_m": 0.2,
            "tracker_mm": 0.03 / np.sqrt(2.0),
        },
    }
    for what, changes in cases.items():
        other = _changed(**changes)
        drawn = monte_carlo(_at_truth(other, truth), other.fitted, DRAWS)
        print(f"{what}: ratio to Table II", np.round(drawn.std[1:] / PRINTED[1:], 2))


def _changed(
    rotation_weight: float = 1.0, loads: float = 1.0, force_n: list[float] | None = None,
    offset_m: list[float] | None = None, **instruments: float,
) -> jaxmb.Study:  # fmt: skip
    """The study with other weights, loads or instruments; what is measured follows from these."""
    data = study_data("kr240-joint-stiffness")
    for test in data["test"]:
        test["instruments"] |= instruments
        test["rotation_weight"] = rotation_weight
        test["simulate"]["force_n"] = [loads * force for force in force_n or test["simulate"]["force_n"]]
        test["simulate"]["offset_m"] = offset_m or test["simulate"]["offset_m"]
    return jaxmb.make_study(data, "kr240-joint-stiffness")


def _at_truth(study: jaxmb.Study, truth: dict[str, float]) -> Estimate:
    """What is found of a study, had it found the truth."""
    values = np.array([truth[name] for name in study.free.names])
    model = study.free.apply(study.model, jnp.asarray(values))
    return dataclasses.replace(linear_estimate(study), values=values, model=model)


def _seeds() -> None:
    """Ratios to Table II over seeds of the errors, and over seeds of the 23 postures and loads as well."""
    for what, postures in (("errors", False), ("errors, postures and loads", True)):
        drawn, first_order, explained = [], [], []
        for seed in range(SEEDS):
            data = study_data("kr240-joint-stiffness")
            if postures:
                data["test"][0]["simulate"]["plan_seed"] = 1000 + seed
            result = jaxmb.identify(jaxmb.make_study(data, "kr240-joint-stiffness", noise_seed=seed))
            rows = result.metrics["table2"][1:]
            drawn.append([row["error"] for row in rows] / PRINTED[1:])
            first_order.append([row["linear_error"] for row in rows] / PRINTED[1:])
            explained.append(result.metrics["explained_percent"]["check"])
        print(f"{SEEDS} draws of {what}: ratio to Table II, joints 2 to 6")
        for kind, ratios in (("by draws", np.array(drawn)), ("by first order", np.array(first_order))):
            within = np.sum((ratios > 1 / 3) & (ratios < 3), axis=0)
            print(f"  {kind}: from", np.round(ratios.min(axis=0), 2), "to", np.round(ratios.max(axis=0), 2),
                  "; within a factor of three:", within, "of", SEEDS)  # fmt: skip
        print(f"  explained on the tests of the check: {min(explained):.1f} to {max(explained):.1f} %")


def _speed(study: jaxmb.Study) -> None:
    draw = np.random.default_rng(0)
    count, std = 1000, np.repeat([3e-5, 6e-5], 3)[None]
    q = np.asarray(study.model.reference) + draw.uniform(-0.5, 0.5, size=(count, 6))
    wrench = draw.normal(size=(count, 6)) * np.repeat([1000.0, 300.0], 3)
    tests = [LoadCase(str(i), q[i], "tool", wrench[i], ("tool",), np.zeros((1, 6)), std) for i in range(count)]
    moved = predicted(study.model, tests)
    tests = [dataclasses.replace(t, displacement=d) for t, d in zip(tests, moved, strict=True)]
    reciprocal = linear_in(study.problem)
    if reciprocal is None:
        raise ValueError("the study is not linear")
    found, seconds = unknowns(study.free, reciprocal), []
    for _ in range(6):
        began = time.perf_counter()
        DeflectionSource(cases=tuple(tests)).check_linear(study.model)
        rows = linear_equations(study.model, study.free, [deflection_test("many", study.model, tests)])
        linear_step(found, rows, study.start.values)
        seconds.append(time.perf_counter() - began)
    print(f"1000 tests, six stiffnesses: {seconds[0]:.2f} s with compilation, then {np.median(seconds[1:]):.3f} s")


if __name__ == "__main__":
    main()
