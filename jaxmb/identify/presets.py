"""Published methods as settings, so that they can be compared with ours on the same study."""

from jaxmb.identify.study_file import FrfTestPart, StudyFile


def with_preset(file: StudyFile) -> StudyFile:
    """The study with the settings of its preset.

    "huynh2020" is the method of Huynh et al. 2020, section 3: a genetic algorithm and then Nelder-Mead, again from
    there until the cost is below the tolerance, on the parameters themselves and with the printed phase of eq. 22.
    Population, generations, iterations, tolerance and rounds are those of the study.
    """
    if file.preset == "default":
        return file
    search = file.search.model_copy(update={"algorithm": "SimpleGA"})
    refine = file.refine.model_copy(update={"method": "nelder-mead", "coarse_lines": 0, "starts": 1, "keep": 1})
    free = {name: part.model_copy(update={"scale": "linear"}) for name, part in file.free.items()}
    test = tuple(t.model_copy(update={"phase": "principal"}) if isinstance(t, FrfTestPart) else t for t in file.test)
    return file.model_copy(update={"search": search, "refine": refine, "free": free, "test": test})
