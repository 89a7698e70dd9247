"""What a result tells of FRF tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.identify.assess.finding import Finding
from jaxmb.identify.assess.remarks import undamped
from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.frf_misfit import frf_misfit
from jaxmb.identify.fit.noise import noise_factor


def frf_metrics(finding: Finding, entries: Sequence[Entry]) -> dict[str, Any]:
    """Root mean square error of log H of each test, and the noise of those whose noise was to be estimated."""
    errors, noise = {}, {}
    for entry, _, rows in finding.of(entries):
        test: Any = entry.test
        errors[entry.name] = test.log_error(finding.residual[rows])
        if not test.noise_known:
            factor = noise_factor(finding.residual[rows], finding.row_weights[rows], finding.study.free.size)
            noise[entry.name] = factor * float(test.nominal_std)
    return ({"log_error": errors} if errors else {}) | ({"noise_log_std": noise} if noise else {})


def frf_remarks(finding: Finding, entries: Sequence[Entry], metrics: dict[str, Any]) -> list[str]:
    """What may be wrong with FRFs that the machine does not follow."""
    told = []
    for entry, view, rows in finding.of(entries):
        test: Any = entry.test
        error = test.log_error(finding.residual[rows])
        told += frf_misfit(test, np.asarray(test.predict(view)), error, undamped(finding))
    return told
