"""How often results name two errors of the description that are made at once.

    python experiments/mistakes/pairs.py [--draws 2] [--seed 0]

The study of `run.py` with its noise stated. Of each pair of six kinds of errors some sizes are drawn.
"""

import argparse
import copy
import dataclasses
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from run import MACHINE, NOISE, Measured, column, description, fitted, heavier, late, loaded, study

import jaxmb
from jaxmb.fitting import with_tests


class Wrong(NamedTuple):
    """One error: of the machine, of the posture of the second test [deg], or of the data of some tests."""

    expected: str
    """What the text of the named error contains."""
    truth: Any = None
    posture: tuple[str, float] | None = None
    how: Measured | None = None
    tests: tuple[int, ...] = ()
    locked: str = ""


def kinds() -> dict[str, Callable[[np.random.Generator], Wrong]]:
    """Errors of a drawn size, by kind."""
    every = (0, 1, 2)

    def factor(draw: np.random.Generator) -> float:
        return float(draw.choice([0.8, 1.1, 1.3, 3.0]))

    def milliseconds(draw: np.random.Generator) -> float:
        return float(draw.choice([0.5, 2.0, 5.0]))

    def angle(draw: np.random.Generator) -> Wrong:
        joint = str(draw.choice(["z2", "z3"]))
        return Wrong(f"of {joint} in the posture of test 'p1'", posture=(joint, float(draw.choice([2.0, 5.0, -10.0]))))

    def machine(draw: np.random.Generator) -> Wrong:
        if draw.random() < 0.5:
            return Wrong("all masses", truth=heavier(float(draw.choice([0.9, 1.1, 1.2]))))
        return Wrong("a payload of", truth=loaded(float(draw.choice([5.0, 20.0]))))

    def test(draw: np.random.Generator) -> Wrong:
        size = factor(draw)
        return Wrong("on the FRFs of test 'p0'", how=lambda h, w: size * h, tests=(0,))

    def channel(draw: np.random.Generator) -> Wrong:
        what, axis = [("output", 1), ("input", 2)][draw.integers(2)]
        return Wrong(f"on {what} tool y", how=column(1, factor(draw), axis), tests=every)

    def delay(draw: np.random.Generator) -> Wrong:
        return Wrong("responses of test 'p2'", how=late(1e-3 * milliseconds(draw)), tests=(2,))

    def joint(draw: np.random.Generator) -> Wrong:
        name = str(draw.choice(["z1", "z2", "z3"]))
        return Wrong(f"of {name}, which is locked,", locked=name)

    return {"machine": machine, "posture": angle, "test": test, "channel": channel, "delay": delay, "locked": joint}


def made(folder: Path, pair: tuple[Wrong, Wrong], seed: int) -> Any:
    """The study with two errors."""
    truth = next((wrong.truth for wrong in pair if wrong.truth is not None), MACHINE)
    true, data = study(folder, NOISE, seed, truth), copy.deepcopy(description(NOISE))
    for wrong in pair:
        if wrong.posture is not None:
            posture, (coordinate, degrees) = data["test"][1]["posture"], wrong.posture
            posture[coordinate] = f"{float(posture[coordinate].split()[0]) + degrees} deg"
        if wrong.locked:
            data["lock"] = [wrong.locked]
    described: Any = jaxmb.make_study(data, "mistakes", folder, noise_seed=seed)
    tests: list[Any] = []
    for k, (own, of_truth) in enumerate(zip(described.tests, true.tests, strict=True)):
        values = np.array(of_truth.measured)
        for wrong in pair:
            if wrong.how is not None and k in wrong.tests:
                values = wrong.how(values, np.asarray(own.omega))
        tests.append(dataclasses.replace(own, measured=jnp.asarray(values)))
    return described.with_problem(with_tests(described.problem, tests))


def main() -> None:
    """Print a line for each pair, and how many were named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--draws", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    wanted, known, both, one, count = parser.parse_args(), kinds(), 0, 0, 0
    for number, names in enumerate(itertools.combinations(known, 2)):
        for draw in range(wanted.draws):
            random = np.random.default_rng([wanted.seed, number, draw])
            first, second = (known[name](random) for name in names)
            with tempfile.TemporaryDirectory() as folder:
                result, off = fitted(made(Path(folder), (first, second), number))
            texts = [error.text for error in result.metrics.model_errors or ()]
            named = [sum(wrong.expected in text for wrong in (first, second)) for text in texts]
            count, both, one = count + 1, both + (2 in named), one + (2 not in named and 1 in named)
            how = {2: "both", 1: "one", 0: "wrong"}[max(named)] if named else "none"
            print(f"{' and '.join(names):22} {how:5} {off:6.1f}  {'; or '.join(texts) or result.status}", flush=True)
    print(f"both named: {both} of {count}; one of them: {one}")


if __name__ == "__main__":
    main()
