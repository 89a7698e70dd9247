"""Prediction scores of fitted and held-out tests."""

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from jaxmb.identify.experiments.entry import Entry
from jaxmb.identify.experiments.test import Score


@dataclasses.dataclass(frozen=True, eq=False)
class Prediction:
    """Prediction score; None for quantities that do not apply."""

    frac: float | None
    """Mean frequency response assurance criterion of all FRFs, 1 for proportional FRFs."""
    log_error: float | None
    """Root mean square error of log H."""
    frequency_error_hz: float | None
    """Mean absolute error of the natural frequencies."""
    explained_percent: float | None
    """Explained part of data on a linear scale, mean over the tests."""


@dataclasses.dataclass(frozen=True, eq=False)
class TestPrediction(Prediction):
    """Prediction score of one test."""

    __test__ = False

    modes: int
    """Number of compared natural frequencies."""


@dataclasses.dataclass(frozen=True, eq=False)
class Verdict(Prediction):
    """Prediction scores of several tests, overall and by name."""

    tests: dict[str, TestPrediction]


def verdict(entries: Sequence[Entry], views: Iterable[Any]) -> Verdict:
    """Prediction scores of some tests, overall and by name.

    Args:
        entries: the tests.
        views: of the machine, one for each test.
    """
    each = {e.name: e.test.score(view, e.reference_hz) for e, view in zip(entries, views, strict=True)}
    tests = {
        name: TestPrediction(*_means([score]), modes=len(score.frequency_errors_hz)) for name, score in each.items()
    }
    return Verdict(*_means(list(each.values())), tests=tests)


def _means(scores: Sequence[Score]) -> tuple[float | None, float | None, float | None, float | None]:
    """Mean FRAC, error of log H, error of frequencies (Hz) and explained part (percent) of some scores."""
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
