"""How often combined 95 % intervals hold the true value where machine and tests are described with errors.

    python experiments/uncertainty/run.py [--draws 10] [--first 0] [--out results/uncertainty] [--scale 1.0] [CASE ...]

Each study has one kind of error, drawn anew from its stated tolerance (or all kinds, from the default tolerances),
beside its noise. Data are made by the public functions of jaxmb on a machine that has the error, and written to files;
the study that reads them describes the nominal machine. Cases: FRFs and modes of the 3R manipulator of Huynh et al.
2020, section 4.1, also with its deflections in one study; FRFs of two flexible links; FRFs and deflections of a
five-bar linkage; deflections of the KUKA KR240; torques of a plane arm; poses of an arm under its weight. With --scale
errors are so many times larger than their tolerance: then each study has a doubt or intervals that hold the values.
With --growing each draw of errors is scaled from a quarter to seven tolerances by steps of 1.4, the noise the same: the
largest factor between the standard deviations of neighbouring studies, where a hypothesis is accepted or rejected or
the effect of errors stops to count as linear, and from which size on the data count as not followed.
"""

import argparse
import contextlib
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from scipy.spatial.transform import Rotation

import jaxmb
from jaxmb.deflections import actual_pose
from jaxmb.results import versions
from jaxmb.studies import make_study

DEGREE = np.pi / 180.0
DEFAULTS = {
    "mass_percent": 3.0, "center_of_mass_mm": 5.0, "inertia_percent": 10.0, "frame_mm": 1.0, "tilt_deg": 0.2,
    "joint_zero_deg": 0.05, "posture_deg": 0.02, "sensor_direction_deg": 1.0, "sensor_position_mm": 2.0,
    "gain_percent": 1.0, "delay_us": 10.0, "time_base_ppm": 20.0, "load_percent": 0.5, "load_direction_deg": 0.3,
    "load_lever_mm": 2.0, "torque_percent": 2.0, "torque_delay_ms": 0.1, "modulus_percent": 3.0, "origin_mm": 0.2,
    "origin_deg": 0.02, "gear_ratio_percent": 0.01, "device_scale_ppm": 5.0,
}  # fmt: skip


Described = tuple[dict[str, Any], dict[str, float], Any]


class Errors:
    """Errors of one draw: normal variables times their tolerance."""

    def __init__(self, kind: str, rng: np.random.Generator, scale: float) -> None:
        """All kinds for the kind "all"."""
        self.kind, self.rng, self.scale = kind, rng, scale
        self.machine: jaxmb.Machine | None = None
        self._zeros: np.ndarray | None = None

    def of(self, kind: str, *shape: int) -> np.ndarray:
        """Errors of a kind in the unit of its tolerance; 0 for other kinds."""
        size = self.scale * DEFAULTS[kind] if self.kind in (kind, "all") else 0.0
        return size * self.rng.normal(size=shape)

    def zeros(self, count: int) -> np.ndarray:
        """Errors of the zeros of joints, rad, the same in all tests."""
        if self._zeros is None:
            self._zeros = DEGREE * self.of("joint_zero_deg", count)
        return self._zeros


def true_machine(nominal: jaxmb.Machine, errors: Errors) -> jaxmb.Machine:
    """The machine with errors of masses, centres of mass, inertias, named frames, the direction of gravity and axes
    along coordinate axes of their bodies, the same in all tests; drawn again where an inertia is physically
    inconsistent."""
    while errors.machine is None:
        with contextlib.suppress(ValueError):
            errors.machine = _drawn_machine(nominal, errors)
    return errors.machine


