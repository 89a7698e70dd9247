"""Table of kinds of tests: additional metrics, remarks and systematic errors of each kind."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxmb.identify.assess.estimate import Estimate
from jaxmb.identify.assess.metrics import (
    KindMetrics,
    Metrics,
    StiffnessModelMetrics,
    prediction_scores,
    prior_std_by_name,
    truth_metrics,
)
from jaxmb.identify.assess.tests.deflections import DeflectionMetrics, deflection_remarks, errors_by_sag
from jaxmb.identify.assess.tests.frf import FrfMetrics, ModesMetrics, frf_remarks
from jaxmb.identify.assess.tests.poses import PoseMetrics, errors_between_stations
from jaxmb.identify.assess.tests.torque import TorqueMetrics, systematic_errors, torque_remarks
from jaxmb.identify.experiments.test import by_kind
from jaxmb.identify.study.study import Solver, Study
from jaxmb.io.files import restored


class Kind(NamedTuple):
    """Assessment of a kind of test."""

    metrics: type[KindMetrics] = KindMetrics
    remarks: Callable[..., tuple[list[str], list[str]]] | None = None
    """(estimate, entries of the kind, its metrics) -> likely causes of a poor fit, and other doubts; None for none."""
    systematic: Callable[..., tuple[np.ndarray, Sequence[str]]] | None = None
    """(estimate, entries of the kind) -> covariance of u by systematic errors, and remarks; None for none."""
    shared: tuple[str, ...] = ()
    """Lists of metrics that other kinds have as well; in each of their lines `posture` is the name of a test."""


KINDS: dict[str, Kind] = {
    "frf": Kind(FrfMetrics, frf_remarks, shared=("measured_modes", "unmatched_modes")),
    "modes": Kind(ModesMetrics, shared=("measured_modes",)),
    "deflection": Kind(DeflectionMetrics, deflection_remarks, errors_by_sag),
    "torque": Kind(TorqueMetrics, torque_remarks, systematic_errors),
    "pose": Kind(PoseMetrics, systematic=errors_between_stations),
}


def read_metrics(data: Mapping[str, Any], study: Study) -> Metrics:
    """Metrics from `metrics` of result.json.

    Args:
        data: those.
        study: the identified study.
    """
    if study.solver is Solver.STIFFNESS_MODEL:
        return Metrics(stiffness_model=restored(StiffnessModelMetrics, data))
    tests = {}
    for kind, entries in by_kind(study.entries, KINDS):
        names = {entry.name for entry in entries}
        own = {
            name: [line for line in data[name] if line["posture"] in names]
            for name in KINDS[kind].shared
            if name in data
        }
        tests[kind] = KINDS[kind].metrics.read({**data, **own})
    found = {kind: record for kind, record in tests.items() if record is not None}
    return dataclasses.replace(restored(Metrics, {**data, "tests": {}}), tests=found)


def fit_metrics(estimate: Estimate) -> Metrics:
    """Metrics of a fit: errors against the truth, prediction scores of fitted and held-out tests, and metrics of each
    kind of test."""
    study, held_out = estimate.study, [entry.test.view(estimate.model) for entry in estimate.study.checks]
    found = {
        kind: record
        for kind, entries in by_kind(study.entries, KINDS)
        if (record := KINDS[kind].metrics.of_fit(estimate, entries)) is not None
    }
    return dataclasses.replace(
        truth_metrics(estimate),
        misfit=estimate.goodness.misfit,
        fit=prediction_scores(study.fitted, estimate.views),
        holdout=prediction_scores(study.checks, held_out) if held_out else None,
        tests=found,
        prior_log_std=prior_std_by_name(study, np.array(study.free.logarithmic), 1.0),
        prior_std=prior_std_by_name(study, ~np.array(study.free.logarithmic), study.free.width),
    )


def kind_remarks(estimate: Estimate, metrics: Metrics) -> tuple[list[str], list[str]]:
    """Sentences of each kind of test: likely causes of a poor fit, and other doubts."""
    found = [
        remarks(estimate, entries, metrics.tests.get(kind))
        for kind, entries in by_kind(estimate.study.entries, KINDS)
        if (remarks := KINDS[kind].remarks) is not None
    ]
    return [text for causes, _ in found for text in causes], [text for _, others in found for text in others]


def with_systematic_errors(estimate: Estimate) -> tuple[Estimate, list[str]]:
    """The fit with standard deviations that include systematic errors of its tests, and remarks on these."""
    sentences = list[str]()
    for kind, entries in by_kind(estimate.study.entries, KINDS):
        systematic = KINDS[kind].systematic
        if systematic is not None:
            covariance, remarks = systematic(estimate, entries)
            estimate, sentences = estimate.with_added_covariance(covariance), [*sentences, *remarks]
    return estimate, sentences
