"""How fast jaxmb is beside what careful users of NumPy, SciPy, `cma`, Pinocchio and MJX would write, all in one run.

    python experiments/speed/run.py [--quick] [--out results/speed] [PART ...]

Ways are timed in turn, warm, repetition by repetition; whole commands are processes of their own. Prints medians with
quartiles, elapsed and of the processor, and writes bench.json, kernels.png and fits.png. `--quick` has fewer
repetitions and sizes: a few minutes in place of ten. Parts that are named replace theirs in what is there.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import figures
import fits
import kernels
import numpy as np
import slopes

from jaxmb import native
from jaxmb.results import versions

HERE = Path(__file__).parent
PEERS = "scipy", "cma", "pin", "mujoco", "mujoco-mjx", "jax"


def processor() -> str:
    """Its name."""
    found = Path("/proc/cpuinfo")
    lines = found.read_text().splitlines() if found.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def machine() -> dict[str, Any]:
    """On what this runs, and what else runs there."""
    packages = dict(versions())
    for name in PEERS:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(terse=True),
        "small_solve": native.status().split(",")[0],
        "packages": packages,
    }


def spread(values: Any, scale: float = 1.0, digits: int = 4) -> str:
    """Median and quartiles."""
    low, middle, high = (f"{value:.{digits}g}" for value in np.percentile(np.asarray(values) * scale, [25, 50, 75]))
    return f"{middle} ({low} to {high})"


def table(head: list[str], rows: list[list[str]]) -> None:
    """In Markdown."""
    for row in (head, ["---"] * len(head), *rows):
        print("| " + " | ".join(row) + " |")
    print(flush=True)


def show_kernels(found: dict[str, Any]) -> None:
    """Evaluations a second, processor time of one, and LAPACK's over both."""
    rows = []
    for size, ways in found.items():
        peer = np.array(ways[kernels.PEER])
        for name, times in ways.items():
            own = np.array(times)
            ratios = [spread(peer[:, kind] / own[:, kind], digits=3) for kind in (0, 1)]
            rows.append([size, name, spread(1.0 / own[:, 0]), spread(own[:, 1], 1e6), *ratios])
    table(["n", "way", "a second", "processor, us", "LAPACK over it, elapsed", "processor"], rows)


def show_fits(found: dict[str, Any]) -> None:
    """Expected times to the exact answer."""
    for problem, ways in found.items():
        own = expected(ways["jaxmb"], 1)
        rows = []
        for name, tries in ways.items():
            exact = sum(bool(one[2]) for one in tries)
            times = [expected(tries, kind) for kind in (0, 1)]
            each = spread([one[1] for one in tries], digits=3)
            shown = [f"{value:.3g}" if exact else f"more than {value:.3g}" for value in times]
            ratio = f"{times[1] / own:.3g} ({', '.join(f'{x:.3g}' for x in ratio_range(tries, ways['jaxmb']))})"
            rows.append([name, f"{exact} of {len(tries)}", each, *shown, ratio])
        print(f"To the exact answer of kr90-modelled, {problem}; seconds")
        head = ["way", "exact", "a try, processor", "expected, elapsed", "expected, processor", "over jaxmb (90 %)"]
        table(head, rows)


def expected(tries: list[Any], kind: int) -> float:
    """Mean time of a try over the part that is exact; where none is, the time of all."""
    total, exact = sum(one[kind] for one in tries), sum(bool(one[2]) for one in tries)
    return total / max(1, exact)


def ratio_range(tries: list[Any], own: list[Any]) -> list[float]:
    """Between what 90 % of the ratios of two expected processor times lie, where tries are drawn from those found."""
    draw = np.random.default_rng(0)
    drawn = [[way[k] for k in draw.integers(len(way), size=len(way))] for _ in range(2000) for way in (tries, own)]
    times = np.array([expected(some, 1) for some in drawn]).reshape(-1, 2)
    return np.percentile(times[:, 0] / times[:, 1], [5.0, 95.0]).tolist()


def show_population(found: dict[str, Any]) -> None:
    """Times of all generations."""
    own = np.array([one[:2] for one in found["jaxmb"]])
    rows = []
    for name, tries in found.items():
        each = np.array([one[:2] for one in tries])
        rows.append([name, spread(each[:, 0], digits=3), spread(each[:, 1], digits=3),
                     spread(each[:, 1] / own[:, 1], digits=3)])  # fmt: skip
    print(f"Costs of {fits.POPULATION} candidates over {fits.GENERATIONS} generations; seconds")
    table(["way", "elapsed", "processor", "over jaxmb, processor"], rows)


