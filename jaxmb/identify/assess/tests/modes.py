"""What a result tells of modal tests."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.assess.modal_agreement import ModePair
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.modes_test import predict_modes


@dataclasses.dataclass(frozen=True, eq=False)
class ModesMetrics(KindMetrics):
    """What a result tells of modal tests beside what it tells of all."""

    measured_modes: tuple[ModePair, ...] | None = None
    """Measured modes, each beside the predicted one that stands for it."""

    @classmethod
    def found(cls, finding: Finding, entries: Sequence[Entry]) -> "ModesMetrics | None":
        """Of a fit; see `KindMetrics`."""
        model, lines = finding.model, []
        names = (*model.coordinates, *model.springs, *model.beams)
        for entry, view, _ in finding.of(entries):
            test: Any = entry.test
            frequency, damping, share, likeness, _ = (np.asarray(x) for x in predict_modes(test, view))
            lines += [
                ModePair(
                    posture=entry.name,
                    measured_frequency_hz=float(test.frequency_hz[m]),
                    frequency_hz=float(frequency[m]),
                    measured_damping_percent=100.0 * float(test.damping_ratio[m]),
                    damping_percent=100.0 * float(damping[m]),
                    content=tuple(c for c, on in zip(names, test.content[m], strict=True) if on),
                    energy_share=float(share[m]),
                    mac=float(likeness[m]) if test.outputs else None,
                )
                for m in range(frequency.size)
            ]
        return cls(tuple(lines)) if lines else None
