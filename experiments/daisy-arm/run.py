"""What stands behind the study daisy-arm: noise, a fit without physics, lines held out, other models of the arm.

JAXMB_DATA=... python experiments/daisy-arm/run.py [--seeds 10] [--out results/daisy-arm]
"""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.optimize import least_squares

import jaxmb
from jaxmb.studies import study_data

BANDS = ((0.027, 0.038), (0.155, 0.2))
"""Around the antiresonances, where noise is large; cycles per sample, as in the study."""


def arm(springs: int = 5, sensor: float = 0.6, payload: bool = True) -> jaxmb.Machine:
    """The machine flexible-arm with another number of springs, or another place of the sensor."""
    half = 0.5 / springs
    mass = 3.5 / (2 * springs)
    rod = {"mass": mass, "center_of_mass": [half / 2, 0.0, 0.0],
           "inertia_products": {"xx": 0.0, "yy": mass * half**2 / 12, "zz": mass * half**2 / 12}}  # fmt: skip
    bodies: list[dict[str, Any]] = []
    for i in range(2 * springs):
        behind = {"parent": f"tenth{i}", "origin": {"xyz": [half, 0.0, 0.0]}} if i else {}
        joint = [{"name": f"bend{(i + 1) // 2}", "stiffness": 0.1, "damping": 1e-3}] if i % 2 else []
        joint = joint if i else [{"name": "hinge", "rotor_inertia": 0.35}]
        bodies.append({"name": f"tenth{i + 1}", "joint": joint} | rod | behind)
    carrier = min(int(sensor / half + 1e-9), 2 * springs - 1)
    frames = [
        {"name": "motor", "body": "tenth1"},
        {"name": "arm", "body": f"tenth{carrier + 1}", "origin": {"xyz": [sensor - carrier * half, 0.0, 0.0]}},
        {"name": "tool", "body": f"tenth{2 * springs}", "origin": {"xyz": [half, 0.0, 0.0]}},
    ]
    load = {"name": "payload", "frame": "tool", "mass": 3.8, "inertia_products": {"xx": 0.12, "yy": 0.12, "zz": 0.12}}
    loads = [load] if payload else []
    still = [0.0, 0.0, 0.0]
    return jaxmb.Machine.model_validate(
        {"name": "arm", "gravity": still, "body": bodies, "frame": frames, "payload": loads}
    )


def study(
    folder: Path, machine: jaxmb.Machine, measured: jaxmb.FrfSet, free: dict[str, Any], hold: dict[str, float]
) -> jaxmb.Study:
    """The shipped study with another machine, other lines, parameters added to the free ones, or held instead."""
    data = study_data("daisy-arm")
    jaxmb.write_machine(machine, folder / "arm.toml")
    jaxmb.write_frf(folder / "arm.npz", measured)
    data["machine"], data["test"][0]["file"] = "arm.toml", "arm.npz"
    data["free"] = {k: v for k, v in (data["free"] | free).items() if k not in hold}
    if not machine.payload:
        data["free"] = {k: v for k, v in data["free"].items() if "payload" not in k}
    return jaxmb.make_study(data | {"hold": hold}, "daisy-arm", folder)


@dataclasses.dataclass(frozen=True)
class Row:
    """What is said of one fit."""

    result: jaxmb.Result
    error: float
    """Root mean square of |log Hs / H| outside of `BANDS`."""
    poles: np.ndarray
    """Natural frequencies that oscillate, cycles per sample."""


def fitted(
    folder: Path, machine: jaxmb.Machine, measured: jaxmb.FrfSet, free: dict[str, Any] | None = None,
    hold: dict[str, float] | None = None, judged: jaxmb.FrfSet | None = None, seeds: Sequence[int] = range(3),
) -> Row:  # fmt: skip
    """The best fit of several seeds, judged on the same lines or on others."""
    posed = study(folder, machine, measured, free or {}, hold or {})
    result = min((jaxmb.identify(posed, seed) for seed in seeds), key=lambda result: result.cost)
    judged = measured if judged is None else judged
    q = jaxmb.reference_posture(result.model)
    h = jaxmb.frf(result.model, q, jnp.asarray(judged.frequency_hz), outputs=[("arm", "y")], inputs=[("motor", "rz")])
    if (delay := result.parameters.get("delay.arm")) is not None:
        h = h * np.exp(-2j * np.pi * judged.frequency_hz * delay.value)[:, None, None]
    difference = np.abs(np.log(np.asarray(h) / judged.frf))[~in_bands(judged.frequency_hz)]
    poles = np.asarray(jaxmb.modes(jaxmb.linearize(result.model, q)).frequency_hz)
    return Row(result, float(np.sqrt(np.mean(difference**2))), poles[poles > 1e-3])


