"""Machines from tables of Denavit-Hartenberg parameters."""

from typing import Any


def expand_tables(data: dict[str, Any]) -> dict[str, Any]:
    return data
