"""Outcomes of all shipped studies, of the other commands and of the notebooks, written and compared.

`write FOLDER` runs every case in a process of its own; `compare BEFORE AFTER` exits with 1 where numbers, exit codes or
names of files differ. Sentences are not compared.
"""

import argparse
import json
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
NOTEBOOKS = ("hammer", "inertia_from_torque", "kr90", "next_posture", "parallel_robot", "stiffness")
"""All but the comparison of optimizers, whose figures show seconds."""
COMMANDS = {
    "inspect-kr90-fused": ("inspect", "kr90-fused"),
    "inspect-kr90-four": ("inspect", "kr90-four"),
    "inspect-kr240": ("inspect", "kr240-joint-stiffness"),
    "inspect-slider-crank": ("inspect", "slider-crank"),
    "inspect-surgiscope-modes": ("inspect", "surgiscope-modes"),
    "predict-kr90": ("predict", "kuka-kr90", "--posture", "z2=80 deg"),
    "predict-two-links": ("predict", "two-flexible-links"),
    "predict-surgiscope": ("predict", "surgiscope"),
    "modal-daisy-arm": ("modal", "daisy-arm"),
    "modal-daisy-subframe": ("modal", "daisy-subframe"),
    "map-kr240": ("map", "kuka-kr240", "--over", "q2=0:146 deg", "--over", "q3=-245:29 deg"),
    "map-kr90": ("map", "kuka-kr90", "--over", "z2=20:110 deg", "--show", "frequency", "--show", "dynamic_compliance"),
}
VALUE = 1e-9
DEVIATION = 1e-6
DEVIATIONS = re.compile(r"std|interval|covariance|correlation|singular|deviation|draws|bound|ellips")
RESIDUAL = re.compile(r"cost|error|misfit|square|jq|residual|explained|history|log_f|percent")
"""Zero up to rounding where data are free of noise: compared on an absolute scale as well."""
ROUNDING = 1e-9
NOT_COMPARED = re.compile(r"seconds|versions|digest|path|file|command|peak_memory")


def cases() -> dict[str, tuple[str, ...]]:
    """Arguments of the command by the name of the case; notebooks have none."""
    studies = sorted(path.stem for path in (ROOT / "jaxmb/library/studies").glob("*.toml"))
    fits = {f"identify-{name}-{seed}": ("identify", name, "--seed", str(seed)) for name in studies for seed in (0, 1)}
    return fits | COMMANDS | {f"notebook-{name}": () for name in NOTEBOOKS}


def write(folder: Path, pattern: str) -> None:
    """Run the cases whose names match, each into a folder of its own."""
    for name, arguments in cases().items():
        if not re.search(pattern, name):
            continue
        here = folder / name
        here.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, __file__, "one", str(here), *(arguments or (name.removeprefix("notebook-"),))],
            capture_output=True,
            text=True,
            cwd=here,
            check=False,
        )
        (here / "stdout.txt").write_text(done.stdout)
        (here / "stderr.txt").write_text(done.stderr)
        (here / "exit_code.json").write_text(json.dumps(done.returncode))
        print(f"{name}: exit code {done.returncode}", flush=True)


