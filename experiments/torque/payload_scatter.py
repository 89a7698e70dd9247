"""Coverage of a payload's intervals, with and without friction that the model lacks: two plane arms, draw by draw.

    python experiments/torque/payload_scatter.py [--pairs 50] [--out results/torque]

The equations of the arms are written by hand, so that they share no code with jaxmb. Each pair of draws has one machine
and one friction, two motions (Fourier series of 0.1 to 0.5 Hz) and independent noise; each draw is a run with and one
without the payload. The friction is at one joint drawn by lot: load-dependent, 3 to 12 % of the load, or Stribeck
friction of 3 to 15 times the noise, of 0.1 to 0.5 rad/s.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

import jaxmb

ARMS = {
    "short": {"length": 0.4, "mass": 2.0, "load": 1.5, "centre": (0.3, 0.05), "harmonics": (1, 2, 3, 5), "std": 0.1},
    "long": {"length": 0.9, "mass": 8.0, "load": 4.0, "centre": (0.5, -0.12), "harmonics": (1, 2, 4), "std": 0.4},
}
"""Units: m, kg, Nm."""
CASES = {
    "correct, white noise": ("none", 0.0), "correct, AR(1) noise": ("none", 0.8), "load-dependent": ("load", 0.0),
    "Stribeck": ("stribeck", 0.0), "load-dependent, AR(1) noise": ("load", 0.8),
    "Stribeck, AR(1) noise": ("stribeck", 0.8),
}  # fmt: skip
"""Friction that the model lacks, and correlation of neighbouring samples of noise."""
RATE, COUNT = 100.0, 1000
OF_LOAD = ("mass.load", "first_moment.load.x", "first_moment.load.y", "inertia.load.zz")
SHOWN = (*OF_LOAD, "x", "y")


def truth(arm: dict, carries: bool = True) -> dict[str, float]:
    """Parameters about the joints' axes, and those of the payload."""
    mass, length, (x, y) = arm["mass"], arm["length"], arm["centre"]
    link = {"x": 0.4 * mass * length, "zz": 0.3 * mass * length**2}
    m = arm["load"] if carries else 0.0
    return {
        "inertia.upper.zz": link["zz"], "first_moment.upper.x": link["x"], "first_moment.upper.y": 0.03 * mass * length,
        "inertia.fore.zz": 0.8 * link["zz"], "first_moment.fore.x": 0.8 * link["x"],
        "first_moment.fore.y": -0.02 * mass * length, "rotor_inertia.b": 0.03 * link["zz"],
        "damping.a": 0.8, "damping.b": 0.3, "friction.a": 1.5, "friction.b": 0.6, "offset.a": 0.4, "offset.b": -0.2,
        "mass.load": m, "first_moment.load.x": m * x, "first_moment.load.y": m * y,
        "inertia.load.zz": m * (x * x + y * y + 0.005),
    }  # fmt: skip


def machine(arm: dict) -> jaxmb.Machine:
    """The arm with its payload, other friction and rotor than it has."""
    mass, length, (x, y) = arm["mass"], arm["length"], arm["centre"]
    moment = {"xx": 0.01, "yy": 0.2 * mass * length**2, "zz": 0.2 * mass * length**2}
    body = {"mass": mass, "center_of_mass": [0.3 * length, 0.0, 0.0], "inertia_products": moment}
    joint = {"damping": 0.1, "friction": 0.1}
    m = 0.002 * arm["load"]
    return jaxmb.Machine.model_validate({
        "name": "arm",
        "gravity": [0.0, -9.81, 0.0],
        "body": [
            body | {"name": "upper", "joint": [joint | {"name": "a"}]},
            body | {"name": "fore", "parent": "upper", "origin": {"xyz": [length, 0.0, 0.0]},
                    "joint": [joint | {"name": "b", "rotor_inertia": 0.01}]},
        ],
        "payload": [{"name": "load", "frame": "fore", "mass": arm["load"], "center_of_mass": [x, y, 0.0],
                     "inertia_products": {"xx": m, "yy": m, "zz": 1.5 * m}}],
    })  # fmt: skip


def efforts(arm: dict, states: np.ndarray, p: dict[str, float]) -> tuple[np.ndarray, np.ndarray]:
    """Lagrange's equations of two links [2, k], without and with friction."""
    (a, b), (va, vb), (ga, gb) = states
    length, g, m = arm["length"], 9.81, p["mass.load"]
    x1, y1 = p["first_moment.upper.x"] + (arm["mass"] + m) * length, p["first_moment.upper.y"]
    i1 = p["inertia.upper.zz"] + (arm["mass"] + m) * length**2
    x2, y2, i2 = (p[f"{name.replace('*', 'fore')}"] + p[f"{name.replace('*', 'load')}"]
                  for name in ("first_moment.*.x", "first_moment.*.y", "inertia.*.zz"))  # fmt: skip
    along, across = x2 * np.cos(b) - y2 * np.sin(b), x2 * np.sin(b) + y2 * np.cos(b)
    weight = g * (x2 * np.cos(a + b) - y2 * np.sin(a + b))
    of_b = i2 * (ga + gb) + length * (along * ga + across * va**2) + weight
    of_a = (i1 * ga + i2 * (ga + gb) + length * (along * (2 * ga + gb) - across * (2 * va * vb + vb**2)) + weight
            + g * (x1 * np.cos(a) - y1 * np.sin(a)))  # fmt: skip
    load = np.array([of_a, of_b + p["rotor_inertia.b"] * gb])
    lost = [
        p[f"damping.{j}"] * v + p[f"friction.{j}"] * np.sign(v) + p[f"offset.{j}"] for j, v in (("a", va), ("b", vb))
    ]
    return load, load + lost


