"""The command `jaxmb` as a process of its own, also as `python -m jaxmb`."""

import atexit
import gc
import os
import sys
import warnings

from jaxmb import runtime
from jaxmb.cli import main
from jaxmb.cli.console import printable, say

GC_THRESHOLD = 1_000_000
"""New objects between garbage collections. Imports and traces create this many permanent objects; with Python's default
of 700, collection takes a tenth of a command's time."""
OUTPUT_FAILED = 120
"""Exit code where the output could not be written, the same as Python's."""


def run() -> None:
    """Run the command and exit without deallocating its objects, which takes time and has no effect."""
    gc.set_threshold(GC_THRESHOLD, 30, 30)
    runtime.keep_exports()
    os.environ.setdefault("MUJOCO_GL", "disable")  # machines are written for MuJoCo, not drawn by it
    default = warnings.formatwarning
    warnings.formatwarning = lambda *arguments: printable(default(*arguments))
    code = main()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        code = say(f"the output cannot be written: {error.strerror or error}", OUTPUT_FAILED)
    os._exit(code)


if __name__ == "__main__":
    run()
