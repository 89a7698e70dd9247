"""Distribution of candidates, starts and tests over all devices, including those of other processes of the run.

All processes of a run compute the same; the state of search and refinement is taken from the first, so that rounding on
different processors does not accumulate.
"""

import contextlib
import functools
import hashlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax._src import distributed  # the key-value store of the processes has no public name
from jax.experimental import multihost_utils
from jax.extend.core import Jaxpr, Literal
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmb.io.validation import InputError

POINTS_BYTES = 2**24
"""Memory of one block of points on a CPU: enough work for several threads; XLA takes less than this estimate. Blocks of
a sixteenth of this size, with idle threads, took a third longer and a tenth less processor time."""
FITS_BYTES = 0
"""The same of fits, which are sequential on a CPU: they need different numbers of steps, and a block takes as long as
if all of them needed the most."""
TESTS_BYTES = 2**20
"""The same of tests, over one more than the number of derivatives: larger ones exceed the cache of a core."""
DEVICE_SHARE = 0.25
"""Share of the memory of other devices for one block, as the use by XLA is only estimated."""
UNKNOWN_BYTES = 2**30
"""Memory of one block on a device of unknown memory."""


def block_memory(on_cpu: int) -> int:
    """Memory limit of the intermediate arrays of one block, bytes: the given one on a CPU, else a share of the
    device's."""
    if _on_cpu():
        return on_cpu
    limit = (jax.local_devices()[0].memory_stats() or {}).get("bytes_limit")
    return UNKNOWN_BYTES if limit is None else int(DEVICE_SHARE * limit)


def _on_cpu() -> bool:
    return jax.local_devices()[0].platform == "cpu"