def _drawn_machine(nominal: jaxmb.Machine, errors: Errors) -> jaxmb.Machine:
    data = nominal.model_dump()
    for body in (*data["body"], *data["payload"]):
        if not body["mass"]:
            continue
        factor = 1.0 + 0.01 * float(errors.of("mass_percent"))
        body["mass"] *= factor
        centre = np.array(body["center_of_mass"]) + 1e-3 * errors.of("center_of_mass_mm", 3)
        inertia = np.array(nominal_inertia(nominal, body["name"])) * factor
        inertia += np.diag(np.diag(inertia) * 0.01 * errors.of("inertia_percent", 3))
        body |= {"center_of_mass": centre.tolist(), "inertia_tensor": inertia.tolist(), "inertia_products": None}
    for beam in data["beam"]:
        beam["density"] *= 1.0 + 0.01 * float(errors.of("mass_percent"))
        beam["young_modulus"] *= 1.0 + 0.01 * float(errors.of("modulus_percent"))
        beam["shear_modulus"] *= 1.0 + 0.01 * float(errors.of("modulus_percent"))
    pins = {loop[end] for loop in data["loop"] for end in ("frame_a", "frame_b")}
    for frame in data["frame"]:
        pose, kind = frame["origin"], "origin_mm" if frame["name"] in pins else "frame_mm"
        turn = Rotation.from_euler("xyz", pose.get("rpy") or [0.0, 0.0, 0.0])
        free = np.array([1.0, 1.0, frame["name"] not in pins])  # linkages remain plane
        pose["xyz"] = (np.array(pose["xyz"]) + turn.apply(1e-3 * free * errors.of(kind, 3))).tolist()
    for body in data["body"]:
        if not body["joint"] or (body["parent"] == "ground" and not pins):
            continue
        own = Rotation.from_euler("xyz", body["origin"].get("rpy") or [0.0, 0.0, 0.0])
        across = 1.0 - np.abs(body["joint"][0]["axis"])
        place = own.apply(1e-3 * across * errors.of("origin_mm", 3))
        turn = own * Rotation.from_rotvec(DEGREE * across * errors.of("origin_deg", 3) * (not pins))
        origin = {"xyz": (np.array(body["origin"]["xyz"]) + place).tolist(), "rpy": turn.as_euler("xyz").tolist()}
        body["origin"] = origin
    turn = np.append(DEGREE * errors.of("tilt_deg", 2), 0.0)
    data["gravity"] = Rotation.from_rotvec(turn).apply(data["gravity"]).tolist()
    return jaxmb.Machine.model_validate(data)


def nominal_inertia(machine: jaxmb.Machine, name: str) -> np.ndarray:
    """Inertia of a body about its centre of mass."""
    return next(part for part in (*machine.body, *machine.payload) if part.name == name).central_inertia


def with_sensor_frames(
    machine: jaxmb.Machine, frame: str, errors: Errors, axes: str
) -> tuple[jaxmb.Machine, list, list]:
    """The machine with a frame of its own, turned and displaced, for each sensor and hammer direction at a frame."""
    data = machine.model_dump()
    (base,) = (f for f in data["frame"] if f["name"] == frame)
    turn = Rotation.from_euler("xyz", base["origin"].get("rpy") or [0.0, 0.0, 0.0])
    ends: list[list[tuple[str, str]]] = [[], []]
    for which, end in enumerate(ends):
        for axis in axes:
            own = Rotation.from_rotvec(DEGREE * errors.of("sensor_direction_deg", 3))
            place = np.array(base["origin"]["xyz"]) + turn.apply(1e-3 * errors.of("sensor_position_mm", 3))
            pose = {"xyz": place.tolist(), "rpy": (turn * own).as_euler("xyz").tolist()}
            data["frame"] = (*data["frame"], {"name": f"s{which}{axis}", "body": base["body"], "origin": pose})
            end.append((f"s{which}{axis}", axis))
    return jaxmb.Machine.model_validate(data), ends[0], ends[1]


class Case(NamedTuple):
    """A case: makes the description of a study, its true values and the true machine from a folder, errors and a random
    generator."""

    kinds: tuple[str, ...]
    study: Callable[[Path, Errors, np.random.Generator], Described]


def tilted_posture(model: Any, posture: dict[str, float], errors: Errors, of_test: bool = True) -> np.ndarray:
    """True coordinates at a stated posture: errors of zeros, and of the posture itself."""
    nominal = np.array(jaxmb.posture(model, posture))
    turn = errors.zeros(nominal.size)
    if of_test:
        turn = turn + DEGREE * errors.of("posture_deg", nominal.size)
    if not model.loops:
        return nominal + turn
    names = jaxmb.coordinates(model)
    there = {name: float((nominal + turn)[names.index(name)]) for name in jaxmb.independent_coordinates(model)}
    return np.array(jaxmb.close_loops(model, there, near=jnp.asarray(nominal)))


