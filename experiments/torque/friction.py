"""Further friction of a simulated arm of two joints: which terms are chosen, and how often intervals hold the truth.

    python experiments/torque/friction.py [--draws 60] [--without] [--out results/torque]

One joint has Stribeck friction, the other cubic and load-dependent friction; with --without neither has any, and
whatever is chosen is false. The machine that is fitted has viscous and Coulomb friction alone.
"""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb

TRUE = {
    "inertia.upper.zz": 0.09, "first_moment.upper.x": 0.3, "first_moment.upper.y": 0.05, "inertia.fore.zz": 0.05,
    "first_moment.fore.x": 0.25, "first_moment.fore.y": -0.02, "rotor_inertia.b": 0.011, "damping.a": 0.8,
    "damping.b": 0.3, "friction.a": 1.5, "friction.b": 0.6, "offset.a": 0.4, "offset.b": -0.2,
}  # fmt: skip
FURTHER = {"a": {"stribeck": 1.0, "stribeck_speed": 0.25}, "b": {"cubic_damping": 0.02, "load_friction": 0.08}}
TERMS = {f"{term}.{name}": value for name, terms in FURTHER.items() for term, value in terms.items()}
MOTION = {"a": {"sine": [1.5, 0.0, 0.3], "cosine": [0.0, 0.4]}, "b": {"sine": [-0.8, 0.5], "cosine": [0.6, 0.0, 0.3]}}
NOISE = 0.05
"""Nm, of each sample."""


def machine(further: dict[str, Any]) -> jaxmb.Machine:
    """Two links in a vertical plane."""
    mass = {"mass": 2.0, "center_of_mass": [0.1, 0.0, 0.0], "inertia_products": {"xx": 0.01, "yy": 0.01, "zz": 0.02}}
    joints = [{"name": name, "damping": 0.1, "friction": 0.1} for name in "ab"]
    for joint in joints:
        joint |= {"further_friction": further[joint["name"]]} if further else {}
    fore = {"name": "fore", "parent": "upper", "origin": {"xyz": [0.4, 0.0, 0.0]}, "joint": [joints[1]]}
    upper = {"name": "upper", "joint": [joints[0] | {"rotor_inertia": 0.02}]}
    return jaxmb.Machine.model_validate({
        "name": "arm", "gravity": [0.0, -9.81, 0.0], "body": [mass | upper, mass | fore],
    })  # fmt: skip


def study(folder: Path, seed: int) -> jaxmb.Study:
    """10 s of motion with noise of a seed."""
    bounds = {
        name: {"lower": 0.0 if name.split(".")[0] in ("damping", "friction", "rotor_inertia") else -9.0, "upper": 9.0,
               "scale": "linear"}
        for name in TRUE
    }  # fmt: skip
    simulate = {
        "duration_s": 10.0, "rate_hz": 200.0, "base_hz": 0.2, "motion": MOTION, "parameters": TRUE,
        "torque_std": NOISE, "machine": "true.toml",
    }  # fmt: skip
    test = {
        "kind": "torque", "posture": {"a": -0.3, "b": 0.5}, "cutoff_hz": 40.0, "least_speed": 0.02,
        "simulate": simulate, "friction_terms": ["stribeck", "load", "cubic"],
    }  # fmt: skip
    return jaxmb.make_study(
        {"machine": "arm.toml", "test": [test], "free": bounds}, "friction", folder, noise_seed=seed
    )


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--without", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(machine({}), arguments.out / "arm.toml")
    jaxmb.write_machine(machine({} if arguments.without else FURTHER), arguments.out / "true.toml")
    true = TRUE | ({} if arguments.without else TERMS)
    chosen, errors = Counter[str](), []
    for seed in range(arguments.draws):
        found = jaxmb.identify(study(arguments.out, seed)).parameters
        chosen[", ".join(name for name in found if name not in TRUE) or "none"] += 1
        if set(found) == set(true):
            errors.append([(found[name].value - value) / found[name].std for name, value in true.items()])
    told = {
        "draws": arguments.draws,
        "chosen": dict(chosen),
        "intervals_hold_percent": 100.0 * float(np.mean(np.abs(errors) <= 1.96)),
        "each": dict(zip(true, (100.0 * np.mean(np.abs(errors) <= 1.96, axis=0)).round(1).tolist(), strict=True)),
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
