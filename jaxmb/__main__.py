"""The command `jaxmb` as a process of its own, also as `python -m jaxmb`."""

import atexit
import gc
import os
import sys
import warnings

from jaxmb.cli import main
from jaxmb.cli.console import printable, say

COLLECT_AFTER = 200_000
"""New objects between two rounds of garbage collection. Imports and JAX's traces make as many that stay: looking
through them again and again, as Python does after 700, takes a tenth of a command's time."""
NOT_SAID = 120
"""Exit code where the output could not be written, as Python's own."""


def run() -> None:
    """Run the command and end the process at once: taking hundred thousands of objects apart helps nobody."""
    gc.set_threshold(COLLECT_AFTER, 30, 30)
    default = warnings.formatwarning
    warnings.formatwarning = lambda *arguments: printable(default(*arguments))
    code = main()
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError as error:
        code = say(f"the output cannot be written: {error.strerror or error}", NOT_SAID)
    os._exit(code)


if __name__ == "__main__":
    run()
