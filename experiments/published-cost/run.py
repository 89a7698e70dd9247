"""Cost by evaluation of the published method, beside Figs. 5 and 8 of Huynh et al. 2020.

    python experiments/published-cost/run.py [--seeds 3] [--out results/published-cost]

`preset = "huynh2020"` (genetic algorithm, then Nelder-Mead, on the principal phase) fits the two studies of the paper
whose FRFs are modelled: `validation-3r` (section 4, Fig. 5) and `kr90-modelled` (section 5.1, Fig. 8).
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import jaxmb

FIGURES = {
    "validation-3r": ("Fig. 5", {"start": 2e5, "genetic algorithm": 1e3, "end": 1e-7}, (1200, 1400)),
    "kr90-modelled": ("Fig. 8", {"highest": 2.65e5, "end": 64.0}, (17101,)),
}
"""Figure, printed costs, and printed numbers of evaluations: after the genetic algorithm and at the end."""


def main() -> None:
    """Fit both studies from some seeds, print costs at stages of the method and draw them by evaluation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/published-cost"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(1, len(FIGURES), figsize=(10, 4), layout="constrained")
    for axis, (name, (title, printed, counts)) in zip(axes, FIGURES.items(), strict=True):
        study = jaxmb.load_study(name, preset="huynh2020")
        first_search = study.settings.search.population * (study.settings.search.generations + 1)
        print(f"{name}, {title}: printed {printed}, evaluations {counts}")
        for seed in range(options.seeds):
            result = jaxmb.identify(study, seed)
            evaluations, cost = np.array(result.history).T
            generation, search = (cost[evaluations <= n][-1] for n in (study.settings.search.population, first_search))
            print(f"seed {seed}: first {cost[0]:.3g}, best of the first population {generation:.3g}, after the first"
                  f" search ({first_search}) {search:.3g}, end {cost[-1]:.3g} after {evaluations[-1]:.0f};"
                  f" largest error of a parameter {100.0 * result.metrics['largest_parameter_error']:.3g} %;"
                  f" {result.status.split(':')[0]}", flush=True)  # fmt: skip
            axis.loglog(evaluations, cost, drawstyle="steps-post", label=f"seed {seed}")
        for label, level in printed.items():
            axis.axhline(level, color="black", linewidth=0.8, linestyle="--")
            axis.annotate(f"{label} {level:g}", (1.0, level), (2, 2), textcoords="offset points", fontsize=8)
        for count in counts:
            axis.axvline(count, color="black", linewidth=0.8, linestyle=":")
        axis.set(xlabel="evaluations", ylabel="least cost so far, eq. 22")
        axis.set_title(f"{name}\nprinted in {title}: costs dashed, evaluations dotted", fontsize=9)
        axis.legend()
    figure.savefig(options.out / "cost.png", dpi=100)


if __name__ == "__main__":
    main()