def in_blocks(function: Callable[[Any], Any], points: Any, memory: int) -> Any:
    """`function` of every point, in blocks limited by memory.

    All blocks share one program: the last one is padded with the first point.

    Args:
        function: of one point; traced once.
        points: a pytree of arrays with the points along the first axis.
        memory: limit of the intermediate arrays of one block, bytes; 0 for sequential evaluation.
    """
    count, one = count_of(points), jax.jit(lambda point: function(point))  # a method may have no hash
    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), points)
    block = block_size(live_bytes(jax.make_jaxpr(one)(first).jaxpr), count, memory)
    if block == 1:  # of a single point only the selected branch of a conditional is computed
        return jax.lax.map(one, points)
    blocks, several = -(-count // block), jax.vmap(one)
    if blocks == 1:
        return several(points)

    def cut(x: Any) -> Any:
        x = jnp.asarray(x)
        filled = jnp.concatenate([x, jnp.broadcast_to(x[:1], (blocks * block - count, *x.shape[1:]))])
        return filled.reshape(blocks, block, *x.shape[1:])

    found = jax.lax.map(several, jax.tree.map(cut, points))
    return jax.tree.map(lambda x: x.reshape(blocks * block, *x.shape[2:])[:count], found)


def count_of(points: Any) -> int:
    """Number of points in a pytree of arrays with the points along the first axis."""
    return int(jax.tree.leaves(points)[0].shape[0])


def block_size(needed: int, count: int, memory: int) -> int:
    """Number of points of a block, equal for all blocks: at least one, else limited by memory, `needed` bytes each."""
    largest = max(1, min(count, memory // max(needed, 1)))
    return -(-count // -(-count // largest))


def live_bytes(program: Jaxpr) -> int:
    """Peak memory of the intermediate arrays of a program, bytes, each kept until its last use.

    XLA takes less where it fuses steps and more where it copies. Constants, shared by all points, are not counted.
    """
    used = [*(equation.invars for equation in program.eqns), program.outvars]
    last = {var: k for k, found in enumerate(used) for var in found if not isinstance(var, Literal)}
    live: dict[Any, int] = {}
    peak = 0
    for k, equation in enumerate(program.eqns):
        parameters = (getattr(part, "jaxpr", part) for part in jax.tree.leaves(list(equation.params.values())))
        inside = max((live_bytes(part) for part in parameters if isinstance(part, Jaxpr)), default=0)
        peak = max(peak, sum(live.values()) + inside)
        live |= {var: _bytes(var.aval) for var in equation.outvars}
        peak = max(peak, sum(live.values()))
        live = {var: size for var, size in live.items() if last.get(var, -1) > k}
    return peak


def _bytes(aval: Any) -> int:
    return int(aval.size) * int(aval.dtype.itemsize) if hasattr(aval, "dtype") else 0


AXIS = "points"
ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""Environment variables: host and port of the first process, number of processes, and number of this one."""
HEARTBEAT_S = 30
"""Seconds without a heartbeat after which a process counts as lost."""
INTERRUPTED_BY = "jaxmb/interrupted by"
"""Key of the number of the signal that one of the processes received."""
LOOK_EVERY_S = 0.25
TOGETHER_S = 2.0
"""Time for which an interrupted process waits for the others: the first one serves their requests."""
Tree = TypeVar("Tree")


@functools.lru_cache
def all_devices() -> Mesh | None:
    """Mesh of all devices of all processes; None for a single device."""
    devices = jax.devices()
    return None if len(devices) == 1 else Mesh(np.array(devices), (AXIS,))


def replicated(tree: Tree) -> Tree:
    """Arrays replicated on every device; unchanged for a single device. Every process must pass the same values."""
    mesh = all_devices()
    if mesh is None:
        return tree
    whole = NamedSharding(mesh, PartitionSpec())

    def put(leaf: Any) -> Any:
        if not eqx.is_array_like(leaf) or (isinstance(leaf, jax.Array) and leaf.sharding == whole):
            return leaf
        array = np.asarray(leaf)
        return jax.make_array_from_callback(array.shape, whole, lambda index: array[index])

    return jax.tree.map(put, tree)


def sharded(function: Callable[..., Any], points: Any, *same: Any) -> Any:
    """`function` of points sharded over the devices; in compiled functions.

    The last point is repeated so that all devices have equally many.

    Args:
        function: maps points to results along the first axis; it must not depend on their number.
        points: a pytree of arrays with the points along the first axis.
        same: further arguments, the same for all points. Differentiated arrays, and arrays that the function would
            otherwise capture, must be among them: within `jax.shard_map` JAX refuses some operations on captured
            arrays.
    """
    mesh = all_devices()
    if mesh is None:
        return function(points, *same)
    arrays, rest = eqx.partition(same, eqx.is_array)
    count, devices = count_of(points), mesh.size

    def dealt(x: Any) -> Any:  # neighbours to different devices, as points that end early are adjacent
        filled = jnp.concatenate([x, jnp.broadcast_to(x[-1:], (-count % devices, *x.shape[1:]))])
        return filled.reshape(-1, devices, *x.shape[1:]).swapaxes(0, 1).reshape(filled.shape)

    def collected(x: Any) -> Any:
        whole = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec()))
        return whole.reshape(devices, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)[:count]

    def own(points: Any, arrays: Any) -> Any:
        return function(points, *eqx.combine(arrays, rest))

    rows, whole = PartitionSpec(AXIS), PartitionSpec()
    each = jax.shard_map(own, mesh=mesh, in_specs=(rows, whole), out_specs=rows, check_vma=False)
    return jax.tree.map(collected, each(jax.tree.map(dealt, points), arrays))


def from_first_device(tree: Tree) -> Tree:
    """Arrays of the first device on all devices; in compiled functions, where all devices compute the same.

    A loop with collective operations must continue on all devices or none, and rounding differs between processors.
    """
    mesh = all_devices()
    if mesh is None:
        return tree

    def of_first(x: Any) -> Any:
        counted = x.astype(jnp.int32) if x.dtype == bool else x
        return jax.lax.psum(jnp.where(jax.lax.axis_index(AXIS) == 0, counted, 0), AXIS).astype(x.dtype)

    whole = PartitionSpec()
    first = functools.partial(jax.tree.map, of_first)
    return jax.shard_map(first, mesh=mesh, in_specs=whole, out_specs=whole, check_vma=False)(tree)


def join() -> None:
    """Join the processes of a run, before JAX computes: automatic under SLURM or Open MPI, elsewhere by the environment
    variables `ADDRESS`, `COUNT` and `NUMBER`.

    Raises:
        ValueError: the number of processes is unknown, or the others do not connect.
    """
    address, count, number = (os.environ.get(name) for name in (ADDRESS, COUNT, NUMBER))
    try:
        known, own = (None if text is None else int(text) for text in (count, number))
        # this service waits for programs that poll it, and keeps SIGTERM from ending others
        jax.config.update("jax_enable_preemption_service", False)
        jax.distributed.initialize(address, known, own, heartbeat_timeout_seconds=HEARTBEAT_S)
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"this process cannot join a run ({reason}): expected to be started by SLURM or Open MPI, or with"
            f" {ADDRESS}, {COUNT} and {NUMBER} in the environment"
        ) from None


def interrupt_all(number: int) -> bool:
    """Send the number of a signal to `wait_for_interruption` in every process; returns whether they are reachable."""
    client = distributed.global_state.client
    if client is None:
        return False
    try:
        client.key_value_set(INTERRUPTED_BY, str(number), allow_overwrite=True)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def wait_for_interruption() -> int | None:
    """Number of the signal received by a process of this run, once all of them know it; None at the run's end."""
    while (client := distributed.global_state.client) is not None:
        try:
            number = int(client.key_value_try_get(INTERRUPTED_BY))
        except jax.errors.JaxRuntimeError as error:
            if "NOT_FOUND" not in str(error):
                return None
            time.sleep(LOOK_EVERY_S)
            continue
        with contextlib.suppress(jax.errors.JaxRuntimeError):  # a process that hangs or is lost
            client.wait_at_barrier(INTERRUPTED_BY, int(1000 * TOGETHER_S))
        if is_first():
            time.sleep(LOOK_EVERY_S)  # until its answers are sent
        return number
    return None


def is_first() -> bool:
    """Whether this is the process that writes files and reports."""
    return distributed.global_state.process_id == 0  # also while JAX is still busy finding its devices


def from_first_process(tree: Tree) -> Tree:
    """Numbers and arrays of the first process; NumPy arrays where there are others.

    All processes must call it, with the same shapes.
    """
    if jax.process_count() == 1:
        return tree
    found = multihost_utils.broadcast_one_to_all(jax.tree.map(np.asarray, tree))
    return jax.tree.map(lambda x, y: type(x)(y) if isinstance(x, bool | int | float) else np.asarray(y), tree, found)


def check_shared(path: Path) -> None:
    """Raise InputError where a file differs between this process and the first one, or exists for one of them only.

    All processes must call it.
    """
    if jax.process_count() == 1:
        return
    content = path.read_bytes() if path.exists() else b"none"
    own = np.frombuffer(hashlib.sha256(content).digest(), dtype=np.uint8)
    if not np.array_equal(from_first_process(own.copy()), own):
        raise InputError(
            f"{path}: process {jax.process_index()} sees another file than process 0, expected a folder that all"
            " processes share"
        )
