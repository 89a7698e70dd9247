"""End of a process of a distributed run with a message and an exit code when another one is lost or interrupted.

The main thread may wait for other processes in compiled code, where Python handles no signals: threads handle them.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from jaxmb.cli.console import ALONE, say, say_interrupted

LOST = (
    "another process of this run ended or cannot be reached: restart all of them, with --resume to continue from the"
    " saved state if there is one"
)
JOINING_S = 4.0
"""Time that a process interrupted during its start waits until it has joined the others and can notify them, s."""
LISTENING_S = 1.0
"""Delay before another process is reported lost, s: if it was interrupted, `_end_with_interrupted` ends this one."""
_joined = threading.Event()


@contextmanager
def with_others() -> Iterator[None]:
    """Context of a collective computation: ends this process if another one is lost, as it would wait forever."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError:
        if jax.process_count() == 1:
            raise
        time.sleep(LISTENING_S)
        say(LOST, ALONE)
        os._exit(ALONE)


def go_on_watched(state: Path) -> None:
    """Continue in a child process; this one waits for it and exits with its exit code.

    JAX aborts all processes when the first one is lost, from a thread of its own and without a message; the parent
    prints it. Call this before JAX is imported. It does nothing on platforms without fork.

    Args:
        state: file of the saved state, for the message about an interruption.
    """
    if not hasattr(os, "fork"):
        return
    sys.stdout.flush()
    sys.stderr.flush()
    ours, watchers = os.pipe()
    child = os.fork()
    if child:
        _watch(child)
    os.close(watchers)
    threading.Thread(target=_end_with_watcher, args=(ours,), daemon=True).start()
    received, noted = os.pipe()
    os.set_blocking(noted, False)
    signal.set_wakeup_fd(noted)
    for number in _ending():
        signal.signal(number, lambda *_: None)
    threading.Thread(target=_end_by_signal, args=(received, state), daemon=True).start()


def join_others(state: Path) -> None:
    """Join a distributed run; this process ends with the others when one of them is interrupted.

    Args:
        state: as in `go_on_watched`.

    Raises:
        ValueError: see `jaxmb.identify.fit.devices.join`.
    """
    from jaxmb.identify.fit.devices import join

    join()
    threading.Thread(target=_end_with_interrupted, args=(state,), daemon=True).start()
    _joined.set()


def _ending() -> tuple[signal.Signals, ...]:
    return signal.SIGINT, signal.SIGTERM, signal.SIGHUP


def _watch(child: int) -> NoReturn:
    for number in _ending():
        signal.signal(number, lambda received, _: os.kill(child, received))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGABRT:
        code = say(LOST, ALONE)
    os._exit(code if code >= 0 else 128 - code)


def _end_with_watcher(pipe: int) -> None:
    """End this process when its watcher was killed."""
    os.read(pipe, 1)
    os._exit(ALONE)


def _end_by_signal(received: int, state: Path) -> None:
    """End all processes of the run, or this one if it cannot reach the others."""
    number = os.read(received, 1)[0]
    if _joined.wait(JOINING_S):
        from jaxmb.identify.fit.devices import interrupt_all

        if interrupt_all(number):
            return  # `_end_with_interrupted` ends this process too
    os._exit(say_interrupted(state, number))


def _end_with_interrupted(state: Path) -> None:
    from jaxmb.identify.fit.devices import is_first, wait_for_interruption

    number = wait_for_interruption()
    if number is not None:
        os._exit(say_interrupted(state if is_first() else None, number))
