"""A fit on all devices of this process, and of others where the environment says so; for `test_devices`."""

import json
import os
import sys
from pathlib import Path

from jaxmb.cli.other_processes import with_others
from jaxmb.identify.fit.devices import NUMBER, join
from jaxmb.identify.fit.loop import run_fit
from tests.identify.arm import frf, study_of

SEARCH = {"algorithm": "SimpleGA", "population": 13, "generations": 10}


def spread_study(folder):
    """Five starts behind a search of 13 candidates: neither is a multiple of the number of devices."""
    test = frf(noise=0.01, noise_log_std=0.01)
    return study_of(folder, test, start="random", rounds=1, refine={"starts": 5}, search=SEARCH)


def found(study):
    """What the fit of a study ends with."""
    fit = run_fit(study.problem, study.settings, study.start, 7)
    return {"u": fit.best_u.tolist(), "cost": fit.best, "search": fit.search_evaluations, "ends": len(fit.minima)}


def main(folder):
    """Print what was found; then the second process ends, and the first one has to notice."""
    if NUMBER in os.environ:
        join()
    study = spread_study(folder)
    print(json.dumps(found(study)), flush=True)
    if os.environ.get(NUMBER) == "1":
        os._exit(9)
    if NUMBER in os.environ:
        with with_others():
            while True:
                found(study)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
