"""What a result tells of torque tests."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.experiments.entry import Entry


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueRow:
    """Measured and predicted efforts at one coordinate."""

    test: str
    role: str
    coordinate: str
    rms: float
    """Of the measured effort, Nm or N."""
    rms_error: float
    relative_percent: float
    """100 |measured - predicted| / |measured|."""


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueMetrics(KindMetrics):
    """What a result tells of torque tests beside what it tells of all."""

    torques: tuple[TorqueRow, ...]

    @classmethod
    def found(cls, finding: Finding, entries: Sequence[Entry]) -> "TorqueMetrics":
        """Of a fit; see `KindMetrics`."""
        rows = []
        for entry in entries:
            test: Any = entry.test
            predicted = np.asarray(test.predict(test.view(finding.model)))
            measured, number = np.asarray(test.effort), np.asarray(test.coordinate)
            for i, name in enumerate(entry.source.coordinates):
                own = measured[number == i]
                left = own - predicted[number == i]
                size, error = (float(np.sqrt(np.mean(x**2))) for x in (own, left))
                percent = 100.0 * error / size if size else np.nan
                rows.append(TorqueRow(entry.name, entry.role, name, size, error, percent))
        return cls(tuple(rows))
