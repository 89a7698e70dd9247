"""How fast the small solve is: the same FRFs by the machine code, by JAX's elimination, by LAPACK and by NumPy.

    python experiments/speed/kernels.py [--repeats 15] [--out results/speed]

Random machines of n coordinates, 146 lines, three points that are outputs and inputs, in double precision; 256 machines
a call, 32 of the large ones. All in turn in the same process, warm. For nine coordinates also with the Jacobian by the
stiffness and the damping of each.
"""

import argparse
import json
import os
import platform
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from threadpoolctl import threadpool_limits

from jaxmb import native
from jaxmb.linalg import receptance
from jaxmb.linalg.dynamic_stiffness import DynamicStiffness
from jaxmb.linalg.elimination import eliminated
from jaxmb.linalg.small_solve import response
from jaxmb.results import versions

LINES, POINTS = 146, 3
SIZES = 3, 9, 18, 36, 60
OMEGA = 2.0 * np.pi * np.linspace(1.0, 30.0, LINES)


def machines(size: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """M, C and K of some machines with modes among the lines, damped by half a percent to five, and rows of points."""
    rng = np.random.default_rng(size)
    parts = rng.normal(size=(2, count, size, size))
    mass = np.eye(size) + 0.2 * parts[0] @ parts[0].swapaxes(1, 2) / size
    stiffness = np.diag(np.linspace(20.0, 250.0, size) ** 2) + 100.0 * parts[1] @ parts[1].swapaxes(1, 2) / size
    return mass, 0.2 * mass + 3e-4 * stiffness, stiffness, rng.normal(size=(POINTS, size))


def by_lapack(mass: Array, damping: Array, stiffness: Array, omega: Array, rows: Array) -> Array:
    """What JAX's users would write."""
    w = omega[:, None, None]
    z = jax.lax.complex(stiffness - w**2 * mass, w * damping)
    right = jnp.broadcast_to(rows.T.astype(z.dtype), (omega.size, *rows.T.shape))
    return jnp.einsum("on,fni->foi", rows, jnp.linalg.solve(z, right))


def by_elimination(mass: Array, damping: Array, stiffness: Array, omega: Array, rows: Array) -> Array:
    """What jaxmb does without machine code."""
    return eliminated(DynamicStiffness(mass, damping, stiffness, omega), rows, rows, same=True, keep=False)[0]


def by_jaxmb(mass: Array, damping: Array, stiffness: Array, omega: Array, rows: Array) -> Array:
    """The small solve in use; up to 40 coordinates `receptance` is this."""
    return response(DynamicStiffness(mass, damping, stiffness, omega), rows, rows, same=True)


def by_numpy(mass: np.ndarray, damping: np.ndarray, stiffness: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What NumPy's users would write."""
    w = OMEGA[:, None, None]
    z = (stiffness - w**2 * mass) + 1j * (w * damping)
    return rows @ np.linalg.solve(z, np.broadcast_to(rows.T.astype(complex), (LINES, *rows.T.shape)))


def sums_of_derivatives(mass: Array, damping: Array, stiffness: Array, rows: Array) -> Array:
    """Of H and of its Jacobian by a spring and a damper more on each coordinate, machine by machine.

    The sums ask for every number, of which together there would be more than a processor's cache holds.
    """
    size = rows.shape[1]
    diagonal = tuple((k, k) for k in range(size))

    def one(own: tuple[Array, Array, Array]) -> Array:
        m, c, k = own

        def moved(p: Array) -> tuple[Array, Array]:
            springs, dampers = jnp.diag(p[:size]), jnp.diag(p[size:])
            h = receptance(m, c + dampers, k + springs, jnp.asarray(OMEGA), rows, rows, diagonal)
            return h, h

        jacobian, h = jax.jacfwd(moved, has_aux=True)(jnp.zeros(2 * size))
        return jnp.sum(jacobian.real + jacobian.imag) + jnp.sum(h.real + h.imag)

    return jax.lax.map(one, (mass, damping, stiffness))


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """That a piece of work takes, elapsed and of all processors together."""
    began, used = time.perf_counter(), time.process_time()
    jax.block_until_ready(work())
    return time.perf_counter() - began, time.process_time() - used


def processor() -> str:
    """Its name."""
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def timed_in_turn(ways: dict[str, tuple[int, Callable[[], object]]], repeats: int) -> dict[str, list[list[float]]]:
    """Elapsed and processor time of an evaluation by each way, so many at a time, of each repetition."""
    for _, work in ways.values():
        seconds(work)
    times: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, (count, work) in ways.items():
            times[name].append([each / count for each in seconds(work)])
    return times


def shown(name: str, times: dict[str, list[list[float]]], peer: str) -> str:
    """A line with medians and quartiles: evaluations a second, processor time of one, and the peer's over both."""
    own, other = np.array(times[name]), np.array(times[peer])
    low, middle, high = np.percentile(1.0 / own[:, 0], [25, 50, 75])
    text = f"{name:26s}{middle:8.0f} ({low:.0f} to {high:.0f})".ljust(55) + f"{np.median(own[:, 1]) * 1e6:8.1f} us"
    for kind in (0, 1):
        ratio = np.percentile(other[:, kind] / own[:, kind], [25, 50, 75])
        text += f"   {ratio[1]:5.1f} ({ratio[0]:.1f} to {ratio[2]:.1f})".ljust(26)
    return text.rstrip()


def main() -> None:
    """Time all ways for all sizes, print the table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    machine = f"{processor()}, {cores} cores, jaxlib {versions()['jaxlib']}"
    native.in_use()  # compiled here, where it was not
    print(f"{machine}; small solve: {native.status()}")
    print(
        f"{LINES} lines, {POINTS} x {POINTS} points; evaluations a second, processor time of one, medians (quartiles);"
        "\nelapsed and processor time of LAPACK over it, pairwise"
    )
    found = {}
    with threadpool_limits(1, user_api="blas"):
        for size in SIZES:
            count = 256 if size <= 18 else 32
            parts = machines(size, count)
            on_device = [jax.device_put(part) for part in parts]
            batch = (0, 0, 0, None, None)
            arguments = *on_device[:3], jax.device_put(OMEGA), on_device[3]
            own = jax.jit(jax.vmap(by_jaxmb, batch))
            in_jax = jax.jit(jax.vmap(by_elimination, batch))
            lapack = jax.jit(jax.vmap(by_lapack, batch))
            first = parts[0][0], parts[1][0], parts[2][0], parts[3]
            expected = by_numpy(*first)
            for way in (own, in_jax, lapack):
                error = np.abs(np.asarray(way(*arguments))[0] - expected).max() / np.abs(expected).max()
                if error > 1e-11:
                    raise RuntimeError(f"n = {size}: a relative error of {error:.1e}")
            ways = {
                "jaxmb": (count, partial(own, *arguments)),
                "JAX's elimination": (count, partial(in_jax, *arguments)),
                "LAPACK, vmapped": (count, partial(lapack, *arguments)),
                "NumPy": (1, partial(by_numpy, *first)),
            }
            if size == 9:
                ways["value and Jacobian by 18"] = count, partial(jax.jit(sums_of_derivatives), *on_device)
            found[size] = timed_in_turn(ways, options.repeats)
            print(f"n = {size}")
            for name in ways:
                print("  " + shown(name, found[size], "LAPACK, vmapped"))
    numbers = {"machine": machine, "seconds": found, "versions": versions()}
    (options.out / "kernels.json").write_text(json.dumps(numbers, indent=1))


if __name__ == "__main__":
    main()
