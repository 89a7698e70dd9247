"""Errors of held-out torques by the cut-off of the filter of angles: four given ones and the automatic choice.

    JAXMB_DATA=... python experiments/torque/cutoff.py [--out results/torque]

Recordings of a TX40 and a KR300, the second half predicted from the first, and simulated runs of an arm of two joints,
a run of another motion predicted: motion up to 0.5, 2 or 6 Hz, angles with noise or steps of an encoder, torques with
white or coloured noise, and Stribeck friction that the fit does not have. "Before" is the automatic choice of the rule
that took the lowest cut-off; its frequencies are written below.
"""

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
from scipy.signal import lfilter

import jaxmb

GIVEN = (2.0, 5.0, 10.0, 20.0)
BEFORE = {
    "TX40": 53.0, "TX40, equations below 50 Hz": 53.0, "KR300": 50.0, "KR300, equations below 5 Hz": 50.0,
    "slow, noise of angles 1e-5 rad": 2.13, "slow, noise of angles 3e-4 rad": 2.13, "slow, encoder of 4096 steps": 2.13,
    "slow, coloured noise of torques": 2.13, "slow, Stribeck friction": 2.13,
    "to 2 Hz, noise of angles 5e-5 rad": 5.07, "to 2 Hz, encoder of 4096 steps": 7.83,
    "to 2 Hz, coloured noise of torques": 5.07, "to 6 Hz, noise of angles 5e-5 rad": 18.7,
    "to 6 Hz, encoder of 65536 steps": 18.7,
}  # fmt: skip
BODY = {"mass": 2.0, "center_of_mass": [0.15, 0.02, 0.0], "inertia_products": {"xx": 0.02, "yy": 0.06, "zz": 0.07}}
ARM = {
    "name": "arm",
    "gravity": [0.0, -9.81, 0.0],
    "body": [
        BODY | {"name": "upper", "joint": [{"name": "a", "damping": 0.8, "friction": 1.5, "rotor_inertia": 0.2}]},
        BODY | {"name": "fore", "parent": "upper", "origin": {"xyz": [0.4, 0.0, 0.0]},
                "joint": [{"name": "b", "damping": 0.3, "friction": 0.6, "rotor_inertia": 0.05}]},
    ],
}  # fmt: skip
FREE = {"first_moment.*": {"lower": -5.0, "upper": 5.0}, "inertia.*": {"lower": -5.0, "upper": 5.0},
        "damping.*": {"lower": 0.0, "upper": 9.0, "scale": "linear"}, "friction.*": {"lower": 0.0, "upper": 9.0},
        "rotor_inertia.*": {"lower": 0.0, "upper": 5.0}}  # fmt: skip
RATE, LENGTH = 250.0, 20.0
SIMULATED: dict[str, dict[str, float]] = {
    "slow, noise of angles 1e-5 rad": {"base_hz": 0.1, "angle_std": 1e-5},
    "slow, noise of angles 3e-4 rad": {"base_hz": 0.1, "angle_std": 3e-4},
    "slow, encoder of 4096 steps": {"base_hz": 0.1, "step": 2.0 * np.pi / 4096},
    "slow, coloured noise of torques": {"base_hz": 0.1, "angle_std": 5e-5, "torque": 0.05, "colour": 0.95},
    "slow, Stribeck friction": {"base_hz": 0.1, "angle_std": 5e-5, "stribeck": 0.4},
    "to 2 Hz, noise of angles 5e-5 rad": {"base_hz": 0.4, "angle_std": 5e-5},
    "to 2 Hz, encoder of 4096 steps": {"base_hz": 0.4, "step": 2.0 * np.pi / 4096},
    "to 2 Hz, coloured noise of torques": {"base_hz": 0.4, "angle_std": 5e-5, "torque": 0.05, "colour": 0.95},
    "to 6 Hz, noise of angles 5e-5 rad": {"base_hz": 1.2, "angle_std": 5e-5},
    "to 6 Hz, encoder of 65536 steps": {"base_hz": 1.2, "step": 2.0 * np.pi / 65536},
}


