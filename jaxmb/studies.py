"""Studies: the format of study files, and validated studies.

A study names a machine, its tests and the free parameters. It is read from a TOML file (`load_study`) or made from the
same data as dictionaries (`make_study`); `study_data` returns the data of a file. `Study.entries` are its tests with
their sources; `jaxmb.identify` fits it.
"""

from jaxmb.identify.experiments.test import (
    Entry as Entry,
    Source as Source,
    Truth as Truth,
)
from jaxmb.identify.experiments.tolerances import Instruments as Instruments, Tolerances as Tolerances
from jaxmb.identify.study.format.next_format import (
    NextPart as NextPart,
    PointsPart as PointsPart,
)
from jaxmb.identify.study.format.static_format import (
    CompletePart as CompletePart,
    DeflectionTestPart as DeflectionTestPart,
    DesignPart as DesignPart,
    SimulateDeflections as SimulateDeflections,
)
from jaxmb.identify.study.format.study_format import (
    FreePart as FreePart,
    LawsPart as LawsPart,
    StudyFile as StudyFile,
    study_data as study_data,
    study_names as study_names,
)
from jaxmb.identify.study.format.vibration_format import (
    BandWeight as BandWeight,
    FrfTestPart as FrfTestPart,
    Hits as Hits,
    Lines as Lines,
    ModalPart as ModalPart,
    ModesTestPart as ModesTestPart,
    Simulate as Simulate,
    SimulateModes as SimulateModes,
    Weights as Weights,
)
from jaxmb.identify.study.study import (
    Study as Study,
    linear_in as linear_in,
    load_study as load_study,
    make_study as make_study,
)
