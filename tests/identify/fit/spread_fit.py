"""A fit on all devices of this process, and of others where the environment says so; for `test_devices`."""

import json
import os
import sys
from pathlib import Path

from jaxmb.cli.run_study import collective
from jaxmb.identify.fit.devices import NUMBER, join
from jaxmb.identify.fit.loop import run_fit
from jaxmb.identify.fit.problem import with_tests_sharded
from tests.identify.arm import FREE, TRUTH, frf, study_of

SEARCH = {"algorithm": "SimpleGA", "population": 13, "generations": 10}


def spread_study(folder):
    """Five starts behind a search of 13 candidates: neither is a multiple of the number of devices."""
    test = frf(noise=0.01, noise_log_std=0.01)
    return study_of(folder, test, start="random", rounds=1, refine={"starts": 5}, search=SEARCH)


def posture_study(folder):
    """One start of nine postures: no multiple of the number of devices, and more than there are starts."""
    tests = [frf(b=0.1 + 0.15 * k, noise=0.01, seed=k, noise_log_std=0.01) for k in range(9)]
    free = {name: part | {"initial": 1.3 * TRUTH[name.replace("*", "a")]} for name, part in FREE.items()}
    return study_of(folder, *tests, free=free, rounds=1, refine={"starts": 1, "coarse_lines": 0})


def simplex_study(folder):
    """What every process computes by itself; the second one with data of its own, as rounding of another make."""
    other = 1e-6 if os.environ.get(NUMBER) == "1" else 0.0
    return study_of(folder, frf(noise=0.01 + other, noise_log_std=0.01), rounds=1, refine={"method": "nelder-mead"})


def found(study):
    """What the fit of a study ends with, and whether its postures were shared out."""
    fit = run_fit(study.problem, study.settings, study.start, 7)
    spread = with_tests_sharded(study.problem, study.settings.refine.starts).tests_sharded
    return {"u": fit.best_u.tolist(), "cost": fit.best, "search": fit.search_evaluations, "ends": len(fit.minima),
            "spread": spread}  # fmt: skip


def found_in(folder):
    """What the studies end with."""
    studies = {"points": spread_study, "postures": posture_study, "simplex": simplex_study}
    return {kind: found(study(folder)) for kind, study in studies.items()}


def main(folder):
    """Print what was found; then the second process ends, and the first one has to notice."""
    if NUMBER in os.environ:
        join()
    print(json.dumps(found_in(folder)), flush=True)
    if os.environ.get(NUMBER) == "1":
        os._exit(9)
    if NUMBER in os.environ:
        study = spread_study(folder)
        with collective():
            while True:
                found(study)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