def frfs(
    nominal: jaxmb.Machine, posture: dict[str, float], lines: np.ndarray, free: dict[str, Any], noise: float,
    axes: str = "xyz",
) -> Callable:  # fmt: skip
    """FRFs at the tool of a machine, between a sensor and a hammer along each of some axes."""
    truth_of = jaxmb.parameters(jaxmb.build_model(nominal))

    def study(folder: Path, errors: Errors, rng: np.random.Generator) -> Described:
        machine, outputs, inputs = with_sensor_frames(true_machine(nominal, errors), "tool", errors, axes)
        model = jaxmb.build_model(machine)
        q = tilted_posture(model, posture, errors)
        f = lines * (1.0 + 1e-6 * float(errors.of("time_base_ppm")))
        h = np.asarray(jaxmb.frf(model, jnp.asarray(q), jnp.asarray(f), outputs=outputs, inputs=inputs))
        gain, of_force = (1.0 + 0.01 * errors.of("gain_percent", len(axes)) for _ in range(2))
        h = h * gain[:, None] / of_force
        h = h * np.exp(-2j * np.pi * lines * 1e-6 * float(errors.of("delay_us")))[:, None, None]
        h = h * np.exp(noise * (rng.normal(size=h.shape) + 1j * rng.normal(size=h.shape)))
        names = tuple(f"tool {axis}" for axis in axes)
        jaxmb.write_frf(folder / "h.npz", jaxmb.FrfSet(lines, h, "accelerance", names, names))
        jaxmb.write_machine(nominal, folder / "machine.toml")
        ends = {end: [["tool", axes]] for end in ("outputs", "inputs")}
        test = {"kind": "frf", "file": "h.npz", "posture": posture, "noise_log_std": noise} | ends
        return {"machine": "machine.toml", "test": [test], "free": free}, truth_of, model

    return study


def modes(nominal: jaxmb.Machine, posture: dict[str, float], free: dict[str, Any]) -> Callable:
    """Natural frequencies and damping ratios of a machine at two postures."""
    truth_of = jaxmb.parameters(jaxmb.build_model(nominal))

    def study(folder: Path, errors: Errors, rng: np.random.Generator) -> Described:
        model = jaxmb.build_model(true_machine(nominal, errors))
        jaxmb.write_machine(nominal, folder / "machine.toml")
        zero = errors.zeros(len(jaxmb.coordinates(model)))
        factor, tests = 1.0 + 1e-6 * float(errors.of("time_base_ppm")), []
        for number, there in enumerate((posture, {k: -0.5 * v for k, v in posture.items()})):
            q = np.array(jaxmb.posture(model, there)) + zero + DEGREE * errors.of("posture_deg", zero.size)
            found = jaxmb.modes(jaxmb.linearize(model, jnp.asarray(q)))
            hz = np.asarray(found.damped_frequency_hz) / factor + 0.02 * rng.normal(size=zero.size)
            percent = 100.0 * np.asarray(found.damping_ratio) + 0.05 * rng.normal(size=zero.size)
            tests.append({
                "kind": "modes", "name": f"m{number}", "posture": there, "frequency_hz": hz.tolist(),
                "damping_percent": percent.tolist(), "frequency_std_hz": [0.02], "damping_std_percent": [0.05],
            })  # fmt: skip
        return {"machine": "machine.toml", "test": tests, "free": free}, truth_of, model

    return study


