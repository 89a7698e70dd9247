"""The end of a process of a distributed run where another one is lost or interrupted: with a sentence and an exit code.

The main thread of a process may wait for the others in compiled code, where Python handles no signal. So threads do.
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
    "another process of this run ended or is out of reach: start all of them again, with --resume to go on from the"
    " saved state where there is one"
)
JOINING_S = 4.0
"""For which a process that is interrupted while it starts waits until it has joined the others and can notify them."""
LISTENING_S = 1.0
"""Before another process is called lost: if it was interrupted, `_end_with_interrupted` ends this one as well."""
_joined = threading.Event()


@contextmanager
def with_others() -> Iterator[None]:
    """Computation in common: where another process is lost this one ends, since nothing that waits for all would."""
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
    """Go on in a child process, which this one waits for, and ends as it ends.

    All processes report to the first one. Where that is lost, JAX aborts the others from a thread of its own, which
    nothing within them can keep from it or say anything after. To be called before JAX is imported; it does nothing
    where processes cannot be forked.

    Args:
        state: file of the saved state, for the sentence about an interruption.
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
    """Become one of the processes of a run, and end with the others where one of them is interrupted.

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
    """No process stays behind whose watcher was killed."""
    os.read(pipe, 1)
    os._exit(ALONE)


def _end_by_signal(received: int, state: Path) -> None:
    """Have all processes of the run end, or this one where it cannot reach the others."""
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
