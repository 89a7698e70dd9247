"""The Surgiscope identified in two steps from modes and FRFs, and its modes beside Table IV of Rognant et al. 2010.

    python experiments/surgiscope/run.py [--out results/surgiscope]

Measured is a stand-in: the machine of the study `surgiscope-modes`, each joint of it another 5 % off, so that nothing
is symmetric any more. Step one fits 21 stiffnesses to its natural frequencies and shapes at 40 points in both
configurations, step two the loss factor to its FRFs for a vertical hit at the platform, 0.5 to 100 Hz, with 3 % of
noise.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

TABLE_IV = {
    "first configuration": ([11.8, 15.2, 31.2, 36.1, 38.8], [11.3, 15.7, 31.8, 36.4, 38.4]),
    "second configuration": ([12.4, 15.4, 26.1, 36.2, 42.5], [12.5, 16.0, 25.8, 37.3, 40.9]),
}
"""Measured and modelled frequencies, Hz."""
UNEVEN = 0.05
"""Standard deviation of the logarithm of each joint's stiffness beside that of its kind."""
LOSS_FACTOR = 0.096


def description(study: jaxmb.Study) -> dict[str, Any]:
    """A study as plain data."""
    assert study.origin is not None
    return study.origin.file.model_dump(mode="json", exclude_defaults=True)


def true_values(study: jaxmb.Study, seed: int) -> dict[str, float]:
    """Stiffnesses of the stand-in, each with its own deviation, and its loss factor."""
    draw = np.random.default_rng(seed)
    kinds, names = study.truth or {}, study.free.tied
    values = {}
    for tied in names:
        for name in tied:
            if name.startswith("stiffness."):
                values[name] = kinds[tied[0]] * float(np.exp(UNEVEN * draw.normal()))
            else:
                values[name] = LOSS_FACTOR
    return values


def first_step(values: dict[str, float]) -> jaxmb.Result:
    """Stiffnesses from modes in both configurations."""
    data = description(jaxmb.load_study("surgiscope-modes"))
    for test in data["test"]:
        test["simulate"]["parameters"] = values
    return jaxmb.identify(jaxmb.make_study(data, "surgiscope-modes, uneven"))


def second_step(values: dict[str, float], first: jaxmb.Result, folder: Path) -> jaxmb.Result:
    """The loss factor from FRFs in the first configuration."""
    jaxmb.write_machine(first.machine, folder / "stiffness.toml")
    data: dict[str, Any] = description(first.study)
    test = {
        "kind": "frf", "name": "hits", "posture": data["test"][0]["posture"], "outputs": data["test"][0]["outputs"],
        "inputs": [["tool", "z"]], "noise_log_std": 0.03,
        "simulate": {"lines": {"first_hz": 0.5, "last_hz": 100.0, "step_hz": 0.5}, "noise_log_std": 0.03,
                     "noise_seed": 3, "machine": "surgiscope", "parameters": values},
    }  # fmt: skip
    free = {"loss_factor.*": {"lower": 0.02, "upper": 0.5, "initial": 0.05, "tied": True}}
    study = {"machine": "stiffness.toml", "test": [test], "free": free, "rounds": 1, "least_rounds": 1, "agreement": 1}
    return jaxmb.identify(jaxmb.make_study(study, "surgiscope-damping", folder))


def modes_beside_table(first: jaxmb.Result) -> list[dict[str, Any]]:
    """Printed frequencies, and those of the machine as it is shipped, below 43 Hz."""
    model = jaxmb.build_model(jaxmb.load_machine("surgiscope"))
    rows = []
    for test, (measured, modelled) in zip(first.study.tests, TABLE_IV.values(), strict=True):
        q = jaxmb.reference_posture(model) if test.posture is None else test.posture
        found = np.asarray(jaxmb.modes(jaxmb.linearize(model, q)).frequency_hz)
        rows.append({"configuration": test.name, "printed_measured_hz": measured, "printed_model_hz": modelled,
                     "ours_hz": np.round(found[found < 43.0], 3).tolist()})  # fmt: skip
    return rows


def main() -> None:
    """Run both steps and print what they give."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("results/surgiscope"))
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    values = true_values(jaxmb.load_study("surgiscope-modes"), seed=0)
    first = first_step(values)
    second = second_step(values, first, out)
    told = {"table": modes_beside_table(first), "modes": first.metrics["measured_modes"], "status": first.status,
            "loss_factor": next(iter(second.parameters.values())).value, "loss_factor_true": LOSS_FACTOR,
            "jq_percent": second.metrics["jq_percent"], "seconds": first.seconds,
            "known": {name: p.identifiable for name, p in first.parameters.items()}}  # fmt: skip
    (out / "surgiscope.json").write_text(json.dumps(told, indent=2, default=str))
    for row in told["table"]:
        print(f"{row['configuration']}: printed measured {row['printed_measured_hz']}, model {row['printed_model_hz']}")
        print(f"  ours {row['ours_hz']} Hz")
    print("configuration         measured   fitted  deviation   MAC")
    for mode in told["modes"]:
        measured, fitted = mode["measured_frequency_hz"], mode["frequency_hz"]
        deviation = 100 * (fitted / measured - 1)
        print(f"{mode['posture']:20s} {measured:7.2f} Hz {fitted:7.2f} {deviation:8.2f} %  {mode['mac']:.3f}")
    print(f"loss factor {told['loss_factor']:.4f}, true {LOSS_FACTOR}")
    print(f"J_Q {told['jq_percent']['hits']:.2f} % up to 100 Hz")
    print(f"known: {', '.join(name for name, known in told['known'].items() if known == 'yes')}")


if __name__ == "__main__":
    main()