def deflections(nominal: jaxmb.Machine, free: dict[str, Any], spread: float = 1.0, force: float = 800.0) -> Callable:
    """Translations of the tool of a machine under loads in twelve postures about the reference, by a tracker; of an
    open one from the equilibrium under its weight."""
    known = jaxmb.build_model(nominal)
    truth_of, coordinates = jaxmb.parameters(known), jaxmb.independent_coordinates(known)
    fixed = np.random.default_rng(7)
    of_all = np.array([jaxmb.reference_posture(known)[jaxmb.coordinates(known).index(own)] for own in coordinates])
    postures = of_all + fixed.uniform(-spread, spread, size=(12, len(coordinates)))
    loads = fixed.normal(size=(12, 3)) * force

    def posed(model: Any, row: np.ndarray) -> Any:
        return jaxmb.close_loops(model, dict(zip(coordinates, row.tolist(), strict=True)))

    def study(folder: Path, errors: Errors, rng: np.random.Generator) -> Described:
        model = jaxmb.build_model(true_machine(nominal, errors))
        zero = errors.zeros(len(coordinates))
        jaxmb.write_machine(nominal, folder / "machine.toml")
        turn = Rotation.from_rotvec(DEGREE * errors.of("load_direction_deg", 3))
        factor, lever = 1.0 + 0.01 * float(errors.of("load_percent")), 1e-3 * errors.of("load_lever_mm", 3)
        rows = []
        for row, load in zip(postures, loads, strict=True):
            there, q = factor * turn.apply(load), jnp.asarray(posed(model, row + zero))
            axes = np.asarray(jaxmb.frame_pose(model, q, "tool"))[:3, :3]
            wrench = np.concatenate([there, np.cross(axes @ lever, there)])
            sags = not model.loops
            moved = np.asarray(jaxmb.deflection(model, q, "tool", jnp.asarray(wrench), linear=not sags, weight=sags))
            moved = moved[..., :3]
            rows.append([*row, *load, *(moved.ravel() + 2e-5 * rng.normal(size=3))])
        names = ["test", *(f"{name} rad" for name in coordinates), "fx N", "fy N", "fz N", "dx m", "dy m", "dz m"]
        text = "\n".join(",".join([f"t{k}", *(f"{x:.17g}" for x in row)]) for k, row in enumerate(rows))
        (folder / "d.csv").write_text(",".join(names) + "\n" + text + "\n")
        test = {"kind": "deflection", "file": "d.csv", "frame": "tool", "std_mm": 0.02}
        return {"machine": "machine.toml", "test": [test], "free": free}, truth_of, model

    return study


def together(*studies: Callable) -> Callable:
    """Tests of several studies of one machine in one study, with the free parameters of the first."""

    def study(folder: Path, errors: Errors, rng: np.random.Generator) -> Described:
        (first, *own), *others = (each(folder, errors, rng) for each in studies)
        return first | {"test": [*first["test"], *(test for file, *_ in others for test in file["test"])]}, *own

    return study


ARM = jaxmb.Machine.model_validate({
    "name": "arm",
    "body": [
        {"name": "upper", "joint": [{"name": "a", "axis": [0.0, 1.0, 0.0], "damping": 8.0, "rotor_inertia": 1.5}],
         "mass": 20.0, "center_of_mass": [0.4, 0.05, 0.1], "inertia_products": {"xx": 0.4, "yy": 1.6, "zz": 1.5}},
        {"name": "fore", "parent": "upper", "origin": {"xyz": [0.8, 0.0, 0.1]},
         "joint": [{"name": "b", "axis": [0.0, 1.0, 0.0], "damping": 3.0, "rotor_inertia": 0.4}],
         "mass": 8.0, "center_of_mass": [0.3, 0.1, 0.0], "inertia_products": {"xx": 0.05, "yy": 0.3, "zz": 0.3}},
    ],
})  # fmt: skip


