"""Which postures to measure next: bounds of one posture, random sets, greedy choices, and the gradient, on the KR90."""

import argparse
import dataclasses
import time
import tomllib
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxmb
from jaxmb.estimation import identifiability
from jaxmb.plan import (
    Candidate,
    NextPart,
    NextTests,
    OperatingPoint,
    choose_tests,
    criterion_of,
    information_of,
    planned,
    postures_of,
)

REFERENCE = Path(__file__).parents[2] / "tests" / "reference" / "huynh2020_kr90.toml"
RANGES = {"z1": ["-90 deg", "90 deg"], "z2": ["20 deg", "110 deg"], "z3": ["-130 deg", "-20 deg"]}
LIMIT = 0.1
"""Standard deviation of a log-parameter below which it is called identifiable."""


def study(last_hz: float, **asked: object) -> jaxmb.Study:
    """The published posture, all nine FRFs at the tool, 1 % noise, lines every 0.5 Hz from 1 Hz."""
    test = {
        "kind": "frf",
        "name": "milling posture",
        "simulate": {"lines": {"first_hz": 1.0, "last_hz": last_hz, "step_hz": 0.5}},
        "posture": {"z1": "0 deg", "z2": "70 deg", "z3": "-100 deg"},
        "noise_log_std": 0.01,
    }
    free = {"stiffness.*": {"lower": 1e5, "upper": 1e9}, "damping.*": {"lower": 1.0, "upper": 1e5}}
    data: dict[str, Any] = {"machine": "kuka-kr90", "test": [test], "free": free, "next": {"postures": RANGES, **asked}}
    return jaxmb.make_study(data, f"kr90 to {last_hz:g} Hz")


def bounds() -> None:
    """Predicted standard deviations against those known for one posture."""
    known = tomllib.loads(REFERENCE.read_text())
    names = [f"{family}.{item}" for family in ("stiffness", "damping") for item in known["order"]]
    for case in ("one_posture_30hz", "one_posture_100hz"):
        one = study(known[case]["last_hz"])
        found = jaxmb.inspect(dataclasses.replace(one, next=None)).parameters
        error = [found[n].relative_std / std - 1.0 for n, std in zip(names, known[case]["std_log"], strict=True)]
        print(f"{case}: largest difference from the bound {max(map(abs, error)):.1e}")


class Pool:
    """What postures tell, for one band."""

    def __init__(self, last_hz: float) -> None:
        """For lines up to the given frequency."""
        one = study(last_hz)
        self.study = one
        u = one.free.encode(np.array([one.truth[name] for name in one.free.names]))
        self.place = OperatingPoint(one.model, one.free, jnp.asarray(u))
        self.probe, self.q = planned(one.tests[0])
        self.published = self.told(self.q[None])[0]

    def told(self, postures: np.ndarray) -> np.ndarray:
        """Rows of each posture."""
        return information_of(self.place, [Candidate(self.probe, q) for q in postures])

    def random(self, count: int, seed: int) -> np.ndarray:
        """Rows of random postures."""
        part = NextPart.model_validate({"postures": RANGES, "candidates": count, "seed": seed})
        return self.told(postures_of(part, self.q, self.study.model))


def worst(rows: np.ndarray) -> float:
    """Largest standard deviation of a parameter after tests [test, row, parameter]."""
    flat = rows.reshape(-1, rows.shape[-1])
    return float(identifiability(flat, np.ones(len(flat))).std.max())


def eight_postures(pool: Pool, sets: int, seeds: int) -> None:
    """The published posture and seven more, up to 100 Hz: at random, and chosen."""
    drawn = pool.random(7 * sets, seed=1000).reshape(sets, 7, *pool.published.shape)
    found = np.array([worst(np.concatenate([pool.published[None], rows])) for rows in drawn])
    print(
        f"eight random postures, {sets} sets: worst parameter {found.min():.3f} to {found.max():.3f},"
        f" median {np.median(found):.3f}, below {LIMIT} in {np.sum(found < LIMIT)}"
        f" ({100 * np.mean(found < LIMIT):.0f} %)"
    )
    for criterion in ("A", "D"):
        found = []
        for seed in range(seeds):
            told = pool.random(200, seed)
            design = choose_tests(told, 7, criterion, made=pool.published)
            found.append(worst(np.concatenate([pool.published[None], told[list(design.chosen)]])))
        print(
            f"eight postures, seven chosen out of 200 ({criterion}), {seeds} seeds: worst parameter"
            f" {min(found):.4f} to {max(found):.4f}, below {LIMIT} in {np.sum(np.array(found) < LIMIT)}"
        )


def four_postures(pool: Pool, last_hz: float, seeds: int) -> None:
    """Four more postures out of 200: chosen, against 100 random fours, and improved by gradient."""
    for seed in range(seeds):
        began = time.perf_counter()
        found = jaxmb.inspect(study(last_hz, count=4, seed=seed)).next
        seconds = time.perf_counter() - began
        if not isinstance(found, NextTests):
            raise RuntimeError("nothing was chosen")
        told = pool.random(200, seed)
        draw = np.random.default_rng(seed)
        fours = [told[draw.choice(200, 4, replace=False)].reshape(-1, 18) for _ in range(100)]
        best = min(criterion_of("A", np.concatenate([pool.published, rows])) for rows in fours)
        print(
            f"{last_hz:g} Hz, seed {seed}: sum of variances {found.before:.5g} before, {best:.5g} best of 100 random,"
            f" {found.chosen:.5g} chosen, {found.improved:.5g} improved by gradient"
            f" ({100 * (1 - found.improved / found.chosen):.0f} % less), inspect {seconds:.1f} s",
            flush=True,
        )


def main() -> None:
    """Run all and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=200, help="random sets of eight postures")
    parser.add_argument("--seeds", type=int, default=10, help="sets of candidates")
    options = parser.parse_args()
    bounds()
    wide = Pool(100.0)
    eight_postures(wide, options.sets, options.seeds)
    four_postures(Pool(30.0), 30.0, options.seeds)
    four_postures(wide, 100.0, options.seeds)


if __name__ == "__main__":
    main()
