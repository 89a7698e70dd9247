"""What a result tells of modal tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.modes_test import predict_modes
from jaxmb.mechanics.tangent import motion_coordinates


def modes_metrics(finding: Finding, entries: Sequence[Entry]) -> dict[str, Any]:
    """The predicted mode that stands for each measured one."""
    names, lines = motion_coordinates(finding.model), []
    for entry, view, _ in finding.of(entries):
        test: Any = entry.test
        frequency, damping, share, likeness, _ = (np.asarray(x) for x in predict_modes(test, view))
        lines += [
            {
                "posture": entry.name,
                "measured_frequency_hz": float(test.frequency_hz[m]),
                "frequency_hz": float(frequency[m]),
                "measured_damping_percent": 100.0 * float(test.damping_ratio[m]),
                "damping_percent": 100.0 * float(damping[m]),
                "content": [c for c, on in zip(names, test.content[m], strict=True) if on],
                "energy_share": float(share[m]),
                "mac": float(likeness[m]) if test.outputs else None,
            }
            for m in range(frequency.size)
        ]
    return {"measured_modes": lines} if lines else {}