def motion(arm: dict, draw: np.random.Generator) -> np.ndarray:
    """Angles, rates and accelerations [3, 2, k]."""
    k = np.array(arm["harmonics"])
    w = 2.0 * np.pi * 0.1 * k
    size = draw.normal(size=(2, k.size)) * 0.8 / k + 1j * draw.normal(size=(2, k.size)) * 0.8 / k
    wave = np.exp(1j * np.outer(w, np.arange(COUNT) / RATE))
    states = np.array([((1j * w) ** n * size @ wave).real for n in range(3)])
    states[0] += draw.uniform(-0.5, 0.5, (2, 1))
    return states


def study(folder: Path, arm: dict, friction: dict, correlation: float, draw: np.random.Generator) -> jaxmb.Study:
    """A run with and one without the payload."""
    states, tests = motion(arm, draw), []
    for number, carries in enumerate((True, False)):
        load, tau = efforts(arm, states, truth(arm, carries))
        j, v = friction["joint"], states[1, friction["joint"]]
        if friction["kind"] == "load":
            tau[j] += friction["share"] * np.abs(load[j]) * np.sign(v)
        if friction["kind"] == "stribeck":
            tau[j] += friction["size"] * arm["std"] / 0.1 * np.exp(-((v / friction["speed"]) ** 2)) * np.sign(v)
        noise = draw.normal(size=(2, COUNT))
        for i in range(1, COUNT):
            noise[:, i] = correlation * noise[:, i - 1] + np.sqrt(1.0 - correlation**2) * noise[:, i]
        angles = states[0] + 1e-5 * draw.normal(size=states[0].shape)
        table = np.stack([np.arange(COUNT) / RATE, *angles, *(tau + arm["std"] * noise)], axis=1)
        heads = "time_s,a,b,a.torque,b.torque"
        np.savetxt(folder / f"run{number}.csv", table, fmt="%.10g", delimiter=",", header=heads,
                   comments="")  # fmt: skip
        test = {"kind": "torque", "file": f"run{number}.csv", "cutoff_hz": 10.0, "least_speed": 0.02}
        tests.append(test | ({} if carries else {"without": ["load"]}))
    free = {name: {"lower": -99.0, "upper": 99.0} for name in truth(arm)}
    free |= {name: {"lower": 0.0, "upper": 99.0, "scale": "linear"} for name in free
             if name.split(".")[0] in ("damping", "friction", "rotor_inertia", "mass")}  # fmt: skip
    return jaxmb.make_study({"machine": "arm.toml", "test": tests, "free": free}, "arm", folder)


def case(folder: Path, arm: dict, kind: str, correlation: float, pairs: int) -> dict:
    """Coverage of the draws of one arm."""
    jaxmb.write_machine(machine(arm), folder / "arm.toml")
    true = truth(arm)
    centre = dict(zip("xy", arm["centre"], strict=True))
    inside, shown, remarks = [], [], {"joints": 0, "friction": 0}
    for seed in range(2 * pairs):
        lot = np.random.default_rng([seed // 2, 1])
        friction = {"kind": kind, "joint": lot.integers(2), "share": lot.uniform(0.03, 0.12),
                    "size": lot.uniform(0.3, 1.5), "speed": lot.uniform(0.1, 0.5)}  # fmt: skip
        result = jaxmb.identify(study(folder, arm, friction, correlation, np.random.default_rng([seed, 2])))
        rows = result.parameters
        z = {name: (rows[name].value - value) / (rows[name].std or np.inf) for name, value in true.items()}
        inside.append([abs(error) <= 1.96 for error in z.values()])
        rows = [(rows[name].value, rows[name].std or np.inf, true[name]) for name in OF_LOAD]
        found = {row["axis"]: row for row in result.as_json()["metrics"]["centres"]}
        rows += [(found[axis]["value"], found[axis]["std"], centre[axis]) for axis in "xy"]
        shown.append(rows)
        remarks["joints"] += any("disagree" in text for text in result.doubts)
        remarks["friction"] += any("residual contains friction" in text for text in result.doubts)
    value, std, right = np.moveaxis(np.array(shown), 2, 0)
    apart = np.abs(value[::2] - value[1::2]) > 1.96 * (std[::2] + std[1::2])
    each = 100.0 * np.mean(np.abs(value - right) <= 1.96 * std, axis=0)
    return {
        "draws": 2 * pairs,
        "all_intervals_percent": 100.0 * float(np.mean(inside)),
        "least_covered_percent": 100.0 * float(np.mean(inside, axis=0).min()),
        "covered_percent": dict(zip(SHOWN, each.round(1).tolist(), strict=True)),
        "pairs_apart_percent": dict(zip(SHOWN, (100.0 * apart.mean(axis=0)).round(1).tolist(), strict=True)),
        "median_std": dict(zip(SHOWN, np.median(std, axis=0).round(5).tolist(), strict=True)),
        "remarks": remarks,
    }


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=50)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, arm in ARMS.items():
        for title, (kind, correlation) in CASES.items():
            if arguments.only in f"{name}: {title}":
                began = time.monotonic()
                with tempfile.TemporaryDirectory() as folder:
                    outcome = case(Path(folder), arm, kind, correlation, arguments.pairs)
                found[f"{name}: {title}"] = outcome
                print(f"{name}: {title} ({time.monotonic() - began:.0f} s)", json.dumps(outcome), flush=True)
    (arguments.out / "payload-scatter.json").write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
