"""A test of a study with what is known of it beside what the fit sees."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np

from jaxmb.identify.experiments.test import Test
from jaxmb.identify.parameters.free_parameters import FreeParameters
from jaxmb.machine.build import Model
from jaxmb.measurement.modal.analysis import ModalAnalysis
from jaxmb.response.modal import Modes


@dataclasses.dataclass(frozen=True)
class Truth:
    """The machine that was measured, where the measurement was simulated."""

    coordinates: tuple[str, ...]
    """Of its small motions."""
    parameters: dict[str, float]
    modes: Modes | None = None
    """At the posture of the test, where it has one."""


@dataclasses.dataclass(frozen=True, eq=False)
class Source:
    """What a test was made of. Kinds of tests that keep more have a source of their own."""

    modal: ModalAnalysis | None = None
    """Modal analysis of all that was measured."""
    about: "Callable[[Model], Entry] | None" = None
    """The test linearized about a fitted machine, where its prediction is not linear."""

    @property
    def loads(self) -> np.ndarray:
        """Wrenches [case, 6] that were put on the machine; none where it was excited otherwise."""
        return np.zeros((0, 6))

    noise_estimated: ClassVar[bool] = False
    """Whether its noise is the residual of a fit, so that the size of a residual says nothing."""
    std_unknown: ClassVar[bool] = False
    """Whether its errors are too large for standard deviations to follow from them."""

    def gross_errors(
        self, test: Any, model: Model, jacobian: np.ndarray | None = None, free: FreeParameters | None = None
    ) -> str:
        """A sentence on data that the prediction does not follow, whatever their noise; empty where there is none.

        Args:
            test: the test.
            model: the identified machine's.
            jacobian: of its residual; None of a test that was not fitted.
            free: the free parameters; likewise.
        """
        return ""

    def cause(self, test: Any, model: Model, free: FreeParameters) -> str:
        """A clause on the single error of the test that explains the residual; empty where none is known."""
        return ""

    def check_linear(self, model: Model) -> None:
        """Raise ValueError where what was measured cannot be solved for in one linear step; the place is named."""


T = TypeVar("T", bound=Test[Any])
S = TypeVar("S", bound=Source)


@dataclasses.dataclass(frozen=True, eq=False)
class Entry(Generic[T, S]):
    """A test of a study with what is known of it beside what the fit sees."""

    kind: str
    """As study files call it."""
    test: T
    source: S = Source()  # pyright: ignore[reportAssignmentType]
    truth: Truth | None = None
    amplitude: float | None = None
    """Level of the force or motion, for laws of it."""
    role: Literal["fit", "check"] = "fit"
    """"check": it is predicted and compared, and the fit does not see it."""
    remarks: tuple[str, ...] = ()
    """Sentences on the data: lines that are not used, standard deviations that nobody stated."""

    @property
    def name(self) -> str:
        """Of the test."""
        return self.test.name

    @property
    def reference_hz(self) -> np.ndarray | None:
        """Damped natural frequencies of the machine that was measured, where they are known otherwise than by the fit:
        from modal analysis, or of the machine that was simulated."""
        if self.source.modal is not None:
            return np.asarray(self.source.modal.model.damped_frequency_hz)
        if self.truth is not None and self.truth.modes is not None:
            return np.asarray(self.truth.modes.damped_frequency_hz)
        return None


def by_kind(entries: Sequence[Entry], kinds: Iterable[str]) -> list[tuple[str, list[Entry]]]:
    """Entries of each kind of test that there is one of, in the order of the kinds."""
    found = [(kind, [entry for entry in entries if entry.kind == kind]) for kind in kinds]
    return [(kind, some) for kind, some in found if some]
