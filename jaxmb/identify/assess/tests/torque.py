"""What a result tells of torque tests."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.metrics import KindMetrics
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.parameters.model_parameters import parameters
from jaxmb.identify.regression.base_parameters import base_parameters
from jaxmb.identify.regression.torque_regressor import regressor_names


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
class BaseRow:
    """A base parameter: a sum of parameters that no motion tells apart."""

    name: str
    """Of its independent parameter."""
    formula: str
    value: float
    std: float
    """By the free parameters in it; 0 where none is free."""
    true: float | None
    """Of the machine that was simulated."""


@dataclasses.dataclass(frozen=True, eq=False)
class TorqueMetrics(KindMetrics):
    """What a result tells of torque tests beside what it tells of all."""

    torques: tuple[TorqueRow, ...]
    base: tuple[BaseRow, ...] = ()

    @classmethod
    def found(cls, finding: Finding, entries: Sequence[Entry]) -> "TorqueMetrics":
        """Of a fit; see `KindMetrics`."""
        rows = []
        for entry in entries:
            test: Any = entry.test
            sizes = zip(entry.source.coordinates, *test.sizes(test.view(finding.model)), strict=True)
            for name, size, missed in sizes:
                percent = 100.0 * missed / size if size else np.nan
                rows.append(TorqueRow(entry.name, entry.role, name, float(size), float(missed), float(percent)))
        return cls(tuple(rows), _base_rows(finding, entries))


def _base_rows(finding: Finding, entries: Sequence[Entry]) -> tuple[BaseRow, ...]:
    """Base parameters of the identified machine that have something free in them."""
    free, names = finding.study.free, regressor_names(finding.model)
    found = base_parameters(finding.model)
    by_value = np.where(np.array(free.logarithmic), finding.values, free.width)
    # of each number of the machine by each free value
    share = np.array([[float(name in tied) for tied in free.tied] for name in names])
    moved = found.matrix @ share * by_value
    variance = np.einsum("bi,ij,bj->b", moved, finding.known.covariance, moved)
    known, true = parameters(finding.model), next((e.truth.parameters for e in entries if e.truth is not None), None)
    values = found.matrix @ np.array([known[name] for name in names])
    expected = None if true is None else found.matrix @ np.array([true.get(name, np.nan) for name in names])
    return tuple(
        BaseRow(name, formula, float(values[i]), float(np.sqrt(variance[i])),
                None if expected is None else float(expected[i]))
        for i, (name, formula) in enumerate(zip(found.names, found.formulas, strict=True))
        if moved[i].any()
    )  # fmt: skip