def one(folder: Path, arguments: list[str]) -> None:
    """A single case in this process, with the numbers of all figures that it draws."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figures: list[list[list[float]]] = []
    plain = FigureCanvasAgg.print_png

    def keep(figure: Figure) -> None:
        figures.append([list(numbers_of(axes)) for axes in figure.axes])
        (folder / "figures.json").write_text(json.dumps(figures))

    def print_png(self: FigureCanvasAgg, *details: object, **options: object) -> None:
        keep(self.figure)
        plain(self, *details, **options)

    FigureCanvasAgg.print_png = print_png  # pyright: ignore[reportAttributeAccessIssue]
    if arguments[0] in NOTEBOOKS:
        runpy.run_path(str(ROOT / "notebooks" / f"{arguments[0]}.py"))
        import matplotlib.pyplot as plt

        for number in plt.get_fignums():
            keep(plt.figure(number))
    else:
        sys.argv[1:] = [*arguments, "--out", str(folder / "out")]
        runpy.run_module("jaxmb", run_name="__main__")


def numbers_of(axes) -> Iterator[float]:
    """The data of lines, points, areas and images."""
    for line in axes.get_lines():
        yield from np.asarray(line.get_xydata(), float).ravel().tolist()
    for collection in axes.collections:
        yield from np.asarray(collection.get_offsets(), float).ravel().tolist()
        values = collection.get_array()
        if values is not None:
            yield from np.ma.filled(np.ma.asarray(values, float), np.nan).ravel().tolist()
        for path in collection.get_paths():
            yield from np.asarray(path.vertices, float).ravel().tolist()
    for patch in axes.patches:
        yield from np.asarray(patch.get_path().vertices, float).ravel().tolist()
        yield from np.asarray(patch.get_patch_transform().get_matrix(), float).ravel().tolist()
    for image in axes.get_images():
        yield from np.ma.filled(np.ma.asarray(image.get_array(), float), np.nan).ravel().tolist()


def numbers(path: Path) -> dict[str, np.ndarray]:
    """All numbers in a file, by their location in it; empty where a file holds none that are compared."""
    if path.suffix == ".npz":
        with np.load(path, allow_pickle=False) as arrays:
            kept = {key: 1 * arrays[key] for key in arrays.files if arrays[key].dtype.kind in "fciub"}
        return {key: value for key, value in kept.items() if not NOT_COMPARED.search(key)}
    if path.suffix == ".json":
        return dict(leaves(json.loads(path.read_text()), ""))
    if path.suffix == ".toml":
        return dict(leaves(tomllib.loads(path.read_text()), ""))
    return {}


def leaves(value: object, location: str) -> Iterator[tuple[str, np.ndarray]]:
    """Numbers and arrays of numbers in nested data."""
    if isinstance(value, dict):
        for key, part in value.items():
            if not NOT_COMPARED.search(key):
                yield from leaves(part, f"{location}/{key}")
    elif isinstance(value, list):
        try:
            array = np.asarray(value, float)
        except (TypeError, ValueError):
            for number, part in enumerate(value):
                yield from leaves(part, f"{location}/{number}")
        else:
            yield location, array
    elif isinstance(value, (int, float)):
        yield location, np.asarray(float(value))


def difference(before: np.ndarray, after: np.ndarray, location: str) -> float:
    """Largest difference over its tolerance."""
    if before.shape != after.shape:
        return np.inf
    if not before.size:
        return 0.0
    holes = np.isnan(before)
    if np.any(holes != np.isnan(after)):
        return np.inf
    same = holes | (before == after)
    scale = np.max(np.abs(np.where(holes | ~np.isfinite(before), 0.0, before)))
    tolerance = DEVIATION if DEVIATIONS.search(location) else VALUE
    allowed = tolerance * scale + (ROUNDING if RESIDUAL.search(location) else 1e-300)
    with np.errstate(invalid="ignore"):
        return float(np.max(np.where(same, 0.0, np.abs(after - before)), initial=0.0)) / allowed


def compare(before: Path, after: Path) -> int:
    """Print all differences; their number."""
    found = 0
    for name in sorted(path.name for path in before.iterdir() if path.is_dir()):
        if not (after / name).is_dir():
            print(f"{name}: not run")
            found += 1
            continue
        files = [{str(path.relative_to(room / name)) for path in (room / name).rglob("*") if path.is_file()}
                 for room in (before, after)]  # fmt: skip
        for file in sorted(files[0] ^ files[1]):
            print(f"{name}: {file} is in one of both only")
            found += 1
        for file in sorted(files[0] & files[1]):
            one, two = numbers(before / name / file), numbers(after / name / file)
            for location in sorted(one.keys() | two.keys()):
                if location not in one or location not in two:
                    print(f"{name}: {file} {location} is in one of both only")
                    found += 1
                    continue
                times = difference(one[location], two[location], location or file)
                if times > 1.0:
                    print(f"{name}: {file} {location} differs by {times:.2g} times the tolerance")
                    found += 1
    print(f"{found} differences")
    return found


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("folder", type=Path)
    writing.add_argument("--only", default="", help="regular expression of the names of cases")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    single = commands.add_parser("one")
    single.add_argument("folder", type=Path)
    single.add_argument("arguments", nargs="+")
    asked, rest = parser.parse_known_args()
    if asked.command == "write":
        write(asked.folder.resolve(), asked.only)
    elif asked.command == "one":
        one(asked.folder, [*asked.arguments, *rest])
    else:
        sys.exit(min(compare(asked.before, asked.after), 1))


if __name__ == "__main__":
    main()
