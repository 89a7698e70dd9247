"""Published methods as settings, so that they can be compared with ours on the same study."""

from pydantic import BaseModel

from jaxmb.identify.study.format.study_format import StudyFile

PRESETS = ("default", "huynh2020", "rognant2010")
SMALL = 3
"""Coordinates up to which the settings are those of section 4 of Huynh et al. 2020, of section 5 above."""


def with_preset(file: StudyFile, coordinates: int) -> StudyFile:
    """The study with the settings of its preset.

    "huynh2020" is the method of Huynh et al. 2020, section 3: a genetic algorithm and then Nelder-Mead, again from
    there until the cost is below the tolerance or after three rounds (as many as the paper needed), on the parameters
    themselves and with the printed phase of eq. 22. Population, generations, iterations and tolerance are those printed
    in section 4 (three coordinates) or section 5 (more), where the study does not give its own.

    "rognant2010" changes no setting: the study is fitted in two steps (`jaxmb.identify.fit.two_steps`).

    Args:
        file: the study.
        coordinates: how many coordinates its machine has.
    """
    if file.preset != "huynh2020":
        return file
    small = coordinates <= SMALL
    search = {"algorithm": "SimpleGA"} | _where_not_given(
        file.search, population=80 if small else 100, generations=15 if small else 20
    )
    refine = {"method": "nelder-mead", "coarse_lines": 0, "starts": 1, "keep": 1} | _where_not_given(
        file.refine, most_steps=5000 if small else 10_000
    )
    free = {name: part.model_copy(update={"scale": "linear"}) for name, part in file.free.items()}
    test = tuple(part.as_published() for part in file.test)
    whole = _where_not_given(file, tolerance=1e-12 if small else 300.0, rounds=3)
    parts = {
        "search": file.search.model_copy(update=search),
        "refine": file.refine.model_copy(update=refine),
        "free": free,
        "test": test,
    }
    return file.model_copy(update=whole | parts)


def _where_not_given(part: BaseModel, **settings: object) -> dict[str, object]:
    return {name: value for name, value in settings.items() if name not in part.model_fields_set}
