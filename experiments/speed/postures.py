"""Mass and tangent matrices of a seven-joint arm at many postures, beside Pinocchio and MJX.

    python experiments/speed/postures.py [--postures 1000] [--rounds 7] [--out results/speed]

All three read the same URDF. The tangent is the derivative of the inverse dynamics at rest by the coordinates: the
stiffness of gravity, as the arm has no springs. Pinocchio is called posture by posture, as its Python users do. MJX has
a process of its own, without XLA's fusion, with which it is two to three orders of magnitude slower on a CPU.
"""

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pinocchio
from mujoco import mjx

import jaxmb
from jaxmb.results import versions

JOINTS = 7
FLAGS = "--xla_disable_hlo_passes=fusion"
"""Of XLA, for MJX."""
HOST: Any = mujoco
PIN: Any = pinocchio
"""Extension modules whose names a type checker does not see."""


def urdf(joints: int = JOINTS, seed: int = 0) -> str:
    """An arm of links of 0.3 m with random masses, centres and axes."""
    draw = np.random.default_rng(seed)
    parts = ['<robot name="arm"><link name="base"/>']
    for i in range(joints):
        mass, (x, y, z) = draw.uniform(1.0, 5.0), draw.uniform(-0.1, 0.1, 3)
        own = " ".join(f'{key}="{mass * draw.uniform(0.01, 0.012):.6f}"' for key in ("ixx", "iyy", "izz"))
        axis = ("0 0 1", "0 1 0")[i % 2]
        parts.append(
            f'<link name="l{i}"><inertial><origin xyz="{x:.4f} {y:.4f} {z + 0.15:.4f}"/><mass value="{mass:.4f}"/>'
            f'<inertia {own} ixy="0" ixz="0" iyz="0"/></inertial></link>'
            f'<joint name="q{i}" type="revolute"><parent link="{f"l{i - 1}" if i else "base"}"/><child link="l{i}"/>'
            f'<origin xyz="0 0 {0.3 if i else 0.1}"/><axis xyz="{axis}"/>'
            '<limit lower="-3" upper="3" effort="1000" velocity="10"/></joint>'
        )
    return "".join(parts) + "</robot>"


def of_pinocchio(text: str, q: np.ndarray) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
    """Mass and stiffness matrices [k, n, n]."""
    model = PIN.buildModelFromXML(text)
    data, still = model.createData(), np.zeros(model.nv)

    def run() -> tuple[np.ndarray, np.ndarray]:
        mass, stiffness = (np.empty((len(q), model.nv, model.nv)) for _ in range(2))
        for k, place in enumerate(q):
            mass[k] = PIN.crba(model, data, place)
            stiffness[k] = PIN.computeRNEADerivatives(model, data, place, still, still)[0]
        return np.triu(mass) + np.swapaxes(np.triu(mass, 1), 1, 2), stiffness

    return run


def of_mjx(text: str, q: np.ndarray) -> Callable[[], tuple[Any, Any]]:
    """The same."""
    host = HOST.MjModel.from_xml_string(text)
    model = mjx.put_model(host)
    blank = mjx.make_data(model)

    def settled(place: Any) -> Any:
        data = blank.replace(qpos=place, qvel=jnp.zeros(model.nv), qacc=jnp.zeros(model.nv))
        data = mjx.kinematics(model, data)
        data = mjx.com_pos(model, data)
        return mjx.crb(model, data)

    def effort(place: Any) -> Any:
        return mjx.rne(model, mjx.com_vel(model, settled(place))).qfrc_bias

    def both(place: Any) -> tuple[Any, Any]:
        return mjx.full_m(model, settled(place)), jax.jacfwd(effort)(place)

    compiled, postures = jax.jit(jax.vmap(both)), jnp.asarray(q)
    return lambda: jax.block_until_ready(compiled(postures))


def of_jaxmb(text: str, q: np.ndarray) -> Callable[[], tuple[Any, Any]]:
    """The same, by `linearize`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "arm.urdf"
        path.write_text(text)
        model = jaxmb.build_model(jaxmb.load_machine(path))
    compiled, postures = jax.jit(jax.vmap(lambda m, at: jaxmb.linearize(m, at), (None, 0))), jnp.asarray(q)

    def run() -> tuple[Any, Any]:
        tangent = jax.block_until_ready(compiled(model, postures))
        return tangent.mass, tangent.stiffness

    return run


def timed(run: Callable[[], Any]) -> tuple[float, float]:
    """Elapsed and processor seconds."""
    began, computed = time.perf_counter(), time.process_time()
    run()
    return time.perf_counter() - began, time.process_time() - computed


def serve_mjx(told: Any, text: str, q: np.ndarray) -> None:
    """MJX in a process of its own: its matrices, then the times of a round for each thing sent to it, until None."""
    run = of_mjx(text, q)
    told.send([np.asarray(matrix) for matrix in run()])
    while told.recv() is not None:
        told.send(timed(run))


def begin_mjx(text: str, q: np.ndarray) -> Any:
    """The other end of `serve_mjx`."""
    here, there = multiprocessing.Pipe()
    given = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = f"{given} {FLAGS}"
    multiprocessing.get_context("spawn").Process(target=serve_mjx, args=(there, text, q), daemon=True).start()
    os.environ["XLA_FLAGS"] = given
    there.close()
    return here


def main() -> None:
    """Time the three in turn, compare what they say, print and write the times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--postures", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    text, q = urdf(), np.random.default_rng(1).uniform(-3.0, 3.0, (options.postures, JOINTS))
    mjx_process = begin_mjx(text, q)
    ways: dict[str, Callable[[], Any]] = {"Pinocchio": of_pinocchio(text, q), "jaxmb": of_jaxmb(text, q)}
    first = {name: run() for name, run in ways.items()} | {"MJX": mjx_process.recv()}
    for name, found in first.items():
        apart = [float(np.max(np.abs(np.asarray(a) - b))) for a, b in zip(found, first["Pinocchio"], strict=True)]
        print(f"{name}: mass and tangent matrices differ from Pinocchio's by {apart[0]:.1e}, {apart[1]:.1e}")
    rounds = []
    for _ in range(options.rounds):
        mjx_process.send("a round")
        rounds.append({"MJX": mjx_process.recv()} | {name: timed(run) for name, run in ways.items()})
    mjx_process.send(None)
    seconds, of_processor = ({name: [each[name][k] for each in rounds] for name in first} for k in (0, 1))
    for what, measured in (("elapsed", seconds), ("of a processor", of_processor)):
        for name, times in measured.items():
            low, middle, high = 1e3 * np.percentile(times, [25, 50, 75])
            ratio = np.median(np.array(times) / np.array(measured["Pinocchio"]))
            print(
                f"{name:10s} {middle:8.2f} ms {what} ({low:.2f} to {high:.2f}, {len(times)} rounds),"
                f" {ratio:.2f} times Pinocchio's"
            )
    kept = {"versions": versions(), "seconds": seconds, "processor_seconds": of_processor}
    (options.out / "postures.json").write_text(json.dumps(kept))


if __name__ == "__main__":
    main()