def recorded(path: Path, seed: int, how: dict[str, float]) -> None:
    """A run of the arm in a table: five harmonics with a speed of up to 1.5 rad/s at each joint."""
    random, time = np.random.default_rng(seed), np.arange(0.0, LENGTH, 1.0 / RATE)
    w = 2.0 * np.pi * how["base_hz"] * np.arange(1, 6)
    size, phase = random.normal(size=(2, 5)), random.uniform(0.0, 2.0 * np.pi, (2, 5))
    waves = [np.einsum("jk,tjk->tj", size * w ** (d - 1), np.sin(time[:, None, None] * w + phase + 0.5 * np.pi * d))
             for d in range(3)]  # fmt: skip
    q, qd, qdd = (part * 1.5 / np.abs(waves[1]).max(axis=0) for part in waves)
    model = jaxmb.build_model(jaxmb.Machine.model_validate(ARM))
    values = jaxmb.parameters(model)
    torque = jaxmb.stacked_torque_regressor(model, q, qd, qdd) @ [values[x] for x in jaxmb.regressor_names(model)]
    torque += how.get("stribeck", 0.0) * np.array([1.5, 0.6]) * np.exp(-((qd / 0.15) ** 2)) * np.sign(qd)
    colour = how.get("colour", 0.0)
    noise = lfilter([np.sqrt(1.0 - colour**2)], [1.0, -colour], random.normal(size=q.shape), axis=0)
    torque += how.get("torque", 0.02) * np.std(torque, axis=0) * np.asarray(noise)
    q = q + how.get("angle_std", 0.0) * random.normal(size=q.shape)
    q = q if "step" not in how else how["step"] * np.round(q / how["step"])
    table = np.column_stack([time, q, torque])
    np.savetxt(path, table, "%.12g", ",", header="time_s,a,b,a.torque,b.torque", comments="")


def held_out(data: dict[str, Any], folder: Path, cutoff: dict[str, float]) -> tuple[float, float]:
    """Error of the torques of the test that is held out, %, root mean square over joints; and the cut-off."""
    data = data | {"test": [part | cutoff for part in data["test"]]}
    result = jaxmb.identify(jaxmb.make_study(data, "cutoff", folder))
    metrics: Any = result.metrics.tests["torque"]
    errors = [row.relative_percent for row in metrics.torques if row.role == "check"]
    source: Any = result.study.entries[0].source
    return float(np.sqrt(np.mean(np.square(errors)))), float(cutoff.get("cutoff_hz", source.cutoff_hz) or np.nan)


def halves(name: str, length: float, ends: float, **settings: Any) -> dict[str, Any]:
    """A shipped study with its first half fitted and its second held out, the same samples for all cut-offs."""
    study = tomllib.loads((Path(jaxmb.__file__).parent / f"library/studies/{name}.toml").read_text())
    test = {"kind": "torque", "file": study["test"][0]["file"], "least_speed": study["test"][0]["least_speed"]}
    parts = [{"name": "fit", "from_s": ends, "to_s": 0.5 * length},
             {"name": "check", "role": "check", "from_s": 0.5 * length, "to_s": length - ends}]  # fmt: skip
    return {key: study[key] for key in ("machine", "free", "prior") if key in study} | {
        "test": [test | settings | part for part in parts]
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(jaxmb.Machine.model_validate(ARM), arguments.out / "arm.toml")
    studies = {
        "TX40": halves("tx40", 9.0, 1.5),
        "TX40, equations below 50 Hz": halves("tx40", 9.0, 1.6, effort_cutoff_hz=50.0),
        "KR300": halves("kr300", 10.0, 1.5),
        "KR300, equations below 5 Hz": halves("kr300", 10.0, 2.2, effort_cutoff_hz=5.0),
    }
    for number, (name, how) in enumerate(SIMULATED.items()):
        for part in range(2):
            recorded(arguments.out / f"run{number}-{part}.csv", 2 * number + part, how)
        test = {"kind": "torque", "least_speed": 0.05, "from_s": 1.6, "to_s": LENGTH - 1.6}
        parts = [test | {"file": f"run{number}-0.csv"}, test | {"file": f"run{number}-1.csv", "role": "check"}]
        studies[name] = {"machine": "arm.toml", "free": FREE, "test": parts}
    results = {}
    print(
        f"{'error of held-out torques, %':38}"
        + "".join(f"{f'{c:g} Hz':>8}" for c in GIVEN)
        + "      before         now"
    )
    for name, data in studies.items():
        if arguments.only not in name:
            continue
        before = [BEFORE[name]] if name in BEFORE else []
        cases: list[dict[str, float]] = [*({"cutoff_hz": cutoff} for cutoff in (*GIVEN, *before)), {}]
        results[name] = [held_out(data, arguments.out, case) for case in cases]
        given, chosen = results[name][: len(GIVEN)], results[name][len(GIVEN) :]
        line = "".join(f"{error:8.3f}" for error, _ in given)
        print(f"{name:38}{line}" + "".join(f"{error:8.3f} ({cutoff:.3g} Hz)" for error, cutoff in chosen), flush=True)
    (arguments.out / "cutoff.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
