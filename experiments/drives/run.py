"""Torques of drives, FRFs at the tool and deflections of one robot with elastic gears in one study: how often 95 %
intervals hold the truth.

    python experiments/drives/run.py [--draws 60] [--side motor|link] [--out results/drives]

Torques with 1 % of noise along 8 s, FRFs at two postures with 1 %, 12 deflections with 5 um; encoders with 2e-8 rad.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np
import robot

import jaxmb
from jaxmb.deflections import deflection_tests, deflections_csv

POSTURES = np.radians([[0.0, -50.0, 80.0], [30.0, -80.0, 50.0]])
FREQUENCY = np.arange(4.0, 45.0, 1.0)
FRF_NOISE, TORQUE_NOISE, ANGLE_NOISE, DEFLECTION_NOISE = 0.01, 0.01, 2e-8, 5e-6
LINKS = (
    "inertia.link1.zz", "first_moment.link2.x", "first_moment.link2.z", "inertia.link2.yy", "inertia.link2.zz",
    "first_moment.link3.x", "first_moment.link3.z", "inertia.link3.yy", "inertia.link3.zz",
)  # fmt: skip


def free() -> dict[str, Any]:
    """Bounds of all that is to be found, two decades of stiffness and damping."""
    linear = {"scale": "linear"}
    found: dict[str, Any] = {
        "stiffness.q?": {"lower": 4e4, "upper": 4e6},
        "damping.q?": {"lower": 20.0, "upper": 2000.0},
        "rotor_inertia.*": {"lower": 0.0, "upper": 0.02},
        "damping.q?_motor": {"lower": 0.0, "upper": 0.05} | linear,
        "friction.q?_motor": {"lower": 0.0, "upper": 2.0},
        "offset.q?_motor": {"lower": -1.0, "upper": 1.0},
    }
    known = truth()
    return found | {name: {"lower": 0.0, "upper": 2.5 * known[name]} for name in LINKS}


def truth() -> dict[str, float]:
    """Values behind the simulation."""
    known = jaxmb.parameters(jaxmb.build_model(jaxmb.Machine.model_validate(robot.machine())))
    return robot.TRUE | {name: known[name] for name in LINKS}


def study(folder: Path, seed: int, side: str, **torque: Any) -> jaxmb.Study:
    """The study with noise of one draw."""
    draw = np.random.default_rng(seed)
    at, q, theta, effort = robot.motion()
    angles = (theta if side == "motor" else q) + ANGLE_NOISE * draw.normal(size=q.shape)
    effort = effort + TORQUE_NOISE * np.std(effort, axis=0) * draw.normal(size=q.shape)
    heads = ["time_s", *(f"q{i}" for i in (1, 2, 3)), *(f"q{i}.torque" for i in (1, 2, 3))]
    np.savetxt(
        folder / "motion.csv", np.column_stack([at, angles, effort]), "%.15g", ",", header=",".join(heads), comments=""
    )
    tests: list[dict[str, Any]] = [
        {"kind": "torque", "name": "motion", "file": "motion.csv", "angles_at": side, "cutoff_hz": 80.0,
         "effort_cutoff_hz": 60.0, "least_speed": 0.1} | torque
    ]  # fmt: skip
    for number, posture in enumerate(POSTURES):
        frf = robot.tool_frf(posture, FREQUENCY)
        error = draw.normal(size=(2, *frf.shape))
        frf = frf * np.exp(FRF_NOISE * (error[0] + 1j * error[1]))
        np.savez(folder / f"frf{number}.npz", frequency_hz=FREQUENCY, frf=frf, kind="accelerance")
        tests.append(
            {
                "kind": "frf", "name": f"tool {number}", "file": f"frf{number}.npz", "frame": "tool",
                "posture": dict(zip(("q1", "q2", "q3"), posture.tolist(), strict=True)), "noise_log_std": FRF_NOISE,
            }
        )  # fmt: skip
    model = jaxmb.build_model(jaxmb.load_machine(folder / "robot.toml"))
    place = np.random.default_rng(0)
    postures = robot.MIDDLE + place.uniform(-0.6, 0.6, (12, 3))
    forces = place.uniform(-250.0, 250.0, (12, 3))
    moved = np.stack([robot.tool_deflection(*each) for each in zip(postures, forces, strict=True)])
    moved = moved + DEFLECTION_NOISE * draw.normal(size=moved.shape)
    nothing = np.full((12, 3), np.nan)
    cases = deflection_tests(
        model, np.column_stack([postures, 0.0 * postures]), np.column_stack([forces, 0.0 * forces]),
        np.column_stack([moved, nothing]), std=[DEFLECTION_NOISE] * 3 + [1e-4] * 3,
    )  # fmt: skip
    (folder / "loads.csv").write_text(deflections_csv(model, cases))
    tests.append({"kind": "deflection", "file": "loads.csv"})
    # from the machine's own values, 40 % off, alone
    data = {"machine": "robot.toml", "test": tests, "free": free(), "rounds": 1, "least_rounds": 1, "agreement": 1}
    return jaxmb.make_study(data, "drives", folder)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--draws", type=int, default=60)
    parser.add_argument("--side", choices=("motor", "link"), default="motor")
    parser.add_argument("--out", type=Path, default=Path("results/drives"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    jaxmb.write_machine(jaxmb.Machine.model_validate(robot.machine(1.4)), arguments.out / "robot.toml")
    true, rows, seconds, ended = truth(), [], [], []
    for seed in range(arguments.draws):
        began = time.monotonic()
        result = jaxmb.identify(study(arguments.out, seed, arguments.side))
        seconds.append(time.monotonic() - began)
        found = result.parameters
        rows.append([((found[name].value - true[name]), found[name].std) for name in true])
        ended.append(result.status == "converged")
    error, std = np.moveaxis(np.array(rows), 2, 0)
    inside = np.abs(error) <= 1.96 * std
    print(
        f"angles of the {arguments.side}: {sum(ended)} of {len(ended)} fits converged, {np.median(seconds):.1f} s each"
    )
    for i, name in enumerate(true):
        size = abs(true[name]) or 1.0
        print(
            f"{name:24s} true {true[name]:10.4g}  mean error {100 * error[:, i].mean() / size:8.3f} %  scatter"
            f" {100 * error[:, i].std() / size:7.3f} %  stated {100 * std[:, i].mean() / size:7.3f} %"
            f"  inside {100 * inside[:, i].mean():5.1f} %"
        )
    print(f"{100.0 * inside.mean():.1f} % of {inside.size} intervals of 95 % hold the truth")


if __name__ == "__main__":
    main()