def in_bands(frequency_hz: np.ndarray) -> np.ndarray:
    """Lines around the antiresonances."""
    return np.any([(frequency_hz >= low) & (frequency_hz <= high) for low, high in BANDS], axis=0)


def rational(numbers: np.ndarray, frequency_hz: np.ndarray) -> np.ndarray:
    """Rigid body, two modes, what higher modes leave, and a delay: accelerance [f] from nine numbers without physics.

    H = (r0 + e s^2 + sum of r s^2 / (s^2 + 2 z w s + w^2)) exp(-s T), numbers r0, e, T, then w, z, r of each mode.
    """
    s = 2j * np.pi * frequency_hz
    r0, residual, delay = numbers[:3]
    modal = sum(r * s**2 / (s**2 + 2 * z * w * s + w**2) for w, z, r in numbers[3:].reshape(2, 3))
    return (r0 + residual * s**2 + modal) * np.exp(-s * delay)


def fit_rational(measured: jaxmb.FrfSet, delay: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Numbers of `rational`, their standard deviations, and the error outside of `BANDS`; weights as in the study."""
    frequency_hz, values = measured.frequency_hz, measured.frf[:, 0, 0]
    weight = np.where(in_bands(frequency_hz), 0.02, 1.0)
    start = np.array([0.1, -0.1, 0.0, 0.365, 0.005, 0.3, 0.796, 0.005, -0.3])
    moved = np.array([True, True, delay] + 6 * [True])

    def whole(x: np.ndarray) -> np.ndarray:
        numbers = start.copy()
        numbers[moved] = x
        return numbers

    def residual(x: np.ndarray) -> np.ndarray:
        error = np.sqrt(weight) * np.log(rational(whole(x), frequency_hz) / values)
        return np.concatenate([np.real(error), np.imag(error)])

    found = least_squares(
        residual, start[moved], x_scale=np.maximum(np.abs(start[moved]), 0.01), xtol=1e-14, ftol=1e-14
    )
    std = np.zeros(start.size)
    variance = 2 * found.cost / (found.fun.size - moved.sum())
    std[moved] = np.sqrt(np.diag(np.linalg.inv(found.jac.T @ found.jac)) * variance)
    error = np.abs(np.log(rational(whole(found.x), frequency_hz) / values))[~in_bands(frequency_hz)]
    return whole(found.x), std, float(np.sqrt(np.mean(error**2)))


def noise(numbers: np.ndarray) -> list[tuple[float, float, float]]:
    """(from, to, noise over response) by band: what the acceleration holds at lines that were not excited.

    At the even lines, between the excited odd ones, whatever the torque there does not explain is noise: N = Y - H U.
    It is taken over the median excited torque, and over the response at these lines.
    """
    (record,) = jaxmb.read_records("daisy-arm")
    torque, acceleration = (np.fft.rfft(x[:, 0]) for x in (record.force, record.response))
    level = np.median(np.abs(torque[3:200:2]))
    even = np.arange(2, 200, 2)
    h = -rational(numbers, even / 1024)
    ratio = np.abs(acceleration[even] - h * torque[even]) / level / np.abs(h)
    bands = ((0.0, 0.027), (0.027, 0.038), (0.038, 0.155), (0.155, 0.17), (0.17, 0.1855), (0.1855, 0.2))
    return [(a, b, float(np.median(ratio[(even / 1024 >= a) & (even / 1024 < b)]))) for a, b in bands]


def line(name: str, row: Row) -> str:
    """One line of the table."""
    third = f"{row.poles[2]:.3f}" if row.poles.size > 2 else "-"
    hub = row.result.parameters.get("rotor_inertia.hinge")
    told = f"{hub.value:.3g} ({100 * hub.std_log:.1f} %, {hub.identifiable})" if hub else "-"
    return f"| {name} | {row.result.study.free.size} | {row.result.cost:.4g} | {row.error:.3f} | {third} | {told} |"


def main() -> None:
    """Everything, as the tables of the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/daisy-arm"))
    options = parser.parse_args()
    folder = options.out
    folder.mkdir(parents=True, exist_ok=True)
    measured = jaxmb.select_channels(jaxmb.frf_of_records("daisy-arm"), ["arm y"], ["motor rz"])
    measured = dataclasses.replace(measured, unit="m/s^2/N")

    for delay in (False, True):
        numbers, std, error = fit_rational(measured, delay)
        print(f"without physics{', with a delay' if delay else ''}: error {error:.4f}")
        for w, z, r in ((3, 4, 5), (6, 7, 8)):
            print(
                f"  pole {numbers[w] / 2 / np.pi:.5f} +- {std[w] / 2 / np.pi:.5f} cycles/sample,"
                f" damping {100 * numbers[z]:.3f} +- {100 * std[z]:.3f} %, residue {numbers[r]:.4f}"
            )
        print(
            f"  rigid {numbers[0]:.4f}, higher modes {numbers[1]:.4f}, delay {numbers[2]:.4f} +- {std[2]:.4f} samples"
        )
    for low, high, ratio in noise(numbers):
        print(f"  noise {low:g} to {high:g}: {100 * ratio:.1f} % of the response")

    seeds = [fitted(folder, arm(), measured, seeds=[seed]) for seed in range(options.seeds)]
    costs = [row.result.cost for row in seeds]
    settled = sum(row.result.converged for row in seeds)
    print(f"{len(seeds)} seeds: costs {min(costs):.8g} to {max(costs):.8g}, {settled} converged")
    shipped = seeds[0]
    for name in shipped.result.study.free.names:
        p = shipped.result.parameters[name]
        print(f"  {name} {p.value:.4g} {p.unit}, {100 * p.std_log:.2f} %")
    for mode in shipped.result.modes:
        print(f"  mode {mode.frequency_hz:.5f}, damping {100 * mode.damping_ratio:.3f} %")
    odd = np.arange(measured.frequency_hz.size) % 2 == 1
    for name, half in (("odd", odd), ("even", ~odd)):
        row = fitted(folder, arm(), jaxmb.select_lines(measured, half), judged=jaxmb.select_lines(measured, ~half))
        seen = fitted(folder, arm(), measured, judged=jaxmb.select_lines(measured, ~half))
        print(f"fitted to the {name} lines: error {row.error:.4f} at the others, {seen.error:.4f} if fitted to all")

    print("| model | numbers | cost | error | third mode | hub (std, known) |\n|---|---|---|---|---|---|")
    print(line("as shipped", shipped))
    spring = {"stiffness.hinge": {"lower": 1e-7, "upper": 1.0}}
    print(line("motor spring added", fitted(folder, arm(), measured, spring)))
    for stiffness in (1e-6, 1e-5, 1e-4, 1e-3):
        row = fitted(folder, arm(), measured, hold={"stiffness.hinge": stiffness})
        print(line(f"motor spring {stiffness:g}", row))
    print(line("no damper at the hinge", fitted(folder, arm(), measured, hold={"damping.hinge": 0.0})))
    print(line("no hub", fitted(folder, arm(), measured, hold={"rotor_inertia.hinge": 0.0})))
    for springs in (3, 4, 6, 8, 10):
        print(line(f"{springs} springs", fitted(folder, arm(springs), measured)))
    for sensor in (0.5, 0.56, 0.58, 0.59, 0.61, 0.62, 0.64, 0.7, 0.77, 0.78, 0.785, 0.79, 0.8, 0.82):
        print(line(f"sensor at {sensor:g}", fitted(folder, arm(sensor=sensor), measured)))
    for name, payload, hold in (
        ("no payload", False, {}),
        ("payload a point", True, {"inertia.payload.zz": 0.0}),
    ):
        rows = [(s, fitted(folder, arm(sensor=s, payload=payload), measured, hold=hold)) for s in np.arange(3, 8) / 10]
        sensor, best = min(rows, key=lambda pair: pair[1].result.cost)
        print(line(f"{name}, sensor best at {sensor:g}", best))

    print("the same with the delay between the channels free:")
    for sensor in (0.59, 0.6, 0.61, 0.78, 0.785, 0.79):
        row = fitted(folder, arm(sensor=sensor), measured, {"delay.arm": {"lower": -1.0, "upper": 1.0}})
        damping, late = (", ".join(f"{100 * mode.damping_ratio:.3f} %" for mode in row.result.modes),
                         row.result.parameters["delay.arm"])  # fmt: skip
        print(line(f"sensor at {sensor:g}, damping {damping}, delay {late.value:.4f} +- {late.std:.4f}", row))


if __name__ == "__main__":
    main()
