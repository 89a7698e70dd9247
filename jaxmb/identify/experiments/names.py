"""Names of tests and other things in sentences."""

import re
from collections.abc import Sequence

MOST_NAMED = 5
"""Largest number of names listed in a sentence."""


def listed(names: Sequence[str]) -> str:
    """Names in a sentence, "and 3 more" for those beyond `MOST_NAMED`."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def display_name(name: str) -> str:
    """A test in a sentence: "test 'arm'", and "test 1" where that is all its name."""
    return name if re.fullmatch(r"test \d+", name) else f"test '{name}'"
