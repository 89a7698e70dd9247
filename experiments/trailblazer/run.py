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
import numpy as np

import jaxmb


def identified(study: Path, out: Path) -> tuple[jaxmb.Result, float]:
    """Result of a study, written to a folder, and processor time, s."""
    began = time.process_time()
    result = jaxmb.identify(jaxmb.load_study(study))
    out.mkdir()
    jaxmb.write_result(result, out)
    return result, time.process_time() - began


def main() -> None:
    """Errors of the held-out points by height, and of all of them."""
    data = convert.folder()
    rows = convert.points(data / "flat.yaml")
    heights = [float(text) for text in sys.argv[1:]] or sorted({point.height for point in rows})
    print("height m  std mm   points  before: mean  95 %  largest   after: mean  95 %  largest mm   within 95 %"
          "   processor s: fit, prediction")  # fmt: skip
    errors, covered = list[float](), list[bool]()
    for height in heights:
        with tempfile.TemporaryDirectory() as name:
            out = Path(name)
            fit = convert.write_fit(out / "fit", data, [point for point in rows if point.height != height])
            machine, fitting = identified(fit, out / "machine")
            new = [point for point in rows if point.height == height]
            result, predicting = identified(convert.write_prediction(out / "new", out / "machine", new), out / "set")
        line = next(line for line in result.metrics["pose_sets"] if line["role"] == "check")
        before, after = (1e3 * np.array([line[when][key] for key in ("mean", "percentile_95", "largest")])
                         for when in ("before", "after"))  # fmt: skip
        checked = [row for row in result.metrics["pose_rows"] if row["role"] == "check"]
        error, std = (np.array([row[key][:3] for row in checked]) for key in ("error", "std"))
        errors += np.linalg.norm(error, axis=1).tolist()
        covered += (np.abs(error) <= 1.96 * std).ravel().tolist()
        print(f"{height:8.2f} {machine.metrics['pose_std_mm']['prism']:7.2f} {len(checked):8d}  "
              + "".join(f"{x:8.2f}" for x in (*before, *after)) + f"   {line['after']['covered_percent']:8.1f}"
              + f"   {fitting:6.0f}, {predicting:4.0f}   {machine.status}; {result.status}", flush=True)  # fmt: skip
    mm = 1e3 * np.array(errors)
    print(f"all {mm.size} points: mean {mm.mean():.2f}, 95 % {np.percentile(mm, 95.0):.2f}, largest {mm.max():.2f} mm,"
          f" within 95 %: {100.0 * np.mean(covered):.1f}")  # fmt: skip


if __name__ == "__main__":
    main()
