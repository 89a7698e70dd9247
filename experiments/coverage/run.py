"""How often 95 % intervals hold the true value, for the ways in which tests say how large their noise is.

    python experiments/coverage/run.py [--draws 200] [--out results/coverage] [WAY ...]

The 3R manipulator of Huynh et al. 2020, section 4.1: stiffness and damping of its three joints, 1.5 % of noise on every
line of its FRFs, drawn anew for each fit. A fit starts at the study's initial values, a factor of two and more away.
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import kstest

import jaxmb
from jaxmb.results import versions
from jaxmb.studies import study_data

NOISE = 0.015
LINES = {"first_hz": 1.0, "last_hz": 40.0, "step_hz": 0.5}
POSTURES = (
    {}, {"z1": "40 deg"}, {"z2": "60 deg"}, {"z3": "-70 deg"}, {"z1": "-30 deg", "z2": "20 deg"},
    {"z2": "-45 deg", "z3": "50 deg"}, {"z1": "15 deg", "z3": "35 deg"}, {"z2": "80 deg", "z3": "-20 deg"},
)  # fmt: skip


def frf(posture: int = 0, lines: dict[str, float] = LINES, **changes: Any) -> dict[str, Any]:
    """An FRF test of the study with noise that is stated as it is."""
    (test,) = study_data("validation-3r")["test"]
    posture_of = test["posture"] | POSTURES[posture]
    simulate = test["simulate"] | {"lines": lines, "noise_log_std": NOISE}
    return test | {"posture": posture_of, "simulate": simulate, "noise_log_std": NOISE, "name": f"{posture}"} | changes


def deflections(posture: int, **changes: Any) -> dict[str, Any]:
    """Deflections under a load along each axis of the tool, by a tracker."""
    return {"kind": "deflection", "name": f"loads {posture}"} | changes


COARSE = {"first_hz": 6.0, "last_hz": 26.0, "step_hz": 4.0}
ONE = {"outputs": [["tool", "y"]], "inputs": [["tool", "y"]]}
WAYS: dict[str, Callable[[], list[dict[str, Any]]]] = {
    "stated": lambda: [frf()],
    "estimated": lambda: [frf(noise_log_std="estimate")],
    "mirrored (upper)": lambda: [frf(symmetrize="upper")],
    "mirrored (lower)": lambda: [frf(symmetrize="lower")],
    "mean of pairs": lambda: [frf(symmetrize="mean")],
    "mirrored, estimated": lambda: [frf(symmetrize="upper", noise_log_std="estimate")],
    "two tests of different size": lambda: [frf(0), frf(1, COARSE)],
    "eight tests of 12 rows": lambda: [frf(p, COARSE | {"last_hz": 26.0}, **ONE) for p in range(8)],
    "two mirrored tests": lambda: [frf(0, symmetrize="upper"), frf(2, symmetrize="upper")],
}


class Outcome(NamedTuple):
    """What the fits of one way gave."""

    covered: dict[str, float]
    """Share of the fits whose 95 % interval holds the true value, by parameter."""
    ratio: float
    """Scatter of the values over the stated standard deviation, root mean square over the parameters."""
    alarms: float
    """Share of the fits that are said not to follow data which they do follow."""
    p_uniform: float | None
    """KS probability of the p-values of the test of one model, where there are several tests."""


def outcome(tests: list[dict[str, Any]], draws: int) -> Outcome:
    """Fit tests with as many draws of their noise."""
    data = study_data("validation-3r") | {"test": tests}
    inside, errors, alarms, p = [], [], [], []
    for seed in range(draws):
        study = jaxmb.make_study(data, "coverage", noise_seed=1000 + seed)
        result = jaxmb.identify(study, seed=seed)
        found = result.parameters
        ends = [(found[n].interval_95 or (-np.inf, np.inf), true) for n, true in study.truth.items() if n in found]
        inside.append([low <= true <= high for (low, high), true in ends])
        errors.append(
            [np.log(found[n].value / true) / found[n].std_log for n, true in study.truth.items() if n in found]
        )
        alarms.append(any("times what the noise alone gives" in remark for remark in result.remarks))
        one = result.metrics.one_model
        if one is not None and one.separate.p is not None and len(tests) > 1:
            p.append(one.separate.p)
    names = [name for name in study.truth if name in found]
    return Outcome(
        dict(zip(names, np.mean(inside, axis=0).tolist(), strict=True)),
        float(np.sqrt(np.mean(np.square(errors)))),
        float(np.mean(alarms)),
        float(kstest(p, "uniform").pvalue) if p else None,
    )


def main() -> None:
    """Fit every way, print a line for each, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--out", type=Path, default=Path("results/coverage"))
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"some of {', '.join(WAYS)}; all where none is named")
    options = parser.parse_args()
    print(f"{'':30s}{'covered %, least and greatest':>32s}{'scatter / std':>15s}{'alarms %':>10s}{'KS p':>8s}")
    found = {}
    for way in options.ways or WAYS:
        found[way] = one = outcome(WAYS[way](), options.draws)
        share = 100.0 * np.array(list(one.covered.values()))
        covered = f"{share.mean():.1f} ({share.min():.1f} to {share.max():.1f})"
        p = "" if one.p_uniform is None else f"{one.p_uniform:.2g}"
        print(f"{way:30s}{covered:>32s}{one.ratio:>15.2f}{100.0 * one.alarms:>10.1f}{p:>8s}", flush=True)
    options.out.mkdir(parents=True, exist_ok=True)
    text = {"draws": options.draws, "versions": versions(), "ways": {way: one._asdict() for way, one in found.items()}}
    (options.out / "coverage.json").write_text(json.dumps(text, indent=1))


if __name__ == "__main__":
    main()
