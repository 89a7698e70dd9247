"""How long whole commands take, each as a process of its own: from the key press to the last figure.

    python experiments/speed/commands.py [--rounds 5] [--out results/speed] [NAME ...]

Every command is run with an empty cache of compiled programs (cold) and again with the one it left (warm). Beside them
stands SciPy's trust region from random starts on the same FRFs (`peers.py`), as a process that imports, fits and
prints; it writes no figures. Elapsed seconds, and those of the processor, which other work changes less.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

HERE = Path(__file__).parent
JAXMB = [sys.executable, "-m", "jaxmb"]
COLD = "an empty cache"
WARM = "a warm cache"


class Seconds(NamedTuple):
    """Of a process."""

    elapsed: float
    processor: float


class Command(NamedTuple):
    """A command, and what its time is compared with."""

    arguments: list[str]
    peer: str | None = None
    cached: bool = False
    """Whether it compiles: it is then timed twice."""
    code: int = 0
    """Exit code."""


def peer_of(machine: str) -> Command:
    """A process in which a SciPy user finds the exact parameters of a machine."""
    code = (
        "import numpy as np, peers, peer_fits; problem = peers.kr90_problem('{}');"
        " print(peer_fits.trust_region_multistart(problem, np.random.default_rng(0)).exact)"
    )
    return Command([sys.executable, "-c", code.format(machine)])


COMMANDS = {
    "help": Command([*JAXMB, "--help"]),
    "studies": Command([*JAXMB, "studies"]),
    "unknown study": Command([*JAXMB, "identify", "kr90-modeled"], code=2),
    "SciPy on the KR90": peer_of("kuka-kr90"),
    "identify kr90-modelled": Command([*JAXMB, "identify", "kr90-modelled"], "SciPy on the KR90", True),
    "SciPy on the 3R": peer_of("manipulator-3r"),
    "identify validation-3r": Command([*JAXMB, "identify", "validation-3r"], "SciPy on the 3R", True),
}


def timed(command: Command, cache: Path, folder: Path) -> Seconds:
    """Seconds of a process with its own cache of compiled programs, in a folder of its own."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": python_path()}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    began, before = time.perf_counter(), os.times()
    done = subprocess.run(command.arguments, cwd=folder, env=environment, capture_output=True, text=True)
    elapsed, after = time.perf_counter() - began, os.times()
    if done.returncode != command.code:
        raise RuntimeError(f"{' '.join(command.arguments)} ended with {done.returncode}: {done.stderr}")
    processor = after.children_user + after.children_system - before.children_user - before.children_system
    return Seconds(elapsed, processor)


def python_path() -> str:
    """Where a process finds the same jaxmb and the peers."""
    return os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(HERE)]))


def spread(values: list[float]) -> str:
    """Median, least and most."""
    return f"{np.median(values):6.2f} s ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    """Time the commands in turn, round by round, print the table, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("results/speed"))
    parser.add_argument("names", nargs="*", metavar="NAME", help="commands to time, all where none is named")
    options = parser.parse_args()
    chosen = {name: COMMANDS[name] for name in options.names or COMMANDS}
    found: dict[str, list[Seconds]] = {}
    with tempfile.TemporaryDirectory() as place:
        kept = Path(place) / "warm"
        for command in chosen.values():
            timed(command, kept, Path(place))  # matplotlib's list of fonts, the files in memory, the compiled programs
        for number in range(options.rounds):
            for name, command in chosen.items():
                if command.cached:
                    empty = Path(place) / f"cold {name} {number}"
                    empty.mkdir(exist_ok=True)
                    if (kept / "matplotlib").is_dir():  # its list of fonts is no compiled program
                        (empty / "matplotlib").symlink_to(kept / "matplotlib")
                    found.setdefault(f"{name}, {COLD}", []).append(timed(command, empty, Path(place)))
                found.setdefault(f"{name}, {WARM}" if command.cached else name, []).append(
                    timed(command, kept, Path(place))
                )
    print(f"{'median (least to most)':45s}{'elapsed':>26s}{'processor':>28s}")
    for name, seconds in found.items():
        elapsed, processor = ([getattr(s, part) for s in seconds] for part in Seconds._fields)
        line = f"{name:45s}{spread(elapsed):>26s}{spread(processor):>28s}"
        peer = COMMANDS[name.split(", ")[0]].peer
        if peer in found:
            ratio = np.array(elapsed) / np.array([s.elapsed for s in found[peer]])
            line += f"   {np.median(ratio):.2f} times {peer}"
        print(line)
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "commands.json").write_text(
        json.dumps({k: [s._asdict() for s in v] for k, v in found.items()}, indent=1)
    )


if __name__ == "__main__":
    main()
