"""How well a machine predicts tests, those that were fitted and those that were held out."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.test import Score


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """How well a machine predicts something; None what it cannot tell."""

    frac: float | None
    """Mean over all FRFs, 1 alike."""
    log_error: float | None
    """Root mean square error of log H."""
    frequency_error_hz: float | None
    """Mean absolute error of the natural frequencies."""
    explained_percent: float | None
    """What is explained of data on a linear scale, mean over the tests."""


@dataclasses.dataclass(frozen=True, eq=False)
class TestPrediction(Prediction):
    """How well a machine predicts one test."""

    __test__ = False

    modes: int
    """Natural frequencies that were compared."""


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict(Prediction):
    """How well a machine predicts tests, together and each by name."""

    tests: dict[str, TestPrediction]


def verdict(entries: Sequence[Entry], views: Iterable[Any]) -> Verdict:
    """How well a machine predicts tests, together and each.

    Args:
        entries: the tests.
        views: what each of them sees of the machine.
    """
    each = {e.name: e.test.score(view, e.reference_hz) for e, view in zip(entries, views, strict=True)}
    tests = {
        name: TestPrediction(*_means([score]), modes=len(score.frequency_errors_hz)) for name, score in each.items()
    }
    return Verdict(*_means(list(each.values())), tests=tests)


def _means(scores: Sequence[Score]) -> tuple[float | None, float | None, float | None, float | None]:
    """FRAC, error of log H, of frequencies, and what is explained."""
    fracs = [x for score in scores for x in score.frac]
    logs = [score.log_error for score in scores if score.log_error is not None]
    errors = [e for score in scores for e in score.frequency_errors_hz]
    explained = [score.explained_percent for score in scores if score.explained_percent is not None]
    return (
        float(np.mean(fracs)) if fracs else None,
        float(np.sqrt(np.mean(np.square(logs)))) if logs else None,
        float(np.mean(errors)) if errors else None,
        float(np.mean(explained)) if explained else None,
    )
