"""Candidates, starts and postures shared out over all devices, including those of the run's other processes.

Every process of a run does the same; the state of search and refinement is taken from the first, so that processors of
different make do not part.
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
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxmb.identify.fit.blocks import count_of
from jaxmb.io.validation import InputError

AXIS = "points"
ADDRESS, COUNT, NUMBER = "JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"
"""Environment variables: host and port of the first process, how many there are, and which one this is."""
HEARTBEAT_S = 30
"""After so many seconds without a sign of life a process is taken for lost."""
INTERRUPTED_BY = "jaxmb/interrupted by"
"""Key under which all processes find the number of the signal that one of them received."""
LOOK_EVERY_S = 0.25
TOGETHER_S = 2.0
"""For which an interrupted process waits until all others know: the first one serves what they ask."""
Tree = TypeVar("Tree")


@functools.lru_cache
def all_devices() -> Mesh | None:
    """All devices of all processes in a row; None where there is one."""
    devices = jax.devices()
    return None if len(devices) == 1 else Mesh(np.array(devices), (AXIS,))


def everywhere(tree: Tree) -> Tree:
    """Arrays on every device; as they are where there is one. The same numbers are given by every process."""
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


def more_postures(points: int, postures: int) -> bool:
    """Whether so many postures, of each point, keep more devices busy than so many points do."""
    mesh = all_devices()
    return mesh is not None and min(points, mesh.size) < min(postures, mesh.size)


def shared_out(function: Callable[..., Any], points: Any, filler: Any, *same: Any) -> Any:
    """`function` of points, each device with its share of them; in compiled functions.

    Args:
        function: of some points, to what has as many along the first axis. It must not depend on how many there are.
        points: a pytree of arrays with the points along the first axis.
        filler: one point more, for devices that would have fewer than others.
        same: further arguments, the same for all points; what is differentiated has to be among them, and arrays that
            the function would else find around it: within `jax.shard_map` JAX refuses some operations on those.
    """
    mesh = all_devices()
    if mesh is None:
        return function(points, *same)
    arrays, rest = eqx.partition(same, eqx.is_array)
    count, devices = count_of(points), mesh.size
    missing = -count % devices

    def filled(x: Any, one: Any) -> Any:
        return jnp.concatenate([x, jnp.broadcast_to(one, (missing, *x.shape[1:]))])

    def dealt(x: Any) -> Any:  # neighbours to different devices: what ends early is together
        return x.reshape(-1, devices, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)

    def collected(x: Any) -> Any:
        whole = jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec()))
        return whole.reshape(devices, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x.shape)[:count]

    def own(points: Any, arrays: Any) -> Any:
        return function(points, *eqx.combine(arrays, rest))

    rows, whole = PartitionSpec(AXIS), PartitionSpec()
    each = jax.shard_map(own, mesh=mesh, in_specs=(rows, whole), out_specs=rows, check_vma=False)
    return jax.tree.map(collected, each(jax.tree.map(lambda x, y: dealt(filled(x, y)), points, filler), arrays))


def agreed(tree: Tree) -> Tree:
    """Arrays as the first device has them; in compiled functions, where all devices compute the same.

    A loop that has all of them compute together must go on for all or none, and rounding differs between processors.
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
    """Become one of the processes of a run, before JAX computes: under SLURM or Open MPI without more; elsewhere by
    what the environment says (`ADDRESS`, `COUNT`, `NUMBER`).

    Raises:
        ValueError: neither says how many processes there are, or the others do not come.
    """
    address, count, number = (os.environ.get(name) for name in (ADDRESS, COUNT, NUMBER))
    try:
        known, own = (None if text is None else int(text) for text in (count, number))
        # which waits for programs that ask whether they are to end, and keeps SIGTERM from ending others
        jax.config.update("jax_enable_preemption_service", False)
        jax.distributed.initialize(address, known, own, heartbeat_timeout_seconds=HEARTBEAT_S)
    except (ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(
            f"this process cannot join a run ({reason}): expected to be started by SLURM or Open MPI, or with"
            f" {ADDRESS}, {COUNT} and {NUMBER} in the environment"
        ) from None


def interrupt_all(number: int) -> bool:
    """Have `wait_for_interruption` return the number of a signal in every process; whether they can be reached."""
    client = distributed.global_state.client
    if client is None:
        return False
    try:
        client.key_value_set(INTERRUPTED_BY, str(number), allow_overwrite=True)
    except jax.errors.JaxRuntimeError:
        return False
    return True


def wait_for_interruption() -> int | None:
    """The number of the signal that a process of this run received, once all of them know it; None at the run's end."""
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
    """Whether this is the process that writes and speaks for all."""
    return distributed.global_state.process_id == 0  # also while JAX is still busy finding its devices


def from_first(tree: Tree) -> Tree:
    """A tree of numbers and arrays as the first process has it; arrays as those of NumPy where there are others.

    All processes have to call it, with the same shapes.
    """
    if jax.process_count() == 1:
        return tree
    found = multihost_utils.broadcast_one_to_all(jax.tree.map(np.asarray, tree))
    return jax.tree.map(lambda x, y: type(x)(y) if isinstance(x, bool | int | float) else np.asarray(y), tree, found)


def check_shared(path: Path) -> None:
    """Raise InputError where this process does not see the file that the first one sees, or sees that it is not there.

    All processes have to call it.
    """
    if jax.process_count() == 1:
        return
    content = path.read_bytes() if path.exists() else b"none"
    own = np.frombuffer(hashlib.sha256(content).digest(), dtype=np.uint8)
    if not np.array_equal(from_first(own.copy()), own):
        raise InputError(
            f"{path}: process {jax.process_index()} sees another file than process 0, expected a folder that all"
            " processes share"
        )
