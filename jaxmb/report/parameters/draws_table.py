"""Table of the parameters over Monte-Carlo or bootstrap draws."""

import numpy as np

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.uncertainty.monte_carlo import Draws
from jaxmb.report.cells import number
from jaxmb.report.section import Section, Table, left, right, section


def draws_sections(draws: Draws, result: Result, what: str) -> list[Section]:
    """Identified values, their standard deviations, and scatter, bias and coverage over the draws.

    Args:
        draws: fits to data drawn about the identified machine.
        result: the identification.
        what: description of the draws, for the caption.
    """
    interval = draws.interval()
    rows = []
    for k, name in enumerate(draws.names):
        parameter, log = result.parameters[name], bool(draws.logarithmic[k])
        scale = 100.0 if log else 1.0
        rows.append((
            name, parameter.unit, number(parameter.value), _size(scale * (parameter.std_log if log else parameter.std)),
            _size(scale * draws.scatter[k]), _size(scale * draws.bias[k]), number(interval[k, 0]),
            number(interval[k, 1]), f"{100.0 * draws.coverage[k]:.0f}",
        ))  # fmt: skip
    columns = (
        *left("parameter", "unit"), *right("value", "std", "scatter", "bias"),
        *right("from", "to", minor=1), *right("covered %"),
    )  # fmt: skip
    failed = len(draws.converged) - int(draws.converged.sum())
    caption = (
        f"std of the fit, scatter and bias of {len(draws.converged)} fits to {what}, in % for logarithmic parameters;"
        " from, to: central 95 % of the fits; covered: share of their 95 % intervals that contain the value drawn from"
        + (f"; {failed} fits did not converge and are excluded" if failed else "")
    )
    return section("Draws", (Table("", columns, tuple(rows), caption),))


def _size(value: float) -> str:
    return number(float(value), 2) if np.isfinite(value) else "-"