FIVE_BAR = jaxmb.Machine.model_validate({
    "name": "five-bar",
    "independent": ["a", "b"],
    "posture": {"a": 2.1, "a2": -1.1, "b": 0.9, "b2": 1.2},
    "body": [
        {"name": "crank-a", "mass": 2.5, "center_of_mass": [0.14, 0.01, 0.0],
         "joint": [{"name": "a", "axis": [0, 0, 1], "stiffness": 9e3, "damping": 3.0, "rotor_inertia": 0.05}],
         "inertia_products": {"xx": 0.002, "yy": 0.0225, "zz": 0.0225}},
        {"name": "rod-a", "parent": "crank-a", "origin": {"xyz": [0.3, 0.0, 0.0]}, "mass": 1.4,
         "joint": [{"name": "a2", "axis": [0, 0, 1]}], "center_of_mass": [0.19, 0.01, 0.0],
         "inertia_products": {"xx": 0.002, "yy": 0.0225, "zz": 0.0225}},
        {"name": "crank-b", "origin": {"xyz": [0.25, 0.0, 0.0]}, "mass": 2.2, "center_of_mass": [0.135, 0.01, 0.0],
         "joint": [{"name": "b", "axis": [0, 0, 1], "stiffness": 7e3, "damping": 2.0, "rotor_inertia": 0.04}],
         "inertia_products": {"xx": 0.002, "yy": 0.018, "zz": 0.018}},
        {"name": "rod-b", "parent": "crank-b", "origin": {"xyz": [0.3, 0.0, 0.0]}, "mass": 1.1,
         "joint": [{"name": "b2", "axis": [0, 0, 1]}], "center_of_mass": [0.19, 0.01, 0.0],
         "inertia_products": {"xx": 0.002, "yy": 0.0176, "zz": 0.0176}},
    ],
    "frame": [{"name": "pin-a", "body": "rod-a", "origin": {"xyz": [0.42, 0.0, 0.0]}},
              {"name": "pin-b", "body": "rod-b", "origin": {"xyz": [0.42, 0.0, 0.0]}},
              {"name": "tool", "body": "rod-a", "origin": {"xyz": [0.47, 0.02, 0.0]}}],
    "loop": [{"name": "pin", "frame_a": "pin-a", "frame_b": "pin-b"}],
})  # fmt: skip


def torques(noise: float) -> Callable:
    """Torques of a plane arm along a motion: load at its end and damping from stated masses."""
    seconds = np.arange(0.0, 10.0, 0.005)
    first = np.array([[0.9, 0.5], [1.1, 0.4]])
    rate = 2.0 * np.pi * np.array([[0.2, 0.5], [0.3, 0.7]])
    turn = rate * seconds[:, None, None]
    angle = np.sum(first * np.sin(turn), axis=2)
    speed = np.sum(first * rate * np.cos(turn), axis=2)
    pull = -np.sum(first * rate**2 * np.sin(turn), axis=2)
    names = ("first_moment.fore.x", "first_moment.fore.z", "damping.a", "damping.b")

    def study(folder: Path, errors: Errors, rng: np.random.Generator) -> Described:
        model = jaxmb.build_model(true_machine(ARM, errors))
        free_as_stated = {
            name: value for name, value in jaxmb.parameters(jaxmb.build_model(ARM)).items() if name in names
        }
        model = jaxmb.set_parameters(model, free_as_stated)
        zero = errors.zeros(2)
        late = 1e-3 * float(errors.of("torque_delay_ms"))
        torque = np.array([
            np.asarray(jaxmb.inverse_dynamics(model, jnp.asarray(q + zero), jnp.asarray(v), jnp.asarray(a)))
            for q, v, a in zip(angle, speed, pull, strict=True)
        ])  # fmt: skip
        torque = np.stack([np.interp(seconds - late, seconds, torque[:, k]) for k in range(2)], axis=1)
        torque = torque / (1.0 + 0.01 * errors.of("torque_percent", 2)) + noise * rng.normal(size=torque.shape)
        rows = np.column_stack([seconds, angle, torque])
        np.savetxt(folder / "t.csv", rows, "%.12g", ",", header="time_s,a,b,a.torque,b.torque", comments="")
        jaxmb.write_machine(ARM, folder / "arm.toml")
        test = {"kind": "torque", "file": "t.csv", "torque_std": noise, "cutoff_hz": 20.0}
        free = {
            "first_moment.fore.x": {"lower": 0.0, "upper": 10.0},
            "first_moment.fore.z": {"lower": -5.0, "upper": 5.0},
            "damping.*": {"lower": 0.0, "upper": 50.0, "scale": "linear"},
        }
        return {"machine": "arm.toml", "test": [test], "free": free}, free_as_stated, model

    return study


