"""How long frequencies and damping of 10 000 postures take, with standard deviations by 18 parameters.

    python experiments/maps/modal.py [--rounds 5] [--out results/maps]

The KUKA KR90 with nine coordinates, four modes, a covariance of all nine stiffnesses and dampings. Beside it stand the
same frequencies and dampings by a loop over `linearize` and `modes`, without gradients, and the maps of compliance.
"""

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import jaxmb
from jaxmb.maps import modal_maps

SIDE, LOOPED = 100, 500
OVER = {
    "z2": np.radians(np.linspace(0.0, 130.0, SIDE)),
    "z3": np.radians(np.linspace(-150.0, -10.0, SIDE)),
}
FREE = ("stiffness.*", "damping.*")
WORK = {
    "frequency and damping": (("frequency", "damping"), None),
    "static compliance": (("static_compliance",), None),
    "dynamic compliance, one direction": (("dynamic_compliance",), (1.0, 0.0, 0.0)),
    "dynamic compliance, softest direction": (("dynamic_compliance",), None),
}


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Wall-clock and processor seconds that a piece of work takes."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """Time all in turn, print the table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/maps"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    model = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    covariance = np.diag(np.full(18, 0.05**2))

    def ours(name: str) -> object:
        quantities, direction = WORK[name]
        return modal_maps(model, OVER, quantities=quantities, direction=direction, free=FREE, covariance=covariance)

    found = modal_maps(model, OVER, free=FREE, covariance=covariance)
    rows = found.postures.coordinates.reshape(SIDE**2, -1)[:: SIDE**2 // LOOPED]

    def looped() -> list[jaxmb.Modes]:
        return [jaxmb.modes(jaxmb.linearize(model, q)) for q in rows]

    difference = 0.0
    for name, field in (("frequency", "frequency_hz"), ("damping", "damping_ratio")):
        expected = np.array([np.asarray(getattr(modes, field))[:4] for modes in looped()])
        values = found.maps[name].values.reshape(SIDE**2, -1)[:: SIDE**2 // LOOPED]
        difference = max(difference, float(np.abs(values / expected - 1.0).max()))
    first = {name: timed(lambda n=name: ours(n))[0] for name in WORK}
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in (*WORK, f"loop over {len(rows)} postures")}
    for _ in range(options.rounds):
        for name in WORK:
            seconds[name].append(timed(lambda n=name: ours(n)))
        seconds[f"loop over {len(rows)} postures"].append(timed(looped))
    print(
        f"{SIDE**2} postures, {len(model.coordinates)} coordinates, {len(covariance)} parameters,"
        f" {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; differs from `modes` by {difference:.1e}"
    )
    for name, pairs in seconds.items():
        wall, processor = (np.percentile(column, [0, 50, 100]) for column in zip(*pairs, strict=True))
        began = f", first call {first[name]:.1f} s" if name in first else ""
        print(f"{name:38} {wall[1]:.2f} s ({wall[0]:.2f} to {wall[2]:.2f}), processor {processor[1]:.2f} s{began}")
    (options.out / "modal.json").write_text(json.dumps({"seconds": seconds, "first": first, "difference": difference}))


if __name__ == "__main__":
    main()
