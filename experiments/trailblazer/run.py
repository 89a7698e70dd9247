"""Positions of a construction robot predicted at a height of its column that was held out.

    JAXMB_DATA=... python experiments/trailblazer/run.py [HEIGHT ...]

Measured: the public recordings of the Hilti Trailblazer (see `convert`). For each height of the column the others are
fitted together with the stationing points of this one, which determine the pose of the total station there, and its
other points are predicted. Needs PyYAML.
"""

import shutil
import sys
import tempfile
from pathlib import Path

import convert
import numpy as np

import jaxmb

STUDY = Path(__file__).parent / "study.toml"


def main() -> None:
    """Errors of the held-out points by height, and of all of them."""
    data = convert.folder()
    heights = [float(text) for text in sys.argv[1:]] or sorted({point.height for point in convert.points(data)})
    print("height m   points  before: mean  95 %  largest   after: mean  95 %  largest mm   within 95 %")
    errors = []
    for height in heights:
        with tempfile.TemporaryDirectory() as out:
            shutil.copy(STUDY, out)
            convert.write(Path(out), data, height)
            result = jaxmb.identify(jaxmb.load_study(Path(out) / STUDY.name))
        line = next(line for line in result.metrics["pose_sets"] if line["role"] == "check")
        before, after = (1e3 * np.array([line[when][key] for key in ("mean", "percentile_95", "largest")])
                         for when in ("before", "after"))  # fmt: skip
        rows = [row for row in result.metrics["pose_rows"] if row["role"] == "check"]
        errors += [np.linalg.norm(row["error"][:3]) for row in rows]
        print(f"{height:8.2f} {len(rows):8d}  " + "".join(f"{x:8.2f}" for x in (*before, *after))
              + f"   {line['after']['covered_percent'] or np.nan:8.1f}   {result.status}", flush=True)  # fmt: skip
    mm = 1e3 * np.array(errors)
    print(f"all {mm.size} points: mean {mm.mean():.2f}, 95 % {np.percentile(mm, 95.0):.2f}, largest {mm.max():.2f} mm")


if __name__ == "__main__":
    main()
