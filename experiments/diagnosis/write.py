"""Writes studies with one error each in the description of a machine or a test, and correct studies.

    python experiments/diagnosis/write.py FOLDER [--kinds frf modes deflection torque pose] [--draws 1] [--seed 0]

Each study is a folder FOLDER/NAME with `study.toml`, its data and its machine; FOLDER/truth/NAME.json has the error
that was made, which `judge.py` compares with the result. Data are made by the public functions of jaxmb
on the true machine. Errors are drawn in three sizes: about three, ten and thirty times a usual tolerance, or small,
large and gross. Correct studies have all errors within their tolerances, or none.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
import tomli_w
from machines import ARM, SCARA
from scipy.spatial.transform import Rotation

import jaxmb

DEGREE = np.pi / 180.0
SIZES = ("small", "large", "gross")
Change = dict[str, Any]


class Target(NamedTuple):
    """A machine with the description of its tests."""

    machine: jaxmb.Machine
    postures: tuple[dict[str, float], ...]
    frame: str
    axes: str
    lines: np.ndarray


THREE = Target(
    jaxmb.load_machine("manipulator-3r"), ({"z1": 0.2, "z2": 1.1, "z3": -1.5}, {"z1": -0.4, "z2": 0.6, "z3": -0.9}),
    "tool", "xyz", np.arange(2.0, 40.0, 0.5),
)  # fmt: skip
PLANE = Target(ARM, ({"a": 0.2, "b": 0.5}, {"a": -0.3, "b": -0.9}), "tool", "xz", np.arange(1.0, 26.0, 0.25))
SPATIAL = Target(SCARA, ({"s1": 0.3, "s2": 0.9}, {"s1": -0.4, "s2": -1.3}), "flange", "xyz", np.arange(4.0, 120.0, 2.0))
LINKS = Target(jaxmb.load_machine("two-flexible-links"), ({}, {"elbow": 0.5}), "tool", "xz", np.arange(2.0, 60.0, 1.0))
TARGETS = {"3r": THREE, "arm": PLANE, "scara": SPATIAL}


def plain(machine: jaxmb.Machine) -> Change:
    """A machine as data."""
    return machine.model_dump(mode="json", exclude_unset=True)


def part(data: Change, name: str) -> Change:
    """Data of a body."""
    return next(body for body in data["body"] if body["name"] == name)


def scaled_body(data: Change, name: str, factor: float) -> None:
    """A body with another mass, its inertia in proportion."""
    body = part(data, name)
    body["mass"] *= factor
    for key in ("inertia", "inertia_products"):
        if body.get(key):
            body[key] = {axis: factor * value for axis, value in body[key].items()}


def elastic_before(data: Change, name: str, axis: list[float], stiffness: float, damping: float) -> None:
    """A further rotational spring at the origin of a body, before its own joints."""
    extra = {"name": "extra", "axis": axis, "stiffness": stiffness, "damping": damping}
    part(data, name)["joint"].insert(0, extra)


def elastic_words(data: Change, name: str, axis: int) -> list[str]:
    """Words of the name of a spring of `elastic_before`: of the foundation where it is at the origin of the ground."""
    body = part(data, name)
    if body.get("parent", "ground") == "ground" and not any(body.get("origin", {}).get("xyz", ())):
        return ["foundation", "XYZ"[axis]]
    return ["further", body["joint"][1]["name"], "xyz"[axis]]


def within(data: Change, rng: np.random.Generator) -> None:
    """Errors of masses and centres of mass within usual tolerances."""
    for body in data["body"]:
        scaled_body(data, body["name"], 1.0 + 0.03 * rng.normal())
        centre = np.array(body["center_of_mass"]) + 0.005 * rng.normal(size=3)
        body["center_of_mass"] = centre.tolist()


class Frfs:
    """FRF tests of a target at its postures: true machine, postures, sensors, and changes of the data."""

    def __init__(self, target: Target, rng: np.random.Generator) -> None:
        """Without any error."""
        self.target, self.rng = target, rng
        self.data = plain(target.machine)
        self.model_of = jaxmb.Machine.model_validate
        self.offsets: list[dict[str, float]] = [{} for _ in target.postures]
        self.turn: dict[str, np.ndarray] = {}
        self.shift: dict[str, np.ndarray] = {}
        self.after: list[Callable[[int, np.ndarray, np.ndarray], np.ndarray]] = []
        self.settings: Change = {}
        self.stated: list[dict[str, Any]] = [dict(posture) for posture in target.postures]
        self.decay = [0.0 for _ in target.postures]

    def sensors(self) -> tuple[jaxmb.Machine, list[tuple[str, str]], list[tuple[str, str]]]:
        """The true machine with a frame for each sensor, its outputs and inputs."""
        data, frame = json.loads(json.dumps(self.data)), self.target.frame
        base = next(f for f in data["frame"] if f["name"] == frame)
        at = base.get("origin", {})
        origin = np.array(at.get("xyz", np.zeros(3)), dtype=float)
        own = Rotation.from_euler("xyz", at.get("rpy", np.zeros(3)))
        outputs = []
        for axis in self.target.axes:
            turn = Rotation.from_rotvec(self.turn.get(axis, np.zeros(3)))
            place = origin + own.apply(self.shift.get(axis, np.zeros(3)))
            pose = {"xyz": place.tolist(), "rpy": (own * turn).as_euler("xyz").tolist()}
            data["frame"].append({"name": f"sensor-{axis}", "body": base["body"], "origin": pose})
            outputs.append((f"sensor-{axis}", axis))
        return self.model_of(data), outputs, [(frame, axis) for axis in self.target.axes]

    def write(self, folder: Path) -> None:
        """The study with its files."""
        machine, outputs, inputs = self.sensors()
        model, tests = jaxmb.build_model(machine), []
        f, noise = self.target.lines, 0.01
        names = tuple(f"{self.target.frame} {axis}" for axis in self.target.axes)
        for k, posture in enumerate(self.target.postures):
            there = {name: posture.get(name, 0.0) + by for name, by in self.offsets[k].items()}
            q = jaxmb.posture(model, dict(posture) | there)
            if self.decay[k]:
                h = windowed(model, q, f, outputs, inputs, self.decay[k])
            else:
                h = np.asarray(jaxmb.frf(model, q, jnp.asarray(f), outputs=outputs, inputs=inputs))
            h = h * np.exp(noise * (self.rng.normal(size=h.shape) + 1j * self.rng.normal(size=h.shape)))
            for how in self.after:
                h = how(k, np.array(h), 2.0 * np.pi * f)
            jaxmb.write_frf(folder / f"p{k}.npz", jaxmb.FrfSet(f, h, "accelerance", names, names))
            points = [[self.target.frame, axis] for axis in self.target.axes]
            tests.append({"kind": "frf", "name": f"p{k}", "file": f"p{k}.npz", "posture": self.stated[k],
                          "outputs": points, "noise_log_std": noise})  # fmt: skip
        finish(folder, self.target.machine, tests, self.settings)


def windowed(model: Any, q: Any, f: np.ndarray, outputs: Any, inputs: Any, decay: float) -> np.ndarray:
    """Accelerances with an exponential window on the responses: H at j omega + decay, over s^2 and times s^2."""
    tangent = jaxmb.linearize(model, q)
    mass, damping, stiffness = (np.asarray(x) for x in (tangent.mass, tangent.damping, tangent.stiffness))
    rows_out = np.asarray(jaxmb.response_rows(model, q, tuple(outputs)))
    rows_in = np.asarray(jaxmb.response_rows(model, q, tuple(inputs)))
    found = []
    for w in 2.0 * np.pi * f:
        s = 1j * w + decay
        found.append(s**2 * rows_out @ np.linalg.solve(mass * s**2 + damping * s + stiffness, rows_in.T))
    return np.array(found)


def finish(folder: Path, machine: jaxmb.Machine, tests: list[Change], settings: Change) -> None:
    """Machine file and study file; all stiffnesses and dampings are free unless the settings say otherwise."""
    jaxmb.write_machine(machine, folder / "machine.toml")
    model = jaxmb.build_model(machine)
    own = jaxmb.parameters(model)
    of_joints = [f"{family}.{name}" for family in ("stiffness", "damping") for name in jaxmb.coordinates(model)]
    free = {name: {"lower": own[name] / 30.0, "upper": own[name] * 12.0} for name in of_joints if own[name] > 0.0}
    study = {"machine": "machine.toml", "test": tests, "free": free} | settings
    given = [*study.get("lock", []), *(name.split(".")[1] for name in study.get("hold", {}))]
    if "free" not in settings:
        study["free"] = {n: b for n, b in free.items() if n not in study.get("hold", {}) and n.split(".")[1] not in
                         (given if "lock" in study else [])}  # fmt: skip
    (folder / "study.toml").write_text(tomli_w.dumps(study))


def frf_errors(target: Target) -> dict[str, Callable[[Frfs, int, np.random.Generator], Change]]:
    """Functions by kind of error: each changes the data and returns the true cause."""
    bodies = [body.name for body in target.machine.body]
    model = jaxmb.build_model(target.machine)
    joints, stiffness = jaxmb.coordinates(model), np.asarray(model.stiffness)
    # the first joint turns the whole machine, which gravity alone notices
    revolute = [name for name, r in zip(joints, model.revolute, strict=True) if r][1:]
    typical, total = float(np.median(stiffness)), float(np.sum(np.asarray(model.mass)))
    # errors out of the plane of a plane machine have no effect on its data
    along, about = ([0, 2], [1]) if target.axes == "xz" else ([0, 1, 2], [0, 1, 2])

    def masses(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        factor = (1.1, 1.3, 2.0)[size] ** rng.choice([-1, 1])
        for body in bodies:
            scaled_body(t.data, body, factor)
        return {"words": ["all masses"], "size": factor}

    def payload(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        mass = total * (0.005, 0.02, 0.08)[size]
        t.data["payload"] = [{"name": "load", "frame": target.frame, "mass": mass}]
        return {"words": ["payload", target.frame], "size": mass}

    def body_mass(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        name, factor = str(rng.choice(bodies)), 1.0 + (0.09, 0.3, 0.9)[size]
        scaled_body(t.data, name, factor)
        return {"words": ["mass", name], "without": ["masses", "centre"], "size": factor}

    def centre(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        name, axis, by = str(rng.choice(bodies)), int(rng.choice(along)), (0.015, 0.05, 0.15)[size]
        part(t.data, name)["center_of_mass"][axis] += by
        return {"words": ["centre of mass", name, "xyz"[axis]], "size": by}

    def inertia(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        name, axis, factor = str(rng.choice(bodies)), int(rng.choice(about)), 1.0 + (0.2, 0.5, 0.9)[size]
        body = part(t.data, name)
        key = "inertia_products" if body.get("inertia_products") else "inertia"
        own = ["xx", "yy", "zz"][axis]
        body[key][own if own in body[key] else "xyz"[axis]] *= factor
        return {"words": ["inertia", name, "xyz"[axis]], "without": ["rotor"], "size": factor}

    def rotor(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        i = int(rng.integers(len(joints)))
        own = float(np.asarray(jaxmb.mass_matrix(model, jaxmb.posture(model, target.postures[0])))[i, i])
        by = own * (0.05, 0.2, 0.6)[size]
        joint = next(j for body in t.data["body"] for j in body["joint"] if j["name"] == joints[i])
        joint["rotor_inertia"] = joint.get("rotor_inertia", 0.0) + by
        return {"words": ["rotor inertia", joints[i]], "size": by}

    def zero(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        name, by = str(rng.choice(revolute)), (0.5, 2.0, 8.0)[size] * DEGREE * rng.choice([-1, 1])
        t.offsets = [{name: by} for _ in target.postures]
        return {"words": ["zero", name], "size": by / DEGREE}

    def gravity(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        t.data["gravity"] = [[0.0, 0.0, -9.81 * np.cos(DEGREE * 10)], [0.0, 0.0, 0.0], [0.0, 0.0, 9.81]][size]
        if size == 0:
            t.data["gravity"][0] = 9.81 * float(np.sin(DEGREE * 10))
            return {"words": ["tilt"], "size": 10.0}
        return {"words": ["gravity"], "size": size}

    def foundation(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        if len(about) == 1:
            raise ValueError("in the plane it is in series with the spring of the first joint")
        axis, k = int(rng.integers(2)), typical * (50.0, 10.0, 3.0)[size]
        root = next(body["name"] for body in t.data["body"] if body.get("parent", "ground") == "ground")
        elastic_before(t.data, root, np.eye(3)[axis].tolist(), k, k * 1e-4)
        return {"words": elastic_words(t.data, root, axis), "size": k}

    def flexible(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        name = str(rng.choice(bodies[1:]))
        own = np.abs(part(t.data, name)["joint"][0].get("axis", [0.0, 0.0, 1.0]))
        across = [axis for axis in np.flatnonzero(own < 0.5) if axis in about]
        if not across:
            raise ValueError("an elasticity out of the plane has no effect")
        axis, k = int(rng.choice(across)), typical * (20.0, 5.0, 1.5)[size]
        joint = part(t.data, name)["joint"][0]["name"]
        elastic_before(t.data, name, np.eye(3)[axis].tolist(), k, k * 1e-4)
        return {"words": ["further", joint, "xyz"[axis]], "size": k}

    def lock(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        i = int(rng.integers(len(joints)))
        own = (10.0, 3.0, 1.0)[size] * float(stiffness[i])
        joint = next(j for body in t.data["body"] for j in body["joint"] if j["name"] == joints[i])
        joint["stiffness"] = own
        t.settings = {"lock": [joints[i]]}
        return {"words": ["stiffness", joints[i], "locked"], "size": own}

    def held(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        i, factor = int(rng.integers(len(joints))), (1.3, 3.0, 10.0)[size]
        t.settings = {"hold": {f"stiffness.{joints[i]}": float(stiffness[i]) * factor}}
        return {"words": ["stiffness", joints[i]], "size": float(stiffness[i])}

    def posture(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        name, by = str(rng.choice(revolute)), (0.5, 3.0, 15.0)[size] * DEGREE * rng.choice([-1, 1])
        t.offsets[1] = {name: by}
        return {"words": ["posture", name, "p1"], "size": by / DEGREE}

    def degrees(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        test = int(rng.integers(2))
        t.stated[test] = {name: by / DEGREE for name, by in target.postures[test].items()}
        return {"words": ["degrees", f"p{test}"], "size": 57.3}

    def on_data(where: str) -> Callable[[Frfs, int, np.random.Generator], Change]:
        def gain(t: Frfs, size: int, rng: np.random.Generator) -> Change:
            factor, k = (1.05, 2.0, 9.80665)[size] ** rng.choice([-1, 1]), int(rng.integers(len(target.axes)))
            name = f"{target.frame} {target.axes[k]}"

            def how(test: int, h: np.ndarray, omega: np.ndarray) -> np.ndarray:
                if where == "FRFs" and test == 0:
                    return factor * h
                if where.startswith("output") and (test == 0 or where == "outputs"):
                    h[:, k] *= factor
                if where.startswith("input") and (test == 0 or where == "inputs"):
                    h[:, :, k] *= factor
                return h

            t.after.append(how)
            words = {"FRFs": ["factor", "FRFs of test 'p0'"]}.get(where, ["factor", where.rstrip("s"), name])
            if where in ("output", "input"):
                words.append("p0")
            truth = {"words": words, "size": factor}
            return truth | ({"without": ["p0", "p1"]} if where in ("outputs", "inputs") else {})

        return gain

    def delay(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        late, test = (1e-4, 5e-4, 3e-3)[size], int(rng.integers(3))
        t.after.append(lambda k, h, w: h * np.exp(-1j * w * late)[:, None, None] if test in (2, k) else h)
        return {"words": ["late", "all" if test == 2 else f"p{test}"], "size": late}

    def channel_delay(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        late, o = (1e-4, 5e-4, 3e-3)[size], int(rng.integers(len(target.axes)))

        def how(k: int, h: np.ndarray, w: np.ndarray) -> np.ndarray:
            h[:, o] *= np.exp(-1j * w * late)[:, None]
            return h

        t.after.append(how)
        return {"words": ["late", f"{target.frame} {target.axes[o]}"], "size": late}

    def misaligned(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        o, by = int(rng.integers(len(target.axes))), (3.0, 10.0, 30.0)[size]
        others = [i for i in range(3) if "xyz"[i] != target.axes[o]]
        if target.axes == "xz":
            others = [1]
        about = int(rng.choice(others))
        t.turn[target.axes[o]] = by * DEGREE * np.eye(3)[about]
        return {"words": ["direction", f"{target.frame} {target.axes[o]}"], "size": by}

    def displaced(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        o, by = int(rng.integers(len(target.axes))), (0.006, 0.02, 0.06)[size]
        others = [i for i in range(3) if "xyz"[i] != target.axes[o]]
        if target.axes == "xz":
            others = [i for i in others if i != 1]
        along = int(rng.choice(others))
        t.shift[target.axes[o]] = by * np.eye(3)[along]
        return {"words": ["position", f"{target.frame} {target.axes[o]}"], "size": by}

    def tool(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        axis, by = int(rng.choice([0, 2])), (0.006, 0.02, 0.06)[size]
        next(f for f in t.data["frame"] if f["name"] == target.frame)["origin"]["xyz"][axis] += by
        return {"words": ["position", target.frame, "along " + "xyz"[axis]], "without": ["output", "input"], "size": by}

    def reversed_channel(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        o, which, only = int(rng.integers(len(target.axes))), str(rng.choice(["output", "input"])), size < 2

        def how(k: int, h: np.ndarray, w: np.ndarray) -> np.ndarray:
            if k == 0 or not only:
                h[(slice(None), o) if which == "output" else (slice(None), slice(None), o)] *= -1.0
            return h

        t.after.append(how)
        words = ["sign", which, f"{target.frame} {target.axes[o]}"] + (["p0"] if only else [])
        return {"words": words, "size": -1.0}

    def swapped(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        a, b = (int(i) for i in rng.choice(len(target.axes), 2, replace=False))
        which, only = str(rng.choice(["output", "input"])), size < 2

        def how(k: int, h: np.ndarray, w: np.ndarray) -> np.ndarray:
            if k == 0 or not only:
                order = list(range(len(target.axes)))
                order[a], order[b] = b, a
                h = h[:, order] if which == "output" else h[:, :, order]
            return h

        t.after.append(how)
        points = [f"{target.frame} {target.axes[i]}" for i in (a, b)]
        return {"words": ["exchanged", which, *points] + (["p0"] if only else []), "size": 0.0}

    def window(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        slowest = float(target.lines[0])
        decay = (0.1, 0.5, 2.0)[size] * slowest
        t.decay = [decay, 0.0]
        return {"words": ["window", "p0"], "size": decay}

    def high_pass(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        corner = (0.05, 0.2, 0.8)[size] * float(target.lines[0]) * 2.0 * np.pi
        o = int(rng.integers(len(target.axes)))

        def how(k: int, h: np.ndarray, w: np.ndarray) -> np.ndarray:
            h[:, o] *= (1j * w / (1j * w + corner))[:, None]
            return h

        t.after.append(how)
        return {"words": ["high-pass", f"{target.frame} {target.axes[o]}"], "size": corner / (2.0 * np.pi)}

    def kind(t: Frfs, size: int, rng: np.random.Generator) -> Change:
        power, test = (1, 2, 1)[size], int(rng.integers(2))
        t.after.append(lambda k, h, w: h / ((1j * w) ** power)[:, None, None] if k == test or size == 2 else h)
        words = ["mobility" if power == 1 else "receptance"] + ([f"p{test}"] if size < 2 else [])
        return {"words": words, "size": power}

    return {
        "masses": masses, "payload": payload, "body mass": body_mass, "centre of mass": centre, "inertia": inertia,
        "rotor inertia": rotor, "joint zero": zero, "gravity": gravity, "foundation": foundation,
        "flexible": flexible, "locked": lock, "held": held, "posture": posture, "degrees": degrees,
        "gain of a test": on_data("FRFs"), "gain of an output": on_data("outputs"),
        "gain of an input": on_data("inputs"), "gain of an output in a test": on_data("output"), "delay": delay,
        "delay of a channel": channel_delay, "direction": misaligned, "position": displaced, "tool": tool,
        "sign": reversed_channel, "exchanged": swapped, "window": window, "high-pass": high_pass, "FRF kind": kind,
    }  # fmt: skip


def correct_frf(target: Target, folder: Path, rng: np.random.Generator, exact: bool) -> None:
    """A correct study, its errors within their tolerances."""
    t = Frfs(target, rng)
    if not exact:
        within(t.data, rng)
        zeros = {name: 0.05 * DEGREE * rng.normal() for name in jaxmb.coordinates(jaxmb.build_model(target.machine))}
        t.offsets = [{n: z + 0.02 * DEGREE * rng.normal() for n, z in zeros.items()} for _ in target.postures]
        t.turn = {axis: DEGREE * rng.normal(size=3) for axis in target.axes}
        t.shift = {axis: 0.002 * rng.normal(size=3) for axis in target.axes}
        gains, late = 1.0 + 0.01 * rng.normal(size=len(target.axes)), 1e-5 * rng.normal()
        t.after.append(lambda k, h, w: h * gains[:, None] * np.exp(-1j * w * late)[:, None, None])
    t.write(folder)


Made = Iterator[tuple[str, str, int, Callable[[Path, np.random.Generator], Change]]]


def frf_cases() -> Made:
    """Kind of error, machine, size, and maker of each FRF study."""
    for name, target in TARGETS.items():
        for kind, make in frf_errors(target).items():
            for size in range(3):

                def case(folder: Path, rng: np.random.Generator, make: Any = make, size: int = size,
                         target: Target = target) -> Change:  # fmt: skip
                    tests = Frfs(target, rng)
                    truth = make(tests, size, rng)
                    tests.write(folder)
                    return truth

                yield f"frf {kind}", name, size, case
    for size, factor in enumerate((1.15, 1.4, 3.0)):

        def modulus(folder: Path, rng: np.random.Generator, factor: float = factor) -> Change:
            tests, beam = Frfs(LINKS, rng), str(rng.choice(["upper", "fore"]))
            for own in tests.data["beam"]:
                if own["name"] == beam:
                    own["young_modulus"] /= factor
            tests.write(folder)
            return {"words": ["young_modulus", beam], "size": factor}

        yield "frf modulus", "links", size, modulus


def all_cases(kinds: list[str]) -> Made:
    """Cases of some kinds of test."""
    from others import deflection_cases, modal_cases, pose_cases, torque_cases

    parts = {
        "frf": frf_cases, "modes": modal_cases, "deflection": deflection_cases, "torque": torque_cases,
        "pose": pose_cases,
    }  # fmt: skip
    for kind in kinds:
        yield from parts[kind]()


def correct_cases(kinds: list[str]) -> Iterator[tuple[str, str, Callable[[Path, np.random.Generator, bool], None]]]:
    """Kind of test, machine and maker of correct studies."""
    from others import CORRECT

    if "frf" in kinds:
        for name, target in TARGETS.items():
            yield "frf", name, lambda folder, rng, exact, t=target: correct_frf(t, folder, rng, exact)
    yield from (case for case in CORRECT if case[0] in kinds)


def main() -> None:
    """Write the studies."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kinds", nargs="+", default=["frf", "modes", "deflection", "torque", "pose"])
    parser.add_argument("--draws", type=int, default=1, help="of each kind of error, machine and size")
    parser.add_argument("--correct", type=int, default=10, help="draws of each correct study")
    parser.add_argument("--every", type=int, default=1, help="writes only each so-many-th study")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    (given.folder / "truth").mkdir(parents=True, exist_ok=True)
    number = 0
    for draw in range(given.draws):
        for kind, machine, size, make in all_cases(given.kinds):
            number += 1
            if (number + given.seed) % given.every:
                continue
            name = f"{kind} {machine} {SIZES[size]} {draw}".replace(" ", "-")
            rng = np.random.default_rng([given.seed, draw, size, *kind.encode(), *machine.encode()])
            (given.folder / name).mkdir(exist_ok=True)
            try:
                truth = make(given.folder / name, rng)
            except ValueError as error:  # a machine that is not physically consistent, or an error without effect
                print(f"{name}: left out, {' '.join(str(error).split())[:100]}")
                continue
            keep(given.folder, name, {"kind": kind, "machine": machine, "size": SIZES[size], "truth": truth})
    for kind, machine, make in correct_cases(given.kinds):
        for draw in range(given.correct):
            name = f"{kind} correct {machine} {draw}".replace(" ", "-")
            rng = np.random.default_rng([given.seed, draw, *kind.encode(), *machine.encode(), 7])
            (given.folder / name).mkdir(exist_ok=True)
            make(given.folder / name, rng, draw % 2 == 0)
            keep(given.folder, name, {"kind": f"{kind} correct", "machine": machine, "size": "", "truth": None})


def keep(folder: Path, name: str, case: Change) -> None:
    """What is true of a case, in a file that the study does not know."""
    (folder / "truth" / f"{name}.json").write_text(json.dumps(case, default=float) + "\n")


if __name__ == "__main__":
    main()
