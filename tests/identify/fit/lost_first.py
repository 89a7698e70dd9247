"""The first process of a run that ends as soon as all have joined, and another that waits; for `test_devices`."""

import os
import time
from pathlib import Path

from jaxmb.cli.run_study import continue_in_child

continue_in_child(Path("state.npz"))

from jax.experimental import multihost_utils  # noqa: E402 - the process that JAX runs in is the child

from jaxmb.identify.fit.devices import is_first, join  # noqa: E402

join()
multihost_utils.sync_global_devices("all have joined")
print("joined", flush=True)
if is_first():
    os._exit(9)
time.sleep(60.0)