ROBOT = jaxmb.Machine.model_validate({
    "name": "robot",
    "body": [
        {"name": "column", "origin": {"xyz": [0.0, 0.0, 0.5]},
         "joint": [{"name": "j1", "axis": [0.0, 0.0, 1.0], "stiffness": 9e5}],
         "mass": 60.0, "center_of_mass": [0.05, 0.0, 0.1], "inertia_products": {"xx": 2.0, "yy": 2.0, "zz": 1.5}},
        {"name": "boom", "parent": "column", "origin": {"xyz": [0.2, 0.0, 0.3]},
         "joint": [{"name": "j2", "axis": [0.0, 1.0, 0.0], "stiffness": 8e4}],
         "mass": 40.0, "center_of_mass": [0.35, 0.02, 0.03], "inertia_products": {"xx": 0.4, "yy": 3.0, "zz": 3.0}},
        {"name": "stick", "parent": "boom", "origin": {"xyz": [0.8, 0.0, 0.1]},
         "joint": [{"name": "j3", "axis": [0.0, 1.0, 0.0], "stiffness": 4e4}],
         "mass": 20.0, "center_of_mass": [0.3, 0.0, 0.05], "inertia_products": {"xx": 0.1, "yy": 0.9, "zz": 0.9}},
    ],
    "frame": [{"name": "tool", "body": "stick", "origin": {"xyz": [0.7, 0.08, -0.1]}}],
})  # fmt: skip


def poses(noise: float, count: int = 40) -> Callable:
    """Positions of the tool of an arm under its weight from two stations: zeros and stiffnesses of two joints."""
    names = ("stiffness.j2", "stiffness.j3", "zero.j2", "zero.j3")
    own = jaxmb.parameters(jaxmb.build_model(ROBOT))
    fixed = np.random.default_rng(7)
    q = fixed.uniform([-2.5, -1.5, -1.5], [2.5, 0.5, 2.0], size=(count, 3))
    station = np.arange(count) % 2
    turns = Rotation.from_rotvec(fixed.uniform(-0.2, 0.2, size=(2, 3)) + np.array([0.0, 0.0, 2.0]))
    places = fixed.uniform(-3.0, 3.0, size=(2, 3))

    def study(folder: Path, errors: Errors, rng: np.random.Generator) -> Described:
        model = jaxmb.build_model(true_machine(ROBOT, errors))
        zero = errors.zeros(3) * [1.0, 0.0, 0.0]  # the others are free
        true_q = q * (1.0 + 0.01 * errors.of("gear_ratio_percent", 3)) + zero
        points = np.array([np.asarray(actual_pose(model, jnp.asarray(row)))[:3, 3] for row in true_q])
        points = Rotation.from_matrix(turns.as_matrix()[station]).inv().apply(points - places[station])
        points = points * (1.0 + 1e-6 * float(errors.of("device_scale_ppm"))) + noise * rng.normal(size=points.shape)
        heads = "j1,j2,j3,tool.x,tool.y,tool.z,station"
        rows = [",".join([*(f"{x:.17g}" for x in (*row, *point)), "AB"[k]])
                for row, point, k in zip(q, points, station, strict=True)]  # fmt: skip
        (folder / "p.csv").write_text("\n".join([heads, *rows]) + "\n")
        jaxmb.write_machine(ROBOT, folder / "robot.toml")
        test = {"kind": "pose", "file": "p.csv", "std_mm": 1e3 * noise}
        free = {"stiffness.j[23]": {"lower": 4e3, "upper": 8e5}, "zero.j[23]": {"lower": -0.02, "upper": 0.02}}
        return {"machine": "robot.toml", "test": [test], "free": free}, {name: own[name] for name in names}, model

    return study


