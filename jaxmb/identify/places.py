"""Where in a study something is wrong, in front of the sentence that says what."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from jaxmb.identify.elastostatic.sets import DeflectionSet
from jaxmb.identify.study_tests import called
from jaxmb.machine.file import InputError


@contextmanager
def place(text: str) -> Iterator[None]:
    """Name the place in front of what is wrong there.

    Raises:
        InputError: instead of a ValueError, the place in front.
        NotImplementedError: likewise.
    """
    try:
        yield
    except NotImplementedError as error:
        raise NotImplementedError(f"{text}: {error}") from None
    except ValueError as error:
        raise InputError(f"{text}: {error}") from None


def sets_told(sets: Sequence[DeflectionSet]) -> str:
    """The sets of a study in a sentence: "test 'near'", "tests 'near', 'far'"."""
    if len(sets) == 1:
        return called(sets[0].name)
    return f"tests {', '.join(repr(group.name) for group in sets)}"
