"""The Surgiscope identified in two steps from modes and FRFs, and its modes beside Table IV of Rognant et al. 2010.

    python experiments/surgiscope/run.py [--out results/surgiscope]

The measured structure is simulated: the machine of the study `surgiscope-modes` with a further deviation of 5 % of each
joint, so that it is not symmetric. `preset = "rognant2010"` fits 21 stiffnesses to the natural frequencies and shapes
at 40 points in both configurations, then the loss factor to FRFs up to 100 Hz by J_Q (eq. 34). FRFs up to 250 Hz are a
check. A vertical hit at the platform excites; the responses are vertical, at the platform and the end of each arm.
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
BANDS = {"0 to 100 Hz": 100.0, "0 to 250 Hz": 250.0}
"""Name and end of the FRF test that is fitted, and of the check; lines of the paper, every 0.49 Hz."""
OUTPUTS = [["tool", "z"], ["beam1_3-a", "z"], ["beam1_3-b", "z"], ["beam1_3-c", "z"]]
"""At the platform and the end of each arm, along the hit: across it a symmetric machine responds at rounding level."""


def description(study: jaxmb.Study) -> dict[str, Any]:
    """A study as plain data."""
    if study.origin is None:
        raise ValueError(f"study '{study.name}' was not made from a description")
    return study.origin.file.model_dump(mode="json", exclude_defaults=True)


def true_values(study: jaxmb.Study, seed: int) -> dict[str, float]:
    """Stiffnesses of the simulated structure, each with its own deviation, and its loss factor."""
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


def two_step_study(values: dict[str, float]) -> jaxmb.Study:
    """Modes in both configurations; FRFs of the first one to 100 Hz, and to 250 Hz as a check."""
    data = description(jaxmb.load_study("surgiscope-modes"))
    for test in data["test"]:
        test["simulate"]["parameters"] = values
    for (name, end), role in zip(BANDS.items(), ("fit", "check"), strict=True):
        lines = {"first_hz": 0.49, "last_hz": end, "step_hz": 0.49}
        simulate = {"lines": lines, "noise_log_std": NOISE, "noise_seed": 3, "parameters": values}
        data["test"].append({"kind": "frf", "name": name, "role": role, "posture": data["test"][0]["posture"],
                             "inputs": [["tool", "z"]], "outputs": OUTPUTS, "noise_log_std": NOISE,
                             "simulate": simulate})  # fmt: skip
    return jaxmb.make_study(data | {"preset": "rognant2010"}, "surgiscope-modes, uneven, in two steps")


def modes_beside_table(result: jaxmb.Result) -> list[dict[str, Any]]:
    """Printed frequencies, and those of the machine as it is shipped, below 43 Hz."""
    model = jaxmb.build_model(jaxmb.load_machine("surgiscope"))
    rows = []
    for test, (measured, modelled) in zip(result.study.tests, TABLE_IV.values(), strict=False):
        q = jaxmb.reference_posture(model) if test.vibration is None else test.vibration.q
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
    result = jaxmb.identify(two_step_study(true_values(jaxmb.load_study("surgiscope-modes"), seed=0)))
    loss_factor = result.parameters["loss_factor.q1-a"]
    report = {"table": modes_beside_table(result), "modes": result.metrics["measured_modes"], "status": result.status,
              "loss_factor": loss_factor.value, "loss_factor_std": loss_factor.std, "loss_factor_true": LOSS_FACTOR,
              "jq_percent": result.metrics["jq_percent"], "seconds": result.seconds,
              "identifiable": {name: p.identifiable for name, p in result.parameters.items()}}  # fmt: skip
    (out / "surgiscope.json").write_text(json.dumps(report, indent=2, default=str))
    for row in report["table"]:
        print(f"{row['configuration']}: printed measured {row['printed_measured_hz']}, model {row['printed_model_hz']}")
        print(f"  ours {row['ours_hz']} Hz")
    print("configuration         measured   fitted  deviation   MAC")
    for mode in report["modes"]:
        measured, fitted = mode["measured_frequency_hz"], mode["frequency_hz"]
        deviation = 100 * (fitted / measured - 1)
        print(f"{mode['posture']:20s} {measured:7.2f} Hz {fitted:7.2f} {deviation:8.2f} %  {mode['mac']:.3f}")
    print(f"loss factor {loss_factor.value:.4f}, standard deviation {loss_factor.std:.4f}, true {LOSS_FACTOR}")
    print("J_Q", ", ".join(f"{report['jq_percent'][name]:.2f} % from {name}" for name in BANDS))
    known = (names[0] for names in result.study.free.tied if report["identifiable"][names[0]] == "yes")
    print("identifiable:", ", ".join(known))


if __name__ == "__main__":
    main()