MANIPULATOR = jaxmb.load_machine("manipulator-3r")
POSTURE = {"z1": 0.3, "z2": 0.7, "z3": -1.2}
OF_FRF = (
    "mass_percent", "center_of_mass_mm", "inertia_percent", "frame_mm", "joint_zero_deg", "posture_deg",
    "sensor_direction_deg", "sensor_position_mm", "gain_percent", "delay_us", "time_base_ppm", "all",
)  # fmt: skip
ELASTIC = {
    "stiffness.*": {"lower": 1e5, "upper": 1e8},
    "damping.*": {"lower": 1.0, "upper": 1e5},
}
JOINTS = {
    "stiffness.*": {"lower": 1e3, "upper": 1e6},
    "damping.*": {"lower": 0.1, "upper": 1e3},
}
CRANKS = {"stiffness.[ab]": {"lower": 1e3, "upper": 1e5}, "damping.[ab]": {"lower": 0.1, "upper": 1e2}}
CASES = {
    "frf-3r": Case(OF_FRF, frfs(MANIPULATOR, POSTURE, np.arange(2.0, 40.0, 0.5), ELASTIC, 0.01)),
    "frf-links": Case(
        ("mass_percent", "modulus_percent", "gain_percent", "delay_us"),
        frfs(jaxmb.load_machine("two-flexible-links"), {}, np.arange(2.0, 60.0, 1.0), JOINTS, 0.01),
    ),
    "frf-five-bar": Case(
        ("mass_percent", "center_of_mass_mm", "frame_mm", "origin_mm", "joint_zero_deg", "posture_deg", "all"),
        frfs(FIVE_BAR, {"a": 2.1, "b": 0.9}, np.arange(4.0, 40.0, 0.5), CRANKS, 0.01, "xy"),
    ),
    "deflections-five-bar": Case(
        ("load_percent", "load_lever_mm", "frame_mm", "origin_mm", "joint_zero_deg", "all"),
        deflections(FIVE_BAR, {"stiffness.[ab]": CRANKS["stiffness.[ab]"]}, 0.4, 100.0),
    ),
    "frf-deflections-modes-3r": Case(
        (
            "mass_percent",
            "center_of_mass_mm",
            "inertia_percent",
            "frame_mm",
            "joint_zero_deg",
            "gain_percent",
            "load_lever_mm",
            "time_base_ppm",
            "all",
        ),
        together(
            frfs(MANIPULATOR, POSTURE, np.arange(2.0, 40.0, 0.5), ELASTIC, 0.01),
            deflections(MANIPULATOR, ELASTIC),
            modes(MANIPULATOR, {"z1": -0.4, "z2": 1.1, "z3": -0.5}, ELASTIC),
        ),
    ),
    "modes-3r": Case(
        (
            "mass_percent",
            "center_of_mass_mm",
            "inertia_percent",
            "joint_zero_deg",
            "posture_deg",
            "time_base_ppm",
            "all",
        ),
        modes(MANIPULATOR, POSTURE, ELASTIC),
    ),
    "torques-arm": Case(
        ("mass_percent", "center_of_mass_mm", "joint_zero_deg", "tilt_deg", "torque_percent", "torque_delay_ms", "all"),
        torques(0.5),
    ),
    "poses-arm": Case(
        (
            "mass_percent",
            "center_of_mass_mm",
            "frame_mm",
            "tilt_deg",
            "origin_mm",
            "origin_deg",
            "joint_zero_deg",
            "gear_ratio_percent",
            "device_scale_ppm",
            "all",
        ),
        poses(5e-5),
    ),
    "deflections-kr240": Case(
        ("load_percent", "load_direction_deg", "load_lever_mm", "frame_mm", "joint_zero_deg", "all"),
        deflections(jaxmb.load_machine("kuka-kr240"), {"stiffness.*": {"lower": 1e4, "upper": 1e9}}),
    ),
}


def draws(case: Case, kind: str, numbers: Iterable[int], scale: float) -> Iterator[dict[str, Any]]:
    """Outcome of each draw of a kind."""
    for draw in numbers:
        rng = np.random.default_rng([draw, *kind.encode()])
        with tempfile.TemporaryDirectory() as folder:
            file, truth, _ = case.study(Path(folder), Errors(kind, rng, scale), rng)
            stated = {name: (value if kind in (name, "all") else 0.0) for name, value in all_tolerances().items()}
            began = time.monotonic()
            result = jaxmb.identify(make_study(file | {"tolerances": stated}, "draw", folder))
            seconds = time.monotonic() - began
        yield {
            "flagged": bool(result.doubts) or not result.converged,
            "named": [name for name, own in (result.metrics.tolerance_checks or {}).items() if own.exceeded],
            "observable": {name: own.observable for name, own in (result.metrics.tolerance_checks or {}).items()},
            "seconds": seconds,
            "parameters": {
                name: [p.value, truth[name], p.std_log if truth[name] else p.std, p.identifiable, p.interval_95]
                for name, p in result.parameters.items()
                if name in truth
            },
        }


def all_tolerances() -> dict[str, float]:
    """Default tolerance of each kind."""
    from jaxmb.studies import Tolerances

    return Tolerances().model_dump()


