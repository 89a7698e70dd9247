"""`jaxmb modal`."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from jaxmb.cli.console import NOT_CONVERGED, Out, WrongInput, deliver, names_in, progress, say, wrong_input

if TYPE_CHECKING:
    from jaxmb.identify.study.format.vibration_format import ModalPart
    from jaxmb.measurement.frf_set import FrfSet
    from jaxmb.measurement.modal.analysis import ModalAnalysis
    from jaxmb.report.pick import PolePicker


def modal(
    file: Annotated[
        str,
        typer.Argument(
            help="FRFs (.npz, .uff, .unv, .mat, .csv), a .toml that describes time records, or a built-in measurement.",
            show_default=False,
        ),
    ],
    band_hz: Annotated[
        tuple[float, float] | None, typer.Option(help="Lowest and highest frequency, Hz.", show_default="all lines")
    ] = None,
    order: Annotated[
        int | None, typer.Option(min=2, max=200, help="Highest order of the estimator.", show_default="60")
    ] = None,
    method: Annotated[str | None, typer.Option(help="polyreference or lsce.", show_default="polyreference")] = None,
    references: Annotated[
        str | None,
        typer.Option(help='Inputs to use, as "1 x, 2 -z".', show_default="all, or the outputs if there are fewer"),
    ] = None,
    poles_hz: Annotated[
        str | None,
        typer.Option(
            help='Poles chosen by hand, as "9.9, 11.0", or the file poles.toml that --pick wrote.',
            show_default="stable poles",
        ),
    ] = None,
    pick: Annotated[
        bool, typer.Option("--pick", help="Select the poles with the pointer in a window, and write poles.toml.")
    ] = False,
    unit: Annotated[
        str | None,
        typer.Option(help='Unit of the FRFs, as "m/s^2/N" or "g/lbf", if the file has none.', show_default=False),
    ] = None,
    out: Out = None,
) -> None:
    """Modal analysis of measured FRFs; write modal.json, modes.uff, the FRFs measured and synthesized, and figures."""
    from jaxmb.measurement.files.frf_file import write_frf
    from jaxmb.measurement.modal.analysis import modal_analysis
    from jaxmb.measurement.modal_file import write_modal_model
    from jaxmb.measurement.records.file import in_stated_unit, measured_frf

    name = Path(file).stem
    with wrong_input(), progress(name, "reading") as report:
        settings = _settings(poles_hz, band_hz=band_hz, max_order=order, method=method, references=names_in(references))
        estimate = measured_frf(file)
        frf_set, hits = estimate.frf_set, estimate.hits
        if unit is not None:
            frf_set, *hits = (in_stated_unit(each, unit, file) for each in (frf_set, *hits))
        if not pick:
            analysis = modal_analysis(
                frf_set, settings.band_hz, settings.max_order, settings.method, settings.references,
                settings.chosen_hz, report=report, hits=hits,
            )  # fmt: skip
    picked = None
    if pick:
        picked, analysis = _picked(name, frf_set, settings)
    from jaxmb.report.modal import modal_json, modal_sections, synthesized

    compared = synthesized(analysis, frf_set)
    sections = modal_sections(name, analysis, compared, estimate.remarks, estimate.summary)
    files: dict[str, bytes | Callable[[Path], object]] = {
        "modal.json": modal_json(name, analysis, compared, estimate.remarks).encode(),
        "modes.uff": lambda path: write_modal_model(path, analysis.model, frf_set.nodes, frf_set.trace_lines),
        "measured.npz": lambda path: write_frf(path, frf_set),
        "synthesized.npz": lambda path: write_frf(path, compared.synthesized),
    }
    if picked is not None:
        files["poles.toml"] = picked.write
    deliver(name, Path("results") / name if out is None else out, sections, files)
    if analysis.frequency_hz.size == 0:
        raise typer.Exit(say("no stable pole was found in the band", NOT_CONVERGED))


def _settings(poles: str | None, **options: object) -> "ModalPart":
    """Options of the analysis, None where not given; those given beside a file of poles replace its own."""
    from jaxmb.identify.study.format.vibration_format import ModalPart, PolesFile
    from jaxmb.io.files import number_of_cell, read_toml
    from jaxmb.io.validation import finite_number, validated

    saved, given = ModalPart(), {key: value for key, value in options.items() if value is not None}
    if poles is not None and poles.lower().endswith(".toml"):
        saved = validated(PolesFile, read_toml(Path(poles)), poles).modal
    elif poles is not None:
        numbers = (number_of_cell("--poles-hz", part) for part in poles.split(","))
        given |= {"chosen_hz": tuple(finite_number("--poles-hz", number, above=0.0) for number in numbers)}
    return saved.model_copy(update=given)


def _picked(name: str, frf_set: "FrfSet", settings: "ModalPart") -> "tuple[PolePicker, ModalAnalysis]":
    """Picker and analysis of the poles selected in a window, which is open until the user closes it."""
    with wrong_input():
        from matplotlib import pyplot

        from jaxmb.report.pick import PolePicker, window

        figure = window(name)
        with progress(name, "stabilization chart"):
            picker = PolePicker(figure, name, frf_set, settings)
    pyplot.show()
    if picker.analysis is None:
        raise WrongInput("no pole is selected: nothing was written")
    return picker, picker.analysis
