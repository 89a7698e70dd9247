"""The Surgiscope identified in two steps from modes and FRFs, and its modes beside Table IV of Rognant et al. 2010.

    python experiments/surgiscope/run.py [--out results/surgiscope]

Measured is a stand-in: the machine of the study `surgiscope-modes`, each joint of it another 5 % off, so that nothing
is symmetric any more. One study, `method = "rognant2010"`: 21 stiffnesses, with the study's prior, are fitted to
natural frequencies and shapes at 40 points in both configurations, then the loss factor to the FRFs of a vertical hit
at the platform in the first one, 0.5 to 100 Hz, with 3 % of noise, by the criterion J_Q of eq. 34. J_Q up to 250 Hz
is of the same FRFs, held out.
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
NOISE = 0.03
"""Standard deviation of log H, real and imaginary part each."""
LINES = {"first_hz": 0.5, "last_hz": 250.0, "step_hz": 0.5}
BANDS_HZ = {"100 Hz": [0.5, 100.0], "250 Hz": [0.5, 250.0]}
"""Of the fitted and of the held-out FRFs."""


def description(study: jaxmb.Study) -> dict[str, Any]:
    """A study as plain data."""
    if study.origin is None:
        raise ValueError(f"study '{study.name}' was not made from a description")
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


def identified(values: dict[str, float]) -> jaxmb.Result:
    """Stiffness from modes in both configurations, then the loss factor from FRFs in the first."""
    data = description(jaxmb.load_study("surgiscope-modes")) | {"preset": "rognant2010"}
    for test in data["test"]:
        test["simulate"]["parameters"] = values
    first = data["test"][0]
    simulate = {"lines": LINES, "noise_log_std": NOISE, "parameters": values, "noise_seed": 3}
    for (name, band), role in zip(BANDS_HZ.items(), ("fit", "check"), strict=True):
        data["test"].append({
            "kind": "frf", "name": name, "posture": first["posture"], "outputs": first["outputs"],
            "inputs": [["tool", "z"]], "simulate": simulate, "band_hz": band, "role": role,
        })  # fmt: skip
    return jaxmb.identify(jaxmb.make_study(data, "surgiscope, uneven"))


def modes_beside_table(first: jaxmb.Result) -> list[dict[str, Any]]:
    """Printed frequencies, and those of the machine as it is shipped, below 43 Hz."""
    model = jaxmb.build_model(jaxmb.load_machine("surgiscope"))
    rows = []
    for test, (measured, modelled) in zip(first.study.tests[: len(TABLE_IV)], TABLE_IV.values(), strict=True):
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
    first = identified(values)
    loss_factor, jq_percent = first.parameters["loss_factor.q1-a"], first.metrics["jq_percent"]
    told = {"table": modes_beside_table(first), "modes": first.metrics["measured_modes"], "status": first.status,
            "loss_factor": loss_factor.value, "loss_factor_std": loss_factor.std, "loss_factor_true": LOSS_FACTOR,
            "jq_percent": jq_percent, "seconds": first.seconds,
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
    bands = ", ".join(f"{jq_percent[name]:.2f} % up to {name}" for name in BANDS_HZ)
    print(f"loss factor {loss_factor.value:.4f} +- {loss_factor.std:.4f}, true {LOSS_FACTOR}; J_Q {bands}")
    print(f"status: {first.status}; {first.seconds['total']:.0f} s")
    print("known:", ", ".join(names[0] for names in first.study.free.tied if told["known"][names[0]] == "yes"))


if __name__ == "__main__":
    main()