def summary(outcomes: list[dict[str, Any]]) -> dict[str, Any]:
    """Coverage, and standard deviation over root mean square error, of the known parameters of some draws."""
    held, ratios = [], []
    names = outcomes[0]["parameters"]
    errors = {n: [] for n in names}
    stds = {n: [] for n in names}
    for outcome in outcomes:
        for name, (value, true, std, _, interval) in outcome["parameters"].items():
            if interval is not None and np.isfinite(std):
                held.append(interval[0] <= true <= interval[1])
                errors[name].append(value / true - 1.0 if true else value)
                stds[name].append(std)
    ratios = [np.sqrt(np.mean(np.square(stds[n]))) / np.sqrt(np.mean(np.square(errors[n]))) for n in names if errors[n]]
    known = [o["flagged"] or _held(o) for o in outcomes]
    return {
        "draws": len(outcomes),
        "intervals": len(held),
        "coverage": float(np.mean(held)) if held else None,
        "ratio": [round(float(x), 2) for x in np.quantile(ratios, [0.0, 0.5, 1.0])] if ratios else None,
        "flagged": sum(o["flagged"] for o in outcomes),
        "named": sum(bool(o["named"]) for o in outcomes),
        "observable": round(float(np.mean([x for o in outcomes for x in o["observable"].values()])), 3),
        "flagged or held": float(np.mean(known)),
        "seconds": float(np.median([o["seconds"] for o in outcomes])),
        "median std %": {n: round(100 * float(np.median(stds[n])), 2) for n in names if stds[n]},
    }


def _held(outcome: dict[str, Any]) -> bool:
    """Whether nine of ten intervals of a study hold the true value."""
    known = [(true, ends) for _, true, _, _, ends in outcome["parameters"].values() if ends is not None]
    return not known or float(np.mean([low <= true <= high for true, (low, high) in known])) >= 0.9


SCALES = 0.25 * 1.4 ** np.arange(11)


def growing(name: str, kind: str, draw: int) -> str:
    """Line of the largest factor between standard deviations at neighbouring sizes of one draw of errors."""
    stated = {key: (value if kind in (key, "all") else 0.0) for key, value in all_tolerances().items()}
    found = []
    for scale in SCALES:
        rng = np.random.default_rng([draw, *kind.encode()])
        with tempfile.TemporaryDirectory() as folder:
            file, _, _ = CASES[name].study(Path(folder), Errors(kind, rng, float(scale)), rng)
            result = jaxmb.identify(make_study(file | {"tolerances": stated}, "growing", folder))
        found.append({key: p.std_log if np.isfinite(p.std_log) else p.std for key, p in result.parameters.items()})
    names = [key for key, value in found[0].items() if np.isfinite(value)]
    std = np.array([[each[key] for key in names] for each in found])
    known = np.isfinite(std).all(axis=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        factors = np.exp(np.abs(np.diff(np.log(std), axis=0)))
    factors = np.where(np.isfinite(factors), factors, 1.0)
    i, k = np.unravel_index(np.argmax(factors), factors.shape)
    end = "" if known.all() else f", not followed from {SCALES[np.argmin(known)]:.2g}"
    where = f"{names[k]} between {SCALES[i]:.2g} and {SCALES[i + 1]:.2g} tolerances"
    return f"{name:18s} {kind:22s} {draw}: {factors[i, k]:6.2f} {where}{end}"


def main() -> None:
    """Run the cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="number of the first draw")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--kind", default=None)
    parser.add_argument("--growing", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/uncertainty"))
    given = parser.parse_args()
    numbers = range(given.first, given.first + given.draws)
    found: dict[str, Any] = {"versions": versions(), "scale": given.scale}
    for name in given.cases:
        for kind in CASES[name].kinds if given.kind is None else (given.kind,):
            if given.growing:
                for draw in numbers:
                    print(growing(name, kind, draw), flush=True)
                continue
            found[f"{name} {kind}"] = line = summary(list(draws(CASES[name], kind, numbers, given.scale)))
            print(
                f"{name:18s} {kind:22s} " + json.dumps({k: v for k, v in line.items() if k != "median std %"}),
                flush=True,
            )
            print(" " * 20, line["median std %"], flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "uncertainty.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
