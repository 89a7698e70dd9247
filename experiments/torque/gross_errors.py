"""How often torque tests with a gross error pass, and how often correct ones are accused.

    python experiments/torque/gross_errors.py [--draws 10] [--machine pendulum|arm|staubli-tx40|kuka-kr300]

Correct: a pendulum and an arm of two joints, noise of 1, 10 and 50 % of each torque, white and autoregressive of first
order (correlation of neighbours 0.8, 0.95), with and without a filter of the efforts. Errors, one at a time: of these
with 1 % of noise, and of the recorded Staubli TX40 (JAXMB_DATA, every tenth sample) and KUKA KR300.
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.signal import lfilter

import jaxmb
from jaxmb.studies import study_data

RATE = 200.0
BODY = {"mass": 2.0, "center_of_mass": [0.2, 0.05, 0.0], "inertia_products": {"xx": 0.02, "yy": 0.05, "zz": 0.06}}
JOINT = {"damping": 0.5, "friction": 0.8, "rotor_inertia": 0.02}
ARMS = {
    "pendulum": (["q"], ["inertia.q.zz", "first_moment.q.*", "damping.*", "friction.*"]),
    "arm": (["a", "b"], ["inertia.?.zz", "first_moment.?.[xy]", "damping.*", "friction.*", "offset.*"]),
}
Table = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Time [k], angles [k, c], torques [k, c]."""
Error = Callable[[Table], Table]


def machine_of(names: list[str]) -> jaxmb.Machine:
    """A vertical chain of equal links."""
    bodies = [
        BODY
        | {"name": name, "joint": [JOINT | {"name": name}]}
        | ({"parent": names[k - 1], "origin": {"xyz": [0.5, 0.0, 0.0]}} if k else {})
        for k, name in enumerate(names)
    ]
    return jaxmb.Machine.model_validate({"name": "chain", "gravity": [0.0, -9.81, 0.0], "body": bodies})


def motion_of(names: list[str], seconds: float = 10.0) -> tuple[np.ndarray, list[np.ndarray]]:
    """Time, and angles, rates and accelerations, each joint with two sines of its own."""
    time = np.arange(round(seconds * RATE) + 1) / RATE
    parts = []
    for order in range(3):
        columns = []
        for k in range(len(names)):
            terms = [(1.0 - 0.2 * k, 2.0 * np.pi * (0.3 + 0.1 * k), 0.3 + k), (0.3, 2.0 * np.pi * (1.1 - 0.2 * k), 1.0)]
            columns.append(sum(a * w**order * np.sin(w * time + p + 0.5 * np.pi * order) for a, w, p in terms))
        parts.append(np.stack([np.asarray(column) for column in columns], axis=1))
    return time, parts


def simulated(names: list[str], noise: float, rho: float, seed: int) -> Table:
    """A table with noise, relative to each torque's root mean square."""
    model = jaxmb.build_model(machine_of(names))
    time, (q, qd, qdd) = motion_of(names)
    regressor = [
        np.asarray(jaxmb.torque_regressor(model, *map(jnp.asarray, at))) for at in zip(q, qd, qdd, strict=True)
    ]
    values = np.array([jaxmb.parameters(model)[name] for name in jaxmb.regressor_names(model)])
    torque = np.stack([rows @ values for rows in regressor])
    white = np.random.default_rng(seed).normal(size=(len(time) + 500, len(names)))
    coloured = np.asarray(lfilter([np.sqrt(1.0 - rho**2)], [1.0, -rho], white, axis=0))[500:]
    return time, q, torque + noise * np.sqrt(np.mean(torque**2, axis=0)) * coloured


def column(number: int, how: Callable[[np.ndarray], np.ndarray], torque: bool = True) -> Error:
    """One column of the torques, or of the angles, changed."""

    def changed(table: Table) -> Table:
        time, q, tau = (part.copy() for part in table)
        part = tau if torque else q
        part[:, number] = how(part[:, number])
        return time, q, tau

    return changed


def swapped(i: int, j: int, torque: bool = True) -> Error:
    """Two columns swapped."""

    def changed(table: Table) -> Table:
        time, q, tau = (part.copy() for part in table)
        part = tau if torque else q
        part[:, [i, j]] = part[:, [j, i]]
        return time, q, tau

    return changed


def late(samples: int) -> Error:
    """Torques that are late."""
    return lambda table: (table[0], table[1], np.roll(table[2], samples, axis=0))


