"""A verdict on what was not used: tests and lines that are predicted beside those that were fitted."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.test import Score
from jaxmb.identify.study.study import Study
from jaxmb.machine.build import Model


def verdicts_on_tests(study: Study, model: Model) -> dict[str, Any]:
    """`metrics.fit` and, where something was held out, `metrics.holdout`: how well the machine predicts each.

    Args:
        study: what was fitted and what was held out.
        model: the identified machine's.
    """
    kinds = {"fit": study.fitted, "holdout": study.checks}
    return {kind: verdict(model, entries) for kind, entries in kinds.items() if entries}


def verdict(model: Model, entries: Sequence[Entry]) -> dict[str, Any]:
    """How well a machine predicts tests, together and each.

    Args:
        model: the machine's.
        entries: the tests.

    Returns:
        "frac": mean over all FRFs of all tests, 1 alike; "log_error": root mean square error of log H;
        "frequency_error_hz": mean absolute error of the natural frequencies; "explained_percent": what is explained of
        data on a linear scale, mean over the tests; each None where no test has it. "tests": the same of each test by
        name, with the number of its modes.
    """
    each = {entry.name: entry.test.score(entry.test.view(model), entry.reference_hz) for entry in entries}
    return _told(list(each.values())) | {
        "tests": {name: _told([score]) | {"modes": len(score.frequency_errors_hz)} for name, score in each.items()}
    }


def _told(scores: Sequence[Score]) -> dict[str, Any]:
    fracs = [x for score in scores for x in score.frac]
    logs = [score.log_error for score in scores if score.log_error is not None]
    errors = [e for score in scores for e in score.frequency_errors_hz]
    explained = [score.explained_percent for score in scores if score.explained_percent is not None]
    return {
        "frac": float(np.mean(fracs)) if fracs else None,
        "log_error": float(np.sqrt(np.mean(np.square(logs)))) if logs else None,
        "frequency_error_hz": float(np.mean(errors)) if errors else None,
        "explained_percent": float(np.mean(explained)) if explained else None,
    }
