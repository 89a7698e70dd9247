"""Largest change of a standard deviation while one draw of errors grows in small steps.

    python experiments/uncertainty/growing.py [--draws 2] [--kind KIND] [CASE ...]

Errors of a kind, drawn once, are scaled from a quarter to eight times their tolerances by steps of 1.4; the noise stays
the same. Where a hypothesis is accepted or rejected, or the effect of errors stops to count as linear, no standard
deviation should change by more than a factor of 3. Printed for each kind: the largest factor between neighbouring
studies and where it occurs, and from which size of the errors on the data count as not followed, without standard
deviations.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from run import CASES, Errors, all_tolerances

import jaxmb
from jaxmb.studies import make_study

STEP = 1.4
SCALES = 0.25 * STEP ** np.arange(11)


def deviations(name: str, kind: str, draw: int) -> Iterator[dict[str, float]]:
    """Standard deviations at each scale of one draw."""
    stated = {key: (value if kind in (key, "all") else 0.0) for key, value in all_tolerances().items()}
    for scale in SCALES:
        rng = np.random.default_rng([draw, *kind.encode()])
        with tempfile.TemporaryDirectory() as folder:
            file, _ = CASES[name].study(Path(folder), Errors(kind, rng, float(scale)), rng)
            result = jaxmb.identify(make_study(file | {"tolerances": stated}, "growing", folder))
        yield {key: p.std_log if np.isfinite(p.std_log) else p.std for key, p in result.parameters.items()}


def main() -> None:
    """Print a line for each case and kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", default=["frf-3r", "modes-3r", "deflections-kr240", "torques-arm"])
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--kind", default=None)
    given = parser.parse_args()
    for name in given.cases:
        for kind in CASES[name].kinds if given.kind is None else (given.kind,):
            for draw in range(given.draws):
                found = list(deviations(name, kind, draw))
                names = [key for key, value in found[0].items() if np.isfinite(value)]
                std = np.array([[each[key] for key in names] for each in found])
                known = np.isfinite(std).all(axis=1)
                with np.errstate(invalid="ignore", divide="ignore"):
                    factors = np.exp(np.abs(np.diff(np.log(std), axis=0)))
                factors = np.where(np.isfinite(factors), factors, 1.0)
                i, k = np.unravel_index(np.argmax(factors), factors.shape)
                end = "" if known.all() else f", not followed from {SCALES[np.argmin(known)]:.2g}"
                where = f"{names[k]} between {SCALES[i]:.2g} and {SCALES[i + 1]:.2g} tolerances"
                print(f"{name:18s} {kind:22s} {draw}: {factors[i, k]:6.2f} {where}{end}", flush=True)


if __name__ == "__main__":
    main()
