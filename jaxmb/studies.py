"""Studies: what a study file may say, and what it becomes once it is read and checked.

A study names a machine, the tests that were made of it and what is free. It is a TOML file (`load_study`), or the same
as plain data (`make_study`), which `study_data` gives of a file. `Study.entries` are its tests with what is known of
them; `jaxmb.identify` fits it.

The public names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from jaxmb.io.lazy import lazy

if TYPE_CHECKING:
    from jaxmb.identify.experiments.entry import Entry, Source, Truth
    from jaxmb.identify.experiments.instruments import Instruments
    from jaxmb.identify.study.file import study_data, study_names
    from jaxmb.identify.study.format.deflection_format import (
        CompletePart,
        DeflectionTestPart,
        DesignPart,
        SimulateDeflections,
    )
    from jaxmb.identify.study.format.frf_format import BandWeight, FrfTestPart, ModalPart, Weights
    from jaxmb.identify.study.format.law_format import LawsPart
    from jaxmb.identify.study.format.modes_format import ModesTestPart
    from jaxmb.identify.study.format.next_format import NextPart, PointsPart
    from jaxmb.identify.study.format.simulation_format import Hits, Lines, Simulate, SimulateModes
    from jaxmb.identify.study.format.study_format import FreePart, StudyFile
    from jaxmb.identify.study.study import Study, linear_in, load_study, make_study

__all__ = [
    "BandWeight",
    "CompletePart",
    "DeflectionTestPart",
    "DesignPart",
    "Entry",
    "FreePart",
    "FrfTestPart",
    "Hits",
    "Instruments",
    "LawsPart",
    "Lines",
    "ModalPart",
    "ModesTestPart",
    "NextPart",
    "PointsPart",
    "Simulate",
    "SimulateDeflections",
    "SimulateModes",
    "Source",
    "Study",
    "StudyFile",
    "Truth",
    "Weights",
    "linear_in",
    "load_study",
    "make_study",
    "study_data",
    "study_names",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "BandWeight": "jaxmb.identify.study.format.frf_format",
        "CompletePart": "jaxmb.identify.study.format.deflection_format",
        "DeflectionTestPart": "jaxmb.identify.study.format.deflection_format",
        "DesignPart": "jaxmb.identify.study.format.deflection_format",
        "Entry": "jaxmb.identify.experiments.entry",
        "FreePart": "jaxmb.identify.study.format.study_format",
        "FrfTestPart": "jaxmb.identify.study.format.frf_format",
        "Hits": "jaxmb.identify.study.format.simulation_format",
        "Instruments": "jaxmb.identify.experiments.instruments",
        "LawsPart": "jaxmb.identify.study.format.law_format",
        "Lines": "jaxmb.identify.study.format.simulation_format",
        "ModalPart": "jaxmb.identify.study.format.frf_format",
        "ModesTestPart": "jaxmb.identify.study.format.modes_format",
        "NextPart": "jaxmb.identify.study.format.next_format",
        "PointsPart": "jaxmb.identify.study.format.next_format",
        "Simulate": "jaxmb.identify.study.format.simulation_format",
        "SimulateDeflections": "jaxmb.identify.study.format.deflection_format",
        "SimulateModes": "jaxmb.identify.study.format.simulation_format",
        "Source": "jaxmb.identify.experiments.entry",
        "Study": "jaxmb.identify.study.study",
        "StudyFile": "jaxmb.identify.study.format.study_format",
        "Truth": "jaxmb.identify.experiments.entry",
        "Weights": "jaxmb.identify.study.format.frf_format",
        "linear_in": "jaxmb.identify.study.study",
        "load_study": "jaxmb.identify.study.study",
        "make_study": "jaxmb.identify.study.study",
        "study_data": "jaxmb.identify.study.file",
        "study_names": "jaxmb.identify.study.file",
    },
)
