"""How fast the small solve is: the same FRFs by the compiled kernel, by JAX's elimination, by LAPACK and by NumPy.

Random machines of n coordinates, 146 lines, three points that are outputs and inputs, in double precision; 256
machines a call, 64 of 18 coordinates and 32 of larger ones. All in turn in the same process, warm. For nine
coordinates also with the Jacobian by the stiffness and the damping of each. NumPy solves at each line, or sums over
the modes of an eigenvalue problem for each machine: of any damping, or of damping that is proportional, as that of
these machines happens to be.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from threadpoolctl import threadpool_limits

from jaxmb.linalg.responses import receptance

# The two ways of the small solve, between which `receptance` chooses by itself, have no public names.
from jaxmb.linalg.small_solve import DynamicStiffness, eliminated, response

LINES, POINTS = 146, 3
SIZES = 3, 9, 18, 36, 60
PEER = "LAPACK, vmapped"
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
    """What jaxmb does without the compiled kernel."""
    return eliminated(DynamicStiffness(mass, damping, stiffness, omega), rows, rows, same=True, keep=False)[0]


def by_jaxmb(mass: Array, damping: Array, stiffness: Array, omega: Array, rows: Array) -> Array:
    """The small solve in use; up to 40 coordinates `receptance` is this."""
    return response(DynamicStiffness(mass, damping, stiffness, omega), rows, rows, same=True)


def by_numpy(mass: np.ndarray, damping: np.ndarray, stiffness: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """What NumPy's users would write."""
    w = OMEGA[:, None, None]
    z = (stiffness - w**2 * mass) + 1j * (w * damping)
    return rows @ np.linalg.solve(z, np.broadcast_to(rows.T.astype(complex), (LINES, *rows.T.shape)))


def reduced(mass: np.ndarray, damping: np.ndarray, stiffness: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """W with W^T M W = 1 of each machine, and damping and stiffness in those coordinates."""
    w = np.linalg.inv(np.linalg.cholesky(mass)).swapaxes(1, 2)
    return w, w.swapaxes(1, 2) @ damping @ w, w.swapaxes(1, 2) @ stiffness @ w


def by_eigenvalues(mass: np.ndarray, damping: np.ndarray, stiffness: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The same of many machines with any damping, by one eigenvalue problem of twice the size for each."""
    w, c, k = reduced(mass, damping, stiffness)
    size = rows.shape[1]
    state = np.zeros((len(mass), 2 * size, 2 * size))
    state[:, :size, size:], state[:, size:, :size], state[:, size:, size:] = np.eye(size), -k, -c
    s, shapes = np.linalg.eig(state)
    v = shapes[:, :size]
    scale = np.sum((c @ v + 2.0 * s[:, None] * v) * v, axis=1)
    return summed(1.0 / ((1j * OMEGA[:, None] - s[:, None]) * scale[:, None]), rows @ w @ v)


def by_modes(mass: np.ndarray, damping: np.ndarray, stiffness: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The same of machines with proportional damping, by one symmetric eigenvalue problem for each."""
    w, c, k = reduced(mass, damping, stiffness)
    square, v = np.linalg.eigh(k)
    viscous = np.sum(v * (c @ v), axis=1)
    return summed(1.0 / (square[:, None] - OMEGA[:, None] ** 2 + 1j * OMEGA[:, None] * viscous[:, None]), rows @ w @ v)


def summed(terms: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Of terms [machine, line, mode] and what the points see of each mode: the six different elements of H."""
    row, column = np.triu_indices(POINTS)
    return terms @ (seen[:, row] * seen[:, column]).swapaxes(1, 2)


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


def seconds(work: Callable[[], object], processor: Callable[[], float] = time.process_time) -> tuple[float, float]:
    """That a piece of work takes, elapsed and of the processor, of all threads where no other clock is given."""
    began, used = time.perf_counter(), processor()
    jax.block_until_ready(work())
    return time.perf_counter() - began, processor() - used


def timed_in_turn(ways: dict[str, tuple[int, Callable[[], object]]], repeats: int) -> dict[str, list[list[float]]]:
    """Elapsed and processor time of an evaluation by each way, so many at a time, of each repetition.

    Of two calls in a row the second is timed: the first finds the memory and the cache that another way has left. NumPy
    computes on the thread that calls; on all threads together, Linux now and then counts 4 ms of others with it.
    """
    for _, work in ways.values():
        seconds(work)
    times: dict[str, list[list[float]]] = {name: [] for name in ways}
    for _ in range(repeats):
        for name, (count, work) in ways.items():
            seconds(work)
            clock = time.thread_time if name.startswith("NumPy") else time.process_time
            times[name].append([each / count for each in seconds(work, clock)])
    return times


def measure(sizes: Sequence[int], repeats: int) -> dict[str, dict[str, list[list[float]]]]:
    """Elapsed and processor seconds of an evaluation by each way, for machines of each size.

    Raises:
        RuntimeError: two ways differ.
    """
    found = {}
    with threadpool_limits(1, user_api="blas"):
        for size in sizes:
            count = 256 if size <= 9 else 64 if size <= 18 else 32
            parts = machines(size, count)
            on_device = [jax.device_put(part) for part in parts]
            batch = (0, 0, 0, None, None)
            arguments = *on_device[:3], jax.device_put(OMEGA), on_device[3]
            own = jax.jit(jax.vmap(by_jaxmb, batch))
            in_jax = jax.jit(jax.vmap(by_elimination, batch))
            lapack = jax.jit(jax.vmap(by_lapack, batch))
            some = parts[0][:16], parts[1][:16], parts[2][:16], parts[3]
            first = parts[0][0], parts[1][0], parts[2][0], parts[3]
            expected = by_numpy(*first)
            pairs = expected[:, *np.triu_indices(POINTS)]
            checked = [(np.asarray(way(*arguments))[0], expected, 1e-11) for way in (own, in_jax, lapack)]
            checked += [(way(*some)[0], pairs, 1e-9) for way in (by_eigenvalues, by_modes)]
            for value, right, most in checked:
                error = np.abs(value - right).max() / np.abs(right).max()
                if error > most:
                    raise RuntimeError(f"n = {size}: a relative error of {error:.1e}")
            ways: dict[str, tuple[int, Callable[[], object]]] = {
                "jaxmb": (count, partial(own, *arguments)),
                "JAX's elimination": (count, partial(in_jax, *arguments)),
                PEER: (count, partial(lapack, *arguments)),
                "NumPy, solves": (1, partial(by_numpy, *first)),
                "NumPy, eigenvalues": (16, partial(by_eigenvalues, *some)),
                "NumPy, proportional damping": (16, partial(by_modes, *some)),
            }
            if size == 9:
                ways["jaxmb, value and Jacobian"] = count, partial(jax.jit(sums_of_derivatives), *on_device)
            found[str(size)] = timed_in_turn(ways, repeats)
    return found
