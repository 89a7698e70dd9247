"""Modal, deflection, torque and pose studies of the diagnosis experiment, with one error each."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from machines import ARM, WRIST
from scipy.spatial.transform import Rotation
from write import (
    DEGREE,
    Change,
    Frfs,
    Made,
    Target,
    elastic_before,
    elastic_words,
    finish,
    frf_errors,
    part,
    plain,
    within,
)

import jaxmb
from jaxmb.deflections import actual_pose


class Modes(Frfs):
    """Modal tests with shapes at three axes of two frames, of a target at its postures."""

    modal: list[Callable[[int, np.ndarray, np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray, np.ndarray]]]

    def write(self, folder: Path) -> None:
        """The study with its files."""
        machine, outputs, _ = self.sensors()
        model, tests, frame = jaxmb.build_model(machine), [], self.target.frame
        for k, posture in enumerate(self.target.postures):
            there = {name: posture.get(name, 0.0) + by for name, by in self.offsets[k].items()}
            q = jaxmb.posture(model, dict(posture) | there)
            found = jaxmb.modes(jaxmb.linearize(model, q))
            count = len(jaxmb.coordinates(jaxmb.build_model(self.target.machine)))
            hz, ratio = (np.array(x)[:count] for x in (found.damped_frequency_hz, found.damping_ratio))
            second = [(name, axis) for name in machine_frames(self.target) for axis in self.target.axes]
            rows = np.asarray(jaxmb.response_rows(model, q, (*outputs, *second)))
            shape = rows @ np.asarray(found.shape)[:, :count]
            shape = shape / shape[np.argmax(np.abs(shape), axis=0), np.arange(count)]
            std = 1e-3 * hz
            hz = hz + std * self.rng.normal(size=count)
            ratio = ratio * (1.0 + 0.03 * self.rng.normal(size=count))
            shape = shape + 0.01 * (self.rng.normal(size=shape.shape) + 1j * self.rng.normal(size=shape.shape))
            for how in self.modal:
                hz, ratio, shape = how(k, hz, ratio, shape)
            points = [[frame, axis] for axis in self.target.axes] + [list(point) for point in second]
            shapes = [[[float(x.real), float(x.imag)] for x in column] for column in shape.T]
            tests.append({
                "kind": "modes", "name": f"p{k}", "posture": self.stated[k], "outputs": points,
                "frequency_hz": hz.tolist(), "damping_percent": (100.0 * ratio).tolist(), "shapes": shapes,
                "frequency_std_hz": (1e-3 * hz).tolist(), "damping_std_percent": (3.0 * ratio).tolist(),
                "shape_std": 0.01,
            })  # fmt: skip
        finish(folder, self.target.machine, tests, self.settings)


def machine_frames(target: Target) -> list[str]:
    """A second frame with sensors: of the first moving link behind the root."""
    return [target.machine.body[1].name]


PLANE = Target(ARM, ({"a": 0.2, "b": 0.5}, {"a": -0.3, "b": -0.9}), "tool", "xz", np.zeros(0))
SPATIAL = Target(WRIST, ({"j2": -0.6, "j3": 0.9, "j4": 0.4}, {"j1": 0.5, "j2": -0.2, "j3": 1.6, "j4": -0.8}), "tool",
                 "xyz", np.zeros(0))  # fmt: skip
MODAL = {"arm": PLANE, "wrist": SPATIAL}
OF_MACHINE = ("payload", "body mass", "centre of mass", "inertia", "rotor inertia", "joint zero", "foundation",
              "flexible", "locked", "held", "posture", "degrees", "direction", "position")  # fmt: skip


def modal_errors() -> dict[str, Callable[[Modes, int, np.random.Generator], Change]]:
    """Errors of the modal data by kind."""

    def frequency(t: Modes, size: int, rng: np.random.Generator) -> Change:
        factor = (1.01, 1.1, 2.0 * np.pi)[size]
        t.modal.append(lambda k, hz, ratio, shape: (hz * factor if k == 1 else hz, ratio, shape))
        return {"words": ["frequencies", "p1"], "size": factor}

    def damping(t: Modes, size: int, rng: np.random.Generator) -> Change:
        factor = (2.0, 0.5, 100.0)[size]
        t.modal.append(lambda k, hz, ratio, shape: (hz, np.minimum(ratio * (factor if k == 1 else 1.0), 0.9), shape))
        return {"words": ["damping", "factor", "p1"], "size": factor}

    def sign(t: Modes, size: int, rng: np.random.Generator) -> Change:
        o = int(rng.integers(len(t.target.axes)))
        t.modal.append(
            lambda k, hz, ratio, shape: (hz, ratio, reversed_row(shape, o) if k == 1 or size == 2 else shape)
        )
        words = ["sign", f"{t.target.frame} {t.target.axes[o]}"] + (["p1"] if size < 2 else [])
        return {"words": words, "size": -1.0}

    def exchanged(t: Modes, size: int, rng: np.random.Generator) -> Change:
        a, b = (int(i) for i in rng.choice(len(t.target.axes), 2, replace=False))

        def how(k: int, hz: Any, ratio: Any, shape: np.ndarray) -> tuple[Any, Any, np.ndarray]:
            order = list(range(len(shape)))
            order[a], order[b] = b, a
            return hz, ratio, shape[order] if k == 1 or size == 2 else shape

        t.modal.append(how)
        points = [f"{t.target.frame} {t.target.axes[i]}" for i in (a, b)]
        return {"words": ["exchanged", *points] + (["p1"] if size < 2 else []), "size": 0.0}

    def gain(t: Modes, size: int, rng: np.random.Generator) -> Change:
        factor, o = (1.05, 2.0, 9.80665)[size], int(rng.integers(len(t.target.axes)))

        def how(k: int, hz: Any, ratio: Any, shape: np.ndarray) -> tuple[Any, Any, np.ndarray]:
            shape = shape.copy()
            shape[o] *= factor
            return hz, ratio, shape

        t.modal.append(how)
        return {"words": ["factor", f"{t.target.frame} {t.target.axes[o]}"], "size": factor}

    return {"frequency": frequency, "damping": damping, "sign": sign, "exchanged": exchanged, "gain": gain}


def reversed_row(shape: np.ndarray, o: int) -> np.ndarray:
    """Shapes with the sign of a row reversed."""
    shape = shape.copy()
    shape[o] *= -1.0
    return shape


def modal_cases() -> Made:
    """Cases of modal tests."""
    for name, target in MODAL.items():
        makers = {k: v for k, v in frf_errors(target).items() if k in OF_MACHINE} | modal_errors()
        for kind, make in makers.items():
            for size in range(3):

                def case(folder: Path, rng: np.random.Generator, make: Any = make, size: int = size,
                         target: Target = target) -> Change:  # fmt: skip
                    tests = Modes(target, rng)
                    tests.modal = []
                    truth = make(tests, size, rng)
                    tests.write(folder)
                    return truth

                yield f"modes {kind}", name, size, case


def correct_modes(target: Target) -> Callable[[Path, np.random.Generator, bool], None]:
    """A correct modal study."""

    def make(folder: Path, rng: np.random.Generator, exact: bool) -> None:
        t = Modes(target, rng)
        t.modal = []
        if not exact:
            within(t.data, rng)
            t.turn = {axis: DEGREE * rng.normal(size=3) for axis in target.axes}
        t.write(folder)

    return make


class Deflections:
    """Deflections of a machine under loads by two sets of load cases."""

    def __init__(self, machine: jaxmb.Machine, rng: np.random.Generator) -> None:
        """Without any error."""
        self.machine, self.rng, self.data = machine, rng, plain(machine)
        model = jaxmb.build_model(machine)
        self.coordinates = jaxmb.coordinates(model)
        self.reference = np.asarray(jaxmb.reference_posture(model))
        stiffness = float(np.median(np.asarray(model.stiffness)))
        self.size = 3e-3 * stiffness
        self.q = [regular_postures(model, self.reference, rng) for _ in range(2)]
        self.load = [self.size * unit(rng.normal(size=(12, 3))) for _ in range(2)]
        self.offset = [np.zeros(len(self.coordinates)) for _ in range(2)]
        self.turn = [np.zeros(3) for _ in range(2)]
        self.lever = [np.zeros(3) for _ in range(2)]
        self.table: list[Callable[[int, dict[str, np.ndarray]], dict[str, np.ndarray]]] = []
        self.by_tool = [False, False]
        self.settings: Change = {}

    def write(self, folder: Path) -> None:
        """The study with its files."""
        model, tests = jaxmb.build_model(jaxmb.Machine.model_validate(self.data)), []
        for k in range(2):
            moved = []
            for q, force in zip(self.q[k], self.load[k], strict=True):
                there = Rotation.from_rotvec(self.turn[k]).apply(force)
                true = dict(zip(self.coordinates, q + self.offset[k], strict=True))
                full = jaxmb.posture(model, true)
                axes = np.asarray(jaxmb.frame_pose(model, full, "tool"))[:3, :3]
                wrench = np.concatenate([there, np.cross(axes @ self.lever[k], there)])
                sags = not model.loops
                moves = jaxmb.deflection(model, full, "tool", jnp.asarray(wrench), linear=not sags, weight=sags)
                found = np.asarray(moves).reshape(6)[:3]
                if self.by_tool[k]:
                    found = axes.T @ found
                moved.append(found)
            moved = np.array(moved)
            std = 0.01 * float(np.sqrt(np.mean(moved**2)))
            moved = moved + std * self.rng.normal(size=moved.shape)
            columns = {f"{name} rad": self.q[k][:, i] for i, name in enumerate(self.coordinates)}
            columns |= {f"f{axis} N": self.load[k][:, i] for i, axis in enumerate("xyz")}
            columns |= {f"d{axis} m": moved[:, i] for i, axis in enumerate("xyz")}
            for how in self.table:
                columns = how(k, dict(columns))
            rows = np.column_stack(list(columns.values()))
            text = "\n".join(",".join([f"t{i}", *(f"{x:.12g}" for x in row)]) for i, row in enumerate(rows))
            (folder / f"d{k}.csv").write_text(",".join(["test", *columns]) + "\n" + text + "\n")
            tests.append({"kind": "deflection", "name": f"d{k}", "file": f"d{k}.csv", "frame": "tool",
                          "std_mm": 1e3 * std})  # fmt: skip
        own = jaxmb.parameters(jaxmb.build_model(self.machine))
        free = {f"stiffness.{c}": {"lower": own[f"stiffness.{c}"] / 30.0, "upper": own[f"stiffness.{c}"] * 12.0}
                for c in self.coordinates}  # fmt: skip
        finish(folder, self.machine, tests, {"free": free} | self.settings)


def regular_postures(model: Any, middle: np.ndarray, rng: np.random.Generator, most: float = 1.0) -> np.ndarray:
    """Twelve postures within `most` rad of one, away from singular ones."""
    drawn = middle + most * rng.uniform(-1.0, 1.0, (120, middle.size))
    pose = jax.jit(jax.vmap(jax.jacfwd(lambda q: jaxmb.frame_pose(model, q, "tool")[:3])))
    jacobian = np.array(pose(jnp.asarray(drawn)))
    jacobian[:, :, 3] /= np.abs(jacobian[:, :, 3]).max()
    size = np.linalg.svd(jacobian.reshape(len(drawn), -1, middle.size), compute_uv=False)
    return drawn[size[:, -1] > 0.05 * most * size[:, 0]][:12]


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1."""
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def deflection_errors() -> dict[str, Callable[[Deflections, int, np.random.Generator], Change]]:
    """Errors of deflection tests by kind."""

    def scaled(columns: str, factors: tuple[float, ...], words: list[str]) -> Any:
        def make(t: Deflections, size: int, rng: np.random.Generator) -> Change:
            def how(k: int, table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
                return {name: x * factors[size] if (name[0] == columns and k == 1 and " N" in name) or (
                    name[0] == columns == "d" and k == 1) else x for name, x in table.items()}  # fmt: skip

            t.table.append(how)
            refused = ["displacement", "in mm", "d1"] if columns == "d" else [*words, "d1"]
            return {"words": [*words, "d1"], "refused": refused, "size": factors[size]}

        return make

    def sign(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        axis, of = "xyz"[int(rng.integers(3))], "df"[size % 2]
        name = f"{of}{axis} {'m' if of == 'd' else 'N'}"
        t.table.append(lambda k, table: table | ({name: -table[name]} if k == 1 or size == 2 else {}))
        what = "displacement" if of == "d" else "force"
        return {"words": ["sign", what, axis] + (["d1"] if size < 2 else []), "size": -1.0}

    def exchanged(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        a, b = (str(x) for x in rng.choice(list("xyz"), 2, replace=False))
        of = "df"[size % 2]
        one, other = (f"{of}{axis} {'m' if of == 'd' else 'N'}" for axis in (a, b))

        def how(k: int, table: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            return table | ({one: table[other], other: table[one]} if k == 1 or size == 2 else {})

        t.table.append(how)
        what = "displacement" if of == "d" else "force"
        return {"words": ["exchanged", what, a, b] + (["d1"] if size < 2 else []), "size": 0.0}

    def frame(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        t.by_tool = [size == 2, True]
        return {"words": ["axes of tool"] + (["d1"] if size < 2 else []), "size": 0.0}

    def missing(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        axis = "xyz"[int(rng.integers(3))]
        name = f"d{axis} m"
        t.table.append(lambda k, table: table | ({name: 0.0 * table[name]} if k == 1 else {}))
        return {"words": ["missing", "displacement", axis, "d1"], "size": 0.0}

    def posture(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        i, by = int(rng.integers(len(t.coordinates))), (0.5, 2.0, 10.0)[size] * DEGREE * rng.choice([-1, 1])
        t.offset[1][i] = by
        return {"words": [t.coordinates[i], "d1"], "size": by / DEGREE}

    def zero(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        i, by = int(rng.integers(len(t.coordinates))), (0.5, 2.0, 10.0)[size] * DEGREE * rng.choice([-1, 1])
        for own in t.offset:
            own[i] = by
        return {"words": ["zero", t.coordinates[i]], "without": ["d1"], "size": by / DEGREE}

    def degrees(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        if size < 2:
            name = t.coordinates[int(rng.integers(len(t.coordinates)))]
            t.table.append(lambda k, table: table | ({f"{name} rad": -table[f"{name} rad"]} if k == 1 or size else {}))
            return {"words": ["sign", name] + ([] if size else ["d1"]), "size": -1.0}
        model = jaxmb.build_model(t.machine)  # small angles, so that degrees are no impossible radians
        t.q = [regular_postures(model, 0.0 * t.reference, rng, 0.15) for _ in t.q]
        t.table.append(lambda k, table: {n: x / DEGREE if " rad" in n and k == 1 else x for n, x in table.items()})
        return {"words": ["degrees", "d1"], "size": 57.3}

    def direction(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        axis, by = int(rng.integers(3)), (2.0, 8.0, 30.0)[size]
        t.turn[1] = by * DEGREE * np.eye(3)[axis]
        return {"words": ["direction", "load", "d1", "XYZ"[axis]], "size": by}

    def lever(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        axis, by = int(rng.integers(3)), (0.02, 0.08, 0.3)[size]
        t.lever[1] = by * np.eye(3)[axis]
        return {"words": ["lever", "d1", "xyz"[axis]], "size": by}

    def tool(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        axis, by = int(rng.integers(3)), (0.02, 0.08, 0.3)[size]
        next(f for f in t.data["frame"] if f["name"] == "tool")["origin"]["xyz"][axis] += by
        return {"words": ["position", "tool", "xyz"[axis]], "size": by}

    def spring(t: Deflections, size: int, rng: np.random.Generator) -> Change:
        names = [body["name"] for body in t.data["body"]]
        name = str(rng.choice(names[1:])) if size else names[0]
        joint = part(t.data, name)["joint"][0]
        own = np.abs(joint.get("axis", [0.0, 0.0, 1.0]))
        axis = int(rng.choice(np.flatnonzero(own < 0.5)))
        k = float(np.median(np.asarray(jaxmb.build_model(t.machine).stiffness))) * (5.0, 3.0, 1.0)[size]
        elastic_before(t.data, name, np.eye(3)[axis].tolist(), k, 0.0)
        return {"words": elastic_words(t.data, name, axis), "size": k}

    return {
        "unit": scaled("d", (1e-3, 1e3, 0.5), ["displacements", "factor"]),
        "load": scaled("f", (1.1, 1.0 / 9.80665, 4.4482), ["loads", "factor"]), "sign": sign, "exchanged": exchanged,
        "axes": frame, "missing": missing, "posture": posture, "joint zero": zero, "degrees": degrees,
        "direction": direction, "lever": lever, "tool": tool, "spring": spring,
    }  # fmt: skip


DEFLECTED = {"kr240": jaxmb.load_machine("kuka-kr240"), "wrist": WRIST}


def correct_deflections(machine: jaxmb.Machine) -> Callable[[Path, np.random.Generator, bool], None]:
    """A correct deflection study."""

    def make(folder: Path, rng: np.random.Generator, exact: bool) -> None:
        t = Deflections(machine, rng)
        if not exact:
            zeros = 0.05 * DEGREE * rng.normal(size=len(t.coordinates))
            t.offset = [zeros, zeros]
            t.turn = [0.3 * DEGREE * rng.normal(size=3) for _ in range(2)]
            t.lever = [2e-3 * rng.normal(size=3) for _ in range(2)]
            factors = 1.0 + 0.005 * rng.normal(size=2)
            t.load = [factor * load for factor, load in zip(factors, t.load, strict=True)]
            t.table.append(lambda k, table: {n: x / factors[k] if " N" in n else x for n, x in table.items()})
        t.write(folder)

    return make


class Torques:
    """Torques of a machine along a motion, its damping, friction and the mass of its last link free."""

    def __init__(self, machine: jaxmb.Machine, rng: np.random.Generator) -> None:
        """Without any error."""
        self.machine, self.rng, self.data = machine, rng, plain(machine)
        for body in self.data["body"]:
            for joint in body["joint"]:
                joint.pop("stiffness", None)
        self.stated = jaxmb.Machine.model_validate(self.data)
        self.names = jaxmb.coordinates(jaxmb.build_model(self.stated))
        self.offset = np.zeros(len(self.names))
        self.late = np.zeros(len(self.names))
        self.extra: list[Callable[[np.ndarray, np.ndarray], np.ndarray]] = []
        self.columns: list[Callable[[dict[str, np.ndarray]], dict[str, np.ndarray]]] = []

    def recorded(self, folder: Path, seed: int, wrong: bool) -> Change:
        """A test with its file, of the motion of a seed, with the errors or without."""
        seconds, n = np.arange(0.0, 8.0, 0.01), len(self.names)
        fixed = np.random.default_rng(seed)
        size, rate = fixed.uniform(0.3, 0.8, (n, 3)), 2.0 * np.pi * np.array([0.2, 0.45, 0.8]) * np.ones((n, 1))
        phase = fixed.uniform(0.0, 6.28, (n, 3))
        turn = rate * seconds[:, None, None] + phase
        size = size / rate * rate[:, :1]
        q = np.sum(size * np.sin(turn), axis=2)
        v, a = np.sum(size * rate * np.cos(turn), axis=2), -np.sum(size * rate**2 * np.sin(turn), axis=2)
        model = jaxmb.build_model(jaxmb.Machine.model_validate(self.data) if wrong else self.stated)
        effort = jax.jit(jax.vmap(lambda *motion: jaxmb.actuator_effort(model, *motion)))
        torque = np.array(effort(q + self.offset * wrong, v, a))
        for how in self.extra if wrong else ():
            torque = how(torque, v)
        std = 0.01 * np.sqrt(np.mean(torque**2, axis=0))
        late = self.late * wrong
        torque = np.stack([np.interp(seconds - d, seconds, torque[:, k]) for k, d in enumerate(late)], axis=1)
        torque = torque + std * self.rng.normal(size=torque.shape)
        table = {"time_s": seconds} | {name: q[:, k] for k, name in enumerate(self.names)}
        table |= {f"{name}.velocity": v[:, k] for k, name in enumerate(self.names)}
        table |= {f"{name}.acceleration": a[:, k] for k, name in enumerate(self.names)}
        table |= {f"{name}.torque": torque[:, k] for k, name in enumerate(self.names)}
        for how in self.columns if wrong else ():
            table = how(dict(table))
        stated = {name: 0.01 * float(np.sqrt(np.mean(table[f"{name}.torque"] ** 2))) for name in self.names}
        name = f"m{seed - MOTION}" if self.several else "m"
        np.savetxt(folder / f"{name}.csv", np.column_stack(list(table.values())), "%.9g", ",", header=",".join(table),
                   comments="")  # fmt: skip
        return {"kind": "torque", "name": name, "file": f"{name}.csv"} | (
            {} if self.several else {"torque_std": stated}
        )

    several = False

    def tests(self, folder: Path) -> list[Change]:
        """The tests of the study."""
        return [self.recorded(folder, MOTION, True)]

    def write(self, folder: Path) -> None:
        """The study with its files."""
        tests = self.tests(folder)
        last = self.machine.body[-1].name
        free: Change = {f"first_moment.{last}.{axis}": {"lower": -20.0, "upper": 20.0} for axis in "xz"}
        free["damping.*"] = {"lower": 0.0, "upper": 200.0, "scale": "linear"}
        if any(joint.friction for body in self.machine.body for joint in body.joint):
            free["friction.*"] = {"lower": 0.0, "upper": 100.0, "scale": "linear"}
        finish(folder, self.stated, tests, {"free": free})
        # masses and centres of mass that are off change free first moments
        machine = self.stated if self.several else jaxmb.Machine.model_validate(self.data)
        (folder / "values.json").write_text(json.dumps(jaxmb.parameters(jaxmb.build_model(machine))))


MOTION = 5
"""Seed of the first motion."""


class SeveralTorques(Torques):
    """Three tests whose noise is estimated, of which the second, m1, is wrong."""

    several = True

    def tests(self, folder: Path) -> list[Change]:
        """The tests of the study."""
        return [self.recorded(folder, MOTION + k, k == 1) for k in range(3)]


def one_test_errors() -> dict[str, Callable[[Torques, int, np.random.Generator], Change]]:
    """Errors of one of several torque tests by kind."""
    kinds = ("factor", "sign", "exchanged", "delay", "degrees", "joint zero", "payload")
    errors = {kind: make for kind, make in torque_errors().items() if kind in kinds}

    def sampling(t: Torques, size: int, rng: np.random.Generator) -> Change:
        by = (1.02, 1.1, 1.5)[size]
        t.columns.append(lambda table: {
            name: column * by if name == "time_s" else column / by ** name.count(".velocity")
            / by ** (2 * name.count(".acceleration")) for name, column in table.items()
        })  # fmt: skip
        return {"words": ["sampling rate"], "size": by}

    def losses(t: Torques, size: int, rng: np.random.Generator) -> Change:
        by = (1.2, 1.6, 3.0)[size]
        for body in t.data["body"]:
            for joint in body["joint"]:
                joint |= {key: by * joint[key] for key in ("friction", "damping") if key in joint}
        return {"words": ["friction", "times as large"], "size": by}

    def of_test(make: Any) -> Any:
        def wrong(t: Torques, size: int, rng: np.random.Generator) -> Change:
            truth = make(t, size, rng)
            return truth | {"words": [*truth["words"], "'m1'"]}

        return wrong

    return {kind: of_test(make) for kind, make in (errors | {"sampling": sampling, "losses": losses}).items()}


def torque_errors() -> dict[str, Callable[[Torques, int, np.random.Generator], Change]]:
    """Errors of torque tests by kind."""

    def column(t: Torques, rng: np.random.Generator) -> str:
        return str(rng.choice(t.names))

    def factor(t: Torques, size: int, rng: np.random.Generator) -> Change:
        by, name = (1.15, 2.0, 9.80665)[size] ** rng.choice([-1, 1]), column(t, rng)
        t.columns.append(lambda table: table | {f"{name}.torque": by * table[f"{name}.torque"]})
        return {"words": ["factor", "torque", name], "size": by}

    def sign(t: Torques, size: int, rng: np.random.Generator) -> Change:
        name = column(t, rng)
        if size == 1:
            angle = [name, f"{name}.velocity", f"{name}.acceleration"]
            t.columns.append(lambda table: table | {key: -table[key] for key in angle})
            return {"words": ["sign", "angle", name], "size": -1.0}
        t.columns.append(lambda table: table | {f"{name}.torque": -table[f"{name}.torque"]})
        return {"words": ["sign", "torque", name], "size": -1.0}

    def exchanged(t: Torques, size: int, rng: np.random.Generator) -> Change:
        a, b = (str(x) for x in rng.choice(t.names, 2, replace=False))
        t.columns.append(
            lambda table: table | {f"{a}.torque": table[f"{b}.torque"], f"{b}.torque": table[f"{a}.torque"]}
        )
        return {"words": ["exchanged", "torque", a, b], "size": 0.0}

    def delay(t: Torques, size: int, rng: np.random.Generator) -> Change:
        late = (2e-3, 8e-3, 4e-2)[size]
        if size == 1:
            i = int(rng.integers(len(t.names)))
            t.late[i] = late
            return {"words": ["late", t.names[i]], "size": late}
        t.late[:] = late
        return {"words": ["late"], "without": [f"of {name}" for name in t.names], "size": late}

    def saturation(t: Torques, size: int, rng: np.random.Generator) -> Change:
        i, share = int(rng.integers(len(t.names))), (0.85, 0.7, 0.4)[size]

        def how(torque: np.ndarray, v: np.ndarray) -> np.ndarray:
            most = share * np.abs(torque[:, i]).max()
            torque[:, i] = np.clip(torque[:, i], -most, most)
            return torque

        t.extra.append(how)
        return {"words": ["saturat", t.names[i]], "size": share}

    def degrees(t: Torques, size: int, rng: np.random.Generator) -> Change:
        name = column(t, rng)
        keys = [name, f"{name}.velocity", f"{name}.acceleration"][: 3 if size else 1]
        t.columns.append(lambda table: table | {key: table[key] / DEGREE for key in keys})
        return {"words": ["deg", name], "size": 57.3}

    def zero(t: Torques, size: int, rng: np.random.Generator) -> Change:
        i, by = int(rng.integers(len(t.names))), (0.5, 2.0, 10.0)[size] * DEGREE * rng.choice([-1, 1])
        t.offset[i] = by
        return {"words": ["zero", t.names[i]], "size": by / DEGREE}

    def tilt(t: Torques, size: int, rng: np.random.Generator) -> Change:
        axis, by = int(rng.integers(2)), (1.0, 4.0, 16.0)[size]
        turn = Rotation.from_rotvec(by * DEGREE * np.eye(3)[axis])
        t.data["gravity"] = turn.apply([0.0, 0.0, -9.81]).tolist()
        return {"words": ["tilt", "XY"[axis]], "size": by}

    def payload(t: Torques, size: int, rng: np.random.Generator) -> Change:
        mass = (0.5, 2.0, 8.0)[size]
        t.data["payload"] = [{"name": "load", "frame": "tool", "mass": mass}]
        return {"words": ["payload", "tool"], "size": mass}

    def body_mass(t: Torques, size: int, rng: np.random.Generator) -> Change:
        body = t.data["body"][-2]
        by = 1.0 + (0.1, 0.3, 0.9)[size]
        body["mass"] *= by
        body["inertia_products"] = {axis: by * value for axis, value in body["inertia_products"].items()}
        return {"words": ["mass", body["name"]], "without": ["centre"], "size": by}

    def friction(t: Torques, size: int, rng: np.random.Generator) -> Change:
        i = int(rng.integers(len(t.names)))

        def how(torque: np.ndarray, v: np.ndarray) -> np.ndarray:
            level = np.sqrt(np.mean(torque[:, i] ** 2))
            speed = v[:, i] / np.abs(v[:, i]).max()
            if size == 0:
                torque[:, i] += 0.1 * level * speed**3
            else:
                slow = np.exp(-((speed / 0.1) ** 2)) * np.sign(speed)
                torque[:, i] += level * (0.2 if size == 1 else 0.6) * slow
            return torque

        t.extra.append(how)
        return {"words": ["friction", t.names[i]], "size": 0.0}

    return {
        "factor": factor, "sign": sign, "exchanged": exchanged, "delay": delay, "saturation": saturation,
        "degrees": degrees, "joint zero": zero, "tilt": tilt, "payload": payload, "body mass": body_mass,
        "friction": friction,
    }  # fmt: skip


class Poses:
    """Positions of two points of a machine under its weight, from two stations."""

    points = ("tool", "stick")

    def __init__(self, machine: jaxmb.Machine, rng: np.random.Generator) -> None:
        """Without any error."""
        self.machine, self.rng, self.data = machine, rng, plain(machine)
        self.names = jaxmb.coordinates(jaxmb.build_model(machine))
        low, high = [-2.5, -1.5, -1.5, -2.5], [2.5, 0.5, 2.0, 2.5]
        self.q = rng.uniform(low, high, size=(40, len(self.names)))
        self.true_q = self.q.copy()
        self.station = np.arange(40) % 2
        self.heads = list[str](self.points)
        self.tables: list[Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]] = []

    def write(self, folder: Path) -> None:
        """The study with its files."""
        model = jaxmb.build_model(jaxmb.Machine.model_validate(self.data))
        turns = Rotation.from_rotvec(self.rng.uniform(-0.2, 0.2, size=(2, 3)) + np.array([0.0, 0.0, 2.0]))
        places, q, seen = self.rng.uniform(-3.0, 3.0, size=(2, 3)), self.q, []
        for name in self.points:
            there = [np.asarray(actual_pose(model, jnp.asarray(row), name))[:3, 3] for row in self.true_q]
            seen.append(
                Rotation.from_matrix(turns.as_matrix()[self.station])
                .inv()
                .apply(np.array(there) - places[self.station])
            )
        points = np.stack(seen, axis=1) + 5e-5 * self.rng.normal(size=(40, 2, 3))
        for how in self.tables:
            q, points = how(q, points)
        heads = [*self.names, *(f"{name}.{axis}" for name in self.heads for axis in "xyz"), "station"]
        rows = [",".join([*(f"{x:.17g}" for x in (*row, *there.ravel())), "AB"[k]])
                for row, there, k in zip(q, points, self.station, strict=True)]  # fmt: skip
        (folder / "p.csv").write_text("\n".join([",".join(heads), *rows]) + "\n")
        free = {"stiffness.j[23]": {"lower": 1e4, "upper": 1e7}, "zero.j[234]": {"lower": -0.05, "upper": 0.05}}
        test = {"kind": "pose", "name": "t", "file": "p.csv", "std_mm": 0.05}
        finish(folder, self.machine, [test], {"free": free})


def pose_errors() -> dict[str, Callable[[Poses, int, np.random.Generator], Change]]:
    """Errors of pose tests by kind."""

    def changed(words: list[str], how: Any) -> Callable[[Poses, int, np.random.Generator], Change]:
        def make(t: Poses, size: int, rng: np.random.Generator) -> Change:
            t.tables.append(how)
            return {"words": words, "size": size}

        return make

    def exchanged_points(t: Poses, size: int, rng: np.random.Generator) -> Change:
        own = t.station >= (0, 1, 1)[size]
        t.tables.append(lambda q, p: (q, np.where(own[:, None, None], p[:, ::-1], p)))
        return {"words": ["exchanged points", *([] if size == 0 else ["station B"])], "size": size}

    def sign(t: Poses, size: int, rng: np.random.Generator) -> Change:
        k = 1 + size
        t.tables.append(lambda q, p: (q * np.where(np.arange(q.shape[1]) == k, -1.0, 1.0), p))
        return {"words": ["sign", t.names[k]], "size": -1.0}

    def exchanged(t: Poses, size: int, rng: np.random.Generator) -> Change:
        i, k = ((1, 2), (2, 3), (0, 3))[size]
        order = np.arange(4)
        order[[i, k]] = k, i
        t.tables.append(lambda q, p: (q[:, order], p))
        return {"words": ["exchanged", t.names[i], t.names[k]], "size": 0.0}

    def ratio(t: Poses, size: int, rng: np.random.Generator) -> Change:
        k, by = int(rng.integers(4)), (5e-4, 2e-3, 2e-2)[size]
        t.true_q[:, k] *= 1.0 + by
        return {"words": ["gear ratio", t.names[k]], "size": by}

    def backlash(t: Poses, size: int, rng: np.random.Generator) -> Change:
        k, by = 1 + int(rng.integers(2)), (5e-4, 1.5e-3, 5e-3)[size]
        t.true_q[1:, k] -= 0.5 * by * np.sign(np.diff(t.q[:, k]))
        return {"words": ["backlash", t.names[k]], "size": by}

    def length(t: Poses, size: int, rng: np.random.Generator) -> Change:
        name, by = str(rng.choice(["stick", "hand"])), (1e-3, 4e-3, 2e-2)[size]
        axis = 0 if name == "stick" else 1  # across both axes, and not that of a zero
        part(t.data, name)["origin"]["xyz"][axis] += by
        return {"words": ["axis", part(t.data, name)["joint"][0]["name"], "along " + "xyz"[axis]], "size": by}

    def direction(t: Poses, size: int, rng: np.random.Generator) -> Change:
        name, by = str(rng.choice(["boom", "stick"])), (0.1, 0.4, 2.0)[size]
        part(t.data, name)["origin"]["rpy"] = [by * DEGREE, 0.0, 0.0]
        return {"words": ["axis", part(t.data, name)["joint"][0]["name"], "about x"], "size": by}

    def tool(t: Poses, size: int, rng: np.random.Generator) -> Change:
        axis, by = int(rng.integers(3)), (5e-3, 2e-2, 0.1)[size]
        t.data["frame"][0]["origin"]["xyz"][axis] += by
        return {"words": ["position", "tool", "along " + "xyz"[axis]], "size": by}

    def payload(t: Poses, size: int, rng: np.random.Generator) -> Change:
        mass = (5.0, 20.0, 60.0)[size]
        t.data["payload"] = [{"name": "load", "frame": "tool", "mass": mass}]
        return {"words": ["payload"], "size": mass}

    def tilt(t: Poses, size: int, rng: np.random.Generator) -> Change:
        axis, by = int(rng.integers(2)), (2.0, 8.0, 30.0)[size]
        t.data["gravity"] = Rotation.from_rotvec(by * DEGREE * np.eye(3)[axis]).apply([0.0, 0.0, -9.81]).tolist()
        return {"words": ["tilt", "XY"[axis]], "size": by}

    def outlier(t: Poses, size: int, rng: np.random.Generator) -> Change:
        row, by = int(rng.integers(40)), (1e-3, 5e-3, 5e-2)[size]

        def how(q: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            p[row, 0] += by * np.eye(3)[row % 3]
            return q, p

        t.tables.append(how)
        return {"words": ["excluding", f"line {row + 2}"], "size": by}

    def frame(t: Poses, size: int, rng: np.random.Generator) -> Change:
        t.heads[1 if size else 0] = ("hand", "boom", "hand")[size]
        return {"words": [("hand", "boom", "hand")[size]], "size": 0.0}

    return {
        "mirror": changed(["sign of x, y or z"], lambda q, p: (q, p * [1.0, -1.0, 1.0])),
        "units": changed(["lengths"], lambda q, p: (q, 1e-3 * p)),
        "points": exchanged_points, "sign": sign, "exchanged": exchanged, "gear ratio": ratio, "backlash": backlash,
        "length": length, "direction": direction, "tool": tool, "payload": payload, "tilt": tilt, "outlier": outlier,
        "frame": frame,
    }  # fmt: skip


POSED = {"wrist": WRIST}


def pose_cases() -> Made:
    """Cases of pose tests."""
    return cases_of("pose", POSED, Poses, pose_errors())


def correct_poses(machine: jaxmb.Machine) -> Callable[[Path, np.random.Generator, bool], None]:
    """A correct pose study."""

    def make(folder: Path, rng: np.random.Generator, exact: bool) -> None:
        t = Poses(machine, rng)
        if not exact:
            within(t.data, rng)
            t.true_q = t.q * (1.0 + 1e-4 * rng.normal(size=4)) + 0.05 * DEGREE * rng.normal(size=4)
            for body in t.data["body"][1:]:
                across = 1.0 - np.array(body["joint"][0]["axis"])
                body["origin"]["xyz"] = (np.array(body["origin"]["xyz"]) + 2e-4 * across * rng.normal(size=3)).tolist()
                body["origin"]["rpy"] = (0.02 * DEGREE * across * rng.normal(size=3)).tolist()
            own = t.data["frame"][0]["origin"]
            own["xyz"] = (np.array(own["xyz"]) + 1e-3 * rng.normal(size=3)).tolist()
        t.write(folder)

    return make


MOVED = {"arm": ARM, "wrist": WRIST}


def cases_of(part: str, machines: dict[str, jaxmb.Machine], tests_of: Any, errors: dict[str, Any]) -> Made:
    """Cases of one kind of test: each error in three sizes on each machine."""
    for name, machine in machines.items():
        for kind, make in errors.items():
            for size in range(3):

                def case(folder: Path, rng: np.random.Generator, make: Any = make, size: int = size,
                         machine: jaxmb.Machine = machine) -> Change:  # fmt: skip
                    tests = tests_of(machine, rng)
                    truth = make(tests, size, rng)
                    tests.write(folder)
                    return truth

                yield f"{part} {kind}", name, size, case


def deflection_cases() -> Made:
    """Cases of deflection tests."""
    return cases_of("deflection", DEFLECTED, Deflections, deflection_errors())


def torque_cases() -> Made:
    """Cases of torque tests."""
    yield from cases_of("torque", MOVED, Torques, torque_errors())
    yield from cases_of("one-torque", MOVED, SeveralTorques, one_test_errors())


def correct_torques(machine: jaxmb.Machine) -> Callable[[Path, np.random.Generator, bool], None]:
    """A correct torque study."""

    def make(folder: Path, rng: np.random.Generator, exact: bool) -> None:
        t = Torques(machine, rng)
        if not exact:
            within(t.data, rng)
            t.offset = 0.05 * DEGREE * rng.normal(size=len(t.names))
            t.data["gravity"] = Rotation.from_rotvec([*(0.2 * DEGREE * rng.normal(size=2)), 0.0]).apply(
                [0.0, 0.0, -9.81]).tolist()  # fmt: skip
            gains = 1.0 + 0.02 * rng.normal(size=len(t.names))
            t.late[:] = 1e-4 * rng.normal()
            t.columns.append(lambda table: table | {f"{n}.torque": g * table[f"{n}.torque"]
                                                    for n, g in zip(t.names, gains, strict=True)})  # fmt: skip
        t.write(folder)

    return make


CORRECT = [
    *(("modes", name, correct_modes(target)) for name, target in MODAL.items()),
    *(("deflection", name, correct_deflections(machine)) for name, machine in DEFLECTED.items()),
    *(("torque", name, correct_torques(machine)) for name, machine in MOVED.items()),
    *(("pose", name, correct_poses(machine)) for name, machine in POSED.items()),
]
