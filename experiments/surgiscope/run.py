"""The Surgiscope identified in two steps from modes and FRFs, and its modes beside Table IV of Rognant et al. 2010.

    python experiments/surgiscope/run.py [--out results/surgiscope]

Measured is a stand-in: the machine of the study `surgiscope-modes`, each joint of it another 5 % off, so that nothing
is symmetric any more. Step one fits 21 stiffnesses to its natural frequencies and shapes at 40 points in both
configurations, step two the loss factor to its FRFs for a vertical hit at the platform, 0.5 to 100 Hz, with 3 % of
noise, by the criterion J_Q of eq. 34.
"""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import minimize_scalar

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
LINES_HZ = np.arange(0.5, 100.1, 0.5)


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


def first_step(values: dict[str, float]) -> jaxmb.Result:
    """Stiffnesses from modes in both configurations."""
    data = description(jaxmb.load_study("surgiscope-modes"))
    for test in data["test"]:
        test["simulate"]["parameters"] = values
    return jaxmb.identify(jaxmb.make_study(data, "surgiscope-modes, uneven"))


def second_step(values: dict[str, float], first: jaxmb.Result) -> tuple[float, float]:
    """Loss factor with the smallest J_Q of the FRFs in the first configuration, and J_Q."""
    test: Any = first.study.tests[0]
    outputs, inputs = list(test.outputs), [("tool", "z")]
    lines = jnp.asarray(LINES_HZ)
    measured_machine = jaxmb.set_parameters(jaxmb.build_model(jaxmb.load_machine("surgiscope")), values)
    q = jaxmb.reference_posture(measured_machine)
    draw = np.random.default_rng(3)
    measured = np.asarray(jaxmb.frf(measured_machine, q, lines, outputs=outputs, inputs=inputs))
    noise = draw.normal(size=(2, *measured.shape))
    measured = measured * np.exp(NOISE * (noise[0] + 1j * noise[1]))
    reduced = jaxmb.reduce_motion(first.model, q, highest_hz=LINES_HZ[-1], outputs=outputs, inputs=inputs)
    known = jaxmb.parameters(first.model)["loss_factor.q1-a"]

    def jq(loss_factor: float) -> float:
        lost = jnp.asarray(reduced.tangent.structural) * (loss_factor / known)
        tried = reduced._replace(tangent=dataclasses.replace(reduced.tangent, structural=lost))
        error = np.asarray(jaxmb.reduced_frf(tried, lines)) - measured
        return float(np.sum(np.abs(error) ** 2) / np.sum(np.abs(measured) ** 2))

    found: Any = minimize_scalar(jq, bounds=(0.01, 0.5), method="bounded", options={"xatol": 1e-6})
    return float(found.x), 100.0 * float(found.fun)


def modes_beside_table(first: jaxmb.Result) -> list[dict[str, Any]]:
    """Printed frequencies, and those of the machine as it is shipped, below 43 Hz."""
    model = jaxmb.build_model(jaxmb.load_machine("surgiscope"))
    rows = []
    for test, (measured, modelled) in zip(first.study.tests, TABLE_IV.values(), strict=True):
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
    values = true_values(jaxmb.load_study("surgiscope-modes"), seed=0)
    first = first_step(values)
    loss_factor, jq_percent = second_step(values, first)
    told = {"table": modes_beside_table(first), "modes": first.metrics["measured_modes"], "status": first.status,
            "loss_factor": loss_factor, "loss_factor_true": LOSS_FACTOR, "jq_percent": jq_percent,
            "seconds": first.seconds,
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
    print(f"loss factor {loss_factor:.4f}, true {LOSS_FACTOR}; J_Q {jq_percent:.2f} % up to 100 Hz")
    print("known:", ", ".join(names[0] for names in first.study.free.tied if told["known"][names[0]] == "yes"))


if __name__ == "__main__":
    main()
