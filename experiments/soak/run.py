"""Fits of studies whose tests have different form, one after the other, and how many of them never end.

    python experiments/soak/run.py [--fits 200] [--threads N] [--out results/soak]

A watching process starts others that fit, twenty fits each, and ends one that has not told of a finished fit for
too long: that fit hung. `--threads` gives XLA's pool on a CPU that many threads in place of what jaxmb chooses, to see
what a pool of several does.
"""

import argparse
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

FITS_IN_A_PROCESS = 20
PATIENCE_S = 60.0
"""For one fit, its compilation included; a fit that is on its way takes a few seconds."""


def frf_test(name: str, last_hz: float, posture: tuple[float, float]) -> dict[str, Any]:
    """An FRF test, whose number of lines is its form."""
    lines = {"first_hz": 1.0, "last_hz": last_hz, "step_hz": 0.5}
    return {
        "kind": "frf", "name": name, "noise_log_std": 0.01, "simulate": {"lines": lines, "noise_log_std": 0.01},
        "posture": {"z2": f"{posture[0]} deg", "z3": f"{posture[1]} deg"},
    }  # fmt: skip


MODES = {"kind": "modes", "name": "modes", "posture": {"z2": "45 deg", "z3": "-60 deg"}, "frequency_std_hz": 0.02,
         "damping_std_percent": 0.05, "simulate": {"below_hz": 25.0}}  # fmt: skip
LOADS = {
    "kind": "deflection", "name": "loads", "instruments": {"tracker_mm": 0.01, "reflectors_m": 0.2},
    "simulate": {
        "tests": 6, "force_n": [2000.0, 2500.0], "directions": [[0, 0, -1], [1, 0, 0], [0, 1, 0]],
        "zones": {"work": {"z1": ["-90 deg", "90 deg"], "z2": ["20 deg", "110 deg"], "z3": ["-130 deg", "-20 deg"]}},
    },
}  # fmt: skip
FORMS: dict[str, list[dict[str, Any]]] = {
    "two FRF tests": [frf_test("a", 30.0, (70.0, -100.0)), frf_test("b", 24.0, (40.0, -50.0))],
    "four FRF tests": [frf_test(f"f{k}", 16.0 + 3.0 * k, (70.0 - 10.0 * k, -100.0 + 9.0 * k)) for k in range(4)],
    "FRFs, modes and deflections": [frf_test("a", 25.0, (70.0, -100.0)), MODES, LOADS],
    "all": [frf_test("a", 30.0, (70.0, -100.0)), frf_test("b", 24.0, (40.0, -50.0)), MODES, LOADS],
}
"""Tests of each study."""


def fit_some(first: int, count: int) -> None:
    """Fit the studies in turn, each fit with its own seed, and print a line after each."""
    import jaxmb
    from jaxmb.fitting import run_fit

    # Every process begins with another form, so that each is the first program of some.
    order = [list(FORMS)[(first // count + k) % len(FORMS)] for k in range(len(FORMS))]
    studies = {}
    for name in order:
        data = {
            "machine": "kuka-kr90", "start": "random", "rounds": 1, "least_rounds": 1, "test": FORMS[name],
            "free": {"stiffness.*": {"lower": 5.5e5, "upper": 1e8}, "damping.*": {"lower": 1.0, "upper": 1e5}},
        }  # fmt: skip
        studies[name] = jaxmb.make_study(data, name)
    for seed in range(first, first + count):
        name = order[seed % len(order)]
        study = studies[name]
        fit = run_fit(study.problem, study.settings, study.start, seed)
        print(json.dumps({"fit": seed, "form": name, "objective": float(fit.best)}), flush=True)


def watched(first: int, count: int, environment: dict[str, str]) -> tuple[int, bool]:
    """Number of fits that a process of its own finished, and whether it hung in the next."""
    command = [sys.executable, __file__, "--first", str(first), "--fits", str(count)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    done = 0
    while True:
        try:
            line = lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            process.kill()
            process.wait()
            return done, True
        if line is None:
            if process.wait():
                raise RuntimeError(
                    f"the process of fits {first} to {first + count - 1} ended with {process.returncode}"
                )
            return done, False
        done += 1


def main() -> None:
    """Start processes until enough fits were begun, and write how many hung."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--threads", type=int, help="of XLA's pool on a CPU, in place of jaxmb's choice")
    parser.add_argument("--out", type=Path, default=Path("results/soak"))
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first is not None:
        fit_some(options.first, options.fits)
        return
    environment = dict(os.environ) | ({} if options.threads is None else {"PJRT_NPROC": str(options.threads)})
    began, done, hung, process = time.monotonic(), 0, 0, 0
    while done + hung < options.fits:
        count = min(FITS_IN_A_PROCESS, options.fits - done - hung)
        finished, hangs = watched(process * FITS_IN_A_PROCESS, count, environment)
        done, hung, process = done + finished, hung + hangs, process + 1
        print(f"process {process}: {finished} fits{', then one that hung' if hangs else ''}", flush=True)
    seconds = time.monotonic() - began
    print(f"{done} fits ended, {hung} hung, {seconds:.0f} s")
    from importlib.metadata import version

    options.out.mkdir(parents=True, exist_ok=True)
    found = {
        "fits": done, "hung": hung, "processes": process, "seconds": seconds, "cores": os.cpu_count(),
        "threads": options.threads, "jaxlib": version("jaxlib"),
    }  # fmt: skip
    (options.out / "soak.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
