"""Fits of studies whose tests have different form, one after the other, and how many of them never end.

    python experiments/soak/run.py [--fits 200] [--at-once N] [--threads N] [--frfs] [--out results/soak]

A watching process starts others that fit, fifty fits each, and ends one that has not told of a finished fit for too
long and does nothing: that fit hung. `--at-once` fits in that many threads of a process. `--threads` gives XLA's pool
on a CPU that many threads in place of what jaxmb chooses, to see what a pool of several does. `--frfs` leaves out
modes and deflections, whose eigenproblems and solves are LAPACK's also where FRFs are the kernel's.
"""

import argparse
import concurrent.futures
import json
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

FITS_IN_A_PROCESS = 50
PATIENCE_S = 60.0
"""For one fit, its compilation included; a fit that is on its way takes a few seconds."""
AT_WORK_S = 1.0
"""Of processor time in which a process that is still at work uses more: a busy machine may make it wait for long."""


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
KR90 = {"stiffness.*": {"lower": 5.5e5, "upper": 1e8}, "damping.*": {"lower": 1.0, "upper": 1e5}}
MANIPULATOR = {"stiffness.*": {"lower": 5e5, "upper": 1e7}, "damping.*": {"lower": 1e2, "upper": 1e4}}


class Form(NamedTuple):
    """Tests of a machine that are fitted together."""

    machine: str
    free: dict[str, Any]
    tests: list[dict[str, Any]]


FORMS = {
    "two FRF tests": Form("kuka-kr90", KR90, [frf_test("a", 30.0, (70.0, -100.0)), frf_test("b", 24.0, (40.0, -50.0))]),
    "four FRF tests": Form(
        "kuka-kr90", KR90, [frf_test(f"f{k}", 16.0 + 3.0 * k, (70.0 - 10.0 * k, -100.0 + 9.0 * k)) for k in range(4)]
    ),
    "FRFs, modes and deflections": Form("kuka-kr90", KR90, [frf_test("a", 25.0, (70.0, -100.0)), MODES, LOADS]),
    "all": Form(
        "kuka-kr90", KR90, [frf_test("a", 30.0, (70.0, -100.0)), frf_test("b", 24.0, (40.0, -50.0)), MODES, LOADS]
    ),
    "three joints": Form(
        "manipulator-3r", MANIPULATOR, [frf_test(f"f{k}", 40.0 + 5.0 * k, (70.0, -100.0)) for k in range(3)]
    ),
    "two forms of four postures": Form(
        "kuka-kr90",
        KR90,
        [frf_test(f"f{k}", 20.0 + 8.0 * (k % 2), (80.0 - 6.0 * k, -90.0 + 5.0 * k)) for k in range(8)],
    ),
    "many lines": Form("kuka-kr90", KR90, [frf_test("a", 100.0, (70.0, -100.0)), frf_test("b", 75.0, (40.0, -50.0))]),
}
"""Tests of each study: three or nine coordinates, 31 to 199 lines, one to eight postures."""


def names(frfs: bool) -> list[str]:
    """Of the studies to fit: all, or those of FRFs alone."""
    return [name for name, form in FORMS.items() if not frfs or all(test["kind"] == "frf" for test in form.tests)]


def fit_some(first: int, count: int, frfs: bool, at_once: int) -> None:
    """Fit the studies in turn, each fit with its own seed, and print a line after each."""
    import jaxmb
    from jaxmb.fitting import run_fit

    # Every process begins with another form, so that each is the first program of some.
    some = names(frfs)
    order = [some[(first // count + k) % len(some)] for k in range(len(some))]
    studies = {}
    for name in order:
        form = FORMS[name]
        data = {
            "machine": form.machine, "start": "random", "rounds": 1, "least_rounds": 1, "test": form.tests,
            "free": form.free,
        }  # fmt: skip
        studies[name] = jaxmb.make_study(data, name)

    def fit(seed: int) -> None:
        name = order[seed % len(order)]
        study = studies[name]
        found = run_fit(study.problem, study.settings, study.start, seed)
        print(json.dumps({"fit": seed, "form": name, "objective": float(found.best)}) + "\n", end="", flush=True)

    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        list(pool.map(fit, range(first, first + count)))


def processor_seconds(process: int) -> float:
    """That a process has used so far; 0 where the system does not tell."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def watched(command: list[str], environment: dict[str, str]) -> tuple[int, bool]:
    """Number of fits that a process of its own finished, and whether it hung in the next."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        for line in process.stdout or ():
            lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    done, used = 0, 0.0
    while True:
        try:
            line = lines.get(timeout=PATIENCE_S)
        except queue.Empty:
            before, used = used, processor_seconds(process.pid)
            if used > before + AT_WORK_S:
                continue
            process.kill()
            process.wait()
            return done, True
        if line is None:
            if process.wait():
                raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
            return done, False
        done += 1


def main() -> None:
    """Start processes until enough fits were begun, and write how many hung."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fits", type=int, default=200)
    parser.add_argument("--threads", type=int, help="of XLA's pool on a CPU, in place of jaxmb's choice")
    parser.add_argument("--at-once", type=int, default=1, help="fits in threads of one process")
    parser.add_argument("--frfs", action="store_true", help="without modes and deflections")
    parser.add_argument("--out", type=Path, default=Path("results/soak"))
    parser.add_argument("--first", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.first is not None:
        fit_some(options.first, options.fits, options.frfs, options.at_once)
        return
    environment = dict(os.environ) | ({} if options.threads is None else {"PJRT_NPROC": str(options.threads)})
    began, done, hung, process = time.monotonic(), 0, 0, 0
    while done + hung < options.fits:
        count = min(FITS_IN_A_PROCESS, options.fits - done - hung)
        command = [sys.executable, __file__, "--first", str(process * FITS_IN_A_PROCESS), "--fits", str(count)]
        command += ["--at-once", str(options.at_once), *(["--frfs"] if options.frfs else [])]
        finished, hangs = watched(command, environment)
        done, hung, process = done + finished, hung + hangs, process + 1
        print(f"process {process}: {finished} fits{', then one that hung' if hangs else ''}", flush=True)
    seconds = time.monotonic() - began
    print(f"{done} fits ended, {hung} hung, {seconds:.0f} s")
    from importlib.metadata import version

    from jaxmb import native

    options.out.mkdir(parents=True, exist_ok=True)
    found = {
        "fits": done, "hung": hung, "processes": process, "seconds": seconds, "cores": os.cpu_count(),
        "threads": options.threads, "at_once": options.at_once, "forms": names(options.frfs),
        "small_solve": native.status().split(",")[0], "jaxlib": version("jaxlib"),
    }  # fmt: skip
    (options.out / "soak.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
