"""`jaxmb modal`."""

import math
from pathlib import Path
from typing import Annotated

import typer

from jaxmb.cli.console import NOT_CONVERGED, Out, deliver, progress, say, wrong_input


def modal(
    file: Annotated[
        str,
        typer.Argument(
            help="FRFs (.npz, .uff, .unv, .mat, .csv), a .toml that describes time records, or a built-in measurement.",
            show_default=False,
        ),
    ],
    band_hz: Annotated[
        tuple[float, float] | None,
        typer.Option(help="Lowest and highest frequency, Hz.", show_default="all lines"),
    ] = None,
    order: Annotated[int, typer.Option(min=2, max=200, help="Highest order of the estimator.")] = 60,
    method: Annotated[str, typer.Option(help="polyreference or lsce.")] = "polyreference",
    references: Annotated[
        str | None,
        typer.Option(help='Inputs to use, as "1 x, 2 -z".', show_default="all, or the outputs if there are fewer"),
    ] = None,
    poles_hz: Annotated[
        str | None,
        typer.Option(help='Poles chosen by hand, as "9.9, 11.0".', show_default="stable poles"),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(help='Unit of the FRFs, as "m/s^2/N" or "g/lbf", if the file has none.', show_default=False),
    ] = None,
    out: Out = None,
) -> None:
    """Modal analysis of measured FRFs; write modal.json, modes.uff, the FRFs measured and synthesized, and
    figures."""
    from jaxmb.io.files import write_atomically
    from jaxmb.measurement.files.frf_file import write_frf
    from jaxmb.measurement.frf_set import with_unit
    from jaxmb.measurement.modal.analysis import modal_analysis
    from jaxmb.measurement.modal_file import write_modal_model
    from jaxmb.measurement.records.file import measured_frf

    name = Path(file).stem
    with wrong_input(), progress(name, "reading") as report:
        estimate = measured_frf(file)
        frf_set = estimate.frf_set if unit is None else with_unit(estimate.frf_set, unit)
        analysis = modal_analysis(
            frf_set,
            band_hz=band_hz,
            max_order=order,
            method=method,  # pyright: ignore[reportArgumentType]  (checked there)
            references=None if references is None else tuple(name.strip() for name in references.split(",")),
            chosen=None if poles_hz is None else _numbers(poles_hz),
            report=report,
            hits=[hit if unit is None else with_unit(hit, unit) for hit in estimate.hits],
        )
    from jaxmb.report.modal import modal_json, modal_sections, synthesized

    compared = synthesized(analysis, frf_set)
    sections = modal_sections(name, analysis, compared, estimate.remarks, estimate.summary)
    text = modal_json(name, analysis, compared, estimate.remarks).encode()
    files = {
        "modal.json": lambda path: write_atomically(path, text),
        "modes.uff": lambda path: write_modal_model(path, analysis.model, frf_set.nodes),
        "measured.npz": lambda path: write_frf(path, frf_set),
        "synthesized.npz": lambda path: write_frf(path, compared.synthesized),
    }
    deliver(name, Path("results") / name if out is None else out, sections, files)
    if analysis.frequency_hz.size == 0:
        raise typer.Exit(say("no stable pole was found in the band", NOT_CONVERGED))


def _numbers(text: str) -> list[float]:
    try:
        frequencies = [float(part) for part in text.split(",")]
    except ValueError:
        frequencies = [0.0]
    if not all(0.0 < frequency < math.inf for frequency in frequencies):
        raise ValueError(f"--poles-hz is '{text}', expected frequencies such as \"9.9, 11.0\"")
    return frequencies