def errors(count: int) -> dict[str, Error]:
    """One error each."""
    found: dict[str, Error] = {}
    for i in range(count):
        found |= {f"torque {i + 1} times {k:g}": column(i, lambda x, k=k: k * x) for k in (-1.0, 2.0, 1.3, 1e-3)}
        found[f"angle {i + 1} in degrees"] = column(i, np.degrees, False)
        found[f"angle {i + 1} reversed"] = column(i, lambda x: -x, False)
        if i + 1 < count:
            found[f"torques {i + 1} and {i + 2} swapped"] = swapped(i, i + 1)
            found[f"angles {i + 1} and {i + 2} swapped"] = swapped(i, i + 1, False)
    return found | {f"torques {k} samples late": late(k) for k in (2, 5, 10, -5)}


def study(folder: Path, names: list[str], table: Table, **test: Any) -> Any:
    """The test in a table with the machine beside it."""
    header = ",".join(["time_s", *names, *(f"{name}.torque" for name in names)])
    np.savetxt(folder / "motion.csv", np.column_stack(table), "%.12g", ",", header=header, comments="")
    return {"kind": "torque", "name": "motion", "file": "motion.csv"} | test


def status(folder: Path, description: dict[str, Any]) -> str:
    """How the fit ended, or that the study is refused."""
    try:
        result = jaxmb.identify(jaxmb.make_study(description, "gross", folder))
    except ValueError as error:
        return f"refused: {str(error).split(': ')[-1]}"
    test: Any = result.study.tests[0]
    size, missed = test.sizes(test.view(result.model))
    return f"{result.status.split(':')[0]} ({100.0 * np.max(missed / size):.0f} %){'; '.join(('', *result.doubts[:1]))}"


def of_chain(names: list[str], patterns: list[str], table: Table, folder: Path, filtered: bool) -> str:
    """The status of a simulated one."""
    jaxmb.write_machine(machine_of(names), folder / "chain.toml")
    free = {
        p: {"lower": 0.0 if p[0] in "d" or p[:2] == "fr" else -9.0, "upper": 9.0, "scale": "linear"} for p in patterns
    }
    more = {"effort_cutoff_hz": 5.0} if filtered else {}
    test = study(folder, names, table, cutoff_hz=20.0, least_speed=0.05, **more)
    return status(folder, {"machine": "chain.toml", "test": [test], "free": free})


def of_record(machine: str, change: Error, folder: Path) -> str:
    """The status of a recorded one."""
    name, every, cutoff = {"staubli-tx40": ("tx40", 10, 50.0), "kuka-kr300": ("kr300", 1, 50.0)}[machine]
    data = study_data(name)
    names = list(jaxmb.coordinates(jaxmb.build_model(jaxmb.load_machine(machine))))
    record = jaxmb.read_described(machine, folder, tuple(names))
    table = change((record.time_s[::every] - record.time_s[0], record.position[::every], record.effort[::every]))
    own = {key: value for key, value in data["test"][0].items() if key not in ("kind", "name", "file")}
    test = study(folder, names, table, **(own | {"cutoff_hz": cutoff}))
    return status(folder, data | {"test": [test]})


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=10, help="correct ones of each kind")
    parser.add_argument("--machine", choices=[*ARMS, "staubli-tx40", "kuka-kr300"], action="append")
    options = parser.parse_args()
    for machine in options.machine or [*ARMS, "staubli-tx40", "kuka-kr300"]:
        accused = count = passed = 0
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if machine in ARMS:
                names, patterns = ARMS[machine]
                for noise in (0.01, 0.1, 0.5):
                    for rho in (0.0, 0.8, 0.95):
                        for draw in range(options.draws):
                            table = simulated(names, noise, rho, draw)
                            for filtered in (False, True):
                                found = of_chain(names, patterns, table, folder, filtered)
                                count += 1
                                if not found.startswith("converged"):
                                    accused += 1
                                    print(f"{machine}, noise {noise}, rho {rho}, filter {filtered}, {draw}: {found}")
                print(f"{machine}: {accused} of {count} correct ones accused", flush=True)
            else:
                names = list(jaxmb.coordinates(jaxmb.build_model(jaxmb.load_machine(machine))))
                print(f"{machine} as recorded: {of_record(machine, lambda table: table, folder)}", flush=True)
            every = errors(len(names))
            for text, change in every.items():
                if machine in ARMS:
                    found = of_chain(*ARMS[machine], change(simulated(names, 0.01, 0.0, 0)), folder, False)
                else:
                    found = of_record(machine, change, folder)
                passed += found.startswith("converged")
                print(f"{machine}, {text}: {found}", flush=True)
            print(f"{machine}: {passed} of {len(every)} errors passed", flush=True)


if __name__ == "__main__":
    main()
