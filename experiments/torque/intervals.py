"""Intervals of predicted torques of real robots: one half of a recording from the other, both ways.

    JAXMB_DATA=... python experiments/torque/intervals.py [--out results/torque]

The studies are `tx40` and `kr300` with their own settings. "Expected" is the root mean square of the standard deviation
of the prediction, "inside" the share of the samples within its 95 % intervals.
"""

import argparse
import tomllib
from pathlib import Path
from typing import Any

import jaxmb

MIDDLE_S = {"tx40": 4.5, "kr300": 5.0}


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/torque"))
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{'predicted':20}{'joint':>6}{'error %':>9}{'error Nm':>10}{'expected Nm':>13}{'inside %':>10}")
    for name, middle in MIDDLE_S.items():
        data = tomllib.loads((Path(jaxmb.__file__).parent / f"library/studies/{name}.toml").read_text())
        common = {key: data["test"][0][key] for key in ("kind", "file", "effort_cutoff_hz", "least_speed")}
        common |= {key: data["test"][0][key] for key in ("cutoff_hz",) if key in data["test"][0]}
        ends = {"first half": {"to_s": middle}, "second half": {"from_s": middle}}
        for held_out in reversed(ends):
            tests = [
                common | {"name": half, **times, "role": "check" if half == held_out else "fit"}
                for half, times in ends.items()
            ]
            result = jaxmb.identify(jaxmb.make_study(data | {"test": tests}, f"{name} {held_out}", folder))
            metrics: Any = result.metrics.tests["torque"]
            for row in metrics.torques:
                if row.role == "check":
                    expected, covered = (
                        float("nan") if x is None else x for x in (row.expected_error, row.covered_percent)
                    )
                    print(
                        f"{f'{name} {held_out}':20}{row.coordinate:>6}{row.relative_percent:9.1f}{row.rms_error:10.2f}"
                        f"{expected:13.2f}{covered:10.1f}",
                        flush=True,
                    )
            print(f"{'':20}{result.status}")


if __name__ == "__main__":
    main()
