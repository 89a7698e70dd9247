"""Positions of a construction robot predicted at a height of its column that was held out.

    JAXMB_DATA=... python experiments/trailblazer/run.py [HEIGHT ...]

Measured: the public recordings of the Hilti Trailblazer (see `convert`). Each height of the column is treated as a new
set: the machine is identified from all points at the other heights, and the other points of this height are predicted
from its stationing points, by the same two studies as in `convert`. Needs PyYAML.
"""

import sys
import tempfile
import time
from pathlib import Path

import convert
import jax
import numpy as np

import jaxmb


def identified(study: Path, out: Path) -> tuple[jaxmb.Result, float]:
    """Result of a study, written to a folder, and processor time, s."""
    began = time.process_time()
    result = jaxmb.identify(jaxmb.load_study(study))
    out.mkdir()
    jaxmb.write_result(result, out)
    return result, time.process_time() - began


READINGS = ("all", "stationing", "none")
"""Points of the held-out height whose accelerometer readings are used."""
COLUMNS = f"{'readings':11s} points    mean    95 %  largest mm  within 95 %"


def main() -> None:
    """Errors of the held-out points by height and readings, and of all of them."""
    data = convert.folder()
    rows = convert.points(data / "flat.yaml")
    heights = [float(text) for text in sys.argv[1:]] or sorted({point.height for point in rows})
    print(f"height m  std mm  {COLUMNS}   processor s: fit, prediction")
    found = {each: list[np.ndarray]() for each in READINGS}
    for height in heights:
        jax.clear_caches()  # programs of several fits exceed the memory mappings of a process
        with tempfile.TemporaryDirectory() as name:
            out = Path(name)
            fit = convert.write_fit(out / "fit", data, [point for point in rows if point.height != height])
            machine, fitting = identified(fit, out / "machine")
            new = [point for point in rows if point.height == height]
            for each in READINGS:
                study = convert.write_prediction(out / each, out / "machine", new, each)
                result, predicting = identified(study, out / f"set-{each}")
                found[each].append(held_out(result))
                level, cells = machine.metrics["pose_std_mm"]["prism"], line(each, found[each][-1])
                ended = f"{fitting:6.0f}, {predicting:4.0f}   {machine.status}; {result.status}"
                print(f"{height:8.2f} {level:7.2f}  {cells}   {ended}", flush=True)
    for each in READINGS:
        print(f"{'all':>8s}          {line(each, np.concatenate(found[each]))}")


def held_out(result: jaxmb.Result) -> np.ndarray:
    """Errors of the predicted positions and their standard deviations [k, 2, 3], m."""
    rows = (row for row in result.metrics["pose_rows"] if row["role"] == "check" and row["point"] == "prism")
    return np.array([[row[key][:3] for key in ("error", "std")] for row in rows])


def line(readings: str, found: np.ndarray) -> str:
    """Cells of `COLUMNS`, from `held_out`."""
    error, std = found.swapaxes(0, 1)
    mm, covered = 1e3 * np.linalg.norm(error, axis=1), 100.0 * np.mean(np.abs(error) <= 1.96 * std)
    return (f"{readings:11s} {mm.size:6d} {mm.mean():7.2f} {np.percentile(mm, 95.0):7.2f} {mm.max():11.2f}"
            f" {covered:12.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
