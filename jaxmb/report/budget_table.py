"""Share of joints and links in measured deflections."""

from collections.abc import Mapping

from jaxmb.report.section import Table, left, right

LEAST_SHARE = 1.0
"""Smallest share that is listed, %."""


def budget_table(budget: Mapping[str, Mapping[str, float]] | None) -> Table | None:
    """Share of each joint, spring and flexible link in the deflections along the loads, one column per test."""
    if not budget:
        return None
    names = list(dict.fromkeys(name for shares in budget.values() for name in shares))
    largest = {name: max(shares.get(name, 0.0) for shares in budget.values()) for name in names}
    shown = [name for name in names if largest[name] >= LEAST_SHARE]
    rows = tuple((name, *(f"{shares.get(name, 0.0):.1f}" for shares in budget.values())) for name in shown)
    columns = (*left("joint or link"), *right(*budget))
    caption = f"of the deflection along the load, sum of all load cases; shares of {LEAST_SHARE:g} % and more"
    return Table("Share of the deflections (%)", columns, rows, caption)
