"""The end of a process of a distributed run where another one is lost: with a sentence and `ALONE`, whoever noticed."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from jaxmb.cli.console import ALONE, say

LOST = (
    "another process of this run ended or is out of reach: start all of them again, with --resume to go on from the"
    " saved state where there is one"
)


@contextmanager
def with_others() -> Iterator[None]:
    """Computation in common: where another process is lost this one ends, since nothing that waits for all would."""
    import jax

    try:
        yield
    except jax.errors.JaxRuntimeError:
        if jax.process_count() == 1:
            raise
        say(LOST, ALONE)
        os._exit(ALONE)


def go_on_watched() -> None:
    """Go on in a child process, which this one waits for, and ends as it ends.

    All processes report to the first one. Where that is lost, JAX aborts the others from a thread of its own, which
    nothing within them can keep from it or say anything after. To be called before JAX is imported; it does nothing
    where processes cannot be forked.
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


def _watch(child: int) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal interrupts both
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: os.kill(child, received))
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGABRT:
        code = say(LOST, ALONE)
    os._exit(code if code >= 0 else 128 - code)


def _end_with_watcher(pipe: int) -> None:
    """No process stays behind whose watcher was killed."""
    os.read(pipe, 1)
    os._exit(ALONE)
