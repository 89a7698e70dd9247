"""What fits to many draws say of the parameters, as a table."""

import numpy as np

from jaxmb.identify.assess.result import Result
from jaxmb.identify.assess.uncertainty.monte_carlo import Draws
from jaxmb.report.cells import number
from jaxmb.report.section import Section, Table, left, right, section


def draws_sections(draws: Draws, result: Result, what: str) -> list[Section]:
    """Values that were found, their standard deviations, and how the fits to draws scatter.

    Args:
        draws: fits about what was found.
        result: what was found.
        what: was drawn, in the title.
    """
    interval = draws.interval()
    rows = []
    for k, name in enumerate(draws.names):
        parameter, log = result.parameters[name], bool(draws.logarithmic[k])
        times = 100.0 if log else 1.0
        rows.append((
            name, parameter.unit, number(parameter.value), _size(times * (parameter.std_log if log else parameter.std)),
            _size(times * draws.scatter[k]), _size(times * draws.bias[k]), number(interval[k, 0]),
            number(interval[k, 1]), f"{100.0 * draws.coverage[k]:.0f}",
        ))  # fmt: skip
    columns = (
        *left("parameter", "unit"), *right("value", "std", "scatter", "bias"),
        *right("from", "to", minor=1), *right("covered %"),
    )  # fmt: skip
    lost = len(draws.converged) - int(draws.converged.sum())
    caption = (
        f"std by the fit, scatter and bias of {len(draws.converged)} fits to {what}, in % of logarithmic parameters;"
        " from, to: where 95 % of these lie; covered: how often their own 95 % interval holds what they were drawn from"
        + (f"; {lost} of them did not converge and are left out" if lost else "")
    )
    return section("Draws", (Table("", columns, tuple(rows), caption),))


def _size(value: float) -> str:
    return number(float(value), 2) if np.isfinite(value) else "-"
