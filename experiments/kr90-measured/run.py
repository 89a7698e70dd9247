"""Tables 5 and 6 and Figure 11 of Huynh et al. 2020 on a stand-in for its FRFs, and what changes the verdict.

python experiments/kr90-measured/run.py [--draws 10] [--out results/kr90-measured-tables]
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

import jaxmb
from jaxmb.report import (
    ModePairs,
    Section,
    drawing,
    in_order,
    mac_panels,
    mean_error,
    measured_pairs,
    modes_table,
    on_terminal,
    parameters_table,
    write_figure,
)
from jaxmb.studies import Study, study_data

PLAIN: dict[str, Any] = {"coherence": False, "cross_axis": 0.0}
SYNTHESIZED: dict[str, Any] = {"fit": "synthesized", "symmetrize": "upper", "noise_log_std": 0.01}  # as in the study
VARIANTS: dict[str, dict[str, Any]] = {
    "measured, as in the paper": PLAIN,
    "measured, cross axis": {"coherence": False, "cross_axis": 0.05},
    "synthesized and mirrored, as in the paper": PLAIN | SYNTHESIZED,
    "synthesized and mirrored, cross axis": SYNTHESIZED | {"cross_axis": 0.05},
    "measured, coherence": PLAIN | {"coherence": True},
    "measured, mirrored": PLAIN | {"symmetrize": "upper"},
    "measured, coherence and cross axis": {"coherence": True, "cross_axis": 0.05},
}
"""The first four answer whether the synthesis or `cross_axis` makes the difference."""
WITHIN_HZ, WITHIN_PERCENT, LEAST_MAC = 0.125, 0.175, 0.9
"""The paper's mean errors of its fit on synthesized FRFs (Table 6), and a MAC that a mode should have."""


def compared(study: Study, model: jaxmb.Model) -> ModePairs:
    """A model's modes beside those that were measured in a study's first test."""
    pairs = measured_pairs(study.fitted[0], model)
    if pairs is None:
        raise ValueError(f"study '{study.name}': no mode was measured")
    return pairs


def variant(changes: dict[str, Any], draw: int) -> Study:
    """The study on the stand-in with other settings of its test."""
    data = study_data("kr90-measured")
    test = data["test"][0] | changes
    if test.get("fit") == "synthesized":
        test.pop("band_hz", None)  # the modal model holds in its own band
    data["test"] = [test]
    return jaxmb.make_study(data, "kr90-measured", noise_seed=draw)


def paper_tables(out: Path, console: Console) -> None:
    """Tables 5 and 6 and Figure 11 in the paper's layout, ours in place of theirs."""
    results = {
        name: jaxmb.identify(jaxmb.load_study(f"kr90-{name}")) for name in ("modelled", "measured", "synthesized")
    }
    study = results["measured"].study
    reference = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    models = {"reference": reference} | {f"fit on {name}": result.model for name, result in results.items()}
    values = {name: jaxmb.parameters(model) for name, model in models.items()}
    fitted = {name: {p: values[name][p] for p in study.free.names} for name in models}
    tables = [parameters_table(fitted)]
    columns = {name: compared(study, model) for name, model in models.items()}
    tables.append(modes_table(study.tests[0].name, columns))
    console.print(on_terminal([Section("In the paper's layout", tuple(tables))]))
    pairs = {name: columns[name] for name in models if name != "reference"}
    panels = [
        (f"{name} (Hz)", p.likeness, np.asarray(p.fitted.damped_frequency_hz), p.unmeasured)
        for name, p in pairs.items()
    ]
    measured = np.asarray(columns["reference"].reference.damped_frequency_hz)
    with drawing():
        write_figure(mac_panels("MAC, as Fig. 11", panels, ("measured: modes (Hz)", measured)), out / "mac.png")


def verdict(draws: int, console: Console) -> None:
    """Every way to fit, on other hits and other noise each time."""
    table = Table(
        title=f"{draws} draws of hits and noise: mean (largest) error of the four modes", title_justify="left"
    )
    for heading in ("fit", "frequency [Hz]", "damping [%]", "least MAC", f"within {WITHIN_HZ}, {WITHIN_PERCENT}, 0.9"):
        table.add_column(heading, justify="right")
    for name, changes in VARIANTS.items():
        fits = []
        for draw in range(1, draws + 1):
            study = variant(changes, draw)
            pairs = compared(study, jaxmb.identify(study).model)
            modes = in_order(pairs)
            fits.append((
                mean_error(np.asarray(pairs.reference.damped_frequency_hz), modes.frequency_hz),
                mean_error(100.0 * np.asarray(pairs.reference.damping_ratio), modes.damping_percent),
                float(np.nan_to_num(modes.mac).min()),  # a mode that is missing is like nothing
            ))  # fmt: skip
            console.print(f"{name}, draw {draw}: {fits[-1][0]:.3f} Hz, {fits[-1][1]:.3f} %, MAC {fits[-1][2]:.3f}")
        frequency, damping, mac = np.array(fits).T
        good = (frequency <= WITHIN_HZ) & (damping <= WITHIN_PERCENT) & (mac >= LEAST_MAC)
        table.add_row(
            name,
            f"{frequency.mean():.3f} ({frequency.max():.3f})",
            f"{damping.mean():.3f} ({damping.max():.3f})",
            f"{mac.mean():.3f} ({mac.min():.3f})",
            f"{good.sum()} of {draws}",
        )
    console.print(table)


def main() -> None:
    """Print everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/kr90-measured-tables"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    console = Console(width=110, highlight=False)
    paper_tables(arguments.out, console)
    if arguments.draws > 0:
        verdict(arguments.draws, console)


if __name__ == "__main__":
    main()
