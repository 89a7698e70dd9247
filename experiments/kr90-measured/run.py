"""Tables 5 and 6 and Figure 11 of Huynh et al. 2020 on a stand-in for its FRFs, and what changes the verdict.

python experiments/kr90-measured/run.py [--draws 10] [--out results/kr90-measured-tables]
"""

import argparse
import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import jaxmb
from jaxmb.identify.experiments import FrfTest, scene
from jaxmb.identify.modal_agreement import ModalAgreement, modal_agreement
from jaxmb.identify.study import Study
from jaxmb.identify.study_file import StudyFile
from jaxmb.machine.file import find_description, read_toml
from jaxmb.report.style import drawing, write_figure

PLAIN: dict[str, Any] = {"coherence": False, "cross_axis": 0.0}
SYNTHESIZED: dict[str, Any] = {"fit": "synthesized", "symmetrize": "upper"}
VARIANTS: dict[str, dict[str, Any]] = {
    "measured, as in the paper": PLAIN,
    "measured, coherence": PLAIN | {"coherence": True},
    "measured, mirrored": PLAIN | {"symmetrize": "upper"},
    "measured, coherence and cross axis": {"coherence": True, "cross_axis": 0.05},
    "synthesized and mirrored, as in the paper": PLAIN | SYNTHESIZED,
    "synthesized and mirrored, cross axis": SYNTHESIZED | {"cross_axis": 0.05},
}
WITHIN_HZ, WITHIN_PERCENT, LEAST_MAC = 0.125, 0.175, 0.9
"""The paper's mean errors of its fit on synthesized FRFs (Table 6), and a MAC that a mode should have."""


class Fitted(NamedTuple):
    """A model beside the measured modes."""

    frequency_hz: np.ndarray
    damping_percent: np.ndarray
    mac: np.ndarray
    frequency_error_hz: float
    damping_error_percent: float


def compared(agreement: ModalAgreement) -> Fitted:
    """The modes of a model that stand for the measured ones, and their mean absolute errors."""
    picked = agreement.partner
    frequency_hz = np.asarray(agreement.fitted.damped_frequency_hz)[picked]
    damping_percent = 100.0 * np.asarray(agreement.fitted.damping_ratio)[picked]
    return Fitted(
        frequency_hz,
        damping_percent,
        agreement.likeness[picked, np.arange(picked.size)],
        float(np.mean(np.abs(frequency_hz - np.asarray(agreement.measured.damped_frequency_hz)))),
        float(np.mean(np.abs(damping_percent - 100.0 * np.asarray(agreement.measured.damping_ratio)))),
    )


def agreement_of(study: Study, model: jaxmb.Model) -> ModalAgreement:
    """A model's modes beside those that were measured in a study's first test."""
    test, data = study.tests[0], study.measured[0]
    if not isinstance(test, FrfTest) or data is None or data.modal is None:
        raise ValueError(f"study '{study.name}' has no modal analysis")
    found = modal_agreement(test, data.modal.model, scene(test, model), model)
    if found is None:
        raise ValueError(f"study '{study.name}': no mode was found")
    return found


def variant(changes: dict[str, Any], draw: int) -> Study:
    """The study on the stand-in with other settings of its test."""
    path = find_description("kr90-measured", "studies", "study", (".toml",))
    data = copy.deepcopy(read_toml(path))
    test = data["test"][0] | changes
    if test.get("fit") == "synthesized":
        test.pop("band_hz", None)  # the modal model holds in its own band
    data["test"] = [test]
    return jaxmb.make_study(StudyFile.model_validate(data), "kr90-measured", path.parent, noise_seed=draw)


def paper_tables(out: Path, console: Console) -> None:
    """Tables 5 and 6 and Figure 11 in the paper's layout, ours in place of theirs."""
    results = {
        name: jaxmb.identify(jaxmb.load_study(f"kr90-{name}")) for name in ("modelled", "measured", "synthesized")
    }
    study = results["measured"].study
    reference = jaxmb.build_model(jaxmb.load_machine("kuka-kr90"))
    models = {"reference": reference} | {name: result.model for name, result in results.items()}
    agreements = {name: agreement_of(study, model) for name, model in models.items()}
    table = Table(title="Table 5: stiffnesses (N m/rad) and dampings (N m s/rad)", title_justify="left")
    for heading in ("", "reference", "fit on model", "fit on measured", "fit on synthesized"):
        table.add_column(heading, justify="right")
    values = {name: jaxmb.parameters(model) for name, model in models.items()}
    for name in study.free.names:
        table.add_row(name, *(f"{values[column][name]:.3g}" for column in models))
    console.print(table)
    fits = {name: compared(agreement) for name, agreement in agreements.items()}
    measured = agreements["reference"].measured
    table = Table(title="Table 6: modes", title_justify="left")
    for heading in ("", "measured", "reference", "fit on model", "fit on measured", "fit on synthesized"):
        table.add_column(heading, justify="right")
    for m, f in enumerate(np.asarray(measured.damped_frequency_hz)):
        table.add_row(f"f{m + 1} [Hz]", f"{f:.2f}", *(f"{fit.frequency_hz[m]:.2f}" for fit in fits.values()))
    table.add_row("mean error [Hz]", "/", *(f"{fit.frequency_error_hz:.3f}" for fit in fits.values()))
    for m, d in enumerate(100.0 * np.asarray(measured.damping_ratio)):
        table.add_row(f"damping {m + 1} [%]", f"{d:.2f}", *(f"{fit.damping_percent[m]:.2f}" for fit in fits.values()))
    table.add_row("mean error [%]", "/", *(f"{fit.damping_error_percent:.3f}" for fit in fits.values()))
    for m in range(len(fits["reference"].mac)):
        table.add_row(f"MAC {m + 1}", "/", *(f"{fit.mac[m]:.3f}" for fit in fits.values()))
    console.print(table)
    with drawing():
        write_figure(_figure_11(agreements), out / "mac.png")


def _figure_11(agreements: dict[str, ModalAgreement]) -> Figure:
    titles = {"modelled": "fit on model", "measured": "fit on measured", "synthesized": "fit on synthesized"}
    figure = Figure(figsize=(8.4, 3.5), layout="constrained")
    for axes, (name, title) in zip(figure.subplots(1, 3, sharey=True), titles.items(), strict=True):
        agreement = agreements[name]
        likeness = agreement.likeness[agreement.partner]
        axes.imshow(likeness, cmap="Blues", vmin=0.0, vmax=1.0)
        for (row, column), value in np.ndenumerate(likeness):
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color="white" if value > 0.6 else "0.15")
        ticks = range(likeness.shape[1])
        axes.set_xticks(ticks, [f"{f:.1f}" for f in np.asarray(agreement.measured.damped_frequency_hz)])
        axes.set_yticks(ticks, [f"mode {m + 1}" for m in ticks])
        axes.set_xlabel("measured: modes (Hz)")
        axes.set_title(title)
        axes.grid(False)
    return figure


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
            fits.append(compared(agreement_of(study, jaxmb.identify(study).model)))
            console.print(
                f"{name}, draw {draw}: {fits[-1][3]:.3f} Hz, {fits[-1][4]:.3f} %, MAC {fits[-1].mac.min():.3f}"
            )
        frequency, damping = (np.array([fit[i] for fit in fits]) for i in (3, 4))
        mac = np.array([fit.mac.min() for fit in fits])
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
    verdict(arguments.draws, console)


if __name__ == "__main__":
    main()