def show_slopes(found: dict[str, Any]) -> None:
    """Growth with sizes."""
    rows = []
    for name, times in found.items():
        medians = [f"{np.median(np.array(each)[:, 1]) * 1e3:.3g}" for each in times.values()]
        rows.append([name, ", ".join(times), ", ".join(medians), f"{slopes.slope(times):.2f}"])
    table(["what grows", "sizes", "processor, ms", "slope"], rows)


def show_times(peers: dict[str, str]) -> Callable[[dict[str, Any]], None]:
    """Shows what another program has measured: elapsed seconds by name, and over those of a peer in the same round.

    Args:
        peers: name of the peer of names that begin so.
    """

    def show(found: dict[str, Any]) -> None:
        rows = []
        for name, each in found.items():
            peer = next((peer for begin, peer in peers.items() if name.startswith(begin)), None)
            ratio = "" if peer is None else f"{spread(np.array(each) / np.array(found[peer]), digits=3)} times {peer}"
            rows.append([name, spread(each, digits=3), ratio])
        table(["what", "elapsed, s", "over a peer"], rows)

    return show


def other(program: str, *arguments: str) -> Callable[[Path], dict[str, Any]]:
    """A program beside this one that writes <name>.json, as a process of its own."""

    def measure(folder: Path) -> dict[str, Any]:
        done = subprocess.run([sys.executable, str(HERE / program), *arguments, "--out", str(folder)], check=False)
        if done.returncode:
            raise RuntimeError(f"{program} ended with {done.returncode}")
        return json.loads((folder / program).with_suffix(".json").read_text())

    return measure


def parts(quick: bool) -> dict[str, tuple[Callable[[Path], Any], Callable[[Any], None]]]:
    """How each part is measured and shown."""
    sizes = kernels.SIZES[:3] if quick else kernels.SIZES
    of_postures = other("postures.py", "--rounds", "3" if quick else "31")
    of_commands = other("commands.py", "--rounds", "1" if quick else "3")

    def elapsed(folder: Path) -> dict[str, Any]:
        return {name: [one["elapsed"] for one in each] for name, each in of_commands(folder).items()}

    return {
        "kernels": (lambda _: kernels.measure(sizes, 5 if quick else 15), show_kernels),
        "slopes": (lambda _: slopes.measure(3 if quick else 7, quick), show_slopes),
        "population": (lambda _: fits.population(2 if quick else 5), show_population),
        "fits": (lambda _: fits.measure(*((4, 2, 3.0) if quick else (12, 3, 10.0))), show_fits),
        "postures": (
            lambda folder: of_postures(folder)["seconds"],
            show_times(dict.fromkeys(("jaxmb", "MJX"), "Pinocchio")),
        ),
        "commands": (
            elapsed,
            show_times({"identify kr90": "SciPy on the KR90", "identify validation-3r": "SciPy on the 3R"}),
        ),
    }


def main() -> None:
    """Measure the parts in turn, print their tables, write the numbers and two figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a few minutes")
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help=f"of {', '.join(parts(True))}; all where none is named"
    )
    options = parser.parse_args()
    chosen = parts(options.quick)
    if unknown := set(options.parts) - set(chosen):
        parser.error(f"there is no part '{unknown.pop()}', expected {', '.join(chosen)}")
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "bench.json"
    found: dict[str, Any] = json.loads(path.read_text()) if options.parts and path.exists() else {}
    native.in_use()  # compiled here, where it was not
    found["machine"] = machine()
    print(", ".join(f"{name} {value}" for name, value in found["machine"].items() if name != "packages"))
    print(", ".join(f"{name} {value}" for name, value in found["machine"]["packages"].items()) + "\n")
    for name in options.parts or chosen:
        measure, show = chosen[name]
        before = os.getloadavg()[0]
        values = json.loads(json.dumps(measure(options.out)))
        found[name] = {"quick": options.quick, "load": [before, os.getloadavg()[0]], "found": values}
        print(f"## {name}, load of the machine {before:.1f} before and {found[name]['load'][1]:.1f} after\n")
        show(values)
        path.write_text(json.dumps(found, indent=1) + "\n")
    if "kernels" in found:
        figures.of_kernels(found["kernels"]["found"], options.out / "kernels.png")
    if "fits" in found:
        figures.of_fits(found["fits"]["found"], options.out / "fits.png")


if __name__ == "__main__":
    main()
