"""What motors tell of the gears in front of them, beside FRFs at the tool, and what the spin of rotors matters.

    python experiments/motor-side/run.py

The manipulator of `motor-and-tool`. Everything is simulated.
"""

import copy
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import jaxmb
from jaxmb.studies import study_data

MACHINE, STUDY = "manipulator-3r-motors", "motor-and-tool"
GEARS = tuple(f"{family}.z{k}" for family in ("stiffness", "damping") for k in (1, 2, 3))
DRAWS = 40
SHAFTS = [(f"motor{k}", "angle") for k in (1, 2, 3)]
HERTZ = np.arange(2.0, 38.1, 0.25)


def with_tests(names: tuple[str, ...], **changes: Any) -> dict[str, Any]:
    """The study with some of its tests, each simulated with changes."""
    data = study_data(STUDY)
    data["test"] = [copy.deepcopy(test) for test in data["test"] if test["name"] in names]
    for test in data["test"]:
        test["simulate"] |= changes
    return data


def coupling_of_motors() -> None:
    """FRFs from one motor to another over the geometric mean of the two direct ones."""
    model = jaxmb.build_model(jaxmb.load_machine(MACHINE))
    h = np.abs(jaxmb.frf(model, jaxmb.reference_posture(model), HERTZ, outputs=SHAFTS, inputs=SHAFTS))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        ratio = np.median(h[:, i, j] / np.sqrt(h[:, i, i] * h[:, j, j]))
        print(f"motors {i + 1} and {j + 1}: FRF over the geometric mean of the direct ones, median {ratio:.3f}")


def what_each_tells() -> None:
    """Standard deviations of all parameters from the motors, the tool, and both; and how errors compare with them."""
    found = {}
    for names in (("motor side",), ("tool",), ("motor side", "tool")):
        found[" and ".join(names)] = jaxmb.identify(jaxmb.make_study(with_tests(names), STUDY))
    print("standard deviation, %, from " + ", ".join(found))
    for name in next(iter(found.values())).parameters:
        print(f"{name:22s}" + "".join(f"{100 * r.parameters[name].std_log:10.3f}" for r in found.values()))
    for what, result in found.items():
        print(f"{what}: {result}")


def how_often_intervals_hold() -> None:
    """How many 95 % intervals of the motor-side fit hold the truth, over draws of noise."""
    held = np.zeros(0)
    for seed in range(DRAWS):
        study = jaxmb.make_study(with_tests(("motor side",), noise_seed=100 + seed), STUDY)
        truth, result = jaxmb.parameters(study.model), jaxmb.identify(study)
        held = np.append(held, [low <= truth[n] <= high for n, (low, high) in intervals(result).items()])
    print(f"95 % intervals that hold the truth, {DRAWS} draws of noise: {100 * held.mean():.1f} % of {held.size}")


def intervals(result: jaxmb.Result) -> dict[str, tuple[float, float]]:
    """95 % interval of each parameter."""
    return {name: p.interval_95 for name, p in result.parameters.items() if p.interval_95 is not None}


def geared(machine: jaxmb.Machine, factor: float) -> jaxmb.Machine:
    """The machine with other ratios, and rotors and loops that are the same seen at the joints."""
    bodies = []
    square = factor**2
    for body, (joint, m, _) in zip(machine.body, machine.drives, strict=True):
        at_shaft = {"inertia": m.inertia / square, "stiffness": m.stiffness / square, "damping": m.damping / square}
        motor = m.model_copy(update={"ratio": m.ratio * factor} | at_shaft)
        bodies.append(body.model_copy(update={"joint": (joint.model_copy(update={"motor": motor}),)}))
    return machine.model_copy(update={"body": tuple(bodies)})


def without_spin(machine: jaxmb.Machine) -> jaxmb.Machine:
    """The machine with the third motor's axis across all that turns its carrier at the reference posture.

    No rotor then feels the turning of the arm: the first stands on the ground, and the second lies across z1.
    """
    model = jaxmb.build_model(machine)
    q = jaxmb.reference_posture(model)
    about = np.asarray(jaxmb.frame_jacobian(model, q, "link2"))[3:, :2]
    across = np.asarray(jaxmb.frame_pose(model, q, "link2"))[:3, :3].T @ np.cross(about[:, 0], about[:, 1])
    last, (joint, motor, _) = machine.body[-1], machine.drives[-1]
    motor = motor.model_copy(update={"axis": tuple((across / np.linalg.norm(across)).tolist())})
    last = last.model_copy(update={"joint": (joint.model_copy(update={"motor": motor}),)})
    return machine.model_copy(update={"body": (*machine.body[:-1], last)})


def cost_of_leaving_out_spin() -> None:
    """Fits of a machine whose rotors do not feel the turning of their carriers to FRFs of one whose rotors do."""
    true = jaxmb.load_machine(MACHINE)
    for factor in (1.0, 0.25):
        with tempfile.TemporaryDirectory() as folder:
            paths = [str(Path(folder) / name) for name in ("true.toml", "without.toml")]
            machine = geared(true, factor)
            jaxmb.write_machine(machine, paths[0])
            jaxmb.write_machine(without_spin(machine), paths[1])
            for what, path, alone in (
                ("with spin", paths[0], False),
                ("without", paths[1], False),
                ("without, FRFs of each motor to itself", paths[1], True),
            ):
                data: dict[str, Any] = with_tests(("motor side",), machine=paths[0])
                data["machine"] = path
                if alone:
                    (every,) = data["test"]
                    data["test"] = [
                        every
                        | {"name": point[0], "outputs": [point], "inputs": [point]}
                        | {"simulate": every["simulate"] | {"noise_seed": seed}}
                        for seed, point in enumerate(every["outputs"], 1)
                    ]
                for name in ("rotor_inertia.*", "stiffness.motor*", "damping.motor*"):
                    bounds = data["free"][name]
                    data["free"][name] = bounds | {k: bounds[k] / factor**2 for k in ("lower", "upper", "initial")}
                result = jaxmb.identify(jaxmb.make_study(data, STUDY))
                truth = jaxmb.parameters(jaxmb.build_model(machine))
                errors = {n: p.value / truth[n] - 1.0 for n, p in result.parameters.items()}
                off = {n: np.log(p.value / truth[n]) / p.std_log for n, p in result.parameters.items()}
                print(f"ratios times {factor:g}, {what}: square of the misfit {result.metrics['misfit']['square']:.3f}")
                print("   " + ", ".join(f"{n} {100 * errors[n]:+.2f} % ({off[n]:+.1f} std)" for n in GEARS))
                furthest = max(errors, key=lambda name: abs(off[name]))
                print(f"   furthest off {furthest}, {100 * errors[furthest]:+.2f} % ({off[furthest]:+.1f} std)")


def main() -> None:
    """Print all."""
    coupling_of_motors()
    what_each_tells()
    how_often_intervals_hold()
    cost_of_leaving_out_spin()


if __name__ == "__main__":
    main()
